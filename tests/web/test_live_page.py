"""The live page in a browser, with a real scheduler and real jobs."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from headway.domain.errors import HeadwayError
from live.scheduler_process import FINISHED, SchedulerProcess, python, running_scheduler
from live.slurm_jobs import settings as slurm_settings
from waiting import eventually
from web.test_page import pixels

pytestmark = [pytest.mark.browser, pytest.mark.slow]

HOSTILE = "<img src=x onerror=\"document.title='broken into'\">"
SETTINGS = (
    # A message that is held for as long as a test needs is not stuck.
    'lease_s = 3600\n[executor]\nkind = "local"\nnodes = 2\nslots = 2\nmemory_mb = 1024\n'
)

SENDS = """
import os, sys, time
from headway.gate import frames
from headway.gate.environment import WorkerEnvironment
from headway.worker.client import GateClient
rank, until, text = int(os.environ["RANK"]), sys.argv[1], sys.argv[2]
print("rank", rank, text, flush=True)
gate = GateClient(WorkerEnvironment.from_variables(os.environ), rank)
gate.wait_for_first_try(30)
if rank == 0:
    request = gate.message_ready(25 * 2**20, 25 * 2**20)
    gate.wait_for_grant(request)
    print("sends", flush=True)
    while not os.path.exists(until):
        time.sleep(0.02)
    gate.message_done(request)
while not os.path.exists(until):
    time.sleep(0.02)
print("ends", flush=True)
"""
"""A job whose first rank sends a message until a file exists."""


class Jobs:
    """Submits jobs to a scheduler and ends them."""

    def __init__(self, scheduler: SchedulerProcess, folder: Path) -> None:
        self.scheduler, self._folder, self._submitted = scheduler, folder, 0

    def sending(self, text: str = "", ranks: int = 3, name: str = "", iterations: int = 50) -> str:
        """Submit a job that shares its slots and sends until `end`."""
        self._submitted += 1
        until = self._folder / f"end-{self._submitted}"
        job = self.scheduler.submit(
            python(SENDS, str(until), text),
            gpus=ranks,
            memory_bytes=2**20,
            name=name,
            iterations=iterations,
            forward_ns=10**8,
            backward_ns=10**8,
            gradient_bytes=25 * 2**20,
            environment={"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        (self._folder / f"job-{job}").symlink_to(until)
        return job

    def end(self, job: str) -> None:
        """Let a job end."""
        (self._folder / f"job-{job}").readlink().touch()

    def end_all(self) -> None:
        """End all jobs."""
        for one in self.scheduler.client.jobs():
            if one["state"] not in FINISHED:
                self.scheduler.client.cancel(one["job_id"])
        eventually(lambda: all(one["state"] in FINISHED for one in self.scheduler.client.jobs()))


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchedulerProcess]:
    with running_scheduler(tmp_path_factory.mktemp("live") / "state", SETTINGS) as one:
        yield one


@pytest.fixture
def jobs(scheduler: SchedulerProcess, tmp_path: Path) -> Iterator[Jobs]:
    found = Jobs(scheduler, tmp_path)
    yield found
    found.end_all()


@pytest.fixture
def live(open_page: Callable[..., Page], scheduler: SchedulerProcess) -> Callable[..., Page]:
    """Return a function that signs in and opens the page."""

    def opened(**options: object) -> Page:
        page = open_page(scheduler.client.sign_in(), **options)
        expect(page.locator("#connection")).to_have_text("connected")
        return page

    return opened


def figure(page: Page, name: str) -> str:
    found = page.locator(".figures div", has=page.get_by_text(name, exact=True))
    return found.locator("dd").inner_text()


def row(page: Page, job: str) -> str:
    """Show the table of jobs; return how to find a job's row."""
    page.goto(f"{page.url.partition('#')[0]}#jobs")
    return f"#jobs tr[data-job='{job}']"


@contextlib.contextmanager
def killed(scheduler: SchedulerProcess, page: Page) -> Iterator[None]:
    """Kill the scheduler; start it again, at the same port, at the end of a with block."""
    port = urlsplit(page.url).port
    text = scheduler.config.read_text()
    scheduler.config.write_text(re.sub("api_port = 0", f"api_port = {port}", text))
    scheduler.kill()
    with socket.socket() as held:
        # Bound with this option and not listening, it keeps the port for the scheduler.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", port))
        yield
        scheduler.start()
    scheduler.config.write_text(text)


