"""What the GPU families of Apple allow, as Apple's "Metal Feature Set Tables" of May 21, 2026 have it.

A device reports every family that it belongs to: an M2 is apple8 and all Apple families before it, mac2 and metal3. The
tables have a row for each limit and each feature; here are those that matter to a kernel and its dispatch. What all
families share (31 buffers, 31 threadgroup arguments, values of 4 KB, threadgroup memory in multiples of 16 bytes) holds
for every device of this library.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ArgumentError
from ..msl.features import FEATURES

_APPLE = range(2, 11)


@dataclass(frozen=True, slots=True)
class Family:
    """The limits of one GPU family, and the features that all its devices have."""

    name: str
    features: frozenset[str]
    group_threads: int = 1024
    """Threads per threadgroup at most; a kernel that needs many registers gets fewer."""
    threadgroup_bytes: int = 32 << 10
    constant_arguments: int = 31
    constant_alignment: int = 4
    """Of the offset at which a buffer is bound to an argument in constant memory, in bytes."""
    clips_groups: bool = True
    """Whether a grid may end inside a threadgroup."""


# For each feature, the first Apple family that has it, and the other families that do.
_SINCE: dict[str, tuple[int, str]] = {
    "SIMD-scoped permute functions": (6, "mac2 metal3 metal4"),
    "SIMD-scoped reduction functions": (7, "mac2 metal3 metal4"),
    "SIMD shift and fill": (8, ""),
    "SIMD-scoped matrix functions": (7, "metal4"),
    "quad-scoped permute functions": (4, "mac2 metal3 metal4"),
    "quad-scoped ballots": (6, "mac2 metal3 metal4"),
    "quad-scoped reduction functions": (7, "mac2 metal3 metal4"),
    "floating-point atomics": (7, "mac2 metal3 metal4"),
    "64-bit atomics": (9, ""),
    "bfloat": (6, "mac2 metal3 metal4"),
    "tensors": (7, "metal4"),
    "shader logging": (6, "metal4"),
}
assert _SINCE.keys() == {*FEATURES}


def _features(name: str) -> frozenset[str]:
    number = int(name.removeprefix("apple")) if name.startswith("apple") else 0
    return frozenset(
        feature for feature, (first, others) in _SINCE.items() if number >= first or name in others.split()
    )


def _apple(number: int) -> Family:
    name = f"apple{number}"
    if number < 4:
        nbytes = 16352 if number == 2 else 16 << 10
        return Family(name, _features(name), group_threads=512, threadgroup_bytes=nbytes, clips_groups=False)
    return Family(name, _features(name))


FAMILIES = {
    family.name: family
    for family in (
        *map(_apple, _APPLE),
        Family("mac2", _features("mac2"), constant_arguments=14, constant_alignment=32),
        Family("metal3", _features("metal3"), constant_arguments=14, constant_alignment=32),
        Family("metal4", _features("metal4")),
    )
}


def family(name: object) -> Family:
    """The family of this name; raises `ArgumentError` with all names if there is none."""
    if not isinstance(name, str) or name not in FAMILIES:
        raise ArgumentError(f"no GPU family {name!r}; there are {', '.join(FAMILIES)}")
    return FAMILIES[name]


def having(feature: str) -> str:
    """The families that have a feature, as text."""
    first, others = _SINCE[feature]
    return ", ".join((f"apple{first} and later", *others.split()))
