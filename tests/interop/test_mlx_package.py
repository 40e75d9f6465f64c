"""examples/mlx_package: a package that only knows MLX, under pytest."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from user_projects import ROOT, install_plugin

pytest_plugins = ["pytester"]
pytest.importorskip("mlx.core", reason="mlx is not installed; `pip install '.[oracle]'`")


@pytest.fixture
def package(
    pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, private_environment: None
) -> pytest.Pytester:
    install_plugin(tmp_path / "site", monkeypatch)
    shutil.copytree(ROOT / "examples" / "mlx_package", pytester.path, dirs_exist_ok=True)
    return pytester


def test_its_tests_pass_and_find_a_wrong_kernel(package: pytest.Pytester) -> None:
    package.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=8)
    source = package.path / "swiglu" / "__init__.py"
    text = source.read_text()
    assert "1.0f - s" in text
    source.write_text(text.replace("1.0f - s", "2.0f - s"))
    package.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=6, failed=2)
