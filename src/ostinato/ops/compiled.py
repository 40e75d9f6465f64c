"""Kernels compiled once for a device, and found again for as long as the device lives.

What is kept does not refer to the queue, so the table cannot keep a device alive that everybody else has dropped: it
holds what the backend compiled and what encoders have memoised, and a `Kernel` is made around them when asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from ..base.locks import ForkLock
from ..ir.commands import CompiledKernel
from ..msl import Module, parse
from ..runtime.library import Kernel, Library, Memo
from ..runtime.queue import Queue

FOLDER = Path(__file__).parent / "kernels"
"""Where our own kernels are."""

_Key = tuple[bytes, tuple[tuple[str, str], ...], str]
_Kept = tuple[CompiledKernel, Memo]

_lock = ForkLock()
_kernels: WeakKeyDictionary[Queue, dict[_Key, _Kept]] = WeakKeyDictionary()


@cache
def module(name: str) -> Module:
    """One of our own sources, parsed once: "elementwise" or "rms_norm"."""
    return parse(FOLDER / f"{name}.metal")


def kernel(queue: Queue, source: Module, function: str, constants: Mapping[int | str, Any] | None = None) -> Kernel:
    """A kernel of a source for the device of this queue; the source is compiled when it is first asked for."""
    given = constants or {}
    key = (source.text_key, tuple(sorted((str(name), repr(value)) for name, value in given.items())), function)
    with _lock:
        kept = _kernels.setdefault(queue, {})
        if key not in kept:
            compiled = Library(queue, source, given)[function]._compiled
            kept[key] = (compiled, {})
        compiled, memo = kept[key]
    return Kernel(compiled, queue, memo)
