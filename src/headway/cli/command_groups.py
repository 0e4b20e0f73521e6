"""The commands: their groups in `headway --help`, and their modules, imported when they are run."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_group


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
            "submit": "Submit a job to the scheduler",
            "status": "Show the scheduler and its jobs",
            "top": "Watch nodes and jobs",
            "web": "Open the scheduler's page in a browser",
            "nodes": "Show nodes, and what waits there and why",
            "logs": "Print a job's output",
            "cancel": "Cancel jobs",
            "priority": "Change a job's priority",
            "drain": "Place no new jobs on a node",
            "policy": "Show or switch the running scheduler's policy",
            "whatif": "Predict when live jobs end, as things are or changed",
            "replay": "Repeat a live run's decisions from its log",
        },
    ),
)
"""All commands in the order of `headway --help`."""


_MODULES = {
    "cancel": "live.jobs",
    "cluster": "clusters",
    "drain": "live.cluster",
    "logs": "live.jobs",
    "nodes": "live.cluster",
    "policy": "live.cluster",
    "priority": "live.jobs",
    "serve": "live.serve",
    "status": "live.jobs",
    "submit": "live.jobs",
    "top": "live.top",
    "web": "live.web",
    "whatif": "live.what_if",
}
"""The modules in `headway.cli` of commands that are named differently."""

_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "calibrate": {
        "add_help_option": False,
        "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True},
    },
    "priority": {"context_settings": {"ignore_unknown_options": True}},
    "submit": {
        "context_settings": {"ignore_unknown_options": True, "allow_interspersed_args": False}
    },
}
"""The settings of commands that pass options on to other programs, or take negative numbers."""


def _load(name: str) -> Any:
    """Import a command: the `app` of its module, or the function `NAME_command` there."""
    module = import_module(f"headway.cli.{_MODULES.get(name, name)}")
    parent = typer.Typer(add_completion=False, rich_markup_mode=None)
    if hasattr(module, "app"):
        parent.add_typer(module.app, name=name)
    else:
        parent.command(name, **_SETTINGS.get(name, {}))(getattr(module, f"{name}_command"))
    return get_group(parent).commands[name]


class _Commands(UserDict[str, Any]):
    """Commands by name, each imported when it is asked for: importing all takes 0.1 s."""

    def __init__(self) -> None:
        super().__init__({name: None for group in GROUPS for name in group.commands})

    def __getitem__(self, name: str) -> Any:
        if self.data[name] is None:
            self.data[name] = _load(name)
        return self.data[name]

    def get(self, name: str, default: Any = None) -> Any:
        """Return a command, if there is one; an error of its module is not hidden."""
        return self[name] if name in self.data else default


class GroupedCommands(TyperGroup):
    """Lists the commands by group, each in one line that is never cut."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _Commands()

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        return list(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each group."""
        widest = max(len(name) for group in GROUPS for name in group.commands)
        for group in GROUPS:
            with formatter.section(group.title):
                formatter.write_dl(
                    [(name.ljust(widest), text) for name, text in group.commands.items()]
                )
