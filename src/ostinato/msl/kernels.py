"""Kernels of a source: the functions that the host can dispatch, and the role of each of their parameters.

A kernel is a function marked ``kernel`` or ``[[kernel]]``; a template becomes one kernel for each explicit
instantiation. Parameters are buffers, values (references), threadgroup memory or thread positions; buffers without
an explicit index get the lowest free one, as in Metal.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ..errors import UnsupportedFeature
from .constant_expression import NotConstant, Value, evaluate, whole
from .declarations import Declarations, Function, Instantiation
from .layouts import StructLayouts
from .reflect import Argument, SharedArgument, Signature, element_type
from .syntax import ADDRESS_SPACES, Attribute, Syntax, ends_with_name, separate_text, text_of
from .tokens import IDENTIFIER, PUNCTUATION, Token, fail

THREAD_ATTRIBUTES = frozenset(
    """thread_position_in_grid thread_position_in_threadgroup thread_index_in_threadgroup
    threadgroup_position_in_grid threads_per_threadgroup threads_per_grid threadgroups_per_grid
    dispatch_threads_per_threadgroup grid_size grid_origin thread_index_in_simdgroup
    simdgroup_index_in_threadgroup simdgroups_per_threadgroup threads_per_simdgroup
    thread_execution_width dispatch_simdgroups_per_threadgroup thread_index_in_quadgroup
    quadgroup_index_in_threadgroup quadgroups_per_threadgroup dispatch_quadgroups_per_threadgroup""".split()
)

_GRID_ATTRIBUTES = frozenset(
    """thread_position_in_grid thread_position_in_threadgroup threadgroup_position_in_grid threads_per_threadgroup
    threads_per_grid threadgroups_per_grid dispatch_threads_per_threadgroup""".split()
)
"""Attributes that may be scalars or vectors, but must be alike within a kernel."""

_MOST_ALIASES = 32
"""Limit of aliases of aliases."""

_PARAMETER_ATTRIBUTES = frozenset(
    """buffer threadgroup function_constant texture sampler stage_in payload visible_function_table id maybe_unused
    user raster_order_group""".split()
)


@dataclass(slots=True, eq=False)
class Parameter:
    """One parameter of a kernel. ``role`` is "buffer", "value", "shared" or "thread".

    Instances of one template share the parameters whose types do not depend on it.
    """

    name: str
    role: str
    type: list[Token]
    index: int
    guard: str | None
    thread_attribute: str
    token: Token

    @property
    def pointee(self) -> list[Token]:
        """The type behind the pointer or reference."""
        for position in range(len(self.type) - 1, -1, -1):
            if self.type[position].text in ("*", "&"):
                return self.type[:position]
        return self.type

    @property
    def space(self) -> str:
        return next((token.text for token in self.type if token.text in ADDRESS_SPACES), "")


@dataclass(slots=True)
class KernelInstance:
    """A kernel that the host requests by ``name``; ``call`` is its name in C++.

    ``parameters`` have the types of this instance, ``formal`` those in the source.
    """

    name: str
    function: Function
    call: str
    parameters: list[Parameter]
    formal: list[Parameter]
    substitution: dict[str, list[Token]]
    template_arguments: list[Token]
    max_threads: int | None
    """Limit of threads per group by [[max_total_threads_per_threadgroup]]; None if the source has none."""
    token: Token
    """The function's name, or the start of the instantiation."""
    token_at: int


def is_kernel(syntax: Syntax, function: Function) -> bool:
    """Whether a function is a compute kernel."""
    if function.in_struct:
        return False
    if any(attribute.name == "kernel" for attribute in function.attributes):
        return True
    return "kernel" in syntax.texts[function.start : function.name_at]


