"""Kernels of a test file in one library, run on a device that checks them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

import ostinato as ost
from ostinato.audit.findings import Finding
from ostinato.errors import KernelCheckError

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"


class Kernels:
    """Kernels by a name, each with a body of its own; all have the same arguments and a thread's position `i`."""

    def __init__(self, bodies: Mapping[str, str], arguments: str, declarations: str = "") -> None:
        listed = ", ".join(f"{each.strip()} [[buffer({number})]]" for number, each in enumerate(arguments.split(",")))
        self.source = HEAD + declarations
        self._starts: dict[str, int] = {}
        for number, (name, body) in enumerate(bodies.items()):
            self._starts[name] = len(self.source)
            head = f"kernel void k{number}({listed}, uint i [[thread_position_in_grid]])"
            self.source += f"{head} {{\n  {body}\n}}\n"

    def name(self, name: str) -> str:
        """The kernel's name in the source."""
        return f"k{list(self._starts).index(name)}"

    def findings(self, name: str, *arguments: Any, threads: int = 1, **options: Any) -> tuple[Finding, ...]:
        """What the checks find in a kernel; arrays are bound as buffers, numbers inline."""
        with ost.open_device("cpu", checked=True, **options) as dev:
            kernel = dev.library(self.source)[self.name(name)]
            bound = [dev.array(argument) if isinstance(argument, np.ndarray) else argument for argument in arguments]
            encoder = dev.command_encoder()
            encoder.dispatch(kernel, *bound, threads=threads)
            submission = encoder.commit()
            with suppress(KernelCheckError):
                submission.wait()
            return submission.findings

    def finding(self, name: str, *arguments: Any, threads: int = 1, **options: Any) -> Finding:
        """The only finding about a kernel."""
        findings = self.findings(name, *arguments, threads=threads, **options)
        assert len(findings) == 1, findings
        return findings[0]

    def place(self, name: str, text: str) -> tuple[int, int]:
        """Line and column of a text in a kernel, or in the declarations."""
        at = self.source.find(text, self._starts[name])
        before = self.source[: at if at >= 0 else self.source.index(text)]
        return before.count("\n") + 1, len(before) - before.rfind("\n")


def place_of(finding: Finding) -> tuple[int, int | None]:
    """Line and column of what was noticed."""
    where = finding.accesses[-1].place
    assert where is not None
    return where.line, where.column


def line_of(finding: Finding) -> int:
    """Line of what was noticed."""
    return place_of(finding)[0]
