"""Finds a C++ compiler and runs it, by argument vector and under limits.

Candidates in this order: `$CXX`, `clang++`, `g++`, `c++` on the path, then the `ziglang` wheel. A compiler must support
`_Float16` in C++17; that is tested once per compiler and cached. A compiler's identity is its command and the macros it
predefines for this processor, which include its version and every CPU feature it will use.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..base import cache
from ..base.extras import install_command
from ..errors import KernelCompileError, ToolchainError
from .messages import read_errors

CPU_SECONDS = 180
WALL_SECONDS = 300
MEMORY_BYTES = 16 << 30
FILE_BYTES = 1 << 30
_MOST_ERRORS = 200
"""Errors in a source after which the compiler gives up."""

# Sets the limits and becomes the command. What it runs comes as parameters, and is no part of this text. (Between fork
# and exec limits cannot be set safely in a threaded process.) Where one cannot be set the others still hold: macOS does
# not limit address space. The limit of a file is in blocks of 512 bytes.
_LIMITED = """for limit in "-t $1" "-v $(($2 / 1024))" "-f $(($3 / 512))" "-c 0"; do ulimit $limit; done 2> /dev/null
shift 3; exec "$@\""""

_PROBE = "template <class T> T twice(T x) { return x + x; }\n_Float16 probe(_Float16 x) { return twice(x); }\n"
# Zig says nowhere that it is zig, but it defines what its C++ library is built with, which others leave to headers.
_OF_ZIG = "#define _LIBCXXABI_DISABLE_VISIBILITY_ANNOTATIONS "
_PASSED_ON = ("SDKROOT", "DEVELOPER_DIR", "MACOSX_DEPLOYMENT_TARGET", "SYSTEMROOT")
_UNDEFINED = re.compile(r"undefined (?:reference to|symbol:?) [`'\"]?(?P<name>[^`'\"\n]+)", re.M)


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A usable compiler."""

    command: tuple[str, ...]
    version: str
    tuning: tuple[str, ...]
    """Flags that select this machine's processor."""
    identity: str = field(repr=False)
    """A digest of everything that determines its output, except flags."""
    semantics: tuple[str, ...] = ()
    """Flags for Metal's semantics and stack checks in kernels, as far as this compiler supports them."""
    stacks: tuple[str, ...] = ()
    """Flags for all code that switches stacks (kernels and runtime), as far as this compiler supports them."""
    is_zig: bool = False
    """Whether it is the compiler of zig, such as that of the ziglang wheel, whatever its command is."""

    @property
    def clang_version(self) -> int:
        """The major version of clang; 0 for another compiler."""
        named = re.search(r"[Cc]lang (\d+)", self.version)
        return int(named[1]) if named else 0

    @property
    def linker(self) -> tuple[str, ...]:
        """The command that links objects.

        For zig it is the C compiler: the C++ compiler would first build a C++ library that is not used, which takes a
        minute.
        """
        return tuple("cc" if part == "c++" else part for part in self.command) if self.is_zig else self.command

    def run(
        self, arguments: Sequence[str], work: Path, cpu_seconds: int | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run the compiler in a work folder."""
        return _run((*self.command, *arguments), work, cpu_seconds)

    def link(self, arguments: Sequence[str], work: Path) -> subprocess.CompletedProcess[str]:
        """Run the linker in a work folder."""
        return _run((*self.linker, *arguments), work)


_found: dict[tuple[str, ...], Toolchain] = {}


def find() -> Toolchain:
    """The compiler to use; raises a `ToolchainError` that says how to get one if there is none."""
    surroundings = (os.environ.get("CXX", ""), os.environ.get("PATH", ""))
    known = _found.get(surroundings)
    if known is not None:
        return known
    named = os.environ.get("CXX", "").strip()
    candidates = [tuple(shlex.split(named))] if named else _candidates()
    reasons = []
    for command in candidates:
        path = shutil.which(command[0])
        if path is None:
            reasons.append(f"{command[0]}: not found")
            continue
        full = (path, *command[1:])
        toolchain, reason = _examine(full)
        if toolchain is not None:
            _found[surroundings] = toolchain
            return toolchain
        reasons.append(f"{' '.join(full)}: {reason}")
    chosen_by = "$CXX names" if named else "there is"
    raise ToolchainError(
        f"{chosen_by} no usable C++ compiler ({'; '.join(reasons) or 'none on the path'}). Install one"
        " (g++ 12 or clang++ 15, or newer), or the one that comes as a wheel:"
        f" {install_command('toolchain')}"
    )


_clangs: dict[tuple[str, ...], Toolchain | None] = {}
OLDEST_CLANG = 18
"""Whose assembly language the lane pass reads and writes."""


def find_clang() -> Toolchain | None:
    """A clang new enough for the lane pass: the compiler that `find` names, one on the path, or that of the wheel."""
    surroundings = (os.environ.get("CXX", ""), os.environ.get("PATH", ""))
    if surroundings not in _clangs:
        _clangs[surroundings] = next((clang for clang in _each_clang() if clang.clang_version >= OLDEST_CLANG), None)
    return _clangs[surroundings]


def _each_clang() -> Iterator[Toolchain]:
    chosen = find()
    yield chosen
    for command in _candidates():
        path = shutil.which(command[0])
        if path is None or ("clang" not in command[0] and Path(command[0]).stem != "zig"):
            continue
        examined, _ = _examine((path, *command[1:]))
        if examined is not None:
            yield examined


def compile_library(
    toolchain: Toolchain,
    sources: Sequence[str],
    compile_flags: Sequence[str],
    link_flags: Sequence[str],
    work: Path,
    warned: Callable[[str], None] = lambda text: None,
) -> Path:
    """Compile and link sources to a shared library in a work folder.

    Arguments that only the compiler needs may stand before a source. Places of errors are those that the compiler
    names. `warned` gets what it said of sources that compile.
    """
    product = work / "product.so"
    result = toolchain.run([*compile_flags, "-c", *sources], work)
    if result.returncode == 0:
        warned(result.stderr)
        objects = sorted(str(path) for path in work.glob("*.o"))
        result = toolchain.link([*objects, *link_flags, "-o", str(product)], work)
    if result.returncode == 0 and product.exists():
        return product
    raise compile_error(result.stderr + result.stdout, result.returncode, work)


def compile_error(text: str, returncode: int, work: Path) -> KernelCompileError:
    """The error in a compiler's output."""
    errors = read_errors(text)
    if errors:
        return KernelCompileError.of(errors, text)
    if returncode < 0 or returncode > 128:
        reason = (
            f"the compiler was stopped ({CPU_SECONDS} s of processor time and {MEMORY_BYTES >> 30} GiB are allowed)"
        )
    else:
        undefined = _UNDEFINED.search(text)
        reason = _first_line(text).replace(str(work), "") or "the compiler failed"
        if undefined is not None:
            reason = f"{undefined['name']} is declared but not defined"
    return KernelCompileError(reason, details=text)


def _candidates() -> list[tuple[str, ...]]:
    names: list[tuple[str, ...]] = [("clang++",), ("g++",), ("c++",)]
    names = [name for name in names if shutil.which(name[0])]
    wheel = importlib.util.find_spec("ziglang")
    for folder in (wheel.submodule_search_locations or []) if wheel is not None else []:
        zig = Path(folder) / "zig"
        if zig.exists():
            names.append((str(zig), "c++"))
    return names


def _examine(command: tuple[str, ...]) -> tuple[Toolchain | None, str]:
    tuning: tuple[str, ...] = ("-march=native",) if platform.machine() in ("x86_64", "AMD64") else ("-mcpu=native",)
    with cache.work_folder() as work:
        empty = work / "empty.cpp"
        empty.write_text("")
        for flags in (tuning, ()):
            result = _run((*command, *flags, "-std=c++17", "-dM", "-E", str(empty)), work)
            if result.returncode == 0:
                tuning = flags
                break
        else:
            return None, _first_line(result.stderr) or f"exit status {result.returncode}"
        macros = "\n".join(sorted(result.stdout.splitlines()))
        stamp = os.stat(command[0])
        identity = cache.digest(*command, *tuning, macros, f"{stamp.st_size} {stamp.st_mtime_ns}")
        answer = cache.note(f"float16-{identity}", lambda: _probe(command, tuning, work))

        def known(wanted: list[tuple[str, ...]]) -> tuple[str, ...]:
            numbers = cache.note(
                f"flags-{cache.digest(identity, repr(wanted))}",
                lambda: " ".join(
                    str(n) for n, flags in enumerate(wanted) if _probe(command, (*tuning, *flags), work) == "yes"
                ),
            )
            return tuple(flag for n in numbers.split() for flag in wanted[int(n)])

        semantics = known(_wanted_semantics("#define __clang__ " in macros))
        stacks = known(_wanted_for_stacks())
    if answer != "yes":
        return None, f"it does not support _Float16 in C++17 ({answer})"
    version = re.search(r'^#define __VERSION__ "(.*)"$', macros, re.M)
    name = "clang" if "#define __clang__ " in macros else "gcc"
    text = version[1] if version else "unknown version"
    named = text if "lang" in text else f"{name} {text}"
    return Toolchain(command, named, tuning, identity, semantics, stacks, _OF_ZIG in macros), ""


def _wanted_semantics(clang: bool) -> list[tuple[str, ...]]:
    """Groups of flags; each group is used whole or not at all."""
    wanted: list[tuple[str, ...]] = [
        # A large private array must touch the guard page under its stack, not skip it.
        ("-fstack-clash-protection",),
        # A half is rounded after every operation.
        ("-Xclang", "-ffloat16-excess-precision=none") if clang else ("-fexcess-precision=16",),
        # The line of an error is shown in the user's source, not here; columns count bytes.
        ("-fno-caret-diagnostics", f"-ferror-limit={_MOST_ERRORS}")
        if clang
        else ("-fno-diagnostics-show-caret", "-fdiagnostics-column-unit=byte", f"-fmax-errors={_MOST_ERRORS}"),
    ]
    if not clang and platform.machine() in ("x86_64", "AMD64"):
        # Vectors are read and written at any address; backends/cpu/clang_code.py does it for clang.
        wanted.append(("-Wa,-muse-unaligned-vector-move",))
        # With these instructions g++ 13 emits assembly that its own assembler rejects.
        wanted.append(("-mno-avx512fp16",))
    if platform.machine() in ("x86_64", "AMD64"):
        # The processor faults, except for a division that was folded away; division_cpu.h defines the check's handler.
        wanted.append(("-fsanitize=integer-divide-by-zero", "-fno-sanitize-recover=integer-divide-by-zero"))
    if platform.machine() in ("arm64", "aarch64"):
        # These processors return 0 for a division by zero; the compiler can make it a fault.
        trap = "-fsanitize-trap=integer-divide-by-zero" if clang else "-fsanitize-undefined-trap-on-error"
        wanted.append(("-fsanitize=integer-divide-by-zero", trap))
    return wanted


def _wanted_for_stacks() -> list[tuple[str, ...]]:
    """Groups of flags; each group is used whole or not at all."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return []
    # Switching fibers does not switch the shadow stack, so returns must not be checked against it.
    return [("-fcf-protection=none",)]


def _probe(command: tuple[str, ...], flags: tuple[str, ...], work: Path) -> str:
    source = work / "float16.cpp"
    source.write_text(_PROBE)
    arguments = ("-std=c++17", "-Werror", "-c", str(source), "-o", str(work / "float16.o"))
    result = _run((*command, *flags, *arguments), work)
    return "yes" if result.returncode == 0 else _first_line(result.stderr) or "the probe failed"


def _run(command: Sequence[str], work: Path, cpu_seconds: int | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command under limits, with a minimal environment and its own folder for temporary files."""
    temporary = work / "tmp"
    temporary.mkdir(exist_ok=True)
    # zig has its own cache of compiled system libraries, which takes seconds to build.
    zig_cache = str(cache.folder() / "zig")
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(work),
        "TMPDIR": str(temporary),
        "LC_ALL": "C",
        "ZIG_GLOBAL_CACHE_DIR": zig_cache,
        "ZIG_LOCAL_CACHE_DIR": zig_cache,
    }
    environment |= {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    limits = (str(cpu_seconds or CPU_SECONDS), str(MEMORY_BYTES), str(FILE_BYTES))
    try:
        child = subprocess.Popen(
            ["/bin/sh", "-c", _LIMITED, "sh", *limits, *command],
            cwd=work,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise ToolchainError(f"cannot start the compiler: {error}") from None
    with child:
        try:
            output, errors = child.communicate(timeout=WALL_SECONDS)
        except subprocess.TimeoutExpired:
            _end_family(child)
            return subprocess.CompletedProcess(command, -int(signal.SIGKILL), "", "")
        except BaseException:
            _end_family(child)
            raise
    return subprocess.CompletedProcess(command, child.returncode, output, errors)


def _end_family(child: subprocess.Popen[str]) -> None:
    """Kill a compiler and the programs it started, which share a session of their own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
