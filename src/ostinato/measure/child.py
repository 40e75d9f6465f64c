"""The child process of `trials`, in which candidates run for the first time.

Its first request is {"device": NAME, "options": {…}}, which it opens; further ones are {"graph": FILE, "values": {…}},
which it runs to their end. Every answer is {"reason": TEXT}, empty if all is well.
"""

from __future__ import annotations

from typing import Any

from ..base.children import serve
from ..device import Device, open_device
from ..errors import OstinatoError
from ..graph.file import load_graph


def main() -> None:
    """Serve until the input ends."""
    device: Device | None = None

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        nonlocal device
        try:
            if device is None:
                device = open_device(request["device"], **request["options"])
            else:
                load_graph(request["graph"]).to(device).instantiate().replay(**request["values"]).wait()
        except OstinatoError as error:
            return {"reason": f"{type(error).__name__}: {error}"}
        return {"reason": ""}

    serve(answer)


if __name__ == "__main__":
    main()
