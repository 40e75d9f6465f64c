"""Which kernel every node of a plan runs, of as few plans as are asked for, for readers that come back.

A recording that is being written grows, and most of it is not needed to say what runs now. So plans, commands and texts
are read one by one when they are first needed, and kept, as many as memory allows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...errors import RecordingError
from . import schema, tables
from .declaring import NONE, Ints
from .reader import Recording

_MOST_NEW_NODES = 20_000
"""Nodes of new plans that one reading looks at; one plan at least."""
_REMEMBERED = 100_000
_REMEMBERED_PLANS = 1_000
_AT_ONCE = 500
_COMMANDS = schema.TABLES["commands"].only("id", "kind", "kernel", "specialisation", "source", "digest")
_CONSTANTS = schema.TABLES["command_constants"]


class Kernel(NamedTuple):
    """A kernel, a copy or a fill that occurs in a plan."""

    kind: str
    name: str
    source: str
    digest: str
    constants: tuple[tuple[str, str], ...]


class Texts(dict[int, str]):
    """The texts of a recording by id, each read when it is needed; `known` keeps them for the next reading."""

    def __init__(self, connection: sqlite3.Connection, known: dict[int, str]) -> None:
        super().__init__({NONE: ""})
        self._connection = connection
        self._known = known

    def __missing__(self, number: int) -> str:
        if number not in self._known:
            row = self._connection.execute("SELECT text FROM strings NOT INDEXED WHERE id = ?", (number,)).fetchone()
            if row is None or not isinstance(row[0], str):
                raise KeyError(number)
            if len(self._known) > _REMEMBERED:
                self._known.clear()
            self._known[number] = row[0]
        return self._known[number]


class Kernels:
    """The kernels of one recording. Call `begin` before each reading, and then `of`."""

    def __init__(self) -> None:
        self.seen: list[Kernel] = []
        """All that occurred so far."""
        self._positions: dict[tuple[str, ...], int] = {}
        self._plans: dict[int, Ints] = {}
        self._commands: dict[int, int] = {}

    def begin(self, recording: Recording, connection: sqlite3.Connection, texts: Texts) -> None:
        """Read from this connection from now on, a bounded number of new plans."""
        self._recording, self._connection, self._texts = recording, connection, texts
        self._new_nodes = 0
        if len(self._commands) > _REMEMBERED or len(self._plans) > _REMEMBERED_PLANS:
            self._commands.clear()
            self._plans.clear()

    def of(self, plans: Sequence[int]) -> list[Ints]:
        """For each plan the position in `seen` of every node's kernel, NONE for a barrier.

        Nothing for plans that are too much to read; the newest are read first.
        """
        for plan in sorted(set(plans) - self._plans.keys() - {NONE}, reverse=True):
            commands, _ = self._recording._blobs(schema.Plans, plan)
            if self._new_nodes and self._new_nodes + len(commands) // 4 > _MOST_NEW_NODES:
                break
            self._new_nodes += len(commands) // 4
            self._plans[plan] = self._nodes(commands)
        return [self._plans.get(plan, np.zeros(0, np.int64)) for plan in plans]

    def _nodes(self, commands: bytes) -> Ints:
        ids, at = np.unique(np.frombuffer(commands, "<u4"), return_inverse=True)
        new = [number for number in ids.tolist() if number not in self._commands]
        for begin in range(0, len(new), _AT_ONCE):
            some = new[begin : begin + _AT_ONCE]
            where = f"id IN ({','.join('?' * len(some))})"
            read = tables.read(self._connection, _COMMANDS, self._recording.version, self._texts, where, some)
            for number, *facts in zip(*(read[column.name].tolist() for column in _COMMANDS.columns), strict=True):
                self._commands[number] = self._position(number, tuple(facts))
        if len(lost := [number for number in ids.tolist() if number not in self._commands]):
            raise RecordingError(f"refers to a command that is not there: {lost[0]}")
        return np.array([self._commands[number] for number in ids.tolist()], np.int64)[at]

    def _position(self, command: int, facts: tuple[str, ...]) -> int:
        kind, name, _, source, digest = facts
        if kind == "barrier":
            return NONE
        if facts not in self._positions:
            read = tables.read(
                self._connection, _CONSTANTS, self._recording.version, self._texts, "command = ?", (command,)
            )
            constants = tuple(zip(read["name"].tolist(), read["value"].tolist(), strict=True))
            self._positions[facts] = len(self.seen)
            self.seen.append(Kernel(kind, name, source, digest, constants))
        return self._positions[facts]
