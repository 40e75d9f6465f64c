"""The source of a kernel comes from the recording, or from a local file that is unchanged and harmless to open."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest

import ostinato
from ostinato.profiling.analyse import sources
from ostinato.profiling.analyse.columns import Columns
from ostinato.profiling.analyse.sources import SourceText, function_lines, source_of, why_missing
from ostinato.profiling.recording.schema import LEFT_OUT, Source
from synthetic import Synthetic, node

TEXT = "// one\nkernel void one(device float *x) { x[0] = 1; }\n"


def columns(file: object = "", line: int | None = 2, contents: bytes = TEXT.encode()) -> Columns:
    """A recording with one kernel, of a source with these contents, and a copy."""
    digest = hashlib.sha256(contents).hexdigest()
    made = Synthetic()
    made.plan([node("one", file=str(file), line=line, source_digest=digest), node("copy", kind="copy")])
    return made.columns()


def with_source(made: Columns, text: str = TEXT, left_out: str = "") -> Columns:
    """The same with a row of the table of sources."""
    digest = str(made.commands.source_digest[0])
    row = Source(id=1, digest=digest, size_bytes=len(text), left_out=left_out, text="" if left_out else text)
    return replace(made, sources={digest: row})


def test_a_recorded_text_is_shown_whatever_became_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "one.metal"
    file.write_text("changed")
    assert source_of(with_source(columns(file)), 0) == SourceText(TEXT, 2, str(file), "recording")
    assert source_of(with_source(columns()), 0) == SourceText(TEXT, 2, "", "recording")


@pytest.mark.parametrize("suffix", [".metal", ".msl", ".h", ".hpp", ".inc"])
def test_an_unchanged_file_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path(f"one{suffix}")
    file.write_text(TEXT)
    assert source_of(columns(file), 0) == SourceText(TEXT, 2, str(file), "file")
    assert source_of(columns(file.resolve()), 0) == SourceText(TEXT, 2, str(file.resolve()), "file")
    file.write_text(TEXT + " ")
    assert source_of(columns(file), 0) is None
    assert "has changed" in why_missing(columns(file), 0)


def test_a_text_that_is_left_out_is_looked_for_in_its_file(tmp_path: Path) -> None:
    file = tmp_path / "one.metal"
    left_out = with_source(columns(file), left_out=LEFT_OUT[1])
    assert source_of(left_out, 0) is None
    assert LEFT_OUT[1] in why_missing(left_out, 0)
    file.write_text(TEXT)
    assert source_of(left_out, 0) == SourceText(TEXT, 2, str(file), "file")


def test_what_is_not_called_like_a_kernel_source_is_not_opened(tmp_path: Path) -> None:
    for name in ("secret.txt", "id_rsa", "one.metal.bak", "one.metal/../secret.txt"):
        (tmp_path / "one.metal").mkdir(exist_ok=True)
        file = tmp_path / name
        file.write_text(TEXT)
        assert source_of(columns(f"{tmp_path}/{name}"), 0) is None


def test_only_regular_files_of_a_bounded_size_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To open a pipe may let its writer go on, and to read a device may never end."""
    contents = b"x" * (1 << 20)
    (tmp_path / "large.metal").write_bytes(contents)
    assert source_of(columns(tmp_path / "large.metal", contents=contents), 0) is not None

    def opened(path: Path) -> bytes:
        raise AssertionError(f"{path} was opened")

    monkeypatch.setattr(sources, "_read", opened)
    (tmp_path / "large.metal").write_bytes(contents + b"x")
    os.mkfifo(tmp_path / "pipe.metal")
    (tmp_path / "folder.metal").mkdir()
    (tmp_path / "loop.metal").symlink_to(tmp_path / "loop.metal")
    (tmp_path / "zero.metal").symlink_to("/dev/zero")
    for name in ("large", "pipe", "folder", "loop", "zero", "nowhere", "nul\0", "long" * 2000, "surrogate\udcff"):
        assert source_of(columns(tmp_path / f"{name}.metal"), 0) is None, name


