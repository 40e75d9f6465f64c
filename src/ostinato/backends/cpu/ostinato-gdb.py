"""What gdb knows about Metal kernels. `ostinato debug` loads it; in a gdb of your own, `source` does.

Values of Metal's types are printed by their components. When the program stops in another thread of the grid than
before, gdb says which. `info metal-threads` lists the threads of the current group, and where each of them stands.

It needs kernels that were built with OSTINATO_DEBUG=1, and reads the runtime's own structures (abi.h).
"""

from __future__ import annotations

import os.path
import re
import struct
from collections.abc import Iterator
from typing import Any

import gdb

_WORD_BYTES = struct.calcsize("P")
_DEEPEST = 256
_SIMD_WIDTH = 32
_SHIM = ("*/ostinato/msl/include/ostinato/*.h", "*/ostinato/backends/cpu/runtime/*")
_OUR_FILE = re.compile(r"/ostinato/(msl/include/ostinato|backends/cpu/runtime)/[^/]+$")


class _Vector:
    """float4, packed_uint3, and vectors of 8 or 16."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def children(self) -> Iterator[tuple[str, Any]]:
        value, count = self._value, int(self._value.type.strip_typedefs().template_argument(1))
        for index in range(count):
            yield str(index), value["xyzw"[index]] if count <= 4 else value["at"][index]

    def display_hint(self) -> str:
        return "array"


class _Bfloat:
    """A bfloat, as the float that it is."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def to_string(self) -> Any:
        bits = struct.pack("=I", (int(self._value["__bits"]) & 0xFFFF) << 16)
        return gdb.Value(bits, gdb.lookup_type("float")).format_string()


class _Member:
    """A value that is one member of a struct: an atomic, or the columns of a matrix."""

    def __init__(self, value: Any, member: str) -> None:
        self._value, self._member = value, member

    def to_string(self) -> Any:
        return self._value[self._member].format_string()


def _printer(value: Any) -> _Vector | _Bfloat | _Member | None:
    if value.type.strip_typedefs().code == gdb.TYPE_CODE_REF:
        value = value.referenced_value()
    name = value.type.strip_typedefs().name or ""  # of a type without qualifiers; arrays and pointers have none
    if re.match(r"metal::vec<|__ost::packed_vec<|__ost::wide_vec<", name):
        return _Vector(value)
    if name == "bfloat":
        return _Bfloat(value)
    if name.startswith("metal::atomic<"):
        return _Member(value, "__value")
    if name.startswith("metal::matrix<"):
        return _Member(value, "columns")
    return None


def _kernel_frame() -> Any:
    """The innermost frame in a user's file of a kernel library, if the program stands in one."""
    frame = gdb.newest_frame()
    for _ in range(_DEEPEST):
        if frame is None:
            break
        symtab = frame.find_sal().symtab
        if symtab is not None and not _OUR_FILE.search(symtab.fullname()):
            return frame if _static(frame, "thread_position_in_grid") is not None else None
        frame = frame.older()
    return None


def _static(frame: Any, name: str) -> Any:
    """A static variable of the library that a frame belongs to; None if it has none of this name."""
    symbol, _ = gdb.lookup_symbol(name, frame.find_sal().symtab.static_block())
    return None if symbol is None else symbol.value()


def _triple(value: Any) -> str:
    return "({}, {}, {})".format(*(int(value[axis]) for axis in "xyz"))


_last_position: tuple[str, ...] = ()


def _say_thread(event: Any) -> None:
    global _last_position
    if not isinstance(event, gdb.StopEvent):
        return
    try:
        frame = _kernel_frame()
        if frame is None:
            if "lane_main" in str(gdb.newest_frame().name()):
                gdb.write("[the thread has returned; `continue` runs the others]\n")
            return
        names = ("thread_position_in_grid", "thread_position_in_threadgroup", "threadgroup_position_in_grid")
        position = tuple(_triple(_static(frame, name)) for name in names)
    except gdb.error:
        return
    if position != _last_position:
        gdb.write("[now in thread {} of the grid: thread {} of group {}]\n".format(*position))
    _last_position = position


