"""Iterations of Hugging Face's models on one GPU, measured, as a file for `headway validate`.

Needs PyTorch with a GPU and transformers, and nothing of Headway. Models have random weights and
see random tokens. Parameters and gradients are bf16, Adam keeps fp32 copies; attention is PyTorch's
fused one. Layers run as they are, or compiled by `torch.compile`. A row is written as soon as it
is measured; what fails, as when it does not fit in memory, is left out, with a remark.

    python benchmarks/llm_iterations.py measured.csv --gpu h200 --compile
    headway validate measured.csv
"""

from __future__ import annotations

import argparse
import csv
import gc
import statistics
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch

WARM_UPS, TIMED = 3, 5


@dataclass(frozen=True)
class Case:
    """A model and a plan on one GPU, with the columns of `headway validate`."""

    layers: int
    hidden: int
    heads: int
    sequence: int
    micro_batch: int
    global_batch: int
    vocabulary: int
    tied: int
    ffn: int
    kv_heads: int
    gated: int = 1
    experts: int = 0
    experts_per_token: int = 0
    recompute: str = "none"
    gpus: int = 1
    tensor: int = 1
    data: int = 1
    pipeline: int = 1
    precision: str = "bf16"
    attention: str = "fused"


def gpt(
    layers: int, hidden: int, heads: int, sequence: int, micro: int, accumulated: int, **more: Any
) -> Case:
    """Return a GPT with this many accumulated microbatches."""
    return Case(
        *(layers, hidden, heads, sequence, micro, micro * accumulated),
        vocabulary=50257,
        tied=1,
        ffn=4 * hidden,
        kv_heads=heads,
        gated=0,
        **more,
    )


def llama(
    layers: int, hidden: int, heads: int, sequence: int, micro: int, accumulated: int, **more: Any
) -> Case:
    """Return a Llama, by default with the vocabulary and the key and value heads of Llama 3."""
    others = {"vocabulary": 128256, "tied": 0, "kv_heads": 8} | more
    return Case(layers, hidden, heads, sequence, micro, micro * accumulated, **others)


CASES = [
    gpt(12, 768, 12, 1024, 4, 4),
    gpt(12, 768, 12, 1024, 16, 2),
    gpt(24, 1024, 16, 1024, 8, 4),
    gpt(24, 1024, 16, 2048, 16, 1),
    gpt(24, 2048, 16, 2048, 1, 8),
    gpt(24, 2048, 16, 2048, 4, 4),
    gpt(24, 2048, 16, 2048, 8, 2, recompute="full"),
    gpt(12, 4096, 32, 2048, 2, 4),
    gpt(12, 4096, 32, 2048, 4, 2, recompute="full"),
    gpt(6, 6144, 48, 2048, 4, 2),
    llama(16, 2048, 32, 2048, 2, 4, ffn=8192, tied=1),
    llama(16, 2048, 32, 4096, 4, 2, ffn=8192, tied=1),
    llama(16, 2048, 32, 8192, 1, 4, ffn=8192, tied=1),
    llama(22, 2048, 32, 2048, 8, 2, ffn=5632, kv_heads=4, vocabulary=32000),
    llama(8, 4096, 32, 2048, 1, 8, ffn=14336),
    llama(8, 4096, 32, 4096, 2, 4, ffn=14336),
    llama(8, 4096, 32, 8192, 1, 4, ffn=14336),
    llama(8, 4096, 32, 8192, 2, 2, ffn=14336, recompute="full"),
    llama(16, 4096, 32, 4096, 1, 4, ffn=11008, kv_heads=32, vocabulary=32000),
    llama(8, 5120, 40, 4096, 2, 2, ffn=13824, kv_heads=40, vocabulary=32000),
    llama(3, 8192, 64, 4096, 1, 4, ffn=28672),
    llama(3, 8192, 64, 4096, 2, 2, ffn=28672, recompute="full"),
    llama(8, 2048, 16, 4096, 2, 4, ffn=4096, vocabulary=32000, experts=8, experts_per_token=2),
    llama(4, 4096, 32, 4096, 2, 2, ffn=7168, vocabulary=32000, experts=8, experts_per_token=2),
    llama(6, 2048, 16, 4096, 4, 2, ffn=1024, vocabulary=32000, experts=32, experts_per_token=4),
]


