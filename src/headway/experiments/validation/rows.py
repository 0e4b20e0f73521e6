"""Measured iterations of large models: CSV tables with a row for each."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from headway.domain.errors import InputError, did_you_mean, shown
from headway.domain.limits import LONGEST_NS, whole_from
from headway.files import STANDARD, open_input
from headway.llm.config import ModelConfig
from headway.llm.gpu_file import gpu_from, gpu_names
from headway.llm.memory import plan_memory
from headway.llm.plan import GPUS_PER_SERVER, Plan
from headway.workload.tables import CsvTable, Unit, Value, Wording, check_names

COUNTS = (
    "gpus",
    "global_batch",
    "micro_batch",
    "hidden",
    "heads",
    "layers",
    "sequence",
    "tensor",
    "data",
    "pipeline",
)
TIME = "iteration_ms"
OPTIONAL_COUNTS = {
    "vocabulary": 1,
    "ffn": 1,
    "kv_heads": 1,
    "head_size": 1,
    "experts": 0,
    "experts_per_token": 0,
    "shared_ffn": 0,
    "dense_layers": 0,
    "dense_ffn": 0,
    "expert": 1,
    "interleave": 1,
    "zero": 0,
    "gpus_per_server": 1,
}
"""Optional columns of whole numbers, with the least that may be in them."""

FLAGS = ("sequence_parallel", "gated", "tied", "overlap")
WORDS = ("recompute", "precision", "attention", "gpu")
KNOWN = (*COUNTS, TIME, *OPTIONAL_COUNTS, *FLAGS, *WORDS, "billion_parameters")
ATTENTION = ("fused", "unfused")

GPT2_VOCABULARY = 50_257
PADDED_VOCABULARY = 50_304
"""GPT-2's vocabulary as Megatron has it, a multiple of 128."""

USUAL_MEMORY_BYTES = 80 * 2**30
"""Of the A100 on which vTrain's rows were measured."""

_YES, _NO = ("1", "true", "yes"), ("0", "false", "no")
_TIME = Unit("time_ns", 1e6, 1, LONGEST_NS, "milliseconds")
_WORDING = Wording(
    "not a text file; measurements are CSV.",
    "a measurement's line is short.",
    ",".join((*COUNTS, TIME)),
)


@dataclass(frozen=True, slots=True)
class Case:
    """What a row describes: a model under a plan on servers of some GPUs.

    `time_ns` is how long an iteration took, None if it was not measured. `gpu` is the type of GPU,
    None where a file does not say.
    """

    model: ModelConfig
    plan: Plan
    time_ns: int | None
    gpus_per_server: int = GPUS_PER_SERVER
    fused_attention: bool = False
    gpu: str | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """A row of a file of measurements."""

    source: str
    line: int
    case: Case

    @property
    def model(self) -> ModelConfig:
        """The model."""
        return self.case.model

    @property
    def plan(self) -> Plan:
        """The plan."""
        return self.case.plan

    @property
    def time_ns(self) -> int:
        """The measured time; only for rows that have one."""
        assert self.case.time_ns is not None
        return self.case.time_ns

    @property
    def model_name(self) -> str:
        """The shape of the model, as tables show it."""
        return f"{self.model.layers} x {self.model.hidden:,}"

    @property
    def degrees(self) -> str:
        """The degrees of parallelism, as tables show them."""
        plan = self.plan
        expert = f"-ep{plan.expert}" if plan.expert > 1 else ""
        return f"tp{plan.tensor}-dp{plan.data}-pp{plan.pipeline}{expert}"


def shipped_files() -> list[Traversable]:
    """Return the files of measurements that constants are fitted to: vTrain's."""
    return [_folder() / f"vtrain_a100_{nodes}.csv" for nodes in ("single", "multi")]


def all_shipped_files() -> list[Traversable]:
    """Return all files of measurements that ship with Headway.

    Besides vTrain's: Megatron-LM's, and those of Hugging Face's models on an H200.
    """
    others = ("megatron_a100.csv", "huggingface_h200.csv")
    return [*shipped_files(), *(_folder() / name for name in others)]


def _folder() -> Traversable:
    return resources.files("headway.llm") / "measured"


def read_measured(
    path: str | os.PathLike[str],
    *,
    gpu_bytes: int = USUAL_MEMORY_BYTES,
    report: Callable[[str], None] = lambda remark: None,
) -> list[Measured]:
    """Read measured iterations from a CSV file; `-` is standard input.

    Models are GPT, with an FFN of four times the hidden size, unless columns say otherwise. Without
    the columns `vocabulary` and `recompute`, plans on several servers have GPT-2's vocabulary as
    Megatron pads it and recompute all activations; those on one server have it as it is and
    recompute none, or all if they would not fit in the memory of the row's type of GPU otherwise
    (`gpu_bytes` for rows that name no type). Unknown columns are ignored, with a remark to
    `report`.
    """
    source = "standard input" if os.fspath(path) == STANDARD else os.fspath(path)
    table = CsvTable(source, _WORDING, _check_header, _renamed)
    with open_input(path) as stream:
        found, lines, header = table.rows(stream, lambda row: _row(row, gpu_bytes))
    if not found:
        raise InputError("has no rows; give one for each measurement.", source=source)
    if unknown := [shown(name) for name in header if name not in KNOWN]:
        report(f"{source}: ignored column{'s' * (len(unknown) > 1)} {', '.join(unknown)}")
    return [Measured(source, line, case) for line, case in zip(lines, found, strict=True)]


