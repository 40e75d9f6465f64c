"""The simulator is as strict as Metal: what Metal would stop the process for is loud here, and a race is a race."""

from __future__ import annotations

import gc
import mmap
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import metal_sim
from metal_sim import PROFILES, BrokenRule, buffers, objects

SOURCE = """
#include <metal_stdlib>
using namespace metal;
kernel void copy(device const float *in [[buffer(0)]], device float *out [[buffer(1)]],
                 uint id [[thread_position_in_grid]]) { out[id] = in[id] + 1; }
kernel void spin(device uint *x [[buffer(0)]], constant uint &n [[buffer(1)]]) {
    uint v = x[0]; for (uint i = 0; i < n; i++) v = v * 1664525u + 1013904223u; x[0] = v; }
"""


class Sim:
    """A device of the simulator, used by hand."""

    def __init__(self, profile: str) -> None:
        self.metal: Any = metal_sim.framework(PROFILES[profile]).metal
        self.device = self.metal.MTLCreateSystemDefaultDevice()
        self.queue = self.device.newCommandQueueWithMaxCommandBufferCount_(4)
        self.library, _ = self.device.newLibraryWithSource_options_error_(SOURCE, None, None)

    def pipeline(self, name: str, indirect: bool = False) -> Any:
        values = self.metal.MTLFunctionConstantValues.alloc().init()
        function, _ = self.library.newFunctionWithName_constantValues_error_(name, values, None)
        description = self.metal.MTLComputePipelineDescriptor.alloc().init()
        description.setComputeFunction_(function)
        description.setSupportIndirectCommandBuffers_(indirect)
        made = self.device.newComputePipelineStateWithDescriptor_options_reflection_error_(description, 1, None, None)
        return made[0]

    def buffer(self, nbytes: int = 64) -> Any:
        found = self.device.newBufferWithLength_options_(nbytes, 0)
        found.memory[:] = 0
        return found

    def encoder(self, command_buffer: Any) -> Any:
        return command_buffer.computeCommandEncoderWithDispatchType_(1)

    def samples(self) -> Any:
        description = self.metal.MTLCounterSampleBufferDescriptor.alloc().init()
        description.setCounterSet_(self.device.counterSets()[0])
        description.setSampleCount_(4)
        return self.device.newCounterSampleBufferWithDescriptor_error_(description, None)[0]


@pytest.fixture(autouse=True)
def pool() -> Iterator[None]:
    """Tests that are not about pools have one."""
    with objects.autorelease_pool():
        yield


@pytest.fixture(scope="module")
def apple(private_environment: None) -> Sim:
    return Sim("apple")


@pytest.fixture(scope="module")
def discrete(private_environment: None) -> Sim:
    return Sim("discrete")


def chain(sim: Sim, barrier: bool) -> np.ndarray:
    """A copy of a copy."""
    first, second, third = sim.buffer(), sim.buffer(), sim.buffer()
    command_buffer = sim.queue.commandBuffer()
    encoder = sim.encoder(command_buffer)
    encoder.setComputePipelineState_(sim.pipeline("copy"))
    for source, target in ((first, second), (second, third)):
        encoder.setBuffer_offset_atIndex_(source, 0, 0)
        encoder.setBuffer_offset_atIndex_(target, 0, 1)
        encoder.dispatchThreads_threadsPerThreadgroup_((16, 1, 1), (16, 1, 1))
        if barrier:
            encoder.memoryBarrierWithScope_(1)
    encoder.endEncoding()
    finish(command_buffer)
    return np.asarray(third.memory.view(np.float32))


def test_a_missing_barrier_is_a_race_that_happens(apple: Sim) -> None:
    assert (chain(apple, barrier=True) == 2).all()
    assert not any((chain(apple, barrier=False) == 2).all() for _ in range(5))