def test_the_page_opens_by_its_link_only(
    browser: Browser, live: Callable[..., Page], scheduler: SchedulerProcess
) -> None:
    link = scheduler.client.sign_in()
    address = link.partition("?")[0]
    page = live()
    assert page.url == address
    assert page.evaluate("document.cookie") == ""
    expect(page.locator("#title")).to_have_text("ff+srsf:1 · 2 nodes, 4 slots")
    stranger = browser.new_context()
    for path in ("", "static/live.js", "v1/live", "v1/jobs"):
        assert stranger.request.get(f"{address}{path}").status == 401
    assert stranger.request.get(f"{address}?token=guessed").status == 403
    stranger.close()


def test_jobs_appear_say_why_they_wait_and_end(live: Callable[..., Page], jobs: Jobs) -> None:
    page = live()
    first = jobs.sending("hello", name="first")
    expect(page.locator(".messages tbody tr")).to_contain_text(["25 MB"])
    second = jobs.sending(name="second")
    # One message at a time: the second waits, and says for whom.
    expect(page.locator(".messages tbody tr")).to_contain_text(["25 MB", "has waited"])
    assert figure(page, "slots in use") == "3 of 4"
    expect(page.locator("#cluster")).to_have_attribute(
        "aria-label", "Map of 2 nodes: 3 of 4 slots hold a job, 1 message in flight."
    )
    waits = row(page, second)
    expect(page.locator(f"{waits} td.now")).to_contain_text("1 message on")
    expect(page.locator(f"{waits} td.now")).to_contain_text(f"job {first}")
    # Search and filter.
    page.locator("#search").fill("FIRST")
    expect(page.locator("#jobs tbody tr[data-job]")).to_have_count(1)
    page.locator("#search").fill("")
    # The page of a job follows what it prints.
    page.goto(f"{page.url.partition('#')[0]}#job/{first}")
    expect(page.locator(".job-page h2")).to_have_text(f"job {first} (first)")
    expect(page.locator("#log")).to_contain_text("rank 0 hello")
    expect(page.locator("#log")).to_contain_text("sends")
    expect(page.locator("#log-status")).to_have_text("follows")
    page.locator("#rank").select_option("2")
    expect(page.locator("#log")).to_have_text("rank 2 hello\n")
    jobs.end(first)
    expect(page.locator("#log")).to_contain_text("ends")
    expect(page.locator("#log-status")).to_have_text("complete")
    expect(page.locator("#sentence")).to_contain_text("Done")
    expect(page.locator("#cancel")).to_be_hidden()
    jobs.end(second)
    done = row(page, second)
    expect(page.locator(f"{done} td:nth-child(4)")).to_have_text("done")
    # A moment before shows what the page knows of it.
    page.goto(f"{page.url.partition('#')[0]}#overview")
    expect(page.locator(".figures")).to_contain_text("0 of 4")
    page.keyboard.press("p")
    page.keyboard.press("p")
    expect(page.locator("#clock")).to_contain_text("ago")
    expect(page.locator(".figures")).not_to_contain_text("0 of 4")
    page.locator("#live").click()
    expect(page.locator(".figures")).to_contain_text("0 of 4")


def test_a_queued_job_says_what_it_needs_and_can_be_cancelled(
    live: Callable[..., Page], jobs: Jobs
) -> None:
    page = live()
    job = jobs.sending(ranks=5)
    waits = row(page, job)
    expect(page.locator(f"{waits} td.now")).to_contain_text("Needs 5 slots")
    page.locator(f"{waits} a").click()
    page.locator("#cancel").click()
    page.get_by_role("button", name="Keep it").click()
    assert jobs.scheduler.client.job(job)["state"] == "queued"
    page.locator("#cancel").click()
    page.locator("#confirm-yes").click()
    expect(page.locator(".facts")).to_contain_text("cancelled")
    assert jobs.scheduler.client.job(job)["state"] == "cancelled"


FAILS = """
import os, sys, time
attempt, folder = os.environ["HEADWAY_ATTEMPT"], sys.argv[1]
print("output of attempt", attempt, flush=True)
while not os.path.exists(f"{folder}/end-{attempt}"):
    time.sleep(0.02)
sys.exit(f"attempt {attempt} breaks")
"""
"""A job whose attempts end badly, each when a file exists."""


