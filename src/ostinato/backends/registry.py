"""The kinds of devices: those that are built in, and those that installed packages add.

A package adds a kind by an entry point of the group `ostinato.backends`, whose name opens the device and whose object
is a `BackendKind`:

    [project.entry-points."ostinato.backends"]
    vulkan = "ostinato_vulkan:KIND"

Packages are looked up only when a name is not built in and when all kinds are asked for ("auto", `devices()`), and
backends are imported only when they are asked for. What is wrong with a package never stands in the way of the others:
it is the reason why that kind cannot be used.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .. import settings
from ..errors import DeviceUnavailable, OstinatoError
from .protocol import Backend, Capabilities

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "ostinato.backends"

Availability = tuple[Capabilities | None, str]
"""What a device that is opened without options can do, or None with the reason why it cannot be opened."""


@dataclass(frozen=True, slots=True)
class BackendKind:
    """A kind of device: how to find out about it and how to open it."""

    name: str
    """What opens it; the name of the entry point."""
    open: Callable[..., Backend]
    """Opens a device with the options that were given, by keyword; with `ordinals` also `ordinal`, a number from 0."""
    options: tuple[str, ...] = ()
    """The options that `open` knows."""
    ordinals: bool = False
    """Whether there can be several: "name:1" is the second."""
    priority: int = 0
    """ "auto" tries kinds by descending priority (metal 300, cuda 200, cpu 100), and never one with 0."""
    availability: Callable[[], Availability] | None = None
    """For `devices()`, without opening a device; where there is none, `devices()` opens one for a moment."""


def kind(name: str) -> BackendKind:
    """The kind of this name; raises `DeviceUnavailable` if there is none or if its package is broken."""
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    point = _plug_ins().get(name)
    if point is None:
        raise DeviceUnavailable(f"no device named {name!r}; there are {', '.join(names())} and auto")
    return _load(name, point)


def names() -> tuple[str, ...]:
    """The names of all kinds, usable or not."""
    return (*_BUILT_IN, *_plug_ins())


def by_priority() -> tuple[list[BackendKind], dict[str, str]]:
    """Every kind, in the order of "auto"; and by name the reasons why others cannot be loaded."""
    kinds, reasons = list(_BUILT_IN.values()), {}
    for name, point in _plug_ins().items():
        try:
            kinds.append(_load(name, point))
        except DeviceUnavailable as error:
            reasons[name] = str(error)
    return sorted(kinds, key=lambda each: -each.priority), reasons


def availability(name: str) -> Availability:
    """What a kind says of itself, or what is wrong with its package."""
    try:
        ask = kind(name).availability
        capabilities, reason = _opened(name) if ask is None else ask()
        if capabilities is None or isinstance(capabilities, Capabilities):
            return capabilities, reason
        return None, f"{name!r} says that it is available with a {type(capabilities).__name__}; expected Capabilities"
    except OstinatoError as error:
        return None, str(error)
    except Exception as error:  # a package's: it may be anything, and the other kinds are still to be asked
        return None, _failed(name, "cannot tell whether it is available", error)


def knows(name: str) -> bool:
    """Whether a device's name, which may have a number, is that of a kind."""
    try:
        base, _ = _split(name)
    except DeviceUnavailable:
        return False
    return base in _BUILT_IN or base in _plug_ins()


def open_backend(name: str, options: Mapping[str, Any]) -> Backend:
    """Open a device by its name."""
    base, ordinal = _split(name)
    chosen = kind(base)
    unknown = sorted(options.keys() - set(chosen.options))
    if unknown:
        *most, last = chosen.options or ("none",)
        known = f"{', '.join(most)} and {last}" if most else last
        raise DeviceUnavailable(f"device {base!r} has no option {', '.join(unknown)}; it has {known}")
    numbered = {"ordinal": ordinal} if chosen.ordinals else {}
    try:
        return chosen.open(**options, **numbered)
    except OstinatoError:
        raise
    except Exception as error:
        raise DeviceUnavailable(_failed(name, "cannot be opened", error)) from error


def _opened(name: str) -> Availability:
    with closing(open_backend(name, {})) as backend:
        return backend.capabilities, ""


def _split(name: str) -> tuple[str, int]:
    """The name of the kind and the number of the device in a device's name: "cuda:1"."""
    base, colon, number = name.rpartition(":")
    if not colon or (base not in _BUILT_IN and (name in _plug_ins() or base not in _plug_ins())):
        return name, 0
    if not kind(base).ordinals:
        return name, 0
    if not number.isdecimal():
        raise DeviceUnavailable(f"{name!r}: expected {base} or {base}:0, {base}:1, …")
    return base, int(number)


def _from(module: str, name: str) -> Callable[..., Any]:
    """A function of a backend, which is imported when the function is called."""

    def call(**options: Any) -> Any:
        return getattr(import_module(module, __package__), name)(**options)

    return call


_BUILT_IN: Mapping[str, BackendKind] = {
    each.name: each
    for each in (
        BackendKind(
            "metal",
            _from(".metal", "MetalBackend"),
            ("sampling", "indirect", "fast_math", "subsets", "gputrace"),
            priority=300,
        ),
        BackendKind(
            "cuda",
            _from(".cuda", "CudaBackend"),
            ("sampling", "native", "nvtx", "debug", "tf32"),
            ordinals=True,
            priority=200,
        ),
        BackendKind(
            "cpu",
            _from(".cpu", "CpuBackend"),
            ("workers", "threadgroup_memory", "checked", "overflow", "nan", "unwritten", "debug", "sampling"),
            priority=100,
            availability=_from(".cpu", "availability"),
        ),
    )
}


def _plug_ins() -> Mapping[str, EntryPoint]:
    return _installed(tuple(sys.path))


@lru_cache(maxsize=1)
def _installed(path: tuple[str, ...]) -> Mapping[str, EntryPoint]:
    """The entry points of installed packages by the name that opens them.

    A name that is taken is refused under a name of its own, "package:name".
    """
    from importlib.metadata import entry_points  # 30 ms, which opening a built-in device by name does not take

    points: dict[str, EntryPoint] = {}
    try:
        installed = tuple(entry_points(group=GROUP))
    except Exception as error:  # one package with broken metadata, of whatever kind, is enough
        settings.report_once(GROUP, f"installed packages cannot be searched for backends: {error}")
        installed = ()
    for point in installed:
        taken = point.name in _BUILT_IN or point.name in points or point.name == "auto"
        points[f"{_package(point)}:{point.name}" if taken else point.name] = point
    return points


def _load(name: str, point: EntryPoint) -> BackendKind:
    if name != point.name:
        raise DeviceUnavailable(
            f"{name!r}: package {_package(point)} adds a device under the name {point.name!r}, which is taken"
        )
    try:
        loaded = point.load()
    except Exception as error:
        raise DeviceUnavailable(_failed(name, f"cannot be loaded from {point.value!r}", error)) from error
    if not isinstance(loaded, BackendKind):
        raise DeviceUnavailable(
            f"{name!r}: entry point {point.value!r} of package {_package(point)} is a {type(loaded).__name__};"
            " expected an ostinato.backends.registry.BackendKind"
        )
    if loaded.name != name:
        raise DeviceUnavailable(
            f"{name!r}: entry point {point.value!r} of package {_package(point)} is named {loaded.name!r};"
            " entry point and kind have one name"
        )
    return loaded


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "?"


def _failed(name: str, what: str, error: Exception) -> str:
    return f"{name!r} {what}: {type(error).__name__}: {error}"
