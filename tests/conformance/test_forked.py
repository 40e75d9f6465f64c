"""A forked child never hangs on, and never uses, a device of its parent."""

from __future__ import annotations

import os

import pytest

from forking import SETUP
from scripting import Script

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def test_every_use_of_a_parents_device_is_a_typed_error(script: Script) -> None:
    result = script(
        SETUP
        + """
def work():
    uses = {
        "encoder": dev.command_encoder, "empty": lambda: dev.empty(1, np.float32),
        "library": lambda: dev.library(KERNELS),
        "dispatch": lambda: half.dispatch(lib["spin"], x, 10, threads=1), "commit": half.commit, "numpy": x.numpy,
        "write": lambda: x.write([1]), "wait": running.wait, "done": lambda: running.done, "close": dev.close,
        "pool": lambda: ost.BufferPool(dev).take(1, np.float32),
    }
    bad = []
    for name, use in uses.items():
        try:
            use()
            bad.append(name)
        except ost.ForkedDevice:
            pass
    os._exit(0 if not bad else (print("no error:", bad, flush=True), 1)[1])

print(in_child(work))
half.commit()
print(running.wait(), x.numpy()[0] & 1)
"""
    )
    assert result.stdout.splitlines() == ["0", "True 1"], result.stderr


def test_a_child_that_ends_normally_does_not_hang(script: Script) -> None:
    result = script(
        SETUP
        + """
def work():
    global dev, lib, x, enc, running, half
    del dev, lib, x, enc, running, half
    gc.collect()
    sys.exit(7)

code = None
pid = os.fork()
if pid == 0:
    signal.alarm(30)
    work()
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
half.commit()
print(running.wait())
"""
    )
    assert result.stdout.splitlines() == ["7", "True"], result.stderr
    assert "dropped" not in result.stderr
