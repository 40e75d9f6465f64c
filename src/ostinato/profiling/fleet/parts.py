"""Parquet files of a store: their columns, how rows are laid out in them, and how several become one.

Rows of `samples` and `kernels` are sorted by kernel; within a kernel the rows of a run stand together, in order of
time. Row groups are small, so that the statistics of a file lead to one kernel without reading the others. Starts and
durations are stored as differences in few bits, which is why a sample takes a few bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.extras import install_command
from ...errors import MissingPackage
from ..analyse.statistics import order_of
from .places import telling
from .reading import Run
from .store import Part, Store, device_code, new_name

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP = 1 << 15
_SLICE_ROWS = 3_000_000
"""How many rows a merge holds at once, unless one kernel has more."""

_FACTS = (
    *(("run", "int64"), ("process", "int64"), ("recording", "string"), ("file", "string"), ("day", "string")),
    *(("host", "string"), ("rank", "int64"), ("local_rank", "int64"), ("world_size", "int64"), ("pid", "int64")),
    *(("program", "string"), ("revision", "string"), ("changed", "bool_"), ("ostinato", "string")),
    *(("python", "string"), ("platform", "string"), ("processor", "string"), ("settings", "string")),
    *(("began_ns", "int64"), ("wall_ns", "int64"), ("load", "float64"), ("closed", "bool_")),
    *(("device", "string"), ("device_name", "string"), ("backend", "string"), ("driver", "string")),
    *(("tuned", "string"), ("failed", "string"), ("noted", "string"), ("lost", "int64"), ("losses", "string")),
    *(("submissions", "int64"), ("samples", "int64"), ("unavailable", "int64"), ("device_ns", "int64")),
)
_KERNEL_COLUMNS = ("samples", "p50_ns", "p99_ns", "min_ns", "max_ns", "total_ns")


def arrow() -> Any:
    """PyArrow, or an error that says how to get it."""
    try:
        import pyarrow
    except ImportError as problem:
        raise MissingPackage(f"a store needs PyArrow: {install_command('fleet')}") from problem
    return pyarrow


def schema(table: str) -> pa.Schema:
    """The columns of a table."""
    pa = arrow()
    kernel = ("kernel", pa.dictionary(pa.int32(), pa.string()))
    if table == "samples":
        columns = [kernel, *((name, pa.int64()) for name in ("run", "start_ns", "duration_ns")), ("status", pa.int8())]
    elif table == "kernels":
        reals = {"p50_ns", "p99_ns"}
        kinds = [(name, pa.float64() if name in reals else pa.int64()) for name in _KERNEL_COLUMNS]
        columns = [kernel, ("run", pa.int64()), *kinds]
    else:
        columns = [(name, getattr(pa, kind)()) for name, kind in _FACTS]
    return pa.schema(columns)


def write_runs(store: Store, runs: Sequence[Run]) -> list[Part]:
    """Write runs of one partition: a file of each table. They count when they are committed."""
    pa = arrow()
    day, device = runs[0].partition
    facts = [
        pa.array([_encodable(run.facts[name]) for run in runs], schema("runs").field(name).type) for name, _ in _FACTS
    ]
    made = [_written(store, "runs", day, device, [pa.table(facts, schema("runs"))])]
    # Each run is sorted by kernel already, so that putting runs together is copying slices.
    names = sorted({name for run in runs for name in run.names})
    pieces: dict[str, list[tuple[int, int, slice]]] = {name: [] for name in names}
    for number, run in enumerate(runs):
        begin = 0
        for row, (name, end) in enumerate(zip(run.names, run.ends.tolist(), strict=True)):
            pieces[name].append((number, row, slice(begin, end)))
            begin = end
    listed = [(code, *piece) for code, name in enumerate(names) for piece in pieces[name]]
    if not listed:
        return made
    codes = np.array([code for code, *_ in listed])
    keys = np.array([run.facts["run"] for run in runs])[[number for _, number, _, _ in listed]]
    sizes = np.array([part.stop - part.start for *_, part in listed])
    kernels: dict[str, Any] = {"run": keys}
    for name in _KERNEL_COLUMNS:
        columns = [run.kernels[name] for run in runs]
        kernels[name] = np.array([columns[number][row] for _, number, row, _ in listed])
    samples: dict[str, Any] = {"run": np.repeat(keys, sizes)}
    for name in ("start_ns", "duration_ns", "status"):
        columns = [getattr(run, name) for run in runs]
        samples[name] = np.concatenate([columns[number][part] for _, number, _, part in listed])
    made.append(_written(store, "kernels", day, device, [_table("kernels", names, codes, kernels)]))
    made.append(_written(store, "samples", day, device, [_table("samples", names, np.repeat(codes, sizes), samples)]))
    return made


def merged(store: Store, parts: Sequence[Part]) -> Part:
    """One file with the rows of several of one partition and table. It counts when it is committed."""
    import pyarrow.dataset as ds

    first = parts[0]
    with telling(store.place, "read a partition"):
        every = dataset(store, parts)
        if first.table == "runs":
            pieces: Iterable[Any] = [every.to_table()]
        else:
            pieces = (_regrouped(first.table, every.to_table(filter=ds.field("kernel").isin(names)))
                      for names in _kernel_groups(every))  # fmt: skip
        return _written(store, first.table, first.day, "", pieces, code=first.device)


def dataset(store: Store, parts: Sequence[Part]) -> Any:
    """Files of one table as a PyArrow dataset."""
    import pyarrow.dataset as ds

    table = parts[0].table
    return ds.dataset(
        [part.path for part in parts],
        schema=schema(table),
        format=ds.ParquetFileFormat(dictionary_columns=["kernel"] if table != "runs" else None),
        filesystem=store.place.arrow(),
    )


def _kernel_groups(every: Any) -> Iterable[list[str]]:
    """All kernels in order, as many at a time as have rows for one slice."""
    counts: dict[str, int] = {}
    for batch in every.to_batches(columns=["kernel"]):
        values = batch.column(0).value_counts()
        for kernel, count in zip(values.field("values").to_pylist(), values.field("counts").to_pylist(), strict=True):
            counts[kernel] = counts.get(kernel, 0) + count
    group: list[str] = []
    rows = 0
    for kernel in sorted(counts):
        if group and rows + counts[kernel] > _SLICE_ROWS:
            yield group
            group, rows = [], 0
        group.append(kernel)
        rows += counts[kernel]
    if group:
        yield group


def _regrouped(table: str, rows: Any) -> Any:
    """Rows of several files, each of them sorted, sorted by kernel; the order of each file's rows stays."""
    kernel = rows.column("kernel").unify_dictionaries().combine_chunks()
    listed = kernel.dictionary.to_pylist()
    names = sorted(listed)
    place = {name: number for number, name in enumerate(names)}
    code = np.array([place[name] for name in listed], np.int64)[kernel.indices.to_numpy()]
    columns = {name: rows.column(name).to_numpy() for name in rows.column_names if name != "kernel"}
    order = order_of(code, len(names))
    return _table(table, names, code[order], {name: column[order] for name, column in columns.items()})


