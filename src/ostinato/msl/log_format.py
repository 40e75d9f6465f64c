"""The formats of `os_log` and `printf` in kernels: read once when a source is parsed, applied to what threads logged.

A format is data of a stranger, so the C library never sees it. Conversions are those of C without `%s`, `%n` and `*`,
with OpenCL's vectors: `%v4f` takes a vector of four. A number is printed as it is, whatever the length modifier says;
only `hh` and `h` cut it to 8 and 16 bits, as in C.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

UNSIGNED, SIGNED, FLOAT, POINTER = 1, 2, 3, 4
"""Kinds of logged values, as in `include/ostinato/logging.h`."""

LARGEST_FIELD = 512
"""Of a width or a precision."""

_INTEGERS, _FLOATS = "diouxXc", "fFeEgGaA"
_CONVERSION = re.compile(
    r"%(?P<flags>[-+ #0]*)(?P<width>\*|[0-9]+)?(?:\.(?P<precision>\*|[0-9]*))?(?:v(?P<lanes>[0-9]+))?"
    r"(?P<length>hh|hl|h|ll|l|j|z|t|q|L)?(?P<letter>.)?",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]+)|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_SIMPLE_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\x1b"}
_CUT = {"hh": 1, "h": 2}
_FRACTION_BITS = 52


class FormatError(ValueError):
    """A format that cannot be applied; the message says why."""


class Logged(NamedTuple):
    """An argument as a thread logged it."""

    kind: int
    scalar_bytes: int
    """Size of the scalar, or of each component, in the kernel."""
    values: tuple[int, ...]
    """Integers as 64 bits, floats as the 32 bits of a float."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """One conversion specification, such as `%+8.3f`."""

    flags: str
    width: int
    precision: int | None
    lanes: int
    """Components of the vector that it takes; 0 for a scalar."""
    length: str
    letter: str

    @property
    def takes(self) -> str:
        """What it takes: "integer", "float" or "pointer"."""
        return "integer" if self.letter in _INTEGERS + "u" else "float" if self.letter in _FLOATS else "pointer"

    def apply(self, logged: Logged) -> str:
        """The text of an argument; the components of a vector are separated by commas."""
        return ",".join(self._scalar(logged, value) for value in logged.values)

    def _scalar(self, logged: Logged, value: int) -> str:
        if self.takes == "float":
            return self._float(struct.unpack("<f", struct.pack("<I", value & 0xFFFFFFFF))[0])
        if self.letter == "p":
            return self._padded("", hex(value), zeros=False)
        # As in C, what is narrower than an int is an int.
        bits = 8 * _CUT.get(self.length, max(logged.scalar_bytes, 4))
        value &= (1 << bits) - 1
        if self.letter == "c":
            return self._padded("", chr(value & 0xFF), zeros=False)
        if self.letter in "di":
            signed = value - (1 << bits) if value >> (bits - 1) else value
            return self._integer(self._sign(signed < 0), str(abs(signed)))
        if self.letter == "u":
            return self._integer("", str(value))
        if self.letter == "o":
            digits = format(value, "o")
            if "#" in self.flags and not digits.startswith("0"):
                digits = "0" + digits if self.precision is None or self.precision <= len(digits) else digits
            return self._integer("", digits)
        return self._integer(f"0{self.letter}" if "#" in self.flags and value else "", format(value, self.letter))

    def _sign(self, negative: bool) -> str:
        return "-" if negative else "+" if "+" in self.flags else " " if " " in self.flags else ""

    def _integer(self, prefix: str, digits: str) -> str:
        if self.precision is None:
            return self._padded(prefix, digits, zeros=True)
        if self.precision == 0 and digits == "0" and not (self.letter == "o" and "#" in self.flags):
            digits = ""
        return self._padded(prefix, digits.rjust(self.precision, "0"), zeros=False)

    def _float(self, value: float) -> str:
        sign = self._sign(math.copysign(1.0, value) < 0)
        if not math.isfinite(value):
            text = "nan" if math.isnan(value) else "inf"
            return self._padded(sign, text.upper() if self.letter.isupper() else text, zeros=False)
        if self.letter in "aA":
            digits = _hexadecimal(abs(value), self.precision, "#" in self.flags)
            prefix, digits = sign + digits[:2], digits[2:]
            if self.letter == "A":
                prefix, digits = prefix.upper(), digits.upper()
            return self._padded(prefix, digits, zeros=True)
        precision = 6 if self.precision is None else self.precision
        alternate = "#" if "#" in self.flags else ""
        return self._padded(sign, format(abs(value), f"{alternate}.{precision}{self.letter}"), zeros=True)

    def _padded(self, prefix: str, digits: str, zeros: bool) -> str:
        if "-" in self.flags:
            return (prefix + digits).ljust(self.width)
        if zeros and "0" in self.flags:
            return prefix + digits.rjust(self.width - len(prefix), "0")
        return (prefix + digits).rjust(self.width)


def _hexadecimal(value: float, precision: int | None, point: bool) -> str:
    """A finite number, not negative, as `0x1.8p+0`."""
    if value == 0:
        lead, fraction, exponent = 0, 0, 0
    else:
        mantissa, exponent = math.frexp(value)
        lead, exponent = 1, exponent - 1
        fraction = int((mantissa * 2 - 1) * (1 << _FRACTION_BITS))
    digits = f"{fraction:0{_FRACTION_BITS // 4}x}"
    if precision is None:
        digits = digits.rstrip("0")
    elif precision < len(digits):
        dropped = _FRACTION_BITS - 4 * precision
        whole = (lead << _FRACTION_BITS | fraction) >> dropped
        rest, half = fraction & ((1 << dropped) - 1), 1 << (dropped - 1)
        whole += rest > half or (rest == half and whole & 1 == 1)
        lead, digits = (
            whole >> 4 * precision,
            f"{whole & ((1 << 4 * precision) - 1):0{precision}x}" if precision else "",
        )
    else:
        digits = digits.ljust(precision, "0")
    return f"0x{lead}{'.' if digits or point else ''}{digits}p{exponent:+d}"


Format = tuple[str | Conversion, ...]
"""Text, and conversions, in order."""


def read_format(text: str) -> Format:
    """The parts of a format; raises `FormatError`."""
    parts: list[str | Conversion] = []
    at = 0
    while at < len(text):
        percent = text.find("%", at)
        if percent < 0:
            percent = len(text)
        if percent > at:
            parts.append(text[at:percent])
        if percent == len(text):
            break
        match = _CONVERSION.match(text, percent)
        assert match is not None
        at = match.end()
        if match.group() == "%%":
            parts.append("%")
            continue
        parts.append(_conversion(match))
    return tuple(parts)


def _conversion(match: re.Match[str]) -> Conversion:
    written, letter, lanes = match.group(), match["letter"], match["lanes"]
    if letter is None:
        raise FormatError(f"the format ends in {written!r}; write %% for a percent sign")
    if letter == "s":
        raise FormatError(f"{written!r}: a kernel has no strings to print; write the text into the format")
    if letter == "n":
        raise FormatError(f"{written!r} would write to memory; kernels cannot use it")
    if letter not in _INTEGERS + "u" + _FLOATS + "p":
        raise FormatError(f"{written!r} is not a conversion; there are d i u o x X c f F e E g G a A p")
    if "*" in (match["width"], match["precision"]):
        raise FormatError(f"{written!r}: a width or precision from an argument is not supported; write the number")
    if lanes is not None and (lanes not in ("2", "3", "4") or letter in "cp"):
        raise FormatError(f"{written!r}: vectors are printed as v2, v3 or v4 before a conversion of numbers, as %v4f")
    width = int(match["width"] or 0)
    precision = None if match["precision"] is None else int(match["precision"] or 0)
    if max(width, precision or 0) > LARGEST_FIELD:
        raise FormatError(f"{written!r}: a width or precision is at most {LARGEST_FIELD}")
    return Conversion(match["flags"], width, precision, int(lanes or 0), match["length"] or "", letter)


def conversions(parts: Format) -> list[Conversion]:
    """The conversions of a format: one for each argument."""
    return [part for part in parts if isinstance(part, Conversion)]


def apply_format(parts: Format, arguments: Sequence[Logged]) -> str:
    """The text of a message."""
    values = iter(arguments)
    return "".join(part if isinstance(part, str) else part.apply(next(values)) for part in parts)


def literal_text(token: str) -> str:
    """The text of a string literal of the source."""
    return _ESCAPE.sub(_unescaped, token[1:-1])


def _unescaped(match: re.Match[str]) -> str:
    octal, hexadecimal, short, long, plain = match.groups()
    if plain is not None:
        return _SIMPLE_ESCAPES.get(plain, plain)
    code = int(octal, 8) if octal else int(hexadecimal or short or long, 16)
    return chr(code) if code < 0x110000 else "\ufffd"
