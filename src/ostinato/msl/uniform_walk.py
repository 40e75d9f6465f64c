"""One walk over a function: which flow is uniform by the facts so far, and which facts do not hold."""

from __future__ import annotations

from collections.abc import Iterator

from .convergence import BUILTINS
from .convergent_calls import call_opening
from .reflect import SCALARS
from .syntax import BEFORE_EXPRESSIONS
from .tokens import IDENTIFIER, NUMBER
from .uniform_facts import ARITHMETIC, CHANGES, KEYWORDS, REDUCTIONS, VECTOR, WORDS, Body, Facts
from .unwinding import Steps, unwound

_BEFORE_LAMBDA = frozenset("= ( , { ; } return".split())


class Walk:
    """One pass over a function."""

    def __init__(self, facts: Facts, body: Body) -> None:
        self.facts, self.body = facts, body
        self.syntax, self.texts, self.tokens, self.match = (
            facts.syntax, facts.texts, facts.tokens, facts.match,
        )  # fmt: skip
        self.left = False
        """Whether some lanes may have returned."""
        self.skipping = False
        """Whether some lanes may have continued with the next iteration of the innermost loop."""
        self.loops: list[int] = []

    def run(self) -> None:
        body = self.body
        assert body.function.body is not None
        body.returns.clear()
        begin, end = body.function.body
        self.left = "goto" in self.texts[begin:end]
        # A user's function with the name of a convergent function gets the lanes that meet, so its flow starts uniform.
        unwound(self.statements(begin + 1, end, body.entered or body.function.name in BUILTINS))

    # -- statements -------------------------------------------------------------------------------------------------

    def together(self, flow: bool) -> bool:
        return flow and not self.left and not self.skipping

    def statements(self, index: int, end: int, flow: bool) -> Steps[None]:
        while index < end:
            after = max(self.syntax.after_statement(index), index + 1)
            yield self.statement(index, min(after, end), flow)
            index = after

    def statement(self, index: int, end: int, flow: bool) -> Steps[None]:
        text = self.texts[index]
        if text in ("case", "default"):
            while index < end and self.texts[index] != ":":
                index += 1
            yield self.statements(index + 1, end, flow)
            return
        if text == "{":
            yield self.statements(index + 1, self.match[index], flow)
        elif text == "if":
            yield self.condition(index, end, flow)
        elif text in ("for", "while", "do", "switch"):
            yield self.loop(index, end, flow)
        elif text in ("return", "break", "continue"):
            self.expression(index + 1, end, flow)
            self.jump(text, index, flow)
        elif text == "else":
            yield self.statement(index + 1, end, flow)
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
            self.facts.changed = True

    def condition(self, index: int, end: int, flow: bool) -> Steps[None]:
        while True:  # along a chain of else if
            constexpr = self.texts[index + 1] == "constexpr"
            opening = index + 1 + constexpr
            closing = self.match[opening]
            self.expression(opening + 1, closing, flow)
            flow = flow and (constexpr or self.is_uniform(opening + 1, closing))
            index = self.syntax.after_statement(closing + 1)
            yield self.statement(closing + 1, index, flow)
            if index >= end or self.texts[index] != "else":
                return
            index += 1
            if self.texts[index] != "if":
                yield self.statement(index, end, flow)
                return

    def loop(self, index: int, end: int, flow: bool) -> Steps[None]:
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
                self.facts.vary(self.body, self.body.names.get(at))
        self.loops.append(index)
        skipping = self.skipping
        if keyword != "do":
            self.expression(*tested, inner)
        yield self.statement(body_begin, body_end, inner)
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
        """Records what an expression or declaration writes and calls."""
        index = begin
        self.facts.spend(max(0, end - begin))
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
        """When a lambda runs is unknown: variables that it names vary, and its calls are not uniform."""
        for at in range(index, self.match[opening]):
            if self.tokens[at].kind == IDENTIFIER:
                self.facts.vary(self.body, self.body.names.get(at))
                self._call(at, index, False)

    def _name(self, index: int, begin: int, end: int, flow: bool) -> None:
        name, before = self.body.names.get(index), self.tokens[index - 1]
        self._call(index, begin, flow)
        if name is None:
            return
        after = index + 1
        while self.texts[after] in (".", "->", "["):
            if self.texts[after] == "[":
                after = self.match[after] + 1
            else:
                after += 2
                if self.texts[after] == "(":
                    self.facts.vary(self.body, name)  # a method may change it
        typed = before.kind == IDENTIFIER and before.text not in BEFORE_EXPRESSIONS | KEYWORDS
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
                self.facts.vary(self.body, name)
            if before.text == "&":
                self._alias(*read)
        if before.text == "&" and not self._is_operand(index - 2):
            self.facts.vary(self.body, name)
        decays = name in self.body.arrays and self.texts[index + 1] != "["  # then a pointer may change it
        if decays or self._passed_to_change(index, begin):
            self.facts.vary(self.body, name)

    def _alias(self, begin: int, end: int) -> None:
        """A reference to these variables may change them."""
        for at in range(begin, end):
            self.facts.vary(self.body, self.body.names.get(at))

    def _is_operand(self, index: int) -> bool:
        token = self.tokens[index]
        operand = token.kind in (IDENTIFIER, NUMBER) and token.text not in BEFORE_EXPRESSIONS
        return operand or token.text in (")", "]")

    def _operand_end(self, index: int, end: int) -> int:
        while index < end:
            self.facts.spend(1)
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
        """Whether it is among the arguments of a call that may take them by reference."""
        for callee, position in self._callees(index, begin):
            if position in self.facts.changed_by.get(callee, ()) or not self._is_known(callee):
                return True
        return False

    def _callees(self, index: int, begin: int) -> Iterator[tuple[str, int]]:
        """The calls that have it among their arguments, with its position there."""
        at, position = index, 0
        while at > begin:
            self.facts.spend(1)
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
        known = callee in self.facts.functions or callee in ARITHMETIC or callee in WORDS or callee in KEYWORDS
        type_ = callee in SCALARS or callee in self.facts.types or VECTOR.fullmatch(callee) is not None
        builtin = callee in BUILTINS or callee in CHANGES or callee.startswith(("simdgroup_", "make_", "atomic_"))
        return known or type_ or builtin

    def _call(self, index: int, begin: int, flow: bool) -> None:
        """A call of a convergent or a user's function, if one is named at ``index``."""
        name = self.texts[index]
        user = name in self.facts.bodies
        if not user and name not in BUILTINS:
            return
        opening = call_opening(self.syntax, index)
        if opening is None:
            return
        together = self.together(flow) and self._always_evaluated(index, begin)
        if name in BUILTINS:
            self.facts.changed |= self.body.calls.get(index, True) and not together
            self.body.calls[index] = together
        if user:
            arguments = self.syntax.split(opening + 1, self.match[opening])
            uniform = [self.is_uniform(*argument) for argument in arguments]
            self.facts.call(name, uniform, together and self.body.entered)

    def _always_evaluated(self, index: int, begin: int) -> bool:
        """Whether no ``?``, ``&&`` or ``||`` before it lets some lanes skip it."""
        at = index
        while at > begin:
            self.facts.spend(1)
            at -= 1
            text = self.texts[at]
            if text in (")", "]", "}"):
                at = self.match[at]
            elif text in ("?", "&&", "||", "and", "or") and not self.is_uniform(self._condition_start(at, begin), at):
                return False
        return True

    def _condition_start(self, index: int, begin: int) -> int:
        while index > begin:
            self.facts.spend(1)
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
            self.facts.spend(1)
            token = self.tokens[index]
            if token.kind == IDENTIFIER and self.texts[index - 1] not in (".", "->"):
                if token.text in REDUCTIONS:
                    opening = call_opening(self.syntax, index)
                    if opening is None or not self.body.calls.get(index, True) or token.text in self.facts.bodies:
                        return False
                    index = self.match[opening] + 1
                    continue
                if not self._is_uniform_name(index):
                    return False
            elif token.kind == IDENTIFIER and (
                self.texts[index + 1] == "(" or token.text in self.facts.pointer_members
            ):
                return False  # a method, or an access to memory
            elif token.text == "*" and not self._is_operand(index - 1):
                if self.body.names.get(index + 1) not in self.body.constant_pointers:
                    return False
            elif token.text == "[" and self._lambda(index) is not None:
                return False
            index += 1
        return True

    def _is_uniform_name(self, index: int) -> bool:
        name, facts, body = self.texts[index], self.facts, self.body
        if index in body.names:
            return body.names[index] not in body.varying
        if body.function.in_struct and name in facts.members:
            return False
        if name in facts.constants or name in facts.class_constants:
            return True
        if name in WORDS or name in SCALARS or VECTOR.fullmatch(name):
            return True
        if self.texts[index + 1] == "::" or (name in facts.types and self.texts[index + 1] in ("(", "{", ">", "<")):
            return True
        if call_opening(self.syntax, index) is not None:
            return name in facts.pure or (name in ARITHMETIC and name not in facts.functions)
        # A constant of a class; there are no other static members.
        return self.texts[index - 1] == "::"
