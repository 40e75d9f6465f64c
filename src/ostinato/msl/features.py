"""The features of a GPU that a kernel needs, by the names of Metal's functions and types that its code reaches.

It goes by names, as `mentions.py` does: code in a branch that is never taken counts. A function that the source defines
under one of Metal's names does not count, unless the source also calls Metal's own as `metal::name`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from .declarations import Declarations, Function, TypeName, Variable
from .kernels import KernelInstance
from .mentions import Mentions
from .syntax import Syntax
from .tokens import Token

_MOVES = "broadcast(_first)?|is_first|shuffle(_rotate)?(_up|_down|_xor)?"
_REDUCES = "sum|product|min|max|and|or|xor|prefix_(in|ex)clusive_(sum|product)"
_FEATURES = {
    "SIMD-scoped permute functions": rf"simd_({_MOVES}|all|any|ballot|active_threads_mask)",
    "SIMD-scoped reduction functions": rf"simd_({_REDUCES})",
    "SIMD shift and fill": r"(simd|quad)_shuffle_and_fill_(up|down)",
    "SIMD-scoped matrix functions": r"simdgroup_(matrix|load|store|multiply(_accumulate)?|(float|half|bfloat)8x8)",
    "quad-scoped permute functions": rf"quad_({_MOVES}|all|any)",
    "quad-scoped ballots": r"quad_(ballot|active_threads_mask)",
    "quad-scoped reduction functions": rf"quad_({_REDUCES})",
    "floating-point atomics": r"_?atomic_float|atomic<float>",
    "64-bit atomics": r"_?atomic_u?long|atomic<(u?long|u?int64_t|size_t)>",
    "bfloat": r"(packed_)?bfloat[234]?|simdgroup_bfloat8x8",
    "tensors": r"tensor_inline|tensor_handle|cooperative_tensor",
    "shader logging": r"os_log(_default)?",
}
FEATURES = tuple(_FEATURES)
_PATTERNS = {feature: re.compile(pattern) for feature, pattern in _FEATURES.items()}
_TYPES = frozenset({"bfloat"})
"""Overloads and specialisations name these for kernels that never use them, so they count in the kernel itself only."""


@dataclass(frozen=True, slots=True)
class FeatureUse:
    """A feature that a kernel needs, and the first name in its code that needs it."""

    feature: str
    name: str
    token: Token


class FeatureUses:
    """What the code of one source needs."""

    def __init__(self, syntax: Syntax, declarations: Declarations, mentions: Mentions) -> None:
        self._syntax, self._mentions = syntax, mentions
        texts = syntax.texts
        metals = {texts[index + 2] for index in range(syntax.count) if texts[index : index + 2] == ["metal", "::"]}
        own = {function.name for function in declarations.functions} - metals
        named: list[Function | Variable | TypeName] = [
            *declarations.functions,
            *declarations.variables,
            *declarations.types,
        ]
        named.sort(key=lambda each: each.start)
        self._uses = [
            (index, use, next((each for each in named if each.start <= index < each.end), None))
            for index, use in self._named(own)
        ]
        """Each with its position and the outermost declaration around it."""

    def of(self, instance: KernelInstance) -> tuple[FeatureUse, ...]:
        """The features that a kernel needs, each at its first use; its own function comes before others."""
        function = instance.function
        reached = self._mentions.reached_from(instance)
        written = {*self._syntax.texts[function.start : function.end]}
        written.update(token.text for token in instance.template_arguments)
        inside, outside = [], []
        for token in instance.template_arguments:
            inside += [FeatureUse(feature, token.text, token) for feature in _needed_by(token.text)]
        for index, use, around in self._uses:
            if function.start <= index < function.end:
                inside.append(use)
            elif use.feature not in _TYPES:
                if around is None or around.name in reached:
                    outside.append(use)
            elif around is not None and around.name in written and self._is_alias(around.start):
                outside.append(use)
        first: dict[str, FeatureUse] = {}
        for use in (*inside, *outside):
            first.setdefault(use.feature, use)
        return tuple(first.values())

    def _is_alias(self, start: int) -> bool:
        return self._syntax.texts[start] in ("typedef", "using")

    def _named(self, hidden: Collection[str]) -> Iterator[tuple[int, FeatureUse]]:
        texts = self._syntax.texts
        for index in range(self._syntax.count):
            name = texts[index]
            if name in ("atomic", "_atomic") and texts[index + 1] == "<":
                name = f"atomic<{texts[index + 2]}>"
            if name not in hidden:
                for feature in _needed_by(name):
                    yield index, FeatureUse(feature, name, self._syntax.tokens[index])


def _needed_by(name: str) -> list[str]:
    return [feature for feature, pattern in _PATTERNS.items() if pattern.fullmatch(name)]