def test_samples_at_an_unsupported_boundary_are_refused(apple: Sim, discrete: Sim) -> None:
    encoder = apple.encoder(apple.queue.commandBuffer())
    with pytest.raises(BrokenRule, match="dispatch boundaries"):
        encoder.sampleCountersInBuffer_atSampleIndex_withBarrier_(apple.samples(), 0, True)
    encoder.endEncoding()
    description = discrete.metal.MTLComputePassDescriptor.computePassDescriptor()
    description.sampleBufferAttachments().objectAtIndexedSubscript_(0).setSampleBuffer_(discrete.samples())
    with pytest.raises(BrokenRule, match="stage boundaries"):
        discrete.queue.commandBuffer().computeCommandEncoderWithDescriptor_(description)


def test_a_commit_with_an_open_encoder_is_refused(apple: Sim) -> None:
    command_buffer = apple.queue.commandBuffer()
    encoder = apple.encoder(command_buffer)
    with pytest.raises(BrokenRule, match="open encoder"):
        command_buffer.commit()
    encoder.endEncoding()


def test_nothing_is_encoded_after_the_end_or_the_commit(apple: Sim) -> None:
    command_buffer = apple.queue.commandBuffer()
    encoder = apple.encoder(command_buffer)
    encoder.endEncoding()
    with pytest.raises(BrokenRule, match="ended"):
        encoder.memoryBarrierWithScope_(1)
    command_buffer.commit()
    with pytest.raises(BrokenRule, match="committed"):
        apple.encoder(command_buffer)
    with pytest.raises(BrokenRule, match="once"):
        command_buffer.commit()


def test_an_encoder_that_goes_without_its_end_is_noticed(apple: Sim) -> None:
    gc.collect()  # what other tests left is not this one's
    metal_sim.unraised.clear()
    command_buffer = apple.queue.commandBuffer()
    encoder = apple.encoder(command_buffer)
    del encoder, command_buffer
    deadline = time.monotonic() + 10
    while not metal_sim.unraised and time.monotonic() < deadline:
        gc.collect()  # does nothing while another thread collects
    assert metal_sim.unraised == ["an encoder was released without endEncoding"]
    metal_sim.unraised.clear()


def test_other_storage_than_shared_is_refused(apple: Sim) -> None:
    with pytest.raises(BrokenRule, match="shared storage"):
        apple.device.newBufferWithLength_options_(16, 2 << 4)


def test_an_unretained_buffer_that_is_freed_in_flight_is_noticed(apple: Sim) -> None:
    buffer, pipeline = apple.buffer(), apple.pipeline("spin")
    done: list[Any] = []
    command_buffer = apple.queue.commandBufferWithUnretainedReferences()
    encoder = apple.encoder(command_buffer)
    encoder.setComputePipelineState_(pipeline)
    encoder.setBuffer_offset_atIndex_(buffer, 0, 0)
    encoder.setBytes_length_atIndex_((50_000_000).to_bytes(4, "little"), 4, 1)
    encoder.dispatchThreads_threadsPerThreadgroup_((1, 1, 1), (1, 1, 1))
    encoder.endEncoding()
    command_buffer.addCompletedHandler_(done.append)
    command_buffer.commit()
    del buffer, encoder
    gc.collect()
    while not done:
        pass
    assert "freed" in done[0].error().localizedDescription()
    assert "freed while" in metal_sim.unraised.pop()


def test_more_command_buffers_than_the_queue_has_are_refused(apple: Sim) -> None:
    held = [apple.queue.commandBuffer() for _ in range(4)]
    with pytest.raises(BrokenRule, match="hang"):
        apple.queue.commandBuffer()
    assert len(held) == 4


