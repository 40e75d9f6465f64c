"""The frame of a page: one inert file, a head with the checks, tabs, themes, and columns that arrive as they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ostinato.profiling.report.page.packing import numbered, packed
from ostinato.profiling.report.page.writing import assembled
from pages import OpenPage, data_of, hostile, page_of, unpacked


def test_a_page_has_a_head_tabs_and_checks_that_open(open_page: OpenPage, demo_page: Path) -> None:
    page = open_page(demo_page)
    data = data_of(demo_page.read_text())
    assert page.text_content("#look-first") == data["head"]["look_first"]
    assert "Look first at" in data["head"]["look_first"]
    assert not page.is_visible("#checks table")
    page.click("#checks summary")
    assert page.locator("#checks tr").count() == len(data["head"]["checks"]) > 5


def test_every_tab_opens_by_mouse_and_by_keyboard(open_page: OpenPage, demo_page: Path) -> None:
    page = open_page(demo_page)
    tabs = page.locator("[role=tab]").all()
    for tab in tabs:
        tab.click()
        assert tab.get_attribute("aria-selected") == "true"
        assert page.locator("[role=tabpanel]:visible").count() == 1
        assert page.locator("[role=tabpanel]:visible").inner_text().strip()
    for tab in tabs:
        page.keyboard.press("ArrowRight")
        assert tab.get_attribute("aria-selected") == "true"


def test_a_narrow_page_does_not_scroll_sideways(open_page: OpenPage, demo_page: Path) -> None:
    page = open_page(demo_page, width=400, height=800)
    for tab in page.locator("[role=tab]").all():
        tab.click()
        assert page.evaluate("document.documentElement.scrollWidth") <= 400, tab.inner_text()
        narrowest = page.evaluate("""() => Math.min(...[...document.querySelectorAll("td")]
            .filter((cell) => cell.checkVisibility() && cell.textContent.length > 5)
            .map((cell) => cell.clientWidth))""")
        assert narrowest > 30, (tab.inner_text(), narrowest)


def test_the_theme_follows_the_system_and_the_button(open_page: OpenPage, demo_page: Path) -> None:
    page = open_page(demo_page, scheme="dark")
    back = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(back)
    page.click("button.theme")
    assert page.evaluate(back) == "rgb(255, 255, 255)" != dark
    page.click("button.theme")
    assert page.evaluate(back) == dark


def test_names_from_a_recording_are_text(open_page: OpenPage, tmp_path: Path) -> None:
    path = page_of(hostile(), tmp_path)
    text = path.read_text()
    assert "<img" not in text
    assert text.count("</script>") == 2
    page = open_page(path)
    for tab in page.locator("[role=tab]").all():
        tab.click()
    assert page.title() != "owned"
    assert page.locator("img").count() == 0


def test_the_policy_lets_nothing_else_run(open_page: OpenPage, demo_page: Path) -> None:
    page = open_page(demo_page)
    ran = page.evaluate("""() => {
        const script = document.createElement("script");
        script.textContent = "window.intruder = true";
        document.body.append(script);
        return Boolean(window.intruder);
    }""")
    assert not ran
    assert "Content Security Policy" in open_page.problems.pop()


def numbers() -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(-(2**52), 2**52), max_size=20)


@given(numbers(), st.booleans())
def test_columns_are_kept_whole_in_the_smallest_type(values: list[int], rising: bool) -> None:
    values = sorted(values) if rising else values
    column = packed(np.array(values, np.int64), rising=rising)
    assert unpacked(column).tolist() == values
    data = unpacked({**column, "rising": False})
    if data.dtype.kind != "f" and data.itemsize > 1:
        assert max(map(abs, data.tolist())) > 2 ** (4 * data.itemsize - 1)


def test_columns_arrive_in_the_browser_as_they_were(open_page: OpenPage, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    sent: dict[str, Any] = {
        "bytes": rng.integers(0, 256, 100),
        "signed": rng.integers(-100, 100, 100),
        "wide": rng.integers(-(2**50), 2**50, 100),
        "real": rng.random(100),
        "none": np.zeros(0, np.int64),
    }
    times = np.sort(rng.integers(0, 2**50, 1000))
    empty: dict[str, Any] = dict.fromkeys(("overview", "figures", "named", "checks"), ())
    head = empty | {"look_first": "", "sure": False, "checks_title": ""}
    columns = {name: packed(values) for name, values in sent.items()} | {"times": packed(times, rising=True)}
    path = tmp_path / "columns.html"
    path.write_text(assembled({"head": head, "sent": columns}, "columns", "", ""), encoding="utf-8")
    page = open_page(path)
    arrived = page.evaluate("""async () => {
        const sent = JSON.parse(document.getElementById("data").textContent).sent;
        const all = {};
        for (const name in sent) all[name] = Array.from(await unpack(sent[name]));
        return all;
    }""")
    for name, values in {**sent, "times": times}.items():
        assert arrived[name] == values.tolist(), name


def test_texts_are_numbered_as_they_come() -> None:
    names, number = numbered(["b", "a", "b", ""])
    assert (names, number.tolist()) == (["b", "a", ""], [0, 1, 0, 2])
    assert numbered([])[1].dtype == np.int64
