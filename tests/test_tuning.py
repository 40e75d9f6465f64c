"""Tuning: what is a candidate, what is out and why, who wins, and what is kept."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import ostinato as ost
from ostinato.base.children import ChildEnded
from ostinato.cli.group import main
from ostinato.graph.replay import Replayable
from ostinato.ir.commands import Dispatch
from ostinato.measure import kept as keeping
from ostinato.measure import products, racing, trials, tuning
from ostinato.measure import space as spaces
from ostinato.measure.inside import only_dispatch, places, replaced
from ostinato.measure.oracle import Expectation
from ostinato.measure.products import tune_products
from ostinato.measure.racing import FINALISTS, Limits, race
from ostinato.measure.rounds import Rounds
from ostinato.measure.subjects import contender
from ostinato.measure.trials import Trials
from ostinato.measure.tuning import Candidate
from ostinato.models import Decoder, preset, random_weights
from ostinato.profiling.analyse import comparison
from ostinato.profiling.analyse.comparison import Key, Row, Side
from ostinato.profiling.analyse.statistics import Interval
from ostinato.profiling.analyse.verdicts import judge
from ostinato.runtime import tuned as files

SOURCE = """
#include <metal_stdlib>
using namespace metal;

constant int FACTOR [[function_constant(0)]];

#define ARGUMENTS device const float *x [[buffer(0)]], device float *y [[buffer(1)]], \\
                  constant float &scale [[buffer(2)]], uint i [[thread_position_in_grid]]

