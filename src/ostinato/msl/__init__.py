"""The kernel front end: Metal Shading Language in, signatures and C++ out. See `parse`."""

from .module import Module, Translation, parse
from .reflect import Argument, FunctionConstant, SharedArgument, Signature

__all__ = ["Argument", "FunctionConstant", "Module", "SharedArgument", "Signature", "Translation", "parse"]
