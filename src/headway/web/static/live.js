// The page of a running scheduler: now or a moment before, its stream, its policy and what if.

import { element, update } from "./elements.js";
import { JobTable } from "./jobs.js";
import { LIVE_COLUMNS, LiveJobPage } from "./livejobs.js";
import { LiveRun } from "./liverun.js";
import { Page, byId } from "./page.js";
import { PolicyView, accuracyText } from "./policy.js";
import { Stream, ask } from "./stream.js";
import { ago, counted } from "./text.js";
import { View } from "./timeaxis.js";
import { WhatIf } from "./whatif.js";

const SPEEDS = [1, 10, 60, 600, 3600];
const TICK_MS = 250;
const MIN_PAST_S = 60, MAX_PAST_S = 600, MIN_FUTURE = 0.25, MAX_FUTURE = 2;

const KEYS = [
  ["l", "live: follow the present"], ["space", "play or pause"], ["← →", "move the moment (Shift: further)"],
  ["n p", "next, previous start or finish of a job"], ["w s", "zoom in, out"], ["a d", "pan"], ["0", "show all"],
  ["r", "rows: all, or readable"], ["/", "search jobs"], ["1 2 3 4", "cluster, jobs, policy, what if"], ["↑ ↓ Enter", "in the bars: choose a job, open its page"],
  ["t", "light or dark"], ["?", "these keys"],
];

class LivePage extends Page {
  constructor(snapshot) {
    super("moment");
    this.run = new LiveRun(snapshot);
    this.live = this.follow = this.fits = true;
    this.tabs = [["overview", "Cluster"], ["jobs", "Jobs"], ["policy", "Policy"], ["what-if", "What if"]];
    this.begin = element("p", { class: "begin", id: "begin" }, "There are no jobs yet. Submit the first one: ",
      element("code", {}, "headway submit --gpus 2 python train.py"));
    this.moment = this.run.to;
    this.view = new View(this.run.from, this.run.to);
    this.drawnTo = this.run.to;
    this.stretch();
    this.fit();
    this.title();
    this.tellProblems(snapshot);
    this.offerSpeeds(SPEEDS, 10);
    byId("live").addEventListener("click", () => this.goLive());
    byId("sign-out").addEventListener("click", () => this.signOut());
    this.open(KEYS);
    setInterval(() => { if (!document.hidden) this.redraw(); }, TICK_MS);
  }

  playedTo() { return this.run.to; }
  hasMoment() { return !this.live; }
  momentKey() { return this.live ? "live" : this.moment; }

  /** The stretch of time that can be shown: from the first job to the last predicted finish. */
  stretch() {
    const { run, view } = this;
    view.first = Math.min(run.from, view.from);
    view.last = Math.max(run.last, run.to + MAX_PAST_S, view.to);
  }

  /** Show the latest minutes, and what is predicted of twice as many. */
  fit() {
    const { run, view } = this, past = Math.min(MAX_PAST_S, Math.max(MIN_PAST_S, run.to - run.from));
    view.show(run.to - past, run.to + Math.min(past * MAX_FUTURE, Math.max(past * MIN_FUTURE, (run.last - run.to) * 1.05)));
    this.fitted = { from: view.from, to: view.to };
  }

  /** Keep the stretch of time on show at the present: fitted, until someone has zoomed it. */
  followNow() {
    const { run, view } = this;
    if (view.from !== this.fitted.from || view.to !== this.fitted.to) this.fits = false;
    if (this.fits) this.fit();
    else view.pan(run.to - this.drawnTo);
  }

  title() {
    const { run } = this;
    byId("title").textContent = `${run.policy} · ${counted(run.servers, "node")}, ${counted(run.allGpus, "slot")}`;
    document.title = "Headway";
  }

  /** Take over a snapshot, or what has changed. */
  take(values, whole) {
    const chosen = this.job === null ? null : this.run.ids[this.job];
    if (whole) {
      this.shift(this.run.restart(values));
      if (this.server !== null && this.server >= this.run.servers) this.server = null;
    } else this.run.change(values);
    if (chosen !== null) this.job = this.run.jobOf.get(chosen) ?? null;
    this.title();
    this.tellProblems(values);
    // The page of a job that has just been submitted may have been asked for already.
    if (location.hash.startsWith("#job/") && document.body.dataset.tab !== "job") this.route();
    this.redraw();
  }

  /** Keep the time of day on show although the scheduler counts time from elsewhere now. */
  shift(by) {
    if (by === 0) return;
    const { view } = this;
    for (const name of ["first", "last", "from", "to"]) view[name] += by;
    for (const name of ["from", "to"]) this.fitted[name] += by;
    this.moment += by;
    this.drawnTo += by;
  }