class KernelFinder:
    """Builds the kernel instances of a source; see `find_kernels`."""

    def __init__(self, syntax: Syntax, declarations: Declarations, constant: Callable[[str], Value]) -> None:
        self.syntax = syntax
        self.declarations = declarations
        self.constant = constant
        self._templates: dict[int, tuple[list[Parameter], frozenset[Parameter]]] = {}

    def find(self) -> dict[str, KernelInstance]:
        instances: dict[str, KernelInstance] = {}
        templates: dict[str, list[Function]] = {}
        for function in self.declarations.functions:
            if not is_kernel(self.syntax, function):
                continue
            if "void" not in self.syntax.texts[function.start : function.name_at]:
                raise fail(f"kernel {function.name} must return void", self.syntax.tokens[function.name_at])
            if function.templates and any(header.parameters for header in function.templates):
                if function.body is not None:
                    templates.setdefault(function.name, []).append(function)
            elif function.body is not None:
                name = self._host_name(function.attributes) or "::".join(
                    (*self._namespaces(function.scope), function.name)
                )
                self._add(instances, self._plain(name, function))
        for instantiation in self.declarations.instantiations:
            template = self._template(templates.get(instantiation.name, ()), instantiation)
            if template is not None:
                self._add(instances, self._instantiate(instantiation, template))
        return instances

    def _template(self, named: Sequence[Function], instantiation: Instantiation) -> Function | None:
        """The one of the kernel templates of a name that an instantiation is of."""
        fitting = [template for template in named if self._takes(template, instantiation)]
        if len(fitting) > 1 and instantiation.opening is not None:
            wanted = self._types(instantiation.opening, {})

            def distance(template: Function) -> tuple[bool, bool]:
                types = self._types(template.opening, self._substitution(template, instantiation))
                return len(types) != len(wanted), types != wanted

            fitting.sort(key=distance)
        return fitting[0] if fitting else None

    def _takes(self, template: Function, instantiation: Instantiation) -> bool:
        """Whether a template of the right name also has the right number of parameters."""
        if instantiation.arguments is None:
            if instantiation.opening is None:
                return False
            return len(self._types(instantiation.opening, {})) == len(self._types(template.opening, {}))
        formal = template.templates[-1].parameters
        count = len(instantiation.arguments)
        return count <= len(formal) and all(parameter.default is not None for parameter in formal[count:])

    def _types(self, opening: int, substitution: Mapping[str, Sequence[Token]]) -> list[list[str]]:
        """The types of a parameter list, to be compared: in words, whose order may differ (`const device T *`)."""
        types = []
        for begin, end in self.syntax.split(opening + 1, self.syntax.match[opening]):
            type_tokens = self._substitute(self._named(begin, end)[1], substitution)
            types.append(sorted(token.text for token in type_tokens))
        return [] if types == [["void"]] else types

    def _substitution(self, template: Function, instantiation: Instantiation) -> dict[str, list[Token]]:
        """The arguments of an instantiation by the names of the template's parameters."""
        given = instantiation.arguments or []
        substitution: dict[str, list[Token]] = {}
        for position, parameter in enumerate(template.templates[-1].parameters):
            chosen = given[position] if position < len(given) else parameter.default
            if chosen is not None and parameter.name:
                substitution[parameter.name] = self._substitute(chosen, substitution)
        return substitution

    def _add(self, instances: dict[str, KernelInstance], instance: KernelInstance) -> None:
        if instance.name in instances:
            raise fail(f"two kernels are named {instance.name!r}", instance.token)
        instances[instance.name] = instance

    def _namespaces(self, scope: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in scope if name)

    def _plain(self, name: str, function: Function) -> KernelInstance:
        parameters = self._parameters(function.opening, function.closing, function)
        self._refuse_mixed_sizes(parameters, function)
        call = "::".join((*self._namespaces(function.scope), function.name))
        token = self.syntax.tokens[function.name_at]
        limit = self._max_threads(function.attributes)
        return KernelInstance(name, function, call, parameters, parameters, {}, [], limit, token, function.name_at)

    def _instantiate(self, instantiation: Instantiation, template: Function) -> KernelInstance:
        token = self.syntax.tokens[instantiation.start]
        call = "::".join((*self._namespaces(template.scope), template.name))
        given = instantiation.arguments or []
        substitution = self._substitution(template, instantiation)
        if instantiation.arguments is not None:
            call += f"<{', '.join(separate_text(part) for part in given)}>"
        written, dependent = self._template_parameters(template)
        own = self._instance_types(instantiation, len(written), template)
        parameters = [
            replace(parameter, type=self._substitute(own[position] if own else parameter.type, substitution))
            if own or parameter in dependent
            else parameter
            for position, parameter in enumerate(written)
        ]
        if own or any(parameter.role == "thread" for parameter in dependent):
            self._refuse_mixed_sizes(parameters, template)
        attributes = [*template.attributes, *instantiation.attributes]
        return KernelInstance(
            self._host_name(instantiation.attributes) or _spelled(template.name, instantiation.arguments),
            template,
            call,
            parameters,
            written,
            substitution,
            [token for part in given for token in part],
            self._max_threads(attributes, substitution),
            token,
            instantiation.start,
        )

    def _template_parameters(self, template: Function) -> tuple[list[Parameter], frozenset[Parameter]]:
        """The parameters of a template as they are written, and those whose types depend on its arguments."""
        known = self._templates.get(template.name_at)
        if known is None:
            written = self._parameters(template.opening, template.closing, template)
            self._refuse_mixed_sizes(written, template)
            names = {parameter.name for parameter in template.templates[-1].parameters}
            dependent = frozenset(each for each in written if any(token.text in names for token in each.type))
            known = self._templates[template.name_at] = (written, dependent)
        return known

    def _instance_types(self, instantiation: Instantiation, count: int, template: Function) -> list[list[Token]] | None:
        """The types that an instantiation without template arguments gives the parameters."""
        if instantiation.opening is None:
            return None
        closing = self.syntax.match[instantiation.opening]
        parts = [
            part
            for part in self.syntax.split(instantiation.opening + 1, closing)
            if self.syntax.texts[slice(*part)] != ["void"]
        ]
        if len(parts) != count:
            raise fail(
                f"this instantiation of {template.name} has {len(parts)} parameters, not {count}",
                self.syntax.tokens[instantiation.start],
            )
        return None if instantiation.arguments is not None else [self._named(*part)[1] for part in parts]

    def _substitute(self, tokens: Sequence[Token], substitution: Mapping[str, Sequence[Token]]) -> list[Token]:
        result: list[Token] = []
        for position, token in enumerate(tokens):
            after_scope = position > 0 and tokens[position - 1].text in ("::", ".", "->")
            if token.kind == IDENTIFIER and token.text in substitution and not after_scope:
                result.extend(substitution[token.text])
            else:
                result.append(token)
        return result

    def _host_name(self, attributes: Sequence[Attribute]) -> str | None:
        for attribute in attributes:
            if attribute.name == "host_name" and attribute.arguments:
                # Adjacent string literals are one, as in C.
                return "".join(token.text[1:-1] for token in attribute.arguments)
        return None

    def _max_threads(
        self, attributes: Sequence[Attribute], substitution: Mapping[str, Sequence[Token]] | None = None
    ) -> int | None:
        for attribute in attributes:
            if attribute.name == "max_total_threads_per_threadgroup":
                try:
                    limit = whole(evaluate(self._substitute(attribute.arguments, substitution or {}), self.constant))
                except NotConstant:
                    return None
                if not 1 <= limit <= 1024:
                    raise fail(
                        f"max_total_threads_per_threadgroup({limit}) is not between 1 and 1024", attribute.arguments[0]
                    )
                return limit
        return None

    def _parameters(self, opening: int, closing: int, function: Function) -> list[Parameter]:
        parameters = []
        for begin, end in self.syntax.split(opening + 1, closing):
            if self.syntax.texts[begin:end] == ["void"]:
                continue
            name, type_tokens, attributes = self._named(begin, end)
            type_tokens = self._unfolded(type_tokens)
            parameters.append(self._classify(name, type_tokens, attributes, self.syntax.tokens[begin], function))
        self._number(parameters, function)
        return parameters

    def _named(self, begin: int, end: int) -> tuple[str, list[Token], list[Attribute]]:
        """The name (which an instantiation may leave out), the type and the attributes of a parameter."""
        syntax = self.syntax
        attributes: list[Attribute] = []
        plain: list[int] = []
        index = begin
        while index < end:
            if syntax.is_attribute(index):
                attributes.extend(syntax.attributes_at(index))
                index = syntax.match[index] + 1
                continue
            plain.append(index)
            index += 1
        # The name is the last identifier before an array's brackets.
        name_at = plain[-1] if plain else begin
        last = len(plain) - 1
        while last >= 0 and syntax.texts[plain[last]] == "]":
            opening = syntax.match[plain[last]]
            while last >= 0 and plain[last] >= opening:
                last -= 1
        array = last < len(plain) - 1
        self._refuse_parentheses(plain, last, begin)
        name_at = plain[last] if last >= 0 else name_at
        words = [syntax.texts[at] for at in plain if at <= name_at]
        named = syntax.tokens[name_at].kind == IDENTIFIER and ends_with_name(words)
        type_tokens = [syntax.tokens[i] for i in plain if not (named and i >= name_at)]
        if array and named:
            token = syntax.tokens[begin]
            type_tokens.append(Token(PUNCTUATION, "*", token.file, token.line))
        return syntax.texts[name_at] if named else "", type_tokens, attributes

    def _refuse_parentheses(self, plain: list[int], last: int, begin: int) -> None:
        """Raises at a pointer or reference to an array, ``T (*name)[n]``, and says how else to write it.

        ``plain`` are the tokens of a parameter, of which the brackets of the array stand after ``last``.
        """
        syntax = self.syntax
        if last < 1 or syntax.texts[plain[last]] != ")" or syntax.match[plain[last]] not in plain:
            return
        opening = plain.index(syntax.match[plain[last]])
        sign, *names = (syntax.texts[at] for at in plain[opening + 1 : last])
        if sign not in ("*", "&"):
            return
        name = next((word for word in reversed(names) if word != "const"), "")
        words = [syntax.texts[at] for at in plain[:opening]]
        spaces = " ".join(word for word in words if word in (*ADDRESS_SPACES, "const"))
        element = text_of([syntax.tokens[at] for at in plain[:opening] if syntax.texts[at] not in spaces.split()])
        sizes = [
            text_of(syntax.tokens[at + 1 : syntax.match[at]]) for at in plain[last + 1 :] if syntax.texts[at] == "["
        ]
        if sizes:
            message = _no_array(name, sign, spaces, element, sizes)
        else:
            message = f"argument {name!r}: parentheses are not supported; write `{spaces} {element} {sign}{name}`"
        raise fail(message, syntax.tokens[begin], UnsupportedFeature)

    def _unfolded(self, type_tokens: list[Token]) -> list[Token]:
        """The type of a parameter, with what stands behind an alias of a pointer or reference (`using p = device T *`).

        A ``const`` beside the alias is one of the parameter itself, so it is not kept.
        """
        aliases, meant = self.declarations.aliases, type_tokens
        for _ in range(_MOST_ALIASES):
            plain = [token.text for token in meant if token.text != "const"]
            if len(plain) != 1 or plain[0] not in aliases:
                break
            meant = aliases[plain[0]]
        indirect = any(word in ("*", "&") for word in _outside_angles([token.text for token in meant]))
        return list(meant) if indirect else type_tokens

    def _classify(
        self, name: str, type_tokens: list[Token], attributes: list[Attribute], token: Token, function: Function
    ) -> Parameter:
        by_name = {attribute.name: attribute for attribute in attributes}
        words = [t.text for t in type_tokens]
        guard = None
        if "function_constant" in by_name:
            guard = text_of(by_name["function_constant"].arguments)
        of_metal = THREAD_ATTRIBUTES | _PARAMETER_ATTRIBUTES
        # One that Metal does not have is dropped, as Apple's compiler does; on its own it is likely misspelt.
        telling = any(attribute.name in of_metal for attribute in attributes)
        for attribute in attributes:
            if attribute.name not in of_metal and not telling:
                raise fail(
                    f"argument {name!r} of {function.name} has the unknown attribute [[{attribute.name}]]", token
                )
            if attribute.name in THREAD_ATTRIBUTES:
                element = element_type(type_tokens, self.declarations.aliases, {})
                fits = element.scalar in (None, "uint16", "uint32") and element.lanes <= 3
                if not fits or "*" in words or "&" in words:
                    raise fail(
                        f"argument {name!r} of {function.name} is [[{attribute.name}]] and must be a uint or ushort, "
                        f"or a vector of 2 or 3 of them, not {text_of(type_tokens)}",
                        token,
                    )
                return Parameter(name, "thread", type_tokens, -1, guard, attribute.name, token)
        for unsupported in ("texture", "sampler", "stage_in", "payload", "visible_function_table"):
            if unsupported in by_name:
                raise fail(f"argument {name!r} of {function.name} is [[{unsupported}]]", token, UnsupportedFeature)
        outside = _outside_angles(words)
        indirect = next((word for word in reversed(outside) if word in ("*", "&")), None)
        if "*" in words and not indirect:
            raise fail(f"argument {name!r} of {function.name}: arrays of buffers", token, UnsupportedFeature)
        if "threadgroup" in by_name or (indirect and "threadgroup" in words):
            return Parameter(
                name, "shared", type_tokens, self._index(by_name.get("threadgroup"), name, token), guard, "", token
            )
        if indirect and ("buffer" in by_name or "device" in words or "constant" in words):
            role = "value" if indirect == "&" else "buffer"
            index = self._index(by_name.get("buffer"), name, token)
            parameter = Parameter(name, role, type_tokens, index, guard, "", token)
            array = element_type(parameter.pointee, self.declarations.aliases, {}).name
            if role == "value" and parameter.space == "constant" and array.endswith("]"):
                plain, _, sizes = array[:-1].partition("[")
                text = _no_array(name, "&", parameter.space, plain, sizes.split("]["))
                raise fail(text, token, UnsupportedFeature)
            return parameter
        known = ", ".join(f"[[{attribute.name}]]" for attribute in attributes) or "no attribute"
        raise fail(
            f"argument {name!r} of kernel {function.name} ({known}) is neither a buffer (device or constant pointer or "
            "reference), nor threadgroup memory, nor a thread position",
            token,
        )

    def _index(self, attribute: Attribute | None, name: str, token: Token) -> int:
        if attribute is None:
            return -1
        if not attribute.arguments:
            raise fail(f"[[{attribute.name}]] of argument {name!r} needs an index", token)
        try:
            index = whole(evaluate(attribute.arguments, self.constant))
        except NotConstant as error:
            raise fail(f"the index of [[{attribute.name}(…)]]: {error}", attribute.arguments[0]) from None
        if index < 0:
            raise fail(f"[[{attribute.name}({index})]] of argument {name!r}: an index cannot be negative", token)
        return index

    def _refuse_mixed_sizes(self, parameters: Sequence[Parameter], function: Function) -> None:
        """Checks that positions and sizes in the grid are all scalars, or all vectors of one size, as in Metal."""
        first: tuple[Parameter, int] | None = None
        for parameter in parameters:
            if parameter.thread_attribute not in _GRID_ATTRIBUTES:
                continue
            element = element_type(parameter.type, self.declarations.aliases, {})
            if element.scalar is None and element.lanes == 1:  # a type that only a compiler knows
                continue
            first = first or (parameter, element.lanes)
            if element.lanes != first[1]:
                earlier, later = (
                    f"{argument.name!r} ({text_of(argument.type)} [[{argument.thread_attribute}]])"
                    for argument in (first[0], parameter)
                )
                raise fail(
                    f"arguments {earlier} and {later} of {function.name} do not match: positions and sizes in"
                    " the grid must all be scalars, or all be vectors with the same number of elements",
                    parameter.token,
                )

    def _number(self, parameters: list[Parameter], function: Function) -> None:
        for roles, limit, what in ((("buffer", "value"), 31, "buffer"), (("shared",), 31, "threadgroup")):
            mine = [parameter for parameter in parameters if parameter.role in roles]
            taken: dict[int, Parameter] = {}
            for parameter in mine:
                if parameter.index < 0:
                    continue
                other = taken.get(parameter.index)
                if other is not None and not (other.guard or parameter.guard):
                    raise fail(
                        f"{other.name!r} and {parameter.name!r} of {function.name} share {what} index "
                        f"{parameter.index}",
                        parameter.token,
                    )
                if parameter.index >= limit:
                    raise fail(
                        f"{what} index {parameter.index} of {function.name} is over {limit - 1}", parameter.token
                    )
                taken[parameter.index] = parameter
            free = 0
            for parameter in mine:
                if parameter.index < 0:
                    while free in taken:
                        free += 1
                    parameter.index = free
                    taken[free] = parameter


