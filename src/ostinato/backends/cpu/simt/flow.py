"""The flow of a function: dominators, loops, and the regions in which lanes may part.

A region begins behind a block whose branch differs between lanes (its head) and ends where all lanes come together
again (its end). It has no other way in. Inside, its blocks can be visited in one order that is right for all lanes,
loops being contiguous: `Region.items`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from .code import Function, Refused


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """A natural loop."""

    header: str
    blocks: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """Blocks between `head` and `end`, without these two; `items` are names of blocks, and lists for loops."""

    head: str
    end: str
    blocks: frozenset[str]
    items: Sequence[object]


class Flow:
    """What can be known of a function's flow without knowing its values."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.successors = {name: list(dict.fromkeys(b.successors)) for name, b in function.blocks.items()}
        self.entry = next(iter(function.blocks))
        self.order = _reverse_postorder(self.entry, self.successors.__getitem__)
        for name in set(function.blocks) - set(self.order):
            del function.blocks[name], self.successors[name]
        if function.exit not in self.successors:
            raise Refused("it never ends")
        self.predecessors: dict[str, list[str]] = {name: [] for name in self.order}
        for name in self.order:
            for successor in self.successors[name]:
                self.predecessors[successor].append(name)
        self._place = {name: place for place, name in enumerate(self.order)}
        backwards = _reverse_postorder(function.exit, self.predecessors.__getitem__)
        if len(backwards) != len(self.order):
            raise Refused("a loop that never ends")
        self.dominator = _dominators(self.order, self.predecessors)
        self.postdominator = _dominators(backwards, self.successors)
        self.loops = self._find_loops()
        self.loops_of: dict[str, list[Loop]] = {
            name: sorted((loop for loop in self.loops if name in loop.blocks), key=lambda loop: -len(loop.blocks))
            for name in self.order
        }
        """Outermost first."""

    def dominates(self, above: str, below: str) -> bool:
        """Whether every way to `below` leads over `above`."""
        at: str | None = below
        while at is not None and self._place[at] >= self._place[above]:
            if at == above:
                return True
            at = self.dominator[at]
        return False

    def is_back_edge(self, source: str, target: str) -> bool:
        """Whether an edge closes a loop."""
        return self._place[source] >= self._place[target]

    def _find_loops(self) -> list[Loop]:
        bodies: dict[str, set[str]] = {}
        for name in self.order:
            for header in self.successors[name]:
                if not self.is_back_edge(name, header):
                    continue
                if not self.dominates(header, name):
                    raise Refused("a loop with two ways in")
                body = bodies.setdefault(header, {header})
                queue = [name]
                while queue:
                    at = queue.pop()
                    if at not in body:
                        body.add(at)
                        queue.extend(self.predecessors[at])
        return [Loop(header, frozenset(body)) for header, body in bodies.items()]

    def between(self, head: str, end: str) -> set[str]:
        """The blocks that can be reached from `head` without passing `end`."""
        reached: set[str] = set()
        queue = [name for name in self.successors[head] if name != end]
        while queue:
            at = queue.pop()
            if at not in reached:
                reached.add(at)
                queue.extend(name for name in self.successors[at] if name != end)
        return reached

    def influence(self, block: str) -> tuple[str, set[str]]:
        """Where lanes that part in a block meet again at the latest, and the blocks in between."""
        end = self.postdominator[block]
        assert end is not None
        return end, self.between(block, end)

    # -- regions ----------------------------------------------------------------------------------------------------

    def regions(self, divergent: Iterable[str]) -> list[Region]:
        """The smallest disjoint regions that cover the influence of all `divergent` blocks."""
        found: list[tuple[str, str, set[str]]] = []
        for block in divergent:
            grown = self._grown(block)
            # Regions that touch become one.
            while True:
                other = next((r for r in found if (r[2] | {r[0]}) & grown[2] or grown[0] in r[2]), None)
                if other is None:
                    break
                found.remove(other)
                grown = self._around([*grown[2], grown[0], *other[2], other[0]])
            found.append(grown)
        return [Region(head, end, frozenset(blocks), self._items(blocks)) for head, end, blocks in found]

    def _grown(self, head: str) -> tuple[str, str, set[str]]:
        end = self.postdominator[head]
        assert end is not None
        blocks = self.between(head, end)
        if self._closed(head, blocks):
            return head, end, blocks
        return self._around([*blocks, head])

    def _closed(self, head: str, blocks: set[str]) -> bool:
        return head not in blocks and all(
            name in blocks or name == head for block in blocks for name in self.predecessors[block]
        )

    def _around(self, inside: Sequence[str]) -> tuple[str, str, set[str]]:
        """The smallest region whose blocks, or whose head, are all of `inside`."""
        head = _common(inside, self.dominator, self._place.__getitem__)
        end = _common(inside, self.postdominator, lambda name: -self._place[name])
        while True:
            while end in inside or end == head:
                end = self.postdominator[end]  # type: ignore[assignment]
            blocks = self.between(head, end)
            if self._closed(head, blocks) and set(inside) <= blocks | {head}:
                return head, end, blocks
            above = self.dominator[head]
            if above is None:
                raise Refused("lanes part in a loop around the whole kernel")
            head = above
            end = _common([head, end], self.postdominator, lambda name: -self._place[name])
            if end == head:
                end = self.postdominator[end]  # type: ignore[assignment]

    def _items(self, blocks: set[str], around: Loop | None = None) -> list[object]:
        """The blocks in an order in which every edge but those that close loops leads forward."""
        inner = [loop for loop in self.loops if loop.blocks <= blocks and loop is not around]
        outermost = [loop for loop in inner if not any(loop.blocks < other.blocks for other in inner)]
        loop_of = {name: loop for loop in outermost for name in loop.blocks}
        items: list[object] = []
        done: set[str] = set()
        units = {name: loop_of[name].header if name in loop_of else name for name in blocks}
        needed: dict[str, set[str]] = {unit: set() for unit in units.values()}
        for name in blocks:
            for before in self.predecessors[name]:
                closes = around is not None and name == around.header
                if before in units and units[before] != units[name] and not closes:
                    needed[units[name]].add(units[before])
        waiting = sorted(needed, key=self._place.__getitem__)
        while waiting:
            unit = next((unit for unit in waiting if needed[unit] <= done), None)
            if unit is None:
                raise Refused("flow without an order")
            waiting.remove(unit)
            done.add(unit)
            loop = loop_of.get(unit)
            items.append(unit if loop is None else self._items(set(loop.blocks), loop))
        return items


