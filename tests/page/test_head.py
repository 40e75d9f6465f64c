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


def test_every_device_is_in_the_figures() -> None:
    assert figures((0, 1000))["device busy"] == "20.0 %"
    several = figures(*[(0, 1000)] * 3)
    assert (several["gpu0 busy"], several["gpu1 busy"], several["1 other device busy"]) == (
        "20.0 %",
        "40.0 %",
        "60.0 %",
    )
    assert figures(*[(0, 1000)] * 4)["2 other devices busy"] == "60.0 % to 80.0 %"
