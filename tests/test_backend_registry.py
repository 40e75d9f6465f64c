"""Backends of other packages: found by their entry points, and never in each other's way."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import ostinato as ost
import plug_ins
from ostinato.backends import registry
from ostinato.cli import main
from ostinato.device import check_settings

# A package with backends: the CPU under other names, and what can be wrong with one.
MODULE = """
from ostinato.backends.cpu import CpuBackend
from ostinato.backends.registry import BackendKind


def opened(ordinal=0, **options):
    numbers.append(ordinal)
    return CpuBackend(**options)


def fail(**options):
    raise ValueError("half of it is missing")


def fail_to_run(**options):
    backend = CpuBackend(**options)
    backend.lower = fail
    return backend


numbers = []
FINE = BackendKind("fine", opened, ("workers",))
MANY = BackendKind("many", opened, ordinals=True)
FIRST = BackendKind("first", fail_to_run, priority=900)
MISNAMED = BackendKind("another", opened)
UNSURE = BackendKind("unsure", fail, availability=fail)
VAGUE = BackendKind("vague", fail, availability=lambda: ("yes", ""))
ABSENT = BackendKind("absent", fail, availability=lambda: (None, "its driver is not installed"))
UNTRIED = BackendKind("untried", fail)
"""

Install = Callable[..., None]


@pytest.fixture
def install(private_environment: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a package with these entry points, for one test."""

    def install(package: str = "other-backends", **backends: str) -> None:
        folder = tmp_path / package
        folder.mkdir()
        (folder / "other_backends.py").write_text(MODULE)
        plug_ins.write(folder, package, backends)
        monkeypatch.syspath_prepend(folder)
        monkeypatch.delitem(sys.modules, "other_backends", raising=False)

    return install


def reason(name: str) -> str:
    return {info.name: info for info in ost.devices()}[name].reason


def test_a_package_adds_a_device_by_an_entry_point(install: Install) -> None:
    install(fine="other_backends:FINE")
    with ost.open_device("fine", workers=2) as device:
        assert device.capabilities.workers == 2
    assert {info.name: info.available for info in ost.devices()}["fine"]


def test_what_it_does_not_know_is_said_in_its_name(install: Install) -> None:
    install(fine="other_backends:FINE", many="other_backends:MANY")
    with pytest.raises(ost.DeviceUnavailable, match=r"device 'fine' has no option nonsense; it has workers$"):
        ost.open_device("fine", nonsense=1)
    with pytest.raises(ost.DeviceUnavailable, match=r"device 'many' has no option nonsense; it has none$"):
        ost.open_device("many", nonsense=1)
    with pytest.raises(ost.DeviceUnavailable, match=r"no device named 'fine:1'; there are .*, fine, many.* and auto"):
        ost.open_device("fine:1")


def test_a_number_chooses_among_several_devices(install: Install) -> None:
    install(many="other_backends:MANY")
    ost.open_device("many").close()
    ost.open_device("many:3").close()
    assert sys.modules["other_backends"].numbers == [0, 3]
    with pytest.raises(ost.DeviceUnavailable, match="expected many or many:0, many:1"):
        ost.open_device("many:few")


def test_a_broken_package_is_a_device_with_a_reason(install: Install) -> None:
    install(
        missing="no_such_module:KIND",
        nothing="other_backends:NOTHING",
        wrong="other_backends:numbers",
        misnamed="other_backends:MISNAMED",
        unsure="other_backends:UNSURE",
        vague="other_backends:VAGUE",
        absent="other_backends:ABSENT",
        untried="other_backends:UNTRIED",
        fine="other_backends:FINE",
    )
    assert "ModuleNotFoundError: No module named 'no_such_module'" in reason("missing")
    assert "AttributeError" in reason("nothing")
    assert "is a list; expected an ostinato.backends.registry.BackendKind" in reason("wrong")
    assert "named 'another'" in reason("misnamed")
    assert "ValueError: half of it is missing" in reason("unsure")
    assert "expected Capabilities" in reason("vague")
    assert reason("absent") == "its driver is not installed"
    assert reason("untried") == "'untried' cannot be opened: ValueError: half of it is missing"
    assert not reason("fine")
    assert not reason("cpu")
    for name in ("missing", "nothing", "wrong", "misnamed"):
        with pytest.raises(ost.DeviceUnavailable) as caught:
            ost.open_device(name)
        assert str(caught.value) == reason(name)
    with pytest.raises(ost.DeviceUnavailable, match="'unsure' cannot be opened: ValueError: half of it is missing"):
        ost.open_device("unsure")


