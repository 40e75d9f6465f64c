"""Errors and warnings. Every error that ostinato raises on purpose is an `OstinatoError`.

The class says what kind of error it is; the message names the kernel, the argument, the label and what was
expected. Errors that correspond to a built-in exception also inherit from it, so `except ValueError` and
`except KeyError` keep working in code that does not know this library. Warnings are for cases in which no
caller could catch an exception.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .audit.findings import Finding


class OstinatoError(Exception):
    """Root of every error raised by ostinato."""


# --- kernels -----------------------------------------------------------------------------------------------


_LONGEST_SHOWN = 160
"""Characters of a source line; of a longer one, those around the column are shown."""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One compiler message: its text, and its place in the source as far as that is known."""

    message: str
    file: str | None = None
    line: int | None = None
    column: int | None = None
    """Counted from 1, in characters; None where only the line is known."""
    source_line: str | None = None
    notes: tuple[Diagnostic, ...] = ()
    """What belongs to the message: the definition of the macro, the line that instantiates the template, candidates."""

    def __str__(self) -> str:
        lines = [self._headed("")]
        if self.source_line is not None:
            lines += self._pointed()
        for note in self.notes:
            lines.append(note._headed("note: "))
            if note.source_line is not None and note.place != self.place:
                lines += note._pointed()
        return "\n".join(lines)

    @property
    def place(self) -> str:
        """File, line and column, as far as they are known, with colons between them."""
        return ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)

    def _headed(self, prefix: str) -> str:
        return f"{self.place}: {prefix}{self.message}" if self.file is not None else prefix + self.message

    def _pointed(self) -> list[str]:
        """The source line, and a caret."""
        assert self.source_line is not None
        first = max(0, (self.column or 1) - 1 - _LONGEST_SHOWN // 2) if len(self.source_line) > _LONGEST_SHOWN else 0
        # Of the same length, so that the caret is in the right place; control characters of a source are not printed.
        shown = "".join(
            letter if letter.isprintable() or letter == "\t" else "?"
            for letter in self.source_line[first : first + _LONGEST_SHOWN]
        )
        number = f"{self.line:>5} | "
        lines = [f"{number}{'…' if first else ''}{shown}{'…' if first + len(shown) < len(self.source_line) else ''}"]
        if self.column is not None:
            # Tabs stay tabs, so that the caret is under its token for any tab width.
            before = ("…" if first else "") + shown[: self.column - 1 - first]
            indent = "".join("\t" if letter == "\t" else " " for letter in before)
            lines.append(f"{'| ':>{len(number)}}{indent}^")
        return lines


class KernelCompileError(OstinatoError):
    """A kernel source was rejected, by the front end or by the compiler.

    `file`, `line` and `column` point into the user's source, `message` says what is wrong there. `diagnostics` holds
    all messages of the compiler, this one first; the text of the error shows the first `MOST_SHOWN`. `details` has the
    compiler's complete output, whose places are those of the generated source.
    """

    MOST_SHOWN = 10

    def __init__(
        self,
        message: str,
        file: str | None = None,
        line: int | None = None,
        details: str = "",
        diagnostics: Sequence[Diagnostic] = (),
    ) -> None:
        self.details = details
        self.diagnostics = tuple(diagnostics) or (Diagnostic(message, file, line),)
        super().__init__(message, file, line, details, self.diagnostics)

    @classmethod
    def of(cls, diagnostics: Sequence[Diagnostic], details: str = "") -> KernelCompileError:
        """An error with one or more messages."""
        first = diagnostics[0]
        return cls(first.message, first.file, first.line, details, diagnostics)

    @property
    def message(self) -> str:
        """What is wrong."""
        return self.diagnostics[0].message

    @property
    def file(self) -> str | None:
        """The file of the first message."""
        return self.diagnostics[0].file

    @property
    def line(self) -> int | None:
        """The line of the first message."""
        return self.diagnostics[0].line

    @property
    def column(self) -> int | None:
        """The column of the first message, counted from 1."""
        return self.diagnostics[0].column

    @property
    def left_out(self) -> int:
        """How many messages the text of the error leaves out."""
        return max(0, len(self.diagnostics) - self.MOST_SHOWN)

    def __str__(self) -> str:
        texts = [str(diagnostic) for diagnostic in self.diagnostics[: self.MOST_SHOWN]]
        if self.left_out:
            texts.append(f"… and {self.left_out} more error{'s' if self.left_out > 1 else ''}")
        return "\n".join(texts)


class UnsupportedFeature(KernelCompileError):
    """The source is valid Metal, but uses something that this library does not provide."""


class NoKernels(KernelCompileError):
    """The source has no kernel, or only templates of kernels without an instance."""


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


class KernelCheckError(KernelFault):
    """The checks of a device (`open_device("cpu", checked=True)`) found errors in a kernel.

    `findings` holds what they found in the submission, errors first. `lost` is how many further reports were dropped
    because the device's table of findings was full. The commands after the one that they are about did not run.
    """

    def __init__(
        self, message: str, findings: tuple[Finding, ...], kernel: str | None, label: str | None, lost: int = 0
    ) -> None:
        super().__init__(message, kernel, label, thread=next((thread for thread in _threads(findings)), None))
        self.findings = findings
        self.lost = lost

    def to_cite(self) -> KernelCheckError:
        """A copy without traceback, to be kept as a cause without keeping frames and buffers alive."""
        cited = KernelCheckError(str(self), self.findings, self.kernel, self.label, self.lost)
        cited._told = self._told
        return cited


def _threads(findings: tuple[Finding, ...]) -> Iterator[tuple[int, int, int]]:
    for finding in findings:
        yield from (access.thread for access in finding.accesses[-1:])


# --- recordings --------------------------------------------------------------------------------------------


class RecordingError(OstinatoError, ValueError):
    """A recording cannot be written, read or merged: damaged, too large, too new, not a recording, not writable."""


class FleetError(OstinatoError, ValueError):
    """A store of many recordings cannot be opened, read or changed: damaged, too new, out of reach, a wrong query."""


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
