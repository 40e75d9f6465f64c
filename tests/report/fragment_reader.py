"""Reads fragments of HTML as a browser would, and holds them to what a fragment may have."""

from __future__ import annotations

from html.parser import HTMLParser

HTML_TAGS = set("div style table thead tbody tr th td pre details summary".split())
SVG_TAGS = set("svg g path rect text title".split())
SVG_ATTRIBUTES = set(
    "xmlns width height viewbox role aria-label font-family font-size fill stroke stroke-opacity stroke-width"
    " stroke-dasharray d x y rx fill-opacity opacity".split()
)


class Reader(HTMLParser):
    """Collects tags and text; asserts that tags are allowed, closed in order, and have no attributes that act."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.parts: list[str] = []
        self.frames: list[dict[str, str | None]] = []
        """The attributes of each `<iframe>`."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = {name for name, _ in attrs}
        assert tag in HTML_TAGS | SVG_TAGS | {"iframe"}, tag
        if tag == "iframe":
            assert names == {"title", "sandbox", "srcdoc", "width", "height"}
            self.frames.append(dict(attrs))
        else:
            assert names <= (SVG_ATTRIBUTES if tag in SVG_TAGS else {"class"}), names
        self.tags.append(tag)
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1] != "style":
            assert all(line.isprintable() for line in data.split("\n")), data
            self.parts.append(data)

    @property
    def text(self) -> str:
        return "".join(self.parts)


def read(fragment: str) -> Reader:
    """A fragment that is one whole `<div>`."""
    assert fragment.startswith('<div class="ostinato">')
    reader = Reader()
    reader.feed(fragment)
    reader.close()
    assert reader.open == []
    return reader
