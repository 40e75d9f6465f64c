"""Native code that uses the interpreter's own interface: built and cached as any, loaded as a module.

It needs CPython and its headers, which many systems have in a package of their own. Where they are missing, or the code
does not compile, there is no such module, and its users do without.
"""

from __future__ import annotations

import sys
import sysconfig
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from ..base import cache
from ..errors import OstinatoError
from ..version import __version__
from . import toolchain
from .building import LIBRARY_FLAGS, compile_flags


def extension(name: str, source: Path) -> ModuleType | None:
    """The module of this name made from a C++ source and the headers beside it; None where it cannot be built."""
    headers = Path(sysconfig.get_paths()["include"])
    free_threaded = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    if sys.implementation.name != "cpython" or free_threaded or not (headers / "Python.h").exists():
        return None
    try:
        path = _built(name, source, headers)
        spec = spec_from_file_location(name, path, loader=ExtensionFileLoader(name, str(path)))
        assert spec is not None
        module = module_from_spec(spec)
        assert spec.loader is not None
        spec.loader.exec_module(module)
    except (OstinatoError, ImportError):
        return None
    return module


def _built(name: str, source: Path, headers: Path) -> Path:
    compiler = toolchain.find()
    flags = (*compile_flags(compiler, LIBRARY_FLAGS), "-fno-strict-aliasing", "-I", str(headers))
    # The interpreter has the functions of its interface; they are found when the module is loaded.
    linked = ("-shared", "-O2", *(("-undefined", "dynamic_lookup") if sys.platform == "darwin" else ()))
    patch_level = (headers / "patchlevel.h").read_bytes()
    contents = [file.read_bytes() for file in (source, *sorted(source.parent.glob("*.h")))]
    key = cache.digest(name, __version__, compiler.identity, *flags, *linked, sys.version, patch_level, *contents)
    return cache.library(key, lambda work: toolchain.compile_library(compiler, [str(source)], flags, linked, work))
