"""`torch.mps.compile_shader` where there is no MPS: Metal kernels on torch's CPU and CUDA tensors.

`compile_shader(source)` returns what torch's function returns: a library with its kernels as attributes, called with
tensors and numbers by position, where the position is the index of the buffer. Kernels work in the tensors' own
memory. On the CPU a call returns when the kernel is done; on CUDA the kernel runs in the order of torch's current
stream. `install()` puts the functions in place of torch's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..device import Device
from ..errors import (
    DeviceError,
    DeviceUnavailable,
    GeometryError,
    KernelCompileError,
    MissingPackage,
    NoKernels,
    OstinatoError,
    UnsupportedFeature,
)

try:
    import torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise MissingPackage("ostinato.interop.torch needs torch: pip install torch") from None

from ..base.printable import printable
from ..runtime.buffer import Buffer
from ..runtime.library import Kernel, Library
from . import arrays, torch_tensors, torch_values
from .arrays import CUDA, HOST, Place
from .installing import Installation, Replacement, undo_all, warn_of_holders
from .torch_errors import CallError, GridError, MissingKernel, MixedDevices, ReportedError, ShaderSyntaxError
from .torch_ops import custom_op, opaque
from .torch_tensors import VIRTUAL, Buffers, VirtualTensor
from .torch_values import plain_bytes, plain_kind

if TYPE_CHECKING:
    from ..msl import Argument

__all__ = ["compile_shader", "custom_op", "install", "load_metallib", "synchronize", "uninstall"]

Extent = int | Sequence[int]

_HEADERS = Path(torch.__file__).parent / "include"
"""Where `#include <c10/metal/…>` and `<ATen/…>` are found."""

_REPORTED = np.dtype([("file", "S128"), ("func", "S128"), ("message", "S250"), ("line", np.uint32)], align=True)
_REPORTS = np.dtype([("count", np.uint32), ("reports", _REPORTED, (30,))])
"""ErrorMessages of c10/metal/error.h."""


_MOST_GRIDS = 1024


@dataclass(frozen=True, slots=True)
class _Placed:
    """A kernel on one device."""

    device: Device
    kernel: Kernel
    buffers: Buffers
    slots: tuple[tuple[int, Argument, type | None], ...]
    """Its buffer arguments by ascending index, and the kind of number that is passed as it is."""
    grids: dict[tuple[Any, Any], tuple[tuple[int, ...], tuple[int, ...]]]
    """Grid and group by what callers gave for them."""

    def grid(self, threads: Any, group_size: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The grid and the group; without `group_size` as torch chooses it."""
        grid, limit = self._extents("threads", threads), self.kernel.max_threads_per_group
        if group_size is None:
            group = (min(grid[0], limit),) if len(grid) == 1 else (limit, 1, 1)[: len(grid)]
        else:
            group = self._extents("group_size", group_size)
        if len(group) != len(grid):
            raise GridError(
                f"kernel {self.kernel.name!r}: threads={threads!r} and group_size={group_size!r} differ in their number"
                " of extents"
            )
        if not isinstance(threads, list) and not isinstance(group_size, list):
            if len(self.grids) >= _MOST_GRIDS:
                self.grids.clear()
            self.grids[threads, group_size] = grid, group
        return grid, group

    def _extents(self, name: str, given: Any) -> tuple[int, ...]:
        """A grid or group as torch takes it: an int, or one to three of them."""
        extents = given if isinstance(given, tuple | list) else (given,)
        if not 1 <= len(extents) <= 3 or not all(type(extent) is int and extent >= 0 for extent in extents):
            raise GridError(
                f"kernel {self.kernel.name!r}: {name} is an int, or a tuple or list of one to three, not {given!r}"
            )
        return tuple(extents)

    def bound(
        self, where: Place, args: tuple[Any, ...], casts: Any, error_buf_idx: int | None, reports: Buffer | None
    ) -> list[Any]:
        """What `dispatch` takes; an argument at an index that the kernel does not have is ignored, as by Metal."""
        bound: list[Any] = []
        for index, argument, plain in self.slots:
            if index == error_buf_idx:
                bound.append(reports)
                continue
            if index >= len(args):
                if argument.used:
                    raise CallError(f"{self._named(argument)}: nothing was given for it; position n is buffer n")
                bound.append(None)
                continue
            value = args[index]
            if isinstance(value, torch.Tensor):
                bound.append(self._buffer(argument, value, where))
            elif type(value) is plain and casts is None:
                bound.append(plain_bytes(value) or self._bytes(argument, value, casts, where))
            else:
                bound.append(self._bytes(argument, value, casts, where))
        return bound

    def _memory(self, argument: Argument, tensor: torch.Tensor, where: Place) -> tuple[int, int]:
        try:
            return torch_tensors.memory(tensor, where)
        except (CallError, MixedDevices) as error:
            raise type(error)(f"{self._named(argument)}: {error}") from None

    def _buffer(self, argument: Argument, tensor: torch.Tensor, where: Place) -> Buffer | bytes:
        """The memory of a tensor, or the value of one without axes that has none that the kernel can use."""
        if argument.access == "read" and torch_tensors.is_number(tensor, where):
            return torch_tensors.number_bytes(tensor)
        key = self._memory(argument, tensor, where)
        if argument.access != "read":
            torch.autograd.graph.increment_version(tensor)  # a backward that needs the old contents raises
        return self.buffers.get(key) or torch_tensors.new_buffer(self.device, self.buffers, key)

    def _bytes(self, argument: Argument, value: Any, casts: Any, where: Place) -> bytes:
        name = self._named(argument)
        if argument.access != "read":
            raise CallError(f"{name}: the kernel writes to it, so it must be a tensor, not {type(value).__name__}")
        if _first_tensor(value) is not None:
            return torch_values.address_bytes([self._memory(argument, tensor, where)[0] for tensor in value])
        cast = torch_values.cast_of(casts, argument.index)
        return torch_values.number_bytes(name, argument, self.kernel, value, cast)

    def _named(self, argument: Argument) -> str:
        pointer = "*" if argument.kind == "buffer" else "&"
        return f"kernel {self.kernel.name!r}, argument {argument.index} {argument.name!r} ({argument.type} {pointer})"


