"""Every selector, constant and class that the backend uses exists in the published PyObjC wheel for macOS."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

import metal_sim
from metal_sim import buffers, capture, commands, counters, device, indirect, libraries, objects
from metal_sim.constants import CONSTANTS, STRINGS
from ostinato.backends import metal
from ostinato.backends.metal import api

BACKEND = Path(metal.__file__).parent
SIMULATED: tuple[ModuleType, ...] = (buffers, capture, commands, counters, device, indirect, libraries)
SELECTOR = re.compile(r"[A-Za-z][A-Za-z0-9]*|([A-Za-z][A-Za-z0-9]*_)+")

# Plain methods of classes: PyObjC asks the Objective-C runtime for them, and the wheel has no reason to name them.
FROM_THE_RUNTIME = {
    "setCaptureObject:", "setDestination:", "setOutputURL:", "sharedCaptureManager", "stopCapture",
    "computePassDescriptor", "objectAtIndexedSubscript:", "sampleBufferAttachments", "setCommandTypes:",
    "setComputeFunction:", "setConstantValue:type:atIndex:", "setCounterSet:", "setDispatchType:",
    "setEndOfEncoderSampleIndex:", "setMaxKernelBufferBindCount:", "setMaxKernelThreadgroupMemoryBindCount:",
    "setSampleBuffer:", "setStartOfEncoderSampleIndex:", "setStorageMode:", "bindings",
    "localizedDescription",
}  # fmt: skip


def surface() -> set[str]:
    """The selectors of the simulator."""
    found = {"localizedDescription", "bindings"}
    for module in SIMULATED:
        for _, kind in inspect.getmembers(module, inspect.isclass):
            if not issubclass(kind, objects.Object):
                continue
            names = [name for name in vars(kind) if SELECTOR.fullmatch(name)]
            names += [f"set{one[0].upper()}{one[1:]}_" for one in getattr(kind, "PROPERTIES", {})]
            found |= {name.replace("_", ":") for name in names if name != "PROPERTIES" and callable(_of(kind, name))}
    return (found | {"setLabel:"}) - {"alloc", "init"}


def _of(kind: type, name: str) -> object:
    found = vars(kind).get(name, len)
    return getattr(found, "__func__", found)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, bytes]:
    """The metadata and the library of the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--python-version", "3.12", "--dest", str(folder), "pyobjc-framework-Metal"]
    for platform in ("macosx_10_13_universal2", "macosx_10_9_universal2", "macosx_11_0_universal2"):
        command += ["--platform", platform]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip("the package index does not answer")
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        pytest.skip(f"the wheel cannot be downloaded: {done.stderr.strip().splitlines()[-1:]}")
    with zipfile.ZipFile(wheels[0]) as archive:
        library = next(name for name in archive.namelist() if re.fullmatch(r"Metal/_Metal\..*\.so", name))
        return archive.read("Metal/_metadata.py").decode(), archive.read(library)


def test_every_selector_of_the_simulator_is_in_the_wheel(wheel: tuple[str, bytes]) -> None:
    metadata, library = wheel
    missing = {one for one in surface() if f'b"{one}"' not in metadata and b"\0" + one.encode() + b"\0" not in library}
    assert missing == FROM_THE_RUNTIME & surface()


def test_every_constant_has_the_value_of_the_wheel(wheel: tuple[str, bytes]) -> None:
    metadata, _ = wheel
    known = dict(re.findall(r"\b(MTL\w+)@(-?\d+)", metadata))
    assert {name: int(known[name]) for name in CONSTANTS} == CONSTANTS
    for name in STRINGS:
        assert re.search(rf"\b{name}\b", metadata)


def described(metadata: str) -> dict[str, dict[int, dict[str, object]]]:
    """What PyObjC is told of the arguments of methods: by the wheel, and then by the backend."""
    found: dict[str, dict[int, dict[str, object]]] = {}
    for node in ast.walk(ast.parse(metadata)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "r":
            try:
                _, selector, told = (ast.literal_eval(argument) for argument in node.args)
            except ValueError:
                continue
            found[selector.decode()] = told.get("arguments", {})
    for (_, selector), told in api.METADATA.items():
        found[selector.decode()] = dict(told.get("arguments", {}))
    return found


def test_pyobjc_knows_which_arguments_come_back(wheel: tuple[str, bytes]) -> None:
    arguments = described(wheel[0])
    for selector in surface():
        for at, name in enumerate(selector.split(":")[:-1], start=2):
            if name in ("error", "reflection", "sampleTimestamps", "gpuTimestamp"):
                assert arguments[selector][at].get("type_modifier") == b"o", selector


def test_pyobjc_knows_how_long_arrays_are(wheel: tuple[str, bytes]) -> None:
    arguments = described(wheel[0])
    assert arguments["setBytes:length:atIndex:"][2]["c_array_length_in_arg"] == 3
    assert arguments["useResources:count:usage:"][2]["c_array_length_in_arg"] == 3
    assert arguments["setConstantValue:type:atIndex:"][2]["c_array_of_variable_length"]
    assert "callable" in arguments["addCompletedHandler:"][2]


@pytest.mark.parametrize(
    ("selector", "at", "structure"),
    [
        ("dispatchThreads:threadsPerThreadgroup:", (2, 3), b"{MTLSize=QQQ}"),
        ("dispatchThreadgroups:threadsPerThreadgroup:", (2, 3), b"{MTLSize=QQQ}"),
        ("concurrentDispatchThreads:threadsPerThreadgroup:", (2, 3), b"{MTLSize=QQQ}"),
        ("concurrentDispatchThreadgroups:threadsPerThreadgroup:", (2, 3), b"{MTLSize=QQQ}"),
        ("executeCommandsInBuffer:withRange:", (3,), b"{_NSRange=QQ}"),
        ("resolveCounterRange:", (2,), b"{_NSRange=QQ}"),
    ],
)
def test_pyobjc_knows_which_arguments_are_structures(
    wheel: tuple[str, bytes], selector: str, at: tuple[int, ...], structure: bytes
) -> None:
    arguments = described(wheel[0])[selector]
    assert [arguments[one]["type"] for one in at] == [structure] * len(at)


def test_every_class_is_known_to_the_wheel_or_the_runtime(wheel: tuple[str, bytes]) -> None:
    metadata, library = wheel
    named = {name for name in metal_sim.CLASSES if name in metadata or name.encode() in library}
    assert metal_sim.CLASSES.keys() - named <= {
        "MTLCaptureDescriptor", "MTLComputePassDescriptor", "MTLCounterSampleBufferDescriptor",
        "MTLFunctionConstantValues", "MTLResidencySetDescriptor",
    }  # fmt: skip
    assert "MTLCreateSystemDefaultDevice" in metadata


def test_the_backend_uses_nothing_that_the_simulator_does_not_have() -> None:
    selectors, names = surface(), CONSTANTS.keys() | STRINGS.keys() | metal_sim.CLASSES.keys()
    used: set[str] = set()
    for file in BACKEND.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute):
                if node.attr.startswith("MTL"):
                    assert node.attr in names | {"MTLCreateSystemDefaultDevice"}, node.attr
                elif node.attr.endswith("_") and node.attr[0] != "_" and node.attr not in ("not_", "fileURLWithPath_"):
                    assert node.attr.replace("_", ":") in selectors, f"{file.name}: {node.attr}"
                    used.add(node.attr)
    assert len(used) > 30
