"""The pytest plugin: options, fixtures, checks of submissions, the summary of benches. docs/testing.md describes them.

pytest loads it in every project of an environment that has ostinato, so it imports nothing but pytest until one of its
fixtures or options is used.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from .audit.check import Options
    from .device import Device
    from .testing.benches import BenchFixture
    from .testing.checks import SubmissionCheck

_T = TypeVar("_T")
_REQUESTED = {
    "nan": "the operation that made an output NaN or infinite (x86-64)",
    "overflow": "overflow of signed integers",
    "unwritten": "elements of outputs that no thread wrote",
}
"""The checks that are made on request only, as fields of `audit.checked.Requested`."""
_REPORTED = "ostinato_benches"
"""The attribute of a test's report with its benches, as plain data: pytest-xdist sends reports between processes."""
_benches = pytest.StashKey[list[dict[str, Any]]]()
_options: pytest.StashKey[Options] = pytest.StashKey()
_check: pytest.StashKey[SubmissionCheck] = pytest.StashKey()


# --- options ----------------------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("ostinato", "ostinato: tests and benches of Metal kernels")
    group.addoption(
        "--ostinato-device",
        action="append",
        metavar="NAME",
        help="run the tests that use the fixture ostinato_device on this device: cpu, cuda, cuda:1, metal, or one that"
        " an installed package adds. May be repeated. Default: OSTINATO_DEVICE, else cpu.",
    )
    group.addoption(
        "--ostinato-save",
        type=_checked_name,
        metavar="NAME",
        help="keep the recordings of this run's benches under NAME, beside those of earlier runs",
    )
    group.addoption(
        "--ostinato-compare",
        type=_checked_name,
        metavar="NAME",
        help="compare this version's benches with those kept under NAME. With --ostinato-save, all runs kept under that"
        " name count as this version. There is a verdict at 5, 10, 20, … runs of either side, made in turns.",
    )
    group.addoption(
        "--ostinato-fail-slower",
        type=_checked_part,
        metavar="PERCENT",
        help="fail a test whose bench is certainly slower by more than this, such as 5%%; needs --ostinato-compare",
    )
    group.addoption(
        "--ostinato-dir",
        metavar="FOLDER",
        help="where recordings are kept (default: .ostinato in the root directory)",
    )
    group.addoption(
        "--ostinato-check",
        action="store_true",
        help="check what each test submits, as `ostinato check` does; a test with an error fails, notes are warnings",
    )
    group.addoption("--ostinato-check-strict", action="store_true", help="the same, and a test with a note fails, too")
    group.addoption(
        "--ostinato-check-as",
        metavar="FAMILY",
        help="with --ostinato-check, also check the limits of a GPU family of Apple, such as apple7",
    )
    group.addoption(
        "--ostinato-check-ignore",
        metavar="FILE",
        help="with --ostinato-check, a table of known findings to ignore, in TOML",
    )
    for name, what in _REQUESTED.items():
        group.addoption(
            f"--ostinato-check-{name}", action="store_true", help=f"with --ostinato-check, also find {what}"
        )


def _checked_name(text: str) -> str:
    from .base.options import checked_name

    return _checked(checked_name, text)


def _checked_part(text: str) -> float:
    from .base.options import checked_part

    return _checked(checked_part, text)


def _checked(check: Callable[[str], _T], text: str) -> _T:
    from .errors import ArgumentError

    try:
        return check(text)
    except ArgumentError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def pytest_configure(config: pytest.Config) -> None:
    """Refuse options that contradict each other before any test runs."""
    # pytest rewrites the assertions of all modules of a package with a plugin. Here they would slow down what is
    # measured, and no test looks at them.
    getattr(config.pluginmanager.rewrite_hook, "_must_rewrite", set()).discard("ostinato")
    if _checks(config):
        config.stash[_options] = _check_options(config)
    saved, compared = config.getoption("--ostinato-save"), config.getoption("--ostinato-compare")
    if config.getoption("--ostinato-fail-slower") is not None and compared is None:
        raise pytest.UsageError("--ostinato-fail-slower needs --ostinato-compare NAME, which it compares with")
    if compared is None:
        return
    if saved == compared:
        raise pytest.UsageError(f"--ostinato-save and --ostinato-compare are both {saved!r}; use two names")
    folder = _kept_in(config)
    if not (folder / compared).is_dir():
        names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []
        raise pytest.UsageError(
            f"--ostinato-compare: nothing is kept under {compared!r} in {folder} (names: {', '.join(names) or 'none'});"
            f" run the version to compare with with --ostinato-save {compared}"
        )


