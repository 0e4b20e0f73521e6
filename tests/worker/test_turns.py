"""A rank's turns: every pass has one, every turn ends, and waiting is not measured."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import headway.torch
from gate.gates import Running, address, running_gate
from headway.domain.errors import InputError
from headway.worker.client import GateClient
from headway.worker.timing import Laps, Meter, split
from headway.worker.turns import Turns


@dataclass
class Outputs:
    """What some models return."""

    values: list[torch.Tensor]


class Model(torch.nn.Module):
    """A model inside another, as in DDP; `shape` makes what it returns."""

    def __init__(self, shape: Any = None) -> None:
        super().__init__()
        self.module = torch.nn.Linear(2, 2)
        self.shape = shape or (lambda value: value)

    def forward(self, values: torch.Tensor) -> Any:
        return self.shape(self.module(values))


class Rank:
    """A rank's turns, and what the gate hears of them."""

    def __init__(self, running: Running, client: GateClient) -> None:
        self.running, self.client = running, client
        self.turns = Turns(client)

    def follow(self, shape: Any = None) -> Any:
        model: Any = Model(shape)
        self.turns.follow(model)
        return model

    def heard(self) -> str:
        """Return what the gate has heard since the last time: + for a request, - for its end."""
        # A message that is granted comes after all that was said before it.
        request = self.client.ask(1, 1)
        assert self.client.wait(request)
        self.client.done(request)
        recorder = self.running.recorder
        assert self.running.hears("done", "j", 1, request)
        heard, recorder.heard = recorder.heard, []
        signs = {"compute": "+", "computed": "-"}
        return "".join(signs[one[0]] for one in heard if one[0] in signs)


@pytest.fixture
def rank(tmp_path: Path) -> Iterator[Rank]:
    with running_gate(unix=tmp_path / "gate") as running:
        client = GateClient(address(running, tmp_path / "gate"))
        client.wait_for_first_try(30)
        yield Rank(running, client)
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
def test_a_forward_and_a_backward_pass_have_a_turn_each(rank: Rank, shape: Any, loss: Any) -> None:
    model = rank.follow(shape)
    found = model(torch.ones(3, 2))
    assert rank.heard() == "+-"
    loss(found).backward()
    assert rank.heard() == "+-"
    with torch.no_grad():
        model(torch.ones(3, 2))
    assert rank.heard() == "+-"


def test_a_backward_pass_through_several_forward_passes_has_one_turn(rank: Rank) -> None:
    model = rank.follow()
    loss = model(torch.ones(3, 2)).sum() + model(torch.zeros(3, 2)).sum()
    assert rank.heard() == "+-+-"
    loss.backward(retain_graph=True)
    loss.backward()
    assert rank.heard() == "+-+-"


def test_a_pass_that_fails_ends_its_turn_now_or_with_the_next_one(rank: Rank) -> None:
    model = rank.follow()
    with pytest.raises(RuntimeError):
        model(torch.ones(3, 5))
    assert rank.heard() == "+-"
    values: Any = torch.ones(3, 2, requires_grad=True)

    def fail(_gradient: torch.Tensor) -> None:
        raise ValueError

    values.register_hook(fail)
    with pytest.raises(ValueError):  # noqa: PT011
        model(values).sum().backward()
    assert rank.heard() == "+-+"
    model(torch.ones(3, 2)).sum().backward()
    assert rank.heard() == "-+-+-"


def test_a_block_that_computes_has_a_turn_and_those_inside_it_none(rank: Rank) -> None:
    with rank.turns.turn(), rank.turns.turn():
        assert rank.heard() == "+"
    assert rank.heard() == "-"
    with pytest.raises(KeyError), rank.turns.turn():
        raise KeyError
    assert rank.heard() == "+-"


def test_a_block_that_computes_does_not_talk(monkeypatch: pytest.MonkeyPatch, rank: Rank) -> None:
    monkeypatch.setattr(Turns, "mine", rank.turns)
    with (
        rank.turns.turn(),
        pytest.raises(InputError, match="inside"),
        headway.torch.communication(1),
    ):
        pass


def test_without_a_gate_nobody_waits_for_a_turn(tmp_path: Path) -> None:
    with running_gate(unix=tmp_path / "gate") as running:
        where = address(running, tmp_path / "gate")
    client = GateClient(where)
    client.wait_for_first_try(30)
    with Turns(client).turn():
        pass
    client.close()


def test_the_time_that_a_turn_is_waited_for_is_not_that_of_a_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [0]
    monkeypatch.setattr(time, "perf_counter_ns", lambda: clock[0])

    def works(_module: Any, _values: Any, value: torch.Tensor) -> None:
        clock[0] += 10

    model = torch.nn.Linear(2, 2)
    model.register_forward_hook(works)
    meter = Meter(model)
    for wait_ns in (1_000, 2_000):
        with meter.pause():
            clock[0] += wait_ns
        model(torch.ones(1, 2))
    clock[0] += 3
    with meter.pause():
        clock[0] += 4_000
    clock[0] += 20
    laps = meter.stop(on_gpu=False)
    assert split(laps) == (20, 23)
    model(torch.ones(1, 2))
    clock[0] += 5
    assert split(meter.stop(on_gpu=False)) == (10, 5)
    assert split(Laps([], [], 7)) == (0, 0)


def test_a_model_that_talks_inside_a_pass_cannot_take_turns() -> None:
    import headway.torch

    model: Any = torch.nn.Sequential(torch.nn.SyncBatchNorm(2))
    with pytest.raises(InputError, match="compute: SyncBatchNorm talks to other ranks"):
        headway.torch.attach(model, compute=True)
    headway.torch.attach(model)
    with headway.torch.computation():
        pass
