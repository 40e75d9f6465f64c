// @ts-check
"use strict";
// The view "roofline": kernels by flops per byte and flop/s under the ceilings of a device, both logarithmic, and beside
// it the bandwidth of those that declare no flops. Circles have the area of their share of the busy time.

/**
 * @typedef {{rate: number, spread: number|null}} RooflineCeiling
 * @typedef {{kernel: number, grid: string, runs: number, mean_ns: number, total_ns: number, share: number|null,
 *   flops_per_byte: number|null, flops_per_s: number|null, bytes_per_s: number|null, bound: boolean,
 *   efficiency: number|null, nearer: string, why_not: string}} RooflinePoint
 * @typedef {{name: string, copy: RooflineCeiling|null, flops: RooflineCeiling|null, notes: string[],
 *   points: RooflinePoint[]}} RooflineDevice
 * @typedef {{left: number, right: number, top: number, bottom: number}} RooflineBox
 */

{
  const LEAST_RADIUS = 4, MOST_NAMES = 30, MOST_ROWS = 30;
  const NARROW = 620;

  /** @param {number} value */
  const shortNumber = (value) => {
    for (const [size, unit] of /** @type {[number, string][]} */ ([[1e12, " T"], [1e9, " G"], [1e6, " M"], [1e3, " k"]])) {
      if (value >= size * 0.9995) return `${+(value / size).toPrecision(2)}${unit}`;
    }
    return String(+value.toPrecision(2));
  };

  const pen = /** @type {CanvasRenderingContext2D} */ (document.createElement("canvas").getContext("2d"));
  /** @param {string} text */
  function textWidth(text) {
    pen.font = "12px system-ui, sans-serif";
    return pen.measureText(text).width;
  }

  /** Cut in the middle until it fits. @param {string} text @param {number} most */
  function fitted(text, most) {
    let length = text.length;
    while (length > 5 && textWidth(cut(text, length)) > most) length--;
    return cut(text, length);
  }

  /** @param {RooflineCeiling} ceiling @param {(rate: number) => string} format */
  const ceilingText = (ceiling, format) =>
    format(ceiling.rate) + (ceiling.spread == null ? "" : ` ± ${formatPercent(ceiling.spread)}`);

  /** @param {RooflineBox} a @param {RooflineBox} b */
  const overlap = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;

  /** @param {HTMLElement} panel @param {Page} page @returns {Drawn} */
  function make(panel, page) {
    /** @type {RooflineDevice[]} */ const devices = page.data.roofline.devices;
    let device = devices[0], wholeRadius = 44;
    const charts = h("div", { class: "charts" });
    const notes = h("div", { class: "note" });
    const table = h("div", { class: "scroll" });
    const choice = h("select", {
      id: "roofline-device",
      onchange: () => { device = devices[Number(/** @type {HTMLSelectElement} */ (choice).value)]; draw(); },
    }, ...devices.map((each, number) => h("option", { value: number }, each.name)));
    panel.append(
      ...(devices.length > 1 ? [h("p", {}, h("label", { for: "roofline-device" }, "Device "), choice)] : []),
      charts, notes, h("h2", {}, "All points"), table);
    page.onSelect(mark);

    /** @param {RooflinePoint} point */
    const radius = (point) => Math.max(wholeRadius * Math.sqrt(point.share || 0), LEAST_RADIUS);
    /** @param {RooflinePoint} point */
    const title = (point) => (point.kernel < 0 ? "?" : kernelTitle(page.data.kernels[point.kernel]));
    /** With the grid, where another one of the kernel has a circle too. @param {RooflinePoint} point */
    function shortTitle(point) {
      const several = device.points.filter((other) => other.kernel === point.kernel).length > 1;
      const grid = point.grid.includes(";") ? "" : point.grid.split(" / ")[0];
      return cut(title(point), 28) + (several && grid ? ` ${grid}` : "");
    }
    /** @param {RooflinePoint} point */
    function lines(point) {
      const most = point.bound ? "at most " : "";
      const { copy, flops } = device;
      return [
        title(point),
        `${formatPercent(point.share)} of the device's busy time: ${formatCount(point.runs)} × ${formatTime(point.mean_ns)}`,
        ...(point.grid ? [`threads / group: ${point.grid}`] : []),
        ...(point.flops_per_s ? [`computes ${formatFlopRate(point.flops_per_s)}`
          + (flops ? `, ${formatPercent(point.flops_per_s / flops.rate)} of the peak` : "")] : []),
        ...(point.bytes_per_s ? [`moves ${most}${formatByteRate(point.bytes_per_s)}`
          + (copy ? `, ${most}${formatPercent(point.bytes_per_s / copy.rate)} of copy bandwidth` : "")] : []),
        ...(point.flops_per_byte ? [`${point.bound ? "at least " : ""}${digits(point.flops_per_byte)} flops per byte`] : []),
        ...(point.why_not ? [`not known: ${point.why_not}`] : []),
      ];
    }

    /** @param {RooflinePoint} point @param {number} x @param {number} y */
    function circle(point, x, y) {
      const show = () => {
        const box = made.getBoundingClientRect();
        tooltip.show(box.right - 8, box.bottom - 8, lines(point));
      };
      const made = s("circle", {
        cx: x, cy: y, r: radius(point), class: point.bound ? "point bound" : "point", "data-kernel": point.kernel,
        tabindex: 0, role: "button", "aria-label": lines(point).join(". "),
        css: { [point.bound ? "stroke" : "fill"]: kernelColour(point.kernel) },
        onmousemove: (/** @type {MouseEvent} */ event) => tooltip.show(event.clientX, event.clientY, lines(point)),
        onmouseleave: () => tooltip.hide(), onfocus: show, onblur: () => tooltip.hide(),
        onclick: () => open(point),
        onkeydown: (/** @type {KeyboardEvent} */ event) => {
          if (event.key === "Enter" || event.key === " ") { event.preventDefault(); open(point); }
        },
      });
      return made;
    }

    /** @param {RooflinePoint} point */
    function open(point) {
      page.select(point.kernel);
      page.open("by_kernel", { kernel: point.kernel });
    }

    /** @param {number} kernel */
    function mark(kernel) {
      for (const each of panel.querySelectorAll("[data-kernel]")) {
        each.classList.toggle("chosen", Number(/** @type {HTMLElement|SVGElement} */ (each).dataset.kernel) === kernel);
      }
    }

    // --- flops per byte and flop/s ---------------------------------------------------------------------------

    /** @param {RooflinePoint[]} points @param {number} width */
    function plane(points, width) {
      const height = Math.min(Math.max(width * 0.55, 300), 520);
      const area = { left: 52, right: width - 10, top: 22, bottom: height - 40 };
      const { copy, flops } = device;
      const xs = points.map((point) => /** @type {number} */ (point.flops_per_byte));
      const ys = points.map((point) => /** @type {number} */ (point.flops_per_s));
      const ridge = copy && flops ? [flops.rate / copy.rate] : [];
      const [left, right] = [Math.min(...xs, ...ridge) / 3, Math.max(...xs, ...ridge) * 4];
      const tops = flops ? [flops.rate] : copy ? [right * copy.rate] : [];
      const [low, high] = [Math.min(...ys, ...tops) / 3, Math.max(...ys, ...tops) * 2];
      const x = logScale(left, right, area.left, area.right, shortNumber);
      const y = logScale(low, high, area.bottom, area.top, shortNumber);
      /** @param {number} factor */
      const roof = (factor) => {
        const [slope, flat] = [copy ? copy.rate * (1 + factor * (copy.spread || 0)) : Infinity,
          flops ? flops.rate * (1 + factor * (flops.spread || 0)) : Infinity];
        return [left, ...(copy && flops ? [flat / slope] : []), right]
          .map((at) => [x(at), y(Math.min(slope * at, flat))]);
      };
      /** @param {number[][]} corners */
      const path = (corners) => corners.map((corner) => corner.map((value) => value.toFixed(1)).join(",")).join(" ");
      const middle = roof(0);
      const clip = s("clipPath", { id: "roofline-clip" },
        s("rect", { x: area.left, y: area.top, width: area.right - area.left, height: area.bottom - area.top }));
      const ceilings = !copy && !flops ? [] : [
        s("polygon", { class: "spread", points: path([...roof(1), ...roof(-1).reverse()]) }),
        s("polyline", { class: "roof", points: path(middle) }),
      ];
      /** @type {RooflineBox[]} */ const taken = [];
      /** @type {SVGElement[]} */ const names = [];
      if (ridge.length) {
        const middle = x(ridge[0]), at = area.bottom - 6;
        ceilings.push(s("line", { class: "ridge", x1: middle, x2: middle, y1: y(/** @type {RooflineCeiling} */ (flops).rate), y2: area.bottom }));
        for (const [text, side] of /** @type {[string, number][]} */ ([["limited by bandwidth", -1], ["limited by arithmetic", 1]])) {
          const wide = textWidth(text) + 6, left = side < 0 ? middle - wide : middle + 6;
          if (left < area.left || left + wide > area.right) continue;
          names.push(s("text", { class: "side", x: left, y: at }, text));
          taken.push({ left, right: left + wide, top: at - 12, bottom: at + 4 });
        }
      }
      if (flops) {
        const at = y(flops.rate) - 6, text = `peak ${ceilingText(flops, formatFlopRate)}`;
        names.push(s("text", { class: "ceiling", x: area.right - 4, y: at, "text-anchor": "end" }, text));
        taken.push({ left: area.right - 8 - textWidth(text), right: area.right, top: at - 12, bottom: at + 6 });
      }
      if (copy) {
        const { text, boxes } = slopeName(copy, middle, area);
        names.push(text);
        taken.push(...boxes);
      }
      const order = points.map((_, number) => number).sort((a, b) => (points[b].share || 0) - (points[a].share || 0));
      const places = points.map((point, number) => ({ x: x(xs[number]), y: y(ys[number]), r: radius(point) }));
      const circles = order.map((number) => circle(points[number], places[number].x, places[number].y));
      const boxes = places.map(({ x: cx, y: cy, r }) => ({ left: cx - r, right: cx + r, top: cy - r, bottom: cy + r }));
      for (const number of order.slice(0, MOST_NAMES)) {
        const label = placed(shortTitle(points[number]), places[number], area,
          [...taken, ...boxes.filter((_, other) => other !== number)]);
        if (!label) continue;
        names.push(label.text);
        taken.push(label.box);
      }
      const most = points.length ? title(points[order[0]]) : "";
      return s("svg", {
        width, height, viewBox: `0 0 ${width} ${height}`, role: "group",
        "aria-label": `Roofline of ${device.name}: ${points.length} points, flop/s by flops per byte. `
          + `Most time: ${most}. The table below has all figures.`,
      }, s("defs", {}, clip), leftAxis(y, area.left, "flop/s", area.right),
      bottomAxis(x, area.bottom, "flops per byte", area.right),
      s("g", { "clip-path": "url(#roofline-clip)" }, ...ceilings), ...circles, s("g", { class: "names" }, ...names));
    }

    /** The name of the copy's ceiling along its slope, and the room it takes. @param {RooflineCeiling} copy @param {number[][]} roof @param {RooflineBox} area */
    function slopeName(copy, roof, area) {
      const [[x1, y1], [x2, y2]] = roof;
      const name = `copy ${ceilingText(copy, formatByteRate)}`;
      const slope = (y2 - y1) / (x2 - x1), angle = Math.atan(slope);
      const x = Math.max(x1, x1 + (area.bottom - y1) / slope) + 14;  // from where the line is inside the chart
      const y = y1 + (x - x1) * slope;
      const turned = `translate(${x},${y}) rotate(${angle * 180 / Math.PI}) translate(4,-7)`;
      const boxes = [];
      for (let along = 0; along < textWidth(name) * 1.1; along += 10) {
        const [left, bottom] = [x + along * Math.cos(angle), y + along * Math.sin(angle)];
        boxes.push({ left: left - 8, right: left + 14, top: bottom - 22, bottom });
      }
      return { text: s("text", { class: "ceiling", transform: turned }, name), boxes };
    }

    /**
     * A name beside a circle, where nothing else is; null where there is no such place.
     * @param {string} text @param {{x: number, y: number, r: number}} at @param {RooflineBox} area @param {RooflineBox[]} taken
     */
    function placed(text, at, area, taken) {
      const wide = textWidth(text) + 2, near = at.r + 4;
      for (const [dx, dy] of [[near, 4], [-near - wide, 4], [-wide / 2, -near - 2], [-wide / 2, near + 10],
        [near * 0.75, -near * 0.75], [near * 0.75, near * 0.75 + 9], [-near * 0.75 - wide, -near * 0.75]]) {
        const x = at.x + dx, y = at.y + dy;
        const box = { left: x, right: x + wide, top: y - 11, bottom: y + 3 };
        const inside = box.left >= area.left && box.right <= area.right && box.top >= area.top && box.bottom <= area.bottom;
        if (inside && !taken.some((other) => overlap(box, other))) return { text: s("text", { x, y }, text), box };
      }
      return null;
    }

    // --- bandwidth only ----------------------------------------------------------------------------------------

    /** A row for each point, the largest share first, along one axis of bytes per second. @param {RooflinePoint[]} points @param {number} width */
    function strip(points, width) {
      const shown = points.slice(0, MOST_ROWS);
      const { copy } = device;
      const rates = shown.map((point) => /** @type {number} */ (point.bytes_per_s));
      const all = [...rates, ...(copy ? [copy.rate] : [])];
      const left = Math.min(width * 0.45, Math.max(...shown.map((point) => textWidth(shortTitle(point)))) + 12);
      const heights = shown.map((point) => Math.max(2 * radius(point) + 4, 20));
      const top = 24, bottom = top + heights.reduce((sum, each) => sum + each, 6);
      const x = logScale(Math.min(...all) / 2, Math.max(...all) * 2, left, width - 22, shortNumber);
      let next = top;
      const rows = shown.map((point, number) => {
        const y = next + heights[number] / 2;
        next += heights[number];
        return s("g", {},
          s("line", { class: "leader", x1: left, x2: x(rates[number]), y1: y, y2: y }),
          s("text", { x: left - 6, y: y + 4, "text-anchor": "end" }, fitted(shortTitle(point), left - 8)),
          circle(point, x(rates[number]), y));
      });
      const text = copy ? `copy ${ceilingText(copy, formatByteRate)}` : "";
      const ceiling = copy ? [
        s("rect", {
          class: "spread", y: top, height: bottom - top, x: x(copy.rate * (1 - (copy.spread || 0))),
          width: x(copy.rate * (1 + (copy.spread || 0))) - x(copy.rate * (1 - (copy.spread || 0))),
        }),
        s("line", { class: "roof", x1: x(copy.rate), x2: x(copy.rate), y1: top, y2: bottom }),
        s("text", { class: "ceiling", x: Math.min(x(copy.rate) + textWidth(text) * 0.55, width - 2), y: top - 6, "text-anchor": "end" }, text),
      ] : [];
      const height = bottom + 38;
      return s("svg", {
        width, height, viewBox: `0 0 ${width} ${height}`, role: "group",
        "aria-label": `Bandwidth of ${points.length} points without flops. The table below has all figures.`,
      }, bottomAxis(x, bottom, "bytes/s", width - 4), ...ceiling, ...rows);
    }

    // --- all of it ---------------------------------------------------------------------------------------------

    function draw() {
      const points = device.points;
      const both = points.filter((point) => point.flops_per_byte && point.flops_per_s);
      const moving = points.filter((point) => point.bytes_per_s && !point.flops_per_byte);
      const width = Math.max(panel.clientWidth, 280);
      wholeRadius = Math.min(Math.max(width / 16, 24), 44);
      const beside = both.length > 0 && moving.length > 0 && width >= NARROW + 300;
      const stripWidth = beside ? 380 : Math.min(width, 900);
      /** @param {string} heading @param {SVGElement} svg */
      const figure = (heading, svg) => h("figure", {}, h("figcaption", {}, heading), svg);
      charts.replaceChildren(
        ...(both.length ? [figure("Arithmetic and bandwidth", plane(both, beside ? width - stripWidth - 24 : width))] : []),
        ...(moving.length ? [figure("Bandwidth only (no flops)", strip(moving, stripWidth))] : []));
      notes.replaceChildren(...remarks(both, moving).map((line) => h("p", {}, line)));
      table.replaceChildren(tableOf(points));
      mark(page.selected());
    }

    /** @param {RooflinePoint[]} both @param {RooflinePoint[]} moving */
    function remarks(both, moving) {
      const { copy, flops, points } = device;
      const other = points.filter((point) => !both.includes(point) && !moving.includes(point));
      return [
        "Area: share of the device's busy time. Grids of a kernel that reach very different rates have a circle each.",
        ...(points.some((point) => point.bound) ? ["Hollow, dashed: no bytes are declared, and the buffers that are bound give an "
          + "upper bound. Such a kernel may move less: its true point lies further right, or further left where only bandwidth is drawn."] : []),
        ...(copy || flops ? [] : ["No ceilings were measured on this device (ostinato calibrate measures them): "
          + "how far these rates are from what it can do is not known."]),
        ...(copy && !flops ? ["No peak flop rate was measured on this device."] : []),
        ...(flops && !copy ? ["No copy bandwidth was measured on this device."] : []),
        ...(other.length ? [`Only in the table: ${other.length} of ${points.length} points, without bytes per second.`] : []),
        ...(moving.length > MOST_ROWS ? [`Bandwidth is drawn of ${MOST_ROWS} of ${moving.length} points, those with the largest shares.`] : []),
        ...device.notes,
      ];
    }

    /** @param {RooflinePoint[]} points */
    function tableOf(points) {
      /** @param {string} text */
      const number = (text) => h("td", { class: "number" }, text);
      return h("table", { id: "roofline-points" },
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "kernel"),
          ...["share", "per dispatch", "flop/byte", "flop/s", "bytes/s", "efficiency"].map((name) =>
            h("th", { scope: "col", class: "number" }, name)), h("th", { scope: "col" }, "nearer ceiling"))),
        h("tbody", {}, ...points.map((point) => h("tr", { "data-kernel": point.kernel },
          h("th", { scope: "row" }, swatch(point.kernel),
            h("button", { type: "button", class: "link name", onclick: () => open(point) }, title(point)),
            point.grid ? h("div", { class: "note" }, point.grid) : null),
          number(formatPercent(point.share)), number(formatTime(point.mean_ns)),
          number(point.flops_per_byte ? `${point.bound ? "≥ " : ""}${digits(point.flops_per_byte)}` : "–"),
          number(formatFlopRate(point.flops_per_s)),
          number(point.bytes_per_s == null ? "–" : `${point.bound ? "≤ " : ""}${formatByteRate(point.bytes_per_s)}`),
          number(point.efficiency == null ? "–" : `${point.bound ? "≤ " : ""}${formatPercent(point.efficiency)}`),
          h("td", {}, point.why_not ? `not known: ${point.why_not}`
            : { copy: "copy bandwidth", flops: "peak flop rate" }[point.nearer] || "–")))));
    }

    return {
      shown: draw,
      /** Marks a kernel. @param {{kernel: number}} target */
      reveal: (target) => page.select(target.kernel),
    };
  }

  VIEWS.push({ key: "roofline", title: "Roofline", make });
}
