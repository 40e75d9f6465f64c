"""`ostinato.tune`: the fastest way to launch work, among those that give the right results.

Candidates are compiled, run once in a child process, held against an oracle, and then raced against the first choice
(`racing.py`). The first choice stays unless another is surely faster. With `inside=` whole graphs are raced that differ
only in the candidate: what is fastest alone, with warm caches and an idle device, is often not fastest there.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..base.printable import printable
from ..base.tolerances import Tolerance, checked_tolerance
from ..encode.encoder import capture
from ..errors import ArgumentError, DeviceError, OstinatoError, TuningError
from ..graph.graph import Graph
from ..profiling.analyse.comparison import Row
from ..profiling.analyse.statistics import Interval
from ..profiling.analyse.verdicts import Verdict
from ..runtime import tuned as files
from ..runtime.buffer import Buffer, allocate
from ..runtime.queue import OnQueue, Queue, queue_of
from . import kept
from . import space as spaces
from .checks import check_seconds, check_share
from .inside import only_dispatch, places, replaced
from .oracle import Expectation, Oracle
from .racing import Limits, Progress, race
from .space import Choice, Space
from .subjects import Contender, contender
from .trials import Trials

DELTA = 0.005
_CHECKING = 0.5
"""The part of the time for compiling and checking; candidates that it does not reach are not tried."""
_OVER = "the time was over"


@dataclass(frozen=True, slots=True)
class Candidate:
    """What became of one choice."""

    choice: Choice
    state: str
    """"first", "faster", "not surely faster", "not faster", "not in the final", "cannot tell", "not tried" or "out"."""
    reason: str = ""
    ratio: float | None = None
    """Its time as a part of the first choice's."""
    interval: Interval | None = None
    """The same with its interval, of finalists; the intervals of all finalists hold together."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """The result: which choice to take, and what became of the others."""

    choice: Choice
    """The best choice: the first, unless another is surely faster."""
    first: Choice
    candidates: tuple[Candidate, ...]
    gain: Interval | None
    """Time of the best choice as a part of the first one's; None if none is surely faster."""
    inside: bool
    """Whether whole graphs were timed."""
    space_size: int
    seconds: float
    kept: bool = False
    """Whether it was read from a file, and nothing was measured."""

    @property
    def improved(self) -> bool:
        """Whether the best choice is not the first."""
        return self.gain is not None

    @property
    def decided(self) -> bool:
        """Whether a better choice was named, or every candidate that is not out was timed and could be judged."""
        return self.improved or not self._states & {"cannot tell", "not tried"}

    @property
    def _states(self) -> set[str]:
        return {each.state for each in self.candidates}

    def __str__(self) -> str:
        if self.kept:
            return self._head()
        lines = [self._head(), f"{self._counted()} in {self.seconds:.1f} s"]
        for choice, *rest in self._rows():
            lines.append(f"  {choice}: {', '.join(filter(None, rest))}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from ..base import fragments
        from ..base.fragments import Column

        parts = [fragments.line(self._head(), "title")]
        if not self.kept:
            columns = (Column("choice", "name"), Column("", "status"), Column("time", "number"), Column("why"))
            parts.append(fragments.table(columns, self._rows(), notes=[f"{self._counted()} in {self.seconds:.1f} s"]))
        return fragments.fragment(*parts)

    def _head(self) -> str:
        where = " of the whole graph" if self.inside else ""
        if self.gain is not None:
            head = (
                f"best: {spaces.text(self.choice)}; takes {ratio_text(self.gain)} of the time{where}"
                f" with the first choice ({spaces.text(self.first)})"
            )
        else:
            why = "no candidate is surely faster" if self.decided else "not all candidates were timed"
            why = "cannot tell" if "cannot tell" in self._states else why
            head = f"{why}, so the first choice stays: {spaces.text(self.choice)}"
        return f"{head} (kept from an earlier tuning)" if self.kept else head

    def _rows(self) -> Iterator[tuple[str, str, str, str]]:
        """Choice, state, time as a part of the first choice's, and reason of every candidate."""
        for each in self.candidates:
            ratio = "" if each.ratio is None else f"{each.ratio:.1%}".replace("%", " %")
            ratio = ratio if each.interval is None else ratio_text(each.interval)
            yield spaces.text(each.choice), each.state, ratio, each.reason

    def _counted(self) -> str:
        states = [each.state for each in self.candidates]
        timed = len(states) - states.count("out") - states.count("not tried")
        return f"{timed} of {self.space_size} combinations timed, {states.count('out')} out,"


def ratio_text(ratio: Interval) -> str:
    """A ratio with its interval, in per cent."""
    return f"{ratio.estimate:.1%} ({ratio.low:.1%} … {ratio.high:.1%})".replace("%", " %")


def tune(
    encode: Callable[..., object],
    space: Space,
    *,
    device: OnQueue | None = None,
    oracle: Callable[[], Any] | None = None,
    outputs: Buffer | Sequence[Buffer] | None = None,
    tolerance: Tolerance = 0.0,
    inside: Graph | None = None,
    values: Mapping[str, Any] | None = None,
    seconds: float = 30.0,
    delta: float = DELTA,
    confidence: float = 0.95,
    isolate: bool = True,
    timeout: float = 20.0,
    file: str | Path | None = None,
    again: bool = False,
    progress: Progress | None = None,
) -> Tuning:
    """Find the choice from `space` with which `encode(encoder, **choice)` runs fastest.

    The first choice has the first value of each parameter, and the others are compared with it: in their results, and
    in turns in their times. `oracle` is a function that returns the expected contents of `outputs` as arrays; without
    one, what the first choice writes is expected. Results must be the same bit for bit, or to a `tolerance`. Another
    choice wins only if it surely saves more than `delta` of the time.

    `inside` is a graph with dispatches of the first choice: candidates are timed in their place, by replays of the
    whole graph. `values` are the parameters of a replay. Candidates run first in a child process unless `isolate` is
    False; one that faults there, or is not done after `timeout` seconds, is out.

    It takes about `seconds`, after the first choice is compiled. With `file`, the result is kept there, and a later
    call that would measure the same returns it without measuring, unless `again` is True.
    """
    began = time.monotonic()
    parameters = spaces.checked(space)
    check_seconds(seconds)
    check_seconds(timeout, "timeout")
    check_share("confidence", confidence)
    if not 0 <= delta < 1:
        raise ArgumentError(f"delta={delta!r} is not a part from 0 to 1, such as 0.005 for 0.5 %")
    allowed = checked_tolerance(tolerance, "tune")
    buffers = [outputs] if isinstance(outputs, Buffer) else None if outputs is None else list(outputs)
    if oracle is not None and (not callable(oracle) or buffers is None):
        raise ArgumentError("oracle: expected a function, with outputs= naming the buffers that it gives arrays for")
    queue = _queue(device, buffers, inside)
    progress = progress or _silent
    limits, values = Limits(seconds, delta, confidence), values or {}
    expectation = Expectation(allowed, buffers, oracle)

    def make(choice: Choice) -> Graph:
        graph = capture(queue, lambda encoder: encode(encoder, **choice))
        if not graph.dispatches:
            raise TuningError(f"encode({spaces.text(choice)}) dispatches nothing")
        return graph

    newest = allocate(queue, 1, "uint8")._allocation().backing.number
    progress("the first choice")
    first_choice = spaces.combinations(parameters, 1)[0]
    first = make(first_choice)
    place = None if inside is None else _placing(inside, first)
    key = kept.key_of(first, parameters, expectation, limits, values, inside)
    if file is not None:
        tuned = files.for_device(file, queue.backend.capabilities)
        entry = None if again else kept.found(tuned, key, parameters, make)
        if entry is not None:
            return _from(entry, first_choice, parameters, time.monotonic() - began)
        files.check_writable(file)
    with Trials(queue, timeout) if isolate else nullcontext() as trials:
        if trials is not None and (problem := trials.run(first, _values_of(first, values))):
            raise TuningError(f"the first choice ({spaces.text(first_choice)}) does not run: {problem}")
        task = Task(
            choices=spaces.combinations(parameters),
            make=make,
            place=place,
            first=first,
            oracle=Oracle(first, spaces.text(first_choice), expectation, values, newest),
            values=values,
            space_size=spaces.size(parameters),
        )
        result = search(task, limits, progress, trials)
    if file is not None and result.decided:
        files.add(file, queue.backend.capabilities, [kept.entry_of(key, result, make(result.choice))])
    return result


def _values_of(graph: Graph, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of parameters and buffers that a graph has."""
    return {name: value for name, value in values.items() if name in graph.params or name in graph.names}


def _silent(what: str) -> None:
    """Progress that nobody wants to see."""


def _placing(inside: Graph, first: Graph) -> Callable[[Choice, Graph], Graph]:
    dispatch = only_dispatch(first)
    numbers = places(inside, dispatch)
    return lambda _, graph: replaced(inside, numbers, dispatch, graph)


@dataclass(frozen=True, slots=True)
class Task:
    """What is searched, and for what."""

    choices: Sequence[Choice]
    """The others are compared with the first."""
    make: Callable[[Choice], Graph]
    """Captures a candidate by itself."""
    place: Callable[[Choice, Graph], Graph] | None
    """Returns the graph that is timed for a candidate. None: the candidate itself is timed."""
    first: Graph
    """The first choice by itself."""
    oracle: Oracle
    values: Mapping[str, Any]
    """Parameters of a replay."""
    space_size: int

    def timed(self, choice: Choice, graph: Graph) -> Graph:
        """The graph that is timed for a candidate."""
        return graph if self.place is None else self.place(choice, graph)

    def contender(self, name: str, graph: Graph) -> Contender:
        """A graph with those values that it takes."""
        return contender(graph, name=name, values=_values_of(graph, self.values))


def search(task: Task, limits: Limits, progress: Progress, trials: Trials | None = None) -> Tuning:
    """Check the candidates, in a child process first if there are `trials`, and race those with the right results."""
    began = time.monotonic()
    choices, seconds = task.choices, limits.seconds
    outcomes: dict[int, Candidate] = {0: Candidate(choices[0], "first")}
    timed: dict[int, Graph] = {}
    run_s: dict[int, float] = {}
    # In random order: where the time does not suffice, those that are tried are a fair sample.
    numbers = list(range(1, len(choices)))
    random.Random(0).shuffle(numbers)
    for done, number in enumerate(numbers, 1):
        choice, reason = choices[number], ""
        if time.monotonic() - began > seconds * _CHECKING:
            outcomes[number] = Candidate(choice, "not tried", _OVER)
            continue
        progress(f"checking {done} of {len(numbers)}: {spaces.text(choice)}")
        if trials is not None:
            trials.ready()  # a child that cannot start is no fault of the candidate
        try:
            graph = task.make(choice)
            reason = "" if trials is None else trials.run(graph, _values_of(graph, task.values))
            if not reason:
                reason, run_s[number] = task.oracle.problem(graph)
            if not reason:
                timed[number] = task.timed(choice, graph)
        except (OstinatoError, ValueError) as error:
            reason = _reason(error, choice, task.first.queue)
        if reason:
            outcomes[number] = Candidate(choice, "out", printable(reason))
    # Where the time does not suffice to race all, those whose first run was shortest are raced.
    order = sorted(timed, key=run_s.__getitem__)
    first = task.contender("first", task.timed(choices[0], task.first))
    others = [task.contender(str(number), timed[number]) for number in order]
    left_s = max(seconds - (time.monotonic() - began), seconds * _CHECKING / 2)
    ratios, rows = race(first, others, replace(limits, seconds=left_s), progress)
    for at, number in enumerate(order):
        outcomes[number] = _outcome(choices[number], ratios.get(at), rows.get(at))
    candidates = tuple(outcomes[number] for number in sorted(outcomes))
    best, gain = _winner(candidates)
    inside = task.place is not None
    return Tuning(best, choices[0], candidates, gain, inside, task.space_size, time.monotonic() - began)


def _outcome(choice: Choice, ratio: float | None, row: Row | None) -> Candidate:
    if row is None:
        if ratio is None:
            return Candidate(choice, "not tried", _OVER)
        return Candidate(choice, "not in the final", "", ratio)
    if row.ratio is None:
        return Candidate(choice, "cannot tell", "too few undisturbed rounds; the machine is busy", ratio)
    state = "faster" if row.verdict is Verdict.FASTER else "not faster" if row.ratio.low > 1 else "not surely faster"
    return Candidate(choice, state, "", row.ratio.estimate, row.ratio)


def _winner(candidates: Sequence[Candidate]) -> tuple[Choice, Interval | None]:
    """Of those that are surely faster, the first that may be as fast as the fastest; else the first choice."""
    faster = [(each, each.interval) for each in candidates if each.state == "faster" and each.interval is not None]
    if not faster:
        return candidates[0].choice, None
    least = min(ratio.estimate for _, ratio in faster)
    winner, gain = next((each, ratio) for each, ratio in faster if ratio.low <= least)
    return winner.choice, gain


def _reason(error: Exception, choice: Choice, queue: Queue) -> str:
    """Why a candidate is out; raises if nothing can run on the device any more."""
    if isinstance(error, DeviceError) and not queue.usable:
        raise TuningError(
            f"the candidate {spaces.text(choice)} made the device unusable ({error});"
            " isolate=True tries it in a child process first"
        ) from error
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


def _queue(device: OnQueue | None, outputs: Sequence[Buffer] | None, inside: Graph | None) -> Queue:
    if device is not None:
        return queue_of(device, "tune")
    if inside is not None:
        if not isinstance(inside, Graph):
            raise ArgumentError(f"inside: expected a Graph, got {type(inside).__name__}")
        return inside.queue
    if outputs:
        return outputs[0]._queue
    raise ArgumentError("tune: a function encodes on a device: pass device=")


def _from(entry: files.Entry, first: Choice, parameters: Space, seconds: float) -> Tuning:
    gain = None if entry.ratio is None else Interval(*entry.ratio)
    choice = spaces.found_again(parameters, entry.choice)
    assert choice is not None
    return Tuning(choice, first, (), gain, entry.inside, spaces.size(parameters), seconds, kept=True)
