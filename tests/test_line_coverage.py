"""Coverage of kernels: which lines ran, how often, and by which kernel, in a file that lcov reads."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import ostinato as ost
from compilers import ZIG
from ostinato import settings
from ostinato.backends.cpu import line_counts
from ostinato.cli import main

SOURCE = """#include <metal_stdlib>
using namespace metal;

static int helper(int a) {
    if (a > 100)
        return 1;
    else if (a > 50) return 2;
    for (int k = 0; k < 3; k++)
        a += k;
    return a;
}
constexpr int sized(int n) { return n + 1; }

template <int N>
kernel void choose(device int *out, uint i [[thread_position_in_grid]]) {
    threadgroup int tile[sized(8)];
    typedef int number;
    tile[i % 4] = helper(int(i));
    threadgroup_barrier(mem_flags::mem_threadgroup);
    switch (i) {
        case 0:
            out[i] = 1;
            break;
        case 100: out[i] = 5; break;
        default:
            out[i] = N;
    }
    do {
        #pragma unroll
        for (uint j = 0; j < i; j++) {
            if (j == 2) continue; else if (j == 200)
                return;
            out[i] += simd_sum(1);
        }
    } while (false);
    int2 v = int2(1, 2);
    v.xy = v.yx;
    while (v.x > 100)
        v.x--;
    auto add = [&](int x) {
        return x + 1;
    };
    number sum = add(out[i]) +
        v.x;
    if (i > 5) { out[i] = sum; } else out[i] = -sum;
}
template [[host_name("choose, 3")]] kernel void choose<3>(device int *, uint);
template [[host_name("choose_4")]] kernel void choose<4>(device int *, uint);

