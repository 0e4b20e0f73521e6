"""Who gets to see the page, and what is served."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from headway.reports.explain import explain
from headway.results.timeline.file import read_timeline
from headway.web.files import static_names
from headway.web.guard import HEADERS, SESSION_S, Links, PageGuard, Sessions
from headway.web.run_data import RunData
from headway.web.server import RunsApp, guarded
from results.recording import CROWD, TWO_BY_TWO, record
from web.asking import HOST, ask


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunData:
    path: Path = tmp_path_factory.mktemp("run") / "crowd.parquet"
    record(path, CROWD, TWO_BY_TWO)
    return RunData(
        read_timeline(path), "crowd", lambda recorded, job: explain(recorded, job).to_dict()
    )


@pytest.fixture
def guard(run: RunData) -> PageGuard:
    return guarded(RunsApp([run]))


def make_target(guard: PageGuard) -> str:
    """Return a new link without the address."""
    link = urlsplit(guard.links.make("http", HOST))
    return f"{link.path}?{link.query}"


def sign_in(guard: PageGuard, host: str = HOST) -> str:
    answer = ask(guard, make_target(guard), host=host)
    assert (answer.status, answer.headers["location"]) == (303, "/")
    return answer.cookie


def test_nothing_is_served_without_the_link(guard: PageGuard) -> None:
    for path in ("/", "/runs", "/runs/0", "/static/main.js", "/nothing"):
        assert ask(guard, path).status == 401
    assert ask(guard, "/?token=guessed").status == 403
    assert ask(guard, "/", cookie="headway-4321=guessed").status == 401
    assert ask(guard, "/", cookie='headway-4321="; \x00=').status == 401


@pytest.mark.parametrize("other", ['theme={"dark": true}', "two words=1", "é=1", "="])
def test_cookies_of_other_servers_on_this_host_do_not_matter(guard: PageGuard, other: str) -> None:
    own = sign_in(guard)
    assert ask(guard, "/", cookie=f"{other}; {own}").status == 200
    assert ask(guard, "/", cookie=f"{own}; {other}").status == 200


def test_the_link_works_once_and_its_cookie_opens_the_page(guard: PageGuard, run: RunData) -> None:
    target = make_target(guard)
    cookie = ask(guard, target).cookie
    assert ask(guard, target).status == 403
    assert ask(guard, target, cookie=cookie).status == 303
    for name in static_names():
        answer = ask(guard, f"/static/{name}", cookie=cookie)
        assert answer.status == 200
        assert answer.body
    assert b"<title>" in ask(guard, "/", cookie=cookie).body
    assert ask(guard, "/runs", cookie=cookie).body == b'[{"number":0,"exact":true}]'
    assert ask(guard, "/runs/0", cookie=cookie).body == run.overview
    assert ask(guard, "/runs/0/parts/0", cookie=cookie).body == run.part(0)


def test_what_is_not_there_is_not_found(guard: PageGuard) -> None:
    cookie = sign_in(guard)
    for path in (
        "/runs/1",
        "/runs/0/parts/1",
        "/runs/-1",
        "/static/",
        "/static/../guard.py",
        "/main.js",
        "/static//etc/passwd",
        "/runs/0/jobs/nobody",
        "/runs/1/jobs/a",
        "/runs/0/jobs/",
    ):
        assert ask(guard, path, cookie=cookie).status == 404


def test_jobs_are_explained(guard: PageGuard, run: RunData) -> None:
    cookie, job = sign_in(guard), CROWD.jobs[0].job_id
    found = json.loads(ask(guard, f"/runs/0/jobs/{job}", cookie=cookie).body)
    assert found["job_id"] == job
    assert sum(found["parts_ns"].values()) == found["jct_ns"]


FOREIGN = ("evil.example", "127.0.0.1", "127.0.0.1:80", "localhost.evil.example:4321", "")


def test_a_link_and_its_cookie_are_good_for_one_address(guard: PageGuard) -> None:
    cookie, target = sign_in(guard), make_target(guard)
    for host in FOREIGN:
        assert ask(guard, "/", host=host, cookie=cookie).status == 401
        assert ask(guard, target, host=host).status == 403
    for host in ("localhost:4321", "[::1]:4321"):
        # The same port of this machine, as behind a forwarded port.
        other = sign_in(guard, host)
        assert ask(guard, "/", host=host, cookie=other).status == 200
        assert ask(guard, "/", cookie=other).status == 401
    assert ask(guard, target).status == 303


def test_a_cookie_of_another_page_on_this_machine_is_refused(run: RunData) -> None:
    one, other = guarded(RunsApp([run])), guarded(RunsApp([run]))
    assert ask(other, "/", cookie=sign_in(one)).status == 401
    _, _, value = sign_in(one).partition("=")
    port = HOST.replace("4321", "4322")
    assert ask(one, "/", host=port, cookie=f"headway-4322={value}").status == 401


def test_what_changes_something_must_come_from_the_page_itself(guard: PageGuard) -> None:
    cookie = sign_in(guard)
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        for origin in ("", "null", "http://evil.example", "http://127.0.0.1", f"https://{HOST}"):
            answer = ask(guard, "/", method=method, cookie=cookie, origin=origin)
            assert answer.status == 403
        # There is nothing to change on the page of a run.
        answer = ask(guard, "/", method=method, cookie=cookie, origin=f"http://{HOST}")
        assert answer.status == 405
    assert ask(guard, make_target(guard), method="POST", cookie=cookie).status == 403


def test_links_are_good_for_their_time_and_only_so_many_at_once() -> None:
    now_s = 0.0
    links = Links(60, now_s=lambda: now_s)

    def token() -> str:
        return urlsplit(links.make("http", HOST)).query.removeprefix("token=")

    early, late = token(), token()
    now_s = 60.0
    assert links.use(early, HOST)
    now_s = 60.1
    assert not links.use(late, HOST)
    oldest = token()
    for _ in range(100):
        token()
    assert not links.use(oldest, HOST)


def test_a_session_ends_after_its_time_or_when_it_is_ended() -> None:
    now_s = 1e9
    sessions = Sessions("secret", now_s=lambda: now_s)
    one, other = sessions.begin(HOST), sessions.begin(HOST)
    restarted = Sessions("secret", now_s=lambda: now_s)
    assert restarted.is_valid(one, HOST)
    assert not Sessions("other secret", now_s=lambda: now_s).is_valid(one, HOST)
    for changed in (one[:-1], f"0{one}", one.replace(".", ".1", 1), "", "..", "1.x.2", one + "é"):
        assert not restarted.is_valid(changed, HOST)
    sessions.end(one)
    assert not sessions.is_valid(one, HOST)
    assert not Sessions("secret", sessions.ended, lambda: now_s).is_valid(one, HOST)
    assert sessions.is_valid(other, HOST)
    now_s += SESSION_S - 1
    assert sessions.is_valid(other, HOST)
    now_s += 1
    assert not sessions.is_valid(other, HOST)
    sessions.end(other)
    assert len(sessions.ended) == 1


def test_every_answer_forbids_what_the_page_does_not_need(guard: PageGuard) -> None:
    cookie = sign_in(guard)
    for answer in (
        ask(guard, "/"),
        ask(guard, "/", cookie=cookie),
        ask(guard, "/", host="evil.example"),
        ask(guard, "/runs/0", cookie=cookie),
    ):
        assert answer.headers.items() >= HEADERS.items()
        assert "unsafe" not in answer.headers["content-security-policy"]
