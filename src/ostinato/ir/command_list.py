"""The one list of commands that an encoder records, a graph keeps, passes change and a backend runs.

A list is immutable. What follows from it (its order, the offsets of its parameters' values) is computed on first use
and cached on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from ..base.printable import printable
from . import hazards, ordering
from .commands import (
    Access,
    Barrier,
    BufferBinding,
    CapturedOpKind,
    Command,
    Dispatch,
    Ordering,
    ParamBinding,
    bound,
)
from .ordering import Order

if TYPE_CHECKING:
    from ..base.source_lines import Place
    from .params import Param

_VALUE_ALIGNMENT = 16
_COMMAND, _LOWERED = itemgetter(0), itemgetter(3)  # fields of a node, as every commit asks for them
_NO_PARAMS: Mapping[str, Param] = MappingProxyType({})


class CapturedNode(NamedTuple):
    """One command of a list, and where it came from. (A tuple, because encoding makes very many.)"""

    command: Command
    place: Place | None = None
    """The line that encoded it."""
    origin: tuple[int, ...] = ()
    """The nodes of the captured graph that it replaces; several when they were fused."""
    lowered: Any = None
    """The command lowered for its backend, an object of that backend; None when the graph is on no device."""

    @property
    def kind(self) -> str:
        """One of "dispatch", "barrier", "copy" and "fill"."""
        return type(self.command).__name__.lower()

    @property
    def name(self) -> str:
        """The kernel's name; the kind for a command that is not a dispatch."""
        return self.command.kernel.name if isinstance(self.command, Dispatch) else self.kind

    @property
    def label(self) -> str | None:
        """The scopes it was encoded in, joined by '/'."""
        return None if isinstance(self.command, Barrier) else self.command.label

    @property
    def op_kind(self) -> CapturedOpKind:
        """What it computes, for passes."""
        return self.command.op_kind if isinstance(self.command, Dispatch) else CapturedOpKind.Other

    @property
    def accesses(self) -> tuple[Access, ...] | None:
        """The memory it uses; None for a barrier, and when it is not known."""
        return hazards.accesses_of(self.command)

    @property
    def buffers(self) -> tuple[BufferBinding, ...]:
        """The ranges of memory bound to it."""
        return bound(self.command)

    def __str__(self) -> str:
        where = f" ({self.place})" if self.place else ""
        return printable(f"{self.label + '/' if self.label else ''}{self.name}{where}", 200)


class ParamUse(NamedTuple):
    """A binding of a node whose value is passed to each replay."""

    node: int
    position: int
    """Position among the bindings of the dispatch."""
    start: int
    """First byte of the value in a replay's block of values."""
    nbytes: int


@dataclass(frozen=True, eq=False, init=False)
class CommandList:
    """Commands in the order they were encoded, what orders them, and the parameters whose values replays pass."""

    nodes: tuple[CapturedNode, ...]
    ordering: Ordering
    params: Mapping[str, Param]

    def __init__(
        self, nodes: tuple[CapturedNode, ...], ordering: Ordering, params: Mapping[str, Param] = _NO_PARAMS
    ) -> None:
        # Every commit makes one; assigning to the fields of a frozen class is slow.
        fields = self.__dict__
        fields["nodes"], fields["ordering"], fields["params"] = nodes, ordering, params

    def deferred(self, nodes: Callable[[], tuple[CapturedNode, ...]]) -> CommandList:
        """The list with other nodes, which are made when they are first asked for."""
        made = object.__new__(CommandList)
        made.__dict__.update(ordering=self.ordering, params=self.params, _make_nodes=nodes)
        return made

    def __getattr__(self, name: str) -> Any:
        make = self.__dict__.get("_make_nodes")
        if name != "nodes" or make is None:
            raise AttributeError(name)
        nodes = self.__dict__["nodes"] = make()
        return nodes

    def __len__(self) -> int:
        return len(self.nodes)

    @cached_property
    def commands(self) -> tuple[Command, ...]:
        """The commands of the nodes."""
        return tuple(map(_COMMAND, self.nodes))

    @property
    def lowered(self) -> list[Any]:
        """The commands in the form of the backend that runs them."""
        return list(map(_LOWERED, self.nodes))

    @cached_property
    def dispatches(self) -> int:
        """How many of the nodes are dispatches."""
        return sum(isinstance(command, Dispatch) for command in self.commands)

    @cached_property
    def order(self) -> Order:
        """The order that the list runs in."""
        if self.ordering is Ordering.INFERRED:
            return self.hazards
        return ordering.order(self.commands, self.ordering)

    @cached_property
    def hazards(self) -> Order:
        """The order that the commands' memory and the barriers require, whatever `ordering` is."""
        on_device = any(node.lowered is not None for node in self.nodes[:1])
        # A graph loaded from a file has nothing compiled, so the engine in Python does it.
        return ordering.infer(self.commands) if on_device else ordering.infer_plainly(self.commands)

    @property
    def is_ordered(self) -> bool:
        """Whether the order has been computed already."""
        return "order" in self.__dict__

    @cached_property
    def value_offsets(self) -> Mapping[str, int]:
        """The offset of each parameter's value in a replay's block of values, in bytes."""
        offsets, end = {}, 0
        for name, param in self.params.items():
            offsets[name] = end
            end += -(-param.nbytes // _VALUE_ALIGNMENT) * _VALUE_ALIGNMENT
        return offsets

    @cached_property
    def value_bytes(self) -> int:
        """Size of a replay's block of values."""
        return max((self.value_offsets[name] + param.nbytes for name, param in self.params.items()), default=0)

    @cached_property
    def param_uses(self) -> tuple[ParamUse, ...]:
        """The bindings whose values are passed to each replay."""
        return tuple(
            ParamUse(node, position, self.value_offsets[binding.name], binding.nbytes)
            for node, command in enumerate(self.commands)
            if isinstance(command, Dispatch)
            for position, binding in enumerate(command.bindings)
            if isinstance(binding, ParamBinding)
        )

    @classmethod
    def of(cls, commands: Iterable[Command], ordering: Ordering, lower: Callable[[Command], Any]) -> CommandList:
        """A list of commands, lowered by a backend's `lower`."""
        return cls(tuple(CapturedNode(command, lowered=lower(command)) for command in commands), ordering)

    def part(self, first: int, end: int) -> CommandList:
        """Nodes `first` to `end` (exclusive) as a list of their own."""
        return self if (first, end) == (0, len(self)) else replace(self, nodes=self.nodes[first:end])

    def with_ordering(self, ordering: Ordering) -> CommandList:
        """The same nodes with another ordering."""
        return self if ordering is self.ordering else replace(self, ordering=ordering)

    def with_nodes(self, nodes: Iterable[CapturedNode]) -> CommandList:
        """Other nodes with the same ordering and parameters."""
        return replace(self, nodes=tuple(nodes))
