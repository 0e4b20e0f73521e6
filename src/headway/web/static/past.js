// The past of a live cluster: stretches of time that the scheduler reads from its event log.
//
// Stretches are 4 s long, or twice as long, and so on, so that all pages ask for the same ones. A
// stretch knows what happened until some time: until its end, once that is over.

import { firstRows, offsets, summed, unpack } from "./columns.js";
import { isWithin, lastAtMost } from "./levels.js";
import { Coverage } from "./raster.js";

const SHORTEST_S = 4, LEVELS = 24, MAX_STRETCHES = 96;
const AGAIN_MS = 1500, FAILED_MS = 5000, REFRESH_MS = 20000, WRITTEN_S = 3;

/** Ask the scheduler for a stretch of time, in seconds of its clock. */
async function fetchStretch(from, to) {
  const time = (seconds) => (BigInt(seconds) * 1000000000n).toString();
  const answer = await fetch(`v1/past?from_ns=${time(from)}&to_ns=${time(to)}`, { credentials: "same-origin" });
  if (!answer.ok) throw new Error(`${answer.status}`);
  const { values, columns } = await unpack(await answer.arrayBuffer());
  return new Stretch(values, columns);
}

/** The stretches that have been read so far, and those being read. */
export class Past {
  constructor() {
    this.stretches = new Map();
  }

  /**
   * Return what is known of a stretch of time, as [{stretch, from, to}] in order, and fetch the rest.
   *
   * `now` is the present, and `watched` since when the page has seen all itself.
   */
  covering(from, to, now, watched, whenLoaded, shortest = (to - from) / 2) {
    const level = levelOf(shortest), size = SHORTEST_S * 2 ** level, found = [];
    const last = Math.min(to, now);
    for (let number = Math.floor(from / size); number * size < last; number++) {
      const begin = Math.max(from, number * size), end = Math.min(last, (number + 1) * size);
      const stretch = this.stretch(level, number, now, watched, whenLoaded) ?? this.longer(level, number);
      if (stretch && stretch.until > begin) found.push({ stretch, from: begin, to: Math.min(end, stretch.until) });
    }
    return found;
  }

  /** Return a stretch that is there, and fetch it if it is not, or has more to tell by now. */
  stretch(level, number, now, watched, whenLoaded) {
    const key = `${level} ${number}`, size = SHORTEST_S * 2 ** level;
    let entry = this.stretches.get(key);
    if (entry === undefined) {
      entry = { stretch: null, asking: false, asked: -Infinity, failed: false };
    } else this.stretches.delete(key);
    // The one used last comes last.
    this.stretches.set(key, entry);
    const { stretch } = entry, age = performance.now() - entry.asked;
    const over = (number + 1) * size + WRITTEN_S < now;
    const wanted = stretch === null ? age > (entry.failed ? FAILED_MS : 0)
      : stretch.until < stretch.to && age > (over || stretch.until < watched ? AGAIN_MS : REFRESH_MS);
    if (wanted && !entry.asking) this.ask(entry, number * size, (number + 1) * size, whenLoaded);
    return stretch;
  }

  async ask(entry, from, to, whenLoaded) {
    Object.assign(entry, { asking: true, asked: performance.now() });
    try {
      entry.stretch = await fetchStretch(from, to);
      entry.failed = false;
    } catch {
      entry.failed = true;
    }
    entry.asking = false;
    for (const key of this.stretches.keys()) {
      if (this.stretches.size <= MAX_STRETCHES) break;
      this.stretches.delete(key);
    }
    whenLoaded();
  }

  /** Return a longer stretch around one that is not there yet. */
  longer(level, number) {
    for (let above = level + 1; above < LEVELS; above++) {
      number = Math.floor(number / 2);
      const stretch = this.stretches.get(`${above} ${number}`)?.stretch;
      if (stretch) return stretch;
    }
    return null;
  }

