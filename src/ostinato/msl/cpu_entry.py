"""The CPU's entry points: one C function per kernel, and the table by which the driver finds them.

A plain kernel's entry runs the threads of a range of groups as nested loops whose innermost runs along x, which the
compiler vectorises; the loop is marked as independent, as the threads of a grid are by definition. A kernel whose
threads meet runs in one of the other ways (`Way`); every kernel of a translation with ``fibers`` runs each thread as a
fiber. Names here begin with two underscores, so that they do not clash with kernels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum

from .entry_text import buffers_of, is_absent, shared_of, stored_bytes, type_text, using_namespaces
from .kernels import KernelInstance
from .source_map import mark_entry

_MOST_THREADS = 1024
_KNOWN_WITHOUT_GROUPS = frozenset({"thread_position_in_grid", "threads_per_grid", "grid_size", "grid_origin"})
_POSITIONS = frozenset({"thread_position_in_grid", "thread_position_in_threadgroup"})
_WIDTHS = (16, 8)
"""Of groups whose simdgroups are several rows, as code of their own."""
_NAME = re.compile(r"(?=\w*[a-z])[A-Za-z]\w*", re.ASCII)
"""Names that no macro of the shim has."""
_KEYWORDS = frozenset(
    """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t class compl const
    const_cast constexpr continue decltype default delete do double dynamic_cast else enum explicit export extern false
    float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private
    protected public register reinterpret_cast return short signed sizeof static static_assert static_cast struct switch
    template this thread_local throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t
    while xor xor_eq
    """.split()
)


def _arguments(instance: KernelInstance, absent: Callable[[str], bool], by_value: bool) -> tuple[list[str], list[str]]:
    """Declarations of the buffer arguments, and the expressions passed to the kernel in parameter order.

    ``by_value`` copies constant values into locals, which no store of the kernel can change, so that loops keep them
    in registers.
    """
    buffers, shared = buffers_of(instance, absent), shared_of(instance, absent)
    declared: list[str] = []
    passed: list[str] = []
    for position, parameter in enumerate(instance.parameters):
        pointee = type_text(parameter.pointee)
        if parameter.role == "thread":
            passed.append(f"__t.{parameter.thread_attribute}<{type_text(parameter.type)}>()")
            continue
        if is_absent(parameter, absent):
            source = "nullptr" if parameter.role == "buffer" else "__ost::absent"
        elif parameter.role == "shared":
            source = f"__w->arena + __d->shared_offsets[{shared.index(parameter)}]"
        else:
            source = f"__d->args[{buffers.index(parameter)}]"
        if by_value and parameter.role == "value" and parameter.space == "constant":
            declared.append(f"{pointee} __a{position} = *({pointee} *)({source});")
            passed.append(f"__a{position}")
            continue
        declared.append(f"{pointee} *const __a{position} = ({pointee} *)({source});")
        passed.append(f"*__a{position}" if parameter.type[-1].text == "&" else f"__a{position}")
    return declared, passed


class Way(Enum):
    """How the threads of a kernel run."""

    LOOP = "one loop over all threads"
    REGIONS = "a loop over the threads between each two barriers"
    SIMDGROUPS = "a vector of lanes for each simdgroup"
    FIBERS = "a fiber for each thread"


def entry(
    instance: KernelInstance,
    number: int,
    way: Way,
    absent: Callable[[str], bool],
    stored: bool = False,
    debug: bool = False,
    counted: bool = False,
) -> str:
    """The entry point of one kernel."""
    declared, passed = _arguments(instance, absent, by_value=way in (Way.LOOP, Way.REGIONS))
    namespaces = using_namespaces(instance)
    call = f"{instance.call}({', '.join(['__w', *passed])});"
    setup = " ".join(declared)
    signature = "const __ost::Dispatch *__d, __ost::Worker *__w, uint64_t __first, uint64_t __end"
    heading = f"__OST_EXPORT __OST_UNCHECKED void __ost_entry_{number}({signature})"
    if way is Way.REGIONS:
        return (
            f"{heading} {{{namespaces}\n  {setup}\n  for (uint64_t __g = __first; __g != __end; ++__g) {{\n"
            f"    __ost::enter_group(__w, __d, __g);\n"
            f"    const __ost::Thread __t = __ost::running_thread(__w); (void)__t;\n"
            f"    {call}\n  }}\n}}\n"
        )
    if way is Way.SIMDGROUPS:
        return _simdgroup_entry(instance, number, namespaces, setup, call, heading)
    if way is Way.FIBERS:
        named, lane = _named_lane(instance, number) if debug else ("", f"__ost_lane_{number}")
        shown = "  __ost::show_position(__w);\n" if debug else ""
        if counted:
            shown += f"  __ost_begins(__ost_counts[{number}]);\n"
        return (
            f"__OST_UNCHECKED static void __ost_lane_{number}(__ost::Worker *__w) {{{namespaces}\n{shown}"
            f"  const __ost::Dispatch *__d = __w->dispatch; (void)__d;\n"
            f"  const __ost::Thread __t = __ost::running_thread(__w); (void)__t;\n  {setup}\n  {call}\n}}\n{named}"
            f"{heading} {{\n  for (uint64_t __g = __first; __g != __end; ++__g)\n"
            f"    __w->run_group(__w, {lane}, __d, __g);\n}}\n"
        )
    # A kernel that does not use its group runs neighbouring groups in one loop.
    flat = all(
        p.thread_attribute in _KNOWN_WITHOUT_GROUPS if p.role == "thread" else p.role != "shared"
        for p in instance.parameters
    )
    run = "__ost::groups_in_row(__d, __group, __end - __g)" if flat and not stored else "1"
    return f"""{heading} {{{namespaces}
  {setup}
  for (uint64_t __g = __first; __g != __end;) {{
    const __ost::Group __group(__d, __g);
    const uint64_t __run = {run};
    const uint32_t __x_first = __group.origin[0], __x_end = __ost::row_end(__d, __group, __run);
    for (uint32_t __z = 0; __z < __group.size[2]; ++__z)
      for (uint32_t __y = 0; __y < __group.size[1]; ++__y) {{
        const uint32_t __row = (__z * __group.size[1] + __y) * __group.size[0];
        __OST_INDEPENDENT
        for (uint32_t __x = __x_first; __x < __x_end; ++__x) {{
          const __ost::Thread __t = {{__d, __group.position, __group.size,
                                     {{__x, __group.origin[1] + __y, __group.origin[2] + __z}},
                                     {{__x - __x_first, __y, __z}}, __row + (__x - __x_first)}};
          (void)__t;
          {call}
        }}
      }}
    __g += __run;
  }}
}}
"""


def _named_lane(instance: KernelInstance, number: int) -> tuple[str, str]:
    """A function around a kernel's lane that has the kernel's name, for a debugger to stop in; and how it is called.

    None is needed where the kernel's own function has that name.
    """
    lane = f"__ost_lane_{number}"
    name = instance.name
    if name == instance.function.name or name in _KEYWORDS or not _NAME.fullmatch(name):
        return "", lane
    return (
        f"namespace __ost_kernel_{number} {{ static void {name}(__ost::Worker *__w) {{ {lane}(__w); }} }}\n",
        f"__ost_kernel_{number}::{name}",
    )


def _simdgroup_entry(
    instance: KernelInstance, number: int, namespaces: str, setup: str, call: str, heading: str
) -> str:
    """One thread as functions of which the lane pass makes code for 32, and the entry that calls that.

    Lanes of a row are neighbours along x, so that what they address is too; in groups of some widths a simdgroup is
    several rows, and otherwise lanes may lie anywhere.
    """
    widths = _WIDTHS if _has_two_axes(instance) else ()
    tile = "uint32_t __y, uint32_t __z"
    kinds = {
        "row": ("Row", "uint32_t __x, uint32_t __y, uint32_t __z", "of_row(__w, __first, __x, __y, __z)"),
        **{f"tile{n}": ("Tile", tile, f"of_tile<{n}>(__w, __first, __y, __z)") for n in widths},
        "any": ("Any", "", "anywhere(__w, __first)"),
    }
    functions = []
    for kind, (type_, place, thread) in kinds.items():
        parameters = ", ".join(filter(None, ("__ost::Worker *__w, uint32_t, uint32_t __first", place)))
        functions.append(f"""__OST_EXPORT void __ost_{kind}_{number}({parameters}) {{{namespaces}
  const __ost::Thread __t = __ost::thread_{thread}; (void)__t;
  const __ost::Dispatch *__d = __w->dispatch; (void)__d;
  {setup}
  {call}
}}
__OST_INTERNAL __ost::{type_}Fn __ost_{kind}s_{number};
""")
    tiles = [f"__ost_tile{width}s_{number}" for width in widths] or ["nullptr", "nullptr"]
    return f"""{"".join(functions)}
