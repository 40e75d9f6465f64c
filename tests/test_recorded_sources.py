"""Recordings say where the kernels stand and how they run; their texts only when asked for, once each, and bounded."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ostinato as ost
from ostinato import ops
from ostinato.profiling.recording import PlanNode, Recording, Writer, open_recording, schema, source_texts

SOURCE = """#include <metal_stdlib>
using namespace metal;

kernel void plain(device float *x, uint id [[thread_position_in_grid]]) { x[id] = 1; }
kernel void lanes(device float *x, uint id [[thread_position_in_grid]]) {
    x[id] = simd_sum(1.0f);
}
"""
DIGEST = hashlib.sha256(SOURCE.encode()).hexdigest()


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source, named from the current folder."""
    monkeypatch.chdir(tmp_path)
    Path("kernels").mkdir()
    path = Path("kernels", "both.metal")
    path.write_text(SOURCE)
    return path


def recorded(dev: ost.Device, *libraries: ost.Library, with_source: bool = False) -> Recording:
    """Every kernel of these libraries, dispatched twice."""
    x = dev.zeros(32, np.float32)
    with ost.profile(with_source=with_source) as prof:
        enc = dev.command_encoder()
        for library in libraries:
            for name in library:
                for threads in (16, 32):
                    enc.dispatch(library[name], x, threads=threads)
        enc.commit_and_wait()
    return prof.recording()


def test_a_command_has_the_place_of_its_kernel_and_how_it_runs(dev: ost.Device, file: Path) -> None:
    with recorded(dev, dev.library(file)) as recording:
        commands = recording.commands
        said = zip(commands.kernel, commands.file, commands.line.tolist(), commands.execution, strict=True)
        assert set(said) == {
            ("plain", "kernels/both.metal", 4, "loop: its threads never meet"),
            ("lanes", "kernels/both.metal", 5, "vector: calls simd_sum at line 6"),
        }
        assert set(commands.source_digest) == {DIGEST}
        assert recording.sources == {}


def test_a_source_that_is_passed_as_text_has_no_file(dev: ost.Device) -> None:
    with recorded(dev, dev.library(SOURCE)) as recording:
        commands = recording.commands
        assert set(commands.file) == set(commands.source) == {""}
        assert set(commands.line.tolist()) == {4, 5}
        assert set(commands.source_digest) == {DIGEST}


def test_a_kernel_of_an_included_file_has_the_place_in_it(dev: ost.Device, file: Path) -> None:
    header = Path("kernels", "parts", "more.h")
    header.parent.mkdir()
    header.write_text("\nkernel void more(device float *x) { x[0] = 2; }\n")
    file.write_text('#include "parts/more.h"\n')
    text = '#include "more.h"\n'
    libraries = dev.library(file), dev.library(file.resolve()), dev.library(text, include_dirs=[header.parent])
    with recorded(dev, *libraries, with_source=True) as recording:
        commands = recording.commands
        assert set(zip(commands.source, commands.file, commands.line.tolist(), strict=True)) == {
            ("kernels/both.metal", "kernels/parts/more.h", 2),
            (str(file.resolve()), str(header.resolve()), 2),
            ("", "kernels/parts/more.h", 2),
        }
        assert [source.text for source in recording.sources.values()] == [header.read_text()]


def test_kernels_of_the_library_are_named_from_the_package_on(dev: ost.Device) -> None:
    x = dev.zeros((4, 64), np.float32)
    with ost.profile() as prof:
        enc = dev.command_encoder()
        ops.softmax(enc, x, x)
        enc.commit_and_wait()
    with prof.recording() as recording:
        (file,) = set(recording.commands.file[recording.commands.kind == "dispatch"])
    assert (Path(ost.__file__).parents[1] / file).is_file()
    assert file.startswith("ostinato/ops/kernels/")


