"""Whether a driver accepts PTX, by the assembler of NVIDIA's toolkit, which needs no GPU."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ostinato.backends.cuda.assembling import _for_driver


def assemble(ptx: str, folder: Path, architecture: str = "sm_90") -> None:
    """Fails with the assembler's message; skips what is left of a test where there is no assembler."""
    program = shutil.which("ptxas")
    if program is None:
        pytest.skip("ptxas is not installed")
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    major, minor = re.findall(r"release (\d+)\.(\d+)", version)[0]
    source, product = folder / "kernels.ptx", folder / "kernels.cubin"
    source.write_text(_for_driver(ptx, 1000 * int(major) + 10 * int(minor)), encoding="utf-8")
    command = [program, f"--gpu-name={architecture}", "--opt-level=1", str(source), f"--output-file={product}"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert not result.returncode, result.stderr
