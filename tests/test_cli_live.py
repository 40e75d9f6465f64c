"""`ostinato live` as a user meets it: on a terminal, through a pipe, beside a program and around one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.cells import cell_len

from ostinato.cli import main
from ostinato.cli.live import _View
from ostinato.profiling.recording import open_recording, opening
from ostinato.profiling.recording.following import State
from test_following import Program

PROGRAM = """
import signal
import sys
from pathlib import Path
import numpy as np
import ostinato as ost

signal.signal(signal.SIGINT, signal.default_int_handler)
dev = ost.open_device("cpu")
bump = dev.library(
    "kernel void bump(device float *x [[buffer(0)]], uint id [[thread_position_in_grid]]) { x[id] += 1.0f; }"
)["bump"]
x = dev.zeros(4096, np.float32)
run = dev.capture(lambda enc: enc.dispatch(bump, x, threads=4096), label="step").instantiate()
print("it begins", flush=True)
tokens = int(sys.argv[1]) if len(sys.argv) > 1 else 1 << 60
try:
    while tokens and not Path("stop").exists():
        with ost.region("token"):
            run.replay().wait()
        tokens -= 1
except KeyboardInterrupt:
    print("it was interrupted")
    sys.exit(3)
print("it ends", file=sys.stderr)
sys.exit(7)
"""
SHELL = """
import os, signal, subprocess, sys, termios

