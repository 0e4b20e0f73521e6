// Several runs side by side: figures, distribution of JCTs, differences of jobs, and the same window of time.

import { DASHES, LINES, colours } from "./colours.js";
import { element, isPrinting, showTip, sized, update } from "./elements.js";
import { compareValues, jobPageLink, legend, sortHead } from "./jobs.js";
import { lastAtMost } from "./levels.js";
import { count, percent, seconds } from "./text.js";
import { TimeView, newScroll } from "./timeview.js";

const MAX_DIFFERENCES = 200, MAX_PRINTED = 50;

/** The columns of differences: value to sort by, of a job's id and its JCT in both runs. */
const DIFFERENCES = [({ id }) => id, ({ before }) => before, ({ after }) => after, ({ before, after }) => after - before];

const sortedJcts = (run) => Float64Array.from({ length: run.jobs }, (_, job) => run.jct(job)).sort();
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** Return the value below which a share of sorted values lies, between two of them as the summary has it. */
function quantile(sorted, share) {
  const position = share * (sorted.length - 1), before = Math.floor(position);
  const after = Math.min(sorted.length - 1, before + 1);
  return sorted[before] + (sorted[after] - sorted[before]) * (position - before);
}

/** Return the key figures of a run: [name, seconds]. */
export function keyFigures(run) {
  const jcts = sortedJcts(run);
  const last = run.finish.reduce((latest, value) => Math.max(latest, value), 0);
  const first = run.arrival.reduce((earliest, value) => Math.min(earliest, value), Infinity);
  return [
    ["average JCT", mean(jcts)], ["median JCT", quantile(jcts, 0.5)],
    ["95th percentile JCT", quantile(jcts, 0.95)], ["makespan", last - first],
  ];
}

/** The view that compares runs. */
export class Compare {
  constructor(page, runs) {
    Object.assign(this, { page, runs, other: 1, sorting: null, descending: false });
    this.base = runs[0];
    this.curve = element("canvas", { class: "ecdf", role: "img", id: "ecdf" });
    this.tip = element("p", { class: "tip", hidden: true });
    this.curve.addEventListener("pointermove", (event) => this.hover(event.offsetX, event.offsetY));
    this.curve.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    this.differences = element("div", { class: "differences" });
    const scroll = newScroll();
    this.times = runs.map((run) => new TimeView(page, run, { strips: false, title: `Bars of the jobs of ${run.name}`, base: this.base, scroll }));
    this.root = element("section", { class: "compare-view" },
      this.figures(),
      element("div", { class: "columns" },
        element("section", {}, element("h3", {}, "Share of jobs with at most this JCT"), element("div", { class: "curve" }, this.curve, this.tip)),
        element("section", { class: "difference-section" }, this.differenceHead(), this.differences)),
      element("h3", {}, "The same stretch of time"), legend(this.base.lanes),
      runs.map((run, number) => element("div", { class: "small-time" }, element("h4", {}, this.label(number)), this.times[number].root)));
    this.fillDifferences();
  }

  label(number) {
    const run = this.runs[number];
    return [element("span", { class: "line", colour: LINES[number % LINES.length] }), `${run.name}: ${run.policy}`];
  }

