// What both pages share: the view on show, the moment, the stretch of time, replay, themes and keys.

import { ClusterMap } from "./cluster.js";
import { forgetColours } from "./colours.js";
import { element, fill } from "./elements.js";
import { legend } from "./jobs.js";
import { MomentPanel } from "./moment.js";
import { counted } from "./text.js";
import { TimeView, orderChoice } from "./timeview.js";

const READABLE_PX = 15;
const SPOKEN_AFTER_MS = 400, REMEMBERED_AFTER_MS = 300;
const THEME = "headway-theme";
/** With this many servers or more, there is a search for one. */
const SEARCHED_SERVERS = 24;
export const byId = (id) => document.getElementById(id);

/**
 * A page that shows a run: recorded, or live.
 *
 * A page has `run`, `view`, `moment`, `tabs`, `show(tab, job)` and `playedTo()`.
 */
export class Page {
  constructor(order) {
    Object.assign(this, { job: null, server: null, order, playing: false, follow: false, views: [] });
    this.redraw = this.redraw.bind(this);
  }

  /** Listen to everything that the page reacts to, and show what the address names. */
  open(keys) {
    try { this.useTheme(localStorage.getItem(THEME) ?? undefined, false); } catch { /* not allowed */ }
    window.addEventListener("hashchange", () => { this.route(); this.recall(); });
    window.addEventListener("resize", this.redraw);
    window.addEventListener("beforeprint", () => this.print(true));
    window.addEventListener("afterprint", () => this.print(false));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.recolour());
    document.addEventListener("keydown", (event) => this.key(event));
    fill(byId("tabs"), this.tabs.map(([name, text]) => element("a", { href: `#${name}`, "data-tab": name }, text)));
    byId("play").addEventListener("click", () => this.play(!this.playing));
    byId("scrub").addEventListener("input", (event) => {
      this.choose({ moment: this.view.first + (Number(event.target.value) / 1000) * (this.playedTo() - this.view.first) });
    });
    byId("theme").addEventListener("click", () => this.switchTheme());
    byId("help-button").addEventListener("click", () => this.help());
    fill(byId("help"), element("h2", { id: "help-title" }, "Keys"),
      element("dl", {}, keys.map(([key, text]) => element("div", {}, element("dt", {}, key), element("dd", {}, text)))),
      element("p", {}, "Drag to pan, Ctrl and wheel or pinch to zoom, Alt and wheel to change the height of rows, "
        + "double click to zoom in. A click in the bars chooses the moment."),
      element("form", { method: "dialog" }, element("button", {}, "Close")));
    this.route();
    this.recall();
  }

  /** Choose what the address names after a question mark: `#run?at=12.5&job=3`. */
  recall() {
    const given = new URLSearchParams(location.hash.split("?")[1] ?? ""), choice = {}, at = Number(given.get("at"));
    if (given.has("at") && Number.isFinite(at)) choice.moment = at;
    const job = this.run.jobOf.get(given.get("job"));
    if (job !== undefined) choice.job = job;
    if (Object.keys(choice).length) this.choose(choice);
  }

  /** Keep the moment and the job in the address, so that a link or a reload shows them again. */
  remember() {
    clearTimeout(this.remembering);
    this.remembering = setTimeout(() => {
      const kept = new URLSearchParams();
      if (this.hasMoment()) kept.set("at", String(Number(this.moment.toPrecision(12))));
      if (this.job !== null) kept.set("job", this.run.ids[this.job]);
      const name = location.hash.slice(1).split("?")[0] || this.tabs[0][0], query = kept.toString();
      history.replaceState(null, "", query ? `#${name}?${query}` : `#${name}`);
    }, REMEMBERED_AFTER_MS);
  }

  /** Return whether the moment is one that was chosen. */
  hasMoment() { return true; }

  /** Offer these speeds of replay. */
  offerSpeeds(speeds, chosen) {
    this.speed = chosen;
    fill(byId("speed"), speeds.map((speed) => element("option", { value: speed, selected: speed === chosen }, `${speed.toLocaleString("en")}×`)));
    byId("speed").addEventListener("change", (event) => { this.speed = Number(event.target.value); });
  }

  /** Show what the address names. */
  route() {
    const [name, ...rest] = location.hash.slice(1).split("?")[0].split("/");
    let id = null;
    try { id = decodeURIComponent(rest.join("/")); } catch { /* an address that nobody wrote */ }
    const job = name === "job" ? this.run.jobOf.get(id) : undefined;
    const known = this.tabs.some(([tab]) => tab === name);
    const tab = job !== undefined ? "job" : known ? name : this.tabs[0][0];
    const key = `${this.run.number} ${tab} ${tab === "job" ? id : ""}`;
    if (this.shown !== key) {
      this.shown = key;
      document.body.dataset.tab = tab;
      this.leave();
      this.show(tab, job);
    }
    for (const link of byId("tabs").children) {
      if (link.dataset.tab === (tab === "job" ? "jobs" : tab)) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    this.drawNow();
  }

  /** Return a value that changes with what is so at the moment. */
  momentKey() { return this.moment; }

  /** Tell the views on show that they go. */
  leave() {
    for (const view of this.views) view.leave?.();
  }

  /** Show one view that has the page to itself. */
  showOne(view) {
    this.views = [view];
    this.time = this.map = null;
    fill(byId("main"), view.root);
  }

  /** Show the cluster above the bars of all jobs; `below` are elements under them. */
  showRun(hint, below) {
    const { run } = this;
    this.map = new ClusterMap(this, run);
    this.time = new TimeView(this, run);
    const panel = new MomentPanel(this, run);
    this.views = [this.map, this.time, panel];
    const zoomMap = (factor) => this.map.zoomAt(factor, this.map.canvas.clientWidth / 2, this.map.canvas.clientHeight / 2);
    fill(byId("main"), element("div", { class: "run-view" }, this.begin,
      element("div", { class: "upper" },
        element("section", { class: "cluster-section", "aria-label": "Cluster" },
          element("div", { class: "bar" }, element("h2", {}, "Cluster"), element("span", { class: "soft" }, hint), run.servers >= SEARCHED_SERVERS ? this.serverSearch() : null, ...zoomButtons(zoomMap)),
          this.map.root), panel.root),
      element("section", { class: "time-section", "aria-label": "Time" },
        element("div", { class: "bar" }, element("h2", {}, "Time"), legend(run.lanes), orderChoice(this),
          ...zoomButtons((factor) => { this.view.zoom(1 / factor, this.inView()); this.redraw(); }),
          element("button", { type: "button", class: "plain", title: "Show all of the time (0)", onclick: () => this.showAll() }, "all"),
          element("button", { type: "button", class: "plain", title: "All rows, or rows that can be read (r)", onclick: () => this.switchRows() }, "rows")),
        this.time.root),
      below));
  }

  /** Return an input that finds a server on the map. */
  serverSearch() {
    const { server } = this.run.nouns;
    const search = element("input", {
      id: "find-server", type: "search", placeholder: `find a ${server}`, "aria-label": `Find a ${server}`, autocomplete: "off", spellcheck: "false",
      oninput: () => search.toggleAttribute("aria-invalid", search.value.trim() !== "" && !this.map.find(search.value)),
    });
    return search;
  }

  showAll() {
    this.view.fit();
    this.redraw();
  }

  switchRows() {
    if (!this.time) return;
    if (this.time.pitch >= READABLE_PX - 1) this.time.zoomRows(0);
    else this.time.zoomRows(READABLE_PX / this.time.pitch);
    if (this.job !== null) this.time.reveal(this.job);
    this.redraw();
  }

  /** Choose a moment, a job, a server or an order. */
  choose({ moment, ...rest }) {
    Object.assign(this, rest);
    if (moment !== undefined) {
      this.moment = Math.min(this.playedTo(), Math.max(this.view.first, moment));
      this.bringIntoView();
    }
    if (rest.job !== undefined && rest.job !== null) this.time?.reveal(rest.job);
    this.redraw();
    if (moment !== undefined && !this.playing) this.speak();
    if ((moment !== undefined && !this.playing) || rest.job !== undefined) this.remember();
  }

  /** Pan the bars to the moment if they show another stretch of time. */
  bringIntoView() {
    const { view, moment } = this;
    if (moment < view.from || moment > view.to) view.show(moment - view.length / 2, moment + view.length / 2);
  }

  speak() {
    clearTimeout(this.speaking);
    this.speaking = setTimeout(() => {
      byId("spoken").textContent = `At ${this.run.timeText(this.now.moment)} ${counted(this.now.running.length, "job")} running, ${this.now.queued.length} queued.`;
    }, SPOKEN_AFTER_MS);
  }

  play(playing) {
    this.playing = playing;
    byId("play").textContent = playing ? "Pause" : "Play";
    byId("play").setAttribute("aria-pressed", String(playing));
    if (!playing) return;
    if (this.moment >= this.playedTo()) this.moment = this.view.first;
    this.follow = true;
    let before = performance.now();
    const step = (time) => {
      if (!this.playing) return;
      this.moment = Math.min(this.playedTo(), this.moment + ((time - before) / 1000) * this.speed);
      before = time;
      if (this.follow && (this.moment > this.view.to || this.moment < this.view.from)) {
        this.view.show(this.moment - this.view.length * 0.05, this.moment + this.view.length * 0.95);
      }
      if (this.moment >= this.playedTo()) this.play(false);
      this.drawNow();
      requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  }

  redraw() {
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => { this.scheduled = false; this.drawNow(); });
  }

  drawNow() {
    this.now = this.run.at(Math.min(this.moment, this.run.to), this.redraw);
    const { first } = this.view;
    byId("scrub").value = String(((this.moment - first) / Math.max(1e-9, this.playedTo() - first)) * 1000);
    byId("scrub").setAttribute("aria-valuetext", this.run.timeText(this.moment));
    for (const view of this.views) view.draw(this.now);
    document.body.dataset.exact = String(this.now.exact);
  }

  /** Return the moment, or the middle of the stretch of time if the moment is not in it. */
  inView() {
    const { view, moment } = this;
    return moment >= view.from && moment <= view.to ? moment : (view.from + view.to) / 2;
  }

  switchTheme() {
    const dark = getComputedStyle(document.documentElement).colorScheme === "dark";
    this.useTheme(dark ? "light" : "dark");
    try { localStorage.setItem(THEME, dark ? "light" : "dark"); } catch { /* not allowed: it lasts until the page is left */ }
  }

  /** Use a theme, or that of the system. */
  useTheme(theme, drawn = true) {
    if (theme === undefined) delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    forgetColours();
    if (drawn) this.drawNow();
  }

  /** Lay the page out for paper, which is white, or for the screen again. */
  print(printing) {
    const root = document.documentElement;
    if (printing === root.hasAttribute("data-printing")) return;
    root.toggleAttribute("data-printing", printing);
    if (printing) this.themeOnScreen = root.dataset.theme;
    this.useTheme(printing ? "light" : this.themeOnScreen);
  }

  recolour() {
    forgetColours();
    this.redraw();
  }

  help() { byId("help").showModal(); }

  /** Return what keys do. */
  actions(event) {
    const { view } = this, step = (view.length / 100) * (event.shiftKey ? 10 : 1);
    const tabs = Object.fromEntries(this.tabs.map(([tab], index) => [index + 1, () => { location.hash = tab; }]));
    return {
      ...tabs,
      " ": () => this.play(!this.playing),
      ArrowLeft: () => this.choose({ moment: this.moment - step }),
      ArrowRight: () => this.choose({ moment: this.moment + step }),
      n: () => this.choose({ moment: this.run.nextChange(this.moment, true) }),
      p: () => this.choose({ moment: this.run.nextChange(this.moment, false) }),
      w: () => view.zoom(0.7, this.inView()),
      s: () => view.zoom(1 / 0.7, this.inView()),
      a: () => { this.follow = false; view.pan(-view.length / 10); },
      d: () => { this.follow = false; view.pan(view.length / 10); },
      0: () => this.showAll(),
      r: () => this.switchRows(),
      t: () => this.switchTheme(),
      "?": () => this.help(),
      "/": () => { location.hash = "jobs"; setTimeout(() => byId("search")?.focus()); },
      Escape: () => this.choose({ job: null, server: null }),
    };
  }

  key(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, select, dialog, textarea")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const action = this.actions(event)[event.key];
    if (action === undefined || (event.key === " " && event.target.closest("button, a"))) return;
    event.preventDefault();
    action();
    this.redraw();
  }
}

function zoomButtons(zoom) {
  return [["−", "Zoom out", 1 / 1.5], ["+", "Zoom in", 1.5]].map(([text, name, factor]) => element("button", {
    type: "button", class: "plain", "aria-label": name, title: name, onclick: () => zoom(factor),
  }, text));
}
