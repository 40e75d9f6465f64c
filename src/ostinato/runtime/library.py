"""Compiled kernels: libraries, the kernels in them, and the registry that compiles them on demand.

A `Library` is one source compiled for one set of function constants. A `KernelRegistry` keeps sources by kernel
name and compiles each specialisation on first use. Registering a name again drops its specialisations; kernels that
were returned before keep running the old code.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import numpy as np

from .. import settings
from ..base.copies import refuse_copy
from ..base.locks import ForkLock
from ..errors import (
    ArgumentError,
    ConstantError,
    KernelCompileError,
    KernelNotFound,
    NoKernels,
    UnknownAttribute,
    UsageError,
)
from ..ir import structs
from ..ir.command_list import CapturedNode
from ..ir.commands import CompiledKernel, KernelOrigin
from . import tracing
from .parsing import parsed
from .queue import OnQueue, Queue, queue_of

if TYPE_CHECKING:
    from .. import msl

Constants = Mapping[int | str, Any]
Defines = Mapping[str, str | int]


Memo = dict[tuple[Any, ...], CapturedNode]
"""The nodes of dispatches that encoders have checked, by arguments, geometry and annotations. Encoders bound it."""


class Kernel:
    """A compiled kernel function, ready to dispatch."""

    __slots__ = ("_compiled", "_memo", "_queue")

    def __init__(self, compiled: CompiledKernel, queue: Queue, memo: Memo | None = None) -> None:
        self._compiled = compiled
        self._queue = queue
        self._memo: Memo = {} if memo is None else memo

    @property
    def name(self) -> str:
        """The kernel's name in its library."""
        return self._compiled.name

    @property
    def digest(self) -> str:
        """A hash of its source and function constants. Reports use it to tell kernels of the same name apart."""
        return self._compiled.origin.digest if self._compiled.origin is not None else ""

    @property
    def signature(self) -> msl.Signature:
        """Its arguments, as reflected from the source."""
        return self._compiled.signature

    @property
    def execution(self) -> msl.Execution:
        """How its threads run, and why.

        `execution.way` is on the CPU "loop", "split" (at barriers), "vector" or "fibers", which is slowest. On other
        devices it is "native".
        `execution.reason` says what decided it, such as "uses simd_sum at line 12".
        """
        from ..msl import NATIVE

        return self._compiled.execution or NATIVE

    def dtype(self, argument: str | int) -> np.dtype[Any]:
        """The NumPy dtype of the elements of an argument, which is given by name or index. A struct has its fields.

        A vector is `(scalar, (lanes,))`; a vector of three has a fourth lane of padding. Raises an `ArgumentError` for
        a type whose layout only the compiler knows.
        """
        matching = next(
            (candidate for candidate in self.signature.arguments if argument in (candidate.name, candidate.index)), None
        )
        if matching is None:
            raise ArgumentError(f"kernel {self.name!r} has no argument {argument!r}; it is {self.signature}")
        if matching.layout is not None:
            return structs.struct_dtype(matching.layout)
        if matching.scalar is None:
            raise ArgumentError(f"kernel {self.name!r}, argument {matching}: only the compiler knows this type")
        scalar = np.dtype(matching.scalar)
        nbytes = self._compiled.argument_bytes[self.signature.arguments.index(matching)]
        return np.dtype((scalar, (nbytes // scalar.itemsize,))) if matching.lanes > 1 else scalar

    @property
    def max_threads_per_group(self) -> int:
        """The largest group it can be dispatched with."""
        return self._compiled.max_threads_per_group

    @property
    def threadgroup_memory_bytes(self) -> int:
        """Threadgroup memory declared in its body."""
        return self._compiled.threadgroup_bytes

    if not TYPE_CHECKING:  # a type checker reports it by itself

        def __call__(self, *arguments: object, **options: object) -> NoReturn:
            raise UsageError(
                f"kernel {self.name!r} cannot be called: encoder.dispatch(kernel, *arguments, threads=…) records a run"
                " of it, encoder.commit_and_wait() runs it"
            )

    __reduce_ex__ = refuse_copy

    def __repr__(self) -> str:
        return (
            f"<Kernel {self.signature}, at most {self.max_threads_per_group} threads per group,"
            f" on {self._queue.name!r}, {self.execution}>"
        )

    def _repr_html_(self) -> str:
        from .notebook import kernel_html

        return kernel_html(self)


class Library:
    """The kernels of one source. `library["name"]` gives a kernel, iterating gives the names.

    All kernels of a source are compiled when the library is made. With more than `COMPILED_WHOLE` kernels (a file of
    template instances, say) that would take minutes for kernels that are never used, so each one is compiled on first
    use. So are kernels that run as vectors on the CPU; that they compile is checked at once. A kernel that uses a
    function constant without a value is not compiled; asking for it raises a `ConstantError`. With `whole=False` each
    is compiled on first use.
    """

    COMPILED_WHOLE = 64

    __slots__ = ("_defines", "_file", "_kernels", "_lock", "_module", "_queue", "constants")

    def __init__(
        self,
        queue: Queue,
        module: msl.Module,
        constants: Constants,
        file: str = "",
        defines: Defines | None = None,
        whole: bool = True,
    ) -> None:
        self._queue = queue
        self._module = module
        self._file = file
        self._defines = dict(defines or {})
        self._lock = ForkLock()
        self._kernels: dict[str, Kernel] = {}
        self.constants = dict(constants)
        """The function constants it was compiled with, as they were passed."""
        given = module.given_constants(self.constants)
        complete = [name for name in module.kernels if not module.missing_constants(name, given)]
        if not complete:
            module.check_constants(self.constants)  # raises
        if whole and len(module.kernels) <= self.COMPILED_WHOLE:
            self._compile(None if len(complete) == len(module.kernels) else complete)

    def _compile(self, only: list[str] | None) -> None:
        begin_ns = time.monotonic_ns()
        try:
            compiled = self._queue.backend.compile(self._module, self.constants, only)
        except KernelCompileError as error:
            self._module.show_lines(error)
            raise
        self._queue.prints |= any(kernel.log_sites for kernel in compiled.values())
        if self._module.log_calls and not self._queue.backend.capabilities.prints:
            name = self._queue.name
            settings.report_once(f"{name}/prints", f"os_log and printf in kernels print nothing on device {name!r}")
        tracing.host_span("compile", ", ".join(only or list(self._module.kernels)[:4]), begin_ns)
        origin = KernelOrigin(self._module, self.constants, self._file, self._defines)
        for name, kernel in compiled.items():
            checked = replace(kernel, origin=origin, signature=_believed(kernel))
            self._kernels[name] = Kernel(checked, self._queue)

    @property
    def left_out(self) -> Mapping[str, KernelCompileError]:
        """The kernels of the source that use what is not supported, with the error of each. The library lacks them."""
        return self._module.left_out

    def __getitem__(self, name: str) -> Kernel:
        kernel = self._kernels.get(name)
        if kernel is not None:
            return kernel
        if name in self._module.left_out:
            raise self._module.left_out[name]
        if name not in self._module.kernels:
            raise KernelNotFound(f"no kernel named {name!r} in this library; it has {_listed(self)}")
        with self._lock:
            if name not in self._kernels:
                self._queue.check()
                self._compile([name])
            return self._kernels[name]

    if not TYPE_CHECKING:  # a type checker reports unknown attributes by itself

        def __getattr__(self, name: str) -> NoReturn:
            hint = f'; the kernel is library["{name}"]' if not name.startswith("_") and name in self else ""
            raise UnknownAttribute(f"Library has no attribute {name!r}{hint}", name=name, obj=self)

    @property
    def signatures(self) -> Mapping[str, msl.Signature]:
        """The arguments of every kernel as the source declares them, compiled or not."""
        return self._module.kernels

    def __iter__(self) -> Iterator[str]:
        return iter(self._module.kernels)

    def __len__(self) -> int:
        return len(self._module.kernels)

    def __contains__(self, name: object) -> bool:
        return name in self._module.kernels

    __reduce_ex__ = refuse_copy

    def __repr__(self) -> str:
        return f"<Library of {len(self)}: {_listed(self)}>"

    def _repr_html_(self) -> str:
        from .notebook import library_html

        return library_html(self)


def _believed(kernel: CompiledKernel) -> msl.Signature:
    """Its signature, without the layouts of structs for which compiler and front end disagree."""
    arguments = tuple(
        argument if argument.layout is None or argument.layout.nbytes == nbytes else replace(argument, layout=None)
        for argument, nbytes in zip(kernel.signature.arguments, kernel.argument_bytes, strict=True)
    )
    return replace(kernel.signature, arguments=arguments)


def _listed(library: Library, at_most: int = 24) -> str:
    names = list(library)
    rest = f", … ({len(names) - at_most} more)" if len(names) > at_most else ""
    return ", ".join(names[:at_most]) + rest or "none"


def compile_library(
    queue: Queue,
    source: str | Path,
    constants: Constants | None = None,
    include_dirs: Sequence[str | Path] = (),
    defines: Defines | None = None,
    native: Mapping[str, str | Path] | None = None,
) -> Library:
    """Parse and compile a source text or file.

    `native` maps names of backends to sources in their own language, which those backends compile instead.
    """
    queue.check()
    folders = _checked_folders(include_dirs)
    for folder in folders:
        if not folder.is_dir():
            raise ArgumentError(f"include_dirs: there is no folder {str(folder)!r}")
    given = _checked_constants(constants)
    beside = {name: _checked_native(name, text) for name, text in (native or {}).items()}
    text, macros = _checked_source(source), _checked_defines(defines)
    module = parsed(text, folders, macros, beside)
    if not module.kernels:
        raise NoKernels(_why_no_kernels(module), file=module.files[0] if module.files else None)
    file = str(source) if isinstance(source, Path) else ""
    return Library(queue, module, given, file, macros)


def _why_no_kernels(module: msl.Module) -> str:
    if module.uninstantiated:
        template = module.uninstantiated[0]
        return (
            f"no kernels in this source: {', '.join(module.uninstantiated)} are templates without an instance;"
            f' add template [[host_name("{template}_float")]] kernel void {template}<float>(…);'
        )
    return "no kernels in this source; a kernel is a function that begins with `kernel void`"


def _checked_source(source: Any) -> str | Path:
    if isinstance(source, str) and source.endswith(".metal") and "\n" not in source:
        raise ArgumentError(f"source: {source!r} looks like a path; pass Path({source!r})")
    if not isinstance(source, str | Path):
        raise ArgumentError(f"source: expected a text (str) or a file (Path), got {type(source).__name__}")
    return source


def _checked_native(name: str, source: Any) -> str:
    if isinstance(source, Path):
        try:
            return source.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ArgumentError(f"{name}: {str(source)!r} cannot be read: {error}") from None
    if not isinstance(source, str):
        raise ArgumentError(f"{name}: expected a text (str) or a file (Path), got {type(source).__name__}")
    return source


def _checked_folders(include_dirs: Any) -> tuple[Path, ...]:
    if isinstance(include_dirs, str | bytes | Path) or not isinstance(include_dirs, Iterable):
        raise ArgumentError(f"include_dirs: expected a list of folders, got {include_dirs!r}")
    folders = tuple(include_dirs)
    for folder in folders:
        if not isinstance(folder, str | Path):
            raise ArgumentError(f"include_dirs: {folder!r} is not a folder; expected str or Path")
    return tuple(Path(folder) for folder in folders)


def _checked_defines(defines: Any) -> Defines:
    if defines is None:
        return {}
    if not isinstance(defines, Mapping):
        raise ArgumentError(f"defines: expected {{name: value}}, got {defines!r}")
    for name, value in defines.items():
        if not isinstance(name, str):
            raise ArgumentError(f"defines: {name!r} is not the name of a macro")
        if not isinstance(value, str | int):
            raise ArgumentError(f"defines: the value of {name!r} is a str or an int, not {value!r}")
    return {name: int(value) if isinstance(value, bool) else value for name, value in defines.items()}


def _checked_constants(constants: Any) -> Constants:
    if constants is None:
        return {}
    if not isinstance(constants, Mapping):
        raise ConstantError(f"constants: expected {{index or name: value}}, got {constants!r}")
    return constants


class LibraryMaker(OnQueue, Protocol):
    """The device of a registry."""

    def library(
        self,
        source: str | Path,
        constants: Constants | None = None,
        include_dirs: Sequence[str | Path] = (),
        defines: Defines | None = None,
    ) -> Library: ...


class KernelRegistry:
    """Kernel sources by name, compiled on first use and cached per set of function constants."""

    def __init__(self, device: LibraryMaker) -> None:
        queue_of(device, "KernelRegistry")
        self._device = device
        self._lock = ForkLock()
        self._sources: dict[str, tuple[str | Path, tuple[Path, ...], tuple[tuple[str, str | int], ...]]] = {}
        self._libraries: dict[tuple[Any, ...], Library] = {}
        self._pipelines: dict[tuple[Any, ...], Kernel] = {}

    def register_source(
        self,
        name: str,
        source: str | Path,
        include_dirs: Sequence[str | Path] = (),
        defines: Defines | None = None,
    ) -> None:
        """Set the source of the kernel `name`, replacing an earlier one. Nothing is compiled yet."""
        if not isinstance(name, str):
            raise ArgumentError(f"register_source: a name is a str, not {name!r}")
        checked, folders, macros = _checked_source(source), _checked_folders(include_dirs), _checked_defines(defines)
        with self._lock:
            for key in [key for key in self._pipelines if key[0] == name]:
                del self._pipelines[key]
            self._sources[name] = (checked, folders, tuple(sorted(macros.items())))
            # Drops libraries that no name uses any more, and this source's own: its file may have changed.
            used = set(self._sources.values())
            self._libraries = {
                key: library
                for key, library in self._libraries.items()
                if key[0] in used and key[0] != self._sources[name]
            }

    def get_pipeline(self, name: str, constants: Constants | None = None) -> Kernel:
        """The kernel `name` for these function constants, compiled on first use."""
        with self._lock:
            entry = self._sources.get(name)
            if entry is None:
                known = ", ".join(self._sources) or "none"
                raise KernelNotFound(f"no source registered for kernel {name!r}; registered: {known}")
            given = _checked_constants(constants)
            chosen = tuple(sorted(((str(key), key, value) for key, value in given.items()), key=_by_name))
            key = (name, chosen)
            try:
                kernel = self._pipelines.get(key)
            except TypeError:
                raise ConstantError(f"constants of kernel {name!r}: values must be numbers, got {given!r}") from None
            if kernel is None:
                library = self._libraries.get((entry, chosen))
                if library is None:
                    source, folders, defines = entry
                    library = self._device.library(source, constants, folders, dict(defines))
                    self._libraries[entry, chosen] = library
                kernel = self._pipelines[key] = library[name]
            return kernel

    def __contains__(self, name: object) -> bool:
        return name in self._sources

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._sources))

    def __len__(self) -> int:
        return len(self._sources)

    __reduce_ex__ = refuse_copy

    def __repr__(self) -> str:
        return f"KernelRegistry({len(self._sources)} sources, {len(self._pipelines)} pipelines)"


def _by_name(constant: tuple[str, Any, Any]) -> str:
    return constant[0]
