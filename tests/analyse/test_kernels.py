"""Kernels of one name that are not the same kernel are told apart, by the fewest words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.profiling.analyse import groups, look_first, summarise
from ostinato.profiling.analyse.kernels import KernelFacts, details, named
from synthetic import Synthetic, node


def work(source: str = "", constants: str = "", digest: str = "", kind: str = "dispatch") -> KernelFacts:
    """A kernel; its constants are separated by blanks."""
    return KernelFacts(kind, "work", source, digest, tuple(tuple(pair.split("=")) for pair in constants.split()))


@pytest.mark.parametrize(
    ("kernels", "expected"),
    [
        ([work("a.metal", "N=4", "11aa")], [""]),
        ([work("a.metal", digest="11aa"), work("a.metal", digest="11aa")], ["", ""]),
        ([work("x/a.metal", digest="11aa"), work("x/b.metal", digest="22bb")], ["(a.metal)", "(b.metal)"]),
        ([work("x/a.metal", digest="11aa"), work("y/a.metal", digest="22bb")], ["(x/a.metal)", "(y/a.metal)"]),
        (
            [work("a.metal", "M=1 N=4", "11aa"), work("a.metal", "M=1 N=8", "22bb")],
            ["[N=4]", "[N=8]"],
        ),
        ([work("a.metal", "", "11aa"), work("a.metal", "N=8", "22bb")], ["[no N]", "[N=8]"]),
        (
            [work("a.metal", "N=4", "11aa"), work("a.metal", "N=8", "22bb"), work("b.metal", "N=4", "33cc")],
            ["(a.metal) [N=4]", "[N=8]", "(b.metal)"],
        ),
        ([work(constants="T=f(a,b) N=4", digest="11aa"), work(constants="T=f(c,d) N=4", digest="22bb")],
         ["[T=f(a,b)]", "[T=f(c,d)]"]),
        ([work(digest="11aa0"), work(digest="11aa1"), work(digest="22bb0")], ["#11aa0", "#11aa1", "#22bb0"]),
        ([work(digest="11aa0"), work("a.metal", digest="22bb0")], ["#11aa", "(a.metal)"]),
        ([work(digest="11aa"), work(kind="copy")], ["#11aa", "(transfer)"]),
        ([work(constants="N=" + "4" * 90, digest="11aa"), work(constants="N=8", digest="22bb")],
         ["#11aa", "[N=8]"]),
    ],
)  # fmt: skip
def test_the_fewest_words_tell_kernels_apart(kernels: list[KernelFacts], expected: list[str]) -> None:
    assert details(kernels) == expected


_WORD = st.sampled_from(["", "a", "b", "x/a", "y/a", "a) [N=4", "#1", "11aa", "11ab"])
_CONSTANTS = st.sampled_from([(), (("N", "4"),), (("N", "8"), ("M", "1")), (("N", "4,M=1"),), (("x", "a"),)])


@given(st.lists(st.builds(KernelFacts, st.sampled_from(["dispatch", "copy"]), _WORD, _WORD, _WORD, _CONSTANTS)))
def test_kernels_share_words_only_if_they_are_the_same(kernels: list[KernelFacts]) -> None:
    found = details(kernels)
    for one, words in zip(kernels, found, strict=True):
        for other, others in zip(kernels, found, strict=True):
            if one.kind != other.kind or one.name != other.name:
                same = False
            elif one.kind == "copy":
                same = True
            elif one.digest or other.digest:
                same = one.digest == other.digest
            else:
                same = (one.source, one.constants) == (other.source, other.constants)
            assert same is ((one.name, words) == (other.name, others))


def test_every_part_of_a_report_keeps_two_kernels_of_one_name_apart() -> None:
    made = Synthetic()
    fast = node("work", source="a.metal", digest="11aa")
    slow = node("work", source="b.metal", digest="22bb")
    plan = made.plan([fast, slow, fast])
    for start in range(0, 20_000, 1_000):
        made.submit(plan, [(start, start + 10), (start + 10, start + 800), (start + 800, start + 812)])
    columns = made.columns()
    spent = groups.command_times(columns)
    assert [(g.detail, g.count) for g in groups.by_kernel(columns, spent)] == [("(b.metal)", 20), ("(a.metal)", 40)]
    assert [g.name for g in groups.by_shape(columns, spent)] == ["work (b.metal)", "work (a.metal)"]
    summary = summarise(columns)
    assert {named(s.kernel, s.detail) for s in summary.suspects[0].ranked} == {"work (a.metal)", "work (b.metal)"}
    assert {named(w.kernel, w.detail) for w in summary.what_ifs} == {"work (a.metal)", "work (b.metal)"}
    assert summary.critical_paths[0].kernel == ("work (a.metal)", "work (b.metal)", "work (a.metal)")
    assert "work (b.metal)" in look_first(summary)
