"""Fusion rules: two kernels, and the fused kernel that does the work of both.

A rule is plain data, and users can write their own: `fuse(rules=[*default_rules(), mine])`. It promises what a
signature does not show: which bytes a kernel covers, which of its arguments it overwrites without reading them, which
may be the same memory. `fuse` proves everything else for each pair of dispatches before it replaces them.
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
from ..ops.checks import FOURS, TYPES

Side = Literal["first", "second"]
Covered = Callable[[Dispatch], int | None]


@dataclass(frozen=True, slots=True)
class KernelName:
    """A kernel: a function of a source text, file or parsed module, specialised with these function constants.

    Sources are compared after preprocessing, so comments, layout and the file's name do not matter.
    """

    source: str | Path | Module
    function: str
    constants: Mapping[int | str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.function


@dataclass(frozen=True, slots=True)
class FusedSide:
    """One of the two kernels that a rule fuses: the first writes the intermediate, the second reads it."""

    kernel: KernelName
    intermediate: int
    """Buffer index of the intermediate, which the first writes and the second reads."""
    covers: Covered
    """How many bytes of the intermediate, from its start, a dispatch writes or reads: all of these, and none beyond.
    None when the dispatch does not determine that."""
    overwrites: tuple[int, ...] = ()
    """Buffer indices of which it writes that many bytes and reads none. The first must overwrite the intermediate."""


class Geometry(NamedTuple):
    """The size of a dispatch, as an encoder takes it."""

    threads: Extent | None = None
    groups: Extent | None = None
    group_size: Extent | None = None


@dataclass(frozen=True, slots=True)
class FusionRule:
    """Two kernels, of which the second uses what the first wrote, and the kernel that replaces both."""

    name: str
    first: FusedSide
    second: FusedSide
    fused: KernelName
    arguments: Mapping[int, tuple[Side, int]]
    """For each buffer index of the fused kernel, the side and index of the argument that it takes. Name the first's
    intermediate here if the fused kernel writes it too; then other nodes may still read it."""
    geometry: Side | Callable[[Dispatch, Dispatch], Geometry]
    """The side whose size the fused dispatch takes, or a function of both dispatches that returns the size."""
    equal: tuple[tuple[int, int], ...] = ()
    """Pairs (index of the first, index of the second) of arguments that must be equal, such as counts."""
    in_place: tuple[tuple[int, int], ...] = ()
    """Pairs of arguments of the fused kernel, at least one of them written, that may be exactly the same memory."""
    shared: Mapping[int, tuple[Side, int]] = field(default_factory=dict)
    """For each threadgroup argument of the fused kernel, the side and index of the argument whose size it takes."""
    op_kind: CapturedOpKind = CapturedOpKind.Other
    check: Callable[[Dispatch, Dispatch], str | None] | None = None
    """An additional condition: returns the reason to refuse these two dispatches, or None."""

    def __str__(self) -> str:
        return self.name


# --- rules as the pass uses them ---------------------------------------------------------------------------------

KernelKey = tuple[bytes, str, tuple[tuple[int | str, Any], ...]]


@dataclass(frozen=True, slots=True, eq=False)
class ResolvedRule:
    """A rule with its sources parsed and checked."""

    rule: FusionRule
    first: KernelKey
    second: KernelKey
    fused: Module


def resolved(rule: FusionRule) -> ResolvedRule:
    """The rule with its sources parsed; an error when its kernels do not fit together."""
    if not isinstance(rule, FusionRule):
        raise ArgumentError(f"fuse: a rule is a FusionRule, not {rule!r}")
    modules = [_module(name) for name in (rule.first.kernel, rule.second.kernel, rule.fused)]
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
    """The identity of a kernel: its preprocessed text, function and constants."""
    indices = {constant.name: constant.index for constant in module.constants}
    values = {indices.get(key, key) if isinstance(key, str) else key: value for key, value in constants.items()}
    return module.text_key, function, tuple(sorted(values.items(), key=lambda item: str(item[0])))


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
            " name it in `overwrites` of the rule's first side"
        )
    if (made.type, made.scalar, made.lanes) != (used.type, used.scalar, used.lanes):
        raise ArgumentError(
            f"fusion rule {rule.name!r}: {first.name!r} makes {made.type}, {second.name!r} takes {used.type}"
        )


def _check_arguments(rule: FusionRule, signatures: Mapping[Side, Signature], fused: Signature) -> None:
    where = f"fusion rule {rule.name!r}, kernel {fused.name!r}"
    if set(rule.arguments) != {argument.index for argument in fused.arguments}:
        raise ArgumentError(f"{where}: the rule maps arguments {sorted(rule.arguments)}; it is {fused}")
    if set(rule.shared) != {argument.index for argument in fused.shared}:
        raise ArgumentError(f"{where}: the rule gives threadgroup arguments {sorted(rule.shared)}; it is {fused}")
    kept: set[tuple[Side, int]] = set()
    for argument in fused.arguments:
        side, index = rule.arguments[argument.index]
        source = _argument(rule, signatures[side], index)
        if _shape(argument) != _shape(source):
            raise ArgumentError(f"{where}: argument {argument} cannot take the {side}'s {source}")
        if argument.access != "read":
            if source.access == "read":
                reader = signatures[side].name
                raise ArgumentError(f"{where}: it writes argument {argument}, which {reader!r} only reads")
            kept.add((side, index))
    for side, signature in signatures.items():
        for argument in signature.arguments:
            lost = argument.access != "read" and (side, argument.index) not in kept
            if lost and (side, argument.index) != ("first", rule.first.intermediate):
                raise ArgumentError(f"{where}: it does not write what {signature.name!r} writes, argument {argument}")


def _shape(argument: Argument) -> tuple[object, ...]:
    return argument.type, argument.scalar, argument.lanes, argument.kind


def _argument(rule: FusionRule, signature: Signature, index: int) -> Argument:
    for argument in signature.arguments:
        if argument.index == index:
            return argument
    raise ArgumentError(f"fusion rule {rule.name!r}: {signature.name!r} has no argument {index}; it is {signature}")


# --- default rules -----------------------------------------------------------------------------------------------


@cache
def default_rules() -> tuple[FusionRule, ...]:
    """The built-in rules: RMS norm × multiply (either operand) and residual add + RMS norm, for each type."""
    kernels: tuple[tuple[str, str, Covered], ...] = (
        ("rms_norm_plain", "", _elements_covered),
        ("rms_norm", "", _elements_covered),
        ("rms_norm", FOURS, _fours_covered),
    )
    return tuple(
        rule
        for ending in TYPES.values()
        for source, way, covered in kernels
        for rule in _rules_for(source, f"{way}_{ending}", covered)
    )


def _rules_for(source: str, way: str, covered: Covered) -> list[FusionRule]:
    """The rules for the norms of one source, in one kernel variant and type (`way`)."""
    plain, rows = compiled.module("elementwise"), compiled.module(source)
    norm, times = KernelName(rows, f"rms_norm{way}"), KernelName(plain, f"mul{way}")
    rules = [
        FusionRule(
            name="RMS norm × multiply",
            first=FusedSide(norm, 2, _rows_covered, overwrites=(2,)),
            second=FusedSide(times, intermediate, covered, overwrites=(2,)),
            fused=KernelName(rows, f"rms_norm_mul{way}"),
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
    rules.append(
        FusionRule(
            name="add + RMS norm",
            first=FusedSide(KernelName(plain, f"add{way}"), 2, covered, overwrites=(2,)),
            second=FusedSide(norm, 0, _rows_covered, overwrites=(2,)),
            fused=KernelName(rows, f"add_rms_norm{way}"),
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
    return rules


def _elements_covered(dispatch: Dispatch) -> int | None:
    """One element per thread, along the first axis of the grid."""
    if dispatch.threads[1:] != (1, 1):
        return None
    return dispatch.threads[0] * dispatch.kernel.argument_bytes[0]


def _fours_covered(dispatch: Dispatch) -> int | None:
    """Four elements per thread."""
    elements = _elements_covered(dispatch)
    return None if elements is None else 4 * elements


def _rows_covered(dispatch: Dispatch) -> int | None:
    """One row per group, along the first axis; its width is argument 3."""
    width = next(binding for binding in dispatch.bindings if binding.index == 3)
    if dispatch.groups[1:] != (1, 1) or dispatch.group_size[1:] != (1, 1) or not isinstance(width, InlineBinding):
        return None
    return dispatch.groups[0] * int.from_bytes(width.data[:4], "little") * dispatch.kernel.argument_bytes[0]


def binding_range(dispatch: Dispatch, index: int) -> tuple[int, int] | None:
    """The addresses bound to an argument; None when it is an inline value."""
    for binding in dispatch.bindings:
        if binding.index == index:
            return (binding.address, binding.address + binding.nbytes) if isinstance(binding, BufferBinding) else None
    return None
