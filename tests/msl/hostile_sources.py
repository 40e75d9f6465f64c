"""Sources that try to get out of the language, by what they try. Each stands behind `HEAD`; the front end refuses all.

``SECRET`` stands for a file that a source has no right to read.
"""

from __future__ import annotations

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"
SECRET = "/etc/hostname"

BODY = "kernel void k(device int *x) {{ {} }}"


def _in_kernel(text: str) -> str:
    return BODY.format(text)


DIRECTIVES = {
    "a directive behind an empty macro": f'#define E\nE #include "{SECRET}"',
    "a directive behind two empty macros": f'#define E\n#define F E\nF E #include "{SECRET}"',
    "a directive behind an empty function macro": f'#define E(x)\nE(1) #include "{SECRET}"',
    "a directive behind an address space": f'device #include "{SECRET}"',
    "a directive behind constant": f'constant #include "{SECRET}"',
    "a directive behind kernel": f'kernel #include "{SECRET}"',
    "a directive behind a cache hint": f'coherent(system) #include "{SECRET}"',
    "a directive behind _Pragma": f'_Pragma("x") #include "{SECRET}"',
    "a directive behind an attribute": f'[[maybe_unused]] #include "{SECRET}"',
    "a directive behind a comment and a macro": f'#define E\n/* */ E /* */ #include "{SECRET}"',
    "a directive from a macro": f'#define H #\nH include "{SECRET}"',
    "a directive from a function macro": f'#define H(x) x include "{SECRET}"\nH(#)',
    "a directive from a macro's argument": f'#define H(x) x\nH(#include "{SECRET}")',
    "a directive in a macro's body": f'#define H #include "{SECRET}"\nH',
    "a directive from pasting": f'#define P(a, b) a##b\nP(#, include) "{SECRET}"',
    "a directive from pasting nothing": f'#define P(a) a##a\nP() # include "{SECRET}"',
    "a definition behind an empty macro": '#define E\nE #define Z as ## m\nkernel void k() { Z("nop"); }',
    "a line marker behind an empty macro": f'#define E\nE #line 1 "{SECRET}"',
    "a GNU line marker": f'# 1 "{SECRET}" 3',
    "a GNU line marker behind a macro": f'#define E\nE # 1 "{SECRET}" 3',
    "a pragma behind an empty macro": "#define E\nE #pragma redefine_extname f system",
    "an undef behind an empty macro": "#define E\nE #undef constant",
    "an include inside a function": f'kernel void k() {{\n#include "{SECRET}"\n}}',
    "an include inside an argument": f'#define F(x) x\nF(\n#include "{SECRET}"\n)',
    "an include of the next": f'#include_next "{SECRET}"',
    "an import": f'#import "{SECRET}"',
    "an import in angles": f"#import <{SECRET}>",
    "an embed": f'constant char c[] = {{\n#embed "{SECRET}"\n}};',
    "an embed behind a macro": f'#define E\nconstant char c[] = {{\nE #embed "{SECRET}"\n}};',
    "an include by a macro": f'#define F "{SECRET}"\n#include F',
    "an include by a pasted macro": f"#define Q(x) #x\n#define P(a) Q(a)\n#include P({SECRET})",
    "an include behind a splice": f'#inc\\\nlude "{SECRET}"',
    "an include behind a spaced splice": f'#inc\\  \nlude "{SECRET}"',
    "an include behind a splice of the hash": f'\\\n#include "{SECRET}"',
    "an include behind a comment": f'/* */ # /* */ include /* */ "{SECRET}"',
    "an include after a carriage return": f'int a;\r#include "{SECRET}"',
    "an include in a string after a carriage return": f'constant char c[] = "\r#include \\"{SECRET}\\"\r";',
    "an include after a vertical tab": f'\v#include "{SECRET}"',
    "an include after a form feed": f'\f#include "{SECRET}"',
    "an include in a literal with a null": f'constant char c[] = "\0#include {SECRET}";',
    "an unknown directive": "#assert machine(x86)",
    "an old identification": '#sccs "x"',
    "an error": "#error stop here",
    "a hash alone in a function": _in_kernel("x[0] = 1 # 2;"),
    "a double hash in a function": _in_kernel("x[0] = a ## b;"),
    "a double hash first in a macro": "#define Z ## m\nint as Z;",
    "a double hash last in a macro": "#define Z as ##\nZ m;",
    "a double hash from pasting hashes": "#define P(a, b) a##b\nP(#, #)",
}

