"""What the Metal backend encodes, and what it says of times."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import metal_sim
import ostinato as ost
from metal_sim import PROFILES
from ostinato import kernel_profile
from ostinato.backends.metal import MetalBackend, counters, turns
from ostinato.backends.metal.clocks import step_of
from ostinato.backends.metal.encoding import Group
from ostinato.backends.protocol import Level, Run
from ostinato.device import Device
from ostinato.profiling import recording
from ostinato.profiling.calibration import explain
from small_kernels import KERNELS, SLOW_STEPS

Journal = list[tuple[str, ...]]

PUT = "kernel void put(device float *x [[buffer(0)]], constant float &value [[buffer(1)]]) { x[0] = value; }"


def opened(profile: str, **options: object) -> Device:
    return Device(MetalBackend(framework=metal_sim.framework(PROFILES[profile]), **options))  # type: ignore[arg-type]


def kinds(journal: Journal) -> list[str]:
    return [one[0] for one in journal]


def two_and_one(enc: ost.CommandEncoder, kernels: ost.Library, x: ost.Buffer) -> None:
    """Two that are independent, and one that waits for both."""
    enc.dispatch(kernels["bump"], x[:4], threads=4)
    enc.dispatch(kernels["bump"], x[4:], threads=4)
    enc.dispatch(kernels["bump"], x, threads=8)


def test_one_encoder_with_barriers_only_where_they_are_needed(
    sim: ost.Device, kernels: ost.Library, journal: Journal
) -> None:
    x = sim.zeros(8, np.float32)
    enc = sim.command_encoder()
    two_and_one(enc, kernels, x)
    enc.copy(x[:4], x[4:])
    enc.commit_and_wait_labeled("token")
    bump = ("dispatch", "bump")
    assert journal == [
        ("encoder", "concurrent"), bump, bump, ("barrier",), bump, ("barrier",), ("dispatch", "copy_16"),
        ("commit", "token", "retained"),
    ]  # fmt: skip
    assert (x.numpy() == 2).all()


def test_serial_order_is_metals_own(sim: ost.Device, kernels: ost.Library, journal: Journal) -> None:
    x = sim.zeros(8, np.float32)
    enc = sim.command_encoder(barriers="serial")
    two_and_one(enc, kernels, x)
    enc.commit_and_wait()
    assert journal[0] == ("encoder", "serial")
    assert "barrier" not in kinds(journal)


def test_manual_barriers_are_where_the_caller_put_them(sim: ost.Device, kernels: ost.Library, journal: Journal) -> None:
    x = sim.zeros(8, np.float32)
    enc = sim.command_encoder(barriers="manual")
    enc.dispatch(kernels["bump"], x[:4], threads=4)
    enc.memory_barrier()
    enc.dispatch(kernels["bump"], x[4:], threads=4)
    enc.commit_and_wait()
    assert kinds(journal) == ["encoder", "dispatch", "barrier", "dispatch", "commit"]


def test_references_are_unretained_on_request(sim: ost.Device, kernels: ost.Library, journal: Journal) -> None:
    x = sim.zeros(8, np.float32)
    enc = sim.command_encoder(retain=False)
    enc.dispatch(kernels["bump"], x, threads=8)
    enc.commit_and_wait()
    assert journal[-1][2] == "unretained"


def test_a_replay_is_one_execution_where_the_device_has_indirect_command_buffers(
    sim: ost.Device, kernels: ost.Library, journal: Journal
) -> None:
    x = sim.zeros(8, np.float32)
    run = sim.capture(lambda enc: two_and_one(enc, kernels, x)).instantiate()
    assert journal == []
    run.replay().wait()
    if sim.name == "metal-sim:apple":
        assert kinds(journal) == ["encoder", "execute", "commit"]
    else:
        assert kinds(journal) == ["encoder", "dispatch", "dispatch", "barrier", "dispatch", "commit"]
    assert (x.numpy() == 2).all()


def test_queued_replays_see_their_own_values(sim: ost.Device) -> None:
    kernel = sim.library(
        "kernel void put(device uint *x [[buffer(0)]], constant uint &at [[buffer(1)]]) { x[at] += at + 1; }"
    )["put"]
    x = sim.zeros(64, np.uint32)
    run = sim.capture(lambda enc: enc.dispatch(kernel, x, ost.param("at", np.uint32), threads=1)).instantiate()
    for at in range(64):
        run.replay(at=at)
    assert np.array_equal(x.numpy(), np.arange(64) + 1)


def test_many_submissions_never_use_the_queue_up(sim: ost.Device, kernels: ost.Library) -> None:
    x, slow = sim.zeros(8, np.float32), sim.zeros(1, np.uint32)
    enc = sim.command_encoder()
    enc.dispatch(kernels["spin"], slow, SLOW_STEPS // 4, threads=1)
    enc.commit()
    for _ in range(200):
        enc = sim.command_encoder()
        enc.dispatch(kernels["bump"], x, threads=8)
        enc.commit()
    assert (x.numpy() == 200).all()


def test_more_samples_than_one_buffer_holds_are_all_there(sim: ost.Device, kernels: ost.Library) -> None:
    x, count = sim.zeros(8, np.float32), 2500

    def encode(enc: ost.CommandEncoder) -> None:
        for _ in range(count):
            enc.dispatch(kernels["bump"], x, threads=8)

    graph = sim.capture(encode)
    with ost.profile() as prof:
        graph.instantiate().replay()
    samples = prof.recording().samples()
    assert len(samples) == count
    assert (samples.start_ns > 0).all()
    order = np.argsort(samples.node)
    assert (np.diff(samples.start_ns[order]) > 0).all()


def test_what_ran_beside_others_has_bounds_and_what_ran_alone_a_time(sim: ost.Device, kernels: ost.Library) -> None:
    x = sim.zeros(8, np.float32)
    with ost.profile() as prof:
        enc = sim.command_encoder()
        two_and_one(enc, kernels, x)
        enc.commit_and_wait()
    samples = prof.recording().samples()
    status = samples.status[np.argsort(samples.node)]
    assert status[:2].tolist() == [recording.BOUNDED] * 2
    assert status[2] == recording.MEASURED


@pytest.mark.parametrize("profile", ["apple", "discrete"])
@pytest.mark.parametrize("live", [False, True])
def test_those_that_run_beside_others_take_turns(private_environment: None, profile: str, live: bool) -> None:
    dev = opened(profile, subsets=1)
    kernels, x = dev.library(KERNELS), dev.zeros(8, np.float32)
    run = dev.capture(lambda enc: two_and_one(enc, kernels, x)).instantiate()
    with ost.profile() as prof:
        for _ in range(5):
            if live:
                enc = dev.command_encoder()
                two_and_one(enc, kernels, x)
                enc.commit()
            else:
                run.replay()
    assert (x.numpy() == 10).all()
    samples = prof.recording().samples()
    status = samples.status[np.lexsort((samples.node, samples.submission))].reshape(5, 3)
    assert (status[0, :2] == recording.BOUNDED).all()
    assert ((status[1:, :2] == recording.MEASURED).sum(axis=0) == 2).all()
    assert ((status[1:, :2] == recording.UNAVAILABLE).sum(axis=1) == 1).all()
    assert (status[:, 2] == recording.MEASURED).all()


@pytest.mark.parametrize("profile", ["apple", "discrete"])
def test_there_are_no_more_turns_than_groups(private_environment: None, profile: str) -> None:
    """So that no sampled run goes by without a time."""
    dev = opened(profile, subsets=1000)
    kernels, x = dev.library(KERNELS), dev.zeros(8, np.float32)
    with ost.profile() as prof:
        for _ in range(5):
            enc = dev.command_encoder()
            two_and_one(enc, kernels, x)
            enc.commit()
    samples = prof.recording().samples()
    status = samples.status[np.lexsort((samples.node, samples.submission))].reshape(5, 3)
    assert ((status[1:] != recording.UNAVAILABLE).sum(axis=1) == 1).all()


@pytest.mark.parametrize("live", [False, True])
def test_after_the_first_run_few_are_timed_at_stage_boundaries_and_each_has_its_turn(
    apple: ost.Device, live: bool
) -> None:
    bump, x, count = apple.library(KERNELS)["bump"], apple.zeros(8, np.float32), 70

    def token(enc: ost.CommandEncoder) -> None:
        for _ in range(count):
            enc.dispatch(bump, x, threads=8)

    run = apple.capture(token).instantiate()
    with ost.profile() as prof:
        for _ in range(33):
            if live:
                enc = apple.command_encoder()
                token(enc)
                enc.commit()
            else:
                run.replay()
    assert (x.numpy() == 33 * count).all()
    samples = prof.recording().samples()
    status = samples.status[np.lexsort((samples.node, samples.submission))].reshape(-1, count)
    timed = status != recording.UNAVAILABLE
    assert timed[0].all()
    assert (timed[1:].sum(axis=1) <= 3).all()
    assert timed.any(axis=1).all()
    if live:
        assert (timed[1:33].sum(axis=0) == 1).all()  # of replays some are left out, to see what sampling costs


def test_every_dispatch_has_an_entry_and_says_where_it_was_not_timed(apple: ost.Device) -> None:
    bump, x, runs, count = apple.library(KERNELS)["bump"], apple.zeros(8, np.float32), 8, 5
    kernel_profile.reset()
    with ost.settings.override(profile_dispatch=1):
        for _ in range(runs):
            enc = apple.command_encoder()
            for _ in range(count):
                enc.dispatch(bump, x, threads=8)
            enc.commit_and_wait_labeled("token")
    entries = dict(kernel_profile.dump_dispatches())["token"]
    kernel_profile.reset()
    assert [entry.dispatch_index for entry in entries] == list(range(count)) * runs
    untimed = [entry for entry in entries if entry.status == "unavailable"]
    assert len(untimed) == (runs - 1) * (count - 1)  # all are timed in the first run, one in each that follows
    for entry in untimed:
        assert (entry.gpu_ns, entry.start_gpu_ns, entry.end_gpu_ns) == (None, None, None)
        assert "take turns" in entry.reason
    assert all(entry.gpu_ns is not None and not entry.reason for entry in entries if entry not in untimed)


def test_a_graph_whose_dispatches_take_turns_is_explained_too(apple: ost.Device) -> None:
    """No replay but the first has all of the times."""
    bump, x = apple.library(KERNELS)["bump"], apple.zeros(8, np.float32)

    def token(enc: ost.CommandEncoder) -> None:
        for _ in range(5):
            enc.dispatch(bump, x, threads=8)

    found = explain(apple.capture(token), repetitions=3)
    assert found.breakdown is not None
    assert (found.breakdown.path, found.untimed) == ((0, 1, 2, 3, 4), 0)
    assert [(cost.kernel, cost.dispatches) for cost in found.kernels] == [("bump", 5)]


def test_a_sampled_replay_executes_the_indirect_command_buffer_in_ranges(apple: ost.Device, journal: Journal) -> None:
    bump, x = apple.library(KERNELS)["bump"], apple.zeros(8, np.float32)
    put = apple.library(PUT)["put"]

    def token(enc: ost.CommandEncoder) -> None:
        enc.dispatch(put, x[0:1], ost.param("value", np.float32), threads=1)
        for _ in range(6):
            enc.dispatch(bump, x[:4], threads=4)
            enc.dispatch(bump, x[4:], threads=4)

    run = apple.capture(token).instantiate()
    with ost.profile(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(turns, "SPARSE", 2)
        for number in range(1, 12):
            journal.clear()
            run.replay(value=number).wait()
            assert x.numpy().tolist() == [number + 6, *[6.0 * number] * 7]
            assert kinds(journal).count("dispatch") <= 1  # the copy of the value
            assert sum(int(one[1]) for one in journal if one[0] == "execute") == 13


MIX = """
kernel void mix(device const uint *from [[buffer(0)]], device uint *to [[buffer(1)]], constant uint &by [[buffer(2)]],
                uint i [[thread_position_in_grid]]) { to[i] = to[i] * 3 + from[i] + by; }
