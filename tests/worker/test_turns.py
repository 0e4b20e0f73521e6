"""A rank's turns to compute: each pass has one, each turn ends, and the wait is not measured."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import headway.torch
from gate.threaded_gate import ThreadedGate, threaded_gate, unix_environment
from headway.domain.errors import InputError
from headway.worker import turn_client
from headway.worker.client import GateClient
from headway.worker.timing import (
    Laps,
    PassTimer,
    backward_parts_ns,
    forward_backward_ns,
    optimizer_ns,
)
from headway.worker.turn_client import TurnClient
from waiting import PATIENCE_S, eventually
from worker.alone import ddp_model

pytestmark = pytest.mark.torch


@dataclass
class Outputs:
    """Outputs of a model as a dataclass."""

    values: list[torch.Tensor]


class Model(torch.nn.Module):
    """A model with an inner module, as DDP has; `shape` converts its output."""

    def __init__(self, shape: Any = None) -> None:
        super().__init__()
        self.module = torch.nn.Linear(2, 2)
        self.shape = shape or (lambda value: value)

    def forward(self, values: torch.Tensor) -> Any:
        return self.shape(self.module(values))


class Rank:
    """A rank's turns, and the requests that reach the gate."""

    def __init__(self, running: ThreadedGate, client: GateClient) -> None:
        self.running, self.client = running, client
        self.turns = TurnClient(client)

    def follow(self, shape: Any = None) -> Any:
        model: Any = Model(shape)
        self.turns.follow(model)
        return model

    def requests(self) -> str:
        """Return the gate's calls since the last time: + for a request, - for its end."""
        # A granted message comes after everything that was sent before it.
        request = self.client.message_ready(1, 1)
        assert self.client.wait_for_grant(request)
        self.client.message_done(request)
        recorder = self.running.recorder
        self.running.wait_for_call("done", "j", 1, request)
        calls, recorder.calls = recorder.calls, []
        signs = {"compute": "+", "computed": "-"}
        return "".join(signs[one[0]] for one in calls if one[0] in signs)


@pytest.fixture
def rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rank]:
    """Return a rank whose turns linger until the next one."""
    monkeypatch.setattr(turn_client, "LINGER_S", 3600.0)
    with threaded_gate(unix=tmp_path / "gate") as running:
        client = GateClient(unix_environment(tmp_path / "gate"))
        client.wait_for_first_try(PATIENCE_S)
        rank = Rank(running, client)
        yield rank
        with rank.turns.turn():
            pass  # ends the turn that lingers
        client.close()


def outputs(value: torch.Tensor) -> Outputs:
    return Outputs([value, value * 2])


@pytest.mark.parametrize(
    ("shape", "loss"),
    [
        (None, lambda found: found.sum()),
        (outputs, lambda found: (found.values[0] + found.values[1]).sum()),
        (lambda value: {"all": (value, 5)}, lambda found: found["all"][0].sum()),
    ],
)
def test_each_forward_and_each_backward_pass_has_a_turn(rank: Rank, shape: Any, loss: Any) -> None:
    model = rank.follow(shape)
    found = model(torch.ones(3, 2))
    assert rank.requests() == "+"
    loss(found).backward()
    assert rank.requests() == "+--"
    with torch.no_grad():
        model(torch.ones(3, 2))
    assert rank.requests() == "+-"


def test_a_backward_pass_through_several_forward_passes_has_one_turn(rank: Rank) -> None:
    model = rank.follow()
    loss = model(torch.ones(3, 2)).sum() + model(torch.zeros(3, 2)).sum()
    assert rank.requests() == "++-"
    loss.backward(retain_graph=True)
    loss.backward()
    assert rank.requests() == "+--+-"


def test_the_pass_after_a_pass_asks_before_the_turn_ends(rank: Rank) -> None:
    model = rank.follow()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rank.turns.follow_steps(optimizer, torch.device("cpu"))
    for expected in ("+", "+-"):
        loss = model(torch.ones(3, 2)).sum()
        assert not rank.turns.computing
        assert rank.requests() == expected
        loss.backward()
        assert rank.requests() == "+--"
        optimizer.step()
        assert rank.requests() == "+"


