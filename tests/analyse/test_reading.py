"""A recording and the columns made of it say the same."""

from __future__ import annotations

import numpy as np
import pytest

from ostinato.profiling.analyse import columns_of, look_first, summarise
from ostinato.profiling.analyse.columns import ABSENT
from ostinato.profiling.recording import PlanNode, Writer, open_recording


def write(writer):
    """Two devices, a plan that repeats, one live command buffer, a region per token."""
    cpu = writer.device("cpu", "cpu", clock_uncertainty_ns=30, workers=4, copy_bytes_per_s=1e10)
    gpu = writer.device("sim", "cpu", clock_uncertainty_ns=40)
    step = [
        PlanNode("dispatch", "matvec", "decode/mlp", "N=4", "MatMul", (512, 1, 1), (64, 1, 1), 8, 40_000, 100, True),
        PlanNode("barrier", "barrier"),
        PlanNode("dispatch", "top_k", "decode/top_k", "", None, (1, 1, 1), (1, 1, 1), 1, 4000, 40, place="m.py:3"),
    ]
    plan = writer.plan(cpu, step, np.array([[0, 1], [1, 2]]))
    other = writer.plan(gpu, step[:1])
    for token in range(6):
        t = 1_000_000 + 100_000 * token
        region = writer.begin_region("token", t, thread=11)
        number = writer.submission(
            device=cpu, plan=plan, ordinal=token + 1, label="token", region=region, replay=True, thread=11,
            probe=token == 3, commit_begin_ns=t + 10, commit_end_ns=t + 20,
            start_ns=t + 30, end_ns=t + 70_030,
        )  # fmt: skip
        writer.host_span("wait", t + 20, t + 70_100, thread=11, submission=number, region=region)
        writer.end_region(region, t + 80_000)
        if token != 3:
            writer.samples(number, [0, 2], [t + 30, t + 6_030], [t + 5_030, t + 70_030], [0, 1])
    writer.submission(
        device=gpu, plan=other, ordinal=1, level="command_buffers", status="unavailable", reason="no clock", thread=12
    )
    writer.drop("samples", 3)


@pytest.fixture(params=["memory", "file"])
def recording(request, tmp_path):
    path = None if request.param == "memory" else tmp_path / "run.ostinato"
    with Writer(path) as writer:
        write(writer)
        if path is None:
            with writer.recording() as found:
                yield found
    if path is not None:
        with open_recording(path) as found:
            yield found


def test_ids_become_rows(recording):
    columns = columns_of(recording)
    assert [(d.name, d.workers) for d in columns.devices] == [("cpu", 4), ("sim", None)]
    subs = columns.submissions
    assert subs.device.tolist() == [0] * 6 + [1]
    assert subs.plan.tolist() == [0] * 6 + [1]
    assert subs.region.tolist() == [*range(6), -1]
    assert subs.sampled.tolist() == [True, True, True, False, True, True, False]
    assert (subs.status[6], subs.reason[6], subs.start_ns[6]) == ("unavailable", "no clock", ABSENT)
    assert columns.plans.first.tolist() == [0, 3, 4]
    assert [edge.tolist() for edge in columns.plans.edges[0]] == [[0, 1], [1, 2]]
    assert columns.samples.submission.tolist() == [0, 0, 1, 1, 2, 2, 4, 4, 5, 5]
    assert columns.samples.node.tolist() == [0, 2] * 5
    assert columns.host_spans.submission.tolist() == list(range(6))
    assert set(columns.host_spans.kind) == {"wait"}
    kernels = columns.commands.kernel[columns.plans.command]
    assert kernels.tolist() == ["matvec", "barrier", "top_k", "matvec"]
    assert (columns.commands.flops == ABSENT).all()


def test_a_recording_is_summarised_as_it_is(recording):
    summary = summarise(recording)
    top_k, matvec = summary.kernels
    assert (top_k.name, top_k.count, top_k.dispatched, top_k.times.p50_ns) == ("top_k", 5, 6, 64_000)
    assert (top_k.bounded, top_k.place) == (5, "m.py:3")
    assert (matvec.name, matvec.detail, matvec.per_instance_ns) == ("matvec", "", 5000)
    assert summary.repeated == "token"
    assert summary.drops == (("samples", 3),)
    assert look_first(summary).startswith("Look first at top_k")


def test_nothing_recorded_is_read_as_nothing():
    with Writer() as writer, writer.recording() as found:
        summary = summarise(found)
    assert (summary.submissions, summary.kernels, summary.device_times) == (0, (), ())
