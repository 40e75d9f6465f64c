"""How long the front end takes for 1 MB of one token or bracket, and of other things that repeat.

Prints processor seconds for reading a source (`parse`), and for its translation where it has one. Reading 1 MB is to
take less than 3 s on an idle machine, whatever it is made of. `python bench/parsing.py [BYTES] [WORDS…]` takes another
size, and only the rows whose names hold one of the words.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import ostinato as ost
from ostinato import msl

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "msl"))

from growing_sources import SOURCES

LIMIT_S = 3.0


def main() -> int:
    """The table; fails when a row is over the limit."""
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    words = sys.argv[2:]
    slow = []
    print(f"{'1 source of ' + f'{size:,} bytes':42} {'parse s':>8} {'cpu s':>8} {'cuda s':>8}  outcome")
    for name, make in SOURCES.items():
        if words and not any(word in name for word in words):
            continue
        seconds, outcome = _times(make(size))
        if seconds[0] > LIMIT_S:
            slow.append(name)
        row = " ".join(f"{one:8.2f}" for one in seconds).ljust(26)
        print(f"{name:42} {row}  {outcome}", flush=True)
    print(f"over {LIMIT_S:.0f} s to parse: {', '.join(slow) or 'none'}")
    return bool(slow)


def _times(source: str) -> tuple[list[float], str]:
    """Processor seconds of parsing and of both translations, as far as it came; and how it ended."""
    seconds = []
    began = time.process_time()
    try:
        module = msl.parse(source)
        seconds.append(time.process_time() - began)
        for target in ("cpu", "cuda"):
            began = time.process_time()
            module.translate(target, constants={constant.name: 1 for constant in module.constants})
            seconds.append(time.process_time() - began)
    except ost.OstinatoError as error:
        seconds.append(time.process_time() - began)
        return seconds, " ".join(str(error).split())[:60]
    return seconds, "ok"


if __name__ == "__main__":
    sys.exit(main())
