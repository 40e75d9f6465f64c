"""The map from emitted text to the user's source: every emitted name leads to the same name where it was written."""

from __future__ import annotations

import re
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato import msl
from ostinato.errors import Diagnostic, KernelCompileError
from ostinato.msl.source_map import MARK_BACK, TRANSLATION, mark, placed, take_marks
from ostinato.msl.tokens import Token, diagnostic_at

HEAD = """#include <metal_stdlib>
using namespace metal;
#define OBJECT (defined_0)
#define CALL(a, b) (defined_1 + (a) * \\
  defined_2 + (b)) /* ü */ + defined_3
#define NESTED(c) defined_4 + CALL(c, defined_5) + OBJECT
"""
STATEMENTS = [
    "x[0] = @ + @;",
    "x[1] = @.xy.x + @(@, OBJECT);",
    "x[2] = CALL(@, @ + @) + CALL(CALL(@, 1), 2);",
    "x[3] = NESTED(@) + NESTED(OBJECT);",
    "x[uint(@) >> @] = 1.5 * @;",
    "float @[4] = {[0 ... 3] = @ + @};",
    "float @ = @; threadgroup_barrier(mem_flags::mem_threadgroup); x[id] = @;",
    "if (@) { x[id] = simd_sum(@); } else { x[id] = simd_max(CALL(@, @)); }",
    "for (uint i = 0; i < @; ++i) { x[i] = half(@); }",
    "threadgroup float @[4 + @];",
    'x[4] = "äöü"[0] + @; // @',
    '#line @ "other.metal"\nx[5] = @;',
]
SPACES = st.sampled_from(["", " ", "\t", "  /* a\nb */ ", " \\\n", "\n", "\n\n\n", " // c\n", "/*ä*/"])


@st.composite
def sources(draw: st.DrawFn) -> str:
    """A kernel in which each name stands once; the spaces between its tokens vary."""
    numbers = count()
    lines: list[str] = []
    for statement in draw(st.lists(st.sampled_from(STATEMENTS), min_size=1, max_size=6)):
        text = statement.replace("#line @", f"#line {1000 * len(lines) + 7}")
        text = re.sub("@", lambda _: f"name_{next(numbers)}", text)
        if not text.startswith("#") and "//" not in text:
            text = re.sub(" ", lambda _: draw(SPACES) or " ", text)
        lines.append(text)
    spaced = "\n".join(lines)
    return f"{HEAD}kernel void k(device float *x [[buffer(0)]], uint id [[thread_position_in_grid]]) {{\n{spaced}\n}}\n"


def emitted_program(translation: msl.Translation) -> str:
    return translation.text.split(f'#line 1 "{TRANSLATION}"\n')[1]


@given(source=sources(), target=st.sampled_from(["cpu", "cuda"]), fibers=st.booleans())
def test_every_emitted_name_leads_to_the_same_name_in_the_source(source: str, target: str, fibers: bool) -> None:
    module = msl.parse(source)
    translation = module.translate(target, fibers=fibers)
    program = emitted_program(translation)
    names = set()
    for line, text in enumerate(program.split("\n"), 1):
        for match in re.finditer(r"\b(?:name|defined)_\d+\b(?! = __ost_of_)", text):
            name = match.group()
            names.add(name)
            token = translation.source_map.token(line, len(text[: match.start()].encode()) + 1)
            assert token is not None
            error = KernelCompileError.of([diagnostic_at("here", token)])
            module.show_lines(error)
            place = error.diagnostics[0]
            if name.startswith("defined"):
                assert _from(place).startswith(("OBJECT", "CALL(", "NESTED("))
                (place,) = place.notes
            assert re.match(rf"{name}\b", _from(place))
    assert set(re.findall(r"\bname_\d+", re.sub("//.*", "", source))) == {n for n in names if n.startswith("name")}


def _from(place: Diagnostic) -> str:
    assert place.source_line is not None
    assert place.column is not None
    return place.source_line[place.column - 1 :]


