"""Kernels whose loops become too long when they are unrolled as the source asks."""

from __future__ import annotations

import pytest

from nvrtc import Nvrtc
from ostinato.backends.cuda import compiling
from ostinato.msl import cuda_options, parse

LOOPS = """
kernel void nest(device float *x, constant uint &n, uint i [[thread_position_in_grid]]) {
    float sum = 0;
    #pragma unroll
    for (int a = 0; a < 8; ++a)
        #pragma unroll
        for (int b = 0; b < 8; ++b)
            #pragma unroll
            for (int c = 0; c < 4; ++c)
                if (a * b + c < int(n)) sum += x[i + a * 32 + b * 8 + c] / float(c + 1);
    x[i] = sum;
}
kernel void small(device float *x, uint i [[thread_position_in_grid]]) {
    #pragma unroll 2
    for (int a = 0; a < 8; ++a) x[i + a] += 1;
}
"""


@pytest.fixture
def text(nvrtc: Nvrtc) -> str:
    return parse("#include <metal_stdlib>\nusing namespace metal;\n" + LOOPS).translate("cuda").text


def test_loops_are_unrolled_as_the_source_asks(text: str) -> None:
    flags = cuda_options("sm_90")
    assert compiling._compile(text, flags) == compiling._compiled(text, flags, None)


def test_what_takes_too_long_is_compiled_without_unrolling(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = cuda_options("sm_90")
    monkeypatch.setattr(compiling, "UNROLLING_S", 0.0)
    assert compiling._compiled(text, flags, None, 0.0) is None
    rolled = text.replace('_Pragma("unroll")', "")
    assert "unroll 2" in rolled
    code = compiling._compile(text, flags)
    assert code == compiling._compiled(rolled, flags, None)
    assert len(code) < len(compiling._compiled(text, flags, None) or b"")
