"""`ostinato bench`: how long a kernel of a file, or a saved graph, takes. No Python needed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import click

from ..base.printable import printable
from ..device import Device, check_settings, open_device
from ..errors import (
    ArgumentError,
    ConstantError,
    GeometryError,
    GraphError,
    GraphFileError,
    KernelNotFound,
)
from ..graph.file import is_graph_file, load_graph
from ..measure.benching import Bench, bench_contender
from ..measure.subjects import Contender, contender
from ..profiling.analyse import formatting
from ..profiling.report.json import plain as plain_types
from ..runtime.library import Kernel, Library
from .argument_language import Number, Value, assignment, made
from .group import main, still_line
from .kernel_arguments import Launch, bound, check_room, shared_sizes, values_of
from .options import constants_of, defines_of, extent, part
from .output import FORCE_HELP, refuse_existing, replace_whole

VERSION = 1
_MANY_DISTURBED = 0.2
"""From this share of disturbed runs on, a note says so."""
_MOST_NAMES = 24
_BYTES = click.IntRange(0)
_LOOKED_AT_BYTES = 4096
_NO_TEXT = re.compile(rb"[\0-\x08\x0e-\x1f]")


@main.command("bench", options_metavar="[OPTIONS]")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("kernel_name", metavar="[KERNEL]", required=False)
@click.option("--threads", callback=extent, metavar="SIZE", help="The grid in threads: 1048576, 64x64, 8x8x4.")
@click.option("--groups", callback=extent, metavar="SIZE", help="The grid in groups, instead of --threads.")
@click.option(
    "--group-size", callback=extent, metavar="SIZE", help="Threads per group. [default: chosen, with --threads]"
)
@click.option(
    "--arg", "arguments", multiple=True, metavar="NAME=VALUE", help="An argument, by index or name. See above."
)
@click.option("--shared", multiple=True, metavar="INDEX=BYTES", help="The size of a threadgroup argument.")
@click.option(
    "-c", "--constants", multiple=True, metavar="NAME=VALUE", help="Set a function constant, by name or index."
)
@click.option("-D", "--define", "defines", multiple=True, metavar="NAME[=VALUE]", help="Define a macro.")
@click.option(
    "-I", "include_dirs", multiple=True, type=click.Path(path_type=Path), help="Search this folder for includes."
)
@click.option("--param", "params", multiple=True, metavar="NAME=VALUE", help="A parameter or a buffer of a graph.")
@click.option("--device", "device_name", default="auto", show_default=True, help="Run on this device.")
@click.option("--cold", is_flag=True, help="Flush the caches before every run.")
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    default=3.0,
    show_default=True,
    help="Measure this long at most.",
)
@click.option(
    "--width",
    callback=part,
    metavar="PART",
    default="1%",
    show_default=True,
    help="Stop when the median is known to this part of it.",
)
@click.option("--bytes-read", type=_BYTES, help="Bytes that a run reads, for the bandwidth.")
@click.option("--bytes-written", type=_BYTES, help="Bytes that a run writes, for the bandwidth.")
@click.option("--flops", type=_BYTES, help="Floating-point operations of a run, for the rate.")
@click.option("--save", type=click.Path(dir_okay=False, path_type=Path), help="Keep the recording of all runs.")
@click.option("--force", is_flag=True, help=FORCE_HELP)
@click.option(
    "--save-graph",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Keep kernel, arguments and grid as a graph file, for ostinato compare.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def bench_command(
    file: Path,
    kernel_name: str | None,
    threads: tuple[int, ...] | None,
    groups: tuple[int, ...] | None,
    group_size: tuple[int, ...] | None,
    arguments: tuple[str, ...],
    shared: tuple[str, ...],
    constants: tuple[str, ...],
    defines: tuple[str, ...],
    include_dirs: tuple[Path, ...],
    params: tuple[str, ...],
    device_name: str,
    cold: bool,
    seconds: float,
    width: float,
    bytes_read: int | None,
    bytes_written: int | None,
    flops: int | None,
    save: Path | None,
    force: bool,
    save_graph: Path | None,
    as_json: bool,
) -> None:
    """Measure how long a kernel takes: the median of many runs, with its interval, beside the device's ceilings.

    FILE is a .metal file or a saved graph. KERNEL may be left out if the file has only one.

    \b
    The value of an argument is
      3.0                        a number, of the type that the kernel declares
      float32[1048576]           an array of random numbers; the same ones in every run
      float32[64,64]:zeros       also :ones, :arange, or :7 for random numbers of seed 7
      weights.npy                an array in a file

    \b
    Examples:
      ostinato bench kernels.metal saxpy --threads 1048576 --arg x=float32[1048576] --arg y=float32[1048576] --arg a=3
      ostinato bench kernels.metal matmul --groups 32x32 --group-size 8x8 --arg 0=a.npy --arg 1=b.npy --arg 2=half[1024]
      ostinato bench token.ostgraph --param pos=7 --cold

    \b
    Is a change faster? Keep a graph before it and one after it, and compare the two:
      ostinato bench kernels.metal saxpy … --save-graph before.ostgraph
      ostinato compare before.ostgraph after.ostgraph
    """
    check_settings()
    launch = Launch(arguments, threads, groups, group_size, shared, bytes_read, bytes_written, flops)
    _check_files(save, save_graph, force)
    with still_line() as say, open_device(device_name) as device:
        kernel: Kernel | None = None
        if is_graph_file(file):
            _refuse_for_a_graph(kernel_name, launch, constants, defines, include_dirs)
            ready = _of_graph(device, file, params)
        else:
            if params:
                raise click.UsageError("--param belongs to a graph; the arguments of a kernel are --arg")
            _check_source(file)
            say("compiling")
            with _wrong_usage():
                library = device.library(file, constants_of(constants), include_dirs, defines_of(defines))
                kernel = _kernel(library, kernel_name)
            say("filling the arguments")
            ready = _of_kernel(device, kernel, launch)
        result = bench_contender(ready, cold=cold, width=width, seconds=seconds, progress=say)
        if save is not None:
            replace_whole(save, result.save)
        if save_graph is not None:
            ready.run.graph.save(save_graph, contents=True)
    if as_json:
        click.echo(json.dumps(as_dict(result, kernel), indent=2))
        return
    for line in _lines(result, kernel):
        click.echo(line)
    if save is not None:
        click.echo(f"recorded in {save}; to see it: ostinato report {save}")


def _check_files(save: Path | None, save_graph: Path | None, force: bool) -> None:
    """Refuses files that could not or should not be written, before anything is measured."""
    if save is not None:
        refuse_existing(save, force)
    if save_graph is not None and save_graph.exists() and not is_graph_file(save_graph):
        raise click.BadParameter(f"{str(save_graph)!r} is not a saved graph; name another file")
    for path in (save, save_graph):
        if path is not None and not path.parent.is_dir():
            raise click.BadParameter(f"there is no folder {str(path.parent)!r}")


@contextmanager
def _wrong_usage() -> Iterator[None]:
    """Turns an error about something on the command line into one of its usage."""
    try:
        yield
    except GraphFileError:
        raise
    except (ArgumentError, ConstantError, GeometryError, GraphError, KernelNotFound) as error:
        raise click.UsageError(str(error)) from None


# --- a kernel ----------------------------------------------------------------------------------------------------


def _check_source(file: Path) -> None:
    with file.open("rb") as opened:
        begin = opened.read(_LOOKED_AT_BYTES)
    if _NO_TEXT.search(begin):
        raise click.UsageError(f"{str(file)!r} is neither Metal source nor a saved graph")


def _kernel(library: Library, name: str | None) -> Kernel:
    if name is None and len(library) > 1:
        names = ", ".join(islice(library, _MOST_NAMES)) + (", …" if len(library) > _MOST_NAMES else "")
        raise ArgumentError(f"which kernel? The file has {len(library)}: {names}")
    return library[name or next(iter(library))]


def _of_kernel(device: Device, kernel: Kernel, launch: Launch) -> Contender:
    with _wrong_usage():
        if launch.threads and launch.groups:
            raise ArgumentError("give the grid as --threads or as --groups, not both")
        values = values_of(kernel, launch)
        check_room(device, values)
        placed = {index: bound(device, value, index) for index, value in values.items()}
        return contender(
            kernel,
            (placed,) if placed else (),
            threads=launch.threads,
            groups=launch.groups,
            group_size=launch.group_size,
            shared=shared_sizes(launch.shared),
            bytes_read=launch.bytes_read,
            bytes_written=launch.bytes_written,
            flops=launch.flops,
        )


# --- a graph -----------------------------------------------------------------------------------------------------


def _refuse_for_a_graph(kernel_name: str | None, launch: Launch, *compiling: tuple[Any, ...]) -> None:
    if kernel_name is not None:
        raise click.UsageError(f"{printable(kernel_name)!r}: a graph is measured as a whole, without a KERNEL")
    if launch.options or any(compiling):
        given = launch.options[0] if launch.options else "-c, -D or -I"
        raise click.UsageError(f"{given}: a saved graph has its own kernels, arguments and grids; give --param")


def _of_graph(device: Device, file: Path, texts: tuple[str, ...]) -> Contender:
    graph = load_graph(file)
    with _wrong_usage():
        values: dict[str, Value] = {}
        for text in texts:
            name, value = assignment(text)
            if name not in graph.params and name not in graph.names:
                known = ", ".join([*graph.params, *graph.names]) or "none"
                raise ArgumentError(f"{text!r}: the graph has no parameter or buffer {name!r}; it has {known}")
            if name in graph.names and isinstance(value, Number):
                named = graph.names[name]
                array = f"{named.dtype.name}[{','.join(map(str, named.shape))}]"
                raise ArgumentError(f"{text!r}: {name!r} is a buffer, not a number; write --param {name}={array}")
            values[name] = value
        missing = [str(param) for name, param in graph.params.items() if name not in values]
        if missing:
            raise ArgumentError(f"nothing for {', '.join(missing)}; write --param NAME=VALUE")
        check_room(device, values)
        given: dict[str, Any] = {}
        for position, (name, value) in enumerate(values.items()):
            if name in graph.names:
                given[name] = bound(device, value, position)
            else:
                given[name] = value.value if isinstance(value, Number) else made(value, position)
                graph.params[name].encode(given[name])  # raises for a value that does not fit
        return contender(graph.to(device), values=given, name=graph.label or printable(file.stem))


# --- what is printed ---------------------------------------------------------------------------------------------


def _lines(result: Bench, kernel: Kernel | None) -> Iterator[str]:
    yield str(result)
    if kernel is not None:
        yield f"  {kernel.signature}, {kernel.execution}"
    share = result.disturbed / result.runs
    if share >= _MANY_DISTURBED:
        yield (
            f"  note: other programs took a part of {formatting.whole_percent(share)} of the runs; measure again when"
            " the machine is idle"
        )
    if not result.precise:
        yield "  note: --seconds measures longer, --width is content with less"
    if result.bytes_bound and kernel is not None:
        yield "  ≤: by the sizes of the buffers; --bytes-read and --bytes-written say what the kernel moves"


def as_dict(result: Bench, kernel: Kernel | None = None) -> Any:
    """The result as plain types, as docs/json.md describes them."""
    interval = result.interval
    return plain_types(
        {
            "format": "ostinato.bench",
            "version": VERSION,
            "name": result.name,
            "device": result.device,
            "cold": result.cold,
            "kernel": None
            if kernel is None
            else {
                "signature": str(kernel.signature),
                "way": kernel.execution.way,
                "reason": kernel.execution.explanation,
            },
            "median_ns": result.median_ns,
            "interval": None if interval is None else asdict(interval),
            "precise": result.precise,
            "runs": result.runs,
            "disturbed": result.disturbed,
            "bytes_moved": result.bytes_moved,
            "bytes_bound": result.bytes_bound,
            "bytes_per_s": result.bytes_per_s,
            "copy_bytes_per_s": result.copy_bytes_per_s,
            "flops": result.flops,
            "flop_rate": result.flop_rate,
            "flops_per_s": result.flops_per_s,
            "samples_ns": result.samples_ns.tolist(),
        }
    )
