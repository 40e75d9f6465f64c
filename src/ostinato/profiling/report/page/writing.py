"""Puts a page together: template, style, scripts and data, under a content-security policy that names them by hash.

Nothing from a recording is part of the markup: it is all in one block of JSON, which scripts show as text. The policy
lets the browser run these scripts alone and load nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from typing import Any

from ....base.files import write_whole
from ....base.fragments import STYLE as PLAIN_STYLE
from ....base.fragments import escaped
from ...analyse.columns import Columns
from ...analyse.summary import Summary, summarise
from ..html import report_body
from ..json import plain
from ..text import visible
from .by_kernel import by_kernel
from .graph import graph
from .head import head
from .labels import labels
from .material import Material, kernels, material
from .ranks import ranks
from .regions import regions
from .roofline import roofline
from .timeline import timeline
from .what_if import what_if

View = Callable[[Material], Mapping[str, Any] | None]

VIEWS: tuple[tuple[str, View], ...] = (
    ("timeline", timeline),
    ("by_kernel", by_kernel),
    ("roofline", roofline),
    ("graph", graph),
    ("what_if", what_if),
    ("labels", labels),
    ("regions", regions),
    ("ranks", ranks),
)
"""The views of a recording, in the order of their tabs: the key of its data, which names its script and its style
too, and the function that makes the data."""
_PARTS = {"timeline": ("spans.js", "timeline_rows.js"), "graph": ("graph_layout.js", "graph_drawing.js")}
"""Scripts that the one of a view needs before it."""
VERSION = 1


def page_text(columns: Columns, summary: Summary | None = None, title: str = "", *, with_source: bool = True) -> str:
    """The page of a recording; the source texts of kernels are left out unless `with_source`."""
    summary = summary or summarise(columns)
    given = material(columns, summary, with_source)
    data: dict[str, Any] = {"kernels": kernels(given), "head": head(given)}
    for name, view in VIEWS:
        made = view(given)
        if made is not None:
            data[name] = made
    return assembled(data, title or _title(summary), PLAIN_STYLE, report_body(summary))


def save_page(
    columns: Columns,
    path: str | os.PathLike[str],
    summary: Summary | None = None,
    title: str = "",
    *,
    with_source: bool = True,
) -> int:
    """Writes the page of a recording to a file, which is there whole or not at all; its size in bytes."""
    text = page_text(columns, summary, title, with_source=with_source).encode()
    write_whole(path, text)
    return len(text)


def assembled(
    data: Mapping[str, Any], title: str, plain_style: str, plain_body: str, views: Sequence[str] | None = None
) -> str:
    """A page of some data, with these views or all of a recording. `plain_body` is shown where scripts do not run."""
    names = [name for name, _ in VIEWS] if views is None else views
    style = "".join(map(_asset, ("page.css", *(f"{name}.css" for name in names))))
    scripts = [part for name in names for part in (*_PARTS.get(name, ()), f"{name}.js")]
    script = "".join(map(_asset, ("core.js", "charts.js", *scripts, "app.js")))
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)} {_hash(plain_style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    whole = {"format": "ostinato.page", "version": VERSION, "title": visible(title), **data}
    parts = {
        "policy": policy,
        "title": escaped(title),
        "style": style,
        "plain_style": plain_style,
        "plain": plain_body,
        "data": _inert(json.dumps(plain(whole), ensure_ascii=True, allow_nan=False, separators=(",", ":"))),
        "script": script,
    }
    template = _asset("page.html")
    pieces = template.split("{{")
    filled = [pieces[0]]
    for piece in pieces[1:]:
        name, _, rest = piece.partition("}}")
        filled += [parts[name], rest]
    return "".join(filled)


def _title(summary: Summary) -> str:
    return summary.origins[0].program if summary.origins and summary.origins[0].program else "recording"


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"


def _inert(text: str) -> str:
    """JSON that cannot end the block it stands in."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
