"""A real browser for the tests of pages: the machine's Chromium, without a network.

`PYTEST_OSTINATO_SCREENSHOTS=FOLDER` keeps pictures of what the tests saw.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ostinato.profiling.analyse import columns_of
from ostinato.profiling.recording import open_recording
from ostinato.profiling.report.page import save_page
from pages import OpenPage

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_QUIET = ("--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-sync")


def _executable() -> str | None:
    named = os.environ.get("PYTEST_OSTINATO_BROWSER")
    return named or next(filter(None, map(shutil.which, _BROWSERS)), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, without a window. While it is open, an event loop runs that other tests must not meet."""
    executable = _executable()
    if executable is None:
        pytest.skip(
            "no Chromium on this machine (Debian: apt install chromium; or name one in PYTEST_OSTINATO_BROWSER)"
        )
    api = pytest.importorskip("playwright.sync_api", reason="the package playwright drives the browser")
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=executable, args=list(_QUIET), chromium_sandbox=False)
        yield started
        started.close()


@pytest.fixture
def open_page(browser: Any, request: pytest.FixtureRequest) -> Iterator[OpenPage]:
    """Opens pages, offline. A test fails if a page wrote an error to the console, or asked for anything."""
    opener = OpenPage(browser)
    yield opener
    folder = os.environ.get("PYTEST_OSTINATO_SCREENSHOTS")
    if folder and opener.pages:
        Path(folder).mkdir(parents=True, exist_ok=True)
        name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
        opener.pages[-1].screenshot(path=Path(folder) / f"{name}.png", full_page=True)
    opener.close()
    assert not opener.problems, opener.problems


@pytest.fixture(scope="session")
def demo_page(demo_recording: Path) -> Path:
    """Its page."""
    path = demo_recording.with_suffix(".html")
    with open_recording(demo_recording) as recording:
        save_page(columns_of(recording), path)
    return path
