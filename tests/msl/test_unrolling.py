"""Pragmas that unroll loops reach the compiler of the vector way, and stay in the text of a recording."""

from __future__ import annotations

import pytest

from ostinato.msl.module import parse
from ostinato.msl.preprocess import preprocess, unrolling
from ostinato.msl.single_text import single_text

KERNEL = """
#include <metal_stdlib>
using namespace metal;
#define EACH _Pragma("clang loop unroll(full)")
kernel void sums(device float *x, uint i [[thread_position_in_grid]]) {
  float kept[4];
  EACH for (int k = 0; k < 4; ++k) kept[k] = simd_sum(x[i] + k);
#pragma unroll(2)
  for (int k = 0; k < 4; ++k) x[i] += kept[k];
#pragma clang diagnostic push
  for (int k = 0; k < 3; ++k) x[i] += k;
}
"""


@pytest.mark.parametrize(
    ("pragma", "words"),
    [
        ("unroll", "clang loop unroll(full)"),
        ("clang loop unroll(full)", "clang loop unroll(full)"),
        ("clang  loop unroll(disable)", "clang loop unroll(disable)"),
        ("nounroll", "clang loop unroll(disable)"),
        ("unroll(8)", "clang loop unroll_count(8)"),
        ("unroll 8", "clang loop unroll_count(8)"),
        ("clang loop unroll_count(16)", "clang loop unroll_count(16)"),
        ("unroll(0)", ""),
        ("unroll(WIDTH)", ""),
        ("clang diagnostic push", ""),
        ('unroll(1) \\") system(', ""),
    ],
)
def test_pragmas_that_unroll_are_put_into_the_words_of_clang(pragma: str, words: str) -> None:
    assert unrolling(pragma) == words


def test_a_pragma_stays_with_its_loop_on_the_vector_way_only() -> None:
    module = parse(KERNEL)
    vector = module.translate("cpu-vector", {}, ["sums"]).text
    assert vector.count('_Pragma("clang loop unroll(full)")') == 1
    assert vector.count('_Pragma("clang loop unroll_count(2)")') == 1
    assert vector.count("_Pragma(") == 2
    assert "_Pragma" not in module.translate("cpu", {}, ["sums"]).text


def test_the_text_of_a_recording_keeps_the_pragma() -> None:
    read = preprocess(KERNEL)
    again = preprocess(single_text(read.tokens, ()))
    hints = ["clang loop unroll(full)", "clang loop unroll_count(2)"]
    assert [token.unroll for token in read.tokens if token.unroll] == hints
    assert [token.unroll for token in again.tokens if token.unroll] == hints
