"""The command group `ostinato`, and helpers that its commands share."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from importlib import import_module
from typing import Any

import click

from ..base.printable import printable
from ..errors import OstinatoError, SettingError
from ..version import __version__

_COMMANDS = {
    "bench": ("bench", "Measure how long a kernel of a .metal file, or a saved graph, takes."),
    "calibrate": (
        "calibrate",
        "Measure the overhead of dispatches, barriers and timestamps, and the device's ceilings.",
    ),
    "check": ("check", "Run a program and check every command list that it submits."),
    "compare": ("compare", "Say whether one program, recording or graph is slower than another."),
    "compile": ("compile", "Compile a .metal file and print its kernels, or its errors."),
    "debug": ("debug", "Run a program under gdb, which steps through its kernels."),
    "decode": ("decode", "Generate tokens greedily, from a checkpoint or random weights."),
    "demo": ("demo", "Generate tokens with a small mixture of experts, and profile it."),
    "devices": ("devices", "List the devices and their capabilities."),
    "fleet": ("fleet", "Keep the recordings of many machines in a store, and report on it."),
    "live": ("live", "Watch a program while it is recorded: kernels, tokens per second."),
    "merge": ("report", "Merge the recordings of several processes into one, on one clock."),
    "profile": ("profile", "Run a program, record what it submits, and show where the time goes."),
    "report": ("report", "Show where the time of a recording went."),
    "tune": ("tune", "Find the fastest choice of a spec, or of a decoder's products."),
    "upgrade": ("report", "Rewrite an older recording in the current version of the format."),
}
"""Each command with its module, which is loaded when the command is run, and its line in `ostinato --help`."""


class _Commands(click.Group):
    """Loads a command when it is run, and turns errors of the library into a line of text and an exit status."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        import_module(f".{_COMMANDS[name][0]}", __package__)
        return super().get_command(context, name)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in _COMMANDS.items()])

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            context.exit(130)
        except OstinatoError as error:
            click.echo(f"error: {error}", err=True)
            context.exit(2 if isinstance(error, SettingError) else 1)
        except OSError as error:  # such as a file that cannot be written; click handles a closed pipe
            if error.errno == errno.EPIPE:
                raise
            click.echo(f"error: {error}", err=True)
            context.exit(1)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ostinato")
def main() -> None:
    """Runs Metal compute kernels on any machine."""


def busy(what: str) -> AbstractContextManager[object]:
    """A spinner on a terminal for the length of a block."""
    from rich.console import Console  # takes a third of a second, which `--help` need not wait for

    console = Console(stderr=True)
    return console.status(f"{what} …") if console.is_terminal else nullcontext()


@contextmanager
def busy_after(doing: str = "checking", seconds: float = 2.0) -> Iterator[Callable[[str], None]]:
    """A spinner that appears only after some seconds; call what it yields with the current step."""
    from rich.console import Console
    from rich.markup import escape

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda what: None
        return
    status = console.status(f"{doing} …")
    timer = threading.Timer(seconds, status.start)
    timer.start()
    try:
        yield lambda what: status.update(f"{doing} … {escape(printable(what))}")
    finally:
        timer.cancel()
        timer.join()
        status.stop()


@contextmanager
def still_line() -> Iterator[Callable[[str], None]]:
    """One line on a terminal; call what it yields to replace it. Nothing moves in between and takes time of a core, so
    it can be shown beside what is being measured."""
    if not sys.stderr.isatty():
        yield lambda what: None
        return
    width = shutil.get_terminal_size().columns

    def show(what: str) -> None:
        sys.stderr.write(f"\r\x1b[K{printable(what, width - 1)}")
        sys.stderr.flush()

    try:
        yield show
    finally:
        show("")


@contextmanager
def printing_to_stderr() -> Iterator[None]:
    """Redirects standard output to standard error for the length of a block, for native code too."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
