// Time: bars of all jobs, with charts under them on one axis; a click chooses the moment.

import { colours } from "./colours.js";
import { element, showTip, sized } from "./elements.js";
import { LABELLED_PX } from "./gantt.js";
import { listen } from "./pointer.js";
import { drawLevels, hatch } from "./strips.js";
import { count, counted, level } from "./text.js";

const AXIS_PX = 22, STRIP_PX = 38, TITLE_PX = 15, RIGHT_PX = 8;
const MAX_ROW_PX = 40, ROW_PX = 15;

const ORDERS = {
  start: ["start", (run) => (one, other) => run.start[one] - run.start[other]],
  arrival: ["arrival", (run) => (one, other) => run.arrival[one] - run.arrival[other]],
  longest: ["longest first", (run) => (one, other) => run.jct(other) - run.jct(one)],
  moment: ["running first", (run, moment) => {
    const rank = (job) => run.states.indexOf(run.state(job, moment));
    return (one, other) => rank(one) - rank(other) || run.start[one] - run.start[other];
  }],
  gpus: ["most GPUs first", (run) => (one, other) => run.gpuCount[other] - run.gpuCount[one]],
};

/** The jobs of a run in one of the orders. */
function ordered(run, order, moment) {
  const compare = ORDERS[order][1](run, moment);
  return [...Array(run.jobs).keys()].sort((one, other) => compare(one, other) || one - other);
}

/**
 * Return which rows are on show: from the row `first` on, `pitch` pixels each.
 *
 * With `fits` these are all rows; null: all of them as long as they can be told apart.
 */
export const newScroll = () => ({ first: 0, pitch: null, fits: null });

/** A canvas with the bars of a run; `page` has view, moment, job, order, and redraw(). */
export class TimeView {
  constructor(page, run, { strips = true, title = null, base = run, scroll = newScroll() } = {}) {
    // Views that share `scroll` show the same rows; those of the run `base`, if it is another.
    Object.assign(this, { page, run, strips, title, base, scroll, charts: [] });
    this.bars = run.newBars();
    this.heat = run.newHeat();
    this.canvas = element("canvas", {
      class: "time", tabindex: "0", role: "img", id: strips ? "gantt" : null,
    });
    this.tip = element("p", { class: "tip", hidden: true });
    this.root = element("div", { class: `time-view${strips ? "" : " small"}` }, this.canvas, this.tip);
    listen(this.canvas, {
      pan: (dx, dy) => {
        page.view.pan((-dx / this.plot.width) * page.view.length);
        this.scrollTo(this.first - dy / this.pitch);
        page.follow = false;
        page.redraw();
      },
      zoom: (factor, x, y, event) => {
        if (event?.altKey) this.zoomRows(1 / factor, y);
        else page.view.zoom(factor, this.timeAt(x));
        page.redraw();
      },
      choose: (x, y) => {
        const [job] = this.jobsAt(x, y);
        if (x >= this.plot.left) page.choose({ moment: this.timeAt(x), ...(job === undefined ? {} : { job }) });
        else if (job !== undefined) page.choose({ job });
      },
      hover: (x, y) => this.hover(x, y),
      leave: () => { this.tip.hidden = true; },
      scroll: (dx, dy, event) => {
        if (event.shiftKey || Math.abs(dx) > Math.abs(dy)) {
          page.view.pan(((dx || dy) / this.plot.width) * page.view.length);
        } else {
          const before = this.first;
          this.scrollTo(this.first + dy / this.pitch);
          if (this.first === before) return false;
        }
        page.redraw();
        return true;
      },
    });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("dblclick", (event) => {
      page.view.zoom(0.25, this.timeAt(event.offsetX));
      page.redraw();
    });
  }