def test_a_failed_job_stands_out_and_its_attempts_are_told(
    live: Callable[..., Page], jobs: Jobs, tmp_path: Path
) -> None:
    page = live()
    older = jobs.sending()
    folder = tmp_path / "attempts"
    folder.mkdir()
    environment = {"TOKEN": "a-secret"}
    job = jobs.scheduler.submit(
        python(FAILS, str(folder)), retries=1, priority=3, name="broken", environment=environment
    )
    expect(page.locator(".messages tbody tr")).to_contain_text(["25 MB"])
    failed, finished = int(figure(page, "failed")), figure(page, "finished").split()[0]
    assert pixels(page, "#gantt", "failed") == 0
    (folder / "end-1").touch()
    eventually(lambda: jobs.scheduler.client.job(job)["attempts"] == 2)
    page.goto(f"{page.url.partition('#')[0]}#job/{job}")
    attempts = page.locator("#attempts tbody tr")
    expect(attempts).to_have_count(2)
    expect(attempts.first).to_contain_text("has not ended")
    expect(attempts.last).to_contain_text("attempt 1 breaks")
    expect(attempts.last).to_contain_text("node")
    expect(page.locator("#log")).to_have_text("output of attempt 2\n")
    attempts.last.get_by_role("link", name="output").click()
    expect(page.locator("#log")).to_contain_text("output of attempt 1\nattempt 1 breaks")
    # The new attempt is marked on the bar, which is not red yet.
    eventually(lambda: pixels(page, "canvas.job-time", "ink") > 0)
    assert pixels(page, "canvas.job-time", "failed") == 0
    facts = page.locator(".facts")
    expect(facts).to_contain_text("2; 1 retry allowed")
    expect(facts).to_contain_text("priority3")
    expect(facts).to_contain_text("has its slots to itself")
    expect(facts).to_contain_text("folder/")
    expect(page.locator("#command")).to_contain_text(f"breaks\")\n' {folder}")
    assert "a-secret" not in page.content()
    (folder / "end-2").touch()
    expect(attempts.first).to_contain_text("attempt 2 breaks")
    eventually(lambda: pixels(page, "canvas.job-time", "failed") > 1000)
    # The newest job is first, and its row leads to it.
    broken = row(page, job)
    rows = page.locator("#jobs tbody tr[data-job]")
    expect(rows.nth(0)).to_have_attribute("data-job", job)
    expect(rows.nth(1)).to_have_attribute("data-job", older)
    expect(page.locator(broken)).to_have_class("failed")
    page.locator(f"{broken} td.now").click()
    expect(page.locator(".job-page h2")).to_have_text(f"job {job} (broken)")
    page.go_back()
    page.locator(broken).get_by_role("link", name="broken").click()
    expect(page.locator(".job-page h2")).to_have_text(f"job {job} (broken)")
    page.keyboard.press("1")
    expect(page.locator(".figures .failed dd")).to_have_text(str(failed + 1))
    assert figure(page, "finished").split()[0] == finished
    eventually(lambda: pixels(page, "#gantt", "failed") > 0)


def test_the_policy_and_the_nodes_can_be_changed(
    live: Callable[..., Page], scheduler: SchedulerProcess
) -> None:
    page = live(expected="400")
    page.keyboard.press("3")
    page.locator("#new-policy").fill("ff+nonsense")
    page.get_by_role("button", name="Change").click()
    expect(page.locator("#policy-status")).to_contain_text("nonsense")
    page.locator("#new-policy").fill("ff+srsf:2")
    expect(page.locator("#new-parts")).to_contain_text("placement ff")
    expect(page.locator("#new-parts dd").first).to_have_text(re.compile(r"^[A-Z].{20,}\.$"))
    page.get_by_role("button", name="Change").click()
    expect(page.locator("#current-policy")).to_have_text("ff+srsf:2")
    expect(page.locator("#title")).to_contain_text("ff+srsf:2")
    assert scheduler.client.status()["policy"] == "ff+srsf:2"
    scheduler.client.set_policy("ff+srsf:1")
    expect(page.locator("#current-policy")).to_have_text("ff+srsf:1")
    page.keyboard.press("1")
    page.locator("#cluster").focus()
    page.keyboard.press("ArrowRight")
    page.locator("#drain").click()
    expect(page.locator("#chosen-server")).to_contain_text("This node is draining.")
    page.get_by_role("button", name="Undrain").click()
    expect(page.locator("#chosen-server")).not_to_contain_text("draining")


