"""The whole, and the line that closes every report."""

from __future__ import annotations

import numpy as np
from test_suspects import decode

from ostinato.profiling.analyse import look_first, summarise
from ostinato.profiling.analyse.columns import Columns, Samples
from ostinato.profiling.analyse.validity import Status
from synthetic import Synthetic, node


def test_the_closing_line_names_the_kernel_the_saving_and_the_reason():
    line = look_first(summarise(decode(tokens=12, topk={"place": "model.py:88"}).columns()))
    assert line.startswith("Look first at top_k: 200 µs per dispatch")
    assert "could save about 10." in line
    assert "1 threadgroup of 32 threads on a device with 4 workers; moves at most 3.2 % of copy bandwidth" in line
    assert "[decode/top_k, model.py:88]" in line
    assert "\n" not in line


def test_two_devices_of_one_name_are_told_apart_and_shares_stay_below_everything():
    made = decode(tokens=12)
    made.devices = [made.devices[0]] * 2
    plan = made.plan([node("small", groups=1, bytes_read=64)])
    for i in range(5):
        made.submit(plan, [(10**6 * i, 10**6 * i + 2_000)], device=1)
    summary = summarise(made.columns())
    assert [d.name for d in summary.devices] == ["cpu", "cpu #2"]
    assert [(s.device, s.device_row) for s in summary.suspects] == [("cpu", 0), ("cpu #2", 1)]
    assert {w.device for w in summary.what_ifs} == {"cpu", "cpu #2"}
    line = look_first(summary)
    assert line.startswith("Look first at top_k")
    assert "2.40 ms in total (10.8 % of cpu's busy time)" in line


def test_a_share_of_busy_time_never_exceeds_it():
    made = Synthetic()
    plan = made.plan([node("a", groups=1), node("a", groups=1), node("b", groups=1)], [])
    for i in range(8):
        t, length = 10**8 * i, 10**7 if i % 2 else 10**5
        made.submit(plan, [(t, t + length)] * 3)
    assert "(66.7 % of busy time)" in look_first(summarise(made.columns()))


def test_it_also_says_when_the_device_was_mostly_idle():
    made = decode()
    for i, submission in enumerate(made.submissions):
        submission["commit_end_ns"] = 10_000_000 * i
    assert "but cpu was idle" in look_first(summarise(made.columns()))


def test_an_empty_recording_has_a_summary_and_nothing_to_look_at():
    summary = summarise(Synthetic(devices=[]).columns())
    assert summary.kernels == summary.suspects == summary.device_times == ()
    assert look_first(summary) == "Nothing to look at first: no command buffer was recorded"
    assert all(check.status is not Status.ERROR for check in summary.checks)


def test_command_buffers_without_dispatch_times_still_point_somewhere():
    made = Synthetic()
    plan = made.plan([node("a")])
    for i, label in enumerate(["prefill", "decode", "decode"]):
        made.submit(plan, [None], label=label, start_ns=100 * i, end_ns=100 * i + 60)
    line = look_first(summarise(made.columns()))
    assert line.startswith("Look first at command buffer 'decode': 120 ns in total (66.7 % of command-buffer time)")
    assert "dispatches were not timed" in line


def test_where_nothing_stands_out_it_says_so():
    made = Synthetic()
    same = {"bytes_read": 1_000_000, "declared": True}
    plan = made.plan([node(k, **same) for k in "abcd"])
    for i in range(5):
        made.submit(plan, [(10**6 * i + 10_000 * n, 10**6 * i + 10_000 * (n + 1)) for n in range(4)])
    assert "no kernel stands out" in look_first(summarise(made.columns()))


def test_what_if_every_large_kernel_were_twice_as_fast():
    summary = summarise(decode().columns())
    found = {w.kernel: w for w in summary.what_ifs}
    assert found["matvec"].saved_ns == 8 * 16 * 50_000
    assert found["top_k"].on_path_ns == 8 * 200_000
    path = summary.critical_paths[0].path
    assert len(path.nodes) == 33
    assert path.slack_ns.max() == 0.0
    assert path.gap_ns == 32 * 500


def a_million():
    """1,000 replays of a graph of 1,000 nodes, some side by side."""
    made = Synthetic()
    nodes = [node(f"k{i % 40}", label=f"decode/layer.{i // 25}/part.{i % 5}", bytes_read=10_000) for i in range(1000)]
    plan = made.plan(nodes)
    made.submit(plan, [(10, 20)] * 1000)
    one = made.columns()
    replays, generator = 1_000, np.random.default_rng(1)
    begin = np.arange(replays) * 2_000_000
    offset = np.arange(1000) * 1000
    start = (begin[:, None] + offset).ravel()
    end = start + generator.integers(500, 1200, start.size)
    subs = one.submissions
    fields = {name: np.repeat(column, replays) for name, column in subs.by_name().items()}
    fields |= {"start_ns": begin, "end_ns": end.reshape(replays, -1).max(axis=1), "ordinal": np.arange(replays) + 1}
    samples = Samples(
        submission=np.repeat(np.arange(replays), 1000),
        node=np.tile(np.arange(1000), replays),
        start_ns=start,
        end_ns=end,
        status=np.zeros(start.size, np.int8),
    )
    return Columns(one.devices, one.commands, one.plans, type(subs)(**fields), samples, one.regions, one.host_spans)


def test_a_million_samples_are_summarised():
    assert summarise(a_million()).timed == 1_000_000
