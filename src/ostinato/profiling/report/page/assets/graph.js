// @ts-check
"use strict";
// The view "Graph": a command list as nested boxes in levels, with the critical path. Which boxes there are, their
// levels and the edges between them come from Python (analyse/label_tree.py, analyse/layering.py); which groups are
// open, where boxes lie and what is in sight is decided here. Boxes are drawn on a canvas, those in sight alone.

/**
 * See page/graph.py.
 * @typedef {{
 *   label: string, device: string, submissions: number, share: number|null, wall_ns: number|null,
 *   execution_ns: number|null, gap_ns: number|null, commands: number, barriers: number, implied: number,
 *   kernel: Column, label_of: Column, labels: string[], place_of: Column, places: string[],
 *   start: Column, duration: Column, busy: Column, gap: Column, slack: Column,
 *   path: Column, path_before: Column, path_after: Column, path_depends: Column, before: Column, after: Column,
 *   parent: Column, kind: Column, name_of: Column, names: string[], level: Column, place: Column,
 *   edge_before: Column, edge_after: Column, edge_count: Column, edge_back: Column,
 * }} GraphList
 * @typedef {"curve"|"lane"|"line"} GraphShape down to the next level; around what lies between; straight
 * @typedef {{before: number, after: number, count: number, back: boolean, path: boolean, depends: boolean}} GraphEdge
 * @typedef {{
 *   list: GraphList, nodes: number, boxes: number, inside: number[][], edges: GraphEdge[][], count: Uint32Array,
 *   busy: Float64Array, onPath: Uint32Array, depth: Uint8Array, timed: boolean, allBusy: number, mostBusy: number,
 *   before: number[][], after: number[][], pathPlace: Int32Array,
 * }} GraphModel
 * @typedef {{box: number, x: number, y: number, w: number, h: number, open: boolean, inside: GraphPlaced[], routes: GraphRoute[]}} GraphPlaced
 * @typedef {{edge: GraphEdge, points: number[], shape: GraphShape, left: number, top: number, right: number, bottom: number}} GraphRoute
 */

const GRAPH_NODE = 0, GRAPH_ALIKE = 2, GRAPH_STRETCH = 3;
const GRAPH_ROOT = -1;
/** Where the boxes of the picture are on the screen, for tests. @type {{boxes: () => {box: number, title: string, open: boolean, x: number, y: number, w: number, h: number}[]}} */
const graphView = { boxes: () => [] };

/** Sums and neighbours of all boxes of a list; what is in no group is inside the last one. @param {GraphList} list @returns {GraphModel} */
function graphModel(list) {
  const nodes = list.kernel.length, boxes = list.parent.length;
  const inside = Array.from({ length: boxes + 1 }, () => /** @type {number[]} */ ([]));
  const edges = Array.from({ length: boxes + 1 }, () => /** @type {GraphEdge[]} */ ([]));
  const count = new Uint32Array(boxes + 1), onPath = new Uint32Array(boxes + 1), depth = new Uint8Array(boxes + 1);
  const busy = new Float64Array(boxes + 1);
  const above = (/** @type {number} */ box) => (list.parent[box] < 0 ? boxes : list.parent[box]);
  const pathPlace = new Int32Array(nodes).fill(-1);
  list.path.forEach((node, place) => { pathPlace[node] = place; });
  let mostBusy = 0;
  for (let node = 0; node < nodes; node++) {
    mostBusy = Math.max(mostBusy, list.busy[node]);
    for (let box = node; ; box = above(box)) {
      count[box]++;
      busy[box] += Math.max(list.busy[node], 0);
      if (pathPlace[node] >= 0) onPath[box]++;
      if (box === boxes) break;
    }
  }
  for (let box = 0; box < boxes; box++) {
    inside[above(box)].push(box);
    for (let at = box; at !== boxes; at = above(at)) depth[box]++;
  }
  for (const each of inside) each.sort((a, b) => list.level[a] - list.level[b] || list.place[a] - list.place[b]);
  /** @type {Map<number, GraphEdge>} */ const known = new Map();
  /** @param {number} before @param {number} after @param {boolean} back */
  function edge(before, after, back) {
    const key = before * boxes + after;
    let made = known.get(key);
    if (!made) {
      made = { before, after, count: 0, back, path: false, depends: true };
      known.set(key, made);
      edges[above(before)].push(made);
    }
    return made;
  }
  list.edge_before.forEach((before, at) => {
    edge(before, list.edge_after[at], Boolean(list.edge_back[at])).count = list.edge_count[at];
  });
  list.path_before.forEach((before, at) => {
    const made = edge(before, list.path_after[at], false);
    made.path = true;
    if (made.count === 0 && !list.path_depends[at]) made.depends = false;
  });
  const neighbours = [list.before, list.after].map(() => Array.from({ length: nodes }, () => /** @type {number[]} */ ([])));
  list.before.forEach((before, at) => {
    neighbours[0][list.after[at]].push(before);
    neighbours[1][before].push(list.after[at]);
  });
  return {
    list, nodes, boxes, inside, edges, count, busy, onPath, depth, timed: busy[boxes] > 0, allBusy: busy[boxes], mostBusy,
    before: neighbours[0], after: neighbours[1], pathPlace,
  };
}