def is_predicted(scheduler: SchedulerProcess) -> bool:
    """Return whether there are answers in time: not while a busy machine starts their process."""
    with contextlib.suppress(HeadwayError):
        return bool(scheduler.client.what_if({}))
    return False


def test_what_if_shows_both_sides(live: Callable[..., Page], jobs: Jobs) -> None:
    page = live()
    job = jobs.sending(ranks=2, iterations=100_000, name="long")
    jobs.scheduler.wait_for(job, "running")
    eventually(lambda: is_predicted(jobs.scheduler))
    page.keyboard.press("4")
    page.locator("#if-nodes").fill("1")
    page.locator("#if-submit").check()
    page.locator("#if-gpus").fill("4")
    page.locator("#if-iterations").fill("10")
    page.locator("#if-model").fill("resnet50")
    page.locator("#if-memory_bytes").fill("100")
    page.locator("#if-ask").click()
    expect(page.locator("#if-new")).to_contain_text(
        re.compile(r"The new job would start now \(.*\) and end .*\(.*\)\.")
    )
    # The average is over jobs that both sides have.
    expect(page.locator("#if-averages")).to_contain_text("average time until done, 1 job")
    own = page.locator(f"#if-jobs tr[data-job='{job}']")
    expect(own).to_contain_text("in ")
    expect(own.get_by_role("link")).to_have_text(f"{job} long")
    expect(page.locator("#if-jobs tr[data-job='(new)']")).to_contain_text("the new job")
    # A job that does not fit says why.
    page.locator("#if-gpus").fill("40")
    page.locator("#if-network").fill("100gbe")
    expect(page.locator("#if-faster")).to_be_disabled()
    page.locator("#if-ask").click()
    expect(page.locator("#if-new")).to_contain_text("cannot run. It needs 40 slots with")
    # The present has been predicted by the way.
    found = row(page, job)
    expect(page.locator(f"{found} td:nth-child(9)")).to_contain_text(re.compile("in . h"))
    expect(page.locator(f"{found} td:nth-child(10)")).to_contain_text("≈")
    page.keyboard.press("1")
    expect(page.locator("#predictions")).to_contain_text("under ff+srsf:1.")
    # What is predicted of the slots is not drawn like what was.
    box = page.locator("#gantt").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] - 20, box["y"] + box["height"] - 129)
    expect(page.locator(".time-view .tip")).to_contain_text("Slots: predicted 2")


def test_what_jobs_say_is_only_text(live: Callable[..., Page], jobs: Jobs) -> None:
    page = live()
    job = jobs.sending(HOSTILE, name=HOSTILE)
    found = row(page, job)
    expect(page.locator(found)).to_contain_text(HOSTILE)
    page.goto(f"{page.url.partition('#')[0]}#job/{job}")
    expect(page.locator(".job-page h2")).to_contain_text(HOSTILE)
    expect(page.locator("#log")).to_contain_text(HOSTILE)
    page.goto(f"{page.url.partition('#')[0]}#overview")
    expect(page.locator(".messages tbody tr")).to_have_count(1)
    assert page.locator("img").count() == 0
    assert page.title() == "Headway"


def test_nothing_sticks_out_at_any_width(live: Callable[..., Page], jobs: Jobs) -> None:
    page = live(color_scheme="dark")
    job = jobs.sending(name="a name that is rather long, as names of jobs tend to be")
    expect(page.locator(".messages tbody tr")).to_have_count(1)
    for width in (390, 900, 1440):
        page.set_viewport_size({"width": width, "height": 800})
        for tab in ("overview", "jobs", "policy", "what-if", f"job/{job}"):
            page.goto(f"{page.url.partition('#')[0]}#{tab}")
            page.wait_for_selector(f"body[data-tab='{tab.split('/')[0]}']")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (width, tab)


LEAST_NS = 10 * 10**9
"""The page shows at least so much of a job's time."""


