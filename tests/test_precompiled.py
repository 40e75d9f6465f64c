"""Heads of sources: precompiled when they are used again, by each kind of compiler, and read where that fails."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path

import pytest

from ostinato.native import toolchain
from ostinato.native.building import BASE_FLAGS, compile_flags, link_flags
from ostinato.native.precompiled import source_with_head

HEAD = "#include <stdint.h>\n#define DOUBLED 2\ninline int32_t twice(int32_t x) { return x * DOUBLED; }\n"


@pytest.fixture(params=["found", "clang"])
def compiler(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> toolchain.Toolchain:
    """The compiler that the path names, and clang, with an empty cache."""
    compiler = toolchain.find() if request.param == "found" else toolchain.find_clang()
    monkeypatch.setenv("OSTINATO_CACHE_DIR", str(tmp_path / "cache"))
    return compiler or pytest.skip("there is no clang")


def _arguments(compiler: toolchain.Toolchain, number: int, tmp_path: Path) -> list[str]:
    work = tmp_path / f"work{number}"
    work.mkdir()
    rest = f'extern "C" __attribute__((visibility("default"))) int32_t f() {{ return twice({number}); }}\n'
    return source_with_head(compiler, HEAD, rest, compile_flags(compiler, BASE_FLAGS), (), work)


def _heads(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "cache").glob("head-*"))


def test_a_head_is_precompiled_when_it_is_used_again(compiler: toolchain.Toolchain, tmp_path: Path) -> None:
    assert len(_arguments(compiler, 0, tmp_path)) == 1
    assert not _heads(tmp_path)
    for number in (1, 2):
        option, _, source = arguments = _arguments(compiler, number, tmp_path)
        assert option.startswith("-include")
        assert HEAD not in Path(source).read_text()
        assert len(_heads(tmp_path)) == 1
        # zig would first build a library to link with.
        work = Path(source).parent
        compiled = compiler.run([*compile_flags(compiler, BASE_FLAGS), "-c", *arguments], work)
        assert compiled.returncode == 0, compiled.stderr
        linked = toolchain.find().link(["kernels.o", *link_flags("-nostartfiles"), "-o", "product.so"], work)
        assert linked.returncode == 0, linked.stderr
        assert ctypes.CDLL(str(work / "product.so")).f() == 2 * number


def test_a_compiler_that_cannot_precompile_reads_the_whole_text(compiler: toolchain.Toolchain, tmp_path: Path) -> None:
    refusing = replace(compiler, command=("false",))
    for number in range(3):
        (source,) = _arguments(refusing, number, tmp_path)
        assert Path(source).read_text().startswith(HEAD)
    assert not _heads(tmp_path)
