"""The files that a source was read from, and whether reading it again would give the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .definitions import SOURCE


@dataclass(frozen=True, slots=True)
class FilesRead:
    """What was read, by file, and where files were looked for: the file that was there, or None."""

    texts: Mapping[str, bytes]
    lookups: Mapping[Path, Path | None]

    def are_current(self) -> bool:
        """Whether all files have the same contents, and none has appeared or gone where one was looked for."""
        if any(existing(path) != there for path, there in self.lookups.items()):
            return False
        return all(_contents(file) == text for file, text in self.texts.items() if file != SOURCE)


def existing(path: Path) -> Path | None:
    """The file or folder at a path, links followed; None if there is none."""
    try:
        there = path.resolve()
        return there if there.exists() else None
    except (OSError, RuntimeError):  # a name that is too long, or a cycle of links
        return None


def _contents(file: str) -> bytes | None:
    try:
        return Path(file).read_bytes()
    except OSError:
        return None
