"""The fixture `ostinato_bench`: what it keeps, compares and prints, and that benches take turns."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest

from made_runs import write_run
from ostinato.errors import ComparisonError
from ostinato.measure.keeping import folder_name
from ostinato.profiling.analyse import columns_of
from ostinato.profiling.analyse.verdicts import Spread, Spreads
from ostinato.profiling.recording import SUFFIX, open_recording
from ostinato.testing import benches
from user_projects import install_plugin

pytest_plugins = ["pytester"]

SPEED = """
import numpy as np

SOURCE = '''
kernel void work(device float *x, constant uint &turns, uint i [[thread_position_in_grid]]) {
    float sum = x[i];
    for (uint turn = 0; turn < turns; ++turn) { sum = sum * 0.5f + 1.0f; }
    x[i] = sum;
}
'''
TURNS = 50

def test_speed(ostinato_device, ostinato_bench):
    kernel = ostinato_device.library(SOURCE)["work"]
    bench = ostinato_bench(kernel, np.ones(4096, np.float32), TURNS, threads=4096, seconds=0.05)
    assert len(bench.samples_ns)
"""

NOT_MEASURED_BY_WORKERS = """
import time
from types import SimpleNamespace

def bench(what):
    begin = time.monotonic_ns()
    time.sleep(0.05)
    what()
    with open("benches.txt", "a") as file:
        print(begin, time.monotonic_ns(), file=file)
    return SimpleNamespace(median_ns=61_000.0, interval=None)

def pytest_configure(config):
    if hasattr(config, "workerinput"):
        from ostinato.testing import benches
        benches.bench = bench
