// @ts-check
"use strict";
// The view "what if": bars of the wall time that each kernel saves if it is twice as fast, and if it is as efficient as
// the others, with 95 % intervals.

/**
 * @typedef {{share: number, low: number|null, high: number|null, ns: number|null}} WhatIfSaving
 * @typedef {{kernel: number, device: string, twice: WhatIfSaving|null, twice_unknown: boolean, on_path_ns: number|null,
 *   on_path: number|null, could: WhatIfSaving|null, could_is_bound: boolean, efficiency: number|null,
 *   efficiency_is_bound: boolean, why: string, where: string}} WhatIfRow
 * @typedef {{rows: WhatIfRow[], parts_of: {what: string, typical_ns: number}[], residue: number|null, measures: string[]}} WhatIfData
 */

{
  const BAR = 11;

  /** @param {WhatIfSaving} saving */
  function within(saving) {
    if (saving.low == null || saving.high == null || saving.high - saving.low < 2e-4) return "";
    return ` (${formatPercent(saving.low)} to ${formatPercent(saving.high)})`;
  }

  /** @param {string} verb @param {WhatIfSaving} saving */
  const savingText = (verb, saving) => (saving.share === 0 && !saving.high ? "saves nothing"
    : `${verb} ${formatPercent(saving.share)}${within(saving)}, ${formatTime(saving.ns)}`);

  /** @param {WhatIfRow} row @returns {string} */
  function twiceText(row) {
    if (row.twice) return savingText("saves", row.twice);
    return row.twice_unknown ? "not known: it competes for a full device, and no replay reproduces how" : "not computed: it is not among the kernels that take most time";
  }

  /** @param {WhatIfRow} row */
  function couldText(row) {
    if (!row.could) return "it is not among the kernels that could save most";
    return savingText(row.could_is_bound ? "saves up to" : "saves", row.could);
  }

  /** What a row is sorted by: [name, value]. @type {Record<string, [string, (row: WhatIfRow) => number]>} */
  const ORDERS = {
    twice: ["twice as fast", (row) => (row.twice ? row.twice.share : -1)],
    could: ["as efficient as the others", (row) => (row.could ? row.could.share : -1)],
    path: ["time on the critical path", (row) => row.on_path ?? -1],
  };

  /** @param {HTMLElement} panel @param {Page} page @returns {Drawn} */
  function make(panel, page) {
    /** @type {WhatIfData} */ const data = page.data.what_if;
    const list = h("ol", { class: "rows" });
    const axis = h("div", { class: "axis-row" });
    const order = /** @type {HTMLSelectElement} */ (h("select", { id: "what_if-order", onchange: draw },
      ...Object.entries(ORDERS).map(([key, [name]]) => h("option", { value: key }, name))));
    const bounded = data.rows.some((row) => row.could && row.could_is_bound);
    panel.append(
      h("p", { class: "note" },
        "Savings are parts of ",
        data.parts_of.map((each) => `${each.what} (${formatTime(each.typical_ns)})`).join(" and of ") || "typical command-buffer time",
        data.parts_of.length > 1 ? ", each of that of its own device" : "",
        ". Every measured run is evaluated again with shorter dispatches of one kernel; order and dependencies stay as they are. ",
        "Time on the host, caches and clocks that would change as well are not part of it."),
      h("div", { class: "legend" },
        h("span", {}, h("span", { class: "key twice" }), "if twice as fast"),
        h("span", {}, h("span", { class: "key could" }), "if as efficient as the other kernels"),
        bounded ? h("span", {}, h("span", { class: "key could bound" }), "upper bound: it may save less") : null,
        h("span", {}, h("span", { class: "key whisker" }), "95 % interval over runs"),
        h("label", {}, "sort by ", order)),
      axis, list,
      ...notes().map((line) => h("p", { class: "note" }, line)));
    page.onSelect(mark);

    function notes() {
      return [
        ...(data.residue == null ? [] : ["Kernels off the critical path also save time where they compete for a full device; "
          + `estimated by replays that match the measured time to within ${formatPercent(data.residue)}.`]),
        ...data.measures.map((measure) => `Efficiency: ${measure}.`),
      ];
    }

    /** @param {number} kernel */
    function mark(kernel) {
      for (const each of list.children) {
        each.classList.toggle("chosen", Number(/** @type {HTMLElement} */ (each).dataset.kernel) === kernel);
      }
    }

    /** @param {WhatIfSaving|null} saving @param {string} kind @param {number} y @param {Scale} x */
    function bar(saving, kind, y, x) {
      if (!saving || (saving.share === 0 && !saving.high)) return [];
      const middle = y + BAR / 2;
      const [low, high] = [saving.low ?? saving.share, saving.high ?? saving.share];
      return [
        s("rect", { class: kind, x: x(0), y, width: Math.max(x(saving.share) - x(0), 1), height: BAR }),
        ...(high - low < 2e-4 ? [] : [s("path", {
          class: "whisker", d: `M${x(low)} ${middle}H${x(high)}M${x(low)} ${middle - 3}v6M${x(high)} ${middle - 3}v6`,
        })]),
      ];
    }

    function draw() {
      const width = innerWidth > 800 ? Math.round(panel.clientWidth * 0.36) : panel.clientWidth;
      const shares = data.rows.flatMap((row) => [row.twice, row.could]).map((saving) => (saving ? saving.high ?? saving.share : 0));
      const x = linearScale(0, Math.max(...shares, 0.01), 2, width - 14, formatPercent);
      const value = ORDERS[order.value][1];
      const rows = [...data.rows].sort((a, b) => value(b) - value(a));
      axis.replaceChildren(s("svg", { width, height: 24, viewBox: `0 0 ${width} 24`, class: "axis", "aria-hidden": "true" },
        s("line", { x1: 0, x2: width, y1: 22, y2: 22 }),
        ...x.ticks.map((tick) => s("text", { x: x(tick), y: 15, "text-anchor": tick ? "middle" : "start" }, `${+(tick * 100).toFixed(1)} %`))));
      list.replaceChildren(...rows.map((row) => rowOf(row, x, width)));
      mark(page.selected());
    }

    /** @param {WhatIfRow} row @param {Scale} x @param {number} width */
    function rowOf(row, x, width) {
      const name = row.kernel < 0 ? "?" : kernelTitle(page.data.kernels[row.kernel]);
      const open = () => { page.select(row.kernel); page.open("by_kernel", { kernel: row.kernel }); };
      const path = row.on_path == null ? "" : `${formatPercent(row.on_path)} of the time on the critical path (${formatTime(row.on_path_ns)})`;
      const efficiency = row.efficiency == null ? "" : `efficiency ${row.efficiency_is_bound ? "≤ " : ""}${formatPercent(row.efficiency)}`;
      return h("li", { "data-kernel": row.kernel },
        h("div", { class: "who" }, swatch(row.kernel), h("button", { type: "button", class: "link name", onclick: open }, name),
          h("div", { class: "note" }, [row.device ? `on ${row.device}` : "", row.where].filter(Boolean).join(", "))),
        s("svg", {
          width, height: 2 * BAR + 8, viewBox: `0 0 ${width} ${2 * BAR + 8}`, role: "img",
          "aria-label": `${name}: twice as fast ${twiceText(row)}; as efficient as the others ${couldText(row)}`,
        },
        s("g", { class: "axis" }, ...x.ticks.map((tick) => s("line", { class: "across", x1: x(tick), x2: x(tick), y1: 0, y2: 2 * BAR + 8 }))),
        ...bar(row.twice, "twice", 2, x), ...bar(row.could, row.could_is_bound ? "could bound" : "could", BAR + 5, x)),
        h("div", { class: "words" },
          h("div", {}, h("b", {}, "twice as fast: "), twiceText(row)),
          h("div", {}, h("b", {}, "as efficient as the others: "), couldText(row)),
          h("div", { class: "note" }, [path, efficiency, row.why].filter(Boolean).join("; "))));
    }

    return { shown: draw };
  }

  VIEWS.push({ key: "what_if", title: "What if", make });
}
