"""What of the CUDA backend can be tested on any machine: records, edges, layouts, native source, reasons."""

from __future__ import annotations

import ctypes
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ostinato as ost
from fake_driver import Arena
from ostinato import msl
from ostinato.backends import copy_fill, records
from ostinato.backends.conditions import Conditions
from ostinato.backends.cuda import api, compiling, conditions, graphs, launches, nsight, rings
from ostinato.backends.cuda.kernels import Functions
from ostinato.ir import hazards
from ostinato.ir.commands import Access, BufferBinding, CompiledKernel, Copy, Dispatch, Fill
from ostinato.native.building import host_library

BACKEND = Path(launches.__file__).parent
FUNCTIONS = Functions(1, 2)
ENTRY = ctypes.addressof(FUNCTIONS)
FAR = 7_654_321_000

grids = st.tuples(*[st.integers(1, 40)] * 3)
accesses = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 6), st.booleans()), max_size=3)


@pytest.fixture(scope="module")
def launcher(private_environment: None) -> Any:
    library: Any = host_library("CUDA launcher", [BACKEND / "launcher.cpp"], linking=("-ldl",))
    library.ost_cuda_slots.argtypes = (ctypes.c_char_p, ctypes.c_uint64, ctypes.c_void_p)
    library.ost_cuda_slots.restype = ctypes.c_uint64
    return library


def record(groups: tuple[int, int, int] = (1, 1, 1), size: tuple[int, int, int] = (32, 1, 1)) -> bytes:
    threads = (groups[0] * size[0], groups[1] * size[1], groups[2] * size[2])
    return launches.record(ENTRY, threads, size, groups, 64, bytes(160))


def spans(listed: list[tuple[int, int, bool]]) -> tuple[Access, ...]:
    return tuple(Access(begin, begin + length, write) for begin, length, write in listed)


# --- records ---------------------------------------------------------------------------------------------------------


def test_a_launch_is_read_back_from_its_record() -> None:
    one = record((3, 2, 5), (8, 4, 2))
    launch = launches.launch_of(one)
    assert launch is not None
    assert (launch.entry, launch.blocks, launch.threads, launch.shared_bytes) == (ENTRY, 30, 64, 64)
    assert len(one) - launch.params_at >= 160
    assert launch.params_at % records.ALIGNMENT == 0
    assert launches.launch_of(records.barrier()) is None


@given(st.lists(st.one_of(st.none(), st.tuples(grids, st.tuples(*[st.integers(1, 10)] * 3))), max_size=8))
def test_both_launchers_agree_on_where_times_go(launcher: Any, work: list[Any]) -> None:
    lowered = [records.barrier() if one is None else record(*one) for one in work]
    starts = np.empty(len(lowered) + 1, np.uint32)
    assert launcher.ost_cuda_slots(b"".join(lowered), len(lowered), starts.ctypes.data) == 0
    assert starts.tolist() == launches.sample_starts(lowered).tolist()


def test_a_kernel_without_an_instrumented_variant_is_named_before_times_are_asked_of_it(launcher: Any) -> None:
    untimed = Functions(1, 0)
    one = launches.record(ctypes.addressof(untimed), (32, 1, 1), (32, 1, 1), (1, 1, 1), 0, bytes(96))
    starts = np.empty(2, np.uint32)
    assert launcher.ost_cuda_slots(one, 1, starts.ctypes.data) == ctypes.addressof(untimed)


@pytest.mark.parametrize(
    ("blocks", "threads", "copies", "pairs"),
    [
        (1, 1, 1, 1),
        (3, 64, 1, 6),
        (132, 256, 1000, 1056),
        (512, 256, 512, 4096),
        (10**6, 32, 1, 4096),
        (10**6, 32, 513, 2048),
        (10**6, 32, 70_000, 32),
    ],
)
def test_every_warp_has_a_pair_until_there_are_too_many(
    launcher: Any, blocks: int, threads: int, copies: int, pairs: int
) -> None:
    lowered = [record((blocks, 1, 1), (threads, 1, 1))] * copies
    starts = launches.sample_starts(lowered)
    assert (np.diff(starts) == pairs).all()
    also = np.empty(copies + 1, np.uint32)
    assert launcher.ost_cuda_slots(b"".join(lowered), copies, also.ctypes.data) == 0
    assert np.array_equal(starts, also)


