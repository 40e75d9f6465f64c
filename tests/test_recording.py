"""Recordings: what is taken down is read back exactly, survives a kill, and never holds up the program."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ostinato
from ostinato.profiling.recording import (
    AMOUNTS,
    NODE_KINDS,
    NONE,
    UNAVAILABLE,
    PlanNode,
    PlanTerm,
    Recording,
    RecordingError,
    Writer,
    chunks,
    expand,
    open_recording,
    provenance,
    save,
)
from ostinato.profiling.recording.declaring import Kind
from ostinato.profiling.recording.schema import TABLES, Commands, Process
from recordings import EDGES, NODES, START_NS, fill, read_everything, read_file, write
from scripting import Script

# --- what is taken down is read back --------------------------------------------------------------------------------


@pytest.fixture(params=["file", "memory"])
def writer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Writer]:
    with Writer(tmp_path / "run.ostinato" if request.param == "file" else None) as made:
        yield made


def test_everything_taken_down_is_read_back(writer: Writer) -> None:
    numbers = fill(writer)
    with writer.recording() as recording:
        (device,) = recording.devices
        assert (device.name, device.sampling, device.clock_uncertainty_ns) == ("cpu", "dispatch boundaries", 30)
        assert (device.copy_bytes_per_s, device.flops_per_s, device.timestamp_cost_ns) == (2e10, 1e11, None)
        assert device.details == {"compiler": "g++ 12"}

        submissions = recording.submissions
        assert submissions.id.tolist() == numbers
        assert submissions.label.tolist() == ["cb 1", "cb 2", "cb 3"]
        assert submissions.replay.tolist() == [False, True, True]
        assert [recording.processes[row].pid for row in submissions.process] == [os.getpid()] * 3
        first = START_NS + 1_000_000
        assert [submissions.encode_begin_ns[0], submissions.commit_end_ns[0]] == [first + 1, first + 4]
        assert [submissions.start_ns[0], submissions.end_ns[0]] == [first + 100, first + 900]
        assert submissions.error.tolist() == [""] * 3

        plan = int(recording.plans.id[submissions.plan[0]])
        nodes = recording.plan_nodes(plan)
        assert nodes.kind.tolist() == [node.kind for node in NODES]
        assert nodes.label.tolist() == ["decoder/sample", "", "decoder/head", ""]
        assert nodes.specialisation[0] == "N=32,use_bias=true"
        assert nodes.threads.tolist()[2] == [4096, 2, 1]
        assert nodes.flops.tolist() == [1024, NONE, NONE, NONE]
        assert nodes.bytes_declared.tolist() == [True, False, False, False]
        assert nodes.place[0] == "model.py:12"
        assert recording.edges(plan).tolist() == EDGES.tolist()
        constants = recording.constants
        assert nodes.id[0] == recording.commands.id[constants.command[0]]
        assert list(zip(constants.name, constants.value, strict=True)) == [("N", "32"), ("use_bias", "true")]

        regions = recording.regions
        assert regions.name.tolist() == ["run", "token", "token", "token"]
        assert regions.parent.tolist() == [NONE, 0, 0, 0]
        assert regions.end_ns.tolist()[1] == first + 1000
        assert submissions.region.tolist() == [1, 2, 3]
        spans = recording.host_spans
        assert spans.kind.tolist() == ["commit"] * 3
        assert spans.submission.tolist() == [0, 1, 2]
        assert recording.threads[(0, threading.get_ident())] == threading.current_thread().name
        assert [(drop.where, drop.count) for drop in recording.drops] == [("a test", 7)]

        samples = recording.samples()
        assert samples.submission.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
        assert samples.node.tolist() == [0, 2, 3] * 3
        assert samples.start_ns[:3].tolist() == [first + 100, first + 300, 0]
        assert samples.end_ns[:3].tolist() == [first + 250, first + 900, 0]
        assert samples.status[:3].tolist() == [0, 1, 2]


_TEXT = st.text(max_size=20)
_TIMES = st.integers(0, 2**62 - 1)
_COUNTS = st.integers(0, 2**63 - 1)
_SIGNED = st.integers(-(2**63) + 1, 2**63 - 1)
_DRAWN = {
    Kind.TEXT: _TEXT, Kind.WORD: st.sampled_from(NODE_KINDS), Kind.SIZES: st.tuples(_COUNTS, _COUNTS, _COUNTS),
    Kind.INTEGER: _COUNTS, Kind.FLAG: st.booleans(),
}  # fmt: skip
_NODE = st.builds(
    PlanNode,
    **{
        column.name: st.none() | _DRAWN[column.kind] if column.optional else _DRAWN[column.kind]
        for column in TABLES["commands"].columns
        if column.name in PlanNode._fields
    }
    | {"line": st.none() | st.integers(1, 2**63 - 1)},
    terms=st.lists(
        st.builds(PlanTerm, st.sampled_from(AMOUNTS), _TEXT, _COUNTS, _SIGNED, st.none() | _COUNTS), max_size=3
    ).map(tuple),
)


@st.composite
def _submissions(draw: st.DrawFn) -> tuple[list[PlanNode], list[list[tuple[int, int, int, int]]]]:
    """A plan, and of some submissions the samples (node, start, end, status)."""
    nodes = draw(st.lists(_NODE, min_size=1, max_size=8))
    sample = st.tuples(st.integers(0, len(nodes) - 1), _TIMES, _TIMES, st.integers(0, 2))
    return nodes, draw(st.lists(st.lists(sample, max_size=12), max_size=6))


def _terms(recording: Recording) -> dict[int, tuple[PlanTerm, ...]]:
    """The terms of every command, in the order in which they were given."""
    terms = recording.terms
    columns = (terms.command, terms.number, terms.amount, terms.param, terms.factor, terms.plus, terms.upto)
    listed: dict[int, tuple[PlanTerm, ...]] = {}
    for command, _, amount, param, factor, plus, upto in sorted(zip(*(c.tolist() for c in columns), strict=True)):
        term = PlanTerm(amount, param, factor, plus, None if upto == NONE else upto)
        listed[command] = (*listed.get(command, ()), term)
    return listed


def _rows(nodes: Commands, terms: dict[int, tuple[PlanTerm, ...]]) -> list[PlanNode]:
    """What was described, as it was read; a text that is not given is empty."""
    columns = {name: column.tolist() for name, column in nodes.by_name().items()}
    columns["threads"], columns["group"] = ([tuple(size) for size in columns[name]] for name in ("threads", "group"))
    for name in ("flops", "line"):
        columns[name] = [None if number == NONE else number for number in columns[name]]
    columns["terms"] = [terms.get(command - 1, ()) for command in columns.pop("id")]
    return [PlanNode(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]


def _without_none(node: PlanNode) -> PlanNode:
    texts = [column.name for column in TABLES["commands"].columns if column.kind is Kind.TEXT]
    return PlanNode(**(node._asdict() | {name: getattr(node, name) or "" for name in texts}))


@settings(max_examples=40, deadline=None)
@given(_submissions(), st.dictionaries(_TEXT, _SIGNED, max_size=3))
def test_random_recordings_are_read_back_exactly(
    work: tuple[list[PlanNode], list[list[tuple[int, int, int, int]]]], given: dict[str, int]
) -> None:
    nodes, runs = work
    expected = []
    with Writer() as writer:
        device = writer.device("d", "cpu")
        plan = writer.plan(device, nodes)
        for ordinal, run in enumerate(runs, 1):
            submission = writer.submission(device=device, plan=plan, ordinal=ordinal, values=given)
            run = [(node, min(a, b), max(a, b), status) for node, a, b, status in run]
            writer.samples(submission, *(np.array([row[column] for row in run], np.int64) for column in range(4)))
            expected += [
                (ordinal - 1, node, *((0, 0) if status == UNAVAILABLE else (start, end)), status)
                for node, start, end, status in run
            ]
        with writer.recording() as recording:
            assert _rows(recording.plan_nodes(plan), _terms(recording)) == list(map(_without_none, nodes))
            values = recording.values
            pairs = list(zip(values.param, values.value.tolist(), strict=True))
            assert pairs == list(given.items()) * len(runs)
            assert values.submission.tolist() == [row for row in range(len(runs)) for _ in given]
            samples = recording.samples()
            columns = (samples.submission, samples.node, samples.start_ns, samples.end_ns, samples.status)
            assert list(zip(*(column.tolist() for column in columns), strict=True)) == expected
            assert writer.dropped == {}


def test_commands_that_were_forgotten_are_not_taken_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python uses the place of a node that is gone for the next one."""
    monkeypatch.setattr("ostinato.profiling.recording.rows._REMEMBERED", 3)
    with Writer() as writer:
        device = writer.device("d", "cpu")
        plans = []
        for number in range(100):
            plans.append(writer.plan(device, [PlanNode("dispatch", f"k{number}"), PlanNode("dispatch", "same")]))
            writer.flush()
        with writer.recording() as recording:
            for number, plan in enumerate(plans):
                assert recording.plan_nodes(plan).kernel.tolist() == [f"k{number}", "same"]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1), st.binary(max_size=9))
