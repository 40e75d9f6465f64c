"""What may be fused: rules that name two kernels and the one that does the work of both.

A rule is data that anybody can write: `fuse(rules=[*default_rules(), mine])`. It promises what cannot be read off a
signature (which bytes a kernel covers, which of its arguments it overwrites without reading them, which may be the
same memory); everything else, `fuse` proves for each pair of dispatches before it touches them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ..encode.geometry import Extent
from ..errors import ArgumentError, KernelNotFound
from ..ir.commands import BufferBinding, CapturedOpKind, Dispatch, InlineBinding
from ..msl import Argument, Module, Signature, parse
from ..ops import compiled
from ..ops.checks import TYPES

Side = Literal["first", "second"]
Covered = Callable[[Dispatch], int | None]


@dataclass(frozen=True, slots=True)
class KernelName:
    """A kernel: the function of a source text, file or parsed module, specialised with these function constants.

    Two sources are the same when they are after preprocessing, so comments, layout and the file's name do not matter.
    """

    source: str | Path | Module
    function: str
    constants: Mapping[int | str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.function


@dataclass(frozen=True, slots=True)
class Half:
    """One of the two kernels of a rule."""

    kernel: KernelName
    intermediate: int
    """Buffer index of what the first writes and the second reads."""
    covers: Covered
    """How many bytes of the intermediate, from its start, a dispatch writes or reads: all of them, and none beyond.
    None when that cannot be told from the dispatch."""
    overwrites: tuple[int, ...] = ()
    """Buffer indices of which it writes as many bytes, and reads none. The first must overwrite the intermediate."""


class Geometry(NamedTuple):
    """The size of a dispatch, as an encoder takes it."""

    threads: Extent | None = None
    groups: Extent | None = None
    group_size: Extent | None = None


@dataclass(frozen=True, slots=True)
class FusionRule:
    """Two kernels, of which the second uses what the first made, and one kernel in their place."""

    name: str
    first: Half
    second: Half
    fused: KernelName
    arguments: Mapping[int, tuple[Side, int]]
    """For each buffer index of the fused kernel, whose argument it gets. Naming the first's intermediate here says that
    the fused kernel writes it too, so that others may go on reading it."""
    geometry: Side | Callable[[Dispatch, Dispatch], Geometry]
    """Whose size the fused dispatch takes, or a function of both that gives it."""
    equal: tuple[tuple[int, int], ...] = ()
    """Pairs (index of the first, index of the second) of arguments that must be the same, such as counts."""
    in_place: tuple[tuple[int, int], ...] = ()
    """Pairs of indices of the fused kernel, of which it writes one, that may be exactly the same memory."""
    shared: Mapping[int, tuple[Side, int]] = field(default_factory=dict)
    """For each threadgroup argument of the fused kernel, whose size it gets."""
    op_kind: CapturedOpKind = CapturedOpKind.Other
    check: Callable[[Dispatch, Dispatch], str | None] | None = None
    """A condition of the rule's own: the reason to refuse these two dispatches, or None."""

    def __str__(self) -> str:
        return self.name


# --- as the pass uses them ---------------------------------------------------------------------------------------

KernelKey = tuple[bytes, str, tuple[tuple[int | str, Any], ...]]


@dataclass(frozen=True, slots=True, eq=False)
class ResolvedRule:
    """A rule with its sources parsed, found to make sense."""

    rule: FusionRule
    first: KernelKey
    second: KernelKey
    fused: Module


def resolved(rule: FusionRule) -> ResolvedRule:
    """The rule, ready to be looked for; an error when its kernels do not fit together."""
    if not isinstance(rule, FusionRule):
        raise ArgumentError(f"fuse: a rule is a FusionRule, not {rule!r}")
    modules = [_module(one) for one in (rule.first.kernel, rule.second.kernel, rule.fused)]
    first, second, fused = (
        _signature(rule, name, module)
        for name, module in zip((rule.first.kernel, rule.second.kernel, rule.fused), modules, strict=True)
    )
    _check_intermediate(rule, first, second)
    _check_arguments(rule, {"first": first, "second": second}, fused)
    return ResolvedRule(
        rule,
        kernel_key(modules[0], rule.first.kernel.function, rule.first.kernel.constants),
        kernel_key(modules[1], rule.second.kernel.function, rule.second.kernel.constants),
        modules[2],
    )


def kernel_key(module: Module, function: str, constants: Mapping[int | str, Any]) -> KernelKey:
    """What makes two kernels the same one."""
    indices = {one.name: one.index for one in module.constants}
    values = {indices.get(key, key) if isinstance(key, str) else key: value for key, value in constants.items()}
    return module.text_key, function, tuple(sorted(values.items(), key=lambda one: str(one[0])))


def _module(name: KernelName) -> Module:
    return name.source if isinstance(name.source, Module) else parse(name.source)


def _signature(rule: FusionRule, name: KernelName, module: Module) -> Signature:
    if name.function not in module.kernels:
        known = ", ".join(module.kernels) or "none"
        raise KernelNotFound(f"fusion rule {rule.name!r}: its source has no kernel {name.function!r}; it has {known}")
    return module.kernels[name.function]


def _check_intermediate(rule: FusionRule, first: Signature, second: Signature) -> None:
    made, used = _argument(rule, first, rule.first.intermediate), _argument(rule, second, rule.second.intermediate)
    if made.access == "read" or rule.first.intermediate not in rule.first.overwrites:
        raise ArgumentError(
            f"fusion rule {rule.name!r}: {first.name!r} must overwrite its argument {made.index} {made.name!r};"
            " the rule's first half does not say so"
        )
    if (made.type, made.scalar, made.lanes) != (used.type, used.scalar, used.lanes):
        raise ArgumentError(
            f"fusion rule {rule.name!r}: {first.name!r} makes {made.type}, {second.name!r} takes {used.type}"
        )


