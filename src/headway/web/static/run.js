// A recorded run: its jobs and servers, and what is so at a moment. Times are in seconds.
//
// A live run (liverun.js) has the same members, so that the same views show both: jobs, ids, names,
// models, colour, gpuCount, arrival, start, finish, jct, state and states of jobs; servers, their GPUs
// and racks; known, up to where it is not predicted; at, sentence, messageText and so on.

import { firstRows, offsets, summed, unpack } from "./columns.js";
import { jobColours } from "./colours.js";
import { Bars } from "./gantt.js";
import { heldSpans, isWithin, jobsOnGpus, lastAtMost, levels, messagesOnServers } from "./levels.js";
import { ServerHeat, highest, periodLevels, stepLevels, withoutUnknown } from "./strips.js";
import { count, counted, duration, list, percent, ranges, seconds, sentence } from "./text.js";
import { clockTicks, runTicks, timeOfDay } from "./timeaxis.js";

const MAX_PARTS = 24;

/** How many parts a view may need; with more, it shows means instead. */
const EXACT_PARTS = 8;

/** What the colours of bars mean. */
const LANES = [
  ["queued", "queued"], ["computing", "computing"], ["sending", "sending"],
  ["waiting", "waiting for admission"], ["idle", "neither: waiting for a GPU"],
];

const inSeconds = (column) => column.map((value) => value / 1e9);

/** Return a run of a source; without its parts it is not exact. */
export async function openRun(source, { number, exact }) {
  const { values, columns } = await unpack(await source.overview(number));
  return new Run(source, number, exact, values, columns);
}

class Run {
  constructor(source, number, exact, values, columns) {
    Object.assign(this, { source, number, exact });
    this.name = values.name;
    this.settings = values;
    this.policy = `${values.placement} + ${values.priority} + ${values.admission}`;
    this.from = values.window[0] / 1e9;
    this.to = values.window[1] / 1e9;
    this.ids = values.job_id;
    this.models = values.model;
    this.jobs = this.ids.length;
    this.names = values.job_name ?? this.ids.map(() => "");
    // Only live runs have these: names of their nodes, how jobs ended, and stretches of time without messages.
    this.nodeNames = values.server ?? null;
    this.lastStates = values.last_state ?? this.ids.map(() => "finished");
    this.unknown = (values.unknown ?? []).map((stretch) => inSeconds(stretch));
    const outcomes = this.nodeNames ? ["done", "failed", "cancelled"] : ["finished"];
    this.states = ["running", "queued", ...outcomes, "not arrived"];
    this.nouns = this.nodeNames ? { server: "node", gpu: "slot" } : { server: "server", gpu: "GPU" };
    // What a live job does between its messages is not known: it counts as computing.
    this.lanes = this.nodeNames ? [...LANES.filter(([name]) => name !== "idle"), ["failed", "failed"]] : LANES;
    this.offset = values.begun_ms === undefined ? null : values.begun_ms / 1000 - new Date(values.begun_ms).getTimezoneOffset() * 60;
    this.known = Infinity;
    this.version = this.layout = 0;
    for (const name of ["arrival", "start", "finish"]) this[name] = inSeconds(columns[name]);
    for (const part of ["computing", "sending", "waiting"]) {
      this[`${part}Total`] = inSeconds(columns[`${part}_total`]);
    }
    this.gpuCount = columns.gpu_count;
    this.iterations = columns.iterations;
    this.gpus = columns.gpu;
    this.firstGpu = offsets(columns.gpus_held ?? columns.gpu_count);
    this.serverGpus = columns.server_gpus;
    this.servers = columns.server_gpus.length;
    this.firstOfServer = offsets(columns.server_gpus);
    this.allGpus = this.firstOfServer[this.servers];
    this.serverOfGpu = new Int32Array(this.allGpus);
    for (let server = 0; server < this.servers; server++) {
      this.serverOfGpu.fill(server, this.firstOfServer[server], this.firstOfServer[server + 1]);
    }
    this.serverRack = columns.server_rack;
    this.racks = values.rack;
    this.entries = values.entry;
    this.firstOfGroup = offsets(columns.group_size);
    this.groupServer = columns.group_server;
    this.firstPeriod = offsets(columns.job_periods);
    this.share = { computing: columns.computing, sending: columns.sending, waiting: columns.waiting };
    this.iteration = summed(columns.iteration_step);
    this.periods = values.periods;
    this.series = {
      computing: columns.gpus_computing,
      inFlight: columns.in_flight,
      unadmitted: columns.unadmitted,
    };
    this.serverMean = columns.server_mean;
    this.serverMost = columns.server_most;
    this.colour = jobColours(this.start, this.finish);
    this.jobOf = new Map(this.ids.map((id, job) => [id, job]));
    this.partFrom = values.part_from.map((value) => value / 1e9);
    this.parts = new Map();
    const { starts, ends } = heldSpans(this);
    this.held = levels(starts, ends);
    this.queued = levels(this.arrival, this.start);
    this.longestQueue = this.queued.level.reduce((most, value) => Math.max(most, value), 0);
    this.mostMessages = this.serverMost.reduce((most, value) => Math.max(most, value), 0);
  }

