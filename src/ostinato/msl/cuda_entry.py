"""CUDA's entry points: one ``__global__`` function per kernel, its parameters as one struct, and what describes it.

Kernel number i of a translation, in the order of its kernels, is ``__ost_kernel_<i>`` and takes ``__ost_args_<i>``:

- the head (`HEAD_BYTES`; ``__ost::Head`` in entry_cuda.h);
- an address for each buffer argument that is present, ascending by index;
- an offset into the block's threadgroup memory for each ``[[threadgroup(n)]]`` argument, an even number of them;
- for each argument ``constant T &`` room for its value, which is read when its address is 0;
- with ``__OST_INLINE_BYTES`` defined, that many bytes for buffers that are only read: an address with its top bit set
  is an offset into them.

``__ost_info_<i>`` holds what only the compiler knows: bytes of threadgroup memory, most threads of a group (0 when the
source does not say), the numbers of buffer and threadgroup arguments, and size and alignment of what each buffer
argument refers to. `parameter_layout` gives the same struct to the host.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from .entry_text import buffers_of, is_absent, shared_of, stored_bytes, type_text, using_namespaces
from .kernels import KernelInstance, Parameter
from .reflect import Signature
from .source_map import mark_entry
from .tokens import Token

HEAD_BYTES = 80
NAMESPACE = "__ost_program"
"""Of the translated source and everything that it uses."""
_FROM_ROOT = re.compile(r"(^|[<,(]\s*|\b(?:const|typename)\s+)::\s*")
_SLOT_ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class ParameterLayout:
    """The layout of a kernel's parameters, in bytes."""

    addresses: int
    shared_offsets: int
    values: Mapping[int, int]
    """By position among the buffer arguments: the slots of those passed by value."""
    inline_bytes: int
    total_bytes: int


def parameter_layout(signature: Signature, sizes: Sequence[int], inline_bytes: int = 0) -> ParameterLayout:
    """The parameters of a kernel whose buffer arguments refer to objects of these ``sizes``."""
    at = HEAD_BYTES + 8 * len(signature.arguments)
    shared_offsets = at
    at += 4 * (len(signature.shared) + len(signature.shared) % 2)
    values: dict[int, int] = {}
    for position, argument in enumerate(signature.arguments):
        if argument.kind == "value" and argument.space == "constant":
            values[position] = at = _rounded(at)
            at += _rounded(sizes[position])
    inline_at = _rounded(at) if inline_bytes else at
    at = inline_at + inline_bytes
    total = _rounded(at) if values or inline_bytes else at
    return ParameterLayout(HEAD_BYTES, shared_offsets, values, inline_at, total)


