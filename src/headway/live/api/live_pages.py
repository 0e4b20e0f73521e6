"""The stream of `GET /v1/live`: a snapshot, then changes, encoded once for all pages.

What pages show is read in the scheduler's loop (`page_view`) while there are pages, and encoded
here, in the API's.
"""

from __future__ import annotations

import asyncio
import heapq
from dataclasses import asdict
from typing import Any, NamedTuple

import msgspec

from headway.live import operator_log
from headway.live.api.daemon_calls import DaemonCalls
from headway.live.api.page_view import JobLook, Look, NodeLook, PageView
from headway.live.core.job_state import JobState
from headway.live.daemon.change_feed import Subscription, encode_event
from headway.live.daemon.clock import Clock
from headway.live.daemon.daemon import Daemon
from headway.live.daemon.job_record import AttemptRecord, JobRecord
from headway.network.contention import NETWORKS
from headway.policies.policy_set import KINDS, PRESETS, SCHEDULERS
from headway.policies.registry import policies
from headway.version import __version__

INTERVAL_S = 0.25
"""Between two events of changes, at least."""
MAX_FINISHED = 2_000
"""Finished jobs that pages show; beyond that the one that finished first is gone."""
SUGGESTED_POLICIES = [
    *PRESETS,
    *(
        f"{placement}+{scheduler}"
        for placement in ("least-delay", "ff")
        for scheduler in SCHEDULERS
    ),
]
"""What pages suggest where a policy can be chosen."""
RETRY_MS = 1000
"""How soon a page connects again."""


def _policy_parts() -> dict[str, Any]:
    """Return what a policy's text stands for, and what each policy does, in a sentence."""
    return {
        "presets": PRESETS,
        "schedulers": SCHEDULERS,
        "summaries": {
            kind: {policy.name: policy.summary for policy in policies(kind)} for kind in KINDS
        },
    }


class PageNode(msgspec.Struct, frozen=True):
    """A node as pages get it."""

    name: str
    slots: int
    state: str
    rack: str | None = None


class FirstPrediction(msgspec.Struct, frozen=True):
    """When the end of a job was first predicted, and what was predicted."""

    made_ns: int
    finish_ns: int


class PageAttempt(msgspec.Struct, frozen=True):
    """An attempt as pages get it; `nodes` are indices."""

    number: int
    nodes: list[int]
    started_ns: int
    ended_ns: int | None
    reason: str


class PageJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job as pages get it; `slots` are those of the latest attempt, by the index of the node."""

    id: str
    name: str
    model: str
    state: JobState
    why: str
    reason: str
    ranks: int
    submitted_ns: int
    started_ns: int | None
    finished_ns: int | None
    attempts: int
    history: list[PageAttempt]
    priority: int
    iterations: int
    total_iterations: int | None
    slots: list[tuple[int, int]]
    stuck: str
    predicted_start_ns: int | None
    predicted_finish_ns: int | None
    first_prediction: FirstPrediction | None
    prediction_note: str


class PageMessage(msgspec.Struct, frozen=True):
    """A message as pages get it."""

    job: str
    bytes: int
    since_ns: int
    left_bytes: int | None
    why: str


class PageState:
    """Everything that pages show, encoded piece by piece."""

    def __init__(self, network: dict[str, Any], clock: Clock) -> None:
        self._encode = msgspec.json.Encoder().encode
        self._clock = clock
        self._nodes: dict[str, PageNode] = {}
        # Where each node is in the list. None is ever removed, so that slots stay valid.
        self._index: dict[str, int] = {}
        self._jobs: dict[str, bytes] = {}
        self._finished: dict[str, None] = {}  # in the order of their ends
        self._values = {
            "network": self._encode(network),
            "version": self._encode(__version__),
            "began_ms": self._encode(clock.began_unix_ns // 10**6),
            "policies": self._encode(SUGGESTED_POLICIES),
            "policy_parts": self._encode(_policy_parts()),
            "networks": self._encode(list(NETWORKS)),
        }
        self._snapshot: bytes | None = None

    def begin(self, look: Look, finished: list[JobRecord]) -> None:
        """Take in the first look."""
        latest = heapq.nlargest(MAX_FINISHED, finished, key=lambda one: one.ended_ns or 0)
        ended = [JobLook(record, record.iterations) for record in reversed(latest)]
        self.update(look._replace(jobs=ended + look.jobs))
        self._jobs = dict(sorted(self._jobs.items(), key=lambda one: int(one[0])))

    def update(self, look: Look) -> bytes | None:
        """Take in a look; return the event that tells pages of it, or None if nothing changed."""
        if look.nodes is not None:
            self._update_nodes(look.nodes)
        jobs = [line for one in look.jobs if (line := self._update_job(one)) is not None]
        gone = [job_id for job_id in look.forgotten if self._jobs.pop(job_id, None) is not None]
        while len(self._finished) > MAX_FINISHED:
            oldest = next(iter(self._finished))
            del self._finished[oldest]
            gone += [oldest] * (self._jobs.pop(oldest, None) is not None)
        changed: dict[str, bytes] = {}
        if jobs:
            changed["jobs"] = b"[%s]" % b",".join(jobs)
        if gone:
            changed["gone"] = self._encode(gone)
        for name, value in self._encoded(look).items():
            if self._values.get(name) != value:
                self._values[name] = changed[name] = value
        if not changed:
            return None
        self._snapshot = None
        return encode_event("changes", _object({"clock_ns": b"%d" % look.clock_ns, **changed}))

    @property
    def snapshot(self) -> bytes:
        """The event with which a page begins."""
        if self._snapshot is None:
            jobs = b"[%s]" % b",".join(self._jobs.values())
            self._snapshot = _object({**self._values, "jobs": jobs})
        # By this the page knows what time it is: that of the last change may be long ago.
        clock = b'{"clock_ns":%d,' % self._clock.now_ns()
        event = encode_event("snapshot", clock + self._snapshot[1:])
        return b"retry: %d\n%s" % (RETRY_MS, event)

    def _encoded(self, look: Look) -> dict[str, bytes]:
        """Return what a look says of everything but jobs."""
        messages = [
            PageMessage(one.job_id, one.message_bytes, one.since_ns, one.left_bytes, one.why)
            for one in look.messages
        ]
        index = self._index
        turns = [
            (index[slot.node], slot.index, job.job_id)
            for slot, (job, _) in look.turns.items()
            if slot.node in index
        ]
        nodes = {} if look.nodes is None else {"nodes": self._encode([*self._nodes.values()])}
        return nodes | {
            "messages": self._encode(messages),
            "turns": self._encode(turns),
            "policy": self._encode(look.policy),
            "problems": self._encode(look.problems),
            "forecast": self._encode(look.forecast),
        }

    def _update_nodes(self, nodes: list[NodeLook]) -> None:
        present = {node.name: PageNode(node.name, node.slots, node.state) for node in nodes}
        for name, node in self._nodes.items():
            # It was lost so long ago that the scheduler has forgotten it.
            present.setdefault(name, msgspec.structs.replace(node, state="lost"))
        self._nodes |= present
        self._index = {name: index for index, name in enumerate(self._nodes)}

    def _update_job(self, look: JobLook) -> bytes | None:
        """Take in a job; return it encoded, or None if it has not changed."""
        record, index, then_ns = look.record, self._index, self._clock.since_then_ns
        submitted_ns = then_ns(record.submitted_ns, record.submitted_at)
        started_ns = finished_ns = None
        if record.started_ns is not None and record.started_at is not None:
            started_ns = then_ns(record.started_ns, record.started_at)
        if record.ended_ns is not None and record.ended_at is not None:
            finished_ns = then_ns(record.ended_ns, record.ended_at)
        line = self._encode(
            PageJob(
                id=record.job_id,
                name=record.spec.name,
                model=record.spec.model,
                state=record.state,
                why=look.why,
                reason=record.reason,
                ranks=record.spec.gpus,
                submitted_ns=submitted_ns,
                started_ns=started_ns,
                finished_ns=finished_ns,
                attempts=record.attempts,
                history=[self._attempt(one) for one in record.history],
                priority=record.spec.priority,
                iterations=look.iterations,
                total_iterations=record.spec.iterations,
                slots=[
                    (index[slot.node], slot.index) for slot in record.slots if slot.node in index
                ],
                stuck=look.stuck,
                predicted_start_ns=look.predicted_start_ns,
                predicted_finish_ns=look.predicted_finish_ns,
                first_prediction=_first_prediction(record, finished_ns),
                prediction_note=look.prediction_note,
            )
        )
        if self._jobs.get(record.job_id) == line:
            return None
        self._jobs[record.job_id] = line
        if record.finished:
            self._finished[record.job_id] = None
        return line

    def _attempt(self, attempt: AttemptRecord) -> PageAttempt:
        index, then_ns = self._index, self._clock.since_then_ns
        ended_ns = None
        if attempt.ended_ns is not None and attempt.ended_at is not None:
            ended_ns = then_ns(attempt.ended_ns, attempt.ended_at)
        return PageAttempt(
            attempt.number,
            list(dict.fromkeys(index[slot.node] for slot in attempt.slots if slot.node in index)),
            then_ns(attempt.started_ns, attempt.started_at),
            ended_ns,
            attempt.reason,
        )


def _first_prediction(record: JobRecord, finished_ns: int | None) -> FirstPrediction | None:
    """Return the first prediction of a finished job, by how far it was from the end."""
    first = record.first_prediction
    if first is None or finished_ns is None or record.ended_ns is None:
        return None
    moved_ns = finished_ns - record.ended_ns
    return FirstPrediction(first.made_ns + moved_ns, first.finish_ns + moved_ns)


class PageStream(NamedTuple):
    """What a page gets: an event to begin with, and a subscription to those that follow."""

    first: bytes
    subscription: Subscription


class LivePages:
    """Keeps all pages up to date, and does nothing while there are none.

    Create it in the scheduler's loop, use it in the API's.
    """

    def __init__(self, daemon: Daemon) -> None:
        self._daemon, self._view = daemon, PageView(daemon)
        self._calls = DaemonCalls()  # Pages do not wait for other clients' requests.
        self._starting = asyncio.Lock()
        self._state: PageState | None = None
        self._task: asyncio.Task[None] | None = None

    async def subscribe(self) -> PageStream | None:
        """Return what a new page gets, or None if there are too many pages."""
        async with self._starting:
            if self._state is None:
                self._state = await self._begin()
                self._task = asyncio.create_task(self._run(self._state))
            subscription = self._daemon.pages.subscribe(asyncio.get_running_loop())
            if subscription is None:
                return None
            return PageStream(self._state.snapshot, subscription)

    async def _begin(self) -> PageState:
        daemon = self._daemon
        state = PageState(asdict(daemon.core.state.arrays.network), daemon.clock)
        state.begin(*await self._calls.run(self._view.first))
        return state

    async def _run(self, state: PageState) -> None:
        pages = self._daemon.pages
        try:
            await asyncio.sleep(INTERVAL_S)
            while pages:
                if event := state.update(await self._calls.run(self._view.changes)):
                    pages.send(event)
                await asyncio.sleep(INTERVAL_S)
        except Exception as error:
            operator_log.failure("live pages failed", error)
            pages.close()
        finally:
            self._daemon.changes.stop()
            self._state = None


def _object(values: dict[str, bytes]) -> bytes:
    """Return a JSON object of encoded values."""
    return b"{%s}" % b",".join(b'"%s":%s' % (name.encode(), one) for name, one in values.items())
