"""Overloads that differ only in address space.

C++ has one address space, so ``f(device T *)`` and ``f(threadgroup T *)`` become the same function. Equal bodies with
equal defaults are merged into one. Otherwise the call chooses at run time, by the address of the pointer (threadgroup
memory and thread stacks have known addresses); device and constant cannot be told apart and are refused. So it chooses
between overloads that differ in the width of integers too, or of which one has more parameters, with defaults: Metal
tells these apart by the space of a pointer, and C++ finds them ambiguous.

Members without a body (declared, defaulted, deleted) are merged too. A constructor that sets something serves the
spaces whose constructor is defaulted, and what is deleted for one space goes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import UnsupportedFeature
from .declarations import Declarations, Function, Specialisation
from .reflect import INTEGERS, SCALAR_BYTES
from .rewriter import Rewriter
from .syntax import ADDRESS_SPACES, Syntax, ends_with_name

_PLACE = {"threadgroup": 1, "thread": 2, "device": 0, "constant": 0}
_INTEGER_BYTES = {" ".join(sorted(name.split())): SCALAR_BYTES[dtype] for name, dtype in INTEGERS.items()}
"""By the words of a type in alphabetical order."""
_QUALIFIERS = ADDRESS_SPACES | {"const"}


@dataclass(frozen=True, slots=True)
class FormalParameter:
    """A parameter of any function: its type without spaces and name, its address space, its name."""

    type: str
    space: str
    name: str
    reference: bool
    default: tuple[int, int] | None
    """The tokens of its default value, from the `=` on."""

    @property
    def integer_bytes(self) -> int:
        """The width of an integer that is passed by value, 0 for other types."""
        return _INTEGER_BYTES.get(" ".join(sorted(word for word in self.type.split() if word != "const")), 0)


def formal_parameters(syntax: Syntax, function: Function) -> list[FormalParameter]:
    """The parameters of a function, as far as overloads are concerned."""
    parameters = []
    for begin, end in syntax.split(function.opening + 1, function.closing):
        words: list[str] = []
        space = ""
        has_const = False
        index = begin
        while index < end and syntax.texts[index] != "=":
            if syntax.is_attribute(index):
                index = syntax.match[index] + 1
                continue
            text = syntax.texts[index]
            if text in ADDRESS_SPACES:
                space = space or text
                if text == "constant" and not has_const:
                    words.append("const")
                    has_const = True
            elif not (text == "const" and has_const):
                words.append(text)
                has_const = has_const or text == "const"
            index += 1
        name = ""
        brackets = len(words) - words.index("[") if "[" in words else 0
        at = len(words) - brackets - 1
        if at > 0 and (words[at][0].isalpha() or words[at][0] == "_") and ends_with_name(words[: at + 1]):
            name = words.pop(at)
            if words.count("[") == 1 and "&" not in words:
                words[at:] = ["*"]  # an array is passed by its address
        default = (index, end) if index < end else None
        parameters.append(FormalParameter(" ".join(sorted(words[:2]) + words[2:]), space, name, "&" in words, default))
    return parameters


def _erased_key(syntax: Syntax, function: Function, parameters: list[FormalParameter]) -> tuple[object, ...]:
    renamed: dict[str, str] = {}
    for header in function.templates:
        for parameter in header.parameters:
            renamed[parameter.name] = f"#{len(renamed)}"
    types = tuple(
        "integer"
        if parameter.integer_bytes
        else " ".join(renamed.get(word, word) for word in parameter.type.split(" "))
        for parameter in parameters
    )
    trailing_end = function.body[0] if function.body else function.end - 1
    constructor = function.in_struct and function.name == function.scope[-1]
    trailing = syntax.texts[function.closing : trailing_end]
    constness = not constructor and ("const" in trailing or "constant" in trailing)
    generics = tuple(parameter.kind for header in function.templates for parameter in header.parameters)
    explicit = tuple(syntax.texts[function.name_at + 1 : function.opening])
    qualified = syntax.texts[function.name_at - 1] == "::"
    owner = syntax.texts[function.name_at - 2] if qualified else ""  # the class of a member that is defined outside it
    return (function.scope, owner, function.name, explicit, generics, types, constness)


def _spaces(syntax: Syntax, function: Function, parameters: list[FormalParameter]) -> tuple[str, ...]:
    end = function.body[0] if function.body else function.end
    trailing = tuple(text for text in syntax.texts[function.closing : end] if text in ADDRESS_SPACES)
    return (*(parameter.space for parameter in parameters), *trailing)


def _erased_body(syntax: Syntax, function: Function) -> list[str]:
    """The tokens behind the parameters without address spaces; `constant` in a body leaves the `const` it implies."""
    opening, end = function.body if function.body is not None else (function.end, function.end)
    erased = [text for text in syntax.texts[function.closing + 1 : opening] if text not in _QUALIFIERS]
    is_const = False  # among the qualifiers right before
    for text in syntax.texts[opening:end]:
        if text not in _QUALIFIERS:
            erased.append(text)
            is_const = False
        elif text in ("const", "constant") and not is_const:
            erased.append("const")
            is_const = True
    return erased


def _groups(syntax: Syntax, declarations: Declarations) -> Iterator[list[tuple[Function, list[FormalParameter]]]]:
    by_key: dict[tuple[object, ...], list[tuple[Function, list[FormalParameter]]]] = {}
    for function, around in _inside(declarations.functions, declarations.specialisations):
        if function.body is not None or function.in_struct:
            parameters = formal_parameters(syntax, function)
            key = (around.start if around else 0, *_erased_key(syntax, function, parameters))
            by_key.setdefault(key, []).append((function, parameters))
    _join_with_defaults(syntax, by_key)
    for group in by_key.values():
        distinct = {_spaces(syntax, function, parameters) for function, parameters in group}
        widths = {tuple(parameter.integer_bytes for parameter in parameters) for _, parameters in group}
        if len(group) > 1 and len(distinct) == len(group) and (len(widths) == 1 or _telling(group) is not None):
            yield group


def _join_with_defaults(
    syntax: Syntax, by_key: dict[tuple[object, ...], list[tuple[Function, list[FormalParameter]]]]
) -> None:
    """Puts overloads that can be called with as many arguments into one group, if an address tells them apart."""
    for key, group in list(by_key.items()):
        if len(group) > 1:
            continue
        function, parameters = group[0]
        while parameters and parameters[-1].default is not None:
            parameters = parameters[:-1]
            shorter = by_key.get((key[0], *_erased_key(syntax, function, parameters)), [])
            if len(shorter) == 1 and _telling([*shorter, *group]) is not None:
                shorter += group
                del by_key[key]
                break


def merge_specialisations(syntax: Syntax, declarations: Declarations, rewriter: Rewriter) -> None:
    """Keeps one of several class specialisations that differ only in the address space of an argument."""
    seen: dict[tuple[object, ...], list[str]] = {}
    deleted: list[Specialisation] = []
    for specialisation in declarations.specialisations:
        erased = [
            text for text in syntax.texts[slice(*specialisation.arguments)] if text not in ADDRESS_SPACES - {"constant"}
        ]
        body = [text for text in syntax.texts[slice(*specialisation.body)] if text not in ADDRESS_SPACES]
        key = (
            specialisation.scope,
            specialisation.name,
            tuple("const" if text == "constant" else text for text in erased),
        )
        if seen.setdefault(key, body) is body:
            continue
        if seen[key] != body:
            token = syntax.tokens[specialisation.start]
            raise UnsupportedFeature(
                f"specialisations of {specialisation.name!r} differ only in address space, but not in meaning;"
                " rename one",
                file=token.file,
                line=token.line,
            )
        rewriter.delete(specialisation.start, specialisation.end)
        deleted.append(specialisation)
    inside = _inside(declarations.functions, deleted)
    declarations.functions = [function for function, around in inside if around is None]


def _inside(
    functions: list[Function], specialisations: list[Specialisation]
) -> Iterator[tuple[Function, Specialisation | None]]:
    """Each function with the outermost specialisation that contains it, if any."""
    outermost: list[Specialisation] = []
    for specialisation in sorted(specialisations, key=lambda specialisation: specialisation.start):
        if not outermost or specialisation.start >= outermost[-1].end:
            outermost.append(specialisation)
    starts = [specialisation.start for specialisation in outermost]
    for function in functions:
        at = bisect_right(starts, function.start) - 1
        yield function, outermost[at] if at >= 0 and function.start < outermost[at].end else None


def mutators(syntax: Syntax, declarations: Declarations) -> frozenset[str]:
    """Functions that may change an argument, MSL's own included."""
    names = {
        function.name
        for function in declarations.functions
        if any(
            parameter.reference and "const" not in parameter.type.split()
            for parameter in formal_parameters(syntax, function)
        )
    }
    return frozenset(names | {"sincos", "modf", "frexp"})


