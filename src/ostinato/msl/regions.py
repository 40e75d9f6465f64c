"""Kernels whose only meeting points are barriers in uniform flow run as loops over the threads, split at the barriers.

Between two barriers the threads of a group are independent, so a stretch of statements (a region) becomes a loop over
the threads that the compiler can vectorise; the barrier itself disappears. Statements around the regions (loops and
conditions that contain barriers) must do the same for all threads: they may only depend on the group's position and
size, on constant arguments and on variables made of these. A variable of a thread that is used in more than one region
becomes an array with an element per thread.

Where anything is unclear the kernel runs as fibers instead; `split_at_barriers` then changes nothing.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ..errors import KernelCompileError
from . import tensors
from .convergence import BUILTINS, LANE_AWARE, Convergence
from .declarations import Function
from .kernels import Parameter
from .reflect import SCALARS
from .rewriter import Rewriter
from .storage import type_end
from .syntax import Syntax
from .tokens import IDENTIFIER, NUMBER, Token
from .unwinding import Steps, unwound

MAX_CARRIED = 12
"""Variables that may live across barriers; each takes an element per thread on the worker's stack."""

LANE_ATTRIBUTES = frozenset(
    """thread_position_in_grid thread_position_in_threadgroup thread_index_in_threadgroup thread_index_in_simdgroup
    simdgroup_index_in_threadgroup thread_index_in_quadgroup quadgroup_index_in_threadgroup""".split()
)
_QUALIFIERS = frozenset({"const", "volatile", "device", "constant", "thread", "threadgroup", "constexpr", "static"})
_CONTROL = frozenset("if for while do return switch else case default break continue".split())
_DECLARING = frozenset({"using", "typedef", "constexpr", "static_assert"})
_PURE = frozenset("metal min max abs clamp sizeof as_type static_cast select true false const and or not".split())
_BEFORE_OPERANDS = frozenset("return case else do and or not".split())
_VECTOR = re.compile(r"(?:packed_|simd_|vector_)?(?:bool|u?char|u?short|u?int|u?long|half|bfloat|float)[234]")


@dataclass(frozen=True, slots=True)
class SourceNames:
    """What the splitter needs to know about the source around a kernel."""

    constants: frozenset[str]
    """Global constants."""
    mutators: frozenset[str]
    """Functions that may change an argument: they take one by reference that is not const."""
    small_types: frozenset[str]
    """Template parameters of the kernel that stand for scalars or vectors in every instance."""


class _Unclear(Exception):
    """The kernel cannot be split and runs as fibers; with the reason and the token."""

    def __init__(self, reason: str, index: int) -> None:
        super().__init__(reason)
        self.index = index


@dataclass(slots=True)
class _Local:
    """A variable declared between the regions' statements (not inside an inner block)."""

    name: str
    type: tuple[int, int]
    region: int
    end: int
    """Where its block ends."""
    simple: bool
    used_in: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Stride:
    """``for (type name = start; name < bound; name += step)`` with a start of each thread's own; token ranges."""

    name: str
    type: tuple[int, int]
    start: tuple[int, int]
    bound: tuple[int, int]
    step: tuple[int, int]
    closing: int


@dataclass(slots=True)
class _Region:
    begin: int
    end: int
    number: int
    stride: _Stride | None = None


