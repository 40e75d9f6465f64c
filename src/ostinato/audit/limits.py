"""What a GPU family would not run: the dispatches of a graph against the limits and features of the family.

It looks at grids, sizes, bindings and the names in a kernel's source, and runs nothing. It cannot know what only
Apple's compiler decides, such as how many threads the registers of a kernel leave room for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from ..backends.kernel_findings import KernelPlace
from ..graph.graph import Graph
from ..ir.commands import BufferBinding, Dispatch, DispatchKind
from .families import Family, having
from .findings import ERROR, Finding, argument_name, finding_about

KIND = "device limit"


def beyond(graph: Graph, family: Family) -> list[Finding]:
    """One finding for each limit that a dispatch exceeds, and for each feature that its kernel lacks there."""
    findings = []
    for index, node in enumerate(graph.nodes):
        if isinstance(node.command, Dispatch):
            for why, advice in (*_sizes(node.command, family), *_arguments(node.command, family)):
                findings.append(finding_about(graph, ERROR, KIND, (index,), f"{family.name}: {why}", advice))
            findings += _features(graph, index, node.command, family)
    return findings


def _sizes(command: Dispatch, family: Family) -> Iterator[tuple[str, str]]:
    threads = math.prod(command.group_size)
    if threads > family.group_threads:
        yield f"a threadgroup of {threads} threads; the family has at most {family.group_threads}", "use smaller groups"
    in_body = -(-command.kernel.threadgroup_bytes // 16) * 16
    nbytes = in_body + sum(command.shared)
    if nbytes > family.threadgroup_bytes:
        yield (
            f"{nbytes:,} bytes of threadgroup memory, {in_body:,} of them in the kernel's body;"
            f" the family has {family.threadgroup_bytes:,}",
            "use smaller tiles",
        )
    clipped = any(grid % size for grid, size in zip(command.threads, command.group_size, strict=True))
    if command.kind is DispatchKind.Threads and clipped and not family.clips_groups:
        yield (
            f"a grid of {command.threads} threads is not a multiple of the groups of {command.group_size}, which"
            " apple4 was the first family to support",
            "dispatch whole groups, and return early from threads beyond the data",
        )


def _arguments(command: Dispatch, family: Family) -> Iterator[tuple[str, str]]:
    constant = {argument.index for argument in command.kernel.signature.arguments if argument.space == "constant"}
    if len(constant) > family.constant_arguments:
        yield (
            f"{len(constant)} arguments in constant memory; the family has at most {family.constant_arguments}",
            "put several into one struct, or use device memory",
        )
    for binding in command.bindings:
        if not isinstance(binding, BufferBinding) or binding.index not in constant:
            continue
        if binding.offset % family.constant_alignment:
            yield (
                f"{argument_name(command, binding.index)}, in constant memory, is bound at byte {binding.offset} of its"
                f" buffer; the family wants a multiple of {family.constant_alignment}",
                "align the view, or use device memory",
            )


def _features(graph: Graph, index: int, command: Dispatch, family: Family) -> Iterator[Finding]:
    origin = command.kernel.origin
    if origin is None:
        return
    for use in origin.module.features(command.kernel.name):
        if use.feature not in family.features:
            place = KernelPlace(use.token.file, use.token.line, use.token.column or None)
            why = f"{family.name}: {use.name} at {place} ({use.feature}) is in {having(use.feature)}"
            finding = finding_about(graph, ERROR, KIND, (index,), why, "add a kernel without it for this family")
            yield replace(finding, code=place)
