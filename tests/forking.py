"""The start of scripts that fork: a device with work in flight, and a way to do something in a child."""

from __future__ import annotations

SETUP = """
import gc, os, signal
dev = ost.open_device(DEVICE)
lib = dev.library(KERNELS)
x = dev.zeros(1, np.uint32)
enc = dev.command_encoder()
enc.dispatch(lib["spin"], x, SLOW_STEPS, threads=1)
running = enc.commit()
half = dev.command_encoder()
half.dispatch(lib["spin"], x, 10, threads=1)

def in_child(work):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)  # a hang kills the child, and the parent sees it
        work()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""
