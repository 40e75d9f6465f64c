"""Results of `tune` in a file: what they are kept under, and when they are found again.

A result is found again by a call that would measure the same: kernels with their sources and constants, grids, sizes of
buffers, values, the space, what counts as right and as faster, and the graph in which candidates are timed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from ..graph.graph import Graph
from ..ir.commands import Binding, BufferBinding, Command, Dispatch, Fill, InlineBinding, ParamBinding, bound
from ..runtime.buffer import Buffer
from ..runtime.tuned import Entry, Tuned
from . import space as spaces
from .oracle import Expectation
from .racing import Limits
from .space import Choice, Space

if TYPE_CHECKING:
    from .tuning import Tuning

_SHOWN = 1000
"""Characters of what is in an entry for people to read; what is compared is in digests, uncut."""


def key_of(
    first: Graph,
    parameters: Space,
    expectation: Expectation,
    limits: Limits,
    values: Mapping[str, Any],
    inside: Graph | None,
) -> Entry:
    """An entry with the key of a tuning and no choice."""
    dispatches = [command for command in first.commands if isinstance(command, Dispatch)]
    conditions = [
        *_commands(first),
        *(() if inside is None else ("inside", *_commands(inside))),
        f"tolerance {json.dumps(expectation.tolerance, sort_keys=True)}",
        f"delta {limits.delta!r} confidence {limits.confidence!r}",
        *(f"value {name} {_value(value)}" for name, value in sorted(values.items())),
        *(f"output {_place(first, buffer)}" for buffer in expectation.outputs or ()),
        f"oracle {getattr(expectation.function, '__qualname__', type(expectation.function).__qualname__)}",
    ]
    return Entry(
        kernel=_shown(dispatch.kernel.name for dispatch in dispatches),
        source=sources(first),
        constants=_shown(each.kernel.origin.specialisation for each in dispatches if each.kernel.origin),
        shape=_shown("x".join(map(str, dispatch.threads)) for dispatch in dispatches),
        space=spaces.digest(parameters),
        conditions=_digest(conditions),
        choice={},
        first={},
    )


def found(tuned: Tuned, key: Entry, parameters: Space, make: Callable[[Choice], Graph]) -> Entry | None:
    """The entry of this key, if the space still has its choice and the chosen candidate its source."""
    entry = next((entry for entry in tuned.entries if entry.key == key.key), None)
    choice = None if entry is None else spaces.found_again(parameters, entry.choice)
    if entry is None or choice is None or entry.best_source != sources(make(choice)):
        return None
    return entry


def entry_of(key: Entry, result: Tuning, best: Graph) -> Entry:
    """The entry of a result; `best` is the graph of its choice."""
    gain = result.gain
    return replace(
        key,
        choice=spaces.written_choice(result.choice),
        first=spaces.written_choice(result.first),
        best_source=sources(best),
        ratio=None if gain is None else (gain.estimate, gain.low, gain.high),
        inside=result.inside,
        measured=now(),
    )


def now() -> str:
    """The time of a measurement, for files."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def sources(graph: Graph) -> str:
    """A digest of the kernels of a graph, each by its own source and constants."""
    dispatches = [command for command in graph.commands if isinstance(command, Dispatch)]
    return _digest(dict.fromkeys(_kernel(dispatch) for dispatch in dispatches if dispatch.kernel.origin is not None))


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _shown(parts: Iterable[str]) -> str:
    return "+".join(dict.fromkeys(parts))[:_SHOWN]


def _kernel(dispatch: Dispatch) -> str:
    name, origin = dispatch.kernel.name, dispatch.kernel.origin
    return name if origin is None else f"{name} {origin.module.kernel_key(name)} {origin.specialisation}"


def _commands(graph: Graph) -> Iterator[str]:
    """All that matters of a graph's commands: the same in another process, where memory has other addresses."""
    memories: dict[int, int] = {}

    def memory(binding: BufferBinding) -> str:
        number = memories.setdefault(binding.allocation, len(memories))
        return f"memory {number}+{binding.offset}:{binding.nbytes}"

    def argument(binding: Binding) -> str:
        if isinstance(binding, BufferBinding):
            return memory(binding)
        if isinstance(binding, InlineBinding):
            return binding.data.hex()
        return f"{binding.name}:{binding.nbytes}" if isinstance(binding, ParamBinding) else "unbound"

    def form(command: Command) -> str:
        if isinstance(command, Dispatch):
            grid = command.kind.name, command.threads, command.groups, command.group_size, command.shared
            return f"{_kernel(command)} {grid} {', '.join(map(argument, command.bindings))}"
        pattern = command.pattern.hex() if isinstance(command, Fill) else ""
        return f"{type(command).__name__} {', '.join(map(memory, bound(command)))} {pattern}"

    yield f"{graph.ordering.name} {graph.splits}"
    yield from map(form, graph.commands)


def _value(value: Any) -> str:
    if isinstance(value, Buffer):
        return f"{value.dtype} {value.shape}"
    array = np.asarray(value)
    return f"{array.dtype} {array.tobytes().hex()}"


def _place(first: Graph, buffer: Buffer) -> str:
    """Which argument an output is."""
    begin, end, _ = first._range_of(buffer, "outputs")
    for number, command in enumerate(first.commands):
        for binding in bound(command):
            if binding.address <= begin < binding.address + binding.nbytes:
                return f"{number} {binding.index} {begin - binding.address}:{end - begin}"
    return f"{end - begin}"
