"""How an operation is launched: by its own rules, or as a file of tuned choices says.

An operation describes where it has a choice: its parameters, what each may be, which of them change the order of
additions. `choose` returns the rules' values unless the device was opened with tuned choices that have an entry for
this source and shape.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..encode.encoder import CommandEncoder
from ..runtime.tuned import Site
from . import compiled


def choose(
    encoder: CommandEncoder,
    source: str,
    function: str,
    kernel: str,
    shape: tuple[int, ...],
    defaults: Mapping[str, int],
    values: Mapping[str, tuple[int, ...]],
    changes_sums: frozenset[str] = frozenset(),
    multiple: tuple[str, tuple[str, ...], int] | None = None,
) -> Mapping[str, int]:
    """The parameters to launch a kernel with; `function` is one of its instances in the built-in `source`."""
    choices = encoder._queue.tuned
    if choices is None:
        return defaults
    key = compiled.module(source).kernel_key(function)
    named = "x".join(map(str, shape))
    return choices.choice(Site(kernel, key, named, defaults, values, changes_sums, multiple)) or defaults