def test_every_column_of_integers_packs_and_unpacks(values: list[int], before: bytes) -> None:
    column = np.array(values, np.int64)
    packed = chunks.pack(column)
    read, end = chunks.unpack(before + packed + b"rest", len(before), len(values))
    assert read.tolist() == values
    assert end == len(before) + len(packed)


def test_submissions_of_many_dispatches_are_cut_into_chunks_and_joined_again() -> None:
    count = 1_200_000
    starts = np.arange(count, dtype=np.int64) * 1_000
    with Writer() as writer:
        device = writer.device("d", "cpu")
        plan = writer.plan(device, [PlanNode("dispatch", "k")] * count)
        writer.samples(writer.submission(device=device, plan=plan, ordinal=1), 0, starts, starts + 700)
        with writer.recording() as recording:
            assert max(len(part) for part in recording.sample_chunks()) <= 1 << 20
            samples = recording.samples()
            assert (samples.node == np.arange(count)).all()
            assert (samples.start_ns == starts).all()
            assert (samples.end_ns == starts + 700).all()


@pytest.mark.parametrize(("a_submission", "most"), [(1_000, 8), (10, 10), (1, 16)])
def test_a_sample_takes_few_bytes_while_it_is_written(a_submission: int, most: int) -> None:
    random = np.random.default_rng(0)
    runs, now = [], 10**15
    for number in range(20_000 // a_submission):
        durations = random.integers(1_000, 200_000, a_submission)
        starts = now + np.cumsum(durations + 800) - durations
        columns = (starts.tobytes(), (starts + durations).tobytes(), None)
        runs.append(chunks.Run(number + 1, a_submission, 1_000, 0, *columns))
        now = int(starts[-1]) + 300_000
    (chunk,) = chunks.encode(runs).chunks
    assert len(chunk.data) / 20_000 <= most


def test_a_plan_that_is_described_again_is_stored_once(writer: Writer) -> None:
    device = writer.device("d", "cpu")
    other = [*NODES[:-1], PlanNode("fill", "fill", bytes_written=8)]
    for ordinal, nodes in enumerate((NODES, list(NODES), other, NODES), 1):
        writer.submission(device=device, plan=writer.plan(device, nodes, EDGES), ordinal=ordinal)
    with writer.recording() as recording:
        first, second, third, fourth = recording.submissions.plan.tolist()
        assert first == second == fourth != third
        assert len(recording.plans.id) == 2
        assert len(recording.commands) == 5


def test_a_recording_shows_what_there_was_when_it_was_asked_for(writer: Writer) -> None:
    numbers = fill(writer, 2)
    with writer.recording() as before:
        device = writer.device("second", "cpu")
        writer.submission(device=device, plan=None, ordinal=1)
        with writer.recording() as after:
            assert after.submissions.id.tolist() == [*numbers, 3]
        assert before.submissions.id.tolist() == numbers
        assert len(before.samples()) == 6


def test_a_recording_in_memory_outlives_its_end_and_can_be_saved(tmp_path: Path) -> None:
    with Writer() as writer:
        fill(writer)
    with writer.recording() as recording:
        save(recording, tmp_path / "kept.ostinato")
        with pytest.raises(RecordingError, match="cannot save"):
            save(recording, tmp_path / "kept.ostinato")
    assert read_file(tmp_path / "kept.ostinato") == 9


def test_what_was_read_stays_and_the_rest_is_refused_after_closing(tmp_path: Path) -> None:
    recording = open_recording(write(tmp_path / "a.ostinato"))
    submissions = recording.submissions
    recording.close()
    assert recording.submissions is submissions
    with pytest.raises(RecordingError, match="was closed"):
        recording.samples()


def test_a_plan_may_be_described_by_the_thread_that_writes(writer: Writer) -> None:
    device = writer.device("d", "cpu")
    asked: list[str] = []

    def described() -> tuple[list[PlanNode], np.ndarray]:
        asked.append("now")
        return list(NODES), np.array([(0, 1)])

    plan = writer.plan_to_come(device, len(NODES), described)
    lost = writer.plan_to_come(device, len(NODES) + 1, described)
    number = writer.submission(device=device, plan=plan, ordinal=1)
    writer.submission(device=device, plan=lost, ordinal=2)
    with writer.recording() as recording:
        assert recording.plan_nodes(plan).kernel.tolist() == [node.kernel for node in NODES]
        assert recording.edges(plan).tolist() == [[0, 1]]
        assert recording.submissions.id[0] == number
    assert asked == ["now", "now"]
    mismatch = f"described with {len(NODES)} nodes instead of {len(NODES) + 1}"
    assert any(mismatch in where for where in writer.dropped)


def test_a_device_may_be_described_further_and_keeps_the_details_that_came_first(writer: Writer) -> None:
    device = writer.device("d", "cpu", workers=2, details={"compiler": "g++"})
    writer.flush()
    writer.device_facts(device, copy_spread=0.02, workers=3)
    writer.device_facts(device + 1, workers=4)  # there is no such device
    writer.detail(device, "compiler", "clang")
    writer.detail(device, "linker", "ld")
    with writer.recording() as recording:
        (described,) = recording.devices
        assert (described.workers, described.copy_spread) == (3, 0.02)
        assert described.details == {"compiler": "g++", "linker": "ld"}


def test_other_tools_find_plain_tables(tmp_path: Path) -> None:
    path = write(tmp_path / "run.ostinato")
    with sqlite3.connect(path) as database:
        rows = database.execute(
            "SELECT kernel, duration_ns, status FROM dispatch_report ORDER BY submission, node"
        ).fetchall()
        assert rows[:3] == [("top_k", 150, "measured"), ("matvec", 600, "bounded"), ("copy", None, "unavailable")]
        assert database.execute("SELECT count(*) FROM plan_edges").fetchone() == (3,)
        assert database.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    assert [file.name for file in tmp_path.iterdir()] == ["run.ostinato"]


def test_a_large_recording_is_expanded_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ostinato.profiling.recording.expansion.MOST_AT_CLOSING", 5)
    path = write(tmp_path / "run.ostinato")
    count = "SELECT count(*) FROM dispatches"
    with sqlite3.connect(path) as database:
        assert database.execute(count).fetchone() == (0,)
    assert expand(path) == expand(path) == 9
    with sqlite3.connect(path) as database:
        assert database.execute(count).fetchone() == (9,)
    assert read_file(path) == 9


# --- what cannot be stored is counted, and nothing else suffers -----------------------------------------------------


def test_impossible_times_become_unavailable_and_are_counted(writer: Writer) -> None:
    device = writer.device("d", "cpu")
    plan = writer.plan(device, NODES)
    submission = writer.submission(device=device, plan=plan, ordinal=1, start_ns=20, end_ns=10)
    writer.samples(submission, 0, np.array([10, 20, 2**63, 40], np.uint64), np.array([15, 19, 2**63, 2**62], np.uint64))
    with writer.recording() as recording:
        assert recording.samples().status.tolist() == [0, 2, 2, 2]
        assert recording.submissions.start_ns.tolist() == [NONE]
    assert writer.dropped == {
        "times of dispatches that ended before they began": 3,
        "times of submissions that ended before they began": 1,
    }


def test_mistakes_of_producers_are_counted_and_the_file_stays_whole(writer: Writer) -> None:
    device = writer.device("d", "cpu")
    plan = writer.plan(device, NODES, np.array([(0, 1), (2, 1), (3, 9), (-1, 2), (1, 1)]))
    good = writer.submission(device=device, plan=plan, ordinal=1, thread=2**70, region=99)
    writer.samples(good, 0, [1, 2], [3, 4])
    mistakes: list[Callable[[], object]] = [
        lambda: writer.submission(device=77, plan=plan, ordinal=1),
        lambda: writer.submission(device=device, plan=plan, ordinal=1, status="perhaps"),
        lambda: writer.samples(good, 3, [1, 2], [3, 4]),
        lambda: writer.samples(good, [0], [1, 2], [3, 4]),
        lambda: writer.samples(good, 0, ["noon"], [2]),
        lambda: writer.samples(4711, 0, [1], [2]),
        lambda: writer.plan(device, [PlanNode("guess", "k")]),
        lambda: writer.plan(0, NODES),
        lambda: writer.host_span("commit", 5, 4),
        lambda: writer.host_span("lunch", 5, 6),
        lambda: writer.begin_region("r", "noon"),  # type: ignore[arg-type]
        lambda: writer.submission(device=device, plan=plan, ordinal=1, temperature=40),
        lambda: writer.submission(device=device, plan=plan),
    ]
    for number, mistake in enumerate(mistakes, 1):
        mistake()
        writer.flush()
        assert len(writer.dropped) == number + 1, writer.dropped
    assert writer.dropped["edges that do not lead from a node to a later one"] == 4
    with writer.recording() as recording:
        assert read_everything(recording) == 2
        assert recording.submissions.region.tolist()[0] == NONE
        assert {drop.where: drop.count for drop in recording.drops} == writer.dropped


def test_texts_of_any_kind_are_kept(writer: Writer) -> None:
    device = writer.device("d", "cpu")
    labels = [
        "\x1b[31mred\x1b[0m",
        "[bold]rich[/]",
        "<script>",
        "nul\0inside",
        "𝕌nicode",
        "x" * 100_000,
        "\ud800 alone",
    ]
    for ordinal, label in enumerate(labels, 1):
        writer.submission(device=device, plan=None, ordinal=ordinal, label=label)
    with writer.recording() as recording:
        read = recording.submissions.label.tolist()
        assert read[:5] == labels[:5]
        assert read[5] == "x" * 65_535 + "…"
        assert read[6] == "\\ud800 alone"


def test_a_program_that_makes_up_labels_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ostinato.profiling.recording.rows._REMEMBERED", 10)
    with Writer() as writer:
        device = writer.device("d", "cpu")
        for ordinal in range(1, 101):
            plan = writer.plan(device, [PlanNode("dispatch", "k", label=f"token {ordinal % 50}")])
            submission = writer.submission(device=device, plan=plan, ordinal=ordinal, label=f"token {ordinal % 50}")
            writer.samples(submission, 0, [ordinal], [ordinal + 1])
        with writer.recording() as recording:
            assert read_everything(recording) == 100
            plans = recording.plans.id[recording.submissions.plan].tolist()
            labels = [recording.plan_nodes(plan).label[0] for plan in plans]
            assert labels == recording.submissions.label.tolist() == [f"token {n % 50}" for n in range(1, 101)]


def test_producers_never_wait_and_what_does_not_fit_is_counted(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "run.ostinato", max_pending_bytes=200_000)
    device = writer.device("d", "cpu")
    plan = writer.plan(device, [PlanNode("dispatch", "k")] * 100)
    writer.flush()
    times = np.arange(100, dtype=np.int64)
    given, longest = 0, 0.0

    def produce() -> None:
        nonlocal given, longest
        for ordinal in range(1, 1_001):
            begin = time.perf_counter()
            writer.samples(writer.submission(device=device, plan=plan, ordinal=ordinal), 0, times, times)
            longest = max(longest, time.perf_counter() - begin)
            given += 100

    with writer._io:  # as if the disk hung
        producer = threading.Thread(target=produce)
        producer.start()
        producer.join(20)
        assert not producer.is_alive()
        assert writer._pending <= 200_000
    writer.close()
    assert longest < 1.0
    with open_recording(tmp_path / "run.ostinato") as recording:
        kept = read_everything(recording)
        lost = {drop.where: drop.count for drop in recording.drops}
    assert 0 < kept < given
    assert kept + sum(count for where, count in lost.items() if where.startswith("samples")) == given
    submissions = "submissions: too much was waiting to be written"
    assert lost[submissions] + len(recording.submissions) == 1_000


def test_a_full_disk_loses_nothing_once_there_is_room_again(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "run.ostinato")
    pages = writer._connection.execute("PRAGMA page_count").fetchone()[0]
    writer._connection.execute(f"PRAGMA max_page_count = {pages}")
    fill(writer, 500)
    with pytest.raises(RecordingError, match=r"cannot write .*full"):
        writer.flush()
    assert writer.error is not None
    writer._connection.execute("PRAGMA max_page_count = 1000000")
    writer.close()
    assert writer.error is None
    assert read_file(tmp_path / "run.ostinato") == 1_500


def test_closing_on_a_full_disk_says_so_and_keeps_what_was_written(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "run.ostinato")
    fill(writer, 1)
    writer.flush()
    pages = writer._connection.execute("PRAGMA page_count").fetchone()[0]
    writer._connection.execute(f"PRAGMA max_page_count = {pages}")
    fill(writer, 500)
    with pytest.raises(RecordingError, match="is not complete"):
        writer.close()
    assert read_file(tmp_path / "run.ostinato") == 3


def test_what_comes_after_the_end_is_counted(writer: Writer) -> None:
    fill(writer)
    writer.close()
    assert writer.submission(device=1, plan=1, ordinal=9) == 0
    assert writer.dropped["submissions: came after the end"] == 1
    writer.close()


def test_the_interpreter_takes_turns_as_before_when_the_last_recording_has_ended() -> None:
    before = sys.getswitchinterval()
    first, second = Writer(), Writer()
    assert sys.getswitchinterval() < 0.001
    first.close()
    assert sys.getswitchinterval() < 0.001
    second.close()
    assert sys.getswitchinterval() == before
    with Writer():
        sys.setswitchinterval(0.02)
    assert sys.getswitchinterval() == pytest.approx(0.02)
    sys.setswitchinterval(before)


# --- files ----------------------------------------------------------------------------------------------------------


def test_an_older_recording_is_replaced_and_nothing_else_is(tmp_path: Path) -> None:
    path = write(tmp_path / "run.ostinato")
    write(path, submissions=1)
    assert read_file(path) == 3
    precious = tmp_path / "thesis.txt"
    precious.write_text("years of work")
    for other in (precious, tmp_path):
        with pytest.raises(RecordingError, match="is not replaced"):
            Writer(other)
    assert precious.read_text() == "years of work"
    with pytest.raises(RecordingError, match="cannot record into"):
        Writer(tmp_path / "no" / "folder.ostinato")


def test_two_processes_cannot_record_into_one_file(tmp_path: Path, script: Script) -> None:
    path = tmp_path / "run.ostinato"
    with Writer(path) as writer:
        fill(writer)
        result = script("from ostinato.profiling.recording import Writer\nWriter(sys.argv[1])", str(path))
        assert f"process {os.getpid()} is recording into" in result.stderr
    assert read_file(path) == 9


def test_a_program_that_just_ends_leaves_a_whole_recording(tmp_path: Path, script: Script) -> None:
    path = tmp_path / "run.ostinato"
    program = "from recordings import *\nkept = Writer(sys.argv[1])\nfill(kept)\n"
    for ending in ("", "sys.exit(3)", "raise ValueError('bad')", "del kept; sys.exit()"):
        script(program + ending, str(path))
        with open_recording(path) as recording:
            assert recording.processes[0].closed, ending
            assert read_everything(recording) == 9


# --- kill -9 --------------------------------------------------------------------------------------------------------

_KILLED = """
import sys, time
import numpy as np
sys.path.insert(0, sys.argv[2])
from recordings import NODES
array = np.arange(1_000)
from ostinato.profiling.recording import Writer
writer = Writer(sys.argv[1])
device = writer.device("d", "cpu")
plan = writer.plan(device, NODES)
ordinal = 0
print("ready", flush=True)
while True:  # never rests, never calls anything that waits
    ordinal += 1
    now = time.monotonic_ns()
    submission = writer.submission(device=device, plan=plan, ordinal=ordinal, start_ns=now, end_ns=now)
    writer.samples(submission, 0, [now], [now])
    for _ in range(2_000):
        pass
    if sys.argv[3] == "lets go for moments":
        array + 1
"""


@pytest.fixture(scope="module", params=["never lets go", "lets go for moments"])
def killed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """The folder that a killed process left behind, and when it was killed.

    It keeps the interpreter busy without ever giving it up, or giving it up so shortly that other threads starve.
    """
    folder = tmp_path_factory.mktemp("killed")
    arguments = (str(folder / "run.ostinato"), str(Path(__file__).parent), request.param)
    command = [sys.executable, "-c", _KILLED, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(2.3)
        at = time.monotonic_ns()
        process.send_signal(signal.SIGKILL)
    return folder, at


# What is promised holds for a machine that runs the writer when it is due; other tests may keep this one from it.
_GRACE_NS = 2e9


def _latest_ns(path: Path) -> int:
    with open_recording(path) as recording:
        assert not recording.processes[0].closed
        # Of the very last submission the samples may be missing: they come in a call of their own.
        assert len(recording.submissions) - read_everything(recording) in (0, 1)
        return int(recording.samples().end_ns.max())


def test_a_kill_loses_at_most_the_last_second(killed: tuple[Path, int], tmp_path: Path) -> None:
    folder, at = killed
    copy = shutil.copytree(folder, tmp_path / "all")
    assert (copy / "run.ostinato-wal").exists()
    assert at - _latest_ns(copy / "run.ostinato") < 1e9 + _GRACE_NS


def test_a_killed_recording_that_was_copied_without_its_log_opens(killed: tuple[Path, int], tmp_path: Path) -> None:
    folder, at = killed
    alone = tmp_path / "alone.ostinato"
    shutil.copy(folder / "run.ostinato", alone)
    assert at - _latest_ns(alone) < 2e9 + _GRACE_NS
    without_index = shutil.copytree(folder, tmp_path / "no-shm", ignore=shutil.ignore_patterns("*-shm"))
    assert at - _latest_ns(without_index / "run.ostinato") < 1e9 + _GRACE_NS


@pytest.fixture
def visible_folder() -> Iterator[Path]:
    """A folder that other users can look into, unlike those of pytest: root, who may write anywhere, becomes one."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    for inside in folder.iterdir():
        inside.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.parametrize("left_behind", ["", "*-shm", "*-wal", "*-???"])
def test_a_killed_recording_opens_in_a_read_only_folder(
    killed: tuple[Path, int], visible_folder: Path, left_behind: str
) -> None:
    folder, at = killed
    copy = shutil.copytree(folder, visible_folder / "run", ignore=shutil.ignore_patterns(left_behind))
    for file in copy.iterdir():
        file.chmod(0o444)
    copy.chmod(0o555)
    program = f"""
        import os, sys
        sys.path[:0] = {[str(Path(__file__).parent), *sys.path]!r}
        if os.getuid() == 0:
            import numpy, ostinato.profiling.recording, recordings, test_recording  # what root alone may read
            os.setgid(65534); os.setuid(65534)
        assert not os.access(sys.argv[1], os.W_OK)
        from pathlib import Path
        from test_recording import _latest_ns
        print(_latest_ns(Path(sys.argv[1]) / "run.ostinato"))
    """
    before = sorted(copy.iterdir())
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(copy)],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    assert result.returncode == 0, result.stderr
    promised_ns = 1e9 if "wal" not in left_behind and "?" not in left_behind else 2e9
    assert at - int(result.stdout) < promised_ns + _GRACE_NS
    assert sorted(copy.iterdir()) == before


def test_a_killed_recording_can_be_expanded_and_is_a_plain_file_then(killed: tuple[Path, int], tmp_path: Path) -> None:
    copy = shutil.copytree(killed[0], tmp_path / "run")
    count = expand(copy / "run.ostinato")
    assert [file.name for file in copy.iterdir()] == ["run.ostinato"]
    assert read_file(copy / "run.ostinato") == count


# --- fork -----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("ending", ["os._exit(0)", "sys.exit(0)"])
def test_a_forked_child_leaves_the_recording_to_its_parent(tmp_path: Path, script: Script, ending: str) -> None:
    path = tmp_path / "run.ostinato"
    result = script(
        f"""
        import gc, os, signal
        from recordings import *
        from ostinato.profiling.recording import RecordingError
        writer, hidden = Writer(sys.argv[1]), Writer()
        fill(writer)
        for turn in range(20):
            fill(hidden)
            pid = os.fork()
            if pid == 0:
                signal.alarm(30)
                assert writer.submission(device=1, plan=1, ordinal=99) == 0
                try:
                    writer.flush()
                    os._exit(1)
                except RecordingError as problem:
                    assert "parent" in str(problem)
                own = Writer(sys.argv[1] + f".child{{turn}}")
                fill(own)
                own.close()
                writer.close()
                del writer, hidden
                gc.collect()
                {ending}
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            fill(writer)
        writer.close()
        """,
        str(path),
    )
    assert result.returncode == 0, result.stderr
    assert read_file(path) == 21 * 9
    assert all(read_file(Path(f"{path}.child{turn}")) == 9 for turn in range(20))


# --- where it comes from --------------------------------------------------------------------------------------------


def test_a_recording_says_where_it_comes_from(tmp_path: Path, script: Script) -> None:
    project = tmp_path / "project"
    project.mkdir()
    git = ("git", "-C", str(project), "-c", "user.name=n", "-c", "user.email=e")
    subprocess.run((*git, "init", "-q"), check=True)
    (project / "model.py").write_text(
        f"import sys; sys.path[:0] = {sys.path!r}; from ostinato.profiling.recording import Writer; import time\n"
        "with Writer(sys.argv[1]): time.sleep(1)\n"
    )
    subprocess.run((*git, "add", "."), check=True)
    subprocess.run((*git, "commit", "-qm", "first"), check=True)
    revision = subprocess.run((*git, "rev-parse", "HEAD"), check=True, capture_output=True, text=True).stdout.strip()

    def run() -> Process:
        environment = os.environ | {"OSTINATO_BARRIERS": "serial"}
        file = str(tmp_path / "run.ostinato")
        subprocess.run((sys.executable, str(project / "model.py"), file), env=environment, check=True, cwd="/")
        with open_recording(file) as recording:
            return recording.processes[0]

    process = run()
    meta = process.meta
    assert (meta["git.revision"], process.git_changed) == (revision, False)
    assert meta["ostinato"] == ostinato.__version__
    assert meta["program"] == f"model.py {tmp_path / 'run.ostinato'}"
    assert meta["setting.OSTINATO_BARRIERS"] == "serial"
    assert meta["setting.OSTINATO_CACHE_DIR"] == "(set)"
    assert process.boot == provenance.boot() != "unknown"
    assert process.start_monotonic_ns is not None
    assert process.end_monotonic_ns is not None
    assert process.end_monotonic_ns - process.start_monotonic_ns > 0.9e9
    assert 0 <= (process.start_uncertainty_ns or 0) < 1e6
    assert process.end_load is not None
    assert (process.start_cores, process.end_cores) == (len(os.sched_getaffinity(0)),) * 2

    subprocess.run((*git, "pack-refs", "--all"), check=True)
    with (project / "model.py").open("a") as file:
        file.write("# changed\n")
    process = run()
    assert (process.meta["git.revision"], process.git_changed) == (revision, True)


def test_a_linked_work_tree_has_its_own_revision(tmp_path: Path) -> None:
    main = tmp_path / "main"
    git = ("git", "-c", "user.name=n", "-c", "user.email=e", "-C")
    subprocess.run(("git", "init", "-q", str(main)), check=True)
    subprocess.run((*git, str(main), "commit", "-q", "--allow-empty", "-m", "one"), check=True)
    subprocess.run((*git, str(main), "worktree", "add", "-q", "-b", "side", str(tmp_path / "side")), check=True)
    subprocess.run((*git, str(tmp_path / "side"), "commit", "-q", "--allow-empty", "-m", "two"), check=True)
    for tree in (main, tmp_path / "side"):
        head = subprocess.run((*git, str(tree), "rev-parse", "HEAD"), check=True, capture_output=True, text=True).stdout
        found = provenance.git_revision(tree)
        assert found == (tree, head.strip())


def test_a_work_tree_with_nothing_in_it_has_no_revision(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("gitdir: nowhere")
    assert provenance.git_revision(tmp_path) is None