/** The nodes in a box. @param {GraphModel} model @param {number} box @returns {number[]} */
function graphMembers(model, box) {
  if (box < model.nodes) return [box];
  return model.inside[box].flatMap((each) => graphMembers(model, each));
}

/** The groups that are open down to a depth; those that are alike stay folded. @param {GraphModel} model @param {number} most */
function graphOpenTo(model, most) {
  /** @type {Set<number>} */ const open = new Set();
  /** @param {number} box @param {number} depth */
  function visit(box, depth) {
    if (depth > most) return;
    for (const each of model.inside[box]) {
      if (each < model.nodes || model.list.kind[each] === GRAPH_ALIKE || depth === most) continue;
      open.add(each);
      visit(each, depth + 1);
    }
  }
  visit(model.boxes, 1);
  return open;
}

/** How many boxes are drawn, and how many of them are nodes. @param {GraphModel} model @param {Set<number>} open */
function graphShown(model, open) {
  let boxes = 0, nodes = 0;
  /** @param {number} box */
  function visit(box) {
    for (const each of model.inside[box]) {
      if (open.has(each)) visit(each);
      else {
        boxes++;
        if (each < model.nodes) nodes++;
      }
    }
  }
  visit(model.boxes);
  return { boxes, nodes };
}

/** The groups to open at first: as deep as about 60 boxes allow. @param {GraphModel} model */
function graphFirstDepth(model) {
  let depth = 1;
  for (let next = 2; next <= 24; next++) if (graphShown(model, graphOpenTo(model, next)).boxes <= 60) depth = next;
  while (depth > 1 && graphOpenTo(model, depth).size === graphOpenTo(model, depth - 1).size) depth--;
  return depth;
}

const GRAPH_GAP_X = 14, GRAPH_GAP_Y = 24, GRAPH_PAD = 12, GRAPH_HEAD = 26, GRAPH_LANE = 8, GRAPH_LANES = 5, GRAPH_WIDEST = 1100;

/**
 * Puts the boxes of open groups side by side in levels, from top to bottom. A group that would be too tall goes on in
 * another column, to the right.
 * @param {GraphModel} model @param {Set<number>} open @param {(box: number) => [number, number]} sizeOf of a closed box
 * @param {(box: number) => number} headOf the width of the heading of an open one
 * @param {number} aspect wanted, width by height
 * @returns {GraphPlaced}
 */
