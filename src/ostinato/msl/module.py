"""A parsed source: its kernels and constants, and its translation for a target.

`parse` reads, checks and reflects without any compiler. `Module.translate` inserts the values of the function
constants and returns the text that a backend compiles.
"""

from __future__ import annotations

import gc
import hashlib
import math
import struct
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

from ..errors import ConstantError, KernelCompileError, KernelNotFound
from .address_spaces import check_address_spaces
from .argument_use import ArgumentUse
from .branches import Place as BranchPlace
from .branches import in_exclusive_arms
from .constant_expression import NotConstant, Value, evaluate, whole
from .convergence import Convergence
from .counted_lines import CountedLine, Counter, surviving
from .cpu_target import translate_for_cpu
from .cuda_target import translate_for_cuda
from .debug_lines import Place, with_lines
from .declarations import Declarations, Variable, parse_declarations, without_instantiations
from .definitions import SOURCE, Definition, WrittenTexts, as_lines, lines_shown
from .early_reads import early_reads
from .features import FeatureUse, FeatureUses
from .files_read import FilesRead
from .global_positions import with_positions_as_parameters
from .kernels import KernelInstance, Signatures, find_kernels, is_kernel, refuse_shared_indices
from .layouts import StructLayouts
from .log_calls import LogSite, Printing, find_log_calls, prints
from .mentions import Mentions
from .native_cuda import FILE as NATIVE_FILE
from .native_cuda import check_native, native_kernels
from .overloads import told_apart_by_place
from .preprocess import Preprocessed, known_macros, preprocess
from .reflect import FunctionConstant, Signature, element_type
from .safety import check_declarations, check_text, check_tokens, shelter
from .simdgroup_target import translate_for_simdgroups
from .single_text import single_text
from .source_map import TRANSLATION, SourceMap, placed, placed_by_reading, take_marks
from .structs_of_metal import with_structs_of_metal
from .syntax import Syntax, text_of
from .target import CPP17, Execution, Source, TargetText
from .tokens import Token, fail
from .translate import asked_constant, constant_text, swizzle_macros
from .unsupported import without_unsupported

_INTEGER_RANGES = {
    "int8": (-(2**7), 2**7 - 1), "uint8": (0, 2**8 - 1), "int16": (-(2**15), 2**15 - 1), "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1), "uint32": (0, 2**32 - 1), "int64": (-(2**63), 2**63 - 1), "uint64": (0, 2**64 - 1),
}  # fmt: skip

_TARGETS: Mapping[str, Callable[[Source], TargetText]] = {
    "cpu": translate_for_cpu,
    "cpu-vector": translate_for_simdgroups,
    "cuda": translate_for_cuda,
}


@dataclass(frozen=True, slots=True)
class Translation:
    """Source text for one target, and the kernels in it in the order of its table."""

    target: str
    head: str = field(repr=False)
    """The beginning of the text, which many sources share."""
    program: str = field(repr=False)
    """The rest of the text."""
    kernels: Mapping[str, Signature]
    executions: Mapping[str, Execution]
    """How the threads of each kernel run; empty for a target with hardware threads."""
    source_map: SourceMap = field(repr=False)
    """Where the lines of the text after `#line 1 "<translation>"` came from."""
    log_sites: Mapping[str, tuple[LogSite, ...]] = field(default_factory=dict)
    """What each kernel that prints may print, by the numbers in its records."""
    counted: tuple[CountedLine, ...] = ()
    """The lines whose runs are counted."""
    reached: Mapping[str, frozenset[str]] = field(default_factory=dict, repr=False)
    """The names that each kernel may use, where lines are counted."""
    counters: int = 0
    """The counters of each kernel, without that of its threads."""
    standard: str = CPP17
    """The version of C++ of the text."""

    @property
    def text(self) -> str:
        """The whole text."""
        return self.head + self.program

    def placed(self, error: KernelCompileError) -> KernelCompileError:
        """An error of the compiler of this text, with its messages in the user's source."""
        error = placed(error, self.source_map, own=(NATIVE_FILE,))
        if error.file is not None or not self.kernels:
            return error
        first = next(iter(self.kernels.values()))
        return KernelCompileError(error.message, first.file, first.line, error.details)