  jct(job) { return this.finish[job] - this.arrival[job]; }
  gpusOf(job) { return this.gpus.subarray(this.firstGpu[job], this.firstGpu[job + 1]); }
  serversOf(job) { return [...new Set(Array.from(this.gpusOf(job), (gpu) => this.serverOfGpu[gpu]))]; }
  serversOfMessage({ group }) {
    return this.groupServer.subarray(this.firstOfGroup[group], this.firstOfGroup[group + 1]);
  }
  serverName(server) { return this.nodeNames?.[server] ?? `server ${server}`; }
  serverShort(server) { return this.nodeNames?.[server] ?? `${server}`; }
  serverNames(servers) { return this.nodeNames ? list([...servers].map((server) => this.nodeNames[server])) : ranges(servers); }
  serverState() { return "up"; }
  gpuName(gpu) { return `${gpu}`; }
  label(job) { return this.names[job] ? `${this.ids[job]} ${this.names[job]}` : this.ids[job]; }
  tipOf(job) { return `job ${this.ids[job]} (${this.models[job] || "–"}, ${this.nouns.gpu}s ${ranges([...this.gpusOf(job)])})`; }
  timeText(moment) { return this.offset === null ? `${seconds(moment)} s` : timeOfDay(moment + this.offset, 0.001); }
  ticks(from, to, width) { return this.offset === null ? runTicks(from, to, width) : clockTicks(from, to, width, this.offset); }
  times(job) { return [`starts ${this.timeText(this.start[job])}`, `JCT ${duration(this.jct(job))}`]; }
  newBars() { return new Bars(this); }
  newHeat() { return new ServerHeat(this); }

  /** Return the charts under the bars: a title, the highest value, and layers of levels. */
  strips(view, pixels) {
    const queue = stepLevels(this.queued, view, pixels), unadmitted = withoutUnknown(periodLevels(this.series.unadmitted, this, view, pixels), this.unknown, view);
    const { gpu } = this.nouns;
    return [
      { title: `${gpu[0].toUpperCase()}${gpu.slice(1)}s`, most: this.allGpus, layers: [
        { name: "hold a job", colour: "idle", filled: true, levels: stepLevels(this.held, view, pixels) },
        { name: "compute", colour: "computing", levels: periodLevels(this.series.computing, this, view, pixels) },
      ] },
      { title: "Waiting", most: highest(queue, unadmitted), layers: [
        { name: `jobs for ${gpu}s`, colour: "queued", filled: true, levels: queue },
        { name: "messages for admission", colour: "waiting", levels: unadmitted },
      ] },
    ];
  }

  /** Return the numbers of the parts that overlap a stretch of time. */
  partsIn(from, to) {
    const numbers = [];
    for (let number = 0; number < this.partFrom.length; number++) {
      const end = number + 1 < this.partFrom.length ? this.partFrom[number + 1] : Infinity;
      if (this.partFrom[number] < to && end > from) numbers.push(number);
    }
    return numbers;
  }

  /** Return a part; null, and fetch it, if it is not there yet. */
  part(number, whenLoaded) {
    const known = this.parts.get(number);
    if (known instanceof Part) {
      // The one used last comes last.
      this.parts.delete(number);
      this.parts.set(number, known);
      return known;
    }
    if (known === undefined && this.exact) {
      const loading = this.source.part(this.number, number).then(unpack).then(({ values, columns }) => {
        this.parts.set(number, new Part(this.jobs, values, columns));
        for (const [other, part] of this.parts) {
          if (this.parts.size <= MAX_PARTS) break;
          if (part instanceof Part && other !== number) this.parts.delete(other);
        }
        whenLoaded();
      }).catch(() => { this.exact = false; whenLoaded(); });
      this.parts.set(number, loading);
    }
    return null;
  }

  /** Return the parts of a stretch of time, or null if there are too many or some are not there. */
  exactly(from, to, whenLoaded) {
    const numbers = this.partsIn(from, to);
    if (numbers.length > EXACT_PARTS) return null;
    const parts = numbers.map((number) => this.part(number, whenLoaded));
    return parts.includes(null) ? null : parts;
  }

