// The output of one rank of a job; it follows while the job runs.

import { element, update } from "./elements.js";

const MAX_CHARACTERS = 200_000;
// Escape sequences of terminals, and other control characters.
const CONTROLS = /\u001b\[[0-9;?]*[ -/]*[@-~]|\r(?=\n)|[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/g;

export class JobLog {
  constructor(job, ranks) {
    // `attempt` is null for the latest one, whichever that is.
    Object.assign(this, { job, rank: 0, attempt: null, abort: null });
    this.text = document.createTextNode("");
    this.output = element("pre", { class: "log", id: "log", tabindex: "0", "aria-label": "Output" });
    this.output.append(this.text);
    this.status = element("span", { class: "soft", id: "log-status", role: "status" });
    this.choice = element("select", { id: "rank", onchange: () => this.open(Number(this.choice.value)) });
    for (let rank = 0; rank < ranks; rank++) this.choice.append(element("option", { value: rank }, `${rank}`));
    this.which = element("select", { id: "attempt", onchange: () => this.show(Number(this.which.value) || null) });
    this.root = element("section", { class: "log-section", "aria-label": "Output of the job" },
      element("div", { class: "bar" }, element("h3", {}, "Output"),
        element("label", {}, element("span", {}, "rank"), this.choice),
        element("label", {}, element("span", {}, "attempt"), this.which), this.status), this.output);
  }

  /** Offer the output of these attempts. */
  offer(numbers) {
    update(this.which, element("option", { value: "" }, "latest"), numbers.map((number) => element("option", { value: number }, `${number}`)));
  }

  /** Show the output of an attempt. */
  show(attempt) {
    this.attempt = attempt;
    this.which.value = attempt ?? "";
    this.output.scrollIntoView({ block: "nearest" });
    this.open();
  }

  /** Read the output of a rank from its beginning, and follow it. */
  async open(rank = this.rank) {
    this.close();
    const abort = new AbortController(), decoder = new TextDecoder();
    Object.assign(this, { rank, abort });
    this.text.data = "";
    this.status.textContent = "";
    try {
      const answer = await fetch(`v1/jobs/${encodeURIComponent(this.job)}/logs?rank=${rank}&follow=true${this.attempt === null ? "" : `&attempt=${this.attempt}`}`,
        { credentials: "same-origin", signal: abort.signal });
      if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).error ?? "The output cannot be read.");
      this.status.textContent = "follows";
      const reader = answer.body.getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        this.add(decoder.decode(value, { stream: true }));
      }
      this.status.textContent = this.text.data ? "complete" : "nothing was written";
    } catch (error) {
      if (!abort.signal.aborted) this.status.textContent = error instanceof TypeError ? "interrupted" : error.message;
    }
  }

  /** Stop reading. */
  close() { this.abort?.abort(); }

  add(text) {
    const { output } = this, atEnd = output.scrollTop + output.clientHeight >= output.scrollHeight - 8;
    const all = this.text.data + text.replace(CONTROLS, "");
    this.text.data = all.length > MAX_CHARACTERS ? `… earlier output is left out\n${all.slice(all.indexOf("\n", all.length - MAX_CHARACTERS * 0.8) + 1)}` : all;
    if (atEnd) output.scrollTop = output.scrollHeight;
  }
}
