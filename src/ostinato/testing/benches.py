"""The fixture `ostinato_bench`: measures, keeps recordings by name, and compares with those kept before.

The recording of a bench is FOLDER/NAME/BENCH/RUN.ostinato, and appears there when it is complete. A run is one process.
The recordings of several runs under one name are the sample of a comparison. All runs of pytest that compare two names
share one error: each may add runs and look again, and looks that cost nothing would find a difference in the end.

Benches take turns by a lock that all processes of the user share. A process loses it when it ends, in whatever way.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base import cache
from ..errors import ComparisonError, RecordingError, UsageError
from ..graph.graph import Graph
from ..graph.replay import Replayable
from ..measure.benching import Bench, bench
from ..measure.keeping import beside, folder_name
from ..measure.spreads import known_spreads
from ..profiling.analyse import formatting
from ..profiling.analyse.units import compare_units, read_unit, took_turns, units_in
from ..profiling.analyse.verdicts import LEAST_UNITS, Verdict
from ..profiling.recording import SUFFIX
from ..runtime.library import Kernel

if TYPE_CHECKING:
    import pytest

_DELTA = 0.02
"""Changes within this part count as the same, unless --ostinato-fail-slower gives another."""
_ERROR = 0.05
"""How likely one verdict or more may be wrong, over all benches and all looks at two names."""
_RUN = f"{time.time_ns()}-{os.getpid()}"


@dataclass(frozen=True, slots=True)
class Against:
    """A bench compared with the recordings that were kept under a name."""

    name: str
    verdict: str
    ratio: tuple[float, float, float] | None = None
    """This version's time over the kept one's: estimate and interval."""
    runs: tuple[int, int] = (0, 0)
    """Recordings of the kept version and of this one."""
    in_turns: bool = False
    """Whether these were made in turns."""
    next_runs: int = LEAST_UNITS
    """Of each version, for the next verdict."""
    reason: str = ""
    """Why nothing could be compared."""


@dataclass(frozen=True, slots=True)
class BenchLine:
    """A line of the summary. `asdict` gives plain data, which pytest-xdist sends from its workers."""

    name: str
    median_ns: float
    low_ns: float | None
    high_ns: float | None
    workers: int
    """Of pytest-xdist; 1 without it."""
    against: Against | None = None


class BenchFixture:
    """Measures what it is called with. `ostinato_bench(kernel, *arguments, threads=…)` gives an `ostinato.Bench`."""

    def __init__(self, request: pytest.FixtureRequest, folder: Path, lines: list[dict[str, Any]]) -> None:
        self._request = request
        self._folder = folder
        self._lines = lines

    def __call__(self, what: Any, *arguments: Any, **options: Any) -> Bench:
        """Measure a kernel with its arguments and grid, a graph, a replayable, or a function that encodes.

        Takes what `ostinato.bench` takes. Where a test measures several things, `name` tells them apart. The test fails
        if `--ostinato-fail-slower` is given and the verdict is SLOWER.
        """
        __tracebackhide__ = True
        config, name = self._request.config, self._name(options.get("name"))
        encodes = callable(what) and not isinstance(what, Kernel | Graph | Replayable)
        if encodes and "ostinato_device" in self._request.fixturenames:
            options.setdefault("device", self._request.getfixturevalue("ostinato_device"))
        with _in_turn():
            measured = bench(what, *arguments, **options)
        against = self._compared(measured, name)
        interval = measured.interval
        line = BenchLine(
            name,
            measured.median_ns,
            None if interval is None else interval.low,
            None if interval is None else interval.high,
            getattr(config, "workerinput", {}).get("workercount", 1),
            against,
        )
        self._lines.append(asdict(line))
        limit = config.getoption("--ostinato-fail-slower")
        if limit is not None and against is not None and against.verdict == Verdict.SLOWER.name:
            times = (
                ""
                if against.ratio is None
                else "takes {:.3f} times as long ({:.3f} to {:.3f}) and ".format(*against.ratio)
            )
            raise AssertionError(
                f"{name} {times}is slower than {against.name!r} by more than {formatting.percent(limit)}"
            )
        return measured

    def _name(self, given: Any) -> str:
        name: str = self._request.node.nodeid + (f" {given}" if given else "")
        if any(line["name"] == name for line in self._lines):
            raise UsageError(f"ostinato_bench: {name} was measured already; name= tells the benches of a test apart")
        return name

    def _compared(self, measured: Bench, name: str) -> Against | None:
        """Keeps the recording and compares it, as the options say."""
        config = self._request.config
        saved, earlier = config.getoption("--ostinato-save"), config.getoption("--ostinato-compare")
        own = None if saved is None else self._folder / saved / folder_name(name)
        if own is not None:
            _keep(measured, own)
        if earlier is None:
            return None
        kept = self._folder / earlier / folder_name(name)
        if not kept.is_dir():
            return Against(earlier, "", reason=f"nothing is kept of it under {earlier!r}")
        try:
            with tempfile.TemporaryDirectory(prefix="ostinato-") as temporary:
                if own is None:
                    own = Path(temporary) / "own"
                    _keep(measured, own)
                runs = [units_in(side) for side in (kept, own)]
                counts = len(runs[0]), len(runs[1])
                # What was not saved is looked at once.
                look = _Look(None, 1.0, LEAST_UNITS) if saved is None else _look(min(counts))
                before, now = ([read_unit(paths) for paths in side[: look.runs]] for side in runs)
            comparison = compare_units(
                before,
                now,
                names=(earlier, saved or "this run"),
                delta=config.getoption("--ostinato-fail-slower") or _DELTA,
                confidence=1 - _ERROR * look.error / self._benches(kept.parent),
                spreads=known_spreads(now[0].devices),
            )
        except (ComparisonError, RecordingError) as error:
            return Against(earlier, "", reason=str(error))
        whole = comparison.whole
        ratio = None if whole is None else whole.ratio
        return Against(
            earlier,
            (comparison if whole is None else whole).verdict.name,
            None if ratio is None else (ratio.estimate, ratio.low, ratio.high),
            counts,
            took_turns(before, now),
            look.next_runs,
        )

    def _benches(self, kept: Path) -> int:
        """How many benches may be compared: those kept, or the tests that measure if they are more."""
        tests = sum("ostinato_bench" in getattr(item, "fixturenames", ()) for item in self._request.session.items)
        return max(tests, sum(entry.is_dir() and not entry.name.startswith(".") for entry in kept.iterdir()))


@dataclass(frozen=True, slots=True)
class _Look:
    """What a verdict is made from."""

    runs: int | None
    """The first of each version; None for all."""
    error: float
    """The part of the error that it may use."""
    next_runs: int


def _look(runs: int) -> _Look:
    """The look at so many runs of each version. The parts of all looks add up to one.

    There is one at 5 runs, at 10, at 20 and so on, and its verdict stands until the next. Before, where only a
    calibration can decide, there is one at every run.
    """
    if runs < LEAST_UNITS:
        return _Look(None, 0.5 / (LEAST_UNITS - 1), LEAST_UNITS)
    doublings = (runs // LEAST_UNITS).bit_length() - 1
    count = LEAST_UNITS << doublings
    return _Look(count, 0.25 / 2**doublings, 2 * count)


def _keep(measured: Bench, folder: Path) -> None:
    # Beside the folder: in it, what a killed process leaves would count as a run.
    with beside(folder.parent) as unfinished:
        folder.mkdir(exist_ok=True)
        recording = unfinished / f"recording{SUFFIX}"
        measured.save(recording)
        os.replace(recording, folder / f"{_RUN}{SUFFIX}")


@contextlib.contextmanager
def _in_turn() -> Iterator[None]:
    """One bench at a time, over all processes."""
    handle = os.open(cache.folder() / "bench.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
