"""The layout of a picture of a timeline: its window, its servers, its rows and its boxes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headway.domain.errors import InputError
from headway.domain.graph import Graph
from headway.domain.records import BACKWARD, COMMUNICATION, COMPUTE, FORWARD
from headway.results.timeline.recorded import RecordedRun
from headway.results.timeline.window import Window

if TYPE_CHECKING:
    import polars

MAX_BOXES = 20_000
"""The most tasks in a picture; more would be a blur, and a file too big to open."""

_WINDOW_NS = 2_000_000_000
_MAX_ROWS = 160
_LANE, _MAX_LANES = 0.85, 4
"""The height of a lane of a network, in rows, and up to how many lanes have this height."""

NETWORK = "network"
"""The label of the row of a server's network."""


@dataclass(frozen=True, slots=True)
class Box:
    """A task in a picture; rows count from the top."""

    from_s: float
    to_s: float
    top: float
    height: float
    kind: int
    job: str
    entry: str | None = None
    strength: float = 1.0
    """How dark it is, from 0 to 1."""


STRENGTHS = {FORWARD: 0.4, BACKWARD: 1.0, COMMUNICATION: 0.25}
"""How dark each kind of task is; those of a graph are between forward and backward."""

_SHADES = 5
"""The tasks of a graph have this many shades."""


@dataclass(frozen=True, slots=True)
class Row:
    """A GPU or a network in a picture."""

    label: str
    server: int
    top: float
    height: float


