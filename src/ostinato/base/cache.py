"""The disk cache: a private folder for compiled code.

Code that is loaded from here runs in the user's process. So the folder must belong to the user, be closed to all others
(mode 0700) and not be a symbolic link; files in it must belong to the user, be writable by nobody else and not be
links. An entry is a folder named by the digest of all its inputs. It holds the library and a manifest with the
library's own digest, which is checked before the library is loaded. An entry that fails any of these checks is rebuilt.
Entries appear by a rename, so no process sees an incomplete entry, and a lock per group of entries keeps several
processes from compiling the same source.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from .. import settings
from ..errors import CacheError, OstinatoError

_FORMAT = 1
_LIBRARY, _MANIFEST = "library.so", "manifest.json"


def folder() -> Path:
    """The cache folder, created if necessary, and checked."""
    path = _chosen()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
        info = path.lstat()
    except OSError as error:
        raise CacheError(f"cannot create the cache folder {path}: {error.strerror}; {_WAY_OUT}") from None
    if stat.S_ISLNK(info.st_mode) or not stat.S_ISDIR(info.st_mode):
        raise CacheError(f"the cache folder {path} is a link or not a folder; {_WAY_OUT}")
    if info.st_uid != os.geteuid():
        raise CacheError(f"the cache folder {path} belongs to another user; {_WAY_OUT}")
    if stat.S_IMODE(info.st_mode) & 0o077:
        raise CacheError(
            f"the cache folder {path} is open to other users (mode {stat.S_IMODE(info.st_mode):04o}), who may have"
            f" written to it; remove it, or {_WAY_OUT}"
        )
    return path


_WAY_OUT = "set OSTINATO_CACHE_DIR to a folder of your own"


def digest(*parts: bytes | str) -> str:
    """A digest of several parts, including where each part ends."""
    state = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()


def library(key: str, build: Callable[[Path], Path]) -> Path:
    """The path of a verified library, built with `build(work folder) -> product` if it is missing or damaged."""
    root = folder()
    entry = root / key
    path = _verified(entry)
    if path is not None:
        return path
    with _locked(root, key):
        path = _verified(entry)
        if path is not None:
            return path
        with work_folder() as work:
            product = build(work)
            return _publish(product, work, entry)


def note(key: str, find: Callable[[], str], anew: bool = False) -> str:
    """A small cached text; `find` computes it if it is missing or unreadable, or if `anew` is set."""
    notes = folder() / "notes"
    path = notes / key
    if not anew and _is_own_folder(notes) and _is_own_file(path):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return path.read_text(encoding="utf-8")
    text = find()
    with work_folder() as work:
        fresh = work / "note"
        _write(fresh, text.encode())
        with contextlib.suppress(FileExistsError):
            notes.mkdir(mode=0o700)
        if not _is_own_folder(notes):
            notes.rename(work / "foreign-notes")
            _make(notes)
        if path.is_dir() and not path.is_symlink():
            path.rename(work / "foreign-note")
        fresh.replace(path)
    return text


def text_file(name: str, contents: bytes) -> Path:
    """A file of this name and these contents, in a folder of its own, for tools that read files."""
    sources = folder() / "sources"
    path = sources / digest(name, contents)[:16] / name
    if not (_is_own_folder(sources) and _is_own_folder(path.parent) and _is_own_file(path)) or (
        path.read_bytes() != contents
    ):
        with work_folder() as work:
            fresh = work / "source"
            _make(fresh)
            _write(fresh / name, contents)
            for foreign in (sources, path.parent):
                if (foreign.is_symlink() or foreign.exists()) and not _is_own_folder(foreign):
                    foreign.rename(work / f"foreign-{foreign.name}")
            _make(sources)
            _make(path.parent)
            (fresh / name).replace(path)
    return path


@contextlib.contextmanager
def work_folder() -> Iterator[Path]:
    """A private temporary folder for the length of a block, on the same file system as the entries.

    An `OSError` inside the block (such as a full disk) becomes a `CacheError`.
    """
    root = folder()
    try:
        work = Path(tempfile.mkdtemp(prefix="work-", dir=root))
    except OSError as error:
        raise CacheError(f"cannot write to the cache folder {root}: {error.strerror}; {_WAY_OUT}") from None
    try:
        yield work
    except OstinatoError:
        raise
    except OSError as error:
        raise CacheError(f"cannot write to the cache folder {root}: {error}; {_WAY_OUT}") from None
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _chosen() -> Path:
    named = settings.text("cache_dir")
    if named is not None:
        return Path(named).expanduser().absolute()
    try:
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Caches" / "ostinato"
        base = os.environ.get("XDG_CACHE_HOME", "")
        return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "ostinato"
    except RuntimeError:
        raise CacheError(f"there is no home folder for compiled kernels; {_WAY_OUT}") from None


def _make(path: Path) -> None:
    path.mkdir(mode=0o700, exist_ok=True)


def _is_own_folder(path: Path) -> bool:
    return _is_own(path, stat.S_ISDIR)


def _is_own_file(path: Path) -> bool:
    return _is_own(path, stat.S_ISREG)


def _is_own(path: Path, is_kind: Callable[[int], bool]) -> bool:
    """Whether a path exists, is not a link, and is writable by this user only."""
    try:
        info = path.lstat()
    except OSError:
        return False
    return is_kind(info.st_mode) and info.st_uid == os.geteuid() and not info.st_mode & 0o022


def _write(path: Path, contents: bytes) -> None:
    """Create a file that only this user can write to, whatever the umask."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(contents)


def _verified(entry: Path) -> Path | None:
    path = entry / _LIBRARY
    if not (_is_own_folder(entry) and _is_own_file(path) and _is_own_file(entry / _MANIFEST)):
        return None
    try:
        manifest = json.loads((entry / _MANIFEST).read_text(encoding="utf-8"))
        image = path.read_bytes()
    except (OSError, ValueError):
        return None
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        return None
    return path if manifest.get("sha256") == hashlib.sha256(image).hexdigest() else None


def _publish(product: Path, work: Path, entry: Path) -> Path:
    fresh = work / "entry"
    try:
        fresh.mkdir(mode=0o700)
        image = product.read_bytes()
        _write(fresh / _LIBRARY, image)
        manifest = {"format": _FORMAT, "sha256": hashlib.sha256(image).hexdigest(), "bytes": len(image)}
        _write(fresh / _MANIFEST, json.dumps(manifest).encode())
        for attempt in range(3):
            try:
                fresh.rename(entry)
                break
            except OSError:
                # Another process published it (where locks do not work), or it is damaged and is replaced.
                published = _verified(entry)
                if published is not None:
                    return published
                with contextlib.suppress(FileNotFoundError):
                    entry.rename(work / f"damaged-{attempt}")
        else:
            raise CacheError(f"cannot replace the damaged cache entry {entry}; remove it")
    except CacheError:
        raise
    except OSError as error:
        raise CacheError(f"cannot write to the cache folder {entry.parent}: {error.strerror}; {_WAY_OUT}") from None
    return entry / _LIBRARY


@contextlib.contextmanager
def _locked(root: Path, key: str) -> Iterator[None]:
    locks = root / "locks"
    try:
        _make(locks)
        handle = os.open(locks / key[:2], os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise CacheError(f"cannot write to the cache folder {root}: {error.strerror}; {_WAY_OUT}") from None
    try:
        # Some network file systems have no locks; renames keep entries complete even then.
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
