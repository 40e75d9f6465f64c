"""Replay: a graph made ready once, then started by one call into the backend however many nodes it has.

What depends on the graph alone (native form, counts, memory to keep) is made when the graph is instantiated. Binding
other buffers, or running serially because the `barriers` setting says so, needs another native form: a *variant*. A few
variants are cached.
"""

from __future__ import annotations

import random
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from .. import counters, settings
from ..backends.protocol import Executable
from ..base.copies import refuse_copy
from ..base.labels import check_label
from ..base.locks import ForkLock
from ..errors import ArgumentError, GraphChanged, GraphError
from ..ir.command_list import CommandList
from ..ir.commands import Barrier, Dispatch, Ordering
from ..runtime import tracing
from ..runtime.allocation import Allocation, SharedUse
from ..runtime.buffer import Buffer
from ..runtime.submission import Submission
from .graph import Graph
from .hooks import watchers
from .moving import Mover
from .rebinding import check_buffer, rebound
from .starting import starter

_MAX_VARIANTS = 8
_MAX_DROPPED = 64
# One in so many profiled replays runs without sampling; comparing the two gives the overhead of sampling.
_PROBE_EVERY = 16


class _Part:
    """The nodes of one submission: all of a graph, unless it is split."""

    __slots__ = ("commands", "counted", "counts", "executable")

    def __init__(self, commands: CommandList, executable: Executable) -> None:
        self.commands = commands
        self.executable = executable
        dispatches = [command for command in commands.commands if isinstance(command, Dispatch)]
        # The parameters that bytes or flops of its dispatches depend on.
        self.counted = tuple(sorted(set().union(*(dispatch.counted for dispatch in dispatches))))
        # A leading barrier orders nothing; encoders do not record one, but a split may leave one.
        barriers = sum(isinstance(command, Barrier) for command in commands.commands[1:])
        inferred = commands.order.inferred
        self.counts = (len(dispatches), barriers + inferred.barriers, inferred.barriers, inferred.concurrent)
        """What `counters.add_command_buffer` takes."""

    def moved(self, commands: CommandList, executable: Executable) -> _Part:
        """The same with other addresses."""
        part = object.__new__(_Part)
        part.commands, part.executable, part.counted, part.counts = commands, executable, self.counted, self.counts
        return part


class _Variant:
    """A graph in native form, with the memory it uses."""

    __slots__ = ("_graph", "is_movable", "kept", "parts", "reused", "uses")

    def __init__(self, graph: Graph, ordering: Ordering, base: Graph, bound: Sequence[Allocation] = ()) -> None:
        self._graph: Graph | Callable[[], Graph] = graph
        self.kept: tuple[object, object] = (base, bound)
        self.reused = False
        """Whether it was replayed again after others."""
        begin_ns = time.monotonic_ns()
        commands = graph.command_list.with_ordering(ordering)
        bounds = (0, *graph.splits, len(graph))
        backend: Any = graph.queue.backend
        self.is_movable = bool(bound) and len(bounds) == 2 and hasattr(backend, "moved")
        """Whether its native form can be changed to other addresses."""
        instantiate = backend.instantiate_movable if self.is_movable else backend.instantiate
        lists = [commands.part(first, end) for first, end in pairwise(bounds)]
        self.parts = [_Part(part, instantiate(part)) for part in lists]
        tracing.host_span("setup", f"instantiate {graph.label or 'a graph'}", begin_ns)
        captured = SharedUse()
        for memory in base.memories.values():
            if memory.allocation is not None:
                memory.allocation.backing.share(captured)
        self.uses = (captured, *_uses(bound))

    def moved(
        self, executable: Executable, commands: CommandList, graph: Callable[[], Graph], bound: Sequence[Allocation]
    ) -> _Variant:
        """The same with other buffers: this one must not be replayed any more."""
        variant = object.__new__(_Variant)
        variant._graph, variant.is_movable, variant.reused = graph, True, False
        variant.kept = (self.kept[0], bound)
        variant.parts = [self.parts[0].moved(commands, executable)]
        variant.uses = (self.uses[0], *_uses(bound))
        return variant

    @property
    def graph(self) -> Graph:
        """The graph with the buffers of this variant."""
        if not isinstance(self._graph, Graph):
            self._graph = self._graph()
        return self._graph


def _uses(bound: Sequence[Allocation]) -> tuple[SharedUse, ...]:
    """The use of bound buffers, apart from that of captured memory: they change from replay to replay."""
    if not bound:
        return ()
    use = SharedUse()
    for allocation in bound:
        allocation.backing.share(use)
    return (use,)


