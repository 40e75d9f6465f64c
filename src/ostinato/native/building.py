"""Building and loading native code for the host with the machine's compiler.

Compiled code is cached, keyed by everything that it depends on, and loaded once per process. It is never unloaded:
kernels may outlive the objects that compiled them.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..base import cache
from ..base.locks import ForkLock
from ..errors import DeviceError, KernelCompileError
from ..version import __version__
from . import toolchain

BASE_FLAGS = ("-std=c++17", "-fPIC", "-fno-exceptions", "-fno-rtti", "-fvisibility=hidden", "-w")
LIBRARY_FLAGS = (*BASE_FLAGS, "-O2", "-pthread")

_lock = ForkLock()
_loaded: dict[str, ctypes.CDLL] = {}


def compile_flags(compiler: toolchain.Toolchain, flags: tuple[str, ...]) -> tuple[str, ...]:
    """The flags, and those that this compiler needs in addition."""
    # By default zig checks for undefined behaviour, and it links no C++ library that could guard static variables.
    # The checks of kernels come after that.
    first = ("-fno-sanitize=all", "-fno-threadsafe-statics") if compiler.is_zig else ()
    return (*first, *flags, *compiler.tuning, *compiler.stacks)


def link_flags(*flags: str) -> tuple[str, ...]:
    """The flags that link a library, and these in addition."""
    # The linker reports undefined names, so they do not fail at load time.
    strict = () if sys.platform == "darwin" else ("-Wl,-z,defs",)
    # The level matters only to zig, which builds what it links against: 4 s at -O2, 17 s without.
    return ("-shared", "-O2", *strict, *flags, "-lm")


def host_library(
    name: str, sources: Sequence[Path], headers: Sequence[Path] = (), linking: tuple[str, ...] = ()
) -> ctypes.CDLL:
    """Compile sources into one library and load it. The folders of the headers are searched for includes."""
    compiler = toolchain.find()
    flags, linked = compile_flags(compiler, LIBRARY_FLAGS), link_flags("-pthread", *linking)
    contents = [part for file in (*sources, *headers) for part in (file.name, file.read_bytes())]
    key = cache.digest(name, __version__, compiler.identity, *flags, *linked, *contents)
    folders = [part for folder in dict.fromkeys(file.parent for file in headers) for part in ("-I", str(folder))]

    def build(work: Path) -> Path:
        try:
            return toolchain.compile_library(compiler, [*map(str, sources)], [*flags, *folders], linked, work)
        except KernelCompileError as error:
            raise DeviceError(f"the {name} could not be built: {error}\n{error.details}") from None

    return load(key, build)


def load(key: str, build: Callable[[Path], Path]) -> ctypes.CDLL:
    """The library with this key, built if it is not cached, and loaded once per process."""
    with _lock:
        loaded = _loaded.get(key)
    if loaded is not None:
        return loaded
    path = cache.library(key, build)
    with _lock:
        if key not in _loaded:
            try:
                _loaded[key] = ctypes.CDLL(str(path))
            except OSError as error:
                raise DeviceError(f"compiled code could not be loaded: {error}") from None
        return _loaded[key]


def address_of(function: Any) -> int:
    """The address of a function of a loaded library."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0
