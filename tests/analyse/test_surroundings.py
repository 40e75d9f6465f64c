"""What differs beside the program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from ostinato.profiling.analyse.columns import Columns, Device
from ostinato.profiling.analyse.origin import Origin
from ostinato.profiling.analyse.surroundings import differences, surroundings
from synthetic import Synthetic, node

ORIGIN = Origin("pid 1", "decode.py", "", 1, "node", 1, None, None, None, "", "", None, (4, 4), (0.5, 0.5), 1)
DEVICE = Device(
    "cuda:0", "cuda", description="H200", workers=132, driver="550", sm_mhz=1980.0, details={"driver": "550"}
)
META = {"python": "CPython 3.11.7", "setting.OSTINATO_BARRIERS": "auto", "setting.OSTINATO_PROFILE": "1"}


def recording(
    device: Mapping[str, Any] = {}, origin: Mapping[str, Any] = {}, meta: Mapping[str, str] = {}, lost_ns: int = 0
) -> Columns:
    made = Synthetic(devices=[replace(DEVICE, **device)])
    made.submit(made.plan([node()]), [(0, 100)], worked_ns=1000, lost_ns=lost_ns)
    return replace(made.columns(), origins=(replace(ORIGIN, **origin),), meta={**META, **meta})


def differing(a: Columns, b: Columns) -> list[str]:
    return differences([surroundings(a)], [surroundings(b)])


@pytest.mark.parametrize(
    ("other", "line"),
    [
        (recording({"description": "H100"}), "device: A H200 (cuda, 132 workers), B H100 (cuda, 132 workers)"),
        (recording({"workers": 66}), "device: A H200 (cuda, 132 workers), B H200 (cuda, 66 workers)"),
        (recording({"driver": "560", "details": {"driver": "560"}}), "driver or compiler: A 550, B 560"),
        (recording({"held_back_by": "power"}), "clock held back by: A none, B power"),
        (recording({"other_processes": 2}), "other programs on the device: A none, B yes"),
        (recording({"sm_mhz": 1500.0}), "lowest clock: A 1,980 MHz, B 1,500 MHz"),
        (recording(origin={"host": "other"}), "host: A node, B other"),
        (recording(origin={"cores": (2, 2), "load": (0.25, 0.25)}), "cores: A 4, B 2"),
        (recording(origin={"load": (2.0, 4.0)}), "load average per core: A 0.12, B 0.75"),
        (recording(meta={"python": "CPython 3.12.1"}), "Python: A CPython 3.11.7, B CPython 3.12.1"),
        (recording(meta={"setting.OSTINATO_BARRIERS": "serial"}), "OSTINATO_BARRIERS: A auto, B serial"),
        (recording(meta={"setting.OSTINATO_DEVICE": "cpu"}), "OSTINATO_DEVICE: A none, B cpu"),
        (recording(lost_ns=200), "workers' time taken by other programs: A 0 %, B 20.0 %"),
    ],
)
def test_a_difference_is_one_line(other: Columns, line: str) -> None:
    assert differing(recording(), other) == [line]


def test_what_differs_little_or_is_the_program_itself_is_not_listed() -> None:
    other = recording(
        {"sm_mhz": 1975.0},
        {"load": (0.7, 0.7), "program": "other.py", "revision": "1234", "pid": 7},
        {"setting.OSTINATO_PROFILE": "dispatches", "program": "other.py"},
        lost_ns=10,
    )
    assert differing(recording(), other) == []


def test_several_recordings_of_a_side_are_taken_together() -> None:
    sides = [surroundings(recording()), surroundings(recording(meta={"python": "CPython 3.12.1"}))]
    assert differences(sides, sides) == []
    assert differences(sides, sides[:1], ("old", "new")) == [
        "Python: old CPython 3.11.7 and CPython 3.12.1, new CPython 3.11.7"
    ]


def test_what_was_not_recorded_differs_from_nothing() -> None:
    empty = replace(Synthetic(devices=[DEVICE]).columns(), origins=(), meta={})
    numbers = surroundings(empty).numbers
    assert set(numbers) == {"lowest clock"}
    assert [line.partition(":")[0] for line in differing(empty, recording())] == [
        "host", "cores", "Python", "OSTINATO_BARRIERS",
    ]  # fmt: skip
