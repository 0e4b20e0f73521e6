"""How a model is trained in parallel, as workloads write it: `ddp`, `fsdp:12`, `pp4x1f1b:8`.

A text is a method and its options, separated by colons: `METHOD[:VALUE][:KEY=VALUE]…`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headway.domain.errors import InputError, closest, did_you_mean, shown
from headway.domain.graph import Graph
from headway.domain.layers import Layer, merged
from headway.domain.limits import MAX_BYTES, MAX_GPUS, number_from, scaled, whole, whole_from
from headway.domain.models import MEBIBYTE
from headway.graphs.ddp import BUCKET_BYTES, FIRST_BUCKET_BYTES, ddp
from headway.graphs.fsdp import MOST_UNITS, fsdp
from headway.graphs.layers import MoeLayer, split_layers, split_over_ranks, with_experts
from headway.graphs.moe import moe
from headway.graphs.pipeline import MOST_PASSES, pipeline
from headway.graphs.schedules import SCHEDULES

FIELD = "parallel"
MOST_CHUNKS = 2**10
MOST_EXPERTS = 2**16


@dataclass(frozen=True, slots=True)
class Ddp:
    """Data parallelism with overlapped gradients: `ddp[:BUCKET_MB][:first=MB]`."""

    bucket_bytes: int = BUCKET_BYTES
    first_bucket_bytes: int = FIRST_BUCKET_BYTES

    parts = 1
    """Into how many parts the model is cut."""
    sends_activations = False

    def misfit(self, layers: Sequence[Layer], ranks: int) -> InputError | None:
        """Return why this is no way to train the model on this number of GPUs, or None."""
        return None

    def graph(self, layers: Sequence[Layer], ranks: int, optimizer_ns: int) -> Graph:
        """Return the graph of a model on some GPUs."""
        return ddp(
            layers,
            ranks,
            bucket_bytes=self.bucket_bytes,
            first_bucket_bytes=self.first_bucket_bytes,
            optimizer_ns=optimizer_ns,
        )


@dataclass(frozen=True, slots=True)
class Fsdp:
    """Sharded data parallelism: `fsdp[:UNITS][:prefetch=N][:reshard=no]`.

    By default each layer is a unit, otherwise units are layers of about the same time in all; there
    are at most as many as layers.
    """

    units: int | None = None
    prefetch: int = 1
    reshard: bool = True

    sends_activations = False

    @property
    def parts(self) -> int:
        """Into how many parts the model is cut."""
        return self.units or 1

    def misfit(self, layers: Sequence[Layer], ranks: int) -> InputError | None:
        """Return why this is no way to train the model on this number of GPUs, or None."""
        return None

    def graph(self, layers: Sequence[Layer], ranks: int, optimizer_ns: int) -> Graph:
        """Return the graph of a model on some GPUs; each updates its share of the parameters."""
        if self.units is not None:
            layers = in_units(layers, self.units)
        return fsdp(
            layers,
            ranks,
            prefetch=self.prefetch,
            reshard=self.reshard,
            optimizer_ns=optimizer_share(optimizer_ns, ranks),
        )


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Pipelines: `[tpRANKS-]ppSTAGESxSCHEDULE:MICROBATCHES[:chunks=N][:bucket=MB][:overlap=no]`.

    A pipeline has as many GPUs as stages, with tensor parallelism as many times more as each layer
    is split over; the job has as many pipelines as its GPUs are enough for. Layers have the times
    of one microbatch. Stages are cut by time; `chunks` is for interleaved, the parts on each
    device.
    """

    stages: int
    schedule: str
    microbatches: int
    chunks: int | None = None
    bucket_bytes: int = BUCKET_BYTES
    overlap: bool = True
    split: int = 1

    sends_activations = True

    @property
    def parts(self) -> int:
        """Into how many parts the model is cut."""
        if self.schedule != "interleaved":
            return self.stages
        return self.stages * (2 if self.chunks is None else self.chunks)

    def misfit(self, layers: Sequence[Layer], ranks: int) -> InputError | None:
        """Return why this is no way to train the model on this number of GPUs, or None."""
        gpus = self.stages * self.split
        if ranks % gpus:
            return InputError(
                f"must be a multiple of the {gpus:,} GPUs of a pipeline, not {ranks:,}.",
                field="gpus",
            )
        if len(layers) < self.parts:
            return InputError(
                f"the model has {len(layers):,} layers, too few for {self.parts:,} stages.",
                field=FIELD,
            )
        return None

    def graph(self, layers: Sequence[Layer], ranks: int, optimizer_ns: int) -> Graph:
        """Return the graph of a model on some GPUs; each updates the parameters that it has."""
        if self.split > 1:
            layers = split_over_ranks(layers, self.split)
        return pipeline(
            split_layers(layers, self.parts),
            self.microbatches,
            schedule=self.schedule,
            devices=self.stages,
            data_parallel=ranks // (self.stages * self.split),
            tensor_parallel=self.split,
            overlap=self.overlap,
            bucket_bytes=self.bucket_bytes,
            optimizer_ns=optimizer_share(optimizer_ns, self.stages * self.split),
        )


