"""The opening lines of a report: program, time, host, revision, and how busy the machine was."""

from __future__ import annotations

from collections.abc import Sequence

from ..analyse import formatting
from ..analyse.origin import Origin

_MOST_PROCESSES = 8
_REVISION_CHARACTERS = 12
_PROGRAM_CHARACTERS = 200


def origin(origins: Sequence[Origin]) -> list[str]:
    """The opening lines; with several processes, two for all and one for each. Empty where nothing is known."""
    if not origins:
        return []
    if len(origins) == 1:
        (process,) = origins
        return [_program(process), _joined(_when(process), _where(process), _made_with(process))]
    hosts = formatting.count(len({process.host for process in origins}), "host")
    programs = list(dict.fromkeys(_program(process) for process in origins))
    lines = [f"{programs[0]}{f' and {len(programs) - 1} more' if len(programs) > 1 else ''}"]
    lines.append(_joined(f"{len(origins):,} processes on {hosts}", _made_with(origins[0])))
    for process in origins[:_MOST_PROCESSES]:
        lines.append(f"{process.name}: {_joined(f'pid {process.pid}', _when(process), _where(process))}")
    if len(origins) > _MOST_PROCESSES:
        lines.append(f"{len(origins) - _MOST_PROCESSES:,} more processes in the JSON report")
    return lines


def _program(process: Origin) -> str:
    program = process.program or "unnamed program"
    return program if len(program) <= _PROGRAM_CHARACTERS else program[: _PROGRAM_CHARACTERS - 1] + "…"


def _when(process: Origin) -> str:
    began = f"{process.began[:19].replace('T', ' ')} UTC" if process.began else ""
    return _joined(began, "" if process.duration_ns is None else formatting.time(process.duration_ns))


def _where(process: Origin) -> str:
    cores = _change([None if count is None else f"{count:,}" for count in process.cores])
    load = _change([None if load is None else f"{load:.1f}" for load in process.load])
    return _joined(
        f"on {process.host}" if process.host else "",
        f"{cores} {'core' if cores == '1' else 'cores'}" if cores else "",
        f"load {load}" if load else "",
    )


def _change(values: Sequence[str | None]) -> str:
    """At the start and at the end."""
    return " to ".join(dict.fromkeys(value for value in values if value is not None))


def _made_with(process: Origin) -> str:
    state = {None: "", True: " with changes", False: ""}[process.changed]
    return _joined(
        f"ostinato {process.version}" if process.version else "",
        f"revision {process.revision[:_REVISION_CHARACTERS]}{state}" if process.revision else "",
    )


def _joined(*parts: str) -> str:
    return ", ".join(filter(None, parts))
