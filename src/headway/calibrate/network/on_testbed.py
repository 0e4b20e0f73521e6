"""Measures on a testbed, with processes in the namespaces of its hosts."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, astuple

from headway import testbed
from headway.calibrate.network.plan import Plan
from headway.calibrate.network.processes import Process, run_all, taking_part
from headway.calibrate.network.rank import Measurement, measure
from headway.calibrate.network.samples import Sample
from headway.domain.errors import InputError
from headway.testbed import Testbed


def measure_on_testbed(
    name: str, plan: Plan, port: int, progress: Callable[[float], None]
) -> Measurement:
    """Measure the network between all hosts of a testbed."""
    found = testbed.find(name)
    if found is None:
        raise InputError(
            f"there is no testbed '{name}'; create it with `headway testbed up --name {name}`.",
            field="--on",
        )
    arguments = ["-m", __name__, json.dumps(asdict(plan))]
    result = run_all(ranks(found, plan.concurrent, port, arguments), progress)
    about = result["about"]
    about["hosts"] = [found.address(host) for host in range(1, found.hosts + 1)]
    about["testbed"] = f"{found.hosts} hosts, {found.rate_mbit:g} Mbit/s, eta {found.eta:g} of b"
    return Measurement([Sample(*row) for row in result["samples"]], about)


def ranks(found: Testbed, on_each: int, port: int, arguments: Sequence[str]) -> list[Process]:
    """Return Python processes with these arguments, a number of them on each host of a testbed.

    Their environment is that of torchrun.
    """
    processes = []
    for host in range(1, found.hosts + 1):
        for local_rank in range(on_each):
            environment = {
                **found.environment(host),
                "MASTER_ADDR": found.address(1),
                "MASTER_PORT": str(port),
                "RANK": str((host - 1) * on_each + local_rank),
                "WORLD_SIZE": str(found.hosts * on_each),
                "LOCAL_RANK": str(local_rank),
                "LOCAL_WORLD_SIZE": str(on_each),
                # Otherwise torch starts a thread per core in every process.
                "OMP_NUM_THREADS": "1",
            }
            command = testbed.command(found, host, [sys.executable, *arguments])
            processes.append(Process(f"process {local_rank} on host {host}", command, environment))
    return processes


def _take_part(text: str) -> None:
    """Take part as one of the processes."""
    given = json.loads(text)
    given["sizes_bytes"] = tuple(given["sizes_bytes"])
    with taking_part() as report:
        measurement = measure(Plan(**given), lambda share: report("progress", share))
        if measurement is not None:
            rows = [astuple(sample) for sample in measurement.samples]
            report("result", {"samples": rows, "about": measurement.about})


if __name__ == "__main__":
    _take_part(sys.argv[1])
