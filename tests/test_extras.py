"""What errors say about optional packages is what `pyproject.toml` has."""

from __future__ import annotations

import tomllib
from pathlib import Path

from ostinato.base.extras import PACKAGES, install_command


def test_extras_name_the_packages_of_the_project_file() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    optional = project["project"]["optional-dependencies"]
    for extra, packages in PACKAGES.items():
        assert packages.split() == [requirement.partition(";")[0] for requirement in optional[extra]]


def test_the_command_installs_packages_that_are_published() -> None:
    assert install_command("cuda") == "pip install 'cuda-bindings>=13' 'nvidia-cuda-nvrtc>=13'"
