"""Imports SimAI's workload text, on all ranks of the header's parallel sizes.

SimAI runs the forward passes of all rows in order, then backwards each row's gradients. A message
of a forward pass or of an input's gradient is waited for; one of a weight's gradient is not. With
a pipeline, the rows are one stage, and every stage runs them: microbatches as in GPipe.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from headway.domain.errors import InputError
from headway.domain.graph import Graph, Message, Task
from headway.domain.limits import MAX_GPUS, whole
from headway.graphs.imports.imported import Imported, counted
from headway.graphs.imports.simai_file import (
    FORWARD,
    INPUT,
    WEIGHT,
    Part,
    Row,
    SimaiWorkload,
    read_simai,
)

_FIRST_LAYER = "embedding_layer"
"""The row that each microbatch begins with."""

_AFTER_MICROBATCHES = ("cross_entropy", "optimizer")
"""Beginnings of the names of rows after the last microbatch."""

_PARTS = ("forward", "input", "weight")

Order = tuple[int, int, int]
"""Where an entry stands: its slot in the pipeline, its stage, its place in the stage."""


def import_simai(path: str, *, ranks: int | None = None) -> Imported:
    """Read SimAI's workload text as one iteration's graph.

    Args:
        path: The file, or `-` for standard input.
        ranks: The number of GPUs, if the header has no `all_gpus`.

    Raises:
        InputError: The file is invalid, or the parallel sizes do not fit the ranks.
    """
    workload = read_simai(path)
    layout = _layout(workload, ranks)
    stages = [_Stage(number, workload, layout) for number in range(workload.pipeline)]
    microbatches = _Microbatches.of(workload)
    for stage in stages:
        stage.run(microbatches)
    try:
        graph = Graph(
            layout.ranks,
            [task for _, task in sorted(_all_tasks(stages), key=lambda one: one[0])],
            [message for _, message in sorted(_all_messages(stages), key=lambda one: one[0])],
        )
    except InputError as error:
        raise error.at(workload.source) from None
    return Imported(graph, tuple(_notes(workload, stages, graph)))


@dataclass(frozen=True, slots=True)
class _Layout:
    """Which ranks are in which groups: rank = (pp * DP + dp) * TP + tp, experts within dp."""

    tensor: int
    data: int
    expert: int
    pipeline: int

    @property
    def ranks(self) -> int:
        return self.tensor * self.data * self.pipeline

    def stage_ranks(self, stage: int) -> tuple[int, ...]:
        size = self.tensor * self.data
        return tuple(range(stage * size, (stage + 1) * size))

    def groups(self, stage: int, kind: str) -> list[tuple[int, ...]]:
        """Return the groups of a stage: tp, dp, ep (experts) or dp-ep (replicas of experts)."""
        first = stage * self.tensor * self.data

        def rank(data: int, tensor: int) -> int:
            return first + data * self.tensor + tensor

        tensors, replicas = range(self.tensor), range(self.data // self.expert)
        if kind == "tp":
            return [tuple(rank(data, one) for one in tensors) for data in range(self.data)]
        if kind == "dp":
            return [tuple(rank(data, one) for data in range(self.data)) for one in tensors]
        if kind == "ep":
            return [
                tuple(rank(copy * self.expert + expert, one) for expert in range(self.expert))
                for copy in replicas
                for one in tensors
            ]
        return [
            tuple(rank(copy * self.expert + expert, one) for copy in replicas)
            for expert in range(self.expert)
            for one in tensors
        ]


def _layout(workload: SimaiWorkload, ranks: int | None) -> _Layout:
    if ranks is not None:
        whole(ranks, "ranks", 1, MAX_GPUS)
        if workload.gpus is not None and workload.gpus != ranks:
            raise InputError(
                f"must be {workload.gpus:,}, the header's all_gpus, not {ranks:,}.", field="ranks"
            )
    gpus = workload.gpus if ranks is None else ranks
    if gpus is None:
        raise InputError(
            "has no all_gpus; give the number of GPUs with --ranks.",
            source=workload.source,
            line=1,
        )
    model = workload.tensor * workload.pipeline
    if gpus % model:
        raise InputError(
            f"{counted(gpus, 'GPU')} cannot be cut into groups of {model:,}: "
            f"{workload.tensor:,} (model_parallel_NPU_group) times {workload.pipeline:,} (pp).",
            source=workload.source,
            line=1,
        )
    data = gpus // model
    if data % workload.expert:
        raise InputError(
            f"{data:,} data-parallel ranks cannot be cut into groups of {workload.expert:,} (ep).",
            source=workload.source,
            line=1,
        )
    return _Layout(workload.tensor, data, workload.expert, workload.pipeline)


@dataclass(frozen=True, slots=True)
class _Microbatches:
    """The rows of a file: those before the first microbatch, of each, and after the last."""

    before: Sequence[Row]
    each: Sequence[Sequence[Row]]
    after: Sequence[Row]

    @classmethod
    def of(cls, workload: SimaiWorkload) -> _Microbatches:
        """Cut the rows into microbatches; without a pipeline nothing depends on where they end."""
        rows = workload.rows
        if workload.pipeline == 1:
            return cls((), (rows,), ())
        names = [row.name for row in rows]
        begin = names.index(_FIRST_LAYER) if _FIRST_LAYER in names else 0
        end = len(rows)
        while end > begin and names[end - 1].startswith(_AFTER_MICROBATCHES):
            end -= 1
        count = workload.microbatches
        length = (end - begin) // count
        parts = [rows[begin + k * length : begin + (k + 1) * length] for k in range(count)]
        if length * count != end - begin or any(
            [row.name for row in part] != names[begin : begin + length] for part in parts
        ):
            raise InputError(
                f"with a pipeline (pp: {workload.pipeline}) the {end - begin:,} rows from line "
                f"{rows[begin].line if begin < len(rows) else 3} on must be {count:,} times (ga) "
                "the same layers.",
                source=workload.source,
            )
        return cls(rows[:begin], parts, rows[end:])


@dataclass(slots=True)
class _Stage:
    """The entries of one pipeline stage, as they are made in the order of its ranks' streams."""

    number: int
    workload: SimaiWorkload
    layout: _Layout
    tasks: list[tuple[Order, Task]] = field(default_factory=list)
    messages: list[tuple[Order, Message]] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    _groups_of: dict[str, list[tuple[int, ...]]] = field(default_factory=dict)
    _slot: int = 0
    _pending_ns: int = 0
    _pending_name: str = ""
    _after: list[str] = field(default_factory=list)
    """The messages that the next task waits for."""
    _last_task: str = ""

    def run(self, microbatches: _Microbatches) -> None:
        """Make the entries of an iteration."""
        count, stages = len(microbatches.each), self.workload.pipeline
        self._slot = -1
        self._forward(microbatches.before)
        for number, rows in enumerate(microbatches.each):
            self._slot = number + self.number
            if self.number > 0:
                self._await(_send_name("forward", number, self.number - 1))
            self._forward(rows)
            if self.number < stages - 1:
                self._send("forward", number, self.number, self.number + 1)
        self._slot = count + stages
        self._forward(microbatches.after)
        self._backward(microbatches.after)
        for number in reversed(range(count)):
            self._slot = 2 * (count + stages) - number - self.number
            if self.number < stages - 1:
                self._await(_send_name("backward", number, self.number + 1))
            self._backward(microbatches.each[number])
            if self.number > 0:
                self._send("backward", number, self.number, self.number - 1)
        self._slot = 3 * (count + stages)
        self._backward(microbatches.before)
        self._flush()
        if not self.tasks:
            raise InputError("no row computes anything.", source=self.workload.source)

    def _forward(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._part(row, FORWARD)

    def _backward(self, rows: Sequence[Row]) -> None:
        for row in reversed(rows):
            self._part(row, INPUT)
            self._part(row, WEIGHT)

    def _part(self, row: Row, which: int) -> None:
        """Compute one part of a row, then send its message; a weight's is not waited for."""
        part = row.parts[which]
        name = self._name(f"{row.name}-{row.line - 2}-{_PARTS[which]}")
        if part.time_ns:
            self._pending_name = self._pending_name or name
            self._pending_ns += part.time_ns
        groups = self._groups(part)
        if groups:
            message = f"{name}-message"
            self._add_message(message, part.kind, groups, part.size_bytes, part.group)
            if which != WEIGHT:
                self._after = [message]

    def _groups(self, part: Part) -> list[tuple[int, ...]]:
        """Return the groups of a part's message; none if there is nothing to send."""
        if not part.kind:
            return []
        if part.group not in self._groups_of:
            self._groups_of[part.group] = self.layout.groups(self.number, part.group)
        groups = self._groups_of[part.group]
        if not part.size_bytes:
            self.dropped["of 0 bytes"] += len(groups)
            return []
        if len(groups[0]) == 1:
            self.dropped["of a single rank"] += len(groups)
            return []
        return groups

    def _await(self, message: str) -> None:
        """Let what comes next wait for a message of another stage."""
        self._flush()
        self._after.append(message)

    def _send(self, way: str, number: int, source: int, target: int) -> None:
        """Send a microbatch to another stage; nothing here waits for it."""
        pairs = zip(self.layout.stage_ranks(source), self.layout.stage_ranks(target), strict=True)
        name = _send_name(way, number, source)
        size = self.workload.pipeline_bytes
        self._add_message(name, "send", list(pairs), size, f"pp-{source}-{target}")

    def _add_message(
        self, name: str, kind: str, groups: Sequence[tuple[int, ...]], size: int, channel: str
    ) -> None:
        self._flush()
        after = [self._last_task] if self._last_task else []
        order = (self._slot, self.number, len(self.messages))
        entry = Message(name, kind, groups, size, channel, [*after, *self._after])
        self.messages.append((order, entry))

    def _flush(self) -> None:
        """Make one task of what was computed since the last message."""
        if not self._pending_ns:
            return
        ranks = self.layout.stage_ranks(self.number)
        order = (self._slot, self.number, len(self.tasks))
        task = Task(self._pending_name, ranks, self._pending_ns, self._after)
        self.tasks.append((order, task))
        self._last_task = self._pending_name
        self._after, self._pending_ns, self._pending_name = [], 0, ""

    def _name(self, name: str) -> str:
        return name if self.workload.pipeline == 1 else f"stage-{self.number}-{name}"


def _send_name(way: str, microbatch: int, source: int) -> str:
    return f"{way}-{microbatch}-from-stage-{source}"


def _all_tasks(stages: Sequence[_Stage]) -> Iterator[tuple[Order, Task]]:
    return (one for stage in stages for one in stage.tasks)


def _all_messages(stages: Sequence[_Stage]) -> Iterator[tuple[Order, Message]]:
    return (one for stage in stages for one in stage.messages)


def _notes(workload: SimaiWorkload, stages: Sequence[_Stage], graph: Graph) -> Iterator[str]:
    """Yield a sentence for everything that is not as in the file."""
    yield (
        f"{counted(len(workload.rows), 'row')} on {counted(graph.ranks, 'rank')}: tensor "
        f"{workload.tensor}, data {graph.ranks // workload.tensor // workload.pipeline} (expert "
        f"{workload.expert}), pipeline {workload.pipeline}."
    )
    stage = sum(1 for row in workload.rows for part in row.parts if part.time_ns)
    if len(graph.tasks) < stage * workload.pipeline:
        yield (
            f"Merged: {stage * workload.pipeline:,} computations became "
            f"{counted(len(graph.tasks), 'task')}; those with no message between them are one."
        )
    if workload.pipeline > 1:
        yield (
            f"Guessed: the rows are one stage of the pipeline, and all {workload.pipeline} stages "
            f"run them: {counted(workload.microbatches, 'microbatch', 'microbatches')} forward, "
            "then all backward, as in GPipe; vpp is ignored."
        )
    broadcasts = sum(1 for row in workload.rows for part in row.parts if part.name == "BROADCAST")
    if broadcasts:
        yield f"Guessed: {counted(broadcasts, 'broadcast')} became all-gather messages."
    dropped: Counter[str] = sum((stage.dropped for stage in stages), Counter())
    for reason, count in sorted(dropped.items()):
        yield f"Dropped: {counted(count, 'message')} {reason}."
    yield "Dropped: the update time of weights (the last column)."
