"""Refuses what a kernel must not do, before any compiler sees the source.

Compiled for the CPU, a kernel is native code in the user's process. This check is not a sandbox (a kernel can write
through any pointer that it computes; run only kernels you trust), but it keeps the source within the language: it reads
no files, contains no assembler, calls no foreign functions, and runs no code when the library is loaded. It also
refuses, by name, the parts of Metal that this library does not support.

It checks twice: the tokens of the source, where an error has a file and a line, and the finished text that the compiler
gets (`check_text`), which does not rely on earlier checks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..errors import KernelCompileError, UnsupportedFeature
from .declarations import Declarations
from .syntax import BEFORE_EXPRESSIONS, Syntax
from .tensors import refuse_handles
from .tokens import IDENTIFIER, STRING, Token, fail

_FORBIDDEN = {
    "asm": "inline assembly", "__asm__": "inline assembly", "__asm": "inline assembly",
    "extern": "an extern declaration", "thread_local": "thread_local storage", "__thread": "thread_local storage",
    "new": "dynamic memory", "throw": "an exception", "try": "an exception", "catch": "an exception",
    "typeid": "run-time type information", "dynamic_cast": "run-time type information", "virtual": "a virtual function",
    "__declspec": "__declspec", "co_await": "a coroutine", "co_yield": "a coroutine", "co_return": "a coroutine",
    "__label__": "a local label", "export": "export", "_Thread_local": "thread_local storage",
    "__DATE__": "__DATE__", "__TIME__": "__TIME__", "__TIMESTAMP__": "__TIMESTAMP__", "__BASE_FILE__": "__BASE_FILE__",
    "__FILE_NAME__": "__FILE_NAME__", "__INCLUDE_LEVEL__": "__INCLUDE_LEVEL__", "__incbin": "__incbin",
    "double": "double (MSL has no such type; write float)",
}  # fmt: skip

_SOMETIMES = frozenset({"extern", "__asm"})
"""Words whose place decides whether they are allowed."""

_HARMLESS_ATTRIBUTES = frozenset(
    """always_inline noinline unused used_by_compiler aligned packed flatten hot cold pure const nothrow
    warn_unused_result optnone optimize_none gnu_inline artificial may_alias deprecated unavailable
    fallthrough vector_size ext_vector_type leaf noclone convergent overloadable no_sanitize
    no_sanitize_undefined nodebug noduplicate""".split()
)

_HARMLESS_BUILTINS = re.compile(
    r"__builtin_(expect|unreachable|assume|assume_aligned|constant_p|choose_expr|offsetof|trap|prefetch|bswap(16|32|64)|"
    r"popcount(l|ll)?|clz(l|ll)?|ctz(l|ll)?|ffs(l|ll)?|bitreverse(8|16|32|64)|nan[fs]?|nansf|inff?|huge_valf?|isnan|isinf(_sign)?|isfinite|isnormal|signbit[fl]?|"
    r"fabsf?|fmaf?|sqrtf?|floorf?|ceilf?|truncf?|rintf?|roundf?|copysignf?|fminf?|fmaxf?|expf?|exp2f?|logf?|log2f?|powf?|sinf?|cosf?|"
    r"types_compatible_p|bit_cast|convertvector|shufflevector|rotateleft(32|64)|rotateright(32|64))"
)


def is_harmless_attribute(name: str) -> bool:
    """Whether a source may write ``__attribute__((name))``."""
    return name.strip("_") in _HARMLESS_ATTRIBUTES


def is_harmless_builtin(name: str) -> bool:
    """Whether a source may call the compiler's function ``name``."""
    return _HARMLESS_BUILTINS.fullmatch(name) is not None


_KEPT_RESERVED = re.compile(
    r"__(builtin|metal|METAL|HAVE|is)_\w+|__(attribute|restrict|inline|const|volatile|signed|extension|func)(__)?|"
    r"__\w+_(MAX|MIN|EPSILON|BIT|WIDTH|DIG)__"
)
"""Reserved names that keep the meaning the compiler gives them."""

