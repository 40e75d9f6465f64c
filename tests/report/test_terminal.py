"""The report on a terminal fits, reads well, and ends with the line that matters."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console
from sampled import decoder, hostile

from ostinato.profiling.analyse import summarise
from ostinato.profiling.report import console, print_summary, render
from synthetic import Synthetic, node, wandering


def report(made: Synthetic, width: int = 100) -> str:
    return render(summarise(made.columns()), width)


@pytest.mark.parametrize("width", [200, 120, 100, 80, 70])
def test_tables_fit_and_only_the_closing_line_is_longer(width: int) -> None:
    *lines, closing = report(decoder(), width).splitlines()
    assert max(map(cell_len, lines)) <= width
    assert closing.startswith("Look first at top_k: ")
    assert len(closing) > width


def test_the_suspect_stands_in_the_first_row_of_the_first_table() -> None:
    lines = report(decoder()).splitlines()
    first = lines.index(next(line for line in lines if line.startswith("Suspects")))
    assert lines[first + 3].startswith("top_k")


def test_kernels_labels_regions_and_checks_are_shown() -> None:
    text = report(decoder())
    for expected in ("per token", "layer.", "median wall", "if 2× faster", "1.60 ms", "perturbation", "not judged"):
        assert expected in text


def test_truth_checks_come_before_the_closing_line() -> None:
    lines = report(decoder()).splitlines()
    assert lines[-2] == ""
    assert lines[-3].startswith("measured")


def test_many_numbered_labels_are_folded() -> None:
    made = Synthetic()
    made.submit(made.plan([node(label=f"decode/layer.{i}/mlp") for i in range(40)]), [(i, i + 1) for i in range(40)])
    text = report(made)
    assert "layer.*" in text
    assert "* stands for a number" in text


def test_what_was_not_timed_has_no_figures_and_the_table_says_why() -> None:
    made = Synthetic()
    unknown: dict[str, Any] = {"status": "bounded", "reason": "the device times no dispatches"}
    made.submit(made.plan([node("top_k")]), [None], start_ns=0, end_ns=100, **unknown)
    text = report(made)
    row = next(line for line in text.splitlines() if line.startswith("top_k"))
    assert row.split()[1:] == ["1", *["–"] * 8]
    assert "– not timed: 1 command buffer without all times: the device times no dispatches" in text


def test_nothing_recorded_is_said_in_one_line() -> None:
    text = report(Synthetic(devices=[]))
    assert text.splitlines()[0] == "nothing was recorded"
    assert text.splitlines()[-1] == "Nothing to look at first: no command buffer was recorded"


def test_there_are_colours_only_on_a_terminal() -> None:
    summary = summarise(decoder().columns())
    assert "\x1b" not in render(summary)
    out = io.StringIO()
    print_summary(summary, Console(file=out, force_terminal=True, color_system="standard", width=100))
    assert "\x1b[" in out.getvalue()


def test_a_report_is_as_wide_as_it_is_told_and_100_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert console(io.StringIO()).width == 100
    assert console(io.StringIO(), width=200).width == 200
    assert console(io.StringIO(), width=72).width == 72
    monkeypatch.setenv("COLUMNS", "132")
    assert console(io.StringIO()).width == 132


def test_a_wide_report_uses_the_room() -> None:
    lines = report(decoder(), 200).splitlines()
    why = next(line for line in lines if line.startswith("top_k"))
    assert "1 threadgroup of 32 threads" in why
    assert 100 < cell_len(why) <= 200


def test_columns_that_do_not_fit_are_named_with_the_width_that_shows_them() -> None:
    narrow = report(decoder(), 70)
    kernels = narrow[narrow.index("\nKernels") : narrow.index("\nLabels")]
    heading = kernels.splitlines()[2].split()
    assert "p90" not in heading
    note = next(line for line in kernels.splitlines() if "hidden: " in line)
    assert {"p90", "min"} <= set(note.partition("hidden: ")[2].partition(";")[0].split(", "))
    needed = int(kernels.partition("--width ")[2].partition(",")[0])
    assert needed > 70
    wide = report(decoder(), needed).partition("\nKernels")[2].partition("\nLabels")[0]
    assert "hidden: " not in wide
    assert "p90" in wide
    assert "hidden: " in report(decoder(), needed - 1).partition("\nKernels")[2].partition("\nLabels")[0]


def kernel_rows(text: str) -> list[str]:
    """The rows of the table of kernels."""
    lines = text.partition("\nKernels\n")[2].partition("\n\n")[0].splitlines()[2:]
    return [line for line in lines if not line.startswith(" ")]


def test_names_are_cut_in_the_middle_and_a_row_is_one_line() -> None:
    name = "expert_gated_matvec_with_a_very_long_name_bfloat16"
    for width in (80, 60, 40):
        rows = kernel_rows(report(decoder(name=name, label="decode/expert_gated_matvec"), width))
        assert len(rows) == 2
        short = next(row.split()[0] for row in rows if row.startswith("exp"))
        begin, dots, end = short.partition("…")
        assert dots
        assert name.startswith(begin)
        assert name.endswith(end)
    assert any(row.startswith(name) for row in kernel_rows(report(decoder(name=name), 200)))


def test_grids_are_not_cut() -> None:
    out = io.StringIO()
    made = decoder(name="expert_gated_matvec_with_a_very_long_name_bfloat16")
    print_summary(summarise(made.columns()), console(out, 80), by=["shape"])
    rows = out.getvalue().partition("Shapes")[2].partition("\n\n")[0]
    assert "…" in rows
    assert "threads 32×1×1, group 32×1×1" in rows


def test_names_that_differ_in_the_middle_still_differ_when_they_are_cut() -> None:
    names = [f"decoder_block_attention_{part}_projection_bfloat16_simd" for part in ("query", "key", "value")]
    made = Synthetic()
    made.submit(made.plan([node(name) for name in names]), [(i, i + 1) for i in range(3)])
    shown = [row.split()[0] for row in kernel_rows(report(made, 60))]
    assert all("…" in name for name in shown)
    assert len(set(shown)) == 3


def test_what_never_ran_inside_the_repeated_region_has_a_dash_not_zero() -> None:
    made = decoder()
    made.submit(made.plan([node("prefill", label="prefill")]), [(10**9, 10**9 + 500_000)])
    text = report(made)
    rows = [" ".join(line.split()) for line in text.splitlines() if line.startswith("prefill ")]
    kernel, label = (row for row in rows if " 4.3 % " in row)
    assert kernel.startswith("prefill 1 500 µs 4.3 % – 500 µs")
    assert label.startswith("prefill 1 500 µs 4.3 % –")
    assert "– per token: did not run in any token whose dispatches were all timed" in text


def test_sentences_are_not_cut() -> None:
    made = Synthetic()
    reason = "because " * 60 + "of that"
    made.submit(made.plan([node()]), [None], start_ns=0, end_ns=100, status="bounded", reason=reason)
    *lines, _ = report(made).splitlines()
    assert reason in " ".join(" ".join(lines).split())


def test_what_is_not_known_is_a_dash_with_a_note() -> None:
    text = report(wandering())
    section = text[text.index("Critical path") :]
    assert next(line for line in section.splitlines() if line.startswith("left")).split()[-2:] == ["–", "–"]
    assert "– not known: these compete for a full device, and no replay reproduces how" in section


def test_what_rests_on_a_replay_says_how_good_it_is() -> None:
    made = Synthetic()
    plan = made.plan([node("left"), node("right")], [])
    for i in range(5):
        made.submit(plan, [(10**6 * i, 10**6 * i + 900_000)] * 2)
    section = report(made).partition("Critical path")[2]
    assert " 25.0 % ± " in next(line for line in section.splitlines() if line.startswith("left"))
    assert "estimated by replays that match the measured time to within 0 %" in " ".join(section.split())


def test_suspects_of_several_devices_are_ranked_together() -> None:
    made = decoder()
    made.devices *= 2
    for wide, length in ((False, 300_000), (True, 100_000)):
        shape = {} if wide else {"groups": 1, "threads": (32, 1, 1), "group": (32, 1, 1)}
        plan = made.plan([node("wide" if wide else "serial", bytes_read=64_000, declared=True, **shape)])
        for i in range(8):
            made.submit(plan, [(10**9 + 10**6 * i, 10**9 + 10**6 * i + length)], device=1)
    text = report(made)
    rows = [line.split("  ")[0] for line in text.splitlines() if " on cpu" in line]
    assert rows[:2] == ["serial on cpu #2", "top_k on cpu"]
    assert text.splitlines()[-1].startswith("Look first at serial")


def test_the_share_is_explained_and_no_line_ends_in_blanks() -> None:
    text = report(decoder())
    assert "share: of device busy time; overlapping dispatches split it evenly" in text
    assert all(line == line.rstrip() for line in text.split("\n"))


def test_bounds_are_not_written_twice() -> None:
    made = decoder()
    for command in made.commands:
        command["bytes_read"], command["declared"] = 8, False
    text = report(made)
    assert "≤ 0.01 %" in text
    assert "≤ <" not in text
    assert "at most <" not in text
    assert " 0 ×" not in text


@pytest.mark.parametrize("width", [100, 80, 60, 40])
def test_hostile_names_neither_act_nor_disappear(width: int) -> None:
    text = report(hostile(), width)
    assert not any(ord(c) < 32 and c != "\n" for c in text)
    assert "\u202e" not in text
    if width >= 80:
        assert "[red]x[/red]" in text.replace("\n", "")
        assert "\\x1b[2J" in text
        assert "\\u202eevil" in text
