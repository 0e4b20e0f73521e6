"""The settings of `headway serve`, from a serve.toml or from the command line's options."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec

from headway.configuration.conversion import Number, Text, TomlTable, given
from headway.configuration.document import Document
from headway.configuration.network import network_from
from headway.domain.errors import InputError, did_you_mean, shown
from headway.domain.limits import MAX_BYTES, MAX_GPUS, scaled, whole
from headway.domain.models import MEBIBYTE
from headway.live.core.lease_rules import (
    LONGEST_LEASE_NS,
    MAX_LEASE_FACTOR,
    SECOND_NS,
    LeaseRules,
)
from headway.live.daemon.state_folder import default_folder
from headway.live.executors.slurm.cluster import POLL_S, SlurmSettings
from headway.live.executors.slurm.lines import Directives, start_directives
from headway.network.contention import NetworkModel
from headway.policies.policy_set import PolicySet

API_PORT = 7077
GATE_PORT = 7078
DEFAULT_POLICY = "headway"
LOOPBACK = "127.0.0.1"

ExecutorKind = Literal["local", "testbed", "ray", "slurm"]
KINDS: tuple[ExecutorKind, ...] = get_args(ExecutorKind)
ELSEWHERE: tuple[ExecutorKind, ...] = ("ray", "slurm")
"""The executors whose jobs may run on other machines."""

SlurmMode = Literal["steps", "batch"]

MAX_PORT = 65_535
_EVERYWHERE = ("0.0.0.0", "::", "")
_APPLIES_TO: dict[str, tuple[ExecutorKind, ...]] = {
    "nodes": ("local", "slurm"),
    "slots": ("local", "testbed", "slurm"),
    "memory_bytes": ("local", "testbed", "slurm"),
    "testbed": ("testbed",),
    "address": ("ray",),
    "mode": ("slurm",),
    "allocation": ("slurm",),
    "partition": ("slurm",),
    "directives": ("slurm",),
    "allocation_directives": ("slurm",),
    "skip_directives": ("slurm",),
    "poll_s": ("slurm",),
}
"""The executors that a setting applies to."""

_KEYS = {"memory_bytes": "memory_mb"}
"""Settings that users give in another unit."""


@dataclass(frozen=True, slots=True)
class ExecutorSettings:
    """Where jobs run; None takes what the machine has."""

    kind: ExecutorKind = "local"
    nodes: int = 1
    slots: int | None = None
    memory_bytes: int | None = None
    testbed: str = "default"
    address: str = "auto"
    mode: SlurmMode = "steps"
    allocation: int | None = None
    partition: str | None = None
    directives: tuple[str, ...] = ()
    allocation_directives: tuple[str, ...] = ()
    skip_directives: tuple[str, ...] = ()
    poll_s: float = POLL_S

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(
                f"unknown executor {shown(self.kind)}.{did_you_mean(str(self.kind), KINDS)}",
                field="kind",
            )
        whole(self.nodes, "nodes", 1, 1024)
        if self.slots is not None:
            whole(self.slots, "slots", 1, MAX_GPUS // 1024)
        if self.memory_bytes is not None:
            whole(self.memory_bytes, "memory_mb", 1, MAX_BYTES)
        for name in ("testbed", "address", "partition"):
            if getattr(self, name) is not None:
                _text(getattr(self, name), name)
        for one in fields(self):
            kinds = _APPLIES_TO.get(one.name, KINDS)
            if self.kind not in kinds and getattr(self, one.name) != one.default:
                name = _KEYS.get(one.name, one.name)
                *most, last = kinds
                words = f"{', '.join(most)} or {last}" if most else last
                raise InputError(f"is for the executor {words} only.", field=name)
        self._check_slurm()

    def _check_slurm(self) -> None:
        if self.mode not in get_args(SlurmMode):
            raise InputError(f"must be steps or batch, not {shown(self.mode)}.", field="mode")
        if self.allocation is not None:
            whole(self.allocation, "allocation", 1, 2**32)
        for name in ("allocation", "allocation_directives"):
            if self.mode == "batch" and getattr(self, name):
                raise InputError("is for the mode steps only.", field=name)
        scaled(self.poll_s, 1, "poll_s", 1, 3600, "s")
        self.slurm()

    def slurm(self) -> SlurmSettings:
        """Return the settings of the Slurm executor."""
        own = start_directives(self.directives, self.skip_directives)
        try:
            asked = Directives(self.allocation_directives, self.skip_directives)
        except InputError as error:
            raise InputError(error.problem, field="allocation_directives") from None
        return SlurmSettings(
            batch=self.mode == "batch",
            allocation=None if self.allocation is None else str(self.allocation),
            nodes=self.nodes,
            partition=self.partition or "",
            slots=self.slots,
            memory_bytes=self.memory_bytes,
            directives=own,
            allocation_directives=asked,
            poll_s=self.poll_s,
        )


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """The settings that a scheduler starts with.

    Without `policy` it keeps the policy of its last run, or takes `headway` on its first. Without
    `gate_host` only jobs on this machine reach the gate, over its Unix socket, unless jobs run on
    Ray or Slurm.
    """

    folder: Path = field(default_factory=default_folder)
    policy: str | None = None
    network: str = "10gbe"
    api_host: str = LOOPBACK
    api_port: int = API_PORT
    gate_host: str | None = None
    gate_port: int = GATE_PORT
    certificate: Path | None = None
    key: Path | None = None
    log_bytes: int = 1024 * MEBIBYTE
    forecasts: bool = True
    leases: LeaseRules = field(default_factory=LeaseRules)
    executor: ExecutorSettings = field(default_factory=ExecutorSettings)

    def __post_init__(self) -> None:
        _text(self.api_host, "api_host")
        whole(self.api_port, "api_port", 0, MAX_PORT)
        whole(self.gate_port, "gate_port", 0, MAX_PORT)
        if self.gate_port == 0 and self.executor.kind in ELSEWHERE:
            raise InputError(
                "must be fixed on Ray and Slurm: running jobs look for the next scheduler there.",
                field="gate_port",
            )
        if self.gate_host is not None:
            _text(self.gate_host, "gate_host")
            if self.gate_host in _EVERYWHERE:
                raise InputError(
                    f"must be an address that jobs can reach, not {shown(self.gate_host)}.",
                    field="gate_host",
                )
        whole(self.log_bytes, "log_mb", MEBIBYTE, MAX_BYTES)
        if (self.certificate is None) != (self.key is None):
            given = "certificate" if self.key is None else "key"
            other = "key" if self.key is None else "certificate"
            raise InputError(f"needs '{other}' too.", field=given)
        for name in ("certificate", "key"):
            path = getattr(self, name)
            if path is not None and not path.is_file():
                raise InputError(f"there is no file {path}.", field=name)
        if self.policy is not None:
            _policy(self.policy)
        self.network_model()

    @property
    def gate_address(self) -> tuple[str, int] | None:
        """Host and port of the gate for jobs on other machines, or None."""
        if self.gate_host is None and self.executor.kind not in ELSEWHERE:
            return None
        default = socket.gethostname() if self.executor.kind == "slurm" else LOOPBACK
        return self.gate_host or default, self.gate_port

    def network_model(self) -> NetworkModel:
        """Return the network, by name or from its file."""
        _text(self.network, "network")
        return network_from(self.network)


Port = Annotated[int, msgspec.Meta(ge=0, le=MAX_PORT)]


class ServeTable(TomlTable):
    """`[serve]`."""

    folder: Text | None = None
    policy: Text | None = None
    network: Text | None = None
    api_host: Text | None = None
    api_port: Port | None = None
    gate_host: Text | None = None
    gate_port: Port | None = None
    certificate: Text | None = None
    key: Text | None = None
    log_mb: Number | None = None
    forecasts: bool | None = None
    lease_s: Number | None = None
    lease_factor: int | None = None
    end_stuck_after_s: Number | None = None


class ExecutorTable(TomlTable):
    """`[executor]`."""

    kind: ExecutorKind
    nodes: int | None = None
    slots: int | None = None
    memory_mb: Number | None = None
    testbed: Text | None = None
    address: Text | None = None
    mode: SlurmMode | None = None
    allocation: int | None = None
    partition: Text | None = None
    directives: tuple[Text, ...] | None = None
    allocation_directives: tuple[Text, ...] | None = None
    skip_directives: tuple[Text, ...] | None = None
    poll_s: Number | None = None


class ServeFile(TomlTable):
    """A `serve.toml`."""

    serve: ServeTable = msgspec.field(default_factory=ServeTable)
    executor: ExecutorTable | None = None


def settings_from(path: str) -> ServeSettings:
    """Read a `serve.toml`; paths in it are relative to its folder."""
    document = Document.read(path)
    content = document.convert(ServeFile)
    executor = ExecutorSettings()
    if content.executor is not None:
        with document.at("executor"):
            executor = _executor(given(content.executor))
    with document.at("serve"):
        return _serve(given(content.serve), Path(path).resolve().parent, executor)


def _serve(table: dict[str, Any], here: Path, executor: ExecutorSettings) -> ServeSettings:
    for name in ("folder", "certificate", "key"):
        if name in table:
            table[name] = here / Path(table[name]).expanduser()
    if table.get("network", "").endswith(".toml"):
        table["network"] = str(here / Path(table["network"]).expanduser())
    if "log_mb" in table:
        log_mb = table.pop("log_mb")
        table["log_bytes"] = scaled(log_mb, MEBIBYTE, "log_mb", MEBIBYTE, MAX_BYTES, "MB")
    leases = _leases(table)
    return ServeSettings(**table, leases=leases, executor=executor)


def _leases(table: dict[str, Any]) -> LeaseRules:
    """Take the rules of leases out of a table."""
    values: dict[str, int] = {}
    for key, name, least in (
        ("lease_s", "least_ns", SECOND_NS // 10),
        ("end_stuck_after_s", "stuck_ns", 0),
    ):
        if key in table:
            values[name] = scaled(table.pop(key), SECOND_NS, key, least, LONGEST_LEASE_NS, "s")
    if "lease_factor" in table:
        values["factor"] = whole(table.pop("lease_factor"), "lease_factor", 1, MAX_LEASE_FACTOR)
    return LeaseRules(**values)


def _executor(table: dict[str, Any]) -> ExecutorSettings:
    if "memory_mb" in table:
        memory_mb = table.pop("memory_mb")
        table["memory_bytes"] = scaled(memory_mb, MEBIBYTE, "memory_mb", 1, MAX_BYTES, "MB")
    return ExecutorSettings(**table)


def _policy(text: str) -> None:
    """Check that a policy exists."""
    try:
        PolicySet.parse(_text(text, "policy"))
    except InputError as error:
        raise InputError(error.problem, field="policy") from None


def _text(value: object, name: str) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise InputError(f"must be a non-empty string, not {shown(value)}.", field=name)
    return value
