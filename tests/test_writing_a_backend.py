"""docs/writing-a-backend.md shows the backend of examples/backend as it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from small_device import PROJECT

PAGE = (Path(__file__).parent.parent / "docs" / "writing-a-backend.md").read_text()
BACKEND = PROJECT / "ostinato_small" / "backend.py"
DEVICE = PROJECT / "ostinato_small" / "device.cpp"


def quoted(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(
    ("file", "language"), [(BACKEND, "python"), (DEVICE, "cpp"), (PROJECT / "pyproject.toml", "toml")]
)
def test_the_page_quotes_every_line_once(file: Path, language: str) -> None:
    text = file.read_text()
    pieces = quoted(language)
    for piece in pieces:
        assert text.count(piece) == 1, piece
    in_order = "".join(sorted(pieces, key=text.index))
    assert [line for line in in_order.splitlines() if line] == [line for line in text.splitlines() if line]


def test_it_is_small() -> None:
    lines = sum(len(path.read_text().splitlines()) for path in BACKEND.parent.glob("*.*"))
    assert lines < 300
    assert f"in {lines} lines of Python and C++" in PAGE
