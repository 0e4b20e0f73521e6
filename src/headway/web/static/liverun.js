// The running scheduler as a run: its jobs and nodes, and what is so now or was at a moment.
//
// A live run has the members of a recorded one (run.js), so that the same views show both. Servers are
// the scheduler's nodes, GPUs their slots. Times are seconds on the scheduler's clock, as if it had
// never stood still. What jobs did within their time on slots comes from the scheduler's log (past.js),
// and of the latest seconds from what the page has seen (seen.js).

import { leastUsedColour } from "./colours.js";
import { offsets } from "./columns.js";
import { heldSpans, jobsOnGpus, levels, messagesOnServers } from "./levels.js";
import { LiveBars, NodeHeat } from "./livebars.js";
import { Past, messageLevels, unknownOf } from "./past.js";
import { Seen, Watched } from "./seen.js";
import { highest, stepLevels, withoutUnknown } from "./strips.js";
import { ago, count, counted, duration, inWords, list, megabytes, percent, ranges, sentence } from "./text.js";
import { clockTicks, timeOfDay } from "./timeaxis.js";

const UNFINISHED = ["starting", "running", "stopping", "queued"];
const FINISHED = ["done", "failed", "cancelled"];
const LEAST_VIEW_S = 60, COUNTED_S = 1.5;

/** What the colours of bars mean. */
const LANES = [
  ["queued", "queued"], ["computing", "running"], ["sending", "sending"],
  ["waiting", "waiting for admission"], ["predicted", "predicted"], ["failed", "failed"], ["restart", "started again"],
];

const inSeconds = (value) => (value === null || value === undefined ? null : value / 1e9);

export class LiveRun {
  constructor(snapshot) {
    Object.assign(this, { number: 0, version: 0, layout: 0, lanes: LANES, nouns: { server: "node", gpu: "slot" } });
    this.states = [...UNFINISHED, ...FINISHED];
    // How fast the past is replayed, and what to call when more of it is known.
    Object.assign(this, { pace: 0, whenLoaded: () => {}, unknown: [] });
    this.records = [];
    this.jobOf = new Map();
    this.restart(snapshot);
  }

  /** Take over the scheduler's state; return by how much its clock is ahead of the one before. */
  restart(snapshot) {
    const before = new Map(this.records.map((record) => [record.job.id, record])), ahead = this.offset;
    // A scheduler that was started again has another clock.
    const same = snapshot.began_ms === this.began;
    this.began = snapshot.began_ms;
    this.clock = snapshot.clock_ns / 1e9;
    this.received = performance.now();
    this.offset = Date.now() / 1000 - new Date().getTimezoneOffset() * 60 - this.clock;
    this.settings = { version: snapshot.version, network: snapshot.network, policies: snapshot.policies ?? [],
      networks: snapshot.networks ?? [], parts: snapshot.policy_parts ?? null };
    this.useNodes(snapshot.nodes);
    this.records = snapshot.jobs.map((job) => {
      const known = before.get(job.id);
      return known !== undefined && same ? Object.assign(known, { job, gpus: null, attempts: null }) : new Record(job, known?.colour);
    });
    if (!same) Object.assign(this, { watched: new Watched(), past: new Past() });
    this.watched.pause();
    this.renumber();
    this.use(snapshot);
    return same || ahead === undefined ? 0 : ahead - this.offset;
  }

  /** Take over what has changed. */
  change(changes) {
    this.clock = changes.clock_ns / 1e9;
    this.received = performance.now();
    if (changes.nodes) this.useNodes(changes.nodes);
    for (const job of changes.jobs ?? []) {
      const index = this.jobOf.get(job.id);
      if (index !== undefined) Object.assign(this.records[index], { job, gpus: null, attempts: null });
      else {
        this.jobOf.set(job.id, this.records.length);
        this.records.push(new Record(job));
      }
    }
    const gone = (changes.gone ?? []).filter((id) => this.jobOf.has(id));
    if (gone.length) {
      const lost = new Set(gone);
      this.records = this.records.filter((record) => !lost.has(record.job.id));
    }
    this.renumber();
    this.use(changes);
  }

