"""The command line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ostinato as ost
from ostinato import msl
from ostinato.native import toolchain

GOOD = """#include <metal_stdlib>
using namespace metal;
constant bool flip [[function_constant(0)]];
template <typename T> kernel void scaled(device const T *in [[buffer(0)]], device T *out [[buffer(1)]],
                                         constant uint &n [[buffer(2)]], uint id [[thread_position_in_grid]]) {
    if (id < n) out[id] = flip ? -in[id] : in[id];
}
template [[host_name("scaled_f32")]]
kernel void scaled<float>(device const float *, device float *, constant uint &, uint);
template [[host_name("scaled_f16")]]
kernel void scaled<half>(device const half *, device half *, constant uint &, uint);
"""


def ostinato(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from ostinato.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_version() -> None:
    assert ost.__version__ in ostinato("--version").stdout


def test_devices_as_a_table_and_as_json() -> None:
    table = ostinato("devices")
    assert table.returncode == 0
    assert "cpu" in table.stdout
    assert "skipped" in table.stdout
    listed = {device["name"]: device for device in json.loads(ostinato("devices", "--json").stdout)}
    assert listed["cpu"]["available"] is True
    assert listed["cpu"]["capabilities"]["simd_width"] == 32
    assert listed["cuda"]["available"] is False
    assert listed["cuda"]["reason"]


def test_compile_prints_signatures(tmp_path: Path) -> None:
    file = tmp_path / "good.metal"
    file.write_text(GOOD)
    result = ostinato("compile", str(file), "--device", "cpu", "-c", "flip=true")
    assert result.returncode == 0, result.stderr
    assert "scaled_f32" in result.stdout
    assert "scaled_f16" in result.stdout
    assert "half" in result.stdout


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("kernel void k(device float *x [[buffer(0)]]) {\n  x[0] = nosuch;\n}\n", 2, "nosuch"),
        ("\n\nkernel void k(texture2d<float> t [[texture(0)]]) {}\n", 3, "texture"),
    ],
)
def test_compile_prints_errors_with_file_and_line(tmp_path: Path, text: str, line: int, message: str) -> None:
    file = tmp_path / "bad.metal"
    file.write_text("#include <metal_stdlib>\nusing namespace metal;\n" + text)
    result = ostinato("compile", str(file))
    assert result.returncode == 1
    assert f"bad.metal:{line + 2}:" in result.stderr
    assert message in result.stderr
    assert "Traceback" not in result.stderr


WAYS = """#include <metal_stdlib>
using namespace metal;
kernel void alone(device float *x, uint i [[thread_position_in_grid]]) { x[i] = 1; }
kernel void summed(device float *x, uint i [[thread_position_in_grid]]) { x[i] = simd_sum(x[i]); }
kernel void largest(device float *x, uint i [[thread_position_in_grid]]) { x[i] = simd_max(x[i]); }
"""


def test_compile_emits_what_the_compiler_gets_for_each_way_of_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "ways.metal"
    file.write_text(WAYS)
    module, both = msl.parse(file), ["summed", "largest"]

    def emitted(*options: str) -> str:
        result = ostinato("compile", str(file), "--emit", *options)
        assert result.returncode == 0, result.stderr
        return result.stdout

    assert emitted("cpu-loops") == module.translate("cpu").text
    if toolchain.find_clang() is not None:
        vectors = "// As vectors of the lanes of a simdgroup, for clang: "
        loops = f"// As loops over threads, or as fibers: alone\n{module.translate('cpu', {}, ['alone']).text}"
        assert emitted("cpu") == f"{vectors}summed, largest\n{module.translate('cpu-vector', {}, both).text}\n{loops}"
        assert (
            emitted("cpu", "-k", "largest")
            == f"{vectors}largest\n{module.translate('cpu-vector', {}, ['largest']).text}"
        )
        assert emitted("cpu", "-k", "alone") == module.translate("cpu", {}, ["alone"]).text
    monkeypatch.setenv("CXX", "/no/such/compiler")
    assert emitted("cpu") == module.translate("cpu").text


@pytest.mark.parametrize(("target", "entry"), [("cpu", "__ost_entry_0"), ("cuda", "__ost_kernel_0")])
def test_compile_emits_the_generated_source_without_a_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, entry: str
) -> None:
    file = tmp_path / "good.metal"
    file.write_text(GOOD)
    monkeypatch.setenv("CXX", "/no/such/compiler")
    result = ostinato("compile", str(file), "--emit", target, "-c", "flip=true", "-k", "scaled_f16")
    assert result.returncode == 0, result.stderr
    module = msl.parse(file)
    assert result.stdout == module.translate(target, {"flip": True}, ["scaled_f16"]).text
    assert entry in result.stdout
    missing = ostinato("compile", str(file), "--emit", target)
    assert missing.returncode == 1
    assert "flip" in missing.stderr
    assert ostinato("compile", str(file), "--emit", target, "--device", "cpu").returncode == 2


def test_compile_names_a_missing_constant(tmp_path: Path) -> None:
    file = tmp_path / "good.metal"
    file.write_text(GOOD)
    result = ostinato("compile", str(file))
    assert result.returncode == 1
    assert "flip" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [["compile", "/no/such/file.metal"], ["nonsense"], ["compile", __file__, "-c", "flip"], ["devices", "-x"]],
)
def test_a_wrong_command_line_has_status_2(arguments: list[str]) -> None:
    result = ostinato(*arguments)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("variable", ["OSTINATO_DEVICE", "OSTINATO_BARRIERS"])
def test_devices_reports_a_setting_that_makes_no_sense(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "nonsense")
    result = ostinato("devices")
    assert result.returncode == 2
    assert f"{variable}='nonsense'" in result.stderr
    assert "Traceback" not in result.stderr


def test_an_unavailable_device_has_status_1(tmp_path: Path) -> None:
    file = tmp_path / "good.metal"
    file.write_text(GOOD)
    result = ostinato("compile", str(file), "--device", "metal")
    assert result.returncode == 1
    assert "not a Mac" in result.stderr


def test_the_demo_decodes_as_numpy_does_and_says_where_to_look() -> None:
    result = ostinato("demo")
    assert result.returncode == 0, result.stderr
    assert "150 tokens at" in result.stdout
    assert "same as NumPy: yes" in " ".join(result.stdout.split())
    for part in ("expert_matvec", "sdpa", "per token", "Validity checks"):
        assert part in result.stdout
    assert result.stdout.rstrip().splitlines()[-1].startswith("Look first at ")


def test_the_demo_finds_a_serial_topk() -> None:
    result = ostinato("demo", "--slow-topk")
    assert result.returncode == 0, result.stderr
    last = result.stdout.rstrip().splitlines()[-1]
    assert last.startswith("Look first at ")
    assert "topk" in last.partition(":")[0]


def test_decode_generates_and_profiles(tmp_path: Path) -> None:
    path = tmp_path / "run.ostinato"
    given = ("--preset", "tiny", "--tokens", "5", "--prompt", "abc", "--device", "cpu")
    result = ostinato("decode", *given, "--profile", "dispatches", "-o", str(path))
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("abc")
    assert "prompt of 3 tokens" in result.stdout
    assert "5 tokens at" in result.stdout
    assert path.exists()


def test_decode_draws_tokens_and_says_how_fast() -> None:
    given = ("--preset", "tiny", "--tokens", "6", "--prompt", "ab\nc", "--device", "cpu")
    first, again, greedy = (
        ostinato("decode", *given, *options)
        for options in (("--temperature", "0.9", "--seed", "1"), ("--temperature", "0.9", "--seed", "1"), ())
    )
    texts = [result.stdout.partition("\n\nprompt of ")[0] for result in (first, again, greedy)]
    assert texts[0].startswith("ab\nc")  # lines stay lines
    assert texts[0] == texts[1] != texts[2]
    assert re.search(
        r"prompt of 4 tokens in [\d,.]+ ms, [\d,.]+ per second; 6 tokens at [\d,.]+ per second", first.stdout
    )


@pytest.mark.parametrize(
    ("given", "status", "text"),
    [
        (["--preset", "tiny", "--seed", "1"], 2, "need --temperature"),
        (["--preset", "tiny", "--temperature", "1", "--top-p", "2"], 2, "--top-p"),
        ([], 2, "either --model or --preset"),
        (["--preset", "tiny", "--model", "x"], 2, "either --model or --preset"),
        (["--preset", "huge"], 2, "tiny-moe"),
        (["--preset", "tiny", "-o", "x.ostinato"], 2, "--profile"),
        (["--preset", "tiny", "--prompt", ""], 2, "no tokens"),
        (["--preset", "tiny", "--tokens", "100000"], 1, "the model's context is 4096"),
        (["--model", "nowhere"], 1, "there is no such file or folder"),
    ],
)
def test_decode_says_in_a_sentence_what_it_cannot_do(given: list[str], status: int, text: str) -> None:
    result = ostinato("decode", *given)
    assert result.returncode == status
    assert text in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("command", [[], ["devices"], ["compile"], ["demo"], ["decode"]])
def test_help(command: list[str]) -> None:
    result = ostinato(*command, "--help")
    assert result.returncode == 0
    assert "Usage" in result.stdout


def test_a_file_of_very_many_kernels_is_compiled_by_name(tmp_path: Path) -> None:
    path = tmp_path / "many.metal"
    path.write_text("\n".join(f"kernel void k{n}(device int *x) {{ x[0] = {n}; }}" for n in range(100)))
    everything = ostinato("compile", str(path), "--device", "cpu")
    assert len(everything.stdout.splitlines()) == 100
    assert "choose some with -k" in everything.stderr
    assert (
        ostinato("compile", str(path), "-k", "k7").stdout
        == "k7(0: x *int (read-write))\n  loop: its threads never meet\n"
    )
