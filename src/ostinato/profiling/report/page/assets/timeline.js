// @ts-check
"use strict";
// The timeline: devices and host threads as rows of spans that are zoomed and panned by wheel, keys and touch. Times
// are nanoseconds since the first moment of the recording.

{
  const { CAUSES, CAUSE } = TIMELINE;
  const AXIS = 22, GUTTER = 150, LEAST_NS = 10, MOST_ARROWS = 100, LISTED = 8;
  const FONT = "11px ui-monospace, monospace";
  const HELP = "Wheel or w and s zoom, drag or a and d pan, 0 shows everything, / searches, n and p go to the next " +
    "and the previous match, a click or Shift with an arrow selects, Enter zooms to the selection, Escape clears it.";
  const SMALL = "Where spans are narrower than a pixel, its height says how much of it they cover.";

  /** @typedef {{row: TimelineRow, span: number, left: number, right: number}} Named a span with room for its name */

  VIEWS.push({ key: "timeline", title: "Timeline", make: makeTimeline });

  /** @param {HTMLElement} panel @param {Page} page @returns {Drawn} */
  function makeTimeline(panel, page) {
    /** @type {TimelineData} */
    const data = page.data.timeline;
    const rows = TIMELINE.rowsOf(data), { titleOf, factsOf, kernelOf, matcher } = TIMELINE.wordsFor(page.data);
    const longestGap = data.causes.map((_, cause) => longest(rows, cause));
    const most_ns = Math.max(data.span_ns, 1);
    let begin_ns = -0.01 * most_ns, end_ns = 1.01 * most_ns;
    /** @type {TimelinePlace|null} */ let selected = null;
    /** @type {{before: TimelinePlace[], after: TimelinePlace[]}} */ let linked = { before: [], after: [] };
    let gutter = 0, width = 0, height = 0, ratio = 1, letter = 7, waiting = 0, matches = 0;
    let theme = { back: "", raised: "", line: "", text: "", dim: "", path: "" };
    /** @type {Paint[]} */ let paints = [];
    /** @type {Pixels|null} */ let pixels = null;
    /** @type {Pixels|null} */ let small = null;

    // --- elements -------------------------------------------------------------------------------------------------

    const canvas = /** @type {HTMLCanvasElement} */ (h("canvas", {
      tabindex: "0", role: "application", "aria-label": `Timeline of ${formatTime(data.span_ns)}: ` +
        `${[...data.devices, ...data.threads].map((each) => each.name).join(", ")}. ${HELP}`,
      onwheel: wheel, onkeydown: key, onpointerdown: down, onpointermove: move, onpointerup: up, onpointercancel: up,
      onpointerleave: () => tooltip.hide(), ondblclick: doubleClick,
    }));
    const overview = /** @type {HTMLCanvasElement} */ (h("canvas", {
      class: "minimap", "aria-hidden": "true", onpointerdown: jump, onpointermove: jump,
    }));
    const tall = h("div", {}, canvas);
    const stage = h("div", { class: "stage", onscroll: later }, tall);
    const search = /** @type {HTMLInputElement} */ (h("input", {
      type: "search", placeholder: "search kernels, labels, names", "aria-label": "Search kernels, labels and names",
      oninput: filter, onkeydown: searchKey,
    }));
    const found = h("span", { class: "note", role: "status" });
    const chip = h("button", { type: "button", class: "chip", title: "stop highlighting", onclick: () => page.select(-1) });
    const range = h("span", { class: "note range" });
    const details = h("div", { class: "details", "aria-live": "polite" });
    const button = (/** @type {string} */ text, /** @type {string} */ label, /** @type {() => void} */ act) =>
      h("button", { type: "button", "aria-label": label, title: label, onclick: act }, text);
    const kernels = h("div", { class: "legend", "aria-label": "Kernels" });
    const causes = h("div", { class: "legend", "aria-label": "Causes of idle time" });
    panel.append(
      h("div", { class: "tools" }, search,
        button("‹", "previous match", () => next(-1)), button("›", "next match", () => next(1)), found, chip,
        h("span", { class: "apart" }), button("−", "zoom out", () => zoom(2)), button("+", "zoom in", () => zoom(0.5)),
        button("whole", "show the whole recording", whole), range),
      overview, stage, details, kernels, causes,
      ...data.notes.map((note) => h("p", { class: "note left-out" }, note)),
      h("p", { class: "note" }, `${HELP} ${SMALL}`));

    function legends() {
      kernels.replaceChildren(...page.data.kernels.slice(0, KERNEL_COLOURS.length).map((kernel, number) =>
        h("button", {
          type: "button", title: "highlight", "aria-pressed": String(page.selected() === number),
          onclick: () => page.select(page.selected() === number ? -1 : number),
        }, swatch(number), cut(kernelTitle(kernel), 40))));
      const others = page.data.kernels.length - KERNEL_COLOURS.length;
      if (others > 0) kernels.append(h("span", { class: "note" }, swatch(-1), `${others} more`));
      const known = data.causes.map((cause, number) => ({ ...cause, number })).filter((cause) => cause.total_ns > 0);
      causes.replaceChildren(...known.sort((a, b) => b.total_ns - a.total_ns).map((cause) => {
        const sample = /** @type {HTMLCanvasElement} */ (h("canvas", { class: "sample" }));
        const context = sized(sample, 22, 13), area = new Pixels(context, sample.width, sample.height);
        area.span(0, area.width, 0, area.height, paints[CAUSE + cause.number], false);
        context.putImageData(area.image, 0, 0);
        const mark = h("b", {}, CAUSES[cause.number][0]), place = longestGap[cause.number];
        const text = [sample, mark, ` idle ${formatTime(cause.total_ns)}: ${cause.name}`];
        if (!place) return h("span", { class: "note", title: "only a part of gaps with other causes" }, ...text);
        return h("button", { type: "button", title: "go to the longest", onclick: () => go(place) }, ...text);
      }));
    }

    // --- view -----------------------------------------------------------------------------------------------------

    /** @param {number} from @param {number} to */
    function setView(from, to) {
      const span = Math.min(Math.max(to - from, LEAST_NS), 1.02 * most_ns);
      const middle = (from + to) / 2;
      begin_ns = Math.min(Math.max(middle - span / 2, -0.01 * most_ns), 1.01 * most_ns - span);
      end_ns = begin_ns + span;
      later();
    }

    function whole() { setView(-0.01 * most_ns, 1.01 * most_ns); }

    /** @param {number} factor @param {number} [at] */
    function zoom(factor, at = (begin_ns + end_ns) / 2) {
      const span = Math.min(Math.max((end_ns - begin_ns) * factor, LEAST_NS), 1.02 * most_ns);
      const part = (at - begin_ns) / (end_ns - begin_ns);
      setView(at - part * span, at + (1 - part) * span);
    }

    /** @param {number} part of what is shown */
    function pan(part) {
      const by = part * (end_ns - begin_ns);
      setView(begin_ns + by, end_ns + by);
    }

    function later() {
      if (!waiting) waiting = requestAnimationFrame(() => { waiting = 0; draw(); });
    }

    /** @param {number} x in CSS pixels of the canvas */
    const timeAt = (x) => begin_ns + ((x - gutter) / (width - gutter)) * (end_ns - begin_ns);
    /** @param {number} at */
    const xAt = (at) => gutter + ((at - begin_ns) / (end_ns - begin_ns)) * (width - gutter);

    /** Scrolls and zooms until a span is seen. @param {TimelinePlace} place */
    function bring({ row, span }) {
      const begin = row.begin[span], duration = row.duration[span], shown = end_ns - begin_ns;
      const room = Math.min(Math.max(shown, 3 * duration), Math.max(duration, LEAST_NS) * 100);
      if (begin < begin_ns || begin + duration > end_ns || room < shown) {
        setView(begin + duration / 2 - room / 2, begin + duration / 2 + room / 2);
      }
      const top = row.top - stage.scrollTop;
      if (top < 0 || top + row.height > height - AXIS) stage.scrollTop = Math.max(row.top - (height - AXIS) / 2, 0);
      later();
    }

    // --- drawing --------------------------------------------------------------------------------------------------

    /** Rows get their places; called when the size or the theme may have changed. */
    function layout() {
      for (const name of /** @type {(keyof typeof theme)[]} */ (Object.keys(theme))) theme[name] = themeColour(name);
      paints = TIMELINE.paintsOver(theme.back);
      ratio = devicePixelRatio || 1;
      gutter = panel.clientWidth >= 640 ? GUTTER : 0;
      let top = 4;
      rows.forEach((row, number) => {
        const above = rows[number - 1];
        if (!above || above.title !== row.title || above.device !== row.device) top += gutter ? 6 : 18;
        row.top = top;
        top += row.height + 1;
      });
      const total = top + 8 + AXIS;
      height = Math.round(Math.min(total, Math.max(innerHeight * 0.66, 260)));
      stage.style.setProperty("height", `${height}px`);
      tall.style.setProperty("height", `${total}px`);
      width = stage.clientWidth;
      const context = sized(canvas, width, height);
      context.font = FONT;
      letter = context.measureText("mmmmmmmmmm").width / 10;
      pixels = new Pixels(context, canvas.width - Math.round(gutter * ratio), canvas.height);
      layoutOverview();
    }

    function layoutOverview() {
      const strips = data.devices.map((device) => {
        const own = rows.filter((row) => row.device === device);
        return own.find((row) => row.kind === "dispatches") || own[0];
      }).concat(data.devices.length ? [] : rows.slice(0, 1)).slice(0, 4);
      const context = sized(overview, panel.clientWidth, 12 * strips.length + 6);
      small = new Pixels(context, overview.width, overview.height);
      small.box(0, small.width, 0, small.height, colourWord(theme.raised));
      const area = small;
      strips.forEach((row, number) => {
        const top = Math.round((3 + 12 * number) * ratio), bottom = top + Math.round(11 * ratio);
        for (const spans of [row.behind, row]) {
          if (spans) paintSpans(area, spans, top, bottom, 0, most_ns / area.width, paints, null);
        }
      });
    }

    function draw() {
      if (!pixels || !width) return;
      const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
      const { back, line, dim } = theme;
      const scroll = stage.scrollTop - AXIS;
      const ns_per_pixel = (end_ns - begin_ns) / pixels.width;
      // On a grid, so that spans keep to their pixels while the view is panned.
      const from_ns = Math.round(begin_ns / ns_per_pixel) * ns_per_pixel;
      pixels.words.fill(colourWord(back));
      const ticks = ticksOf();
      for (const tick of ticks.at) {
        const x = Math.round((tick - from_ns) / ns_per_pixel);
        pixels.box(x, x + 1, 0, pixels.height, colourWord(line));
      }
      /** @type {Named[]} */ const names = [];
      for (const row of rows) {
        const top = Math.round((row.top - scroll) * ratio), bottom = top + Math.round(row.height * ratio);
        const named = (row.kind === "idle" ? 12 : 24) * ratio;
        if (row.behind) paintSpans(pixels, row.behind, top, bottom, from_ns, ns_per_pixel, paints, null);
        paintSpans(pixels, row, top, bottom, from_ns, ns_per_pixel, paints, row.hits, named,
          (span, left, right) => names.push({ row, span, left, right }));
      }
      context.clearRect(0, 0, width, height);
      context.putImageData(pixels.image, Math.round(gutter * ratio), 0);
      drawNames(context, names, scroll);
      if (selected) drawSelection(context, scroll);
      drawTitles(context, scroll);
      context.fillStyle = back;
      context.fillRect(0, 0, width, AXIS);
      context.fillStyle = dim;
      context.font = FONT;
      context.textAlign = "left";
      for (const tick of ticks.at) if (xAt(tick) >= gutter) context.fillText(ticks.format(tick), xAt(tick) + 3, 15);
      context.fillStyle = line;
      context.fillRect(0, AXIS - 1, width, 1);
      drawOverview();
      const [first, last] = [Math.max(begin_ns, 0), Math.min(end_ns, most_ns)];
      const length = formatTime(Math.round(last - first));
      range.textContent = `${ticks.format(first, 1)} to ${ticks.format(last, 1)} (${length})`;
    }

    /** @param {CanvasRenderingContext2D} context @param {Named[]} names @param {number} scroll */
    function drawNames(context, names, scroll) {
      context.font = FONT;
      context.textBaseline = "alphabetic";
      context.textAlign = "left";
      for (const { row, span, left, right } of names) {
        const y = row.top - scroll;
        if (y + row.height < AXIS || y > height) continue;
        const room = Math.floor(((right - left) / ratio - 6) / letter);
        const name = row.kind === "idle" ? CAUSES[row.columns.cause[span]][0] : titleOf(row, span);
        if (room < 1 || (room < 3 && name.length > room)) continue;
        const faded = row.hits !== null && row.hits[span + 1] === row.hits[span];
        const x = gutter + left / ratio, paint = paints[row.paint[span]];
        if (paint.pattern && !faded) {
          context.fillStyle = paint.name;
          context.fillRect(x, y, Math.min(name.length, room) * letter + 6, row.height);
        }
        context.fillStyle = faded ? theme.dim : paint.text;
        context.fillText(cut(name, room), x + 3, y + row.height / 2 + 4);
      }
    }

    /** @param {CanvasRenderingContext2D} context @param {number} scroll */
    function drawTitles(context, scroll) {
      context.font = "12px system-ui, sans-serif";
      context.textAlign = "left";
      if (gutter) {
        context.fillStyle = theme.back;
        context.fillRect(0, AXIS, gutter, height - AXIS);
      }
      rows.forEach((row, number) => {
        const above = rows[number - 1];
        if (above && above.title === row.title && above.device === row.device) return;
        const y = row.top - scroll;
        if (y < -40 || y > height) return;
        const newDevice = row.device && (!above || above.device !== row.device);
        const name = row.device ? (newDevice ? `${row.device.name} · ${row.title}` : row.title) : row.title;
        context.fillStyle = newDevice || !row.device ? theme.text : theme.dim;
        context.fillText(cut(name, gutter ? 23 : 60), 4, gutter ? y + 13 : y - 4, gutter ? gutter - 8 : width - 8);
      });
    }

    /** @param {CanvasRenderingContext2D} context @param {number} scroll */
    function drawSelection(context, scroll) {
      const { row, span } = /** @type {TimelinePlace} */ (selected);
      const start = xAt(row.begin[span]), end = xAt(row.begin[span] + row.duration[span]);
      const middle = (/** @type {TimelineRow} */ of) => of.top - scroll + of.height / 2;
      context.save();
      context.beginPath();
      context.rect(gutter, AXIS, width - gutter, height - AXIS);
      context.clip();
      context.lineWidth = 2;
      context.strokeStyle = theme.text;
      context.strokeRect(start - 1, row.top - scroll - 1, Math.max(end - start, 3) + 2, row.height + 2);
      context.strokeStyle = context.fillStyle = theme.path;
      linked.before.slice(0, MOST_ARROWS).forEach((place, number) => {
        context.lineWidth = number ? 1 : 2;
        const ended = place.row.begin[place.span] + place.row.duration[place.span];
        arrow(context, xAt(ended), middle(place.row), start, middle(row));
      });
      context.setLineDash([5, 3]);
      context.lineWidth = 1;
      for (const place of linked.after.slice(0, MOST_ARROWS)) {
        arrow(context, end, middle(row), xAt(place.row.begin[place.span]), middle(place.row));
      }
      context.restore();
    }

    function drawOverview() {
      if (!small) return;
      const context = /** @type {CanvasRenderingContext2D} */ (overview.getContext("2d"));
      context.putImageData(small.image, 0, 0);
      const across = overview.clientWidth, down = overview.clientHeight;
      const left = Math.max((begin_ns / most_ns) * across, 0), right = Math.min((end_ns / most_ns) * across, across);
      context.globalAlpha = 0.6;
      context.fillStyle = theme.back;
      context.fillRect(0, 0, left, down);
      context.fillRect(right, 0, across - right, down);
      context.globalAlpha = 1;
      context.strokeStyle = theme.text;
      context.lineWidth = 1;
      context.strokeRect(left + 0.5, 0.5, Math.max(right - left - 1, 2), down - 1);
    }

    function ticksOf() {
      const step = niceStep((end_ns - begin_ns) / Math.max((width - gutter) / 110, 1));
      const at = [];
      for (let tick = Math.ceil(begin_ns / step) * step; tick < end_ns; tick += step) at.push(tick);
      const far = Math.max(Math.abs(begin_ns), Math.abs(end_ns));
      const unit = far >= 1e9 ? 1e9 : far >= 1e6 ? 1e6 : far >= 1e3 ? 1e3 : 1;
      const decimals = Math.max(Math.ceil(Math.log10(unit / step) - 1e-9), 0);
      const name = { 1e9: "s", 1e6: "ms", 1e3: "µs", 1: "ns" }[unit];
      const format = (/** @type {number} */ at_ns, more = 0) =>
        `${(at_ns / unit).toFixed(unit > 1 ? decimals + more : 0)} ${name}`;
      return { at, format };
    }

    // --- selection ------------------------------------------------------------------------------------------------

    /** @param {TimelinePlace|null} place */
    function select(place) {
      selected = place;
      const depends = place && place.row.kind === "dispatches";
      linked = depends ? TIMELINE.dependenciesOf(rows, place) : { before: [], after: [] };
      details.replaceChildren(...(place ? describe(place) : []));
      later();
    }

    /** Selects a span and shows it. @param {TimelinePlace|null} place */
    function go(place) {
      if (!place) return;
      select(place);
      bring(place);
    }

    /** @param {TimelinePlace} place */
    function describe(place) {
      const { row, span } = place, kernel = kernelOf(row, span);
      const link = (/** @type {TimelinePlace} */ other) => h("button", {
        type: "button", onclick: () => { go(other); canvas.focus(); },
      }, titleOf(other.row, other.span));
      const links = (/** @type {string} */ name, /** @type {TimelinePlace[]} */ places) => places.length === 0 ? [] : [
        h("dt", {}, name),
        h("dd", {}, ...places.slice(0, LISTED).map(link),
          places.length > LISTED ? ` and ${places.length - LISTED} more` : null)];
      return [
        h("div", { class: "bar" },
          h("h2", {}, kernel >= 0 ? swatch(kernel) : null, titleOf(row, span)),
          h("div", {},
            kernel >= 0 && page.data.by_kernel
              ? button("open kernel", "open kernel", () => page.open("by_kernel", { kernel })) : null,
            button("zoom to it", "zoom to it", () => zoomTo(place)),
            button("×", "clear the selection", () => select(null)))),
        h("dl", {},
          ...factsOf(row, span).flatMap(([name, text]) => [h("dt", {}, name), h("dd", {}, text)]),
          ...links("waited for", linked.before), ...links("waited for it", linked.after)),
      ];
    }

    /** @param {TimelinePlace} place */
    function zoomTo({ row, span }) {
      const duration = Math.max(row.duration[span], LEAST_NS);
      setView(row.begin[span] - 0.1 * duration, row.begin[span] + 1.1 * duration);
    }

    // --- search ---------------------------------------------------------------------------------------------------

    function filter() {
      const wanted = search.value.trim().toLowerCase(), kernel = page.selected();
      matches = 0;
      for (const row of rows) {
        row.hits = null;
        if (!wanted && (kernel < 0 || row.kind !== "dispatches")) continue;
        const matching = wanted ? matcher(row, wanted) : (/** @type {number} */ span) => kernelOf(row, span) === kernel;
        const hits = row.hits = new Uint32Array(row.begin.length + 1);
        for (let span = 0; span < row.begin.length; span++) hits[span + 1] = hits[span] + (matching(span) ? 1 : 0);
        matches += hits[row.begin.length];
      }
      found.textContent = wanted || kernel >= 0 ? `${formatCount(matches)} ${matches === 1 ? "match" : "matches"}` : "";
      chip.hidden = Boolean(wanted) || kernel < 0;
      chip.textContent = kernel < 0 ? "" : `highlighted: ${cut(kernelTitle(page.data.kernels[kernel]), 40)} ×`;
      legends();
      later();
    }

    /** Selects the next match, or the previous one. @param {number} step */
    function next(step) {
      if (!matches) return;
      const at = selected ? selected.row.begin[selected.span] : step > 0 ? begin_ns : end_ns;
      const order = selected ? rows.indexOf(selected.row) : -1;
      // After the last comes the first.
      go(step > 0 ? following(at, order) || following(-Infinity, -1) : preceding(at, order) || preceding(Infinity, -1));
    }

    /** @param {number} at @param {number} order */
    function following(at, order) {
      /** @type {TimelinePlace|null} */ let best = null;
      rows.forEach((row, number) => {
        if (!row.hits) return;
        const from = firstFrom(row.begin, number > order ? at : at + 0.5);
        const span = firstFrom(row.hits, row.hits[from] + 1, from) - 1;
        if (span < row.begin.length && !(best && best.row.begin[best.span] <= row.begin[span])) best = { row, span };
      });
      return /** @type {TimelinePlace|null} */ (best);
    }

    /** @param {number} at @param {number} order */
    function preceding(at, order) {
      /** @type {TimelinePlace|null} */ let best = null;
      rows.forEach((row, number) => {
        if (!row.hits) return;
        const upto = firstFrom(row.begin, number < order ? at + 0.5 : at);
        if (row.hits[upto] === 0) return;
        const span = firstFrom(row.hits, row.hits[upto]) - 1;
        if (!(best && best.row.begin[best.span] > row.begin[span])) best = { row, span };
      });
      return /** @type {TimelinePlace|null} */ (best);
    }

    // --- input ----------------------------------------------------------------------------------------------------

    /** @param {number} x @param {number} y in CSS pixels of the canvas @returns {TimelinePlace|null} */
    function placeAt(x, y) {
      if (y < AXIS || x < gutter) return null;
      const down = y - AXIS + stage.scrollTop;
      const row = rows.find((each) => down >= each.top && down <= each.top + each.height);
      const span = row ? spanAt(row, timeAt(x), (3 * (end_ns - begin_ns)) / (width - gutter)) : -1;
      return row && span >= 0 ? { row, span } : null;
    }

    /** @type {Map<number, {x: number, y: number}>} */ const pointers = new Map();
    let moved = 0;

    /** @param {PointerEvent} event */
    function down(event) {
      pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
      if (pointers.size === 1) moved = 0;
      canvas.setPointerCapture(event.pointerId);
      tooltip.hide();
    }

    /** @param {PointerEvent} event */
    function move(event) {
      const last = pointers.get(event.pointerId), now = { x: event.offsetX, y: event.offsetY };
      if (!last) return hover(event);
      const others = [...pointers].filter(([id]) => id !== event.pointerId).map(([, point]) => point);
      moved += Math.abs(now.x - last.x) + Math.abs(now.y - last.y);
      if (others.length) {
        // The times under the two fingers stay there.
        const other = others[0], [still, moving] = [timeAt(other.x), timeAt(last.x)];
        if (Math.abs(now.x - other.x) > 4 && Math.abs(last.x - other.x) > 4) {
          const perPixel = Math.abs((moving - still) / (now.x - other.x));
          setView(still - (other.x - gutter) * perPixel, still + (width - other.x) * perPixel);
        }
      } else if (moved > 3) {
        pan((last.x - now.x) / (width - gutter));
        stage.scrollTop += last.y - now.y;
      }
      pointers.set(event.pointerId, now);
    }

    /** @param {PointerEvent} event */
    function up(event) {
      const alone = pointers.size === 1;
      pointers.delete(event.pointerId);
      if (event.type === "pointerup" && alone && moved <= 3) select(placeAt(event.offsetX, event.offsetY));
    }

    /** @param {PointerEvent} event */
    function hover(event) {
      const place = placeAt(event.offsetX, event.offsetY);
      if (!place) return tooltip.hide();
      const facts = factsOf(place.row, place.span).filter(([name]) => name !== "start");
      tooltip.show(event.clientX, event.clientY,
        [titleOf(place.row, place.span), ...facts.slice(0, 5).map(([name, text]) => `${name}: ${text}`)]);
    }

    /** @param {MouseEvent} event */
    function doubleClick(event) {
      const place = placeAt(event.offsetX, event.offsetY);
      if (place) zoomTo(place);
    }

    /** @param {WheelEvent} event */
    function wheel(event) {
      event.preventDefault();
      const lines = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? height : 1;
      const [across, along] = [event.deltaX * lines, event.deltaY * lines];
      if (event.altKey) stage.scrollTop += along;
      else if (event.shiftKey || Math.abs(across) > Math.abs(along)) pan((across || along) / (width - gutter));
      else {
        // A pinch on a touchpad arrives as a wheel with Ctrl, in small steps.
        const amount = Math.min(Math.max(along, -200), 200) * (event.ctrlKey ? 0.01 : 0.002);
        zoom(Math.exp(amount), timeAt(Math.max(event.offsetX, gutter)));
      }
    }

    /** @param {PointerEvent} event */
    function jump(event) {
      if (!(event.buttons & 1)) return;
      const at = (event.offsetX / overview.clientWidth) * most_ns, half = (end_ns - begin_ns) / 2;
      setView(at - half, at + half);
    }

    /** @type {{[key: string]: () => void}} */
    const KEYS = {
      w: () => zoom(0.7), "+": () => zoom(0.7), "=": () => zoom(0.7), s: () => zoom(1 / 0.7), "-": () => zoom(1 / 0.7),
      a: () => pan(-0.15), d: () => pan(0.15), ArrowLeft: () => pan(-0.15), ArrowRight: () => pan(0.15),
      ArrowUp: () => { stage.scrollTop -= 40; }, ArrowDown: () => { stage.scrollTop += 40; },
      0: whole, Home: whole, n: () => next(1), p: () => next(-1), "/": () => search.focus(),
      Enter: () => { if (selected) zoomTo(selected); },
      Escape: () => { select(null); clearSearch(); },
    };

    /** @param {KeyboardEvent} event */
    function key(event) {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const act = event.shiftKey && event.key.startsWith("Arrow") ? () => step(event.key) : KEYS[event.key];
      if (!act) return;
      act();
      event.preventDefault();
    }

    /** Selects a neighbour of the selected span. @param {string} arrowKey */
    function step(arrowKey) {
      const drawn = rows.filter((row) => row.begin.length);
      const start = drawn.find((row) => row.kind === "dispatches") || drawn[0];
      /** @type {TimelinePlace|null} */ let place = null;
      if (!selected) place = { row: start, span: Math.min(firstEndingAfter(start, begin_ns), start.begin.length - 1) };
      else if (arrowKey === "ArrowLeft" || arrowKey === "ArrowRight") {
        const span = selected.span + (arrowKey === "ArrowLeft" ? -1 : 1);
        if (span >= 0 && span < selected.row.begin.length) place = { row: selected.row, span };
      } else {
        const row = drawn[drawn.indexOf(selected.row) + (arrowKey === "ArrowUp" ? -1 : 1)];
        if (row) place = { row, span: spanAt(row, selected.row.begin[selected.span], Infinity) };
      }
      go(place);
    }

    function clearSearch() {
      search.value = "";
      if (page.selected() >= 0) page.select(-1);
      else filter();
    }

    /** @param {KeyboardEvent} event */
    function searchKey(event) {
      if (event.key === "Enter") next(event.shiftKey ? -1 : 1);
      else if (event.key === "Escape") { clearSearch(); canvas.focus(); }
    }

    // --- the page ---------------------------------------------------------------------------------------------------

    page.onSelect(filter);
    Object.assign(panel, {
      timeline: {
        view: () => ({ begin_ns, end_ns }), setView, draw, rows, select,
        selection: () => selected, linked: () => linked, at: (/** @type {TimelinePlace} */ { row, span }) => ({
          x: xAt(row.begin[span] + row.duration[span] / 2), y: row.top + row.height / 2 + AXIS - stage.scrollTop,
        }),
      },
    });
    return {
      shown() { layout(); filter(); draw(); },
      /**
       * Shows a range of time; with a kernel, its dispatch that starts there.
       * @param {{begin_ns: number, end_ns: number, kernel?: number}} target
       */
      reveal({ begin_ns: from, end_ns: to, kernel }) {
        const extra = Math.max(to - from, LEAST_NS) * (kernel === undefined ? 0.05 : 2);
        setView(from - extra, to + extra);
        if (kernel === undefined) {
          if (page.selected() >= 0) page.select(-1); // what else ran there is asked for, too
          return;
        }
        for (const row of rows) {
          const span = firstFrom(row.begin, from);
          if (row.begin[span] === from && kernelOf(row, span) === kernel) go({ row, span });
        }
      },
    };
  }

  /** The longest gap of a cause. @param {TimelineRow[]} rows @param {number} cause */
  function longest(rows, cause) {
    /** @type {TimelinePlace|null} */ let best = null;
    for (const row of rows) {
      if (row.kind !== "idle") continue;
      for (let span = 0; span < row.begin.length; span++) {
        if (row.columns.cause[span] !== cause || (best && best.row.duration[best.span] >= row.duration[span])) continue;
        best = { row, span };
      }
    }
    return /** @type {TimelinePlace|null} */ (best);
  }

  /**
   * An arrow; over the spans where both ends lie on one row.
   * @param {CanvasRenderingContext2D} context
   * @param {number} x @param {number} y @param {number} toX @param {number} toY
   */
  function arrow(context, x, y, toX, toY) {
    const bend = Math.max(Math.min(Math.abs(toX - x) / 2, 60), 14), rise = Math.abs(toY - y) < 1 ? 26 : 0;
    context.beginPath();
    context.moveTo(x, y);
    context.bezierCurveTo(x + bend, y - rise, toX - bend, toY - rise, toX, toY);
    context.stroke();
    context.save();
    context.translate(toX, toY);
    context.rotate(Math.atan2(rise, bend));
    context.beginPath();
    context.moveTo(0, 0);
    context.lineTo(-8, -4);
    context.lineTo(-8, 4);
    context.fill();
    context.restore();
  }
}
