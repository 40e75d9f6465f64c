"""Kernels split at their barriers: which are, which are not, and that neither changes a result."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

import ostinato
from barrier_bodies import FIBERS, SPLIT, many, source
from launching import launch
from ostinato.msl import parse


def is_split(text: str) -> bool:
    return "__OST_THREADS_BEGIN(__ost_group)" in parse(text).translate().text


@pytest.mark.parametrize("name", SPLIT)
def test_threads_run_as_loops_between_uniform_barriers(name: str) -> None:
    assert is_split(source(SPLIT[name][0]))


@pytest.mark.parametrize("name", FIBERS)
def test_threads_run_as_fibers_where_the_flow_may_differ(name: str) -> None:
    assert not is_split(source(FIBERS[name][0]))


@pytest.mark.usefixtures("without_clang")
def test_what_is_split_computes_what_its_source_says(dev: ostinato.Device) -> None:
    """Where there is a clang, such kernels run as vectors."""
    library = dev.library(many([body for body, _ in SPLIT.values()]))
    for number, (name, (_, expected)) in enumerate(SPLIT.items()):
        kernel = library[f"k{number}"]
        assert kernel.execution.way == "split"
        values = np.random.default_rng(number).integers(-50, 50, (3, 64)).astype(np.float32)
        got = launch(dev, kernel, values.ravel(), np.zeros(192, np.float32), groups=3, group_size=64)
        wanted = np.concatenate([np.asarray(expected(row), np.float32) for row in values])
        np.testing.assert_array_equal(np.asarray(got).ravel(), wanted, err_msg=name)


@pytest.fixture
def without_clang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ostinato.native.toolchain.find_clang", lambda: None)


def random_body(random: Random) -> str:
    """Statements over a few variables, with barriers where all threads come by and no races."""

    def number(shared: bool = True) -> str:
        choices = ["a", "c", "x", "float(b % 50)", "float(i)", "float(n)", "2.0f"]
        return random.choice([*choices, "t[(i + 1) % n]", "t[n - 1 - i]"] if shared else choices)

    def count() -> str:
        return random.choice(["b", "n", "i", "3u", "b * 2 + i", "n - i % 8"])

    def assignment() -> str:
        if random.random() < 0.3:
            return f"b {random.choice(['=', '+='])} {count()};"
        return f"{random.choice('ac')} {random.choice(['=', '+=', '-='])} {number()} * 0.5f + {number()};"

    def statement(depth: int, may_meet: bool) -> str:
        choice = random.randrange(12)
        if choice == 0:
            return "bump(b, i % 3);"
        if choice == 1:
            return f"{{ thread float &ref = {random.choice('ac')}; ref += {number()}; }}"
        if choice == 2 and depth < 2:
            return f"if (i % {random.randint(2, 5)} == 0) {{ {statement(depth + 1, False)} }} else {assignment()}"
        if choice == 3 and depth < 2:
            return (
                f"if (n > {random.choice([10, 100])}) {{ {statement(depth + 1, may_meet)} }} else {{ {assignment()} }}"
            )
        if choice in (4, 5) and depth < 2:
            limit = random.choice(["3", "n / 16", "b % 4 + 1", "i % 3"])
            inner = " ".join(statement(depth + 1, may_meet and limit in ("3", "n / 16")) for _ in range(2))
            return f"for (uint k{depth} = 0; k{depth} < {limit}; ++k{depth}) {{ {inner} }}"
        if choice == 6 and depth < 2:
            return f"for (uint q = i; q < n * 2; q += n) {{ {random.choice('ac')} += float(q % 7); {assignment()} }}"
        if choice > 8 and may_meet:
            return f"BARRIER t[i] = {number(shared=False)}; BARRIER"
        return assignment()

    lines = [statement(0, True) for _ in range(random.randint(4, 9))]
    start = "t[i] = x; BARRIER float a = x; uint b = n; float c = 1;"
    return f"{start} {' '.join(lines)} r = a + float(b % 1000) + c;"


@pytest.mark.usefixtures("without_clang")
@pytest.mark.parametrize("seed", range(2))
def test_splitting_never_changes_a_result(dev: ostinato.Device, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Random bodies that can be split, run so and as fibers: bit for bit the same."""
    random = Random(seed)
    bodies = [body for body in (random_body(random) for _ in range(60)) if is_split(source(body))]
    assert len(bodies) >= 8
    values = np.random.default_rng(seed).integers(-50, 50, 128).astype(np.float32)

    def results(library: ostinato.Library) -> list[np.ndarray]:
        kernels = [library[f"k{n}"] for n in range(len(bodies))]
        return [launch(dev, kernel, values, np.zeros(128, np.float32), groups=2, group_size=64) for kernel in kernels]

    split = dev.library(many(bodies))
    assert {split[f"k{n}"].execution.way for n in range(len(bodies))} == {"split"}
    monkeypatch.setattr("ostinato.msl.translate.split_at_barriers", lambda *_: "a test wants fibers")
    fibers = dev.library(many(bodies) + "\n")
    for body, one, other in zip(bodies, results(split), results(fibers), strict=True):
        np.testing.assert_array_equal(one, other, err_msg=body)
