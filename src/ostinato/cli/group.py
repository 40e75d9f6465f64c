"""The command that all others belong to, and what they share."""

from __future__ import annotations

import errno
import os
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
    "calibrate": ("calibrate", "Measure what dispatches, barriers and timestamps cost, and the device's ceilings."),
    "check": ("check", "Run a program and check every list of commands that it submits."),
    "compile": ("compile", "Compile a .metal file and print the signatures of its kernels, or its errors."),
    "decode": ("decode", "Generate tokens greedily, from a checkpoint or random weights."),
    "demo": ("demo", "Generate tokens with a small mixture of experts, profiled."),
    "devices": ("devices", "List the devices, what they can do, and why any cannot be used."),
    "merge": ("report", "Make one recording of those of several processes, on one clock."),
    "profile": ("profile", "Run a program, record what it submits, and say where the time went."),
    "report": ("report", "Say where the time of a recording went."),
    "upgrade": ("report", "Rewrite a recording of an older version as one of this version."),
}
"""Each command with its module, which is loaded when the command is run, and its line in `ostinato --help`."""


class _Commands(click.Group):
    """Loads a command when it is run, and turns errors of the library into one line and an exit status."""

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
        except OstinatoError as error:
            click.echo(f"error: {error}", err=True)
            context.exit(2 if isinstance(error, SettingError) else 1)
        except OSError as error:  # a file that cannot be written, say; but a reader that went away is click's to handle
            if error.errno == errno.EPIPE:
                raise
            click.echo(f"error: {error}", err=True)
            context.exit(1)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ostinato")
def main() -> None:
    """Runs Metal compute kernels on any machine."""


def busy(what: str) -> AbstractContextManager[object]:
    """A sign of life on a terminal while something takes its time."""
    from rich.console import Console  # a third of a second that `--help` does without

    console = Console(stderr=True)
    return console.status(f"{what} …") if console.is_terminal else nullcontext()


@contextmanager
def busy_after(doing: str = "checking", seconds: float = 2.0) -> Iterator[Callable[[str], None]]:
    """The same for something that is rarely slow: shown only when it is, with what it says it is doing."""
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
def printing_to_stderr() -> Iterator[None]:
    """What is printed in the block, by Python or by anything below it, goes to standard error."""
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