DIGRAPHS = {
    "the digraph of a hash": f'%:include "{SECRET}"',
    "the digraph of a hash behind a macro": f'#define E\nE %:include "{SECRET}"',
    "the digraph of a double hash": '#define Z(a, b) a %:%: b\nZ(as, m)("nop");',
    "the digraphs of brackets": "kernel void k(device int *x <:<:buffer(0):>:>) {}",
    "the digraphs of braces": "kernel void k(device int *x) <% x[0] = 1; %>",
    "the digraphs of an attribute": '<:<:gnu::section("x"):>:> void f() {}',
    "the trigraph of a hash": f'??=include "{SECRET}"',
    "the trigraph of a backslash in a string": 'constant char c[] = "a??/"; asm("nop"); //";',
    "the trigraph of a backslash at the end of a line": '// comment ??/\nasm("nop");',
    "a raw string": 'constant char c[] = R"(" asm("nop") ")";',
    "a raw string with a delimiter": 'constant char c[] = R"x(")x" asm("nop") "(";',
    "a wide raw string": 'constant char c[] = LR"(" asm("nop") ")";',
    "a UTF-8 raw string": 'constant char c[] = u8R"(" asm("nop") ")";',
    "a raw string from pasting": '#define P(a, b) a##b\nconstant char c[] = P(R, "(") asm("nop") ")";',
    "a raw string as a template argument": (
        'template <typename T> kernel void k(device T *x) {}\ntemplate kernel void k<R"(", ")" asm("nop") ")">(device int *x);'
    ),
    "a string that is never closed": 'constant char c[] = "a;\nasm("nop");',
    "a character that is never closed": 'constant char c = \'a;\nasm("nop");',
    "a universal character name": '\\u0061sm("nop");',
    "a long universal character name": '\\U00000061sm("nop");',
    "a named character": '\\N{LATIN SMALL LETTER A}sm("nop");',
    "a backslash before a word": '\\asm("nop");',
    "a null byte in a word": 'a\0sm("nop");',
    "a lone surrogate": 'constant char c[] = "\ud800";',
}

ASSEMBLY = {
    "inline assembly": _in_kernel('asm("nop");'),
    "inline assembly outside functions": 'asm(".globl x");',
    "an included binary": f'asm(".incbin \\"{SECRET}\\"");',
    "GNU's spelling": _in_kernel('__asm__("nop");'),
    "the short spelling": _in_kernel('__asm("nop");'),
    "volatile": _in_kernel('asm volatile ("nop");'),
    "goto": _in_kernel('asm goto ("" : : : : l); l:;'),
    "a label of a function": 'int f(int) asm("system");',
    "a label of a variable": 'constant int c asm("environ") = 1;',
    "a register variable": _in_kernel('register int a asm("rax") = 1;'),
    "pasted": '#define P(a, b) a##b\nP(as, m)("nop");',
    "pasted from an object macro": '#define Z as##m\nZ("nop");',
    "pasted from three": '#define P(a, b, c) a##b##c\nP(a, s, m)("nop");',
    "pasted with nothing": '#define P(a, b) a##b\nP(asm, )("nop");',
    "pasted with underscores": '#define P(a) __##a##__\nP(asm)("nop");',
    "pasted by a macro of a macro": '#define C(a, b) a##b\n#define D(a, b) C(a, b)\n#define A as\nD(A, m)("nop");',
    "by a macro": '#define Z asm\nZ("nop");',
    "spliced": 'as\\\nm("nop");',
    "spliced with spaces": 'as\\ \t\nm("nop");',
    "spliced in a carriage return": 'as\\\r\nm("nop");',
    "in a template argument": (
        'template <typename T> kernel void k(device T *x) {}\ntemplate kernel void k<decltype(({ asm("nop"); 1; }))>(device int *x);'
    ),
    "in an attribute": '[[gnu::aligned(({ asm("nop"); 8; }))]] constant int c = 1;',
    "in a type": 'struct S { int a[({ asm("nop"); 1; })]; };',
}

