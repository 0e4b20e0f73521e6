"""What overlap is worth: the paper's evaluation with gradients sent during the backward pass.

`headway reproduce overlap` runs it, with the machinery of `headway.experiments.reproduction`. Read
the modules in this order:

1. `workloads`: the paper's jobs with other iterations.
2. `cases`: what is compared, and the settings in which the paper's claims are judged.
3. `bounds`: what overlap could gain at most, and whether one bucket is the paper's chain.
4. `findings`: the verdicts, with and without overlap.
5. `tables`, `figures`, `report`: what is written.
6. `overlap`: all of it in one call.
"""

from headway.experiments.overlap.overlap import measure_overlap

__all__ = ["measure_overlap"]
