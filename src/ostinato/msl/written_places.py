"""The address space in which an argument lies, where the source says it.

Metal demands an address space of every pointer and reference, so the declarations of a function's variables say where
most arguments lie. It goes by names and without types: a name that is declared twice in a function with different
spaces, a member that may be a pointer, the result of a call, `auto` and aliases of pointers are not looked into.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .convergence import closure
from .declarations import Declarations, Function
from .syntax import ADDRESS_SPACES, BEFORE_EXPRESSIONS, Syntax
from .tokens import IDENTIFIER

_HEADS = frozenset("if for while switch constexpr".split())
_NEVER_DECLARES = BEFORE_EXPRESSIONS | frozenset(
    "using typedef goto break continue if for while switch default".split()
)
_AFTER_NAMES = frozenset("= ; , [ ( { : )".split())
_NO_SUMS = frozenset("? : && || == != < > <= >= = , += -=".split())
_NO_TYPES = frozenset("* & && const volatile static constexpr".split())
_UNKNOWN_TYPES = frozenset({"auto", "decltype"})


@dataclass(frozen=True, slots=True)
class _Variable:
    """``space``: that of what it refers to, for pointers, and its own for others; "" if that is not clear."""

    space: str
    pointer: bool
    plain: bool
    """Whether nothing inside of it can be a pointer."""
    type: tuple[str, ...] = ()
    """What it is or points to; empty if that is not clear."""


_UNCLEAR = _Variable("", False, False)


class WrittenPlaces:
    """Where the arguments of calls in one source lie."""

    def __init__(self, syntax: Syntax, declarations: Declarations) -> None:
        self._syntax, self._texts, self._match = syntax, syntax.texts, syntax.match
        headers = [header for function in declarations.functions for header in function.templates]
        headers += [header for type_ in declarations.types for header in type_.templates]
        parameters = {each.name for header in headers for each in header.parameters}
        self._not_plain = self._with_aliases(_UNKNOWN_TYPES | parameters)
        operators = {function.name for function in declarations.functions}
        self._indexed_by_function = "operator[]" in operators
        self._followed_by_function = not operators.isdisjoint(("operator*", "operator->"))
        self._constants: dict[str, _Variable] = {}
        self._members: set[str] = set()
        unclear_members: set[str] = set()
        for variable in declarations.variables:
            words = set(self._texts[variable.start : variable.end])
            if variable.in_struct:
                self._members |= words
                if self._may_point(words):
                    unclear_members |= words
            elif "constant" in words:
                self._declarator(variable.start, variable.end, (), self._constants)
        for function in declarations.functions:
            for begin, end in self._local_classes(function):
                words = set(self._texts[begin:end])
                unclear_members |= words if self._may_point(words) else set()
        self._plain_members = self._members - unclear_members
        self._variables: dict[int, dict[str, _Variable]] = {}

    def _with_aliases(self, types: set[str] | frozenset[str]) -> frozenset[str]:
        """These types, and the aliases of them and of pointers, wherever these are declared."""
        aliases: dict[str, set[str]] = {}
        texts = self._texts
        for index, text in enumerate(texts):
            if text in ("using", "typedef"):
                end = self._syntax.statement_end(index, self._syntax.count)
                name = texts[index + 1] if text == "using" else texts[end - 1]
                aliases.setdefault(name, set()).update(texts[index + 2 if text == "using" else index + 1 : end])
        callers: dict[str, set[str]] = {}
        for name, words in aliases.items():
            for word in words - {name}:
                callers.setdefault(word, set()).add(name)
        return closure(frozenset(types | {"*", "&"}), callers)

    def _may_point(self, words: set[str]) -> bool:
        return not words.isdisjoint(self._not_plain)

    def _local_classes(self, function: Function) -> Iterator[tuple[int, int]]:
        for index in range(*(function.body or (0, 0))):
            if self._texts[index] in ("struct", "class", "union"):
                at = index
                while self._texts[at] not in ("{", ";", "(", "="):
                    at += 1
                if self._texts[at] == "{":
                    yield at, self._match[at]

    def pointee(self, function: Function, begin: int, end: int) -> str:
        """The space that an argument points to, the tokens ``begin`` to ``end`` in ``function``; "" if not clear."""
        return self._pointee(function, *self._without_parentheses(begin, end))

    def followed(self, function: Function, begin: int, end: int) -> str:
        """The space of what ``->`` behind these tokens leads to; empty if that is not clear."""
        clear = not self._followed_by_function or self._chain(function, begin, end)[0].pointer
        return self.pointee(function, begin, end) if clear else ""

    def referred(self, function: Function, begin: int, end: int, type_: str) -> str:
        """The space of an argument that is passed by reference; empty if that is not clear.

        What is not of the ``type_`` of the parameter, if there is one, is converted to a value of the thread's own.
        """
        found = self._object(function, *self._without_parentheses(begin, end))
        if type_ and found.space != "thread" and found.type != tuple(type_.split()):
            return ""
        return found.space

    def _without_parentheses(self, begin: int, end: int) -> tuple[int, int]:
        while begin < end and self._texts[begin] == "(" and self._match[begin] == end - 1:
            begin, end = begin + 1, end - 1
        return begin, end

    def _object(self, function: Function, begin: int, end: int) -> _Variable:
        """What an expression denotes."""
        if begin < end and self._texts[begin] == "*":
            inner = self._without_parentheses(begin + 1, end)
            if inner == (begin + 1, end) and not self._is_chain(*inner):
                return _UNCLEAR
            variable, finish = self._chain(function, *inner)
            if self._followed_by_function and not variable.pointer:
                return _UNCLEAR
            type_ = variable.type if variable.pointer and finish == inner[1] else ()
            return _Variable(self._pointee(function, *inner), False, False, type_)
        variable, finish = self._chain(function, begin, end)
        if finish < end or not variable.space:
            return _UNCLEAR
        return _Variable("thread", False, False) if variable.pointer else variable

    def _pointee(self, function: Function, begin: int, end: int) -> str:
        """The space that an expression points to."""
        texts, match = self._texts, self._match
        if begin >= end:
            return ""
        if texts[begin] == "&":
            inner = self._without_parentheses(begin + 1, end)
            return self._object(function, *inner).space if inner != (begin + 1, end) or self._is_chain(*inner) else ""
        if texts[begin] == "(" and match[begin] < end - 1:
            return self._cast(begin + 1, match[begin])
        if texts[begin] in ("reinterpret_cast", "static_cast", "const_cast") and texts[begin + 1] == "<":
            closing = self._syntax.angle_end(begin + 1, end)
            if closing is not None and texts[closing + 1] == "(" and match[closing + 1] == end - 1:
                return self._cast(begin + 2, closing)
            return ""
        variable, finish = self._chain(function, begin, end)
        if finish < end and (texts[finish] not in ("+", "-") or self._at_top(finish, end) & _NO_SUMS):
            return ""
        return variable.space if variable.pointer or variable.plain else ""

    def _cast(self, begin: int, end: int) -> str:
        """The space of the type ``space T *``."""
        texts = self._texts[begin:end]
        spaces = [text for text in texts if text in ADDRESS_SPACES]
        return spaces[0] if len(spaces) == 1 and texts.count("*") == 1 and texts[-1] == "*" else ""

    def _at_top(self, begin: int, end: int) -> set[str]:
        found: set[str] = set()
        while begin < end:
            found.add(self._texts[begin])
            begin = max(begin, self._match[begin]) + 1
        return found

    def _is_chain(self, begin: int, end: int) -> bool:
        """Whether an expression is a name with indices and members."""
        if begin >= end or self._syntax.tokens[begin].kind != IDENTIFIER:
            return False
        return self._chain_end(begin, end) == end

    def _chain_end(self, begin: int, end: int) -> int:
        at = begin + 1
        while at < end and self._texts[at] in ("[", ".", "->"):
            at = self._match[at] + 1 if self._texts[at] == "[" else at + 2
        return at

    def _chain(self, function: Function, begin: int, end: int) -> tuple[_Variable, int]:
        """What a name with indices and members denotes, and where it ends."""
        texts = self._texts
        if begin >= end or self._syntax.tokens[begin].kind != IDENTIFIER:
            return _UNCLEAR, begin
        finish = self._chain_end(begin, end)
        variable = self._variable(function, texts[begin])
        at = begin + 1
        while at < finish and variable.space:
            if texts[at] == "[":
                if not variable.pointer and (not variable.plain or self._indexed_by_function):
                    return _UNCLEAR, finish
                type_ = variable.type if variable.pointer else ()
                variable = _Variable(variable.space, False, variable.plain, type_)
                at = self._match[at] + 1
                continue
            if (texts[at] == "->") != variable.pointer or texts[at + 1] not in self._plain_members:
                return _UNCLEAR, finish
            variable = _Variable(variable.space, False, True)
            at += 2
        return variable, finish

    def _variable(self, function: Function, name: str) -> _Variable:
        known = self._variables.get(function.name_at)
        if known is None:
            known = self._variables[function.name_at] = self._declared(function)
        if name in known:
            return known[name]
        hidden = function.in_struct and name in self._members
        return _UNCLEAR if hidden else self._constants.get(name, _UNCLEAR)

    def _declared(self, function: Function) -> dict[str, _Variable]:
        """The parameters and variables of a function."""
        known: dict[str, _Variable] = {}
        self._parameters(function.opening, known)
        texts, match = self._texts, self._match
        for index in range(*(function.body or (0, 0))):
            text = texts[index]
            after_head = text == ")" and texts[match[index] - 1] in _HEADS
            if text in (";", "{", "}", ":", "else", "do") or after_head or (text == "(" and texts[index - 1] in _HEADS):
                self._statement(index + 1, known)
            elif text == "]" and texts[index + 1] == "(":
                self._parameters(index + 1, known)  # perhaps of a lambda
            elif text == "[" and texts[index - 1] in ("auto", "&", "&&"):
                for at in range(index, match[index]):  # perhaps names for the parts of something
                    if self._syntax.tokens[at].kind == IDENTIFIER:
                        known[texts[at]] = _UNCLEAR
        return known

    def _parameters(self, opening: int, known: dict[str, _Variable]) -> None:
        for begin, end in self._syntax.split(opening + 1, self._match[opening]):
            self._declarator(begin, end, (), known, is_parameter=True)

    def _statement(self, begin: int, known: dict[str, _Variable]) -> None:
        """What a declaration at ``begin`` declares, if one is there."""
        texts, match = self._texts, self._match
        shared: tuple[str, ...] = ()
        end = self._syntax.count
        while True:
            found = self._declarator(begin, end, shared, known)
            if found is None:
                return
            at, words = found
            if not shared:
                first = next((place for place, word in enumerate(words) if word in ("*", "&", "&&")), len(words))
                shared = words[:first]
            while texts[at] not in (",", ";", ")", "}", ":", "end") and at < end:
                at = max(at, match[at]) + 1
            if texts[at] != ",":
                return
            begin = at + 1

    def _declarator(
        self, begin: int, end: int, shared: tuple[str, ...], known: dict[str, _Variable], is_parameter: bool = False
    ) -> tuple[int, tuple[str, ...]] | None:
        """Notes the variable that is declared at ``begin``; returns what is behind its name, and the words before."""
        texts, syntax = self._texts, self._syntax
        if texts[begin] in _NEVER_DECLARES:
            return None
        words = list(shared)
        name_at, at = -1, begin
        while at < end:
            text = texts[at]
            if syntax.is_attribute(at):
                at = self._match[at] + 1
                continue
            if text == "<" and name_at == at - 1:
                closing = syntax.angle_end(at, end)
                if closing is None:
                    return None
                words += ["auto"] if {"*", "&"} & {*texts[at:closing]} else []
                at = closing + 1
                continue
            if syntax.tokens[at].kind == IDENTIFIER:
                name_at = at
            elif text not in ("::", "*", "&", "&&"):
                break
            words.append(text)
            at += 1
        if name_at < 0 or (name_at != at - 1 and not syntax.is_attribute(name_at + 1)):
            return None
        words.pop()
        types = [word for word in words if word not in ADDRESS_SPACES and word not in ("*", "&", "&&", "::")]
        if not types or (at < end and texts[at] not in _AFTER_NAMES):
            return None
        variable = self._of_words(words, is_parameter and at < end and texts[at] == "[")
        name = texts[name_at]
        known[name] = variable if known.get(name, variable) == variable else _UNCLEAR
        return at, tuple(words)

    def _of_words(self, words: list[str], decays: bool) -> _Variable:
        """A variable by the words before its name; ``decays`` says that it is an array as a parameter."""
        spaces = [word for word in words if word in ADDRESS_SPACES]
        indirections = [word for word in words if word in ("*", "&", "&&")] + ["*"] * decays
        plain = not self._may_point({*words} - {"*", "&", "&&"})
        if len(spaces) > 1 or len(indirections) > 1 or (indirections and not spaces):
            return _UNCLEAR
        type_ = tuple(word for word in words if word not in _NO_TYPES and word not in spaces)
        return _Variable(spaces[0] if spaces else "thread", indirections == ["*"], plain, type_)
