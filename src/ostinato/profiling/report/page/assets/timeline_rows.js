// @ts-check
"use strict";
// What the timeline shows: rows of spans with their colours, what each span is in words, and what waited for what.

/**
 * TimelineColumns of a row beside `begin` and `duration` depend on its kind; see timeline.py.
 * @typedef {{kind: string, begin: Float64Array, duration: Column, [column: string]: any}} TimelineRowData
 * @typedef {{[column: string]: Column}} TimelineColumns
 * @typedef {{
 *   name: string, copy_bytes_per_s: number|null, flops_per_s: number|null, rows: TimelineRowData[],
 *   buffers: TimelineColumns, commands: TimelineColumns, nodes: TimelineColumns, edges: TimelineColumns,
 * }} TimelineDevice
 * @typedef {{
 *   base: number, span_ns: number, devices: TimelineDevice[],
 *   threads: {name: string, process: string, rows: TimelineRowData[]}[],
 *   kinds: string[], names: string[], causes: {name: string, total_ns: number}[], notes: string[],
 * }} TimelineData
 * @typedef {SpanRow & {
 *   kind: string, columns: TimelineRowData, device: TimelineDevice|null, title: string, hits: Uint32Array|null,
 *   behind: SpanRow|null, top: number, height: number,
 * }} TimelineRow
 * @typedef {{row: TimelineRow, span: number}} TimelinePlace
 */

