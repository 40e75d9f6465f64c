"""What a notebook shows of each object: right, without waiting, and harmless whatever names it holds."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fragment_reader import read
from hypothesis import given
from hypothesis import strategies as st
from sampled import HOSTILE, hostile

import ostinato as ost
from ostinato.audit import Audit, Coverage, Finding, InferredBarrier
from ostinato.base import fragments
from ostinato.base.source_lines import Place
from ostinato.measure.benching import Bench
from ostinato.measure.comparing import LiveComparison
from ostinato.measure.tuning import Candidate, Tuning
from ostinato.passes.compare import Difference
from ostinato.passes.verification import Verification
from ostinato.profiling import report
from ostinato.profiling.analyse import columns_of, summarise
from ostinato.profiling.analyse.comparison import Comparison, Key, UnitTimes, compare_times
from ostinato.profiling.analyse.statistics import Interval
from ostinato.profiling.report import notebook
from ostinato.profiling.report.page import page_text
from ostinato.runtime.library import Kernel, Library
from small_kernels import KERNELS, SLOW_STEPS
from synthetic import Synthetic

NAMES = (*HOSTILE, "x" * 100_000, "plain")
MOST_HTML = 60_000
"""Characters that are enough for every fragment of these tests, however long a name is."""


def shown(thing: Any) -> str:
    """The text that a notebook shows of a thing."""
    return read(thing._repr_html_()).text


def run(dev: ost.Device, encode: Callable[[ost.CommandEncoder], None], label: str = "work") -> ost.Submission:
    encoder = dev.command_encoder()
    encode(encoder)
    return encoder.commit_labeled(label)


# --- names from programs --------------------------------------------------------------------------------------------


def hostile_kernel(dev: ost.Device, kernels: Library, name: str) -> Kernel:
    compiled = kernels["scale"]._compiled
    arguments = tuple(replace(each, name=name, type=name) for each in compiled.signature.arguments)
    origin: Any = SimpleNamespace(
        digest=name, values=((name, name),), module=SimpleNamespace(function_text=lambda kernel: f"{name}\n\t{name}")
    )
    execution: Any = replace(compiled.execution, reason=name) if compiled.execution else None
    signature = replace(compiled.signature, name=name, file=name, arguments=arguments)
    changed = replace(compiled, name=name, signature=signature, origin=origin, execution=execution)
    return Kernel(changed, dev._queue)


def hostile_library(dev: ost.Device, kernels: Library, name: str) -> Library:
    kernel = hostile_kernel(dev, kernels, name)
    library: Any = object.__new__(Library)
    library._queue, library.constants, library._kernels = dev._queue, {name: name}, {name: kernel}
    library._module = SimpleNamespace(kernels={name: kernel.signature, name + "2": kernel.signature})
    return library  # type: ignore[no-any-return]


def hostile_graph(dev: ost.Device, kernels: Library, name: str, count: int = 3) -> ost.Graph:
    x = dev.zeros(4, np.float32)

    def encode(enc: ost.CommandEncoder) -> None:
        with enc.scope(name):
            for _ in range(count):
                enc.dispatch(kernels["bump"], x, threads=4)

    return dev.capture(encode, name)


def hostile_bench(name: str) -> Bench:
    known: Any = {
        "name": name, "device": name, "cold": True, "median_ns": 1e4, "interval": Interval(1e4, 9e3, 1.1e4),
        "samples_ns": np.ones(5, np.int64), "runs": 7, "disturbed": 2, "precise": False,
        "columns": Synthetic().columns(), "bytes_moved": 1e3, "bytes_bound": True, "flops": 1e3, "_profile": None,
    }  # fmt: skip
    return Bench(**{each.name: known.get(each.name) for each in fields(Bench)})


def hostile_comparison(name: str) -> LiveComparison:
    times = {Key("kernel", name, name, name): UnitTimes(np.linspace(1e3, 1.1e3, 8), 100, 0.5)}
    only = {Key("graph", name): UnitTimes(np.full(8, 2e3), 100, 0.5)}
    made = compare_times(times, times | only, names=(name, name), about=[name], differences=[name], notes=[name])
    return LiveComparison(**{each.name: getattr(made, each.name) for each in fields(Comparison)})


def hostile_audit(name: str) -> Audit:
    place = Place(name, 3)
    findings = (
        Finding("error", name, (0,), (name,), (place,), name, name),
        Finding("note", name, (), (), (), name, name),
    )
    return Audit(findings, (InferredBarrier(1, name, place, (0,), name, ()),), Coverage(2, 2, unchecked=(name,)))


def hostile_tuning(name: str) -> Tuning:
    candidates = (Candidate({name: name}, "first"), Candidate({name: 2}, "out", name, 0.5))
    return Tuning({name: name}, {name: name}, candidates, None, True, 2, 1.0)


MAKERS: dict[str, Callable[[ost.Device, Library, str], Any]] = {
    "kernel": hostile_kernel,
    "library": hostile_library,
    "buffer": lambda dev, kernels, name: dev.zeros(3, np.dtype([(name[:1000], np.float32)])),
    "submission": lambda dev, kernels, name: run(dev, lambda enc: None, name),
    "graph": hostile_graph,
    "large graph": lambda dev, kernels, name: hostile_graph(dev, kernels, name, 60),
    "replayable": lambda dev, kernels, name: hostile_graph(dev, kernels, name).instantiate(),
    "audit": lambda dev, kernels, name: hostile_audit(name),
    "verification": lambda dev, kernels, name: Verification(
        8, 2, 0.0, (Difference(name, 0, 4, 4, name, 1.0, 2.0),), 1, name
    ),
    "bench": lambda dev, kernels, name: hostile_bench(name),
    "comparison": lambda dev, kernels, name: hostile_comparison(name),
    "tuning": lambda dev, kernels, name: hostile_tuning(name),
}


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name[:12]))
@pytest.mark.parametrize("kind", MAKERS)
def test_names_are_shown_and_never_obeyed(dev: ost.Device, kernels: Library, kind: str, name: str) -> None:
    fragment = MAKERS[kind](dev, kernels, name)._repr_html_()
    text = read(fragment).text
    assert len(fragment) < MOST_HTML
    written = (name, repr(name)[1:-1])  # NumPy writes names of fields as Python does
    assert any(fragments.escaped(each)[:20] in html.escape(text) for each in written)


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name[:12]))
def test_names_of_devices_are_text(dev: ost.Device, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    capabilities = replace(dev.capabilities, description=name, details={name: name})
    monkeypatch.setattr(ost.Device, "capabilities", property(lambda self: capabilities))
    assert fragments.escaped(name)[:20] in html.escape(shown(dev))


@given(st.text(st.characters(exclude_categories=())))
def test_code_keeps_its_lines_and_shows_everything(text: str) -> None:
    reader = read(fragments.fragment(fragments.code(text)))
    assert len(reader.text.strip("\n").split("\n")) <= 41


# --- kernels and libraries ------------------------------------------------------------------------------------------


def test_a_kernel_shows_its_arguments_how_it_runs_and_its_function(dev: ost.Device) -> None:
    kernel = dev.library(
        """
        constant float SHIFT [[function_constant(0)]];
        kernel void other(device float *x [[buffer(0)]]) { x[0] = 0; }
        kernel void turned(device const float *in [[buffer(0)]], device float *out [[buffer(1)]],
                           constant uint &size [[buffer(2)]], threadgroup float *tile [[threadgroup(0)]],
                           uint i [[thread_index_in_threadgroup]]) {
            tile[i] = in[i];  // a remark
            threadgroup_barrier(mem_flags::mem_threadgroup);
            out[i] = tile[size - 1 - i] + SHIFT;
        }
        """,
        constants={"SHIFT": 0.5},
    )["turned"]
    text = shown(kernel)
    assert "Kernel turned on 'cpu'" in text
    assert "buffer 0indevice float *read" in text
    assert "buffer 1outdevice float *read-write" in text
    assert "buffer 2sizeconstant uint &value" in text
    assert "threadgroup 0tilethreadgroup float *" in text
    assert f"runs as{kernel.execution}" in text
    assert kernel.execution.way in ("vector", "split")
    assert "constantsSHIFT = 0.5" in text
    assert "    tile[i] = in[i];  // a remark" in text
    assert "other" not in text


def test_a_library_lists_its_kernels(kernels: Library) -> None:
    text = shown(kernels)
    assert f"Library of {len(kernels)} kernels on 'cpu'" in text
    assert "inc_one0: in *float (read), 1: out *float (read-write)loop: its threads never meet" in text


def test_a_library_that_compiles_on_first_use_says_what_is_compiled(dev: ost.Device) -> None:
    count = Library.COMPILED_WHOLE + 1
    source = "".join(f"kernel void k{number}(device float *x) {{ x[0] = {number}; }}\n" for number in range(count))
    text = shown(dev.library(source))
    assert text.count("compiled on first use") == 40
    assert f"and {count - 40} more" in text


# --- buffers --------------------------------------------------------------------------------------------------------


def printed(values: np.ndarray) -> str:
    whole = values.size <= 100
    return np.array2string(values, threshold=100 if whole else 0, edgeitems=3, max_line_width=100)


@given(st.lists(st.integers(0, 12), max_size=3), st.sampled_from(["float32", "int16", "bool", "bfloat16"]))
def test_values_are_printed_as_numpy_prints_them(dev: ost.Device, shape: list[int], dtype: str) -> None:
    count = int(np.prod(shape))
    values = (np.arange(count).reshape(shape) * 7 % 251).astype(dev.zeros(0, dtype).dtype)
    assert printed(values) in shown(dev.array(values))


def test_of_a_large_buffer_only_the_corners_are_read(dev: ost.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.arange(300 * 1000, dtype=np.int32).reshape(300, 1000)
    buffer = dev.array(values)[100:]
    backing = type(buffer._allocation().backing)
    read_bytes = []
    read_of = backing.read

    def counted(self: Any, offset: int, nbytes: int) -> np.ndarray:
        read_bytes.append(nbytes)
        return read_of(self, offset, nbytes)

    monkeypatch.setattr(backing, "read", counted)
    assert printed(values[100:]) in shown(buffer)
    assert sum(read_bytes) == 36 * 4


def test_many_axes_are_shown_as_one(dev: ost.Device) -> None:
    values = np.arange(8**4, dtype=np.int32).reshape((8,) * 4)
    text = shown(dev.array(values))
    assert "shape(8, 8, 8, 8)" in text
    assert "[   0    1    2 ... 4093 4094 4095]" in text
    assert "in C order, over all axes" in text


def test_looking_at_a_buffer_does_not_wait(dev: ost.Device, kernels: Library) -> None:
    x = dev.array(np.array([7], np.uint32))
    before = ost.sync_count()
    submission = run(dev, lambda enc: enc.dispatch(kernels["spin"], x, 10 * SLOW_STEPS, threads=1), "a long one")
    text, submission_text = shown(x), shown(submission)
    assert not submission.done
    assert f"submission {submission.ordinal} 'a long one' is still using this memory" in text
    assert "[7]" not in text
    assert "running" in submission_text
    assert ost.sync_count() == before
    submission.wait()
    assert str(x.numpy()) in shown(x)


def test_a_freed_buffer_says_so(dev: ost.Device) -> None:
    x = dev.zeros(4, np.float32)
    x.free()
    assert "freed" in shown(x)


@pytest.mark.faults
def test_what_a_fault_left_is_not_shown_and_looking_does_not_observe_it(own_dev: ost.Device) -> None:
    kernels, out = own_dev.library(KERNELS), own_dev.zeros(1, np.float32)
    submission = run(own_dev, lambda enc: enc.dispatch(kernels["wild"], out, 1 << 45, threads=1), "bad work")
    while not submission.done:
        pass
    assert "failed: kernel 'wild'" in shown(submission)
    text = shown(out)
    assert "a fault left the values undefined: kernel 'wild'" in text
    assert "[0.]" not in text
    with pytest.raises(ost.KernelFault):
        out.numpy()


# --- submissions and devices ----------------------------------------------------------------------------------------


def test_a_submission_shows_label_state_and_times(dev: ost.Device, kernels: Library) -> None:
    x = dev.zeros(4, np.float32)
    submission = run(dev, lambda enc: enc.dispatch(kernels["bump"], x, threads=4), "token 3")
    submission.wait()
    times = submission.gpu_time
    assert times is not None
    text = shown(submission)
    assert f"Submission {submission.ordinal} token 3 on 'cpu'" in text
    assert "done" in text
    assert f"time on the device{(times[1] - times[0]) / 1e3:,.1f} µs" in text


def test_a_device_shows_what_it_is(dev: ost.Device) -> None:
    assert f"workers{dev.capabilities.workers}" in shown(dev)


# --- results --------------------------------------------------------------------------------------------------------


def test_a_comparison_shows_its_rows_with_verdicts(dev: ost.Device) -> None:
    a = {Key("kernel", "matmul"): UnitTimes(np.linspace(1e6, 1.001e6, 8), 100, 0.9)}
    b = {Key("kernel", "matmul"): UnitTimes(np.linspace(2e6, 2.001e6, 8), 100, 0.9)}
    made = compare_times(a, b, names=("old", "new"))
    comparison = LiveComparison(**{each.name: getattr(made, each.name) for each in fields(Comparison)})
    assert '<td class="t word bad">SLOWER</td>' in comparison._repr_html_()
    text = shown(comparison)
    assert "new / old (95 %)" in text
    assert text.rstrip().endswith("SLOWER: kernel matmul (2.000×)")


def test_an_audit_shows_findings_and_what_was_not_checked(dev: ost.Device, kernels: Library) -> None:
    x = dev.zeros(4, np.float32)

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(kernels["bump"], x, threads=4)
        enc.dispatch(kernels["bump"], x, threads=4)

    audit = dev.capture(encode, barriers="manual").audit()
    text = shown(audit)
    assert "missing barrier" in text
    assert audit.findings[0].advice in text
    assert "error: 1 error, 0 notes; 2 dispatches checked" in text
    assert "not checked:" in text
    assert "fine: 0 errors" in shown(dev.capture(encode).audit())
    assert "because of" in shown(dev.capture(encode).audit())


def test_a_verification_shows_what_differs() -> None:
    same = Verification(1024, 2, 0.0)
    assert "same: 1,024 bytes compared bit for bit after each of 2 replays" in shown(same)
    assert '<div class="good">' in same._repr_html_()
    difference = Difference("hidden", 4, 8, 3, "float32", 1.0, 2.5)
    text = shown(replace(same, differences=(difference,), first_diverging=3, where="node 3 scale"))
    assert "different: " in text
    assert "hidden4 … 83float32 2.51.0" in text
    assert "first diverging: node 3 scale" in text


def test_a_bench_shows_its_figures() -> None:
    text = shown(hostile_bench("scale"))
    assert "scale on scale, cold caches" in text
    assert "time10.0 µs (95 % interval 9.00 µs to 11.0 µs)" in text


def test_a_tuning_shows_every_candidate() -> None:
    gain = Interval(0.5, 0.4, 0.6)
    candidates = (
        Candidate({"group": 32}, "first"),
        Candidate({"group": 64}, "faster", "", 0.5, gain),
        Candidate({"group": 128}, "out", "KernelFault: it crashed"),
    )
    tuning = Tuning({"group": 64}, {"group": 32}, candidates, gain, False, 3, 1.5)
    assert '<td class="t word good">faster</td>' in tuning._repr_html_()
    text = shown(tuning)
    assert "best: group=64; takes 50.0 % (40.0 % … 60.0 %)" in text
    assert "group=128outKernelFault: it crashed" in text
    assert "kept from an earlier tuning" in shown(replace(tuning, kept=True))


def profiled(dev: ost.Device, kernels: Library) -> ost.Profile:
    x = dev.zeros(4, np.float32)
    with ost.profile() as prof:
        run(dev, lambda enc: enc.dispatch(kernels["bump"], x, threads=4))
    return prof


def test_a_profile_shows_its_page_and_the_tables_without_scripts(dev: ost.Device, kernels: Library) -> None:
    prof = profiled(dev, kernels)
    with prof.recording() as recording:
        page = page_text(columns_of(recording), prof.summary())
    reader = read(_html_of(prof))
    assert [(frame["sandbox"], frame["srcdoc"]) for frame in reader.frames] == [("allow-scripts", page)]
    assert reader.tags.index("iframe") < reader.tags.index("details") < reader.tags.index("table")
    assert prof.look_first() in reader.text
    assert "bump" in reader.text


def test_a_profile_with_a_very_large_page_shows_its_tables(
    dev: ost.Device, kernels: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notebook, "_MOST_CHARACTERS", 1000)
    prof = profiled(dev, kernels)
    assert _html_of(prof) == report.fragment(prof.summary())


def test_a_profile_that_was_not_entered_has_no_page() -> None:
    assert ost.profile()._repr_html_() is None


def test_a_page_in_a_frame_cannot_leave_its_attribute() -> None:
    columns = hostile().columns()
    (frame,) = read(notebook.embedded(columns, summarise(columns))).frames
    assert frame["srcdoc"] == page_text(columns)


def _html_of(prof: ost.Profile) -> str:
    fragment = prof._repr_html_()
    assert fragment is not None
    return fragment


def test_styles_do_not_reach_beyond_the_fragment() -> None:
    style = re.search(r"<style>(.*?)</style>", fragments.fragment(), re.DOTALL)
    assert style is not None
    selectors = re.findall(r"([^{}]+)\{", style[1])
    assert all(part.strip().startswith(".ostinato") for each in selectors for part in each.split(","))
