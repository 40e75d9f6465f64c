"""The slowest instances of a region say what was different."""

from __future__ import annotations

from ostinato.profiling.analyse.summary import summarise
from ostinato.profiling.report import as_dict
from ostinato.profiling.report.page.material import material
from ostinato.profiling.report.page.regions import regions
from pages import plain
from synthetic import Synthetic, node


def tokens(known: bool = True) -> Synthetic:
    """Instances of 1 ms; in number 12 another program ran while `gemv` did, and in number 5 the host did something."""
    made = Synthetic()
    plan = made.plan([node("norm"), node("gemv")])
    for number in range(20):
        t, extra, host = 10_000_000 * number, 3_000_000 * (number == 12), 2_000_000 * (number == 5)
        region = made.region("token", t, t + 1_000_000 + extra + host)
        worked = {"worked_ns": 2 * (500_000 + extra), "lost_ns": extra} if known else {}
        made.submit(plan, [(t, t + 1000), (t + 1000, t + 500_000 + extra)], region=region, **worked)
    made.region("load", 0, 700)
    return made


def test_each_says_what_was_different() -> None:
    summary = summarise(tokens().columns())
    first, second, *others = summary.slowest["token"]
    assert len(others) == 8
    assert (first.number, first.wall_ns, first.over_ns, first.over_share) == (12, 4_000_000, 3_000_000, 3.0)
    assert (first.device_ns, first.idle_ns, first.idle_share) == (3_500_000, 500_000, 0.125)
    assert (first.running_over_ns, first.idle_over_ns) == (3_000_000, 0)
    assert (first.kernel, first.kernel_over_ns) == ("gemv", 3_000_000 - 3_000_000 / 20)
    assert (first.submissions, first.usual_submissions, first.disturbed) == (1, 1, 1)
    assert (second.number, second.over_ns, second.idle_ns, second.disturbed) == (5, 2_000_000, 2_500_000, 0)
    assert (second.running_over_ns, second.idle_over_ns) == (0, 2_000_000)
    assert (second.kernel, second.kernel_over_ns) == (None, None)
    assert "load" not in summary.slowest


def test_what_is_not_known_is_none() -> None:
    made = tokens(known=False)
    made.submit(0, [None, None], region=12)
    (first, *_) = summarise(made.columns()).slowest["token"]
    assert first.submissions == 2
    assert [first.device_ns, first.idle_ns, first.idle_share, first.disturbed, first.kernel] == [None] * 5


def test_json_and_page_show_the_same() -> None:
    columns = tokens().columns()
    summary = summarise(columns)
    token, load = as_dict(summary)["regions"]
    assert [slow["number"] for slow in token["slowest"]] == [slow.number for slow in summary.slowest["token"]]
    assert token["slowest"][0]["disturbed"] == 1
    assert load["slowest"] == []
    shown = regions(material(columns, summary))
    assert shown is not None
    assert plain(shown["regions"][0]["slowest"][0]["what"]) == (
        "+3.00 ms in command buffers (gemv +2.85 ms), +0 ns outside of them; disturbed by other programs"
    )
    assert plain(shown["regions"][0]["slowest"][1]["what"]) == "+0 ns in command buffers, +2.00 ms outside of them"
