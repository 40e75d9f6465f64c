"""What the lane pass claims of values, against the values that 32 lanes compute; and how local arrays are laid out."""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ostinato.backends.cpu.simt.code import LANES, Types, parse_function
from ostinato.backends.cpu.simt.flow import Flow
from ostinato.backends.cpu.simt.private import Private
from ostinato.backends.cpu.simt.shapes import VARYING, Shape, Shapes, Spread, Uniform

ALIGNMENTS = {"%a": 32, "%b": 1}


def shapes_of(body: str) -> Shapes:
    """The shapes of a function of two numbers, the first a multiple of 32, and a pointer."""
    function = parse_function(f"define void @f(i32 %a, i32 %b, ptr %p) {{\nstart:\n{body}\n}}")
    types = Types({})
    flow = Flow(function)
    return Shapes(function, flow, types, Private(function, types), ALIGNMENTS)


# -- straight lines, against what lanes compute ------------------------------------------------------------------------

MASK = (1 << 32) - 1
OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "shl": lambda x, y: x << y if y < 32 else 0,
    "lshr": lambda x, y: x >> y if y < 32 else 0,
    "udiv": lambda x, y: x // y,
    "urem": lambda x, y: x % y,
}
NUMBERS = st.sampled_from([1, 2, 3, 4, 7, 8, 16, 31, 32, 33, 64, 255, 1024, MASK])
SHIFTS = st.integers(0, 31)


@st.composite
def straight_lines(draw: st.DrawFn) -> tuple[str, list[tuple[str, str, str, str]]]:
    """A body, and its instructions: result, operation, operands."""
    names = ["%a", "%b", "%lane"]
    made: list[tuple[str, str, str, str]] = []
    for number in range(draw(st.integers(1, 6))):
        op = draw(st.sampled_from(sorted(OPERATIONS)))
        constant = SHIFTS if op in ("shl", "lshr") else NUMBERS
        second = str(draw(constant))
        if op not in ("shl", "lshr", "udiv", "urem") and draw(st.booleans()):
            second = draw(st.sampled_from(names))
        made.append((f"%v{number}", op, draw(st.sampled_from(names)), second))
        names.append(f"%v{number}")
    lines = ["  %lane = call i32 @__ost_lane()"]
    lines += [f"  {result} = {op} i32 {first}, {second}" for result, op, first, second in made]
    return "\n".join([*lines, "  ret void"]), made


def check(shape: Shape, values: list[int], bits: int = 32) -> None:
    """Whether a claim holds for the values of the lanes."""
    size = 1 << bits
    if isinstance(shape, Uniform):
        assert len(set(values)) == 1
        assert shape.constant is None or values[0] == shape.constant % size
        assert values[0] % min(shape.align, size) == 0
    elif isinstance(shape, Spread):
        base = (values[0] - shape.offsets[0]) % size
        assert values == [(base + offset) % size for offset in shape.offsets]
        assert not shape.zero or base == 0
        assert base % min(shape.align, size) == 0


