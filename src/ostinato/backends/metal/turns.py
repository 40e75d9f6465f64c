"""Whose turn it is to be timed: which groups of a list are sampled in which of its runs.

What stands between two barriers is a group: it may run at the same time, so samples can only be taken around all of it.
The first sampled run of a list samples every group, so that everything was timed once: a dispatch that is alone in its
group exactly, one of several by bounds, and nothing of their order changes. From then on groups take turns, so that a
run is little changed: in each run one in `SPARSE` is sampled, at least one, and of a group of several one dispatch by
itself, after the others, which have no time in that run.

In what order they take turns is drawn anew for every round, from the round's number. So after a round each had its turn
once; and lists that cannot be told apart, and so share their turns, do not miss the same ones for ever.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from .encoding import Encoded, Group, Step

SPARSE = 32
"""Where a sample costs an encoder, one group in so many is sampled in a run."""

_REMEMBERED = 4096


def subsets_of(groups: int, costly: bool) -> int:
    """In how many turns so many groups are sampled, where samples are costly or not."""
    return max(1, min(groups, SPARSE)) if costly else 1


def sampled(groups: Sequence[Group], number: int, subsets: int) -> list[Group]:
    """The groups of a list in its run of this number, from 0, those marked whose turn it is."""
    if number == 0:
        return [group._replace(sampled=True) for group in groups]
    round_, turn = divmod(number - 1, subsets)
    chosen = _drawn(round_, subsets)[turn]
    found: list[Group] = []
    for at, group in enumerate(groups):
        steps = group.steps
        if at % subsets != chosen:
            found.append(group)
        elif len(steps) == 1:
            found.append(group._replace(sampled=True))
        else:
            cycle, place = divmod(round_, len(steps))
            alone = _drawn(cycle, len(steps))[place]
            found.append(Group([*steps[:alone], *steps[alone + 1 :]], group.barrier))
            found.append(Group([steps[alone]], False, True))
    return found


def _drawn(round_: int, count: int) -> Sequence[int]:
    """An order of `count` things for a round."""
    if count == 1:
        return (0,)
    return random.Random(round_ * 1_000_003 + count).sample(range(count), count)


class Turns:
    """How often lists that are submitted, and not replayed, were sampled before."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}

    def next(self, steps: Sequence[Step]) -> int:
        """The number of a list's run. Lists are told apart by kernels, grids, memory and barriers, in order: values
        and places within the memory differ from run to run of the same list."""
        key = hash(tuple((step.barrier, *_identity(step.encoded)) for step in steps))
        if len(self._numbers) >= _REMEMBERED:
            self._numbers.clear()
        number = self._numbers.get(key, 0)
        self._numbers[key] = number + 1
        return number


def _identity(one: Encoded) -> tuple[object, ...]:
    return one.pipeline, one.threads, one.group_size, tuple(number for _, number, _, _ in one.buffers)
