"""The table of gates: aliases, zero means off, gates beat arguments, changes act at run time, reports once."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest

import ostinato as ost
from ostinato import settings


def mode(dev: ost.Device, argument: str = "auto") -> str:
    return dev.command_encoder(barriers=argument)._mode


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("OSTINATO_BARRIERS", "serial", "serial"),
        ("OSTINATO_BARRIERS", "MANUAL", "manual"),
        ("OSTINATO_BARRIERS", "0", "manual"),
        ("OSTINATO_BARRIERS", "1", "auto"),
        ("HF2Q_AUTO_BARRIER", "1", "auto"),
        ("HF2Q_AUTO_BARRIER", "0", "manual"),
        ("HF2Q_FORCE_SERIAL_DISPATCH", "1", "serial"),
    ],
)
def test_barrier_gates_beat_the_argument(
    dev: ost.Device, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, expected: str
) -> None:
    other = next(one for one in settings.BARRIER_MODES if one != expected)
    assert mode(dev, other) == other
    monkeypatch.setenv(variable, value)
    assert mode(dev, other) == expected
    monkeypatch.delenv(variable)
    assert mode(dev, other) == other


@pytest.mark.parametrize(("variable", "value"), [("HF2Q_FORCE_SERIAL_DISPATCH", "0"), ("OSTINATO_BARRIERS", "")])
def test_zero_is_off_and_empty_is_unset(
    dev: ost.Device, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    assert mode(dev, "manual") == "manual"


def test_the_own_name_beats_an_alias_and_serial_beats_auto(dev: ost.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF2Q_AUTO_BARRIER", "1")
    monkeypatch.setenv("HF2Q_FORCE_SERIAL_DISPATCH", "1")
    assert mode(dev, "manual") == "serial"
    monkeypatch.setenv("OSTINATO_BARRIERS", "manual")
    assert mode(dev, "auto") == "manual"


@pytest.mark.parametrize("name", ["OSTINATO_UNRETAINED_REFS", "MLX_UNRETAINED_REFS"])
def test_the_unretained_gate_beats_the_argument_both_ways(
    dev: ost.Device, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "1")
    assert dev.command_encoder(retain=True)._retain is False
    monkeypatch.setenv(name, "0")
    assert dev.command_encoder(retain=False)._retain is True


@pytest.mark.parametrize(
    ("name", "alias"),
    [
        ("profile_cb", "MLX_PROFILE_CB"),
        ("profile_dispatch", "MLX_PROFILE_DISPATCH"),
        ("profile_barriers", "MLX_PROFILE_BARRIERS"),
        ("unretained_refs", "MLX_UNRETAINED_REFS"),
        ("no_residency", "HF2Q_NO_RESIDENCY"),
    ],
)
def test_every_switch_has_its_alias_and_zero_means_off(monkeypatch: pytest.MonkeyPatch, name: str, alias: str) -> None:
    assert not settings.is_on(name)
    monkeypatch.setenv(alias, "1")
    assert settings.is_on(name)
    monkeypatch.setenv(alias, "0")
    assert settings.get(name) is False
    monkeypatch.setenv(settings.GATES[name].variable, "1")
    assert settings.is_on(name)


@pytest.mark.parametrize(("variable", "value"), [("OSTINATO_BARRIERS", "sometimes"), ("MLX_UNRETAINED_REFS", "maybe")])
def test_a_value_that_makes_no_sense_is_a_typed_error(
    dev: ost.Device, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ost.SettingError, match=f"{variable}='{value}'"):
        dev.command_encoder()


def test_change_and_override_act_at_once(dev: ost.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF2Q_AUTO_BARRIER", "1")
    with settings.override(barriers="serial"):
        assert mode(dev) == "serial"
    assert mode(dev, "manual") == "auto", "the environment was not put back"
    settings.change("barriers", None)
    assert mode(dev, "manual") == "manual"
    with pytest.raises(ost.SettingError, match="no setting"):
        settings.change("bariers", 1)
    with pytest.raises(ost.SettingError, match="expected"):
        settings.change("barriers", "never")


def test_unknown_names_are_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OSTINATO_BARIERS", "serial")
    monkeypatch.setattr(settings, "_reported", set())
    with pytest.warns(ost.SettingWarning, match="OSTINATO_BARIERS"):
        ost.devices()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ost.devices()


def test_a_gate_the_device_cannot_honour_is_reported_once(dev: ost.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = dev._queue.backend
    monkeypatch.setattr(settings, "_reported", set())
    monkeypatch.setattr(backend, "capabilities", replace(backend.capabilities, gates=frozenset()))
    monkeypatch.setenv("MLX_PROFILE_DISPATCH", "0")
    dev.command_encoder()
    monkeypatch.setenv("MLX_PROFILE_DISPATCH", "1")
    with pytest.warns(ost.SettingWarning, match="OSTINATO_PROFILE_DISPATCH"):
        dev.command_encoder()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dev.command_encoder()


def test_the_device_gate_beats_the_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OSTINATO_DEVICE", "cuda")
    with pytest.raises(ost.DeviceUnavailable, match="cuda"):
        ost.open_device("cpu")
    monkeypatch.setenv("OSTINATO_DEVICE", "cpu")
    assert ost.open_device("cuda").name == "cpu"
    monkeypatch.setenv("OSTINATO_DEVICE", "0")
    assert ost.open_device("cpu").name == "cpu"


def test_the_residency_set_is_flushed_at_most_once_per_commit(
    own_dev: ost.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[list[int], list[int]]] = []
    residency = own_dev.residency
    residency._update = lambda added, removed: calls.append((list(added), list(removed)))
    kept = [own_dev.empty(4, np.float32) for _ in range(5)]
    own_dev.empty(4, np.float32).free()
    assert residency.staged_count >= 5
    assert calls == []
    own_dev.command_encoder().commit_and_wait()
    assert len(calls) == 1
    assert len(calls[0][0]) == len(residency) == 5
    own_dev.command_encoder().commit_and_wait()
    assert len(calls) == 1, "nothing was staged"
    monkeypatch.setenv("HF2Q_NO_RESIDENCY", "1")
    own_dev.command_encoder().commit_and_wait()
    assert len(residency) == 0
    monkeypatch.setenv("HF2Q_NO_RESIDENCY", "0")
    own_dev.command_encoder().commit_and_wait()
    assert len(residency) == 5
    kept.clear()
    own_dev.command_encoder().commit_and_wait()
    assert len(residency) == 0
    assert residency.flush_count == len(calls) == 4
