// The table of jobs, which can be searched, filtered and sorted; and the page of one job.

import { colours } from "./colours.js";
import { element, factRows, isPrinting, showTip, sized, update } from "./elements.js";
import { progress } from "./moment.js";
import { listen } from "./pointer.js";
import { hatch } from "./strips.js";
import { briefly, count, counted, percent, ranges, seconds } from "./text.js";
import { View } from "./timeaxis.js";

const ROW_PX = 30, NARROW_ROW_PX = 48, SPARE_ROWS = 12;
/** On a phone, what a job does takes several lines. */
const NARROW = matchMedia("(max-width: 640px)");
const MAX_PRINTED = 2000;

/** The columns of a recorded run: title, value to sort by, cell, whether it is a number. */
export const COLUMNS = [
  ["job", (run, job) => run.ids[job], (page, run, job) => jobPageLink(run, job), false],
  ["model", (run, job) => run.models[job], (page, run, job) => run.models[job] || "–", false],
  ["GPUs", (run, job) => run.gpuCount[job], (page, run, job) => count(run.gpuCount[job]), true],
  ["state", (run, job, now) => run.states.indexOf(run.state(job, now.moment)), (page, run, job, now) => run.state(job, now.moment), false],
  ["progress", (run, job, now) => run.doneShare(job, now.moment), (page, run, job, now) => progress(run.doneShare(job, now.moment)), false],
  ["now", (run, job, now) => run.sentence(job, now), (page, run, job, now) => run.sentence(job, now), false],
  ["arrival [s]", (run, job) => run.arrival[job], (page, run, job) => seconds(run.arrival[job], 0.1), true],
  ["start [s]", (run, job) => run.start[job], (page, run, job) => seconds(run.start[job], 0.1), true],
  ["finish [s]", (run, job) => run.finish[job], (page, run, job) => seconds(run.finish[job], 0.1), true],
  ["queued [s]", (run, job) => run.start[job] - run.arrival[job], (page, run, job) => seconds(run.start[job] - run.arrival[job], 0.1), true],
  ["JCT [s]", (run, job) => run.jct(job), (page, run, job) => seconds(run.jct(job), 0.1), true],
];

/** Return a link to the page of a job. */
export function jobPageLink(run, job, text = run.ids[job]) {
  const attributes = { class: "job", href: `#job/${encodeURIComponent(run.ids[job])}`, colour: run.colour[job] };
  return element("a", attributes, element("span", { class: "swatch" }), element("span", { class: "name" }, text));
}

/** Return the head of a column by which a table can be sorted. */
export function sortHead(title, number, sort, order = "none", column = null) {
  return element("th", { scope: "col", class: number ? "number" : null, "aria-sort": order, "data-column": column },
    element("button", { type: "button", class: "sort", onclick: sort }, title));
}

/** Compare numbers, or texts in the order of the numbers in them. */
export const compareValues = (one, other) => (typeof one === "string" ? one.localeCompare(other, "en", { numeric: true }) : one - other);

/** Open the page of the job whose row was clicked; a click on a link does what the link says, and text can be selected. */
function openRow(event, id) {
  if (!event.target.closest("a") && getSelection().isCollapsed) location.hash = `job/${encodeURIComponent(id)}`;
}

/** The table of jobs; only rows on show are in the document. */
export class JobTable {
  constructor(page, run, columns, { sorted = "state", descending = false } = {}) {
    const sorting = columns.findIndex(([title]) => title === sorted);
    Object.assign(this, { page, run, columns, sorting, descending, text: "", states: new Set(run.states) });
    this.search = element("input", {
      id: "search", type: "search", placeholder: "search", "aria-label": "Search jobs", autocomplete: "off", spellcheck: "false",
      oninput: () => { this.text = this.search.value.trim().toLowerCase(); this.scroller.scrollTop = 0; this.draw(page.now); },
    });
    this.found = element("span", { class: "soft", id: "found", role: "status" });
    this.left = element("p", { class: "soft", hidden: true });
    this.head = element("tr");
    this.body = element("tbody");
    this.scroller = element("div", { class: "scroller", tabindex: "0", role: "region", "aria-label": "Jobs", onscroll: () => this.draw(page.now) },
      element("table", { class: "jobs", id: "jobs" }, element("thead", {}, this.head), this.body));
    const filters = run.states.map((state) => element("label", { class: "check" },
      element("input", { type: "checkbox", checked: true, "data-state": state, onchange: (event) => {
        if (event.target.checked) this.states.add(state); else this.states.delete(state);
        this.draw(page.now);
      } }), element("span", {}, state)));
    this.root = element("section", { class: "jobs-view" }, page.begin,
      element("div", { class: "bar" }, this.search, ...filters, this.found), this.scroller, this.left);
    columns.forEach(([title, , , number], index) => this.head.append(sortHead(title, number, () => this.sortBy(index), "none", title)));
  }

