"""The beginning that many sources share, compiled once and kept in the cache: a precompiled header.

Every kernel begins with the shim, which takes a compiler longer to read than most kernels take to compile. A
precompiled header saves that time and decides nothing else: where one cannot be made or used, the compiler reads the
whole text.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..base import cache
from ..errors import OstinatoError, ToolchainError
from . import toolchain

_HEADER = "head.h"
# One takes 12 to 15 MiB and the time of two kernels, and differs with the swizzles that a source uses.
_USES_BEFORE = 2

_accepted: set[str] = set()
"""Keys of heads that their compiler has taken in this process."""
_refused: set[str] = set()
"""Keys of heads that could not be made or used in this process; the next one tries again, as a disk may be full."""


def source_with_head(
    compiler: toolchain.Toolchain, head: str, rest: str, flags: Sequence[str], made_from: Sequence[str], work: Path
) -> list[str]:
    """Arguments that make the compiler read `head + rest`; files are written to the work folder.

    `flags` must be those of the compilation, and `made_from` change with what the head includes. A head is precompiled
    when it is used for the third time. A compiler that cannot precompile it, or does not take it, reads the whole
    text.
    """
    # The flags name the folders of headers, to which a precompiled header refers; it refers to the cache as well.
    made_from = (compiler.identity, *flags, *made_from, str(cache.folder()), head)
    key = f"head-{cache.digest(*made_from)}"
    inclusion: tuple[str, ...] = ()
    if key not in _refused:
        try:
            if _is_used_often(key):
                inclusion = _inclusion(compiler, head, flags, key, work)
        except (OstinatoError, OSError):
            _refused.add(key)
    source = work / "kernels.cpp"
    source.write_text(rest if inclusion else head + rest, encoding="utf-8")
    return [*inclusion, str(source)]


def _inclusion(compiler: toolchain.Toolchain, head: str, flags: Sequence[str], key: str, work: Path) -> tuple[str, ...]:
    """Arguments that include the precompiled head, which the compiler has taken in this process."""
    # clang looks for the header again, so it is written for every use.
    header = cache.text_file(_HEADER, head.encode())
    for _ in range(2):
        # Built while a library is locked: the key of a head has a lock of its own.
        path = cache.library(key, lambda folder: _precompiled(compiler, header, flags, folder))
        arguments = _arguments(compiler, head, path, work)
        if key in _accepted or _accepts(compiler, [*flags, *arguments], work):
            _accepted.add(key)
            return arguments
        # A header of the system has changed, say: a fresh one may be taken.
        path.unlink(missing_ok=True)
    raise ToolchainError(f"{compiler.command[0]} does not take the header that it has precompiled")


def _is_used_often(key: str) -> bool:
    """Whether the head was used before often enough; each of those uses leaves a mark in a note."""
    marks = cache.note(key, str)
    if len(marks) >= _USES_BEFORE:
        return True
    cache.note(key, lambda: f"{marks}|", anew=True)
    return False


def _arguments(compiler: toolchain.Toolchain, head: str, precompiled: Path, work: Path) -> tuple[str, str]:
    if compiler.clang_version:
        return "-include-pch", str(precompiled)
    # g++ takes the precompiled file beside this one, or reads this one.
    header = work / _HEADER
    header.write_text(head, encoding="utf-8")
    beside = header.with_name(f"{_HEADER}.gch")
    beside.unlink(missing_ok=True)
    beside.symlink_to(precompiled)
    return "-include", str(header)


def _accepts(compiler: toolchain.Toolchain, arguments: Sequence[str], work: Path) -> bool:
    """Whether the compiler compiles an empty source with these arguments."""
    empty = work / "empty.cpp"
    empty.write_text("")
    # With -fsyntax-only zig would build its C++ library.
    tried = work / "empty.tried"
    accepted = compiler.run([*arguments, "-c", str(empty), "-o", str(tried)], work).returncode == 0
    tried.unlink(missing_ok=True)
    return accepted


def _precompiled(compiler: toolchain.Toolchain, header: Path, flags: Sequence[str], work: Path) -> Path:
    product = work / f"{_HEADER}.gch"
    # Times of files say nothing that the key does not say better.
    lasting = ("-Xclang", "-fno-pch-timestamp") if compiler.clang_version else ()
    result = compiler.run([*flags, *lasting, "-x", "c++-header", str(header), "-o", str(product)], work)
    if result.returncode != 0 or not product.exists():
        raise toolchain.compile_error(result.stderr + result.stdout, result.returncode, work)
    return product
