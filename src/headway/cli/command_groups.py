"""The groups of commands in `headway --help`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from typer.core import TyperGroup


class Group(NamedTuple):
    """Commands that belong together: name to one line."""

    title: str
    commands: Mapping[str, str]


GROUPS = (
    Group(
        "Simulate",
        {
            "simulate": "Simulate a workload on a cluster",
            "compare": "Compare policies on the same workloads",
            "sweep": "Run every combination of workloads, clusters and policies",
            "reproduce": "Reproduce the paper's evaluation",
            "validate": "Compare predicted iterations of large models with measured ones",
            "workload": "Generate, import, list and describe workloads",
            "cluster": "Write cluster files: Clos fabrics, real topologies",
            "graph": "Build, show and import graphs of iterations",
            "model": "Size, plan and graph large language models",
            "policies": "List the policies to choose from",
            "new": "Write a policy or a sweep to start from",
        },
    ),
    Group(
        "Analyse",
        {
            "view": "Look at runs in a browser, or write one page",
            "explain": "Show where a job's time went",
            "report": "Draw a timeline, or write a sweep's page",
            "timeline": "Convert recorded timelines",
        },
    ),
    Group(
        "Measure",
        {
            "calibrate": "Measure a network, a GPU, or what models cost",
            "network": "Show what an all-reduce costs over a link",
            "testbed": "Emulate hosts with slow links on this machine",
        },
    ),
    Group(
        "Run real jobs",
        {
            "serve": "Start the live scheduler",
            "submit": "Submit a job to it",
            "status": "Show the scheduler and its jobs",
            "top": "Watch nodes and jobs",
            "web": "Open its page in a browser",
            "nodes": "Show nodes, and what waits there and why",
            "logs": "Print a job's output",
            "cancel": "Cancel a job",
            "drain": "Place no new jobs on a node",
            "policy": "Show or switch the running scheduler's policy",
            "whatif": "Predict what the running cluster will do, or would",
            "replay": "Repeat a live run's decisions from its log",
        },
    ),
)
"""All commands in the order of `headway --help`."""


class GroupedCommands(TyperGroup):
    """Lists the commands by group, each in one line that is never cut."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each group."""
        widest = max(len(name) for group in GROUPS for name in group.commands)
        for group in GROUPS:
            with formatter.section(group.title):
                formatter.write_dl(
                    [(name.ljust(widest), text) for name, text in group.commands.items()]
                )
