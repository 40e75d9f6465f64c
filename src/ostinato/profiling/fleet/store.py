"""A store: Parquet files, and a log that says which of them count.

    fleet.json                       what this is, and of which version
    log/000000000001.json            one entry for each change, made exclusively; the next number is the next change
    TABLE/day=2026-11-18/device=1f0c…/4b2e….parquet

A file is written under a name that nobody else has, and counts when an entry of the log adds it. So a change is there
whole or not at all, whoever is killed when; several may write at once, and who comes second for a number looks at what
the other one changed and tries the next. Entries are never removed. Every so often one repeats the whole state, so that
a reader need not begin with the first.

Tables: `samples` (a row per timed command), `kernels` (a row per kernel and run), `runs` (a row per process and
device). A partition is a day (UTC, when the process began) and a digest of the device's name: no text of a recording is
ever part of a path. A store may come from strangers, like a recording: what the log says is checked before it is used.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from ...errors import FleetError
from ...version import __version__
from .places import Place, place, telling

VERSION = 1
TABLES = ("samples", "kernels", "runs")
MARK = "fleet.json"
_FORMAT = "ostinato.fleet"
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_DEVICE = re.compile(r"[0-9a-f]{16}")
_NAME = re.compile(r"[0-9a-f]{32}")
_ENTRY = re.compile(r"(\d{12})\.json")
_WHOLE_EVERY = 32
_MOST_BYTES = 1 << 28
_MOST_TRIES = 1000
_MOST_ASIDE = 10_000
_MOST_READINGS = 10

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Part:
    """One Parquet file of the store."""

    table: str
    day: str
    device: str
    """Digest of the device's name (`device_code`)."""
    name: str
    rows: int
    bytes: int

    @property
    def folder(self) -> str:
        return f"{self.table}/day={self.day}/device={self.device}"

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.name}.parquet"


@dataclass(frozen=True, slots=True)
class SetAside:
    """A recording that is not in the store, and why."""

    key: str
    """Of its contents, or of its name where those cannot be read: the same file is counted once."""
    file: str
    reason: str


@dataclass(frozen=True, slots=True)
class State:
    """What counts after an entry of the log."""

    number: int = 0
    parts: tuple[Part, ...] = ()
    aside: tuple[SetAside, ...] = ()
    processes: tuple[tuple[int, str], ...] = ()
    """The processes that entries have added since the state was first read, with the digests of their recordings."""

    def of(self, table: str) -> list[Part]:
        return [part for part in self.parts if part.table == table]


def device_code(name: str) -> str:
    """What stands for a device in paths."""
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def new_name() -> str:
    """A name that no other file has."""
    return secrets.token_hex(16)


class Store:
    """A store that is open. It holds nothing but where it is; every reading of the state is fresh."""

    def __init__(self, where: Place) -> None:
        self.place = where

    def state(self, since: State | None = None) -> State:
        """What counts now; with an earlier state, only later entries are read."""
        with telling(self.place, "read its log"):
            numbers = self._numbers()
            if since is not None:
                state = since
                for number in numbers:
                    if number > state.number:
                        state = _after(state, self._entry(number))
                return state
            later: list[dict[str, Any]] = []
            for number in reversed(numbers):
                entry = self._entry(number)
                if "whole" in entry:
                    state = _whole(entry)
                    break
                later.append(entry)
            else:
                state = State()
            for entry in reversed(later):
                state = _after(state, entry)
            return replace(state, processes=())

    def _numbers(self) -> list[int]:
        """The numbers of all entries. A folder that is listed while others write may show a late entry without an
        earlier one; then it is listed again."""
        for _ in range(_MOST_READINGS):
            numbers = sorted(int(found[1]) for found in map(_ENTRY.fullmatch, self.place.names("log")) if found)
            if numbers == list(range(1, len(numbers) + 1)):
                return numbers
            time.sleep(0.01)
        raise FleetError(f"{self.place.shown}: its log lacks an entry; the store is damaged")

    def commit(
        self,
        state: State,
        added: Sequence[Part],
        removed: Sequence[Part] = (),
        aside: Sequence[SetAside] = (),
        processes: Mapping[int, str] | None = None,
    ) -> State | None:
        """Make a change to a state. None if others changed what it rests on: files it removes, processes it adds.

        The caller then begins again with a fresh state; the files it wrote are forgotten.
        """
        with telling(self.place, "write its log"):
            for _ in range(_MOST_TRIES):
                new = {each.key for each in state.aside}
                entry: dict[str, Any] = {
                    "version": VERSION,
                    "number": state.number + 1,
                    "added": [asdict(part) for part in added],
                    "removed": [part.path for part in removed],
                    "aside": [asdict(each) for each in aside if each.key not in new],
                    "processes": [[int(process), digest] for process, digest in (processes or {}).items()],
                }
                after = _after(state, entry)
                if after.number % _WHOLE_EVERY == 0 or len(removed) > 1:
                    entry["whole"] = {
                        "parts": [asdict(part) for part in after.parts],
                        "aside": [asdict(each) for each in after.aside],
                    }
                if self.place.create(f"log/{after.number:012d}.json", json.dumps(entry).encode()):
                    return after
                before = state
                state = self.state(before)
                there = {part.path for part in state.parts}
                others = {process for process, _ in state.processes[len(before.processes) :]}
                if any(part.path not in there for part in removed) or not others.isdisjoint(processes or ()):
                    return None
            raise FleetError("too many others write to it at the same time")

    def consistently(self, read: Callable[[State], Made]) -> Made:
        """What `read` makes of the state; of a later one, if a merge took files away while it read."""
        for _ in range(_MOST_READINGS):
            state = self.state()
            try:
                return read(state)
            except FleetError:
                if self.state(state).number == state.number:
                    raise
        raise FleetError(f"{self.place.shown}: it changes faster than it can be read")

    def forget(self, parts: Iterable[Part]) -> None:
        """Remove files that count no more, or never did. One that cannot be removed is left."""
        for part in parts:
            with telling(self.place, "remove a file"):
                self.place.remove(part.path)

    def orphans(self, state: State) -> list[str]:
        """Files in partitions of the store that no entry of the log knows: what killed writers left."""
        known = {part.path for part in state.parts}
        folders = {part.folder for part in state.parts}
        with telling(self.place, "list it"):
            found = [f"{folder}/{name}" for folder in sorted(folders) for name in self.place.names(folder)]
        return [path for path in found if path not in known and path.endswith(".parquet")]

    def _entry(self, number: int) -> dict[str, Any]:
        data = self.place.read(f"log/{number:012d}.json")
        if len(data) > _MOST_BYTES:
            raise FleetError(f"{self.place.shown}: entry {number} of its log is too large")
        return _entry_of(data, number, self.place.shown)


