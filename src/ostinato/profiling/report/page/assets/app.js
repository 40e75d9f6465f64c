// @ts-check
"use strict";
// The page itself: head, tabs, themes.

/**
 * What stands above the tabs. `open` shows a kernel; it is null where the page has no view for that.
 * @param {Head} head @param {string} title @param {((kernel: number) => void)|null} open
 */
function headOf(head, title, open) {
  const worth = head.checks.some((check) => check.status === "noted" || check.status === "error");
  return h("header", {},
    h("div", { class: "bar" }, h("h1", {}, title), themeButton()),
    h("div", { class: "overview" }, ...head.overview.filter((line) => line !== title).map((line) => h("div", {}, line))),
    head.figures.length ? h("dl", { class: "figures" }, ...head.figures.map((figure) =>
      h("div", {}, h("dt", {}, figure.name), h("dd", {}, figure.value)))) : null,
    lookFirst(head, open),
    head.doubt ? h("p", { class: "doubt", id: "doubt" },
      h("span", { class: `dot ${statusClass(head.doubt.status)}`, "aria-hidden": "true" }),
      h("strong", { class: `status ${statusClass(head.doubt.status)}` }, `${head.doubt.name}: ${head.doubt.status}`),
      ` ${head.doubt.sentence}`) : null,
    h("details", { class: worth ? "checks worth" : "checks", id: "checks", open: head.checks_open },
      h("summary", {},
        h("span", { class: "strip", "aria-hidden": "true" },
          ...head.checks.map((check) => h("span", { class: `dot ${statusClass(check.status)}`, title: `${check.name}: ${check.status}` }))),
        head.checks_title),
      h("table", {}, h("tbody", {}, ...head.checks.map((check) => h("tr", {},
        h("th", { scope: "row" }, check.name),
        h("td", { class: `status ${statusClass(check.status)}` }, check.status),
        h("td", {}, check.sentence)))))));
}

/** The sentence, with its first words in bold and the names of kernels as buttons. @param {Head} head @param {((kernel: number) => void)|null} open */
function lookFirst(head, open) {
  const text = head.look_first;
  const bold = h("strong", {});
  let at = 0;
  for (const { kernel, begin, end } of head.named) {
    const name = text.slice(begin, end);
    bold.append(text.slice(at, begin), open
      ? h("button", { type: "button", class: "link name", onclick: () => open(kernel) }, name) : h("span", { class: "name" }, name));
    at = end;
  }
  const colon = text.indexOf(":", at);
  const rest = colon < 0 ? text.length : colon;
  bold.append(text.slice(at, rest));
  return h("p", { class: `look-first ${head.tone ?? (head.sure ? "sure" : "")}`, id: "look-first" }, bold, text.slice(rest));
}

/** @param {string} status */
const statusClass = (status) => status.replace(/[^a-z]/g, "-");

function themeButton() {
  const names = ["auto", "light", "dark"];
  const button = h("button", { type: "button", class: "theme", onclick: () => set((names.indexOf(theme()) + 1) % 3) });
  const theme = () => document.documentElement.dataset.theme || "auto";
  /** @param {number} number */
  function set(number) {
    document.documentElement.dataset.theme = names[number];
    button.textContent = `◐ ${names[number]}`;
    button.setAttribute("aria-label", `Theme: ${names[number]}`);
    window.dispatchEvent(new Event("ostinato-theme"));
  }
  set(0);
  return button;
}

/** @param {PageData} data @param {HTMLElement} root @returns {Page} */
function build(data, root) {
  const views = VIEWS.filter((view) => data[view.key] !== undefined);
  /** @type {Map<string, Drawn>} */ const drawn = new Map();
  /** @type {((kernel: number) => void)[]} */ const listeners = [];
  let current = "", selected = -1;

  /** @type {Page} */
  const page = {
    data,
    select(kernel) {
      selected = kernel;
      listeners.forEach((listener) => listener(kernel));
    },
    selected: () => selected,
    onSelect: (listener) => { listeners.push(listener); },
    open,
  };
  const tabs = h("div", { role: "tablist", class: "tabs", "aria-label": "Views", onkeydown: move });
  const panels = h("div", { class: "panels" });
  for (const view of views) {
    tabs.append(h("button", {
      type: "button", role: "tab", id: `tab-${view.key}`, "aria-controls": `panel-${view.key}`, "aria-selected": "false",
      tabindex: "-1", onclick: () => open(view.key),
    }, view.title));
    panels.append(h("section", { role: "tabpanel", id: `panel-${view.key}`, "aria-labelledby": `tab-${view.key}`, hidden: true }));
  }
  tabs.hidden = views.length < 2;
  root.append(tabs, panels);

  /** @param {string} key @param {any} [target] */
  function open(key, target) {
    const view = views.find((each) => each.key === key);
    if (!view) return;
    current = key;
    tooltip.hide();
    for (const each of views) {
      const chosen = each.key === key;
      const tab = element(`tab-${each.key}`);
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
      element(`panel-${each.key}`).hidden = !chosen;
    }
    if (!drawn.has(key)) drawn.set(key, view.make(element(`panel-${key}`), page));
    const made = /** @type {Drawn} */ (drawn.get(key));
    made.shown?.();
    if (target !== undefined) made.reveal?.(target);
    // In a notebook the page stands in a frame, whose address cannot change.
    if (location.protocol !== "about:" && location.hash !== `#${key}`) history.replaceState(null, "", `#${key}`);
  }

  /** @param {KeyboardEvent} event */
  function move(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = views.findIndex((view) => view.key === current);
    const next = views[(at + step + views.length) % views.length];
    open(next.key);
    element(`tab-${next.key}`).focus();
    event.preventDefault();
  }

  const redraw = () => drawn.get(current)?.shown?.();
  let waiting = 0;
  addEventListener("resize", () => { cancelAnimationFrame(waiting); waiting = requestAnimationFrame(redraw); });
  addEventListener("ostinato-theme", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  const asked = location.hash.slice(1);
  const first = views.some((view) => view.key === asked) ? asked : views[0]?.key;
  if (first) open(first);
  return page;
}

/** @param {string} id */
const element = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

async function start() {
  const root = element("page");
  /** @type {PageData} */
  const data = JSON.parse(element("data").textContent || "{}");
  /** @type {Page|null} */ let page = null;
  root.append(headOf(data.head, data.title, data.by_kernel ? (kernel) => page?.open("by_kernel", { kernel }) : null));
  await painted();
  await unpackAll(data);
  page = build(data, root);
  document.documentElement.dataset.ready = "true";
}

/** Lets the browser draw what is there; a page in the background is not drawn, and does not wait for it. */
const painted = () => new Promise((resolve) => {
  requestAnimationFrame(() => setTimeout(resolve));
  setTimeout(resolve, 1000);
});

start().catch((error) => {
  element("page").append(h("p", { class: "failure", role: "alert" },
    `This page could not be drawn: ${error}. It needs a browser of 2023 or newer.`));
  throw error;
});