@given(straight_lines(), st.integers(0, MASK // 32), st.integers(0, MASK))
@settings(max_examples=500)
def test_claims_hold_for_the_numbers_of_all_lanes(
    program: tuple[str, list[tuple[str, str, str, str]]], thirty_seconds: int, b: int
) -> None:
    body, made = program
    shapes = shapes_of(body)
    values = {"%a": [32 * thirty_seconds] * LANES, "%b": [b] * LANES, "%lane": list(range(LANES))}
    for result, op, first, second in made:
        others = values.get(second) or [int(second)] * LANES
        values[result] = [OPERATIONS[op](x, y) & MASK for x, y in zip(values[first], others, strict=True)]
        check(shapes.result(result), values[result])


@pytest.mark.parametrize(
    ("expression", "offsets"),
    [
        ("add i32 %a, %lane", range(LANES)),
        ("sub i32 %lane, %a", range(LANES)),
        ("mul i32 %lane, 4", range(0, 4 * LANES, 4)),
        ("shl i32 %lane, 3", range(0, 8 * LANES, 8)),
        ("and i32 %lane, 3", [lane % 4 for lane in range(LANES)]),
        ("lshr i32 %lane, 2", [lane // 4 for lane in range(LANES)]),
        ("udiv i32 %lane, 5", [lane // 5 for lane in range(LANES)]),
    ],
)
def test_numbers_at_known_distances_are_known_to_be(expression: str, offsets: list[int]) -> None:
    shape = shapes_of(f"  %lane = call i32 @__ost_lane()\n  %x = {expression}\n  ret void").result("%x")
    assert isinstance(shape, Spread)
    assert list(shape.offsets) == list(offsets)


def test_addresses_of_neighbours_are_known_to_be() -> None:
    shapes = shapes_of(
        """  %lane = call i32 @__ost_lane()
  %i = add i32 %a, %lane
  %wide = zext i32 %i to i64
  %x = getelementptr inbounds float, ptr %p, i64 %wide
  %y = getelementptr inbounds float, ptr %p, i64 7
  ret void"""
    )
    address = shapes.result("%x")
    assert isinstance(address, Spread)
    assert address.offsets == tuple(range(0, 4 * LANES, 4))
    assert isinstance(shapes.result("%y"), Uniform)


def test_what_is_read_at_different_addresses_varies() -> None:
    shapes = shapes_of(
        """  %lane = call i32 @__ost_lane()
  %wide = zext i32 %lane to i64
  %at = getelementptr inbounds i32, ptr %p, i64 %wide
  %own = load i32, ptr %at, align 4
  %same = load i32, ptr %p, align 4
  %old = atomicrmw add ptr %p, i32 1 monotonic, align 4
  ret void"""
    )
    assert shapes.result("%own") is VARYING
    assert shapes.result("%same") == Uniform()
    assert shapes.result("%old") is VARYING


# -- flow --------------------------------------------------------------------------------------------------------------

BRANCH = """  %lane = call i32 @__ost_lane()
  %c = icmp ult i32 {condition}, 3
  br i1 %c, label %yes, label %join
yes:
  br label %join
join:
  %x = phi i32 [ %a, %start ], [ %b, %yes ]
  %same = phi i32 [ %b, %start ], [ %b, %yes ]
  ret void"""


def test_values_of_two_ways_vary_where_lanes_took_different_ones() -> None:
    apart, together = shapes_of(BRANCH.format(condition="%lane")), shapes_of(BRANCH.format(condition="%b"))
    assert apart.divergent == {"%start"}
    assert apart.result("%x") is VARYING
    assert isinstance(apart.result("%same"), Uniform)
    assert not together.divergent
    assert isinstance(together.result("%x"), Uniform)


LOOP = """  %lane = call i32 @__ost_lane()
  br label %loop
loop:
  %k = phi i32 [ 0, %start ], [ %next, %loop ]
  %next = add i32 %k, 1
  %go_on = icmp ult i32 %next, {bound}
  br i1 %go_on, label %loop, label %end
end:
  %last = add i32 %next, 5
  ret void"""


def test_a_loop_that_lanes_leave_at_different_times_varies_outside_alone() -> None:
    torn, whole = shapes_of(LOOP.format(bound="%lane")), shapes_of(LOOP.format(bound="%b"))
    assert {loop.header for loop in torn.torn} == {"%loop"}
    assert isinstance(torn.result("%next"), Uniform)
    assert torn.leaves_torn_loop("%next", "%end")
    assert torn.result("%last") is VARYING
    assert not whole.torn
    assert isinstance(whole.result("%last"), Uniform)


# -- local arrays ------------------------------------------------------------------------------------------------------

COPY = """define void @f(ptr %p, i64 %i) {{
start:
  %x = alloca [8 x {first}], align 8
  %y = alloca [8 x {second}], align 8
  %in_x = getelementptr inbounds {first}, ptr %x, i64 %i
  %in_y = getelementptr inbounds {second}, ptr %y, i64 %i
  store {first} 1, ptr %in_x, align 1
  %read = load {second}, ptr %in_y, align 1
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 {target}, ptr align 8 %x, i64 8, i1 false)
  ret void
}}"""


def test_numbers_that_wrap_in_eight_bits_are_no_known_distance_apart_after_a_shift() -> None:
    shapes = shapes_of("""  %lane = call i32 @__ost_lane()
  %v = add i32 %a, %lane
  %b8 = trunc i32 %v to i8
  %s = shl i8 %b8, 4
  %r = lshr i8 %s, 1
  ret void""")
    assert shapes.result("%r") is VARYING


def test_a_phi_that_some_lanes_keep_varies() -> None:
    shapes = shapes_of("""  %lane = call i32 @__ost_lane()
  br label %loop
loop:
  %i = phi i32 [ 0, %start ], [ %n, %one ], [ %n, %two ]
  %kept = phi i32 [ undef, %start ], [ %kept, %one ], [ %k, %two ]
  %n = add i32 %i, 1
  %bit = lshr i32 %b, %i
  %x = xor i32 %bit, %lane
  %c = icmp ult i32 %x, 5
  br i1 %c, label %one, label %two
one:
  %e = icmp ult i32 %n, 9
  br i1 %e, label %loop, label %done
two:
  %k = call i32 @__ost_pick32(i32 %x, i32 0)
  %g = icmp ult i32 %n, 9
  br i1 %g, label %loop, label %done
done:
  store i32 %kept, ptr %p
  ret void""")
    assert shapes.result("%kept") is VARYING


def private_of(first: str, second: str, target: str) -> Private:
    return Private(parse_function(COPY.format(first=first, second=second, target=target)), Types({}))


def test_elements_of_the_lanes_lie_side_by_side() -> None:
    private = private_of("i32", "i16", "%p")
    assert private.offsets("%x") == tuple(range(0, 4 * LANES, 4))
    assert private.offsets("%y") == tuple(range(0, 2 * LANES, 2))
    assert private.bytes("%x") == 32 * LANES
    assert private.scale("%in_x") == LANES
    assert private.scale("%p") == 1


def test_a_copy_between_alike_arrays_is_done_by_elements() -> None:
    function = parse_function(COPY.format(first="i32", second="i32", target="%y"))
    Private(function, Types({}))
    body = function.blocks["%start"].body
    assert not [made for made in body if made.callee.startswith("llvm.memcpy")]
    assert [made.type for made in body if made.op == "load" and made.result.startswith("%ost")] == ["i32", "i32"]


@pytest.mark.parametrize(("first", "second"), [("i32", "i16"), ("i8", "i64"), ("i16", "i32")])
def test_unlike_arrays_that_are_copied_to_each_other_lie_lane_by_lane(first: str, second: str) -> None:
    private = private_of(first, second, "%y")
    assert private.offsets("%x") == tuple(range(0, private.bytes("%x"), private.bytes("%x") // LANES))
    assert private.offsets("%y") == tuple(range(0, private.bytes("%y"), private.bytes("%y") // LANES))
    assert private.scale("%in_x") == private.scale("%in_y") == 1
