"""Parameters and floating-point operations of a model."""

from __future__ import annotations

from headway.llm.config import ModelConfig


def attention_parameters(config: ModelConfig) -> int:
    """Return the parameters of a layer's attention: queries, keys, values and the output."""
    hidden, heads, size = config.hidden, config.heads, config.head_size
    latent = config.latent
    if latent is None:
        return hidden * size * (2 * heads + 2 * config.kv_heads)
    query_inputs = latent.query_rank or hidden
    queries = query_inputs * heads * (size + latent.rotary_size) + hidden * latent.query_rank
    compressed = hidden * (latent.kv_rank + latent.rotary_size)
    keys_and_values = latent.kv_rank * heads * (size + latent.value_size)
    return queries + compressed + keys_and_values + heads * latent.value_size * hidden


def ffn_parameters(config: ModelConfig, size: int) -> int:
    """Return the parameters of an FFN of some size."""
    return (3 if config.gated_ffn else 2) * config.hidden * size


def shared_parameters(config: ModelConfig, layer: int) -> int:
    """Return the parameters of a layer that are not those of its experts."""
    every_token, experts = config.ffn_of(layer)
    # Two norms, and the matrix that chooses experts.
    rest = 2 * config.hidden + (config.hidden * config.experts if experts else 0)
    return attention_parameters(config) + ffn_parameters(config, every_token) + rest


def expert_parameters(config: ModelConfig, layer: int) -> int:
    """Return the parameters of all experts of a layer that are not used by every token."""
    if not config.ffn_of(layer)[1]:
        return 0
    return config.experts * ffn_parameters(config, config.ffn)


def layer_parameters(config: ModelConfig, layer: int) -> int:
    """Return the parameters of a layer."""
    return shared_parameters(config, layer) + expert_parameters(config, layer)


def embedding_parameters(config: ModelConfig) -> int:
    """Return the parameters of the embeddings of words, and of positions if they are learned."""
    positions = config.sequence if config.learned_positions else 0
    return (config.vocabulary + positions) * config.hidden


def parameters(config: ModelConfig) -> int:
    """Return the parameters of a model; biases, of which there are few, are left out."""
    layers = sum(layer_parameters(config, layer) for layer in range(config.layers))
    heads = 0 if config.tied_embeddings else config.vocabulary * config.hidden
    return layers + embedding_parameters(config) + heads + config.hidden


def active_parameters(config: ModelConfig) -> int:
    """Return the parameters that one token uses: those of the chosen experts only."""
    unused = sum(
        ffn_parameters(config, config.ffn) * (config.experts - config.experts_per_token)
        for layer in range(config.layers)
        if config.ffn_of(layer)[1]
    )
    return parameters(config) - unused


def forward_flops_per_token(config: ModelConfig, sequence: int | None = None) -> int:
    """Return the FLOPs of a token's forward pass, two for a multiply-add, without recomputation.

    Attention counts all pairs of tokens, masked or not, as is usual (Narayanan et al. 2021, Eq. 3).
    """
    tokens = config.sequence if sequence is None else sequence
    matrices = 0
    for layer in range(config.layers):
        every_token, experts = config.ffn_of(layer)
        routing = config.hidden * config.experts if experts else 0
        matrices += attention_parameters(config) + routing
        matrices += ffn_parameters(config, every_token + experts)
    return 2 * (matrices + config.vocabulary * config.hidden) + attention_flops(config, tokens)


def attention_flops(config: ModelConfig, tokens: int) -> int:
    """Return the FLOPs of a token's queries with all keys, and of weighting values, forward."""
    latent = config.latent
    key = config.head_size + (latent.rotary_size if latent else 0)
    value = latent.value_size if latent else config.head_size
    return 2 * config.layers * config.heads * tokens * (key + value)


def iteration_flops(config: ModelConfig, sequences: int, recompute: str = "none") -> int:
    """Return the FLOPs of an iteration on some sequences: forward, backward and recomputation.

    The backward pass takes twice the FLOPs of the forward pass. `full` recomputation runs the
    layers forward again, `selective` attention without its matrices.
    """
    tokens = sequences * config.sequence
    forward = forward_flops_per_token(config)
    again = 0
    if recompute == "full":
        again = forward - 2 * config.vocabulary * config.hidden
    elif recompute == "selective":
        again = attention_flops(config, config.sequence)
    return tokens * (3 * forward + again)
