"""Races inside a threadgroup, on a device that checks its kernels."""

from __future__ import annotations

import numpy as np
import pytest

import ostinato as ost
from compilers import ZIG

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"

REVERSE = (
    HEAD
    + """kernel void reverse(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
    uint i [[thread_position_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
  threadgroup float tile[256];
  tile[i] = x[i];
  BARRIER
  y[i] = tile[n - 1 - i];
}
"""
)


@pytest.fixture(scope="module")
def dev() -> ost.Device:
    return ost.open_device("cpu", checked=True)


def run(dev: ost.Device, source: str, *arrays: np.ndarray, threads: int, group: int) -> ost.Submission:
    library = dev.library(source)
    (kernel,) = (library[name] for name in library)
    encoder = dev.command_encoder()
    encoder.dispatch(kernel, *(dev.array(array) for array in arrays), threads=threads, group_size=group)
    submission = encoder.commit()
    submission.wait()
    return submission


def findings(dev: ost.Device, source: str, *arrays: np.ndarray, threads: int, group: int) -> tuple[ost.Finding, ...]:
    with pytest.raises(ost.KernelCheckError) as caught:
        run(dev, source, *arrays, threads=threads, group=group)
    return caught.value.findings


def reverse(barrier: str) -> str:
    return REVERSE.replace("BARRIER", barrier)


X = np.arange(256, dtype=np.float32)


@pytest.mark.parametrize("flags", ["mem_threadgroup", "mem_device | mem_flags::mem_threadgroup"])
@pytest.mark.parametrize("group", [1, 32, 33, 100, 256])
def test_a_barrier_orders_the_accesses_of_a_group(dev: ost.Device, flags: str, group: int) -> None:
    submission = run(dev, reverse(f"threadgroup_barrier(mem_flags::{flags});"), X, X, threads=group, group=group)
    assert submission.findings == ()


@pytest.mark.parametrize(
    "barrier",
    [
        "",
        "threadgroup_barrier(mem_flags::mem_none);",
        "threadgroup_barrier(mem_flags::mem_device);",
        "simdgroup_barrier(mem_flags::mem_threadgroup);",
    ],
)
def test_a_race_names_both_places(dev: ost.Device, barrier: str) -> None:
    (race,) = findings(dev, reverse(barrier), X, X, threads=256, group=256)
    assert (race.kind, race.severity) == ("race", "error")
    assert {(access.what, access.place.line) for access in race.accesses if access.place} == {("write", 6), ("read", 8)}
    assert all(access.place is not None and access.place.column is not None for access in race.accesses)
    first, second = race.accesses
    assert first.thread[0] + second.thread[0] == 255
    assert race.count == 256


KERNEL = (
    HEAD
    + """kernel void k(device uint *x, device atomic_uint *a, uint i [[thread_position_in_grid]],
    uint t [[thread_index_in_threadgroup]], uint g [[threadgroup_position_in_grid]]) {
  threadgroup uint s[64];
  threadgroup atomic_uint c[1];
  threadgroup half h[64];
BODY
}
"""
)
WORDS = np.zeros(256, np.uint32)
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"


def kernel(body: str) -> str:
    return KERNEL.replace("BODY", body)


@pytest.mark.parametrize(
    "body",
    [
        "atomic_fetch_add_explicit(a, x[i], memory_order_relaxed);",
        "x[0] = 7;",  # equal values, whoever comes last
        "h[t] = half(t);" + BARRIER + "x[i] = uint(h[t ^ 1]);",  # neighbours in one word
        "device uchar *bytes = (device uchar *)x; bytes[i] = uchar(i); x[64 + i] = i;",
        f"s[t] = i; {BARRIER} for (uint k = 32; k; k /= 2) {{ if (t < k) s[t] += s[t + k]; {BARRIER} }} x[g] = s[0];",
        "s[t] = i; simdgroup_barrier(mem_flags::mem_threadgroup); x[i] = s[t ^ 1];",
        "x[i] = i; threadgroup_barrier(mem_flags::mem_device); x[i ^ 1] += 1;",
        "for (uint k = 0; k < 3000; ++k) { if (t == k % 64) x[g] = k; threadgroup_barrier(mem_flags::mem_device); }",
        "for (uint k = 0; k < 600; ++k) { if (t % 32 == k % 32) x[i / 32] = k;"
        " simdgroup_barrier(mem_flags::mem_device); }",
    ],
)
@pytest.mark.parametrize("threads", [64, 128, 37])
def test_ordered_accesses_are_no_finding(dev: ost.Device, body: str, threads: int) -> None:
    if "s[0]" in body and threads == 37:
        threads = 64  # the tree needs a whole group
    if "^ 1" in body and threads == 37:
        threads = 36
    assert run(dev, kernel(body), WORDS, WORDS, threads=threads, group=64).findings == ()


