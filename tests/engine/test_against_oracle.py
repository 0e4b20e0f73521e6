"""The engine and the oracle agree on every task of every job, to the nanosecond."""

from __future__ import annotations

from hypothesis import given, settings

import oracle
from headway.engine.run import simulate
from headway.engine.timeline import Timeline
from headway.results.schema import Result
from strategies import Case, cases

KINDS = ("forward", "backward", "message")


def run_oracle(case: Case) -> oracle.OracleOutcome:
    return oracle.run(
        [
            oracle.OracleJob(
                job.arrival_ns,
                job.gpus,
                job.iterations,
                job.forward_ns,
                job.backward_ns,
                job.gradient_bytes,
                job.memory_bytes,
            )
            for job in case.workload
        ],
        servers=case.cluster.servers,
        gpus_per_server=case.cluster.gpus_per_server,
        gpu_memory_bytes=case.cluster.gpu_memory_bytes,
        a_ns=case.network.a_ns,
        b=case.network.b_ns_per_byte,
        eta=case.network.eta_ns_per_byte,
        contends=case.network.contends,
        placement=case.placement,
        priority=case.priority,
        admission=case.admission,
        seed=case.seed,
    )


def run_engine(case: Case, timeline: Timeline | None = None) -> Result:
    return simulate(
        case.workload,
        case.cluster,
        network=case.network,
        placement=case.placement,
        priority=case.priority,
        admission=case.admission,
        seed=case.seed,
        timeline=timeline,
    )


@settings(max_examples=4000, deadline=None)
@given(cases())
def test_the_engine_agrees_with_the_oracle_to_the_nanosecond(case: Case) -> None:
    timeline = Timeline()
    result = run_engine(case, timeline)
    expected = run_oracle(case)
    assert result.start_ns.tolist() == expected.start_ns
    assert result.finish_ns.tolist() == expected.finish_ns
    assert list(result.gpus) == expected.gpus
    tasks = sorted(
        oracle.OracleTask(
            int(task.start_ns),
            int(task.end_ns),
            KINDS[task.kind],
            int(task.job),
            int(task.iteration),
            int(task.gpu),
        )
        for task in timeline.tasks()
    )
    assert tasks == expected.tasks
    assert result.summary.simulated_tasks == len(tasks)
