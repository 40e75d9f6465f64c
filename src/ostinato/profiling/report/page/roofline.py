"""The view "roofline": kernels by flops per byte and flop/s under the measured ceilings of each device.

Kernels that declare no flops have no place in that chart. They are given with their bandwidth alone, and those of which
nothing is known with the reason.
"""

from __future__ import annotations

from typing import Any

from ...analyse import formatting
from ...analyse.columns import Device
from ...analyse.points import Point
from ..text import visible
from .material import Material, kernel_rows
from .sentences import sentence

_MOST_POINTS = 300
"""Of one device; those with the largest shares are kept."""
_MOST_GRIDS = 4


def roofline(material: Material) -> dict[str, Any] | None:
    """The points of every device that has any, with its ceilings."""
    summary = material.summary
    rows = kernel_rows(summary)
    devices = [
        _device(device, [point for point in summary.points if point.device_row == number], rows)
        for number, device in enumerate(summary.devices)
    ]
    devices = [device for device in devices if device["points"]]
    return {"devices": devices} if devices else None


def _device(device: Device, points: list[Point], rows: dict[tuple[str, str], int]) -> dict[str, Any]:
    kept, left_out = points[:_MOST_POINTS], points[_MOST_POINTS:]
    part = sum(point.share or 0.0 for point in left_out)
    notes = [sentence(text) for text in device.raised]
    if device.ceilings_busy:
        notes.append("the machine was busy when the ceilings were measured, so they may be too low")
    if left_out:
        counted = formatting.count(len(left_out), "more point")
        notes.append(sentence(f"{counted} with {formatting.percent(part)} of the busy time are left out"))
    return {
        "name": visible(device.name),
        "copy": _ceiling(device.copy_bytes_per_s, device.copy_spread),
        "flops": _ceiling(device.flops_per_s, device.flops_spread),
        "notes": notes,
        "points": [_point(point, rows) for point in kept],
    }


def _ceiling(rate: float | None, spread: float | None) -> dict[str, Any] | None:
    return {"rate": rate, "spread": spread} if rate else None


def _point(point: Point, rows: dict[tuple[str, str], int]) -> dict[str, Any]:
    return {
        "kernel": rows.get((point.kernel, point.detail), -1),
        "grid": _grids(point.grids),
        "runs": point.runs,
        "mean_ns": point.mean_ns,
        "total_ns": point.total_ns,
        "share": point.share,
        "flops_per_byte": point.flops_per_byte,
        "flops_per_s": point.flops_per_s,
        "bytes_per_s": point.bytes_per_s,
        "bound": point.bytes_are_bound,
        "efficiency": point.efficiency,
        "nearer": point.nearer,
        "why_not": _why_not(point),
    }


def _grids(grids: tuple[str, ...]) -> str:
    more = len(grids) - _MOST_GRIDS
    return "; ".join(grids[:_MOST_GRIDS]) + (f" and {formatting.count(more, 'more grid')}" if more > 0 else "")


def _why_not(point: Point) -> str:
    """Why neither bytes nor flops per second are known; "" where one of them is."""
    if point.bytes_per_s or point.flops_per_s:
        return ""
    if point.bytes_refuted:
        return "bound to more bytes than it can have moved; declare its bytes"
    if point.bytes_moved == 0:
        return "declares that it moves no bytes, and no flops"
    return "declares neither bytes nor flops, and no buffers are bound"
