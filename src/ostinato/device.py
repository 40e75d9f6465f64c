"""The front door: opening devices and asking what there is.

A `Device` owns one queue on one backend and makes everything that works on it: buffers, libraries, encoders.
`open_device("auto")` takes the first kind of device that passes a probe dispatch, which compiles a kernel, runs it
and checks the result.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from . import counters, settings
from .backends import registry
from .backends.protocol import Backend, Capabilities, Memory
from .base.copies import refuse_copy
from .encode.encoder import CommandEncoder, capture
from .errors import ArgumentError, DeviceError, DeviceUnavailable, OstinatoError, SettingError
from .graph.graph import Graph
from .ir.dtypes import Shape
from .profiling import export as _gated_export  # noqa: F401  its gate acts from the first commit on
from .profiling import from_environment as _gated_profile  # noqa: F401  this one too
from .profiling import kernel_profile as _kernel_profile  # noqa: F401  likewise
from .runtime import dlpack
from .runtime.buffer import Buffer, adopt, allocate
from .runtime.library import Constants, Defines, Library, compile_library
from .runtime.queue import Queue
from .runtime.residency import ResidencySet
from .runtime.tuned import check_device, identity
from .runtime.tuned import read as read_tuned

_PROBE = """
#include <metal_stdlib>
using namespace metal;
kernel void probe(device const uint *in [[buffer(0)]], device uint *out [[buffer(1)]],
                  uint id [[thread_position_in_grid]]) { out[id] = in[id] * 3u + id; }
