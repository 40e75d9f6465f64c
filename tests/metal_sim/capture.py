"""The capture manager."""

from __future__ import annotations

from typing import Any

from .objects import Description, Error, Object, note
from .rules import require


class CaptureDescriptor(Description):
    """MTLCaptureDescriptor."""

    PROPERTIES = {"captureObject": None, "destination": 1, "outputURL": None}


class CaptureManager(Object):
    """MTLCaptureManager; there is one."""

    shared: CaptureManager | None = None
    allowed = True

    def __init__(self) -> None:
        super().__init__()
        self._running = False

    @classmethod
    def sharedCaptureManager(cls) -> CaptureManager:
        if CaptureManager.shared is None:
            CaptureManager.shared = cls()
        return CaptureManager.shared

    def supportsDestination_(self, destination: int) -> bool:
        return destination == 2 and CaptureManager.allowed

    def startCaptureWithDescriptor_error_(
        self, description: CaptureDescriptor, error: Any
    ) -> tuple[bool, Error | None]:
        require(not self._running, "a capture is running")
        if description.values["captureObject"] is None or description.values["outputURL"] is None:
            return False, Error("a capture needs an object and a file")
        self._running = True
        note("capture", str(description.values["outputURL"]))
        return True, None

    def stopCapture(self) -> None:
        require(self._running, "no capture is running")
        self._running = False
        note("captured")
