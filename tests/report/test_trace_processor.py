"""Traces in Perfetto's own trace processor, on machines that have one: PERFETTO_TRACE_PROCESSOR names the program."""

from __future__ import annotations

import csv
import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from sampled import decoder
from trace_format import validate

from ostinato.profiling.report import write_trace

PROCESSOR = os.environ.get("PERFETTO_TRACE_PROCESSOR")
QUERY = """
SELECT 'slice ' || category AS what, count(*) AS number FROM slice GROUP BY category
UNION ALL SELECT 'flows', count(*) FROM flow
UNION ALL SELECT 'counter ' || t.name, count(*) FROM counter JOIN process_counter_track t ON t.id = track_id GROUP BY 1
UNION ALL SELECT 'deepest', max(depth) FROM slice
UNION ALL SELECT 'trouble: ' || name, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0;
"""


@pytest.mark.skipif(not PROCESSOR, reason="PERFETTO_TRACE_PROCESSOR does not name a trace processor")
def test_the_trace_processor_reads_every_slice_flow_and_counter(tmp_path: Path) -> None:
    trace, query = tmp_path / "trace.json", tmp_path / "query.sql"
    write_trace(decoder().columns(), trace)
    query.write_text(QUERY)
    done = subprocess.run(
        [str(PROCESSOR), "-q", str(query), str(trace)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    counted = {
        row[0]: int(row[1]) for row in csv.reader(done.stdout.splitlines()) if len(row) == 2 and row[1].isdigit()
    }
    events = validate(trace.read_text())
    expected = Counter(f"slice {event['cat']}" for event in events if event["ph"] == "X")
    for event in events:
        if event["ph"] == "C":
            expected.update(f"counter {event['name']} {series}" for series in event["args"])
    expected["flows"] = sum(event["ph"] == "s" for event in events)
    expected["deepest"] = 3  # decode / layer / mlp / the dispatch
    assert counted == expected
