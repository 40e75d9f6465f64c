"""The names that the code of a kernel reaches: those it mentions, those that their declarations mention, and so on.

It goes by names, without overload resolution or scopes, so it is conservative: it may include a name that the kernel
does not use, never leave out one that it uses.
"""

from __future__ import annotations

from collections.abc import Iterable

from .declarations import Declarations, Function, TypeName, Variable
from .kernels import KernelInstance
from .syntax import Syntax


class Mentions:
    """What the declarations of one source mention."""

    def __init__(self, syntax: Syntax, declarations: Declarations) -> None:
        self._texts = syntax.texts
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
            self._mentioned.setdefault(each.name, set()).update(self._texts[each.start : each.end])
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
            own = self._texts[function.start : function.end]
            reached = self._reached[function.name_at] = self._closure({*own, *self._always})
        arguments = {token.text for token in instance.template_arguments} - reached
        return reached | self._closure(arguments) if arguments else reached

    def _closure(self, names: Iterable[str]) -> frozenset[str]:
        reached = set(names)
        waiting = list(reached)
        while waiting:
            fresh = self._mentioned.get(waiting.pop(), set()) - reached
            reached |= fresh
            waiting.extend(fresh)
        return frozenset(reached)