class _Shader:
    """A source, compiled for each device when that is first used, and for one at once."""

    __slots__ = ("_libraries", "_source", "home", "names")

    def __init__(self, source: str) -> None:
        self._source = source
        self._libraries: dict[Device, Library] = {}
        self.home = _home()
        """The place of the device that it was compiled for first."""
        try:
            self.names = tuple(self.library(arrays.device_at(self.home)))
        except NoKernels:
            self.names = ()  # torch compiles a source of headers only

    def library(self, device: Device) -> Library:
        library = self._libraries.get(device)
        if library is None:
            try:
                library = device.library(self._source, include_dirs=[_HEADERS])
            except (NoKernels, UnsupportedFeature):
                raise
            except KernelCompileError as error:
                raise ShaderSyntaxError.of(error.diagnostics, error.details) from None
            self._libraries[device] = library
        return library


def _home() -> Place:
    """A GPU if torch has one, because its tensors are then the likely arguments."""
    if torch.cuda.is_available():
        place = (CUDA, torch.cuda.current_device())
        try:
            arrays.device_at(place)
        except DeviceUnavailable:
            return HOST
        return place
    return HOST


class ShaderLibrary:
    """The kernels of one source, as attributes. `dir()` lists them."""

    def __init__(self, source: str) -> None:
        if not isinstance(source, str):
            raise CallError(f"compile_shader: source is Metal source as a str, not {type(source).__name__}")
        self._shader = _Shader(source)
        # At once rather than when one is asked for: torch.compile then sees plain attributes.
        self.__dict__.update({name: MetalKernel(self._shader, name) for name in self._shader.names})

    def __getattr__(self, name: str) -> MetalKernel:
        names = ", ".join(dir(self)) if "_shader" in self.__dict__ else ""
        raise MissingKernel(f"no kernel named {name!r} in this library; it has {names}", name=name, obj=self)

    def __dir__(self) -> list[str]:
        return list(self._shader.names)

    def __repr__(self) -> str:
        return f"<ShaderLibrary: {', '.join(self._shader.names)}>"


_abandoned: list[tuple[Any, ...]] = []
"""The arguments of calls that were interrupted: their memory must stay."""


