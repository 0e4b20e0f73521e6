"""What `headway serve` is told: a file serve.toml, or the command line's options."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from headway.configuration.network import network_from
from headway.configuration.tables import Tables, check_keys
from headway.domain.errors import InputError, did_you_mean, shown
from headway.domain.limits import MOST_BYTES, MOST_GPUS, scaled, whole
from headway.domain.models import MEBIBYTE
from headway.live.daemon.state_folder import default_folder
from headway.network.contention import NetworkModel
from headway.policies.policy_set import PolicySet

API_PORT = 7077
GATE_PORT = 7078
DEFAULT_POLICY = "headway"
LOOPBACK = "127.0.0.1"

ExecutorKind = Literal["local", "testbed", "ray"]
KINDS: tuple[ExecutorKind, ...] = get_args(ExecutorKind)

_SERVE_KEYS = (
    "folder",
    "policy",
    "network",
    "api_host",
    "api_port",
    "gate_host",
    "gate_port",
    "certificate",
    "key",
    "log_mb",
)
_EXECUTOR_KEYS = ("kind", "nodes", "slots", "memory_mb", "testbed", "address")
_EVERYWHERE = ("0.0.0.0", "::", "")
_BELONGS: dict[str, tuple[ExecutorKind, ...]] = {
    "nodes": ("local",),
    "slots": ("local", "testbed"),
    "memory_bytes": ("local", "testbed"),
    "testbed": ("testbed",),
    "address": ("ray",),
}
"""Which kinds of executor a setting is for."""

_WRITTEN = {"memory_bytes": "memory_mb"}
"""Settings that users write in another unit."""


@dataclass(frozen=True, slots=True)
class ExecutorSettings:
    """Where jobs run. None: what the machine has."""

    kind: ExecutorKind = "local"
    nodes: int = 1
    slots: int | None = None
    memory_bytes: int | None = None
    testbed: str = "default"
    address: str = "auto"

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(
                f"unknown executor {shown(self.kind)}.{did_you_mean(str(self.kind), KINDS)}",
                field="kind",
            )
        whole(self.nodes, "nodes", 1, 1024)
        if self.slots is not None:
            whole(self.slots, "slots", 1, MOST_GPUS // 1024)
        if self.memory_bytes is not None:
            whole(self.memory_bytes, "memory_mb", 1, MOST_BYTES)
        for name in ("testbed", "address"):
            _text(getattr(self, name), name)
        for one in fields(self):
            kinds = _BELONGS.get(one.name, KINDS)
            if self.kind not in kinds and getattr(self, one.name) != one.default:
                name = _WRITTEN.get(one.name, one.name)
                raise InputError(f"goes with the executor {' or '.join(kinds)} alone.", field=name)


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """Everything that a scheduler is told when it starts.

    Without `policy` the one that was last chosen counts, or at first `headway`. Without `gate_host`
    jobs reach the gate over its Unix socket alone, unless they run on Ray.
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
    executor: ExecutorSettings = field(default_factory=ExecutorSettings)

    def __post_init__(self) -> None:
        _text(self.api_host, "api_host")
        whole(self.api_port, "api_port", 0, 65_535)
        whole(self.gate_port, "gate_port", 0, 65_535)
        if self.gate_port == 0 and self.executor.kind == "ray":
            raise InputError(
                "must be a fixed port on Ray: jobs that run look there for the next scheduler.",
                field="gate_port",
            )
        if self.gate_host is not None:
            _text(self.gate_host, "gate_host")
            if self.gate_host in _EVERYWHERE:
                raise InputError(
                    f"must be an address that jobs can reach, not {shown(self.gate_host)}.",
                    field="gate_host",
                )
        whole(self.log_bytes, "log_mb", MEBIBYTE, MOST_BYTES)
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
        """Host and port of the gate for jobs that do not run on this machine, or None."""
        if self.gate_host is None and self.executor.kind != "ray":
            return None
        return self.gate_host or LOOPBACK, self.gate_port

    def network_model(self) -> NetworkModel:
        """Return the network by name or from its file."""
        _text(self.network, "network")
        return network_from(self.network)


def settings_from(path: str) -> ServeSettings:
    """Read serve.toml; paths in it are meant from the folder it lies in."""
    tables = Tables(path, ("serve", "executor"))
    here = Path(path).resolve().parent
    executor = ExecutorSettings()
    if "executor" in tables.document:
        table = tables.table("executor", _EXECUTOR_KEYS)
        with tables.at("executor"):
            executor = _executor(table)
    if "serve" not in tables.document:
        return ServeSettings(executor=executor)
    table = tables.table("serve", _SERVE_KEYS)
    with tables.at("serve"):
        return _serve(table, here, executor)


def _serve(table: dict[str, Any], here: Path, executor: ExecutorSettings) -> ServeSettings:
    for name in ("folder", "certificate", "key"):
        if name in table:
            table[name] = here / Path(_text(table[name], name)).expanduser()
    if str(table.get("network", "")).endswith(".toml"):
        table["network"] = str(here / Path(table["network"]).expanduser())
    if "policy" in table:
        _text(table["policy"], "policy")
    if "log_mb" in table:
        table["log_bytes"] = scaled(
            table.pop("log_mb"), MEBIBYTE, "log_mb", MEBIBYTE, MOST_BYTES, "MB"
        )
    return ServeSettings(**table, executor=executor)


def _executor(table: dict[str, Any]) -> ExecutorSettings:
    check_keys(table, _EXECUTOR_KEYS, ("kind",))
    if "memory_mb" in table:
        table["memory_bytes"] = scaled(
            table.pop("memory_mb"), MEBIBYTE, "memory_mb", 1, MOST_BYTES, "MB"
        )
    return ExecutorSettings(**table)


def _policy(text: str) -> None:
    """Refuse a policy that does not exist, in the name of the key that asks for it."""
    try:
        PolicySet.parse(_text(text, "policy"))
    except InputError as error:
        raise InputError(error.problem, field="policy") from None


def _text(value: object, name: str) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise InputError(f"must be a text in quotes, not {shown(value)}.", field=name)
    return value
