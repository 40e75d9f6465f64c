"""A graph as text for a terminal, and in Graphviz's DOT language for a picture.

Labels, names of kernels and of files may come from an untrusted file. Characters that are not printable appear as
escapes, and Graphviz's special characters are quoted. Nothing is compiled or run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from ..base.printable import printable
from ..errors import ArgumentError
from ..ir.command_list import CapturedNode
from ..ir.commands import (
    Barrier,
    BufferBinding,
    Copy,
    Dispatch,
    DispatchKind,
    Fill,
    InlineBinding,
    Ordering,
    ParamBinding,
)
from .graph import Graph

if TYPE_CHECKING:
    from ..msl import Argument

COLUMNS = 120
_SHOWN_NODES = 60
_SHOWN_NAMES = 8
_SHOWN_WAITS = 6
_SHOWN_REASONS = 3


# --- text -----------------------------------------------------------------------------------------------------------


def to_text(graph: Graph, limit: int | None = _SHOWN_NODES) -> str:
    """A few lines about the graph, then one for each node, at most 120 columns wide.

    Of more than `limit` nodes the first two thirds and the last third are shown; None shows all.
    """
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise ArgumentError(f"to_text: limit={limit!r}: expected a number of nodes, or None for all nodes")
    count = len(graph)
    lines = [printable(line, COLUMNS) for line in header(graph)]
    shown = list(range(count))
    if limit is not None and count > limit:
        first = -(-2 * limit // 3)
        shown = [*range(first), *range(count - (limit - first), count)]
    waits = _predecessors(graph, set(shown))
    word = "waits for" if graph.ordering is Ordering.INFERRED else "needs"
    titles = {index: shortened(title(graph[index]), 44) for index in shown}
    widths = len(str(max(count - 1, 0))), max(map(len, titles.values()), default=0)
    splits = set(graph.splits)
    previous = -1
    for index in [*shown, count]:
        if index != previous + 1:
            lines.append(f"{'…':>{widths[0]}}  {index - previous - 1} more")
        if index < count:
            mark = "|" if index in splits else " "
            left = f"{index:>{widths[0]}} {mark}{titles[index]:<{widths[1]}}"
            lines.append(_line(graph, index, left, word, waits.get(index, [])))
        previous = index
    return "\n".join(lines)


def header(graph: Graph) -> Iterable[str]:
    """Lines about the graph as a whole; names in them are not escaped."""
    where = f"on {graph.queue.name!r}" if graph.on_device else "on no device"
    name = f" {graph.label!r}" if graph.label else ""
    kinds = [(graph.dispatches, "dispatch", "dispatches")]
    for kind, plural in (("copy", "copies"), ("fill", "fills"), ("barrier", "barriers")):
        kinds.append((sum(node.kind == kind for node in graph), kind, plural))
    inside = ", ".join(_count(*kind) for kind in kinds if kind[0])
    yield f"graph{name} {where}: {_count(len(graph), 'node', 'nodes')}{f' ({inside})' if inside else ''}"
    memory = sum(block.nbytes for block in graph.memories.values())
    yield f"memory: {_count(len(graph.memories), 'buffer', 'buffers')} of {_bytes(memory)} in all"
    yield f"order: {graph.ordering.value}; {_count(len(graph.edges), 'edge', 'edges')} by memory and barriers"
    if graph.params:
        params = [
            f"{{{param.name}}} {param.dtype.name}{list(param.shape) if param.shape else ''}"
            for param in graph.params.values()
        ]
        yield f"parameters: {_some(params)}"
    if graph.names:
        names = [
            f"{name} = {_range(graph, at.memory, at.begin, at.end, False)} {at.dtype.name}{list(at.shape)}"
            for name, at in graph.names.items()
        ]
        yield f"named: {_some(names)}"
    if graph.outputs is not None:
        outputs = [_somewhere(graph, begin, end) for begin, end in graph.outputs]
        yield f"outputs: {_some(outputs) if outputs else 'none'}"
    if graph.splits:
        yield f"new submissions begin before: {_some([str(split) for split in graph.splits])}"
    for report in graph.reports:
        yield f"report: {str(report).strip().partition(chr(10))[0]}"


def title(node: CapturedNode) -> str:
    """Label and name of a node."""
    return printable(f"{node.label}/{node.name}" if node.label else node.name)


def shortened(text: str, letters: int) -> str:
    """The end of a text that is too long: the end of a path says more than its beginning."""
    return text if len(text) <= letters else "…" + text[-(letters - 1) :]


def _line(graph: Graph, index: int, left: str, word: str, waits: list[int]) -> str:
    node = graph[index]
    right = ""
    if waits:
        listed = ", ".join(map(str, waits[:_SHOWN_WAITS])) + (", …" if len(waits) > _SHOWN_WAITS else "")
        right += f"  {word} {listed}"
    if node.place is not None:
        right += "  " + shortened(printable(str(node.place)), 28)
    room = max(COLUMNS - len(left) - len(right) - 2, 8)
    return f"{left}  {printable(details(graph, node), room)}{right}"[:COLUMNS].rstrip()


def details(graph: Graph, node: CapturedNode) -> str:
    """Grid, arguments and memory of a node; empty for a barrier."""
    command = node.command
    if isinstance(command, Barrier):
        return ""
    if isinstance(command, Copy):
        return f"{_bound(graph, command.source)} →{_bound(graph, command.target)}"
    if isinstance(command, Fill):
        return f"0x{command.pattern[::-1].hex()} →{_bound(graph, command.target)}"
    arguments = []
    for argument, binding in zip(command.kernel.signature.arguments, command.bindings, strict=True):
        if isinstance(binding, BufferBinding):
            arguments.append(("→" if binding.writes else "") + _bound(graph, binding))
        elif isinstance(binding, InlineBinding):
            arguments.append(_value(argument, binding.data))
        else:
            arguments.append(f"{{{binding.name}}}" if isinstance(binding, ParamBinding) else "unbound")
    unknown = "  touches: unknown" if command.accesses is None else ""
    return f"{_geometry(command)}{unknown}  {' '.join(arguments)}"


def _geometry(command: Dispatch) -> str:
    """Threads or groups, by group size; trailing axes of 1 are left out."""

    def axes(size: tuple[int, int, int]) -> str:
        kept = 3 if size[2] > 1 else 2 if size[1] > 1 else 1
        return "×".join(map(str, size[:kept]))

    grid = command.threads if command.kind is DispatchKind.Threads else command.groups
    unit = "threads" if command.kind is DispatchKind.Threads else "groups"
    return f"{axes(grid)} {unit} by {axes(command.group_size)}"


def _value(argument: Argument, data: bytes) -> str:
    if argument.scalar is not None and len(data) <= 16:
        element = np.dtype(argument.scalar)
        if len(data) and len(data) % element.itemsize == 0:
            numbers = np.frombuffer(data, element)
            texts = [f"{float(number):.6g}" if element.kind not in "iub" else str(int(number)) for number in numbers]
            return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"
    return f"0x{data[:8].hex()}{'…' if len(data) > 8 else ''}({len(data)} bytes)"


def _bound(graph: Graph, binding: BufferBinding) -> str:
    return _range(graph, binding.allocation, binding.address, binding.address + binding.nbytes, True)


def _range(graph: Graph, number: int, begin: int, end: int, by_name: bool) -> str:
    """A range of a memory, by the name of the buffer that holds it if there is one."""
    if by_name and graph.names:
        name, first, last = graph.place_of(begin, end)
        named = graph.names.get(name)
        if named is not None:
            return name if last - first == named.nbytes else f"{name}[{first}:{last}]"
    memory = graph.memories.get(number)
    start = 0 if memory is None else memory.address
    return f"m{number}[{begin - start}:{end - start}]"


def _somewhere(graph: Graph, begin: int, end: int) -> str:
    memory = graph.memory_at(begin, end)
    return f"{begin:#x}" if memory is None else _range(graph, memory.number, begin, end, True)


def _predecessors(graph: Graph, nodes: set[int]) -> dict[int, list[int]]:
    predecessors: dict[int, list[int]] = {}
    for before, after in graph.edges.tolist():
        if after in nodes:
            predecessors.setdefault(after, []).append(before)
    return predecessors


def _count(count: int, singular: str, plural: str) -> str:
    return f"{count:,} {singular if count == 1 else plural}"


def _some(texts: list[str]) -> str:
    rest = f", … ({len(texts) - _SHOWN_NAMES} more)" if len(texts) > _SHOWN_NAMES else ""
    return ", ".join(texts[:_SHOWN_NAMES]) + rest


def _bytes(count: int) -> str:
    if count < 10_000:
        return f"{count:,} bytes"
    step = min(int(math.log(count, 1024)), 4)
    return f"{count / 1024**step:.4g} {('bytes', 'KiB', 'MiB', 'GiB', 'TiB')[step]}"


# --- Graphviz -------------------------------------------------------------------------------------------------------


def to_dot(graph: Graph) -> str:
    """The graph in Graphviz's DOT language: `dot -Tsvg` draws it.

    Nodes are clustered by the first part of their labels, and edges name the bytes that make one node wait for another.
    A dashed node may touch anything; a double outline begins a new submission; dotted edges come from barriers.
    """
    heading = f"{graph.label + ': ' if graph.label else ''}{graph.ordering.value}"
    lines = [
        "digraph ostinato {",
        f"  graph [label={_quoted(heading)}, fontname=Helvetica, fontsize=11];",
        "  node [shape=box, fontname=Helvetica, fontsize=10];",
        "  edge [fontname=Helvetica, fontsize=8];",
    ]
    clusters: dict[str | None, list[int]] = {}
    for index, node in enumerate(graph):
        clusters.setdefault(node.label.partition("/")[0] if node.label else None, []).append(index)
    splits = set(graph.splits)
    number = 0
    for name, members in clusters.items():
        indent = "  " if name is None else "    "
        if name is not None:
            lines += [f"  subgraph cluster_{number} {{", f"    label={_quoted(name)};"]
            number += 1
        lines += [f"{indent}n{index} [{_attributes(graph, index, index in splits)}];" for index in members]
        if name is not None:
            lines.append("  }")
    for before, after in graph.edges.tolist():
        reasons = [
            f"{reason.kind} {reason.buffer}[{reason.begin}:{reason.end}]" for reason in graph.reasons(before, after)
        ]
        if reasons:
            more = ["…"] if len(reasons) > _SHOWN_REASONS else []
            lines.append(f"  n{before} -> n{after} [label={_quoted(*reasons[:_SHOWN_REASONS], *more)}];")
        else:
            lines.append(f"  n{before} -> n{after} [style=dotted];")
    return "\n".join([*lines, "}", ""])


def _attributes(graph: Graph, index: int, begins: bool) -> str:
    node = graph[index]
    if isinstance(node.command, Barrier):
        return f"shape=point, width=0.12, xlabel={_quoted(str(index))}"
    rest = node.label.partition("/")[2] if node.label else ""
    texts = [f"{index}  {f'{rest}/' if rest else ''}{node.name}", details(graph, node)]
    if node.place is not None:
        texts.append(str(node.place))
    shape = "" if isinstance(node.command, Dispatch) else ", shape=note"
    style = ", style=dashed" if node.accesses is None else ""
    return f"label={_quoted(*texts)}{shape}{style}{', peripheries=2' if begins else ''}"


def _quoted(*lines: str) -> str:
    """Lines as one DOT string, with backslashes, quotes and entities escaped."""

    def quoted(line: str) -> str:
        shown = printable(line, 400)
        return shown.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"')

    return '"' + "\\n".join(map(quoted, lines)) + '"'
