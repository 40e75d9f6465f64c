// @ts-check
"use strict";
// The view "Kernels": a table that sorts and filters, and below the row of an opened kernel all that is known of it.
// `reveal({kernel})` opens a kernel.
{
  /**
   * @typedef {{text: string, part: number|null}} Listed
   * @typedef {{rows: Listed[], more: number}} List
   * @typedef {{device: string, total_ns: number, efficiency: number|null, is_bound: boolean, bytes: number|null,
   *   bytes_are_bound: boolean, flops: number|null, bytes_per_s: number|null, flops_per_s: number|null,
   *   copy_bytes_per_s: number|null, peak_flops_per_s: number|null, nearer: string|null}} Rate
   * @typedef {{device: string, on_path_ns: number, saved_ns: number|null, saved_share: number|null, parts_of: string,
   *   low: number|null, high: number|null}} Halved
   * @typedef {{device: string, saving_ns: number, saving_share: number|null, parts_of: string, is_bound: boolean,
   *   reasons: string[]}} Suspect
   * @typedef {{device: string, label: string, wall_ns: number, nodes: number, nodes_on_path: number,
   *   on_path_ns: number, total_ns: number, slack_ns: number|null}} PathFacts
   * @typedef {{file: string, compiled: string, line: number|null, digest: string, execution: string, text: number|null, why: string,
   *   lines?: [number, number]}} Code
   * @typedef {{grid: string, count: number, p50_ns: number|null, total_ns: number|null}} Grid
   * @typedef {{dispatched: number, count: number, bounded: number, per_instance_ns: number|null, mean_ns: number|null,
   *   p50_ns: number|null, p90_ns: number|null, p99_ns: number|null, min_ns: number|null, max_ns: number|null,
   *   slowest_ns?: [number, number], bins_ns?: [number, number], rates: Rate[], what_ifs: Halved[], suspects: Suspect[],
   *   paths: PathFacts[], labels: List, places: List, op_kinds: List, constants: List, code: Code|null,
   *   grids: {rows: Grid[], more: number}}} Row
   * @typedef {{notice: string, notes: string[], per: string|null, rows: Row[], bins: number, texts: {text: Column, first: number, whole: boolean}[], most_points: number,
   *   counts: Column, series: {first: Column, at_us: Column, median_ns: Column, below_ns: Column, above_ns: Column,
   *   aside: Column}}} Data
   * @typedef {{key: string, title: string, hint: string, keep: string, text?: boolean,
   *   value: (kernel: number) => number|string|null|undefined, cell: (kernel: number) => Node|string}} ColumnOf
   */

  VIEWS.push({ key: "by_kernel", title: "Kernels", make });

  /** Rows that are listed at first: laying out a table of thousands takes seconds. */
  const MOST_ROWS = 200;

  /** @param {HTMLElement} panel @param {Page} page @returns {Drawn} */
  function make(panel, page) {
    /** @type {Data} */ const data = page.data.by_kernel;
    const { rows } = data;
    const columns = columnsOf(page.data.kernels, data);
    const found = rows.map((row, kernel) => searchable(page.data.kernels[kernel], row));
    let sorted = "total", falling = true, opened = -1, wanted = "", most = MOST_ROWS;

    const count = h("span", { class: "note", role: "status" });
    const filter = h("input", {
      type: "search", placeholder: "kernel, label, file", "aria-label": "Filter kernels by name, label or file",
      oninput: () => { wanted = /** @type {HTMLInputElement} */ (filter).value.trim().toLowerCase(); list(); },
    });
    const heads = columns.map((column) => h("th", { scope: "col", class: `${column.keep}${column.text ? "" : " number"}` },
      h("button", { type: "button", class: "sort", title: column.hint, onclick: () => sort(column.key) },
        column.title, h("span", { class: "arrow", "aria-hidden": "true" }))));
    const body = h("tbody", { onkeydown: step });
    const lines = rows.map((_, kernel) => line(kernel));
    const rest = h("button", { type: "button", class: "rest", onclick: () => { most = Infinity; list(); } });
    const details = h("tr", { class: "details" });

    if (data.notice) panel.append(h("p", { class: "notice", role: "note" }, data.notice));
    if (rows.length) {
      panel.append(
        h("div", { class: "filter" }, h("label", {}, "Filter ", filter), count),
        h("table", { class: "kernels" },
          h("caption", { class: "unseen" }, "Kernels. The headings sort; a name opens the kernel."),
          h("thead", {}, h("tr", {}, ...heads)), body), rest,
        ...data.notes.map((note) => h("p", { class: "note" }, note)));
      list();
    }
    page.onSelect((kernel) => lines.forEach((each, number) => each.classList.toggle("selected", number === kernel)));

    /** @param {number} kernel */
    function line(kernel) {
      return h("tr", { "data-kernel": kernel, onclick: () => open(kernel === opened ? -1 : kernel) },
        ...columns.map((column) => h(column.key === "name" ? "th" : "td", {
          class: `${column.keep}${column.text ? "" : " number"}`, scope: column.key === "name" ? "row" : null,
        }, column.cell(kernel))));
    }

    /** @param {string} key */
    function sort(key) {
      falling = sorted === key ? !falling : key !== "name";
      sorted = key;
      list();
    }

    function list() {
      const column = /** @type {ColumnOf} */ (columns.find((each) => each.key === sorted));
      const shown = rows.map((_, kernel) => kernel).filter((kernel) => wanted.split(/\s+/).every((word) => found[kernel].includes(word)));
      const values = rows.map((_, kernel) => column.value(kernel));
      shown.sort((a, b) => compared(values[a], values[b], falling) || a - b);
      columns.forEach((each, number) => {
        heads[number].setAttribute("aria-sort", each.key !== sorted ? "none" : falling ? "descending" : "ascending");
      });
      rest.hidden = shown.length <= most;
      rest.textContent = `show ${formatCount(shown.length - most)} more`;
      body.replaceChildren(...shown.slice(0, most).flatMap((kernel) => (kernel === opened ? [lines[kernel], details] : [lines[kernel]])));
      count.textContent = shown.length === rows.length ? `${formatCount(rows.length)} kernels` : `${formatCount(shown.length)} of ${formatCount(rows.length)} kernels`;
    }

    /** @param {number} kernel */
    function open(kernel) {
      opened = kernel;
      lines.forEach((each, number) => {
        each.classList.toggle("open", number === kernel);
        each.querySelector("button")?.setAttribute("aria-expanded", String(number === kernel));
      });
      tooltip.hide();
      if (kernel < 0) details.remove();
      else {
        details.replaceChildren(h("td", { colspan: columns.length, id: "by_kernel-details" }));
        lines[kernel].after(details);
        draw();
        page.select(kernel);
      }
    }

    function draw() {
      const cell = details.firstElementChild;
      if (opened < 0 || !cell || !details.isConnected) return;
      const folded = Array.from(cell.querySelectorAll("details")).map((each) => each.open);
      cell.replaceChildren(...detailsOf(page, data, opened, cell.clientWidth - 20));
      cell.querySelectorAll("details").forEach((each, number) => { each.open = folded[number] ?? each.open; });
    }

    /** @param {KeyboardEvent} event */
    function step(event) {
      const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      const at = lines.indexOf(/** @type {HTMLElement} */ (/** @type {HTMLElement} */ (event.target).closest("tr")));
      if (!by || at < 0) return;
      const shown = Array.from(body.children).filter((each) => each !== details);
      /** @type {HTMLElement|null|undefined} */ (shown[shown.indexOf(lines[at]) + by]?.querySelector("button"))?.focus();
      event.preventDefault();
    }

    return {
      shown: draw,
      reveal(target) {
        if (!rows[target.kernel]) return;
        if (!lines[target.kernel].isConnected) {
          wanted = /** @type {HTMLInputElement} */ (filter).value = "";
          most = Infinity;
          list();
        }
        open(target.kernel);
        lines[target.kernel].scrollIntoView({ block: "start" });
      },
    };
  }

  /** What is not known comes last. @param {any} a @param {any} b @param {boolean} falling */
  function compared(a, b, falling) {
    if (a == null || b == null) return Number(a == null) - Number(b == null);
    const order = typeof a === "string" ? a.localeCompare(b) : a - b;
    return falling ? -order : order;
  }

  /** @param {KernelName} kernel @param {Row} row */
  const searchable = (kernel, row) => [kernelTitle(kernel),
    row.code?.file, row.code?.compiled,
    ...[row.labels, row.places, row.op_kinds].flatMap((list) => list.rows.map((each) => each.text))].join("\n").toLowerCase();

  /** @param {KernelName[]} kernels @param {Data} data @returns {ColumnOf[]} */
  function columnsOf(kernels, data) {
    const { rows } = data;
    /** @param {string} key @param {string} title @param {string} hint @param {string} keep @param {keyof Row} name @returns {ColumnOf} */
    const time = (key, title, hint, keep, name) => ({
      key, title, hint, keep, value: (kernel) => /** @type {number|null} */ (rows[kernel][name]),
      cell: (kernel) => formatTime(/** @type {number|null} */ (rows[kernel][name])),
    });
    return [
      {
        key: "name", title: "kernel", hint: "Name of the kernel", keep: "always name", text: true,
        value: (kernel) => kernelTitle(kernels[kernel]),
        cell: (kernel) => h("button", { type: "button", class: "kernel", "aria-expanded": "false", "aria-controls": "by_kernel-details" },
          swatch(kernel), kernelTitle(kernels[kernel])),
      },
      {
        key: "count", title: "count", hint: "Dispatches that have a time; all that ran, where none has", keep: "wide",
        value: (kernel) => rows[kernel].count || rows[kernel].dispatched,
        cell: (kernel) => formatCount(rows[kernel].count || rows[kernel].dispatched),
      },
      {
        key: "total", title: "total", hint: "Sum of the times", keep: "always",
        value: (kernel) => (rows[kernel].count ? kernels[kernel].total_ns : null),
        cell: (kernel) => formatTime(rows[kernel].count ? kernels[kernel].total_ns : null),
      },
      {
        key: "share", title: "share", hint: "Part of device busy time", keep: "always", value: (kernel) => kernels[kernel].share,
        cell: (kernel) => h("span", { class: "share" }, h("span", { class: "part", "aria-hidden": "true" },
          h("span", { css: { width: `${100 * (kernels[kernel].share || 0)}%`, background: kernelColour(kernel) } })),
        h("span", { class: "percent" }, formatPercent(kernels[kernel].share))),
      },
      data.per === null ? time("per", "mean", "Mean time of a dispatch", "wide", "mean_ns")
        : time("per", `per ${cut(data.per, 14)}`, `Time per instance of the region ${data.per}`, "wide", "per_instance_ns"),
      time("p50", "p50", "Median time of a dispatch", "always", "p50_ns"),
      time("p90", "p90", "90 % of the dispatches took at most this", "widest", "p90_ns"),
      time("p99", "p99", "99 % of the dispatches took at most this", "wide", "p99_ns"),
      time("min", "min", "Shortest dispatch", "widest", "min_ns"),
      time("max", "max", "Longest dispatch", "widest", "max_ns"),
      {
        key: "efficiency", title: "efficiency", keep: "wide",
        hint: "Least time by the ceilings of the device, divided by the time it took. ≤: from bound, not declared bytes",
        value: (kernel) => rows[kernel].rates[0]?.efficiency, cell: (kernel) => efficiency(rows[kernel].rates[0]),
      },
      {
        key: "halving", title: "2× faster saves", hint: "Part of typical command-buffer time that the kernel would save if it were twice as fast; of its first device, if it ran on several", keep: "wide",
        value: (kernel) => rows[kernel].what_ifs[0]?.saved_share, cell: (kernel) => formatPercent(rows[kernel].what_ifs[0]?.saved_share),
      },
      {
        key: "spread", title: "distribution", hint: "Dispatches by time, on a logarithmic axis from min to max. Sorts by p99 / p50", keep: "wide", text: true,
        value: (kernel) => { const { p50_ns, p99_ns } = rows[kernel]; return p50_ns ? (p99_ns || 0) / p50_ns : null; },
        cell: (kernel) => sparkline(data, kernel),
      },
    ];
  }

  /** @param {Rate|undefined} rate */
  const efficiency = (rate) => (rate?.efficiency == null ? "–" : `${rate.is_bound && rate.efficiency ? "≤ " : ""}${formatPercent(rate.efficiency)}`);

  /** @param {Data} data @param {number} kernel */
  function sparkline(data, kernel) {
    const row = data.rows[kernel];
    if (!row.bins_ns) return "";
    const counts = binsOf(data, kernel), most = Math.max(...counts, 1);
    let path = "";
    counts.forEach((count, bin) => { if (count) path += `M${bin * 2 + 1} 18V${(18 - Math.max((count / most) * 17, 1.5)).toFixed(1)}`; });
    return s("svg", {
      class: "sparkline", width: 96, height: 18, viewBox: "0 0 96 18", role: "img",
      "aria-label": `from ${formatTime(row.min_ns)} to ${formatTime(row.max_ns)}, median ${formatTime(row.p50_ns)}`,
    }, s("path", { d: path }));
  }

  /** @param {Data} data @param {number} kernel */
  const binsOf = (data, kernel) => Array.from(data.counts.subarray(kernel * data.bins, (kernel + 1) * data.bins));

  // --- one kernel -------------------------------------------------------------------------------------------------

  /** @param {Page} page @param {Data} data @param {number} kernel @param {number} width @returns {Node[]} */
  function detailsOf(page, data, kernel, width) {
    const row = data.rows[kernel], name = page.data.kernels[kernel];
    const half = width > 900 ? Math.floor((width - 24) / 2) : width;
    return [
      h("div", { class: "actions" },
        row.slowest_ns && page.data.timeline ? button("slowest dispatch in the timeline", () => {
          const [begin_ns, end_ns] = /** @type {[number, number]} */ (row.slowest_ns);
          page.open("timeline", { begin_ns, end_ns, kernel });
        }) : null,
        page.data.roofline ? button("in the roofline", () => page.open("roofline", { kernel })) : null,
        page.data.graph && row.paths.length ? button("in the graph", () => page.open("graph", { kernel })) : null),
      figures(data, row, name),
      row.bins_ns ? h("div", { class: "charts" },
        figure(`Times of ${formatCount(row.count)} dispatches`, durationHistogram({
          width: half, low_ns: row.bins_ns[0], high_ns: row.bins_ns[1], counts: binsOf(data, kernel), what: "dispatches", marks: marksOf(row),
        })),
        seriesOf(data, kernel, half)) : null,
      h("div", { class: "facts" }, why(row), ceilings(row), paths(row), grids(row),
        listed(row.labels.rows.some((each) => each.text.includes("*")) ? "Labels (* stands for a number)" : "Labels", row.labels), listed("Encoded at", row.places), listed("Op kinds", row.op_kinds),
        listed("Function constants", row.constants)),
      row.code ? codeOf(data, row.code, kernelTitle(name)) : null,
    ].filter((node) => node !== null);
  }

  /** @param {string} text @param {() => void} act */
  const button = (text, act) => h("button", { type: "button", onclick: act }, text);

  /** @param {Row} row */
  const marksOf = (row) => [["p50", row.p50_ns], ["p90", row.p90_ns], ["p99", row.p99_ns]].map(
    ([name, at_ns]) => ({ name: String(name), at_ns: Number(at_ns) }));

  /** @param {string} caption @param {...Node} content */
  const figure = (caption, ...content) => h("figure", {}, h("figcaption", {}, caption), ...content);

  /** @param {Data} data @param {Row} row @param {KernelName} name */
  function figures(data, row, name) {
    /** @type {[string, string][]} */
    const facts = [
      ["ran", formatCount(row.dispatched)], ["timed", formatCount(row.count)], ["total", formatTime(row.count ? name.total_ns : null)],
      ["share of busy time", formatPercent(name.share)], ["mean", formatTime(row.mean_ns)], ["p50", formatTime(row.p50_ns)],
      ["p90", formatTime(row.p90_ns)], ["p99", formatTime(row.p99_ns)], ["min", formatTime(row.min_ns)], ["max", formatTime(row.max_ns)],
      ["efficiency", efficiency(row.rates[0])],
    ];
    if (data.per !== null) facts.splice(4, 0, [`per ${data.per}`, formatTime(row.per_instance_ns)]);
    if (row.bounded) facts.push(["upper bounds only", formatCount(row.bounded)]);
    return h("dl", { class: "figures" }, ...facts.map(([term, value]) => h("div", {}, h("dt", {}, term), h("dd", {}, value))));
  }

  /** Times over the recording, in groups of neighbours where there are many. @param {Data} data @param {number} kernel @param {number} width */
  function seriesOf(data, kernel, width) {
    const { first, at_us, median_ns, below_ns, above_ns, aside } = data.series;
    const [begin, end] = [first[kernel], first[kernel + 1]];
    const row = data.rows[kernel];
    const left = 62, top = 12, bottom = 150, right = width - 12;
    const low = Math.max(Math.min(row.min_ns || 1, row.p50_ns || 1), 1), high = Math.max(row.max_ns || 1, low * 1.02);
    const up = durationScale(low, high, bottom, top);
    const across = linearScale(at_us[begin] * 1e3, Math.max(at_us[end - 1] * 1e3, at_us[begin] * 1e3 + 1), left, right, formatTime);
    const grouped = row.count > data.most_points;
    let ranges = "", dots = "", crosses = "", set_aside = 0;
    for (let at = begin; at < end; at++) {
      const x = across(at_us[at] * 1e3).toFixed(1), y = up(Math.max(median_ns[at], low));
      if (grouped) ranges += `M${x} ${up(Math.max(median_ns[at] - below_ns[at], low)).toFixed(1)}V${up(median_ns[at] + above_ns[at]).toFixed(1)}`;
      if (aside[at] === 2) {
        crosses += `M${x} ${y.toFixed(1)}m-3-3l6 6m0-6l-6 6`;
        set_aside++;
      } else dots += `M${x} ${y.toFixed(1)}h0`;
    }
    const each = grouped ? `${formatCount(end - begin)} groups of about ${formatCount(Math.round(row.count / (end - begin)))} dispatches that follow each other: dot: median, line: shortest to longest`
      : "one dot per dispatch";
    const chart = s("svg", {
      width, height: 190, viewBox: `0 0 ${width} 190`, role: "img", class: "series",
      "aria-label": `Times of ${formatCount(row.count)} dispatches over the recording, from ${formatTime(row.min_ns)} to ${formatTime(row.max_ns)}, median ${formatTime(row.p50_ns)}`,
      onpointermove: (/** @type {PointerEvent} */ event) => {
        const x = event.clientX - chart.getBoundingClientRect().left;
        let nearest = begin;
        for (let at = begin; at < end; at++) if (Math.abs(across(at_us[at] * 1e3) - x) < Math.abs(across(at_us[nearest] * 1e3) - x)) nearest = at;
        const range = `${formatTime(median_ns[nearest] - below_ns[nearest])} to ${formatTime(median_ns[nearest] + above_ns[nearest])}`;
        tooltip.show(event.clientX, event.clientY, [formatTime(median_ns[nearest]), grouped ? range : "",
          `at ${formatTime(at_us[nearest] * 1e3)}`, ["", "some in a warm-up or disturbed run", "in a warm-up or disturbed run"][aside[nearest]]].filter(Boolean));
      },
      onpointerleave: () => tooltip.hide(),
    }, leftAxis(up, left, "", right), bottomAxis(across, bottom, "since the beginning", right),
    s("path", { class: "range", d: ranges }), s("path", { class: "dots", d: dots }), s("path", { class: "aside", d: crosses }));
    return figure(`Over the recording: ${each}${set_aside ? "; ×: warm-ups and disturbed runs, which efficiencies and savings leave out" : ""}`, chart);
  }

  /** @param {string} title @param {...(Node|null)} content */
  function section(title, ...content) {
    const given = content.filter((each) => each !== null);
    return given.length ? h("section", {}, h("h3", {}, title), ...given) : null;
  }

  /** @param {string} device @param {{length: number}} all */
  const on = (device, all) => (all.length > 1 ? `On ${device}: ` : "");

  /** @param {Row} row */
  function why(row) {
    return section("Why, and what it would save",
      ...row.suspects.flatMap((suspect) => [
        h("ul", {}, ...suspect.reasons.map((reason) => h("li", {}, on(suspect.device, row.suspects), reason))),
        h("p", {}, on(suspect.device, row.suspects), suspect.saving_ns <= 0 ? "As efficient as the other kernels, it would save nothing."
          : `As efficient as the other kernels, it would save ${suspect.is_bound ? "up to " : "about "}${suspect.saving_share === null
            ? formatTime(suspect.saving_ns) : `${formatPercent(suspect.saving_share)} of ${suspect.parts_of}`}.`)]),
      ...row.what_ifs.map((halved) => h("p", {}, on(halved.device, row.what_ifs), halved.saved_ns === null
        ? "What it would save if it were twice as fast is not known: it competes for a full device, and no replay reproduces how."
        : `Twice as fast, it would save ${formatTime(halved.saved_ns)} (${formatPercent(halved.saved_share)} of ${halved.parts_of}${interval(halved)}).`)));
  }

  /** @param {Halved} halved */
  function interval({ low, high }) {
    if (low === null || high === null || formatPercent(low) === formatPercent(high)) return "";
    return `; 95 % interval ${formatPercent(low)} to ${formatPercent(high)}`;
  }

  /** @param {Row} row */
  function ceilings(row) {
    return section("Against the ceilings", ...row.rates.map((rate) => {
      const intensity = rate.bytes && rate.flops != null ? `${digits(rate.flops / rate.bytes)} flop/B` : "–";
      const upTo = rate.bytes_are_bound ? "≤ " : "";
      /** @type {[string, string][]} */
      const facts = [
        ["bytes per dispatch", rate.bytes === null ? "not known" : upTo + formatSize(rate.bytes)],
        ["flops per dispatch", rate.flops === null ? "not declared" : formatFlops(rate.flops)],
        ["bandwidth", rate.bytes_per_s === null ? "–" : `${upTo}${formatByteRate(rate.bytes_per_s)}${of(rate.copy_bytes_per_s, formatByteRate)}`],
        ["flop rate", rate.flops_per_s === null ? "–" : `${formatFlopRate(rate.flops_per_s)}${of(rate.peak_flops_per_s, formatFlopRate)}`],
        ["intensity", intensity],
        ["efficiency", rate.efficiency === null ? "not known" : `${efficiency(rate)}${rate.nearer ? ` (nearer ceiling: ${rate.nearer})` : ""}`],
      ];
      return h("div", {}, row.rates.length > 1 ? h("h4", {}, rate.device) : null,
        h("table", {}, h("tbody", {}, ...facts.map(([term, value]) => h("tr", {}, h("th", { scope: "row" }, term), h("td", {}, value))))));
    }));
  }

  /** @param {number} count */
  const formatFlops = (count) => scaled(count, [[1e12, "Tflop"], [1e9, "Gflop"], [1e6, "Mflop"], [1e3, "kflop"]], "flop");

  /** @param {number|null} ceiling @param {(rate: number) => string} format */
  const of = (ceiling, format) => (ceiling ? ` of ${format(ceiling)}` : "");

  /** @param {Row} row */
  function paths(row) {
    const several = new Set(row.paths.map((path) => path.device)).size > 1;
    return section("On critical paths", ...row.paths.map((path) => h("p", {},
      h("span", { class: "name" }, path.label || "command list"), several ? ` on ${path.device}` : "",
      `: ${formatCount(path.nodes_on_path)} of ${formatCount(path.nodes)} dispatches are on the path, with ${formatTime(path.on_path_ns)} of ${formatTime(path.wall_ns)} (${formatPercent(path.wall_ns ? path.on_path_ns / path.wall_ns : null)}).`,
      path.nodes_on_path < path.nodes ? path.slack_ns === null ? " The slack of the others is not known."
        : ` The others have a slack of ${formatTime(path.slack_ns)} at least.` : "")));
  }

  /** @param {Row} row */
  function grids(row) {
    if (!row.grids.rows.length) return null;
    return section("Grids", h("table", {},
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "grid"), ...["count", "p50", "total"].map((title) => h("th", { scope: "col", class: "number" }, title)))),
      h("tbody", {}, ...row.grids.rows.map((grid) => h("tr", {}, h("td", {}, grid.grid), h("td", { class: "number" }, formatCount(grid.count)),
        h("td", { class: "number" }, formatTime(grid.p50_ns)), h("td", { class: "number" }, formatTime(grid.total_ns)))))), more(row.grids.more));
  }

  /** @param {string} title @param {List} list */
  function listed(title, list) {
    if (!list.rows.length) return null;
    return section(title, h("table", {}, h("tbody", {}, ...list.rows.map((each) => h("tr", {}, h("td", { class: "name" }, each.text),
      h("td", { class: "number" }, list.rows.length > 1 || (each.part ?? 1) < 0.995 ? formatPercent(each.part) : ""))))), more(list.more));
  }

  /** @param {number} count */
  const more = (count) => (count ? h("p", { class: "note" }, `${formatCount(count)} more`) : null);

  // --- source -----------------------------------------------------------------------------------------------------

  const KEYWORDS = new Set(("kernel template typename struct using namespace inline static const constexpr constant device threadgroup "
    + "thread return if else for while do switch case break continue void bool char uchar short ushort int uint long ulong half float "
    + "bfloat size_t auto true false").split(" "));
  const TOKEN = /\/\/.*|\/\*.*?(?:\*\/|$)|"(?:\\.|[^"\\])*"|\[\[.*?\]\]|^\s*#\s*\w+|[A-Za-z_]\w*|\d[\w.]*/g;

  /** @param {Data} data @param {Code} code @param {string} title */
  function codeOf(data, code, title) {
    const where = code.file ? `${code.file}${code.line ? `:${code.line}` : ""}` : code.line ? `line ${code.line} of a text` : "";
    const digest = code.digest ? `SHA-256 ${code.digest.slice(0, 16)}` : "";
    const facts = h("p", {}, h("span", { class: "name" }, where), " ", h("span", { class: "note" }, [code.compiled ? `included by ${code.compiled}` : "", code.why, digest].filter(Boolean).join("; ")));
    const runs = code.execution ? h("p", {}, "How its threads run: ", code.execution) : null;
    const text = code.text === null ? null : data.texts[code.text];
    if (!text || !code.lines) return section("Source", facts, runs);
    const lines = new TextDecoder().decode(/** @type {Uint8Array} */ (text.text)).split("\n");
    const [first, last] = code.lines;
    const whole = text.whole ? h("details", {
      ontoggle: () => { if (whole && whole.childElementCount === 1) whole.append(listing(lines, 1, code.line, `Whole source of ${title}`)); },
    }, h("summary", {}, `the whole text (${formatCount(lines.length)} lines)`)) : null;
    return section("Source", facts, runs, listing(lines.slice(first - text.first, last - text.first + 1), first, code.line, `Source of ${title}`), whole);
  }

  /** Lines of source with their numbers. @param {string[]} lines @param {number} first @param {number|null} marked @param {string} title */
  function listing(lines, first, marked, title) {
    let inside = false;
    return h("pre", { class: "source", tabindex: "0", role: "region", "aria-label": title, css: { "counter-reset": `line ${first - 1}` } },
      ...lines.flatMap((line, number) => {
        const element = h("span", { class: first + number === marked ? "line marked" : "line" });
        let at = 0;
        if (inside) {
          const end = line.indexOf("*/");
          at = end < 0 ? line.length : end + 2;
          inside = end < 0;
          element.append(h("span", { class: "comment" }, line.slice(0, at)));
        }
        TOKEN.lastIndex = at;
        for (let token = TOKEN.exec(line); token; token = TOKEN.exec(line)) {
          const [word] = token;
          const kind = word.startsWith("//") || word.startsWith("/*") ? "comment" : KEYWORDS.has(word) || /^\s*#/.test(word) ? "keyword" : /^[\d"]/.test(word) ? "literal"
            : word.startsWith("[[") ? "attribute" : "";
          if (word.startsWith("/*") && !word.endsWith("*/")) inside = true;
          if (!kind) continue;
          element.append(line.slice(at, token.index), h("span", { class: kind }, word));
          at = token.index + word.length;
        }
        element.append(line.slice(at));
        return [element, "\n"];
      }));
  }
}
