"""The cache: private, verified, whole, and shared by processes that all compile at once."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ostinato as ost
from ostinato.base import cache
from scripting import Script, run_script

RUN = """
dev = ost.open_device("cpu", workers=1)
x = dev.zeros(4, np.float32)
source = "kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = %s; }" % sys.argv[1]
enc = dev.command_encoder()
enc.dispatch(dev.library(source)["k"], x, threads=4)
enc.commit_and_wait()
print(x.numpy().tolist())
"""


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("OSTINATO_CACHE_DIR", str(folder))
    return folder


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `RUN` leaves in a cache."""
    folder = tmp_path_factory.mktemp("compiled") / "cache"
    result = run_script(RUN, "1.0f", OSTINATO_CACHE_DIR=str(folder))
    assert result.stdout == "[1.0, 1.0, 1.0, 1.0]\n", result.stderr
    return folder


@pytest.fixture
def filled_cache(own_cache: Path, compiled: Path) -> Path:
    """A cache of its own in which `RUN` finds all that it needs."""
    shutil.copytree(compiled, own_cache)
    return own_cache


def libraries(folder: Path) -> dict[Path, bytes]:
    """The libraries by their paths, the largest first: the runtime."""
    paths = [path for path in folder.glob("*/library.so") if not path.parent.name.startswith("head-")]
    return {path: path.read_bytes() for path in sorted(paths, key=lambda path: -path.stat().st_size)}


def test_the_folder_is_made_private(compiled: Path) -> None:
    assert compiled.stat().st_mode & 0o777 == 0o700
    assert len(libraries(compiled)) == 2, "the runtime and the kernels"
    assert not list(compiled.glob("work-*")), "work folders are removed"
    for path, image in libraries(compiled).items():
        manifest = json.loads((path.parent / "manifest.json").read_text())
        assert manifest["sha256"] == hashlib.sha256(image).hexdigest()


def test_the_second_process_compiles_nothing(filled_cache: Path, script: Script) -> None:
    stamps = {path: path.stat().st_mtime_ns for path in filled_cache.rglob("*.so")}
    no_compile = """
from ostinato.native import toolchain
def refuse(*a, **k): raise SystemExit("compiled again")
toolchain.compile_library = refuse
"""
    result = script(no_compile + RUN, "1.0f")
    assert result.stdout == "[1.0, 1.0, 1.0, 1.0]\n", result.stderr
    assert {path: path.stat().st_mtime_ns for path in filled_cache.rglob("*.so")} == stamps


