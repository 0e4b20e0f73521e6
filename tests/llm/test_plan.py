"""Plans: their spelling, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from headway.domain.errors import InputError
from headway.llm.config_file import config_from
from headway.llm.plan import Plan


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        ("gb1", Plan()),
        (
            "tp4-pp4-dp32-mb2-gb1536-1f1b",
            Plan(tensor=4, pipeline=4, data=32, micro_batch=2, global_batch=1536),
        ),
        (
            "tp8-pp8-sp-gb64-interleaved3-norecompute-zero1",
            Plan(
                tensor=8,
                pipeline=8,
                sequence_parallel=True,
                global_batch=64,
                schedule="interleaved",
                interleave=3,
                recompute="none",
                zero=1,
            ),
        ),
        (
            "gpipe-recompute-dp8-ep4-gb8-nooverlap",
            Plan(
                data=8,
                expert=4,
                global_batch=8,
                schedule="gpipe",
                recompute="full",
                overlap=False,
            ),
        ),
    ],
)
def test_a_plan_is_read_from_its_spelling_and_spelled_again(text: str, plan: Plan) -> None:
    assert Plan.parse(text) == plan
    assert Plan.parse(str(plan)) == plan


def test_a_plan_counts_gpus_and_microbatches() -> None:
    plan = Plan.parse("tp4-pp4-dp32-mb2-gb1536")
    assert (plan.gpus, plan.microbatches) == (512, 24)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tp4", "plan: 'tp4' lacks the global batch, in sequences, such as gb1536."),
        ("tp4-tp8-gb1", "plan: 'tp4-tp8-gb1' has two parts for tensor."),
        ("tp-gb1", "plan: unknown part 'tp' in 'tp-gb1'. Parts: tpN"),
        ("", "plan: unknown part '' in ''."),
        ("tp0-gb1", "tensor: must be at least 1, not 0."),
        ("dp3-mb2-gb8", "global_batch: must be a multiple of microbatch x data, 2 x 3 = 6; 8 is"),
        ("sp-gb1", "sequence_parallel: needs tensor parallelism of at least 2."),
        ("pp4-gb6-interleaved2", "schedule: interleaved needs microbatches in multiples of the 4"),
        ("gb4-interleaved2", "schedule: interleaved needs at least 2 pipeline stages."),
        ("pp2-gb4-interleaved1", "interleave: must be 2 or more for the schedule interleaved"),
        ("pp2-gb4-zero2", "zero: stages 2 and 3 are for plans without a pipeline"),
        ("zero4-gb1", "zero: must be at most 3, not 4."),
        ("dp4-ep3-gb4", "expert: must divide the 4 data-parallel ranks; 3 does not."),
    ],
)
def test_a_bad_plan_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        Plan.parse(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schedule": "zigzag"}, "schedule: unknown schedule 'zigzag'. Known: 1f1b, gpipe"),
        ({"recompute": "some"}, "recompute: unknown recompute 'some'."),
        ({"interleave": 2}, "interleave: must be 1 for the schedule 1f1b, not 2."),
        ({"data": True}, "data: must be a whole number, not True."),
    ],
)
def test_a_plan_made_in_python_is_checked_too(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        Plan(**changes)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("model", "text", "message"),
    [
        ("gpt3-175b", "tp16-gb1", "tensor: must be at most 8, the GPUs of a server, not 16"),
        ("gpt3-175b", "tp3-gb1", "tensor: must divide the 8 GPUs of a server; 3 does not."),
        ("gpt2-1.5b", "tp2-gb1", "tensor: must divide the model's heads, 25; 2 does not."),
        (
            "gpt3-175b",
            "pp97-gb1",
            "pipeline: every stage needs a layer: must be at most the model's 96, not 97.",
        ),
        ("gpt3-175b", "pp8-gb8-interleaved13", "at most the model's 96, not 8 x 13 = 104."),
        ("gpt3-175b", "dp8-ep8-gb8", "expert: must be 1: the model has no experts."),
        ("mixtral-8x7b", "dp16-ep16-gb16", "expert: must divide the model's 8 experts; 16 does no"),
    ],
)
def test_a_plan_that_does_not_divide_the_model_is_refused(
    model: str, text: str, message: str
) -> None:
    with pytest.raises(InputError) as caught:
        Plan.parse(text).check(config_from(model))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("plan", "layers", "sizes"),
    [
        ("pp4-gb4", 8, [2, 2, 2, 2]),
        ("pp16-gb16", 126, [7, *[8] * 14, 7]),
        ("pp16-gb16", 61, [3, *[4] * 13, 3, 3]),
        ("pp2-gb2-interleaved2", 7, [2, 2, 2, 1]),
        ("pp3-gb3", 3, [1, 1, 1]),
    ],
)
def test_the_ends_of_a_pipeline_have_a_layer_less_if_layers_do_not_divide(
    plan: str, layers: int, sizes: list[int]
) -> None:
    found = Plan.parse(plan).stage_layers(layers)
    assert [len(one) for one in found] == sizes
    assert [layer for one in found for layer in one] == list(range(layers))


def test_exchanges_overlap_unless_there_is_nothing_to_overlap_with() -> None:
    assert Plan.parse("dp8-ep8-gb16").overlaps_exchanges
    assert not Plan.parse("dp8-ep8-gb16-nooverlap").overlaps_exchanges
    assert not Plan.parse("dp8-ep8-gb8").overlaps_exchanges
    assert not Plan.parse("dp8-gb16").overlaps_exchanges


def test_tensor_ranks_may_be_anywhere_if_servers_do_not_matter() -> None:
    Plan.parse("tp16-gb1").check(config_from("gpt3-175b"), None)
