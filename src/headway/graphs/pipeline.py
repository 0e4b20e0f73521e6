"""Pipelines: stages of a model on different devices, microbatches that pass through them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headway.domain.errors import InputError, did_you_mean, shown
from headway.domain.graph import Graph, Message, Task, check_nodes
from headway.domain.layers import Layer
from headway.domain.limits import MAX_GPUS, whole
from headway.graphs.ddp import BUCKET_BYTES, cut_backward
from headway.graphs.layers import some
from headway.graphs.rank_layout import RankLayout
from headway.graphs.schedules import SCHEDULES, Pass

MOST_PASSES = 2**18
"""The most forward and backward passes of an iteration, through all stages; more take minutes."""


def pipeline(
    stages: Iterable[Sequence[Layer]],
    microbatches: int,
    *,
    schedule: str = "1f1b",
    devices: int | None = None,
    data_parallel: int = 1,
    tensor_parallel: int = 1,
    overlap: bool = True,
    bucket_bytes: int = BUCKET_BYTES,
    optimizer_ns: int = 0,
) -> Graph:
    """Return the graph of a pipeline, of several in data parallelism, or with tensor parallelism.

    Ranks are in the order of Megatron-LM: those of tensor parallelism next to each other, then the
    replicas of data parallelism, then the devices. Each pair of neighbours has a channel for each
    direction.

    Args:
        stages: The layers of each stage, with times for one microbatch.
        microbatches: How many make up a mini-batch.
        schedule: `gpipe`, `1f1b` or `interleaved`.
        devices: For `interleaved` the number of devices: stage s is on device s modulo their
            number. Otherwise each stage has its own.
        data_parallel: How many such pipelines share the mini-batch and all-reduce gradients.
        tensor_parallel: Over how many ranks each layer is split; its times are those of one rank.
            They all-reduce `tensor_bytes` at the end of each pass of a stage, before the next one;
            on one server that takes no time.
        overlap: Whether gradients are sent while the last microbatch's backward pass goes on,
            bucket by bucket, or in one message after the device's last pass.
        bucket_bytes: Of gradients that overlap: a bucket is full when it has at least these bytes.
        optimizer_ns: The time of the optimizer's step, after a rank's gradients; 0 for none.
    """
    model = [some(stage, "layers") for stage in some(stages, "stages")]
    _check_microbatches(microbatches, len(model))
    if schedule not in SCHEDULES:
        raise InputError(
            f"unknown schedule {shown(schedule)}.{did_you_mean(str(schedule), SCHEDULES)}",
            field="schedule",
        )
    layout = RankLayout(
        _devices(len(model), devices, schedule),
        whole(data_parallel, "data_parallel", 1, MAX_GPUS),
        whole(tensor_parallel, "tensor_parallel", 1, MAX_GPUS),
    )
    whole(layout.ranks, "ranks", 1, MAX_GPUS)
    _check_size(model, microbatches, layout)
    made = _Entries(model, microbatches, layout, overlap, bucket_bytes)
    for device in range(layout.devices):
        order = SCHEDULES[schedule](device, layout.devices, len(model), microbatches)
        made.add_device(device, list(order), optimizer_ns)
    return Graph(layout.ranks, made.tasks, made.messages)


def _check_microbatches(microbatches: int, stages: int) -> None:
    """Refuse more passes than can be built in seconds."""
    most = max(1, MOST_PASSES // (2 * stages))
    if whole(microbatches, "microbatches", 1, MOST_PASSES) > most:
        raise InputError(
            f"must be at most {most:,} with {stages:,} stages, not {microbatches:,}.",
            field="microbatches",
        )


def _check_size(model: Sequence[Sequence[Layer]], microbatches: int, layout: RankLayout) -> None:
    """Refuse a pipeline of too many tasks or messages, before they are built."""
    passes, each = 2 * len(model) * microbatches, layout.replicas * layout.split
    layers = sum(map(len, model))
    sends = 4 * (len(model) - 1) * microbatches if layout.devices > 1 else 0
    tensor = passes if layout.split > 1 else 0
    gradients = layers if layout.replicas > 1 else 0
    check_nodes((passes + layers + layout.devices) * each, (sends + tensor + gradients) * each)


def _devices(stages: int, devices: int | None, schedule: str) -> int:
    if schedule != "interleaved":
        if devices not in (None, stages):
            raise InputError(
                f"must be {stages:,}, one for each stage of {schedule}, not {shown(devices)}.",
                field="devices",
            )
        return stages
    if devices is None:
        raise InputError("must be given for interleaved stages.", field="devices")
    if stages % whole(devices, "devices", 1, stages):
        raise InputError(
            f"must divide the {stages:,} stages, so that each device has as many; {devices:,} "
            "does not.",
            field="devices",
        )
    return devices


class _Entries:
    """The tasks and messages of a pipeline, added device by device."""

    def __init__(
        self,
        model: Sequence[Sequence[Layer]],
        microbatches: int,
        layout: RankLayout,
        overlap: bool,
        bucket_bytes: int,
    ) -> None:
        self.tasks: list[Task] = []
        self.messages: list[Message] = []
        self._model = model
        self._microbatches = microbatches
        self._layout = layout
        self._overlap = overlap
        self._bucket_bytes = bucket_bytes

    def add_device(self, device: int, order: Sequence[Pass], optimizer_ns: int) -> None:
        """Add what a device does, in this order."""
        ranks = self._layout.of_device(device)
        gradients: list[str] = []
        last, end = "", ""
        for one in order:
            # What ends a pass is its last task, or what tensor parallelism exchanges after it.
            before = [] if end == last else [end]
            last = self._add_pass(one, device, before, gradients)
            end = self._add_tensor(one, device, last)
            self._send(one, device, end)
        if not self._overlap and self._layout.replicas > 1:
            size = sum(
                layer.parameter_bytes
                for stage in range(device, len(self._model), self._layout.devices)
                for layer in self._model[stage]
            )
            self._add_gradients(f"gradients-{device}", device, size, last, gradients)
        if optimizer_ns:
            self.tasks.append(Task(f"optimizer-{device}", ranks, optimizer_ns, gradients))

    def _add_pass(self, one: Pass, device: int, before: Sequence[str], gradients: list[str]) -> str:
        """Add the tasks of a pass, and the gradients that it ends; return its last task."""
        layers = self._model[one.stage]
        after = [*before, *self._received(one)]
        ranks = self._layout.of_device(device)
        is_last = not one.forward and one.microbatch == self._microbatches - 1
        time_ns = sum(layer.forward_ns if one.forward else layer.backward_ns for layer in layers)
        parts = [(time_ns, 0)]
        if is_last and self._overlap and self._layout.replicas > 1:
            parts = list(cut_backward(layers, self._bucket_bytes, self._bucket_bytes))
        name = one.name
        for number, (part_ns, size) in enumerate(parts, start=1):
            name = one.name if number == len(parts) else f"{one.name}-{number}"
            self.tasks.append(Task(name, ranks, part_ns, after))
            after = []
            if size:
                label = f"gradients-{one.stage}.{number}"
                self._add_gradients(label, device, size, name, gradients)
        return name

    def _received(self, one: Pass) -> list[str]:
        """Return the message that a pass waits for, if it comes from another device."""
        before = one.stage - 1 if one.forward else one.stage + 1
        if not 0 <= before < len(self._model):
            return []
        if self._layout.devices == 1:
            return []
        return [f"send-{Pass(one.forward, before, one.microbatch).name}"]

    def _add_tensor(self, one: Pass, device: int, task: str) -> str:
        """Add what the ranks of tensor parallelism exchange; return what ends the pass."""
        size = sum(layer.tensor_bytes for layer in self._model[one.stage])
        if self._layout.split == 1 or not size:
            return task
        name, groups = f"tensor-{one.name}", self._layout.tensor_groups(device)
        self.messages.append(Message(name, "all-reduce", groups, size, "tensor", [task]))
        return name

    def _send(self, one: Pass, device: int, after: str) -> None:
        """Send the activations, or their gradients, to the device of the next stage."""
        following = one.stage + 1 if one.forward else one.stage - 1
        if not 0 <= following < len(self._model) or self._layout.devices == 1:
            return
        other = following % self._layout.devices
        boundary = self._model[min(one.stage, following)]
        channel = f"{'forward' if one.forward else 'backward'} {device}-{other}"
        pairs = self._layout.pairs(device, other)
        size = boundary[-1].activation_bytes
        self.messages.append(Message(f"send-{one.name}", "send", pairs, size, channel, [after]))

    def _add_gradients(
        self, name: str, device: int, size: int, after: str, gradients: list[str]
    ) -> None:
        if size:
            groups = self._layout.replica_groups(device)
            self.messages.append(Message(name, "all-reduce", groups, size, "gradients", [after]))
            gradients.append(name)