  use({ policy, forecast, problems, messages, turns }) {
    if (policy !== undefined) this.policy = policy;
    if (forecast !== undefined) this.forecast = forecast;
    if (problems !== undefined) this.problems = problems;
    if (messages !== undefined) this.current = messages;
    if (turns !== undefined) this.turns = turns;
    this.readMessages();
    this.version += 1;
    this.advance();
  }

  useNodes(nodes) {
    const shape = JSON.stringify(nodes.map((node) => [node.slots, node.rack]));
    this.nodes = nodes;
    this.nodeOf = new Map(nodes.map(({ name }, index) => [name, index]));
    if (shape === this.shape) return;
    this.shape = shape;
    this.layout += 1;
    this.serverGpus = nodes.map((node) => node.slots);
    this.servers = nodes.length;
    this.firstOfServer = offsets(this.serverGpus);
    this.allGpus = this.firstOfServer[this.servers];
    this.serverOfGpu = new Int32Array(this.allGpus);
    for (let node = 0; node < this.servers; node++) {
      this.serverOfGpu.fill(node, this.firstOfServer[node], this.firstOfServer[node + 1]);
    }
    this.racks = [...new Set(nodes.map((node) => node.rack ?? ""))];
    this.serverRack = nodes.map((node) => this.racks.indexOf(node.rack ?? ""));
    for (const record of this.records) record.gpus = null;
  }

  /** Lay out the columns of jobs. */
  renumber() {
    const jobs = this.records.map((record) => record.job);
    this.jobs = jobs.length;
    this.ids = jobs.map((job) => job.id);
    if (this.ids.length !== this.jobOf.size || this.ids.some((id, index) => this.jobOf.get(id) !== index)) {
      this.jobOf = new Map(this.ids.map((id, index) => [id, index]));
    }
    this.names = jobs.map((job) => job.name ?? "");
    this.models = jobs.map((job) => job.model ?? "");
    this.gpuCount = jobs.map((job) => job.ranks);
    this.arrival = jobs.map((job) => job.submitted_ns / 1e9);
    this.start = new Float64Array(this.jobs);
    this.finish = new Float64Array(this.jobs);
    this.colour = this.colours();
    this.unfinished = [...this.records.keys()].filter((job) => !FINISHED.includes(jobs[job].state));
    const unfinished = new Set(this.unfinished);
    for (let job = 0; job < this.jobs; job++) if (!unfinished.has(job)) this.place(job);
  }

  colours() {
    const used = new Map();
    for (const { job, colour } of this.records) {
      if (colour !== null && !FINISHED.includes(job.state)) used.set(colour, (used.get(colour) ?? 0) + 1);
    }
    for (const record of this.records) {
      if (record.colour !== null) continue;
      record.colour = leastUsedColour(used, this.lastColour);
      this.lastColour = record.colour;
      if (!FINISHED.includes(record.job.state)) used.set(record.colour, (used.get(record.colour) ?? 0) + 1);
    }
    return this.records.map((record) => record.colour);
  }

  /** Set the start and the finish of a job: as they were, or as predicted, but not before now. */
  place(job) {
    const { state, ...times } = this.records[job].job, now = this.to;
    const later = (value) => (value === null ? now : Math.max(now, value));
    const waits = state === "queued", over = FINISHED.includes(state);
    const started = inSeconds(times.started_ns), finished = inSeconds(times.finished_ns);
    const start = !waits && started !== null ? started : over ? finished : later(inSeconds(times.predicted_start_ns));
    this.start[job] = start;
    this.finish[job] = over ? finished ?? start : Math.max(start, later(inSeconds(times.predicted_finish_ns)));
  }

  /** Move the present to where the clock is by now. */
  advance() {
    this.to = this.known = this.connected === false ? this.clock : this.clock + (performance.now() - this.received) / 1000;
    for (const job of this.unfinished) this.place(job);
    this.from = this.jobs ? this.arrival.reduce((least, value) => Math.min(least, value), this.to - LEAST_VIEW_S) : this.to - LEAST_VIEW_S;
    this.last = this.finish.reduce((most, value) => Math.max(most, value), this.to);
  }