def open_store(url: str | os.PathLike[str], create: bool = False) -> Store:
    """Open a store, which must be there unless it is to be created. One of a newer version is refused."""
    store = Store(place(url))
    with telling(store.place, "open it"):
        try:
            mark = store.place.read(MARK)
        except FileNotFoundError:
            if not create:
                raise FleetError(
                    f"{store.place.shown} is not a store; `ostinato fleet add RECORDINGS --to STORE` makes one"
                ) from None
            store.place.make_folder("log")
            text = json.dumps({"format": _FORMAT, "version": VERSION, "ostinato": __version__})
            store.place.create(MARK, text.encode())
            mark = store.place.read(MARK)
    try:
        about = json.loads(mark)
        known = about["format"] == _FORMAT and isinstance(about["version"], int)
    except (ValueError, KeyError, TypeError, RecursionError):
        known = False
    if not known:
        raise FleetError(f"{store.place.shown} is not a store: its {MARK} is something else")
    _check_version(about["version"], store.place.shown)
    return store


def _check_version(version: int, shown: str) -> None:
    if version > VERSION:
        raise FleetError(
            f"{shown} is of version {version}, made by a newer ostinato; this one ({__version__}) knows version"
            f" {VERSION}. Update ostinato"
        )


def _entry_of(data: bytes, number: int, shown: str) -> dict[str, Any]:
    """An entry of the log, checked."""
    try:
        entry = json.loads(data)
        _check_version(int(entry["version"]), shown)
        if entry["number"] != number:
            raise ValueError("it has another number")
        entry["added"] = [_part(part) for part in entry["added"]]
        entry["aside"] = [_aside(each) for each in entry["aside"]]
        entry["removed"] = [str(path) for path in entry["removed"]]
        entry["processes"] = [(int(process), str(digest)) for process, digest in entry["processes"]]
        if "whole" in entry:
            whole = entry["whole"]
            entry["whole"] = ([_part(part) for part in whole["parts"]], [_aside(each) for each in whole["aside"]])
    except FleetError:
        raise
    except (ValueError, KeyError, TypeError, RecursionError) as problem:
        raise FleetError(f"{shown}: entry {number} of its log is damaged ({problem})") from None
    made: dict[str, Any] = entry
    return made


def _part(given: Any) -> Part:
    part = Part(**given)
    fits = part.table in TABLES and _DAY.fullmatch(part.day) and _DEVICE.fullmatch(part.device)
    if not (fits and _NAME.fullmatch(part.name) and isinstance(part.rows, int) and isinstance(part.bytes, int)):
        raise ValueError("a file with an impossible name")
    return part


def _aside(given: Any) -> SetAside:
    aside = SetAside(**given)
    if not all(isinstance(text, str) and len(text) < 1 << 16 for text in (aside.key, aside.file, aside.reason)):
        raise ValueError("something set aside that is not text")
    return aside


def _whole(entry: dict[str, Any]) -> State:
    parts, aside = entry["whole"]
    return State(entry["number"], tuple(parts), tuple(aside))


def _after(state: State, entry: dict[str, Any]) -> State:
    """The state after an entry, as it is read or about to be written."""
    added = [part if isinstance(part, Part) else Part(**part) for part in entry["added"]]
    aside = [each if isinstance(each, SetAside) else SetAside(**each) for each in entry["aside"]]
    removed = set(entry["removed"])
    known = {each.key for each in state.aside}
    return State(
        entry["number"],
        (*(part for part in state.parts if part.path not in removed), *added),
        (*state.aside, *(each for each in aside if each.key not in known))[:_MOST_ASIDE],
        (*state.processes, *map(tuple, entry["processes"])),
    )