def test_a_name_that_is_taken_stays_with_its_owner(install: Install) -> None:
    install(cpu="other_backends:FINE", fine="other_backends:FINE")
    install("late-backends", fine="other_backends:FINE")
    ost.open_device("cpu", workers=1, checked=True).close()
    assert reason("other-backends:cpu") == (
        "'other-backends:cpu': package other-backends adds a device under the name 'cpu', which is taken"
    )
    second = next(info for info in ost.devices() if info.name.endswith("-backends:fine"))
    assert "which is taken" in second.reason
    with pytest.raises(ost.DeviceUnavailable, match="which is taken"):
        ost.open_device(second.name)


def test_auto_passes_over_what_fails(install: Install) -> None:
    install(first="other_backends:FIRST", missing="no_such_module:KIND", fine="other_backends:FINE")
    with ost.open_device("auto") as device:
        assert device.name == "cpu"
    with pytest.raises(ost.DeviceUnavailable, match=r"used\. first: .*cpu: workers=0.*; missing: .*no_such_module"):
        ost.open_device("auto", workers=0)


def test_auto_leaves_out_a_device_without_priority(install: Install) -> None:
    install(fine="other_backends:FINE")
    with pytest.raises(ost.DeviceUnavailable) as caught:
        ost.open_device("auto", workers=0)
    assert "fine" not in str(caught.value)


def test_broken_metadata_of_any_package_hides_no_device_of_ours(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(fine="other_backends:FINE")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: 1 / 0)
    with pytest.warns(ost.SettingWarning, match="installed packages cannot be searched"):
        names = [info.name for info in ost.devices()]
    assert names == ["metal", "cuda", "cpu"]


def test_the_setting_takes_names_of_packages(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install(fine="other_backends:FINE", many="other_backends:MANY")
    for name in ("fine", "many:1", "cuda:1", "auto"):
        monkeypatch.setenv("OSTINATO_DEVICE", name)
        check_settings()
    for name in ("fine:1", "many:few", "nonsense"):
        monkeypatch.setenv("OSTINATO_DEVICE", name)
        with pytest.raises(ost.SettingError, match=r"expected one of metal, cuda, cpu.*fine.*, auto"):
            check_settings()


def test_the_command_line_lists_and_opens_them(install: Install) -> None:
    install(fine="other_backends:FINE", missing="no_such_module:KIND")
    listed = CliRunner().invoke(main, ["devices", "--json"])
    assert listed.exit_code == 0
    devices = {device["name"]: device for device in json.loads(listed.stdout)}
    assert devices["fine"]["available"]
    assert "no_such_module" in devices["missing"]["reason"]


def test_a_built_in_device_is_opened_without_a_look_at_packages(private_environment: None) -> None:
    text = """
import sys
import ostinato as ost
ost.open_device("cpu").close()
try:
    ost.open_device("cuda:0", nonsense=1)
except ost.DeviceUnavailable:
    pass
names = ("importlib.metadata", "ostinato.backends.cuda", "ostinato.backends.metal")
print([name for name in names if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"


def test_kinds_are_loaded_when_they_are_asked_for(install: Install) -> None:
    install(fine="other_backends:FINE")
    assert "fine" in registry.names()
    assert "other_backends" not in sys.modules
