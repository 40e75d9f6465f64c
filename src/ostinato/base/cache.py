"""The private folder where compiled code is kept.

What is loaded from here runs in the user's process, so the folder must belong to the user, be closed to everybody
else (mode 0700) and be no link; what is read from it must belong to the user, be writable by nobody else and be no
link either. An entry is a folder named by the digest of everything that went into it, with the library and a manifest
that holds the library's own digest; the digest is checked before the library is loaded, and an entry that fails any of
these checks is built again. Entries appear in one rename, so no process ever sees half of one, and a lock per group of
entries keeps ten processes from compiling the same thing ten times.
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
    """The cache folder, made if need be and checked."""
    path = _chosen()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
        found = path.lstat()
    except OSError as error:
        raise CacheError(f"cannot make the cache folder {path}: {error.strerror}; {_WAY_OUT}") from None
    if stat.S_ISLNK(found.st_mode) or not stat.S_ISDIR(found.st_mode):
        raise CacheError(f"the cache folder {path} is a link or no folder; {_WAY_OUT}")
    if found.st_uid != os.geteuid():
        raise CacheError(f"the cache folder {path} belongs to another user; {_WAY_OUT}")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise CacheError(
            f"the cache folder {path} is open to others (mode {stat.S_IMODE(found.st_mode):04o});"
            f" others could have written to it, so remove it, or {_WAY_OUT}"
        )
    return path


_WAY_OUT = "set OSTINATO_CACHE_DIR to a folder of your own"


def digest(*parts: bytes | str) -> str:
    """A key over several parts; their borders count."""
    state = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()


def library(key: str, build: Callable[[Path], Path]) -> Path:
    """The path of a verified library, built with `build(work folder) -> product` if it is not there or damaged."""
    root = folder()
    entry = root / key
    found = _verified(entry)
    if found is not None:
        return found
    with _locked(root, key):
        found = _verified(entry)
        if found is not None:
            return found
        with work_folder() as work:
            product = build(work)
            return _publish(product, work, entry)


def note(key: str, find: Callable[[], str], anew: bool = False) -> str:
    """A small remembered text; a missing or unreadable one is found out again, and so is any with `anew`."""
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


@contextlib.contextmanager
def work_folder() -> Iterator[Path]:
    """A private folder for the length of a block, on the same file system as the entries.

    What the operating system refuses inside the block (a full disk, say) is a `CacheError`.
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
        raise CacheError(f"there is no home folder to keep compiled kernels in; {_WAY_OUT}") from None


def _make(path: Path) -> None:
    path.mkdir(mode=0o700, exist_ok=True)


def _is_own_folder(path: Path) -> bool:
    return _is_own(path, stat.S_ISDIR)


def _is_own_file(path: Path) -> bool:
    return _is_own(path, stat.S_ISREG)


def _is_own(path: Path, is_kind: Callable[[int], bool]) -> bool:
    """Whether a path is there, is no link, and only this user can have written to it."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return is_kind(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022


def _write(path: Path, contents: bytes) -> None:
    """A new file that only this user can write to, whatever the umask."""
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
                # Somebody else's entry (where locks do not work), or a damaged one that has to go.
                found = _verified(entry)
                if found is not None:
                    return found
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
        # Some network file systems have no locks; renames keep entries whole even then.
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
