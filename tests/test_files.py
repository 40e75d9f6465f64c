"""Files are written whole, and what stands in their place is respected."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from threading import Thread

import pytest

from ostinato.base.files import write_whole


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_file_has_the_mode_that_the_umask_leaves(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "new", b"new")
    finally:
        os.umask(before)
    assert mode(tmp_path / "new") == 0o640


def test_a_replaced_file_keeps_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"old")
    file.chmod(0o600)
    write_whole(file, b"new")
    assert (file.read_bytes(), mode(file)) == (b"new", 0o600)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_stays_and_its_file_is_written(tmp_path: Path, is_there: bool) -> None:
    (tmp_path / "folder").mkdir()
    file, link = tmp_path / "folder" / "file", tmp_path / "link"
    link.symlink_to(Path("folder") / "file")
    if is_there:
        file.write_bytes(b"old")
    write_whole(link, b"new")
    assert link.is_symlink()
    assert file.read_bytes() == b"new"
    assert os.listdir(file.parent) == ["file"]


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe, received = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = Thread(target=lambda: received.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write_whole(pipe, b"new")
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    reader.join(10)
    assert received == [b"new"]


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        write_whole(tmp_path / "folder", b"new")
    with pytest.raises(OSError):
        write_whole(tmp_path / "nowhere" / "file", b"new")
    assert os.listdir(tmp_path) == ["folder"]
