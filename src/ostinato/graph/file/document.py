"""A graph as a document: plain lists, dictionaries, strings and integers, as `docs/graph-file.md` describes them.

`document_of` makes the document, `reading.graph_of` makes a graph of it. A document holds nothing of the machine it was
written on: memory has synthetic addresses, files have base names only, kernels are given as source.

The synthetic addresses preserve overlap and alignment: memories that share bytes still share them, others are never
adjacent, and each address keeps its last twelve bits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...base.printable import printable
from ...base.source_lines import Place
from ...errors import GraphFileError, OstinatoError
from ...ir.command_list import CapturedNode
from ...ir.commands import (
    Barrier,
    BufferBinding,
    Command,
    CompiledKernel,
    Copy,
    Dispatch,
    Fill,
    InlineBinding,
    Ordering,
    ParamBinding,
)
from ...ir.costs import Amount
from ...msl import Module
from ...version import __version__
from ..graph import Graph
from ..memory import overlapping

FORMAT = "ostinato graph"
VERSION = 2
MAX_TEXT = 1 << 16
"""Characters of a label, a name or a report."""
ORDERINGS = {"serial": Ordering.SERIAL, "barriers": Ordering.BARRIERS, "inferred": Ordering.INFERRED}
SCALARS = frozenset(
    """bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32 float64 complex64 complex128
    float8_e4m3fn float8_e5m2""".split()
)
"""The dtypes that are written by name."""

_PAGE = 4096
_ORDERING_NAMES = {ordering: name for name, ordering in ORDERINGS.items()}

Document = dict[str, Any]


def document_of(graph: Graph, contents: bool) -> tuple[Document, tuple[Module, ...]]:
    """The document, and the modules of its sources in order; `contents` tells whether memory is saved too."""
    tables = _Tables(graph)
    nodes = [_node(node, tables, f"node {index}, {node}") for index, node in enumerate(graph.nodes)]
    addresses = _made_up(graph)
    return {
        "format": FORMAT,
        "version": VERSION,
        "creator": f"ostinato {__version__}",
        "label": _text(graph.label),
        "ordering": _ORDERING_NAMES[graph.ordering],
        "sources": len(tables.modules),
        "kernels": tables.kernels,
        "memories": [
            {
                "address": addresses[memory.number],
                "nbytes": memory.nbytes,
                "contents": contents and (memory.allocation is not None or memory.contents is not None),
            }
            for memory in graph.memories.values()
        ],
        "params": [
            {"name": param.name, "dtype": _dtype(param.dtype, f"parameter {param.name!r}"), "shape": list(param.shape)}
            for param in graph.params.values()
        ],
        "names": [
            {
                "name": named.name,
                "range": tables.within(named.memory, named.begin, named.end, f"buffer {named.name!r}"),
                "dtype": _dtype(named.dtype, f"buffer {named.name!r}"),
                "shape": list(named.shape),
            }
            for named in graph.names.values()
        ],
        "outputs": None if graph.outputs is None else [tables.range(*span, "outputs") for span in graph.outputs],
        "dropped": [tables.range(*span, "dropped") for span in graph.dropped],
        "splits": [int(split) for split in graph.splits],
        "reports": [str(report)[:MAX_TEXT] for report in graph.reports],
        "nodes": nodes,
    }, tuple(tables.modules)


class _Tables:
    """What nodes refer to by position: memories, kernels and sources."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._position = {number: position for position, number in enumerate(graph.memories)}
        self.modules: list[Module] = []
        self._sources: dict[str, int] = {}
        self._known_modules: dict[int, int] = {}
        self.kernels: list[Document] = []
        self._known_kernels: dict[int, int] = {}

    def binding(self, binding: BufferBinding, where: str) -> list[int]:
        """A binding as position of the memory, first byte and number of bytes."""
        return self.within(binding.allocation, binding.address, binding.address + binding.nbytes, where)

    def within(self, number: int, begin: int, end: int, where: str) -> list[int]:
        """A range of the memory with this number, as position, first byte and number of bytes."""
        memory = self._graph.memories.get(number)
        if memory is None or not memory.address <= begin <= end <= memory.address + memory.nbytes:
            raise GraphFileError(f"{where}: it uses memory that is none of the graph's")
        return [self._position[number], begin - memory.address, end - begin]

    def range(self, begin: int, end: int, where: str) -> list[int]:
        """A range of addresses, as position of the memory that holds it, first byte and number of bytes."""
        memory = self._graph.memory_at(begin, end)
        if memory is None:
            raise GraphFileError(f"{where}: it uses memory that is none of the graph's")
        return self.within(memory.number, begin, end, where)

    def kernel(self, kernel: CompiledKernel, where: str) -> int:
        """Position of a kernel in the table."""
        position = self._known_kernels.get(id(kernel))
        if position is None:
            if kernel.origin is None:
                raise GraphFileError(f"{where}: the source of kernel {kernel.name!r} is not known")
            entry = {
                "source": self._source(kernel.origin.module, where),
                "name": kernel.name,
                "constants": [_constant(key, value, where) for key, value in kernel.origin.constants.items()],
                "max_threads_per_group": kernel.max_threads_per_group,
                "threadgroup_bytes": kernel.threadgroup_bytes,
                "argument_bytes": list(kernel.argument_bytes),
                "argument_alignments": list(kernel.argument_alignments),
            }
            if entry not in self.kernels:
                self.kernels.append(entry)
            position = self._known_kernels[id(kernel)] = self.kernels.index(entry)
        return position

    def _source(self, module: Module, where: str) -> int:
        position = self._known_modules.get(id(module))
        if position is None:
            try:
                text = module.source
            except OstinatoError as error:
                raise GraphFileError(f"{where}: its source cannot be saved: {error}") from error
            if text not in self._sources:
                self._sources[text] = len(self.modules)
                self.modules.append(module)
            position = self._known_modules[id(module)] = self._sources[text]
        return position


