"""The view "Ranks": rounds of several processes, how far apart they are, and who waits for whom."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ostinato.profiling.analyse.columns import Columns
from ostinato.profiling.analyse.origin import Origin
from ostinato.profiling.analyse.ranks import Rounds, rounds
from ostinato.profiling.analyse.summary import summarise
from ostinato.profiling.report.page import save_page
from ostinato.profiling.report.page.material import material
from ostinato.profiling.report.page.ranks import ranks
from pages import OpenPage, data_of
from synthetic import Synthetic, node


def job(count: int = 4, rounds_each: int = 5) -> Columns:
    """Ranks in the order 3, 2, 1, 0 that begin together; rank 2 takes 50 µs longer, and one more round."""
    made = Synthetic()
    made.submit(made.plan([node("norm")]), [(100, 200)])
    for process in range(count):
        rank = count - 1 - process
        for number in range(rounds_each + (rank == 2)):
            t = 1_000_000 * number
            made.region("step", t + rank, t + 100_000 + 1000 * rank + (50_000 if rank == 2 else 0))
    columns = made.columns()
    owners = [process for process in range(count) for _ in range(rounds_each + (count - 1 - process == 2))]
    known: dict[str, Any] = dict.fromkeys(Origin.__slots__) | {"host": "node", "pid": 1, "program": "", "began": ""}
    known |= {"version": "", "revision": "", "cores": (None, None), "load": (None, None)}
    origins = tuple(
        Origin(**{**known, "name": f"rank {count - 1 - at}", "rank": count - 1 - at}) for at in range(count)
    )
    regions = replace(columns.regions, process=np.array(owners))
    return replace(columns, regions=regions, pids=tuple(range(1, count + 1)), origins=origins)


def test_the_last_rank_is_the_one_that_others_wait_for() -> None:
    (found,) = rounds(job())
    assert found.name == "step"
    assert found.processes == (3, 2, 1, 0)
    assert (len(found), found.left_out) == (5, 1)
    assert found.last.tolist() == [2] * 5
    assert found.begin_skew_ns.tolist() == [3] * 5
    assert found.end_skew_ns.tolist() == [52_000] * 5
    assert found.waits_ns().tolist() == [[0, 0, 260_000, 0], [0, 0, 255_000, 0], [0, 0, 0, 0], [0, 0, 245_000, 0]]


@given(st.lists(st.lists(st.integers(0, 1000), min_size=3, max_size=3), min_size=1, max_size=20))
def test_waits_are_what_one_round_after_the_other_gives(ends: list[list[int]]) -> None:
    end = np.array(ends, np.int64)
    made = Rounds("r", (0, 1, 2), np.zeros_like(end), end, 0)
    expected = np.zeros((3, 3), np.int64)
    for row in ends:
        last = row.index(max(row))
        for rank in range(3):
            expected[rank, last] += row[last] - row[rank]
    assert (made.waits_ns() == expected).all()


def test_one_process_has_no_such_view() -> None:
    columns = job(1)
    assert rounds(columns) == []
    assert ranks(material(columns, summarise(columns))) is None


def test_the_view_shows_lanes_by_rank_and_who_waits(open_page: OpenPage, tmp_path: Path) -> None:
    save_page(job(), tmp_path / "job.html")
    data: Any = data_of((tmp_path / "job.html").read_text())["ranks"]
    assert [rank["name"] for rank in data["names"][0]["ranks"]] == ["rank 0", "rank 1", "rank 2", "rank 3"]
    page = open_page(tmp_path / "job.html")
    page.click("text=Ranks")
    panel = page.locator("#panel-ranks")
    assert panel.locator("svg rect.work").count() == 4
    assert panel.locator("svg rect.last").count() == 1
    assert panel.locator("table.waits tbody tr").count() == 4
    assert "round 1 of 5" in panel.locator("[role=status]").inner_text()
    panel.locator("button:has-text('next')").click()
    assert "round 2 of 5" in panel.locator("[role=status]").inner_text()