def _reverse_postorder(entry: str, successors: Callable[[str], Sequence[str]]) -> list[str]:
    order: list[str] = []
    seen = {entry}
    stack = [(entry, iter(successors(entry)))]
    while stack:
        name, rest = stack[-1]
        for successor in rest:
            if successor not in seen:
                seen.add(successor)
                stack.append((successor, iter(successors(successor))))
                break
        else:
            order.append(name)
            stack.pop()
    return order[::-1]


def _dominators(order: Sequence[str], predecessors: Mapping[str, Sequence[str]]) -> dict[str, str | None]:
    """The closest dominator of each block, by the iteration of Cooper, Harvey and Kennedy."""
    place = {name: number for number, name in enumerate(order)}
    above: dict[str, str | None] = {order[0]: order[0]}
    changed = True
    while changed:
        changed = False
        for name in order[1:]:
            closest: str | None = None
            for before in predecessors[name]:
                if before not in above:
                    continue
                if closest is None:
                    closest = before
                    continue
                first, second = before, closest
                while first != second:
                    while place[first] > place[second]:
                        first = above[first]  # type: ignore[assignment]
                    while place[second] > place[first]:
                        second = above[second]  # type: ignore[assignment]
                closest = first
            if above.get(name) != closest:
                above[name] = closest
                changed = True
    above[order[0]] = None
    return above


def _common(names: Sequence[str], above: Mapping[str, str | None], place: Callable[[str], int]) -> str:
    """The closest common ancestor in a tree of dominators."""

    def path(name: str) -> list[str]:
        steps: list[str] = []
        at: str | None = name
        while at is not None:
            steps.append(at)
            at = above[at]
        return steps[::-1]

    shared = path(names[0])
    for name in names[1:]:
        other = path(name)
        count = 0
        while count < min(len(shared), len(other)) and shared[count] == other[count]:
            count += 1
        shared = shared[:count]
    return shared[-1]
