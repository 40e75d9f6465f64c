"""What the page of a recording costs: seconds to write it, its size, its first paint, and frames of its timeline.

Recordings of 100,000 and 1,000,000 dispatches are made up (1,000 per command buffer, labels three deep, dependencies,
host spans); the demo's is recorded. "write" includes reading and summarising the recording; "of it on a core" is the
part of that time for which a core worked on it, which says more on a busy machine.
A headless Chromium without a GPU then opens the pages, and a script pans and zooms the timeline of 100,000 dispatches:
"draw" is the time of the page's own code, "frame" that between two frames, which is 16.7 ms at least.

    python bench/page.py [--json] [--dispatches N] [--folder DIR] [--browser PATH]
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import ostinato as ost
from harness import Table, median, report, seconds
from ostinato import demo
from ostinato.profiling.analyse import columns_of
from ostinato.profiling.recording import PlanNode, Writer, open_recording
from ostinato.profiling.report.page import save_page

NODES = 1_000
KERNELS = 20
ROUNDS = 3
PAN_AND_ZOOM = """async () => {
  const view = document.getElementById("panel-timeline").timeline;
  const { begin_ns, end_ns } = view.view(), length = end_ns - begin_ns;
  const draws = [], frames = [];
  const frame = () => new Promise(requestAnimationFrame);
  let last = await frame();
  for (let step = 0; step < 240; step++) {
    const part = step / 240, span = length * Math.pow(0.5, 7 - 7 * Math.cos(2 * Math.PI * part));
    const from = begin_ns + (length - span) * (0.5 + 0.4 * Math.sin(4 * Math.PI * part));
    view.setView(from, from + span);
    const before = performance.now();
    view.draw();
    draws.push(performance.now() - before);
    const now = await frame();
    frames.push(now - last);
    last = now;
  }
  return { draws, frames, spans: view.rows.reduce((sum, row) => sum + row.begin.length, 0) };
}"""
FIRST_PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"


def record(path: Path, dispatches: int) -> None:
    """A recording of so many dispatches, as a decoder of twenty layers would leave it."""
    random = np.random.default_rng(1)
    names = ("attention", "mlp", "norm")
    nodes = [
        PlanNode(
            "dispatch",
            f"kernel_{node % KERNELS}",
            label=f"decode/layer.{node * 20 // NODES}/{names[node // 10 % len(names)]}",
            bytes_read=1 << 16,
            threads=(4096, 1, 1),
            group=(256, 1, 1),
            groups=16,
        )
        for node in range(NODES)
    ]
    edges = np.array([(node - back, node) for node in range(NODES) for back in (1, 7) if node >= back])
    with Writer(path) as writer:
        device = writer.device("bench", "cpu", copy_bytes_per_s=20e9, workers=4)
        plan = writer.plan(device, nodes, edges)
        now = 10**9
        for ordinal in range(1, dispatches // NODES + 1):
            lengths = (random.lognormal(9.5, 1.0, NODES) + 500).astype(np.int64)
            ends = now + np.cumsum(lengths + random.integers(500, 3_000, NODES))
            end = int(ends[-1])
            region = writer.begin_region("token", now - 50_000)
            times = {"encode_begin_ns": now - 45_000, "encode_end_ns": now - 30_000}
            times |= {"commit_begin_ns": now - 25_000, "commit_end_ns": now - 5_000, "start_ns": now, "end_ns": end}
            submission = writer.submission(
                device=device, plan=plan, ordinal=ordinal, region=region, label="token", replay=True, **times
            )
            writer.samples(submission, 0, ends - lengths, ends)
            writer.host_span("wait", now, end + 3_000)
            writer.end_region(region, end + 5_000)
            now = end + 200_000
            if ordinal % 50 == 0:
                writer.flush()


def write(recording: Path, page: Path) -> None:
    """Reads a recording and writes its page."""
    with open_recording(recording) as opened:
        save_page(columns_of(opened), page)


def browser_path(asked: str | None) -> str | None:
    """The machine's Chromium; None without one, or without the package that drives it."""
    if find_spec("playwright") is None:
        return None
    return asked or next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def look(executable: str, demo_page: Path, spans_page: Path) -> list[Table]:
    """What a browser says about the pages."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--disable-gpu"], chromium_sandbox=False)

        def opened(path: Path) -> Any:
            page = browser.new_page(viewport={"width": 1400, "height": 900})
            page.goto(path.as_uri())
            page.wait_for_selector("html[data-ready=true]")
            return page

        paints = []
        for turn in range(ROUNDS + 1):
            page = opened(demo_page)
            page.wait_for_function(f"({FIRST_PAINT}) !== null")
            if turn:
                paints.append(page.evaluate(FIRST_PAINT))
            page.close()
        page = opened(spans_page)
        page.evaluate(PAN_AND_ZOOM)
        result = page.evaluate(PAN_AND_ZOOM)
        version = browser.version
        browser.close()
    draws, frames = np.array(result["draws"]), np.array(result["frames"])
    return [
        Table(
            f"First paint of the demo's page, Chromium {version}",
            ["median ms", "worst ms"],
            [[median(paints), max(paints)]],
        ),
        Table(
            "A scripted pan and zoom of the timeline, 1,400 by 900 pixels",
            ["spans", "median draw ms", "95 % draw ms", "median frame ms", "95 % frame ms"],
            [[result["spans"], *(float(v) for a in (draws, frames) for v in (np.median(a), np.percentile(a, 95)))]],
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--dispatches", type=int, default=1_000_000, help="of the larger recording (default 1,000,000)")
    parser.add_argument("--folder", type=Path, default=None, help="where the files go (default: a temporary folder)")
    parser.add_argument("--browser", default=os.environ.get("PYTEST_OSTINATO_BROWSER"), help="a Chromium to use")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        here = Path(folder)
        with ost.open_device() as device:
            demo.run(device, here / "demo.ostinato")
        sizes = {"100,000 dispatches": 100_000, f"{options.dispatches:,} dispatches": options.dispatches}
        for name, dispatches in sizes.items():
            record(here / f"{name}.ostinato", dispatches)
        rows = []
        for name in ("demo", *sizes):
            recording, page = here / f"{name}.ostinato", here / f"{name}.html"
            before = time.process_time()
            taken = [seconds(lambda recording=recording, page=page: write(recording, page)) for _ in range(ROUNDS)]
            rows.append([name, median(taken), (time.process_time() - before) / ROUNDS, page.stat().st_size / 1e6])
        tables = [Table("Writing pages", ["recording", "write s", "of it on a core s", "MB"], rows)]
        executable = browser_path(options.browser)
        if executable is None:
            print("no Chromium, or no package playwright: pages are not opened", file=sys.stderr)
        else:
            tables += look(executable, here / "demo.html", here / "100,000 dispatches.html")
    report(tables, options.json)


if __name__ == "__main__":
    main()
