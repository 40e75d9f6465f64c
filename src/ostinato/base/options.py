"""Texts that options of the command line and of pytest take alike."""

from __future__ import annotations

import re

from ..errors import ArgumentError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def is_name(text: str) -> bool:
    """Whether recordings can be kept under this name: it is also the name of a folder."""
    return _NAME.fullmatch(text) is not None


def checked_name(text: str) -> str:
    """The name; raises `ArgumentError` if recordings cannot be kept under it."""
    if not is_name(text):
        raise ArgumentError(
            f"{text!r} is not a name: names have letters, digits, '.', '_' and '-', begin with a letter or a digit,"
            " and have at most 100 characters"
        )
    return text


def checked_part(text: str) -> float:
    """A part, from a text such as 2% or 0.02; raises `ArgumentError` if it is not between 0 and 1."""
    try:
        part = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        part = -1.0
    if not 0 < part < 1:
        raise ArgumentError(f"{text!r} is not a part between 0 and 1, such as 2% or 0.02")
    return part
