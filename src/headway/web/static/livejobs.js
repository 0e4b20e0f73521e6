// Live jobs: the columns of their table, and the page of one of them.

import { element, factRows, update } from "./elements.js";
import { JobLog } from "./joblog.js";
import { JobTime, jobPageLink, legend } from "./jobs.js";
import { isFinished } from "./liverun.js";
import { progress } from "./moment.js";
import { ask } from "./stream.js";
import { ago, briefly, count, counted, inWords, megabytes, percent } from "./text.js";
import { View } from "./timeaxis.js";

const LEAST_S = 10, MAX_COMMAND = 4000;

/** Return a command as a shell would take it, and not all of a very long one. */
function commandText(command) {
  const quoted = command.map((part) => (/^[\w@%+=:,./-]+$/.test(part) ? part : `'${part.replaceAll("'", "'\"'\"'")}'`)).join(" ");
  return quoted.length > MAX_COMMAND ? `${quoted.slice(0, MAX_COMMAND)} …` : quoted;
}

const done = (run, job, now) => {
  const share = run.doneShare(job, now.moment);
  return share === null ? counted(run.iterationsDone(job, now.moment), "iteration") : progress(share);
};

const startText = (run, job) => {
  const { state } = run.job(job), { start } = run.prediction(job);
  if (state !== "queued") return run.job(job).started_ns === null ? "–" : run.timeText(run.start[job]);
  return start === null ? "–" : inWords(start - run.to);
};

/** When a job ends; a guess is marked as such. */
const finishText = (run, job) => {
  const { finish, note } = run.prediction(job);
  if (isFinished(run.job(job).state)) return run.timeText(run.finish[job]);
  return finish === null ? "unknown" : `${note ? "≈ " : ""}${inWords(finish - run.to)}`;
};

/** The same, with a hint that says why it is unknown or a guess. */
const finishCell = (run, job) => {
  const { note } = run.prediction(job), text = finishText(run, job);
  return note ? element("span", { title: note }, text) : text;
};

const jctText = (run, job) => {
  const text = briefly(run.jct(job));
  if (isFinished(run.job(job).state)) return text;
  return run.prediction(job).finish === null ? "–" : `≈ ${text}`;
};

/** Return how the first prediction of a finished job's end compares with what happened; null if there is none. */
const predicted = (run, job) => {
  const { first_prediction: first } = run.job(job);
  if (!first) return null;
  const made = first.made_ns / 1e9, end = first.finish_ns / 1e9, late = end - run.finish[job];
  const off = late === 0 ? "exactly" : `${briefly(Math.abs(late))} too ${late < 0 ? "early" : "late"}, `
    + `${percent(Math.abs(late) / Math.max(1e-9, run.finish[job] - made))} of the time that was left`;
  return ["first predicted end", `${run.timeText(end)}: ${off}; predicted at ${run.timeText(made)}`];
};

/** The columns of a live run: title, value to sort by, cell, whether it is a number. */
export const LIVE_COLUMNS = [
  ["job", (run, job) => run.ids[job], (page, run, job) => jobPageLink(run, job), false],
  ["name", (run, job) => run.names[job], (page, run, job) => (run.names[job] ? element("a", { class: "job", href: `#job/${encodeURIComponent(run.ids[job])}` }, element("span", { class: "name" }, run.names[job])) : "–"), false],
  ["ranks", (run, job) => run.gpuCount[job], (page, run, job) => count(run.gpuCount[job]), true],
  ["state", (run, job, now) => run.states.indexOf(run.state(job, now.moment)), (page, run, job, now) => run.state(job, now.moment), false],
  ["progress", (run, job, now) => run.doneShare(job, now.moment) ?? -1, (page, run, job, now) => done(run, job, now), false],
  ["now", (run, job, now) => run.sentence(job, now), (page, run, job, now) => run.sentence(job, now), false],
  ["submitted", (run, job) => run.arrival[job], (page, run, job) => run.timeText(run.arrival[job]), true],
  ["start", (run, job) => run.start[job], (page, run, job) => startText(run, job), true],
  ["end", (run, job) => run.finish[job], (page, run, job) => finishCell(run, job), true],
  ["JCT", (run, job) => run.jct(job), (page, run, job) => jctText(run, job), true],
];

/** The page of a live job: what it does, its timeline, its facts and its output. */
export class LiveJobPage {
  constructor(page, run, job) {
    Object.assign(this, { page, run, id: run.ids[job] });
    this.time = new JobTime(page, run, new View(run.arrival[job], run.arrival[job] + LEAST_S));
    this.head = element("h2");
    this.sentence = element("p", { class: "sentence", id: "sentence" });
    this.done = element("div");
    this.facts = element("tbody");
    this.problem = element("p", { class: "problem", role: "alert", hidden: true });
    this.cancel = element("button", { type: "button", id: "cancel", onclick: () => this.confirm() }, "Cancel this job");
    this.attempts = element("table", { class: "attempts", id: "attempts" });
    this.submitted = null;
    this.log = new JobLog(this.id, run.gpuCount[job]);
    this.root = element("section", { class: "job-page" },
      element("p", {}, element("a", { href: "#jobs" }, "all jobs")),
      element("div", { class: "bar" }, this.head, this.cancel), this.problem,
      this.sentence, this.done, this.time.root, legend(run.lanes),
      element("div", { class: "columns" }, element("table", { class: "facts" }, element("caption", {}, "Facts"), this.facts),
        element("div", { class: "stack" }, this.attempts, this.log.root)));
    this.log.open();
    this.askWhatWasSubmitted();
  }