def select(run: RecordedRun, window: Window) -> tuple[list[int], polars.DataFrame]:
    """Return the servers to show, and their tasks in a window, a message once for each server.

    If there are too many servers, those with the most traffic are shown.
    """
    import polars

    overlaps = (polars.col("start_ns") < window.to_ns) & (polars.col("end_ns") > window.from_ns)
    tasks = run.tasks.filter(overlaps)
    messages = tasks.filter(polars.col("gpu").is_null()).explode("servers")
    messages = messages.rename({"servers": "server"})
    compute = tasks.filter(polars.col("gpu").is_not_null()).drop("servers")
    server = polars.Series(run.server_of_gpu[compute["gpu"].to_numpy()], dtype=polars.Int32)
    compute = compute.with_columns(server=server).select(messages.columns)
    both = polars.concat([compute, messages])
    room = max(1, _MAX_ROWS // (max(run.server_gpus) + 1))
    if room >= run.servers:
        return list(range(run.servers)), both
    traffic_ns = np.zeros(run.servers, np.int64)
    length_ns = (messages["end_ns"] - messages["start_ns"]).to_numpy()
    np.add.at(traffic_ns, messages["server"].to_numpy(), length_ns)
    servers = sorted(np.argsort(-traffic_ns, kind="stable")[:room].tolist())
    return servers, both.filter(polars.col("server").is_in(servers))


def default_window(run: RecordedRun) -> Window:
    """Return 2 s from the moment of highest contention, or less if that holds too many tasks."""
    covers, steps = run.window, run.steps
    sending = steps.running + steps.waiting
    peak_ns = int(steps.time_ns[np.argmax(steps.peak * (sending.max() + 1) + sending)])
    length_ns = min(_WINDOW_NS, covers.to_ns - covers.from_ns)
    while True:
        from_ns = max(covers.from_ns, min(peak_ns, covers.to_ns - length_ns))
        window = Window(from_ns, from_ns + length_ns)
        if length_ns == 1 or len(select(run, window)[1]) <= MAX_BOXES:
            return window
        length_ns //= 2


def checked_window(run: RecordedRun, window: Window) -> Window:
    """Return the part of a window that the timeline covers, if it can be drawn."""
    covers = run.window
    if window.from_ns >= covers.to_ns or window.to_ns <= covers.from_ns:
        raise InputError(
            f"covers {covers}, which does not overlap the window from {window}.", source=run.source
        )
    window = Window(max(window.from_ns, covers.from_ns), min(window.to_ns, covers.to_ns))
    count = len(select(run, window)[1])
    if count > MAX_BOXES:
        raise InputError(
            f"the window from {window} holds {count:,} tasks, and a picture shows at most "
            f"{MAX_BOXES:,}; choose a shorter one with --from and --to.",
            source=run.source,
        )
    return window


def lay_out(
    run: RecordedRun, window: Window, servers: list[int], tasks: polars.DataFrame
) -> tuple[list[Box], list[Row]]:
    """Return the boxes, and the rows: for each server its GPUs and then its network."""
    columns = ("server", "gpu", "start_ns", "end_ns")
    found = tasks.sort("start_ns", maintain_order=True)
    records = list(found.select(columns).iter_rows())
    lane_of: dict[int, int] = {}
    lanes: dict[int, list[int]] = defaultdict(list)
    for index, (server, gpu, start_ns, end_ns) in enumerate(records):
        if gpu is None:
            lane_of[index] = _free_lane(lanes[server], start_ns, end_ns)

    rows: list[Row] = []
    first_gpu = np.concatenate([[0], np.cumsum(run.server_gpus)]).tolist()
    top_of_gpu: dict[int, float] = {}
    network_of: dict[int, Row] = {}
    top = 0.0
    for server in servers:
        for gpu in range(first_gpu[server], first_gpu[server + 1]):
            top_of_gpu[gpu] = top
            rows.append(Row(f"GPU {gpu}", server, top, 1.0))
            top += 1.0
        height = min(max(1.0, _LANE * len(lanes[server])), _LANE * _MAX_LANES)
        network_of[server] = Row(NETWORK, server, top, height)
        rows.append(network_of[server])
        top += height
    looks = zip(
        found["kind"].to_physical().to_list(),
        found["job_id"].to_list(),
        found["entry"].to_list(),
        _strengths(run, found),
        strict=True,
    )
    boxes = []
    for index, ((server, gpu, start_ns, end_ns), look) in enumerate(
        zip(records, looks, strict=True)
    ):
        from_s, to_s = max(start_ns, window.from_ns) / 1e9, min(end_ns, window.to_ns) / 1e9
        if gpu is None:
            network = network_of[server]
            height = network.height / len(lanes[server])
            top = network.top + lane_of[index] * height
        else:
            top, height = top_of_gpu[gpu], 1.0
        boxes.append(Box(from_s, to_s, top, height, *look))
    return boxes, rows


def _strengths(run: RecordedRun, tasks: polars.DataFrame) -> list[float]:
    """Return how dark each task is."""
    shades = {id(graph): _shades(graph) for graph in run.graphs if graph is not None}
    columns = (tasks["kind"].to_physical(), tasks["job"], tasks["node"])
    return [
        shades[id(run.graphs[job])][node] if kind == COMPUTE else STRENGTHS[kind]
        for kind, job, node in zip(*(column.to_list() for column in columns), strict=True)
    ]


def _shades(graph: Graph) -> list[float]:
    """Return how dark each task of a graph is: the darker, the later its rank comes to it."""
    start, tasks = graph.expanded.rank_start, graph.expanded.rank_tasks
    count = np.diff(start)
    place = np.arange(len(tasks)) - np.repeat(start[:-1], count)
    step = place * _SHADES // np.repeat(count, count)
    lightest, darkest = STRENGTHS[FORWARD], STRENGTHS[BACKWARD]
    shades = np.zeros(len(tasks))
    shades[tasks] = lightest + (darkest - lightest) * step / (_SHADES - 1)
    return list(shades.tolist())


def _free_lane(lanes: list[int], start_ns: int, end_ns: int) -> int:
    """Return a lane for a message, and note its end; messages come in the order of their starts."""
    for lane, ended_ns in enumerate(lanes):
        if ended_ns <= start_ns:
            lanes[lane] = end_ns
            return lane
    lanes.append(end_ns)
    return len(lanes) - 1