def _rounded(at: int) -> int:
    return -(-at // _SLOT_ALIGNMENT) * _SLOT_ALIGNMENT


def in_program(text: str) -> str:
    """A type, or a kernel with its template arguments; names from the root are in the program's namespace."""
    return _FROM_ROOT.sub(rf"\1{NAMESPACE}::", text)


def _type_text(tokens: Sequence[Token]) -> str:
    return in_program(type_text(tokens))


def _by_value(parameter: Parameter) -> bool:
    return parameter.role == "value" and parameter.space == "constant"


def _parameters(
    instance: KernelInstance, number: int, buffers: Sequence[Parameter], shared: Sequence[Parameter]
) -> str:
    lines = ["  __ost::Head head;"]
    if buffers:
        lines.append(f"  uint64_t args[{len(buffers)}];")
    if shared:
        lines.append(f"  uint32_t shared_offsets[{len(shared) + len(shared) % 2}];")
    for position, parameter in enumerate(buffers):
        if _by_value(parameter):
            size = f"__ost::value_bytes<{_type_text(parameter.pointee)}>"
            lines.append(f"  alignas({_SLOT_ALIGNMENT}) unsigned char value_{position}[{size}];")
    lines.append("#if __OST_INLINE_BYTES")
    lines.append(f"  alignas({_SLOT_ALIGNMENT}) unsigned char inline_bytes[__OST_INLINE_BYTES];")
    lines.append("#endif")
    body = "\n".join(lines)
    return (
        f"namespace __ost_types_{number} {{{using_namespaces(instance)}\nstruct __ost_args_{number} {{\n{body}\n}};\n"
    )


def _argument(
    parameter: Parameter, place: int, buffers: Sequence[Parameter], shared: Sequence[Parameter], gone: bool
) -> tuple[str, str]:
    """The declaration of an argument, and the expression passed to the kernel."""
    pointee = _type_text(parameter.pointee)
    reference = parameter.type[-1].text == "&"
    if not gone and _by_value(parameter):
        position = buffers.index(parameter)
        declared = f"{pointee} __a{place} = __ost::value_of<{pointee}>(__a.args[{position}], __a.value_{position});"
        return declared, f"__a{place}"
    if gone:
        source = f"({pointee} *)({'nullptr' if parameter.role == 'buffer' else '__ost::absent'})"
    elif parameter.role == "shared":
        # Offsets are multiples of 16; if the compiler sees that, it reads neighbours at once.
        source = f"({pointee} *)(__ost_arena + (__a.shared_offsets[{shared.index(parameter)}] & ~15u))"
    else:
        read_only = parameter.space == "constant" or any(token.text == "const" for token in parameter.pointee)
        place_of_bytes = " __OST_INLINE_AT(__a)" if read_only else ""
        source = f"__ost::pointer_to<{pointee}>(__a.args[{buffers.index(parameter)}]{place_of_bytes})"
    return f"{pointee} *const __a{place} = {source};", f"*__a{place}" if reference else f"__a{place}"


def _native_call(instance: KernelInstance, buffers: Sequence[Parameter]) -> str:
    """The call of a kernel that the CUDA source defines; its arguments convert to the types that it declares."""
    passed = (
        f"__ost::NativeValue{{__a.args[{at}], __a.value_{at}}}"
        if _by_value(parameter)
        else f"__ost::NativePointer{{__a.args[{at}]}}"
        for at, parameter in enumerate(buffers)
    )
    return f"::{instance.name}({', '.join(passed)});"


def entry(
    instance: KernelInstance, number: int, layout: str | None, absent: Callable[[str], bool], native: bool, prints: bool
) -> str:
    """The parameters, the entry point and the description of one kernel."""
    buffers, shared = buffers_of(instance, absent), shared_of(instance, absent)
    declared: list[str] = []
    passed = ["__group.lanes()", "__sample"]
    for place, parameter in enumerate(instance.parameters):
        if parameter.role == "thread":
            passed.append(f"__t.{parameter.thread_attribute}<{_type_text(parameter.type)}>()")
            continue
        declaration, expression = _argument(parameter, place, buffers, shared, is_absent(parameter, absent))
        declared.append(declaration)
        passed.append(expression)
    setup = "".join(f"  {line}\n" for line in declared)
    called = _native_call(instance, buffers) if native else f"{instance.call}({', '.join(passed)});"
    bounds = f" __launch_bounds__({-(-instance.max_threads // 32) * 32})" if instance.max_threads else ""
    sizes = "".join(
        f", __ost::SizeOf<{_type_text(p.pointee)}>::size, __ost::SizeOf<{_type_text(p.pointee)}>::alignment"
        for p in buffers
    )
    return (
        f"{_parameters(instance, number, buffers, shared)}"
        f'extern "C" __global__ void{bounds} __ost_kernel_{number}('
        f"const __grid_constant__ __ost_args_{number} __a) {{\n"
        f"  __ost::wait_for_predecessors(__a.head);\n"
        f"  const __ost::Group __group(__a.head);\n"
        f"  if ({'threadIdx.x' if native else '__ost::group_thread()'} >= __group.count) __ost::end_thread();\n"
        f"  __ost::Sampled __sample(__a.head);\n"
        f"  const __ost::Thread __t = __ost::running_thread(__a.head, __group); (void)__t;\n"
        f"{'  __ost::may_print(__a.head);' + chr(10) if prints else ''}"
        f"{'' if native else setup}"
        f"  {called}\n"
        f"  __sample.end();\n"
        f"}}\n"
        f'extern "C" __device__ const uint32_t __ost_info_{number}[] = '
        f"{{{stored_bytes(instance, layout)}, {instance.max_threads or 0}, {len(buffers)}, {len(shared)}{sizes}}};\n"
        f"}}\n"
    )


def table(
    instances: Sequence[KernelInstance],
    layouts: Mapping[int, str],
    absent: Callable[[str], bool],
    prints: Callable[[KernelInstance], bool],
    native: Collection[str] = (),
) -> str:
    """All entry points; kernels in ``native`` are those of a CUDA source."""
    entries = (
        mark_entry(instance.token_at)
        + entry(
            instance, number, layouts.get(instance.function.name_at), absent, instance.name in native, prints(instance)
        )
        for number, instance in enumerate(instances)
    )
    return "\n" + "".join(entries)
