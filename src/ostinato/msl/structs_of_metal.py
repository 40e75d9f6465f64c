"""The structs that Metal's library declares for commands that kernels write: the arguments of indirect dispatches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from .tokens import Token, lex_line

_STRUCTS = {
    "MTLDispatchThreadgroupsIndirectArguments": "uint threadgroupsPerGrid[3];",
    "MTLDrawPrimitivesIndirectArguments": "uint vertexCount; uint instanceCount; uint vertexStart; uint baseInstance;",
    "MTLDrawIndexedPrimitivesIndirectArguments": "uint indexCount; uint instanceCount; uint indexStart; "
    "int baseVertex; uint baseInstance;",
    "MTLDrawPatchIndirectArguments": "uint patchCount; uint instanceCount; uint patchStart; uint baseInstance;",
    "MTLQuadTessellationFactorsHalf": "half edgeTessellationFactor[4]; half insideTessellationFactor[2];",
    "MTLTriangleTessellationFactorsHalf": "half edgeTessellationFactor[3]; half insideTessellationFactor;",
}


def with_structs_of_metal(tokens: Sequence[Token]) -> list[Token]:
    """The tokens of a source, behind the structs of Metal's library that it uses and does not declare itself."""
    used = {token.text for token in tokens if token.text in _STRUCTS}
    missing = used and used - set(_declared(tokens))
    return [*(token for name in sorted(missing) for token in _struct(name)), *tokens]


def _declared(tokens: Sequence[Token]) -> Iterator[str]:
    """The names of Metal's structs that a source declares: ``struct name {``, ``} name;``, ``using name =``."""
    for index in range(1, len(tokens) - 1):
        before, after = tokens[index - 1].text, tokens[index + 1].text
        declares = before == "}" or (before in ("struct", "using") and after in ("{", "="))
        if declares and tokens[index].text in _STRUCTS:
            yield tokens[index].text


@cache
def _struct(name: str) -> list[Token]:
    return lex_line(f"struct {name} {{ {_STRUCTS[name]} }};", "<metal_stdlib>", 1)
