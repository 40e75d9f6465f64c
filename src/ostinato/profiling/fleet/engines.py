"""Where work on a store is done: in this process, in several of this machine, or on a cluster of Dask.

An engine takes a function of a module and a list of items, and gives the results as they come, each once. A task
writes files under names of its own and says which; only the caller makes them count. So a task that an engine runs
again, because a worker died, leaves files that nobody counts, and nothing is lost or there twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, TypeVar

from ...base.extras import install_command
from ...errors import FleetError, MissingPackage, OstinatoError
from .places import without_secrets

Item = TypeVar("Item")
Result = TypeVar("Result")

_DASK = re.compile(r"dask://([^/\s@?]+:\d+)/?")
_LOCAL = re.compile(r"local(?::(\d{1,3}))?")
_TIMEOUT_S = 20
_RETRIES = 3


class Engine(Protocol):
    """Runs tasks."""

    @property
    def workers(self) -> int:
        """How many tasks it runs at the same time."""
        ...

    def run(self, task: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[tuple[Item, Result]]:
        """Each item with its result, in the order in which tasks end."""
        ...


def engine(name: str) -> AbstractContextManager[Engine]:
    """The engine of a name: "local", "local:4" for as many processes, or "dask://HOST:PORT"."""
    if local := _LOCAL.fullmatch(name):
        return _local(int(local[1] or 1))
    if dask := _DASK.fullmatch(name):
        return _dask(dask[1])
    raise FleetError(
        f"{without_secrets(name)!r} is not an engine; there are local, local:N (N processes) and dask://HOST:PORT"
    )


class _Here:
    workers = 1

    def run(self, task: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[tuple[Item, Result]]:
        for item in items:
            yield item, task(item)


class _Processes:
    def __init__(self, pool: Any, workers: int) -> None:
        self._pool, self.workers = pool, workers

    def run(self, task: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[tuple[Item, Result]]:
        from concurrent.futures import as_completed
        from concurrent.futures.process import BrokenProcessPool

        futures = {self._pool.submit(task, item): item for item in items}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool:
            raise FleetError("a process of the engine died; what was committed counts. Run it again") from None


@contextmanager
def _local(workers: int) -> Iterator[Engine]:
    if workers <= 1:
        yield _Here()
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    # Threads of the parent (PyArrow's) would not survive a fork.
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        yield _Processes(pool, workers)


class _Dask:
    def __init__(self, client: Any) -> None:
        self._client = client

    @property
    def workers(self) -> int:
        return max(sum(map(int, self._client.nthreads().values())), 1)

    def run(self, task: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[tuple[Item, Result]]:
        from distributed import KilledWorker, as_completed

        # Not pure: the same recordings added twice are two tasks, each with files of its own.
        futures = {self._client.submit(task, item, pure=False, retries=_RETRIES): item for item in items}
        try:
            for future in as_completed(list(futures), loop=self._client.loop):
                try:
                    yield futures[future], future.result()
                except KilledWorker:
                    raise FleetError("a task ended several workers of the cluster; memory may be too small") from None
                except (OstinatoError, GeneratorExit):
                    raise
                finally:
                    future.release()
        finally:
            self._client.cancel(list(futures))


@contextmanager
def _dask(address: str) -> Iterator[Engine]:
    try:
        from distributed import Client
    except ImportError as problem:
        raise MissingPackage(f"the engine dask:// needs Dask's scheduler: {install_command('dask')}") from problem
    try:
        client = Client(f"tcp://{address}", timeout=_TIMEOUT_S, set_as_default=False)
    except (OSError, TimeoutError) as problem:
        raise FleetError(f"no scheduler of Dask answers at {address}: {type(problem).__name__}") from None
    try:
        if not client.nthreads():
            client.wait_for_workers(1, timeout=_TIMEOUT_S)
        yield _Dask(client)
    except TimeoutError:
        raise FleetError(f"the scheduler at {address} has no workers") from None
    finally:
        client.close()