def test_flags_are_added_and_the_rest_of_the_head_stays() -> None:
    params = ctypes.create_string_buffer(launches.HEAD.size)
    launches.HEAD.pack_into(params, 0, 96, 1, 1, 32, 1, 1, 3, 1, 1, launches.ONE_ROW, 96, 32, 0, 0, 0)
    launch = launches.Launch(ENTRY, 3, 32, 0, 0)
    launches.aim(params, launch, 0x7F0000001000, 3, launches.WAITS)
    *grid, flags, row_threads, row_group, mask, pairs, zero = launches.HEAD.unpack_from(params)
    assert grid == [96, 1, 1, 32, 1, 1, 3, 1, 1]
    assert flags == launches.ONE_ROW | launches.WAITS | launches.OWN_SLOTS
    assert (row_threads, row_group, mask, pairs, zero) == (96, 32, 2**32 - 1, 0x7F0000001000, 0)


def test_the_head_lies_in_memory_as_both_sides_say(nvrtc: Any) -> None:
    translation = msl.parse("kernel void k(device float *x [[buffer(0)]]) { x[0] = 1; }").translate("cuda")
    facts = {
        "flags": launches.FLAGS_AT, "sample_mask": launches.MASK_AT, "samples": launches.SAMPLES_AT,
        "grid": 0, "group_size": 12, "groups": 24, "row_threads": 52, "row_group": 56,
    }  # fmt: skip
    # Not by offsetof, which NVRTC 13.0 does not have: each kernel stores one distance, far from any other number.
    kernels = "".join(
        f'extern "C" __global__ void at_{name}(unsigned long long *out, const __ost::Head *head) {{'
        f" *out = {FAR} + ((const char *)&head->{name} - (const char *)head); }}\n"
        for name in facts
    )
    text = translation.text.rpartition("}")
    compiled = nvrtc.compile_text(f"{text[0]}{kernels}{text[1]}{text[2]}")
    assert compiled.ptx, compiled.log
    for name, at in facts.items():
        assert re.search(rf"\b{FAR + at}\b", compiled.entry(f"at_{name}")), name
    assert launches.HEAD.size == msl.parameter_layout(translation.kernels["k"], [4]).addresses


def test_slots_and_arenas_lie_in_memory_as_both_sides_say(nvrtc: Any) -> None:
    facts = {f"Slot {name}": getattr(rings.Slot, name).offset for name, *_ in rings.Slot._fields_}
    facts |= {f"Arena {name}": getattr(Arena, name).offset for name, *_ in Arena._fields_}
    text = (BACKEND / "support.cu").read_text()
    for fact in facts:
        kind, name = fact.split()
        text += (
            f'extern "C" __global__ void at_{kind}_{name}(unsigned long long *out, const {kind} *it) {{'
            f" *out = {FAR} + ((const char *)&it->{name} - (const char *)it); }}\n"
        )
    compiled = nvrtc.compile_text(text)
    assert compiled.ptx, compiled.log
    for fact, at in facts.items():
        assert re.search(rf"\b{FAR + at}\b", compiled.entry(f"at_{fact.replace(' ', '_')}")), fact


# --- edges -----------------------------------------------------------------------------------------------------------


@settings(max_examples=200)
@given(st.lists(st.one_of(st.none(), accesses), max_size=14))
def test_a_native_graph_orders_exactly_what_the_edges_order(listed: list[Any]) -> None:
    lowered = [records.barrier() if one is None else record() for one in listed]
    edges = np.array(hazards.edges([None if one is None else spans(one) for one in listed]), np.uint32).reshape(-1, 2)
    nodes = graphs._nodes(lowered, edges)
    wanted = closure(len(lowered), edges.tolist())
    place = {node.index: at for at, node in enumerate(nodes)}
    got = closure(len(nodes), [(other, at) for at, node in enumerate(nodes) for other in node.predecessors])
    for after in range(len(lowered)):
        for before in range(after):
            if listed[before] is not None and listed[after] is not None:
                assert ((place[before], place[after]) in got) == ((before, after) in wanted)


def closure(count: int, pairs: list[Any]) -> set[tuple[int, int]]:
    reached: list[set[int]] = [set() for _ in range(count)]
    for before, after in sorted(map(tuple, pairs), key=lambda pair: pair[1]):
        reached[after] |= reached[before] | {before}
    return {(before, after) for after in range(count) for before in reached[after]}


def test_orders_other_than_inferred() -> None:
    assert hazards.serial_edges(4).tolist() == [[0, 1], [1, 2], [2, 3]]
    assert hazards.serial_edges(0).tolist() == []
    assert hazards.barrier_edges([False, False, True, True, False]).tolist() == [[0, 2], [1, 2], [2, 3], [3, 4]]


# --- copies and fills ------------------------------------------------------------------------------------------------


def bound(address: int, nbytes: int) -> BufferBinding:
    return BufferBinding(0, 1, address, 0, nbytes, True)


