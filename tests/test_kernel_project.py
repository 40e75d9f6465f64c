"""examples/kernel_project, as somebody who copies it meets it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from user_projects import ROOT, install_plugin

pytest_plugins = ["pytester"]

EXAMPLE = ROOT / "examples" / "kernel_project"
SHORT = ("-k", "not 4096", "-p", "no:cacheprovider")


@pytest.fixture
def project(
    pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, private_environment: None
) -> pytest.Pytester:
    install_plugin(tmp_path / "site", monkeypatch)
    shutil.copytree(
        EXAMPLE, pytester.path, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".*cache*", "__pycache__")
    )
    return pytester


def test_its_tests_pass_and_its_bench_is_kept(project: pytest.Pytester) -> None:
    result = project.runpytest_subprocess(*SHORT, "--ostinato-save", "old")
    result.assert_outcomes(passed=12, deselected=1)
    result.stdout.fnmatch_lines(
        ["=* ostinato benches *=", "tests/test_speed.py::test_rms_norm_speed[[]cpu-1024[]] * ?s*"]
    )
    assert len(list((project.path / ".ostinato" / "old").rglob("*.ostinato"))) == 1


def test_its_tests_find_a_wrong_kernel(project: pytest.Pytester) -> None:
    source = project.path / "kernels" / "norm.metal"
    text = source.read_text()
    assert "i < columns" in text
    source.write_text(text.replace("i < columns", "i + 1 < columns"))
    result = project.runpytest_subprocess(*SHORT, "tests/test_norm.py")
    result.assert_outcomes(passed=1, failed=10)
    result.stdout.fnmatch_lines(["E *kernel 'rms_norm' on 'cpu', argument 2 'y': * values are wrong *"])


def test_options_that_documents_name_exist(project: pytest.Pytester) -> None:
    known = set(re.findall(r"--ostinato-[a-z-]+", project.runpytest_inprocess("--help").stdout.str()))
    named = {
        option
        for path in (EXAMPLE / "README.md", EXAMPLE / "compare.sh", ROOT / "docs" / "testing.md")
        for option in re.findall(r"--ostinato-[a-z-]+", path.read_text())
    }
    assert named == known
