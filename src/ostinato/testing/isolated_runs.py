"""The child process of `isolation`: runs the dispatches that its requests describe, all on one device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from ..base.children import serve
from ..device import Device, open_device
from ..errors import OstinatoError
from ..runtime.library import Library

_Libraries = dict[str, Library]


def main() -> None:
    """Serve until the input ends."""
    libraries: _Libraries = {}
    device: Device | None = None

    def answer(job: dict[str, Any]) -> dict[str, Any]:
        nonlocal device
        try:
            device = device or open_device(job["device"])
            return _reply(device, libraries, job)
        except OstinatoError as error:
            usable = device is not None and device._queue.usable and not device.capabilities.after_fault
            return {"outcome": "error", "type": type(error).__name__, "message": str(error), "usable": usable}

    serve(answer)


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
    main()