def test_a_file_that_is_not_text_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "one.metal").write_bytes(b"\xff\xfe")
    assert source_of(columns(tmp_path / "one.metal", contents=b"\xff\xfe"), 0) is None


def test_lines_end_in_a_line_feed_and_the_function_is_in_the_text(tmp_path: Path) -> None:
    file, contents = tmp_path / "one.metal", "\ufeffa\r\nb\rc".encode()
    file.write_bytes(contents)
    for line, expected in ((None, 1), (2, 2), (3, 3), (4711, 3)):
        assert source_of(columns(file, line, contents), 0) == SourceText("a\nb\nc", expected, str(file), "file")


def test_kernels_of_this_package_are_found_where_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = "ostinato/ops/kernels/largest.metal"
    contents = (Path(ostinato.__file__).parents[1] / file).read_bytes()
    source = source_of(columns(file, contents=contents), 0)
    assert source is not None
    assert source.text.encode() == contents


def test_a_copy_has_no_source_and_that_is_said() -> None:
    assert source_of(columns(), 1) is None
    assert "does not say" in why_missing(columns(), 1)
    assert "passed the source as text" in why_missing(columns(), 0)


def test_why_there_is_no_text_is_the_true_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large = b"x" * ((1 << 20) + 1)
    files = {"one.txt": TEXT.encode(), "large.metal": large, "one.metal": b"\xff\xfe", "changed.metal": b"x"}
    for name, contents in files.items():
        (tmp_path / name).write_bytes(contents)
    files["changed.metal"] = files["nowhere.metal"] = b"y"
    (tmp_path / "folder.metal").mkdir()
    files["folder.metal"] = b""
    reasons = {
        "one.txt": "is not opened (its name does not end in .metal, .msl, .h, .hpp, .inc)",
        "large.metal": "is larger than 1 MiB",
        "one.metal": "is not UTF-8",
        "changed.metal": "has changed since",
        "nowhere.metal": "is not here",
        "folder.metal": "is not a regular file",
    }
    for name, reason in reasons.items():
        assert f"{name}:2 {reason}, and" in why_missing(columns(tmp_path / name, contents=files[name]), 0)


def test_no_file_is_opened_where_the_setting_forbids_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "one.metal"
    file.write_text(TEXT)
    for value, shown in (("0", False), ("1", True), ("", True)):
        monkeypatch.setenv("OSTINATO_PROFILE_SOURCE", value)
        assert (source_of(columns(file), 0) is not None) is shown
    monkeypatch.setenv("OSTINATO_PROFILE_SOURCE", "0")
    assert "OSTINATO_PROFILE_SOURCE=0" in why_missing(columns(file), 0)
    assert source_of(with_source(columns(file)), 0) == SourceText(TEXT, 2, str(file), "recording")


@pytest.mark.parametrize(
    ("text", "line", "lines"),
    [
        ("kernel void a() {\n}\n", 1, range(1, 3)),
        ("int x;\n// what it does\ntemplate <typename T>\nkernel void a() {\n  { }\n}\n", 4, range(2, 7)),
        ("INSTANTIATE(a, float);\nint y;\n", 1, range(1, 2)),
        ("kernel void a() {\n  char c = '}';\n", 1, range(1, 3)),
        ("kernel void a() { /*\n" * 3, 2, range(2, 5)),
        ("", 1, range(1, 2)),
        ("kernel void a() {\n" + "x;\n" * 1000 + "}", 1, range(1, 402)),
    ],
)
def test_a_function_ends_where_its_braces_do(text: str, line: int, lines: range) -> None:
    assert function_lines(text, line) == lines


@pytest.mark.parametrize("hostile", ['"' + '\\"' * (1 << 19), "'" + "\\'" * (1 << 19), '"\\\n' * (1 << 18)])
def test_the_end_of_a_function_is_found_in_one_pass_over_a_hostile_text(hostile: str) -> None:
    """A megabyte of quotes that none closes: with a pass for each quote this test would not end."""
    lines = function_lines("kernel void a()\n" + hostile, 1)
    assert lines.start == 1
    assert len(lines) <= 401
