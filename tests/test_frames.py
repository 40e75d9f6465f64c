"""A recording as a data frame holds what the view `dispatch_report` says, row for row."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ostinato as ost
from ostinato.profiling.recording import Writer, frames, open_recording
from recordings import NODES, write


def plain_columns(path: Path) -> dict[str, list[Any]]:
    """The columns as lists, with None for what is missing: what a frame is made of, without pandas."""

    def text(values: Any, rows: Any, optional: bool) -> list[str | None]:
        return [(values[row] or None) if optional else values[row] for row in rows.tolist()]

    def nullable(values: Any, missing: Any) -> list[int | None]:
        return [None if gone else value for value, gone in zip(values.tolist(), missing.tolist(), strict=True)]

    with open_recording(path) as recording:
        columns = frames._columns(recording, text, nullable)
    return {name: column if isinstance(column, list) else column.tolist() for name, column in columns.items()}


def viewed_columns(path: Path) -> dict[str, list[Any]]:
    with sqlite3.connect(path) as database:
        cursor = database.execute("SELECT * FROM dispatch_report ORDER BY submission, node")
        names = [name for name, *_ in cursor.description]
        return dict(zip(names, map(list, zip(*cursor.fetchall(), strict=True)), strict=True))


def test_the_frame_and_the_view_say_the_same(tmp_path: Path) -> None:
    path = write(tmp_path / "run.ostinato")
    framed, viewed = plain_columns(path), viewed_columns(path)
    assert list(framed) == list(viewed)
    for name, column in framed.items():
        assert column == viewed[name], name


def test_the_view_knows_the_source_line(tmp_path: Path) -> None:
    viewed = viewed_columns(write(tmp_path / "run.ostinato"))
    assert viewed["place"][:3] == [NODES[0].place, None, None] == ["model.py:12", None, None]


def test_the_view_knows_where_the_kernel_stands_and_how_it_runs(tmp_path: Path) -> None:
    viewed = viewed_columns(write(tmp_path / "run.ostinato"))
    for name in ("file", "line", "source_digest", "execution"):
        assert viewed[name][:3] == [getattr(NODES[0], name), None, None]
        assert viewed[name][0] is not None


def test_amounts_without_their_value_are_missing(tmp_path: Path) -> None:
    with Writer(tmp_path / "run.ostinato") as writer:
        device = writer.device("cpu", "cpu")
        plan = writer.plan(device, NODES)
        for values in ({"position": 5}, {}):
            number = writer.submission(
                device=device, plan=plan, ordinal=1, start_ns=1, end_ns=9, thread=1, values=values, replay=True
            )
            writer.samples(number, [0, 2], [1, 5], [5, 9], [0, 0])
    framed, viewed = plain_columns(tmp_path / "run.ostinato"), viewed_columns(tmp_path / "run.ostinato")
    assert framed["bytes_read"] == viewed["bytes_read"] == [4096, (1 << 40) + 64 * 6, 4096, None]


def test_an_empty_recording_has_the_same_columns(tmp_path: Path) -> None:
    Writer(tmp_path / "empty.ostinato").close()
    columns = plain_columns(tmp_path / "empty.ostinato")
    assert list(columns) == list(plain_columns(write(tmp_path / "run.ostinato")))
    assert all(column == [] for column in columns.values())


def test_without_pandas_the_error_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with (
        open_recording(write(tmp_path / "run.ostinato")) as recording,
        pytest.raises(ost.MissingPackage, match="pip install pandas"),
    ):
        recording.to_pandas()


def test_a_profile_becomes_a_frame(dev: ost.Device, kernels: ost.Library) -> None:
    pandas = pytest.importorskip("pandas")
    x = dev.zeros(64, np.float32)
    with ost.profile() as prof:
        for _ in range(3):
            enc = dev.command_encoder()
            with enc.scope("layer"):
                enc.dispatch(kernels["bump"], x, threads=64)
            enc.commit()
    frame = prof.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert frame["kernel"].tolist() == ["bump"] * 3
    assert frame["label"].tolist() == ["layer"] * 3
    assert (frame["duration_ns"] == frame["end_ns"] - frame["start_ns"]).all()
    assert frame.groupby("kernel", observed=True)["duration_ns"].sum()["bump"] > 0
    assert frame["flops"].isna().all()
