"""The best that a device can do: measured, remembered, never made worse by a busy machine."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, astuple, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ostinato as ost
from ostinato.base import cache
from ostinato.profiling import ceilings
from ostinato.profiling.ceilings import Ceilings, best_of

EARLIER, LATER = "2026-01-02T03:04:05+00:00", "2026-05-06T07:08:09+00:00"
GOOD = Ceilings(69e9, 0.02, 200e9, 0.03, 20.0, 15.0, 30.0, EARLIER, EARLIER, EARLIER)
BUSY = Ceilings(38e9, 0.79, 90e9, 0.50, 55.0, 10.0, 90.0, LATER, LATER, LATER)


class Measurements:
    """Stands in for `measure`: gives what it is told to, and counts."""

    def __init__(self) -> None:
        self.next = GOOD
        self.taken = 0

    def __call__(self, queue: object) -> Ceilings:
        self.taken += 1
        return self.next


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Measurements:
    """No real measurement, and nothing remembered from before."""
    monkeypatch.setenv("OSTINATO_CACHE_DIR", str(tmp_path / "cache"))
    stand_in = Measurements()
    monkeypatch.setattr(ceilings, "measure", stand_in)
    return stand_in


def test_what_is_remembered_never_gets_worse(dev: ost.Device, measured: Measurements) -> None:
    queue = dev._queue
    assert ceilings.of(queue) == GOOD
    measured.next = BUSY
    assert ceilings.of(queue) == GOOD
    assert measured.taken == 1
    assert ceilings.of(queue, anew=True) == GOOD
    assert measured.taken == 2
    assert ceilings.of(queue) == ceilings.known(queue) == GOOD
    # One figure may be better, the others stay; each keeps its own spread and date.
    measured.next = replace(BUSY, flops_per_s=300e9)
    expected = replace(GOOD, flops_per_s=300e9, flops_spread=0.50, flops_measured=BUSY.flops_measured)
    assert ceilings.of(queue, anew=True) == ceilings.known(queue) == expected


@given(*(st.builds(replace, st.sampled_from([GOOD, BUSY]), copy_bytes_per_s=st.floats(1, 1e15)) for _ in range(2)))
def test_the_better_of_two_is_the_same_whichever_comes_first(one: Ceilings, other: Ceilings) -> None:
    both = best_of(one, other)
    assert both.copy_bytes_per_s == max(one.copy_bytes_per_s, other.copy_bytes_per_s)
    assert best_of(other, one).copy_bytes_per_s == both.copy_bytes_per_s
    assert both.flops_per_s == max(one.flops_per_s, other.flops_per_s)
    assert both.timestamp_ns == min(one.timestamp_ns, other.timestamp_ns)


def test_a_timestamp_lost_in_the_noise_does_not_replace_a_measured_one() -> None:
    lost = replace(GOOD, timestamp_ns=0.0, timestamp_low_ns=0.0, timestamp_high_ns=5.0)
    assert best_of(lost, BUSY).timestamp_ns == best_of(BUSY, lost).timestamp_ns == BUSY.timestamp_ns
    assert best_of(lost, BUSY).timestamp_high_ns == BUSY.timestamp_high_ns
    assert best_of(lost, lost).timestamp_ns == 0


def _facts(**changed: object) -> str:
    return json.dumps(asdict(BUSY) | changed)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no JSON {",
        "[]",
        "null",
        "[" * 100_000,
        '{"copy_bytes_per_s": 1e9}',
        json.dumps({name: value for name, value in asdict(BUSY).items() if not name.endswith("_measured")}),
        _facts(unheard_of=1),
        _facts(copy_bytes_per_s=math.nan),
        _facts(copy_bytes_per_s=math.inf),
        _facts(copy_bytes_per_s=1e300),
        _facts(copy_bytes_per_s=10**400),
        _facts(copy_bytes_per_s=0),
        _facts(flops_per_s=-1),
        _facts(flops_per_s="1e9"),
        _facts(flops_spread=True),
        _facts(copy_busy=1),
        _facts(timestamp_low_ns=None),
        _facts(copy_measured="yesterday"),
        _facts(copy_measured=20260102.5),
    ],
    ids=lambda text: text[:40],
)
def test_a_damaged_or_foreign_note_is_measured_anew(dev: ost.Device, measured: Measurements, text: str) -> None:
    queue = dev._queue
    cache.note(ceilings._key(queue), lambda: text, anew=True)
    assert ceilings.known(queue) is None
    assert measured.taken == 0
    assert ceilings.of(queue) == GOOD
    assert measured.taken == 1
    assert ceilings.known(queue) == GOOD


def test_looking_up_what_is_known_measures_nothing(
    dev: ost.Device, measured: Measurements, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ceilings.known(dev._queue) is None
    assert not list(tmp_path.rglob("ceilings-*"))
    cache.note(ceilings._key(dev._queue), _facts, anew=True)
    assert ceilings.known(dev._queue) == BUSY
    monkeypatch.setenv("OSTINATO_CACHE_DIR", "/dev/null/nowhere")
    assert ceilings.known(dev._queue) is None
    assert measured.taken == 0


class Rounds:
    """Scripted rounds, each some seconds and the share of the time that other programs took."""

    def __init__(self, *scripted: list[tuple[float, float]]) -> None:
        self.scripted = scripted
        self.asked = 0

    def __call__(self) -> list[tuple[float, float]]:
        self.asked += 1
        return self.scripted[self.asked - 1]


def best(rounds: Rounds) -> tuple[Any, ...]:
    return astuple(ceilings._calm(rounds))


def quiet(*seconds: float) -> list[tuple[float, float]]:
    return [(one, 0.0) for one in seconds]


def test_rounds_that_differ_are_repeated_four_times_at_most() -> None:
    rounds = Rounds(quiet(10.0, 1.0, 1.0, 1.0, 9.0))
    assert ceilings._calm(rounds) == ceilings._Best(1.0, 0.0, busy=False)  # the slow ones do not count
    rounds = Rounds(quiet(2.0, 1.0, 3.0), quiet(1.1, 1.05, 4.0))
    assert best(rounds) == (1.0, pytest.approx(0.1), False)
    assert rounds.asked == 2
    rounds = Rounds(quiet(1.0, 2.0, 3.0), *[quiet(4.0, 5.0, 6.0)] * 3, quiet(1.0, 1.0, 1.0))
    assert ceilings._calm(rounds) == ceilings._Best(1.0, 2.0, busy=True)
    assert rounds.asked == 4


def test_disturbed_rounds_do_not_count_where_there_are_others() -> None:
    rounds = Rounds([(0.9, 0.3), (1.5, 0.5), (1.0, 0.0)], quiet(1.02, 1.01))
    assert best(rounds) == (1.0, pytest.approx(0.02), False)


def test_a_machine_that_is_never_idle_is_said_to_be_busy() -> None:
    rounds = Rounds(*[[(1.0, 0.5), (1.0, 0.4), (1.0, 0.3)]] * 4)
    assert ceilings._calm(rounds).busy
    assert rounds.asked == 4


def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, a machine that was busy may be idle."""
    monkeypatch.setattr(ceilings, "_BUSY_FOR_S", -1)


