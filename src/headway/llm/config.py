"""The shape of a large language model."""

from __future__ import annotations

from dataclasses import dataclass

from headway.domain.errors import InputError, did_you_mean, shown
from headway.domain.limits import whole

PRECISIONS = {"fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1}
"""Bytes of a number in each precision of matrix multiplications."""

_MOST_LAYERS = 2**12
_LARGEST = 2**24


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Attention whose keys and values come from one small vector for each token.

    Multi-head latent attention of DeepSeek-V2 (DeepSeek-AI 2024, section 2.1). `kv_rank` and
    `query_rank` are the sizes of the compressed vectors (queries are not compressed if it is 0);
    `rotary_size` is the part of a head's query and key with positions, besides `head_size` values
    without; `value_size` is that of a head's values.
    """

    kv_rank: int
    query_rank: int
    rotary_size: int
    value_size: int

    def __post_init__(self) -> None:
        whole(self.kv_rank, "kv_rank", 1, _LARGEST)
        whole(self.query_rank, "query_rank", 0, _LARGEST)
        whole(self.rotary_size, "rotary_size", 0, _LARGEST)
        whole(self.value_size, "value_size", 1, _LARGEST)


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A stack of transformer layers between an embedding and a head.

    `kv_heads` below `heads` is grouped-query attention. With `experts` above 0 each layer's FFN
    is a mixture of that many, of which every token uses `experts_per_token`; `ffn` is then the
    size of one expert, `shared_ffn` that of the experts that every token uses besides, together,
    and the first `dense_layers` layers have one FFN of size `dense_ffn` instead. With
    `servers_per_token` the experts of a token are on at most that many servers, each of which gets
    the token once. A gated FFN has three matrices instead of two. `head_size` is hidden / heads
    unless it is given.

    Raises:
        InputError: A size is out of range, or sizes do not go together.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocabulary: int
    sequence: int
    precision: str = "bf16"
    experts: int = 0
    experts_per_token: int = 0
    gated_ffn: bool = False
    tied_embeddings: bool = True
    head_size: int = 0
    shared_ffn: int = 0
    dense_layers: int = 0
    dense_ffn: int = 0
    servers_per_token: int = 0
    learned_positions: bool = False
    latent: LatentAttention | None = None
    name: str = ""

    def __post_init__(self) -> None:
        whole(self.layers, "layers", 1, _MOST_LAYERS)
        for field in ("hidden", "heads", "kv_heads", "ffn", "vocabulary", "sequence"):
            whole(getattr(self, field), field, 1, _LARGEST)
        for field in ("head_size", "shared_ffn", "dense_ffn", "servers_per_token"):
            whole(getattr(self, field), field, 0, _LARGEST)
        if self.precision not in PRECISIONS:
            raise InputError(
                f"unknown precision {shown(self.precision)}."
                f"{did_you_mean(str(self.precision), PRECISIONS)}",
                field="precision",
            )
        if self.heads % self.kv_heads:
            raise InputError(
                f"must divide the {self.heads} heads; {self.kv_heads} does not.", field="kv_heads"
            )
        if not self.head_size:
            if self.hidden % self.heads:
                raise InputError(
                    f"must divide hidden, {self.hidden:,}, unless head_size is given; {self.heads} "
                    "does not.",
                    field="heads",
                )
            object.__setattr__(self, "head_size", self.hidden // self.heads)
        self._check_experts()

    def _check_experts(self) -> None:
        whole(self.experts, "experts", 0, _LARGEST)
        if not self.experts:
            for field in (
                "experts_per_token",
                "shared_ffn",
                "dense_layers",
                "dense_ffn",
                "servers_per_token",
            ):
                if getattr(self, field):
                    raise InputError("is for models with experts.", field=field)
            return
        whole(self.experts_per_token, "experts_per_token", 1, self.experts)
        whole(self.dense_layers, "dense_layers", 0, self.layers)
        if self.dense_layers and not self.dense_ffn:
            raise InputError("must be given with dense_layers.", field="dense_ffn")

    @property
    def number_bytes(self) -> int:
        """The bytes of a parameter or activation: those of fp8 models are 16-bit."""
        return max(2, PRECISIONS[self.precision])

    def ffn_of(self, layer: int) -> tuple[int, int]:
        """Return the size of the FFN that every token of a layer passes, and that of its experts.

        The second is the sum over the experts that a token uses, 0 in a dense layer.
        """
        if not self.experts:
            return self.ffn, 0
        if layer < self.dense_layers:
            return self.dense_ffn, 0
        return self.shared_ffn, self.experts_per_token * self.ffn
