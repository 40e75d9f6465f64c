// @ts-check
"use strict";
// The view "Labels": the tree of labels as an icicle. Rows are levels of label paths, widths are shares of device busy
// time. A click makes one label as wide as the picture; a table lists what is directly below it.

/**
 * See page/labels.py.
 * @typedef {{
 *   recorded: number, name: string[], parent: Column, share: Column, dispatched: Column, count: Column, total: Column,
 *   per_instance: Column, first: Column, kernel: Column, kernel_ns: Column,
 * }} LabelRows
 * @typedef {{
 *   timed: boolean, in_part: boolean, repeated: string|null, dispatched: number, total_ns: number,
 *   folded: LabelRows, single: LabelRows,
 * }} LabelData
 * @typedef {{row: number, x: number, w: number, depth: number}} LabelCell
 */

/**
 * Where the labels below one are drawn: as wide as their value, side by side below the label that they are part of. The
 * rest of a label's width is its own work. Too narrow ones are left out.
 * @param {number[][]} below the rows directly below each row, those of no row last
 * @param {(row: number) => number} value @param {number} top the row that is as wide as all, -1 for none
 * @param {number} whole the value of everything @param {number} width @param {number} least
 * @returns {{cells: LabelCell[], narrow: number}}
 */
function labelCells(below, value, top, whole, width, least) {
  const all = below.length - 1;
  /** @type {LabelCell[]} */ const cells = [];
  let narrow = 0;
  const scale = width / Math.max(top < 0 ? whole : value(top), 1e-300);
  /** @type {LabelCell[]} */ const waiting = [{ row: top, x: 0, w: width, depth: 0 }];
  while (waiting.length) {
    const cell = /** @type {LabelCell} */ (waiting.pop());
    cells.push(cell);
    let x = cell.x;
    /** @type {LabelCell[]} */ const inside = [];
    for (const row of below[cell.row < 0 ? all : cell.row]) {
      const w = value(row) * scale;
      if (w < least) narrow++;
      else inside.push({ row, x, w, depth: cell.depth + 1 });
      x += w;
    }
    waiting.push(...inside.reverse());
  }
  return { cells, narrow };
}

