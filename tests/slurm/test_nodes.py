"""What `scontrol` says about nodes and jobs, in the formats of different versions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headway.domain.errors import InputError
from headway.slurm.nodes import AllocatedNode, SlurmNode, gpus_in, parse_job, parse_nodes
from headway.slurm.programs import nodes

LINE = (
    "NodeName=gpu1 Arch=x86_64 CoresPerSocket=32 CPUAlloc=0 CPUEfctv=64 CPUTot=64 CPULoad=0.01 "
    "AvailableFeatures=(null) ActiveFeatures=(null) Gres=gpu:a100:4(S:0-1),nvme:1 "
    "NodeAddr=10.0.0.1 NodeHostName=gpu1 Version=22.05.8 OS=Linux 6.1.0 #1 SMP Debian "
    "RealMemory=515000 AllocMem=0 FreeMem=1 Sockets=2 Boards=1 State=IDLE+DRAIN ThreadsPerCore=1 "
    "Partitions=gpu BootTime=None Reason=Gres=gpu:9 is what it says [root@2024-01-01T00:00:00]"
)
EXPECTED = SlurmNode(
    "gpu1", "10.0.0.1", 64, 515000 * 2**20, 4, "a100", frozenset({"IDLE", "DRAIN"})
)


def node(**values: Any) -> dict[str, Any]:
    fields = {"name": "gpu1", "address": "10.0.0.1", "cpus": 64, "real_memory": 515000}
    return {**fields, "gres": "gpu:a100:4(S:0-1),nvme:1", **values}


@pytest.mark.parametrize(
    "text",
    [
        LINE,
        json.dumps({"nodes": [node(state="idle", state_flags=["DRAIN"])]}),  # 22.05
        json.dumps({"nodes": [node(state=["IDLE", "DRAIN"])]}),  # 23.02 and later
        json.dumps(
            {"nodes": [node(state=["IDLE", "DRAIN"], cpus={"set": True, "number": 64})], "meta": {}}
        ),
    ],
)
def test_nodes_are_the_same_in_every_format(text: str) -> None:
    assert parse_nodes(text) == [EXPECTED]
    assert EXPECTED.draining
    assert not EXPECTED.lost


def number(value: int) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": value}


META = {"plugins": [], "Slurm": {"version": {"major": "24", "micro": "1", "minor": "05"}}}
COMMON = {
    "architecture": "x86_64",
    "burstbuffer_network_address": "",
    "boards": 1,
    "hostname": "gpu1",
    "gres_drained": "N/A",
    "gres_used": "gpu:a100:0(IDX:N/A)",
    "operating_system": "Linux 6.1",
    "partitions": ["gpu"],
    "reason": "broken fan",
    "reason_set_by_user": "root",
    "sockets": 2,
    "tres": "cpu=64,mem=515000M,gres/gpu=4",
    "next_state_after_reboot": ["INVALID"],
}
CAPTURES = {
    "23.02": {
        "meta": {"Slurm": {"version": {"major": 23, "micro": 6, "minor": 2}, "release": "23.02.6"}},
        "nodes": [
            node(
                **COMMON,
                state=["IDLE", "DRAIN"],
                cpu_load=number(1),
                free_memory=number(9),
                boot_time=1700000000,
                weight=1,
                effective_cpus=64,
            )
        ],
        "last_update": 1700000000,
        "warnings": [],
        "errors": [],
    },
    "24.05": {
        "nodes": [
            node(
                **COMMON,
                state=["IDLE", "DRAIN"],
                cpu_load=1,
                free_mem=number(9),
                boot_time=number(1700000000),
                weight=1,
                gpu_spec="",
                resume_after={"set": False, "infinite": False, "number": 0},
            )
        ],
        "last_update": number(1700000000),
        "meta": META,
        "errors": [],
        "warnings": [],
    },
    "25.05": {
        "nodes": [
            node(
                **COMMON,
                state=["IDLE", "DRAIN"],
                cpu_load=1,
                free_mem=number(9),
                cpus=64,
                real_memory=number(515000),
                topology="default:leaf1",
                cert_flags=[],
                tls_cert_last_renewal=number(0),
            )
        ],
        "last_update": number(1700000000),
        "meta": META,
        "errors": [],
        "warnings": [],
    },
}


@pytest.mark.parametrize("version", CAPTURES)
def test_what_each_version_writes_as_json_is_understood(version: str) -> None:
    assert parse_nodes(json.dumps(CAPTURES[version])) == [EXPECTED]


@pytest.mark.parametrize(
    "answer",
    [
        '{"nodes": [{"name": "gpu1", "state": {"current": "IDLE"}}]}',
        '{"nodes": {"gpu1": {}}}',
        '{"hosts": []}',
        '{"nodes": [{"name": "gpu1", "gres": 4, "state": [1], "cpus": 1, "real_memory": 1}]}',
        "not JSON",
        "",
    ],
)
def test_json_that_is_not_understood_is_asked_for_as_text(
    answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json").write_text(answer)
    (tmp_path / "line").write_text(LINE)
    program = tmp_path / "scontrol"
    program.write_text(
        f'#!/bin/sh\ncd {tmp_path}\ncase "$3" in --json) /bin/cat json;; *) /bin/cat line;; esac\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert nodes((25, 11)) == [EXPECTED]


@pytest.mark.parametrize(
    ("state", "lost", "draining"),
    [
        ("IDLE", False, False),
        ("MIXED", False, False),
        ("IDLE*", False, False),
        ("DOWN*", True, False),
        ("DOWN*+DRAIN", True, True),
        ("MIXED+DRAIN", False, True),
        ("IDLE+POWERED_DOWN", True, False),
        ("UNKNOWN*", False, False),
    ],
)
def test_a_state_says_whether_a_node_is_lost_or_draining(
    state: str, lost: bool, draining: bool
) -> None:
    [found] = parse_nodes(LINE.replace("State=IDLE+DRAIN", f"State={state}"))
    assert (found.lost, found.draining) == (lost, draining)


@pytest.mark.parametrize(
    ("gres", "expected"),
    [
        ("(null)", (0, "")),
        ("", (0, "")),
        ("gpu:2", (2, "")),
        ("gpu", (1, "")),
        ("gpu:h100:8(IDX:0-7)", (8, "h100")),
        ("gpu:a100:2(S:0),gpu:v100:1(S:1)", (3, "")),
        ("gpu:2(IDX:0,2),shard:4", (2, "")),
        ("gpu:2080ti", (1, "2080ti")),
        ("gpu:a100:4K", (4096, "a100")),
    ],
)
def test_gpus_are_counted_among_generic_resources(gres: str, expected: tuple[int, str]) -> None:
    assert gpus_in(gres) == expected


@pytest.mark.parametrize("gres", ["gpu:a100:4(S:0-1", "gpu:a100:-4", "gpu:4.5", "gpu:a100:x"])
def test_a_count_of_gpus_that_makes_no_sense_is_refused(gres: str) -> None:
    nodes = [{**json.loads(json.dumps(CAPTURES["25.05"]))["nodes"][0], "gres": gres}]
    for text in (json.dumps({"nodes": nodes}), LINE.replace("gpu:a100:4(S:0-1)", gres)):
        with pytest.raises(InputError, match="is not understood; GPUs are written such as gpu:4"):
            parse_nodes(text)


def test_a_node_that_is_there_twice_is_refused() -> None:
    nodes = json.loads(json.dumps(CAPTURES["25.05"]))["nodes"] * 2
    for text in (json.dumps({"nodes": nodes}), f"{LINE}\n{LINE}"):
        with pytest.raises(InputError, match="node 'gpu1' is there twice"):
            parse_nodes(text)


def test_a_job_says_what_it_has_on_each_node() -> None:
    line = (
        "JobId=7 JobName=headway UserId=ada(1000) GroupId=ada(1000) JobState=RUNNING Reason=None "
        "NumNodes=3 JOB_GRES=gpu:5   Nodes=gpu[1-2] CPU_IDs=0-1 Mem=0 GRES=gpu:2(IDX:0-1)   "
        "Nodes=gpu3 CPU_IDs=0-3,8 Mem=100 GRES=gpu:1(IDX:3) MinCPUsNode=1"
    )
    found = parse_job(line)
    assert (found.name, found.user) == ("headway", "ada")
    assert (found.running, found.waiting) == (True, False)
    assert found.nodes == {
        "gpu1": AllocatedNode(2, 2),
        "gpu2": AllocatedNode(2, 2),
        "gpu3": AllocatedNode(5, 1),
    }


@pytest.mark.parametrize(
    "text",
    [
        *("NodeName=gpu1 Arch=x86_64", '{"nodes": [{"name": "gpu1"}]}', '{"nodes": 3}', "{"),
        *('{"a": 1}', '{"nodes": [null]}', '{"a":' * 20_000 + "1" + "}" * 20_000),
        *(f'{{"nodes": [{{"name": {name}, "gres": "gpu:4"}}]}}' for name in ("null", "7", '["a"]')),
        '{"nodes": [{"name": "a", "gres": "gpu:4", "cpus": 4, "real_memory": 1, "state": [[]]}]}',
        '{"nodes": [{"name": "a", "gres": "gpu:4", "cpus": {}, "real_memory": 1, "state": []}]}',
    ],
    ids=lambda text: text[:40],
)
def test_an_answer_that_is_not_understood_is_an_error(text: str) -> None:
    with pytest.raises(InputError, match="not understood") as caught:
        parse_nodes(text)
    assert "Error" not in str(caught.value)
