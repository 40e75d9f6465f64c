"""Adding recordings to a store.

Recordings are read in batches. A batch writes a file for each partition it touches and is committed at once, so what
is committed counts whatever happens then, and adding the same recordings again goes on where a kill stopped it.
A recording that cannot be read is set aside: its reason is in the store, the file stays where it is, the others go on.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...base.printable import printable
from ...errors import FleetError, RecordingError
from ..recording import SUFFIX
from .engines import Engine
from .parts import arrow, dataset, write_runs
from .places import telling, without_secrets
from .reading import Run, read
from .store import Part, SetAside, State, Store, open_store

_BATCH_BYTES = 1 << 27
"""Of recordings, as they lie on disk."""
_BATCH_FILES = 256
_BATCH_SAMPLES = 2_000_000
"""In memory at once, unless one recording has more."""
_MOST_TRIES = 100
_LONGEST_REASON = 500
_HASHED_BYTES = 1 << 26

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _Batch:
    """A task: recordings to be read, and what the store holds already; a task elsewhere reads that itself."""

    store: str
    paths: tuple[str, ...]
    known: dict[int, str] | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class Built:
    """What a task made of its recordings: files that do not count yet."""

    parts: tuple[Part, ...]
    processes: dict[int, str]
    """Each with the digest of its recording."""
    recordings: int
    samples: int
    known: int
    """Recordings that the store has already."""
    aside: tuple[SetAside, ...]


@dataclass(slots=True)
class Added:
    """What adding came to."""

    recordings: int = 0
    samples: int = 0
    known: int = 0
    """Recordings that were in the store before."""
    aside: list[SetAside] = field(default_factory=list)


def found(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """The recordings that paths name: files as they are, and of folders all that end like recordings, by name."""
    files: list[Path] = []
    for path in map(Path, paths):
        files += sorted(path.rglob(f"*{SUFFIX}")) if path.is_dir() else [path]
    return list(dict.fromkeys(path.absolute() for path in files))


def add(
    paths: Sequence[str | os.PathLike[str]],
    url: str | os.PathLike[str],
    engine: Engine,
    progress: Progress = lambda _: None,
) -> Added:
    """Add recordings to a store, which is made if there is none."""
    arrow()
    files = found(paths)
    store = open_store(url, create=True)
    state, known = store.consistently(lambda state: (state, known_processes(store, state)))
    total = Added()
    passed = known if engine.workers == 1 else None
    batches = [_Batch(os.fspath(url), paths, passed) for paths in _batches(files)]
    for batch, built in engine.run(build, batches):
        state = _commit(store, state, batch, built, known, total)
        progress(f"{total.recordings + total.known + len(total.aside):,} of {len(files):,} recordings")
    return total


def _commit(store: Store, state: State, batch: _Batch, built: Built, known: dict[int, str], total: Added) -> State:
    """Make what a task built count; where others added the same meanwhile, it is built again without that."""
    for _ in range(_MOST_TRIES):
        if known.keys().isdisjoint(built.processes):
            if not built.parts and {each.key for each in built.aside} <= {each.key for each in state.aside}:
                after: State | None = state
            else:
                after = store.commit(state, built.parts, aside=built.aside, processes=built.processes)
            if after is not None:
                known.update(after.processes)  # those of others too, whom later batches may meet
                total.recordings += built.recordings
                total.samples += built.samples
                total.known += built.known
                total.aside += built.aside
                return after
        store.forget(built.parts)
        state, there = store.consistently(lambda state: (state, known_processes(store, state)))
        known.update(there)
        built = build(_Batch(batch.store, batch.paths, known))
    raise FleetError(f"{store.place.shown}: others add the same recordings over and over")


def known_processes(store: Store, state: State) -> dict[int, str]:
    """The processes that a store holds, each with the digest of its recording."""
    parts = state.of("runs")
    if not parts:
        return {}
    with telling(store.place, "read its runs"):
        rows = dataset(store, parts).to_table(columns=["process", "recording"])
    return dict(zip(rows.column(0).to_pylist(), rows.column(1).to_pylist(), strict=True))


def _batches(files: Sequence[Path]) -> Iterator[tuple[str, ...]]:
    batch: list[str] = []
    size = 0
    for file in files:
        try:
            here = file.stat().st_size
        except OSError:
            here = 0
        if batch and (size + here > _BATCH_BYTES or len(batch) >= _BATCH_FILES):
            yield tuple(batch)
            batch, size = [], 0
        batch.append(str(file))
        size += here
    if batch:
        yield tuple(batch)


def build(batch: _Batch) -> Built:
    """The task: read recordings and write their rows, to be committed by the caller."""
    store = open_store(batch.store, create=True)
    there_before = batch.known
    if there_before is None:
        there_before = store.consistently(lambda state: known_processes(store, state))
    known = dict(there_before)
    mine: dict[int, str] = {}
    waiting: list[Run] = []
    parts: list[Part] = []
    aside: list[SetAside] = []
    recordings = samples = there = held = 0
    for path in map(Path, batch.paths):
        try:
            contents = read(path)
            digests = {known.get(process) for process in contents.processes}
            if digests == {contents.digest}:
                there += 1
                continue
            if digests != {None}:
                raise RecordingError(
                    "the store has another recording of the same process: an earlier state of it, or a merged one"
                )
        except (RecordingError, OSError) as problem:
            aside.append(_set_aside(path, problem))
            continue
        mine |= dict.fromkeys(contents.processes, contents.digest)
        known |= mine
        waiting += contents.runs
        recordings += 1
        samples += contents.samples
        held += contents.samples
        if held > _BATCH_SAMPLES:
            parts += _write(store, waiting)
            waiting, held = [], 0
    parts += _write(store, waiting)
    return Built(tuple(parts), mine, recordings, samples, there, tuple(aside))


def _write(store: Store, runs: Sequence[Run]) -> list[Part]:
    partitions: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        partitions.setdefault(run.partition, []).append(run)
    return [part for each in partitions.values() for part in write_runs(store, each)]


def _set_aside(path: Path, problem: Exception) -> SetAside:
    reason = printable(without_secrets(str(problem)), _LONGEST_REASON)
    name = printable(without_secrets(path.name), _LONGEST_REASON)
    try:
        with path.open("rb") as file:
            key = hashlib.sha256(file.read(_HASHED_BYTES)).hexdigest()[:32]
    except OSError:
        key = hashlib.sha256(os.fsencode(path.name)).hexdigest()[:32]
    return SetAside(key, name, reason)