def _line_of(context: Any) -> str:
    """The user's line at which a thread that does not run stands, by the frame pointers on its stack."""
    pc, frame_at = int(context["resume"]), int(context["frame"])
    memory = gdb.selected_inferior()
    for _ in range(_DEEPEST):
        place = gdb.find_pc_line(pc - 1)
        if place.symtab is None or os.path.basename(place.symtab.filename) == "fiber.cpp":  # where a thread begins
            break
        if not _OUR_FILE.search(place.symtab.fullname()):
            return _place(place)
        frame_at, pc = struct.unpack("=2Q", memory.read_memory(frame_at, 2 * _WORD_BYTES))
    return ""


def _place(sal: Any) -> str:
    return f"{os.path.basename(sal.symtab.filename)}:{sal.line}"


class InfoMetalThreads(gdb.Command):  # type: ignore[misc]
    """List the threads of the current threadgroup: which one runs, where the others stand, and why."""

    def __init__(self) -> None:
        super().__init__("info metal-threads", gdb.COMMAND_STATUS)

    def invoke(self, argument: str, from_tty: bool) -> None:
        frame = _kernel_frame()
        if frame is None:
            raise gdb.GdbError("The program is not in a kernel that was built with OSTINATO_DEBUG=1.")
        region = int(gdb.parse_and_eval("__ost::region_bytes"))
        worker_type = gdb.lookup_type("__ost::Worker").pointer()
        worker = gdb.Value(int(frame.read_register("sp")) & ~(region - 1)).cast(worker_type).dereference()
        rows = [self._row(worker, lane, frame) for lane in range(int(worker["threads"]))]
        gdb.write("group {}, {} threads\n".format(_axes(worker["group"]), len(rows)))
        start = 0
        for end in range(1, len(rows) + 1):
            if end == len(rows) or rows[end] != rows[start]:
                self._show(worker, start, end - 1, *rows[start])
                start = end

    def _row(self, worker: Any, lane: int, frame: Any) -> tuple[str, str]:
        """The state of a thread, and its line."""
        simdgroup, bit = lane // _SIMD_WIDTH, 1 << lane % _SIMD_WIDTH
        running = int(worker["lane"])
        if lane == running:
            return "runs", _place(frame.find_sal())
        if not int(worker["live"][simdgroup]) & bit:
            return "has returned", ""
        line = _line_of(worker["context"][lane])
        current = running // _SIMD_WIDTH == simdgroup
        if current and int(worker["parked"]) & bit:
            return "waits for its simdgroup", line
        if int(worker["pending"][simdgroup]) & bit or (current and int(worker["ready"]) & bit):
            return ("can run on" if line else "has not begun"), line
        return "waits at a barrier", line

    def _show(self, worker: Any, first: int, last: int, state: str, line: str) -> None:
        size = [int(worker["size"][axis]) for axis in range(3)]
        threads = [
            f"({lane % size[0]}, {lane // size[0] % size[1]}, {lane // size[0] // size[1]})"
            for lane in ((first,) if first == last else (first, last))
        ]
        mark = "*" if state == "runs" else " "
        gdb.write(f"{mark} {' to '.join(threads):28} {state:24} {line}".rstrip() + "\n")


def _axes(values: Any) -> str:
    return "({}, {}, {})".format(*(int(values[axis]) for axis in range(3)))


gdb.pretty_printers.append(_printer)
gdb.events.stop.connect(_say_thread)
InfoMetalThreads()
for _command in (
    "set breakpoint pending on",
    "set print inferior-events off",
    "set print thread-events off",
    *("skip -gfi " + pattern for pattern in _SHIM),
):
    gdb.execute(_command, to_string=True)