signal.signal(signal.SIGTTOU, signal.SIG_IGN)
process = subprocess.Popen(sys.argv[1:], process_group=0)
os.tcsetpgrp(0, process.pid)
stopped = os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])
os.tcsetpgrp(0, os.getpgrp())
edited = bool(termios.tcgetattr(0)[3] & termios.ICANON)
input(f"stopped: {stopped}, lines are edited: {edited}")
os.tcsetpgrp(0, process.pid)
process.send_signal(signal.SIGCONT)
sys.exit(process.wait())
"""
LIMIT_S = 60


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "decode.py").write_text(PROGRAM)
    return tmp_path


def live(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ostinato", "live", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


@contextmanager
def running(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The program, recorded into `run.ostinato`, with something in it."""
    process = subprocess.Popen(
        [sys.executable, "decode.py"],
        cwd=folder,
        env=os.environ | {"OSTINATO_PROFILE_FILE": "run.ostinato"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        wait_until(lambda: recorded(folder / "run.ostinato"))
        yield process
    finally:
        (folder / "stop").touch()
        try:
            process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()


def recorded(path: Path) -> bool:
    if not path.exists():
        return False
    with open_recording(path) as recording:
        return bool(recording.sample_count)


def wait_until(condition: object) -> None:
    assert callable(condition)
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


class Terminal:
    """`ostinato live` on a terminal of its own, started by another program if one is given."""

    def __init__(
        self, arguments: Sequence[str], folder: Path, columns: int, lines: int, through: Sequence[str]
    ) -> None:
        self.master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [*through, sys.executable, "-m", "ostinato", "live", *arguments],
            cwd=folder,
            env=environment | {"TERM": "xterm"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=_with_ctrl_c,
        )
        os.close(slave)
        self.text = ""

    def read_until(self, pattern: str) -> None:
        """Read what it prints until that is in it."""
        end = time.monotonic() + LIMIT_S
        while not re.search(pattern, self.text):
            assert time.monotonic() < end, self.text[-3000:]
            self._read(0.5)

    def _read(self, seconds: float) -> bool:
        if not select.select([self.master], [], [], seconds)[0]:
            return True
        try:
            piece = os.read(self.master, 1 << 16)
        except OSError:  # nobody has the other end any more
            return False
        self.text += piece.decode()
        return bool(piece)

    def press(self, key: bytes) -> None:
        os.write(self.master, key)

    def end(self) -> tuple[int, str]:
        """The exit status, and what is left on the terminal when the screen is gone."""
        end = time.monotonic() + LIMIT_S
        while self._read(0.5):
            assert time.monotonic() < end, self.text[-3000:]
        status = self.process.wait(LIMIT_S)
        return status, plain(self.text.rpartition("\x1b[?1049l")[2])

    def pictures(self) -> list[str]:
        """The pictures on the screen, without colours."""
        return [plain(picture) for picture in self.text.partition("\x1b[?1049l")[0].split("\x1b[H")[2:]]


def _with_ctrl_c() -> None:
    """Make standard input the terminal whose Ctrl-C is a signal, also where whoever started the tests ignores it."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def terminal(
    *arguments: str, folder: Path, columns: int = 80, lines: int = 30, through: Sequence[str] = ()
) -> Iterator[Terminal]:
    made = Terminal(arguments, folder, columns, lines, through)
    try:
        yield made
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(made.process.pid, signal.SIGKILL)
        made.process.wait()
        os.close(made.master)


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", text).replace("\r\n", "\n")


def test_one_picture_of_a_program_that_runs_that_ended_and_that_was_killed(folder: Path) -> None:
    with running(folder) as process:
        done = live("run.ostinato", "--once", folder=folder)
        assert done.returncode == 0, done.stderr
        for text in ("decode.py  running, ", "bump", "token", "per second", "queue depth", "nothing was dropped"):
            assert text in done.stdout
        assert "\x1b" not in done.stdout
        assert process.poll() is None
    assert "decode.py  ended after " in live("run.ostinato", "--once", folder=folder).stdout
    for name in ("stop", "run.ostinato"):
        (folder / name).unlink()
    with running(folder) as process:
        process.kill()
        process.wait()
        killed = live("run.ostinato", folder=folder)
    assert killed.returncode == 0
    assert re.match(r"\d\d:\d\d:\d\d killed after ", killed.stdout)
    assert killed.stdout.count("\n") == 1


def test_on_a_terminal_q_ends_the_view_and_not_the_program(folder: Path) -> None:
    with running(folder) as process:
        with terminal("run.ostinato", "--refresh", "0.1", folder=folder) as screen:
            screen.read_until("(?s)bump.*bump.*bump")
            screen.press(b"q")
            status, left = screen.end()
        assert status == 0
        assert process.poll() is None
    assert "q: end the view" in screen.pictures()[0]
    assert "running, " in left
    assert "bump" in left


@pytest.mark.parametrize(("columns", "lines"), [(40, 30), (80, 12)])
def test_the_picture_fits_a_small_terminal_and_ctrl_c_ends_it(folder: Path, columns: int, lines: int) -> None:
    with running(folder), terminal("run.ostinato", folder=folder, columns=columns, lines=lines) as screen:
        screen.read_until("(?s)bump.*bump")
        screen.press(b"\x03")
        status, left = screen.end()
        assert status == 0
        assert "bump" in left
    for picture in screen.pictures():
        shown = picture.split("\n")
        assert len(shown) <= lines
        assert max(map(cell_len, shown)) <= columns


def test_ctrl_z_gives_the_terminal_back_until_the_view_goes_on(tmp_path: Path) -> None:
    shell = (sys.executable, "-c", SHELL)
    with terminal("run.ostinato", "--refresh", "0.1", folder=tmp_path, through=shell) as screen:
        screen.read_until("waiting for run.ostinato")
        screen.press(b"\x1a")
        screen.read_until("stopped: True, lines are edited: True")
        assert "\x1b[?1049h" not in screen.text.rpartition("\x1b[?1049l")[2]
        screen.text = ""
        screen.press(b"\n")
        screen.read_until("(?s)1049h.*waiting for run.ostinato")
        screen.press(b"q")
        status, left = screen.end()
    assert (status, left) == (0, "")


def test_around_a_program_ctrl_c_is_for_the_program_and_its_output_comes_after_the_picture(folder: Path) -> None:
    with terminal("-o", "new.ostinato", "--", "decode.py", folder=folder) as screen:
        screen.read_until("(?s)bump.*output: it begins")
        screen.press(b"\x03")
        status, left = screen.end()
    assert status == 3
    assert left.startswith("it begins\nit was interrupted\n")
    assert "ended after" in left
    assert " in new.ostinato" in left.replace("\n", " ")
    assert "waiting for new.ostinato: the program has submitted nothing yet" in screen.pictures()[0]
    assert "q: interrupt the program" in screen.pictures()[0]


def test_q_interrupts_the_program_too(folder: Path) -> None:
    with terminal("--", sys.executable, "decode.py", folder=folder) as screen:
        screen.read_until("bump")
        screen.press(b"q")
        status, left = screen.end()
    assert status == 3
    assert " in decode.ostinato" in left.replace("\n", " ")


def test_without_a_terminal_the_program_keeps_its_output_and_lines_go_to_standard_error(folder: Path) -> None:
    done = live("--", sys.executable, "decode.py", "50", folder=folder)
    assert done.returncode == 7
    assert done.stdout == "it begins\n"
    assert "it ends" in done.stderr
    line = r"ended after .*: token .*/s, .*; bump 100 %; .*recorded: 50 command buffers, "
    assert re.search(line, done.stderr), done.stderr
    assert "recorded in decode.ostinato; to see it: ostinato report decode.ostinato" in done.stderr
    nothing = live("--", "decode.py", "0", folder=folder)
    assert nothing.returncode == 7
    assert "nothing was recorded: the program submitted no work" in nothing.stderr


@pytest.mark.parametrize(
    ("number", "status", "state"),
    [(signal.SIGTERM, 128 + signal.SIGTERM, "killed after"), (signal.SIGINT, 3, "ended after")],
)
def test_a_signal_reaches_the_program_and_the_status_says_so(
    folder: Path, number: signal.Signals, status: int, state: str
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "ostinato", "live", "-o", "new.ostinato", "--", "decode.py"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # without a terminal, so the signal is not its Ctrl-C
    )
    try:
        wait_until(lambda: recorded(folder / "new.ostinato"))
        process.send_signal(number)
        _, errors = process.communicate(timeout=LIMIT_S)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == status
    assert state in errors
    assert "recorded in new.ostinato" in errors


def test_the_last_picture_is_of_the_last_seconds_even_if_nothing_happened_for_long(tmp_path: Path) -> None:
    path = tmp_path / "run.ostinato"
    program, view = Program(path), _View(path, 1.0)
    program.token(0)
    program.writer.flush()
    idle = view.look()
    assert idle is not None
    assert not idle.kernels  # two seconds ago
    program.writer.close()
    last = view.look()
    assert last is not None
    assert [kernel.name for kernel in last.kernels] == ["copy", "softmax", "matvec"]


def test_a_recording_that_another_replaces_is_watched_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "run.ostinato"
    first, view = Program(path), _View(path, 5.0)
    for at in (0, 100):
        first.token(at)
    first.writer.close()
    assert (picture := view.look()) is not None
    assert picture.over
    path.unlink()  # the next file may get the same inode
    assert view.look() is None
    second = Program(path)
    second.token(0)
    second.writer.flush()
    assert (picture := view.look()) is not None
    assert (picture.state, picture.submissions) == (State.RUNNING, 1)
    assert len(picture.kernels) == 3
    second.writer.close()


def test_a_recording_that_vanishes_while_it_is_read_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.ostinato"
    Program(path).writer.close()
    opened = opening.open_file

    def open_and_lose(*arguments: Any) -> opening.Source:
        source = opened(*arguments)
        path.unlink()
        return source

    monkeypatch.setattr(opening, "open_file", open_and_lose)
    assert _View(path, 5.0).look() is None


def test_what_the_view_cannot_read_is_said_and_the_program_keeps_its_output_and_status(tmp_path: Path) -> None:
    program = "echo hello > new.ostinato; until [ -e stop ]; do sleep 0.1; done; echo it ends; exit 5"
    with terminal("-o", "new.ostinato", "--", "sh", "-c", program, folder=tmp_path) as screen:
        screen.read_until("is damaged or not a recording")
        (tmp_path / "stop").touch()
        status, left = screen.end()
    assert status == 5
    assert left.startswith("it ends\n")
    assert "is damaged or not a recording" in " ".join(left.split())


def in_process(*arguments: str) -> tuple[int, str, str]:
    """The exit status of the command and what it prints, without a process of its own."""
    done = CliRunner().invoke(main, ["live", *arguments])
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.parametrize("options", [(), ("--once",)])
def test_what_is_no_recording_is_said_in_one_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.chdir(folder)
    for contents, text in ((b"hello" * 100, "is damaged or not a recording"), (b"", "is empty")):
        Path("other.ostinato").write_bytes(contents)
        status, printed, error = in_process("other.ostinato", *options)
        assert (status, printed) == (1, "")
        assert text in error
        assert error.count("\n") == 1


def test_one_picture_of_no_file_is_an_error() -> None:
    missing = in_process("nowhere.ostinato", "--once")
    assert missing == (1, "", "error: there is no file nowhere.ostinato\n")


def test_a_recording_that_does_not_exist_yet_is_waited_for(folder: Path) -> None:
    with terminal("run.ostinato", folder=folder) as screen:
        screen.read_until("waiting for run.ostinato: it does not exist yet")
        with running(folder):
            screen.read_until("bump")
        status, left = screen.end()
    assert status == 0
    assert "ended after" in left


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "name a recording, or a program behind --"),
        (("--",), "name a recording, or a program behind --"),
        (("run.ostinato", "--", "decode.py"), "name a recording, or a program behind --"),
        (("run.ostinato", "--force"), "are for a program behind --"),
        (("--once", "--", "decode.py"), "--once looks at a recording"),
        (("--", "no-such-program"), "cannot run 'no-such-program': No such file or directory"),
    ],
)
def test_wrong_usage_is_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], text: str
) -> None:
    monkeypatch.chdir(folder)
    status, _, error = in_process(*arguments)
    assert status == 2
    assert text in " ".join(error.split())


def test_a_recording_that_exists_is_replaced_only_when_asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    Path("old.ostinato").write_bytes(b"something else")
    for options, text in (((), "exists already"), (("--force",), "is not replaced")):
        status, _, error = in_process("-o", "old.ostinato", *options, "--", "decode.py")
        assert status == 1
        assert text in error
    assert Path("old.ostinato").read_bytes() == b"something else"
