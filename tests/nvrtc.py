"""How the tests compile a translation for CUDA: with NVRTC, which needs no GPU."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ostinato.msl import Translation, cuda_options


@dataclass(frozen=True)
class Compiled:
    """What NVRTC made of a source: its PTX (empty when it refused) and its messages."""

    ptx: str
    log: str

    def parameter_bytes(self, number: int) -> int:
        """The size of a kernel's parameters."""
        found = re.search(rf"__ost_kernel_{number}_param_0\[(\d+)\]", self.ptx)
        assert found is not None
        return int(found[1])

    def info(self, number: int) -> list[int]:
        """The words of a kernel's description; PTX leaves out zeros at the end."""
        found = re.search(rf"__ost_info_{number}\[(\d+)\](?: = \{{([^}}]*)\}})?;", self.ptx)
        assert found is not None
        data = bytes(int(text) for text in (found[2] or "0").split(",")).ljust(int(found[1]), b"\0")
        return [int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), 4)]

    def body(self, number: int) -> str:
        """The instructions of a kernel of a translation."""
        return self.entry(f"__ost_kernel_{number}")

    def entry(self, name: str) -> str:
        """The instructions of a kernel by its name."""
        start = self.ptx.index(f".entry {name}(")
        return self.ptx[start : self.ptx.index("\n}", start)]


class Nvrtc:
    """The compiler, if this machine has it."""

    def __init__(self) -> None:
        self._api: Any = pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings is not installed")
        try:
            status, *_ = self._api.nvrtcVersion()
        except RuntimeError as error:  # how cuda-bindings says that there is no such library
            pytest.skip(f"NVRTC cannot be loaded: {error}")
        self._check(status)

    def _check(self, status: Any) -> None:
        assert status == self._api.nvrtcResult.NVRTC_SUCCESS, status

    def compile(self, translation: Translation, architecture: str = "compute_90", inline_bytes: int = 0) -> Compiled:
        return self._compile(translation.text, cuda_options(architecture, inline_bytes, translation.standard))

    def compile_text(
        self, text: str, architecture: str = "compute_90", inline_bytes: int = 0, *more_options: str
    ) -> Compiled:
        return self._compile(text, (*cuda_options(architecture, inline_bytes), *more_options))

    def _compile(self, text: str, flags: tuple[str, ...]) -> Compiled:
        api = self._api
        status, program = api.nvrtcCreateProgram(text.encode(), b"kernels.cu", 0, [], [])
        self._check(status)
        options = [option.encode() for option in flags]
        (compiled,) = api.nvrtcCompileProgram(program, len(options), options)
        status, size = api.nvrtcGetProgramLogSize(program)
        self._check(status)
        log = bytearray(size)  # of bytes, those of one byte are shared by the whole process
        self._check(*api.nvrtcGetProgramLog(program, log))
        ptx = bytearray()
        if compiled == api.nvrtcResult.NVRTC_SUCCESS:
            status, size = api.nvrtcGetPTXSize(program)
            self._check(status)
            ptx = bytearray(size)
            self._check(*api.nvrtcGetPTX(program, ptx))
        self._check(*api.nvrtcDestroyProgram(program))
        return Compiled(ptx.decode().strip("\0"), log.decode().strip("\0 \n"))


def compile_quickly(architecture: str, files: list[str]) -> None:
    """Print what NVRTC has to say of files; where only that matters, its optimiser need not work.

    The option that says so also holds for what the process compiles later, so it should be a process of its own.
    """
    compiler = Nvrtc()
    for file in files:
        compiled = compiler.compile_text(Path(file).read_text(encoding="utf-8"), architecture, 0, "--Ofast-compile=max")
        if compiled.log or not compiled.ptx:
            print(file, compiled.log)
