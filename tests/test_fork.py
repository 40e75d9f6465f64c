"""A forked child never hangs on, and never uses, a device of its parent."""

from __future__ import annotations

import os

import pytest

from forking import SETUP
from scripting import Script

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def test_a_fault_in_a_childs_own_device_is_an_error_and_the_child_lives(script: Script) -> None:
    result = script(
        SETUP
        + """
def work():
    mine = ost.open_device("cpu")
    ones, zeros = mine.array(np.ones(256, np.int32)), mine.zeros(256, np.int32)
    enc = mine.command_encoder()
    enc.dispatch(mine.library(KERNELS)["divide"], ones, zeros, mine.zeros(256, np.int32), threads=256)
    try:
        enc.commit_and_wait()
    except ost.KernelFault as fault:
        os._exit(0 if "division by zero" in str(fault) else 1)
    os._exit(2)

running.wait()
print([in_child(work) for _ in range(3)])
half.commit()
"""
    )
    assert result.stdout.splitlines() == ["[0, 0, 0]"], result.stderr


def test_a_child_may_open_a_device_of_its_own(script: Script) -> None:
    result = script(
        SETUP
        + """
def work():
    mine = ost.open_device("cpu")
    y = mine.zeros(64, np.float32)
    enc = mine.command_encoder()
    enc.dispatch(mine.library(KERNELS)["bump"], y, threads=64)
    enc.commit_and_wait()
    os._exit(0 if (y.numpy() == 1).all() else 1)

print(in_child(work))
half.commit()
"""
    )
    assert result.stdout.splitlines() == ["0"], result.stderr
