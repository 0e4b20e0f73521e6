"""Everything a run decides by, as one value: placement, priority, admission and bucket size."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import permutations
from operator import contains
from typing import Any, NamedTuple, Self

from headway.domain.errors import HeadwayError, InputError, did_you_mean, shown
from headway.domain.limits import MAX_BYTES, number_from, scaled
from headway.policies.registry import (
    KIND_NAMES,
    NEEDED_FIRST,
    Choice,
    Kind,
    choose,
    policies,
    registered,
)

SCHEDULERS = {
    "ada-srsf": ("srsf", "ada-dual"),
    "k-srsf": ("srsf", "k-way"),
    "srsf:1": ("srsf", "srsf:1"),
    "srsf:2": ("srsf", "srsf:2"),
    "srsf:3": ("srsf", "srsf:3"),
}
"""Scheduler to (priority, admission). Any other `srsf:N` is a scheduler too."""

PRESETS = {
    "paper": "lwf:1+ada-srsf",
    "headway": "least-delay+srtf+ada-dual/needed-first@50/if-shared",
}
"""The paper's own combination, and the best we know."""

_IF_SHARED = "/if-shared"

PolicyLike = str | Callable[..., Any]
"""A policy: its text, or the function that decides."""

KINDS: tuple[Kind, ...] = ("placement", "priority", "admission")
_BYTES_PER_MB = 2**20


class Choices(NamedTuple):
    """The policies of a set, as the registry has them."""

    placement: Choice
    priority: Choice
    admission: Choice

    @property
    def may_be_skipped(self) -> bool:
        """Whether all three promise what the engine needs to skip repeating iterations."""
        return all(choice.policy.steady and choice.policy.timeless for choice in self)


@dataclass(frozen=True, eq=False)
class PolicySet:
    """A placement, a priority, an admission and a bucket size.

    `str(policy_set)` is its canonical text, such as `least-delay+srtf+ada-dual@50`, which `parse`
    reads back. Sets with the same canonical text are equal. Every set is valid: its policies exist.
    """

    placement: str
    priority: str
    admission: str
    bucket_bytes: int | None = None
    """The most bytes that one message carries; None sends an all-reduce as one message."""
    buckets_if_shared: bool = False
    """Whether a message is cut only if another job is on one of its ports when it is ready."""
    name: str = ""
    """What the user called it, such as `headway`; by default the canonical text."""

    def __post_init__(self) -> None:
        """Write the policies' names canonically: `lwf:04` becomes `lwf:4`."""
        for kind, choice in self.choices._asdict().items():
            path, in_file, _ = getattr(self, kind).partition(".py:")
            text = f"{path}.py:{choice.name}" if in_file else choice.name
            object.__setattr__(self, kind, text)
        if not self.name:
            object.__setattr__(self, "name", str(self))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the policies that a text names.

        It is a preset (`paper`, `headway`), `placement+scheduler`, such as `lwf:1+ada-srsf`, or
        `placement+priority+admission`, such as `ff+fifo+srsf:1`. An `@25` at the end sends
        all-reduces in buckets of 25 MB (1 MB = 2**20 bytes), `@25/if-shared` only while another job
        may send on the same ports; `@0` sends them whole.

        Raises:
            InputError: The text names no policies.
        """
        names, bucket_bytes = text, None
        if_shared = text.endswith(_IF_SHARED)
        if match := re.search(r"@([^@+:/]*)$", text.removesuffix(_IF_SHARED)):
            names = text[: match.start()]
            try:
                bucket_mb = number_from(match[1])
            except ValueError:
                raise InputError(
                    f"the bucket size after @ must be a number of MB, not {shown(match[1])}.",
                    field=f"policy {text}",
                ) from None
            bucket_bytes = _bucket_bytes(bucket_mb, f"bucket size of policy {text}")
            if names in PRESETS:
                preset = cls.parse(PRESETS[names])
                return replace(
                    preset, bucket_bytes=bucket_bytes, buckets_if_shared=if_shared, name=text
                )
        elif names in PRESETS:
            return replace(cls.parse(PRESETS[names]), name=text)
        parts = names.split("+")
        try:
            if not 2 <= len(parts) <= 3 or not all(parts):
                raise InputError(
                    f"unknown policy {shown(text)}.{did_you_mean(names, PRESETS)} Or write "
                    "placement+scheduler, such as lwf:1+ada-srsf, or placement+priority+admission."
                )
            placement, *rest = parts
            priority, admission = rest if len(rest) == 2 else _scheduler(rest[0])
            return cls(placement, priority, admission, bucket_bytes, if_shared, text)
        except HeadwayError as error:
            if correction := _correction(parts, text.removeprefix(names)):
                raise InputError(correction) from error
            raise

    def override(
        self,
        placement: PolicyLike | None = None,
        scheduler: str | None = None,
        priority: PolicyLike | None = None,
        admission: PolicyLike | None = None,
        bucket_mb: float | None = None,
    ) -> Self:
        """Return a copy with the given parts replaced; without any, the set itself.

        Args:
            placement: A placement policy: a name such as `lwf:1`, `file.py:function`, or the
                function itself.
            scheduler: A priority and an admission under one name, such as `ada-srsf` or `srsf:1`.
            priority: A priority policy; wins over the scheduler's.
            admission: An admission policy; wins over the scheduler's.
            bucket_mb: The most that one message carries (1 MB = 2**20 bytes); a larger all-reduce
                is a chain of messages, each admitted on its own, also where no other job is. 0
                sends an all-reduce whole.

        Raises:
            InputError: There is no such policy, or the bucket size is out of range.
        """
        changes: dict[str, Any] = {}
        if scheduler is not None:
            changes["priority"], changes["admission"] = _scheduler(scheduler)
        parts: dict[Kind, PolicyLike | None]
        parts = {"placement": placement, "priority": priority, "admission": admission}
        changes |= {kind: _name(kind, part) for kind, part in parts.items() if part is not None}
        if bucket_mb is not None:
            changes["bucket_bytes"] = _bucket_bytes(bucket_mb, "bucket_mb")
            changes["buckets_if_shared"] = False
        return replace(self, **changes, name="") if changes else self

    def with_files_at(self, paths: Mapping[str, str]) -> Self:
        """Return a copy whose users' files are at other paths; they are loaded on first use."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__getstate__())
        for kind in KINDS:
            path, in_file, policy = getattr(self, kind).partition(".py:")
            if in_file:
                copy.__dict__[kind] = f"{paths[path + '.py']}:{policy}"
        return copy

    @cached_property
    def choices(self) -> Choices:
        """The policies themselves."""
        return Choices(*(choose(kind, getattr(self, kind)) for kind in KINDS))

    def __str__(self) -> str:
        names = f"{self.placement}+{self.priority}+{self.admission}"
        if self.bucket_bytes is None:
            return names
        if_shared = _IF_SHARED if self.buckets_if_shared else ""
        return f"{names}@{_number(self.bucket_bytes / _BYTES_PER_MB)}{if_shared}"

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other) if isinstance(other, PolicySet) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the names alone: a user's file may be elsewhere where they are looked up next."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def _name(kind: Kind, given: PolicyLike) -> str:
    return given if isinstance(given, str) else registered(kind, given).name


