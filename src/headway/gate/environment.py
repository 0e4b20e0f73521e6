"""What a rank learns about its gate: the environment variables that the scheduler sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headway.domain.errors import InputError, shown
from headway.gate.address import GateAddress

GATE = "HEADWAY_GATE"
GATE_CERTIFICATE = "HEADWAY_GATE_CERT"
JOB = "HEADWAY_JOB"
ATTEMPT = "HEADWAY_ATTEMPT"
JOB_TOKEN = "HEADWAY_JOB_TOKEN"


@dataclass(frozen=True)
class WorkerEnvironment:
    """Where the gate is, which attempt at which job this is, and the token that proves it.

    With `certificate`, a file of the authorities to trust, TCP connections are encrypted.
    """

    gate: GateAddress
    job_id: str
    attempt: int
    token: str
    certificate: str = ""

    @classmethod
    def from_variables(cls, variables: Mapping[str, str]) -> WorkerEnvironment | None:
        """Return what the environment variables say; None if they name no gate."""
        gate = variables.get(GATE, "")
        if not gate:
            return None
        attempt = variables.get(ATTEMPT, "")
        if not (attempt.isascii() and attempt.isdigit() and len(attempt) < 10):
            raise InputError(f"must be a number, not {shown(attempt)}.", source=ATTEMPT)
        job_id, token = variables.get(JOB, ""), variables.get(JOB_TOKEN, "")
        if not 0 < len(job_id) <= 1024:
            raise InputError(f"must be the id of a job, not {shown(job_id)}.", source=JOB)
        if not 0 < len(token) <= 1024:
            raise InputError("must hold the job's token.", source=JOB_TOKEN)
        address = GateAddress.parse(gate, source=GATE)
        certificate = "" if address.path else variables.get(GATE_CERTIFICATE, "")
        return cls(address, job_id, int(attempt), token, certificate)

    def variables(self) -> dict[str, str]:
        """Return the environment variables that `from_variables` reads."""
        variables = {
            GATE: str(self.gate),
            JOB: self.job_id,
            ATTEMPT: str(self.attempt),
            JOB_TOKEN: self.token,
        }
        return variables | ({GATE_CERTIFICATE: self.certificate} if self.certificate else {})
