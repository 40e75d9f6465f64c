"""Threadgroup variables declared in a kernel's body.

On the CPU and in CUDA C++ they live in one block of memory per group. Each kernel with such variables gets a constexpr
function that lays them out (offset of the n-th, or the total), because only the compiler can evaluate sizes that depend
on template parameters; the declarations in the body become references into the block. All names of that function's own
begin with ``__ost``, so that they hide none that the sizes mention. The word ``threadgroup`` before a pointer or
reference is only a qualifier; such declarations are not concerned.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .declarations import Function
from .rewriter import Rewriter
from .syntax import Syntax
from .tokens import IDENTIFIER, fail

_SPECIFIERS = frozenset({"const", "volatile", "static", "constexpr"})
_BUILTIN_WORDS = frozenset({"unsigned", "signed", "long", "short", "int", "char"})
_CLASS_KEYS = frozenset({"struct", "class", "union", "enum"})


@dataclass(slots=True)
class StoredVariable:
    """``threadgroup type name suffix;`` at token ``start`` … ``end`` of a kernel body."""

    name: str
    type: tuple[int, int]
    suffix: tuple[int, int]
    alignment: str
    start: int
    end: int


def type_end(syntax: Syntax, index: int, end: int) -> int:
    """The first token after the type that begins at ``index``, and which may be defined there."""
    texts, tokens = syntax.texts, syntax.tokens
    if texts[index] in _CLASS_KEYS:
        definition = _definition(syntax, index)
        if definition is not None:
            return definition.end
        index += 1
    if texts[index] == "::":
        index += 1
    if texts[index] == "typename":
        index += 1
    if texts[index] in _BUILTIN_WORDS:
        while texts[index] in _BUILTIN_WORDS:
            index += 1
    else:
        if index >= end or tokens[index].kind != IDENTIFIER:
            raise fail("expected a type after 'threadgroup'", tokens[min(index, end - 1)])
        while True:
            index += 1
            if texts[index] == "<":
                closing = syntax.angle_end(index, end)
                if closing is None:
                    raise fail("this template argument list is never closed", tokens[index])
                index = closing + 1
            if texts[index] == "::":
                index += 1
                if texts[index] == "template":
                    index += 1
                continue
            break
    while texts[index] in _SPECIFIERS:
        index += 1
    return index


@dataclass(frozen=True, slots=True)
class _Definition:
    """``struct Name { … }``, also a union or an enum, from token ``start`` to ``end`` (exclusive)."""

    start: int
    end: int
    brace: int
    name_at: int | None


def _definition(syntax: Syntax, start: int) -> _Definition | None:
    """The struct, union or enum that is defined at ``start``; None where one is only named."""
    texts = syntax.texts
    index = start + 1
    while texts[index] == "class" or texts[index] in ("alignas", "__attribute__") or syntax.is_attribute(index):
        index = index + 1 if texts[index] == "class" else syntax.match[index + (texts[index] != "[")] + 1
    name_at = index if syntax.tokens[index].kind == IDENTIFIER else None
    index += name_at is not None
    if texts[index] == ":":
        while texts[index] not in ("{", ";"):
            index += 1
    return _Definition(start, syntax.match[index] + 1, index, name_at) if texts[index] == "{" else None


def find_storage(syntax: Syntax, body: tuple[int, int]) -> list[StoredVariable]:
    """The threadgroup variables (not pointers) declared between the braces ``body``."""
    texts, match = syntax.texts, syntax.match
    variables: list[StoredVariable] = []
    after = body[0] + 1
    for index in range(body[0] + 1, body[1]):
        if texts[index] != "threadgroup" or index < after:
            continue
        start, alignment = index, "16"
        while start > body[0]:
            if texts[start - 1] in _SPECIFIERS:
                start -= 1
            elif texts[start - 1] == ")" and texts[match[start - 1] - 1] == "alignas":
                alignment = " ".join(texts[match[start - 1] + 1 : start - 1])
                start = match[start - 1] - 1
            else:
                break
        if texts[start - 1] not in ("{", "}", ";", ":"):
            continue
        position = index + 1
        while texts[position] in _SPECIFIERS or texts[position] == "alignas":
            if texts[position] == "alignas":
                alignment = " ".join(texts[position + 2 : match[position + 1]])
                position = match[position + 1]
            position += 1
        type_start = position
        declarator = type_end(syntax, position, body[1])
        if texts[declarator] in ("*", "&", "("):
            continue
        closing = after = syntax.statement_end(declarator, body[1])
        for begin, end in syntax.split(declarator, closing):
            name_at = begin
            suffix_end = end
            for at in range(begin, end):
                if syntax.is_attribute(at) or texts[at] in ("=", "{"):  # Metal drops what it begins with
                    suffix_end = at
                    break
            variables.append(
                StoredVariable(
                    texts[name_at], (type_start, declarator), (name_at + 1, suffix_end), alignment, start, closing
                )
            )
    return variables


def _names_defined(syntax: Syntax, definition: _Definition) -> Iterator[str]:
    """The name of a struct, union or enum, and those of an enum's values."""
    if definition.name_at is not None:
        yield syntax.texts[definition.name_at]
    if syntax.texts[definition.start] == "enum":
        for begin, _ in syntax.split(definition.brace + 1, definition.end - 1):
            yield syntax.texts[begin]


