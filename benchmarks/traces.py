"""Compare policies on days of the Philly trace, each job with its GPUs to itself.

python benchmarks/traces.py philly_pollux.csv   # about ten minutes; writes traces.md
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from headway.configuration import cluster_from
from headway.engine.run import simulate
from headway.experiments.statistics import paired_ratio
from headway.network.contention import NETWORKS
from headway.reports.tables import Table
from headway.workload.traces.importing import Choice, import_trace

DOCS = Path(__file__).parents[1] / "docs" / "policies" / "measured"
DAY_S = 86_400
FIRST_S = 30 * DAY_S
CLUSTERS = ("192x8", "96x8", "48x8", "24x8")
OTHERS = (
    "lwf:1+ada-srsf",
    "lwf:1+srtf+srsf:1",
    "consolidate+srsf:1",
    "consolidate+srtf+ada-dual@50",
    "least-delay+srsf:1",
)
ACCURACY = 0.01
"""Of policies with another placement: exact runs of some take minutes."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", help="philly.csv of Pollux's simulator")
    parser.add_argument("--days", type=int, default=6)
    arguments = parser.parse_args()
    days = []
    for day in range(arguments.days):
        from_s = FIRST_S + 2 * day * DAY_S
        choice = Choice(from_s=from_s, to_s=from_s + DAY_S, exclusive=True)
        days.append(import_trace("philly-pollux", [arguments.trace], choice).workload)
    lines = []
    for shape in CLUSTERS:
        cluster = cluster_from(shape, 16.0)
        gpu_s = [sum(job.gpus * job.iterations * job.compute_ns for job in one) for one in days]
        load = float(np.mean(gpu_s)) / 1e9 / cluster.gpus / DAY_S
        for network in ("10gbe", "100gbe"):
            found = {}
            for policy in ("headway", *OTHERS):
                accuracy = None if policy.startswith(("headway", "least-delay")) else ACCURACY
                found[policy] = np.array(
                    [
                        simulate(
                            one,
                            cluster,
                            network=NETWORKS[network],
                            policy=policy,
                            accuracy=accuracy,
                        ).summary.average_jct_s
                        for one in days
                    ]
                )
            best = min(OTHERS, key=lambda policy: float(found[policy].mean()))
            ratios = [paired_ratio(found["headway"], found[one]) for one in (best, OTHERS[0])]
            shown = [f"{one.value:.3f} ({one.low:.3f} to {one.high:.3f})" for one in ratios]
            means = [f"{found['headway'].mean():,.0f}", f"{found[best].mean():,.0f} (`{best}`)"]
            lines.append([f"{shape}, {network}", f"{load:.2f}", *means, *shown])
            print(lines[-1], flush=True)
    header = ("", "load", "headway [s]", "best other [s]", "headway over it", "over the paper's")
    caption = f"Average JCT, {len(days)} days of Philly, GPUs of one's own"
    table = Table("traces", caption, header, lines)
    print(table.to_markdown())
    (DOCS / "traces.md").write_text(table.to_markdown())


if __name__ == "__main__":
    main()
