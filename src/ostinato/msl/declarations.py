"""The declarations of a preprocessed source: functions, structs, variables, aliases and explicit instantiations.

This is not a C++ parser: it recognises where each declaration at namespace or class scope begins and ends and what it
declares, which is what reflection and translation need. Bodies stay token ranges. It works by bracket matching, so it
is linear in the number of tokens, and leaves full checks to the compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from .constant_expression import Value, evaluate, whole
from .syntax import Attribute, Syntax
from .tokens import IDENTIFIER, STRING, Token, fail
from .unwinding import Steps, unwound

_NOT_A_DECLARATOR = frozenset(
    {"__attribute__", "alignas", "decltype", "noexcept", "sizeof", "return", "if", "for", "while", "switch"}
)
_AFTER_DECLARATORS = frozenset((";", ",", "=", "[", "{"))


@dataclass(slots=True)
class TemplateParameter:
    """One parameter of a template: ``kind`` is "type" or "value"."""

    name: str
    kind: str
    default: list[Token] | None


@dataclass(slots=True)
class TemplateHeader:
    """``template <…>``, tokens ``start`` to ``end`` inclusive."""

    start: int
    end: int
    parameters: list[TemplateParameter]


@dataclass(slots=True)
class Function:
    """A function declaration or definition; all positions are token indices."""

    name: str
    name_at: int
    start: int
    end: int
    opening: int
    closing: int
    body: tuple[int, int] | None
    templates: list[TemplateHeader]
    attributes: list[Attribute]
    scope: tuple[str, ...]
    in_struct: bool

    @property
    def special(self) -> bool:
        """Whether it is an operator, constructor or destructor, which runs without being called by its name."""
        return self.name.startswith(("operator", "~")) or (self.in_struct and self.name == self.scope[-1])


@dataclass(slots=True)
class Instantiation:
    """``template [[host_name("…")]] … name<arguments>(parameters);``."""

    name: str
    start: int
    end: int
    attributes: list[Attribute]
    kernel: bool
    arguments: list[list[Token]] | None
    opening: int | None
    scope: tuple[str, ...]


@dataclass(slots=True)
class Variable:
    """A variable at namespace or class scope."""

    name: str
    name_at: int
    start: int
    end: int
    attributes: list[Attribute]
    initialiser: tuple[int, int] | None
    scope: tuple[str, ...]
    in_struct: bool


@dataclass(slots=True)
class Specialisation:
    """A class template specialised for some arguments, ``template <…> struct name<arguments> {…};``."""

    name: str
    start: int
    end: int
    arguments: tuple[int, int]
    body: tuple[int, int]
    scope: tuple[str, ...]


@dataclass(slots=True)
class TypeName:
    """The definition of a class, or an alias: ``using name = …;`` or ``typedef … name;``."""

    name: str
    start: int
    end: int
    templates: list[TemplateHeader]
    specialised: bool = False


@dataclass(frozen=True, slots=True)
class Enumerator:
    """A name of an enum: its value is that of the tokens (0 if there are none) and ``more``."""

    tokens: tuple[Token, ...]
    more: int
    owner: str
    """What qualifies the names that the tokens may use as they are."""

    def value(
        self,
        known: Collection[str],
        lookup: Callable[[str], Value],
        call: Callable[[str, Sequence[Token]], Value] | None = None,
    ) -> int:
        """Its value. ``known`` are the names of all enumerators, ``lookup`` and ``call`` are those of `evaluate`."""

        def beside(name: str) -> Value:
            qualified = f"{self.owner}::{name}"
            return lookup(qualified if qualified in known else name)

        return whole(evaluate(self.tokens, beside, call) if self.tokens else 0) + self.more


@dataclass(slots=True)
class Declarations:
    """Everything a source declares, in source order."""

    functions: list[Function] = field(default_factory=list)
    instantiations: list[Instantiation] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    aliases: dict[str, list[Token]] = field(default_factory=dict)
    structs: set[str] = field(default_factory=set)
    own_structs: set[str] = field(default_factory=set)
    """Those that the source declares itself; it may also specialise class templates of Metal."""
    types: list[TypeName] = field(default_factory=list)
    enumerators: dict[str, Enumerator | None] = field(default_factory=dict)
    """By every way to qualify the name, such as ``Enum::name``; None if two enums have it."""
    specialisations: list[Specialisation] = field(default_factory=list)
    linkages: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Each ``extern "C"`` around definitions by its position: the tokens that it consists of."""
    internals: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Declarations of functions inside Apple's library, ``… __metal_x(…) __asm("air.x");``, by that ``__asm``."""


