"""Building and loading the machine code of the CPU backend: the runtime, and the libraries of kernels."""

from __future__ import annotations

import ctypes
import json
import os
import re
import resource
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from ... import native
from ...base import cache
from ...errors import Diagnostic, KernelCompileError, ToolchainError
from ...native import toolchain
from ...native.binary import foreign_functions, load_time_code, startup_sections
from ...native.building import BASE_FLAGS, compile_flags, host_library, link_flags, load
from ...native.messages import read_warnings
from ...native.precompiled import source_with_head
from ...version import __version__
from . import clang_code, inlined_hooks
from .checking import UNINITIALISED, Checks, instrumentation
from .clang_code import loosened, with_checked_copies
from .inlined_hooks import with_inlined_hooks
from .places import remember

if TYPE_CHECKING:
    from ...msl import Translation

_RUNTIME = Path(__file__).with_name("runtime")
_INCLUDE = Path(__file__).parents[2] / "msl" / "include"
_PASS = Path(__file__).with_name("simt")
_FOLDERS = ("-I", str(_INCLUDE), "-I", str(_RUNTIME))

_KERNEL_FLAGS = (
    *BASE_FLAGS,
    "-O3",
    # Real shaders read one type's bytes through pointers to another.
    "-fno-strict-aliasing",
    # They read through null pointers too, what they then do not use: a GPU has memory there.
    "-fno-delete-null-pointer-checks",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
)
# Loops over threads in clang: memory of several arguments is compared before the loop. What clang 22 makes of u[i & 3]
# under an assumption that it checks there is wrong.
_LOOP_FLAGS = tuple(
    part
    for option in ("vectorize-scev-check-threshold=0", "pragma-vectorize-scev-check-threshold=0")
    for part in ("-mllvm", f"-{option}")
)
# One thread as LLVM assembly: optimised, but nothing made into vectors that the lane pass would have to take apart.
# Functions may be convergent until they are inlined: equal calls in two branches are not one call.
_THREAD_FLAGS = (
    *("-O2", "-Xclang", "-O2", "-g0", "-fno-vectorize", "-fno-slp-vectorize"),
    *("-Xclang", "-fconvergent-functions"),
    # Loops over small local arrays are unrolled, as a GPU's compiler does it, so that the arrays become registers.
    *("-mllvm", "-unroll-threshold=600"),
)
_AS_ASSEMBLY = ("-S", "-emit-llvm")
# The level of LLVM assembly, which zig 0.13 does not pass on to clang.
_ASSEMBLY_FLAGS = ("-Xclang", "-O3")
_NO_PASSES: tuple[str, ...] = ("-Xclang", "-disable-llvm-passes")
# A thread that takes longer than this to unroll (processor seconds), or becomes longer than this (characters), takes
# long for 32 lanes too. It is compiled again without the unrolling that its source asks for.
_LONGEST_UNROLLING_S = 10
_LONGEST_UNROLLED = 250_000
_UNROLLING = re.compile(r'_Pragma\("clang loop unroll[^"]*"\)')
# Blocks for 32 lanes are long. The scheduler of instructions takes a time that is quadratic in their length, and a
# search for more to put into vectors took minutes, where all is vectors.
_LANE_FLAGS = (*_ASSEMBLY_FLAGS, "-fno-vectorize", "-fno-slp-vectorize", "-mllvm", "-enable-misched=0")
# Little optimisation: as far as a compiler allows, each access of the source is one machine access, in source order.
# Lines and columns by a version of debug information that all compilers and readers know.
_CHECKED_FLAGS = (
    *("-O1" if flag == "-O3" else flag for flag in _KERNEL_FLAGS if flag != "-w"),
    *("-D__OST_CHECKED", "-g1", "-gdwarf-4"),
    # Vectors of more than 16 bytes are not instrumented by clang, which makes such of loops and of stores at any level.
    *("-fno-tree-vectorize", "-fno-tree-slp-vectorize"),
)
# Where only bounds are looked at, accesses may be joined and moved, but none made beyond those of the source.
_BOUNDS_FLAGS = (
    *("-O2" if flag == "-O1" else flag for flag in _CHECKED_FLAGS),
    "-fno-optimize-sibling-calls",  # a hook returns to the access
)
_HOOKS = tuple(sorted(Path(__file__).with_name("hooks").glob("*.cpp")))
_HOOK_FLAGS = (*BASE_FLAGS, "-O2", "-fno-builtin", "-D__OST_CHECKED")
# No optimisation, for a debugger: each line is code of its own, and every variable is in memory. The functions of the
# shim are calls, so that a debugger steps over one as over any other.
_DEBUG_FLAGS = (*("-O0" if flag == "-O3" else flag for flag in _KERNEL_FLAGS), "-g", "-D__OST_DEBUG")