class Module:
    """One source after parsing. Made by `parse`."""

    def __init__(self, read: Preprocessed, native: Mapping[str, str] | None = None) -> None:
        self.files = tuple(read.files)
        self.files_read = FilesRead(read.written, read.lookups)
        self.native = dict(native or {})
        """Sources in the languages of targets, for some of the kernels."""
        whole, self.left_out = without_unsupported(Syntax(read.tokens))
        """`left_out`: the kernels that use what is not supported, and the error for each."""
        self._read = whole.tokens[: whole.count]
        whole = with_positions_as_parameters(Syntax(with_structs_of_metal(self._read)))
        self._text = read.text if len(self._read) == len(read.tokens) else None
        self.token_count = len(read.tokens)
        check_tokens(whole)
        instantiated = parse_declarations(whole)
        # Instantiations say which kernels there are, and may be most of a source; little else needs their tokens.
        self._syntax = Syntax(without_instantiations(whole, instantiated))
        self._tokens = self._syntax.tokens
        self._declarations = parse_declarations(self._syntax)
        check_declarations(self._syntax, self._declarations)
        check_address_spaces(self._syntax, self._declarations)
        self._initialised = {v.name: v for v in self._declarations.variables if v.initialiser}
        self._meeting: dict[int, bool] = {}
        self._reads_early: dict[int, frozenset[str]] = {}
        self._kernel_keys: dict[str, str] = {}
        self._executions: dict[tuple[str, str], Execution] = {}
        places = told_apart_by_place(self._syntax, self._declarations)
        self._convergence = Convergence(self._syntax, self._declarations, lane_aware=places)
        self.log_calls = find_log_calls(self._syntax, self._declarations)
        """Where the source calls os_log or printf."""
        self.constants = self._find_constants()
        layouts = StructLayouts(self._syntax, self._declarations.aliases, self._constant_value({}))
        self._reflection = Signatures(self._declarations, [constant.name for constant in self.constants], layouts)
        self._instances = self._placed(find_kernels(whole, instantiated, self._constant_value({})), instantiated)
        self.kernels = self._signatures(self._instances.values(), None)
        beside = {NATIVE_FILE: self.native["cuda"].encode()} if "cuda" in self.native else {}
        self._written = WrittenTexts({**read.written, **beside}, read.moved)
        parts = [*whole.texts, *(part for item in sorted(self.native.items()) for part in item)]
        self.text_key = hashlib.sha256("\0".join(parts).encode()).digest()
        check_native(self.native.get("cuda", ""), self.kernels)

    def __repr__(self) -> str:
        return f"<Module {len(self.kernels)} kernels, {len(self.constants)} function constants>"

    @property
    def source(self) -> str:
        """One text that parses to this module without other files or defines; file names are base names."""
        if self._text is None:
            text = single_text(self._read, known_macros())
            if parse(text).text_key != self.text_key:
                raise KernelCompileError("the source cannot be exported as one text", file=self._tokens[0].file)
            self._text = text
        return self._text

    def kernel_key(self, name: str) -> str:
        """A digest, hexadecimal, of what one kernel is compiled from: the source without the other kernels.

        Instances of one template differ in it by their arguments only, and changing a kernel changes no other's.
        """
        instance = self._instance(name)
        if name not in self._kernel_keys:
            left_out = [(each.start, each.end) for each in self._declarations.instantiations if each.kernel]
            for function in self._declarations.functions:
                if function is not instance.function and is_kernel(self._syntax, function):
                    left_out.append((min([function.start, *(t.start for t in function.templates)]), function.end))
            parts, at, texts = [], 0, self._syntax.texts[: self._syntax.count]
            for begin, end in sorted(left_out):
                parts += texts[at:begin]
                at = max(at, end)
            parts += [*texts[at:], "", instance.function.name, *(token.text for token in instance.template_arguments)]
            parts += [part for item in sorted(self.native.items()) for part in item]
            self._kernel_keys[name] = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
        return self._kernel_keys[name]

    def definition(self, name: str) -> Definition | None:
        """Where a kernel's function stands in the files that were read; None if that is not known."""
        if name not in self._instances:
            return None
        token = self._tokens[self._instances[name].function.name_at]
        return self._written.definition(token.file, token.line)

    def features(self, name: str) -> tuple[FeatureUse, ...]:
        """The features of a GPU that the code of a kernel needs, each at its first use."""
        return self._features.of(self._instance(name))

    def are_exclusive(self, name: str, first: BranchPlace, second: BranchPlace) -> bool:
        """Whether no thread can run both of two places of a kernel, since they are in different arms of an `if`."""
        return in_exclusive_arms(self._syntax, self._instance(name).function, first, second)

    def lines_to(self, file: str, line: int) -> list[str]:
        """The lines of a file that was read up to this one; none if it is not known."""
        return self._written.lines_to(file, line)

    def placed(self, error: KernelCompileError) -> KernelCompileError:
        """An error of a compiler that got `source`, with its messages in the files that were read."""
        return placed_by_reading(error, preprocess(self.source).tokens, self._read)

    def show_lines(self, error: KernelCompileError) -> None:
        """Give each message of an error its line of the source."""
        self._written.show_lines(error)

    def function_text(self, name: str) -> str:
        """The function of a kernel: its lines as they were written, or its tokens if they do not fill lines."""
        function = self._instance(name).function
        begin = min([function.start, *(header.start for header in function.templates)])
        tokens, named = self._tokens[begin : function.end], self._tokens[function.name_at]
        first, last, definition = tokens[0], tokens[-1], self.definition(name)
        if definition is None or first.file != last.file or first.line >= last.line:  # of one line, or from a macro
            return "\n".join(line for line in single_text(tokens, ()).splitlines() if not line.startswith("#")).strip()
        lines = as_lines(definition.text)
        start = definition.line - 1 - (named.line - first.line)
        return textwrap.dedent("\n".join(lines[start : start + last.line - first.line + 1]))

    def _debug_place(self, debug_files: Mapping[str, str], token: Token) -> Place | None:
        """Where a debugger finds the line of a token."""
        place = self._written.place(token.file, token.line)
        return None if place is None or place[0] not in debug_files else (debug_files[place[0]], place[1])

    # -- function constants -----------------------------------------------------------------------------------------

    def _find_constants(self) -> tuple[FunctionConstant, ...]:
        texts = self._syntax.texts
        tested = {
            asked_constant(self._syntax, index)
            for index, text in enumerate(texts)
            if text == "is_function_constant_defined" and texts[index + 1] == "("
        }
        constants = []
        for variable in self._declarations.variables:
            for attribute in variable.attributes:
                if attribute.name != "function_constant":
                    continue
                token = self._syntax.tokens[variable.name_at]
                try:
                    index = whole(evaluate(attribute.arguments, self._constant_value({})))
                    if not 0 <= index < 1 << 16:
                        raise NotConstant(f"{index} is not between 0 and 65535")
                except NotConstant as error:
                    raise fail(f"the index of function constant {variable.name}: {error}", token) from None
                type_ = self._syntax.tokens[variable.start : variable.name_at]
                if any(part.text == "," for part in type_):
                    raise fail(f"declare function constant {variable.name} in a statement of its own", token)
                element = element_type(type_, self._declarations.aliases, {})
                if element.scalar is None or element.lanes != 1:
                    raise fail(f"function constant {variable.name} has type {element.name}; only scalars", token)
                constants.append(FunctionConstant(variable.name, index, element.scalar, variable.name in tested))
        return tuple(constants)

    def given_constants(self, constants: Mapping[int | str, object]) -> dict[str, Value]:
        """The values by name; raises `ConstantError` if one is unknown or out of range."""
        by_key: dict[int | str, FunctionConstant] = {}
        for constant in self.constants:
            by_key[constant.name] = by_key[constant.index] = constant
        given: dict[str, Value] = {}
        for key, value in constants.items():
            known = by_key.get(key)
            if known is None:
                listed = ", ".join(f"{c.index} ({c.name})" for c in self.constants) or "none"
                raise ConstantError(f"no function constant {key!r} in this library; it has {listed}")
            if known.name in given:
                raise ConstantError(f"function constant {known.name} is set twice, by name and by index {known.index}")
            given[known.name] = _checked(known, value)
        return given

    def missing_constants(self, kernel: str, given: Collection[str]) -> tuple[FunctionConstant, ...]:
        """The function constants that a kernel uses and that are not among the ``given`` names."""
        missing = [constant for constant in self.constants if constant.name not in given and not constant.optional]
        if not missing:
            return ()
        reached = self._mentions.reached_from(self._instance(kernel))
        return tuple(constant for constant in missing if constant.name in reached)

    def check_constants(
        self, constants: Mapping[int | str, object], kernels: Collection[str] | None = None
    ) -> dict[str, Value]:
        """The values by name; raises `ConstantError` if one that these kernels use is missing, or a value is wrong.

        Without ``kernels``, all kernels of the source count.
        """
        given = self.given_constants(constants)
        for name in self.kernels if kernels is None else kernels:
            missing = self.missing_constants(name, given)
            if missing:
                listed = ", ".join(f"{each.name} (index {each.index}, {each.scalar})" for each in missing)
                raise ConstantError(
                    f"kernel {name!r} uses function constants without a value: {listed};"
                    " pass constants={index or name: value}"
                )
        return given

    @cached_property
    def _shelter(self) -> str:
        return shelter(self._read)

    def _reached_names(self, instance: KernelInstance) -> frozenset[str]:
        return self._mentions.reached_from(instance)

    @cached_property
    def _mentions(self) -> Mentions:
        return Mentions(self._syntax, self._declarations)

    @cached_property
    def _features(self) -> FeatureUses:
        return FeatureUses(self._syntax, self._declarations, self._mentions)

    def _constant_value(
        self, given: Mapping[str, Value], defined: Collection[str] | None = None
    ) -> Callable[[str], Value]:
        """A lookup of names in constant expressions: function constants, then initialised globals and enumerators."""
        defined = given.keys() if defined is None else defined
        visiting: set[str] = set()
        known: dict[str, Value] = {}
        unknown: dict[str, NotConstant] = {}

        def call(name: str, inside: Sequence[Token]) -> Value:
            if name == "is_function_constant_defined":
                return text_of(inside).replace(" ", "") in defined
            raise NotConstant(f"{name}(…) cannot be evaluated here")

        def lookup(name: str) -> Value:
            if name in given:
                return given[name]
            if name in known:
                return known[name]
            if name in unknown:
                raise unknown[name]
            variable = self._initialised.get(name.rpartition("::")[2])
            if variable is not None and "::" in name and not _is_named(variable, name):
                variable = None
            enumerator = self._declarations.enumerators.get(name)
            if (variable is None) == (enumerator is None) or name in visiting or len(visiting) > 100:
                raise NotConstant(f"{name!r} has no constant value")
            visiting.add(name)
            try:
                if enumerator is not None:
                    known[name] = enumerator.value(self._declarations.enumerators, lookup, call)
                elif variable is not None and variable.initialiser is not None:
                    begin, end = variable.initialiser
                    braced = self._tokens[begin].text == "{"
                    known[name] = evaluate(self._tokens[begin + 1 : end - braced], lookup, call)
                return known[name]
            except NotConstant as error:
                unknown[name] = error
                raise
            finally:
                visiting.discard(name)

        return lookup

    def _absent(self, given: Mapping[str, Value] | None) -> Callable[[str], bool]:
        """Whether an argument's function constant removes it; without values of constants, none does."""
        if given is None:
            return lambda guard: False
        undefined = {constant.name: 0 for constant in self.constants if constant.name not in given}
        lookup = self._constant_value({**undefined, **given}, defined=given)

        def absent(guard: str) -> bool:
            try:
                return not lookup(guard)
            except NotConstant:
                return False

        return absent

    # -- kernels ----------------------------------------------------------------------------------------------------

    def _placed(self, instances: Mapping[str, KernelInstance], among: Declarations) -> dict[str, KernelInstance]:
        """Kernels of the whole source, with positions among the tokens that are kept of it.

        The tokens of the whole source, which entry points are marked with, come after these.
        """
        functions = dict(zip(map(id, among.functions), self._declarations.functions, strict=True))
        first = len(self._tokens)
        return {
            name: replace(instance, function=functions[id(instance.function)], token_at=first + instance.token_at)
            for name, instance in instances.items()
        }

    def _instance(self, name: str) -> KernelInstance:
        if name in self.left_out:
            raise self.left_out[name]
        if name not in self._instances:
            raise KernelNotFound(f"no kernel {name!r} in this library; it has {', '.join(self._instances) or 'none'}")
        return self._instances[name]

    def _meets(self, instance: KernelInstance) -> bool:
        function = instance.function
        assert function.body is not None
        meets = self._meeting.get(function.name_at)
        if meets is None:
            body = self._tokens[function.closing : function.body[1]]
            meets = self._meeting[function.name_at] = self._convergence.reached_from(body)
        return meets or self._convergence.reached_from(instance.template_arguments)

    def _early_reads(self, instance: KernelInstance) -> frozenset[str]:
        """The arguments that a kernel reads before it waits; all instances of a template read the same ones."""
        function = instance.function
        early = self._reads_early.get(function.name_at)
        if early is None:
            early = early_reads(self._syntax, function, instance.formal)
            self._reads_early[function.name_at] = early
        return early

    def _signatures(
        self, instances: Collection[KernelInstance], given: Mapping[str, Value] | None
    ) -> dict[str, Signature]:
        absent = self._absent(given)
        use = None if given is None else ArgumentUse(self._syntax, self._declarations, self._constant_value(given))
        native = native_kernels("".join(self.native.values()))
        signatures = {}
        for instance in instances:
            unused = use.unused(instance) if use is not None and instance.name not in native else ()
            early = self._early_reads(instance) if instance.name not in native else ()
            kernel_signature = self._reflection.of(instance, self._meets(instance), absent, unused, early)
            if given is not None:
                refuse_shared_indices(instance, kernel_signature.arguments)
            signatures[instance.name] = kernel_signature
        return signatures

    @property
    def uninstantiated(self) -> tuple[str, ...]:
        """The kernels that are templates without an instance, which cannot be dispatched."""
        made = {id(instance.function) for instance in self._instances.values()}
        functions = (
            function
            for function in self._declarations.functions
            if function.body is not None and id(function) not in made
        )
        return tuple(dict.fromkeys(function.name for function in functions if is_kernel(self._syntax, function)))

    def signature(self, name: str, constants: Mapping[int | str, object]) -> Signature:
        """The signature of a kernel with these constants, which may remove arguments; nothing is translated."""
        return self._signatures([self._instance(name)], self.check_constants(constants, [name]))[name]

    def translate(
        self,
        target: str = "cpu",
        constants: Mapping[int | str, object] | None = None,
        only: Collection[str] | None = None,
        fibers: bool = False,
        checked: bool = False,
        debug_files: Mapping[str, str] | None = None,
        log_level: str | None = None,
        printf: bool = False,
        counted: bool = False,
    ) -> Translation:
        """The text to compile for ``target``; ``only`` limits it to some kernels.

        ``fibers`` runs the threads of every kernel one by one, as fibers, so that the runtime always knows the current
        thread. ``checked`` does that too, and declares local memory to the runtime. ``debug_files`` does that too, and
        makes debug information name the user's lines: it says for each of `files_read` where a debugger can read it.
        ``log_level`` is the lowest level of os_log that prints, None for none; ``printf`` is whether printf does. Calls
        that do not are compiled to nothing. ``counted`` has kernels that run as fibers count how often their lines run.
        """
        try:
            fibers = fibers or checked
            made = self._translate(target, constants, only, fibers, checked, debug_files, log_level, printf, counted)
        except RecursionError:
            raise KernelCompileError("the source is nested too deeply", file=self._tokens[0].file) from None
        if target == "cpu" and not fibers and debug_files is None and not self.log_calls:
            values = _key_of(constants)
            self._executions |= {(name, values): execution for name, execution in made.executions.items()}
        return made

    def known_execution(self, name: str, constants: Mapping[int | str, object] | None = None) -> Execution | None:
        """How a kernel runs on the CPU with these constants, if a translation for the CPU has found out."""
        return self._executions.get((name, _key_of(constants)))

    def _translate(
        self,
        target: str,
        constants: Mapping[int | str, object] | None,
        only: Collection[str] | None,
        fibers: bool,
        checked: bool,
        debug_files: Mapping[str, str] | None,
        log_level: str | None,
        printf: bool,
        counted: bool,
    ) -> Translation:
        if target not in _TARGETS:
            raise ValueError(f"no translation for target {target!r}; there are {', '.join(_TARGETS)}")
        for name in sorted(only or ()):
            self._instance(name)
        given = self.check_constants(constants or {}, only)
        instances = [instance for name, instance in self._instances.items() if only is None or name in only]
        # Translation edits the declarations, so it works on its own copy.
        declarations: Declarations = parse_declarations(self._syntax)
        # One that no kernel here uses is 1: constants that are computed from it may divide by it.
        texts = {
            each.name: constant_text(each.scalar, given.get(each.name, 1))
            if each.name in given or not each.optional
            else None
            for each in self.constants
        }
        active = frozenset(number for number, call in enumerate(self.log_calls) if prints(call.site, log_level, printf))
        printing = Printing(self.log_calls, active, self._syntax, declarations, self._reached_names)
        source = Source(
            self._syntax,
            declarations,
            self._convergence,
            instances,
            texts,
            self._absent(given),
            self._meets,
            self.native.get(target, ""),
            fibers or debug_files is not None,
            self.log_calls,
            active,
            printing.reached_by,
            lambda instance: "dot_add" in self._reached_names(instance),
            debug=debug_files is not None,
            counted=counted,
            checked=checked,
        )
        made = _TARGETS[target](source)
        marked = [*self._tokens, *self._read]
        program, source_map = take_marks(made.program, marked)
        check_text(program)
        if debug_files is not None:
            program = with_lines(program, source_map, partial(self._debug_place, debug_files))
        head = swizzle_macros(self._syntax) + made.head
        program = f'{made.begin}{self._shelter}#line 1 "{TRANSLATION}"\n{program}{made.end}'
        sites = tuple(call.site for call in self.log_calls)
        log_sites = {instance.name: sites for instance in instances if printing.reached_by(instance)}
        lines = self._counted_lines(made.counters, surviving(program) if counted else ())
        names = {each.name: self._mentions.reached_from(each) for each in instances} if counted else {}
        signatures = self._signatures(instances, given)
        rest = (lines, names, len(made.counters), made.standard)
        return Translation(target, head, program, signatures, made.executions, source_map, log_sites, *rest)

    def _counted_lines(self, counters: Sequence[Counter], kept: Collection[int]) -> tuple[CountedLine, ...]:
        lines = []
        for number, counter in enumerate(counters, start=1):
            token = self._tokens[counter.token_at]
            place = self._written.place(token.file, token.line)
            if number in kept and place is not None:
                lines.append(CountedLine(number, *place, counter.function.name))
        return tuple(lines)


