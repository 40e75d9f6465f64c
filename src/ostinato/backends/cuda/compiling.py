"""NVRTC: machine code for one architecture from translated source, cached.

Of programs with simdgroup matrices NVRTC's PTX is taken, their products are joined, and the driver makes machine code
of that.
"""

from __future__ import annotations

import ctypes
import re
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...base import cache
from ...base.extras import install_command
from ...errors import DeviceError, DeviceUnavailable, Diagnostic, KernelCompileError, OstinatoWarning
from ...msl.cuda_entry import NAMESPACE
from ...msl.cuda_target import MATRICES
from ...version import __version__
from .ptx import joining

_INCLUDE = Path(__file__).parents[2] / "msl" / "include"
_PASSES = Path(__file__).with_name("ptx")
UNROLLING_S = 10.0
"""Processor time for a kernel with loops that are unrolled as the source asks; nests of them may become megabytes."""
_UNROLLING = re.compile(r'_Pragma\("unroll"\)')
_FLOW = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_MESSAGE = re.compile(
    r"^(?P<file>\S.*?)\((?P<line>\d+)\): (?:catastrophic )?"
    r"(?P<kind>error|warning|note|remark)(?: #[^:]*)?: (?P<text>.*)$",
    re.MULTILINE,
)
_SHOWN = re.compile(r"^  .*\n  (?P<indent>[ \t]*)\^[ \t]*$", re.MULTILINE)
_INSTANTIATED = re.compile(r"(?P<text>instantiation of .*) at line (?P<line>\d+)(?: of (?P<file>.+))?$", re.MULTILINE)


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
    files = [*sorted(_INCLUDE.rglob("*.h")), *sorted(_PASSES.glob("*.py"))]
    return cache.digest(*(part for file in files for part in (file.name, file.read_bytes())))


def cubin(text: str, flags: Sequence[str], assemble: Callable[[str], bytes] | None = None) -> bytes:
    """Machine code of a CUDA C++ text. `assemble` makes it of PTX; without it no products are joined."""
    named = (flag for flag in flags if not flag.startswith("--include-path="))  # the digest covers the headers
    joins = "joined" if assemble else ""
    key = cache.digest("cubin", __version__, str(version()), joins, *named, _headers_digest(), text)

    def build(work: Path) -> Path:
        product = work / "kernels.cubin"
        product.write_bytes(_compile(text, flags, assemble))
        return product

    return cache.library(key, build).read_bytes()


def _compile(text: str, flags: Sequence[str], assemble: Callable[[str], bytes] | None = None) -> bytes:
    """Machine code; without the unrolling that the source asks for if that takes too long."""
    rolled = _UNROLLING.sub("", text)
    if rolled != text:
        code = _compiled(text, flags, assemble, UNROLLING_S * text.count("__global__"))
        if code is not None:
            return code
    code = _compiled(rolled, flags, assemble)
    assert code is not None
    return code


def _compiled(
    text: str, flags: Sequence[str], assemble: Callable[[str], bytes] | None, limit_s: float | None = None
) -> bytes | None:
    """Machine code; None if it takes more processor time than a limit."""
    compiler = nvrtc()
    status, program = compiler.nvrtcCreateProgram(text.encode(), b"kernels.cu", 0, [], [])
    if int(status):
        raise KernelCompileError(f"NVRTC does not accept the source: error {int(status)}")
    try:
        until_s = time.thread_time() + (limit_s or 0.0)
        is_over = _FLOW(lambda *_: time.thread_time() > until_s)  # NVRTC asks it in this thread, again and again
        if limit_s is not None:
            compiler.nvrtcSetFlowCallback(program, ctypes.cast(is_over, ctypes.c_void_p).value, 0)
        encoded = [flag.encode() for flag in flags]
        (status,) = compiler.nvrtcCompileProgram(program, len(encoded), encoded)
        if limit_s is not None and status == compiler.nvrtcResult.NVRTC_ERROR_CANCELLED:
            return None
        if int(status):
            raise _failure(
                _text(compiler.nvrtcGetProgramLogSize, compiler.nvrtcGetProgramLog, program).decode(errors="replace")
            )
        if assemble is not None and f"#define {MATRICES}" in text:
            ptx = _text(compiler.nvrtcGetPTXSize, compiler.nvrtcGetPTX, program).decode().strip("\0")
            if joining.has_tiles(ptx):
                try:
                    return assemble(joining.joined(ptx))
                except DeviceError as error:
                    reason = f"the driver does not assemble joined products of simdgroup matrices ({error})"
                    warnings.warn(f"{reason}; they stay 8 × 8, which is slower", OstinatoWarning, stacklevel=2)
        return _text(compiler.nvrtcGetCUBINSize, compiler.nvrtcGetCUBIN, program)
    finally:
        compiler.nvrtcDestroyProgram(program)


def _text(size_of: Any, get: Any, program: Any) -> bytes:
    contents = bytearray(size_of(program)[1])  # written to, which bytes must not be
    get(program, contents)
    return bytes(contents)


def _failure(log: str) -> KernelCompileError:
    log = log.strip("\0\n ")
    errors = _read_errors(log.replace(f"{NAMESPACE}::", ""))
    if not errors:
        said = f": {log.splitlines()[0]}" if log else ""
        return KernelCompileError(f"the kernels could not be compiled for this device{said}", details=log)
    return KernelCompileError.of(errors, log)


def _read_errors(log: str) -> list[Diagnostic]:
    """The errors, placed in the text that was compiled; their notes begin with where templates were instantiated."""
    errors: list[Diagnostic] = []
    takes_notes = False
    messages = list(_MESSAGE.finditer(log))
    if not messages:  # a linker's words have no place in the text
        return []
    ends = [*(message.start() for message in messages[1:]), len(log)]
    for message, end in zip(messages, ends, strict=True):
        diagnostic = _diagnostic(message, log[message.end() : end])
        if message["kind"] == "note":
            if takes_notes:
                # After the last note stands where templates were instantiated for the error.
                notes = (*errors[-1].notes, replace(diagnostic, notes=()), *diagnostic.notes)
                errors[-1] = replace(errors[-1], notes=notes)
        else:
            takes_notes = message["kind"] == "error"
            if takes_notes:
                errors.append(diagnostic)
    return errors


def _diagnostic(message: re.Match[str], after: str) -> Diagnostic:
    """One message, with the text that NVRTC prints after it.

    That is the rest of the message, the line with a caret (which counts bytes), and where templates were instantiated.
    """
    shown = _SHOWN.search(after)
    rest = " ".join(after[: shown.start()].split()) if shown else ""
    column = len(shown["indent"]) + 1 if shown else None
    notes = [
        Diagnostic(place["text"], place["file"] or message["file"], int(place["line"]))
        for place in _INSTANTIATED.finditer(after)
    ]
    text = f"{message['text']}; {rest}" if rest else message["text"]
    return Diagnostic(text, message["file"], int(message["line"]), column, notes=tuple(notes))
