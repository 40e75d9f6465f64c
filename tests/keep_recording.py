"""Makes the recording of this version that is kept beside the tests, and what a report says of it.

    python tests/keep_recording.py

Run it once when the version of recordings goes up, and add both files to the repository. Files of older versions stay
as they are: every later version must read them, and say of them what was said then.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest import mock

from ostinato.profiling.analyse import summarise
from ostinato.profiling.recording import VERSION, Writer, open_recording
from ostinato.profiling.report import as_dict
from recordings import fill

KEPT = Path(__file__).parent / "kept_recordings"
_REPORTED = {
    "processes": ("name", "program", "began", "duration_ns", "host", "pid", "rank", "world_size", "cores", "load"),
    "devices": ("name", "backend", "description", "driver", "clock_uncertainty_ns", "copy_bytes_per_s", "flops_per_s"),
    "kernels": ("name", "count", "dispatched", "total_ns", "place"),
}


def expectations(path: Path) -> dict[str, Any]:
    """What a report says of a recording, as far as later versions may not change it."""
    with open_recording(path) as recording:
        report = as_dict(summarise(recording))
        plan = int(recording.plans.id[0])
        return {
            "version": recording.version,
            "meta": report["meta"],
            **{
                part: [{name: row[name] for name in names} for row in report[part]] for part, names in _REPORTED.items()
            },
            "regions": [region["name"] for region in report["regions"]],
            "drops": report["drops"]["where"],
            "edges": recording.edges(plan).tolist(),
            "samples": {name: column.tolist() for name, column in recording.samples().by_name().items()},
        }


def main() -> None:
    """Write the recording, small, and the expectations."""
    KEPT.mkdir(exist_ok=True)
    path = KEPT / f"version-{VERSION}.ostinato"
    path.unlink(missing_ok=True)
    # What a recording says of its machine is nobody's business.
    facts = {"host": "host", "boot": "boot", "time_namespace": "", "rank": 0, "local_rank": None, "world_size": 1}
    with (
        mock.patch("ostinato.profiling.recording.provenance.of_process", return_value=facts),
        mock.patch(
            "ostinato.profiling.recording.provenance.start_facts", return_value=[("program", "model.py --tokens 3")]
        ),
        mock.patch("ostinato.profiling.recording.provenance.git_revision", return_value=None),
        mock.patch("threading.get_ident", return_value=1),
        Writer(path) as writer,
    ):
        fill(writer)
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE processes SET pid = 1")
        database.commit()
        database.execute("PRAGMA page_size = 512")
        database.execute("VACUUM")
    path.with_suffix(".json").write_text(json.dumps(expectations(path), indent=1) + "\n")


if __name__ == "__main__":
    main()
