"""Where a kernel waits for others, and which arguments it says it reads before: `ostinato::wait_for_all_but`."""

from __future__ import annotations

import re

import pytest

import ostinato as ost
from nvrtc import Nvrtc
from ostinato.msl import parse

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
    ],
)
def test_a_kernel_that_may_not_reach_the_call_waits_when_it_begins(body: str) -> None:
    assert early(kernel(body)) == []


@pytest.mark.parametrize("body", ["if (i > 3) { return; }", "if (i > 3) return;"])
def test_a_kernel_must_not_return_before_it_waits(body: str) -> None:
    with pytest.raises(ost.KernelCompileError, match="must not return before it calls ostinato::wait_for_all_but"):
        parse(kernel(f"{body} ostinato::wait_for_all_but(weight); out[i] = 1;"))


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


def test_the_time_of_a_dispatch_begins_behind_its_wait() -> None:
    text = "#define __OST_SAMPLED 1\n" + parse(WAITING).translate("cuda").text
    body = Nvrtc().compile_text(text, "compute_90").body(0)
    assert "%globaltimer" in body[body.rindex("griddepcontrol.wait") : body.rindex("ld.global")]
