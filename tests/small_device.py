"""The backend of examples/backend, as an installed package would bring it."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import plug_ins
from ostinato.backends.registry import GROUP

PROJECT = Path(__file__).parent.parent / "examples" / "backend"
NAME = "small"


def install() -> None:
    """Let `open_device` know of it, by the entry point that its pyproject.toml declares."""
    if str(PROJECT) not in sys.path:
        sys.path.append(str(PROJECT))
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    plug_ins.show(project["name"], project["entry-points"][GROUP])
