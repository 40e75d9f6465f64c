"""Compiled kernels: one library per translation, with variants that are built on first use.

Variants differ in what is compiled in: sampling, and room for inline bytes behind pointers. The plain variant always
exists; the kernel's limits are read from it. Code is never unloaded: graphs and submissions may outlive the library.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...base.locks import ForkLock
from ...errors import DeviceError, KernelCompileError
from ...ir.commands import CompiledKernel
from ...msl import ParameterLayout, Signature, Translation, cuda_options, parameter_layout
from .api import Context, call
from .assembling import assembled
from .compiling import cubin

_INLINE_SIZES = (256, 1024, 4096, 16384)
_STATIC_SHARED_BYTES = 48 << 10
_STAGING = re.compile(rb"staging_bytesILj(\d+)E")
"""What `staging_bytes` of msl/include/ostinato/wgmma_cuda.h is called in machine code."""


class Functions(ctypes.Structure):
    """The handles of one variant, as `launcher.cpp` reads them; a record's entry is the address of this struct."""

    _fields_ = (("plain", ctypes.c_uint64), ("sampled", ctypes.c_uint64))


@dataclass(frozen=True, slots=True)
class Variant:
    """A kernel with room for so many inline bytes."""

    functions: Functions
    entry: int
    layout: ParameterLayout
    inline_bytes: int


