"""A past live run in the page of recorded ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.commands import headway
from headway.domain.errors import InputError
from headway.live.core.events import (
    IterationDone,
    JobCancelled,
    JobExited,
    JobSpec,
    JobSubmitted,
    MessageDone,
    PolicyChanged,
)
from headway.live.past.recording import read_recording
from headway.web.columns import unpack
from headway.web.run_data import RunData
from live.past.test_activity import SPEC, UNIX_NS, Log, driven, nodes, sent
from web.test_run_data import messages_of, parts_of


def write(folder: Path, lines: list[bytes]) -> Path:
    path = folder / "events-000001-000001.jsonl"
    path.write_bytes(b"".join(lines))
    (folder / "events.jsonl").symlink_to(path.name)
    return folder


def spans_in(lines: list[bytes]) -> set[tuple[str, int, int]]:
    """Return job, grant and end of every message, read from a log line by line."""
    node_of: dict[str, set[str]] = {}
    granted: dict[tuple[str, int], int] = {}
    found = set()
    for line in lines[1:]:
        entry: dict[str, Any] = json.loads(line)
        event = entry["event"]
        ended = [
            key
            for key in granted
            if (event["type"] == "MessageDone" and key == (event["job_id"], event["request"]))
            or (event["type"] == "JobExited" and key[0] == event["job_id"])
        ]
        for key in ended:
            found.add((key[0], granted.pop(key), event["at_ns"]))
        for one in entry["instructions"]:
            if one["type"] == "Launch":
                node_of[one["job_id"]] = {slot["node"] for slot in one["slots"]}
            elif one["type"] == "GrantMessage" and len(node_of[one["job_id"]]) > 1:
                granted[one["job_id"], one["request"]] = event["at_ns"]
    return found


@pytest.mark.parametrize("options", [{}, {"bucket_bytes": 1_500_000}, {"turns": True}])
def test_the_page_gets_every_message_of_the_log(tmp_path: Path, options: dict[str, Any]) -> None:
    driver = driven(7, **options)
    run = read_recording(str(write(tmp_path, driver.log)))
    data = RunData(run, "run")
    values, overview = unpack(data.overview)
    assert run.live is not None
    first_ns = min(found.job.arrival_ns for found in driver.progress.values())
    found = set()
    for _, columns in parts_of(data):
        for job, group, _, ready, start, end in messages_of(columns):
            assert ready <= start
            found.add((values["job_id"][job], start + first_ns, end + first_ns))
            at = int(np.sum(overview["group_size"][:group]))
            servers = overview["group_server"][at : at + overview["group_size"][group]]
            names = {values["server"][server] for server in servers}
            assert names == {slot.node for slot in driver.progress[values["job_id"][job]].slots}
    assert found == spans_in(driver.log)
    assert len(found) == sum(len(one.messages) for one in driver.progress.values())
    for row, job_id in enumerate(values["job_id"]):
        progress = driver.progress[job_id]
        assert overview["arrival"][row] + first_ns == progress.job.arrival_ns
        assert overview["start"][row] + first_ns == progress.start_ns
        assert overview["finish"][row] + first_ns == progress.finish_ns
    # A job sends and waits, or it computes.
    parts = [overview[f"{name}_total"] for name in ("computing", "sending", "waiting")]
    running = overview["finish"] - overview["start"]
    assert np.sum(parts, axis=0).tolist() == running.tolist()


def test_attempts_queued_jobs_and_what_is_unknown_are_told_apart(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.begin(0, UNIX_NS)
    named = JobSpec(command=("x",), gpus=2, memory_bytes=1, name="mine", retries=1, iterations=9)
    log.add(
        *nodes(5),
        JobSubmitted(at_ns=10, job_id="1", spec=named),
        IterationDone(at_ns=20, job_id="1", attempt=1, iterations=3),
        JobExited(at_ns=30, job_id="1", attempt=1, code=1),
        IterationDone(at_ns=34, job_id="1", attempt=2, iterations=1),
        JobSubmitted(at_ns=35, job_id="2", spec=JobSpec(command=("x",), gpus=5)),
        JobSubmitted(at_ns=36, job_id="3", spec=JobSpec(command=("x",), gpus=6)),
        JobCancelled(at_ns=38, job_id="3"),
        PolicyChanged(at_ns=39, policy="ff+srsf:2"),
        sent(40, 1, attempt=2),
        MessageDone(at_ns=44, job_id="1", attempt=2, request=1),
    )
    log.begin(50, UNIX_NS + 1000)
    log.add(*nodes(51))
    run = read_recording(str(tmp_path))
    values, columns = unpack(RunData(run, "run").overview)
    assert values["job_id"] == ["1.1", "1.2", "2", "3"]
    assert values["job_name"] == ["mine", "mine", "", ""]
    assert values["last_state"] == ["failed", "failed", "queued", "cancelled"]
    assert values["server"] == ["a", "b"]
    assert values["unknown"] == [[34, 990]]
    assert values["begun_ms"] == UNIX_NS // 10**6
    assert columns["arrival"].tolist() == [0, 20, 25, 26]
    assert columns["start"].tolist() == [0, 20, 991, 28]
    assert columns["finish"].tolist() == [20, 34, 991, 28]
    assert columns["iterations"].tolist() == [3, 1, 0, 0]
    assert columns["gpu_count"].tolist() == [2, 2, 5, 6]
    assert columns["gpus_held"].tolist() == [2, 2, 0, 0]
    # One run of it, by its log.
    first = read_recording(str(tmp_path / "events-000001-000001.jsonl"))
    assert first.jobs["job_id"].to_list() == ["1.1", "1.2", "2", "3"]
    assert first.settings["admission"] == "srsf:2"


def test_how_jobs_ended_is_told_apart(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.begin(0, UNIX_NS)
    log.add(
        *nodes(5),
        *(JobSubmitted(at_ns=10, job_id=job, spec=SPEC) for job in "1234"),
        JobCancelled(at_ns=20, job_id="2"),
        JobExited(at_ns=30, job_id="1", attempt=1, code=0),
        JobExited(at_ns=30, job_id="2", attempt=1, code=143),
        JobExited(at_ns=30, job_id="3", attempt=1, code=1),
        IterationDone(at_ns=40, job_id="4", attempt=1, iterations=1),
    )
    values, _ = unpack(RunData(read_recording(str(tmp_path)), "run").overview)
    assert values["last_state"] == ["done", "cancelled", "failed", "running"]


def test_the_command_shows_folders_and_logs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    write(folder, driven(1).log)
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes((folder / "events.jsonl").read_bytes())
    for number, path in enumerate((folder, folder / "events.jsonl", copy)):
        page = tmp_path / f"{number}.html"
        assert headway(capsys, "view", str(path), "-o", str(page)).status == 0
        assert b'id="run-0-part-0"' in page.read_bytes()


def test_what_is_not_a_log_of_jobs_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match="no event log in this folder"):
        read_recording(str(tmp_path))
    log = Log(tmp_path)
    log.begin(0, UNIX_NS)
    log.add(*nodes(1))
    with pytest.raises(InputError, match="no job has been submitted"):
        read_recording(str(tmp_path))
    log.add(JobSubmitted(at_ns=2, job_id="1", spec=SPEC))
    with log.path.open("ab") as stream:
        stream.write(b'{"event":{}}\n')
    outcome = headway(capsys, "view", str(tmp_path), "-o", str(tmp_path / "x.html"))
    assert outcome.status == 2
    assert f"{log.path}, line 5: not a line of a log" in outcome.err.replace("\n", " ")
    (tmp_path / "old.jsonl").write_text(
        '{"headway_log":1,"version":"0.1.0","policy":"paper","network":{},"seed":0}\n'
    )
    with pytest.raises(InputError, match="is a log of format 1"):
        read_recording(str(tmp_path / "old.jsonl"))
