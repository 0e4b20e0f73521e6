"""Policies of one's own that never decide, or end the process, hold up no scheduler."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from headway.domain.errors import HeadwayError, InputError, PolicyError
from headway.live.daemon import policy_trial
from headway.live.daemon.policy_trial import Trial, try_policy
from headway.network.contention import NetworkModel
from live.scheduler_process import SLEEPS, python, running_scheduler

pytestmark = pytest.mark.slow

FIRST = "def chosen(cluster, job, candidates, parameter):\n    return True\n"
LEAVES = "import os; os._exit(7)"
HANGS = (
    "def chosen(cluster, job, candidates, parameter):\n"
    "    while cluster.jobs[job].gpus > 0:\n"
    "        pass\n"
    "    return True\n"
)
LATER = (
    "def chosen(cluster, message, parameter):\n"
    "    while cluster.messages[message].links > 1:\n"
    "        pass\n"
    "    return 0\n"
)
PLACES, ADMITS = "{}:chosen+fifo+srsf:1", "ff+fifo+{}:chosen"

PATIENT = {"load": 180.0, "compile": 600.0, "decide": 180.0}
BAD: dict[str, tuple[str, str, str, type[HeadwayError], str]] = {
    "never loads": ("while True: pass", PLACES, "load", PolicyError, "did not load within 1 s"),
    "never places": (HANGS, PLACES, "decide", PolicyError, "did not decide within 1 s"),
    "never admits": (LATER, ADMITS, "decide", PolicyError, "did not decide within 1 s"),
    "ends": ("import os; os._exit(7)", PLACES, "", PolicyError, "ended its process with code 7"),
    "is missing": ("x = 1", PLACES, "", InputError, "chosen"),
    "does not compile": (FIRST.replace("True", "[job, 'x']"), PLACES, "", PolicyError, "own.py"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_policy_that_is_no_good_is_refused_after_a_trial(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, policy, step, kind, problem = BAD[name]
    file = tmp_path / "own.py"
    file.write_text(code)
    monkeypatch.setattr(policy_trial, "LIMITS_S", PATIENT | ({step: 1.0} if step else {}))
    with pytest.raises(kind, match=problem):
        asyncio.run(try_policy(Trial(policy.format(file), NetworkModel())))


def test_a_scheduler_neither_takes_nor_starts_with_a_policy_that_ends_its_process(
    tmp_path: Path,
) -> None:
    file = tmp_path / "own.py"
    file.write_text(LEAVES)
    policy = PLACES.format(file)
    with running_scheduler(tmp_path / "state") as one:
        waiting = one.submit(python(SLEEPS), gpus=4)
        one.wait_for(waiting, "running")
        with pytest.raises(InputError, match="ended its process with code 7 when it was tried"):
            one.client.set_policy(policy)
        assert one.client.status()["policy"] == "ff+srsf:1"
        file.write_text(FIRST)
        assert one.client.set_policy(policy) == policy
        one.stop()
        file.write_text(LEAVES)
        settings = one.config.read_text()
        one.config.write_text(settings.replace('policy = "ff+srsf:1"\n', ""))
        environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
        refused = subprocess.run(
            one.command, env=environment, capture_output=True, text=True, check=False
        )
        one.config.write_text(settings)
        assert refused.returncode == 2
        assert "ended its process with code 7 when it was tried. It was the last" in refused.stderr
        one.start()
        assert one.client.job(waiting)["state"] == "running"
