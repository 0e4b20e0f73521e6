"""The registered policies, called from Python for one decision at a time.

A policy that fails must not stop a cluster: a job stays queued if its placement raises or returns
invalid candidates, a priority that raises gives the key 0, an admission that raises admits. The
latest failure is kept for people to read.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable

import numpy as np

from headway.domain.limits import MAX_BYTES
from headway.domain.records import ClusterView, Integers
from headway.policies.policy_set import PolicySet
from headway.policies.registry import ADMIT, WAIT

_NUMPY = (np.__file__ or "").removesuffix("__init__.py")
_INT64 = range(-(2**63), 2**63)


class Rules:
    """The three policies that decide, compiled."""

    def __init__(self, policy: str) -> None:
        """Choose and compile.

        Raises:
            InputError: There is no such policy.
            PolicyError: It does not compile.
        """
        policies = PolicySet.parse(policy)
        chosen = policies.choices
        self.name = policies.name
        self.placement_name = chosen.placement.name
        self.priority_name = chosen.priority.name
        self.admission_name = chosen.admission.name
        self.bucket_bytes = policies.bucket_bytes or MAX_BYTES
        self.placement_steady = chosen.placement.policy.steady
        self.admission_steady = chosen.admission.policy.steady
        self.failures = 0
        self.failure = ""
        self._place = chosen.placement.compiled()
        self._key = chosen.priority.compiled()
        self._admit = chosen.admission.compiled()
        self._admits_by_port = chosen.admission.policy.by_port
        self._parameters = (
            chosen.placement.parameter,
            chosen.priority.parameter,
            chosen.admission.parameter,
        )

    def place(self, cluster: ClusterView, job: int, candidates: Integers) -> bool:
        """Return whether a job is placed; the policy then wants it on the first candidates."""
        try:
            # Without the JIT, unsigned arithmetic that wraps around on purpose would warn.
            with np.errstate(over="ignore"):
                return bool(self._place(cluster, job, candidates, self._parameters[0]))
        except Exception as error:
            self._failed(f"placement '{self.placement_name}'", error)
            return False

    def invalid_candidates(self) -> None:
        """Count a placement that did not leave valid candidates first."""
        problem = ValueError("gave a GPU twice, or one that was not among the candidates")
        self._failed(f"placement '{self.placement_name}'", problem)

    def key(self, cluster: ClusterView, job: int) -> int:
        """Return a job's priority key."""
        try:
            key = int(self._key(cluster, job, self._parameters[1]))
        except Exception as error:
            self._failed(f"priority '{self.priority_name}'", error)
            return 0
        return key if key in _INT64 else 0

    def admit(
        self, cluster: ClusterView, message: int, ports: Iterable[int], message_bytes: int
    ) -> int:
        """Return the admission's answer about a message: WAIT, ADMIT, or a time in ns."""
        parameter = self._parameters[2]
        try:
            if not self._admits_by_port:
                return int(self._admit(cluster, message, parameter))
            refused = any(message_bytes >= self._admit(cluster, port, parameter) for port in ports)
            return WAIT if refused else ADMIT
        except Exception as error:
            self._failed(f"admission '{self.admission_name}'", error)
            return ADMIT

    def _failed(self, what: str, error: Exception) -> None:
        self.failures += 1
        where = ""
        if origin := _origin(error):
            where = f" (in {origin[0]}, line {origin[1]})"
        self.failure = f"{what} failed{where}: {type(error).__name__}: {error}"


def _origin(error: Exception) -> tuple[str, int] | None:
    """Return the function and the line that an error came from."""
    if compiled_from := getattr(error, "compiled_from", None):
        return compiled_from[0], compiled_from[2]
    frames = traceback.extract_tb(error.__traceback__)[1:]  # the first is the call
    frames = [frame for frame in frames if not frame.filename.startswith(_NUMPY)]
    return (frames[-1].name, frames[-1].lineno or 0) if frames else None
