"""The blocks of the documentation run as they stand, and print what the pages show."""

from __future__ import annotations

from pathlib import Path

import pytest

from pages import check_page

ROOT = Path(__file__).parent.parent
EXAMPLES = f"cp -r {ROOT / 'examples'} ."
SITE = f"""{EXAMPLES}; cp examples/mixed-cluster.toml site.toml
seed=0
for day in monday tuesday wednesday; do
  headway workload generate --preset paper --seed $((seed += 1)) -o $day.csv
done"""
SACCT = f"cp {ROOT / 'tests/data/traces/sacct/october.txt'} ."
PAPER = "headway workload generate --preset paper --seed 0 -o jobs.csv"
PAGES = {
    "README.md": (EXAMPLES, 1),
    "docs/index.md": ("", 1),
    "docs/tutorial/first-simulation.md": ("", 5),
    "docs/tutorial/own-policy.md": (PAPER, 4),
    "docs/tutorial/two-jobs.md": ("", 2),
    "docs/tutorial/your-trace.md": (EXAMPLES, 11),
    "docs/tutorial/todays-training.md": (EXAMPLES, 9),
    "docs/explanation/sampling.md": ("", 1),
    "docs/how-to/compare.md": (f"{SITE}; cp examples/my_policies.py .", 1),
    "docs/how-to/predict-a-large-model.md": ("", 2),
    "docs/how-to/sweep.md": ("", 1),
    "docs/how-to/explain.md": ("", 1),
    "docs/how-to/network-from-link.md": (PAPER, 3),
    "docs/how-to/slurm-history.md": (SACCT, 1),
    "docs/how-to/astra-sim.md": (EXAMPLES, 4),
}


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_print_what_it_shows(page: str, tmp_path: Path) -> None:
    setup, least = PAGES[page]
    assert check_page(ROOT / page, tmp_path, setup) >= least