def _made_up(graph: Graph) -> dict[int, int]:
    """A synthetic address for each memory, by number."""
    spans = overlapping(graph.memories.values())
    # In the order of the graph, not of the real addresses: those differ from run to run.
    order = {number: position for position, number in enumerate(graph.memories)}
    spans.sort(key=lambda span: min(order[memory.number] for memory in span[2]))
    addresses = {}
    free = _PAGE
    for begin, end, members in spans:
        base = free + begin % _PAGE
        for memory in members:
            addresses[memory.number] = base + memory.address - begin
        free = -(-(base + end - begin) // _PAGE) * _PAGE + _PAGE
    return addresses


def _node(node: CapturedNode, tables: _Tables, where: str) -> Document:
    return {
        **_command(node.command, tables, where),
        "place": None if node.place is None else _place(node.place),
        "origin": [int(index) for index in node.origin],
    }


def _command(command: Command, tables: _Tables, where: str) -> Document:
    if isinstance(command, Barrier):
        return {"op": "barrier"}
    if isinstance(command, Copy):
        source, target = tables.binding(command.source, where), tables.binding(command.target, where)
        return {"op": "copy", "label": _text(command.label), "source": source, "target": target}
    if isinstance(command, Fill):
        target = tables.binding(command.target, where)
        return {"op": "fill", "label": _text(command.label), "target": target, "pattern": command.pattern.hex()}
    return _dispatch(command, tables, where)


def _dispatch(command: Dispatch, tables: _Tables, where: str) -> Document:
    accesses = command.accesses
    arguments: list[list[Any]] = []
    for binding in command.bindings:
        if isinstance(binding, BufferBinding):
            arguments.append(["buffer", *tables.binding(binding, where)])
        elif isinstance(binding, InlineBinding):
            arguments.append(["inline", binding.data.hex()])
        elif isinstance(binding, ParamBinding):
            arguments.append(["param", binding.name])
        else:
            arguments.append(["unbound"])
    return {
        "op": "dispatch",
        "label": _text(command.label),
        "kernel": tables.kernel(command.kernel, where),
        "arguments": arguments,
        "kind": command.kind.value,
        "threads": list(command.threads),
        "groups": list(command.groups),
        "group_size": list(command.group_size),
        "shared": list(command.shared),
        "accesses": None
        if accesses is None
        else [
            [*tables.range(access.begin, access.end, where), "write" if access.write else "read"] for access in accesses
        ],
        "op_kind": command.op_kind.value,
        "bytes_read": _amount(command.bytes_read),
        "bytes_written": _amount(command.bytes_written),
        "flops": _amount(command.flops),
    }


def _amount(amount: int | Amount | None) -> int | Document | None:
    if isinstance(amount, Amount):
        terms = [[term.param, term.factor, term.plus, term.upto] for term in amount.terms]
        return {"base": amount.base, "terms": terms}
    return None if amount is None else int(amount)


def _place(place: Place) -> list[Any]:
    name = re.split(r"[/\\]", place.file)[-1]
    return [printable(name, 255) or "?", place.line]


def _text(text: str | None) -> str | None:
    return None if text is None else str.__str__(text)  # a label may be of a subclass with another __str__


def _constant(key: int | str, value: Any, where: str) -> list[Any]:
    key = key if isinstance(key, str) else int(key)
    item = getattr(value, "item", None)
    plain = item() if callable(item) else value
    if isinstance(plain, bool):
        return [key, "bool", plain]
    if isinstance(plain, int):
        return [key, "int", int(plain)]
    if isinstance(plain, float):
        return [key, "float", float(plain).hex()]
    raise GraphFileError(f"{where}: function constant {key!r} has value {value!r}, which cannot be saved")


def _dtype(dtype: np.dtype[Any], where: str) -> str | Document:
    if dtype.name in SCALARS:
        return dtype.name
    fields: Mapping[str, Any] | None = dtype.fields
    if fields is None or dtype.names is None:
        raise GraphFileError(f"{where}: dtype {dtype} cannot be saved; use view() with another dtype")
    return {
        "nbytes": dtype.itemsize,
        "aligned": dtype.isalignedstruct,
        "fields": [
            {
                "name": name,
                "dtype": _dtype(fields[name][0].base, where),
                "shape": list(fields[name][0].shape),
                "offset": fields[name][1],
            }
            for name in dtype.names
        ],
    }
