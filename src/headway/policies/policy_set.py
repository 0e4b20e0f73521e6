"""Everything a run decides by, as one value: placement, priority, admission and bucket size."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

from headway.domain.errors import HeadwayError, InputError, did_you_mean, shown
from headway.domain.limits import MAX_BYTES, number_from, scaled
from headway.policies.registry import NEEDED_FIRST, Choice, Kind, choose, registered

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
    "headway": "least-delay+srtf+ada-dual/needed-first@50",
}
"""The paper's own combination, and the best we know."""

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
        all-reduces in buckets of 25 MB (1 MB = 2**20 bytes); `@0` sends them whole.

        Raises:
            InputError: The text names no policies.
        """
        names, bucket_bytes = text, None
        if match := re.search(r"@([^@+:/]*)$", text):
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
                return replace(cls.parse(PRESETS[names]), bucket_bytes=bucket_bytes, name=text)
        elif names in PRESETS:
            return replace(cls.parse(PRESETS[names]), name=text)
        parts = names.split("+")
        if not 2 <= len(parts) <= 3 or not all(parts):
            raise InputError(
                f"unknown policy {shown(text)}.{did_you_mean(names, PRESETS)} Or write "
                "placement+scheduler, such as lwf:1+ada-srsf, or placement+priority+admission."
            )
        placement, *rest = parts
        priority, admission = rest if len(rest) == 2 else _scheduler(rest[0], placement)
        return cls(placement, priority, admission, bucket_bytes, text)

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
                is a chain of messages, each admitted on its own. 0 sends an all-reduce whole.

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
        return f"{names}@{_number(self.bucket_bytes / _BYTES_PER_MB)}"

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other) if isinstance(other, PolicySet) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the names alone: a user's file may be elsewhere where they are looked up next."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def _name(kind: Kind, given: PolicyLike) -> str:
    return given if isinstance(given, str) else registered(kind, given).name


def _scheduler(name: str, placement: str | None = None) -> tuple[str, str]:
    """Return a scheduler's priority and admission; it may be part of a text, after a placement."""
    if name.endswith(NEEDED_FIRST):
        priority, admission = _scheduler(name.removesuffix(NEEDED_FIRST), placement)
        return priority, admission + NEEDED_FIRST
    if name in SCHEDULERS:
        return SCHEDULERS[name]
    if name.startswith("srsf:"):
        return "srsf", name
    kinds = [] if name == "srsf" else _kinds(name)
    if not kinds:
        raise InputError(f"unknown scheduler {shown(name)}.{did_you_mean(name, SCHEDULERS)}")
    articles = {"placement": "a placement", "priority": "a priority", "admission": "an admission"}
    named = " or ".join(articles[kind] for kind in kinds)
    problem = f"{shown(name)} is {named} policy, not a scheduler."
    whole = {"priority": f"{placement}+{name}+ada-dual", "admission": f"{placement}+srsf+{name}"}
    right = [whole[kind] for kind in kinds if kind in whole and placement is not None]
    advice = f" Write {' or '.join(right)}." if right else did_you_mean(name, SCHEDULERS)
    raise InputError(f"{problem}{advice}")


def _kinds(name: str) -> list[Kind]:
    """Return the kinds of policy that a name stands for; a plain function may be of two."""
    found: list[Kind] = []
    for kind in KINDS:
        try:
            choose(kind, name)
        except HeadwayError:
            continue
        found.append(kind)
    if ".py:" in name and not found:
        choose("admission", name)  # It says what is wrong with the file.
    return found


def _bucket_bytes(bucket_mb: float, field: str) -> int | None:
    least = 1 if bucket_mb > 0 else 0  # not so little that it is rounded to 0, which is whole
    return scaled(bucket_mb, _BYTES_PER_MB, field, least, MAX_BYTES, "MB") or None


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)
