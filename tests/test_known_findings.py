"""Known findings: comments that call a finding benign, and the table of findings to ignore."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ostinato as ost
from ostinato.audit import Finding
from ostinato.audit.known import apart, by_table, read_table
from ostinato.backends.kernel_findings import KernelAccess, KernelPlace
from ostinato.base.source_lines import Place
from ostinato.msl.benign import benign


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["x[i] = 1;  // ostinato: benign race: all write 1"], "all write 1"),
        (["x[i] = 1;  //ostinato:benign race, all write 1."], "all write 1"),
        (["// ostinato: benign race all write 1", "x[i] = 1;"], "all write 1"),
        (["// ostinato: benign race: all write 1", "// and nobody reads", "x[i] = 1;"], "all write 1"),
        (["# ostinato: benign race: shown on purpose", "encoder.dispatch(k)"], "shown on purpose"),
        (["x[i] = 1;  // ostinato: benign race"], ""),
        (["x[i] = 1;  // ostinato: benign race:"], ""),
        (["x[i] = 1;  // ostinato: benign races: all write 1"], None),
        (["x[i] = 1;  // ostinato: benign out of bounds: padded"], None),
        (["y[i] = 1;  // ostinato: benign race: of the line before", "x[i] = 1;"], None),
        (["// ostinato: benign race: too far up", "", "x[i] = 1;"], None),
        (["x[i] = 1;"], None),
        ([], None),
    ],
)
def test_a_comment_counts_for_its_line_or_the_one_below_with_kind_and_reason(
    lines: list[str], reason: str | None
) -> None:
    assert benign(lines, "race") == reason


SOURCE = """kernel void k(device uint *x, uint i [[thread_position_in_grid]]) {
    // ostinato: benign race: every thread writes the same value
    x[0] = 1;
    x[1] = 2;  // ostinato: benign race
#line 100 "elsewhere.metal"
    x[2] = 3;  // ostinato: benign race: by its claimed line
    x[3] = 4;
    x[4] = 5;  // ostinato: benign rase: all write 5
    x[5] = 6;  // ostinato: benign out of bounds: of another kind
}
"""


def race_at(graph: ost.Graph, file: str, *lines: int) -> Finding:
    accesses = tuple(KernelAccess("write", (0, 0, 0), (0, 0, 0), 0, KernelPlace(file, line, 5)) for line in lines)
    return Finding("error", "race", (0,), ("k",), (graph.nodes[0].place,), "because", "mend it", accesses=accesses)


def test_comments_are_looked_for_at_both_accesses_and_where_the_dispatch_was_encoded(dev: ost.Device) -> None:
    kernel = dev.library(SOURCE)["k"]
    x = dev.zeros(4, np.uint32)
    graph = dev.capture(lambda encoder: encoder.dispatch(kernel, x, threads=1))
    kept, ignored = apart(
        graph,
        [
            race_at(graph, "<source>", 3, 4),
            race_at(graph, "<source>", 4),
            race_at(graph, "elsewhere.metal", 101, 100),
            race_at(graph, "elsewhere.metal", 101),
            race_at(graph, "nowhere.metal", 3),
        ],
    )
    assert [(each.reason, each.by, each.in_source) for each in ignored] == [
        ("every thread writes the same value", ("<source>:3:5",), True),
        ("by its claimed line", ("elsewhere.metal:100:5",), True),
    ]
    assert [finding.accesses[0].place.line for finding in kept if finding.accesses[0].place] == [4, 101, 3]
    assert kept[0].advice == "mend it; the comment at <source>:4:5 gives no reason, and does not count"


def test_a_comment_of_an_unknown_kind_is_named_with_the_finding(dev: ost.Device) -> None:
    kernel = dev.library(SOURCE)["k"]
    x = dev.zeros(6, np.uint32)
    graph = dev.capture(lambda encoder: encoder.dispatch(kernel, x, threads=1))
    kept, ignored = apart(graph, [race_at(graph, "elsewhere.metal", line) for line in (102, 103)])
    assert not ignored
    said = "mend it; the comment at elsewhere.metal:102:5 calls 'rase' benign (there are conversion out of range, "
    assert kept[0].advice.startswith(said)
    assert kept[0].advice.endswith("), and does not count")
    assert kept[1].advice == "mend it"


def test_audits_count_what_a_comment_in_the_program_calls_benign(dev: ost.Device) -> None:
    kernel = dev.library("kernel void k(device uint *x, uint i [[thread_position_in_grid]]) { x[i] += 1; }")["k"]
    x = dev.zeros(4, np.uint32)

    def encode(encoder: ost.CommandEncoder) -> None:
        encoder.dispatch(kernel, x, threads=4)
        # ostinato: benign missing barrier: this test wants one
        encoder.dispatch(kernel, x, threads=4)

    audit = dev.capture(encode, barriers="manual").audit()
    assert audit.ok
    assert [each.finding.kind for each in audit.ignored] == ["missing barrier"]
    assert "0 errors, 0 notes, 1 ignored" in str(audit)


FINDING = Finding("error", "race", (0,), ("layer/sum",), (Place("/p/run.py", 9),), "because", "mend it")
AT = replace(
    FINDING,
    accesses=(KernelAccess("read", (1, 0, 0), (0, 0, 0), 1, KernelPlace("/p/kernels/sum.metal", 12, 3)),),
)


@pytest.mark.parametrize(
    ("named", "matches"),
    [
        ("kernel = 'sum'", True),
        ("kernel = 'layer'", False),
        ("file = 'kernels/*.metal'", True),
        ("file = 'kernels/sum.metal'\nline = 12", True),
        ("file = 'kernels/sum.metal'\nline = 9", False),
        ("file = 'run.py'\nline = 9\nkernel = 'sum'", True),
        ("file = 'run.py'\nkernel = 'other'", False),
    ],
)
def test_an_entry_matches_by_everything_that_it_names(tmp_path: Path, named: str, matches: bool) -> None:
    table = tmp_path / "known.toml"
    table.write_text(f"[[ignore]]\nkind = 'race'\nreason = 'known'\n{named}\n")
    (entry,) = read_table(table)
    entry = replace(entry, folder="/p")
    kept, ignored = by_table([AT, replace(AT, kind="out of bounds")], [entry])
    assert len(ignored) == matches
    assert all(each.by == ("known.toml, entry 1",) and each.reason == "known" for each in ignored)
    assert len(kept) == 2 - matches


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[ignore]]\nkind = 'race'\nkernel = 'k'", "entry 1 has no reason"),
        (
            "[[ignore]]\nkind = 'rase'\nkernel = 'k'\nreason = 'r'",
            "entry 1: kind = 'rase' is none; there are conversion out of range, ",
        ),
        ("[[ignore]]\nkernel = 'k'", "entry 1 has no kind and no reason"),
        ("[[ignore]]\nkind = 'race'\nreason = 'r'", "entry 1 names no kernel and no file"),
        ("[[ignore]]\nkind = 'race'\nreason = 'r'\nkernel = 'k'\nline = 3", "entry 1 names a line, and no file"),
        ("[[ignore]]\nkind = 'race'\nreason = ' '\nkernel = 'k'", "entry 1: reason = ' ' is not a text"),
        ("[[ignore]]\nkind = 'race'\nreason = 'r'\nfile = 'k'\nline = true", "line = True is not the number of a line"),
        ("[[ignore]]\nkind = 'race'\nreason = 'r'\nkernel = 'k'\nlines = 3", "entry 1 has 'lines'; there are kind,"),
        ("[ignore]\nkind = 'race'", "expected [[ignore]] and nothing else, got one [ignore]"),
        ("ignored = []", "expected [[ignore]] and nothing else, got ignored"),
        ("ignore = [3]", "entry 1 is 3, not a table"),
        ("[[ignore]\n", "known.toml: "),
        ("\x1b = 1", "known.toml: "),
    ],
)
def test_a_table_of_another_form_is_refused_with_the_reason(tmp_path: Path, text: str, said: str) -> None:
    table = tmp_path / "known.toml"
    table.write_text(text)
    with pytest.raises(ost.ArgumentError) as raised:
        read_table(table)
    assert said in str(raised.value)
    assert str(raised.value).isprintable()