  /** Return the stretch that knows a moment to the message; null, and fetch it, if none does. */
  at(moment, now, watched, whenLoaded, shortest) {
    // The next one too, for a replay.
    const size = SHORTEST_S * 2 ** levelOf(shortest);
    const [near] = this.covering(moment, moment + size / 2, now, watched, whenLoaded, shortest);
    if (near?.stretch.knows(moment) && near.stretch.exact) return near.stretch;
    for (const { stretch } of this.stretches.values()) if (stretch?.exact && stretch.knows(moment)) return stretch;
    return null;
  }

  /** Return how many iterations an attempt of a job had done at a moment; null if that is not known. */
  iterations(id, moment) {
    let best = null;
    for (const { stretch } of this.stretches.values()) {
      if (stretch?.knows(moment) && (best === null || stretch.to - stretch.from < best.to - best.from)) best = stretch;
    }
    return best?.iterationsDone(id, moment) ?? null;
  }
}

const levelOf = (length) => Math.min(LEVELS - 1, Math.max(0, Math.ceil(Math.log2(length / SHORTEST_S))));

/** Return the stretches of time between two times that are not covered, or not known, in order. */
export function unknownOf(covers, from, to) {
  const found = [];
  let at = from;
  const add = (begin, end) => {
    if (begin <= (found.at(-1)?.[1] ?? -Infinity)) found.at(-1)[1] = Math.max(found.at(-1)[1], end);
    else if (end > begin) found.push([begin, end]);
  };
  for (const { stretch, from: begin, to: end } of covers) {
    add(at, begin);
    for (const [first, last] of stretch.unknown) if (last > begin && first < end) add(Math.max(first, begin), Math.min(last, end));
    at = Math.max(at, end);
  }
  add(at, to);
  return found;
}

/** Return how many messages were in flight, or waiting, in each pixel of a view, on average. */
export function messageLevels(covers, view, width, waiting) {
  const lane = new Coverage(width), scale = width / view.length;
  for (const { stretch, from, to } of covers) {
    const add = (start, end, weight) => lane.add((Math.max(start, from) - view.from) * scale, (Math.min(end, to) - view.from) * scale, weight);
    if (stretch.exact) {
      const { ready, start, end } = stretch.messages;
      const [first, last] = waiting ? [ready, start] : [start, end];
      for (let row = 0; row < first.length; row++) add(first[row], last[row], 1);
    } else stretch.eachPeriod(waiting ? stretch.unadmitted : stretch.inFlight, 0, (start, end, value) => add(start, end, value / 100));
  }
  return Float64Array.from(lane.covered);
}

/** What happened in a stretch of time. */
export class Stretch {
  constructor(values, columns) {
    Object.assign(this, { from: values.from / 1e9, to: values.to / 1e9, until: values.until / 1e9, exact: values.exact, periods: values.periods });
    this.unknown = values.unknown.map(([from, to]) => [from / 1e9, to / 1e9]);
    this.nodes = values.node;
    const firstSlot = offsets(columns.attempt_slots);
    this.attempts = values.attempt_of.map((id, row) => {
      const start = columns.attempt_start[row] / 1e9, length = columns.attempt_length[row], slots = [];
      for (let at = firstSlot[row]; at < firstSlot[row + 1]; at++) slots.push([columns.slot_node[at], columns.slot_index[at]]);
      return { id, start, end: length < 0 ? Infinity : start + length / 1e9, slots, nodes: [...new Set(slots.map(([node]) => node))] };
    });
    this.rowsOf = new Map();
    this.attempts.forEach(({ id }, row) => this.rowsOf.set(id, [...this.rowsOf.get(id) ?? [], row]));
    this.inFlight = columns.in_flight;
    this.unadmitted = columns.unadmitted;
    this.busy = columns.busy_node;
    this.nodeMean = columns.node_mean;
    this.most = columns.node_most.reduce((most, value) => Math.max(most, value), 0);
    this.sending = columns.sending;
    this.waiting = columns.waiting;
    if (this.exact) this.readMessages(columns);
    const owner = summed(columns.iteration_attempt_step);
    this.reports = { first: firstRows(owner, this.attempts.length), at: summed(columns.iteration_at_step).map((value) => value / 1e9), done: columns.iterations };
  }