  sortBy(index) {
    this.descending = index === this.sorting ? !this.descending : this.columns[index][3];
    this.sorting = index;
    this.draw(this.page.now);
  }

  draw(now) {
    const { run, page, columns } = this, [, value] = columns[this.sorting];
    const rows = [];
    for (let job = 0; job < run.jobs; job++) {
      if (!this.states.has(run.state(job, now.moment))) continue;
      if (this.finds(run.ids[job]) || this.finds(run.names[job]) || this.finds(run.models[job])) rows.push(job);
    }
    const keys = new Map(rows.map((job) => [job, value(run, job, now)])), sign = this.descending ? -1 : 1;
    rows.sort((one, other) => sign * compareValues(keys.get(one), keys.get(other)) || one - other);
    [...this.head.children].forEach((cell, index) => {
      cell.setAttribute("aria-sort", index !== this.sorting ? "none" : this.descending ? "descending" : "ascending");
    });
    this.found.textContent = rows.length === run.jobs ? counted(run.jobs, "job") : `${count(rows.length)} of ${counted(run.jobs, "job")}`;
    const printing = isPrinting(), rowPx = NARROW.matches ? NARROW_ROW_PX : ROW_PX;
    const shown = printing ? MAX_PRINTED : Math.ceil((this.scroller.clientHeight || 600) / rowPx) + 2 * SPARE_ROWS;
    const first = printing ? 0 : Math.max(0, Math.min(rows.length - shown, Math.floor(this.scroller.scrollTop / rowPx) - SPARE_ROWS));
    const some = rows.slice(first, first + shown);
    update(this.body, this.spacer(first * rowPx), some.map((job) => element("tr", {
      class: [job === page.job ? "selected" : "", run.state(job, now.moment) === "failed" ? "failed" : ""].join(" ").trim() || null,
      "data-job": run.ids[job], onclick: (event) => openRow(event, run.ids[job]),
    }, columns.map(([title, , cell, number]) => {
      const content = cell(page, run, job, now);
      const text = title === "now" ? element("span", {}, content) : content;
      return element("td", { class: number ? "number" : title === "now" ? "now" : null, title: title === "now" ? content : null, "data-column": title }, text);
    }))), printing ? null : this.spacer((rows.length - first - some.length) * rowPx));
    this.left.hidden = !printing || rows.length <= some.length;
    this.left.textContent = `and ${count(rows.length - some.length)} more`;
  }

  finds(text) { return text.toLowerCase().includes(this.text); }

  /** Return a row as high as the rows that are not in the document. */
  spacer(pixels) {
    if (pixels <= 0) return null;
    const cell = element("td", { colspan: this.columns.length });
    cell.style.height = `${pixels}px`;
    return element("tr", { class: "spacer", "aria-hidden": "true" }, cell);
  }
}

const PARTS = [
  ["queued", "queued"], ["computing", "computing"], ["sending", "sending"],
  ["waiting", "waiting for admission"], ["idle", "waiting for a GPU"],
];

/** The parts of a completion time as `headway explain` has them: name, key, text, and who is behind it. */
const EXPLAINED = [
  ["queued", "queued", "queued", "GPUs held by"], ["computing", "computing", "computing", ""],
  ["waiting_for_gpu", "idle", "waiting for a GPU", "held by"], ["waiting_for_admission", "waiting", "waiting for admission", "behind"],
  ["sending_alone", "sending", "sending alone", ""], ["sending_under_contention", "sending", "sending under contention", "with"],
];

