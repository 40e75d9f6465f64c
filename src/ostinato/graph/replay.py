"""Replay: a graph made ready once, then started by one call into the backend however many nodes it has.

What depends on the graph alone (native form, counts, memory to keep) is made when the graph is instantiated. Binding
other buffers, or running serially because the `barriers` setting says so, needs another native form: a *variant*. A few
variants are cached.
"""

from __future__ import annotations

import random
import time
from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from .. import counters, settings
from ..backends.protocol import Backend
from ..base.copies import refuse_copy
from ..base.labels import check_label
from ..base.locks import ForkLock
from ..errors import ArgumentError, GraphChanged, GraphError
from ..ir.command_list import CommandList
from ..ir.commands import Barrier, Dispatch, Ordering
from ..runtime import tracing
from ..runtime.allocation import SharedUse
from ..runtime.buffer import Buffer
from ..runtime.submission import Submission
from .graph import Graph
from .hooks import watchers
from .rebinding import check_buffer, rebound

_MAX_VARIANTS = 8
# One in so many profiled replays runs without sampling; comparing the two gives the overhead of sampling.
_PROBE_EVERY = 16


class _Part:
    """The nodes of one submission: all of a graph, unless it is split."""

    __slots__ = ("commands", "counted", "counts", "executable")

    def __init__(self, backend: Backend, commands: CommandList) -> None:
        self.commands = commands
        self.executable = backend.instantiate(commands)
        dispatches = [command for command in commands.commands if isinstance(command, Dispatch)]
        # The parameters that bytes or flops of its dispatches depend on.
        self.counted = tuple(sorted(set().union(*(dispatch.counted for dispatch in dispatches))))
        # A leading barrier orders nothing; encoders do not record one, but a split may leave one.
        barriers = sum(isinstance(command, Barrier) for command in commands.commands[1:])
        inferred = commands.order.inferred
        self.counts = (len(dispatches), barriers + inferred.barriers, inferred.barriers, inferred.concurrent)
        """What `counters.add_command_buffer` takes."""


class _Variant:
    """A graph in native form, with the memory it uses."""

    __slots__ = ("graph", "parts", "use", "uses")

    def __init__(self, graph: Graph, ordering: Ordering) -> None:
        self.graph = graph
        self.use = SharedUse()
        self.uses = (self.use,)
        begin_ns = time.monotonic_ns()
        commands = graph.command_list.with_ordering(ordering)
        bounds = (0, *graph.splits, len(graph))
        self.parts = [_Part(graph.queue.backend, commands.part(first, end)) for first, end in pairwise(bounds)]
        tracing.host_span("setup", f"instantiate {graph.label or 'a graph'}", begin_ns)
        for memory in graph.memories.values():
            if memory.allocation is not None:
                memory.allocation.backing.share(self.use)


