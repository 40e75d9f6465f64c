"""CUDA: launches, graphs, timing and bandwidth beside PyTorch, CuPy and Triton on the same device, in one run.

* live launch: host time a dispatch of 1,000 tiny dependent dispatches, until control is back. Ours encodes, tracks
  hazards and commits; CuPy launches a RawKernel, torch an in-place add, Triton and cuda-bindings a kernel.
* replay: host time of starting a graph of 1,000, with a parameter changed each time; torch replays its own graph.
* graphs: wall a dispatch of 1,000 tiny dispatches in one chain, with and without dependent launch, and in 8 chains
  whose independence is inferred from their data; torch's graph is captured as it runs.
* timing: what taking the times of all dispatches adds to a replay.
* truth: a kernel that spins for a known number of cycles, as it is timed; and the sum of dispatches and gaps of a chain
  against the interval from the graph's first node to its last.
* bandwidth: f32 add, RMS norm and a bf16 matrix-vector product as shares of what a copy reaches, all of them in turn.

    python bench/cuda.py [--json] [--rounds N]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

# This file has the name of a package that it needs, so the folder it lies in is looked through only afterwards.
_HERE = sys.path.pop(0)

import cupy
import numpy as np
import torch
import triton
import triton.language as tl
from cuda.bindings import driver as cu

import ostinato as ost
from ostinato import ops

sys.path.append(_HERE)

from harness import Table, interleaved, median, ratio, report

COUNT = 1_000
CHAINS = 8
REPLAYS = 20

METAL = """
#include <metal_stdlib>
using namespace metal;
kernel void increment(device float *x [[buffer(0)]], uint id [[thread_position_in_grid]]) { x[id] += 1.0f; }
kernel void add_value(device float *x [[buffer(0)]], constant float &by [[buffer(1)]],
                      uint id [[thread_position_in_grid]]) { x[id] += by; }
kernel void spin(device uint *x [[buffer(0)]], constant uint &cycles [[buffer(1)]]) { x[0] = cycles; }
kernel void spin_and_store(device uint *x [[buffer(0)]], constant uint &cycles [[buffer(1)]],
                           uint id [[thread_position_in_grid]]) { x[id] = cycles; }

kernel void add_wide(device const float4 *a [[buffer(0)]], device const float4 *b [[buffer(1)]],
                     device float4 *out [[buffer(2)]], uint id [[thread_position_in_grid]],
                     uint size [[threads_per_grid]]) {
    float4 x[4], y[4];
    for (uint k = 0; k < 4; ++k) { x[k] = a[id + k * size]; y[k] = b[id + k * size]; }
    for (uint k = 0; k < 4; ++k) out[id + k * size] = x[k] + y[k];
}

// Rows of 4,096, one a group of 256 threads, kept in registers between the sum and the scaling.
kernel void rms_norm_4096(device const float4 *x [[buffer(0)]], device const float4 *weight [[buffer(1)]],
                          device float4 *out [[buffer(2)]], constant float &eps [[buffer(3)]],
                          uint row [[threadgroup_position_in_grid]], uint member [[thread_index_in_threadgroup]],
                          uint lane [[thread_index_in_simdgroup]], uint simd [[simdgroup_index_in_threadgroup]]) {
    threadgroup float partial[8];
    const uint start = row * 1024 + member;
    float4 v[4];
    for (uint k = 0; k < 4; ++k) v[k] = x[start + 256 * k];
    float squares = 0.0f;
    for (uint k = 0; k < 4; ++k) squares += dot(v[k], v[k]);
    squares = simd_sum(squares);
    if (lane == 0) partial[simd] = squares;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float sum = 0.0f;
    for (uint k = 0; k < 8; ++k) sum += partial[k];
    const float scale = rsqrt(sum / 4096.0f + eps);
    for (uint k = 0; k < 4; ++k) out[start + 256 * k] = v[k] * scale * weight[member + 256 * k];
}

