"""Surveys folders of Metal sources: which files parse, which kernels compile, how they run, and why the others fail.

    python tools/corpus.py FOLDER… [--include DIR]… [--define NAME=VALUE]… [--sample N] [--device cpu|cuda] [--json]

Each `.metal` file is parsed in a process of its own. Kernels are drawn from it by a seed that is the file's path in its
folder, so that each run draws the same ones. They are compiled together; if that fails, one by one, and if it takes too
long, in halves. Each compilation is a process of its own with a limit on processor time and memory, and a compiler that
needs more is itself a cause of failure. Compiling for CUDA needs NVRTC but no GPU. What the library declares as
unsupported, such as textures, is counted apart from failures.
"""

from __future__ import annotations

import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import click

from ostinato import msl
from ostinato.base.printable import printable
from ostinato.cli.group import still_line
from ostinato.cli.options import Constants, constants_of, defines_of
from ostinato.errors import KernelCompileError, OstinatoError, UnsupportedFeature

MEMORY_BYTES = 8 << 30
LONGEST_CAUSE = 160


@dataclass(frozen=True, slots=True)
class Settings:
    """What the process of a file needs to know."""

    device: str
    architecture: str
    sample: int
    limit_s: int
    include_dirs: tuple[str, ...]
    defines: Mapping[str, str]
    constants: Constants


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a file was not parsed or a kernel not compiled."""

    cause: str
    """The first message, without what differs from kernel to kernel."""
    message: str
    place: str
    unsupported: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one kernel."""

    kernel: str
    way: str = ""
    """How it runs; empty if it was not compiled."""
    reason: str = ""
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class FileResult:
    """What became of one file."""

    file: str
    kernels: int = 0
    uninstantiated: int = 0
    """Kernel templates without an instance; a host program makes them."""
    failure: Failure | None = None
    outcomes: tuple[Outcome, ...] = ()
    parse_s: float = 0.0
    compile_s: float = 0.0
    slowest: tuple[float, tuple[str, ...]] = field(default=(0.0, ()))
    """Processor seconds of the longest compilation, and its kernels."""


# -- the process of one file ------------------------------------------------------------------------------------------