def _spelled(name: str, arguments: Sequence[Sequence[Token]] | None) -> str:
    """The name of an instance that has no host name."""
    return name if arguments is None else f"{name}<{', '.join(text_of(part) for part in arguments)}>"


def _no_array(name: str, sign: str, spaces: str, element: str, sizes: Sequence[str]) -> str:
    """That an argument cannot be a pointer or reference to an array, and what it can be."""
    if sign == "&":
        for size in reversed(sizes):
            element = f"array<{element}, {size}>"
        return f"argument {name!r}: references to arrays are not supported; write `{spaces} {element} &{name}`"
    row = f"{element}{''.join(f'[{size}]' for size in sizes)}"
    return (
        f"argument {name!r}: pointers to arrays are not supported without a name for the array; write"
        f" `{spaces} row *{name}`, with `using row = {row};`"
    )


def _outside_angles(words: Sequence[str]) -> list[str]:
    """The words of a type that are not template arguments."""
    level = 0
    outside = []
    for word in words:
        level += (word == "<") - (word == ">")
        if level == 0:
            outside.append(word)
    return outside


def find_kernels(
    syntax: Syntax, declarations: Declarations, constant: Callable[[str], Value]
) -> dict[str, KernelInstance]:
    """All kernels of a source by the name the host uses; ``constant`` evaluates names in indices."""
    return KernelFinder(syntax, declarations, constant).find()