_LITERAL = r"""(?P<literal>"(?:[^"\\\x00-\x1f]|\\[^\x00-\x1f])*+"|(?<![\w'])'(?:[^'\\\x00-\x1f]|\\[^\x00-\x1f])++')"""
_OURS = r"""(?P<ours>^\#if\ __OST_INLINE_BYTES$|^\#endif$
    |^extern\ "C"\ __global__\ void\b|^extern\ "C"\ __device__\ const\ uint32_t\ __ost_info_[0-9]+\b)"""
_TRIGRAPH = re.compile(r"\?\?[=/'()!<>-]")

UNSUPPORTED = {
    **dict.fromkeys(
        """texture1d texture1d_array texture2d texture2d_array texture2d_ms texture2d_ms_array texture3d
    texturecube texturecube_array texture_buffer depth2d depth2d_array depth2d_ms depth2d_ms_array
    depthcube depthcube_array sampler imageblock""".split(),
        "textures and samplers",
    ),
    **dict.fromkeys(
        """raytracing intersector intersection_query acceleration_structure instance_acceleration_structure
    primitive_acceleration_structure intersection_function_table visible_function_table""".split(),
        "ray tracing and function tables",
    ),
    **dict.fromkeys(["vertex", "fragment"], "vertex and fragment functions"),
}  # fmt: skip


_CONSTANT_WORDS = frozenset({"constant", "constexpr", "const"})


def check_tokens(syntax: Syntax) -> None:
    """Raises at the first token that is not allowed in a kernel source."""
    refuse_handles(syntax)
    texts = syntax.texts
    for index, token in enumerate(syntax.tokens):
        if token.kind != IDENTIFIER:
            continue
        text = token.text
        if text in _FORBIDDEN and text not in _SOMETIMES:
            raise fail(f"{_FORBIDDEN[text]} is not allowed in a kernel source", token)
        refusal = unsupported_at(syntax, index) if text in UNSUPPORTED else None
        if refusal is not None:
            raise refusal
        if text.startswith(("__", "_Clang")):
            _check_reserved(syntax, index)
        elif text == "delete" and texts[index - 1] != "=":
            raise fail("dynamic memory is not allowed in a kernel source", token)
        elif text in ("gnu", "clang") and texts[index + 1] == "::" and texts[index - 1] in ("[", ","):
            _check_attribute(texts[index + 2], token)
        elif text == "using" and index > 1 and texts[index - 1] == "[" and texts[index - 2] == "[":
            raise fail(
                "[[using …]] is not allowed in a kernel source; write the namespace before each attribute", token
            )
        elif text in ("import", "module") and (
            texts[index + 1] in ("<", ":") or syntax.tokens[index + 1].kind == STRING
        ):
            raise fail(f"{text} of a module is not allowed in a kernel source", token)


def unsupported_at(syntax: Syntax, index: int) -> KernelCompileError | None:
    """The error for a part of Metal that is named at ``index`` and not supported here, if one is."""
    text = syntax.texts[index]
    if text not in UNSUPPORTED or (index and syntax.texts[index - 1] in (".", "->")):
        return None
    if text in syntax.declared and not _names_type(syntax, index):
        return None  # the source's own variable
    return fail(f"{UNSUPPORTED[text]} ({text}) are not supported", syntax.tokens[index], UnsupportedFeature)


def _names_type(syntax: Syntax, index: int) -> bool:
    """Whether the word at ``index`` names a type although a variable has this name too: ``word x``, ``word &x``."""
    before, after = syntax.tokens[index - 1], syntax.tokens[index + 1]
    if after.kind == IDENTIFIER or after.text == "::":
        return True
    in_expression = before.text in BEFORE_EXPRESSIONS or (
        before.kind != IDENTIFIER and before.text not in ("", ";", "{", "}")
    )
    return after.text in ("&", "*", "<") and not in_expression


def _check_reserved(syntax: Syntax, index: int) -> None:
    token = syntax.tokens[index]
    text = token.text
    if text.lower().startswith("__ost"):
        raise fail(f"names beginning with __ost are reserved ({text})", token)
    if text.startswith("__builtin") and not is_harmless_builtin(text):
        raise fail(f"{text} is not allowed in a kernel source", token)
    if text in ("__attribute__", "__attribute"):
        if syntax.texts[index + 1 : index + 3] != ["(", "("]:
            raise fail("__attribute__ needs double parentheses", token)
        _check_attributes(syntax, index + 3, syntax.match[index + 2])
    if text in ("__gnu__", "_Clang") and syntax.texts[index + 1] == "::":
        _check_attribute(syntax.texts[index + 2], token)


