"""Every setting, with its environment variable, in one table.

A setting is an `OSTINATO_*` variable; some have aliases with mlx-native's names. The environment is read at every
use, so a change of `os.environ` (or a call of `change`) in a running process applies from the next encoder,
submission or device on. `0` means off, and an empty value means unset. A variable that is set overrides the
corresponding argument. Unknown `OSTINATO_*` variables, and settings that a device does not support, are reported
once each as a `SettingWarning`.
"""

from __future__ import annotations

import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .errors import SettingError, SettingWarning

BARRIER_MODES = ("auto", "manual", "serial")
LOG_LEVELS = ("debug", "info", "notice", "error", "fault")
"""Of os_log in kernels, ascending."""
_LOG_BYTES = (1 << 10, 1 << 30)
"""Bounds."""

Value = bool | str


@dataclass(frozen=True, slots=True)
class Gate:
    """One setting: its name, variable, aliases with their parsers, and meaning."""

    name: str
    variable: str
    read: Callable[[str], Value | None]
    aliases: tuple[tuple[str, Callable[[str], Value | None]], ...]
    values: str
    meaning: str


def _switch(text: str) -> bool:
    lowered = text.lower()
    if lowered in ("1", "true", "on", "yes"):
        return True
    if lowered in ("0", "false", "off", "no"):
        return False
    raise ValueError("0 or 1")


def _permission(text: str) -> bool:
    """A switch that the library honours on every device."""
    return _switch(text)


def _level(text: str) -> str:
    lowered = text.lower()
    if lowered in ("dispatches", "command_buffers", "off"):
        return lowered
    try:
        return "dispatches" if _switch(lowered) else "off"
    except ValueError:
        raise ValueError("dispatches, command_buffers, or 0 for off") from None


def _seconds(text: str) -> str:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not seconds >= 0:
        raise ValueError("a number of seconds, inf for no limit, or 0 for not at all")
    return text


def _text(text: str) -> str | None:
    return None if text == "0" else text


def _barriers(text: str) -> str:
    lowered = text.lower()
    if lowered in BARRIER_MODES:
        return lowered
    if lowered in ("0", "1"):
        return _auto_barrier(lowered)
    raise ValueError("auto, manual, serial, or 0 for manual")


def _log_level(text: str) -> str:
    lowered = text.lower()
    if lowered in ("0", "off"):
        return "off"
    if lowered in LOG_LEVELS:
        return lowered
    raise ValueError(f"{', '.join(LOG_LEVELS)}, or 0 for off")


def _log_bytes(text: str) -> str:
    least, most = _LOG_BYTES
    if not text.isdecimal() or not least <= int(text) <= most:
        raise ValueError(f"{least} to {most} bytes")
    return text


def _auto_barrier(text: str) -> str:
    return "auto" if _switch(text) else "manual"


def _force_serial(text: str) -> str | None:
    return "serial" if _switch(text) else None