class _Splitter:
    def __init__(
        self,
        syntax: Syntax,
        function: Function,
        parameters: Sequence[Parameter],
        convergence: Convergence,
        source: SourceNames,
    ) -> None:
        assert function.body is not None
        self.syntax, self.texts, self.match = syntax, syntax.texts, syntax.match
        self.function, self.body = function, function.body
        self.parameters = parameters
        self.convergence = convergence
        self.source = source
        self.regions: list[_Region] = []
        self.barriers: list[tuple[int, int]] = []
        self.locals: dict[str, _Local] = {}
        self.uniform_names: set[str] = {
            p.name for p in parameters if p.role != "thread" or p.thread_attribute not in LANE_ATTRIBUTES
        }
        self.lane_names = {p.name for p in parameters} - self.uniform_names
        own = {p.name for p in parameters}
        self.uniform_names |= source.constants - own
        self.uniform_names |= {p.name for header in function.templates for p in header.parameters} - own
        self.places: dict[str, list[int]] = {}
        for index in range(*self.body):
            if syntax.tokens[index].kind == IDENTIFIER:
                self.places.setdefault(self.texts[index], []).append(index)
        self._passed_to_mutators, self._bound_to_references = self._changed_elsewhere()
        self.constants = {p.name for p in parameters if p.space == "constant"}
        self.pointers = {p.name for p in parameters if p.role in ("buffer", "shared")} - self.constants

    # -- what the code says -----------------------------------------------------------------------------------------

    def only_read(self, name: str, begin: int, end: int) -> bool:
        """Whether every mention of a variable between two tokens plainly reads it.

        Everything else (assigned, stepped, its address or a reference taken, passed to a function that may change it,
        declared anew) counts as a change.
        """
        return all(
            self.texts[index - 1] in (".", "->", "::") or self._plainly_read(index)
            for index in self._mentions(name, begin, end)
        )

    def _mentions(self, name: str, begin: int, end: int) -> Iterator[int]:
        places = self.places.get(name, [])
        for order in range(bisect_left(places, begin), len(places)):
            if places[order] >= end:
                return
            yield places[order]

    def _plainly_read(self, index: int) -> bool:
        name, before = self.texts[index], self.syntax.tokens[index - 1]
        if before.text in ("++", "--") or (before.text == "&" and not self._is_operand(index - 2)):
            return False
        if before.kind == IDENTIFIER and before.text not in _BEFORE_OPERANDS:
            return False
        after = index + 1
        while self.texts[after] in (".", "->", "["):
            if name in self.pointers and self.texts[after] != ".":
                return True  # the target may change; the pointer does not
            after = self.match[after] + 1 if self.texts[after] == "[" else after + 2
        return not (
            self.syntax.assigns(after) or index in self._passed_to_mutators or index in self._bound_to_references
        )

    def _is_operand(self, index: int) -> bool:
        token = self.syntax.tokens[index]
        return token.kind in (IDENTIFIER, NUMBER) or token.text in (")", "]")

    def _changed_elsewhere(self) -> tuple[set[int], set[int]]:
        """Names among the arguments of functions that change arguments, and names that initialise references."""
        passed: set[int] = set()
        bound: set[int] = set()
        around: list[bool] = []
        changing = binding = False
        for at in range(*self.body):
            text = self.texts[at]
            if text in ("(", "["):
                around.append(changing)
                callee = self.syntax.angle_start(at - 1) - 1 if self.texts[at - 1] == ">" else at - 1
                changing = changing or (text == "(" and self.texts[callee] in self.source.mutators)
            elif text == "{":
                around.append(changing)
                changing = binding = False
            elif text in (")", "]", "}"):
                changing = around.pop()
                binding = binding and text != "}"
            elif text == ";":
                changing = binding = False
            elif text == "=":
                # ``T &r = name``
                named = self.syntax.tokens[at - 1].kind == IDENTIFIER
                binding = binding or (named and self.texts[at - 2] == "&")
            elif changing or binding:
                passed.update([at] if changing else ())
                bound.update([at] if binding else ())
        return passed, bound

    def meets(self, begin: int, end: int) -> bool:
        return next(self._mentions("threadgroup_barrier", begin, end), None) is not None

    def is_uniform(self, begin: int, end: int) -> bool:
        """Whether an expression has the same value for all threads of a group, as far as names tell."""
        for index in range(begin, end):
            token = self.syntax.tokens[index]
            text = token.text
            if token.kind == IDENTIFIER:
                if self.texts[index - 1] in (".", "::") or text in _PURE or text in SCALARS or text in self.constants:
                    continue
                if text in self.pointers:
                    if self.texts[index + 1] in ("[", "->", ".") or self._dereferenced(index):
                        return False
                elif text not in self.uniform_names:
                    return False
            elif token.kind != NUMBER and (
                self.syntax.assigns(index) or (text in ("{", "[") and not self._constant_index(index))
            ):
                return False
        return True

    def _dereferenced(self, index: int) -> bool:
        if self.texts[index - 1] != "*":
            return False
        before = self.syntax.tokens[index - 2]
        return not (before.kind in (IDENTIFIER, NUMBER) or before.text in (")", "]"))

    def _constant_index(self, index: int) -> bool:
        return self.texts[index] == "[" and self.texts[index - 1] in self.constants

    # -- the shape --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        if self.convergence.hidden_calls:
            raise _Unclear("an operator, constructor or destructor may make threads meet", self.function.name_at)
        for index in range(*self.body):
            token = self.syntax.tokens[index]
            if token.kind != IDENTIFIER:
                continue
            if token.text in self.convergence.names and token.text != "threadgroup_barrier":
                raise _Unclear(_meeting(token.text), index)
            if token.text == "goto":
                raise _Unclear("uses goto", index)
        for parameter in self.parameters:
            if not self.only_read(parameter.name, *self.body):
                raise _Unclear(f"changes its argument {parameter.name!r}", self.function.name_at)
            if parameter.guard:
                raise _Unclear(f"the argument {parameter.name!r} is optional", self.function.name_at)
        unwound(self.level(self.body[0] + 1, self.body[1], in_loop=False))
        self._find_uses()

    def level(self, index: int, end: int, in_loop: bool) -> Steps[None]:
        """Statements that run once for the group: regions, and control flow around barriers."""
        begin = index
        while index < end:
            finish = self.syntax.after_statement(index)
            text = self.texts[index]
            if text == "metal" and self.texts[index + 1] == "::":
                text = self.texts[index + 2]
            if text == "threadgroup_barrier":
                self._close(begin, index)
                self.barriers.append((index, finish))
            elif self.meets(index, finish):
                self._close(begin, index)
                yield self._control(index, finish, in_loop)
            elif (stride := self._stride(index, finish)) is not None:
                self._close(begin, index)
                self.regions.append(_Region(index, finish, len(self.regions), stride))
            elif self._stands_alone(index, finish, end):
                self._close(begin, index)
            else:
                self._check_jumps(index, finish, in_loop)
                self._declare(index, finish, len(self.regions), end)
                index = finish
                continue
            index = begin = finish
        self._close(begin, end)

    def _close(self, begin: int, end: int) -> None:
        if begin < end:
            self.regions.append(_Region(begin, end, len(self.regions)))

    def _control(self, index: int, finish: int, in_loop: bool) -> Steps[None]:
        """A loop, condition or block with a barrier inside."""
        text = self.texts[index]
        if text == "{":
            yield self.level(index + 1, finish - 1, in_loop)
            return
        opening = index + 1
        if text == "for":
            name = self._uniform_loop(opening, finish)
            yield self._inside(self.match[opening] + 1, finish, in_loop=True)
            self.uniform_names.discard(name)
        elif text == "if" and self.is_uniform(opening + 1, self.match[opening]):
            then = self.match[opening] + 1
            end = self.syntax.after_statement(then)
            yield self._inside(then, end, in_loop)
            if self.texts[end] == "else":
                yield self._inside(end + 1, finish, in_loop)
        else:
            raise _Unclear("a barrier inside a condition or loop that may differ between threads", index)

    def _inside(self, index: int, finish: int, in_loop: bool) -> Steps[None]:
        if self.texts[index] != "{":
            raise _Unclear("a barrier in a statement without braces", index)
        yield self.level(index + 1, self.match[index], in_loop)

    def _uniform_loop(self, opening: int, finish: int) -> str:
        """``for (T i = uniform; uniform; i changes)``: the loop variable, which joins the uniform names."""
        closing = self.match[opening]
        first = self.syntax.statement_end(opening + 1, closing)
        name_at = type_end(self.syntax, self._skip_qualifiers(opening + 1), first)
        name = self.texts[name_at]
        unclear = _Unclear("a barrier inside a loop that may differ between threads", opening)
        if self.syntax.tokens[name_at].kind != IDENTIFIER or self.texts[name_at + 1] != "=" or self._is_known(name):
            raise unclear
        if not any(word in SCALARS for word in self.texts[opening + 1 : name_at]):
            raise unclear
        if len(self.syntax.split(opening + 1, first)) != 1 or not self.is_uniform(name_at + 2, first):
            raise unclear
        second = self.syntax.statement_end(first + 1, closing)
        self.uniform_names.add(name)
        if not self.is_uniform(first + 1, second):
            raise unclear
        steps = [index for index in range(second + 1, closing) if self.syntax.assigns(index)]
        prefixed = self.texts[second + 1] in ("++", "--")
        rest = [index for index in range(second + 1, closing) if not self.syntax.assigns(index)]
        if len(steps) != 1 or self.texts[second + 1 + prefixed] != name:
            raise unclear
        if not all(self.is_uniform(index, index + 1) for index in rest):
            raise unclear
        if not self.only_read(name, closing, finish):
            raise unclear
        return name

    def _is_known(self, name: str) -> bool:
        return name in self.locals or name in self.uniform_names or name in self.lane_names

    def _stride(self, index: int, finish: int) -> _Stride | None:
        """A loop in which neighbouring threads take neighbouring elements, with one common step.

        It runs with the threads innermost, so that memory is read in order and the compiler can vectorise.
        """
        opening = index + 1
        if self.texts[index] != "for" or self.texts[opening] != "(":
            return None
        closing = self.match[opening]
        semicolons = [at for at in range(opening, closing) if self.texts[at] == ";"]
        if len(semicolons) != 2:
            return None
        first, second = semicolons
        start = self._skip_qualifiers(opening + 1)
        if not SCALARS.get(self.texts[start], "").startswith("uint"):
            return None
        name_at = type_end(self.syntax, start, first)
        name = self.texts[name_at]
        if self.texts[name_at + 1] != "=" or self.texts[first + 1 : first + 3] != [name, "<"]:
            return None
        if self.texts[second + 1 : second + 3] != [name, "+="]:
            return None
        stride = _Stride(
            name, (start, name_at), (name_at + 2, first), (first + 3, second), (second + 3, closing), closing
        )
        simple = all(
            self.syntax.tokens[at].kind == NUMBER
            or self.texts[at] in ("+", "*", "/", "(", ")")
            or self.texts[at] in self.lane_names
            or self.texts[at] in self.uniform_names
            for at in range(*stride.start)
        )
        jumps = {"break", "return", "goto"} & set(self.texts[closing:finish])
        if (
            not simple
            or jumps
            or not self.only_read(name, closing, finish)
            or not self.is_uniform(*stride.bound)
            or not self.is_uniform(*stride.step)
        ):
            return None
        return stride

    def _stands_alone(self, index: int, finish: int, scope_end: int) -> bool:
        """Statements that are uniform for the group and stay outside the loops over threads."""
        if self.texts[index] in _DECLARING:
            if self.texts[index] == "constexpr":
                parts = self.syntax.split(index, finish - 1)
                equals = (next((at for at in range(*part) if self.texts[at] in ("=", "{", "[")), 0) for part in parts)
                self.uniform_names.update(self.texts[at - 1] for at in equals if at)
            return True
        if self._is_storage(index, finish):
            if any(self.texts[at] in self.locals for at in range(index, finish)):
                raise _Unclear("threadgroup memory depends on a variable of a thread", index)
            return True
        if self.texts[index] == "if" and self.texts[index + 1] == "(":
            closing = self.match[index + 1]
            if self.texts[closing + 1 : finish] in (["return", ";"], ["{", "return", ";", "}"]):
                return self.is_uniform(index + 2, closing)
        declaration = self._declaration(index, finish)
        if declaration is None:
            return False
        names, type_tokens, value, simple = declaration
        name, type_words = names[0], self.texts[slice(*type_tokens)]
        pointer = "*" in type_words
        scalar = pointer or any(word in SCALARS for word in type_words)
        fresh = not self._is_known(name)
        if not (
            simple and scalar and fresh and "&" not in type_words and value is not None and self.is_uniform(*value)
        ):
            return False
        if pointer:
            self.pointers.add(name)
        if not self.only_read(name, finish, scope_end):
            self.pointers.discard(name)
            return False
        self.uniform_names.add(name)
        return True

    def _is_storage(self, index: int, finish: int) -> bool:
        """Whether threadgroup memory is declared here, rather than a pointer to it."""
        while self.texts[index] == "alignas":
            index = self.match[index + 1] + 1
        if self.texts[index] != "threadgroup" or self.texts[index + 1] == "alignas":
            return self.texts[index : index + 2] == ["threadgroup", "alignas"]
        return self.texts[type_end(self.syntax, self._skip_qualifiers(index), finish)] not in ("*", "&", "(")

    def _skip_qualifiers(self, index: int) -> int:
        while self.texts[index] in _QUALIFIERS:
            index += 1
        return index

    def _declaration(
        self, index: int, finish: int
    ) -> tuple[list[str], tuple[int, int], tuple[int, int] | None, bool] | None:
        """Names, type tokens, initialiser of the first, and whether it is the only one and no array.

        None when the statement declares nothing.
        """
        start = self._skip_qualifiers(index)
        if self.syntax.tokens[start].kind != IDENTIFIER or self.texts[start] in _CONTROL:
            return None
        name_at = type_end(self.syntax, start, finish)
        while self.texts[name_at] in ("*", "&") or self.texts[name_at] in _QUALIFIERS:
            name_at += 1
        if self.syntax.tokens[name_at].kind != IDENTIFIER or name_at == start or name_at >= finish:
            return None
        after = self.texts[name_at + 1]
        if after not in ("=", ";", ",", "[", "(", "{"):
            return None
        parts = self.syntax.split(name_at, finish - 1)
        names = [
            next((self.texts[at] for at in range(*part) if self.syntax.tokens[at].kind == IDENTIFIER), "")
            for part in parts
        ]
        single = len(parts) == 1
        value = (name_at + 2, finish - 1) if after == "=" else None
        simple = single and after in ("=", ";") and "auto" not in self.texts[index:name_at]
        if value is not None and self.texts[value[0]] == "{":
            simple = False
        return names, (index, name_at), value, simple

    def _declare(self, index: int, finish: int, region: int, end: int) -> None:
        declaration = self._declaration(index, finish)
        if declaration is None:
            if not (self.texts[index] in _CONTROL or self.texts[index] == "{" or self._is_expression(index)):
                raise _Unclear("a statement that may declare a variable", index)
            return
        names, type_tokens, _, simple = declaration
        words = self.texts[slice(*type_tokens)]
        small = "*" in words or any(word in SCALARS or _VECTOR.fullmatch(word) for word in words)
        small = small or bool(set(words) & self.source.small_types)
        for name in names:
            if self._is_known(name):
                raise _Unclear(f"two variables are named {name!r}", index)
            self.locals[name] = _Local(name, type_tokens, region, end, simple and small and "&" not in words)

    def _is_expression(self, index: int) -> bool:
        """Whether a statement begins as an assignment, a call or a step does."""
        if self.texts[index] in ("*", "(", "++", "--", ";"):
            return True
        if self.texts[index] in ("decltype", "alignas", "typeof", "__typeof__"):
            return False
        after = index + 1
        while self.texts[after] == "::":
            after += 2
        return self.syntax.tokens[index].kind == IDENTIFIER and (
            self.texts[after] in ("[", ".", "->", "(", "++", "--") or self.syntax.assigns(after)
        )

    def _check_jumps(self, index: int, finish: int, in_loop: bool) -> None:
        """Refuses jumps by which a thread would leave its region."""
        loops_end = switches_end = 0
        for at in range(index, finish):
            text = self.texts[at]
            if text == "return":
                raise _Unclear("a thread may return before a barrier", at)
            if text in ("for", "while", "do"):
                loops_end = max(loops_end, self.syntax.after_statement(at))
            elif text == "switch":
                switches_end = max(switches_end, self.syntax.after_statement(at))
            elif in_loop and text in ("break", "continue"):
                sheltered_until = loops_end if text == "continue" else max(loops_end, switches_end)
                if sheltered_until <= at:
                    raise _Unclear(f"{text} in a loop with a barrier", at)

    def _find_uses(self) -> None:
        for region in self.regions:
            for index in range(region.begin, region.end):
                local = self.locals.get(self.texts[index])
                # Before its declaration and after its block the name means another variable.
                if local is None or region.number < local.region or index >= local.end:
                    continue
                if self.texts[index - 1] not in (".", "->", "::"):
                    local.used_in.add(region.number)
        for local in self.carried():
            if not local.simple:
                raise _Unclear(f"the variable {local.name!r} lives across a barrier", local.type[0])
        if len(self.carried()) > MAX_CARRIED:
            raise _Unclear(f"more than {MAX_CARRIED} variables live across barriers", self.function.name_at)

    def carried(self) -> list[_Local]:
        """Variables that live across a barrier."""
        return [local for local in self.locals.values() if local.used_in - {local.region}]

    # -- writing the loops --------------------------------------------------------------------------------------------

    def write(self, rewriter: Rewriter) -> None:
        carried = self.carried()
        types = {
            local.name: rewriter.inline(*local.type, without="" if "*" in self.texts[slice(*local.type)] else "const")
            for local in carried
        }
        for begin, end in self.barriers:
            rewriter.delete(begin, end)
            rewriter.replace(begin, ";")
        rewriter.after(self.body[0], "const __ost::Group __ost_group(__ost_w);")
        for local in carried:
            for index in range(*local.type):
                rewriter.replace(index, "")
        for region in self.regions:
            arrays = "".join(
                f"{types[local.name]} __ost_of_{local.name}[1024];"
                for local in carried
                if local.region == region.number
            )
            words = {self.texts[index] for index in range(region.begin, region.end)}
            lanes = "".join(
                f"{_type_of(parameter)} {parameter.name} = "
                f"__ost_t.{parameter.thread_attribute}<{_type_of(parameter)}>();"
                for parameter in self.parameters
                if parameter.name in self.lane_names and parameter.name in words
            )
            views = "".join(
                f"{types[local.name]} &{local.name} = __ost_of_{local.name}[__ost_t.index];"
                for local in carried
                if region.number in local.used_in
            )
            opened, closed = f"__OST_THREADS_BEGIN(__ost_group) {lanes}{views}", "__OST_THREADS_END"
            if region.stride is not None:
                opened, closed = self._strided(rewriter, region, opened, closed)
            rewriter.before(region.begin, f"{arrays} {opened}", outermost=True)
            rewriter.after(region.end - 1, closed)

    def _strided(self, rewriter: Rewriter, region: _Region, opened: str, closed: str) -> tuple[str, str]:
        stride = region.stride
        assert stride is not None
        type_, start, bound, step = (
            rewriter.inline(*part) for part in (stride.type, stride.start, stride.bound, stride.step)
        )
        rewriter.delete(region.begin, stride.closing + 1)
        base = f"__ost_base_{region.number}"
        return (
            f"for ({type_} {base} = 0; {base} < ({bound}); {base} += ({step})) {{ {opened}"
            f"const {type_} {stride.name} = ({start}) + {base}; if ({stride.name} < ({bound}))",
            f"{closed} }}",
        )


