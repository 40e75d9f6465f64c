"""A comparison on a terminal, as Markdown and as JSON."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from ostinato.profiling.analyse.comparison import Comparison, Key, UnitTimes, compare_times
from ostinato.profiling.report.comparison import as_dict, as_json, as_markdown, closing, render

HOSTILE = "\x1b[31m|evil|`@user`](http://x)\u202e\n<b>"
LONG = "matmul_f16_simdgroup_tiled_64x64x32_transposed_accumulate<bfloat, 64, 64, 32>"
GRID = "4096×1×1 / 256×1×1"


def times(middle_ns: float, deviation: float = 0.001, share: float = 0.2, units: int = 8) -> UnitTimes:
    generator = np.random.default_rng(round(middle_ns))
    return UnitTimes(middle_ns * np.exp(generator.normal(0, deviation, units)), 100, share)


A = {
    Key("graph", "token", grid="312"): times(12.3e6),
    Key("label", "decode/layer.*/attn"): times(3.2e6),
    Key("kernel", LONG, "mlp/up", GRID): times(210e3),
    Key("kernel", LONG, "mlp/down", GRID): times(190e3),
    Key("kernel", "add", "", "1×1×1 / 1×1×1"): times(1800, 0.2, 0.02),
    Key("kernel", "add", "", "2×1×1 / 1×1×1"): times(1900, 0.2, 0.001),
    Key("kernel", HOSTILE, HOSTILE, GRID): times(5e3),
    Key("kernel", "gone", "", GRID): times(5e3),
}
FACTORS = {"token": 1.05, "mlp/up": 1.2, "mlp/down": 0.9}


def comparison() -> Comparison:
    b = {key: replace(row, times_ns=row.times_ns * FACTORS.get(key.label or key.name, 1.0)) for key, row in A.items()}
    b[Key("kernel", "new", HOSTILE, GRID)] = b.pop(Key("kernel", "gone", "", GRID))
    lines = [f"A: {HOSTILE}", "B: decode.py"]
    return compare_times(A, b, about=lines, differences=[f"Python: A {HOSTILE}, B 3.12"], notes=["a note"])


@pytest.mark.parametrize("width", [70, 80, 100, 120, 200])
def test_tables_fit_and_only_the_closing_line_is_longer(width: int) -> None:
    *lines, last = render(comparison(), width).splitlines()
    assert max(map(cell_len, lines)) <= width
    assert last == closing(comparison())
    assert "\x1b" not in "".join(lines)
    assert "\u202e" not in "".join(lines)


def test_what_differs_stands_above_the_tables() -> None:
    lines = render(comparison(), 120).splitlines()
    order = [
        next(number for number, line in enumerate(lines) if line.startswith(text))
        for text in (
            "A: ",
            "Beside the program, these differ:",
            "  Python: A ",
            "Graphs",
            "Labels",
            "Kernels",
            "Only in A",
        )
    ]
    assert order == sorted(order)
    same = render(replace(comparison(), differences=()), 120)
    assert "Beside the program, nothing that was recorded differs" in same
    live = render(replace(comparison(), differences=None), 120)
    assert "Beside the program" not in live


def test_a_row_has_both_times_the_ratio_the_verdict_and_what_it_could_see() -> None:
    (row,) = (line for line in render(comparison(), 80).splitlines() if line.startswith("token"))
    assert re.fullmatch(r"token +12\.3 ms +12\.9 ms +1\.050 \(1\.04\d–1\.05\d\) +SLOWER +2\.\d %", row), row
    (wide,) = (line for line in render(comparison(), 120).splitlines() if line.startswith("token"))
    assert re.search(r"12\.9 ms +0\.\d %, 0\.\d % +1\.050", wide)


def test_rows_of_one_name_are_told_apart_by_label_and_grid() -> None:
    text = render(comparison(), 200)
    for name in (f"{LONG} in mlp/up", f"{LONG} in mlp/down", "add, 1×1×1 / 1×1×1", "add, 2×1×1 / 1×1×1"):
        assert f"\n{name} " in text


def test_the_closing_line_names_what_changed_and_what_could_not_be_told() -> None:
    line = closing(comparison())
    assert line.startswith("SLOWER: graph token (1.050×), kernel matmul_f16_simd")
    assert "; FASTER: kernel matmul_f16" in line
    assert "; CANNOT TELL: kernel add, 1×1×1 / 1×1×1; ONLY IN" in line  # the other takes too little time to matter


def test_what_only_one_side_has_is_in_the_closing_line_and_a_graph_of_it_undecided() -> None:
    a = {Key("graph", "token", grid="2"): times(1e6, share=0.5), Key("kernel", "add", grid="64 / 32"): times(1e3)}
    b = a | {Key("kernel", "new"): times(1e6, share=0.5), Key("kernel", "tiny"): times(1e6, share=0.009)}
    b[Key("kernel", "add", grid="64 / 64")] = b.pop(Key("kernel", "add", grid="64 / 32"))
    tail = "ONLY IN A: kernel add, 64 / 32 (20.0 %); ONLY IN B: kernel new (50.0 %), kernel add, 64 / 64 (20.0 %)"
    comparison = compare_times(a, b)
    assert closing(comparison) == f"SAME: nothing in both that takes 1 % of the time changed by 2.0 %; {tail}"
    assert (
        as_markdown(comparison).splitlines()[2]
        == "**ONLY IN B**: kernel `new` (50.0 %), kernel `add, 64 / 64` (20.0 %)  "
    )
    assert comparison.undecided == ()  # the graph has their time
    graph = Key("graph", "prefill", grid="3")
    comparison = compare_times(a, a | {graph: times(1e6, share=0.5)})
    assert [row.key for row in comparison.undecided] == [graph]
    assert closing(comparison) == "CANNOT TELL: graph prefill; ONLY IN B: graph prefill (50.0 %)"


def test_few_rows_are_shown_and_all_that_changed() -> None:
    a = {Key("kernel", f"k{number:02}"): times(1000 + number, share=0.03 - number / 2000) for number in range(30)}
    b = {key: replace(row, times_ns=row.times_ns * (1.5 if key.name == "k29" else 1.0)) for key, row in a.items()}
    text = render(compare_times(a, b), 80)
    assert "\nk14 " in text
    assert "\nk15 " not in text
    assert "\nk29 " in text
    assert "and 14 more that take less time (14 SAME)" in text


def test_markdown_is_a_table_in_which_names_are_code() -> None:
    text = as_markdown(comparison())
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in rows} == {7}
    assert "| `token` | 12.3 ms | 12.9 ms | 1.050 (" in text
    assert text.startswith("**SLOWER**: graph `token` (1.050×), ")
    outside = re.sub(r"`[^`\n]*`|<code>[^<\n]*</code>", "", text)
    for mark in ("@", "](", "<", "evil", "\x1b", "\u202e"):
        assert mark not in outside


@given(st.text(max_size=30))
def test_no_name_breaks_out_of_its_code_span(name: str) -> None:
    row = {Key("kernel", name): times(1000)}
    lines = as_markdown(compare_times(row, row)).splitlines()
    (line,) = (line for line in lines if line.startswith("|") and "SAME" in line)
    cell = re.match(r"\| (`[^`|\\]+`|<code>(?:[\w\s]|[^\x00-\x7f]|&#\d+;)+</code>) \| ", line)
    assert cell is not None, line


def test_json_is_plain_ascii_and_numbers_that_are_none_are_null() -> None:
    single = {Key("kernel", HOSTILE): UnitTimes(np.array([np.nan]), 0, 0.5)}
    text = as_json(compare_times(single, single))
    assert text.isascii()
    (row,) = json.loads(text)["rows"]
    assert row["name"] == HOSTILE
    assert row["a"]["median_ns"] is None
    assert row["ratio"] is None
    assert row["verdict"] == "cannot tell"
    assert "\x1b" not in render(compare_times(single, single), 80)


def test_json_says_what_the_tables_say() -> None:
    report = as_dict(comparison())
    assert (report["format"], report["version"]) == ("ostinato.comparison", 1)
    assert report["verdict"] == "slower"
    assert report["closing"] == closing(comparison())
    assert [key["name"] for key in report["only_b"]] == ["new"]
    assert report["ratio"]["low"] < 1.05 < report["ratio"]["high"]
