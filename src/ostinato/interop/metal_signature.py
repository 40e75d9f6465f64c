"""The text of the kernel around the body that an MLX caller writes: its signature, template and instance.

Pure functions. A signature depends on the dtypes of the arrays, on whether an input has axes or few elements, and on
the template arguments; not on shapes. What is compiled has `#line` directives, so that a message of the compiler
points into the caller's `header` or `source`; what `verbose` prints has none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..errors import ArgumentError

TYPES = {
    "bool": "bool",
    "uint8": "uint8_t",
    "uint16": "uint16_t",
    "uint32": "uint32_t",
    "uint64": "uint64_t",
    "int8": "int8_t",
    "int16": "int16_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "float16": "float16_t",
    "float32": "float",
    "bfloat16": "bfloat16_t",
    "complex64": "complex64_t",
}
"""The type of an element in a kernel, by the name of its dtype."""

CONSTANT_BELOW = 8
"""Inputs with fewer elements are in the constant address space."""

ATTRIBUTES = {
    "dispatch_quadgroups_per_threadgroup": "uint",
    "dispatch_simdgroups_per_threadgroup": "uint",
    "dispatch_threads_per_threadgroup": "uint3",
    "grid_origin": "uint3",
    "grid_size": "uint3",
    "quadgroup_index_in_threadgroup": "uint",
    "quadgroups_per_threadgroup": "uint",
    "simdgroup_index_in_threadgroup": "uint",
    "simdgroups_per_threadgroup": "uint",
    "thread_execution_width": "uint",
    "thread_index_in_quadgroup": "uint",
    "thread_index_in_simdgroup": "uint",
    "thread_index_in_threadgroup": "uint",
    "thread_position_in_grid": "uint3",
    "thread_position_in_threadgroup": "uint3",
    "threadgroup_position_in_grid": "uint3",
    "threadgroups_per_grid": "uint3",
    "threads_per_grid": "uint3",
    "threads_per_simdgroup": "uint",
    "threads_per_threadgroup": "uint3",
}
"""Arguments that a kernel gets if its body mentions them, with their types."""

Part = Literal["array", "shape", "strides", "ndim", "output"]
TemplateArgument = tuple[str, "bool | int | np.dtype[Any]"]


@dataclass(frozen=True, slots=True)
class Source:
    """What a caller gave to `metal_kernel`."""

    name: str
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    source: str
    header: str
    atomic_outputs: bool

    def mentions(self, word: str) -> bool:
        """Whether the body contains a word, also as a part of another, which is MLX's rule."""
        return word in self.source


@dataclass(frozen=True, slots=True)
class Input:
    """What a signature needs to know about an input."""

    dtype: np.dtype[Any]
    is_scalar: bool
    """It has no axes, and is a reference."""
    is_small: bool
    """It has fewer than `CONSTANT_BELOW` elements."""


@dataclass(frozen=True, slots=True)
class Generated:
    """The text of a kernel, and what its buffers are."""

    name: str
    compiled: str
    """With directives that name the caller's texts in messages."""
    printed: str
    buffers: tuple[tuple[Part, int], ...]
    """For each buffer index: what it holds, of the input or output of that position."""


def metal_type(dtype: np.dtype[Any], argument: str) -> str:
    """The type in a kernel; `argument` names what has the dtype."""
    try:
        return TYPES[dtype.name]
    except KeyError:
        hint = "; Metal has no 64-bit floating point" if dtype in (np.float64, np.complex128) else ""
        raise ArgumentError(f"{argument}: a Metal kernel has no type for {dtype.name}{hint}") from None


def generated(
    source: Source,
    inputs: Sequence[Input],
    output_dtypes: Sequence[np.dtype[Any]],
    template: Sequence[TemplateArgument],
) -> Generated:
    """The kernel for these arrays and template arguments."""
    parameters, buffers = _parameters(source, inputs, output_dtypes)
    values = [_template_value(value) for _, value in template]
    name = _name(source, values, inputs, output_dtypes)
    listed = ", ".join(f"{_template_kind(value)} {argument}" for argument, value in template)
    opening = (f"template <{listed}>\n" if template else "") + f"[[kernel]] void {name}(\n"
    opening += ",\n".join(f"  {parameter}" for parameter in parameters) + ") {\n"
    instance = f"{name}<{', '.join(values)}>"
    closing = f'\ntemplate [[host_name("{name}")]] [[kernel]] decltype({instance}) {instance};\n' if template else ""
    called = source.name.replace("\\", "\\\\").replace('"', '\\"')
    compiled = "".join(
        (
            '#include "mlx_utils.h"\n',
            f"#line 1 \"header of '{called}'\"\n{source.header}\n",
            f"#line 1 \"signature of '{called}'\"\n{opening}",
            f"#line 1 \"source of '{called}'\"\n{source.source}\n",
            f"#line 1 \"signature of '{called}'\"\n}}\n{closing}",
        )
    )
    return Generated(name, compiled, f"{source.header}{opening}{source.source}\n}}\n{closing}", tuple(buffers))


def _parameters(
    source: Source, inputs: Sequence[Input], output_dtypes: Sequence[np.dtype[Any]]
) -> tuple[list[str], list[tuple[Part, int]]]:
    parameters: list[str] = []
    buffers: list[tuple[Part, int]] = []

    def add(declared: str, part: Part, position: int) -> None:
        parameters.append(f"{declared} [[buffer({len(buffers)})]]")
        buffers.append((part, position))

    for position, (name, given) in enumerate(zip(source.input_names, inputs, strict=True)):
        space, reference = "constant" if given.is_small else "device", "&" if given.is_scalar else "*"
        add(f"const {space} {metal_type(given.dtype, f'inputs[{position}]')}{reference} {name}", "array", position)
        if given.is_scalar:
            continue
        if source.mentions(f"{name}_shape"):
            add(f"const constant int* {name}_shape", "shape", position)
        if source.mentions(f"{name}_strides"):
            add(f"const constant int64_t* {name}_strides", "strides", position)
        if source.mentions(f"{name}_ndim"):
            add(f"const constant int& {name}_ndim", "ndim", position)
    for position, (name, dtype) in enumerate(zip(source.output_names, output_dtypes, strict=True)):
        element = metal_type(dtype, f"output_dtypes[{position}]")
        add(f"device {f'atomic<{element}>' if source.atomic_outputs else element}* {name}", "output", position)
    parameters += [f"{kind} {name} [[{name}]]" for name, kind in ATTRIBUTES.items() if source.mentions(name)]
    return parameters, buffers


def _name(
    source: Source, values: Sequence[str], inputs: Sequence[Input], output_dtypes: Sequence[np.dtype[Any]]
) -> str:
    kinds = [TYPES[given.dtype.name] + ("s" if given.is_scalar else "c" if given.is_small else "") for given in inputs]
    parts = ("custom_kernel", source.name, *values, *kinds, *(TYPES[dtype.name] for dtype in output_dtypes))
    return re.sub(r"\W", "_", "_".join(parts), flags=re.ASCII)


def _template_kind(value: bool | int | np.dtype[Any]) -> str:
    return "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "typename"


def _template_value(value: bool | int | np.dtype[Any]) -> str:
    return str(int(value)) if isinstance(value, int) else metal_type(value, "template")
