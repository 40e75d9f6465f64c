"""What kernels print on a CUDA device: one log in device memory, copied to the host and emptied after each submission.

Threads reserve room for their records with an atomic addition (`log_record` in entry_cuda.h). Submissions run in order
on one stream, and so do the copy and the reset that are queued behind each one that may print: what is copied is what
that submission printed. A record has the number of its command, which is written into the parameters of the launch
(`numbered`).
"""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import OstinatoError
from ...ir.command_list import CommandList
from ...ir.commands import Dispatch
from ..printing import log_bytes
from ..protocol import Log
from . import launches
from .api import call
from .memory import Pinned, Pool

if TYPE_CHECKING:
    from .runs import Stock

_HEAD = struct.Struct("=4Q")
"""`DeviceLog` of entry_cuda.h: the limit, bytes used (which may exceed it), records dropped, nothing."""
_COUNTS_AT, _COUNTS_BYTES = 8, 16
_LOST = "what its kernels printed is lost with the device"


class LogCopy:
    """The copy of the log behind one submission."""

    __slots__ = ("event", "memory")

    def __init__(self, memory: Pinned, event: int) -> None:
        self.memory = memory
        self.event = event


class DeviceLog:
    """The log of a device, made when the first kernel that prints is compiled."""

    def __init__(self, pool: Pool, stock: Stock) -> None:
        limit = log_bytes()
        self._nbytes = _HEAD.size + limit
        self._pool = pool
        self._stock = stock
        self._memory = pool.allocate(self._nbytes)
        self.address = self._memory.address
        pool.write(self.address, np.frombuffer(_HEAD.pack(limit, 0, 0, 0), np.uint8))

    def copy(self, cu: Any, stream: Any) -> LogCopy:
        """Queue the copy to the host, and the reset, behind what was just started."""
        copied = LogCopy(self._stock.take(self._nbytes), self._stock.event())
        copied.memory.array(np.uint8)[: _HEAD.size] = 0  # a limit of 0 tells that the copy was not made
        call(cu.cuMemcpyDtoHAsync, copied.memory.host, cu.CUdeviceptr(self.address), self._nbytes, stream)
        call(cu.cuMemsetD8Async, cu.CUdeviceptr(self.address + _COUNTS_AT), 0, _COUNTS_BYTES, stream)
        call(cu.cuEventRecord, cu.CUevent(copied.event), stream)
        return copied

    def read(self, cu: Any, copied: LogCopy) -> Log | None:
        """What a submission that is done printed; None if nothing."""
        with suppress(OstinatoError):  # a device that was lost later has made the copy all the same
            call(cu.cuEventSynchronize, cu.CUevent(copied.event))
        block: Any = copied.memory.array(np.uint8)
        limit, used, dropped, _ = _HEAD.unpack(block[: _HEAD.size].tobytes())
        if not limit:
            return Log(b"", 0, _LOST)
        if not used:
            return None
        return Log(block[_HEAD.size : _HEAD.size + min(used, limit)].tobytes(), dropped)


def may_print(commands: CommandList) -> bool:
    """Whether a kernel of a list prints."""
    return any(isinstance(command, Dispatch) and command.kernel.log_sites for command in commands.commands)


def numbered(commands: CommandList) -> list[bytes]:
    """The records of a list, with its number in those of each dispatch that prints."""
    return [
        launches.numbered(node.lowered, number)
        if isinstance(node.command, Dispatch) and node.command.kernel.log_sites
        else node.lowered
        for number, node in enumerate(commands.nodes)
    ]
