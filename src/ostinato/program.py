"""Running somebody's program inside this process, as its main module: for commands that watch what it does."""

from __future__ import annotations

import importlib
import importlib.util
import os
import runpy
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from .errors import ArgumentError

_PACKAGE = str(Path(__file__).parent) + os.sep


class Stop(BaseException):
    """Ends a program that must not go on; no `except Exception` of its own holds that up."""


def check(target: str) -> None:
    """Refuse what is neither a file nor a function of a module that can be found."""
    module, colon, function = target.partition(":")
    if Path(target).is_file():
        return
    if not (colon and module and function.isidentifier()):
        raise ArgumentError(f"{target!r} is no file, and not module:function either")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError, AttributeError):
        found = None
    finally:
        sys.path.pop(0)
    if found is None:
        raise ArgumentError(f"{target!r}: there is no module {module!r}")


@contextmanager
def as_main(target: str, arguments: Sequence[str]) -> Iterator[None]:
    """For the block, this process looks like the program: `sys.argv` is its own."""
    before = sys.argv
    sys.argv = [target, *arguments]
    try:
        yield
    finally:
        sys.argv = before


def run(target: str, arguments: Sequence[str]) -> int:
    """Run a script, or `module:function`, as the program that this process is; gives its exit status.

    An exception of the program is shown as its own, without the frames of this library.
    """
    check(target)
    script = Path(target)
    module, _, function = target.partition(":")
    is_script = script.is_file()
    before = list(sys.path)
    sys.path.insert(0, str(script.resolve().parent if is_script else Path.cwd()))
    try:
        with as_main(target, arguments):
            if is_script:
                runpy.run_path(target, run_name="__main__")
            else:
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