static void __ost_simdgroup_{number}(__ost::Worker *__w) {{
  __ost::run_simdgroup(__w, __ost_rows_{number}, __ost_anys_{number}, {", ".join(tiles)});
}}
{heading} {{
  for (uint64_t __g = __first; __g != __end; ++__g)
    __w->run_simdgroups(__w, __ost_simdgroup_{number}, __d, __g);
}}
"""


def _has_two_axes(instance: KernelInstance) -> bool:
    """Whether a kernel asks where its threads lie, and not for their lanes: those that do are written for rows."""
    asked = {
        p.thread_attribute: type_text(p.type).removesuffix(" const") for p in instance.parameters if p.role == "thread"
    }
    return not any("simdgroup" in name for name in asked) and any(asked.get(at, "1")[-1] in "23" for at in _POSITIONS)


def table(
    instances: Sequence[KernelInstance],
    ways: Mapping[str, Way],
    layouts: Mapping[int, str],
    absent: Callable[[str], bool],
    debug: bool = False,
    counters: int = 0,
) -> str:
    """All entry points and the table that describes them; for ``debug``, with functions of the kernels' names.

    With ``counters``, each kernel has its own counts of so many statements, after that of its threads.
    """
    parts: list[str] = ["\n"]
    if counters:
        parts.append(f"__OST_EXPORT uint64_t __ost_counts[{max(1, len(instances))}][{counters + 1}] = {{}};\n")
    rows: list[str] = []
    for number, instance in enumerate(instances):
        layout = layouts.get(instance.function.name_at)
        parts.append(mark_entry(instance.token_at))
        parts.append(entry(instance, number, ways[instance.name], absent, layout is not None, debug, counters > 0))
        types = [type_text(parameter.pointee) for parameter in buffers_of(instance, absent)]
        parts.append(f"namespace __ost_sizes_{number} {{{using_namespaces(instance)}")
        for what in ("size", "alignment"):
            values = ", ".join(f"__ost::SizeOf<{type_}>::{what}" for type_ in types) or "0"
            parts.append(f" static constexpr uint32_t {what}[] = {{{values}}};")
        parts.append(" }\n")
        size, arena = stored_bytes(instance, layout), stored_bytes(instance, layout, "__ost::red_zone")
        name = instance.name.replace("\\", "\\\\").replace('"', '\\"')
        rows.append(
            f'  {mark_entry(instance.token_at)}{{"{name}", __ost_entry_{number}, {size}, {arena}, '
            f"{instance.max_threads or _MOST_THREADS}, "
            f"{int(ways[instance.name] is Way.FIBERS)}, {len(types)}, "
            f"__ost_sizes_{number}::size, __ost_sizes_{number}::alignment}}"
        )
    body = ",\n".join(rows) or "  {}"
    parts.append(f"__OST_EXPORT const __ost::KernelInfo __ost_kernels[] = {{\n{body}\n}};\n")
    parts.append(f"__OST_EXPORT const uint32_t __ost_kernel_count = {len(rows)};\n")
    return "".join(parts)
