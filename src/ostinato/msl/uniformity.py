"""Where all lanes of a simdgroup come by together.

A static, conservative analysis of control flow. A value is uniform when it is surely the same in all lanes of a
simdgroup: literals, template parameters, constants, `constant` arguments, positions and sizes of the group, the number
of the simdgroup, results of simdgroup reductions, and what is computed from these alone. Flow is uniform when every
condition and loop around it is, and no lane has left before. Whatever is not understood counts as varying: loads from
memory, pointers, references, results of functions that are not plainly arithmetic, everything a lambda touches.

Names stand for variables, without regard to scope, and a variable is uniform only if every assignment to it is. A
helper is entered uniformly if each of its calls is in uniform flow, and a parameter of it is uniform if each argument
is. The analysis begins with everything uniform and takes back until nothing changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from .convergence import BUILTINS, Convergence
from .convergent_calls import call_opening
from .declarations import Declarations, Function
from .kernels import is_kernel
from .overloads import formal_parameters
from .reflect import SCALARS
from .storage import find_storage
from .syntax import BEFORE_EXPRESSIONS, Syntax
from .tokens import IDENTIFIER, NUMBER

_UNIFORM_ATTRIBUTES = frozenset(
    """threadgroup_position_in_grid threads_per_threadgroup threads_per_grid threadgroups_per_grid
    dispatch_threads_per_threadgroup grid_size grid_origin simdgroup_index_in_threadgroup simdgroups_per_threadgroup
    threads_per_simdgroup thread_execution_width dispatch_simdgroups_per_threadgroup quadgroups_per_threadgroup
    dispatch_quadgroups_per_threadgroup""".split()
)
_ARITHMETIC = frozenset(
    """abs absdiff acos acosh addsat all any as_type asin asinh atan atan2 atanh ceil clamp clz copysign cos cosh cospi
    ctz divide dot exp exp10 exp2 extract_bits fabs fdim floor fma fmax fmax3 fmedian3 fmin fmin3 fmod fract hadd
    ilogb insert_bits isfinite isinf isnan isnormal ldexp length log log10 log2 mad mad24 madhi madsat max max3
    median3 min min3 mix mul24 mulhi nextafter popcount pow powr reverse_bits rhadd rint rotate round rsqrt saturate
    select sign signbit sin sinh sinpi smoothstep sqrt step subsat tan tanh tanpi trunc""".split()
)
_REDUCTIONS = frozenset(
    """simd_sum simd_product simd_min simd_max simd_and simd_or simd_xor simd_broadcast_first simd_all simd_any
    simd_ballot""".split()
)
"""Simdgroup functions that give all their lanes the same value."""
_WORDS = frozenset(
    """metal precise fast const constexpr static_cast sizeof alignof true false and or not bitand bitor xor compl
    typename template signed unsigned long short int char volatile static auto""".split()
)
_VECTOR = re.compile(r"(?:packed_)?(?:bool|u?char|u?short|u?int|u?long|half|bfloat|float)[234](?:x[234])?")
_KEYWORDS = frozenset(
    "if else for while do switch case default return break continue goto using typedef struct static_assert".split()
)
_CHANGES = {
    **dict.fromkeys(("sincos", "modf", "frexp"), 1),
    **dict.fromkeys(("simdgroup_load", "simdgroup_multiply", "simdgroup_multiply_accumulate"), 0),
}
"""The argument that a function of MSL changes."""
_BEFORE_DECLARATION = frozenset("; { } const volatile device constant thread threadgroup".split())
_AFTER_DECLARATOR = frozenset("= ; , ( { [ : )".split())
_BEFORE_LAMBDA = frozenset("= ( , { ; } return".split())


@dataclass(slots=True)
class _Body:
    """What is known of one function; only ever moves towards varying."""

    function: Function
    kernel: bool
    parameters: list[str]
    declared: set[str]
    arrays: set[str]
    varying: set[str]
    constant_pointers: set[str]
    entered: bool = True
    diverging_loops: set[int] = field(default_factory=set)
    calls: dict[int, bool] = field(default_factory=dict)
    returns: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Uniformity:
    """The answer for one source, by token position."""

    uniform_calls: frozenset[int]
    """Calls of MSL's convergent functions that all lanes of a simdgroup reach together."""
    varying_returns: frozenset[int]
    """``return`` in kernels, where only some lanes may leave."""