def _table(table: str, names: Sequence[str], codes: Any, columns: dict[str, Any]) -> Any:
    """Rows whose kernels are the codes of `names`."""
    pa = arrow()
    kernel = pa.DictionaryArray.from_arrays(
        pa.array(codes, pa.int32()), pa.array([_encodable(name) for name in names], pa.string())
    )
    wanted = schema(table)
    arrays = [pa.array(columns[field.name], field.type) for field in wanted if field.name != "kernel"]
    return pa.table([kernel, *arrays], wanted)


def _encodable(value: Any) -> Any:
    """Text that UTF-8 can hold; a recording may bring lone surrogates."""
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else value


def _written(store: Store, table: str, day: str, device: str, pieces: Iterable[Any], code: str = "") -> Part:
    import pyarrow.parquet as pq

    part = Part(table, day, code or device_code(device), new_name(), 0, 0)
    encodings = {"start_ns": "DELTA_BINARY_PACKED", "duration_ns": "DELTA_BINARY_PACKED"}
    dictionaries = {"samples": ["kernel", "run"], "kernels": ["kernel"]}.get(table, True)
    with telling(store.place, "write a file"):
        store.place.make_folder(part.folder)
        system, rows = store.place.arrow(), 0
        try:
            with pq.ParquetWriter(
                part.path,
                schema(table),
                filesystem=system,
                compression="zstd",
                compression_level=1,
                use_dictionary=dictionaries,
                column_encoding=encodings if table == "samples" else None,
                write_statistics=["kernel", "run", "start_ns"] if table == "samples" else True,
            ) as writer:
                for piece in pieces:
                    writer.write_table(piece, row_group_size=ROW_GROUP)
                    rows += piece.num_rows
        except BaseException:
            with suppress(Exception):
                store.place.remove(part.path)
            raise
        size = system.get_file_info(part.path).size
    return Part(part.table, part.day, part.device, part.name, rows, size)