def _check_arguments(rule: FusionRule, halves: Mapping[Side, Signature], fused: Signature) -> None:
    where = f"fusion rule {rule.name!r}, kernel {fused.name!r}"
    if set(rule.arguments) != {one.index for one in fused.arguments}:
        raise ArgumentError(f"{where}: the rule maps arguments {sorted(rule.arguments)}; it is {fused}")
    if set(rule.shared) != {one.index for one in fused.shared}:
        raise ArgumentError(f"{where}: the rule gives threadgroup arguments {sorted(rule.shared)}; it is {fused}")
    kept: set[tuple[Side, int]] = set()
    for one in fused.arguments:
        side, index = rule.arguments[one.index]
        given = _argument(rule, halves[side], index)
        if (one.type, one.scalar, one.lanes, one.kind) != (given.type, given.scalar, given.lanes, given.kind):
            raise ArgumentError(f"{where}: argument {one} cannot take the {side}'s {given}")
        if one.access != "read":
            if given.access == "read":
                raise ArgumentError(f"{where}: it writes argument {one}, which {halves[side].name!r} only reads")
            kept.add((side, index))
    for side, signature in halves.items():
        for one in signature.arguments:
            lost = one.access != "read" and (side, one.index) not in kept
            if lost and (side, one.index) != ("first", rule.first.intermediate):
                raise ArgumentError(f"{where}: it does not write what {signature.name!r} writes, argument {one}")


def _argument(rule: FusionRule, signature: Signature, index: int) -> Argument:
    for one in signature.arguments:
        if one.index == index:
            return one
    raise ArgumentError(f"fusion rule {rule.name!r}: {signature.name!r} has no argument {index}; it is {signature}")


# --- our own -----------------------------------------------------------------------------------------------------


@cache
def default_rules() -> tuple[FusionRule, ...]:
    """The rules that ship: RMS norm × multiply (from either side) and residual add + RMS norm, for each type."""
    ways: tuple[tuple[str, Covered], ...] = (("", _elements_covered), ("_fours", _fours_covered))
    return tuple(
        rule
        for ending in TYPES.values()
        for name, covered in ways
        for source in ("rms_norm", "rms_norm_plain")
        for rule in _rules_for(source, ending, f"{name}_{ending}", covered)
    )


def _rules_for(source: str, ending: str, way: str, covered: Covered) -> list[FusionRule]:
    """For the norms of one source, one type, and one way to go through the elements of an add or a multiply."""
    plain, rows = compiled.module("elementwise"), compiled.module(source)
    norm, times = KernelName(rows, f"rms_norm_{ending}"), KernelName(plain, f"mul{way}")
    found = [
        FusionRule(
            name="RMS norm × multiply",
            first=Half(norm, 2, _rows_covered, overwrites=(2,)),
            second=Half(times, intermediate, covered, overwrites=(2,)),
            fused=KernelName(rows, f"rms_norm_mul_{ending}"),
            arguments={
                0: ("first", 0),
                1: ("first", 1),
                2: ("second", 1 - intermediate),
                3: ("second", 2),
                4: ("first", 3),
                5: ("first", 4),
            },
            geometry="first",
            in_place=((3, 0), (3, 2)),
            op_kind=CapturedOpKind.RmsNorm,
        )
        for intermediate in (0, 1)
    ]
    found.append(
        FusionRule(
            name="add + RMS norm",
            first=Half(KernelName(plain, f"add{way}"), 2, covered, overwrites=(2,)),
            second=Half(norm, 0, _rows_covered, overwrites=(2,)),
            fused=KernelName(rows, f"add_rms_norm_{ending}"),
            arguments={
                0: ("first", 0),
                1: ("first", 1),
                2: ("second", 1),
                3: ("first", 2),
                4: ("second", 2),
                5: ("second", 3),
                6: ("second", 4),
            },
            geometry="second",
            in_place=((3, 0), (3, 1), (4, 0), (4, 1), (4, 3)),
            op_kind=CapturedOpKind.RmsNorm,
        )
    )
    return found


def _elements_covered(dispatch: Dispatch) -> int | None:
    """An element a thread, by the first axis of the grid."""
    if dispatch.threads[1:] != (1, 1):
        return None
    return dispatch.threads[0] * dispatch.kernel.argument_bytes[0]


def _fours_covered(dispatch: Dispatch) -> int | None:
    """Four elements a thread."""
    elements = _elements_covered(dispatch)
    return None if elements is None else 4 * elements


def _rows_covered(dispatch: Dispatch) -> int | None:
    """A row a group, by the first axis; its width is argument 3."""
    width = next(one for one in dispatch.bindings if one.index == 3)
    if dispatch.groups[1:] != (1, 1) or dispatch.group_size[1:] != (1, 1) or not isinstance(width, InlineBinding):
        return None
    return dispatch.groups[0] * int.from_bytes(width.data[:4], "little") * dispatch.kernel.argument_bytes[0]


def binding_range(dispatch: Dispatch, index: int) -> tuple[int, int] | None:
    """The addresses bound to an argument; None when it is an inline value."""
    for one in dispatch.bindings:
        if one.index == index:
            return (one.address, one.address + one.nbytes) if isinstance(one, BufferBinding) else None
    return None
