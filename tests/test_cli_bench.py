"""`ostinato bench`: a kernel or a graph measured from the command line, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import ostinato as ost
from ostinato.cli import bench as command
from ostinato.cli import main
from ostinato.measure import benching
from ostinato.profiling.recording import open_recording

SAXPY = """
kernel void saxpy(device const float *x [[buffer(0)]], device float *y [[buffer(1)]], constant float &a [[buffer(2)]],
                  uint id [[thread_position_in_grid]]) {
    y[id] += a * x[id];
}
"""
SEVERAL = """
#include <metal_stdlib>
using namespace metal;
struct Pair { float scale; int count; };
constant int times [[function_constant(0)]];

kernel void flat(device float *x, uint2 id [[thread_position_in_grid]]) { x[id.y * 8 + id.x] = WORTH; }
kernel void vectors(device float4 *x, constant float3 &by, uint id [[thread_position_in_grid]]) { x[id] *= by.x; }
kernel void structs(device Pair *x, constant Pair &by, constant uint *n, threadgroup float *room [[threadgroup(0)]],
                    uint id [[thread_position_in_grid]]) {
    room[0] = by.scale;
    x[id].count += n[0];
}
kernel void specialised(device float *x, uint id [[thread_position_in_grid]]) {
    for (int i = 0; i < times; ++i) x[id] += 1.0f;
}
kernel void crash(device float *x, uint id [[thread_position_in_grid]]) { x[id + (1ul << 44)] = 1.0f; }
"""
ARGUMENTS = ("--threads", "256", "--arg", "x=float32[256]", "--arg", "1=float32[256]:zeros", "--arg", "a=3")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "saxpy.metal").write_text(SAXPY)
    (tmp_path / "several.metal").write_text(SEVERAL)
    return tmp_path


def bench(*arguments: str) -> Result:
    given = ("bench", *arguments, "--device", "cpu", "--seconds", "0.1")
    return CliRunner().invoke(main, given, catch_exceptions=False)


def several(kernel: str, *arguments: str) -> Result:
    return bench("several.metal", kernel, "-D", "WORTH=1.0f", "-c", "times=2", *arguments)


# --- what is measured --------------------------------------------------------------------------------------------


def test_one_line_gives_the_time_and_the_next_how_the_kernel_runs(folder: Path) -> None:
    result = bench("saxpy.metal", *ARGUMENTS)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].startswith("saxpy on cpu: ")
    assert "≤ " in lines[0]
    assert "run" in lines[0]
    assert "saxpy(0: x *float (read)" in lines[1]
    assert "loop: its threads never meet" in lines[1]
    assert any("--bytes-read" in line for line in lines)


def test_declared_bytes_and_flops_are_rates(folder: Path) -> None:
    amounts = ("--bytes-read", "2048", "--bytes-written", "1024", "--flops", "512")
    result = bench("saxpy.metal", "saxpy", *ARGUMENTS, *amounts, "--cold", "--json")
    measured = json.loads(result.stdout)
    assert measured["format"] == "ostinato.bench"
    assert measured["name"] == "saxpy"
    assert measured["cold"] is True
    assert measured["bytes_moved"] == 3072
    assert measured["bytes_bound"] is False
    assert measured["bytes_per_s"] == pytest.approx(3072e9 / measured["median_ns"])
    assert measured["flop_rate"] == pytest.approx(512e9 / measured["median_ns"])
    assert measured["kernel"]["way"] == "loop"
    assert 0 < len(measured["samples_ns"]) <= measured["runs"]


def test_the_kernel_gets_the_values_of_the_command_line(folder: Path) -> None:
    np.save("x.npy", np.arange(256, dtype=np.float32))
    arguments = ("--threads", "256", "--arg", "0=x.npy", "--arg", "y=float32[256]:ones", "--arg", "2=0.5")
    assert bench("saxpy.metal", *arguments, "--save-graph", "saxpy.ostgraph").exit_code == 0
    graph = ost.load_graph("saxpy.ostgraph")
    with ost.open_device("cpu") as device:
        run = graph.to(device).instantiate()
        run.replay().wait()
        contents = [memory.allocation.backing.read(0, 1024) for memory in run.graph.memories.values()]  # type: ignore[union-attr]
    expected = 0.5 * np.arange(256, dtype=np.float32) + 1
    assert any(np.array_equal(each.view(np.float32), expected) for each in contents)


def test_grids_have_dimensions_and_macros_and_constants_are_passed(folder: Path) -> None:
    assert several("flat", "--threads", "8x8", "--arg", "x=float32[64]").exit_code == 0
    assert several("flat", "--groups", "2x2", "--group-size", "4x4", "--arg", "x=float32[64]").exit_code == 0
    assert several("specialised", "--threads", "64", "--arg", "x=float32[64]").exit_code == 0


def test_vectors_and_structs_are_given_by_their_scalars_or_bytes(folder: Path) -> None:
    assert several("vectors", "--threads", "8", "--arg", "x=float32[8,4]", "--arg", "by=float32[4]").exit_code == 0
    by_bytes = ("--arg", "x=uint8[8,8]:zeros", "--arg", "by=uint8[8]:zeros", "--arg", "n=5", "--shared", "0=64")
    assert several("structs", "--threads", "8", *by_bytes).exit_code == 0


def test_the_recording_is_kept_and_not_replaced_unasked(folder: Path) -> None:
    saved = bench("saxpy.metal", *ARGUMENTS, "--save", "run.ostinato")
    assert saved.exit_code == 0, saved.output
    assert "ostinato report run.ostinato" in saved.stdout
    with open_recording(folder / "run.ostinato") as recording:
        assert len(recording.submissions.level)
    again = bench("saxpy.metal", *ARGUMENTS, "--save", "run.ostinato")
    assert again.exit_code == 1
    assert "exists already" in again.stderr
    assert bench("saxpy.metal", *ARGUMENTS, "--save", "run.ostinato", "--force").exit_code == 0


def saved_graph(path: Path) -> None:
    with ost.open_device("cpu") as device:
        kernel = device.library(SAXPY)["saxpy"]
        x, y = device.array(np.ones(64, np.float32)), device.zeros(64, np.float32)
        factor = ost.param("factor", np.float32)
        graph = device.capture(lambda enc: enc.dispatch(kernel, x, y, factor, threads=64), label="step")
        graph.named(input=x).save(path, contents=True)


def test_a_saved_graph_is_measured_with_its_parameters_and_buffers(folder: Path) -> None:
    saved_graph(folder / "step.ostgraph")
    result = bench("step.ostgraph", "--param", "factor=2.5", "--param", "input=float32[64]:arange")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("step on cpu: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "parameter 'factor' (float32)"),
        (("--param", "factor=x"), "'factor=x': expected a number"),
        (("--param", "factor=1", "--param", "other=1"), "no parameter or buffer 'other'; it has factor, input"),
        (
            ("--param", "factor=1", "--param", "input=1"),
            "'input' is a buffer, not a number; write --param input=float32[64]",
        ),
        (("--param", "factor=float32[2]"), "got float32 of shape (2,)"),
        (("--param", "factor=1", "--threads", "4"), "--threads: a saved graph has its own"),
        (("--param", "factor=1", "-D", "X"), "-c, -D or -I: a saved graph has its own"),
        (("saxpy",), "without a KERNEL"),
    ],
)
def test_what_a_graph_cannot_take_is_wrong_usage(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    saved_graph(folder / "step.ostgraph")
    result = bench("step.ostgraph", *arguments)
    assert result.exit_code == 2, result.output
    assert message in result.stderr


# --- what is refused ---------------------------------------------------------------------------------------------

X = ("--arg", "x=float32[64]")
GRID = ("--threads", "64")


@pytest.mark.parametrize(
    ("file", "arguments", "status", "message"),
    [
        ("several.metal", (), 2, "which kernel? The file has 5: flat, vectors, structs, specialised, crash"),
        ("several.metal", ("flap", *GRID), 2, "no kernel named 'flap' in this library; it has flat"),
        ("saxpy.metal", (), 2, "the grid, write --threads 1024; 0 'x' (float *), write --arg 0=float32[1024]"),
        (
            "saxpy.metal",
            (*GRID, *X),
            2,
            "1 'y' (float *), write --arg 1=float32[64]; 2 'a' (float &), write --arg 2=1.0",
        ),
        (
            "several.metal",
            ("vectors", *GRID),
            2,
            "'x' (float4 *), write --arg 0=float32[64,4]; 1 'by' (float3 &), write",
        ),
        ("several.metal", ("structs", *GRID), 2, "write --arg 0=uint8[64,8]:zeros, or FILE.npy with its bytes"),
        ("several.metal", ("structs", *GRID), 2, "threadgroup memory 0 'room' (float *), write --shared 0=4096"),
        ("several.metal", ("flat", "--groups", "8", *X), 2, "the size of a group, write --group-size 256"),
        ("several.metal", ("flat", *GRID, "--groups", "8", *X), 2, "as --threads or as --groups, not both"),
        ("several.metal", ("flat", *GRID, "--arg", "x=3"), 2, "is a buffer, not a number; write --arg 0=float32[64]"),
        ("several.metal", ("flat", *GRID, "--arg", "x=float32"), 2, "the size is missing"),
        ("several.metal", ("flat", *GRID, "--arg", "x=int32[64]"), 2, "expected float32, got int32"),
        ("several.metal", ("flat", *GRID, "--arg", "x=float32[-64]"), 2, "'-64' is not a size"),
        ("several.metal", ("flat", *GRID, *X, *X), 2, "argument 0 'x' (float *) is given twice"),
        ("several.metal", ("flat", *GRID, "--arg", "z=1"), 2, "has no argument 'z'; it is flat(0: x *float"),
        ("several.metal", ("vectors", *GRID, "--arg", "by=1"), 2, "is not one number; write --arg 1=float32[4]"),
        ("several.metal", ("flat", "--threads", "-64", *X), 2, "'-64' is not a size"),
        ("several.metal", ("flat", "--threads", "4x0", *X), 2, "'4x0' is not a size"),
        ("several.metal", ("flat", *GRID, "--group-size", "9999", *X), 2, "the kernel allows 1024"),
        ("several.metal", ("flat", *GRID, *X, "--shared", "a=1"), 2, "'a=1' is not INDEX=BYTES"),
        ("several.metal", ("flat", *GRID, *X, "-c", "nope=1"), 2, "nope"),
        ("several.metal", ("flat", *GRID, *X, "--param", "x=1"), 2, "--param belongs to a graph"),
        ("several.metal", ("flat", *GRID, *X, "--width", "2"), 2, "'2' is not a part between 0 and 1"),
        ("several.metal", ("flat", *GRID, *X, "--save", "no/run.ostinato"), 2, "there is no folder 'no'"),
        ("several.metal", ("flat", *GRID, *X, "--save-graph", "saxpy.metal"), 2, "is not a saved graph"),
        ("several.metal", ("flat", *GRID, "--arg", "x=float32[99999999999999]"), 1, "the arguments take 400 TB"),
        ("several.metal", ("crash", *GRID, *X, "--save", "kept.ostinato"), 1, "kernel 'crash'"),
        ("empty.metal", (), 1, "no kernels in this source"),
        ("poem.metal", (), 1, "poem.metal:1:1: this declaration is never ended"),
        ("binary.metal", (), 2, "'binary.metal' is neither Metal source nor a saved graph"),
        ("damaged.ostgraph", (), 1, "damaged.ostgraph"),
        ("missing.metal", (), 2, "File 'missing.metal' does not exist"),
    ],
)
def test_a_wrong_command_line_or_file_is_explained(
    folder: Path, file: str, arguments: tuple[str, ...], status: int, message: str
) -> None:
    (folder / "empty.metal").write_text("int f() { return 1; }\n")
    (folder / "poem.metal").write_text("Roses are red\n")
    (folder / "binary.metal").write_bytes(bytes(range(256)))
    (folder / "damaged.ostgraph").write_bytes(b"PK\3\4 and nothing else")
    before = sorted(folder.iterdir())
    options = ("-D", "WORTH=1.0f", "-c", "times=2") if file == "several.metal" else ()
    result = bench(file, *arguments, *options)
    assert result.exit_code == status, result.output
    assert message in result.stderr
    assert "Traceback" not in result.output
    assert sorted(folder.iterdir()) == before


# --- notes -------------------------------------------------------------------------------------------------------


def with_disturbed(monkeypatch: pytest.MonkeyPatch, which: slice) -> None:
    """Marks these of the runs as disturbed."""

    def undisturbed(columns: Any, present: Any) -> Any:
        flags = present.copy()
        flags[np.flatnonzero(present)[which]] = False
        return flags

    monkeypatch.setattr(benching, "undisturbed", undisturbed)


ALL, HALF, FEW = slice(None), slice(0, None, 2), slice(49, None, 50)  # FEW: none where a slow machine made few runs


@pytest.mark.parametrize(("disturbed", "noted"), [(ALL, True), (HALF, True), (FEW, False)])
def test_many_disturbed_runs_get_a_note(
    folder: Path, monkeypatch: pytest.MonkeyPatch, disturbed: slice, noted: bool
) -> None:
    with_disturbed(monkeypatch, disturbed)
    printed = bench("saxpy.metal", *ARGUMENTS).stdout
    assert ("all of them disturbed" in printed) == (disturbed == ALL)
    assert ("note: other programs took a part of" in printed) == noted


def test_progress_is_shown(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []

    @contextmanager
    def line() -> Iterator[Callable[[str], None]]:
        yield steps.append

    monkeypatch.setattr(command, "still_line", line)
    assert bench("saxpy.metal", *ARGUMENTS).exit_code == 0
    assert steps[:2] == ["compiling", "filling the arguments"]
    assert any(step.startswith("saxpy, ") for step in steps[2:])