def test_ten_processes_at_once(own_cache: Path, tmp_path: Path) -> None:
    program = tmp_path / "run.py"
    program.write_text("import sys\nimport numpy as np, ostinato as ost\n" + RUN)
    children = [
        subprocess.Popen(
            [sys.executable, str(program), "3.0f"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(10)
    ]
    results = [child.communicate(timeout=300) for child in children]
    assert [out for out, _ in results] == ["[3.0, 3.0, 3.0, 3.0]\n"] * 10, results
    assert len(libraries(own_cache)) == 2
    assert not list(own_cache.glob("work-*"))


@pytest.mark.parametrize(
    "damage", ["truncated", "flipped", "no library", "no manifest", "bad manifest", "a file instead"]
)
def test_a_damaged_entry_is_built_again(filled_cache: Path, script: Script, damage: str) -> None:
    before = libraries(filled_cache)
    runtime = next(iter(before))
    for path, image in before.items():
        if path == runtime and damage != "flipped":
            continue  # it takes long to build
        manifest = path.parent / "manifest.json"
        if damage == "truncated":
            path.write_bytes(image[: len(image) // 2])
        elif damage == "flipped":
            path.write_bytes(image[:-1] + bytes([image[-1] ^ 1]))
        elif damage == "no library":
            path.unlink()
        elif damage == "no manifest":
            manifest.unlink()
        elif damage == "bad manifest":
            manifest.write_text('["not", "one"]')
        else:
            path.unlink()
            manifest.unlink()
            path.parent.rmdir()
            path.parent.write_text("nonsense")
    result = script(RUN, "1.0f")
    assert result.stdout == "[1.0, 1.0, 1.0, 1.0]\n", result.stderr
    for path in before:
        manifest = json.loads((path.parent / "manifest.json").read_text())
        assert manifest["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()


def test_another_source_is_another_entry(filled_cache: Path, script: Script) -> None:
    assert script(RUN, "2.0f").stdout == "[2.0, 2.0, 2.0, 2.0]\n"
    assert len(libraries(filled_cache)) == 3


def test_flags_and_compilers_have_entries_of_their_own(filled_cache: Path, script: Script) -> None:
    change = (
        "from ostinato.backends.cpu import building\nbuilding._KERNEL_FLAGS = (*building._KERNEL_FLAGS, '-DOTHER')\n"
    )
    script(change + RUN, "1.0f")
    assert len(libraries(filled_cache)) == 3


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_folder_open_to_others_is_refused(own_cache: Path, mode: int) -> None:
    own_cache.mkdir()
    own_cache.chmod(mode)
    with pytest.raises(ost.CacheError, match="remove it, or set OSTINATO_CACHE_DIR"):
        cache.folder()


def test_a_link_is_refused(own_cache: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    own_cache.symlink_to(tmp_path / "real")
    with pytest.raises(ost.CacheError, match="link"):
        cache.folder()


def test_a_file_is_refused(own_cache: Path) -> None:
    own_cache.write_text("")
    with pytest.raises(ost.CacheError, match="not a folder"):
        cache.folder()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(own_cache: Path) -> None:
    own_cache.mkdir(mode=0o700)
    os.chown(own_cache, 12345, 12345)
    with pytest.raises(ost.CacheError, match="another user"):
        cache.folder()


def entry_of(text: bytes, work: Path) -> Path:
    product = work / "product.so"
    product.write_bytes(text)
    return product


@pytest.mark.parametrize("part", ["", "library.so", "manifest.json"])
@pytest.mark.parametrize("flaw", ["open to the group", "of another user", "a link"])
def test_an_entry_that_others_could_have_written_is_built_again(
    own_cache: Path, tmp_path: Path, part: str, flaw: str
) -> None:
    path = cache.library("key", lambda work: entry_of(b"planted", work)).parent / part
    if flaw == "open to the group":
        path.chmod(path.stat().st_mode | 0o020)
    elif flaw == "a link":
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    elif os.geteuid() == 0:
        os.chown(path, 12345, 12345)
    else:
        pytest.skip("only root can give a file away")
    assert cache.library("key", lambda work: entry_of(b"built", work)).read_bytes() == b"built"
    assert cache.library("key", lambda work: entry_of(b"again", work)).read_bytes() == b"built"


def test_what_is_written_under_a_lax_umask_is_trusted(own_cache: Path) -> None:
    before = os.umask(0)
    try:
        cache.library("key", lambda work: entry_of(b"first", work))
        cache.note("key", lambda: "first")
    finally:
        os.umask(before)
    assert cache.library("key", lambda work: entry_of(b"second", work)).read_bytes() == b"first"
    assert cache.note("key", lambda: "second") == "first"


@pytest.mark.parametrize("flaw", ["an open note", "an open folder", "a linked folder", "a folder for a note"])
def test_a_note_that_others_could_have_written_is_found_out_again(own_cache: Path, tmp_path: Path, flaw: str) -> None:
    cache.note("key", lambda: "planted")
    notes = own_cache / "notes"
    if flaw == "an open note":
        (notes / "key").chmod(0o666)
    elif flaw == "an open folder":
        notes.chmod(0o777)
    elif flaw == "a linked folder":
        notes.rename(tmp_path / "elsewhere")
        notes.symlink_to(tmp_path / "elsewhere")
    else:
        (notes / "key").unlink()
        (notes / "key").mkdir()
    assert cache.note("key", lambda: "found") == "found"
    assert cache.note("key", lambda: "again") == "found"


def test_a_full_disk_is_a_typed_error(own_cache: Path) -> None:
    def build(work: Path) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(ost.CacheError, match="No space left"):
        cache.library("key", build)


def test_a_folder_that_cannot_be_made_is_a_typed_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OSTINATO_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.raises(ost.CacheError, match="OSTINATO_CACHE_DIR"):
        cache.folder()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_a_typed_error(own_cache: Path, dev: ost.Device) -> None:
    own_cache.mkdir(mode=0o500)
    with pytest.raises(ost.CacheError, match="cannot write"):
        dev.library("kernel void unseen(device float *x [[buffer(0)]]) { x[0] = 77.0f; }")


def test_the_usual_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("OSTINATO_CACHE_DIR")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    place = {"darwin": tmp_path / "Library/Caches/ostinato"}.get(sys.platform, tmp_path / "xdg/ostinato")
    assert cache.folder() == place
    assert place.is_dir()


def test_digests_count_the_borders_of_their_parts() -> None:
    assert cache.digest("ab", "c") != cache.digest("a", "bc") != cache.digest("abc")
