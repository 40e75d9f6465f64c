"""The tables of a recording, version 3, and the sizes beyond which a file is not believed.

`docs/recording.md` explains every column. The text of these statements is part of the format: a reader compares what a
file's schema says with what stands here, and refuses a file in which any of it differs.
"""

from __future__ import annotations

from collections.abc import Mapping

APPLICATION_ID = 0x4F535449
"""'OSTI', in the header of the file."""
VERSION = 3

SUFFIX = ".ostinato"

MAX_FILE_BYTES = 1 << 36
MAX_TEXT_CHARACTERS = 1 << 16
MAX_CHUNK_SAMPLES = 1 << 20
MAX_CHUNK_BYTES = 1 << 26
MAX_PLAN_NODES = 1 << 21
MAX_PLAN_EDGES = 1 << 24
MAX_BLOB_BYTES = 8 * MAX_PLAN_EDGES
MAX_TIME_NS = 1 << 62
"""Times lie in [0, MAX_TIME_NS), so that no sum or difference of two of them overflows."""

TABLES: Mapping[str, str] = {
    "processes": """CREATE TABLE processes(
 id INTEGER PRIMARY KEY, pid INTEGER NOT NULL, clock_offset_ns INTEGER NOT NULL,
 clock_uncertainty_ns INTEGER NOT NULL, host TEXT NOT NULL, rank INTEGER, local_rank INTEGER, world_size INTEGER)""",
    "meta": """CREATE TABLE meta(
 process INTEGER NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY(process, key)) WITHOUT ROWID""",
    "strings": "CREATE TABLE strings(id INTEGER PRIMARY KEY, text TEXT NOT NULL)",
    "threads": """CREATE TABLE threads(
 process INTEGER NOT NULL, thread INTEGER NOT NULL, name INTEGER NOT NULL,
 PRIMARY KEY(process, thread)) WITHOUT ROWID""",
    "devices": """CREATE TABLE devices(
 id INTEGER PRIMARY KEY, process INTEGER NOT NULL, name INTEGER NOT NULL, backend INTEGER NOT NULL,
 description INTEGER NOT NULL, sampling INTEGER NOT NULL, clock_uncertainty_ns INTEGER NOT NULL,
 copy_bytes_per_s REAL, flops_per_s REAL, timestamp_cost_ns REAL, dispatch_cost_ns REAL)""",
    "device_details": """CREATE TABLE device_details(
 device INTEGER NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY(device, key)) WITHOUT ROWID""",
    "commands": """CREATE TABLE commands(
 id INTEGER PRIMARY KEY, kind TEXT NOT NULL, kernel INTEGER NOT NULL, label INTEGER, specialisation INTEGER NOT NULL,
 op_kind INTEGER, threads_x INTEGER NOT NULL, threads_y INTEGER NOT NULL, threads_z INTEGER NOT NULL,
 group_x INTEGER NOT NULL, group_y INTEGER NOT NULL, group_z INTEGER NOT NULL, groups INTEGER NOT NULL,
 bytes_read INTEGER NOT NULL, bytes_written INTEGER NOT NULL, bytes_declared INTEGER NOT NULL, flops INTEGER,
 place INTEGER, origin INTEGER, source INTEGER, digest INTEGER)""",
    "command_terms": """CREATE TABLE command_terms(
 command INTEGER NOT NULL, amount INTEGER NOT NULL, number INTEGER NOT NULL, param INTEGER NOT NULL,
 factor INTEGER NOT NULL, plus INTEGER NOT NULL, upto INTEGER, PRIMARY KEY(command, amount, number)) WITHOUT ROWID""",
    "plans": """CREATE TABLE plans(
 id INTEGER PRIMARY KEY, device INTEGER NOT NULL, nodes INTEGER NOT NULL, edges INTEGER NOT NULL, crc INTEGER NOT NULL,
 node_commands BLOB NOT NULL, edge_pairs BLOB NOT NULL)""",
    "submissions": """CREATE TABLE submissions(
 id INTEGER PRIMARY KEY, process INTEGER NOT NULL, device INTEGER NOT NULL, plan INTEGER, ordinal INTEGER NOT NULL,
 label INTEGER, region INTEGER, replay INTEGER NOT NULL, unsampled_probe INTEGER NOT NULL, level INTEGER NOT NULL,
 encode_begin_ns INTEGER, encode_end_ns INTEGER, commit_begin_ns INTEGER, commit_end_ns INTEGER,
 start_ns INTEGER, end_ns INTEGER, status INTEGER NOT NULL, reason INTEGER, error INTEGER, thread INTEGER NOT NULL,
 worked_ns INTEGER, lost_ns INTEGER, late_ns INTEGER, joined INTEGER)""",
    "submission_values": """CREATE TABLE submission_values(
 submission INTEGER NOT NULL, number INTEGER NOT NULL, param INTEGER NOT NULL, value INTEGER NOT NULL,
 PRIMARY KEY(submission, number)) WITHOUT ROWID""",
    "regions": """CREATE TABLE regions(
 id INTEGER PRIMARY KEY, process INTEGER NOT NULL, name INTEGER NOT NULL, begin_ns INTEGER NOT NULL, end_ns INTEGER,
 thread INTEGER NOT NULL, parent INTEGER)""",
    "host_spans": """CREATE TABLE host_spans(
 id INTEGER PRIMARY KEY, process INTEGER NOT NULL, kind INTEGER NOT NULL, name INTEGER, begin_ns INTEGER NOT NULL,
 end_ns INTEGER NOT NULL, thread INTEGER NOT NULL, submission INTEGER, region INTEGER)""",
    "drops": """CREATE TABLE drops(
 process INTEGER NOT NULL, place TEXT NOT NULL, count INTEGER NOT NULL, since_ns INTEGER NOT NULL,
 PRIMARY KEY(process, place)) WITHOUT ROWID""",
    "unwritten": "CREATE TABLE unwritten(process INTEGER PRIMARY KEY, note TEXT NOT NULL)",
    "sample_chunks": """CREATE TABLE sample_chunks(
 id INTEGER PRIMARY KEY, submission_first INTEGER NOT NULL, submission_last INTEGER NOT NULL, runs INTEGER NOT NULL,
 samples INTEGER NOT NULL, crc INTEGER NOT NULL, data BLOB NOT NULL)""",
    "plan_nodes": """CREATE TABLE plan_nodes(
 plan INTEGER NOT NULL, node INTEGER NOT NULL, command INTEGER NOT NULL, PRIMARY KEY(plan, node)) WITHOUT ROWID""",
    "plan_edges": """CREATE TABLE plan_edges(
 plan INTEGER NOT NULL, before INTEGER NOT NULL, after INTEGER NOT NULL)""",
    "dispatches": """CREATE TABLE dispatches(
 submission INTEGER NOT NULL, node INTEGER NOT NULL, start_ns INTEGER, end_ns INTEGER, status INTEGER NOT NULL)""",
}


