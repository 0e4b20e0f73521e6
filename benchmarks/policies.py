"""Compare all policies, in the paper's setting and in others, on seeds that shaped none of them.

`python benchmarks/policies.py` regenerates the tables of docs/policies/, in about ten minutes on
two cores. Workloads of seeds 5000 and up were never looked at while the preset `headway` was
designed; seeds 1000 to 1011 were.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from headway.configuration import cluster_from
from headway.domain.models import MODELS
from headway.engine.parallel import thread_count
from headway.engine.run import simulate
from headway.experiments.statistics import Sample, mean, paired_ratio
from headway.network.contention import NETWORKS, NetworkModel
from headway.reports.tables import Table
from headway.results.schema import Summary
from headway.workload.generate import PRESETS, Recipe, generate_workload

DOCS = Path(__file__).parents[1] / "docs" / "policies"
FIRST_SEED = 5000
PAPER = PRESETS["paper"]

POLICIES = (
    "headway",
    "headway@0",
    "lwf:1+ada-srsf",
    "lwf:1+k-srsf",
    "lwf:1+srsf:1",
    "lwf:1+srsf:2",
    "lwf:1+srsf:1@50",
    "lwf:1+srtf+srsf:1",
    "lwf:1+fifo+srsf:1",
    "lwf:1+smallest+srsf:1",
    "lwf:1+las+srsf:1",
    "lwf:1+2d-las:3600+srsf:1",
    "lwf:1+gpu-intensity+srsf:1",
    "lwf:1+srsf+interleave",
    "rand+srsf:1",
    "spread+srsf:1",
    "ls+srsf:1",
    "ff+srsf:1",
    "tiresias+srsf:1",
    "consolidate+srsf:1",
    "consolidate+srtf+ada-dual@50",
    "apart+srsf:1",
    "apart+srtf+ada-dual@50",
    "least-delay+srsf:1",
)
BOUND = "headway, no contention"


@dataclass(frozen=True)
class Setting:
    """Where policies are compared."""

    name: str
    cluster: str = "16x4"
    memory_gb: float = 16.0
    network: NetworkModel = NETWORKS["10gbe"]
    recipe: Recipe = PAPER


SETTINGS = (
    Setting("the paper's: 16x4, 16 GB, 10 Gbit/s"),
    Setting("32 GB", memory_gb=32.0),
    Setting("8x8", "8x8"),
    Setting("32x8, 640 jobs", "32x8", recipe=replace(PAPER, jobs=640)),
    Setting("4x16", "4x16"),
    Setting("half the load: 160 jobs in 2400 s", recipe=replace(PAPER, span_s=2400)),
    Setting("double the load: 160 jobs in 600 s", recipe=replace(PAPER, span_s=600)),
    Setting("1 Gbit/s", network=NetworkModel(b_ns_per_byte=8.53, eta_ns_per_byte=2.35)),
    Setting("100 Gbit/s", network=NetworkModel(b_ns_per_byte=0.0853, eta_ns_per_byte=0.0235)),
    Setting(
        "large jobs only: 40 of 8 to 32 GPUs",
        recipe=replace(PAPER, jobs=40, mix={8: 30, 16: 8, 32: 2}),
    ),
)

RIVALS = (
    "headway",
    "headway@0",
    "lwf:1+srsf:1",
    "ff+srtf+srsf:1",
    "consolidate+srtf+ada-dual@50",
    "apart+srtf+ada-dual@50",
)

LOADS = (0.1, 0.2, 0.3, 0.6, 1.0, 1.6, 2.5)
"""GPU time of computing that arrives in a second, over the GPUs there are."""
LOAD_NETWORKS = {"10 Gbit/s": "10gbe", "100 Gbit/s": "100gbe"}
LOAD_RIVALS = (*RIVALS, "lwf:1+ada-srsf", "lwf:1+srtf+srsf:1", "least-delay+srsf:1")

Results = dict[str, list[Summary]]


def random_settings(count: int) -> list[Setting]:
    """Draw clusters, networks and recipes that have nothing to do with the paper's."""
    draw = random.Random(1)
    found: list[Setting] = []
    while len(found) < count:
        servers, gpus = draw.choice([1, 2, 3, 5, 6, 7, 10, 12, 20]), draw.choice([1, 2, 4, 6, 8])
        memory_gb, most = draw.choice([8.0, 16.0, 32.0]), servers * gpus
        sizes = {min(most, draw.choice([1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24])) for _ in range(5)}
        mix = {size: float(draw.randint(1, 20)) for size in sorted(sizes)}
        jobs, iterations = draw.randint(30, 90), draw.choice([(10, 3000), (100, 400), (500, 1500)])
        gpu_seconds = jobs * sum(iterations) / 2 * 0.08
        gpu_seconds *= sum(size * share for size, share in mix.items()) / sum(mix.values())
        span_s = max(10, int(gpu_seconds / most * draw.choice([0.3, 0.7, 1.2])))
        gbit = draw.choice([3, 10, 30, 100])
        network = NetworkModel(b_ns_per_byte=8.53 / gbit, eta_ns_per_byte=2.35 / gbit)
        if most < 4:
            continue
        shape, range_text = f"{servers}x{gpus}", f"{iterations[0]:,} to {iterations[1]:,}"
        sizes_text = ", ".join(str(size) for size in mix)
        name = f"{shape}, {memory_gb:.0f} GB, {gbit} Gbit/s; {jobs} jobs of {sizes_text} GPUs, "
        name += f"{range_text} iterations, in {span_s:,} s"
        recipe = replace(PAPER, jobs=jobs, mix=mix, iterations=iterations, span_s=span_s)
        found.append(Setting(name, shape, memory_gb, network, recipe))
    return found


