"""Messages that wait watch a port: the same decisions, with far fewer questions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from headway import Cluster, NetworkModel, PolicySet, Workload, generate_workload
from headway.domain.compute_times import compute_times_ns
from headway.engine import kernel
from headway.engine.compilation import compiled_kernel
from headway.engine.setup import prepare
from headway.engine.state import State
from headway.workload.generate import PRESETS

PLAIN = '''
from headway.policies import NOBODY, ClusterView, Parameter, admission_policy, bytes_left
from headway.policies import most_messages

@admission_policy("plain-dual", steady=True, timeless=True)
def plain_dual(cluster: ClusterView, message: int, parameter: float) -> bool:
    """`ada-dual` that names no port."""
    b, eta = cluster.system[0].b_ns_per_byte, cluster.system[0].eta_ns_per_byte
    theta = b / (2 * (b + eta))
    if most_messages(cluster, message) > 1:
        return False
    first = cluster.messages[message].first_link
    for own_link in range(first, first + cluster.messages[message].links):
        link = cluster.ports[cluster.links[own_link].port].first_in_flight
        if link != NOBODY:
            left = bytes_left(cluster, cluster.links[link].message)
            if not cluster.messages[message].bytes < theta * left:
                return False
    return True

@admission_policy("plain-most", parameter=Parameter("n"), steady=True, timeless=True)
def plain_most(cluster: ClusterView, message: int, most_allowed: float) -> bool:
    """`srsf:N` that names no port."""
    return most_messages(cluster, message) < most_allowed
'''


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("policies") / "plain.py"
    path.write_text(PLAIN)
    return str(path)


def ran(workload: Workload, cluster: Cluster, policy: str, network: NetworkModel) -> State:
    policies = PolicySet.parse(policy)
    times_ns = compute_times_ns(workload, cluster)
    state = prepare(
        *(workload, cluster, network, policies.choices, times_ns, 0),
        *(policies.bucket_bytes, "full", 0),
    )
    advance = compiled_kernel(policies.choices)
    while advance(state, 100_000) != kernel.FINISHED:
        pass
    return state


def workload_of(jobs: int, seed: int) -> Workload:
    recipe = replace(PRESETS["paper"], jobs=jobs, iterations=(50, 300), span_s=60)
    return generate_workload(recipe, seed)


@pytest.mark.parametrize("law", ["busiest", "max-min"])
@pytest.mark.parametrize(
    ("named", "unnamed"),
    [("ada-dual", "plain-dual"), ("srsf:1", "plain-most:1"), ("srsf:3", "plain-most:3")],
)
def test_a_policy_that_names_ports_decides_as_one_that_does_not(
    plain: str, named: str, unnamed: str, law: str
) -> None:
    cluster, network = Cluster.parse("16x4"), NetworkModel(law=law)
    for seed in range(2):
        workload = workload_of(200, seed)
        for rest in ("lwf:1+srsf", "rand+fifo"):
            first = ran(workload, cluster, f"{rest}+{named}@20", network)
            second = ran(workload, cluster, f"{rest}+{plain}:{unnamed}@20", network)
            np.testing.assert_array_equal(
                first.cluster.jobs.finish_ns, second.cluster.jobs.finish_ns
            )
            assert first.tally[0].questions < second.tally[0].questions


def test_questions_do_not_grow_with_the_messages_that_wait(plain: str) -> None:
    """On one cluster, the more jobs there are the more wait; each instant asks no more often."""
    cluster, network = Cluster.parse("16x4"), NetworkModel()

    def questions(jobs: int, admission: str) -> float:
        state = ran(workload_of(jobs, 1), cluster, f"lwf:1+srsf+{admission}", network)
        return float(state.tally[0].questions / state.tally[0].instants)

    assert questions(1_600, "ada-dual") < 1.3 * questions(200, "ada-dual") < 5
    other = f"{plain}:plain-dual"
    assert questions(1_600, other) > 1.3 * questions(200, other)