const TIMELINE = (() => {
  // In the order of CAUSES in analyse/timeline.py: a letter, a colour, a pattern. No kernel has such a dull colour, and
  // nothing that ran has a pattern.
  /** @type {[string, string, number][]} */
  const CAUSES = [
    ["L", "#aeb4bc", 5], ["Q", "#8391b5", 3], ["W", "#a3806b", 1], ["E", "#7d9a86", 2], ["C", "#9a7f9e", 4],
    ["S", "#a09a6b", 5], ["T", "#6e8aa0", 4], ["H", "#8f6b6b", 2], ["R", "#9b7fc4", 3], ["?", "#7f868f", 1],
  ];
  const LABELS = ["#b9cbe4", "#cfe3c8", "#f2dcb8", "#dccbe4", "#c6e3e3", "#ebd0d0"];
  /** @type {{[kind: string]: string}} */
  const ACTIVITIES = {
    region: "#b9c2cc", encode: "#7fc8a9", commit: "#5aa2d6", wait: "#cfc3ad", compile: "#dba3c4", setup: "#eee28a",
  };
  const OTHER_ACTIVITY = "#c9c4b8";
  const TITLES = { buffers: "command buffers", idle: "idle, by cause", labels: "labels", dispatches: "dispatches" };
  // Numbers of paints: those of kernels come first.
  const BAR = KERNEL_COLOURS.length + OTHER_COLOURS.length;
  const HATCHED_BAR = BAR + 1, FAILED_BAR = BAR + 2, MISSING = BAR + 3;
  const CAUSE = BAR + 4, LABEL = CAUSE + CAUSES.length, ACTIVITY = LABEL + LABELS.length;

  /** How each kind of span is painted before a background, by the numbers above. @param {string} back */
  function paintsOver(back) {
    // Pastel colours would outshine the dispatches in the dark.
    const dark = textOn(back) === "#ffffff";
    const quiet = (/** @type {string} */ colour) => paintOf(dark ? halfway(colour, back) : colour, back);
    return [
      ...[...KERNEL_COLOURS, ...OTHER_COLOURS].map((colour) => paintOf(colour, back)),
      paintOf("#8d97a5", back), paintOf("#8d97a5", back, HATCHED),
      paintOf("#d1242f", back), paintOf("#a9b0ba", back, HATCHED),
      ...CAUSES.map(([, colour, pattern]) => paintOf(colour, back, pattern)),
      ...[...LABELS, ...Object.values(ACTIVITIES), OTHER_ACTIVITY].map(quiet),
    ];
  }

  // --- rows -----------------------------------------------------------------------------------------------------

  /** All rows, with the colours of their spans. @param {TimelineData} data @returns {TimelineRow[]} */
  function rowsOf(data) {
    /** @type {TimelineRow[]} */ const rows = [];
    /** @param {TimelineRowData} columns @param {TimelineDevice|null} device @param {string} title */
    function add(columns, device, title) {
      const paint = new Uint16Array(columns.begin.length), colour = colourOf(data, columns, device);
      for (let span = 0; span < paint.length; span++) paint[span] = colour(span);
      rows.push({
        kind: columns.kind, columns, device, title, begin: columns.begin, duration: columns.duration, paint,
        sums: runningSums(columns.duration), hits: null, behind: null, top: 0,
        height: columns.kind === "labels" || columns.kind === "idle" ? 15 : 18,
      });
    }
    for (const device of data.devices) {
      for (const row of device.rows) add(row, device, TITLES[/** @type {keyof typeof TITLES} */ (row.kind)]);
      hatchHidden(rows.filter((row) => row.device === device));
    }
    for (const thread of data.threads) {
      const title = thread.process ? `${thread.name} · ${thread.process}` : thread.name;
      for (const row of thread.rows) add(row, null, title);
    }
    return rows;
  }

  /**
   * The number of the paint of each span.
   * @param {TimelineData} data @param {TimelineRowData} columns @param {TimelineDevice|null} device
   * @returns {(span: number) => number}
   */
  function colourOf(data, columns, device) {
    if (columns.kind === "idle") return (span) => CAUSE + columns.cause[span];
    if (columns.kind === "labels") return (span) => LABEL + (columns.name[span] % LABELS.length);
    if (columns.kind === "host") {
      const known = Object.keys(ACTIVITIES);
      const numbers = data.kinds.map((kind) => ACTIVITY + (known.includes(kind) ? known.indexOf(kind) : known.length));
      return (span) => numbers[columns.activity[span]];
    }
    const { buffers, nodes, commands } = /** @type {TimelineDevice} */ (device);
    if (columns.kind === "buffers") {
      return (span) => {
        const bar = columns.buffer[span];
        if (buffers.failed[bar]) return FAILED_BAR;
        const whole = buffers.count[bar] === 1 && buffers.timed[bar] > 0 && buffers.shown[bar] === buffers.timed[bar];
        return whole ? BAR : HATCHED_BAR;
      };
    }
    return (span) => {
      const kernel = commands.kernel[nodes.command[columns.node[span]]];
      if (kernel >= 0 && kernel < KERNEL_COLOURS.length) return kernel;
      return KERNEL_COLOURS.length + (Math.abs(kernel) % OTHER_COLOURS.length);
    };
  }

  /**
   * Hatches the first row of dispatches where command buffers ran of which not all dispatches are shown, so that it
   * does not look idle there.
   * @param {TimelineRow[]} rows of one device
   */
  function hatchHidden(rows) {
    const bars = rows.filter((row) => row.kind === "buffers").flatMap(({ begin, duration, paint }) =>
      Array.from(paint, (number, span) => ({ paint: number, begin: begin[span], end: begin[span] + duration[span] })));
    /** @type {{begin: number, end: number}[]} */ const merged = [];
    for (const bar of bars.filter((each) => each.paint === HATCHED_BAR).sort((a, b) => a.begin - b.begin)) {
      const last = merged[merged.length - 1];
      if (last && bar.begin <= last.end) last.end = Math.max(last.end, bar.end);
      else merged.push({ begin: bar.begin, end: bar.end });
    }
    const first = rows.find((row) => row.kind === "dispatches");
    if (!first || !merged.length) return;
    const begin = Float64Array.from(merged, (each) => each.begin);
    const duration = Float64Array.from(merged, (each) => each.end - each.begin);
    first.behind = { begin, duration, paint: new Uint16Array(begin.length).fill(MISSING), sums: runningSums(duration) };
  }

  // --- dependencies ---------------------------------------------------------------------------------------------

  /** @type {Map<TimelineDevice, {earlier: (node: number) => number[], later: (node: number) => number[]}>} */
  const LISTS = new Map();

  /** Which nodes a node depends on, and which depend on it. @param {TimelineDevice} device */
  function listsOf(device) {
    let lists = LISTS.get(device);
    if (!lists) {
      const { after, back } = device.edges;
      const before = Float64Array.from(after, (node, edge) => node - back[edge]);
      const order = Uint32Array.from(before, (_, edge) => edge).sort((a, b) => before[a] - before[b] || a - b);
      const sorted = Float64Array.from(order, (edge) => before[edge]);
      const equal = (/** @type {ArrayLike<number>} */ values, /** @type {number} */ node) =>
        range(firstFrom(values, node), firstFrom(values, node + 1));
      lists = {
        earlier: (node) => equal(after, node).map((edge) => before[edge]),
        later: (node) => equal(sorted, node).map((edge) => after[order[edge]]),
      };
      LISTS.set(device, lists);
    }
    return lists;
  }

  /** @param {number} from @param {number} to */
  const range = (from, to) => Array.from({ length: to - from }, (_, number) => from + number);

  /**
   * The dispatches that one waited for, the last to end first, and those that waited for it, the first to start first.
   * Dependencies lead through commands that have no time, such as barriers.
   * @param {TimelineRow[]} rows @param {TimelinePlace} place
   */
  function dependenciesOf(rows, place) {
    const device = /** @type {TimelineDevice} */ (place.row.device), { buffers, nodes, commands } = device;
    const bar = place.row.columns.buffer[place.span], complete = buffers.shown[bar] === buffers.timed[bar];
    /** @type {Map<number, TimelinePlace>} */ const shown = new Map();
    for (const row of rows) {
      if (row.device !== device || row.kind !== "dispatches") continue;
      for (let span = 0; span < row.begin.length; span++) {
        if (row.columns.buffer[span] === bar) shown.set(row.columns.node[span], { row, span });
      }
    }
    const lists = listsOf(device);
    /** @param {(node: number) => number[]} direction */
    function reach(direction) {
      const seen = new Set([place.row.columns.node[place.span]]), todo = [...seen];
      /** @type {TimelinePlace[]} */ const reached = [];
      for (let node = todo.pop(); node !== undefined; node = todo.pop()) {
        for (const other of direction(node)) {
          if (seen.has(other)) continue;
          seen.add(other);
          const target = shown.get(other);
          if (target) reached.push(target);
          else if (complete || commands.barrier[nodes.command[other]]) todo.push(other);
        }
      }
      return reached;
    }
    const end = (/** @type {TimelinePlace} */ { row, span }) => row.begin[span] + row.duration[span];
    return {
      before: reach(lists.earlier).sort((a, b) => end(b) - end(a)),
      after: reach(lists.later).sort((a, b) => a.row.begin[a.span] - b.row.begin[b.span]),
    };
  }

  // --- what spans are -------------------------------------------------------------------------------------------

  /** Spans in words. @param {PageData} page */
  function wordsFor(page) {
    /** @type {TimelineData} */
    const data = page.timeline;

    /** @param {number} number of a name */
    const nameOf = (number) => (number < 0 ? "" : data.names[number]);

    /** @param {TimelineDevice} device @param {number} node */
    function commandTitle(device, node) {
      const command = device.nodes.command[node], kernel = device.commands.kernel[command];
      return kernel >= 0 ? kernelTitle(page.kernels[kernel]) : nameOf(device.commands.title[command]);
    }

    /** @param {TimelineDevice} device @param {number} bar */
    function bufferTitle(device, bar) {
      const { count, label, ordinal } = device.buffers;
      if (count[bar] > 1) return `${count[bar]} command buffers`;
      return nameOf(label[bar]) || `command buffer ${ordinal[bar]}`;
    }

    /** @param {TimelineRow} row @param {number} span @returns {string} */
    function titleOf(row, span) {
      const { columns } = row, device = /** @type {TimelineDevice} */ (row.device);
      if (row.kind === "dispatches") return commandTitle(device, columns.node[span]);
      if (row.kind === "buffers") return bufferTitle(device, columns.buffer[span]);
      if (row.kind === "idle") return `idle: ${data.causes[columns.cause[span]].name}`;
      if (row.kind === "labels") return nameOf(columns.name[span]).replace(/^.*\/(?=.)/, "");
      const activity = data.kinds[columns.activity[span]];
      const unnamed = columns.ordinal[span] >= 0 ? `command buffer ${columns.ordinal[span]}` : "";
      const name = nameOf(columns.name[span]) || unnamed;
      return activity === "region" ? name : `${activity} ${name}`.trim();
    }

    /** To the microsecond, since the first moment. @param {number} ns */
    const exactTime = (ns) =>
      `${(ns / 1e6).toLocaleString("en", { minimumFractionDigits: 3, maximumFractionDigits: 3 })} ms`;

    /**
     * Facts in words, the most important first.
     * @param {TimelineRow} row @param {number} span @returns {[string, string][]}
     */
    function factsOf(row, span) {
      const { columns } = row, device = /** @type {TimelineDevice} */ (row.device);
      /** @type {[string, string][]} */
      const facts = [["duration", durationOf(row, span)], ["start", exactTime(row.begin[span])]];
      if (row.kind === "dispatches") facts.push(...dispatchFacts(device, row, span));
      if (row.kind === "buffers") facts.push(...bufferFacts(device, columns.buffer[span]));
      if (row.kind === "labels") facts.push(["label", nameOf(columns.name[span])]);
      if (row.kind === "host") {
        facts.push(["thread", row.title]);
        if (columns.ordinal[span] >= 0) facts.push(["command buffer", String(columns.ordinal[span])]);
      }
      return facts.filter(([, text]) => text);
    }

    /** A time that is only bounded is no measured one. @param {TimelineRow} row @param {number} span */
    function durationOf({ columns, duration }, span) {
      const bounded = columns.bounded && columns.bounded[span];
      if (bounded && !duration[span]) return "shorter than the clock can tell";
      return `${bounded ? "at most " : ""}${formatTime(duration[span])}`;
    }

    /** @param {TimelineDevice} device @param {TimelineRow} row @param {number} span @returns {[string, string][]} */
    function dispatchFacts(device, row, span) {
      const { columns } = row, { commands, nodes, buffers } = device;
      const node = columns.node[span], command = nodes.command[node], bar = columns.buffer[span];
      const amount = (/** @type {string} */ name) => {
        const own = columns[name] ? columns[name][span] : NaN;
        return Number.isNaN(own) ? commands[name][command] : own;
      };
      const [read, written, flops] = ["bytes_read", "bytes_written", "flops"].map(amount);
      const seconds = row.duration[span] / 1e9 || NaN, most = commands.at_most[command] ? "at most " : "";
      const least = columns.bounded && columns.bounded[span] ? "at least " : "";
      // At most so many bytes in at most so much time bound no rate.
      const rate = commands.unknown[command] || (most && least) ? NaN : (read + written) / seconds;
      const flopRate = flops / seconds;
      const efficiency = Math.min(Math.max(
        Number.isNaN(rate) ? 0 : rate / (device.copy_bytes_per_s || Infinity),
        Number.isNaN(flopRate) ? 0 : flopRate / (device.flops_per_s || Infinity)), 1);
      const label = nameOf(buffers.label[bar]);
      const size = (/** @type {Column} */ column) => Array.from(column.slice(3 * command, 3 * command + 3)).join("×");
      const known = (/** @type {number} */ value, /** @type {(value: number) => string} */ format) =>
        Number.isFinite(value) ? format(value) : "";
      return [
        ["label", nameOf(commands.label[command])],
        ["grid", commands.threads[3 * command]
          ? `${size(commands.threads)} threads in groups of ${size(commands.group)}` : ""],
        ["bytes", commands.unknown[command] ? "not known" : known(read + written, (sum) =>
          `${most}${formatSize(sum)} (${formatSize(read)} read, ${formatSize(written)} written)`)],
        ["rate", [
          known(rate, (value) => (most || least) + formatByteRate(value)),
          known(flopRate, (value) => least + formatFlopRate(value)),
        ].filter(Boolean).join(", ")],
        ["efficiency", efficiency > 0 ? `${least || most}${formatPercent(efficiency)}` : ""],
        ["command buffer", `${buffers.ordinal[bar]}${label ? ` (${label})` : ""}, node ${nodes.number[node]}`],
        ["encoded at", nameOf(commands.place[command])],
      ];
    }

    /** @param {TimelineDevice} device @param {number} bar @returns {[string, string][]} */
    function bufferFacts(device, bar) {
      const of = (/** @type {string} */ name) => device.buffers[name][bar];
      if (of("count") > 1) {
        return [
          ["shown", `${formatCount(of("count"))} neighbours as one bar, without their dispatches`],
          ["failed", of("failed") ? `${formatCount(of("failed"))} of them` : ""],
        ];
      }
      const shown = of("shown") === of("timed") ? "" :
        of("shown") ? `; ${formatCount(of("shown"))} are shown, the longest` : "; left out of this page";
      return [
        ["number", String(of("ordinal"))],
        ["dispatches", `${formatCount(of("dispatches"))}, ${formatCount(of("timed"))} timed${shown}`],
        ["queued", of("queue_ns") < 0 ? "" : `${formatTime(of("queue_ns"))} between the commit and the start`],
        ["encoded", of("replay") ? "a replay" : "live"],
        ["not measured", nameOf(of("reason"))],
        ["error", nameOf(of("error"))],
      ];
    }

    /** The kernel of a dispatch; -1 for other spans. @param {TimelineRow} row @param {number} span */
    function kernelOf({ kind, device, columns }, span) {
      return kind === "dispatches" && device ? device.commands.kernel[device.nodes.command[columns.node[span]]] : -1;
    }

    /**
     * Says of a span whether it matches a search. Text is compared once for each name, not for each span.
     * @param {TimelineRow} row @param {string} wanted @returns {(span: number) => boolean}
     */
    function matcher(row, wanted) {
      const has = (/** @type {string} */ text) => text.toLowerCase().includes(wanted);
      const { columns } = row;
      /** @type {Map<number, boolean>} */ const known = new Map();
      const once = (/** @type {number} */ number, /** @type {() => boolean} */ test) => {
        let answer = known.get(number);
        if (answer === undefined) known.set(number, (answer = test()));
        return answer;
      };
      if (row.kind === "dispatches") {
        const device = /** @type {TimelineDevice} */ (row.device);
        return (span) => {
          const node = columns.node[span], command = device.nodes.command[node];
          return once(command, () => has(commandTitle(device, node)) || has(nameOf(device.commands.label[command])));
        };
      }
      if (row.kind === "idle") return (span) => once(columns.cause[span], () => has(titleOf(row, span)));
      if (row.kind === "labels") return (span) => once(columns.name[span], () => has(nameOf(columns.name[span])));
      return (span) => has(titleOf(row, span));
    }

    return { titleOf, factsOf, kernelOf, matcher };
  }

  return { CAUSES, CAUSE, rowsOf, paintsOver, dependenciesOf, wordsFor };
})();
