"""The path of a thread, for threads that run as fibers.

Fibers of a simdgroup meet when they reach the same call by the same calls and loop iterations. So every convergent
call receives an identity: MSL's own functions take the site of the call as a hidden first argument, calls of user
functions that reach one are bracketed by a `Frame`, loops around them by a `Loop`.

Where lanes wait at different places, those at the lowest go on first. So places are numbered in the order in which a
thread comes to them: a call behind the calls among its arguments, the step of a loop behind its body, and, because the
arguments of a user function are evaluated inside of its frame, the places in a function behind those of its callers.
C++ leaves open which operand of an expression is evaluated first. So those come first that some lanes may pass by, such
as `b` in `f(a, x ? b : c)`: lanes that wait at `a`, which all come to, wait for them in either order.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import accumulate, pairwise

from .convergence import BUILTINS, Convergence
from .convergent_calls import ConvergentCalls, find_calls
from .declarations import Declarations
from .rewriter import Rewriter
from .syntax import Syntax
from .tokens import IDENTIFIER

_HEADS = frozenset({"if", "while", "switch", "for", "constexpr"})


def mark_paths(
    syntax: Syntax, declarations: Declarations, convergence: Convergence, rewriter: Rewriter, skipped: Collection[int]
) -> None:
    """Writes sites, frames and loops into all functions except the ``skipped`` kernels."""
    _Marker(syntax, convergence, rewriter).run(declarations, skipped)


class _Marker:
    def __init__(self, syntax: Syntax, convergence: Convergence, rewriter: Rewriter) -> None:
        self.syntax = syntax
        self.convergence = convergence
        self.rewriter = rewriter
        self._unframed = convergence.names - convergence.meeting
        self._sites: dict[int, int] = {}
        self._references: frozenset[str] = frozenset()
        """Functions that return a reference."""

    def run(self, declarations: Declarations, skipped: Collection[int]) -> None:
        syntax = self.syntax
        self._references = frozenset(
            function.name
            for function in declarations.functions
            if "&" in syntax.texts[function.start : function.name_at]
        )
        calls = find_calls(syntax, declarations, self.convergence.names, skipped)
        meets = [0]
        for index in range(len(syntax.tokens)):
            meets.append(meets[-1] + (index in calls.openings and syntax.texts[index] != "threadgroup_barrier"))
        loops: dict[int, int] = {}
        ends_of_do: set[int] = set()
        for index, text in enumerate(syntax.texts):
            if calls.in_body[index] and text in ("for", "while", "do") and index not in ends_of_do:
                end = syntax.after_statement(index)
                if text == "do":
                    condition_at = syntax.after_statement(index + 1)
                    if "".join(syntax.texts[condition_at : condition_at + 2]) != "while(":
                        continue
                    ends_of_do.add(condition_at)
                if meets[end] > meets[index]:
                    loops[index] = end
        self._number(calls, loops)
        # Backwards: in a.f().g() the frame of g is around that of f, and a loop's condition is around its calls.
        for index in sorted((*calls.openings, *loops), reverse=True):
            if index in loops:
                self._rewrite_loop(index, loops[index])
            else:
                self._rewrite_call(index, calls.openings[index])

    def _number(self, calls: ConvergentCalls, loops: Mapping[int, int]) -> None:
        """Gives each call and loop its site; functions are defined before their callers."""
        match = self.syntax.match
        bodies = list(accumulate(here and not before for before, here in pairwise((False, *calls.in_body))))
        conditions, ends = self._expressions(calls)
        reached: dict[int, tuple[int, int, int]] = {}
        for index, opening in calls.openings.items():
            # Lanes may part inside of a user function, too.
            passed_by = 2 * conditions[index] + (self.syntax.texts[index] not in BUILTINS)
            reached[index] = (ends[index], -passed_by, match[opening])
        for index, end in loops.items():
            reached[index] = (index, 0, 0)
            step = self._step_of(index)
            for call in calls.openings:
                if call in step:
                    reached[call] = (end, *reached[call][1:])
        order = sorted(reached, key=lambda index: (-bodies[index], reached[index]))
        self._sites = {index: site for site, index in enumerate(order, start=1)}

    def _expressions(self, calls: ConvergentCalls) -> tuple[Mapping[int, int], Mapping[int, int]]:
        """Of each call: how many conditions in its expression decide whether it is made, and the expression's end."""
        texts, match = self.syntax.texts, self.syntax.match
        conditions: dict[int, int] = {}
        ends: dict[int, int] = {}
        waiting: list[int] = []
        behind = [False]  # for each open bracket: whether a condition stands before this place in it
        for index, text in enumerate(texts):
            if index in calls.openings:
                conditions[index] = sum(behind)
                waiting.append(index)
            is_head = text == ")" and texts[match[index] - 1] in _HEADS
            if is_head or text in (";", "{", "}"):
                ends.update(dict.fromkeys(waiting, index))
                waiting.clear()
            if text in ("(", "["):
                behind.append(False)
            elif text in (")", "]"):
                behind.pop()
            elif text in ("?", "&&", "||"):
                behind[-1] = True
            elif text in (",", ";", "{", "}"):
                behind[-1] = False
        return conditions, ends

    def _step_of(self, index: int) -> range:
        """The tokens of the last part of a `for` statement's head."""
        opening, texts = index + 1, self.syntax.texts
        if texts[index] != "for":
            return range(0)
        closing = self.syntax.match[opening]
        semicolons = [at for at in self._top_level(opening + 1, closing) if texts[at] == ";"]
        return range(semicolons[-1], closing) if len(semicolons) == 2 else range(0)

    def _rewrite_call(self, index: int, opening: int) -> None:
        site = self._sites[index]
        if self.syntax.texts[index] in BUILTINS:
            comma = "," if self.syntax.match[opening] > opening + 1 else ""
            self.rewriter.after(opening, f"__ost::Site{{{site}}}{comma}")
            return
        if self.syntax.texts[index] in self._unframed:
            return
        start = self.syntax.postfix_start(index)
        if self.syntax.texts[index] in self._references:
            self.rewriter.inside(start, f"(__ost::Frame(__ost::Site{{{site}}}),")
            self.rewriter.after(self.syntax.match[opening], ")")
            return
        # A temporary would stay until the end of the expression around the call. A statement of its own does not, but
        # its value is no reference.
        self.rewriter.inside(start, f"({{ __ost::Frame __ost_frame(__ost::Site{{{site}}}); (")
        self.rewriter.after(self.syntax.match[opening], "); })")

    def _rewrite_loop(self, index: int, end: int) -> None:
        texts, match, rewriter = self.syntax.texts, self.syntax.match, self.rewriter
        keyword = texts[index]
        opening = (self.syntax.after_statement(index + 1) if keyword == "do" else index) + 1
        closing = match[opening]
        begin, finish = opening + 1, closing
        site = self._sites[index]
        name = f"__ost_loop_{site}"
        rewriter.before(index, f"for (__ost::Loop {name}(__ost::Site{{{site}}}); {name}.once();)", outermost=True)
        if keyword == "for":
            semicolons = [at for at in self._top_level(opening + 1, closing) if texts[at] == ";"]
            if len(semicolons) != 2:
                self._count_in_body(name, closing, end)  # over a range there is no condition
                return
            begin, finish = semicolons[0] + 1, semicolons[1]
        tokens = self.syntax.tokens
        if keyword != "do" and tokens[begin].kind == tokens[begin + 1].kind == IDENTIFIER:
            self._count_in_body(name, closing, end)  # the condition declares a variable
            return
        if begin == finish:
            rewriter.before(finish, f"{name}.next()")
        else:
            rewriter.before(begin, f"{name}.next() && (", outermost=True)
            rewriter.after(finish - 1, ")")

    def _count_in_body(self, name: str, closing: int, end: int) -> None:
        self.rewriter.before(closing + 1, f"{{ {name}.next();", outermost=True)
        self.rewriter.after(end - 1, "}")

    def _top_level(self, begin: int, end: int) -> list[int]:
        starts = []
        index = begin
        while index < end:
            starts.append(index)
            index = self.syntax.match[index] if self.syntax.match[index] > index else index
            index += 1
        return starts