"""


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """One kind of device: what it can do, or why it cannot be used."""

    name: str
    capabilities: Capabilities | None
    reason: str = ""
    """Why it was skipped; empty when it can be used."""

    @property
    def available(self) -> bool:
        """Whether it can be opened."""
        return self.capabilities is not None


class Device:
    """An open device. Close it, or use it in a `with` block, to be rid of it early."""

    __slots__ = ("__weakref__", "_queue")

    def __init__(self, backend: Backend, options: Mapping[str, Any] | None = None) -> None:
        self._queue = Queue(backend, options)

    @property
    def name(self) -> str:
        """The name it was opened by."""
        return self._queue.name

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""
        return self._queue.backend.capabilities

    @property
    def residency(self) -> ResidencySet:
        """Its residency set, which every allocation joins and every commit flushes."""
        return self._queue.residency

    # --- buffers -------------------------------------------------------------------------------------------

    def array(self, values: Any) -> Buffer:
        """A buffer with a copy of an array's values, in its dtype and shape."""
        try:
            array = np.asarray(values)
        except (TypeError, ValueError, OverflowError) as error:
            raise ArgumentError(f"array: {error}") from None
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        buffer = self.empty(array.shape, array.dtype)
        buffer._allocation().backing.write(0, array)
        return buffer

    def empty(self, shape: Shape, dtype: Any) -> Buffer:
        """A buffer of undefined content."""
        return allocate(self._queue, shape, dtype)

    def zeros(self, shape: Shape, dtype: Any) -> Buffer:
        """A buffer whose bytes are all zero."""
        buffer = self.empty(shape, dtype)
        buffer._allocation().backing.clear(0, buffer.nbytes)
        return buffer

    def from_dlpack(self, producer: Any) -> Buffer:
        """A buffer over the memory of another library's array: shared where it can be, else a copy.

        The host's memory is shared with a device that has the same if it is contiguous, aligned and writable, and
        copied otherwise. On a CUDA device, memory of that device is always shared, and must be contiguous; arrays
        that only have `__cuda_array_interface__` are taken too. What is committed afterwards waits for what the other
        library had queued on the stream it names. Writing to an array that its library takes for immutable (JAX's) is
        the caller's to avoid: the interface does not say.
        """
        self._queue.check()
        able = self.capabilities
        has_interface = self._queue.backend.stream is not None and hasattr(producer, "__cuda_array_interface__")
        if not hasattr(producer, "__dlpack__") and not has_interface:
            raise ArgumentError(f"from_dlpack: {type(producer).__name__} has no __dlpack__")
        try:
            if not hasattr(producer, "__dlpack__"):
                adopted, stream = dlpack.adopt_interface(producer)
                if stream is not None:
                    self._queue.backend.borrow(stream)
                return adopt(self._queue, adopted.memory, adopted.shape, adopted.dtype)
            if not able.shared_memory and tuple(producer.__dlpack_device__()) == able.dlpack_device:
                adopted = dlpack.adopt_memory(producer, self._queue.backend.stream)
                return adopt(self._queue, adopted.memory, adopted.shape, adopted.dtype)
            array = dlpack.adopt(producer)
        except (RuntimeError, BufferError, TypeError, ValueError) as error:
            raise ArgumentError(f"from_dlpack: {error}") from None
        flags = array.flags
        if able.shared_memory and flags.c_contiguous and flags.writeable and flags.aligned and array.nbytes:
            memory = self._queue.backend.adopt(array)
            if memory is not None:
                return adopt(self._queue, memory, array.shape, array.dtype)
        return self.array(array)

    def from_address(self, address: int, nbytes: int) -> Buffer:
        """A buffer of bytes over memory that another library owns, which must outlive the work on it.

        The address is one that kernels of this device can use: of the host on the CPU, of its own memory on CUDA.
        Nothing is ordered: on CUDA, `after_stream` and `before_stream` do that. Equal arguments always mean the
        same memory, so who calls a kernel often can keep the buffer and is spared the checks of a new one.
        """
        self._queue.check()
        backend = self._queue.backend
        start, extent = operator.index(address), operator.index(nbytes)
        if start < 0 or extent < 0 or (extent and not start):
            raise ArgumentError(f"from_address: {extent} bytes at address {start} are not memory")
        memory: Memory | None = Memory(start, extent, None)
        if backend.capabilities.shared_memory and extent:
            memory = backend.adopt(np.ctypeslib.as_array((ctypes.c_ubyte * extent).from_address(start)))
        if memory is None:
            raise ArgumentError(f"from_address: device {self.name!r} cannot use these {extent} bytes; use from_dlpack")
        return adopt(self._queue, memory, (extent,), np.uint8)

    # --- streams of other libraries ------------------------------------------------------------------------

    def after_stream(self, stream: int) -> None:
        """Make what is committed from now on run after what a CUDA stream (its handle) has queued."""
        self._streams("after_stream").borrow(stream)

    def before_stream(self, stream: int) -> None:
        """Make what a CUDA stream (its handle) is given from now on run after everything committed so far."""
        self._streams("before_stream").lend(stream)

    def _streams(self, what: str) -> Backend:
        self._queue.check()
        if self._queue.backend.stream is None:
            raise DeviceError(f"{what}: device {self.name!r} has no CUDA streams")
        return self._queue.backend

    # --- kernels -------------------------------------------------------------------------------------------

    def library(
        self,
        source: str | Path,
        constants: Constants | None = None,
        include_dirs: Sequence[str | Path] = (),
        defines: Defines | None = None,
        *,
        cuda: str | Path | None = None,
    ) -> Library:
        """Compile Metal source: a text (`str`) or a file (`Path`).

        `constants` gives function constants by index or name, `include_dirs` where `#include` looks besides the
        file's own folder, `defines` macros. `cuda` is CUDA source for some of its kernels, which runs instead of them
        on a CUDA device: `extern "C" __global__ void name(…)` with the buffer arguments by ascending index.
        """
        native = {} if cuda is None else {"cuda": cuda}
        return compile_library(self._queue, source, constants, include_dirs, defines, native)

    # --- work ----------------------------------------------------------------------------------------------

    def command_encoder(self, label: str | None = None, barriers: str = "auto", retain: bool = True) -> CommandEncoder:
        """An encoder to record work with.

        `barriers`: "auto" orders dispatches as their data needs it, "manual" only where `memory_barrier()` says so,
        "serial" runs one at a time. `retain=False` makes a Metal command buffer without references to
        its buffers; the memory is kept until the work is done all the same, whatever the caller drops.
        """
        return CommandEncoder(self._queue, label, barriers, retain)

    def capture(
        self, encode: Callable[[CommandEncoder], object], label: str | None = None, barriers: str = "auto"
    ) -> Graph:
        """What `encode(encoder)` records, as a graph. Nothing of it runs."""
        return capture(self._queue, encode, label, barriers)

    def close(self) -> None:
        """Finish committed work and refuse everything from now on. Contents of buffers can still be read.

        Work that is still running after a wait for it was given up is not waited for.
        """
        self._queue.close()

    def __enter__(self) -> Device:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    __reduce_ex__ = refuse_copy

    def __repr__(self) -> str:
        able = self.capabilities
        return f"<Device {self._queue.title}: {able.description}, {able.workers} workers>"

    def _repr_html_(self) -> str:
        from .base import fragments

        capabilities = self.capabilities
        facts = (
            ("device", capabilities.description),
            ("workers", f"{capabilities.workers:,}"),
            ("simdgroup", f"{capabilities.simd_width} threads"),
            ("group", f"at most {capabilities.max_threads_per_group:,} threads"),
            ("threadgroup memory", f"{capabilities.threadgroup_memory_bytes:,} bytes"),
            ("memory", "shared with the host" if capabilities.shared_memory else "its own"),
            *capabilities.details.items(),
        )
        return fragments.fragment(fragments.facts(facts, f"Device {self._queue.title}"))