def analyse(syntax: Syntax, declarations: Declarations, convergence: Convergence) -> Uniformity:
    """Analyses all functions that may make lanes meet."""
    return _Analysis(syntax, declarations, convergence).run()


class _Analysis:
    def __init__(self, syntax: Syntax, declarations: Declarations, convergence: Convergence) -> None:
        self.syntax, self.texts, self.tokens, self.match = syntax, syntax.texts, syntax.tokens, syntax.match
        self.declarations = declarations
        self.convergence = convergence
        self.pointer_members = {
            v.name for v in declarations.variables if v.in_struct and "*" in self.texts[v.start : v.name_at]
        }
        self.pointer_types = {
            name for name, tokens in declarations.aliases.items() if any(token.text == "*" for token in tokens)
        }
        self.changed_by = self._changed_arguments()
        self.constants = {v.name for v in declarations.variables if not v.in_struct}
        self.types = declarations.structs | declarations.aliases.keys()
        self.functions = {function.name for function in declarations.functions}
        self.pure = self._pure_functions()
        self.bodies: dict[str, list[_Body]] = {}
        self.all_bodies: list[_Body] = []
        for function in declarations.functions:
            if function.body is not None and self._may_meet(function):
                body = self._body(function)
                self.all_bodies.append(body)
                self.bodies.setdefault(function.name, []).append(body)
        self.changed = False

    def _may_meet(self, function: Function) -> bool:
        assert function.body is not None
        if self.convergence.hidden_calls or is_kernel(self.syntax, function):
            return True
        return any(self.texts[at] in self.convergence.names for at in range(function.closing, function.body[1]))

    def _changed_arguments(self) -> dict[str, set[int]]:
        """By function: the arguments that it may change, taken by reference."""
        found: dict[str, set[int]] = {name: {position} for name, position in _CHANGES.items()}
        for function in self.declarations.functions:
            places = found.setdefault(function.name, set())
            for position, parameter in enumerate(formal_parameters(self.syntax, function)):
                if parameter.reference and "const" not in parameter.type.split():
                    places.add(position)
        return found

    def _is_indirect(self, type_: str) -> bool:
        return bool(set("*&[") & set(type_)) or bool(self.pointer_types & set(type_.split()))

    def _pure_functions(self) -> frozenset[str]:
        """User functions that compute their value from their arguments and nothing else."""
        candidates: dict[str, set[str]] = {}
        refused: set[str] = set()
        for function in self.declarations.functions:
            if function.body is None:
                continue
            indirect = any(self._is_indirect(one.type) for one in formal_parameters(self.syntax, function))
            if function.in_struct or function.special or is_kernel(self.syntax, function) or indirect:
                refused.add(function.name)
                continue
            called = candidates.setdefault(function.name, set())
            for at in range(*function.body):
                if self.tokens[at].kind == IDENTIFIER and self.texts[at + 1] in ("(", "<"):
                    called.add(self.texts[at])
                elif self.texts[at] in (".", "->") and (
                    self.texts[at + 2] == "(" or self.texts[at + 1] in self.pointer_members
                ):
                    refused.add(function.name)
        known = _ARITHMETIC | SCALARS.keys() | self.types | _KEYWORDS | _WORDS
        pure = {name for name in candidates if name not in refused and name not in self.convergence.names}
        while True:
            kept = {
                name
                for name in pure
                if all(
                    called in known or called in pure or _VECTOR.fullmatch(called) or called not in self.functions
                    for called in candidates[name]
                )
            }
            if kept == pure:
                return frozenset(pure)
            pure = kept

    def _body(self, function: Function) -> _Body:
        assert function.body is not None
        kernel = is_kernel(self.syntax, function)
        parameters = formal_parameters(self.syntax, function)
        names = [parameter.name for parameter in parameters]
        varying: set[str] = set()
        constant_pointers: set[str] = set()
        places = self.syntax.split(function.opening + 1, function.closing)
        for parameter, (begin, end) in zip(parameters, places, strict=True):
            indirect = self._is_indirect(parameter.type)
            if kernel and parameter.space == "constant" and parameter.type.count("*") + parameter.reference == 1:
                constant_pointers.add(parameter.name)
            elif indirect or (kernel and not self._attributes(begin, end) & _UNIFORM_ATTRIBUTES):
                varying.add(parameter.name)
        templates = {p.name for header in function.templates for p in header.parameters}
        declared, arrays, pointers = self._declared(*function.body)
        varying |= pointers | {variable.name for variable in find_storage(self.syntax, function.body)}
        declared |= set(names) | templates
        body = _Body(function, kernel, names, declared, arrays, varying - {""}, constant_pointers)
        body.entered = not function.special
        return body

    def _attributes(self, begin: int, end: int) -> set[str]:
        found: set[str] = set()
        for index in range(begin, end):
            if self.syntax.is_attribute(index):
                found |= {attribute.name for attribute in self.syntax.attributes_at(index)}
        return found

    def _declared(self, begin: int, end: int) -> tuple[set[str], set[str], set[str]]:
        """Names that look declared between two tokens; those of arrays, and of pointers, among them."""
        found: set[str] = set()
        arrays: set[str] = set()
        pointers: set[str] = set()
        for index in range(begin + 1, end):
            if self.tokens[index].kind != IDENTIFIER or self.texts[index] in _KEYWORDS:
                continue
            name, before, after = self.texts[index], self.tokens[index - 1], self.texts[index + 1]
            typed = before.kind == IDENTIFIER and before.text not in BEFORE_EXPRESSIONS | _KEYWORDS
            listed = before.text == "," and after in ("=", ";", ",", "[")
            if not (typed or listed or before.text in (">", "*", "&")) or after not in _AFTER_DECLARATOR:
                continue
            found.add(name)
            if after == "[":
                arrays.add(name)
            is_pointer = before.text == "*" and self.texts[index - 3] in _BEFORE_DECLARATION
            if is_pointer or before.text in self.pointer_types:
                pointers.add(name)
        return found - self.constants, arrays, pointers

    # -- the fixpoint -----------------------------------------------------------------------------------------------

    def run(self) -> Uniformity:
        self._distrust_names_without_calls()
        self.changed = True
        while self.changed:
            self.changed = False
            for body in self.all_bodies:
                _Walk(self, body).run()
        uniform = {at for body in self.all_bodies for at, together in body.calls.items() if together}
        returns = {at for body in self.all_bodies if body.kernel for at in body.returns}
        return Uniformity(frozenset(uniform), frozenset(returns))

    def _distrust_names_without_calls(self) -> None:
        """A function whose name stands anywhere but in a call may be called from anywhere."""
        declared = {function.name_at for function in self.declarations.functions}
        for index, text in enumerate(self.texts):
            if text in self.bodies and index not in declared and call_opening(self.syntax, index) is None:
                for body in self.bodies[text]:
                    self._enter_apart(body)

    def _enter_apart(self, body: _Body) -> None:
        if body.entered and not body.kernel:
            body.entered = False
            self.changed = True
        for name in body.parameters if not body.kernel else ():
            self.vary(body, name)

    def vary(self, body: _Body, name: str) -> None:
        if name and name not in body.varying and name not in body.constant_pointers:
            body.varying.add(name)
            self.changed = True

    def call(self, name: str, arguments: list[bool], together: bool) -> None:
        """A call of a user's function with arguments of which it is known which are uniform."""
        for body in self.bodies.get(name, ()):
            if body.kernel:
                continue
            if not together:
                self._enter_apart(body)
            for position, parameter in enumerate(body.parameters):
                if not (position < len(arguments) and arguments[position]):
                    self.vary(body, parameter)


