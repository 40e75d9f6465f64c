"""The Metal compiler: pipelines from unchanged source, and Metal's reflection compared with the front end's.

The source is the library's text as the front end read it. Metal's reflection of a kernel's arguments must agree with
the front end's signature, by which bindings are checked and commands ordered.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import Diagnostic, KernelCompileError
from ...ir.commands import CompiledKernel
from ...msl import Argument, Module, Signature
from .api import Framework, error_text

_ERROR = re.compile(
    r"^(?P<file>[^:\n]+):(?P<line>\d+):(?:(?P<column>\d+):)? (?:fatal )?error: (?P<message>.*)$", re.MULTILINE
)

# <ostinato> in plain Metal, as in docs/kernels.md.
_OWN = """#include <metal_stdlib>
#ifndef __OSTINATO__
namespace ostinato {
template <typename A> inline int dot_add(metal::vec<A, 4> a, metal::char4 b, int sum) {
    const metal::int4 products = metal::int4(a) * metal::int4(b);
    return sum + products.x + products.y + products.z + products.w;
}
template <typename... T> inline void wait_for_all_but(T...) {}
}
#endif
"""
_OWN_NAMES = ("dot_add", "wait_for_all_but")
# NumPy's names of scalars: Metal's name of the type, and how a function constant of it is packed.
_TYPES = {
    "bool": ("Bool", "?"), "int8": ("Char", "b"), "uint8": ("UChar", "B"), "int16": ("Short", "h"),
    "uint16": ("UShort", "H"), "int32": ("Int", "i"), "uint32": ("UInt", "I"), "int64": ("Long", "q"),
    "uint64": ("ULong", "Q"), "float16": ("Half", "e"), "float32": ("Float", "f"), "bfloat16": ("BFloat", ""),
}  # fmt: skip
_SIZES = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "uint64": 8,
}


@dataclass(frozen=True, slots=True, eq=False)
class KernelCode:
    """A pipeline, and the number by which encoded commands refer to it."""

    number: int
    pipeline: Any


class Compiler:
    """Makes pipelines for one device."""

    def __init__(self, framework: Framework, device: Any, fast_math: bool, indirect: bool, constant_step: int) -> None:
        self._metal = framework.metal
        self._pool = framework.pool
        self._device = device
        self._fast_math = fast_math
        self._indirect = indirect
        self._constant_step = constant_step
        self.kernels: dict[int, KernelCode] = {}
        """Every pipeline that was made, by its number."""

    def compile(
        self, module: Module, constants: Mapping[int | str, object], only: Collection[str] | None
    ) -> dict[str, CompiledKernel]:
        """The kernels of a module, or some of them, for these constants."""
        names = list(module.kernels) if only is None else [name for name in module.kernels if name in set(only)]
        given = module.check_constants(constants, names)
        with self._pool():
            library = self._library(module)
            values = self._constant_values(module, given)
            return {name: self._kernel(library, values, name, module.signature(name, constants)) for name in names}

    def _library(self, module: Module) -> Any:
        options = self._metal.MTLCompileOptions.alloc().init()
        options.setFastMathEnabled_(self._fast_math)
        text = f"{_OWN}{module.source}" if any(name in module.source for name in _OWN_NAMES) else module.source
        library, error = self._device.newLibraryWithSource_options_error_(text, options, None)
        if library is None:
            raise module.placed(_failure(error_text(error)))
        return library

    def _constant_values(self, module: Module, given: Mapping[str, bool | int | float]) -> Any:
        values = self._metal.MTLFunctionConstantValues.alloc().init()
        for constant in module.constants:
            if constant.name not in given:
                continue
            packed = _packed(constant.scalar, given[constant.name])
            values.setConstantValue_type_atIndex_(packed, self._data_type(constant.scalar, 1), constant.index)
        return values

    def _data_type(self, scalar: str, lanes: int) -> int:
        name = _TYPES[scalar][0]
        return int(getattr(self._metal, f"MTLDataType{name}{lanes if lanes > 1 else ''}"))

    def _kernel(self, library: Any, values: Any, name: str, signature: Signature) -> CompiledKernel:
        metal = self._metal
        function, error = library.newFunctionWithName_constantValues_error_(name, values, None)
        if function is None:
            raise _failure(error_text(error), name)
        description = metal.MTLComputePipelineDescriptor.alloc().init()
        description.setLabel_(name)
        description.setComputeFunction_(function)
        description.setSupportIndirectCommandBuffers_(self._indirect)
        wanted = metal.MTLPipelineOptionBindingInfo | metal.MTLPipelineOptionBufferTypeInfo
        pipeline, reflection, error = self._device.newComputePipelineStateWithDescriptor_options_reflection_error_(
            description, wanted, None, None
        )
        if pipeline is None:
            raise _failure(error_text(error), name)
        sizes, alignments = self._compared(signature, reflection)
        code = KernelCode(len(self.kernels) + 1, pipeline)
        self.kernels[code.number] = code
        return CompiledKernel(
            name=name,
            signature=signature,
            max_threads_per_group=int(pipeline.maxTotalThreadsPerThreadgroup()),
            threadgroup_bytes=int(pipeline.staticThreadgroupMemoryLength()),
            argument_bytes=sizes,
            argument_alignments=alignments,
            code=code,
        )

    def _compared(self, signature: Signature, reflection: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Size and alignment of each buffer argument; an error where Metal and the front end disagree."""
        metal = self._metal
        ours = {argument.index: argument for argument in signature.arguments}
        shared = {argument.index for argument in signature.shared}
        sizes, alignments = {}, {}
        for binding in reflection.bindings():
            index, kind, name = int(binding.index()), binding.type(), str(binding.name())
            if kind == metal.MTLBindingTypeThreadgroupMemory:
                # Threadgroup memory declared in the body appears too, but is not an argument.
                if binding.isArgument() and index not in shared:
                    raise _disagreement(signature, f"threadgroup argument {index} '{name}' is not known to the parser")
                continue
            if kind != metal.MTLBindingTypeBuffer or not binding.isArgument():
                continue
            argument = ours.get(index)
            if argument is None:
                raise _disagreement(signature, f"buffer {index} '{name}' is not known to the parser")
            if name and argument.name and argument.name != name:
                raise _disagreement(
                    signature, f"buffer {index} is '{name}' to Metal and '{argument.name}' to the parser"
                )
            if binding.access() != metal.MTLBindingAccessReadOnly and argument.access == "read":
                raise _disagreement(
                    signature, f"Metal writes to buffer {index} '{name}', which the parser calls read only"
                )
            self._compare_types(signature, argument, int(binding.bufferDataType()))
            sizes[index], alignments[index] = int(binding.bufferDataSize()), int(binding.bufferAlignment())
        for argument in signature.arguments:
            size = _size(argument)  # for an argument that Metal left out because it is unused
            sizes.setdefault(argument.index, size)
            alignments.setdefault(argument.index, size)
            if argument.type == "void":
                sizes[argument.index] = 0
            if argument.space == "constant":
                alignments[argument.index] = max(alignments[argument.index], self._constant_step)
        order = [argument.index for argument in signature.arguments]
        return tuple(sizes[index] for index in order), tuple(alignments[index] for index in order)

    def _compare_types(self, signature: Signature, argument: Argument, data_type: int) -> None:
        metal = self._metal
        if argument.scalar is None or argument.atomic or argument.type.startswith("packed_"):
            return
        vague = (metal.MTLDataTypeNone, metal.MTLDataTypeStruct, metal.MTLDataTypePointer, metal.MTLDataTypeArray)
        if data_type in vague or "x" in argument.type or "matrix" in argument.type:
            return
        if data_type != self._data_type(argument.scalar, argument.lanes):
            raise _disagreement(
                signature,
                f"buffer {argument.index} '{argument.name}' is {argument.type} to the parser,"
                f" type {data_type} to Metal",
            )