  tell(text) {
    byId("notice").hidden = text === "";
    byId("notice").textContent = text;
  }

  tellProblems({ problems }) {
    if (problems) this.tell(Object.entries(problems).filter(([, text]) => text).map(([what, text]) => `${what}: ${text}`).join(" "));
  }

  connection(status) {
    const before = this.status;
    this.status = status;
    this.run.connected = status === "connected";
    if (status === "connected") {
      this.lostAt = null;
      if (before !== undefined && before !== "connected") for (const view of this.views) view.reconnected?.();
    } else {
      this.lostAt ??= new Date();
      this.run.watched.pause();
    }
    this.redraw();
  }

  async signOut() {
    try {
      await ask("POST", "sign-out");
      location.reload();
    } catch (error) {
      this.tell(error.message);
    }
  }

  goLive() {
    if (this.playing) this.play(false);
    this.live = this.follow = this.fits = true;
    this.fit();
    this.redraw();
  }

  choose(choice) {
    if (choice.moment !== undefined) this.live = choice.moment >= this.run.to;
    super.choose(choice);
  }

  play(playing) {
    if (playing) {
      this.live = false;
      if (this.moment >= this.run.to) this.moment = this.view.from;
    }
    super.play(playing);
    if (!playing && this.moment >= this.run.to) this.live = true;
  }

  show(tab, job) {
    const { run } = this;
    if (tab === "job") this.showOne(new LiveJobPage(this, run, job));
    else if (tab === "jobs") this.showOne(new JobTable(this, run, LIVE_COLUMNS, { sorted: "job", descending: true }));
    else if (tab === "policy") this.showOne(new PolicyView(this, run));
    else if (tab === "what-if") this.showOne(new WhatIf(this, run));
    else {
      this.predictions = element("p", { class: "summary", id: "predictions" });
      this.showRun("colours are jobs; pale: waits or sends", this.predictions);
    }
  }

  /** Return buttons for a node that is chosen on the map. */
  serverActions(server) {
    const { run } = this, state = run.serverState(server), drains = state === "draining";
    if (state === "lost") return null;
    const name = run.serverName(server);
    return element("p", {}, element("button", {
      type: "button", id: "drain", title: drains ? "Place jobs on this node again" : "Place no new jobs on this node",
      onclick: async () => {
        try {
          await ask("POST", `nodes/${encodeURIComponent(name)}/${drains ? "undrain" : "drain"}`);
        } catch (error) {
          this.tell(error.message);
        }
      },
    }, drains ? "Undrain" : "Drain"));
  }

  actions(event) {
    return { ...super.actions(event), l: () => this.goLive() };
  }

  drawNow() {
    const { run } = this;
    run.advance();
    this.begin.hidden = run.jobs > 0;
    run.pace = this.playing ? this.speed : 0;
    this.stretch();
    if (this.live) {
      this.moment = run.to;
      if (this.follow) this.followNow();
    }
    this.drawnTo = run.to;
    super.drawNow();
    document.body.dataset.clock = String(run.clock);
    this.showClock();
    if (document.body.dataset.tab === "overview") {
      const { forecast } = run;
      const made = forecast?.made_ns ? `Predicted ${ago(run.to - forecast.made_ns / 1e9)} under ${forecast.policy}.` : "";
      update(this.predictions, element("span", {}, `${made} ${accuracyText(run)}`.trim()));
    }
  }

  showClock() {
    const { run } = this, waited = run.to - this.moment;
    byId("live").setAttribute("aria-pressed", String(this.live));
    byId("clock").textContent = this.live ? run.timeText(run.to) : `${run.timeText(this.moment)}, ${ago(waited)}`;
    const state = byId("connection");
    const since = this.lostAt ? this.lostAt.toLocaleTimeString("en-GB") : "";
    const texts = {
      connected: "connected",
      disconnected: `disconnected since ${since}; trying again`,
      "signed out": "signed out: run headway web, and open its link",
    };
    if (state.textContent !== texts[this.status]) state.textContent = texts[this.status] ?? "";
    state.dataset.status = this.status ?? "";
  }
}

function start() {
  let page = null;
  const stream = new Stream({
    snapshot: (values) => {
      if (page === null) page = new LivePage(values);
      else page.take(values, true);
    },
    changes: (values) => page?.take(values, false),
    status: (status) => {
      if (page !== null) page.connection(status);
      else if (status !== "connected") {
        byId("connection").textContent = status === "signed out" ? "signed out: run headway web, and open its link" : "The scheduler does not answer; trying again.";
      }
    },
  });
  window.addEventListener("pagehide", () => stream.close());
  window.addEventListener("pageshow", () => stream.open());
}

start();
