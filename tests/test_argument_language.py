"""The values that `ostinato bench` takes as text."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ostinato as ost
from ostinato.cli.argument_language import DTYPES, FILLS, Filled, Number, Stored, assignment, made, parsed

DTYPE = st.sampled_from(DTYPES)
SHAPE = st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple)
SMALL = st.builds(Filled, DTYPE, SHAPE, st.sampled_from(("random", "zeros", "ones")))
SEEDED = st.builds(Filled, DTYPE, SHAPE, st.just("random"), st.integers(0, 10**18 - 1))


@given(SMALL | SEEDED)
def test_what_an_array_prints_is_read_as_the_same_array(array: Filled) -> None:
    assert parsed(str(array)) == array


@given(SMALL | SEEDED)
def test_an_array_is_made_as_described_and_the_same_every_time(array: Filled) -> None:
    values = made(array)
    assert values.dtype == np.dtype(array.dtype)
    assert values.shape == array.shape
    assert values.nbytes == array.nbytes
    assert values.tobytes() == made(array).tobytes()
    plain = values.astype(np.float64)
    if array.fill == "random":
        assert ((plain >= -1) & (plain < 100)).all()
    else:
        assert (plain == ("zeros", "ones").index(array.fill)).all()


@given(DTYPE, st.integers(1, 300))
def test_arange_counts_or_is_refused(dtype: str, size: int) -> None:
    largest = {"bool": 1, "int8": 127, "uint8": 255}.get(dtype, 1000)
    text = f"{dtype}[{size}]:arange"
    if size - 1 > largest:
        with pytest.raises(ost.ArgumentError, match=f"{dtype} cannot hold"):
            parsed(text)
        return
    value = parsed(text)
    assert isinstance(value, Filled)
    counted = made(value).astype(np.int64)
    assert (counted == np.arange(size).astype(dtype).astype(np.int64)).all()


def test_arange_of_half_ends_at_its_largest_number() -> None:
    parsed("half[65505]:arange")
    with pytest.raises(ost.ArgumentError, match="65505, which float16 cannot hold"):
        parsed("half[65506]:arange")


@given(st.text(max_size=40) | st.from_regex(r"[a-z0-9]{0,8}\[[-0-9, x]{0,8}\](:[a-z0-9.]{0,8})?", fullmatch=True))
def test_any_text_is_a_value_or_an_argument_error(text: str) -> None:
    with suppress(ost.ArgumentError):
        assert isinstance(parsed(text), Number | Filled | Stored)


def test_seeds_and_arguments_have_numbers_of_their_own() -> None:
    plain, seeded = parsed("float32[64]"), parsed("float32[64]:7")
    assert plain == parsed("float32[64]:random")
    assert isinstance(plain, Filled)
    assert isinstance(seeded, Filled)
    assert not np.array_equal(made(plain), made(seeded))
    assert not np.array_equal(made(plain, 0), made(plain, 1))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", Number(3)),
        ("-0x10", Number(-16)),
        ("1e-3", Number(1e-3)),
        ("True", Number(True)),
        ("float[8]", Filled("float32", (8,))),
        ("half[ 4, 2 ]:zeros", Filled("float16", (4, 2), "zeros")),
        ("some/x[1].npy", Stored(Path("some/x[1].npy"))),
    ],
)
def test_values(text: str, value: object) -> None:
    assert parsed(text) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x", "'x' is not NAME=VALUE"),
        ("=3", "is not NAME=VALUE"),
        ("x=", "is not NAME=VALUE"),
        ("x=many", "'x=many': expected a number, an array such as"),
        ("x=float32", "the size is missing; write float32\\[1024\\]$"),
        ("x=float32:ones", "the size is missing; write float32\\[1024\\]:ones"),
        ("x=random", "the type and the size are missing"),
        ("x=float32[]", "'' is not a size"),
        ("x=float32[-4]", "'-4' is not a size"),
        ("x=float32[0]", "'0' is not a size"),
        ("x=float32[4,x]", "'x' is not a size"),
        ("x=double[4]", "there is no element type 'double'; known are"),
        ("x=float4[4]", "there is no element type 'float4'"),
        ("x=float32[4]:sevens", "'sevens' is no way to fill an array"),
        ("x=float32[4]:y.npy", "a file knows its own type and size; write only y.npy"),
    ],
)
def test_wrong_texts_are_explained(text: str, message: str) -> None:
    with pytest.raises(ost.ArgumentError, match=message):
        assignment(text)


def test_arrays_come_from_files_of_numpy_and_no_pickle_is_read(tmp_path: Path) -> None:
    stored = np.arange(6, dtype=np.int16).reshape(2, 3)
    np.save(tmp_path / "good.npy", stored)
    assert np.array_equal(made(Stored(tmp_path / "good.npy")), stored)
    np.save(tmp_path / "objects.npy", np.array([{}], object), allow_pickle=True)
    (tmp_path / "text.npy").write_text("no array")
    (tmp_path / "short.npy").write_bytes((tmp_path / "good.npy").read_bytes()[:-4])
    for name in ("objects.npy", "text.npy", "short.npy", "missing.npy"):
        with pytest.raises(ost.ArgumentError, match=f"{name}' cannot be read as an array"):
            made(Stored(tmp_path / name))


def test_every_fill_is_known() -> None:
    for fill in FILLS:
        assert parsed(f"uint32[4]:{fill}") == Filled("uint32", (4,), fill)
