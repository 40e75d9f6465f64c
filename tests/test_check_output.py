"""What `ostinato check` writes and how it ends: SARIF, known findings, notes, device limits."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from ostinato.audit.families import FAMILIES
from ostinato.audit.findings import Coverage, Finding, Ignored
from ostinato.audit.kinds import KINDS
from ostinato.audit.sarif import sarif
from ostinato.backends.kernel_findings import KINDS as KERNEL_KINDS
from ostinato.backends.kernel_findings import NOTES, KernelAccess, KernelPlace
from ostinato.base.source_lines import Place
from ostinato.msl.features import FEATURES
from test_check import CLEAN, LINES, RACY, check, squeezed

__all__ = ["check"]

NOTED = """\
enc = dev.command_encoder(barriers="manual")
enc.dispatch(lib["inc"], x, y, threads=64)
enc.memory_barrier()
enc.commit_and_wait()
"""


NOTHING_CHECKED = Coverage(0, 0)


def accessed(what: str, file: str, line: int, column: int | None = None) -> KernelAccess:
    return KernelAccess(what, (line, 0, 0), (0, 0, 0), line, KernelPlace(file, line, column))


RACE = Finding(
    "error",
    "race",
    (3,),
    ("layer/sum",),
    (Place("run.py", 9),),
    "two threads write sums[0]",
    "put a barrier between",
    accesses=(accessed("write", "/p/my kernels/sum.metal", 5, 9), accessed("read", "/p/my kernels/sum.metal", 7)),
    count=64,
)


def structure(log: dict[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rules and results of a log that has what SARIF 2.1.0 requires."""
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("/sarif-schema-2.1.0.json")
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"] == "ostinato"
    rules = driver["rules"]
    names = [rule["id"] for rule in rules]
    assert len(set(names)) == len(names)
    for rule in rules:
        assert rule["shortDescription"]["text"]
        assert rule["help"]["text"]
    for result in run["results"]:
        assert result["ruleId"] in names
        assert result["level"] in ("error", "note")
        assert result["message"]["text"]
        for location in (*result["locations"], *result.get("relatedLocations", ())):
            assert location["message"]["text"]
        for location in result["locations"]:
            place = location["physicalLocation"]
            assert place["artifactLocation"]["uri"]
            assert place["region"]["startLine"] >= 1
    return rules, run["results"]


def where(location: dict[str, Any]) -> tuple[str, dict[str, int]]:
    place = location["physicalLocation"]
    return place["artifactLocation"]["uri"], place["region"]


def test_a_result_is_at_the_kernels_line_with_the_other_places_beside_it() -> None:
    _, (result,) = structure(sarif([RACE], [], Path("/p"), NOTHING_CHECKED))
    assert result["ruleId"] == "race"
    assert result["level"] == "error"
    assert result["occurrenceCount"] == 64
    assert result["message"]["text"] == "layer/sum: two threads write sums[0]; put a barrier between"
    assert where(result["locations"][0]) == ("my%20kernels/sum.metal", {"startLine": 7})
    first, host = result["relatedLocations"]
    assert where(first) == ("my%20kernels/sum.metal", {"startLine": 5, "startColumn": 9})
    assert first["message"]["text"].startswith("write at ")
    assert where(host) == ("run.py", {"startLine": 9})
    assert [first["id"], host["id"]] == [1, 2]
    (outside,) = structure(sarif([RACE], [], Path("/other"), NOTHING_CHECKED))[1]
    assert where(outside["locations"][0])[0] == "file:///p/my%20kernels/sum.metal"


def test_a_kernel_in_a_text_is_shown_at_the_line_that_dispatched_it() -> None:
    in_text = Finding("note", "relies on lockstep", (0,), ("k",), (Place("run.py", 9),), "w", "a",
                      accesses=(accessed("write", "<source>", 5, 9),))  # fmt: skip
    nowhere = Finding("error", "race", (), (), (), "the list differs", "order it")
    _, (result, unplaced) = structure(sarif([in_text, nowhere], [], Path("/p"), NOTHING_CHECKED))
    assert where(result["locations"][0]) == ("run.py", {"startLine": 9})
    assert "<source>:5:9" in result["relatedLocations"][0]["message"]["text"]
    assert unplaced["locations"] == []


def test_ignored_findings_are_suppressed_with_their_reason() -> None:
    known = [
        Ignored(RACE, "all alike", ("sum.metal:5",), True),
        Ignored(RACE, "later", ("known.toml, entry 1",), False),
    ]
    _, results = structure(sarif([], known, Path("/p"), NOTHING_CHECKED))
    assert [result["suppressions"] for result in results] == [
        [{"kind": "inSource", "justification": "all alike"}],
        [{"kind": "external", "justification": "later"}],
    ]


