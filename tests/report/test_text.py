"""Text from strangers cannot act, and numbers read well."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from ostinato.base.fragments import escaped
from ostinato.profiling.analyse import formatting
from ostinato.profiling.report.text import cut, cut_apart, folded, visible


@given(st.text(st.characters(exclude_categories=())))
def test_whatever_is_shown_can_be_seen(text: str) -> None:
    shown = visible(text)
    assert not any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in shown)
    shown.encode("utf-8")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("decode/layer.3/µ", "decode/layer.3/µ"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\u202eb", "a\\u202eb"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("zero\u200bwidth", "zero\\u200bwidth"),
    ],
)
def test_what_would_act_or_hide_is_written_out(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_long_text_is_cut_in_the_middle() -> None:
    assert len(visible("x" * 100_000)) < 310


@given(st.text(), st.integers(1, 40))
def test_folded_text_fits_and_loses_only_blanks(text: str, width: int) -> None:
    text = visible(text)
    lines = folded(text, width)
    widest = max(map(cell_len, text), default=0)
    indent = len(text) - len(text.lstrip(" "))
    assert max(map(cell_len, lines)) <= max(width, indent + max(widest, 1))
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("expert_gated_matvec", 14, ["expert_gated_", "matvec"]),
        ("decode/layer.3/attn", 12, ["decode/", "layer.3/attn"]),
        ("  decode/layer.3", 12, ["  decode/", "  layer.3"]),
        ("moves 1.4 % of it", 11, ["moves 1.4 %", "of it"]),
        ("see decode/layer.3 there", 14, ["see", "decode/layer.3", "there"]),
        ("x" * 10, 4, ["xxxx", "xxxx", "xx"]),
        ("", 4, [""]),
    ],
)
def test_text_is_folded_at_blanks_then_between_the_parts_of_names(text: str, width: int, lines: list[str]) -> None:
    assert folded(text, width) == lines


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("expert_gated_matvec_bfloat16", 16, "expert_g…float16"),
        ("matvec", 6, "matvec"),
        ("  decode/layer.3/attention", 12, "  decod…tion"),
        ("          deep", 8, "    deep"),
        ("          deeper", 8, "    de…r"),
        ("名前名前名前", 7, "名…前"),
        ("ab", 1, "…"),
    ],
)
def test_the_middle_of_a_long_name_is_left_out(text: str, width: int, shown: str) -> None:
    assert cut(text, width) == shown


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["matvec_one_bfloat16", "matvec_two_bfloat16"], ["matvec_o…at16", "matvec_t…at16"]),
        (["a_very_long_prefix_1_tail", "a_very_long_prefix_2_tail"], None),
        (["x" * 40 + "1" + "x" * 40, "x" * 40 + "2" + "x" * 40], None),
        (["x" * 40, "x" * 41], ["xxxxx…xxxxx#1", "xxxxx…xxxxx#2"]),
        (["x" * 40, "x" * 41, "xxxxx…xxxxx#1"], ["xxxxx…xxxxx#2", "xxxxx…xxxxx#3", "xxxxx…xxxxx#1"]),
        (["matvec_one_bfloat16", "matvec_two_bfloat16", "matvec_o…at16"], None),
        (["x" * 5000 + "1" + "x" * 5000, "x" * 5000 + "2" + "x" * 5000], None),
        (["\x1b", "\\x1b"], None),
    ],
)
def test_what_differs_is_kept(names: list[str], shown: list[str] | None) -> None:
    cut_names = cut_apart(names, 13)
    assert len(set(cut_names)) == len(names)
    assert max(map(cell_len, cut_names)) <= 13
    assert shown is None or cut_names == shown


ALIKE = st.tuples(
    st.sampled_from(["", "      ", "layer.12/attention_query_key_value_", "名" * 21]),
    st.text("a1#…\x1b名", max_size=3),
    st.sampled_from(["", "_projection_of_the_output_bfloat16_simdgroup", "名" * 21]),
).map("".join)
"""Long names that differ in few places."""


@given(st.lists(ALIKE | st.text(), max_size=12), st.integers(8, 40))
def test_cut_names_fit_and_stay_apart(names: list[str], width: int) -> None:
    shown = cut_apart(names, width)
    assert len(shown) == len(names)
    assert all(cell_len(short) <= width for short in shown)
    assert len(set(shown)) == len(set(names))
    for name, short in zip(names, shown, strict=True):
        if "…" not in short and "#" not in short:
            assert short.strip() == visible(name).strip()


def test_html_is_escaped_in_text_and_attributes() -> None:
    assert escaped("<script>\"'&") == "&lt;script&gt;&quot;&#x27;&amp;"


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"), (940, "940 ns"), (2.5, "2.50 ns"), (1240, "1.24 µs"), (99_960, "100 µs"), (999_999, "1.00 ms"),
        (1e6, "1.00 ms"), (12_345_678, "12.3 ms"), (1.5e9, "1.50 s"), (4.2e12, "4,200 s"), (-1500, "-1.50 µs"),
    ],
)  # fmt: skip
def test_times_have_three_digits_and_a_unit(ns: float, text: str) -> None:
    assert formatting.time(ns) == text


def test_rates_and_shares() -> None:
    assert formatting.byte_rate(3.95e12) == "3.95 TB/s"
    assert formatting.byte_rate(12e9) == "12.0 GB/s"
    assert formatting.size(0) == "0 B"
    assert formatting.flop_rate(2.5e9) == "2.50 Gflop/s"
    assert formatting.percent(0.004) == "0.4 %"
    assert formatting.percent(0.00001) == "<0.01 %"
    assert formatting.percent(0) == "0 %"
    assert formatting.percent(1) == "100 %"
    assert formatting.count(1, "dispatch", "dispatches") == "1 dispatch"
    assert formatting.count(2000, "dispatch", "dispatches") == "2,000 dispatches"
