"""docs/json.md lists every field that the commands print, and no other."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import ostinato as ost
from calibrations import KNOWN, exactly
from ostinato.audit import Coverage, Finding
from ostinato.audit.check import Checked
from ostinato.audit.table import plain
from ostinato.backends.kernel_findings import KernelAccess, KernelPlace
from ostinato.cli.bench import as_dict as bench_dict
from ostinato.cli.calibrate import as_dict as calibration_dict
from ostinato.cli.tune import as_dict as tuning_dict
from ostinato.cli.tune import products_as_dict
from ostinato.measure.products import TunedProduct, TunedProducts
from ostinato.measure.spreads import RowSpread
from ostinato.measure.tuning import Candidate, Tuning
from ostinato.profiling.analyse import summarise
from ostinato.profiling.analyse.columns import Drop
from ostinato.profiling.analyse.comparison import Key, OneSided, UnitTimes, compare_times
from ostinato.profiling.analyse.origin import Origin
from ostinato.profiling.analyse.statistics import Interval
from ostinato.profiling.analyse.validity import Perturbation
from ostinato.profiling.calibration import BufferRow, DispatchRow
from ostinato.profiling.report import as_dict
from ostinato.profiling.report.comparison import as_dict as comparison_dict
from ostinato.runtime.tuned import Entry
from synthetic import Synthetic, node

PAGE = Path(__file__).parent.parent / "docs" / "json.md"
Tables = dict[str, dict[str, str]]


def tables() -> Tables:
    """By heading: the type of each key."""
    found: Tables = {}
    for section in re.split(r"^##+ ", PAGE.read_text(), flags=re.MULTILINE)[1:]:
        heading, _, body = section.partition("\n")
        rows = re.findall(r"^\| (`.*?) \| (.*?) \|", body, re.MULTILINE)
        found[heading] = {key: kind for keys, kind in rows for key in re.findall(r"`(\w+)`", keys)}
    return found


def documented(kind: str, known: Tables, path: str = "") -> Iterator[str]:
    for key, of in known[kind].items():
        here = f"{path}.{key}" if path else key
        yield here
        inner = re.search(r"\[([\w ]+)\]", of)
        if inner:
            yield from documented(inner[1], known, here)


def emitted(value: Any, path: str = "") -> Iterator[str]:
    """The paths of a value, without those inside of facts, whose keys are not fixed."""
    if isinstance(value, list):
        for one in value:
            yield from emitted(one, path)
    elif isinstance(value, dict) and path.rpartition(".")[2] not in ("meta", "details", "choice", "first"):
        for key, one in value.items():
            here = f"{path}.{key}" if path else key
            yield here
            yield from emitted(one, here)


def misdescribed(value: Any, kind: str, known: Tables, path: str) -> Iterator[str]:
    """The paths whose values are not of the type that their table says."""
    for key, of in known[kind].items():
        if key not in value:
            continue
        here, item = f"{path}.{key}", value[key]
        if item is None:
            if not of.endswith("…"):
                yield f"{here} is null"
            continue
        inner = re.search(r"\[([\w ]+)\]", of)
        items = item if of.startswith("list") and isinstance(item, list) else [item]
        expected = next(types for word, types in _TYPES.items() if of.startswith(word))
        if not isinstance(item, expected) or (isinstance(item, bool) and expected is not bool):
            yield f"{here} is {item!r}, not {of}"
        elif inner:
            for each in filter(None, items):
                yield from misdescribed(each, inner[1], known, here)


_TYPES: dict[str, Any] = {
    "text": str, "number": (int, float), "true or false": bool, "list": list, "[": dict, "facts": dict,
}  # fmt: skip


def assert_documented(kinds: str, *values: Any) -> None:
    """Values have the keys of all these kinds, which are separated by commas."""
    known = tables()
    expected = {path for kind in kinds.split(", ") for path in documented(kind, known)}
    found = {path for value in values for path in emitted(value)}
    section = re.split(rf"^##+ {kinds.partition(', ')[0]}$", PAGE.read_text(), flags=re.MULTILINE)[1]
    for key, what in re.findall(
        r"^\| `(format|version)` \| \w+ \| `?(.*?)`? \|$", section.partition("\n#")[0], re.MULTILINE
    ):
        assert json.dumps(values[0][key]) == what
    assert found - expected == set(), "emitted, but not documented"
    assert expected - found == set(), "documented, but not emitted"
    for value in values:
        for each in value if isinstance(value, list) else [value]:
            for kind in kinds.split(", "):
                assert list(misdescribed(each, kind, known, kind)) == []


def test_every_field_has_a_type_and_a_meaning() -> None:
    rows = re.findall(r"^\| `.*", PAGE.read_text(), re.MULTILINE)
    assert len(rows) > 100
    for row in rows:
        keys, kind, meaning = (cell.strip() for cell in row.strip("| ").split(" | "))
        assert re.fullmatch(r"`\w+`(, `\w+`)*", keys), row
        assert kind.startswith(tuple(_TYPES)), row
        assert meaning, row


def eventful() -> Synthetic:
    """A recording in which every list of a report has an entry."""
    made = Synthetic()
    where = {"file": "a.metal", "line": 3, "source_digest": "ab", "execution": "loop: its threads never meet"}
    plan = made.plan([node("a", label="x/y", **where), node("b")])
    for turn in range(20):
        at = 1_000_000 * turn
        region = made.region("token", at, at + 900_000)
        made.submit(plan, [(at + 1000, at + 300_000), (at + 310_000, at + 600_000)], region=region)
    made.drops.append(Drop("a test", 1, 0, 0))
    return made


def test_every_field_of_a_report_is_documented() -> None:
    origin = Origin("rank 0", "decode.py", "", 1, "node", 1, 0, 0, 1, "", "", None, (2, 2), (0.0, 0.0), 1)
    summary = summarise(replace(eventful().columns(), origins=(origin,)))
    ratio = summary.regions[0].median_ns
    assert ratio is not None
    measured = replace(summary, perturbation=Perturbation(summary.perturbation.check, 4, ratio, 16))
    assert_documented("Report", as_dict(measured))


def test_every_field_of_a_calibration_is_documented() -> None:
    one = exactly(1.0)
    whole = replace(KNOWN, dispatch_table=(DispatchRow(1, one, one),), buffer_table=(BufferRow(1, one, one, one),))
    spread = RowSpread("graph tiny", 1.0, 1, 5, 0.1, 0.3)
    assert_documented("Calibration", json.loads(json.dumps(calibration_dict(whole, [spread]))))


def test_every_field_of_a_comparison_is_documented() -> None:
    both, row = Key("graph", "token", grid="2"), UnitTimes(np.arange(1.0, 7.0), 60, 1.0)
    only = (OneSided(Key("kernel", "k", "label", "1 / 1"), 0.5),)
    report = compare_times({both: row}, {both: row}, about=["A", "B"], differences=["host"], notes=["a note"])
    assert_documented("Comparison", comparison_dict(replace(report, only_a=only, only_b=only)))


def test_every_field_of_a_bench_is_documented() -> None:
    with ost.open_device("cpu") as device:
        kernel = device.library("kernel void one(device float *x) { x[0] = 1; }")["one"]
        result = ost.bench(kernel, np.zeros(1, np.float32), threads=1, seconds=0.05)
        assert_documented("Bench", bench_dict(replace(result, interval=Interval(1.0, 0.5, 2.0)), kernel))


def tuning() -> Tuning:
    ratio = Interval(0.5, 0.4, 0.6)
    candidates = (Candidate({"group": 32}, "first"), Candidate({"group": 64}, "faster", "why", 0.5, ratio))
    return Tuning({"group": 64}, {"group": 32}, candidates, ratio, inside=False, space_size=2, seconds=1.0)


def test_every_field_of_a_tuning_is_documented() -> None:
    assert_documented("Tuning, tuning result", json.loads(json.dumps(tuning_dict(tuning()))))


def test_every_field_of_tuned_products_is_documented() -> None:
    entry = Entry(kernel="matvec", source="", shape="8 x 8", choice={}, first={})
    both, row = Key("graph", "token", grid="2"), UnitTimes(np.arange(1.0, 7.0), 60, 1.0)
    product = TunedProduct("matvec", "8 x 8", "mlp/up", 2, False, tuning(), tuning(), entry)
    outcome = TunedProducts((product,), compare_times({both: row}, {both: row}))
    assert_documented("Tuned products", json.loads(json.dumps(products_as_dict({"tiny": outcome}))))


def run_json(*arguments: str, folder: Path) -> Any:
    command = [sys.executable, "-m", "ostinato", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    return json.loads(done.stdout)


def test_every_field_of_the_list_of_devices_is_documented(tmp_path: Path) -> None:
    found = run_json("devices", "--json", "--probe", folder=tmp_path)
    assert_documented("Devices", found)
    (cpu,) = (device for device in found if device["name"] == "cpu")
    assert cpu["capabilities"]["sampling"] == "dispatches"


PROGRAM = """
import numpy as np
import ostinato as ost

dev = ost.open_device("cpu")
bump = dev.library(
    "#include <metal_stdlib>\\nusing namespace metal;"
    "kernel void bump(device float *x [[buffer(0)]], uint id [[thread_position_in_grid]]) { x[id] += simd_sum(1.0f); }"
)["bump"]
x = dev.zeros(64, np.float32)
for barriers in ("manual", "auto"):
    enc = dev.command_encoder(barriers=barriers)
    enc.dispatch(bump, x, threads=64)
    enc.dispatch(bump, x, threads=64)
    # ostinato: benign missing barrier: to have one that is ignored
    enc.dispatch(bump, x, threads=64)
    enc.commit_and_wait()
"""


def test_every_field_of_a_check_is_documented(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    access = KernelAccess("write", (3, 0, 0), (0, 0, 0), 3, KernelPlace("k.metal", 4, 5))
    race = Finding("error", "race", (0,), ("k",), (None,), "two threads write", "order them", accesses=(access,))
    inside = plain(Checked((race,), (), Coverage(1, 1), 1, 1, 0, 0))
    found = run_json("check", "--json", "--as=apple6", "program.py", folder=tmp_path)
    assert_documented("Check", found, json.loads(json.dumps(inside)))