kernel void plain(device int *out, uint i [[thread_position_in_grid]]) { out[i] += 1; }
kernel void never(device int *out, uint i [[thread_position_in_grid]]) {
    out[i] += 1;
}
"""

CHOSEN = {
    5: 8, 6: 0, 7: 8, 8: 8, 9: 24, 10: 8,
    18: 8, 19: 8, 20: 8, 22: 1, 23: 1, 24: 0, 26: 7,
    28: 8, 30: 8, 31: 28, 32: 0, 33: 23, 36: 8, 37: 8, 38: 8, 39: 0, 40: 8, 43: 8, 45: 8,
}  # fmt: skip
"""How often each line runs when `choose` runs with 8 threads."""


def run(device: ost.Device, source: str | Path, *names: str) -> np.ndarray:
    out = device.zeros(8, np.int32)
    library = device.library(source)
    encoder = device.command_encoder()
    for name in names:
        encoder.dispatch(library[name], out, threads=8, group_size=4)
    encoder.commit_and_wait()
    return out.numpy()


Sections = dict[tuple[str, str], dict[int, int]]


def read_tracefile(text: str) -> Sections:
    """The line counts of each section, by its test and its file, read strictly as geninfo(1) describes the format."""
    sections: Sections = {}
    record = re.compile(
        r"TN:(\w*)\nSF:(.+)\n((?:FN:\d+,[^,\n]+\n)*(?:FNDA:\d+,[^,\n]+\n)*)FNF:(\d+)\nFNH:(\d+)\n"
        r"((?:DA:\d+,\d+\n)+)LF:(\d+)\nLH:(\d+)\nend_of_record\n"
    )
    at = 0
    while at < len(text):
        section = record.match(text, at)
        assert section is not None, text[at : at + 200]
        functions = {name: int(count) for count, name in re.findall(r"FNDA:(\d+),(.+)", section[3])}
        assert functions.keys() == {*re.findall(r"FN:\d+,(.+)", section[3])}
        assert (len(functions), sum(count > 0 for count in functions.values())) == (int(section[4]), int(section[5]))
        lines = {int(line): int(count) for line, count in re.findall(r"DA:(\d+),(\d+)", section[6])}
        assert (len(lines), sum(count > 0 for count in lines.values())) == (int(section[7]), int(section[8]))
        assert (section[1], section[2]) not in sections
        sections[section[1], section[2]] = lines
        at = section.end()
    return sections


@pytest.mark.parametrize("compiler", [None, *ZIG], ids=["found first", "zig"][: 1 + len(ZIG)])
def test_every_statement_is_counted_for_the_kernel_that_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: str | None
) -> None:
    if compiler is not None:
        monkeypatch.setenv("CXX", compiler)
    path = tmp_path / "cover.metal"
    path.write_text(SOURCE)
    monkeypatch.setattr(line_counts, "_counted", {})
    with settings.override(coverage=str(tmp_path / "unused")), ost.open_device("cpu", checked=True) as device:
        counted = run(device, path, "choose, 3", "plain")
    with ost.open_device("cpu", checked=True) as device:
        assert counted.tolist() == run(device, path, "choose, 3", "plain").tolist()
    ran, lines = line_counts.write(tmp_path / "out.info")
    sections = read_tracefile((tmp_path / "out.info").read_text())
    assert sections["choose__3", str(path)] == CHOSEN
    assert sections["plain", str(path)] == {50: 8}
    everything = sections["", str(path)]
    assert set(everything) == {*CHOSEN, 50, 52}
    assert (ran, lines) == (len(CHOSEN) - 4 + 1, len(everything))
    assert len(sections) == 3


SMALL = """
static int helper(int a) {
    if (a > 100)
        return 1;
    return a;
}
kernel void one(device int *out, uint i [[thread_position_in_grid]]) {
    out[i] = helper(int(i));
}
kernel void never(device int *out, uint i [[thread_position_in_grid]]) {
    out[i] += 1;
}
"""

PROGRAM = f"""
import numpy as np, ostinato as ost
dev = ost.open_device("cpu")
library = dev.library({SMALL!r})
out = dev.zeros(8, np.int32)
encoder = dev.command_encoder()
encoder.dispatch(library["one"], out, threads=8, group_size=4)
encoder.commit_and_wait()
"""


def test_declarations_of_local_arrays_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "arrays.metal"
    source.write_text("""kernel void arrays(device int *out, uint i [[thread_position_in_grid]]) {
    int local[2];
    int first = 1, others[2] = {2, 3};
    for (int k = 0; k < 2; k++) local[k] = others[k];
    out[i] = first + local[1];
}
""")
    monkeypatch.setattr(line_counts, "_counted", {})
    with settings.override(coverage=str(tmp_path / "unused")), ost.open_device("cpu", checked=True) as device:
        assert run(device, source, "arrays").tolist() == [4] * 8
    line_counts.write(tmp_path / "out.info")
    sections = read_tracefile((tmp_path / "out.info").read_text())
    assert sections["arrays", str(source)] == {2: 8, 3: 8, 4: 16, 5: 8}


def test_check_writes_the_lines_of_a_program(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    process = subprocess.run(
        [sys.executable, "-m", "ostinato", "check", "--coverage", "out.info", "program.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert "out.info: 3 of 5 lines of the kernels ran" in process.stderr
    sections = read_tracefile((tmp_path / "out.info").read_text())
    (file,) = (file for name, file in sections if name == "one")
    assert Path(file).read_text() == SMALL, "the source that was passed as text is there to be shown"
    counts = sections["one", file]
    assert counts[8] % 8 == 0 < counts[8]
    assert counts == {3: counts[8], 4: 0, 5: counts[8], 8: counts[8]}
    assert sections["", file] == dict.fromkeys((3, 4, 5, 8, 11), 0)
    assert "\nFNDA:0,never\n" in (tmp_path / "out.info").read_text()
    if shutil.which("lcov"):
        summary = subprocess.run(
            ["lcov", "--summary", "out.info"], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert "60.0% (3 of 5 lines)" in summary.stdout + summary.stderr
        assert "50.0% (1 of 2 functions)" in summary.stdout + summary.stderr


def test_the_setting_writes_at_exit(tmp_path: Path) -> None:
    text = PROGRAM.replace('open_device("cpu")', 'open_device("cpu", checked=True)')
    environment = os.environ | {"OSTINATO_COVERAGE": str(tmp_path / "lines-{pid}.info")}
    process = subprocess.run(
        [sys.executable, "-c", text], env=environment, capture_output=True, timeout=200, check=False
    )
    assert process.returncode == 0, process.stderr
    (written,) = tmp_path.glob("lines-*.info")
    assert {name for name, _ in read_tracefile(written.read_text())} == {"", "one"}


def test_unchecked_kernels_count_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_counts, "_counted", {})
    with settings.override(coverage="unused"), ost.open_device("cpu") as device:
        run(device, SMALL, "one")
    assert line_counts.write(tmp_path / "out.info") == (0, 0)
    assert (tmp_path / "out.info").read_text() == ""


def test_coverage_needs_kernels_that_run(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("")
    arguments = ["check", "--coverage", "out.info", "--structure-only", str(tmp_path / "program.py")]
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, "leave out --structure-only" in result.output) == (2, True)
