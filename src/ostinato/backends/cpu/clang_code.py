"""What is changed in LLVM assembly before clang makes machine code of it.

On x86 vectors are read and written at any address, as on Apple's GPUs: by instructions that take any, which cost the
same where the address is aligned. A half that is read alone becomes a float without waiting for whatever is in the
register: clang inserts it into a register that is often the result of the last step, so that the steps of a sum wait
for each other. Where bounds alone are looked for, hooks are called so that clang can inline them.
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

_HOOK = re.compile(r"^(  (?:tail )?call void )@__tsan_(?:unaligned_)?((?:read|write)(?:16|[1248]))\(([^)]*)\)", re.M)
_WIDE = re.compile(
    r"^  (?:(?P<read>%[\w.]+ = load )|store )<(?P<count>\d+) x (?P<type>\w+)>[^\n]*?,"
    r" ptr (?P<address>[%@][\w.$]+), align \d+(?:, !(?!dbg)\w+ !\d+)*(?P<place>(?:, !dbg !\d+)?)",
    re.M,
)
_BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64, "ptr": 64}
_RANGES = ("__tsan_read_range", "__tsan_write_range")
_INSTRUMENTED = re.compile(r"^attributes #(\d+) = \{([^\n]*?) sanitize_thread(?= )", re.M)
_GROUP = re.compile(r"^define [^\n]* #(\d+)[^\n]*\{$", re.M)
_LABEL = re.compile(r"[-\w$.]+:[^\n]*\n")
_LOOKED_AT = ("ptr %ost.seen", "i64 %ost.arena", "i64 %ost.bytes", "ptr %ost.states")
_LOOKING = """  %ost.seen = call ptr @__ost_glance()
  %ost.arena = call i64 @__ost_arena(ptr %ost.seen)
  %ost.bytes = call i64 @__ost_arena_bytes(ptr %ost.seen)
  %ost.states = call ptr @__ost_arena_states(ptr %ost.seen)
"""


def loosened(assembly: str) -> str:
    """LLVM assembly, optimised before, with these changes; that of other processors as it is."""
    if _X86.search(assembly) is None:
        return assembly
    assembly = _ALIGNED.sub(lambda line: _ALIGNMENT.sub("align 8", line[0]), assembly)
    assembly = _MASKED.sub(r"\1 8", assembly)
    return _FUNCTION.sub(lambda function: _independent_halves(function[0]), assembly)


def with_inlined_hooks(assembly: str) -> str:
    """LLVM assembly instrumented for bounds alone, whose functions call the hooks of `runtime/inline_hooks.h`.

    What these look at is the same in all of a function, and is read where it begins: the optimiser would not move it
    out of loops. Accesses of more than 16 bytes, which clang does not instrument, call the hook of a range.
    """
    groups = {number for number, _ in _INSTRUMENTED.findall(assembly)}

    def changed(function: re.Match[str]) -> str:
        group = _GROUP.search(function[0])
        return _calling_inlined_hooks(function[0]) if group is not None and group[1] in groups else function[0]

    # Functions that are not instrumented can be inlined into others from here on.
    text = _INSTRUMENTED.sub(r"attributes #\1 = {\2", _FUNCTION.sub(changed, assembly))
    return text + "".join(f"declare void @{name}(ptr, i64)\n" for name in _RANGES)


def _calling_inlined_hooks(function: str) -> str:
    def ranged(access: re.Match[str]) -> str:
        count, bits = int(access["count"]), _BITS.get(access["type"]) or int(access["type"][1:])
        if count * bits <= 128:
            return access[0]
        hook = _RANGES[access["read"] is None]
        return f"  call void @{hook}(ptr {access['address']}, i64 {count * bits // 8}){access['place']}\n{access[0]}"

    function = _HOOK.sub(rf"\1@__ost_\2(\3, {', '.join(_LOOKED_AT)})", _WIDE.sub(ranged, function))
    heading, body = function.split("{\n", 1)
    label = _LABEL.match(body)
    first = label[0] if label is not None else ""
    return f"{heading}{{\n{first}{_LOOKING}{body.removeprefix(first)}"


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
