"""`ostinato live`: watch a recording while it is written, by a program that runs already or that is started here.

On a terminal the picture stands on the alternate screen, which keeps what was there before, and the last picture stays
behind. Elsewhere there is one line per refresh.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Self

import click
from rich.text import Text

from ..base.children import last_line
from ..base.printable import printable
from ..errors import ArgumentError, RecordingError
from ..profiling.analyse.live import DISTURBED_FROM, Picture, Window
from ..profiling.recording.database import remove
from ..profiling.recording.following import Follower
from ..profiling.recording.opening import check_replaceable
from ..profiling.recording.provenance import file_name
from ..profiling.report import console
from ..profiling.report.live import MOST_KERNELS, as_line, picture_lines, print_picture
from ..profiling.report.terminal import sentence_lines
from ..program import parse as parse_program
from .group import main
from .output import FORCE_HELP, recording_to_make

_COMMAND = "ostinato.live.command"
_POLL_S = 0.25
_RETRY_S = 0.05


class _Live(click.Command):
    """Takes the program behind `--` out of the arguments before click sees them."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        context.meta[_COMMAND] = tuple(args[at + 1 :])
        return super().parse_args(context, args[:at])


@main.command("live", cls=_Live, options_metavar="[OPTIONS]")
@click.argument(
    "recording",
    required=False,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="RECORDING | -- PROGRAM …",
)
@click.option("--once", is_flag=True, help="Print one picture of a recording and end.")
@click.option(
    "--seconds", type=click.FloatRange(1, 600), default=5.0, show_default=True, help="Show this many last seconds."
)
@click.option(
    "--refresh",
    "refresh_s",
    type=click.FloatRange(0.1, 60),
    default=0.5,
    show_default=True,
    help="Seconds from one picture to the next.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Save the program's recording to this file. [default: as ostinato profile does]",
)
@click.option("--force", is_flag=True, help=FORCE_HELP)
@click.option(
    "--level", type=click.Choice(["dispatches", "command_buffers"]), help="What to time. [default: dispatches]"
)
@click.pass_context
def live_command(
    context: click.Context,
    recording: Path | None,
    once: bool,
    seconds: float,
    refresh_s: float,
    output: Path | None,
    force: bool,
    level: str | None,
) -> None:
    """Watch a recording while it is written.

    Shows kernels by share of the last seconds, regions per second (tokens/s, with ostinato.region("token")), the queue
    depth, the checks that can be made so far, and whether the program runs, has ended or was killed. Queue depth is the
    mean number of command buffers that were committed and had not ended; one that still runs counts when it ends.

    RECORDING is written by a program that runs already: under ostinato profile, with OSTINATO_PROFILE=1, or with
    ostinato.profile(path=...). q or Ctrl-C ends the view, not the program.

    Behind --, a program is started and recorded as with OSTINATO_PROFILE=1. A file that ends in .py runs in ostinato's
    own interpreter. The picture has the screen to itself: it shows the last line of the program's output, and all of it
    is printed when the program has ended. The program gets no input from the keyboard. q or Ctrl-C interrupts it. The
    exit status is the program's own.

    Without a terminal, one line is printed per refresh. Of a program behind -- these lines go to standard error, and
    its own output passes through.

    \b
    Examples:
      ostinato live run.ostinato
      ostinato live run.ostinato --once --seconds 30
      ostinato live -- python decode.py --tokens 1000
      ostinato live -o run.ostinato --refresh 1 -- decode.py
    """
    command: tuple[str, ...] = context.meta[_COMMAND]
    if (recording is None) == (not command):
        raise click.UsageError(
            "name a recording, or a program behind --: ostinato live run.ostinato, ostinato live -- python decode.py"
        )
    if recording is not None:
        if output is not None or force or level is not None:
            raise click.UsageError("--output, --force and --level are for a program behind --")
        _watch_recording(_View(recording, seconds), once, refresh_s)
        return
    if once:
        raise click.UsageError("--once looks at a recording and starts no program")
    path = recording_to_make(output, _name(command), force)
    context.exit(_watch_program(command, path, level or "dispatches", seconds, refresh_s))


# --- looking -------------------------------------------------------------------------------------------------


class _View:
    """A recording, and the window of its last seconds."""

    def __init__(self, path: Path, seconds: float) -> None:
        self.path = path
        self._window_ns = round(seconds * 1e9)
        self._begin()

    def _begin(self) -> None:
        self._follower = Follower(self.path, self._window_ns, DISTURBED_FROM)
        self._window = Window(self._window_ns)
        self._ran = False

    def look(self) -> Picture | None:
        """The picture now; None if there is no file yet."""
        try:
            picture = self._read()
        except RecordingError:
            if not self.path.exists():
                return None
            time.sleep(_RETRY_S)  # the program may be closing it at this moment, or another one has replaced it
            self._begin()
            picture = self._read()
        if picture.over and self._ran:
            self._begin()  # the last seconds of a recording end with its last event, and may be forgotten by now
            picture = self._read()
        self._ran = not picture.over
        return picture

    def _read(self) -> Picture:
        return self._window.add(self._follower.read())