class Replayable:
    """A graph that is ready to run any number of times."""

    __slots__ = (
        "_chance",
        "_dropped",
        "_lock",
        "_movers",
        "_offsets",
        "_params",
        "_plain",
        "_probe_at",
        "_queue",
        "_sampled_replays",
        "_start",
        "_value_bytes",
        "_variants",
        "graph",
        "rebind_count",
        "rebind_ns",
        "rebuild_count",
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
        self.rebuild_count = 0
        """How often the native form was built for that, where it could not be changed to the new addresses."""
        self._params = graph.params
        self._offsets = graph.command_list.value_offsets
        self._value_bytes = graph.command_list.value_bytes
        self._lock = ForkLock()
        self._sampled_replays = 0
        self._probe_at = 0
        self._chance = random.Random(len(graph))
        self._variants: OrderedDict[tuple[Any, ...], _Variant] = OrderedDict()
        self._dropped: OrderedDict[tuple[Any, ...], None] = OrderedDict()  # keys of variants that were changed
        self._movers: dict[tuple[str, ...], Mover] = {}
        self._plain = variant = _Variant(graph, graph.ordering, graph)
        self._start = (
            None
            if len(variant.parts) != 1
            else starter(
                self._queue,
                variant.parts[0].commands,
                variant.parts[0].executable,
                use=variant.uses[0],
                keep=variant,
                label=graph.label,
                counts=variant.parts[0].counts,
                params=self._params,
            )
        )

    def replay(self, *, rebuild: bool = False, label: str | None = None, **values: Any) -> Submission:
        """Submit the graph, to run after everything submitted before, and return at once.

        Pass every parameter of the graph by name. Buffers passed by name replace the captured ones in this replay. If
        that changes which dispatches must wait for which, pass `rebuild=True`; otherwise it raises. May be called from
        several threads.
        """
        if label is None and rebuild is False and self._start is not None:
            submission = self._start.start(values)
            if submission is not None:
                return submission
        if label is None:
            label = self.graph.label
        else:
            check_label(label)
        if not isinstance(rebuild, bool):
            raise ArgumentError(f"replay: rebuild is True or False, not {rebuild!r}")
        if not self._queue.usable:
            self._queue.check()
        block, buffers = self._values(values)
        return self._replay(block, values, buffers, label, rebuild)

    def replay_many(self, *, label: str | None = None, **values: Iterable[Any]) -> list[Submission]:
        """Submit the graph once for each value, in one call, and return all submissions.

        Pass every parameter of the graph by name, each as an iterable; all have the same number of values. Nothing is
        submitted unless all values fit. If starting one fails, the error is raised and those before it run.

            submissions = run.replay_many(position=range(64))
            submissions[-1].wait()
        """
        lists: dict[str, list[Any]] = {}
        for name, given in values.items():
            if name not in self._params:
                known = ", ".join(str(param) for param in self._params.values()) or "none"
                raise GraphError(f"replay_many: the graph has no parameter named {name!r}; it has {known}")
            try:
                lists[name] = list(given)
            except TypeError:
                raise ArgumentError(f"replay_many: {name!r} is an iterable of values, not {given!r}") from None
        if not lists:
            raise ArgumentError("replay_many: pass the values of at least one parameter; replay() starts one replay")
        counts = {name: len(given) for name, given in lists.items()}
        if len(set(counts.values())) > 1:
            numbers = ", ".join(f"{name} {count}" for name, count in counts.items())
            raise ArgumentError(f"replay_many: every parameter has the same number of values; got {numbers}")
        (count,) = set(counts.values())
        if label is not None:
            check_label(label)
        native = self._start if label is None else None
        submissions = None if native is None else native.start_many(lists, 0)
        each = [{name: given[at] for name, given in lists.items()} for at in range(len(submissions or ()), count)]
        label = self.graph.label if label is None else label
        blocks = [self._values(values)[0] for values in each]  # all of them before one starts
        first = count - len(each)
        submissions = submissions or []
        while len(submissions) < count:
            at = len(submissions) - first
            submissions.append(self._replay(blocks[at], each[at], {}, label, False))
            # Native code may go on where the first had to make memory resident, or to wait for room.
            more = native.start_many(lists, len(submissions)) if native is not None else None
            native = native if more else None
            submissions += more or []
        return submissions

    def _replay(
        self, block: bytes, values: Mapping[str, Any], buffers: Mapping[str, Buffer], label: str | None, rebuild: bool
    ) -> Submission:
        """Submit the graph with encoded values and these buffers."""
        graph = self.graph
        if not self._queue.usable:
            self._queue.check()
        serial = settings.text("barriers") == "serial" and graph.ordering is not Ordering.SERIAL
        if not buffers and not serial:
            return self._start_variant(self._plain, block, values, label)
        # Another thread could change the addresses of a variant that is chosen and not yet started. The queue's lock
        # comes first everywhere: a finaliser may replay a graph inside any block that holds it.
        with self._queue._lock, self._lock:
            variant, rebind_ns = self._variant(buffers, serial, rebuild)
            submission = self._start_variant(variant, block, values, label)
        submission.rebind_ns = rebind_ns
        return submission

    def _start_variant(
        self, variant: _Variant, block: bytes, values: Mapping[str, Any], label: str | None
    ) -> Submission:
        if watchers and counters.counting():
            for watcher in watchers:
                watcher(variant.graph, {name: value for name, value in values.items() if name in self._params})
        listeners = tracing.listening()
        if not listeners and len(variant.parts) == 1:
            return self._submit(variant, variant.parts[0], block, label)
        return self._submit_traced(variant, block, values, label, listeners)

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
        submission._use = variant.uses
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
        names = tuple(sorted(buffers))
        key = (serial, rebuild, names, *[buffers[name]._serial for name in names])
        variant = self._variants.get(key)
        if variant is not None:
            variant.reused = True
            self._variants.move_to_end(key)
            return variant, 0
        started_ns = time.perf_counter_ns()
        variant = None if serial or not buffers else self._moved(key, names, buffers)
        if variant is None:
            variant = self._built(buffers, serial, rebuild)
        self._variants[key] = variant
        if len(self._variants) > _MAX_VARIANTS:
            self._variants.popitem(last=False)
        if not buffers:
            return variant, 0
        spent_ns = time.perf_counter_ns() - started_ns
        self.rebind_count += 1
        self.rebind_ns += spent_ns
        return variant, spent_ns

    def _built(self, buffers: Mapping[str, Buffer], serial: bool, rebuild: bool) -> _Variant:
        """A variant in a native form of its own."""
        graph = rebound(self.graph, buffers) if buffers else self.graph
        by_hand = graph.ordering is Ordering.BARRIERS
        if buffers and (by_hand or not rebuild) and not np.array_equal(graph.edges, self.graph.edges):
            raise GraphChanged(
                f"replay with other buffers for {', '.join(buffers)}: which dispatches must wait for which would change"
                " (the new buffers overlap differently); "
                + ("its barriers were placed for the captured ones" if by_hand else "rebuild=True allows it")
            )
        bound = [buffer._allocation() for buffer in buffers.values()]
        variant = _Variant(graph, Ordering.SERIAL if serial else graph.ordering, self.graph, bound)
        self.rebuild_count += bool(buffers)
        names = tuple(sorted(buffers))
        if variant.is_movable and names not in self._movers:
            self._movers[names] = Mover(self.graph, names)
        return variant

    def _moved(self, key: tuple[Any, ...], names: tuple[str, ...], buffers: Mapping[str, Buffer]) -> _Variant | None:
        """A variant whose native form is changed to these buffers; None if it has to be built."""
        spare_key = self._spare(key, names)
        if spare_key is None:
            return None
        mover = self._movers[names]
        addresses = mover.addresses(buffers)
        if addresses is None:
            return None
        spare = self._variants.pop(spare_key)
        backend: Any = self._queue.backend
        executable = backend.moved(spare.parts[0].executable, mover.nodes, mover.positions, addresses)
        if executable is None:
            return None
        self._dropped[spare_key] = None
        if len(self._dropped) > _MAX_DROPPED:
            self._dropped.popitem(last=False)
        graph, bound = self.graph, [buffer._allocation() for buffer in buffers.values()]
        commands = graph.command_list.deferred(lambda: rebound(graph, buffers).command_list.nodes)
        return spare.moved(executable, commands, lambda: rebound(graph, buffers), bound)

    def _spare(self, key: tuple[Any, ...], names: tuple[str, ...]) -> tuple[Any, ...] | None:
        """The variant that new buffers of these names may take the place of; None if they should have their own.

        Buffers that come in turns keep a variant each: what was dropped and comes again is not put in another's place.
        """
        again = self._dropped.pop(key, False) is None
        if again and len(self._variants) < _MAX_VARIANTS:
            return None
        oldest = None
        for known, variant in self._variants.items():
            if variant.is_movable and known[2] == names and not known[0]:
                if not variant.reused:
                    return known
                oldest = oldest or known
        return oldest if len(self._variants) >= _MAX_VARIANTS else None

    __reduce_ex__ = refuse_copy

    def __repr__(self) -> str:
        return f"<Replayable {self.graph!r}>"

    def _repr_html_(self) -> str:
        return self.graph._repr_html_()
