"""A kernel's parameters as C++ text, for the entry points of every target."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .kernels import KernelInstance, Parameter
from .syntax import ADDRESS_SPACES
from .tokens import Token
from .translate import literal


def type_text(tokens: Sequence[Token]) -> str:
    """A parameter's type in C++: spaces erased, constant memory const."""
    words: list[str] = []
    has_const = any(token.text == "const" for token in tokens)
    for token in tokens:
        if token.text == "constant":
            if not has_const:
                words.append("const")
        elif token.text not in ADDRESS_SPACES:
            words.append(literal(token.text) if token.kind == "number" else token.text)
    return " ".join(words)


def is_absent(parameter: Parameter, absent: Callable[[str], bool]) -> bool:
    """Whether a parameter's function constant removes it."""
    return parameter.guard is not None and absent(parameter.guard)


def buffers_of(instance: KernelInstance, absent: Callable[[str], bool]) -> list[Parameter]:
    """The buffer arguments that are present, ascending by index."""
    present = [p for p in instance.parameters if p.role in ("buffer", "value") and not is_absent(p, absent)]
    return sorted(present, key=lambda parameter: parameter.index)


def shared_of(instance: KernelInstance, absent: Callable[[str], bool]) -> list[Parameter]:
    """The threadgroup arguments that are present, ascending by index."""
    present = [p for p in instance.parameters if p.role == "shared" and not is_absent(p, absent)]
    return sorted(present, key=lambda parameter: parameter.index)


def using_namespaces(instance: KernelInstance) -> str:
    """Makes the names of a kernel's own namespaces visible, outermost first."""
    scope = instance.function.scope
    return "".join(
        f" using namespace {'::'.join(scope[: depth + 1])};" for depth in range(len(scope)) if all(scope[: depth + 1])
    )


def stored_bytes(instance: KernelInstance, layout: str | None, apart: str = "0") -> str:
    """The size of the threadgroup variables in the kernel's body, ``apart`` bytes apart, by its layout function."""
    arguments = instance.call[instance.call.index("<") :] if "<" in instance.call else ""
    return f"{layout}{arguments}(~0u, {apart})" if layout else "0"
