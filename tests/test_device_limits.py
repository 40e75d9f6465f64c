"""What a GPU family of Apple would not run, though it runs here: `audit(limits=…)`."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

import ostinato as ost
from ostinato.audit.families import family

KERNELS = """
#include <metal_stdlib>
using namespace metal;

kernel void plain(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = 1.0f; }

kernel void tiled(device float *x [[buffer(0)]], threadgroup float *tile [[threadgroup(0)]],
                  uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]]) {
    threadgroup float fixed[4];
    tile[t] = fixed[t % 4] = x[i];
    x[i] = tile[t];
}

kernel void looked_up(device float *x [[buffer(0)]], constant float *table [[buffer(1)]],
                      uint i [[thread_position_in_grid]]) { x[i] = table[i]; }

float total(float value) { return simd_sum(value); }
kernel void reduced(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = total(x[i]); }

kernel void counted(device atomic_float *x [[buffer(0)]]) {
    atomic_fetch_add_explicit(x, 1.0f, memory_order_relaxed);
}

kernel void multiplied(device float *x [[buffer(0)]]) {
    simdgroup_float8x8 a;
    simdgroup_load(a, x, 8);
    simdgroup_store(a, x, 8);
}
"""
MANY = ", ".join(f"constant float &c{index} [[buffer({index})]]" for index in range(1, 16))

Encode = Callable[[ost.CommandEncoder, ost.Library, ost.Buffer], object]


@pytest.fixture(scope="module")
def library(dev: ost.Device) -> ost.Library:
    return dev.library(KERNELS + f"kernel void many(device float *x [[buffer(0)]], {MANY}) {{ x[0] = c1; }}")


@pytest.fixture
def reasons(dev: ost.Device, library: ost.Library) -> Callable[[Encode, str | None], list[str]]:
    def run(encode: Encode, limits: str | None) -> list[str]:
        x = dev.zeros(4096, np.float32)
        audit = dev.capture(lambda encoder: encode(encoder, library, x)).audit(limits=limits)
        assert all(finding.kind == "device limit" and finding.is_error for finding in audit.findings)
        assert all(finding.places[0] is not None for finding in audit.findings)
        return [finding.why for finding in audit.findings]

    return run


CASES: dict[str, tuple[Encode, str, str, str]] = {
    "threads of a group": (
        lambda encoder, lib, x: encoder.dispatch(lib["plain"], x, threads=1024, group_size=1024),
        "apple3",
        "apple4",
        "apple3: a threadgroup of 1024 threads; the family has at most 512",
    ),
    "threadgroup memory": (
        lambda encoder, lib, x: encoder.dispatch(lib["tiled"], x, threads=64, group_size=64, shared={0: 16 << 10}),
        "apple3",
        "apple4",
        "apple3: 16,400 bytes of threadgroup memory, 16 of them in the kernel's body; the family has 16,384",
    ),
    "a little less of it": (
        lambda encoder, lib, x: encoder.dispatch(lib["tiled"], x, threads=64, group_size=64, shared={0: 16352}),
        "apple2",
        "apple3",
        "apple2: 16,368 bytes of threadgroup memory",
    ),
    "a grid that ends inside a group": (
        lambda encoder, lib, x: encoder.dispatch(lib["plain"], x, threads=100, group_size=64),
        "apple3",
        "apple4",
        "a grid of (100, 1, 1) threads is not a multiple of the groups of (64, 1, 1)",
    ),
    "constant arguments": (
        lambda encoder, lib, x: encoder.dispatch(lib["many"], x, *[1.0] * 15, threads=1),
        "mac2",
        "apple7",
        "mac2: 15 arguments in constant memory; the family has at most 14",
    ),
    "alignment of constant memory": (
        lambda encoder, lib, x: encoder.dispatch(lib["looked_up"], x[:64], x[100:200], threads=64),
        "metal3",
        "metal4",
        "metal3: 'table', in constant memory, is bound at byte 400 of its buffer; the family wants a multiple of 32",
    ),
    "a feature in a function that is called": (
        lambda encoder, lib, x: encoder.dispatch(lib["reduced"], x, threads=64),
        "apple6",
        "apple7",
        "apple6: simd_sum at <source>:17:35 (SIMD-scoped reduction functions) is in apple7 and later, mac2",
    ),
    "atomics of floats": (
        lambda encoder, lib, x: encoder.dispatch(lib["counted"], x, threads=64),
        "apple6",
        "mac2",
        "apple6: atomic_float at <source>:20:28 (floating-point atomics) is in",
    ),
    "matrices": (
        lambda encoder, lib, x: encoder.dispatch(lib["multiplied"], x, threads=32),
        "mac2",
        "apple7",
        "mac2: simdgroup_float8x8 at <source>:25:5",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_family_would_not_run_is_an_error_there_and_nowhere_else(
    reasons: Callable[[Encode, str | None], list[str]], case: str
) -> None:
    encode, lacking, having, expected = CASES[case]
    (why,) = reasons(encode, lacking)
    assert expected in why
    assert not reasons(encode, having)
    assert not reasons(encode, None)


def test_later_families_have_all_that_earlier_ones_have() -> None:
    apple = [family(f"apple{number}") for number in range(2, 10)]
    for earlier, later in pairwise(apple):
        assert earlier.features <= later.features
        assert earlier.group_threads <= later.group_threads
        assert earlier.threadgroup_bytes <= later.threadgroup_bytes
    assert family("mac2").features <= family("metal3").features <= family("metal4").features


@pytest.mark.parametrize("name", ["apple1", "Apple7", 7, ["apple7"]])
def test_an_unknown_family_lists_those_there_are(dev: ost.Device, name: object) -> None:
    graph = dev.capture(lambda encoder: encoder.fill(dev.zeros(4, np.float32), 1.0))
    with pytest.raises(ost.ArgumentError, match=r"there are apple2, apple3, .*, apple10, mac2, metal3, metal4"):
        graph.audit(limits=name)