def moment(page: Page, job: str, share: float) -> None:
    """Choose a moment of a job's time, by its share."""
    page.goto(f"{page.url.partition('#')[0]}#job/{job}")
    page.wait_for_selector("body[data-tab='job']")
    box = page.locator("canvas.job-time").bounding_box()
    assert box is not None
    page.locator("canvas.job-time").click(
        position={"x": 8 + (box["width"] - 16) * share, "y": box["height"] / 2}
    )
    page.goto(f"{page.url.partition('#')[0]}#overview")


def test_what_was_before_the_page_was_opened_is_known(
    live: Callable[..., Page], jobs: Jobs
) -> None:
    first = jobs.sending(name="first")
    client = jobs.scheduler.client
    eventually(lambda: any(node["messages"] for node in client.nodes()))
    second = jobs.sending(name="second")
    eventually(lambda: any(node["waiting"] for node in client.nodes()))
    both_ns = client.state()["clock_ns"]
    time.sleep(8)
    jobs.end(first)
    ended = jobs.scheduler.wait_for(first, "done")
    jobs.end(second)
    jobs.scheduler.wait_for(second, "done")
    page = live()
    expect(page.locator(".figures")).to_contain_text("0 of 4")
    # The first sent, and the second waited, during these eight seconds of the first one's time.
    time_ns = max(LEAST_NS, ended["ended_ns"] - ended["submitted_ns"])
    moment(page, first, (both_ns + 4e9 - ended["submitted_ns"]) / time_ns)
    expect(page.locator("#clock")).to_contain_text("ago")
    expect(page.locator(".messages tbody tr")).to_have_count(2)
    expect(page.locator(".messages tbody tr").nth(0)).to_contain_text("first")
    expect(page.locator(".messages tbody tr").nth(0)).to_contain_text("node1 and node2")
    expect(page.locator(".messages tbody tr").nth(1)).to_contain_text("had waited")
    assert figure(page, "messages in flight") == "1"
    assert figure(page, "messages waiting") == "1"
    assert figure(page, "slots in use") == "3 of 4"
    # The bars and the heat map under them have it too, and nothing is unknown.
    found = page.evaluate(
        """async () => {
          const { Past, unknownOf } = await import("./static/past.js");
          const past = new Past(), now = Number(document.body.dataset.clock);
          past.covering(0, now, now, Infinity, () => {});
          while ([...past.stretches.values()].some(({ asking }) => asking)) {
            await new Promise((done) => setTimeout(done, 50));
          }
          const covers = past.covering(0, now, now, Infinity, () => {});
          const jobs = {}, nodes = {};
          for (const { stretch, from, to } of covers) {
            for (const { id } of stretch.attempts) {
              stretch.addJob(id, from, to, (lane, begin, end, weight) => {
                jobs[id] ??= { sending: 0, waiting: 0 };
                jobs[id][lane] += Math.max(0, end - begin) * weight;
              });
            }
            stretch.addNodes(from, to, (name, begin, end, weight) => {
              nodes[name] = (nodes[name] ?? 0) + (end - begin) * weight;
            });
          }
          return { jobs, nodes, unknown: unknownOf(covers, covers[0].from, covers.at(-1).to) };
        }"""
    )
    assert found["jobs"][first]["sending"] >= 8
    assert found["jobs"][first]["waiting"] < 1
    assert found["jobs"][second]["waiting"] >= 8
    assert found["nodes"].keys() == {"node1", "node2"}
    assert found["nodes"]["node1"] >= 8
    assert found["unknown"] == []