  /** Return one of `states`; a live job that was running or queued at the end of the run stays so. */
  state(job, moment) {
    if (moment < this.arrival[job]) return "not arrived";
    if (moment < this.start[job]) return "queued";
    return moment < this.finish[job] ? "running" : this.lastStates[job];
  }

  /** Return whether a job failed in the end. */
  failed(job) { return this.lastStates[job] === "failed"; }

  /** Return how many iterations a job has done, from means over periods. */
  iterationsDone(job, moment) {
    if (moment < this.start[job]) return 0;
    if (moment >= this.finish[job]) return this.iterations[job];
    const first = this.firstPeriod[job], periods = this.firstPeriod[job + 1] - first;
    const position = ((moment - this.start[job]) / (this.finish[job] - this.start[job])) * periods;
    const period = Math.min(periods - 1, Math.floor(position));
    const after = this.iteration[first + period], before = period ? this.iteration[first + period - 1] : 0;
    return Math.min(this.iterations[job], Math.floor(before + (after - before) * (position - period)));
  }

  /** Return the share of its iterations that a job has done. */
  doneShare(job, moment) { return this.iterations[job] ? this.iterationsDone(job, moment) / this.iterations[job] : null; }

  /** Return a job's model, GPUs, servers and iterations in words. */
  summary(job, now) {
    const servers = this.serversOf(job);
    const { server, gpu } = this.nouns;
    return `${this.models[job] || "–"}, ${counted(this.gpuCount[job], gpu)} on ${counted(servers.length, server)} (${this.serverNames(servers)}), `
      + `iteration ${count(this.iterationsDone(job, now.moment))} of ${count(this.iterations[job])}`;
  }

  /** Return everything that is so at a moment. */
  at(moment, whenLoaded) {
    const running = [], queued = [];
    let finished = 0, failed = 0;
    for (let job = 0; job < this.jobs; job++) {
      const state = this.state(job, moment);
      if (state === "queued") queued.push(job);
      else if (state === "running") running.push(job);
      else if (state === "failed") failed += 1;
      else if (state !== "not arrived") finished += 1;
    }
    const gpuJobs = jobsOnGpus(this, running);
    const number = this.partsIn(moment, moment + 1e-9)[0] ?? this.partFrom.length - 1;
    const part = isWithin(this.unknown, moment) ? null : this.part(number, whenLoaded);
    const messages = part ? part.messagesAt(moment) : [];
    const computing = new Set(part ? running.filter((job) => part.computes(job, moment)) : []);
    const onServer = messagesOnServers(this, messages);
    return { moment, running, queued, finished, failed, gpuJobs, messages, computing, onServer, exact: part !== null };
  }

  /** Return what a job does or waits for, in a sentence. */
  sentence(job, now) {
    const { moment } = now;
    const state = this.state(job, moment);
    switch (state) {
      case "not arrived": return `Arrives in ${duration(this.arrival[job] - moment)}.`;
      case "finished":
      case "done":
      case "failed":
      case "cancelled": return sentence(`${state === "done" ? "finished" : state} ${duration(moment - this.finish[job])} ago`);
      case "queued": {
        const earlier = now.queued.filter((other) => this.arrival[other] < this.arrival[job]).length;
        const ahead = earlier ? `; ${counted(earlier, "job")} that arrived earlier wait${earlier === 1 ? "s" : ""}` : "";
        return `Has waited ${duration(moment - this.arrival[job])} for ${counted(this.gpuCount[job], this.nouns.gpu)}: `
          + `${count(now.gpuJobs.size)} of ${count(this.allGpus)} hold a job${ahead}.`;
      }
    }
    if (!now.exact || moment >= this.finish[job]) return "Runs.";
    const own = now.messages.filter((message) => message.job === job);
    const waits = own.filter((message) => message.waits), flies = own.filter((message) => !message.waits);
    const parts = [];
    if (now.computing.has(job)) parts.push("Computes");
    if (flies.length) parts.push(this.sendingText(flies, now));
    if (waits.length) parts.push(this.waitingText(waits, now));
    if (!parts.length) {
      const others = new Set();
      for (const gpu of this.gpusOf(job)) for (const other of now.gpuJobs.get(gpu)) others.add(other);
      others.delete(job);
      const names = [...others].filter((other) => now.computing.has(other)).map((other) => this.ids[other]);
      return names.length ? `Waits for a GPU that it shares with ${names.length === 1 ? "job" : "jobs"} ${list(names)}.` : "Waits for a GPU.";
    }
    const [first, ...rest] = parts;
    return `${[first[0].toUpperCase() + first.slice(1), ...rest].join(", ")}.`;
  }

