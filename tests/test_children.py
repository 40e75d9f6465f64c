"""Child processes that answer requests: what they inherit, and how their end is reported."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ostinato.base.children import Child, ChildEnded, NoAnswer, ending
from ostinato.errors import DependencyFailed, DeviceError, KernelFault
from ostinato.testing.isolation import _error

MODULE = """
import os, sys, time
from ostinato.base.children import serve

def answer(request):
    print("not an answer")
    if "fail" in request:
        raise ValueError(request["fail"])
    time.sleep(request.get("sleep", 0))
    return {"environment": sorted(os.environ), "path": sys.path}

serve(answer)
"""


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Child]:
    (tmp_path / "answering.py").write_text(MODULE)
    (tmp_path / "cwd").mkdir()
    (tmp_path / "cwd" / "json.py").write_text("raise SystemExit('this hides the standard library')")
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.setenv("OSTINATO_DEVICE", "cuda")
    monkeypatch.setenv("OSTINATO_PROFILE_FILE", "x")
    child = Child("answering")
    yield child
    child.end()


def test_a_child_has_our_search_path_and_no_device_or_profile_of_the_environment(child: Child) -> None:
    answer = child.ask({}, 60)
    assert not {"OSTINATO_DEVICE", "OSTINATO_PROFILE_FILE"} & set(answer["environment"])
    ours = list(dict.fromkeys(path for path in sys.path if path))
    assert answer["path"][: len(ours)] == ours
    assert child.ask({}, 60) == answer


def test_a_child_that_fails_says_why_in_its_last_line(child: Child) -> None:
    with pytest.raises(ChildEnded, match="failed with exit status 1; its last line: ValueError: no way"):
        child.ask({"fail": "no way"}, 60)
    with pytest.raises(ChildEnded, match="no way"):
        child.ask({}, 60)


def test_a_child_that_takes_too_long_gives_no_answer(child: Child) -> None:
    with pytest.raises(NoAnswer):
        child.ask({"sleep": 60}, 0.2)


def test_signals_without_a_name_have_their_number() -> None:
    assert ending(-signal.SIGSEGV) == "was ended by SIGSEGV"
    assert ending(-40) == "was ended by signal 40"


@pytest.mark.parametrize(
    ("name", "kind"),
    [("KernelFault", KernelFault), ("DependencyFailed", DeviceError), ("FaultedBuffer", DeviceError)],
)
def test_an_error_of_the_child_is_raised_here_whether_or_not_it_needs_its_cause(name: str, kind: type) -> None:
    error = _error(name, "what went wrong")
    assert type(error) is kind
    assert not isinstance(error, DependencyFailed)
    assert str(error) == "what went wrong"