/** The page of one job: its timeline, totals and facts. */
export class JobPage {
  constructor(page, run, job) {
    Object.assign(this, { page, run, job });
    this.time = new JobTime(page, run, new View(Math.max(run.from, run.arrival[job]), Math.min(run.to, run.finish[job])));
    this.sentence = element("p", { class: "sentence", id: "sentence" });
    this.done = element("div");
    const total = run.jct(job);
    this.totals = element("table", { class: "totals", id: "totals" });
    this.showTotals();
    this.explain();
    const servers = run.serversOf(job);
    const facts = [
      ["model", run.models[job] || "–"],
      [`${run.nouns.gpu}s`, `${count(run.gpuCount[job])}: ${ranges([...run.gpusOf(job)])}`],
      [`${run.nouns.server}s`, `${count(servers.length)}: ${run.serverNames(servers)}`],
      ["iterations", count(run.iterations[job])],
      ["arrival", run.timeText(run.arrival[job])],
      ["start", run.timeText(run.start[job])],
      ["finish", run.timeText(run.finish[job])],
      ["JCT", `${seconds(total)} s`],
    ];
    this.root = element("section", { class: "job-page" },
      element("p", {}, element("a", { href: "#jobs" }, "all jobs")),
      element("h2", {}, "job ", element("span", { class: "job", colour: run.colour[job] }, element("span", { class: "swatch" }), run.ids[job])),
      this.sentence, this.done, this.time.root,
      legend(run.lanes),
      element("div", { class: "columns" },
        this.totals,
        element("table", { class: "facts" }, element("caption", {}, "Facts"),
          element("tbody", {}, factRows(facts)))),
      run.settings.whole ? null : element("p", { class: "soft" }, "Only a part of the run was recorded: the totals count that part."));
  }

  /** Ask for what `headway explain` says, and show it. */
  async explain() {
    const { run, job } = this;
    if (!run.settings.whole) return;
    const found = await run.source.explanation(run.number, run.ids[job]).catch(() => null);
    if (found === null) return;
    this.showTotals(EXPLAINED.flatMap(([name, key, text, by]) => {
      const others = (found.others[name] ?? []).map(({ job_id: id, ns }) => [id, ns / 1e9]), own = found.own_ns?.[name];
      const part = [key, text, found.parts_ns[name] / 1e9, by, others];
      return own ? [part, ["own", "own messages only", own / 1e9, ""]] : [part];
    }));
  }

  /** Show where the time went: key, text, seconds and, if it is known, who is behind it. */
  showTotals(parts = this.parts()) {
    const { run, job } = this, total = run.jct(job), explained = parts.some(([, , , by]) => by);
    const line = (head, length, more) => element("tr", {}, element("th", { scope: "row" }, head),
      element("td", { class: "number" }, seconds(length)), element("td", { class: "number" }, percent(length / total, 1)), explained ? element("td", {}, more) : null);
    update(this.totals, element("caption", {}, "Where its time went"),
      element("thead", {}, element("tr", {}, ["", "seconds", "share", ...(explained ? ["because of"] : [])].map((name, index) => (
        element("th", { scope: "col", class: index === 1 || index === 2 ? "number" : null }, name))))),
      element("tbody", {}, parts.map(([key, text, length, by, others]) => line([element("span", { class: `key ${key}` }), text], length,
        others?.length ? [`${by} `, ...others.flatMap(([id, time], index) => [index ? ", " : "", this.otherLink(id), ` ${briefly(time)}`])] : null)),
      line("JCT", total, null)));
  }

  otherLink(id) {
    const { run, job } = this, other = run.jobOf.get(id);
    return other === job ? "its own messages" : jobPageLink(run, other);
  }