def test_what_is_not_bound_or_too_large_is_refused(discrete: Sim) -> None:
    encoder = discrete.encoder(command_buffer := discrete.queue.commandBuffer())
    with pytest.raises(BrokenRule, match="pipeline"):
        encoder.dispatchThreads_threadsPerThreadgroup_((1, 1, 1), (1, 1, 1))
    with pytest.raises(BrokenRule, match="4096"):
        encoder.setBytes_length_atIndex_(bytes(5000), 5000, 0)
    with pytest.raises(BrokenRule, match="multiple of 16"):
        encoder.setThreadgroupMemoryLength_atIndex_(20, 0)
    encoder.setComputePipelineState_(discrete.pipeline("copy"))
    with pytest.raises(BrokenRule, match="threads in a group"):
        encoder.dispatchThreads_threadsPerThreadgroup_((4096, 1, 1), (2048, 1, 1))
    encoder.dispatchThreads_threadsPerThreadgroup_((1, 1, 1), (1, 1, 1))
    encoder.endEncoding()
    with pytest.raises(BrokenRule, match="nothing is bound"):
        command_buffer.commit()


def passes(sim: Sim, shared: bool) -> np.ndarray:
    """A copy of a copy in two encoders: of one buffer, which Metal tracks, or of two over the same memory."""
    memory = np.frombuffer(mmap.mmap(-1, mmap.PAGESIZE), np.uint8)
    make = sim.device.newBufferWithBytesNoCopy_length_options_deallocator_
    first, middle, last = sim.buffer(), make(memory.data, memory.nbytes, 0, None), sim.buffer()
    other = middle if shared else buffers.Buffer(memory)
    command_buffer = sim.queue.commandBuffer()
    for source, target in ((first, middle), (other, last)):
        encoder = sim.encoder(command_buffer)
        encoder.setComputePipelineState_(sim.pipeline("copy"))
        encoder.setBuffer_offset_atIndex_(source, 0, 0)
        encoder.setBuffer_offset_atIndex_(target, 0, 1)
        encoder.dispatchThreads_threadsPerThreadgroup_((16, 1, 1), (16, 1, 1))
        encoder.endEncoding()
    finish(command_buffer)
    return np.asarray(last.memory.view(np.float32))


def finish(command_buffer: Any) -> None:
    done: list[Any] = []
    command_buffer.addCompletedHandler_(done.append)
    command_buffer.commit()
    while not done:
        pass


def test_encoders_are_ordered_by_the_buffers_that_both_use_and_by_nothing_else(apple: Sim) -> None:
    assert (passes(apple, shared=True) == 2).all()
    assert not all((passes(apple, shared=False) == 2).all() for _ in range(50))  # a race need not show each time


def test_a_second_buffer_over_the_same_memory_is_refused(apple: Sim) -> None:
    memory = memoryview(mmap.mmap(-1, 2 * mmap.PAGESIZE))
    make = apple.device.newBufferWithBytesNoCopy_length_options_deallocator_
    first = make(memory[: mmap.PAGESIZE], mmap.PAGESIZE, 0, None)
    with pytest.raises(BrokenRule, match="share memory"):
        make(memory, 2 * mmap.PAGESIZE, 0, None)
    del first
    make(memory, 2 * mmap.PAGESIZE, 0, None)


def indirect(sim: Sim, count: int = 2) -> tuple[Any, list[Any]]:
    """An indirect command buffer that copies and copies the copy, each with a barrier before it."""
    description = sim.metal.MTLIndirectCommandBufferDescriptor.alloc().init()
    description.setCommandTypes_(96)
    description.setInheritBuffers_(False)
    description.setInheritPipelineState_(False)
    description.setMaxKernelBufferBindCount_(2)
    commands = sim.device.newIndirectCommandBufferWithDescriptor_maxCommandCount_options_(description, count, 0)
    used = [sim.buffer() for _ in range(count + 1)]
    for at in range(count):
        command = commands.indirectComputeCommandAtIndex_(at)
        command.setComputePipelineState_(sim.pipeline("copy", indirect=True))
        command.setKernelBuffer_offset_atIndex_(used[at], 0, 0)
        command.setKernelBuffer_offset_atIndex_(used[at + 1], 0, 1)
        command.setBarrier()
        command.concurrentDispatchThreads_threadsPerThreadgroup_((16, 1, 1), (16, 1, 1))
    return commands, used


