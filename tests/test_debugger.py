"""Kernels under a debugger: gdb stops at the lines of the source, shows its variables, and stays in a thread."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import ostinato as ost
from compilers import ZIG
from ostinato.base import cache
from ostinato.cli import main
from ostinato.msl import parse
from ostinato.msl.debug_lines import with_lines
from ostinato.msl.tokens import lex

PAGE = Path(__file__).parent.parent / "docs" / "debugging.md"
needs_gdb = pytest.mark.skipif(shutil.which("gdb") is None, reason="there is no gdb on this machine")


def block(language: str, start: int = 0) -> str:
    """A fenced block of the page."""
    blocks = re.findall(rf"^```{language}[^\n]*\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return str(blocks[start])


def shown(text: str) -> str:
    """What gdb prints, without addresses, folders and line breaks, which differ from run to run."""
    text = re.sub(r"0x[0-9a-f]+", "0x", text)
    return " ".join(re.sub(r" at \S*/", " at ", re.sub(r"\s+", " ", text)).split())


def debug(folder: Path, script: str, commands: list[str], *options: str, **environment: str) -> list[str]:
    """Runs a script under `ostinato debug`; what gdb prints before the first command, and for each command."""
    (folder / "script.py").write_text(script)
    commands = ["set confirm off", "set width 0", "set debuginfod enabled off", *commands]
    process = subprocess.run(
        [sys.executable, "-m", "ostinato", "debug", *options, "script.py"],
        input="\n".join([*commands, "kill", "quit"]),
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    outputs = process.stdout.split("(gdb) ")
    assert len(outputs) > len(commands), process.stdout + process.stderr
    return [outputs[0], *outputs[4 : len(commands) + 1]]


@needs_gdb
@pytest.mark.parametrize("compiler", [None, *ZIG], ids=["found first", "zig"][: 1 + len(ZIG)])
def test_gdb_runs_as_the_page_shows(tmp_path: Path, compiler: str | None) -> None:
    (tmp_path / "total.metal").write_text(block("metal"))
    first, then = block("text"), block("text", 1)
    expected = re.split(r"^\(gdb\) ", first + then, flags=re.MULTILINE)[1:]
    commands = [each.partition("\n")[0] for each in expected]
    place = re.search(r"--break '(.*)'", first)
    assert place is not None
    environment = {} if compiler is None else {"CXX": compiler}
    _, *outputs = debug(tmp_path, block("python"), commands, "--break", place[1], **environment)
    assert len(commands) > 15
    for command, text, output in zip(commands, expected, outputs, strict=True):
        for line in text.splitlines()[1:]:
            assert shown(line) in shown(output), (command, output)


TYPES = """
#include <metal_stdlib>
using namespace metal;
struct Pair { float2 first; half second; };
METAL_FUNC float twice(float a) {
    return a + a;
}
template <typename T>
kernel void types(device T *out [[buffer(0)]], device atomic_uint *count [[buffer(1)]],
                  constant Pair &pair [[buffer(2)]], uint2 place [[thread_position_in_grid]]) {
    bfloat b = bfloat(1.5f);
    half4 h = half4(0.5h, 1.0h, 2.0h, 4.0h);
    packed_float3 p = float3(1, 2, 3);
    float2x2 m = float2x2(1.0f);
    bool3 flags = bool3(true, false, true);
    float z = twice(h.y) + m[0][0] + float(b);
    out[place.x] = T(z + pair.first.y);
    atomic_fetch_add_explicit(count, 1, memory_order_relaxed);
}
template [[host_name("types_float")]]
kernel void types<float>(device float *, device atomic_uint *, constant Pair &, uint2);
"""


@needs_gdb
def test_gdb_shows_values_of_metals_types_in_a_source_passed_as_text(tmp_path: Path) -> None:
    script = f"""
