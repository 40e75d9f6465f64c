"""Live figures for OpenTelemetry: what a stand-in for a collector receives from a running program."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ostinato.backends.protocol import Level
from ostinato.profiling.export import figures
from ostinato.profiling.export.figures import Figures
from scripting import Script

for package in ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http", "opentelemetry.exporter.prometheus"):
    pytest.importorskip(package, reason="exports need the extra otel: make test-fleet")

PROGRAM = """
    import time, urllib.request
    dev = ost.open_device("cpu")
    bump = dev.library(KERNELS)["bump"]
    x = dev.zeros(8, np.float32)
    for _ in range(5):
        with ost.region("token"):
            enc = dev.command_encoder()
            enc.dispatch(bump, x, threads=8, bytes_read=32, bytes_written=32)
            enc.commit()
    x.numpy()
    time.sleep(0.2)
"""


class Collector:
    """Speaks OTLP over HTTP; one that is held answers nobody until it is let go."""

    def __init__(self, held: bool = False) -> None:
        self.asked = 0
        self.let_go = threading.Event()
        if not held:
            self.let_go.set()
        self.received: list[Any] = []
        self.headers: list[dict[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.asked += 1
                outer.let_go.wait()
                outer.headers.append(dict(self.headers))
                outer.received.append((self.path, body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def points(self) -> dict[str, list[tuple[dict[str, str], float]]]:
        """The last value of every instrument, with its attributes."""
        import gzip

        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

        found: dict[str, list[tuple[dict[str, str], float]]] = {}
        for (path, body), headers in zip(self.received, self.headers, strict=True):
            assert path == "/v1/metrics"
            data = gzip.decompress(body) if headers.get("Content-Encoding") == "gzip" else body
            request = ExportMetricsServiceRequest.FromString(data)
            for resource in request.resource_metrics:
                self.resource = {each.key: each.value for each in resource.resource.attributes}
                for metric in resource.scope_metrics[0].metrics:
                    points = metric.sum.data_points or metric.gauge.data_points
                    found[metric.name] = [
                        (
                            {each.key: each.value.string_value for each in point.attributes},
                            point.as_double if point.HasField("as_double") else point.as_int,
                        )
                        for point in points
                    ]
        return found


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


def test_a_program_that_knows_nothing_of_it_exports_its_figures(script: Script, collector: Collector) -> None:
    done = script(PROGRAM, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, RANK="1", WORLD_SIZE="2")
    assert done.returncode == 0, done.stderr
    points = collector.points()
    of_kernel = {"kernel": "bump", "device": "cpu"}
    assert points["ostinato.kernel.dispatches"] == [(of_kernel, 5)]
    assert points["ostinato.kernel.bytes"] == [(of_kernel, 5 * 64)]
    ((attributes, seconds),) = points["ostinato.kernel.time"]
    assert attributes == of_kernel
    assert 0 < seconds < 10
    assert points["ostinato.tokens"] == [({}, 5)]
    assert points["ostinato.regions"] == [({"region": "token"}, 5)]
    assert points["ostinato.submissions"] == [({"device": "cpu"}, 5)]
    assert points["ostinato.queue.depth"] == [({"device": "cpu"}, 0)]
    assert points["ostinato.losses"] == [({}, 0)]
    assert collector.resource["ostinato.rank"].int_value == 1
    assert collector.resource["host.name"].string_value


def test_a_collector_that_does_not_answer_does_not_hold_up_the_program(script: Script) -> None:
    silent = Collector(held=True)
    try:
        done = script(PROGRAM, OTEL_EXPORTER_OTLP_ENDPOINT=silent.url, OTEL_METRIC_EXPORT_INTERVAL="50")
        assert done.returncode == 0, done.stderr
        assert silent.asked
        assert silent.received == []
    finally:
        silent.let_go.set()
        silent.close()


@pytest.mark.parametrize(
    "more", [{"OTEL_SDK_DISABLED": "true"}, {"OTEL_METRICS_EXPORTER": "none"}, {"OSTINATO_PROFILE": "0"}]
)
def test_it_is_switched_off_by_the_usual_variables(script: Script, collector: Collector, more: dict[str, str]) -> None:
    done = script(PROGRAM, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, **more)
    assert done.returncode == 0, done.stderr
    assert collector.received == []


def test_prometheus_reads_the_same_instruments(script: Script) -> None:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ending = f"""
    print(urllib.request.urlopen("http://127.0.0.1:{port}/metrics").read().decode())
    """
    more = {"OTEL_METRICS_EXPORTER": "prometheus", "OTEL_EXPORTER_PROMETHEUS_HOST": "127.0.0.1"}
    done = script(PROGRAM + ending, OTEL_EXPORTER_PROMETHEUS_PORT=str(port), **more)
    assert done.returncode == 0, done.stderr
    assert re.search(r'^ostinato_kernel_dispatches_total\{.*kernel="bump".*\} 5.0$', done.stdout, re.MULTILINE)
    assert re.search(r"^ostinato_tokens_total(\{.*\})? 5.0$", done.stdout, re.MULTILINE)
    names = set(re.findall(r"^(ostinato_\w+?)(?:\{| )", done.stdout, re.MULTILINE))
    dashboard = json.loads((Path(__file__).parents[2] / "examples" / "grafana" / "ostinato.json").read_text())
    used = {name for panel in dashboard["panels"] for name in re.findall(r"ostinato_\w+", panel["targets"][0]["expr"])}
    assert len(used) >= 7
    assert used <= names


def test_what_waits_is_bounded_and_losses_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "_MOST_WAITING", 3)
    monkeypatch.setattr(figures, "_PERIOD_S", 1000)
    made = Figures(Level.DISPATCHES)
    region = type("R", (), {"name": "token", "begin_ns": 0})()
    for _ in range(5):
        made.region_ends(region, 1_000_000_000)
    assert made.lost == 2
    assert (made.read().region_count, made.read().region_s) == ({"token": 3}, {"token": 3.0})
    for number in range(figures.MOST_NAMES + 10):
        made.region_ends(type("R", (), {"name": f"r{number}", "begin_ns": 0})(), 1)
        made.read()
    assert made.read().region_count[figures.OTHERS] == 11
    made.close()