def _watch_recording(view: _View, once: bool, refresh_s: float) -> None:
    if once:
        picture = view.look()
        if picture is None:
            raise RecordingError(f"there is no file {view.path}")
        print_picture(picture, view.path, console())
        return
    picture = None
    shown_on = _display(view.path, "q: end the view", sys.stdout)
    ended_by_signals = _handled(_leave, signal.SIGTERM, signal.SIGHUP)
    with ended_by_signals, shown_on as display, suppress(KeyboardInterrupt):
        while True:
            picture = view.look()
            display.show(picture or f"waiting for {view.path}: it does not exist yet")
            if (picture is not None and picture.over) or display.wait(refresh_s):
                break
    if picture is not None and display.vanishes:
        print_picture(picture, view.path, console())


def _leave(number: int, frame: object) -> None:
    """Handles a signal as an exception, so that the terminal is put back."""
    sys.exit(128 + number)


@contextmanager
def _handled(handler: Callable[[int, object], None], *signals: signal.Signals) -> Iterator[None]:
    """In the block these signals have this handler."""
    before = {number: signal.signal(number, handler) for number in signals}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


# --- a program -----------------------------------------------------------------------------------------------


def _name(command: Sequence[str]) -> str:
    """What the recording of a command is called."""
    with suppress(ArgumentError):
        return parse_program(command[0], command[1:]).name
    return Path(command[0]).stem or "program"


def _watch_program(command: Sequence[str], path: Path, level: str, seconds: float, refresh_s: float) -> int:
    check_replaceable(path)
    remove(path)  # a recording that is to be replaced is not the one to watch
    with _output() as output:
        process = _started(command, path, level, output)
        path = Path(file_name(str(path), process.pid))
        view = _View(path, seconds)
        with _passing_on_signals(process):
            try:
                with _display(path, "q: interrupt the program", sys.stderr, output) as display:
                    picture = _watched_to_its_end(process, view, display, refresh_s)
            finally:  # whatever became of the view, the program is not left alone
                process.wait()
                if output is not None:
                    output.seek(0)
                    shutil.copyfileobj(output, sys.stdout.buffer)
                    sys.stdout.flush()
    if isinstance(picture, str):
        click.echo(f"error: {printable(picture)}", err=True)
    elif picture is None or not picture.submissions:
        click.echo("nothing was recorded: the program submitted no work to a device of ostinato", err=True)
    elif display.vanishes:
        print_picture(picture, path, console())
    else:
        click.echo(f"recorded in {path}; to see it: ostinato report {path}", err=True)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def _watched_to_its_end(
    process: subprocess.Popen[bytes], view: _View, display: _Screen | _Lines, refresh_s: float
) -> Picture | str | None:
    """The last picture, or why there is none."""
    while True:
        ended = process.poll() is not None
        picture: Picture | str | None
        try:
            picture = view.look()
        except (RecordingError, OSError) as error:
            picture = str(error)
        display.show(picture or f"waiting for {view.path}: the program has submitted nothing yet")
        if ended:
            return picture
        if display.wait(refresh_s, until=lambda: process.poll() is not None):
            process.send_signal(signal.SIGINT)


@contextmanager
def _output() -> Iterator[IO[bytes] | None]:
    """Where the output of a program waits while the picture is on the screen; None where there is no screen."""
    if not _has_screen():
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="ostinato-") as folder, Path(folder, "output").open("a+b") as file:
        yield file  # "a": the program writes at the end, wherever it was read last


def _started(command: Sequence[str], path: Path, level: str, output: IO[bytes] | None) -> subprocess.Popen[bytes]:
    arguments = [sys.executable, *command] if command[0].endswith(".py") else list(command)
    environment = {"OSTINATO_PROFILE": level, "OSTINATO_PROFILE_FILE": os.path.abspath(path)}
    try:
        return subprocess.Popen(
            arguments,
            env=os.environ | environment,
            stdin=subprocess.DEVNULL if output is not None and sys.stdin.isatty() else None,
            stdout=output,
            stderr=output if sys.stderr.isatty() else None,
        )
    except (OSError, ValueError) as error:  # ValueError: a NUL in an argument
        reason = getattr(error, "strerror", None) or error
        raise click.UsageError(f"cannot run {printable(command[0])!r}: {printable(str(reason))}") from None


