"""`ostinato devices`: list the devices and their capabilities."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..device import DeviceInfo, check_settings, devices, open_device
from ..errors import OstinatoError
from ..profiling.session import sampling_found
from .group import busy, main


@main.command("devices")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--probe", is_flag=True, help="Open each device and take a sample, to find out what it can time.")
def devices_command(as_json: bool, probe: bool) -> None:
    """List the devices and their capabilities, or the reason why a device cannot be used.

    \b
    Examples:
      ostinato devices --json
      ostinato devices --probe
    """
    check_settings()
    listed = devices()
    sampled = {device.name: _sampled(device) for device in listed if probe and device.available}
    if as_json:
        click.echo(json.dumps([_plain(device, sampled.get(device.name)) for device in listed], indent=2))
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("device", "state", "what"):
        table.add_column(heading)
    for device in listed:
        capabilities = device.capabilities
        if capabilities is None:
            table.add_row(device.name, "skipped", escape(device.reason))
            continue
        facts = [
            capabilities.description,
            f"{capabilities.workers} workers",
            f"{capabilities.max_threads_per_group} threads per group",
            f"simdgroups of {capabilities.simd_width}",
            f"{capabilities.threadgroup_memory_bytes >> 10} KiB threadgroup memory",
            *capabilities.details.values(),
        ]
        if device.name in sampled:
            facts.append(sampled[device.name])
        table.add_row(device.name, "ready", escape(", ".join(facts)))
    Console().print(table)


def _sampled(device: DeviceInfo) -> str:
    try:
        with busy("taking a sample"), open_device(device.name) as opened:
            return sampling_found(opened)[1]
    except OstinatoError as error:
        return f"cannot be opened: {error}"


def _plain(device: DeviceInfo, sampled: str | None) -> dict[str, Any]:
    capabilities = device.capabilities
    facts: dict[str, Any] = {"name": device.name, "available": device.available, "reason": device.reason}
    facts["capabilities"] = (
        None
        if capabilities is None
        else asdict(capabilities)
        | {"gates": sorted(capabilities.gates), "sampling": capabilities.sampling.name.lower()}
    )
    if sampled is not None:
        facts["sampling"] = sampled
    return facts
