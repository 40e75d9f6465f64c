"""Overloads that differ only in address space.

C++ has one address space, so ``f(device T *)`` and ``f(threadgroup T *)`` become the same function. Equal bodies with
equal defaults are merged into one. Others get names of their own. A call whose argument, as the source says, lies in
one space (`written_places`) calls that overload. Elsewhere the call chooses at run time, by the address of the pointer
(threadgroup memory and thread stacks have known addresses); device and constant cannot be told apart and are refused.
So it chooses between overloads that differ in the width of integers too, or of which one has more parameters, with
defaults: Metal tells these apart by the space of a pointer, and C++ finds them ambiguous.

Members are told apart by the address of their object, too. One that only calls that for a thread's own objects with a
copy (`copying_overloads`) is that one. Constructors get a hidden first argument instead of a name.

Members without a body (declared, defaulted, deleted) are merged too. A constructor that sets something serves the
spaces whose constructor is defaulted, and what is deleted for one space goes.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..errors import UnsupportedFeature
from .convergent_calls import find_calls
from .copying_overloads import calls_with_copy, copied_members
from .declarations import Declarations, Function, Specialisation
from .reflect import INTEGERS, SCALAR_BYTES
from .rewriter import Rewriter
from .syntax import ADDRESS_SPACES, Syntax, ends_with_name
from .tokens import IDENTIFIER
from .written_places import WrittenPlaces

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
        if len(group) > 1 and len(distinct) == len(group) and (len(widths) == 1 or _telling(syntax, group) is not None):
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
            if shorter and _telling(syntax, [*shorter, *group]) is not None:
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


THIS = -1
"""The position of the object that a member function is called on."""
Overload = tuple[Function, list[FormalParameter]]


@dataclass(frozen=True, slots=True)
class Choice:
    """How calls of a group of overloads find the one that is meant."""

    kept: list[Overload]
    """One overload for each meaning."""
    positions: tuple[int, ...] | None
    """The parameters whose places tell which one is meant, `THIS` among them; None if they cannot."""
    serving: dict[tuple[int, ...], Overload]
    """The overload for arguments in these places."""


def _choice(syntax: Syntax, declarations: Declarations, group: list[Overload]) -> Choice:
    by_meaning = {_meaning(syntax, *overload): overload for overload in group[::-1]}
    for implied in ("delete", "default"):
        if len(by_meaning) > 1:
            by_meaning = {meaning: each for meaning, each in by_meaning.items() if meaning[-3:-1] != ("=", implied)}
    kept = list(by_meaning.values())[::-1]
    count = min(len(parameters) for _, parameters in group)
    candidates = [THIS] * group[0][0].in_struct + [*range(count)]
    differing = [at for at in candidates if len({_place(syntax, *overload, at) for overload in group}) > 1]
    choice = Choice(kept, None, {})
    for positions in [*((at,) for at in differing), tuple(differing)]:
        serving: dict[tuple[int, ...], Overload] = {}
        for overload in group:
            meant = by_meaning.get(_meaning(syntax, *overload))
            places = tuple(_place(syntax, *overload, at) for at in positions)
            if meant is not None and serving.setdefault(places, meant) is not meant:
                break
        else:
            choice = Choice(kept, positions, serving)
            break
    if len(kept) > 1 and choice.positions is not None and len(choice.positions) == 1:
        return _without_copying(syntax, declarations, choice, choice.positions[0])
    return choice


def _without_copying(syntax: Syntax, declarations: Declarations, choice: Choice, position: int) -> Choice:
    """Overloads that only call the one for `thread` with a copy are that one, as it does not change its object."""
    own = choice.serving.get((_PLACE["thread"],))
    if own is None:
        return choice
    copying = {
        each[0].name_at for each in choice.kept if each is not own and _copies(syntax, declarations, *each, position)
    }
    if not copying:
        return choice
    kept = [each for each in choice.kept if each[0].name_at not in copying]
    serving = {places: own if each[0].name_at in copying else each for places, each in choice.serving.items()}
    return Choice(kept, choice.positions, serving)


def _copies(
    syntax: Syntax, declarations: Declarations, function: Function, parameters: list[FormalParameter], position: int
) -> bool:
    if position != THIS and not (parameters[position].reference and "const" in parameters[position].type.split()):
        return False
    names = [parameter.name for parameter in parameters]
    return calls_with_copy(syntax, declarations, function, names, None if position == THIS else position)


def told_apart_by_place(syntax: Syntax, declarations: Declarations) -> frozenset[str]:
    """Functions of which calls choose an overload at run time: these need the worker."""
    choices = _choices(syntax, declarations)
    settled = _settled(syntax, declarations, choices)
    return frozenset(name for name in map(_name, choices) if name not in settled.names)


def _choices(syntax: Syntax, declarations: Declarations) -> list[Choice]:
    """Those of all groups whose overloads differ in meaning."""
    choices = (_choice(syntax, declarations, group) for group in _groups(syntax, declarations))
    return [choice for choice in choices if len(choice.kept) > 1]


def _name(choice: Choice) -> str:
    return choice.kept[0][0].name


@dataclass(frozen=True, slots=True)
class _Settled:
    """Calls whose overload the source tells."""

    calls: dict[int, str]
    """What the call at each position calls."""
    names: frozenset[str]
    """Functions all of whose mentions are such calls."""


def _settled(syntax: Syntax, declarations: Declarations, choices: list[Choice]) -> _Settled:
    by_name: dict[str, list[Choice]] = {}
    for choice in choices:
        by_name.setdefault(_name(choice), []).append(choice)
    apart = {function.name_at for choice in choices for function, _ in choice.serving.values()}
    merged: set[int] = set()
    for group in _groups(syntax, declarations):
        if group[0][0].name in by_name and {function.name_at for function, _ in group} & apart:
            merged |= {function.name_at for function, _ in group}
    own = {function.name for function in declarations.functions if function.name_at not in merged}
    types = declarations.structs | declarations.aliases.keys()
    names = {
        name
        for name, listed in by_name.items()
        if name not in own | types | _names_of_shim()
        and not name.startswith(("simd_", "quad_", "atomic_"))
        and all(choice.positions is not None for choice in listed)
        and not any(function.special for choice in listed for function, _ in choice.kept)
    }
    if not names:
        return _Settled({}, frozenset())
    openings = find_calls(syntax, declarations, names).openings
    bodies = sorted((each for each in declarations.functions if each.body is not None), key=lambda each: each.start)
    starts = [function.start for function in bodies]
    places = WrittenPlaces(syntax, declarations)
    calls: dict[int, str] = {}
    for index, opening in openings.items():
        caller = bodies[bisect_right(starts, index) - 1]
        arguments = syntax.split(opening + 1, syntax.match[opening])
        called = {_called(syntax, choice, places, caller, index, arguments) for choice in by_name[syntax.texts[index]]}
        tag = called.pop() if len(called) == 1 else ""
        if tag:
            calls[index] = tag
    declared = {function.name_at for function in declarations.functions}
    mentioned = {
        token.text
        for index, token in enumerate(syntax.tokens)
        if token.text in names and index not in calls and index not in declared
    }
    return _Settled(calls, frozenset(names - mentioned))


def _called(
    syntax: Syntax,
    choice: Choice,
    places: WrittenPlaces,
    caller: Function,
    index: int,
    arguments: list[tuple[int, int]],
) -> str:
    """The name of the overload that a call means; empty if the source does not say where its arguments lie."""
    found = []
    for position in choice.positions or ():
        if position == THIS:
            found.append(_PLACE.get(_object_space(syntax, places, caller, index), -1))
            continue
        if position >= len(arguments):
            return ""
        overloads = [parameters[position] for _, parameters in choice.kept]
        if overloads[0].reference:
            converted = any("const" in each.type.split() for each in overloads)
            words = " ".join(word for word in overloads[0].type.split() if word not in ("const", "&"))
            space = places.referred(caller, *arguments[position], words if converted else "")
        else:
            space = places.pointee(caller, *arguments[position])
        if not space:
            return ""
        found.append(_PLACE.get(space, 0))
    meant = choice.serving.get(tuple(found))
    return _tagged(syntax, meant, choice) if meant is not None else ""


def _object_space(syntax: Syntax, places: WrittenPlaces, caller: Function, index: int) -> str:
    """The space of the object that the member at ``index`` is called on; empty if that is not clear."""
    start = syntax.postfix_start(index)
    if syntax.texts[index - 1] == ".":
        return places.referred(caller, start, index - 1, "")
    return places.followed(caller, start, index - 1) if syntax.texts[index - 1] == "->" else ""


@cache
def _names_of_shim() -> frozenset[str]:
    """Names that Metal's library may have functions of, which overload those of a source."""
    texts = (header.read_text("utf-8") for header in Path(__file__).with_name("include").rglob("*.h"))
    names: set[str] = set()
    for text in texts:
        names.update(re.findall(r"[A-Za-z_]\w*(?=\()", text))
        for listed in re.findall(r"\b[A-Z_0-9]+\(([^()]*)\)", text):  # perhaps a macro that defines functions
            names.update(re.findall(r"\w+", listed))
    return frozenset(names)


