"""Facts for the analysis of uniform flow: the functions of a source, their variables, and what each may change."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .convergence import Convergence, closure
from .convergent_calls import call_opening
from .declarations import Declarations, Function
from .kernels import is_kernel
from .overloads import formal_parameters
from .reflect import SCALARS
from .storage import find_storage
from .syntax import BEFORE_EXPRESSIONS, Syntax
from .tokens import IDENTIFIER

_UNIFORM_ATTRIBUTES = frozenset(
    """threadgroup_position_in_grid threads_per_threadgroup threads_per_grid threadgroups_per_grid
    dispatch_threads_per_threadgroup grid_size grid_origin simdgroup_index_in_threadgroup simdgroups_per_threadgroup
    threads_per_simdgroup thread_execution_width dispatch_simdgroups_per_threadgroup quadgroups_per_threadgroup
    dispatch_quadgroups_per_threadgroup""".split()
)
ARITHMETIC = frozenset(
    """abs absdiff acos acosh addsat all any as_type asin asinh atan atan2 atanh ceil clamp clz copysign cos cosh cospi
    ctz divide dot exp exp10 exp2 extract_bits fabs fdim floor fma fmax fmax3 fmedian3 fmin fmin3 fmod fract hadd
    ilogb insert_bits isfinite isinf isnan isnormal ldexp length log log10 log2 mad mad24 madhi madsat max max3
    median3 min min3 mix mul24 mulhi nextafter popcount pow powr reverse_bits rhadd rint rotate round rsqrt saturate
    select sign signbit sin sinh sinpi smoothstep sqrt step subsat tan tanh tanpi trunc""".split()
)
REDUCTIONS = frozenset(
    """simd_sum simd_product simd_min simd_max simd_and simd_or simd_xor simd_broadcast_first simd_all simd_any
    simd_ballot""".split()
)
"""Simdgroup functions that give all their lanes the same value."""
WORDS = frozenset(
    """metal precise fast const constexpr static_cast sizeof alignof true false and or not bitand bitor xor compl
    typename template signed unsigned long short int char volatile static auto""".split()
)
VECTOR = re.compile(r"(?:packed_)?(?:bool|u?char|u?short|u?int|u?long|half|bfloat|float)[234](?:x[234])?")
KEYWORDS = frozenset(
    "if else for while do switch case default return break continue goto using typedef struct static_assert".split()
)
CHANGES = {
    **dict.fromkeys(("sincos", "modf", "frexp"), 1),
    **dict.fromkeys(("simdgroup_load", "simdgroup_multiply", "simdgroup_multiply_accumulate"), 0),
}
"""The argument that a function of MSL changes."""
_BEFORE_DECLARATION = frozenset("; { } const volatile device constant thread threadgroup".split())
_AFTER_DECLARATOR = frozenset("= ; , ( { [ : )".split())


_STEPS_PER_TOKEN = 50
"""Limit of steps per token of a source; real kernels take about 3."""


class TooLong(Exception):
    """The analysis was given up; nothing is known to be uniform."""


@dataclass(slots=True)
class Body:
    """What is known of one function; facts only change from uniform to varying."""

    function: Function
    kernel: bool
    parameters: list[str]
    names: dict[int, str]
    """The variable that a token names. A variable is its name, or its name and where it is declared."""
    arrays: set[str]
    varying: set[str]
    constant_pointers: set[str]
    entered: bool = True
    diverging_loops: set[int] = field(default_factory=set)
    calls: dict[int, bool] = field(default_factory=dict)
    returns: list[int] = field(default_factory=list)


class Facts:
    """What is known of a source's functions; a walk retracts facts that do not hold."""

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
        self.members, static_members = set[str](), set[str]()
        for variable in declarations.variables:
            if variable.in_struct:
                static = {"static", "constexpr"} & set(self.texts[variable.start : variable.name_at])
                (static_members if static else self.members).add(variable.name)
        self.class_constants = (static_members | self._template_parameters()) - self.members
        self.changed_by = self._changed_arguments()
        self.constants = {v.name for v in declarations.variables if not v.in_struct}
        self.types = declarations.structs | declarations.aliases.keys()
        self.functions = {function.name for function in declarations.functions}
        self.pure = self._pure_functions()
        self.bodies: dict[str, list[Body]] = {}
        self.all_bodies: list[Body] = []
        for function in declarations.functions:
            if function.body is not None and self._may_meet(function):
                body = self._body(function)
                self.all_bodies.append(body)
                self.bodies.setdefault(function.name, []).append(body)
        self.changed = False
        self._steps_left = _STEPS_PER_TOKEN * len(self.tokens)

    def spend(self, steps: int) -> None:
        """Counts work; raises `TooLong` beyond a limited number of passes over the source."""
        self._steps_left -= steps
        if self._steps_left < 0:
            raise TooLong

    def _may_meet(self, function: Function) -> bool:
        assert function.body is not None
        if self.convergence.hidden_calls:
            return True
        return any(self.texts[at] in self.convergence.names for at in range(function.closing, function.body[1]))

    def _changed_arguments(self) -> dict[str, set[int]]:
        """By function: the arguments that it may change, taken by reference."""
        changed: dict[str, set[int]] = {name: {position} for name, position in CHANGES.items()}
        for function in self.declarations.functions:
            places = changed.setdefault(function.name, set())
            for position, parameter in enumerate(formal_parameters(self.syntax, function)):
                if parameter.reference and "const" not in parameter.type.split():
                    places.add(position)
        return changed

    def _template_parameters(self) -> set[str]:
        """The names of all template parameters, those of classes included."""
        names: set[str] = set()
        for index, text in enumerate(self.texts):
            if text == "template" and self.texts[index + 1] == "<":
                closing = self.syntax.angle_end(index + 1) or index
                for begin, end in self.syntax.split(index + 2, closing):
                    equals = next((at for at in range(begin, end) if self.texts[at] == "="), end)
                    if self.tokens[equals - 1].kind == IDENTIFIER:
                        names.add(self.texts[equals - 1])
        return names

    def _is_indirect(self, type_: str) -> bool:
        return bool(set("*&[") & set(type_)) or bool(self.pointer_types & set(type_.split()))

    def _pure_functions(self) -> frozenset[str]:
        """User functions whose value depends only on their arguments."""
        candidates: dict[str, set[str]] = {}
        refused: set[str] = set()
        for function in self.declarations.functions:
            if function.body is None:
                continue
            indirect = any(self._is_indirect(parameter.type) for parameter in formal_parameters(self.syntax, function))
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
        known = ARITHMETIC | SCALARS.keys() | self.types | KEYWORDS | WORDS
        pure = {name for name in candidates if name not in refused and name not in self.convergence.names}
        callers: dict[str, set[str]] = {}
        for name in pure:
            for callee in candidates[name]:
                if callee in self.functions and callee not in known and not VECTOR.fullmatch(callee):
                    callers.setdefault(callee, set()).add(name)
        impure = closure(frozenset(self.functions - pure), callers)
        return frozenset(pure - impure)

    def _body(self, function: Function) -> Body:
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
        templates = [p.name for header in function.templates for p in header.parameters]
        resolved, arrays, pointers = self._resolve(function, [*names, *templates])
        stored = {variable.name for variable in find_storage(self.syntax, function.body)}
        varying |= pointers | {name for name in resolved.values() if name.partition("@")[0] in stored}
        body = Body(function, kernel, names, resolved, arrays, varying - {""}, constant_pointers)
        body.entered = not function.special
        return body

    def _attributes(self, begin: int, end: int) -> set[str]:
        names: set[str] = set()
        for index in range(begin, end):
            if self.syntax.is_attribute(index):
                names |= {attribute.name for attribute in self.syntax.attributes_at(index)}
        return names

    def _resolve(self, function: Function, outer: list[str]) -> tuple[dict[int, str], set[str], set[str]]:
        """The variable each token of a body names; the arrays, and the pointers, among them.

        Two identifiers in a row surely declare the second, anew in the scope around. What only looks like a declaration
        (``a * b;``) names the variable that is known by that name already, if one is.
        """
        assert function.body is not None
        begin, end = function.body
        scopes: list[tuple[int, list[str]]] = [(end + 1, [])]
        meanings: dict[str, list[str]] = {name: [name] for name in outer}
        resolved: dict[int, str] = {}
        arrays: set[str] = set()
        pointers: set[str] = set()
        for index in range(begin, end):
            while index >= scopes[-1][0]:
                for name in scopes.pop()[1]:
                    meanings[name].pop()
            text, before, after = self.texts[index], self.tokens[index - 1], self.texts[index + 1]
            if text == "{":
                scopes.append((self.match[index], []))
            elif text in ("for", "while", "switch") or (text == "if" and before.text != "else"):
                scopes.append((self.syntax.after_statement(index), []))
            if self.tokens[index].kind != IDENTIFIER or text in KEYWORDS or before.text in (".", "->", "::"):
                continue
            known = next(reversed(meanings.get(text, ())), None)
            if after in _AFTER_DECLARATOR:
                listed = before.text == "," and after in ("=", ";", ",", "[")
                if before.kind == IDENTIFIER and before.text not in BEFORE_EXPRESSIONS | KEYWORDS:
                    known = f"{text}@{index}"
                    meanings.setdefault(text, []).append(known)
                    scopes[-1][1].append(text)
                elif known is None and (listed or before.text in (">", "*", "&")) and text not in self.members:
                    known = text
                    meanings.setdefault(text, []).append(known)
            if known is None:
                continue
            resolved[index] = known
            declares = before.kind == IDENTIFIER or before.text in (">", ",", "*", "&")
            if after == "[" and declares:
                arrays.add(known)
            is_pointer = before.text == "*" and self.texts[index - 3] in _BEFORE_DECLARATION
            if is_pointer or before.text in self.pointer_types:
                pointers.add(known)
        return resolved, arrays, pointers

    def distrust_names_without_calls(self) -> None:
        """A function whose name is used other than in a call may be called from anywhere."""
        declared = {function.name_at for function in self.declarations.functions}
        for index, text in enumerate(self.texts):
            if text in self.bodies and index not in declared and call_opening(self.syntax, index) is None:
                for body in self.bodies[text]:
                    self._enter_apart(body)

    def _enter_apart(self, body: Body) -> None:
        if body.entered and not body.kernel:
            body.entered = False
            self.changed = True
        for name in body.parameters if not body.kernel else ():
            self.vary(body, name)

    def vary(self, body: Body, name: str | None) -> None:
        """Retract that a variable is uniform."""
        if name and name not in body.varying and name not in body.constant_pointers:
            body.varying.add(name)
            self.changed = True

    def call(self, name: str, arguments: list[bool], together: bool) -> None:
        """Record a call of a user's function, with which of its arguments are uniform."""
        for body in self.bodies.get(name, ()):
            self.spend(1 + len(body.parameters))
            if body.kernel:
                continue
            if not together:
                self._enter_apart(body)
            for position, parameter in enumerate(body.parameters):
                if not (position < len(arguments) and arguments[position]):
                    self.vary(body, parameter)
