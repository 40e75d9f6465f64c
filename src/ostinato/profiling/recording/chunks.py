"""Samples as bytes: packed columns of integers, the form in which they are written while the program runs.

A packed column is one byte `width` (0 to 8), eight bytes `base` (signed), then `width` bytes a value; little endian. A
value is base + those bytes read as an unsigned number, modulo 2**64, taken as signed: so every int64 fits, close ones
take few bytes, and equal ones none. A chunk is eight columns after each other and nothing else:

    a row per run (successive samples of one submission): submission, first node, number of samples, base_ns
    a row per sample: skip (node - first node - position in the run), start_ns - base_ns, end_ns - start_ns, status

where base_ns is the start of the first sample of the run. The durations always take at least one byte each, so a file
cannot claim more samples than it has bytes. Decoding trusts nothing: what does not fit together is a RecordingError.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import RecordingError
from .declaring import MAX_TIME_NS, Codes, Ints
from .schema import MAX_CHUNK_BYTES, MAX_CHUNK_SAMPLES, MAX_PLAN_NODES, UNAVAILABLE, Samples

_HEADER_BYTES = 9
_CONSTANT_ZERO = bytes(_HEADER_BYTES)
_SPLIT = MAX_CHUNK_SAMPLES // 2
_ITEM_BYTES = 8


def column(values: ArrayLike, dtype: type[np.generic]) -> tuple[int, bytes]:
    """The length and a copy of a column.

    As bytes: copying them keeps the interpreter, while NumPy gives it up for long arrays, and a busy writing thread
    would then hold up the program for milliseconds.
    """
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError("not of one dimension")
    if array.dtype != dtype and not (array.dtype == np.uint64 and dtype is np.int64):
        array = array.astype(dtype)
    return len(array), array.tobytes()


class Run(NamedTuple):
    """Samples of one submission as a producer gave them: columns of int64 as bytes (of int8 for the status).

    `nodes` is the first node, or the node of each sample; `status` is None when all are measured. `plan_nodes` is how
    many nodes there are.
    """

    submission: int
    length: int
    plan_nodes: int
    nodes: int | bytes
    start_ns: bytes
    end_ns: bytes
    status: bytes | None

    def part(self, first: int, last: int) -> Run:
        """Some of its samples."""
        here = slice(first * _ITEM_BYTES, last * _ITEM_BYTES)
        nodes = self.nodes + first if isinstance(self.nodes, int) else self.nodes[here]
        status = None if self.status is None else self.status[first:last]
        return self._replace(
            length=last - first, nodes=nodes, start_ns=self.start_ns[here], end_ns=self.end_ns[here], status=status
        )


class Chunk(NamedTuple):
    """One row of `sample_chunks`, without its id."""

    submission_first: int
    submission_last: int
    runs: int
    samples: int
    crc: int
    data: bytes


def pack(values: Ints, least_width: int = 0) -> bytes:
    """A packed column."""
    return _pack(values, int(values.min()), int(values.max()), least_width) if len(values) else _CONSTANT_ZERO


def _pack(values: Ints, low: int, high: int, least_width: int = 0) -> bytes:
    width = max(_width(high - low), least_width)
    base = low
    if low >= 0 and _width(high) <= width:
        base = 0
    rest = values.view(np.uint64)
    if base:
        rest = rest - np.uint64(base % 2**64)  # modulo 2**64, so no pair of int64 is too far apart
    octets: NDArray[np.uint8] = rest.astype("<u8", copy=False).view(np.uint8).reshape(-1, 8)
    return bytes([width]) + base.to_bytes(8, "little", signed=True) + np.ascontiguousarray(octets[:, :width]).tobytes()


def _width(value: int) -> int:
    return (value.bit_length() + 7) // 8


def unpack(data: bytes, offset: int, count: int, first: int = 0) -> tuple[Ints, int]:
    """The packed column that begins at an offset, from its value `first` on, and where the next column begins."""
    start = offset + _HEADER_BYTES
    if start > len(data) or (width := data[offset]) > 8 or start + width * count > len(data):
        raise RecordingError("a chunk of samples is shorter than its columns")
    end = start + width * count
    wanted = count - first
    if not width:
        base = int.from_bytes(data[offset + 1 : start], "little", signed=True)
        return np.full(wanted, base, np.int64), end
    raw = np.frombuffer(data, np.uint8, width * wanted, start + width * first).reshape(wanted, width)
    if width in (1, 2, 4, 8):
        rest = raw.view(f"<u{width}").reshape(wanted).astype(np.uint64)
    else:
        padded = np.zeros((wanted, 8), np.uint8)
        padded[:, :width] = raw
        rest = padded.view("<u8").reshape(wanted).astype(np.uint64, copy=False)
    rest += np.uint64(int.from_bytes(data[offset + 1 : start], "little"))
    return rest.view(np.int64), end


class Encoded(NamedTuple):
    """Chunks, and what was wrong with the samples that should be in them."""

    chunks: list[Chunk]
    impossible: int
    """Samples with impossible times, made unavailable."""
    misplaced: int
    """Samples of nodes that their plan does not have, left out."""


def encode(runs: Sequence[Run]) -> Encoded:
    """Chunks of any runs.

    Beside a busy program every NumPy operation on a long array costs the time in which that gives up the interpreter,
    so there are few of them, each over as many runs as a chunk takes.
    """
    groups: list[list[Run]] = [[]]
    runs, misplaced = _with_known_nodes([run for run in runs if run.length])
    count = 0
    for run in runs:
        for first in range(0, run.length, _SPLIT):
            piece = run if run.length <= _SPLIT else run.part(first, min(first + _SPLIT, run.length))
            if count + piece.length > MAX_CHUNK_SAMPLES:
                groups.append([])
                count = 0
            groups[-1].append(piece)
            count += piece.length
    made = [_encode(group) for group in groups if group]
    return Encoded([chunk for chunk, _ in made], sum(impossible for _, impossible in made), misplaced)


def _with_known_nodes(runs: list[Run]) -> tuple[list[Run], int]:
    listed = [run for run in runs if not isinstance(run.nodes, int)]
    if not listed:
        return runs, 0
    nodes = np.frombuffer(b"".join([run.nodes for run in listed if not isinstance(run.nodes, int)]), np.int64)
    counts = np.array([run.length for run in listed])
    firsts = np.cumsum(counts) - counts
    lowest, highest = np.minimum.reduceat(nodes, firsts), np.maximum.reduceat(nodes, firsts)
    bad = (lowest < 0) | (highest >= np.array([run.plan_nodes for run in listed]))
    if not bad.any():
        return runs, 0
    unknown = {id(listed[at]) for at in np.flatnonzero(bad).tolist()}
    return [run for run in runs if id(run) not in unknown], int(counts[bad].sum())


def _encode(runs: Sequence[Run]) -> tuple[Chunk, int]:
    counts = np.array([run.length for run in runs], np.int64)
    firsts = np.cumsum(counts) - counts
    total = int(counts.sum())
    start_ns = np.frombuffer(b"".join([run.start_ns for run in runs]), np.int64)
    end_ns = np.frombuffer(b"".join([run.end_ns for run in runs]), np.int64)
    status: Codes | None = None
    if any(run.status is not None for run in runs):
        given = b"".join([bytes(run.length) if run.status is None else run.status for run in runs])
        status = np.frombuffer(given, np.int8)
    impossible = 0
    times = _times(start_ns, end_ns, firsts, counts)
    if times is None or (status is not None and (status.min() < 0 or status.max() >= UNAVAILABLE)):
        start_ns, end_ns, status, impossible = _possible(start_ns, end_ns, status, firsts, counts)
        times = _times(start_ns, end_ns, firsts, counts, all_possible=True) or ()
    submission = np.array([run.submission for run in runs], np.int64)
    statuses = _CONSTANT_ZERO if status is None else pack(status.astype(np.int64))
    first_node, skip = _nodes(runs, firsts, counts)
    columns = [pack(column) for column in (submission, first_node, counts, start_ns[firsts])]
    data = b"".join((*columns, skip, *times, statuses))
    chunk = Chunk(int(submission.min()), int(submission.max()), len(runs), total, zlib.crc32(data), data)
    return chunk, impossible


def _times(
    start_ns: Ints, end_ns: Ints, firsts: Ints, counts: Ints, all_possible: bool = False
) -> tuple[bytes, ...] | None:
    """The packed columns of starts and durations; None if one of the times may be impossible."""
    base = start_ns[firsts]
    offset = start_ns - np.repeat(base, counts)
    duration = end_ns - start_ns
    base_low, base_high = int(base.min()), int(base.max())
    low, high = int(offset.min()), int(offset.max())
    shortest, longest = int(duration.min()), int(duration.max())
    # Differences of impossible times may have wrapped, but never into all of these bounds.
    surely = shortest >= 0 and base_low + low >= 0 and base_high + high + longest < MAX_TIME_NS
    if not (surely or all_possible):
        return None
    return _pack(offset, low, high), _pack(duration, shortest, longest, least_width=1)


def _possible(
    start_ns: Ints, end_ns: Ints, status: Codes | None, firsts: Ints, counts: Ints
) -> tuple[Ints, Ints, Codes, int]:
    """The same times with all that is impossible made unavailable, and how much that was.

    What is unavailable has no times; it takes the place of the earliest sample of its run, which costs no room.
    """
    codes = np.zeros(len(start_ns), np.int8) if status is None else status.copy()
    good = (start_ns >= 0) & (start_ns <= end_ns) & (end_ns < MAX_TIME_NS) & (codes >= 0) & (codes < UNAVAILABLE)
    impossible = int(np.count_nonzero(~good & (codes != UNAVAILABLE)))
    codes[~good] = UNAVAILABLE
    earliest = np.minimum.reduceat(np.where(good, start_ns, MAX_TIME_NS), firsts)
    earliest[earliest == MAX_TIME_NS] = 0
    fill = np.repeat(earliest, counts)
    return np.where(good, start_ns, fill), np.where(good, end_ns, fill), codes, impossible


def _nodes(runs: Sequence[Run], firsts: Ints, counts: Ints) -> tuple[Ints, bytes]:
    """The first node of each run, and the packed column of how many nodes were left out so far."""
    if all(isinstance(run.nodes, int) for run in runs):
        return np.array([run.nodes for run in runs], np.int64), _CONSTANT_ZERO
    listed = [
        np.arange(run.nodes, run.nodes + run.length).tobytes() if isinstance(run.nodes, int) else run.nodes
        for run in runs
    ]
    nodes = np.frombuffer(b"".join(listed), np.int64)
    first_node = nodes[firsts]
    return first_node, pack(nodes - np.repeat(first_node - firsts, counts) - np.arange(len(nodes)))


@dataclass(frozen=True, slots=True)
class Decoded:
    """A chunk read back: of each run the submission's id, the last node and the number of samples; and the samples."""

    submission: Ints
    last_node: Ints
    counts: Ints
    node: Ints
    start_ns: Ints
    end_ns: Ints
    status: Codes

    def samples(self, rows: Ints) -> Samples:
        """The samples, with the row of the submission of each run."""
        return Samples(
            submission=np.repeat(rows, self.counts),
            node=self.node,
            start_ns=self.start_ns,
            end_ns=self.end_ns,
            status=self.status,
        )