def _size(argument: Argument) -> int:
    if argument.scalar is None:
        return 0
    lanes = 4 if argument.lanes == 3 and not argument.type.startswith("packed_") else argument.lanes
    return _SIZES.get(argument.scalar, 4) * lanes


def _packed(scalar: str, value: bool | int | float) -> bytes:
    form = _TYPES[scalar][1]
    if form:
        return struct.pack(f"<{form}", value)
    # bfloat: the upper half of a float, rounded to even.
    bits: int = struct.unpack("<I", struct.pack("<f", value))[0]
    return struct.pack("<H", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 & 0xFFFF)


def _disagreement(signature: Signature, what: str) -> KernelCompileError:
    return KernelCompileError(
        f"kernel '{signature.name}': {what}; this is a defect of ostinato's parser", signature.file, signature.line
    )


def _failure(log: str, kernel: str | None = None) -> KernelCompileError:
    listed = [
        Diagnostic(
            error["message"], error["file"], int(error["line"]), int(error["column"]) if error["column"] else None
        )
        for error in _ERROR.finditer(log)
    ]
    if listed:
        return KernelCompileError.of(listed, log)
    what = "the kernels" if kernel is None else f"kernel '{kernel}'"
    return KernelCompileError(f"{what} could not be compiled for this device", details=log)
