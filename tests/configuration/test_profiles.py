"""Sets of model profiles that ship with Headway or come from files."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.configuration import profiles_from
from headway.configuration.profiles import shipped_names
from headway.domain.errors import InputError
from headway.domain.gpus import GPUS
from headway.domain.layers import fitted, merged
from headway.domain.models import MODELS, PAPER_PROFILES
from headway.domain.paper_layers import LAYERS

ENTRY = """
[[model]]
name = "bert"
gpu = "h100"
batch_size = 8
precision = "bf16"
forward_ms = 10.5
backward_ms = 21
gradient_mb = 400.25
memory_mb = 9000
parameters = 104923136
repeats = 20
forward_ms_quartiles = [10.4, 10.6]
backward_ms_quartiles = [20.9, 21.2]
bucket_mb = [1.5, 398.75]
bucket_ready_ms = [2.5, 20.8]
"""
ENTRY_LAYERS = """optimizer_ms = 2.5
optimizer = "AdamW"
layers = [
    ["front", 4, 8, 100.25, 6],
    ["back", 6.5, 13, 300, 0],
]
"""


@pytest.mark.parametrize("name", shipped_names())
def test_a_shipped_set_is_valid_and_names_known_types_of_gpu(name: str) -> None:
    (found,) = profiles_from([name])
    assert found.name == name
    assert found.profiles
    for profile in found.profiles:
        assert profile.gpu in GPUS
        assert profile.forward_ns < 10**11
        assert profile.backward_ns < 10**11
        assert 0 < profile.gradient_bytes <= profile.memory_bytes
        assert profile.memory_bytes <= GPUS[profile.gpu].memory_bytes


@pytest.mark.parametrize("name", shipped_names())
def test_the_layers_of_a_shipped_set_add_up_to_its_totals(name: str) -> None:
    (found,) = profiles_from([name])
    for profile in found.profiles:
        assert len(profile.layers) >= 3
        assert all(layer.name for layer in profile.layers)
        whole = merged(profile.layers)
        assert (whole.forward_ns, whole.backward_ns, whole.parameter_bytes) == (
            profile.forward_ns,
            profile.backward_ns,
            profile.gradient_bytes,
        )
        assert profile.layers == fitted(
            profile.layers, profile.forward_ns, profile.backward_ns, profile.gradient_bytes
        )


def test_the_layers_of_the_papers_models_have_the_shares_measured_on_an_h200() -> None:
    (measured,) = profiles_from(["h200"])
    for name, model in MODELS.items():
        first = measured.by_model[name][0]
        assert first.layers == LAYERS[name]
        assert model.layers == fitted(
            first.layers, model.forward_ns, model.backward_ns, model.gradient_bytes
        )
        assert (model.optimizer_ns, first.optimizer_ns > 0) == (0, True)


@pytest.mark.parametrize("name", shipped_names())
def test_a_shipped_set_has_the_papers_models_at_the_papers_batch_sizes_first(name: str) -> None:
    (found,) = profiles_from([name])
    for model in MODELS.values():
        assert found.by_model[model.name][0].batch_size == model.batch_size


def test_the_papers_set_is_the_default() -> None:
    assert profiles_from(()) == profiles_from(["v100"]) == PAPER_PROFILES
    assert PAPER_PROFILES[0].profiles == tuple(MODELS.values())


def test_a_file_keeps_its_order_and_converts_units(tmp_path: Path) -> None:
    path = tmp_path / "models.toml"
    path.write_text(
        f'[calibration]\nmeasured_at = "now"\n{ENTRY}{ENTRY.replace("= 8", "= 4")}'
        "[cluster]\nservers = 1\ngpus_per_server = 1\n"
    )
    ((eight, four),) = (one.profiles for one in profiles_from([str(path)]))
    assert (eight.name, eight.gpu, eight.batch_size) == ("bert", "h100-sxm5", 8)
    assert (eight.forward_ns, eight.backward_ns) == (10_500_000, 21_000_000)
    assert (eight.gradient_bytes, eight.memory_bytes) == (round(400.25 * 2**20), 9000 * 2**20)
    assert four.batch_size == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "m.toml: there are no tables [[model]]."),
        ("model = 3\n", "m.toml, line 1, column 1 (model): must be tables [[model]], not 3."),
        ("[models]\n", "line 1, column 2 (models): unknown table. Did you mean 'model'?"),
        (ENTRY + "speed = 3\n", "line 17, column 1 (speed): unknown key."),
        (ENTRY.replace("memory_mb = 9000\n", ""), "line 2, column 3: 'memory_mb' is missing."),
        (ENTRY.replace("10.5", "0"), "line 7, column 1 (forward_ms): must be at least 0.000001"),
        (ENTRY.replace("21\n", '"21"\n'), "line 8, column 1 (backward_ms): must be a number"),
        (ENTRY.replace("= 9000", "= nan"), "(memory_mb): must be a finite number of MB"),
        (ENTRY.replace("= 8", "= 0"), "line 5, column 1 (batch_size): must be at least 1"),
        (ENTRY.replace('"bert"', '""'), "line 3, column 1 (name): must be a non-empty string"),
        (
            ENTRY.replace('"h100"', "7"),
            "line 4, column 1 (gpu): must be a non-empty string, not 7",
        ),
        (
            ENTRY + ENTRY_LAYERS.replace("13, ", ""),
            "line 21, column 5 (layers): must be [name, forward_ms, backward_ms, parameter_mb, "
            "activation_mb], not ['back', 6.5, 300, 0].",
        ),
        (
            ENTRY + ENTRY_LAYERS.replace("13", '"13"'),
            "line 21, column 20 (layers): must be a number, not '13'.",
        ),
        (
            ENTRY + ENTRY_LAYERS.replace("13", "0"),
            "line 21, column 5 (backward_ms): must be at least 0.000001 milliseconds, not 0.",
        ),
        (
            ENTRY + ENTRY_LAYERS.replace("300", "-1"),
            "line 21, column 5 (parameter_mb): must be 0 or more MB, not -1.",
        ),
        (
            ENTRY + ENTRY_LAYERS.replace("6.5", "5"),
            "line 19, column 1 (layers): must add up to forward_ms, 10.5, within 1%; they add up "
            "to 9.",
        ),
        (
            ENTRY + ENTRY_LAYERS.replace("300", "200"),
            "(layers): must add up to gradient_mb, 400.25, within 1%; they add up to 300.25.",
        ),
        (ENTRY + "layers = []\n", "line 17, column 1 (layers): must not be empty."),
        (
            ENTRY + ENTRY_LAYERS.replace("2.5", "-1"),
            "line 17, column 1 (optimizer_ms): must be 0 or mo",
        ),
        (ENTRY * 2, "line 19, column 1 (name): duplicate profile of 'bert' on 'h100-sxm5' at"),
    ],
)
def test_errors_in_a_file_name_the_line_and_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.toml").write_text(text)
    with pytest.raises(InputError) as caught:
        profiles_from(["m.toml"])
    assert message in str(caught.value)


def test_an_unknown_set_is_refused() -> None:
    with pytest.raises(InputError, match=r"profiles: unknown set 'v10'\. Did you mean 'v100'\?"):
        profiles_from(["v10"])
