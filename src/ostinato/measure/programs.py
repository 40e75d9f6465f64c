"""Runs two commands in turns (A B, B A, A B …), each run recorded through its environment into a folder of its own.

A run may start several processes; each writes one file into the run's folder, and the run is the unit of a comparison.
Commands are lists of arguments and are never given to a shell. What they print goes to a file beside the recordings, so
that it neither mixes with a report nor depends on a terminal.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..base.children import ending, last_line
from ..base.printable import printable
from ..errors import ComparisonError
from ..profiling.recording import SUFFIX

OUTPUT = "output.txt"
"""What a run printed, beside its recordings."""
_OURS = "ostinato: recorded in "
"""What a recorded process prints when it ends, whatever happened before."""
_SHOWN = 200

Progress = Callable[[str], None]
Recordings = tuple[Path, ...]
"""Of the processes of one run."""


@dataclass(frozen=True, slots=True)
class Command:
    """One side of a comparison: its name, and its program with arguments."""

    name: str
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name} ({printable(shlex.join(self.arguments), _SHOWN)})"


def run_in_turns(
    a: Sequence[str], b: Sequence[str], folder: Path, pairs: int, progress: Progress = lambda what: None
) -> tuple[list[Recordings], list[Recordings]]:
    """Runs both commands `pairs` times each and gives the recordings of A's runs and of B's, in order.

    They lie in `folder/A/1`, `folder/B/1` and so on, which must not exist yet. Raises `ComparisonError` at the first
    run that fails or records nothing.
    """
    commands = Command("A", tuple(a)), Command("B", tuple(b))
    runs: dict[str, list[Recordings]] = {command.name: [] for command in commands}
    for pair in range(pairs):
        for command in commands if pair % 2 == 0 else commands[::-1]:
            done = sum(map(len, runs.values()))
            progress(f"run {done + 1} of {2 * pairs}: {command}")
            runs[command.name].append(recorded(command, folder / command.name / str(pair + 1)))
    return runs["A"], runs["B"]


def recorded(command: Command, folder: Path) -> Recordings:
    """Runs a command to its end; its processes are recorded in a folder that is made for it."""
    folder.mkdir(parents=True)
    environment = {
        "OSTINATO_PROFILE": "dispatches",
        "OSTINATO_PROFILE_FILE": str(folder.absolute() / f"{{pid}}{SUFFIX}"),
    }
    with (folder / OUTPUT).open("wb") as output:
        try:
            done = subprocess.run(
                command.arguments,
                env=os.environ | environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            )
        except (OSError, ValueError) as error:  # ValueError: a NUL in an argument
            reason = getattr(error, "strerror", None) or error
            raise ComparisonError(f"cannot run {command}: {printable(str(reason))}") from None
    if done.returncode != 0:
        raise ComparisonError(f"{command} {ending(done.returncode)}{_last_line(folder / OUTPUT)}")
    recordings = tuple(sorted(folder.glob(f"*{SUFFIX}")))
    if not recordings:
        raise ComparisonError(
            f"{command} recorded nothing: none of its processes submitted work to a device of ostinato"
            f" while OSTINATO_PROFILE was set{_last_line(folder / OUTPUT)}"
        )
    return recordings


def _last_line(path: Path) -> str:
    with path.open("rb") as file:
        line = last_line(file, but=_OURS)
    return f"; its last line: {line}" if line else "; it printed nothing"