def test_texts_are_recorded_when_asked_for_and_once_each(dev: ost.Device, file: Path) -> None:
    libraries = dev.library(file), dev.library(SOURCE), dev.library(SOURCE + "// another\n")
    with recorded(dev, *libraries, with_source=True) as recording:
        assert len(recording.commands) == 12
        assert {digest: source.text for digest, source in recording.sources.items()} == {
            DIGEST: SOURCE,
            hashlib.sha256(f"{SOURCE}// another\n".encode()).hexdigest(): f"{SOURCE}// another\n",
        }


@pytest.mark.parametrize(("variable", "asked", "texts"), [("1", False, 1), ("0", True, 0), (None, True, 1)])
def test_the_setting_overrides_the_argument(
    dev: ost.Device, monkeypatch: pytest.MonkeyPatch, variable: str | None, asked: bool, texts: int
) -> None:
    library = dev.library(SOURCE)
    if variable is not None:
        monkeypatch.setenv("OSTINATO_PROFILE_SOURCE", variable)
    with recorded(dev, library, with_source=asked) as recording:
        assert len(recording.sources) == texts


def test_the_file_may_change_after_it_was_compiled(dev: ost.Device, file: Path) -> None:
    library = dev.library(file)
    file.write_text("nothing of it\n")
    with recorded(dev, library, with_source=True) as recording:
        assert recording.sources[DIGEST].text == SOURCE


def test_what_is_too_large_is_left_out_and_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_texts, "MAX_SOURCES_BYTES", 1 << 20)
    texts = [b"\xff", b"a" * (1 << 20), b"b", b"c" * ((1 << 20) + 1)]
    with Writer(tmp_path / "run.ostinato") as writer:
        nodes = [
            PlanNode("dispatch", "k", source_digest=hashlib.sha256(text).hexdigest(), text=text)
            for text in (*texts, *texts)
        ]
        writer.plan(writer.device("cpu", "cpu"), nodes)
    with open_recording(tmp_path / "run.ostinato") as recording:
        sources = [recording.sources[hashlib.sha256(text).hexdigest()] for text in texts]
        assert [(source.size_bytes, source.left_out) for source in sources] == [
            (1, schema.NOT_TEXT), (1 << 20, ""), (1, schema.NO_ROOM), ((1 << 20) + 1, schema.TOO_LARGE),
        ]  # fmt: skip
        assert [len(source.text) for source in sources] == [0, 1 << 20, 0, 0]
        assert recording.drops == ()


def test_more_texts_than_a_recording_holds_are_not_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_texts, "MAX_SOURCES", 3)
    texts = [b"%d" % number for number in range(5)]
    with Writer(tmp_path / "run.ostinato") as writer:
        nodes = [PlanNode("dispatch", "k", source_digest=hashlib.sha256(text).hexdigest(), text=text) for text in texts]
        writer.plan(writer.device("cpu", "cpu"), nodes)
    with open_recording(tmp_path / "run.ostinato") as recording:
        assert [source.text for source in recording.sources.values()] == ["0", "1", "2"]
        assert len(recording.commands) == 5


PROGRAM = """
import numpy as np
import ostinato as ost
from pathlib import Path

dev = ost.open_device("cpu")
library = dev.library(Path("kernels/both.metal"))
x = dev.zeros(32, np.float32)
enc = dev.command_encoder()
enc.dispatch(library["lanes"], x, threads=32)
enc.commit_and_wait()
"""


def test_the_command_records_texts_when_asked_and_reports_the_place(file: Path) -> None:
    Path("program.py").write_text(PROGRAM)
    for number, options in enumerate(([], ["--with-source"])):
        command = [sys.executable, "-m", "ostinato", "profile", "--json", "-o", f"{number}.ostinato", *options]
        done = subprocess.run([*command, "program.py"], capture_output=True, text=True, timeout=120, check=True)
        (kernel,) = json.loads(done.stdout)["kernels"]
        assert {name: kernel[name] for name in ("source", "line", "source_digest", "execution")} == {
            "source": "kernels/both.metal",
            "line": 5,
            "source_digest": DIGEST,
            "execution": "vector: calls simd_sum at line 6",
        }
        with open_recording(f"{number}.ostinato") as recording:
            assert [source.text for source in recording.sources.values()] == [SOURCE] * number