def joined(parts: Sequence[Decoded]) -> Decoded:
    """Several chunks as one."""
    columns = (np.concatenate([getattr(part, each.name) for part in parts]) for each in fields(Decoded))
    return Decoded(*columns)


def decode(chunk: Chunk, most_runs: int = MAX_CHUNK_SAMPLES, most_samples: int = MAX_CHUNK_SAMPLES) -> Decoded:
    """The samples of a chunk, or only those of its last runs, as many as these limits allow, but at least one run."""
    data, runs, total = chunk.data, chunk.runs, chunk.samples
    if not 0 < runs <= total <= MAX_CHUNK_SAMPLES or not total <= len(data) <= MAX_CHUNK_BYTES:
        raise RecordingError(f"a chunk of samples claims {total} samples in {runs} runs and {len(data)} bytes")
    if zlib.crc32(data) != chunk.crc:
        raise RecordingError("a chunk of samples does not match its checksum")
    offset = 0
    columns: list[NDArray[np.int64]] = []
    for _ in range(4):
        column, offset = unpack(data, offset, runs)
        columns.append(column)
    submission, first_node, counts, base_ns = columns
    # The checks come before the sums, so that these cannot overflow.
    if counts.min() < 1 or counts.max() > total or counts.sum() != total:
        raise RecordingError("the runs of a chunk do not add up to its samples")
    if submission.min() != chunk.submission_first or submission.max() != chunk.submission_last:
        raise RecordingError("a chunk holds samples of other submissions than it says")
    fitting = int(np.searchsorted(np.cumsum(counts[::-1]), most_samples, side="right"))
    left_out = runs - max(min(fitting, most_runs), 1)
    skipped = int(counts[:left_out].sum())
    submission, first_node, counts, base_ns = (column[left_out:] for column in columns)
    columns = []
    for _ in range(4):
        column, offset = unpack(data, offset, total, skipped)
        columns.append(column)
    if offset != len(data):
        raise RecordingError("a chunk of samples is longer than its columns")
    skip, start_ns, duration, status = columns
    if _outside(first_node, MAX_PLAN_NODES) or _outside(skip, MAX_PLAN_NODES, low=-MAX_PLAN_NODES):
        raise RecordingError("a chunk holds impossible node numbers")
    if _outside(start_ns, MAX_TIME_NS, low=-MAX_TIME_NS) or any(
        _outside(values, bound) for values, bound in ((base_ns, MAX_TIME_NS), (duration, MAX_TIME_NS), (status, 3))
    ):
        raise RecordingError("a chunk holds impossible times or statuses")
    firsts = np.cumsum(counts) - counts
    node = skip
    node += np.repeat(first_node - firsts, counts)
    node += np.arange(total - skipped)
    if _outside(node, MAX_PLAN_NODES):
        raise RecordingError("a chunk holds impossible node numbers")
    start_ns += np.repeat(base_ns, counts)
    end_ns = duration
    end_ns += start_ns  # at most 3 * 2**62: wrapped to a negative number, which the next check sees
    if _outside(start_ns, MAX_TIME_NS) or _outside(end_ns, MAX_TIME_NS):
        raise RecordingError("a chunk holds impossible times or statuses")
    absent = status == UNAVAILABLE
    if absent.any():
        start_ns[absent] = 0
        end_ns[absent] = 0
    last_node = np.maximum.reduceat(node, firsts)
    return Decoded(submission, last_node, counts, node, start_ns, end_ns, status.astype(np.int8))


def moved(chunk: Chunk, submissions: int, time_ns: int) -> Chunk:
    """The same samples of submissions that are numbered otherwise, on a clock that is set otherwise."""
    columns: list[NDArray[np.int64]] = []
    offset = 0
    for _ in range(4):
        column, offset = unpack(chunk.data, offset, chunk.runs)
        columns.append(column)
    submission, first_node, counts, base_ns = columns
    data = b"".join(
        (
            *(pack(column) for column in (submission + submissions, first_node, counts, base_ns + time_ns)),
            chunk.data[offset:],
        )
    )
    first, last = chunk.submission_first + submissions, chunk.submission_last + submissions
    return Chunk(first, last, chunk.runs, chunk.samples, zlib.crc32(data), data)


def _outside(values: Ints, bound: int, low: int = 0) -> bool:
    return bool(values.min() < low or values.max() >= bound)
