// The scheduler's stream of changes: it is opened again whenever it breaks, and says how it stands.

const RETRY_MS = 1000, MAX_RETRY_MS = 5000;

/** Follow a scheduler; handlers are snapshot(values), changes(values) and status(status). */
export class Stream {
  /** A status is "connected", "disconnected" or "signed out". */
  constructor(handlers) {
    Object.assign(this, { handlers, source: null, retry: null, wait: RETRY_MS });
    // A browser keeps few connections to one server: pages that nobody sees give theirs back.
    document.addEventListener("visibilitychange", () => (document.hidden ? this.close() : this.open()));
    this.open();
  }

  open() {
    if (this.source !== null) return;
    clearTimeout(this.retry);
    const source = new EventSource("v1/live");
    this.source = source;
    source.addEventListener("snapshot", (event) => {
      this.wait = RETRY_MS;
      this.handlers.snapshot(JSON.parse(event.data));
      this.handlers.status("connected");
    });
    source.addEventListener("changes", (event) => this.handlers.changes(JSON.parse(event.data)));
    source.addEventListener("error", () => this.broke(source));
  }

  close() {
    clearTimeout(this.retry);
    this.source?.close();
    this.source = null;
  }

  broke(source) {
    if (source !== this.source) return;
    this.close();
    this.handlers.status("disconnected");
    this.retry = setTimeout(() => this.tryAgain(), this.wait);
    this.wait = Math.min(MAX_RETRY_MS, this.wait * 2);
  }

  /** Find out whether the scheduler is there, and whether it still knows this browser. */
  async tryAgain() {
    let answer = null;
    try {
      answer = await fetch("v1/policy", { credentials: "same-origin", cache: "no-store" });
    } catch { /* nobody listens */ }
    if (this.source !== null || document.hidden) return;
    if (answer?.status === 401) this.handlers.status("signed out");
    if (answer?.ok) this.open();
    else {
      this.retry = setTimeout(() => this.tryAgain(), this.wait);
      this.wait = Math.min(MAX_RETRY_MS, this.wait * 2);
    }
  }
}

/** Ask the scheduler to do something; return its answer, or throw an Error with its sentence. */
export async function ask(method, path, body) {
  const options = { method, credentials: "same-origin", headers: {} };
  if (body !== undefined) {
    options.headers["content-type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let answer;
  try {
    answer = await fetch(`v1/${path}`, options);
  } catch {
    throw new Error("The scheduler does not answer.");
  }
  const text = await answer.text();
  let values = {};
  try { values = JSON.parse(text); } catch { /* not from the scheduler */ }
  if (!answer.ok) throw new Error(values.error ?? `The scheduler answered with ${answer.status}.`);
  return values;
}
