"""What a report reads of a store: the runs that are asked about, and the times of their kernels.

A task reads some partitions and gives columns of numbers, with texts once each; an engine spreads the tasks.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..analyse.columns import Floats, Ints
from .engines import Engine
from .places import telling
from .querying import Wanted, ask, connect
from .store import Part, State, Store, open_store

_RUN_COLUMNS = (
    *("run", "process", "recording", "file", "host", "rank", "world_size", "pid", "program", "revision", "changed"),
    *("ostinato", "driver", "began_ns", "closed", "device", "failed", "lost", "samples", "day"),
)


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs, and a row for each kernel of each."""

    facts: list[dict[str, Any]]
    """Columns of `runs`, and `version`: the revision, or what else tells versions apart."""
    names: list[str]
    """Kernels."""
    run: Ints
    """Of each row: the place of its run in `facts`."""
    kernel: Ints
    """The place of its kernel in `names`."""
    p50_ns: Floats
    p99_ns: Floats
    samples: Ints
    total_ns: Ints

    def codes(self, *names: str) -> tuple[Ints, list[tuple[Any, ...]]]:
        """Of each run the place of its facts of these names, among all that occur."""
        places: dict[tuple[Any, ...], int] = {}
        code = [places.setdefault(tuple(run[name] for name in names), len(places)) for run in self.facts]
        return np.array(code, np.int64), list(places)


@dataclass(frozen=True, slots=True)
class _Task:
    store: str
    parts: tuple[Part, ...]
    wanted: Wanted


def gather(store: Store, url: str | os.PathLike[str], state: State, wanted: Wanted, engine: Engine) -> Runs:
    """All runs that are asked about."""
    parts = wanted.parts([part for part in state.parts if part.table != "samples"])
    partitions: dict[str, list[Part]] = {}
    for part in parts:
        partitions.setdefault(f"{part.day}/{part.device}", []).append(part)
    groups: list[list[Part]] = [
        [] for _ in range(min(len(partitions), 4 * engine.workers if engine.workers > 1 else 1))
    ]
    for number, files in enumerate(partitions.values()):
        groups[number % len(groups)] += files
    tasks = [_Task(os.fspath(url), tuple(group), wanted) for group in groups]
    return _together([made for _, made in engine.run(read_partitions, tasks)])


def read_partitions(task: _Task) -> Runs:
    """The task: the rows of some partitions that are asked about."""
    store = open_store(task.store)
    connection = connect(store, task.parts)
    try:
        said, values = task.wanted.condition()
        found = ask(
            connection, f"SELECT {', '.join(_RUN_COLUMNS)} FROM runs WHERE {said} ORDER BY began_ns, run", values
        )
        columns = [_plain(found[name]) for name in _RUN_COLUMNS]
        facts = [dict(zip(_RUN_COLUMNS, row, strict=True)) for row in zip(*columns, strict=True)]
        for run in facts:
            run["version"] = _version(run)
            run["work"] = work(run["program"])
        chosen, more = ("", []) if task.wanted.kernel is None else ("AND kernels.kernel = ?", [task.wanted.kernel])
        with telling(store.place, "read its kernels"):
            rows = connection.sql(
                "SELECT kernels.kernel::VARCHAR AS kernel, run, p50_ns, p99_ns, kernels.samples, total_ns FROM kernels"
                f" WHERE run IN (SELECT run FROM runs WHERE {said}) {chosen}",
                params=[*values, *more],
            ).to_arrow_table()
    finally:
        connection.close()
    kernel = rows.column("kernel").combine_chunks().dictionary_encode()
    if hasattr(kernel, "combine_chunks"):
        kernel = kernel.combine_chunks()
    place = {run["run"]: number for number, run in enumerate(facts)}
    keys = np.array(sorted(place), np.int64)
    order = np.array([place[key] for key in keys.tolist()], np.int64)
    return Runs(
        facts,
        kernel.dictionary.to_pylist(),
        order[np.searchsorted(keys, rows.column("run").to_numpy())] if len(keys) else np.zeros(0, np.int64),
        kernel.indices.to_numpy(zero_copy_only=False).astype(np.int64),
        *(rows.column(name).to_numpy() for name in ("p50_ns", "p99_ns", "samples", "total_ns")),
    )


def work(program: str) -> str:
    """The part of a command line that says what runs, without its options: 'serve.py', '-m package'."""
    try:
        words = shlex.split(program)
    except ValueError:
        words = program.split()
    return " ".join(words[:2] if words[:1] == ["-m"] else words[:1])


def _version(run: dict[str, Any]) -> str:
    """The revision, marked where the work tree differed from it; without one, the version of ostinato."""
    if not run["revision"]:
        return f"ostinato {run['ostinato']}" if run["ostinato"] else ""
    return f"{run['revision']}{'+changed' if run['changed'] else ''}"


def _plain(column: Any) -> list[Any]:
    """A column of DuckDB as values of Python, None for what is not there."""
    if isinstance(column, np.ma.MaskedArray):
        return [None if missing else value for value, missing in zip(column.data.tolist(), _mask(column), strict=True)]
    return [None if isinstance(value, float) and value != value else value for value in np.asarray(column).tolist()]


def _mask(column: Any) -> list[bool]:
    mask: list[bool] = np.broadcast_to(np.ma.getmaskarray(column), column.shape).tolist()
    return mask


def _together(made: Sequence[Runs]) -> Runs:
    names = sorted({name for each in made for name in each.names})
    place = {name: number for number, name in enumerate(names)}
    facts: list[dict[str, Any]] = []
    run: list[NDArray[Any]] = []
    kernel: list[NDArray[Any]] = []
    for each in made:
        kernel.append(np.array([place[name] for name in each.names], np.int64)[each.kernel])
        run.append(each.run + len(facts))
        facts += each.facts
    none = np.zeros(0, np.int64)
    numbers = [
        np.concatenate([none, *(getattr(each, name) for each in made)])
        for name in ("p50_ns", "p99_ns", "samples", "total_ns")
    ]
    return Runs(facts, names, np.concatenate([none, *run]), np.concatenate([none, *kernel]), *numbers)
