// @ts-check
"use strict";
// The view "Ranks": for regions of one name, a lane for each rank, the skew of each round, and who waits for whom.
{
  /**
   * @typedef {{p50_ns: number|null, p99_ns: number|null, max_ns: number|null}} Skew
   * @typedef {{name: string, last: number, waited_ns: number, held_up_ns: number, median_ns: number|null}} Rank
   * @typedef {{name: string, rounds: number, left_out: number, ranks: Rank[], waits_ns: number[][], begin_skew: Skew, end_skew: Skew,
   *   shown: {number: Column, begin_ns: Column[], end_ns: Column[]}}} RankRounds
   */

  VIEWS.push({ key: "ranks", title: "Ranks", make });

  /** @param {HTMLElement} panel @param {Page} page @returns {Drawn} */
  function make(panel, page) {
    /** @type {{names: RankRounds[], notes: string[]}} */ const data = page.data.ranks;
    let chosen = 0, round = 0;
    const select = /** @type {HTMLSelectElement} */ (h("select", { "aria-label": "Region", onchange: () => { chosen = select.selectedIndex; round = worst(); draw(); } },
      ...data.names.map((each) => h("option", {}, `${each.name} (${formatCount(each.rounds)} rounds)`))));
    const box = h("div", {});
    panel.append(h("div", { class: "controls" }, "Region ", select), box, ...data.notes.map((note) => h("p", { class: "note" }, note)));
    round = worst();

    /** The drawn round in which the ends lie farthest apart. */
    function worst() {
      const { shown } = data.names[chosen];
      let best = 0, most = -1;
      for (let at = 0; at < shown.number.length; at++) {
        const ends = shown.end_ns.map((column) => column[at]);
        const skew = Math.max(...ends) - Math.min(...ends);
        if (skew > most) [best, most] = [at, skew];
      }
      return best;
    }

    function draw() {
      const each = data.names[chosen], count = each.shown.number.length, width = Math.max(panel.clientWidth, 320);
      /** @param {number} by */
      const step = (by) => { round = Math.min(Math.max(round + by, 0), count - 1); draw(); };
      box.replaceChildren(
        h("p", {}, `Ends lie ${formatTime(each.end_skew.p50_ns)} apart in the median round, at most ${formatTime(each.end_skew.max_ns)}; begins ${formatTime(each.begin_skew.p50_ns)} and ${formatTime(each.begin_skew.max_ns)}.`),
        h("div", { class: "controls" },
          h("button", { type: "button", onclick: () => step(-1), disabled: round === 0 }, "previous"),
          h("span", { role: "status" }, ` round ${formatCount(each.shown.number[round] + 1)} of ${formatCount(each.rounds)} `),
          h("button", { type: "button", onclick: () => step(1), disabled: round === count - 1 }, "next"),
          page.data.timeline ? h("button", { type: "button", onclick: () => page.open("timeline", span(each, round)) }, "in the timeline") : ""),
        lanes(each, round, width), table(each), matrix(each));
    }

    return { shown: draw };
  }

  /** @param {RankRounds} each @param {number} round */
  function span(each, round) {
    return { begin_ns: Math.min(...each.shown.begin_ns.map((column) => column[round])), end_ns: Math.max(...each.shown.end_ns.map((column) => column[round])) };
  }

  /** A bar for each rank, and what it then waits, hatched. @param {RankRounds} each @param {number} round @param {number} width */
  function lanes(each, round, width) {
    const { begin_ns, end_ns } = span(each, round), left = 110, high = 18;
    const across = linearScale(0, Math.max(end_ns - begin_ns, 1), left, width - 14, formatTime);
    const bottom = each.ranks.length * high + 4;
    const rows = each.ranks.map((rank, place) => {
      const begin = each.shown.begin_ns[place][round], end = each.shown.end_ns[place][round], y = place * high + 2;
      const [from, to, last] = [begin, end, end_ns].map((moment) => across(moment - begin_ns));
      return s("g", {},
        s("title", {}, `${rank.name}: ${formatTime(end - begin)}, then waits ${formatTime(end_ns - end)}`),
        s("text", { x: left - 6, y: y + 12, "text-anchor": "end" }, cut(rank.name, 14)),
        s("rect", { class: "wait", x: to, y: y + 5, width: Math.max(last - to, 0), height: 4 }),
        s("rect", { class: end === end_ns ? "work last" : "work", x: from, y, width: Math.max(to - from, 1), height: high - 4 }));
    });
    return s("svg", { width, height: bottom + 36, viewBox: `0 0 ${width} ${bottom + 36}`, role: "img",
      "aria-label": `${each.name}, round ${each.shown.number[round] + 1}: one lane for each of ${each.ranks.length} ranks` },
    ...rows, bottomAxis(across, bottom, "", width - 14));
  }

  /** @param {RankRounds} each */
  function table(each) {
    const headings = ["rank", "median", "last in", "waited for others", "others waited for it"];
    return h("table", {},
      h("thead", {}, h("tr", {}, ...headings.map((heading, at) => h("th", { scope: "col", class: at ? "number" : "" }, heading)))),
      h("tbody", {}, ...each.ranks.map((rank) => h("tr", {}, h("th", { scope: "row", class: "name" }, rank.name),
        ...[formatTime(rank.median_ns), `${formatCount(rank.last)} of ${formatCount(each.rounds)}`, formatTime(rank.waited_ns), formatTime(rank.held_up_ns)]
          .map((text) => h("td", { class: "number" }, text))))));
  }

  /** Who (rows) waits for whom (columns). @param {RankRounds} each */
  function matrix(each) {
    if (each.ranks.length > 16) return h("p", { class: "note" }, "Who waits for whom is shown as a table for up to 16 ranks; the page's data has all.");
    const most = Math.max(...each.waits_ns.flat(), 1);
    return h("figure", {}, h("figcaption", {}, "Who waits (row) for whom (column), over all rounds"),
      h("table", { class: "waits" },
        h("thead", {}, h("tr", {}, h("th", {}), ...each.ranks.map((rank) => h("th", { scope: "col", class: "number" }, rank.name)))),
        h("tbody", {}, ...each.ranks.map((rank, row) => h("tr", {}, h("th", { scope: "row" }, rank.name),
          ...each.waits_ns[row].map((wait, column) => h("td", {
            class: "number", css: { background: `color-mix(in srgb, var(--slower) ${Math.round((60 * wait) / most)}%, transparent)` },
          }, row === column ? "" : formatTime(wait))))))));
  }
}