def test_what_was_not_checked_and_what_was_dropped_are_notifications() -> None:
    log = sarif([], [], Path("/p"), Coverage(0, 0, unchecked=("a slow kernel",), lost=1200))
    (invocation,) = log["runs"][0]["invocations"]
    assert invocation["executionSuccessful"]
    assert [note["message"]["text"] for note in invocation["toolExecutionNotifications"]] == [
        "a slow kernel",
        "the table of findings was full, and 1,200 further reports were dropped",
    ]


def test_every_kind_has_a_rule() -> None:
    rules, _ = structure(sarif([], [], Path("/p"), NOTHING_CHECKED))
    assert {*KERNEL_KINDS} <= KINDS.keys()
    assert {rule["id"] for rule in rules} == {kind.replace(" ", "-") for kind in KINDS}


def test_the_page_lists_every_kind_and_family() -> None:
    page = (Path(__file__).parent.parent / "docs" / "checking.md").read_text()
    _, _, kinds = page.partition("## Kinds")
    kinds, _, families = kinds.partition("## Limits of real devices")
    families, _, features = families.partition("| feature |")
    severities = dict(re.findall(r"^\| `([a-z ]+)` \| (error|note) \|", kinds, re.MULTILINE))
    assert [*severities] == [*KINDS]
    assert {kind for kind in KERNEL_KINDS if severities[kind] == "note"} == NOTES
    rows = re.findall(r"^\| (`.*?) \|", families, re.MULTILINE)
    assert [name for row in rows for name in re.findall(r"`(\w+)`", row)] == [*FAMILIES]
    features, _, _ = features.partition("##")
    assert re.findall(r"^\| ([\w -]+?) \| `", features, re.MULTILINE) == [*FEATURES]


def test_check_writes_sarif_with_paths_from_where_it_was_started(check: Any, tmp_path: Path) -> None:
    result = check("import os, tempfile\nos.chdir(tempfile.gettempdir())\n" + RACY, "--sarif", "findings.sarif")
    assert result.returncode == 1
    _, results = structure(json.loads((tmp_path / "findings.sarif").read_text()))
    assert [each["ruleId"] for each in results] == ["missing-barrier", "race", "redundant-barrier"]
    assert where(results[0]["locations"][0]) == ("program.py", {"startLine": LINES + 5})
    refused = check(RACY, "--sarif", "nowhere/findings.sarif")
    assert refused.returncode == 1
    assert "the folder" in refused.stderr


RACES = """kernel void shifted(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
                    uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]]) {
    threadgroup float tile[64];
    tile[t] = x[i];
    y[i] = tile[63 - t];
}
kernel void chosen(device uint *one [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    // ostinato: benign race: any thread will do
    one[0] = i;
}
"""


def test_a_race_in_a_kernel_is_shown_in_its_file_and_may_be_known(check: Any, tmp_path: Path) -> None:
    (tmp_path / "races.metal").write_text(RACES)
    racy = """\
        from pathlib import Path
        races = dev.library(Path("races.metal"))
        enc = dev.command_encoder()
        enc.dispatch(races["shifted"], x, y, threads=64, group_size=64)
        enc.dispatch(races["chosen"], dev.zeros(1, np.uint32), threads=64, group_size=64)
        enc.commit_and_wait()
    """
    result = check(racy, "--sarif=findings.sarif", "--json")
    assert result.returncode == 1, result.stderr
    found = json.loads(result.stdout)
    races = [each for each in found["findings"] if each["kind"] == "race"]
    assert len(races) == 1, races
    race = races[0]
    assert {access["what"]: access["place"]["line"] for access in race["accesses"]} == {"write": 4, "read": 5}
    assert race["count"] > 1
    assert [(each["kind"], each["reason"]) for each in found["ignored"]] == [("race", "any thread will do")]
    _, results = structure(json.loads((tmp_path / "findings.sarif").read_text()))
    files = [where(place)[0] for place in (*results[0]["locations"], *results[0]["relatedLocations"])]
    assert files == ["races.metal", "races.metal", "program.py"]
    assert where(results[-1]["locations"][0]) == ("races.metal", {"startLine": 9, "startColumn": 12})
    assert results[-1]["suppressions"] == [{"kind": "inSource", "justification": "any thread will do"}]


def test_notes_fail_only_a_strict_check(check: Any) -> None:
    assert check(NOTED).returncode == 0
    assert check(NOTED, "--strict").returncode == 1
    assert check(CLEAN, "--strict").returncode == 0


TABLE = """\
[[ignore]]
kind = "missing barrier"
file = "program.py"
reason = "shown on purpose"

[[ignore]]
kind = "race"
kernel = "inc"
reason = "the same"

[[ignore]]
kind = "out of bounds"
kernel = "gone"
reason = "it was corrected"
"""


