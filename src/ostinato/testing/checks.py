"""Checking what a test submits, for `pytest --ostinato-check`: the work of `ostinato check`, one test at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from ..audit.check import Options, Watcher
from ..audit.findings import Finding
from ..audit.table import grouped
from ..program import Stop

__all__ = ["Stop", "SubmissionCheck"]


class SubmissionCheck:
    """Checks each list that a test and its fixtures submit, while it is watching."""

    def __init__(self, options: Options, strict: bool) -> None:
        self._watcher = Watcher(options, lambda: nullcontext(lambda step: None))
        self._strict = strict
        self._reported = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Check what is submitted in a block, unless the test was stopped. Raises errors of the check itself."""
        with self._watcher.installed() if not self._watcher.stopped else nullcontext():
            yield
        if self._watcher.crash is not None:
            raise self._watcher.crash

    def take(self) -> tuple[str, list[str]]:
        """What is wrong, as one text, and the notes, since this was last called."""
        findings = self._watcher.findings[self._reported :]
        self._reported = len(self._watcher.findings)
        wrong = [finding for finding in findings if finding.is_error or self._strict]
        notes = [finding for finding in findings if not (finding.is_error or self._strict)]
        lines = _lines(wrong)
        if lines and self._watcher.stopped:
            lines.append(f"the test was stopped: {self._watcher.stopped}")
        return "\n".join(lines), _lines(notes)


def _lines(findings: list[Finding]) -> list[str]:
    return [f"{finding}{f' ({count} times)' if count > 1 else ''}" for finding, count in grouped(findings)]