def _scheduler(name: str) -> tuple[str, str]:
    """Return a scheduler's priority and admission."""
    if name.endswith(NEEDED_FIRST):
        priority, admission = _scheduler(name.removesuffix(NEEDED_FIRST))
        return priority, admission + NEEDED_FIRST
    if name in SCHEDULERS:
        return SCHEDULERS[name]
    if name.startswith("srsf:"):
        return "srsf", name
    if ".py:" in name:
        choose("admission", name)  # If something is wrong with it, that is the better answer.
        raise InputError(f"{shown(name)} is one policy, not a scheduler.")
    problem = f"unknown scheduler {shown(name)}."
    for kind in ("placement", "priority"):
        if name != "srsf" and name in [policy.name for policy in policies(kind)]:
            problem = f"{shown(name)} is a {kind} policy, not a scheduler."
    raise InputError(f"{problem}{did_you_mean(name, SCHEDULERS)}")


def _correction(parts: Sequence[str], ending: str) -> str:
    """Return which part of a set's text is in the wrong place, and the right text, if there is."""
    wanted = {1: ("set",), 2: ("placement", "scheduler"), 3: KINDS}.get(len(parts), ())
    if not wanted:
        return ""
    kinds = [_kinds(part) for part in parts]
    wrong = [index for index, kind in enumerate(wanted[: len(parts)]) if kind not in kinds[index]]
    for order in permutations((*KINDS, "scheduler"), len(parts)):
        alone = "scheduler" not in order or not {"priority", "admission"} & {*order}
        if wrong and alone and all(map(contains, kinds, order)):
            found = dict(zip(order, parts, strict=True))
            rest = [found.get("priority", "srsf"), found.get("admission", "ada-dual")]
            rest = [found["scheduler"]] if "scheduler" in found else rest
            is_what = " or ".join(_WORDS[kind] for kind in kinds[wrong[0]])
            return (
                f"{shown(parts[wrong[0]])} is {is_what}, not {_WORDS[wanted[wrong[0]]]}: write "
                f"{'+'.join([found.get('placement', 'lwf:1'), *rest])}{ending}."
            )
    return ""


_WORDS = {str(kind): name for kind, name in KIND_NAMES.items()}
_WORDS |= {"scheduler": "a scheduler", "set": "a set of policies"}


def _kinds(text: str) -> list[str]:
    """Return what a text names: policies of these kinds, or a scheduler."""
    found = []
    for kind in KINDS:
        with contextlib.suppress(HeadwayError):
            choose(kind, text)
            found.append(str(kind))
    with contextlib.suppress(HeadwayError):
        _, admission = _scheduler(text)
        choose("admission", admission)
        found.append("scheduler")
    return found


def _bucket_bytes(bucket_mb: float, field: str) -> int | None:
    least = 1 if bucket_mb > 0 else 0  # not so little that it is rounded to 0, which is whole
    return scaled(bucket_mb, _BYTES_PER_MB, field, least, MAX_BYTES, "MB") or None


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)
