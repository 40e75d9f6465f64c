"""`ostinato check`: real programs in real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from scripting import Script

PRELUDE = """\
import sys
import numpy as np
import ostinato as ost

dev = ost.open_device("cpu")
lib = dev.library('''
kernel void inc(device const float *in [[buffer(0)]], device float *out [[buffer(1)]],
                uint id [[thread_position_in_grid]]) { out[id] = in[id] + 1.0f; }
kernel void append(device const float *key [[buffer(0)]], device float *cache [[buffer(1)]],
                   constant uint &pos [[buffer(2)]], uint id [[thread_position_in_grid]]) {
    cache[pos * 64 + id] = key[id];
}
kernel void past_the_end(device float *out [[buffer(0)]], uint id [[thread_position_in_grid]]) { out[id + 1] = 1.0f; }
''')
x, y, z = (dev.array(np.arange(64, dtype=np.float32)) for _ in range(3))
"""
LINES = PRELUDE.count("\n")

CLEAN = """\
for step in range(3):
    enc = dev.command_encoder()
    enc.dispatch(lib["inc"], x, y, threads=64)
    enc.dispatch(lib["inc"], y, z, threads=64)
    enc.commit_and_wait()
print("result", z.numpy()[0], ost.dispatch_count(), ost.cmd_buf_count(), ost.sync_count())
"""

RACY = """\
enc = dev.command_encoder(barriers="manual")
with enc.scope("layer"):
    enc.dispatch(lib["inc"], x, y, threads=64)
    enc.dispatch(lib["inc"], y, z, threads=64)
enc.memory_barrier()
enc.commit_and_wait()
"""


@pytest.fixture
def check(tmp_path: Path):  # type: ignore[no-untyped-def]
    def run(text: str, *options: str, arguments: tuple[str, ...] = (), **environment: str):  # type: ignore[no-untyped-def]
        program = tmp_path / "program.py"
        program.write_text(PRELUDE + textwrap.dedent(text))
        return ostinato_check(*options, str(program), *arguments, folder=tmp_path, **environment)

    return run


def ostinato_check(*command: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ostinato", "check", *command],
        env=os.environ | {"COLUMNS": "100"} | environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def squeezed(text: str) -> str:
    return " ".join(text.split())


def test_a_clean_program_has_status_0_and_is_told_what_was_checked(check: Any) -> None:
    result = check(CLEAN)
    assert result.returncode == 0, result.stdout + result.stderr
    # It ran as it would have, and counts only its own work: 6 dispatches, 3 command buffers, 4 waits.
    assert "result 2.0 6 3 4" in result.stdout
    text = squeezed(result.stdout)
    assert "3 command lists submitted, 1 distinct checked" in text
    assert "0 errors, 0 notes; 2 dispatches checked; 2 run alone, 2 in the checked build, 5 runs compared" in text
    assert not result.stderr


def test_findings_name_lines_bytes_and_cure_and_give_status_1(check: Any) -> None:
    result = check(RACY)
    assert result.returncode == 1
    assert all(len(line) <= 100 for line in result.stdout.splitlines())
    text = squeezed(result.stdout)
    for expected in ("missing barrier", "race", "redundant barrier", "layer/inc", "RAW on memory", "2 errors, 1 note"):
        assert expected in text
    for line in (LINES + 3, LINES + 4, LINES + 5):
        assert f"program.py:{line}" in text
    assert not result.stderr


def test_json_holds_the_same_and_nothing_else_is_on_standard_output(check: Any) -> None:
    result = check("import os\nprint('chatter')\nos.system('echo more chatter')\n" + RACY, "--json")
    assert result.returncode == 1
    assert "chatter" in result.stderr
    assert "more chatter" in result.stderr
    found = json.loads(result.stdout)
    assert found["ok"] is False
    assert [one["kind"] for one in found["findings"]] == ["missing barrier", "race", "redundant barrier"]
    missing = found["findings"][0]
    assert [place["line"] for place in missing["places"]] == [LINES + 6, LINES + 7]
    assert missing["reasons"][0]["kind"] == "RAW"
    assert found["lists"] == {"submitted": 1, "checked": 1, "checked_with_other_values": 0}


def test_structure_only_runs_nothing_but_the_program(check: Any) -> None:
    text = squeezed(check(RACY, "--structure-only").stdout)
    assert "missing barrier" in text
    assert "race " not in text
    assert "not checked: actual accesses of kernels, and races (--structure-only)" in text


def test_replays_are_looked_at_once_and_their_values_each_time(check: Any) -> None:
    replays = """\
        cache = dev.zeros((4, 64), np.float32)
        position = ost.param("pos", np.uint32)
        run = dev.capture(lambda enc: enc.dispatch(lib["append"], x, cache, position, threads=64)).instantiate()
        for pos in [0, 1, 2, 3, 3, *map(int, sys.argv[1:])]:
            run.replay(pos=pos).wait()
            print("ran with", pos)
    """
    good = check(replays)
    assert good.returncode == 0, good.stdout
    assert "5 command lists submitted, 1 distinct checked, 3 with other values" in squeezed(good.stdout)
    assert "other values (" not in good.stdout
    bad = check(replays, arguments=("4",))
    assert bad.returncode == 1
    assert "thread 0 of group 0" in squeezed(bad.stdout)
    assert "ran with 3" in bad.stdout
    assert "ran with 4" not in bad.stdout


def test_a_list_is_stopped_by_values_that_came_later(check: Any) -> None:
    put = """\
        key, cache = dev.zeros(1, np.float32), dev.zeros(8 * 64, np.float32)
        for at in range(12):
            enc = dev.command_encoder()
            enc.dispatch(lib["append"], key, cache, at, threads=1)
            enc.commit_and_wait()
            print("ran with", at)
    """
    result = check(put)
    assert result.returncode == 1
    assert "ran with 7" in result.stdout
    assert "ran with 8" not in result.stdout
    text = squeezed(result.stdout)
    assert "9 command lists submitted, 1 distinct checked, 8 with other values" in text
    assert "the program was stopped: it was about to run append" in text


WATCHED = """\
from contextlib import nullcontext
from ostinato import program
from ostinato.audit.check import Options, Watcher
dev = ost.open_device("cpu")
lib = dev.library('''
#include <metal_stdlib>
using namespace metal;
kernel void put(device float *o [[buffer(0)]], constant uint &at [[buffer(1)]]) { o[at] = 1.0f; }
kernel void until(device atomic_uint *go [[buffer(0)]], constant uint &enough [[buffer(1)]]) {
    while (atomic_load_explicit(go, memory_order_relaxed) < enough) {}
}
''')
def check(kernel, buffer, values, **options):
    watcher = Watcher(Options(**options), lambda: nullcontext(lambda what: None))
    ran = []
    with watcher.installed():
        try:
            for value in values:
                enc = dev.command_encoder()
                enc.dispatch(lib["put"], dev.zeros(64, np.float32), 5, threads=1)
                enc.dispatch(lib[kernel], buffer, value, threads=1)
                enc.commit_and_wait()
                ran.append(value)
        except program.Stop:
            pass
    result = watcher.result(0)
    print(ran, result.submitted, result.distinct, result.with_other_values, result.ok)
    print(*(one.kind for one in result.findings), result.stopped, *result.coverage.unchecked, sep="; ")
