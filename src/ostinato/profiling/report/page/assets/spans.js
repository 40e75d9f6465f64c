// @ts-check
"use strict";
// Rows of spans as pixels. A frame costs about as much as it has pixels, however many spans there are: those that are
// narrower than a pixel share one, whose height says how much of it they cover.

/**
 * Spans in order, of which none overlaps another. `paint` is the number of each one's colour; `sums[i]` is how long
 * those before the i-th last together.
 * @typedef {{begin: Float64Array, duration: Column, paint: Uint16Array, sums: Float64Array}} SpanRow
 * @typedef {{colour: number, faded: number, second: number, secondFaded: number,
 *   pattern: number, name: string, text: string}} Paint
 */

/** @param {Column} duration */
function runningSums(duration) {
  const sums = new Float64Array(duration.length + 1);
  for (let i = 0; i < duration.length; i++) sums[i + 1] = sums[i] + duration[i];
  return sums;
}

/** The first from `low` on whose value is at least `least`. @param {ArrayLike<number>} values @param {number} least */
function firstFrom(values, least, low = 0) {
  let step = 1, high = low;
  while (high < values.length && values[high] < least) {
    low = high + 1;
    high += step;
    step *= 2;
  }
  high = Math.min(high, values.length);
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < least) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The first span that ends after a time. @param {SpanRow} row @param {number} at */
function firstEndingAfter(row, at) {
  const next = firstFrom(row.begin, at);
  return next > 0 && row.begin[next - 1] + row.duration[next - 1] > at ? next - 1 : next;
}

/**
 * The span at a time, or the nearest within `slack`; -1 if there is none.
 * @param {SpanRow} row @param {number} at @param {number} slack
 */
function spanAt(row, at, slack) {
  const next = firstEndingAfter(row, at);
  const away = (/** @type {number} */ i) =>
    i < 0 || i >= row.begin.length ? Infinity : Math.max(row.begin[i] - at, at - row.begin[i] - row.duration[i], 0);
  const nearest = away(next) <= away(next - 1) ? next : next - 1;
  return away(nearest) <= slack ? nearest : -1;
}

// Each says of a pixel whether it has the second colour.
const PATTERNS = [
  () => false,
  (/** @type {number} */ x, /** @type {number} */ y) => (x + y) % 8 < 4,
  (/** @type {number} */ x, /** @type {number} */ y) => (x - y + 8192) % 8 < 4,
  (/** @type {number} */ x) => x % 6 < 3,
  (/** @type {number} */ _, /** @type {number} */ y) => y % 4 < 2,
  (/** @type {number} */ x, /** @type {number} */ y) => x % 5 < 2 && y % 5 < 2,
];
const HATCHED = 1;

/** A colour as a word of an image. @param {string} colour */
function colourWord(colour) {
  const value = parseInt(colour.slice(1), 16);
  return (0xff000000 | ((value & 255) << 16) | (value & 0xff00) | (value >> 16)) >>> 0;
}

/** A word between two others. @param {number} from @param {number} to @param {number} part */
function mixed(from, to, part) {
  let word = 0xff000000;
  for (let shift = 0; shift < 24; shift += 8) {
    const [low, high] = [(from >>> shift) & 255, (to >>> shift) & 255];
    word |= Math.round(low + (high - low) * part) << shift;
  }
  return word >>> 0;
}

/** The colour between two others. @param {string} colour @param {string} other */
function halfway(colour, other) {
  const [from, to] = [colour, other].map((each) => parseInt(each.slice(1), 16));
  return `#${(((from & 0xfefefe) >> 1) + ((to & 0xfefefe) >> 1)).toString(16).padStart(6, "0")}`;
}

/**
 * How spans of a colour are painted before a background.
 * @param {string} colour @param {string} back @param {number} pattern @returns {Paint}
 */
function paintOf(colour, back, pattern = 0) {
  const [full, behind] = [colourWord(colour), colourWord(back)];
  const second = mixed(full, behind, 0.6);
  const [faded, secondFaded] = [full, second].map((word) => mixed(word, behind, 0.84));
  return { colour: full, faded, second, secondFaded, pattern, name: colour, text: textOn(colour) };
}