def test_known_findings_are_ignored_and_counted_and_shown_on_request(check: Any, tmp_path: Path) -> None:
    (tmp_path / "known.toml").write_text(TABLE)
    result = check(RACY, "--ignore", "known.toml")
    assert result.returncode == 0, result.stdout
    text = squeezed(result.stdout)
    assert "2 known findings ignored (--all shows them)" in text
    assert "0 errors, 1 note, 2 ignored" in text
    assert "matches no finding: known.toml, entry 3: out of bounds in kernel 'gone'" in text
    assert "shown on purpose" not in text
    assert "shown on purpose known.toml, entry 1" in squeezed(check(RACY, "--ignore", "known.toml", "--all").stdout)
    found = json.loads(check(RACY, "--ignore", "known.toml", "--json").stdout)
    assert found["ok"] is True
    assert [each["kind"] for each in found["ignored"]] == ["missing barrier", "race"]
    assert found["unmatched"] == ["known.toml, entry 3: out of bounds in kernel 'gone'"]


def test_a_comment_of_the_program_makes_a_finding_known(check: Any) -> None:
    commented = RACY.replace(
        '    enc.dispatch(lib["inc"], y,',
        '    # ostinato: benign missing barrier: on purpose\n    enc.dispatch(lib["inc"], y,',
    )
    found = json.loads(check(commented, "--structure-only", "--json").stdout)
    assert [each["kind"] for each in found["findings"]] == ["redundant barrier"]
    assert found["ignored"][0]["reason"] == "on purpose"
    assert found["ignored"][0]["in_source"] is True


def test_a_wrong_table_is_refused_before_the_program_runs(check: Any, tmp_path: Path) -> None:
    (tmp_path / "known.toml").write_text("[[ignore]]\nkind = 'race'\n")
    result = check("print('ran')", "--ignore", "known.toml")
    assert result.returncode == 1
    assert "ran" not in result.stdout
    assert "known.toml: entry 1 has no reason" in result.stderr


def test_the_limits_of_a_family_are_errors_there(check: Any, tmp_path: Path) -> None:
    (tmp_path / "sums.metal").write_text(
        """#include <metal_stdlib>
kernel void sums(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    // ostinato: benign device limit: there are no such devices any more
    x[i] = metal::simd_sum(x[i]);
    x[i] = metal::quad_sum(x[i]);
}
"""
    )
    large = """\
        from pathlib import Path
        enc = dev.command_encoder()
        sums = dev.library(Path("sums.metal"))["sums"]
        enc.dispatch(sums, dev.zeros(1024, np.float32), threads=1024, group_size=1024)
        enc.commit_and_wait()
    """
    for fine in ([], ["--as=apple7"]):
        assert check(large, "--structure-only", *fine).returncode == 0
    result = check(large, "--structure-only", "--as=apple3", "--all", "--sarif=findings.sarif")
    assert result.returncode == 1
    text = squeezed(result.stdout)
    assert "apple3: a threadgroup of" in text
    assert "there are no such devices any more" in text
    assert "sums.metal:4:19" in text
    _, results = structure(json.loads((tmp_path / "findings.sarif").read_text()))
    assert [where(each["locations"][0]) for each in results] == [
        ("program.py", {"startLine": LINES + 4}),
        ("sums.metal", {"startLine": 5, "startColumn": 19}),
        ("sums.metal", {"startLine": 4, "startColumn": 19}),
    ]
    assert str(tmp_path) not in (tmp_path / "findings.sarif").read_text()
    assert ["suppressions" in each for each in results] == [False, False, True]
    unknown = check(large, "--as", "apple1")
    assert unknown.returncode == 2
    assert "'apple2', 'apple3'" in unknown.stderr


def test_what_is_looked_for_on_request_is_found_by_its_own_option(check: Any) -> None:
    program = """
        made = dev.library('''#include <metal_stdlib>
        using namespace metal;
        kernel void made(device float *o, device const float *x, device int *n, uint i [[thread_position_in_grid]]) {
            o[i] = sqrt(x[i] - 8.0f);
            n[i] = n[i] + 2147483000;
        }''')["made"]
        numbers = dev.array(np.full(64, 1000, np.int32))
        enc = dev.command_encoder()
        enc.dispatch(made, z, x, numbers, threads=60)
        enc.commit_and_wait()
    """
    kinds = {"--nan": "not a number", "--overflow": "signed overflow", "--unwritten": "not written"}
    for options in ((), *((option,) for option in kinds), tuple(kinds)):
        found = {finding["kind"] for finding in json.loads(check(program, *options, "--json").stdout)["findings"]}
        assert found == {kinds[option] for option in options}
