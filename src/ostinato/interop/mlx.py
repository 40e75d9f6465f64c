"""`mlx.core.fast.metal_kernel` where there is no Metal.

    from ostinato.interop.mlx import metal_kernel

    kernel = metal_kernel(name="myexp", input_names=["inp"], output_names=["out"], source=source)
    outputs = kernel(inputs=[a], template=[("T", a.dtype)], grid=(a.size, 1, 1), threadgroup=(256, 1, 1),
                     output_shapes=[a.shape], output_dtypes=[a.dtype])

The arguments mean what they mean in MLX, whose documentation is the reference; docs/interop.md says what differs.
Inputs are arrays of MLX, NumPy, torch or CuPy, and results are of the same library. `install()` puts this function in
the place of MLX's own, so that packages that use it run as they are. MLX itself is needed only for its arrays and for
`install`.
"""

from __future__ import annotations

import functools
import math
import operator
import re
import reprlib
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ..device import Device
from ..errors import ArgumentError, GeometryError, MissingPackage, OstinatoError, OstinatoWarning
from ..runtime.library import Kernel
from . import arrays
from .installing import Installation, Replacement, undo_all, warn_of_holders
from .launches import Call, Extent, Prepared, is_small, run_once
from .metal_signature import CONSTANT_BELOW, Generated, Input, Source, TemplateArgument, generated
from .mlx_pretence import is_gpu
from .mlx_pretence import replacements as pretended
from .mlx_tracing import NoDerivative, is_traced, traced_call

_INCLUDE = Path(__file__).parent / "include"
_MATH_MODES = ("safe", "relaxed", "fast")
_MOST_PLANS = 256
"""Combinations of shapes, dtypes and options that a kernel remembers."""


def metal_kernel(
    name: str,
    input_names: Sequence[str],
    output_names: Sequence[str],
    source: str,
    header: str = "",
    ensure_row_contiguous: bool = True,
    atomic_outputs: bool = False,
    compile_options: object | None = None,
) -> MetalKernel:
    """A kernel from the body of a Metal function, with the arguments of `mlx.core.fast.metal_kernel`.

    The signature is generated from the arrays of each call: `const device T* x` (`const constant` with fewer than 8
    elements, a reference without axes), `x_shape`, `x_strides` and `x_ndim` and the attributes of threads as far as
    `source` mentions them, `device T* y` for outputs. `compile_options` may set "math_mode"; all modes are computed
    as "safe" here, and "fast" defines `__FAST_MATH__`.
    """
    math_mode = _math_mode(compile_options)
    names = _names("input_names", input_names), _names("output_names", output_names)
    if not names[1]:
        raise ArgumentError("output_names: a kernel needs at least one output")
    for argument, text in (("name", name), ("source", source), ("header", header)):
        if not isinstance(text, str):
            raise ArgumentError(f"{argument}: expected a str, got {type(text).__name__}")
    if not re.fullmatch(r"\w+", name, re.ASCII):
        warnings.warn(
            f"name: {name!r} cannot be part of a function's name in Metal, so MLX would not compile it on a Mac; use"
            " letters, digits and _",
            OstinatoWarning,
            stacklevel=2,
        )
    return MetalKernel(
        Source(name, *names, source, header, bool(atomic_outputs)), bool(ensure_row_contiguous), math_mode
    )


@dataclass(frozen=True, slots=True)
class _Plan:
    """All that calls with the same shapes, dtypes and options have in common."""

    where: arrays.Place
    device: Device
    kernel: Kernel
    generated: Generated
    call: Call
    is_small: bool
    idle: list[Prepared]
    """Prepared calls that no thread uses at the moment."""


