"""The preprocessor: includes, conditionals and macros, so that the parser sees what the Metal compiler would see.

It exists because reflection must work without a C++ compiler (a Mac without tools, a CUDA machine) and because includes
are a trust boundary: a source may read files below its own folder and the include folders, and nothing else. Work is
bounded: nesting, macro growth and file sizes have limits, so that no source can make it hang.

The output has nothing left for another preprocessor: no ``#`` and ``##``, no ``_Pragma``, no digraph, no raw string.
The compiler reads the same tokens as this preprocessor.

Tokens that come out of a macro carry the place where the macro was used, which is the place to correct, and the token
of the definition; arguments of macros keep their own places.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from pathlib import Path

from ..errors import KernelCompileError, UnsupportedFeature
from .constant_expression import NotConstant, Value, evaluate
from .definitions import SOURCE, Moved, lines_shown
from .files_read import existing
from .safety import is_harmless_attribute, is_harmless_builtin
from .single_text import base_name, line_marker
from .tokens import (
    IDENTIFIER,
    MAX_TOKENS,
    NUMBER,
    PRAGMA,
    PUNCTUATION,
    STRAY,
    STRING,
    Token,
    fail,
    lex,
    lex_line,
    unexpected,
)
from .unwinding import Steps, unwound

MAX_INCLUDE_DEPTH = 64
_INCLUDE_TOKENS = 500
"""Tokens that an `#include` counts as, which bounds files that include each other."""
MAX_FILE_BYTES = 16 << 20

PREDEFINED = {
    "__METAL__": "1",
    "__METAL_VERSION__": "310",
    "__METAL_MACOS__": "1",
    "__HAVE_BFLOAT__": "1",
    "__HAVE_SIMDGROUP_MATRIX__": "1",
    "__HAVE_ATOMIC_FLOAT__": "1",
    "__LITTLE_ENDIAN__": "1",
    "__cplusplus": "201402L",
    "__STDC_HOSTED__": "0",
    "NDEBUG": "1",
    "__OSTINATO__": "1",
    "__attribute": "__attribute__",
}

_HEADER_OF_METAL = re.compile(
    r"ostinato|metal_\w+|metal/\w+|simd/simd\.h|simd/\w+\.h|stdint\.h|cstdint|stddef\.h|TargetConditionals\.h|"
    r"MetalPerformancePrimitives/(?:MetalPerformancePrimitives|MPPTensorOpsMatMul2d)\.h"
)
_KNOWN_HEADER = re.compile(
    r"ostinato|(?:simd/simd|stdint|stddef|TargetConditionals)\.h|"
    r"MetalPerformancePrimitives/(?:MetalPerformancePrimitives|MPPTensorOpsMatMul2d)\.h|"
    "metal_(?:array|atomic|common|compute|config|cooperative_tensor|geometric|integer|limits|logging|math|matrix|pack|"
    "packed_vector|quadgroup|relational|simdgroup|simdgroup_matrix|stdlib|tensor|type_traits|types|uniform|vector)"
)
"""Headers that are surely there; more of Metal's may be included."""
_SPECIAL = frozenset({"__LINE__", "__FILE__", "__COUNTER__"})
_HAS_QUERIES = {"__has_feature", "__has_attribute", "__has_builtin", "__has_extension", "__has_cpp_attribute"}
_ONLY_IN_DIRECTIVES = _HAS_QUERIES | {
    "__has_include", "__has_include_next", "__has_embed", "__has_warning", "__has_c_attribute",
    "__has_declspec_attribute", "__has_constexpr_builtin", "__is_identifier", "__VA_ARGS__", "__VA_OPT__",
    "_Pragma", "__pragma",
}  # fmt: skip
_DIGRAPHS = frozenset({("%", ":"), ("<", ":"), (":", ">"), ("<", "%"), ("%", ">")})
_DIGRAPH_ENDS = frozenset(end for _, end in _DIGRAPHS)
_RAW_PREFIXES = frozenset({"R", "LR", "uR", "UR", "u8R"})
_SIMD_SCALARS = "char uchar short ushort int uint long ulong half float".split()
_FEATURES = frozenset(
    """cxx_aggregate_nsdmi cxx_alias_templates cxx_alignas cxx_alignof cxx_auto_type cxx_binary_literals cxx_constexpr
    cxx_contextual_conversions cxx_decltype cxx_decltype_auto cxx_default_function_template_args cxx_defaulted_functions
    cxx_delegating_constructors cxx_deleted_functions cxx_explicit_conversions cxx_generalized_initializers
    cxx_generic_lambdas cxx_implicit_moves cxx_inheriting_constructors cxx_init_captures cxx_inline_namespaces
    cxx_lambdas cxx_local_type_template_args cxx_noexcept cxx_nonstatic_member_init cxx_nullptr cxx_override_control
    cxx_range_for cxx_reference_qualified_functions cxx_relaxed_constexpr cxx_return_type_deduction
    cxx_rvalue_references cxx_static_assert cxx_strong_enums cxx_trailing_return cxx_unrestricted_unions
    cxx_user_literals cxx_variable_templates cxx_variadic_templates""".split()
)
"""Those of clang's names for parts of C++14 that a kernel can use."""
_STANDARD_ATTRIBUTES = {"deprecated": 201309, "fallthrough": 201603, "maybe_unused": 201603, "nodiscard": 201603}
_TARGETS = {
    f"TARGET_OS_{name}": str(int(name in ("MAC", "OSX")))
    for name in "MAC OSX WIN32 UNIX IPHONE IOS TV WATCH SIMULATOR MACCATALYST".split()
}
"""What Metal's own <TargetConditionals.h> defines on a Mac."""
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(slots=True)
class Macro:
    """One ``#define``: ``parameters`` is None for an object-like macro."""

    name: str
    parameters: list[str] | None
    variadic: bool
    body: list[Token]
    without_rest: Macro | None = None
    """What it is where nothing is passed for ``...``, if its body has ``__VA_OPT__(…)``."""
    plain: list[int] = field(init=False)
    """For each token of the body, where the tokens from there on end that every use copies as they are."""

    def __post_init__(self) -> None:
        copied = [token.text not in ("#", "##", *(self.parameters or ())) for token in self.body]
        self.plain = [0] * len(self.body)
        end = len(self.body)
        for position in range(len(self.body) - 1, -1, -1):
            pasted = position + 1 < len(self.body) and self.body[position + 1].text == "##"
            if not copied[position] or pasted:
                end = position
            self.plain[position] = end


