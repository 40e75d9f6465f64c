"""Taking turns: which groups of a list are sampled in which of its runs.

A group is the dispatches between two barriers: they may run at the same time, so samples can only be taken around the
whole group. The first sampled run of a list samples every group, so that everything is timed once, in unchanged order:
a dispatch that is alone in its group exactly, the others by bounds. From then on groups take turns, to perturb a run
little: in each run one group in `SPARSE` is sampled, at least one. In a group of several, one dispatch is timed by
itself, after the others, which get no time in that run.

Every round has its own random order, drawn from the round's number, so after a round each group had its turn once.
Lists that cannot be distinguished share their turns; the random order keeps them from always missing the same groups.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from .encoding import Encoded, Group, Step

SPARSE = 32
"""Where a sample needs its own encoder, one group in this many is sampled per run."""

_REMEMBERED = 4096


def subsets_of(groups: int, costly: bool) -> int:
    """The number of turns in which this many groups are sampled; one if samples are cheap."""
    return max(1, min(groups, SPARSE)) if costly else 1


def sampled(groups: Sequence[Group], number: int, subsets: int) -> list[Group]:
    """The groups of a list in run `number` (from 0), with those marked whose turn it is."""
    if number == 0:
        return [group._replace(sampled=True) for group in groups]
    round_, turn = divmod(number - 1, subsets)
    chosen = _drawn(round_, subsets)[turn]
    marked: list[Group] = []
    for at, group in enumerate(groups):
        steps = group.steps
        if at % subsets != chosen:
            marked.append(group)
        elif len(steps) == 1:
            marked.append(group._replace(sampled=True))
        else:
            cycle, place = divmod(round_, len(steps))
            alone = _drawn(cycle, len(steps))[place]
            marked.append(Group([*steps[:alone], *steps[alone + 1 :]], group.barrier))
            marked.append(Group([steps[alone]], False, True))
    return marked


def _drawn(round_: int, count: int) -> Sequence[int]:
    """An order of `count` things for a round."""
    if count == 1:
        return (0,)
    return random.Random(round_ * 1_000_003 + count).sample(range(count), count)


class Turns:
    """Counts the sampled runs of lists that are submitted rather than replayed."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}

    def next(self, steps: Sequence[Step]) -> int:
        """The number of this run of a list. Lists are distinguished by kernels, grids, memory and barriers, in order;
        values and offsets may differ between runs of the same list."""
        key = hash(tuple((step.barrier, *_identity(step.encoded)) for step in steps))
        if len(self._numbers) >= _REMEMBERED:
            self._numbers.clear()
        number = self._numbers.get(key, 0)
        self._numbers[key] = number + 1
        return number


def _identity(encoded: Encoded) -> tuple[object, ...]:
    return encoded.pipeline, encoded.threads, encoded.group_size, tuple(number for _, number, _, _ in encoded.buffers)
