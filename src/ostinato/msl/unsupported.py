"""Parts of a source that use what is not supported (textures, ray tracing, vertex functions), left out of it.

A function that mentions such a thing is left out, and so is what mentions one that was left out: functions that call
it, its instances. The other kernels of the file compile. If none is left, or if something else than a function or a
variable mentions it (a struct with a texture in it), the source stays whole, and the check of its tokens refuses it.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import KernelCompileError
from .declarations import Function, Instantiation, Variable, parse_declarations
from .kernels import is_kernel
from .safety import UNSUPPORTED, unsupported_at
from .syntax import Syntax
from .tokens import STRING, Token

_Part = Function | Instantiation | Variable


def without_unsupported(syntax: Syntax) -> tuple[Syntax, Mapping[str, KernelCompileError]]:
    """What is left of a source, and for each kernel that was left out the reason."""
    everything: tuple[Syntax, Mapping[str, KernelCompileError]] = (syntax, {})
    if UNSUPPORTED.keys().isdisjoint(syntax.texts):
        return everything
    mentions = {index: refusal for index in range(syntax.count) if (refusal := unsupported_at(syntax, index))}
    try:
        declarations = parse_declarations(syntax)
    except KernelCompileError:
        return everything
    parts: list[_Part] = [*declarations.functions, *declarations.instantiations]
    parts += [variable for variable in declarations.variables if not variable.in_struct]
    left_out: dict[int, KernelCompileError] = {}
    for number, part in enumerate(parts):
        first = next((index for index in range(*_range_of(part)) if index in mentions), None)
        if first is not None:
            left_out[number] = mentions.pop(first)
            for index in range(*_range_of(part)):
                mentions.pop(index, None)
    if mentions:
        return everything
    _spread(syntax, parts, left_out)
    refused = {_kernel_name(syntax, parts[number]): error for number, error in left_out.items()}
    refused.pop("", None)
    rest = [part for number, part in enumerate(parts) if number not in left_out]
    if not any(isinstance(part, Function) and is_kernel(syntax, part) for part in rest):
        return everything
    kept: list[Token] = []
    at = 0
    for begin, end in sorted(_range_of(parts[number]) for number in left_out):
        kept += syntax.tokens[at:begin]
        at = max(at, end)
    return Syntax(kept + syntax.tokens[at : syntax.count]), refused


def _range_of(part: _Part) -> tuple[int, int]:
    headers = part.templates if isinstance(part, Function) else []
    return min([part.start, *(header.start for header in headers)]), part.end


def _spread(syntax: Syntax, parts: list[_Part], left_out: dict[int, KernelCompileError]) -> None:
    """Leave out what mentions a name of which nothing is left."""
    grown = True
    while grown:
        kept = {
            part.name
            for number, part in enumerate(parts)
            if number not in left_out and not isinstance(part, Instantiation)
        }
        gone = {parts[number].name: error for number, error in left_out.items() if parts[number].name not in kept}
        grown = False
        for number, part in enumerate(parts):
            if number not in left_out:
                used = next((at for at in range(*_range_of(part)) if _uses(syntax, at, gone)), None)
                if used is not None:
                    left_out[number] = gone[syntax.texts[used]]
                    grown = True


def _uses(syntax: Syntax, at: int, gone: Mapping[str, object]) -> bool:
    """Whether a name that is gone stands at ``at``, and not that of a variable with the same name."""
    return syntax.texts[at] in gone and syntax.texts[at + 1] in ("(", "<", ",", ")", ">")


def _kernel_name(syntax: Syntax, part: _Part) -> str:
    """The name by which a host asks for a kernel; nothing for other parts."""
    if isinstance(part, Variable) or (isinstance(part, Function) and not is_kernel(syntax, part)):
        return ""
    for attribute in part.attributes:
        if attribute.name == "host_name" and attribute.arguments and attribute.arguments[0].kind == STRING:
            return attribute.arguments[0].text.strip('"')
    return part.name
