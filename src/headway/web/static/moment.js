// What is so at the moment, in words: counts, messages, and the chosen server or job.

import { element, update } from "./elements.js";
import { count, counted, percent } from "./text.js";

const MAX_MESSAGES = 40;

/** Return the swatch and the name of a job, as a link to choose it. */
function jobLink(page, run, job) {
  return element("a", {
    class: "job", href: `#job/${encodeURIComponent(run.ids[job])}`, colour: run.colour[job],
    onclick: (event) => { event.preventDefault(); page.choose({ job }); },
  }, element("span", { class: "swatch" }), element("span", { class: "name" }, run.label(job)));
}

/** The panel that says what is so at the moment. */
export class MomentPanel {
  constructor(page, run) {
    Object.assign(this, { page, run, shown: null });
    this.root = element("aside", { class: "moment", "aria-label": "At the moment" });
  }

  draw(now) {
    const { page, run } = this, key = [page.momentKey(), run.timeText(now.moment), run.version, now.exact, page.job, page.server].join(" ");
    if (this.shown !== key) showMoment(this.root, page, run, now);
    this.shown = key;
  }
}

function showMoment(parent, page, run, now) {
  const inFlight = now.messages.filter((message) => !message.waits), waiting = now.messages.filter((message) => message.waits);
  const figures = [
    ["running", count(now.running.length)],
    ["queued", count(now.queued.length)],
    ["finished", `${count(now.finished)} of ${count(run.jobs)}`],
    ...(run.states.includes("failed") ? [["failed", count(now.failed), now.failed > 0]] : []),
    [`${run.nouns.gpu}s in use`, `${count(now.gpuJobs.size)} of ${count(run.allGpus)}`],
    ["messages in flight", now.exact ? count(inFlight.length) : "–"],
    ["messages waiting", now.exact ? count(waiting.length) : "–"],
  ];
  update(parent,
    element("h2", {}, "At ", element("output", { id: "now" }, run.timeText(now.moment))),
    element("dl", { class: "figures" }, figures.map(([name, value, warns]) => element("div", { class: warns ? "failed" : null }, element("dt", {}, name), element("dd", {}, value)))),
    page.job !== null ? chosenJob(page, run, now) : null,
    page.server !== null ? chosenServer(page, run, now) : null,
    messageList(page, run, now, "Messages", page.server === null ? [...inFlight, ...waiting] : [
      ...(now.onServer.get(page.server)?.inFlight ?? []), ...(now.onServer.get(page.server)?.waiting ?? [])]),
  );
}

function chosenJob(page, run, now) {
  const { job } = page;
  return element("section", { class: "chosen", id: "chosen-job" },
    element("h3", {}, "job ", jobLink(page, run, job), " ",
      element("a", { href: `#job/${encodeURIComponent(run.ids[job])}`, class: "more" }, "its page"),
      element("button", { type: "button", class: "plain close", "aria-label": "Forget the job", onclick: () => page.choose({ job: null }) }, "×")),
    element("p", {}, run.sentence(job, now)),
    element("p", { class: "soft" }, run.summary(job, now)),
    progress(run.doneShare(job, now.moment)));
}

function chosenServer(page, run, now) {
  const { server } = page, jobs = new Set();
  for (let gpu = run.firstOfServer[server]; gpu < run.firstOfServer[server + 1]; gpu++) {
    for (const job of now.gpuJobs.get(gpu) ?? []) jobs.add(job);
  }
  return element("section", { class: "chosen", id: "chosen-server" },
    element("h3", {}, run.serverName(server),
      element("button", { type: "button", class: "plain close", "aria-label": "Forget the server", onclick: () => page.choose({ server: null }) }, "×")),
    run.serverState(server) === "up" ? null : element("p", {}, `This ${run.nouns.server} is ${run.serverState(server)}.`),
    element("p", {}, jobs.size ? ["holds ", ...[...jobs].flatMap((job, index) => [index ? ", " : "", jobLink(page, run, job)])] : "holds no job"),
    page.serverActions?.(server));
}

/** Return a bar that shows a share; none if it is unknown. */
export function progress(share) {
  if (share === null) return null;
  return element("div", {
    class: "progress", role: "progressbar", "aria-label": "progress", "aria-valuemin": "0", "aria-valuemax": "100",
    "aria-valuenow": String(Math.round(share * 100)), share: share.toFixed(4), title: percent(share, 1),
  });
}

function messageList(page, run, now, title, messages) {
  if (!messages.length) return null;
  const shown = [...messages].sort((one, other) => one.waits - other.waits || one.start - other.start).slice(0, MAX_MESSAGES);
  return element("section", {},
    element("h3", {}, `${title} (${count(messages.length)})`),
    element("table", { class: "messages" },
      element("thead", {}, element("tr", {}, ["job", `${run.nouns.server}s`, "now"].map((name) => element("th", { scope: "col" }, name)))),
      element("tbody", {}, shown.map((message) => element("tr", {},
        element("td", {}, jobLink(page, run, message.job)),
        element("td", {}, run.serverNames([...run.serversOfMessage(message)])),
        element("td", {}, run.messageText(message, now), message.waits ? null : progress(message.share)))))),
    messages.length > shown.length ? element("p", { class: "soft" }, `and ${count(messages.length - shown.length)} more`) : null);
}
