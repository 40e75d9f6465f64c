"""MSL tokens to C++ text.

Address spaces are removed or become ``const``, attributes are removed, literals get their Metal types, function
constants get their values. Convergent calls get a hidden first argument, their site. The target defines what that is,
what else its C++ needs (`Dialect`), and the entry points that are appended.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from .compound_literals import rewrite_compound_literals
from .constant_expression import Value
from .convergence import BUILTINS, Convergence
from .declarations import Declarations, Function
from .element_designators import rewrite_case_ranges, rewrite_element_designators
from .extended_vectors import rewrite_extended_vectors
from .kernels import Parameter, is_kernel
from .log_calls import LogCall, rewrite_log_calls
from .opaque_enums import rewrite_opaque_enums
from .overloads import merge_overloads, mutators
from .regions import SourceNames, split_at_barriers
from .rewriter import Rewriter
from .storage import refuse_storage_outside_kernels, rewrite_storage
from .syntax import ADDRESS_SPACES, Syntax
from .tokens import IDENTIFIER, NUMBER, fail
from .vector_sizes import rewrite_vector_sizes

_SWIZZLE = re.compile(r"[xyzw]{2,4}|[rgba]{2,4}")
_FLOATING = re.compile(r"(?:[0-9']*\.[0-9']*|[0-9']+(?=[eE]))(?:[eE][+-]?[0-9]+)?|0[xX][0-9a-fA-F.']*[pP][+-]?[0-9]+")
_LONGEST_NAME = 64
"""Tokens of a name with its namespaces."""
_SMALLEST_NORMAL = 2.0**-126
_STORAGE_WORDS = frozenset({"constant", "const", "static", "constexpr", "inline"})


def literal(text: str) -> str:
    """A numeric literal with Metal's meaning: no suffix means float, never double."""
    lower = text.lower()
    hexadecimal = lower.startswith("0x")
    if hexadecimal and "p" not in lower:
        return text
    if not hexadecimal and not any(mark in lower for mark in ".eh") and not lower.endswith("f"):
        return text
    for suffix, type_name in (("bf", "bfloat"), ("h", "half")):
        if lower.endswith(suffix):
            digits = text[: -len(suffix)]
            return f"{type_name}({digits if any(m in digits for m in '.eEpP') else digits + '.0'}f)"
    if lower.endswith("f") and not hexadecimal:
        return _exact(text) if any(mark in lower for mark in ".e") else f"{text[:-1]}.0f"
    if not _FLOATING.fullmatch(text):
        return text
    return text + "f" if hexadecimal else _exact(text + "f")


def _exact(text: str) -> str:
    """A decimal literal too small for a normal float, rounded here, since not every compiler rounds it correctly."""
    if "e-" not in text.lower():
        return text
    value = float(text.rstrip("fF"))
    return f"{_rounded(value).hex()}f" if 0 < value < _SMALLEST_NORMAL else text


def _rounded(value: float) -> float:
    """The nearest value that a float can have."""
    rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return rounded


def asked_constant(syntax: Syntax, index: int) -> str:
    """The function constant that the ``is_function_constant_defined(`` at ``index`` asks for."""
    closing = syntax.match[index + 1]
    if not index + 2 < closing < index + _LONGEST_NAME:
        raise fail("is_function_constant_defined takes the name of a function constant", syntax.tokens[index])
    return "".join(syntax.texts[index + 2 : closing])


def _swizzle_places(name: str) -> list[int]:
    return ["xyzw".find(letter) if letter in "xyzw" else "rgba".find(letter) for letter in name]


def swizzle_macros(syntax: Syntax) -> str:
    """Defines the swizzle members the source uses, per vector width, for the shim's vectors."""
    used = {
        text
        for index, text in enumerate(syntax.texts)
        if index and syntax.texts[index - 1] in (".", "->") and _SWIZZLE.fullmatch(text)
    }
    lines = []
    for width in (2, 3, 4):
        parts = []
        for name in sorted(used):
            places = _swizzle_places(name)
            if max(places) < width:
                parts.append(f"S({len(name)}, {name}, {', '.join(map(str, places))})")
        lines.append(f"#define __OST_SWIZZLES_{width}(S) {' '.join(parts)}\n")
    return "".join(lines)


@dataclass(frozen=True, slots=True)
class Dialect:
    """What the C++ of a target needs beyond MSL."""

    kernel_parameters: str
    """Hidden first parameters of every kernel."""
    arena: str
    """The block of threadgroup memory, inside a kernel."""
    enter_namesake: str
    """The start of the body of a user's function with the name of a convergent function of MSL."""
    rewrite_types: Callable[[Syntax, Declarations, Rewriter], None]
    """Rewrites the source for the target's own scalar types and names."""
    mark_sites: Callable[[Syntax, Declarations, Convergence, Rewriter, Collection[int]], None]
    """Writes the hidden arguments of convergent calls, except in the kernels at the positions passed."""


