"""Simdgroup functions in divergent code act on exactly the lanes that reach them together.

Lanes in different arms of a branch, in different iterations of a loop, or in calls from different places never meet,
however the compiler shares or copies the code; lanes meet again where the paths join.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ostinato as ost
from launching import HEAD, launch

HELPERS = """
float total(float x) { return simd_sum(x); }
float outer_total(float x) { return total(x) + 0.5f; }
template <typename T> T generic_total(T x) { return simd_sum(x); }
inline float chosen_total(bool which, float x) { if (which) return simd_sum(x); return simd_sum(x) + 1000; }
float loop_total(uint count, float x) { float sum = 0; for (uint k = 0; k < count; ++k) sum += simd_sum(x); return sum; }
float early(uint lane, float x) { if (lane % 3 == 0) return -1; return simd_sum(x); }
void through_pointer(thread float *r, float x) { *r = simd_sum(x); }
struct Summer {
  float scale;
  float total(float x) const { return simd_sum(x) * scale; }
  float operator()(float x) const { return simd_sum(x) * scale; }
};
template <typename F> float apply(F function, float x) { return function(x); }
template <int N> struct Unrolled { static float run(float x) { return simd_sum(x) + Unrolled<N - 1>::run(x); } };
template <> struct Unrolled<0> { static float run(float x) { return 0; } };
template <float F(float)> float apply_function(float x) { return F(x); }
template <typename Op> float apply_static(float x) { return Op::run(x); }
#define TOTAL(x) (simd_sum(x))
#define BOTH(c, x) ((c) ? simd_sum(x) : simd_sum(x) + 1000)
"""


def size(condition: Callable[..., bool], *values: int) -> int:
    """The lanes that meet a condition, which is given the lane and the values."""
    return sum(condition(lane, *values) for lane in range(32))


# MSL that leaves r, and what lane lane of a full simdgroup should find there. In each, `lane` is 0…31.
CASES: dict[str, tuple[str, Callable[[int], float]]] = {
    "halves of an if": (
        "if (lane < 16) r = simd_sum(lane); else r = simd_sum(lane) + 1000;",
        lambda lane: 120 if lane < 16 else 376 + 1000,
    ),
    "an if without else, and the join after it": (
        "if (lane % 2) r = simd_sum(1.0f); r = r * 100 + simd_sum(1.0f);",
        lambda lane: 1632 if lane % 2 else 32,
    ),
    "a chain of ifs": (
        "if (lane < 4) r = simd_sum(1.0f); else if (lane < 12) r = simd_sum(1.0f) + 100; else r = simd_sum(1.0f) + 200;",
        lambda lane: 4 if lane < 4 else 108 if lane < 12 else 220,
    ),
    "nested ifs": (
        "if (lane < 20) { if (lane % 2) r = simd_sum(1.0f); else r = simd_sum(1.0f) + 50; r += simd_sum(1.0f) * 1000; }",
        lambda lane: (10 if lane % 2 else 60) + 20000 if lane < 20 else 0,
    ),
    "the arms of a ternary": (
        "r = lane < 10 ? simd_sum(1.0f) : simd_sum(1.0f) + 1000;",
        lambda lane: 10 if lane < 10 else 1022,
    ),
    "one arm of a ternary": ("r = lane < 10 ? simd_sum(1.0f) : -1.0f;", lambda lane: 10 if lane < 10 else -1),
    "nested ternaries": (
        "r = lane < 8 ? simd_sum(1.0f) : lane < 20 ? simd_sum(1.0f) + 100 : simd_sum(1.0f) + 200;",
        lambda lane: 8 if lane < 8 else 112 if lane < 20 else 212,
    ),
    "the right of a short circuit": (
        "bool b = lane < 6 && simd_sum(1.0f) == 6.0f; bool c = lane < 6 || simd_sum(1.0f) == 26.0f; r = b + 2 * c;",
        lambda lane: 3 if lane < 6 else 2,
    ),
    "a switch": (
        "switch (lane % 4) { case 0: r = simd_sum(1.0f); break; case 1: case 2: r = simd_sum(1.0f) + 100; break; "
        "default: r = simd_sum(1.0f) + 200; }",
        lambda lane: [8, 116, 116, 208][lane % 4],
    ),
    "a switch that falls through": (
        "switch (lane % 2) { case 0: r = simd_sum(1.0f); case 1: r += simd_sum(1.0f) * 100; }",
        lambda lane: 3216 if lane % 2 == 0 else 3200,
    ),
    "a for loop with a trip count of each lane's own": (
        "for (uint k = 0; k < lane; ++k) r += simd_sum(1.0f);",
        lambda lane: sum(size(lambda other, k: other > k, k) for k in range(lane)),
    ),
    "the join after such a loop": (
        "for (uint k = 0; k < lane % 5; ++k) r += simd_sum(1.0f); r = simd_sum(1.0f) * 1000 + r;",
        lambda lane: 32000 + sum(size(lambda other, k: other % 5 > k, k) for k in range(lane % 5)),
    ),
    "a while loop": (
        "uint k = lane % 3; while (k < 3) { r = r * 100 + simd_sum(1.0f); ++k; }",
        lambda lane: [322211, 3222, 32][lane % 3],
    ),
    "a comparison with a call on the right": (
        "if (lane < 16) r = 17 > simd_sum(1.0f); else r = 10 + (17 > simd_sum(1.0f));",
        lambda lane: 1 if lane < 16 else 11,
    ),
    "words for operators": ("r = not simd_any(false) and simd_all(true);", lambda lane: 1),
    "a condition that declares": (
        "uint k = 0; while (uint q = uint(simd_sum(1.0f))) { r = r * 100 + q; if (++k > lane % 2) break; }",
        lambda lane: 3216 if lane % 2 else 32,
    ),
    "a do loop": (
        "uint k = 0; do { r = r * 100 + simd_sum(1.0f); } while (++k <= lane % 2);",
        lambda lane: 3216 if lane % 2 else 32,
    ),
    "a loop that never ends by itself": (
        "for (uint k = 0;; ++k) { if (k == lane % 3) break; r = r * 100 + simd_sum(1.0f); } r += 0.5f;",
        lambda lane: [0.5, 21.5, 2110.5][lane % 3],
    ),
    "lanes that skip an iteration with continue": (
        "for (uint k = 0; k < 3; ++k) { if (k == 1 && lane % 2) continue; r = r * 100 + simd_sum(1.0f); }",
        lambda lane: 3232 if lane % 2 else 321632,
    ),
    "lanes that skip an iteration with if": (
        "for (uint k = 0; k < 3; ++k) if (k != lane % 3) r = r * 100 + simd_sum(k + 1.0f);",
        lambda lane: [42 * 100 + 66, 21 * 100 + 66, 21 * 100 + 42][lane % 3],
    ),
    "lanes that skip an iteration of a while loop": (
        "uint k = 0; while (k < 3) { ++k; if (k == 2 && lane < 8) continue; r = r * 100 + simd_sum(1.0f); }",
        lambda lane: 3232 if lane < 8 else 322432,
    ),
    "lanes that skip an iteration of a do loop": (
        "uint k = 0; do { if (k == 1 && lane < 8) continue; r = r * 100 + simd_sum(1.0f); } while (++k < 3);",
        lambda lane: 3232 if lane < 8 else 322432,
    ),
    "lanes that skip an iteration of a loop over a range": (
        "const float list[3] = {1, 2, 3}; for (float v : list) { if (v == 2 && lane < 8) continue; r = r * 100 + simd_sum(1.0f); }",
        lambda lane: 3232 if lane < 8 else 322432,
    ),
    "a loop without braces": (
        "for (uint k = 0; k < 3; ++k) for (uint j = 0; j <= lane % 2; ++j) r += simd_sum(1.0f);",
        lambda lane: 3 * (32 + 16) if lane % 2 else 96,
    ),
    "nested loops with breaks": (
        "for (uint k = 0; k < 3; ++k) { for (uint j = 0; j < 4; ++j) { if (j > (lane + k) % 3) break; r += simd_sum(1.0f); } r += simd_sum(1.0f) * 1000; }",
        lambda lane: (
            96000
            + sum(
                size(lambda other, k, j: j <= (other + k) % 3, k, j)
                for k in range(3)
                for j in range(4)
                if j <= (lane + k) % 3
            )
        ),
    ),
    "a convergent loop condition": (
        "uint left = lane % 4; while (simd_any(left > 0)) { r += 1; if (left > 0) --left; }",
        lambda lane: 3,
    ),
    "a convergent for condition": (
        "for (uint k = 0; simd_max(k) < 3 + lane * 0; ++k) r += simd_sum(1.0f);",
        lambda lane: 96,
    ),
    "a convergent loop start": (
        "for (float m = simd_max(lane); m > 29; m -= 1) r += m;",
        lambda lane: 61,
    ),
    "a convergent do condition": (
        "uint k = 0; do { ++k; } while (simd_sum(k < lane % 4 ? 1.0f : 0.0f) > 0); r = k;",
        lambda lane: 3,
    ),
    "a helper called from both arms": (
        "if (lane < 12) r = total(1); else r = total(1) + 1000;",
        lambda lane: 12 if lane < 12 else 1020,
    ),
    "nested helpers called from both arms": (
        "if (lane < 12) r = outer_total(1); else r = outer_total(1) + 1000;",
        lambda lane: 12.5 if lane < 12 else 1020.5,
    ),
    "a helper at two depths": (
        "if (lane < 12) r = total(1); else r = outer_total(1);",
        lambda lane: 12 if lane < 12 else 20.5,
    ),
    "a template helper called from both arms": (
        "if (lane < 12) r = generic_total(1.0f); else r = generic_total(1.0f) + generic_total(2);",
        lambda lane: 12 if lane < 12 else 60,
    ),
    "a helper with arms of its own": ("r = chosen_total(lane < 5, 1);", lambda lane: 5 if lane < 5 else 1027),
    "a helper with a loop of its own": (
        "r = loop_total(lane % 3, 1);",
        lambda lane: sum(size(lambda other, k: other % 3 > k, k) for k in range(lane % 3)),
    ),
    "a helper with a loop called in a loop": (
        "for (uint k = 0; k < 2; ++k) r = r * 1000 + loop_total(1 + (lane + k) % 2, 1);",
        lambda lane: [32 * 1000 + 48, 48 * 1000 + 32][lane % 2],
    ),
    "a helper that some lanes leave early": ("r = early(lane, 1);", lambda lane: -1 if lane % 3 == 0 else 21),
    "a helper in the arms of a ternary": (
        "r = lane < 12 ? total(1) : total(1) + 1000;",
        lambda lane: 12 if lane < 12 else 1020,
    ),
    "a helper nested in its own argument": ("r = total(total(1) / 32);", lambda lane: 32),
    "two helpers in one expression": (
        "r = total(1) + (lane < 4 ? total(1) : 0) * 100;",
        lambda lane: 432 if lane < 4 else 32,
    ),
    "a helper with a result by pointer": (
        "if (lane < 12) through_pointer(&r, 1); else { through_pointer(&r, 1); r += 1000; }",
        lambda lane: 12 if lane < 12 else 1020,
    ),
    "a member function called from both arms": (
        "Summer s = {2}; if (lane < 12) r = s.total(1); else r = s.total(1) + 1000;",
        lambda lane: 24 if lane < 12 else 1040,
    ),
    "a call operator called from both arms": (
        "Summer s = {2}; if (lane < 12) r = s(1); else r = s(1) + 1000;",
        lambda lane: 24 if lane < 12 else 1040,
    ),
    "a call operator through a template called from both arms": (
        "Summer s = {2}; if (lane < 12) r = apply(s, 1); else r = apply(s, 1) + 1000;",
        lambda lane: 24 if lane < 12 else 1040,
    ),
    "a function as template argument called from both arms": (
        "if (lane < 12) r = apply_function<total>(1); else r = apply_function<total>(1) + 1000;",
        lambda lane: 12 if lane < 12 else 1020,
    ),
    "a static member through a template called from both arms": (
        "if (lane < 12) r = apply_static<Unrolled<1>>(1); else r = apply_static<Unrolled<1>>(1) + 1000;",
        lambda lane: 12 if lane < 12 else 1020,
    ),
    "a recursive template called from both arms": (
        "if (lane < 12) r = Unrolled<2>::run(1); else r = Unrolled<1>::run(1) + 1000;",
        lambda lane: 24 if lane < 12 else 1020,
    ),
    "macros in one line": (
        "if (lane < 12) r = TOTAL(1.0f); else r = TOTAL(1.0f) + 1000;",
        lambda lane: 12 if lane < 12 else 1020,
    ),
    "a macro with both arms": ("r = BOTH(lane < 12, 1.0f);", lambda lane: 12 if lane < 12 else 1020),
    "a call in the argument of a call": ("r = simd_sum(simd_max(lane) - simd_min(lane));", lambda lane: 32 * 31),
    "the first active lane": (
        "if (lane >= 5 && lane % 2) { r = simd_is_first() ? 1 : 2; r += simd_broadcast_first(lane) * 10; }",
        lambda lane: 0 if lane < 5 or lane % 2 == 0 else 51 if lane == 5 else 52,
    ),
    "the mask of active lanes": (
        "if (lane % 8 == 3) r = uint(simd_vote::vote_t(simd_active_threads_mask())) == 0x08080808u ? 1 : -1;",
        lambda lane: 1 if lane % 8 == 3 else 0,
    ),
    "a ballot of half the lanes": (
        "if (lane < 16) r = uint(simd_vote::vote_t(simd_ballot(lane % 2))); else r = uint(simd_vote::vote_t(simd_ballot(true)) >> 16);",
        lambda lane: 0xAAAA if lane < 16 else 0xFFFF,
    ),
    "votes of half the lanes": (
        "if (lane < 16) r = simd_all(lane < 16) + 2 * simd_any(lane > 20); else r = simd_all(lane < 16) + 2 * simd_any(lane > 20);",
        lambda lane: 1 if lane < 16 else 2,
    ),
    "prefix sums of odd lanes": (
        "if (lane % 2) r = simd_prefix_inclusive_sum(1.0f) * 100 + simd_prefix_exclusive_sum(lane);",
        lambda lane: ((lane + 1) // 2 * 100 + sum(range(1, lane, 2))) if lane % 2 else 0,
    ),
    "a shuffle between lanes of the same arm": (
        "if (lane < 16) r = simd_shuffle_xor(lane, 1); else r = simd_shuffle_xor(lane + 100, 2);",
        lambda lane: lane ^ 1 if lane < 16 else (lane ^ 2) + 100,
    ),
    "minima of the lanes that stay in a loop": (
        "for (uint k = 0; k < 4; ++k) { if (lane < k * 8) break; r = r * 100 + simd_min(lane); }",
        lambda lane: [0, 8, 816, 81624][lane // 8],
    ),
    "a quad sum of odd lanes": (
        "if (lane % 2) r = quad_sum(lane);",
        lambda lane: 2 * (lane // 4 * 4) + 4 if lane % 2 else 0,
    ),
    "a block left by all lanes at different places": (
        "do { if (lane < 4) { r = simd_sum(1.0f); break; } if (lane < 12) { r = simd_sum(1.0f) + 100; break; } r = 7; } while (false); r += simd_sum(1.0f) * 1000;",
        lambda lane: 32000 + (4 if lane < 4 else 108 if lane < 12 else 7),
    ),
    "barriers between the arms": (
        "if (lane < 8) r = simd_sum(1.0f); threadgroup_barrier(mem_flags::mem_none); if (lane >= 8) r = simd_sum(1.0f) + 1000; "
        "threadgroup_barrier(mem_flags::mem_none); r = r * 100 + simd_sum(1.0f);",
        lambda lane: 832 if lane < 8 else 102432,
    ),
    "simdgroup barriers": (
        "simdgroup_barrier(mem_flags::mem_none); if (lane < 8) { r = simd_sum(1.0f); } simdgroup_barrier(mem_flags::mem_threadgroup); r += simd_sum(1.0f) * 100;",
        lambda lane: 3208 if lane < 8 else 3200,
    ),
}

PARAMETERS = "device float *out, uint at [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]"

CASES_SOURCE = f"""{HEAD}{HELPERS}
{chr(10).join(f"kernel void case_{k}({PARAMETERS}) {{ float r = 0; {code} out[at] = r; }}" for k, (code, _) in enumerate(CASES.values()))}
"""

SOURCE = f"""{HEAD}
kernel void returned({PARAMETERS}) {{
  out[at] = -1;
  if (lane >= 20) return;
  float r = simd_sum(1.0f);
  if (lane < 3) {{ out[at] = r; return; }}
  out[at] = r * 100 + simd_sum(1.0f);
}}
kernel void waiting({PARAMETERS}) {{
  float r = 0;
  if (lane < 8) {{ r = simd_sum(1.0f); for (uint k = 0; k < lane; ++k) r += simd_sum(1.0f) * 100; }}
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[at] = r + simd_sum(1.0f) * 100000;
}}
kernel void partial({PARAMETERS}) {{ out[at] = lane % 2 ? simd_sum(1.0f) : simd_sum(1.0f) + 1000; }}
kernel void by_simdgroup({PARAMETERS}) {{
  float r = 0; for (uint k = 0; k <= simdgroup; ++k) r = r * 100 + simd_sum(k == lane ? 1.0f : 2.0f);
  out[at] = r;
}}
// A small machine: each lane walks a program of branches given as data.
kernel void walk(device const uchar *program, device uint *out, constant uint &steps, uint at [[thread_position_in_grid]],
                 uint n [[threads_per_grid]]) {{
  for (uint s = 0; s < steps; ++s) {{
    const uchar step = program[s * n + at];
    uint met = 0;
    if (step == 0) continue;
    else if (step == 1) met = simd_sum(1u);
    else if (step == 2) met = 100 + simd_sum(1u);
    else {{ for (uint k = 3; k <= step; ++k) met = met * 50 + simd_sum(1u); }}
    out[s * n + at] = met;
  }}
}}
"""


@pytest.fixture(scope="module")
def cases(dev: ost.Device) -> ost.Library:
    return dev.library(CASES_SOURCE)


@pytest.fixture(scope="module")
def library(dev: ost.Device) -> ost.Library:
    return dev.library(SOURCE)


@pytest.mark.parametrize("case", CASES)
def test_lanes_meet_exactly_those_on_the_same_path(dev: ost.Device, cases: ost.Library, case: str) -> None:
    kernel = cases[f"case_{list(CASES).index(case)}"]
    got = launch(dev, kernel, np.zeros(96, np.float32), threads=96, group_size=96)
    np.testing.assert_array_equal(got, [CASES[case][1](lane % 32) for lane in range(96)])


def test_lanes_that_returned_are_absent(dev: ost.Device, library: ost.Library) -> None:
    got = launch(dev, library["returned"], np.zeros(64, np.float32), threads=64, group_size=64)
    np.testing.assert_array_equal(got, [20 if lane < 3 else 2017 if lane < 20 else -1 for lane in [*range(32)] * 2])


def test_lanes_at_a_barrier_are_absent(dev: ost.Device, library: ost.Library) -> None:
    got = launch(dev, library["waiting"], np.zeros(64, np.float32), threads=64, group_size=64)
    expected = [8 + 100 * sum(7 - k for k in range(lane)) if lane < 8 else 0 for lane in range(32)]
    np.testing.assert_array_equal(got, [3200000 + value for value in expected] * 2)


@pytest.mark.parametrize("n", [1, 2, 33, 40, 63])
def test_a_partial_last_simdgroup_has_fewer_lanes(dev: ost.Device, library: ost.Library, n: int) -> None:
    got = launch(dev, library["partial"], np.zeros(n, np.float32), threads=n, group_size=n)
    at = np.arange(n)
    lanes = np.minimum(32, n - at // 32 * 32)
    np.testing.assert_array_equal(got, np.where(at % 2, lanes // 2, 1000 + (lanes + 1) // 2))


def test_simdgroups_go_their_own_way(dev: ost.Device, library: ost.Library) -> None:
    got = launch(dev, library["by_simdgroup"], np.zeros(96, np.float32), threads=96, group_size=96)
    np.testing.assert_array_equal(got, np.repeat([63, 6363, 636363], 32))


@given(st.integers(1, 70), st.integers(1, 6), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_any_pattern_of_branches_groups_the_lanes_that_took_it(
    dev: ost.Device, library: ost.Library, n: int, steps: int, random: object
) -> None:
    program = np.array([[random.randrange(6) for _ in range(n)] for _ in range(steps)], np.uint8)  # type: ignore[attr-defined]
    got = launch(dev, library["walk"], program, np.zeros((steps, n), np.uint32), steps, threads=n, group_size=n)
    for s in range(steps):
        for at in range(n):
            mates = program[s, at // 32 * 32 : at // 32 * 32 + 32]
            step = program[s, at]
            if step < 3:
                expected = [0, (mates == 1).sum(), 100 + (mates == 2).sum()][step]
            else:
                expected = 0
                for k in range(3, step + 1):
                    expected = expected * 50 + int((mates >= k).sum())
            assert got[s, at] == expected, (s, at)


TWO_BRANCHES = """
#include <metal_stdlib>
using namespace metal;
static void load(device const float *from, thread float values[4], int first, int count) {
  if (first + 4 <= count) { for (int i = 0; i < 4; ++i) values[i] = from[first + i]; }
  else { for (int i = 0; i < 4; ++i) values[i] = first + i < count ? from[first + i] : 0.0f; }
}
kernel void products(device const float *x [[buffer(0)]], device float *out [[buffer(1)]],
                     constant int &count [[buffer(2)]], uint lane [[thread_index_in_simdgroup]]) {
  float left[4], right[4], sums[2] = {0};
  int first = lane * 4;
  for (int i = 0; i < count / 128; ++i) first += 128;
  load(x, left, first, count);
  for (int shift = 0; shift < 2; ++shift) {
    load(x + shift, right, first, count);
    for (int i = 0; i < 4; ++i) sums[shift] += left[i] * right[i];
  }
  for (int shift = 0; shift < 2; ++shift) {
    float sum = simd_sum(sums[shift]);
    if (lane == 0) out[shift] = sum;
  }
}
"""


@pytest.mark.parametrize("count", [3, 44, 127, 128, 171])
def test_one_comparison_may_part_the_lanes_in_two_places(dev: ost.Device, count: int) -> None:
    x = np.arange(1, 301, dtype=np.float32)
    out = dev.zeros(2, np.float32)
    encoder = dev.command_encoder()
    encoder.dispatch(dev.library(TWO_BRANCHES)["products"], dev.array(x), out, count, threads=32, group_size=32)
    encoder.commit_and_wait()
    first = count // 128 * 128
    last = x[first:count].astype(np.float64)
    assert out.numpy().tolist() == [last @ last, last @ x[first + 1 : count + 1]]
