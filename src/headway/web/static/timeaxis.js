// The stretch of time on show, and its axis.

import { seconds } from "./text.js";

const NARROWEST_S = 1e-6;

/** The stretch of time that all charts of the page show. */
export class View {
  constructor(from, to) {
    Object.assign(this, { first: from, last: to, from, to });
  }

  get length() { return this.to - this.from; }

  show(from, to) {
    const whole = this.last - this.first;
    const length = Math.min(whole, Math.max(NARROWEST_S, to - from));
    const start = Math.min(Math.max(this.first, from), this.last - length);
    this.from = start;
    this.to = start + length;
  }

  pan(by) { this.show(this.from + by, this.to + by); }

  zoom(factor, around = (this.from + this.to) / 2) {
    const length = Math.min(this.last - this.first, Math.max(NARROWEST_S, this.length * factor));
    const from = around - (around - this.from) * (length / this.length);
    this.show(from, from + length);
  }

  fit() { this.show(this.first, this.last); }
}

/** Return [instant, text] for about one label in `spacing` pixels: round seconds of a run. */
export function runTicks(from, to, width) {
  const { instants, step } = ticks(from, to, width);
  return instants.map((instant) => [instant, tickText(instant, step)]);
}

/** Return [instant, text] for times of day; an instant plus `offset` is a time since midnight of some day. */
export function clockTicks(from, to, width, offset) {
  const { instants, step } = ticks(from + offset, to + offset, width);
  return instants.map((instant) => [instant - offset, timeOfDay(instant, step)]);
}

/** Return a time of day with as many digits as a step of that size needs. */
export function timeOfDay(instant, step) {
  const two = (value) => String(value).padStart(2, "0");
  const shown = step < 1 ? instant : Math.round(instant), minutes = Math.floor(shown / 60);
  const clock = `${two(Math.floor(minutes / 60) % 24)}:${two(minutes % 60)}`;
  if (step >= 60) return clock;
  const rest = shown - minutes * 60;
  return `${clock}:${step < 1 ? seconds(rest, step).padStart(seconds(0, step).length + 1, "0") : two(rest)}`;
}

/** Return round instants for about one label in `spacing` pixels, and the step between them. */
function ticks(from, to, width, spacing = 110) {
  const least = ((to - from) * spacing) / Math.max(width, 1);
  const power = 10 ** Math.floor(Math.log10(least));
  let step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= least);
  if (least > 30) {
    const sizes = [60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 432000, 864000];
    step = sizes.find((size) => size >= least) ?? step;
  }
  const first = Math.ceil(from / step - 1e-9);
  const instants = [];
  for (let number = first; number * step <= to + step * 1e-9; number++) instants.push(number * step || 0);
  return { instants, step };
}

/** Return an instant as the axis labels it. */
function tickText(instant, step) {
  if (step < 60) return `${seconds(instant, step)} s`;
  if (step >= 86400) return `${Math.round(instant / 86400)} d`;
  const minutes = Math.round(instant / 60), hours = Math.floor(minutes / 60);
  if (hours === 0) return minutes ? `${minutes} min` : "0";
  return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
}
