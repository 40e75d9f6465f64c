"""The page inside of a notebook: in a frame of its own, with everything that it can do alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from ostinato.profiling.analyse import columns_of, look_first, summarise
from ostinato.profiling.recording import open_recording
from ostinato.profiling.report.notebook import embedded
from pages import OpenPage, plain


@pytest.fixture
def outside(demo_recording: Path, tmp_path: Path) -> Path:
    """A page that shows the profile as a notebook does."""
    with open_recording(demo_recording) as recording:
        columns = columns_of(recording)
    path = tmp_path / "notebook.html"
    body = embedded(columns, summarise(columns))
    path.write_text(f'<!doctype html><html data-ready="true"><body><h1>A notebook</h1>{body}</body></html>')
    return path


def test_the_page_works_in_its_frame_and_reaches_nothing_outside(
    open_page: OpenPage, outside: Path, demo_recording: Path
) -> None:
    page = open_page(outside)
    _, frame = page.frames
    frame.wait_for_selector("html[data-ready=true]")
    with open_recording(demo_recording) as recording:
        first = look_first(summarise(recording))
    assert plain(frame.text_content("#look-first")) == first
    for tab in frame.locator("[role=tab]").all():
        tab.click()
        assert tab.get_attribute("aria-selected") == "true"
    assert frame.evaluate("self.origin") == "null"
    assert page.evaluate("document.querySelector('iframe').contentDocument") is None


def test_the_tables_open_by_a_click_outside_of_the_frame(open_page: OpenPage, outside: Path) -> None:
    page = open_page(outside)
    assert not page.is_visible(".ostinato table >> nth=0")
    page.click(".ostinato summary")
    assert page.is_visible(".ostinato table >> nth=0")
