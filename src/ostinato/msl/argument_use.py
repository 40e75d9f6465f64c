"""The arguments of a kernel that it never uses, which the host may leave unbound, as in Metal.

An argument is unused if its name occurs only in branches that are never taken (``if`` on template arguments and
function constants), in ``(void)name``, or as an argument of a function of the source that does not use it either. The
analysis is conservative: what it does not understand is a use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .constant_expression import NotConstant, Value, evaluate
from .declarations import Declarations, Function, TemplateHeader, TypeName
from .kernels import KernelInstance
from .overloads import formal_parameters
from .syntax import BEFORE_EXPRESSIONS, Syntax
from .tokens import IDENTIFIER, NUMBER, Token

Lookup = Callable[[str], Value]

_DEEPEST = 64
"""Calls inside calls that are followed."""
_LONGEST_CALL = 1024
"""Tokens of a call that is followed; every argument is looked at on its own."""
_MOST_OVERLOADS = 64
_TESTS = frozenset("! && || == != < > <= >= ( )".split())
"""What a condition may consist of: nothing whose result depends on the width or sign of a type."""
_MEMBER = frozenset({".", "->", "::"})


@dataclass(frozen=True, slots=True)
class _Call:
    """A call that has a parameter as one of its arguments."""

    name_at: int
    template_arguments: Sequence[tuple[int, int]]
    position: int
    count: int


class ArgumentUse:
    """The uses of arguments in one source, for one set of function constants, which ``constant`` evaluates."""

    def __init__(self, syntax: Syntax, declarations: Declarations, constant: Lookup) -> None:
        self._syntax = syntax
        self._constant = constant
        self._functions: dict[str, list[Function]] = {}
        for function in declarations.functions:
            if function.body is not None:
                self._functions.setdefault(function.name, []).append(function)
        self._types: dict[str, list[TypeName]] = {}
        for each in declarations.types:
            self._types.setdefault(each.name, []).append(each)
        self._around = self._classes_around(declarations)
        names = Counter(variable.name for variable in declarations.variables)
        members = {variable.name for variable in declarations.variables if variable.in_struct}
        self._unclear = members | {name for name, count in names.items() if count > 1}
        self._known: dict[tuple[object, ...], bool] = {}
        self._locals: dict[int, frozenset[str]] = {}
        self._local_aliases: dict[int, dict[str, list[int]]] = {}

    def unused(self, instance: KernelInstance) -> frozenset[str]:
        """The names of the arguments that a kernel does not use."""
        values: dict[str, Value] = {}
        for name, tokens in instance.substitution.items():
            values.update(_known_value(name, tokens, self._constant))
        names = {parameter.name for parameter in instance.parameters if parameter.role != "thread"}
        return frozenset(name for name in names if not name or not self._uses(instance.function, name, values, 0))

    # -- one function -----------------------------------------------------------------------------------------------

    def _uses(self, function: Function, name: str, values: Mapping[str, Value], depth: int) -> bool:
        key = (function.name_at, name, *sorted(values.items()))
        known = self._known.get(key)
        if known is None:
            self._known[key] = True  # while it is looked at: a function that calls itself
            known = self._known[key] = depth > _DEEPEST or self._looks_used(function, name, values, depth)
        return known

    def _looks_used(self, function: Function, name: str, values: Mapping[str, Value], depth: int) -> bool:
        assert function.body is not None
        texts = self._syntax.texts
        if name not in texts[function.closing : function.body[1]]:
            return False
        lookup = self._lookup(function, values)
        around: list[int] = []
        index, end = function.closing + 1, function.body[1]
        dead: dict[int, int] = {}
        while index < end:
            if index in dead:
                index = dead[index]
                continue
            text = texts[index]
            if text == "if":
                dead.update(self._never(index, lookup))
            elif text in ("(", "[", "{"):
                around.append(index)
            elif text in (")", "]", "}"):
                around.pop()
            elif text == name and texts[index - 1] not in _MEMBER and not self._is_discarded(index):
                call = self._call(index, around[-1]) if around else None
                if call is None or self._passes_on(function, call, values, lookup, depth):
                    return True
            index += 1
        return False

    def _never(self, index: int, lookup: Lookup) -> dict[int, int]:
        """The branch of the ``if`` at ``index`` that is never taken, by its first token: where it ends."""
        texts, syntax = self._syntax.texts, self._syntax
        opening = index + (2 if texts[index + 1] == "constexpr" else 1)
        then = syntax.match[opening] + 1
        if texts[opening] != "(" or texts[then] == "[":  # an attribute before the branch
            return {}
        otherwise = syntax.after_statement(then)
        taken = self._decided(opening + 1, then - 1, lookup)
        if taken is None:
            return {}
        if not taken:
            return {then: otherwise}
        return {otherwise: syntax.after_statement(otherwise + 1)} if texts[otherwise] == "else" else {}

    def _decided(self, begin: int, end: int, lookup: Lookup) -> bool | None:
        """Whether a condition holds, if that is known before the kernel runs."""
        tokens = self._syntax.tokens[begin:end]
        for part in _conjuncts(tokens):
            if all(token.kind in (IDENTIFIER, NUMBER) or token.text in _TESTS for token in part):
                try:
                    if not evaluate(part, lookup):
                        return False
                    continue
                except NotConstant:
                    pass
            tokens = []
        return True if tokens else None

    def _is_discarded(self, index: int) -> bool:
        """Whether this is ``(void)name;`` or ``(void)(name);``."""
        texts = self._syntax.texts
        if texts[index - 1] == "(" and texts[index + 1] == ")":
            return texts[index - 4 : index - 1] == ["(", "void", ")"] and texts[index + 2] == ";"
        return texts[index - 3 : index] == ["(", "void", ")"] and texts[index + 1] == ";"

    # -- names ------------------------------------------------------------------------------------------------------

    def _lookup(self, function: Function, values: Mapping[str, Value]) -> Lookup:
        """The values of names in a function: template arguments, then the source's constants, unless it hides them."""
        hidden = self._hidden(function)

        def lookup(name: str) -> Value:
            if name in values:
                return values[name]
            if name in hidden or name in self._unclear:
                raise NotConstant(f"{name!r} is not a constant here")
            return _plain(self._constant(name))

        return lookup

    def _hidden(self, function: Function) -> frozenset[str]:
        """Names that mean something of the function's own: template parameters, parameters, local variables."""
        known = self._locals.get(function.name_at)
        if known is None:
            texts, tokens = self._syntax.texts, self._syntax.tokens
            names = {parameter.name for parameter in formal_parameters(self._syntax, function)}
            for header in (
                *function.templates,
                *(header for scope in self._around.get(function.name_at, ()) for header in scope.templates),
            ):
                names.update(parameter.name for parameter in header.parameters)
            for index in range(function.closing, function.end):
                if tokens[index].kind == IDENTIFIER:
                    before = tokens[index - 1]
                    declared = before.kind == IDENTIFIER and before.text not in BEFORE_EXPRESSIONS
                    if declared or before.text in ("*", "&", ">") or texts[index + 1] == "=":
                        names.add(texts[index])
            known = self._locals[function.name_at] = frozenset(names)
        return known

    def _is_class(self, each: TypeName) -> bool:
        return self._syntax.texts[each.end - 2] == "}" and self._syntax.texts[each.start] != "typedef"

    def _classes_around(self, declarations: Declarations) -> dict[int, list[TypeName]]:
        """The classes around each member function, the innermost last."""
        nested: list[TypeName | Function] = [each for each in declarations.types if self._is_class(each)]
        nested += [function for function in declarations.functions if function.in_struct]
        around: dict[int, list[TypeName]] = {}
        open_classes: list[TypeName] = []
        for each in sorted(nested, key=lambda each: (each.start, -each.end)):
            while open_classes and open_classes[-1].end <= each.start:
                open_classes.pop()
            if isinstance(each, TypeName):
                open_classes.append(each)
            else:
                around[each.name_at] = list(open_classes)
        return around

    # -- calls ------------------------------------------------------------------------------------------------------

    def _call(self, index: int, opening: int) -> _Call | None:
        """The call of which the name at ``index`` is a whole argument."""
        texts, syntax = self._syntax.texts, self._syntax
        if texts[opening] != "(" or texts[index - 1] not in ("(", ",") or texts[index + 1] not in (")", ","):
            return None
        if syntax.match[opening] - opening > _LONGEST_CALL:
            return None
        name_at, template_arguments = opening - 1, []
        if texts[name_at] == ">":
            angle = syntax.angle_start(name_at)
            template_arguments, name_at = syntax.split(angle + 1, name_at), angle - 1
        parts = syntax.split(opening + 1, syntax.match[opening])
        position = next((at for at, part in enumerate(parts) if part == (index, index + 1)), None)
        if position is None or syntax.tokens[name_at].kind != IDENTIFIER:
            return None
        return _Call(name_at, template_arguments, position, len(parts))

    def _passes_on(
        self, caller: Function, call: _Call, values: Mapping[str, Value], lookup: Lookup, depth: int
    ) -> bool:
        """Whether a function that may be called so uses the argument."""
        texts = self._syntax.texts
        name = texts[call.name_at]
        if name in self._types or name in self._hidden(caller):
            return True  # a constructor, or an object that is called
        if texts[call.name_at - 1] in (".", "->"):
            return True
        callees, within = self._functions.get(name, []), self._around.get(caller.name_at, [])
        qualifier = self._class_named(call.name_at - 2, caller, 0) if texts[call.name_at - 1] == "::" else None
        if qualifier is not None:
            members = [callee for callee in callees if callee.in_struct and callee.scope[-1] == qualifier[0]]
        elif texts[call.name_at - 1] != "::" and within:
            members = [callee for callee in callees if self._around.get(callee.name_at, []) == within]
        else:
            members = []
        callees = members or callees
        if len(callees) > _MOST_OVERLOADS:
            return True
        applicable = 0
        for callee in callees:
            parameters = formal_parameters(self._syntax, callee)
            declared = self._syntax.split(callee.opening + 1, callee.closing)
            if call.count > len(declared) or not all("=" in texts[slice(*part)] for part in declared[call.count :]):
                continue
            applicable += 1
            known = self._values_in(callee, caller, call, qualifier, values, lookup)
            parameter = parameters[call.position].name
            if parameter and self._uses(callee, parameter, known, depth + 1):
                return True
        return not applicable

    def _values_in(
        self,
        callee: Function,
        caller: Function,
        call: _Call,
        qualifier: tuple[str, Sequence[tuple[int, int]]] | None,
        values: Mapping[str, Value],
        lookup: Lookup,
    ) -> dict[str, Value]:
        """The template arguments of a callee, of its class included, as far as they are known values."""
        known: dict[str, Value] = {}
        around = self._around.get(callee.name_at, [])
        if around and around == self._around.get(caller.name_at, []):
            names = {each.name for scope in around for header in scope.templates for each in header.parameters}
            known.update((name, value) for name, value in values.items() if name in names)
        elif around and qualifier is not None and around[-1].name == qualifier[0] and not around[-1].specialised:
            known.update(self._given(around[-1].templates, qualifier[1], lookup))
        known.update(self._given(callee.templates, call.template_arguments, lookup))
        return known

    def _given(
        self, templates: Sequence[TemplateHeader], arguments: Sequence[tuple[int, int]], lookup: Lookup
    ) -> dict[str, Value]:
        known: dict[str, Value] = {}
        if not templates or "..." in self._syntax.texts[templates[-1].start : templates[-1].end]:
            return known
        for parameter, (begin, end) in zip(templates[-1].parameters, arguments, strict=False):
            if parameter.kind == "value":
                known.update(_known_value(parameter.name, self._syntax.tokens[begin:end], lookup))
        return known

    def _aliases(self, function: Function) -> dict[str, list[int]]:
        """Where a function has ``using name = …;``, by name."""
        known = self._local_aliases.get(function.name_at)
        if known is None:
            texts = self._syntax.texts
            known = self._local_aliases[function.name_at] = {}
            for index in range(function.closing, function.end):
                if texts[index] == "using" and texts[index + 2] == "=":
                    known.setdefault(texts[index + 1], []).append(index)
        return known

    def _class_named(self, index: int, caller: Function, level: int) -> tuple[str, Sequence[tuple[int, int]]] | None:
        """The class whose name ends at ``index``, and its template arguments; local aliases are followed."""
        syntax, texts = self._syntax, self._syntax.texts
        arguments: Sequence[tuple[int, int]] = ()
        if texts[index] == ">":
            angle = syntax.angle_start(index)
            arguments, index = syntax.split(angle + 1, index), angle - 1
        name = texts[index]
        aliases = self._aliases(caller).get(name, [])
        if not aliases:
            is_class = all(self._is_class(each) for each in self._types.get(name, ()))
            return (name, arguments) if is_class and name not in self._hidden(caller) else None
        if len(aliases) > 1 or level > 4:
            return None
        return self._class_named(syntax.after_statement(aliases[0]) - 2, caller, level + 1)


def _plain(value: Value) -> Value:
    """The value, if every type that a constant may have holds it and compares it alike."""
    if not isinstance(value, int) or not 0 <= value < 128:
        raise NotConstant(f"{value} depends on its type")
    return value


def _known_value(name: str, tokens: Sequence[Token], lookup: Lookup) -> dict[str, Value]:
    """The name of a template parameter with the value of its argument, if that is known."""
    try:
        return {name: _plain(evaluate(tokens, lookup))}
    except NotConstant:
        return {}


def _conjuncts(tokens: Sequence[Token]) -> list[list[Token]]:
    """The parts of a condition that must all hold."""
    parts: list[list[Token]] = [[]]
    level = 0
    for token in tokens:
        level += (token.text in ("(", "[", "{")) - (token.text in (")", "]", "}"))
        if level == 0 and token.text in ("||", "?", "="):
            return [list(tokens)]
        if level == 0 and token.text == "&&":
            parts.append([])
        else:
            parts[-1].append(token)
    return parts
