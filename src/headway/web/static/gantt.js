// Bars of all jobs over time: above, when a job computes; below, its messages in flight and waiting.

import { colours } from "./colours.js";
import { Density } from "./density.js";
import { lastAtMost } from "./levels.js";
import { Coverage, Raster, mixed, mixedThree, packed } from "./raster.js";

/** The share of a bar that shows computing; the rest shows messages. */
const COMPUTE_SHARE = 0.6;
const LANES_PX = 3, STRIPE_PX = 6;
export const LABELLED_PX = 11;

/** Draws the bars of some jobs. */
export class Bars {
  constructor(run) {
    this.run = run;
    this.raster = new Raster();
  }

  /**
   * Draw rows of jobs at device pixels.
   *
   * `rows` lists jobs from the top; row r begins at pixel `top + r * pitch`, `parts` are the exact
   * parts of the view, or null for means. With less than a pixel for a row, rows share pixels.
   */
  draw(context, { left, top, width, height, rows, first, pitch, view, parts, selected }) {
    if (width < 1 || height < 1) return;
    const { rgb } = colours();
    const raster = this.raster, run = this.run;
    raster.begin(context, width, height, rgb.paper);
    if (pitch < 1) {
      if (this.density?.width !== width) this.density = new Density(run, width);
      this.lanes = this.density.lanes;
      this.density.draw(this, raster, { rows, first, pitch, view, selected }, rgb);
      context.putImageData(raster.image, left, top);
      return;
    }
    if (this.coverage?.[0].covered.length !== width) this.coverage = [0, 1, 2].map(() => new Coverage(width));
    this.lanes = this.coverage;
    const [computing, sending, waiting] = this.lanes;
    const scale = width / view.length, origin = view.from;
    const begin = Math.max(0, Math.floor(first));
    for (let row = begin; row < rows.length; row++) {
      const from = Math.round((row - first) * pitch);
      if (from >= height) break;
      const gap = pitch >= 6 ? Math.max(1, Math.round(pitch * 0.18)) : 0;
      const upper = Math.max(0, from), lower = Math.min(height, Math.round((row + 1 - first) * pitch) - gap);
      if (lower <= upper) continue;
      const job = rows[row], failed = run.failed(job);
      if (selected === job) {
        raster.pixels.fill(packed(rgb.faint), upper * width, (upper + 1) * width);
        raster.repeat(upper, lower, 0, width);
      }
      if (run.finish[job] <= view.from || run.arrival[job] >= view.to) continue;
      const arrival = (run.arrival[job] - origin) * scale;
      const start = (this.beginOf(job) - origin) * scale, finish = (run.finish[job] - origin) * scale;
      const base = rgb.idle;
      this.queue(upper, lower, arrival, start, rgb);
      if (!this.hasBar(job)) continue;
      const x0 = Math.max(0, Math.floor(start)), x1 = Math.min(width, Math.max(Math.ceil(finish), Math.floor(start) + 1));
      if (x1 <= x0) continue;
      for (const lane of this.lanes) lane.reset();
      this.addLanes(job, view, scale, parts);
      if (lower - upper < LANES_PX) {
        this.paintTogether(upper, lower, x0, x1, base, failed ? { ...rgb, computing: rgb.failed } : rgb);
        this.paintFuture(job, { upper, lower, x0, x1, scale, view }, rgb);
        continue;
      }
      const split = upper + Math.max(1, Math.round((lower - upper) * COMPUTE_SHARE));
      const pixels = raster.pixels;
      let at = upper * width;
      for (let x = x0; x < x1; x++) {
        pixels[at + x] = mixed(base, failed ? rgb.failed : rgb.computing, Math.min(1, computing.covered[x]));
      }
      raster.repeat(upper, Math.min(split, lower), x0, x1);
      if (split < lower) {
        at = split * width;
        for (let x = x0; x < x1; x++) {
          const sends = Math.min(1, sending.covered[x]), waits = Math.min(1 - sends, waiting.covered[x]);
          pixels[at + x] = mixedThree(base, rgb.sending, sends, rgb.waiting, waits);
        }
        raster.repeat(split, lower, x0, x1);
      }
      if (failed) this.stripe(upper, lower, x0, x1, rgb.paper);
      this.paintFuture(job, { upper, lower, x0, x1, scale, view }, rgb);
    }
    context.putImageData(raster.image, left, top);
  }

  /** Return whether a job has a bar. */
  hasBar() { return true; }