def _renamed(name: str) -> str:
    """Return a column's name in lower case and with underscores."""
    return "_".join(name.lower().split())


def _check_header(names: list[str]) -> None:
    known = [name for name in names if name in KNOWN]
    check_names(known or names, KNOWN, _WORDING.header)
    missing = [name for name in COUNTS if name not in names]
    if missing:
        unknown = [name for name in names if name not in KNOWN]
        raise InputError(
            f"missing column{'s' * (len(missing) > 1)} {', '.join(missing)}."
            + (f" Unknown: {', '.join(map(shown, unknown))}." if unknown else "")
        )


def _row(row: Mapping[str, Value], gpu_bytes: int) -> Case:
    texts = {name: str(value).strip() for name, value in row.items()}
    counts = {name: _count(texts, name) for name in COUNTS}
    gpus, hidden, heads = counts["gpus"], counts["hidden"], counts["heads"]
    needed = counts["tensor"] * counts["data"] * counts["pipeline"]
    if needed != gpus:
        raise InputError(
            f"must be tensor x data x pipeline, {needed:,}, not {gpus:,}.", field="gpus"
        )
    time_ns = _TIME.convert(TIME, texts[TIME]) if texts.get(TIME) else None
    given = {
        name: _count(texts, name, least=least)
        for name, least in OPTIONAL_COUNTS.items()
        if texts.get(name)
    }
    size = given.pop("gpus_per_server", GPUS_PER_SERVER)
    several = gpus > size
    of_plan = {name: given.pop(name) for name in ("expert", "interleave", "zero") if name in given}
    values: dict[str, Any] = {
        "kv_heads": heads,
        "ffn": 4 * hidden,
        "vocabulary": PADDED_VOCABULARY if several else GPT2_VOCABULARY,
        **given,
    }
    model = ModelConfig(
        layers=counts["layers"],
        hidden=hidden,
        heads=heads,
        sequence=counts["sequence"],
        precision=texts.get("precision") or "fp16",
        gated_ffn=_flag(texts, "gated", False),
        tied_embeddings=_flag(texts, "tied", True),
        **values,
    )
    gpu = texts.get("gpu") or None
    if gpu is not None and gpu not in gpu_names():
        raise InputError(f"unknown GPU {shown(gpu)}.{did_you_mean(gpu, gpu_names())}", field="gpu")
    attention = texts.get("attention") or "unfused"
    if attention not in ATTENTION:
        raise InputError(
            f"unknown attention {shown(attention)}.{did_you_mean(attention, ATTENTION)}",
            field="attention",
        )
    plan = Plan(
        tensor=counts["tensor"],
        pipeline=counts["pipeline"],
        data=counts["data"],
        sequence_parallel=_flag(texts, "sequence_parallel", False),
        micro_batch=counts["micro_batch"],
        global_batch=counts["global_batch"],
        schedule="interleaved" if of_plan.get("interleave", 1) > 1 else "1f1b",
        recompute=texts.get("recompute") or ("full" if several else "none"),
        overlap=_flag(texts, "overlap", True),
        **of_plan,
    )
    plan.check(model, None)
    fused = attention == "fused"
    if not texts.get("recompute") and not several:
        held = plan_memory(model, plan, fused_attention=fused)
        room = gpu_bytes if gpu is None else gpu_from(gpu).memory_bytes
        plan = plan if held.total <= room else replace(plan, recompute="full")
    return Case(model, plan, time_ns, size, fused, gpu)


def _flag(texts: Mapping[str, str], name: str, default: bool) -> bool:
    text = texts.get(name, "").lower()
    if text and text not in (*_YES, *_NO):
        raise InputError(f"must be 0 or 1, not {shown(text)}.", field=name)
    return text in _YES if text else default


def _count(texts: Mapping[str, str], name: str, *, least: int = 1) -> int:
    """Return the whole number in a cell, which may be written as 64.0."""
    text = texts[name]
    if not text:
        raise InputError("must not be empty.", field=name)
    try:
        count = whole_from(re.sub(r"\.0*$", "", text))
    except ValueError:
        raise InputError(f"must be a whole number, not {shown(text)}.", field=name) from None
    if not least <= count <= 2**31:
        bound = f"at least {least}" if count < least else f"at most {2**31:,}"
        raise InputError(f"must be {bound}, not {count:,}.", field=name)
    return count