class Named(dict[str, CompiledKernel]):
    """Kernels that only have a name."""

    def __missing__(self, name: str) -> CompiledKernel:
        return CompiledKernel(name, None, 1024, 0, (), (), None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("command", "kernel", "count"),
    [
        (Copy(bound(4096, 160), bound(8192, 160)), "copy_16", 10),
        (Copy(bound(4100, 160), bound(8192, 160)), "copy_4", 40),
        (Copy(bound(4097, 160), bound(8192, 160)), "copy_1", 160),
        (Copy(bound(4096, 7), bound(8192, 7)), "copy_1", 7),
        (Fill(bound(4096, 160), b"\1"), "fill_16", 10),
        (Fill(bound(4096, 12), b"\1\2\3\4"), "fill_4", 3),
        (Fill(bound(4098, 12), b"\1\2"), "fill_2", 6),
        (Fill(bound(4097, 12), b"\1\2"), "fill_bytes", 12),
    ],
)
def test_transfers_move_the_widest_elements_that_fit(command: Copy | Fill, kernel: str, count: int) -> None:
    dispatch = copy_fill.dispatch_of(command, Named())
    assert isinstance(dispatch, Dispatch)
    assert dispatch.kernel.name == kernel
    assert count.to_bytes(8, "little") in [getattr(one, "data", b"") for one in dispatch.bindings]
    assert {access.write for access in dispatch.accesses or ()} == (
        {True, False} if isinstance(command, Copy) else {True}
    )


def test_the_backends_own_kernels_compile(nvrtc: Any) -> None:
    transfer = msl.parse(copy_fill.SOURCE).translate("cuda")
    assert nvrtc.compile(transfer).ptx
    assert nvrtc.compile_text((BACKEND / "support.cu").read_text()).ptx


# --- native source ---------------------------------------------------------------------------------------------------

METAL = "kernel void spin(device uint *x [[buffer(0)]], constant uint &cycles [[buffer(1)]]) { x[0] = cycles; }"
SPIN = 'extern "C" __global__ void __launch_bounds__(\n128) spin(unsigned *x, unsigned cycles) {\n  x[0] = cycles;\n}'


def test_cuda_source_stands_in_for_the_kernel_of_its_name(nvrtc: Any) -> None:
    translation = msl.parse(METAL, native={"cuda": f"// __global__ void other(\n{SPIN}"}).translate("cuda")
    compiled = nvrtc.compile(translation)
    assert compiled.ptx, compiled.log


def test_an_error_in_cuda_source_names_its_line() -> None:
    broken = SPIN.replace("x[0] = cycles;", "x[0] = nothing;")
    translation = msl.parse(METAL, native={"cuda": broken}).translate("cuda")
    with pytest.raises(ost.KernelCompileError, match="nothing") as caught:
        compiling._compile(translation.text, msl.cuda_options("sm_90"))
    assert (caught.value.file, caught.value.line) == ("<cuda>", 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [(SPIN.replace("spin", "spun"), "'spun', which the Metal source does not have"), ("int x;", "defines no kernel")],
)
def test_cuda_source_that_fits_no_kernel_is_refused(text: str, message: str) -> None:
    with pytest.raises(ost.KernelCompileError, match=message):
        msl.parse(METAL, native={"cuda": text})


def test_other_devices_run_the_metal_source(private_environment: None) -> None:
    with ost.open_device("cpu") as device:
        kernel = device.library(METAL, cuda=SPIN)["spin"]
        x = device.zeros(1, np.uint32)
        encoder = device.command_encoder()
        encoder.dispatch(kernel, x, 7, threads=1)
        encoder.commit_and_wait()
        assert x.numpy()[0] == 7
    with pytest.raises(ost.ArgumentError, match="cuda: expected"), ost.open_device("cpu") as device:
        device.library(METAL, cuda=7)  # type: ignore[arg-type]


# --- reasons ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def forgetful() -> Any:
    """What was found of the driver and the compiler is found anew, in the test and after it."""
    for found in (api._initialised, compiling.nvrtc):
        found.cache_clear()
    yield
    for found in (api._initialised, compiling.nvrtc):
        found.cache_clear()


