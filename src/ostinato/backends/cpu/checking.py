"""What a checked device looks for, and the instrumentation that its kernels are compiled with for that."""

from __future__ import annotations

from dataclasses import dataclass

from ...native.toolchain import Toolchain

_NUMBERS = ("float-cast-overflow", "alignment", "shift-exponent")
_STRICT_ARRAYS_CLANG = 16
_EACH_ACCESS = (
    # By itself clang leaves out a read that a write to the same place follows.
    "tsan-compound-read-before-write=1",
    # Equal calls of two branches would become one, which has no line.
    *("enable-tail-merge=0", "sink-common-insts=0", "hoist-common-insts=0"),
)
UNINITIALISED = frozenset({"uninitialized", "maybe-uninitialized", "sometimes-uninitialized"})
"""The warnings about local scalars that are used before they are set."""


@dataclass(frozen=True, slots=True)
class Checks:
    """What is looked for on request, beside accesses to memory, bounds and numbers; or bounds alone."""

    overflow: bool = False
    """Whether signed integers overflow."""
    nan: bool = False
    """Whether an operation makes a NaN or an infinity of other numbers."""
    unwritten: bool = False
    """Whether elements of an output are written by no thread."""
    bounds_only: bool = False
    """Whether nothing but accesses out of bounds is looked for."""

    @property
    def runtime_bits(self) -> int:
        """As the runtime takes them: `CheckOption` of runtime/checks.h."""
        return 1 | 2 * self.nan | 4 * self.unwritten | 8 * self.bounds_only


def instrumentation(compiler: Toolchain, checks: Checks) -> tuple[str, ...]:
    """The flags that have each access to memory, and each failed check, call a hook."""
    clang = bool(compiler.clang_version)
    # zig takes the driver's own flag as a wish for its runtime.
    memory: tuple[str, ...] = ("-Xclang", "-fsanitize=thread") if clang else ("-fsanitize=thread",)
    # The last array of a struct has the length that it is declared with, unless that is 0 or 1.
    memory += ("-fstrict-flex-arrays=1",) if compiler.clang_version >= _STRICT_ARRAYS_CLANG else ()
    arrays = "array-bounds" if clang else "bounds"
    if checks.bounds_only:
        # Calls of functions are nothing to the hooks. That of an index out of bounds does not return, which lets the
        # check of an index leave a loop. Such flags change which warnings g++ gives, so only where none is read.
        entries = "tsan-instrument-func-entry-exit=0"
        calls = ("-mllvm", f"-{entries}") if clang else (f"--param={entries}",)
        return (*memory, *calls, f"-fsanitize={arrays}", f"-fno-sanitize-recover={arrays}", "-w")
    numbers = [*_NUMBERS, arrays]
    if checks.overflow:
        numbers.append("signed-integer-overflow")
    # While g++ checks numbers it overlooks the pragma in the shim that allows constants in braces to be narrowed.
    unsure = "-Wsometimes-uninitialized" if clang else "-Wmaybe-uninitialized"
    warnings = ("-Wno-narrowing", "-Wuninitialized", unsure)
    # No operation may be done that the source does not ask for, because it might raise a signal.
    exact = ("-ftrapping-math", "-D__OST_NAN") if checks.nan else ()
    each = tuple(part for option in _EACH_ACCESS for part in ("-mllvm", f"-{option}")) if clang else ()
    return (*memory, f"-fsanitize={','.join(numbers)}", *exact, *each, *warnings)