def test_figures_of_a_busy_machine_are_measured_again_when_it_may_be_idle(
    dev: ost.Device, measured: Measurements, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = dev._queue
    measured.next = replace(BUSY, copy_busy=True)
    assert ceilings.of(queue).copy_busy
    measured.next = GOOD
    assert ceilings.of(queue).copy_busy
    assert measured.taken == 1
    later(monkeypatch)
    assert ceilings.of(queue) == GOOD
    assert measured.taken == 2
    assert ceilings.of(queue) == GOOD
    assert measured.taken == 2


@pytest.mark.parametrize("note", ["", "yesterday", "9" * 30])
def test_a_damaged_note_of_the_last_measurement_is_none(dev: ost.Device, measured: Measurements, note: str) -> None:
    measured.next = replace(BUSY, copy_busy=True)
    ceilings.of(dev._queue)
    cache.note(f"{ceilings._key(dev._queue)}-tried", lambda: note, anew=True)
    ceilings.of(dev._queue)
    assert measured.taken == 2


def test_a_profile_measures_the_ceilings_of_a_busy_machine_again(
    dev: ost.Device, measured: Measurements, monkeypatch: pytest.MonkeyPatch
) -> None:
    later(monkeypatch)
    for expected, busy in ((1, True), (2, False), (2, False)):
        measured.next = replace(GOOD, copy_busy=busy)
        with ost.profile() as prof:
            enc = dev.command_encoder()
            enc.fill(dev.zeros(4, "float32"), 1.0)
            enc.commit_and_wait()
        prof.summary()
        assert measured.taken == expected


def test_what_an_idle_machine_confirms_is_not_too_low() -> None:
    fast = replace(BUSY, copy_bytes_per_s=70e9, copy_busy=True, flops_busy=True)
    assert not best_of(fast, GOOD).copy_busy
    assert best_of(fast, replace(BUSY, flops_busy=True)).flops_busy
