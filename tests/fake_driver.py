"""A stand-in for the CUDA driver's Python functions, in host memory: what the backend does with them, on any machine.

Streams do their work at once, but for graphs that a test holds back. Generated kernels do nothing but leave times where
they are told to, the backend's own kernels do what they do on a device. Everything that is made and given back is
counted.
"""

from __future__ import annotations

import ctypes
import itertools
import struct
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from ostinato.backends.cuda import launches, rings


class Status(int):
    """A result of the driver."""

    @property
    def name(self) -> str:
        return f"CUDA_ERROR_{int(self)}"


OK = Status(0)


@dataclass
class Function:
    """A kernel of a loaded module."""

    module: int
    name: str
    parameter_bytes: int


@dataclass
class GraphNode:
    """A node as it was added."""

    function: int
    blocks: int
    threads: int
    arguments: list[bytes]
    before: list[int]
    programmatic: bool


class Arena(ctypes.Structure):
    """`Arena` of support.cu."""

    _fields_ = (
        *((name, ctypes.c_uint32) for name in "turn number finished zero".split()),
        *((name, ctypes.c_uint64) for name in "slot result begin".split()),
    )


OWN_PARAMETERS = {"ost_begin": 6, "ost_end": 3, "ost_resolve_end": 6}


@dataclass
class Driver:
    """One device; `fail` says which of the coming launches is refused, and with which error."""

    parameters: dict[str, int] = field(default_factory=dict)
    """Bytes of the parameters of kernels of the module that is being looked at, by the name of their function."""
    fail: dict[int, int] = field(default_factory=dict)
    fail_graphs: list[int] = field(default_factory=list)
    """Errors of the coming launches of graphs, whose first node runs all the same; 0 is none."""
    lost: int = 0
    stuck: bool = False
    """Whether work starts and never ends."""
    held: deque[list[GraphNode]] | None = None
    """Graphs that were launched and wait for `let_go`, if they are to wait."""
    values: list[bytes] = field(default_factory=list)
    """What each replay saw of its values."""
    live: Counter[str] = field(default_factory=Counter)
    launched: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._numbers = itertools.count(1000)
        self._functions: dict[int, Function] = {}
        self._memory: dict[int, Any] = {}
        self._events: dict[int, float] = {}
        self._graphs: dict[int, list[GraphNode]] = {}
        self._executables: set[int] = set()
        self.updates = self.fail_update = 0
        self._launches = itertools.count()
        self.CUresult = Status
        for name in "CUstream CUevent CUfunction CUdeviceptr CUgraphExec CUgraphNode cuuint32_t cuuint64_t".split():
            setattr(self, name, int)
        flags = SimpleNamespace(CU_STREAM_DEFAULT=0, CU_STREAM_NON_BLOCKING=1, CU_EVENT_DISABLE_TIMING=2)
        self.CUstream_flags = self.CUevent_flags = flags
        for name in "CUdevice_attribute CUfunction_attribute CUmemPool_attribute CUmemAllocationType".split():
            setattr(self, name, _Names())
        self.CUmemLocationType, self.CUgraphDependencyType, self.CUgraphNodeType = _Names(), _Names(), _Names()
        self.CU_MEMHOSTALLOC_PORTABLE, self.CU_MEMHOSTALLOC_DEVICEMAP = 1, 2
        self.CUmemPoolProps = lambda: SimpleNamespace(location=SimpleNamespace())
        self.CUgraphNodeParams = lambda: SimpleNamespace(kernel=SimpleNamespace(sharedMemBytes=0))
        self.CUgraphEdgeData = SimpleNamespace

    def __getattr__(self, name: str) -> Any:
        """Functions that only have to succeed."""
        if name in _ONLY_SUCCEED:
            function = lambda *_: (OK,)  # noqa: E731
            function.__name__ = name
            return function
        raise AttributeError(name)

    # --- what there is -----------------------------------------------------------------------------------------

    def cuInit(self, flags: int) -> Any:
        return (OK,)

    def cuDriverGetVersion(self) -> Any:
        return OK, 13000

    def cuGetErrorName(self, status: int) -> Any:
        return OK, Status(status).name.encode()

    def cuGetErrorString(self, status: int) -> Any:
        return OK, b"something went wrong"

    def cuDeviceGetCount(self) -> Any:
        return OK, 1

    def cuDeviceGet(self, ordinal: int) -> Any:
        return OK, ordinal

    def cuDeviceGetName(self, length: int, device: int) -> Any:
        return OK, b"stand-in\0"

    def cuDeviceGetPCIBusId(self, size: int, device: int) -> tuple[Any, ...]:
        return OK, b"0000:00:00.0\0"

    def cuDeviceGetAttribute(self, kind: str, device: int) -> Any:
        known = {
            "MAJOR": 9,
            "MINOR": 0,
            "MULTIPROCESSOR_COUNT": 4,
            "PER_BLOCK_OPTIN": 100_000,
            "L2_CACHE_SIZE": 1 << 20,
        }
        return OK, next(value for name, value in known.items() if kind.endswith(name))

    def cuDevicePrimaryCtxRetain(self, device: int) -> Any:
        self.live["context"] += 1
        return OK, 77

    def cuDevicePrimaryCtxRelease(self, device: int) -> Any:
        self.live["context"] -= 1
        return (OK,)

    def cuCtxGetStreamPriorityRange(self) -> Any:
        return OK, 0, -1

    def _make(self, kind: str) -> Any:
        self.live[kind] += 1
        return OK, next(self._numbers)

    def _end(self, kind: str) -> Any:
        self.live[kind] -= 1
        return (OK,)

    def cuStreamCreate(self, flags: int) -> Any:
        return self._make("stream")

    def cuStreamCreateWithPriority(self, flags: int, priority: int) -> Any:
        return self._make("stream")

    def cuStreamDestroy(self, stream: int) -> Any:
        return self._end("stream")

    def cuStreamQuery(self, stream: int) -> Any:
        return (Status(self.lost),)

    # --- memory ------------------------------------------------------------------------------------------------

    def _block(self, kind: str, nbytes: int) -> Any:
        block = (ctypes.c_uint64 * (nbytes // 8 + 1))()
        self._memory[ctypes.addressof(block)] = block
        self.live[kind] += 1
        return OK, ctypes.addressof(block)

    def cuMemPoolCreate(self, props: Any) -> Any:
        return self._make("pool")

    def cuMemPoolDestroy(self, pool: int) -> Any:
        return self._end("pool")

    def cuMemGetInfo(self) -> Any:
        return OK, 1 << 30, 1 << 32

    def cuMemAllocFromPoolAsync(self, nbytes: int, pool: int, stream: int) -> Any:
        return self._block("memory", nbytes)

    def cuMemFreeAsync(self, address: int, stream: int) -> Any:
        del self._memory[address]
        return self._end("memory")

    def cuMemHostAlloc(self, nbytes: int, flags: int) -> Any:
        return self._block("pinned", nbytes)

    def cuMemFreeHost(self, address: int) -> Any:
        del self._memory[address]
        return self._end("pinned")

    def cuMemHostGetDevicePointer(self, address: int, flags: int) -> Any:
        return OK, address

    def cuMemcpyDtoHAsync(self, to: int, source: int, nbytes: int, stream: int) -> Any:
        if not self.stuck:
            ctypes.memmove(to, source, nbytes)
        return (OK,)

    cuMemcpyHtoDAsync = cuMemcpyDtoHAsync

    def cuMemsetD8Async(self, address: int, value: int, nbytes: int, stream: int) -> Any:
        ctypes.memset(address, value, nbytes)
        return (OK,)

    def cuStreamWriteValue32(self, stream: int, address: int, value: int, flags: int) -> Any:
        if not self.stuck:
            ctypes.c_uint32.from_address(address).value = value
        return (OK,)

    # --- kernels -----------------------------------------------------------------------------------------------

    def cuModuleLoadData(self, image: bytes) -> Any:
        return OK, next(self._numbers)

    def cuModuleGetFunction(self, module: int, name: bytes) -> Any:
        number = next(self._numbers)
        self._functions[number] = Function(module, name.decode(), self.parameters.get(name.decode(), 0))
        return OK, number

    def cuFuncGetAttribute(self, kind: str, function: int) -> Any:
        return OK, 1024

    def cuFuncGetParamInfo(self, function: int, index: int) -> Any:
        return OK, 0, self._functions[function].parameter_bytes

    def cuLaunchKernel(self, function: Any, *rest: Any) -> Any:
        blocks, _, _, threads, _, _, _shared, _stream, parameters, _ = rest
        turn = next(self._launches)
        if turn in self.fail:
            return (Status(self.fail[turn]),)
        name = self._functions[function].name
        if isinstance(parameters, tuple):
            arguments = [bytes(kind(value)) for value, kind in zip(*parameters, strict=True)]
        else:
            at = ctypes.c_void_p.from_address(parameters).value or 0
            arguments = [ctypes.string_at(at, self._functions[function].parameter_bytes)]
        self._run(name, blocks, threads, arguments)
        return (OK,)

    def _run(self, name: str, blocks: int, threads: int, arguments: list[bytes]) -> None:
        self.launched.append(name)
        numbers = [int.from_bytes(one[:8], "little") for one in arguments]
        if self.stuck:
            return
        if name == "ost_pairs":
            threading.Thread(target=self._answer, args=numbers).start()
        elif name in ("ost_mark", "ost_step"):
            ctypes.c_uint64.from_address(numbers[0]).value = time.monotonic_ns() if name == "ost_mark" else 32
        elif name == "ost_resolve":
            self._resolve(*numbers)
        elif name == "ost_begin":
            self._begin(*numbers)
        elif name == "ost_end":
            self._finish(*numbers[:2])
        elif name == "ost_resolve_end":
            table, pairs, count, arena, done, _ = numbers
            self._resolve(table, pairs, Arena.from_address(arena).result, count, Arena.from_address(arena).begin)
            self._finish(arena, done)
        else:
            self._leave_times(blocks, threads, arguments[0])
            self._print(blocks, arguments[0])

    def _answer(self, round_: int, replies: int, rounds: int) -> None:
        said = (ctypes.c_uint64 * (rounds + 2)).from_address(replies)
        said[0] = time.monotonic_ns()
        for number in range(1, rounds + 1):
            deadline = time.monotonic() + 1
            while ctypes.c_uint32.from_address(round_).value < number and time.monotonic() < deadline:
                pass
            said[number] = time.monotonic_ns()
        said[rounds + 1] = time.monotonic_ns()

    def _begin(self, at: int, ring: int, mask: int, stride: int, words: int, early: int) -> None:
        arena = Arena.from_address(at)
        arena.slot = ring + (arena.turn & mask) * stride
        slot = rings.Slot.from_address(arena.slot)
        assert slot.turn == arena.turn, "a replay would have run with the values of another"
        arena.turn, arena.number, arena.result = arena.turn + 1, slot.number, slot.result
        arena.begin = time.monotonic_ns()
        ctypes.memmove(at + rings.ARENA_BYTES, arena.slot + rings.SLOT_BYTES, 16 * words)
        self.values.append(ctypes.string_at(at + rings.ARENA_BYTES, 16 * words))

    def _finish(self, at: int, done: int) -> None:
        arena = Arena.from_address(at)
        slot = rings.Slot.from_address(arena.slot)
        slot.begin, slot.end = arena.begin, time.monotonic_ns()
        ctypes.c_uint32.from_address(done).value = arena.number

    def _resolve(self, table: int, pairs: int, out: int, count: int, since: int = 0) -> None:
        starts = (ctypes.c_uint32 * (count + 1)).from_address(table)
        result = (ctypes.c_uint64 * (2 * count)).from_address(out)
        for command in range(count):
            size = 2 * (starts[command + 1] - starts[command])
            block = (ctypes.c_uint64 * size).from_address(pairs + 16 * starts[command])
            least = since or 1
            begun, ended = [one for one in block[::2] if one >= least], [one for one in block[1::2] if one >= least]
            result[2 * command] = min(begun, default=0)
            result[2 * command + 1] = max(ended, default=0)
            if not since:
                ctypes.memset(block, 0, 8 * size)

    def _leave_times(self, blocks: int, threads: int, params: bytes) -> None:
        *_, flags, _row, _group, mask, pairs, _zero = launches.HEAD.unpack_from(params)
        if not pairs:
            return
        warps = blocks * (-(-threads // 32))
        assert bool(flags & launches.OWN_SLOTS) == (warps <= mask + 1)
        for warp in range(min(warps, mask + 1)):
            now = time.monotonic_ns()
            struct.pack_into("=2Q", (ctypes.c_char * 16).from_address(pairs + 16 * warp), 0, now, now + 100)

    def _print(self, blocks: int, params: bytes) -> None:
        """The first thread of each block, last block first, prints what the first format of the source says."""
        log = launches.HEAD.unpack_from(params)[-1]
        if not log:
            return
        (node,) = struct.unpack_from("=I", params, launches.NODE_AT)
        limit, used, dropped, _ = head = (ctypes.c_uint64 * 4).from_address(log)
        for group in reversed(range(blocks)):
            if used + 24 <= limit:
                struct.pack_into("=4IQ", (ctypes.c_char * 24).from_address(log + 32 + used), 0, 24, node, 0, 0, group)
            else:
                dropped += 1
            used += 24
        head[1], head[2] = used, dropped

    # --- events and graphs -------------------------------------------------------------------------------------

    def cuEventCreate(self, flags: int) -> Any:
        return self._make("event")

    def cuEventDestroy(self, event: int) -> Any:
        return self._end("event")

    def cuEventRecord(self, event: int, stream: int) -> Any:
        self._events[event] = time.monotonic_ns()
        return (OK,)

    def cuEventSynchronize(self, event: int) -> Any:
        return (Status(self.lost),)

    def cuEventElapsedTime(self, start: int, end: int) -> Any:
        return OK, (self._events[end] - self._events[start]) / 1e6

    def cuGraphCreate(self, flags: int) -> Any:
        number = next(self._numbers)
        self._graphs[number] = []
        return OK, number

    def cuGraphAddEmptyNode(self, graph: int, before: list[int], count: int) -> Any:
        assert len(before) == count
        self._graphs[graph].append(GraphNode(0, 0, 0, [], before, False))
        return OK, len(self._graphs[graph]) - 1

    def cuGraphAddNode(self, graph: int, before: list[int], data: Any, count: int, params: Any) -> Any:
        assert len(before) == count
        assert data is None or len(data) == count
        kernel = params.kernel
        assert kernel.gridDimX > 0, "the driver refuses a grid of nothing"
        function = self._functions[kernel.func]
        own = OWN_PARAMETERS.get(function.name)
        sizes = [function.parameter_bytes] if own is None else [8] * own
        pointers = (ctypes.c_void_p * len(sizes)).from_address(kernel.kernelParams)
        arguments = [ctypes.string_at(at or 0, size) for at, size in zip(pointers, sizes, strict=True)]
        node = GraphNode(kernel.func, kernel.gridDimX, kernel.blockDimX, arguments, list(before), bool(data))
        self._graphs[graph].append(node)
        return OK, len(self._graphs[graph]) - 1

    def cuGraphInstantiate(self, graph: int, flags: int) -> Any:
        number = next(self._numbers)
        self._graphs[number] = list(self._graphs[graph])
        self._executables.add(number)
        self.live["graph"] += 1
        return OK, number

    def CUDA_KERNEL_NODE_PARAMS(self) -> Any:
        return SimpleNamespace(sharedMemBytes=0)

    def update(self, graph: int, node: int, at: int) -> Any:
        """The same with the driver's own struct, at an address."""
        function, blocks, _, _, threads, *_ = struct.unpack("=Q7I", ctypes.string_at(at, 36))
        (params,) = struct.unpack("=Q", ctypes.string_at(at + 40, 8))
        given = SimpleNamespace(func=function, gridDimX=blocks, blockDimX=threads, kernelParams=params)
        return self.cuGraphExecKernelNodeSetParams(graph, node, given)

    def cuGraphExecKernelNodeSetParams(self, graph: int, at: int, params: Any) -> Any:
        if self.fail_update:
            return (Status(self.fail_update),)
        assert graph in self._executables, "only an executable graph is updated"
        node, function = self._graphs[graph][at], self._functions[params.func]
        assert (node.blocks, node.threads, node.function) == (params.gridDimX, params.blockDimX, params.func)
        pointer = ctypes.c_void_p.from_address(params.kernelParams).value or 0
        # Launches that wait keep what they were launched with, so this is another list.
        changed = replace(node, arguments=[ctypes.string_at(pointer, function.parameter_bytes)])
        self._graphs[graph] = [changed if index == at else one for index, one in enumerate(self._graphs[graph])]
        self.updates += 1
        return (OK,)

    def cuGraphExecDestroy(self, graph: int) -> Any:
        return self._end("graph")

    def cuGraphLaunch(self, graph: int, stream: int) -> Any:
        status = self.fail_graphs.pop(0) if self.fail_graphs else 0
        if self.held is not None and not status:
            self.held.append(self._graphs[graph])
        else:
            self._play(self._graphs[graph][: 1 if status else None])
        return (Status(status),)

    def let_go(self) -> None:
        """Run the first graph that waits, if one does."""
        if self.held:
            self._play(self.held.popleft())

    def _play(self, nodes: list[GraphNode]) -> None:
        for node in nodes:
            if node.function:
                self._run(self._functions[node.function].name, node.blocks, node.threads, node.arguments)


class _Names:
    """An enumeration whose members are their own names."""

    def __getattr__(self, name: str) -> str:
        return name


_ONLY_SUCCEED = frozenset(
    """cuCtxPushCurrent cuCtxPopCurrent cuStreamSynchronize cuMemPoolSetAttribute cuMemPoolTrimTo cuFuncSetAttribute
    cuStreamWaitEvent cuGraphDestroy cuGraphUpload""".split()
)


class Fake(ctypes.Structure):
    """`fake` of fake_libcuda.cpp."""

    _fields_ = (
        *(
            (name, ctypes.c_uint32)
            for name in "launches fail_at synchronized query fail_graph graphs pushed popped".split()
        ),
        *((name, ctypes.c_uint64 * 16) for name in "blocks threads functions".split()),
        ("params", (ctypes.c_ubyte * 256) * 16),
        ("on_graph", ctypes.c_void_p),
        ("on_update", ctypes.c_void_p),
        *((name, ctypes.c_uint32) for name in "updates fail_update".split()),
    )
