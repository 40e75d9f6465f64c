"""The layout of the structs of a source: names, types and offsets of their fields, as far as the source determines it.

Other structs have no layout (None): templates, unions, and structs with a base class, an alignment or attribute of
their own, a bit-field, a pointer, or a field of a type that only a compiler knows. Nothing is guessed; the size is
compared with the compiled size before a layout is used (`CompiledKernel.argument_bytes`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .constant_expression import NotConstant, Value, evaluate, whole
from .reflect import SCALAR_BYTES, SCALARS, element_type
from .syntax import Syntax
from .tokens import IDENTIFIER, Token

_MATRIX = re.compile(r"(half|float)([234])x([234])")
_MOST_ELEMENTS = 1 << 20
_MOST_DIMENSIONS = 30
"""NumPy's limit is 32."""
_MOST_FIELDS = 4096
"""Limit of fields in a struct, including those of nested structs, which bounds the work on them."""
_DEEPEST = 32
_WITHOUT_STORAGE = frozenset("using typedef static_assert friend template static constexpr".split())


class _Unknown(Exception):
    """The struct has a part that only a compiler can lay out."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field: its offset and its type."""

    name: str
    offset: int
    nbytes: int
    """Total size, with inner padding."""
    shape: tuple[int, ...]
    """Extents of its array, or the number of columns of a matrix; () for a single value."""
    scalar: str | None
    """NumPy's name of its scalars; None if it holds structs."""
    lanes: int = 1
    """Elements of a vector."""
    struct: StructLayout | None = None

    @property
    def stride(self) -> int:
        """Bytes from one element of its array to the next."""
        return self.nbytes // math.prod(self.shape)

    @property
    def type(self) -> str:
        """Its type as text."""
        lanes = f" × {self.lanes}" if self.lanes > 1 else ""
        inside = self.scalar if self.struct is None else f"struct {self.struct.name}"
        return f"{inside}{lanes}{''.join(f'[{extent}]' for extent in self.shape)}"


@dataclass(frozen=True, slots=True)
class StructLayout:
    """The layout of a struct in memory."""

    name: str
    nbytes: int
    alignment: int
    fields: tuple[Field, ...]


