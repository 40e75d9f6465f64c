// @ts-check
"use strict";
// The view "Graph": a command list as nested boxes in levels, with the critical path. This is what people do with it:
// open and close, select, zoom and pan, and read details. graph_layout.js places the boxes, graph_drawing.js draws them.

/** Where the boxes of the picture are on the screen, for tests. @type {{boxes: () => {box: number, title: string, open: boolean, x: number, y: number, w: number, h: number}[]}} */
const graphView = { boxes: () => [] };

VIEWS.push({
  key: "graph",
  title: "Graph",
  make(panel, page) {
    /** @type {{lists: GraphList[], recorded: number}} */
    const data = page.data.graph;
    const kernels = page.data.kernels;
    const models = data.lists.map(graphModel);
    const opened = models.map((model) => graphOpenTo(model, graphFirstDepth(model)));
    const allWords = models.map((each) => graphWords(each, kernels));
    let chosen = 0, model = models[0], open = opened[0], words = allWords[0];
    let selected = GRAPH_ROOT;
    /** What the selected box waits for, and what waits for it. @type {number[]} */ let waits = [];
    /** @type {number[]} */ let feeds = [];
    /** @type {GraphPlaced} */ let root = { box: GRAPH_ROOT, x: 0, y: 0, w: 0, h: 0, open: true, inside: [], routes: [] };
    /** @type {Map<number, GraphPlaced>} */ let placedAt = new Map();
    const view = { x: 0, y: 0, scale: 1, width: 0, height: 0 };

    // --- elements ---------------------------------------------------------------------------------------------------

    const canvas = /** @type {HTMLCanvasElement} */ (h("canvas", {
      tabindex: "0", role: "application", "aria-roledescription": "graph", "aria-describedby": "graph-keys",
    }));
    const status = h("p", { class: "note", role: "status" });
    const notes = h("div", {});
    const legend = h("p", { class: "note legend" });
    const details = h("div", { class: "details", "aria-live": "polite" });
    const table = h("div", {});
    const depths = /** @type {HTMLSelectElement} */ (h("select", { "aria-label": "Depth", onchange: () => openTo(Number(depths.value)) }));
    const lists = /** @type {HTMLSelectElement} */ (h("select", { onchange: () => choose(Number(lists.value)) },
      ...data.lists.map((list, number) => h("option", { value: number }, listTitle(list)))));
    const button = (/** @type {string} */ text, /** @type {() => void} */ act, /** @type {string} */ label = "") =>
      h("button", { type: "button", onclick: act, "aria-label": label || null }, text);
    panel.append(
      h("div", { class: "controls" },
        h("label", {}, "command list ", lists),
        h("span", { class: "set" }, button("expand all", () => openTo(Infinity)), button("collapse all", () => openTo(1)), depths),
        h("span", { class: "set" }, button("−", () => zoom(1 / 1.3), "zoom out"), button("+", () => zoom(1.3), "zoom in"), button("fit", fit))),
      status,
      h("div", { class: "body" }, h("div", { class: "picture" }, canvas), details),
      legend,
      h("p", { class: "note", id: "graph-keys" },
        "Click or Enter opens and closes a group. Arrow keys move, Backspace closes the group around, + and − zoom, 0 fits, Shift with arrows pans. "
        + "Drag pans; Ctrl and wheel zooms, after a click the wheel alone."),
      notes, table);

    /** @param {GraphList} list */
    function listTitle(list) {
      const share = list.share === null ? "" : ` · ${formatPercent(list.share)} of command-buffer time`;
      const where = new Set(data.lists.map((each) => each.device)).size > 1 ? ` on ${list.device}` : "";
      return `${list.label ? cut(list.label, 60) : "without a label"}${where}${share} · ${graphCounted(list.submissions, "submission")} · ${graphCounted(list.commands, "node")}`;
    }

    // --- what is open, and where it lies ----------------------------------------------------------------------------

    /** @param {number} depth */
    function openTo(depth) {
      open.clear();
      depths.value = depth === Infinity ? "" : String(depth);
      if (depth === Infinity) for (let box = model.nodes; box < model.boxes; box++) open.add(box);
      else for (const box of graphOpenTo(model, depth)) open.add(box);
      place();
      begin();
      describe();
    }

    /** @param {number} box */
    function toggle(box) {
      if (box < model.nodes) return;
      const was = placedAt.get(box);
      if (!open.delete(box)) open.add(box);
      depths.value = "";
      place();
      const is = placedAt.get(box);
      if (was && is) {
        view.x += (was.x - is.x) * view.scale;
        view.y += (was.y - is.y) * view.scale;
      }
      view.x = settled(view.x, root.w * view.scale, view.width);
      view.y = settled(view.y, root.h * view.scale, view.height);
      describe();
      draw();
    }

    /** Where a picture begins so that no room is lost on one side while it is cut off on the other; in the middle if there
     * is room for all of it. @param {number} begin @param {number} size @param {number} room */
    const settled = (begin, size, room) => (size <= room ? (room - size) / 2 : Math.min(Math.max(begin, room - size), 0));

    function place() {
      const aspect = Math.min(Math.max(view.width / Math.max(innerHeight * 0.7, 200), 0.4), 2.4);
      root = graphPlace(model, open, words.sizeOf, words.headOf, aspect);
      placedAt = new Map();
      const visit = (/** @type {GraphPlaced} */ frame) => {
        placedAt.set(frame.box, frame);
        frame.inside.forEach(visit);
      };
      visit(root);
      resize();
      const shown = graphShown(model, open);
      const groups = shown.boxes - shown.nodes;
      status.textContent = `showing ${formatCount(shown.nodes)} of ${graphCounted(model.nodes, "node")}`
        + (groups ? ` and ${graphCounted(groups, "closed group")}` : "");
    }

    function resize() {
      view.width = Math.max(canvas.parentElement?.clientWidth || 0, 100);
      const most = Math.max(Math.round(innerHeight * 0.7), 260);
      const scale = Math.min(1, view.width / Math.max(root.w, 1));
      view.height = Math.min(Math.max(Math.ceil(root.h * scale) + 8, 120), most);
    }

    function fit() {
      view.scale = Math.min(view.width / Math.max(root.w, 1), view.height / Math.max(root.h, 1), 1);
      view.x = (view.width - root.w * view.scale) / 2;
      view.y = (view.height - root.h * view.scale) / 2;
      draw();
    }

    /** Shows everything, or of a picture that would be too small to read its upper part, as wide as the canvas. */
    function begin() {
      fit();
      const wide = Math.min(view.width / Math.max(root.w, 1), 1);
      if (view.scale > GRAPH_READABLE || wide <= GRAPH_READABLE) return;
      Object.assign(view, { scale: wide, x: (view.width - root.w * wide) / 2, y: 0 });
    }

    /** @param {number} factor @param {number} [x] @param {number} [y] on the canvas */
    function zoom(factor, x = view.width / 2, y = view.height / 2) {
      const least = Math.min(view.width / Math.max(root.w, 1), view.height / Math.max(root.h, 1), 1) * 0.7;
      const scale = Math.min(Math.max(view.scale * factor, least), 3);
      view.x = x - ((x - view.x) * scale) / view.scale;
      view.y = y - ((y - view.y) * scale) / view.scale;
      view.scale = scale;
      draw();
    }

    /** @param {number} x @param {number} y */
    function pan(x, y) {
      // Some of the picture always stays in sight.
      const edge = 40;
      view.x = Math.min(Math.max(view.x + x, edge - root.w * view.scale), view.width - edge);
      view.y = Math.min(Math.max(view.y + y, edge - root.h * view.scale), view.height - edge);
      draw();
    }

    /** The box that is drawn for another: itself, or the closed group that it is in. @param {number} box */
    function standsFor(box) {
      let shown = box;
      for (let at = model.list.parent[box]; at >= 0; at = model.list.parent[at]) if (!open.has(at)) shown = at;
      return shown;
    }

    /** @param {number} box */
    function bringIntoSight(box) {
      const placed = placedAt.get(box);
      if (!placed) return;
      const at = graphHandle(placed);
      const left = at.x * view.scale + view.x, top = at.y * view.scale + view.y;
      const right = left + Math.min(at.w * view.scale, view.width - 20), bottom = top + at.h * view.scale;
      view.x += left < 10 ? 10 - left : right > view.width - 10 ? view.width - 10 - right : 0;
      view.y += top < 10 ? 10 - top : bottom > view.height - 10 ? view.height - 10 - bottom : 0;
      draw();
    }

    /** Opens the groups around a node and shows it, large enough to read. @param {number} box */
    function reveal(box) {
      for (let at = model.list.parent[box]; at >= 0; at = model.list.parent[at]) open.add(at);
      place();
      view.scale = Math.max(view.scale, 0.8);
      select(box);
    }

    // --- drawing ----------------------------------------------------------------------------------------------------

    let waiting = 0;
    function draw() {
      cancelAnimationFrame(waiting);
      waiting = requestAnimationFrame(drawNow);
    }

    function drawNow() {
      const context = sized(canvas, view.width, view.height);
      graphDraw(context, { model, words, root, placedAt, view, selected, marked: page.selected(), waits, feeds });
    }

    /** @param {number} box @param {number[][]} neighbours */
    function neighboursOf(box, neighbours) {
      /** @type {Set<number>} */ const shown = new Set();
      const own = new Set(graphMembers(model, box));
      for (const node of own) for (const other of neighbours[node]) if (!own.has(other)) shown.add(standsFor(other));
      return [...shown].sort((a, b) => a - b);
    }

    function summaryText() {
      const { list } = model;
      const path = list.path.length ? `; the critical path has ${graphCounted(list.path.length, "node")} and is listed below` : "";
      const here = selected === GRAPH_ROOT ? "" : `; selected: ${words.titleOf(selected)}, ${words.figuresOf(selected)}`;
      return `Command list ${list.label || "without a label"}, ${graphCounted(model.nodes, "node")}, ${status.textContent}${path}${here}`;
    }

    // --- details ----------------------------------------------------------------------------------------------------

    /** @param {number} box */
    function select(box) {
      selected = box;
      if (box !== GRAPH_ROOT && box < model.nodes && model.list.kernel[box] >= 0) page.select(model.list.kernel[box]);
      describe();
      bringIntoSight(box);
      draw();
    }

    /** @param {number} kernel */
    function kernelButton(kernel) {
      const name = kernelTitle(kernels[kernel]);
      return h("span", {}, swatch(kernel), page.data.by_kernel === undefined ? name
        : h("button", { type: "button", class: "link name", onclick: () => page.open("by_kernel", { kernel }) }, name));
    }

    /** @param {string} label */
    function labelButton(label) {
      if (!label || page.data.labels === undefined) return label || "none";
      return h("button", { type: "button", class: "link", onclick: () => page.open("labels", { label }) }, label);
    }

    /** Buttons that show other boxes. @param {number[]} boxes */
    function boxButtons(boxes) {
      if (!boxes.length) return "nothing";
      const most = 12;
      return h("span", {}, ...boxes.slice(0, most).flatMap((box, number) => [number ? ", " : "",
        h("button", { type: "button", class: "link", onclick: () => select(box) }, cut(words.titleOf(box), 40))]),
        boxes.length > most ? ` and ${formatCount(boxes.length - most)} more` : "");
    }

    /** @param {[string, Node|string|null][]} rows */
    function facts(rows) {
      return h("dl", {}, ...rows.filter(([, value]) => value).flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
    }

    function describe() {
      const { list } = model;
      canvas.setAttribute("aria-label", summaryText());
      [waits, feeds] = [model.before, model.after].map((each) => (selected === GRAPH_ROOT ? [] : neighboursOf(selected, each)));
      if (selected === GRAPH_ROOT) {
        details.replaceChildren(h("h2", {}, list.label || "Command list without a label"), facts([
          ["device", list.device],
          ["submissions", formatCount(list.submissions)],
          ["share", list.share === null ? null : `${formatPercent(list.share)} of command-buffer time`],
          ["wall time", list.wall_ns === null ? "no dispatch of this list has a time" : `${formatTime(list.wall_ns)}, ${list.runs > 1 ? `the median of ${graphCounted(list.runs, "run")}` : "1 run"}`],
          ["critical path", list.execution_ns === null ? null
            : `${graphCounted(list.path.length, "node")}: ${formatTime(list.execution_ns)} running, ${formatTime(list.gap_ns)} between, before and after`
              + (list.wall_ns !== null && list.execution_ns > list.wall_ns ? "; they share a full device and overlap" : "")],
        ]), list.slowest && page.data.timeline !== undefined
          ? h("button", { type: "button", onclick: () => page.open("timeline", list.slowest) }, "slowest run in the timeline") : "",
        h("p", { class: "note" }, "Select a box for its details."));
        return;
      }
      const box = selected, above = list.parent[box];
      const around = above < 0 ? null : h("button", { type: "button", class: "link", onclick: () => { selected = above; toggle(above); } }, `close ${cut(words.titleOf(above), 40)}`);
      if (box < model.nodes) {
        const at = model.pathPlace[box];
        details.replaceChildren(h("h2", {}, words.titleOf(box)), facts([
          ["kernel", list.kernel[box] < 0 ? null : kernelButton(list.kernel[box])],
          ["label", labelButton(list.labels[list.label_of[box]])],
          ["critical path", !list.path.length ? null : at < 0 ? "not on it" : `◆ number ${formatCount(at + 1)} of ${formatCount(list.path.length)} on it`],
          [list.runs > 1 ? "median start" : "start", graphKnown(list.start[box])],
          [list.runs > 1 ? "median duration" : "duration", graphKnown(list.duration[box])],
          ["gap before it", graphKnown(list.gap[box])],
          ["slack", list.slack[box] < 0 ? "not known" : `${formatTime(list.slack[box])}${list.slack[box] ? "" : ": any delay extends the command buffer"}`],
          ["waits for", boxButtons(waits)],
          ["is waited for by", boxButtons(feeds)],
          ["encoded at", list.places[list.place_of[box]]],
        ]), around || "");
        return;
      }
      const closed = !open.has(box);
      details.replaceChildren(h("h2", {}, words.titleOf(box)), facts([
        ["nodes", formatCount(model.count[box])],
        ["alike", list.kind[box] === GRAPH_ALIKE ? `${formatCount(words.alike(box).length)} with the same labels and kernels in the same order` : null],
        ["each takes", list.kind[box] === GRAPH_ALIKE && model.timed ? words.spread(box) : null],
        ["time", model.timed ? `${formatTime(model.busy[box])}, ${formatPercent(model.busy[box] / model.allBusy)} of the list` : "not known"],
        ["critical path", !list.path.length ? null : model.onPath[box] ? `◆ ${graphCounted(model.onPath[box], "node")} on it` : "does not lead through"],
        ["waits for", boxButtons(waits)],
        ["is waited for by", boxButtons(feeds)],
        ["kernels", !model.timed ? null : h("ul", {}, ...words.mixOf(box).slice(0, 8).map(([kernel, ns]) =>
          h("li", {}, kernel < 0 ? "other" : kernelButton(kernel), ` ${formatTime(ns)}, ${formatPercent(ns / Math.max(model.busy[box], 1))}`)),
          words.mixOf(box).length > 8 ? h("li", {}, `and ${formatCount(words.mixOf(box).length - 8)} more`) : null)],
      ]), h("button", { type: "button", onclick: () => toggle(box) }, closed ? "open" : "close"), " ", around || "");
    }

    // --- the critical path as a table -------------------------------------------------------------------------------

    /** What stands below the picture. */
    function fillTable() {
      const { list } = model;
      const first = 100;
      const body = h("tbody", {});
      /** @param {number} from @param {number} to */
      function rows(from, to) {
        for (let at = from; at < to; at++) {
          const node = list.path[at];
          body.append(h("tr", {},
            h("td", { class: "number" }, formatCount(at + 1)),
            h("td", {}, h("button", { type: "button", class: "link", onclick: () => { reveal(node); canvas.scrollIntoView({ block: "nearest" }); } }, cut(words.nodeName(node), 40))),
            h("td", { class: "name" }, list.kernel[node] < 0 ? "" : kernelTitle(kernels[list.kernel[node]])),
            h("td", {}, list.labels[list.label_of[node]]),
            ...[list.start, list.duration, list.gap].map((column) => h("td", { class: "number" }, graphKnown(column[node]))),
            h("td", { class: "number" }, list.slack[node] < 0 ? "not known" : formatTime(list.slack[node]))));
        }
      }
      table.replaceChildren();
      legend.replaceChildren(
        ...(list.path.length ? [h("span", { class: "on-path" }, "◆ thick outline: on the critical path")] : []),
        ...(list.path_depends.includes(0) ? [h("span", {}, "dashed line: waited for a worker, not for a result")] : []),
        ...(list.edge_back.includes(1) ? [h("span", {}, "dotted line: leads back up, between groups that wait for each other")] : []),
        ...(model.timed ? [h("span", {}, "bar of a group: its share of the list, by kernel; of a node: its time next to the longest")] : []));
      notes.replaceChildren(...notesOf(list).map((text) => h("p", { class: "note" }, text)));
      if (!list.path.length) return;
      rows(0, Math.min(first, list.path.length));
      const rest = list.path.length - first;
      const all = h("button", { type: "button", onclick: () => { rows(first, list.path.length); all.remove(); } }, `show ${formatCount(rest)} more`);
      table.append(h("h2", {}, "The critical path in order"), h("div", { class: "scroll" }, h("table", {},
        h("thead", {}, h("tr", {}, ...["#", "node", "kernel", "label", "start", "duration", "gap before", "slack"].map((name, at) =>
          h("th", { scope: "col", class: at === 0 || at > 3 ? "number" : null }, name)))), body)), rest > 0 ? all : "");
    }

    /** @param {GraphList} list */
    function notesOf(list) {
      const left = list.commands - model.nodes;
      return [
        list.path.length ? `Times are ${list.runs > 1 ? `medians of ${graphCounted(list.runs, "run")}` : "those of 1 run"}; the time of a group counts overlapping nodes once.` : "",
        list.wall_ns === null ? "No dispatch of this list has a time, so there is no critical path." : "",
        left ? `The ${formatCount(model.nodes)} nodes encoded first are shown; ${formatCount(left)} more are not.` : "",
        list.barriers ? `Not drawn: ${graphCounted(list.barriers, "barrier")}. What barriers order is drawn.` : "",
        list.implied ? `Not drawn: ${formatCount(list.implied)} ${list.implied === 1 ? "dependency that follows" : "dependencies that follow"} from others.` : "",
        data.recorded > data.lists.length ? `${formatCount(data.lists.length)} of ${formatCount(data.recorded)} command lists are shown: those that ${list.wall_ns === null ? "ran most often" : "took most time"}.` : "",
      ].filter(Boolean);
    }

    // --- what people do ---------------------------------------------------------------------------------------------

    /** @param {number} x @param {number} y on the canvas @returns {number} */
    function hit(x, y) {
      const [worldX, worldY] = [(x - view.x) / view.scale, (y - view.y) / view.scale];
      /** @param {GraphPlaced} frame @returns {number} */
      function within(frame) {
        for (const each of frame.inside) {
          if (worldX < each.x || worldX > each.x + each.w || worldY < each.y || worldY > each.y + each.h) continue;
          if (!each.open) return each.box;
          return worldY <= each.y + GRAPH_HEAD ? each.box : within(each);
        }
        return GRAPH_ROOT;
      }
      return within(root);
    }

    /** @type {Map<number, {x: number, y: number}>} */ const pointers = new Map();
    let moved = 0;
    /** @param {PointerEvent|WheelEvent} event */
    const onCanvas = (event) => ({ x: event.clientX - canvas.getBoundingClientRect().left, y: event.clientY - canvas.getBoundingClientRect().top });
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      canvas.focus({ preventScroll: true });
      pointers.set(event.pointerId, onCanvas(event));
      if (pointers.size === 1) moved = 0;
      tooltip.hide();
    });
    canvas.addEventListener("pointermove", (event) => {
      const at = onCanvas(event), was = pointers.get(event.pointerId);
      if (!was) {
        const box = hit(at.x, at.y);
        canvas.style.setProperty("cursor", box >= model.nodes ? "pointer" : "grab");
        if (box === GRAPH_ROOT) tooltip.hide();
        else tooltip.show(event.clientX, event.clientY, tooltipOf(box));
        return;
      }
      const others = [...pointers].filter(([id]) => id !== event.pointerId).map(([, point]) => point);
      moved += Math.hypot(at.x - was.x, at.y - was.y);
      if (others.length) {
        const other = others[0];
        const before = Math.hypot(was.x - other.x, was.y - other.y), now = Math.hypot(at.x - other.x, at.y - other.y);
        moved += 10;
        if (before > 0) zoom(now / before, (at.x + other.x) / 2, (at.y + other.y) / 2);
      } else if (moved > 4) pan(at.x - was.x, at.y - was.y);
      pointers.set(event.pointerId, at);
    });
    for (const name of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(name, (event) => {
        const { pointerId } = /** @type {PointerEvent} */ (event);
        const at = pointers.get(pointerId);
        pointers.delete(pointerId);
        if (name === "pointercancel" || !at || moved > 4 || pointers.size) return;
        const box = hit(at.x, at.y);
        selected = box;
        if (box >= model.nodes) toggle(box);
        else select(box);
      });
    }
    canvas.addEventListener("pointerleave", () => tooltip.hide());
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return;
      event.preventDefault();
      const at = onCanvas(event);
      if (event.shiftKey) pan(-(event.deltaX || event.deltaY), 0);
      else zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015) * (event.ctrlKey ? 3 : 1)), at.x, at.y);
    }, { passive: false });

    /** @param {number} box */
    function tooltipOf(box) {
      const lines = [words.titleOf(box), words.figuresOf(box)];
      if (model.onPath[box]) lines.push("◆ on the critical path");
      if (box < model.nodes && words.nameOf(box)) lines.push(words.kernelName(model.list.kernel[box]));
      if (box >= model.nodes) lines.push(open.has(box) ? "click to close" : "click to open");
      return lines.filter(Boolean);
    }

    /** @type {Record<string, [number, number]>} */
    const DIRECTIONS = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };

    /** The nearest box in a direction, from the middle of the upper edge of the selected one. @param {number} right @param {number} down */
    function step(right, down) {
      const mine = placedAt.get(selected);
      const all = [...placedAt.values()].filter((each) => each.box !== GRAPH_ROOT);
      if (selected === GRAPH_ROOT || !mine) return all.length ? select(all[0].box) : undefined;
      const middle = (/** @type {GraphPlaced} */ placed) => ({ x: placed.x + placed.w / 2, y: placed.y + graphHandle(placed).h / 2 });
      const from = middle(mine);
      let best = GRAPH_ROOT, least = Infinity;
      for (const each of all) {
        if (each.box === selected) continue;
        const to = middle(each), x = to.x - from.x, y = to.y - from.y;
        const along = x * right + y * down, aside = Math.abs(x * down) + Math.abs(y * right);
        const cost = along + 2 * aside;
        if (along > 2 && cost < least) [best, least] = [each.box, cost];
      }
      if (best !== GRAPH_ROOT) select(best);
    }

    canvas.addEventListener("keydown", (event) => {
      const direction = DIRECTIONS[event.key];
      if (event.ctrlKey || event.altKey || event.metaKey) return;
      if (direction && event.shiftKey) pan(-60 * direction[0], -60 * direction[1]);
      else if (direction) step(...direction);
      else if (event.key === "Enter" || event.key === " ") {
        if (selected >= model.nodes) toggle(selected);
      } else if (event.key === "Escape") select(GRAPH_ROOT);
      else if (event.key === "Backspace") {
        const above = selected === GRAPH_ROOT ? GRAPH_ROOT : model.list.parent[selected];
        if (above < 0) select(GRAPH_ROOT);
        else {
          selected = above;
          if (open.has(above)) toggle(above);
          bringIntoSight(above);
        }
      } else if (event.key === "+" || event.key === "=") zoom(1.3);
      else if (event.key === "-") zoom(1 / 1.3);
      else if (event.key === "0" || event.key === "Home") fit();
      else return;
      event.preventDefault();
    });

    /** @param {number} number */
    function choose(number) {
      [chosen, model, open, words, selected] = [number, models[number], opened[number], allWords[number], GRAPH_ROOT];
      lists.value = String(number);
      let deepest = 1;
      while (deepest < 20 && graphOpenTo(model, deepest + 1).size > graphOpenTo(model, deepest).size) deepest++;
      depths.replaceChildren(h("option", { value: "" }, "depth"), ...Array.from({ length: deepest }, (_, at) => h("option", { value: at + 1 }, `depth ${at + 1}`)));
      depths.value = String(Math.min(graphFirstDepth(model), deepest));
      place();
      begin();
      fillTable();
      describe();
    }

    /** The node of a kernel that takes most time, in the first list that has any. @param {number} kernel */
    function longestOf(kernel) {
      for (let list = 0; list < models.length; list++) {
        const { kernel: of, busy } = models[list].list;
        let node = -1;
        of.forEach((each, at) => { if (each === kernel && (node < 0 || busy[at] > busy[node])) node = at; });
        if (node >= 0) return { list, node };
      }
      return null;
    }

    graphView.boxes = () => [...placedAt.values()].filter((each) => each.box !== GRAPH_ROOT).map((each) => ({
      box: each.box, title: words.titleOf(each.box), open: each.open, x: each.x * view.scale + view.x, y: each.y * view.scale + view.y,
      w: each.w * view.scale, h: graphHandle(each).h * view.scale,
    }));
    page.onSelect(() => draw());
    let lastWidth = 0;
    return {
      shown() {
        const width = canvas.parentElement?.clientWidth || 0;
        if (lastWidth === 0) {
          view.width = width;
          choose(0);
        } else if (width !== lastWidth) {
          view.width = width;
          place();
          begin();
        } else draw();
        lastWidth = width;
      },
      /** `{list, node}`: a node of a list, as numbered in this view; `{kernel}`: the longest node of a kernel. */
      reveal(target) {
        if (target.kernel !== undefined) {
          const busiest = longestOf(target.kernel);
          if (busiest) this.reveal?.(busiest);
          return;
        }
        if (target.list !== chosen) choose(target.list);
        reveal(target.node);
      },
    };
  },
});
