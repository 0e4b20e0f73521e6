"""Damaged, endless and oddly written files get one exact line."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from unittest.mock import Mock

import polars
import pytest

from builders import GRAPHS
from cli.commands import headway
from graphs.imports.chakra_messages import collective, compute, write_trace
from headway.domain.errors import InputError, did_you_mean
from headway.workload import files
from headway.workload.columns import job_from_row
from headway.workload.files import read_workload
from headway.workload.graphs import write_graph

HEADER = "job_id,arrival_s,gpus,iterations,model\n"
GOOD = f"{HEADER}1,0,1,2,vgg16\n2,0,4,2,vgg16\n"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("w.csv").write_text(GOOD)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (GOOD.replace("\n", "\r"), "w.csv, line 1: lines end in CR alone; they must end in LF or"),
        (GOOD.replace(",", ";"), "w.csv, line 1: columns must be separated by commas, not semi"),
        (GOOD.replace(",", "\t"), "w.csv, line 1: columns must be separated by commas, not tabs."),
        (f'{HEADER}"1,0,1,2,vgg16\n', "w.csv, line 2: not CSV: a quotation mark is not closed."),
        (f"{HEADER}1,0,١,2,vgg16\n", "w.csv, line 2, column 3 (gpus): must be a whole number"),
        (f"{HEADER}1,１.5,1,2,vgg16\n", "w.csv, line 2, column 2 (arrival_s): must be a number of"),
    ],
    ids=["cr", "semicolons", "tabs", "quote", "arabic digit", "wide digit"],
)
def test_odd_csv_is_refused_in_plain_words(
    content: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("w.csv").write_bytes(content.encode())
    outcome = headway(capsys, "simulate", "w.csv")
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err.startswith(f"headway: error: {message}")
    assert outcome.err.count("\n") == 1


def test_toml_may_begin_with_a_byte_order_mark(capsys: pytest.CaptureFixture[str]) -> None:
    Path("n.toml").write_bytes(
        b"\xef\xbb\xbf[network]\na_ns = 1\nb_ns_per_byte = 1.0\neta_ns_per_byte = 0.0\n"
    )
    assert headway(capsys, "simulate", "w.csv", "-q", "--network", "n.toml").status == 0


def test_a_list_of_tables_in_place_of_a_table_is_named_as_it_is_written(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("c.toml").write_text("[[cluster]]\nservers = 1\n")
    outcome = headway(capsys, "simulate", "w.csv", "--cluster", "c.toml")
    assert outcome.err == (
        "headway: error: c.toml, line 1, column 3 (cluster): must be a table [cluster], not a list "
        "of tables [[cluster]].\n"
    )


def test_sizes_that_differ_look_different(capsys: pytest.CaptureFixture[str]) -> None:
    Path("w.csv").write_text(
        "job_id,arrival_s,gpus,iterations,forward_ms,backward_ms,gradient_mb,memory_mb\n"
        "1,0,1,2,1,1,1,16384.000001\n"
    )
    outcome = headway(capsys, "simulate", "w.csv")
    assert "needs 17,179,869,185 bytes on each GPU, but a GPU has 16,384 MB." in outcome.err


def test_a_tiny_bucket_is_refused_and_not_rounded_to_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    outcome = headway(capsys, "simulate", "w.csv", "--bucket-mb", "1e-9")
    assert outcome.status == 2
    assert "must be at least 0.000001 MB, not 1e-09." in outcome.err
    assert headway(capsys, "simulate", "w.csv", "-q", "--bucket-mb", "0").status == 0


@pytest.mark.parametrize("option", ["--rows", "--columns", "--value"])
def test_a_misspelled_name_is_found_before_a_sweep_runs(
    option: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.engine.run.drive", lambda *_: pytest.fail("it was run"))
    Path("s.toml").write_text(
        '[sweep]\nworkloads = "w.csv"\nclusters = "4x4"\npolicies = ["paper", "headway"]\n'
    )
    outcome = headway(capsys, "sweep", "s.toml", option, "polcy")
    assert outcome.status == 2
    assert "unknown name 'polcy'." in outcome.err
    assert not Path("s").exists()


def test_an_unknown_job_among_many_does_not_list_them_all() -> None:
    assert did_you_mean("x", map(str, range(60_000))) == " There are 60,000, from '0' to '59999'."
    assert did_you_mean("x", "ab") == " Known: a, b."


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("simulate /dev/zero", "/dev/zero, line 1: not a text file"),
        ("simulate zero.parquet", "zero.parquet: is not a Parquet file."),
        ("explain /dev/zero 1", "/dev/zero, line 1: not a text file"),
        ("explain zero.parquet 1", "zero.parquet: is not a timeline"),
        ("report /dev/zero -o x.svg", "/dev/zero: is not a timeline"),
    ],
)
def test_an_endless_file_is_refused_at_its_beginning(
    command: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    os.symlink("/dev/zero", "zero.parquet")
    outcome = headway(capsys, *command.split())
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err.startswith(f"headway: error: {message}")


@pytest.mark.parametrize(
    ("command", "content", "message"),
    [
        (
            "explain w.csv none",
            GOOD.replace("\n1,", '\n"a\nb",'),
            r"w.csv: there is no job 'none'. Known: 2, a\nb.",
        ),
        ("explain w.csv ab", GOOD.replace("\n1,", '\n"a\nb",'), r"Did you mean 'a\nb'?"),
        (
            "simulate w.csv",
            GOOD.replace("\n2,", '\n"a\nb",') + '"a\nb",0,1,2,vgg16\n',
            r"'a\nb' is",
        ),
        ("simulate w.csv", GOOD.replace("vgg16\n2", '"vgg\n16"\n2'), r"unknown model 'vgg\n16'."),
        (f"simulate {'x/' * 2500}w.csv", GOOD, "x/x/w.csv: File name too long."),
    ],
)
def test_a_message_is_one_short_line_whatever_is_in_an_id_or_a_path(
    command: str, content: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("w.csv").write_text(content)
    outcome = headway(capsys, *command.split())
    assert (outcome.status, outcome.out) == (2, "")
    assert message in outcome.err
    assert outcome.err.count("\n") == 1
    assert len(outcome.err) < 700


HEADER_LINE = (
    '{"headway_log":2,"version":"0.2.0","policy":"headway","network":{"a_ns":1,"b_ns_per_byte":1.0,'
    '"eta_ns_per_byte":0.0,"law":"busiest","ring_size":null},"seed":0,"leases":{"least_ns":1,'
    '"factor":10,"stuck_ns":10},"clock_ns":0,"unix_ns":1795120121772693719}\n'
)
EVENTS = (
    '{"event":{"type":"NodeUp","at_ns":1,"node":"n","gpus":4,"memory_bytes":9},"instructions":[]}\n'
    '{"event":{"type":"JobSubmitted","at_ns":2,"job_id":"1","spec":{"command":["x"],"gpus":1,'
    '"memory_bytes":1}},"instructions":[{"type":"Launch","job_id":"1","attempt":1,"slots":'
    '[{"node":"n","index":0}]}]}\n'
)


@pytest.mark.parametrize(
    ("log", "sound"),
    [
        (HEADER_LINE + EVENTS, True),
        (HEADER_LINE + EVENTS + EVENTS, False),
        (HEADER_LINE + EVENTS.replace('"at_ns":2', f'"at_ns":{10**29}'), False),
        (HEADER_LINE + EVENTS.replace('"at_ns":2', f'"at_ns":{2**63 - 1}'), False),
        (HEADER_LINE.replace("1795120121772693719", f"{2**64}") + EVENTS, False),
        (HEADER_LINE + EVENTS.replace('"index":0', f'"index":{10**29}'), False),
        (HEADER_LINE + EVENTS.replace('{"node":"n","index":0}', ""), False),
    ],
    ids=["sound", "twice", "late", "last", "clock", "index", "no slots"],
)
def test_a_log_of_events_that_no_run_can_have_is_not_shown(
    log: str, sound: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("events.jsonl").write_text(log)
    outcome = headway(capsys, "view", "events.jsonl", "-o", "page.html")
    assert outcome.status == (0 if sound else 2), outcome.err
    assert sound or outcome.err.startswith("headway: error: events.jsonl")
    assert sound or outcome.err.count("\n") == 1


HALF_PAIR = {
    "explain w.csv 1 --json -": "w.csv, line 2, column 5 (graph): g.json, task '\\ud800', name: ",
    "graph show g.json -o g.svg": "g.json, task '\\ud800', name: ",
    "workload import philly p.json --strict": "p.json, line 1, job_id: ",
}


@pytest.mark.parametrize("command", HALF_PAIR)
def test_half_a_surrogate_pair_in_json_is_refused_when_it_is_read(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("w.csv").write_text("job_id,arrival_s,gpus,iterations,graph\n1,0,2,2,g.json\n")
    Path("g.json").write_text('{"ranks": 2, "tasks": [{"name": "\\ud800", "ms": 1}]}')
    when = '"2017-10-07 01:00:0'
    Path("p.json").write_text(
        f'[{{"jobid": "\\ud800", "submitted_time": {when}0", "attempts": [{{"start_time": {when}1",'
        f' "end_time": {when}9", "detail": [{{"ip": "m1", "gpus": ["gpu0"]}}]}}]}}]'
    )
    outcome = headway(capsys, *command.split())
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err == f"headway: error: {HALF_PAIR[command]}is no Unicode text: '\\ud800'.\n"


@pytest.mark.parametrize(
    ("most", "message"),
    [
        (10**7, "w.parquet, line 2, job_id: '1' is the id of line 1 too; ids must differ."),
        (1000, "w.parquet: has 100,000 rows; at most 1,000 are allowed."),
    ],
)
def test_parquet_of_countless_equal_rows_is_refused_before_they_are_all_read(
    most: int,
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = polars.read_csv("w.csv").head(1)
    rows.select(polars.all().repeat_by(100_000).explode()).write_parquet("w.parquet")
    read = Mock(side_effect=job_from_row)
    monkeypatch.setattr(files, "job_from_row", read)
    monkeypatch.setattr(files, "MAX_JOBS", most)
    outcome = headway(capsys, "simulate", "w.parquet")
    assert outcome.err == f"headway: error: {message}\n"
    assert read.call_count <= 2


NAMED_BY_INPUTS = {
    "simulate jobs.csv -q --json g.json": "g.json",
    "simulate jobs.csv -q --timeline ./g.json.parquet": "./g.json.parquet",
    "simulate jobs.parquet -q -o g.svg": "g.svg",
    "compare jobs.csv --policies paper,headway --json g.json": "g.json",
    "explain jobs.csv 1 --json g.json": "g.json",
    "graph import chakra trace --gpu h100 -o trace/t.1.et": "trace/t.1.et",
    "graph import chakra trace --gpu h100 -o trace/t.json": "trace/t.json",
    "cluster import slurm --conf slurm.conf -o topology.conf": "topology.conf",
    "cluster import slurm --conf slurm.conf -o included.conf": "included.conf",
}


@pytest.mark.parametrize("command", NAMED_BY_INPUTS)
def test_an_output_never_replaces_a_file_that_an_input_names(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_graph(GRAPHS["ddp"], "g.json")
    os.symlink("g.json", "g.json.parquet")
    os.symlink("g.json", "g.svg")
    table = "job_id,arrival_s,gpus,iterations,graph\n1,0,4,2,g.json\n"
    Path("jobs.csv").write_text(table)
    polars.read_csv("jobs.csv").write_parquet("jobs.parquet")
    write_trace(Path("trace"), *[[compute(1), collective(2, after=[1])]] * 2)
    Path("trace/t.json").write_text('{"1": [0, 1]}')
    Path("slurm.conf").write_text("Include included.conf\n")
    Path("included.conf").write_text("NodeName=n[1-4] Gres=gpu:a100:8 CPUs=8 RealMemory=1000\n")
    Path("topology.conf").write_text("SwitchName=s1 Nodes=n[1-2]\nSwitchName=s2 Nodes=n[3-4]\n")
    before = {path: path.is_file() and path.read_bytes() for path in Path().rglob("*")}
    outcome = headway(capsys, *command.split())
    assert outcome.err.splitlines()[-1] == (
        f"headway: error: {NAMED_BY_INPUTS[command]}: is an input too; give another file for the "
        "output."
    )
    assert outcome.status == 2
    assert {path: path.is_file() and path.read_bytes() for path in Path().rglob("*")} == before


STREAMS = {
    "no standard error": ("simulate w.csv -q --json o.json 2>&-", 0, ""),
    "no standard error for Parquet": ("simulate w.parquet -q --json o.json 2>&-", 0, ""),
    "no standard error for a message": ("explain none.parquet 1 2>&-", 2, ""),
    "no standard streams": ("simulate w.parquet -q --timeline t.parquet <&- >&- 2>&-", 0, ""),
    "full standard error": ("workload generate -o g.csv 2>/dev/full", 0, ""),
    "full standard error for the summary": ("simulate w.csv --json o.json 2>/dev/full", 0, ""),
    "full standard error for a message": ("explain none.parquet 1 2>/dev/full", 2, ""),
    "full disk for the summary": ("simulate w.csv >/dev/full", 2, "No space left on device."),
    **{
        f"full disk for {name}": (
            f"simulate w.csv -q --{name} - >/dev/full",
            2,
            "-: No space left on device.",
        )
        for name in ("json", "parquet", "timeline", "links")
    },
    **{
        f"full disk for {name}": (
            f"simulate w.csv -q {option} {name}",
            2,
            f"{name}: No space left on device.",
        )
        for option, name in (
            *(("-o", "full.pdf"), ("-o", "full.svg"), ("-o", "full.html")),
            *(("--timeline", "full.parquet"), ("--timeline", "full.pftrace")),
        )
    },
    **{
        f"a limit for {name}": (
            f"simulate w.csv -q --{name} limited.parquet",
            2,
            "limited.parquet: File too large.",
        )
        for name in ("parquet", "timeline")
    },
    **{
        f"no reader for {name}": (f"simulate w.csv -q --{name} -", 1, "")
        for name in ("json", "parquet", "timeline", "links")
    },
    "no reader of messages": ("simulate w.csv --parquet o.parquet 2>&1 >/dev/null", 0, ""),
}
"""What the shell runs, the exit code, and the message. What reads standard output has gone."""


@pytest.mark.parametrize("case", STREAMS)
def test_streams_that_are_full_or_gone_neither_harm_results_nor_go_unnoticed(case: str) -> None:
    command, status, message = STREAMS[case]
    polars.read_csv("w.csv").write_parquet("w.parquet")
    for kind in ("pdf", "svg", "html", "parquet", "pftrace"):
        os.symlink("/dev/full", f"full.{kind}")
    limit = "export NUMBA_DISABLE_JIT=1; ulimit -f 3; " if case.startswith("a limit") else ""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            ["bash", "-c", f'{limit}"$0" -m headway {command}', sys.executable],
            stdout=writer if case.startswith("no reader") else subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(writer)
    lines = [line for line in done.stderr.splitlines() if not line.startswith("Compiling ")]
    assert lines == ([f"headway: error: {message}"] if message else [])
    assert done.returncode == status
    assert not done.stdout or "error" not in done.stdout
    assert not [name for name in os.listdir() if name.startswith((".", "limited"))]


def test_threads_that_read_parquet_at_once_leave_standard_error_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("w.parquet").write_bytes(b"PAR1")
    inside = [threading.Event(), threading.Event()]
    left = threading.Event()

    def in_turn(*_: object, **__: object) -> None:
        """Have the reader that came first leave first, while the other is reading."""
        first = not inside[0].is_set()
        inside[0 if first else 1].set()
        assert (inside[1] if first else left).wait(60)
        raise polars.exceptions.ComputeError("damaged")

    def read() -> None:
        with pytest.raises(InputError, match="damaged"):
            read_workload("w.parquet")
        left.set()

    monkeypatch.setattr(polars, "read_parquet_metadata", in_turn)
    before = os.fstat(2)
    readers = [threading.Thread(target=read) for _ in range(2)]
    for one in readers:
        one.start()
    for one in readers:
        one.join()
    assert os.path.samestat(before, os.fstat(2))


def test_a_panic_on_damaged_parquet_is_one_line(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def panic(*_: object, **__: object) -> None:
        os.write(2, b"thread '<unnamed>' panicked at crates/polars-parquet\nnote: run with\n")
        raise polars.exceptions.PanicException("range end out of bounds")

    Path("w.parquet").write_bytes(b"PAR1 and more PAR1")
    monkeypatch.setattr(polars, "read_parquet_metadata", panic)
    monkeypatch.setattr(threading, "active_count", lambda: 1)  # whatever other tests left
    outcome = headway(capfd, "simulate", "w.parquet")
    assert outcome.err == ("headway: error: w.parquet: is damaged: 'range end out of bounds'.\n")
