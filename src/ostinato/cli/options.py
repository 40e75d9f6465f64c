"""Options of several commands: values (NAME=VALUE, parts of a whole, grids), and options that have no use."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress

import click
from click.core import ParameterSource

from ..base.options import checked_part
from ..errors import ArgumentError

Constants = dict[int | str, bool | int | float]


def constants_of(texts: tuple[str, ...]) -> Constants:
    """Function constants by name or index, from NAME=VALUE."""
    values: Constants = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="-c")
        given = number(value)
        if given is None:
            raise click.BadParameter(f"{value!r} is not a number, true or false", param_hint="-c")
        values[int(name) if name.isdecimal() else name] = given
    return values


def defines_of(texts: tuple[str, ...]) -> dict[str, str]:
    """Macros, from NAME or NAME=VALUE."""
    return {name: value or "1" for name, _, value in (text.partition("=") for text in texts)}


def number(text: str) -> bool | int | float | None:
    """A number, true or false; None for any other text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    with suppress(ValueError):
        return int(text, 0)
    with suppress(ValueError):
        return float(text)
    return None


def part(context: click.Context, option: click.Parameter, text: str) -> float:
    """A callback: a part of a whole, such as 2% or 0.02."""
    try:
        return checked_part(text)
    except ArgumentError as error:
        raise click.BadParameter(str(error)) from None


def extent(context: click.Context, option: click.Parameter, text: str | None) -> tuple[int, ...] | None:
    """A callback: a size of one to three dimensions, such as 1048576, 64x64 or 8x8x4."""
    if text is None:
        return None
    axes = text.split("x")
    if len(axes) > 3 or not all(re.fullmatch(r"[0-9]{1,18}", axis) and int(axis) for axis in axes):
        raise click.BadParameter(f"{text!r} is not a size of whole numbers from 1, such as 1048576, 64x64 or 8x8x4")
    return tuple(map(int, axes))


def refuse_unused(context: click.Context, uses: Mapping[str, Sequence[str]], kind: str) -> None:
    """Raises a usage error for an option that was given and has no use for this kind of work.

    `uses` names the kinds of work that an option is for, by the name of its parameter.
    """
    for option in context.command.params:
        kinds = uses.get(option.name or "", (kind,))
        if kind not in kinds and context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{option.opts[0]} applies to {' and '.join(kinds)}, not to {kind}")
