"""Pointers and references name the memory they point to, as Apple's compiler demands of every one.

It goes by names: behind a scalar, a vector, ``void`` or a struct of the source, ``*`` and ``&`` can only declare. Types
that are known to the compiler alone (``T *``, aliases, ``auto &``) may bring an address space along and are not looked
at. That a pointer to one address space is not given one to another is not checked.
"""

from __future__ import annotations

from .declarations import Declarations
from .reflect import SCALARS
from .syntax import ADDRESS_SPACES, Syntax
from .tokens import IDENTIFIER, fail
from .uniform_facts import VECTOR

_AROUND = frozenset({"const", "volatile", "unsigned", "signed", "::"})


def check_address_spaces(syntax: Syntax, declarations: Declarations) -> None:
    """Raises at the first pointer or reference that names no address space."""
    texts = syntax.texts
    structs = declarations.own_structs - declarations.aliases.keys()
    for index in range(syntax.count):
        if texts[index] not in ("*", "&"):
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
        if known and not named:
            what = "pointer" if texts[index] == "*" else "reference"
            written = " ".join(texts[first : index + 1])
            raise fail(
                f"a {what} needs an address space: device, constant, threadgroup or thread before {written!r}",
                syntax.tokens[index],
            )
