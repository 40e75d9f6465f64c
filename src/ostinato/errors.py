"""The one error tree: everything ostinato raises on purpose is an `OstinatoError`.

Each class says *what kind* of thing went wrong; the message names the kernel, the argument, the label and
what was expected. Errors that describe the same mistake as a built-in exception also inherit from it, so
`except ValueError` and `except KeyError` keep working in code that does not know this library.
Warnings live here too, for the two cases where nobody is left to catch an exception.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


class OstinatoError(Exception):
    """Root of every error raised by ostinato."""


# --- kernels -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One message about a source: where it is, as far as that is certain, and the line it is about."""

    message: str
    file: str | None = None
    line: int | None = None
    column: int | None = None
    """Counted from 1; None where the compiler's column cannot be followed back to the source."""
    source_line: str | None = None
    near: tuple[tuple[str, ...], int] | None = field(default=None, repr=False, compare=False)
    """For whoever finds the column: the tokens there, and which of them is meant."""

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
            # Tabs stay tabs, so that the caret stands under its token however wide they are.
            indent = "".join("\t" if letter == "\t" else " " for letter in self.source_line[: self.column - 1])
            text += f"\n{'| ':>{len(number)}}{indent}^"
        return text


class KernelCompileError(OstinatoError):
    """A kernel source was refused, by the front end or by the compiler.

    `file`, `line` and `column` point into the user's source, `message` says what is wrong there. `diagnostics` has all
    messages of the compiler (`MOST_SHOWN` at most; `left_out` counts the rest), this one first, and `details` the
    compiler's whole text.
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
        """An error with several messages, of which there is at least one."""
        first = diagnostics[0]
        return cls(first.message, first.file, first.line, details, diagnostics)

    def __str__(self) -> str:
        texts = [str(one) for one in self.diagnostics]
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
    """The threads, groups or group size of a dispatch cannot be run."""


class LabelError(OstinatoError, ValueError):
    """A label is empty or not a string."""


class EncoderError(OstinatoError, RuntimeError):
    """An encoder was used after commit, committed twice, or used by two threads at once."""


class GraphError(OstinatoError, ValueError):
    """A graph cannot be what is asked of it: an unknown or missing parameter, a name taken twice, no device."""


class GraphChanged(GraphError):
    """Binding other buffers would change which dispatches must wait for which.

    `rebuild=True` allows it where the order is inferred, and no pass has relied on the order that there was.
    """


class GraphFileError(GraphError):
    """A graph file is damaged, too large, or of a newer version."""


# --- use ---------------------------------------------------------------------------------------------------


class UsageError(OstinatoError, TypeError):
    """An object was used in a way it does not support (called, assigned to); the message names the call to make."""


class UnknownAttribute(OstinatoError, AttributeError):
    """An object has no attribute of that name; the message says where the thing meant is found."""


# --- buffers -----------------------------------------------------------------------------------------------


class BufferAccessError(OstinatoError, ValueError):
    """Root of the errors about a buffer itself."""


class ViewError(BufferAccessError, IndexError):
    """A view would lie outside its parent, be misaligned, or cut its elements."""


class FreedBuffer(BufferAccessError):
    """The buffer, or the buffer it is a view of, was freed or given back to its pool."""


class FaultedBuffer(BufferAccessError):
    """The contents of the buffer were left behind by a fault; `cause` is that fault.

    Write all of it (`write`, `fill`, `copy`), or say with `Buffer.accept()` that they are wanted as they are.
    """

    def __init__(self, message: str, cause: KernelFault) -> None:
        self.cause = cause
        super().__init__(message)
        self.__cause__ = cause


class WrongDevice(BufferAccessError):
    """The buffer or kernel belongs to another device."""


class PoolError(BufferAccessError):
    """A buffer was given back to a pool that does not own it."""


# --- devices -----------------------------------------------------------------------------------------------


class DeviceError(OstinatoError, RuntimeError):
    """Root of the errors about a device as a whole."""


class DeviceUnavailable(DeviceError):
    """No device of that name, or none that passed its probe."""


class OutOfMemory(DeviceError, MemoryError):
    """The device has not that much memory."""


class CopyError(DeviceError, TypeError):
    """Something that belongs to a device was copied (`copy`, `deepcopy`) or pickled."""


class DeviceClosed(DeviceError):
    """The device was closed."""


class ForkedDevice(DeviceError):
    """A forked child used a device, or something made by a device, of its parent."""


class DeviceLost(DeviceError):
    """The device cannot run anything more; `cause` is the error that took it down."""

    def __init__(self, message: str, cause: OstinatoError | None = None) -> None:
        self.cause = cause
        super().__init__(message)
        self.__cause__ = cause


class DependencyFailed(DeviceError):
    """A submission has no results because of an earlier fault, which is its `cause`.

    It used bytes that the fault left behind, or the driver refused it after the fault.
    """

    def __init__(self, message: str, cause: KernelFault | None) -> None:
        self.cause = cause
        super().__init__(message)
        self.__cause__ = cause


class KernelFault(DeviceError):
    """A kernel crashed on the device (a wild access, an integer division by zero, ...).

    `thread` is the position in the grid of the thread at fault, where the device knows it.
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
        # Whether the program was told of it, by it or by an error that cites it; all copies share it.
        self._told = [False]
        self.kernel = kernel
        self.label = label
        self.signal = signal
        self.address = address
        super().__init__(message)

    def note_told(self) -> None:
        """The program knows of it from now on."""
        self._told[0] = True

    @property
    def told(self) -> bool:
        """Whether the program was told of it, by it or by an error that cites it."""
        return self._told[0]

    def to_cite(self) -> KernelFault:
        """A copy that no traceback hangs on, so that whoever keeps it for citing keeps no frames and buffers alive."""
        cited = KernelFault(str(self), self.kernel, self.label, self.signal, self.address, self.thread)
        cited._told = self._told
        return cited