  /** Choose the job of the row above or below, or open the page of the chosen one. */
  key(event) {
    const { page, rows, run } = this, step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined) {
      const row = page.job === null ? Math.ceil(this.first) - (step > 0 ? 1 : 0) : rows.indexOf(page.job);
      page.choose({ job: rows[Math.max(0, Math.min(rows.length - 1, row + step))] });
    } else if (event.key === "Enter" && page.job !== null) location.hash = `job/${encodeURIComponent(run.ids[page.job])}`;
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  get rows() {
    const { order, moment } = this.page;
    const key = `${order} ${this.run.version} ${order === "moment" ? this.page.momentKey() : ""}`;
    if (this.order !== key) {
      this.order = key;
      const rows = ordered(this.base, order, moment);
      this.sorted = this.base === this.run ? rows
        : rows.map((job) => this.run.jobOf.get(this.base.ids[job])).filter((job) => job !== undefined);
    }
    return this.sorted;
  }

  get first() { return this.scroll.first; }
  set first(row) { this.scroll.first = row; }
  get pitch() { return this.scroll.pitch; }
  set pitch(pixels) { this.scroll.pitch = pixels; }

  timeAt(x) {
    const { view } = this.page;
    const time = view.from + ((x - this.plot.left) / this.plot.width) * view.length;
    return Math.min(this.run.to, Math.max(this.run.from, time));
  }

  xAt(time) { return this.plot.left + ((time - this.page.view.from) / this.page.view.length) * this.plot.width; }

  /** Return the jobs whose bars, or whose labels, are at a point: several if rows are lower than a pixel. */
  jobsAt(x, y) {
    const { plot, first, pitch, rows } = this;
    if (y < plot.top || y >= plot.top + plot.height) return [];
    const begin = Math.floor(first + (y - plot.top) / pitch), end = Math.max(begin + 1, Math.floor(first + (y + 1 - plot.top) / pitch));
    return rows.slice(begin, end).filter((job) => x < plot.left || this.covers(job, x));
  }

  covers(job, x) {
    const time = this.timeAt(x), slack = (4 * this.page.view.length) / this.plot.width;
    return time > this.run.arrival[job] - slack && time < this.run.finish[job] + slack;
  }

  scrollTo(first) {
    const shown = this.plot.height / this.pitch;
    this.first = Math.max(0, Math.min(first, this.run.jobs - shown));
  }

  zoomRows(factor, y = this.plot.top + this.plot.height / 2) {
    const row = this.first + (y - this.plot.top) / this.pitch;
    const fit = Math.min(MAX_ROW_PX, this.plot.height / this.run.jobs);
    this.scroll.fits = this.pitch * factor <= fit;
    this.pitch = this.scroll.fits ? fit : Math.min(Math.max(MAX_ROW_PX, fit), this.pitch * factor);
    this.scrollTo(row - (y - this.plot.top) / this.pitch);
  }

  /** Scroll so that the row of a job is on show. */
  reveal(job) {
    if (this.plot === undefined) return;
    const row = this.rows.indexOf(job), shown = this.plot.height / this.pitch;
    if (row < this.first || row + 1 > this.first + shown) this.scrollTo(row - shown / 2);
  }

