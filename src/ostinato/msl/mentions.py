"""The names that the code of a kernel reaches: those it mentions, those that their declarations mention, and so on.

It goes by names, without overload resolution. Of scopes it knows that a function hides variables of the source by its
parameters and by the variables of its outermost block. So it is conservative: it may include a name that the kernel
does not use, never leave out one that it uses.
"""

from __future__ import annotations

from collections.abc import Iterable

from .declarations import Declarations, Function, TypeName, Variable
from .kernels import KernelInstance
from .overloads import formal_parameters
from .syntax import BEFORE_EXPRESSIONS, Syntax
from .tokens import IDENTIFIER


class Mentions:
    """What the declarations of one source mention."""

    def __init__(self, syntax: Syntax, declarations: Declarations) -> None:
        self._syntax, self._texts = syntax, syntax.texts
        self._variables = {variable.name for variable in declarations.variables if not variable.in_struct}
        self._mentioned: dict[str, set[str]] = {}
        self._reached: dict[int, frozenset[str]] = {}
        declared = bytearray(syntax.count)
        named: list[Function | Variable | TypeName] = [
            *declarations.functions,
            *declarations.variables,
            *declarations.types,
        ]
        classes = {each.name for each in declarations.types}
        for each in named:
            # Whoever calls a member function has its class from somewhere, and the class mentions all that it holds.
            if isinstance(each, Function) and each.in_struct and each.scope[-1] in classes and not each.special:
                continue
            own = self._own(each) if isinstance(each, Function) else set(self._texts[each.start : each.end])
            self._mentioned.setdefault(each.name, set()).update(own)
        for start, end in [(each.start, each.end) for each in (*named, *declarations.instantiations)]:
            declared[start:end] = b"\1" * (end - start)
        # What is called without its name, and what stands in no declaration that has one, counts for every kernel.
        self._always = {name for name in self._mentioned if name.startswith(("operator", "~"))}
        self._always.update(text for text, named in zip(self._texts, declared, strict=False) if not named)

    def reached_from(self, instance: KernelInstance) -> frozenset[str]:
        """The names that a kernel may use."""
        function = instance.function
        reached = self._reached.get(function.name_at)
        if reached is None:
            reached = self._reached[function.name_at] = self._closure(self._own(function) | self._always)
        arguments = {token.text for token in instance.template_arguments} - reached
        return reached | self._closure(arguments) if arguments else reached

    def _own(self, function: Function) -> set[str]:
        """What a function mentions itself, but for variables of the source that it hides."""
        names = set(self._texts[function.start : function.end])
        return {name for name in names if name not in self._variables or not self._hides(function, name)}

    def _hides(self, function: Function, name: str) -> bool:
        """Whether a name means a parameter or a variable of the outermost block, wherever it stands in a function."""
        texts, syntax = self._texts, self._syntax
        places = [at for at in range(function.start, function.end) if texts[at] == name]
        first = places[0]
        if function.body is None or any(texts[at - 1] == "::" for at in places):
            return False
        if function.opening < first < function.closing:
            alone = len(places) == 1 or places[1] > function.closing
            return alone and any(parameter.name == name for parameter in formal_parameters(syntax, function))
        at = function.body[0] + 1
        while at < first:
            at = syntax.match[at] + 1 if texts[at] in ("(", "[", "{") else at + 1
        before = syntax.tokens[first - 1]
        declared = before.kind == IDENTIFIER and before.text not in BEFORE_EXPRESSIONS
        return at == first and declared and texts[first + 1] in ("=", ";", "[")

    def _closure(self, names: Iterable[str]) -> frozenset[str]:
        reached = set(names)
        waiting = list(reached)
        while waiting:
            fresh = self._mentioned.get(waiting.pop(), set()) - reached
            reached |= fresh
            waiting.extend(fresh)
        return frozenset(reached)
