// Charts under the bars, on the same time axis: messages on each server, GPUs, what waits.

import { colours } from "./colours.js";
import { Coverage, Raster, mixed } from "./raster.js";
import { lastAtMost } from "./levels.js";
import { level } from "./text.js";

const HATCH_PX = 9;

/** Draws the number of messages on each server over time, the darker the more. */
export class ServerHeat {
  constructor(run) {
    this.run = run;
    this.raster = new Raster();
    // A server with as many messages as any ever had is darkest.
    this.most = Math.max(1, run.mostMessages);
  }

  draw(context, { left, top, width, height, view, parts }) {
    const { rgb } = colours(), run = this.run, raster = this.raster;
    if (width < 1 || height < 1) return;
    raster.begin(context, width, height, rgb.paper);
    const rows = Math.min(run.servers, height);
    if (this.rows === undefined || this.rows.length !== rows || this.rows[0]?.covered.length !== width) {
      this.rows = Array.from({ length: rows }, () => new Coverage(width));
    }
    for (const row of this.rows) row.reset();
    this.addMessages(view, width / view.length, rows, parts);
    const each = run.servers / rows;
    for (let row = 0; row < rows; row++) {
      const { covered, first, last } = this.rows[row];
      const upper = Math.round((row * height) / rows);
      const gap = height / rows >= 5 ? 1 : 0;
      const lower = Math.max(upper + 1, Math.round(((row + 1) * height) / rows) - gap);
      if (last < first) continue;
      for (let x = first; x <= last; x++) {
        const share = covered[x] / each / this.most;
        if (share > 0) raster.pixels[upper * width + x] = mixed(rgb.paper, rgb.heat, Math.min(1, 0.12 + 0.88 * share));
      }
      raster.repeat(upper, Math.min(height, lower), first, last + 1);
    }
    context.putImageData(raster.image, left, top);
  }

  /** Add the messages of a view to the rows, exactly or as means. */
  addMessages(view, scale, rows, parts) {
    const { run } = this;
    if (parts === null || ((run.to - run.from) / run.periods) * scale < 2) this.addMeans(view, scale, rows);
    else for (const part of parts) this.addExact(part, view, scale, rows);
  }

  /** Return how many messages there are at a point, in device pixels. */
  text(x, y) {
    const { run, rows } = this;
    if (rows.length === 0) return "messages: none";
    const row = Math.min(rows.length - 1, Math.floor((y * rows.length) / this.raster.height));
    const first = Math.ceil((row * run.servers) / rows.length), last = Math.ceil(((row + 1) * run.servers) / rows.length) - 1;
    const value = (rows[row].covered[x] ?? 0) / (last - first + 1);
    return first === last ? `${run.serverName(first)}: messages ${level(value)}` : `${run.serverName(first)} to ${run.serverShort?.(last) ?? run.serverName(last)}: messages ${level(value)} on average`;
  }

  addMeans(view, scale, rows) {
    const { run } = this, { periods } = run, length = (run.to - run.from) / periods;
    const begin = Math.max(0, Math.floor((view.from - run.from) / length));
    const end = Math.min(periods, Math.ceil((view.to - run.from) / length));
    for (let server = 0; server < run.servers; server++) {
      const lane = this.rows[Math.floor((server * rows) / run.servers)];
      for (let period = begin; period < end; period++) {
        const mean = run.serverMean[server * periods + period];
        if (mean) lane.add((run.from + period * length - view.from) * scale, (run.from + (period + 1) * length - view.from) * scale, mean / 100);
      }
    }
  }

  addExact(part, view, scale, rows) {
    const { run } = this, { start, end, group } = part.messages;
    const from = Math.max(view.from, part.from), to = Math.min(view.to, part.to);
    for (let row = 0; row < start.length; row++) {
      if (start[row] >= to || end[row] <= from) continue;
      const x0 = (Math.max(start[row], from) - view.from) * scale, x1 = (Math.min(end[row], to) - view.from) * scale;
      for (let at = run.firstOfGroup[group[row]]; at < run.firstOfGroup[group[row] + 1]; at++) {
        this.rows[Math.floor((run.groupServer[at] * rows) / run.servers)].add(x0, x1);
      }
    }
  }
}

