"""Projects of users that test their kernels, in an environment where the package is installed with its entry points."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

import plug_ins

ROOT = Path(__file__).parent.parent
PLUGIN = "pytest11"


def install_plugin(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Let pytest find the plugin as it does where the package is installed, in this process and in those it starts."""
    folder.mkdir()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    plug_ins.write(folder, "ostinato-under-test", project["entry-points"][PLUGIN], PLUGIN)
    (info,) = folder.glob("*.dist-info")
    (info / "RECORD").write_text("ostinato/__init__.py,,\n")
    patch.syspath_prepend(str(folder))
    # Runs of pytest inside of this process would take the signals of faults away from the runtime, for good.
    patch.setenv("PYTEST_ADDOPTS", "-p no:faulthandler")
    path = [str(folder), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, path)))
