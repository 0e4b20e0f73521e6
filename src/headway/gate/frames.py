"""The frames that workers and the gate exchange; `protocol` has their bytes."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias


class Hello(NamedTuple):
    """A worker's first frame: who it is, and the token that proves it."""

    version: int
    job_id: str
    attempt: int
    rank: int
    token: str


class Ready(NamedTuple):
    """A worker asks to start a message; see `live.core.events.MessageReady`."""

    request: int
    message_bytes: int
    unsent_bytes: int


class Done(NamedTuple):
    """A worker's message has ended."""

    request: int


class Compute(NamedTuple):
    """A worker asks for a turn to compute; see `live.core.events.ComputeReady`."""

    request: int


class Computed(NamedTuple):
    """A worker's computation has ended."""

    request: int


class Iteration(NamedTuple):
    """Iterations done since the attempt began, and the latest one's measurements (0 if unknown)."""

    iterations: int
    forward_ns: int
    backward_ns: int
    gradient_bytes: int


class MeasuredBucket(NamedTuple):
    """A bucket of gradients: the backward time since the bucket before it, and its bytes."""

    backward_ns: int
    bucket_bytes: int


class Profile(NamedTuple):
    """The attempt's average iteration; see `live.core.events.IterationProfiled`."""

    forward_ns: int
    optimizer_ns: int
    buckets: tuple[MeasuredBucket, ...]


class Bye(NamedTuple):
    """A worker disconnects in good order."""


class Pong(NamedTuple):
    """A worker answers a ping."""


class Welcome(NamedTuple):
    """The gate accepts a worker."""


class Grant(NamedTuple):
    """A worker may start the message or the computation that it asked for."""

    request: int


class Refused(NamedTuple):
    """The gate rejects a worker and closes the connection; the text is for people."""

    text: str


class Ping(NamedTuple):
    """The gate is alive and asks whether the worker is."""


Frame: TypeAlias = (
    Hello
    | Ready
    | Done
    | Iteration
    | Profile
    | Bye
    | Pong
    | Compute
    | Computed
    | Welcome
    | Grant
    | Refused
    | Ping
)