GATES: Mapping[str, Gate] = {
    gate.name: gate
    for gate in (
        Gate(
            "device",
            "OSTINATO_DEVICE",
            _text,
            (),
            "a device name",
            "the device that open_device() opens, whatever its argument",
        ),
        Gate(
            "cache_dir",
            "OSTINATO_CACHE_DIR",
            _text,
            (),
            "a folder",
            "where compiled kernels are cached (private: owned by you, mode 0700)",
        ),
        Gate(
            "barriers",
            "OSTINATO_BARRIERS",
            _barriers,
            # Serial first: it is a debugging aid, and must override a permanent auto or manual choice.
            (("HF2Q_FORCE_SERIAL_DISPATCH", _force_serial), ("HF2Q_AUTO_BARRIER", _auto_barrier)),
            "auto, manual, serial; 0 is manual",
            "how an encoder orders its dispatches",
        ),
        Gate(
            "tuned",
            "OSTINATO_TUNED",
            _text,
            (),
            "a file",
            "tuned choices for operations, from `ostinato tune`; not applied to devices other than the file's",
        ),
        Gate(
            "tuned_sums",
            "OSTINATO_TUNED_SUMS",
            _permission,
            (),
            "0 or 1",
            "1: tuned choices may change the order of additions, and so the last bits of results",
        ),
        Gate(
            "debug",
            "OSTINATO_DEBUG",
            _switch,
            (),
            "0 or 1",
            "1: kernels are built for debugging: gdb steps through their Metal source on the CPU, and printf prints",
        ),
        Gate(
            "coverage",
            "OSTINATO_COVERAGE",
            _text,
            (),
            "a file; {pid} becomes the process ID",
            "kernels of checked CPU devices count their lines, written to this file for lcov at exit",
        ),
        Gate(
            "unretained_refs",
            "OSTINATO_UNRETAINED_REFS",
            _switch,
            (("MLX_UNRETAINED_REFS", _switch),),
            "0 or 1",
            "1: command buffers do not retain their buffers (Metal); ostinato keeps the memory until the work is done",
        ),
        Gate(
            "no_residency",
            "OSTINATO_NO_RESIDENCY",
            _switch,
            (("HF2Q_NO_RESIDENCY", _switch),),
            "0 or 1",
            "1: the residency set is not used",
        ),
        Gate(
            "exit_wait",
            "OSTINATO_EXIT_WAIT",
            _seconds,
            (),
            "seconds; inf, or 0 for not at all",
            "how long the process waits for committed work at exit (60 s)",
        ),
        Gate(
            "log_level",
            "OSTINATO_LOG_LEVEL",
            _log_level,
            (),
            "debug, info, notice, error, fault; 0 is off",
            "the lowest level of os_log in kernels that prints (debug)",
        ),
        Gate(
            "log_bytes",
            "OSTINATO_LOG_BYTES",
            _log_bytes,
            (),
            "bytes, 1 KiB to 1 GiB",
            "how much the kernels of one submission may print, as records (1 MiB); the rest is dropped and counted",
        ),
        Gate(
            "profile",
            "OSTINATO_PROFILE",
            _level,
            (),
            "dispatches, command_buffers; 1 is dispatches, 0 is off",
            "records what the program submits into OSTINATO_PROFILE_FILE",
        ),
        Gate(
            "profile_file",
            "OSTINATO_PROFILE_FILE",
            _text,
            (),
            "a file; {host}, {rank} and {pid} become those of the process",
            "the recording's file (PROGRAM-PID.ostinato if only OSTINATO_PROFILE is set)",
        ),
        Gate(
            "profile_source",
            "OSTINATO_PROFILE_SOURCE",
            _permission,
            (),
            "0 or 1",
            "1: recordings contain the source texts of kernels; 0: they never do, and pages show none from local files",
        ),
        Gate(
            "profile_barriers",
            "OSTINATO_PROFILE_BARRIERS",
            _switch,
            (("MLX_PROFILE_BARRIERS", _switch),),
            "0 or 1",
            "1: barrier_total_ns() sums up the time spent encoding explicit barriers, and timed_barrier_count() counts"
            " them",
        ),
        Gate(
            "profile_cb",
            "OSTINATO_PROFILE_CB",
            _switch,
            (("MLX_PROFILE_CB", _switch),),
            "0 or 1",
            "1: every command buffer reports to kernel_profile",
        ),
        Gate(
            "profile_dispatch",
            "OSTINATO_PROFILE_DISPATCH",
            _switch,
            (("MLX_PROFILE_DISPATCH", _switch),),
            "0 or 1",
            "1: every dispatch reports to kernel_profile",
        ),
    )
}

_VARIABLES = frozenset(gate.variable for gate in GATES.values())
_SWITCHES = frozenset(gate.name for gate in GATES.values() if gate.read is _switch)
_reported: set[str] = set()
_PACKAGE = os.path.join(os.path.dirname(__file__), "")

