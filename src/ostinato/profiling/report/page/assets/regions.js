// @ts-check
"use strict";
// The view "Regions": of each region of the host program, "token" for example, the time of every instance, how those
// times are distributed, and the slowest ones, which lead to the timeline.
{
  /**
   * @typedef {{mean_ns: number, p50_ns: number, p90_ns: number, p99_ns: number, min_ns: number, max_ns: number}} RegionTimes
   * @typedef {{number: number, begin_ns: number, end_ns: number, wall_ns: number, over_ns: number, over_share: number|null,
   *   what: string}} Slow
   * @typedef {{name: string, instances: number, wall: RegionTimes, median_ns: [number, number, number]|null, submissions: number,
   *   dispatches: number, device: RegionTimes|null, outliers: number, note: string, slowest: Slow[],
   *   histogram: {low_ns: number, high_ns: number, counts: number[]},
   *   shown: {number: Column, begin_ns: Column, wall_ns: Column, dispatch_ns: Column}}} Region
   */

  VIEWS.push({ key: "regions", title: "Regions", make });

  /** @param {HTMLElement} panel @param {Page} page @returns {Drawn} */
  function make(panel, page) {
    /** @type {{regions: Region[], notes: string[]}} */ const data = page.data.regions;
    let chosen = 0;
    const choices = data.regions.map((region, number) => h("button", { type: "button", class: "name", onclick: () => choose(number) }, region.name));
    const lines = data.regions.map((region, number) => h("tr", { onclick: () => choose(number) },
      h("th", { scope: "row" }, choices[number]),
      ...cellsOf(region).map(([text, keep]) => h("td", { class: `number ${keep}` }, text))));
    const box = h("div", { class: "region" });
    panel.append(
      h("table", { class: "all" },
        h("caption", { class: "unseen" }, "Regions of the host program, per instance. A name shows its instances below."),
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "region"), ...HEADINGS.map(([title, keep]) => h("th", { scope: "col", class: `number ${keep}` }, title)))),
        h("tbody", {}, ...lines)),
      ...data.notes.map((note) => h("p", { class: "note" }, note)), box);

    /** @param {number} number */
    function choose(number) {
      chosen = number;
      draw();
    }

    function draw() {
      choices.forEach((choice, number) => {
        choice.setAttribute("aria-pressed", String(number === chosen));
        lines[number].classList.toggle("selected", number === chosen);
      });
      box.replaceChildren(...regionOf(page, data.regions[chosen], panel.clientWidth));
    }

    return { shown: draw };
  }

  const HEADINGS = [["instances", "always"], ["median", "always"], ["95 % interval", "wide"], ["p90", "wide"], ["p99", "always"], ["max", "wide"],
    ["command buffers", "wide"], ["dispatches", "wide"], ["device time, median", "wide"]];

  /** @param {Region} region @returns {[string, string][]} */
  function cellsOf(region) {
    const { wall, median_ns, device } = region;
    const cells = [formatCount(region.instances), formatTime(wall.p50_ns),
      median_ns ? `${formatTime(median_ns[1])} to ${formatTime(median_ns[2])}` : "–",
      formatTime(wall.p90_ns), formatTime(wall.p99_ns), formatTime(wall.max_ns), average(region.submissions), average(region.dispatches), formatTime(device?.p50_ns)];
    return cells.map((text, number) => [text, HEADINGS[number][1]]);
  }

  /** @param {number} value */
  const average = (value) => (Number.isInteger(value) ? formatCount(value) : digits(value));

  /** @param {Page} page @param {Region} region @param {number} width @returns {Node[]} */
  function regionOf(page, region, width) {
    const wide = width > 1000, third = wide ? Math.floor((width - 24) / 3) : width;
    const { wall } = region;
    const marks = [["p50", wall.p50_ns], ["p90", wall.p90_ns], ["p99", wall.p99_ns]].map(([name, at]) => ({ name: String(name), at_ns: Number(at) }));
    return [
      h("h2", {}, "Time per ", h("span", { class: "name" }, region.name)),
      figures(region),
      h("div", { class: "charts" },
        h("figure", {}, h("figcaption", {}, caption(region)), seriesOf(page, region, wide ? width - third - 24 : width)),
        h("figure", {}, h("figcaption", {}, `Times of ${formatCount(region.instances)} instances`), durationHistogram({
          width: third, ...region.histogram, what: "instances", marks,
        }))),
      ...(region.slowest.length ? [h("h3", {}, "The slowest"), slowest(page, region)] : []),
    ];
  }

  /** All that the table may have no room for. @param {Region} region */
  function figures(region) {
    const facts = HEADINGS.map(([title], number) => [title, cellsOf(region)[number][0]]);
    facts.push(["mean", formatTime(region.wall.mean_ns)], ["min", formatTime(region.wall.min_ns)]);
    return h("dl", { class: "figures" }, ...facts.map(([term, value]) => h("div", {}, h("dt", {}, term), h("dd", {}, value))));
  }

  /** @param {Region} region */
  function caption(region) {
    const drawn = region.shown.number.length;
    return ["Instance by instance: ● wall time on the host", region.device ? "▪ device time (sum of its dispatches)" : "",
      region.outliers ? `◆ slower than p99 (${formatCount(region.outliers)})` : "",
      drawn < region.instances ? `${formatCount(drawn)} of ${formatCount(region.instances)} instances are drawn: the fastest and the slowest of every ${formatCount(Math.round((2 * region.instances) / drawn))}` : "",
      region.note].filter(Boolean).join("; ");
  }

  /** @param {Page} page @param {Region} region @param {number} width */
  function seriesOf(page, region, width) {
    const { number, begin_ns, wall_ns, dispatch_ns } = region.shown;
    const left = 62, top = 12, bottom = 210, right = width - 12;
    const known = Array.from(dispatch_ns).filter((value) => value > 0);
    const low = Math.max(known.reduce((least, value) => Math.min(least, value), region.wall.min_ns), 1);
    const high = Math.max(known.reduce((most, value) => Math.max(most, value), region.wall.max_ns), low * 1.02);
    const up = durationScale(low * 0.97, high * 1.03, bottom, top);
    const across = linearScale(1, Math.max(region.instances, 2), left, right, formatCount);
    across.ticks = across.ticks.filter(Number.isInteger);
    let dots = "", squares = "", diamonds = "";
    for (let at = 0; at < number.length; at++) {
      const x = across(number[at] + 1).toFixed(1), y = up(Math.max(wall_ns[at], low)).toFixed(1);
      if (wall_ns[at] > region.wall.p99_ns) diamonds += `M${x} ${y}m0-5l5 5l-5 5l-5-5z`;
      else dots += `M${x} ${y}h0`;
      if (dispatch_ns[at] > 0) squares += `M${x} ${up(dispatch_ns[at]).toFixed(1)}h0`;
    }
    /** @param {PointerEvent|MouseEvent} event */
    function nearest(event) {
      const edge = chart.getBoundingClientRect();
      const [x, y] = [event.clientX - edge.left, event.clientY - edge.top];
      let best = 0, least = Infinity;
      for (let at = 0; at < number.length; at++) {
        const away = Math.hypot(across(number[at] + 1) - x, (up(Math.max(wall_ns[at], low)) - y) / 2);
        if (away < least) [best, least] = [at, away];
      }
      return best;
    }
    const chart = s("svg", {
      width, height: 250, viewBox: `0 0 ${width} 250`, role: "img", class: page.data.timeline ? "instances leads" : "instances",
      "aria-label": `Time of ${formatCount(region.instances)} instances of ${region.name}: median ${formatTime(region.wall.p50_ns)}, p99 ${formatTime(region.wall.p99_ns)}, longest ${formatTime(region.wall.max_ns)}`,
      onpointermove: (/** @type {PointerEvent} */ event) => {
        const at = nearest(event);
        tooltip.show(event.clientX, event.clientY, [`${region.name} ${formatCount(number[at] + 1)}: ${formatTime(wall_ns[at])}`,
          dispatch_ns[at] > 0 ? `device time ${formatTime(dispatch_ns[at])}` : "", `at ${formatTime(begin_ns[at])}`,
          page.data.timeline ? "click: in the timeline" : ""].filter(Boolean));
      },
      onpointerleave: () => tooltip.hide(),
      onclick: (/** @type {MouseEvent} */ event) => {
        const at = nearest(event);
        page.open("timeline", { begin_ns: begin_ns[at], end_ns: begin_ns[at] + wall_ns[at] });
      },
    }, leftAxis(up, left, "", right), bottomAxis(across, bottom, "instance", right),
    ...[["p50", region.wall.p50_ns], ["p99", region.wall.p99_ns]].map(([name, at]) => s("g", { class: "mark" },
      s("line", { x1: left, x2: right, y1: up(Number(at)), y2: up(Number(at)) }),
      s("text", { x: right, y: up(Number(at)) - 3, "text-anchor": "end" }, name))),
    s("path", { class: "device", d: squares }), s("path", { class: "wall", d: dots }), s("path", { class: "outlier", d: diamonds }));
    return chart;
  }

  /** @param {Page} page @param {Region} region */
  function slowest(page, region) {
    return h("ol", { class: "slowest" }, ...region.slowest.map((slow) => {
      const text = `${region.name} ${formatCount(slow.number + 1)}: ${formatTime(slow.wall_ns)}`;
      return h("li", {},
        page.data.timeline ? h("button", {
          type: "button", "aria-label": `${text}, in the timeline`,
          onclick: () => page.open("timeline", { begin_ns: slow.begin_ns, end_ns: slow.end_ns }),
        }, text) : h("span", { class: "instance" }, text),
        h("span", {}, ` ${formatTime(slow.over_ns)} (${formatPercent(slow.over_share)}) over the median${slow.what ? `: ${slow.what}` : ""}`));
    }));
  }
}