VIEWS.push({
  key: "labels",
  title: "Labels",
  make(panel, page) {
    /** @type {LabelData} */ const data = page.data.labels;
    const kernels = page.data.kernels;
    if (!data.single.name.length) {
      panel.append(
        h("p", {}, "Nothing in this recording has a label, so there is no tree of labels."),
        h("p", {}, "Labels say which part of a program a dispatch belongs to. A scope of the encoder labels all that is encoded in it; scopes may be nested:"),
        h("pre", { class: "scroll" }, 'with enc.scope("decode"):\n    for number in range(layers):\n        with enc.scope(f"layer.{number}"), enc.scope("attention"):\n            enc.dispatch(kernel, …)'));
      return {};
    }
    const ROW = 34;
    let folded = data.folded.name.length < data.single.name.length;
    let rows = folded ? data.folded : data.single;
    /** @type {number[][]} */ let below = [];
    let top = -1, selected = -1, width = 0;

    const crumbs = h("nav", { class: "crumbs", "aria-label": "Labels around" });
    const tree = s("svg", { role: "tree", onkeydown: key });
    const details = h("div", { class: "details", "aria-live": "polite" });
    const table = h("div", {});
    const notes = h("p", { class: "note" });
    const box = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox", onchange: () => fold(box.checked) }));
    box.checked = folded;
    panel.append(
      h("div", { class: "controls" }, h("label", {}, box, " numbers folded (layer.*)"), crumbs),
      h("div", { class: "body" }, h("div", { class: "picture" }, tree), details), notes, table);

    /** @param {number} row */
    const value = (row) => (data.timed ? rows.share[row] : rows.dispatched[row] / data.dispatched);
    /** @param {number} row */
    const nameOf = (row) => (row < 0 ? "all work" : rows.name[row]);
    /** @param {number} row @returns {number[]} */
    const pathOf = (row) => (row < 0 ? [] : [...pathOf(rows.parent[row]), row]);
    /** @param {number} row */
    const under = (row) => below[row < 0 ? rows.name.length : row];

    /** @param {boolean} on */
    function fold(on) {
      folded = on;
      rows = on ? data.folded : data.single;
      below = Array.from({ length: rows.name.length + 1 }, () => []);
      rows.parent.forEach((parent, row) => below[parent < 0 ? rows.name.length : parent].push(row));
      zoom(-1);
    }

    /** The kernels below a label with their times, the longest first. @param {number} row @returns {[number, number][]} */
    function mixOf(row) {
      if (row < 0) return kernels.map((kernel, number) => [number, kernel.total_ns]);
      /** @type {[number, number][]} */ const mix = [];
      for (let at = rows.first[row]; at < rows.first[row + 1]; at++) mix.push([rows.kernel[at], rows.kernel_ns[at]]);
      return mix;
    }

    /** @param {number} row @returns {[string, string][]} */
    function figures(row) {
      const dispatched = row < 0 ? data.dispatched : rows.dispatched[row];
      /** @type {[string, string][]} */ const made = [["dispatches", formatCount(dispatched)]];
      if (!data.timed) return made;
      if (row >= 0 && rows.count[row] !== dispatched) made.push(["timed", formatCount(rows.count[row])]);
      made.push(["total", formatTime(row < 0 ? data.total_ns : rows.total[row])]);
      made.push(["share of busy time", formatPercent(row < 0 ? 1 : rows.share[row])]);
      if (data.repeated !== null && row >= 0 && rows.per_instance[row] >= 0) made.push([`per ${data.repeated}`, formatTime(rows.per_instance[row])]);
      return made;
    }

    /** Makes a label as wide as the picture. @param {number} row @param {boolean} [focus] */
    function zoom(row, focus = false) {
      top = selected = row;
      crumbs.replaceChildren(...[-1, ...pathOf(row)].flatMap((each, at) => [at ? " / " : "", each === row
        ? h("strong", { "aria-current": "true" }, cut(nameOf(each), 60))
        : h("button", { type: "button", class: "link", onclick: () => zoom(each) }, cut(nameOf(each), 60))]));
      draw();
      fillTable();
      select(row, focus);
    }

    /** @param {number} row @param {boolean} focus */
    function select(row, focus) {
      selected = row;
      for (const item of tree.querySelectorAll("[role=treeitem]")) {
        const mine = Number(/** @type {SVGElement} */ (item).dataset.row) === row;
        item.setAttribute("tabindex", mine ? "0" : "-1");
        item.setAttribute("aria-selected", String(mine));
        if (mine && focus) /** @type {SVGElement} */ (item).focus();
      }
      const mix = mixOf(row), spent = mix.reduce((sum, [, ns]) => sum + ns, 0);
      details.replaceChildren(
        h("h2", {}, row < 0 ? "all work" : pathOf(row).map(nameOf).join("/")),
        h("dl", {}, ...figures(row).flatMap(([name, text]) => [h("dt", {}, name), h("dd", {}, text)])),
        data.timed ? h("ul", {}, ...mix.slice(0, 9).map(([kernel, ns]) => h("li", {}, kernelName(kernel), ` ${formatTime(ns)}, ${formatPercent(ns / Math.max(spent, 1))}`)),
          mix.length > 9 ? h("li", {}, `and ${formatCount(mix.length - 9)} more`) : null) : "");
    }

    /** @param {number} kernel */
    function kernelName(kernel) {
      if (kernel < 0) return h("span", {}, "other kernels");
      const name = kernelTitle(kernels[kernel]);
      return h("span", {}, swatch(kernel), page.data.by_kernel === undefined ? name
        : h("button", { type: "button", class: "link name", onclick: () => page.open("by_kernel", { kernel }) }, name));
    }

    function draw() {
      width = Math.max(tree.parentElement?.clientWidth || 0, 100);
      const { cells, narrow } = labelCells(below, value, top, 1, width, 1.5);
      const deep = Math.max(...cells.map((cell) => cell.depth)) + 1;
      const around = pathOf(top).length;
      tree.setAttribute("width", String(width));
      tree.setAttribute("height", String(deep * ROW));
      tree.setAttribute("aria-label", `Tree of labels below ${nameOf(top)}: ${formatCount(cells.length - 1)} drawn, ${data.timed ? "as wide as their share of busy time" : "as wide as their number of dispatches"}`);
      tree.replaceChildren(...cells.map((cell) => drawn(cell, around)));
      const total = rows.name.length;
      notes.textContent = [
        data.timed ? "Widths are shares of device busy time; overlapping dispatches split it evenly." : "Nothing has a time, so widths are numbers of dispatches.",
        "Width that no label below takes is a label's own work, at the right" + (top < 0 ? "; in the first row, work without a label." : "."),
        data.in_part ? "Dispatches took turns at being timed: totals are of the timed ones, shares of all." : "",
        narrow ? `Too narrow to draw here: ${formatCount(narrow)} of the labels; a click on the one above shows them.` : "",
        rows.recorded > total ? `The ${formatCount(total)} largest of ${formatCount(rows.recorded)} labels are here.` : "",
        "Click or Enter: a label as wide as the picture. Arrow keys: up, down and beside. Backspace: back.",
      ].filter(Boolean).join(" ");
    }

    /** @param {LabelCell} cell @param {number} around */
    function drawn(cell, around) {
      const { row, x, w, depth } = cell;
      const mix = data.timed ? mixOf(row) : [];
      const spent = mix.reduce((sum, [, ns]) => sum + ns, 0) || 1;
      const room = Math.floor((w - 10) / 7);
      const share = data.timed ? formatPercent(row < 0 ? 1 : value(row)) : formatCount(row < 0 ? data.dispatched : rows.dispatched[row]);
      const text = room > nameOf(row).length + share.length + 2 ? `${nameOf(row)}  ${share}` : room >= 3 ? cut(nameOf(row), room) : "";
      let left = x + 0.5;
      const strip = mix.map(([kernel, ns]) => {
        const part = Math.max((w - 1) * (ns / spent), 0);
        const made = part < 0.3 ? null : s("rect", { x: left, y: depth * ROW + ROW - 9, width: part, height: 6, fill: kernelColour(kernel) });
        left += part;
        return made;
      });
      return s("g", {
        role: "treeitem", tabindex: "-1", "data-row": row, "aria-level": around + depth + 1,
        "aria-expanded": under(row).length ? "true" : null, "aria-selected": "false",
        "aria-label": `${nameOf(row)}: ${figures(row).map(([name, figure]) => `${figure} ${name}`).join(", ")}`,
        onclick: () => zoom(row, true), onfocus: () => { if (selected !== row) select(row, false); },
        onpointermove: (/** @type {PointerEvent} */ event) => tooltip.show(event.clientX, event.clientY, [
          nameOf(row), ...figures(row).map(([name, figure]) => `${name}: ${figure}`),
          ...mix.slice(0, 3).map(([kernel, ns]) => `${kernel < 0 ? "other kernels" : kernelTitle(kernels[kernel])}: ${formatPercent(ns / spent)}`)]),
        onpointerleave: () => tooltip.hide(),
      },
      s("rect", { class: "cell", x: x + 0.5, y: depth * ROW + 1, width: Math.max(w - 1, 0.5), height: ROW - 2, rx: Math.min(3, w / 4) }),
      ...strip,
      text ? s("text", { x: x + 6, y: depth * ROW + 18 }, text) : null);
    }

    /** @param {KeyboardEvent} event */
    function key(event) {
      const parent = selected < 0 ? -1 : rows.parent[selected];
      const beside = selected < 0 ? [-1] : under(parent);
      const at = beside.indexOf(selected);
      /** @param {number|undefined} row */
      const go = (row) => {
        if (row === undefined) return;
        if (tree.querySelector(`[data-row="${row}"]`)) select(row, true);
        else zoom(row < 0 ? -1 : rows.parent[row], false), select(row, true);
      };
      if (event.key === "ArrowDown") go(under(selected)[0]);
      else if (event.key === "ArrowUp") go(parent);
      else if (event.key === "ArrowLeft") go(beside[at - 1]);
      else if (event.key === "ArrowRight") go(beside[at + 1]);
      else if (event.key === "Home") zoom(-1, true);
      else if (event.key === "Enter" || event.key === " ") zoom(selected, true);
      else if (event.key === "Backspace" || event.key === "Escape") zoom(top < 0 ? -1 : rows.parent[top], true);
      else return;
      event.preventDefault();
    }

    function fillTable() {
      const first = 60, children = under(top);
      const body = h("tbody", {});
      /** @param {number[]} some */
      const add = (some) => body.append(...some.map((row) => h("tr", {},
        h("td", {}, h("button", { type: "button", class: "link", onclick: () => zoom(row) }, rows.name[row])),
        ...figuresOf(row).map((text) => h("td", { class: "number" }, text)),
        h("td", { class: "name" }, ...mixOf(row).slice(0, 1).map(([kernel]) => kernelName(kernel))))));
      add(children.slice(0, first));
      const more = h("button", { type: "button", onclick: () => { add(children.slice(first)); more.remove(); } }, `show ${formatCount(children.length - first)} more`);
      const headings = ["label", "dispatches", ...(data.timed ? ["total", "share", ...(data.repeated === null ? [] : [`per ${data.repeated}`])] : []), data.timed ? "main kernel" : ""];
      table.replaceChildren(h("h2", {}, `Directly below ${cut(nameOf(top), 60)}`), children.length ? h("div", { class: "scroll" }, h("table", {},
        h("thead", {}, h("tr", {}, ...headings.map((name, at) => h("th", { scope: "col", class: at && at < headings.length - 1 ? "number" : null }, name)))), body))
        : h("p", { class: "note" }, "No label is below this one."), children.length > first ? more : "");
    }

    /** @param {number} row */
    function figuresOf(row) {
      const plain = [formatCount(rows.dispatched[row])];
      if (!data.timed) return plain;
      plain.push(formatTime(rows.total[row]), formatPercent(rows.share[row]));
      return data.repeated === null ? plain : [...plain, rows.per_instance[row] < 0 ? "–" : formatTime(rows.per_instance[row])];
    }

    return {
      shown() {
        if (!below.length) fold(folded);
        else if (tree.parentElement?.clientWidth !== width) {
          draw();
          select(selected, false);
        }
      },
      /** `{label}`: a label path as recorded. */
      reveal(target) {
        let row = -1;
        box.checked = false;
        fold(false);
        for (const part of String(target.label).split("/")) {
          const next = under(row).find((each) => rows.name[each] === part);
          if (next === undefined) break;
          row = next;
        }
        zoom(row);
      },
    };
  },
});
