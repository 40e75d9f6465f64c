"""The errors in the output of g++ and clang++, each with what the compiler says about it; and some warnings.

Places are those of the text that was compiled; columns count bytes from 1.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace

from ..errors import Diagnostic

_MESSAGE = re.compile(
    r"^(?P<file>[^\n]+?):(?P<line>\d+):(?:(?P<column>\d+):)?[ \t]+"
    r"(?:(?P<kind>(?:fatal )?error|warning|note): )?(?P<text>[^\n]*)$",
    re.MULTILINE,
)


def read_errors(text: str) -> list[Diagnostic]:
    """The errors. Their notes are where templates were instantiated, innermost first, and then the compiler's notes."""
    errors: list[Diagnostic] = []
    leading: list[Diagnostic] = []
    """Where g++ says, before an error, that templates were instantiated; clang++ says so in notes after it."""
    takes_notes = explained = False
    for match in _MESSAGE.finditer(text):
        column = int(match["column"]) if match["column"] else None
        message = Diagnostic(match["text"], match["file"], int(match["line"]), column)
        kind = match["kind"]
        if kind == "note" or (kind == "error" and explained):
            if takes_notes:
                errors[-1] = replace(errors[-1], notes=(*errors[-1].notes, message))
            # Why a candidate does not fit is an error to g++; it stands after this note.
            explained = message.message.endswith("substitution failed:") or (
                explained and "expansion of macro" in message.message
            )
        elif kind is None:
            if "required" in message.message:
                leading.append(message)
        else:
            takes_notes = kind != "warning"
            if takes_notes:
                errors.append(replace(message, notes=tuple(leading)))
            explained = False
            leading.clear()
    return errors


_WARNING = re.compile(r" \[-W(?P<name>[\w-]+)\]$")


def read_warnings(text: str, names: Collection[str]) -> list[Diagnostic]:
    """The warnings of these names (`-Wname`), without the name, each with its notes."""
    warnings: list[Diagnostic] = []
    takes_notes = False
    for match in _MESSAGE.finditer(text):
        column = int(match["column"]) if match["column"] else None
        message = Diagnostic(match["text"], match["file"], int(match["line"]), column)
        if match["kind"] == "note" and takes_notes:
            warnings[-1] = replace(warnings[-1], notes=(*warnings[-1].notes, message))
        elif match["kind"] == "warning":
            named = _WARNING.search(message.message)
            takes_notes = named is not None and named["name"] in names
            if named is not None and takes_notes:
                warnings.append(replace(message, message=message.message[: named.start()]))
    return warnings
