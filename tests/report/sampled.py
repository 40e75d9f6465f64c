"""Recordings that the reports are tried on."""

from __future__ import annotations

from ostinato.profiling.analyse.columns import Device
from synthetic import Synthetic, node

HOSTILE = ("[red]x[/red]", "\x1b[2J\x1b]0;title\x07", "<script>alert(1)</script>", "\u202eevil", "a\nb", "'\"&", "[/]")


def decoder(tokens: int = 8, name: str = "top_k", label: str = "decode/top_k") -> Synthetic:
    """Tokens of a small decoder with one slow kernel, committed from a region each."""
    device = Device("cpu", workers=4, clock_uncertainty_ns=50.0, copy_bytes_per_s=20e9, flops_per_s=100e9)
    made = Synthetic(devices=[device])
    layers = [
        (node("matvec", label=f"decode/layer.{i}/mlp", groups=512, bytes_read=1_400_000, declared=True), 100_000)
        for i in range(12)
    ]
    slow = node(
        name, label=label, groups=1, threads=(32, 1, 1), group=(32, 1, 1), bytes_read=128_000, place="m.py:8",
        file="topk.metal", line=7, execution="loop: its threads never meet",
    )  # fmt: skip
    steps = [*layers, (slow, 200_000)]
    plan = made.plan([step for step, _ in steps])
    for token in range(tokens):
        t = begin = 10_000_000 * (token + 1)
        times = []
        for _, length in steps:
            times.append((t, t + length))
            t += length + 500
        region = made.region("token", begin - 90_000, t + 1000 * token)
        commit = {"commit_begin_ns": begin - 40_000, "commit_end_ns": begin - 10_000}
        made.submit(plan, times, region=region, label="token", **commit)
        made.span("wait", begin - 10_000, t)
    return made


def hostile() -> Synthetic:
    """Everything that has a name has a hostile one."""
    made = Synthetic(devices=[Device(HOSTILE[0], description=HOSTILE[1])])
    named = ({"label": f"{text}/{text}", "specialisation": text, "op_kind": text, "place": text} for text in HOSTILE)
    plan = made.plan([node(text, **names) for text, names in zip(HOSTILE, named, strict=True)])
    for i, text in enumerate(HOSTILE):
        region = made.region(text, 1000 * i, 1000 * i + 900)
        times = [(1000 * i + 100 * n, 1000 * i + 100 * n + 90) for n in range(len(HOSTILE))]
        made.submit(plan, times, label=text, region=region, reason=text, error=text, commit_begin_ns=1, commit_end_ns=2)
        made.span("wait", 1000 * i, 1000 * i + 50, name=text)
    return made
