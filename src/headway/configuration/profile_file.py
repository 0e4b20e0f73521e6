"""Profile files: what an iteration of each model costs, in `[[model]]`."""

from __future__ import annotations

from typing import Annotated

import msgspec

from headway.configuration.conversion import Number, Text, TomlTable
from headway.configuration.document import Document
from headway.configuration.files import DescriptionFile
from headway.domain.errors import InputError, shown
from headway.domain.gpus import ALIASES
from headway.domain.limits import LONGEST_NS, MAX_BYTES, scaled
from headway.domain.models import MAX_BATCH, MEBIBYTE, ModelProfile, ProfileSet


class ModelTable(TomlTable):
    """`[[model]]`; the keys after `memory_mb` record how it was measured, and are not read."""

    name: Text
    gpu: Text
    batch_size: Annotated[int, msgspec.Meta(ge=1, le=MAX_BATCH)]
    forward_ms: Number
    backward_ms: Number
    gradient_mb: Number
    memory_mb: Number
    precision: str = ""
    parameters: int = 0
    repeats: int = 0
    forward_ms_quartiles: list[Number] | None = None
    backward_ms_quartiles: list[Number] | None = None
    bucket_mb: list[Number] | None = None
    bucket_ready_ms: list[Number] | None = None


class ProfileFile(DescriptionFile, kw_only=True):
    """A file with profiles of models."""

    model: Annotated[list[ModelTable], msgspec.Meta(min_length=1)]


def read_profiles(path: str, name: str) -> ProfileSet:
    """Read the set of profiles in a file, under a name."""
    document = Document.read(path)
    found: dict[tuple[str, str, int], ModelProfile] = {}
    for index, table in enumerate(document.convert(ProfileFile).model):
        with document.at("model", index):
            profile = _profile(table)
            key = profile.name, profile.gpu, profile.batch_size
            if key in found:
                raise InputError(
                    f"duplicate profile of {shown(profile.name)} on {shown(profile.gpu)} at batch "
                    f"size {profile.batch_size}.",
                    field="name",
                )
            found[key] = profile
    return ProfileSet(name, tuple(found.values()))


def _profile(table: ModelTable) -> ModelProfile:
    return ModelProfile(
        table.name,
        gradient_bytes=_bytes(table.gradient_mb, "gradient_mb"),
        memory_bytes=_bytes(table.memory_mb, "memory_mb"),
        forward_ns=_nanoseconds(table.forward_ms, "forward_ms"),
        backward_ns=_nanoseconds(table.backward_ms, "backward_ms"),
        batch_size=table.batch_size,
        gpu=ALIASES.get(table.gpu, table.gpu),
    )


def _nanoseconds(value: float, key: str) -> int:
    return scaled(value, 1e6, key, 1, LONGEST_NS, "milliseconds")


def _bytes(value: float, key: str) -> int:
    return scaled(value, MEBIBYTE, key, 0, MAX_BYTES, "MB")