def model_of(case: Case, compiled: bool) -> Any:
    """Return a model of Hugging Face's transformers, on the GPU."""
    from transformers import (
        GPT2Config,
        GPT2LMHeadModel,
        LlamaConfig,
        LlamaForCausalLM,
        MixtralConfig,
        MixtralForCausalLM,
    )

    common: dict[str, Any] = {
        "vocab_size": case.vocabulary,
        "tie_word_embeddings": bool(case.tied),
        "use_cache": False,
        "attn_implementation": "sdpa",
    }
    wide: dict[str, Any] = {
        "hidden_size": case.hidden,
        "intermediate_size": case.ffn,
        "num_hidden_layers": case.layers,
        "num_attention_heads": case.heads,
        "num_key_value_heads": case.kv_heads,
        "max_position_embeddings": case.sequence,
    }
    with torch.device("cuda"):
        torch.set_default_dtype(torch.bfloat16)
        try:
            if not case.gated:
                shape = {"n_embd": case.hidden, "n_layer": case.layers, "n_head": case.heads}
                config = GPT2Config(n_positions=case.sequence, **shape, **common)
                model = GPT2LMHeadModel(config)
            elif case.experts:
                some = {"num_local_experts": case.experts}
                some["num_experts_per_tok"] = case.experts_per_token
                config = MixtralConfig(sliding_window=None, **some, **wide, **common)
                config._experts_implementation = "grouped_mm"
                model = MixtralForCausalLM(config)
            else:
                model = LlamaForCausalLM(LlamaConfig(**wide, **common))
        finally:
            torch.set_default_dtype(torch.float32)
    if case.recompute == "full":
        model.gradient_checkpointing_enable({"use_reentrant": False})
    if compiled:
        for layer in model.transformer.h if not case.gated else model.model.layers:
            layer.compile()
    return model.train()


class MixedAdam:
    """Adam on fp32 copies of parameters that are bf16, with gradients clipped."""

    def __init__(self, parameters: Iterable[torch.Tensor]) -> None:
        self._parameters = list(parameters)
        self._copies = [one.detach().float().requires_grad_() for one in self._parameters]
        self._adam = torch.optim.AdamW(self._copies, fused=True)

    @torch.no_grad()
    def step(self) -> None:
        """Make a step, and drop the gradients."""
        gradients = [one.grad for one in self._parameters if one.grad is not None]
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        torch._foreach_mul_(gradients, torch.clamp(1.0 / norm, max=1.0))
        for one, copy in zip(self._parameters, self._copies, strict=True):
            copy.grad = None if one.grad is None else one.grad.float()
        self._adam.step()
        self._adam.zero_grad()
        torch._foreach_copy_(self._parameters, self._copies)
        for one in self._parameters:
            one.grad = None


def measured_ms(case: Case, compiled: bool) -> float:
    """Return the median time of an iteration."""
    torch.manual_seed(0)
    model = model_of(case, compiled)
    optimizer = MixedAdam(model.parameters())
    shape = (case.micro_batch, case.sequence)
    tokens = torch.randint(case.vocabulary, shape, device="cuda")
    times = []
    for _ in range(WARM_UPS + TIMED):
        torch.cuda.synchronize()
        began_ns = time.perf_counter_ns()
        for _ in range(case.global_batch // case.micro_batch):
            model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        torch.cuda.synchronize()
        times.append((time.perf_counter_ns() - began_ns) / 1e6)
    return statistics.median(times[WARM_UPS:])


def main() -> None:
    """Measure all cases."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("output", help="file to write")
    parser.add_argument("--gpu", required=True, help="name of the type of GPU, as h200")
    parser.add_argument("--compile", action="store_true", help="compile layers")
    options = parser.parse_args()
    with open(options.output, "w", newline="") as stream:
        names = [*(one.name for one in fields(Case)), "gpu", "iteration_ms"]
        writer = csv.DictWriter(stream, names, lineterminator="\n")
        writer.writeheader()
        for number, case in enumerate(CASES, 1):
            try:
                time_ms = measured_ms(case, options.compile)
            except RuntimeError as error:  # As a rule it does not fit in memory.
                print(f"{error}: {case}", file=sys.stderr)
                continue
            finally:
                gc.collect()
                torch._dynamo.reset()
                torch.cuda.empty_cache()
            row = asdict(case) | {"gpu": options.gpu, "iteration_ms": f"{time_ms:.3f}"}
            writer.writerow(row)
            stream.flush()
            print(f"{number} of {len(CASES)}: {time_ms:,.1f} ms", flush=True)


if __name__ == "__main__":
    main()
