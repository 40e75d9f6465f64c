"""Random programs for simdgroups compute the same to the last bit in every way that the CPU runs kernels.

`SIMT_PROGRAMS=2000` in the environment runs more of them, and a tenth as many that rely on lockstep.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest

import ostinato as ost
from simt_programs import program
from simt_running import PER_LIBRARY, differences, executions, explained, in_lockstep, on_device
from simt_tree import Program

PROGRAMS = int(os.environ.get("SIMT_PROGRAMS", 10))
SHARING = max(10, PROGRAMS // 10)
LANES = np.arange(32, dtype=np.uint32)


@pytest.fixture(scope="module")
def fibers(private_environment: None) -> Iterator[ost.Device]:
    """A device that runs every thread as a fiber of its own."""
    with ost.open_device("cpu", checked=True) as device:
        yield device


@pytest.mark.parametrize("first", range(0, PROGRAMS, PER_LIBRARY))
def test_programs_compute_the_same_in_every_way(dev: ost.Device, fibers: ost.Device, first: int) -> None:
    programs = [program(seed) for seed in range(first, min(first + PER_LIBRARY, PROGRAMS))]
    results = zip(programs, on_device(fibers, programs), on_device(dev, programs), strict=True)
    for one, expected, got in results:
        assert not differences(expected, got), explained(one, dev)
        assert not differences(in_lockstep(one), expected), explained(one, fibers)
    assert_nearly_all_are_vectors(dev, programs)


@pytest.mark.parametrize("first", range(0, SHARING, PER_LIBRARY))
def test_lanes_that_share_memory_step_together_or_are_named(dev: ost.Device, first: int) -> None:
    programs = [program(seed, shares=True) for seed in range(first, min(first + PER_LIBRARY, SHARING))]
    for one, got, execution in zip(programs, on_device(dev, programs), executions(dev, programs), strict=True):
        if execution.way == "fibers":
            assert "results may differ" in str(execution)
        else:
            assert not differences(in_lockstep(one), got), explained(one, dev)
    assert_nearly_all_are_vectors(dev, programs)


def assert_nearly_all_are_vectors(dev: ost.Device, programs: list[Program]) -> None:
    """So that what is compared are not fibers with fibers."""
    ways = [execution.way for execution in executions(dev, programs)]
    assert 10 * ways.count("vector") >= 9 * len(ways), ways


def test_equal_calls_in_two_branches_stay_two(dev: ost.Device) -> None:
    library = dev.library("""#include <metal_stdlib>
        using namespace metal;
        kernel void k(device uint *out, uint l [[thread_index_in_threadgroup]]) {
            if (l != 24) out[l] = simd_sum(1u);
            else out[l] = simd_sum(1u);
        }""")
    out = dev.zeros(64, np.uint32)
    encoder = dev.command_encoder()
    encoder.dispatch(library["k"], out, threads=64, group_size=64)
    encoder.commit_and_wait()
    assert out.numpy().tolist() == [31] * 24 + [1] + [31] * 7 + [32] * 32


def test_lanes_wait_for_those_that_evaluate_arguments(dev: ost.Device, fibers: ost.Device) -> None:
    arguments = "device uint *out, uint l [[thread_index_in_threadgroup]]"
    source = f"""#include <metal_stdlib>
        using namespace metal;
        uint sum(uint x) {{ return simd_sum(x); }}
        uint early(uint x) {{ if (x % 5 == 0) return x; return quad_max(x); }}
        kernel void nested({arguments}) {{ out[l] = simd_sum(l < 8 ? quad_broadcast(l, 3) : l); }}
        kernel void called({arguments}) {{ out[l] = sum(l < 8 ? quad_broadcast(l, 3) : l); }}
        kernel void returned({arguments}) {{ out[l] = simd_shuffle_xor(early(l), 1); }}
        kernel void added({arguments}) {{ out[l] = early(l) * 100 + quad_max(l); }}
        device uint &cell(device uint *cells, uint x) {{ return cells[simd_shuffle_xor(x, 1)]; }}
        kernel void referred({arguments}) {{ cell(out, l) = l; }}
        template <typename T> struct Half {{
            uint two;
            T operator()(uint x) {{ T found = x / T(two); return simd_max(found) > 0 ? found : T(0); }}
        }};
        kernel void converted({arguments}) {{ out[l] = uint(Half<float>{{2}}(l)); }}
        kernel void either({arguments}) {{ out[l] = min(quad_sum(l), l % 4 == 0 ? simd_sum(l) : 1000u); }}
        kernel void within({arguments}) {{ out[l] = max(quad_sum(l), early(l)); }}
        kernel void vectors({arguments}) {{
            uint4 v = uint4(quad_sum(l), l & 1 ? simd_max(l) : 7u, simd_sum(l), l > 9 && simd_any(l == 12));
            out[l] = v.x + v.y * 3 + v.z * 5 + v.w * 7;
        }}
        kernel void stepped({arguments}) {{
            uint v = 0;
            for (uint i = 0; i < 64; i += simd_sum(1u)) {{
                if (l < 8) continue;
                v += simd_max(l);
            }}
            out[l] = v;
        }}
        uint2 both(uint x) {{ return uint2(simd_sum(x), x); }}
        struct Sum {{
            uint x;
            Sum plus(uint y) {{ return {{simd_sum(x + y)}}; }}
        }};
        Sum sum_of(uint x) {{ return Sum{{simd_max(x)}}; }}
        kernel void swizzled({arguments}) {{ uint2 v = both(l).yx; v.x += both(1).x; out[l] = v.x * 100 + v.y; }}
        kernel void chained({arguments}) {{ out[l] = sum_of(l).plus(1).plus(2).x; }}
        kernel void looped({arguments}) {{
            uint v = 1;
            while (sum(v) < 1000) v += v;
            do --v; while (sum(v) > 500);
            for (; sum(v) + l < 880; ) v += 3;
            out[l] = v;
        }}"""
    total = int(LANES[8:].sum()) + 4 * (3 + 7)
    largest = np.where(LANES % 5, LANES, 0).reshape(8, 4).max(axis=1).repeat(4)
    early = np.where(LANES % 5, largest, LANES)
    quads = LANES.reshape(8, 4).sum(axis=1).repeat(4)
    expected = {
        "nested": LANES * 0 + total,
        "called": LANES * 0 + total,
        "returned": early[LANES ^ 1],
        "added": early * 100 + (LANES | 3),
        "either": np.minimum(quads, np.where(LANES % 4, 1000, LANES[::4].sum())),
        "within": np.maximum(quads, early),
        "vectors": quads + np.where(LANES & 1, 31, 7) * 3 + LANES.sum() * 5 + (LANES > 9) * 7,
        "referred": LANES ^ 1,
        "converted": LANES // 2,
        "stepped": np.where(LANES < 8, 0, 62),
        "swizzled": (LANES + 32) * 100 + LANES.sum(),
        "chained": LANES * 0 + (31 + 1) * 32 * 32 + 64,
        "looped": np.where(LANES < 16, 57, 27),
    }
    for device in (dev, fibers):
        library = device.library(source)
        for name, values in expected.items():
            out = device.zeros(32, np.uint32)
            encoder = device.command_encoder()
            encoder.dispatch(library[name], out, threads=32, group_size=32)
            encoder.commit_and_wait()
            np.testing.assert_array_equal(out.numpy(), values, err_msg=f"{name} as {library[name].execution.way}")


def test_lanes_keep_the_values_of_their_last_iteration(dev: ost.Device) -> None:
    library = dev.library("""#include <metal_stdlib>
        using namespace metal;
        kernel void k(device uint *first, device ulong *index, device const uint *ones, constant uint &end,
                      uint id [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
            uint i = 0, votes, sum = 0;
            ulong at;
            do {
                i += 2;
                votes = uint(quad_vote::vote_t(quad_ballot(simd_is_first())));
                at = ulong(id + i);
                sum += ones[at];
            } while (i < end && lane % 3 > 1);
            first[id] = votes * 100 + sum;
            index[id] = at * 7;
        }""")
    first, index, ones = dev.zeros(64, np.uint32), dev.zeros(64, np.uint64), dev.array(np.ones(80, np.uint32))
    encoder = dev.command_encoder()
    encoder.dispatch(library["k"], first, index, ones, np.uint32(3), threads=64, group_size=64)
    encoder.commit_and_wait()
    lane, stays = np.arange(64) % 32, np.arange(64) % 32 % 3 > 1
    votes = np.where(stays & (lane < 4), 4, np.where(~stays & (lane < 4), 1, 0))
    np.testing.assert_array_equal(first.numpy(), votes * 100 + 1 + stays)
    np.testing.assert_array_equal(index.numpy(), (np.arange(64) + 2 + 2 * stays) * 7)


def test_loops_begin_at_a_place_of_each_lane(dev: ost.Device) -> None:
    arguments = "device const float *x, device float *out, constant uint &end, uint lane [[thread_index_in_simdgroup]]"
    library = dev.library(f"""#include <metal_stdlib>
        using namespace metal;
        kernel void index({arguments}) {{
            float sum = 0;
            for (uint i = lane + 32; i < end; i += 32) sum += x[i];
            out[lane] = simd_sum(sum);
        }}
        kernel void pointer({arguments}) {{
            float sum = 0;
            device const float *p = x + lane + 4;
            for (uint i = 0; i < end; i += 100, p += 32) sum += *p;
            out[lane] = simd_sum(sum);
        }}""")
    x = np.arange(1000, dtype=np.float32)
    for name, expected in (("index", x[32:500].sum()), ("pointer", x[4:164].sum())):
        out = dev.zeros(32, np.float32)
        encoder = dev.command_encoder()
        encoder.dispatch(library[name], dev.array(x), out, np.uint32(500), threads=32, group_size=32)
        assert encoder.commit().wait(timeout=60), f"{name} does not end"
        assert out.numpy().tolist() == [expected] * 32


SUM = "r = simd_sum(1u);"
UP_TO_FOUR = "for (uint i = 0; i < 4; i++)"
EXITS = {
    "breaks": f"{UP_TO_FOUR} {{ if (key == i) {{ {SUM} break; }} }}",
    "without braces": f"{UP_TO_FOUR} if (key == i) {{ {SUM} break; }} else if (key > 90) break;",
    "returns": f"{UP_TO_FOUR} {{ if (key == i) {{ out[id] = simd_sum(1u); return; }} }}",
    "returns from two loops": "for (uint j = 0; j < 2; j++) for (uint i = 0; i < 2; i++)"
    " { if (key == i + 2 * j) { out[id] = simd_sum(1u); return; } }",
    "first key": f"while (true) {{ uint first = simd_broadcast_first(key); if (key == first) {{ {SUM} break; }} }}",
    "flag": "bool done = false; while (!done) { uint first = simd_broadcast_first(key);"
    f" if (key == first) {{ {SUM} done = true; }} }}",
    "in two steps": f"{UP_TO_FOUR} {{ bool mine = key == i; if (mine) {SUM} if (mine) break; }}",
    "do": f"uint i = 0; do {{ if (key == i) {{ {SUM} break; }} i++; }} while (i < 4);",
    "in a switch": f"{UP_TO_FOUR} {{ switch (key == i) {{ case true: {SUM} break; default: break; }} if (r) break; }}",
    "continues": f"{UP_TO_FOUR} {{ if (key != i) continue; {SUM} break; }}",
    "in a function": "r = count(key);",
    "in a function that returns what has no default": "r = counted(key).lanes;",
    "in two loops of a function": "r = count_pairs<uint2>(key).y;",
}


@pytest.mark.parametrize("way", ["vector", "fibers"])
def test_what_lanes_do_when_they_leave_a_loop_they_do_in_its_iteration(
    dev: ost.Device, fibers: ost.Device, way: str
) -> None:
    source = """#include <metal_stdlib>
        using namespace metal;
        uint count(uint key) {
            for (uint i = 0; i < 4; i++) { if (key == i) { uint r = simd_sum(1u); return r; } }
            return 0;
        }
        struct Count { uint lanes; Count(uint of) : lanes(of) {} };
        Count counted(uint key) {
            for (uint i = 0; i < 4; i++) if (key == i) return Count(simd_sum(1u));
            return 0;
        }
        template <typename T> inline T count_pairs(uint key) {
            for (uint j = 0; j < 2; j++) {
                for (uint i = 0; i < 2; i++) if (key == i + 2 * j) return T(i, simd_sum(1u));
            }
            return 0;
        }"""
    arguments = "device const uint *keys, device uint *out, uint id [[thread_position_in_grid]]"
    for number, body in enumerate(EXITS.values()):
        source += f"kernel void k{number}({arguments}) {{ uint key = keys[id], r = 0; {body} out[id] = r; }}\n"
    device = dev if way == "vector" else fibers
    library, keys = device.library(source), np.random.default_rng(1).integers(0, 4, 32).astype(np.uint32)
    for number, name in enumerate(EXITS):
        kernel, out = library[f"k{number}"], device.zeros(32, np.uint32)
        assert kernel.execution.way == way, name
        encoder = device.command_encoder()
        encoder.dispatch(kernel, device.array(keys), out, threads=32, group_size=32)
        encoder.commit_and_wait()
        np.testing.assert_array_equal(out.numpy(), np.bincount(keys)[keys], err_msg=f"{name} as {way}")
        assert library[f"k{number}"].execution.way == way


@pytest.mark.parametrize("way", ["vector", "fibers"])
def test_lanes_go_on_together_whichever_way_a_loop_goes_on(dev: ost.Device, fibers: ost.Device, way: str) -> None:
    arguments = "device uint *out, uint l [[thread_index_in_threadgroup]]"
    device = dev if way == "vector" else fibers
    library = device.library(f"""#include <metal_stdlib>
        using namespace metal;
        kernel void two_ways({arguments}) {{
            uint v = 0;
            for (uint i = 0;; ++i) {{
                if (i > l % 8) break;
                const uint active = simd_sum(1u);
                if (active % 5 == 0) {{ v += active; continue; }}
                v += 100 * simd_max(l & i);
            }}
            out[l] = v;
        }}
        kernel void in_a_switch({arguments}) {{
            uint v = 0, i = 0;
            do {{
                for (uint k = 0; k < 2; ++k) {{ if (k == l % 2) continue; v += 1000; }}
                switch (simd_sum(1u) % 3) {{
                    case 0: v += 1; continue;
                    case 1: v += 10; break;
                    default: if (l % 4 == i) continue;
                }}
                v += 100 * simd_sum(1u);
            }} while (++i < l % 8);
            out[l] = v;
        }}""")
    expected = {name: np.zeros(32, np.int64) for name in ("two_ways", "in_a_switch")}
    for i in range(8):
        active = i <= LANES % 8
        count = int(active.sum())
        step = count if count % 5 == 0 else 100 * int((LANES & i)[active].max())
        expected["two_ways"] += np.where(active, step, 0)
        active = (i < LANES % 8) | (i == 0)
        count = int(active.sum())
        within = active & (count % 3 == 1 or i != LANES % 4) & (count % 3 != 0)
        steps = np.where(within, 100 * int(within.sum()), 0) + [1, 10, 0][count % 3]
        expected["in_a_switch"] += np.where(active, steps + 1000, 0)
    for name, values in expected.items():
        assert library[name].execution.way == way
        out = device.zeros(32, np.uint32)
        encoder = device.command_encoder()
        encoder.dispatch(library[name], out, threads=32, group_size=32)
        encoder.commit_and_wait()
        np.testing.assert_array_equal(out.numpy(), values, err_msg=name)


@pytest.mark.parametrize("way", ["vector", "fibers"])
def test_a_member_may_be_named_like_a_function_in_which_lanes_meet(
    dev: ost.Device, fibers: ost.Device, way: str
) -> None:
    device = dev if way == "vector" else fibers
    kernel = device.library("""#include <metal_stdlib>
        using namespace metal;
        uint sum(uint x) { return simd_sum(x); }
        template <typename T> struct Base { T max; Base(T x) : max(x) {} };
        struct Total : Base<uint> { uint sum, twice; Total(uint x) : Base<uint>(x), sum(x), twice(::sum(x) * 2) {} };
        kernel void k(device uint *out, uint l [[thread_index_in_threadgroup]]) {
            Total total(l);
            out[l] = total.max + total.sum + total.twice;
        }""")["k"]
    assert kernel.execution.way == way
    out = device.zeros(32, np.uint32)
    encoder = device.command_encoder()
    encoder.dispatch(kernel, out, threads=32, group_size=32)
    encoder.commit_and_wait()
    np.testing.assert_array_equal(out.numpy(), 2 * LANES + 2 * LANES.sum())


@pytest.mark.parametrize("by_functions", [False, True])
def test_a_lane_that_has_a_lock_gives_it_back_before_the_others_try_again(dev: ost.Device, by_functions: bool) -> None:
    take = "atomic_exchange_explicit(lock, 1u, memory_order_relaxed) == 0u"
    give = "atomic_store_explicit(lock, 0u, memory_order_relaxed)"
    kernel = dev.library(f"""#include <metal_stdlib>
        using namespace metal;
        bool take(device atomic_uint *lock) {{ return {take}; }}
        void give(device atomic_uint *lock) {{ {give}; }}
        kernel void k(device atomic_uint *lock, device uint *sum, device uint *out,
                      uint id [[thread_position_in_grid]]) {{
            bool done = false;
            while (!done)
                if ({"take(lock)" if by_functions else take}) {{
                    sum[0] = sum[0] * 3 + id;
                    {"give(lock)" if by_functions else give};
                    done = true;
                }}
            out[id] = simd_sum(1u);
        }}""")["k"]
    lock, total, out = dev.zeros(1, np.uint32), dev.zeros(1, np.uint32), dev.zeros(32, np.uint32)
    encoder = dev.command_encoder()
    encoder.dispatch(kernel, lock, total, out, threads=32, group_size=32)
    assert encoder.commit().wait(timeout=60), "no lane gets the lock"
    assert out.numpy().tolist() == [32] * 32


def test_indices_that_wrap_in_other_lanes_are_those_of_32_bits(dev: ost.Device) -> None:
    arguments = "device const uint *x, device uint *out, constant uint &n, uint id [[thread_position_in_grid]]"
    library = dev.library(f"""#include <metal_stdlib>
        using namespace metal;
        kernel void backwards({arguments}, uint lane [[thread_index_in_simdgroup]]) {{
            uint v = 0;
            if (lane < n) v = x[n - 1 - lane];
            out[id] = simd_sum(v);
        }}
        kernel void behind({arguments}) {{ uint i = id - n; out[id] = simd_sum(i < 1000 ? x[i] : 0); }}
        kernel void hashed({arguments}) {{
            uint r = n;
            if (id * 0x11000000u < 0x80000000u) r = simd_sum(1u);
            out[id] = r;
        }}
        kernel void narrow({arguments}) {{ uint r = n; if (short(id * 3001) < 0) r = simd_sum(1u); out[id] = r; }}""")
    x = np.arange(100, 164, dtype=np.uint32)
    below, negative = LANES * 0x11000000 < 0x80000000, LANES * 3001 % 65536 >= 32768
    for n in (1, 2, 3, 4, 28, 29, 30, 31, 32):
        expected = {
            "backwards": x[:n].sum(),
            "behind": x[: 32 - n].sum(),
            "hashed": np.where(below, below.sum(), n),
            "narrow": np.where(negative, negative.sum(), n),
        }
        for name, values in expected.items():
            out = dev.zeros(32, np.uint32)
            encoder = dev.command_encoder()
            encoder.dispatch(library[name], dev.array(x), out, np.uint32(n), threads=32, group_size=32)
            encoder.commit_and_wait()
            np.testing.assert_array_equal(out.numpy(), np.broadcast_to(values, 32), err_msg=f"{name}, {n}")


def ran(dev: ost.Device, source: str, threads: int, *arguments: np.ndarray | np.uint32) -> np.ndarray:
    """What the kernel of a source writes to its first argument, a uint for each of its threads."""
    kernel = dev.library(f"#include <metal_stdlib>\nusing namespace metal;\n{source}")["k"]
    assert kernel.execution.way == "vector"
    out = dev.zeros(threads, np.uint32)
    passed = (dev.array(each) if isinstance(each, np.ndarray) else each for each in arguments)
    encoder = dev.command_encoder()
    encoder.dispatch(kernel, out, *passed, threads=threads, group_size=threads)
    encoder.commit_and_wait()
    return out.numpy()


def test_lanes_that_leave_a_loop_keep_what_was_before_its_last_iteration(dev: ost.Device) -> None:
    random = np.random.default_rng(0)
    x, y = random.integers(0, 8, (64, 64)).astype(np.uint32), random.integers(0, 1000, 64).astype(np.uint32)
    x[:, 50] = 7
    source = """kernel void k(device uint *out, device const uint *x, device const uint *y, constant uint &n,
                             uint id [[thread_position_in_grid]]) {
        uint i = 0, r = 5555;
        if (n > 3) {
            uint current = 0;
            do {
                r = current;
                current = y[i];
                if (x[id * 64 + i] & 1) out[id] = simd_sum(current);
                i++;
            } while (x[id * 64 + i] < 7);
        }
        out[id] = r;
    }"""
    last = np.array([next(i for i in range(1, 64) if row[i] >= 7) for row in x]) - 1
    expected = np.where(last > 0, y[last - 1], 0)
    np.testing.assert_array_equal(ran(dev, source, 64, x.reshape(-1), y, np.uint32(9)), expected)


def test_parts_of_local_arrays_that_overlap_are_moved(dev: ost.Device) -> None:
    x, n = np.arange(1000, 2024, dtype=np.uint32), 37
    source = """kernel void k(device uint *out, device const uint *x, constant uint &n,
                             uint id [[thread_position_in_grid]]) {
        uint a[100];
        for (uint i = 0; i < 100; ++i) a[i] = x[id * 3 + i];
        uint s = simd_sum(0u);
        for (uint i = 99; i > 0; --i) a[i] = a[i - 1];
        for (uint i = 0; i < 90; ++i) a[i] = a[i + 3];
        for (uint i = 0; i < 100; ++i) s = s * 3 + a[(i + n) % 100];
        out[id] = s;
    }"""
    a = x[np.arange(32)[:, None] * 3 + np.arange(100)]
    a[:, 1:] = a[:, :-1].copy()
    a[:, :90] = a[:, 3:93].copy()
    expected = np.zeros(32, np.uint32)
    for i in range(100):
        expected = expected * np.uint32(3) + a[:, (i + n) % 100]
    np.testing.assert_array_equal(ran(dev, source, 32, x, np.uint32(n)), expected)


def test_what_lanes_that_take_no_part_would_ask_for_does_not_matter(dev: ost.Device) -> None:
    x = np.random.default_rng(0).integers(0, 64, 32).astype(np.uint32)
    x[::3] = 4_000_000_000
    source = """kernel void k(device uint *out, device const uint *x, uint id [[thread_position_in_grid]]) {
        uint v = x[id];
        if (v <= 31) { uint q = 31 - v; out[id] = simd_shuffle(id, q) + q * 100 + (q & 5); }
        else out[id] = 5;
    }"""
    active = x <= 31
    q = np.where(active, 31 - x.astype(np.int64), 0)
    shuffled = np.where(active[q], q, LANES)  # one's own value of lanes that take no part
    np.testing.assert_array_equal(ran(dev, source, 32, x), np.where(active, shuffled + q * 100 + (q & 5), 5))


@pytest.mark.parametrize(("by", "plus"), [(0x20000001, 5), (0x40000000, 5), (1 << 28, 0), (0x88000000, 1)])
def test_indices_of_lanes_may_be_any_number_apart(dev: ost.Device, by: int, plus: int) -> None:
    source = f"""kernel void k(device uint *out, device const uint *x, constant uint &n,
                              uint id [[thread_position_in_grid]]) {{
        uint s = simd_sum(1u), i = id * {by}u + n;
        out[id] = i < 200 ? x[i] + s : 7;
    }}"""
    x = np.arange(1, 257, dtype=np.uint32)
    i = (LANES.astype(np.int64) * by + plus) % (1 << 32)
    expected = np.where(i < 200, x[np.where(i < 200, i, 0)] + 32, 7)
    np.testing.assert_array_equal(ran(dev, source, 32, x, np.uint32(plus)), expected)


def _accumulated() -> np.ndarray:
    shared, total = LANES * 7, LANES * 0
    for _ in range(4):
        total = total + shared[LANES ^ 1]
        shared = total
    return np.asarray(total + shared[LANES ^ 1])


def _branched() -> np.ndarray:
    shared = np.where((31 - LANES) % 7 == 4, LANES * 7, 1)
    return np.where(LANES % 7 == 4, LANES * 7, shared[LANES ^ 1])


def _rotated() -> np.ndarray:
    shared = LANES * 7
    for _ in range(5):
        shared[LANES ^ 30] = shared[(LANES + 7) % 32]
        shared[3] = 1
    return shared


IDIOMS: dict[str, tuple[str, np.ndarray]] = {
    "a neighbour writes between two reads": (
        "uint x = t[l]; t[l ^ 1] = l * 3; r = x + t[l];",
        LANES * 7 + (LANES ^ 1) * 3,
    ),
    "one lane writes between two reads": ("uint x = t[0]; if (l == 3) t[0] = 7; r = x * 100 + t[0];", LANES * 0 + 7),
    "others read between two writes": ("t[l] = l + 1; uint y = t[l ^ 1]; t[l] = 99; r = y;", (LANES ^ 1) + 1),
    "all read, then the first writes": (
        "uint m = simd_max(t[l]), x = t[l]; if (l == 0) t[0] = m; r = x + t[0];",
        LANES * 7 + 31 * 7,
    ),
    "mirrored": ("t[31 - l] = t[l] + 1; r = t[l];", (31 - LANES) * 7 + 1),
    "the last lane wins": ("t[0] = l; r = t[0];", LANES * 0 + 31),
    "odd lanes write for even ones": (
        "t[l] = 0; if (l & 1) t[l - 1] = l; r = t[l];",
        np.where(LANES & 1, 0, LANES + 1),
    ),
    "a read before a branch stays there": (
        "r = t[l]; if (l % 7 != 4) { t[31 - l] = 1; r = t[l ^ 1]; }",
        _branched(),
    ),
    "a loop that exchanges": (
        "for (uint k = 0; k < 4; ++k) { r += t[l ^ 1]; t[l] = r; } r += t[l ^ 1];",
        _accumulated(),
    ),
    "a branch taken twice, and a read between": (
        "if (l & 1) t[l ^ 1] = l; uint x = t[l]; if (l & 1) t[l ^ 1] = x * 3; r = x + t[l];",
        np.where(LANES & 1, LANES * 14, (LANES + 1) * 22),
    ),
    "a branch in a loop that is unrolled": (
        "for (uint k = 0; k < 5; ++k) { t[l ^ 30] = t[(l + 7) % 32]; if (l == 1) t[3] = simd_min(1u); } r = t[l];",
        _rotated(),
    ),
    "one lane after the other": (
        "t[0] = 5; for (uint k = 0; k < 4; ++k) { r += t[0]; if (l == k) t[0] = r; }",
        LANES * 0 + 40,
    ),
}
"""`t` begins as `l * 7`; what `r` is in each lane if a simdgroup runs in lockstep."""


@pytest.mark.parametrize("space", ["threadgroup", "device"])
def test_lanes_see_what_other_lanes_have_just_written(dev: ost.Device, space: str) -> None:
    declared = "threadgroup uint t[32];" if space == "threadgroup" else "device uint *t = memory;"
    text = "#include <metal_stdlib>\nusing namespace metal;\n" + "\n".join(
        f"kernel void k{number}(device uint *out, device uint *memory, uint l [[thread_index_in_simdgroup]]) "
        f"{{ {declared} t[l] = l * 7; uint r = 0; {body} out[l] = simd_shuffle(r, ushort(l)); }}"
        for number, (body, _) in enumerate(IDIOMS.values())
    )
    library = dev.library(text)
    for number, (name, (_, expected)) in enumerate(IDIOMS.items()):
        kernel = library[f"k{number}"]
        out, memory = dev.zeros(32, np.uint32), dev.zeros(32, np.uint32)
        encoder = dev.command_encoder()
        encoder.dispatch(kernel, out, memory, threads=32, group_size=32)
        encoder.commit_and_wait()
        if kernel.execution.way == "fibers":
            assert "results may differ" in str(kernel.execution)
        else:
            np.testing.assert_array_equal(out.numpy(), expected, err_msg=name)