/** An image that boxes are painted into; in pixels of the screen. */
class Pixels {
  /** @param {CanvasRenderingContext2D} context @param {number} width @param {number} height */
  constructor(context, width, height) {
    this.width = Math.max(width, 1);
    this.height = Math.max(height, 1);
    this.image = context.createImageData(this.width, this.height);
    this.words = new Uint32Array(this.image.data.buffer);
  }

  /** @param {number} left @param {number} right @param {number} top @param {number} bottom @param {number} word */
  box(left, right, top, bottom, word) {
    const first = Math.max(left, 0), last = Math.min(right, this.width), end = Math.min(bottom, this.height);
    if (last - first === 1) {
      for (let y = Math.max(top, 0), at = y * this.width + first; y < end; y++, at += this.width) this.words[at] = word;
      return;
    }
    for (let y = Math.max(top, 0); y < end; y++) this.words.fill(word, y * this.width + first, y * this.width + last);
  }

  /**
   * A box with a pattern.
   * @param {number} left @param {number} right @param {number} top @param {number} bottom
   * @param {Paint} paint @param {boolean} faded
   */
  span(left, right, top, bottom, paint, faded) {
    this.box(left, right, top, bottom, faded ? paint.faded : paint.colour);
    if (paint.pattern === 0) return;
    const covers = PATTERNS[paint.pattern], word = faded ? paint.secondFaded : paint.second;
    const first = Math.max(left, 0), last = Math.min(right, this.width), end = Math.min(bottom, this.height);
    for (let y = Math.max(top, 0); y < end; y++) {
      for (let x = first; x < last; x++) if (covers(x, y)) this.words[y * this.width + x] = word;
    }
  }
}

/**
 * Paints the spans of a row that are seen.
 *
 * `hits[i]` is how many spans before the i-th match a search; the others are faded. `wide` is called for spans that
 * have room for a name, with their number and their ends.
 * @param {Pixels} pixels @param {SpanRow} row @param {number} top @param {number} bottom
 * @param {number} from_ns @param {number} ns_per_pixel @param {Paint[]} paints
 * @param {Uint32Array|null} hits @param {number} [named]
 * @param {(span: number, left: number, right: number) => void} [wide]
 */
function paintSpans(pixels, row, top, bottom, from_ns, ns_per_pixel, paints, hits, named = Infinity, wide = () => {}) {
  if (bottom <= 0 || top >= pixels.height) return;
  const { begin, duration, paint, sums } = row;
  const until = from_ns + pixels.width * ns_per_pixel;
  let i = firstEndingAfter(row, from_ns);
  while (i < begin.length && begin[i] < until) {
    const left = (begin[i] - from_ns) / ns_per_pixel, right = left + duration[i] / ns_per_pixel;
    if (right - left >= 1) {
      const [first, last] = [Math.max(Math.round(left), 0), Math.min(Math.round(right), pixels.width)];
      // Neighbours stay apart as far as there is room.
      const end = last - first > 4 && last < pixels.width ? last - 1 : Math.max(last, first + 1);
      pixels.span(first, end, top, bottom, paints[paint[i]], hits !== null && hits[i + 1] === hits[i]);
      if (last - first >= named) wide(i, first, last);
      i++;
      continue;
    }
    const pixel = Math.max(Math.floor(left), 0);
    let next = firstFrom(begin, from_ns + (pixel + 1) * ns_per_pixel, i + 1);
    // The last that begins in this pixel may reach over the next ones.
    if (next - 1 > i && duration[next - 1] >= ns_per_pixel) next--;
    const covered = Math.min((sums[next] - sums[i]) / ns_per_pixel, 1);
    let shown = i;
    const faded = hits !== null && hits[next] === hits[i], found = hits !== null && !faded;
    if (found) shown = firstFrom(hits, hits[i] + 1, i) - 1;
    else {
      const step = Math.max((next - i) >> 3, 1);
      for (let other = i; other < next; other += step) if (duration[other] > duration[shown]) shown = other;
    }
    const height = found ? bottom - top : Math.max(Math.round((bottom - top) * covered), 2);
    pixels.span(pixel, pixel + 1, bottom - height, bottom, paints[paint[shown]], faded);
    i = next;
  }
}
