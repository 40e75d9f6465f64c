"""A graph from the document of a graph file, with every value checked.

A document may come from an untrusted sender or a damaged disk. The type and range of every value are checked before a
`Graph` is made; the first invalid one raises a `Damaged` that says where and why. The work is bounded by the size of
the document. Kernels are looked up in their parsed sources, never compiled. What only a compiler knows of them (sizes,
limits) is read from the file here, and determined again when the graph is moved to a device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

from ...errors import GraphError, OstinatoError
from ...ir.command_list import CapturedNode, CommandList
from ...ir.commands import (
    Access,
    Barrier,
    Binding,
    BufferBinding,
    CapturedOpKind,
    Command,
    CompiledKernel,
    Copy,
    Dispatch,
    DispatchKind,
    Fill,
    InlineBinding,
    KernelOrigin,
    ParamBinding,
    Size3,
    UnboundBinding,
)
from ...ir.costs import Amount, Term
from ...ir.params import Param, is_counter
from ...msl import Argument, Module
from ...version import __version__
from ..graph import Graph, check_names
from ..memory import GraphMemory, NamedRange
from .document import FORMAT, ORDERINGS, VERSION
from .values import (
    MAX_ADDRESS,
    MAX_COUNT,
    MAX_VALUE_BYTES,
    Damaged,
    boolean,
    choice,
    constants_of,
    dtype_of,
    hexadecimal,
    identifier,
    integer,
    listed,
    optional_count,
    optional_label,
    place_of,
    record,
    shape_of,
    shown,
    size3,
    text,
)

MAX_SOURCES = 1024
_MAX_KERNELS = 4096

_KINDS = {kind.value: kind for kind in DispatchKind}
_OP_KINDS = {kind.value: kind for kind in CapturedOpKind}
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class SavedReport:
    """The text of a pass's report, from a graph file."""

    text: str

    def __str__(self) -> str:
        return self.text


def check_version(document: Any) -> None:
    """Raise unless the document is a graph in this version of the format."""
    if type(document) is not dict or document.get("format") != FORMAT:
        raise Damaged("it is a zip file, but not an ostinato graph")
    version = integer(document.get("version"), "version", 1, MAX_COUNT)
    creator = text(document.get("creator"), "creator")
    if version < VERSION:
        raise Damaged(
            f"it has version {version} of the format and was written by an older version of ostinato ({creator}); this"
            f" is ostinato {__version__}, which reads version {VERSION}: capture the graph again and save it, or open"
            " it with the version that wrote it"
        )
    if version > VERSION:
        raise Damaged(
            f"it has version {version} of the format and was written by {creator}; this is ostinato {__version__},"
            f" which reads version {VERSION}: open it with a newer ostinato, or have it saved by this one"
        )


def source_count(document: Mapping[str, Any]) -> int:
    """The number of sources that the document refers to."""
    return integer(document.get("sources"), "sources", 0, MAX_SOURCES)


def contents_sizes(document: Mapping[str, Any]) -> dict[int, int]:
    """The size in bytes of each memory whose contents were saved, by position."""
    sizes = {}
    for position, entry in enumerate(listed(document.get("memories"), "memories")):
        memory = record(entry, f"memory {position}", _MEMORY)
        if boolean(memory["contents"], f"memory {position}, contents"):
            sizes[position] = integer(memory["nbytes"], f"memory {position}, nbytes", 0, MAX_ADDRESS)
    return sizes


def graph_of(document: Any, modules: Sequence[Module], contents: Mapping[int, bytes]) -> Graph:
    """The graph. `modules` are its sources, `contents` the contents of its memories by position."""
    reader = _Reader(record(document, "graph", _GRAPH), modules, contents)
    try:
        return reader.graph()
    except GraphError as error:
        raise Damaged(str(error)) from error


_GRAPH = frozenset(
    """format version creator label ordering sources kernels memories params names outputs dropped splits reports
    nodes""".split()
)
_KERNEL = frozenset(
    """source name constants max_threads_per_group threadgroup_bytes argument_bytes argument_alignments""".split()
)
_MEMORY = frozenset({"address", "nbytes", "contents"})
_PARAM = frozenset({"name", "dtype", "shape"})
_NAME = frozenset({"name", "range", "dtype", "shape"})
_AMOUNT = frozenset({"base", "terms"})
_NODE = frozenset({"op", "place", "origin"})
_NODES = {
    "barrier": _NODE,
    "copy": _NODE | {"label", "source", "target"},
    "fill": _NODE | {"label", "target", "pattern"},
    "dispatch": _NODE
    | set(
        """label kernel arguments kind threads groups group_size shared accesses op_kind bytes_read bytes_written
        flops""".split()
    ),
}