  /** Return when the bar of a job begins. */
  beginOf(job) { return this.run.start[job]; }

  /** Stripe a bar, so that it differs not by its colour alone; the other way than what is predicted. */
  stripe(upper, lower, x0, x1, colour) {
    const { pixels, width } = this.raster, line = packed(colour);
    for (let y = upper; y < lower; y++) {
      for (let x = x0 + ((y - x0 % STRIPE_PX + STRIPE_PX) % STRIPE_PX); x < x1; x += STRIPE_PX) pixels[y * width + x] = line;
    }
  }

  /** Paint over what is only predicted. */
  paintFuture() {}

  /** Add what a job does to the lanes. */
  addLanes(job, view, scale, parts) {
    const { run } = this;
    // Means over less than two pixels look the same as what is exact.
    const period = (run.finish[job] - run.start[job]) / (run.firstPeriod[job + 1] - run.firstPeriod[job]);
    if (parts === null || period * scale < 2) this.addMeans(job, view, scale);
    else for (const part of parts) this.addExact(job, part, view, scale);
  }

  /** Paint a bar that is too low for two lanes. */
  paintTogether(upper, lower, x0, x1, base, rgb) {
    const [computing, sending, waiting] = this.lanes, { pixels, width } = this.raster;
    for (let x = x0; x < x1; x++) {
      const computes = computing.covered[x], sends = sending.covered[x], waits = waiting.covered[x];
      const total = Math.max(1, computes + sends + waits);
      const rest = 1 - (computes + sends + waits) / total;
      let pixel = 255 << 24;
      for (let part = 0; part < 3; part++) {
        const value = (rgb.computing[part] * computes + rgb.sending[part] * sends + rgb.waiting[part] * waits) / total + base[part] * rest;
        pixel |= value << (8 * part);
      }
      pixels[upper * width + x] = pixel;
    }
    this.raster.repeat(upper, lower, x0, x1);
  }

  queue(upper, lower, arrival, start, rgb) {
    const width = this.raster.width;
    const x0 = Math.max(0, Math.floor(arrival)), x1 = Math.min(width, Math.ceil(start));
    if (x1 <= x0) return;
    const middle = (upper + lower) >> 1, thin = Math.max(1, Math.round((lower - upper) * 0.16));
    const row = Math.min(Math.max(upper, middle - (thin >> 1)), lower - 1);
    this.raster.pixels.fill(packed(rgb.queued), row * width + x0, row * width + x1);
    this.raster.repeat(row, Math.min(lower, row + thin), x0, x1);
  }

  addMeans(job, view, scale) {
    const run = this.run, first = run.firstPeriod[job], periods = run.firstPeriod[job + 1] - first;
    const start = run.start[job], length = (run.finish[job] - start) / periods;
    const begin = Math.max(0, Math.floor((view.from - start) / length));
    const end = Math.min(periods, Math.ceil((view.to - start) / length));
    const names = ["computing", "sending", "waiting"];
    for (let period = begin; period < end; period++) {
      const from = (start + period * length - view.from) * scale, to = from + length * scale;
      for (let lane = 0; lane < 3; lane++) {
        const share = run.share[names[lane]][first + period];
        if (share) this.lanes[lane].add(from, to, share / 255);
      }
    }
  }

  addExact(job, part, view, scale) {
    const [computing, sending, waiting] = this.lanes;
    // Spans that overlap two parts are in both.
    const from = Math.max(view.from, part.from), to = Math.min(view.to, part.to);
    if (to <= from) return;
    const add = (lane, start, end) => {
      lane.add(((start > from ? start : from) - view.from) * scale, ((end < to ? end : to) - view.from) * scale);
    };
    const spans = part.computing;
    let last = spans.first[job + 1];
    for (let row = Math.max(spans.first[job], lastAtMost(spans.start, from, spans.first[job], last)); row < last; row++) {
      if (spans.start[row] >= to) break;
      if (spans.end[row] > from) add(computing, spans.start[row], spans.end[row]);
    }
    const messages = part.messages;
    last = messages.first[job + 1];
    const latest = Math.max(messages.first[job], lastAtMost(messages.ready, from, messages.first[job], last));
    for (let row = latest < last ? messages.chain[latest] : last; row < last; row++) {
      if (messages.ready[row] >= to) break;
      if (messages.end[row] <= from) continue;
      add(sending, messages.start[row], messages.end[row]);
      if (messages.start[row] > messages.ready[row]) add(waiting, messages.ready[row], messages.start[row]);
    }
  }
}
