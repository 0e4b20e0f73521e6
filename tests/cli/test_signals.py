"""Ctrl-C and SIGTERM end a command soon, with the right status and nothing half-written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from waiting import PATIENCE_S, eventually

HEADWAY = [sys.executable, "-m", "headway"]
SIGNALS = pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["int", "term"]
)
WORKLOAD = (
    "job_id,arrival_s,model,gpus,iterations\n1,0,vgg16,4,5\n2,0,resnet50,8,5\n3,0,lstm-ptb,2,5\n"
)
PROMPT_S = 15.0
"""A process ends within two seconds of a signal; a busy machine may take longer."""

LOOP = """
def forever(cluster, job, parameter):
    turns = 0
    while cluster.system[0].now_ns >= 0:
        turns += 1
    return turns
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("w.csv").write_text(WORKLOAD)


def ended_by(number: signal.Signals, process: subprocess.Popen[bytes]) -> int:
    """Send a signal, and return the status with which the process soon ends."""
    process.send_signal(number)
    sent = time.monotonic()
    _, err = process.communicate(timeout=PATIENCE_S)
    assert time.monotonic() - sent < PROMPT_S
    assert b"Traceback" not in err
    return process.returncode


def spent_s(process: subprocess.Popen[bytes]) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.slow
@SIGNALS
@pytest.mark.parametrize(
    "command",
    [
        "simulate w.csv --priority loop.py:forever --json o.json --timeline t.parquet",
        "compare w.csv --policies lwf:1+loop.py:forever+srsf:1,paper --json o.json",
    ],
    ids=["simulate", "compare"],
)
def test_a_compiled_policy_that_never_returns_can_be_stopped(
    command: str, number: signal.Signals, status: int
) -> None:
    Path("loop.py").write_text(LOOP)
    Path("o.json").write_text("old")
    process = subprocess.Popen(
        [*HEADWAY, *command.split()], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    # Starting and compiling take processor time too, but not this much.
    eventually(lambda: spent_s(process) > 5.0)
    assert ended_by(number, process) == status
    assert Path("o.json").read_text() == "old"
    assert {name for name in os.listdir() if name.startswith((".", "t."))} == set()


@pytest.mark.parametrize(
    ("body", "number"),
    [
        ("time.sleep(600)", signal.SIGINT),
        ("time.sleep(600)", signal.SIGTERM),
        ("time.sleep(600)", signal.SIGHUP),
        ("exec('while True:\\n try: 0\\n except: 0')", signal.SIGINT),
    ],
)
def test_a_signal_while_a_policy_file_is_imported_ends_the_command(
    body: str, number: signal.Signals
) -> None:
    Path("slow.py").write_text(f"import time\nopen('begun', 'w').close()\n{body}\n")
    process = subprocess.Popen(
        [*HEADWAY, "simulate", "w.csv", "--priority", "slow.py:x"], stderr=subprocess.PIPE
    )
    eventually(lambda: os.path.exists("begun"))
    assert ended_by(number, process) == 128 + number


SECOND = """
import os, pathlib, signal
from headway import interrupts
from headway.files import open_output

unlink = pathlib.Path.unlink

def interrupted(path, **options):
    os.kill(os.getpid(), signal.SIGINT)
    unlink(path, **options)

pathlib.Path.unlink = interrupted
interrupts.handle_signals()
try:
    with open_output("o.json") as stream:
        raise KeyboardInterrupt  # as polars does
finally:
    interrupts.leave_now()
"""


def test_a_second_interrupt_while_files_are_removed_leaves_none() -> None:
    done = subprocess.run([sys.executable, "-c", SECOND], capture_output=True, check=False)
    assert (done.returncode, os.listdir()) == (130, ["w.csv"])


def test_a_closed_terminal_does_not_end_a_command_under_nohup() -> None:
    script = (
        "import os, signal; from headway import interrupts; interrupts.handle_signals(); "
        "os.kill(os.getpid(), signal.SIGHUP); print('alive')"
    )
    command = ["bash", "-c", 'trap "" HUP; "$0" -c "$1"', sys.executable, script]
    assert subprocess.check_output(command) == b"alive\n"


UNFINISHED = """
import os, signal
from headway import interrupts

class Half:
    def __init__(self):
        os.kill(os.getpid(), signal.SIGINT)
        self.rest = 0

    def __del__(self):
        del self.rest

interrupts.handle_signals()
Half()
"""


def test_an_object_that_a_signal_left_unfinished_is_not_reported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNFINISHED], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (130, "\nheadway: interrupted\n")


STORM = """
import itertools, json, os, random, signal, sys, time
import headway.cli.main, headway.cli.simulate, headway.engine.run
import headway.results.store, headway.workload.files
from headway import __main__

def run():
    child = os.fork()
    if child:
        return child
    error = os.open("err", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(error, 2)
    sys.argv = "headway simulate w.csv -q --timeline t.parquet --json o.json".split()
    status = 70
    try:
        __main__.main()
    except SystemExit as end:
        status = end.code or 0
    finally:
        os._exit(status)

def outcome(child):
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return status, open("err").read(), open("o.json").read(), sorted(os.listdir())

draw = random.Random(int(sys.argv[1]))
open("o.json", "w").write("old")
outcome(run())  # which may have to compile
begun = time.monotonic()
seen = [(0, 0.0, *outcome(run()))]
length = time.monotonic() - begun
for number in itertools.cycle([signal.SIGINT, signal.SIGTERM]):
    open("o.json", "w").write("old")
    open("err", "w").close()
    child, delay = run(), draw.uniform(0, 1.2 * length)
    time.sleep(delay)
    os.kill(child, number)
    seen.append((number, delay, *outcome(child)))
    # Runs do not all take the same time: go on until both signals have met some of them.
    both = {130, 143} <= {status for _, _, status, *_ in seen}
    if len(seen) > 30 and (both or len(seen) > 300):
        break
print(json.dumps(seen))
"""


@pytest.mark.slow
def test_no_signal_is_lost_whenever_it_comes() -> None:
    Path("storm.py").write_text(STORM)
    done = subprocess.run(
        [sys.executable, "storm.py", "1"], capture_output=True, text=True, check=True, timeout=900
    )
    (_, _, status, _, new, listing), *stormy = json.loads(done.stdout)
    assert status == 0
    ends = {signal.SIGINT: 130, signal.SIGTERM: 143}
    for number, delay, status, err, content, files in stormy:
        # One that comes before the handlers are installed, or when all is done, has no effect here.
        case = (delay, status, err)
        assert status in (0, ends[number], -number), case
        assert "Traceback" not in err, case
        assert "Error" not in err, case
        assert (status == 130) == ("interrupted" in err), case
        assert content == "old" or json.loads(content)["jobs"] == json.loads(new)["jobs"], case
        assert content != "old" or status != 0, case
        assert set(files) <= set(listing), case
    assert {130, 143} <= {status for _, _, status, *_ in stormy}
