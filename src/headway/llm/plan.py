"""A plan: how the training of a model is spread over GPUs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from headway.domain.errors import InputError, did_you_mean, shown
from headway.domain.limits import MAX_GPUS, whole
from headway.llm.config import ModelConfig

SCHEDULES = ("1f1b", "gpipe", "interleaved")
RECOMPUTE = ("none", "selective", "full")
GPUS_PER_SERVER = 8
MOST_BATCH = 2**24
_MOST_ZERO = 3


@dataclass(frozen=True, slots=True)
class Plan:
    """Degrees of parallelism, batch sizes, and what is recomputed or sharded.

    `interleave` is the number of virtual stages of each device (1 unless the schedule is
    `interleaved`). `recompute` is `none`, `selective` (attention alone) or `full` (every layer).
    `zero` is the stage of ZeRO: 1 shards the optimizer's state over data-parallel ranks, 2 the
    gradients too, 3 the parameters too. `expert` is the number of data-parallel ranks that the
    experts of a layer are spread over; with `overlap` their all-to-alls run while another
    microbatch computes. Batches are in sequences.

    Raises:
        InputError: A number is out of range, or the parts of the plan do not go together.
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    expert: int = 1
    sequence_parallel: bool = False
    micro_batch: int = 1
    global_batch: int = 1
    schedule: str = "1f1b"
    interleave: int = 1
    recompute: str = "selective"
    zero: int = 0
    overlap: bool = True

    def __post_init__(self) -> None:
        for field in ("tensor", "pipeline", "data", "expert"):
            whole(getattr(self, field), field, 1, MAX_GPUS)
        whole(self.gpus, "data", 1, MAX_GPUS)
        for field in ("micro_batch", "global_batch"):
            whole(getattr(self, field), field, 1, MOST_BATCH)
        whole(self.zero, "zero", 0, _MOST_ZERO)
        _one_of(self.schedule, "schedule", SCHEDULES)
        _one_of(self.recompute, "recompute", RECOMPUTE)
        whole(self.interleave, "interleave", 1, 2**12)
        self._check_parts()

    def _check_parts(self) -> None:
        step = self.micro_batch * self.data
        if self.global_batch % step:
            raise InputError(
                f"must be a multiple of microbatch x data, {self.micro_batch} x {self.data} = "
                f"{step:,}; {self.global_batch:,} is not.",
                field="global_batch",
            )
        if self.sequence_parallel and self.tensor == 1:
            raise InputError("needs tensor parallelism of at least 2.", field="sequence_parallel")
        if (self.schedule == "interleaved") != (self.interleave > 1):
            what = "2 or more" if self.schedule == "interleaved" else "1"
            raise InputError(
                f"must be {what} for the schedule {self.schedule}, not {self.interleave}.",
                field="interleave",
            )
        if self.interleave > 1 and self.microbatches % self.pipeline:
            raise InputError(
                f"interleaved needs microbatches in multiples of the {self.pipeline} pipeline "
                f"stages; there are {self.microbatches}.",
                field="schedule",
            )
        if self.interleave > 1 and self.pipeline == 1:
            raise InputError("interleaved needs at least 2 pipeline stages.", field="schedule")
        if self.zero > 1 and self.pipeline > 1:
            raise InputError(
                "stages 2 and 3 are for plans without a pipeline, which would exchange gradients "
                "for every microbatch; use 0 or 1.",
                field="zero",
            )
        if self.data % self.expert:
            raise InputError(
                f"must divide the {self.data} data-parallel ranks; {self.expert} does not.",
                field="expert",
            )

    @classmethod
    def parse(cls, text: str) -> Plan:
        """Return the plan with this spelling, such as `tp4-pp4-dp32-mb2-gb1536`.

        Parts are separated by hyphens, in any order: tpN, ppN, dpN and epN (degrees of
        parallelism), sp (sequence parallelism), mbN and gbN (microbatch and global batch), 1f1b,
        gpipe or interleavedN (the schedule), norecompute, selective or recompute, zeroN, and
        nooverlap. gbN must be given; `str(plan)` has the parts that are not the default.
        """
        values: dict[str, int | str | bool] = {}
        for part in text.split("-"):
            for field, value in _parsed(part, text).items():
                if field in values:
                    raise InputError(f"{shown(text)} has two parts for {field}.", field="plan")
                values[field] = value
        if "global_batch" not in values:
            raise InputError(
                f"{shown(text)} lacks the global batch, in sequences, such as gb1536.", field="plan"
            )
        try:
            return cls(**values)  # type: ignore[arg-type]
        except InputError as error:
            raise InputError(f"{shown(text)}: {error}", field="plan") from None

    def __str__(self) -> str:
        degrees = {"tp": self.tensor, "pp": self.pipeline, "dp": self.data, "ep": self.expert}
        parts = [f"{key}{value}" for key, value in degrees.items() if value > 1]
        parts += ["sp"] * self.sequence_parallel
        parts += [f"mb{self.micro_batch}", f"gb{self.global_batch}"]
        if self.schedule != "1f1b":
            parts.append(self.schedule + (str(self.interleave) if self.interleave > 1 else ""))
        if self.recompute != "selective":
            parts += [word for word, kind in _RECOMPUTE_WORDS.items() if kind == self.recompute]
        parts += [f"zero{self.zero}"] if self.zero else []
        return "-".join([*parts, *([] if self.overlap else ["nooverlap"])])

    @property
    def gpus(self) -> int:
        """The GPUs of a job with this plan."""
        return self.tensor * self.pipeline * self.data

    @property
    def microbatches(self) -> int:
        """The microbatches of one data-parallel replica in an iteration."""
        return self.global_batch // (self.micro_batch * self.data)

    @property
    def stages(self) -> int:
        """The stages of the pipeline, virtual ones included."""
        return self.pipeline * self.interleave

    @property
    def overlaps_exchanges(self) -> bool:
        """Whether all-to-alls of experts run while another microbatch computes."""
        return self.overlap and self.expert > 1 and self.microbatches > 1

    def stage_layers(self, layers: int) -> list[range]:
        """Return the layers of each stage.

        Where they do not divide evenly, the first and the last stages, which also have embedding
        and head, are those with a layer less, as in Llama 3 (arXiv 2407.21783, section 3.3.2).
        """
        least, more = divmod(layers, self.stages)
        before = (self.stages - more) // 2
        starts = [
            least * stage + min(max(stage - before, 0), more) for stage in range(self.stages + 1)
        ]
        return [range(first, end) for first, end in pairwise(starts)]

    def check(self, config: ModelConfig, gpus_per_server: int | None = GPUS_PER_SERVER) -> None:
        """Refuse a plan that does not divide the model, or has tensor ranks on several servers.

        With None for `gpus_per_server`, tensor ranks may be anywhere.
        """
        tensor = self.tensor
        if gpus_per_server is None:
            gpus_per_server = tensor
        if tensor > gpus_per_server:
            raise InputError(
                f"must be at most {gpus_per_server}, the GPUs of a server, not {tensor}: tensor "
                "parallelism between servers is too slow to be used.",
                field="tensor",
            )
        if gpus_per_server % tensor:
            raise InputError(
                f"must divide the {gpus_per_server} GPUs of a server; {tensor} does not.",
                field="tensor",
            )
        for name, size in (
            ("heads", config.heads),
            ("FFN size", config.ffn),
            ("FFN size of dense layers", config.dense_ffn),
            ("FFN size of shared experts", config.shared_ffn),
        ):
            if size % tensor:
                raise InputError(
                    f"must divide the model's {name}, {size:,}; {tensor} does not.", field="tensor"
                )
        if config.kv_heads % tensor and tensor % config.kv_heads:
            raise InputError(
                f"must divide the model's {config.kv_heads} KV heads, or be a multiple of them; "
                f"{tensor} is neither.",
                field="tensor",
            )
        if self.sequence_parallel and config.sequence % tensor:
            raise InputError(
                f"must divide the sequence, {config.sequence:,}, for sequence parallelism; "
                f"{tensor} does not.",
                field="tensor",
            )
        if self.stages > config.layers:
            what = f"{self.stages}"
            if self.interleave > 1:
                what = f"{self.pipeline} x {self.interleave} = {what}"
            raise InputError(
                f"every stage needs a layer: must be at most the model's {config.layers}, not "
                f"{what}.",
                field="pipeline",
            )
        if self.expert > 1 and not config.experts:
            raise InputError("must be 1: the model has no experts.", field="expert")
        if config.experts % self.expert:
            raise InputError(
                f"must divide the model's {config.experts} experts; {self.expert} does not.",
                field="expert",
            )