@dataclass(frozen=True, slots=True)
class Moe:
    """A mixture of experts: `moe:EXPERTS[:top=N]`.

    Every other one of equal layers is replaced by experts, each as large as the layer, spread over
    as many of the job's GPUs as divide both their number and that of the GPUs.
    """

    experts: int
    top: int = 1
    spread: int | None = None
    """Over how many GPUs the experts of a layer are spread, if not over as many as possible."""

    parts = 1
    sends_activations = True

    def misfit(self, layers: Sequence[Layer], ranks: int) -> InputError | None:
        """Return why this is no way to train the model on this number of GPUs, or None."""
        if all(isinstance(layer, Layer) for layer in with_experts(layers, 1, 1, 1)):
            return InputError(
                "the model has no two equal layers in a row, of which one could be experts.",
                field=FIELD,
            )
        return None

    def graph(
        self,
        layers: Sequence[Layer],
        ranks: int,
        optimizer_ns: int,
        updates_ns: int | None = None,
    ) -> Graph:
        """Return the graph of a model on some GPUs; each updates the parameters that it has.

        Args:
            layers: The model's layers, without experts.
            ranks: The number of GPUs.
            optimizer_ns: The time of the optimizer's step of the model without experts.
            updates_ns: The time of a GPU's step with them, if it is known.
        """
        whole(ranks, "ranks", 1, MAX_GPUS)
        spread = math.gcd(self.experts, ranks) if self.spread is None else self.spread
        if self.experts % whole(spread, "expert_parallel", 1, ranks):
            raise InputError(
                f"must divide the {self.experts:,} experts; {spread:,} does not.",
                field="expert_parallel",
            )
        model = with_experts(layers, self.experts, self.top, spread)
        if updates_ns is None:
            updates_ns = optimizer_of_experts(optimizer_ns, layers, model)
        return moe(model, ranks, expert_parallel=spread, optimizer_ns=updates_ns)


Parallel = Ddp | Fsdp | Pipeline | Moe

FORMS = "ddp, fsdp, moe:8 or a pipeline such as pp4x1f1b:8 or tp2-pp4x1f1b:8"
"""Ways to train, for messages."""


def parse_parallel(text: str) -> Parallel:
    """Return what a text such as `ddp:25` or `pp4x1f1b:8` says."""
    head, *options = text.split(":")
    if head == "ddp":
        return Ddp(**_options(options, "ddp", "bucket_bytes", _DDP))
    if head == "fsdp":
        return Fsdp(**_options(options, "fsdp", "units", _FSDP))
    if head == "moe":
        return _moe(options)
    match = re.fullmatch(r"(?:tp(\d{1,9})-)?pp(\d{1,9})x(\w+)", head, re.ASCII)
    if match is None:
        hint = closest(head, ("ddp", "fsdp", "moe"))
        raise InputError(f"must be {FORMS}, not {shown(text)}.{hint}", field=FIELD)
    split = _degree(match[1] or "1", "tp")
    stages, schedule = _degree(match[2], "pp"), match[3]
    if schedule not in SCHEDULES:
        raise InputError(
            f"unknown schedule {shown(schedule)}.{did_you_mean(schedule, SCHEDULES)}", field=FIELD
        )
    found = _required(options, head, "microbatches", _PIPELINE)
    if "chunks" in found and schedule != "interleaved":
        raise InputError("chunks applies to the schedule interleaved only.", field=FIELD)
    return Pipeline(stages, schedule, split=split, **found)