class Signatures:
    """The host's view of the kernels of a source. Most instances of a template have arguments in common."""

    def __init__(self, declarations: Declarations, constants: Sequence[str], layouts: StructLayouts) -> None:
        self._declarations = declarations
        self._constants = tuple(constants)
        self._layouts = layouts
        self._reflected: dict[tuple[str | int, ...], Argument | SharedArgument] = {}

    def of(
        self,
        instance: KernelInstance,
        meets: bool,
        absent: Callable[[str], bool],
        unused: Collection[str] = (),
        early: Collection[str] = (),
    ) -> Signature:
        """The signature of a kernel, without the arguments whose guard is ``absent``.

        ``unused`` and ``early`` are the names of arguments that are marked so.
        """
        reflected = [
            self._marked(self._argument(parameter), unused, early)
            for parameter in instance.parameters
            if parameter.role != "thread" and (parameter.guard is None or not absent(parameter.guard))
        ]
        reflected.sort(key=_index)
        return Signature(
            instance.name,
            tuple([argument for argument in reflected if type(argument) is Argument]),
            tuple([argument for argument in reflected if type(argument) is SharedArgument]),
            tuple([parameter.thread_attribute for parameter in instance.parameters if parameter.role == "thread"]),
            self._constants,
            meets,
            instance.token.file,
            instance.token.line,
        )

    @staticmethod
    def _marked(
        argument: Argument | SharedArgument, unused: Collection[str], early: Collection[str]
    ) -> Argument | SharedArgument:
        if argument.name in unused:
            argument = replace(argument, used=False)
        if argument.name in early and isinstance(argument, Argument):
            argument = replace(argument, early=True)
        return argument

    def _argument(self, parameter: Parameter) -> Argument | SharedArgument:
        key: tuple[str | int, ...] = (parameter.name, parameter.index, parameter.role)
        key += tuple([token.text for token in parameter.type])
        argument = self._reflected.get(key)
        if argument is None:
            argument = self._reflected[key] = self._reflect(parameter)
        return argument

    def _reflect(self, parameter: Parameter) -> Argument | SharedArgument:
        pointee = parameter.pointee
        element = element_type(pointee, self._declarations.aliases, {})
        if parameter.role == "shared":
            return SharedArgument(parameter.name, parameter.index, element.name)
        read_only = parameter.space == "constant" or any(token.text == "const" for token in pointee)
        return Argument(
            parameter.name,
            parameter.index,
            parameter.role,
            element.name,
            element.scalar,
            element.lanes,
            "read" if read_only else "read_write",
            parameter.space or "device",
            element.atomic,
            self._layouts.of(element.name) if element.scalar is None else None,
        )


def _index(argument: Argument | SharedArgument) -> int:
    return argument.index


def refuse_shared_indices(instance: KernelInstance, arguments: Sequence[Argument]) -> None:
    """Arguments whose function constants exclude each other may share an index, unless both are present."""
    taken: dict[int, Argument] = {}
    for argument in arguments:
        other = taken.setdefault(argument.index, argument)
        if other is not argument:
            raise fail(
                f"{other.name!r} and {argument.name!r} of {instance.name} share buffer index {argument.index}, and the "
                "function constants allow both",
                instance.token,
            )
