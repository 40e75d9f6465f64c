"""Compiled kernels, cached per device.

The cache does not keep a device alive: it holds what the backend compiled and what encoders have memoised, neither of
which refers to the queue. A `Kernel` is made around them on request.
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
"""The folder of the built-in kernels."""

_Key = tuple[bytes, tuple[tuple[str, str], ...], str]
_Kept = tuple[CompiledKernel, Memo]

_lock = ForkLock()
_kernels: WeakKeyDictionary[Queue, dict[_Key, _Kept]] = WeakKeyDictionary()


@cache
def module(name: str) -> Module:
    """A built-in source by name, such as "elementwise"; parsed once."""
    return parse(FOLDER / f"{name}.metal")


def kernel(
    queue: Queue,
    source: Module,
    function: str,
    constants: Mapping[int | str, Any] | None = None,
    *,
    alone: bool = False,
) -> Kernel:
    """A kernel of a source for the device of this queue; its source, or it `alone`, is compiled on first use."""
    values = constants or {}
    key = (source.text_key, tuple(sorted((str(name), repr(value)) for name, value in values.items())), function)
    with _lock:
        kept = _kernels.setdefault(queue, {})
        if key not in kept:
            compiled = Library(queue, source, values, file=_shown_file(source), whole=not alone)[function]._compiled
            kept[key] = (compiled, {})
        compiled, memo = kept[key]
    return Kernel(compiled, queue, memo)


def _shown_file(source: Module) -> str:
    """The file of a built-in source from the package on, since recordings do not name the folder it is installed in."""
    inside = [Path(file).relative_to(FOLDER) for file in source.files[:1] if Path(file).is_relative_to(FOLDER)]
    return f"ostinato/ops/kernels/{inside[0].as_posix()}" if inside else ""
