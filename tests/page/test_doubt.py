"""The head of the page: its figures, of one device and of several."""

from __future__ import annotations

from ostinato.profiling.analyse import summarise
from ostinato.profiling.analyse.columns import Device
from ostinato.profiling.report.page.head import head
from ostinato.profiling.report.page.material import material
from pages import plain
from synthetic import Synthetic, node


def figures(*spans: tuple[int, int]) -> dict[str, str]:
    """Of devices that each ran for the first and for the last tenth of their span."""
    made = Synthetic(devices=[Device(f"gpu{number}") for number in range(len(spans))])
    plan = made.plan([node(), node()])
    for device, (begin, end) in enumerate(spans):
        tenth = (end - begin) // 10 * (device + 1)
        made.submit(plan, [(begin, begin + tenth), (end - tenth, end)], device=device)
    columns = made.columns()
    shown = head(material(columns, summarise(columns)))["figures"]
    return {figure["name"].partition(";")[0]: plain(figure["value"]) for figure in shown}


def test_the_time_from_first_to_last_work_is_that_of_all_devices() -> None:
    assert figures((1000, 2000))["from first to last work"] == "1.00 µs"
    assert figures((1000, 2000), (5000, 7000))["from first to last work"] == "6.00 µs"
    assert figures((5000, 7000), (1000, 9000))["from first to last work"] == "8.00 µs"


<<<<<<<< HEAD:tests/page/test_head.py
def test_every_device_is_in_the_figures() -> None:
    assert figures((0, 1000))["device busy"] == "20.0 %"
    several = figures(*[(0, 1000)] * 3)
    assert (several["gpu0 busy"], several["gpu1 busy"], several["1 other device busy"]) == (
        "20.0 %",
        "40.0 %",
        "60.0 %",
    )
    assert figures(*[(0, 1000)] * 4)["2 other devices busy"] == "60.0 % to 80.0 %"
========
def shown(**changes: Any) -> dict[str, Any]:
    columns = made().columns()
    return head(material(columns, replace(summarise(columns), **changes)))


@pytest.mark.parametrize(
    ("checks", "doubt"),
    [((MACHINE, DROPS, DRIFT), DRIFT), ((DROPS, MACHINE), MACHINE), ((DROPS, QUIET), None), ((), None)],
)
def test_errors_and_a_disturbed_machine_are_said_in_the_open(checks: tuple[Check, ...], doubt: Check | None) -> None:
    said = shown(checks=checks)["doubt"]
    assert (said and (said["name"], said["status"])) == (doubt and (doubt.name, doubt.status))
    assert said is None or plain(said["sentence"]) == doubt.sentence  # type: ignore[union-attr]


def test_beside_busy_time_stands_what_idle_time_waited_for() -> None:
    (device,) = summarise(made().columns()).device_times
    causes = (Cause(QUEUE, 40_000_000, 4), Cause(ELSEWHERE, 30_000_000, 4), Cause(BETWEEN_REGIONS, 30_000_000, 1))
    idle = replace(device, span_ns=113_000_000, busy_ns=13_000_000, causes=causes)
    figures = {plain(each["name"]): plain(each["value"]) for each in shown(device_times=(idle,))["figures"]}
    assert figures["device busy; idle 100 ms: 60 % host-bound"] == "11.5 %"
    busy = replace(idle, busy_ns=idle.span_ns, causes=())
    assert "device busy" in {each["name"] for each in shown(device_times=(busy,))["figures"]}


def test_units_stay_on_the_line_of_their_number() -> None:
    text = "413 ms, 52.3 % of 3.95 TB/s, 8 B, 1.24 µs, 9 Gflop/s, 2 × more; 3 sorts, 4 sizes, 5 Bars"
    assert unbroken(text).count("\u00a0") == 7
    assert unbroken(text).endswith("; 3 sorts, 4 sizes, 5 Bars")
    assert "91.3\u00a0ms" in {figure["value"] for figure in shown()["figures"]}


@pytest.mark.parametrize("width", [1400, 400])
def test_the_browser_shows_the_doubt_and_tears_no_number_from_its_unit(
    open_page: OpenPage, tmp_path: Path, width: int
) -> None:
    columns = made().columns()
    save_page(columns, tmp_path / "page.html", replace(summarise(columns), checks=(DROPS, MACHINE)))
    page = open_page(tmp_path / "page.html", width=width)
    assert page.is_visible("#doubt")
    assert plain(page.inner_text("#doubt")) == f"machine: noted {MACHINE.sentence}"
    assert not page.is_visible("#checks table")
    assert page.evaluate("[formatTime(1.3e6), formatPercent(0.5), formatSize(12)]") == [
        "1.30\u00a0ms",
        "50.0\u00a0%",
        "12\u00a0B",
    ]
>>>>>>>> 5baab8f (Page: the doubtful check takes the whole width):tests/page/test_doubt.py
