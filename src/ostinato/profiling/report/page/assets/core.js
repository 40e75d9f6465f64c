// @ts-check
"use strict";
// What all views share: unpacking data, numbers as text, elements, colours, the tooltip, and what is selected.
// Text from a recording reaches the document only through `textContent` and attributes, never as markup.

/**
 * A column as Python packed it; see packing.py.
 * @typedef {{$: string, n: number, d: string, rising?: boolean}} Packed
 * @typedef {Int8Array|Uint8Array|Int16Array|Uint16Array|Int32Array|Uint32Array|Float32Array|Float64Array} Column
 * @typedef {{name: string, detail: string, share: number|null, total_ns: number}} KernelName
 * @typedef {{name: string, status: string, sentence: string}} Check
 * @typedef {{kernel: number, begin: number, end: number}} NamedKernel
 * @typedef {{overview: string[], figures: {name: string, value: string}[], look_first: string, named: NamedKernel[], sure: boolean, tone?: string,
 *   doubt?: Check|null, checks_title: string, checks_open?: boolean, checks: Check[]}} Head
 * @typedef {{format: string, version: number, title: string, kernels: KernelName[], head: Head, [view: string]: any}} PageData
 */

/**
 * A tab. `make` fills its panel when it is first opened; `shown` is called whenever it is opened, resized or the theme
 * changed, and `reveal` when another view wants something shown in it.
 * @typedef {{shown?: () => void, reveal?: (target: any) => void}} Drawn
 * @typedef {{key: string, title: string, make: (panel: HTMLElement, page: Page) => Drawn}} View
 */
/** @type {View[]} */
const VIEWS = [];

/**
 * What views may ask of the page.
 * @typedef {{
 *   data: PageData,
 *   select: (kernel: number) => void,
 *   selected: () => number,
 *   onSelect: (listener: (kernel: number) => void) => void,
 *   open: (key: string, target?: any) => void,
 * }} Page
 */

// --- data -----------------------------------------------------------------------------------------------------

const COLUMN_TYPES = {
  i8: Int8Array, u8: Uint8Array, i16: Int16Array, u16: Uint16Array,
  i32: Int32Array, u32: Uint32Array, f32: Float32Array, f64: Float64Array,
};

/** @param {Packed} packed @returns {Promise<Column>} */
async function unpack(packed) {
  const bytes = Uint8Array.from(atob(packed.d), (character) => character.charCodeAt(0));
  const inflated = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const type = COLUMN_TYPES[/** @type {keyof typeof COLUMN_TYPES} */ (packed.$)];
  const values = new type(await new Response(inflated).arrayBuffer());
  if (!packed.rising) return values;
  const rising = new Float64Array(values.length);
  let sum = 0;
  for (let i = 0; i < values.length; i++) rising[i] = sum += values[i];
  return rising;
}

/** Every packed column in `value` becomes an array of numbers, in place. @param {any} value @returns {Promise<any>} */
async function unpackAll(value) {
  if (value === null || typeof value !== "object") return value;
  if (typeof value.$ === "string" && typeof value.d === "string") return unpack(value);
  await Promise.all(Object.keys(value).map(async (key) => { value[key] = await unpackAll(value[key]); }));
  return value;
}

// --- numbers as text; as analyse/formatting.py, with units that stay on the line of their number ----------------

const NO_BREAK = "\u00a0";

/** @param {number} value */
function digits(value) {
  const size = Math.abs(value);
  if (size >= 99.95) return Math.round(value).toLocaleString("en");
  return size >= 9.995 ? value.toFixed(1) : value.toFixed(2);
}

/** @param {number} value @param {[number, string][]} units @param {string} rest */
function scaled(value, units, rest) {
  for (const [size, unit] of units) if (Math.abs(value) >= size * 0.9995) return `${digits(value / size)}${NO_BREAK}${unit}`;
  return `${value % 1 ? digits(value) : value}${NO_BREAK}${rest}`;
}

/** @param {number|null|undefined} ns */
const formatTime = (ns) => (ns == null ? "–" : scaled(ns, [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]], "ns"));
/** @param {number|null|undefined} count */
const formatSize = (count) => (count == null ? "–" : scaled(count, [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "KB"]], "B"));
/** @param {number|null|undefined} rate */
const formatByteRate = (rate) => (rate == null ? "–" : `${formatSize(rate)}/s`);
/** @param {number|null|undefined} rate */
const formatFlopRate = (rate) =>
  rate == null ? "–" : scaled(rate, [[1e12, "Tflop/s"], [1e9, "Gflop/s"], [1e6, "Mflop/s"], [1e3, "kflop/s"]], "flop/s");
