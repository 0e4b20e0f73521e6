"""Nodes as `scontrol show nodes` describes them, in JSON or in text."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from headway.domain.errors import InputError, shown
from headway.slurm.hostlist import expand

MEBIBYTE = 2**20

_COUNT = re.compile(r"([0-9]{1,9})([KMGTP]?)", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?[0-9.]+[a-zA-Z]?")

_LOST = frozenset({"DOWN", "FAIL", "FUTURE", "POWERED_DOWN", "POWERING_DOWN"})
_DRAINING = frozenset({"DRAIN", "DRAINED", "DRAINING", "FAILING"})
_WAITING = frozenset({"PENDING", "CONFIGURING", "REQUEUED"})
_CLOSED = frozenset({"COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"})
_FLAGS = "*~#!%$@^-+"
"""What a state in text may end with: not responding, in power saving, and so on."""


class SlurmNode(msgspec.Struct, frozen=True):
    """A node; `gpu` is the type of its GPUs, if Slurm knows one type for all of them."""

    name: str
    address: str
    cpus: int
    memory_bytes: int
    gpus: int = 0
    gpu: str = ""
    states: frozenset[str] = frozenset()

    @property
    def lost(self) -> bool:
        """Whether it runs nothing."""
        return bool(self.states & _LOST)

    @property
    def unknown(self) -> bool:
        """Whether Slurm does not know: its controller has just started."""
        return "UNKNOWN" in self.states

    @property
    def draining(self) -> bool:
        """Whether an administrator wants no new jobs on it."""
        return bool(self.states & _DRAINING)


class AllocatedNode(msgspec.Struct, frozen=True):
    """What an allocation has on a node."""

    cpus: int
    gpus: int


class SlurmJob(msgspec.Struct, frozen=True):
    """A job of Slurm, such as an allocation; `nodes` is empty before it starts.

    `size` is how many nodes it has or waits for; 0 is unknown.
    """

    name: str
    user: str
    user_id: int
    state: str
    reason: str
    nodes: dict[str, AllocatedNode]
    size: int

    @property
    def running(self) -> bool:
        """Whether steps can start in it."""
        return self.state == "RUNNING"

    @property
    def waiting(self) -> bool:
        """Whether it may start later."""
        return self.state in _WAITING

    @property
    def closed(self) -> bool:
        """Whether its steps may have processes, but none can start: it is ending or suspended."""
        return self.state in _CLOSED


def parse_nodes(text: str) -> list[SlurmNode]:
    """Return the nodes in the output of `scontrol show nodes`, with `--json` or `--oneliner`."""
    if text.lstrip().startswith("{"):
        nodes = _from_json(text)
    else:
        # A comment may have other characters that `splitlines` takes for the end of a line.
        lines = text.split("\n")
        nodes = [_from_line(line) for line in lines if line.startswith("NodeName=")]
    seen: set[str] = set()
    for node in nodes:
        if node.name in seen:
            raise InputError(f"node {shown(node.name)} is there twice.")
        seen.add(node.name)
    return nodes


def parse_job(line: str) -> SlurmJob:
    """Return the job in a line of `scontrol show job --details --oneliner`."""
    found = re.findall(r" Nodes=(\S+) CPU_IDs=(\S+) Mem=\S+ GRES=(\S*)", line)
    nodes = {
        name: AllocatedNode(_count_ids(cpus), gpus_in(gres)[0])
        for names, cpus, gres in found
        for name in expand(names)
    }
    user, _, user_id = _value(line, "UserId").partition("(")
    return SlurmJob(
        name=_value(line, "JobName", ""),
        user=user,
        user_id=_number(user_id.rstrip(")")),
        state=_value(line, "JobState"),
        reason=_value(line, "Reason"),
        nodes=nodes,
        size=_node_count(_value(line, "NumNodes", "0")),
    )


def gpus_in(gres: str) -> tuple[int, str]:
    """Return the number of GPUs in a list of generic resources, and their type if it is one.

    Examples: `gpu:2`, `gpu:a100:4(S:0-1),nvme:1`, `gpu:a100:2(IDX:0,3)`, `(null)`.

    Raises:
        InputError: It has no such form, or its count is not a whole number.
    """
    count, types = 0, set()
    for one in re.sub(r"\([^()]*\)", "", gres).split(","):
        name, *words = one.split(":")
        if name == "gpu":
            last = words[-1] if words else ""
            found = _COUNT.fullmatch(last)
            if found is not None:
                words.pop()
            elif "(" in one or len(words) > 1 or _NUMBER.fullmatch(last):
                raise InputError(
                    f"{shown(gres)} is not understood; GPUs are written such as gpu:4 or "
                    "gpu:a100:4(S:0-1)."
                )
            power = 0 if found is None else " KMGTP".index(found[2].upper() or " ")
            count += 1 if found is None else int(found[1]) * 1024**power
            types.add(words[0] if words else "")
    return count, types.pop() if len(types) == 1 else ""


def _from_line(line: str) -> SlurmNode:
    gpus, gpu = gpus_in(_value(line, "Gres", "(null)"))
    name = _value(line, "NodeName")
    return SlurmNode(
        name=name,
        address=_value(line, "NodeAddr", name),
        cpus=_number(_value(line, "CPUTot")),
        memory_bytes=_number(_value(line, "RealMemory")) * MEBIBYTE,
        gpus=gpus,
        gpu=gpu,
        states=_states(_value(line, "State").split("+")),
    )


def _from_json(text: str) -> list[SlurmNode]:
    try:
        content = msgspec.json.decode(text)
    except msgspec.MsgspecError as error:
        raise InputError(f"scontrol's JSON is not understood: {error}.") from None
    except RecursionError:
        raise InputError("scontrol's JSON is not understood: it is nested too deeply.") from None
    tables = content.get("nodes") if isinstance(content, dict) else None
    if not isinstance(tables, list):
        raise InputError("scontrol's JSON is not understood: there is no list 'nodes'.")
    for number, table in enumerate(tables, 1):
        if not isinstance(table, dict) or not _is_name(table.get("name")):
            raise InputError(f"scontrol's JSON is not understood: node {number} has no name.")
    return [_from_table(table) for table in tables]


def _from_table(table: dict[str, Any]) -> SlurmNode:
    name = table["name"]
    state = table.get("state")  # A word and flags until 22.05, then a list.
    words = [state] if isinstance(state, str) else state
    flags = table.get("state_flags") or []
    try:
        gpus, gpu = gpus_in(_text(table.get("gres")))
        return SlurmNode(
            name=name,
            address=_text(table.get("address") or name),
            cpus=_number(table.get("cpus")),
            memory_bytes=_number(table.get("real_memory")) * MEBIBYTE,
            gpus=gpus,
            gpu=gpu,
            states=_states([_text(word) for word in _list(words) + _list(flags)]),
        )
    except InputError as error:
        raise InputError(f"node {shown(name)}: {error.problem}") from None


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise InputError(f"scontrol's answer is not understood: {shown(value)} is not a text.")
    return value


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise InputError(f"scontrol's answer is not understood: {shown(value)} is not a list.")
    return value


def _states(words: list[str]) -> frozenset[str]:
    states = {word.rstrip(_FLAGS).upper() for word in words}
    if any("*" in word for word in words):
        states.add("NOT_RESPONDING")
    return frozenset(states - {""})


def _value(line: str, key: str, default: str | None = None) -> str:
    """Return a value of `Key=Value Key=Value …`; the first, because comments come last."""
    found = re.search(rf"(?:^|\s){key}=(\S*)", line)
    if found is None and default is None:
        raise InputError(f"scontrol's answer is not understood: no {key} in {shown(line)}.")
    return found[1] if found is not None else str(default)


def _number(value: Any) -> int:
    """Return a number, which newer versions write as {"set": true, "number": 4}."""
    if isinstance(value, dict):
        value = value.get("number")
    if isinstance(value, bool) or not str(value).isdecimal():
        raise InputError(f"scontrol's answer is not understood: {shown(value)} is not a number.")
    return int(value)


def _node_count(text: str) -> int:
    """Return a number of nodes such as `5`, `2K` (2,048), or `2-2` of a job that waits."""
    least = text.partition("-")[0]
    return _number(least.removesuffix("K")) * (1024 if least.endswith("K") else 1)


def _count_ids(ids: str) -> int:
    """Return how many numbers there are in a list such as `0-3,8`."""
    pairs = [one.partition("-") for one in ids.split(",")]
    return sum(int(last or first) - int(first) + 1 for first, _, last in pairs)