class Replayable:
    """A graph that is ready to run any number of times."""

    __slots__ = (
        "_chance",
        "_lock",
        "_offsets",
        "_params",
        "_plain",
        "_probe_at",
        "_queue",
        "_sampled_replays",
        "_value_bytes",
        "_variants",
        "graph",
        "rebind_count",
        "rebind_ns",
    )

    def __init__(self, graph: Graph) -> None:
        self._queue = graph.queue
        self._queue.check()
        self.graph = graph
        """The graph that it runs."""
        self.rebind_count = 0
        """How often a new combination of buffers was bound."""
        self.rebind_ns = 0
        """Total host time spent on binding them; a submission's own part is its `rebind_ns`."""
        self._params = graph.params
        self._offsets = graph.command_list.value_offsets
        self._value_bytes = graph.command_list.value_bytes
        self._lock = ForkLock()
        self._sampled_replays = 0
        self._probe_at = 0
        self._chance = random.Random(len(graph))
        self._variants: OrderedDict[tuple[Any, ...], _Variant] = OrderedDict()
        self._plain = _Variant(graph, graph.ordering)

    def replay(self, *, rebuild: bool = False, label: str | None = None, **values: Any) -> Submission:
        """Submit the graph, to run after everything submitted before, and return at once.

        Pass every parameter of the graph by name. Buffers passed by name replace the captured ones in this replay. If
        that changes which dispatches must wait for which, pass `rebuild=True`; otherwise it raises. May be called from
        several threads.
        """
        if label is None:
            label = self.graph.label
        else:
            check_label(label)
        if not isinstance(rebuild, bool):
            raise ArgumentError(f"replay: rebuild is True or False, not {rebuild!r}")
        graph = self.graph
        if not self._queue.usable:
            self._queue.check()
        block, buffers = self._values(values)
        variant = self._plain
        rebind_ns = 0
        serial = settings.text("barriers") == "serial" and graph.ordering is not Ordering.SERIAL
        if buffers or serial:
            with self._lock:
                variant, rebind_ns = self._variant(buffers, serial, rebuild)
        if watchers and counters.counting():
            for watcher in watchers:
                watcher(variant.graph, {name: value for name, value in values.items() if name in self._params})
        listeners = tracing.listening()
        if not listeners and len(variant.parts) == 1:
            submission = self._submit(variant, variant.parts[0], block, label)
        else:
            submission = self._submit_traced(variant, block, values, label, listeners)
        submission.rebind_ns = rebind_ns
        return submission

    def _submit_traced(
        self,
        variant: _Variant,
        block: bytes,
        values: Mapping[str, Any],
        label: str | None,
        listeners: tuple[tracing.Listener, ...],
    ) -> Submission:
        """Submit all parts, traced if there are listeners; returns the last submission, which refers to the others."""
        queue = self._queue
        probe = False
        if any(listener.probes for listener in listeners):
            with self._lock:
                probe = self._is_probe()
        submissions: list[Submission] = []
        with queue._lock:  # nothing of another thread comes between the parts
            for part in variant.parts:
                trace = None
                if listeners:
                    counted = {name: int(values[name]) for name in part.counted}
                    trace = tracing.trace(
                        queue,
                        part.commands,
                        listeners,
                        label=label,
                        executable=part.executable,
                        probe=probe,
                        values=counted,
                    )
                submissions.append(self._submit(variant, part, block, label, trace))
        *earlier, last = submissions
        last._earlier = tuple(earlier)
        return last

    def _submit(
        self, variant: _Variant, part: _Part, block: bytes, label: str | None, trace: tracing.Trace | None = None
    ) -> Submission:
        sampled = trace is not None and trace.sampled
        start = partial(self._queue.backend.replay, part.executable, block, sampled)
        submission = self._queue.submit(part.commands, start, uses=variant.uses, keep=variant, label=label, trace=trace)
        counters.add_command_buffer(*part.counts)
        submission._use = variant.use
        return submission

    def _is_probe(self) -> bool:
        """Whether this replay runs without sampling: one in sixteen, at random, to avoid aliasing with the program."""
        block, position = divmod(self._sampled_replays, _PROBE_EVERY)
        if position == 0:
            self._probe_at = self._chance.randrange(_PROBE_EVERY)
        self._sampled_replays += 1
        # None of the first sixteen: they are warm-up, and a short profile should see everything.
        return block > 0 and position == self._probe_at

    def _values(self, values: Mapping[str, Any]) -> tuple[bytes, dict[str, Buffer]]:
        """The block of parameter values, and the buffers to bind."""
        params = self._params
        block = bytearray(self._value_bytes)
        buffers: dict[str, Buffer] = {}
        given = 0
        for name, value in values.items():
            param = params.get(name)
            if param is not None:
                start = self._offsets[name]
                data = param.encode(value)
                block[start : start + len(data)] = data
                given += 1
            elif name in self.graph.names:
                buffers[name] = value
            else:
                raise GraphError(f"replay: the graph has no parameter or buffer named {name!r}; it has {self._known()}")
        if given != len(params):
            missing = ", ".join(str(param) for name, param in params.items() if name not in values)
            raise GraphError(f"replay: no value for {missing}")
        return bytes(block), buffers

    def _known(self) -> str:
        known = [str(param) for param in self.graph.params.values()]
        known += [f"buffer {name!r}" for name in self.graph.names]
        return ", ".join(known) or "none"

    def _variant(self, buffers: Mapping[str, Buffer], serial: bool, rebuild: bool) -> tuple[_Variant, int]:
        for name, buffer in buffers.items():
            check_buffer(self.graph, name, buffer)
        key = (serial, rebuild, *sorted((name, buffer._serial) for name, buffer in buffers.items()))
        variant = self._variants.get(key)
        if variant is not None:
            self._variants.move_to_end(key)
            return variant, 0
        started_ns = time.perf_counter_ns()
        graph = rebound(self.graph, buffers) if buffers else self.graph
        by_hand = graph.ordering is Ordering.BARRIERS
        if buffers and (by_hand or not rebuild) and not np.array_equal(graph.edges, self.graph.edges):
            raise GraphChanged(
                f"replay with other buffers for {', '.join(buffers)}: which dispatches must wait for which would change"
                " (the new buffers overlap differently); "
                + ("its barriers were placed for the captured ones" if by_hand else "rebuild=True allows it")
            )
        variant = _Variant(graph, Ordering.SERIAL if serial else graph.ordering)
        self._variants[key] = variant
        if len(self._variants) > _MAX_VARIANTS:
            self._variants.popitem(last=False)
        if not buffers:
            return variant, 0
        spent_ns = time.perf_counter_ns() - started_ns
        self.rebind_count += 1
        self.rebind_ns += spent_ns
        return variant, spent_ns

    __reduce_ex__ = refuse_copy

    def __repr__(self) -> str:
        return f"<Replayable {self.graph!r}>"

    def _repr_html_(self) -> str:
        return self.graph._repr_html_()
