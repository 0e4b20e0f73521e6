// Bars of live jobs: what was, with the messages that are known, and hatched what is predicted.

import { Bars } from "./gantt.js";
import { packed } from "./raster.js";
import { ServerHeat } from "./strips.js";

const HATCH_PX = 6, LINE_PX = 2, RESTART_PX = 2;

export class LiveBars extends Bars {
  hasBar(job) { return this.run.finish[job] > this.beginOf(job); }
  beginOf(job) { return Math.min(this.run.start[job], this.run.attemptsOf(job)[0]?.from ?? Infinity); }

  /** Add what a job does to the lanes; `known` says what is known of the view's time. */
  addLanes(job, view, scale, known) {
    const { run } = this, [computing, sending, waiting] = this.lanes, lanes = { sending, waiting };
    const end = Math.min(run.finish[job], run.known);
    for (const { from, to } of run.attemptsOf(job)) computing.add((from - view.from) * scale, (Math.min(to, end) - view.from) * scale);
    run.eachMessageOf(job, known, (lane, from, to, weight) => {
      lanes[lane].add((from - view.from) * scale, (to - view.from) * scale, weight);
    });
  }

  /** Paint what is between attempts, hatch a bar from the present on, and mark where the job was started again. */
  paintFuture(job, { upper, lower, x0, x1, scale, view }, rgb) {
    const { run } = this, attempts = run.attemptsOf(job), at = (time) => Math.max(x0, Math.min(x1, Math.round((time - view.from) * scale)));
    attempts.forEach(({ to }, index) => {
      const next = attempts[index + 1]?.from ?? (run.job(job).state === "queued" ? run.start[job] : run.finish[job]);
      const begin = at(to), end = at(next);
      if (to >= run.finish[job] || end <= begin) return;
      this.fillArea(upper, lower, begin, end, rgb.paper);
      this.queue(upper, lower, begin, end, rgb);
    });
    this.hatchFuture(job, { upper, lower, x0, x1, scale, view }, rgb);
    for (const { from, number } of attempts) {
      const x = Math.round((from - view.from) * scale);
      if (number > 1 && x >= 0) this.fillArea(upper, lower, x, Math.min(this.raster.width, x + RESTART_PX), rgb.ink);
    }
  }

  fillArea(upper, lower, x0, x1, colour) {
    const { pixels, width } = this.raster;
    for (let y = upper; y < lower; y++) pixels.fill(packed(colour), y * width + x0, y * width + Math.max(x0, x1));
  }

  hatchFuture(job, { upper, lower, x0, x1, scale, view }, rgb) {
    const { run } = this, { pixels, width } = this.raster;
    const first = Math.max(x0, Math.min(x1, Math.ceil((Math.max(run.known, run.start[job]) - view.from) * scale)));
    if (first >= x1) return;
    const line = packed(rgb.computing), rest = packed(rgb.paper), low = lower - upper < 4;
    for (let y = upper; y < lower; y++) {
      const edge = !low && (y === upper || y === lower - 1);
      for (let x = first; x < x1; x++) {
        const marked = edge || x === x1 - 1 || (x + y) % HATCH_PX < LINE_PX;
        pixels[y * width + x] = marked ? line : rest;
      }
    }
  }
}

/** Draws the number of messages on each node over time, as far as it is known. */
export class NodeHeat extends ServerHeat {
  addMessages(view, scale, rows, known) {
    const { run } = this;
    this.most = Math.max(1, ...known.covers.map(({ stretch }) => stretch.most));
    run.eachMessageOnNodes(known, (node, from, to, weight) => {
      this.rows[Math.floor((node * rows) / run.servers)].add((from - view.from) * scale, (to - view.from) * scale, weight);
    });
  }
}
