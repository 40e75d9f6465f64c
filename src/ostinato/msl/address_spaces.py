"""Pointers and references name the memory they point to, as Apple's compiler demands of every one.

It goes by names: behind a scalar, a vector, ``void`` or a struct of the source, ``*`` and ``&`` can only declare. Not
looked at are pointers to members, structs of whose name there is a variable, a member or a template parameter too, and
types that are known to the compiler alone (``T *``, aliases, ``auto &``) and may bring an address space along. That a
pointer to one address space is not given one to another is not checked.
"""

from __future__ import annotations

from .declarations import Declarations
from .reflect import SCALARS
from .syntax import ADDRESS_SPACES, Syntax
from .tokens import IDENTIFIER, fail
from .uniform_facts import VECTOR

_AROUND = frozenset(
    """const volatile unsigned signed static constexpr inline struct class union enum typename ::""".split()
)


def check_address_spaces(syntax: Syntax, declarations: Declarations) -> None:
    """Raises at the first pointer or reference that names no address space."""
    texts = syntax.texts
    structs = declarations.own_structs - declarations.aliases.keys() - syntax.declared - _parameters(declarations)
    for index in range(syntax.count):
        if texts[index] not in ("*", "&") or texts[index - 1] == "::":
            continue
        first, named, known = index, False, False
        while first:
            text = texts[first - 1]
            if text in ADDRESS_SPACES:
                named = True
            elif text in SCALARS or text == "void" or text in structs or VECTOR.fullmatch(text):
                known = True
            elif text not in _AROUND and not (texts[first] == "::" and syntax.tokens[first - 1].kind == IDENTIFIER):
                break
            first -= 1
        if texts[first] == "::" and first and texts[first - 1] == ">":
            continue  # a member of what a template makes: its address space stands before that
        if first and texts[first - 1] in (".", "->"):
            continue  # a member, whose name may be a struct's
        if known and not named:
            what = "pointer" if texts[index] == "*" else "reference"
            written = " ".join(texts[first : index + 1])
            raise fail(
                f"a {what} needs an address space: device, constant, threadgroup or thread before {written!r}",
                syntax.tokens[index],
            )


def _parameters(declarations: Declarations) -> frozenset[str]:
    """The names of the parameters of all templates."""
    headers = [header for function in declarations.functions for header in function.templates]
    headers += [header for type_ in declarations.types for header in type_.templates]
    return frozenset(parameter.name for header in headers for parameter in header.parameters)
