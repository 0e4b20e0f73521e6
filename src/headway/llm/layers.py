"""The time of a model's parts on one GPU: embedding, transformer layers, head and optimizer.

Kernels are those of Megatron-LM: matrix multiplications of the shapes that tensor and expert
parallelism leave to one rank, and element-wise kernels whose bytes are counted in passes over a
tensor of activations (a kernel that reads two and writes one makes three). Attention is either
fused, or multiplies and keeps whole matrices of scores.

A pass takes as long as its kernels and collectives take on the GPU, or as long as the CPU needs
to launch them, whichever is longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from headway.domain.errors import InputError
from headway.llm.config import ModelConfig
from headway.llm.gpu import GpuModel
from headway.llm.plan import Plan

Shape = tuple[int, int, int]
"""m, n and k of a multiplication of m x k by k x n."""

PADDED_TO = 128
"""With tensor parallelism each rank's part of the vocabulary is padded to a multiple of this."""

_SCORES_COST = 1.5
"""How much longer softmax and dropout of scores take than their bytes: they compute in fp32, and
draw random numbers."""

_OPTIMIZER_BYTES = 34
"""Of Adam in mixed precision for each parameter: read the 16-bit gradient three times (norm,
unscaling, step), read and write three fp32 states, write the 16-bit parameter; 6 + 24 + 4."""

_OPTIMIZER_KERNELS = 10


