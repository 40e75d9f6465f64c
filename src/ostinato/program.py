"""Running a user's program in this process, as its main module, for `ostinato check` and `ostinato profile`."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import runpy
import shutil
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path

from .errors import ArgumentError

_PACKAGE = str(Path(__file__).parent) + os.sep
_INTERPRETER = re.compile(r"(python|pypy)[0-9.]*(\.exe)?")
_MACHINE_CODE = (b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
"""The first bytes of executables of Linux, Windows and macOS."""


class Stop(BaseException):
    """Ends a program that must not continue; its own `except Exception` does not catch this."""


@dataclass(frozen=True, slots=True)
class Program:
    """A Python program to run."""

    target: str
    """A file, `module:function`, or a module."""
    arguments: tuple[str, ...] = ()
    as_module: bool = False
    """Whether the target is a module, which runs as with `python -m`."""

    @property
    def is_script(self) -> bool:
        """Whether the target is a file."""
        return not self.as_module and Path(self.target).is_file()

    @property
    def name(self) -> str:
        """A short name, for output files."""
        return Path(self.target).stem if self.is_script else self.target.partition(":")[0]


def parse(target: str, arguments: Sequence[str] = (), as_module: bool = False, otherwise: str = "") -> Program:
    """The program of a command line: a script, `module:function`, a module, or `python` and a script or `-m module`.

    Raises `ArgumentError` for anything else, before anything runs; `otherwise` is its advice for a program that is not
    Python.
    """
    if as_module:
        _check_module(target)
        return Program(target, tuple(arguments), as_module=True)
    if _INTERPRETER.fullmatch(Path(target).name):
        return _after_interpreter(target, arguments)
    if target.startswith("-"):
        raise ArgumentError(f"there is no option {target}; the program's own options follow its name")
    script = Path(target)
    if script.is_file():
        if not _may_be_python(script):
            raise ArgumentError(f"{target!r} is not a Python program{otherwise and f'; {otherwise}'}")
        return Program(target, tuple(arguments))
    module, colon, function = target.partition(":")
    if not (colon and module and function.isidentifier()):
        if shutil.which(target):
            raise ArgumentError(f"{target!r} is a program, but not a Python script{otherwise and f'; {otherwise}'}")
        raise ArgumentError(f"{target!r} is neither a file nor module:function (-m runs a module)")
    if _spec(module) is None:
        raise ArgumentError(f"{target!r}: there is no module {module!r}")
    return Program(target, tuple(arguments))


def _after_interpreter(interpreter: str, arguments: Sequence[str]) -> Program:
    first, *rest = arguments or ("",)
    if first == "-m" and rest:
        return parse(rest[0], rest[1:], as_module=True)
    if not first or first.startswith("-"):
        raise ArgumentError(f"{interpreter!r} must be followed by a script or by -m and a module, not {first!r}")
    if not Path(first).is_file():
        raise ArgumentError(f"{interpreter!r} is followed by {first!r}, which is not a file")
    return parse(first, rest)


def _check_module(name: str) -> None:
    spec = _spec(name)
    if spec is None:
        raise ArgumentError(f"there is no module {name!r}")
    if spec.submodule_search_locations is not None and _spec(f"{name}.__main__") is None:
        raise ArgumentError(f"{name!r} is a package without a __main__ module, and cannot be run")


def _spec(module: str) -> ModuleSpec | None:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.util.find_spec(module)
    except (ImportError, ValueError, AttributeError):
        return None
    finally:
        sys.path.pop(0)


def _may_be_python(script: Path) -> bool:
    """False for machine code and for scripts with another interpreter."""
    if script.suffix == ".py":
        return True
    with script.open("rb") as file:
        first = file.readline(256)
    return not first.startswith(_MACHINE_CODE) and (not first.startswith(b"#!") or b"py" in first)


@contextmanager
def as_main(program: Program) -> Iterator[None]:
    """Sets `sys.argv` to that of the program for the length of a block."""
    before = sys.argv
    sys.argv = [program.target, *program.arguments]
    try:
        yield
    finally:
        sys.argv = before


def run(program: Program) -> int:
    """Run a program as the main program of this process, and return its exit status.

    The traceback of an exception is printed without the frames of this library.
    """
    target = program.target
    before = list(sys.path)
    sys.path.insert(0, str(Path(target).resolve().parent if program.is_script else Path.cwd()))
    try:
        with as_main(program):
            if program.as_module:
                runpy.run_module(target, run_name="__main__", alter_sys=True)
            elif program.is_script:
                runpy.run_path(target, run_name="__main__")
            else:
                module, _, function = target.partition(":")
                getattr(importlib.import_module(module), function)()
    except SystemExit as leaving:
        return _status(leaving)
    except Stop:
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BaseException as error:
        sys.stderr.write("".join(_own_traceback(error).format()))
        return 1
    finally:
        sys.path[:] = before
    return 0


def _status(leaving: SystemExit) -> int:
    """The exit status for a `SystemExit`, by the rules of the interpreter."""
    if leaving.code is None or isinstance(leaving.code, int):
        return leaving.code or 0
    print(leaving.code, file=sys.stderr)
    return 1


def _own_traceback(error: BaseException) -> traceback.TracebackException:
    shown = traceback.TracebackException.from_exception(error)
    waiting = [shown]
    while waiting:
        current = waiting.pop()
        current.stack = traceback.StackSummary.from_list(
            [frame for frame in current.stack if not _is_ours(frame.filename)]
        )
        waiting += [other for other in (current.__cause__, current.__context__) if other is not None]
        waiting += current.exceptions or ()
    return shown


def _is_ours(file: str) -> bool:
    return file.startswith((_PACKAGE, "<frozen ")) or file in (runpy.__file__, importlib.__file__)
