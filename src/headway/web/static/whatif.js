// What if: the running cluster simulated on, as it is and with something changed, side by side.

import { element, update } from "./elements.js";
import { jobPageLink } from "./jobs.js";
import { suggestingInput } from "./policy.js";
import { ask } from "./stream.js";
import { briefly, count, counted, inWords, span } from "./text.js";

const MS = 1e6, MB = 2 ** 20;
/** The id of the hypothetical job. */
const NEW = "(new)";

/** Fields of a job: name, title, least value, and what one of it counts. */
const JOB_FIELDS = [
  ["gpus", "ranks", 1, 1], ["iterations", "iterations", 1, 1], ["forward_ns", "forward [ms]", 0, MS], ["backward_ns", "backward [ms]", 0, MS],
  ["gradient_bytes", "gradients [MB]", 0, MB], ["memory_bytes", "memory [MB]", 0, MB],
];

/** The panel: a question, and the answer to the last one. */
export class WhatIf {
  constructor(page, run) {
    Object.assign(this, { page, run, answer: page.lastAnswer ?? null });
    const [policy, policies] = suggestingInput("if-policy", run.settings.policies, { placeholder: "unchanged" });
    const [network, networks] = suggestingInput("if-network", run.settings.networks, { placeholder: "unchanged", oninput: () => this.enable() });
    const number = (id, attributes) => element("input", { id, type: "number", ...attributes });
    Object.assign(this, {
      policy, network,
      nodes: number("if-nodes", { min: 0, max: 1000, step: 1, value: 0 }),
      faster: number("if-faster", { min: 0.01, max: 1000, step: "any", value: 1 }),
      model: element("input", { id: "if-model", type: "text", autocomplete: "off", spellcheck: "false", placeholder: "such as resnet50" }),
    });
    this.fields = JOB_FIELDS.map(([name, text, least, unit]) => ({ name, text, unit, input: number(`if-${name}`, { min: least, step: least ? 1 : "any" }) }));
    this.submitted = element("input", { id: "if-submit", type: "checkbox", onchange: () => this.enable() });
    const field = (text, content, more) => element("label", {}, element("span", {}, text), content, more);
    this.job = element("fieldset", { disabled: true }, element("legend", {}, "new job"),
      this.fields.slice(0, 2).map(({ text, input: content }) => field(text, content)), field("model", this.model),
      element("p", { class: "soft" }, "In place of a model, or in addition to it:"),
      this.fields.slice(2).map(({ text, input: content }) => field(text, content)));
    this.button = element("button", { type: "submit", id: "if-ask" }, "Predict");
    this.status = element("p", { role: "status", id: "if-status" });
    this.result = element("div", { class: "if-result", id: "if-result" });
    this.root = element("section", { class: "if-view" },
      element("h2", {}, "What if"),
      element("p", { class: "soft" }, "Simulates the cluster from its present state, as it is and with the changes below. Nothing changes on the cluster itself."),
      element("form", { class: "question", id: "if-form", onsubmit: (event) => { event.preventDefault(); this.ask(); } },
        element("div", { class: "bar" }, field("policy", policy, policies), field("additional nodes", this.nodes),
          field("network", network, networks), field("or as it is, times as fast", this.faster)),
        element("div", { class: "bar" }, element("label", { class: "check" }, this.submitted, element("span", {}, "submit a new job now"))),
        this.job, this.button),
      this.status, this.result);
    this.showAnswer();
  }

  /** Enable only the fields that count. */
  enable() {
    this.job.disabled = !this.submitted.checked;
    this.faster.disabled = this.network.value.trim() !== "";
  }

  /** Return what the form asks for. */
  question() {
    const body = {}, factor = Number(this.faster.value), named = this.network.value.trim();
    if (this.policy.value.trim()) body.policy = this.policy.value.trim();
    if (Number(this.nodes.value) > 0) body.add_nodes = Number(this.nodes.value);
    if (named) body.network = named;
    else if (factor > 0 && factor !== 1) {
      const network = Object.fromEntries(Object.entries(this.run.settings.network).filter(([, value]) => value !== null));
      body.network = { ...network, b_ns_per_byte: network.b_ns_per_byte / factor, eta_ns_per_byte: network.eta_ns_per_byte / factor };
    }
    if (this.submitted.checked) {
      body.submit = {};
      for (const { name, unit, input } of this.fields) if (input.value !== "") body.submit[name] = Math.round(Number(input.value) * unit);
      if (this.model.value.trim()) body.submit.model = this.model.value.trim();
    }
    return body;
  }

