"""Graphs in files: one file holds the structure, the kernels' sources and, on request, the contents of memory.

`load_graph` reads what `save` writes. The file is a zip archive of uncompressed entries, so that it cannot expand when
it is read; `docs/graph-file.md` describes it. Saving replaces a file atomically.

Loading treats the file as untrusted: it reads no other file, compiles and runs nothing, does work in proportion to the
file's size, and raises only `GraphFileError`. Kernels are compiled when the graph is moved to a device, and replaying
runs the sender's code: `instantiate` only files that you trust.
"""

from __future__ import annotations

import json
import os
import re
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NoReturn

from ... import msl
from ...base.paths import checked_path
from ...base.printable import printable
from ...errors import ArgumentError, GraphFileError, KernelCompileError
from ..graph import Graph
from ..memory import memory_contents
from .document import document_of
from .reading import check_version, contents_sizes, graph_of, source_count
from .values import Damaged

MAX_DOCUMENT_BYTES = 64 << 20
MAX_SOURCE_BYTES = 64 << 20
"""Of one source; the front end has its own limit, in characters."""
MAX_TOKENS = 16_000_000
"""Of all sources together, after their macros are expanded."""

_DOCUMENT = "graph.json"
_ENTRY = re.compile(r"graph\.json|sources/[0-9]{3,7}\.metal|memory/[0-9]{3,7}\.bin", re.ASCII)
_BEGINS = b"PK\x03\x04"
_DATE = (1980, 1, 1, 0, 0, 0)

# All that zipfile raises, or may raise by its source, on a hostile archive.
_ARCHIVE_ERRORS = (
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,
    struct.error,
    EOFError,
    OSError,
    ValueError,
    LookupError,
    RuntimeError,
    OverflowError,
)