@pytest.mark.parametrize(
    "body",
    [
        "x[0] = i;",
        "x[0] += 1;",
        "x[i / 2] = i;",
        "atomic_fetch_add_explicit(a, 1u, memory_order_relaxed);\n((device uint *)a)[0] += 1;",
        "if (t == 0) atomic_store_explicit(c, 0u, memory_order_relaxed);"
        "\natomic_fetch_add_explicit(c, 1u, memory_order_relaxed);"
        "\nx[i] = *(threadgroup uint *)c;",
        "((device uint *)a)[0] = 0; threadgroup_barrier(mem_flags::mem_device);"
        " atomic_fetch_add_explicit(a, 1u, memory_order_relaxed); x[g] = 0;",  # by another group, at any time
        "x[i] = i; threadgroup_barrier(mem_flags::mem_threadgroup); x[i ^ 32] += 1;",
        "x[i] = i; threadgroup_barrier(mem_flags::mem_device); x[(i + 64) % 128] += 1;",  # another group's
        "device uchar *bytes = (device uchar *)x; bytes[i / 2] = uchar(i);",
        "s[t] = i; simdgroup_barrier(mem_flags::mem_threadgroup); x[i] = s[t ^ 32];",
    ],
)
def test_unordered_accesses_are_a_race(dev: ost.Device, body: str) -> None:
    kinds = {finding.kind for finding in findings(dev, kernel(body), WORDS, WORDS, threads=128, group=64)}
    assert "race" in kinds
    assert kinds <= {"race", "relies on lockstep", "uninitialised"}


def test_an_argument_that_is_written_against_its_declaration_is_no_constant_any_more(dev: ost.Device) -> None:
    source = (
        HEAD
        + """kernel void k(device const uint *x, device uint *y, uint i [[thread_position_in_grid]]) {
  y[i] = x[0];
  if (i == 40) ((device uint *)x)[0] = 1;
}
"""
    )
    (finding,) = findings(dev, source, WORDS, WORDS, threads=128, group=128)
    assert finding.kind == "race"
    places = [access.place for access in finding.accesses]
    assert [place.line for place in places if place] == [5, 4]


def test_what_only_lockstep_orders_is_a_note(dev: ost.Device) -> None:
    submission = run(dev, kernel("s[t] = i;\nx[i] = s[t ^ 1];"), WORDS, WORDS, threads=64, group=64)
    (note,) = submission.findings
    assert (note.kind, note.severity) == ("relies on lockstep", "note")
    assert {access.place.line for access in note.accesses if access.place} == {8, 9}


FENCE = "atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);"
LAST_GROUP = """x[i] = i;
  threadgroup_barrier(mem_flags::mem_device);
  if (t == 0) { RELEASE
    s[0] = atomic_fetch_add_explicit(a, 1u, memory_order_relaxed); ACQUIRE }
  threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
  if (s[0] == 1) x[128 + t] = x[t] + x[64 + t];"""


@pytest.mark.parametrize(
    ("release", "acquire", "is_race"),
    [
        (FENCE, FENCE, False),
        ("", FENCE, True),
        (FENCE, "", True),
        ("", "", True),
        (FENCE.replace("scope_device", "scope_threadgroup"), FENCE, True),
        (FENCE, FENCE.replace("scope_device", "scope_threadgroup"), True),
        (FENCE.replace("seq_cst", "release"), FENCE.replace("seq_cst", "acquire"), False),
        (FENCE.replace("seq_cst", "acquire"), FENCE.replace("seq_cst", "release"), True),
        (FENCE.replace("mem_device", "mem_threadgroup"), FENCE, True),
    ],
)
def test_groups_are_ordered_by_fences_and_an_atomic(dev: ost.Device, release: str, acquire: str, is_race: bool) -> None:
    source = kernel(LAST_GROUP.replace("RELEASE", release).replace("ACQUIRE", acquire))
    if not is_race:
        assert run(dev, source, WORDS, WORDS, threads=128, group=64).findings == ()
        return
    (race,) = findings(dev, source, WORDS, WORDS, threads=128, group=64)
    assert {access.group for access in race.accesses} == {(0, 0, 0), (1, 0, 0)}