@lru_cache(maxsize=1)
def _interface_digest() -> str:
    """A digest of everything that a kernel is compiled against: the shim and the runtime's headers."""
    files = sorted((*_INCLUDE.rglob("*.h"), *_RUNTIME.glob("*.h")))
    return cache.digest(*(part for file in files for part in (file.name, file.read_bytes())))


def kernel_library(compiler: toolchain.Toolchain, translation: Translation, debug: bool = False) -> ctypes.CDLL:
    """The compiled kernels of a translation; those for `debug` are built for a debugger."""
    ours = _DEBUG_FLAGS if debug else _KERNEL_FLAGS + (_LOOP_FLAGS if compiler.clang_version else ())
    flags = compile_flags(compiler, (*ours, *compiler.semantics))
    linking = link_flags("-nostartfiles")
    passes = (*_ASSEMBLY_FLAGS, *_NO_PASSES)
    made_from = (*flags, *linking, *passes, _interface_digest(), _changes_digest(), translation.text)
    key = cache.digest("kernels", __version__, compiler.identity, *made_from)

    def build(work: Path) -> Path:
        source = _source(compiler, translation.head, translation.program, flags, work)
        if compiler.clang_version and not debug:
            assembly = work / "kernels.ll"
            _emit(compiler, [*flags, *_AS_ASSEMBLY, *source, "-o", str(assembly)], work)
            assembly.write_text(loosened(assembly.read_text(encoding="utf-8")), encoding="utf-8")
            source = [*passes, str(assembly)]
        product = toolchain.compile_library(compiler, source, flags, linking, work)
        return _examined(compiler, product, linking)

    try:
        return load(key, build)
    except KernelCompileError as error:
        raise translation.placed(error) from None


def checked_library(
    compiler: toolchain.Toolchain, translation: Translation, checks: Checks
) -> tuple[ctypes.CDLL, tuple[Diagnostic, ...]]:
    """The compiled kernels of a translation, built to find faults: every access calls a hook first.

    The hooks are part of the library, and pass on to the runtime. With it come the compiler's warnings of local scalars
    that may be used before they are set, in the user's source.
    """
    ours = _BOUNDS_FLAGS if checks.bounds_only else _CHECKED_FLAGS
    plain = compile_flags(compiler, (*ours, *compiler.semantics, *(("-D__OST_BOUNDS",) if checks.bounds_only else ())))
    flags = (*plain, *instrumentation(compiler, checks))
    linking = link_flags("-nostartfiles")
    made_from = (
        *flags,
        *linking,
        _interface_digest(),
        *(file.read_text(encoding="utf-8") for file in _HOOKS),
        _changes_digest(),
        translation.text,
    )
    key = cache.digest("checked kernels", __version__, compiler.identity, *made_from)

    def build(work: Path) -> Path:
        source = _source(compiler, translation.head, translation.program, flags, work)
        said: list[str] = []
        rest = flags
        if compiler.clang_version > 0:
            assembly = work / "kernels.ll"
            passes, change = _NO_PASSES, with_checked_copies
            if checks.bounds_only:  # clang instruments code that it has optimised, and can optimise that again
                passes, change, rest = (), with_inlined_hooks, (*plain, *_ASSEMBLY_FLAGS)
            said.append(_emit(compiler, [*flags, *passes, *_AS_ASSEMBLY, *source, "-o", str(assembly)], work))
            assembly.write_text(change(assembly.read_text(encoding="utf-8")), encoding="utf-8")
            source = [str(assembly)]
        product = _with_hooks(compiler, source, rest, linking, work, said.append)
        cache.note(f"warnings-{key}", lambda: "\n".join(said), anew=True)
        return _examined(compiler, product, linking, flags)

    try:
        library = load(key, build)
    except KernelCompileError as error:
        raise translation.placed(error) from None
    remember(library._name, translation)
    image = (ctypes.c_uint64 * 2).in_dll(library, "__ost_image")
    runtime_library().ost_add_image(image[0], image[1])
    return library, _placed_warnings(translation, cache.note(f"warnings-{key}", str))


