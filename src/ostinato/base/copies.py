"""What belongs to a device is one of a kind: it is neither copied nor pickled, and says so at once."""

from __future__ import annotations

from typing import NoReturn, SupportsIndex

from ..errors import CopyError


def refuse_copy(self: object, protocol: SupportsIndex) -> NoReturn:
    """The `__reduce_ex__` of such a class, through which `copy` and `pickle` both go."""
    raise CopyError(f"{self!r} belongs to an open device of this process and cannot be copied or pickled")