_NUMBERED = {
    "tp": "tensor",
    "pp": "pipeline",
    "dp": "data",
    "ep": "expert",
    "mb": "micro_batch",
    "gb": "global_batch",
    "zero": "zero",
}
_RECOMPUTE_WORDS = {"norecompute": "none", "selective": "selective", "recompute": "full"}


def _parsed(part: str, text: str) -> dict[str, int | str | bool]:
    """Return the fields that one part of a plan's spelling sets."""
    if part == "sp":
        return {"sequence_parallel": True}
    if part == "nooverlap":
        return {"overlap": False}
    if part in _RECOMPUTE_WORDS:
        return {"recompute": _RECOMPUTE_WORDS[part]}
    if part in ("1f1b", "gpipe"):
        return {"schedule": part}
    match = re.fullmatch(r"([a-z]+)([0-9]{1,9})", part)
    if match and match[1] == "interleaved":
        return {"schedule": "interleaved", "interleave": int(match[2])}
    if match and match[1] in _NUMBERED:
        return {_NUMBERED[match[1]]: int(match[2])}
    raise InputError(
        f"unknown part {shown(part)} in {shown(text)}. Parts: tpN, ppN, dpN, epN, sp, mbN, gbN, "
        "1f1b, gpipe, interleavedN, norecompute, selective, recompute, zeroN, nooverlap.",
        field="plan",
    )


def _one_of(value: str, field: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InputError(
            f"unknown {field} {shown(value)}.{did_you_mean(str(value), known)}", field=field
        )
