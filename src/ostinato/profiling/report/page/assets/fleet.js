// @ts-check
"use strict";
// The view of a store: each change with its series of versions, then the tables.

/**
 * @typedef {{kernel: string, device: string, text: string, at: number, versions: string[], middle_ns: number[], error: number[]}} FleetChange
 * @typedef {{title: string, columns: {heading: string, right: boolean}[], rows: string[][], notes: string[]}} FleetTable
 */

{
  VIEWS.push({ key: "fleet", title: "Fleet", make });

  /** @param {HTMLElement} panel @param {Page} page @returns {Drawn} */
  function make(panel, page) {
    /** @type {{tables: FleetTable[], changes: FleetChange[]}} */ const data = page.data.fleet;
    const charts = h("div", { class: "changes" });
    panel.append(charts, ...data.tables.map(tableOf));

    function draw() {
      const width = Math.min(Math.max(panel.clientWidth - 24, 320), 560);
      charts.replaceChildren(...data.changes.map((change) => h("figure", {},
        h("figcaption", {}, h("span", { class: "name" }, change.kernel), ` on ${change.device}: ${change.text}`),
        seriesOf(change, width))));
    }

    return { shown: draw };
  }

  /** @param {FleetTable} table */
  function tableOf(table) {
    /** @param {number} at */
    const kind = (at) => (table.columns[at].right ? "number" : "");
    return h("section", {}, h("h2", {}, table.title),
      h("div", { class: "scroll" }, h("table", {},
        h("thead", {}, h("tr", {}, ...table.columns.map((column, at) => h("th", { scope: "col", class: kind(at) }, column.heading)))),
        h("tbody", {}, ...table.rows.map((row) => h("tr", {}, ...row.map((cell, at) => h("td", { class: at ? kind(at) : "name" }, cell))))))),
      ...table.notes.map((note) => h("p", { class: "note" }, note)));
  }

  /** The typical time at each version, with two standard errors. @param {FleetChange} change @param {number} width */
  function seriesOf(change, width) {
    const { middle_ns, error, versions, at } = change;
    const left = 70, right = width - 12, top = 10, bottom = 150;
    const lows = middle_ns.map((value, place) => value * Math.exp(-2 * error[place]));
    const highs = middle_ns.map((value, place) => value * Math.exp(2 * error[place]));
    const up = durationScale(Math.min(...lows) * 0.995, Math.max(...highs) * 1.005, bottom, top);
    const across = linearScale(0, Math.max(versions.length - 1, 1), left + 8, right, (place) => versions[place] ?? "");
    across.ticks = [...new Set([0, at, versions.length - 1])];
    const parts = middle_ns.map((value, place) => {
      const x = across(place).toFixed(1);
      return s("g", { class: place < at ? "before" : "after" },
        s("line", { x1: x, x2: x, y1: up(lows[place]), y2: up(highs[place]) }),
        s("circle", { cx: x, cy: up(value), r: 3 }, s("title", {}, `${versions[place]}: ${formatTime(value)}`)));
    });
    const step = across(at - 0.5);
    return s("svg", {
      width, height: 190, viewBox: `0 0 ${width} 190`, role: "img",
      "aria-label": `${change.kernel} on ${change.device}, ${versions.length} versions: ${change.text}`,
    }, leftAxis(up, left, "", right), bottomAxis(across, bottom, "version", right),
    s("line", { class: "step", x1: step, x2: step, y1: top, y2: bottom }), ...parts);
  }
}
