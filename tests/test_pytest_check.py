"""`pytest --ostinato-check`: what tests submit is checked, and a test with an error fails with it."""

from __future__ import annotations

from pathlib import Path

import pytest

import ostinato.testing  # noqa: F401  pytester forgets what is loaded first while it runs
from user_projects import install_plugin

pytest_plugins = ["pytester"]

TESTS = """
import numpy as np
import ostinato as ost
import pytest

SOURCE = '''
kernel void inc(device const float *in [[buffer(0)]], device float *out [[buffer(1)]],
                uint i [[thread_position_in_grid]]) { out[i] = in[i] + 1.0f; }
kernel void past(device float *out [[buffer(0)]], uint i [[thread_position_in_grid]]) { out[i + 1] = 1.0f; }
'''

@pytest.fixture(scope="session")
def kernels(ostinato_device):
    return ostinato_device.library(SOURCE)

def submit(device, kernels, *steps):
    x, y = device.zeros(64, np.float32), device.zeros(64, np.float32)
    encoder = device.command_encoder(barriers="manual")
    for step in steps:
        if step == "barrier":
            encoder.memory_barrier()
        elif step == "past":
            encoder.dispatch(kernels["past"], x, threads=64)
        else:
            encoder.dispatch(kernels["inc"], *((x, y) if step == "there" else (y, x)), threads=64, group_size=64)
    encoder.commit_and_wait()

def test_clean(ostinato_device, kernels): submit(ostinato_device, kernels, "there", "barrier", "back")
def test_unordered(ostinato_device, kernels): submit(ostinato_device, kernels, "there", "back")
def test_noted(ostinato_device, kernels): submit(ostinato_device, kernels, "there", "barrier")
def test_stopped(ostinato_device, kernels):
    submit(ostinato_device, kernels, "past")
    print("went on")
def test_wrong_anyway(ostinato_device, kernels):
    submit(ostinato_device, kernels, "there", "back")
    assert 1 == 2

@pytest.fixture
def prepared(ostinato_device, kernels): submit(ostinato_device, kernels, "there", "back")
def test_prepared(prepared): pass
"""


@pytest.fixture
def project(
    pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, private_environment: None
) -> pytest.Pytester:
    install_plugin(tmp_path / "site", monkeypatch)
    pytester.makepyfile(test_kernels=TESTS)
    return pytester


def test_a_test_with_an_error_fails_and_shows_it(project: pytest.Pytester) -> None:
    result = project.runpytest_subprocess("--ostinato-check", "-rA", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=2, failed=3, errors=1)
    text = result.stdout.str()
    assert "went on" not in text
    assert "During handling" not in text
    result.stdout.fnmatch_lines(
        [
            "*error: missing barrier: inc (test_kernels.py:*), inc (test_kernels.py:*): RAW on *",
            "*error: out of bounds: past (test_kernels.py:*): thread 63 *writes*byte 256 of argument 0 'out'*",
            "the test was stopped: it was about to run past*",
            "*assert 1 == 2*",
            "-* Captured ostinato check call -*",
            "*OstinatoWarning: note: redundant barrier: *",
            "ERROR test_kernels.py::test_prepared*",
            "FAILED test_kernels.py::test_unordered*",
            "FAILED test_kernels.py::test_stopped*",
            "FAILED test_kernels.py::test_wrong_anyway*",
        ]
    )


def test_nothing_is_checked_unless_it_is_asked_for(project: pytest.Pytester) -> None:
    result = project.runpytest_subprocess("-k", "unordered or noted or prepared")
    result.assert_outcomes(passed=3)


def test_strict_fails_tests_with_notes(project: pytest.Pytester) -> None:
    result = project.runpytest_subprocess("--ostinato-check-strict", "-k", "clean or noted")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["note: redundant barrier: *"])


def test_families_and_known_findings_are_options_too(project: pytest.Pytester) -> None:
    entry = "[[ignore]]\nkind = '{}'\nkernel = 'inc'\nreason = 'wrong on purpose'\n"
    project.makefile(".toml", known=entry.format("missing barrier") + entry.format("race"))
    chosen = ["--ostinato-check", "--ostinato-check-ignore=known.toml", "-k", "unordered"]
    project.runpytest_subprocess(*chosen, "--ostinato-check-as=apple3").assert_outcomes(passed=1)
    result = project.runpytest_subprocess(*chosen, "--ostinato-check-as=apple1")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --ostinato-check: no GPU family 'apple1'; there are apple2, *"])


REQUESTED = """
import numpy as np

def test_all(ostinato_device):
    made = ostinato_device.library('''#include <metal_stdlib>
    kernel void made(device float *o, device const float *x, device int *n, uint i [[thread_position_in_grid]]) {
        threadgroup float t[64];
        t[i] = x[i];
        o[i] = metal::sqrt(t[i ^ 32]);
        n[i] = n[i] + 2147483647;
    }''')["made"]
    x, o = ostinato_device.array(-np.ones(64, np.float32)), ostinato_device.zeros(65, np.float32)
    encoder = ostinato_device.command_encoder()
    encoder.dispatch(made, o, x, ostinato_device.array(np.ones(64, np.int32)), threads=64, group_size=64)
    encoder.commit_and_wait()
"""


def test_races_inside_of_kernels_are_found_and_what_is_asked_for(project: pytest.Pytester) -> None:
    project.makepyfile(test_kernels=REQUESTED)
    options = {"nan": "not a number", "overflow": "signed overflow", "unwritten": "not written"}
    for chosen in ((), tuple(options)):
        arguments = (f"--ostinato-check-{name}" for name in chosen)
        result = project.runpytest_subprocess("--ostinato-check", *arguments, "-rA", "-p", "no:cacheprovider")
        result.assert_outcomes(failed=1)
        text = result.stdout.str()
        assert "error: race: made" in text
        for name, kind in options.items():
            assert (f": {kind}: made" in text) == (name in chosen)