"""


@pytest.mark.parametrize(
    ("options", "looked_at", "said"),
    [
        ("max_values=3", 3, "2 lists with other values (at most 3 of each list, for 10 s"),
        ("values_s=0.0", 0, "6 lists with other values (at most 256 of each list, for 0 s"),
        ("values_s=1e-9", 0, "other values, from put on: their time limit is used up"),
        ("run=False", 0, "--structure-only"),
    ],
)
def test_values_beyond_the_limits_are_counted(script: Script, options: str, looked_at: int, said: str) -> None:
    values = "[0, 1, 2, 2, 3, 0, 4, 5]"
    result = script(WATCHED + f"check('put', dev.zeros(8, np.float32), {values}, {options})")
    assert f"{values} 8 1 {looked_at} True" in result.stdout, result.stdout + result.stderr
    assert said in result.stdout


def test_values_that_there_was_no_time_for_stay_unknown(script: Script) -> None:
    result = script(WATCHED + "check('put', dev.zeros(8, np.float32), [0, 1, 1, 1], values_s=1e-9)")
    assert "2 lists with other values" in result.stdout, result.stdout + result.stderr


@pytest.mark.parametrize("values", ["[1]", "[0, 1]"])
def test_a_program_is_not_let_run_what_never_ends(script: Script, values: str) -> None:
    result = script(WATCHED + f"check('until', dev.zeros(1, np.uint32), {values}, limit_s=0.5)", timeout=60)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("[] 1 1 0 True" if values == "[1]" else "[0] 2 1 0 True")
    assert "took too long; it was about to run until" in result.stdout
    assert "which did not end within 0.5 s" in result.stdout


def test_a_kernel_out_of_bounds_is_named_before_the_program_runs_it(check: Any) -> None:
    result = check(
        """\
        enc = dev.command_encoder()
        enc.dispatch(lib["past_the_end"], x, threads=64)
        try:
            enc.commit_and_wait()
        except Exception:
            pass
        print("went on")
        """
    )
    assert result.returncode == 1
    text = squeezed(result.stdout)
    assert "out of bounds" in text
    assert "past_the_end" in text
    assert "thread 63 of group 0" in text
    assert f"program.py:{LINES + 2}" in text
    assert "the program was stopped: it was about to run past_the_end" in text
    assert "went on" not in text


def test_why_lists_the_inferred_barriers(check: Any) -> None:
    assert "1 inferred barrier (--why for the reasons)" in squeezed(check(CLEAN).stdout)
    text = squeezed(check(CLEAN, "--why").stdout)
    assert f"inc (program.py:{LINES + 4}) RAW on memory" in text


def test_the_program_is_the_main_module_with_its_arguments_and_folder(check: Any, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("value = 7\n")
    result = check("import beside\nprint(__name__, sys.argv[1:], beside.value)\n", arguments=("--json", "-x", "3"))
    assert result.returncode == 0
    assert "__main__ ['--json', '-x', '3'] 7" in result.stdout
    assert "0 command lists submitted" in result.stdout


def test_an_exception_of_the_program_is_its_own(check: Any) -> None:
    result = check("def deep():\n    dev.empty(-1, np.float32)\ndeep()\n")
    assert result.returncode == 1
    assert f'program.py", line {LINES + 3}' in result.stderr
    assert f'program.py", line {LINES + 2}, in deep' in result.stderr
    assert "ostinato/" not in result.stderr.replace("ostinato/errors", "")
    assert "runpy" not in result.stderr
    assert "the program ended with status 1" in result.stdout


@pytest.mark.parametrize(("leave", "status"), [("sys.exit()", 0), ("sys.exit(3)", 3), ("sys.exit('done for')", 1)])
def test_the_programs_exit_status_is_passed_on(check: Any, leave: str, status: int) -> None:
    result = check(CLEAN + leave + "\n")
    assert result.returncode == status
    assert ("done for" in result.stderr) == (status == 1)


def test_what_is_wrong_beats_the_programs_own_status(check: Any) -> None:
    assert check(RACY + "sys.exit(0)\n").returncode == 1
    assert check("try:\n" + textwrap.indent(textwrap.dedent(RACY), "    ") + "except Exception: pass\n").returncode == 1


def test_a_function_of_a_module_can_be_checked(tmp_path: Path) -> None:
    body = textwrap.indent(RACY, "    ")
    (tmp_path / "trainer.py").write_text(PRELUDE + "def main():\n" + body)
    result = ostinato_check("--structure-only", "trainer:main", folder=tmp_path)
    assert result.returncode == 1
    assert f"trainer.py:{LINES + 5}" in result.stdout
    for nonsense in ("trainer", "nosuch.py", "trainer:"):
        wrong = ostinato_check(nonsense, folder=tmp_path)
        assert wrong.returncode == 2
        assert "Traceback" not in wrong.stderr
    missing = ostinato_check("trainer:nosuch", folder=tmp_path)
    assert missing.returncode == 1
    assert "nosuch" in missing.stderr


def test_lists_beyond_the_limit_are_counted(check: Any) -> None:
    lists = """\
        for size in (8, 16, 32):
            enc = dev.command_encoder()
            enc.dispatch(lib["inc"], x, y, threads=size)
            enc.commit_and_wait()
    """
    result = check(lists, "--max-lists", "1")
    assert result.returncode == 0
    assert "3 command lists submitted, 1 distinct checked" in result.stdout
    assert "beyond the first 1 lists (--max-lists) (2 times)" in squeezed(result.stdout)


def test_a_crash_of_the_audit_itself_is_not_swallowed(check: Any) -> None:
    broken = """\
        import ostinato.audit.check
        def broken(*_, **__):
            raise RuntimeError("the audit is broken")
        ostinato.audit.check.audit = broken
        try:
            enc = dev.command_encoder()
            enc.dispatch(lib["inc"], x, y, threads=64)
            enc.commit_and_wait()
        except Exception:
            print("caught")
    """
    result = check(broken)
    assert result.returncode == 1
    assert "caught" not in result.stdout
    assert "RuntimeError: the audit is broken" in result.stderr


def test_gates_of_the_program_do_not_reach_the_audits_devices(check: Any) -> None:
    other = "import os\nos.environ['OSTINATO_DEVICE'] = 'nosuch'\n"
    result = check(other + CLEAN.replace("range(3)", "range(1)"), OSTINATO_BARRIERS="serial")
    assert result.returncode == 0, result.stdout
    assert "2 run alone, 2 in the checked build" in squeezed(result.stdout)
    assert "races: the list is serial" in squeezed(result.stdout)


def test_a_program_whose_device_is_lost_is_told_so_as_ever(check: Any) -> None:
    lost = """\
        text = "kernel void far(device float *x [[buffer(0)]]) { uint n = uint(x[0]); x[0] = 1u / (n - n); }"
        far = dev.library(text)["far"]
        enc = dev.command_encoder()
        enc.dispatch(far, x, threads=1)
        enc.commit()
        enc = dev.command_encoder()
        enc.dispatch(lib["inc"], x, y, threads=64)
        enc.commit_and_wait()
    """
    result = check(lost)
    assert result.returncode == 1
    assert "KernelFault" in result.stderr
    assert "division by zero" in result.stdout
    assert "far" in result.stdout
