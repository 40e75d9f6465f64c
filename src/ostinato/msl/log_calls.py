"""Calls of `os_log` and `printf` in a source: their formats are read and checked, and the calls are rewritten.

A call keeps its arguments, each wrapped in a function of the shim that checks its type and makes it a logged value. In
place of the format stands the number of the call among those of its source. A call that is switched off gets a
`Silent` instead, and compiles to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from ..settings import LOG_LEVELS
from .declarations import Declarations
from .kernels import KernelInstance, is_kernel
from .log_format import Format, FormatError, conversions, literal_text, read_format
from .rewriter import Rewriter
from .syntax import Syntax
from .tokens import STRING, fail

_METHODS = {"log": "notice", "log_debug": "debug", "log_info": "info", "log_error": "error", "log_fault": "fault"}
_WRAPPERS = {"integer": "log_integer", "float": "log_float", "pointer": "log_pointer"}


@dataclass(frozen=True, slots=True)
class LogSite:
    """A call that logs."""

    level: str
    """One of `settings.LOG_LEVELS`, or "printf"."""
    format: Format
    subsystem: str
    category: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class LogCall:
    """Where a call stands; positions are token indices."""

    site: LogSite
    name_at: int
    formats: tuple[int, int]
    """The literals of its format."""
    arguments: tuple[tuple[int, int], ...]


def prints(site: LogSite, level: str | None, printf: bool) -> bool:
    """Whether a call prints: os_log from ``level`` on (None for never), printf if ``printf``."""
    if site.level == "printf":
        return printf
    return level is not None and LOG_LEVELS.index(site.level) >= LOG_LEVELS.index(level)


def find_log_calls(syntax: Syntax, declarations: Declarations) -> tuple[LogCall, ...]:
    """The calls of a source, checked: the format is a literal, and has a conversion for each argument."""
    texts = syntax.texts
    if "printf" not in texts and "os_log" not in texts and "os_log_default" not in texts:
        return ()
    own_methods = {function.name for function in declarations.functions if function.in_struct}
    own_functions = {function.name for function in declarations.functions if not function.in_struct}
    loggers = _loggers(syntax)
    calls = []
    for index in range(1, syntax.count - 1):
        name, member = texts[index], texts[index - 1] in (".", "->")
        if texts[index + 1] != "(":
            continue
        if member and name in _METHODS and name not in own_methods:
            calls.append(_call(syntax, index, _METHODS[name], loggers.get(_receiver(syntax, index), ("", ""))))
        elif name == "printf" and not member and name not in own_functions:
            calls.append(_call(syntax, index, "printf", ("", "")))
    return tuple(calls)


def _receiver(syntax: Syntax, index: int) -> str | int:
    """The logger that the method at ``index`` is called on: its name, or where it is made."""
    before = index - 2
    return syntax.match[before] if syntax.texts[before] in (")", "}") else syntax.texts[before]


def _loggers(syntax: Syntax) -> dict[str | int, tuple[str, str]]:
    """Subsystem and category of each `os_log` that is made of two literals, by its name or where it is made."""
    loggers: dict[str | int, tuple[str, str]] = {}
    texts, tokens = syntax.texts, syntax.tokens
    for index, text in enumerate(texts):
        if text != "os_log":
            continue
        opening = index + 1 if texts[index + 1] in ("(", "{") else index + 2
        inside = range(opening + 1, opening + 4)
        if opening + 4 >= syntax.count or texts[opening] not in ("(", "{") or syntax.match[opening] != inside.stop:
            continue
        if [tokens[at].kind == STRING for at in inside] == [True, False, True]:
            names = (literal_text(texts[inside[0]]), literal_text(texts[inside[2]]))
            loggers[opening if opening == index + 1 else texts[index + 1]] = names
    return loggers


def _call(syntax: Syntax, name_at: int, level: str, names: tuple[str, str]) -> LogCall:
    tokens, opening = syntax.tokens, name_at + 1
    first, end = opening + 1, opening + 1
    while tokens[end].kind == STRING:
        end += 1
    closing = syntax.match[opening]
    token = tokens[name_at]
    if end == first or syntax.texts[end] not in (",", ")"):
        raise fail(
            f"the format of {token.text} must be a string literal", tokens[first if first < closing else name_at]
        )
    try:
        parts = read_format("".join(literal_text(tokens[at].text) for at in range(first, end)))
    except FormatError as error:
        raise fail(f"format of {token.text}: {error}", tokens[first]) from None
    arguments = syntax.split(end + 1, closing)
    expected = conversions(parts)
    if len(arguments) != len(expected):
        at = arguments[len(expected)][0] if len(arguments) > len(expected) else first
        raise fail(
            f"the format of {token.text} has {_counted(len(expected), 'conversion')}, the call"
            f" {_counted(len(arguments), 'argument')}",
            tokens[at],
        )
    site = LogSite(level, parts, *names, token.file, token.line)
    return LogCall(site, name_at, (first, end), tuple(arguments))


def _counted(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"


def rewrite_log_calls(rewriter: Rewriter, calls: Sequence[LogCall], active: Collection[int]) -> None:
    """Rewrites all calls of a source; those with a number in ``active`` log."""
    for number, call in enumerate(calls):
        rewriter.delete(*call.formats)
        rewriter.replace(call.formats[0], f"__ost::LogSite{{{number}}}" if number in active else "__ost::Silent{}")
        if call.site.level == "printf":
            rewriter.replace(call.name_at, "__ost::print")
        for (begin, end), conversion in zip(call.arguments, conversions(call.site.format), strict=True):
            wrapper = f"__ost::{_WRAPPERS[conversion.takes]}"
            lanes = "" if conversion.takes == "pointer" else f"<{max(conversion.lanes, 1)}>"
            rewriter.before(begin, f"{wrapper}{lanes}(", outermost=True)
            rewriter.after(end - 1, ")")


class Printing:
    """Which kernels of a source reach calls that log."""

    def __init__(
        self,
        calls: Sequence[LogCall],
        active: Collection[int],
        syntax: Syntax,
        declarations: Declarations,
        reached: Callable[[KernelInstance], frozenset[str]],
    ) -> None:
        self._places = sorted(calls[number].name_at for number in active)
        self._reached = reached
        holders = [
            function
            for function in declarations.functions
            if function.body is not None and any(function.start <= at < function.end for at in self._places)
        ]
        inside = {at for function in holders for at in self._places if function.start <= at < function.end}
        self._everywhere = len(inside) < len(self._places)
        self._names = {function.name for function in holders if not is_kernel(syntax, function)}

    def reached_by(self, instance: KernelInstance) -> bool:
        """Whether a kernel may log; by names, so it may say so of one that does not."""
        if not self._places:
            return False
        function = instance.function
        own = any(function.start <= at < function.end for at in self._places)
        return own or self._everywhere or not self._names.isdisjoint(self._reached(instance))