def told_apart_by_place(syntax: Syntax, declarations: Declarations) -> frozenset[str]:
    """Functions whose overloads differ in address space and meaning: their calls need the worker."""
    return frozenset(group[0][0].name for group in _groups(syntax, declarations) if len(_meanings(syntax, group)) > 1)


def _meanings(
    syntax: Syntax, group: list[tuple[Function, list[FormalParameter]]]
) -> list[tuple[Function, list[FormalParameter]]]:
    """One overload for each body of a group, with other widths of its integers, and with other defaults."""
    by_body = {_meaning(syntax, *overload): overload for overload in group[::-1]}
    for implied in ("delete", "default"):
        if len(by_body) > 1:
            by_body = {body: overload for body, overload in by_body.items() if body[-3:-1] != ("=", implied)}
    return list(by_body.values())[::-1]


def _meaning(syntax: Syntax, function: Function, parameters: list[FormalParameter]) -> tuple[object, ...]:
    widths = tuple(parameter.integer_bytes for parameter in parameters)
    defaults = tuple(tuple(syntax.texts[slice(*each.default)]) if each.default else () for each in parameters)
    return (widths, defaults, *_erased_body(syntax, function))


def merge_overloads(syntax: Syntax, declarations: Declarations, rewriter: Rewriter) -> None:
    """Merges overloads with equal bodies, and tags the others."""
    merge_specialisations(syntax, declarations, rewriter)
    merged: set[int] = set()
    for group in _groups(syntax, declarations):
        kept = _meanings(syntax, group)
        remaining = {function.name_at for function, _ in kept}
        for function, _ in group:
            if function.name_at not in remaining:
                rewriter.delete(function.start, function.end)
                merged.add(function.name_at)
        if len(kept) > 1:
            _tag(syntax, rewriter, kept)
    declarations.functions = [function for function in declarations.functions if function.name_at not in merged]