LINKAGE = {
    "extern": "extern int puts(const char *);",
    "extern C": 'extern "C" int system(const char *);',
    "extern C with braces": 'extern "C" { int system(const char *); }',
    "extern C beside a definition": 'extern "C" { void f() {} namespace n { int system(const char *); } }',
    "extern C in a function": _in_kernel('extern "C" int system(const char *);'),
    "a name for the linker": 'void f() __asm("air.x");',
    "a name for the linker of another library": 'void __metal_f() __asm("system");',
    "a name for the linker and more": 'void __metal_f() __asm("air.x") __attribute__((constructor));',
    "assembly in a function named like Apple's": 'void __metal_f() { __asm("air.x"); }',
    "extern by pasting": '#define P(a, b) a##b\nP(ex, tern) "C" int system(const char *);',
    "extern by a splice": 'ext\\\nern "C" int system(const char *);',
    "extern in a function": _in_kernel("extern int environ;"),
    "extern template": "extern template struct S<int>;",
    "our own export": "__OST_EXPORT int system(const char *);",
    "our own names": "namespace __ost { }",
    "our own entry": "kernel void __ost_entry_0() {}",
    "the C library's declarations": "__BEGIN_DECLS\nint system(const char *);\n__END_DECLS",
    "the C++ library's declarations": "_GLIBCXX_BEGIN_EXTERN_C\nint system(const char *);\n_GLIBCXX_END_EXTERN_C",
    "a constructor": "__attribute__((constructor)) void f() {}",
    "a constructor behind a harmless attribute": "__attribute__((unused, constructor)) void f() {}",
    "a constructor behind nothing": "__attribute__((, constructor)) void f() {}",
    "a constructor with underscores": "__attribute__((__constructor__(101))) void f() {}",
    "a constructor by another spelling": "__attribute((constructor)) void f() {}",
    "a constructor in angles": "__attribute__((aligned < 1, constructor, aligned > 1)) void f() {}",
    "a destructor": "__attribute__((destructor)) void f() {}",
    "an alias": '__attribute__((alias("system"))) void f();',
    "an indirect function": '__attribute__((ifunc("r"))) void f();',
    "a weak reference": '__attribute__((weakref("system"))) static int f(const char *);',
    "a section": '__attribute__((section(".init_array"))) constant int c = 1;',
    "a cleanup": _in_kernel("__attribute__((cleanup(f))) int a = 1;"),
    "a naked function": "__attribute__((naked)) void f() {}",
    "a target": '__attribute__((target("arch=native"))) void f() {}',
    "an error attribute": '__attribute__((error("x"))) void f();',
    "a visibility": '__attribute__((visibility("default"))) void f() {}',
    "single parentheses": "__attribute__(constructor) void f() {}",
    "a standard attribute": "[[gnu::constructor]] void f() {}",
    "a standard attribute behind another": "[[gnu::unused, gnu::constructor]] void f() {}",
    "a standard attribute of clang": '[[clang::section("x")]] void f() {}',
    "a standard attribute with underscores": "[[__gnu__::constructor]] void f() {}",
    "a standard attribute with using": '[[using gnu: section("x")]] void f() {}',
    "a declspec": "__declspec(dllexport) void f() {}",
    "export": "export int f() { return 1; }",
    "an import of a header unit": f'import "{SECRET}";',
    "an import of a system header": "import <stdlib.h>;",
    "a module fragment": "module :private;",
    "a redefined name": '_Pragma("redefine_extname" " f system") int f();',
    "a pragma of two strings": _in_kernel('_Pragma("GCC" "target") x[0] = 1;'),
    "a pragma of Microsoft's": _in_kernel("__pragma(x) x[0] = 1;"),
}