  draw() {
    const { context, width, height, ratio } = sized(this.canvas);
    const theme = colours(), { page, run } = this, { view } = page;
    const left = width < 560 ? 52 : 84;
    const heatPx = this.heat ? Math.max(24, Math.min(80, run.servers * 4)) : 0;
    const strips = this.strips ? run.strips(view, Math.max(1, Math.round(width - left - RIGHT_PX))) : [];
    const below = this.strips ? (this.heat ? TITLE_PX + heatPx : 0) + strips.length * (TITLE_PX + STRIP_PX) + 8 : 0;
    this.plot = { left, top: AXIS_PX, width: width - left - RIGHT_PX, height: Math.max(40, height - AXIS_PX - below) };
    const { plot } = this;
    const fit = Math.min(MAX_ROW_PX, plot.height / run.jobs);
    if (this.scroll.fits ?? fit >= (this.strips ? 1.5 : 1)) this.pitch = fit;
    else if (this.pitch === null) {
      this.pitch = ROW_PX;
      this.first = this.rows.findIndex((job) => run.state(job, page.moment) === "running") - 1;
    }
    this.pitch = Math.max(this.pitch, fit);
    this.scrollTo(this.first);
    context.fillStyle = theme.paper;
    context.fillRect(0, 0, width, height);
    context.font = `11px ${theme.font}`;
    const parts = run.exactly(view.from, view.to, page.redraw);
    const device = (value) => Math.round(value * ratio);
    this.bars.draw(context, {
      left: device(plot.left), top: device(plot.top), width: device(plot.width), height: device(plot.height),
      rows: this.rows, first: this.first, pitch: this.pitch * ratio, view, parts, selected: page.job,
    });
    this.labels(context, plot, theme);
    this.axis(context, plot, theme, height);
    if (this.strips) this.drawStrips(context, plot, theme, { heatPx, strips, parts, ratio });
    this.drawUnknown(context, plot, theme, height);
    this.drawFuture(context, plot, theme, height);
    this.drawMoment(context, plot, theme, height);
    this.canvas.dataset.rows = Math.min(run.jobs, Math.round(plot.height / this.pitch));
    this.canvas.setAttribute("aria-label", `${this.title ?? "Bars of all jobs over time"}: ${count(run.jobs)} jobs, `
      + `from ${run.timeText(view.from)} to ${run.timeText(view.to)}. The moment is ${run.timeText(page.moment)}.`);
  }

  labels(context, plot, theme) {
    context.save();
    context.beginPath();
    context.rect(0, plot.top, plot.left - 4, plot.height);
    context.clip();
    context.textAlign = "right";
    context.textBaseline = "middle";
    if (this.pitch >= LABELLED_PX) {
      for (let row = Math.floor(this.first); row < this.rows.length; row++) {
        const y = plot.top + (row + 0.42 - this.first) * this.pitch;
        if (y > plot.top + plot.height) break;
        const job = this.rows[row];
        context.fillStyle = this.run.colour[job];
        context.fillRect(plot.left - 9, y - this.pitch * 0.36, 4, this.pitch * 0.72);
        const failed = this.run.failed(job);
        context.fillStyle = failed ? theme.failed : job === this.page.job ? theme.accent : theme.soft;
        context.fillText(fitted(context, `${failed ? "✗ " : ""}${this.run.label(job)}`, plot.left - 16), plot.left - 13, y);
      }
    } else if (this.page.job !== null) {
      const row = this.rows.indexOf(this.page.job);
      context.fillStyle = theme.accent;
      context.fillText(fitted(context, this.run.label(this.page.job), plot.left - 12), plot.left - 8, plot.top + (row + 0.5 - this.first) * this.pitch);
    }
    context.restore();
    if (this.pitch < LABELLED_PX && this.strips) {
      context.save();
      context.translate(13, plot.top + plot.height / 2);
      context.rotate(-Math.PI / 2);
      context.textAlign = "center";
      context.fillStyle = theme.soft;
      context.fillText(`${count(this.run.jobs)} jobs`, 0, 0);
      context.restore();
    }
    const hidden = this.run.jobs * this.pitch > plot.height + 1;
    if (hidden) {
      const share = plot.height / (this.run.jobs * this.pitch);
      context.fillStyle = theme.line;
      context.fillRect(plot.left + plot.width + 2, plot.top + (this.first / this.run.jobs) * plot.height, 3, Math.max(12, share * plot.height));
    }
  }