def _placed_warnings(translation: Translation, text: str) -> tuple[Diagnostic, ...]:
    warnings = read_warnings(text, UNINITIALISED)
    placed = (translation.placed(KernelCompileError.of([warning], "")).diagnostics for warning in warnings)
    # One without a column is about no place of the source.
    return tuple(dict.fromkeys(each[0] for each in placed if each and each[0].column is not None))


def _with_hooks(
    compiler: toolchain.Toolchain,
    source: Sequence[str],
    flags: Sequence[str],
    linking: Sequence[str],
    work: Path,
    warned: Callable[[str], None] = lambda text: None,
) -> Path:
    for hook in _HOOKS:
        (work / f"{hook.stem}.o").symlink_to(_hook_object(compiler, hook, "-D__OST_BOUNDS" in flags))
    return toolchain.compile_library(compiler, source, flags, linking, work, warned)


def _hook_object(compiler: toolchain.Toolchain, hook: Path, bounds_only: bool) -> Path:
    """A file of hooks as an object, which all checked libraries of a kind share."""
    flags = compile_flags(compiler, (*_HOOK_FLAGS, *(("-D__OST_BOUNDS",) if bounds_only else ())))
    key = cache.digest(hook.name, __version__, compiler.identity, *flags, _interface_digest(), hook.read_bytes())

    def build(work: Path) -> Path:
        product = work / "hook.o"
        result = compiler.run([*flags, *_FOLDERS, "-c", str(hook), "-o", str(product)], work)
        if result.returncode != 0:
            raise ToolchainError(
                f"{compiler.command[0]} does not compile the hooks of checked kernels: {result.stderr}"
            )
        return product

    # Built while a library is locked: hooks have a lock of their own.
    return cache.library(f"hook-{key}", build)


def _source(compiler: toolchain.Toolchain, head: str, program: str, flags: Sequence[str], work: Path) -> list[str]:
    """Arguments that compile a translation with these flags."""
    flags = [*flags, *_FOLDERS]
    return [*_FOLDERS, *source_with_head(compiler, head, program, flags, (_interface_digest(),), work)]


def _examined(
    compiler: toolchain.Toolchain, product: Path, linking: tuple[str, ...], checked: tuple[str, ...] = ()
) -> Path:
    """A library of kernels, which neither runs anything when it is loaded nor calls foreign functions.

    A `checked` library, compiled with these flags, runs what its compiler adds to an empty one: a call of a hook that
    does nothing.
    """
    try:
        image = product.read_bytes()
        load_time, foreign = load_time_code(image, _startup_of(compiler, linking, checked)), foreign_functions(image)
    except ValueError as error:
        raise ToolchainError(f"{compiler.command[0]} produced a library that cannot be loaded: {error}") from None
    if load_time is not None:
        raise KernelCompileError(f"the compiled kernels contain code that would run when they are loaded: {load_time}")
    if foreign:
        raise KernelCompileError(f"the kernels call {foreign[0]!r}, which kernels may not call")
    return product


def _unoptimised(compiler: toolchain.Toolchain, flags: Sequence[str], head: str, program: str, work: Path) -> Path:
    """The threads of a translation as LLVM code that no pass has seen."""
    plain = work / "plain.ll"
    source = _source(compiler, head, program, [*flags, *_THREAD_FLAGS], work)
    _emit(compiler, [*flags, *_THREAD_FLAGS, *_AS_ASSEMBLY, *_NO_PASSES, *source, "-o", str(plain)], work)
    return plain


def _emit(compiler: toolchain.Toolchain, arguments: Sequence[str], work: Path, cpu_seconds: int | None = None) -> str:
    """Run clang to write LLVM assembly; returns its messages. Raises `_OutOfTimeError` if this limit stopped it."""
    before_s = _children_s()
    result = compiler.run(arguments, work, cpu_seconds)
    if result.returncode == 0:
        return result.stderr
    error = toolchain.compile_error(result.stderr + result.stdout, result.returncode, work)
    # A driver such as zig's hides the signal that ended the compiler, but not the time that it took.
    if _children_s() - before_s > (cpu_seconds or toolchain.CPU_SECONDS) - 1:
        raise _OutOfTimeError(error.message, details=error.details)
    raise error


class _OutOfTimeError(KernelCompileError):
    """The compiler used all the processor time that it was allowed."""