def _local_definitions(syntax: Syntax, body: tuple[int, int]) -> dict[str, list[tuple[int, int]]]:
    """Names of constants and types defined inside the body, with the tokens of their declarations, in order."""
    texts = syntax.texts
    definitions: dict[str, list[tuple[int, int]]] = {}

    def defined(name: str, begin: int, end: int) -> None:
        definitions.setdefault(name, []).append((begin, end))

    for index in range(body[0] + 1, body[1]):
        if texts[index - 1] not in ("{", "}", ";") or texts[index] not in (
            "constexpr",
            "const",
            "static",
            "using",
            "typedef",
            "constant",
        ):
            if texts[index] in _CLASS_KEYS and texts[index - 1] != "enum":
                definition = _definition(syntax, index)
                if definition is not None:
                    for name in _names_defined(syntax, definition):
                        defined(name, definition.start, definition.end)
            continue
        closing = syntax.statement_end(index, body[1])
        if texts[index] == "using":
            defined(texts[index + 1], index, closing)
        elif texts[index] == "typedef":
            defined(texts[closing - 1], index, closing)
        else:
            for begin, end in syntax.split(index, closing):
                equals = next((at for at in range(begin, end) if texts[at] in ("=", "{")), None)
                if equals is not None and equals > begin:
                    defined(texts[equals - 1], index, closing)
    return definitions


def _block_ends(syntax: Syntax, body: tuple[int, int]) -> dict[int, int]:
    """For each token of a body, the brace that closes the innermost block around it."""
    ends: dict[int, int] = {}
    around = [body[1]]
    for index in range(body[0] + 1, body[1]):
        if index == around[-1]:
            around.pop()
        ends[index] = around[-1]
        if syntax.texts[index] == "{":
            around.append(syntax.match[index])
    return ends


class _Definitions:
    """What is defined inside of a body, by name and place."""

    def __init__(self, syntax: Syntax, body: tuple[int, int]) -> None:
        self._syntax = syntax
        self._local = _local_definitions(syntax, body)
        self._block_ends = _block_ends(syntax, body) if self._local else {}

    def needed_by(self, variable: StoredVariable) -> list[tuple[int, int]]:
        """The declarations that a variable's type and size mention, and those that these mention, in order."""
        needed: set[tuple[int, int]] = set()
        queue = [variable.type, variable.suffix]
        while queue:
            begin, end = queue.pop()
            for index in range(begin, end):
                definition = self._visible(index, begin)
                if definition is not None and definition not in needed:
                    needed.add(definition)
                    queue.append(definition)
        return sorted(needed)

    def _visible(self, index: int, before: int) -> tuple[int, int] | None:
        """The last definition of the name at a token that stands before another one, in a block around both."""
        for begin, end in reversed(self._local.get(self._syntax.texts[index], ())):
            if end <= before < self._block_ends[begin]:
                return begin, end
        return None