def _meaning(syntax: Syntax, function: Function, parameters: list[FormalParameter]) -> tuple[object, ...]:
    widths = tuple(parameter.integer_bytes for parameter in parameters)
    defaults = tuple(tuple(syntax.texts[slice(*each.default)]) if each.default else () for each in parameters)
    copied = copied_members(syntax, function)
    if copied:
        return (widths, defaults, *copied, "", "", "")
    return (widths, defaults, *_erased_body(syntax, function))


def merge_overloads(syntax: Syntax, declarations: Declarations, rewriter: Rewriter) -> None:
    """Merges overloads with equal bodies, and tags the others."""
    merge_specialisations(syntax, declarations, rewriter)
    merged: set[int] = set()
    settled = _settled(syntax, declarations, _choices(syntax, declarations))
    for index, name in settled.calls.items():
        rewriter.replace(index, name)
    for group in list(_groups(syntax, declarations)):
        choice = _choice(syntax, declarations, group)
        remaining = {function.name_at for function, _ in choice.kept}
        for function, _ in group:
            if function.name_at not in remaining:
                rewriter.delete(function.start, function.end)
                merged.add(function.name_at)
        if len(choice.kept) > 1:
            _tag(syntax, rewriter, choice, choosing=_name(choice) not in settled.names)
    declarations.functions = [function for function in declarations.functions if function.name_at not in merged]