"""


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)).filter(lambda ends: ends[0] != ends[1]), min_size=1))
@settings(max_examples=40, deadline=None)
def test_work_is_the_same_whatever_is_timed(sim: ost.Device, dispatches: list[tuple[int, int]]) -> None:
    """The order of any two that meet matters to the result."""
    mix, rows = sim.library(MIX)["mix"], [sim.zeros(32, np.uint32) for _ in range(4)]
    expected = np.zeros((4, 32), np.uint32)

    def token(enc: ost.CommandEncoder) -> None:
        for number, (source, target) in enumerate(dispatches):
            enc.dispatch(mix, rows[source], rows[target], np.uint32(number + 1), threads=32)

    run = sim.capture(token).instantiate()
    with ost.profile(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(turns, "SPARSE", 2)
        for _ in range(6):
            run.replay()
            for number, (source, target) in enumerate(dispatches):
                expected[target] = expected[target] * 3 + expected[source] + number + 1
    assert np.array_equal([row.numpy() for row in rows], expected)


class Calls:
    """An encoder that takes down what an indirect command buffer does with it."""

    def __init__(self) -> None:
        self.made: list[object] = []

    def useResources_count_usage_(self, resources: object, count: int, usage: int) -> None: ...

    def memoryBarrierWithScope_(self, scope: int) -> None:
        self.made.append("barrier")

    def executeCommandsInBuffer_withRange_(self, commands: object, range_: tuple[int, int]) -> None:
        self.made.append(range_)


@pytest.mark.parametrize(
    ("nodes", "calls"),
    [
        ([[0, 1, 2], [3, 4], [5]], [(0, 6)]),
        ([[3, 4], [5]], [(3, 3)]),
        ([[0, 2], [3, 4], [5]], [(0, 1), (2, 1), "barrier", (3, 3)]),
        ([[0, 1, 2], [4]], [(0, 3), "barrier", (4, 1)]),
        ([[1]], [(1, 1)]),
    ],
)
def test_groups_are_ranges_and_the_barriers_between_them(
    apple: ost.Device, nodes: list[list[int]], calls: list[object]
) -> None:
    bump, x = apple.library(KERNELS)["bump"], apple.zeros(12, np.float32)
    parts = [x[:4], x[4:8], x[8:], x[:4], x[4:], x]

    def token(enc: ost.CommandEncoder) -> None:
        for part in parts:
            enc.dispatch(bump, part, threads=part.size)

    graph = apple.capture(token)
    indirect = apple._queue.backend.instantiate(graph.command_list).indirect
    assert [len(group.steps) for group in indirect.groups] == [3, 2, 1]
    steps = {step.node: (group, step) for group in indirect.groups for step in group.steps}
    groups = [Group([steps[node][1] for node in some], steps[some[0]][0].barrier) for some in nodes]
    encoder = Calls()
    indirect.put(encoder, groups)
    assert encoder.made == calls


def test_lists_of_the_same_length_and_ends_have_turns_of_their_own(apple: ost.Device) -> None:
    kernels, x, y = apple.library(KERNELS), apple.zeros(8, np.float32), apple.zeros(8, np.float32)
    with ost.profile() as prof:
        for middle in (x, y):
            enc = apple.command_encoder()
            for one in (x, middle, x):
                enc.dispatch(kernels["bump"], one, threads=8)
            enc.commit()
    samples = prof.recording().samples()
    assert (samples.status != recording.UNAVAILABLE).all()  # each was the first of its list


def test_what_finds_no_room_for_its_samples_runs_without(
    private_environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counters, "MOST_BUFFERS", 1)
    dev = opened("apple")
    bump, x = dev.library(KERNELS)["bump"], dev.zeros(8, np.float32)
    with ost.profile() as prof:
        enc = dev.command_encoder()
        for _ in range(3000):
            enc.dispatch(bump, x, threads=8)
        enc.commit()
    assert (x.numpy() == 3000).all()
    timed = prof.recording().samples().status != recording.UNAVAILABLE
    assert timed.sum() == counters.MOST_SAMPLES // 2


def test_many_profiled_submissions_do_not_use_up_the_buffers_for_samples(sim: ost.Device, kernels: ost.Library) -> None:
    """Metal has 32 of them."""
    x = sim.zeros(8, np.float32)
    with ost.profile() as prof:
        for _ in range(100):
            enc = sim.command_encoder()
            enc.dispatch(kernels["bump"], x, threads=8)
            enc.commit()
    assert (prof.recording().samples().status == recording.MEASURED).sum() == 100


def test_a_sample_that_was_not_written_is_no_time(apple: ost.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    bump, x = apple.library(KERNELS)["bump"], apple.zeros(8, np.float32)

    def timed() -> bool:
        with ost.profile() as prof:
            enc = apple.command_encoder()
            enc.dispatch(bump, x, threads=8)
            enc.commit_and_wait()
        return bool((prof.recording().samples().status == recording.MEASURED).all())

    assert timed()
    monkeypatch.setattr(metal_sim.commands, "written", lambda mark, ticks: None)
    assert not timed()


@pytest.mark.parametrize(("profile", "step_ns"), [("apple", 1000 / 24), ("discrete", 10)])
def test_the_step_of_the_clock_is_found(private_environment: None, profile: str, step_ns: float) -> None:
    assert opened(profile).capabilities.timer_step_ns == pytest.approx(step_ns, rel=0.01)


@pytest.mark.parametrize(
    ("differences", "step"), [([125, 84, 1041], 1000 / 24), ([30, 50], 10), ([0, 0], 1), ([7, 12], 1)]
)
def test_the_step_of_readings(differences: list[int], step: float) -> None:
    assert step_of(differences) == step


def test_zeroed_samples_are_found_by_the_probe(private_environment: None) -> None:
    dev = opened("zeroed")
    assert dev.capabilities.sampling is Level.COMMAND_BUFFERS
    assert "zero" in dev.capabilities.sampling_reason
    enc = dev.command_encoder()
    enc.fill(dev.zeros(4, np.float32), 1)
    with ost.profile() as prof, pytest.warns(ost.SamplingWarning, match="samples were zero"):
        enc.commit_and_wait()
    assert prof.recording().submissions.start_ns[0] > 0


def test_residency_is_flushed_once_a_commit_and_keeps_what_is_in_flight(apple: ost.Device) -> None:
    kernels = apple.library(KERNELS)
    backend = apple._queue.backend
    residency = backend._residency._set  # type: ignore[attr-defined]
    slow, others = apple.zeros(1, np.uint32), [apple.zeros(4, np.float32) for _ in range(5)]
    before = residency.commits
    enc = apple.command_encoder()
    enc.dispatch(kernels["spin"], slow, SLOW_STEPS, threads=1)
    running = enc.commit()
    assert residency.commits == before + 1
    held = {buffer.address for buffer in residency.allocations}
    addresses = {other._allocation().backing.address for other in others}
    assert addresses <= held
    del others
    enc = apple.command_encoder()
    enc.fill(apple.zeros(4, np.float32), 1)
    enc.commit()
    assert residency.commits == before + 2
    if not running.done:
        assert addresses <= {buffer.address for buffer in residency.allocations}
    running.wait()
    apple.zeros(1, np.float32)
    enc = apple.command_encoder()
    enc.fill(apple.zeros(4, np.float32), 1)
    enc.commit_and_wait()
    assert not addresses <= {buffer.address for buffer in residency.allocations}


def test_what_the_residency_set_held_goes_at_the_next_commit(apple: ost.Device) -> None:
    """Also when nothing else changes: the set would keep the memory."""
    residency = apple._queue.backend._residency._set  # type: ignore[attr-defined]
    x, kernels = apple.zeros(4, np.float32), apple.library(KERNELS)
    slow, other = apple.zeros(1, np.uint32), apple.zeros(1 << 20, np.float32)
    address = other._allocation().backing.address

    def is_held() -> bool:
        return address in {buffer.address for buffer in residency.allocations}

    enc = apple.command_encoder()
    enc.dispatch(kernels["spin"], slow, SLOW_STEPS, threads=1)
    running = enc.commit()
    del other
    for _ in range(2):
        assert is_held()
        enc = apple.command_encoder()
        enc.fill(x, 1)
        enc.commit()
        running.wait()
    assert not is_held()


def test_overlapping_memory_is_shared_once(apple: ost.Device) -> None:
    """Metal orders work by buffers, and would not know that two of them are the same bytes."""
    array = np.frombuffer(mmap.mmap(-1, 2 * mmap.PAGESIZE), np.float32)
    half = apple.from_dlpack(array[: array.size // 2])
    part, whole = apple.from_dlpack(array[8:16]), apple.from_dlpack(array)
    enc = apple.command_encoder()
    enc.fill(half, 1)
    enc.commit_and_wait()
    assert (array[: array.size // 2] == 1).all()
    assert (part.numpy() == 1).all()
    assert (whole.numpy() == 0).all()  # a copy


def test_a_device_that_is_not_as_expected_is_not_available(
    private_environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*given: object) -> None:
        raise TypeError("objc: no such method")

    monkeypatch.setattr(metal_sim.libraries.Reflection, "bindings", refused)
    with pytest.raises(ost.DeviceUnavailable, match="no such method"):
        opened("apple")


def test_a_device_without_a_boundary_to_sample_at_takes_none(
    private_environment: None, monkeypatch: pytest.MonkeyPatch, journal: Journal
) -> None:
    monkeypatch.setattr(metal_sim.device.Device, "supportsCounterSampling_", lambda device, point: False)
    dev = opened("discrete")
    graph = dev.capture(lambda enc: enc.fill(dev.zeros(4, np.float32), 1))
    started: list[Run] = []
    backend = dev._queue.backend
    backend.submit(graph.command_list, started, sample=True)
    assert started[0].wait(10**10)
    assert started[0].samples() is None
    assert "neither" in dev.capabilities.sampling_reason


def test_a_reflection_that_disagrees_is_an_error(apple: ost.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metal_sim.libraries.Binding, "index", lambda self: self._values[1] + 1)
    with pytest.raises(ost.KernelCompileError, match=r"(?s)twin.*parser"):
        apple.library(
            "kernel void twin(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = 1; }"
        )


@pytest.mark.parametrize(
    ("scalar", "value"),
    [("bool", True), ("int", -5), ("uint", 7), ("short", -3), ("float", 1.5), ("half", 0.25), ("bfloat", -2.0)],
)
def test_function_constants_arrive(apple: ost.Device, scalar: str, value: float) -> None:
    source = f"""
    constant {scalar} given [[function_constant(3)]];
    kernel void put(device float *x [[buffer(0)]]) {{ x[0] = float(given); }}"""
    x = apple.zeros(1, np.float32)
    enc = apple.command_encoder()
    enc.dispatch(apple.library(source, constants={"given": value})["put"], x, threads=1)
    enc.commit_and_wait()
    assert x.numpy()[0] == value


def test_the_nth_submission_is_captured(private_environment: None, tmp_path: Path, journal: Journal) -> None:
    path = tmp_path / "second.gputrace"
    dev = opened("apple", gputrace=(path, 2))
    x = dev.zeros(4, np.float32)
    journal.clear()
    for _ in range(3):
        enc = dev.command_encoder()
        enc.fill(x, 1)
        enc.commit_and_wait()
    once = ["encoder", "dispatch", "commit"]
    assert kinds(journal) == [*once, "capture", *once, "captured", *once]
    assert ("capture", str(path)) in journal


def test_a_capture_that_is_not_allowed_says_how_it_would_be(
    private_environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metal_sim.capture.CaptureManager, "allowed", False)
    with pytest.raises(ost.DeviceUnavailable, match="METAL_CAPTURE_ENABLED"):
        opened("apple", gputrace="some.gputrace")


def test_indirect_command_buffers_that_do_not_work_are_not_used(
    private_environment: None, monkeypatch: pytest.MonkeyPatch, journal: Journal
) -> None:
    def nothing(encoder: object, commands: object, range_: object) -> None: ...

    encoder = metal_sim.commands.ComputeCommandEncoder
    monkeypatch.setattr(encoder, "executeCommandsInBuffer_withRange_", nothing)
    dev = opened("apple")
    assert dev.capabilities.encodes_at_replay
    assert "did not run" in dev.capabilities.details["replay"]


def test_a_replay_that_was_switched_to_encoding_does_the_same(private_environment: None) -> None:
    dev = opened("apple", indirect=False)
    x, bump = dev.zeros(4, np.float32), dev.library(KERNELS)["bump"]
    run = dev.capture(lambda enc: enc.dispatch(bump, x, threads=4)).instantiate()
    for _ in range(10):
        run.replay()
    assert (x.numpy() == 10).all()


@pytest.mark.parametrize(
    "option",
    [{"gputrace": 3}, {"gputrace": "x"}, {"subsets": 0}, {"indirect": 1}, {"sampling": "some"}, {"fast_math": "no"}],
)
def test_options_that_make_no_sense_are_refused(option: dict[str, object]) -> None:
    with pytest.raises(ost.DeviceUnavailable, match=next(iter(option))):
        opened("apple", **option)
