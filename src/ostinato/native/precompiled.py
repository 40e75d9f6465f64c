"""The beginning that many sources share, compiled once and kept in the cache: a precompiled header.

Every kernel begins with the shim, which takes a compiler longer to read than most kernels take to compile.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from ..base import cache
from ..errors import KernelCompileError
from . import toolchain

_HEADER = "head.h"


def source_with_head(
    compiler: toolchain.Toolchain, head: str, rest: str, flags: Sequence[str], made_from: Sequence[str], work: Path
) -> list[str]:
    """Arguments that make the compiler read `head + rest`; files are written to the work folder.

    `flags` must be those of the compilation, and `made_from` change with what the head includes. A head is precompiled
    when it is used for the second time. A compiler that cannot precompile it reads the whole text.
    """
    # The flags name the folders of headers, to which a precompiled header refers.
    key = f"head-{cache.digest(compiler.identity, *flags, *made_from, head)}"
    source = work / "kernels.cpp"
    if _seen_before(key):
        with contextlib.suppress(KernelCompileError):
            # Built while a library is locked: the key of a head has a lock of its own.
            path = cache.library(key, lambda folder: _precompiled(compiler, head, flags, folder))
            source.write_text(rest, encoding="utf-8")
            return [*_inclusion(compiler, head, path, work), str(source)]
    source.write_text(head + rest, encoding="utf-8")
    return [str(source)]


def _seen_before(key: str) -> bool:
    first: list[str] = []

    def remember() -> str:
        first.append(key)
        return "seen"

    cache.note(key, remember)
    return not first


def _inclusion(compiler: toolchain.Toolchain, head: str, precompiled: Path, work: Path) -> tuple[str, str]:
    if compiler.clang_version:
        return "-include-pch", str(precompiled)
    # g++ takes the precompiled file beside this one, or reads this one.
    header = work / _HEADER
    header.write_text(head, encoding="utf-8")
    header.with_name(f"{_HEADER}.gch").symlink_to(precompiled)
    return "-include", str(header)


def _precompiled(compiler: toolchain.Toolchain, head: str, flags: Sequence[str], work: Path) -> Path:
    product = work / f"{_HEADER}.gch"
    # clang looks for the header again, which has to stay; times of files say nothing that the key does not say better.
    header = cache.text_file(_HEADER, head.encode())
    lasting = ("-Xclang", "-fno-pch-timestamp") if compiler.clang_version else ()
    result = compiler.run([*flags, *lasting, "-x", "c++-header", str(header), "-o", str(product)], work)
    if result.returncode != 0 or not product.exists():
        raise toolchain.compile_error(result.stderr + result.stdout, result.returncode, work)
    return product
