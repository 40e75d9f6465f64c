"""Python texts run in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

Script = Callable[..., "subprocess.CompletedProcess[str]"]


def run_script(
    text: str, *arguments: str, device: str = "cpu", timeout: float = 120, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs a text with `ost`, `np`, `KERNELS`, `SLOW_STEPS` and the name of the `DEVICE` under test at hand."""
    return subprocess.run(
        [sys.executable, "-c", prelude(device) + textwrap.dedent(text), *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def prelude(device: str) -> str:
    """The text that puts these names at hand."""
    text = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
    text += "import numpy as np, ostinato as ost\nfrom small_kernels import KERNELS, SLOW_STEPS\n"
    text += f"DEVICE = {device!r}\n"
    # A process started in the background by a shell ignores Ctrl-C, and so do its children unless they are told.
    text += "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    if device.startswith("metal-sim"):
        text += "import metal_sim; metal_sim.install()\n"
    if device == "small":
        text += "import small_device; small_device.install()\n"
    return text