class _Walk:
    """One pass over a function."""

    def __init__(self, analysis: _Analysis, body: _Body) -> None:
        self.analysis, self.body = analysis, body
        self.syntax, self.texts, self.tokens, self.match = (
            analysis.syntax, analysis.texts, analysis.tokens, analysis.match,
        )  # fmt: skip
        self.left = False
        """Whether some lanes may have returned."""
        self.skipping = False
        """Whether some lanes may have gone on to the next round of the innermost loop."""
        self.loops: list[int] = []

    def run(self) -> None:
        body = self.body
        assert body.function.body is not None
        body.returns.clear()
        begin, end = body.function.body
        self.left = "goto" in self.texts[begin:end]
        # A namesake of a convergent function is told which lanes have come, so for these its flow begins anew.
        self.statements(begin + 1, end, body.entered or body.function.name in BUILTINS)

    # -- statements -------------------------------------------------------------------------------------------------

    def together(self, flow: bool) -> bool:
        return flow and not self.left and not self.skipping

    def statements(self, index: int, end: int, flow: bool) -> None:
        while index < end:
            after = max(self.syntax.after_statement(index), index + 1)
            self.statement(index, min(after, end), flow)
            index = after

    def statement(self, index: int, end: int, flow: bool) -> None:
        text = self.texts[index]
        if text in ("case", "default"):
            while index < end and self.texts[index] != ":":
                index += 1
            self.statements(index + 1, end, flow)
            return
        if text == "{":
            self.statements(index + 1, self.match[index], flow)
        elif text == "if":
            self.condition(index, end, flow)
        elif text in ("for", "while", "do", "switch"):
            self.loop(index, end, flow)
        elif text in ("return", "break", "continue"):
            self.expression(index + 1, end, flow)
            self.jump(text, index, flow)
        elif text == "else":
            self.statement(index + 1, end, flow)
        else:
            self.expression(index, end, flow)

    def jump(self, word: str, index: int, flow: bool) -> None:
        together = self.together(flow)
        if word == "return":
            if not together:
                self.body.returns.append(index)
                self.left = True
                for loop in self.loops:
                    self.diverge(loop)
        elif not together and self.loops:
            if word == "break":
                self.diverge(self.loops[-1])
            else:
                self.skipping = True

    def diverge(self, loop: int) -> None:
        if loop not in self.body.diverging_loops:
            self.body.diverging_loops.add(loop)
            self.analysis.changed = True

    def condition(self, index: int, end: int, flow: bool) -> None:
        constexpr = self.texts[index + 1] == "constexpr"
        opening = index + 1 + constexpr
        closing = self.match[opening]
        self.expression(opening + 1, closing, flow)
        inner = flow and (constexpr or self.is_uniform(opening + 1, closing))
        then_end = self.syntax.after_statement(closing + 1)
        self.statement(closing + 1, then_end, inner)
        if then_end < end and self.texts[then_end] == "else":
            self.statement(then_end + 1, end, inner)

    def loop(self, index: int, end: int, flow: bool) -> None:
        keyword = self.texts[index]
        if keyword == "do":
            body_begin, body_end = index + 1, self.syntax.after_statement(index + 1)
            opening = body_end + 1
            if self.texts[body_end] != "while":
                return
        else:
            opening = index + 1
            body_begin, body_end = self.match[opening] + 1, end
        closing = self.match[opening]
        parts = self._split(opening + 1, closing) if keyword == "for" else [(opening + 1, closing)]
        ranged = keyword == "for" and len(parts) != 3
        first, tested, step = (parts[0], parts[1], parts[2]) if len(parts) == 3 else ((0, 0), parts[0], (0, 0))
        self.expression(*first, flow)
        inner = flow and not ranged and self.is_uniform(*tested) and index not in self.body.diverging_loops
        if ranged:
            for at in range(opening + 1, closing):
                if self.tokens[at].kind == IDENTIFIER:
                    self.analysis.vary(self.body, self.texts[at])
        self.loops.append(index)
        skipping = self.skipping
        if keyword != "do":
            self.expression(*tested, inner)
        self.statement(body_begin, body_end, inner)
        if keyword != "switch":
            self.skipping = skipping
        self.expression(*step, inner)
        if keyword == "do":
            self.expression(*tested, inner)
        self.loops.pop()

    def _split(self, begin: int, end: int) -> list[tuple[int, int]]:
        parts, start, index = [], begin, begin
        while index < end:
            if self.match[index] > index:
                index = self.match[index]
            elif self.texts[index] == ";":
                parts.append((start, index))
                start = index + 1
            index += 1
        return [*parts, (start, end)]

    # -- expressions ------------------------------------------------------------------------------------------------

    def expression(self, begin: int, end: int, flow: bool) -> None:
        """Takes in what an expression or declaration writes and calls."""
        index = begin
        while index < end:
            if self.texts[index] == "[" and (inside := self._lambda(index)) is not None:
                self._enter_lambda(index, inside)
                index = self.match[inside] + 1
                continue
            if self.tokens[index].kind == IDENTIFIER and self.texts[index - 1] not in (".", "->", "::"):
                self._name(index, begin, end, flow)
            elif self.tokens[index].kind == IDENTIFIER:
                self._call(index, begin, flow)
            index += 1

    def _lambda(self, index: int) -> int | None:
        """The ``{`` of the lambda whose ``[`` stands at ``index``, if it is one."""
        if self.texts[index - 1] not in _BEFORE_LAMBDA or self.syntax.is_attribute(index):
            return None
        after = self.match[index] + 1
        if self.texts[after] == "(":
            after = self.match[after] + 1
            while self.tokens[after].kind == IDENTIFIER or self.texts[after] in ("->", "::"):
                after += 1
        return after if self.texts[after] == "{" else None

    def _enter_lambda(self, index: int, opening: int) -> None:
        """Nobody knows when it runs: what it names varies, and what it calls is not called together."""
        for at in range(index, self.match[opening]):
            if self.tokens[at].kind == IDENTIFIER:
                if self.texts[at] in self.body.declared:
                    self.analysis.vary(self.body, self.texts[at])
                self._call(at, index, False)

    def _name(self, index: int, begin: int, end: int, flow: bool) -> None:
        name, before = self.texts[index], self.tokens[index - 1]
        self._call(index, begin, flow)
        if name not in self.body.declared:
            return
        after = index + 1
        while self.texts[after] in (".", "->", "["):
            if self.texts[after] == "[":
                after = self.match[after] + 1
            else:
                after += 2
                if self.texts[after] == "(":
                    self.analysis.vary(self.body, name)  # a method may change it
        typed = before.kind == IDENTIFIER and before.text not in BEFORE_EXPRESSIONS | _KEYWORDS
        written: tuple[int, int] | None = None
        if before.text in ("++", "--") or self.texts[after] in ("++", "--"):
            written = (index, after)
        elif self.syntax.assigns(after):
            written = (index, self._operand_end(after + 1, end))
        elif (typed or before.text == ">") and self.texts[index + 1] in ("(", "{"):
            written = (index + 1, self.match[index + 1] + 1)
        if written is not None:
            indirect = before.text in ("*", "&")
            own = self.texts[after] == "=" and after == index + 1
            read = (after + 1, written[1]) if own else written
            if indirect or not self.together(flow) or not self.is_uniform(*read):
                self.analysis.vary(self.body, name)
            if before.text == "&":
                self._alias(*read)
        if before.text == "&" and not self._is_operand(index - 2):
            self.analysis.vary(self.body, name)
        if self._passed_to_change(index, begin):
            self.analysis.vary(self.body, name)

    def _alias(self, begin: int, end: int) -> None:
        """A reference to these variables may change them."""
        for at in range(begin, end):
            if self.texts[at] in self.body.declared:
                self.analysis.vary(self.body, self.texts[at])

    def _is_operand(self, index: int) -> bool:
        token = self.tokens[index]
        operand = token.kind in (IDENTIFIER, NUMBER) and token.text not in BEFORE_EXPRESSIONS
        return operand or token.text in (")", "]")

    def _operand_end(self, index: int, end: int) -> int:
        while index < end:
            if self.match[index] > index:
                index = self.match[index]
            elif self.texts[index] in (",", ";", ")", "]", "}"):
                break
            elif self.texts[index] == "<" and self.tokens[index - 1].kind == IDENTIFIER:
                closing = self.syntax.angle_end(index, end, in_expression=True)
                index = closing if closing is not None and self.texts[closing + 1] in ("(", "::", "{") else index
            index += 1
        return index

    def _passed_to_change(self, index: int, begin: int) -> bool:
        """Whether it stands among the arguments of something that may take them by reference."""
        for callee, position in self._callees(index, begin):
            if position in self.analysis.changed_by.get(callee, ()) or not self._is_known(callee):
                return True
            # An array goes by its address.
            if self.texts[index] in self.body.arrays and callee in self.analysis.functions:
                return True
        return False

    def _callees(self, index: int, begin: int) -> Iterator[tuple[str, int]]:
        """The calls among whose arguments it stands, with its place there."""
        at, position = index, 0
        while at > begin:
            at -= 1
            text = self.texts[at]
            if text in (")", "]", "}"):
                at = self.match[at]
            elif text == ",":
                position += 1
            elif text in ("(", "[", "{"):
                position, place = 0, position
                if text != "(":
                    continue
                name_at = at - 1
                if self.texts[name_at] == ">":
                    name_at = self.syntax.angle_start(name_at) - 1
                if self.tokens[name_at].kind == IDENTIFIER:
                    yield self.texts[name_at], place

    def _is_known(self, callee: str) -> bool:
        known = callee in self.analysis.functions or callee in _ARITHMETIC or callee in _WORDS or callee in _KEYWORDS
        type_ = callee in SCALARS or callee in self.analysis.types or _VECTOR.fullmatch(callee) is not None
        builtin = callee in BUILTINS or callee in _CHANGES or callee.startswith(("simdgroup_", "make_", "atomic_"))
        return known or type_ or builtin

    def _call(self, index: int, begin: int, flow: bool) -> None:
        """A call of a convergent or a user's function, if one is named at ``index``."""
        name = self.texts[index]
        user = name in self.analysis.bodies
        if not user and name not in BUILTINS:
            return
        opening = call_opening(self.syntax, index)
        if opening is None:
            return
        together = self.together(flow) and self._always_evaluated(index, begin)
        if name in BUILTINS:
            self.analysis.changed |= self.body.calls.get(index, True) and not together
            self.body.calls[index] = together
        if user:
            arguments = self.syntax.split(opening + 1, self.match[opening])
            uniform = [self.is_uniform(*argument) for argument in arguments]
            self.analysis.call(name, uniform, together and self.body.entered)

    def _always_evaluated(self, index: int, begin: int) -> bool:
        """Whether no ``?``, ``&&`` or ``||`` before it lets some lanes pass it by."""
        at = index
        while at > begin:
            at -= 1
            text = self.texts[at]
            if text in (")", "]", "}"):
                at = self.match[at]
            elif text in ("?", "&&", "||", "and", "or") and not self.is_uniform(self._condition_start(at, begin), at):
                return False
        return True

    def _condition_start(self, index: int, begin: int) -> int:
        while index > begin:
            if self.texts[index - 1] in (")", "]", "}"):
                index = self.match[index - 1]
            elif self.texts[index - 1] in ("(", "[", "{", ",", ";", "return") or self.syntax.assigns(index - 1):
                break
            else:
                index -= 1
        return index

    def is_uniform(self, begin: int, end: int) -> bool:
        """Whether an expression surely has the same value in all lanes."""
        index = begin
        while index < end:
            token = self.tokens[index]
            if token.kind == IDENTIFIER and self.texts[index - 1] not in (".", "->"):
                if token.text in _REDUCTIONS:
                    opening = call_opening(self.syntax, index)
                    if opening is None or not self.body.calls.get(index, True) or token.text in self.analysis.bodies:
                        return False
                    index = self.match[opening] + 1
                    continue
                if not self._is_uniform_name(index):
                    return False
            elif token.kind == IDENTIFIER and (
                self.texts[index + 1] == "(" or token.text in self.analysis.pointer_members
            ):
                return False  # a method, or the way into memory
            elif token.text == "*" and not self._is_operand(index - 1):
                if self.texts[index + 1] not in self.body.constant_pointers:
                    return False
            elif token.text == "[" and self._lambda(index) is not None:
                return False
            index += 1
        return True

    def _is_uniform_name(self, index: int) -> bool:
        name, analysis, body = self.texts[index], self.analysis, self.body
        if name in body.varying:
            return False
        if name in body.declared or name in body.constant_pointers or name in analysis.constants:
            return True
        if name in _WORDS or name in SCALARS or _VECTOR.fullmatch(name):
            return True
        if self.texts[index + 1] == "::" or (name in analysis.types and self.texts[index + 1] in ("(", "{", ">", "<")):
            return True
        if call_opening(self.syntax, index) is not None:
            return name in analysis.pure or (name in _ARITHMETIC and name not in analysis.functions)
        # A constant of a class; there are no other static members.
        return self.texts[index - 1] == "::"