def loaded(load: float, network: str) -> Setting:
    """Return the paper's cluster and jobs, arriving at the rate of this load."""
    shares = sum(PAPER.mix.values())
    gpus = sum(size * share for size, share in PAPER.mix.items()) / shares
    step_s = float(np.mean([one.forward_ns + one.backward_ns for one in MODELS.values()])) / 1e9
    gpu_s = PAPER.jobs * gpus * sum(PAPER.iterations) / 2 * step_s
    recipe = replace(PAPER, span_s=round(gpu_s / 64 / load))
    return Setting(f"{load:g}, {network}", network=NETWORKS[LOAD_NETWORKS[network]], recipe=recipe)


def measure(setting: Setting, policies: Sequence[str], seeds: Sequence[int]) -> Results:
    """Run every policy on every seed."""
    cluster = cluster_from(setting.cluster, setting.memory_gb)

    def work(task: tuple[str, int]) -> Summary:
        policy, seed = task
        network = setting.network
        if policy == BOUND:
            policy, network = "headway@0", network.without_contention()
        workload = generate_workload(setting.recipe, seed)
        return simulate(workload, cluster, network=network, policy=policy, seed=seed).summary

    tasks = [(policy, seed) for policy in policies for seed in seeds]
    with ThreadPoolExecutor(thread_count(None)) as pool:
        summaries = list(pool.map(work, tasks))
    found: Results = {policy: [] for policy in policies}
    for (policy, _), summary in zip(tasks, summaries, strict=True):
        found[policy].append(summary)
    return found


def sample(found: Results, policy: str, metric: str = "average_jct_s") -> Sample:
    """Return a metric of a policy, seed by seed."""
    return np.array([getattr(summary, metric) for summary in found[policy]])


def main_table(found: Results, seeds: Sequence[int]) -> Table:
    """Return every policy in the paper's setting, the best first."""
    rows = []
    for policy in sorted(found, key=lambda name: float(sample(found, name).mean())):
        jct, energy = mean(sample(found, policy)), sample(found, policy, "energy_j")
        ratio = paired_ratio(sample(found, policy), sample(found, "headway"))
        product = float((energy * sample(found, policy)).mean()) / 1e9
        rows.append(
            [
                f"`{policy}`" if policy != BOUND else BOUND,
                f"{jct.value:,.0f} ± {jct.margin:,.0f}",
                f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})",
                f"{sample(found, policy, 'median_jct_s').mean():,.0f}",
                f"{sample(found, policy, 'p95_jct_s').mean():,.0f}",
                f"{sample(found, policy, 'average_gpu_utilization').mean():.1%}",
                f"{energy.mean() / 1e6:,.0f}",
                f"{product:,.0f}",
            ]
        )
    header = (
        "policy",
        "average JCT [s]",
        "over headway",
        "median JCT [s]",
        "95th percentile [s]",
        "GPU utilization",
        "energy [MJ]",
        "energy × average JCT [GJ s]",
    )
    caption = f"The paper's setting, seeds {seeds[0]} to {seeds[-1]}, 95% intervals"
    return Table("measured", caption, header, rows)


def targets_table(found: Results) -> Table:
    """Return the preset against yardsticks that were set before it was designed."""
    ours = sample(found, "headway")
    rows = []
    for other, most in (("lwf:1+ada-srsf", 0.42), ("lwf:1+srsf:1", 0.44), (BOUND, 1.20)):
        ratio = paired_ratio(ours, sample(found, other))
        verdict = "met" if ratio.value <= most else "missed"
        shown = f"{ratio.value:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"
        rows.append([f"average JCT over that of {other}", f"at most {most:.2f}", shown, verdict])
    tails = {p: float(sample(found, p, "p95_jct_s").mean()) for p in found if p != BOUND}
    others = {p: tail for p, tail in tails.items() if not p.startswith("headway")}
    least = min(others, key=lambda name: others[name])
    rows.append(
        [
            "95th percentile of JCT [s]",
            f"below {others[least]:,.0f} ({least})",
            f"{tails['headway']:,.0f}",
            "met" if tails["headway"] < others[least] else "missed",
        ]
    )
    worse = int((ours > sample(found, "lwf:1+srsf:1")).sum())
    rows.append(["seeds worse than lwf:1+srsf:1", "0", f"{worse}", "missed" if worse else "met"])
    caption = "The preset headway against its yardsticks, the same seeds"
    return Table("targets", caption, ("yardstick", "wanted", "found", ""), rows, texts=1)