class MetalKernel:
    """A kernel that is called with arrays, as the object that `mlx.core.fast.metal_kernel` returns."""

    def __init__(self, source: Source, ensure_row_contiguous: bool, math_mode: str) -> None:
        self._source = source
        self._ensure_row_contiguous = ensure_row_contiguous
        self._defines = {"__FAST_MATH__": 1} if math_mode == "fast" else {}
        self._results: str | None = None
        self._kernels: dict[tuple[Any, ...], tuple[Kernel, Generated]] = {}
        self._plans: dict[tuple[Any, ...], _Plan] = {}

    def __call__(
        self,
        *,
        inputs: Sequence[Any],
        output_shapes: Sequence[Sequence[int]],
        output_dtypes: Sequence[Any],
        grid: tuple[int, int, int],
        threadgroup: tuple[int, int, int],
        template: Sequence[tuple[str, Any]] | None = None,
        init_value: float | None = None,
        verbose: bool = False,
        stream: Any = None,
    ) -> list[Any]:
        """Run the kernel and return its outputs.

        `grid` counts threads, in groups of `threadgroup`. Outputs have the shapes and dtypes that are given, and start
        as `init_value`, or as zeros. `verbose` prints the generated source.
        """
        if stream is not None:
            _check_stream(stream)
        options = (output_shapes, output_dtypes, grid, threadgroup, template, init_value)
        if not isinstance(inputs, list | tuple):
            raise ArgumentError(f"inputs: expected a list of arrays and numbers, got {reprlib.repr(inputs)}")
        if template is not None and not isinstance(template, list | tuple):
            raise ArgumentError(f"template: expected a list of pairs, got {reprlib.repr(template)}")
        kinds = [arrays.library(value) for value in inputs]
        kind = self._results or _kind(kinds, output_dtypes)
        if "mlx" in kinds:
            given = [value for value, library in zip(inputs, kinds, strict=True) if library == "mlx"]
            if is_traced(given):

                def run(values: Sequence[Any]) -> list[Any]:
                    rest = iter(values)
                    whole = [next(rest) if arrays.library(value) == "mlx" else value for value in inputs]
                    return self._run(whole, kind, options, verbose)

                return traced_call(self._source.name, given, run)
        if "torch" in kinds:
            _refuse_gradients(self._source.name, inputs)
        return self._run(inputs, kind, options, verbose)

    def _run(self, inputs: Sequence[Any], kind: str, options: tuple[Any, ...], verbose: bool) -> list[Any]:
        taken = [_taken(position, value) for position, value in enumerate(inputs)]
        is_strided = not self._ensure_row_contiguous and not all(map(arrays.is_contiguous, taken))
        plan = self._plan(taken, options)
        if verbose:
            print(f"Generated source code for `{self._source.name}`:\n```\n{plan.generated.printed}\n```")
        try:
            if not plan.is_small or is_strided:
                return run_once(plan.device, plan.kernel, plan.generated, taken, plan.call, kind, is_strided)
            try:
                prepared = plan.idle.pop()
            except IndexError:
                prepared = Prepared(plan.device, plan.kernel, plan.generated, taken, plan.call)
            prepared(taken)
            results = [arrays.copied(kind, window) for window in prepared.outputs]
        except GeometryError as error:
            asked = f"grid={plan.call.grid}, threadgroup={plan.call.threadgroup}"
            raise GeometryError(f"metal_kernel {self._source.name!r}, {asked}: {error}") from error
        plan.idle.append(prepared)
        return results

    def _plan(self, taken: Sequence[Any], options: tuple[Any, ...]) -> _Plan:
        try:
            key = _plan_key(taken, options)
            plan = self._plans.get(key)
        except (TypeError, ValueError):  # something is not even of the right kind, and is named below
            return self._planned(taken, options)
        if plan is None or plan.device is not arrays.device_at(plan.where):
            plan = self._planned(taken, options)
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            self._plans[key] = plan
        return plan

    def _planned(self, taken: Sequence[Any], options: tuple[Any, ...]) -> _Plan:
        source = self._source
        if len(taken) != len(source.input_names):
            raise ArgumentError(f"inputs: expected {len(source.input_names)}, got {len(taken)}")
        call, template = _checked(source, options)
        where = arrays.common_place(value for value in taken if not _is_number(value))
        device = arrays.device_at(where)
        inputs = [
            Input(arrays.dtype(value), not value.shape, math.prod(value.shape) < CONSTANT_BELOW) for value in taken
        ]
        key = (device, *inputs, *call.output_dtypes, *((name, type(value), value) for name, value in template))
        if key not in self._kernels:
            text = generated(source, inputs, call.output_dtypes, template)
            library = device.library(text.compiled, include_dirs=[_INCLUDE], defines=self._defines)
            if len(self._kernels) >= _MOST_PLANS:
                self._kernels.clear()
            self._kernels[key] = (library[text.name], text)
        kernel, text = self._kernels[key]
        small = device.name == "cpu" and not call.is_empty and is_small(taken, call)
        return _Plan(where, device, kernel, text, call, small, [])

    def __repr__(self) -> str:
        source = self._source
        return f"<MetalKernel {source.name}({', '.join(source.input_names)}) -> {', '.join(source.output_names)}>"


def _plan_key(taken: Sequence[Any], options: tuple[Any, ...]) -> tuple[Any, ...]:
    """Equal only for calls of one plan."""
    shapes, dtypes, grid, threadgroup, template, init_value = options
    return (
        tuple([_input_key(value) for value in taken]),
        tuple(map(tuple, shapes)),
        tuple(dtypes),
        tuple(grid),
        tuple(threadgroup),
        # With types: 1 and True are equal, but mean different kernels.
        tuple([(name, type(value), value) for name, value in template]) if template else None,
        None if init_value is None else repr(init_value),
    )