def test_a_turn_outlasts_a_pass_only_briefly(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_client, "LINGER_S", 0.001)
    rank.follow()(torch.ones(3, 2))
    eventually(lambda: rank.running.recorder.kinds()[-2:] == ["compute", "computed"])


def test_a_failed_pass_ends_its_turn_at_once(rank: Rank) -> None:
    model = rank.follow()
    with pytest.raises(RuntimeError):
        model(torch.ones(3, 5))
    assert rank.requests() == "+-"
    values: Any = torch.ones(3, 2, requires_grad=True)

    def fail(_gradient: torch.Tensor) -> None:
        raise ValueError

    values.register_hook(fail)
    with pytest.raises(ValueError):  # noqa: PT011
        model(values).sum().backward()
    assert rank.requests() == "++--"
    model(torch.ones(3, 2)).sum().backward()
    assert rank.requests() == "++--"


def test_a_computation_has_one_turn_even_if_nested(rank: Rank) -> None:
    with rank.turns.turn(), rank.turns.turn():
        assert rank.requests() == "+"
    assert rank.requests() == "-"
    with pytest.raises(KeyError), rank.turns.turn():
        raise KeyError
    assert rank.requests() == "+-"


def test_communication_inside_a_computation_is_an_error(
    monkeypatch: pytest.MonkeyPatch, rank: Rank
) -> None:
    monkeypatch.setattr(TurnClient, "of_process", rank.turns)
    with (
        rank.turns.turn(),
        pytest.raises(InputError, match="inside"),
        headway.torch.communication(1),
    ):
        pass


def test_without_a_gate_turns_do_not_wait(tmp_path: Path) -> None:
    client = GateClient(unix_environment(tmp_path / "gate"))
    client.wait_for_first_try(PATIENCE_S)
    with TurnClient(client).turn():
        pass
    client.close()


def test_the_wait_for_a_turn_is_not_part_of_a_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [0]
    monkeypatch.setattr(time, "perf_counter_ns", lambda: clock[0])

    def works(_module: Any, _values: Any, value: torch.Tensor) -> None:
        clock[0] += 10

    model = torch.nn.Linear(2, 2)
    model.register_forward_hook(works)
    timer = PassTimer(model)
    for wait_ns in (1_000, 2_000):
        with timer.pause():
            clock[0] += wait_ns
        model(torch.ones(1, 2))
    clock[0] += 3
    with timer.pause():
        clock[0] += 4_000
    clock[0] += 20
    timer.bucket_ready(first=True)
    clock[0] += 7
    timer.bucket_ready(first=False)
    laps = timer.stop(on_gpu=False)
    assert forward_backward_ns(laps) == (20, 30)
    assert backward_parts_ns(laps) == [23, 7]
    end_ns, clock[0] = clock[0] + 100, clock[0] + 500
    with timer.pause():
        clock[0] += 5_000
    model(torch.ones(1, 2))
    clock[0] += 5
    timer.bucket_ready(first=True)
    laps = timer.stop(on_gpu=False)
    assert forward_backward_ns(laps) == (10, 5)
    assert optimizer_ns(end_ns, laps) == 400
    assert forward_backward_ns(Laps([], [], [7], [])) == (0, 0)


def test_a_model_that_communicates_inside_a_pass_cannot_take_turns() -> None:
    import headway.torch

    model = ddp_model(torch.nn.SyncBatchNorm(2))
    with pytest.raises(InputError, match="compute: SyncBatchNorm communicates inside a pass"):
        headway.torch.attach(model, compute=True)
    headway.torch.attach(model)
    optimizer = torch.optim.SGD([torch.ones(1)], lr=0.1)
    with pytest.raises(InputError, match=r"optimizer: takes turns only with compute=True\."):
        headway.torch.attach(model, optimizer=optimizer)
    with headway.torch.computation():
        pass
