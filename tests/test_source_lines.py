"""A line of a program is named also while notebooks' own modules are being loaded."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from ostinato.base.source_lines import Place


def test_a_half_imported_ipython_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    assert str(Place("/somewhere/program.py", 7)) == "program.py:7"
