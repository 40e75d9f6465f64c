"""The accumulators of mlx-native, as tables."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import ostinato as ost
from ostinato import kernel_profile
from ostinato.profiling.kernel_profile import DispatchEntry, ProfileEntry


@pytest.fixture(autouse=True)
def clean_tables() -> Iterator[None]:
    kernel_profile.reset()
    yield
    kernel_profile.reset()


def test_record_dump_reset_cycle() -> None:
    kernel_profile.record("A", 100)
    kernel_profile.record("A", 200)
    kernel_profile.record("B", 50)
    assert kernel_profile.dump() == [("A", ProfileEntry(2, 300, 100, 200)), ("B", ProfileEntry(1, 50, 50, 50))]
    kernel_profile.reset()
    assert kernel_profile.dump() == []


def test_totals_saturate() -> None:
    kernel_profile.record("A", 2**64 - 10)
    kernel_profile.record("A", 100)
    assert kernel_profile.dump()[0][1].total_ns == 2**64 - 1


def test_what_finds_no_room_is_counted_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_profile, "MOST_DISPATCHES", 3)
    monkeypatch.setattr(kernel_profile, "MOST_LABELS", 2)
    for index in range(5):
        kernel_profile.record_dispatch(DispatchEntry("A", "Other", index, 5, 10, 15))
        kernel_profile.record(f"label {index}", 10)
    assert kernel_profile.dropped_dispatches() == 2
    with pytest.warns(ost.SamplingWarning, match="dropped 2 dispatches: 3 are kept until reset"):
        ((_, entries),) = kernel_profile.dump_dispatches()
    assert [entry.dispatch_index for entry in entries] == [0, 1, 2]
    assert {label: entry.count for label, entry in kernel_profile.dump()} == {
        "label 0": 1,
        "label 1": 1,
        kernel_profile.OTHER_LABELS: 3,
    }
    kernel_profile.reset()
    assert kernel_profile.dropped_dispatches() == 0
    kernel_profile.record_dispatch(DispatchEntry("A", "Other", 0, 5, 10, 15))
    assert len(kernel_profile.dump_dispatches()) == 1


def test_dispatches_are_grouped_in_order_of_arrival() -> None:
    for label, index in (("late", 0), ("early", 0), ("late", 1)):
        kernel_profile.record_dispatch(DispatchEntry(label, "Other", index, 5, 10, 15))
    found = kernel_profile.dump_dispatches()
    assert [(label, [entry.dispatch_index for entry in entries]) for label, entries in found] == [
        ("late", [0, 1]),
        ("early", [0]),
    ]
