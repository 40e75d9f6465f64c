"""`ostinato.profile`: what belongs to it, what it holds, and what it must never do."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path

import numpy as np
import pytest

import ostinato as ost
from ostinato.ir.command_list import CommandList
from ostinato.profiling import analyse, ceilings, recorder, recording
from ostinato.profiling.analyse import capacity, columns_of, lists, machine, schedules, timeline
from ostinato.runtime import tracing
from scripting import Script
from small_graphs import bumps
from small_kernels import KERNELS, SLOW_STEPS

pytestmark = pytest.mark.usefixtures("dispatch_times")


def test_every_dispatch_is_seen_live_and_replayed_labelled_or_not(dev: ost.Device, kernels: ost.Library) -> None:
    x = dev.zeros(64, np.float32)
    run = bumps(dev, kernels).instantiate()
    with ost.profile() as prof:
        enc = dev.command_encoder()
        enc.dispatch(kernels["bump"], x, threads=64)
        enc.commit()
        run.replay()
        run.replay()
    columns = columns_of(prof.recording())
    assert len(columns.samples.node) == 1 + 3 + 3
    nodes = prof.recording().plan_nodes(2)
    assert nodes.kernel.tolist() == ["bump"] * 3
    assert nodes.label.tolist() == ["decode/layer.0", "decode/layer.1", "decode/layer.2"]
    assert nodes.bytes_declared.tolist() == [True] * 3
    assert nodes.flops.tolist() == [1, 1, 1]
    assert all(place is not None and place.startswith("small_graphs.py:") for place in nodes.place)
    live = prof.recording().plan_nodes(1)
    assert (live.bytes_declared.tolist(), live.bytes_written.tolist()) == ([False], [256])  # the bound bytes
    submissions = prof.recording().submissions
    assert submissions.replay.tolist() == [False, True, True]
    assert submissions.label.tolist() == ["", "token", "token"]
    assert prof.recording().edges(2).tolist() == [[0, 1], [1, 2]]


SCALE = """
constant uint N [[function_constant(0)]];
kernel void work(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] += N * STEP; }
"""


def test_kernels_of_one_name_are_one_row_only_if_source_and_constants_are_the_same(
    dev: ost.Device, tmp_path: Path
) -> None:
    for name, step in (("a", 1), ("b", 2)):
        (tmp_path / f"{name}.metal").write_text(f"#define STEP {step}\n" + SCALE)
    a, b = (Path(tmp_path / f"{name}.metal") for name in "ab")
    libraries = {
        "(a.metal) [N=4]": [dev.library(a, {"N": 4}), dev.library(a, {0: np.uint32(4)})],
        "[N=8]": [dev.library(a, {"N": 8})],
        "(b.metal)": [dev.library(b, {"N": 4})],
        "[STEP=7]": [dev.library(SCALE, {"N": 4}, defines={"STEP": 7})],
    }
    x = dev.zeros(8, np.float32)
    with ost.profile() as prof:
        for libs in libraries.values():
            for lib in libs:
                enc = dev.command_encoder()
                enc.dispatch(lib["work"], x, threads=8)
                enc.commit()
    assert {(g.name, g.detail): g.dispatched for g in prof.summary().kernels} == {
        ("work", detail): len(libs) for detail, libs in libraries.items()
    }
    same, again = libraries["(a.metal) [N=4]"]
    assert same["work"].digest == again["work"].digest != libraries["[N=8]"][0]["work"].digest
    assert set(prof.recording().commands.digest) == {lib["work"].digest for libs in libraries.values() for lib in libs}
    assert set(prof.recording().commands.source) == {str(a), str(b), ""}


def test_dispatches_lie_within_their_command_buffer_and_the_host_spans_around_it(
    dev: ost.Device, kernels: ost.Library, slack_ns: float
) -> None:
    run = bumps(dev, kernels, 50).instantiate()
    with ost.profile() as prof, ost.region("token"):
        run.replay().wait()
    found = prof.recording()
    one, samples = found.submissions, found.samples()
    assert one.commit_begin_ns[0] <= one.start_ns[0] + slack_ns
    assert one.start_ns[0] <= samples.start_ns.min() + slack_ns
    assert samples.end_ns.max() <= one.end_ns[0] + slack_ns
    spans = found.host_spans
    waits = np.flatnonzero(spans.kind == "wait")
    assert len(waits) == 1
    assert spans.begin_ns[waits[0]] <= spans.end_ns[waits[0]]
    assert spans.submission[waits[0]] == 0
    assert found.regions.name.tolist() == ["token"]
    assert one.region[0] == 0
    assert found.regions.begin_ns[0] <= one.commit_begin_ns[0] <= found.regions.end_ns[0]


def test_what_compiling_and_instantiating_take_is_taken_down(dev: ost.Device) -> None:
    with ost.profile() as prof:
        library = dev.library("kernel void made_up(device float *x [[buffer(0)]]) { x[0] = 3.25f; }")
        x = dev.zeros(1, np.float32)
        run = dev.capture(lambda enc: enc.dispatch(library["made_up"], x, threads=1), label="token").instantiate()
        run.replay().wait()
    spans = columns_of(prof.recording()).host_spans
    assert ("compile", "made_up") in zip(spans.kind, spans.name, strict=True)
    assert ("setup", "instantiate token") in zip(spans.kind, spans.name, strict=True)


def test_who_submits_does_not_describe_what_it_submits(
    dev: ost.Device, kernels: ost.Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    described = recorder.Recorder._nodes

    def watched(self: recorder.Recorder, commands: CommandList) -> list[recording.PlanNode]:
        threads.append(threading.current_thread().name)
        return described(self, commands)

    monkeypatch.setattr(recorder.Recorder, "_nodes", watched)
    with ost.profile() as prof:
        x = dev.zeros(1, np.float32)
        for value in range(3):
            enc = dev.command_encoder()
            enc.dispatch(kernels["scale"], x, x, float(value), threads=1)
            enc.commit_and_wait()
        while len(threads) < 3:
            time.sleep(0.01)  # about five times a second
    assert set(threads) == {"ostinato-recording"}
    assert len(prof.recording().commands) == 1  # alike but for the value


def test_the_line_of_live_work_is_said_to_be_the_first_and_that_of_captured_work_is_exact(
    dev: ost.Device, kernels: ost.Library
) -> None:
    x = dev.zeros(1, np.uint32)
    with ost.profile() as live:
        enc = dev.command_encoder()
        enc.dispatch(kernels["spin"], x, 1000, threads=1)
        enc.commit_and_wait()
    assert "first encoded at test_profile.py:" in live.look_first()
    run = dev.capture(lambda enc: enc.dispatch(kernels["spin"], x, 1000, threads=1)).instantiate()
    with ost.profile() as replayed:
        run.replay().wait()
    assert "first encoded at" not in replayed.look_first()
    assert "test_profile.py:" in replayed.look_first()


def test_profiles_nest_and_each_has_what_was_committed_in_it(dev: ost.Device, kernels: ost.Library) -> None:
    run = bumps(dev, kernels).instantiate()
    run.replay()
    with ost.profile() as outer:
        run.replay()
        with ost.profile(level="command_buffers") as inner:
            run.replay()
        run.replay()
    run.replay()
    assert len(outer.recording().submissions) == 3
    assert len(inner.recording().submissions) == 1


def test_work_of_other_threads_belongs_to_it_too(dev: ost.Device, kernels: ost.Library) -> None:
    run = bumps(dev, kernels).instantiate()
    with ost.profile() as prof:
        threads = [threading.Thread(target=run.replay) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(prof.recording().submissions) == 4


def test_a_commit_stays_asynchronous_and_syncs_are_not_counted(own_dev: ost.Device) -> None:
    spin = own_dev.library(KERNELS)["spin"]
    x = own_dev.zeros(1, np.uint32)
    with ost.counters.scope() as counts, ost.profile() as prof:
        enc = own_dev.command_encoder()
        enc.dispatch(spin, x, SLOW_STEPS, threads=1)
        submission = enc.commit()
        assert not submission.done
        assert (counts.syncs, counts.command_buffers) == (0, 1)
        assert len(prof.recording().samples()) == 1  # reading waits
        assert submission.done
    assert (counts.syncs, counts.command_buffers) == (0, 1)  # nothing that a profile does by itself is counted


def test_one_in_sixteen_replays_runs_unsampled_and_is_counted(dev: ost.Device, kernels: ost.Library) -> None:
    run = bumps(dev, kernels).instantiate()
    with ost.profile() as prof:
        for _ in range(96):
            run.replay()
    found = prof.recording()
    assert found.submissions.probe.sum() == 5  # none of the first sixteen
    assert len(found.samples()) == 91 * 3
    assert "5 unsampled" in " ".join(str(prof).split())


def test_command_buffers_alone_cost_less_and_say_so(dev: ost.Device, kernels: ost.Library) -> None:
    run = bumps(dev, kernels).instantiate()
    with ost.profile(level="command_buffers") as prof:
        run.replay()
    assert len(prof.recording().samples()) == 0
    assert prof.recording().submissions.start_ns[0] > 0


def test_a_profile_in_a_file_can_be_reported_later(dev: ost.Device, kernels: ost.Library, tmp_path: Path) -> None:
    run = bumps(dev, kernels).instantiate()
    path = tmp_path / "run.ostinato"
    with ost.profile(path=path) as prof:
        for _ in range(5):
            run.replay()
    with recording.open_recording(path) as found:
        summary = analyse.summarise(found)
    assert " ".join(str(prof).split()).endswith(" ".join(prof.look_first().split()))
    assert analyse.look_first(summary) == prof.look_first()
    saved = tmp_path / "again.ostinato"
    prof.save(saved)
    with recording.open_recording(saved) as again:
        assert len(again.samples()) == 15


def test_an_empty_profile_prints(dev: ost.Device) -> None:
    with ost.profile() as prof:
        pass
    assert str(prof).rstrip().splitlines()[-1] == "Nothing to look at first: no command buffer was recorded"


def test_a_profile_read_while_open_goes_on(dev: ost.Device, kernels: ost.Library) -> None:
    run = bumps(dev, kernels).instantiate()
    with ost.profile() as prof:
        run.replay()
        assert prof.summary().submissions == 1
        run.replay()
        assert prof.summary().submissions == 2
        run.replay()
    assert prof.summary().submissions == 3


def test_leaving_a_profile_without_a_file_waits_for_nothing_and_reading_it_ends_its_thread(
    own_dev: ost.Device,
) -> None:
    spin = own_dev.library(KERNELS)["spin"]
    x = own_dev.zeros(1, np.uint32)
    threads = set(threading.enumerate())
    with ost.profile() as prof:
        enc = own_dev.command_encoder()
        enc.dispatch(spin, x, SLOW_STEPS, threads=1)
        submission = enc.commit()
    assert not submission.done
    assert prof.summary().submissions == 1
    assert set(threading.enumerate()) <= threads


def test_work_in_flight_at_the_end_of_the_process_is_in_its_recording(script: Script, tmp_path: Path) -> None:
    path = tmp_path / "end.ostinato"
    result = script(
        """
        dev = ost.open_device(DEVICE)
        spin = dev.library(KERNELS)["spin"]
        x = dev.zeros(1, np.uint32)
        prof = ost.profile(path=sys.argv[1]).__enter__()
        for _ in range(3):
            enc = dev.command_encoder()
            enc.dispatch(spin, x, SLOW_STEPS // 10, threads=1)
            enc.commit()
        """,
        str(path),
    )
    assert result.returncode == 0, result.stderr
    with recording.open_recording(path) as found:
        assert len(found.submissions) == 3
        assert len(found.samples()) == 3


def test_nested_profiles_keep_to_their_own_level(dev: ost.Device, kernels: ost.Library) -> None:
    run = bumps(dev, kernels).instantiate()
    with ost.profile(), ost.profile(level="command_buffers") as inner:
        for _ in range(32):
            run.replay()
    found = inner.recording()
    assert len(found.submissions) == 32
    assert len(found.samples()) == 0
    assert not found.submissions.probe.any()


@pytest.mark.parametrize(
    ("barriers", "edges"),
    [("auto", [[0, 2]]), ("serial", [[0, 1], [1, 2], [2, 3]]), ("manual", [[0, 1], [1, 2], [1, 3]])],
)
def test_edges_are_what_the_list_was_ordered_by(
    dev: ost.Device, kernels: ost.Library, barriers: str, edges: list[list[int]]
) -> None:
    x, y = dev.zeros(1, np.float32), dev.zeros(1, np.float32)
    with ost.profile() as prof:
        enc = dev.command_encoder(barriers=barriers)
        enc.dispatch(kernels["bump"], x, threads=1)
        if barriers == "manual":
            enc.memory_barrier()
        else:
            enc.dispatch(kernels["bump"], y, threads=1)
        enc.dispatch(kernels["bump"], x, threads=1)
        enc.dispatch(kernels["bump"], dev.zeros(1, np.float32), threads=1)
        enc.commit_and_wait()
    assert prof.recording().edges(1).tolist() == edges


def test_probes_do_not_follow_a_rhythm_of_the_program(dev: ost.Device, kernels: ost.Library) -> None:
    run = bumps(dev, kernels).instantiate()
    with ost.profile() as prof:
        for _ in range(16 * 12):
            run.replay()
    at = np.flatnonzero(prof.recording().submissions.probe)
    assert (at // 16).tolist() == list(range(1, 12))  # one in each sixteen, but for the first
    assert len(set((at % 16).tolist())) > 3


def test_a_region_is_its_threads_own_unless_another_runs_in_its_context(dev: ost.Device, kernels: ost.Library) -> None:
    run = bumps(dev, kernels).instantiate()

    def elsewhere(*work: object) -> None:
        thread = threading.Thread(target=work[0], args=work[1:])  # type: ignore[arg-type]
        thread.start()
        thread.join()

    async def in_a_task() -> None:
        await asyncio.to_thread(run.replay)

    with ost.profile() as prof:
        for _ in range(2):
            with ost.region("token"):
                run.replay()
                elsewhere(run.replay)
                elsewhere(contextvars.copy_context().run, run.replay)
                asyncio.run(in_a_task())
    submissions = columns_of(prof.recording()).submissions
    assert submissions.region.tolist() == [0, -1, 0, 0, 1, -1, 1, 1]
    summary = prof.summary()
    assert summary.outside is not None
    assert (summary.outside.submissions, summary.outside.while_open) == (2, 2)
    assert "2 command buffers outside of any 'token', 2 of them committed by other threads while one was open" in str(
        prof
    )


def test_a_region_around_thousands_of_others_is_kept(dev: ost.Device, kernels: ost.Library) -> None:
    run = bumps(dev, kernels).instantiate()
    with ost.profile(level="command_buffers") as prof:
        with ost.region("all"):
            for _ in range(5000):
                with ost.region("token"):
                    pass
            with ost.region("token"):
                run.replay()
        run.replay().wait()
    columns = columns_of(prof.recording())
    outer = columns.regions.name.tolist().index("all")
    assert columns.regions.end_ns[outer] > columns.regions.begin_ns[outer]
    assert (columns.regions.parent[1:] == outer).all()
    assert columns.submissions.region.tolist() == [5001, -1]


def test_a_region_may_end_in_another_context_than_it_began_in(dev: ost.Device, kernels: ost.Library) -> None:
    def tokens() -> Generator[int, None, None]:
        with ost.region("token"):
            yield 1

    with ost.profile() as prof:
        began = contextvars.copy_context()
        generator = tokens()
        began.run(next, generator)
        generator.close()
    assert prof.recording().regions.name.tolist() == ["token"]


def test_wrong_levels_and_entering_twice_are_refused(dev: ost.Device) -> None:
    with pytest.raises(ost.ArgumentError, match="'dispatches'"):
        ost.profile(level="everything")
    with pytest.raises(ost.ArgumentError, match="records nothing"):
        ost.profile(level="off")
    with ost.profile() as prof, pytest.raises(ost.ArgumentError, match="entered once"):
        prof.__enter__()
    with pytest.raises(ost.LabelError), ost.region(""):
        pass


def test_it_is_a_page_in_a_notebook_with_everything_escaped(dev: ost.Device, kernels: ost.Library) -> None:
    x = dev.zeros(1, np.float32)
    with ost.profile() as prof:
        enc = dev.command_encoder()
        with enc.scope("<script>alert(1)</script>"):
            enc.dispatch(kernels["bump"], x, threads=1)
        enc.commit_labeled("[red]\x1b[2J")
    page = prof._repr_html_()
    assert page is not None
    assert "<script>" not in page
    assert "\x1b" not in page
    assert "\x1b" not in str(prof)


def test_dropping_a_device_lets_go_of_its_plans(script: Script) -> None:
    result = script(
        """
        import gc, weakref
        dev = ost.open_device(DEVICE)
        kernels = dev.library(KERNELS)
        x = dev.zeros(1, np.float32)
        with ost.profile() as prof:
            enc = dev.command_encoder()
            enc.dispatch(kernels["bump"], x, threads=1)
            enc.commit_and_wait()
        text = str(prof)
        backend = weakref.ref(dev._queue.backend)
        del dev, kernels, x, enc, prof
        gc.collect()
        print(backend() is None)
        """
    )
    assert result.stdout.split() == ["True"], result.stderr


def test_the_serial_top_k_comes_first_in_the_table(dev: ost.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The story that matters most: kernels that move memory well, and among them a top-k on one thread."""
    if dev.capabilities.backend == "cpu":  # measured while other tests keep it busy, its ceilings would say little
        known = ceilings.Ceilings(2e10, 0.0, 1e11, 0.0, 50.0)
        monkeypatch.setattr(ceilings, "known", lambda queue: known)
    library = dev.library(
        """
        #include <metal_stdlib>
        using namespace metal;
        kernel void scale(device const float4 *in [[buffer(0)]], device float4 *out [[buffer(1)]],
                          uint id [[thread_position_in_grid]]) { out[id] = in[id] * 0.5f; }
        kernel void serial_topk(device const float *x [[buffer(0)]], device uint *out [[buffer(1)]],
                                constant uint &n [[buffer(2)]], uint id [[thread_position_in_grid]]) {
            if (id != 0) return;
            for (uint k = 0; k < 8; ++k) {
                float best = -1.0f; uint at = 0;
                for (uint i = 0; i < n; ++i) {
                    bool taken = false;
                    for (uint j = 0; j < k; ++j) taken = taken || out[j] == i;
                    if (!taken && x[i] > best) { best = x[i]; at = i; }
                }
                out[k] = at;
            }
        }
        """
    )
    count = 1 << 18
    a, b = dev.zeros((count, 4), np.float32), dev.zeros((count, 4), np.float32)
    scores = dev.array(np.random.default_rng(0).random(1 << 17).astype(np.float32))
    best = dev.zeros(8, np.uint32)

    def token(enc: ost.CommandEncoder) -> None:
        for layer in range(6):
            with enc.scope(f"decode/layer.{layer}"):
                source, target = (a, b) if layer % 2 else (b, a)
                enc.dispatch(
                    library["scale"], source, target, threads=count, bytes_read=a.nbytes, bytes_written=a.nbytes
                )
        with enc.scope("decode/route"):
            enc.dispatch(
                library["serial_topk"],
                scores,
                best,
                scores.size,
                threads=32,
                group_size=32,
                bytes_read=scores.nbytes,
                bytes_written=best.nbytes,
            )

    run = dev.capture(token, label="token").instantiate()
    with ost.profile() as prof:
        for _ in range(20):
            with ost.region("token"):
                run.replay().wait()
    assert sorted(best.numpy().tolist()) == sorted(np.argsort(scores.numpy())[-8:].tolist())
    suspects = prof.summary().suspects
    assert suspects[0].ranked[0].kernel == "serial_topk", str(prof)
    assert prof.look_first().startswith("Look first at serial_topk")
    assert "1 threadgroup of 32 threads" in "; ".join(suspects[0].ranked[0].reasons)


def test_what_kernels_save_that_share_all_workers_comes_from_a_replay_of_their_work() -> None:
    with ost.open_device("cpu", workers=2) as device:
        library = device.library(
            "".join(
                f"kernel void {name}(device uint *x [[buffer(0)]], uint id [[thread_position_in_grid]])"
                " { uint v = id; for (uint i = 0; i < 3000; ++i) { v = v * 1664525u + 1u; v ^= v >> 13; } x[id] = v; }"
                for name in ("left", "right", "joined")
            )
        )
        x = device.zeros(64 * 64, np.uint32)
        y = device.zeros(64 * 64, np.uint32)

        def encode(enc: ost.CommandEncoder) -> None:
            enc.dispatch(library["left"], x, threads=x.size, group_size=64)
            enc.dispatch(library["right"], y, threads=y.size, group_size=64)
            enc.dispatch(library["joined"], x, threads=x.size, group_size=64, reads=[x, y])

        run = device.capture(encode).instantiate()
        with ost.profile() as prof:
            for _ in range(20):
                run.replay().wait()
        summary = prof.summary()
    columns = columns_of(prof.recording())
    aside = machine.disturbance(columns, timeline.submission_times(columns), lists.warm_ups(columns)).aside
    (plan,) = schedules.schedules(columns, 0, aside).plans
    saved = {one.kernel: one.saved_ns for one in summary.what_ifs}
    assert saved["joined"] is not None
    # A machine that is busy elsewhere may run them in a way that nothing explains; then nothing is claimed.
    if plan.contention:
        (stretch,) = plan.contention
        assert sorted(stretch.nodes) == [0, 1]
        assert summary.replay_residue is not None
        assert 0 <= summary.replay_residue <= capacity.FITS
        assert saved["left"] is not None
        assert saved["right"] is not None
        assert 0 <= saved["left"] + saved["right"] <= plan.submissions * stretch.wall_ns * 1.001
    else:
        assert plan.unknown is not None
        assert plan.unknown.tolist() == [True, True, False]
        assert saved["left"] is None


def test_what_the_profile_takes_of_the_programs_own_time_is_said(dev: ost.Device, kernels: ost.Library) -> None:
    run = bumps(dev, kernels).instantiate()
    with ost.profile() as prof:
        for _ in range(5):
            run.replay()
    assert (prof.recording().processes[0].overhead_ns or 0) > 0
    (host,) = [check for check in prof.summary().checks if check.name == "host"]
    assert "per command buffer on the host" in host.sentence
    assert "profiling overhead:" in " ".join(str(prof).split())


def test_threads_are_recorded_by_their_names_also_those_that_ended_at_once(
    dev: ost.Device, kernels: ost.Library
) -> None:
    run = bumps(dev, kernels).instantiate()
    with ost.profile() as prof, ost.region("all"):
        for number in range(3):
            worker = threading.Thread(target=lambda: run.replay().wait(), name=f"decoder {number}")
            worker.start()
            worker.join()
        run.replay().wait()
    found = prof.recording()
    threads = found.submissions.thread.tolist()
    assert [found.threads[0, thread] for thread in threads] == [
        *("decoder 0", "decoder 1", "decoder 2"),
        threading.current_thread().name,
    ]
    assert found.threads[0, int(found.regions.thread[0])] == threading.current_thread().name
    assert set(columns_of(found).thread_names.values()) == set(found.threads.values())


def test_leaving_a_profile_by_an_exception_puts_the_switch_interval_back(
    dev: ost.Device, kernels: ost.Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sys.getswitchinterval()
    x = dev.zeros(1, np.uint32)
    run = dev.capture(lambda enc: enc.dispatch(kernels["spin"], x, SLOW_STEPS, threads=1)).instantiate()
    kept = ost.profile()

    def fail_in_flight() -> None:  # so that the profile stays open
        with kept:
            assert sys.getswitchinterval() < before
            run.replay()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_in_flight()
    assert sys.getswitchinterval() == before
    assert kept.summary().submissions == 1

    def interrupted(queues: object) -> int:
        raise KeyboardInterrupt

    filed = ost.profile(path=tmp_path / "run.ostinato")
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["ostinato.profiling.session"], "settle", interrupted)
        with pytest.raises(KeyboardInterrupt), filed:
            run.replay()
    assert sys.getswitchinterval() == before
    filed.close()
    assert filed.summary().submissions == 1


def test_a_profile_that_cannot_be_entered_puts_the_switch_interval_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = sys.getswitchinterval()

    def fail(listener: object) -> None:
        raise MemoryError

    monkeypatch.setattr(tracing, "attach", fail)
    kept = ost.profile(path=tmp_path / "run.ostinato")
    with pytest.raises(MemoryError), kept:
        pass
    assert sys.getswitchinterval() == before
    with recording.open_recording(tmp_path / "run.ostinato") as found:
        assert found.processes[0].closed


def test_profiled_fills_of_new_memory_at_an_old_address_reach_the_new_memory(dev: ost.Device) -> None:
    """Lists that are alike share their description, but not the memory that they name."""
    with ost.profile():
        for value in range(20):
            buffer = dev.empty(1 << 16, np.uint32)
            enc = dev.command_encoder()
            enc.fill(buffer, 7)
            enc.commit_and_wait()
            assert (buffer.numpy() == 7).all(), value
            buffer.free()