kernel void good(ARGUMENTS) { y[i] = x[i] * scale * float(FACTOR) / float(FACTOR); }
kernel void wrong(ARGUMENTS) { y[i] = x[i] * scale + 1.0f; }
kernel void close_by(ARGUMENTS) { y[i] = x[i] * scale * 1.0001f; }
kernel void faults(ARGUMENTS) { *(device float *)(16ul) = x[i]; y[i] = x[i] * scale; }
kernel void endless(ARGUMENTS) {
    volatile int running = 1;
    while (running) {}
    y[i] = x[i] * scale;
}
"""
SIZE = 256


class Work:
    """A kernel and its buffers, which candidates of one name or another run."""

    def __init__(self, device: ost.Device) -> None:
        self.device = device
        self.x = device.array(np.arange(1, SIZE + 1, dtype=np.float32))
        self.y = device.zeros(SIZE, np.float32)
        self.scale = 2.0

    def encode(self, encoder: ost.CommandEncoder, kernel: str = "good", factor: int = 1, group: int = 64) -> None:
        function = self.device.library(SOURCE, constants={"FACTOR": factor})[kernel]
        encoder.dispatch(function, self.x, self.y, self.scale, threads=SIZE, group_size=group)

    def tune(self, space: spaces.Space, **options: Any) -> ost.Tuning:
        settings: dict[str, Any] = {"device": self.device, "seconds": 0.4, "isolate": False} | options
        return ost.tune(self.encode, space, **settings)


@pytest.fixture
def work(dev: ost.Device) -> Work:
    return Work(dev)


def states(result: ost.Tuning) -> dict[str, str]:
    return {spaces.text(each.choice): each.state for each in result.candidates}


def reasons(result: ost.Tuning) -> list[str]:
    return [each.reason for each in result.candidates if each.state == "out"]


# --- the space ---------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(2, 40))
def test_combinations_are_distinct_and_the_first_has_first_values(sizes: list[int], most: int) -> None:
    space = {f"p{at}": list(range(size)) for at, size in enumerate(sizes)}
    combinations = spaces.combinations(space, most)
    assert combinations[0] == dict.fromkeys(space, 0)
    assert len(combinations) == min(math.prod(sizes), most) == len({tuple(each.values()) for each in combinations})
    assert combinations == spaces.combinations(space, most)


@given(
    st.dictionaries(st.sampled_from("abc"), st.lists(st.integers() | st.text(), min_size=1, unique=True), min_size=1)
)
def test_a_written_choice_is_found_again(space: dict[str, list[Any]]) -> None:
    for choice in spaces.combinations(space, 16):
        kept = json.loads(json.dumps(spaces.written_choice(choice)))
        assert spaces.found_again(space, kept) == choice


@pytest.mark.parametrize(
    ("space", "text"),
    [
        ({}, "at least one name"),
        ({"group": []}, "at least one"),
        ({"group": "64"}, "a list"),
        ({"group": [64, 64]}, "twice"),
        ({"no name": [1]}, "not the name"),
    ],
)
def test_a_space_that_offers_nothing_is_one_sentence(work: Work, space: Any, text: str) -> None:
    with pytest.raises(ost.ArgumentError, match=text):
        work.tune(space)


# --- which candidates are out ------------------------------------------------------------------------------------


def test_what_gives_other_results_is_out_with_the_first_difference(work: Work) -> None:
    result = work.tune({"kernel": ["good", "wrong"]})
    assert states(result)["kernel=wrong"] == "out"
    assert "float32 3.0, expected 2.0" in reasons(result)[0]
    assert result.choice == {"kernel": "good"}


def test_a_tolerance_lets_close_results_pass(work: Work) -> None:
    assert states(work.tune({"kernel": ["good", "close_by"]}))["kernel=close_by"] == "out"
    assert states(work.tune({"kernel": ["good", "close_by"]}, tolerance=1e-3))["kernel=close_by"] != "out"


def test_what_does_not_compile_or_cannot_be_dispatched_is_out(work: Work) -> None:
    def encode(encoder: ost.CommandEncoder, text: str, group: int) -> None:
        kernel = work.device.library(text, constants={"FACTOR": 1})["good"]
        encoder.dispatch(kernel, work.x, work.y, 2.0, threads=SIZE, group_size=group)

    space: spaces.Space = {
        "text": [SOURCE, SOURCE.replace("y[i] = x[i] * scale;", "y[i] = nothing;")],
        "group": [64, 1 << 20],
    }
    result = ost.tune(encode, space, device=work.device, isolate=False)
    assert sorted(reason.partition(":")[0] for reason in reasons(result)) == [
        "GeometryError",
        "KernelCompileError",
        "KernelCompileError",
    ]


def test_memory_is_as_before(work: Work) -> None:
    work.y.write(np.full(SIZE, 7, np.float32))
    work.tune({"kernel": ["good", "wrong"], "group": [64, 32]})
    assert (work.y.numpy() == 7).all()


def test_numpy_as_the_oracle_judges_the_first_choice_too(work: Work) -> None:
    right = {"oracle": lambda: work.x.numpy() * 2, "outputs": work.y}
    assert states(work.tune({"kernel": ["good", "wrong"]}, **right))["kernel=wrong"] == "out"
    with pytest.raises(ost.TuningError, match=r"the first choice \(kernel=wrong\) differs from the oracle"):
        work.tune({"kernel": ["wrong", "good"]}, **right)


def test_an_oracle_that_differs_from_itself_is_one_sentence(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = iter(range(100))

    def random_oracle() -> np.ndarray:
        return np.full(SIZE, next(calls), np.float32)

    with pytest.raises(ost.TuningError, match="differs from itself: two calls"):
        work.tune({"group": [64, 32]}, oracle=random_oracle, outputs=work.y)

    replay = Replayable.replay

    def after_a_change_of_x(self: Replayable, **values: Any) -> ost.Submission:
        work.x.write(work.x.numpy() + 1)
        return replay(self, **values)

    monkeypatch.setattr(Replayable, "replay", after_a_change_of_x)
    with pytest.raises(ost.TuningError, match="differs from itself: two runs of the first choice") as caught:
        work.tune({"group": [64, 32]})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("first", "reason"), [("endless", "still running after 1 s"), ("faults", "does not run")])
def test_a_first_choice_that_does_not_run_is_an_error_and_no_wait(work: Work, first: str, reason: str) -> None:
    with pytest.raises(ost.TuningError, match=reason):
        work.tune({"kernel": [first, "good"]}, isolate=True, timeout=1.0, seconds=5.0)


def test_a_timeout_is_positive(work: Work) -> None:
    with pytest.raises(ost.ArgumentError, match="timeout=-1 is not a positive time"):
        work.tune({"kernel": ["good"]}, timeout=-1)


def test_what_faults_or_never_ends_in_the_child_is_out_and_tuning_goes_on(work: Work) -> None:
    result = work.tune(
        {"kernel": ["good", "faults", "endless", "wrong"]}, isolate=True, timeout=3.0, seconds=60.0, delta=0.5
    )
    by_name = {each.choice["kernel"]: each for each in result.candidates}
    assert by_name["faults"].reason.startswith("KernelFault")
    assert by_name["endless"].reason == "it was still running after 3 s"
    assert "expected 2.0" in by_name["wrong"].reason


def test_a_child_that_dies_is_a_reason(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = work.device.capture(work.encode)
    with Trials(work.device._queue, 20.0) as trials:
        assert trials.run(graph, {}) == ""
        assert trials._child is not None
        trials._child._process.kill()
        assert trials.run(graph, {}) == "its process was ended by SIGKILL"
        assert trials.run(graph, {}) == ""
    assert trials._child is None


def test_a_child_that_cannot_open_the_device_names_the_way_out(work: Work) -> None:
    trials = Trials(work.device._queue, 20.0)
    trials._opening["device"] = "no such device"
    with pytest.raises(ost.TuningError, match="isolate=False"), trials:
        pass


def test_a_child_that_cannot_be_replaced_ends_the_tuning(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    lives = iter([["", ""], []])  # the first runs the first choice and dies with a candidate, the second never answers

    class Dying:
        def __init__(self, module: str) -> None:
            self.answers = iter(next(lives))

        def ask(self, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
            for reason in self.answers:
                return {"reason": reason}
            raise ChildEnded("failed with exit status 1")

        def end(self) -> None:
            pass

    monkeypatch.setattr(trials, "Child", Dying)
    with pytest.raises(ost.TuningError, match="cannot open device 'cpu': its process failed with exit status 1"):
        work.tune({"group": [64, 32, 16]}, isolate=True)


def test_a_child_opens_the_device_as_the_program_did(monkeypatch: pytest.MonkeyPatch) -> None:
    with ost.open_device("cpu", threadgroup_memory=1 << 16) as device:
        kernel = device.library(
            "kernel void large(threadgroup float *t [[threadgroup(0)]], device float *y [[buffer(0)]],"
            " uint i [[thread_position_in_grid]]) { t[i] = 1.0f; y[i] = t[i]; }"
        )["large"]
        y = device.zeros(32, np.float32)
        graph = device.capture(lambda enc: enc.dispatch(kernel, y, threads=32, group_size=32, shared={0: 1 << 16}))
        monkeypatch.setenv("OSTINATO_DEVICE", "metal")
        with Trials(device._queue, 20.0) as trials:
            assert trials.run(graph, {}) == ""


def test_scratch_of_a_candidate_is_not_a_result(work: Work) -> None:
    def encode(encoder: ost.CommandEncoder, scratch: bool) -> None:
        if scratch:
            own = work.device.empty(SIZE, np.float32)
            encoder.copy(work.x, own)
        work.encode(encoder)

    result = ost.tune(encode, {"scratch": [False, True]}, device=work.device, seconds=0.3, isolate=False)
    assert reasons(result) == []


# --- who wins ----------------------------------------------------------------------------------------------------


def candidate(name: str, low: float, estimate: float, high: float, delta: float = 0.0) -> Candidate:
    ratio = Interval(estimate, low, high)
    side = Side(1.0, None, 10, 10, 1.0)
    row = Row(Key("graph", ""), side, side, ratio, judge(ratio, delta), None)
    return tuning._outcome({"name": name}, estimate, row)


def test_no_winner_without_a_sure_advantage() -> None:
    first = Candidate({"name": "first"}, "first")
    for low, estimate, high in ((0.8, 0.9, 1.01), (0.99, 1.0, 1.01), (1.1, 1.2, 1.3)):
        assert tuning._winner([first, candidate("other", low, estimate, high)]) == (first.choice, None)
    # Surely faster, but by less than delta.
    assert tuning._winner([first, candidate("other", 0.98, 0.985, 0.99, 0.05)]) == (first.choice, None)


def test_of_winners_that_cannot_be_told_apart_the_first_is_taken() -> None:
    first = Candidate({"name": "first"}, "first")
    alike = [candidate("a", 0.79, 0.82, 0.84), candidate("b", 0.78, 0.80, 0.82)]
    assert tuning._winner([first, *alike])[0] == {"name": "a"}
    apart = [candidate("a", 0.89, 0.90, 0.91), candidate("b", 0.78, 0.80, 0.82)]
    assert tuning._winner([first, *apart])[0] == {"name": "b"}


def test_rounds_that_tell_nothing_leave_the_first_choice_and_are_not_kept(
    work: Work, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def nothing(*arguments: Any) -> Any:
        side = Side(math.nan, None, 0, 0, 1.0)
        return {}, {0: Row(Key("graph", ""), side, side, None, judge(None, 0.0), None)}

    monkeypatch.setattr(tuning, "race", nothing)
    path = tmp_path / "kept.json"
    result = work.tune({"group": [64, 32]}, file=path)
    assert result.choice == {"group": 64}
    assert not result.decided
    assert str(result).startswith("cannot tell, so the first choice stays")
    assert not path.exists()


def test_without_time_for_the_candidates_nothing_is_decided(work: Work, tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    result = work.tune({"group": [64, 32]}, seconds=1e-9, file=path)
    assert states(result) == {"group=64": "first", "group=32": "not tried"}
    assert not result.decided
    assert str(result).startswith("not all candidates were timed, so the first choice stays: group=64")
    assert not path.exists()


def test_a_result_claims_no_more_than_that_no_candidate_is_surely_faster() -> None:
    first = Candidate({"name": "first"}, "first")
    result = ost.Tuning({}, {}, (first, candidate("other", 0.8, 0.9, 1.01)), None, False, 2, 1.0)
    assert result.decided
    assert str(result).startswith("no candidate is surely faster, so the first choice stays")


def test_a_replay_of_a_split_graph_counts_with_all_its_parts(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(encoder: ost.CommandEncoder) -> None:
        work.encode(encoder)
        work.encode(encoder)

    graph = replace(work.device.capture(twice), splits=(1,))
    asked: list[int] = []
    turned: list[Any] = []

    def comparable(sides: Sequence[Any]) -> list[Any]:
        asked.append(len(sides))
        return [side & ~lost for _, side in sides]

    def compare_times(*sides: Any, **options: Any) -> Any:
        turned.append(options["turned"])
        return comparison.compare_times(*sides, **options)

    monkeypatch.setattr("ostinato.measure.rounds.comparable", comparable)
    monkeypatch.setattr(racing, "compare_times", compare_times)
    with Rounds([contender(graph, name=str(number)) for number in range(3)], 0.0) as rounds:
        for _ in range(8):
            rounds.run(0.0)
        columns, of_contender, of_round = rounds.columns()
        subs, second = columns.submissions, np.arange(len(of_round)) % 2
        lost = (of_contender == 1) & (of_round == 0) & (second == second[of_contender == 1][0])
        rows = racing._compared(rounds, 0.95, 0.0)
        assert (turned[0] == rounds.turned(np.arange(8))).all()
    assert asked == [3, 3]  # one list of each contender, for each part
    assert [row.b.units for row in rows] == [7, 8]
    replays = np.flatnonzero(of_contender == 0).reshape(-1, 2)
    spent = subs.end_ns[replays[:, 1]] - subs.start_ns[replays[:, 0]]
    assert spent.min() <= rows[0].a.median_ns <= spent.max()


def test_the_four_fastest_of_the_heats_are_timed_anew(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = work.device.capture(work.encode)
    first, *others = (contender(graph, name=str(number)) for number in range(20))
    heats: list[int] = []
    finals: list[list[str]] = []

    def heat(_: Any, timed: Sequence[Any], seconds: float) -> list[float]:
        heats.append(len(timed))
        return [float(each.name) for each in timed]

    def final(_: Any, timed: Sequence[Any], *rest: Any) -> list[Any]:
        finals.append([each.name for each in timed])
        return [None] * len(timed)

    monkeypatch.setattr(racing, "_heat", heat)
    monkeypatch.setattr(racing, "_final", final)
    ratios, rows = race(first, others, Limits(5.0, 0.0, 0.95), lambda what: None)
    assert len(ratios) == 19
    assert len(rows) == FINALISTS
    assert finals == [["1", "2", "3", "4"]]
    assert max(heats) <= 8


def test_a_race_that_has_no_time_still_ends(work: Work) -> None:
    graph = work.device.capture(work.encode)
    first, *others = (contender(graph, name=str(number)) for number in range(30))
    _, rows = race(first, others, Limits(1e-6, 0.0, 0.95), lambda what: None)
    assert len(rows) == 1


# --- inside a graph ----------------------------------------------------------------------------------------------


def test_inside_a_graph_every_dispatch_of_the_first_choice_is_replaced(work: Work) -> None:
    buffers = [work.device.array(np.full(SIZE, number + 1, np.float32)) for number in range(4)]
    good = work.device.library(SOURCE, constants={"FACTOR": 1})["good"]

    def whole(encoder: ost.CommandEncoder) -> None:
        for number in range(3):
            with encoder.scope(f"layer.{number}"):
                encoder.dispatch(good, buffers[number], buffers[number + 1], 2.0, threads=SIZE, group_size=64)
        encoder.dispatch(good, buffers[0], buffers[1], 3.0, threads=SIZE, group_size=64)  # another value

    def encode(encoder: ost.CommandEncoder, group: int) -> None:
        encoder.dispatch(good, work.x, work.y, 2.0, threads=SIZE, group_size=group)

    graph = work.device.capture(whole)
    first, other = (work.device.capture(partial(encode, group=group)) for group in (64, 32))
    own = only_dispatch(first)
    assert places(graph, own) == [0, 1, 2]
    made = replaced(graph, places(graph, own), own, other)
    sizes = [node.command.group_size[0] for node in made.nodes if isinstance(node.command, Dispatch)]
    assert sizes == [32, 32, 32, 64]
    assert [node.label for node in made.nodes] == [node.label for node in graph.nodes]
    assert np.array_equal(made.edges, graph.edges)
    assert ost.passes.verify(graph, made).ok
    result = ost.tune(encode, {"group": [64, 32]}, inside=graph, seconds=0.4, isolate=False)
    assert result.inside
    with pytest.raises(ost.TuningError, match="no dispatch like that"):
        ost.tune(encode, {"group": [16, 32]}, inside=graph, seconds=0.4)


def test_inside_a_graph_parameters_of_replays_stay(work: Work) -> None:
    good = work.device.library(SOURCE, constants={"FACTOR": 1})["good"]
    x, y = work.device.array(np.ones(SIZE, np.float32)), work.device.zeros(SIZE, np.float32)
    scale = ost.param("scale", np.float32)
    graph = work.device.capture(lambda enc: enc.dispatch(good, x, y, scale, threads=SIZE, group_size=64))
    first, other = (work.device.capture(partial(work.encode, group=group)) for group in (64, 32))
    own = only_dispatch(first)
    made = replaced(graph, places(graph, own), own, other)
    made.instantiate().replay(scale=5.0).wait()
    assert (y.numpy() == 5).all()
    assert (work.y.numpy() == 0).all()


def test_inside_a_graph_a_candidate_of_several_commands_moves_splits(work: Work) -> None:
    def thrice(encoder: ost.CommandEncoder) -> None:
        for _ in range(3):
            work.encode(encoder)

    graph = work.device.capture(thrice)
    first = work.device.capture(work.encode)

    def twice(encoder: ost.CommandEncoder) -> None:
        scratch = work.device.empty(SIZE, np.float32)
        encoder.copy(work.x, scratch)
        work.encode(encoder)

    own = only_dispatch(first)
    made = replaced(replace(graph, splits=(2,)), [0], own, work.device.capture(twice))
    assert made.splits == (3,)
    assert len(made) == 4


# --- files -------------------------------------------------------------------------------------------------------


def kept(work: Work, path: Path, **options: Any) -> tuple[ost.Tuning, int]:
    """A tuning with a file, and how many candidates it captured."""
    captured = []

    def encode(encoder: ost.CommandEncoder, **choice: Any) -> None:
        captured.append(choice)
        work.encode(encoder, **choice)

    space = options.pop("space", {"group": [64, 32]})
    result = ost.tune(encode, space, device=work.device, seconds=0.4, isolate=False, file=path, **options)
    return result, len(captured)


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Races in which the second candidate is always twice as fast."""

    def race(first: Any, others: Any, *rest: Any) -> Any:
        ratio = Interval(0.5, 0.4, 0.6)
        side = Side(1.0, None, 10, 10, 1.0)
        return {}, {at: Row(Key("graph", ""), side, side, ratio, judge(ratio, 0.0), None) for at in range(len(others))}

    monkeypatch.setattr(tuning, "race", race)