def open_device(
    name: str = "auto", *, tuned: str | Path | None = None, tuned_sums: bool = False, **options: Any
) -> Device:
    """Open a device: "auto" for the first that passes a probe dispatch, or one by name.

    OSTINATO_DEVICE overrides the name. `tuned` is a file of tuned choices for this device, which `ops` then prefer to
    their own rules; results keep every bit unless `tuned_sums` also allows choices that change the order of additions
    (docs/tuning.md). OSTINATO_TUNED and OSTINATO_TUNED_SUMS override the two.

    The CPU takes the options `workers` (threads, one per core if left out), `threadgroup_memory` (bytes, 32 KiB if left
    out), `checked` (True: kernels are built to find errors rather than to be fast; with `nan`, `overflow` and
    `unwritten` they look for more; "bounds": for accesses out of bounds only; docs/checking.md) and `debug` (True:
    kernels are built for a debugger and run on one worker, docs/debugging.md, and printf in them prints,
    docs/kernel-log.md; OSTINATO_DEBUG overrides it). What CUDA and Metal devices take stands in docs/cuda.md and
    docs/metal.md. Installed packages can add kinds of devices (docs/writing-a-backend.md).
    """
    settings.report_unknown()
    return _with_tuned(_opened(settings.text("device") or name, options), tuned, tuned_sums)


def _opened(chosen: str, options: dict[str, Any]) -> Device:
    if chosen != "auto":
        return Device(registry.open_backend(chosen, options), options)
    kinds, reasons = registry.by_priority()
    tried = {}
    for kind in kinds:
        if kind.priority <= 0:
            continue
        try:
            device = Device(registry.open_backend(kind.name, options), options)
            with counters.uncounted():
                probe(device)
            return device
        except SettingError:
            raise
        except Exception as error:  # of a package that is not ours, anything
            tried[kind.name] = str(error) if isinstance(error, OstinatoError) else f"{type(error).__name__}: {error}"
    listed = "; ".join(f"{name}: {reason}" for name, reason in (tried | reasons).items())
    raise DeviceUnavailable(f"no device can be used. {listed}")


def _with_tuned(device: Device, path: str | Path | None, sums: bool) -> Device:
    """The device with its tuned choices. A setting may name a file of another device: programs open several."""
    named = settings.text("tuned")
    path = named or path
    if path is None:
        return device
    try:
        allowed = settings.get("tuned_sums")
        tuned = read_tuned(path, sums if allowed is None else allowed is True)
        if named is None:
            check_device(tuned, device.capabilities)
    except BaseException:
        device.close()
        raise
    if dict(tuned.device) == identity(device.capabilities):
        device._queue.tuned = tuned
    return device


def devices() -> list[DeviceInfo]:
    """Every kind of device, with its capabilities or the reason why it cannot be used.

    What must be opened to know them (a CUDA device) is opened for a moment.
    """
    settings.report_unknown()
    return [DeviceInfo(name, *registry.availability(name)) for name in registry.names()]


def check_settings() -> None:
    """Raise a `SettingError` for the first gate in the environment whose value makes no sense."""
    for gate in settings.GATES:
        settings.get(gate)
    chosen = settings.text("device")
    if chosen is not None and chosen != "auto" and not registry.knows(chosen):
        raise SettingError(f"OSTINATO_DEVICE={chosen!r}: expected one of {', '.join(registry.names())}, auto")


def probe(device: Device) -> None:
    """Compile a kernel, run it and check what it wrote."""
    kernel = device.library(_PROBE)["probe"]
    given = np.arange(37, dtype=np.uint32)
    source, target = device.array(given), device.zeros(given.shape, given.dtype)
    encoder = device.command_encoder(label="probe")
    encoder.dispatch(kernel, source, target, threads=given.size)
    encoder.commit_and_wait()
    if not np.array_equal(target.numpy(), given * 3 + given):
        raise DeviceError(f"device {device.name!r} gave a wrong answer to the probe dispatch")