LIBRARY = {
    "new": _in_kernel("auto p = new int;"),
    "global new": _in_kernel("auto p = ::new int;"),
    "an operator new": "struct S { void *operator new(size_t); };",
    "delete": _in_kernel("delete x;"),
    "operator delete": _in_kernel("::operator delete(x);"),
    "throw": _in_kernel("throw 1;"),
    "try": _in_kernel("try { } catch (...) { }"),
    "typeid": _in_kernel("auto &t = typeid(int);"),
    "dynamic_cast": _in_kernel("auto p = dynamic_cast<int *>(x);"),
    "a virtual function": "struct S { virtual void f() {} };",
    "a coroutine": _in_kernel("co_await x;"),
    "a coroutine that yields": _in_kernel("co_yield x;"),
    "thread_local": "thread_local int a = 1;",
    "GNU's thread_local": "__thread int a = 1;",
    "a variable": "int a = 1;",
    "a static variable": _in_kernel("static int a = f();"),
    "a variable of a class": "struct S { static int a; };",
    "printf by the compiler": _in_kernel('__builtin_printf("x");'),
    "malloc by the compiler": _in_kernel("__builtin_malloc(4);"),
    "exec by the compiler": _in_kernel('__builtin_execl("a", "b");'),
    "fork by the compiler": _in_kernel("__builtin_fork();"),
    "exit by the compiler": _in_kernel("__builtin_exit(0);"),
    "the file by the compiler": _in_kernel("auto p = __builtin_FILE();"),
    "a return address": _in_kernel("auto p = __builtin_return_address(0);"),
    "a frame address": _in_kernel("auto p = __builtin_frame_address(0);"),
    "a jump by the compiler": _in_kernel("__builtin_longjmp(x, 1);"),
    "a call of any function": _in_kernel("__builtin_apply(f, 0, 0);"),
    "a builtin by pasting": "#define P(a) __builtin_##a\n" + _in_kernel("P(alloca)(4);"),
    "the date": _in_kernel("auto p = __DATE__;"),
    "the base file": _in_kernel("auto p = __BASE_FILE__;"),
    "the time of the file": _in_kernel("auto p = __TIMESTAMP__;"),
    "a look for a file": _in_kernel(f'if (__has_include("{SECRET}")) x[0] = 1;'),
    "a look for a next file": _in_kernel(f'if (__has_include_next("{SECRET}")) x[0] = 1;'),
    "a look for what to embed": _in_kernel(f'if (__has_embed("{SECRET}")) x[0] = 1;'),
    "arguments of no macro": _in_kernel("f(__VA_ARGS__);"),
}

FAMILIES = {
    "directives": DIRECTIVES,
    "digraphs": DIGRAPHS,
    "assembly": ASSEMBLY,
    "linkage": LINKAGE,
    "library": LIBRARY,
}

SOURCES = {
    f"{family}: {what}": HEAD + source for family, sources in FAMILIES.items() for what, source in sources.items()
}

OUTSIDE_FUNCTIONS = {
    "puts": 'int puts(constant char *);\nkernel void k(device int *x) { x[0] = puts("x"); }',
    "execl": 'int execl(constant char *, constant char *, ...);\nkernel void k(device int *x) { x[0] = execl("a", "b"); }',
    "a friend": "struct S { friend int getpid(S) ; };\nkernel void k(device int *x) { x[0] = getpid(S{}); }",
    "::write": 'kernel void k(device int *x) { x[0] = ::write(1, "x", 1); }',
    "std::system": 'kernel void k(device int *x) { x[0] = std::system("x"); }',
    "a redirected name": "int __REDIRECT(f, (constant char *), system);\nkernel void k(device int *x) { x[0] = f(0); }",
    "in a namespace": (
        "inline namespace n { int system(constant char *); }\nkernel void k(device int *x) { x[0] = n::system(0); }"
    ),
}
"""What only the C++ compiler or the linker can refuse."""
