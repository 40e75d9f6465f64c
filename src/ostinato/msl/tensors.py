"""Metal 4 tensors and simdgroup matrices in a source: whether it uses them, and what of them is refused."""

from __future__ import annotations

from ..errors import UnsupportedFeature
from .syntax import Syntax
from .tokens import fail

_WORDS = frozenset("tensor_inline tensor_handle tensor_offset dextents cooperative_tensor tensor_ops".split())
"""Every source that uses tensors has one of these, whichever names it shortens."""

_MATRICES = frozenset(
    "simdgroup_matrix simdgroup_float8x8 simdgroup_half8x8 simdgroup_bfloat8x8"
    " __metal_simdgroup_matrix_8x8_multiply_accumulate".split()
)
"""Every source that uses simdgroup matrices has one of these."""

MEETING = frozenset({"run"})
"""Functions of tensor operations in which lanes meet."""

LANE_AWARE = frozenset("matmul2d cooperative_tensor".split())
"""Names behind which data is spread over the lanes."""

_BOUND_BY_HOST = "tensors that the host binds (tensor_handle) are not supported; pass a buffer and make a tensor_inline"


def uses_tensors(syntax: Syntax) -> bool:
    """Whether a source needs the shim's tensors."""
    return not _WORDS.isdisjoint(syntax.texts)


def uses_matrices(syntax: Syntax) -> bool:
    """Whether a source has simdgroup matrices."""
    return not _MATRICES.isdisjoint(syntax.texts)


def refuse_handles(syntax: Syntax) -> None:
    """Raises at the first tensor type that is not one a kernel makes over memory it has."""
    if not uses_tensors(syntax):
        return
    for index, text in enumerate(syntax.texts):
        if text in ("tensor_handle", "tensor_offset") or (text == "tensor" and _names_no_inline(syntax, index)):
            raise fail(_BOUND_BY_HOST, syntax.tokens[index], UnsupportedFeature)


def _names_no_inline(syntax: Syntax, index: int) -> bool:
    """Whether the name at ``index`` has template arguments without ``tensor_inline``."""
    if syntax.texts[index + 1 : index + 2] != ["<"]:
        return False
    closing = syntax.angle_end(index + 1)
    return closing is not None and "tensor_inline" not in syntax.texts[index:closing]