class StructLayouts:
    """The structs of a source, laid out on request."""

    def __init__(
        self, syntax: Syntax, aliases: Mapping[str, Sequence[Token]], constant: Callable[[str], Value]
    ) -> None:
        self._syntax = syntax
        self._aliases = aliases
        self._constant = constant
        self._bodies = self._find()
        self._known: dict[str, StructLayout | None] = {}
        self._field_counts: dict[str, int] = {}

    def of(self, name: str) -> StructLayout | None:
        """The layout of a struct, by its name in the source; None if it is not known."""
        try:
            return self._lay_out(name, ())
        except _Unknown:
            return None

    def _find(self) -> dict[str, int | None]:
        """Where the body of each struct opens; None for structs that cannot be laid out."""
        texts, tokens, match = self._syntax.texts, self._syntax.tokens, self._syntax.match
        bodies: dict[str, int | None] = {}
        for index in range(self._syntax.count):
            if texts[index] not in ("struct", "class"):
                continue
            named = tokens[index + 1].kind == IDENTIFIER
            opening = index + (2 if named else 1)
            if texts[opening] == "final":
                opening += 1
            if texts[opening] != "{":
                continue
            plain = index == 0 or texts[index - 1] in (";", "}", "{", "typedef", ":", "const", '"C"')
            after = match[opening] + 1
            names = [texts[index + 1]] if named else []
            if tokens[after].kind == IDENTIFIER and texts[after + 1] == ";":
                names.append(texts[after])
            elif texts[after] != ";":
                plain = False
            for name in dict.fromkeys(names):
                bodies[name] = None if name in bodies or not plain else opening
        return bodies

    def _lay_out(self, name: str, outer: tuple[str, ...]) -> StructLayout:
        if name not in self._known:
            try:
                self._known[name] = self._laid_out(name, outer)
            except (_Unknown, NotConstant):
                self._known[name] = None
        known = self._known[name]
        if known is None:
            raise _Unknown
        return known

    def _laid_out(self, name: str, outer: tuple[str, ...]) -> StructLayout:
        opening = self._bodies.get(name)
        if opening is None or name in outer or len(outer) >= _DEEPEST:
            raise _Unknown
        fields: list[Field] = []
        at, alignment, count = 0, 1, 0
        for field_name, type_tokens, shape in self._members(opening + 1, self._syntax.match[opening]):
            scalar, lanes, inner_shape, nbytes, needed, struct = self._element(type_tokens, (*outer, name))
            extents = shape + inner_shape
            count += 1 if struct is None else self._field_counts[struct.name]
            if math.prod(extents) > _MOST_ELEMENTS or any(extent < 1 for extent in extents) or count > _MOST_FIELDS:
                raise _Unknown
            if len(extents) > _MOST_DIMENSIONS:
                raise _Unknown
            at = -(-at // needed) * needed
            whole_bytes = nbytes * math.prod(extents)
            fields.append(Field(field_name, at, whole_bytes, extents, scalar, lanes, struct))
            at += whole_bytes
            alignment = max(alignment, needed)
        if not fields:
            raise _Unknown
        self._field_counts[name] = count
        return StructLayout(name, -(-at // alignment) * alignment, alignment, tuple(fields))

    def _element(
        self, tokens: Sequence[Token], outer: tuple[str, ...]
    ) -> tuple[str | None, int, tuple[int, ...], int, int, StructLayout | None]:
        """Scalar, lanes, own extents, bytes and alignment of one element, and its struct."""
        element = element_type(tokens, self._aliases, {})
        if matrix := _MATRIX.fullmatch(element.name):
            columns, rows = int(matrix[2]), int(matrix[3])
            column_bytes = SCALAR_BYTES[SCALARS[matrix[1]]] * (4 if rows == 3 else rows)
            return SCALARS[matrix[1]], rows, (columns,), column_bytes, column_bytes, None
        if element.scalar is None:
            struct = self._lay_out(element.name, outer)
            return None, 1, (), struct.nbytes, struct.alignment, struct
        if "matrix" in element.name or re.search(r"\dx\d", element.name):
            raise _Unknown
        scalar_bytes = SCALAR_BYTES[element.scalar]
        if element.name.startswith("packed_"):
            return element.scalar, element.lanes, (), scalar_bytes * element.lanes, scalar_bytes, None
        nbytes = scalar_bytes * (4 if element.lanes == 3 else element.lanes)
        return element.scalar, element.lanes, (), nbytes, nbytes, None

    def _members(self, index: int, end: int) -> list[tuple[str, list[Token], tuple[int, ...]]]:
        """Name, type and extents of each field between two tokens; functions and nested types are skipped."""
        texts = self._syntax.texts
        members: list[tuple[str, list[Token], tuple[int, ...]]] = []
        while index < end:
            if texts[index] == ";":
                index += 1
            elif texts[index] in ("public", "private", "protected") and texts[index + 1] == ":":
                index += 2
            elif texts[index] in ("struct", "class", "enum") and self._defines_a_type(index, end):
                index = self._syntax.statement_end(index, end) + 1
            elif texts[index] == "union":
                raise _Unknown
            else:
                closing, function = self._statement(index, end)
                declared = texts[index : next((at for at in range(index, closing) if texts[at] == "="), closing)]
                if not function and _WITHOUT_STORAGE.isdisjoint(declared):
                    members += self._fields(index, closing)
                index = closing + 1
        return members

    def _defines_a_type(self, index: int, end: int) -> bool:
        """Whether a declaration that begins with `struct`, `class` or `enum` declares a type rather than a field."""
        texts, match = self._syntax.texts, self._syntax.match
        closing = self._syntax.statement_end(index, end)
        opening = next((at for at in range(index, closing) if texts[at] == "{"), None)
        if opening is None:
            return closing - index == 2
        if match[opening] + 1 != closing or (texts[index + 1] == "{" and texts[index] != "enum"):
            raise _Unknown
        return True

    def _statement(self, index: int, end: int) -> tuple[int, bool]:
        """The last token of a member's declaration, and whether it is a function."""
        texts, match, tokens = self._syntax.texts, self._syntax.match, self._syntax.tokens
        function = initialised = False
        while index < end:
            text = texts[index]
            if text == ";":
                return index, function
            if text == "operator":
                function = True
                index += 1  # to its name, of which `=` initialises nothing
            elif text == "=":
                initialised = True
            elif text == "(":
                function = function or not initialised
                index = match[index]
            elif text == ":" and function:
                initialised = True  # in a constructor, braces behind a name initialise a member; they are not the body
            elif text == "{":
                if function and not (initialised and tokens[index - 1].kind == IDENTIFIER):
                    return match[index], True
                index = match[index]
            elif text == "[":
                index = match[index]
            index += 1
        raise _Unknown

    def _fields(self, begin: int, end: int) -> list[tuple[str, list[Token], tuple[int, ...]]]:
        texts, tokens, match = self._syntax.texts, self._syntax.tokens, self._syntax.match
        base: list[Token] = []
        members: list[tuple[str, list[Token], tuple[int, ...]]] = []
        for first, last in self._syntax.split(begin, end):
            stop = next((at for at in range(first, last) if texts[at] in ("=", "{")), last)
            extents: list[int] = []
            while stop > first and texts[stop - 1] == "]":
                opening = match[stop - 1]
                extents.insert(0, whole(evaluate(tokens[opening + 1 : stop - 1], self._constant)))
                stop = opening
            name_at = stop - 1
            if name_at < first or tokens[name_at].kind != IDENTIFIER:
                raise _Unknown
            if not members:
                base = tokens[first:name_at]
            elif name_at != first:
                raise _Unknown
            unknown = {"*", "&", ":", "[", "alignas", "__attribute__", "union"}
            if not base or any(token.text in unknown for token in base):
                raise _Unknown
            members.append((texts[name_at], base, tuple(extents)))
        return members