class _Parser:
    def __init__(self, syntax: Syntax) -> None:
        self.syntax = syntax
        self.tokens = syntax.tokens
        self.texts = syntax.texts
        self.declarations = Declarations()

    def scope(self, index: int, end: int, scope: tuple[str, ...], in_struct: bool) -> Steps[None]:
        texts = self.texts
        while index < end:
            text = texts[index]
            if text == ";":
                index += 1
            elif text == "namespace" or (text == "inline" and texts[index + 1 : index + 2] == ["namespace"]):
                index = yield self.namespace(index + (text == "inline"), end, scope)
            elif text in ("public", "private", "protected") and texts[index + 1 : index + 2] == [":"]:
                index += 2
            elif text == "extern" and not in_struct and index + 2 < end and self.tokens[index + 1].kind == STRING:
                index = yield self.linkage(index, end, scope)
            else:
                after = self.declaration(index, end, scope, in_struct)
                index = after if isinstance(after, int) else (yield after)

    def namespace(self, index: int, end: int, scope: tuple[str, ...]) -> Steps[int]:
        names: list[str] = []
        index += 1
        while index < end and self.texts[index] not in ("{", "=", ";"):
            if self.tokens[index].kind == IDENTIFIER:
                names.append(self.texts[index])
            index += 1
        if index >= end or self.texts[index] != "{":
            return self.syntax.statement_end(index, end) + 1
        inner = scope + tuple(names)
        yield self.scope(index + 1, self.syntax.match[index], inner, False)
        return self.syntax.match[index] + 1

    def linkage(self, index: int, end: int, scope: tuple[str, ...]) -> Steps[int]:
        """``extern "C"`` before definitions, which says nothing about kernels. What it only declares is refused."""
        known, opening = len(self.declarations.functions), index + 2
        if self.texts[opening] == "{":
            closing = self.syntax.match[opening]
            self.declarations.linkages[index] = (index, index + 1, opening, closing)
            yield self.scope(opening + 1, closing, scope, False)
            finish = closing + 1
        else:
            self.declarations.linkages[index] = (index, index + 1)
            after = self.declaration(opening, end, scope, False)
            finish = after if isinstance(after, int) else (yield after)
        for function in self.declarations.functions[known:]:
            if function.body is None and not function.in_struct:
                raise fail(
                    f"{function.name!r} is declared extern, which is not allowed in a kernel source",
                    self.tokens[function.name_at],
                )
        return finish

    def declaration(self, start: int, end: int, scope: tuple[str, ...], in_struct: bool) -> int | Steps[int]:
        texts = self.texts
        index = start
        templates: list[TemplateHeader] = []
        while texts[index] == "template":
            if index + 1 < end and texts[index + 1] == "<":
                closing = self.syntax.angle_end(index + 1, end)
                if closing is None:
                    raise fail("this template parameter list is never closed", self.tokens[index])
                templates.append(self.template_header(index, closing))
                index = closing + 1
                if index >= end:
                    raise fail("a template without a declaration", self.tokens[start])
            else:
                return self.instantiation(start, index + 1, end, scope)
        if texts[index + (texts[index] == "typedef")] == "enum":
            closing = self.syntax.statement_end(index, end)
            self.enumerators(index + (texts[index] == "typedef"), closing, scope, in_struct)
        if texts[index] in ("using", "typedef"):
            return self.alias(index, end, templates)
        if texts[index] == "static_assert" or (texts[index] == "friend" and not self._has_body(index, end)):
            return self.syntax.statement_end(index, end) + 1
        if texts[index] == "enum":
            closing = self.syntax.statement_end(index, end)
            self._refuse_declarators(index, closing, in_struct)
            return closing + 1
        if texts[index] in ("struct", "class", "union"):
            after = self.struct(start, index, end, scope, in_struct, templates)
            if after is not None:
                return after
        return self.general(start, index, end, scope, in_struct, templates)

    def _has_body(self, index: int, end: int) -> bool:
        """Whether the declaration at ``index`` has braces before its ``;``."""
        while index < end and self.texts[index] not in ("{", ";"):
            index = self.syntax.match[index] if self.texts[index] in ("(", "[") else index
            index += 1
        return index < end and self.texts[index] == "{"

    def template_header(self, start: int, closing: int) -> TemplateHeader:
        parameters = []
        for begin, finish in self.syntax.split(start + 2, closing):
            part = range(begin, finish)
            equals = next((i for i in part if self.texts[i] == "="), finish)
            default = self.tokens[equals + 1 : finish] if equals < finish else None
            names = [i for i in range(begin, equals) if self.tokens[i].kind == IDENTIFIER]
            kind = "type" if self.texts[begin] in ("typename", "class") else "value"
            # In `void (*f)(…)` the name is inside the first parentheses.
            grouped = next(
                (i for i in range(begin, equals) if self.texts[i] == "(" and self.texts[i + 1] in ("*", "&")), None
            )
            if grouped is not None:
                names = [i for i in range(grouped, self.syntax.match[grouped]) if self.tokens[i].kind == IDENTIFIER]
            minimum = 2 if kind == "type" or grouped is None else 1
            name = self.texts[names[-1]] if len(names) >= minimum else ""
            parameters.append(TemplateParameter(name, kind, default))
        return TemplateHeader(start, closing, parameters)

    def alias(self, index: int, end: int, templates: list[TemplateHeader]) -> int:
        closing = self.syntax.statement_end(index, end)
        self._refuse_kernel_inside(index, closing)
        if self.texts[index] == "using" and self.texts[index + 1] != "namespace":
            equals = next((i for i in range(index, closing) if self.texts[i] == "="), None)
            if equals is not None:
                self.declarations.types.append(TypeName(self.texts[index + 1], index, closing + 1, templates))
                if not templates:
                    self.declarations.aliases[self.texts[index + 1]] = self.tokens[equals + 1 : closing]
        elif self.texts[index] == "typedef" and self.tokens[closing - 1].kind == IDENTIFIER:
            self.declarations.types.append(TypeName(self.texts[closing - 1], index, closing + 1, templates))
            self.declarations.aliases[self.texts[closing - 1]] = self.tokens[index + 1 : closing - 1]
            if self.texts[index + 1] in ("struct", "class", "union"):
                self.declarations.structs.add(self.texts[closing - 1])
        elif self.texts[index] == "typedef" and self.texts[closing - 1] == "]":
            name_at = closing - 1
            while self.texts[name_at] == "]":
                name_at = self.syntax.match[name_at] - 1
            self.declarations.types.append(TypeName(self.texts[name_at], index, closing + 1, templates))
            named = self.tokens[index + 1 : name_at] + self.tokens[name_at + 1 : closing]
            self.declarations.aliases[self.texts[name_at]] = named
        return closing + 1

    def enumerators(self, index: int, closing: int, scope: tuple[str, ...], in_struct: bool) -> None:
        """Notes the enumerators of the ``enum`` at ``index``, if it has a body."""
        texts, known = self.texts, self.declarations.enumerators
        opening = next((at for at in range(index, closing) if texts[at] == "{"), None)
        if opening is None:
            return
        scoped = texts[index + 1] in ("class", "struct")
        title_at = index + 1 + scoped
        titled = (*scope, texts[title_at]) if self.tokens[title_at].kind == IDENTIFIER else scope
        owners = {titled} if scoped else {titled, scope}
        if texts[index - 1] == "typedef":
            owners.add((*scope, texts[closing - 1]))
        # Names are looked up as they are written, so each has an entry for every way to qualify it.
        paths = {path[at:] for path in owners for at in range(len(path))}
        if not scoped and not in_struct:
            paths.add(())
        owner = "::".join(titled)
        latest = Enumerator((), -1, owner)
        for begin, end in self.syntax.split(opening + 1, self.syntax.match[opening]):
            if begin == end:  # behind the last comma
                continue
            equals = next((at for at in range(begin, end) if texts[at] == "="), None)
            if equals is None:
                latest = Enumerator(latest.tokens, latest.more + 1, owner)
            else:
                latest = Enumerator(tuple(self.tokens[equals + 1 : end]), 0, owner)
            for path in paths:
                name = "::".join((*path, texts[begin]))
                known[name] = None if name in known else latest

    def _refuse_kernel_inside(self, begin: int, end: int) -> None:
        """The declaration of a kernel cannot be a part of another: that one was not ended."""
        kernel_at = next((at for at in range(begin, end) if self.texts[at] == "kernel"), None)
        if kernel_at is not None:
            raise fail("a ';' is missing before this", self.tokens[kernel_at])

    def _refuse_declarators(self, index: int, closing: int, in_struct: bool) -> None:
        """``struct S {…} name;`` outside all functions would be a variable that all threads share."""
        body = next((at for at in range(index, closing) if self.texts[at] == "{"), None)
        if body is None or in_struct:
            return
        after = self.syntax.match[body] + 1
        if after < closing and not self.syntax.is_attribute(after) and self.texts[after] != "__attribute__":
            if self.texts[after] != "*" and self.texts[after + 1] not in _AFTER_DECLARATORS:
                raise fail("a ';' is missing at the end of the type before this", self.tokens[after])
            raise fail(
                f"{self.texts[after]!r} is a variable outside all functions; declare the type alone", self.tokens[after]
            )

    def struct(
        self,
        start: int,
        index: int,
        end: int,
        scope: tuple[str, ...],
        in_struct: bool,
        templates: list[TemplateHeader],
    ) -> int | Steps[int] | None:
        """Parses a class definition; None when the word only names a type in another declaration."""
        name = ""
        arguments: tuple[int, int] | None = None
        position = index + 1
        while position < end:
            text = self.texts[position]
            if text == "{":
                break
            if text in ("(", "=", "*", "&"):
                if text == "(" and self.texts[position - 1] in ("alignas", "__attribute__"):
                    position = self.syntax.match[position] + 1
                    continue
                return None
            if text == ";":
                if position - index == 2:
                    self.declarations.own_structs.add(name)
                    return position + 1
                return None
            if self.syntax.is_attribute(position):
                position = self.syntax.match[position] + 1
                continue
            if text == "<":
                closing = self.syntax.angle_end(position, end) or position
                arguments = (position, closing + 1)
                position = closing + 1
                continue
            if text == ":":
                while position < end and self.texts[position] != "{":
                    position += 1
                continue
            if (
                self.tokens[position].kind == IDENTIFIER
                and text not in ("final", "alignas", "__attribute__")
                and not name
            ):
                name = text
            position += 1
        if position >= end:
            raise fail("this class has no body", self.tokens[index])
        self.declarations.structs.add(name)
        if arguments is None:
            self.declarations.own_structs.add(name)
        return self.members(name, start, index, position, end, scope, in_struct, templates, arguments)

    def members(
        self,
        name: str,
        start: int,
        index: int,
        opening: int,
        end: int,
        scope: tuple[str, ...],
        in_struct: bool,
        templates: list[TemplateHeader],
        arguments: tuple[int, int] | None,
    ) -> Steps[int]:
        closing = self.syntax.match[opening]
        yield self.scope(opening + 1, closing, (*scope, name), True)
        finish = self.syntax.statement_end(closing + 1, end) + 1
        self._refuse_declarators(index, finish - 1, in_struct)
        self.declarations.types.append(TypeName(name, start, finish, templates, arguments is not None))
        if arguments is not None:
            self.declarations.specialisations.append(
                Specialisation(name, start, finish, arguments, (opening, closing), scope)
            )
        return finish

    def instantiation(self, start: int, index: int, end: int, scope: tuple[str, ...]) -> int:
        closing = self.syntax.statement_end(index, end)
        attributes: list[Attribute] = []
        kernel = False
        opening: int | None = None
        name_at = -1
        arguments: list[list[Token]] | None = None
        position = index
        while position < closing:
            text = self.texts[position]
            if self.syntax.is_attribute(position):
                attributes.extend(self.syntax.attributes_at(position))
                position = self.syntax.match[position] + 1
                continue
            if text in ("struct", "class"):
                return closing + 1
            if text == "kernel":
                kernel = True
            elif text in ("decltype", "__attribute__"):
                position = self.syntax.match[position + 1] + 1
                continue
            elif text == "(":
                opening = position
                break
            elif self.tokens[position].kind == IDENTIFIER:
                name_at, arguments = position, None
            elif text == "<":
                angle = self.syntax.angle_end(position, closing + 1)
                if angle is None:
                    raise fail("this template argument list is never closed", self.tokens[position])
                arguments = [self.tokens[a:b] for a, b in self.syntax.split(position + 1, angle)]
                position = angle
            position += 1
        if name_at < 0:
            raise fail("this explicit instantiation names nothing", self.tokens[start])
        kernel = kernel or any(attribute.name == "kernel" for attribute in attributes)
        self.declarations.instantiations.append(
            Instantiation(self.texts[name_at], start, closing + 1, attributes, kernel, arguments, opening, scope)
        )
        return closing + 1

    def general(
        self, start: int, index: int, end: int, scope: tuple[str, ...], in_struct: bool, templates: list[TemplateHeader]
    ) -> int:
        """A function or a variable."""
        texts, tokens, match = self.texts, self.tokens, self.syntax.match
        attributes: list[Attribute] = []
        last_name = previous = -1
        position = index
        while position < end:
            text = texts[position]
            if self.syntax.is_attribute(position):
                attributes.extend(self.syntax.attributes_at(position))
                position = match[position] + 1
                continue
            before, previous = previous, position
            if text == "operator":
                opening = position + 1
                if texts[opening] == "(":
                    opening += 2
                while opening < end and texts[opening] != "(":
                    opening += 1
                if opening >= end:
                    raise fail("this operator has no parameter list", tokens[position])
                name = "operator" + "".join(texts[position + 1 : opening])
                return self.function(name, position, start, opening, end, scope, in_struct, templates, attributes)
            elif text == "(":
                is_name = before >= 0 and (tokens[before].kind == IDENTIFIER or texts[before] == ">")
                if not is_name or texts[before] in _NOT_A_DECLARATOR or last_name < 0:
                    position = match[position] + 1
                    continue
                specifiers = texts[index:last_name]
                if (
                    "constant" in specifiers
                    and "*" not in specifiers
                    and "&" not in specifiers
                    and "kernel" not in specifiers
                ):
                    return self.variable(start, last_name, match[position] + 1, end, scope, in_struct, attributes)
                name = ("~" if last_name > 0 and texts[last_name - 1] == "~" else "") + texts[last_name]
                return self.function(name, last_name, start, position, end, scope, in_struct, templates, attributes)
            elif text == "<":
                closing = self.syntax.angle_end(position, end)
                previous = position if closing is None else closing
                position = previous + 1
            elif text in ("=", ";", "{") or (text == ":" and in_struct):
                return self.variable(start, last_name, position, end, scope, in_struct, attributes)
            elif text == "[":
                position = match[position] + 1
            elif text in (")", "]", "}"):
                raise fail(f"unexpected {text!r}", tokens[position])
            else:
                if tokens[position].kind == IDENTIFIER:
                    last_name = position
                position += 1
        raise fail("this declaration is never ended", tokens[start])

    def variable(
        self,
        start: int,
        name_at: int,
        position: int,
        end: int,
        scope: tuple[str, ...],
        in_struct: bool,
        attributes: list[Attribute],
    ) -> int:
        closing = self.syntax.statement_end(position, end)
        self._refuse_kernel_inside(position, closing)
        trailing = position
        while trailing < closing and self.texts[trailing] not in ("=", "{"):
            if self.syntax.is_attribute(trailing):
                attributes.extend(self.syntax.attributes_at(trailing))
                trailing = self.syntax.match[trailing]
            trailing += 1
        initialiser = (trailing, closing) if trailing < closing else None
        if name_at >= 0:
            self.declarations.variables.append(
                Variable(self.texts[name_at], name_at, start, closing + 1, attributes, initialiser, scope, in_struct)
            )
        return closing + 1

    def function(
        self,
        name: str,
        name_at: int,
        start: int,
        opening: int,
        end: int,
        scope: tuple[str, ...],
        in_struct: bool,
        templates: list[TemplateHeader],
        attributes: list[Attribute],
    ) -> int:
        texts, match = self.texts, self.syntax.match
        closing = match[opening]
        position = closing + 1
        while position < end and texts[position] not in ("{", ";", ":", "="):
            if self.syntax.is_attribute(position):
                attributes.extend(self.syntax.attributes_at(position))
                position = match[position]
            elif texts[position] == "(":
                position = match[position]
            position += 1
        self._refuse_kernel_inside(closing, position)
        if position < end and texts[position] == ":":
            position += 1
            while position < end:
                while position < end and texts[position] not in ("(", "{"):
                    position += 1
                if position >= end:
                    break
                position = match[position] + 1
                if position >= end or texts[position] != ",":
                    break
        body: tuple[int, int] | None = None
        if position < end and texts[position] == "{":
            body = (position, match[position])
            finish = match[position] + 1
        elif position < end:
            finish = self.syntax.statement_end(position, end) + 1
        else:
            raise fail(f"function {name} has neither body nor ';'", self.tokens[name_at])
        if body is None and name.startswith("__metal_") and self._is_label(closing + 1):
            self.declarations.internals[closing + 1] = (start, finish)
            return finish
        self.declarations.functions.append(
            Function(name, name_at, start, finish, opening, closing, body, templates, attributes, scope, in_struct)
        )
        return finish

    def _is_label(self, index: int) -> bool:
        """Whether ``__asm("air.…");`` is at ``index``."""
        label = self.tokens[index + 2]
        words = (self.texts[index], self.texts[index + 1], *self.texts[index + 3 : index + 5])
        return words == ("__asm", "(", ")", ";") and label.kind == STRING and label.text.startswith('"air.')


def parse_declarations(syntax: Syntax) -> Declarations:
    """Finds every declaration of a source."""
    parser = _Parser(syntax)
    unwound(parser.scope(0, syntax.count, (), False))
    return parser.declarations


def without_instantiations(syntax: Syntax, declarations: Declarations) -> list[Token]:
    """The tokens outside explicit instantiations. Those that pass a function to a template are kept, as calls of it."""
    functions = {function.name for function in declarations.functions} - declarations.structs
    kept: list[Token] = []
    at = 0
    for instantiation in declarations.instantiations:
        mentioned = functions.intersection(syntax.texts[instantiation.start : instantiation.end])
        if mentioned <= {instantiation.name}:
            kept += syntax.tokens[at : instantiation.start]
            at = instantiation.end
    return kept + syntax.tokens[at : syntax.count]
