"""A recording as a data frame holds what the view `dispatch_report` says, row for row, in every library."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ostinato as ost
from keep_recording import KEPT
from ostinato.profiling.recording import PlanNode, PlanTerm, Recording, Writer, open_recording
from recordings import NODES, write


def from_pandas(recording: Recording) -> dict[str, list[Any]]:
    frame = recording.to_pandas()
    return {name: frame[name].astype(object).where(frame[name].notna(), None).tolist() for name in frame}


def from_polars(recording: Recording) -> dict[str, list[Any]]:
    frame = recording.to_polars()
    return {name: frame[name].to_list() for name in frame.columns}


def from_arrow(recording: Recording) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = recording.to_arrow().to_pydict()
    return columns


Lists = Callable[[Recording], dict[str, list[Any]]]
LIBRARIES = {"pandas": from_pandas, "polars": from_polars, "pyarrow": from_arrow}


@pytest.fixture(params=LIBRARIES)
def lists(request: pytest.FixtureRequest) -> Lists:
    """The columns of a frame of each library as lists, with None for what is missing."""
    pytest.importorskip(request.param)
    return LIBRARIES[request.param]


def framed_columns(path: Path, lists: Lists) -> dict[str, list[Any]]:
    with open_recording(path) as recording:
        return lists(recording)


def viewed_columns(path: Path) -> dict[str, list[Any]]:
    with closing(sqlite3.connect(path)) as database:
        cursor = database.execute("SELECT * FROM dispatch_report ORDER BY submission, node")
        names = [name for name, *_ in cursor.description]
        rows = cursor.fetchall()
    return {name: [row[at] for row in rows] for at, name in enumerate(names)}


def assert_same(framed: dict[str, list[Any]], viewed: dict[str, list[Any]]) -> None:
    assert list(framed) == list(viewed)
    for name, column in framed.items():
        assert column == viewed[name], name


def test_the_frame_and_the_view_say_the_same(tmp_path: Path, lists: Lists) -> None:
    path = write(tmp_path / "run.ostinato")
    viewed = viewed_columns(path)
    assert len(viewed["kernel"]) == 9
    assert_same(framed_columns(path, lists), viewed)


def test_the_view_knows_the_source_line(tmp_path: Path) -> None:
    viewed = viewed_columns(write(tmp_path / "run.ostinato"))
    assert viewed["place"][:3] == [NODES[0].place, None, None] == ["model.py:12", None, None]


def test_the_view_knows_where_the_kernel_stands_and_how_it_runs(tmp_path: Path) -> None:
    viewed = viewed_columns(write(tmp_path / "run.ostinato"))
    for name in ("file", "line", "source_digest", "execution"):
        assert viewed[name][:3] == [getattr(NODES[0], name), None, None]
        assert viewed[name][0] is not None


words = st.sampled_from(["", "a", "ä", "a\0b", "\N{SNOWMAN}"])
amounts = st.integers(0, 1 << 50)


@st.composite
def plan_nodes(draw: st.DrawFn) -> PlanNode:
    terms = draw(st.lists(st.tuples(st.sampled_from(["bytes_read", "flops"]), st.integers(0, 9)), max_size=1))
    return PlanNode(
        draw(st.sampled_from(["dispatch", "copy"])),
        draw(words) or "k",
        draw(words),
        op_kind=draw(words),
        place=draw(words),
        bytes_read=draw(amounts),
        flops=draw(st.none() | amounts),
        bytes_declared=draw(st.booleans()),
        terms=tuple(PlanTerm(amount, "position", factor) for amount, factor in terms),
    )


@settings(max_examples=20)  # each writes a file
@given(st.lists(plan_nodes(), min_size=1, max_size=4), st.lists(st.tuples(words, st.booleans()), max_size=4), st.data())
def test_whatever_is_recorded_the_frame_and_the_view_say_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    nodes: list[PlanNode],
    submissions: list[tuple[str, bool]],
    data: st.DataObject,
) -> None:
    path = tmp_path_factory.mktemp("frames") / "run.ostinato"
    with Writer(path) as writer:
        device = writer.device("cpu", "cpu")
        plan = writer.plan(device, nodes)
        for number, (label, with_value) in enumerate(submissions, 1):
            values = {"position": number} if with_value else {}
            row = writer.submission(
                device=device, plan=plan, ordinal=number, label=label, start_ns=1, end_ns=99, thread=1, values=values
            )
            status = data.draw(st.lists(st.integers(0, 2), min_size=len(nodes), max_size=len(nodes)))
            at = [10 * each for each in range(len(nodes))]
            writer.samples(row, list(range(len(nodes))), at, [each + 7 for each in at], status)
    viewed = viewed_columns(path)
    for name, from_library in LIBRARIES.items():
        pytest.importorskip(name)
        assert_same(framed_columns(path, from_library), viewed)


@pytest.mark.parametrize("path", sorted(KEPT.glob("*.ostinato")), ids=lambda path: path.stem)
def test_frames_of_older_recordings_lack_only_what_was_not_recorded(path: Path, lists: Lists) -> None:
    framed, viewed = framed_columns(path, lists), viewed_columns(path)
    for name, column in framed.items():
        assert column == viewed.get(name, [None] * len(column)), name


def test_amounts_without_their_value_are_missing(tmp_path: Path, lists: Lists) -> None:
    path = tmp_path / "run.ostinato"
    with Writer(path) as writer:
        device = writer.device("cpu", "cpu")
        plan = writer.plan(device, NODES)
        for values in ({"position": 5}, {}):
            number = writer.submission(
                device=device, plan=plan, ordinal=1, start_ns=1, end_ns=9, thread=1, values=values, replay=True
            )
            writer.samples(number, [0, 2], [1, 5], [5, 9], [0, 0])
    framed, viewed = framed_columns(path, lists), viewed_columns(path)
    assert framed["bytes_read"] == viewed["bytes_read"] == [4096, (1 << 40) + 64 * 6, 4096, None]


def test_an_empty_recording_has_the_same_columns(tmp_path: Path, lists: Lists) -> None:
    Writer(tmp_path / "empty.ostinato").close()
    columns = framed_columns(tmp_path / "empty.ostinato", lists)
    assert list(columns) == list(framed_columns(write(tmp_path / "run.ostinato"), lists))
    assert all(column == [] for column in columns.values())


def test_texts_are_kept_once_and_numbers_stay_integers(tmp_path: Path) -> None:
    pandas, polars, arrow = (pytest.importorskip(name) for name in LIBRARIES)
    with open_recording(write(tmp_path / "run.ostinato")) as recording:
        in_pandas, in_polars, in_arrow = recording.to_pandas(), recording.to_polars(), recording.to_arrow()
    assert (in_pandas["kernel"].dtype, in_pandas["flops"].dtype) == ("category", pandas.Int64Dtype())
    assert (in_polars.schema["kernel"], in_polars.schema["flops"]) == (polars.Categorical, polars.Int64)
    assert arrow.types.is_dictionary(in_arrow.schema.field("kernel").type)
    assert in_arrow.schema.field("flops").type == arrow.int64()


@pytest.mark.parametrize(
    ("module", "method", "package"),
    [("pandas", "to_pandas", "pandas>="), ("polars", "to_polars", "polars>="), ("pyarrow", "to_arrow", "pyarrow>=")],
)
def test_without_the_package_the_error_says_what_to_do(
    module: str, method: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with (
        open_recording(write(tmp_path / "run.ostinato")) as recording,
        pytest.raises(ost.MissingPackage, match=f"{method}.* needs the package {module}: pip install '{package}"),
    ):
        getattr(recording, method)()


def test_a_profile_becomes_a_frame(dev: ost.Device, kernels: ost.Library) -> None:
    for name in LIBRARIES:
        pytest.importorskip(name)
    x = dev.zeros(64, np.float32)
    with ost.profile() as prof:
        for _ in range(3):
            enc = dev.command_encoder()
            with enc.scope("layer"):
                enc.dispatch(kernels["bump"], x, threads=64)
            enc.commit()
    frame = prof.to_pandas()
    assert frame["kernel"].tolist() == ["bump"] * 3
    assert frame["label"].tolist() == ["layer"] * 3
    assert (frame["duration_ns"] == frame["end_ns"] - frame["start_ns"]).all()
    assert frame.groupby("kernel", observed=True)["duration_ns"].sum()["bump"] > 0
    assert frame["flops"].isna().all()
    assert prof.to_polars()["kernel"].to_list() == ["bump"] * 3
    assert prof.to_arrow().column("label").to_pylist() == ["layer"] * 3
