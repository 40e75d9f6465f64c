"""What is changed in LLVM assembly before clang makes machine code of it.

On x86 vectors are read and written at any address, as on Apple's GPUs: by instructions that take any, which cost the
same where the address is aligned. A half that is read alone becomes a float without waiting for whatever is in the
register: clang inserts it into a register that is often the result of the last step, so that the steps of a sum wait
for each other. Checked kernels look at the alignment of what is copied whole, which clang's own check leaves out.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_X86 = re.compile(r'^target triple = "(?:x86_64|amd64)', re.M)
_ALIGNED = re.compile(r"^(?!.* alloca )  .*\balign (?:16|32|64|128|256)\b.*$", re.M)
_MASKED = re.compile(r"(@llvm\.masked\.(?:load|store)\.[^(]*\([^()]*?ptr [^,]+, i32) (?:16|32|64|128)\b")
_ALIGNMENT = re.compile(r"\balign (?:16|32|64|128|256)\b")
_FUNCTION = re.compile(r"^define .*?^}$", re.M | re.S)
_LOADED = re.compile(r"^  (%[\w.]+) = load half, ", re.M)
_EXTENDED = re.compile(r"^  %([\w.]+) = fpext (?:\w+ )*half (%[\w.]+) to float", re.M)

INSTRUMENTED = re.compile(r"^attributes #(\d+) = \{([^\n]*?) sanitize_thread(?= )", re.M)
VARIABLE = re.compile(r"^  (%[\w.]+) = alloca ", re.M)
_ATTRIBUTES = re.compile(r"^define [^\n]* #(\d+)[^\n]*\{$", re.M)
_COPY = re.compile(r"^  call void @llvm\.mem(?:cpy|move)\.(?P<operands>[^\n]*?)\)(?P<place>, !dbg !\d+)?[^\n)]*$", re.M)
_OPERAND = re.compile(r"\bptr [^,]*?\balign (\d+)\b[^,]*? (%[\w.]+)(?=,)")
_ODD_COPY = re.compile(
    r"\S*\(ptr (?:\w+ |align \d+ )*(?P<to>%[\w.]+), ptr (?:\w+ |align \d+ )*(?P<from>%[\w.]+),"
    r" i64 (?P<bytes>\d|1[0-5]),.*"
)
_ODD_BYTES = (3, 5, 6, 7)
"""What is left of such a copy, modulo 8, that no access of a machine can be."""
_COPYING = "declare ptr @__tsan_memmove(ptr, ptr, i64)\n"
_PARAMETERS = re.compile(r"^define .*$", re.M)


def loosened(assembly: str) -> str:
    """LLVM assembly, optimised before, with these changes; that of other processors as it is."""
    if _X86.search(assembly) is None:
        return assembly
    assembly = _ALIGNED.sub(lambda line: _ALIGNMENT.sub("align 8", line[0]), assembly)
    assembly = _MASKED.sub(r"\1 8", assembly)
    return _FUNCTION.sub(lambda function: _independent_halves(function[0]), assembly)


def in_instrumented_functions(assembly: str, change: Callable[[str], str]) -> str:
    """LLVM assembly with a change made in the functions that call hooks."""
    groups = {number for number, _ in INSTRUMENTED.findall(assembly)}

    def changed(function: re.Match[str]) -> str:
        attributes = _ATTRIBUTES.search(function[0])
        return change(function[0]) if attributes is not None and attributes[1] in groups else function[0]

    return _FUNCTION.sub(changed, assembly)


def with_checked_copies(assembly: str) -> str:
    """LLVM assembly that no pass has seen, in which copies of vectors and objects look at their alignment.

    Nothing in it then relies on an alignment of more than 8 bytes, so that a kernel goes on after such a finding.
    Copies of 3 bytes and the like become calls of a hook; clang would read integers of 24 bits, for which it has none.
    """
    return loosened(in_instrumented_functions(assembly, _checked_copies)) + _COPYING


def _checked_copies(function: str) -> str:
    variables = set(VARIABLE.findall(function))

    def checked(copy: re.Match[str]) -> str:
        place = copy["place"] or ""
        calls = "".join(
            f"  call void @__ost_copied(ptr {address}, i64 {alignment}){place}\n"
            for alignment, address in _OPERAND.findall(copy["operands"])
            if alignment != "1" and address not in variables
        )
        operands = _ODD_COPY.fullmatch(copy["operands"])
        if operands is None or int(operands["bytes"]) % 8 not in _ODD_BYTES:
            return calls + copy[0]
        to, source, size = operands["to"], operands["from"], operands["bytes"]
        # The result has a name, since those that are numbered would have to be in order.
        return (
            f"{calls}  %ost.copy.{copy.start()} = call ptr @__tsan_memmove(ptr {to}, ptr {source}, i64 {size}){place}"
        )

    return _PARAMETERS.sub(lambda heading: _ALIGNMENT.sub("align 8", heading[0]), _COPY.sub(checked, function))


def _independent_halves(function: str) -> str:
    loaded = set(_LOADED.findall(function))

    def extended(conversion: re.Match[str]) -> str:
        name, half = conversion.groups()
        if half not in loaded:
            return conversion[0]
        # Only by way of integers and a whole vector does clang's code generator not go back to where it came from.
        return (
            f"  %ost.bits.{name} = bitcast half {half} to i16\n"
            f"  %ost.lane.{name} = insertelement <8 x i16> zeroinitializer, i16 %ost.bits.{name}, i64 0\n"
            f"  %ost.eight.{name} = bitcast <8 x i16> %ost.lane.{name} to <8 x half>\n"
            f"  %ost.four.{name} = shufflevector <8 x half> %ost.eight.{name}, <8 x half> poison,"
            " <4 x i32> <i32 0, i32 1, i32 2, i32 3>\n"
            f"  %ost.floats.{name} = fpext <4 x half> %ost.four.{name} to <4 x float>\n"
            f"  %{name} = extractelement <4 x float> %ost.floats.{name}, i64 0"
        )

    return _EXTENDED.sub(extended, function)