# --- recordings --------------------------------------------------------------------------------------------


class RecordingError(OstinatoError, ValueError):
    """A recording cannot be written, read or merged: damaged, too large, newer, not a recording, no place to put it."""


# --- models ------------------------------------------------------------------------------------------------


class MissingPackage(OstinatoError, ImportError):
    """A package that is not installed, and that only the call needs which was made."""


class ModelError(OstinatoError, ValueError):
    """A model cannot be read or made: a damaged file, a missing or wrong tensor, a configuration nobody can run."""


class TensorNotFound(ModelError, KeyError):
    """No tensor of that name in these weights."""

    def __str__(self) -> str:  # KeyError would show the repr of the message
        return str(self.args[0]) if self.args else ""


# --- the machine -------------------------------------------------------------------------------------------


class ToolchainError(OstinatoError, RuntimeError):
    """The C++ compiler is missing, unfit, or failed for a reason that is not in the kernel."""


class CacheError(OstinatoError, OSError):
    """The cache folder cannot be used: not private, not a folder, not writable."""


class SettingError(OstinatoError, ValueError):
    """An environment gate holds a value that it does not understand."""


# --- warnings ----------------------------------------------------------------------------------------------


class OstinatoWarning(UserWarning):
    """Root of every warning issued by ostinato."""


class SettingWarning(OstinatoWarning):
    """An `OSTINATO_*` name is unknown, or a gate is set that the device cannot honour."""


class RecordingWarning(OstinatoWarning):
    """A recording that was closed by the end of the process is not complete."""


class SamplingWarning(OstinatoWarning):
    """A profile asks for times that the device cannot take."""


class UncommittedWork(OstinatoWarning):
    """An encoder was dropped with work that was never committed; nothing of it ran."""


class UnobservedError(OstinatoWarning):
    """A submission failed and nobody looked at its error."""
