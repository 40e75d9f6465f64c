"""`bench` and `compare`: what can be measured, what a result holds, and what is left of it in memory."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import ostinato as ost
from ostinato import Device, Graph, Verdict
from ostinato.measure import flushing, placements
from ostinato.measure.rounds import Rounds
from ostinato.measure.subjects import contender
from ostinato.profiling.analyse import columns_of, look_first, summarise
from ostinato.profiling.analyse.comparison import process_times
from ostinato.profiling.analyse.lists import WARM_UP
from ostinato.profiling.recording import open_recording
from synthetic import Synthetic, node

_SOURCE = """
#include <metal_stdlib>
using namespace metal;

kernel void spin(device const float *in [[buffer(0)]], device float *out [[buffer(1)]],
                 constant uint &steps [[buffer(2)]], uint id [[thread_position_in_grid]]) {
    float a = in[id];
    for (uint i = 0; i < steps; ++i) a = fma(a, 0.999f, 0.5f);
    out[id] = a;
}

kernel void count_up(device uint *x [[buffer(0)]], uint id [[thread_position_in_grid]]) { x[id] += 1; }
"""


@pytest.fixture(scope="module")
def device() -> Device:
    return ost.open_device("cpu")


def _spin(device: Device, steps: int, label: str | None = None) -> Graph:
    kernel = device.library(_SOURCE)["spin"]
    x, y = device.array(np.ones(4096, np.float32)), device.empty(4096, np.float32)
    return device.capture(lambda enc: enc.dispatch(kernel, x, y, steps, threads=4096), label=label)


# --- bench ---------------------------------------------------------------------------------------------------


def test_bench_takes_a_kernel_a_graph_a_replayable_and_a_function(device: Device) -> None:
    graph = _spin(device, 10, label="warm")
    kernel = device.library(_SOURCE)["spin"]
    x, y = np.ones(4096, np.float32), np.zeros(4096, np.float32)
    buffer = device.zeros(4096, np.float32)

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(kernel, buffer, buffer, 10, threads=4096)

    of_kernel = ost.bench(kernel, x, y, 10, threads=4096, seconds=5, width=0.5, flops=4096 * 20)
    of_graph = ost.bench(graph, seconds=5, width=0.5)
    for result in (
        of_kernel,
        of_graph,
        ost.bench(graph.instantiate(), seconds=5, width=0.5),
        ost.bench(encode, device=device, seconds=5, width=0.5),
    ):
        assert 100 < result.median_ns < 1e9
        assert len(result.samples_ns) >= 10
        assert result.interval is not None
        assert result.interval.low <= result.median_ns <= result.interval.high
    assert of_kernel.flop_rate == pytest.approx(4096 * 20 * 1e9 / of_kernel.median_ns)
    assert str(of_kernel).startswith("spin on cpu: ")
    assert "flop/s" in str(of_kernel)
    assert str(of_graph).startswith("warm on cpu: ")
    assert "\n" not in str(of_graph)


def test_declared_bytes_give_a_bandwidth_and_bound_ones_a_limit(device: Device) -> None:
    kernel = device.library(_SOURCE)["count_up"]
    x = np.zeros(1 << 16, np.uint32)
    declared = ost.bench(kernel, x, threads=x.size, bytes_read=x.nbytes, bytes_written=x.nbytes, seconds=0.1)
    bound = ost.bench(kernel, x, threads=x.size, seconds=0.1)
    assert declared.bytes_moved == 2 * x.nbytes
    assert not declared.bytes_bound
    assert bound.bytes_moved == x.nbytes
    assert "≤" in str(bound)
    assert "≤" not in str(declared)


def test_a_result_is_shown_by_rich_and_in_notebooks(device: Device) -> None:
    result = replace(ost.bench(_spin(device, 10, label="<b>[red]\x1b"), seconds=0.1), precise=False)
    console = Console(width=120, file=io.StringIO(), force_terminal=False)
    console.print(result)
    assert isinstance(console.file, io.StringIO)
    printed = console.file.getvalue()
    assert "<b>[red]\\x1b on cpu" in printed
    for heading, text in result.facts():
        assert f"{heading} " in printed
        assert text in printed
    html = result._repr_html_()
    assert "&lt;b&gt;[red]\\x1b on cpu</" in html
    assert html.count("<tr>") == len(result.facts())
    assert "not as precise as asked" in html


def test_half_of_the_runs_disturbed_is_not_all_of_them(device: Device) -> None:
    result = ost.bench(_spin(device, 10), seconds=0.1)
    count = len(result.samples_ns)
    half = replace(result, disturbed=count, runs=2 * count)
    assert f"({count:,} disturbed ones left out)" in str(half)
    assert "all of them disturbed" in str(replace(result, disturbed=count, runs=count))


def test_it_ends_when_the_interval_is_narrow_enough(device: Device) -> None:
    graph = _spin(device, 200)
    easy = ost.bench(graph, seconds=5.0, width=0.9)
    assert easy.precise
    hopeless = ost.bench(graph, seconds=0.2, width=1e-9)
    assert not hopeless.precise
    assert "not as precise as asked" in str(hopeless)


def test_parameters_of_a_replay_are_passed(device: Device) -> None:
    kernel = device.library(_SOURCE)["spin"]
    x, y = device.array(np.ones(256, np.float32)), device.empty(256, np.float32)
    graph = device.capture(lambda enc: enc.dispatch(kernel, x, y, ost.param("steps", np.uint32), threads=256))
    short = ost.bench(graph, values={"steps": 1}, seconds=0.1)
    long = ost.bench(graph, values={"steps": 20_000}, seconds=0.1)
    assert long.median_ns > 3 * short.median_ns
    with pytest.raises(ost.GraphError, match="no value for"):
        ost.bench(graph, seconds=0.1)


def test_the_callers_memory_is_left_alone(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = device.library(_SOURCE)["count_up"]
    x = device.array(np.arange(64, dtype=np.uint32))
    graph = device.capture(lambda enc: enc.dispatch(kernel, x, threads=64))
    ost.bench(graph, seconds=0.05)
    assert x.numpy().tolist() == list(range(64))
    monkeypatch.setattr(placements, "_MOST_BYTES", 0)  # too large to be copied
    ost.bench(graph, seconds=0.05)
    assert x.numpy().tolist() == list(range(64))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda d, g: ost.bench(3), "a int cannot be measured"),
        (lambda d, g: ost.bench(lambda enc: None), "pass device="),
        (lambda d, g: ost.bench(lambda enc: None, device=d), "encoded nothing"),
        (lambda d, g: ost.bench(g, threads=3), "only a kernel takes arguments"),
        (lambda d, g: ost.bench(g, width=0), "width=0 is not a part"),
        (lambda d, g: ost.bench(g, seconds=-1), "seconds=-1 is not a positive time"),
        (lambda d, g: ost.compare(g, g, delta=2), "delta=2 is not a part"),
        (lambda d, g: ost.compare(g, g, confidence=1.0), r"confidence=1\.0 is not a part"),
    ],
)
def test_wrong_calls_say_what_is_wrong(device: Device, call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(ost.ArgumentError, match=message):
        call(device, _spin(device, 1))


# --- cold caches ---------------------------------------------------------------------------------------------


def test_a_flush_is_larger_than_the_cache(device: Device) -> None:
    assert flushing.flush_bytes(device._queue) > device.capabilities.cache_bytes


def test_cold_runs_have_a_flush_before_each_that_is_not_measured(device: Device) -> None:
    rounds = Rounds((contender(_spin(device, 1)),), 0.05, cold=True)
    rounds.run(0.3)
    columns, of_contender, _ = rounds.columns()
    subs, commands = columns.submissions, columns.commands
    kernels = [str(commands.kernel[columns.plans.command[columns.plans.first[plan]]]) for plan in subs.plan.tolist()]
    measured = np.flatnonzero(of_contender == 0)
    assert measured.size >= 2
    assert all(kernels[row] == "spin" and kernels[row - 1] == "flush_caches" for row in measured.tolist())
    assert all(of_contender[row] == -1 for row, kernel in enumerate(kernels) if kernel == "flush_caches")


def test_flushes_and_warm_ups_of_a_kept_benchmark_are_not_compared(device: Device, tmp_path: Path) -> None:
    result = ost.bench(_spin(device, 1), cold=True, seconds=0.3)
    assert result.cold
    result.save(tmp_path / "cold.ostinato")
    with open_recording(tmp_path / "cold.ostinato") as recording:
        rows = process_times(columns_of(recording))
    assert [key.name for key in rows if key.kind == "graph"] == ["spin"]


def test_a_flush_is_no_kernel_of_the_program(device: Device, tmp_path: Path) -> None:
    ost.bench(_spin(device, 1), cold=True, seconds=0.5).save(tmp_path / "cold.ostinato")
    with open_recording(tmp_path / "cold.ostinato") as recording:
        summary = summarise(recording)
    assert {group.name for group in summary.kernels} == {"spin", "flush_caches"}
    assert flushing.LABEL in {group.name for group in summary.command_buffers}
    assert [suspect.kernel for of_device in summary.suspects for suspect in of_device.ranked] == ["spin"]
    assert {what_if.kernel for what_if in summary.what_ifs} == {"spin"}
    assert {path.kernel for path in summary.critical_paths} == {("spin",)}
    assert look_first(summary).startswith("Look first at spin:")
    assert summary.repeated != WARM_UP


def test_work_that_only_warms_up_is_judged_where_there_is_no_other() -> None:
    made = Synthetic()
    for turn in range(9):
        at = 1_000_000 * turn
        made.submit(made.plan([node("k")]), [(at, at + 1000)], region=made.region(WARM_UP, at, at + 2000))
    (judged,) = summarise(made.columns()).suspects
    assert [suspect.kernel for suspect in judged.ranked] == ["k"]


# --- placements ----------------------------------------------------------------------------------------------


def test_a_graph_elsewhere_computes_the_same_on_its_own_memory(device: Device) -> None:
    kernel = device.library(_SOURCE)["count_up"]
    memory = device.array(np.arange(64, dtype=np.uint32))
    first, second = memory[:48], memory[16:]  # they overlap, and stay so

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(kernel, first, threads=48)
        enc.dispatch(kernel, second, threads=48)

    graph = device.capture(encode)
    other = placements.elsewhere(graph)
    np.testing.assert_array_equal(other.edges, graph.edges)
    other.instantiate().replay().wait()
    assert memory.numpy().tolist() == list(range(64))
    (number,) = set(other.memories) - set(graph.memories)
    contents = other.memories[number].allocation
    assert contents is not None
    got = contents.backing.read(0, 256).view(np.uint32)
    assert got.tolist() == [i + (i < 48) + (i >= 16) for i in range(64)]


def test_large_memory_gets_fewer_placements(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = _spin(device, 1)
    assert placements.places_for(graph) == placements.MOST
    monkeypatch.setattr(placements, "_MOST_BYTES", 7 * 2 * 4096 * 4)
    assert placements.places_for(graph) == 7
    monkeypatch.setattr(placements, "_MOST_BYTES", 4096)
    assert placements.places_for(graph) == 0


def test_equal_memory_is_one_copy_for_all_contenders_and_other_memory_is_not(device: Device) -> None:
    kernel = device.library(_SOURCE)["spin"]
    same, other = np.ones(256, np.float32), np.full(256, 2, np.float32)

    def graph(contents: np.ndarray) -> Graph:
        x, y = device.array(contents), device.zeros(256, np.float32)
        return device.capture(lambda enc: enc.dispatch(kernel, x, y, 1, threads=256))

    def addresses(runs: list[ost.Replayable]) -> list[int]:
        return [binding.address for run in runs for node in run.graph.nodes for binding in node.buffers]

    first, second, third = placements.placements([graph(same), graph(same), graph(other)], 3, 10.0)
    assert addresses(first) == addresses(second)
    assert addresses(third)[1::2] == addresses(first)[1::2]
    assert not set(addresses(third)[0::2]) & set(addresses(first))
    assert len(set(addresses(first))) == 6


def test_copies_keep_the_alignment_of_borrowed_memory(device: Device) -> None:
    kernel = device.library(_SOURCE)["count_up"]
    room = np.zeros(80 + 64, np.uint32)
    first = (-room.ctypes.data % 64 + 16) // 4
    borrowed = device.from_dlpack(room[first : first + 64])

    def graph(buffer: ost.Buffer) -> ost.Graph:
        return device.capture(lambda enc: enc.dispatch(kernel, buffer, threads=64))

    graphs = [graph(borrowed), graph(device.zeros(64, np.uint32))]
    offsets = [
        [run.graph.nodes[0].buffers[0].address % 64 for run in runs] for runs in placements.placements(graphs, 2, 10.0)
    ]
    assert offsets == [[16, 16], [0, 0]]


# --- compare -------------------------------------------------------------------------------------------------


def test_twice_the_work_is_slower_and_half_of_it_faster(device: Device) -> None:
    a, b = _spin(device, 200), _spin(device, 400)
    slower = ost.compare(a, b, seconds=4)
    assert slower.verdict is Verdict.SLOWER, slower
    assert slower.ratio is not None
    assert 1.3 < slower.ratio.estimate < 2.6
    assert ost.compare(b.instantiate(), a.instantiate(), seconds=4).verdict is Verdict.FASTER


def test_rounds_take_turns_and_both_sides_run_as_often(device: Device) -> None:
    rounds = Rounds([contender(_spin(device, steps)) for steps in (5, 6)], 0.1)
    rounds.run(0.1)
    _, of_contender, of_round = rounds.columns()
    for number in range(rounds.count):
        sides = of_contender[of_round == number]
        runs = [side for at, side in enumerate(sides.tolist()) if at == 0 or sides[at - 1] != side]
        assert runs == ([1, 0] if rounds.turned(np.array(number)) else [0, 1])
    assert (of_round[of_contender < 0] == -1).all()
    counts = np.bincount(of_contender[of_contender >= 0])
    assert counts[0] == counts[1]


@pytest.mark.parametrize("placed", [1, 6, 8, 29, 30])
def test_every_placement_is_sampled_and_visited_in_both_orders(device: Device, placed: int) -> None:
    with Rounds((contender(_spin(device, 1)),), 1.0) as rounds:
        rounds._runs = [[rounds.contenders[0].run] * placed]
        numbers = np.arange(placed * 64)
        sampled = np.array([rounds._sampled(number) for number in numbers.tolist()])
        for kind in (sampled, ~sampled):
            for placement in range(placed):
                mine = rounds.turned(numbers[kind & (numbers % placed == placement)])
                assert 0.2 <= mine.mean() <= 0.8
        assert sampled.mean() == pytest.approx(0.25, abs=0.01)
        assert rounds.turned(numbers).mean() == pytest.approx(0.5, abs=0.01)


def test_a_split_graph_is_measured_as_one(device: Device) -> None:
    kernel = device.library(_SOURCE)["spin"]
    x, y = device.array(np.ones(4096, np.float32)), device.empty(4096, np.float32)

    def encode(enc: ost.CommandEncoder) -> None:
        for _ in range(2):
            enc.dispatch(kernel, x, y, 300, threads=4096)

    whole = device.capture(encode, label="both")
    split = replace(whole, splits=(1,))
    with Rounds([contender(each) for each in (whole, split)], 0.2) as rounds:
        rounds.run(0.2)
        columns, of_contender, _ = rounds.columns()
        one, two = (rounds.replays(columns, of_contender, number) for number in (0, 1))
    assert one.shape == (len(two), 1)
    assert two.shape == (len(one), 2)
    np.testing.assert_array_equal(np.diff(columns.submissions.ordinal[two]), 1)
    assert ost.bench(split, seconds=0.2).runs > 0
    comparison = ost.compare(whole, split, seconds=0.2)
    assert comparison.whole is not None
    assert comparison.whole.key.name == "both"


def test_contenders_are_on_one_device(device: Device) -> None:
    with ost.open_device("cpu") as other, pytest.raises(ost.ArgumentError, match="different devices"):
        ost.compare(_spin(device, 1), _spin(other, 1))


def test_large_memory_that_differs_is_noted(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placements, "_MOST_BYTES", 2 * 2 * 4096 * 4)
    same = ost.compare(_spin(device, 5), _spin(device, 5), seconds=0.3)
    assert not any("where it lies" in note for note in same.notes)
    kernel = device.library(_SOURCE)["spin"]
    x, y = device.array(np.full(4096, 3, np.float32)), device.empty(4096, np.float32)
    other = device.capture(lambda enc: enc.dispatch(kernel, x, y, 5, threads=4096))
    assert any("where it lies" in note for note in ost.compare(_spin(device, 5), other, seconds=0.3).notes)


def test_what_was_measured_is_kept_and_the_rest_given_back(device: Device, tmp_path: Path) -> None:
    result = ost.bench(_spin(device, 5), seconds=0.2)
    assert result._profile._entered().closed
    result.save(tmp_path / "later.ostinato")
    with open_recording(tmp_path / "later.ostinato") as recording:
        assert len(recording.submissions) == len(result.columns.submissions)


def test_kernels_of_a_graph_are_rows_and_one_side_only_is_listed(device: Device) -> None:
    library = device.library(_SOURCE)
    x, y = device.array(np.ones(4096, np.float32)), device.empty(4096, np.float32)
    counted = device.zeros(64, np.uint32)

    def encode(enc: ost.CommandEncoder, steps: int, extra: bool) -> None:
        with enc.scope("layer.0"):
            enc.dispatch(library["spin"], x, y, steps, threads=4096)
        if extra:
            enc.dispatch(library["count_up"], counted, threads=64)

    a = device.capture(lambda enc: encode(enc, 50, False), label="step")
    b = device.capture(lambda enc: encode(enc, 50, True), label="step")
    comparison = ost.compare(a, b, seconds=0.5)
    assert [(row.key.kind, row.key.name, row.key.label) for row in comparison.rows] == [
        ("graph", "step", ""),
        ("kernel", "spin", "layer.*"),
    ]
    assert comparison.rows[0].key.grid == "1 → 2"
    assert [row.key.name for row in comparison.only_b] == ["count_up"]
    assert comparison.only_a == ()


def test_a_saved_comparison_is_a_recording_with_its_rounds(device: Device, tmp_path: Path) -> None:
    path = tmp_path / "both.ostinato"
    ost.compare(_spin(device, 5), _spin(device, 500), seconds=0.5, save=path)
    with open_recording(path) as recording:
        columns = columns_of(recording)
    assert set(columns.regions.name) == {"warm-up", "round", "0", "1"}
    assert {0, 1} <= {int(name) for name in columns.regions.name[columns.submissions.region] if name.isdigit()}
