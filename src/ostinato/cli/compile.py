"""`ostinato compile`: compile a file and print its kernels, its generated source, or its errors."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from pathlib import Path

import click

from .. import msl
from ..base.printable import printable
from ..device import open_device
from ..errors import KernelCompileError
from ..runtime.library import Kernel
from .group import busy, main
from .options import constants_of, defines_of, refuse_unused


@main.command("compile")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--device", "device_name", default="auto", show_default=True, help="Compile for this device.")
@click.option(
    "-I", "include_dirs", multiple=True, type=click.Path(path_type=Path), help="Search this folder for includes."
)
@click.option("-D", "defines", multiple=True, metavar="NAME[=VALUE]", help="Define a macro.")
@click.option("-c", "constants", multiple=True, metavar="NAME=VALUE", help="Set a function constant, by name or index.")
@click.option("-k", "wanted", multiple=True, metavar="NAME", help="Compile only this kernel.")
@click.option(
    "--emit",
    "target",
    type=click.Choice(["cpu", "cpu-loops", "cuda"]),
    help="Print the generated source and compile nothing.",
)
@click.pass_context
def compile_command(
    context: click.Context,
    file: Path,
    device_name: str,
    wanted: tuple[str, ...],
    include_dirs: tuple[Path, ...],
    defines: tuple[str, ...],
    constants: tuple[str, ...],
    target: str | None,
) -> None:
    """Compile a .metal file and print its kernels, its generated source, or its errors.

    For each kernel the signature is printed, and on the CPU how its threads run: as one loop, as loops split at
    barriers, as vectors of a simdgroup's lanes, or on fibers, which is slowest; with the reason.

    Errors show file, line and column, the line, and a caret; of more than ten, the rest are counted.

    With --emit the C++ or CUDA source that the kernels are translated to is printed instead. That needs no compiler
    and no device. "cpu" is what compilers of this machine get: where there is a clang, kernels that run as vectors have
    a source of their own, and a comment above each source names its kernels. "cpu-loops" is the source of loops and
    fibers for all of them, which is compiled where there is no clang or a kernel cannot run as vectors.

    \b
    Examples:
      ostinato compile kernels.metal
      ostinato compile kernels.metal --device cpu -D TILE=32 -c use_bias=true
      ostinato compile kernels.metal --emit cuda -k softmax > softmax.cu
    """
    if target is not None:
        refuse_unused(context, {"device_name": ("compiling",)}, "--emit")
    try:
        if target is not None:
            with busy("translating"):
                module = msl.parse(file, include_dirs=include_dirs, defines=defines_of(defines))
                text = _generated(module, target, constants_of(constants), wanted or None)
            click.echo(text, nl=False)
            return
        with busy("compiling"), open_device(device_name) as device:
            library = device.library(file, constants_of(constants), include_dirs, defines_of(defines))
            whole = len(library) <= library.COMPILED_WHOLE
            lines = [_described(library[name]) for name in (wanted or (library if whole else ()))]
        if not (whole or wanted):
            lines = list(map(str, library.signatures.values()))
            click.echo(f"{len(library)} kernels are too many to compile at once; choose some with -k", err=True)
        for line in lines:
            click.echo(line)
        for name, error in library.left_out.items():
            click.echo(f"left out: {printable(name)}: {error}", err=True)
    except KernelCompileError as error:
        place = str(error) if error.file else f"{file}: {error}"
        click.echo(f"error: {place}", err=True)
        sys.exit(1)


def _generated(
    module: msl.Module, target: str, constants: Mapping[int | str, object], only: Collection[str] | None
) -> str:
    if target == "cpu":
        from ..backends.cpu.kernels import generated_text

        return generated_text(module, constants, only)
    return module.translate(target.removesuffix("-loops"), constants, only).text


def _described(kernel: Kernel) -> str:
    return f"{kernel.signature}\n  {kernel.execution}"