  axis(context, plot, theme, height) {
    const { view } = this.page;
    context.textBaseline = "middle";
    context.textAlign = "center";
    for (const [instant, text] of this.run.ticks(view.from, view.to, plot.width)) {
      const x = Math.round(this.xAt(instant)) + 0.5;
      context.strokeStyle = theme.faint;
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(x, AXIS_PX - 5);
      context.lineTo(x, this.strips ? height : plot.top + plot.height);
      context.globalAlpha = 0.7;
      context.stroke();
      context.globalAlpha = 1;
      context.fillStyle = theme.soft;
      const half = context.measureText(text).width / 2;
      if (x + half < plot.left + plot.width + RIGHT_PX) context.fillText(text, Math.max(x, plot.left + half - 20), AXIS_PX / 2);
    }
  }

  drawStrips(context, plot, theme, { heatPx, strips, parts, ratio }) {
    const { run, page } = this, { view } = page;
    let top = plot.top + plot.height + 4;
    this.charts = [];
    const title = (text, right) => {
      context.textBaseline = "middle";
      context.textAlign = "left";
      context.fillStyle = theme.paper;
      context.fillRect(0, top, plot.left + plot.width + RIGHT_PX, TITLE_PX);
      context.fillStyle = theme.ink;
      const widths = right.map(([, name]) => 28 + context.measureText(name).width);
      let x = plot.left + context.measureText(text).width + 14;
      // On a narrow page the names come as far to the left as they need.
      x = Math.max(2, Math.min(x, plot.left + plot.width + RIGHT_PX - widths.reduce((sum, width) => sum + width, -14)));
      const start = Math.min(plot.left, x - context.measureText(text).width - 14);
      if (start >= 2) context.fillText(text, start, top + TITLE_PX / 2);
      for (const [colour, name, line] of right) {
        context.fillStyle = colour;
        context.fillRect(x, top + (line ? 6 : 3), 10, line ? 2 : 8);
        context.fillStyle = theme.soft;
        context.fillText(name, x + 14, top + TITLE_PX / 2);
        x += 28 + context.measureText(name).width;
      }
      top += TITLE_PX;
    };
    const scale = (high, low = "0") => {
      context.textAlign = "right";
      context.fillStyle = theme.soft;
      context.textBaseline = "top";
      context.fillText(high, plot.left - 8, top);
      context.textBaseline = "bottom";
      context.fillText(low, plot.left - 8, top + stripHeight);
      context.textBaseline = "middle";
    };
    let stripHeight = heatPx;
    if (this.heat) {
      title(`Messages on each ${run.nouns.server}`, [[theme.heat, `darkest: ${count(this.heat.most)}`]]);
      const device = (value) => Math.round(value * ratio);
      this.heat.draw(context, {
        left: device(plot.left), top: device(top), width: device(plot.width), height: device(heatPx), view, parts,
      });
      scale(...this.heatScale(context, plot));
      this.charts.push({ top, height: heatPx, text: (x, y) => this.heat.text(device(x), device(y)) });
      top += heatPx;
    }
    stripHeight = STRIP_PX;
    for (const { title: text, most, layers } of strips) {
      title(text, layers.map(({ name, colour, filled }) => [theme[colour], name, !filled]));
      for (const { levels, colour, filled } of layers) {
        drawLevels(context, levels, { left: plot.left, top, height: STRIP_PX, most, colour: theme[colour], filled });
      }
      scale(count(most));
      this.charts.push({ top, height: STRIP_PX, text: (x) => `${text}: ${knownAt(layers, x).map(({ name, levels }) => `${name} ${level(levels[x])}`).join(", ")}` });
      top += STRIP_PX;
    }
  }

  /** Return the labels of the first and the last row of the heat map. */
  heatScale(context, plot) {
    const { run } = this, last = run.servers - 1;
    if (run.nodeNames === null) return ["server 0", `${count(last)}`];
    const named = (server) => (server < 0 ? "" : fitted(context, run.serverName(server), plot.left - 12));
    return [named(Math.min(0, last)), last > 0 ? named(last) : ""];
  }

