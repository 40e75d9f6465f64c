"""The CPU: kernels as loops over their threads, as loops between barriers, or as fibers."""

from __future__ import annotations

from collections.abc import Sequence

from . import cpu_entry
from .fiber_sites import mark_paths
from .kernels import KernelInstance
from .reflect import element_type
from .target import Source, TargetText
from .translate import Dialect, Translator

_INCLUDES = '#include "ostinato/metal_cpu.h"\n#include "ostinato/entry_cpu.h"\n'
_DIALECT = Dialect(
    kernel_parameters="__ost::Worker *__ost_w",
    arena="__ost_w->arena",
    enter_namesake="__ost::Frame __ost_frame(__ost_site);",
    rewrite_types=lambda syntax, declarations, rewriter: None,
    mark_sites=mark_paths,
)


def translate_for_cpu(source: Source) -> TargetText:
    """C++17 for the machine's compiler."""
    meeting = [] if source.fibers else [instance for instance in source.instances if source.meets(instance)]
    alike: dict[int, list[KernelInstance]] = {}
    for instance in meeting:
        alike.setdefault(instance.function.name_at, []).append(instance)
    parameters = {name_at: (those[-1].formal, _small_types(those)) for name_at, those in alike.items()}
    translator = Translator(source.syntax, source.declarations, source.convergence, _DIALECT, parameters)
    body = translator.run(source.constants)
    ways = {instance.name: _way(instance, translator, source) for instance in source.instances}
    return TargetText(_INCLUDES, body + cpu_entry.table(source.instances, ways, translator.layouts, source.absent))


def _way(instance: KernelInstance, translator: Translator, source: Source) -> cpu_entry.Way:
    if instance.function.name_at in translator.split:
        return cpu_entry.Way.REGIONS
    return cpu_entry.Way.FIBERS if source.fibers or source.meets(instance) else cpu_entry.Way.LOOP


def _small_types(alike: Sequence[KernelInstance]) -> frozenset[str]:
    """Template parameters of a kernel that stand for scalars or vectors in all of its instances."""
    return frozenset(
        name
        for name in alike[-1].substitution
        if all(element_type(one.substitution.get(name, ()), {}, {}).scalar is not None for one in alike)
    )