"""


@pytest.fixture
def project(
    pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, private_environment: None
) -> pytest.Pytester:
    install_plugin(tmp_path / "site", monkeypatch)
    return pytester


def kept(project: pytest.Pytester, name: str) -> list[Path]:
    return sorted((project.path / ".ostinato" / name).rglob(f"*{SUFFIX}"))


def test_a_bench_is_a_line_of_the_summary(project: pytest.Pytester) -> None:
    project.makepyfile(
        SPEED + "def test_encoded(ostinato_device, ostinato_bench):\n"
        "    x = ostinato_device.zeros(64, np.float32)\n"
        "    ostinato_bench(lambda enc: enc.fill(x, 1.0), seconds=0.05)\n"
        "    ostinato_bench(lambda enc: enc.fill(x, 2.0), seconds=0.05, name='again')"
    )
    result = project.runpytest_inprocess()
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        ["=* ostinato benches *=", "bench * median", "*::test_speed[[]cpu[]] * ?s*", "*_encoded*", "*[[]cpu[]] again *"]
    )
    result.stdout.no_fnmatch_line("*verdict*")
    assert not (project.path / ".ostinato").exists()


def test_two_benches_of_a_test_need_names(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benches, "bench", lambda what: SimpleNamespace(median_ns=1.0, interval=None))
    project.makepyfile("def test_x(ostinato_bench): ostinato_bench(int), ostinato_bench(int)")
    result = project.runpytest_inprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *UsageError: ostinato_bench: *::test_x was measured already; name= tells *"])


def test_a_test_that_is_run_again_measures_again(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    medians = iter([1.0, 2.0])
    monkeypatch.setattr(benches, "bench", lambda what: SimpleNamespace(median_ns=next(medians), interval=None))
    project.makepyfile("def test_x(ostinato_bench): ostinato_bench(int)")
    project.makeconftest(
        "from _pytest.runner import runtestprotocol\n"
        "def pytest_runtest_protocol(item, nextitem):\n"
        "    for _ in range(2):\n"
        "        item._initrequest()\n"
        "        runtestprotocol(item, nextitem=nextitem)\n"
        "    return True"
    )
    result = project.runpytest_inprocess()
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*::test_x * 2 ns"])
    result.stdout.no_fnmatch_line("*::test_x * 1 ns")


# --- keeping ----------------------------------------------------------------------------------------------------------


def test_every_run_adds_a_recording(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    project.makepyfile(SPEED)
    for run in ("1", "2", "2"):  # measuring again in the same process is no other run
        monkeypatch.setattr(benches, "_RUN", run)
        project.runpytest_inprocess("--ostinato-save", "main").assert_outcomes(passed=1)
    first, second = kept(project, "main")
    assert first.parent == second.parent
    with open_recording(first) as recording:
        assert len(columns_of(recording).submissions)
    project.runpytest_inprocess("--ostinato-save", "main", "--ostinato-dir", "elsewhere").assert_outcomes(passed=1)
    assert len(list((project.path / "elsewhere" / "main").rglob(f"*{SUFFIX}"))) == 1


def test_a_recording_that_cannot_be_written_leaves_nothing(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save(path: Path) -> None:
        path.write_text("half")
        raise OSError("disk full")

    monkeypatch.setattr(benches, "bench", lambda what: SimpleNamespace(median_ns=1.0, interval=None, save=save))
    project.makepyfile("def test_x(ostinato_bench): ostinato_bench(int)")
    result = project.runpytest_inprocess("--ostinato-save", "main")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *disk full"])
    assert [path for path in (project.path / ".ostinato").rglob("*") if not path.is_dir()] == []


# --- comparing --------------------------------------------------------------------------------------------------------


class Versions:
    """Runs of one test for several versions of a kernel, each as if in a process of its own."""

    def __init__(self, project: pytest.Pytester, patch: pytest.MonkeyPatch) -> None:
        self._project = project
        self._patch = patch
        self._runs = 0
        self._file = project.makepyfile("def test_speed(ostinato_bench): ostinato_bench('work')")

    def keep(self, name: str, took_ns: float) -> Path:
        """What a run with --ostinato-save NAME leaves, without the run."""
        self._runs += 1
        folder = self._project.path / ".ostinato" / name / folder_name(f"{self._file.name}::test_speed")
        return write_run(folder / f"{self._runs:03}{SUFFIX}", self._times(took_ns))

    def keep_in_turns(self, count: int, **took_ns: float) -> None:
        for _ in range(count):
            for name, each in took_ns.items():
                self.keep(name, each)

    def run(self, took_ns: float, *options: str) -> pytest.RunResult:
        self._runs += 1
        times = self._times(took_ns)
        measured = SimpleNamespace(median_ns=took_ns, interval=None, save=lambda path: write_run(path, times))
        self._patch.setattr(benches, "bench", lambda what: measured)
        self._patch.setattr(benches, "_RUN", f"{self._runs:03}")
        return self._project.runpytest_inprocess(*options)

    def _times(self, took_ns: float) -> dict[str, float]:
        return {"work": took_ns * (1 + self._runs % 3 / 1000)}


AGAINST_OLD = ("--ostinato-save", "new", "--ostinato-compare", "old")


def test_a_bench_that_is_slower_than_the_limit_fails(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = Versions(project, monkeypatch)
    versions.keep_in_turns(4, old=100_000.0, new=108_000.0)
    versions.run(100_000.0, "--ostinato-save", "old").assert_outcomes(passed=1)
    slower = versions.run(108_000.0, *AGAINST_OLD)
    slower.assert_outcomes(passed=1)
    slower.stdout.fnmatch_lines(["bench * median * ratio * verdict", "*test_speed* 1.08* (1.0* to 1.*) * SLOWER"])
    failed = versions.run(108_000.0, *AGAINST_OLD, "--ostinato-fail-slower", "5%")
    failed.assert_outcomes(failed=1)
    failed.stdout.fnmatch_lines(
        [
            ">*ostinato_bench('work')*",
            "E *takes 1.08* times as long (* to *) and is slower than 'old' by more than 5.0 %",
        ]
    )
    below = versions.run(108_000.0, *AGAINST_OLD, "--ostinato-fail-slower", "0.2")
    below.assert_outcomes(passed=1)
    below.stdout.fnmatch_lines(["*test_speed* SAME"])
    faster = versions.run(100_000.0, "--ostinato-save", "old", "--ostinato-compare", "new")
    faster.stdout.fnmatch_lines(["*test_speed* FASTER"])


def test_a_verdict_stands_until_there_are_twice_as_many_runs(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = Versions(project, monkeypatch)
    versions.keep_in_turns(5, old=100_000.0, new=100_000.0)
    versions.keep_in_turns(4, old=100_000.0, new=300_000.0)
    versions.run(300_000.0, *AGAINST_OLD).stdout.fnmatch_lines(["*test_speed* SAME"])
    versions.keep("old", 100_000.0)
    result = versions.run(300_000.0, *AGAINST_OLD)
    result.stdout.fnmatch_lines(["*test_speed* CANNOT TELL", "*The next verdict is made at 20 runs of each version*"])


def test_all_looks_at_two_names_share_one_error() -> None:
    looks = {look.runs or runs: look for runs in range(1, 5000) for look in [benches._look(runs)]}
    assert sorted(looks)[:7] == [1, 2, 3, 4, 5, 10, 20]
    assert 0.99 < sum(look.error for look in looks.values()) <= 1


def test_benches_share_the_error_however_they_are_found(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*units: object, confidence: float, **options: object) -> None:
        raise ComparisonError(f"confidence {confidence:.4f}")

    monkeypatch.setattr(benches, "compare_units", refuse)
    versions = Versions(project, monkeypatch)
    project.makepyfile("def test_speed(request): request.getfixturevalue('ostinato_bench')('work')")
    recording = versions.keep("old", 1000.0)
    for name in ("another", ".unfinished-x", "third"):
        (recording.parent.parent / name).mkdir()
    result = versions.run(1000.0, "--ostinato-compare", "old")
    result.stdout.fnmatch_lines([f"*was not compared: confidence {1 - 0.05 / 3:.4f}"])
    result = versions.run(1000.0, *AGAINST_OLD)
    result.stdout.fnmatch_lines([f"*was not compared: confidence {1 - 0.05 / 3 / 8:.4f}"])


def test_runs_that_were_not_made_in_turns_have_no_verdict(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = Versions(project, monkeypatch)
    versions.keep_in_turns(5, old=100_000.0)
    versions.keep_in_turns(5, new=108_000.0)
    result = versions.run(108_000.0, *AGAINST_OLD)
    result.stdout.fnmatch_lines(
        ["*test_speed* CANNOT TELL", "*needs 5 runs of each version, made in turns*5 kept under 'old' and 6 of this*"]
    )


def test_a_damaged_recording_is_not_compared(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = Versions(project, monkeypatch)
    versions.keep("old", 1000.0).write_text("damaged")
    result = versions.run(1000.0, "--ostinato-compare", "old", "--ostinato-fail-slower", "5%")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*test_speed* not compared", "*was not compared: *not a recording*"])


def test_recordings_of_another_device_are_not_compared(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = Versions(project, monkeypatch)
    recording = versions.keep("main", 1000.0)
    recording.unlink()
    write_run(recording, {"work": 1000.0}, device="another machine")
    result = versions.run(1000.0, "--ostinato-compare", "main", "--ostinato-fail-slower", "5%")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*test_speed* not compared", "*was not compared: *different devices*"])


def test_with_too_few_runs_the_summary_says_what_to_do(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = Versions(project, monkeypatch)
    versions.keep("main", 1000.0)
    result = versions.run(9000.0, "--ostinato-compare", "main", "--ostinato-fail-slower", "5%")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["*test_speed* CANNOT TELL", "*needs 5 runs of each version*1 kept under 'main' and 1 of this version*"]
    )


def test_a_calibration_of_the_device_lets_single_runs_decide(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = Versions(project, monkeypatch)
    versions.keep("main", 100_000.0)
    monkeypatch.setattr(benches, "known_spreads", lambda devices: Spreads(((1000.0, Spread(0.01, 20)),)))
    versions.run(101_000.0, "--ostinato-compare", "main").stdout.fnmatch_lines(["*test_speed* CANNOT TELL"])
    result = versions.run(200_000.0, "--ostinato-compare", "main", "--ostinato-fail-slower", "5%")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*test_speed* SLOWER"])


def test_a_bench_of_which_nothing_is_kept_is_said_to_be_new(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.mkdir(".ostinato").joinpath("main").mkdir()
    result = Versions(project, monkeypatch).run(1000.0, "--ostinato-compare", "main")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*test_speed * not compared", "*was not compared: nothing is kept of it under 'main'"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--ostinato-fail-slower", "5%"], "--ostinato-fail-slower needs --ostinato-compare NAME*"),
        (["--ostinato-fail-slower", "5"], "*'5' is not a part between 0 and 1, such as 2% or 0.02"),
        (["--ostinato-save", "../x"], "*'../x' is not a name: *"),
        (["--ostinato-save", "a", "--ostinato-compare", "a"], "*are both 'a'; use two names"),
        (["--ostinato-compare", "b"], "*nothing is kept under 'b' in *(names: none)*--ostinato-save b"),
    ],
)
def test_options_that_make_no_sense_are_refused(project: pytest.Pytester, options: list[str], message: str) -> None:
    project.makepyfile("def test_x(): pass")
    result = project.runpytest_inprocess(*options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{message}"])


# --- workers ----------------------------------------------------------------------------------------------------------


def test_under_xdist_one_bench_runs_at_a_time_even_if_a_worker_dies(project: pytest.Pytester) -> None:
    project.makeconftest(NOT_MEASURED_BY_WORKERS)
    project.makepyfile(
        "import os, pytest\n"
        "@pytest.mark.parametrize('number', range(3))\n"
        "def test_x(ostinato_bench, number): ostinato_bench(int)\n"
        "def test_dies(ostinato_bench): ostinato_bench(lambda: os._exit(1))"
    )
    result = project.runpytest_subprocess("-n", "2", timeout=120)
    result.assert_outcomes(passed=3, failed=1)
    spans = sorted(tuple(map(int, line.split())) for line in Path("benches.txt").read_text().splitlines())
    assert len(spans) == 3
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))
    result.stdout.fnmatch_lines(
        [*["*test_x* 61.0 ?s"] * 3, "*one at a time, but the other workers of pytest-xdist (1) kept the machine busy *"]
    )