@dataclass(slots=True)
class _Condition:
    active: bool
    taken: bool
    enclosing: bool
    here: Token
    seen_else: bool = False


@dataclass(slots=True)
class _Shown:
    """The file and line that a text claims for its lines: `#line` may change both."""

    text: str
    """The file that is read."""
    file: str
    ahead: int = 0


@dataclass(slots=True)
class Preprocessed:
    """The output of the preprocessor: the tokens, and the files they came from."""

    tokens: list[Token]
    files: list[str] = field(default_factory=list)
    text: str | None = None
    """The source itself, if it reads the same without other files or defines."""
    written: Mapping[str, bytes] = field(default_factory=dict)
    """What was read, by the file that tokens name."""
    moved: Sequence[Moved] = ()
    """What `#line` directives changed."""
    lookups: Mapping[Path, Path | None] = field(default_factory=dict)
    """Where includes were looked for, and the file that was there."""


@cache
def _metal_macros() -> dict[str, Macro]:
    """The macros of Metal's library, read from the shim."""
    text = (resources.files(__package__) / "include" / "ostinato" / "macros.h").read_text()
    reader = Preprocessor((), {})
    reader.read_text(text, "<metal_stdlib>", None, 1)
    return {name: macro for name, macro in reader.macros.items() if name not in PREDEFINED}


@cache
def _simd_macros() -> dict[str, Macro]:
    """The types of <simd/simd.h>, which are other names of Metal's: ``vector_float4``, ``simd_float4x4``."""
    vectors = [f"{scalar}{n}" for scalar in _SIMD_SCALARS for n in (2, 3, 4)]
    matrices = [f"{scalar}{n}x{m}" for scalar in ("half", "float") for n in (2, 3, 4) for m in (2, 3, 4)]
    named = {f"{word}_{type_}": type_ for word, types in (("vector", vectors), ("matrix", matrices)) for type_ in types}
    named |= {f"simd_{type_}": type_ for type_ in (*vectors, *matrices)}
    return {
        name: Macro(name, None, False, lex_line(f"metal::{type_}", "<simd/simd.h>", 1)) for name, type_ in named.items()
    }


