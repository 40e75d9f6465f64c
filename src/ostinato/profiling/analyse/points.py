"""Where the kernels of a device lie under its roofline: what they move and compute per second, and how that is known.

A point stands for the commands of one kernel of which the same is known: bytes and flops, or one of them, declared or
bound. Grids of a kernel that reach very different rates are points of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .columns import Columns, Device, Floats, Ints
from .groups import extent, kernel_codes
from .roofline import Rates

_APART = 2.0
"""Grids whose rates or intensities differ by more than this factor are shown apart."""
_WEIGHTY = 0.05
"""Grids with less of a kernel's time than this part are taken together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Dispatches of one kernel on one device. Amounts are per dispatch, and None where they are not known."""

    kernel: str
    detail: str
    device_row: int
    grids: tuple[str, ...]
    """'4096×1×1 / 256×1×1': threads, and threads of a threadgroup; the one with the most time first."""
    runs: int
    total_ns: float
    """Of all that ran, each with the typical time of its command."""
    share: float | None
    """Of the busy time of the device; overlapping dispatches split it evenly."""
    bytes_moved: float | None
    bytes_are_bound: bool
    """They are those of the bound buffers, an upper bound."""
    bytes_refuted: bool
    """More is bound than can have moved, so that nothing is known."""
    flops: float | None
    efficiency: float | None
    """Of the nearer ceiling, at most 1; an upper bound where the bytes are."""
    nearer: str
    """That ceiling: "copy" or "flops"; "" where none was measured, or nothing is known."""

    @property
    def mean_ns(self) -> float:
        """The typical time of a dispatch."""
        return self.total_ns / self.runs

    @property
    def bytes_per_s(self) -> float | None:
        """Bandwidth."""
        return None if self.bytes_moved is None else self.bytes_moved / self.mean_ns * 1e9

    @property
    def flops_per_s(self) -> float | None:
        """Arithmetic rate."""
        return None if self.flops is None else self.flops / self.mean_ns * 1e9

    @property
    def flops_per_byte(self) -> float | None:
        """Arithmetic intensity; a lower bound where the bytes are an upper one."""
        return self.flops / self.bytes_moved if self.flops and self.bytes_moved else None


def points(columns: Columns, device: int, reached: Rates, busy_ns: Floats) -> list[Point]:
    """The points of a device, the largest share first.

    `busy_ns` is the busy time of each command on the device.
    """
    commands = columns.commands
    code, names = kernel_codes(columns)
    rows = np.flatnonzero((reached.count > 0) & (code >= 0) & (reached.total_ns > 0))
    if rows.size == 0:
        return []
    moved, flops = reached.bytes_moved[rows], reached.flops[rows]
    known = np.column_stack([~np.isnan(moved), ~np.isnan(flops), reached.bound[rows], reached.refuted[rows]])
    alike, kind = _numbered(np.column_stack([code[rows], known]))
    shapes, shape = _numbered(np.column_stack([kind, commands.threads[rows], commands.group[rows]]))
    sums: dict[str, Floats] = {
        name: np.bincount(shape, weights=np.nan_to_num(values) * weights, minlength=len(shapes)).astype(np.float64)
        for name, values, weights in (
            ("runs", reached.runs[rows], 1.0),
            ("total_ns", reached.total_ns[rows], 1.0),
            ("busy_ns", busy_ns[rows], 1.0),
            ("bytes", moved, reached.runs[rows]),
            ("flops", flops, reached.runs[rows]),
        )
    }
    is_dispatch = np.zeros(len(shapes), bool)
    is_dispatch[shape] = commands.kind[rows] == "dispatch"
    grids = [
        f"{extent(row[1:4])} / {extent(row[4:7])}" if dispatched else ""
        for row, dispatched in zip(shapes.tolist(), is_dispatch.tolist(), strict=True)
    ]
    facts, whole_ns = columns.devices[device], float(busy_ns.sum())
    made = []
    for number, (kernel, *flags) in enumerate(alike.tolist()):
        members = np.flatnonzero(shapes[:, 0] == number)
        for part in _apart(sums, members[np.argsort(-sums["total_ns"][members], kind="stable")]):
            total = {name: float(values[part].sum()) for name, values in sums.items()}
            shown = tuple(dict.fromkeys(filter(None, (grids[each] for each in part.tolist()))))
            made.append(_point(names[kernel], device, facts, shown, total, flags, whole_ns))
    return sorted(made, key=lambda point: (-(point.share or 0.0), -point.total_ns))


def _numbered(facts: Ints) -> tuple[Ints, Ints]:
    """The different rows, and the number of each."""
    different, number = np.unique(facts.astype(np.int64), axis=0, return_inverse=True)
    return different, number.reshape(-1)


def _apart(sums: dict[str, Floats], members: Ints) -> list[Ints]:
    """The grids of one kernel, longest first, in parts that become a point each."""
    spent = sums["total_ns"][members]
    weighty = spent >= _WEIGHTY * spent.sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        for amount, per in (("bytes", "total_ns"), ("flops", "total_ns"), ("flops", "bytes")):
            rate = (sums[amount] / sums[per])[members[weighty]]
            rate = rate[np.isfinite(rate) & (rate > 0)]
            if rate.size > 1 and rate.max() > _APART * rate.min():
                rest = members[~weighty]
                return [*np.split(members[weighty], int(weighty.sum())), *([rest] if rest.size else [])]
    return [members]


def _point(
    name: tuple[str, str],
    device: int,
    facts: Device,
    grids: tuple[str, ...],
    total: dict[str, float],
    flags: list[int],
    whole_ns: float,
) -> Point:
    bytes_known, flops_known, bound, refuted = map(bool, flags)
    runs, seconds = total["runs"], total["total_ns"] * 1e-9
    parts = {
        "copy": total["bytes"] / facts.copy_bytes_per_s if bytes_known and facts.copy_bytes_per_s else 0.0,
        "flops": total["flops"] / facts.flops_per_s if flops_known and facts.flops_per_s else 0.0,
    }
    nearer = max(parts, key=lambda ceiling: parts[ceiling])
    return Point(
        kernel=name[0],
        detail=name[1],
        device_row=device,
        grids=grids,
        runs=int(runs),
        total_ns=total["total_ns"],
        share=total["busy_ns"] / whole_ns if whole_ns > 0 else None,
        bytes_moved=total["bytes"] / runs if bytes_known else None,
        bytes_are_bound=bound and bytes_known,
        bytes_refuted=refuted,
        flops=total["flops"] / runs if flops_known else None,
        efficiency=min(parts[nearer] / seconds, 1.0) if parts[nearer] > 0 else None,
        nearer=nearer if parts[nearer] > 0 else "",
    )
