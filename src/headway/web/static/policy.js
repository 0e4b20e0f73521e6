// What decides now, and how to change it; the network that it assumes; what is wrong.

import { element, factRows, update } from "./elements.js";
import { ask } from "./stream.js";
import { count, percent, ago } from "./text.js";

const LAWS = { busiest: "busiest: the most messages on one port", "max-min": "max-min: fair shares", "no-contention": "none" };

/** Return a text input that suggests some texts, and the list of them. */
export function suggestingInput(id, suggested, attributes = {}) {
  return [
    element("input", { id, type: "text", list: `${id}-list`, autocomplete: "off", spellcheck: "false", maxlength: 200, ...attributes }),
    element("datalist", { id: `${id}-list` }, suggested.map((text) => element("option", { value: text }))),
  ];
}

const KINDS = ["placement", "priority", "admission"];

/** Return the parts of a policy and what each does: [kind, text, sentence]; none if it is not known. */
export function policyParts(text, parts) {
  if (parts === null) return [];
  const { presets, schedulers, summaries } = parts;
  let names = (presets[text] ?? text).replace(/@[\d.]+$/, "").split("+");
  if (names.length === 2) {
    const several = /^srsf:\d+$/.test(names[1]) ? ["srsf", names[1]] : schedulers[names[1]];
    if (several === undefined) return [];
    names = [names[0], ...several];
  }
  if (names.length !== KINDS.length) return [];
  const found = KINDS.map((kind, index) => [kind, names[index], summaries[kind][names[index].split(/[:/]/)[0]]]);
  return found.every(([, , summary]) => summary) ? found : [];
}

/** Return what the parts of a policy do, as a list. */
function partsList(text, parts) {
  return element("dl", { class: "parts" }, policyParts(text, parts).map(([kind, name, summary]) => element("div", {},
    element("dt", {}, `${kind} ${name}`), element("dd", {}, summary))));
}

/** Return how good predictions were, in a sentence. */
export function accuracyText({ forecast }) {
  if (!forecast) return "No predictions yet.";
  const { jobs, median_share: median } = forecast.error;
  if (!jobs || median === null) return "No job that was predicted has finished yet.";
  return jobs === 1 ? `The first prediction of 1 finished job was off by ${percent(median)}.`
    : `First predictions of ${count(jobs)} finished jobs were off by ${percent(median)} in the median.`;
}

/** The view of the policy. */
export class PolicyView {
  constructor(page, run) {
    Object.assign(this, { page, run });
    const [input, suggestions] = suggestingInput("new-policy", run.settings.policies, { required: true, oninput: () => this.draw() });
    Object.assign(this, { input });
    this.currentParts = element("div", { id: "current-parts" });
    this.newParts = element("div", { id: "new-parts" });
    this.current = element("output", { id: "current-policy" });
    this.status = element("p", { role: "status", id: "policy-status" });
    this.facts = element("div", { class: "columns" });
    this.root = element("section", { class: "policy-view" },
      element("h2", {}, "Policy"),
      element("p", { class: "sentence" }, "In force: ", this.current), this.currentParts,
      element("form", { class: "bar", id: "policy-form", onsubmit: (event) => { event.preventDefault(); this.change(); } },
        element("label", {}, element("span", {}, "change to"), input), suggestions, element("button", { type: "submit" }, "Change")),
      this.newParts,
      element("p", { class: "soft" }, "A preset, or PLACEMENT+SCHEDULER such as ff+srsf:1. Running jobs stay where they are; a policy that has to be compiled takes over some seconds later."),
      this.status, this.facts);
  }

  async change() {
    this.status.className = "";
    this.status.textContent = "Changing the policy …";
    try {
      const { policy } = await ask("PUT", "policy", { policy: this.input.value.trim() });
      this.status.textContent = `${policy} decides from now on.`;
      this.input.value = "";
    } catch (error) {
      this.status.className = "problem";
      this.status.textContent = error.message;
    }
  }

  draw() {
    const { run } = this, { network, version } = run.settings;
    this.current.textContent = run.policy;
    update(this.currentParts, partsList(run.policy, run.settings.parts));
    update(this.newParts, partsList(this.input.value.trim(), run.settings.parts));
    const table = (title, facts) => element("table", { class: "facts" }, element("caption", {}, title), element("tbody", {}, factRows(facts)));
    const problems = Object.entries(run.problems ?? {}).filter(([, text]) => text);
    update(this.facts,
      table("The network it assumes", [
        ["a: of each all-reduce", `${(network.a_ns / 1e6).toPrecision(3)} ms`],
        ["b: of each byte", `${network.b_ns_per_byte.toPrecision(3)} ns (${(8 / network.b_ns_per_byte).toPrecision(3)} Gbit/s)`],
        ["eta: of contention", `${network.eta_ns_per_byte.toPrecision(3)} ns a byte`],
        ["law of contention", LAWS[network.law] ?? network.law],
      ]),
      table("Predictions", [
        ["made", run.forecast?.made_ns ? ago(run.to - run.forecast.made_ns / 1e9) : "not yet"],
        ["under", run.forecast?.policy || "–"],
        ["accuracy", accuracyText(run)],
      ]),
      table("The scheduler", [
        ["version", version],
        ["problems", problems.length ? problems.map(([what, text]) => `${what}: ${text}`).join("; ") : "none"],
      ]));
  }
}
