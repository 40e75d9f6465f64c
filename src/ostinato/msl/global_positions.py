"""Positions of threads that are declared outside all functions: ``uint i [[thread_position_in_grid]];``.

Metal 3.1 calls them global built-in variables. Each kernel that may read one gets a parameter of its name, and hands it
to the functions that it calls, which get it as their first parameter. It goes by the names of functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..errors import UnsupportedFeature
from .convergence import closure
from .convergent_calls import find_calls
from .declarations import Declarations, Function, Variable, parse_declarations
from .kernels import THREAD_ATTRIBUTES, is_kernel
from .overloads import formal_parameters
from .syntax import ADDRESS_SPACES, BEFORE_EXPRESSIONS, Syntax
from .tokens import IDENTIFIER, PUNCTUATION, Token, fail

_NOT_IN_PARAMETERS = ADDRESS_SPACES | {"static", "extern", "const", "inline"}


def with_positions_as_parameters(syntax: Syntax) -> Syntax:
    """The source with parameters in place of the positions that it declares outside all functions."""
    texts = syntax.texts
    if not any(text in THREAD_ATTRIBUTES and texts[at : at + 3] == ["]", "]", ";"] for at, text in enumerate(texts, 1)):
        return syntax
    declarations = parse_declarations(syntax)
    positions = [variable for variable in declarations.variables if _is_position(variable)]
    return _Rewriting(syntax, declarations, positions).result() if positions else syntax


def _is_position(variable: Variable) -> bool:
    return not variable.in_struct and any(attribute.name in THREAD_ATTRIBUTES for attribute in variable.attributes)


class _Rewriting:
    def __init__(self, syntax: Syntax, declarations: Declarations, positions: list[Variable]) -> None:
        self._syntax, self._declarations, self._positions = syntax, declarations, positions
        self._inserted: dict[int, list[Token]] = {}
        """What stands behind each token."""
        self._kernels = {function.name for function in declarations.functions if is_kernel(syntax, function)}
        self._left_out = {at for variable in positions for at in range(variable.start, variable.end)}
        self._needed: dict[str, list[str]] = {}
        """The positions that each function reads, by its name."""

    def result(self) -> Syntax:
        self._find_needs()
        for function in self._declarations.functions:
            self._declare(function.opening, function.name)
            hidden = [name for name in self._needed.get(function.name, ()) if name in self._own_names(function)]
            if hidden or (self._needed.get(function.name) and function.special):
                raise self._unsupported(function, hidden)
        for instantiation in self._declarations.instantiations:
            if instantiation.opening is not None:
                self._declare(instantiation.opening, instantiation.name)
        self._pass()
        tokens: list[Token] = []
        for index, token in enumerate(self._syntax.tokens[: self._syntax.count]):
            if index not in self._left_out:
                tokens.append(token)
            tokens += self._inserted.get(index, ())
        return Syntax(tokens)

    def _find_needs(self) -> None:
        callers: dict[str, set[str]] = {}
        reading: dict[str, set[str]] = {}
        names = {variable.name for variable in self._positions}
        for function in self._declarations.functions:
            own = self._own_names(function)
            for index in self._mentions(function):
                text = self._syntax.texts[index]
                if text not in names:
                    callers.setdefault(text, set()).add(function.name)
                elif text not in own:
                    reading.setdefault(text, set()).add(function.name)
        functions = {function.name for function in self._declarations.functions}
        for variable in self._positions:
            for name in closure(frozenset(reading.get(variable.name, ())), callers) & functions:
                self._needed.setdefault(name, []).append(variable.name)

    def _mentions(self, function: Function) -> Iterator[int]:
        """The words in a function that are no members and no attributes."""
        syntax = self._syntax
        index, end = function.closing, function.body[1] if function.body else function.closing
        while index < end:
            if syntax.is_attribute(index):
                index = syntax.match[index]
            elif syntax.tokens[index].kind == IDENTIFIER:
                yield index
            index += 1

    def _own_names(self, function: Function) -> set[str]:
        """The parameters and variables of a function, as far as they have names of positions."""
        syntax, names = self._syntax, {variable.name for variable in self._positions}
        own = {each.name for each in formal_parameters(syntax, function)}
        for index in range(*(function.body or (0, 0))):
            before, after = syntax.tokens[index - 1], syntax.texts[index + 1]
            if syntax.texts[index] in names and before.kind == IDENTIFIER and after in ("=", ";", ",", "{", "[", ":"):
                own |= {syntax.texts[index]} if before.text not in BEFORE_EXPRESSIONS else set()
        return own & names

    def _unsupported(self, function: Function, hidden: list[str]) -> Exception:
        token = self._syntax.tokens[function.name_at]
        what = (
            f"{hidden[0]!r}, which it declares too" if hidden else "a thread's position, as an operator or constructor"
        )
        return fail(f"{function.name!r} needs {what}; pass the position as an argument", token, UnsupportedFeature)

    def _declare(self, opening: int, name: str) -> None:
        """Adds the parameters of a function: the first ones, but the last ones of a kernel."""
        syntax, needed = self._syntax, self._needed.get(name, ())
        if not needed:
            return
        closing = syntax.match[opening]
        if syntax.texts[opening + 1 : closing] == ["void"]:
            self._left_out.add(opening + 1)
        empty = all(at in self._left_out for at in range(opening + 1, closing))
        in_kernel = name in self._kernels
        parts = []
        for variable in self._positions:
            if variable.name in needed:
                tokens = syntax.tokens[variable.start : variable.end - 1 if in_kernel else variable.name_at + 1]
                parts.append([token for token in tokens if token.text not in _NOT_IN_PARAMETERS])
        self._insert(closing - 1 if in_kernel else opening, parts, in_kernel and not empty, not in_kernel and not empty)

    def _pass(self) -> None:
        """Passes the positions to the functions that take them."""
        names = self._needed.keys() - self._kernels
        for index, opening in find_calls(self._syntax, self._declarations, names).openings.items():
            here = self._syntax.tokens[index]
            parts = [[replace(here, text=name, spaced=True)] for name in self._needed[self._syntax.texts[index]]]
            empty = self._syntax.match[opening] == opening + 1
            self._insert(opening, parts, False, not empty)

    def _insert(self, at: int, parts: list[list[Token]], before: bool, behind: bool) -> None:
        comma = replace(self._syntax.tokens[at], kind=PUNCTUATION, text=",", unroll="")
        joined = [token for part in parts for token in (comma, *part)]
        self._inserted.setdefault(at, []).extend([*joined[not before :], *([comma] if behind else [])])
