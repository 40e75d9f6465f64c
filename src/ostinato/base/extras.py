"""The optional packages of each extra, and how to install them. They mirror `pyproject.toml`."""

from __future__ import annotations

PACKAGES = {
    "toolchain": "ziglang>=0.13",
    "cuda": "cuda-bindings>=13 nvidia-cuda-nvrtc>=13",
    "models": "tokenizers>=0.20",
    "metal": "pyobjc-framework-Metal>=11",
    "pandas": "pandas>=2.2",
    "polars": "polars>=1.9",
    "arrow": "pyarrow>=17",
    "fleet": "pyarrow>=17 duckdb>=2 fsspec>=2025.2 s3fs>=2025.2",
    "dask": "distributed>=2025.2",
    "otel": "opentelemetry-sdk>=1.30 opentelemetry-exporter-otlp-proto-http>=1.30"
    " opentelemetry-exporter-prometheus>=0.51b0",
}


def install_command(extra: str) -> str:
    """The command that installs the packages of an extra. It names them, since ostinato is on no package index."""
    return "pip install " + " ".join(f"'{package}'" for package in PACKAGES[extra].split())
