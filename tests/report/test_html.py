"""The tables of a profile for notebooks are whole and harmless."""

from __future__ import annotations

from fragment_reader import Reader, read
from sampled import decoder, hostile

from ostinato.base.fragments import escaped
from ostinato.profiling.analyse import look_first, summarise
from ostinato.profiling.report import fragment
from synthetic import Synthetic


def tables(made: Synthetic) -> Reader:
    return read(fragment(summarise(made.columns())))


def test_the_fragment_is_well_formed_and_self_contained() -> None:
    reader = tables(decoder())
    assert set(reader.tags) == {"div", "style", "table", "thead", "tbody", "tr", "th", "td"}
    assert "top_k" in reader.text
    assert "Validity checks" in reader.text
    assert "http" not in fragment(summarise(decoder().columns()))


def test_it_ends_with_the_closing_line() -> None:
    summary = summarise(decoder().columns())
    assert fragment(summary).endswith(f'<div class="first">{escaped(look_first(summary), 2000)}</div>\n</div>')


def test_statuses_have_colours() -> None:
    assert '<td class="t word good">fine</td>' in fragment(summarise(decoder().columns()))


def test_hostile_names_are_text() -> None:
    assert "<script>alert(1)</script>" in tables(hostile()).text


def test_an_empty_recording_has_a_fragment() -> None:
    assert "Nothing to look at first" in tables(Synthetic(devices=[])).text