  readMessages(columns) {
    const owner = summed(columns.message_attempt_step), ready = summed(columns.message_ready_step);
    const start = ready.map((value, row) => value + columns.message_wait[row]);
    const end = start.map((value, row) => value + columns.message_length[row]);
    const inSeconds = (times) => times.map((value) => value / 1e9);
    this.messages = { owner, first: firstRows(owner, this.attempts.length), ready: inSeconds(ready), start: inSeconds(start), end: inSeconds(end) };
  }

  knows(moment) { return this.from <= moment && moment < this.until && !isWithin(this.unknown, moment); }

  /** Call with begin, end and value of each period of a row that is not 0. */
  eachPeriod(values, row, call) {
    const length = (this.to - this.from) / this.periods;
    for (let period = 0; period < this.periods; period++) {
      const value = values[row * this.periods + period];
      if (value) call(this.from + period * length, this.from + (period + 1) * length, value);
    }
  }

  /** Return the messages at a moment. */
  messagesAt(moment) {
    const { owner, ready, start, end } = this.messages, found = [];
    for (let row = 0; row < owner.length; row++) {
      if (!(ready[row] <= moment && moment < end[row])) continue;
      const waits = moment < start[row], { id, nodes } = this.attempts[owner[row]];
      found.push({
        id, nodes, waits, ready: ready[row], start: start[row], end: end[row],
        share: waits ? 0 : (moment - start[row]) / (end[row] - start[row]),
      });
    }
    return found;
  }

  /** Return the attempts that have slots at a moment. */
  attemptsAt(moment) { return this.attempts.filter(({ start, end }) => start <= moment && moment < end); }

  iterationsDone(id, moment) {
    const row = (this.rowsOf.get(id) ?? []).findLast((one) => this.attempts[one].start <= moment);
    if (row === undefined) return null;
    const { first, at, done } = this.reports, last = lastAtMost(at, moment, first[row], first[row + 1]);
    if (last >= first[row]) return done[last];
    return first[row] < first[row + 1] ? Math.max(0, done[first[row]] - 1) : null;
  }

  /** Add the messages of a job between two times: call with what it does, from when, until when, and how much. */
  addJob(id, from, to, add) {
    for (const row of this.rowsOf.get(id) ?? []) {
      if (!this.exact) {
        for (const lane of ["sending", "waiting"]) {
          this.eachPeriod(this[lane], row, (start, end, value) => add(lane, Math.max(start, from), Math.min(end, to), value / 255));
        }
        continue;
      }
      const { first, ready, start, end } = this.messages;
      for (let message = first[row]; message < first[row + 1]; message++) {
        if (ready[message] >= to) break;
        add("sending", Math.max(start[message], from), Math.min(end[message], to), 1);
        add("waiting", Math.max(ready[message], from), Math.min(start[message], to), 1);
      }
    }
  }

  /** Add the messages in flight on each node between two times: call with its name, from when, until when, how many. */
  addNodes(from, to, add) {
    if (!this.exact) {
      this.busy.forEach((node, row) => {
        this.eachPeriod(this.nodeMean, row, (start, end, value) => add(this.nodes[node], Math.max(start, from), Math.min(end, to), value / 100));
      });
      return;
    }
    const { owner, start, end } = this.messages;
    for (let row = 0; row < owner.length; row++) {
      if (start[row] >= to || end[row] <= from) continue;
      for (const node of this.attempts[owner[row]].nodes) add(this.nodes[node], Math.max(start[row], from), Math.min(end[row], to), 1);
    }
  }
}