  readMessages() {
    this.messages = [];
    for (const { job, bytes, since_ns: since, left_bytes: left, why } of this.current ?? []) {
      const index = this.jobOf.get(job);
      if (index === undefined) continue;
      const waits = left === null;
      this.messages.push({ job: index, bytes, ready: since / 1e9, start: since / 1e9, left, why, waits, share: waits ? 0 : 1 - left / Math.max(1, bytes) });
    }
    this.turnOf = new Map((this.turns ?? []).map(([node, slot, id]) => [this.firstOfServer[node] + slot, this.jobOf.get(id)]));
    const sending = new Set(), waiting = new Set();
    for (const { job, waits } of this.messages) (waits ? waiting : sending).add(this.records[job]);
    this.watched.hold(this.clock, sending, waiting);
  }

  job(job) { return this.records[job].job; }
  jct(job) { return this.finish[job] - this.arrival[job]; }
  gpusOf(job) {
    const record = this.records[job];
    record.gpus ??= record.job.slots.map(([node, slot]) => this.firstOfServer[node] + slot).filter((gpu) => gpu < this.allGpus);
    return record.gpus;
  }
  failed(job) { return this.job(job).state === "failed"; }

  /** Return the attempts of a job that are known, as {number, from, to, nodes, reason}; the present one has no end yet. */
  attemptsOf(job) {
    const record = this.records[job], { history, attempts, started_ns: started, finished_ns: finished } = record.job;
    const end = (value) => inSeconds(value) ?? Infinity;
    record.attempts ??= history.length || started === null
      ? history.map(({ number, nodes, started_ns: from, ended_ns: to, reason }) => ({ number, nodes, reason, from: from / 1e9, to: end(to) }))
      : [{ number: attempts, nodes: null, reason: "", from: started / 1e9, to: end(finished) }];
    return record.attempts;
  }
  serversOf(job) { return [...new Set(this.gpusOf(job).map((gpu) => this.serverOfGpu[gpu]))]; }
  slotsOn(job, server) {
    const slots = this.gpusOf(job).filter((gpu) => this.serverOfGpu[gpu] === server).map((gpu) => gpu - this.firstOfServer[server]);
    return `${slots.length === 1 ? "slot" : "slots"} ${ranges(slots.sort((one, other) => one - other))}`;
  }
  serversOfMessage({ job, nodes }) { return nodes ?? this.serversOf(job); }
  serverName(server) { return this.nodes[server].name; }
  serverNames(servers) { return list(servers.map((server) => this.nodes[server].name)); }
  serverState(server) { return this.nodes[server].state; }
  gpuName(gpu) { return `${gpu - this.firstOfServer[this.serverOfGpu[gpu]]}`; }
  title(job) { return this.names[job] ? `${this.ids[job]} (${this.names[job]})` : this.ids[job]; }
  label(job) { return this.names[job] ? `${this.ids[job]} ${this.names[job]}` : this.ids[job]; }
  tipOf(job) { return `job ${this.title(job)}`; }
  timeText(moment) { return timeOfDay(moment + this.offset, 1); }
  ticks(from, to, width) { return clockTicks(from, to, width, this.offset); }
  newBars() { return new LiveBars(this); }
  newHeat() { return new NodeHeat(this); }

  /** Return what is known of a stretch of time: {covers, from}, from the log, and since `from` seen by the page. */
  exactly(from, to) {
    const covers = this.past.covering(from, to, this.known, this.watched.from, this.whenLoaded);
    const until = covers.length ? covers.at(-1).to : -Infinity, known = { covers, from: Math.max(from, until, this.watched.from), to: Math.min(to, this.known) };
    // Before the first job there is nothing to know.
    this.unknown = this.jobs === 0 ? [] : unknownOf(covers, Math.max(from, this.from), Math.min(to, this.known, Math.max(until, this.watched.from)));
    return known;
  }

  /** Call with "sending" or "waiting", from when, until when and how much, for the messages of a job. */
  eachMessageOf(job, { covers, from, to }, call) {
    for (const cover of covers) cover.stretch.addJob(this.ids[job], cover.from, cover.to, call);
    for (const lane of ["sending", "waiting"]) this.records[job][lane].each(from, to, (begin, end) => call(lane, begin, end, 1));
  }

