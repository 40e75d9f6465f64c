"""What results a candidate must have: those of the first choice, or of a NumPy function.

Every run starts from the same memory, which is restored afterwards. Results are compared bit for bit, or to a tolerance
where they are floating-point numbers. An oracle that differs from itself cannot judge others, so it is asked twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import counters
from ..base.ranges import Range, merged
from ..base.tolerances import Tolerance
from ..errors import TuningError
from ..graph.graph import Graph
from ..graph.replay import Replayable
from ..passes.compare import Region, differences, mismatches
from ..passes.snapshot import contents, pieces, restored
from ..passes.touched import written
from ..runtime.buffer import Buffer


@dataclass(frozen=True, slots=True)
class Expectation:
    """Which results are compared, with what, and how closely."""

    tolerance: Tolerance = 0.0
    outputs: Sequence[Buffer] | None = None
    """None: all that the first choice writes."""
    function: Callable[[], Any] | None = None
    """Returns an array for each of the outputs. None: the results of the first choice are expected."""


class Oracle:
    """The expected results, and the comparison with them."""

    def __init__(
        self, first: Graph, name: str, expectation: Expectation, values: Mapping[str, Any], newer_than: int
    ) -> None:
        """`name` is the first choice in words. Memory numbered above `newer_than` is scratch of the first choice."""
        outputs, function = expectation.outputs, expectation.function
        self._first = first
        self._tolerance = expectation.tolerance
        self._values = values
        self._region = Region(_ranges(first, outputs, newer_than))
        self._windows = pieces(first, self._region.ranges)
        if function is None:
            self._expected, _ = self._results(first)
            problem, _ = self.problem(first)
            if problem:
                raise TuningError(
                    f"the oracle differs from itself: two runs of the first choice ({name}) gave other results"
                    f" ({problem}); make it deterministic, or pass a tolerance or a NumPy function as oracle"
                )
            return
        assert outputs is not None
        self._expected = self._by_function(function, outputs)
        if not np.array_equal(self._expected, self._by_function(function, outputs)):
            raise TuningError("the oracle differs from itself: two calls of the function gave other results")
        problem, _ = self.problem(first)
        if problem:
            raise TuningError(f"the first choice ({name}) differs from the oracle: {problem}")

    def problem(self, candidate: Graph) -> tuple[str, float]:
        """How a candidate's results differ, empty if they do not; and how many seconds its run took."""
        results, seconds = self._results(candidate)
        return self._difference(candidate, results), seconds

    def _results(self, graph: Graph) -> tuple[np.ndarray, float]:
        """What a graph writes, and how many seconds its run took."""
        values = {name: value for name, value in self._values.items() if name in graph.params}
        with counters.uncounted(), restored(self._first, graph):
            run = Replayable(graph)
            began = time.perf_counter()
            run.replay(label="tune", **values).wait()
            seconds = time.perf_counter() - began
            return np.concatenate(contents(self._windows)), seconds

    def _difference(self, graph: Graph, actual: np.ndarray) -> str:
        typed = (self._first, graph)
        wrong = mismatches(typed, self._region, self._expected, actual, self._tolerance)
        return str(differences(typed, self._region, self._expected, actual, wrong)[0]) if len(wrong) else ""

    def _by_function(self, function: Callable[[], Any], outputs: Sequence[Buffer]) -> np.ndarray:
        arrays = function()
        arrays = list(arrays) if isinstance(arrays, tuple | list) else [arrays]
        if len(arrays) != len(outputs):
            raise TuningError(f"the oracle gave {len(arrays)} arrays for {len(outputs)} outputs")
        expected = np.zeros(self._region.nbytes, np.uint8)
        for array, buffer in zip(arrays, outputs, strict=True):
            given = np.asarray(array)
            if given.size != buffer.size:
                raise TuningError(f"the oracle gave an array of shape {given.shape} for {buffer!r}")
            begin, _, _ = self._first._range_of(buffer, "outputs")
            at = int(self._region.offsets(np.array([begin]))[0])
            data = np.ascontiguousarray(given.astype(buffer.dtype, copy=False)).reshape(-1).view(np.uint8)
            expected[at : at + buffer.nbytes] = data
        return expected


def _ranges(first: Graph, outputs: Sequence[Buffer] | None, newer_than: int) -> list[Range]:
    if outputs is not None:
        return merged(first._range_of(buffer, "outputs")[:2] for buffer in outputs)
    scratch = [
        (memory.address, memory.address + memory.nbytes)
        for memory in first.memories.values()
        if memory.number > newer_than
    ]
    ranges = [
        (begin, end) for begin, end in written(first) if not any(low <= begin and end <= high for low, high in scratch)
    ]
    if not ranges:
        raise TuningError("the first choice writes to no buffer that was there before; pass outputs=")
    return ranges