class Module:
    """A translation, and the machine code of its variants."""

    def __init__(self, context: Context, architecture: str, translation: Translation, tf32: bool = False) -> None:
        self._context = context
        self._tf32 = tf32
        self._architecture = architecture
        self._translation = translation
        self._lock = ForkLock()
        self._loaded: dict[tuple[bool, int, int], Any] = {}
        self.staging_bytes = 0
        """Threadgroup memory in which products of matrices stage their operands, beside what kernels declare."""

    def load(self) -> None:
        """Compile the plain variant."""
        self._module(False, 0, 0)

    def function(self, number: int, sampled: bool, inline_bytes: int, registers: int = 0) -> Any:
        """The handle of a kernel in a variant, compiled on first use; `registers` limits its registers, 0 does not."""
        module = self._module(sampled, inline_bytes, registers)
        return call(self._context.cu.cuModuleGetFunction, module, f"__ost_kernel_{number}".encode())

    def numbers(self, number: int) -> list[int]:
        """The compiler's numbers for a kernel: see `__ost_info_` in msl/cuda_entry.py."""
        cu = self._context.cu
        address, nbytes = call(cu.cuModuleGetGlobal, self._module(False, 0, 0), f"__ost_info_{number}".encode())
        numbers = np.empty(nbytes // 4, np.uint32)
        call(cu.cuMemcpyDtoH, numbers.ctypes.data, address, nbytes)
        return [int(value) for value in numbers]

    def _module(self, sampled: bool, inline_bytes: int, registers: int) -> Any:
        key = (sampled, inline_bytes, registers)
        with self._lock:
            if key not in self._loaded:
                options = list(cuda_options(self._architecture, inline_bytes, self._translation.standard))
                if sampled:
                    options.append("--define-macro=__OST_SAMPLED=1")
                if self._tf32:
                    options.append("--define-macro=__OST_TF32=1")
                if registers:
                    options.append(f"--maxrregcount={registers}")
                try:
                    assemble = partial(assembled, self._context.cu, registers=registers)
                    image = cubin(self._translation.text, options, assemble)
                except KernelCompileError as error:
                    raise self._translation.placed(error) from None
                self.staging_bytes = max(map(int, _STAGING.findall(image)), default=0)
                self._loaded[key] = call(self._context.cu.cuModuleLoadData, image)
            return self._loaded[key]


class KernelCode:
    """One compiled kernel, with its variants."""

    def __init__(self, context: Context, module: Module, number: int, signature: Signature, entries: Entries) -> None:
        self._context = context
        self._module = module
        self._entries = entries
        self._number = number
        self._lock = ForkLock()
        self._variants: dict[int, Variant] = {}
        self._shared_bytes = 0
        self.name = signature.name
        static_bytes, max_threads, count, n_shared, *sized = module.numbers(number)
        self.sizes, self.alignments = tuple(sized[0 : 2 * count : 2]), tuple(sized[1 : 2 * count : 2])
        self.threadgroup_bytes = static_bytes
        self.staging_bytes = module.staging_bytes
        self._signature = signature
        seen = len(signature.arguments)
        if seen != count or len(signature.shared) != n_shared:
            raise DeviceError(f"kernel {self.name!r}: the compiler sees {count} arguments, the front end {seen}")
        self.values = frozenset(parameter_layout(signature, self.sizes).values)
        """Positions of the arguments that have a slot for their value."""
        plain = self._attribute(self.variant(0).functions.plain, "MAX_THREADS_PER_BLOCK")
        self.max_threads = min(plain, max_threads) if max_threads else plain

    def variant(self, inline_bytes: int) -> Variant:
        """The variant with room for this many inline bytes, compiled on first use."""
        size = next((bound for bound in (0, *_INLINE_SIZES) if inline_bytes <= bound), None)
        if size is None:
            raise DeviceError(f"kernel {self.name!r}: {inline_bytes} inline bytes; at most {_INLINE_SIZES[-1]}")
        with self._lock:
            variant = self._variants.get(size)
            if variant is None:
                variant = self._variants[size] = self._make(size)
            return variant

    def _make(self, inline_bytes: int) -> Variant:
        function = self._module.function(self._number, False, inline_bytes)
        functions = Functions(int(function), 0)
        layout = parameter_layout(self._signature, self.sizes, inline_bytes)
        offset, size = call(self._context.cu.cuFuncGetParamInfo, function, 0)
        if (offset, size) != (0, layout.total_bytes):
            raise DeviceError(
                f"kernel {self.name!r}: its parameters take {size} bytes where {layout.total_bytes} were expected"
            )
        if self._shared_bytes:
            self._allow(function, self._shared_bytes)
        variant = Variant(functions, ctypes.addressof(functions), layout, inline_bytes)
        self._entries[variant.entry] = (self, variant)
        return variant

    def build_sampled(self, variant: Variant) -> None:
        """Compile the instrumented form of a variant, which times itself, if that has not been done."""
        with self._lock:
            if variant.functions.sampled:
                return
            function = self._module.function(self._number, True, variant.inline_bytes)
            if self._attribute(function, "MAX_THREADS_PER_BLOCK") < self.max_threads:
                # Timing needs registers; the instrumented form must still run groups of the same size.
                room = 65536 // self.max_threads // 8 * 8
                function = self._module.function(self._number, True, variant.inline_bytes, room)
            if self._shared_bytes:
                self._allow(function, self._shared_bytes)
            variant.functions.sampled = int(function)

    def allow_shared(self, nbytes: int) -> None:
        """Allow all variants this much threadgroup memory; above 48 KiB a kernel must be given the permission."""
        if nbytes <= max(self._shared_bytes, _STATIC_SHARED_BYTES):
            return
        with self._lock:
            if nbytes <= self._shared_bytes:
                return
            for variant in self._variants.values():
                for handle in (variant.functions.plain, variant.functions.sampled):
                    if handle:
                        self._allow(handle, nbytes)
            self._shared_bytes = nbytes

    def _allow(self, function: Any, nbytes: int) -> None:
        cu = self._context.cu
        kind = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        call(cu.cuFuncSetAttribute, cu.CUfunction(int(function)), kind, nbytes)

    def _attribute(self, function: Any, name: str) -> int:
        cu = self._context.cu
        kind = getattr(cu.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        return int(call(cu.cuFuncGetAttribute, kind, cu.CUfunction(int(function))))

    def __repr__(self) -> str:
        return f"KernelCode({self.name!r})"


Entries = dict[int, tuple["KernelCode", Variant]]
"""Every variant by the entry that records refer to."""


def compiled(
    context: Context, architecture: str, translation: Translation, entries: Entries, tf32: bool = False
) -> dict[str, CompiledKernel]:
    """The kernels of a translation, compiled and loaded; their variants are added to `entries`.

    With `tf32` products of simdgroup matrices and tensors of float are those of the tensor cores.
    """
    module = Module(context, architecture, translation, tf32)
    module.load()  # also without kernels, so that errors in the source are reported now
    kernels = {}
    for number, (name, signature) in enumerate(translation.kernels.items()):
        code = KernelCode(context, module, number, signature, entries)
        kernels[name] = CompiledKernel(
            name=name,
            signature=signature,
            max_threads_per_group=code.max_threads,
            threadgroup_bytes=code.threadgroup_bytes,
            argument_bytes=code.sizes,
            argument_alignments=code.alignments,
            code=code,
            log_sites=translation.log_sites.get(name, ()),
        )
    return kernels
