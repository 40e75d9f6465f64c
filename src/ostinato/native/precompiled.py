"""The beginning that many sources share, compiled once and kept in the cache: a precompiled header.

Every kernel begins with the shim, which takes a compiler longer to read than most kernels take to compile. A
precompiled header saves that time and decides nothing else: where one cannot be made or used, the compiler reads the
whole text.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from ..base import cache
from ..errors import OstinatoError
from . import toolchain

_HEADER = "head.h"

_accepted: set[str] = set()
"""Keys of heads that their compiler has taken in this process."""


def source_with_head(
    compiler: toolchain.Toolchain, head: str, rest: str, flags: Sequence[str], made_from: Sequence[str], work: Path
) -> list[str]:
    """Arguments that make the compiler read `head + rest`; files are written to the work folder.

    `flags` must be those of the compilation, and `made_from` change with what the head includes. A head is precompiled
    when it is used for the second time. A compiler that cannot precompile it, or does not take it, reads the whole
    text.
    """
    source = work / "kernels.cpp"
    inclusion: tuple[str, ...] = ()
    # Whatever fails for the text as well fails again below.
    with contextlib.suppress(OstinatoError, OSError):
        inclusion = _inclusion(compiler, head, flags, made_from, work)
    source.write_text(rest if inclusion else head + rest, encoding="utf-8")
    return [*inclusion, str(source)]


def _inclusion(
    compiler: toolchain.Toolchain, head: str, flags: Sequence[str], made_from: Sequence[str], work: Path
) -> tuple[str, ...]:
    """Arguments that include the precompiled head; none if it is not to be used."""
    # clang looks for the header again, at the same path.
    header = cache.text_file(_HEADER, head.encode())
    # The flags name the folders of headers, to which a precompiled header refers.
    key = f"head-{cache.digest(compiler.identity, *flags, *made_from, str(header), head)}"
    if not _seen_before(key):
        return ()
    for _ in range(2):
        # Built while a library is locked: the key of a head has a lock of its own.
        path = cache.library(key, lambda folder: _precompiled(compiler, header, flags, folder))
        arguments = _arguments(compiler, head, path, work)
        if key in _accepted or _accepts(compiler, [*flags, *arguments], work):
            _accepted.add(key)
            return arguments
        # A header of the system has changed, say: a fresh one may be taken.
        path.unlink(missing_ok=True)
    return ()


def _seen_before(key: str) -> bool:
    first: list[str] = []

    def remember() -> str:
        first.append(key)
        return "seen"

    cache.note(key, remember)
    return not first


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
