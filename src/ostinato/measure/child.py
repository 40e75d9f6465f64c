"""The process in which candidates run for the first time: one that crashes or never ends takes only this process along.

It opens the device named by its argument and answers {"reason": ""}. Then it reads requests, a line of JSON each, such
as {"graph": FILE, "values": {…}}, and answers each in the same way once the graph has run to its end. It ends after a
failure, since the device may not be usable any more, and with its input.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TextIO

from ..device import open_device
from ..errors import OstinatoError
from ..graph.file import load_graph


def main() -> None:
    """Serve requests from standard input."""
    # What the process prints by itself must not look like an answer.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        device = open_device(sys.argv[1])
    except OstinatoError as error:
        _answer(answers, str(error))
        return
    _answer(answers, "")
    for line in sys.stdin:
        request = json.loads(line)
        try:
            graph = load_graph(request["graph"]).to(device)
            graph.instantiate().replay(**request["values"]).wait()
        except OstinatoError as error:
            _answer(answers, f"{type(error).__name__}: {error}")
            # Closing a device that was lost, or still runs something, may take as long as the candidate.
            answers.flush()
            os._exit(0)
        _answer(answers, "")
    device.close()


def _answer(answers: TextIO, reason: str) -> None:
    answers.write(json.dumps({"reason": reason}) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