def _input_key(value: Any) -> tuple[Any, ...]:
    if type(value) is np.ndarray:
        return value.dtype, value.shape
    return value.dtype, tuple(value.shape), arrays.place(value)


def _kind(kinds: Sequence[str | None], output_dtypes: Any) -> str:
    """The library of the results: that of the inputs, and without arrays among them, that of the dtypes."""
    for library in ("mlx", "torch", "cupy", "numpy"):
        if library in kinds:
            return library
    try:
        named = {type(dtype).__module__.partition(".")[0] for dtype in output_dtypes}
    except TypeError:
        return "numpy"
    return next((library for library in ("mlx", "torch") if library in named), "numpy")


_NUMBERS: dict[type, Any] = {bool: np.bool_, float: np.float32, complex: np.complex64}


def _is_number(value: Any) -> bool:
    return isinstance(value, np.ndarray) and not value.shape


def _taken(position: int, value: Any) -> Any:
    """An input as a NumPy array, in the host's memory, or as it is, elsewhere. Dtypes become what MLX makes of them."""
    library = arrays.library(value)
    if library is None:
        return _number(position, value)
    try:
        if arrays.place(value) != arrays.HOST:
            return value
        array = arrays.host_array(value)
    except (OstinatoError, TypeError) as error:  # torch raises a TypeError for a dtype that NumPy does not have
        raise ArgumentError(f"inputs[{position}]: {error}") from error
    if array.dtype == np.float64 and library != "mlx":
        return array.astype(np.float32)
    return array.astype(np.complex64) if array.dtype == np.complex128 else array


def _number(position: int, value: Any) -> np.ndarray:
    kind = type(value)
    if kind in _NUMBERS:
        return np.array(value, _NUMBERS[kind])
    if kind is int and -(2**63) <= value < 2**63:
        return np.array(value, np.int32 if -(2**31) <= value < 2**31 else np.int64)
    raise ArgumentError(
        f"inputs[{position}]: expected an array of MLX, NumPy, torch or CuPy, or a number, got {reprlib.repr(value)}"
    )


def _checked(source: Source, options: tuple[Any, ...]) -> tuple[Call, tuple[TemplateArgument, ...]]:
    """The options of a call, or an error that names the one that is wrong."""
    shapes, dtypes, grid, threadgroup, template, init_value = options
    outputs = len(source.output_names)
    for name, given in (("output_shapes", shapes), ("output_dtypes", dtypes)):
        if not isinstance(given, list | tuple) or len(given) != outputs:
            raise ArgumentError(
                f"{name}: expected a list of {outputs}, one for each of {', '.join(source.output_names)},"
                f" got {reprlib.repr(given)}"
            )
    if init_value is not None and not isinstance(init_value, int | float | np.number | np.bool_):
        raise ArgumentError(f"init_value: expected a number, got {init_value!r}")
    call = Call(
        tuple(_extents(f"output_shapes[{position}]", shape) for position, shape in enumerate(shapes)),
        tuple(_dtype(f"output_dtypes[{position}]", dtype) for position, dtype in enumerate(dtypes)),
        _three("grid", grid, least=0),
        _three("threadgroup", threadgroup, least=1),
        None if init_value is None else float(init_value),
    )
    return call, tuple(_template_argument(argument) for argument in template or ())


def _extents(name: str, given: Any) -> tuple[int, ...]:
    try:
        extents = tuple(operator.index(extent) for extent in given)
    except TypeError:
        raise ArgumentError(f"{name}: expected a sequence of integers, got {given!r}") from None
    if min(extents, default=0) < 0:
        raise ArgumentError(f"{name}: {extents} has a negative extent")
    return extents


def _three(name: str, given: Any, least: int) -> Extent:
    extents = _extents(name, given)
    if len(extents) != 3 or min(extents) < least:
        raise ArgumentError(f"{name}: expected three integers of at least {least}, got {given!r}")
    return extents


def _dtype(name: str, given: Any) -> np.dtype[Any]:
    try:
        return arrays.numpy_dtype(given)
    except ArgumentError as error:
        raise ArgumentError(f"{name}: {error}") from None


def _template_argument(argument: Any) -> TemplateArgument:
    try:
        name, value = argument
    except (TypeError, ValueError):
        raise ArgumentError(f"template: expected pairs of a name and a value, got {argument!r}") from None
    if not isinstance(name, str) or not name.isidentifier():
        raise ArgumentError(f"template: {name!r} is not the name of a template argument")
    if isinstance(value, bool):
        return name, value
    if isinstance(value, int):
        if not -(2**31) <= value < 2**31:
            raise ArgumentError(f"template: {name}={value} is not a 32-bit integer")
        return name, value
    if isinstance(value, np.dtype) or type(value).__name__ in ("Dtype", "dtype") or isinstance(value, type):
        return name, _dtype(f"template: {name}", value)
    raise ArgumentError(f"template: {name}={value!r} is neither a dtype nor an int nor a bool")