def _kept_in(config: pytest.Config) -> Path:
    """The folder with the recordings of all names."""
    chosen = config.getoption("--ostinato-dir")
    return config.rootpath / ".ostinato" if chosen is None else config.invocation_params.dir / chosen


# --- checks -----------------------------------------------------------------------------------------------------------


def _checks(config: pytest.Config) -> bool:
    return bool(config.getoption("--ostinato-check") or config.getoption("--ostinato-check-strict"))


def _check_options(config: pytest.Config) -> Options:
    from .audit.check import Options
    from .audit.checked import Requested
    from .audit.families import family
    from .audit.known import read_table
    from .errors import ArgumentError

    name, table = config.getoption("--ostinato-check-as"), config.getoption("--ostinato-check-ignore")
    try:
        known = () if table is None else read_table(config.invocation_params.dir / table)
        requested = Requested(**{name: config.getoption(f"--ostinato-check-{name}") for name in _REQUESTED})
        return Options(limits=None if name is None else family(name).name, ignore=known, requested=requested)
    except (ArgumentError, OSError) as error:
        raise pytest.UsageError(f"--ostinato-check: {error}") from None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    """Check what fixtures submit."""
    if _checks(item.config):
        from .testing.checks import SubmissionCheck

        strict = item.config.getoption("--ostinato-check-strict")
        item.stash[_check] = SubmissionCheck(item.config.stash[_options], strict)
    return (yield from _checked_phase(item, "setup"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Check what the test submits."""
    return (yield from _checked_phase(item, "call"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    """Check what fixtures submit at their end."""
    return (yield from _checked_phase(item, "teardown"))


def _checked_phase(item: pytest.Item, phase: str) -> Generator[None, Any, Any]:
    check = item.stash.get(_check, None)
    if check is None:
        return (yield)
    from .errors import OstinatoWarning
    from .testing.checks import Stop

    result = None
    try:
        with check.watching():
            result = yield
    except Stop:
        pass
    except BaseException:
        wrong, _ = check.take()
        if wrong:
            item.add_report_section(phase, "ostinato check", wrong)
        raise
    wrong, notes = check.take()
    for note in notes:
        item.warn(OstinatoWarning(note))
    if wrong:
        pytest.fail(wrong, pytrace=False)
    return result


# --- devices ----------------------------------------------------------------------------------------------------------


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per device for tests that use `ostinato_device`."""
    if "ostinato_device" in metafunc.fixturenames:
        from . import settings

        names = metafunc.config.getoption("--ostinato-device") or [settings.text("device") or "cpu"]
        metafunc.parametrize("ostinato_device", list(dict.fromkeys(names)), indirect=True, scope="session")


@pytest.fixture(scope="session")
def ostinato_device(request: pytest.FixtureRequest) -> Iterator[Device]:
    """An open device for kernels; `--ostinato-device` chooses which, and a test runs once on each."""
    from .errors import OstinatoError
    from .testing.devices import open_named

    reason = ""
    try:
        device = open_named(request.param)
    except OstinatoError as error:
        reason = str(error)
    if reason:
        pytest.fail(f"device {request.param!r} cannot be opened: {reason}", pytrace=False)
    with device:
        yield device


# --- benches ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def ostinato_bench(request: pytest.FixtureRequest) -> BenchFixture:
    """Measures a kernel, graph or replayable as `ostinato.bench` does, and reports it in the summary of the run."""
    from .testing.benches import BenchFixture

    lines: list[dict[str, Any]] = []
    request.node.stash[_benches] = lines  # anew, as a plugin may run a test again
    return BenchFixture(request, _kept_in(request.config), lines)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put the benches of a test into its report."""
    report = yield
    if call.when == "call" and _benches in item.stash:
        setattr(report, _REPORTED, item.stash[_benches])
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table of benches."""
    # By name: of a test that was run again, the last counts.
    benches = {
        bench["name"]: bench
        for reports in terminalreporter.stats.values()
        for report in reports
        for bench in getattr(report, _REPORTED, ())
    }
    if benches:
        from .testing.summary import summary_lines

        terminalreporter.section("ostinato benches")
        for line in summary_lines(list(benches.values())):
            terminalreporter.write_line(line)
