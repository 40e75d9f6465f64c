"""Runs the tests of the Metal backend, and prints a report that its owner can send back: `make test-metal`.

On a Mac with Metal the conformance suite runs on the GPU; elsewhere on the simulated devices.
"""

from __future__ import annotations

import platform
import subprocess
import sys
import tempfile
import traceback
import xml.etree.ElementTree as ElementTree
from importlib import metadata
from pathlib import Path

import numpy as np

import metal_sim
import ostinato as ost
from small_kernels import KERNELS

HERE = Path(__file__).parent
REPORT = Path("metal-report.txt")


def main() -> int:
    """Print the report, and keep it in a file."""
    metal_sim.install()
    metal = next(info for info in ost.devices() if info.name == "metal")
    names = ["metal"] if metal.available else list(metal_sim.NAMES)
    parts = ["# Ostinato on Metal", _machine(metal)]
    for name in names:
        try:
            parts.append(_device(name))
        except Exception:
            parts.append(f"## {name}\n\n{traceback.format_exc(limit=8)}")
    failed, results = _tests(names)
    parts.append(results)
    report = "\n\n".join(parts) + "\n"
    REPORT.write_text(report, encoding="utf-8")
    print(report)
    if metal.available:
        print(
            f"Thank you. Please send {REPORT} back, as an issue of this project: it is the first that we know of a Mac."
        )
    return 1 if failed else 0


def _machine(metal: ost.DeviceInfo) -> str:
    try:
        pyobjc = metadata.version("pyobjc-framework-Metal")
    except metadata.PackageNotFoundError:
        pyobjc = "not installed"
    facts = {
        "ostinato": ost.__version__,
        "system": f"{platform.system()} {platform.mac_ver()[0] or platform.release()}, {platform.machine()}",
        "python": platform.python_version(),
        "pyobjc-framework-Metal": pyobjc,
        "metal": metal.capabilities.description if metal.capabilities else metal.reason,
    }
    return "\n".join(f"{name}: {value}" for name, value in facts.items())


def _device(name: str) -> str:
    """What a device says of itself, and a profile of a small graph."""
    with ost.open_device(name) as dev:
        capabilities = dev.capabilities
        lines = [f"## {name}: {capabilities.description}", ""]
        lines += [f"{what}: {value}" for what, value in capabilities.details.items()]
        lines.append(f"sampling: {capabilities.sampling.name.lower()} {capabilities.sampling_reason}".rstrip())
        lines.append(f"clock: ±{capabilities.clock_uncertainty_ns:.0f} ns, steps of {capabilities.timer_step_ns:g} ns")
        kernels = dev.library(KERNELS)
        x, y = dev.zeros(1 << 16, np.float32), dev.zeros(1 << 16, np.float32)

        def token(enc: ost.CommandEncoder) -> None:
            for _ in range(20):
                enc.dispatch(kernels["inc_one"], x, y, threads=x.size)
                enc.dispatch(kernels["inc_one"], y, x, threads=x.size)

        run = dev.capture(token, label="token").instantiate()
        with ost.profile() as prof:
            for _ in range(100):
                run.replay()
        right = bool((x.numpy() == 4000).all())
        return "\n".join([*lines, f"100 replays of 40 dispatches gave the right result: {right}", "", str(prof)])


def _tests(names: list[str]) -> tuple[int, str]:
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={results}", "tests/metal", "tests/conformance"]
        # One process where the tests share one GPU.
        command += ["-n", "auto"] if names != ["metal"] else ["-n", "0"]
        command += [part for name in names for part in ("--device", name)]
        subprocess.run(command, cwd=HERE.parent, check=False)
        suite = ElementTree.parse(results).getroot()[0]
    cases = suite.findall("testcase")
    failures = [(case, failure) for case in cases for failure in (*case.findall("failure"), *case.findall("error"))]
    skipped = len(suite.findall("testcase/skipped"))
    passed = len(cases) - len(failures) - skipped
    lines = [f"## Tests on {', '.join(names)}", "", f"{passed} passed, {len(failures)} failed, {skipped} skipped"]
    for case, failure in failures:
        message = (failure.get("message") or "").strip().splitlines()
        lines.append(f"- {case.get('classname')}::{case.get('name')}: {message[0] if message else 'no message'}")
    return len(failures), "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
