"""The lane pass over a module: every thread function in it becomes the function of a simdgroup."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from .blocks import write_function
from .code import Refused, Types, parse_function
from .emission import Emitter
from .exchanges import DIVIDED_BY_ZERO
from .flow import Flow
from .private import Private
from .shapes import Shapes

_ALIGNED = {"row": (32, 32), "tile16": (32, 2), "tile8": (32, 4), "any": (32,)}
"""By kind of thread function, what its parameters are multiples of from the third on: the first thread's index, and its
x or y."""
_KINDS = "|".join(_ALIGNED)
_DEFINITION = re.compile(rf"^define [^\n]*@__ost_({_KINDS})_(\d+)\([^\n]*\{{\n.*?^\}}\n", re.M | re.S)
_OTHER = re.compile(r"^define [^\n]*\{\n.*?^\}\n", re.M | re.S)
_TOGETHER = re.compile(rf"call [^\n]*@__ost_(?!meet_simdgroups|(?:{_KINDS})s_)")
"""Calls that only the lane pass gives a meaning; a function with one that is left over was inlined everywhere."""
_DEFINED = re.compile(r"^define [^\n]*?@([^\s(]+)\(", re.M)
_TARGET = re.compile(r'"target-(?:cpu|features)"="[^"]*"')
_TYPE = re.compile(r'^(%(?:"[^"]*"|[-\w$.]+)) = type (.*)$', re.M)


@dataclass(frozen=True, slots=True)
class Widened:
    """A module whose kernels run simdgroups as vectors, and why others of its kernels cannot, by number."""

    text: str
    refused: dict[int, str]


def widen(module: str) -> Widened:
    """The lane pass; `module` is LLVM assembly of threads, from `translate_for_simdgroups`."""
    types = Types(dict(_TYPE.findall(module)))
    defined = frozenset(_DEFINED.findall(module))
    refused: dict[int, str] = {}
    declared: dict[str, str] = {}
    kept: dict[int, list[str]] = {}
    helpers: dict[str, Sequence[str]] = {}
    for found in _DEFINITION.finditer(module):
        kind, number = found[1], int(found[2])
        if number in refused:
            continue
        try:
            emitter, text = _widened(found.group(), types, defined, kind, f"__ost_{kind}s_{number}")
        except Refused as error:
            refused[number] = str(error)
            continue
        except (ArithmeticError, AssertionError, LookupError, ValueError) as error:
            # A kernel runs on fibers rather than not at all.
            refused[number] = f"the lane pass failed, {error!r}"
            continue
        declared |= emitter.declared
        helpers |= emitter.helpers
        kept.setdefault(number, []).append(text)
    written = [text for number, texts in kept.items() if number not in refused for text in texts]
    for kind, number in _DEFINITION.findall(module):
        if int(number) in refused:
            # Declared in the table of kernels, and never called.
            written.append(f"define internal void @__ost_{kind}s_{number}() {{\n  unreachable\n}}\n")
    attributes = "noinline nounwind " + " ".join(_TARGET.findall(module)[:2])
    for heading, lines in helpers.items():
        body = "\n".join(f"  {line}" for line in lines)
        written.append(f"define internal {heading} {attributes} {{\n{body}\n}}\n")
    written.append(_as_constant("__ost_refused", json.dumps(refused)))
    rest = _OTHER.sub(
        lambda found: "" if _TOGETHER.search(found.group()) else found.group(), _DEFINITION.sub("", module)
    )
    rest = re.sub(rf"^declare [^\n]*@__ost_(?:{_KINDS})s_\d+\([^\n]*\n", "", rest, flags=re.M)
    # All calls are inlined. What was called is not compiled, and the code of 32 lanes, which is long, only once.
    rest = re.sub(r"^(attributes #\d+ = \{[^\n]*?)alwaysinline ", r"\1", rest, flags=re.M)
    rest = re.sub(r"^define hidden (?=[^\n]*@(?!__))", "define internal ", rest, flags=re.M)
    known = set(re.findall(r"^declare [^\n]*@([\w.]+)\(", rest, re.M))
    declarations = [line for name, line in declared.items() if name not in known]
    return Widened("\n".join((rest, *written, *declarations, "")), refused)


def _as_constant(name: str, text: str) -> str:
    """An exported string."""
    encoded = text.encode() + b"\0"
    escaped = "".join(chr(byte) if chr(byte).isalnum() else f"\\{byte:02X}" for byte in encoded)
    return f'@{name} = constant [{len(encoded)} x i8] c"{escaped}"\n'


def _widened(definition: str, types: Types, defined: frozenset[str], kind: str, name: str) -> tuple[Emitter, str]:
    function = parse_function(definition)
    for block in function.blocks.values():
        for instruction in block.body:
            if instruction.callee in defined and instruction.callee != DIVIDED_BY_ZERO:
                raise Refused(f"{instruction.callee} is not inlined")
    heading = definition[: definition.index("\n")]
    attributes = " ".join(re.findall(r"#\d+", heading))
    flow = Flow(function)
    private = Private(function, types)
    known = _ALIGNED[kind]
    aligned = {parameter.value: by for parameter, by in zip(function.parameters[2:], known, strict=False)}
    shapes = Shapes(function, flow, types, private, aligned)
    emitter = Emitter(function, flow, shapes, types, private, kind != "any")
    return emitter, write_function(emitter, name, attributes)
