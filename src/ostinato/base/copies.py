"""Objects that belong to a device cannot be copied or pickled; trying raises a `CopyError`."""

from __future__ import annotations

from typing import NoReturn, SupportsIndex

from ..errors import CopyError


def refuse_copy(self: object, protocol: SupportsIndex) -> NoReturn:
    """The `__reduce_ex__` of such a class, which both `copy` and `pickle` call."""
    raise CopyError(f"{self!r} belongs to an open device of this process and cannot be copied or pickled")
