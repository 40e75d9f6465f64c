"""One submission as a `.gputrace` file, which Xcode opens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...errors import DeviceError, DeviceUnavailable
from .api import Framework, error_text


class Capture:
    """Captures the n-th submission of a queue."""

    def __init__(self, framework: Framework, queue: Any, path: Path, number: int) -> None:
        metal = framework.metal
        self._framework = framework
        self._manager = metal.MTLCaptureManager.sharedCaptureManager()
        if not self._manager.supportsDestination_(metal.MTLCaptureDestinationGPUTraceDocument):
            raise DeviceUnavailable(
                f"{framework.name}: gputrace: this process may not capture; start it with METAL_CAPTURE_ENABLED=1 in"
                " its environment"
            )
        if path.exists():
            raise DeviceUnavailable(f"{framework.name}: gputrace: {str(path)!r} exists already")
        self._queue = queue
        self._path = path
        self._left = number

    @contextmanager
    def around(self) -> Iterator[None]:
        """A context manager around one command buffer, from creation to commit; captures the n-th one."""
        self._left -= 1
        if self._left != 0:
            yield
            return
        metal = self._framework.metal
        description = metal.MTLCaptureDescriptor.alloc().init()
        description.setCaptureObject_(self._queue)
        description.setDestination_(metal.MTLCaptureDestinationGPUTraceDocument)
        description.setOutputURL_(self._framework.file_url(str(self._path)))
        began, error = self._manager.startCaptureWithDescriptor_error_(description, None)
        if not began:
            raise DeviceError(f"{self._framework.name}: gputrace: {error_text(error)}; the work was not started")
        try:
            yield
        finally:
            self._manager.stopCapture()


def checked(wanted: Any) -> tuple[Path, int] | None:
    """The option `gputrace`: a path, or a path and the number of the submission, from 1."""
    if wanted is None:
        return None
    path, number = wanted if isinstance(wanted, tuple) and len(wanted) == 2 else (wanted, 1)
    whole = isinstance(number, int) and not isinstance(number, bool) and number > 0
    if not isinstance(path, str | Path) or Path(path).suffix != ".gputrace" or not whole:
        raise DeviceUnavailable(
            f"gputrace={wanted!r}: expected a path that ends in .gputrace, or (path, number of the submission)"
        )
    return Path(path).absolute(), number
