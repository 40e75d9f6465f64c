"""The file of tuned choices: what measurements chose for kernels of one device, as JSON that people can read.

An entry is keyed by kernel, source, constants and shape, so a changed kernel makes its own entries stale and no others.
So does a rule of `ops` that changed: a choice was the fastest compared with the rule's.
A file from a stranger is data: its size is bounded, every field is checked, and what a choice means is checked again by
whoever applies it. Files are written beside and renamed, so a reader sees the old one or the new one.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ..base.files import write_whole
from ..base.printable import printable
from ..errors import TuningError

if TYPE_CHECKING:
    from ..backends.protocol import Capabilities

FORMAT, VERSION = "ostinato.tuned", 1
_MOST_BYTES = 16 << 20
_MOST_ENTRIES = 10_000
_MOST_TEXT = 4096
_MOST_PARTS = 64
_LARGEST = 1 << 53

Scalar = int | float | str | bool | None
Choice = Mapping[str, Scalar | Sequence[Scalar]]


@dataclass(frozen=True, slots=True)
class Site:
    """A place in an operation that launches a kernel in one of several ways."""

    kernel: str
    source: str
    """A digest of the kernel's source, see `Module.kernel_key`."""
    shape: str
    defaults: Mapping[str, int]
    """The way it goes without a tuned choice."""
    values: Mapping[str, tuple[int, ...]]
    """What each parameter may be."""
    changes_sums: frozenset[str] = frozenset()
    """Parameters that change the order of additions, and so the last bits of results."""
    multiple: tuple[str, tuple[str, ...], int] | None = None
    """A parameter that must be a multiple of the product of others and a factor."""

    def fits(self, choice: Mapping[str, Any]) -> bool:
        """Whether a choice names these parameters, each with a value that it may have."""
        if choice.keys() != self.values.keys():
            return False
        if any(type(choice[name]) is not int or choice[name] not in self.values[name] for name in choice):
            return False
        if self.multiple is None:
            return True
        whole, parts, factor = self.multiple
        return not choice[whole] % (factor * math.prod(choice[part] for part in parts))


class Choices(Protocol):
    """Where operations look for the choice of a site."""

    def choice(self, site: Site) -> Mapping[str, int] | None:
        """The choice for a site; None for its defaults."""

    @property
    def description(self) -> str:
        """What reports say about it; empty for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What was chosen for one kernel and shape."""

    kernel: str
    source: str
    constants: str = ""
    shape: str
    space: str = ""
    """A digest of what could be chosen from; empty for built-in operations, which check choices themselves."""
    conditions: str = ""
    """A digest of all else that such a result depends on; empty for built-in operations."""
    choice: Choice
    first: Choice
    """What it was compared with."""
    best_source: str = ""
    """The sources of the chosen candidate, where that is not the first."""
    ratio: tuple[float, float, float] | None = None
    """Time of the choice as a part of the first one's: estimate, low, high; None if none is surely faster."""
    changes_sums: bool = False
    inside: bool = False
    """Whether whole graphs were timed, rather than the candidates alone."""
    measured: str = ""
    """When, in UTC."""

    @property
    def key(self) -> tuple[str, ...]:
        """What identifies it in a file."""
        built_in = (self.kernel, self.source, self.constants, self.shape)
        return (*built_in, self.space, self.conditions, str(self.changes_sums))


@dataclass(frozen=True)
class Tuned:
    """The tuned choices of one device. `choice` answers operations that ask for theirs."""

    device: Mapping[str, str]
    entries: tuple[Entry, ...] = ()
    path: str = ""
    digest: str = ""
    """Of the file."""
    sums: bool = False
    """Whether entries that change the order of additions apply."""
    _sites: Mapping[tuple[str, str, str], Entry] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        sites: dict[tuple[str, str, str], Entry] = {}
        for entry in sorted(self.entries, key=lambda entry: entry.changes_sums):
            if not entry.space and (self.sums or not entry.changes_sums):
                sites[entry.kernel, entry.source, entry.shape] = entry
        object.__setattr__(self, "_sites", sites)

    def choice(self, site: Site) -> Mapping[str, int] | None:
        """The choice for a site, checked; None if the file has none for this source, shape and rule."""
        entry = self._sites.get((site.kernel, site.source, site.shape))
        if entry is None or entry.first != site.defaults:
            return None
        chosen: Mapping[str, Any] = entry.choice
        changed = {name for name in chosen if chosen[name] != entry.first.get(name)}
        if not site.fits(chosen) or (not self.sums and changed & site.changes_sums):
            raise TuningError(
                f"{printable(self.path)}: the choice {printable(str(dict(chosen)), 200)} for {site.kernel} of shape"
                f" {site.shape} is not one that this kernel has; remove the entry, or tune again"
            )
        return chosen

    @property
    def description(self) -> str:
        """The file, its digest and how much it has, for reports."""
        sums = ", with other orders of addition" if self.sums else ""
        return f"{Path(self.path).name} ({len(self._sites)} choices, {self.digest[:8]}{sums})"

    def with_entry(self, entry: Entry) -> Tuned:
        """The same with one entry added, or replaced where the key is the same.

        Entries of earlier sources of the same built-in kernel and shape go: no program can use them.
        """
        kept = [
            other
            for other in self.entries
            if other.key != entry.key
            and not (
                not entry.space
                and not other.space
                and (other.kernel, other.shape) == (entry.kernel, entry.shape)
                and other.source != entry.source
            )
        ]
        return replace(self, entries=(*kept, entry))


def identity(capabilities: Capabilities) -> dict[str, str]:
    """What tells a device's file from that of another."""
    return {
        "backend": capabilities.backend,
        "description": capabilities.description,
        "workers": str(capabilities.workers),
    }


