"""The features of a GPU that a kernel's code needs, by the names that it reaches."""

from __future__ import annotations

from ostinato.msl import parse

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"
BODY = "device float *x, uint i [[thread_position_in_grid]]"


def features(text: str, kernel: str = "k") -> dict[str, tuple[str, int]]:
    """By feature: the name that needs it, and its line after the head."""
    uses = parse(HEAD + text).features(kernel)
    return {use.feature: (use.name, use.token.line - HEAD.count("\n")) for use in uses}


def test_functions_count_wherever_the_kernel_reaches_them() -> None:
    text = f"""float total(float value) {{ return simd_sum(value); }}
    struct Reduce {{ float operator()(float value) {{ return quad_shuffle_xor(value, 1); }} }};
    kernel void k({BODY}) {{
        Reduce reduce;
        x[i] = simd_shuffle_down(total(reduce(x[i])), 1);
    }}
    kernel void other({BODY}) {{ x[i] = 1.0f; }}"""
    assert features(text) == {
        "SIMD-scoped permute functions": ("simd_shuffle_down", 5),
        "SIMD-scoped reduction functions": ("simd_sum", 1),
        "quad-scoped permute functions": ("quad_shuffle_xor", 2),
    }
    assert not features(text, "other")


def test_a_function_of_the_source_under_the_name_of_metals_is_not_metals() -> None:
    own = "float simd_sum(float value) { return value; }\n"
    assert not features(own + f"kernel void k({BODY}) {{ x[i] = simd_sum(x[i]); }}")
    overload = (
        "ulong simd_shuffle(ulong v, ushort l) { return as_type<ulong>(metal::simd_shuffle(as_type<uint2>(v), l)); }"
    )
    needed = features(overload + f"\nkernel void k({BODY}) {{ x[i] = simd_shuffle(x[i], 0); }}")
    assert needed == {"SIMD-scoped permute functions": ("simd_shuffle", 2)}


def test_bfloat_counts_in_the_kernel_itself_not_in_overloads_that_it_might_call() -> None:
    text = """typedef bfloat bfloat16_t;
    float wide(float value) { return value; }
    float wide(bfloat value) { return float(value); }
    template <typename T> [[kernel]] void k(device T *x, uint i [[thread_position_in_grid]]) { x[i] = T(wide(x[i])); }
    template [[host_name("k_float")]] [[kernel]] void k<float>(device float *, uint);
    template [[host_name("k_bfloat")]] [[kernel]] void k<bfloat16_t>(device bfloat16_t *, uint);
    template [[host_name("k_plain")]] [[kernel]] void k<bfloat>(device bfloat *, uint);"""
    assert not features(text, "k_float")
    assert features(text, "k_bfloat") == {"bfloat": ("bfloat", 1)}
    assert features(text, "k_plain") == {"bfloat": ("bfloat", 7)}


def test_atomics_are_told_apart_by_what_they_hold() -> None:
    text = "kernel void k(device atomic_uint *n, device atomic<float> *f, device atomic_ulong *u) {}"
    assert features(text) == {
        "floating-point atomics": ("atomic<float>", 1),
        "64-bit atomics": ("atomic_ulong", 1),
    }
