"""The fragment for notebooks is whole and harmless."""

from __future__ import annotations

from html.parser import HTMLParser

from sampled import decoder, hostile

from ostinato.profiling.analyse import look_first, summarise
from ostinato.profiling.report import fragment
from ostinato.profiling.report.text import for_html
from synthetic import Synthetic


class Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.open, self.text = set(), [], []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        assert {name for name, _ in attrs} <= {"class"}
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def read(made):
    reader = Reader()
    reader.feed(fragment(summarise(made.columns())))
    reader.close()
    assert reader.open == []
    return reader


def test_the_fragment_is_well_formed_and_self_contained():
    reader = read(decoder())
    assert reader.tags <= {"div", "style", "table", "thead", "tbody", "tr", "th", "td"}
    text = "".join(reader.text)
    assert "top_k" in text
    assert "Validity checks" in text
    assert "http" not in fragment(summarise(decoder().columns()))


def test_it_ends_with_the_closing_line():
    summary = summarise(decoder().columns())
    assert fragment(summary).endswith(f'<div class="first">{for_html(look_first(summary), 2000)}</div>\n</div>')


def test_hostile_names_are_text():
    reader = read(hostile())
    assert "script" not in reader.tags
    assert "<script>alert(1)</script>" in "".join(reader.text)
    assert "\x1b" not in "".join(reader.text)


def test_an_empty_recording_has_a_fragment():
    assert "Nothing to look at first" in "".join(read(Synthetic(devices=[])).text)
