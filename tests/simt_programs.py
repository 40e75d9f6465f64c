"""Random Metal kernels for simdgroups, as trees: the same seed gives the same program.

They diverge, nest loops with different trip counts, return early, and meet in simdgroup functions among whichever lanes
are active. Their results are defined to the last bit:

- an int stays far from overflow (expressions carry the largest value that they can have); a uint wraps
- a product of floats is exact, because factors are powers of two, so it does not matter whether it is fused into a sum;
  there are no infinities, no NaN, and no negative zeros, of which `min` may take either
- threads write elements of their own, or of a threadgroup array between two barriers; atomics commute

Programs that share let the lanes of a simdgroup read and write common memory with nothing between, and count on
lockstep. Only the order within a flow is lockstep's to define, so the two sides of a condition never both touch that
memory, and no lane does on its way out of a loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from simt_tree import (
    BUFFERS,
    CELLS,
    ELEMENTS,
    FOURS,
    SLOTS,
    STRUCTS,
    WINDOW,
    Apply,
    Assign,
    AssignElement,
    Atomic,
    Call,
    Case,
    Choose,
    CopyStruct,
    Declare,
    DeclareArray,
    DeclareStruct,
    Exchange,
    Expression,
    Function,
    If,
    Jump,
    Literal,
    Load,
    Loop,
    Meet,
    Program,
    Read,
    Return,
    ShortCircuit,
    SimdgroupBarrier,
    Statement,
    Store,
    Switch,
    element,
    width,
)

GRIDS: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((32,), (32,)),
    ((64,), (64,)),
    ((96,), (96,)),
    ((128,), (64,)),
    ((100,), (64,)),
    ((70,), (32,)),
    ((80,), (40,)),
    ((33,), (33,)),
    ((5,), (5,)),
    ((150,), (150,)),
    ((16, 4), (8, 4)),
    ((20, 11), (7, 5)),
    ((10, 10), (10, 10)),
    ((40, 3), (32, 2)),
)

INT_LIMIT = 4096
"""Variables of type int stay below this in magnitude."""
FLOAT_LIMITS = {"float": 1024, "half": 64}
SCALARS = ("int", "uint", "float", "half", "short", "uchar")
VECTORS = ("uint4", "int4", "uint2", "float4", "float2", "half4", "uint3")
_OUTPUT = {"int": "int_out", "float": "float_out", "half": "half_out", "uchar": "byte_out"}
POSITIONS = ("id", "local", "lane", "team", "three", "simdgroup")
UNIFORM = ("team", "three", "simdgroup")
_SIMDGROUP = Read("simdgroup", "uint")
REDUCTIONS = ("sum", "min", "max")
BITWISE = ("and", "or", "xor")
SHUFFLES = (
    "shuffle shuffle_up shuffle_down shuffle_xor shuffle_rotate_up shuffle_rotate_down shuffle_and_fill_up "
    "shuffle_and_fill_down broadcast broadcast_first"
).split()


def program(seed: int, *, shares: bool = False, floats: bool = True) -> Program:
    """The program of a seed. One that shares computes with integers only."""
    return _Writer(Random(f"{shares}{seed}"), floats=floats and not shares, shares=shares).program(seed)


def _of_group(uniform: Expression) -> bool:
    """Whether a uniform value is the same for all simdgroups of a group."""
    return uniform != _SIMDGROUP and not (isinstance(uniform, Apply) and not all(map(_of_group, uniform.arguments)))


@dataclass(slots=True)
class _Scope:
    """What can be used at a place, and what may happen there."""

    variables: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, tuple[str, int]] = field(default_factory=dict)
    structs: dict[str, str] = field(default_factory=dict)
    constants: frozenset[str] = frozenset()
    """Variables that must not be assigned: positions and counters."""
    readable_tile: str | None = None
    uniform: bool = True
    """Whether all threads of the group are here together."""
    in_kernel: bool = True
    in_loop: bool = False
    may_leave: bool = False
    """Whether single threads may leave the loop or its iteration: not where there can be a barrier in it."""
    in_switch: bool = False
    may_share: bool = False
    depth: int = 0

    def inside(self, *, uniform: bool = False, **changes: object) -> _Scope:
        inner = replace(
            self,
            variables=dict(self.variables),
            arrays=dict(self.arrays),
            structs=dict(self.structs),
            uniform=self.uniform and uniform,
            depth=self.depth + 1,
        )
        for name, value in changes.items():
            setattr(inner, name, value)
        return inner


@dataclass(slots=True)
class _Writer:
    random: Random
    floats: bool
    shares: bool
    functions: list[Function] = field(default_factory=list)
    names: int = 0
    returned: bool = False
    """Whether single threads may have returned, so that there can be no barrier."""

    # ---- the program

    def program(self, seed: int) -> Program:
        random = self.random
        threads, group = random.choice(GRIDS)
        for number in range(random.randint(0, 2)):
            self.functions.append(self.function(f"function_{number}"))
        scope = _Scope(
            variables=dict.fromkeys(POSITIONS, "uint"), constants=frozenset(POSITIONS), may_share=self.shares
        )
        body = self.declarations(scope)
        if self.shares:
            body += [step for _ in range(3) for step in self.share(scope)]
        for _ in range(random.randint(3, 6)):
            body += self.statement(scope)
        body += self.results(scope)
        return Program(seed, tuple(self.functions), tuple(body), threads, group, self.shares)

    def function(self, name: str) -> Function:
        scalars = [type_ for type_ in ("int", "uint", "float", "uint4") if self.floats or type_ != "float"]
        type_ = self.random.choice(scalars)
        parameters = tuple((self.name("p"), self.random.choice(scalars)) for _ in range(self.random.randint(1, 3)))
        scope = _Scope(variables=dict(parameters), uniform=False, in_kernel=False, depth=1)
        before = self.returned
        body: list[Statement] = []
        for _ in range(self.random.randint(1, 2)):
            body += self.statement(scope)
            if self.random.random() < 0.5:
                body += [If(self.condition(scope, 1), (Return(self.limited(type_, scope, 1)),))]
        self.returned = before
        return Function(name, type_, parameters, (*body, Return(self.limited(type_, scope, 1))))

    def declarations(self, scope: _Scope) -> list[Statement]:
        body: list[Statement] = []
        for type_ in ("uint", "int", *(("float",) if self.floats else ())):
            body += [self.declare(type_, scope)]
        for _ in range(self.random.randint(1, 3)):
            body += [self.declare(self.type(), scope)]
        if self.random.random() < 0.5:
            body += [self.declare_array(scope)]
        if self.random.random() < 0.4:
            body += [self.declare_struct(scope)]
        return body

    def results(self, scope: _Scope) -> list[Statement]:
        """Everything that is left goes into the thread's elements of the outputs."""
        total: Expression = Literal("uint", 17)
        for name, type_ in self.seen(scope):
            mixed = Apply("^", (total, self.as_uint(Read(name, type_))), "uint")
            total = Apply("rotate", (mixed, Literal("uint", 5)), "uint")
        for name, (type_, size) in scope.arrays.items():
            for at in range(size):
                read = Load(name, Literal("uint", at), type_)
                total = Apply("+", (Apply("*", (total, Literal("uint", 31)), "uint"), self.as_uint(read)), "uint")
        if self.shares:
            for memory, slot in (("near", 0), ("far", 32)):
                index = Apply("+", (Read("lane", "uint"), Literal("uint", slot)), "uint")
                total = Apply("^", (total, Load(memory, index, "uint")), "uint")
            total = Meet("simd_shuffle_xor", (total, Literal("ushort", 1)), "uint")
        body: list[Statement] = [self.own("out", 0, total)]
        for name, type_ in scope.variables.items():
            if type_ in _OUTPUT and name not in scope.constants:
                body.append(self.own(_OUTPUT[type_], self.random.randrange(SLOTS), Read(name, type_)))
        return body

    def seen(self, scope: _Scope) -> list[tuple[str, str]]:
        return [item for item in scope.variables.items() if item[0] not in scope.constants]

    def as_uint(self, value: Expression) -> Expression:
        """All bits of a value, folded into 32."""
        parts: list[Expression] = [value]
        if width(value.type) > 1:
            parts = [Apply("." + "xyzw"[at], (value,), element(value.type)) for at in range(width(value.type))]
        total: Expression | None = None
        for part in parts:
            match element(value.type):
                case "float":
                    bits: Expression = Apply("bits", (part,), "uint")
                case "half":
                    bits = Apply("make", (Apply("bits", (part,), "ushort"),), "uint")
                case "uint":
                    bits = part
                case _:
                    bits = Apply("make", (part,), "uint")
            total = (
                bits if total is None else Apply("+", (Apply("*", (total, Literal("uint", 33)), "uint"), bits), "uint")
            )
        assert total is not None
        return total

    def own(self, memory: str, slot: int, value: Expression) -> Store:
        """A store to an element that belongs to the thread."""
        return Store(memory, self.own_index(Literal("uint", slot)), value)

    def own_index(self, slot: Expression) -> Expression:
        return Apply("+", (Apply("*", (Read("id", "uint"), Literal("uint", SLOTS)), "uint"), slot), "uint")

    # ---- statements

    def name(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def type(self) -> str:
        types = (*SCALARS, *VECTORS, "bool") if self.random.random() < 0.5 else ("uint", "int", "float", "uint")
        type_ = self.random.choice(types)
        return type_ if self.floats or element(type_) not in FLOAT_LIMITS else "uint"

    def declare(self, type_: str, scope: _Scope) -> Statement:
        value = self.limited(type_, scope, 2)
        name = self.name("v")
        scope.variables[name] = type_
        return Declare(name, type_, value)

    def declare_array(self, scope: _Scope) -> Statement:
        types = (*SCALARS, "uint4", "float2")
        type_ = self.random.choice([type_ for type_ in types if self.floats or element(type_) not in FLOAT_LIMITS])
        size = self.random.choice((2, 4, 5, 8))
        values = tuple(self.limited(type_, scope, 1) for _ in range(size))
        name = self.name("a")
        scope.arrays[name] = (type_, size)
        return DeclareArray(name, type_, values)

    def declare_struct(self, scope: _Scope) -> Statement:
        values = tuple(self.limited(type_, scope, 1) for _, type_ in STRUCTS["Pair"])
        name = self.name("s")
        scope.structs[name] = "Pair"
        scope.variables |= {f"{name}.{field_}": type_ for field_, type_ in STRUCTS["Pair"]}
        return DeclareStruct(name, "Pair", values)

    def block(self, scope: _Scope, most: int = 3) -> tuple[Statement, ...]:
        return tuple(statement for _ in range(self.random.randint(1, most)) for statement in self.statement(scope))

    def statement(self, scope: _Scope) -> list[Statement]:
        kinds: dict[Callable[[_Scope], list[Statement]], float] = {self.assign: 5, self.declared: 1}
        if scope.depth < 2 + (self.random.random() < 0.2):
            kinds |= {self.condition_: 4, self.loop: 3 / (1 + scope.depth), self.switch: 1}
            kinds |= {self.twice: 0.6}
            if scope.in_kernel:
                kinds |= {self.strided: 1.5 / (1 + scope.depth)}
        if scope.in_kernel:
            kinds |= {self.write: 1, self.atomic: 0.7}
            if scope.uniform and not self.returned and scope.readable_tile is None:
                kinds |= {self.exchange: 2}
            if scope.may_share:
                kinds |= {self.share: 14, self.meet_all: 0.7}
        if scope.may_leave and not scope.in_switch:
            kinds |= {self.leave: 1.5}
        if (
            scope.in_kernel
            and scope.depth > 0
            and not (scope.uniform or scope.readable_tile)
            and not self.barred(scope)
        ):
            kinds |= {self.end: 0.6}
        return self.random.choices(list(kinds), list(kinds.values()))[0](scope)

    def barred(self, scope: _Scope) -> bool:
        """A lane that returns in a uniform loop would miss the barriers of the next round."""
        return scope.in_loop and not self.returned

    def declared(self, scope: _Scope) -> list[Statement]:
        if self.random.random() < 0.2:
            return [self.declare_array(scope)]
        if self.random.random() < 0.15 and scope.in_kernel:
            return [self.declare_struct(scope)]
        return [self.declare(self.type(), scope)]

    def assign(self, scope: _Scope) -> list[Statement]:
        random = self.random
        targets = self.seen(scope)
        if scope.arrays and (random.random() < 0.25 or not targets):
            name, (type_, size) = random.choice(list(scope.arrays.items()))
            return [Store(name, self.index(size, scope, 1), self.limited(type_, scope, 2))]
        if len(scope.structs) > 1 and random.random() < 0.2:
            to, source = random.sample(list(scope.structs), 2)
            return [CopyStruct(to, "Pair", source)]
        if not targets:
            return [self.declare(self.type(), scope)]
        name, type_ = random.choice(targets)
        if width(type_) > 1 and random.random() < 0.4:
            return [AssignElement(name, random.randrange(width(type_)), self.limited(element(type_), scope, 2))]
        return [Assign(name, type_, self.limited(type_, scope, random.choice((1, 2, 2, 3))))]

    def condition_(self, scope: _Scope) -> list[Statement]:
        uniform = self.random.random() < 0.2
        condition = self.uniform_condition(scope) if uniform else self.condition(scope, 2)
        uniform = uniform and _of_group(condition)
        then = self.block(scope.inside(uniform=uniform), 2)
        otherwise: tuple[Statement, ...] = ()
        if self.random.random() < 0.5:
            otherwise = self.block(scope.inside(uniform=uniform, may_share=False), 2)
        return [If(condition, then, otherwise)]

    def twice(self, scope: _Scope) -> list[Statement]:
        """The same simdgroup call on both sides of a condition: not to be merged into one."""
        targets = [name for name, type_ in self.seen(scope) if type_ == "uint"]
        if not targets:
            return self.assign(scope)
        name = self.random.choice(targets)
        value = self.meet("uint", scope.inside(may_share=False), 1)
        same = (Assign(name, "uint", value),)
        return [
            If(self.condition(scope, 1), same, same if self.random.random() < 0.7 else (*same, *self.assign(scope)))
        ]

    def loop(self, scope: _Scope) -> list[Statement]:
        random = self.random
        counter = self.name("i")
        keyword = random.choice(("for", "for", "while", "do"))
        uniform = random.random() < 0.35
        start = Literal("uint", random.randint(0, 2))
        limit: Expression = Literal("uint", random.randint(2, 5))
        if uniform:
            if random.random() < 0.5:
                limit = Apply("+", (Apply("%", (self.uniform_value(scope), Literal("uint", 4)), "uint"), limit), "uint")
        else:
            varying = Apply("%", (self.uint(scope, 1), Literal("uint", random.randint(2, 6))), "uint")
            limit = Apply("+", (varying, Literal("uint", random.randint(0, 2))), "uint")
            if random.random() < 0.6:  # computed once, so that the body cannot change it
                bound = self.name("b")
                scope.variables[bound] = "uint"
                scope.constants |= {bound}
                opening: list[Statement] = [Declare(bound, "uint", limit)]
                limit = Read(bound, "uint")
            else:
                opening = []
        if uniform:
            opening = []
        variables = {**scope.variables, counter: "uint"}
        constants = scope.constants | {counter}
        together = uniform and _of_group(limit)
        inner = scope.inside(uniform=together, variables=variables, constants=constants, in_loop=True)
        inner.in_switch = False
        if inner.uniform and random.random() < 0.4:
            inner.uniform = False
        inner.may_leave = not inner.uniform
        condition: Expression = Apply("<", (Read(counter, "uint"), limit), "bool")
        if not uniform and random.random() < 0.3:
            more = replace(inner, variables={**scope.variables, counter: "uint"})
            condition = ShortCircuit("&&", condition, self.condition(more, 1))
        body = self.block(inner, 3)
        step = Literal("uint", random.choice((1, 1, 2)))
        return [*opening, Loop(keyword, counter, start, condition, step, body)]

    def strided(self, scope: _Scope) -> list[Statement]:
        """A loop over elements of a buffer, in which each lane begins at a place of its own."""
        random = self.random
        targets = [name for name, type_ in self.seen(scope) if type_ == "uint"]
        if not targets:
            return self.assign(scope)
        counter = self.name("i")
        index = Read(counter, "uint")
        place: Expression = Read(random.choice(("lane", "lane", "local")), "uint")
        if random.random() < 0.3:
            place = Apply("*", (place, Literal("uint", random.choice((2, 4)))), "uint")
        start = Apply("+", (place, Literal("uint", random.choice((0, 1, 4, 32, 40)))), "uint")
        end = Literal("uint", random.randint(1, ELEMENTS)) if random.random() < 0.5 else Literal("uint", ELEMENTS)
        inner = scope.inside(
            variables={**scope.variables, counter: "uint"}, constants=scope.constants | {counter}, in_loop=True
        )
        inner.in_switch = False
        inner.may_leave = True
        memory = random.choice(("uints", "uints", "ints", "shorts", "bytes"))
        read = self.as_uint(Load(memory, index, BUFFERS[memory]))
        target = random.choice(targets)
        body: tuple[Statement, ...] = (Assign(target, "uint", Apply("+", (Read(target, "uint"), read), "uint")),)
        if random.random() < 0.4:
            body += self.block(inner, 2)
        condition = Apply("<", (index, end), "bool")
        return [Loop("for", counter, start, condition, Literal("uint", random.choice((32, 32, 64, 33))), body)]

    def switch(self, scope: _Scope) -> list[Statement]:
        random = self.random
        selector = Apply("%", (self.uint(scope, 2), Literal("uint", 5)), "uint")
        labels: list[int | None] = [*random.sample(range(5), random.randint(2, 4))]
        if random.random() < 0.7:
            labels.insert(random.randint(0, len(labels)), None)
        sharing = random.choice(labels)
        cases = []
        for label in labels:
            inner = scope.inside(in_switch=True, may_share=scope.may_share and label == sharing)
            cases.append(Case(label, self.block(inner, 2), random.random() < 0.3))
        return [Switch(selector, tuple(cases))]

    def leave(self, scope: _Scope) -> list[Statement]:
        """Lanes leave the loop or its iteration, some of them after a step that only they make."""
        before = self.assign(scope.inside(may_share=False)) if self.random.random() < 0.5 else []
        return [If(self.condition(scope, 2), (*before, Jump(self.random.choice(("break", "continue")))))]

    def end(self, scope: _Scope) -> list[Statement]:
        self.returned = True
        before: tuple[Statement, ...] = ()
        if self.random.random() < 0.6:
            before = (self.own("out", 1, self.uint(scope.inside(may_share=False), 1)),)
        return [If(self.condition(scope, 1), (*before, Return()))]

    def write(self, scope: _Scope) -> list[Statement]:
        kind = self.random.randrange(4)
        if kind == 3:
            return [Store("out_fours", Read("id", "uint"), self.limited("uint4", scope, 1))]
        if kind == 0:
            index = self.own_index(self.unsigned_index(SLOTS, scope, 1))
            return [Store("scratch", index, self.limited("uint", scope, 2))]
        if kind == 1 and self.floats:
            return [self.own("float_out", self.random.randrange(SLOTS), self.limited("float", scope, 2))]
        return [self.own("out", self.random.randrange(2, SLOTS), self.limited("uint", scope, 2))]

    def atomic(self, scope: _Scope) -> list[Statement]:
        which = self.random.randrange(len(CELLS))
        index = Apply("+", (Literal("uint", which * 8), self.unsigned_index(8, scope, 1)), "uint")
        return [Atomic(CELLS[which], index, self.uint(scope, 2))]

    def exchange(self, scope: _Scope) -> list[Statement]:
        memory, type_ = ("float_tile", "float") if self.floats and self.random.random() < 0.4 else ("tile", "uint")
        value = self.limited(type_, scope, 2)
        inner = scope.inside(uniform=True, readable_tile=memory)
        inner.uniform = False  # no other exchange within
        body = (self.declare(type_, inner), *self.block(inner, 2))
        targets = [name for name, other in self.seen(scope) if other == type_]
        if targets:
            body += (Assign(self.random.choice(targets), type_, self.tile(inner)),)
        return [Exchange(memory, value, body)]

    def share(self, scope: _Scope) -> list[Statement]:
        """Lanes read what others write, or write over what others read, with nothing between."""
        random = self.random
        memory = random.choice(("near", "near", "far"))
        targets = [name for name, type_ in self.seen(scope) if type_ == "uint"]
        match random.randrange(4):
            case 0 if targets:
                return [Assign(random.choice(targets), "uint", self.shared(memory, scope))]
            case 1:
                chosen = Apply("==", (Read("lane", "uint"), Literal("uint", random.randrange(32))), "bool")
                return [If(chosen, (Store(memory, Literal("uint", random.randrange(WINDOW)), self.uint(scope, 1)),))]
            case 2:
                step = Store(memory, self.window_index(scope), self.shared(memory, scope))
                return [step]
            case _:
                stores: list[Statement] = [Store(memory, self.window_index(scope), self.uint(scope, 2))]
                if targets:
                    stores.append(Assign(random.choice(targets), "uint", self.shared(memory, scope)))
                return stores

    def meet_all(self, scope: _Scope) -> list[Statement]:
        return [SimdgroupBarrier()]

    # ---- indices

    def index(self, size: int, scope: _Scope, depth: int) -> Expression:
        """An index below `size`, mostly unsigned."""
        index = self.unsigned_index(size, scope, depth)
        return Apply("make", (index,), "int") if self.random.random() < 0.2 else index

    def unsigned_index(self, size: int, scope: _Scope, depth: int) -> Expression:
        """An index below `size`: constant, uniform, by position, or arbitrary."""
        random = self.random
        kind = random.randrange(4)
        if kind == 0:
            return Literal("uint", random.randrange(size))
        if kind == 1:
            source = self.uniform_value(scope)
        elif kind == 2 and scope.in_kernel:
            offset = Literal("uint", random.randrange(8))
            place: Expression = Read(random.choice(("id", "local", "lane")), "uint")
            if random.random() < 0.4:
                place = Apply("*", (place, Literal("uint", random.randrange(1, 5))), "uint")
            source = Apply("+", (place, offset), "uint")
            if size == ELEMENTS and place == Read("lane", "uint"):
                return source  # in range by itself, so nothing hides that it is affine
        else:
            source = self.uint(scope, depth)
        if size & (size - 1) == 0:
            return Apply("&", (source, Literal("uint", size - 1)), "uint")
        return Apply("%", (source, Literal("uint", size)), "uint")

    def window_index(self, scope: _Scope) -> Expression:
        random = self.random
        lane: Expression = Read("lane", "uint")
        match random.randrange(5):
            case 0:
                return lane
            case 1:
                return Apply("^", (lane, Literal("uint", random.randrange(1, 32))), "uint")
            case 2:
                return Apply("+", (lane, Literal("uint", random.randrange(32))), "uint")
            case 3:
                return Apply("-", (Literal("uint", 31), lane), "uint")
        return self.below(self.uint(scope, 0), WINDOW)

    def shared(self, memory: str, scope: _Scope) -> Expression:
        load: Expression = Load(memory, self.window_index(scope), "uint")
        if self.random.random() < 0.4:
            load = Apply(self.random.choice("+^"), (load, self.uint(scope, 1)), "uint")
        return load

    def tile(self, scope: _Scope) -> Expression:
        memory = scope.readable_tile
        assert memory is not None
        size = Read("team_size", "uint")
        match self.random.randrange(3):
            case 0:
                index: Expression = Apply(
                    "-", (Apply("-", (size, Literal("uint", 1)), "uint"), Read("local", "uint")), "uint"
                )
            case 1:
                moved = Apply("+", (Read("local", "uint"), Literal("uint", self.random.randrange(1, 40))), "uint")
                index = Apply("%", (moved, size), "uint")
            case _:
                index = Apply("%", (self.uint(replace(scope, readable_tile=None), 1), size), "uint")
        return Load(memory, index, "float" if memory == "float_tile" else "uint")

    def uniform_value(self, scope: _Scope) -> Expression:
        if not scope.in_kernel:
            return Literal("uint", self.random.randrange(10))
        return Read(self.random.choice(UNIFORM), "uint")

    def uniform_condition(self, scope: _Scope) -> Expression:
        value = Apply("%", (self.uniform_value(scope), Literal("uint", 3)), "uint")
        return Apply(self.random.choice(("<", "!=", "==")), (value, Literal("uint", self.random.randrange(3))), "bool")

    # ---- values

    def limited(self, type_: str, scope: _Scope, depth: int) -> Expression:
        """A value that a variable of this type may hold."""
        match element(type_):
            case "int":
                value, limit = self.signed(type_, scope, depth)
                return value if limit <= INT_LIMIT else self.wrapped(value)
            case "uint":
                return self.uint(scope, depth) if type_ == "uint" else self.vector(type_, scope, depth)
            case "short" | "uchar":
                return self.signed("int", scope, depth)[0]
            case "bool":
                return self.condition(scope, depth)
        value = self.vector(type_, scope, depth) if width(type_) > 1 else self.real(type_, scope, depth)
        if isinstance(value, Literal | Read | Load | Choose | Call):
            return value
        bound = FLOAT_LIMITS[element(type_)]
        low, high = Literal(element(type_), -bound), Literal(element(type_), bound)
        if width(type_) > 1:
            return Apply("clamp", (value, self.filled(type_, low), self.filled(type_, high)), type_)
        return Apply("clamp", (value, low, high), type_)

    def filled(self, type_: str, value: Expression) -> Expression:
        return Apply("make", (value,), type_)

    def wrapped(self, value: Expression) -> Expression:
        modulus: Expression = Literal("int", 4093)
        if width(value.type) > 1:
            modulus = self.filled(value.type, modulus)
        return Apply("%", (value, modulus), value.type)

    def variable(self, type_: str, scope: _Scope) -> Expression | None:
        names = [name for name, other in scope.variables.items() if other == type_]
        return Read(self.random.choice(names), type_) if names else None

    def common(self, type_: str, scope: _Scope, depth: int) -> Expression | None:
        """What every type can be: read from somewhere, chosen, returned or exchanged."""
        random = self.random
        kind = random.randrange(10)
        arrays = [(name, size) for name, (other, size) in scope.arrays.items() if other == type_]
        if kind == 0 and arrays:
            name, size = random.choice(arrays)
            return Load(name, self.index(size, scope, depth - 1), type_)
        if kind == 1 and scope.in_kernel and (buffers := [n for n, other in BUFFERS.items() if other == type_]):
            return Load(buffers[0], self.index(ELEMENTS, scope, depth - 1), type_)
        if kind == 1 and scope.in_kernel and (fours := [n for n, (_, other) in FOURS.items() if other == type_]):
            return Load(fours[0], self.index(ELEMENTS // 4, scope, depth - 1), type_)
        if kind == 2 and depth > 0:
            yes, no = self.limited(type_, scope, depth - 1), self.limited(type_, scope, depth - 1)
            return Choose(self.condition(scope, depth - 1), yes, no, type_)
        if kind == 3 and depth > 0 and (callable_ := [f for f in self.functions if f.type == type_]):
            function = random.choice(callable_)
            arguments = tuple(self.limited(other, scope, depth - 1) for _, other in function.parameters)
            return Call(function.name, arguments, type_)
        if kind == 4 and width(type_) == 1:
            vectors = [
                (n, other) for n, other in scope.variables.items() if width(other) > 1 and element(other) == type_
            ]
            if vectors:
                name, other = random.choice(vectors)
                if random.random() < 0.3 and width(other) != 3:
                    return Apply("at", (Read(name, other), self.index(width(other), scope, depth - 1)), type_)
                return Apply("." + random.choice("xyzw"[: width(other)]), (Read(name, other),), type_)
        if kind == 5 and scope.readable_tile and type_ == ("float" if scope.readable_tile == "float_tile" else "uint"):
            return self.tile(scope)
        if kind in (7, 8) and scope.may_share and type_ == "uint":
            return Load(random.choice(("near", "near", "far")), self.window_index(scope), "uint")
        if kind == 6 and type_ == "uint" and scope.in_kernel and random.random() < 0.4:
            return Load("scratch", self.own_index(self.unsigned_index(SLOTS, scope, depth - 1)), "uint")
        return None

    def uint(self, scope: _Scope, depth: int) -> Expression:
        random = self.random
        if depth <= 0:
            return (random.random() < 0.85 and self.variable("uint", scope)) or Literal("uint", random.randrange(100))
        if (value := self.common("uint", scope, depth)) is not None:
            return value
        kind = random.randrange(12)
        if kind < 5:
            operation = random.choice("+ - * & | ^ min max << >> / % mulhi rotate".split())
            left, right = self.uint(scope, depth - 1), self.uint(scope, depth - 1)
            if operation in ("<<", ">>"):
                right = Literal("uint", random.randrange(32)) if random.random() < 0.5 else self.below(right, 32)
            if operation in "/%":
                right = Apply("|", (right, Literal("uint", 1)), "uint")
            return Apply(operation, (left, right), "uint")
        if kind < 8:
            return self.meet("uint", scope, depth)
        if kind == 8:
            return Apply(
                random.choice(("popcount", "clz", "reverse_bits", "~")), (self.uint(scope, depth - 1),), "uint"
            )
        if kind == 9:
            return Apply("make", (self.signed("int", scope, depth - 1)[0],), "uint")
        if kind == 10 and self.floats:
            return Apply("bits", (self.real("float", scope, depth - 1),), "uint")
        return self.variable("uint", scope) or Literal("uint", random.randrange(1000))

    def below(self, value: Expression, size: int) -> Expression:
        return Apply("&", (value, Literal("uint", size - 1)), "uint")

    def signed(self, type_: str, scope: _Scope, depth: int) -> tuple[Expression, int]:
        """An int or a vector of them, with the largest magnitude that it can have."""
        random = self.random
        if depth > 0 and (value := self.common(type_, scope, depth)) is not None:
            return value, INT_LIMIT
        kind = random.randrange(11) if depth > 0 else random.randrange(9, 12)
        if kind < 5:
            return self.signed_operation(type_, scope, depth)
        if kind < 7:
            return self.signed_meet(type_, scope, depth)
        if type_ != "int":
            if random.random() < 0.6 and (vector := self.variable(type_, scope)) is not None:
                return vector, INT_LIMIT
            elements = tuple(self.limited("int", scope, depth - 1) for _ in range(width(type_)))
            return Apply("make", elements, type_), INT_LIMIT
        if kind == 7:
            return Apply("make", (self.below(self.uint(scope, depth - 1), 1024),), "int"), 1023
        if kind == 8 and self.floats:
            return Apply("make", (self.limited("float", scope, depth - 1),), "int"), 1024
        if kind == 9 and (small := self.variable(random.choice(("short", "uchar")), scope)) is not None:
            return Apply("promote", (small,), "int"), 32768
        if kind == 10 and scope.in_kernel:
            memory = random.choice(("shorts", "bytes"))
            load = Load(memory, self.index(ELEMENTS, scope, depth - 1), BUFFERS[memory])
            return Apply("promote", (load,), "int"), 32768
        if random.random() < 0.85 and (plain := self.variable("int", scope)) is not None:
            return plain, INT_LIMIT
        return Literal("int", random.randint(-20, 20)), 20

    def signed_operation(self, type_: str, scope: _Scope, depth: int) -> tuple[Expression, int]:
        random = self.random
        left, most_left = self.signed(type_, scope, depth - 1)
        right, most_right = self.signed(type_, scope, depth - 1)
        operation = random.choice("+ - * & | ^ min max / % >> abs".split())
        if type_ != "int" and operation in ("/", ">>", "abs"):
            operation = "+"
        bits = (1 << max(most_left, most_right).bit_length()) - 1
        limit = {"+": most_left + most_right, "-": most_left + most_right, "*": most_left * most_right, "&": bits + 1}
        limit |= {"|": bits + 1, "^": bits + 1, "min": max(most_left, most_right), "max": max(most_left, most_right)}
        if operation in ("/", "%"):
            divisor = Literal("int", random.choice((-7, -3, -1, 2, 3, 8, 10, 33)))
            right = divisor if type_ == "int" else self.filled(type_, divisor)
            return Apply(operation, (left, right), type_), most_left
        if operation == ">>":
            return Apply(">>", (left, Literal("int", random.randrange(31))), type_), most_left
        if operation == "abs":
            return Apply("abs", (left,), type_), most_left
        if limit[operation] >= 1 << 29:
            left, right = self.wrapped(left), self.wrapped(right)
            limit[operation] = INT_LIMIT * INT_LIMIT
        return Apply(operation, (left, right), type_), limit[operation]

    def signed_meet(self, type_: str, scope: _Scope, depth: int) -> tuple[Expression, int]:
        value = self.limited(type_, scope, depth - 1)
        meet = self.meeting(type_, value, scope, depth)
        name = meet.function.partition("_")[2]
        limit = INT_LIMIT * 32 if name.endswith("sum") else 2 * INT_LIMIT if name in BITWISE else INT_LIMIT
        return meet, limit

    def vector(self, type_: str, scope: _Scope, depth: int) -> Expression:
        """A vector of uints or floats."""
        random = self.random
        if depth > 0 and (value := self.common(type_, scope, depth)) is not None:
            return value
        kind = random.randrange(8) if depth > 0 else 6
        if kind < 3:
            operations = "+ - * & ^ min max" if element(type_) == "uint" else "+ - min max"
            pair = (self.vector(type_, scope, depth - 1), self.vector(type_, scope, depth - 1))
            return Apply(random.choice(operations.split()), pair, type_)
        if kind == 3:
            return self.meeting(type_, self.limited(type_, scope, depth - 1), scope, depth)
        if kind == 4:
            letters = "xyzw"[: width(type_)]
            return Apply(
                "." + "".join(random.choices(letters, k=width(type_))), (self.vector(type_, scope, depth - 1),), type_
            )
        if kind == 5:
            return self.filled(type_, self.limited(element(type_), scope, depth - 1))
        if random.random() < 0.6 and (vector := self.variable(type_, scope)) is not None:
            return vector
        return Apply("make", tuple(self.limited(element(type_), scope, depth - 1) for _ in range(width(type_))), type_)

    def real(self, type_: str, scope: _Scope, depth: int) -> Expression:
        """A float or half; there is no way to a negative zero."""
        random = self.random
        if depth > 0 and (value := self.common(type_, scope, depth)) is not None:
            return value
        kind = random.randrange(12) if depth > 0 else 11
        if kind < 4:
            pair = (self.limited(type_, scope, depth - 1), self.limited(type_, scope, depth - 1))
            return Apply(random.choice("+ - + - min max".split()), pair, type_)
        if kind == 4:
            return Apply("*", (self.limited(type_, scope, depth - 1), Literal(type_, random.choice((2, 4, 8)))), type_)
        if kind == 5:
            divisor = Apply("abs", (self.limited(type_, scope, depth - 1),), type_)
            divisor = Apply("+", (divisor, Literal(type_, random.choice((1.5, 3, 7)))), type_)
            return Apply("/", (self.limited(type_, scope, depth - 1), divisor), type_)
        if kind == 6:
            inside = Apply("abs", (self.limited(type_, scope, depth - 1),), type_)
            return Apply(random.choice(("sqrt", "floor", "abs")), (inside,), type_)
        if kind in (7, 8):
            return self.meeting(type_, self.limited(type_, scope, depth - 1), scope, depth)
        if kind == 9:
            if type_ == "half" and random.random() < 0.5:
                return Apply("make", (self.limited("float", scope, depth - 1),), "half")
            return Apply(
                "make", (Apply("%", (self.limited("int", scope, depth - 1), Literal("int", 500)), "int"),), type_
            )
        if kind == 10 and type_ == "float":
            if random.random() < 0.5:
                return Apply("make", (self.limited("half", scope, depth - 1),), "float")
            return Apply("fma", tuple(self.limited("float", scope, depth - 1) for _ in range(3)), "float")
        literal = Literal(type_, random.choice((0, 0.5, 1, 1.25, 3, 10, -2.75)))
        return (random.random() < 0.75 and self.variable(type_, scope)) or literal

    def condition(self, scope: _Scope, depth: int) -> Expression:
        random = self.random
        kind = random.randrange(12) if depth > 0 else random.randrange(4)
        if kind == 10 and (variable := self.variable("bool", scope)) is not None:
            return variable
        if kind in (8, 9):
            function = random.choice(("simd_any", "simd_all", "quad_any", "quad_all", "simd_is_first", "quad_is_first"))
            arguments = () if function.endswith("first") else (self.condition(scope, depth - 1),)
            return Meet(function, arguments, "bool")
        if kind in (6, 7):
            return ShortCircuit(
                random.choice(("&&", "||")), self.condition(scope, depth - 1), self.condition(scope, depth - 1)
            )
        if kind == 5:
            return Apply("!", (self.condition(scope, depth - 1),), "bool")
        comparison = random.choice(("<", ">", "<=", ">=", "==", "!="))
        if kind in (0, 1) and scope.in_kernel:
            lane = Read(random.choice(("lane", "local", "id")), "uint")
            if random.random() < 0.5:
                modulus = random.randint(2, 5)
                return Apply(
                    comparison,
                    (Apply("%", (lane, Literal("uint", modulus)), "uint"), Literal("uint", modulus // 2)),
                    "bool",
                )
            return Apply(comparison, (lane, Literal("uint", random.randrange(36))), "bool")
        if kind == 2 and self.floats:
            return Apply(
                comparison, (self.real("float", scope, depth - 1), self.real("float", scope, depth - 1)), "bool"
            )
        if kind == 3:
            return Apply(
                comparison, (self.signed("int", scope, depth - 1)[0], self.signed("int", scope, depth - 1)[0]), "bool"
            )
        value = Apply("%", (self.uint(scope, depth - 1), Literal("uint", random.randint(2, 9))), "uint")
        return Apply(comparison, (value, Literal("uint", random.randrange(5))), "bool")

    # ---- simdgroup functions

    def meet(self, type_: str, scope: _Scope, depth: int) -> Expression:
        if type_ == "uint" and self.random.random() < 0.2:
            family = self.random.choice(("simd", "simd", "quad"))
            if self.random.random() < 0.3:
                return Meet(f"{family}_active_threads_mask", (), "uint")
            return Meet(f"{family}_ballot", (self.condition(scope, depth - 1),), "uint")
        if self.random.random() < 0.15:
            small = self.random.choice(
                [name for name, other in scope.variables.items() if other in ("short", "uchar")] or [""]
            )
            if small:
                meet = self.meeting(scope.variables[small], Read(small, scope.variables[small]), scope, depth)
                return Apply("make", (meet,), "uint")
        return self.meeting(type_, self.limited(type_, scope, depth - 1), scope, depth)

    def meeting(self, type_: str, value: Expression, scope: _Scope, depth: int) -> Meet:
        """A simdgroup or quad function of a value."""
        random = self.random
        family = random.choice(("simd", "simd", "quad"))
        size = 32 if family == "simd" else 4
        real = element(type_) in FLOAT_LIMITS
        names = [*REDUCTIONS, *REDUCTIONS, "prefix_inclusive_sum", "prefix_exclusive_sum", *SHUFFLES]
        if not real:
            names += BITWISE
        if element(type_) in ("uint", "short", "uchar") or type_ in FLOAT_LIMITS:
            names += ["product", "prefix_inclusive_product", "prefix_exclusive_product"]
        name = random.choice(names)
        if name.endswith("product") and real:  # exact: powers of two that stay in the range of a half
            two, one = Literal(type_, 2 if type_ == "float" else 1), Literal(type_, 1 if type_ == "float" else -1)
            value = Choose(self.condition(scope, depth - 1), two, one, type_)
        function = f"{family}_{name}"
        if name not in SHUFFLES or name == "broadcast_first":
            return Meet(function, (value,), type_)
        if name == "shuffle":  # the only one whose lane may differ between lanes
            return Meet(function, (value, self.ushort(self.below(self.uint(scope, depth - 1), size))), type_)
        if "fill" in name:
            modulo = random.choice([size, size // 2, 2] if family == "quad" else [32, 16, 8, 4, 2])
            delta = Literal("ushort", random.randrange(modulo + 1))
            filling = self.limited(type_, scope, depth - 1)
            if element(filling.type) != element(type_):
                filling = Apply("make", (filling,), type_)
            some: tuple[Expression, ...] = (
                (Literal("ushort", modulo),) if modulo != size or random.random() < 0.3 else ()
            )
            return Meet(function, (value, filling, delta, *some), type_)
        if random.random() < 0.25 and scope.in_kernel:
            return Meet(function, (value, self.ushort(self.below(self.uniform_value(scope), size))), type_)
        return Meet(function, (value, Literal("ushort", random.randrange(size))), type_)

    def ushort(self, value: Expression) -> Expression:
        return Apply("make", (value,), "ushort")
