"""`ostinato.tune`: the fastest way to launch work, among those that give the right results.

Candidates are compiled, run once in a child process, held against an oracle, and then raced against the first choice
(`racing.py`). The first choice stays unless another is surely faster. With `inside=` whole graphs are raced that differ
only in the candidate: what is fastest alone, with warm caches and an idle device, is often not fastest there.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..base.tolerances import Tolerance, checked_tolerance
from ..encode.encoder import capture
from ..errors import ArgumentError, DeviceError, OstinatoError, TuningError
from ..graph.graph import Graph
from ..ir.commands import BufferBinding, Dispatch
from ..profiling.analyse.comparison import Row
from ..profiling.analyse.statistics import Interval
from ..profiling.analyse.verdicts import Verdict
from ..runtime import tuned as files
from ..runtime.buffer import Buffer, allocate
from ..runtime.queue import OnQueue, Queue, queue_of
from . import space as spaces
from .checks import check_seconds, check_share
from .inside import places, replaced, the_dispatch
from .oracle import Oracle
from .racing import Progress, race
from .space import Choice, Space
from .subjects import contender
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
    """Time of the best choice as a part of the first one's; None if the first was best."""
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
        """Whether another run would probably say the same; not on a machine too busy to tell."""
        return self.improved or not any(each.state == "cannot tell" for each in self.candidates)

    def __str__(self) -> str:
        where = " of the whole graph" if self.inside else ""
        if self.gain is not None:
            head = (
                f"best: {spaces.text(self.choice)}; takes {ratio_text(self.gain)} of the time{where}"
                f" with the first choice ({spaces.text(self.first)})"
            )
        elif not self.decided:
            head = f"cannot tell, so the first choice stays: {spaces.text(self.choice)}"
        else:
            head = f"the first choice was best: {spaces.text(self.choice)}"
        if self.kept:
            return f"{head} (kept from an earlier tuning)"
        lines = [head, f"{self._counted()} in {self.seconds:.1f} s"]
        for each in self.candidates:
            ratio = "" if each.ratio is None else f"{each.ratio:.1%}".replace("%", " %")
            ratio = ratio if each.interval is None else ratio_text(each.interval)
            lines.append(f"  {spaces.text(each.choice)}: {', '.join(filter(None, (each.state, ratio, each.reason)))}")
        return "\n".join(lines)

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
    call for the same sources, constants, shape and space returns it without measuring, unless `again` is True.
    """
    began = time.monotonic()
    parameters = spaces.checked(space)
    check_seconds(seconds)
    check_share("confidence", confidence)
    if not 0 <= delta < 1:
        raise ArgumentError(f"delta={delta!r} is not a part from 0 to 1, such as 0.005 for 0.5 %")
    allowed = checked_tolerance(tolerance, "tune")
    buffers = [outputs] if isinstance(outputs, Buffer) else None if outputs is None else list(outputs)
    if oracle is not None and (not callable(oracle) or buffers is None):
        raise ArgumentError("oracle: expected a function, with outputs= naming the buffers that it gives arrays for")
    queue = _queue(device, buffers, inside)
    say: Progress = progress or (lambda what: None)

    def make(choice: Choice) -> Graph:
        graph = capture(queue, lambda encoder: encode(encoder, **choice))
        if not graph.dispatches:
            raise TuningError(f"encode({spaces.text(choice)}) dispatches nothing")
        return graph

    newest = allocate(queue, 1, "uint8")._allocation().backing.number
    say("the first choice")
    first_choice = spaces.combinations(parameters, 1)[0]
    first = make(first_choice)
    key = _key(first, parameters)
    kept = None if file is None else files.for_device(file, queue.backend.capabilities)
    if kept is not None and not again:
        entry = next((entry for entry in kept.entries if entry.key == key.key), None)
        choice = None if entry is None else spaces.found_again(parameters, entry.choice)
        if entry is not None and choice is not None and entry.best_source == _sources(make(choice)):
            return _from(entry, choice, first_choice, parameters, time.monotonic() - began)
    numbers: list[int] = []
    own = None
    if inside is not None:
        own = the_dispatch(first)
        numbers = places(inside, own)

    def place(_: Choice, graph: Graph) -> Graph:
        return graph if inside is None or own is None else replaced(inside, numbers, own, graph)

    check = Oracle(first, spaces.text(first_choice), buffers, oracle, allowed, values or {}, newest)
    began = time.monotonic()
    with ExitStack() as scope:
        trials = scope.enter_context(Trials(queue, timeout)) if isolate else None
        result = search(
            spaces.combinations(parameters),
            make,
            place,
            check,
            first,
            values=values or {},
            seconds=seconds,
            delta=delta,
            confidence=confidence,
            trials=trials,
            say=say,
            inside=inside is not None,
            space_size=spaces.size(parameters),
            began=began,
        )
    if kept is not None and file is not None and result.decided:
        files.add(file, queue.backend.capabilities, [_entry(key, result, make(result.choice))])
    return result


def search(
    choices: Sequence[Choice],
    make: Callable[[Choice], Graph],
    place: Callable[[Choice, Graph], Graph],
    oracle: Oracle,
    first: Graph,
    *,
    values: Mapping[str, Any],
    seconds: float,
    delta: float,
    confidence: float,
    trials: Trials | None,
    say: Progress,
    inside: bool,
    space_size: int,
    began: float,
) -> Tuning:
    """Check and race these choices, of which the first is what others are compared with.

    `make` captures a candidate by itself, `place` returns the graph that is timed for it.
    """
    outcomes: dict[int, Candidate] = {0: Candidate(choices[0], "first")}
    timed: dict[int, Graph] = {}
    took: dict[int, float] = {}
    # In random order: where the time does not suffice, those that are tried are a fair sample.
    numbers = list(range(1, len(choices)))
    random.Random(0).shuffle(numbers)
    for done, number in enumerate(numbers, 1):
        choice, reason = choices[number], ""
        if time.monotonic() - began > seconds * _CHECKING:
            outcomes[number] = Candidate(choice, "not tried", _OVER)
            continue
        say(f"checking {done} of {len(numbers)}: {spaces.text(choice)}")
        try:
            graph = make(choice)
            reason = "" if trials is None else trials.run(graph, _known(values, graph))
            if not reason:
                reason, took[number] = oracle.problem(graph)
            if not reason:
                timed[number] = place(choice, graph)
        except (OstinatoError, ValueError) as error:
            reason = _reason(error, choice, first.queue)
        if reason:
            outcomes[number] = Candidate(choice, "out", reason)
    # Where the time does not suffice to race all, those whose first run was shortest are raced.
    order = sorted(timed, key=took.__getitem__)
    whole = place(choices[0], first)
    base = contender(whole, name="first", values=_known(values, whole))
    others = [contender(timed[at], name=str(at), values=_known(values, timed[at])) for at in order]
    left = max(seconds - (time.monotonic() - began), seconds * _CHECKING / 2)
    ratios, rows = race(base, others, left, confidence, delta, say)
    for at, number in enumerate(order):
        outcomes[number] = _outcome(choices[number], ratios.get(at), rows.get(at))
    candidates = tuple(outcomes[number] for number in sorted(outcomes))
    best, gain = _winner(candidates)
    return Tuning(best, choices[0], candidates, gain, inside, space_size, time.monotonic() - began)


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
    """Of those that are surely faster, the first that cannot be told from the fastest; else the first choice."""
    faster = [(each, each.interval) for each in candidates if each.state == "faster" and each.interval is not None]
    if not faster:
        return candidates[0].choice, None
    least = min(ratio.estimate for _, ratio in faster)
    winner, gain = next((each, ratio) for each, ratio in faster if ratio.low <= least)
    return winner.choice, gain


def _known(values: Mapping[str, Any], graph: Graph) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in graph.params or name in graph.names}


def _reason(error: Exception, choice: Choice, queue: Queue) -> str:
    """Why a candidate is out; raises if nothing can run on the device any more."""
    if isinstance(error, DeviceError) and not queue.usable:
        raise TuningError(
            f"the candidate {spaces.text(choice)} took the device along ({error}); isolate=True runs it elsewhere first"
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


# --- files -------------------------------------------------------------------------------------------------------


def _key(first: Graph, parameters: Space) -> files.Entry:
    """An entry with the key of a tuning: source, constants and shape of the first choice, and the space."""
    dispatches = [command for command in first.commands if isinstance(command, Dispatch)]
    shapes = []
    for dispatch in dispatches:
        sizes = [binding.nbytes for binding in dispatch.bindings if isinstance(binding, BufferBinding)]
        shapes.append(f"{'x'.join(map(str, dispatch.threads))}:{','.join(map(str, sizes))}")
    return files.Entry(
        kernel="+".join(dict.fromkeys(dispatch.kernel.name for dispatch in dispatches))[:1000],
        source=_sources(first),
        constants=";".join(
            dict.fromkeys(each.kernel.origin.specialisation for each in dispatches if each.kernel.origin)
        )[:1000],
        shape=";".join(dict.fromkeys(shapes))[:1000],
        space=spaces.digest(parameters),
        choice={},
        first={},
    )


def _sources(graph: Graph) -> str:
    """A digest of the kernels of a graph, each by its own source and constants."""
    parts = []
    for command in graph.commands:
        if isinstance(command, Dispatch) and command.kernel.origin is not None:
            origin, name = command.kernel.origin, command.kernel.name
            parts.append(f"{name} {origin.module.kernel_key(name)} {origin.specialisation}")
    return hashlib.sha256("\n".join(dict.fromkeys(parts)).encode()).hexdigest()[:16]


def _entry(key: files.Entry, result: Tuning, best: Graph) -> files.Entry:
    gain = result.gain
    return files.Entry(
        kernel=key.kernel,
        source=key.source,
        constants=key.constants,
        shape=key.shape,
        space=key.space,
        choice=spaces.written_choice(result.choice),
        first=spaces.written_choice(result.first),
        best_source=_sources(best),
        ratio=None if gain is None else (gain.estimate, gain.low, gain.high),
        inside=result.inside,
        measured=now(),
    )


def _from(entry: files.Entry, choice: Choice, first: Choice, parameters: Space, seconds: float) -> Tuning:
    gain = None if entry.ratio is None else Interval(*entry.ratio)
    return Tuning(choice, first, (), gain, entry.inside, spaces.size(parameters), seconds, kept=True)


def now() -> str:
    """The time of a measurement, for files."""
    return datetime.now(UTC).isoformat(timespec="seconds")