  leave() { this.log.close(); }

  /** The scheduler is there again. */
  reconnected() {
    this.log.open();
    if (this.submitted === null) this.askWhatWasSubmitted();
  }

  /** Ask for what the stream does not tell of all jobs. Environments stay out: they may hold secrets. */
  async askWhatWasSubmitted() {
    try {
      this.submitted = (await ask("GET", `jobs/${encodeURIComponent(this.id)}`)).spec;
      this.page.redraw();
    } catch { /* it is asked for again once the scheduler is back */ }
  }

  confirm() {
    const dialog = document.getElementById("confirm");
    update(dialog, element("h2", {}, `Cancel job ${this.id}?`),
      element("p", {}, "Its processes are told to end, and killed if they do not."),
      element("form", { method: "dialog", class: "buttons" },
        element("button", { value: "yes", class: "danger", id: "confirm-yes" }, "Cancel the job"), element("button", { value: "no" }, "Keep it")));
    dialog.returnValue = "no";
    dialog.onclose = async () => {
      if (dialog.returnValue !== "yes") return;
      try {
        await ask("POST", `jobs/${encodeURIComponent(this.id)}/cancel`);
        this.problem.hidden = true;
      } catch (error) {
        this.problem.hidden = false;
        this.problem.textContent = error.message;
      }
    };
    dialog.showModal();
  }

  draw(now) {
    const { run, page } = this, job = run.jobOf.get(this.id);
    if (job === undefined) {
      this.sentence.textContent = "The scheduler no longer lists this job.";
      return;
    }
    const { state, attempts, reason, priority, total_iterations: total } = run.job(job), { submitted } = this;
    update(this.head, "job ", element("span", { class: "job", colour: run.colour[job] }, element("span", { class: "swatch" }), run.title(job)));
    this.cancel.hidden = isFinished(state);
    this.sentence.textContent = now.live ? run.sentence(job, now) : `At ${run.timeText(now.moment)}: ${run.sentence(job, now)}`;
    update(this.done, progress(run.doneShare(job, now.moment)));
    const nodes = run.serversOf(job), iterations = run.iterationsDone(job, now.moment);
    const facts = [
      ["state", state],
      ["model", run.models[job] || "–"],
      ["ranks", count(run.gpuCount[job])],
      [isFinished(state) ? "ran on" : "slots", nodes.length ? nodes.map((node) => `${run.serverName(node)} (${run.slotsOn(job, node)})`).join(", ") : "–"],
      ["iterations", total ? `${count(iterations)} of ${count(total)}` : count(iterations)],
      ["submitted", `${run.timeText(run.arrival[job])}, ${ago(run.to - run.arrival[job])}`],
      [state === "queued" ? "predicted start" : "start", startText(run, job)],
      [isFinished(state) ? "end" : "predicted end", finishText(run, job)],
      run.prediction(job).note ? ["prediction", run.prediction(job).note] : null,
      ["JCT", jctText(run, job)],
      predicted(run, job),
      ["attempts", submitted?.retries ? `${count(attempts)}; ${submitted.retries === 1 ? "1 retry" : `${count(submitted.retries)} retries`} allowed` : count(attempts)],
      reason ? ["last end", reason] : null,
      ["priority", String(priority)],
      ...(submitted === null ? [] : [
        ["memory", submitted.memory_bytes ? `${megabytes(submitted.memory_bytes)} of each slot, which others may share` : "not given: has its slots to itself"],
        ["folder", submitted.folder],
        ["command", element("code", { class: "command", id: "command" }, commandText(submitted.command))],
      ]),
    ];
    update(this.facts, factRows(facts.filter((fact) => fact !== null)));
    this.showAttempts(job);
    this.showTime(job);
    this.time.draw(job, page.moment);
  }

  /** List the attempts, the latest one first: when, where, why each ended, and its output. */
  showAttempts(job) {
    const { run } = this, attempts = run.attemptsOf(job).filter(({ nodes }) => nodes !== null);
    this.attempts.hidden = attempts.length === 0;
    this.log.offer(attempts.map(({ number }) => number));
    update(this.attempts, element("caption", {}, "Attempts"),
      element("thead", {}, element("tr", {}, ["", "when", "where", "how it ended", ""].map((title) => element("th", { scope: "col" }, title)))),
      element("tbody", {}, [...attempts].reverse().map(({ number, from, to, nodes, reason }) => element("tr", { "data-attempt": number },
        element("th", { scope: "row" }, `${number}`),
        element("td", {}, to === Infinity ? `since ${run.timeText(from)}` : `${run.timeText(from)} to ${run.timeText(to)} (${briefly(to - from)})`),
        element("td", {}, nodes.length ? run.serverNames(nodes) : "–"),
        element("td", {}, to === Infinity ? "has not ended" : reason),
        element("td", {}, element("a", { href: "#log", onclick: (event) => { event.preventDefault(); this.log.show(number); } }, "output"))))));
  }

  /** Keep all of the job's time in view until someone zooms or pans. */
  showTime(job) {
    const { run, time: { view } } = this;
    const first = run.arrival[job], last = Math.max(first + LEAST_S, run.finish[job], isFinished(run.job(job).state) ? -Infinity : run.to);
    const whole = view.from <= view.first && view.to >= view.last;
    Object.assign(view, { first, last });
    if (whole) view.fit();
  }
}
