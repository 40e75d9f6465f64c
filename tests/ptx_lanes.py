"""Runs straight PTX for the 32 lanes of a warp: what joining products of simdgroup matrices reads and writes.

Registers hold one number for each lane; floating ones are values, all others are bits. Memory is one variable.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

LANES = np.arange(32)
ROW, QUARTER = LANES // 4, LANES % 4
PLAIN: dict[str, Callable[..., Any]] = {
    "mov": lambda x: x,
    "cvt": lambda x: x,
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "mad": lambda x, y, z: x * y + z,
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "shl": lambda x, y: x << y,
    "shr": lambda x, y: x >> y,
    "bfe": lambda x, at, bits: (x >> at) & ((1 << bits) - 1),
}


def bits_of(values: Any) -> Any:
    """Of bfloat, in which the numbers are exact."""
    return np.asarray(values, np.float32).view(np.uint32) >> 16


def values_of(bits: Any, kind: str) -> Any:
    bits = np.asarray(bits)
    if kind == "tf32":
        return bits.astype(np.uint32).view(np.float32)
    return (
        (bits.astype(np.uint32) << 16).view(np.float32) if kind == "bf16" else bits.astype(np.uint16).view(np.float16)
    ).astype(np.float64)


def matrix_of(pairs: Any) -> Any:
    """The 8 × 8 elements of a matrix that lies in its lanes in pairs."""
    matrix = np.zeros((8, 8), np.int64)
    matrix[ROW, 2 * QUARTER], matrix[ROW, 2 * QUARTER + 1] = pairs & 0xFFFF, pairs >> 16
    return matrix


def pairs_of(matrix: Any) -> Any:
    return matrix[ROW, 2 * QUARTER] | matrix[ROW, 2 * QUARTER + 1] << 16


class Warp:
    def __init__(self, memory: bytes, first_thread: int = 0) -> None:
        self._memory = np.frombuffer(memory, np.uint8).astype(np.int64)
        self._registers: dict[str, Any] = {"%tid.x": LANES + first_thread, "memory": np.zeros(32, np.int64)}
        self.stored: list[Any] = []

    def run(self, ptx: str) -> list[Any]:
        for line in ptx.split("\n"):
            text = line.strip()
            if text and not text.startswith((".", "{\n", "//")) and text not in "{}":
                self._step(text)
        return self.stored

    def _get(self, operand: str) -> Any:
        return np.full(32, int(operand, 0)) if operand[0] not in "%m" else self._registers[operand]

    def _place(self, address: str) -> Any:
        base, apart = re.fullmatch(r"\[(%\w+|memory)(?:\+(-?\d+))?\]", address).groups()  # type: ignore[union-attr]
        return self._get(base) + int(apart or 0)

    def _read(self, address: str, nbytes: int, ahead: int = 0) -> Any:
        at = self._place(address) + ahead
        assert not (at % nbytes).any(), "an address is not aligned"
        return sum(self._memory[at + i] << (8 * i) for i in range(nbytes))

    def _row_pairs(self, starts: Any) -> Any:
        assert not (starts % 16).any(), "a row is not aligned"
        rows = [[int(self._memory[at + 2 * i] | self._memory[at + 2 * i + 1] << 8) for i in range(8)] for at in starts]
        return np.array(rows)

    def _step(self, text: str) -> None:
        registers = self._registers
        if "// " in text:  # a matrix that each lane reads by itself
            x, y = re.findall(r"ld\.shared\.b16 \w, (\[[^]]*\])", text)
            to = re.search(r"mov\.b32 (%r\d+), \{x, y\}", text)[1]  # type: ignore[index]
            registers[to] = self._read(x, 2) | self._read(y, 2) << 16
        elif "mma.sync" in text:
            self._multiply(text)
        elif "shfl.sync" in text:
            y, x = re.search(r"selp\.b32 a, (%r\d+), (%r\d+), odd", text).groups()  # type: ignore[union-attr]
            first, second = re.findall(r"selp\.b32 (%r\d+), [ab], [ab], odd", text)
            matrix = np.zeros((8, 8), np.int64)
            matrix[ROW, 2 * QUARTER], matrix[ROW, 2 * QUARTER + 1] = self._get(x), self._get(y)
            registers[first], registers[second] = matrix[2 * QUARTER, ROW], matrix[2 * QUARTER + 1, ROW]
        elif found := re.match(r"ldmatrix\S+\.x(\d)(\.trans)?\.shared\.b16 \{(.*)\}, (\[.*\]);", text):
            rows = self._row_pairs(self._place(found[4])[: 8 * int(found[1])])
            for place, to in enumerate(found[3].split(", ")):
                matrix = rows[8 * place : 8 * place + 8]
                registers[to] = pairs_of(matrix.T if found[2] else matrix)
        else:
            self._simple(text)

    def _simple(self, text: str) -> None:
        name, operands = re.fullmatch(r"(\S+)\s+(.*);", text).groups()  # type: ignore[union-attr]
        to, *others = re.findall(r"\{[^}]*\}|\[[^]]*\]|[^\s,]+", operands)
        registers = self._registers
        if name.startswith("st."):
            self.stored += [self._get(register).copy() for register in others[0].strip("{}").split(", ")]
        elif name.startswith("ld.shared"):
            for place, register in enumerate(to.strip("{}").split(", ")):
                size = 4 if name.endswith("32") else 2
                registers[register] = self._read(others[0], size, size * place)
        elif name.startswith("movmatrix"):
            registers[to] = pairs_of(matrix_of(self._get(others[0])).T)
        elif name.startswith("prmt"):
            assert others[2] == "0x7632"
            registers[to] = self._get(others[0]) >> 16 | self._get(others[1]) >> 16 << 16
        elif others[0].startswith("{"):
            x, y = others[0].strip("{}").split(", ")
            registers[to] = self._get(x) | self._get(y) << 16
        elif name == "cvt.f32.f16":
            values = self._get(others[0]).astype(np.uint16).view(np.float16).astype(np.float32)
            registers[to] = values.view(np.uint32).astype(np.int64)
        elif name.startswith("cvt.rna"):  # only of what TF32 holds
            registers[to] = self._get(others[0])
        else:
            registers[to] = PLAIN[name.split(".")[0]](*map(self._get, others)) & 0xFFFFFFFF

    def _multiply(self, text: str) -> None:
        depth, kind = re.search(r"m16n8k(\d+)\.row\.col\.f32\.(\w+)", text).groups()  # type: ignore[union-attr]
        to, left, right, before = (part.split(", ") for part in re.findall(r"\{([^{}]*)\}", text[text.index("mma") :]))
        if len(left) == 2 and depth == "8" and kind != "tf32":
            left, right = [*left, "none", "none"], [*right, "none"]
        a, b = np.zeros((16, 16)), np.zeros((16, 8))
        for place, register in enumerate(left):
            if register != "none":
                rows, half = ROW + 8 * (place % 2), place // 2
                self._lay(a, rows, half, self._get(register), kind)
        for half, register in enumerate(right):
            if register != "none":
                self._lay(b.T, ROW, half, self._get(register), kind)
        product = a @ b
        for place, register in enumerate(to):
            if not register.startswith("unused"):
                start = 0.0 if before[place] == "nil" else self._get(before[place])
                self._registers[register] = start + product[ROW + 8 * (place // 2), 2 * QUARTER + place % 2]

    @staticmethod
    def _lay(matrix: Any, rows: Any, half: int, bits: Any, kind: str) -> None:
        if kind == "tf32":
            matrix[rows, QUARTER + 4 * half] = values_of(bits, kind)
        else:
            matrix[rows, 2 * QUARTER + 8 * half] = values_of(bits & 0xFFFF, kind)
            matrix[rows, 2 * QUARTER + 8 * half + 1] = values_of(bits >> 16, kind)
