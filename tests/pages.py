"""What the tests of pages share: pages of recordings made by hand, and the data inside a page."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from ostinato.profiling.report.page import save_page
from synthetic import Synthetic, node

_DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)


class OpenPage:
    """Opens files in a browser, each in a tab of its own, and collects what goes wrong there."""

    def __init__(self, browser: Any) -> None:
        self._browser = browser
        self.pages: list[Any] = []
        self.problems: list[str] = []

    def __call__(self, path: Path, width: int = 1400, height: int = 900, scheme: str = "light", **options: Any) -> Any:
        context = self._browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, offline=True, **options
        )
        page = context.new_page()
        page.on("console", lambda said: self.problems.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", lambda asked: None if asked.url.startswith("file:") else self.problems.append(asked.url))
        self.pages.append(page)
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready=true]")
        return page

    def close(self) -> None:
        """Closes everything."""
        for page in self.pages:
            page.context.close()


def plain(text: str) -> str:
    """Text or markup of a page with plain spaces before units."""
    return text.replace("\u00a0", " ").replace("&nbsp;", " ")


def data_of(text: str) -> dict[str, Any]:
    """What a page shows."""
    (data,) = _DATA.findall(text)
    parsed: dict[str, Any] = json.loads(data)
    return parsed


def unpacked(value: Any) -> Any:
    """The same with its columns as arrays."""
    if isinstance(value, dict) and {"$", "d"} <= value.keys():
        kind = value["$"][0] + str(int(value["$"][1:]) // 8)
        column = np.frombuffer(zlib.decompress(base64.b64decode(value["d"])), "<" + kind)
        return np.cumsum(column.astype(np.int64)) if value.get("rising") else column
    if isinstance(value, dict):
        return {name: unpacked(part) for name, part in value.items()}
    return [unpacked(part) for part in value] if isinstance(value, list) else value


def page_of(made: Synthetic, folder: Path, name: str = "page.html") -> Path:
    """The page of a recording made by hand."""
    path = folder / name
    save_page(made.columns(), path)
    return path


HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>\u202e\x1b[31m"


def hostile() -> Synthetic:
    """A recording in which every name tries to be markup."""
    made = Synthetic()
    plan = made.plan([node(HOSTILE, label=HOSTILE + "/deep", place=HOSTILE, op_kind=HOSTILE, source=HOSTILE)])
    for at in range(8):
        made.submit(plan, [(1000 + 10_000 * at, 5000 + 10_000 * at)], label=HOSTILE)
    return made
