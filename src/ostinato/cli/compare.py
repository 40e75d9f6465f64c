"""`ostinato compare`: whether B is slower than A, of recordings, programs, saved graphs and baselines.

The exit status is the answer: 0 nothing is slower, 1 something is, 2 wrong usage or not comparable, 3 cannot tell (with
--strict). So an error ends with 2 and never with 1, whether it was foreseen or not, and so does a report whose reader
closed the pipe.
"""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from ..device import open_device
from ..errors import ComparisonError, OstinatoError
from ..graph.file import is_graph_file, load_graph
from ..measure.baselines import baseline_names, keep_baseline, kept_baseline
from ..measure.comparing import compare
from ..measure.programs import run_in_turns
from ..measure.spreads import known_spreads
from ..profiling.analyse import formatting
from ..profiling.analyse.comparison import Comparison
from ..profiling.analyse.units import Unit, compare_units, read_unit, units_in
from ..profiling.analyse.verdicts import LEAST_UNITS, Verdict
from ..profiling.report.comparison import as_json as comparison_json
from ..profiling.report.comparison import as_markdown, print_comparison
from ..profiling.report.page import save_comparison_page
from .group import busy_after, main, still_line
from .options import part, refuse_unused
from .output import refuse_page

_Judge = Callable[[Sequence[Unit], Sequence[Unit]], Comparison]

SLOWER, NOT_COMPARABLE, CANNOT_TELL, INTERRUPTED = 1, 2, 3, 130
_PATH = click.Path(exists=True, path_type=Path)
_COMMANDS = "ostinato.compare.commands"
_CONFIDENCE = 0.95
_PROGRAMS, _GRAPHS, _RECORDINGS = "commands", "saved graphs", "recordings"
_USES = {
    "runs": (_PROGRAMS,),
    "seconds": (_GRAPHS,),
    "device_name": (_GRAPHS,),
    "allow_different_devices": (_PROGRAMS, _RECORDINGS),
}
"""What options apply to; those that are not here apply to everything."""


