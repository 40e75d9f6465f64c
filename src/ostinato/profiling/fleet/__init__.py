"""Many recordings in one store: added once each, merged, and asked what the fleet does.

`add` and `compact` change a store (`store.py` says what one is), `report` and `query` read it. PyArrow reads and writes
the files, DuckDB answers questions, Dask spreads the work where one machine is too small; nothing here opens a device.
"""

from __future__ import annotations

from .adding import Added, add
from .compacting import Compacted, compact
from .engines import Engine, engine
from .querying import Answer, Wanted, query, since
from .reporting import FleetReport, as_json, report
from .store import VERSION, Store, open_store

__all__ = [
    "VERSION",
    "Added",
    "Answer",
    "Compacted",
    "Engine",
    "FleetReport",
    "Store",
    "Wanted",
    "add",
    "as_json",
    "compact",
    "engine",
    "open_store",
    "query",
    "report",
    "since",
]
