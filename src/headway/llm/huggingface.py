"""Models described by the `config.json` of Hugging Face's transformers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headway.domain.errors import InputError, did_you_mean, shown
from headway.llm.config import LatentAttention, ModelConfig

USUAL_SEQUENCE = 4096
"""A config.json has the longest sequence, not that of training: this one unless it is shorter."""

_PRECISIONS = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def is_huggingface(content: Mapping[str, Any]) -> bool:
    """Return whether this is the content of a `config.json`."""
    return "model_type" in content or "architectures" in content


def huggingface_config(
    content: Mapping[str, Any], name: str = "", sequence: int | None = None
) -> ModelConfig:
    """Return the model that a `config.json` describes.

    Args:
        content: The content of the file.
        name: The name of the model.
        sequence: The tokens of a training sequence; some files have no length.

    Raises:
        InputError: Its `model_type` is unknown, or a key is missing or wrong.
    """
    keys = _Keys(content, sequence)
    kind = keys.text("model_type")
    if kind not in _KINDS:
        raise InputError(
            f"unknown architecture {shown(kind)}.{did_you_mean(kind, _KINDS)} Others can be "
            "described with Headway's own keys: layers, hidden, heads, ….",
            field="model_type",
        )
    return ModelConfig(**_KINDS[kind](keys), name=name)


class _Keys:
    """The keys of a config.json, with errors that name them."""

    def __init__(self, content: Mapping[str, Any], sequence: int | None) -> None:
        self._content = content
        self._sequence = sequence

    def get(self, key: str) -> Any:
        """Return a value, or None if there is none."""
        return self._content.get(key)

    def text(self, key: str) -> str:
        """Return a string."""
        value = self._content.get(key)
        if value is None:
            raise InputError(f"the key '{key}' is missing.")
        if not isinstance(value, str):
            raise InputError(f"must be a string, not {shown(value)}.", field=key)
        return value

    def whole(self, *keys: str, default: int | None = None) -> int:
        """Return a whole number, under the first of these keys that has one."""
        for key in keys:
            value = self._content.get(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                raise InputError(f"must be a whole number, not {shown(value)}.", field=key)
            return value
        if default is None:
            raise InputError(f"the key '{keys[0]}' is missing.")
        return default

    def sequence(self, *keys: str) -> int:
        """Return the tokens of a training sequence: given, or the longest under these keys."""
        if self._sequence is not None:
            return self._sequence
        longest = self.whole(*keys, default=0)
        if not longest:
            raise InputError(
                f"has no '{keys[0]}'; give the tokens of a training sequence with --sequence."
            )
        return min(longest, USUAL_SEQUENCE)

    def flag(self, key: str, default: bool) -> bool:
        """Return true or false."""
        value = self._content.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise InputError(f"must be true or false, not {shown(value)}.", field=key)
        return value


def _common(keys: _Keys, sequence: int, tied: bool) -> dict[str, Any]:
    key = "dtype" if keys.get("torch_dtype") is None else "torch_dtype"
    kind = "bfloat16" if keys.get(key) is None else keys.text(key)
    if kind not in _PRECISIONS:
        raise InputError(
            f"unknown precision {shown(kind)}.{did_you_mean(kind, _PRECISIONS)}", field=key
        )
    quantized = keys.get("quantization_config") or {}
    if not isinstance(quantized, dict):
        raise InputError(f"must be an object, not {shown(quantized)}.", field="quantization_config")
    fp8 = quantized.get("quant_method") == "fp8"
    return {
        "vocabulary": keys.whole("vocab_size"),
        "sequence": sequence,
        "precision": "fp8" if fp8 else _PRECISIONS[kind],
        "tied_embeddings": keys.flag("tie_word_embeddings", tied),
    }


def _gptj(keys: _Keys) -> dict[str, Any]:
    hidden, heads = keys.whole("n_embd"), keys.whole("n_head")
    return {
        "layers": keys.whole("n_layer"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": heads,
        "ffn": keys.whole("n_inner", default=4 * hidden),
        **_common(keys, keys.sequence("n_positions", "n_ctx"), tied=False),
    }


def _gpt2(keys: _Keys) -> dict[str, Any]:
    return {
        **_gptj(keys),
        "learned_positions": True,
        "tied_embeddings": keys.flag("tie_word_embeddings", True),
    }


def _opt(keys: _Keys) -> dict[str, Any]:
    hidden, heads = keys.whole("hidden_size"), keys.whole("num_attention_heads")
    if keys.whole("word_embed_proj_dim", default=hidden) != hidden:
        raise InputError(
            f"must be the hidden size, {hidden:,}: smaller embeddings are not supported.",
            field="word_embed_proj_dim",
        )
    return {
        "layers": keys.whole("num_hidden_layers"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": heads,
        "ffn": keys.whole("ffn_dim"),
        "learned_positions": True,
        **_common(keys, keys.sequence("max_position_embeddings"), tied=True),
    }


def _bloom(keys: _Keys) -> dict[str, Any]:
    hidden, heads = (
        keys.whole("hidden_size", "n_embed"),
        keys.whole("n_head", "num_attention_heads"),
    )
    return {
        "layers": keys.whole("n_layer", "num_hidden_layers"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": heads,
        "ffn": 4 * hidden,
        **_common(keys, keys.sequence("seq_length"), tied=True),
    }


def _falcon(keys: _Keys) -> dict[str, Any]:
    hidden, heads = keys.whole("hidden_size"), keys.whole("num_attention_heads", "n_head")
    if keys.flag("new_decoder_architecture", False):
        kv_heads = keys.whole("num_kv_heads", "n_head_kv", default=heads)
    else:
        kv_heads = 1 if keys.flag("multi_query", True) else heads
    return {
        "layers": keys.whole("num_hidden_layers", "n_layer"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": kv_heads,
        "ffn": keys.whole("ffn_hidden_size", default=4 * hidden),
        **_common(keys, keys.sequence("max_position_embeddings"), tied=True),
    }


def _neox(keys: _Keys) -> dict[str, Any]:
    heads = keys.whole("num_attention_heads")
    return {
        "layers": keys.whole("num_hidden_layers"),
        "hidden": keys.whole("hidden_size"),
        "heads": heads,
        "kv_heads": heads,
        "ffn": keys.whole("intermediate_size"),
        **_common(keys, keys.sequence("max_position_embeddings"), tied=False),
    }


def _llama(keys: _Keys) -> dict[str, Any]:
    heads = keys.whole("num_attention_heads")
    return {
        **_neox(keys),
        "kv_heads": keys.whole("num_key_value_heads", default=heads),
        "head_size": keys.whole("head_dim", default=0),
        "gated_ffn": True,
    }


def _gemma(keys: _Keys) -> dict[str, Any]:
    return {**_llama(keys), "tied_embeddings": keys.flag("tie_word_embeddings", True)}


def _mixtral(keys: _Keys) -> dict[str, Any]:
    return {
        **_llama(keys),
        "experts": keys.whole("num_local_experts"),
        "experts_per_token": keys.whole("num_experts_per_tok"),
    }


def _qwen_moe(keys: _Keys) -> dict[str, Any]:
    dense = keys.get("mlp_only_layers") or []
    if not isinstance(dense, list) or dense != list(range(len(dense))):
        raise InputError(
            f"dense layers must be the first ones, 0, 1, …, not {shown(dense)}.",
            field="mlp_only_layers",
        )
    if keys.whole("decoder_sparse_step", default=1) != 1:
        raise InputError(
            "must be 1: models in which only every few layers have experts are not supported.",
            field="decoder_sparse_step",
        )
    return {
        **_llama(keys),
        "ffn": keys.whole("moe_intermediate_size"),
        "experts": keys.whole("num_experts"),
        "experts_per_token": keys.whole("num_experts_per_tok"),
        "shared_ffn": keys.whole("shared_expert_intermediate_size", default=0),
        "dense_layers": len(dense),
        "dense_ffn": keys.whole("intermediate_size") if dense else 0,
    }


def _deepseek(keys: _Keys) -> dict[str, Any]:
    expert = keys.whole("moe_intermediate_size")
    if keys.whole("moe_layer_freq", default=1) != 1:
        raise InputError(
            "must be 1: models in which only every few layers have experts are not supported.",
            field="moe_layer_freq",
        )
    dense = keys.whole("first_k_dense_replace", default=0)
    return {
        **_llama(keys),
        "ffn": expert,
        "experts": keys.whole("n_routed_experts"),
        "experts_per_token": keys.whole("num_experts_per_tok"),
        "shared_ffn": expert * keys.whole("n_shared_experts", default=0),
        "dense_layers": dense,
        "dense_ffn": keys.whole("intermediate_size") if dense else 0,
        "servers_per_token": _servers_per_token(keys),
        "head_size": keys.whole("qk_nope_head_dim"),
        "latent": LatentAttention(
            kv_rank=keys.whole("kv_lora_rank"),
            query_rank=keys.whole("q_lora_rank", default=0),
            rotary_size=keys.whole("qk_rope_head_dim"),
            value_size=keys.whole("v_head_dim"),
        ),
    }


def _servers_per_token(keys: _Keys) -> int:
    """Return the groups of experts that a token may go to: of DeepSeek-V3 one on each server."""
    if keys.get("model_type") != "deepseek_v3":
        return 0
    chosen = keys.whole("topk_group", default=0)
    return chosen if chosen < keys.whole("n_group", default=0) else 0


_KINDS: Mapping[str, Callable[[_Keys], dict[str, Any]]] = {
    "bloom": _bloom,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "falcon": _falcon,
    "gemma": _gemma,
    "gemma2": _gemma,
    "gpt2": _gpt2,
    "gpt_neox": _neox,
    "gptj": _gptj,
    "llama": _llama,
    "mistral": _llama,
    "mixtral": _mixtral,
    "opt": _opt,
    "phi3": _llama,
    "qwen2": _llama,
    "qwen2_moe": _qwen_moe,
    "qwen3": _llama,
    "qwen3_moe": _qwen_moe,
}
