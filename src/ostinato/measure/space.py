"""What a tuning chooses from: every combination of the values of its parameters.

Combinations are numbered as nested loops would visit them, the last parameter fastest, so the first combination has the
first value of each. Values are any Python objects; in files and reports a value is its *written* form.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from ..base.printable import printable
from ..errors import ArgumentError

Space = Mapping[str, Sequence[Any]]
Choice = Mapping[str, Any]

MOST_TRIED = 256
"""A larger space is sampled: the best of so many random combinations is among the best 2 % with probability 99 %."""
_LONGEST = 200


def checked(space: Any) -> dict[str, tuple[Any, ...]]:
    """The space as tuples; raises an `ArgumentError` for one that offers nothing, or one value twice."""
    if not isinstance(space, Mapping) or not space:
        raise ArgumentError(f"space: expected {{name: values}} with at least one name, got {space!r}")
    parameters = {}
    for name, values in space.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise ArgumentError(f"space: {name!r} is not the name of an argument")
        if isinstance(values, str | bytes) or not isinstance(values, Sequence) or not len(values):
            raise ArgumentError(f"space: the values of {name!r} are a list with at least one, not {values!r}")
        forms = [json.dumps(written(value)) for value in values]
        twice = next((form for form in forms if forms.count(form) > 1), None)
        if twice is not None:
            raise ArgumentError(f"space: {name!r} has the value {twice} twice")
        parameters[name] = tuple(values)
    return parameters


def size(space: Space) -> int:
    """How many combinations there are."""
    return math.prod(len(values) for values in space.values())


def combinations(space: Space, most: int = MOST_TRIED, seed: int = 0) -> list[Choice]:
    """All combinations in order; of a space with more than `most`, the first and a random sample of the others."""
    total = size(space)
    numbers: Sequence[int] = range(total)
    if total > most:
        numbers = [0, *sorted(random.Random(seed).sample(range(1, total), most - 1))]
    return [_combination(space, number) for number in numbers]


def _combination(space: Space, number: int) -> Choice:
    choice = {}
    for name, values in reversed(list(space.items())):
        number, at = divmod(number, len(values))
        choice[name] = values[at]
    return {name: choice[name] for name in space}


def written(value: Any) -> Any:
    """A value as JSON holds it: numbers and texts as they are, functions and classes by name, others by their repr."""
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, tuple | list) and len(value) <= 16:
        return [written(part) for part in value]
    name = getattr(value, "__qualname__", None) or getattr(value, "name", None)
    return printable(name if isinstance(name, str) else repr(value), _LONGEST)


def written_choice(choice: Choice) -> dict[str, Any]:
    """A choice with its values in written form."""
    return {name: written(value) for name, value in choice.items()}


def text(choice: Choice) -> str:
    """A choice in words: "group=64, unroll=4"."""
    return printable(", ".join(f"{name}={written(value)}" for name, value in choice.items()), _LONGEST)


def digest(space: Space) -> str:
    """The same for spaces of the same names and written values."""
    forms = [[name, [written(value) for value in values]] for name, values in space.items()]
    return hashlib.sha256(json.dumps(forms).encode()).hexdigest()[:16]


def found_again(space: Space, kept: Mapping[str, Any]) -> Choice | None:
    """The combination of a written choice; None if the space does not have it."""
    if kept.keys() != space.keys():
        return None
    choice = {}
    for name, values in space.items():
        matching = [value for value in values if json.dumps(written(value)) == json.dumps(kept[name])]
        if not matching:
            return None
        choice[name] = matching[0]
    return choice
