"""Live figures of a running program for OpenTelemetry: OTLP over HTTP, or Prometheus.

They are exported while the usual variables are set: `OTEL_EXPORTER_OTLP_ENDPOINT` (or `…_METRICS_ENDPOINT`), or
`OTEL_METRICS_EXPORTER=prometheus`. `OTEL_SDK_DISABLED=true`, `OTEL_METRICS_EXPORTER=none` and `OSTINATO_PROFILE=0`
switch that off. The variables are read at every commit until they are set, and nothing is loaded before. What is
exported is timed like a profile, at the level of `OSTINATO_PROFILE`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ... import settings
from ...base.locks import ForkLock
from ...runtime import tracing

if TYPE_CHECKING:
    from .figures import Figures

_VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_METRICS_EXPORTER")
_KEYS = tuple(map(os.environ.encodekey, _VARIABLES)) if hasattr(os.environ, "encodekey") else _VARIABLES
_lock = ForkLock()
_exports: dict[int, Figures | None] = {}
"""By process; None where nothing can be exported."""


def _gate() -> Figures | None:
    if not settings.any_set(_KEYS) or not _wanted():
        return None
    process = os.getpid()
    if process not in _exports:
        with _lock:
            if process not in _exports:
                _exports[process] = _begun()
    return _exports[process]


def _wanted() -> bool:
    exporters = os.environ.get("OTEL_METRICS_EXPORTER", "otlp").strip().lower()
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true" or settings.text("profile") == "off":
        return False
    endpoint = any(os.environ.get(name, "").strip() for name in _VARIABLES[:2])
    return exporters == "prometheus" or (exporters == "otlp" and endpoint)


def _begun() -> Figures | None:
    from .sending import begin  # a program that exports nothing does not load it

    return begin()


tracing.gates.append(_gate)