def _telling(syntax: Syntax, group: list[Overload]) -> int | None:
    """The parameter whose address tells which overload of a group is called."""
    for position in range(min(len(parameters) for _, parameters in group)):
        if len({_place(syntax, *overload, position) for overload in group}) == len(group):
            return position
    return None


def _tag(syntax: Syntax, rewriter: Rewriter, choice: Choice, choosing: bool) -> None:
    """Gives each overload a name of its own, and writes functions of the common name that choose among them.

    There is one for each number of arguments, so that every overload has its own defaults.
    """
    group = choice.kept
    longest, parameters = max(group, key=lambda overload: len(overload[1]))
    token = syntax.tokens[longest.name_at]
    positions = choice.positions
    constructs = longest.in_struct and longest.name == longest.scope[-1]
    fixed = longest.name.startswith("~")
    outside = syntax.texts[longest.name_at - 1] == "::"  # a member that is defined outside its class
    if positions is None or fixed or outside or any(not each.name and {"(", "["} & {*each.type} for each in parameters):
        lines = ", ".join(str(syntax.tokens[function.name_at].line) for function, _ in group)
        raise UnsupportedFeature(
            f"overloads of {longest.name!r} (lines {lines}) differ only in address space, and the addresses cannot "
            "tell them apart; rename one",
            file=token.file,
            line=token.line,
        )
    body = longest.body[0] if longest.body is not None else longest.end - 1
    heading = rewriter.inline(longest.start, longest.name_at)
    named = rewriter.inline(longest.name_at, longest.opening)
    trailing = rewriter.inline(longest.closing + 1, body)
    tokens = syntax.split(longest.opening + 1, longest.closing)
    names = [parameter.name or f"__ost_{at}" for at, parameter in enumerate(parameters)]
    addresses = [
        "this" if at == THIS else f"&{names[at]}" if parameters[at].reference else names[at] for at in positions
    ]
    probing = " ".join(
        f"const int __ost_place{at} = __ost::place_of((const void *)({address}));"
        for at, address in enumerate(addresses)
    )
    chosen, declaring = [], []
    for count in range(min(_required(others) for _, others in group), len(parameters) + 1):
        taking = {each.name_at for each, others in group if _required(others) <= count <= len(others)}
        takers = [others for function, others in group if function.name_at in taking]
        if not takers or (len(takers) > 1 and max(positions) >= count):
            continue  # no call has so few arguments
        listed = ", ".join(
            _widest_parameter(rewriter, parameters[at], names[at], [others[at] for others in takers], tokens[at])
            for at in range(count)
        )
        passed = names[:count]
        # Highest place first: the last is for what lies nowhere else.
        serving = sorted(
            (item for item in choice.serving.items() if item[1][0].name_at in taking), reverse=True, key=_first
        )
        calls = [_call(syntax, overload, choice, passed, constructs) for _, overload in serving]
        for at, (places, _) in enumerate(serving[:-1]):
            tests = " && ".join(f"__ost_place{each} == {place}" for each, place in enumerate(places))
            calls[at] = f"if ({tests}) {'*this = ' if constructs else ''}{calls[at]}"
        declared = f"{heading} {named}({listed}) {'' if constructs else trailing}"
        choosing_body = f"{{ {probing if len(calls) > 1 else ''} {' '.join(calls)} }}"
        if constructs:
            # Not every compiler leaves out the copy of an object that a function returns to a constructor.
            declared += f" : {calls.pop()}"
            assigned = " ".join(f"{call};" for call in calls)
            choosing_body = f"{{ {probing if calls else ''} {assigned} }}"
        chosen.append(f"{declared} {choosing_body}")
        declaring.append(f"{declared};")
    for function, others in group:
        if constructs:
            rewriter.after(function.opening, f"{_place_type(syntax, (function, others), choice)},")
            continue
        _rename(syntax, rewriter, function, _tagged(syntax, (function, others), choice))
    if not choosing:
        return
    rewriter.after(max(function.end for function, _ in group) - 1, " ".join(chosen))
    defaulted = any(parameter.default for header in longest.templates for parameter in header.parameters)
    if not longest.in_struct and not defaulted:
        # What stands between the overloads, and each of them, may call the others.
        rewriter.lead(min(function.start for function, _ in group), " ".join(declaring))


