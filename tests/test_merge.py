"""Merging: the recordings of several processes become one, on one clock, or are refused with the reason."""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
from pathlib import Path

import pytest

from ostinato.profiling.recording import Recording, RecordingError, expand, merge, open_recording
from recordings import DIGEST, START_NS, TEXT, read_everything, read_file, write
from scripting import Script


def set_facts(path: Path, **facts: str | int | None) -> Path:
    """Change what a file says about its process."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        for name, value in facts.items():
            database.execute(f"UPDATE processes SET {name} = ?", (value,))
        database.commit()
    return path


def on_other_clock(path: Path, behind_ns: int, **facts: str | int) -> Path:
    """A recording whose monotonic clock, beside the same wall clock, is behind that of `one_clock`."""
    set_facts(
        path,
        start_monotonic_ns=START_NS - behind_ns,
        start_realtime_ns=10**18,
        start_uncertainty_ns=40,
        end_monotonic_ns=START_NS - behind_ns + 10**9,
        end_realtime_ns=10**18 + 10**9,
        end_uncertainty_ns=60,
    )
    return set_facts(path, **facts)


def amounts(recording: Recording, command: int, submission: int) -> list[tuple[object, ...]]:
    """What comes to the amounts of a command with a submission, both given by row."""
    terms, values = recording.terms, recording.values
    given = {values.param[at]: int(values.value[at]) for at in (values.submission == submission).nonzero()[0]}
    rows = (terms.command == command).nonzero()[0]
    return [
        (terms.amount[at], given[terms.param[at]], *(int(c[at]) for c in (terms.factor, terms.plus, terms.upto)))
        for at in rows
    ]


def work(recording: Recording) -> list[tuple[object, ...]]:
    """What ran when, by name: comparable between a recording and what was merged from it."""
    submissions, regions, lists, samples = (
        *(recording.submissions, recording.regions, recording.lists(), recording.samples()),
    )
    commands = recording.commands
    listed: list[tuple[object, ...]] = []
    for at in range(len(samples)):
        row = int(samples.submission[at])
        command = int(lists.command[lists.first[submissions.plan[row]] + samples.node[at]])
        device, region = recording.devices[submissions.device[row]].name, regions.name[submissions.region[row]]
        listed.append(
            (
                *(device, submissions.label[row], region),
                *(commands.kernel[command], commands.label[command], tuple(commands.threads[command].tolist())),
                *(amounts(recording, command, row),),
                *(int(samples.start_ns[at]), int(samples.end_ns[at]), int(samples.status[at])),
            )
        )
    return listed


def test_processes_of_one_machine_share_its_clock(tmp_path: Path, script: Script) -> None:
    paths = [tmp_path / f"{name}.ostinato" for name in "abc"]
    for count, path in enumerate(paths, 1):
        program = f"from recordings import *\nwrite(Path(sys.argv[1]), {count}, START_NS + {count} * 10**9)"
        assert script(program, str(path)).returncode == 0
    merge(paths, tmp_path / "all.ostinato")
    expected = []
    for path in paths:
        with open_recording(path) as recording:
            expected += work(recording)
    with open_recording(tmp_path / "all.ostinato") as merged:
        assert read_everything(merged) == 3 + 6 + 9
        assert work(merged) == expected
        assert [process.meta["file"] for process in merged.processes] == [path.name for path in paths]
        assert [process.clock_offset_ns for process in merged.processes] == [0, 0, 0]
        assert len({process.pid for process in merged.processes}) == 3
        assert merged.submissions.process.tolist() == [0, 1, 1, 2, 2, 2]
        assert [drop.count for drop in merged.drops] == [7, 7, 7]
        assert len(merged.threads) == 3
        assert merged.host_spans.submission.tolist() == list(range(6))
        assert merged.regions.parent.tolist() == [-1, 0, -1, 2, 2, -1, 5, 5, 5]


def test_merged_recordings_have_plain_tables_and_can_be_merged_again(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{name}.ostinato", start_ns=START_NS + at) for at, name in enumerate("abc")]
    merge(paths[:2], tmp_path / "two.ostinato")
    merge([tmp_path / "two.ostinato", paths[2]], tmp_path / "three.ostinato")
    merge(paths, tmp_path / "at once.ostinato")
    with (
        open_recording(tmp_path / "three.ostinato") as stepwise,
        open_recording(tmp_path / "at once.ostinato") as at_once,
    ):
        assert work(stepwise) == work(at_once)
    with contextlib.closing(sqlite3.connect(tmp_path / "three.ostinato")) as database:
        assert database.execute("SELECT count(*) FROM dispatch_report").fetchone() == (27,)
    assert expand(tmp_path / "three.ostinato") == 27
    merge(paths[:1], tmp_path / "three.ostinato")
    assert read_file(tmp_path / "three.ostinato") == 9


def test_containers_with_shifted_clocks_are_aligned_by_the_wall_clock(tmp_path: Path) -> None:
    first = on_other_clock(write(tmp_path / "a.ostinato", 1), 0)
    second = on_other_clock(write(tmp_path / "b.ostinato", 1), 3_000_000, time_namespace="time:[1]")
    with open_recording(first) as one, open_recording(second) as other:
        before, shifted = one.samples(), other.samples()
    merge([first, second], tmp_path / "all.ostinato")
    with open_recording(tmp_path / "all.ostinato") as merged:
        assert [process.clock_offset_ns for process in merged.processes] == [0, 3_000_000]
        assert [process.clock_uncertainty_ns for process in merged.processes] == [0, 122]
        assert merged.samples().start_ns.tolist() == [
            *before.start_ns.tolist(),
            *(time + 3_000_000 if time else 0 for time in shifted.start_ns.tolist()),
        ]
        assert merged.submissions.end_ns[1] - merged.submissions.end_ns[0] == 3_000_000
        assert merged.regions.begin_ns[2] - merged.regions.begin_ns[0] == 3_000_000
        assert merged.host_spans.begin_ns[1] - merged.host_spans.begin_ns[0] == 3_000_000
    merge([second, first], tmp_path / "other order.ostinato")
    with open_recording(tmp_path / "other order.ostinato") as merged:
        assert [process.clock_offset_ns for process in merged.processes] == [3_000_000, 0]


def test_different_machines_are_refused_unless_their_clocks_were_compared(tmp_path: Path) -> None:
    first = on_other_clock(write(tmp_path / "a.ostinato"), 0)
    second = on_other_clock(write(tmp_path / "b.ostinato"), 2_000_000, boot="another")
    third = write(tmp_path / "c.ostinato")
    set_facts(third, boot="another")
    with pytest.raises(RecordingError, match=r"a.ostinato and b.ostinato cannot be aligned.*different machines"):
        merge([first, second], tmp_path / "all.ostinato")
    assert not (tmp_path / "all.ostinato").exists()
    merge([first, second, third], tmp_path / "all.ostinato", wall_clock_error_ns=50_000)
    with open_recording(tmp_path / "all.ostinato") as merged:
        assert [process.clock_uncertainty_ns for process in merged.processes] == [0, 50_122, 50_122]
        assert [process.clock_offset_ns for process in merged.processes] == [0, 2_000_000, 2_000_000]


def test_what_cannot_be_aligned_is_refused_with_the_reason(tmp_path: Path) -> None:
    first, second = (write(tmp_path / f"{name}.ostinato") for name in "ab")
    original = second.read_bytes()
    reasons: list[tuple[dict[str, str | int | None], str]] = [
        ({"boot": None}, "b.ostinato does not say which start of which machine"),
        ({"boot": "unknown"}, "b.ostinato does not say which start of which machine"),
        ({"end_realtime_ns": None}, "b.ostinato does not say what its clock"),
        ({"start_monotonic_ns": "noon"}, "start_monotonic_ns .*something else than integers"),
        ({"start_monotonic_ns": 1 << 62}, "impossible things about its clock"),
        ({"time_namespace": "time:[1]", "end_realtime_ns": 1}, "wall clock was set"),
    ]
    for facts, reason in reasons:
        second.write_bytes(original)
        set_facts(second, **facts)
        with pytest.raises(RecordingError, match=reason):
            merge([first, second], tmp_path / "all.ostinato")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.ostinato", "b.ostinato"]


def test_nonsense_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.ostinato")
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(RecordingError, match="nothing to merge"):
        merge([], tmp_path / "all.ostinato")
    with pytest.raises(RecordingError, match="one of the recordings to merge"):
        merge([path], path)
    with pytest.raises(RecordingError, match="the same process"):
        merge([path, path], tmp_path / "all.ostinato")
    with pytest.raises(RecordingError, match="is not replaced"):
        merge([path], tmp_path / "thesis.txt")
    with pytest.raises(RecordingError, match="cannot record into"):
        merge([path], tmp_path / "no" / "all.ostinato")
    assert read_file(path) == 9


def test_source_texts_are_kept_once_and_with_their_text_if_any_recording_has_it(tmp_path: Path) -> None:
    paths = [set_facts(write(tmp_path / f"{number}.ostinato"), pid=number) for number in (1, 2, 3)]
    other = b"kernel void other() {}"
    with contextlib.closing(sqlite3.connect(paths[0])) as database:
        database.execute("UPDATE sources SET left_out = 1, text = x''")
        database.execute(
            "INSERT INTO sources VALUES (9, ?, ?, NULL, ?)", (hashlib.sha256(other).hexdigest(), len(other), other)
        )
        database.commit()
    merge(paths, tmp_path / "all.ostinato")
    with open_recording(tmp_path / "all.ostinato") as recording:
        assert sorted(source.text.encode() for source in recording.sources.values()) == sorted([TEXT, other])
        assert set(recording.commands.source_digest.tolist()) == {DIGEST, ""}
        read_everything(recording)


def test_what_is_left_out_in_all_recordings_stays_so(tmp_path: Path) -> None:
    path = write(tmp_path / "one.ostinato")
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE sources SET left_out = 0, text = x'', size_bytes = 2000000")
        database.commit()
    merge([path], tmp_path / "all.ostinato")
    with open_recording(tmp_path / "all.ostinato") as recording:
        (source,) = recording.sources.values()
        assert (source.left_out, source.size_bytes, source.text) == ("larger than 1 MiB", 2_000_000, "")
