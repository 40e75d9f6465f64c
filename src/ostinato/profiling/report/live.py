"""A recording that is being written, as one picture for a terminal, or as one line.

Everything that came from the recording is escaped. On a narrow or low terminal the picture has fewer columns and rows.
"""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.text import Text

from ..analyse import formatting
from ..analyse.live import Picture, State
from ..analyse.validity import Status
from .tables import MISSING, Column, Table, checks
from .terminal import print_line, sentence_lines, table_lines
from .text import cut, visible

MOST_KERNELS = 15
_REGIONS, _KERNELS_IN_LINE = 4, 3
_SHORTEST_NAME = 20
_IDLE_NS = 2_000_000_000
_GAP = "  "
_MORE = "a terminal of {width} columns"
_STATES = {State.RUNNING: "green", State.ENDED: "bold", State.KILLED: "bold red", State.UNKNOWN: "yellow"}


def print_picture(picture: Picture, path: Path, to: Console) -> None:
    """Prints the picture."""
    for line in picture_lines(picture, path, to.width):
        print_line(line, to)


def picture_lines(picture: Picture, path: Path, width: int, rows: int = MOST_KERNELS) -> list[Text]:
    """The lines of the picture, with so many kernels at most."""
    lines = _head(picture, width)
    lines += sentence_lines(_figures(picture), width)
    for table in (_kernels(picture, rows), _regions(picture), checks(picture.checks, "Checks")):
        if table.rows:
            lines += [Text(), *table_lines(table, width, _MORE)]
    return lines + sentence_lines(f"recorded: {_recorded(picture)} in {path}", width)


def as_line(picture: Picture) -> str:
    """The picture in one line, without colours."""
    if not picture.submissions:
        return f"{_state(picture)}; {_figures(picture)}"
    kernels = ", ".join(f"{visible(k.name)} {formatting.percent(k.share)}" for k in picture.kernels[:_KERNELS_IN_LINE])
    noted = [f"{c.name}: {visible(c.sentence)}" for c in picture.checks if c.status in (Status.NOTED, Status.ERROR)]
    parts = (_state(picture), _figures(picture), kernels, *noted, f"recorded: {_recorded(picture)}")
    return "; ".join(filter(None, parts))


def _head(picture: Picture, width: int) -> list[Text]:
    """The program and its state, in one line if there is room for both."""
    state, style = _state(picture), _STATES[picture.state]
    program = visible(picture.program or "unnamed program")
    room = width - len(state) - len(_GAP)
    if room < _SHORTEST_NAME:
        return [Text(cut(program, width), style="bold"), *sentence_lines(state, width, style=style)]
    return [Text(cut(program, room), style="bold").append(_GAP + state, style=style)]


def _state(picture: Picture) -> str:
    lasted = formatting.time(picture.lasted_ns)
    if picture.state is State.RUNNING:
        idle = f", idle for {formatting.time(picture.idle_ns)}" if picture.idle_ns > _IDLE_NS else ""
        return f"running, {lasted}{idle}"
    if picture.state is State.ENDED:
        return f"ended after {lasted}"
    if picture.state is State.KILLED:
        return f"killed after {lasted}"
    return f"{lasted}, not closed; whether it runs is not known"


def _figures(picture: Picture) -> str:
    if not picture.submissions:
        waiting = "" if picture.over else " yet: waiting for the first command buffer"
        return f"nothing was recorded{waiting}"
    parts = [
        f"{cut(visible(region.name), _SHORTEST_NAME)} {_per_second(region.per_s)}" for region in picture.regions[:1]
    ]
    parts.append(f"command buffers {_per_second(picture.buffers_per_s)}")
    if picture.queue_depth is not None:
        parts.append(f"queue depth {formatting.digits(picture.queue_depth)}")
    if picture.busy is not None:
        parts.append(f"device busy {formatting.percent(picture.busy)}")
    return f"last {formatting.time(picture.window_ns)}: {', '.join(parts)}"


def _regions(picture: Picture) -> Table:
    return Table(
        "Regions",
        (Column("region", right=False), Column("per second"), Column("mean")),
        tuple((r.name, _rate(r.per_s), formatting.time(r.mean_ns)) for r in picture.regions[:_REGIONS]),
    )


def _kernels(picture: Picture, rows: int) -> Table:
    shown = picture.kernels[:rows]
    rest = picture.kernels[rows:]
    notes = []
    if rest:
        share = formatting.percent(sum(kernel.share for kernel in rest))
        notes.append(f"{formatting.count(len(rest), 'more kernel')} with {share} of busy time")
    if picture.in_part:
        notes.append("of the newest dispatches only: there are too many to look at all of them")
    return Table(
        "Kernels, by share of busy time",
        (Column("kernel", right=False), Column("share"), Column("mean"), Column("per second", spare=1)),
        tuple(
            (
                kernel.name,
                formatting.percent(kernel.share),
                formatting.time(kernel.mean_ns),
                MISSING if picture.in_part else _rate(kernel.per_s),
            )
            for kernel in shown
        ),
        tuple(notes),
    )


def _recorded(picture: Picture) -> str:
    parts = (
        formatting.count(picture.submissions, "command buffer"),
        formatting.count(picture.samples, "dispatch", "dispatches"),
        formatting.count(picture.regions_begun, "region"),
        formatting.size(picture.file_bytes),
    )
    return ", ".join(parts)


def _rate(per_s: float) -> str:
    return formatting.digits(per_s)


def _per_second(per_s: float) -> str:
    return f"{_rate(per_s)}/s"