def _key_of(constants: Mapping[int | str, object] | None) -> str:
    return repr(sorted((str(key), repr(value)) for key, value in (constants or {}).items()))


def _is_named(variable: Variable, name: str) -> bool:
    """Whether a qualified name is that of a variable."""
    path = (*variable.scope, variable.name)
    return path[-name.count("::") - 1 :] == tuple(name.split("::"))


def _checked(constant: FunctionConstant, value: object) -> Value:
    """A constant's value, converted to its type and checked."""
    what = f"function constant {constant.name} (index {constant.index}, {constant.scalar})"
    scalar = getattr(value, "item", None)
    if callable(scalar):
        value = scalar()
    if not isinstance(value, (bool, int, float)):
        raise ConstantError(f"{what} cannot take {value!r}")
    if constant.scalar == "bool":
        if value not in (0, 1):
            raise ConstantError(f"{what} cannot take {value!r}; pass True or False")
        return bool(value)
    if constant.scalar in _INTEGER_RANGES:
        low, high = _INTEGER_RANGES[constant.scalar]
        if isinstance(value, float) and (not math.isfinite(value) or value != int(value)):
            raise ConstantError(f"{what} cannot take {value!r}: not a whole number")
        if not low <= int(value) <= high:
            raise ConstantError(f"{what} cannot take {value!r}: outside {low} … {high}")
        return int(value)
    try:
        # Range-checked by packing it; a bfloat has the range of a float.
        struct.pack("<e" if constant.scalar == "float16" else "<f", value)
        return float(value)
    except OverflowError:
        raise ConstantError(f"{what} cannot take {value!r}: too large") from None


@contextmanager
def _collection_paused() -> Iterator[None]:
    """Pauses the garbage collector: tokens live on, and looking at them again and again takes a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def parse(
    source: str | Path,
    *,
    include_dirs: Sequence[Path] = (),
    defines: Mapping[str, str | int] | None = None,
    native: Mapping[str, str] | None = None,
) -> Module:
    """Parses a Metal source text or file; raises `KernelCompileError` with file and line.

    ``native`` holds sources in the language of a target ("cuda"), which replace some of the kernels there.
    """
    try:
        with _collection_paused():
            read = preprocess(source, include_dirs, defines)
            with lines_shown(read.written, read.moved):
                return Module(read, native)
    except RecursionError:
        file = str(source) if isinstance(source, Path) else SOURCE
        raise KernelCompileError("the source is nested too deeply", file=file) from None
