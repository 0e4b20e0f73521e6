"""torchrun commands are taken apart into ranks, or refused."""

from __future__ import annotations

import shlex
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.domain.errors import InputError
from headway.torchx.torchrun import Torchrun, take_apart

PYTHON = sys.executable
DDP = (
    "torchrun --rdzv_backend c10d --rdzv_endpoint ${MASTER_ADDR:=localhost}:29500 "
    "--rdzv_id app --nnodes 2 --nproc_per_node 4 --tee 3 --role ''"
)
"""The command of dist.ddp on two nodes."""


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["torchrun", "train.py"], Torchrun(1, 1, 0, [PYTHON, "train.py"])),
        (
            ["/opt/bin/torchrun", "--nproc-per-node=4", "-m", "my.train", "--nnodes", "2"],
            Torchrun(1, 4, 0, [PYTHON, "-m", "my.train", "--nnodes", "2"]),
        ),
        (
            ["python3", "-u", "-m", "torch.distributed.run", "--max_restarts", "3", "train.py"],
            Torchrun(1, 1, 3, ["python3", "-u", "train.py"]),
        ),
        (
            ["torchrun", "--standalone", "--no-python", "--", "bash", "-c", "echo $RANK"],
            Torchrun(1, 1, 0, ["bash", "-c", "echo $RANK"]),
        ),
        (["bash", "-c", f"{DDP} train.py"], Torchrun(2, 4, 0, [PYTHON, "train.py"])),
        (
            ["/bin/sh", "-c", f"{DDP} -m train 'a b' \"it's\" --x=1 ''"],
            Torchrun(2, 4, 0, [PYTHON, "-m", "train", "a b", "it's", "--x=1", ""]),
        ),
    ],
)
def test_a_torchrun_command_becomes_what_its_ranks_run(
    command: list[str], expected: Torchrun
) -> None:
    assert take_apart(command) == expected


@given(st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8")), max_size=4))
def test_quoted_arguments_arrive_as_they_were_given(arguments: list[str]) -> None:
    line = f"{DDP} train.py {shlex.join(arguments)}"
    expected = Torchrun(2, 4, 0, [PYTHON, "train.py", *arguments])
    assert take_apart(["bash", "-c", line]) == expected


@pytest.mark.parametrize(
    "command",
    [
        ["/bin/echo", "hello"],
        ["bash", "-c", "echo $RANK | cat"],
        ["python", "-m", "train"],
        ["sh"],
        ["python", "train.py", "--logs=/data/torchrun-logs", "--timer", "torch.distributed.timers"],
    ],
)
def test_other_commands_are_left_alone(command: list[str]) -> None:
    assert take_apart(command) is None


ALL = "args: runs torchrun among other things"
WORDS = "args: torchrun needs a script, given word for word"


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (["bash", "-c", "pip install x && torchrun train.py"], ALL),
        (["bash", "-c", "cd src\ntorchrun train.py"], ALL),
        (["env", "A=1", "/opt/bin/torchrun", "train.py"], ALL),
        (["python", "-m", "torch.distributed.launch", "train.py"], ALL),
        (["bash", "-c", "torchrun train.py; rm -r data"], WORDS),
        (["bash", "-c", "torchrun train.py > log"], WORDS),
        (["bash", "-c", "torchrun train.py $DATA"], WORDS),
        (["bash", "-c", 'torchrun train.py "$DATA"'], WORDS),
        (["bash", "-c", "torchrun train.py *.csv"], WORDS),
        (["bash", "-c", "torchrun $SCRIPT"], WORDS),
        (["torchrun", "--nnodes", "2"], WORDS),
        (
            ["torchrun", "--log-dir", "logs", "train.py"],
            "args: torchrun's option '--log-dir' is not supported.",
        ),
        (
            ["torchrun", "--nproc_per_nod", "2", "train.py"],
            "args: torchrun's option '--nproc_per_nod' is not supported. "
            "Did you mean 'nproc-per-node'?",
        ),
        (
            ["torchrun", "--nproc_per_node", "gpu", "train.py"],
            "torchrun --nproc-per-node: must be a whole number, not 'gpu'.",
        ),
        (
            ["torchrun", "--nnodes=1:2", "train.py"],
            "torchrun --nnodes: must be a whole number, not '1:2'.",
        ),
    ],
)
def test_what_cannot_be_taken_apart_is_refused(command: list[str], problem: str) -> None:
    with pytest.raises(InputError) as caught:
        take_apart(command)
    assert str(caught.value).startswith(problem)