def _names(argument: str, given: Any) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ArgumentError(f"{argument}: expected a list of names, got {given!r}")
    for name in given:
        if not isinstance(name, str) or not name.isidentifier():
            raise ArgumentError(f"{argument}: {name!r} is not a name that an argument can have in Metal")
    return tuple(given)


def _math_mode(options: object) -> str:
    """The mode that `compile_options` asks for."""
    if options is None:
        return "safe"
    if not isinstance(options, Mapping):
        raise ArgumentError(f"compile_options: expected a dict, got {options!r}")
    unknown = [name for name in options if name != "math_mode"]
    if unknown:
        raise ArgumentError(f"compile_options: {unknown[0]!r} is unknown; there is 'math_mode'")
    mode = options.get("math_mode", "safe")
    if mode not in _MATH_MODES:
        raise ArgumentError(f"compile_options: math_mode={mode!r}; expected one of {', '.join(_MATH_MODES)}")
    return str(mode)


def _check_stream(stream: Any) -> None:
    """MLX accepts streams of the GPU only; so do we, where there is one or MLX says that there is."""
    core = sys.modules.get("mlx.core")
    if core is None or not is_gpu(core, stream):
        raise ArgumentError(f"stream: Only supports the GPU, and {stream!r} is of another device; leave it out")
    if not (core.metal.is_available() or core.cuda.is_available()):
        raise ArgumentError(
            f"stream: there is no GPU for {stream!r}; leave it out, or let install(pretend_metal=True) accept it"
        )


def _refuse_gradients(name: str, inputs: Sequence[Any]) -> None:
    """A result that knows nothing of its inputs would have a gradient of zero."""
    torch = sys.modules["torch"]
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    forward = torch.autograd.forward_ad
    is_dual = getattr(forward, "_current_level", -1) >= 0 and any(
        forward.unpack_dual(tensor).tangent is not None for tensor in tensors
    )
    if is_dual or (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)):
        raise NoDerivative(
            f"metal_kernel {name!r}: a tensor requires a gradient, and the kernel has none; call it under"
            " torch.no_grad(), or inside of a torch.autograd.Function with a backward (jvp in forward mode)"
        )


# --- in the place of MLX's own ---------------------------------------------------------------------------------


def install(*, pretend_metal: bool = False) -> Installation:
    """Put `metal_kernel` in the place of `mlx.core.fast.metal_kernel`, until `uninstall()`.

    As a context manager it does so for a block: `with install(): …`. With `pretend_metal` MLX also answers as if there
    were a GPU, because packages ask before they make a kernel: `mx.metal.is_available()` is True, `mx.default_device()`
    is the GPU, kernels accept `stream=mx.gpu`; docs/interop.md lists it all. Where there is Metal, MLX stays as it is,
    so that a test suite can call this on every machine. Warns of modules that took MLX's function, or made a kernel
    with it, before.
    """
    core = _mlx()
    original = core.fast.metal_kernel
    if core.metal.is_available() and original is not _metal_kernel_of_mlx:
        return Installation("mlx", [])
    replacements: list[Replacement] = [(core.fast, "metal_kernel", _metal_kernel_of_mlx)]
    if pretend_metal:
        replacements += pretended(core)
    installation = Installation("mlx", replacements)
    if original is not _metal_kernel_of_mlx:
        warn_of_holders(lambda value: value is original or _is_kernel_of(original, value), "mlx", "metal_kernel of MLX")
    return installation


def _is_kernel_of(original: Any, value: object) -> bool:
    """Whether it is a kernel that MLX's own function made: a function of the same extension, without a name."""
    return type(value) is type(original) and (value.__doc__ or "").startswith("__call__(self, *, inputs:")


def uninstall() -> None:
    """Give MLX back what `install` replaced. Kernels that were made meanwhile keep working."""
    undo_all("mlx")


@functools.wraps(metal_kernel)
def _metal_kernel_of_mlx(*arguments: Any, **options: Any) -> MetalKernel:
    made = metal_kernel(*arguments, **options)
    made._results = "mlx"
    return made


def _mlx() -> Any:
    try:
        return import_module("mlx.core")
    except ImportError as error:
        raise MissingPackage(
            f"install: MLX is not there ({error}); pip install 'mlx[cpu]' on Linux, mlx on a Mac"
        ) from None