/** Return the largest level in each pixel of a view, of steps {time, level}. */
export function stepLevels({ time, level }, view, width) {
  const levels = new Float64Array(width);
  let row = Math.max(0, lastAtMost(time, view.from, 0, time.length));
  for (let x = 0; x < width; x++) {
    const until = view.from + ((x + 1) * view.length) / width;
    let most = level[row];
    while (row + 1 < time.length && time[row + 1] < until) most = Math.max(most, level[++row]);
    levels[x] = most;
  }
  return levels;
}

/** Return the mean in each pixel of a view, of hundredths for equal periods of a run. */
export function periodLevels(series, run, view, width) {
  const levels = new Float64Array(width), length = (run.to - run.from) / run.periods;
  for (let x = 0; x < width; x++) {
    const from = (view.from + (x * view.length) / width - run.from) / length;
    const to = (view.from + ((x + 1) * view.length) / width - run.from) / length;
    const first = Math.min(run.periods - 1, Math.floor(from)), last = Math.min(run.periods, Math.max(first + 1, Math.floor(to)));
    let sum = 0;
    for (let period = first; period < last; period++) sum += series[period];
    levels[x] = sum / (last - first) / 100;
  }
  return levels;
}

/** Return levels with NaN for what is not known: stretches of time [from, to]. */
export function withoutUnknown(levels, unknown, view) {
  for (const [from, to] of unknown) {
    const pixel = (time) => Math.round(((time - view.from) / view.length) * levels.length);
    levels.fill(NaN, Math.min(levels.length, Math.max(0, pixel(from))), Math.max(0, pixel(to)));
  }
  return levels;
}

/** Hatch stretches of time [from, to] of a view; return them in pixels. */
export function hatch(context, stretches, view, { left, top, width, height }, colour) {
  const drawn = [];
  for (const [from, to] of stretches) {
    const x0 = left + Math.max(0, ((from - view.from) / view.length) * width), x1 = left + Math.min(width, ((to - view.from) / view.length) * width);
    if (!(x1 - x0 >= 1)) continue;
    drawn.push([x0, x1]);
    context.save();
    context.beginPath();
    context.rect(x0, top, x1 - x0, height);
    context.clip();
    context.globalAlpha = 0.35;
    context.strokeStyle = colour;
    context.lineWidth = 1;
    context.beginPath();
    for (let x = Math.floor((x0 - height) / HATCH_PX) * HATCH_PX; x < x1; x += HATCH_PX) {
      context.moveTo(x, top + height);
      context.lineTo(x + height, top);
    }
    context.stroke();
    context.restore();
  }
  return drawn;
}

/** Return the highest of some levels, at least 1. */
export function highest(...all) {
  let most = 1;
  for (const levels of all) for (const level of levels) if (level > most) most = level;
  return most;
}

/** Draw levels as a line, or filled to the bottom; where they are NaN, nothing. */
export function drawLevels(context, levels, style) {
  for (let from = 0; from < levels.length;) {
    let to = from + 1;
    while (to < levels.length && Number.isNaN(levels[to]) === Number.isNaN(levels[from])) to += 1;
    if (!Number.isNaN(levels[from])) drawKnown(context, levels.subarray(from, to), { ...style, left: style.left + from });
    from = to;
  }
}

function drawKnown(context, levels, { left, top, height, most, colour, filled, dash = [] }) {
  context.beginPath();
  const y = (value) => top + height - (Math.min(value, most) / Math.max(1, most)) * (height - 2) - 0.5;
  if (filled) context.moveTo(left, top + height);
  for (let x = 0; x < levels.length; x++) {
    if (x === 0 && !filled) context.moveTo(left, y(levels[0]));
    else {
      if (x > 0 && levels[x] !== levels[x - 1]) context.lineTo(left + x, y(levels[x - 1]));
      context.lineTo(left + x, y(levels[x]));
    }
  }
  context.lineTo(left + levels.length, y(levels[levels.length - 1]));
  if (filled) {
    context.lineTo(left + levels.length, top + height);
    context.fillStyle = colour;
    context.fill();
  } else {
    context.strokeStyle = colour;
    context.lineWidth = 1.25;
    context.setLineDash(dash);
    context.stroke();
    context.setLineDash([]);
  }
}
