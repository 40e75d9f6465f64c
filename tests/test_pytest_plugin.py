"""The pytest plugin, as the projects of its users meet it: options, devices, and how a wrong kernel is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

import metal_sim
import ostinato.testing  # noqa: F401  pytester forgets what is loaded first while it runs
import small_device
from availability import unavailable
from user_projects import install_plugin

pytest_plugins = ["pytester"]

# Here, since pytester undoes what a test does to sys.path.
small_device.install()
metal_sim.install()

KERNEL = """
import numpy as np
import pytest
from ostinato.testing import assert_kernel

SOURCE = '''
kernel void doubled(device const float *x, device float *y, uint i [[thread_position_in_grid]]) { y[i] = 2 * x[i]; }
kernel void endless(device uint *y) { device volatile uint *flag = y; while (flag[0] == 0u) {} }
'''
X = np.arange(10, dtype=np.float32)

@pytest.fixture(scope="session")
def kernels(ostinato_device):
    return ostinato_device.library(SOURCE)
"""


@pytest.fixture
def project(
    pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, private_environment: None
) -> pytest.Pytester:
    install_plugin(tmp_path / "site", monkeypatch)
    return pytester


def test_the_plugin_loads_nothing_until_it_is_used(project: pytest.Pytester) -> None:
    project.makeconftest(
        "import sys\n"
        "def pytest_unconfigure():\n"
        "    loaded = [name for name in sys.modules if name.split('.')[0] in ('ostinato', 'numpy')]\n"
        "    print('loaded:', *sorted(loaded))"
    )
    project.makepyfile("def test_nothing(): pass")
    result = project.runpytest_subprocess("-s", "-p", "no:hypothesispytest")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["loaded: ostinato ostinato.errors ostinato.pytest_plugin ostinato.version"])
    result.stdout.no_fnmatch_line("*ostinato benches*")


def test_assertions_of_the_package_are_not_rewritten(project: pytest.Pytester) -> None:
    project.makepyfile(
        "import ostinato.device\ndef test_x(): assert type(ostinato.device.__loader__).__name__ == 'SourceFileLoader'"
    )
    project.runpytest_subprocess().assert_outcomes(passed=1)


def test_help_lists_the_options(project: pytest.Pytester) -> None:
    result = project.runpytest_inprocess("--help")
    options = ("device=NAME", "save=NAME", "compare=NAME", "fail-slower=PERCENT", "dir=FOLDER")
    result.stdout.fnmatch_lines(["ostinato: *", *(f"  --ostinato-{option}*" for option in options)])


# --- devices ----------------------------------------------------------------------------------------------------------


def test_a_test_runs_once_on_every_device_that_was_asked_for(project: pytest.Pytester) -> None:
    project.makepyfile(KERNEL + "def test_x(kernels, ostinato_device): print(f'ran on {ostinato_device.name}')")
    chosen = [f"--ostinato-device={name}" for name in ("cpu", "small", "metal-sim", "cpu")]
    result = project.runpytest_inprocess("-v", "-s", *chosen)
    result.assert_outcomes(passed=3)
    ran = [("cpu", "cpu"), ("small", "small"), ("metal-sim", "metal-sim:apple")]
    result.stdout.fnmatch_lines([f"*test_x[[]{name}[]]*ran on {device}*" for name, device in ran])


def test_the_device_is_that_of_the_environment_else_the_cpu(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.makepyfile("def test_x(ostinato_device): print(f'ran on {ostinato_device.name}')")
    project.runpytest_inprocess("-s").stdout.fnmatch_lines(["*ran on cpu*"])
    monkeypatch.setenv("OSTINATO_DEVICE", "small")
    project.runpytest_inprocess("-s").stdout.fnmatch_lines(["*ran on small*"])
    project.runpytest_inprocess("-s", "--ostinato-device", "cpu").stdout.fnmatch_lines(["*ran on cpu*"])


def test_a_device_that_was_asked_for_and_is_not_there_is_an_error(project: pytest.Pytester) -> None:
    reasons = {
        "gpu9": "no device named 'gpu9'; there are *",
        "metal-sim": "the simulator of Metal is in the tests of Ostinato's repository*use --ostinato-device cpu*",
    }
    if unavailable("cuda"):
        reasons["cuda"] = unavailable("cuda").splitlines()[0]
    project.makepyfile("def test_x(ostinato_device): pass\ndef test_y(): pass")
    result = project.runpytest_subprocess(*(f"--ostinato-device={name}" for name in reasons))
    result.assert_outcomes(errors=len(reasons), passed=1)
    result.stdout.fnmatch_lines([f"device '{name}' cannot be opened: {reason}*" for name, reason in reasons.items()])


# --- wrong kernels ----------------------------------------------------------------------------------------------------


def test_a_wrong_result_is_shown_at_the_line_of_the_test(project: pytest.Pytester) -> None:
    project.makepyfile(
        KERNEL
        + "def test_x(kernels):\n"
        + "    assert_kernel(kernels['doubled'], [X, np.zeros_like(X)], 10, np.where(X == 3, 7, 2 * X))"
    )
    result = project.runpytest_inprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            ">   *assert_kernel(*doubled*",
            "E   *AssertionError: kernel 'doubled' on 'cpu', argument 1 'y': 1 of 10 values are wrong *",
            "E   *first wrong value *[[]3[]]: expected 7.0, got 6.0, * ulps apart",
        ]
    )
    result.stdout.no_fnmatch_line("*asserting.py*")


def test_a_kernel_that_never_ends_is_named_and_later_tests_do_not_wait_for_it(project: pytest.Pytester) -> None:
    project.makepyfile(
        KERNEL
        + "def test_x(kernels):\n"
        + "    assert_kernel(kernels['endless'], [np.zeros(1, np.uint32)], 1, np.zeros(1, np.uint32), timeout=0.5)\n"
        + "def test_y(kernels): assert_kernel(kernels['doubled'], [X, np.zeros_like(X)], 10, 2 * X)"
    )
    result = project.runpytest_subprocess(timeout=60)
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        ["E *kernel 'endless' on 'cpu': it still runs after 0.5 s.*isolated=True*", "E *DeviceClosed*"]
    )