def _moe(options: Sequence[str]) -> Moe:
    found = Moe(**_required(options, "moe", "experts", _MOE))
    if found.top > found.experts:
        raise InputError(
            f"top must be at most the {found.experts:,} experts, not {found.top:,}.", field=FIELD
        )
    return found


def _degree(text: str, what: str) -> int:
    try:
        return whole(int(text), what, 1, MAX_GPUS)
    except InputError as error:
        raise InputError(f"{what} {error.problem}", field=FIELD) from None


def _required(
    options: Sequence[str], method: str, first: str, known: Mapping[str, _Option]
) -> dict[str, Any]:
    """Return the values of options by field, of which the first must be given."""
    found = _options(options, method, first, known)
    if first not in found:
        raise InputError(f"the {first} are missing, as in {method}:8.", field=FIELD)
    return found


def _options(
    options: Sequence[str], method: str, first: str, known: Mapping[str, _Option]
) -> dict[str, Any]:
    """Return the values of options by field; the first may be given without its key."""
    found: dict[str, Any] = {}
    keys = {option.field: key for key, option in known.items()}
    for place, text in enumerate(options):
        key, equals, value = text.partition("=")
        if not equals:
            if place:
                raise InputError(
                    f"must be KEY=VALUE after the first colon, not {shown(text)}.", field=FIELD
                )
            key, value = keys[first], text
        if key not in known:
            raise InputError(
                f"unknown option {shown(key)} of {method}.{did_you_mean(key, known)}", field=FIELD
            )
        option = known[key]
        if option.field in found:
            raise InputError(f"the option {key} is repeated; give it once.", field=FIELD)
        try:
            found[option.field] = option.convert(value, key)
        except InputError as error:
            raise InputError(f"{key} {error.problem}", field=FIELD) from None
    return found


@dataclass(frozen=True, slots=True)
class _Option:
    field: str
    convert: Callable[[str, str], int | bool]


def _megabytes(text: str, key: str) -> int:
    try:
        number = number_from(text)
    except ValueError:
        raise InputError(f"must be a number of MB, not {shown(text)}.", field=key) from None
    return scaled(number, MEBIBYTE, key, 1, MAX_BYTES, "MB", given=text)


def _count(least: int, most: int) -> Callable[[str, str], int]:
    def convert(text: str, key: str) -> int:
        try:
            return whole(whole_from(text), key, least, most)
        except ValueError:
            raise InputError(f"must be a whole number, not {shown(text)}.", field=key) from None

    return convert


def _switch(text: str, key: str) -> bool:
    if text not in ("yes", "no"):
        raise InputError(f"must be yes or no, not {shown(text)}.", field=key)
    return text == "yes"


_DDP = {
    "bucket": _Option("bucket_bytes", _megabytes),
    "first": _Option("first_bucket_bytes", _megabytes),
}
_FSDP = {
    "units": _Option("units", _count(1, MOST_UNITS)),
    "prefetch": _Option("prefetch", _count(0, MOST_UNITS)),
    "reshard": _Option("reshard", _switch),
}
_PIPELINE = {
    "microbatches": _Option("microbatches", _count(1, MOST_PASSES)),
    "chunks": _Option("chunks", _count(1, MOST_CHUNKS)),
    "bucket": _Option("bucket_bytes", _megabytes),
    "overlap": _Option("overlap", _switch),
}


_MOE = {
    "experts": _Option("experts", _count(1, MOST_EXPERTS)),
    "top": _Option("top", _count(1, MOST_EXPERTS)),
}


def in_units(layers: Sequence[Layer], count: int) -> list[Layer]:
    """Return layers together in units of about the same time, at most one for each layer."""
    return [merged(unit) for unit in split_layers(layers, min(count, len(layers)))]


def optimizer_of_experts(
    time_ns: int, layers: Sequence[Layer], model: Sequence[Layer | MoeLayer]
) -> int:
    """Return the time of a GPU's optimizer step, by the parameters that it has with experts."""
    own = sum(layer.parameter_bytes for layer in model)
    own += sum(layer.expert_parameter_bytes for layer in model if isinstance(layer, MoeLayer))
    before = sum(layer.parameter_bytes for layer in layers)
    return max(1, round(time_ns * own / before)) if time_ns else 0


def optimizer_share(time_ns: int, parts: int) -> int:
    """Return the time of one of equal parts of an optimizer's step, if there is one."""
    return max(1, round(time_ns / parts)) if time_ns else 0