def _passing_on_signals(process: subprocess.Popen[bytes]) -> AbstractContextManager[None]:
    """The view ends with the program: Ctrl-C reaches that by itself, and other signals are passed on."""

    def pass_on(number: int, frame: object) -> None:
        if number != signal.SIGINT or not _ctrl_c_reaches(process):
            process.send_signal(number)

    return _handled(pass_on, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


def _ctrl_c_reaches(process: subprocess.Popen[bytes]) -> bool:
    """Whether the program is in the foreground of this terminal, whose Ctrl-C is a signal for all that are."""
    try:
        with open("/dev/tty", "rb", buffering=0) as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgid(process.pid)
    except OSError:  # there is no terminal, or the program has ended
        return False


# --- showing -------------------------------------------------------------------------------------------------


def _has_screen() -> bool:
    return sys.stdout.isatty() and not console().is_dumb_terminal


@contextmanager
def _display(path: Path, keys: str, lines_to: IO[str], output: IO[bytes] | None = None) -> Iterator[_Screen | _Lines]:
    """A screen on a terminal, otherwise lines."""
    if not _has_screen():
        yield _Lines(lines_to)
        return
    with _Screen(path, keys, output) as screen:
        yield screen


@contextmanager
def _alternate_screen() -> Iterator[int | None]:
    """The terminal is the picture's; gives what `_keyboard` does."""
    with _keyboard() as keyboard, console().screen():
        yield keyboard


@contextmanager
def _keyboard() -> Iterator[int | None]:
    """Standard input, which gives keys as they are pressed; None if it is no terminal."""
    if not sys.stdin.isatty():
        yield None
        return
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    tty.setcbreak(keyboard)
    try:
        yield keyboard
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


class _Lines:
    """A line per picture, or per sentence in its place."""

    vanishes = False

    def __init__(self, to: IO[str]) -> None:
        self._to = to
        self._printed = ""

    def show(self, picture: Picture | str) -> None:
        """Print a line, unless it is the same again."""
        line = printable(picture) if isinstance(picture, str) else as_line(picture)
        if line != self._printed:
            click.echo(f"{time.strftime('%H:%M:%S')} {line}", self._to)
        self._printed = line

    def wait(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Wait for the next picture, or until something happens; nobody can end it by a key."""
        end = time.monotonic() + seconds
        while not until() and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _POLL_S))
        return False


class _Screen:
    """A picture, or a sentence, on the alternate screen in place of the last one.

    Ctrl-Z gives the terminal back until the process goes on.
    """

    vanishes = True

    def __init__(self, path: Path, keys: str, output: IO[bytes] | None) -> None:
        self._path, self._keys, self._output = path, keys, output
        self._keyboard: int | None = None
        self._terminal = ExitStack()
        self._stop_asked = False

    def __enter__(self) -> Self:
        def ask(number: int, frame: object) -> None:
            self._stop_asked = True  # in `wait`: a handler may come in the middle of a picture

        self._stop_before = signal.getsignal(signal.SIGTSTP)
        if self._stop_before is not signal.SIG_IGN:
            signal.signal(signal.SIGTSTP, ask)
        self._keyboard = self._terminal.enter_context(_alternate_screen())
        return self

    def __exit__(self, *error: object) -> None:
        self._terminal.close()
        signal.signal(signal.SIGTSTP, self._stop_before)

    def _stop(self) -> None:
        self._stop_asked = False
        self._terminal.close()
        ask = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTSTP)  # returns when the process goes on
        signal.signal(signal.SIGTSTP, ask)
        self._keyboard = self._terminal.enter_context(_alternate_screen())

    def show(self, picture: Picture | str) -> None:
        """Draw a picture, with as many kernels as the screen has room for."""
        to = console()
        width, height = to.width, to.size.height
        lines = self._lines(picture, width, MOST_KERNELS)
        if not isinstance(picture, str) and len(lines) > height:
            kernels = min(len(picture.kernels), MOST_KERNELS) - (len(lines) - height)
            lines = self._lines(picture, width, max(kernels - 1, 1))  # one line says how many are left out
        if len(lines) > height:
            lines = [*lines[: height - 1], lines[-1]]
        with to.capture() as drawn:
            to.print(Text("\n").join(lines), soft_wrap=True, end="")
        # In place: clearing the screen first would flicker.
        to.file.write("\x1b[H" + drawn.get().replace("\n", "\x1b[K\n") + "\x1b[K\x1b[J")
        to.file.flush()

    def _lines(self, picture: Picture | str, width: int, kernels: int) -> list[Text]:
        if isinstance(picture, str):
            lines = sentence_lines(picture, width)
        else:
            lines = picture_lines(picture, self._path, width, kernels)
        if self._output is not None and (line := last_line(self._output)):
            lines += sentence_lines(f"output: {line}", width, style="dim")
        return lines + (sentence_lines(self._keys, width, style="dim") if self._keyboard is not None else [])

    def wait(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Wait for the next picture, or until something happens; whether q was pressed."""
        end = time.monotonic() + seconds
        while not until() and (left := end - time.monotonic()) > 0:
            if self._stop_asked:
                self._stop()
                return False
            watched = [] if self._keyboard is None else [self._keyboard]
            if select.select(watched, [], [], min(left, _POLL_S))[0]:
                pressed = os.read(watched[0], 64)
                if not pressed:  # the terminal is gone
                    self._keyboard = None
                if b"q" in pressed.lower():
                    return True
        return False
