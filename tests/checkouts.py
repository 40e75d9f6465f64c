"""Sources of other projects in a folder of checkouts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ostinato as ost

PROJECTS = {
    "ao": "pytorch/ao",
    "candle": "huggingface/candle",
    "gpt-oss": "openai/gpt-oss",
    "kernels-community": "huggingface/kernels-community",
    "lambdaworks": "lambdaclass/lambdaworks",
    "llama.cpp": "ggml-org/llama.cpp",
    "metal-marlin": "RESMP-DEV/metal-marlin",
    "mistral.rs": "EricLBuehler/mistral.rs",
    "mlx": "ml-explore/mlx",
    "mlx-native": "robertelee78/mlx-native",
    "pytorch": "pytorch/pytorch",
}
"""Names of checkouts, and the repositories on GitHub that they are of."""


class Checkouts:
    """The projects in a folder; each source is compiled once."""

    def __init__(self, dev: ost.Device, root: Path) -> None:
        self._dev, self._root = dev, root
        self._libraries: dict[Any, ost.Library] = {}

    def library(
        self,
        project: str,
        file: str,
        *,
        include: tuple[str, ...] = (),
        before: tuple[str, ...] = (),
        after: str = "",
        **options: Any,
    ) -> ost.Library:
        """The library of a file; skips the test if there is no checkout of the project.

        `include` are folders of the project, `before` files that its host program puts before this one, `after` is a
        text that it puts behind. Other options are those of `Device.library`.
        """
        folder = self._root / project
        if not folder.is_dir():
            pytest.skip(f"no checkout of {PROJECTS[project]} at {folder}")
        key = (project, file, include, before, after, repr(options))
        if key not in self._libraries:
            include_dirs = [folder / name for name in include]
            source: Path | str = folder / file
            if before or after:
                source = "\n".join([*((folder / name).read_text() for name in (*before, file)), after])
                include_dirs.insert(0, (folder / file).parent)
            self._libraries[key] = self._dev.library(source, include_dirs=include_dirs, **options)
        return self._libraries[key]
