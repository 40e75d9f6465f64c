"""Whether "look first at …" names the right kernel, on an idle machine and beside busy processes.

Three programs whose answer is known are recorded again and again, each time in a new process:

- three kernels, one after another, of nearly the same cost; the right one is that whose removal shortens the wall most,
  measured here first, on the machine as it is;
- a long kernel beside a short one, both too small for more than one worker, and a third that waits for both: the long
  one is right, also where a worker came late and ran them one after the other;
- two kernels of equal cost, which are the same code under two names: naming one of them alone is wrong.

The ceilings are measured beside the same busy processes.

    python bench/advice.py [--json] [--recordings N] [--seconds S] [--busy 0 2 6]

With `--busy` N, as many processes compute endlessly on the cores that this one may use while a recording is made.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from time import monotonic

import numpy as np

import ostinato
from harness import Table, interleaved, median, report
from harness import busy as beside
from ostinato.profiling import ceilings

METAL = """
#include <metal_stdlib>
using namespace metal;
kernel void hashed(device uint *out [[buffer(0)]], constant uint &steps [[buffer(1)]],
                   uint id [[thread_position_in_grid]]) {
    uint value = out[id];
    for (uint i = 0; i < steps; ++i) { value = value * 1664525u + 1013904223u; value ^= value >> 13; }
    out[id] = value;
}
kernel void mixed(device uint *out [[buffer(0)]], constant uint &steps [[buffer(1)]],
                  uint id [[thread_position_in_grid]]) {
    uint value = out[id] + id;
    for (uint i = 0; i < steps; ++i) { value ^= value << 7; value = value * 747796405u + 2891336453u; }
    out[id] = value;
}
kernel void turned(device uint *out [[buffer(0)]], constant uint &steps [[buffer(1)]],
                   uint id [[thread_position_in_grid]]) {
    uint value = out[id] ^ id;
    for (uint i = 0; i < steps; ++i) { value = rotate(value, 5u) * 5u + 3864292196u; }
    out[id] = value;
}
kernel void hashed_too(device uint *out [[buffer(0)]], constant uint &steps [[buffer(1)]],
                       uint id [[thread_position_in_grid]]) {
    uint value = out[id];
    for (uint i = 0; i < steps; ++i) { value = value * 1664525u + 1013904223u; value ^= value >> 13; }
    out[id] = value;
}
kernel void spin(device uint *out [[buffer(0)]], constant uint &steps [[buffer(1)]]) {
    uint value = out[0];
    for (uint i = 0; i < steps; ++i) { value = value * 1664525u + 1013904223u; value ^= value >> 13; }
    out[0] = value;
}
kernel void brief(device uint *out [[buffer(0)]], constant uint &steps [[buffer(1)]]) {
    uint value = out[0];
    for (uint i = 0; i < steps; ++i) { value = value * 1664525u + 1013904223u; value ^= value >> 13; }
    out[0] = value;
}
kernel void join(device uint *a [[buffer(0)]], device const uint *b [[buffer(1)]]) { a[0] += b[0]; }
"""
GROUP, GROUPS = 64, 64
THREE = {"hashed": 0.40, "mixed": 0.33, "turned": 0.27}
THREE_NS = 1_000_000
SPIN_STEPS, BRIEF_STEPS = 600_000, 60_000
RANK_ROUNDS = 201
ADJUSTMENTS = 8
CEILINGS = 5


@dataclass(frozen=True)
class Answer:
    """What one recording said."""

    named: tuple[str, ...]
    sure: bool
    fine: bool
    """Whether all checks said fine, or could not judge."""
    runs: int
    saving: float
    """The largest part of the wall that any kernel could save, upper ends of intervals included."""
    machine: str


Steps = dict[str, int]


class Programs:
    """The graphs, on one device."""

    def __init__(self) -> None:
        self.device = ostinato.open_device("cpu")
        self.library = self.device.library(METAL)

    def chain(self, steps: Steps) -> ostinato.Replayable:
        """Wide kernels one after another, of so many steps each."""
        data = self.device.array(np.arange(GROUP * GROUPS, dtype=np.uint32))

        def encode(encoder: ostinato.CommandEncoder) -> None:
            for kernel, count in steps.items():
                encoder.dispatch(self.library[kernel], data, count, threads=data.size, group_size=GROUP)

        return self.device.capture(encode).instantiate()

    def step_ns(self, kernel: str, steps: int = 2_000) -> float:
        """What one step of a wide kernel takes: the least of some runs, so that a busy machine does not matter."""
        once = partial(seconds, self.chain({kernel: steps}))
        return min(once() for _ in range(60)) * 1e9 / steps

    def join(self) -> ostinato.Replayable:
        """A long kernel beside a short one, and one that waits for both."""
        a, b = self.device.zeros(1, np.uint32), self.device.zeros(1, np.uint32)

        def encode(encoder: ostinato.CommandEncoder) -> None:
            encoder.dispatch(self.library["spin"], a, SPIN_STEPS, threads=1)
            encoder.dispatch(self.library["brief"], b, BRIEF_STEPS, threads=1)
            encoder.dispatch(self.library["join"], a, b, threads=1)

        return self.device.capture(encode).instantiate()


CASES = ("three", "join", "equal")


def seconds(run: ostinato.Replayable) -> float:
    submission = run.replay()
    submission.wait()
    times = submission.gpu_time
    assert times is not None
    return (times[1] - times[0]) / 1e9


def recorded(steps: Steps, limit_s: float) -> Answer:
    """One recording, in this process: of a chain, or without steps of the join."""
    programs = Programs()
    run = programs.chain(steps) if steps else programs.join()
    end = monotonic() + limit_s
    with ostinato.profile() as profile:
        while monotonic() < end:
            run.replay().wait()
    summary = profile.summary()
    verdict = summary.verdict
    assert verdict is not None
    judged = [check for check in summary.checks if check.status != "not judged"]
    return Answer(
        tuple(suspect.kernel for suspect in verdict.named),
        verdict.sure,
        all(check.status == "fine" for check in judged),
        verdict.runs,
        max(max(s.saving_share or 0, s.saving_high or 0) for one in summary.suspects for s in one.ranked),
        next(f"{check.status}: {check.sentence}" for check in summary.checks if check.name == "machine"),
    )


def recordings(case: str, steps: Steps, count: int, limit_s: float, busy: int) -> list[Answer]:
    """So many recordings, each in a process of its own."""
    command = [sys.executable, __file__, "--record", json.dumps(steps), "--seconds", str(limit_s)]
    found = []
    with beside(busy):
        for number in range(count):
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            answer = Answer(**json.loads(done.stdout))
            found.append(answer)
            print(f"{case}, {busy} busy, {number + 1}/{count}: {' or '.join(answer.named)}", file=sys.stderr)
    return found


def measured_ceilings(loads: list[int]) -> Table:
    """What the ceilings come out as beside busy processes, and whether they are marked."""
    rows, first = [], 0.0
    for busy in loads:
        with beside(busy):
            command = [sys.executable, __file__, "--ceilings"]
            done = [
                json.loads(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(CEILINGS)
            ]
        copy, flops = (median([measured[column] for measured in done]) for column in (0, 1))
        first = first or copy
        marked = sum(measured[2] for measured in done)
        rows.append(
            (busy, f"{copy / 1e9:.1f}", f"{copy / first:.2f}", f"{flops / 1e9:.0f}", f"{marked} of {len(done)}")
        )
    columns = ("busy processes", "copy GB/s", "× the first", "Gflop/s", "marked as of a busy machine")
    return Table("Ceilings, measured anew", columns, rows)


def true_shares(programs: Programs, steps: Steps) -> dict[str, float]:
    """By how much the wall shrinks when each of the three is removed, the contenders taking turns."""
    contenders: dict[str, Callable[[], float]] = {"all": partial(seconds, programs.chain(steps))}
    for kernel in THREE:
        rest = {other: count for other, count in steps.items() if other != kernel}
        contenders[kernel] = partial(seconds, programs.chain(rest))
    found = interleaved(contenders, RANK_ROUNDS)
    return {
        kernel: median([1 - without / whole for without, whole in zip(found[kernel], found["all"], strict=True)])
        for kernel in THREE
    }


def three_alike(programs: Programs) -> tuple[Steps, dict[str, float]]:
    """Steps with which the three have about the shares they should have, and the shares that they do have."""
    steps = {kernel: round(part * THREE_NS / programs.step_ns(kernel)) for kernel, part in THREE.items()}
    for _ in range(ADJUSTMENTS):
        shares = true_shares(programs, steps)
        ordered = sorted(shares.values())
        if all(low > 0 and 1.1 <= high / low <= 1.25 for low, high in pairwise(ordered)):
            return steps, shares
        steps = {kernel: round(count * THREE[kernel] / max(shares[kernel], 0.01)) for kernel, count in steps.items()}
    sys.exit(f"the shares of the three kernels do not settle ({shares}): the machine is too busy")


def row(case: str, busy: int, right: str | None, answers: list[Answer]) -> tuple[object, ...]:
    alone = [answer for answer in answers if len(answer.named) == 1 and answer.sure]
    wrong = [answer for answer in alone if answer.named[0] != right]
    return (
        case,
        busy,
        len(answers),
        len(alone) - len(wrong),
        len(wrong),
        sum(answer.fine for answer in wrong),
        len(answers) - len(alone),
        round(median([answer.runs for answer in answers])),
        f"{max(answer.saving for answer in answers):.1%}",
        "; ".join(f"{name} {count}" for name, count in Counter(" or ".join(a.named) for a in answers).most_common(3)),
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--json", action="store_true", help="print one JSON object")
    options.add_argument("--recordings", type=int, default=20, help="of each program and load (default 20)")
    options.add_argument("--seconds", type=float, default=3.0, help="of each recording (default 3)")
    options.add_argument("--busy", type=int, nargs="*", default=[0, 2, 6], help="busy processes (default 0 2 6)")
    options.add_argument("--record", type=json.loads, help=argparse.SUPPRESS)
    options.add_argument("--ceilings", action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.record is not None:
        answer = recorded(given.record, given.seconds)
        print(json.dumps({name: getattr(answer, name) for name in Answer.__dataclass_fields__}))
        return
    if given.ceilings:
        found = ceilings.measure(ostinato.open_device("cpu")._queue)
        print(json.dumps([found.copy_bytes_per_s, found.flops_per_s, found.busy]))
        return
    programs = Programs()
    steps, shares = three_alike(programs)
    equal = dict.fromkeys(("hashed", "hashed_too"), steps["hashed"])
    graphs: dict[str, Steps] = {"three": steps, "join": {}, "equal": equal}
    right = {"three": max(shares, key=lambda kernel: shares[kernel]), "join": "spin", "equal": None}
    rows = []
    for busy in given.busy:
        for case in CASES if busy == 0 else CASES[:2]:
            rows.append(
                row(case, busy, right[case], recordings(case, graphs[case], given.recordings, given.seconds, busy))
            )
    columns = (
        "program", "busy processes", "recordings", "right", "wrong", "wrong with all checks fine", "cannot tell",
        "undisturbed runs", "largest saving", "named",
    )  # fmt: skip
    removed = [(kernel, f"{share:.1%}") for kernel, share in shares.items()]
    report(
        [
            Table("Three kernels: what the wall shrinks by without each", ("kernel", "shrinks by"), removed),
            Table("Look first at the right kernel", columns, rows),
            measured_ceilings(given.busy),
        ],
        given.json,
    )


if __name__ == "__main__":
    main()