def _children_s() -> float:
    """Processor time of the programs that this process has started and that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def check_threads(compiler: toolchain.Toolchain, translation: Translation) -> None:
    """Raises a `KernelCompileError` if the compiler refuses the threads of a translation for simdgroups as vectors."""
    flags = compile_flags(compiler, (*_KERNEL_FLAGS, *compiler.semantics))
    key = cache.digest("threads", compiler.identity, *flags, _interface_digest(), translation.text)

    def check() -> str:
        with cache.work_folder() as work:
            _unoptimised(compiler, flags, translation.head, translation.program, work)
        return "compiles"

    cache.note(f"threads-{key}", check)


def vector_library(compiler: toolchain.Toolchain, translation: Translation) -> ctypes.CDLL:
    """The compiled kernels of a translation for simdgroups as vectors; its `__ost_refused` names those left out."""
    flags = compile_flags(compiler, (*_KERNEL_FLAGS, *compiler.semantics))
    linking = link_flags("-nostartfiles")
    longest = (str(_LONGEST_UNROLLING_S), str(_LONGEST_UNROLLED))
    passes = (*_THREAD_FLAGS, *_LANE_FLAGS, *longest, _pass_digest(), _changes_digest())
    made_from = (*flags, *linking, *passes, _interface_digest(), translation.text)
    key = cache.digest("vector kernels", __version__, compiler.identity, *made_from)

    def optimised(program: str, work: Path, cpu_seconds: int | None = None) -> str:
        from .simt.lockstep import STEPPING, shared_memory_changes, steps_done

        threads = work / "threads.ll"
        plain = _unoptimised(compiler, flags, translation.head, program, work)
        plain.write_text(shared_memory_changes(plain.read_text(encoding="utf-8")), encoding="utf-8")
        arguments = [*flags, *_THREAD_FLAGS, *_AS_ASSEMBLY, *STEPPING, str(plain), "-o", str(threads)]
        _emit(compiler, arguments, work, cpu_seconds)
        return steps_done(threads.read_text(encoding="utf-8"))

    def unrolled(work: Path) -> str | None:
        try:
            code = optimised(translation.program, work, _LONGEST_UNROLLING_S)
        except _OutOfTimeError:
            return None
        return code if len(code) <= _LONGEST_UNROLLED else None

    def build(work: Path) -> Path:
        from .simt.lanes import widen

        lanes = work / "lanes.ll"
        plain = _UNROLLING.sub("", translation.program)
        code = unrolled(work) if plain != translation.program else None
        if code is None:
            code = optimised(plain, work)
        lanes.write_text(loosened(widen(code).text), encoding="utf-8")
        product = toolchain.compile_library(compiler, [str(lanes)], [*flags, *_LANE_FLAGS], linking, work)
        return _examined(compiler, product, linking)

    return load(key, build)


@lru_cache(maxsize=1)
def _changes_digest() -> str:
    return cache.digest(*(Path(file).read_bytes() for file in (clang_code.__file__, inlined_hooks.__file__)))


@lru_cache(maxsize=1)
def _pass_digest() -> str:
    files = sorted(_PASS.glob("*.py"))
    return cache.digest(*(part for file in files for part in (file.name, file.read_bytes())))


def _startup_of(
    compiler: toolchain.Toolchain, linking: tuple[str, ...], checked: tuple[str, ...] = ()
) -> dict[str, int]:
    """The start-up sections that this compiler adds to every library.

    Only zig does, and cannot be told not to; and all do to one that is compiled with the flags `checked`.
    """
    if not compiler.is_zig and not checked:
        return {}

    def find() -> str:
        with cache.work_folder() as work:
            empty = work / "empty.cpp"
            empty.write_text("")
            if checked:
                product = _with_hooks(compiler, [str(empty)], checked, linking, work)
            else:
                flags = compile_flags(compiler, BASE_FLAGS)
                product = toolchain.compile_library(compiler, [str(empty)], flags, linking, work)
            return json.dumps(startup_sections(product.read_bytes()))

    # zig finds the system's C library, which has a part in it, by the path.
    key = cache.digest(compiler.identity, os.environ.get("PATH", ""), *linking, *checked)
    known = json.loads(cache.note(f"startup-{key}", find))
    return {str(name): int(size) for name, size in known.items()}


def runtime_library() -> ctypes.CDLL:
    """The compiled runtime."""
    return _runtime_library(toolchain.find().identity)


@lru_cache(maxsize=4)
def _runtime_library(compiler: str) -> ctypes.CDLL:
    # By compiler, so that opening a device reads none of the sources again.
    sources = [*sorted(_RUNTIME.glob("*.cpp")), native.HAZARDS]
    return host_library("CPU runtime", sources, [*sorted(_RUNTIME.glob("*.h")), native.HAZARDS.with_suffix(".h")])