def template_arguments(function: Function) -> str:
    """``<T, N>`` naming the function's own template parameters, or nothing."""
    names = [parameter.name for header in function.templates for parameter in header.parameters]
    return f"<{', '.join(names)}>" if names else ""


def _type_text(syntax: Syntax, rewriter: Rewriter, variable: StoredVariable, unnamed: str) -> tuple[str, str]:
    """What defines a variable's type if its declaration does, and the type; one without a name gets ``unnamed``."""
    begin, end = variable.type
    definition = _definition(syntax, begin) if syntax.texts[begin] in _CLASS_KEYS else None
    if definition is None:
        return "", rewriter.inline(begin, end)
    if definition.name_at is not None:
        return f"{rewriter.inline(begin, definition.end)};", syntax.texts[definition.name_at]
    name = f"{unnamed}_{begin}"
    return f"{rewriter.inline(begin, definition.brace)} {name} {rewriter.inline(definition.brace, end)};", name


def rewrite_storage(syntax: Syntax, rewriter: Rewriter, function: Function, number: int, arena: str) -> str | None:
    """Makes the declarations references into ``arena``; returns the name of the layout function, if there is one."""
    assert function.body is not None
    variables = find_storage(syntax, function.body)
    if not variables:
        return None
    layout = f"__ost_layout_{number}"
    arguments = template_arguments(function)
    definitions = _Definitions(syntax, function.body)
    steps: list[str] = []
    replacements: dict[tuple[int, int], list[str]] = {}
    for order, variable in enumerate(variables):
        needed = " ".join(
            f"{rewriter.inline(begin, end, without='static')};" for begin, end in definitions.needed_by(variable)
        )
        definition, type_text = _type_text(syntax, rewriter, variable, f"__ost_unnamed_{number}")
        suffix = rewriter.inline(*variable.suffix)
        name = rewriter.inline(variable.suffix[0] - 1, variable.suffix[0])
        steps.append(
            f"{{ {needed} {definition} typedef {type_text} __ost_t {suffix}; "
            f"__ost_at = __ost::aligned(__ost_at, {variable.alignment}, alignof(__ost_t)); "
            f"if (__ost_n == {order}) return __ost_at; __ost_at += sizeof(__ost_t) + __ost_apart; }}"
        )
        alias = f"__ost_stored_{number}_{order}"
        replacements.setdefault((variable.start, variable.end), [definition]).append(
            f"typedef {type_text} {alias} {suffix}; "
            f"{alias} &{name} = *({alias} *)({arena} + __ost::constant<{layout}{arguments}({order}, __ost::red_zone)>);"
            f" __OST_STORED({name})"
        )
    header = " ".join(rewriter.inline(h.start, h.end + 1) for h in function.templates)
    rewriter.before(
        function.start,
        f"{header} constexpr uint32_t {layout}(uint32_t __ost_n, uint32_t __ost_apart = 0) "
        f"{{ uint32_t __ost_at = 0; {' '.join(steps)} return __ost_at; }}",
        outermost=True,
    )
    for (start, end), texts in replacements.items():
        rewriter.delete(start, end + 1)
        rewriter.replace(start, " ".join(texts))
    return layout


def refuse_storage_outside_kernels(syntax: Syntax, function: Function) -> None:
    """Refuses threadgroup variables outside of kernels, as Metal does."""
    assert function.body is not None
    for variable in find_storage(syntax, function.body):
        raise fail(
            f"threadgroup variable {variable.name!r} is declared in {function.name!r}, which is not a kernel; "
            "declare it in the kernel and pass a threadgroup pointer",
            syntax.tokens[variable.start],
        )
