"""The looks of the page: text that can be read in both themes, and a head that leads to the kernel it names."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from ostinato.profiling.report import page as page_package
from ostinato.profiling.report.page.writing import assembled
from pages import OpenPage, data_of, page_of
from synthetic import Synthetic, node

STYLE = (resources.files(page_package) / "assets" / "page.css").read_text()
TEXT_COLOURS = ("text", "dim", "accent", "fine", "noted", "error", "faster", "slower", "path")


def themes() -> dict[str, dict[str, str]]:
    """The colours of each theme, by where they stand in the style."""
    blocks = [
        dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block)) for block in re.findall(r"\{[^{}]*--back: [^{}]*\}", STYLE)
    ]
    return dict(zip(("light", "dark of the system", "dark by choice", "print"), blocks, strict=True))


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_computed_as_wcag_does() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", themes())
@pytest.mark.parametrize("back", ["back", "raised"])
def test_text_has_enough_contrast(theme: str, back: str) -> None:
    colours = themes()["light"] | themes()[theme]
    for name in TEXT_COLOURS:
        assert contrast(colours[name], colours[back]) >= 4.5, name


def test_both_dark_themes_are_one() -> None:
    assert themes()["dark of the system"] == themes()["dark by choice"]


def slow(name: str = "slow_one") -> Synthetic:
    made = Synthetic()
    plan = made.plan([node(name, bytes_read=1000, declared=True), node("other", bytes_read=10**6, declared=True)])
    for run in range(12):
        at = 10_000_000 * run
        made.submit(plan, [(at, at + 900_000), (at + 900_000, at + 1_000_000)])
    return made


@pytest.mark.parametrize("name", ["slow_one", "x\U0001f600\u202e<b>&", "o", "Look first at"])
def test_the_sentence_says_where_the_names_of_its_kernels_stand(tmp_path: Path, name: str) -> None:
    data = data_of(page_of(slow(name), tmp_path).read_text())
    sentence = data["head"]["look_first"].encode("utf-16-le")
    (named,) = data["head"]["named"]
    shown = data["kernels"][named["kernel"]]["name"]
    assert sentence[2 * named["begin"] : 2 * named["end"]].decode("utf-16-le") == shown
    assert sentence[: 2 * named["begin"]].decode("utf-16-le") == "Look first at "


def test_the_kernel_to_look_at_is_a_button_that_opens_it(open_page: OpenPage, tmp_path: Path) -> None:
    path = page_of(slow(), tmp_path)
    page = open_page(path)
    assert page.text_content("#look-first") == data_of(path.read_text())["head"]["look_first"]
    page.click("#look-first button:text-is('slow_one')")
    assert page.get_attribute("#tab-by_kernel", "aria-selected") == "true"


def test_the_head_has_the_main_figures(open_page: OpenPage, demo_page: Path) -> None:
    page = open_page(demo_page)
    names = page.locator(".figures dt").all_inner_texts()
    assert any(name.startswith("device busy") for name in names)
    assert "dispatches" in names
    assert any(name.startswith("per token") for name in names)


def test_the_head_is_drawn_before_the_views(open_page: OpenPage, tmp_path: Path) -> None:
    """Also where nothing is to be unpacked, which would take its time."""
    head: dict[str, Any] = dict.fromkeys(("overview", "figures", "named", "checks"), ())
    path = tmp_path / "head.html"
    path.write_text(assembled({"head": head | {"look_first": "Look here", "checks_title": ""}}, "head", "", "", []))
    page = open_page(path)
    page.add_init_script("""(function look() {
        if (!document.querySelector("header")) requestAnimationFrame(look);
        else window.atFirstFrame = document.querySelector("[data-ready]") ? "all" : "head only";
    })()""")
    page.reload()
    page.wait_for_selector("html[data-ready=true]")
    assert page.evaluate("atFirstFrame") == "head only"


def test_checks_to_look_at_are_named_in_the_strip(tmp_path: Path) -> None:
    head = data_of(page_of(slow(), tmp_path).read_text())["head"]
    named = [check["name"] for check in head["checks"] if check["status"] in ("noted", "error")]
    assert all(name in head["checks_title"] for name in named)
    assert named or "fine" in head["checks_title"]


def test_an_empty_recording_has_a_page_that_says_so(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_page(page_of(Synthetic(), tmp_path))
    assert "no command buffer was recorded" in page.inner_text("#look-first")
