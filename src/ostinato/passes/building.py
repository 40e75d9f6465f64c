"""The dispatch that replaces two: its bindings, size, label and declared cost."""

from __future__ import annotations

from dataclasses import replace

from ..base.ranges import size
from ..encode import bindings, geometry
from ..errors import ArgumentError, GeometryError
from ..ir.commands import (
    Binding,
    BufferBinding,
    CompiledKernel,
    Dispatch,
    DispatchKind,
    InlineBinding,
    ParamBinding,
    UnboundBinding,
)
from ..ir.costs import Amount, less
from ..ops import compiled
from ..runtime.queue import Queue
from .proofs import Pair
from .rules import FusionRule, Geometry, ResolvedRule, binding_range


def bound_to(resolved: ResolvedRule, first: Dispatch, second: Dispatch) -> tuple[Binding, ...]:
    """The bindings of the fused kernel."""
    bindings_by_side = {
        "first": {binding.index: binding for binding in first.bindings},
        "second": {binding.index: binding for binding in second.bindings},
    }
    bound: list[Binding] = []
    for argument in resolved.fused.kernels[resolved.rule.fused.function].arguments:
        side, index = resolved.rule.arguments[argument.index]
        binding = bindings_by_side[side][index]
        if isinstance(binding, BufferBinding):
            where = (binding.allocation, binding.address, binding.offset, binding.nbytes)
            bound.append(BufferBinding(argument.index, *where, argument.access != "read"))
        else:
            bound.append(replace(binding, index=argument.index))
    return tuple(bound)


def fused_kernel(resolved: ResolvedRule, queue: Queue) -> CompiledKernel:
    """The fused kernel of a rule, compiled for a device on first use."""
    name = resolved.rule.fused
    return compiled.kernel(queue, resolved.fused, name.function, name.constants)._compiled


def built(pair: Pair, kernel: CompiledKernel, bound: tuple[Binding, ...], queue: Queue) -> Dispatch | str:
    """The fused dispatch, or the reason why the kernel cannot be dispatched with these bindings."""
    rule, first, second = pair.rule, pair.first, pair.second
    misfit = _misfit(kernel, bound)
    if misfit is not None:
        return misfit
    capabilities = queue.backend.capabilities
    dispatches = {"first": first, "second": second}
    try:
        kind, threads, groups, group_size = geometry.resolve(
            kernel, *_geometry(rule, first, second), capabilities.simd_width
        )
        shared = bindings.shared_sizes(
            kernel,
            {index: _shared(dispatches[side], at) for index, (side, at) in rule.shared.items()},
            capabilities.threadgroup_memory_bytes,
        )
    except (GeometryError, ArgumentError) as error:
        return f"the fused kernel cannot run with that grid: {error}"
    between = binding_range(second, rule.second.intermediate)
    assert between is not None
    return Dispatch(
        kernel=kernel,
        bindings=bound,
        kind=kind,
        threads=threads,
        groups=groups,
        group_size=group_size,
        shared=shared,
        op_kind=rule.op_kind,
        label=joined_labels(first.label, second.label),
        accesses=bindings.accesses(bound, None, None, queue, f"kernel {kernel.name!r}"),
        bytes_read=added(first.bytes_read, second.bytes_read, between[1] - between[0], bound),
        bytes_written=added(first.bytes_written, second.bytes_written, size(pair.unwritten), bound),
        flops=added(first.flops, second.flops, 0, bound),
    )


def joined_labels(first: str | None, second: str | None) -> str | None:
    """One label for two dispatches: the scopes they share, then the rest of each, joined by `+`."""
    if first == second or second is None:
        return first
    if first is None:
        return second
    left, right = first.split("/"), second.split("/")
    shared = 0
    while shared < min(len(left), len(right)) and left[shared] == right[shared]:
        shared += 1
    own = [part for part in ("/".join(left[shared:]), "/".join(right[shared:])) if part]
    return "/".join([*left[:shared], "+".join(own)])


def _misfit(kernel: CompiledKernel, bound: tuple[Binding, ...]) -> str | None:
    """Why the bindings do not fit: a type's size and alignment may differ between two sources."""
    arguments = zip(kernel.signature.arguments, bound, kernel.argument_alignments, kernel.argument_bytes, strict=True)
    for argument, binding, alignment, nbytes in arguments:
        if isinstance(binding, UnboundBinding) and argument.used:
            return f"the fused kernel uses its argument {binding.index}, to which nothing is bound"
        if isinstance(binding, BufferBinding) and alignment and binding.address % alignment:
            return f"the fused kernel needs its argument {binding.index} aligned to {alignment} bytes"
        held = len(binding.data) if isinstance(binding, InlineBinding) else binding.nbytes
        if argument.kind == "value" and held < nbytes:
            return f"the fused kernel takes {nbytes} bytes as argument {binding.index}; the binding has {held}"
    return None


def _geometry(rule: FusionRule, first: Dispatch, second: Dispatch) -> Geometry:
    if callable(rule.geometry):
        return rule.geometry(first, second)
    source = first if rule.geometry == "first" else second
    if source.kind is DispatchKind.Threads:
        return Geometry(threads=source.threads, group_size=source.group_size)
    return Geometry(groups=source.groups, group_size=source.group_size)


def _shared(dispatch: Dispatch, index: int) -> int:
    for argument, nbytes in zip(dispatch.kernel.signature.shared, dispatch.shared, strict=True):
        if argument.index == index:
            return nbytes
    raise ArgumentError(f"kernel {dispatch.kernel.name!r} has no threadgroup argument {index}")


def added(
    first: int | Amount | None, second: int | Amount | None, saved: int, bound: tuple[Binding, ...]
) -> int | Amount | None:
    """The sum of an amount over two dispatches, minus what fusing them saves."""
    if first is None or second is None:
        return None
    both = less(first + second, saved)
    # The fused kernel may not take a parameter that the cost of either dispatch depends on; then the cost is unknown.
    taken = {binding.name for binding in bound if isinstance(binding, ParamBinding)}
    return None if isinstance(both, Amount) and not both.params <= taken else both
