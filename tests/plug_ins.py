"""Packages that are not installed and whose entry points are found all the same, as those of installed ones are."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ostinato.backends.registry import GROUP

_shown: dict[str, tempfile.TemporaryDirectory[str]] = {}


def show(package: str, backends: Mapping[str, str]) -> None:
    """Let `open_device` know of backends (name: object, "vulkan": "package:KIND") for the rest of the process."""
    if package not in _shown:
        _shown[package] = tempfile.TemporaryDirectory(prefix="ostinato-plug-in-", ignore_cleanup_errors=True)
        write(Path(_shown[package].name), package, backends)
        sys.path.append(_shown[package].name)


def write(folder: Path, package: str, points: Mapping[str, str], group: str = GROUP) -> None:
    """What an installer leaves in a folder of `sys.path` of a package with such entry points."""
    info = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
