"""Formats of os_log and printf: what they print, against C and Python, and which are refused."""

from __future__ import annotations

import ctypes
import struct

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from ostinato.msl.log_format import (
    FLOAT,
    POINTER,
    SIGNED,
    UNSIGNED,
    FormatError,
    Logged,
    apply_format,
    conversions,
    literal_text,
    read_format,
)

FLAGS = st.text("-+ #0", max_size=3)
WIDTHS = st.sampled_from(["", "1", "5", "12"])
PRECISIONS = st.sampled_from(["", ".", ".0", ".1", ".3", ".9"])
FLOATS = st.floats(width=32, allow_nan=False)
INTEGERS = st.integers(-(2**31), 2**31 - 1)


def as_float(value: float) -> Logged:
    return Logged(FLOAT, 4, (struct.unpack("<I", struct.pack("<f", value))[0],))


def as_int(value: int, kind: int = SIGNED, scalar_bytes: int = 4) -> Logged:
    return Logged(kind, scalar_bytes, (value & (2**64 - 1),))


def printed(text: str, *arguments: Logged) -> str:
    return apply_format(read_format(text), arguments)


def by_c(text: str, value: object) -> str:
    room = ctypes.create_string_buffer(2048)
    ctypes.CDLL(None).snprintf(room, len(room), text.encode(), value)
    return room.value.decode()


@given(FLAGS, WIDTHS, PRECISIONS, st.sampled_from("diuoxX"), INTEGERS)
@example("#", "", ".0", "o", 0)
@example("0", "5", ".3", "d", -5)
def test_integers_print_as_c_prints_them(flags: str, width: str, precision: str, letter: str, value: int) -> None:
    text = f"<%{flags}{width}{precision}{letter}>"
    assert printed(text, as_int(value)) == by_c(text, ctypes.c_int(value))


@given(FLAGS, WIDTHS, PRECISIONS, st.sampled_from("fFeEgGaA"), FLOATS)
@example("#", "", ".0", "a", 1.5)
@example("0", "12", "", "f", float("-inf"))
def test_floats_print_as_c_prints_them(flags: str, width: str, precision: str, letter: str, value: float) -> None:
    text = f"<%{flags}{width}{precision}{letter}>"
    assert printed(text, as_float(value)) == by_c(text, ctypes.c_double(value))


@given(st.sampled_from(["", "-", "+", " ", "#"]), WIDTHS, PRECISIONS, st.sampled_from("feEgG"), FLOATS)
def test_floats_print_as_python_prints_them(flags: str, width: str, precision: str, letter: str, value: float) -> None:
    text = f"%{flags}{width}{precision}{letter}"
    assert printed(text, as_float(value)) == text % value


@given(st.sampled_from(["", "-", "+", " ", "0"]), WIDTHS, st.sampled_from("di"), INTEGERS)
def test_integers_print_as_python_prints_them(flags: str, width: str, letter: str, value: int) -> None:
    text = f"%{flags}{width}{letter}"
    assert printed(text, as_int(value)) == text % value


@given(st.text(st.characters(exclude_characters="%", exclude_categories=["Cs"])), st.lists(INTEGERS, max_size=4))
def test_text_stays_as_it_is_around_the_conversions(text: str, values: list[int]) -> None:
    parts = read_format(text + f"%d{text}%%" * len(values))
    assert apply_format(parts, [as_int(value) for value in values]) == text + "".join(f"{v}{text}%" for v in values)
    assert len(conversions(parts)) == len(values)


@given(st.text("%-+ #0123456789.*v4hlLjztqdiuoxXcfFeEgGaApsn@ ", max_size=12))
def test_any_format_is_read_or_refused(text: str) -> None:
    try:
        parts = read_format(text)
    except FormatError:
        return
    arguments = [
        Logged({"float": FLOAT, "pointer": POINTER}.get(each.takes, UNSIGNED), 4, (7,) * max(each.lanes, 1))
        for each in conversions(parts)
    ]
    assert len(apply_format(parts, arguments)) < 40_000


def test_a_vector_is_printed_component_by_component() -> None:
    vector = Logged(FLOAT, 4, tuple(as_float(value).values[0] for value in (1, -2, 0.5, 0)))
    assert printed("%v4f", vector) == "1.000000,-2.000000,0.500000,0.000000"
    assert printed("%5.1v4hlf|", vector) == "  1.0, -2.0,  0.5,  0.0|"
    assert printed("%v2hhx", Logged(UNSIGNED, 1, (255, 16))) == "ff,10"


@pytest.mark.parametrize(
    ("text", "argument", "expected"),
    [
        ("%u", as_int(-1), "4294967295"),
        ("%d", as_int(2**32 - 1, UNSIGNED), "-1"),
        ("%d", as_int(-(2**40), scalar_bytes=8), str(-(2**40))),
        ("%lu", as_int(2**64 - 1, UNSIGNED, 8), str(2**64 - 1)),
        ("%hhd", as_int(300), "44"),
        ("%hu", as_int(-1), "65535"),
        ("%x", as_int(-1, scalar_bytes=1), "ffffffff"),
        ("%c", as_int(65), "A"),
        ("%p", Logged(POINTER, 8, (0x10,)), "0x10"),
    ],
)
def test_an_integer_has_the_width_it_has_in_the_kernel(text: str, argument: Logged, expected: str) -> None:
    assert printed(text, argument) == expected


@pytest.mark.parametrize("text", ["%s", "%n", "100 %", "%*d", "%.*f", "%k", "%v5f", "%v4c", "%9999999999d", "%.600f"])
def test_a_format_that_cannot_be_printed_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        read_format(text)


@given(st.text(st.characters(codec="ascii", exclude_categories=["Cc"], exclude_characters='"\\?')))
def test_a_literal_is_its_text(text: str) -> None:
    assume("??" not in text)
    assert literal_text(f'"{text}"') == text


def test_escapes_of_a_literal_are_those_of_c() -> None:
    assert literal_text(r'"a\tb\n\"q\"\\ \x41\101\u00e9\0"') == 'a\tb\n"q"\\ AA\u00e9\0'