def _check_attributes(syntax: Syntax, index: int, end: int) -> None:
    """The names of the attributes ``a, b(…), …``."""
    begins = True
    while index < end:
        token = syntax.tokens[index]
        if token.kind == IDENTIFIER or (begins and token.text != ","):
            _check_attribute(token.text, token)
        begins = token.text == ","
        index = max(index, syntax.match[index]) + 1


def _check_attribute(name: str, token: Token) -> None:
    if not is_harmless_attribute(name):
        raise fail(f"attribute {name!r} is not allowed in a kernel source", token)


def check_declarations(syntax: Syntax, declarations: Declarations) -> None:
    """Raises at a global or static member that is not a constant, which would need code at load time.

    Also at an ``extern`` that does not stand before a definition, and at an ``__asm`` that is not the name of a
    function inside Apple's library.
    """
    for index, text in enumerate(syntax.texts):
        if text in _SOMETIMES and index not in declarations.linkages and index not in declarations.internals:
            raise fail(f"{_FORBIDDEN[text]} is not allowed in a kernel source", syntax.tokens[index])
    for variable in declarations.variables:
        words = set(syntax.texts[variable.start : variable.name_at])
        if variable.in_struct and "static" not in words and "inline" not in words:
            continue
        if not words & _CONSTANT_WORDS:
            raise fail(
                f"{variable.name!r} is a variable outside all functions; only constants (constant or "
                "constexpr) are allowed there",
                syntax.tokens[variable.name_at],
            )
    for function in declarations.functions:
        if function.body is None:
            continue
        for index in range(*function.body):
            if syntax.texts[index] == "static" and not _CONSTANT_WORDS & set(syntax.texts[index + 1 : index + 3]):
                raise fail(
                    "a static variable that is not constant is not allowed in a kernel source: threads would share it",
                    syntax.tokens[index],
                )


def shelter(tokens: Sequence[Token]) -> str:
    """Undefines macros behind the reserved names that a source uses.

    The compiler's headers define macros that a source may not write itself, such as ``__BEGIN_DECLS``. In a source they
    are plain names.
    """
    reserved = {token.text for token in tokens if token.kind == IDENTIFIER and _is_reserved(token.text)}
    return "".join(f"#undef {name}\n" for name in sorted(reserved) if not _KEPT_RESERVED.fullmatch(name))


def _is_reserved(name: str) -> bool:
    return name[0] == "_" and len(name) > 1 and (name[1] == "_" or name[1].isupper())


_FINISHED = re.compile(
    rf"""{_OURS}|{_LITERAL}|(?P<number>(?<![\w'.])\.?[0-9][\w.]*+(?:'[0-9A-Za-z][\w.]*+)++)
    |(?P<word>\b(?:{"|".join(sorted(_FORBIDDEN))})\b)
    |(?P<builtin>\b__builtin_\w+)
    |(?P<refused>["'\\\#`@]|//|/\*|%:|<:(?!:[^:>])|<%|%>|\?\?[=/'()!<>-]|[\x00-\x08\x0b-\x1f\x7f])""",
    re.VERBOSE | re.MULTILINE,
)


def check_text(text: str) -> None:
    """Raises at anything in a translation that is not allowed in a source."""
    for match in _FINISHED.finditer(text):
        kind, what = match.lastgroup, match.group()
        if kind in ("ours", "number") or (kind == "literal" and not _TRIGRAPH.search(what)):
            continue
        if kind == "builtin" and is_harmless_builtin(what):
            continue
        line = text.count("\n", 0, match.start())
        shown = text.splitlines()[line].strip()[:80] if line < 1 << 20 else what
        raise KernelCompileError(
            f"{what[:40]!r} is not allowed in a kernel source (found in its translation: {shown!r})"
        )