class _Reader:
    """Reads one document: first the tables that nodes refer to, then the nodes."""

    def __init__(self, document: dict[str, Any], modules: Sequence[Module], contents: Mapping[int, bytes]) -> None:
        self._document = document
        self._modules = modules
        self._memories = [
            self._memory(entry, position, contents.get(position)) for position, entry in self._listed("memories")
        ]
        self._params = self._named("params", self._param)
        self._kernels = [self._kernel(entry, f"kernel {position}") for position, entry in self._listed("kernels")]

    def graph(self) -> Graph:
        document = self._document
        names = self._named("names", self._name)
        for name in names:
            if name in self._params:
                raise Damaged(f"name {name!r}: a parameter has the same name")
        nodes = tuple(self._node(entry, f"node {position}") for position, entry in self._listed("nodes"))
        check_names(nodes, names)
        outputs = document["outputs"]
        splits = tuple(integer(split, "splits", 1, len(nodes) - 1) for _, split in self._listed("splits"))
        if any(second <= first for first, second in pairwise(splits)):
            raise Damaged("splits: they are not in ascending order")
        # Only the text of a report is saved.
        reports: tuple[Any, ...] = tuple(
            SavedReport(text(report, f"report {at}", empty=True)) for at, report in self._listed("reports")
        )
        return Graph(
            CommandList(nodes, choice(document["ordering"], "ordering", ORDERINGS), self._params),
            memories={memory.number: memory for memory in self._memories},
            names=names,
            outputs=None if outputs is None else self._ranges("outputs"),
            dropped=self._ranges("dropped"),
            splits=splits,
            reports=reports,
            label=optional_label(document["label"], "label"),
        )

    # --- tables -------------------------------------------------------------------------------------------------

    def _listed(self, key: str) -> list[tuple[int, Any]]:
        return list(enumerate(listed(self._document[key], key)))

    def _memory(self, entry: Any, position: int, contents: bytes | None) -> GraphMemory:
        where = f"memory {position}"
        memory = record(entry, where, _MEMORY)
        nbytes = integer(memory["nbytes"], f"{where}, nbytes", 0, MAX_ADDRESS)
        address = integer(memory["address"], f"{where}, address", 0, MAX_ADDRESS - nbytes)
        return GraphMemory(position, address, nbytes, None, contents)

    def _named(self, key: str, read: Callable[[Any, str], _T]) -> dict[str, _T]:
        read_by_name: dict[str, _T] = {}
        for position, entry in self._listed(key):
            where = f"{key}, entry {position}"
            value = read(entry, where)
            name = entry["name"]
            if name in read_by_name:
                raise Damaged(f"{where}: the name {name!r} occurs twice")
            read_by_name[name] = value
        return read_by_name

    def _param(self, entry: Any, where: str) -> Param:
        param = record(entry, where, _PARAM)
        dtype = dtype_of(param["dtype"], where)
        shape = shape_of(param["shape"], where, dtype.itemsize)
        checked = Param(identifier(param["name"], where), dtype, shape)
        if not checked.nbytes or checked.nbytes > MAX_VALUE_BYTES:
            raise Damaged(f"{where}: a parameter has 1 to {MAX_VALUE_BYTES} bytes, not {checked.nbytes}")
        return checked

    def _name(self, entry: Any, where: str) -> NamedRange:
        named = record(entry, where, _NAME)
        memory, begin, end = self._range(named["range"], where)
        dtype = dtype_of(named["dtype"], where)
        shape = shape_of(named["shape"], where, dtype.itemsize)
        if math.prod(shape) * dtype.itemsize != end - begin:
            raise Damaged(f"{where}: {dtype.name} of shape {shape} does not take {end - begin} bytes")
        return NamedRange(identifier(named["name"], where), memory.number, begin, end, dtype, shape)

    def _kernel(self, entry: Any, where: str) -> CompiledKernel:
        kernel = record(entry, where, _KERNEL)
        if len(self._document["kernels"]) > _MAX_KERNELS:
            raise Damaged(f"kernels: {len(self._document['kernels'])} are too many; at most {_MAX_KERNELS} are read")
        module = self._modules[integer(kernel["source"], f"{where}, source", 0, len(self._modules) - 1)]
        name = text(kernel["name"], f"{where}, name")
        constants = constants_of(kernel["constants"], where)
        try:
            signature = module.signature(name, constants)
        except OstinatoError as error:
            raise Damaged(f"{where}: {error}") from error
        sizes, alignments = (
            tuple(
                integer(number, f"{where}, {key}", 0, MAX_ADDRESS) for number in listed(kernel[key], f"{where}, {key}")
            )
            for key in ("argument_bytes", "argument_alignments")
        )
        if len(sizes) != len(signature.arguments) or len(alignments) != len(signature.arguments):
            raise Damaged(f"{where}: its source has {len(signature.arguments)} arguments: {signature}")
        if any(alignment & (alignment - 1) or alignment > 4096 for alignment in alignments):
            raise Damaged(f"{where}: an alignment is a power of two, at most 4096")
        return CompiledKernel(
            name,
            signature,
            integer(kernel["max_threads_per_group"], f"{where}, max_threads_per_group", 1, 1 << 20),
            integer(kernel["threadgroup_bytes"], f"{where}, threadgroup_bytes", 0, 1 << 31),
            sizes,
            alignments,
            code=None,
            origin=KernelOrigin(module, constants),
        )

    # --- ranges -------------------------------------------------------------------------------------------------

    def _range(self, value: Any, where: str) -> tuple[GraphMemory, int, int]:
        parts = listed(value, where, 3)
        memory = self._memories[integer(parts[0], f"{where}, memory", 0, len(self._memories) - 1)]
        nbytes = integer(parts[2], f"{where}, bytes", 0, memory.nbytes)
        offset = integer(parts[1], f"{where}, first byte", 0, memory.nbytes - nbytes)
        return memory, memory.address + offset, memory.address + offset + nbytes

    def _ranges(self, key: str) -> tuple[tuple[int, int], ...]:
        return tuple(self._range(span, key)[1:] for _, span in self._listed(key))

    def _binding(self, value: Any, where: str, index: int, writes: bool) -> BufferBinding:
        memory, begin, end = self._range(value, where)
        return BufferBinding(index, memory.number, begin, begin - memory.address, end - begin, writes)

    # --- nodes --------------------------------------------------------------------------------------------------

    def _node(self, entry: Any, where: str) -> CapturedNode:
        operation = entry.get("op") if type(entry) is dict else None
        keys = choice(operation, f"{where}, op", _NODES)
        node = record(entry, where, keys)
        origin = tuple(integer(index, f"{where}, origin", 0, MAX_COUNT) for index in listed(node["origin"], where))
        return CapturedNode(self._command(operation, node, where), place_of(node["place"], f"{where}, place"), origin)

    def _command(self, operation: Any, node: dict[str, Any], where: str) -> Command:
        if operation == "barrier":
            return Barrier()
        if operation == "dispatch":
            return self._dispatch(node, where)
        label = optional_label(node["label"], f"{where}, label")
        target = self._binding(node["target"], f"{where}, target", 0, True)
        if operation == "fill":
            pattern = hexadecimal(node["pattern"], f"{where}, pattern")
            if len(pattern) not in (1, 2, 4, 8) or target.nbytes % len(pattern) or target.address % len(pattern):
                raise Damaged(f"{where}: {len(pattern)} bytes cannot fill {target.nbytes} at {target.address:#x}")
            return Fill(target, pattern, label)
        source = self._binding(node["source"], f"{where}, source", 0, False)
        if source.nbytes != target.nbytes or source.access(False).overlaps(target.access(True)):
            raise Damaged(f"{where}: source and target of a copy must have the same size and not overlap")
        return Copy(source, target, label)

    def _dispatch(self, node: dict[str, Any], where: str) -> Dispatch:
        position = integer(node["kernel"], f"{where}, kernel", 0, len(self._kernels) - 1)
        kernel = self._kernels[position]
        kind, threads, groups, group_size = _geometry(node, kernel, where)
        arguments = listed(node["arguments"], f"{where}, arguments", len(kernel.signature.arguments))
        shared = listed(node["shared"], f"{where}, shared", len(kernel.signature.shared))
        sizes = tuple(
            integer(nbytes, f"{where}, shared", int(argument.used), 1 << 31)
            for nbytes, argument in zip(shared, kernel.signature.shared, strict=True)
        )
        if any(nbytes % 16 for nbytes in sizes):
            raise Damaged(f"{where}, shared: sizes are multiples of 16 bytes")
        bound = tuple(
            self._argument(value, kernel, at, argument, f"{where}, argument {argument.index}")
            for at, (value, argument) in enumerate(zip(arguments, kernel.signature.arguments, strict=True))
        )
        bytes_read, bytes_written, flops = (
            self._amount(node[key], f"{where}, {key}", bound) for key in ("bytes_read", "bytes_written", "flops")
        )
        return Dispatch(
            kernel=kernel,
            bindings=bound,
            kind=kind,
            threads=threads,
            groups=groups,
            group_size=group_size,
            shared=sizes,
            op_kind=choice(node["op_kind"], f"{where}, op_kind", _OP_KINDS),
            label=optional_label(node["label"], f"{where}, label"),
            accesses=self._accesses(node["accesses"], f"{where}, accesses"),
            bytes_read=bytes_read,
            bytes_written=bytes_written,
            flops=flops,
        )

    def _amount(self, value: Any, where: str, bound: Sequence[Binding]) -> int | Amount | None:
        if type(value) is not dict:
            return optional_count(value, where)
        amount = record(value, where, _AMOUNT)
        taken = {binding.name for binding in bound if isinstance(binding, ParamBinding)}
        terms = []
        for entry in listed(amount["terms"], where):
            name, factor, plus, upto = listed(entry, where, 4)
            if type(name) is not str or name not in taken or not is_counter(self._params[name]):
                raise Damaged(f"{where}: {shown(name)} is not an integer parameter of the dispatch")
            count = integer(factor, where, 0, MAX_COUNT)
            terms.append(Term(name, count, integer(plus, where, -MAX_COUNT, MAX_COUNT), optional_count(upto, where)))
        if not terms:
            raise Damaged(f"{where}: an amount needs terms; without them it is written as an integer")
        return Amount(integer(amount["base"], where, 0, MAX_COUNT), tuple(terms))

    def _argument(self, value: Any, kernel: CompiledKernel, at: int, argument: Argument, where: str) -> Binding:
        kind, *rest = listed(value, where) or [None]
        writes = argument.access != "read"
        needed, alignment = kernel.argument_bytes[at], kernel.argument_alignments[at]
        if kind == "buffer":
            bound = self._binding(rest, where, argument.index, writes)
            if argument.kind == "value" and bound.nbytes < needed:
                raise Damaged(f"{where}: a {argument.type} takes {needed} bytes, not {bound.nbytes}")
            if alignment and bound.address % alignment:
                raise Damaged(f"{where}: byte {bound.offset} of its memory is not aligned to {alignment} bytes")
            return bound
        if kind == "unbound" and not rest:
            if argument.used:
                raise Damaged(f"{where}: the kernel uses it, so something must be bound to it")
            return UnboundBinding(argument.index, needed if argument.kind == "value" else 0)
        if kind not in ("inline", "param") or len(rest) != 1:
            raise Damaged(f"{where}: expected a buffer, an inline value, a parameter or unbound, not {shown(value)}")
        if writes:
            raise Damaged(f"{where}: the kernel writes to it, so it must be a buffer")
        binding: InlineBinding | ParamBinding
        if kind == "inline":
            binding = InlineBinding(argument.index, hexadecimal(rest[0], where))
            given = len(binding.data)
        else:
            param = self._params.get(text(rest[0], where))
            if param is None:
                raise Damaged(f"{where}: the graph has no parameter {shown(rest[0])}")
            binding = ParamBinding(argument.index, param.name, param.nbytes)
            given = param.nbytes
        if given < needed:
            raise Damaged(f"{where}: a {argument.type} takes {needed} bytes, not {given}")
        return binding

    def _accesses(self, value: Any, where: str) -> tuple[Access, ...] | None:
        if value is None:
            return None
        accesses = []
        for entry in listed(value, where):
            parts = listed(entry, where, 4)
            _, begin, end = self._range(parts[:3], where)
            accesses.append(Access(begin, end, choice(parts[3], where, {"read": False, "write": True})))
        return tuple(accesses)


def _geometry(node: dict[str, Any], kernel: CompiledKernel, where: str) -> tuple[DispatchKind, Size3, Size3, Size3]:
    kind = choice(node["kind"], f"{where}, kind", _KINDS)
    threads, groups, size = (size3(node[key], f"{where}, {key}") for key in ("threads", "groups", "group_size"))
    if math.prod(size) > kernel.max_threads_per_group:
        raise Damaged(f"{where}: a group of {size} threads; the kernel allows {kernel.max_threads_per_group}")
    for in_grid, group_count, per_group in zip(threads, groups, size, strict=True):
        if in_grid != group_count * per_group and (
            kind is DispatchKind.ThreadGroups or group_count != -(-in_grid // per_group)
        ):
            raise Damaged(f"{where}: {groups} groups of {size} threads do not make {threads} threads")
    return kind, threads, groups, size