def test_a_place_that_two_lines_claim_shows_neither() -> None:
    source = 'kernel void k(device float *x) {\n#line 70 "a"\nfirst;\n#line 70 "a"\nsecond;\n#line 80 "a"\nthird;\n}\n'
    module = msl.parse(source)
    places = [
        Diagnostic("wrong", file, line) for file, line in [("a", 70), ("a", 80), ("<source>", 1), ("<source>", 5)]
    ]
    error = KernelCompileError.of(places)
    module.show_lines(error)
    assert [each.source_line for each in error.diagnostics] == [
        None,
        "third;",
        "kernel void k(device float *x) {",
        None,
    ]


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_every_piece_of_the_text_belongs_to_a_token(target: str) -> None:
    source = f"{HEAD}template <typename T> kernel void k(device T *x) {{ x[0] = 0x1p3 >> 2; }}\n"
    instance = 'template [[host_name("k_float")]] kernel void k<float>(device float *x);\n'
    translation = msl.parse(source + instance).translate(target)
    program = emitted_program(translation).encode()
    source_map = translation.source_map
    assert source_map.lines[-1] == len(program)
    assert list(source_map.starts) == sorted(source_map.starts)
    entry = program[: program.index(b"__ost_kernel_0" if target == "cuda" else b"__ost_entry_0")].count(b"\n") + 1
    token = source_map.token(entry, 5)
    assert token is not None
    assert (token.text, token.line) == ("template", source.count("\n") + 1)  # the entry point is its instantiation's


def test_long_lines_are_broken_but_no_shift_is() -> None:
    source = "kernel void k(device uint *x) { x[0] = x[1]" + " >> 1" * 1000 + "; }"
    program = emitted_program(msl.parse(source).translate("cuda"))
    assert program.count(">>") == 1000
    assert max(map(len, program.split("\n"))) < 2500  # g++ counts columns up to 4,096


def test_a_macro_whose_arguments_stand_on_several_lines_is_one_line() -> None:
    macro = "#define SUM(a, b, c) (a) + (b) + (c) + (a) + (b)\n"
    source = macro + "kernel void k(device uint *x) {\n  x[0] = SUM(1,\n 2,\n 3);\n x[1] = 2;\n}"
    program = emitted_program(msl.parse(source).translate("cuda"))
    assert "3 ) + ( 1 ) + ( 2 ) ;\nx [ 1 ]" in program


def test_inserted_text_belongs_to_the_token_it_was_inserted_for() -> None:
    tokens = [Token("identifier", name, "f", 1, column=at) for at, name in enumerate("abc", 1)]
    text, source_map = take_marks(f"\n{mark(0)}ä before {mark(2)}c{mark(0)} after\n{mark(1)}b;", tokens)
    assert text == "\nä before c after\nb;"
    assert source_map.token(1, 1) is None
    columns = {1: "a", 9: "a", 11: "c", 12: "a"}  # in bytes
    assert {column: token.text for column in columns if (token := source_map.token(2, column))} == columns
    assert [token.text for token in source_map.on_line(2)] == ["a", "c", "a"]
    assert source_map.token(9, 1) is None
    assert source_map.on_line(9) == []
    assert MARK_BACK not in text


def test_messages_without_a_column_are_placed_by_the_name_they_quote() -> None:
    kernel = "kernel void k(device float *x) { x[0] = 1 + f(2); }"
    translation = msl.parse(f"float f(float x);\n{kernel}").translate("cuda")
    line = emitted_program(translation).split("f ( 2 )")[0].count("\n") + 1

    def place(message: str, file: str = TRANSLATION) -> tuple[int | None, int | None]:
        error = placed(KernelCompileError.of([Diagnostic(message, file, line)]), translation.source_map)
        return error.line, error.column

    assert place('instantiation of "T f(T) [with T=int]"') == (2, kernel.index("f(2)") + 1)
    assert place("something else") == (2, None)
    assert place("something else", "/a/header.h") == (None, None)
