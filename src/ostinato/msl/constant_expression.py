"""Evaluates integral constant expressions: the conditions of ``#if``, attribute indices, derived function constants.

Values are Python ints, floats and bools. The caller passes a function that looks up names; an unknown name
raises `NotConstant`, so that each caller can decide whether it is zero (``#if``) or an error.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from .tokens import CHARACTER, IDENTIFIER, NUMBER, PUNCTUATION, Token
from .unwinding import Steps, unwound

Value = int | float | bool

_LONGEST_NUMBER = 400
_WIDEST = 1 << 64
_INTEGER = re.compile(r"(?:(?P<hex>0x[0-9a-f]+)|(?P<binary>0b[01]+)|(?P<octal>0[0-9]+)|(?P<decimal>[0-9]+))[ul]*")
_ESCAPES = {"n": 10, "t": 9, "r": 13, "0": 0, "\\": 92, "'": 39, '"': 34, "a": 7, "b": 8, "f": 12, "v": 11}
_PRECEDENCE = {
    "||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6, "<": 7, ">": 7, "<=": 7, ">=": 7,
    "<<": 8, ">>": 8, "+": 9, "-": 9, "*": 10, "/": 10, "%": 10,
}  # fmt: skip
_CASTS = {"int", "uint", "short", "ushort", "char", "uchar", "long", "ulong", "size_t", "unsigned"}


class NotConstant(ValueError):
    """The expression cannot be evaluated before compilation."""


def truncated(value: Value) -> int:
    """The value without its fraction, as a cast to an integer type gives it."""
    if isinstance(value, float) and not math.isfinite(value):
        raise NotConstant(f"{value} has no integer value")
    return int(value)


def whole(value: Value) -> int:
    """The value as an integer, which it must be."""
    if isinstance(value, float) and not value.is_integer():
        raise NotConstant(f"{value} is not a whole number")
    return int(value)


def number_value(text: str) -> Value:
    """The value of a numeric literal with any of MSL's suffixes."""
    digits = text.replace("'", "").lower()
    if len(digits) > _LONGEST_NUMBER:
        raise NotConstant(f"a number of {len(digits)} digits")
    try:
        if match := _INTEGER.fullmatch(digits):
            base = next(
                base for base, group in ((16, "hex"), (2, "binary"), (8, "octal"), (10, "decimal")) if match[group]
            )
            value = int(digits.rstrip("ul"), base)
            if value >= _WIDEST:
                raise NotConstant(f"{text!r} does not fit into 64 bits")
            return value
        if digits.startswith("0x"):
            return float.fromhex(digits.rstrip("h"))
        return float(digits.removesuffix("bf").rstrip("fh"))
    except NotConstant:
        raise
    except (ValueError, OverflowError):
        raise NotConstant(f"{text!r} is not a number") from None


def _joined_shifts(tokens: Sequence[Token]) -> list[Token]:
    joined: list[Token] = []
    for token in tokens:
        if token.text == ">" and not token.spaced and joined and joined[-1].text == ">":
            joined[-1] = Token(PUNCTUATION, ">>", token.file, token.line)
        else:
            joined.append(token)
    return joined


def evaluate(
    tokens: Sequence[Token],
    lookup: Callable[[str], Value],
    call: Callable[[str, Sequence[Token]], Value] | None = None,
) -> Value:
    """Evaluates ``tokens``; ``lookup`` gives the value of a name (``a::b`` too), ``call`` that of ``name(tokens)``."""
    tokens = _joined_shifts(tokens)
    position = 0
    skipping = 0  # inside an operand that is parsed, not evaluated

    def peek() -> str:
        return tokens[position].text if position < len(tokens) else ""

    def take(expected: str | None = None) -> Token:
        nonlocal position
        if position >= len(tokens):
            raise NotConstant("the expression ends too early")
        token = tokens[position]
        if expected is not None and token.text != expected:
            raise NotConstant(f"expected {expected!r} before {token.text!r}")
        position += 1
        return token

    def conditional() -> Steps[Value]:
        nonlocal skipping
        condition: Value = yield binary(1)
        if peek() == "?":
            take()
            chosen = bool(condition)
            skipping += not chosen
            yes: Value = yield conditional()
            skipping += chosen - (not chosen)
            take(":")
            no: Value = yield conditional()
            skipping -= chosen
            condition = yes if chosen else no
        return condition

    def binary(lowest: int) -> Steps[Value]:
        nonlocal skipping
        left: Value = yield operand()
        while _PRECEDENCE.get(peek(), 0) >= lowest:
            operator = take().text
            decided = (operator == "&&" and not left) or (operator == "||" and bool(left))
            skipping += decided
            right: Value = yield binary(_PRECEDENCE[operator] + 1)
            skipping -= decided
            left = 0 if skipping else apply(operator, left, right)
            if not -_WIDEST < left < _WIDEST and not isinstance(left, float):
                raise NotConstant("the value does not fit into 64 bits")
        return left

    def operand() -> Steps[Value]:
        token = take()
        text = token.text
        if text in ("!", "~", "-", "+"):
            value: Value = yield operand()
            if text == "!":
                return not value
            if text == "~":
                return ~whole(value)
            return -value if text == "-" else +value
        if text == "(":
            if peek() in _CASTS and position + 1 < len(tokens) and tokens[position + 1].text == ")":
                take()
                take()
                return truncated((yield operand()))
            value = yield conditional()
            take(")")
            return value
        if token.kind == NUMBER:
            return number_value(text)
        if token.kind == CHARACTER:
            body = text[1:-1]
            return _ESCAPES.get(body[1], ord(body[1])) if body[0] == "\\" else ord(body[0])
        if token.kind == IDENTIFIER:
            if text in ("true", "false"):
                return text == "true"
            while peek() == "::":
                text += take().text + take().text
            if peek() == "(" and call is not None:
                inside = arguments()
                return 0 if skipping else call(text, inside)
            return 0 if skipping else lookup(text)
        raise NotConstant(f"{text!r} does not belong in a constant expression")

    def arguments() -> list[Token]:
        take("(")
        inside: list[Token] = []
        level = 1
        while True:
            token = take()
            level += {"(": 1, ")": -1}.get(token.text, 0)
            if level == 0:
                return inside
            inside.append(token)

    value = unwound(conditional())
    if position != len(tokens):
        raise NotConstant(f"unexpected {peek()!r}")
    return value


def apply(operator: str, left: Value, right: Value) -> Value:
    """One binary operator on two constants; division truncates as in C."""
    match operator:
        case "||":
            return bool(left) or bool(right)
        case "&&":
            return bool(left) and bool(right)
        case "==":
            return left == right
        case "!=":
            return left != right
        case "<":
            return left < right
        case ">":
            return left > right
        case "<=":
            return left <= right
        case ">=":
            return left >= right
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
    if operator in "/%" and right == 0:
        raise NotConstant("division by zero")
    if operator == "/" and (isinstance(left, float) or isinstance(right, float)):
        return left / right
    first, second = whole(left), whole(right)
    if operator in "/%":
        quotient = abs(first) // abs(second) * (1 if (first < 0) == (second < 0) else -1)
        return quotient if operator == "/" else first - quotient * second
    if operator in ("<<", ">>"):
        if not 0 <= second < 128:
            raise NotConstant(f"shift by {second}")
        return first << second if operator == "<<" else first >> second
    return {"|": first | second, "^": first ^ second, "&": first & second}[operator]
