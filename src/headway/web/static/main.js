// The page of recorded runs: which run is on show, its moment, and the comparison of several.

import { Compare, keyFigures } from "./compare.js";
import { element, fill } from "./elements.js";
import { COLUMNS, JobPage, JobTable } from "./jobs.js";
import { Page, byId } from "./page.js";
import { openRun } from "./run.js";
import { pageSource } from "./source.js";
import { briefly, counted, seconds } from "./text.js";
import { View } from "./timeaxis.js";

const SPEEDS = [0.001, 0.01, 0.1, 1, 10, 60, 600, 3600, 36000];
const REPLAY_S = 60;

const KEYS = [
  ["space", "play or pause"], ["← →", "move the moment (Shift: further)"], ["n p", "next, previous start or finish of a job"],
  ["w s", "zoom in, out"], ["a d", "pan"], ["0", "show all"], ["r", "rows: all, or readable"],
  ["/", "search jobs"], ["1 2 3", "run, jobs, compare"], ["↑ ↓ Enter", "in the bars: choose a job, open its page"], ["t", "light or dark"], ["?", "these keys"],
];

class RecordedPage extends Page {
  constructor(runs) {
    super("start");
    this.runs = runs;
    this.tabs = [["run", "Run"], ["jobs", "Jobs"], ...(runs.length > 1 ? [["compare", "Compare"]] : [])];
    this.use(0);
    this.controls();
    this.open(KEYS);
  }

  playedTo() { return this.view.last; }

  /** Show another run. */
  use(number) {
    const before = this.run;
    this.run = this.runs[number];
    const run = this.run;
    if (before === undefined) {
      const from = Math.min(...this.runs.map((one) => one.from)), to = Math.max(...this.runs.map((one) => one.to));
      this.view = new View(from, to);
      this.moment = busiest(run);
    } else if (this.job !== null) {
      this.job = run.jobOf.get(before.ids[this.job]) ?? null;
    }
    this.server = null;
    byId("title").textContent = `${run.policy} · ${counted(run.jobs, "job")} · ${counted(run.servers, run.nouns.server)}, ${counted(run.allGpus, run.nouns.gpu)}`;
    document.title = `${run.name} – Headway`;
    this.shown = null;
  }

  controls() {
    const choice = byId("run-choice");
    if (this.runs.length > 1) {
      choice.closest("label").hidden = false;
      fill(choice, this.runs.map((run, number) => element("option", { value: number }, run.name)));
      choice.addEventListener("change", () => { this.use(Number(choice.value)); this.route(); });
    }
    this.offerSpeeds(SPEEDS, SPEEDS.find((speed) => speed >= (this.view.last - this.view.first) / REPLAY_S) ?? SPEEDS.at(-1));
    byId("moment").addEventListener("change", (event) => {
      const moment = Number(event.target.value.replaceAll(",", ""));
      if (Number.isFinite(moment)) this.choose({ moment });
      else this.redraw();
    });
    if (!this.run.exact) {
      byId("notice").hidden = false;
      byId("notice").textContent = "This file is without single messages, which would make it too large: "
        + "bars are means, and the map shows no messages. Without -o, headway view shows them.";
    }
    if (!this.run.settings.whole) {
      byId("notice").hidden = false;
      byId("notice").textContent = `Only a part of the run was recorded: ${seconds(this.run.from)} s to ${seconds(this.run.to)} s.`;
    }
  }

  show(tab, job) {
    const { run } = this;
    if (tab === "job") this.showOne(new JobPage(this, run, job));
    else if (tab === "jobs") this.showOne(new JobTable(this, run, COLUMNS));
    else if (tab === "compare") this.showOne(new Compare(this, this.runs));
    else this.showRun("colours are jobs; pale: does not compute", this.summary());
  }

  summary() {
    const { sharing } = this.run.settings;
    return element("p", { class: "summary" },
      keyFigures(this.run).map(([name, value]) => element("span", {}, `${name} `, element("b", {}, briefly(value)))),
      sharing ? element("span", {}, sharing) : null);
  }

  drawNow() {
    super.drawNow();
    const input = byId("moment");
    if (document.activeElement !== input) input.value = seconds(this.moment);
  }
}

/** Return the moment with the most messages in flight, to begin with. */
function busiest(run) {
  let best = 0;
  run.series.inFlight.forEach((value, period) => { if (value > run.series.inFlight[best]) best = period; });
  return run.from + ((best + 0.5) / run.periods) * (run.to - run.from);
}

async function start() {
  const source = pageSource();
  try {
    const runs = await Promise.all((await source.runs()).map((run) => openRun(source, run)));
    new RecordedPage(runs);
  } catch (error) {
    byId("notice").hidden = false;
    byId("notice").textContent = `The run cannot be shown: ${error.message}`;
    throw error;
  }
}

start();
