"""A store behind a URL: on a server that speaks S3, started for the test."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet_recordings import Facts, Template
from ostinato.errors import FleetError
from ostinato.profiling import fleet
from ostinato.profiling.fleet.places import place, without_secrets

pytest.importorskip("pyarrow")
for package in ("duckdb", "s3fs", "moto"):
    pytest.importorskip(package, reason="stores behind URLs need s3fs, and this test moto's server: make test-fleet")

SECRET = "hunter2hunter2"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    # Into a file: the server logs every request, and would wait for a reader of a pipe.
    log = tmp_path_factory.mktemp("server") / "log"
    with log.open("w") as output:
        process = subprocess.Popen([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"], stderr=output)
    try:
        while (found := re.search(r"http://127.0.0.1:\d+", log.read_text())) is None:
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        yield found[0]
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "me")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    import s3fs

    name = f"fleet-{abs(hash(request.node.name)) % 10**8}"
    s3fs.S3FileSystem(skip_instance_cache=True).mkdir(name)
    return f"s3://{name}/a/store"


def make(folder: Path, count: int) -> list[Path]:
    template = Template(["add", "mul"], 10)
    return [
        template.write(folder / f"{number}.ostinato", Facts(pid=number + 1), template.steady(1e4, number))
        for number in range(count)
    ]


def test_a_store_on_s3_is_added_to_merged_and_reported_on(tmp_path: Path, bucket: str) -> None:
    paths = make(tmp_path, 6)
    with fleet.engine("local") as engine:
        for path in paths:
            assert fleet.add([path], bucket, engine).recordings == 1
        assert fleet.add(paths, bucket, engine).known == 6
        done = fleet.compact(bucket, engine)
        assert (done.before, done.after) == (18, 3)
        report = fleet.report(bucket, engine)
    assert (report.recordings, report.samples) == (6, 6 * 20)
    answer = fleet.query(fleet.open_store(bucket), "SELECT count(*) FROM samples WHERE kernel = 'mul'")
    assert answer.rows == [(60,)]
    assert SECRET not in fleet.as_json(report)


def test_of_two_who_make_a_file_one_succeeds(bucket: str) -> None:
    where = place(bucket)
    assert where.create("log/000000000001.json", b"{}")
    assert not where.create("log/000000000001.json", b"[]")
    assert where.read("log/000000000001.json") == b"{}"
    assert where.names("log") == ["000000000001.json"]
    where.remove("log/000000000001.json")
    assert where.names("log") == []


WRITER = """
import sys
from ostinato.profiling import fleet
if __name__ == "__main__":
    with fleet.engine("local") as engine:
        for path in sys.argv[2:]:
            fleet.add([path], sys.argv[1], engine)
"""


def test_writers_at_once_add_every_recording_once(tmp_path: Path, bucket: str) -> None:
    paths = make(tmp_path, 5)
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, bucket, *map(str, paths[number:])], env=os.environ)
        for number in range(3)
    ]
    assert [writer.wait(120) for writer in writers] == [0, 0, 0]
    answer = fleet.query(fleet.open_store(bucket), "SELECT pid FROM runs ORDER BY pid")
    assert answer.rows == [(number,) for number in range(1, 6)]


def test_credentials_are_in_no_error(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.replace("://", f"://me:{SECRET}@"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "me")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with pytest.raises(FleetError) as raised:
        fleet.open_store(f"s3://me:{SECRET}@nowhere/store?token={SECRET}")
    assert SECRET not in str(raised.value)
    assert raised.value.__cause__ is None


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"s3://me:{SECRET}@bucket/x", "s3://(hidden)@bucket/x"),
        (f"PUT https://h/x?X-Amz-Signature={SECRET}&a=1", "PUT https://h/x?X-Amz-Signature=(hidden)&a=1"),
        (f"aws_secret_access_key={SECRET}", "aws_secret_access_key=(hidden)"),
        (f'{{"token": "{SECRET}"}}', '{"token": "(hidden)"}'),
        ("kernel matvec took 3 ms", "kernel matvec took 3 ms"),
    ],
)
def test_what_looks_like_a_secret_is_hidden(text: str, shown: str) -> None:
    assert without_secrets(text) == shown
