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
 * @param {number} [apart] pixels between ticks
 * @returns {Scale}
 */
function logScale(low, high, from, to, format, apart = 60) {
  const [least, most] = [Math.log10(low), Math.log10(high)];
  const span = most - least || 1;
  const all = [];
  for (let power = Math.floor(least); power <= most; power++) for (const part of [1, 2, 5]) all.push(part * 10 ** power);
  const inside = all.filter((tick) => tick >= low * 0.999 && tick <= high * 1.001);
  const powers = inside.filter((tick) => Number.isInteger(Math.round(Math.log10(tick) * 1e6) / 1e6));
  const ticks = powers.length >= 3 ? powers : inside;
  const room = Math.max(Math.floor(Math.abs(to - from) / apart), 2);
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

/**
 * Durations on a logarithmic scale; ticks are round, also where all durations are nearly the same.
 * @param {number} low @param {number} high @param {number} from @param {number} to; upwards if it is less than `from`
 * @returns {Scale}
 */
function durationScale(low, high, from, to) {
  const apart = to < from ? 30 : 60;
  const scale = logScale(low, high, from, to, formatTime, apart);
  if (high / low > 8) return scale;
  const even = linearScale(low, high, from, to, formatTime).ticks;
  const every = Math.ceil((even.length * apart) / Math.abs(to - from));
  return Object.assign(scale, { ticks: even.filter((_, number) => number % every === 0) });
}

/**
 * A histogram of durations, in bins that are equally wide on a logarithmic axis.
 * @param {{width: number, low_ns: number, high_ns: number, counts: ArrayLike<number>, what: string,
 *   marks: {at_ns: number, name: string}[]}} given `what` is counted, in the plural
 */
function durationHistogram({ width, low_ns, high_ns, counts, what, marks }) {
  const left = 48, top = 26, bottom = 150, most = Math.max(...Array.from(counts), 1);
  const across = durationScale(low_ns, high_ns, left, width - 12);
  const up = linearScale(0, most, bottom, top, formatCount);
  up.ticks = up.ticks.filter(Number.isInteger);
  const edge = (/** @type {number} */ bin) => low_ns * (high_ns / low_ns) ** (bin / counts.length);
  const bars = Array.from(counts).map((count, bin) => {
    if (!count) return null;
    const [begin, end] = [across(edge(bin)), across(edge(bin + 1))];
    const y = Math.min(up(count), bottom - 1.5);
    return s("rect", { class: "bar", x: begin, y, width: Math.max(end - begin - 0.5, 1), height: bottom - y });
  });
  const facts = marks.map((mark) => `${mark.name} ${formatTime(mark.at_ns)}`).join(", ");
  let before = -Infinity;
  const lines = marks.map((mark) => {
    const x = across(Math.min(Math.max(mark.at_ns, low_ns), high_ns));
    const shown = x - before > 30;
    if (shown) before = x;
    return s("g", { class: "mark" }, s("line", { x1: x, x2: x, y1: top - 6, y2: bottom }),
      shown ? s("text", { x, y: top - 10, "text-anchor": x > width - 40 ? "end" : "middle" }, mark.name) : null);
  });
  const chart = s("svg", {
    width, height: 190, viewBox: `0 0 ${width} 190`, role: "img", class: "histogram",
    "aria-label": `Histogram of ${what} by time, from ${formatTime(low_ns)} to ${formatTime(high_ns)}: ${facts}`,
    onpointermove: (/** @type {PointerEvent} */ event) => {
      const x = event.clientX - chart.getBoundingClientRect().left;
      const bin = Math.floor(((x - left) / (width - 12 - left)) * counts.length);
      if (bin < 0 || bin >= counts.length) tooltip.hide();
      else tooltip.show(event.clientX, event.clientY, [`${formatCount(counts[bin])} ${what}`, `${formatTime(edge(bin))} to ${formatTime(edge(bin + 1))}`]);
    },
    onpointerleave: () => tooltip.hide(),
  }, leftAxis(up, left, "", width - 12), bottomAxis(across, bottom, "time, logarithmic", width - 12), ...bars, ...lines);
  return chart;
}
