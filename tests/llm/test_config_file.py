"""Models: those that come with Headway, files of Hugging Face, and Headway's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headway.domain.errors import InputError
from headway.llm.config import LatentAttention, ModelConfig
from headway.llm.config_file import config_from, config_names
from headway.llm.sizes import active_parameters, parameters

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
}
DEEPSEEK = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "vocab_size": 129280,
    "max_position_embeddings": 163840,
    "tie_word_embeddings": False,
}


def written(tmp_path: Path, content: object, name: str = "config.json") -> str:
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


@pytest.mark.parametrize(
    ("name", "count", "active"),
    [
        # As the models' publishers count them, to the parameter where biases are left out.
        ("llama2-7b", 6_738_415_616, 6_738_415_616),
        ("llama2-13b", 13_015_864_320, 13_015_864_320),
        ("llama2-70b", 68_976_648_192, 68_976_648_192),
        ("llama3-8b", 8_030_261_248, 8_030_261_248),
        ("mixtral-8x7b", 46_702_792_704, 12_879_925_248),
        ("deepseek-v3", 671_026_279_424, 37_552_157_696),
    ],
)
def test_a_shipped_model_has_its_published_parameters(name: str, count: int, active: int) -> None:
    assert parameters(config_from(name)) == count
    assert active_parameters(config_from(name)) == active


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("gpt2-1.5b", 1.5),
        ("gpt3-175b", 175),
        ("megatron-22b", 22),
        ("megatron-530b", 530),
        ("megatron-1t", 1008),
    ],
)
def test_a_shipped_model_is_as_large_as_its_name_says(name: str, billions: float) -> None:
    assert parameters(config_from(name)) / 1e9 == pytest.approx(billions, rel=0.04)


def test_every_shipped_model_says_where_it_is_from() -> None:
    import headway.llm

    folder = Path(headway.llm.__file__).parent / "configs"
    assert config_names() == sorted(path.stem for path in folder.iterdir())
    for path in folder.iterdir():
        assert 'source = "' in path.read_text()
        assert config_from(path.stem).name == path.stem


def test_a_config_json_is_read_as_it_is(tmp_path: Path) -> None:
    path = written(tmp_path, LLAMA | {"rope_theta": 10000.0, "architectures": ["LlamaForCausalLM"]})
    expected = config_from("llama2-7b")
    found = config_from(path)
    assert parameters(found) == parameters(expected)
    assert (found.name, found.precision, found.gated_ffn) == (tmp_path.name, "fp16", True)
    assert config_from(tmp_path) == found
    assert config_from(path, sequence=1024).sequence == 1024


@pytest.mark.parametrize(
    ("content", "billions", "values"),
    [
        (LLAMA | {"model_type": "mistral", "num_key_value_heads": 8}, 5.932, {"kv_heads": 8}),
        (LLAMA | {"model_type": "qwen3", "head_dim": 64}, 5.665, {"head_size": 64}),
        (
            LLAMA | {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2},
            37.04,
            {"experts": 8, "experts_per_token": 2, "ffn": 11008},
        ),
        (
            LLAMA
            | {
                "model_type": "qwen2_moe",
                "moe_intermediate_size": 1408,
                "num_experts": 60,
                "num_experts_per_tok": 4,
                "shared_expert_intermediate_size": 5632,
                "max_position_embeddings": 32768,
            },
            37.83,
            {"ffn": 1408, "shared_ffn": 5632, "dense_layers": 0, "sequence": 4096},
        ),
        (
            {
                "model_type": "gpt2",
                "n_embd": 1600,
                "n_head": 25,
                "n_layer": 48,
                "n_inner": None,
                "n_positions": 1024,
                "vocab_size": 50257,
            },
            1.557,
            {"ffn": 6400, "learned_positions": True, "tied_embeddings": True, "gated_ffn": False},
        ),
        (
            {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}
            | {"model_type": "gpt_neox"},
            5.295,
            {"gated_ffn": False, "kv_heads": 32},
        ),
        (
            DEEPSEEK,
            671.03,
            {
                "dense_layers": 3,
                "dense_ffn": 18432,
                "shared_ffn": 2048,
                "sequence": 4096,
                "latent": LatentAttention(512, 1536, 64, 128),
            },
        ),
    ],
)
def test_each_architecture_has_its_sizes(
    content: dict[str, Any], billions: float, values: dict[str, Any], tmp_path: Path
) -> None:
    found = config_from(written(tmp_path, content))
    assert {key: getattr(found, key) for key in values} == values
    assert parameters(found) / 1e9 == pytest.approx(billions, rel=1e-3)


OPT = {
    "model_type": "opt",
    "hidden_size": 4096,
    "ffn_dim": 16384,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "max_position_embeddings": 2048,
    "vocab_size": 50272,
    "word_embed_proj_dim": 4096,
}
FALCON = {
    "model_type": "falcon",
    "hidden_size": 4544,
    "num_hidden_layers": 32,
    "num_attention_heads": 71,
    "multi_query": True,
    "new_decoder_architecture": False,
    "vocab_size": 65024,
}
GEMMA = {
    "model_type": "gemma",
    "hidden_size": 3072,
    "intermediate_size": 24576,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "head_dim": 256,
    "max_position_embeddings": 8192,
    "vocab_size": 256000,
}
GEMMA_2 = GEMMA | {
    "model_type": "gemma2",
    "hidden_size": 3584,
    "intermediate_size": 14336,
    "num_hidden_layers": 42,
    "num_key_value_heads": 8,
}
PHI_3 = {
    "model_type": "phi3",
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "vocab_size": 32064,
}
BLOOM = {
    "model_type": "bloom",
    "n_embed": 14336,
    "n_layer": 70,
    "num_attention_heads": 112,
    "seq_length": 2048,
    "vocab_size": 250880,
}
GPT_J = {
    "model_type": "gptj",
    "n_embd": 4096,
    "n_head": 16,
    "n_inner": None,
    "n_layer": 28,
    "n_positions": 2048,
    "tie_word_embeddings": False,
    "vocab_size": 50400,
}


@pytest.mark.parametrize(
    ("content", "billions"),
    [
        (OPT, 6.66),
        (FALCON | {"max_position_embeddings": 2048}, 6.92),
        (GEMMA, 8.54),
        (GEMMA_2, 9.24),
        (PHI_3, 3.82),
        (BLOOM, 176.25),
        (GPT_J, 6.05),
    ],
    ids=lambda one: one["model_type"] if isinstance(one, dict) else str(one),
)
def test_published_models_have_their_parameters(
    content: dict[str, Any], billions: float, tmp_path: Path
) -> None:
    found = config_from(written(tmp_path, content))
    assert parameters(found) / 1e9 == pytest.approx(billions, rel=0.005)


def test_falcon_shares_keys_and_values_unless_it_is_of_the_newer_kind(tmp_path: Path) -> None:
    assert config_from(written(tmp_path, FALCON), sequence=2048).kv_heads == 1
    newer = FALCON | {
        "new_decoder_architecture": True,
        "num_attention_heads": 128,
        "num_kv_heads": 8,
        "hidden_size": 8192,
    }
    assert config_from(written(tmp_path, newer), sequence=2048).kv_heads == 8


def test_a_config_without_a_length_needs_the_length_of_training_sequences(tmp_path: Path) -> None:
    content = {key: value for key, value in LLAMA.items() if key != "max_position_embeddings"}
    path = written(tmp_path, content)
    with pytest.raises(InputError, match=r"has no 'max_position_embeddings'; give .* --sequence"):
        config_from(path)
    assert config_from(path, sequence=2048).sequence == 2048


def test_deepseek_v3_trains_in_fp8_and_limits_the_servers_of_a_token(tmp_path: Path) -> None:
    content = DEEPSEEK | {
        "torch_dtype": "bfloat16",
        "quantization_config": {"quant_method": "fp8", "fmt": "e4m3"},
        "n_group": 8,
        "topk_group": 4,
    }
    found = config_from(written(tmp_path, content))
    assert (found.precision, found.servers_per_token) == ("fp8", 4)
    assert config_from(written(tmp_path, DEEPSEEK)).servers_per_token == 0


def test_own_keys_mean_the_same_in_toml_and_json(tmp_path: Path) -> None:
    toml = "layers = 4\nhidden = 64\nheads = 4\nvocabulary = 100\nsequence = 32\n"
    content = {"layers": 4, "hidden": 64, "heads": 4, "vocabulary": 100, "sequence": 32}
    expected = ModelConfig(4, 64, 4, 4, 256, 100, 32, name="own")
    assert config_from(written(tmp_path, toml, "own.toml")) == expected
    assert config_from(written(tmp_path, content, "own.json")) == expected


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.toml", "layers = 4\nhidden = 0\n", "'heads' is missing"),
        (
            "a.toml",
            "layers = 4\nhidden = 65\nheads = 4\nvocabulary = 9\nsequence = 8\n",
            "a.toml, line 3, column 1 (heads): must divide hidden, 65",
        ),
        (
            "a.toml",
            "layers = 4\nhidden = 64\nheads = 4\nvocabulary = 9\nsequence = 8\nexperts = 4\n",
            "a.toml, experts_per_token: must be at least 1, not 0.",
        ),
        ("a.toml", "layer = 4\n", "a.toml, line 1, column 1 (layer): unknown key. Did you mean"),
        ("a.toml", "layers = x\n", "a.toml, line 1, column 10: not TOML"),
        ("a.json", "{", "a.json, line 1, column 2: not JSON"),
        ("a.json", "[]", "a.json: must be an object"),
        ("a.json", {"layers": 4}, "'hidden' is missing"),
        ("a.json", {"model_type": "mamba"}, "a.json, model_type: unknown architecture 'mamba'."),
        ("a.json", {"architectures": ["X"]}, "a.json: the key 'model_type' is missing."),
        ("a.json", {"model_type": "llama"}, "a.json: the key 'num_attention_heads' is missing."),
        ("a.json", LLAMA | {"vocab_size": "x"}, "a.json, vocab_size: must be a whole number"),
        ("a.json", OPT | {"word_embed_proj_dim": 512}, "word_embed_proj_dim: must be the hidden"),
        ("a.json", LLAMA | {"vocab_size": 0}, "a.json, vocabulary: must be at least 1"),
        ("a.json", LLAMA | {"torch_dtype": "int8"}, "a.json, torch_dtype: unknown precision"),
        ("a.json", LLAMA | {"torch_dtype": ["x"]}, "a.json, torch_dtype: must be a string, not ["),
        ("a.json", LLAMA | {"torch_dtype": []}, "a.json, torch_dtype: must be a string, not []."),
        ("a.json", LLAMA | {"quantization_config": 5}, "quantization_config: must be an object"),
        ("a.json", '{"layers": 4, "layers": 5}', "a.json: the key 'layers' is repeated; give it"),
        (
            "a.json",
            {key: value for key, value in DEEPSEEK.items() if key != "kv_lora_rank"},
            "a.json: the key 'kv_lora_rank' is missing.",
        ),
        ("a.json", DEEPSEEK | {"moe_layer_freq": 2}, "a.json, moe_layer_freq: must be 1"),
    ],
)
def test_a_bad_config_is_refused_in_one_line(
    name: str, content: object, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as caught:
        config_from(written(tmp_path, content, name))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"unknown model 'llama2-7'\. Did you mean 'llama2-7b'"):
        config_from("llama2-7")
