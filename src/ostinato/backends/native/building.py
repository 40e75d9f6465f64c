"""Building and loading the machine code of the CPU backend: the runtime, and the libraries of kernels.

Both go through the cache, keyed by everything that went into them, and are loaded once per process. Code is never
unloaded: kernels may outlive whoever asked for them.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...base import cache
from ...base.locks import ForkLock
from ...errors import DeviceError, KernelCompileError, ToolchainError
from ...version import __version__
from . import toolchain
from .binary import foreign_functions, load_time_code, startup_sections

if TYPE_CHECKING:
    from ...msl import Translation

_RUNTIME = Path(__file__).parents[1] / "cpu" / "runtime"
_INCLUDE = Path(__file__).parents[2] / "msl" / "include"

_BASE_FLAGS = ("-std=c++17", "-fPIC", "-fno-exceptions", "-fno-rtti", "-fvisibility=hidden", "-w")
_KERNEL_FLAGS = (
    *_BASE_FLAGS,
    "-O3",
    # Real shaders read one type's bytes through pointers to another.
    "-fno-strict-aliasing",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
)
# One access of the source is one access of the machine, as far as a compiler allows, in the order they are written.
_CHECKED_FLAGS = tuple("-O1" if flag == "-O3" else flag for flag in _KERNEL_FLAGS)
_RUNTIME_FLAGS = (*_BASE_FLAGS, "-O2", "-pthread")

_lock = ForkLock()
_loaded: dict[str, ctypes.CDLL] = {}


def _compile_flags(compiler: toolchain.Toolchain, flags: tuple[str, ...]) -> tuple[str, ...]:
    # zig checks for undefined behaviour unless told not to, and links no C++ library that could guard static variables.
    # What a kernel wants checked comes after that.
    first = ("-fno-sanitize=all", "-fno-threadsafe-statics") if compiler.is_zig else ()
    return (*first, *flags, *compiler.tuning, *compiler.stacks)


def _link_flags(*flags: str) -> tuple[str, ...]:
    # Undefined names are found by the linker, with a message, and not when the library is loaded.
    strict = () if sys.platform == "darwin" else ("-Wl,-z,defs",)
    # The level matters to zig only, which builds what it links against: 4 s at -O2, 17 s without.
    return ("-shared", "-O2", *strict, *flags, "-lm")


@lru_cache(maxsize=1)
def _interface_digest() -> str:
    """Everything a kernel is compiled against: the shim and the runtime's headers."""
    files = sorted((*_INCLUDE.rglob("*.h"), *_RUNTIME.glob("*.h")))
    return cache.digest(*(part for file in files for part in (file.name, file.read_bytes())))


def kernel_library(compiler: toolchain.Toolchain, translation: Translation, checked: bool) -> ctypes.CDLL:
    """The compiled kernels of a translation; checked, they are made for finding faults and not for speed."""
    flags = _compile_flags(compiler, (*(_CHECKED_FLAGS if checked else _KERNEL_FLAGS), *compiler.semantics))
    linking = _link_flags("-nostartfiles")
    key = cache.digest(
        "kernels", __version__, compiler.identity, *flags, *linking, _interface_digest(), translation.text
    )

    def build(work: Path) -> Path:
        source = work / "kernels.cpp"
        source.write_text(translation.text, encoding="utf-8")
        folders = ("-I", str(_INCLUDE), "-I", str(_RUNTIME))
        product = toolchain.compile_library(compiler, [source], [*flags, *folders], linking, work, (_INCLUDE, _RUNTIME))
        try:
            image = product.read_bytes()
            found, foreign = load_time_code(image, _startup_of(compiler, linking)), foreign_functions(image)
        except ValueError as error:
            raise ToolchainError(f"{compiler.command[0]} made something that cannot be loaded: {error}") from None
        if found is not None:
            raise KernelCompileError(f"the compiled kernels contain code that would run when they are loaded: {found}")
        if foreign:
            raise KernelCompileError(f"the kernels call {foreign[0]!r}, which is no function of theirs")
        return product

    from ...msl.columns import follow_columns  # the front end made the translation, so it is loaded

    try:
        return _load(key, build)
    except KernelCompileError as error:
        follow_columns(error, translation.text)
        if error.file is not None or not translation.kernels:
            raise
        first = next(iter(translation.kernels.values()))
        raise KernelCompileError(error.message, first.file, first.line, error.details) from None


def _startup_of(compiler: toolchain.Toolchain, linking: tuple[str, ...]) -> dict[str, int]:
    """What this linker puts into every library; nothing, except with zig, which has no way to leave it out."""
    if not compiler.is_zig:
        return {}

    def find() -> str:
        with cache.work_folder() as work:
            empty = work / "empty.cpp"
            empty.write_text("")
            product = toolchain.compile_library(compiler, [empty], _compile_flags(compiler, _BASE_FLAGS), linking, work)
            return json.dumps(startup_sections(product.read_bytes()))

    known = json.loads(cache.note(f"startup-{cache.digest(compiler.identity, *linking)}", find))
    return {str(name): int(size) for name, size in known.items()}


def runtime_library(compiler: toolchain.Toolchain) -> ctypes.CDLL:
    """The compiled runtime."""
    flags = _compile_flags(compiler, _RUNTIME_FLAGS)
    linking = _link_flags("-pthread")
    sources = sorted(_RUNTIME.glob("*.cpp"))
    contents = [part for file in sources for part in (file.name, file.read_bytes())]
    key = cache.digest("runtime", __version__, compiler.identity, *flags, *linking, _interface_digest(), *contents)

    def build(work: Path) -> Path:
        try:
            return toolchain.compile_library(compiler, sources, [*flags, "-I", str(_RUNTIME)], linking, work)
        except KernelCompileError as error:
            raise DeviceError(f"the CPU runtime could not be built: {error}\n{error.details}") from None

    return _load(key, build)


def host_library(name: str, sources: Sequence[Path], linking: tuple[str, ...] = ()) -> ctypes.CDLL:
    """Native code of another backend that runs on the host, compiled with the machine's compiler."""
    compiler = toolchain.find()
    flags, linked = _compile_flags(compiler, _RUNTIME_FLAGS), _link_flags("-pthread", *linking)
    contents = [part for file in sources for part in (file.name, file.read_bytes())]
    key = cache.digest(name, __version__, compiler.identity, *flags, *linked, *contents)

    def build(work: Path) -> Path:
        try:
            return toolchain.compile_library(compiler, list(sources), list(flags), linked, work)
        except KernelCompileError as error:
            raise DeviceError(f"{name} could not be built: {error}\n{error.details}") from None

    return _load(key, build)


def _load(key: str, build: Any) -> ctypes.CDLL:
    """Load a library once per process."""
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
