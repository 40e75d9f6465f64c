// @ts-check
"use strict";
// The view of a comparison: the whole, then every row with both times, the ratio with its interval on one logarithmic
// axis, the verdict and the smallest change that would have been found.

/**
 * @typedef {{median_ns: number|null, low_ns: number|null, high_ns: number|null, units: number, runs: number, share: number}} ComparedSide
 * @typedef {{kind: string, name: string, label: string, grid: string, a: ComparedSide, b: ComparedSide,
 *   ratio: [number, number, number]|null, verdict: string, detectable: number|null}} ComparedRow
 * @typedef {{kind: string, name: string, label: string, grid: string, side: "a"|"b", share: number}} ComparedAlone
 * @typedef {{names: string[], delta: number, confidence: number, notes: string[], whole: number|null,
 *   rows: ComparedRow[], only: ComparedAlone[]}} ComparedData
 */

{
  const AXIS = 280, MOST_AT_FIRST = 300;
  const SYMBOLS = /** @type {Record<string, string>} */ ({ SLOWER: "▲", FASTER: "▼", SAME: "=", "CANNOT TELL": "?" });
  const KINDS = /** @type {Record<string, string>} */ ({ graph: "graphs", label: "labels", kernel: "kernels" });

  /** @param {number} ratio */
  const formatRatio = (ratio) => (ratio < 10 ? ratio.toFixed(3) : Math.round(ratio).toLocaleString("en"));
  /** @param {string} verdict */
  const verdictOf = (verdict) => h("span", { class: `verdict ${verdict.replace(" ", "-")}` },
    h("span", { "aria-hidden": "true" }, SYMBOLS[verdict], " "), verdict);
  /** @param {ComparedRow} row @returns {number|null} */
  const estimate = (row) => {
    if (row.ratio) return row.ratio[0];
    return row.a.median_ns && row.b.median_ns ? row.b.median_ns / row.a.median_ns : null;
  };
  /** @param {ComparedRow} row */
  const share = (row) => Math.max(row.a.share, row.b.share);

  /** @param {HTMLElement} panel @param {Page} page @returns {Drawn} */
  function make(panel, page) {
    /** @type {ComparedData} */ const data = page.data.comparison;
    const [a, b] = data.names;
    const order = Object.keys(SYMBOLS);
    const kinds = Object.keys(KINDS);
    let sorted = "kind", rising = true, all = false;
    /** What can be sorted by: [heading, key of a row], and whether the smallest comes first. @type {Record<string, [string, (row: ComparedRow) => number|string, boolean]>} */
    const columns = {
      kind: ["of", (row) => kinds.indexOf(row.kind) - share(row), true],
      name: ["name", (row) => row.name, true],
      a: [a, (row) => row.a.median_ns ?? -1, false],
      b: [b, (row) => row.b.median_ns ?? -1, false],
      ratio: [`${b} / ${a}`, (row) => estimate(row) ?? 0, false],
      verdict: ["verdict", (row) => order.indexOf(row.verdict) - share(row), true],
      detectable: ["detectable", (row) => row.detectable ?? Infinity, true],
      share: ["share", share, false],
    };
    const x = axisOf(data);
    const search = /** @type {HTMLInputElement} */ (h("input", {
      type: "search", placeholder: "filter by name or label", "aria-label": "Filter rows by name, label or grid", oninput: draw,
    }));
    const boxes = [...kinds.filter((kind) => data.rows.some((row) => row.kind === kind)),
      ...order.filter((verdict) => data.rows.some((row) => row.verdict === verdict))]
      .map((value) => /** @type {HTMLInputElement} */ (h("input", { type: "checkbox", value, checked: true, onchange: draw })));
    const body = h("tbody", {});
    const heads = new Map(Object.entries(columns).map(([key, [heading]]) => [key, h("th", { scope: "col", class: numeric(key) },
      h("button", { type: "button", class: "sort", onclick: () => sortBy(key) }, heading, h("span", { class: "arrow", "aria-hidden": "true" })))]));
    const chartHead = h("th", { scope: "col", class: "chart" }, axisSvg(x));
    const shown = h("p", { class: "note", role: "status" });
    const headCells = [...heads.entries()].flatMap(([key, cell]) => (key === "ratio" ? [cell, chartHead] : [cell]));
    panel.append(
      ...(data.whole == null ? [] : [wholeOf(data.rows[data.whole])]),
      h("div", { class: "controls" }, search,
        ...boxes.map((box) => h("label", {}, box, " ", KINDS[box.value] || verdictOf(box.value)))),
      h("div", { class: "scroll" }, h("table", { id: "comparison-rows" }, h("thead", {}, h("tr", {}, ...headCells)), body)),
      shown,
      ...alone(),
      ...data.notes.map((note) => h("p", { class: "note" }, note)));
    draw();

    /** @param {string} key */
    function numeric(key) {
      return ["a", "b", "ratio", "detectable", "share"].includes(key) ? "number" : "";
    }

    /** @param {string} key */
    function sortBy(key) {
      rising = key === sorted ? !rising : columns[key][2];
      sorted = key;
      draw();
    }

    /** The whole, large. @param {ComparedRow} row */
    function wholeOf(row) {
      const ratio = estimate(row);
      /** @param {string} name @param {ComparedSide} side */
      const figure = (name, side) => h("div", {}, h("div", { class: "note" }, name), h("div", { class: "large" }, formatTime(side.median_ns)),
        h("div", { class: "note" }, within(side)));
      return h("div", { class: "whole", id: "comparison-whole" },
        h("div", {}, h("div", { class: "note" }, "the whole"), h("div", { class: "large" }, verdictOf(row.verdict)),
          h("div", { class: "note name" }, row.name)),
        figure(a, row.a), figure(b, row.b),
        h("div", {}, h("div", { class: "note" }, `${b} / ${a}`), h("div", { class: "large" }, ratio == null ? "–" : `${formatRatio(ratio)}×`),
          h("div", { class: "note" }, row.ratio ? `${formatRatio(row.ratio[1])} to ${formatRatio(row.ratio[2])}` : "no interval")),
        h("div", {}, h("div", { class: "note" }, "detectable"), h("div", { class: "large" }, detectable(row)),
          h("div", { class: "note" }, "smallest change that would be found")));
    }

    /** @param {ComparedSide} side */
    function within(side) {
      const runs = `${formatCount(side.runs)} runs`;
      return side.low_ns == null ? runs : `${formatTime(side.low_ns)} to ${formatTime(side.high_ns)}, ${runs}`;
    }

    /** @param {ComparedRow} row */
    function detectable(row) {
      if (row.detectable == null) return "–";
      return row.detectable < 10 ? `${(row.detectable * 100).toFixed(1)}${NO_BREAK}%` : `>${NO_BREAK}1000${NO_BREAK}%`;
    }

    function draw() {
      const text = search.value.trim().toLowerCase();
      const wanted = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
      const has = (/** @type {ComparedRow} */ row) => wanted.has(row.kind) && wanted.has(row.verdict)
        && `${row.name} ${row.label} ${row.grid}`.toLowerCase().includes(text);
      const key = columns[sorted][1];
      const rows = data.rows.filter(has).sort((one, other) => {
        const [left, right] = [key(one), key(other)];
        return (left < right ? -1 : left > right ? 1 : 0) * (rising ? 1 : -1);
      });
      const few = all ? rows : rows.slice(0, MOST_AT_FIRST);
      body.replaceChildren(...few.map(rowOf));
      for (const [name, cell] of heads) {
        cell.setAttribute("aria-sort", name !== sorted ? "none" : rising ? "ascending" : "descending");
      }
      shown.replaceChildren(`${formatCount(few.length)} of ${formatCount(data.rows.length)} rows shown. `,
        ...(few.length < rows.length ? [h("button", { type: "button", onclick: () => { all = true; draw(); } }, "show all")] : []));
    }

    /** @param {ComparedRow} row */
    function rowOf(row) {
      const ratio = estimate(row);
      const range = row.ratio ? ` (${formatRatio(row.ratio[1])}–${formatRatio(row.ratio[2])})` : "";
      /** @param {string} name @param {ComparedSide} side */
      const time = (name, side) => h("td", { class: "number", "data-label": name, title: within(side) }, formatTime(side.median_ns));
      return h("tr", {},
        h("td", { class: "of" }, row.kind),
        h("th", { scope: "row", class: "what" }, h("span", { class: "name" }, row.name),
          row.label || row.grid ? h("div", { class: "note" }, [row.label, row.grid].filter(Boolean).join(" · ")) : null),
        time(a, row.a), time(b, row.b),
        h("td", { class: "number", "data-label": `${b} / ${a}` }, ratio == null ? "–" : formatRatio(ratio), h("span", { class: "note" }, range)),
        h("td", { class: "chart" }, whisker(row)),
        h("td", { class: "judged" }, verdictOf(row.verdict)),
        h("td", { class: "number", "data-label": "detectable" }, detectable(row)),
        h("td", { class: "number", "data-label": "share" }, formatPercent(share(row))));
    }

    /** @param {ComparedRow} row */
    function whisker(row) {
      const ratio = estimate(row);
      const height = 20, middle = height / 2;
      const text = ratio == null ? "no ratio" : `${formatRatio(ratio)}, ${row.ratio ? `interval ${formatRatio(row.ratio[1])} to ${formatRatio(row.ratio[2])}` : "no interval"}, ${row.verdict}`;
      const svg = s("svg", { width: AXIS, height, viewBox: `0 0 ${AXIS} ${height}`, role: "img", "aria-label": text },
        ...background(x, height));
      if (ratio == null) return svg;
      const [low, high] = row.ratio ? [row.ratio[1], row.ratio[2]] : [ratio, ratio];
      const kind = row.verdict.replace(" ", "-");
      const [from, to, at] = [x(low), x(high), x(ratio)].map((place) => Math.min(Math.max(place, 3), AXIS - 3));
      if (row.ratio) svg.append(s("line", { class: `interval ${kind}`, x1: from, x2: to, y1: middle, y2: middle }));
      // An arrow says that it goes on beyond the axis.
      if (x(low) < 0) svg.append(s("path", { class: `end ${kind}`, d: `M6 ${middle - 4}L1 ${middle}L6 ${middle + 4}` }));
      if (x(high) > AXIS) svg.append(s("path", { class: `end ${kind}`, d: `M${AXIS - 6} ${middle - 4}L${AXIS - 1} ${middle}L${AXIS - 6} ${middle + 4}` }));
      svg.append(row.ratio ? s("circle", { class: kind, cx: at, cy: middle, r: 4 })
        : s("path", { class: `hollow ${kind}`, d: `M${at - 4} ${middle}L${at} ${middle - 4}L${at + 4} ${middle}L${at} ${middle + 4}Z` }));
      return svg;
    }

    /** Rows that only one side has. @returns {HTMLElement[]} */
    function alone() {
      return /** @type {("a"|"b")[]} */ (["a", "b"]).flatMap((side) => {
        const rows = data.only.filter((row) => row.side === side);
        if (!rows.length) return [];
        const name = side === "a" ? a : b;
        return [h("h2", {}, `Only in ${name}`), h("ul", { class: "only", id: `comparison-only-${side}` }, ...rows.map((row) =>
          h("li", {}, `${row.kind} `, h("span", { class: "name" }, row.name), ` ${formatPercent(row.share)} of ${name}'s time`,
            row.label || row.grid ? h("span", { class: "note" }, ` ${[row.label, row.grid].filter(Boolean).join(" · ")}`) : null)))];
      });
    }

    /** A common axis: as wide as the ratios, and the intervals of all but the vaguest rows. @param {ComparedData} compared */
    function axisOf(compared) {
      const away = compared.rows.flatMap((row) => {
        const ratio = estimate(row);
        return ratio ? [Math.abs(Math.log(ratio))] : [];
      });
      const ends = compared.rows.flatMap((row) => (row.ratio ? [Math.max(-Math.log(row.ratio[1]), Math.log(row.ratio[2]))] : [])).sort((p, q) => p - q);
      const most = Math.max(...away, ends[Math.floor(ends.length * 0.9)] || 0, 3 * Math.log1p(compared.delta)) * 1.15;
      const reach = Math.min(most, Math.log(100));
      return logScale(Math.exp(-reach), Math.exp(reach), 0, AXIS, 
        (value) => (value === 1 ? "1" : value > 1 ? `× ${value}` : `÷ ${+(1 / value).toPrecision(3)}`));
    }

    /** @param {Scale} scale @param {number} height */
    function background(scale, height) {
      const [low, high] = [scale(1 / (1 + data.delta)), scale(1 + data.delta)];
      return [s("rect", { class: "same", x: low, width: Math.max(high - low, 1), y: 0, height }),
        s("line", { class: "one", x1: scale(1), x2: scale(1), y1: 0, y2: height })];
    }

    /** @param {Scale} scale */
    function axisSvg(scale) {
      const inside = ratioTicks(scale);
      return s("svg", { width: AXIS, height: 30, viewBox: `0 0 ${AXIS} 30`, role: "img", "aria-label": `Axis of ratios, ${b} over ${a}; left is faster` },
        s("g", { class: "axis" },
          s("text", { x: 2, y: 10 }, "← faster"), s("text", { x: AXIS - 2, y: 10, "text-anchor": "end" }, "slower →"),
          ...inside.map((tick) => s("text", { x: scale(tick), y: 25, "text-anchor": "middle" }, scale.format(tick))),
          ...inside.map((tick) => s("line", { x1: scale(tick), x2: scale(tick), y1: 27, y2: 30 }))));
    }

    /** Round ratios, alike on both sides of 1, as far apart as their texts need. @param {Scale} scale */
    function ratioTicks(scale) {
      const ticks = [1];
      let last = scale(1);
      for (const ratio of [1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2, 3, 5, 10, 20, 50]) {
        if (scale(ratio) - last < 40 || scale(ratio) > AXIS - 14) continue;
        ticks.push(ratio, 1 / ratio);
        last = scale(ratio);
      }
      return ticks;
    }

    return {};
  }

  VIEWS.push({ key: "comparison", title: "Rows", make });
}
