"""Changing addresses in a native graph: its nodes, with the parameters that each was last given.

The driver takes new parameters for a node of an executable graph, from the next launch on; replays that were launched
before keep the old ones.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from . import launches

_LINE_BYTES = 64
_MOST_PLACES = 16


class NodeSpec(ctypes.Structure):
    """`NodeSpec` of launcher.cpp: a node, and what it launches."""

    _fields_ = (
        ("node", ctypes.c_uint64),
        ("function", ctypes.c_uint64),
        ("params", ctypes.c_uint64),
        ("blocks", ctypes.c_uint32),
        ("threads", ctypes.c_uint32),
        ("shared_bytes", ctypes.c_uint32),
        ("zero", ctypes.c_uint32),
    )


class AddedNode(NamedTuple):
    """A launch as it was added to a graph."""

    command: int
    """The index of its command."""
    node: int
    function: int
    blocks: int
    threads: int
    shared_bytes: int
    params: bytes


class Rows(NamedTuple):
    """Some of a graph's launches, each once."""

    numbers: np.ndarray
    at: int
    """The address of the numbers."""
    total: int

    @classmethod
    def of(cls, *rows: np.ndarray) -> Rows:
        """These rows, of which some may be the same."""
        numbers = np.unique(np.concatenate(rows)).astype(np.uint32)
        return cls(numbers, numbers.ctypes.data, len(numbers))


class Nodes:
    """The launches of one executable graph."""

    def __init__(self, graph: Any, executable: int, added: Sequence[AddedNode], count: int) -> None:
        self.graph = graph
        """The graph that the executable was made from, which owns the nodes."""
        self.executable = executable
        sizes = np.array([-(-len(one.params) // _LINE_BYTES) * _LINE_BYTES for one in added], np.int64)
        self._starts = sizes.cumsum() - sizes
        self._blocks = np.zeros(int(sizes.sum()), np.uint8)
        at = self._blocks.ctypes.data
        self._words = self._blocks.view(np.uint64)
        self._slots = self._blocks.data.cast("Q")
        # By the identity of the arrays, which are kept: words of the addresses, and rows.
        self._places: dict[tuple[int, int], tuple[np.ndarray, list[int], Rows, np.ndarray, np.ndarray]] = {}
        self.late: list[Rows] = []
        """Rows that have changed and that the driver has not been told of."""
        self._specs = (NodeSpec * max(len(added), 1))()
        self._rows = np.full(count, -1, np.int64)
        for row, (one, start) in enumerate(zip(added, self._starts.tolist(), strict=True)):
            self._blocks[start : start + len(one.params)] = np.frombuffer(one.params, np.uint8)
            self._rows[one.command] = row
            launch = (one.blocks, one.threads, one.shared_bytes)
            self._specs[row] = NodeSpec(one.node, one.function, at + start, *launch)
        self.specs_at = ctypes.addressof(self._specs)

    def change(self, nodes: np.ndarray, positions: np.ndarray, addresses: list[int] | np.ndarray) -> Rows:
        """Write new addresses of arguments; returns the rows that have changed, for `Launcher.update`.

        Callers pass the same arrays of places again and again, and do not change them.
        """
        known = self._places.get((id(nodes), id(positions)))
        if known is None:
            known = self._look_up(nodes, positions)
        words, numbers, rows, _, _ = known
        if isinstance(addresses, list):  # a few, for which NumPy takes longer
            slots = self._slots
            for word, address in zip(numbers, addresses, strict=True):
                slots[word] = address
        else:
            self._words[words] = addresses
        return rows

    def _look_up(
        self, nodes: np.ndarray, positions: np.ndarray
    ) -> tuple[np.ndarray, list[int], Rows, np.ndarray, np.ndarray]:
        rows = self._rows[nodes]
        words = (self._starts[rows] + launches.HEAD.size) // 8 + positions
        if len(self._places) >= _MOST_PLACES:
            self._places.clear()
        known = (words, words.tolist(), Rows.of(rows), nodes, positions)
        self._places[(id(nodes), id(positions))] = known
        return known

    def arguments(self, index: int, nbytes: int) -> bytes:
        """The parameters of a command behind their head, as they are now."""
        start = int(self._starts[self._rows[index]])
        return self._blocks[start + launches.HEAD.size : start + nbytes].tobytes()
