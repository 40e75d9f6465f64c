"""What can be measured: a replayable, a graph, a function that encodes, or a kernel with its arguments and grid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..encode.encoder import CommandEncoder, capture
from ..errors import ArgumentError
from ..graph.graph import Graph
from ..graph.replay import Replayable
from ..passes.snapshot import with_buffers
from ..runtime.buffer import Buffer, allocate
from ..runtime.library import Kernel
from ..runtime.queue import OnQueue, Queue, queue_of


@dataclass(frozen=True, slots=True)
class Contender:
    """Work that is ready to be replayed, with the values of a replay."""

    name: str
    run: Replayable
    values: Mapping[str, Any]

    @property
    def queue(self) -> Queue:
        """The queue of its device."""
        return self.run.graph.queue


def contender(
    what: Any,
    arguments: tuple[Any, ...] = (),
    *,
    name: str = "",
    device: OnQueue | None = None,
    values: Mapping[str, Any] | None = None,
    **dispatch: Any,
) -> Contender:
    """Makes a subject ready. `dispatch` are keywords of `CommandEncoder.dispatch`, for a kernel.

    Arrays among a kernel's arguments become buffers of its device.
    """
    if isinstance(what, Kernel):
        queue = what._queue
        bound = tuple(_bound(queue, argument) for argument in arguments)
        return _ready(capture(queue, lambda enc: enc.dispatch(what, *bound, **dispatch)), name or what.name, values)
    if arguments or dispatch:
        given = ", ".join(dispatch) or "arguments"
        raise ArgumentError(f"{given}: only a kernel takes arguments and a grid; {_kind(what)} has its own")
    if isinstance(what, Replayable):
        if any(isinstance(value, Buffer) for value in (values or {}).values()):
            return _ready(what.graph, name, values)
        return Contender(name or what.graph.label or "graph", what, dict(values or {}))
    if isinstance(what, Graph):
        return _ready(what, name, values, device)
    if callable(what):
        if device is None:
            raise ArgumentError(f"{_kind(what)} encodes on a device: pass device=")
        return _ready(_captured(device, what), name or getattr(what, "__name__", ""), values)
    raise ArgumentError(
        f"{_kind(what)} cannot be measured: pass a Replayable, a Graph, a function that encodes, or a Kernel with its"
        " arguments and grid"
    )


def _captured(device: OnQueue, encode: Any) -> Graph:
    def encoded(encoder: CommandEncoder) -> None:
        encode(encoder)

    graph = capture(queue_of(device, "device"), encoded)
    if not len(graph):
        raise ArgumentError(f"{_kind(encode)} encoded nothing: there is nothing to measure")
    return graph


def _ready(graph: Graph, name: str, values: Mapping[str, Any] | None, device: Any = None) -> Contender:
    graph, rest = with_buffers(graph, values or {})
    return Contender(name or graph.label or "graph", graph.instantiate(device), rest)


def _bound(queue: Queue, argument: Any) -> Any:
    if not isinstance(argument, np.ndarray):
        return argument
    buffer = allocate(queue, argument.shape, argument.dtype)
    buffer.write(argument)
    return buffer


def _kind(what: Any) -> str:
    name = getattr(what, "__name__", "")
    return f"{type(what).__name__} {name!r}" if name else f"a {type(what).__name__}"
