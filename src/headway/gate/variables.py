"""Variables that tell a job's processes how to reach the gate, and who they are there."""

GATE = "HEADWAY_GATE"
GATE_CERTIFICATE = "HEADWAY_GATE_CERT"
JOB = "HEADWAY_JOB"
ATTEMPT = "HEADWAY_ATTEMPT"
JOB_TOKEN = "HEADWAY_JOB_TOKEN"
