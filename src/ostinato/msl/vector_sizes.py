"""``template <typename T, uint n> T sum(vec<T, n> x)``: sizes of vectors that are deduced as another type than `int`.

Apple's compiler deduces the size of a vector as any integer type. Here ``vec`` is a template, and C++ deduces an
argument only as the type that the template declares. So the parameter becomes an `int`, and the body gets its number
back as the type that the source says.
"""

from __future__ import annotations

from .declarations import Declarations, Function, TemplateHeader
from .reflect import INTEGERS
from .rewriter import Rewriter
from .syntax import Syntax

_WORDS = frozenset(word for name in INTEGERS for word in name.split()) | {"const"}
"""Words of the integer types."""


def rewrite_vector_sizes(syntax: Syntax, declarations: Declarations, rewriter: Rewriter) -> None:
    """Gives the parameters of function templates that are sizes of vectors the type of `vec`'s."""
    for function in declarations.functions:
        sizes = _sizes_of_vectors(syntax, function) if function.templates else ()
        for header in _own_templates(syntax, function) if sizes else ():
            for begin, name_at in _integers(syntax, header):
                if syntax.texts[name_at] in sizes:
                    _rewrite(syntax, rewriter, function, range(begin, name_at), header.start)


def _own_templates(syntax: Syntax, function: Function) -> list[TemplateHeader]:
    """The template headers of a function but for those of the classes that it is a member of, ``A<n>::f``."""
    of_classes = 0
    at = function.name_at
    while syntax.texts[at - 1] == "::":
        of_classes += syntax.texts[at - 2] == ">"
        at = (syntax.angle_start(at - 2) - 1) if syntax.texts[at - 2] == ">" else at - 2
    return function.templates[of_classes:]


def _sizes_of_vectors(syntax: Syntax, function: Function) -> set[str]:
    """The names ``n`` in the ``vec<…, n>`` among a function's parameters."""
    names = set()
    for index in range(function.opening, function.closing):
        if syntax.texts[index : index + 2] == ["vec", "<"]:
            closing = syntax.angle_end(index + 1, function.closing)
            if closing is not None and syntax.texts[closing - 2] == ",":
                names.add(syntax.texts[closing - 1])
    return names


def _integers(syntax: Syntax, header: TemplateHeader) -> list[tuple[int, int]]:
    """Where the type and the name are of each parameter that is an integer, but no `int`."""
    found = []
    for begin, end in syntax.split(header.start + 2, header.end):
        name_at = next((index for index in range(begin, end) if syntax.texts[index] == "="), end) - 1
        type_ = syntax.texts[begin:name_at]
        if type_ and type_ != ["int"] and _WORDS.issuperset(type_):
            found.append((begin, name_at))
    return found


def _rewrite(syntax: Syntax, rewriter: Rewriter, function: Function, type_: range, start: int) -> None:
    texts = syntax.texts
    name, written = texts[type_.stop], " ".join(texts[index] for index in type_)
    deduced = f"__ost_size_{name}"
    body = function.body[0] if function.body is not None else function.end
    initialises = "->" not in texts[function.closing : body]  # the members of a class, with values of the source's type
    for index in type_:
        rewriter.replace(index, "int" if index == type_.start else "")
    for index in range(start, body):
        if texts[index] == name and texts[index - 1] not in (".", "->", "::"):
            value = index > function.closing and initialises
            rewriter.replace(index, f"static_cast<{written}>({deduced})" if value else deduced)
    if function.body is not None:
        rewriter.after(body, f" constexpr {written} {name} = {deduced};")