def _telling(group: list[tuple[Function, list[FormalParameter]]]) -> int | None:
    """The parameter whose address tells which overload of a group is called."""
    for position in range(min(len(parameters) for _, parameters in group)):
        if len({_place(parameters[position]) for _, parameters in group}) == len(group):
            return position
    return None


def _tag(syntax: Syntax, rewriter: Rewriter, group: list[tuple[Function, list[FormalParameter]]]) -> None:
    """Gives each overload a name of its own, and writes functions of the common name that choose among them.

    There is one for each number of arguments, so that every overload has its own defaults.
    """
    longest, parameters = max(group, key=lambda overload: len(overload[1]))
    token = syntax.tokens[longest.name_at]
    position = _telling(group)
    if position is None or longest.special or any(not each.name and {"(", "["} & {*each.type} for each in parameters):
        lines = ", ".join(str(syntax.tokens[function.name_at].line) for function, _ in group)
        raise UnsupportedFeature(
            f"overloads of {longest.name!r} (lines {lines}) differ only in address space, and the addresses cannot "
            "tell them apart; rename one",
            file=token.file,
            line=token.line,
        )
    body = longest.body[0] if longest.body is not None else longest.end - 1
    heading = rewriter.inline(longest.start, longest.name_at)
    trailing = rewriter.inline(longest.closing + 1, body)
    tokens = syntax.split(longest.opening + 1, longest.closing)
    names = [parameter.name or f"__ost_{at}" for at, parameter in enumerate(parameters)]
    probed = parameters[position]
    address = f"&{names[position]}" if probed.reference else names[position]
    place = f"const int __ost_place = __ost::place_of((const void *)({address}));"
    choosing, declaring = [], []
    for count in range(min(_required(others) for _, others in group), len(parameters) + 1):
        takers = [(function, others) for function, others in group if _required(others) <= count <= len(others)]
        if not takers or (len(takers) > 1 and position >= count):
            continue  # no call has so few arguments
        listed = ", ".join(
            _widest_parameter(rewriter, parameters[at], names[at], [others[at] for _, others in takers], tokens[at])
            for at in range(count)
        )
        passed = ", ".join(names[:count])
        # Highest place first: the last is for what lies nowhere else.
        takers.sort(key=lambda overload: -_place(overload[1][position]))
        calls = [f"return {_tagged(function, others[position])}({passed});" for function, others in takers]
        for at, (_, others) in enumerate(takers[:-1]):
            calls[at] = f"if (__ost_place == {_place(others[position])}) {calls[at]}"
        declared = f"{heading} {longest.name}({listed}) {trailing}"
        choosing.append(f"{declared} {{ {place if len(calls) > 1 else ''} {' '.join(calls)} }}")
        declaring.append(f"{declared};")
    for function, others in group:
        rewriter.replace(function.name_at, _tagged(function, others[position]))
    rewriter.after(max(function.end for function, _ in group) - 1, " ".join(choosing))
    defaulted = any(parameter.default for header in longest.templates for parameter in header.parameters)
    if not longest.in_struct and not defaulted:
        # What stands between the overloads, and each of them, may call the others.
        rewriter.lead(min(function.start for function, _ in group), " ".join(declaring))


def _required(parameters: list[FormalParameter]) -> int:
    """How many arguments a call must have."""
    return sum(parameter.default is None for parameter in parameters)


def _place(parameter: FormalParameter) -> int:
    return _PLACE.get(parameter.space, 0)


def _tagged(function: Function, told_by: FormalParameter) -> str:
    return f"__ost_place{_place(told_by)}_{function.name}"


def _widest_parameter(
    rewriter: Rewriter,
    parameter: FormalParameter,
    name: str,
    alternatives: list[FormalParameter],
    tokens: tuple[int, int],
) -> str:
    """A parameter ``name`` of which every overload can take the value, without a default."""
    widest = max(alternatives, key=lambda other: other.integer_bytes)
    if widest.integer_bytes != parameter.integer_bytes:
        return f"{widest.type} {name}"
    begin, end = tokens
    declared = rewriter.inline(begin, parameter.default[0] if parameter.default else end)
    return declared if parameter.name else f"{declared} {name}"