  /** Call with a node, from when, until when and how many, for the messages in flight. */
  eachMessageOnNodes({ covers, from, to }, call) {
    for (const cover of covers) {
      cover.stretch.addNodes(cover.from, cover.to, (name, ...rest) => {
        if (this.nodeOf.has(name)) call(this.nodeOf.get(name), ...rest);
      });
    }
    this.records.forEach(({ sending }, job) => {
      sending.each(from, to, (begin, end) => { for (const node of this.serversOf(job)) call(node, begin, end, 1); });
    });
  }

  /** Return the texts for when a job starts and ends, with predictions as such. */
  times(job) {
    const { state } = this.job(job), known = this.prediction(job);
    if (FINISHED.includes(state)) return [`${state} ${this.timeText(this.finish[job])}`, `JCT ${duration(this.jct(job))}`];
    const again = this.attemptsOf(job).at(-1)?.number > 1 ? `attempt ${this.attemptsOf(job).at(-1).number} ` : "";
    const start = state === "queued" ? known.start === null ? "queued" : `starts ${inWords(known.start - this.to)}` : `${again}started ${this.timeText(again ? this.attemptsOf(job).at(-1).from : this.start[job])}`;
    return [start, known.finish === null ? "" : `ends ${inWords(known.finish - this.to)}`];
  }

  /** Return the predicted start and finish of a job, not before now, or null; and a note on them. */
  prediction(job) {
    const { state, predicted_start_ns: start, predicted_finish_ns: finish, prediction_note: note } = this.job(job);
    const later = (value) => (value === null || value === undefined ? null : Math.max(this.to, value / 1e9));
    if (FINISHED.includes(state)) return { start: null, finish: null, note: "" };
    return { start: state === "queued" ? later(start) : null, finish: later(finish), note };
  }

  /** Return the charts under the bars. */
  strips(view, pixels) {
    const key = `${this.version} ${Math.floor(this.to)}`;
    if (this.countedFor !== key) this.countLevels();
    this.countedFor = key;
    const held = stepLevels(this.held, view, pixels), queue = stepLevels(this.queued, view, pixels);
    const pixelOf = (time) => Math.min(pixels, Math.max(0, Math.ceil(((time - view.from) / view.length) * pixels)));
    const now = pixelOf(this.known), counted = pixelOf(this.known + COUNTED_S);
    const { covers, from } = this.exactly(view.from, view.to);
    const messages = (seen, waits) => {
      const levels = messageLevels(covers, view, pixels, waits);
      levels.set(stepLevels(seen, view, pixels).subarray(pixelOf(from), now), pixelOf(from));
      return withoutUnknown(levels, [...this.unknown, [this.known, view.to]], view);
    };
    const sending = messages(this.watched.sending, false), waiting = messages(this.watched.waiting, true);
    for (const levels of [held, queue]) levels.fill(levels[Math.min(counted, pixels - 1)], now, counted);
    // What was is filled. What is predicted is a line, as far as it depends on no job whose end is not known.
    const until = this.unfinished.filter((job) => this.prediction(job).finish === null)
      .reduce((least, job) => Math.min(least, this.job(job).state === "queued" ? this.prediction(job).start ?? Infinity : this.known), Infinity);
    const layers = (name, colour, levels) => [
      { name, colour, filled: true, levels: withoutUnknown(levels.slice(), [[this.known, view.to]], view) },
      { name: "predicted", colour, levels: withoutUnknown(levels, [[view.from, this.known], [Math.min(until, view.to), view.to]], view) },
    ];
    return [
      { title: "Slots", most: this.allGpus, layers: layers("hold a job", "computing", held) },
      { title: "Messages", most: highest(sending, waiting), layers: [
        { name: "in flight", colour: "sending", filled: true, levels: sending },
        { name: "wait for admission", colour: "waiting", levels: waiting },
      ] },
      { title: "Queue", most: highest(queue), layers: layers("jobs", "queued", queue) },
    ];
  }