def save(graph: Graph, path: str | os.PathLike[str], contents: bool = False) -> None:
    """Write a graph to one file; with `contents`, wait for committed work and save the contents of its memory too.

    An existing file is replaced only when the new one is complete. Only the owner can read the file.
    """
    if not isinstance(graph, Graph):
        raise ArgumentError(f"save: expected a Graph, got {graph!r}")
    if not isinstance(contents, bool):
        raise ArgumentError(f"save: contents={contents!r}: expected True or False")
    target = Path(
        os.path.realpath(checked_path(path, "save", GraphFileError))
    )  # renaming over a link would replace the link
    if contents and graph.on_device:
        graph.queue.check_process()
    document, modules = document_of(graph, contents)
    try:
        graph_of(document, modules, {})  # raises for a document that could not be read back
        data = json.dumps(document, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii")
        if len(data) > MAX_DOCUMENT_BYTES:
            raise Damaged(f"{len(graph)} nodes take {len(data)} bytes; at most {MAX_DOCUMENT_BYTES} are read")
    except Damaged as error:
        raise GraphFileError(f"this graph cannot be saved: {printable(str(error), 1000)}") from error
    entries = _entries(graph, data, modules, document["memories"])
    try:
        _replace(target, entries)
    except UnicodeEncodeError as error:
        raise GraphFileError(f"this graph cannot be saved: a source is not Unicode text: {error}") from error
    except OSError as error:
        raise GraphFileError(f"cannot write {_shown(target)}: {error.strerror or error}") from error


def is_graph_file(path: Path) -> bool:
    """Whether a file begins as a graph file does."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_BEGINS)) == _BEGINS


def load_graph(path: str | os.PathLike[str]) -> Graph:
    """The graph in a file. It is on no device: it can be printed, drawn and audited, and nothing is compiled.

    `graph.to(device)` and `graph.instantiate(device)` compile its kernels to native code; call them only for files that
    you trust.
    """
    source = checked_path(path, "load_graph", GraphFileError)
    try:
        with _opened(source) as (archive, size):
            return _graph(archive, size)
    except Damaged as error:
        reason = str(error)
    except MemoryError:
        reason = "it does not fit into memory"
    except OSError as error:
        reason = f"it cannot be read: {error.strerror or error}"
    raise GraphFileError(f"{_shown(source)}: {printable(reason, 1000)}")


# --- writing --------------------------------------------------------------------------------------------------------


def _entries(
    graph: Graph, document: bytes, modules: tuple[msl.Module, ...], memories: list[dict[str, Any]]
) -> Iterator[tuple[str, bytes]]:
    yield _DOCUMENT, document
    for position, module in enumerate(modules):
        yield _source_name(position), module.source.encode()
    for position, (memory, entry) in enumerate(zip(graph.memories.values(), memories, strict=True)):
        if entry["contents"]:
            yield _memory_name(position), memory_contents(memory, 0, memory.nbytes) or b""


def _replace(target: Path, entries: Iterator[tuple[str, bytes]]) -> None:
    if target.exists() and not target.is_file():
        raise GraphFileError(f"cannot write {_shown(target)}: it is not a regular file")
    handle, temporary = tempfile.mkstemp(prefix=".ostinato-", suffix=".tmp", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                for name, data in entries:
                    entry = zipfile.ZipInfo(name, _DATE)  # a fixed date: the same graph gives the same bytes
                    entry.external_attr = 0o600 << 16
                    archive.writestr(entry, data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _source_name(position: int) -> str:
    return f"sources/{position:03}.metal"


def _memory_name(position: int) -> str:
    return f"memory/{position:03}.bin"


# --- reading --------------------------------------------------------------------------------------------------------


@contextmanager
def _opened(path: Path) -> Iterator[tuple[zipfile.ZipFile, int]]:
    # Opening a pipe would block until another process writes to it.
    if not stat.S_ISREG(path.stat().st_mode):
        raise Damaged("it is not a regular file")
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if file.read(len(_BEGINS)) != _BEGINS:
            raise Damaged("it is not a graph file (a graph file begins with the letters PK)")
        file.seek(0)
        with _archive(file) as archive:
            yield archive, size


def _archive(file: IO[bytes]) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)
    except _ARCHIVE_ERRORS as error:
        raise Damaged(f"it is damaged or cut short: {error}") from error


def _graph(archive: zipfile.ZipFile, size: int) -> Graph:
    entries: dict[str, zipfile.ZipInfo] = {}
    for entry in archive.infolist():
        if entry.filename in entries:
            raise Damaged(f"it has two entries named {entry.filename!r}")
        entries[entry.filename] = entry
    document = _json(_read(archive, entries, _DOCUMENT, size, MAX_DOCUMENT_BYTES))
    check_version(document)  # first: another version may differ in everything below
    sizes = contents_sizes(document)
    sources = [_source_name(position) for position in range(source_count(document))]
    expected = {_DOCUMENT, *sources, *map(_memory_name, sizes)}
    if missing := sorted(expected - entries.keys()):
        raise Damaged(f"its entry {missing[0]!r} is missing")
    for name, entry in entries.items():
        if name not in expected or not _ENTRY.fullmatch(name):
            raise Damaged(f"it has an unknown entry {name!r}")
        _check_entry(entry)
    if sum(entry.file_size for entry in entries.values()) > size:
        raise Damaged("its entries overlap")
    if sum(sizes.values()) > _physical_memory():
        raise Damaged(f"it holds {sum(sizes.values())} bytes of memory, more than this machine has")
    modules = _modules(archive, entries, sources, size)
    contents = {}
    for position, nbytes in sizes.items():
        data = _read(archive, entries, _memory_name(position), size, nbytes)
        if len(data) != nbytes:
            raise Damaged(f"memory {position}: it has {len(data)} bytes, not {nbytes}")
        contents[position] = data
    return graph_of(document, modules, contents)


def _modules(
    archive: zipfile.ZipFile, entries: Mapping[str, zipfile.ZipInfo], names: list[str], size: int
) -> list[msl.Module]:
    modules = []
    tokens = 0
    for name in names:
        data = _read(archive, entries, name, size, MAX_SOURCE_BYTES)
        try:
            # No include folders: a source that includes anything but Metal's headers is refused.
            module = msl.parse(data.decode())
        except UnicodeDecodeError as error:
            raise Damaged(f"{name}: it is not Unicode text: {error}") from error
        except KernelCompileError as error:
            raise Damaged(f"{name}: {error}") from error
        tokens += module.token_count
        if tokens > MAX_TOKENS:
            raise Damaged(f"its sources have more than {MAX_TOKENS:,} tokens")
        modules.append(module)
    return modules


def _check_entry(entry: zipfile.ZipInfo) -> None:
    if entry.flag_bits & 0x1:
        raise Damaged(f"its entry {entry.filename!r} is encrypted")
    if entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size:
        raise Damaged(f"its entry {entry.filename!r} is compressed; a graph file is not")


def _read(archive: zipfile.ZipFile, entries: Mapping[str, zipfile.ZipInfo], name: str, size: int, most: int) -> bytes:
    entry = entries.get(name)
    if entry is None:
        raise Damaged(f"its entry {name!r} is missing")
    _check_entry(entry)
    if entry.file_size > min(size, most):
        raise Damaged(f"its entry {name!r} has {entry.file_size} bytes; at most {min(size, most)} are read")
    try:
        data = archive.read(entry)
    except _ARCHIVE_ERRORS as error:
        raise Damaged(f"its entry {name!r} is damaged: {error}") from error
    if len(data) != entry.file_size:
        raise Damaged(f"its entry {name!r} is cut short")
    return data


def _json(data: bytes) -> Any:
    def refuse(text: str) -> NoReturn:
        raise Damaged(f"{_DOCUMENT}: {printable(text, 40)} is not a number that the format allows")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) != len(pairs):
            raise Damaged(f"{_DOCUMENT}: an object has a duplicate key")
        return members

    def whole(text: str) -> int:
        if len(text) > 40:
            refuse(text)
        return int(text)

    try:
        return json.loads(data, parse_float=refuse, parse_int=whole, parse_constant=refuse, object_pairs_hook=unique)
    except RecursionError:
        raise Damaged(f"{_DOCUMENT}: it is nested too deeply") from None
    except Damaged:
        raise
    except ValueError as error:
        raise Damaged(f"{_DOCUMENT}: {error}") from None


def _physical_memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 1 << 62


def _shown(path: Path) -> str:
    return repr(str(path))