@pytest.mark.usefixtures("decided")
def test_a_kept_result_is_used_until_source_constants_shape_or_space_change(work: Work, tmp_path: Path) -> None:
    path = tmp_path / "cpu.json"
    result, _ = kept(work, path)
    assert result.choice == {"group": 32}
    assert not result.kept
    second, _ = kept(work, path)
    assert second.kept
    assert second.choice == {"group": 32}
    assert second.gain == Interval(0.5, 0.4, 0.6)
    assert not kept(work, path, again=True)[0].kept
    assert not kept(work, path, space={"group": [64, 32, 16]})[0].kept
    assert not kept(work, path, space={"factor": [2], "group": [64, 32]})[0].kept
    assert kept(work, path)[0].kept
    assert len(files.read(path).entries) == 3


@pytest.mark.usefixtures("decided")
def test_a_kept_result_answers_no_other_question(work: Work, tmp_path: Path) -> None:
    path = tmp_path / "cpu.json"

    def whole(encoder: ost.CommandEncoder, layers: int) -> None:
        for _ in range(layers):
            work.encode(encoder)

    graphs = [work.device.capture(partial(whole, layers=layers)) for layers in (1, 2)]
    other = {"oracle": lambda: work.x.numpy() * 2, "outputs": work.y}
    for options in ({"tolerance": 1e-2}, {}, {"delta": 0.1}, {"inside": graphs[0]}, {"inside": graphs[1]}, other):
        assert not kept(work, path, **options)[0].kept
        again, _ = kept(work, path, **options)
        assert again.kept
        assert again.inside == ("inside" in options)
    work.scale = 3.0
    assert not kept(work, path)[0].kept


