"""Overloads for other memory that copy an object and call the overload for a thread's own: ``return F(*this) + o;``."""

from __future__ import annotations

from .declarations import Declarations, Function
from .syntax import ADDRESS_SPACES, Syntax

_QUALIFIERS = ADDRESS_SPACES | {"const"}


def calls_with_copy(
    syntax: Syntax, declarations: Declarations, function: Function, names: list[str], position: int | None
) -> bool:
    """Whether a function only returns what it returns for a copy of the object that it is called on.

    With a ``position`` it is a copy of that argument. ``names`` are those of the parameters.
    """
    if function.body is None:
        return False
    begin, end = function.body
    body = [text for text in syntax.texts[begin + 1 : end] if text not in _QUALIFIERS]
    member = function.in_struct
    trailing = syntax.texts[function.closing : begin]
    if position is None and "const" not in trailing and "constant" not in trailing:
        return False
    original = ["*", "this"] if position is None else [names[position]]
    type_ = body[1] if body[:1] == ["return"] and len(body) > 1 else body[0] if body else ""
    if type_ == "return" or not type_:
        return False
    if position is None:
        type_ = function.scope[-1]
    shapes = [[type_, "(", *original, ")"], [type_, "{", *original, "}"]]
    if len(body) > 2 and body[0] == type_:
        copied = [[body[1], *copy[1:]] for copy in shapes] + [[body[1], "=", *original]]
        for copy in copied:
            if body[1 : 2 + len(copy)] == [*copy, ";"]:
                shapes, body = [[body[1]]], body[2 + len(copy) :]
                break
    if body[:1] != ["return"] or body[-1:] != [";"] or not _copies_members(syntax, declarations, type_):
        return False
    returned = "".join(body[1:-1])
    return any(returned in _calls(function, member, names, position, "".join(copy)) for copy in shapes)


def _calls(function: Function, member: bool, names: list[str], position: int | None, copy: str) -> set[str]:
    """The ways to write the call of a function with a copy."""
    arguments = list(names)
    if position is not None:
        arguments[position] = copy
    listed = ",".join(arguments)
    operator = function.name.removeprefix("operator") if function.name.startswith("operator") else ""
    if position is not None and (member or not operator):
        return set() if operator else {f"{function.name}({listed})"}
    operands = [copy, *names] if position is None else arguments
    if operator == "()":
        return {f"{copy}({listed})"}
    if operator == "[]":
        return {f"{copy}[{listed}]"}
    if operator:
        return {operator.join(operands)} if len(operands) == 2 else {operator + operands[0]}
    return {f"{copy}.{function.name}({listed})"}


def _copies_members(syntax: Syntax, declarations: Declarations, type_: str) -> bool:
    """Whether a copy of this class of the source has the members of the original."""
    if type_ not in declarations.own_structs:
        return False
    for function in declarations.functions:
        if not function.in_struct or function.name != type_ or function.scope[-1] != type_:
            continue
        made = [text for text in syntax.texts[function.closing + 1 : function.end] if text not in _QUALIFIERS]
        if _copied(syntax, function) and made[:2] != ["=", "default"] and not copied_members(syntax, function):
            return False
    return True


def _copied(syntax: Syntax, function: Function) -> str:
    """The name of the parameter of a constructor from the same class, "?" if it has none; empty for other functions."""
    parameters = [text for text in syntax.texts[function.opening + 1 : function.closing] if text not in _QUALIFIERS]
    if not function.in_struct or function.scope[-1] != function.name or parameters[:2] != [function.name, "&"]:
        return ""
    return parameters[2] if len(parameters) == 3 else "?"


def copied_members(syntax: Syntax, function: Function) -> list[str]:
    """The members that a constructor copies from an object of its class; none if it does anything else."""
    other = _copied(syntax, function)
    if not other or function.body is None:
        return []
    made = "".join(text for text in syntax.texts[function.closing + 1 : function.end] if text not in _QUALIFIERS)
    initialised, _, body = made.lstrip(":").rpartition("{") if made.endswith("{}") else made.partition("{")
    members = []
    for part in filter(None, initialised.lstrip(":").split(",")):
        name = part.partition("(")[0].partition("{")[0]
        members.append(name if part in (f"{name}({other}.{name})", f"{name}{{{other}.{name}}}") else "")
    for statement in filter(None, body.rstrip("}").split(";")):
        name = statement.partition("=")[0].removeprefix("this->")
        members.append(name if statement in (f"{name}={other}.{name}", f"this->{name}={other}.{name}") else "")
    return sorted(members) if all(members) else []