def test_missing_packages_are_named(forgetful: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cuda.bindings", "cuda.bindings.driver", "cuda.bindings.nvrtc"):
        monkeypatch.setitem(sys.modules, name, None)
    for find in (api.bindings, compiling.nvrtc):
        with pytest.raises(ost.DeviceUnavailable, match=r"pip install 'cuda-bindings>=13' 'nvidia-cuda-nvrtc>=13'"):
            find()


class Driver:
    """A driver that says what it is told to."""

    def __init__(self, status: int, version: int = 13000) -> None:
        self.status, self.version = status, version

    def cuInit(self, flags: int) -> tuple[Any]:
        return (type("Status", (int,), {"name": "CUDA_ERROR_OF_SOME_KIND"})(self.status),)

    def cuDriverGetVersion(self) -> tuple[int, int]:
        return 0, self.version


@pytest.mark.parametrize(
    ("driver", "message"),
    [
        (Driver(100), "sees no device"),
        (Driver(999), "could not be started: error 999"),
        (Driver(0, 11080), r"supports CUDA 11\.8; 13\.0 or newer is needed"),
    ],
)
def test_drivers_that_will_not_do_say_so_in_a_sentence(
    forgetful: None, monkeypatch: pytest.MonkeyPatch, driver: Driver, message: str
) -> None:
    bindings = pytest.importorskip("cuda.bindings")
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", driver)
    monkeypatch.setattr(bindings, "driver", driver, raising=False)
    with pytest.raises(ost.DeviceUnavailable, match=message):
        api.bindings()


def test_importing_ostinato_touches_no_cuda() -> None:
    import subprocess

    code = "import sys, ostinato; sys.exit(any(name.partition('.')[0] in ('cuda', 'nvtx') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_ranges_are_there_when_somebody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NVTX_INJECTION64_PATH", raising=False)
    assert nsight.find(None) is None
    assert nsight.find(False) is None
    monkeypatch.setitem(sys.modules, "nvtx", None)
    with pytest.raises(ost.DeviceUnavailable, match="pip install nvtx"):
        nsight.find(True)
    shown: list[str] = []

    class Domain:
        def get_event_attributes(self, message: str) -> str:
            return message

        def push_range(self, attributes: str) -> None:
            shown.append(attributes)

        def pop_range(self) -> None:
            shown.append("end")

    monkeypatch.setitem(sys.modules, "nvtx", type("Nvtx", (), {"get_domain": staticmethod(lambda name: Domain())}))
    found = nsight.find(True)
    assert found is not None
    with found.range("token"), found.range(None):
        pass
    assert shown == ["token", "command buffer", "end", "end"]


@given(st.lists(st.sets(st.integers(0, 20), max_size=5), max_size=20))
def test_edges_that_others_imply_are_left_out_and_no_more(before: list[set[int]]) -> None:
    nodes: list[graphs._Node] = []
    reached: list[set[int]] = []
    for index, given_before in enumerate(before):
        predecessors = {one for one in given_before if one < index}
        kept = graphs._reduced(predecessors, nodes)
        nodes.append(graphs._Node(index, kept, None, b""))
        reached.append(predecessors.union(*(reached[one] for one in predecessors)))
        assert set(kept).union(*(reached[one] for one in kept)) == reached[index]
        assert not any(one in reached[other] for one in kept for other in kept)


def test_an_edge_that_would_take_long_to_judge_stays() -> None:
    nodes = [graphs._Node(0, [], None, b"")]
    nodes += [graphs._Node(index, [index - 1], None, b"") for index in range(1, 200)]
    assert graphs._reduced({150, 199}, nodes) == [199]
    assert graphs._reduced({0, 199}, nodes) == [0, 199]


class Nvml:
    """As much of NVML as a GPU with a power cap answers."""

    def __init__(self, reasons: int | None) -> None:
        self.reasons = reasons

    def device_get_handle_by_pci_bus_id_v2(self, bus_id: str) -> int:
        if bus_id == "nowhere":
            raise RuntimeError("not found")
        return 7

    def device_get_clock_info(self, gpu: int, kind: int) -> int:
        assert kind == 1
        return 1500

    def device_get_max_clock_info(self, gpu: int, kind: int) -> int:
        return 1980

    def device_get_current_clocks_event_reasons(self, gpu: int) -> int:
        if self.reasons is None:
            raise RuntimeError("not supported")
        return self.reasons

    def device_get_compute_running_processes_v3(self, gpu: int) -> list[object]:
        return [object(), object()]


def test_a_gpu_says_what_holds_its_clock_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditions, "_nvml", lambda: Nvml(1 | 4 | 32))
    assert conditions.conditions("0000:00:00.0") == Conditions(1500, 1980, "power cap, temperature", 2)


def test_what_a_gpu_does_not_tell_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditions, "_nvml", lambda: Nvml(None))
    assert conditions.conditions("0000:00:00.0") == Conditions(1500, 1980, "", 2)
    assert conditions.conditions("nowhere") == Conditions()
    monkeypatch.setattr(conditions, "_nvml", lambda: None)
    assert conditions.conditions("0000:00:00.0") == Conditions()
