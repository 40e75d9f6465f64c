"""Libraries, functions, pipelines and their reflection: our own front end and CPU compiler behind Metal's surface."""

from __future__ import annotations

from functools import lru_cache
from typing import Any
from unittest import mock

import ml_dtypes
import numpy as np

from ostinato import msl
from ostinato.backends.cpu import CpuBackend
from ostinato.errors import KernelCompileError, OstinatoError
from ostinato.ir.commands import CompiledKernel
from ostinato.native import toolchain

from .constants import CONSTANTS, SCALARS
from .objects import Description, Error, Object
from .rules import require

_COMPILED_WHOLE = 64


@lru_cache(maxsize=1)
def _compiler() -> CpuBackend:
    return CpuBackend(workers=1)


class CompileOptions(Description):
    """MTLCompileOptions."""

    PROPERTIES = {"fastMathEnabled": True}


class FunctionConstantValues(Object):
    """MTLFunctionConstantValues."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[int, Any] = {}

    def setConstantValue_type_atIndex_(self, data: bytes, kind: int, index: int) -> None:
        scalar = next(name for name, (_, value) in SCALARS.items() if value == kind)
        dtype = np.dtype(ml_dtypes.bfloat16 if scalar == "bfloat16" else scalar)
        require(len(data) == dtype.itemsize, f"a constant of type {scalar} has {dtype.itemsize} bytes")
        found = np.frombuffer(data, dtype)[0]
        self.values[index] = float(found) if dtype.kind in "fV" else found.item()


class Library(Object):
    """MTLLibrary."""

    def __init__(self, module: msl.Module) -> None:
        super().__init__()
        self.module = module
        self._compiled: dict[tuple[Any, ...], dict[str, CompiledKernel]] = {}

    def newFunctionWithName_constantValues_error_(
        self, name: str, values: FunctionConstantValues, error: None
    ) -> tuple[Function | None, Error | None]:
        if name not in self.module.kernels:
            return None, Error(f"Function {name} does not exist in library")
        return Function(self, name, dict(values.values)), None

    def compiled_kernel(self, name: str, constants: dict[int | str, Any]) -> CompiledKernel:
        whole = len(self.module.kernels) <= _COMPILED_WHOLE
        key = (() if whole else (name,), tuple(sorted(constants.items())))
        if key not in self._compiled:
            given = self.module.given_constants(constants)
            complete = [kernel for kernel in self.module.kernels if not self.module.missing_constants(kernel, given)]
            # Pipelines are made of all kernels of a library, and on fibers most of them compile together.
            with mock.patch.object(toolchain, "find_clang", return_value=None):
                found = _compiler().compile(self.module, dict(constants), complete if whole else [name])
            self._compiled[key] = dict(found)
        if name not in self._compiled[key]:
            self.module.check_constants(constants, [name])  # raises
        return self._compiled[key][name]


def library(source: str) -> tuple[Library | None, Error | None]:
    """A library of a source; without function constants it is compiled at once, as Metal would."""
    require(isinstance(source, str), "source is a string")
    try:
        found = Library(msl.parse(source))
        if not found.module.constants and len(found.module.kernels) <= _COMPILED_WHOLE:
            for name in list(found.module.kernels)[:1]:
                found.compiled_kernel(name, {})
            if not found.module.kernels:
                with mock.patch.object(toolchain, "find_clang", return_value=None):
                    _compiler().compile(found.module, {})
    except OstinatoError as error:
        return None, Error(_told(error))
    return found, None


def _told(error: OstinatoError) -> str:
    if isinstance(error, KernelCompileError) and error.file is not None:
        return "\n".join(f"{one.file}:{one.line}:{one.column or 1}: error: {one.message}" for one in error.diagnostics)
    return str(error)


class Function(Object):
    """MTLFunction."""

    def __init__(self, library: Library, name: str, constants: dict[int, Any]) -> None:
        super().__init__()
        self.library = library
        self.name_ = name
        self.constants = constants


class ComputePipelineDescriptor(Description):
    """MTLComputePipelineDescriptor."""

    PROPERTIES = {"computeFunction": None, "supportIndirectCommandBuffers": False}


class Binding(Object):
    """MTLBufferBinding and MTLThreadgroupBinding."""

    def __init__(self, name: str, index: int, kind: int, access: int, size: int, alignment: int, type_: int) -> None:
        super().__init__()
        self._values = (name, index, kind, access, size, alignment, type_)

    def name(self) -> str:
        return self._values[0]

    def index(self) -> int:
        return self._values[1]

    def type(self) -> int:
        return self._values[2]

    def access(self) -> int:
        return self._values[3]

    def isArgument(self) -> bool:
        return True

    def bufferDataSize(self) -> int:
        return self._values[4]

    def bufferAlignment(self) -> int:
        return self._values[5]

    def bufferDataType(self) -> int:
        return self._values[6]


class Reflection(Object):
    """MTLComputePipelineReflection."""

    def __init__(self, kernel: CompiledKernel) -> None:
        super().__init__()
        self._bindings = []
        sized = zip(kernel.signature.arguments, kernel.argument_bytes, kernel.argument_alignments, strict=True)
        for argument, size, alignment in sized:
            access = CONSTANTS["MTLBindingAccessReadOnly" if argument.access == "read" else "MTLBindingAccessReadWrite"]
            type_ = CONSTANTS["MTLDataTypeStruct"]
            if argument.scalar is not None and not argument.atomic and "x" not in argument.type:
                type_ = SCALARS[argument.scalar][1] + argument.lanes - 1
            self._bindings.append(Binding(argument.name, argument.index, 0, access, size, alignment, type_))
        for shared in kernel.signature.shared:
            self._bindings.append(Binding(shared.name, shared.index, 1, 1, 0, 16, 0))

    def bindings(self) -> list[Binding]:
        return self._bindings


class ComputePipelineState(Object):
    """MTLComputePipelineState."""

    def __init__(self, kernel: CompiledKernel, indirect: bool) -> None:
        super().__init__()
        self.kernel = kernel
        self.indirect = indirect

    def maxTotalThreadsPerThreadgroup(self) -> int:
        return self.kernel.max_threads_per_group

    def staticThreadgroupMemoryLength(self) -> int:
        return self.kernel.threadgroup_bytes

    def threadExecutionWidth(self) -> int:
        return 32


def pipeline(
    description: ComputePipelineDescriptor,
) -> tuple[ComputePipelineState | None, Reflection | None, Error | None]:
    """A pipeline; compiled here if it has function constants."""
    function = description.values["computeFunction"]
    require(isinstance(function, Function), "a pipeline is made of a function")
    try:
        kernel = function.library.compiled_kernel(function.name_, function.constants)
    except OstinatoError as error:
        return None, None, Error(_told(error))
    return ComputePipelineState(kernel, description.values["supportIndirectCommandBuffers"]), Reflection(kernel), None
