"""Errors and warnings. Every error that ostinato raises on purpose is an `OstinatoError`.

The class says what kind of error it is; the message names the kernel, the argument, the label and what was
expected. Errors that correspond to a built-in exception also inherit from it, so `except ValueError` and
`except KeyError` keep working in code that does not know this library. Warnings are for cases in which no
caller could catch an exception.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


class OstinatoError(Exception):
    """Root of every error raised by ostinato."""


# --- kernels -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One compiler message: its text, and its place in the source as far as that is known."""

    message: str
    file: str | None = None
    line: int | None = None
    column: int | None = None
    """Counted from 1; None where the compiler's column cannot be traced back to the source."""
    source_line: str | None = None
    near: tuple[tuple[str, ...], int] | None = field(default=None, repr=False, compare=False)
    """For finding the column later: the tokens there, and the index of the one that is meant."""

    def __str__(self) -> str:
        if self.file is None:
            return self.message
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        text = f"{place}: {self.message}"
        if self.source_line is None:
            return text
        number = f"{self.line:>5} | "
        text += f"\n{number}{self.source_line}"
        if self.column is not None:
            # Tabs stay tabs, so that the caret is under its token for any tab width.
            indent = "".join("\t" if letter == "\t" else " " for letter in self.source_line[: self.column - 1])
            text += f"\n{'| ':>{len(number)}}{indent}^"
        return text


class KernelCompileError(OstinatoError):
    """A kernel source was rejected, by the front end or by the compiler.

    `file`, `line` and `column` point into the user's source, `message` says what is wrong there. `diagnostics` holds
    all messages of the compiler, this one first (at most `MOST_SHOWN`; `left_out` counts the rest), and `details` the
    compiler's complete output.
    """

    MOST_SHOWN = 20

    def __init__(
        self,
        message: str,
        file: str | None = None,
        line: int | None = None,
        details: str = "",
        diagnostics: Sequence[Diagnostic] = (),
    ) -> None:
        self.message = message
        self.file = file
        self.line = line
        self.column: int | None = None
        self.details = details
        every = tuple(diagnostics) or (Diagnostic(message, file, line),)
        self.diagnostics = every[: self.MOST_SHOWN]
        self.left_out = len(every) - len(self.diagnostics)
        super().__init__(message, file, line, details, every)

    @classmethod
    def of(cls, diagnostics: Sequence[Diagnostic], details: str = "") -> KernelCompileError:
        """An error with one or more messages."""
        first = diagnostics[0]
        return cls(first.message, first.file, first.line, details, diagnostics)

    def __str__(self) -> str:
        texts = [str(diagnostic) for diagnostic in self.diagnostics]
        if self.left_out:
            texts.append(f"… and {self.left_out} more errors")
        return "\n".join(texts)


class UnsupportedFeature(KernelCompileError):
    """The source is valid Metal, but uses something that this library does not provide."""


class KernelNotFound(OstinatoError, KeyError):
    """No kernel of that name in the library or registry."""

    def __str__(self) -> str:  # KeyError would show the repr of the message
        return str(self.args[0]) if self.args else ""


class ConstantError(OstinatoError, ValueError):
    """A function constant is missing, unknown, or has a value that its type cannot hold."""


# --- encoding ----------------------------------------------------------------------------------------------


class ArgumentError(OstinatoError, ValueError):
    """An argument of a dispatch, copy or fill has the wrong count, kind, dtype, size, offset or alignment."""


class GeometryError(OstinatoError, ValueError):
    """The threads, groups or group size of a dispatch are invalid."""


class LabelError(OstinatoError, ValueError):
    """A label is empty or not a string."""


class EncoderError(OstinatoError, RuntimeError):
    """An encoder was used after commit, committed twice, or used by two threads at once."""


class GraphError(OstinatoError, ValueError):
    """An operation on a graph is not possible: an unknown or missing parameter, a name used twice, no device."""


class GraphChanged(GraphError):
    """Binding other buffers would change the dependencies between dispatches.

    `rebuild=True` allows that where the order is inferred and no pass has relied on the previous order.
    """


class GraphFileError(GraphError):
    """A graph file is damaged, too large, or of a newer version."""


# --- use ---------------------------------------------------------------------------------------------------


class UsageError(OstinatoError, TypeError):
    """An object was used in an unsupported way (called, assigned to); the message names the call to make."""


class UnknownAttribute(OstinatoError, AttributeError):
    """An object has no attribute of that name; the message says what to use instead."""


# --- buffers -----------------------------------------------------------------------------------------------


class BufferAccessError(OstinatoError, ValueError):
    """Root of the errors about a buffer itself."""


class ViewError(BufferAccessError, IndexError):
    """A view would lie outside its parent, be misaligned, or split an element."""


class FreedBuffer(BufferAccessError):
    """The buffer, or the buffer it is a view of, was freed or returned to its pool."""