def read(path: str | Path, sums: bool = False) -> Tuned:
    """Read a file; raises a `TuningError` that names it for anything that is not one."""
    shown = printable(str(path))
    try:
        with Path(path).open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise TuningError(f"cannot read the tuned file {shown}: {reason}") from None
    if len(data) > _MOST_BYTES:
        raise TuningError(f"{shown} is larger than {_MOST_BYTES >> 20} MiB, and not read")
    try:
        document = json.loads(data, parse_constant=_no_constant)
        device, entries = _document(document)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise TuningError(f"{shown} is not a file of tuned choices: {printable(str(error), 200)}") from None
    return Tuned(device, entries, str(path), hashlib.sha256(data).hexdigest(), sums)


def write(tuned: Tuned, path: str | Path) -> None:
    """Write a file beside, then rename it to `path`."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        "device": dict(tuned.device),
        "entries": [asdict(entry) for entry in tuned.entries],
    }
    write_whole(path, (json.dumps(document, indent=2, allow_nan=False) + "\n").encode())


def add(path: str | Path, capabilities: Capabilities, entries: Iterable[Entry]) -> None:
    """Add entries to the file at `path`, which another process may be adding to as well."""
    folder = os.open(Path(path).parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        tuned = for_device(path, capabilities)
        for entry in entries:
            tuned = tuned.with_entry(entry)
        write(tuned, path)
    finally:
        os.close(folder)


def for_device(path: str | Path, capabilities: Capabilities) -> Tuned:
    """The file at `path`, or an empty one where there is none yet; raises if it is of another device."""
    if not Path(path).exists():
        if not Path(path).parent.is_dir():
            raise TuningError(f"{printable(str(path))}: there is no such folder to keep tuned choices in")
        return Tuned(identity(capabilities), path=str(path))
    tuned = read(path)
    check_device(tuned, capabilities)
    return tuned


def check_writable(path: str | Path) -> None:
    """Raise a `TuningError` if the file cannot be written: before a measurement, whose result would be lost."""
    try:
        with tempfile.TemporaryFile(dir=Path(path).parent):
            pass
    except OSError as error:
        raise TuningError(f"cannot write the tuned file {printable(str(path))}: {error.strerror}") from None


def check_device(tuned: Tuned, capabilities: Capabilities) -> None:
    """Raise a `TuningError` if the file is of another device."""
    if dict(tuned.device) != identity(capabilities):
        theirs, ours = (", ".join(device.values()) for device in (tuned.device, identity(capabilities)))
        raise TuningError(
            f"{printable(tuned.path)} has choices for another device ({printable(theirs, 200)}), not for this one"
            f" ({ours}); keep one file per device"
        )


# --- checking -------------------------------------------------------------------------------------------------


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def _document(document: Any) -> tuple[dict[str, str], tuple[Entry, ...]]:
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ValueError(f'expected "format": "{FORMAT}"')
    if document.get("version") != VERSION:
        raise ValueError(f"version {document.get('version')!r}; this release reads version {VERSION}")
    device, listed = document.get("device"), document.get("entries")
    names = ("backend", "description", "workers")
    if not isinstance(device, dict) or set(device) != set(names):
        raise ValueError(f"device: expected {', '.join(names)}")
    if not isinstance(listed, list) or len(listed) > _MOST_ENTRIES:
        raise ValueError(f"entries: expected a list of at most {_MOST_ENTRIES:,}")
    entries = tuple(_entry(entry, f"entries[{at}]") for at, entry in enumerate(listed))
    return {name: _text(device[name], f"device.{name}") for name in names}, entries


def _entry(entry: Any, where: str) -> Entry:
    if not isinstance(entry, dict):
        raise ValueError(f"{where}: expected an object")
    known = {each.name for each in fields(Entry)}
    unknown = sorted(str(name) for name in entry.keys() - known)
    if unknown:
        raise ValueError(f"{where}: unknown field {unknown[0]!r}")
    checked: dict[str, Any] = {}
    for name, value in entry.items():
        place = f"{where}.{name}"
        if name in ("choice", "first"):
            checked[name] = _choice(value, place)
        elif name in ("changes_sums", "inside"):
            if not isinstance(value, bool):
                raise ValueError(f"{place}: expected true or false")
            checked[name] = value
        elif name == "ratio":
            checked[name] = None if value is None else _ratio(value, place)
        else:
            checked[name] = _text(value, place)
    missing = [name for name in ("kernel", "source", "shape", "choice", "first") if name not in checked]
    if missing:
        raise ValueError(f"{where}: {missing[0]} is missing")
    return Entry(**checked)


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or len(value) > _MOST_TEXT:
        raise ValueError(f"{where}: expected a text of at most {_MOST_TEXT:,} characters")
    return value


def _ratio(value: Any, where: str) -> tuple[float, float, float]:
    numbers = value if isinstance(value, list) else []
    if len(numbers) != 3 or not all(type(number) in (int, float) and 0 < number < 1e6 for number in numbers):
        raise ValueError(f"{where}: expected three positive numbers")
    return float(numbers[0]), float(numbers[1]), float(numbers[2])


def _choice(value: Any, where: str) -> Choice:
    if not isinstance(value, dict) or len(value) > _MOST_PARTS:
        raise ValueError(f"{where}: expected an object of at most {_MOST_PARTS} values")
    return {_text(name, where): _value(part, f"{where}.{name}") for name, part in value.items()}


def _value(value: Any, where: str, nested: bool = False) -> Any:
    if isinstance(value, str):
        return _text(value, where)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float) and abs(value) <= _LARGEST:
        return value
    if isinstance(value, list) and not nested and len(value) <= _MOST_PARTS:
        return [_value(part, where, True) for part in value]
    raise ValueError(f"{where}: expected a number, a text, or a short list of them")
