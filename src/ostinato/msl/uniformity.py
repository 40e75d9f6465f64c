"""Where control flow is uniform: all lanes of a simdgroup arrive together.

A static, conservative analysis of control flow. A value is uniform when it is surely the same in all lanes of a
simdgroup: literals, template parameters, constants, `constant` arguments, positions and sizes of the group, the number
of the simdgroup, results of simdgroup reductions, and what is computed from these alone. Flow is uniform when every
condition and loop around it is, and no lane has left before. Whatever is not understood counts as varying: loads from
memory, pointers, references, results of functions that are not plainly arithmetic, everything a lambda touches.

A variable is uniform only if every assignment to it is. A helper is entered uniformly if each of
its calls is in uniform flow, and a parameter of it is uniform if each argument is. The analysis starts with everything
uniform and retracts until nothing changes. A source that would take too long counts as varying throughout.
"""

from __future__ import annotations

from dataclasses import dataclass

from .convergence import Convergence
from .declarations import Declarations
from .syntax import Syntax
from .uniform_facts import Facts, TooLong
from .uniform_walk import Walk


@dataclass(frozen=True, slots=True)
class Uniformity:
    """The answer for one source, by token position."""

    uniform_calls: frozenset[int]
    """Calls of MSL's convergent functions that all lanes of a simdgroup reach together."""
    varying_returns: frozenset[int]
    """``return`` in kernels, where only some lanes may leave."""


def analyse(syntax: Syntax, declarations: Declarations, convergence: Convergence) -> Uniformity:
    """Analyses all functions that may make lanes meet."""
    facts = Facts(syntax, declarations, convergence)
    try:
        facts.distrust_names_without_calls()
        facts.changed = True
        while facts.changed:
            facts.changed = False
            for body in facts.all_bodies:
                Walk(facts, body).run()
    except TooLong:
        return _nothing_known(syntax, facts)
    uniform = {at for body in facts.all_bodies for at, together in body.calls.items() if together}
    returns = {at for body in facts.all_bodies if body.kernel for at in body.returns}
    return Uniformity(frozenset(uniform), frozenset(returns))


def _nothing_known(syntax: Syntax, facts: Facts) -> Uniformity:
    returns = {
        at
        for body in facts.all_bodies
        if body.kernel and body.function.body is not None
        for at in range(*body.function.body)
        if syntax.texts[at] == "return"
    }
    return Uniformity(frozenset(), frozenset(returns))
