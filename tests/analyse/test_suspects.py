"""The kernel to look at comes first, for the right reason."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ostinato.analyse import critical_path as cp
from ostinato.analyse import roofline
from ostinato.analyse.columns import Device
from ostinato.analyse.suspects import suspects
from synthetic import Synthetic, node

CALIBRATED = Device("cpu", workers=4, clock_uncertainty_ns=50.0, copy_bytes_per_s=20e9, flops_per_s=100e9)


def ranked(made):
    columns = made.columns()
    return suspects(columns, 0, cp.schedules(columns, 0, cp.warm_ups(columns)))


def decode(device=CALIBRATED, tokens=8, topk=None, layers=16):
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


def test_a_serial_top_k_comes_before_kernels_with_larger_totals():
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


def test_it_comes_first_without_ceilings_too_and_the_ranking_says_so():
    found = ranked(decode(Device("cpu", workers=4)))
    assert found.ranked[0].kernel == "top_k"
    assert found.ranked[0].efficiency is None
    assert "no ceilings were measured" in found.measure


@pytest.mark.parametrize("bound", [6_000_000, 20_000_000, 400_000_000])
def test_being_bound_to_a_big_buffer_does_not_make_it_look_efficient(bound):
    found = ranked(decode(topk={"bytes_read": bound}))
    first = found.ranked[0]
    assert (first.kernel, first.efficiency) == ("top_k", None)
    assert "efficiency not known: bound to" in first.reasons[-1]
    assert "declare its bytes" in first.reasons[-1]


def test_a_declaration_is_taken_at_its_word():
    declared = ranked(decode(topk={"bytes_read": 128_000, "declared": True})).ranked[0]
    assert declared.efficiency == pytest.approx(0.032)
    assert not declared.efficiency_is_bound
    assert "at most" not in declared.reasons[-1]


def test_flops_count_where_they_are_given():
    made = Synthetic(devices=[CALIBRATED])
    gemm = node("gemm", groups=64, bytes_read=10_000, declared=True, flops=80_000_000)
    plan = made.plan([gemm, node("odd", groups=64, bytes_read=10_000, declared=True)])
    made.submit(plan, [(0, 1_000_000), (1_000_000, 1_100_000)])
    first, second = ranked(made).ranked
    assert (first.kernel, second.kernel) == ("odd", "gemm")
    assert second.efficiency == pytest.approx(0.8)
    assert second.flops_per_s == pytest.approx(80e9)
    assert second.reasons[-1] == "computes at 80.0 % of the peak flop rate"


def test_time_off_the_critical_path_cannot_be_saved():
    made = Synthetic(devices=[replace(CALIBRATED, workers=None)])
    small = {"groups": 64, "bytes_read": 1000, "declared": True}
    plan = made.plan([node("long", **small), node("beside", **small), node("last", **small)], [(0, 2), (1, 2)])
    made.submit(plan, [(0, 900_000), (0, 800_000), (900_000, 1_000_000)])
    by_name = {s.kernel: s for s in ranked(made).ranked}
    assert by_name["beside"].saving_ns == 0.0
    assert "mostly off the critical path" in by_name["beside"].reasons
    assert by_name["long"].saving_ns == pytest.approx(100_000)
    assert by_name["long"].twice_as_fast_share == pytest.approx(0.1)


def test_what_takes_no_longer_than_a_launch_has_nothing_to_save():
    made = Synthetic(devices=[CALIBRATED])
    plan = made.plan([node("tiny", bytes_read=64)] * 50 + [node("work", groups=1, bytes_read=64)])
    made.submit(plan, [(1000 * i, 1000 * i + 300) for i in range(50)] + [(60_000, 75_000)])
    first, tiny = ranked(made).ranked
    assert (first.kernel, tiny.kernel, tiny.saving_ns) == ("work", "tiny", 0.0)
    assert "launch-bound: 300 ns a dispatch" in tiny.reasons


def test_a_device_without_samples_has_no_suspects():
    made = Synthetic()
    made.submit(made.plan([node()]), [None], start_ns=0, end_ns=5)
    assert ranked(made).ranked == ()
    assert ranked(Synthetic()).ranked == ()


def test_a_copy_moves_what_it_says():
    made = Synthetic(devices=[CALIBRATED])
    made.submit(made.plan([node("copy", kind="copy", bytes_read=10_000, bytes_written=10_000)]), [(0, 2000)])
    (copy,) = ranked(made).ranked
    assert (copy.efficiency, copy.efficiency_is_bound) == (pytest.approx(0.5), False)


def test_a_weighted_median_is_where_half_the_weight_lies():
    assert roofline.weighted_median(np.array([3.0, 1.0, 2.0]), np.array([1.0, 5.0, 1.0])) == 1.0
    assert np.isnan(roofline.weighted_median(np.array([np.nan]), np.array([1.0])))


@pytest.mark.parametrize("reached", [0.12, 0.17, 0.5, 0.9])
def test_it_comes_first_on_a_device_where_even_good_kernels_are_far_from_the_ceiling(reached):
    made = Synthetic(devices=[replace(CALIBRATED, workers=2)])
    good = node("matvec", groups=512, bytes_read=round(reached * 20e9 * 100e-6))
    norm = node("rms_norm", groups=1, bytes_read=6_000)
    serial = node("top_k", groups=1, group=(256, 1, 1), threads=(256, 1, 1), bytes_read=40_000)
    plan = made.plan([norm, good, good, good, serial])
    times = [(0, 5_000), (6_000, 106_000), (107_000, 207_000), (208_000, 308_000), (309_000, 389_000)]
    for _ in range(4):
        made.submit(plan, times)
    assert ranked(made).ranked[0].kernel == "top_k"


def test_a_kernel_alone_is_held_against_half_the_ceiling():
    made = Synthetic(devices=[CALIBRATED])
    made.submit(made.plan([node("only", groups=64, bytes_read=200_000, declared=True)]), [(0, 100_000)])
    assert ranked(made).ranked[0].saving_ns == pytest.approx(80_000)
