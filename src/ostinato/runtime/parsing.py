"""Parsed sources, kept as long as a library or a kernel uses them.

Another set of function constants, or another device, takes the parsed source as it is. Files are read again and
compared, so that a source that has changed is parsed anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from ..base.locks import ForkLock

if TYPE_CHECKING:
    from .. import msl

_lock = ForkLock()
_modules: WeakValueDictionary[tuple[Any, ...], msl.Module] = WeakValueDictionary()


def parsed(
    source: str | Path, folders: Sequence[Path], defines: Mapping[str, str | int], native: Mapping[str, str]
) -> msl.Module:
    """The parsed source; raises `KernelCompileError` with file and line."""
    from .. import msl  # the front end is loaded when the first source is compiled

    read_from = ("file", source.resolve()) if isinstance(source, Path) else ("text", source)
    macros = tuple(sorted((name, str(value)) for name, value in defines.items()))
    key = (*read_from, tuple(folder.resolve() for folder in folders), macros, tuple(sorted(native.items())))
    with _lock:
        module = _modules.get(key)
    if module is None or not module.files_read.are_current():
        module = msl.parse(source, include_dirs=folders, defines=defines, native=native)
        with _lock:
            _modules[key] = module
    return module
