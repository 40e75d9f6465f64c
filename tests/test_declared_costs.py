"""Bytes and flops that depend on parameters: what they come to, alone, added up, fused and in a file."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ostinato as ost
from calibrations import KNOWN
from graph_cases import described
from ostinato.graph.file import load_graph
from ostinato.ir.commands import ParamBinding
from ostinato.ir.costs import Amount, Term, less, settled
from ostinato.passes.building import added
from ostinato.profiling.calibration import predict
from small_graphs import dispatches

POSITION, OTHER = ost.param("pos", np.uint32), ost.param("other", np.int16)

_COUNT = st.integers(0, 300)
_TERMS = st.builds(Term, st.sampled_from(["pos", "other"]), _COUNT, st.integers(-300, 300), st.none() | _COUNT)
_AMOUNTS = st.builds(Amount, _COUNT, st.lists(_TERMS, min_size=1, max_size=4).map(tuple))
_VALUES = st.fixed_dictionaries({"pos": _COUNT, "other": st.integers(-300, 300)})


def counted_one_by_one(amount: Amount, values: dict[str, int]) -> int:
    """By the words of the manual: so much for every unit of the value, up to a limit."""
    found = amount.base
    for term in amount.terms:
        units = range(values[term.param] + term.plus)
        found += sum(term.factor for unit in units if term.upto is None or unit < term.upto)
    return found


@given(_AMOUNTS, _VALUES)
def test_an_amount_is_counted_by_units_up_to_its_limit(amount: Amount, values: dict[str, int]) -> None:
    assert amount.at(values) == counted_one_by_one(amount, values)
    assert settled(amount, values) == amount.at(values)
    assert settled(amount, {}) is None


@given(_AMOUNTS, _AMOUNTS | _COUNT, _VALUES)
def test_a_sum_of_amounts_comes_to_the_sum_of_what_they_come_to(
    one: Amount, other: Amount | int, values: dict[str, int]
) -> None:
    expected = one.at(values) + (other.at(values) if isinstance(other, Amount) else other)
    assert (one + other).at(values) == (other + one).at(values) == expected


@given(_AMOUNTS | _COUNT, _COUNT, _VALUES)
def test_what_is_saved_comes_off_what_does_not_change(amount: Amount | int, saved: int, values: dict[str, int]) -> None:
    without = less(amount, saved)
    if isinstance(amount, Amount):
        assert isinstance(without, Amount)
        assert without.at(values) == max(amount.base - saved, 0) + amount.at(values) - amount.base
    else:
        assert without == max(amount - saved, 0)


def test_fused_dispatches_add_up_unless_the_parameter_is_gone() -> None:
    amount = ost.per(POSITION, 4, plus=1)
    takes_it = (ParamBinding(0, "pos", 4),)
    assert added(100 + amount, 20, 30, takes_it) == Amount(90, amount.terms)
    assert added(amount, amount, 0, takes_it) == Amount(0, amount.terms * 2)
    assert added(amount, None, 0, takes_it) is None
    assert added(amount, 20, 0, ()) is None
    assert added(10, 20, 5, ()) == 25


def test_per_makes_what_can_be_added_to_numbers() -> None:
    amount = 100 + ost.per(POSITION, 8, plus=1, upto=16) + ost.per(OTHER, 3)
    assert amount.at({"pos": 4, "other": 2}) == 100 + 8 * 5 + 6
    assert amount.at({"pos": 40, "other": -2}) == 100 + 8 * 16
    assert amount.params == {"pos", "other"}


@pytest.mark.parametrize(
    ("param", "given", "reason"),
    [
        ("pos", {}, "expected a parameter that is a single integer"),
        (ost.param("pos", np.float32), {}, "expected a parameter that is a single integer"),
        (ost.param("pos", np.uint32, 2), {}, "expected a parameter that is a single integer"),
        (POSITION, {"factor": -1}, "factor is an integer from 0"),
        (POSITION, {"factor": 1.5}, "factor is an integer from 0"),
        (POSITION, {"factor": True}, "factor is an integer from 0"),
        (POSITION, {"plus": None}, "plus is an integer"),
        (POSITION, {"upto": -1}, "upto is an integer from 0"),
        (POSITION, {"upto": 1 << 63}, "upto is an integer from 0"),
    ],
)
def test_per_says_what_it_cannot_take(param: Any, given: dict[str, Any], reason: str) -> None:
    with pytest.raises(ost.ArgumentError, match=reason):
        ost.per(param, **({"factor": 1} | given))


@pytest.mark.parametrize("other", [-1, 1.5, True, None])
def test_only_what_is_no_less_than_zero_is_added(other: Any) -> None:
    with pytest.raises(TypeError):
        ost.per(POSITION, 1) + other


# --- in dispatches and files ------------------------------------------------------------------------------------------


def stored(dev: ost.Device, kernels: ost.Library, **amounts: Any) -> ost.Graph:
    x = dev.zeros(1, np.uint32)
    return dev.capture(lambda enc: enc.dispatch(kernels["store_uint"], x, POSITION, threads=1, **amounts)).named(x=x)


def test_an_amount_depends_on_parameters_of_its_own_dispatch(dev: ost.Device, kernels: ost.Library) -> None:
    with pytest.raises(
        ost.ArgumentError, match=r"store_uint.*flops depends on parameter 'other', which the dispatch does not take"
    ):
        stored(dev, kernels, flops=ost.per(OTHER, 1))


def test_other_parameters_make_other_dispatches(dev: ost.Device, kernels: ost.Library) -> None:
    """The encoder remembers dispatches by what they were given."""
    for factor in (1, 2):
        (dispatch,) = dispatches(stored(dev, kernels, flops=ost.per(POSITION, factor)))
        assert isinstance(dispatch.flops, Amount)
        assert dispatch.flops.at({"pos": 3}) == 3 * factor


@given(_AMOUNTS | _COUNT | st.none(), _AMOUNTS | _COUNT | st.none(), _AMOUNTS | _COUNT | st.none())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_amounts_survive_a_file(
    dev: ost.Device, kernels: ost.Library, tmp_path: Path, read: Any, written: Any, flops: Any
) -> None:
    both = """kernel void two(device uint *out [[buffer(0)]], constant uint &a [[buffer(1)]],
                               constant short &b [[buffer(2)]]) { out[0] = a + b; }"""
    x, kernel = dev.zeros(1, np.uint32), dev.library(both)["two"]
    amounts = {"bytes_read": read, "bytes_written": written, "flops": flops}
    graph = dev.capture(lambda enc: enc.dispatch(kernel, x, POSITION, OTHER, threads=1, **amounts)).named(x=x)
    graph.save(tmp_path / "case.graph")
    loaded = load_graph(tmp_path / "case.graph")
    assert described(loaded) == described(graph)
    (kept,) = dispatches(loaded)
    assert (kept.bytes_read, kept.flops) == (read, flops)
    (moved,) = dispatches(loaded.to(dev))  # where every command is encoded anew
    assert (moved.bytes_read, moved.bytes_written, moved.flops) == (read, written, flops)


def test_a_graph_with_values_in_it_has_numbers(dev: ost.Device, kernels: ost.Library) -> None:
    graph = stored(dev, kernels, bytes_written=4, flops=ost.per(POSITION, 5))
    assert graph.audit(run=True, params={"pos": 3}).findings == ()


@pytest.mark.parametrize(
    "amount",
    [
        {"base": -1, "terms": [["pos", 1, 0, None]]},
        {"base": "1", "terms": [["pos", 1, 0, None]]},
        {"base": 1, "terms": [["pos", -1, 0, None]]},
        {"base": 1, "terms": [["pos", 1, 1 << 63, None]]},
        {"base": 1, "terms": [["pos", 1, 0, -1]]},
        {"base": 1, "terms": [["pos", 1, 0]]},
        {"base": 1, "terms": {"pos": 1}},
        {"base": 1, "terms": [["pos", 1, 0, None]], "more": 0},
    ],
)
def test_an_amount_in_a_file_is_checked(dev: ost.Device, kernels: ost.Library, tmp_path: Path, amount: Any) -> None:
    path = tmp_path / "case.graph"
    stored(dev, kernels, flops=7).save(path)
    with zipfile.ZipFile(path) as archive:
        entries = {one: archive.read(one) for one in archive.namelist()}
    document = json.loads(entries["graph.json"])
    document["nodes"][0]["flops"] = amount
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in (entries | {"graph.json": json.dumps(document).encode()}).items():
            archive.writestr(name, data)
    with pytest.raises(ost.GraphFileError, match="node 0, flops"):
        load_graph(path)


def test_a_prediction_takes_the_amounts_of_the_values_it_is_given(dev: ost.Device, kernels: ost.Library) -> None:
    graph = stored(dev, kernels, bytes_read=ost.per(POSITION, 1_000))
    assert predict(graph, KNOWN, params={"pos": 3}).work_ns == pytest.approx(3_000)
    without = predict(graph, KNOWN)
    assert without.work_ns == pytest.approx(4)  # the bound bytes
    assert without.unknown == 1
