"""The kernel to look at comes first, for the right reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ostinato.profiling.analyse import roofline
from ostinato.profiling.analyse.columns import Device
from ostinato.profiling.analyse.lists import warm_ups
from ostinato.profiling.analyse.schedules import schedules
from ostinato.profiling.analyse.summary import summarise
from ostinato.profiling.analyse.suspects import Suspects, suspects
from synthetic import Synthetic, node, wandering

CALIBRATED = Device("cpu", workers=4, clock_uncertainty_ns=50.0, copy_bytes_per_s=20e9, flops_per_s=100e9)


def ranked(made: Synthetic) -> Suspects:
    columns = made.columns()
    aside = warm_ups(columns)
    return suspects(columns, 0, schedules(columns, 0, aside), roofline.rates(columns, 0, aside))


def decode(
    device: Device = CALIBRATED, tokens: int = 8, topk: dict[str, Any] | None = None, layers: int = 16
) -> Synthetic:
    """A decoder: matrix products at 70 % of copy bandwidth, and a top-k that one thread runs in 1,024 steps."""
    matvec = node("matvec", label="decode/layer/mlp", groups=512, bytes_read=1_400_000, declared=True)
    norm = node("rms_norm", label="decode/layer/norm", groups=8, bytes_read=16_000, bytes_written=16_000, declared=True)
    slow = {"groups": 1, "threads": (32, 1, 1), "group": (32, 1, 1), "bytes_read": 128_000, "label": "decode/top_k"}
    nodes = [matvec, norm] * layers + [node("top_k", **(slow | (topk or {})))]
    times = [100_000, 3_000] * layers + [200_000]
    made = Synthetic(devices=[device])
    plan = made.plan(nodes)
    for token in range(tokens):
        t = 10_000_000 * token
        placed = []
        for length in times:
            placed.append((t, t + length))
            t += length + 500
        made.submit(plan, placed)
    return made


def test_a_serial_top_k_comes_before_kernels_with_larger_totals() -> None:
    found = ranked(decode())
    first = found.ranked[0]
    assert first.kernel == "top_k"
    assert first.total_ns < 0.2 * max(s.total_ns for s in found.ranked)
    assert first.saving_ns == pytest.approx(8 * 200_000, rel=0.1)
    assert first.saving_share == pytest.approx(0.107, abs=0.01)
    assert first.twice_as_fast_ns == pytest.approx(8 * 100_000)
    assert first.reasons == (
        "1 threadgroup of 32 threads on a device with 4 workers",
        "moves at most 3.2 % of copy bandwidth",
    )


MAY_DIFFER = "results may differ if lanes share memory without a simdgroup_barrier between"


@pytest.mark.parametrize(
    ("execution", "reason"),
    [
        (
            f"fibers: calls simd_sum at line 12; {MAY_DIFFER}; no vectors: a call through a pointer",
            "runs as fibers, the slowest way (calls simd_sum at line 12; no vectors: a call through a pointer)",
        ),
        ("fibers", "runs as fibers, the slowest way"),
        (
            "split: barriers at line 3; vectors need clang 18 or the ziglang wheel",
            "runs split at its barriers: vectors need clang 18 or the ziglang wheel",
        ),
        ("split: barriers at line 3; no vectors: a call through a pointer", None),
        ("vector: calls simd_sum at line 12", None),
        ("loop: its threads never meet", None),
    ],
)
def test_a_slow_way_of_running_is_the_first_reason(execution: str, reason: str | None) -> None:
    others = "1 threadgroup of 32 threads on a device with 4 workers", "moves at most 3.2 % of copy bandwidth"
    found = ranked(decode(topk={"execution": execution})).ranked[0]
    assert (found.kernel, found.reasons) == ("top_k", others if reason is None else (reason, *others))


def test_it_comes_first_without_ceilings_too_and_the_ranking_says_so() -> None:
    found = ranked(decode(Device("cpu", workers=4)))
    assert found.ranked[0].kernel == "top_k"
    assert found.ranked[0].efficiency is None
    assert "no ceilings were measured" in found.measure


@pytest.mark.parametrize("bound", [6_000_000, 20_000_000, 400_000_000])
def test_being_bound_to_a_big_buffer_does_not_make_it_look_efficient(bound: int) -> None:
    found = ranked(decode(topk={"bytes_read": bound}))
    first = found.ranked[0]
    assert (first.kernel, first.efficiency) == ("top_k", None)
    assert "efficiency not known: bound to" in first.reasons[-1]
    assert "declare its bytes" in first.reasons[-1]


def test_a_declaration_is_taken_at_its_word() -> None:
    declared = ranked(decode(topk={"bytes_read": 128_000, "declared": True})).ranked[0]
    assert declared.efficiency == pytest.approx(0.032)
    assert not declared.efficiency_is_bound
    assert "at most" not in declared.reasons[-1]


def test_flops_count_where_they_are_given() -> None:
    made = Synthetic(devices=[CALIBRATED])
    gemm = node("gemm", groups=64, bytes_read=10_000, declared=True, flops=80_000_000)
    plan = made.plan([gemm, node("odd", groups=64, bytes_read=10_000, declared=True)])
    made.submit(plan, [(0, 1_000_000), (1_000_000, 1_100_000)])
    first, second = ranked(made).ranked
    assert (first.kernel, second.kernel) == ("odd", "gemm")
    assert second.efficiency == pytest.approx(0.8)
    assert second.flops_per_s == pytest.approx(80e9)
    assert second.reasons[-1] == "computes at 80.0 % of the peak flop rate"


def test_time_off_the_critical_path_cannot_be_saved() -> None:
    made = Synthetic(devices=[replace(CALIBRATED, workers=None)])
    small = {"groups": 64, "bytes_read": 1000, "declared": True}
    plan = made.plan([node("long", **small), node("beside", **small), node("last", **small)], [(0, 2), (1, 2)])
    made.submit(plan, [(0, 900_000), (0, 800_000), (900_000, 1_000_000)])
    by_name = {s.kernel: s for s in ranked(made).ranked}
    assert by_name["beside"].saving_ns == 0.0
    assert "mostly off the critical path" in by_name["beside"].reasons
    assert by_name["long"].saving_ns == pytest.approx(100_000)
    assert by_name["long"].twice_as_fast_share == pytest.approx(0.1)


def test_what_shares_a_full_device_saves_its_part_of_it() -> None:
    made = Synthetic(devices=[CALIBRATED])
    small = {"groups": 64, "bytes_read": 1000, "declared": True}
    plan = made.plan([node("left", **small), node("right", **small), node("last", **small)], [(0, 2), (1, 2)])
    for i in range(5):
        t = 10_000_000 * i
        made.submit(plan, [(t, t + 900_000), (t, t + 900_000), (t + 900_000, t + 1_000_000)])
    by_name = {s.kernel: s for s in ranked(made).ranked}
    left = by_name["left"]
    assert not left.saving_is_bound
    assert left.twice_as_fast_share == pytest.approx(0.225)
    assert left.saving_share == pytest.approx(0.45, rel=0.01)
    assert left.busy_share == pytest.approx(0.45)
    assert not any("critical path" in reason for s in by_name.values() for reason in s.reasons)
    assert by_name["last"].twice_as_fast_share == pytest.approx(0.05)


def test_where_no_replay_explains_the_times_the_saving_is_an_upper_bound() -> None:
    by_name = {s.kernel: s for s in ranked(wandering()).ranked}
    left = by_name["left"]
    assert (left.saving_is_bound, left.twice_as_fast_ns, left.twice_as_fast_share) == (True, None, None)
    assert any("no replay reproduces" in reason for reason in left.reasons)
    assert not any("critical path" in reason for s in by_name.values() for reason in s.reasons)
    assert not by_name["last"].saving_is_bound


def test_a_few_slow_runs_do_not_put_a_chain_off_its_own_critical_path() -> None:
    made = Synthetic(devices=[CALIBRATED])
    small = {"groups": 64, "bytes_read": 1000, "declared": True}
    plan = made.plan([node("most", **small), node("rest", **small)])
    for i in range(20):
        t, length = 100_000_000 * i, 50_000_000 if i % 5 == 4 else 980_000
        made.submit(plan, [(t, t + length), (t + length, t + length + 20_000)])
    most = ranked(made).ranked[0]
    assert (most.kernel, most.p50_ns) == ("most", 980_000)
    assert "mostly off the critical path" not in most.reasons
    assert most.saving_share == pytest.approx(0.98, abs=0.02)


@pytest.mark.parametrize(
    ("seconds_before", "said"),
    [
        (30 * 60, "a copy at 20.0 GB/s (±3.0 %, measured with this recording)"),
        (4 * 3600 + 1800, "a copy at 20.0 GB/s (±3.0 %, measured 4 hours before)"),
        (14 * 86_400 + 1800, "a copy at 20.0 GB/s (±3.0 %, measured 14 days before)"),
        (None, "a copy at 20.0 GB/s (±3.0 %)"),
        (-2 * 86_400, "a copy at 20.0 GB/s (±3.0 %)"),
    ],
)
def test_ceilings_come_with_their_spread_and_age(seconds_before: int | None, said: str) -> None:
    measured_ns = None if seconds_before is None else (10**9 - seconds_before) * 10**9
    device = replace(CALIBRATED, copy_bytes_per_s=20e9, copy_spread=0.03, copy_measured_ns=measured_ns)
    made = Synthetic(devices=[device])
    made.submit(made.plan([node("k", bytes_read=4000)]), [(0, 1_000_000)])
    columns = replace(made.columns(), began_ns=10**18)
    aside = warm_ups(columns)
    found = suspects(columns, 0, schedules(columns, 0, aside), roofline.rates(columns, 0, aside))
    assert said in found.measure


def test_the_ranking_says_what_efficiency_is_held_against() -> None:
    measure = ranked(decode()).measure
    assert "the median efficiency of the others, at least 15 % and at most 75 % (50 % if it takes nearly all" in measure
    assert "computed from bound, not declared bytes" in measure
    assert "bound" not in ranked(decode(topk={"declared": True})).measure


def test_next_to_nothing_is_not_written_as_nothing() -> None:
    for device in (CALIBRATED, Device("cpu", workers=4)):
        made = Synthetic(devices=[device])
        made.submit(made.plan([node("slow", bytes_read=4)]), [(0, 20_000_000_000)])
        made.submit(made.plan([node("none", declared=True)]), [(0, 30_000_000_000)])
        reasons = {s.kernel: s.reasons[-1] for s in ranked(made).ranked}
        assert reasons["slow"] in ("moves at most 0.01 % of copy bandwidth", "moves at most 1 B/s")
        assert reasons["none"] == "declares that it moves no bytes"


def test_what_takes_no_longer_than_a_launch_has_nothing_to_save() -> None:
    made = Synthetic(devices=[CALIBRATED])
    plan = made.plan([node("tiny", bytes_read=64)] * 50 + [node("work", groups=1, bytes_read=64)])
    made.submit(plan, [(1000 * i, 1000 * i + 300) for i in range(50)] + [(60_000, 75_000)])
    first, tiny = ranked(made).ranked
    assert (first.kernel, tiny.kernel, tiny.saving_ns) == ("work", "tiny", 0.0)
    assert "launch-bound: 300 ns per dispatch" in tiny.reasons


def test_a_device_without_samples_has_no_suspects() -> None:
    made = Synthetic()
    made.submit(made.plan([node()]), [None], start_ns=0, end_ns=5)
    assert ranked(made).ranked == ()
    assert ranked(Synthetic()).ranked == ()


def test_a_copy_moves_what_it_says() -> None:
    made = Synthetic(devices=[CALIBRATED])
    made.submit(made.plan([node("copy", kind="copy", bytes_read=10_000, bytes_written=10_000)]), [(0, 2000)])
    (copy,) = ranked(made).ranked
    assert copy.efficiency == pytest.approx(0.5)
    assert not copy.efficiency_is_bound


def test_a_weighted_median_is_where_half_the_weight_lies() -> None:
    found = roofline.weighted_medians(np.array([[3.0, 1.0, np.nan], [3.0, 1.0, 2.0]]), np.array([1.0, 5.0, 9.0]))
    assert found.tolist() == [1.0, 2.0]
    assert np.isnan(roofline.weighted_medians(np.array([[np.nan]]), np.array([[1.0]]))).all()


@pytest.mark.parametrize("reached", [0.12, 0.17, 0.5, 0.9])
def test_it_comes_first_on_a_device_where_even_good_kernels_are_far_from_the_ceiling(reached: float) -> None:
    made = Synthetic(devices=[replace(CALIBRATED, workers=2)])
    good = node("matvec", groups=512, bytes_read=round(reached * 20e9 * 100e-6))
    norm = node("rms_norm", groups=1, bytes_read=6_000)
    serial = node("top_k", groups=1, group=(256, 1, 1), threads=(256, 1, 1), bytes_read=40_000)
    plan = made.plan([norm, good, good, good, serial])
    times = [(0, 5_000), (6_000, 106_000), (107_000, 207_000), (208_000, 308_000), (309_000, 389_000)]
    for _ in range(4):
        made.submit(plan, times)
    assert ranked(made).ranked[0].kernel == "top_k"


def test_a_kernel_alone_is_held_against_half_the_ceiling() -> None:
    made = Synthetic(devices=[CALIBRATED])
    made.submit(made.plan([node("only", groups=64, bytes_read=200_000, declared=True)]), [(0, 100_000)])
    assert ranked(made).ranked[0].saving_ns == pytest.approx(80_000)


def outlier() -> Synthetic:
    """A kernel of many alike dispatches, and one far worse; all numbers and reasons must be of all of them."""
    made = Synthetic(devices=[CALIBRATED])
    usual = [
        node("matvec", label=f"layer.{n}/mlp", place="model.py:10", groups=512, bytes_read=1_340_000, declared=True)
        for n in range(8)
    ]
    odd = node("matvec", label="head/sample", place="model.py:99", groups=1, bytes_read=42_000, declared=True)
    plan = made.plan([*usual, odd])
    for run in range(10):
        t, placed = 10_000_000 * run, []
        for _ in range(9):
            placed.append((t, t + 100_000))
            t += 100_500
        made.submit(plan, placed)
    return made


def test_reasons_and_place_are_of_the_same_dispatches_as_the_numbers() -> None:
    (first,) = ranked(outlier()).ranked
    assert first.efficiency == pytest.approx((8 * 0.67 + 0.021) / 9, rel=0.01)
    assert first.reasons == ("moves 59.8 % of copy bandwidth",)
    assert (first.label, first.place) == ("layer.*/mlp", "model.py:10")
    assert [first.label_part, first.place_part] == pytest.approx([8 / 9, 8 / 9])


def test_a_shape_that_holds_for_a_part_of_the_time_is_said_with_the_part() -> None:
    made = Synthetic(devices=[CALIBRATED])
    wide = node("k", groups=64, bytes_read=1000, declared=True)
    narrow = node("k", groups=1, bytes_read=1000, declared=True)
    plan = made.plan([wide, narrow])
    made.submit(plan, [(0, 100_000), (100_000, 200_000)])
    assert (
        "1 threadgroup of 256 threads on a device with 4 workers in 50.0 % of its time"
        in ranked(made).ranked[0].reasons
    )


def fast(**given: Any) -> Synthetic:
    """A kernel that beats the ceilings of `CALIBRATED` (20 GB/s, 100 Gflop/s) in 10 ms, beside a slower one."""
    made = Synthetic(devices=[CALIBRATED])
    plan = made.plan([node("fast", **given), node("slow", bytes_read=100_000_000, declared=True)])
    made.submit(plan, [(0, 10_000_000), (10_000_000, 30_000_000)])
    return made


def test_a_ceiling_that_a_kernel_exceeds_is_raised_with_a_note() -> None:
    summary = summarise(fast(bytes_read=400_000_000, declared=True).columns())
    by_name = {s.kernel: s for s in summary.suspects[0].ranked}
    assert by_name["fast"].efficiency == 1.0
    assert by_name["slow"].efficiency == pytest.approx(5e9 / 40e9)
    assert "the copy bandwidth was measured as 20.0 GB/s, but fast reached 40.0 GB/s" in summary.suspects[0].measure
    computing = summarise(fast(bytes_read=1000, declared=True, flops=2_000_000_000).columns())
    assert (
        "the peak flop rate was measured as 100 Gflop/s, but fast reached 200 Gflop/s" in computing.suspects[0].measure
    )


@pytest.mark.parametrize("given", [{"bytes_read": 400_000_000}, {"bytes_read": 40_000_000, "declared": True}])
def test_bytes_that_are_only_bound_or_may_lie_in_a_cache_raise_nothing(given: dict[str, Any]) -> None:
    made = fast(**given)
    made.samples[0] = (*made.samples[0][:4], 1_000_000, 0)
    assert "taken instead" not in summarise(made.columns()).suspects[0].measure


def test_ceilings_of_a_busy_machine_are_noted() -> None:
    made = decode(replace(CALIBRATED, ceilings_busy=True))
    summary = summarise(made.columns())
    assert "they may be too low" in summary.suspects[0].measure
    (check,) = (check for check in summary.checks if check.name == "machine")
    assert check.status == "noted"


def test_a_declaration_that_no_device_could_keep_up_with_judges_nobody_else() -> None:
    made = Synthetic(devices=[CALIBRATED])
    gemm = node("gemm", groups=64, bytes_read=1000, declared=True, flops=80_000_000)
    tiny = node("tiny", groups=64, bytes_read=1000, declared=True, flops=1_000_000_000)
    plan = made.plan([gemm, tiny])
    made.submit(plan, [(0, 1_000_000), (1_000_000, 1_010_000)])
    summary = summarise(made.columns())
    by_name = {s.kernel: s for s in summary.suspects[0].ranked}
    assert by_name["gemm"].efficiency == pytest.approx(0.8)
    assert "taken instead" not in summary.suspects[0].measure
