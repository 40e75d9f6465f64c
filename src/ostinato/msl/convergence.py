"""Which functions are convergent: threads meet (synchronise or exchange values) in them.

A convergent function is a barrier, a simdgroup or quad function, or a user function that may reach one. Kernels that
reach none run as plain loops on the CPU; the others are split at their barriers, or run as vectors or fibers. The
analysis goes by names, without overload resolution, so it is conservative: it may call a function convergent that is
not, never the reverse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from . import tensors
from .declarations import Declarations
from .kernels import is_kernel
from .reflect import SCALARS
from .syntax import Syntax
from .tokens import IDENTIFIER, Token

_PUBLIC = frozenset(
    """threadgroup_barrier simdgroup_barrier simdgroup_multiply simdgroup_multiply_accumulate simd_sum
    simd_product simd_min simd_max simd_and simd_or simd_xor simd_prefix_inclusive_sum
    simd_prefix_exclusive_sum simd_prefix_inclusive_product simd_prefix_exclusive_product simd_shuffle
    simd_shuffle_up simd_shuffle_down simd_shuffle_xor simd_shuffle_rotate_up simd_shuffle_rotate_down
    simd_shuffle_and_fill_up simd_shuffle_and_fill_down simd_broadcast simd_broadcast_first simd_ballot
    simd_all simd_any simd_is_first simd_is_helper_thread simd_active_threads_mask quad_sum quad_product
    quad_min quad_max quad_and quad_or quad_xor quad_prefix_inclusive_sum quad_prefix_exclusive_sum
    quad_prefix_inclusive_product quad_prefix_exclusive_product quad_shuffle quad_shuffle_up
    quad_shuffle_down quad_shuffle_xor quad_shuffle_rotate_up quad_shuffle_rotate_down
    quad_shuffle_and_fill_up quad_shuffle_and_fill_down quad_broadcast quad_broadcast_first quad_ballot
    quad_all quad_any quad_is_first quad_is_helper_thread quad_active_threads_mask""".split()
)
_INTERNAL = frozenset({"__metal_simdgroup_matrix_8x8_multiply_accumulate", "__metal_wait_simdgroup_events"})
BUILTINS = _PUBLIC | {f"__metal_{name}" for name in _PUBLIC} | _INTERNAL
"""MSL's own convergent functions; in the shim each takes the site of its call as first argument.

Shaders that overload them for types of their own call Apple's internal spelling, `__metal_simd_sum` and so on."""


LANE_AWARE = frozenset(
    """simdgroup_load simdgroup_store simdgroup_matrix simdgroup_float8x8 simdgroup_half8x8 simdgroup_bfloat8x8
    make_filled_simdgroup_matrix make_diagonal_simdgroup_matrix thread_elements
    __metal_get_thread_index_in_simdgroup __metal_simdgroup_async_copy_1d __metal_simdgroup_async_copy_2d
    atomic_thread_fence""".split()
)
"""Functions in which lanes do not meet, but which depend on the lane, which only a fiber knows."""

NEVER_OBJECTS = frozenset("if for while switch return sizeof alignof decltype static_assert".split()) | SCALARS.keys()
"""Names before a parenthesis that are never an object being called."""


class Convergence:
    """The convergent names of one source.

    ``names`` are all of them. ``meeting`` are those in which lanes of a simdgroup meet, and for which the path of a
    lane matters; a threadgroup barrier is for all threads, whatever their path. ``atomic`` are functions that change
    memory by atomic operations, and the operations themselves.
    """

    def __init__(self, syntax: Syntax, declarations: Declarations, lane_aware: frozenset[str] = frozenset()) -> None:
        callers: dict[str, set[str]] = {}
        specials: set[str] = set()
        called: set[str] = set()
        for function in declarations.functions:
            if function.body is None:
                continue
            callable_ = not is_kernel(syntax, function)
            for index in range(function.closing, function.body[1]):
                token = syntax.tokens[index]
                if token.kind == IDENTIFIER:
                    if callable_:
                        callers.setdefault(token.text, set()).add(function.name)
                    if syntax.texts[index + 1] == "(":
                        called.add(token.text)
            if function.special:
                specials.add(function.name)
        aware = LANE_AWARE | lane_aware
        meeting = BUILTINS
        if tensors.uses_tensors(syntax):
            aware |= tensors.LANE_AWARE
            meeting |= tensors.MEETING
        seeds = meeting | aware
        if "operator()" in closure(seeds, callers):
            # Whatever is called and is not a function of this source may be an object with that operator.
            known = {function.name for function in declarations.functions} | declarations.structs
            seeds |= called - known - declarations.aliases.keys() - NEVER_OBJECTS
        self.names = closure(seeds, callers)
        self._barring = closure(frozenset({"threadgroup_barrier", "__metal_threadgroup_barrier"}), callers)
        self.meeting = closure(seeds - aware - {"threadgroup_barrier"}, callers)
        self.atomic = closure(frozenset(name for name in callers if name.startswith("atomic_")), callers)
        self.hidden_calls = bool(specials & self.names)
        """Whether an operator, constructor or destructor is convergent: such calls do not show its name."""

    def reached_from(self, tokens: Sequence[Token]) -> bool:
        """Whether code with these tokens may call a convergent function."""
        return self.hidden_calls or any(token.kind == IDENTIFIER and token.text in self.names for token in tokens)

    def reaches_barrier(self, tokens: Sequence[Token]) -> bool:
        """Whether code with these tokens may reach a threadgroup barrier."""
        return self.hidden_calls or any(token.kind == IDENTIFIER and token.text in self._barring for token in tokens)


def closure(seeds: frozenset[str], callers: Mapping[str, set[str]]) -> frozenset[str]:
    """The names that reach a seed."""
    reached = set(seeds)
    queue = list(seeds)
    while queue:
        fresh = callers.get(queue.pop(), set()) - reached
        reached |= fresh
        queue.extend(fresh)
    return frozenset(reached)
