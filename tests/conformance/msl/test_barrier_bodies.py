"""Barriers in every place that a body may have them, executed."""

from __future__ import annotations

import numpy as np
import pytest

import ostinato
from barrier_bodies import CASES, UNDEFINED, many
from launching import launch


@pytest.fixture(scope="module")
def library(dev: ostinato.Device) -> ostinato.Library:
    return dev.library(many([body for body, _ in CASES.values()]))


@pytest.mark.parametrize("name", CASES)
def test_every_way_gives_the_same_answer(dev: ostinato.Device, library: ostinato.Library, name: str) -> None:
    if name in UNDEFINED and dev.capabilities.backend != "cpu":
        pytest.skip("undefined in Metal; only the CPU's fibers give it a meaning")
    number = list(CASES).index(name)
    values = np.random.default_rng(number).integers(-50, 50, (3, 64)).astype(np.float32)
    got = launch(dev, library[f"k{number}"], values.ravel(), np.zeros(192, np.float32), groups=3, group_size=64)
    expected = np.concatenate([np.asarray(CASES[name][1](row), np.float32) for row in values])
    np.testing.assert_array_equal(np.asarray(got).ravel(), expected)