def _type_of(parameter: Parameter) -> str:
    """A thread attribute's type as written."""
    return " ".join(token.text for token in parameter.type if token.text != "const")


def split_at_barriers(
    syntax: Syntax,
    rewriter: Rewriter,
    function: Function,
    parameters: Sequence[Parameter],
    convergence: Convergence,
    source: SourceNames,
) -> str | None:
    """Rewrites the kernel as loops over its threads if it has the shape for it; otherwise returns the reason."""
    splitter = _Splitter(syntax, function, parameters, convergence, source)
    try:
        splitter.run()
    except _Unclear as reason:
        return f"{reason}{_at(syntax.tokens[reason.index], syntax.tokens[function.name_at])}"
    except KernelCompileError:
        # The compiler reports errors in the source better.
        return "its body is not understood"
    splitter.write(rewriter)
    return None


def _meeting(name: str) -> str:
    """A use of a convergent name, described for a message."""
    if name in BUILTINS:
        return f"calls {name}"
    return f"uses {name}" if name in LANE_AWARE | tensors.LANE_AWARE else f"calls {name}, in which threads may meet,"


def _at(token: Token, function: Token) -> str:
    """The place of a token, relative to its kernel."""
    if token is function:
        return ""
    return f" at {'line ' if token.file == function.file else token.file + ':'}{token.line}"
