"""The CUDA target's simdgroup functions mean what they should, on a warp of host threads."""

from __future__ import annotations

import subprocess
from pathlib import Path

import ostinato.msl
from ostinato.native import toolchain

SOURCE = Path(__file__).parent / "emulated_warp.cpp"
INCLUDE = Path(ostinato.msl.__file__).parent / "include"


def test_lanes_exchange_the_right_values_whoever_is_there(tmp_path: Path) -> None:
    program = tmp_path / "emulated_warp"
    compiler = toolchain.find().command
    built = subprocess.run(
        [*compiler, "-std=c++17", "-O1", "-pthread", "-w", f"-I{INCLUDE}", str(SOURCE), "-o", str(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    ran = subprocess.run([program], capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stdout
    compared, different = (int(word) for word in ran.stdout.split() if word.isdigit())
    assert different == 0
    assert compared > 8_000