  parts() {
    const { run, job } = this;
    const lengths = {
      queued: run.start[job] - run.arrival[job], computing: run.computingTotal[job],
      sending: run.sendingTotal[job], waiting: run.waitingTotal[job],
    };
    lengths.idle = run.settings.whole ? Math.max(0, run.jct(job) - lengths.queued - lengths.computing - lengths.sending - lengths.waiting) : 0;
    return PARTS.filter(([name]) => name !== "idle" || run.settings.whole).map(([name, text]) => [name, text, lengths[name]]);
  }

  draw(now) {
    const { run, job } = this;
    this.sentence.textContent = `At ${run.timeText(now.moment)}: ${run.sentence(job, now)}`;
    update(this.done, progress(run.doneShare(job, now.moment)));
    this.time.draw(job, now.moment);
  }
}

/** The timeline of one job. */
export class JobTime {
  constructor(page, run, view) {
    Object.assign(this, { page, run, view });
    this.bars = run.newBars();
    this.canvas = element("canvas", { class: "job-time", tabindex: "0", role: "img" });
    this.tip = element("p", { class: "tip", hidden: true });
    this.root = element("div", { class: "curve" }, this.canvas, this.tip);
    listen(this.canvas, {
      hover: (x, y) => this.hover(x, y),
      leave: () => { this.tip.hidden = true; },
      pan: (dx) => { this.view.pan((-dx / this.plot.width) * this.view.length); page.redraw(); },
      zoom: (factor, x) => { this.view.zoom(factor, this.timeAt(x)); page.redraw(); },
      choose: (x) => page.choose({ moment: this.timeAt(x) }),
      scroll: (dx, dy, event) => {
        if (!event.shiftKey && Math.abs(dx) <= Math.abs(dy)) return false;
        this.view.pan(((dx || dy) / this.plot.width) * this.view.length);
        page.redraw();
        return true;
      },
    });
  }

  timeAt(x) { return this.view.from + ((x - this.plot.left) / this.plot.width) * this.view.length; }

  /** Say what the job does at the time under the pointer. */
  hover(x, y) {
    const { run, job, plot } = this, time = this.timeAt(x);
    const outside = x < plot.left || x > plot.left + plot.width || time > run.to;
    const again = () => { if (!this.tip.hidden) this.hover(x, y); };
    showTip(this.tip, outside ? null : `${run.timeText(time)}: ${run.sentence(job, run.at(time, again))}`, x, y);
  }

  draw(job, moment) {
    this.job = job;
    const { run, view, page } = this, { context, width, height, ratio } = sized(this.canvas), theme = colours();
    this.plot = { left: 8, top: 24, width: width - 16, height: height - 28 };
    const { plot } = this;
    context.fillStyle = theme.paper;
    context.fillRect(0, 0, width, height);
    context.font = `11px ${theme.font}`;
    const device = (value) => Math.round(value * ratio);
    this.bars.draw(context, {
      left: device(plot.left), top: device(plot.top), width: device(plot.width), height: device(plot.height),
      rows: [job], first: 0, pitch: plot.height * ratio, view, parts: run.exactly(view.from, view.to, page.redraw), selected: null,
    });
    hatch(context, run.unknown.filter(([from, to]) => from < run.finish[job] && to > run.start[job]), view, plot, theme.soft);
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (const [instant, text] of run.ticks(view.from, view.to, plot.width)) {
      const x = plot.left + ((instant - view.from) / view.length) * plot.width;
      context.fillStyle = theme.soft;
      const half = context.measureText(text).width / 2;
      context.fillText(text, Math.min(width - half - 2, Math.max(half + 2, x)), 10);
      context.fillRect(x, 18, 1, 6);
    }
    const x = plot.left + ((moment - view.from) / view.length) * plot.width;
    if (x >= plot.left && x <= plot.left + plot.width) {
      context.fillStyle = theme.moment;
      context.fillRect(x - 0.75, 16, 1.5, height - 16);
    }
    this.canvas.setAttribute("aria-label", `Timeline of job ${run.ids[job]} from ${run.timeText(view.from)} to ${run.timeText(view.to)}`);
  }
}

/** Return what the colours of bars mean: lanes are [name, text]. */
export function legend(lanes) {
  return element("p", { class: "legend" }, lanes.map(([name, text]) => element("span", {}, element("span", { class: `key ${name}` }), text)));
}
