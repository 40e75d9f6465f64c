"""`tools/corpus.py`: the survey of a folder of sources."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "corpus.py"

_SOURCES = {
    "shared/scale.h": "inline float scaled(float x) { return x * FACTOR; }\n",
    "good.metal": """
#include <metal_stdlib>
#include "scale.h"
using namespace metal;
constant bool twice [[function_constant(0)]];
template <typename T>
kernel void scale(device T *x, uint i [[thread_position_in_grid]]) { x[i] = T(scaled(float(x[i])) * (twice ? 2 : 1)); }
template [[host_name("scale_float")]] kernel void scale<float>(device float *, uint);
template [[host_name("scale_half")]] kernel void scale<half>(device half *, uint);
kernel void total(device float *x, uint i [[thread_index_in_threadgroup]]) {
    threadgroup float kept[64];
    kept[i] = x[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    x[i] = kept[63 - i];
}
""",
    "deep/mixed.metal": """
template <typename T> T chosen(T x) { return x.missing; }
template <> float chosen(float x) { return x; }
template <typename T> kernel void choose(device T *x) { x[0] = chosen(x[0]); }
template [[host_name("right")]] kernel void choose<float>(device float *);
template [[host_name("wrong")]] kernel void choose<int>(device int *);
template [[host_name("wrong_too")]] kernel void choose<uint>(device uint *);
""",
    "texture.metal": """
kernel void image(metal::texture2d<float> picture [[texture(0)]], device float *x) { x[0] = 1; }
""",
    "broken.metal": "kernel void open(device float *x) { x[0] = 1;\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in _SOURCES.items():
        path = tmp_path / "sources" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "sources"


def survey(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    source = str(TOOL.parents[1] / "src")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, str(TOOL), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment)


def document(*arguments: str | Path) -> dict[str, Any]:
    result = json.loads(survey(*arguments, "--json").stdout)
    assert isinstance(result, dict)
    return result


def results_by_file(surveyed: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {result["file"]: result for result in surveyed["results"]}


def test_files_kernels_ways_and_causes_are_counted(folder: Path) -> None:
    surveyed = document(folder, "--include", folder / "shared", "--define", "FACTOR=3", "-j", "2")
    counted = {name: surveyed[name] for name in ("files", "files_parsed", "files_unsupported", "kernels", "tried")}
    assert counted == {"files": 4, "files_parsed": 2, "files_unsupported": 1, "kernels": 6, "tried": 6}
    assert (surveyed["compiled"], surveyed["failed"], surveyed["unsupported"]) == (4, 2, 0)
    assert surveyed["ways"] == {"loop": 3, "vector": 1}
    by_file = results_by_file(surveyed)
    assert by_file["texture.metal"]["failure"]["unsupported"]
    assert not by_file["broken.metal"]["failure"]["unsupported"]
    mixed = {outcome["kernel"]: outcome for outcome in by_file["deep/mixed.metal"]["outcomes"]}
    assert mixed["right"]["way"] == "loop"
    assert mixed["wrong"]["failure"]["place"] == "mixed.metal:2"
    blocked = [cause for cause in surveyed["causes"] if "missing" in cause["cause"]]
    assert sum(cause["kernels"] for cause in blocked) == 2


def test_a_sample_is_the_same_in_every_run(folder: Path) -> None:
    arguments = (folder / "deep", "--sample", "1")
    first, second = document(*arguments), document(*arguments)
    assert first["tried"] == 1
    assert first["kernels"] == 3
    names = [[outcome["kernel"] for outcome in each["results"][0]["outcomes"]] for each in (first, second)]
    assert names[0] == names[1]


def test_the_report_says_why_and_where(folder: Path) -> None:
    made = survey(folder)
    assert "good.metal: not parsed" in made.stderr
    assert "deep/mixed.metal: 3 kernels, 3 tried, 2 failed" in made.stderr
    assert "3 of 3 kernels tried for cpu: 1 compiled, 2 failed, 0 unsupported" in made.stdout
    assert "in deep/mixed.metal (mixed.metal:2)" in made.stdout
    assert "unsupported: textures and samplers (texture2d) are not supported" in made.stdout


def test_fibers_are_counted_by_why_they_are_not_vectors(tmp_path: Path) -> None:
    (tmp_path / "turned.metal").write_text(
        "#include <metal_stdlib>\n"
        "using namespace metal;\n"
        "kernel void turn(device float *x, device bool *turned, uint id [[thread_position_in_grid]]) {\n"
        "    simdgroup_matrix<float, 8, 8> tile;\n"
        "    simdgroup_load(tile, x, 8, ulong2(0, 0), turned[id]);\n"
        "    simdgroup_store(tile, x, 8);\n"
        "}\n"
    )
    assert list(document(tmp_path)["fibers"].items()) in (
        [("no vectors: a matrix that only some lanes transpose", 1)],
        [("vectors need clang N or the ziglang wheel", 1)],
    )


def test_a_compiler_over_its_time_is_a_cause(tmp_path: Path) -> None:
    (tmp_path / "slow.metal").write_text(
        "template <int depth, int number> struct Tree {\n"
        "    using Left = Tree<depth - 1, 2 * number>;\n"
        "    using Right = Tree<depth - 1, 2 * number + 1>;\n"
        "    static constexpr int leaves = Left::leaves + Right::leaves;\n"
        "};\n"
        "template <int number> struct Tree<0, number> { static constexpr int leaves = 1; };\n"
        "kernel void count(device int *x) { x[0] = Tree<18, 1>::leaves; }\n"
    )
    surveyed = document(tmp_path, "--limit", "1")
    assert [(cause["cause"], cause["kernels"]) for cause in surveyed["causes"]] == [
        ("the compiler takes more than 1 s or 8 GiB", 1)
    ]


def test_cuda_is_compiled_without_a_gpu(folder: Path) -> None:
    nvrtc = pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings is not installed")
    try:
        nvrtc.nvrtcVersion()
    except RuntimeError as error:
        pytest.skip(f"NVRTC cannot be loaded: {error}")
    surveyed = document(folder / "deep", "--device", "cuda")
    assert surveyed["ways"] == {"native": 1}
    assert surveyed["failed"] == 2
