"""Tuning the products of a decoder: for each shape the launch parameters of `ops`, timed inside the graph of a token.

A decoder is captured while its device has `_Overrides` in the place of a tuned file: they note which sites operations
ask about, and answer with the candidate that is being tried. What is raced is thus the graph that a program would
capture with that choice in its file. Winners stay while the next shape is tuned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from ..errors import TuningError
from ..graph.graph import Graph
from ..ir.commands import Dispatch, InlineBinding
from ..models.decoder import Decoder
from ..profiling.analyse.comparison import Comparison
from ..runtime.queue import Queue
from ..runtime.tuned import Entry, Site
from . import space as spaces
from .comparing import compare
from .kept import now
from .oracle import Expectation, Oracle
from .racing import Limits, Progress
from .tuning import Task, Tuning, search

TOLERANCES: Mapping[str, float] = {"float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}
"""How far results may be apart where the order of additions changes."""
DELTA = 0.002
"""A product is a part of the token, so a smaller part of the whole is worth having than elsewhere."""

_LEAST_COMPARING_S = 3.0
_SiteKey = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class TunedProduct:
    """What was chosen for one shape."""

    kernel: str
    shape: str
    label: str
    """Where it is in the decoder, without the number of the layer."""
    dispatches: int
    """How many of a token are of this shape."""
    changes_sums: bool
    tuning: Tuning
    """By replays of the whole token."""
    alone: Tuning | None
    """What timing the product by itself would have chosen; None if that was not asked for."""
    entry: Entry


@dataclass(frozen=True, slots=True)
class TunedProducts:
    """The products of a decoder, and the token time before and after."""

    products: tuple[TunedProduct, ...]
    comparison: Comparison | None
    """Of the token with all choices, compared with none; None if no choice changed."""


class _Overrides:
    """Answers operations while a decoder is tuned."""

    description = ""

    def __init__(self) -> None:
        self.asked: list[Site] = []
        self.choices: dict[_SiteKey, Mapping[str, int]] = {}

    def choice(self, site: Site) -> Mapping[str, int] | None:
        self.asked.append(site)
        return self.choices.get(_key(site))


def _key(site: Site) -> _SiteKey:
    return site.kernel, site.source, site.shape


@contextmanager
def _overriding(queue: Queue) -> Iterator[_Overrides]:
    before, overrides = queue.tuned, _Overrides()
    queue.tuned = overrides
    try:
        yield overrides
    finally:
        queue.tuned = before


def tune_products(
    decoder: Decoder,
    *,
    seconds: float = 10.0,
    sums: bool = False,
    alone: bool = False,
    position: int = 0,
    delta: float = DELTA,
    confidence: float = 0.95,
    progress: Progress | None = None,
) -> TunedProducts:
    """Tune the products of a token, about `seconds` each, and compare the token with all choices and with none.

    `sums` also tries choices that change the order of additions. `alone` also tunes each product by itself, which
    changes nothing, for comparison. The decoder forgets its tokens. With a `confidence` of 0.95, a choice that is not
    faster is named for any product in at most 5 % of tunings.
    """
    progress = progress or (lambda what: None)
    queue, values = decoder.graph.queue, {"position": position}
    # Activations as a token leaves them: results of zeros would not tell one order of additions from another.
    decoder.reset()
    decoder.prefill([1, 2])
    decoder.step()
    decoder.reset()
    with _overriding(queue) as overrides:
        before, nodes = _captured(decoder, overrides)
        sites = {_key(site): site for site in overrides.asked}
        # The choices of all products are right together: each may be wrong with a part of the admitted error.
        limits = Limits(seconds, delta, 1 - (1 - confidence) / max(len(sites), 1))
        token = _Token(decoder, overrides, before, values, limits, sums, alone)
        tuned = []
        for number, (key, site) in enumerate(sites.items(), 1):

            def step(what: str, number: int = number, site: Site = site) -> None:
                progress(f"{number} of {len(sites)}, {site.kernel} {site.shape}: {what}")

            tuned.append(_tuned(token, site, [node for node, other in nodes.items() if other == key], step))
        if not any(each.tuning.improved for each in tuned):
            return TunedProducts(tuple(tuned), None)
        after, _ = _captured(decoder, overrides)
    progress("the token before and after")
    comparison = compare(
        before.optimise(),
        after.optimise(),
        names=("before", "tuned"),
        seconds=max(seconds / 2, _LEAST_COMPARING_S),
        delta=delta,
        confidence=confidence,
        values=values,
    )
    return TunedProducts(tuple(tuned), comparison)


@dataclass(frozen=True, slots=True)
class _Token:
    """The token whose products are tuned, and how."""

    decoder: Decoder
    overrides: _Overrides
    before: Graph
    """Its graph without tuned choices."""
    values: Mapping[str, Any]
    limits: Limits
    sums: bool
    alone: bool


def _captured(decoder: Decoder, overrides: _Overrides) -> tuple[Graph, dict[int, _SiteKey]]:
    """The graph of a token with the current choices, and the nodes that are products, each with its site."""
    overrides.asked.clear()
    graph = decoder.captured()
    nodes: dict[int, _SiteKey] = {}
    waiting = iter(overrides.asked)
    site = next(waiting, None)
    for number, command in enumerate(graph.commands):
        # Each site is asked about just before its dispatch is encoded.
        if site is not None and isinstance(command, Dispatch) and command.kernel.name.startswith(site.kernel):
            nodes[number] = _key(site)
            site = next(waiting, None)
    if site is not None:
        raise TuningError(f"no dispatch of {site.kernel} follows its choice")
    return graph, nodes


def _tuned(token: _Token, site: Site, nodes: Sequence[int], progress: Progress) -> TunedProduct:
    """Tune the product that is at these nodes of the token, and leave its choice in the overrides."""
    graphs: dict[tuple[Any, ...], Graph] = {}

    def whole(choice: Mapping[str, Any]) -> Graph:
        values = tuple(choice.values())
        if values not in graphs:
            token.overrides.choices[_key(site)] = dict(choice)
            graphs[values] = _captured(token.decoder, token.overrides)[0]
        return graphs[values]

    def single(choice: Mapping[str, Any]) -> Graph:
        graph = whole(choice)
        return graph.with_nodes([graph.nodes[nodes[0]]], outputs=None, splits=())

    choices = _choices(site, token.sums, single)
    first = single(choices[0])
    expectation = Expectation(dict(TOLERANCES) if token.sums else 0.0)
    task = Task(
        choices=choices,
        make=single,
        place=lambda choice, graph: whole(choice).optimise(),
        first=first,
        oracle=Oracle(first, spaces.text(choices[0]), expectation, token.values, _NO_SCRATCH),
        values=token.values,
        space_size=len(choices),
    )
    # Without trials in a child process: the kernels are our own.
    by_itself = None
    if token.alone:
        by_itself = search(replace(task, place=None), token.limits, lambda what: progress(f"alone, {what}"))
    tuning = search(task, token.limits, progress)
    token.overrides.choices[_key(site)] = dict(tuning.choice)
    changed = {name for name in tuning.choice if tuning.choice[name] != tuning.first[name]}
    label = (token.before.nodes[nodes[0]].label or "").split("/")
    gain = tuning.gain
    entry = Entry(
        kernel=site.kernel,
        source=site.source,
        shape=site.shape,
        choice=dict(tuning.choice),
        first=dict(tuning.first),
        ratio=None if gain is None else (gain.estimate, gain.low, gain.high),
        changes_sums=bool(changed & site.changes_sums),
        inside=True,
        measured=now(),
    )
    return TunedProduct(
        site.kernel,
        site.shape,
        "/".join(part for part in label if not part.startswith("layer.") and part != "decode"),
        len(nodes),
        entry.changes_sums,
        tuning,
        by_itself,
        entry,
    )


_NO_SCRATCH = 1 << 62


def _choices(site: Site, sums: bool, single: Callable[[Mapping[str, Any]], Graph]) -> list[Mapping[str, Any]]:
    """The choices of a site, the rules' own first, without those that come to the same dispatch."""
    allowed = {
        name: (site.defaults[name], *(value for value in values if value != site.defaults[name]))
        if sums or name not in site.changes_sums
        else (site.defaults[name],)
        for name, values in site.values.items()
    }
    choices: dict[object, Mapping[str, Any]] = {}
    for values in product(*allowed.values()):
        choice = dict(zip(allowed, values, strict=True))
        if site.fits(choice) or not choices:
            choices.setdefault(_form(single(choice)), choice)
    return list(choices.values())[: spaces.MOST_TRIED]


def _form(graph: Graph) -> object:
    """What tells one dispatch from another of the same buffers."""
    (command,) = graph.commands
    assert isinstance(command, Dispatch)
    inline = tuple(binding for binding in command.bindings if isinstance(binding, InlineBinding))
    return command.kernel.name, command.groups, command.threads, command.group_size, command.shared, inline