def test_a_long_list_of_dispatches_counts_to_its_end(work: Work) -> None:
    good = work.device.library(SOURCE, constants={"FACTOR": 1})["good"]

    def key(last: int) -> tuple[str, ...]:
        def encode(encoder: ost.CommandEncoder) -> None:
            for group in (*range(1, 200), last):
                encoder.dispatch(good, work.x, work.y, 2.0, threads=SIZE, group_size=group)

        graph = work.device.capture(encode)
        return keeping.key_of(graph, {"a": [1]}, Expectation(), Limits(1.0, 0.0, 0.95), {}, None).key

    assert key(64) == key(64) != key(32)


@pytest.mark.usefixtures("decided")
def test_a_changed_kernel_is_tuned_again_and_no_other(dev: ost.Device, tmp_path: Path) -> None:
    path = tmp_path / "cpu.json"
    x = dev.zeros(SIZE, np.float32)
    pair = "kernel void one(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = 1.0f; }\n"
    pair += "kernel void two(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = 2.0f; }\n"

    def is_kept(source: str, name: str) -> bool:
        kernel = dev.library(source)[name]
        return ost.tune(
            lambda enc, group: enc.dispatch(kernel, x, threads=SIZE, group_size=group),
            {"group": [64, 32]},
            device=dev,
            seconds=0.3,
            isolate=False,
            file=path,
        ).kept

    assert [is_kept(pair, name) for name in ("one", "two", "one", "two")] == [False, False, True, True]
    changed = pair.replace("2.0f", "3.0f")
    assert [is_kept(changed, name) for name in ("one", "two")] == [True, False]