// One simdgroup a row; each lane reads eight bfloats at once.
kernel void matvec(device const uint4 *matrix [[buffer(0)]], device const uint4 *vector [[buffer(1)]],
                   device float *out [[buffer(2)]], constant uint &columns [[buffer(3)]],
                   uint row [[simdgroup_index_in_threadgroup]], uint group [[threadgroup_position_in_grid]],
                   uint rows [[simdgroups_per_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    const uint at = group * rows + row;
    device const uint4 *start = matrix + ulong(at) * (columns / 8);
    float sum = 0.0f;
    for (uint i = lane; i < columns / 8; i += 128) {
        uint4 a[4], b[4];
        for (uint k = 0; k < 4; ++k) { a[k] = start[i + 32 * k]; b[k] = vector[i + 32 * k]; }
        for (uint k = 0; k < 4; ++k)
            for (uint w = 0; w < 4; ++w)
                sum += as_type<float>(a[k][w] << 16) * as_type<float>(b[k][w] << 16) +
                       as_type<float>(a[k][w] & 0xffff0000u) * as_type<float>(b[k][w] & 0xffff0000u);
    }
    sum = simd_sum(sum);
    if (lane == 0) out[at] = sum;
}
"""
CUDA = """
extern "C" __global__ void spin(unsigned *x, unsigned cycles) {
  const long long begin = clock64();
  while (clock64() - begin < cycles) {}
  if (threadIdx.x == 0 && blockIdx.x == 0) x[0] = cycles;
}
extern "C" __global__ void spin_and_store(unsigned *x, unsigned cycles) {
  const long long begin = clock64();
  while (clock64() - begin < cycles) {}
  x[blockIdx.x * blockDim.x + threadIdx.x] = cycles;
}
"""


@triton.jit
def triton_increment(x, size: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, size)
    tl.store(x + at, tl.load(x + at) + 1.0)


def host_us(work: Callable[[], object], per: int = 1) -> float:
    """Host time of some work, which the device may still be doing then, in µs."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    work()
    spent = time.perf_counter() - begin
    torch.cuda.synchronize()
    return spent * 1e6 / per


def wall_us(work: Callable[[], object], per: int = 1) -> float:
    """Time until the device is done, in µs."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) * 1e6 / per


class Bench:
    """Everything on one device."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self.device = ost.open_device("cuda:0")
        self.library = self.device.library(METAL, cuda=CUDA)
        self.x = self.device.zeros(256, np.float32)
        self.chains = [self.device.zeros(256, np.float32) for _ in range(CHAINS)]

    def chain(self, chains: int = 1, dependent: bool = True) -> ost.Replayable:
        kernel = self.library["increment"]
        backend: Any = self.device._queue.backend
        able = backend.dependent_launch

        def encode(enc: ost.CommandEncoder) -> None:
            for at in range(COUNT):
                enc.dispatch(kernel, self.chains[at % chains], threads=256)

        backend.dependent_launch = able and dependent
        try:
            return self.device.capture(encode).instantiate()
        finally:
            backend.dependent_launch = able

    def live(self) -> Table:
        kernel, x = self.library["increment"], self.x
        theirs = torch.zeros(256, device="cuda")
        raw = cupy.RawKernel('extern "C" __global__ void inc(float *x) { x[threadIdx.x] += 1.0f; }', "inc")
        array = cupy.zeros(256, cupy.float32)
        image = self._cubin()
        module = cu.cuModuleLoadData(image)[1]
        function = cu.cuModuleGetFunction(module, b"inc")[1]
        pointer = np.array([theirs.data_ptr()], np.uint64)
        arguments = np.array([pointer.ctypes.data], np.uint64)
        stream = torch.cuda.current_stream().cuda_stream

        def ours() -> None:
            enc = self.device.command_encoder()
            for _ in range(COUNT):
                enc.dispatch(kernel, x, threads=256)
            enc.commit()

        def by_cupy() -> None:
            for _ in range(COUNT):
                raw((1,), (256,), (array,))

        def by_torch() -> None:
            for _ in range(COUNT):
                theirs.add_(1)

        def by_triton() -> None:
            for _ in range(COUNT):
                triton_increment[(1,)](theirs, 256)

        def by_bindings() -> None:
            for _ in range(COUNT):
                cu.cuLaunchKernel(function, 1, 1, 1, 256, 1, 1, 0, stream, arguments.ctypes.data, 0)

        contenders = {"ostinato": ours, "CuPy RawKernel": by_cupy, "torch": by_torch, "Triton": by_triton}
        contenders["cuda-bindings"] = by_bindings
        found = interleaved(
            {name: (lambda work=work: host_us(work, COUNT)) for name, work in contenders.items()}, self.rounds
        )
        rows = [
            (name, round(median(values), 2), round(ratio(found["ostinato"], values), 2))
            for name, values in found.items()
        ]
        return Table("live launch, host µs a dispatch", ("who", "µs", "ostinato is × this"), rows)

    def _cubin(self) -> bytes:
        from ostinato.backends.cuda.compiling import cubin

        text = 'extern "C" __global__ void inc(float *x) { x[threadIdx.x] += 1.0f; }'
        return cubin(text, ["--gpu-architecture=sm_90"])

    def torch_graph(self, chains: int) -> Any:
        tensors = [torch.zeros(256, device="cuda") for _ in range(chains)]
        graph = torch.cuda.CUDAGraph()
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for tensor in tensors:
                tensor.add_(1)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            for at in range(COUNT):
                tensors[at % chains].add_(1)
        self._kept = tensors
        return graph

    def replay_call(self) -> Table:
        kernel = self.library["add_value"]

        def encode(enc: ost.CommandEncoder) -> None:
            for _ in range(COUNT):
                enc.dispatch(kernel, self.x, ost.param("by", np.float32), threads=256)

        run = self.device.capture(encode).instantiate()
        graph = self.torch_graph(1)
        turn = iter(range(10**9))
        once: dict[str, Callable[[], object]] = {
            "ostinato, a parameter changed": lambda: run.replay(by=float(next(turn))),
            "torch.cuda.CUDAGraph": graph.replay,
        }
        alone = interleaved({name: (lambda work=work: host_us(work)) for name, work in once.items()}, 5 * self.rounds)
        in_a_row = interleaved(
            {name: (lambda work=work: host_us(lambda: [work() for _ in range(8)], 8)) for name, work in once.items()},
            2 * self.rounds,
        )
        rows = [(name, round(median(in_a_row[name]), 2), round(median(alone[name]), 2)) for name in once]
        return Table("starting a graph of 1,000, host µs", ("who", "eight in a row", "one, after a wait"), rows)

    def graphs(self) -> Table:
        one, eight = self.torch_graph(1), self.torch_graph(CHAINS)
        ours = {
            "1 chain": self.chain(1),
            "1 chain, without dependent launch": self.chain(1, dependent=False),
            "8 chains": self.chain(CHAINS),
        }
        contenders: dict[str, Callable[[], object]] = {f"ostinato, {name}": run.replay for name, run in ours.items()}
        contenders |= {"torch, 1 chain": one.replay, "torch, 8 chains": eight.replay}
        found = interleaved(
            {name: (lambda work=work: wall_us(work, COUNT)) for name, work in contenders.items()}, 3 * self.rounds
        )
        rows = []
        for name, values in found.items():
            peer = found["torch, 8 chains" if "8" in name else "torch, 1 chain"]
            rows.append((name, round(median(values), 3), round(ratio(values, peer), 2)))
        return Table("graph of 1,000 tiny dispatches, wall µs a dispatch", ("what", "µs", "× torch"), rows)

    def timing(self) -> Table:
        words = self.device.zeros(132 * 256, np.uint32)

        def five(kernel: str) -> ost.Replayable:
            def encode(enc: ost.CommandEncoder) -> None:
                for _ in range(COUNT):
                    enc.dispatch(self.library[kernel], words, 9_000, groups=132, group_size=256)

            return self.device.capture(encode).instantiate()

        a, b, c = (self.device.zeros(1_700_000, np.float32) for _ in range(3))

        def adds(enc: ost.CommandEncoder) -> None:
            for _ in range(COUNT):
                ops.add(enc, a, b, c)

        graphs = {
            "1 chain of empty kernels": self.chain(1, dependent=False),
            "1 chain, dependent launch": self.chain(1),
            "8 chains": self.chain(CHAINS),
            "kernels of 5 µs, which store nothing": five("spin"),
            "kernels of 5 µs, which store a word a thread": five("spin_and_store"),
            "adds of 5 µs": self.device.capture(adds).instantiate(),
        }
        rows = []
        for name, run in graphs.items():
            found = interleaved(
                {
                    "plain": lambda run=run: wall_us(lambda: self._replays(run, False), REPLAYS),
                    "timed": lambda run=run: wall_us(lambda: self._replays(run, True), REPLAYS),
                },
                self.rounds,
            )
            plain, timed = found["plain"], found["timed"]
            rows.append((name, round(median(plain), 1), f"{(ratio(timed, plain) - 1) * 100:+.1f} %"))
        return Table("what timing every dispatch adds to a replay of 1,000", ("what", "µs a replay", "timed"), rows)

    def _replays(self, run: ost.Replayable, sample: bool) -> None:
        for _ in range(REPLAYS):
            submission = self._replay(run, sample)
        submission.wait()

    def _replay(self, run: ost.Replayable, sample: bool) -> ost.Submission:
        """One replay, timed or not as we say: a profile would leave out some, and write down the rest."""
        queue, part = self.device._queue, run._plain.parts[0]
        return queue.submit(
            part.commands,
            lambda started: queue.backend.replay(part.executable, b"", sample, started),
            uses=run._plain.uses,
            keep=run,
            label=None,
        )

    def _times(self, run: ost.Replayable, replays: int) -> tuple[np.ndarray, np.ndarray]:
        """Start and end of every dispatch of every replay, and how long each replay took, in ns."""
        samples, intervals = [], []
        for _ in range(replays + 1):
            submission = self._replay(run, True)
            submission.wait()
            found, interval = submission._run.samples(), submission.gpu_time
            assert found is not None
            assert interval is not None
            samples.append(found.astype(np.int64))
            intervals.append(interval[1] - interval[0])
        return np.array(samples[1:]), np.array(intervals[1:])

    def truth(self) -> Table:
        spin, word = self.library["spin"], self.device.zeros(1, np.uint32)
        rows: list[tuple[object, ...]] = []
        long = 200_000_000
        enc = self.device.command_encoder()
        enc.dispatch(spin, word, long, groups=1, group_size=32)
        submission = enc.commit()
        submission.wait()
        times = submission.gpu_time
        assert times is not None
        cycles_per_ns = long / (times[1] - times[0])
        for microseconds in (2, 5, 20, 100, 1000):
            cycles = round(microseconds * 1000 * cycles_per_ns)

            def encode(enc: ost.CommandEncoder, cycles: int = cycles) -> None:
                for _ in range(50):
                    enc.dispatch(spin, word, cycles, groups=1, group_size=32)

            samples, _ = self._times(self.device.capture(encode).instantiate(), 10)
            got = float(np.median(samples[:, :, 1] - samples[:, :, 0])) / 1000
            rows.append((f"spin of {microseconds} µs", f"{got:.3f} µs", f"{(got / microseconds - 1) * 100:+.2f} %"))
        for dependent in (False, True):
            samples, replays = self._times(self.chain(1, dependent), 20)
            spans = samples[:, :, 1].max(axis=1) - samples[:, :, 0].min(axis=1)
            off = float(np.median(spans / replays)) - 1
            what = f"chain of 1,000{', dependent launch' if dependent else ''}: dispatches and gaps against the replay"
            rows.append((what, f"{np.median(spans) / 1000:.1f} µs", f"{off * 100:+.2f} %"))
        return Table(f"truth ({cycles_per_ns:.4f} cycles a ns)", ("what", "measured", "off by"), rows)

    def bandwidth(self) -> Table:
        count = 64 << 20
        source, target = torch.empty(count, device="cuda"), torch.empty(count, device="cuda")
        a, b, c = (self.device.zeros(count, np.float32) for _ in range(3))
        wide = self.device.zeros((16384, 4096), np.float32)
        out, weight = self.device.zeros((16384, 4096), np.float32), self.device.zeros(4096, np.float32)
        size = 8192
        matrices = [self.device.zeros((size, size // 8, 4), np.uint32) for _ in range(4)]
        vector, product = self.device.zeros((size // 8, 4), np.uint32), self.device.zeros(size, np.float32)
        matvec = self.library["matvec"]

        fours = [one.view(shape=(count // 4, 4)) for one in (a, b, c)]

        def add(enc: ost.CommandEncoder) -> None:
            for _ in range(20):
                enc.dispatch(self.library["add_wide"], *fours, threads=count // 16)

        def plain_add(enc: ost.CommandEncoder) -> None:
            for _ in range(20):
                ops.add(enc, a, b, c)

        def norm(enc: ost.CommandEncoder) -> None:
            for _ in range(20):
                enc.dispatch(self.library["rms_norm_4096"], wide, weight, out, 1e-6, groups=16384, group_size=256)

        def plain_norm(enc: ost.CommandEncoder) -> None:
            for _ in range(20):
                ops.rms_norm(enc, wide, weight, out)

        def multiply(enc: ost.CommandEncoder) -> None:
            for at in range(20):
                enc.dispatch(matvec, matrices[at % 4], vector, product, size, groups=size // 8, group_size=256)

        encoded = {
            "f32 add": (add, 12 * count),
            "f32 add, ops.add as it is": (plain_add, 12 * count),
            "f32 RMS norm, 16384 rows of 4096": (norm, 8 * wide.size),
            "f32 RMS norm, ops.rms_norm as it is": (plain_norm, 8 * wide.size),
            "bf16 matrix-vector 8192²": (multiply, 2 * size * size),
        }
        runs = {name: self.device.capture(encode).instantiate() for name, (encode, _) in encoded.items()}
        moved = {"torch copy": 8 * count} | {name: nbytes for name, (_, nbytes) in encoded.items()}
        contenders: dict[str, Callable[[], object]] = {"torch copy": lambda: [target.copy_(source) for _ in range(100)]}
        contenders |= {name: (lambda run=run: [run.replay() for _ in range(5)]) for name, run in runs.items()}
        found = interleaved(
            {name: (lambda work=work: wall_us(work, 100)) for name, work in contenders.items()}, self.rounds
        )
        rates = {name: [moved[name] / took / 1e6 for took in times] for name, times in found.items()}
        rows = [
            (name, f"{median(rate):.2f} TB/s", f"{ratio(rate, rates['torch copy']) * 100:.0f} %")
            for name, rate in rates.items()
        ]
        return Table("bandwidth", ("what", "rate", "of a copy"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    bench = Bench(given.rounds)
    parts = (bench.live, bench.replay_call, bench.graphs, bench.timing, bench.truth, bench.bandwidth)
    report([part() for part in parts], given.json)


if __name__ == "__main__":
    main()
