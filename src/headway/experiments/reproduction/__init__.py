"""The paper's evaluation, reproduced: Wang, Shi, Wang and Chu (2020).

`headway reproduce` runs it. Read the modules in this order:

1. `paper`: what the paper compares, and the figures it prints.
2. `runs`: those cases on every seed, as a sweep; the results as three tables.
3. `evaluation`: samples over seeds, taken from the tables.
4. `contention`: the paper's measurements that need no scheduler.
5. `claims`: the paper's claims, and the rules that decide whether they hold.
6. `tables`, `figures`: what the report shows.
7. `report`: the report's sections; `output`: how everything is written.
8. `reproduce`: all of it in one call.
"""

from headway.experiments.reproduction.reproduce import (
    FULL_SEEDS,
    QUICK_SEEDS,
    Reproduction,
    reproduce,
)

__all__ = ["FULL_SEEDS", "QUICK_SEEDS", "Reproduction", "reproduce"]