def test_a_file_that_cannot_be_used_is_refused_before_anything_is_measured(work: Work, tmp_path: Path) -> None:
    strange = tmp_path / "strange.json"
    strange.write_text("{}")
    for path in (strange, tmp_path / "no folder" / "x.json", Path("/proc/x.json")):
        with pytest.raises(ost.TuningError):
            kept(work, path)
    assert strange.read_text() == "{}"


def test_entries_of_two_processes_both_stay(dev: ost.Device, tmp_path: Path) -> None:
    path = tmp_path / "cpu.json"
    for shape in ("1", "2"):
        entry = files.Entry(kernel="k", source="s", shape=shape, choice={}, first={})
        files.add(path, dev.capabilities, [entry])
    assert [entry.shape for entry in files.read(path).entries] == ["1", "2"]


# --- products of a decoder ---------------------------------------------------------------------------------------


def test_every_product_of_a_token_is_tuned_and_the_device_is_as_before(dev: ost.Device) -> None:
    decoder = Decoder(dev, random_weights(replace(preset("tiny"), layers=1)), capacity=8)
    steps: list[str] = []
    result = tune_products(decoder, seconds=0.02, progress=steps.append)
    assert dev._queue.tuned is None
    assert {each.label for each in result.products} == {"attn/qkv", "attn/o", "mlp/gate_up", "mlp/down"}
    assert sum(each.dispatches for each in result.products) == 5
    assert steps[0].startswith("1 of ")
    for each in result.products:
        assert not each.changes_sums
        assert each.entry.inside
        assert "out" not in states(each.tuning).values()