  /** Hatch the stretches of time whose messages are not known. */
  drawUnknown(context, plot, theme, height) {
    const bottom = this.strips ? height : plot.top + plot.height;
    const drawn = hatch(context, this.run.unknown, this.page.view, { ...plot, height: bottom - plot.top }, theme.soft);
    if (!this.strips) return;
    const text = "messages unknown", wide = context.measureText(text).width + 8, y = plot.top + plot.height + 4 + TITLE_PX + 10;
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (const [from, to] of drawn.filter(([first, last]) => last - first > wide + 8)) {
      context.fillStyle = theme.paper;
      context.fillRect((from + to - wide) / 2, y - 8, wide, 16);
      context.fillStyle = theme.soft;
      context.fillText(text, (from + to) / 2, y);
    }
  }

  /** Shade what is only predicted, and mark the present. */
  drawFuture(context, plot, theme, height) {
    const { known } = this.run, from = Math.max(plot.left, this.xAt(known)), right = plot.left + plot.width;
    if (!(from < right)) return;
    context.globalAlpha = 0.12;
    context.fillStyle = theme.soft;
    context.fillRect(from, plot.top, right - from, height - plot.top);
    context.globalAlpha = 1;
    if (known < this.page.view.from) return;
    context.fillStyle = theme.ink;
    context.fillRect(Math.round(from) - 0.5, AXIS_PX - 5, 1, height);
  }

  drawMoment(context, plot, theme, height) {
    const { moment } = this.page, x = Math.round(this.xAt(moment)) + 0.5;
    if (x < plot.left - 1 || x > plot.left + plot.width + 1) return;
    context.strokeStyle = theme.moment;
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(x, AXIS_PX - 6);
    context.lineTo(x, this.strips ? height : plot.top + plot.height);
    context.stroke();
    context.fillStyle = theme.moment;
    context.beginPath();
    context.moveTo(x - 5, AXIS_PX - 9);
    context.lineTo(x + 5, AXIS_PX - 9);
    context.lineTo(x, AXIS_PX - 2);
    context.fill();
  }

  /** Return what is at a point: a job, or the levels of a chart. */
  tipAt(x, y) {
    const { run, plot } = this, [job, ...others] = this.jobsAt(x, y);
    if (job !== undefined) {
      const parts = [`job ${run.ids[job]}`, run.names[job], run.models[job], `${counted(run.gpuCount[job], run.nouns.gpu)}`, ...run.times(job)];
      return [...parts, others.length ? `and ${counted(others.length, "other job")} here` : ""].filter((part) => part).join(" · ");
    }
    const chart = this.charts.find(({ top, height }) => y >= top && y < top + height);
    const at = Math.floor(x - plot.left);
    if (chart === undefined || at < 0 || at >= plot.width) return null;
    return `${run.timeText(this.timeAt(x))} · ${chart.text(at, y - chart.top)}`;
  }

  hover(x, y) { showTip(this.tip, this.tipAt(x, y), x, y); }
}

/** Return the layers of a chart that are known at a pixel; all of them if none is. */
function knownAt(layers, x) {
  const known = layers.filter(({ levels }) => !Number.isNaN(levels[x]));
  return known.length ? known : layers;
}

/** Return a text cut to a width. */
export function fitted(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let length = text.length;
  while (length > 1 && context.measureText(`${text.slice(0, length)}…`).width > width) length = Math.min(length - 1, Math.floor(length * 0.9));
  return `${text.slice(0, length)}…`;
}

/** Return the first of some texts that fits a width, or the last one cut. */
export function firstThatFits(context, texts, width) {
  return texts.find((text) => context.measureText(text).width <= width) ?? fitted(context, texts.at(-1), width);
}

/** Return the choice of an order of the rows. */
export function orderChoice(page) {
  const select = element("select", { id: "order", "aria-label": "Order of the jobs", onchange: () => page.choose({ order: select.value }) });
  for (const [value, [text]] of Object.entries(ORDERS)) {
    select.append(element("option", { value, selected: value === page.order }, text));
  }
  return element("label", {}, element("span", {}, "order"), select);
}
