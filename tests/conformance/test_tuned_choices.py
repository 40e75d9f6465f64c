"""Products with every launch that tuning may choose: the same bits, or the same numbers where additions change order.

Every test runs both kernels that there are, the one for CPUs and the one for GPUs, on the device at hand.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import ostinato as ost
from op_cases import values
from ostinato import ops
from ostinato.runtime.tuned import Site

pytestmark = pytest.mark.usefixtures("either_kernel")
ROWS = 40
LONG, SHORT = 4160, 1280
"""Rows with several rounds of loads, which eight simdgroups share; and rows that groups of any size can compute."""


class Trial:
    """Answers with one choice, and keeps the sites that it was asked about."""

    description = ""

    def __init__(self, choice: Mapping[str, int] | None) -> None:
        self.choice_for_all = choice
        self.sites: list[Site] = []

    def choice(self, site: Site) -> Mapping[str, int] | None:
        self.sites.append(site)
        return self.choice_for_all


@contextmanager
def trial(device: ost.Device, choice: Mapping[str, int] | None) -> Iterator[Trial]:
    answers = Trial(choice)
    device._queue.tuned = answers
    try:
        yield answers
    finally:
        device._queue.tuned = None


def cases(
    dev: ost.Device, seed: int = 2, width: int = LONG
) -> dict[str, tuple[ost.Buffer, Callable[[ost.CommandEncoder], None]]]:
    """Operations by name: their output, and how they are encoded."""
    x, norm = (dev.array(values((width,), np.dtype("f4"), seed + number)) for number in (0, 100))
    weight = dev.array(values((2, ROWS, width), np.dtype("f4"), 3))
    tokens = dev.array(values((5, width), np.dtype("f4"), 4))
    blocks = dev.array(np.random.default_rng(5).integers(0, 60, (ROWS, width // 32 * 18), np.uint8))
    indices = dev.array(np.array([1, 0, 1], np.uint32))
    one, three, five = (dev.zeros(shape, "f4") for shape in ((ROWS,), (3, ROWS), (5, ROWS)))
    return {
        "matvec": (one, lambda enc: ops.matvec(enc, weight[0], x, one)),
        "norm_matvec": (one, lambda enc: ops.norm_matvec(enc, weight[0], x, norm, one)),
        "gated_matvec": (one, lambda enc: ops.gated_matvec(enc, weight, x, one)),
        "norm_gated_matvec": (one, lambda enc: ops.norm_gated_matvec(enc, weight, x, norm, one)),
        "expert_matvec": (three, lambda enc: ops.expert_matvec(enc, weight, x, indices, three)),
        "matmul": (five, lambda enc: ops.matmul(enc, weight[0], tokens, five)),
        "matvec_blocks": (one, lambda enc: ops.matvec_blocks(enc, ops.FORMATS["Q4_0"], blocks, x, one)),
    }


NAMES = ("matvec", "norm_matvec", "gated_matvec", "norm_gated_matvec", "expert_matvec", "matmul", "matvec_blocks")


def choices(site: Site, sums: bool) -> Iterator[dict[str, int]]:
    for combination in itertools.product(*site.values.values()):
        choice = dict(zip(site.values, combination, strict=True))
        changed = {name for name in choice if choice[name] != site.defaults[name]}
        if site.fits(choice) and bool(changed & site.changes_sums) is sums:
            yield choice


def result(dev: ost.Device, case: Any, choice: Mapping[str, int] | None) -> tuple[np.ndarray, Trial]:
    out, encode = case
    out.write(np.zeros(out.shape, out.dtype))
    with trial(dev, choice) as answers:
        encoder = dev.command_encoder()
        encode(encoder)
        encoder.commit_and_wait()
    return out.numpy().copy(), answers


@pytest.mark.parametrize("name", NAMES)
def test_choices_that_keep_the_order_of_additions_keep_every_bit(dev: ost.Device, name: str) -> None:
    # A norm is one number for all of x, and the sums of many x round to the same in any order; not those of 6.
    for seed, width in ((2, LONG), (6, SHORT)):
        case = cases(dev, seed, width)[name]
        expected, answers = result(dev, case, None)
        for site in answers.sites:
            for choice in choices(site, sums=False):
                assert result(dev, case, choice)[0].tobytes() == expected.tobytes(), choice


@pytest.mark.parametrize("name", NAMES)
def test_choices_that_change_the_order_of_additions_give_the_same_numbers(dev: ost.Device, name: str) -> None:
    case = cases(dev)[name]
    expected, answers = result(dev, case, None)
    for site in answers.sites:
        for choice in itertools.islice(choices(site, sums=True), 0, None, 5):
            near = result(dev, case, choice)[0]
            assert np.allclose(near, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max()), choice


def test_the_rules_of_a_product_are_among_its_choices(dev: ost.Device) -> None:
    for name, case in cases(dev).items():
        for site in result(dev, case, None)[1].sites:
            assert site.fits(site.defaults), name
