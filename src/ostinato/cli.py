"""The command line: `ostinato devices | compile | check | demo | --version`.

Exit status: 0 when all went well, 1 when something was wrong with what was asked for (a kernel that does not compile,
no device, a race), 2 when the command line itself was wrong, or a setting in the environment; `check` passes on that of
the program. With `--json`, standard output holds only the JSON.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from . import demo as demonstration
from .audit import check as checking
from .audit import table as audit_table
from .device import DeviceInfo, check_settings, devices, open_device
from .errors import ArgumentError, KernelCompileError, OstinatoError, SettingError
from .printable import printable
from .program import run as run_program
from .version import __version__


class _Commands(click.Group):
    """Turns errors of the library into one line and an exit status."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except OstinatoError as error:
            click.echo(f"error: {error}", err=True)
            context.exit(2 if isinstance(error, SettingError) else 1)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ostinato")
def main() -> None:
    """Runs Metal compute kernels on any machine."""


@main.command("devices")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def devices_command(as_json: bool) -> None:
    """List the devices, what they can do, and why any cannot be used.

    \b
    Example:
      ostinato devices --json
    """
    check_settings()
    found = devices()
    if as_json:
        click.echo(json.dumps([_plain(device) for device in found], indent=2))
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("device", "state", "what"):
        table.add_column(heading)
    for device in found:
        able = device.capabilities
        if able is None:
            table.add_row(device.name, "skipped", escape(device.reason))
            continue
        facts = [
            able.description,
            f"{able.workers} workers",
            f"{able.max_threads_per_group} threads a group",
            f"simdgroups of {able.simd_width}",
            f"{able.threadgroup_memory_bytes >> 10} KiB threadgroup memory",
            *able.details.values(),
        ]
        table.add_row(device.name, "ready", escape(", ".join(facts)))
    Console().print(table)


@main.command("compile")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--device", "device_name", default="auto", show_default=True, help="Compile for this device.")
@click.option("-I", "include_dirs", multiple=True, type=click.Path(path_type=Path), help="Look for includes here too.")
@click.option("-D", "defines", multiple=True, metavar="NAME[=VALUE]", help="Define a macro.")
@click.option(
    "-c", "constants", multiple=True, metavar="NAME=VALUE", help="Give a function constant, by name or index."
)
@click.option(
    "-k", "wanted", multiple=True, metavar="NAME", help="Compile this kernel, where a file has too many to compile all."
)
def compile_command(
    file: Path,
    device_name: str,
    wanted: tuple[str, ...],
    include_dirs: tuple[Path, ...],
    defines: tuple[str, ...],
    constants: tuple[str, ...],
) -> None:
    """Compile a .metal file and print the signatures of its kernels, or its errors.

    \b
    Examples:
      ostinato compile kernels.metal
      ostinato compile kernels.metal --device cpu -D TILE=32 -c use_bias=true
    """
    macros = {name: value or "1" for name, _, value in (define.partition("=") for define in defines)}
    try:
        with _busy("compiling"), open_device(device_name) as device:
            library = device.library(file, _constants(constants), include_dirs, macros)
            whole = len(library) <= library.COMPILED_WHOLE
            signatures = [library[name].signature for name in (wanted or (library if whole else ()))]
        if not (whole or wanted):
            signatures = list(library.signatures.values())
            click.echo(f"{len(library)} kernels are too many to compile at once: name some with -k", err=True)
        for signature in signatures:
            click.echo(str(signature))
        if not library:
            click.echo("no kernels in this file", err=True)
    except KernelCompileError as error:
        place = str(error) if error.file else f"{file}: {error}"
        click.echo(f"error: {place}", err=True)
        sys.exit(1)