  countLevels() {
    const { starts, ends } = heldSpans(this), weights = starts.map(() => 1);
    // Which slots a queued job gets is not known.
    for (const job of this.unfinished) {
      if (this.job(job).state !== "queued" || this.finish[job] <= this.start[job]) continue;
      starts.push(this.start[job]);
      ends.push(this.finish[job]);
      weights.push(this.gpuCount[job]);
    }
    // What has no known end lasts at least until this is counted again.
    const open = (time) => (time === this.to ? this.to + COUNTED_S : time);
    this.held = levels(starts, ends.map(open), (row) => weights[row]);
    this.held.level = this.held.level.map((level) => Math.min(this.allGpus, level));
    this.queued = levels(this.arrival, this.start.map(open));
  }

  isNow(moment) { return moment >= this.to; }

  /** Return the state of a job at a moment. */
  state(job, moment) {
    if (this.isNow(moment)) return this.job(job).state;
    const { state } = this.job(job), attempts = this.attemptsOf(job);
    if (FINISHED.includes(state) && moment >= this.finish[job]) return state;
    return attempts.some(({ from, to }) => from <= moment && moment < to) ? "running" : "queued";
  }

  /** Return how many iterations a job had done; where that is not known, it counts as steady. */
  iterationsDone(job, moment) {
    const { iterations } = this.job(job);
    if (moment <= this.start[job]) return 0;
    const end = Math.min(this.finish[job], this.to);
    const told = moment < end ? this.past.iterations(this.ids[job], moment) : null;
    if (told !== null) return told;
    return moment >= end ? iterations : Math.floor((iterations * (moment - this.start[job])) / (end - this.start[job]));
  }

  /** Return the share of its iterations that a job has done; null if nobody knows how many there are. */
  doneShare(job, moment) {
    const { total_iterations: total, state } = this.job(job);
    if (state === "done" && moment >= this.finish[job]) return 1;
    return total ? Math.min(1, this.iterationsDone(job, moment) / total) : null;
  }

  summary(job, now) {
    const nodes = this.serversOf(job), { total_iterations: total } = this.job(job), done = this.iterationsDone(job, now.moment);
    const where = nodes.length ? ` on ${this.serverNames(nodes)}` : "", which = this.names[job] ? `${this.names[job]}, ` : "";
    return `${which}${counted(this.gpuCount[job], "rank")}${where}, ${total ? `iteration ${count(done)} of ${count(total)}` : counted(done, "iteration")}`;
  }

  /** Return everything that is so at a moment, or was as far as it is known. */
  at(moment, whenLoaded = () => {}) {
    this.whenLoaded = whenLoaded;
    const live = this.isNow(moment), running = [], queued = [];
    let finished = 0, failed = 0;
    for (let job = 0; job < this.jobs; job++) {
      if (this.arrival[job] > moment) continue;
      const state = this.state(job, moment);
      if (state === "queued") queued.push(job);
      else if (state === "failed") failed += 1;
      else if (FINISHED.includes(state)) finished += 1;
      else running.push(job);
    }
    const stretch = live ? null : this.past.at(moment, this.known, this.watched.from, whenLoaded, this.pace);
    const gpuJobs = jobsOnGpus(stretch ? this.placedAt(stretch, moment) : this, running);
    const messages = live ? this.messages : stretch ? this.messagesOf(stretch, moment) : this.seenAt(moment, running);
    return {
      moment, live, running, queued, finished, failed, gpuJobs, messages, exact: live || stretch !== null || moment >= this.watched.from,
      computing: this.computing(running, messages, live), onServer: messagesOnServers(this, messages),
    };
  }

  /** Return which slots jobs had at a moment. */
  placedAt(stretch, moment) {
    const placed = new Map();
    for (const { id, slots } of stretch.attemptsAt(moment)) {
      const gpus = slots.map(([node, slot]) => this.firstOfServer[this.nodeOf.get(stretch.nodes[node])] + slot);
      placed.set(id, gpus.filter((gpu) => gpu < this.allGpus));
    }
    return { gpusOf: (job) => placed.get(this.ids[job]) ?? [] };
  }

  /** Return the messages that the log tells of. */
  messagesOf(stretch, moment) {
    const found = [];
    for (const { id, nodes, ...rest } of stretch.messagesAt(moment)) {
      const job = this.jobOf.get(id), known = nodes.map((node) => this.nodeOf.get(stretch.nodes[node]));
      if (job !== undefined) found.push({ job, nodes: known.filter((node) => node !== undefined), bytes: null, ...rest });
    }
    return found;
  }

