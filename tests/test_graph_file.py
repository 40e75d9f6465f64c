"""Graphs in files: what is saved comes back, and whatever else is in a file is a typed error."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ostinato as ost
from graph_cases import LENGTH, SPECIAL, described, four_rows, one_of_everything, same_after, saved
from ostinato.graph.file import load_graph, save
from ostinato.graph.memory import GraphMemory, NamedRange
from ostinato.ir.command_list import CommandList
from ostinato.ir.commands import (
    Access,
    Barrier,
    BufferBinding,
    CompiledKernel,
    Copy,
    Dispatch,
    Fill,
    InlineBinding,
    KernelOrigin,
    ParamBinding,
)
from ostinato.ir.costs import Amount, Term


def repacked(path: Path, change: Callable[[dict[str, bytes]], object], **options: Any) -> Path:
    """The file with other entries, written as any zip program would write them."""
    with zipfile.ZipFile(path) as archive:
        entries = {one.filename: archive.read(one) for one in archive.infolist()}
    change(entries)
    target = path.with_name("changed.graph")
    with zipfile.ZipFile(target, "w", **options) as archive:
        for entry, data in entries.items():
            archive.writestr(entry, data)
    return target


def with_entry(path: Path, name: str, data: bytes) -> Path:
    """The file with one entry added or replaced."""
    return repacked(path, lambda entries: entries.update({name: data}))


def edited(path: Path, change: Callable[[Any], Any]) -> Path:
    """The file with another document."""

    def edit(entries: dict[str, bytes]) -> None:
        document = json.loads(entries["graph.json"])
        result = change(document)
        entries["graph.json"] = json.dumps(document if result is None else result).encode()

    return repacked(path, edit)


@pytest.fixture
def buffers(dev: ost.Device) -> list[ost.Buffer]:
    return four_rows(dev)


@pytest.fixture
def graph(dev: ost.Device, kernels: ost.Library, buffers: list[ost.Buffer]) -> ost.Graph:
    return one_of_everything(dev, kernels, buffers)


# --- there and back -------------------------------------------------------------------------------------------------


def test_the_same_graph_gives_the_same_bytes_and_so_does_what_was_loaded(graph: ost.Graph, tmp_path: Path) -> None:
    first = saved(graph, tmp_path).read_bytes()
    assert saved(graph, tmp_path).read_bytes() == first
    assert saved(load_graph(saved(graph, tmp_path)), tmp_path).read_bytes() == first


def test_loading_needs_no_device_and_no_compiler(graph: ost.Graph, tmp_path: Path, script: Any) -> None:
    path = saved(graph, tmp_path)
    done = script(
        """
        from ostinato.graph.file import load_graph
        graph = load_graph(sys.argv[1])
        print(graph, graph.to_dot(), graph.reasons(0, 1), graph.edges)
        """,
        str(path),
        CXX="/bin/false",
        PATH="",
        OSTINATO_CACHE_DIR=str(tmp_path / "cache"),
    )
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "cache").exists()


def test_buffers_over_the_same_bytes_stay_over_the_same_bytes(
    dev: ost.Device, kernels: ost.Library, tmp_path: Path
) -> None:
    memory = np.arange(1 + 2 * LENGTH, dtype=np.float32)[1:]  # begins where no device's memory would
    whole, half = dev.from_dlpack(memory), dev.from_dlpack(memory[16:])

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(kernels["bump"], whole, threads=2 * LENGTH)
        enc.dispatch(kernels["bump"], half, threads=LENGTH)

    graph = dev.capture(encode).named(whole=whole)
    assert len(graph.memories) == 2
    loaded = load_graph(saved(graph, tmp_path))
    assert described(loaded) == described(graph)
    assert loaded.edges.tolist() == [[0, 1]]
    same_after(graph, loaded, dev)


def test_memories_that_touch_do_not_overlap_and_stay_apart(
    dev: ost.Device, kernels: ost.Library, tmp_path: Path
) -> None:
    memory = np.arange(2 * LENGTH, dtype=np.float32)
    left, right = dev.from_dlpack(memory[:LENGTH]), dev.from_dlpack(memory[LENGTH:])

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(kernels["bump"], left, threads=LENGTH)
        enc.dispatch(kernels["bump"], right, threads=LENGTH)

    loaded = load_graph(saved(dev.capture(encode), tmp_path))
    first, second = sorted(loaded.memories.values(), key=lambda one: one.address)
    assert first.address + first.nbytes < second.address
    assert loaded.edges.tolist() == []


@pytest.mark.parametrize("value", [0.1, float("inf"), -0.0, 1e-45, np.float32(0.3), 7])
def test_function_constants_come_back_exactly(dev: ost.Device, value: Any, tmp_path: Path) -> None:
    kernel = dev.library(SPECIAL, {"add": np.uint32(1), "by": value, 2: np.bool_(False)})["special"]
    x, y = dev.array(np.ones(4, np.float32)), dev.zeros(4, np.float32)
    graph = dev.capture(lambda enc: enc.dispatch(kernel, x, y, threads=4)).named(y=y)
    loaded = load_graph(saved(graph, tmp_path))
    command = loaded[0].command
    assert isinstance(command, Dispatch)
    assert command.kernel.origin is not None
    assert repr(dict(command.kernel.origin.constants)) == repr(
        {"add": 1, "by": getattr(value, "item", lambda: value)(), 2: False}
    )
    same_after(graph, loaded, dev)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (ost.Graph, "command_list memories names outputs dropped splits reports moved_from label _queue"),
        (CommandList, "nodes ordering params"),
        (ost.CapturedNode, "command place origin lowered"),
        (ost.Param, "name dtype shape"),
        (GraphMemory, "number address nbytes allocation contents"),
        (NamedRange, "name memory begin end dtype shape"),
        # Not saved: the source is one text that the macros are already in, and the rest follows from it.
        (KernelOrigin, "module constants file defines digest values specialisation _definitions"),
        (
            CompiledKernel,
            "name signature max_threads_per_group threadgroup_bytes argument_bytes argument_alignments code origin "
            "execution log_sites arena_bytes warnings",
        ),
        (
            Dispatch,
            "kernel bindings kind threads groups group_size shared op_kind label accesses"
            " bytes_read bytes_written flops place spans",  # nodes have, and save, a place of their own
        ),
        (Copy, "source target label"),
        (Fill, "target pattern label"),
        (Barrier, ""),
        (BufferBinding, "index allocation address offset nbytes writes"),
        (InlineBinding, "index data"),
        (ParamBinding, "index name nbytes"),
        (Amount, "base terms"),
        (Term, "param factor plus upto"),
        (Access, "begin end write"),
    ],
)
def test_the_format_knows_every_field_there_is(kind: Any, fields: str) -> None:
    """A new field is saved, checked on loading and described in docs/graph-file.md, or left out on purpose."""
    names = getattr(kind, "_fields", None) or [field.name for field in dataclasses.fields(kind)]
    assert list(names) == fields.split()


# --- saving ---------------------------------------------------------------------------------------------------------


def test_a_saved_file_is_its_owners_alone_and_nothing_else_is_left(graph: ost.Graph, tmp_path: Path) -> None:
    path = saved(graph, tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == [path.name]


def test_a_save_that_fails_leaves_the_old_file(
    graph: ost.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(graph, tmp_path)
    before = path.read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ost.GraphFileError, match="No space left"):
        saved(graph, tmp_path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [path.name]


def test_saving_through_a_link_keeps_the_link(graph: ost.Graph, tmp_path: Path) -> None:
    link = tmp_path / "link.graph"
    link.symlink_to(tmp_path / "case.graph")
    save(graph, link)
    assert link.is_symlink()
    assert described(load_graph(tmp_path / "case.graph")) == described(graph)


@pytest.mark.parametrize("where", ["no/such/folder/x.graph", ".", "\0", ""])
def test_a_path_that_cannot_be_written_is_a_typed_error(graph: ost.Graph, tmp_path: Path, where: str) -> None:
    with pytest.raises(ost.GraphFileError):
        save(graph, f"{tmp_path}/{where}" if where else "")


def test_what_is_no_path_no_graph_or_no_flag_is_a_typed_error(graph: ost.Graph, tmp_path: Path) -> None:
    calls: tuple[Callable[[], object], ...] = (
        lambda: save(graph, 3),  # type: ignore[arg-type]
        lambda: save("graph", tmp_path / "x"),  # type: ignore[arg-type]
        lambda: save(graph, tmp_path / "x", contents=1),  # type: ignore[arg-type]
        lambda: load_graph(b"x"),  # type: ignore[arg-type]
    )
    for call in calls:
        with pytest.raises(ost.ArgumentError):
            call()


def test_what_could_not_be_loaded_is_not_saved(dev: ost.Device, kernels: ost.Library, tmp_path: Path) -> None:
    x = dev.zeros(4, np.float32)

    def encode(enc: ost.CommandEncoder) -> None:
        with enc.scope("x" * 100_000):
            enc.dispatch(kernels["bump"], x, threads=4)

    with pytest.raises(ost.GraphFileError, match="label"):
        saved(dev.capture(encode), tmp_path)
    odd = dev.capture(lambda enc: enc.dispatch(kernels["bump"], x, threads=4)).named(x=x.view(np.dtype("V16")))
    with pytest.raises(ost.GraphFileError, match="dtype"):
        saved(odd, tmp_path)
    assert not os.listdir(tmp_path)


# --- files that are not what they should be -------------------------------------------------------------------------


def refused(path: Path, match: str) -> None:
    with pytest.raises(ost.GraphFileError, match=match) as raised:
        load_graph(path)
    assert repr(str(path)) in str(raised.value)
    assert str(raised.value).isprintable()


@pytest.mark.parametrize(
    "data", [b"", b"PK", b"PK\x03\x04", b"\x7fELF", b"PK\x05\x06" + bytes(18), b"PK\x03\x04" * 999]
)
def test_what_is_no_graph_file_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "no.graph"
    path.write_bytes(data)
    refused(path, "damaged|not a graph")


def test_a_folder_a_pipe_and_nothing_at_all_are_refused(tmp_path: Path) -> None:
    refused(tmp_path, "regular")
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "regular")
    refused(tmp_path / "none", "No such file")


def test_a_zip_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("word/document.xml", "<x/>")
    refused(path, "'graph.json' is missing")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("graph.json", "{}")
    refused(path, "not an ostinato graph")


def test_a_newer_version_says_who_wrote_it_and_what_to_do(graph: ost.Graph, tmp_path: Path) -> None:
    path = edited(saved(graph, tmp_path), lambda document: {**document, "version": 3, "creator": "ostinato 9.1"})
    refused(path, r"version 3 .* by ostinato 9\.1; .* newer ostinato")
    new = {"format": "ostinato graph", "version": 4, "creator": "x", "all": "is new"}
    refused(with_entry(edited(path, lambda _: new), "extra", b"1"), "version 4")


def test_an_older_version_says_so_whatever_else_differs(graph: ost.Graph, tmp_path: Path) -> None:
    old = {"format": "ostinato graph", "version": 1, "creator": "ostinato 0.0.9", "all": "was other"}
    path = edited(saved(graph, tmp_path), lambda _: old)
    refused(path, r"version 1 .* an older version of ostinato \(ostinato 0\.0\.9\); .*capture the graph again")


def test_every_truncation_is_refused(graph: ost.Graph, tmp_path: Path) -> None:
    data = saved(graph, tmp_path).read_bytes()
    path = tmp_path / "short.graph"
    for length in {*range(0, len(data), 97), len(data) - 1}:
        path.write_bytes(data[:length])
        refused(path, "damaged|not a graph")


def test_every_entry_is_needed_and_no_other_is_taken(graph: ost.Graph, tmp_path: Path) -> None:
    path = saved(graph, tmp_path)
    for name in zipfile.ZipFile(path).namelist():
        refused(repacked(path, lambda entries, name=name: entries.pop(name)), "missing")  # type: ignore[misc]
    for name in ("../x", "/etc/passwd", "sources/999.metal", "sources/002.metal", "memory/004.bin", "GRAPH.JSON", "x/"):
        refused(with_entry(path, name, b""), "unknown entry")


def test_an_entry_twice_is_refused(graph: ost.Graph, tmp_path: Path) -> None:
    path = saved(graph, tmp_path)
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(path, "a") as archive:
        archive.writestr("sources/000.metal", "kernel void other() {}")
    refused(path, "two entries")


def test_compressed_entries_are_refused_unread(graph: ost.Graph, tmp_path: Path) -> None:
    path = saved(graph, tmp_path)
    refused(repacked(path, lambda entries: None, compression=zipfile.ZIP_DEFLATED), "compressed")
    bomb = repacked(
        path, lambda entries: entries.update({"graph.json": b" " * (100 << 20)}), compression=zipfile.ZIP_BZIP2
    )
    assert bomb.stat().st_size < 10_000
    refused(bomb, "compressed")


def test_an_entry_cannot_claim_to_be_larger_than_the_file(graph: ost.Graph, tmp_path: Path) -> None:
    path = saved(graph, tmp_path)
    data = bytearray(path.read_bytes())
    at = data.index(b"PK\x01\x02")  # the first entry of the directory is the document
    data[at + 20 : at + 28] = struct.pack("<2I", 1 << 31, 1 << 31)
    path.write_bytes(data)
    refused(path, "at most|damaged")


def test_entries_cannot_share_their_bytes(graph: ost.Graph, tmp_path: Path) -> None:
    inner = zipfile.ZipInfo("memory/001.bin")
    inside = bytes(100_000)
    inner.file_size = inner.compress_size = len(inside)
    inner.CRC = zlib.crc32(inside)
    outside = inner.FileHeader() + inside  # the bytes of one memory, and an entry of their own

    def grow(document: Any) -> None:
        for position, size in ((0, len(outside)), (1, len(inside))):
            document["memories"][position].update(nbytes=size, contents=True, address=1 << (40 + position))

    path = edited(saved(graph, tmp_path, contents=False), grow)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("memory/000.bin", outside)
        inner.header_offset = archive.start_dir - len(outside)
        archive.filelist.append(inner)
        archive.NameToInfo[inner.filename] = inner
    refused(path, "[Oo]verlap")


def test_an_object_that_names_something_twice_is_refused(graph: ost.Graph, tmp_path: Path) -> None:
    path = saved(graph, tmp_path)
    document = zipfile.ZipFile(path).read("graph.json")
    assert described(load_graph(with_entry(path, "graph.json", document))) == described(graph)
    refused(
        with_entry(path, "graph.json", document.replace(b'"splits":[]', b'"splits":[],"splits":[]')), "duplicate key"
    )


def test_encrypted_entries_are_refused(graph: ost.Graph, tmp_path: Path) -> None:
    path = saved(graph, tmp_path)
    data = bytearray(path.read_bytes())
    at = data.index(b"PK\x01\x02")
    data[at + 8] |= 1
    path.write_bytes(data)
    refused(path, "encrypted")


def test_contents_that_are_too_short_or_too_long_are_refused(graph: ost.Graph, tmp_path: Path) -> None:
    path = saved(graph, tmp_path)
    refused(with_entry(path, "memory/000.bin", b"1"), "it has 1 bytes, not 256")
    refused(with_entry(path, "memory/000.bin", bytes(257)), "at most 256")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        "[" * 200_000,
        '{"a":' * 200_000,
        "9" * 10_000,
        "NaN",
        '{"format": NaN}',
        "1e999",
        '{"format": "ostinato graph", "format": "ostinato graph"}',
        '"\\ud800"',
        "\x00",
        "\xff\xfe",
        '{"format":"ostinato graph","version":true,"creator":"x"}',
        '{"format":"ostinato graph","version":' + "9" * 5000 + ',"creator":"x"}',
        '{"format":"ostinato graph","version":2,"creator":"\\u001b[2J"}',
    ],
    ids=repr,
)
def test_what_is_no_document_is_refused(graph: ost.Graph, tmp_path: Path, text: str) -> None:
    data = text.encode("latin-1")
    refused(with_entry(saved(graph, tmp_path), "graph.json", data), "graph|version|creator|constant")


def test_a_source_cannot_read_files(graph: ost.Graph, tmp_path: Path) -> None:
    path = saved(graph, tmp_path)
    (tmp_path / "secret.h").write_text("#error secret\n")
    original = zipfile.ZipFile(path).read("sources/000.metal")
    for name in (
        '"secret.h"',
        "<secret.h>",
        f'"{tmp_path}/secret.h"',
        f"<{tmp_path}/secret.h>",
        "</etc/passwd>",
        '"metal_stdlib"',
    ):
        text = f"#include {name}\n".encode() + original
        refused(with_entry(path, "sources/000.metal", text), "was not found")


def test_a_source_that_is_no_kernel_source_is_refused(graph: ost.Graph, tmp_path: Path) -> None:
    path = saved(graph, tmp_path)
    grow = "#define A0 x x\n" + "".join(f"#define A{n + 1} A{n} A{n}\n" for n in range(40)) + "A40\n"
    for text in (
        "kernel void k(",
        "\xff",
        '"',
        "/*",
        grow,
        "(" * 100_000,
        '#line 1 "\x1b[2J"\n',
        "kernel void other() {}",
    ):
        data = text.encode("latin-1")
        refused(with_entry(path, "sources/000.metal", data), "sources/000|kernel 0")


def put(*path: Any, value: Any) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        for step in path[:-1]:
            document = document[step]
        document[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (put("ordering", value="any"), "ordering: expected one of serial, .*, not 'any'"),
        (put("label", value=""), "label"),
        (put("label", value="x" * 70_000), "at most 65536"),
        (put("surprise", value=1), "'surprise' is unknown"),
        (put("sources", value=1025), "sources"),
        (put("kernels", 0, "name", value="no_such"), "no kernel 'no_such'"),
        (put("kernels", 0, "source", value=2), "source: expected an integer from 0 to 1"),
        (put("kernels", 0, "argument_bytes", value=[4, 4]), "has 3 arguments"),
        (put("kernels", 0, "argument_alignments", value=[4, 4, 3]), "power of two"),
        (put("kernels", 1, "constants", value=[]), "without a value"),
        (put("kernels", 1, "constants", 0, value=[0, "float", "0x1p+999"]), "cannot take"),
        (put("kernels", 1, "constants", 0, value=[9, "int", 1]), "no function constant 9"),
        (put("memories", 0, "nbytes", value=255), "at most 255|ends|expected an integer"),
        (put("memories", 0, "address", value=1 << 62), "address"),
        (put("memories", 0, "address", value=4098), "not aligned|cannot fill"),
        (put("params", 0, "name", value="class"), "identifier"),
        (put("params", 0, "name", value="rebuild"), "replay has an argument named"),
        (put("params", 0, "name", value="a"), "parameter"),
        (put("params", 0, "dtype", value="object"), "not a dtype"),
        (put("params", 0, "dtype", value="O"), "not a dtype"),
        (put("params", 0, "shape", value=[1 << 61, 1 << 61]), "not a shape"),
        (put("params", 0, "shape", value=[0]), "a parameter has 1 to"),
        (put("names", 0, "shape", value=[63]), "does not take 256 bytes"),
        (put("names", 0, "name", value="b"), "occurs twice"),
        (put("names", 0, "range", value=[0, 0, 257]), "bytes"),
        (put("names", 0, value={"name": "a", "range": [0, 0, 4], "dtype": "float32", "shape": [1]}), "bytes outside"),
        (put("outputs", 0, value=[9, 0, 1]), "memory"),
        (put("splits", value=[3, 2]), "ascend"),
        (put("splits", value=[0]), "splits"),
        (put("reports", value=[1]), "report 0"),
        (put("nodes", 0, "op", value="launch"), "expected one of .*, not 'launch'"),
        (put("nodes", 0, "kernel", value=-1), "kernel"),
        (put("nodes", 0, "arguments", 0, value=["buffer", 0, 1, 255]), "not aligned"),
        (put("nodes", 0, "arguments", 1, value=["inline", "00000000"]), "must be a buffer"),
        (put("nodes", 0, "arguments", 2, value=["inline", "000000"]), "takes 4 bytes"),
        (put("nodes", 0, "arguments", 2, value=["inline", "0 000000"]), "hexadecimal"),
        (put("nodes", 0, "arguments", 2, value=["param", "nobody"]), "no parameter 'nobody'"),
        (put("nodes", 0, "arguments", 2, value=[]), "expected a buffer"),
        (put("nodes", 0, "threads", value=[65, 1, 1]), "do not make"),
        (put("nodes", 0, "threads", value=[0, 1, 1]), "threads"),
        (put("nodes", 0, "group_size", value=[2048, 1, 1]), "allows"),
        (put("nodes", 0, "accesses", value=[[0, 0, 256, "both"]]), "expected one of read, write, not 'both'"),
        (put("nodes", 0, "op_kind", value="Magic"), "op_kind"),
        (put("nodes", 0, "flops", value=-1), "flops"),
        (put("nodes", 0, "flops", value={"base": 1}), "flops: no 'terms'"),
        (put("nodes", 0, "flops", value={"base": 1, "terms": []}), "flops: an amount needs terms"),
        (put("nodes", 0, "flops", value={"base": 1, "terms": [["factor", 1, 0, None]]}), "not an integer parameter"),
        (put("nodes", 0, "flops", value={"base": 1, "terms": [["__import__('os')", 1, 0, 1]]}), "not an integer"),
        (put("nodes", 0, "flops", value={"base": 1, "terms": [[{}, 1, 0, 1]]}), "not an integer parameter"),
        (put("nodes", 0, "place", value=["/home/x.py", 1]), "base name"),
        (put("nodes", 0, "place", value=["\x1b[2J", 1]), "base name"),
        (put("nodes", 0, "origin", value=[True]), "origin"),
        (put("nodes", 4, "source", value=[3, 64, 64]), "not overlap"),
        (put("nodes", 5, "pattern", value="000000"), "cannot fill"),
        (put("nodes", 6, "shared", value=[256]), "shared"),
        (put("nodes", 6, "shared", value=[256, 8]), "multiples of 16"),
    ],
)  # fmt: skip
def test_a_document_with_one_wrong_value_says_which(
    graph: ost.Graph, tmp_path: Path, change: Callable[[Any], None], match: str
) -> None:
    refused(edited(saved(graph, tmp_path, contents=False), change), match)


def test_a_device_that_lacks_something_is_a_typed_error_and_runs_nothing(
    dev: ost.Device, graph: ost.Graph, tmp_path: Path
) -> None:
    path = saved(graph, tmp_path, contents=False)
    dispatched = ost.dispatch_count()
    large = load_graph(edited(path, put("memories", 3, "nbytes", value=1 << 50)))
    with pytest.raises(ost.OutOfMemory):
        large.instantiate(dev)
    shared = load_graph(edited(path, put("nodes", 6, "shared", value=[1 << 24, 16])))
    with pytest.raises(ost.GraphError, match=r"node 6, .*threadgroup memory"):
        shared.instantiate(dev)
    groups = edited(path, put("kernels", 0, "max_threads_per_group", value=1 << 20))
    groups = edited(groups, put("nodes", 0, "group_size", value=[1 << 19, 1, 1]))
    with pytest.raises(ost.GraphError, match=r"node 0, .*group_size"):
        load_graph(groups).instantiate(dev)
    with pytest.raises(ost.GraphError, match="on no device"):
        load_graph(path).instantiate()
    assert ost.dispatch_count() == dispatched


def test_buffers_of_a_device_are_not_taken_for_memory_of_a_loaded_graph(
    dev: ost.Device, graph: ost.Graph, tmp_path: Path
) -> None:
    loaded = load_graph(edited(saved(graph, tmp_path, contents=False), put("names", value=[])))
    buffer = dev.zeros(LENGTH, np.float32)
    number = buffer._allocation().backing.number
    alike = replace(loaded, memories={number: loaded.memories[0]})  # a file may give its memories any real one's number
    with pytest.raises(ost.GraphError, match="does not use"):
        alike.named(x=buffer)


def usable(graph: ost.Graph, folder: Path) -> None:
    """Whatever was loaded can be looked at and saved."""
    assert str(graph).replace("\n", "").isprintable()
    graph.to_dot()
    graph.save(folder / "again.graph")
    assert described(load_graph(folder / "again.graph")) == described(graph)


def loaded_or_refused(path: Path) -> ost.Graph | None:
    try:
        return load_graph(path)
    except ost.GraphFileError as error:
        message = str(error)
    assert message.isprintable()
    return None


FUZZED = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@given(st.data())
@FUZZED
def test_a_file_with_any_byte_changed_is_refused_or_the_same(
    graph: ost.Graph, tmp_path: Path, data: st.DataObject
) -> None:
    path = tmp_path / "whole.graph"
    if not path.exists():
        graph.save(path, contents=True)
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1) | st.integers(len(content) - 700, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    changed = tmp_path / "changed.graph"
    changed.write_bytes(content)
    loaded = loaded_or_refused(changed)
    if loaded is None:
        return
    original = load_graph(path)
    assert described(loaded) == described(original)
    assert [one.contents for one in loaded.memories.values()] == [one.contents for one in original.memories.values()]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
    | st.sampled_from([-1, 0, 1, 2, 255, 1 << 31, 1 << 32, 1 << 62, 1 << 63, 1 << 64, "on", "", "\ud800", "\x1b[2J"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@given(st.data())
@FUZZED
def test_a_document_with_anything_changed_is_refused_or_a_graph(
    graph: ost.Graph, tmp_path: Path, data: st.DataObject
) -> None:
    path = tmp_path / "whole.graph"
    if not path.exists():
        graph.save(path)

    def change(document: Any) -> Any:
        at: Any = document
        for _ in range(data.draw(st.integers(0, 5))):
            keys = list(at) if isinstance(at, dict) else list(range(len(at)))
            step = data.draw(st.sampled_from(keys))
            if not isinstance(at[step], dict | list) or not at[step]:
                break
            at = at[step]
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        step = data.draw(st.sampled_from(keys))
        how = data.draw(st.sampled_from(["replace", "remove", "repeat", "swap"]))
        if how == "replace":
            at[step] = data.draw(VALUES)
        elif how == "remove":
            del at[step]
        elif how == "repeat" and isinstance(at, list):
            at.append(copy.deepcopy(at[step]))
        else:
            other = data.draw(st.sampled_from(keys))
            at[step], at[other] = at[other], at[step]

    loaded = loaded_or_refused(edited(path, change))
    if loaded is not None:
        usable(loaded, tmp_path)


@given(st.data())
@settings(FUZZED, max_examples=60)
def test_a_source_with_anything_changed_is_refused_or_a_graph(
    graph: ost.Graph, tmp_path: Path, data: st.DataObject
) -> None:
    path = tmp_path / "whole.graph"
    if not path.exists():
        graph.save(path)

    def change(entries: dict[str, bytes]) -> None:
        text = entries["sources/001.metal"].decode()
        first = data.draw(st.integers(0, len(text)))
        last = data.draw(st.integers(first, min(first + 20, len(text))))
        new = data.draw(
            st.text("(){}[]<>;,#\"'\\/* \n0abc=&|!?:.$\x00\x1b", max_size=4) | st.just("#include </etc/passwd>\n")
        )
        entries["sources/001.metal"] = (text[:first] + new + text[last:]).encode()

    loaded = loaded_or_refused(repacked(path, change))
    if loaded is not None:
        usable(loaded, tmp_path)
