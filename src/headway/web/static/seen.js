// What the page has seen since it is connected: when jobs were sending or waiting, and how many of them.
//
// The scheduler tells what is so at most four times a second. What was so then counts until the next
// time, so that shares over many iterations are right on average even if messages are short. The page
// shows it until the scheduler's log says what happened exactly.

import { lastAtMost } from "./levels.js";

const MAX_SPANS = 1000, MAX_STEPS = 20000;

/** Spans of a job, the latest ones. */
export class Seen {
  constructor() {
    this.from = [];
    this.to = [];
  }

  add(from, to) {
    if (this.to.length && this.to.at(-1) >= from) {
      this.to[this.to.length - 1] = Math.max(to, this.to.at(-1));
      return;
    }
    this.from.push(from);
    this.to.push(to);
    if (this.from.length > MAX_SPANS) {
      this.from.splice(0, MAX_SPANS / 4);
      this.to.splice(0, MAX_SPANS / 4);
    }
  }

  covers(moment) {
    const row = lastAtMost(this.from, moment, 0, this.from.length);
    return row >= 0 && moment < this.to[row];
  }

  /** Call with the spans of a stretch of time. */
  each(from, to, call) {
    for (let row = Math.max(0, lastAtMost(this.from, from, 0, this.from.length)); row < this.from.length; row++) {
      if (this.from[row] >= to) break;
      call(Math.max(from, this.from[row]), Math.min(to, this.to[row]));
    }
  }
}

/** All jobs together: who sends or waits at present, and how many did over time. */
export class Watched {
  constructor() {
    // Everything has been seen from `from` to `since`.
    Object.assign(this, { from: Infinity, since: null, sendingNow: new Set(), waitingNow: new Set() });
    this.sending = { time: [-Infinity], level: [0] };
    this.waiting = { time: [-Infinity], level: [0] };
  }

  /** Nothing is known from the last call of `hold` to the next. */
  pause() {
    if (this.since === null) return;
    step(this.sending, this.since, 0);
    step(this.waiting, this.since, 0);
    Object.assign(this, { from: Infinity, since: null, sendingNow: new Set(), waitingNow: new Set() });
  }

  /** From now on these records send and wait; what was so before is added to them. */
  hold(clock, sending, waiting) {
    if (this.since !== null && clock > this.since) {
      for (const record of this.sendingNow) record.sending.add(this.since, clock);
      for (const record of this.waitingNow) record.waiting.add(this.since, clock);
    }
    if (this.since === null) this.from = clock;
    Object.assign(this, { since: clock, sendingNow: sending, waitingNow: waiting });
    step(this.sending, clock, sending.size);
    step(this.waiting, clock, waiting.size);
  }
}

function step({ time, level }, clock, value) {
  if (level.at(-1) === value) return;
  if (time.at(-1) >= clock) {
    level[level.length - 1] = value;
    return;
  }
  time.push(clock);
  level.push(value);
  if (time.length > MAX_STEPS) {
    time.splice(1, MAX_STEPS / 4);
    level.splice(1, MAX_STEPS / 4);
  }
}
