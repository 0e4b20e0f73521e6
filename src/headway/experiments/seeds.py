"""Seeds of workloads as text: how `--seeds` reads them and reports show them."""

from __future__ import annotations

from collections.abc import Sequence

from headway.domain.errors import InputError, shown
from headway.domain.limits import whole, whole_from

FEWEST_SEEDS, MAX_SEEDS = 2, 1000


def parse_seeds(text: str, fewest: int = FEWEST_SEEDS) -> tuple[int, ...]:
    """Return the seeds that a text names: `20`, `5:24` or `3,7,11`."""
    try:
        if "," in text:
            seeds = [whole_from(part.strip()) for part in text.split(",")]
        elif ":" in text:
            first, last = (whole_from(part.strip()) for part in text.split(":"))
            whole(last - first + 1, "seeds", fewest, MAX_SEEDS, " of them")
            seeds = list(range(first, last + 1))
        else:
            seeds = list(range(whole(whole_from(text.strip()), "seeds", fewest, MAX_SEEDS)))
    except ValueError as error:
        raise InputError(
            f"must be a count (20), a range (5:24) or a list (3,7,11), not {shown(text)}.",
            field="seeds",
        ) from error
    whole(len(seeds), "seeds", fewest, MAX_SEEDS, " of them")
    for seed in seeds:
        whole(seed, "seeds", 0, 2**63 - 1)
    if len(set(seeds)) < len(seeds):
        raise InputError(f"must not be repeated: {shown(text)}.", field="seeds")
    return tuple(seeds)


def seeds_text(seeds: Sequence[int]) -> str:
    """Return seeds as `--seeds` reads them: a range if they are consecutive, else a list."""
    first, last = seeds[0], seeds[-1]
    if list(seeds) == list(range(first, last + 1)):
        return f"{first}:{last}"
    return ",".join(str(seed) for seed in seeds)
