"""Errors that are ours and torch's: what catches torch's own error catches the one in its place."""

from __future__ import annotations

import torch

from ..errors import ArgumentError, DeviceError, GeometryError, KernelCompileError, UnknownAttribute, WrongDevice


class ShaderSyntaxError(KernelCompileError, SyntaxError):
    """A source was rejected."""


class MissingKernel(UnknownAttribute, RuntimeError):
    """A library has no kernel of that name."""


class CallError(ArgumentError, RuntimeError):
    """An argument of a call is not one that the kernel can take."""


class GridError(GeometryError, RuntimeError):
    """The threads or the group size of a call are missing or invalid."""


class MixedDevices(WrongDevice, RuntimeError):
    """The tensors of a call are on several devices."""


class ReportedError(DeviceError, torch.AcceleratorError):  # type: ignore[misc]
    """A kernel called TORCH_REPORT_ERROR."""