import numpy as np, ostinato as ost
dev = ost.open_device("cpu", debug=True)
kernel = dev.library({TYPES!r})["types_float"]
out, count = dev.zeros(4, np.float32), dev.zeros(1, np.uint32)
pair = dev.array(np.array([0, 2.5, 0, 0], np.float32))
encoder = dev.command_encoder()
encoder.dispatch(kernel, out, count, pair, threads=(4, 2), group_size=(2, 2))
encoder.commit_and_wait()
"""
    commands = ["break types_float", "break twice if thread_position_in_grid.y == 1", "run", "delete 1", "continue"]
    commands += ["print thread_position_in_grid", "delete", "tbreak types_float.metal:18 if place.x == 3", "continue"]
    commands += ["info locals", "info args", "print *count", "print pair.first", "list 5,7", "backtrace"]
    _, *outputs = debug(tmp_path, script, commands)
    said = dict(zip(commands[5:], outputs[5:], strict=True))
    assert re.search(r"types_float \(.*types_float\.metal:20", outputs[2])
    assert "[now in thread (0, 1, 0) of the grid: thread (0, 1, 0) of group (0, 0, 0)]" in outputs[4]
    assert said["print thread_position_in_grid"] == "$1 = {0, 1, 0}\n"
    assert "[now in thread (3, 0, 0) of the grid: thread (1, 0, 0) of group (1, 0, 0)]" in said["continue"]
    values = said["info locals"].splitlines()
    assert values[:3] == ["b = 1.5", "h = {0.5, 1, 2, 4}", "p = {1, 2, 3}"]
    assert values[3:5] == ["m = {{1, 0}, {0, 1}}", "flags = {true, false, true}"]
    assert "place = {3, 0}" in said["info args"].splitlines()
    assert "optimized out" not in "".join(outputs)
    assert said["print *count"] == "$2 = 5\n"
    assert said["print pair.first"] == "$3 = {0, 2.5}\n"
    assert "6\t    return a + a;" in said["list 5,7"]
    assert "#0  types<float> (" in said["backtrace"]


def test_the_setting_and_the_option_build_kernels_for_a_debugger(monkeypatch: pytest.MonkeyPatch) -> None:
    with ost.open_device("cpu", debug=True, workers=2) as device:
        kernel = device.library(TYPES)["types_float"]
        assert str(kernel.execution) == "fibers: the device is opened with debug=True"
        assert device.capabilities.workers == 1
        text = cache.text_file("types_float.metal", TYPES.encode())
        assert text.read_text() == TYPES
        assert text.stat().st_mode & 0o077 == 0
    monkeypatch.setenv("OSTINATO_DEBUG", "1")
    with ost.open_device("cpu") as device, ost.open_device("cpu", checked=True) as checked:
        assert str(device.library(TYPES)["types_float"].execution) == "fibers: the device is opened with debug=True"
        assert str(checked.library(TYPES)["types_float"].execution) == "fibers: the device is opened with checked=True"
    monkeypatch.setenv("OSTINATO_DEBUG", "0")
    with ost.open_device("cpu", debug=True) as device:
        assert device.library(TYPES)["types_float"].execution.way == "loop"


@pytest.mark.parametrize(
    ("options", "message"), [({"debug": 1}, "debug=1"), ({"debug": True, "checked": True}, "one of")]
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ost.DeviceUnavailable, match=message):
        ost.open_device("cpu", **options)


def test_a_file_that_was_damaged_in_the_cache_is_written_again() -> None:
    path = cache.text_file("some.metal", b"kernel")
    path.write_bytes(b"other")
    assert cache.text_file("some.metal", b"kernel").read_bytes() == b"kernel"
    path.unlink()
    path.symlink_to("/dev/null")
    assert cache.text_file("some.metal", b"kernel") == path
    assert not path.is_symlink()
    assert path.read_bytes() == b"kernel"


def test_compile_errors_keep_their_columns() -> None:
    with ost.open_device("cpu", debug=True) as device, pytest.raises(ost.KernelCompileError) as caught:
        device.library("kernel void bad(device int *out) {\n    out[0] = nope;\n}\n")
    assert (caught.value.line, caught.value.column) == (2, 14)


HOSTILE = 'a "b\\ \n#error ü.metal'


def test_the_name_of_a_file_is_data(tmp_path: Path) -> None:
    path = tmp_path / HOSTILE
    path.write_text("kernel void one(device int *out) { out[0] = 1; }")
    with ost.open_device("cpu", debug=True) as device:
        out = device.zeros(1, np.int32)
        encoder = device.command_encoder()
        encoder.dispatch(device.library(path)["one"], out, threads=1)
        encoder.commit_and_wait()
        assert out.numpy()[0] == 1


WORDS = """
#define PLUS(a, b) ((a) + \\
  (b) + LIMIT)
#define LIMIT (3 >> 1)
template <typename T> struct Box { T value ; } ;
kernel void one ( device Box < Box < int > > * out , uint i [[ thread_position_in_grid ]] ) {
  threadgroup int tile [ 8 ] ; tile [ i ] = PLUS ( i , out [ 0 ] . value . value ) >> 2 ;
  threadgroup_barrier ( mem_flags :: mem_threadgroup ) ;
  out [ i ] . value . value = tile [ PLUS ( i >> 1 , 2 ) ] ;
}
"""


@given(st.lists(st.integers(0, 60), max_size=8), st.booleans())
def test_every_token_stands_on_its_line(breaks: list[int], moved: bool) -> None:
    words = re.split(r"(?<=\S) (?=\S)", WORDS.partition("template")[2])
    for at in sorted(breaks, reverse=True):
        words.insert(at, "\n")
    source = (
        WORDS.partition("template")[0] + ('#line 7 "other.metal"\n' if moved else "") + "template " + " ".join(words)
    )
    translation = parse("#include <metal_stdlib>\nusing namespace metal;\n" + source).translate("cpu", fibers=True)
    program = translation.text.partition('#line 1 "<translation>"\n')[2]
    placed = with_lines(program, translation.source_map, lambda token: (token.file, token.line))
    plain = [token for line in lex(program, "") for token in line]
    expected = [translation.source_map.token(token.line, token.column) for token in plain]
    tokens, place = [], ("", 0)
    for line in placed.splitlines():
        if directive := re.fullmatch(r'#line (\d+) "(.*)"', line):
            place = (directive[2], int(directive[1]))
            continue
        tokens += [(token.text, *place) for each in lex(line, "") for token in each]
        place = (place[0], place[1] + 1)
    assert [text for text, *_ in tokens] == [token.text for token in plain]
    for (_, file, number), token in zip(tokens, expected, strict=True):
        assert token is None or (file, number) == (token.file, token.line)


def test_the_command_prints_how_it_runs_gdb(tmp_path: Path) -> None:
    script = tmp_path / "a script.py"
    script.write_text("")
    result = CliRunner().invoke(
        main, ["debug", "--print", "--break", "x.metal:3 if i == 1", str(script), "--steps", "2"]
    )
    words = shlex.split(result.output)
    assert words[:4] == ["OSTINATO_DEBUG=1", "gdb", "-q", "-x"]
    assert Path(words[4]).is_file()
    assert words[5:] == ["-ex", "break x.metal:3 if i == 1", "--args", sys.executable, str(script), "--steps", "2"]


def test_a_machine_without_gdb_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "script.py").write_text("")
    monkeypatch.setenv("PATH", str(tmp_path))
    result = CliRunner().invoke(main, ["debug", str(tmp_path / "script.py")])
    assert (result.exit_code, "no gdb on the path" in result.output) == (1, True)
