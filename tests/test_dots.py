"""Products of four bytes where simdgroups run as vectors: by whichever instructions the processor has, always exact."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from ostinato.native import toolchain

SOURCE = """
#include <metal_stdlib>
#include <ostinato>
using namespace metal;
kernel void both(device const uint *a [[buffer(0)]], device const uint *b [[buffer(1)]], device int2 *out [[buffer(2)]],
                 uint id [[thread_position_in_grid]]) {
    const char4 right = as_type<char4>(b[id]);
    out[id].x = ostinato::dot_add(as_type<char4>(a[id]), right, 5);
    out[id].y = ostinato::dot_add(as_type<uchar4>(a[id]), right, 5);
}
"""
PROGRAM = f"""
import numpy as np
import ostinato as ost

dev = ost.open_device("cpu")
kernel = dev.library('''{SOURCE}''')["both"]
rng = np.random.default_rng(1)
a, b = (rng.integers(0, 256, (64, 4), np.uint8) for _ in range(2))
a[:8], b[:4], b[4:8] = [[255, 128, 255, 128]], 128, 127
out = dev.zeros((64, 2), np.int32)
encoder = dev.command_encoder()
words = (dev.array(part.view("u4").ravel()) for part in (a, b))
encoder.dispatch(kernel, *words, out, threads=64, group_size=32)
encoder.commit_and_wait()
right = b.view("i1").astype(int)
expected = np.stack([5 + (part.astype(int) * right).sum(axis=1) for part in (a.view("i1"), a)], axis=1)
print(kernel.execution, np.array_equal(out.numpy(), expected))
"""
WITHOUT = {
    "as it is": "",
    "avx2": "-mno-avx512f -mno-avxvnni",
    "plain": "-mno-avx2 -mno-avx512f -mno-avxvnni",
}


@pytest.mark.parametrize("what", WITHOUT if os.environ.get("ALL_AS_VECTORS") else ["avx2"])
def test_products_of_bytes_are_exact_with_fewer_instructions(what: str) -> None:
    compiler = toolchain.find_clang()
    if compiler is None or platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("needs a clang, on x86-64")
    environment = {**os.environ, "CXX": " ".join([*compiler.command, *WITHOUT[what].split()])}
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=300
    )
    assert result.stdout == "vector: it multiplies bytes True\n", result.stderr
