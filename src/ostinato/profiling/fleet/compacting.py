"""Merging the small files of a store: after it a partition has at most one file per 64 MB and table.

A merge writes a new file, is committed with the removal of those that it replaces, and then removes them. A reader
that began before and finds one gone reads the log again (`Store.consistently`). What killed writers left is removed
only when that is asked for, as nobody can tell it from what another writer is about to commit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .engines import Engine
from .parts import arrow, merged
from .store import Part, open_store

FILE_BYTES = 64_000_000
_MOST_TRIES = 20

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _Merge:
    """A task: files of one partition and table that become one."""

    store: str
    parts: tuple[Part, ...]


@dataclass(slots=True)
class Compacted:
    """What compacting came to."""

    before: int = 0
    after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    swept: int = 0
    """Files of killed writers that were removed."""


def compact(
    url: str | os.PathLike[str], engine: Engine, progress: Progress = lambda _: None, *, sweep: bool = False
) -> Compacted:
    """Merge small files. With `sweep`, files that never counted are removed too; nobody may be adding then."""
    arrow()
    store = open_store(url)
    state = store.state()
    total = Compacted(len(state.parts), bytes_before=sum(part.bytes for part in state.parts))
    for _ in range(_MOST_TRIES):
        merges = [_Merge(os.fspath(url), tuple(parts)) for parts in _groups(state.parts)]
        if not merges:
            break
        done = 0
        for task, part in engine.run(merge, merges):
            after = store.commit(state, [part], task.parts)
            if after is None:  # somebody else merged some of these
                store.forget([part])
                state = store.state()
                continue
            store.forget(task.parts)
            state = after
            done += 1
            progress(f"{done:,} of {len(merges):,} merges")
    if sweep:
        orphans = store.orphans(state)
        for path in orphans:
            store.place.remove(path)
        total.swept = len(orphans)
    total.after, total.bytes_after = len(state.parts), sum(part.bytes for part in state.parts)
    return total


def merge(task: _Merge) -> Part:
    """The task: one file of several, to be committed by the caller."""
    return merged(open_store(task.store), task.parts)


def _groups(parts: Sequence[Part]) -> list[list[Part]]:
    """What should be merged: where a partition has more files than it may have, the smallest together."""
    partitions: dict[str, list[Part]] = {}
    for part in parts:
        partitions.setdefault(part.folder, []).append(part)
    groups = []
    for files in partitions.values():
        allowed = max(-(-sum(part.bytes for part in files) // FILE_BYTES), 1)
        if len(files) <= allowed:
            continue
        files.sort(key=lambda part: (part.bytes, part.name))
        group: list[Part] = []
        size = 0
        for part in files:
            if group and size + part.bytes > FILE_BYTES and len(group) > 1:
                break
            group.append(part)
            size += part.bytes
        groups.append(group)
    return groups