def settings_table(rows: Sequence[tuple[Setting, Results]], seeds: Sequence[int]) -> Table:
    """Return, for each setting, the preset against the best of the others."""
    lines = []
    for setting, found in rows:
        others = [p for p in found if p != BOUND and not p.startswith("headway")]
        best = min(others, key=lambda name: float(sample(found, name).mean()))
        ours, whole = sample(found, "headway"), sample(found, "headway@0")
        ratio = paired_ratio(ours, sample(found, best))
        lines.append(
            [
                setting.name,
                f"{ours.mean():,.0f}",
                f"{whole.mean():,.0f}",
                f"{sample(found, best).mean():,.0f} (`{best}`)",
                f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})",
                f"{sample(found, 'lwf:1+srsf:1').mean():,.0f}",
                f"{sample(found, BOUND).mean():,.0f}",
            ]
        )
    header = (
        "setting",
        "headway [s]",
        "headway@0 [s]",
        "best other [s]",
        "headway over it",
        "lwf:1+srsf:1 [s]",
        "no contention [s]",
    )
    caption = f"Average JCT in other settings, seeds {seeds[0]} to {seeds[-1]}"
    return Table("settings", caption, header, lines)


def elsewhere_table(rows: Sequence[tuple[Setting, Results]], seeds: Sequence[int]) -> Table:
    """Return, for random settings, the preset against the best of some others."""
    lines = []
    for setting, found in rows:
        others = [policy for policy in found if not policy.startswith("headway")]
        best = min(others, key=lambda name: float(sample(found, name).mean()))
        ours, theirs = sample(found, "headway"), sample(found, best)
        ratio, whole = ours.mean() / theirs.mean(), sample(found, "headway@0").mean()
        figures = [f"{ours.mean():,.0f}", f"{whole:,.0f}", f"{theirs.mean():,.0f} (`{best}`)"]
        lines.append([setting.name, *figures, f"{ratio:.2f}"])
    header = ("setting", "headway [s]", "headway@0 [s]", "best other [s]", "headway over it")
    caption = f"Average JCT in random settings, seeds {seeds[0]} to {seeds[-1]}"
    return Table("elsewhere", caption, header, lines)


def loads_table(rows: Sequence[tuple[Setting, Results]], seeds: Sequence[int]) -> Table:
    """Return, for each load, the preset against the best of the others and the paper's policy."""
    lines = []
    for setting, found in rows:
        others = [policy for policy in found if not policy.startswith("headway")]
        best = min(others, key=lambda name: float(sample(found, name).mean()))
        ours = sample(found, "headway")
        ratios = [paired_ratio(ours, sample(found, each)) for each in (best, "lwf:1+ada-srsf")]
        shown = [f"{one.value:.3f} ({one.low:.3f} to {one.high:.3f})" for one in ratios]
        figures = [f"{ours.mean():,.1f}", f"{sample(found, best).mean():,.1f} (`{best}`)"]
        lines.append([setting.name, *figures, *shown])
    header = ("load", "headway [s]", "best other [s]", "headway over it", "over the paper's")
    caption = f"Average JCT by load, the paper's cluster and jobs, seeds {seeds[0]} to {seeds[-1]}"
    return Table("loads", caption, header, lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=30, help="in the paper's setting")
    parser.add_argument("--other-seeds", type=int, default=6, help="in each other setting")
    parser.add_argument("--loads", action="store_true", help="by load alone")
    parser.add_argument("--elsewhere", action="store_true", help="the random settings alone")
    arguments = parser.parse_args()
    everyone = (*POLICIES, BOUND)
    seeds = range(FIRST_SEED, FIRST_SEED + arguments.seeds)
    few = range(FIRST_SEED, FIRST_SEED + arguments.other_seeds)
    started = time.monotonic()
    light = [loaded(load, network) for network in LOAD_NETWORKS for load in LOADS]
    tables = [loads_table([(s, measure(s, LOAD_RIVALS, seeds)) for s in light], seeds)]
    if arguments.loads:
        write(tables)
        return
    drawn = random_settings(16)
    tables += [elsewhere_table([(s, measure(s, RIVALS, few)) for s in drawn], few)]
    if arguments.elsewhere:
        write(tables)
        return
    found = measure(SETTINGS[0], everyone, seeds)
    tables += [main_table(found, seeds), targets_table(found)]
    rows = [(SETTINGS[0], {policy: runs[: len(few)] for policy, runs in found.items()})]
    for setting in SETTINGS[1:]:
        print(f"{time.monotonic() - started:6.0f} s  {setting.name}", flush=True)
        rows.append((setting, measure(setting, everyone, few)))
    tables.append(settings_table(rows, few))
    write(tables)


def write(tables: Sequence[Table]) -> None:
    """Print tables and keep them in the documentation."""
    (DOCS / "measured").mkdir(exist_ok=True)
    for table in tables:
        print(table.to_markdown())
        (DOCS / "measured" / f"{table.name}.md").write_text(table.to_markdown())


if __name__ == "__main__":
    main()