class FaultedBuffer(BufferAccessError):
    """The contents of the buffer are undefined because of a fault, which is the `cause`.

    Overwrite all of it (`write`, `fill`, `copy`), or accept the contents with `Buffer.accept()`.
    """

    def __init__(self, message: str, cause: KernelFault) -> None:
        self.cause = cause
        super().__init__(message)
        self.__cause__ = cause


class WrongDevice(BufferAccessError):
    """The buffer or kernel belongs to another device."""


class PoolError(BufferAccessError):
    """A buffer was returned to a pool that does not own it."""


# --- devices -----------------------------------------------------------------------------------------------


class DeviceError(OstinatoError, RuntimeError):
    """Root of the errors about a device as a whole."""


class DeviceUnavailable(DeviceError):
    """No device of that name, or none that passed its probe."""


class OutOfMemory(DeviceError, MemoryError):
    """The device does not have that much memory."""


class CopyError(DeviceError, TypeError):
    """Something that belongs to a device was copied (`copy`, `deepcopy`) or pickled."""


class DeviceClosed(DeviceError):
    """The device was closed."""


class ForkedDevice(DeviceError):
    """A forked child used a device of its parent, or an object of such a device."""


class DeviceLost(DeviceError):
    """The device can no longer run anything; `cause` is the error that lost it."""

    def __init__(self, message: str, cause: OstinatoError | None = None) -> None:
        self.cause = cause
        super().__init__(message)
        self.__cause__ = cause


class DependencyFailed(DeviceError):
    """A submission has no results because of an earlier fault, which is its `cause`.

    It used contents that the fault left undefined, or the driver rejected it after the fault.
    """

    def __init__(self, message: str, cause: KernelFault | None) -> None:
        self.cause = cause
        super().__init__(message)
        self.__cause__ = cause


class KernelFault(DeviceError):
    """A kernel crashed on the device (an invalid access, an integer division by zero, ...).

    `thread` is the grid position of the thread that crashed, where the device knows it.
    """

    def __init__(
        self,
        message: str,
        kernel: str | None = None,
        label: str | None = None,
        signal: int | None = None,
        address: int | None = None,
        thread: tuple[int, int, int] | None = None,
    ) -> None:
        self.thread = thread
        # Shared by all copies: whether this error, or an error with it as the cause, was raised in the program.
        self._told = [False]
        self.kernel = kernel
        self.label = label
        self.signal = signal
        self.address = address
        super().__init__(message)

    def note_told(self) -> None:
        """Record that the fault was reported to the program."""
        self._told[0] = True

    @property
    def told(self) -> bool:
        """Whether the fault was reported to the program, by this error or by an error with it as the cause."""
        return self._told[0]

    def to_cite(self) -> KernelFault:
        """A copy without traceback, to be kept as a cause without keeping frames and buffers alive."""
        cited = KernelFault(str(self), self.kernel, self.label, self.signal, self.address, self.thread)
        cited._told = self._told
        return cited


# --- recordings --------------------------------------------------------------------------------------------


class RecordingError(OstinatoError, ValueError):
    """A recording cannot be written, read or merged: damaged, too large, too new, not a recording, not writable."""


class ComparisonError(OstinatoError, ValueError):
    """Two programs or recordings cannot be compared: one failed, recorded nothing, or ran on another device."""


# --- tuning ------------------------------------------------------------------------------------------------


class TuningError(OstinatoError, ValueError):
    """Nothing can be tuned (no choices, an oracle that differs from itself), or a file of tuned choices is damaged."""


# --- models ------------------------------------------------------------------------------------------------


class MissingPackage(OstinatoError, ImportError):
    """An optional package that this call needs is not installed."""


class ModelError(OstinatoError, ValueError):
    """A model cannot be loaded: a damaged file, a missing or wrong tensor, an unsupported configuration."""


class TensorNotFound(ModelError, KeyError):
    """No tensor of that name in these weights."""

    def __str__(self) -> str:  # KeyError would show the repr of the message
        return str(self.args[0]) if self.args else ""


# --- the machine -------------------------------------------------------------------------------------------


class ToolchainError(OstinatoError, RuntimeError):
    """The C++ compiler is missing, unsuitable, or failed for a reason outside the kernel."""


class CacheError(OstinatoError, OSError):
    """The cache folder cannot be used: not private, not a folder, not writable."""


class SettingError(OstinatoError, ValueError):
    """An environment variable has an invalid value."""


# --- warnings ----------------------------------------------------------------------------------------------


class OstinatoWarning(UserWarning):
    """Root of every warning issued by ostinato."""


class SettingWarning(OstinatoWarning):
    """An `OSTINATO_*` variable is unknown, or the device does not support the setting."""


class RecordingWarning(OstinatoWarning):
    """A recording that was closed at exit is not complete."""


class SamplingWarning(OstinatoWarning):
    """A profile asks for times that the device cannot measure."""


class UncommittedWork(OstinatoWarning):
    """An encoder was dropped with uncommitted work; none of it ran."""


class UnobservedError(OstinatoWarning):
    """A submission failed and its error was never raised."""
