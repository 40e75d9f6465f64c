"""Structs as arguments: fields are matched by name, laid out as the kernel's, and a clash shows both sides."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ostinato as ost

SOURCE = """
#include <metal_stdlib>
using namespace metal;
struct P { uint n; float s; };
typedef struct { uchar c; half h[2]; } Inner;
struct Outer { bool on; Inner in[2]; float3 v; float3x3 m; };
struct Based : P { uint more; };
kernel void scaled(constant P &p [[buffer(0)]], device float *out [[buffer(1)]]) { out[0] = p.n; out[1] = p.s; }
kernel void alone(device const P *p [[buffer(0)]]) {}
kernel void added(device const P *p [[buffer(0)]], device float *out [[buffer(1)]],
                  uint id [[thread_position_in_grid]]) { out[id] = p[id].n + p[id].s; }
kernel void nested(constant Outer &o [[buffer(0)]], device float *out [[buffer(1)]]) {
    out[0] = o.on; out[1] = o.in[1].c; out[2] = o.in[1].h[1]; out[3] = o.v.z; out[4] = o.m[2][1];
}
kernel void based(constant Based &b [[buffer(0)]], device float *out [[buffer(1)]]) { out[0] = b.more; }
"""
REVERSED = np.dtype([("s", "f4"), ("n", "u4")])


def run(dev: ost.Device, name: str, *arguments: Any, threads: int = 1) -> list[float]:
    out = dev.zeros(8, np.float32)
    enc = dev.command_encoder()
    try:
        enc.dispatch(dev.library(SOURCE)[name], *arguments, out, threads=threads)
    except ost.OstinatoError:
        enc.discard()
        raise
    enc.commit_and_wait()
    return [float(value) for value in out.numpy()]


@pytest.mark.parametrize(
    "value",
    [
        np.array((2.5, 7), REVERSED),
        np.array((2.5, 7), REVERSED)[()],
        np.array([(2.5, 7)], REVERSED),
        np.array((7, 2.5), [("n", "u4"), ("s", "f4")]),
        np.array((2.5, b"", 7), [("s", "f4"), ("_", "V4"), ("n", "u4")]),
        {"s": 2.5, "n": 7},
        {"n": np.uint32(7), "s": np.float32(2.5)},
        {"n": 7.0, "s": 2.5},
        (7, 2.5),
        [7, 2.5],
    ],
    ids=str,
)
def test_fields_are_matched_by_name_or_by_position(dev: ost.Device, value: Any) -> None:
    assert run(dev, "scaled", value)[:2] == [7, 2.5]


def test_structs_vectors_matrices_and_arrays_inside_a_struct(dev: ost.Device) -> None:
    matrix = np.arange(9, dtype=np.float32).reshape(3, 3)
    value = {"on": True, "in": [{"c": 1, "h": (2, 3)}, (4, [5, 6.5])], "v": (1, 2, 3), "m": matrix}
    assert run(dev, "nested", value)[:5] == [1, 4, 6.5, 3, 7]


def test_a_record_of_the_kernels_own_dtype_is_taken_as_it_is(dev: ost.Device) -> None:
    record = np.zeros((), dev.library(SOURCE)["nested"].dtype("o"))
    record["in"]["h"][1, 1], record["v"], record["m"][2, 1] = 6.5, (1, 2, 3), 7
    assert run(dev, "nested", record)[:5] == [0, 0, 6.5, 3, 7]


def test_one_dict_is_a_struct_when_its_keys_are_names(dev: ost.Device) -> None:
    enc = dev.command_encoder()
    kernel = dev.library(SOURCE)["alone"]
    enc.dispatch(kernel, {"n": 1, "s": 2}, threads=1)
    enc.dispatch(kernel, {0: {"n": 1, "s": 2}}, threads=1)
    enc.commit_and_wait()


def test_another_value_of_the_same_dict_is_seen(dev: ost.Device) -> None:
    value = {"n": 7, "s": 0.0}
    assert run(dev, "scaled", value)[:2] == [7, 0]
    value["s"] = 1.5
    assert run(dev, "scaled", value)[:2] == [7, 1.5]


BOTH = r"struct P, 8 bytes +given.*\n +0  n: uint32.*\n +4  s: float32"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"n": 1}, "no field s is given"),
        ({"n": 1, "s": 2, "t": 3}, "there is no field t in struct P"),
        ((1, 2, 3), "has 2 fields, 3 values are given"),
        ({"n": -1, "s": 2}, "n: -1 is out of the range of uint32"),
        ({"n": 1.5, "s": 2}, "n: 1.5 is not an integer"),
        ({"n": np.int64(1), "s": 2}, "n: expected uint32, got int64"),
        ({"n": "one", "s": 2}, "n: expected uint32, got str"),
        ({"n": [1], "s": 2}, "n: expected uint32, got list of 1"),
        (np.array((1, 2), [("s", "f8"), ("n", "u4")]), "s: expected float32, got float64"),
        (np.array((1, 2), [("n", "u4"), ("scale", "f4")]), "no field s is given; there is no field scale"),
    ],
)
def test_a_clash_shows_both_layouts(dev: ost.Device, value: Any, reason: str) -> None:
    with pytest.raises(ost.ArgumentError, match=f"argument 0 'p' .*{reason}.*\n.*{BOTH}"):
        run(dev, "scaled", value)


def test_the_elements_of_a_buffer_must_lie_as_the_struct_does(dev: ost.Device) -> None:
    fitting = dev.library(SOURCE)["added"].dtype("p")
    values = np.array([(1, 0.5), (2, 0.25)], fitting)
    assert run(dev, "added", dev.array(values), threads=2)[:2] == [1.5, 2.25]
    assert run(dev, "added", dev.array(values.view(np.uint8)), threads=2)[:2] == [1.5, 2.25]
    with pytest.raises(ost.ArgumentError, match=rf"Kernel.dtype\('p'\) gives the dtype that fits\n.*{BOTH}"):
        run(dev, "added", dev.array(np.zeros(2, REVERSED)))
    named = dev.array(np.zeros(2, [("s", "f4"), ("n", "u4"), ("more", "u4")]))
    with pytest.raises(ost.ArgumentError, match="given, 12 bytes"):
        run(dev, "added", named)


def test_a_parameter_of_a_replay_must_lie_as_the_struct_does(dev: ost.Device) -> None:
    kernel, out = dev.library(SOURCE)["scaled"], dev.zeros(2, np.float32)
    with pytest.raises(ost.ArgumentError, match=BOTH):
        dev.capture(lambda enc: enc.dispatch(kernel, ost.param("p", REVERSED), out, threads=1))
    graph = dev.capture(lambda enc: enc.dispatch(kernel, ost.param("p", kernel.dtype("p")), out, threads=1))
    graph.instantiate().replay(p=np.array((7, 2.5), kernel.dtype("p"))).wait()
    assert list(out.numpy()) == [7, 2.5]


def test_a_struct_that_only_the_compiler_knows_takes_records_as_they_are(dev: ost.Device) -> None:
    record = np.array((1, 2, 3), [("x", "u4"), ("y", "u4"), ("z", "u4")])
    assert run(dev, "based", record)[0] == 3
    with pytest.raises(ost.ArgumentError, match="the fields of Based are not known before it is compiled"):
        run(dev, "based", {"n": 1, "s": 2, "more": 3})
    with pytest.raises(ost.ArgumentError, match="only the compiler knows this type"):
        dev.library(SOURCE)["based"].dtype("b")


def test_the_dtype_of_plain_arguments(dev: ost.Device) -> None:
    assert dev.library(SOURCE)["scaled"].dtype("out") == np.float32
    assert dev.library(SOURCE)["scaled"].dtype(1) == np.float32
    with pytest.raises(ost.ArgumentError, match="has no argument 'x'"):
        dev.library(SOURCE)["scaled"].dtype("x")


# --- against NumPy's layout -----------------------------------------------------------------------------------------

SCALARS = {
    "bool": np.bool_, "char": np.int8, "uchar": np.uint8, "short": np.int16, "ushort": np.uint16, "int": np.int32,
    "uint": np.uint32, "long": np.int64, "ulong": np.uint64, "half": np.float16, "float": np.float32,
    "bfloat": ml_dtypes.bfloat16,
}  # fmt: skip
BITS = {"half": "ushort", "bfloat": "ushort", "float": "uint"}
SCALAR = st.sampled_from(sorted(SCALARS))
FIELD = st.tuples(SCALAR, st.sampled_from([(), (), (1,), (3,), (2, 2)]))
INNER = st.lists(FIELD, min_size=1, max_size=3)
STRUCT = st.tuples(INNER, st.lists(st.one_of(FIELD, st.sampled_from([(), (2,)])), min_size=1, max_size=6))


def declared(fields: list[Any]) -> str:
    return " ".join(
        f"{kind} f{number}{''.join(f'[{extent}]' for extent in shape)};" for number, (kind, shape) in enumerate(fields)
    )


def leaves(fields: list[Any], prefix: str) -> list[tuple[str, str]]:
    """The C++ name and type of every number in a struct."""
    found: list[tuple[str, str]] = []
    for number, (kind, shape) in enumerate(fields):
        for index in np.ndindex(*shape):
            name = f"{prefix}f{number}{''.join(f'[{at}]' for at in index)}"
            found += leaves(kind, f"{name}.") if isinstance(kind, list) else [(name, kind)]
    return found


def dtype_of(fields: list[Any], order: list[int] | None = None) -> np.dtype[Any]:
    named = [
        (f"f{number}", dtype_of(kind) if isinstance(kind, list) else SCALARS[kind], shape)
        for number, (kind, shape) in enumerate(fields)
    ]
    return np.dtype([named[at] for at in order or range(len(named))], align=True)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(structs=st.lists(STRUCT, min_size=1, max_size=5), data=st.data())
def test_structs_are_laid_out_as_numpy_aligns_them(dev: ost.Device, structs: list[Any], data: st.DataObject) -> None:
    source, all_fields = "#include <metal_stdlib>\nusing namespace metal;\n", []
    for number, (inner, outer) in enumerate(structs):
        fields: list[Any] = [
            field if len(field) == 2 and isinstance(field[0], str) else (inner, field) for field in outer
        ]
        all_fields.append(fields)
        spelled = [(f"I{number}" if kind is inner else kind, shape) for kind, shape in fields]
        source += f"struct I{number} {{ {declared(inner)} }};\nstruct S{number} {{ {declared(spelled)} }};\n"
        reads = "".join(
            f" out[{at}] = ulong({f'as_type<{BITS[kind]}>(s.{name})' if kind in BITS else f's.{name}'});"
            for at, (name, kind) in enumerate(leaves(fields, ""))
        )
        source += f"kernel void k{number}(constant S{number} &s, device ulong *out) {{{reads} }}\n"
    library = dev.library(source)
    for number, fields in enumerate(all_fields):
        kernel, natural = library[f"k{number}"], dtype_of(fields)
        assert kernel.dtype("s") == natural
        flat = leaves(fields, "")
        seed = data.draw(st.integers(0, 2**32 - 1))
        record = np.frombuffer(np.random.default_rng(seed).bytes(natural.itemsize), natural)[0].copy()
        wanted = []
        for name, kind in flat:
            record_at, last = located(record, name)
            if kind == "bool":
                record_at[last] = bool(record_at[last].view(np.uint8) & 1)
            value = record_at[last]
            raw = (
                value.view(f"u{value.dtype.itemsize}") if kind in BITS else np.int64(value) if kind[0] != "u" else value
            )
            wanted.append(int(raw) % 2**64)
        order = data.draw(st.permutations(range(len(fields))))
        shuffled = np.zeros((), dtype_of(fields, list(order)))
        for name in natural.names or ():
            shuffled[name] = record[name]
        as_dict = {name: record[name] for name in natural.names or ()}
        out = dev.zeros(len(flat), np.uint64)
        for given_value in (record, shuffled, as_dict, tuple(as_dict.values())):
            enc = dev.command_encoder()
            enc.fill(out, 0)
            enc.dispatch(kernel, given_value, out, threads=1)
            enc.commit_and_wait()
            assert out.numpy().tolist() == wanted


def located(record: Any, name: str) -> tuple[Any, Any]:
    """The array or record that holds a number, and its key there."""
    keys: list[Any] = []
    for part in name.split("."):
        first, *rest = part.replace("]", "").split("[")
        keys.append(first)
        if rest:
            keys.append(tuple(int(index) for index in rest))
    for key in keys[:-1]:
        record = record[key]
    return record, keys[-1]


def test_three_lanes_take_the_room_of_four(dev: ost.Device) -> None:
    kernel = dev.library(
        "#include <metal_stdlib>\nusing namespace metal;\n"
        "kernel void sums(device const float3 *p [[buffer(0)]], device float *out [[buffer(1)]],"
        " uint id [[thread_position_in_grid]]) { out[id] = p[id].x + p[id].y + p[id].z; }"
    )["sums"]
    values = np.zeros(4, kernel.dtype("p"))
    values[:, :3] = np.arange(12).reshape(4, 3)
    points, out = dev.array(values), dev.zeros(4, np.float32)
    encoder = dev.command_encoder()
    encoder.dispatch(kernel, points, out, threads=4)
    encoder.commit_and_wait()
    assert out.numpy().tolist() == [3, 12, 21, 30]


def test_a_constant_of_the_struct_is_no_field(dev: ost.Device) -> None:
    source = """#include <metal_stdlib>
        using namespace metal;
        struct P { const static int N = 4; int a; float4 v; };
        kernel void k(constant P &p [[buffer(0)]], device float *out [[buffer(1)]]) { out[0] = p.a * P::N + p.v.w; }"""
    out = dev.zeros(1, np.float32)
    encoder = dev.command_encoder()
    encoder.dispatch(dev.library(source)["k"], {"a": 2, "v": (0, 0, 0, 5)}, out, threads=1)
    encoder.commit_and_wait()
    assert out.numpy().tolist() == [13]
