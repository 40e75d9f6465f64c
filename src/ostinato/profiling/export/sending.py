"""The figures as instruments of the OpenTelemetry SDK, which sends them from a thread of its own.

All are observable: the SDK asks for them when it exports. What the environment says applies as the SDK reads it
(endpoint, headers, interval, resource). At the end of the program the last figures are sent, which waits for the
network for `_LAST_MS` at most.
"""

from __future__ import annotations

import atexit
import os
import platform
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ... import settings
from ...backends.protocol import Level
from ...base.extras import install_command
from ...runtime.tracing import level_named
from ...version import __version__
from ..recording.provenance import ranks
from .figures import TOKEN, Figures, Sums

_LAST_MS = 2_000
_PROMETHEUS_PORT = 9464


def begin() -> Figures | None:
    """Begin to export; None, with a warning, where the packages for that are missing."""
    level = level_named(settings.text("profile") or "dispatches")
    prometheus = os.environ.get("OTEL_METRICS_EXPORTER", "").strip().lower() == "prometheus"
    try:
        reader = _prometheus_reader() if prometheus else _otlp_reader()
        return export(reader, level)
    except ImportError as problem:
        what = "OTEL_METRICS_EXPORTER" if prometheus else "OTEL_EXPORTER_OTLP_ENDPOINT"
        settings.report_once(
            "export", f"{what} is set, but nothing is exported: {problem.name} is missing. {install_command('otel')}"
        )
    except (ValueError, OSError) as problem:
        settings.report_once("export", f"nothing is exported to OpenTelemetry: {type(problem).__name__}")
    return None


def export(reader: Any, level: Level = Level.DISPATCHES) -> Figures:
    """Export figures by a reader of the SDK until the program ends; gives them as a listener of submissions."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.resources import Resource

    figures = Figures(level)
    rank, _, size = ranks()
    facts: dict[str, Any] = {"host.name": platform.node(), "process.pid": os.getpid()}
    facts |= {} if rank is None else {"ostinato.rank": rank, "ostinato.world_size": size}
    # What OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME say goes over these.
    resource = Resource(facts).merge(Resource.create())
    provider = MeterProvider([reader], resource, shutdown_on_exit=False)
    _make_instruments(provider.get_meter("ostinato", __version__), figures)

    def end() -> None:
        if os.getpid() == facts["process.pid"]:
            figures.close()
            provider.shutdown(timeout_millis=_LAST_MS)

    atexit.register(end)
    return figures


def _otlp_reader() -> Any:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    return PeriodicExportingMetricReader(OTLPMetricExporter())


def _prometheus_reader() -> Any:
    from opentelemetry.exporter.prometheus import PrometheusMetricReader
    from prometheus_client import start_http_server

    port = int(os.environ.get("OTEL_EXPORTER_PROMETHEUS_PORT", _PROMETHEUS_PORT))
    start_http_server(port, os.environ.get("OTEL_EXPORTER_PROMETHEUS_HOST", "localhost"))
    return PrometheusMetricReader()


def _make_instruments(meter: Any, figures: Figures) -> None:
    from opentelemetry.metrics import Observation

    def by(names: tuple[str, ...], sums: Callable[[Sums], Mapping[Any, float]]) -> Callable[[Any], Iterable[Any]]:
        def observed(_: Any) -> Iterable[Any]:
            # A copy: the sums are added to by another thread.
            for key, value in dict(sums(figures.read())).items():
                parts = key if isinstance(key, tuple) else (key,)
                yield Observation(value, dict(zip(names, parts, strict=True)))

        return observed

    kernel, device, region = ("kernel", "device"), ("device",), ("region",)
    for name, unit, what, callback in (
        ("kernel.time", "s", "time of timed dispatches", by(kernel, lambda sums: sums.kernel_s)),
        ("kernel.dispatches", "{dispatch}", "timed dispatches", by(kernel, lambda sums: sums.kernel_dispatches)),
        ("kernel.bytes", "By", "declared bytes that they moved", by(kernel, lambda sums: sums.kernel_bytes)),
        ("submissions", "{submission}", "command buffers done", by(device, lambda sums: sums.submissions)),
        ("submission.time", "s", "time of command buffers", by(device, lambda sums: sums.busy_s)),
        ("regions", "{region}", "regions of the program that ended", by(region, lambda sums: sums.region_count)),
        ("region.time", "s", "time of regions", by(region, lambda sums: sums.region_s)),
        (
            "tokens",
            "{token}",
            "regions called token",
            lambda _: [Observation(figures.read().region_count.get(TOKEN, 0))],
        ),
        ("failures", "{submission}", "command buffers that failed", lambda _: [Observation(figures.read().failed)]),
        ("losses", "{submission}", "command buffers not counted", lambda _: [Observation(figures.lost)]),
    ):
        meter.create_observable_counter(f"ostinato.{name}", [callback], unit, what)
    meter.create_observable_gauge(
        "ostinato.queue.depth",
        [lambda _: [Observation(count, {"device": name}) for name, count in figures.queue_depth.items()]],
        "{submission}",
        "command buffers committed and not done",
    )
