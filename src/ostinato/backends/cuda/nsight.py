"""Labels of submissions as NVTX ranges, so that Nsight shows them.

The package `nvtx` is optional. It is imported only when a tool is attached to the process (NVTX_INJECTION64_PATH, which
Nsight Systems sets), or when the device is opened with `nvtx=True`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from ...errors import DeviceUnavailable


class Ranges:
    """Ranges in our own NVTX domain: entering one is much cheaper than the package's context manager."""

    def __init__(self, nvtx: Any) -> None:
        self._domain = nvtx.get_domain("ostinato")
        self._attributes: dict[str, Any] = {}

    def range(self, label: str | None) -> AbstractContextManager[None]:
        """A context manager that shows a range with this label."""
        return self._entered(label or "command buffer")

    @contextmanager
    def _entered(self, label: str) -> Iterator[None]:
        attributes = self._attributes.get(label)
        if attributes is None:
            if len(self._attributes) > 4096:
                self._attributes.clear()
            attributes = self._attributes[label] = self._domain.get_event_attributes(message=label)
        self._domain.push_range(attributes)
        try:
            yield
        finally:
            self._domain.pop_range()


def find(wanted: bool | None) -> Ranges | None:
    """Ranges if `wanted` (None: if a tool is attached), else None; raises if `wanted` and `nvtx` is not installed."""
    attached = bool(os.environ.get("NVTX_INJECTION64_PATH"))
    if wanted is not None and not isinstance(wanted, bool):
        raise DeviceUnavailable(f"nvtx={wanted!r}: expected True or False")
    if not (attached if wanted is None else wanted):
        return None
    try:
        import nvtx
    except ImportError:
        if wanted is None:
            return None
        raise DeviceUnavailable("nvtx=True: the package is not installed; pip install nvtx") from None
    return Ranges(nvtx)
