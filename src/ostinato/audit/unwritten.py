"""Device memory that nobody has written: neither the host, nor a copy or fill, nor a kernel.

An array of bools has an element for each byte of a block, true while nobody has written it. Blocks that are written
throughout have none. Where it is not known what was written, all that may have been counts as written.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np

from ..graph.graph import Graph
from ..runtime.allocation import Allocation
from ..runtime.queue import Queue

Fresh = dict[int, np.ndarray]
"""What is unwritten of a graph's memory, by its number."""


def never_written(graph: Graph) -> Fresh:
    """What nobody has written of a graph's memory, where no submission has used it yet.

    Named buffers count as written: they may stand for those that a replay binds.
    """
    allocations = ((number, memory.allocation) for number, memory in graph.memories.items())
    fresh = {
        number: _unwritten_by_host(allocation)
        for number, allocation in allocations
        if allocation is not None and allocation.backing.unwritten and not allocation.backing.was_used
    }
    for named in graph.names.values():
        if named.memory in fresh:
            start = graph.memories[named.memory].address
            fresh[named.memory][named.begin - start : named.end - start] = False
    return fresh


def _unwritten_by_host(allocation: Allocation) -> np.ndarray:
    unwritten = np.zeros(allocation.backing.nbytes, np.bool_)
    for begin, end in allocation.backing.unwritten:
        unwritten[begin:end] = True
    return unwritten


class WrittenRecord:
    """What the lists of a program leave unwritten.

    `before` is to be called for each list, before it is submitted. If something was submitted without, or a list is not
    followed by `after`, all memory that it may have used counts as written.
    """

    def __init__(self) -> None:
        self._left: WeakKeyDictionary[Allocation, np.ndarray] = WeakKeyDictionary()
        self._submitted: WeakKeyDictionary[Queue, int] = WeakKeyDictionary()
        """How many submissions a queue has if all were announced."""

    def before(self, graph: Graph) -> Fresh:
        """What nobody has written of the memory of a list."""
        queue = graph.queue
        if self._submitted.get(queue, queue.submitted) != queue.submitted:
            self._left.clear()
        self._submitted[queue] = queue.submitted + len(graph.splits) + 1
        fresh = never_written(graph)
        for number, memory in graph.memories.items():
            allocation = memory.allocation
            left = None if allocation is None else self._left.pop(allocation, None)
            if allocation is not None and left is not None:
                fresh[number] = left & _unwritten_by_host(allocation)
        return fresh

    def after(self, graph: Graph, fresh: Fresh) -> None:
        """What the list leaves unwritten."""
        for number, unwritten in fresh.items():
            allocation = graph.memories[number].allocation
            if allocation is not None and unwritten.any():
                self._left[allocation] = unwritten
