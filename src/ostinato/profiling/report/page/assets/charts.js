// @ts-check
"use strict";
// Scales and axes for charts in SVG.

/** @typedef {{(value: number): number, ticks: number[], format: (value: number) => string}} Scale */

/**
 * Values of a range on a line of pixels, with round ticks.
 * @param {number} low @param {number} high @param {number} from @param {number} to @param {(value: number) => string} format
 * @returns {Scale}
 */
function linearScale(low, high, from, to, format) {
  const span = high - low || 1;
  const step = niceStep(span / Math.max(Math.abs(to - from) / 90, 2));
  const ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high + step * 1e-9; tick += step) ticks.push(tick);
  return Object.assign((/** @type {number} */ value) => from + ((value - low) / span) * (to - from), { ticks, format });
}

/**
 * The same on a logarithmic scale, with ticks at powers of ten, or at 1, 2 and 5 where there are few of those.
 * @param {number} low @param {number} high @param {number} from @param {number} to @param {(value: number) => string} format
 * @returns {Scale}
 */
function logScale(low, high, from, to, format) {
  const [least, most] = [Math.log10(low), Math.log10(high)];
  const span = most - least || 1;
  const all = [];
  for (let power = Math.floor(least); power <= most; power++) for (const part of [1, 2, 5]) all.push(part * 10 ** power);
  const inside = all.filter((tick) => tick >= low * 0.999 && tick <= high * 1.001);
  const powers = inside.filter((tick) => Number.isInteger(Math.round(Math.log10(tick) * 1e6) / 1e6));
  const ticks = powers.length >= 3 ? powers : inside;
  const room = Math.max(Math.floor(Math.abs(to - from) / 60), 2);
  const every = Math.ceil(ticks.length / room);
  return Object.assign(
    (/** @type {number} */ value) => from + ((Math.log10(Math.max(value, 1e-300)) - least) / span) * (to - from),
    { ticks: ticks.filter((_, number) => number % every === 0), format },
  );
}

/** @param {number} rough */
function niceStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  const part = rough / power;
  return power * (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10);
}

/** An axis along the bottom, with a name. @param {Scale} scale @param {number} y @param {string} name @param {number} width */
function bottomAxis(scale, y, name, width) {
  return s("g", { class: "axis", "aria-hidden": "true" },
    s("line", { x1: 0, x2: width, y1: y, y2: y }),
    ...scale.ticks.map((tick) => s("g", { transform: `translate(${scale(tick)},${y})` },
      s("line", { y2: 4 }), s("text", { y: 16, "text-anchor": "middle" }, scale.format(tick)))),
    s("text", { class: "name", x: width, y: y + 32, "text-anchor": "end" }, name));
}

/** An axis along the left, with lines across. @param {Scale} scale @param {number} x @param {string} name @param {number} width */
function leftAxis(scale, x, name, width) {
  return s("g", { class: "axis", "aria-hidden": "true" },
    ...scale.ticks.map((tick) => s("g", { transform: `translate(0,${scale(tick)})` },
      s("line", { class: "across", x1: x, x2: width }), s("text", { x: x - 6, dy: "0.32em", "text-anchor": "end" }, scale.format(tick)))),
    s("text", { class: "name", x: x - 6, y: 10, "text-anchor": "end" }, name));
}
