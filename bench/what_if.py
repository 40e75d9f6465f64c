"""Whether "if this kernel were twice as fast, the wall would shrink by …" comes true.

Graphs in which kernels share the workers are replayed and profiled; then the kernel really is made twice as fast, by
half of its steps, and what the command buffers shrink by is held against what the profile of the slow one had said. The
two take turns. "by dependencies alone" is what the longest path would have said.

    python bench/what_if.py [--json] [--rounds N]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

import ostinato
from harness import Table, interleaved, median, report
from ostinato.profiling.analyse import columns_of
from ostinato.profiling.analyse import critical_path as paths
from ostinato.profiling.analyse.lists import warm_ups
from ostinato.profiling.analyse.machine import disturbance
from ostinato.profiling.analyse.schedules import schedules
from ostinato.profiling.analyse.timeline import submission_times

METAL = """
#include <metal_stdlib>
using namespace metal;
static uint worked(uint value, uint steps) {
    for (uint i = 0; i < steps; ++i) {
        value = value * 1664525u + 1013904223u;
        value ^= value >> 13;
    }
    return value;
}
""" + "".join(
    f"kernel void {name}(device const uint *in [[buffer(0)]], device uint *out [[buffer(1)]],"
    " constant uint &steps [[buffer(2)]], uint id [[thread_position_in_grid]])"
    " { out[id] = worked(in[id], steps); }\n"
    for name in ("spin_a", "spin_b", "spin_c", "spin_d")
)
GROUP = 64
REPLAYS = 24


@dataclass(frozen=True)
class Node:
    """A dispatch: its kernel, how many groups, how many steps each thread takes, and what it waits for."""

    kernel: str
    groups: int
    steps: int
    after: tuple[int, ...] = ()


GRAPHS: dict[str, tuple[list[Node], str]] = {
    "two alike, side by side": ([Node("spin_a", 64, 500), Node("spin_b", 64, 500)], "spin_a"),
    "a long one beside a short one: the long one": (
        [Node("spin_a", 64, 750), Node("spin_b", 64, 250)],
        "spin_a",
    ),
    "a long one beside a short one: the short one": (
        [Node("spin_a", 64, 750), Node("spin_b", 64, 250)],
        "spin_b",
    ),
    "three into one, more than there are workers": (
        [
            Node("spin_a", 64, 500),
            Node("spin_b", 64, 375),
            Node("spin_c", 64, 250),
            Node("spin_d", 64, 125, (0, 1, 2)),
        ],
        "spin_c",
    ),
    "one group beside many: the many": ([Node("spin_a", 1, 7500), Node("spin_b", 64, 250)], "spin_b"),
    "one group beside many: the one": ([Node("spin_a", 1, 25000), Node("spin_b", 64, 250)], "spin_a"),
    "two chains: the second of one": (
        [
            Node("spin_a", 64, 250),
            Node("spin_b", 64, 375, (0,)),
            Node("spin_c", 64, 500),
            Node("spin_d", 64, 62, (1, 2)),
        ],
        "spin_b",
    ),
    "four layers of three": (
        [
            node
            for layer in range(4)
            for node in (
                Node("spin_a", 64, 250, () if layer == 0 else (4 * layer - 1,)),
                Node("spin_b", 64, 125, () if layer == 0 else (4 * layer - 1,)),
                Node("spin_c", 64, 125, () if layer == 0 else (4 * layer - 1,)),
                Node("spin_d", 64, 187, (4 * layer, 4 * layer + 1, 4 * layer + 2)),
            )
        ],
        "spin_a",
    ),
}


def instantiated(device: ostinato.Device, library: ostinato.Library, nodes: list[Node]) -> Callable[[], float]:
    """A replay of a graph; its seconds on the device."""
    outputs = [device.zeros(node.groups * GROUP, np.uint32) for node in nodes]
    source = device.array(np.arange(64 * GROUP, dtype=np.uint32))

    def encode(encoder: ostinato.CommandEncoder) -> None:
        for node, output in zip(nodes, outputs, strict=True):
            reads = [outputs[before] for before in node.after] or [source]
            encoder.dispatch(
                library[node.kernel],
                source[: output.size],
                output,
                node.steps,
                threads=output.size,
                group_size=GROUP,
                reads=reads,
            )

    graph = device.capture(encode).instantiate()

    def once() -> float:
        submission = graph.replay()
        submission.wait()
        times = submission.gpu_time
        assert times is not None
        return (times[1] - times[0]) / 1e9

    return once


def predicted(slow: Callable[[], float], kernel: str) -> tuple[float | None, float, float | None]:
    """What the profile says the wall shrinks by, what dependencies alone say, and the residue; parts of the wall."""
    with ostinato.profile() as profile:
        for _ in range(REPLAYS):
            slow()
    said = next(one for one in profile.summary().what_ifs if one.kernel == kernel)
    with profile.recording() as recording:
        columns = columns_of(recording)
    found = schedules(columns, 0, disturbance(columns, submission_times(columns), warm_ups(columns)).aside)
    (plan,) = found.plans
    alone = replace(plan, contention=())
    kernels = columns.commands.kernel[columns.plans.command[columns.plans.nodes(plan.plan)]]
    halved = np.where(kernels == kernel, plan.duration_ns / 2, plan.duration_ns)
    return said.saved_share, float(paths.wall_savings(alone, halved)) / plan.wall_ns, found.residue


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--json", action="store_true", help="print one JSON object")
    options.add_argument("--rounds", type=int, default=9, help="measurements of each cell (default 9)")
    arguments = options.parse_args()
    device = ostinato.open_device("cpu")
    library = device.library(METAL)
    rows = []
    for name, (nodes, kernel) in GRAPHS.items():
        fast_nodes = [replace(n, steps=n.steps // 2) if n.kernel == kernel else n for n in nodes]
        slow, fast = instantiated(device, library, nodes), instantiated(device, library, fast_nodes)
        predictions = [predicted(slow, kernel) for _ in range(3)]

        def typical(once: Callable[[], float]) -> float:
            return median([once() for _ in range(REPLAYS)])

        found = interleaved({"slow": partial(typical, slow), "fast": partial(typical, fast)}, arguments.rounds)
        shrank = median([1 - f / s for s, f in zip(found["slow"], found["fast"], strict=True)])
        known = [said for said, _, _ in predictions if said is not None]
        said = median(known) if known else None
        residues = [residue for _, _, residue in predictions if residue is not None]
        rows.append(
            (
                name,
                round(median(found["slow"]) * 1e6),
                f"{shrank:.1%}",
                "not known" if said is None else f"{said:.1%}",
                f"{median([alone for _, alone, _ in predictions]):.1%}",
                "" if said is None else f"{said - shrank:+.1%}",
                f"{median(residues):.1%}" if residues else "",
            )
        )
    columns = (
        "graph, kernel made twice as fast",
        "wall µs",
        "shrank by",
        "profile said",
        "by dependencies alone",
        "off by, of the wall",
        "residue",
    )
    report([Table("If a kernel were twice as fast", columns, rows)], arguments.json)


if __name__ == "__main__":
    main()