def test_the_error_holds_for_all_products_and_the_token_is_judged_as_they_are(
    dev: ost.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = Decoder(dev, random_weights(replace(preset("tiny"), layers=1)), capacity=8)
    used: list[Limits] = []
    compared: dict[str, Any] = {}

    def search(task: tuning.Task, limits: Limits, progress: Any) -> ost.Tuning:
        used.append(limits)
        return ost.Tuning(task.choices[1], task.choices[0], (), Interval(0.5, 0.4, 0.6), True, 2, 0.0)

    monkeypatch.setattr(products, "search", search)
    monkeypatch.setattr(products, "compare", lambda *graphs, **options: compared.update(options))
    tune_products(decoder, delta=0.003, confidence=0.9)
    assert len(used) == 4
    assert all(each.delta == 0.003 and each.confidence == pytest.approx(0.975) for each in used)
    assert (compared["delta"], compared["confidence"]) == (0.003, 0.9)


# --- the command line --------------------------------------------------------------------------------------------

SPEC = '''
import numpy as np
import ostinato as ost

device = ost.open_device()
x, y = device.array(np.arange(64, dtype=np.float32)), device.zeros(64, np.float32)
kernels = device.library("""
kernel void right(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
                  uint i [[thread_position_in_grid]]) { y[i] = x[i] + 1.0f; }
kernel void wrong(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
                  uint i [[thread_position_in_grid]]) { y[i] = x[i]; }
""")
space = {"kernel": ["right", "wrong"], "group": [64, 32]}
seconds = 1.0
isolate = False


def encode(encoder, kernel, group):
    encoder.dispatch(kernels[kernel], x, y, threads=64, group_size=group)
'''


def test_a_spec_is_a_file_with_the_arguments_as_names(tmp_path: Path) -> None:
    spec = tmp_path / "spec.py"
    spec.write_text(SPEC)
    before = list(sys.path)
    done = CliRunner().invoke(main, ["tune", str(spec), "--device", "cpu", "--json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert [each["state"] for each in result["candidates"]].count("out") == 2
    assert result["first"] == {"kernel": "right", "group": 64}
    assert sys.path == before


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "give either a SPEC or --ops"),
        (["--ops"], "--ops needs --shapes"),
        (["missing.py"], "does not exist"),
        ([__file__, "--shapes", "tiny"], "--shapes applies to --ops, not to a SPEC"),
        ([__file__, "--sums"], "--sums applies to --ops, not to a SPEC"),
        ([__file__, "--dtype", "float32"], "--dtype applies to --ops, not to a SPEC"),
        ([__file__, "--layers", "4"], "--layers applies to --ops, not to a SPEC"),
        ([__file__, "--again"], "give --file too"),
        (["--ops", "--shapes", "tiny", "--file", "x.json", "--again"], "--again applies to a SPEC, not to --ops"),
    ],
)
def test_wrong_usage_is_status_2(arguments: list[str], text: str) -> None:
    done = CliRunner().invoke(main, ["tune", *arguments])
    assert done.exit_code == 2
    assert text in done.output


