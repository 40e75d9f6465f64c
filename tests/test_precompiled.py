"""Heads of sources: precompiled when they are used often, by each kind of compiler, and read where that fails."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ostinato.base import cache
from ostinato.errors import CacheError
from ostinato.native import precompiled, toolchain
from ostinato.native.building import BASE_FLAGS, compile_flags, link_flags
from ostinato.native.precompiled import source_with_head

HEAD = '#include <stdint.h>\n#include "two.h"\ninline int32_t twice(int32_t x) { return x * TWO; }\n'


@pytest.fixture(params=["found", "clang"])
def compiler(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> toolchain.Toolchain:
    """The compiler that the path names, and clang, with an empty cache."""
    compiler = toolchain.find() if request.param == "found" else toolchain.find_clang()
    monkeypatch.setenv("OSTINATO_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "two.h").write_text("#define TWO 2\n")
    return compiler or pytest.skip("there is no clang")


def _flags(compiler: toolchain.Toolchain, tmp_path: Path) -> list[str]:
    return [*compile_flags(compiler, BASE_FLAGS), "-I", str(tmp_path)]


def _arguments(compiler: toolchain.Toolchain, number: int, tmp_path: Path) -> list[str]:
    work = tmp_path / f"work{number}"
    work.mkdir()
    rest = f'extern "C" __attribute__((visibility("default"))) int32_t f() {{ return twice({number}); }}\n'
    return source_with_head(compiler, HEAD, rest, _flags(compiler, tmp_path), (), work)


def _compile(compiler: toolchain.Toolchain, arguments: list[str], tmp_path: Path) -> Path:
    """The work folder, with the object."""
    # zig would first build a library to link with.
    work = Path(arguments[-1]).parent
    compiled = compiler.run([*_flags(compiler, tmp_path), "-c", *arguments], work)
    assert compiled.returncode == 0, compiled.stderr
    return work


def _heads(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "cache").glob("head-*"))


def test_a_head_is_precompiled_at_its_third_use(compiler: toolchain.Toolchain, tmp_path: Path) -> None:
    for number in (0, 1):
        assert len(_arguments(compiler, number, tmp_path)) == 1
    assert not _heads(tmp_path)
    for number in (2, 3):
        option, _, source = arguments = _arguments(compiler, number, tmp_path)
        assert option.startswith("-include")
        assert HEAD not in Path(source).read_text()
        assert len(_heads(tmp_path)) == 1
        work = _compile(compiler, arguments, tmp_path)
        linked = toolchain.find().link(["kernels.o", *link_flags("-nostartfiles"), "-o", "product.so"], work)
        assert linked.returncode == 0, linked.stderr
        assert ctypes.CDLL(str(work / "product.so")).f() == 2 * number


def test_a_compiler_that_cannot_precompile_reads_the_whole_text(
    compiler: toolchain.Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[Path] = []

    def refuse(compiler: toolchain.Toolchain, arguments: list[str], work: Path) -> subprocess.CompletedProcess[str]:
        tries.append(work)
        return subprocess.CompletedProcess(arguments, 1, "", "")

    monkeypatch.setattr(toolchain.Toolchain, "run", refuse)
    for number in range(4):
        (source,) = _arguments(compiler, number, tmp_path)
        assert Path(source).read_text().startswith(HEAD)
    assert not _heads(tmp_path)
    assert len(tries) == 1


def _lose_the_text(tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "cache" / "sources")


def _lose_the_precompiled(tmp_path: Path) -> None:
    (head,) = _heads(tmp_path)
    shutil.rmtree(head)


def _change_an_included_header(tmp_path: Path) -> None:
    (tmp_path / "two.h").write_text("#define TWO 2 // by an update of the system\n")
    precompiled._accepted.clear()  # as in the next process


@pytest.mark.parametrize("change", [_lose_the_text, _lose_the_precompiled, _change_an_included_header])
def test_a_head_is_mended_where_it_cannot_be_used(
    compiler: toolchain.Toolchain, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    for number in range(3):
        _arguments(compiler, number, tmp_path)
    change(tmp_path)
    arguments = _arguments(compiler, 3, tmp_path)
    assert len(arguments) == 3
    _compile(compiler, arguments, tmp_path)


def test_a_head_in_a_cache_that_was_moved_is_not_used(
    compiler: toolchain.Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        _arguments(compiler, number, tmp_path)
    (tmp_path / "cache").rename(tmp_path / "moved")
    monkeypatch.setenv("OSTINATO_CACHE_DIR", str(tmp_path / "moved"))
    for number in range(3, 6):
        _compile(compiler, _arguments(compiler, number, tmp_path), tmp_path)


def test_the_whole_text_is_read_where_a_head_is_never_accepted(
    compiler: toolchain.Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[object] = []

    def refuse(*arguments: object) -> bool:
        tries.append(arguments)
        return False

    monkeypatch.setattr(precompiled, "_accepts", refuse)
    for number in range(4):
        (source,) = _arguments(compiler, number, tmp_path)
        assert Path(source).read_text().startswith(HEAD)
    assert len(tries) == 2


def test_the_whole_text_is_read_where_the_cache_takes_no_head(
    compiler: toolchain.Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> Path:
        raise CacheError("no space left")

    monkeypatch.setattr(cache, "library", full)
    for number in range(3):
        (source,) = _arguments(compiler, number, tmp_path)
        assert Path(source).read_text().startswith(HEAD)
