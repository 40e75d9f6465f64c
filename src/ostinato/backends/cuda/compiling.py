"""NVRTC: machine code for one architecture from translated source, cached."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...base import cache
from ...base.extras import install_command
from ...errors import DeviceUnavailable, Diagnostic, KernelCompileError
from ...msl.columns import near_token
from ...version import __version__

_INCLUDE = Path(__file__).parents[2] / "msl" / "include"
_ERROR = re.compile(
    r"^(?P<file>.+?)\((?P<line>\d+)\): (?:catastrophic )?error(?: #[^:]*)?: (?P<message>.*)$", re.MULTILINE
)
_CARET = re.compile(r"^(?P<line>.*)\n(?P<indent> *)\^[ \t]*$", re.MULTILINE)
_INSTANTIATED = re.compile(r"at line (?P<line>\d+) of (?P<file>.+)$", re.MULTILINE)


@lru_cache(maxsize=1)
def nvrtc() -> Any:
    """The compiler; raises `DeviceUnavailable` with the reason when there is none."""
    try:
        from cuda.bindings import nvrtc as compiler
    except ImportError as error:
        raise DeviceUnavailable(f"cuda: {error}; {install_command('cuda')} brings what is missing") from None
    try:
        status, *_ = compiler.nvrtcVersion()
    except Exception as error:  # the loader's own kinds of errors, by version
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DeviceUnavailable(
            f"cuda: the compiler library NVRTC is missing ({reason}); {install_command('cuda')}"
        ) from None
    if int(status):
        raise DeviceUnavailable(f"cuda: NVRTC does not work: error {int(status)}")
    return compiler


def version() -> tuple[int, int]:
    """Major and minor version of the compiler."""
    _, major, minor = nvrtc().nvrtcVersion()
    return major, minor


@lru_cache(maxsize=1)
def _headers_digest() -> str:
    files = sorted(_INCLUDE.rglob("*.h"))
    return cache.digest(*(part for file in files for part in (file.name, file.read_bytes())))


def cubin(text: str, flags: Sequence[str]) -> bytes:
    """Machine code of a CUDA C++ text."""
    named = (flag for flag in flags if not flag.startswith("--include-path="))  # the digest covers the headers
    key = cache.digest("cubin", __version__, str(version()), *named, _headers_digest(), text)

    def build(work: Path) -> Path:
        product = work / "kernels.cubin"
        product.write_bytes(_compile(text, flags))
        return product

    return cache.library(key, build).read_bytes()


def _compile(text: str, flags: Sequence[str]) -> bytes:
    compiler = nvrtc()
    status, program = compiler.nvrtcCreateProgram(text.encode(), b"kernels.cu", 0, [], [])
    if int(status):
        raise KernelCompileError(f"NVRTC does not accept the source: error {int(status)}")
    try:
        encoded = [flag.encode() for flag in flags]
        (status,) = compiler.nvrtcCompileProgram(program, len(encoded), encoded)
        if int(status):
            raise _failure(
                _text(compiler.nvrtcGetProgramLogSize, compiler.nvrtcGetProgramLog, program).decode(errors="replace")
            )
        return _text(compiler.nvrtcGetCUBINSize, compiler.nvrtcGetCUBIN, program)
    finally:
        compiler.nvrtcDestroyProgram(program)


def _text(size_of: Any, get: Any, program: Any) -> bytes:
    contents = bytearray(size_of(program)[1])  # written to, which bytes must not be
    get(program, contents)
    return bytes(contents)


def _failure(log: str) -> KernelCompileError:
    errors = list(_ERROR.finditer(log))
    if not errors:
        return KernelCompileError("the kernels could not be compiled for this device", details=log.strip("\0\n "))
    ends = [*(error.start() for error in errors[1:]), len(log)]
    listed = [_diagnostic(error, log[error.end() : end]) for error, end in zip(errors, ends, strict=True)]
    return KernelCompileError.of(list(dict.fromkeys(listed)), log.strip("\0\n "))


def _diagnostic(error: re.Match[str], after: str) -> Diagnostic:
    """One error, with the text that NVRTC prints after it: the line, a caret, and where templates were instantiated."""
    if not error["file"].startswith(str(_INCLUDE)):
        shown = _CARET.search(after)
        near = near_token(shown["line"], len(shown["indent"]) + 1) if shown else None
        return Diagnostic(error["message"], error["file"], int(error["line"]), near=near)
    for place in _INSTANTIATED.finditer(after):
        if not place["file"].startswith(str(_INCLUDE)):
            return Diagnostic(error["message"], place["file"], int(place["line"]))
    return Diagnostic(error["message"])