def test_a_spec_without_its_names_is_one_sentence(tmp_path: Path) -> None:
    spec = tmp_path / "spec.py"
    for text, missing in (
        ("", "`encode`"),
        ("encode = print", "`space`"),
        ("encode = print; space = {'a': [1]}", "dev"),
    ):
        spec.write_text(text)
        done = CliRunner().invoke(main, ["tune", str(spec)])
        assert done.exit_code == 1
        assert missing in done.output
        assert done.output.count("\n") == 1


def test_products_of_a_preset_go_into_the_file_that_operations_read(tmp_path: Path) -> None:
    path = tmp_path / "cpu.json"
    arguments = ["tune", "--ops", "--shapes", "tiny", "--layers", "1", "--seconds", "0.05", "--device", "cpu"]
    done = CliRunner().invoke(main, [*arguments, "--file", str(path), "--json"])
    assert done.exit_code == 0, done.output
    (tiny,) = json.loads(done.stdout)["decoders"]
    products = tiny["products"]
    assert {each["label"] for each in products} == {"attn/qkv", "attn/o", "mlp/gate_up", "mlp/down"}
    decided = [each for each in products if each["inside"]["decided"]]
    with ost.open_device("cpu", tuned=path) as device:
        assert len(files.read(path).entries) == len(decided)
        Decoder(device, random_weights(preset("tiny")), capacity=4).generate([1], 2)
