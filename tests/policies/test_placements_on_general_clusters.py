"""Placements agree with the oracle where servers, types of GPU and racks differ."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.engine.run import simulate
from strategies import PLACEMENTS, cases, run_oracle


@pytest.mark.parametrize("placement", PLACEMENTS)
@settings(max_examples=100)
@given(data=st.data())
def test_every_placement_agrees_with_the_oracle_on_clusters_that_are_not_uniform(
    placement: str, data: st.DataObject
) -> None:
    case = replace(data.draw(cases(general=True)), placement=placement)
    result = simulate(
        case.workload,
        case.cluster,
        network=case.network,
        placement=case.placement,
        priority=case.priority,
        admission=case.admission,
        seed=case.seed,
        bucket_mb=None if case.bucket_bytes is None else case.bucket_bytes / 2**20,
    )
    expected = run_oracle(case)
    assert result.start_ns.tolist() == expected.start_ns
    assert result.finish_ns.tolist() == expected.finish_ns
    assert list(result.gpus) == expected.gpus
