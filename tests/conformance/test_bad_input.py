"""Every wrong call: a typed error that names what is wrong, nothing half-encoded, the device still usable."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import numpy as np
import pytest

import ostinato as ost


class Case:
    """What a wrong call may use."""

    def __init__(self, dev: ost.Device, kernels: ost.Library) -> None:
        self.dev, self.kernels = dev, kernels
        self.able = dev.capabilities
        self.x, self.y = dev.zeros(16, np.float32), dev.zeros(16, np.float32)
        self.ints = dev.zeros(16, np.int32)
        self.raw = dev.zeros(64, np.uint8)
        self.freed = dev.zeros(16, np.float32)
        self.freed.free()
        self.encoder = dev.command_encoder()

    def call(self, kernel: str, *args: object, **options: object) -> None:
        self.encoder.dispatch(self.kernels[kernel], *args, **options)  # type: ignore[arg-type]


WRONG: dict[str, tuple[Callable[[Case], object], type[Exception], str]] = {
    # arguments
    "too few": (lambda c: c.call("inc_one", c.x, threads=4), ost.ArgumentError, "inc_one.*2.*1"),
    "too many": (lambda c: c.call("inc_one", c.x, c.y, c.x, threads=4), ost.ArgumentError, "inc_one.*2.*3"),
    "missing index": (lambda c: c.call("subtract", {1: c.x, 7: c.y}, threads=4), ost.ArgumentError, "subtract.*4 'b'"),
    "unknown index": (lambda c: c.call("inc_one", {0: c.x, 1: c.y, 2: 1}, threads=4), ost.ArgumentError, "index 2"),
    "wrong dtype": (lambda c: c.call("inc_one", c.ints, c.y, threads=4), ost.ArgumentError, "0 'in'.*float32.*int32"),
    "wrong NumPy dtype": (
        lambda c: c.call("scale", c.x, c.y, np.float64(1), threads=4),
        ost.ArgumentError,
        "factor.*float32.*float64",
    ),
    "wrong kind": (lambda c: c.call("scale", c.x, c.y, "two", threads=4), ost.ArgumentError, "2 'factor'.*'two'"),
    "None": (lambda c: c.call("scale", c.x, c.y, None, threads=4), ost.ArgumentError, "2 'factor'.*None"),
    "a list": (lambda c: c.call("scale", [1.0], c.y, 1.0, threads=4), ost.ArgumentError, r"0 'in'.*list \[1.0\]"),
    "None by index": (
        lambda c: c.call("subtract", {1: c.x, 4: None, 7: c.y}, threads=4),
        ost.ArgumentError,
        "4 'b'.*None",
    ),
    "wrong kind, and too many": (lambda c: c.call("bump", c.x, "two", threads=4), ost.ArgumentError, "bump.*'two'"),
    "an object array": (lambda c: c.call("scale", c.x, c.y, np.array([None]), threads=4), ost.ArgumentError, "scale"),
    "a number for written memory": (lambda c: c.call("bump", 1.0, threads=4), ost.ArgumentError, "0 'x'.*writes"),
    "an array for written memory": (
        lambda c: c.call("bump", np.ones(4, np.float32), threads=4),
        ost.ArgumentError,
        "writes",
    ),
    "a number for a struct": (lambda c: c.call("use_params", c.x, 3, threads=4), ost.ArgumentError, "Params"),
    "too small bytes": (lambda c: c.call("use_params", c.x, b"1234567", threads=4), ost.ArgumentError, "8 bytes.*7"),
    "too small buffer": (lambda c: c.call("use_params", c.x, c.y[:1], threads=4), ost.ArgumentError, "8 bytes.*4"),
    "too small array": (
        lambda c: c.call("sum_table", c.x, np.ones(3, np.float32), threads=1),
        ost.ArgumentError,
        "16 bytes.*12",
    ),
    "too much inline": (
        lambda c: c.call("sum_table", c.x, np.ones(c.able.max_inline_bytes // 4 + 1, np.float32), threads=1),
        ost.ArgumentError,
        "1 'table'.*Buffer",
    ),
    "far too much inline": (
        lambda c: c.call("sum_table", c.x, np.ones(1 << 20, np.float32), threads=1),
        ost.ArgumentError,
        "1 'table'.*Buffer",
    ),
    "out of range": (lambda c: c.call("store_uint", c.raw, -1, threads=1), ost.ArgumentError, "value.*-1.*uint32"),
    "too large": (lambda c: c.call("store_char", c.raw, 128, threads=1), ost.ArgumentError, "128.*int8"),
    "not whole": (lambda c: c.call("store_uint", c.raw, 1.5, threads=1), ost.ArgumentError, "1.5.*uint32"),
    "overflows half": (lambda c: c.call("store_half", c.raw, 70000, threads=1), ost.ArgumentError, "70000.*float16"),
    "overflows float": (lambda c: c.call("store_float", c.raw, 10**400, threads=1), ost.ArgumentError, "float32"),
    "nan for an integer": (lambda c: c.call("store_uint", c.raw, float("nan"), threads=1), ost.ArgumentError, "nan"),
    "complex": (lambda c: c.call("store_float", c.raw, 1j, threads=1), ost.ArgumentError, "1j"),
    "offset outside": (lambda c: c.call("bump", (c.x, 64), threads=1), ost.ArgumentError, "0 'x'.*offset 64"),
    "offset outside its view": (lambda c: c.call("bump", (c.x[:4], 16), threads=1), ost.ArgumentError, "offset 16"),
    "negative offset": (lambda c: c.call("bump", (c.x[4:], -4), threads=1), ost.ArgumentError, "offset -4"),
    "offset of no number": (lambda c: c.call("bump", (c.x, "4"), threads=1), ost.ArgumentError, "0 'x'.*'4'"),
    "misaligned offset": (lambda c: c.call("bump", (c.x, 2), threads=1), ost.ArgumentError, "aligned to 4"),
    "misaligned view": (lambda c: c.call("bump", c.raw[3:], threads=1), ost.ArgumentError, "aligned to 4"),
    "misaligned vector": (
        lambda c: c.call("sum_table", c.x, c.y[1:], threads=1),
        ost.ArgumentError,
        "aligned to (16|32)",
    ),
    "freed": (lambda c: c.call("inc_one", c.x, c.freed, threads=4), ost.FreedBuffer, "inc_one.*1 'out'"),
    "freed by index": (
        lambda c: c.call("inc_one", {0: c.freed, 1: c.x}, threads=4),
        ost.FreedBuffer,
        "inc_one.*0 'in'",
    ),
    "freed with offset": (lambda c: c.call("bump", (c.freed, 4), threads=4), ost.FreedBuffer, "bump"),
    "no kernel": (lambda c: c.encoder.dispatch("bump", c.x, threads=4), ost.ArgumentError, "Kernel"),  # type: ignore[arg-type]
    "kernel not there": (lambda c: c.call("bumb", c.x, threads=4), ost.KernelNotFound, "bumb"),
    # geometry
    "neither": (lambda c: c.call("bump", c.x), ost.GeometryError, "bump.*neither"),
    "both": (lambda c: c.call("bump", c.x, threads=4, groups=1), ost.GeometryError, "bump.*both"),
    "zero threads": (lambda c: c.call("bump", c.x, threads=0), ost.GeometryError, "threads 0"),
    "zero groups": (lambda c: c.call("bump", c.x, groups=(1, 0)), ost.GeometryError, "groups"),
    "groups of no size": (
        lambda c: c.call("bump", c.x, groups=4),
        ost.GeometryError,
        "bump.*groups= needs group_size=",
    ),
    "zero group size": (lambda c: c.call("bump", c.x, threads=4, group_size=0), ost.GeometryError, "group_size"),
    "negative": (lambda c: c.call("bump", c.x, threads=-4), ost.GeometryError, "-4"),
    "four axes": (lambda c: c.call("bump", c.x, threads=(1, 1, 1, 1)), ost.GeometryError, "axes"),
    "no axes": (lambda c: c.call("bump", c.x, threads=()), ost.GeometryError, "axes"),
    "fraction": (lambda c: c.call("bump", c.x, threads=4.0), ost.GeometryError, "4.0"),
    "text": (lambda c: c.call("bump", c.x, threads="4"), ost.GeometryError, "'4'"),
    "beyond 32 bits": (lambda c: c.call("bump", c.x, threads=1 << 32), ost.GeometryError, "4294967296"),
    "groups beyond 32 bits": (
        lambda c: c.call("bump", c.x, groups=1 << 30, group_size=8),
        ost.GeometryError,
        "threads",
    ),
    "group too large": (
        lambda c: c.call("bump", c.x, threads=4, group_size=c.able.max_threads_per_group + 1),
        ost.GeometryError,
        r"bump.*\d+.*\d+",
    ),
    "group too large for it": (
        lambda c: c.call("small_groups", c.x, threads=4, group_size=(8, 9)),
        ost.GeometryError,
        "72.*64",
    ),
    # threadgroup memory
    "shared missing": (
        lambda c: c.call("reverse_group", c.x, threads=16, shared={0: 64}),
        ost.ArgumentError,
        "1 'other'",
    ),
    "shared left out": (lambda c: c.call("reverse_group", c.x, threads=16), ost.ArgumentError, "0 'tile'"),
    "shared unknown": (lambda c: c.call("bump", c.x, threads=16, shared={2: 64}), ost.ArgumentError, "bump.*index 2"),
    "shared too large": (
        lambda c: c.call("reverse_group", c.x, threads=16, shared={0: 16, 1: c.able.threadgroup_memory_bytes}),
        ost.ArgumentError,
        "reverse_group.*memory",
    ),
    "shared of nothing": (
        lambda c: c.call("reverse_group", c.x, threads=16, shared={0: 0, 1: 64}),
        ost.ArgumentError,
        "tile",
    ),
    "shared of no number": (
        lambda c: c.call("reverse_group", c.x, threads=16, shared={0: 1.5, 1: 64}),
        ost.ArgumentError,
        "1.5",
    ),
    "shared no dictionary": (
        lambda c: c.call("reverse_group", c.x, threads=16, shared=[64, 64]),
        ost.ArgumentError,
        "shared",
    ),
    # annotations
    "reads of no buffer": (lambda c: c.call("bump", c.x, threads=4, reads=[3]), ost.ArgumentError, "Buffers"),
    "reads no list": (lambda c: c.call("bump", c.x, threads=4, reads=c.x), ost.ArgumentError, "Buffers"),
    "op kind": (lambda c: c.call("bump", c.x, threads=4, op_kind="Softmax"), ost.ArgumentError, "Softmax"),
    "set op kind": (lambda c: c.encoder.set_op_kind("Softmax"), ost.ArgumentError, "Softmax"),  # type: ignore[arg-type]
    "negative flops": (lambda c: c.call("bump", c.x, threads=4, flops=-1), ost.ArgumentError, "flops"),
    "empty scope": (lambda c: c.encoder.scope("").__enter__(), ost.LabelError, "label"),
    "empty label": (lambda c: c.encoder.commit_labeled(""), ost.LabelError, "label"),
    "label of no text": (lambda c: c.encoder.commit_and_wait_labeled(None), ost.LabelError, "None"),  # type: ignore[arg-type]
    "encoder with an empty label": (lambda c: c.dev.command_encoder(""), ost.LabelError, "label"),
    "barrier mode": (lambda c: c.dev.command_encoder(barriers="never"), ost.SettingError, "never"),
    "retain": (lambda c: c.dev.command_encoder(retain="x"), ost.ArgumentError, "retain='x'"),  # type: ignore[arg-type]
    # libraries
    "no source": (lambda c: c.dev.library(None), ost.ArgumentError, "source.*NoneType"),  # type: ignore[arg-type]
    "source of bytes": (lambda c: c.dev.library(b"kernel"), ost.ArgumentError, "source.*bytes"),  # type: ignore[arg-type]
    "a path as text": (lambda c: c.dev.library("k/x.metal"), ost.ArgumentError, r"path; pass Path\('k/x.metal'\)"),
    "constants no mapping": (lambda c: c.dev.library("", [1]), ost.ConstantError, "constants"),  # type: ignore[arg-type]
    "constants no mapping, falsy": (lambda c: c.dev.library("", []), ost.ConstantError, "constants"),  # type: ignore[arg-type]
    "defines no mapping": (
        lambda c: c.dev.library("", defines=["N"]),  # type: ignore[arg-type]
        ost.ArgumentError,
        "defines",
    ),
    "defines of a float": (
        lambda c: c.dev.library("", defines={"N": 1.5}),  # type: ignore[dict-item]
        ost.ArgumentError,
        "'N'.*1.5",
    ),
    "defines of no name": (
        lambda c: c.dev.library("", defines={1: 1}),  # type: ignore[dict-item]
        ost.ArgumentError,
        "1 is not the name",
    ),
    "one include folder": (lambda c: c.dev.library("", include_dirs="/usr"), ost.ArgumentError, "list of folders"),
    "include of no folder": (
        lambda c: c.dev.library("", include_dirs=[3]),  # type: ignore[list-item]
        ost.ArgumentError,
        "3 is not a folder",
    ),
    "include not there": (
        lambda c: c.dev.library("", include_dirs=["/no/such"]),
        ost.ArgumentError,
        "no folder '/no/such'",
    ),
    "registry of no device": (lambda c: ost.KernelRegistry(3), ost.ArgumentError, "Device, got int"),  # type: ignore[arg-type]
    "registry, name": (
        lambda c: ost.KernelRegistry(c.dev).register_source(1, ""),  # type: ignore[arg-type]
        ost.ArgumentError,
        "name",
    ),
    "registry, source": (
        lambda c: ost.KernelRegistry(c.dev).register_source("k", b""),  # type: ignore[arg-type]
        ost.ArgumentError,
        "source",
    ),
    "registry, includes": (
        lambda c: ost.KernelRegistry(c.dev).register_source("k", "", "/usr"),
        ost.ArgumentError,
        "include_dirs",
    ),
    "registry, defines": (
        lambda c: ost.KernelRegistry(c.dev).register_source("k", "", defines=[1]),  # type: ignore[arg-type]
        ost.ArgumentError,
        "defines",
    ),
    # buffers and pools
    "ragged": (lambda c: c.dev.array([[1, 2], [3]]), ost.ArgumentError, "array"),
    "pool of no device": (lambda c: ost.BufferPool(None), ost.ArgumentError, "Device"),  # type: ignore[arg-type]
    "release nothing": (lambda c: ost.BufferPool(c.dev).release(None), ost.PoolError, "NoneType"),  # type: ignore[arg-type]
    # copy and fill
    "copy sizes": (lambda c: c.encoder.copy(c.x, c.y[:8]), ost.ArgumentError, "copy"),
    "copy dtypes": (lambda c: c.encoder.copy(c.x, c.ints), ost.ArgumentError, "copy"),
    "copy onto itself": (lambda c: c.encoder.copy(c.x[:8], c.x[4:12]), ost.ArgumentError, "overlap"),
    "copy of a freed buffer": (lambda c: c.encoder.copy(c.freed, c.x), ost.FreedBuffer, "copy"),
    "copy of no buffer": (
        lambda c: c.encoder.copy(np.zeros(16), c.x),  # type: ignore[arg-type]
        ost.ArgumentError,
        r"expected a Buffer, got an array of float64 and shape \(16,\)$",
    ),
    "fill out of range": (lambda c: c.encoder.fill(c.raw, 256), ost.ArgumentError, "256.*uint8"),
    "fill with text": (lambda c: c.encoder.fill(c.x, "0"), ost.ArgumentError, "'0'"),
    "fill with another dtype": (lambda c: c.encoder.fill(c.x, np.float64(0)), ost.ArgumentError, "float64"),
    "fill with many": (lambda c: c.encoder.fill(c.x, np.zeros(2, np.float32)), ost.ArgumentError, "shape"),
    "fill of wide elements": (
        lambda c: c.encoder.fill(c.dev.empty(1, np.complex128), 0),
        ost.ArgumentError,
        "16 bytes",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_is_a_typed_error_and_leaves_nothing_behind(
    dev: ost.Device, kernels: ost.Library, name: str
) -> None:
    call, error, text = WRONG[name]
    case = Case(dev, kernels)
    case.call("bump", case.x, threads=16)
    with pytest.raises(error, match=text) as caught:
        call(case)
    assert isinstance(caught.value, ost.OstinatoError)
    case.call("bump", case.x, threads=16)
    with ost.counters.scope() as counts:
        case.encoder.commit_and_wait()
    assert counts.dispatches == 2
    assert (case.x.numpy() == 2).all()
    assert (case.y.numpy() == 0).all()


def test_an_encoder_is_used_up_by_its_commit(dev: ost.Device, kernels: ost.Library) -> None:
    x = dev.zeros(4, np.float32)
    encoder = dev.command_encoder()
    encoder.dispatch(kernels["bump"], x, threads=4)
    encoder.commit_and_wait()
    uses: list[Callable[[], object]] = [
        encoder.commit,
        encoder.commit_and_wait,
        lambda: encoder.commit_labeled("x"),
        lambda: encoder.dispatch(kernels["bump"], x, threads=4),
        encoder.memory_barrier,
        lambda: encoder.fill(x, 1),
        lambda: encoder.copy(x[:2], x[2:]),
        lambda: encoder.set_op_kind(ost.CapturedOpKind.Other),
        lambda: encoder.scope("late").__enter__(),
    ]
    for use in uses:
        with pytest.raises(ost.EncoderError, match="committed"):
            use()
    encoder.wait_until_completed()
    assert (x.numpy() == 1).all()


def test_buffers_and_kernels_of_another_device_are_refused(
    dev: ost.Device, own_dev: ost.Device, kernels: ost.Library
) -> None:
    mine, theirs = dev.zeros(4, np.float32), own_dev.zeros(4, np.float32)
    encoder = dev.command_encoder()
    encoder.dispatch(kernels["bump"], mine, threads=4)
    with pytest.raises(ost.WrongDevice, match=r"bump.*another device"):
        encoder.dispatch(kernels["bump"], theirs, threads=4)
    with pytest.raises(ost.WrongDevice):
        encoder.copy(mine, theirs)
    other = own_dev.command_encoder()
    with pytest.raises(ost.WrongDevice, match="another device"):
        other.dispatch(kernels["bump"], mine, threads=4)
    encoder.commit_and_wait()
    assert (theirs.numpy() == 0).all()


@pytest.mark.parametrize("act", [copy.copy, copy.deepcopy, pickle.dumps], ids=["copy", "deepcopy", "pickle"])
def test_what_belongs_to_a_device_is_not_copied(
    dev: ost.Device, kernels: ost.Library, act: Callable[[object], object]
) -> None:
    encoder = dev.command_encoder()
    pool = ost.BufferPool(dev)
    registry = ost.KernelRegistry(dev)
    done = dev.command_encoder().commit_and_wait()
    for thing in (dev, dev.zeros(1, np.float32), kernels, kernels["bump"], encoder, done, pool, registry):
        with pytest.raises(ost.CopyError, match="copied or pickled") as caught:
            act(thing)
        assert isinstance(caught.value, TypeError)
