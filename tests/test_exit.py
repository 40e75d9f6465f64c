"""The end of the process: what it waits for, for how long, and that it comes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

import ostinato as ost
from ostinato.profiling import recording
from scripting import run_script
from small_kernels import SLOW_STEPS

ENDLESS = '''
        SOURCE = """
        #include <metal_stdlib>
        using namespace metal;
        kernel void endless(device atomic_uint *x [[buffer(0)]]) {
            while (atomic_load_explicit(x, memory_order_relaxed) == 0u) {}
        }
        """
        dev = ost.open_device(DEVICE)
        kernels, endless = dev.library(KERNELS), dev.library(SOURCE)["endless"]

        def commit(kernel, *arguments, label="work"):
            encoder = dev.command_encoder()
            encoder.dispatch(kernel, *arguments, threads=1)
            return encoder.commit_labeled(label)

        def forever():
            return commit(endless, dev.zeros(1, np.uint32), label="forever")
'''

# Real processes, with a kernel that never ends: a test that hangs here is one that found something.
WAYS = {
    "a timeout": """
        print(forever().wait(timeout=0.05))""",
    "a timeout of what is behind it": """
        forever()
        print(commit(kernels["bump"], dev.zeros(1, np.float32)).wait(timeout=0.05))""",
    "a timeout, with more behind it": """
        print(forever().wait(timeout=0.05))
        commit(kernels["bump"], dev.zeros(1, np.float32))""",
    "a timeout, and the device closed": """
        with dev:
            print(forever().wait(timeout=0.05))""",
    "a timeout, and the device dropped": """
        import gc
        print(forever().wait(timeout=0.05))
        del dev, kernels, endless
        gc.collect()""",
    "a cancelled await": """
        import asyncio
        async def main():
            try:
                await asyncio.wait_for(forever(), 0.05)
            except asyncio.TimeoutError:
                print(False)
        asyncio.run(main())""",
    "Ctrl-C": """
        import threading
        threading.Timer(0.2, lambda: signal.raise_signal(signal.SIGINT)).start()
        try:
            forever().wait()
        except KeyboardInterrupt:
            print(False)""",
    "Ctrl-C while a buffer is read": """
        import threading
        x = dev.zeros(1, np.uint32)
        commit(endless, x)
        threading.Timer(0.2, lambda: signal.raise_signal(signal.SIGINT)).start()
        try:
            x.numpy()
        except KeyboardInterrupt:
            print(False)""",
}


def run(text: str, device: str = "cpu", **environment: str) -> subprocess.CompletedProcess[str]:
    return run_script(ENDLESS + text, device=device, timeout=60, **environment)


@pytest.mark.parametrize(
    ("way", "device"),
    [*((way, "cpu") for way in WAYS), ("a timeout", "metal-sim:apple"), ("a cancelled await", "metal-sim:apple")],
)
def test_work_that_outlives_a_wait_that_was_given_up_is_not_waited_for(way: str, device: str) -> None:
    done = run(WAYS[way], device)
    assert (done.returncode, done.stdout, done.stderr) == (0, "False\n", "")


def test_a_device_that_outlives_the_names_of_the_modules_says_nothing() -> None:
    text = """
        from ostinato.native import toolchain
        toolchain.find_clang = lambda: None  # keeps the variables of this script until that module is cleared
        dev = ost.open_device(DEVICE)
    """
    done = run_script(text)
    assert (done.returncode, done.stderr) == (0, "")


def test_other_work_is_waited_for_with_a_note_and_up_to_a_limit() -> None:
    text = """
        import ostinato.runtime.queue
        ostinato.runtime.queue.EXIT_NOTE_S = 0.1
        forever()
    """
    done = run(text, OSTINATO_EXIT_WAIT="0.5")
    assert done.returncode == 0
    assert "waiting for up to 0.5 s for 1 submission on 'cpu' before exiting; OSTINATO_EXIT_WAIT" in done.stderr
    assert "exiting without waiting any longer for 1 submission on 'cpu'" in done.stderr


def test_nothing_is_waited_for_if_the_setting_says_so() -> None:
    done = run("\n        forever()", OSTINATO_EXIT_WAIT="0")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_wrong_setting_is_told_and_does_not_keep_the_process() -> None:
    done = run("\n        commit(kernels['bump'], dev.zeros(1, np.float32))", OSTINATO_EXIT_WAIT="soon")
    assert done.returncode == 0
    assert "OSTINATO_EXIT_WAIT='soon': expected a number of seconds" in done.stderr


def test_work_that_ends_is_waited_for_without_a_word(tmp_path: Path) -> None:
    path = tmp_path / "out"
    text = f"""
        x = dev.from_dlpack(np.memmap({str(path)!r}, np.uint32, "w+", shape=1).view(np.ndarray))
        commit(kernels["spin"], x, SLOW_STEPS)
    """
    done = run(text)
    assert (done.returncode, done.stderr) == (0, "")
    assert np.fromfile(path, np.uint32)[0] & 1


@pytest.mark.parametrize("given_up", [True, False])
def test_the_recording_is_closed_before_the_process_leaves_its_work_behind(tmp_path: Path, given_up: bool) -> None:
    path = tmp_path / "left.ostinato"
    text = f"""
        profile = ost.profile(path={str(path)!r}).__enter__()
        commit(kernels["bump"], dev.zeros(1, np.float32), label="fine").wait()
        left = forever()
        if {given_up}:
            left.wait(timeout=0.05)
    """
    done = run(text, OSTINATO_EXIT_WAIT="0.5")
    assert done.returncode == 0
    with recording.open_recording(path) as found:
        assert found.submissions.label.tolist() == ["fine"]
    assert "not complete" not in done.stderr


def test_a_wait_that_was_given_up_can_be_taken_up_again() -> None:
    text = """
        x = dev.zeros(1, np.uint32)
        work = commit(endless, x)
        print(work.wait(timeout=0.05))
        x.as_numpy()[0] = 1
        print(work.wait())
    """
    done = run(text)
    assert (done.returncode, done.stdout, done.stderr) == (0, "False\nTrue\n", "")


def test_the_setting_takes_a_number_of_seconds() -> None:
    with ost.settings.override(exit_wait=2.5):
        assert ost.settings.seconds("exit_wait", 60.0) == 2.5
    for wrong in ("-1", "nan", "soon"):
        with pytest.raises(ost.SettingError, match="seconds"):
            ost.settings.change("exit_wait", wrong)


def test_a_profile_still_waits_for_work_that_was_asked_after_too_early(dev: ost.Device, kernels: ost.Library) -> None:
    with ost.profile() as profile:
        encoder = dev.command_encoder()
        encoder.dispatch(kernels["spin"], dev.zeros(1, np.uint32), SLOW_STEPS, threads=1)
        submission = encoder.commit_labeled("asked too early")
        submission.wait(timeout=0)
    with profile.recording() as found:
        assert found.submissions.label.tolist() == ["asked too early"]