CHAIN = """if (t == 0 && g != 0) {
    while (atomic_load_explicit(a + g - 1, memory_order_relaxed) == 0) {}
    ACQUIRE
  }
  threadgroup_barrier(mem_flags::mem_device);
  x[i] = g == 0 ? i : x[i - 8] + x[t];
  threadgroup_barrier(mem_flags::mem_device);
  if (t == 0) {
    RELEASE
    atomic_store_explicit(a + g, 1u, memory_order_relaxed);
  }"""


@pytest.mark.parametrize(
    ("acquires", "releases", "unordered"),
    [("true", "true", None), ("g != 1000", "true", 1000), ("true", "g != 1000", 1001)],
)
def test_a_chain_of_many_groups_is_ordered_by_fences(
    dev: ost.Device, acquires: str, releases: str, unordered: int | None
) -> None:
    source = CHAIN.replace("ACQUIRE", f"if ({acquires}) {FENCE.replace('seq_cst', 'acquire')}")
    source = kernel(source.replace("RELEASE", f"if ({releases}) {FENCE.replace('seq_cst', 'release')}"))
    words = np.zeros(8 * 2000, np.uint32)
    if unordered is None:
        assert run(dev, source, words, words, threads=words.size, group=8).findings == ()
        return
    races = findings(dev, source, words, words, threads=words.size, group=8)
    # The group does not know the one before it, and neither it nor those after it know the first one.
    found = {(race.accesses[0].group[0], race.accesses[1].group[0], race.count) for race in races}
    assert found == {(unordered - 1, unordered, 8), (0, unordered, 8 * (2000 - unordered))}


@pytest.mark.parametrize("joined", [3, 2])
def test_a_group_knows_the_chains_that_it_acquires(dev: ost.Device, joined: int) -> None:
    source = kernel(
        f"""uint from = g < 3 ? 0 : g == 299 ? {joined} : 1;
  for (uint k = 0; k < from; ++k) {{  // three chains, of which the last group joins some
    while (atomic_load_explicit(a + (g == 299 ? 298 - k : g - 3), memory_order_relaxed) == 0) {{}}
    {FENCE}
  }}
  if (g == 299) for (uint k = 0; k < 299; ++k) x[299] += x[k];
  else x[g] = g;
  {FENCE} atomic_store_explicit(a + g, 1u, memory_order_relaxed);"""
    )
    words = np.zeros(300, np.uint32)
    if joined == 3:
        assert run(dev, source, words, words, threads=300, group=1).findings == ()
        return
    (race,) = findings(dev, source, words, words, threads=300, group=1)
    assert (race.accesses[0].group[0] % 3, race.accesses[1].group[0], race.count) == (296 % 3, 299, 99)


def test_an_older_release_that_is_read_later_does_not_replace_a_newer_one(dev: ost.Device) -> None:
    source = kernel(
        f"""if (g == 0) {{
    {FENCE} atomic_store_explicit(a, 1u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_device);
    x[0] = 1;
    {FENCE} atomic_store_explicit(a + 1, 1u, memory_order_relaxed);
  }} else {{
    while (atomic_load_explicit(a + 1, memory_order_relaxed) + atomic_load_explicit(a, memory_order_relaxed) != 2) {{}}
    {FENCE} x[1] = x[0];
  }}"""
    )
    assert run(dev, source, WORDS, WORDS, threads=2, group=1).findings == ()


def test_relaxed_exchanges_order_nothing(dev: ost.Device) -> None:
    exchange = "atomic_exchange_explicit(a, 1u, memory_order_relaxed)"
    source = LAST_GROUP.replace("atomic_fetch_add_explicit(a, 1u, memory_order_relaxed)", exchange)
    source = kernel(source.replace("RELEASE", "").replace("ACQUIRE", ""))
    (race,) = findings(dev, source, WORDS, WORDS, threads=128, group=64)
    assert {access.group for access in race.accesses} == {(0, 0, 0), (1, 0, 0)}


@pytest.mark.parametrize("command", ZIG)
def test_clang_checks_as_well(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", command)
    with ost.open_device("cpu", checked=True) as clang:
        assert run(clang, reverse(BARRIER), X, X, threads=256, group=256).findings == ()
        (race,) = findings(clang, reverse(""), X, X, threads=256, group=256)
        places = {(access.what, access.place.line) for access in race.accesses if access.place}
        assert places == {("write", 6), ("read", 8)}
        barriers = f"if (i < 3) {BARRIER}\nelse {BARRIER}"
        (divergent,) = findings(clang, kernel(barriers), WORDS, WORDS, threads=32, group=32)
        first = kernel(barriers)[: kernel(barriers).index("if (i < 3)")].count("\n") + 1
        assert [access.place.line for access in divergent.accesses if access.place] == [first, first + 1]
