"""What kernels printed: the records of a submission as messages, in the order of threads.

Messages go to standard error when their submission is found to be done, and stay with the `Submission`. Their texts
come from the source of a kernel, which may be anybody's, so what is not printable is escaped.
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..backends.protocol import Log
from ..base.printable import printable
from ..ir.command_list import CommandList
from ..ir.commands import Dispatch, Size3

if TYPE_CHECKING:
    from ..msl import Logged, LogSite

_RECORD = struct.Struct("=4IQ")
_ARGUMENT = struct.Struct("=2IQ")
_LONGEST_TEXT = 8192
_MOST_LANES = 4
_OVERWRITTEN = "a part of what its kernels printed cannot be read: a kernel wrote over it"


@dataclass(frozen=True, slots=True)
class LogMessage:
    """One message of a thread: a call of os_log or printf."""

    kernel: str
    label: str | None
    """The scopes its dispatch was encoded in, joined by '/'."""
    group: Size3
    """The position of its group among the groups of the grid."""
    thread: Size3
    """Its position in the grid."""
    level: str
    """"debug", "info", "notice", "error" or "fault"; "printf" for a printf."""
    subsystem: str
    category: str
    """What the os_log was made with; both empty for os_log_default and printf."""
    text: str
    """The message, without a line break at its end."""
    file: str
    line: int
    """Where the call stands."""

    def __str__(self) -> str:
        level = f", {self.level}" if self.level not in ("notice", "printf") else ""
        source = f" [{':'.join(part for part in (self.subsystem, self.category) if part)}]" if self.subsystem else ""
        head = f"{self.kernel}, group {_position(self.group)}, thread {_position(self.thread)}{level}"
        lines = "\n    ".join(printable(line, _LONGEST_TEXT) for line in self.text.split("\n"))
        return f"{printable(head + source, 400)}: {lines}"


def _position(position: Size3) -> str:
    x, y, z = position
    return f"({x}, {y}, {z})" if z else f"({x}, {y})" if y else str(x)


def read_log(log: Log, commands: CommandList) -> tuple[tuple[LogMessage, ...], Log]:
    """The messages in a log: by command, by the thread's position in the grid (z, then y, then x), and as printed.

    A kernel may have written over the records. What cannot be read is left out, and the log returned with the reason.
    """
    placed = []
    try:
        for node, site_number, group, thread, arguments in _records(log.records):
            command = commands.commands[node] if node < len(commands) else None
            if (
                not isinstance(command, Dispatch)
                or site_number >= len(command.kernel.log_sites)
                or group >= math.prod(command.groups)
            ):
                raise _Damaged
            message = _message(command, command.kernel.log_sites[site_number], group, thread, arguments)
            placed.append(((node, message.thread[::-1]), message))
    except (_Damaged, struct.error):
        log = log._replace(lost=_OVERWRITTEN)
    placed.sort(key=lambda each: each[0])
    return tuple(message for _, message in placed), log


class _Damaged(Exception):
    """Bytes that are no record."""


def _records(records: bytes) -> Iterator[tuple[int, int, int, int, list[Logged]]]:
    """Node, site, group, thread in the group, and arguments of each record."""
    from ..msl import Logged

    at = 0
    while at + _RECORD.size <= len(records):
        nbytes, node, site, thread, group = _RECORD.unpack_from(records, at)
        if not nbytes:
            return
        end = at + nbytes
        if nbytes < _RECORD.size or end > len(records):
            raise _Damaged
        arguments, inside = [], at + _RECORD.size
        while inside < end:
            kind, scalar_bytes, lanes = _ARGUMENT.unpack_from(records, inside)
            inside += _ARGUMENT.size
            if not 1 <= lanes <= _MOST_LANES or scalar_bytes > 8:
                raise _Damaged
            arguments.append(Logged(kind, scalar_bytes, struct.unpack_from(f"={lanes}Q", records, inside)))
            inside += 8 * lanes
        yield node, site, group, thread, arguments
        at = end


def _message(command: Dispatch, site: LogSite, group: int, thread: int, arguments: list[Logged]) -> LogMessage:
    from ..msl import apply_format, conversions

    if len(arguments) != len(conversions(site.format)):
        raise _Damaged
    across, down, _ = command.groups
    place = (group % across, group // across % down, group // across // down)
    origin = tuple(place[axis] * command.group_size[axis] for axis in range(3))
    # Groups at the edge of the grid are clipped, and number their threads by what is left.
    wide, high = (min(command.group_size[axis], command.threads[axis] - origin[axis]) for axis in range(2))
    inside = (thread % wide, thread // wide % high, thread // wide // high)
    position = (origin[0] + inside[0], origin[1] + inside[1], origin[2] + inside[2])
    text = apply_format(site.format, arguments).removesuffix("\n")
    return LogMessage(
        command.kernel.name, command.label, place, position, site.level, site.subsystem, site.category, text,
        site.file, site.line,
    )  # fmt: skip


def show(messages: tuple[LogMessage, ...], log: Log, title: str) -> None:
    """Write messages to standard error, and what of the log is missing."""
    lines = [str(message) for message in messages]
    if log.dropped:
        lines.append(
            f"ostinato: {title}: its kernels printed {log.dropped} more messages, which did not fit into the log;"
            " OSTINATO_LOG_BYTES makes it larger"
        )
    if log.lost:
        lines.append(f"ostinato: {title}: {log.lost}")
    if lines and sys.stderr is not None:
        with suppress(OSError, ValueError):  # closed: nothing can be shown, and the work is done all the same
            print("\n".join(lines), file=sys.stderr, flush=True)
