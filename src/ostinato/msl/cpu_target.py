"""The CPU: kernels as loops over their threads, as loops between barriers, or as fibers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from . import cpu_entry
from .captured_constants import make_constants_static
from .convergence import Convergence
from .counted_lines import count_statements
from .declarations import Declarations
from .fiber_sites import mark_paths
from .float_overloads import add_bfloat_overloads
from .kernels import KernelInstance
from .lane_sharing import has_threadgroup_memory, lanes_may_share
from .local_memory import mark_locals
from .reflect import element_type
from .rewriter import Rewriter
from .syntax import Syntax
from .target import Execution, Source, TargetText
from .tensors import uses_tensors
from .translate import Dialect, Translator
from .unaligned import rewrite_unaligned

_INCLUDES = '#include "ostinato/metal_cpu.h"\n#include "ostinato/entry_cpu.h"\n'
_COUNTS = '#include "ostinato/line_counts_cpu.h"\n'
TENSORS = '#include "ostinato/tensors_cpu.h"\n'


def _rewrite_types(syntax: Syntax, declarations: Declarations, rewriter: Rewriter) -> None:
    add_bfloat_overloads(syntax, declarations, rewriter)
    make_constants_static(syntax, declarations, rewriter)


_DIALECT = Dialect(
    kernel_parameters="__ost::Worker *__ost_w",
    arena="__ost_w->arena",
    enter_namesake="__ost::Frame __ost_frame(__ost_site);",
    rewrite_types=_rewrite_types,
    mark_sites=mark_paths,
)


def _rewrite_checked_types(syntax: Syntax, declarations: Declarations, rewriter: Rewriter) -> None:
    rewrite_unaligned(syntax, declarations, rewriter)
    _rewrite_types(syntax, declarations, rewriter)


def _mark_paths_and_locals(
    syntax: Syntax, declarations: Declarations, convergence: Convergence, rewriter: Rewriter, skipped: Collection[int]
) -> None:
    mark_paths(syntax, declarations, convergence, rewriter, skipped)
    mark_locals(syntax, declarations, rewriter)


_CHECKED = replace(_DIALECT, rewrite_types=_rewrite_checked_types, mark_sites=_mark_paths_and_locals)

_NO_LOCKSTEP = "results may differ if lanes share memory without a simdgroup_barrier between"


def translate_for_cpu(source: Source) -> TargetText:
    """C++17 for the machine's compiler."""
    meeting = [each for each in source.instances if source.meets(each) and not _needs_fibers(each, source)]
    alike: dict[int, list[KernelInstance]] = {}
    for instance in meeting:
        alike.setdefault(instance.function.name_at, []).append(instance)
    parameters = {name_at: (those[-1].formal, _small_types(those)) for name_at, those in alike.items()}
    dialect = _CHECKED if source.checked else _DIALECT
    logging = (source.log_calls, source.active)
    translator = Translator(source.syntax, source.declarations, source.convergence, dialect, parameters, *logging)
    rewriter = translator.rewriter
    counters = count_statements(source.syntax, source.declarations, rewriter) if source.counted else []
    body = translator.run(source.constants)
    ways = {instance.name: _way(instance, translator, source) for instance in source.instances}
    executions = {
        instance.name: _execution(instance, ways[instance.name], translator, source) for instance in source.instances
    }
    entries = cpu_entry.table(source.instances, ways, translator.layouts, source.absent, source.debug, len(counters))
    head = _INCLUDES + (TENSORS if uses_tensors(source.syntax) else "") + (_COUNTS if source.counted else "")
    return TargetText(head, body + entries, executions, counters=counters)


def _execution(instance: KernelInstance, way: cpu_entry.Way, translator: Translator, source: Source) -> Execution:
    note = _NO_LOCKSTEP if lanes_may_share(instance, source.syntax, source.convergence) else ""
    if way is cpu_entry.Way.LOOP:
        return Execution("loop", "its threads never meet", note, _better_as_vectors(instance, source))
    if way is cpu_entry.Way.REGIONS:
        tokens = source.syntax.tokens[slice(*(instance.function.body or (0, 0)))]
        lines = sorted({token.line for token in tokens if token.text == "threadgroup_barrier"})
        shown = ", ".join(map(str, lines[:4])) + (", …" if len(lines) > 4 else "")
        where = f"line{'s' if len(lines) > 1 else ''} {shown}"
        return Execution("split", f"its threads meet at barriers only, {where}", note)
    reason = translator.unsplit.get(instance.function.name_at, "its threads meet")
    if source.fibers:
        reason = f"the device is opened with {'debug' if source.debug else 'checked'}=True"
    elif source.prints(instance):
        reason = "it prints, and only a fiber knows its thread"
    return Execution("fibers", reason, note)


def _better_as_vectors(instance: KernelInstance, source: Source) -> str:
    """Why a loop had better be vectors; empty if it had not."""
    if source.multiplies_bytes(instance):
        return "it multiplies bytes"
    return "its lanes share threadgroup memory" if has_threadgroup_memory(instance, source.syntax) else ""


def _way(instance: KernelInstance, translator: Translator, source: Source) -> cpu_entry.Way:
    if instance.function.name_at in translator.split:
        return cpu_entry.Way.REGIONS
    fibers = _needs_fibers(instance, source) or source.meets(instance)
    return cpu_entry.Way.FIBERS if fibers else cpu_entry.Way.LOOP


def _needs_fibers(instance: KernelInstance, source: Source) -> bool:
    """Whether its threads must run one by one, each known to the runtime."""
    return source.fibers or source.prints(instance)


def _small_types(alike: Sequence[KernelInstance]) -> frozenset[str]:
    """Template parameters of a kernel that stand for scalars or vectors in all of its instances."""
    return frozenset(
        name
        for name in alike[-1].substitution
        if all(element_type(instance.substitution.get(name, ()), {}, {}).scalar is not None for instance in alike)
    )
