"""The JSON report holds what it documents, in plain types."""

from __future__ import annotations

import json
import math

import pytest
from sampled import decoder, hostile

from ostinato.profiling.analyse import summarise
from ostinato.profiling.report import as_dict, as_json
from ostinato.profiling.report import json as report_json
from synthetic import Synthetic, node, wandering

KEYS = """format version processes devices submissions dispatched timed timed_in_part timeline kernels labels
label_patterns op_kinds shapes by_rank by_host by_process repeated_region outside_region regions command_buffers
suspects verdict what_if_total_ns what_if replay_residue critical_paths drift perturbation machine drops checks
look_first meta""".split()


def plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(type(k) is str and plain(v) for k, v in value.items())
    if isinstance(value, list):
        return all(map(plain, value))
    if type(value) is float:
        return math.isfinite(value)
    return value is None or type(value) in (str, int, bool)


@pytest.mark.parametrize("made", [decoder(), hostile(), Synthetic(), Synthetic(devices=[])])
def test_every_report_has_all_keys_and_plain_types_only(made: Synthetic) -> None:
    summary = summarise(made.columns())
    found = as_dict(summary)
    assert list(found) == KEYS
    assert plain(found)
    assert json.loads(as_json(summary)) == found
    assert all(key in report_json.__doc__ for key in KEYS)


def test_it_says_what_the_tables_say() -> None:
    found = as_dict(summarise(decoder().columns()))
    assert found["suspects"][0]["kernel"] == "top_k"
    assert found["kernels"][0]["name"] == "matvec"
    assert found["kernels"][0]["total_ns"] == 8 * 12 * 100_000
    assert {"name": "decode/layer.3/mlp", "depth": 3, "total_ns": 800_000}.items() <= next(
        g for g in found["labels"] if g["name"] == "decode/layer.3/mlp"
    ).items()
    assert found["drift"]["status"] == "fine"
    assert found["perturbation"] | {"status": "not judged", "ratio": None} == found["perturbation"]
    assert found["drops"]["total"] == 0
    assert found["critical_paths"][0]["dispatches"][12]["on_path"] is True
    assert found["look_first"].startswith("Look first at top_k")


def test_what_was_not_measured_is_null() -> None:
    made = Synthetic()
    made.submit(made.plan([node("k")]), [None], start_ns=0, end_ns=5)
    (kernel,) = as_dict(summarise(made.columns()))["kernels"]
    assert (kernel["dispatched"], kernel["count"]) == (1, 0)
    assert all(kernel[key] is None for key in ("total_ns", "mean_ns", "p50_ns", "min_ns", "share"))


def test_what_if_and_slack_of_kernels_that_share_a_full_device() -> None:
    made = Synthetic()
    plan = made.plan([node("left"), node("right"), node("last")], [(0, 2), (1, 2)])
    for i in range(5):
        t = 10**6 * i
        made.submit(plan, [(t, t + 400_000), (t, t + 400_000), (t + 400_000, t + 500_000)])
    found = as_dict(summarise(made.columns()))
    assert {w["kernel"]: round(w["saved_share"], 9) for w in found["what_if"]} == {
        "left": 0.2,
        "right": 0.2,
        "last": 0.1,
    }
    assert [d["slack_ns"] for d in found["critical_paths"][0]["dispatches"]] == [0, 0, 0]
    assert found["replay_residue"] == pytest.approx(0)
    assert not any(s["saving_is_bound"] for s in found["suspects"])


def test_what_if_and_slack_are_null_where_no_replay_explains_the_times() -> None:
    found = as_dict(summarise(wandering().columns()))
    saved = {w["kernel"]: w["saved_share"] for w in found["what_if"]}
    assert saved == {"left": None, "right": None, "third": None, "last": pytest.approx(0.05)}
    assert [d["slack_ns"] for d in found["critical_paths"][0]["dispatches"]] == [None, None, None, 0]
    assert {s["kernel"]: s["saving_is_bound"] for s in found["suspects"]} == {
        "left": True,
        "right": True,
        "third": True,
        "last": False,
    }
    assert found["replay_residue"] is None


def test_the_text_cannot_act_on_a_terminal() -> None:
    text = as_json(summarise(hostile().columns()))
    assert text.isascii()
    assert not any(ord(c) < 32 and c != "\n" for c in text)