@main.command("check", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("program")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--structure-only", is_flag=True, help="Look at barriers only; run nothing but the program.")
@click.option("--repeats", type=click.IntRange(1), default=5, show_default=True, help="Concurrent runs of each list.")
@click.option("--max-lists", type=click.IntRange(1), default=64, show_default=True, help="Look at so many lists.")
@click.option(
    "--max-values", type=click.IntRange(0), default=256, show_default=True, help="Look at so many values of each list."
)
@click.option(
    "--limit",
    "limit_s",
    type=click.FloatRange(0, min_open=True),
    default=30.0,
    show_default=True,
    help="Seconds that one command may take; a program with a longer one is stopped.",
)
@click.option("--why", is_flag=True, help="Say of each inferred barrier why it is there.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; what the program prints goes to standard error.")
def check_command(
    program: str,
    arguments: tuple[str, ...],
    structure_only: bool,
    repeats: int,
    max_lists: int,
    max_values: int,
    limit_s: float,
    why: bool,
    as_json: bool,
) -> None:
    """Run a program and check every list of commands that it submits.

    PROGRAM is a script or module:function. Looked for are missing and redundant barriers, accesses that are not
    declared or out of bounds, and races; each list is run on a copy of its memory, on the CPU, before the program's own
    run of it. A list that comes again with other values passed to its kernels is checked for accesses out of bounds.
    Status 1 when something is wrong; otherwise the program's own.

    \b
    Examples:
      ostinato check train.py --steps 3
      ostinato check --structure-only package.module:main
    """
    check_settings()
    options = checking.Options(not structure_only, repeats, max_lists, max_values=max_values, limit_s=limit_s)
    watcher = checking.Watcher(options, _busy_after)
    with _printing_to_stderr() if as_json else nullcontext():
        try:
            with watcher.installed():
                status = run_program(program, arguments)
        except ArgumentError as error:
            raise click.BadParameter(str(error), param_hint="PROGRAM") from None
    if watcher.crash is not None:
        raise watcher.crash
    result = watcher.result(status)
    if as_json:
        click.echo(json.dumps(audit_table.plain(result), indent=2))
    else:
        Console().print(audit_table.checked(result, why))
    sys.exit(result.status if result.ok else 1)


@main.command("demo")
@click.option("--device", "device_name", default="auto", show_default=True, help="Run on this device.")
def demo_command(device_name: str) -> None:
    """Run a few Metal kernels and check them against NumPy."""
    console = Console()
    with _busy("compiling and running"), open_device(device_name) as device:
        title = escape(repr(device))
        rows = demonstration.run(device)
    console.print(f"{title}\n")
    table = Table(box=None, pad_edge=False)
    table.add_column("kernel")
    table.add_column("does")
    table.add_column("threads", justify="right")
    table.add_column("time", justify="right")
    table.add_column("bandwidth", justify="right")
    table.add_column("same as NumPy")
    for row in rows:
        table.add_row(
            row.kernel,
            row.purpose,
            f"{row.threads:,}",
            f"{row.nanoseconds / 1000:,.1f} µs",
            f"{row.nbytes / row.nanoseconds:.1f} GB/s",
            "[green]yes[/green]" if row.correct else "[red]NO[/red]",
        )
    console.print(table)
    if not all(row.correct for row in rows):
        sys.exit(1)


def _busy(what: str) -> AbstractContextManager[object]:
    """A sign of life on a terminal while something takes its time."""
    console = Console(stderr=True)
    return console.status(f"{what} …") if console.is_terminal else nullcontext()


@contextmanager
def _busy_after(seconds: float = 2.0) -> Iterator[Callable[[str], None]]:
    """The same for something that is rarely slow: shown only when it is, with what it says it is doing."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda what: None
        return
    status = console.status("checking …")
    timer = threading.Timer(seconds, status.start)
    timer.start()
    try:
        yield lambda what: status.update(f"checking … {escape(printable(what))}")
    finally:
        timer.cancel()
        timer.join()
        status.stop()


@contextmanager
def _printing_to_stderr() -> Iterator[None]:
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


def _plain(device: DeviceInfo) -> dict[str, Any]:
    able = device.capabilities
    facts: dict[str, Any] = {"name": device.name, "available": device.available, "reason": device.reason}
    facts["capabilities"] = None if able is None else asdict(able) | {"gates": sorted(able.gates)}
    return facts


def _constants(given: tuple[str, ...]) -> dict[int | str, bool | int | float]:
    values: dict[int | str, bool | int | float] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="-c")
        values[int(name) if name.isdigit() else name] = _number(value)
    return values


def _number(text: str) -> bool | int | float:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    with suppress(ValueError):
        return int(text, 0)
    with suppress(ValueError):
        return float(text)
    raise click.BadParameter(f"{text!r} is not a number, true or false", param_hint="-c")
