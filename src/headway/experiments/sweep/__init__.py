"""Sweeps: every combination of workloads, seeds, clusters, networks and policies, run once.

    from headway.experiments.sweep import run_sweep
    found = run_sweep({"workloads": "paper", "policies": ["paper", "headway"], "seeds": 5}, "out")
    print(found.runs.group_by("policy").mean())

`specification` reads what to run, `grid` enumerates the runs and does one, `store` stores finished
runs, `run` does the missing ones in threads or, with `on_ray`, on a Ray cluster; `pivot` and
`report` show the outcome.
"""

from headway.experiments.sweep.run import Swept, run_sweep
from headway.experiments.sweep.specification import Sweep, read_sweep, sweep_of

__all__ = ["Sweep", "Swept", "read_sweep", "run_sweep", "sweep_of"]
