"""What tests of ggml's Metal kernels share: its tensors as NumPy arrays, the arguments of kernels, quantised blocks.

A tensor is an array whose last axis is ggml's first. It may be a view that begins where its memory begins: the kernel
gets the memory and the strides.
"""

from __future__ import annotations

from typing import Any

import gguf
import ml_dtypes
import numpy as np

import ostinato as ost
from checkouts import Checkouts
from launching import launch

FOLDER = "ggml/src"
F16, F32, I32, BF16 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.int32), np.dtype(ml_dtypes.bfloat16)
TYPES = {"f32": F32, "f16": F16, "bf16": BF16, "i32": I32}

SCALES = {
    **dict.fromkeys(("q4_0", "q5_0", "q8_0", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq1_s"), (0,)),
    **dict.fromkeys(("iq4_nl", "iq4_xs"), (0,)),
    **dict.fromkeys(("q4_1", "q5_1", "q4_K", "q5_K"), (0, 2)),
    "q2_K": (80, 82),
    "q3_K": (108,),
    "q6_K": (208,),
    "tq2_0": (64,),
    "mxfp4": (),
}
"""Formats, and where in a block are half-precision numbers. All other bits of a block may be anything."""


def kernel(checkouts: Checkouts, name: str, family: str = "", **constants: int) -> ost.Kernel:
    """A kernel with function constants, whose names begin with that of their family."""
    return checkouts.library(
        "llama.cpp",
        f"{FOLDER}/ggml-metal/ggml-metal.metal",
        include=(FOLDER, f"{FOLDER}/ggml-metal"),
        defines={"GGML_METAL_HAS_BF16": 1},
        constants={f"{family}_{constant}": value for constant, value in constants.items()},
    )[name]


def extents(name: str, tensor: np.ndarray) -> dict[str, Any]:
    """Its sizes and strides in bytes, as the fields of argument structs are called."""
    sizes, strides = list(tensor.shape[::-1]), list(tensor.strides[::-1])
    while len(sizes) < 4:
        strides.append(sizes[-1] * strides[-1])
        sizes.append(1)
    return {f"ne{name}{i}": size for i, size in enumerate(sizes)} | {f"nb{name}{i}": s for i, s in enumerate(strides)}


def memory(tensor: np.ndarray) -> np.ndarray:
    """The bytes of the array that it is, or is a view of."""
    owner = tensor if tensor.base is None else np.asarray(tensor.base)
    return owner.reshape(-1).view(np.uint8)


def fields(kernel: ost.Kernel, *sources: np.ndarray, out: np.ndarray, **arguments: Any) -> dict[str, Any]:
    """The struct of arguments of a kernel: `arguments`, and the sizes and strides of the sources and of the result."""
    known = extents("", out)
    for number, source in enumerate(sources):
        known |= extents(str(number), source)
    known |= arguments
    return {name: known[name] for name in kernel.dtype(0).names or ()}


def run(
    dev: ost.Device,
    kernel: ost.Kernel,
    *sources: np.ndarray,
    out: np.ndarray,
    arguments: dict[str, Any] | None = None,
    behind: tuple[np.ndarray, ...] = (),
    **geometry: Any,
) -> Any:
    """The result of a kernel. It gets its `fields`, its sources, memory for its result, and what is bound behind."""
    struct = fields(kernel, *sources, out=out, **(arguments or {}))
    got = launch(dev, kernel, struct, *map(memory, (*sources, out, *behind)), **geometry)
    return got.view(out.dtype).reshape(out.shape)


def block_size(name: str) -> int:
    """How many values a block of a format holds."""
    return int(gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name.upper()]][0])


def quantised(numbers: np.random.Generator, name: str, *shape: int) -> tuple[np.ndarray, np.ndarray]:
    """Random blocks of a format as elements of the last axis, and the values of this shape that they stand for."""
    kind = gguf.GGMLQuantizationType[name.upper()]
    size, nbytes = gguf.GGML_QUANT_SIZES[kind]
    blocks = numbers.integers(0, 256, (*shape[:-1], shape[-1] // size, nbytes), np.uint8)
    for offset in SCALES[name]:
        scales = numbers.uniform(0.02, 0.06, blocks.shape[:-1]) * numbers.choice((-1, 1), blocks.shape[:-1])
        blocks[..., offset : offset + 2] = scales.astype(np.float16)[..., None].view(np.uint8)
    if name == "mxfp4":
        blocks[..., 0] = numbers.integers(120, 130, blocks.shape[:-1])  # an exponent: the whole range overflows
    packed = blocks.view(f"V{nbytes}")[..., 0].copy()
    return packed, dequantised(packed, name)


def dequantised(packed: np.ndarray, name: str) -> np.ndarray:
    """What blocks of a format stand for."""
    return np.asarray(gguf.dequantize(packed.view(np.uint8), gguf.GGMLQuantizationType[name.upper()]))


def matrix(numbers: np.random.Generator, name: str, *shape: int) -> tuple[np.ndarray, np.ndarray]:
    """Random weights of a type or in a format, and their values."""
    if name in SCALES:
        return quantised(numbers, name, *shape)
    weights = random(numbers, *shape, dtype=TYPES[name])
    return weights, weights.astype(F32)


def random(numbers: np.random.Generator, *shape: int, dtype: np.dtype = F32) -> np.ndarray:
    return numbers.standard_normal(shape).astype(dtype)


def assert_near(got: np.ndarray, expected: np.ndarray, bound: np.ndarray | float, relative: float) -> None:
    """The error of each element is at most a part of its bound, such as the sum of the magnitudes of its terms."""
    errors = np.abs(np.asarray(got, np.float64) - expected) / bound
    assert got.shape == expected.shape
    assert errors.max() <= relative, f"error of {errors.max():.3g} at {np.unravel_index(errors.argmax(), errors.shape)}"
