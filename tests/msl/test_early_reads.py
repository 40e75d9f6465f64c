"""Where a kernel waits for others, and which arguments it says it reads before: `ostinato::wait_for_all_but`."""

from __future__ import annotations

import re
from unittest import mock

import pytest

import ostinato as ost
from nvrtc import Nvrtc
from ostinato.msl import early_reads, parse

HEAD = """#include <metal_stdlib>
#include <ostinato>
using namespace metal;
"""
ARGUMENTS = """device const float *weight [[buffer(0)]], device const float *x [[buffer(1)]],
    device float *out [[buffer(2)]], constant float &by [[buffer(3)]], uint i [[thread_position_in_grid]]"""


def kernel(body: str) -> str:
    return f"{HEAD}kernel void k({ARGUMENTS}) {{ {body} }}"


def early(source: str) -> list[str]:
    return [argument.name for argument in parse(source).kernels["k"].arguments if argument.early]


WAITING = kernel("float w = weight[i]; ostinato::wait_for_all_but(weight); out[i] = w * x[i] * by;")


def test_the_arguments_that_the_call_names_may_be_read_before_it() -> None:
    assert early(WAITING) == ["weight"]
    assert early(kernel("ostinato::wait_for_all_but(weight, x); out[i] = by;")) == ["weight", "x"]
    assert early(kernel("out[i] = x[i];")) == []


@pytest.mark.parametrize(
    "body",
    [
        "if (i > 3) { ostinato::wait_for_all_but(weight); } out[i] = weight[i];",
        "for (uint j = 0; j < 2; ++j) { ostinato::wait_for_all_but(weight); }",
        "if (i > 3) ostinato::wait_for_all_but(weight); out[i] = weight[i];",
        "if (i > 3) { out[i] = 1; } else ostinato::wait_for_all_but(weight);",
        "if (i > 3) {} else if (i > 2) ostinato::wait_for_all_but(weight);",
        "for (uint j = 0; j < i; ++j) ostinato::wait_for_all_but(weight);",
        "for (ostinato::wait_for_all_but(weight); i > 3;) out[i] = 1;",
        "while (i > 3) ostinato::wait_for_all_but(weight);",
        "do ostinato::wait_for_all_but(weight); while (i > 3);",
        "do { ostinato::wait_for_all_but(weight); } while (i > 3);",
        "switch (i) case 3: ostinato::wait_for_all_but(weight);",
        "if (i > 3) [[likely]] ostinato::wait_for_all_but(weight);",
        "auto wait = [&] { ostinato::wait_for_all_but(weight); }; if (i > 3) wait();",
        "i > 3 && (ostinato::wait_for_all_but(weight), true);",
        "ostinato::wait_for_all_but(weight), out[i] = weight[i];",
    ],
)
def test_a_kernel_that_may_not_reach_the_call_waits_when_it_begins(body: str) -> None:
    assert early(kernel(body)) == []


@pytest.mark.parametrize(
    "before", ["if (i > 3) { i = 1; }", "for (uint j = 0; j < i; ++j) i -= j;", "do { --i; } while (i > 3);", ";"]
)
def test_a_kernel_waits_behind_branches_and_loops(before: str) -> None:
    assert early(kernel(f"{before} ::ostinato::wait_for_all_but(weight); out[i] = weight[i];")) == ["weight"]


@pytest.mark.parametrize("body", ["if (i > 3) { return; }", "if (i > 3) return;", "if (i > 3) goto end;"])
def test_a_kernel_must_not_leave_before_it_waits(body: str) -> None:
    with pytest.raises(ost.KernelCompileError, match="must not return or use goto before it calls ostinato::wait_for"):
        parse(kernel(f"{body} ostinato::wait_for_all_but(weight); out[i] = 1;"))


@pytest.mark.parametrize(
    "body",
    [
        "out[i] = weight[i]; ostinato::wait_for_all_but(weight);",
        "device float *at = out; ostinato::wait_for_all_but(weight); *at = 1;",
        "READ(out) ostinato::wait_for_all_but(weight);",
        "if (i > 3) { helper(weight, out); } ostinato::wait_for_all_but(weight);",
        "auto later = [&] { out[i] = 1; }; ostinato::wait_for_all_but(weight); later();",
    ],
)
def test_a_buffer_that_the_call_does_not_name_must_not_occur_before_it(body: str) -> None:
    source = kernel(body).replace("kernel void", "#define READ(p) float r = p[i];\nkernel void")
    with pytest.raises(ost.KernelCompileError, match="kernel k uses argument 'out' before ostinato::wait_for") as error:
        parse(source)
    assert error.value.line == source[: source.index("{ ")].count("\n") + 1


def test_a_reference_to_device_memory_must_be_named_and_a_constant_value_not() -> None:
    source = kernel("float w = weight[i] * by; ostinato::wait_for_all_but(weight); out[i] = w;")
    assert early(source) == ["weight"]
    with pytest.raises(ost.KernelCompileError, match="uses argument 'by' before"):
        parse(source.replace("constant float &by", "device const float &by"))


def test_names_of_members_are_no_arguments() -> None:
    assert early(kernel("float2 p = 1; float w = p.x; ostinato::wait_for_all_but(weight); out[i] = w;")) == ["weight"]


def test_a_kernel_with_cuda_source_waits_when_it_begins() -> None:
    native = 'extern "C" __global__ void k(const float *w, const float *x, float *out, float by) {}'
    assert [a.early for a in parse(WAITING, native={"cuda": native}).kernels["k"].arguments] == [False] * 4


def test_on_cuda_a_kernel_waits_behind_its_first_loads() -> None:
    compiled = Nvrtc().compile(parse(WAITING).translate("cuda"))
    inside = compiled.body(0).rpartition("griddepcontrol.wait")
    assert len(re.findall("griddepcontrol.wait", compiled.body(0))) == 2, compiled.log  # when it begins, or inside
    loads = [len(re.findall(r"ld\.global\.\w+", part)) for part in (inside[0], inside[2])]
    assert loads == [2, 1]  # the value where it is in memory, and the weight; x
    assert (
        len(re.findall("griddepcontrol.wait", Nvrtc().compile(parse(WAITING).translate("cuda"), "compute_80").ptx)) == 0
    )


def test_the_call_may_begin_at_the_root() -> None:
    source = WAITING.replace("ostinato::wait", "::ostinato::wait")
    assert parse(source).translate("cuda").text == parse(WAITING).translate("cuda").text


def test_the_time_of_a_dispatch_begins_behind_its_wait() -> None:
    text = "#define __OST_SAMPLED 1\n" + parse(WAITING).translate("cuda").text
    body = Nvrtc().compile_text(text, "compute_90").body(0)
    assert "%globaltimer" in body[body.rindex("griddepcontrol.wait") : body.rindex("ld.global")]


def test_a_template_is_looked_at_once_for_all_of_its_instances() -> None:
    template = WAITING.replace("kernel void", "template <int n> kernel void")
    instances = "".join(f"template kernel void k<{n}>({ARGUMENTS});\n" for n in range(9))
    with mock.patch.object(early_reads, "wait_of", wraps=early_reads.wait_of) as looked_at:
        kernels = parse(template + instances).kernels
    assert len(kernels) == 9
    assert all(kernel.arguments[0].early for kernel in kernels.values())
    assert looked_at.call_count == 1
