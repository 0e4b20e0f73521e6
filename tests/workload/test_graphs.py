"""Graph files, and workloads that name them."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import polars
import pytest

from builders import make_job, make_workload
from headway.domain.errors import InputError
from headway.domain.graph import Graph, Message, Task
from headway.domain.job import Job
from headway.domain.workload import Workload
from headway.workload import graphs
from headway.workload.files import read_workload, write_workload
from headway.workload.graphs import read_graph, write_graph

EXAMPLE = """{
  "ranks": 4,
  "tasks": [
    {"name": "forward", "ranks": [0, 1, 2, 3], "ms": 25.0},
    {"name": "backward-1", "ms": 20.0},
    {"name": "backward-2", "ms": 17.4}
  ],
  "messages": [
    {"name": "gradients-1", "kind": "all-reduce", "mb": 60.0, "after": ["backward-1"]},
    {"name": "gradients-2", "kind": "all-reduce", "mb": 39.2, "after": ["backward-2"]}
  ]
}
"""
ALL = (0, 1, 2, 3)
PARSED = Graph(
    4,
    [
        Task("forward", ALL, 25_000_000),
        Task("backward-1", ALL, 20_000_000),
        Task("backward-2", ALL, 17_400_000),
    ],
    [
        Message("gradients-1", "all-reduce", [ALL], 60 * 2**20, after=["backward-1"]),
        Message("gradients-2", "all-reduce", [ALL], round(39.2 * 2**20), after=["backward-2"]),
    ],
)
VARIED = Graph(
    3,
    [Task("über", [2, 0], 1), Task("b", [1], 333_333, ["m"]), Task("c", [0, 1, 2], 7)],
    [
        Message("m", "send", [(2, 1)], 0, "p2p"),
        Message("n", "all-to-all", [(0, 1)], 3 * 2**19, after=["m", "c"]),
    ],
)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_example_of_the_format_is_read() -> None:
    Path("g.json").write_text(EXAMPLE)
    assert read_graph("g.json") == PARSED


@pytest.mark.parametrize("graph", [PARSED, VARIED, Graph(1, [Task("t", [0], 5)])])
def test_a_graph_that_is_written_reads_the_same(graph: Graph) -> None:
    write_graph(graph, "g.json")
    again = read_graph("g.json")
    assert [(task.name, sorted(task.ranks), task.duration_ns) for task in again.tasks] == [
        (task.name, sorted(task.ranks), task.duration_ns) for task in graph.tasks
    ]
    assert again.messages == graph.messages
    assert again.expanded.successors.tolist() == graph.expanded.successors.tolist()


def test_a_written_graph_has_a_line_for_each_entry_and_leaves_out_what_is_usual() -> None:
    write_graph(VARIED, "g.json")
    assert Path("g.json").read_text() == (
        '{\n  "ranks": 3,\n  "tasks": [\n'
        '    {"name": "über", "ranks": [2, 0], "ms": 1e-06},\n'
        '    {"name": "b", "ranks": [1], "ms": 0.333333, "after": ["m"]},\n'
        '    {"name": "c", "ms": 7e-06}\n'
        "  ],\n"
        '  "messages": [\n'
        '    {"name": "m", "kind": "send", "groups": [[2, 1]], "mb": 0.0, "channel": "p2p"},\n'
        '    {"name": "n", "kind": "all-to-all", "groups": [[0, 1]], "mb": 1.5, '
        '"after": ["m", "c"]}\n'
        "  ]\n}\n"
    )


def test_a_byte_order_mark_is_allowed() -> None:
    Path("g.json").write_bytes(b"\xef\xbb\xbf" + EXAMPLE.encode())
    assert read_graph("g.json") == PARSED


TASK = '{"name": "t", "ms": 1}'
MESSAGE = '{"name": "m", "kind": "send", "mb": 1}'


def with_task(**changes: Any) -> str:
    task = {"name": "t", "ms": 1} | changes
    return json.dumps({"ranks": 2, "tasks": [task]})


def with_message(**changes: Any) -> str:
    message = {"name": "m", "kind": "all-reduce", "mb": 1} | changes
    return json.dumps({"ranks": 4, "tasks": [{"name": "t", "ms": 1}], "messages": [message]})


MALFORMED: list[tuple[str, str]] = [
    ("", "g.json, line 1, column 1: not JSON: expecting value."),
    ('{"ranks": 2,\n  "tasks": [}', "g.json, line 2, column 13: not JSON: expecting value."),
    ('{"ranks": 2} more', "g.json, line 1, column 14: not JSON: extra data."),
    ("[]", "g.json: must be an object with ranks and tasks, not a list."),
    ("null", "g.json: must be an object with ranks and tasks, not null."),
    ("{}", "g.json: the key 'ranks' is missing."),
    ('{"ranks": 2}', "g.json: the key 'tasks' is missing."),
    ('{"rank": 2}', "g.json: unknown key 'rank'. Did you mean 'ranks'?"),
    ('{"ranks": 2, "ranks": 3, "tasks": []}', "g.json: the key 'ranks' is repeated; give it once."),
    ('{"ranks": 2.0, "tasks": []}', "g.json, ranks: must be a whole number, not 2.0."),
    ('{"ranks": true, "tasks": []}', "g.json, ranks: must be a whole number, not true."),
    ('{"ranks": 0, "tasks": []}', "g.json, ranks: must be at least 1, not 0."),
    (
        '{"ranks": 99999999, "tasks": []}',
        "g.json, ranks: must be at most 16,777,216, not 99999999.",
    ),
    ('{"ranks": 2, "tasks": {}}', "g.json, tasks: must be a list, not an object."),
    (
        '{"ranks": 2, "tasks": []}',
        "g.json, tasks: rank 0 has no task; each rank needs at least one.",
    ),
    ('{"ranks": 2, "tasks": [7]}', "g.json, tasks[0]: must be an object, not 7."),
    ('{"ranks": 2, "tasks": [{"ms": 1}]}', "g.json, tasks[0]: the key 'name' is missing."),
    ('{"ranks": 2, "tasks": [{"name": "t"}]}', "g.json, task 't': the key 'ms' is missing."),
    (
        '{"ranks": 2, "tasks": [{"name": "t", "ms": 1, "ms": 2}]}',
        "g.json, task 't': the key 'ms' is repeated; give it once.",
    ),
    (
        f'{{"ranks": 1, "tasks": [{TASK}], "messages": [{MESSAGE}]}}',
        "g.json, message 'm': a graph of one rank has no messages; leave it out.",
    ),
    (
        f'{{"ranks": 2, "tasks": [{TASK}, {TASK}]}}',
        "g.json, task 't': the name is used twice; names of tasks and messages must all differ.",
    ),
    (
        f'{{"ranks": 2, "tasks": [{TASK}], "messages": null}}',
        "g.json, messages: must be a list, not null.",
    ),
    (
        f'{{"ranks": 2, "tasks": [{TASK}], "messages": [{MESSAGE}, ["m"]]}}',
        "g.json, messages[1]: must be an object, not a list.",
    ),
    (with_task(name=""), "g.json, tasks[0], name: must be a non-empty string, not ''."),
    (with_task(name=3), "g.json, tasks[0], name: must be a non-empty string, not 3."),
    (
        with_task(duration=3),
        "g.json, task 't': unknown key 'duration'. Known: after, ms, name, ranks.",
    ),
    (with_task(ms=0), "g.json, task 't', ms: must be at least 0.000001 milliseconds, not 0."),
    (with_task(ms="None"), "g.json, task 't', ms: must be a number, not 'None'."),
    (with_task(name=None), "g.json, tasks[0], name: must be a non-empty string, not null."),
    (
        with_task(after=[False]),
        "g.json, task 't', after: a name must be a string, not false.",
    ),
    (with_task(ms=True), "g.json, task 't', ms: must be a number, not true."),
    (with_task(ms="1"), "g.json, task 't', ms: must be a number, not '1'."),
    (
        with_task(ms=float("nan")),
        "g.json, task 't', ms: must be a finite number of milliseconds, not nan.",
    ),
    (
        with_task(ms=1).replace('"ms": 1', '"ms": 1e400'),
        "g.json, task 't', ms: must be a finite number of milliseconds, not inf.",
    ),
    (
        with_task(ms=10**30),
        "g.json, task 't', ms: must be at most 2,305,843,009,214 milliseconds, not "
        "1000000000000000000000000000000.",
    ),
    (
        with_task(ms=1).replace('"ms": 1', f'"ms": {"1" * 5000}'),
        "g.json: not a graph: a number has thousands of digits.",
    ),
    (
        with_task(ranks=[]),
        "g.json, task 't', ranks: must not be empty; a task is for at least one rank.",
    ),
    (with_task(ranks=1), "g.json, task 't', ranks: must be a list, not 1."),
    (with_task(ranks=[0, 2]), "g.json, task 't', ranks: there is no rank 2; ranks are 0 to 1."),
    (
        with_task(ranks=[0, 0]),
        "g.json, task 't', ranks: rank 0 is there twice; give each rank once.",
    ),
    (with_task(ranks=[True]), "g.json, task 't', ranks: a rank must be a whole number, not true."),
    (with_task(after="t"), "g.json, task 't', after: must be a list, not 't'."),
    (with_task(after=["x"]), "g.json, task 't', after: unknown name 'x'; there is no other entry."),
    (with_task(after=[1]), "g.json, task 't', after: a name must be a string, not 1."),
    (with_task(after=[["t"]]), "g.json, task 't', after: a name must be a string, not ['t']."),
    (
        with_task(ranks=[[0], {}]),
        "g.json, task 't', ranks: a rank must be a whole number, not a list or an object.",
    ),
    (
        with_message(groups=[[[0], [1]]]),
        "g.json, message 'm', groups: a rank must be a whole number, not a list or an object.",
    ),
    (
        with_message(kind="broadcast"),
        "g.json, message 'm', kind: unknown kind 'broadcast'. Known: all-gather, all-reduce, "
        "all-to-all, reduce-scatter, send.",
    ),
    (
        with_message(kind=["send"]),
        "g.json, message 'm', kind: unknown kind ['send']. Did you mean 'send'?",
    ),
    (with_message(mb=-1), "g.json, message 'm', mb: must be 0 or more MB, not -1."),
    (
        with_message(mb=1e300),
        "g.json, message 'm', mb: must be at most 8,589,934,592 MB, not 1e+300.",
    ),
    (
        with_message(kind="all-to-all", mb=2**33),
        "g.json, message 'm', mb: must be at most 6,004,799,503,160,661 bytes in a group of 4 "
        "ranks, not 9,007,199,254,740,992.",
    ),
    (
        with_message(ranks=[0]),
        "g.json, message 'm': unknown key 'ranks'. Known: after, channel, groups, kind, mb, name.",
    ),
    (with_message(groups=[0, 1]), "g.json, message 'm', groups: must be a list, not 0."),
    (
        with_message(groups=[[0]]),
        "g.json, message 'm', groups: a group needs at least two ranks, not [0].",
    ),
    (
        with_message(groups=[[0, 1], [1, 2]]),
        "g.json, message 'm', groups: rank 1 is there twice; give each rank once.",
    ),
    (
        with_message(kind="send"),
        "g.json, message 'm', groups: each group of a send has exactly two ranks, not 4: [0, "
        "1, 2, 3].",
    ),
    (with_message(channel=""), "g.json, message 'm', channel: must be a non-empty string, not ''."),
    (
        with_message(after=["t", "m"]),
        "g.json, message 'm', after: an entry cannot wait for itself; leave its own name out.",
    ),
    (
        EXAMPLE.replace('"ms": 20.0', '"ms": 20.0, "after": ["backward-2"]'),
        "g.json, task 'backward-1', after: the task 'backward-2' stands later in the list; a task "
        "can only wait for tasks before it.",
    ),
    (
        EXAMPLE.replace('"ms": 20.0', '"ms": 20.0, "after": ["gradients-2"]'),
        "g.json: a cycle: 'backward-1' on rank 3 -> 'gradients-1' among ranks 0, 1, 2, 3 -> "
        "'gradients-2' among ranks 0, 1, 2, 3 -> 'backward-1' on rank 3, each before the next by "
        "`after`, by the order of a rank's tasks or by that of a channel's messages.",
    ),
]


@pytest.mark.parametrize(("text", "message"), MALFORMED)
def test_a_malformed_graph_gets_one_exact_message(text: str, message: str) -> None:
    Path("g.json").write_text(text)
    with pytest.raises(InputError) as caught:
        read_graph("g.json")
    assert str(caught.value) == message


def test_files_that_are_no_json_text_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(content: bytes) -> str:
        Path("g.json").write_bytes(content)
        with pytest.raises(InputError) as caught:
            read_graph("g.json")
        return str(caught.value)

    assert refused(b'{"\xff": 1}') == ("g.json: not UTF-8 text: byte 0xff; a graph is a JSON file.")
    assert refused(b"[" * 200_000) == (
        "g.json: not a graph: objects or lists are nested too deeply."
    )
    monkeypatch.setattr(graphs, "MAX_FILE_BYTES", 100)
    assert refused(EXAMPLE.encode()) == ("g.json: longer than 100 bytes; a graph file is shorter.")
    with pytest.raises(InputError, match=r"^missing\.json: No such file or directory\.$"):
        read_graph("missing.json")


HEADER = "job_id,arrival_s,gpus,iterations,graph"


def test_a_table_names_graph_files_relative_to_its_folder() -> None:
    Path("tables/graphs").mkdir(parents=True)
    Path("tables/graphs/g.json").write_text(EXAMPLE)
    Path("tables/w.csv").write_text(
        "job_id,arrival_s,gpus,iterations,model,memory_mb,measured_on,graph\n"
        "a,0,4,2,,,,graphs/g.json\n"
        "b,1,4,3,,100,v100,graphs/g.json\n"
        "c,0,4,2,resnet50,,,\n"
    )
    first, second, plain = read_workload("tables/w.csv")
    assert first == Job("a", 0, 4, 2, graph=PARSED)
    assert second == Job("b", 10**9, 4, 3, memory_bytes=100 * 2**20, graph=PARSED)
    assert second.graph is first.graph
    assert plain == Job.of_model("resnet50", job_id="c", arrival_ns=0, gpus=4, iterations=2)


def test_the_columns_of_plain_jobs_may_be_absent() -> None:
    Path("g.json").write_text(EXAMPLE)
    Path("w.csv").write_text(f"{HEADER}\na,0,4,2,g.json\n")
    (job,) = read_workload("w.csv")
    assert (job.memory_bytes, job.graph) == (0, PARSED)
    table = polars.DataFrame(
        {"job_id": ["a"], "arrival_s": [0], "gpus": [4], "iterations": [2], "graph": ["g.json"]}
    )
    table.write_parquet("w.parquet")
    assert read_workload("w.parquet").jobs == (job,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            f"{HEADER},model\na,0,4,2,g.json,resnet50\n",
            "line 2, column 6 (model): must be empty in a row with a graph.",
        ),
        (
            f"{HEADER},forward_ms\na,0,4,2,g.json,1\n",
            "line 2, column 6 (forward_ms): must be empty in a row with a graph.",
        ),
        (
            f"{HEADER},batch_size\na,0,4,2,g.json,1\n",
            "line 2, column 6 (batch_size): must be empty in a row with a graph.",
        ),
        (
            f"{HEADER},gradient_mb\na,0,4,2,g.json,0\n",
            "line 2, column 6 (gradient_mb): must be empty in a row with a graph.",
        ),
        (
            f"{HEADER}\na,0,4,2,g.json\nb,0,8,2,g.json\n",
            "line 3, column 3 (gpus): must be 4, the ranks of 'g.json', not 8.",
        ),
        (
            f"{HEADER}\na,0,4,2,\n",
            "line 2, forward_ms: must not be empty; without a model or a graph a row needs "
            "forward_ms, backward_ms, gradient_mb, memory_mb.",
        ),
        (
            f"{HEADER}\na,0,4,2,h.json\n",
            "line 2, column 5 (graph): h.json: No such file or directory.",
        ),
        (f"{HEADER}\na,0,4,2,-\n", "line 2, column 5 (graph): -: must be a file."),
        (
            f"{HEADER}\na,0,2,2,bad.json\n",
            "line 2, column 5 (graph): bad.json, task 't', ms: must be a number, not 'x'.",
        ),
        (
            f"{HEADER}\na,0,3,2,huge.json\n",
            "line 2, column 3 (gpus): must be 16,777,216, the ranks of 'huge.json', not 3.",
        ),
        (
            f"{HEADER}\na,0,4,1000000000000,slow.json\n",
            "line 2, column 4 (iterations): too many: computation alone would end after the "
            "simulator's last instant (4,611,686,018,427,387,904 ns, 146 years).",
        ),
    ],
)
def test_a_row_with_a_graph_is_refused_with_its_line(text: str, message: str) -> None:
    Path("g.json").write_text(EXAMPLE)
    Path("slow.json").write_text(EXAMPLE.replace("25.0", "1e9"))
    Path("bad.json").write_text(with_task(ms="x"))
    Path("huge.json").write_text(json.dumps({"ranks": 2**24, "tasks": [json.loads(TASK)] * 9999}))
    Path("w.csv").write_text(text)
    with pytest.raises(InputError) as caught:
        read_workload("w.csv")
    assert str(caught.value) == f"w.csv, {message}"


@pytest.mark.parametrize("name", ["w.csv", "w.parquet"])
def test_a_workload_with_graphs_is_written_with_its_graphs_beside_it(name: str) -> None:
    Path("out").mkdir()
    workload = make_workload(
        Job("a", 0, 4, 2, graph=PARSED),
        make_job(gpus=2),
        Job("b", 5, 4, 2, memory_bytes=2**20, measured_on="a100-sxm4", graph=PARSED),
        Job("c", 5, 4, 2, graph=Graph(4, [Task("t", ALL, 5)])),
    )
    write_workload(workload, f"out/{name}")
    assert len([*Path("out/w.graphs").glob("*.json")]) == 2
    Path("out").rename("moved")
    assert read_workload(f"moved/{name}").jobs == workload.jobs
    with pytest.raises(InputError, match="cannot be written to standard output"):
        write_workload(workload, "-")


def one_task(duration_ns: int) -> Workload:
    return make_workload(Job("a", 0, 1, 2, graph=Graph(1, [Task("t", [0], duration_ns)])))


def test_tables_that_differ_in_their_suffix_keep_their_own_graphs() -> None:
    write_workload(one_task(1), "w.csv")
    write_workload(one_task(2), "w.parquet")
    assert read_workload("w.csv").jobs == one_task(1).jobs
    assert read_workload("w.parquet").jobs == one_task(2).jobs


def test_a_table_that_is_replaced_takes_along_only_graphs_that_nobody_else_names() -> None:
    for name, times in (("w.csv", (1, 2, 3)), ("w.parquet", (2,))):
        jobs = [job for time in times for job in one_task(time)]
        write_workload(make_workload(*jobs), name)
    third = Path("w.csv").read_text().splitlines()[3]
    Path("copy.csv").write_text(f"job_id,arrival_s,gpus,iterations,graph\n{third}\n")
    Path("w.graphs/mine.json").write_text(EXAMPLE)
    write_workload(one_task(4), "w.csv")
    # Of the first table's graphs, the second is in w.parquet too and the third in the copy.
    assert read_workload("w.parquet").jobs == one_task(2).jobs
    assert read_workload("copy.csv")[0].graph == one_task(3)[0].graph
    assert len([*Path("w.graphs").iterdir()]) == 4
    write_workload(make_workload(make_job()), "w.csv")
    assert len([*Path("w.graphs").iterdir()]) == 3


def test_a_graph_that_was_edited_is_not_taken_for_the_one_that_was_written() -> None:
    write_workload(one_task(1), "w.csv")
    (path,) = Path("w.graphs").iterdir()
    path.write_text(path.read_text().replace("1e-06", "7"))
    write_workload(one_task(1), "w.csv")
    assert read_workload("w.csv").jobs == one_task(1).jobs
    assert "7" in path.read_text()


@pytest.mark.parametrize("old", [None, one_task(1)], ids=["new", "replaced"])
@pytest.mark.parametrize("written", [0, 1, 2], ids=["no graph", "a graph", "both graphs"])
def test_a_table_that_is_not_written_changes_nothing(
    old: Workload | None, written: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if old is not None:
        write_workload(old, "w.csv")
    before = {path: path.is_file() and path.read_bytes() for path in Path().rglob("*")}
    replace, left = os.replace, [written]

    def fail(source: str, target: Path) -> None:
        if left[0] == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        left[0] -= 1
        replace(source, target)

    monkeypatch.setattr(os, "replace", fail)
    new = [one_task(2)[0], one_task(3)[0]]
    with pytest.raises(InputError, match="No space left on device"):
        write_workload(make_workload(*new), "w.csv")
    assert {path: path.is_file() and path.read_bytes() for path in Path().rglob("*")} == before


def test_a_graph_too_long_to_be_read_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "MAX_FILE_BYTES", 300)
    write_graph(Graph(1, [Task("t", [0], 1)]), "small.json")
    with pytest.raises(InputError, match="would be longer than 300 bytes"):
        write_graph(PARSED, "g.json")
    assert not Path("g.json").exists()
    read_graph("small.json")


def test_of_a_long_cycle_only_the_nodes_that_are_named_are_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_up = Mock(side_effect=np.searchsorted)
    monkeypatch.setattr(np, "searchsorted", looked_up)
    messages = [
        Message(f"m{at}", "all-reduce", [(0, 1)], 0, f"c{at}", [f"m{(at + 1) % 2_000}"])
        for at in range(2_000)
    ]
    with pytest.raises(InputError, match=r"a cycle: 'm0' .* \(1,993 more\) -> 'm0' among"):
        Graph(2, [Task("t", (0, 1), 1)], messages)
    assert looked_up.call_count < 10
