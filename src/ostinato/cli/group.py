"""The command that all others belong to, and what they share."""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from typing import Any

import click
from rich.console import Console
from rich.markup import escape

from ..errors import OstinatoError, SettingError
from ..printable import printable
from ..version import __version__


class _Commands(click.Group):
    """Turns errors of the library into one line and an exit status."""

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
    console = Console(stderr=True)
    return console.status(f"{what} …") if console.is_terminal else nullcontext()


@contextmanager
def busy_after(doing: str = "checking", seconds: float = 2.0) -> Iterator[Callable[[str], None]]:
    """The same for something that is rarely slow: shown only when it is, with what it says it is doing."""
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
