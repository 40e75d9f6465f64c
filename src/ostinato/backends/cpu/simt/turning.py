"""Words that lanes read from places of their own, as vectors over the lanes.

Each lane's words are read at once, and a network of shuffles turns rows of lanes into columns of words. It stays inside
of 16 bytes as far as it can, where processors shuffle best, and does the same in each part of the vectors, so that it
suits registers of any width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .code import LANES, wide

if TYPE_CHECKING:
    from .emission import Emitter

_WORDS = wide("i32")


def turned(emitter: Emitter, count: int, address: Callable[[int], str], adjoining: bool) -> list[str]:
    """A vector over the lanes for each of two, four or eight words that lie at each lane's address.

    `adjoining`: the words of every odd lane follow those of the lane before it.
    """

    def read(lane: int, words: int) -> str:
        return emitter.new(f"load <{words} x i32>, ptr {address(lane)}, align 1")

    def row(first: int) -> str:
        """The words of every `count`th lane."""
        return joined(emitter, [read(lane, count) for lane in range(first, LANES, count)], "i32", count)

    def of_pairs(first: int) -> str:
        """The two words of two neighbours in every four lanes."""
        if adjoining:
            return joined(emitter, [read(lane, 4) for lane in range(first, LANES, 4)], "i32", 4)
        return joined(emitter, [read(lane + k, 2) for lane in range(first, LANES, 4) for k in range(2)], "i32", 2)

    if count == 2:
        first, second = of_pairs(0), of_pairs(2)
        return [_mixed(emitter, first, second, [word, 2 + word, 4 + word, 6 + word]) for word in range(2)]
    rows = [row(first) for first in range(count)]
    if count == 4:
        return _turned_fours(emitter, rows)
    low, high = _turned_fours(emitter, rows[:4]), _turned_fours(emitter, rows[4:])
    return [
        _mixed(emitter, first, second, [half, half + 1, half + 2, half + 3, *range(half + 8, half + 12)])
        for half in (0, 4)
        for first, second in zip(low, high, strict=True)
    ]


def _turned_fours(emitter: Emitter, rows: Sequence[str]) -> list[str]:
    """Four words of four rows turned, in each four of the vectors."""
    pairs = [
        _mixed(emitter, first, second, [half, 4 + half, 1 + half, 5 + half])
        for half in (0, 2)
        for first, second in (rows[:2], rows[2:])
    ]
    return [
        _mixed(emitter, first, second, [half, 1 + half, 4 + half, 5 + half])
        for first, second in (pairs[:2], pairs[2:])
        for half in (0, 2)
    ]


def _mixed(emitter: Emitter, first: str, second: str, places: Sequence[int]) -> str:
    """A shuffle that does the same in each part of so many words; further places are those of the second vector."""
    size = len(places)
    indices = ", ".join(
        f"i32 {begin + place if place < size else LANES + begin + place - size}"
        for begin in range(0, LANES, size)
        for place in places
    )
    return emitter.new(f"shufflevector {_WORDS} {first}, {_WORDS} {second}, <{LANES} x i32> <{indices}>")


def joined(emitter: Emitter, pieces: Sequence[str], type_: str, width: int) -> str:
    """Vectors of so many elements, one after the other, as one."""
    while len(pieces) > 1:
        kind = f"<{width} x {type_}>"
        places = ", ".join(f"i32 {place}" for place in range(2 * width))
        pieces = [
            emitter.new(f"shufflevector {kind} {first}, {kind} {second}, <{2 * width} x i32> <{places}>")
            for first, second in zip(pieces[::2], pieces[1::2], strict=True)
        ]
        width *= 2
    return pieces[0]