class MetalKernel:
    """A kernel of a `ShaderLibrary`. Calling it runs it."""

    __slots__ = ("_name", "_placed", "_shader")

    def __init__(self, shader: _Shader, name: str) -> None:
        self._shader = shader
        self._name = name
        self._placed: dict[Device, _Placed] = {}

    @opaque
    def __call__(
        self,
        *args: Any,
        threads: Extent | None = None,
        group_size: Extent | None = None,
        arg_casts: Mapping[int, str] | str | None = None,
        error_buf_idx: int | None = None,
    ) -> None:
        """Run the kernel; position n of `args` is buffer n.

        `threads` is the grid, one to three extents; the number of elements of the first tensor if left out.
        `group_size` has as many; without it a group has as many threads as the kernel allows, in one row. `arg_casts`
        is the type that numbers are passed as, for all or by position. `error_buf_idx` is the index of the argument
        that TORCH_REPORT_ERROR writes to.
        """
        first = args[0] if args and isinstance(args[0], torch.Tensor) else _first_tensor(args)
        where = self._shader.home if first is None else torch_tensors.common_place(args, first)
        if where == VIRTUAL:
            return  # a tensor without memory has no contents to compute
        device = arrays.device_at(where)
        placed = self._placed.get(device) or self._on(device, where)
        if threads is None:
            if first is None:
                raise GridError(f"kernel {self._name!r}: without a tensor in its arguments it needs threads=")
            threads = first.numel()
        try:
            grid, group = placed.grids[threads, group_size]
        except (KeyError, TypeError):
            grid, group = placed.grid(threads, group_size)
        reports = None if error_buf_idx is None else device.zeros(_REPORTS.itemsize, np.uint8)
        try:
            bound = placed.bound(where, args, arg_casts, error_buf_idx, reports)
        except VirtualTensor:
            return
        if 0 in grid:
            return
        stream = 0 if where == HOST else torch_tensors.current_stream(where)
        if stream:
            device.after_stream(stream)
        encoder = device.command_encoder()
        try:
            encoder.dispatch(placed.kernel, *bound, threads=grid, group_size=group)
            submission = encoder.commit()
            if where == HOST:
                submission.wait()
            elif stream:
                device.before_stream(stream)
        except GeometryError as error:
            raise GridError(str(error)) from None
        except DeviceError:
            # The tensors keep what the kernel wrote before it crashed, and torch uses them without asking.
            for buffer in bound:
                if isinstance(buffer, Buffer):
                    buffer.accept()
            raise
        except OstinatoError:
            raise
        except BaseException:
            # Ctrl-C gives up the wait but not the work, which still writes to this memory.
            _abandoned.append(args)
            placed.buffers.clear()
            raise
        if reports is not None:
            _raise_reported(self._name, reports.numpy().view(_REPORTS)[0])

    def _on(self, device: Device, where: Place) -> _Placed:
        if where == HOST and not device.capabilities.shared_memory:
            raise MixedDevices(f"kernel {self._name!r}: {device.name!r}, by OSTINATO_DEVICE, cannot reach CPU tensors")
        kernel = self._shader.library(device)[self._name]
        needed = [argument for argument in kernel.signature.shared if argument.used]
        if needed:
            raise CallError(
                f"kernel {self._name!r}: torch gives no memory to [[threadgroup({needed[0].index})]]"
                f" {needed[0].name!r}; declare a threadgroup array in the kernel's body"
            )
        slots = tuple((each.index, each, plain_kind(each)) for each in kernel.signature.arguments)
        placed = self._placed[device] = _Placed(device, kernel, torch_tensors.buffers_of(device), slots, {})
        return placed

    @property
    def _first(self) -> Kernel:
        return self._shader.library(arrays.device_at(self._shader.home))[self._name]

    @property
    def max_threads_per_threadgroup(self) -> int:
        """The largest group it can be called with."""
        return self._first.max_threads_per_group

    @property
    def thread_execution_width(self) -> int:
        """Threads in a simdgroup."""
        return arrays.device_at(self._shader.home).capabilities.simd_width

    @property
    def static_thread_group_memory_length(self) -> int:
        """Bytes of threadgroup memory that its body declares."""
        return self._first.threadgroup_memory_bytes

    def __repr__(self) -> str:
        return f"<MetalKernel {self._first.signature}>"


def _first_tensor(values: Any) -> torch.Tensor | None:
    """The first tensor of a tuple or list, or else the first in a list among them; None for anything without one."""
    if not isinstance(values, tuple | list):
        return None
    for value in values:
        if isinstance(value, torch.Tensor):
            return value
    return next((value for value in map(_first_tensor, values) if value is not None), None)


def _raise_reported(kernel: str, reported: Any) -> None:
    count = int(reported["count"])
    if count:
        first = reported["reports"][0]
        message, func = (printable(first[field].decode(errors="replace")) for field in ("message", "func"))
        more = f"; {count - 1} more were reported" if count > 1 else ""
        raise ReportedError(f"{message} (kernel {kernel!r}, {func}, line {int(first['line'])}{more})")


def compile_shader(source: str) -> ShaderLibrary:
    """Compile Metal source, as `torch.mps.compile_shader` does; its kernels are attributes of the result.

    `#include <c10/metal/…>` and `#include <ATen/…>` are found in the installed torch. A source that does not compile
    raises a `SyntaxError`.
    """
    return ShaderLibrary(source)


def load_metallib(source: bytes | bytearray | str | PathLike[str]) -> ShaderLibrary:
    """Raises: a .metallib is code of Apple's GPUs."""
    raise UnsupportedFeature(
        "load_metallib: a .metallib holds code for Apple's GPUs, which nothing else can run; pass the Metal source that"
        " it was compiled from to compile_shader"
    )


def synchronize() -> None:
    """Wait for all kernels, as `torch.mps.synchronize` does. On the CPU they are done when their call returns."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


_STAND_INS = {"compile_shader": compile_shader, "load_metallib": load_metallib, "synchronize": synchronize}


def install() -> Installation:
    """Put `compile_shader`, `load_metallib` and `synchronize` in the place of `torch.mps`'s, until `uninstall()`.

    As a context manager it does so for a block: `with install(): …`. Where torch has MPS its own functions stay, so
    that a test suite can call this on every machine. Warns of modules that took torch's function before.
    """
    original = torch.mps.compile_shader
    replaced = {} if torch.backends.mps.is_available() else _STAND_INS
    # torch before 2.13 has no load_metallib.
    present: list[Replacement] = [
        (torch.mps, name, stand_in) for name, stand_in in replaced.items() if hasattr(torch.mps, name)
    ]
    installation = Installation("torch", present)
    if replaced and original is not compile_shader:
        warn_of_holders(lambda value: value is original, "torch", "compile_shader of torch")
    return installation


def uninstall() -> None:
    """Give `torch.mps` back what `install` replaced. Kernels that were compiled meanwhile keep working."""
    undo_all("torch")
