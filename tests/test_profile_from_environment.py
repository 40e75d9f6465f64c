"""Recording by environment: any program, and switched in a running process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import ostinato as ost
from ostinato.profiling import from_environment, recording
from scripting import Script
from small_kernels import KERNELS, SLOW_STEPS

PROGRAM = """
    dev = ost.open_device("cpu")
    bump = dev.library(KERNELS)["bump"]
    x = dev.zeros(8, np.float32)
    for _ in range(3):
        enc = dev.command_encoder()
        enc.dispatch(bump, x, threads=8)
        enc.commit()
    print(x.numpy()[0])
"""


@pytest.fixture(autouse=True)
def nothing_left_open(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test switches on in this process ends with it, and says nothing at the end of all tests."""
    monkeypatch.setattr(from_environment, "_report", lambda *_: None)
    yield
    for profile in _opened_here():
        profile.close()
    from_environment._profiles.clear()


def bump(dev: ost.Device, kernels: ost.Library) -> None:
    x = dev.zeros(8, np.float32)
    enc = dev.command_encoder()
    enc.dispatch(kernels["bump"], x, threads=8)
    enc.commit_and_wait()


def recorded(path: Path) -> recording.Recording:
    (file,) = path.parent.glob(path.name)
    return recording.open_recording(file)


@pytest.mark.parametrize(
    ("level", "samples"), [("1", 3), ("dispatches", 3), ("command_buffers", 0), ("COMMAND_BUFFERS", 0)]
)
def test_a_program_that_knows_nothing_of_it_is_recorded(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str, samples: int
) -> None:
    monkeypatch.chdir(tmp_path)
    done = script(PROGRAM, OSTINATO_PROFILE=level)
    assert (done.returncode, done.stdout) == (0, "3.0\n"), done.stderr
    assert "to see it: ostinato report" in done.stderr
    with recorded(tmp_path / "*.ostinato") as found:
        assert (len(found.submissions), len(found.samples())) == (3, samples)
        assert found.processes[0].closed
        assert found.meta["setting.OSTINATO_PROFILE"] == level


def test_a_file_alone_switches_it_on_and_names_the_process(script: Script, tmp_path: Path) -> None:
    done = script(PROGRAM, OSTINATO_PROFILE_FILE=str(tmp_path / "run-{pid}.ostinato"))
    assert done.returncode == 0, done.stderr
    with recorded(tmp_path / "run-*.ostinato") as found:
        assert found.path is not None
        assert found.path.name == f"run-{found.processes[0].pid}.ostinato"
        assert len(found.samples()) == 3
        assert found.meta["setting.OSTINATO_PROFILE_FILE"] == "(set)"  # folders are nobody's business


def test_zero_is_off_whatever_the_file(script: Script, tmp_path: Path) -> None:
    for off in ("0", "off", "no"):
        done = script(PROGRAM, OSTINATO_PROFILE=off, OSTINATO_PROFILE_FILE=str(tmp_path / "run.ostinato"))
        assert (done.returncode, done.stderr) == (0, "")
    assert not list(tmp_path.iterdir())


def test_it_is_switched_on_and_off_and_on_again_in_a_running_process(
    dev: ost.Device, kernels: ost.Library, tmp_path: Path
) -> None:
    path = tmp_path / "run.ostinato"
    bump(dev, kernels)
    for count in (1, 2):
        with ost.settings.override(profile="dispatches", profile_file=str(path)):
            bump(dev, kernels)
        bump(dev, kernels)
        with recording.open_recording(path) as before:
            assert len(before.submissions) <= count  # it is written about five times a second
    other = tmp_path / "other.ostinato"
    with ost.settings.override(profile="command_buffers", profile_file=str(other)):
        bump(dev, kernels)
    for profile in _opened_here():
        profile.close()
    with recording.open_recording(path) as found:
        assert (len(found.submissions), len(found.samples())) == (2, 2)
    with recording.open_recording(other) as found:
        assert (len(found.submissions), len(found.samples())) == (1, 0)