@pytest.mark.parametrize(
    ("ranges", "barrier", "right"),
    [([(0, 2)], False, True), ([(0, 1), (1, 1)], True, True), ([(0, 1), (1, 1)], False, False)],
)
def test_barriers_of_indirect_commands_hold_inside_of_their_range(
    apple: Sim, ranges: list[tuple[int, int]], barrier: bool, right: bool
) -> None:
    def ran() -> bool:
        commands, used = indirect(apple)
        encoder = apple.encoder(command_buffer := apple.queue.commandBuffer())
        encoder.useResources_count_usage_(used, len(used), 3)
        for one in ranges:
            encoder.executeCommandsInBuffer_withRange_(commands, one)
            if barrier:
                encoder.memoryBarrierWithScope_(1)
        encoder.endEncoding()
        finish(command_buffer)
        return bool((used[-1].memory.view(np.float32) == 2).all())

    assert [ran() for _ in range(3)] == [right] * 3


def test_metal_is_told_what_indirect_commands_use(apple: Sim) -> None:
    commands, used = indirect(apple, 1)
    encoder = apple.encoder(apple.queue.commandBuffer())
    with pytest.raises(BrokenRule, match="did not name"):
        encoder.executeCommandsInBuffer_withRange_(commands, (0, 1))
    encoder.useResources_count_usage_(used, 2, 1)
    with pytest.raises(BrokenRule, match="read only"):
        encoder.executeCommandsInBuffer_withRange_(commands, (0, 1))
    encoder.endEncoding()


def test_a_pipeline_in_an_indirect_command_was_made_for_it(apple: Sim) -> None:
    commands, _ = indirect(apple, 1)
    with pytest.raises(BrokenRule, match="must support"):
        commands.indirectComputeCommandAtIndex_(0).setComputePipelineState_(apple.pipeline("copy"))


def test_what_a_pool_releases_is_made_in_one(apple: Sim) -> None:
    def without() -> None:
        with pytest.raises(BrokenRule, match="autorelease pool"):
            apple.queue.commandBuffer()

    thread = threading.Thread(target=without)  # pools are of a thread
    thread.start()
    thread.join()
    assert apple.queue.commandBuffer() is not None


def test_buffers_of_samples_are_few_and_of_a_limited_length(apple: Sim) -> None:
    held = []
    description = apple.metal.MTLCounterSampleBufferDescriptor.alloc().init()
    description.setCounterSet_(apple.device.counterSets()[0])
    make = apple.device.newCounterSampleBufferWithDescriptor_error_
    description.setSampleCount_(5000)
    assert "Invalid" in make(description, None)[1].localizedDescription()
    description.setSampleCount_(4)
    for _ in range(33):
        made, error = make(description, None)
        held.append(made)
    assert made is None
    assert "Cannot allocate" in error.localizedDescription()


def test_two_samples_have_two_places(discrete: Sim) -> None:
    encoder = discrete.encoder(command_buffer := discrete.queue.commandBuffer())
    samples = discrete.samples()
    for _ in range(2):
        encoder.sampleCountersInBuffer_atSampleIndex_withBarrier_(samples, 1, True)
    encoder.endEncoding()
    with pytest.raises(BrokenRule, match="place of another"):
        command_buffer.commit()


def test_structures_are_tuples_of_plain_integers(discrete: Sim) -> None:
    encoder = discrete.encoder(discrete.queue.commandBuffer())
    encoder.setComputePipelineState_(discrete.pipeline("copy"))
    with pytest.raises(BrokenRule, match="a size"):
        encoder.dispatchThreads_threadsPerThreadgroup_((1, 1), (1, 1, 1))
    with pytest.raises(BrokenRule, match="a size"):
        encoder.dispatchThreads_threadsPerThreadgroup_((np.int64(1), 1, 1), (1, 1, 1))
    with pytest.raises(BrokenRule, match="an offset"):
        encoder.setBuffer_offset_atIndex_(discrete.buffer(), -4, 0)
    with pytest.raises(BrokenRule, match="a range"):
        discrete.samples().resolveCounterRange_((0, 1.0))
    encoder.endEncoding()