def _call(syntax: Syntax, overload: Overload, choice: Choice, passed: list[str], constructs: bool) -> str:
    if constructs:
        listed = ", ".join([f"{_place_type(syntax, overload, choice)}()", *passed])
        return f"{overload[0].name}({listed})"
    return f"return {_tagged(syntax, overload, choice)}({', '.join(passed)});"


def _place_type(syntax: Syntax, overload: Overload, choice: Choice) -> str:
    """The type of a hidden first argument that tells constructors apart."""
    return f"__ost::InPlace<{', '.join(str(_place(syntax, *overload, at)) for at in choice.positions or ())}>"


def _rename(syntax: Syntax, rewriter: Rewriter, function: Function, name: str) -> None:
    if not function.name.startswith("operator") or syntax.texts[function.name_at] != "operator":
        rewriter.replace(function.name_at, name)
        return
    behind = function.name_at + 1
    converts = syntax.tokens[behind].kind == IDENTIFIER
    type_ = rewriter.inline(behind, function.opening) if converts else ""
    rewriter.delete(behind, function.opening)
    rewriter.replace(function.name_at, f"{type_} {name}")
    for index in range(function.start, function.name_at):
        if syntax.texts[index] == "explicit":
            rewriter.replace(index, "")


def _first(item: tuple[tuple[int, ...], Overload]) -> tuple[int, ...]:
    return item[0]


def _required(parameters: list[FormalParameter]) -> int:
    """How many arguments a call must have."""
    return sum(parameter.default is None for parameter in parameters)


def _place(syntax: Syntax, function: Function, parameters: list[FormalParameter], position: int) -> int:
    """Where an argument of an overload lies, as far as it is known at run time."""
    if position == THIS:
        return _PLACE.get(_this_space(syntax, function), 0)
    return _PLACE.get(parameters[position].space, 0)


def _this_space(syntax: Syntax, function: Function) -> str:
    """The address space of what a member function is called on: that of a thread, unless it is qualified."""
    end = function.body[0] if function.body is not None else function.end
    trailing = syntax.texts[function.closing + 1 : end]
    return next((text for text in trailing if text in ADDRESS_SPACES), "thread")


def _tagged(syntax: Syntax, overload: Overload, choice: Choice) -> str:
    function, parameters = overload
    places = "_".join(str(_place(syntax, function, parameters, at)) for at in choice.positions or ())
    name = "".join(letter if letter.isalnum() or letter == "_" else f"_{ord(letter):x}" for letter in function.name)
    return f"__ost_place{places}_{name}"


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
