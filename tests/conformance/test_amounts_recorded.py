"""Amounts that depend on a parameter: every replay is recorded with its own, and rates are sums over sums."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ostinato as ost
from ostinato.profiling.analyse import columns_of
from ostinato.profiling.analyse.columns import ABSENT, usable
from ostinato.profiling.analyse.roofline import rates

pytestmark = pytest.mark.usefixtures("dispatch_times")

POSITION = ost.param("pos", np.uint32)
PLACES = [0, 3, 9, 4, 1000]
LIMIT = 8


def one_token(dev: ost.Device, kernels: ost.Library) -> ost.Graph:
    """A dispatch with amounts that follow the position, between two without; one of those takes it too."""
    x, y = dev.zeros(1, np.uint32), dev.zeros(4, np.float32)

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(kernels["bump"], y, threads=4, bytes_read=16, bytes_written=16)
        enc.dispatch(
            *(kernels["store_uint"], x, POSITION),
            threads=1,
            bytes_read=10 + ost.per(POSITION, 100, plus=1, upto=LIMIT),
            bytes_written=4,
            flops=ost.per(POSITION, 7),
        )
        enc.dispatch(kernels["store_uint"], x, POSITION, threads=1, bytes_read=4, bytes_written=4)

    return dev.capture(encode, "token").named(x=x)


def expected(place: int) -> list[tuple[int, int, int | None]]:
    return [(16, 16, None), (10 + 100 * min(place + 1, LIMIT), 4, 7 * place), (4, 4, None)]


def recorded(path: Path) -> list[list[tuple[int, int, int | None]]]:
    """Bytes read, bytes written and flops of every dispatch, submission by submission, as any tool would read them."""
    with sqlite3.connect(path) as database:
        rows = database.execute(
            "SELECT submission, bytes_read, bytes_written, flops FROM dispatch_report ORDER BY submission, node"
        ).fetchall()
    found: dict[int, list[tuple[int, int, int | None]]] = {}
    for submission, *amounts in rows:
        found.setdefault(submission, []).append(tuple(amounts))
    return list(found.values())


@pytest.mark.parametrize(
    "change",
    [
        lambda graph: graph,
        lambda graph: graph.optimise(),
        lambda graph: ost.passes.reorder(graph)[0],
    ],
    ids=["captured", "optimised", "reordered"],
)
def test_each_replay_is_recorded_with_what_its_parameters_make_of_it(
    dev: ost.Device, kernels: ost.Library, tmp_path: Path, change: Callable[[ost.Graph], ost.Graph]
) -> None:
    run = change(one_token(dev, kernels)).instantiate()
    with ost.profile(path=tmp_path / "run.ostinato"):
        for place in PLACES:
            run.replay(pos=np.uint32(place))
    for found, place in zip(recorded(tmp_path / "run.ostinato"), PLACES, strict=True):
        assert sorted(found, key=str) == sorted(expected(place), key=str)


def test_the_parts_of_a_split_graph_are_recorded_with_their_own(
    dev: ost.Device, kernels: ost.Library, tmp_path: Path
) -> None:
    run = replace(one_token(dev, kernels), splits=(1,)).instantiate()
    with ost.profile(path=tmp_path / "run.ostinato"):
        for place in PLACES:
            run.replay(pos=place)
    found = [one for part in recorded(tmp_path / "run.ostinato") for one in part]
    assert found == [one for place in PLACES for one in expected(place)]


def test_other_buffers_and_a_file_change_nothing_about_it(
    dev: ost.Device, kernels: ost.Library, tmp_path: Path
) -> None:
    one_token(dev, kernels).save(tmp_path / "token.graph")
    run = ost.load_graph(tmp_path / "token.graph").instantiate(dev)
    with ost.profile(path=tmp_path / "run.ostinato"):
        for place in PLACES:
            run.replay(pos=place, x=dev.zeros(1, np.uint32))
    assert recorded(tmp_path / "run.ostinato") == [expected(place) for place in PLACES]


def test_a_rate_is_the_sum_of_bytes_over_the_sum_of_times(dev: ost.Device, kernels: ost.Library) -> None:
    run = one_token(dev, kernels).instantiate()
    with ost.profile() as prof:
        for place in PLACES:
            run.replay(pos=place)
    columns = columns_of(prof.recording())
    reached = rates(columns, 0)
    (row,) = np.flatnonzero(columns.commands.flops != ABSENT)
    samples = usable(columns.samples)  # some devices time only a part of the dispatches of a replay
    # The first replay warms up and is left out.
    mine = (columns.plans.command[samples.node] == row) & (samples.submission > 0)
    spent_s = float((samples.end_ns - samples.start_ns)[mine].sum()) * 1e-9
    places = [PLACES[one] for one in samples.submission[mine]]
    moved = [sum(expected(place)[1][:2]) for place in places]
    assert moved
    assert reached.bytes_moved[row] == pytest.approx(np.mean(moved))
    assert reached.flops[row] == pytest.approx(np.mean([7 * place for place in places]))
    assert reached.bandwidth[row] == pytest.approx(sum(moved) / spent_s)


def test_the_same_graph_is_one_plan_at_every_position(dev: ost.Device, kernels: ost.Library) -> None:
    run = one_token(dev, kernels).instantiate()
    with ost.profile() as prof:
        for place in PLACES:
            run.replay(pos=place)
    assert len(prof.recording().plans.id) == 1
    assert prof.recording().values.value.tolist() == PLACES
