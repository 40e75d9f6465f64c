"""The child process of `isolation`: runs dispatches that are described on its standard input, one per line.

Started as `python -m ostinato.testing.isolated_runs DEVICE`. It ends with its input, so also with its parent.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from ..device import Device, open_device
from ..errors import OstinatoError
from ..runtime.library import Library

_Libraries = dict[str, Library]


def main(name: str) -> None:
    """Serve until the input ends."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what kernels, drivers and compilers print is no reply
    libraries: _Libraries = {}
    device = None
    for line in sys.stdin:
        try:
            device = device or open_device(name)
            reply = _reply(device, libraries, json.loads(line))
        except OstinatoError as error:
            usable = device is not None and device._queue.usable and not device.capabilities.after_fault
            reply = {"outcome": "error", "type": type(error).__name__, "message": str(error), "usable": usable}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


def _reply(device: Device, libraries: _Libraries, job: dict[str, Any]) -> dict[str, Any]:
    folder = Path(job["folder"])
    key = json.dumps([job[part] for part in ("source", "constants", "cuda")])
    if key not in libraries:
        libraries[key] = device.library(job["source"], dict(job["constants"]), cuda=job["cuda"])
    arguments: dict[int, Any] = {int(index): bytes.fromhex(data) for index, data in job["inline"].items()}
    for index in job["buffers"]:
        arguments[index] = device.array(np.fromfile(folder / str(index), np.uint8))
    encoder = device.command_encoder()
    encoder.dispatch(
        libraries[key][job["kernel"]],
        arguments,
        threads=job["threads"],
        group_size=job["group_size"],
        shared={int(index): nbytes for index, nbytes in job["shared"].items()},
    )
    if not encoder.commit().wait(job["timeout_s"]):
        return {"outcome": "timeout"}
    for index in job["buffers"]:
        (folder / str(index)).write_bytes(arguments[index].numpy().tobytes())
    return {"outcome": "done"}


if __name__ == "__main__":
    main(sys.argv[1])
