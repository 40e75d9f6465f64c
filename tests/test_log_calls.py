"""Calls of os_log and printf in kernels: what is refused, what is silent, and how kernels that print run."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ostinato as ost
from ostinato import msl, settings
from ostinato.backends.protocol import Log
from ostinato.errors import SettingWarning
from ostinato.ir.command_list import CommandList
from ostinato.msl.log_format import UNSIGNED
from ostinato.runtime.kernel_log import read_log

HEAD = "#include <metal_stdlib>\n#include <metal_logging>\nusing namespace metal;\n"


def kernel(body: str) -> str:
    parameters = "device float *x [[buffer(0)]], device int4 *v [[buffer(1)]], uint i [[thread_position_in_grid]]"
    return f"{HEAD}kernel void k({parameters}) {{\n{body}\n}}"


def refused(body: str) -> ost.KernelCompileError:
    with ost.open_device("cpu", debug=True) as device, pytest.raises(ost.KernelCompileError) as caught:
        device.library(kernel(body))
    assert caught.value.line == 5
    return caught.value


@pytest.mark.parametrize(
    ("body", "message", "at"),
    [
        ('os_log_default.log("%d and %d", i);', "has 2 conversions, the call 1 argument", '"%d and'),
        ('os_log_default.log("no", i);', "has no conversions, the call 1 argument", "i);"),
        ('printf("%s", i);', "a kernel has no strings to print", '"%s"'),
        ('printf("%n", &i);', "would write to memory", '"%n"'),
        ('const constant char *f = "%d"; printf(f, i);', "must be a string literal", "f, i"),
    ],
)
def test_a_format_that_does_not_fit_is_refused_with_its_place(body: str, message: str, at: str) -> None:
    error = refused(body)
    assert message in str(error)
    assert error.column == 1 + body.index(at)


@pytest.mark.parametrize(
    ("body", "message", "at"),
    [
        ('printf("%d", x[i]);', "takes an integer", "x[i]"),
        ('os_log_default.log_info("%u %f", i, i);', "takes a float", "i);"),
        ('printf("%v4f", v[0]);', "takes a float", "v[0]"),
        ('printf("%v2d", v[0]);', "a vector with as many components", "v[0]"),
        ('printf("%d", v[0]);', "print a vector with v2", "v[0]"),
        ('printf("%p", i);', "%p takes a pointer", "i);"),
    ],
)
def test_an_argument_that_does_not_fit_its_conversion_is_refused_with_its_place(
    body: str, message: str, at: str
) -> None:
    error = refused(body)
    assert message in str(error)
    assert error.column == 1 + body.index(at)


def test_nvrtc_refuses_an_argument_that_does_not_fit_its_conversion() -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings is not installed")
    from ostinato.backends.cuda import compiling

    translation = msl.parse(kernel('printf("%d", x[i]);')).translate("cuda", printf=True)
    with pytest.raises(ost.KernelCompileError) as caught:
        compiling._compile(translation.text, msl.cuda_options("sm_90"))
    error = translation.placed(caught.value)
    assert error.line == 5
    assert "takes an integer" in error.message


@pytest.mark.parametrize("architecture", ["sm_75", "sm_90"])
def test_nvrtc_compiles_kernels_that_print(architecture: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings is not installed")
    from ostinato.backends.cuda import compiling

    body = 'os_log_default.log("%u %g %v4d %v2hlf %p", i, x[i], v[0], float4(x[0]).xy, x); printf("%c", \'a\');'
    translation = msl.parse(kernel(body)).translate("cuda", log_level="debug", printf=True)
    assert compiling._compile(translation.text, msl.cuda_options(architecture))


def test_a_kernel_that_prints_runs_on_fibers_and_others_as_before(dev: ost.Device) -> None:
    helper = 'void note(float x) { os_log_default.log("%g", x); }\n'
    plain = "kernel void plain(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = log(x[i]); }"
    library = dev.library(HEAD + helper + kernel("note(x[i]);").removeprefix(HEAD) + "\n" + plain)
    assert library["k"].execution.way == "fibers"
    assert "prints" in library["k"].execution.reason
    assert library["plain"].execution.way == "loop"


def test_calls_below_the_level_are_compiled_to_nothing(dev: ost.Device) -> None:
    with settings.override(log_level="error"):
        library = dev.library(kernel('os_log_default.log_debug("%u", i);'))
    assert library["k"].execution.way == "loop"
    with settings.override(log_level="0"):
        assert dev.library(kernel('os_log_default.log_fault("%u", i);'))["k"].execution.way == "loop"


def test_printf_says_once_that_it_prints_in_debug_builds_only(dev: ost.Device) -> None:
    settings._reported.discard("printf")
    with pytest.warns(SettingWarning, match="OSTINATO_DEBUG=1") as said:
        library = dev.library(kernel('printf("%u", i);'))
    assert said[0].filename == __file__
    assert library["k"].execution.way == "loop"
    assert dev.library(kernel('printf("once more %u", i);'))["k"].execution.way == "loop"


@pytest.mark.parametrize(("debug", "checked"), [(True, False), (False, True)])
def test_printf_prints_in_debug_builds(debug: bool, checked: bool, capfd: pytest.CaptureFixture[str]) -> None:
    with ost.open_device("cpu", debug=debug, checked=checked) as device:
        run(device, 'printf("x is %g\\n", x[i]);', threads=2)
    assert capfd.readouterr().err == "k, group 0, thread 0: x is 0\nk, group 0, thread 1: x is 1\n"


def test_a_function_or_struct_of_the_source_with_the_same_name_is_its_own(dev: ost.Device) -> None:
    own = "struct Own { float log(float x) const { return x; } };\nfloat printf(float x) { return x; }\n"
    text = HEAD + own + kernel("Own own; x[i] = own.log(printf(2.0f));").removeprefix(HEAD)
    assert dev.library(text)["k"].execution.way == "loop"


def run(device: ost.Device, body: str, threads: int) -> ost.Submission:
    library = device.library(kernel(body))
    x, v = device.array(np.arange(threads, dtype=np.float32)), device.zeros((1, 4), np.int32)
    encoder = device.command_encoder()
    encoder.dispatch(library["k"], x, v, threads=threads)
    return encoder.commit_and_wait()


def test_what_is_printed_before_a_fault_is_shown(own_dev: ost.Device, capfd: pytest.CaptureFixture[str]) -> None:
    body = 'os_log_default.log("before"); if (i == 0) *(device int *)(ulong(i) + 16) = 1;'
    with pytest.raises(ost.KernelFault):
        run(own_dev, body, threads=1)
    assert capfd.readouterr().err == "k, group 0, thread 0: before\n"


def test_text_that_would_command_a_terminal_is_escaped(dev: ost.Device, capfd: pytest.CaptureFixture[str]) -> None:
    run(dev, 'if (i == 0) os_log_default.log("a\\033[2J\\nb%c", 27);', threads=1)
    assert capfd.readouterr().err == "k, group 0, thread 0: a\\x1b[2J\n    b\\x1b\n"


def test_an_audit_prints_nothing(dev: ost.Device, capfd: pytest.CaptureFixture[str]) -> None:
    library, x, v = (
        dev.library(kernel('os_log_default.log("%g", x[i]);')),
        dev.zeros(8, np.float32),
        dev.zeros((1, 4), np.int32),
    )
    graph = dev.capture(lambda encoder: encoder.dispatch(library["k"], x, v, threads=8))
    assert not graph.audit(run=True).errors
    assert capfd.readouterr().err == ""
    graph.instantiate().replay().wait()
    assert len(capfd.readouterr().err.splitlines()) == 8


@given(st.binary(max_size=200), st.data())
def test_records_that_a_kernel_wrote_over_are_left_out(noise: bytes, data: st.DataObject) -> None:
    commands = printing_commands()
    good = struct.pack("=4IQ", 48, 0, 0, 1, 0) + struct.pack("=2IQQ", UNSIGNED, 4, 1, 7)
    at = data.draw(st.integers(0, len(good)))
    messages, _ = read_log(Log(good + good[:at] + noise, 0), commands)
    assert "k, group 0, thread 1: 7" in map(str, messages)
    assert read_log(Log(good + b"\x07" * 100, 0), commands)[1].lost


@cache
def printing_commands() -> CommandList:
    with ost.open_device("cpu", workers=1) as device:
        library = device.library(kernel('os_log_default.log("%u", i);'))
        graph = device.capture(
            lambda encoder: encoder.dispatch(
                library["k"], device.zeros(8, np.float32), device.zeros((1, 4), np.int32), threads=8, group_size=4
            )
        )
        return graph.command_list


SCRIPT = """
import numpy as np
import ostinato as ost
device = ost.open_device("cpu")
library = device.library('''#include <metal_stdlib>
using namespace metal;
kernel void k(uint i [[thread_position_in_grid]]) { printf("hello %u", i); }''')
encoder = device.command_encoder()
encoder.dispatch(library["k"], threads=1)
encoder.commit()
"""


def test_work_that_nobody_waits_for_prints_at_exit() -> None:
    environment = {**os.environ, "OSTINATO_DEBUG": "1"}
    result = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment, check=True)
    assert result.stderr == "k, group 0, thread 0: hello 0\n"


def test_a_device_that_cannot_print_says_so_once(make_silent: Callable[[], ost.Device]) -> None:
    with make_silent() as device:
        with pytest.warns(SettingWarning, match="print nothing on device"):
            device.library(kernel('os_log_default.log("%u", i);'))
        device.library(kernel('os_log_default.log("again %u", i);'))


@pytest.fixture
def make_silent() -> Callable[[], ost.Device]:
    import metal_sim

    metal_sim.install()
    settings._reported.discard(f"{metal_sim.NAMES[0]}/prints")
    return lambda: ost.open_device(metal_sim.NAMES[0])
