"""Sources that repeat something, as long as one asks for: what a parser with quadratic parts would choke on."""

from __future__ import annotations

from collections.abc import Callable

Make = Callable[[int], str]

_TOKENS = (
    "; ( ) [ ] { } < > , . : :: # ## \\ \" ' / * // /**/ + - -- ! ~ = == & && | || ^ ? % a 0 1.0 template kernel struct namespace using "
    "typedef operator static constant threadgroup enum return if while do for case [[ ]] () [] {} <> a< a<b> >> << -> ... \n \\\n \\' @"
).split(" ")  # fmt: skip


def _repeated(text: str) -> Make:
    return lambda size: text * (size // len(text))


def _in_kernel(make: Make) -> Make:
    return lambda size: f"kernel void k(device int *x) {{ {make(size)} }}"


def _numbered(text: str) -> Make:
    """The text again and again, ``@`` replaced by how often it has come, ``$`` by one less."""
    return lambda size: "".join(
        text.replace("@", str(number)).replace("$", str(number - 1)) for number in range(1, size // (len(text) + 4))
    )


def _nested(opening: str, inside: str, closing: str, most: int = 1 << 60) -> Make:
    def make(size: int) -> str:
        depth = min(most, size // (len(opening) + len(closing)))
        return opening * depth + inside + closing * depth

    return make


def _behind(first: str, make: Make, last: str = "") -> Make:
    return lambda size: first + make(size) + last


TOKENS: dict[str, Make] = {
    **{repr(token): _repeated(f"{token} " if token.isalnum() else token) for token in _TOKENS},
    **{f"{token!r} in a kernel": _in_kernel(_repeated(f"{token} " if token.isalnum() else token)) for token in _TOKENS},
}
"""One token or bracket, again and again."""

TEXTS: dict[str, Make] = {
    "one string": _behind('constant char c[] = "', _repeated("a"), '";'),
    "one character literal": _behind("constant int c = '", _repeated("a"), "';"),
    "one number": _behind("constant int c = ", _repeated("1"), ";"),
    "one comment": _behind("/*", _repeated("*"), "*/"),
    "an open comment": _behind("/*", _repeated("*")),
    "blank lines": _repeated(" \n"),
}

MACROS: dict[str, Make] = {
    "uses": _behind("#define A a\n", _repeated("A ")),
    "calls": _behind("#define A(x) x\n", _repeated("A(1) ")),
    "open calls": _behind("#define A(x) x\n", _repeated("A(")),
    "arguments": _behind("#define A(...) __VA_ARGS__\nA(", _repeated("1,"), "1)"),
    "definitions": _numbered("#define A@ A$\n"),
    "conditions": _repeated("#if 1\n#endif\n"),
    "nested conditions": _repeated("#if 1\n"),
    "brackets in a condition": _behind("#if ", _nested("(", "1", ")"), "\n#endif"),
    "signs in a condition": _behind("#if ", _repeated("!"), "1\n#endif"),
    "choices in a condition": _behind("#if ", _repeated("1?1:"), "1\n#endif"),
    "sums in a condition": _behind("#if ", _repeated("1+"), "1\n#endif"),
    "pasting": _behind("#define P(a, b) a##b\n", _repeated("P(a, b) ")),
}

DECLARATIONS: dict[str, Make] = {
    "templates": _repeated("template <typename T> struct S; "),
    "template headers": _behind("", _repeated("template <typename T> "), "struct S;"),
    "nested template arguments": _behind("using A = ", _nested("a<", "int", ">"), ";"),
    "open template arguments": _behind("using A = ", _repeated("a<"), ";"),
    "namespaces": _nested("namespace a { ", "", "}", most=999),
    "structs": _numbered("struct S@ { int a; };"),
    "functions that call the one before": _numbered("int f@(int x) { return f$(x); }"),
    "overloads": _repeated("int f(int x) { return 1; }"),
    "mentions of what is not supported": _behind("void f() { ", _repeated("sampler(0); "), "} kernel void k() {}"),
    "address spaces": _behind("void f(", _repeated("a constant "), "x) {}"),
    "kernels": _numbered("kernel void k@(device int *x) { x[0] = simd_sum(x[0]); }"),
    "instances": _behind(
        "template <typename T> kernel void k(device T *x) { simd_sum(1); }\n",
        _numbered('template [[host_name("k@")]] kernel void k<int>(device int *x);'),
    ),
    "constants": _numbered("constant int c@ = c$ + 1;"),
    "function constants": _numbered("constant int c@ [[function_constant(@)]];"),
    "parameters": _behind("kernel void k(", _repeated("uint i [[thread_position_in_grid]], "), "device int *x) {}"),
    "attributes": _behind("", _repeated("[[a]] "), "void f() {}"),
    "specialisations": _behind("template <typename T> struct S;", _repeated("template <> struct S<device int *> {};")),
    "asked constants": _behind("constant bool a = ", _nested("is_function_constant_defined(", "a", ")", most=900), ";"),
    "swizzled constants": _numbered("constant float2 c@ = float2(1).xy;"),
}

STATEMENTS: dict[str, Make] = {
    name: _in_kernel(make)
    for name, make in {
        "while in while": _repeated("while(1) "),
        "if in if": _repeated("if(1) "),
        "else if": _repeated("if(1) ; else "),
        "do in do": _nested("do ", ";", "while(0);"),
        "blocks": _nested("{ ", ";", "} ", most=990),
        "loops around a meeting": _behind("", _repeated("for(;;) "), "simd_sum(1);"),
        "blocks around a barrier": _nested("if (1) { ", "threadgroup_barrier(mem_flags::mem_none);", "} ", most=990),
        "barriers": _repeated("threadgroup_barrier(mem_flags::mem_none); "),
        "variables and a barrier": _behind("threadgroup_barrier(mem_flags::mem_none); ", _numbered("int a@ = 1; ")),
        "threadgroup variables": _numbered("threadgroup int a@[2]; "),
        "swizzles of swizzles": _behind("x", _repeated(".xy"), ";"),
        "choices": _behind("x[0] = ", _repeated("1 ? 2 : "), "3;"),
        "choices of choices": _behind("x[0] = ", _nested("1 ? ", "2", " : 3"), ";"),
        "sums": _behind("x[0] = ", _repeated("x[1] + "), "3;"),
        "shifts": _behind("x[0]", _repeated(" >> x[1]"), ";"),
        "meetings": _repeated("x[0] = simd_sum(x[0]); "),
        "meetings in conditions": _behind("x[0] = simd_sum(1)", _repeated(" && simd_sum(x[0])"), ";"),
        "meetings of meetings": _behind("x[0] = ", _nested("simd_sum(", "1", ")", most=990), ";"),
        "lambdas": _nested("auto f = [] { ", "", "}; ", most=990),
        "assignments that hang together": _behind(
            _numbered("int a@ = 1; ")(4000), _numbered("a@ = a$; "), "simd_sum(1);"
        ),
    }.items()
}

SOURCES = {**TOKENS, **TEXTS, **MACROS, **DECLARATIONS, **STATEMENTS}
