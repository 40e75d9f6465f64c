// @ts-check
"use strict";
// Where the boxes of a command list lie. Which boxes there are, their levels and the edges between them come from Python
// (analyse/label_tree.py, analyse/layering.py); here they get places, given which groups are open.

/**
 * See page/graph.py.
 * @typedef {{
 *   label: string, device: string, submissions: number, share: number|null, wall_ns: number|null, runs: number,
 *   execution_ns: number|null, gap_ns: number|null, slowest: {begin_ns: number, end_ns: number}|null, commands: number, barriers: number, implied: number,
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
 *   busy: Float64Array, onPath: Uint32Array, timed: boolean, allBusy: number, mostBusy: number,
 *   before: number[][], after: number[][], pathPlace: Int32Array,
 * }} GraphModel
 * @typedef {{box: number, x: number, y: number, w: number, h: number, open: boolean, inside: GraphPlaced[], routes: GraphRoute[]}} GraphPlaced
 * @typedef {{edge: GraphEdge, points: number[], shape: GraphShape, left: number, top: number, right: number, bottom: number}} GraphRoute
 */

const GRAPH_ALIKE = 2, GRAPH_STRETCH = 3;
const GRAPH_ROOT = -1;

/** Sums and neighbours of all boxes of a list; what is in no group is inside the last one. @param {GraphList} list @returns {GraphModel} */
function graphModel(list) {
  const nodes = list.kernel.length, boxes = list.parent.length;
  const inside = Array.from({ length: boxes + 1 }, () => /** @type {number[]} */ ([]));
  const edges = Array.from({ length: boxes + 1 }, () => /** @type {GraphEdge[]} */ ([]));
  const count = new Uint32Array(boxes + 1), onPath = new Uint32Array(boxes + 1);
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
  for (let box = 0; box < boxes; box++) inside[above(box)].push(box);
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
    list, nodes, boxes, inside, edges, count, busy, onPath, timed: busy[boxes] > 0, allBusy: busy[boxes], mostBusy,
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
