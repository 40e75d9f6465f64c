"""What is changed in LLVM assembly before clang makes machine code of it.

On x86 vectors are read and written at any address, as on Apple's GPUs: by instructions that take any, which cost the
same where the address is aligned. A half that is read alone becomes a float without waiting for whatever is in the
register: clang inserts it into a register that is often the result of the last step, so that the steps of a sum wait
for each other. Checked kernels look at the alignment of what is copied whole, which clang's own check leaves out.
"""

from __future__ import annotations

import re

_X86 = re.compile(r'^target triple = "(?:x86_64|amd64)', re.M)
_ALIGNED = re.compile(r"^(?!.* alloca )  .*\balign (?:16|32|64|128|256)\b.*$", re.M)
_MASKED = re.compile(r"(@llvm\.masked\.(?:load|store)\.[^(]*\([^()]*?ptr [^,]+, i32) (?:16|32|64|128)\b")
_ALIGNMENT = re.compile(r"\balign (?:16|32|64|128|256)\b")
_FUNCTION = re.compile(r"^define .*?^}$", re.M | re.S)
_LOADED = re.compile(r"^  (%[\w.]+) = load half, ", re.M)
_EXTENDED = re.compile(r"^  %([\w.]+) = fpext (?:\w+ )*half (%[\w.]+) to float", re.M)

_INSTRUMENTED = re.compile(r"^attributes #(\d+) = \{[^\n]* sanitize_thread ", re.M)
_ATTRIBUTES = re.compile(r"^define [^\n]* #(\d+)[^\n]*\{$", re.M)
_VARIABLE = re.compile(r"^  (%[\w.]+) = alloca ", re.M)
_COPY = re.compile(r"^  call void @llvm\.mem(?:cpy|move)\.(?P<operands>[^\n]*?)\)(?P<place>, !dbg !\d+)?[^\n)]*$", re.M)
_OPERAND = re.compile(r"\bptr [^,]*?\balign (\d+)\b[^,]*? (%[\w.]+)(?=,)")
_PARAMETERS = re.compile(r"^define .*$", re.M)


def loosened(assembly: str) -> str:
    """LLVM assembly, optimised before, with these changes; that of other processors as it is."""
    if _X86.search(assembly) is None:
        return assembly
    assembly = _ALIGNED.sub(lambda line: _ALIGNMENT.sub("align 8", line[0]), assembly)
    assembly = _MASKED.sub(r"\1 8", assembly)
    return _FUNCTION.sub(lambda function: _independent_halves(function[0]), assembly)


def with_checked_copies(assembly: str) -> str:
    """LLVM assembly that no pass has seen, in which copies of vectors and objects look at their alignment.

    Nothing in it then relies on an alignment of more than 8 bytes, so that a kernel goes on after such a finding.
    """
    instrumented = set(_INSTRUMENTED.findall(assembly))

    def changed(function: re.Match[str]) -> str:
        attributes = _ATTRIBUTES.search(function[0])
        if attributes is None or attributes[1] not in instrumented:
            return function[0]
        variables = set(_VARIABLE.findall(function[0]))

        def checked(copy: re.Match[str]) -> str:
            calls = (
                f"  call void @__ost_copied(ptr {address}, i64 {alignment}){copy['place'] or ''}\n"
                for alignment, address in _OPERAND.findall(copy["operands"])
                if alignment != "1" and address not in variables
            )
            return "".join(calls) + copy[0]

        return _PARAMETERS.sub(lambda heading: _ALIGNMENT.sub("align 8", heading[0]), _COPY.sub(checked, function[0]))

    return loosened(_FUNCTION.sub(changed, assembly))


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
