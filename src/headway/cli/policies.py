"""`headway policies`."""

from __future__ import annotations

from headway.cli.console import print_table, results
from headway.text_table import TextTable


def policies_command() -> None:
    """List all policies, schedulers and presets."""
    from headway.policies.policy_set import PRESETS, SCHEDULERS
    from headway.policies.registry import Kind, policies

    table = TextTable(["kind", "name"], texts=[""])
    kinds: tuple[Kind, ...] = ("placement", "priority", "admission")
    for kind in kinds:
        for policy in policies(kind):
            table.add_row(kind, policy.usage, policy.summary)
    for name, (priority, admission) in SCHEDULERS.items():
        table.add_row("scheduler", name, f"priority {priority}, admission {admission}")
    for name, text in PRESETS.items():
        table.add_row("policy", name, text)
    console = results()
    print_table(console, table)
    console.print(
        "\nFor your own policies, give FILE.py:FUNCTION to --placement, --priority or --admission."
    )
