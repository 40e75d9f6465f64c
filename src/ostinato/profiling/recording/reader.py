"""A recording as columns: what reports, traces and statistics read, whether it is a file or still being written.

Everything is read when it is first asked for, checked, and kept; samples are read each time. What comes out holds
together: ids rise, every reference leads somewhere, nodes lie inside their plan, edges lead forward, times are
possible. A file of which that is not true is refused with a `RecordingError`, the only error that reading raises.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import RecordingError
from . import chunks, opening, unwritten
from .columns import (
    NONE,
    Commands,
    DeviceFacts,
    Drop,
    HostSpans,
    Ints,
    Plans,
    Process,
    Regions,
    Samples,
    Submissions,
    Terms,
    Values,
    position,
)
from .tables import (
    CHUNK_SIZES,
    COMMANDS,
    HOST_SPANS,
    PLANS,
    PROCESSES,
    REGIONS,
    SUBMISSIONS,
    TERMS,
    VALUES,
    Texts,
    present,
    read,
    read_facts,
    read_texts,
    refer,
)

MAX_SAMPLES_AT_ONCE = 50_000_000
"""What `samples()` takes into memory (29 bytes each); `sample_chunks()` has no limit."""

_PLANS_KEPT = 64
_CHUNK = ", ".join(chunks.Chunk._fields)


def open_recording(path: str | os.PathLike[str]) -> Recording:
    """Open a file. It is data, whoever made it: nothing in it is executed and nothing is written."""
    return Recording(opening.open_file(path))


class Recording:
    """One recording, read-only; `close` it, or use it with `with`. May be shared between threads."""

    def __init__(self, source: opening.Source) -> None:
        self.path: Path | None = source.path
        """The file, or None for a recording that lives in memory."""
        self._connection = source.connection
        self._lock = threading.RLock()
        self._plan_nodes: dict[int, Commands] = {}
        self._finalizer = weakref.finalize(self, source.close)

    def close(self) -> None:
        """Let go of the file. What was read stays usable."""
        with self._lock:
            self._finalizer()

    def __enter__(self) -> Recording:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Recording {'in memory' if self.path is None else str(self.path)!r}>"

    def copy_into(self, target: sqlite3.Connection) -> None:
        """Make an empty database hold the same."""
        with self._reading():
            self._connection.backup(target)

    # --- where it comes from ------------------------------------------------------------------------------------

    @cached_property
    def processes(self) -> tuple[Process, ...]:
        """The processes that recorded; several after `merge`."""
        with self._reading():
            facts = read_facts(
                self._connection, "SELECT process, key, value FROM meta ORDER BY process, key", (int, str, str)
            )
            ids, pids, offsets, uncertainties, hosts, *ranks = read(self._connection, "processes", PROCESSES, {})
            if not len(ids):
                raise RecordingError("says nothing about the process that made it")
            meta: dict[int, dict[str, str]] = {number: {} for number in ids.tolist()}
            for process, key, value in facts:
                meta[process][key] = value
            known = [[None if rank == NONE else rank for rank in column.tolist()] for column in ranks]
            columns = (
                ids.tolist(),
                pids.tolist(),
                offsets.tolist(),
                uncertainties.tolist(),
                hosts,
                *known,
                meta.values(),
            )
            return tuple(Process(*row) for row in zip(*columns, strict=True))

    @property
    def meta(self) -> Mapping[str, str]:
        """What is known about the first process; `docs/recording.md` lists the keys."""
        return self.processes[0].meta

    @cached_property
    def threads(self) -> Mapping[tuple[int, int], str]:
        """Names of host threads, by process and thread."""
        with self._reading():
            rows = read_facts(self._connection, "SELECT process, thread, name FROM threads", (int, int, int))
            return {(process, thread): self._texts[name] or "" for process, thread, name in rows}

    @cached_property
    def drops(self) -> tuple[Drop, ...]:
        """Everything that was lost, and how much of it."""
        with self._reading():
            query = "SELECT process, place, count, since_ns FROM drops"
            lost: dict[tuple[int, str], tuple[int, int]] = {}
            for process, place, count, since_ns in read_facts(self._connection, query, (int, str, int, int)):
                lost[process, place] = (count, since_ns)
            for process, note in read_facts(self._connection, "SELECT process, note FROM unwritten", (int, str)):
                for place, (count, since_ns) in unwritten.read(note).items():
                    before, first_ns = lost.get((process, place), (0, since_ns))
                    lost[process, place] = (before + count, min(first_ns, since_ns))
            if any(count < 0 for count, _ in lost.values()):
                raise RecordingError("counts less than nothing as lost")
            return tuple(Drop(place, *pair, process) for (process, place), pair in sorted(lost.items()))

    @cached_property
    def devices(self) -> tuple[DeviceFacts, ...]:
        """The devices that worked."""
        with self._reading():
            facts = read_facts(self._connection, "SELECT device, key, value FROM device_details", (int, str, str))
            number = (int, float, type(None))
            query = """SELECT id, process, name, backend, description, sampling, clock_uncertainty_ns, copy_bytes_per_s,
              flops_per_s, timestamp_cost_ns, dispatch_cost_ns FROM devices NOT INDEXED ORDER BY id"""
            rows = read_facts(self._connection, query, (*(int,) * 7, *(number,) * 4))
            known = {process.id for process in self.processes}
            details: dict[int, dict[str, str]] = {}
            for device, key, value in facts:
                details.setdefault(device, {})[key] = value
            devices = []
            for row in rows:
                ceilings = [None if value is None else float(value) for value in row[7:]]
                if any(value is not None and not 0 <= value < np.inf for value in ceilings) or row[1] not in known:
                    raise RecordingError("describes an impossible device")
                name, backend, description, sampling = (self._texts[value] or "" for value in row[2:6])
                rest = (description, sampling, row[6], *ceilings, details.get(row[0], {}))
                devices.append(DeviceFacts(row[0], row[1], name, backend, *rest))
            return tuple(devices)

    # --- what was committed -------------------------------------------------------------------------------------

    @cached_property
    def commands(self) -> Commands:
        """The different commands that occur in plans."""
        with self._reading():
            columns = read(self._connection, "commands", COMMANDS, self._texts)
            threads, group = (np.stack(columns[at : at + 3], axis=1) for at in (6, 9))
            columns[15] = columns[15].astype(np.bool_)
            columns[6:12] = [threads, group]
            return Commands(*columns)

    @cached_property
    def terms(self) -> Terms:
        """What comes to bytes and flops of commands with every submission."""
        with self._reading():
            terms = Terms(*read(self._connection, "command_terms", TERMS, self._texts, key=3))
            refer(self.commands.id, terms.command, "command")
            return terms

    @cached_property
    def values(self) -> Values:
        """The values of submissions that the terms depend on."""
        with self._reading():
            values = Values(*read(self._connection, "submission_values", VALUES, self._texts, key=2))
            refer(self.submissions.id, values.submission, "submission")
            return values

    @cached_property
    def plans(self) -> Plans:
        """The command lists that were committed."""
        with self._reading():
            plans = Plans(*read(self._connection, "plans", PLANS, {}))
            refer(self._device_ids, plans.device, "device")
            return plans

    def plan_commands(self, plan: int) -> Ints:
        """The id of the command at each node of a plan."""
        return self._plan(plan)[0]

    def edges(self, plan: int) -> Ints:
        """Which node of a plan must end before which starts: pairs (before, after), of shape (n, 2), before < after."""
        return self._plan(plan)[1]

    def plan_nodes(self, plan: int) -> Commands:
        """The commands of a plan, node by node."""
        with self._lock:
            nodes = self._plan_nodes.get(plan)
            if nodes is None:
                while len(self._plan_nodes) >= _PLANS_KEPT:
                    self._plan_nodes.pop(next(iter(self._plan_nodes)))
                nodes = self._plan_nodes[plan] = _gather(self.commands, self.plan_commands(plan))
            return nodes

    def _plan(self, plan: int) -> tuple[Ints, Ints]:
        with self._reading():
            query = "SELECT nodes, edges, crc, node_commands, edge_pairs FROM plans NOT INDEXED WHERE id = ?"
            row = self._connection.execute(query, (int(plan),)).fetchone()
            if row is None:
                raise RecordingError(f"has no plan {plan}")
            nodes, edges, crc, node_commands, edge_pairs = row
            if not isinstance(node_commands, bytes) or not isinstance(edge_pairs, bytes):
                raise RecordingError(f"plan {plan} does not hold what a plan holds")
            if (len(node_commands), len(edge_pairs)) != (4 * nodes, 8 * edges):
                raise RecordingError(f"plan {plan} is not as long as it says")
            if zlib.crc32(edge_pairs, zlib.crc32(node_commands)) != crc:
                raise RecordingError(f"plan {plan} does not match its checksum")
            commands = np.frombuffer(node_commands, "<u4").astype(np.int64)
            pairs = np.frombuffer(edge_pairs, "<u4").astype(np.int64).reshape(-1, 2)
            refer(self.commands.id, commands, "command")
            if len(pairs) and not ((pairs[:, 0] < pairs[:, 1]).all() and pairs[:, 1].max() < nodes):
                raise RecordingError(f"the edges of plan {plan} do not lead from a node to a later one")
            return commands, pairs

    @cached_property
    def submissions(self) -> Submissions:
        """The command buffers that were committed."""
        with self._reading():
            columns = read(self._connection, "submissions", SUBMISSIONS, self._texts)
            columns.insert(2, self._pids(columns[1]))
            for at, dtype in ((8, np.bool_), (9, np.bool_), (10, np.int8), (17, np.int8)):
                columns[at] = columns[at].astype(dtype)
            for at in (11, 13, 15):
                begin, end = columns[at : at + 2]
                if ((begin != NONE) & (end != NONE) & (end < begin)).any():
                    raise RecordingError("holds submissions that ended before they began")
            submissions = Submissions(*columns)
            refer(self._device_ids, submissions.device, "device")
            refer(self.plans.id, submissions.plan, "plan", optional=True)
            refer(self.regions.id, submissions.region, "region", optional=True)
            return submissions

    @cached_property
    def regions(self) -> Regions:
        """The scopes of the host program."""
        with self._reading():
            regions = Regions(*read(self._connection, "regions", REGIONS, self._texts))
            self._pids(regions.process)
            refer(regions.id, regions.parent, "region", optional=True)
            if (regions.parent >= regions.id).any():
                raise RecordingError("holds a region inside a later one")
            if ((regions.end_ns != NONE) & (regions.end_ns < regions.begin_ns)).any():
                raise RecordingError("holds regions that ended before they began")
            return regions

    @cached_property
    def host_spans(self) -> HostSpans:
        """What the host did. A span may be of a submission that never finished; its `submission` is then NONE."""
        with self._reading():
            columns = read(self._connection, "host_spans", HOST_SPANS, self._texts)
            columns[2] = columns[2].astype(np.int8)
            spans = HostSpans(*columns)
            self._pids(spans.process)
            refer(self.regions.id, spans.region, "region", optional=True)
            if (spans.end_ns < spans.begin_ns).any():
                raise RecordingError("holds host spans that ended before they began")
            spans.submission[~present(self.submissions.id, spans.submission)] = NONE
            return spans

    def to_pandas(self) -> Any:
        """All dispatches as a `pandas.DataFrame` with the columns of the view `dispatch_report`. Needs pandas."""
        from .frames import to_pandas  # it reads recordings itself

        return to_pandas(self)

    # --- the samples --------------------------------------------------------------------------------------------

    @cached_property
    def sample_count(self) -> int:
        """How many samples there are."""
        with self._reading():
            _, counts = read(self._connection, "sample_chunks", CHUNK_SIZES, {})
            return int(counts.sum())

    def samples(self) -> Samples:
        """All samples, in the order in which submissions finished, those of one submission by node."""
        total = self.sample_count
        if total > MAX_SAMPLES_AT_ONCE:
            raise RecordingError(
                f"{total} samples are more than fit in memory at once ({MAX_SAMPLES_AT_ONCE}); use sample_chunks()"
            )
        all_samples = _empty(total)
        at = 0
        for part in self.sample_chunks():
            if at + len(part) <= total:
                for name in Samples.__slots__:
                    getattr(all_samples, name)[at : at + len(part)] = getattr(part, name)
            at += len(part)
        if at != total:
            raise RecordingError(f"has {at} samples where {total} were announced")
        return all_samples

    def sample_chunks(self) -> Iterator[Samples]:
        """All samples in pieces of at most 1,048,576, so that any number of them fits."""
        for _, part in self.stored_chunks():
            yield part

    def stored_chunks(self) -> Iterator[tuple[chunks.Chunk, Samples]]:
        """The same, each with the form in which it is stored."""
        last = 0
        while True:
            with self._reading():
                query = f"SELECT id, {_CHUNK} FROM sample_chunks NOT INDEXED WHERE id > ? ORDER BY id LIMIT 1"
                row = self._connection.execute(query, (last,)).fetchone()
                if row is None:
                    return
                if row[0] <= last:
                    raise RecordingError("the ids of the table sample_chunks do not rise")
                last = row[0]
                piece = self._decode(row[1:])
            yield piece

    def samples_of(self, submission: int) -> Samples:
        """The samples of one submission."""
        query = f"SELECT {_CHUNK} FROM sample_chunks NOT INDEXED WHERE ? BETWEEN submission_first AND submission_last"
        parts = [_empty(0)]
        with self._reading():
            for row in self._connection.execute(query, (int(submission),)):
                part = self._decode(row)[1]
                here = part.submission == submission
                parts.append(Samples(*(getattr(part, name)[here] for name in Samples.__slots__)))
            return Samples(*(np.concatenate([getattr(part, name) for part in parts]) for name in Samples.__slots__))

    def _decode(self, row: tuple[Any, ...]) -> tuple[chunks.Chunk, Samples]:
        *numbers, data = row
        if not isinstance(data, bytes) or any(type(number) is not int for number in numbers):
            raise RecordingError("a chunk of samples does not hold what a chunk holds")
        chunk = chunks.Chunk(*row)
        decoded = chunks.decode(chunk)
        refer(self.submissions.id, decoded.submission, "submission")
        if (decoded.last_node >= self._nodes[position(self.submissions.id, decoded.submission)]).any():
            raise RecordingError("holds samples of nodes that their plan does not have")
        return chunk, decoded.samples

    # --- what the others need -----------------------------------------------------------------------------------

    @cached_property
    def _texts(self) -> Texts:
        return read_texts(self._connection)

    @cached_property
    def _nodes(self) -> Ints:
        """How many nodes the plan of each submission has."""
        plans, plan = self.plans, self.submissions.plan
        nodes = np.zeros(len(plan), np.int64)
        known = plan != NONE
        nodes[known] = plans.nodes[position(plans.id, plan[known])]
        return nodes

    @cached_property
    def _device_ids(self) -> Ints:
        return np.array([device.id for device in self.devices], np.int64)

    def _pids(self, process: Ints) -> Ints:
        ids = np.array([known.id for known in self.processes], np.int64)
        refer(ids, process, "process")
        pids: Ints = np.array([known.pid for known in self.processes], np.int64)[position(ids, process)]
        return pids

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._lock, opening.reading(self.path):
            if not self._finalizer.alive:
                raise RecordingError("was closed")
            yield


def _empty(count: int) -> Samples:
    """Samples to be filled in."""
    submission, start_ns, end_ns = (np.empty(count, np.int64) for _ in range(3))
    return Samples(submission, np.empty(count, np.int32), start_ns, end_ns, np.empty(count, np.int8))


def _gather(commands: Commands, ids: Ints) -> Commands:
    """The commands with these ids, in this order."""
    at: NDArray[np.int64] = position(commands.id, ids)
    places = at.tolist()
    columns: list[Any] = [getattr(commands, name) for name in Commands.__slots__]
    rows: list[Any] = [[column[p] for p in places] if isinstance(column, list) else column[at] for column in columns]
    return Commands(*rows)
