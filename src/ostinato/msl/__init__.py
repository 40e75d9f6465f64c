"""The kernel front end: Metal Shading Language in, signatures and C++ out. See `parse`."""

from .cuda_entry import ParameterLayout, parameter_layout
from .cuda_target import cuda_options
from .definitions import Definition
from .layouts import Field, StructLayout
from .log_calls import LogSite
from .log_format import Logged, apply_format, conversions
from .module import Module, Translation, parse
from .reflect import Argument, FunctionConstant, SharedArgument, Signature
from .target import NATIVE, Execution

__all__ = [
    "NATIVE",
    "Argument",
    "Definition",
    "Execution",
    "Field",
    "FunctionConstant",
    "LogSite",
    "Logged",
    "Module",
    "ParameterLayout",
    "SharedArgument",
    "Signature",
    "StructLayout",
    "Translation",
    "apply_format",
    "conversions",
    "cuda_options",
    "parameter_layout",
    "parse",
]