# os.environ raises an exception internally for a missing name (1 µs), and settings are read for every encoder; the
# dictionary behind it takes 30 ns. Where that is not available, os.environ itself is used.
environment: Mapping[Any, Any] = getattr(os.environ, "_data", os.environ)
"""The environment, as it is now; its keys are those of `watched`."""
_encode: Callable[[str], Any] = getattr(os.environ, "encodekey", str)
_KEYS: Mapping[str, tuple[Any, ...]] = {
    gate.name: (_encode(gate.variable), *(_encode(alias) for alias, _ in gate.aliases)) for gate in GATES.values()
}


def get(name: str) -> Value | None:
    """The value of a setting, or None if neither its variable nor an alias is set."""
    for key in _KEYS[name]:
        if key in environment:
            break
    else:
        return None
    gate = GATES[name]
    for variable, read in ((gate.variable, gate.read), *gate.aliases):
        value = _parse(variable, read)
        if value is not None:
            return value
    return None


def watched(*names: str) -> tuple[Any, ...]:
    """The keys of these settings, for `any_set`: their variables and aliases, encoded as the environment has them."""
    return tuple(key for name in names for key in _KEYS[name])


def any_set(keys: tuple[Any, ...]) -> bool:
    """Whether any of these settings is set; fast enough to be called at every commit."""
    return not environment.keys().isdisjoint(keys)


def is_on(name: str) -> bool:
    """Whether a switch is set and not `0`."""
    return get(name) is True


def text(name: str) -> str | None:
    """The value of a text setting, or None."""
    value = get(name)
    return value if isinstance(value, str) else None


def seconds(name: str, default: float) -> float:
    """The value of a setting in seconds, or the default."""
    value = get(name)
    return float(value) if isinstance(value, str) else default


def change(name: str, value: Value | float | None) -> None:
    """Change a setting in this process (and the processes it starts); None unsets it.

    Aliases of its variable are removed from the environment, so that this value applies.
    """
    gate = GATES.get(name)
    if gate is None:
        raise SettingError(f"no setting named {name!r}; there are {', '.join(GATES)}")
    if value is not None:
        written = str(int(value)) if isinstance(value, bool) else str(value)
        try:
            gate.read(written)
        except ValueError as expected:
            raise SettingError(f"{name}={written!r}: expected {expected}") from None
    for alias, _ in gate.aliases:
        os.environ.pop(alias, None)
    if value is None:
        os.environ.pop(gate.variable, None)
    else:
        os.environ[gate.variable] = written


@contextmanager
def override(**values: Value | float | None) -> Iterator[None]:
    """Change settings for the length of a `with` block, then restore the environment."""
    names = [gate.variable for gate in GATES.values()]
    names += [alias for gate in GATES.values() for alias, _ in gate.aliases]
    before = {name: os.environ.get(name) for name in names}
    try:
        for name, value in values.items():
            change(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = old


def report_unknown() -> None:
    """Warn, once per name, about `OSTINATO_*` variables that are not in the table."""
    for name in os.environ:
        if name.startswith("OSTINATO_") and name not in _VARIABLES:
            report_once(name, f"{name} is not a setting of ostinato; known: {', '.join(sorted(_VARIABLES))}")


def report_unhonoured(device: str, honoured: frozenset[str]) -> None:
    """Warn, once per setting and device, about switches that are on but that the device does not support."""
    for name in _SWITCHES - honoured:
        if is_on(name):
            gate = GATES[name]
            report_once(f"{device}/{name}", f"{gate.variable} is set, but device {device!r} does not support it")


def report_once(key: str, message: str) -> None:
    """Issue a `SettingWarning` at the line of the user's program, unless one with this key was issued before."""
    if key not in _reported:
        _reported.add(key)
        level, frame = 2, sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
            level, frame = level + 1, frame.f_back
        warnings.warn(message, SettingWarning, stacklevel=level)


def _parse(variable: str, read: Callable[[str], Value | None]) -> Value | None:
    written = os.environ.get(variable, "").strip()
    if not written:
        return None
    try:
        return read(written)
    except ValueError as expected:
        raise SettingError(f"{variable}={written!r}: expected {expected}") from None
