"""Opening devices: options, "auto", and what is said when none can be used."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import ostinato as ost


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("gpu9", {}, "gpu9"),
        ("cuda:x", {}, "cuda:0"),
        ("cuda", {"workers": 2}, "workers"),
        ("metal", {}, "not a Mac|PyObjC|Metal"),
        ("cpu", {"workers": 0}, "workers"),
        ("cpu", {"workers": 1.5}, "workers"),
        ("cpu", {"workers": 100_000}, "100000"),
        ("cpu", {"threadgroup_memory": 0}, "threadgroup_memory"),
        ("cpu", {"thread_group_memory": 1}, "thread_group_memory"),
    ],
)
def test_devices_that_cannot_be_opened_say_why(
    private_environment: None, name: str, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(ost.DeviceUnavailable, match=text):
        ost.open_device(name, **options)


def test_threadgroup_memory_is_a_capability(private_environment: None) -> None:
    device = ost.open_device("cpu", workers=1, threadgroup_memory=1 << 20)
    assert device.capabilities.threadgroup_memory_bytes == 1 << 20
    source = """
    kernel void k(device uint *x [[buffer(0)]], threadgroup uint *t [[threadgroup(0)]],
                  uint i [[thread_index_in_threadgroup]]) {
        t[i * 900] = i; threadgroup_barrier(mem_flags::mem_threadgroup); x[i] = t[(255 - i) * 900];
    }"""
    x = device.zeros(256, np.uint32)
    encoder = device.command_encoder()
    encoder.dispatch(device.library("using namespace metal;" + source)["k"], x, threads=256, shared={0: 900 * 256 * 4})
    encoder.commit_and_wait()
    assert np.array_equal(x.numpy(), np.arange(256)[::-1])


def test_auto_opens_a_device_that_passed_its_probe(private_environment: None) -> None:
    with ost.open_device() as device:
        assert device.name == "cpu"
    listed = {info.name: info for info in ost.devices()}
    assert listed["cpu"].available
    assert not listed["cuda"].available
    assert sys.platform == "darwin" or "not a Mac" in listed["metal"].reason


def test_auto_gives_the_reason_for_every_kind(private_environment: None) -> None:
    with pytest.raises(ost.DeviceUnavailable, match=r"used\. metal: .*; cuda: .*; cpu: workers=0"):
        ost.open_device("auto", workers=0)


def test_auto_passes_on_what_is_wrong_with_a_setting(
    private_environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OSTINATO_BARRIERS", "nonsense")
    with pytest.raises(ost.SettingError, match="OSTINATO_BARRIERS"):
        ost.open_device("auto")


def test_auto_skips_a_device_that_fails_its_probe(private_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from ostinato import device

    monkeypatch.setattr(device, "_PROBE", device._PROBE.replace("* 3u", "* 4u"))
    with pytest.raises(ost.DeviceUnavailable, match=r"cpu: .*wrong answer"):
        ost.open_device("auto")


def test_the_probe_of_auto_is_not_the_users_work(private_environment: None) -> None:
    with ost.counters.scope() as counts:
        ost.open_device("auto").close()
    assert counts == ost.Counts()