@dataclass(frozen=True, slots=True)
class Work:
    """What a rank does in a pass through some part of a model.

    `collectives` are the all-reduces of tensor parallelism, or the pairs of all-gather and
    reduce-scatter that replace them with sequence parallelism. Those that are `overlapped` run
    beside multiplications that take `cover_ns`. `exchanges` are the all-to-alls of expert
    parallelism.
    """

    gpu_ns: float
    kernels: int
    collectives: int = 0
    overlapped: int = 0
    cover_ns: float = 0.0
    exchanges: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.gpu_ns + other.gpu_ns,
            self.kernels + other.kernels,
            self.collectives + other.collectives,
            self.overlapped + other.overlapped,
            self.cover_ns + other.cover_ns,
            self.exchanges + other.exchanges,
        )


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a model on one rank: its passes, and its parameters.

    The backward pass includes what is recomputed; `parameters` are without those of experts.
    """

    forward: Work
    backward: Work
    parameters: int
    expert_parameters: int = 0


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank of a model under a plan, for which blocks are worked out."""

    model: ModelConfig
    plan: Plan
    gpu: GpuModel
    fused_attention: bool = True

    def __post_init__(self) -> None:
        if not self.gpu.peak(self.model.precision):
            raise InputError(
                f"{self.gpu.name} has no {self.model.precision}, the precision of "
                f"{self.model.name or 'the model'}; use another type, or set precision in a config "
                "file.",
                field="gpu",
            )

    @property
    def tokens(self) -> int:
        """The tokens of a microbatch."""
        return self.plan.micro_batch * self.model.sequence

    @property
    def activation_bytes(self) -> int:
        """The bytes of a microbatch's activations between layers."""
        return self.tokens * self.model.hidden * self.model.number_bytes

    @property
    def vocabulary(self) -> int:
        """The vocabulary of one rank, padded."""
        tensor = self.plan.tensor
        if tensor == 1:
            return self.model.vocabulary
        return -(-self.model.vocabulary // (PADDED_TO * tensor)) * PADDED_TO

    def gemms(self, shapes: Iterable[Shape], batch: int = 1, precision: str | None = None) -> Work:
        """Return a kernel of `batch` multiplications for each shape m, n, k."""
        kind = precision or self.model.precision
        times = [self.gpu.gemm_ns(m, n, k, kind, batch) for m, n, k in shapes]
        return Work(sum(times), len(times))

    def linear(self, shapes: Sequence[Shape], batch: int = 1) -> tuple[Work, Work]:
        """Return the forward and backward pass of linear layers, in the model's precision.

        In fp8 their inputs are converted, and for the backward pass gradients in both directions
        and inputs in the other one: scales belong to parts of a row or a column.
        """
        forward = self.gemms(shapes, batch)
        backward = self.gemms(_gradients(shapes), batch)
        if self.model.precision == "fp8":
            forward += self.moves(*(3 * batch * m * k for m, _, k in shapes))
            backward += self.moves(*(4 * batch * m * n for m, n, _ in shapes))
            backward += self.moves(*(2 * batch * m * k for m, _, k in shapes))
        return forward, backward

    def precise(self, shapes: Sequence[Shape]) -> tuple[Work, Work]:
        """Return both passes of linear layers that fp8 models keep in bf16: router and head."""
        kind = "bf16" if self.model.precision == "fp8" else None
        return self.gemms(shapes, precision=kind), self.gemms(_gradients(shapes), precision=kind)

    def moves(self, *moved_bytes: float) -> Work:
        """Return element-wise kernels, from the bytes that each reads and writes."""
        return Work(sum(map(self.gpu.elementwise_ns, moved_bytes)), len(moved_bytes))


@lru_cache(maxsize=2**12)
def transformer_layer(rank: Rank, with_experts: bool) -> Block:
    """Return one transformer layer, with experts or with one FFN."""
    attention, ffn = _attention(rank), _experts(rank) if with_experts else _dense(rank)
    scores_forward, scores_backward = _scores(rank)
    outside_forward, outside_backward = _outside_tensor_parallelism(rank)
    forward = attention.forward + ffn.forward + scores_forward + outside_forward
    backward = attention.backward + ffn.backward + scores_backward + outside_backward
    if rank.plan.tensor > 1:
        forward += Work(0, 0, collectives=2)
        # Gradients of inputs are added up while those of parameters are computed.
        backward += Work(0, 0, overlapped=2, cover_ns=_cover_ns(rank))
    parameters = attention.parameters + ffn.parameters
    # Gradients are added to those of earlier microbatches: two reads and a write.
    backward += rank.moves(3 * rank.model.number_bytes * (parameters + ffn.expert_parameters))
    if rank.plan.recompute == "full":
        backward += forward
    elif rank.plan.recompute == "selective" and not rank.fused_attention:
        backward += scores_forward
    return Block(forward, backward, parameters, ffn.expert_parameters)


def _cover_ns(rank: Rank) -> float:
    """Return the time of the gradients of the parameters that begin attention and the FFN."""
    model, tensor = rank.model, rank.plan.tensor
    inputs = (model.heads + 2 * model.kv_heads) * model.head_size
    width = (2 if model.gated_ffn else 1) * (model.experts_per_token or 1) * model.ffn
    shapes = [(model.hidden, _part(n, tensor), rank.tokens) for n in (inputs, width)]
    return rank.gemms(shapes).gpu_ns


def _attention(rank: Rank) -> Block:
    """Return the projections around attention."""
    model, tensor, rows = rank.model, rank.plan.tensor, rank.tokens
    latent, size = model.latent, model.head_size
    if latent is None:
        values = size
        inner = _part((model.heads + 2 * model.kv_heads) * size, tensor)
        shapes = [(rows, inner, model.hidden)]
    else:
        values = latent.value_size
        queries = _part(model.heads * (size + latent.rotary_size), tensor)
        shapes = [
            (rows, latent.kv_rank + latent.rotary_size, model.hidden),
            (rows, _part(model.heads * (size + values), tensor), latent.kv_rank),
            (rows, queries, latent.query_rank or model.hidden),
        ]
        if latent.query_rank:
            shapes.append((rows, latent.query_rank, model.hidden))
    output = _part(model.heads * values, tensor)
    shapes.append((rows, model.hidden, output))
    moved = rows * output * model.number_bytes
    forward, backward = rank.linear(shapes)
    forward += rank.moves(2 * moved)
    backward += rank.moves(2 * moved, 4 * moved)
    return Block(forward, backward, sum(n * k for _, n, k in shapes))


def _dense(rank: Rank) -> Block:
    """Return the FFN of a layer without experts."""
    width = rank.model.dense_ffn if rank.model.experts else rank.model.ffn
    return _ffn(rank, rank.tokens, width, 1)


def _experts(rank: Rank) -> Block:
    """Return a mixture of experts: router, experts, and those that every token passes."""
    model = rank.model
    batch = _part(model.experts, rank.plan.expert)
    rows = _part(rank.tokens * model.experts_per_token, batch)
    chosen = _ffn(rank, rows, model.ffn, batch)
    routing = rank.precise([(rank.tokens, model.experts, model.hidden)])
    # Tokens are ordered by expert, and back.
    ordered = 2 * rank.activation_bytes * model.experts_per_token
    exchanges = Work(0, 0, exchanges=2 if rank.plan.expert > 1 else 0)
    moves = rank.moves(ordered, ordered) + exchanges
    forward = chosen.forward + routing[0] + moves
    backward = chosen.backward + routing[1] + moves
    parameters = model.experts * model.hidden
    if model.shared_ffn:
        shared = _ffn(rank, rank.tokens, model.shared_ffn, 1)
        forward, backward = forward + shared.forward, backward + shared.backward
        parameters += shared.parameters
    return Block(forward, backward, parameters, chosen.parameters)


def _ffn(rank: Rank, rows: int, width: int, batch: int) -> Block:
    """Return `batch` FFNs of a width, each applied to `rows` tokens."""
    model, width = rank.model, _part(width, rank.plan.tensor)
    inputs = 2 if model.gated_ffn else 1
    shapes = [(rows, inputs * width, model.hidden), (rows, model.hidden, width)]
    inner = batch * rows * width * model.number_bytes
    forward, backward = rank.linear(shapes, batch)
    forward += rank.moves((inputs + 1) * inner)
    backward += rank.moves((2 * inputs + 1) * inner, inputs * inner)
    return Block(forward, backward, batch * sum(n * k for _, n, k in shapes))


def _scores(rank: Rank) -> tuple[Work, Work]:
    """Return the forward and backward pass of attention between its projections."""
    model = rank.model
    length = model.sequence
    key = model.head_size + (model.latent.rotary_size if model.latent else 0)
    value = model.latent.value_size if model.latent else model.head_size
    batch = rank.plan.micro_batch * _part(model.heads, rank.plan.tensor)
    if rank.fused_attention:
        # Of causal attention a fused kernel leaves out the half that is masked, and its backward
        # pass multiplies the scores again.
        flops = batch * length * length * (key + value)
        times = [rank.gpu.attention_ns(share * flops, model.precision) for share in (1, 2.5)]
        return Work(times[0], 1), Work(times[1], 2)
    scores = _SCORES_COST * batch * length * length * model.number_bytes
    products = [(length, length, key), (length, value, length)]
    forward = rank.gemms(products, batch) + rank.moves(2 * scores, 2.5 * scores)
    backward = rank.gemms(_gradients(products), batch)
    return forward, backward + rank.moves(3 * scores, 2.5 * scores)


def _outside_tensor_parallelism(rank: Rank) -> tuple[Work, Work]:
    """Return two layer norms, and dropout with the residual after attention and after the FFN."""
    size = float(rank.activation_bytes)
    if rank.plan.sequence_parallel:
        size /= rank.plan.tensor
    forward = rank.moves(2 * size, 3.5 * size, 2 * size, 3.5 * size)
    norm, dropout, residual, biases = 5 * size, 2.5 * size, 3 * size, 2 * size
    return forward, rank.moves(norm, dropout, residual, norm, dropout, residual, biases)


@lru_cache(maxsize=2**12)
def embedding(rank: Rank) -> Block:
    """Return the embedding of tokens."""
    size = rank.activation_bytes
    collectives = Work(0, 0, collectives=1 if rank.plan.tensor > 1 else 0)
    forward = rank.moves(2 * size) + Work(0, 5) + collectives
    backward = rank.moves(3 * size) + Work(0, 3)
    return Block(forward, backward, rank.vocabulary * rank.model.hidden)


@lru_cache(maxsize=2**12)
def head(rank: Rank) -> Block:
    """Return the last layer norm, the logits and the loss.

    The loss computes in fp32: logits are converted, and softmax makes several passes over them.
    """
    shapes = [(rank.tokens, rank.vocabulary, rank.model.hidden)]
    size, logits = rank.activation_bytes, rank.tokens * rank.vocabulary
    forward, backward = rank.precise(shapes)
    forward += rank.moves(2 * size, 11 * logits) + Work(0, 13)
    backward += rank.moves(5 * size, 12 * logits) + Work(0, 10)
    if rank.plan.tensor > 1:
        forward += Work(0, 0, collectives=1)
        m, n, k = shapes[0]
        backward += Work(0, 0, overlapped=1, cover_ns=rank.gemms([(k, n, m)]).gpu_ns)
    return Block(forward, backward, rank.vocabulary * rank.model.hidden)


def optimizer_ns(rank: Rank, parameters: float) -> float:
    """Return the time of the optimizer's step for this many parameters."""
    gpu = rank.gpu
    extra_ns = (_OPTIMIZER_KERNELS - 1) * max(gpu.kernel_ns, gpu.launch_ns)
    return extra_ns + gpu.elementwise_ns(_OPTIMIZER_BYTES * parameters)


def _gradients(shapes: Iterable[Shape]) -> list[Shape]:
    """Return the multiplications for the gradients of inputs, and of parameters."""
    return [made for m, n, k in shapes for made in ((m, k, n), (k, n, m))]


def _part(whole: int, parts: int) -> int:
    """Return the part of a rank, the largest if they are not equal."""
    return -(-whole // parts)