function graphPlace(model, open, sizeOf, headOf, aspect) {
  /** @param {number} box @returns {GraphPlaced} */
  function placed(box) {
    const key = box === GRAPH_ROOT ? model.boxes : box;
    if (box !== GRAPH_ROOT && !open.has(box)) {
      const [w, h] = sizeOf(box);
      return { box, x: 0, y: 0, w, h, open: false, inside: [], routes: [] };
    }
    const inside = model.inside[key].map(placed);
    const made = { box, x: 0, y: 0, w: 0, h: 0, open: true, inside, routes: /** @type {GraphRoute[]} */ ([]) };
    arrange(made, key);
    return made;
  }

  /** The boxes of a group by level; a level that is very wide takes several lines. @param {GraphPlaced[]} inside */
  function linesOf(inside) {
    /** @type {GraphPlaced[][]} */ const lines = [];
    let level = -1, width = 0;
    for (const each of inside) {
      if (model.list.level[each.box] !== level || width + each.w > GRAPH_WIDEST) {
        lines.push([]);
        width = 0;
      }
      level = model.list.level[each.box];
      width += each.w + GRAPH_GAP_X;
      lines[lines.length - 1].push(each);
    }
    return lines;
  }

  /** @param {GraphPlaced} frame @param {number} key */
  function arrange(frame, key) {
    const rows = linesOf(frame.inside);
    const rowOf = new Map(rows.flatMap((row, number) => row.map((each) => [each.box, number])));
    const heights = rows.map((row) => Math.max(...row.map((each) => each.h)));
    const widths = rows.map((row) => row.reduce((sum, each) => sum + each.w + GRAPH_GAP_X, -GRAPH_GAP_X));
    const total = heights.reduce((sum, height) => sum + height + GRAPH_GAP_Y, 0);
    const wide = Math.max(...widths) + 60;
    const columns = total < 480 ? 1 : Math.min(Math.max(Math.round(Math.sqrt((aspect * total) / wide)), 1), rows.length);
    const columnOf = /** @type {number[]} */ ([]);
    let reached = 0;
    heights.forEach((height, row) => {
      columnOf[row] = Math.min(Math.floor((reached + height / 2) / (total / columns)), columns - 1);
      reached += height + GRAPH_GAP_Y;
    });
    const columnWidth = new Array(columns).fill(0), lanes = new Array(columns).fill(0);
    widths.forEach((width, row) => { columnWidth[columnOf[row]] = Math.max(columnWidth[columnOf[row]], width); });
    const head = frame.box === GRAPH_ROOT ? 0 : GRAPH_HEAD;

    // Within a column first: which edges are straight depends on that alone.
    const tops = /** @type {number[]} */ ([]);
    const below = new Array(columns).fill(head + GRAPH_PAD);
    rows.forEach((row, number) => {
      const column = columnOf[number];
      tops[number] = below[column];
      let x = -widths[number] / 2;
      for (const each of row) {
        each.x = x;
        each.y = tops[number];
        x += each.w + GRAPH_GAP_X;
      }
      below[column] += heights[number] + GRAPH_GAP_Y;
    });
    const at = new Map(frame.inside.map((each) => [each.box, each]));
    const routed = model.edges[key].map((edge) => {
      const from = /** @type {GraphPlaced} */ (at.get(edge.before)), to = /** @type {GraphPlaced} */ (at.get(edge.after));
      const [rowFrom, rowTo] = [Number(rowOf.get(edge.before)), Number(rowOf.get(edge.after))];
      const [low, high] = [from.x + from.w / 2, to.x + to.w / 2].sort((a, b) => a - b);
      let direct = columnOf[rowFrom] === columnOf[rowTo] && rowTo > rowFrom;
      for (let row = rowFrom + 1; direct && row < rowTo; row++) {
        direct = rows[row].every((each) => each.x > high + 3 || each.x + each.w < low - 3);
      }
      /** @type {GraphShape} */
      const shape = !edge.depends && rowTo <= rowFrom + 1 ? "line" : direct ? "curve" : "lane";
      const lane = shape === "lane" ? lanes[columnOf[rowFrom]]++ % GRAPH_LANES : 0;
      return { edge, from, to, rowFrom, rowTo, shape, lane };
    });
    const lefts = /** @type {number[]} */ ([]);
    let x = GRAPH_PAD;
    for (let column = 0; column < columns; column++) {
      lefts[column] = x;
      x += columnWidth[column] + (lanes[column] ? GRAPH_GAP_X + Math.min(lanes[column], GRAPH_LANES) * GRAPH_LANE : 0);
      x += column < columns - 1 ? GRAPH_GAP_X : 0;
    }
    // A heading may be wider than what is below it, which then goes to the middle.
    const width = Math.max(x + GRAPH_PAD, head ? headOf(frame.box) : 0);
    const spare = (width - x - GRAPH_PAD) / 2;
    rows.forEach((row, number) => {
      const column = columnOf[number];
      for (const each of row) each.x += lefts[column] + columnWidth[column] / 2 + spare;
    });
    for (const { edge, from, to, rowFrom, rowTo, shape, lane } of routed) {
      const [x1, y1, x2, y2] = [from.x + from.w / 2, from.y + from.h, to.x + to.w / 2, to.y];
      const out = tops[rowFrom] + heights[rowFrom] + 6 + 2 * lane, into = tops[rowTo] - 6 - 2 * lane;
      const column = columnOf[rowFrom];
      const across = lefts[column] + columnWidth[column] + GRAPH_GAP_X / 2 + spare + lane * GRAPH_LANE;
      const beside = [from.x < to.x ? from.x + from.w : from.x, from.y + from.h / 2, from.x < to.x ? to.x : to.x + to.w, to.y + to.h / 2];
      const points = shape === "curve" ? [x1, y1, x2, y2] : shape === "lane" ? [x1, y1, x1, out, across, out, across, into, x2, into, x2, y2]
        : rowFrom === rowTo ? beside : [x1, from.y + from.h / 2, x2, rowTo > rowFrom ? y2 : y2 + to.h];
      frame.routes.push({ edge, points, shape, left: 0, top: 0, right: 0, bottom: 0 });
    }
    frame.w = width;
    frame.h = Math.max(...below) - GRAPH_GAP_Y + GRAPH_PAD;
  }

  /** @param {GraphPlaced} frame @param {number} x @param {number} y */
  function shift(frame, x, y) {
    frame.x += x;
    frame.y += y;
    for (const route of frame.routes) {
      route.points = route.points.map((value, at) => value + (at % 2 ? frame.y : frame.x));
      const xs = route.points.filter((_, at) => at % 2 === 0), ys = route.points.filter((_, at) => at % 2 === 1);
      [route.left, route.right, route.top, route.bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    }
    for (const each of frame.inside) shift(each, frame.x, frame.y);
  }

  const root = placed(GRAPH_ROOT);
  shift(root, 0, 0);
  return root;
}

VIEWS.push({
  key: "graph",
  title: "Graph",
  make(panel, page) {
    /** @type {{lists: GraphList[], recorded: number}} */
    const data = page.data.graph;
    const kernels = page.data.kernels;
    const models = data.lists.map(graphModel);
    const opened = models.map((model) => graphOpenTo(model, graphFirstDepth(model)));
    let chosen = 0, model = models[0], open = opened[0];
    let selected = GRAPH_ROOT;
    /** @type {GraphPlaced} */ let root = { box: GRAPH_ROOT, x: 0, y: 0, w: 0, h: 0, open: true, inside: [], routes: [] };
    /** @type {Map<number, GraphPlaced>} */ let placedAt = new Map();
    const view = { x: 0, y: 0, scale: 1, width: 0, height: 0 };

    // --- what boxes say ---------------------------------------------------------------------------------------------

    const measuring = /** @type {CanvasRenderingContext2D} */ (document.createElement("canvas").getContext("2d"));
    const FONT = "12px system-ui, sans-serif", BOLD = "600 12px system-ui, sans-serif";
    /** @type {Map<string, number>} */ const measured = new Map();
    /** @param {string} text @param {string} font */
    function widthOf(text, font) {
      const key = font + text;
      let width = measured.get(key);
      if (width === undefined) {
        measuring.font = font;
        measured.set(key, (width = measuring.measureText(text).width));
      }
      return width;
    }
    /** @param {number} kernel */
    const kernelName = (kernel) => (kernel < 0 ? "" : kernelTitle(kernels[kernel]));
    /** @param {number} box */
    const nameOf = (box) => model.list.names[model.list.name_of[box]];
    /** @param {number} node */
    const nodeName = (node) => nameOf(node) || kernelName(model.list.kernel[node]);
    /** A time that may not be known. @param {number} ns */
    const known = (ns) => (ns < 0 ? "–" : formatTime(ns));
    /** @param {number} count @param {string} singular */
    const counted = (count, singular) => `${formatCount(count)} ${singular}${count === 1 ? "" : "s"}`;

    /** The boxes that are alike in a group, whatever stretches they are in. @param {number} box @returns {number[]} */
    function alike(box) {
      return model.inside[box].flatMap((each) => (model.list.kind[each] === GRAPH_STRETCH ? alike(each) : [each]));
    }
    /** How much the time of boxes that are alike differs. @param {number} box */
    function spread(box) {
      const sorted = alike(box).sort((a, b) => model.busy[a] - model.busy[b]);
      const say = (/** @type {number} */ each) => `${formatTime(model.busy[each])} (${cut(titleOf(each), 30)})`;
      return `${say(sorted[0])} to ${say(sorted[sorted.length - 1])}`;
    }
    /** @param {number} box */
    function titleOf(box) {
      if (box < model.nodes) return nodeName(box);
      return nameOf(box) + (model.list.kind[box] === GRAPH_ALIKE ? ` × ${formatCount(alike(box).length)}` : "");
    }
    /** @param {number} box */
    function figuresOf(box) {
      if (box < model.nodes) return known(model.list.duration[box]);
      const time = model.timed ? ` · ${formatTime(model.busy[box])} · ${formatPercent(model.busy[box] / model.allBusy)}` : "";
      return `${counted(model.count[box], "node")}${time}`;
    }
    /** @param {number} box @returns {[number, number]} */
    function sizeOf(box) {
      const mark = model.onPath[box] ? 14 : 0;
      const title = widthOf(cut(titleOf(box), 30), box < model.nodes ? FONT : BOLD);
      if (box < model.nodes) return [Math.ceil(24 + mark + title + (model.timed ? 10 + widthOf(figuresOf(box), FONT) : 0)), 26];
      return [Math.ceil(Math.max(34 + mark + title, 20 + widthOf(figuresOf(box), FONT))), 46];
    }
    /** @param {number} box */
    const headOf = (box) =>
      Math.ceil(44 + (model.onPath[box] ? 14 : 0) + widthOf(cut(titleOf(box), 30), BOLD) + 10 + widthOf(figuresOf(box), FONT));

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
      return `${list.label ? cut(list.label, 60) : "without a label"}${where}${share} · ${counted(list.submissions, "submission")} · ${counted(list.commands, "node")}`;
    }

    // --- what is open, and where it lies ----------------------------------------------------------------------------

    /** @param {number} depth */
    function openTo(depth) {
      open.clear();
      depths.value = depth === Infinity ? "" : String(depth);
      if (depth === Infinity) for (let box = model.nodes; box < model.boxes; box++) open.add(box);
      else for (const box of graphOpenTo(model, depth)) open.add(box);
      place();
      fit();
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
      root = graphPlace(model, open, sizeOf, headOf, aspect);
      placedAt = new Map();
      const visit = (/** @type {GraphPlaced} */ frame) => {
        placedAt.set(frame.box, frame);
        frame.inside.forEach(visit);
      };
      visit(root);
      resize();
      const shown = graphShown(model, open);
      const groups = shown.boxes - shown.nodes;
      status.textContent = `showing ${formatCount(shown.nodes)} of ${counted(model.nodes, "node")}`
        + (groups ? ` and ${counted(groups, "closed group")}` : "");
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

    /** What of a box can be clicked. @param {GraphPlaced} placed */
    const handle = (placed) => (placed.open ? { ...placed, h: GRAPH_HEAD } : placed);

    /** @param {number} box */
    function bringIntoSight(box) {
      const placed = placedAt.get(box);
      if (!placed) return;
      const at = handle(placed);
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
      const colours = Object.fromEntries(["back", "raised", "line", "text", "dim", "accent", "path"].map((name) => [name, themeColour(name)]));
      context.clearRect(0, 0, view.width, view.height);
      const { scale } = view;
      // Smaller than that, boxes are only spots: of their kernel's colour, pale off the critical path.
      const readable = scale > 0.42;
      context.save();
      context.translate(view.x, view.y);
      context.scale(scale, scale);
      const sight = { left: -view.x / scale, top: -view.y / scale, right: (view.width - view.x) / scale, bottom: (view.height - view.y) / scale };
      const marked = page.selected();
      /** @param {number} left @param {number} top @param {number} right @param {number} bottom */
      const inSight = (left, top, right, bottom) =>
        right >= sight.left && left <= sight.right && bottom >= sight.top && top <= sight.bottom;

      /** @param {GraphPlaced} frame @param {number} depth */
      function drawFrame(frame, depth) {
        if (!inSight(frame.x, frame.y, frame.x + frame.w, frame.y + frame.h)) return;
        if (frame.box !== GRAPH_ROOT) {
          context.fillStyle = depth % 2 ? colours.raised : colours.back;
          if (readable) {
            outline(frame, 8);
            heading(frame);
          } else context.fillRect(frame.x, frame.y, frame.w, frame.h);
        }
        for (const route of frame.routes) {
          if (inSight(route.left, route.top, route.right, route.bottom)) drawRoute(route);
        }
        for (const each of frame.inside) {
          if (each.open) drawFrame(each, depth + 1);
          else if (inSight(each.x, each.y, each.x + each.w, each.y + each.h)) {
            if (each.box < model.nodes) drawNode(each);
            else drawGroup(each);
          }
        }
      }

      /** @param {GraphPlaced} placed @param {number} radius */
      function outline(placed, radius) {
        // An open group leaves the mark to what is inside.
        const path = model.onPath[placed.box] > 0 && !placed.open;
        context.beginPath();
        context.roundRect(placed.x, placed.y, placed.w, placed.h, radius);
        context.fill();
        context.strokeStyle = path ? colours.path : colours.line;
        context.lineWidth = path ? 2.5 : 1;
        context.stroke();
      }

      /** @param {string} text @param {number} x @param {number} y @param {string} font @param {string} colour */
      function write(text, x, y, font, colour) {
        context.font = font;
        context.fillStyle = colour;
        context.fillText(text, x, y);
        return widthOf(text, font);
      }

      /** The signs before a name. @param {number} box @param {number} x @param {number} y @param {string} sign @param {string} [colour] */
      function lead(box, x, y, sign, colour = colours.path) {
        if (model.onPath[box]) {
          write("◆", x, y, FONT, colour);
          x += 14;
        }
        return sign ? x + write(sign, x, y, FONT, colours.dim) + 5 : x;
      }

      /** @param {GraphPlaced} frame */
      function heading(frame) {
        const y = frame.y + 17;
        const x = lead(frame.box, frame.x + 10, y, "▾");
        const width = write(cut(titleOf(frame.box), 30), x, y, BOLD, colours.text);
        write(figuresOf(frame.box), x + width + 10, y, FONT, colours.dim);
      }

      /** @param {GraphPlaced} placed */
      function drawNode(placed) {
        const { x, y, w, h: height, box } = placed;
        const kernel = model.list.kernel[box], colour = kernelColour(kernel);
        if (!readable) {
          context.globalAlpha = model.onPath[box] || !model.list.path.length ? 1 : 0.4;
          context.fillStyle = kernel >= 0 && kernel === marked ? colours.accent : colour;
          context.fillRect(x, y, w, height);
          context.globalAlpha = 1;
          return;
        }
        context.fillStyle = kernel >= 0 && kernel === marked ? colour : colours.back;
        outline(placed, 4);
        context.fillStyle = colour;
        context.fillRect(x + 1.5, y + 3, 6, height - 6);
        if (model.mostBusy > 0 && model.list.busy[box] > 0) {
          context.fillRect(x + 9, y + height - 5, (w - 13) * (model.list.busy[box] / model.mostBusy), 3);
        }
        const ink = kernel >= 0 && kernel === marked ? textOn(colour) : colours.text;
        const at = lead(box, x + 13, y + 16, "", ink === colours.text ? colours.path : ink);
        write(cut(titleOf(box), 30), at, y + 16, FONT, ink);
        if (!model.timed) return;
        const time = figuresOf(box);
        write(time, x + w - 8 - widthOf(time, FONT), y + 16, FONT, ink === colours.text ? colours.dim : ink);
      }

      /** @param {GraphPlaced} placed */
      function drawGroup(placed) {
        const { x, y, w, h: height, box } = placed;
        if (model.list.kind[box] === GRAPH_ALIKE) {
          // A pile of cards.
          for (const by of [6, 3]) {
            context.beginPath();
            context.roundRect(x + by, y + by, w, height, 5);
            context.fillStyle = colours.raised;
            context.fill();
            context.strokeStyle = colours.dim;
            context.lineWidth = 1;
            context.stroke();
          }
        }
        context.fillStyle = colours.raised;
        outline(placed, 5);
        if (model.timed) {
          let left = x + 9;
          const whole = (w - 18) / model.allBusy;
          for (const [kernel, ns] of mixOf(box)) {
            context.fillStyle = kernelColour(kernel);
            context.fillRect(left, y + height - 9, Math.max(ns * whole, 0.5), 5);
            left += ns * whole;
          }
        }
        if (!readable) return;
        const at = lead(box, x + 9, y + 16, "▸");
        write(cut(titleOf(box), 30), at, y + 16, BOLD, colours.text);
        write(figuresOf(box), x + 9, y + 32, FONT, colours.dim);
      }

      /** @type {Map<string, Path2D>} */ const overview = new Map();
      /** @param {GraphRoute} route */
      function drawRoute(route) {
        const { edge } = route;
        if (!readable) {
          // Thousands of lines are drawn as a few, at the end.
          if (scale < 0.15 && !edge.path) return;
          const kind = `${edge.path ? "path" : "dim"} ${!edge.depends}`;
          if (!overview.has(kind)) overview.set(kind, new Path2D());
          const line = /** @type {Path2D} */ (overview.get(kind));
          line.moveTo(route.points[0], route.points[1]);
          for (let at = 2; at < route.points.length; at += 2) line.lineTo(route.points[at], route.points[at + 1]);
          return;
        }
        context.strokeStyle = context.fillStyle = edge.path ? colours.path : colours.dim;
        context.lineWidth = (edge.path ? 2.5 : 1) * Math.min(1 + Math.log10(Math.max(edge.count, 1)) * 0.5, 2.5);
        context.globalAlpha = edge.path ? 1 : 0.65;
        context.setLineDash(!edge.depends ? [7, 5] : edge.back ? [2, 4] : []);
        trace(route.points, route.shape);
        context.globalAlpha = 1;
        context.setLineDash([]);
      }

      function drawOverview() {
        for (const [kind, line] of overview) {
          const [colour, dashed] = kind.split(" ");
          context.strokeStyle = colours[colour];
          context.lineWidth = colour === "path" ? Math.max(2.5, 1 / scale) : 1;
          context.setLineDash(dashed === "true" ? [7 / scale, 5 / scale] : []);
          context.stroke(line);
        }
        context.setLineDash([]);
      }

      /** @param {number[]} points @param {GraphShape} shape */
      function trace(points, shape) {
        const [x1, y1] = points, [x2, y2] = points.slice(-2);
        // The way that the head points; all but straight lines arrive from above.
        const length = Math.hypot(x2 - x1, y2 - y1) || 1;
        const [right, down] = shape === "line" ? [(x2 - x1) / length, (y2 - y1) / length] : [0, 1];
        context.beginPath();
        context.moveTo(x1, y1);
        if (shape === "curve") {
          const middle = (y1 + y2) / 2;
          context.bezierCurveTo(x1, middle, x2, middle, x2, y2 - 4);
        } else {
          for (let at = 2; at < points.length - 2; at += 2) {
            context.arcTo(points[at], points[at + 1], points[at + 2], points[at + 3], 6);
          }
          context.lineTo(x2 - 4 * right, y2 - 4 * down);
        }
        context.stroke();
        context.beginPath();
        context.moveTo(x2, y2);
        context.lineTo(x2 - 7 * right - 4 * down, y2 - 7 * down + 4 * right);
        context.lineTo(x2 - 7 * right + 4 * down, y2 - 7 * down - 4 * right);
        context.fill();
      }

      /** What the selected box waits for, and what waits for it. */
      function drawSelected() {
        const mine = placedAt.get(selected);
        if (selected === GRAPH_ROOT || !mine) return;
        const at = handle(mine);
        context.strokeStyle = context.fillStyle = colours.accent;
        for (const [boxes, dash] of /** @type {[number[], number[]][]} */ ([[neighboursOf(selected, model.before), []], [neighboursOf(selected, model.after), [5, 3]]])) {
          for (const box of boxes) {
            const placed = placedAt.get(box);
            if (!placed || box === selected) continue;
            const other = handle(placed);
            context.lineWidth = 2 / Math.min(scale, 1);
            context.setLineDash(dash);
            context.strokeRect(other.x - 3, other.y - 3, other.w + 6, other.h + 6);
            const [from, to] = dash.length ? [at, other] : [other, at];
            context.lineWidth = 1.5 / Math.min(scale, 1);
            trace([from.x + from.w / 2, from.y + from.h, to.x + to.w / 2, to.y], "curve");
          }
        }
        context.setLineDash([]);
        context.lineWidth = 3 / Math.min(scale, 1);
        context.strokeRect(at.x - 3, at.y - 3, at.w + 6, at.h + 6);
      }

      drawFrame(root, 0);
      drawOverview();
      drawSelected();
      context.restore();
    }

    /** @param {number} box @param {number[][]} neighbours */
    function neighboursOf(box, neighbours) {
      /** @type {Set<number>} */ const shown = new Set();
      const own = new Set(graphMembers(model, box));
      for (const node of own) for (const other of neighbours[node]) if (!own.has(other)) shown.add(standsFor(other));
      return [...shown].sort((a, b) => a - b);
    }

    /** The kernels in a box with their time, the longest first. @param {number} box @returns {[number, number][]} */
    function mixOf(box) {
      const key = chosen * 1e7 + box;
      let mix = mixes.get(key);
      if (!mix) {
        /** @type {Map<number, number>} */ const sums = new Map();
        for (const node of graphMembers(model, box)) {
          const kernel = model.list.kernel[node];
          sums.set(kernel, (sums.get(kernel) || 0) + Math.max(model.list.busy[node], 0));
        }
        mixes.set(key, (mix = [...sums].sort((a, b) => b[1] - a[1])));
      }
      return mix;
    }
    /** @type {Map<number, [number, number][]>} */ const mixes = new Map();

    function summaryText() {
      const { list } = model;
      const path = list.path.length ? `; the critical path has ${counted(list.path.length, "node")} and is listed below` : "";
      const here = selected === GRAPH_ROOT ? "" : `; selected: ${titleOf(selected)}, ${figuresOf(selected)}`;
      return `Command list ${list.label || "without a label"}, ${counted(model.nodes, "node")}, ${status.textContent}${path}${here}`;
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
        h("button", { type: "button", class: "link", onclick: () => select(box) }, cut(titleOf(box), 40))]),
        boxes.length > most ? ` and ${formatCount(boxes.length - most)} more` : "");
    }

    /** @param {[string, Node|string|null][]} rows */
    function facts(rows) {
      return h("dl", {}, ...rows.filter(([, value]) => value).flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
    }

    function describe() {
      const { list } = model;
      canvas.setAttribute("aria-label", summaryText());
      if (selected === GRAPH_ROOT) {
        details.replaceChildren(h("h2", {}, list.label || "Command list without a label"), facts([
          ["device", list.device],
          ["submissions", formatCount(list.submissions)],
          ["share", list.share === null ? null : `${formatPercent(list.share)} of command-buffer time`],
          ["wall time", list.wall_ns === null ? "no dispatch of this list has a time" : `${formatTime(list.wall_ns)}, the median`],
          ["critical path", list.execution_ns === null ? null
            : `${counted(list.path.length, "node")}: ${formatTime(list.execution_ns)} running, ${formatTime(list.gap_ns)} between, before and after`],
        ]), h("p", { class: "note" }, "Select a box for its details."));
        return;
      }
      const box = selected, above = list.parent[box];
      const around = above < 0 ? null : h("button", { type: "button", class: "link", onclick: () => { selected = above; toggle(above); } }, `close ${cut(titleOf(above), 40)}`);
      const waits = boxButtons(neighboursOf(box, model.before)), feeds = boxButtons(neighboursOf(box, model.after));
      if (box < model.nodes) {
        const at = model.pathPlace[box];
        details.replaceChildren(h("h2", {}, titleOf(box)), facts([
          ["kernel", list.kernel[box] < 0 ? null : kernelButton(list.kernel[box])],
          ["label", labelButton(list.labels[list.label_of[box]])],
          ["critical path", !list.path.length ? null : at < 0 ? "not on it" : `◆ number ${formatCount(at + 1)} of ${formatCount(list.path.length)} on it`],
          ["median start", known(list.start[box])],
          ["median duration", known(list.duration[box])],
          ["gap before it", known(list.gap[box])],
          ["slack", list.slack[box] < 0 ? "not known" : `${formatTime(list.slack[box])}${list.slack[box] ? "" : ": any delay extends the command buffer"}`],
          ["waits for", waits],
          ["is waited for by", feeds],
          ["encoded at", list.places[list.place_of[box]]],
        ]), around || "");
        return;
      }
      const closed = !open.has(box);
      details.replaceChildren(h("h2", {}, titleOf(box)), facts([
        ["nodes", formatCount(model.count[box])],
        ["alike", list.kind[box] === GRAPH_ALIKE ? `${formatCount(alike(box).length)} with the same labels and kernels in the same order` : null],
        ["each takes", list.kind[box] === GRAPH_ALIKE && model.timed ? spread(box) : null],
        ["time", model.timed ? `${formatTime(model.busy[box])}, ${formatPercent(model.busy[box] / model.allBusy)} of the list` : "not known"],
        ["critical path", !list.path.length ? null : model.onPath[box] ? `◆ ${counted(model.onPath[box], "node")} on it` : "does not lead through"],
        ["waits for", waits],
        ["is waited for by", feeds],
        ["kernels", !model.timed ? null : h("ul", {}, ...mixOf(box).slice(0, 8).map(([kernel, ns]) =>
          h("li", {}, kernel < 0 ? "other" : kernelButton(kernel), ` ${formatTime(ns)}, ${formatPercent(ns / Math.max(model.busy[box], 1))}`)),
          mixOf(box).length > 8 ? h("li", {}, `and ${formatCount(mixOf(box).length - 8)} more`) : null)],
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
            h("td", {}, h("button", { type: "button", class: "link", onclick: () => { reveal(node); canvas.scrollIntoView({ block: "nearest" }); } }, cut(nodeName(node), 40))),
            h("td", { class: "name" }, list.kernel[node] < 0 ? "" : kernelTitle(kernels[list.kernel[node]])),
            h("td", {}, list.labels[list.label_of[node]]),
            ...[list.start, list.duration, list.gap].map((column) => h("td", { class: "number" }, known(column[node]))),
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
        list.path.length ? "Times are medians over the submissions; the time of a group counts overlapping nodes once." : "",
        list.wall_ns === null ? "No dispatch of this list has a time, so there is no critical path." : "",
        left ? `The ${formatCount(model.nodes)} nodes encoded first are shown; ${formatCount(left)} more are not.` : "",
        list.barriers ? `Not drawn: ${counted(list.barriers, "barrier")}. What barriers order is drawn.` : "",
        list.implied ? `Not drawn: ${formatCount(list.implied)} ${list.implied === 1 ? "dependency that follows" : "dependencies that follow"} from others.` : "",
        data.recorded > data.lists.length ? `${formatCount(data.lists.length)} of ${formatCount(data.recorded)} command lists are shown: those that took most time.` : "",
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
      const lines = [titleOf(box), figuresOf(box)];
      if (model.onPath[box]) lines.push("◆ on the critical path");
      if (box < model.nodes && nameOf(box)) lines.push(kernelName(model.list.kernel[box]));
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
      const middle = (/** @type {GraphPlaced} */ placed) => ({ x: placed.x + placed.w / 2, y: placed.y + handle(placed).h / 2 });
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
      [chosen, model, open, selected] = [number, models[number], opened[number], GRAPH_ROOT];
      lists.value = String(number);
      let deepest = 1;
      while (deepest < 20 && graphOpenTo(model, deepest + 1).size > graphOpenTo(model, deepest).size) deepest++;
      depths.replaceChildren(h("option", { value: "" }, "depth"), ...Array.from({ length: deepest }, (_, at) => h("option", { value: at + 1 }, `depth ${at + 1}`)));
      depths.value = String(Math.min(graphFirstDepth(model), deepest));
      place();
      fit();
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
      box: each.box, title: titleOf(each.box), open: each.open, x: each.x * view.scale + view.x, y: each.y * view.scale + view.y,
      w: each.w * view.scale, h: handle(each).h * view.scale,
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
          fit();
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