  /** Return the messages that the page has seen at a moment. */
  seenAt(moment, running) {
    const found = [];
    if (moment < this.watched.from) return found;
    for (const job of running) {
      const record = this.records[job];
      if (record.sending.covers(moment)) found.push({ job, waits: false, share: null, ready: moment, start: moment, bytes: null });
      if (record.waiting.covers(moment)) found.push({ job, waits: true, share: 0, ready: moment, start: moment, bytes: null });
    }
    return found;
  }

  /** Return the jobs that compute: those with a turn, and those that wait for nothing. */
  computing(running, messages, live) {
    const busy = new Set(messages.map((message) => message.job)), turns = live ? this.turnOf : new Map();
    return new Set(running.filter((job) => {
      const own = this.gpusOf(job).map((gpu) => turns.get(gpu)).filter((holder) => holder !== undefined);
      return own.includes(job) || (!busy.has(job) && own.length === 0);
    }));
  }

  /** Return what a job does or waits for, in a sentence. */
  sentence(job, now) {
    const { why, reason, stuck } = this.job(job), state = this.state(job, now.moment);
    if (now.live) {
      if (FINISHED.includes(state)) return sentence(reason && reason !== state ? `${state} ${ago(this.to - this.finish[job])}: ${reason}` : `${state} ${ago(this.to - this.finish[job])}`);
      return this.doing(job, why || stuck || state);
    }
    if (now.moment < this.arrival[job]) return "Was not submitted yet.";
    if (state === "queued") return `Had waited ${duration(now.moment - this.arrival[job])} for ${counted(this.gpuCount[job], "slot")}.`;
    if (FINISHED.includes(state)) return sentence(state);
    const own = now.messages.filter((message) => message.job === job);
    if (own.some((message) => message.waits)) return "Waited for admission.";
    return own.length ? "Sent." : "Ran.";
  }

  /** Return a sentence on a job that has not finished: what the scheduler says, and of its messages and turns. */
  doing(job, why) {
    const own = this.messages.filter((message) => message.job === job);
    const waits = own.find((message) => message.waits && message.why);
    if (waits) return sentence(waits.why);
    const parts = own.filter((message) => !message.waits).map((message) => `sends ${megabytes(message.bytes)}, `
      + `${message.left > 0 ? `about ${megabytes(message.left)} left` : "longer than predicted"}`);
    const others = [...new Set(this.gpusOf(job).map((gpu) => this.turnOf.get(gpu)).filter((other) => other !== undefined && other !== job))];
    if (!parts.length && others.length) parts.push(`waits while job ${list(others.map((other) => this.ids[other]))} computes`);
    return sentence([why.replace(/\.$/, ""), ...parts].join("; "));
  }

  messageText(message, now) {
    if (message.bytes === null) {
      if (message.waits) return `had waited ${duration(now.moment - message.ready)} for admission`;
      return message.share === null ? "was in flight" : `${percent(message.share)} of ${duration(message.end - message.start)}`;
    }
    if (message.waits) return `${megabytes(message.bytes)}, has waited ${duration(Math.max(0, now.moment - message.ready))}`;
    return message.left > 0 ? `about ${megabytes(message.left)} of ${megabytes(message.bytes)} left` : `${megabytes(message.bytes)}, longer than predicted`;
  }

  /** Return the next start or finish of a job after a moment, or the last before it. */
  nextChange(moment, forward) {
    let best = forward ? this.to : -Infinity;
    for (const times of [this.start, this.finish]) {
      for (const time of times) {
        if (forward ? time > moment && time < best : time < moment && time > best) best = time;
      }
    }
    return Number.isFinite(best) ? best : moment;
  }
}

/** A job, and what the page has seen of its messages. */
class Record {
  constructor(job, colour = null) {
    Object.assign(this, { job, gpus: null, attempts: null, colour, sending: new Seen(), waiting: new Seen() });
  }
}

export const isFinished = (state) => FINISHED.includes(state);