@cache
def _target_macros() -> dict[str, Macro]:
    header = "<TargetConditionals.h>"
    return {name: Macro(name, None, False, lex_line(value, header, 1)) for name, value in _TARGETS.items()}


def known_macros() -> frozenset[str]:
    """The names that a source which defines nothing has macros for."""
    return frozenset((*PREDEFINED, *_metal_macros(), *_SPECIAL))


class Preprocessor:
    """Reads one source with its includes. Use `preprocess`."""

    def __init__(self, include_dirs: Sequence[Path], defines: Mapping[str, str | int]) -> None:
        self.include_dirs = [Path(folder).resolve() for folder in include_dirs]
        self.allowed = list(self.include_dirs)
        self.macros: dict[str, Macro] = {}
        self.output: list[Token] = []
        self.files: list[str] = []
        self.written: dict[str, bytes] = {}
        self.moved: list[Moved] = []
        self.lookups: dict[Path, Path | None] = {}
        self.first_text: str | None = None
        self.simd = False
        """Whether the names of <simd/simd.h> are known."""
        self.reads_alike = True
        """Whether a compiler with other macros than ours would read the same files."""
        self._once: set[Path] = set()
        self._budget = MAX_TOKENS
        self._counter = 0
        for name, value in {**PREDEFINED, **defines}.items():
            if not re.fullmatch(r"[A-Za-z_]\w*", name):
                raise KernelCompileError(f"defines: {name!r} is not a macro name")
            value = int(value) if isinstance(value, bool) else value
            self.macros[name] = Macro(
                name, None, False, lex_line(_checked_text(str(value), "<defines>"), "<defines>", 1)
            )

    # -- files ------------------------------------------------------------------------------------------------------

    def read_file(self, path: Path, depth: int) -> None:
        """Reads ``path``, which the caller has checked to be inside an allowed folder."""
        if path in self._once:
            return
        try:
            size = path.stat().st_size
            if not path.is_file():
                raise KernelCompileError(f"{path} is not a regular file")
            if size > MAX_FILE_BYTES:
                raise KernelCompileError(f"{path} has {size} bytes; at most {MAX_FILE_BYTES} are read")
            written = path.read_bytes()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise KernelCompileError(f"cannot read {str(path)!r}: {reason}") from error
        self.files.append(str(path))
        self.written[str(path)] = written
        text = written.decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\r", "\n")
        self.read_text(text, str(path), path, depth)

    def read_text(self, text: str, file: str, path: Path | None, depth: int) -> None:
        """Runs the directives of ``text`` and appends its tokens to the output."""
        if self.first_text is None:
            self.first_text = text
        conditions: list[_Condition] = []
        pending: list[Token] = []
        shown = _Shown(file, file)
        for tokens in _lines(text, file, shown):
            if tokens[0].text != "#":
                if not conditions or conditions[-1].active:
                    self._spend(len(tokens), tokens[0])
                    pending.extend(tokens)
                else:
                    self.reads_alike &= not tokens[0].text.startswith("%")  # the digraph of `#`
                continue
            self._spend(1, tokens[0])
            active = not conditions or conditions[-1].active
            directive = tokens[1].text if len(tokens) > 1 else ""
            if directive in ("if", "ifdef", "ifndef", "elif", "else", "endif"):
                self._condition(directive, tokens, conditions, active, path)
                continue
            if not active:
                self.reads_alike &= not directive.startswith(("include", "import", "embed"))
                continue
            if directive in ("include", "import", "pragma", "undef", "define"):
                self.output.extend(self.expand(pending))
                pending.clear()
            if directive == "line":
                self._move(tokens, shown)
            else:
                self._directive(directive, tokens, path, depth)
        if conditions:
            here = conditions[-1].here
            raise fail("this #if is never closed by #endif", here)
        self.output.extend(self.expand(pending))

    def _condition(
        self, directive: str, tokens: list[Token], conditions: list[_Condition], active: bool, path: Path | None
    ) -> None:
        here = tokens[1]
        if directive in ("if", "ifdef", "ifndef"):
            holds = False
            if active:
                if directive == "if":
                    holds = self._test(tokens[2:], here, path)
                else:
                    if len(tokens) < 3:
                        raise fail(f"#{directive} needs a name", here)
                    holds = self._is_defined(tokens[2].text) == (directive == "ifdef")
            if len(conditions) >= 1000:
                raise fail("conditionals are nested too deeply", here)
            conditions.append(_Condition(active and holds, holds, active, here))
            return
        if not conditions:
            raise fail(f"#{directive} without #if", here)
        current = conditions[-1]
        if directive == "endif":
            conditions.pop()
            return
        if current.seen_else:
            raise fail(f"#{directive} after #else", here)
        if directive == "else":
            current.seen_else = True
            current.active = current.enclosing and not current.taken
            return
        current.active = current.enclosing and not current.taken and self._test(tokens[2:], here, path)
        current.taken = current.taken or current.active

    def _move(self, tokens: list[Token], shown: _Shown) -> None:
        """``#line number "file"``: what the next line is called from now on."""
        here = tokens[0]
        words = self.expand(tokens[2:])
        number = words[0].text if words else ""
        if not re.fullmatch(r"[0-9]{1,10}", number) or int(number) >= 1 << 31 or len(words) > 2:
            raise fail('#line needs a number and perhaps a "file"', here)
        if len(words) == 2:
            name = re.sub(r"\\(.)", r"\1", words[1].text[1:-1])
            if words[1].kind != STRING or not name or len(name) > 4096 or not name.isprintable():
                raise fail(f"{words[1].text!r} is not a valid file name", here)
            shown.file = name
        shown.ahead += int(number) - (here.line + 1)
        self.moved.append(Moved(shown.file, int(number), shown.text, shown.ahead))

    def _directive(self, directive: str, tokens: list[Token], path: Path | None, depth: int) -> None:
        here = tokens[0]
        if directive == "define":
            self._define(tokens[2:], here)
        elif directive == "undef":
            for token in tokens[2:3]:
                self.macros.pop(token.text, None)
        elif directive in ("include", "import"):
            self._include(tokens[2:], here, path, depth)
        elif directive == "pragma":
            if [token.text for token in tokens[2:3]] == ["once"] and path is not None:
                self._once.add(path)
            else:
                words = "".join((" " if token.spaced else "") + token.text for token in tokens[2:]).strip()
                self.output.append(Token(PRAGMA, words, here.file, here.line))
        elif directive == "error":
            message = " ".join(token.text for token in tokens[2:])
            raise fail(f"#error {message}", here)
        elif directive not in ("", "warning", "ident"):
            raise fail(f"unknown directive #{directive}", here)

    def _include(self, tokens: list[Token], here: Token, path: Path | None, depth: int) -> None:
        name, quoted = self._file_named(tokens, here)
        if depth >= MAX_INCLUDE_DEPTH:
            raise fail(f"#include is nested more than {MAX_INCLUDE_DEPTH} deep", here)
        self._spend(_INCLUDE_TOKENS, here)
        included = self._find(name, path if quoted else None, here)
        if included is not None:
            self.read_file(included, depth + 1)
        elif not quoted and _HEADER_OF_METAL.fullmatch(name):
            if name.startswith("simd/") and not self.simd:
                self.simd = True
                self.macros = {**_simd_macros(), **self.macros}
            elif name == "TargetConditionals.h":
                self.macros |= _target_macros()
        elif name.startswith(("MetalPerformancePrimitives", "MetalPerformanceShaders")):
            raise fail(f"<{name}> is not supported", here, UnsupportedFeature)
        else:
            folders = ", ".join(map(str, self._search(path if quoted else None))) or "no folder"
            raise fail(f"{name!r} was not found (looked in {folders}); pass include_dirs=[…]", here)

    def _file_named(self, tokens: list[Token], here: Token) -> tuple[str, bool]:
        """The name in ``"file"`` or ``<file>``, and whether it is the former."""
        if tokens and tokens[0].kind == IDENTIFIER:
            self.reads_alike = False
            tokens = self.expand(tokens)
        if tokens and tokens[0].kind == STRING:
            return tokens[0].text[1:-1], True
        if tokens and tokens[0].text == "<" and tokens[-1].text == ">":
            return "".join(token.text for token in tokens[1:-1]), False
        raise fail('an include needs "file" or <file>', here)

    def _has(self, tokens: list[Token], here: Token, path: Path | None) -> bool:
        """Whether there is a file to include."""
        self.reads_alike = False
        self._spend(_INCLUDE_TOKENS, here)
        name, quoted = self._file_named(tokens, here)
        return self._find(name, path if quoted else None, here) is not None or (
            not quoted and _KNOWN_HEADER.fullmatch(name) is not None
        )

    def _search(self, path: Path | None) -> list[Path]:
        return ([path.parent] if path is not None else []) + self.include_dirs

    def _find(self, name: str, path: Path | None, here: Token) -> Path | None:
        if "\0" in name:
            raise fail(f"{name!r} is not a valid file name", here)
        for folder in self._search(path):
            candidate = self.lookups[folder / name] = existing(folder / name)
            if candidate is None:
                continue
            if not any(candidate.is_relative_to(root) for root in self.allowed):
                raise fail(
                    f"#include {name!r} leaves the allowed folders ({', '.join(map(str, self.allowed))}); "
                    "add its folder to include_dirs if you trust it",
                    here,
                )
            return candidate
        return None

    # -- macros -----------------------------------------------------------------------------------------------------

    def _define(self, tokens: list[Token], here: Token) -> None:
        if not tokens or tokens[0].kind != IDENTIFIER or tokens[0].text == "defined":
            raise fail("#define needs a name", here)
        name, rest = tokens[0].text, tokens[1:]
        if not rest or rest[0].text != "(" or rest[0].spaced:
            self.macros[name] = Macro(name, None, False, rest)
            return
        parameters: list[str] = []
        variadic = False
        position = 1
        while position < len(rest) and rest[position].text != ")":
            token = rest[position]
            if token.text == "...":
                variadic = True
                if not parameters or rest[position - 1].text in ("(", ","):
                    parameters.append("__VA_ARGS__")
            elif token.kind == IDENTIFIER:
                parameters.append(token.text)
            elif token.text != ",":
                raise fail(f"bad parameter list of macro {name}", here)
            position += 1
        if position == len(rest):
            raise fail(f"the parameter list of macro {name} is never closed", here)
        body = rest[position + 1 :]
        optional = variadic and any(token.text == "__VA_OPT__" for token in body)
        without_rest = Macro(name, parameters, True, _optional(body, False)) if optional else None
        self.macros[name] = Macro(name, parameters, variadic, _optional(body, True) if optional else body, without_rest)

    def _spend(self, count: int, here: Token) -> None:
        self._budget -= count
        if self._budget < 0:
            raise fail(f"the source expands to more than {MAX_TOKENS:,} tokens; is a macro growing endlessly?", here)

    def expand(self, tokens: Sequence[Token]) -> list[Token]:
        """Expands every macro in ``tokens``."""
        return unwound(self._expand(tokens))

    def _is_final(self, tokens: Sequence[Token]) -> bool:
        """Whether there is nothing to expand."""
        texts = {token.text for token in tokens}
        return self.macros.keys().isdisjoint(texts) and texts.isdisjoint(_SPECIAL)

    def _expand(self, tokens: Sequence[Token]) -> Steps[list[Token]]:
        macros = self.macros
        if self._is_final(tokens):
            return list(tokens)
        output: list[Token] = []
        stack = list(reversed(tokens))
        while stack:
            token = stack.pop()
            if token.kind != IDENTIFIER:
                output.append(token)
                continue
            macro = macros.get(token.text)
            if macro is None:
                output.append(self._special(token) if token.text in _SPECIAL else token)
                continue
            if token.text in token.hidden:
                output.append(token)
                continue
            hidden = token.hidden | {token.text}
            if macro.parameters is None:
                replacement = yield self._substitute(macro, [], token, hidden)
            else:
                if not stack or stack[-1].text != "(":
                    output.append(token)
                    continue
                arguments = self._arguments(macro, stack, token)
                replacement = yield self._substitute(macro, arguments, token, hidden)
            # The names to hide are copied with every token, so long chains of macros cost as much as wide ones.
            self._spend((max(len(replacement), len(macro.body)) + 1) * (1 + len(hidden) // 16), token)
            if replacement:
                replacement[0].spaced = token.spaced
            if self._is_final(replacement):
                output.extend(replacement)
            else:
                stack.extend(reversed(replacement))
        return output

    def _special(self, token: Token) -> Token:
        if token.text == "__LINE__":
            return replace(token, kind=NUMBER, text=str(token.line))
        if token.text == "__FILE__":
            return replace(token, kind=STRING, text='"' + Path(token.file).name.replace('"', "") + '"')
        self._counter += 1
        return replace(token, kind=NUMBER, text=str(self._counter - 1))

    def _arguments(self, macro: Macro, stack: list[Token], name: Token) -> list[list[Token]]:
        stack.pop()
        arguments: list[list[Token]] = [[]]
        assert macro.parameters is not None
        last = len(macro.parameters) - 1
        level = 1
        while stack:
            token = stack.pop()
            if token.text == "(":
                level += 1
            elif token.text == ")":
                level -= 1
                if level == 0:
                    break
            if token.text == "," and level == 1 and not (macro.variadic and len(arguments) - 1 == last):
                arguments.append([])
            else:
                arguments[-1].append(token)
        else:
            raise fail(f"the call of macro {macro.name} is never closed", name)
        # Nested calls are expanded once for each call around them.
        self._spend(sum(map(len, arguments)) // 8, name)
        if len(arguments) == 1 and not arguments[0] and not macro.parameters:
            return []
        if macro.variadic and len(arguments) == last:
            arguments.append([])
        if len(arguments) != len(macro.parameters):
            raise fail(f"macro {macro.name} takes {len(macro.parameters)} arguments, not {len(arguments)}", name)
        return arguments

    def _substitute(
        self, macro: Macro, arguments: list[list[Token]], use: Token, hidden: frozenset[str]
    ) -> Steps[list[Token]]:
        """The macro's body with arguments put in, ``#`` and ``##`` done, placed at ``use``."""
        if macro.without_rest is not None and not (yield self._expand(arguments[-1])):
            macro = macro.without_rest
        indices = {name: index for index, name in enumerate(macro.parameters or ())}
        expanded: dict[int, list[Token]] = {}
        result: list[Token] = []
        body = macro.body
        file, line, column = use.file, use.line, use.column

        def argument(token: Token) -> int | None:
            return indices.get(token.text) if token.kind == IDENTIFIER else None

        position = 0
        while position < len(body):
            token = body[position]
            if macro.plain[position] > position:
                end = macro.plain[position]
                result.extend(
                    [
                        Token(each.kind, each.text, file, line, each.spaced, hidden, column, each)
                        for each in body[position:end]
                    ]
                )
                position = end
                continue
            after = body[position + 1] if position + 1 < len(body) else None
            index = argument(token)
            if token.text == "#" and macro.parameters is not None and after is not None and argument(after) is not None:
                quoted = arguments[argument(after) or 0]
                text = "".join((" " if i and part.spaced else "") + part.text for i, part in enumerate(quoted))
                text = text.replace("\\", "\\\\").replace('"', '\\"')
                self._spend(len(text) // 16, use)
                result.append(Token(STRING, f'"{text}"', "", 0, token.spaced, defined=token).out_of(use, hidden))
                position += 2
                continue
            if token.text == "##" and result and after is not None:
                index = argument(after)
                right = arguments[index] if index is not None else [after]
                position += 2
                if not right:
                    continue
                self._spend(len(right) - 1, use)
                right_parts = [part.out_of(use, hidden) if index is None else part.hiding(hidden) for part in right]
                if result[-1].text == "," and after.text == "__VA_ARGS__":
                    # The comma swallowing extension `, ## __VA_ARGS__`: with arguments the comma stays.
                    result.extend(right_parts)
                    continue
                if result[-1].kind == "placemarker":
                    result.pop()
                    result.extend(right_parts)
                    continue
                left = result.pop()
                self._spend((len(left.text) + len(right[0].text)) // 16, use)
                for part in lex_line(left.text + right[0].text, use.file, use.line):
                    part.defined = token
                    result.append(part.out_of(use, hidden))
                result.extend(right_parts[1:])
                continue
            if index is None:
                if token.text == "," and after is not None and after.text == "##" and position + 2 < len(body):
                    last = argument(body[position + 2])
                    if last is not None and macro.variadic and not arguments[last]:
                        position += 3
                        continue
                result.append(token.out_of(use, token.hidden | hidden))
                position += 1
                continue
            if after is not None and after.text == "##":
                parts = arguments[index]
                if not parts:
                    result.append(Token("placemarker", "", use.file, use.line, token.spaced))
            else:
                if index not in expanded:
                    final = self._is_final(arguments[index])
                    expanded[index] = arguments[index] if final else (yield self._expand(arguments[index]))
                parts = expanded[index]
            self._spend(len(parts), use)
            for order, part in enumerate(parts):
                copy = part.hiding(hidden)
                copy.spaced = token.spaced if order == 0 else part.spaced
                result.append(copy)
            position += 1
        return [token for token in result if token.kind != "placemarker"]

    # -- conditions -------------------------------------------------------------------------------------------------

    def _is_defined(self, name: str) -> bool:
        return name in self.macros or name in _HAS_QUERIES or name == "__has_include"

    def _test(self, tokens: list[Token], here: Token, path: Path | None) -> bool:
        resolved: list[Token] = []
        position = 0
        while position < len(tokens):
            token = tokens[position]
            if token.text == "defined":
                bracketed = position + 1 < len(tokens) and tokens[position + 1].text == "("
                name_at = position + (2 if bracketed else 1)
                if name_at >= len(tokens):
                    raise fail("'defined' needs a name", here)
                known = self._is_defined(tokens[name_at].text)
                resolved.append(Token(NUMBER, str(int(known)), here.file, here.line))
                position = name_at + (2 if bracketed else 1)
            elif token.text in _HAS_QUERIES or token.text == "__has_include":
                begin = position + 2
                while position < len(tokens) and tokens[position].text != ")":
                    position += 1
                inside = tokens[begin:position]
                has = self._has(inside, here, path) if token.text == "__has_include" else _answer(token.text, inside)
                position += 1
                resolved.append(Token(NUMBER, str(int(has)), here.file, here.line))
            else:
                resolved.append(token)
                position += 1

        def unknown_names_are_zero(_: str) -> Value:
            return 0

        try:
            return bool(evaluate(self.expand(resolved), unknown_names_are_zero))
        except NotConstant as error:
            raise fail(f"in this condition: {error}", here) from None


def _answer(query: str, tokens: Sequence[Token]) -> int:
    """What ``__has_feature(…)`` and its kin say of a name."""
    name = tokens[-1].text if tokens else ""
    if query in ("__has_feature", "__has_extension"):
        return int(name.strip("_") in _FEATURES)
    if query == "__has_builtin":
        return int(is_harmless_builtin(name))
    if query == "__has_cpp_attribute" and len(tokens) == 1:
        return _STANDARD_ATTRIBUTES.get(name, 0)
    return int(is_harmless_attribute(name))


def _optional(body: Sequence[Token], kept: bool) -> list[Token]:
    """The body of a macro with what is inside of every ``__VA_OPT__(…)``, or with nothing instead of it."""
    result: list[Token] = []
    level = 0  # of brackets inside the __VA_OPT__ that is read
    for position, token in enumerate(body):
        if level == 0 and token.text == "__VA_OPT__":
            if position + 1 == len(body) or body[position + 1].text != "(":
                raise fail("__VA_OPT__ needs (…)", token)
        elif level == 0 and (token.text != "(" or position == 0 or body[position - 1].text != "__VA_OPT__"):
            result.append(token)
        else:
            level += {"(": 1, ")": -1}.get(token.text, 0)
            if kept and level and (level > 1 or token.text != "(" or body[position - 1].text != "__VA_OPT__"):
                result.append(token)
    if level:
        raise fail("this __VA_OPT__ is never closed", body[-1])
    return result


def _checked_text(text: str, file: str) -> str:
    surrogate = _SURROGATE.search(text)
    if surrogate is not None:
        line = text.count("\n", 0, surrogate.start()) + 1
        raise KernelCompileError(f"{surrogate.group()!r} is not a character of Unicode text", file=file, line=line)
    return text


def _lines(text: str, file: str, shown: _Shown) -> Iterator[list[Token]]:
    """The tokens of each line, and errors in it, placed where the line says it is."""
    try:
        for tokens in lex(text, file):
            if shown.ahead or shown.file != file:
                for token in tokens:
                    token.file, token.line = shown.file, token.line + shown.ahead
            yield tokens
    except KernelCompileError as error:
        (place,) = error.diagnostics
        raise KernelCompileError.of([replace(place, file=shown.file, line=(place.line or 1) + shown.ahead)]) from None


def preprocess(
    source: str | Path, include_dirs: Iterable[Path] = (), defines: Mapping[str, str | int] | None = None
) -> Preprocessed:
    """Preprocesses a source text, or a file with its own folder as first include folder."""
    reader = Preprocessor(list(include_dirs), defines or {})
    # As on Apple's systems, a source that includes nothing has Metal's library all the same.
    reader.macros = {**_metal_macros(), **reader.macros}
    with lines_shown(reader.written, reader.moved):
        if isinstance(source, Path):
            if "\0" in str(source):
                raise KernelCompileError(f"{str(source)!r} is not a valid file name")
            path = source.resolve()
            reader.allowed.insert(0, path.parent)
            reader.read_file(path, 0)
        else:
            if len(source) > MAX_FILE_BYTES:
                raise KernelCompileError(f"the source has {len(source)} characters; at most {MAX_FILE_BYTES} are read")
            reader.written[SOURCE] = _checked_text(source, SOURCE).encode()
            reader.read_text(source.removeprefix("\ufeff"), SOURCE, None, 0)
        text = _alone(reader, source, bool(defines))
        return Preprocessed(
            _finished(reader.output, reader.simd), reader.files, text, reader.written, reader.moved, reader.lookups
        )


def _alone(reader: Preprocessor, source: str | Path, has_defines: bool) -> str | None:
    """The source as it was read, if nothing else was read with it."""
    root = str(source.resolve()) if isinstance(source, Path) else SOURCE
    is_file = isinstance(source, Path)
    if has_defines or len(reader.files) > is_file or not reader.reads_alike:
        return None
    if any(file not in (root, base_name(file)) for file in {token.file for token in reader.output}):
        return None  # its own #line directives name the sender's folders
    text = reader.first_text or ""
    return line_marker(1, root) + text if is_file else text


_LOOPS = frozenset(("for", "while", "do"))
_UNROLLING = re.compile(
    r"(?:(?P<all>unroll|clang loop unroll\((?:full|enable)\))|(?P<none>nounroll|clang loop unroll\(disable\))"
    r"|(?:unroll ?\(? ?|clang loop unroll_count\()(?P<count>[0-9]{1,4}) ?\)?)"
)


def unrolling(pragma: str) -> str:
    """A pragma that tells how often to repeat a loop's body, in clang's words; "" for other pragmas."""
    match = _UNROLLING.fullmatch(" ".join(pragma.split()))
    if match is None:
        return ""
    if match["count"]:
        return f"clang loop unroll_count({match['count']})" if int(match["count"]) > 0 else ""
    return "clang loop unroll(disable)" if match["none"] else "clang loop unroll(full)"


def _finished(tokens: list[Token], simd: bool) -> list[Token]:
    """The tokens without pragmas and cache hints (``coherent(system)``), which are for another compiler.

    With ``simd`` the namespace of that name is Metal's own.

    A pragma that unrolls a loop stays with the loop's first token. Raises at anything that a later preprocessor would
    act on, or read differently.
    """
    kept: list[Token] = []
    after_hint = 0
    unroll = ""
    previous = Token("begin", "", "", 0)
    for position, token in enumerate(tokens):
        if position < after_hint:
            continue
        if token.kind == PRAGMA:
            unroll = unrolling(token.text)
            continue
        text = token.text
        if token.kind == IDENTIFIER:
            if text in ("_Pragma", "coherent") and [t.text for t in tokens[position + 1 : position + 4 : 2]] == [
                "(",
                ")",
            ]:
                after_hint = position + 4
                if text == "_Pragma":
                    unroll = unrolling(tokens[position + 2].text.strip('"'))
                continue
            following = tokens[position + 1].text if position + 1 < len(tokens) else ""
            if (
                simd
                and text == "simd"
                and previous.text != "::"
                and (following == "::" or previous.text == "namespace")
            ):
                token = replace(token, text="metal")
            if text in _ONLY_IN_DIRECTIVES:
                raise fail(f"{text} is not allowed here", token)
        elif token.kind == PUNCTUATION:
            if text in ("#", "##"):
                what = "begins a directive only as the first on its line" if text == "#" else "pastes in macros only"
                raise fail(f"{text!r} is not allowed here: it {what}", token)
            joined = text in _DIGRAPH_ENDS and not token.spaced and previous.line == token.line
            if joined and (previous.text, text) in _DIGRAPHS:
                raise fail(f"the digraph '{previous.text}{text}'", token)
        elif token.kind == STRAY:
            raise unexpected(token)
        elif token.kind == STRING and previous.text in _RAW_PREFIXES and not token.spaced:
            raise fail("raw strings are not allowed", token)
        if unroll:
            token = replace(token, unroll=unroll) if text in _LOOPS else token
            unroll = ""
        kept.append(token)
        previous = token
    return kept