class Translator:
    """Rewrites one source; ``layouts`` then names the layout function of each kernel with threadgroup variables."""

    def __init__(
        self,
        syntax: Syntax,
        declarations: Declarations,
        convergence: Convergence,
        dialect: Dialect,
        parameters: Mapping[int, tuple[Sequence[Parameter], frozenset[str]]] | None = None,
        log_calls: Sequence[LogCall] = (),
        active: Collection[int] = (),
    ) -> None:
        self.syntax = syntax
        self.declarations = declarations
        self.convergence = convergence
        self.rewriter = Rewriter(syntax.tokens)
        self.dialect = dialect
        self.parameters = parameters or {}
        """Kernels that may be split, by the position of their names: their parameters and small template types."""
        self._constants = frozenset(variable.name for variable in declarations.variables if not variable.in_struct)
        self._mutators = mutators(syntax, declarations)
        self._log_calls, self._active = log_calls, active
        self.layouts: dict[int, str] = {}
        self.split: set[int] = set()
        """Kernels that run as loops between barriers."""
        self.unsplit: dict[int, str] = {}
        """Why other kernels were not split."""

    def run(self, constants: Mapping[str, str | None]) -> str:
        """The C++ text; ``constants`` gives the C++ value of each function constant, None when it is not defined."""
        self._words()
        rewrite_compound_literals(self.syntax, self.rewriter)
        rewrite_opaque_enums(self.syntax, self.rewriter)
        self._swizzles()
        self._shifts()
        self._globals(constants)
        rewrite_extended_vectors(self.syntax, self.rewriter)
        rewrite_vector_sizes(self.syntax, self.declarations, self.rewriter)
        self.dialect.rewrite_types(self.syntax, self.declarations, self.rewriter)
        rewrite_log_calls(self.rewriter, self._log_calls, self._active)
        # From here on text is copied and deleted, so every other edit of expressions comes first.
        self._range_initialisers()
        rewrite_case_ranges(self.syntax, self.declarations, self.rewriter)
        rewrite_element_designators(self.syntax, self.declarations, self.rewriter)
        self._specialisations()
        merge_overloads(self.syntax, self.declarations, self.rewriter)
        self._functions()
        self.dialect.mark_sites(self.syntax, self.declarations, self.convergence, self.rewriter, self.split)
        self._layouts()
        for instantiation in self.declarations.instantiations:
            self.rewriter.delete(instantiation.start, instantiation.end)
        return self.rewriter.render()

    # -- words ------------------------------------------------------------------------------------------------------

    def _words(self) -> None:
        syntax, rewriter = self.syntax, self.rewriter
        index = 0
        while index < len(syntax.tokens):
            token = syntax.tokens[index]
            if token.text == "[" and syntax.is_attribute(index):
                rewriter.delete(index, syntax.match[index] + 1)
                index = syntax.match[index] + 1
                continue
            if token.kind == NUMBER:
                rewriter.replace(index, literal(token.text))
            elif token.kind == IDENTIFIER:
                if token.text == "constant":
                    rewriter.replace(index, "" if self._is_const_already(index) else "const")
                elif token.text in ADDRESS_SPACES or token.text == "kernel":
                    rewriter.replace(index, "")
                elif token.text == "const" and syntax.texts[index - 1] == "static":
                    # Computed at compile time, never by the first thread that uses it.
                    rewriter.replace(index, "constexpr")
            index += 1
        for linkage in self.declarations.linkages.values():
            for index in linkage:
                rewriter.delete(index)
        for internal in self.declarations.internals.values():
            rewriter.delete(*internal)  # the shim has its own

    def _range_initialisers(self) -> None:
        """``T x[n] = {[0 ... n - 1] = v};`` is an extension that not every C++ compiler has; a loop is plain C++."""
        texts, match, rewriter = self.syntax.texts, self.syntax.match, self.rewriter
        for index, text in enumerate(texts):
            if (
                text != "..."
                or rewriter.is_deleted(index)
                or texts[index - 2] != "["
                or texts[index - 3] != "{"
                or texts[index - 4] != "="
            ):
                continue
            brace, bracket, equals = index - 3, index - 2, index - 4
            name_at = equals - 1
            while texts[name_at] == "]":
                name_at = match[name_at] - 1
            if texts[match[bracket] + 1] != "=" or texts[match[brace] + 1] != ";":
                continue
            value = rewriter.inline(match[bracket] + 2, match[brace])
            rewriter.delete(equals, match[brace] + 1)
            name = rewriter.inline(name_at, name_at + 1)
            rewriter.after(match[brace] + 1, f"for (auto &__ost_element : {name}) __ost_element = {value};")

    def _swizzles(self) -> None:
        """A swizzle that is read becomes a vector; a swizzle that is written stays a view of its vector."""
        texts, match = self.syntax.texts, self.syntax.match
        members = {variable.name for variable in self.declarations.variables if variable.in_struct}
        in_constant = bytearray(len(texts))
        for variable in self.declarations.variables:
            if variable.initialiser:
                begin, end = variable.initialiser
                in_constant[begin + 1 : end] = b"\1" * (end - begin - 1)
        for index, text in enumerate(texts):
            if texts[index - 1] not in (".", "->") or not _SWIZZLE.fullmatch(text):
                continue
            if texts[index - 1] == "." and text not in members and in_constant[index]:
                places = ", ".join(str(place) for place in _swizzle_places(text))
                self.rewriter.before(self.syntax.postfix_start(index), f"__ost::pick<{places}>(", outermost=True)
                self.rewriter.replace(index - 1, "")
                self.rewriter.replace(index, ")")
                continue
            after = index + 1
            while texts[after] == "[":
                after = match[after] + 1
            start = self.syntax.postfix_start(index)
            if self.syntax.assigns(after) or texts[start - 1] in ("++", "--") or texts[index + 1] == "(":
                continue
            self.rewriter.before(start, "__ost::value(", outermost=True)
            self.rewriter.after(index, ")")

    def _shifts(self) -> None:
        """Inside functions, shift amounts that are not plain numbers are masked to the width of the operand."""
        texts, tokens = self.syntax.texts, self.syntax.tokens
        for function in self.declarations.functions:
            if function.body is None:
                continue
            open_lists = self._open_lists(*function.body)
            for index in range(*function.body):
                last = index
                if texts[index] == ">" and texts[index + 1] in (">", ">=") and not tokens[index + 1].spaced:
                    if open_lists[index] >= 2:
                        continue
                    last = index + 1
                elif texts[index] not in ("<<", "<<="):
                    continue
                if tokens[last + 1].kind == NUMBER and texts[last + 2] not in ("*", "/", "%", "+", "-"):
                    continue
                self.rewriter.after(last, "__ost::by *")

    def _open_lists(self, begin: int, end: int) -> dict[int, int]:
        """For each ``>``, how many ``<`` before it, in its statement and brackets, may still be open."""
        texts = self.syntax.texts
        open_before: dict[int, int] = {}
        around: list[int] = []
        still_open = 0
        for index in range(begin, end):
            text = texts[index]
            if text == "<":
                still_open += 1
            elif text == ">":
                open_before[index] = still_open
                still_open = max(0, still_open - 1)
            elif text in ("(", "[", "{"):
                around.append(still_open)
                still_open = 0
            elif text in (")", "]", "}"):
                still_open = around.pop()
            elif text == ";":
                still_open = 0
        return open_before

    def _is_const_already(self, index: int) -> bool:
        """Whether ``const`` (or an earlier ``constant``) stands in the same run of specifiers."""
        texts = self.syntax.texts
        for step, words in ((-1, ("const", "constant")), (1, ("const",))):
            at = index + step
            while 0 <= at < len(texts) and (self.syntax.tokens[at].kind == IDENTIFIER or texts[at] == "::"):
                if texts[at] in words:
                    return True
                at += step
        return False

    # -- globals ----------------------------------------------------------------------------------------------------

    def _after_templates(self, index: int) -> int:
        while self.syntax.texts[index] == "template":
            index = (self.syntax.angle_end(index + 1) or index) + 1
        return index

    def _globals(self, constants: Mapping[str, str | None]) -> None:
        texts, rewriter = self.syntax.texts, self.rewriter
        for variable in self.declarations.variables:
            start = self._after_templates(variable.start)
            words = texts[start : variable.name_at]
            if words and words[-1] == "::":
                # A static member's definition outside its class; C++17 needs none and allows no `static` here.
                rewriter.delete(variable.start, variable.end)
                continue
            if variable.in_struct and "static" not in words and "constexpr" not in words:
                continue
            pointer = "*" in words
            for index in range(start, variable.name_at):
                if texts[index] in _STORAGE_WORDS and not (pointer and texts[index] in ("constant", "const")):
                    rewriter.replace(index, "")
            rewriter.before(start, "static constexpr")
            if any(attribute.name == "function_constant" for attribute in variable.attributes):
                value = constants.get(variable.name)
                rewriter.after(variable.name_at, f"= {'{}' if value is None else value}")
        for index, text in enumerate(texts):
            if text == "is_function_constant_defined" and texts[index + 1] == "(":
                closing = self.syntax.match[index + 1]
                defined = constants.get(asked_constant(self.syntax, index)) is not None
                rewriter.delete(index, closing + 1)
                rewriter.replace(index, "true" if defined else "false")
                start = index - 1
                while start > 0 and texts[start] == "::":
                    rewriter.delete(start - 1, start + 1)
                    start -= 2

    def _specialisations(self) -> None:
        """Not every C++ compiler finds a class template to specialise by a ``using namespace metal``."""
        for specialisation in self.declarations.specialisations:
            name_at = specialisation.arguments[0] - 1
            own = specialisation.name in self.declarations.own_structs
            if not own and not specialisation.scope and self.syntax.texts[name_at - 1] != "::":
                self.rewriter.before(name_at, "metal::")

    # -- functions --------------------------------------------------------------------------------------------------

    def _member_function(self, function: Function) -> None:
        """What not every C++ compiler allows in a class: address spaces on constructors, full specialisations."""
        texts, rewriter = self.syntax.texts, self.rewriter
        end = function.body[0] if function.body is not None else function.end
        if function.name == function.scope[-1]:
            for index in range(function.closing, end):
                if texts[index] == "constant":
                    rewriter.replace(index, "")
        if function.templates and not any(header.parameters for header in function.templates):
            # As an ordinary overload it is preferred to the template wherever the arguments can be deduced.
            for header in function.templates:
                rewriter.delete(header.start, header.end + 1)
            if not function.name.startswith("operator"):
                rewriter.delete(function.name_at + 1, function.opening)

    def _functions(self) -> None:
        texts, rewriter = self.syntax.texts, self.rewriter
        for function in self.declarations.functions:
            if function.in_struct:
                self._member_function(function)
            empty = function.closing == function.opening + 1 or texts[function.opening + 1 : function.closing] == [
                "void"
            ]
            comma = "" if empty else ","
            if is_kernel(self.syntax, function):
                if texts[function.opening + 1 : function.closing] == ["void"]:
                    rewriter.replace(function.opening + 1, "")
                rewriter.after(function.opening, f"{self.dialect.kernel_parameters}{comma}")
                if function.body is not None and function.name_at in self.parameters:
                    formal, small_types = self.parameters[function.name_at]
                    names = SourceNames(self._constants, self._mutators, small_types)
                    unclear = split_at_barriers(self.syntax, rewriter, function, formal, self.convergence, names)
                    if unclear is None:
                        self.split.add(function.name_at)
                    else:
                        self.unsplit[function.name_at] = unclear
                start = self._after_templates(function.start)
                if "static" not in texts[start : function.name_at]:
                    rewriter.before(start, "static")
            else:
                inlines = [at for at in range(function.start, function.name_at) if texts[at] == "inline"]
                for again in inlines[1:]:
                    rewriter.replace(again, "")
                if function.name in BUILTINS:
                    rewriter.after(function.opening, f"__ost::Site __ost_site{comma}")
                    if function.body is not None:
                        rewriter.after(function.body[0], self.dialect.enter_namesake)
                if function.body is not None:
                    refuse_storage_outside_kernels(self.syntax, function)
                    if not function.templates and "constexpr" in texts[function.start : function.name_at]:
                        self._may_never_be_constant(function.body)

    def _may_never_be_constant(self, body: tuple[int, int]) -> None:
        """Lets a constexpr function call functions that are not, which only some compilers take."""
        begin, end = body
        self.rewriter.after(begin, "__OST_IF_EVALUATED {")
        self.rewriter.before(end, "}", outermost=True)

    def _layouts(self) -> None:
        for number, function in enumerate(self.declarations.functions):
            if function.body is not None and is_kernel(self.syntax, function):
                layout = rewrite_storage(self.syntax, self.rewriter, function, number, self.dialect.arena)
                if layout is not None:
                    scope = "".join(f"{name}::" for name in function.scope if name)
                    self.layouts[function.name_at] = scope + layout


def constant_text(scalar: str, value: Value) -> str:
    """A C++ expression for a function constant's value."""
    if scalar == "bool":
        return "true" if value else "false"
    if scalar in ("float32", "float16", "bfloat16"):
        number = float(value)
        if number != number:
            text = '__builtin_nanf("")'
        elif number in (float("inf"), float("-inf")):
            text = f"({'-' if number < 0 else ''}__builtin_inff())"
        else:
            text = f"({_rounded(number).hex()}f)"
        return text if scalar == "float32" else f"{'half' if scalar == 'float16' else 'bfloat'}({text})"
    suffix = {"uint64": "ull", "int64": "ll", "uint32": "u"}.get(scalar, "")
    whole = int(value)
    if whole < 0:
        return f"({whole + 1}{suffix} - 1)"
    return f"{whole}{suffix}"
