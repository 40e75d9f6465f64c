"""What a report is of, in lines: program, time, place, revision, and how busy the machine was."""

from __future__ import annotations

from collections.abc import Sequence

from ..analyse import formatting
from ..analyse.origin import Origin

_MOST_PROCESSES = 8
_REVISION_CHARACTERS = 12
_PROGRAM_CHARACTERS = 200


def origin(origins: Sequence[Origin]) -> list[str]:
    """The lines that open a report, one for each process after the first two; nothing where nothing is known."""
    if not origins:
        return []
    if len(origins) == 1:
        (one,) = origins
        return [_program(one), _joined(_when(one), _where(one), _made_with(one))]
    hosts = formatting.count(len({one.host for one in origins}), "host")
    programs = list(dict.fromkeys(_program(one) for one in origins))
    lines = [f"{programs[0]}{f' and {len(programs) - 1} more' if len(programs) > 1 else ''}"]
    lines.append(_joined(f"{len(origins):,} processes on {hosts}", _made_with(origins[0])))
    lines += [f"{one.name}: {_joined(f'pid {one.pid}', _when(one), _where(one))}" for one in origins[:_MOST_PROCESSES]]
    if len(origins) > _MOST_PROCESSES:
        lines.append(f"{len(origins) - _MOST_PROCESSES:,} more processes in the JSON report")
    return lines


def _program(one: Origin) -> str:
    program = one.program or "a program without a name"
    return program if len(program) <= _PROGRAM_CHARACTERS else program[: _PROGRAM_CHARACTERS - 1] + "…"


def _when(one: Origin) -> str:
    began = f"{one.began[:19].replace('T', ' ')} UTC" if one.began else ""
    return _joined(began, "" if one.duration_ns is None else formatting.time(one.duration_ns))


def _where(one: Origin) -> str:
    cores = _change([None if count is None else f"{count:,}" for count in one.cores])
    load = _change([None if load is None else f"{load:.1f}" for load in one.load])
    return _joined(
        f"on {one.host}" if one.host else "",
        f"{cores} {'core' if cores == '1' else 'cores'}" if cores else "",
        f"load {load}" if load else "",
    )


def _change(values: Sequence[str | None]) -> str:
    """At the start and at the end."""
    return " to ".join(dict.fromkeys(value for value in values if value is not None))


def _made_with(one: Origin) -> str:
    state = {None: "", True: " with changes", False: ""}[one.changed]
    return _joined(
        f"ostinato {one.version}" if one.version else "",
        f"revision {one.revision[:_REVISION_CHARACTERS]}{state}" if one.revision else "",
    )


def _joined(*parts: str) -> str:
    return ", ".join(filter(None, parts))
