"""Where a store lies: a folder, or any URL that fsspec opens (`s3://bucket/fleet`).

A place reads, lists and removes files by their path in the store, and makes a file exclusively: of several writers
exactly one succeeds, and nobody sees a part of it. Locally that is a hard link; S3 and its like do it by a condition
of the request. Credentials belong to the environment. Those that a URL carries are used, and shown by nothing here.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ...base.extras import install_command
from ...base.printable import LONGEST_SENTENCE, printable
from ...errors import FleetError, MissingPackage

if TYPE_CHECKING:
    import pyarrow.fs

_HIDDEN = "(hidden)"
_USER = re.compile(r"(://|\b)[^/@:\s'\"]+:[^/@\s'\"]+@|(://)[^/@\s'\"]+@")
_SECRET = re.compile(
    r"((?:[\w-]*(?:secret|password|passwd|token|signature|credential|access[-_]?key|api[-_]?key)[\w-]*)[\"']?\s*[=:]\s*[\"']?)"
    r"[^\s&;,\"')]+",
    re.IGNORECASE,
)
_KEY_ID = re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b")


def without_secrets(text: str) -> str:
    """The text without users and passwords of URLs, and without the values of what is named like a secret."""
    return _KEY_ID.sub(
        _HIDDEN,
        _SECRET.sub(rf"\g<1>{_HIDDEN}", _USER.sub(lambda found: f"{found[1] or found[2] or ''}{_HIDDEN}@", text)),
    )


def without_query(url: str) -> str:
    """A URL as it may be shown."""
    return printable(without_secrets(url.partition("?")[0]), LONGEST_SENTENCE)


class Place(Protocol):
    """A folder of files."""

    @property
    def shown(self) -> str:
        """Its name for people, without credentials."""
        ...

    def read(self, path: str) -> bytes:
        """The contents of a file; `FileNotFoundError` if there is none."""
        ...

    def create(self, path: str, data: bytes) -> bool:
        """Make a file that nobody has made before; False if there is one."""
        ...

    def names(self, folder: str) -> list[str]:
        """The names of the files in a folder; none if it is not there."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; that there is none is fine."""
        ...

    def make_folder(self, path: str) -> None:
        """Make a folder, where there are such."""
        ...

    def arrow(self) -> pyarrow.fs.FileSystem:
        """The same place for PyArrow, which reads and writes tables."""
        ...


def place(url: str | os.PathLike[str]) -> Place:
    """The place that a path or a URL names."""
    text = os.fspath(url)
    if text.startswith("file://"):
        text = text.removeprefix("file://")
    return _Remote(text) if re.match(r"[A-Za-z][\w+.-]*(://|::)", text) else _Folder(Path(os.path.abspath(text)))


@contextmanager
def telling(place: Place, doing: str) -> Iterator[None]:
    """Whatever a file system raises comes out as one error that names the store and no credentials."""
    try:
        yield
    except (FleetError, MissingPackage):
        raise
    except Exception as problem:  # packages of file systems raise what they like
        text = without_secrets(f"{type(problem).__name__}: {problem}")
        raise FleetError(f"{place.shown}: cannot {doing}: {printable(text, LONGEST_SENTENCE)}") from None


class _Folder:
    """A folder of this machine."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def shown(self) -> str:
        return str(self._root)

    def read(self, path: str) -> bytes:
        return (self._root / path).read_bytes()

    def create(self, path: str, data: bytes) -> bool:
        target = self._root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.with_name(f".{target.name}-{secrets.token_hex(8)}")
        try:
            with beside.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.link(beside, target)
        except FileExistsError:
            return False
        finally:
            with contextlib.suppress(OSError):
                beside.unlink()
        return True

    def names(self, folder: str) -> list[str]:
        try:
            return [entry.name for entry in os.scandir(self._root / folder) if not entry.name.startswith(".")]
        except FileNotFoundError:
            return []

    def remove(self, path: str) -> None:
        (self._root / path).unlink(missing_ok=True)

    def make_folder(self, path: str) -> None:
        (self._root / path).mkdir(parents=True, exist_ok=True)

    def arrow(self) -> pyarrow.fs.FileSystem:
        from pyarrow import fs

        return fs.SubTreeFileSystem(str(self._root), fs.LocalFileSystem())


class _Remote:
    """What fsspec opens."""

    def __init__(self, url: str) -> None:
        try:
            import fsspec
        except ImportError as problem:
            raise MissingPackage(
                f"{without_query(url)} needs fsspec and the package of its protocol: {install_command('fleet')}"
            ) from problem
        self.shown = without_query(url)
        with telling(self, "open it"):
            # Other processes write there too, so no listing is kept.
            self._fs: Any
            self._fs, root = fsspec.core.url_to_fs(url, use_listings_cache=False, skip_instance_cache=True)
        self._root = str(root).rstrip("/")

    def read(self, path: str) -> bytes:
        data: bytes = self._fs.cat_file(f"{self._root}/{path}")
        return data

    def create(self, path: str, data: bytes) -> bool:
        try:
            self._fs.pipe_file(f"{self._root}/{path}", data, mode="create")
        except FileExistsError:
            return False
        except OSError as problem:
            # Two conditional requests at once; or a server that names the condition and no file.
            if any(word in str(problem) for word in ("Precondition", "pre-condition", "ConditionalRequestConflict")):
                return False
            raise
        return True

    def names(self, folder: str) -> list[str]:
        try:
            return [str(each).rsplit("/", 1)[-1] for each in self._fs.ls(f"{self._root}/{folder}", detail=False)]
        except FileNotFoundError:
            return []

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(f"{self._root}/{path}")

    def make_folder(self, path: str) -> None:
        """Its folders are parts of names; file systems behind fsspec that have real ones get one."""
        with contextlib.suppress(NotImplementedError, OSError):
            self._fs.makedirs(f"{self._root}/{path}", exist_ok=True)

    def arrow(self) -> pyarrow.fs.FileSystem:
        from pyarrow import fs

        return fs.SubTreeFileSystem(self._root, fs.PyFileSystem(fs.FSSpecHandler(self._fs)))
