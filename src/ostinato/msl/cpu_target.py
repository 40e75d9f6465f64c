"""The CPU: kernels as loops over their threads, as loops between barriers, or as fibers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from . import cpu_entry
from .fiber_sites import mark_paths
from .kernels import KernelInstance
from .reflect import element_type
from .target import Execution, Source
from .translate import Dialect, Translator

_INCLUDES = '#include "ostinato/metal_cpu.h"\n#include "ostinato/entry_cpu.h"\n'
_DIALECT = Dialect(
    kernel_parameters="__ost::Worker *__ost_w",
    arena="__ost_w->arena",
    enter_namesake="__ost::Frame __ost_frame(__ost_site);",
    rewrite_types=lambda syntax, declarations, rewriter: None,
    mark_sites=mark_paths,
)


def translate_for_cpu(source: Source) -> tuple[str, Mapping[str, Execution]]:
    """C++17 for the machine's compiler, and how each kernel runs in it."""
    meeting = [] if source.fibers else [instance for instance in source.instances if source.meets(instance)]
    parameters = {one.function.name_at: (one.formal, _small_types(one, meeting)) for one in meeting}
    translator = Translator(source.syntax, source.declarations, source.convergence, _DIALECT, parameters)
    body = translator.run(source.constants)
    ways = {instance.name: _way(instance, translator, source) for instance in source.instances}
    text = _INCLUDES + body + cpu_entry.table(source.instances, ways, translator.layouts, source.absent)
    return text, {one.name: _execution(one, ways[one.name], translator, source) for one in source.instances}


def _execution(instance: KernelInstance, way: cpu_entry.Way, translator: Translator, source: Source) -> Execution:
    if way is cpu_entry.Way.LOOP:
        return Execution("loop", "its threads never meet")
    if way is cpu_entry.Way.REGIONS:
        tokens = source.syntax.tokens[slice(*(instance.function.body or (0, 0)))]
        lines = sorted({token.line for token in tokens if token.text == "threadgroup_barrier"})
        shown = ", ".join(map(str, lines[:4])) + (", …" if len(lines) > 4 else "")
        return Execution("split", f"its threads meet at barriers only, line{'s' if len(lines) > 1 else ''} {shown}")
    if source.fibers:
        return Execution("fibers", "the device is opened with checked=True")
    return Execution("fibers", translator.unsplit.get(instance.function.name_at, "its threads meet"))


def _way(instance: KernelInstance, translator: Translator, source: Source) -> cpu_entry.Way:
    if instance.function.name_at in translator.split:
        return cpu_entry.Way.REGIONS
    return cpu_entry.Way.FIBERS if source.fibers or source.meets(instance) else cpu_entry.Way.LOOP


def _small_types(instance: KernelInstance, instances: Sequence[KernelInstance]) -> frozenset[str]:
    """Template parameters of a kernel that stand for scalars or vectors in all of its instances."""
    alike = [one for one in instances if one.function.name_at == instance.function.name_at]
    return frozenset(
        name
        for name in instance.substitution
        if all(element_type(one.substitution.get(name, ()), {}, {}).scalar is not None for one in alike)
    )