def test_times_of_day_stay_after_a_restart_and_the_gap_is_unknown(
    live: Callable[..., Page], jobs: Jobs, scheduler: SchedulerProcess
) -> None:
    first = jobs.sending(name="over")
    scheduler.wait_for(first, "running")
    jobs.end(first)
    scheduler.wait_for(first, "done")
    held = jobs.sending(name="goes on")
    scheduler.wait_for(held, "running")
    page = live(expected="ERR_CONNECTION|ERR_INCOMPLETE|ERR_EMPTY|502|503")
    ended = page.locator(f"{row(page, first)} td:nth-child(9)").inner_text()
    assert re.fullmatch(r"\d\d:\d\d:\d\d", ended)
    killed_s = time.monotonic()
    with killed(scheduler, page):
        time.sleep(15)
    expect(page.locator("#connection")).to_have_text("connected")
    again = live(expected="503")
    for one in (page, again):
        shown = one.locator(f"{row(one, first)} td:nth-child(9)").inner_text()
        seconds = [
            sum(int(part) * 60**n for n, part in enumerate(reversed(text.split(":"))))
            for text in (ended, shown)
        ]
        assert abs(seconds[0] - seconds[1]) <= 1
    # While the scheduler was down, nobody knows what the job sent.
    again.goto(f"{again.url.partition('#')[0]}#overview")
    again.wait_for_selector("#gantt")
    now = float(again.evaluate("document.body.dataset.clock"))
    since = now - (time.monotonic() - killed_s) - 20
    unknown = again.evaluate(
        """async ([since, now]) => {
          const { Past, unknownOf } = await import("./static/past.js");
          const past = new Past();
          past.covering(since, now, now, Infinity, () => {});
          while ([...past.stretches.values()].some(({ asking }) => asking)) {
            await new Promise((done) => setTimeout(done, 50));
          }
          const covers = past.covering(since, now, now, Infinity, () => {});
          return unknownOf(covers, covers[0].from, covers.at(-1).to);
        }""",
        [since, now],
    )
    assert len(unknown) == 1
    assert unknown[0][1] - unknown[0][0] >= 15


def test_the_page_is_there_again_after_a_restart(
    live: Callable[..., Page], jobs: Jobs, scheduler: SchedulerProcess
) -> None:
    page = live(expected="ERR_CONNECTION|ERR_INCOMPLETE|ERR_EMPTY")
    with killed(scheduler, page):
        expect(page.locator("#connection")).to_contain_text("disconnected since")
    expect(page.locator("#connection")).to_have_text("connected")
    job = jobs.sending()
    expect(page.locator(".messages tbody tr")).to_contain_text([job])


def test_a_cluster_without_nodes_is_shown_and_nodes_when_they_join(
    open_page: Callable[..., Page], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On programs in place of Slurm's, which grants the allocation while the page is open."""
    programs, job, granted = tmp_path / "bin", tmp_path / "job", tmp_path / "granted"
    node = "NodeName=n1 NodeAddr=n1 CPUTot=2 RealMemory=1000 State=IDLE Gres=(null)"
    # The allocation has the name under which it was asked for.
    named, ask = f"sed s/=x/=$(cat {job}.name)/ {job}", "--job-name=*) echo ${word#*=} >"
    answers = f'--v*) echo slurm 22.05;; shownodes) echo "{node}";; showjob) {named};;'
    programs.mkdir()
    for name, script in {
        "scontrol": f"case $1$2 in {answers} esac",
        "salloc": f"for word; do case $word in {ask} {job}.name;; esac; done\n"
        f"for _ in $(seq 3000); do [ -e {granted} ] && exit; sleep 0.1; done",
        "squeue": f"case $* in *--name=*) [ ! -e {job}.name ] || echo 9;; esac",
        "scancel": "",
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    pending = "JobId=9 JobName=x UserId=root(0) JobState=PENDING Reason=Priority"
    job.write_text(pending)
    with running_scheduler(tmp_path / "state", slurm_settings("")) as scheduler:
        page = open_page(scheduler.client.sign_in())
        expect(page.locator("#title")).to_have_text("ff+srsf:1 · 0 nodes, 0 slots")
        expect(page.locator("#begin")).to_contain_text("headway submit")
        scheduler.submit(["true"], gpus=64)
        expect(page.locator("#begin")).to_be_hidden()
        page.locator("#cluster").press("ArrowRight")
        page.locator("#cluster").hover()
        box = page.locator("#gantt").bounding_box()
        assert box is not None
        for share in (0.2, 0.5, 0.6, 0.7, 0.8, 0.9):
            page.mouse.move(box["x"] + box["width"] / 2, box["y"] + share * box["height"])
        running = tmp_path / "running"
        running.write_text(
            f"{pending.replace('PENDING', 'RUNNING')} Nodes=n1 CPU_IDs=0-1 Mem=1000 GRES="
        )
        running.replace(job)
        granted.touch()
        expect(page.locator("#title")).to_have_text("ff+srsf:1 · 1 node, 2 slots")
        page.locator("#cluster").press("ArrowRight")
        expect(page.locator("#chosen-server")).to_contain_text("n1")
        page.close()  # before the scheduler ends its stream