class _Compare(click.Command):
    """Takes the commands behind `--` out of the arguments before click sees them, and ends with 2 after any error."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        options, *commands = _split(args)
        context.meta[_COMMANDS] = commands
        return super().parse_args(context, options)

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except (click.ClickException, click.exceptions.Exit):
            raise
        except SystemExit:  # rich ends the process with 1 where a pipe is closed
            pass
        except BrokenPipeError:
            # Python flushes standard output once more at its end, and complains if that fails.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except (OstinatoError, OSError) as error:
            click.echo(f"error: {error}", err=True)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            context.exit(INTERRUPTED)
        except Exception:
            traceback.print_exc()
        context.exit(NOT_COMPARABLE)


def _split(arguments: Sequence[str]) -> list[list[str]]:
    """The parts of an argument list between its `--`."""
    parts: list[list[str]] = [[]]
    for argument in arguments:
        if argument == "--":
            parts.append([])
        else:
            parts[-1].append(argument)
    return parts


@main.command("compare", cls=_Compare, options_metavar="[OPTIONS]")
@click.argument("paths", nargs=-1, type=_PATH, metavar="A B | -- COMMAND … -- COMMAND …")
@click.option(
    "--delta",
    callback=part,
    metavar="PART",
    default="2%",
    show_default=True,
    help="Changes within this part are SAME.",
)
@click.option("--strict", is_flag=True, help="End with 3 if it cannot tell for something with 1 % of the time.")
@click.option("--runs", type=click.IntRange(LEAST_UNITS), default=10, show_default=True, help="Runs of each command.")
@click.option("--save", type=click.Path(path_type=Path), help="Keep recordings: of commands a new folder, else a file.")
@click.option("--baseline", metavar="NAME", help="Compare recordings with this baseline.")
@click.option("--baselines", type=click.Path(file_okay=False, path_type=Path), help="The folder of baselines.")
@click.option("--keep", is_flag=True, help="Make the recordings the baseline, after the comparison if there is one.")
@click.option("--allow-different-devices", is_flag=True, help="Compare recordings of different devices.")
@click.option("--device", "device_name", default="auto", show_default=True, help="Replay graphs on this device.")
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    default=3.0,
    show_default=True,
    help="Replay graphs this long at most.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
@click.option("--markdown", is_flag=True, help="Print Markdown, for a pull request.")
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Also write a page for a browser.")
@click.pass_context
def compare_command(
    context: click.Context,
    paths: tuple[Path, ...],
    delta: float,
    strict: bool,
    runs: int,
    save: Path | None,
    baseline: str | None,
    baselines: Path | None,
    keep: bool,
    allow_different_devices: bool,
    device_name: str,
    seconds: float,
    as_json: bool,
    markdown: bool,
    html: Path | None,
) -> None:
    """Say whether B is slower than A: FASTER, SLOWER, SAME or CANNOT TELL, for each graph, label and kernel.

    A and B are recordings, folders of recordings (runs of one program; a folder in one is a run of several processes),
    or saved graphs, which are replayed in turns. Behind --, two commands run in turns and are recorded.

    Recordings need five runs of each, made in turns, for a verdict, or a calibration of how much processes differ
    (ostinato calibrate --processes 20). The verdicts hold together with 95 % confidence.

    \b
    Exit status:
      0  nothing is slower        2  wrong usage, not comparable, or an error
      1  something is slower      3  cannot tell (with --strict)

    \b
    Examples:
      ostinato compare -- python old.py -- python new.py
      ostinato compare --runs 20 --save runs -- python decode.py --fused no -- python decode.py --fused yes
      ostinato compare runs/A runs/B --markdown > comment.md
      ostinato compare runs/A runs/B --html comparison.html
      ostinato compare before.ostgraph after.ostgraph --seconds 10
      ostinato compare --baselines perf --baseline main run.ostinato
      ostinato compare --baselines perf --baseline main run.ostinato --keep
    """
    commands: list[list[str]] = context.meta[_COMMANDS]
    _check_usage(paths, commands, save, (baseline, baselines, keep), as_json and markdown)
    graphs = not commands and baseline is None and all(map(is_graph_file, paths))
    refuse_unused(context, _USES, _PROGRAMS if commands else _GRAPHS if graphs else _RECORDINGS)
    if html is not None:
        refuse_page(html)

    def judge(a: Sequence[Unit], b: Sequence[Unit]) -> Comparison:
        return compare_units(
            a,
            b,
            delta=delta,
            confidence=_CONFIDENCE,
            spreads=known_spreads(a[0].devices) if a[0].devices == b[0].devices else None,
            allow_different_devices=allow_different_devices,
        )

    comparison: Comparison | None
    if commands:
        comparison = _programs(commands, runs, save, judge)
    elif baseline is not None and baselines is not None:
        comparison = _against_baseline(paths, baselines, baseline, keep, judge)
    elif graphs:
        comparison = _graphs(paths, device_name, delta, seconds, save)
    else:
        comparison = _recordings(paths, judge)
    if comparison is None:
        return
    if as_json:
        click.echo(comparison_json(comparison))
    elif markdown:
        click.echo(as_markdown(comparison), nl=False)
    else:
        print_comparison(comparison)
    if html is not None:
        size = save_comparison_page(comparison, html)
        click.echo(f"{formatting.size(size)} in {html}; open it in a browser", err=True)
    context.exit(exit_status(comparison, strict))


def exit_status(comparison: Comparison, strict: bool) -> int:
    """What the command ends with."""
    if any(row.verdict is Verdict.SLOWER for row in comparison.rows):
        return SLOWER
    return CANNOT_TELL if strict and comparison.undecided else 0


def _check_usage(
    paths: Sequence[Path],
    commands: Sequence[Sequence[str]],
    save: Path | None,
    baseline: tuple[str | None, Path | None, bool],
    both_formats: bool,
) -> None:
    name, folder, keep = baseline
    if both_formats:
        raise click.UsageError("--json and --markdown exclude each other")
    if (name is None) != (folder is None) or (keep and name is None):
        raise click.UsageError("--baseline NAME and --baselines FOLDER go together, and --keep needs both")
    if commands:
        if paths or name is not None:
            raise click.UsageError("compare either commands (behind --) or files, not both")
        if len(commands) != 2 or not all(commands):
            raise click.UsageError(
                "give two commands, each behind its own --: ostinato compare -- python old.py -- python new.py"
            )
    elif name is not None:
        if not paths:
            raise click.UsageError("give the recordings to compare with the baseline")
    elif len(paths) != 2:
        raise click.UsageError("give A and B: two recordings, two folders of recordings, or two saved graphs")
    elif len({is_graph_file(path) for path in paths}) > 1:
        raise click.UsageError("a saved graph is compared with another saved graph, a recording with another recording")
    if save is not None and not commands and not (name is None and all(map(is_graph_file, paths))):
        raise click.UsageError("--save keeps what a comparison records, and this one records nothing")


def _programs(commands: Sequence[Sequence[str]], runs: int, save: Path | None, judge: _Judge) -> Comparison:
    with _folder(save) as folder, still_line() as progress:
        sides = run_in_turns(commands[0], commands[1], folder, runs, progress)
        progress("reading the recordings")
        a, b = ([read_unit(run) for run in side] for side in sides)
        return judge(a, b)


@contextmanager
def _folder(save: Path | None) -> Iterator[Path]:
    if save is None:
        with tempfile.TemporaryDirectory(prefix="ostinato-") as folder:
            yield Path(folder)
        return
    if save.exists() and (not save.is_dir() or any(save.iterdir())):
        raise ComparisonError(f"{save} exists already; name a new folder for the recordings")
    yield save


def _recordings(paths: Sequence[Path], judge: _Judge) -> Comparison:
    if paths[0].samefile(paths[1]):
        raise ComparisonError("A and B are the same recordings")
    with busy_after("reading") as progress:
        a, b = (_read(units_in(path), progress) for path in paths)
        progress("comparing")
        return judge(a, b)


def _read(units: Sequence[Sequence[Path]], progress: Callable[[str], None]) -> list[Unit]:
    """The units of a side; a single one with the intervals within it, as there is nothing else to show."""
    read = []
    for paths in units:
        progress(paths[0].name)
        read.append(read_unit(paths, _CONFIDENCE if len(units) == 1 else None))
    return read


def _against_baseline(paths: Sequence[Path], folder: Path, name: str, keep: bool, judge: _Judge) -> Comparison | None:
    files = [unit for path in paths for unit in units_in(path)]
    with busy_after("reading") as progress:
        b = _read(files, progress)
        devices = b[0].devices
        if any(unit.devices != devices for unit in b):
            raise ComparisonError("the recordings are of different devices, and a baseline is of one")
        kept = kept_baseline(folder, name, devices)
        if kept is None and not keep:
            others = ", ".join(baseline_names(folder)) or "none"
            raise ComparisonError(
                f"there is no baseline {name!r} of {' and '.join(devices)} in {folder} (baselines there: {others});"
                " --keep makes one of the recordings"
            )
        comparison = None if kept is None else judge(_read(units_in(kept), progress), b)
        if keep:
            progress("keeping the baseline")
            place = keep_baseline(folder, name, devices, files)
            click.echo(f"baseline {name!r}: {formatting.count(len(files), 'run')} kept in {place}", err=True)
    return comparison


def _graphs(paths: Sequence[Path], device_name: str, delta: float, seconds: float, save: Path | None) -> Comparison:
    a, b = map(load_graph, paths)
    with open_device(device_name) as device, busy_after("comparing") as progress:
        return compare(a, b, device=device, delta=delta, seconds=seconds, save=save, progress=progress)
