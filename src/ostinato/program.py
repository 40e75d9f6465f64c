"""Running somebody's program inside this process, as its main module: for commands that watch what it does."""

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
"""How executables of Linux, Windows and macOS begin."""


class Stop(BaseException):
    """Ends a program that must not go on; no `except Exception` of its own holds that up."""


@dataclass(frozen=True, slots=True)
class Program:
    """A Python program, as `parse` understood it."""

    target: str
    """A file, `module:function`, or a module."""
    arguments: tuple[str, ...] = ()
    as_module: bool = False
    """Whether the target is a module, to be run as `python -m` does."""

    @property
    def is_script(self) -> bool:
        """Whether the target is a file."""
        return not self.as_module and Path(self.target).is_file()

    @property
    def name(self) -> str:
        """A short name, for files that are about it."""
        return Path(self.target).stem if self.is_script else self.target.partition(":")[0]


def parse(target: str, arguments: Sequence[str] = (), as_module: bool = False, otherwise: str = "") -> Program:
    """What a command line names: a script, `module:function`, a module, or `python` before a script or `-m module`.

    Raises `ArgumentError` for anything else, before any of it runs; `otherwise` says there what to do with a program
    that is not Python.
    """
    if as_module:
        _check_module(target)
        return Program(target, tuple(arguments), as_module=True)
    if _INTERPRETER.fullmatch(Path(target).name):
        return _after_interpreter(target, arguments)
    if target.startswith("-"):
        raise ArgumentError(f"there is no option {target}; options of the program come after its name")
    script = Path(target)
    if script.is_file():
        if not _may_be_python(script):
            raise ArgumentError(f"{target!r} is not a Python program{otherwise and f'; {otherwise}'}")
        return Program(target, tuple(arguments))
    module, colon, function = target.partition(":")
    if not (colon and module and function.isidentifier()):
        if shutil.which(target):
            raise ArgumentError(f"{target!r} is a program, but not a Python script{otherwise and f'; {otherwise}'}")
        raise ArgumentError(f"{target!r} is no file, and not module:function either (-m runs a module)")
    if _found(module) is None:
        raise ArgumentError(f"{target!r}: there is no module {module!r}")
    return Program(target, tuple(arguments))


def _after_interpreter(interpreter: str, arguments: Sequence[str]) -> Program:
    first, *rest = arguments or ("",)
    if first == "-m" and rest:
        return parse(rest[0], rest[1:], as_module=True)
    if not first or first.startswith("-"):
        raise ArgumentError(f"{interpreter!r} must be followed by a script or by -m and a module, not {first!r}")
    if not Path(first).is_file():
        raise ArgumentError(f"{interpreter!r} is followed by {first!r}, which is no file")
    return parse(first, rest)


def _check_module(name: str) -> None:
    found = _found(name)
    if found is None:
        raise ArgumentError(f"there is no module {name!r}")
    if found.submodule_search_locations is not None and _found(f"{name}.__main__") is None:
        raise ArgumentError(f"{name!r} is a package without a __main__ module, and cannot be run")


def _found(module: str) -> ModuleSpec | None:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.util.find_spec(module)
    except (ImportError, ValueError, AttributeError):
        return None
    finally:
        sys.path.pop(0)


def _may_be_python(script: Path) -> bool:
    """False for what is surely something else: machine code, or a script for another interpreter."""
    if script.suffix == ".py":
        return True
    with script.open("rb") as file:
        first = file.readline(256)
    return not first.startswith(_MACHINE_CODE) and (not first.startswith(b"#!") or b"py" in first)


@contextmanager
def as_main(program: Program) -> Iterator[None]:
    """For the block, this process looks like the program: `sys.argv` is its own."""
    before = sys.argv
    sys.argv = [program.target, *program.arguments]
    try:
        yield
    finally:
        sys.argv = before


def run(program: Program) -> int:
    """Run a program as the one that this process is; gives its exit status.

    An exception of the program is shown as its own, without the frames of this library.
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
    """As the interpreter does it."""
    if leaving.code is None or isinstance(leaving.code, int):
        return leaving.code or 0
    print(leaving.code, file=sys.stderr)
    return 1


def _own_traceback(error: BaseException) -> traceback.TracebackException:
    found = traceback.TracebackException.from_exception(error)
    waiting = [found]
    while waiting:
        one = waiting.pop()
        one.stack = traceback.StackSummary.from_list([frame for frame in one.stack if not _is_ours(frame.filename)])
        waiting += [other for other in (one.__cause__, one.__context__) if other is not None]
        waiting += one.exceptions or ()
    return found


def _is_ours(file: str) -> bool:
    return file.startswith((_PACKAGE, "<frozen ")) or file in (runpy.__file__, importlib.__file__)