  figures() {
    const all = this.runs.map(keyFigures);
    return element("table", { class: "runs", id: "runs" },
      element("caption", {}, "Seconds, and how much more or less than the first run"),
      element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "run"), element("th", { scope: "col" }, "policy"),
        all[0].map(([name]) => element("th", { scope: "col", class: "number" }, name)))),
      element("tbody", {}, this.runs.map((run, number) => element("tr", {},
        element("th", { scope: "row" }, element("span", { class: "line", colour: LINES[number % LINES.length] }), run.name),
        element("td", {}, run.policy),
        all[number].map(([, value], index) => element("td", { class: "number" }, seconds(value, 0.1),
          number ? element("span", { class: "change" }, signed(value / all[0][index][1] - 1)) : null))))));
  }

  differenceHead() {
    const select = element("select", { "aria-label": "Compare with", onchange: () => { this.other = Number(select.value); this.fillDifferences(); } });
    this.runs.forEach((run, number) => { if (number) select.append(element("option", { value: number }, run.name)); });
    return element("h3", {}, `Jobs: ${this.base.name} and `, this.runs.length > 2 ? select : this.runs[1].name);
  }

  /** Return the jobs that both runs have: {job, id, before, after}. */
  commonJobs() {
    const { base } = this, other = this.runs[this.other], rows = [];
    for (let job = 0; job < base.jobs; job++) {
      const id = base.ids[job], there = other.jobOf.get(id);
      if (there !== undefined) rows.push({ job, id, before: base.jct(job), after: other.jct(there) });
    }
    return rows;
  }

  sortBy(index) {
    this.descending = index === this.sorting ? !this.descending : index > 0;
    this.sorting = index;
    this.fillDifferences();
  }

  fillDifferences() {
    const { base, sorting } = this, other = this.runs[this.other], rows = this.commonJobs();
    const size = ({ before, after }) => Math.abs(after - before);
    const faster = rows.filter(({ before, after }) => after < before).length, slower = rows.filter(({ before, after }) => after > before).length;
    const most = rows.reduce((largest, row) => Math.max(largest, size(row)), 1e-9);
    // The largest differences come first until someone sorts.
    const value = DIFFERENCES[sorting] ?? size, sign = sorting === null || this.descending ? -1 : 1;
    rows.sort((one, two) => sign * compareValues(value(one), value(two)) || one.job - two.job);
    this.printed = isPrinting();
    const shown = rows.slice(0, this.printed ? MAX_PRINTED : MAX_DIFFERENCES);
    const head = ["job", base.name, other.name, "difference [s]"].map((name, index) => (
      sortHead(name, index > 0, () => this.sortBy(index), index !== sorting ? "none" : this.descending ? "descending" : "ascending")));
    update(this.differences,
      element("p", { id: "faster" }, rows.length ? `In ${other.name} ${count(faster)} of ${count(rows.length)} jobs finish sooner after their arrival, ${count(slower)} later.`
        : "The runs have no jobs in common."),
      rows.length ? element("div", { class: "scroller low", tabindex: "0", role: "region", "aria-label": "Differences" }, element("table", { class: "jobs", id: "differences" },
        element("thead", {}, element("tr", {}, head, element("th"))),
        element("tbody", {}, shown.map((row) => element("tr", { "data-job": row.id },
          element("td", {}, jobPageLink(base, row.job)),
          element("td", { class: "number" }, seconds(row.before, 0.1)),
          element("td", { class: "number" }, seconds(row.after, 0.1)),
          element("td", { class: "number" }, `${row.after > row.before ? "+" : row.after < row.before ? "−" : ""}${seconds(size(row), 0.1)}`),
          element("td", { class: "delta" }, element("span", { class: row.after > row.before ? "slower" : "faster", share: (size(row) / most).toFixed(4) }))))))) : null,
      rows.length > shown.length ? element("p", { class: "soft" }, `the first ${count(shown.length)} of ${count(rows.length)}`) : null);
  }

  draw() {
    if (this.printed !== isPrinting()) this.fillDifferences();
    this.drawCurve();
    for (const time of this.times) time.draw();
  }

  /** Say how many jobs of each run have at most the JCT under the pointer. */
  hover(x, y) {
    const value = this.jctAt(x);
    showTip(this.tip, value === null ? null : this.sharesText(value), x, y);
  }

  sharesText(value) {
    const shares = this.runs.map((run, number) => `${run.name} ${percent((lastAtMost(this.jcts[number], value, 0, run.jobs) + 1) / run.jobs, 1)}`);
    return `JCT ${seconds(value, value < 100 ? 0.1 : 1)} s: ${shares.join(", ")}`;
  }

  drawCurve() {
    const { context, width, height } = sized(this.curve), theme = colours();
    this.jcts ??= this.runs.map(sortedJcts);
    const low = Math.max(1e-3, Math.min(...this.jcts.map((values) => values[0]))), high = Math.max(low * 1.01, ...this.jcts.map((values) => values.at(-1)));
    const plot = { left: 42, top: 8, width: width - 54, height: height - 36 };
    this.jctAt = (at) => (at < plot.left || at > plot.left + plot.width ? null : low * (high / low) ** ((at - plot.left) / plot.width));
    const x = (value) => plot.left + (Math.log(Math.max(low, value) / low) / Math.log(high / low)) * plot.width;
    const y = (share) => plot.top + (1 - share) * plot.height;
    context.fillStyle = theme.paper;
    context.fillRect(0, 0, width, height);
    context.font = `11px ${theme.font}`;
    context.textBaseline = "middle";
    for (const share of [0, 0.25, 0.5, 0.75, 1]) {
      context.fillStyle = theme.faint;
      context.fillRect(plot.left, y(share), plot.width, 1);
      context.fillStyle = theme.soft;
      context.textAlign = "right";
      context.fillText(percent(share), plot.left - 6, y(share));
    }
    context.textAlign = "center";
    let right = -Infinity;
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
      for (const factor of [1, 2, 5]) {
        const value = factor * 10 ** power, text = `${value >= 1 ? count(value) : value}`;
        const half = context.measureText(text).width / 2, at = x(value);
        if (value < low || value > high || at - half < right + 8) continue;
        context.fillStyle = theme.faint;
        context.fillRect(at, plot.top, 1, plot.height);
        context.fillStyle = theme.soft;
        context.fillText(text, at, plot.top + plot.height + 11);
        right = at + half;
      }
    }
    context.fillText("JCT [s], logarithmic", plot.left + plot.width / 2, height - 6);
    this.jcts.forEach((values, number) => {
      context.beginPath();
      context.moveTo(plot.left, y(0));
      values.forEach((value, index) => {
        context.lineTo(x(value), y(index / values.length));
        context.lineTo(x(value), y((index + 1) / values.length));
      });
      context.lineTo(plot.left + plot.width, y(1));
      context.strokeStyle = LINES[number % LINES.length];
      context.setLineDash(DASHES[number % DASHES.length]);
      context.lineWidth = 1.75;
      context.stroke();
      context.setLineDash([]);
    });
    this.curve.setAttribute("aria-label", `Distribution of JCTs: ${this.runs.map((run, number) => (
      `${run.name}, half of the jobs within ${seconds(quantile(this.jcts[number], 0.5), 0.1)} s`)).join("; ")}`);
  }
}

const signed = (share) => `${share > 0 ? "+" : share < 0 ? "−" : ""}${percent(Math.abs(share), 1)}`;