def _opened_here() -> list[ost.Profile]:
    return [one for (process, _, _), one in from_environment._profiles.items() if one and process == os.getpid()]


def test_it_adds_no_wait(own_dev: ost.Device, tmp_path: Path) -> None:
    spin = own_dev.library(KERNELS)["spin"]
    x = own_dev.zeros(1, np.uint32)
    gates = {"profile": "dispatches", "profile_file": str(tmp_path / "run.ostinato")}
    with ost.settings.override(**gates), ost.counters.scope() as counts:
        enc = own_dev.command_encoder()
        enc.dispatch(spin, x, SLOW_STEPS, threads=1)
        submission = enc.commit()
        assert not submission.done
        assert (counts.syncs, counts.command_buffers) == (0, 1)
    submission.wait()


def test_a_file_that_cannot_be_recorded_into_is_a_warning_and_the_program_goes_on(
    dev: ost.Device, kernels: ost.Library, tmp_path: Path
) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("dear all")
    with (
        ost.settings.override(profile="1", profile_file=str(path)),
        pytest.warns(ost.SettingWarning, match="nothing is recorded.*letter.txt"),
    ):
        bump(dev, kernels)
    with ost.settings.override(profile="1", profile_file=str(path)):
        bump(dev, kernels)  # said once
    assert path.read_text() == "dear all"


def test_a_level_that_makes_no_sense_is_a_typed_error(dev: ost.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OSTINATO_PROFILE", "everything")
    with pytest.raises(ost.SettingError, match="expected dispatches, command_buffers, or 0 for off"):
        dev.command_encoder()


def test_each_process_has_a_recording_of_its_own(script: Script, tmp_path: Path) -> None:
    done = script(
        """
        import os
        def work():
            dev = ost.open_device("cpu")
            bump = dev.library(KERNELS)["bump"]
            x = dev.zeros(8, np.float32)
            enc = dev.command_encoder()
            enc.dispatch(bump, x, threads=8)
            enc.commit_and_wait()
        work()
        child = os.fork()
        if not child:
            work()
            sys.exit(0)
        os.waitpid(child, 0)
        """,
        OSTINATO_PROFILE_FILE=str(tmp_path / "run-{pid}.ostinato"),
    )
    assert done.returncode == 0, done.stderr
    files = sorted(tmp_path.glob("run-*.ostinato"))
    assert len(files) == 2
    for file in files:
        with recording.open_recording(file) as found:
            assert len(found.submissions) == 1


def test_what_a_program_profiles_by_itself_is_its_own(dev: ost.Device, kernels: ost.Library, tmp_path: Path) -> None:
    gates = {"profile": "command_buffers", "profile_file": str(tmp_path / "run.ostinato")}
    with ost.settings.override(**gates), ost.profile() as prof:
        bump(dev, kernels)
    assert len(prof.recording().samples()) == 1


def test_host_rank_and_pid_are_filled_into_the_name_of_the_file(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = "{host}-{rank}-{pid}.ostinato"
    done = script(PROGRAM, OSTINATO_PROFILE="1", OSTINATO_PROFILE_FILE=name, RANK="3", WORLD_SIZE="8")
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.glob("*.ostinato")
    with recording.open_recording(file) as made:
        process = made.processes[0]
    assert file.name == f"{process.host}-3-{process.pid}.ostinato"


@pytest.mark.parametrize(("host", "shown"), [("node 7/../x", "node_7_.._x"), ("..", "unknown"), ("a.b-c", "a.b-c")])
def test_the_name_of_a_machine_is_one_part_of_a_path(monkeypatch: pytest.MonkeyPatch, host: str, shown: str) -> None:
    monkeypatch.setattr("platform.node", lambda: host)
    for names in recording.provenance._LAUNCHERS:
        for variable in names:
            monkeypatch.delenv(variable, raising=False)
    assert recording.provenance.file_name("{host}-{rank}-{pid}", 7) == f"{shown}-none-7"