  sendingText(messages, now) {
    const most = Math.max(...messages.map((message) => this.mostBeside(message, now)));
    const what = messages.length > 1 ? `sends ${counted(messages.length, "message")}`
      : `sends among ${this.nouns.server}s ${this.serverNames([...this.serversOfMessage(messages[0])])}`;
    return most > 1 ? `${what}, with ${counted(most, "message")} on the busiest of them` : `${what}, alone there`;
  }

  waitingText(messages, now) {
    const longest = messages.reduce((one, other) => (other.ready < one.ready ? other : one));
    const others = new Set();
    for (const server of this.serversOfMessage(longest)) {
      for (const message of now.onServer.get(server)?.inFlight ?? []) others.add(this.ids[message.job]);
    }
    others.delete(this.ids[longest.job]);
    const why = others.size ? `: ${others.size === 1 ? "job" : "jobs"} ${list([...others])} ${others.size === 1 ? "sends" : "send"} on its ${this.nouns.server}s` : "";
    return `has waited ${duration(now.moment - longest.ready)} for admission${why}`;
  }

  /** Return the number of messages in flight on the busiest server of a message. */
  mostBeside(message, now) {
    let most = 0;
    for (const server of this.serversOfMessage(message)) {
      most = Math.max(most, now.onServer.get(server)?.inFlight.length ?? 0);
    }
    return most;
  }

  /** Return what a message does, in words. */
  messageText(message, now) {
    const name = message.entry >= 0 ? `${this.entries[message.entry]}, ` : "";
    if (message.waits) return `${name}has waited ${duration(now.moment - message.ready)} for admission`;
    const most = this.mostBeside(message, now), beside = most > 1 ? `, ${most} on its busiest ${this.nouns.server}` : "";
    return `${name}${percent(message.share)} of ${duration(message.end - message.start)}${beside}`;
  }

  /** Return the next start or finish of a job after a moment, or the last before it. */
  nextChange(moment, forward) {
    let best = forward ? Infinity : -Infinity;
    for (const times of [this.start, this.finish]) {
      for (const time of times) {
        if (forward ? time > moment && time < best : time < moment && time > best) best = time;
      }
    }
    return Number.isFinite(best) ? best : moment;
  }
}

/** A stretch of a run, with its exact spans ordered by job. */
class Part {
  constructor(jobs, values, columns) {
    this.from = values.from / 1e9;
    this.to = values.to / 1e9;
    const computing = chained(columns.computing_gap, null, columns.computing_length);
    this.computing = { start: computing.start, end: computing.end };
    this.computing.first = firstRows(summed(columns.computing_job_step), jobs);
    const messages = chained(columns.message_gap, columns.message_wait, columns.message_length);
    const job = summed(columns.message_job_step);
    this.messages = {
      ...messages,
      job,
      first: firstRows(job, jobs),
      group: summed(columns.message_group_step),
      iteration: summed(columns.message_iteration_step),
      entry: columns.message_entry,
    };
    this.messages.chain = chains(this.messages);
  }

  messagesAt(moment) {
    const { job, group, iteration, entry, ready, start, end } = this.messages;
    const found = [];
    for (let row = 0; row < job.length; row++) {
      if (ready[row] <= moment && moment < end[row]) {
        found.push({
          job: job[row], group: group[row], iteration: iteration[row], entry: entry[row],
          ready: ready[row], start: start[row], end: end[row], waits: moment < start[row],
          share: moment < start[row] ? 0 : (moment - start[row]) / (end[row] - start[row]),
        });
      }
    }
    return found;
  }

  computes(job, moment) {
    const { first, start, end } = this.computing;
    const row = lastAtMost(start, moment, first[job], first[job + 1]);
    return row >= first[job] && moment < end[row];
  }
}

function chained(gap, wait, length) {
  const ready = new Float64Array(gap.length), start = new Float64Array(gap.length), end = new Float64Array(gap.length);
  let now = 0;
  for (let row = 0; row < gap.length; row++) {
    now += gap[row];
    ready[row] = now / 1e9;
    if (wait) now += wait[row];
    start[row] = now / 1e9;
    now += length[row];
    end[row] = now / 1e9;
  }
  return { ready, start, end };
}

/** Return for each message the first of those of its job that it overlaps, directly or through others. */
function chains({ job, ready, end }) {
  const chain = new Int32Array(job.length);
  let latest = -Infinity;
  for (let row = 0; row < job.length; row++) {
    const apart = row === 0 || job[row] !== job[row - 1] || latest <= ready[row];
    chain[row] = apart ? row : chain[row - 1];
    latest = apart ? end[row] : Math.max(latest, end[row]);
  }
  return chain;
}