def work(file: str, name: str, settings: Settings) -> Iterator[dict[str, Any]]:
    """Survey one file; yields what is known so far as fields of its `FileResult`, the outcomes in parts."""
    limit_resources(settings.limit_s)
    began = time.process_time()
    try:
        module = msl.parse(Path(file), include_dirs=[*map(Path, settings.include_dirs)], defines=settings.defines)
    except KernelCompileError as error:
        yield {"failure": asdict(failure_of(error)), "parse_s": time.process_time() - began}
        return
    yield {
        "kernels": len(module.kernels),
        "uninstantiated": len(module.uninstantiated),
        "parse_s": time.process_time() - began,
    }
    names = list(module.kernels)
    if len(names) > settings.sample:
        names = sorted(random.Random(name).sample(names, settings.sample), key=names.index)
    constants: Constants = {constant.name: 1 for constant in module.constants}
    constants |= {key: value for key, value in settings.constants.items() if key in constants}
    groups = [names] if names else []
    while groups:
        group = groups.pop()
        outcomes, seconds = in_child(partial(compiled, module, constants, group, settings))
        failed = outcomes is None or outcomes[0]["failure"] is not None
        # A compiler in a process of its own reports that it was stopped as an error like any other.
        stopped = outcomes is None or (failed and seconds >= settings.limit_s)
        if stopped and len(group) > 1:
            groups += [group[len(group) // 2 :], group[: len(group) // 2]]
            outcomes = ()
        elif failed and len(group) > 1:
            groups += [[kernel] for kernel in reversed(group)]
            outcomes = ()
        elif stopped:
            cause = f"the compiler takes more than {settings.limit_s} s or {MEMORY_BYTES >> 30} GiB"
            outcomes = [asdict(Outcome(group[0], failure=Failure(cause, cause, "")))]
        yield {"outcomes": outcomes, "compile_s": seconds, "slowest": (seconds, group)}


def limit_resources(limit_s: int) -> None:
    """Limit this process and its children, which count their own time: SIGXCPU, a second later SIGKILL."""
    for kind, soft, hard in (
        (resource.RLIMIT_CPU, limit_s, limit_s + 1),
        (resource.RLIMIT_AS, MEMORY_BYTES, MEMORY_BYTES),
    ):
        try:
            resource.setrlimit(kind, (soft, hard))
        except (ValueError, OSError):
            continue  # macOS does not limit address space, and a stricter limit stays


def compiled(
    module: msl.Module, constants: Constants, names: Sequence[str], settings: Settings
) -> list[dict[str, Any]]:
    """Compile some kernels together; the outcomes, all with the same failure if there is one."""
    try:
        if settings.device == "cuda":
            from ostinato.backends.cuda.compiling import cubin

            translation = module.translate("cuda", constants, names)
            cubin(translation.text, msl.cuda_options(settings.architecture, standard=translation.standard))
            ways = dict.fromkeys(names, msl.NATIVE)
        else:
            from ostinato.backends.cpu.kernels import compile_kernels

            kernels = dict(compile_kernels(module, constants, names))
            for name in names:
                if name not in kernels:  # those that run as vectors are compiled one by one
                    kernels |= compile_kernels(module, constants, [name])
            ways = {name: kernels[name].execution or msl.NATIVE for name in names}
    except OstinatoError as error:
        return [asdict(Outcome(name, failure=failure_of(error))) for name in names]
    return [asdict(Outcome(name, ways[name].way, ways[name].explanation)) for name in names]


def in_child(make: Callable[[], Any]) -> tuple[Any, float]:
    """What `make` returns in a forked process, or None if it was stopped; and its processor seconds."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if not child:
        try:
            os.close(reader)
            with open(writer, "w", encoding="utf-8") as pipe:
                json.dump(make(), pipe)
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, encoding="utf-8") as pipe:
        text = pipe.read()
    used = os.wait4(child, 0)[2]
    return json.loads(text) if text else None, used.ru_utime + used.ru_stime


def failure_of(error: OstinatoError) -> Failure:
    message = error.message if isinstance(error, KernelCompileError) else str(error)
    place = ""
    if isinstance(error, KernelCompileError) and error.file is not None:
        place = f"{Path(error.file).name}:{error.line}"
    return Failure(normalised(message), message, place, isinstance(error, UnsupportedFeature))


def normalised(message: str) -> str:
    """A message without what differs from kernel to kernel: template and function arguments, numbers."""
    text = re.sub(r"\s*\[with [^\n]*\]", "", message).replace("‘", "'").replace("’", "'")
    for opening, closing in ("<>", "()"):
        inner = re.compile(rf"(?<=\w)\{opening}(?!…\{closing})[^{opening}{closing}]*\{closing}")
        shorter = None
        while shorter != text:
            shorter, text = text, inner.sub(f"{opening}…{closing}", text)
    return printable(re.sub(r"\b\d+\b", "N", text), LONGEST_CAUSE)


# -- the process of the survey ----------------------------------------------------------------------------------------


def survey(
    files: Sequence[tuple[Path, str]], settings: Settings, jobs: int, progress: Callable[[str], None]
) -> Iterator[FileResult]:
    """The results of files in their order; `progress` is told what is being compiled."""
    done, lock = Counter[str](), threading.Lock()

    def tell(name: str, outcomes: int) -> None:
        with lock:
            done["kernels"] += outcomes
            progress(f"{done['files']} of {len(files)} files, {done['kernels']} kernels, now {name}")

    def run(item: tuple[Path, str]) -> FileResult:
        result = survey_file(*item, settings, lambda outcomes: tell(item[1], outcomes))
        with lock:
            done["files"] += 1
        return result

    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(run, files)


def survey_file(file: Path, name: str, settings: Settings, tell: Callable[[int], None]) -> FileResult:
    """Survey a file in a process of its own."""
    tell(0)
    merged: dict[str, Any] = {"outcomes": [], "compile_s": 0.0, "slowest": (0.0, ())}
    with subprocess.Popen(
        [sys.executable, __file__, "--worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
    ) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        json.dump([str(file), name, asdict(settings)], worker.stdin)
        worker.stdin.close()
        for line in worker.stdout:
            part = json.loads(line)
            merged["outcomes"] += part.pop("outcomes", ())
            merged["compile_s"] += part.pop("compile_s", 0.0)
            merged["slowest"] = max(merged["slowest"], part.pop("slowest", merged["slowest"]), key=lambda each: each[0])
            merged |= part
            tell(len(merged["outcomes"]))
    if worker.returncode:
        stopped = worker.returncode == -signal.SIGXCPU
        cause = f"the front end takes more than {settings.limit_s} s" if stopped else "the front end crashed"
        merged["failure"] = asdict(Failure(cause, cause, ""))
    outcomes = tuple(
        Outcome(**{**outcome, "failure": failure(outcome["failure"])}) for outcome in merged.pop("outcomes")
    )
    return FileResult(name, **{**merged, "failure": failure(merged.get("failure")), "outcomes": outcomes})


def failure(fields: dict[str, Any] | None) -> Failure | None:
    return None if fields is None else Failure(**fields)


def line_of(result: FileResult) -> str:
    """A file in one line."""
    if result.failure is not None:
        kind = "unsupported" if result.failure.unsupported else "not parsed"
        return f"{result.file}: {kind}: {result.failure.place} {result.failure.cause}"
    failed = sum(outcome.failure is not None for outcome in result.outcomes)
    seconds = f"parsed in {result.parse_s:.1f} s, compiled in {result.compile_s:.1f} s"
    return f"{result.file}: {result.kernels} kernels, {len(result.outcomes)} tried, {failed} failed; {seconds}"


def totals(results: Sequence[FileResult]) -> dict[str, Any]:
    """The counts of a survey."""
    outcomes = [outcome for result in results for outcome in result.outcomes]
    unsupported = sum(outcome.failure is not None and outcome.failure.unsupported for outcome in outcomes)
    compiled_count = sum(outcome.failure is None for outcome in outcomes)
    return {
        "files": len(results),
        "files_parsed": sum(result.failure is None for result in results),
        "files_unsupported": sum(result.failure is not None and result.failure.unsupported for result in results),
        "files_without_kernels": sum(result.failure is None and not result.kernels for result in results),
        "kernels": sum(result.kernels for result in results),
        "tried": len(outcomes),
        "compiled": compiled_count,
        "unsupported": unsupported,
        "failed": len(outcomes) - compiled_count - unsupported,
        "ways": dict(Counter(outcome.way for outcome in outcomes if outcome.way).most_common()),
        "fibers": dict(
            Counter(why_fibers(outcome.reason) for outcome in outcomes if outcome.way == "fibers").most_common()
        ),
        "causes": causes(results),
    }


def why_fibers(reason: str) -> str:
    """Why a kernel is not vectors, if that is known; otherwise why it is not a loop."""
    no_vectors = re.search(r"(?:no vectors: |clang does not compile it|vectors need clang).*", reason, re.S)
    return normalised(no_vectors[0] if no_vectors else reason)


def causes(results: Iterable[FileResult]) -> list[dict[str, Any]]:
    """Causes with the kernels and files that they block, most first. A file that is not parsed counts no kernel."""
    places: dict[tuple[bool, str], list[tuple[str, str, str]]] = defaultdict(list)
    for result in results:
        failures = [(outcome.kernel, outcome.failure) for outcome in result.outcomes]
        for kernel, why in [("", result.failure), *failures]:
            if why is not None:
                places[why.unsupported, why.cause].append((result.file, kernel, why.place))
    listed = [
        {
            "cause": cause,
            "unsupported": unsupported,
            "kernels": sum(bool(kernel) for _, kernel, _ in blocked),
            "files": len({file for file, _, _ in blocked}),
            "example": dict(zip(("file", "kernel", "place"), blocked[0], strict=True)),
        }
        for (unsupported, cause), blocked in places.items()
    ]
    return sorted(listed, key=lambda each: (each["unsupported"], -each["kernels"], -each["files"]))


def report(results: Sequence[FileResult], device: str) -> Iterator[str]:
    """The survey in words."""
    counts = totals(results)
    yield (
        f"{counts['files']} files: {counts['files_parsed']} parsed ({counts['files_without_kernels']} without kernels),"
        f" {counts['files_unsupported']} unsupported,"
        f" {counts['files'] - counts['files_parsed'] - counts['files_unsupported']} not parsed"
    )
    yield (
        f"{counts['tried']:,} of {counts['kernels']:,} kernels tried for {device}: {counts['compiled']:,} compiled,"
        f" {counts['failed']:,} failed, {counts['unsupported']:,} unsupported"
    )
    if counts["ways"]:
        yield "they run as " + ", ".join(f"{way} {count:,}" for way, count in counts["ways"].items())
    for reason, count in counts["fibers"].items():
        yield f"  {count:>5} kernels as fibers: {reason}"
    for cause in counts["causes"]:
        example = cause["example"]
        kind = "unsupported: " if cause["unsupported"] else ""
        yield f"  {cause['kernels']:>5} kernels in {cause['files']} files: {kind}{cause['cause']}"
        yield f"        such as {example['kernel'] or 'the whole file'} in {example['file']} ({example['place']})"
    slowest = sorted(results, key=lambda result: result.slowest[0], reverse=True)[:3]
    for result in slowest:
        seconds, kernels = result.slowest
        if seconds > 20:
            yield f"slow: {seconds:.0f} s for {len(kernels)} kernels of {result.file}, {kernels[0]} among them"


def files_in(folders: Sequence[Path]) -> list[tuple[Path, str]]:
    """The sources with their names, which are paths within the folder; a file may be given too."""
    files = []
    for folder in folders:
        sources = sorted(folder.rglob("*.metal")) if folder.is_dir() else [folder]
        files += [(file, file.relative_to(folder).as_posix() if folder.is_dir() else file.name) for file in sources]
    return files


_FOLDER = click.Path(exists=True, path_type=Path)


@click.command()
@click.argument("folders", nargs=-1, required=True, type=_FOLDER)
@click.option("--include", "-I", "include_dirs", multiple=True, type=_FOLDER, help="Search this folder for includes.")
@click.option("--define", "-D", "defines", multiple=True, metavar="NAME[=VALUE]", help="Define a macro.")
@click.option(
    "--constant", "-c", "constants", multiple=True, metavar="NAME=VALUE", help="A function constant; 1 if not given."
)
@click.option("--sample", default=20, show_default=True, type=click.IntRange(1), help="Kernels tried per file.")
@click.option("--device", default="cpu", show_default=True, type=click.Choice(["cpu", "cuda"]))
@click.option("--arch", default="sm_90", show_default=True, help="The architecture to compile for, with CUDA.")
@click.option(
    "--limit", "limit_s", default=60, show_default=True, type=click.IntRange(1), help="Processor seconds of a compiler."
)
@click.option("--jobs", "-j", default=1, show_default=True, type=click.IntRange(1), help="Files surveyed at a time.")
@click.option("--json", "as_json", is_flag=True, help="Print all results as JSON.")
def main(
    folders: tuple[Path, ...],
    include_dirs: tuple[Path, ...],
    defines: tuple[str, ...],
    constants: tuple[str, ...],
    sample: int,
    device: str,
    arch: str,
    limit_s: int,
    jobs: int,
    as_json: bool,
) -> None:
    """Survey folders of Metal sources: what parses, compiles, how it runs, and causes of failure by count.

    A line per file is printed to standard error as it is done, the survey to standard output.
    """
    files = files_in(folders)
    if not files:
        raise click.UsageError("there is no .metal file in these folders")
    roots = tuple(str(folder.resolve()) for folder in include_dirs)
    settings = Settings(device, arch, sample, limit_s, roots, defines_of(defines), constants_of(constants))
    results = []
    with still_line() as show:
        for result in survey(files, settings, jobs, show):
            show("")
            click.echo(printable(line_of(result)), err=True)
            results.append(result)
    if as_json:
        document = {"settings": asdict(settings), **totals(results), "results": [asdict(result) for result in results]}
        click.echo(json.dumps(document, indent=1))
        return
    for line in report(results, device):
        click.echo(printable(line))


if __name__ == "__main__":
    if sys.argv[1:] == ["--worker"]:
        asked_file, asked_name, asked_settings = json.load(sys.stdin)
        for known in work(asked_file, asked_name, Settings(**asked_settings)):
            print(json.dumps(known), flush=True)
    else:
        main()
