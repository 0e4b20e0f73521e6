"""Sweeps: every combination of workloads, seeds, clusters, networks and policies, each run once.

    from headway.experiments.sweep import run_sweep
    found = run_sweep({"workloads": "paper", "policies": ["paper", "headway"], "seeds": 5}, "out")
    print(found.runs.group_by("policy").mean())

`specification` reads what to run, `grid` lays it out, `store` keeps what is finished, `running`
runs it in threads or, by way of `on_ray`, on a Ray cluster; `pivot` and `report` show the outcome.
"""

from headway.experiments.sweep.running import Swept, run_sweep
from headway.experiments.sweep.specification import Sweep, read_sweep, sweep_of

__all__ = ["Sweep", "Swept", "read_sweep", "run_sweep", "sweep_of"]