  async ask() {
    this.button.disabled = true;
    this.status.className = "";
    this.status.textContent = "Simulating …";
    try {
      const answer = await ask("POST", "what-if", this.question());
      this.answer = { ...answer, at: answer.now.made_ns / 1e9 };
      this.page.lastAnswer = this.answer;
      this.status.textContent = "";
      this.showAnswer();
    } catch (error) {
      this.status.className = "problem";
      this.status.textContent = error.message;
    }
    this.button.disabled = false;
  }

  /** Return a job as a link with its colour and name. */
  jobCell(id) {
    const { run } = this, job = run.jobOf.get(id);
    if (id === NEW) return "the new job";
    return job === undefined ? id : jobPageLink(run, job, run.label(job));
  }

  /** Return when the new job starts and ends, in a sentence. */
  newJobText(job) {
    const { run, answer: { at } } = this;
    if (job.start_ns === null) return `The new job cannot run. ${job.note}`;
    const when = (time_ns) => `${inWords(time_ns / 1e9 - at)} (${run.timeText(time_ns / 1e9)})`;
    return `The new job would start ${when(job.start_ns)} and end ${when(job.finish_ns)}.`;
  }

  showAnswer() {
    if (this.answer === null) return;
    const { now, if: then, common, at } = this.answer, { run } = this;
    const averages = [["policy", now.policy, then.policy, ""],
      common.jobs ? [`average time until done, ${counted(common.jobs, "job")}`, ...sides(common.now_s, common.if_s)] : null,
      ["time until all are done", ...sides(now.last_left_s, then.last_left_s)]].filter((line) => line !== null);
    const before = new Map(now.jobs.map((job) => [job.id, job]));
    const until = (job) => (job === undefined ? "–" : job.start_ns === null ? "cannot run" : job.finish_ns === null ? "unknown" : inWords(job.finish_ns / 1e9 - at));
    const from = (job) => (job === undefined || job.start_ns === null || job.state !== "queued" ? "–" : inWords(job.start_ns / 1e9 - at));
    const changes = then.jobs.map((job) => {
      const old = before.get(job.id), both = old !== undefined && old.finish_ns !== null && job.finish_ns !== null;
      return { job, old, change: both ? (job.finish_ns - old.finish_ns) / 1e9 : null };
    });
    const most = Math.max(1e-9, ...changes.map(({ change }) => Math.abs(change ?? 0)));
    const head = (names) => element("thead", {}, element("tr", {}, names.map((name, index) => element("th", { scope: "col", class: index ? "number" : null }, name))));
    const added = then.jobs.find((job) => job.id === NEW), unable = changes.filter(({ job }) => job.start_ns === null && job.id !== NEW);
    update(this.result,
      added ? element("p", { class: "sentence", id: "if-new" }, this.newJobText(added)) : null,
      element("table", { class: "runs", id: "if-averages" }, element("caption", {}, `From ${run.timeText(at)} on`), head(["", "as it is", "what if", "difference"]),
        element("tbody", {}, averages.map(([name, ...cells]) => element("tr", {}, element("th", { scope: "row" }, name),
          cells.map((text) => element("td", { class: "number" }, text)))))),
      element("div", { class: "scroller low" }, element("table", { class: "jobs", id: "if-jobs" },
        element("caption", { class: "unseen" }, "When each job starts and ends"),
        head(["job", "state", "starts as it is", "starts if", "ends as it is", "ends if", "difference", ""]),
        element("tbody", {}, changes.map(({ job, old, change }) => element("tr", { "data-job": job.id },
          element("td", {}, this.jobCell(job.id)), element("td", { class: "number" }, job.state),
          [from(old), from(job), until(old), until(job), change === null ? "–" : signed(change)].map((text) => element("td", { class: "number" }, text)),
          element("td", { class: "delta" }, change ? element("span", { class: change > 0 ? "slower" : "faster", share: (Math.abs(change) / most).toFixed(3) }) : null)))))),
      element("p", { class: "soft" }, `${count(changes.filter(({ change }) => change < -0.5).length)} of ${counted(common.jobs, "job")} would end sooner, `
        + `${count(changes.filter(({ change }) => change > 0.5).length)} later.`),
      unable.map(({ job }) => element("p", { class: "soft" }, `Job ${job.id} cannot run. ${job.note}`)),
      (this.answer.notes ?? []).map((note) => element("p", { class: "soft" }, note)));
  }

  draw() { /* the answer stays as it was given */ }
}

const signed = (value) => (Math.abs(value) < 0.5 ? "0 s" : `${value < 0 ? "−" : "+"}${span(Math.abs(value))}`);
const sides = (one, other) => [briefly(one), briefly(other), signed(other - one)];
