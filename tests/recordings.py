"""What the tests of recordings share: a recording with one of everything, and a reader that leaves nothing out."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import numpy as np

from ostinato.profiling.recording import NONE, PlanNode, PlanTerm, Recording, Writer, open_recording

TEXT = b"// the largest of N\nkernel void top_k(device float *x) {\n  x[0] = 1;\n}\n"
DIGEST = hashlib.sha256(TEXT).hexdigest()
NODES = [
    PlanNode(
        *("dispatch", "top_k", "decoder/sample", "N=32,use_bias=true", "top_k"),
        threads=(32, 1, 1),
        group=(32, 1, 1),
        groups=1,
        bytes_read=4096,
        bytes_written=128,
        bytes_declared=True,
        flops=1024,
        place="model.py:12",
        origin="0",
        source="kernels/top_k.metal",
        file="kernels/top_k.metal",
        line=2,
        source_digest=DIGEST,
        execution="loop: its threads never meet",
        text=TEXT,
        constants=(("N", "32"), ("use_bias", "true")),
    ),
    PlanNode("barrier", "barrier"),
    PlanNode(
        *("dispatch", "matvec", "decoder/head"),
        threads=(4096, 2, 1),
        group=(64, 2, 1),
        groups=64,
        bytes_read=1 << 40,
        terms=(PlanTerm("bytes_read", "position", 64, 1, 100), PlanTerm("bytes_written", "position", 4)),
    ),
    PlanNode("copy", "copy", bytes_read=16, bytes_written=16),
]
EDGES = np.array([(0, 1), (1, 2), (0, 3)], np.uint32)
START_NS = 5_000_000_000


def fill(writer: Writer, submissions: int = 3, start_ns: int = START_NS) -> list[int]:
    """One of everything, with samples of the two dispatches and of the copy of each submission."""
    me = threading.get_ident()
    device = writer.device(
        *("cpu", "cpu"), description="two cores", sampling="dispatch boundaries", clock_uncertainty_ns=30,
        details={"compiler": "g++ 12"}, copy_bytes_per_s=2e10,
    )  # fmt: skip
    writer.device_facts(device, flops_per_s=1e11)
    writer.name_thread(me, threading.current_thread().name)
    plan = writer.plan(device, NODES, EDGES)
    numbers = []
    run = writer.begin_region("run", start_ns, thread=me)
    for ordinal in range(1, submissions + 1):
        at = start_ns + ordinal * 1_000_000
        token = writer.begin_region("token", at, thread=me, parent=run)
        number = writer.submission(
            *(), device=device, plan=plan, ordinal=ordinal, label=f"cb {ordinal}", region=token, replay=ordinal > 1,
            encode_begin_ns=at + 1, encode_end_ns=at + 2, commit_begin_ns=at + 3, commit_end_ns=at + 4,
            start_ns=at + 100, end_ns=at + 900, thread=me, values={"position": 10 * ordinal},
        )  # fmt: skip
        writer.samples(number, [0, 2, 3], [at + 100, at + 300, 0], [at + 250, at + 900, 0], [0, 1, 2])
        writer.host_span("commit", at + 3, at + 4, name="commit", thread=me, submission=number, region=token)
        writer.end_region(token, at + 1000)
        numbers.append(number)
    writer.end_region(run, start_ns + 10_000_000)
    writer.drop("a test", 7)
    return numbers


def write(path: Path, submissions: int = 3, start_ns: int = START_NS) -> Path:
    """A closed file with that."""
    with Writer(path) as writer:
        fill(writer, submissions, start_ns)
    return path


def read_everything(recording: Recording) -> int:
    """Read all that a recording holds, and check what every recording promises; how many samples there are."""
    for process in recording.processes:
        assert all(isinstance(value, str) for value in process.meta.values())
    assert all(drop.count >= 0 for drop in recording.drops)
    assert isinstance(recording.threads, dict)
    assert recording.devices is not None
    spans, regions, submissions = recording.host_spans, recording.regions, recording.submissions
    assert (spans.begin_ns <= spans.end_ns).all()
    assert (regions.parent < range(len(regions))).all()
    assert ((submissions.end_ns == NONE) | (submissions.start_ns <= submissions.end_ns)).all()
    assert set(recording.terms.command.tolist()) <= set(range(len(recording.commands)))
    assert set(recording.constants.command.tolist()) <= set(range(len(recording.commands)))
    assert all(len(source.text) <= 1 << 20 for source in recording.sources.values())
    assert set(recording.values.submission.tolist()) <= set(range(len(submissions)))
    sizes = {}
    for row, plan in enumerate(recording.plans.id.tolist()):
        nodes, edges = recording.plan_nodes(plan), recording.edges(plan)
        assert (edges[:, 0] < edges[:, 1]).all()
        sizes[row] = len(nodes)
    samples = recording.samples()
    assert (samples.start_ns <= samples.end_ns).all()
    for submission, node in zip(samples.submission.tolist(), samples.node.tolist(), strict=True):
        assert 0 <= node < sizes[int(submissions.plan[submission])]
    return len(samples)


def read_file(path: Path) -> int:
    """The same for a file."""
    with open_recording(path) as recording:
        return read_everything(recording)
