// How many of something there are over time, and what is where: the same for recorded and live runs.

/** Return the last index below `last` whose value is at most a limit, or `first` - 1. */
export function lastAtMost(values, limit, first, last) {
  while (first < last) {
    const middle = (first + last) >> 1;
    if (values[middle] <= limit) first = middle + 1;
    else last = middle;
  }
  return first - 1;
}

/** Return whether a moment is in one of some stretches of time [from, to]. */
export function isWithin(stretches, moment) {
  return stretches.some(([from, to]) => from <= moment && moment < to);
}

/** Return how many spans are open over time, each with its weight, as steps: {time, level}. */
export function levels(start, end, weight = () => 1) {
  const changes = [];
  for (let row = 0; row < start.length; row++) {
    if (start[row] < end[row]) changes.push([start[row], weight(row)], [end[row], -weight(row)]);
  }
  changes.sort((one, other) => one[0] - other[0]);
  const time = [-Infinity], level = [0];
  for (const [at, change] of changes) {
    if (at === time.at(-1)) level[level.length - 1] += change;
    else { time.push(at); level.push(level.at(-1) + change); }
  }
  return { time: Float64Array.from(time), level: Float64Array.from(level) };
}

/** Return when GPUs of a run hold at least one job: {starts, ends}. */
export function heldSpans(run) {
  const from = new Float64Array(run.allGpus).fill(NaN), until = new Float64Array(run.allGpus).fill(-Infinity);
  const starts = [], ends = [];
  const close = (gpu) => { starts.push(from[gpu]); ends.push(until[gpu]); };
  const order = [...run.start.keys()].sort((one, other) => run.start[one] - run.start[other]);
  for (const job of order) {
    for (const gpu of run.gpusOf(job)) {
      if (run.start[job] > until[gpu] || Number.isNaN(from[gpu])) {
        if (!Number.isNaN(from[gpu])) close(gpu);
        from[gpu] = run.start[job];
      }
      until[gpu] = Math.max(until[gpu], run.finish[job]);
    }
  }
  for (let gpu = 0; gpu < run.allGpus; gpu++) if (!Number.isNaN(from[gpu])) close(gpu);
  return { starts, ends };
}

/** Return the jobs on each GPU that holds any. */
export function jobsOnGpus(run, running) {
  const gpuJobs = new Map();
  for (const job of running) {
    for (const gpu of run.gpusOf(job)) {
      if (gpuJobs.has(gpu)) gpuJobs.get(gpu).push(job);
      else gpuJobs.set(gpu, [job]);
    }
  }
  return gpuJobs;
}

/** Return the messages in flight and waiting on each server that has any. */
export function messagesOnServers(run, messages) {
  const onServer = new Map();
  for (const message of messages) {
    for (const server of run.serversOfMessage(message)) {
      if (!onServer.has(server)) onServer.set(server, { inFlight: [], waiting: [] });
      onServer.get(server)[message.waits ? "waiting" : "inFlight"].push(message);
    }
  }
  return onServer;
}