/** @param {number|null|undefined} count */
const formatCount = (count) => (count == null ? "–" : count.toLocaleString("en"));
/** @param {number|null|undefined} part */
function formatPercent(part) {
  if (part == null) return "–";
  const value = part * 100, size = Math.abs(value);
  if (value === 0) return `0${NO_BREAK}%`;
  if (size < 0.01) return value > 0 ? `<0.01${NO_BREAK}%` : `>-0.01${NO_BREAK}%`;
  return `${value.toFixed(size < 0.095 ? 2 : size < 99.95 ? 1 : 0)}${NO_BREAK}%`;
}

/** A kernel as reports name it. @param {KernelName} kernel */
const kernelTitle = (kernel) => (kernel.detail ? `${kernel.name} ${kernel.detail}` : kernel.name);

/** Cut in the middle, where names of kernels are alike. @param {string} text @param {number} most */
function cut(text, most) {
  if (text.length <= most) return text;
  const half = Math.max((most - 1) / 2, 1);
  return `${text.slice(0, Math.ceil(half))}…${text.slice(text.length - Math.floor(half))}`;
}

// --- elements ---------------------------------------------------------------------------------------------------

/**
 * An element. Attributes are set as such; `on…` are listeners, `css` are properties of its style (the page's policy
 * forbids the attribute). Children are nodes or text.
 * @param {string} tag @param {Record<string, any>} [attributes] @param {...(Node|string|number|null|undefined)} children
 * @returns {HTMLElement}
 */
function h(tag, attributes = {}, ...children) {
  return /** @type {HTMLElement} */ (filled(document.createElement(tag), attributes, children));
}

/**
 * The same for SVG.
 * @param {string} tag @param {Record<string, any>} [attributes] @param {...(Node|string|number|null|undefined)} children
 * @returns {SVGElement}
 */
function s(tag, attributes = {}, ...children) {
  return /** @type {SVGElement} */ (filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children));
}

/** @param {HTMLElement|SVGElement|Element} element @param {Record<string, any>} attributes @param {any[]} children */
function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value == null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "css") {
      for (const [property, text] of Object.entries(value)) {
        /** @type {HTMLElement} */ (element).style.setProperty(property, String(text));
      }
    } else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) {
    if (child != null) element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

// --- colours ----------------------------------------------------------------------------------------------------

// Okabe and Ito's colours, which most colour-blind people tell apart; the kernels with the most time have one each.
const KERNEL_COLOURS = ["#e69f00", "#56b4e9", "#009e73", "#cc79a7", "#d55e00", "#0072b2", "#f0e442"];
const OTHER_COLOURS = ["#9aa0a8", "#7f868f"];

/** @param {number} kernel */
function kernelColour(kernel) {
  if (kernel >= 0 && kernel < KERNEL_COLOURS.length) return KERNEL_COLOURS[kernel];
  return OTHER_COLOURS[Math.abs(kernel) % OTHER_COLOURS.length];
}

/** Black or white, whichever is read more easily on a colour. @param {string} colour */
function textOn(colour) {
  const value = parseInt(colour.slice(1), 16);
  const light = 0.299 * (value >> 16) + 0.587 * ((value >> 8) & 255) + 0.114 * (value & 255);
  return light > 130 ? "#000000" : "#ffffff";
}

/** A colour of the theme, for canvases. @param {string} name */
const themeColour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** A small square in the colour of a kernel. @param {number} kernel */
const swatch = (kernel) => h("span", { class: "swatch", css: { background: kernelColour(kernel) }, "aria-hidden": "true" });

// --- tooltip ----------------------------------------------------------------------------------------------------

const tooltip = {
  /** @type {HTMLElement|null} */ box: null,
  /** Lines near a point of the window; the first is a heading. @param {number} x @param {number} y @param {string[]} lines */
  show(x, y, lines) {
    if (!this.box) document.body.append((this.box = h("div", { class: "tooltip", role: "status" })));
    this.box.replaceChildren(...lines.map((line, number) => h("div", number ? {} : { class: "first" }, line)));
    this.box.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = this.box;
    const left = x + 14 + width > innerWidth ? Math.max(x - 14 - width, 4) : x + 14;
    const top = y + 14 + height > innerHeight ? Math.max(y - 14 - height, 4) : y + 14;
    this.box.style.setProperty("left", `${left}px`);
    this.box.style.setProperty("top", `${top}px`);
  },
  hide() {
    if (this.box) this.box.hidden = true;
  },
};

/**
 * A canvas as wide as its parent, sharp on any screen; returns what to draw with, in CSS pixels.
 * @param {HTMLCanvasElement} canvas @param {number} width @param {number} height
 */
function sized(canvas, width, height) {
  const ratio = devicePixelRatio || 1;
  const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== across) canvas.width = across;
  if (canvas.height !== down) canvas.height = down;
  canvas.style.setProperty("width", `${width}px`);
  canvas.style.setProperty("height", `${height}px`);
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}
