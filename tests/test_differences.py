"""The difference of two arrays: what counts as wrong, and what people read about it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.base.tolerances import near
from ostinato.testing.differences import Mismatch, mismatches

FLOATS = (np.float32, np.float16, ml_dtypes.bfloat16)
INTEGERS = (np.int8, np.uint8, np.int64, np.uint64, np.bool_)


def only(expected: np.ndarray, actual: np.ndarray, tolerance: Any = 0.0) -> Mismatch:
    ((path, mismatch),) = mismatches(expected, actual, tolerance)
    assert path == ""
    return mismatch


@pytest.mark.parametrize("dtype", FLOATS)
@given(data=st.data())
def test_ulps_are_the_steps_from_one_number_to_the_other(dtype: Any, data: st.DataObject) -> None:
    steps = data.draw(st.integers(1, 50))
    start = np.array([data.draw(st.sampled_from([-1.5, -0.0, 0.0, 1e-5, 3.75]))], dtype)
    value = start
    for _ in range(steps):
        value = np.nextafter(value, np.array([np.inf], dtype))
    assert only(start, value).first.ulps == steps


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
@given(data=st.data())
def test_counts_and_places_are_those_of_a_plain_loop(dtype: Any, data: st.DataObject) -> None:
    values = st.sampled_from([0, 1, 2, 100] if dtype in INTEGERS else [0.0, -0.0, 1.0, 2.5, np.nan, np.inf])
    shape = data.draw(st.sampled_from([(1,), (5,), (2, 3), (2, 2, 2)]))
    drawn = [data.draw(st.lists(values, min_size=8, max_size=8)) for _ in range(2)]
    expected, actual = (np.array(each[: int(np.prod(shape))]).astype(dtype).reshape(shape) for each in drawn)
    wrong = [
        index
        for index in np.ndindex(shape)
        if expected[index].tobytes() != actual[index].tobytes()
        and not (expected[index] != expected[index] and actual[index] != actual[index])
    ]
    shown = list(mismatches(expected, actual, 0.0))
    assert bool(shown) == bool(wrong)
    if wrong:
        mismatch = shown[0][1]
        assert (mismatch.wrong, mismatch.size) == (len(wrong), expected.size)
        assert (mismatch.first.index, mismatch.last) == (wrong[0], wrong[-1])
        assert mismatch.nans == sum(actual[at] != actual[at] for at in wrong)
        assert mismatch.missing_nans == sum(expected[at] != expected[at] for at in wrong)


def test_a_difference_reads_like_this() -> None:
    expected = np.arange(12, dtype=np.float32).reshape(3, 4)
    actual = expected.copy()
    actual[1, 1] = np.nextafter(np.float32(5), np.float32(6))
    actual[2, 0], actual[2, 3] = 9, np.nan
    assert str(only(expected, actual)) == (
        "3 of 12 values are wrong (float32, compared bit for bit)\n"
        "  first wrong value  [1, 1]: expected 5.0, got 5.0000005, 1 ulp apart\n"
        "  largest error      [2, 0]: expected 8.0, got 9.0, 1,048,576 ulps apart (1)\n"
        "  last wrong value   [2, 3]\n"
        "  NaN                1 unexpected, 0 missing"
    )


def test_zeros_of_different_sign_differ_bit_for_bit_and_it_is_said() -> None:
    zero = np.zeros(1, np.float32)
    assert "zeros of different sign" in str(only(zero, -zero))
    assert not list(mismatches(zero, -zero, 1e-6))


def test_nans_are_equal_whatever_their_bits() -> None:
    bits = np.array([0x7FC00000, 0x7FFFFFFF], np.uint32).view(np.float32)
    assert not list(mismatches(bits[:1], bits[1:], 0.0))


def test_integers_have_no_tolerance_and_errors_beyond_their_range() -> None:
    expected, actual = np.array([-128, 1], np.int8), np.array([127, 2], np.int8)
    mismatch = only(expected, actual, 1000.0)
    assert (mismatch.wrong, mismatch.largest_error) == (2, 255.0)


def test_padding_of_structs_does_not_count_and_fields_are_named() -> None:
    dtype = np.dtype({"names": ["a", "b"], "formats": ["u1", "<f4"], "offsets": [0, 4], "itemsize": 8})
    expected, actual = (np.frombuffer(bytes([1, fill, fill, fill, 0, 0, 0, 0]), dtype).copy() for fill in (0, 7))
    assert not list(mismatches(expected, actual, 0.0))
    actual["b"] = 2.0
    ((path, _),) = mismatches(expected, actual, 0.0)
    assert path == ".b"


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_tolerance_never_takes_a_number_for_infinity(dtype: Any) -> None:
    infinity, one = np.array([np.inf, -np.inf, 1.0], dtype), np.array([1.0, 1.0, np.inf], dtype)
    assert not near(infinity, one, 0.5).any()
    assert near(infinity, infinity, 0.5).all()
