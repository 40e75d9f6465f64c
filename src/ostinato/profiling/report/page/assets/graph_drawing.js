// @ts-check
"use strict";
// What the boxes of a command list say, and how they are drawn on a canvas: those in sight alone.

const GRAPH_FONT = "12px system-ui, sans-serif", GRAPH_BOLD = "600 12px system-ui, sans-serif";
/** At a smaller scale boxes are only spots: of their kernel's colour, pale off the critical path. */
const GRAPH_READABLE = 0.42;
const graphMeasuring = document.createElement("canvas").getContext("2d");
/** @type {Map<string, number>} */ const graphMeasured = new Map();

/** The width of a text. @param {string} text @param {string} font */
function graphTextWidth(text, font) {
  const key = font + text;
  let width = graphMeasured.get(key);
  if (width === undefined) {
    if (graphMeasuring) graphMeasuring.font = font;
    graphMeasured.set(key, (width = graphMeasuring?.measureText(text).width || 0));
  }
  return width;
}

/** The part of a box that stands for all of it: of an open group its heading. @param {GraphPlaced} placed */
const graphHandle = (placed) => (placed.open ? { ...placed, h: GRAPH_HEAD } : placed);

/** A number of things. @param {number} count @param {string} singular */
const graphCounted = (count, singular) => `${formatCount(count)} ${singular}${count === 1 ? "" : "s"}`;
/** A time that may not be known. @param {number} ns */
const graphKnown = (ns) => (ns < 0 ? "–" : formatTime(ns));

/** @typedef {ReturnType<typeof graphWords>} GraphWords */

/** What the boxes of a list say. @param {GraphModel} model @param {KernelName[]} kernels */
function graphWords(model, kernels) {
  /** @param {number} kernel */
  const kernelName = (kernel) => (kernel < 0 ? "" : kernelTitle(kernels[kernel]));
  /** @param {number} box */
  const nameOf = (box) => model.list.names[model.list.name_of[box]];
  /** @param {number} node */
  const nodeName = (node) => nameOf(node) || kernelName(model.list.kernel[node]);
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
    if (box < model.nodes) return graphKnown(model.list.duration[box]);
    const time = model.timed ? ` · ${formatTime(model.busy[box])} · ${formatPercent(model.busy[box] / model.allBusy)}` : "";
    return `${graphCounted(model.count[box], "node")}${time}`;
  }
  /** @param {number} box @returns {[number, number]} */
  function sizeOf(box) {
    const mark = model.onPath[box] ? 14 : 0;
    const title = graphTextWidth(cut(titleOf(box), 30), box < model.nodes ? GRAPH_FONT : GRAPH_BOLD);
    if (box < model.nodes) return [Math.ceil(24 + mark + title + (model.timed ? 10 + graphTextWidth(figuresOf(box), GRAPH_FONT) : 0)), 26];
    return [Math.ceil(Math.max(34 + mark + title, 20 + graphTextWidth(figuresOf(box), GRAPH_FONT))), 46];
  }
  /** @param {number} box */
  const headOf = (box) =>
    Math.ceil(44 + (model.onPath[box] ? 14 : 0) + graphTextWidth(cut(titleOf(box), 30), GRAPH_BOLD) + 10 + graphTextWidth(figuresOf(box), GRAPH_FONT));
  /** @type {Map<number, [number, number][]>} */ const mixes = new Map();
  /** The kernels in a box with their time, the longest first. @param {number} box @returns {[number, number][]} */
  function mixOf(box) {
    let mix = mixes.get(box);
    if (!mix) {
      /** @type {Map<number, number>} */ const sums = new Map();
      for (const node of graphMembers(model, box)) {
        const kernel = model.list.kernel[node];
        sums.set(kernel, (sums.get(kernel) || 0) + Math.max(model.list.busy[node], 0));
      }
      mixes.set(box, (mix = [...sums].sort((a, b) => b[1] - a[1])));
    }
    return mix;
  }
  return { kernelName, nameOf, nodeName, alike, spread, titleOf, figuresOf, sizeOf, headOf, mixOf };
}

/**
 * Draws a list.
 * @param {CanvasRenderingContext2D} context
 * @param {{
 *   model: GraphModel, words: GraphWords, root: GraphPlaced, placedAt: Map<number, GraphPlaced>,
 *   view: {x: number, y: number, scale: number, width: number, height: number},
 *   selected: number, marked: number, waits: number[], feeds: number[],
 * }} scene `marked` is a kernel; the selected box waits for `waits`, and `feeds` wait for it
 */
function graphDraw(context, scene) {
  const { model, words, root, placedAt, view, selected, marked } = scene;
  const colours = Object.fromEntries(["back", "raised", "line", "text", "dim", "accent", "path"].map((name) => [name, themeColour(name)]));
  context.clearRect(0, 0, view.width, view.height);
  const { scale } = view;
  const readable = scale > GRAPH_READABLE;
  context.save();
  context.translate(view.x, view.y);
  context.scale(scale, scale);
  const sight = { left: -view.x / scale, top: -view.y / scale, right: (view.width - view.x) / scale, bottom: (view.height - view.y) / scale };
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
    return graphTextWidth(text, font);
  }

  /** The signs before a name. @param {number} box @param {number} x @param {number} y @param {string} sign @param {string} [colour] */
  function lead(box, x, y, sign, colour = colours.path) {
    if (model.onPath[box]) {
      write("◆", x, y, GRAPH_FONT, colour);
      x += 14;
    }
    return sign ? x + write(sign, x, y, GRAPH_FONT, colours.dim) + 5 : x;
  }

  /** @param {GraphPlaced} frame */
  function heading(frame) {
    const y = frame.y + 17;
    const x = lead(frame.box, frame.x + 10, y, "▾");
    const width = write(cut(words.titleOf(frame.box), 30), x, y, GRAPH_BOLD, colours.text);
    write(words.figuresOf(frame.box), x + width + 10, y, GRAPH_FONT, colours.dim);
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
    write(cut(words.titleOf(box), 30), at, y + 16, GRAPH_FONT, ink);
    if (!model.timed) return;
    const time = words.figuresOf(box);
    write(time, x + w - 8 - graphTextWidth(time, GRAPH_FONT), y + 16, GRAPH_FONT, ink === colours.text ? colours.dim : ink);
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
      for (const [kernel, ns] of words.mixOf(box)) {
        context.fillStyle = kernelColour(kernel);
        context.fillRect(left, y + height - 9, Math.max(ns * whole, 0.5), 5);
        left += ns * whole;
      }
    }
    if (!readable) return;
    const at = lead(box, x + 9, y + 16, "▸");
    write(cut(words.titleOf(box), 30), at, y + 16, GRAPH_BOLD, colours.text);
    write(words.figuresOf(box), x + 9, y + 32, GRAPH_FONT, colours.dim);
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
    const at = graphHandle(mine);
    context.strokeStyle = context.fillStyle = colours.accent;
    for (const [boxes, dash] of /** @type {[number[], number[]][]} */ ([[scene.waits, []], [scene.feeds, [5, 3]]])) {
      for (const box of boxes) {
        const placed = placedAt.get(box);
        if (!placed || box === selected) continue;
        const other = graphHandle(placed);
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
