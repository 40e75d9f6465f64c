"""The file of tuned choices: reading, writing, hostile input, and what operations make of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ostinato as ost
from ostinato import ops
from ostinato.ir.commands import Dispatch
from ostinato.msl import parse
from ostinato.runtime import tuned as files
from ostinato.runtime.tuned import Entry, Site, Tuned

ROWS, WIDTH = 48, 64


class Asked:
    """Keeps the sites that operations ask about."""

    description = ""

    def __init__(self) -> None:
        self.sites: list[Site] = []

    def choice(self, site: Site) -> Mapping[str, int] | None:
        self.sites.append(site)
        return None


def matvec(device: ost.Device) -> ost.Graph:
    weight, x, out = device.zeros((ROWS, WIDTH), "float32"), device.zeros(WIDTH, "float32"), device.zeros(ROWS, "f4")
    return device.capture(lambda enc: ops.matvec(enc, weight, x, out))


def site_of_matvec(device: ost.Device) -> Site:
    asked = Asked()
    device._queue.tuned = asked
    try:
        matvec(device)
    finally:
        device._queue.tuned = None
    (site,) = asked.sites
    return site


def entry_for(site: Site, **changes: Any) -> Entry:
    made = Entry(
        kernel=site.kernel,
        source=site.source,
        shape=site.shape,
        choice={"rows": 32},
        first=dict(site.defaults),
        ratio=(0.9, 0.88, 0.92),
        measured="2026-11-16T00:00:00+00:00",
    )
    return replace(made, **changes)


def group_size(graph: ost.Graph) -> tuple[int, int, int]:
    command = graph.commands[0]
    assert isinstance(command, Dispatch)
    return command.group_size


@pytest.fixture
def path(dev: ost.Device, tmp_path: Path) -> Path:
    """A file with a choice for the product above."""
    path = tmp_path / "cpu.json"
    empty = files.for_device(path, dev.capabilities)
    files.write(empty.with_entry(entry_for(site_of_matvec(dev))), path)
    return path


def test_operations_take_a_choice_only_from_a_file_that_is_named(dev: ost.Device, path: Path) -> None:
    assert group_size(matvec(dev)) == (8, 1, 1)
    with ost.open_device("cpu", tuned=path) as device:
        assert group_size(matvec(device)) == (32, 1, 1)


def test_a_setting_names_the_file_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OSTINATO_TUNED", str(path))
    with ost.open_device("cpu") as device:
        assert group_size(matvec(device)) == (32, 1, 1)


def test_another_source_or_shape_makes_an_entry_stale(dev: ost.Device, path: Path) -> None:
    entry = files.read(path).entries[0]
    for changed in (replace(entry, source="0" * 16), replace(entry, shape="1x2x3")):
        files.write(Tuned(files.identity(dev.capabilities), (changed,)), path)
        with ost.open_device("cpu", tuned=path) as device:
            assert group_size(matvec(device)) == (8, 1, 1)


def test_a_rule_that_changed_makes_an_entry_stale() -> None:
    entry = Entry(kernel="k", source="s", shape="1", choice={"rows": 8, "split": 2}, first={"rows": 4, "split": 2})
    site = Site("k", "s", "1", {"rows": 4, "split": 2}, {"rows": (4, 8), "split": (2, 4)}, frozenset({"split"}))
    assert Tuned({}, (entry,)).choice(site) == {"rows": 8, "split": 2}
    assert Tuned({}, (entry,)).choice(replace(site, defaults={"rows": 4, "split": 4})) is None


def test_a_choice_that_the_kernel_does_not_have_is_refused(dev: ost.Device, path: Path) -> None:
    for choice in ({"rows": 7}, {"rows": True}, {"rows": 8, "other": 1}, {}):
        files.write(Tuned(files.identity(dev.capabilities), (entry_for(site_of_matvec(dev), choice=choice),)), path)
        with ost.open_device("cpu", tuned=path) as device, pytest.raises(ost.TuningError, match="not one that this"):
            matvec(device)


def test_choices_that_change_sums_need_permission(dev: ost.Device, path: Path) -> None:
    site = replace(site_of_matvec(dev), changes_sums=frozenset({"rows"}))
    marked = entry_for(site, changes_sums=True)
    files.write(Tuned(files.identity(dev.capabilities), (marked,)), path)
    assert files.read(path).choice(site) is None
    assert files.read(path, sums=True).choice(site) == {"rows": 32}
    # An entry that claims to change no sums, but does, is not believed.
    files.write(Tuned(files.identity(dev.capabilities), (replace(marked, changes_sums=False),)), path)
    with pytest.raises(ost.TuningError):
        files.read(path).choice(site)


def test_a_file_of_another_device_is_refused_by_argument_and_left_alone_by_setting(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = json.loads(path.read_text())
    document["device"]["workers"] = "4096"
    path.write_text(json.dumps(document))
    with pytest.raises(ost.TuningError, match="another device"):
        ost.open_device("cpu", tuned=path)
    monkeypatch.setenv("OSTINATO_TUNED", str(path))
    with ost.open_device("cpu") as device:
        assert group_size(matvec(device)) == (8, 1, 1)


def test_a_recording_knows_the_file_and_reports_say_so(path: Path, tmp_path: Path) -> None:
    with ost.open_device("cpu", tuned=path) as device, ost.profile(path=tmp_path / "run.ostinato") as profile:
        matvec(device).instantiate().replay().wait()
    (known,) = profile.summary().devices
    assert known.tuned.startswith("cpu.json (1 choices, ")
    assert f"tuned by {known.tuned}" in str(profile)


def test_reading_gives_what_was_written(path: Path) -> None:
    before = files.read(path)
    files.write(before, path)
    assert files.read(path).entries == before.entries
    assert list(path.parent.glob(".*")) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"format": "ostinato.tuned", "version": 2}',
        '{"format": "ostinato.tuned", "version": 1, "device": {}, "entries": []}',
        '{"format": "ostinato.tuned", "version": 1, "device": {"backend": "", "description": "", "workers": ""},'
        ' "entries": [{"kernel": "a", "source": "", "shape": "", "choice": {"a": NaN}, "first": {}}]}',
        "[" * 100_000,
    ],
)
def test_what_is_not_a_tuned_file_is_one_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "strange.json"
    path.write_text(text)
    with pytest.raises(ost.TuningError, match=r"strange\.json is not a file of tuned choices: ") as caught:
        files.read(path)
    assert "\n" not in str(caught.value)


def test_files_that_are_missing_or_too_large_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ost.TuningError, match="cannot read"):
        files.read(tmp_path / "missing")
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(17 << 20)
    with pytest.raises(ost.TuningError, match="larger than 16 MiB"):
        files.read(large)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(name=st.sampled_from(list(Entry.__dataclass_fields__)), value=JSON)
def test_any_value_in_any_field_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, name: str, value: Any
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.json"
    device = {"backend": "cpu", "description": "", "workers": "1"}
    entry = {"kernel": "k", "source": "s", "shape": "1", "choice": {"rows": 16}, "first": {"rows": 8}, name: value}
    document = {"format": files.FORMAT, "version": files.VERSION, "device": device, "entries": [entry]}
    path.write_text(json.dumps(document))
    site = Site("k", "s", "1", {"rows": 8}, {"rows": (8, 16)})
    try:
        chosen = files.read(path).choice(site)
    except ost.TuningError:
        return
    assert chosen is None or (chosen in ({"rows": 8}, {"rows": 16}) and type(chosen["rows"]) is int)


TWO = """
inline float twice(float x) { return x * FACTOR; }
kernel void first(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = twice(x[i]) + FIRST; }
kernel void second(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = twice(x[i]) - SECOND; }
"""


def keys(**defines: int) -> list[str]:
    module = parse(TWO, defines={"FACTOR": 2, "FIRST": 1, "SECOND": 1} | defines)
    return [module.kernel_key(name) for name in ("first", "second")]


def test_a_changed_kernel_changes_its_own_key_only() -> None:
    assert [now == before for now, before in zip(keys(FIRST=5), keys(), strict=True)] == [False, True]
    assert [now == before for now, before in zip(keys(SECOND=5), keys(), strict=True)] == [True, False]
    assert [now == before for now, before in zip(keys(FACTOR=5), keys(), strict=True)] == [False, False]


def test_a_new_entry_replaces_the_one_of_the_earlier_source() -> None:
    site = Site("k", "new", "1", {"rows": 8}, {"rows": (8, 16)})
    old = entry_for(site, source="old")
    other = entry_for(site, source="old", shape="2")
    tuned = Tuned({}, (old, other)).with_entry(entry_for(site))
    assert {(entry.source, entry.shape) for entry in tuned.entries} == {("old", "2"), ("new", "1")}


@pytest.mark.parametrize("rows", [1, 2, 4, 16, 32, 64])
def test_products_keep_every_bit_whatever_the_group(path: Path, dev: ost.Device, rows: int) -> None:
    entry = entry_for(site_of_matvec(dev), choice={"rows": rows})
    files.write(Tuned(files.identity(dev.capabilities), (entry,)), path)
    numbers = np.random.default_rng(1)
    weight, x = (numbers.standard_normal(shape).astype("f4") for shape in ((ROWS, WIDTH), WIDTH))
    results = []
    for file in (None, path):
        with ost.open_device("cpu", tuned=file) as device:
            out, encoder = device.zeros(ROWS, "f4"), device.command_encoder()
            ops.matvec(encoder, device.array(weight), device.array(x), out)
            encoder.commit_and_wait()
            results.append(out.numpy().tobytes())
    assert results[0] == results[1]
