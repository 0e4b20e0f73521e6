"""`headway policies`."""

from __future__ import annotations

from headway.cli.console import print_table, results
from headway.text_table import TextTable


def policies_command() -> None:
    """List the policies to choose from: placements, priorities, admissions and combinations.

    `headway policy` shows and switches that of the running scheduler.
    """
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
        names, _, bucket_mb = text.partition("@")
        sent = f", all-reduces in buckets of {bucket_mb} MB" if bucket_mb else ""
        table.add_row("policy", name, f"{names}{sent}")
    console = results()
    print_table(console, table)
    console.print(
        "\nGive a policy to --policy, or combine: PLACEMENT+PRIORITY+ADMISSION or "
        "PLACEMENT+SCHEDULER; @25 at the end sends all-reduces in buckets of 25 MB. An admission "
        "or a scheduler may end in /needed-first: of a job's messages, what is needed first goes "
        "first. For a policy of your own give FILE.py:FUNCTION; `headway new policy` writes a file "
        "to start from."
    )