def _amount(name: str, number: int) -> str:
    """An amount of a dispatch, with what its submission's values make of it; NULL if one of them is missing."""
    return f"""c.{name} + (SELECT CASE WHEN count(*) = count(v.value)
 THEN CAST(total(t.factor * max(min(v.value + t.plus, ifnull(t.upto, v.value + t.plus)), 0)) AS INTEGER) END
 FROM command_terms t LEFT JOIN submission_values v ON v.submission = d.submission AND v.param = t.param
 WHERE t.command = c.id AND t.amount = {number}) AS {name}"""


VIEWS: Mapping[str, str] = {
    "dispatch_report": f"""CREATE VIEW dispatch_report AS
 SELECT s.process, v.text AS device, d.submission, s.ordinal, l.text AS submission_label, d.node, c.kind,
 n.text AS label, k.text AS kernel, x.text AS specialisation,
 f.text AS source, h.text AS kernel_digest, o.text AS op_kind,
 c.threads_x, c.threads_y, c.threads_z, c.group_x, c.group_y, c.group_z,
 {_amount("bytes_read", 0)},
 {_amount("bytes_written", 1)},
 c.bytes_declared, {_amount("flops", 2)},
 d.start_ns, d.end_ns, d.end_ns - d.start_ns AS duration_ns, w.text AS place,
 CASE d.status WHEN 0 THEN 'measured' WHEN 1 THEN 'bounded' ELSE 'unavailable' END AS status
 FROM dispatches d JOIN submissions s ON s.id = d.submission
 JOIN plan_nodes p ON p.plan = s.plan AND p.node = d.node JOIN commands c ON c.id = p.command
 LEFT JOIN strings w ON w.id = c.place
 JOIN devices e ON e.id = s.device JOIN strings v ON v.id = e.name JOIN strings k ON k.id = c.kernel
 JOIN strings x ON x.id = c.specialisation LEFT JOIN strings l ON l.id = s.label
 LEFT JOIN strings n ON n.id = c.label LEFT JOIN strings o ON o.id = c.op_kind
 LEFT JOIN strings f ON f.id = c.source LEFT JOIN strings h ON h.id = c.digest""",
}

EXPANDED = ("plan_nodes", "plan_edges", "dispatches")
"""The tables that repeat, for other tools, what blobs hold."""
