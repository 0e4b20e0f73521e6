"""The whole experiment at a small scale: what it writes is complete and right."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import polars
import pytest

from cli.commands import headway
from headway import generate_workload, simulate
from headway.experiments.overlap.cases import OTHERS, POLICIES, cases
from headway.experiments.overlap.workloads import OVERLAPPED, changes
from headway.experiments.reproduction import runs

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs" / "explanation"
FIGURES = ("claims", "gains", "groups", "iterations", "buckets")
TABLES = (
    "verdicts",
    "verdicts-scheduling",
    "claims-16",
    "claims-32",
    "gains",
    "others",
    "by-class",
    "by-model",
    "iterations",
    "limits",
    "introduction",
    "buckets",
    "check",
    "seeds",
    "versions",
)
SMALL = {
    "recipe": "paper",
    "name": "paper",
    "jobs": 12,
    "span_s": 5,
    "iterations": [3, 12],
    "mix": {1: 3, 2: 2, 4: 3, 8: 3, 16: 1},
}


def rows_of(path: Path) -> list[list[str]]:
    """Return the rows of a Markdown table, without its header."""
    lines = path.read_text().split("\n\n")[1].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.slow
def test_the_experiment_end_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runs, "RECIPE", SMALL)
    monkeypatch.chdir(tmp_path)
    outcome = headway(capsys, "reproduce", "overlap", "--seeds", "2")
    assert outcome.status == 0, outcome.err
    folder = tmp_path / "overlap"
    printed = outcome.out.splitlines()
    assert printed[0].split() == [
        *["The", "paper's", "claims,", "on", "2", "seeds"],
        *["16", "GB,", "plain", "16", "GB,", "overlapped"],
    ]
    assert printed[-1] == "Report: overlap/report.html"
    assert len(printed) == 23

    written = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert {name for name in written if not name.startswith("runs/")} == {
        *(f"figures/{name}.{ending}" for name in FIGURES for ending in ("pdf", "svg")),
        *(f"tables/{name}.md" for name in TABLES),
        *("gpus.parquet", "jobs.parquet", "runs.parquet", "report.html"),
    }
    raw = polars.read_parquet(folder / "runs.parquet")
    assert len(raw) == 2 * len(cases())
    for row in rows_of(folder / "tables" / "check.md"):
        assert row[1] == "24 of 24"

    def sample(workload: str, policies: str, metric: str) -> np.ndarray:
        case = (POLICIES | OTHERS)[policies]
        found = raw.filter(
            polars.col("workload") == workload,
            polars.col("placement") == case.placement,
            polars.col("scheduler") == case.scheduler,
            polars.col("gpu_memory_gb") == 16,
        )
        assert found["seed"].to_list() == [0, 1]
        return found[metric].to_numpy()

    by_policy = {
        row[1]: row for row in rows_of(folder / "tables" / "gains.md") if row[0] == "16 GB"
    }
    assert list(by_policy) == list(POLICIES)
    by_other = {row[0]: row for row in rows_of(folder / "tables" / "others.md")}
    assert list(by_other) == list(OTHERS)
    for policies, row in by_policy.items():
        plain, overlapped = (sample(name, policies, "average_jct_s") for name in ("paper", "ddp"))
        assert float(row[5].split()[0]) == pytest.approx(
            overlapped.mean() / plain.mean(), abs=0.006
        )
        assert row[6] == f"{(overlapped < plain).sum()} of 2"
        spans = [sample(name, policies, "makespan_s").mean() for name in ("ddp", "paper")]
        assert float(row[7].split()[0]) == pytest.approx(spans[0] / spans[1], abs=0.006)
    for policies, row in by_other.items():
        plain, overlapped = (sample(name, policies, "average_jct_s") for name in ("paper", "ddp"))
        assert float(row[4].split()[0]) == pytest.approx(
            overlapped.mean() / plain.mean(), abs=0.006
        )
    (seed_0, _) = rows_of(folder / "tables" / "seeds.md")
    workload = changes()[OVERLAPPED](
        generate_workload(
            "paper",
            seed=0,
            jobs=12,
            span_s=5,
            iterations=(3, 12),
            mix=SMALL["mix"],  # type: ignore[arg-type]
        )
    )
    for cell, case in zip(seed_0[1:], POLICIES.values(), strict=True):
        summary = simulate(workload, "16x4", policy=case.policy, seed=0).summary
        assert cell.split(" / ")[1] == f"{summary.average_jct_s:,.1f}"


def test_the_page_has_every_table_and_figure() -> None:
    page = (DOCS / "overlap.md").read_text()
    included = re.findall(r'--8<-- "docs/explanation/overlap/([\w-]+)\.md"', page)
    assert sorted(included) == sorted(set(TABLES) - {"versions"})
    assert re.findall(r"\]\(overlap/(\w+)\.svg\)", page) == list(FIGURES)
    for name in FIGURES:
        assert (DOCS / "overlap" / f"{name}.svg").is_file()


@pytest.mark.slow
def test_the_page_shows_what_the_simulator_gives() -> None:
    """One workload is simulated again; `make overlap` writes all tables anew."""
    (seed, *cells), *others = rows_of(DOCS / "overlap" / "seeds.md")
    assert (seed, len(others)) == ("0", 19)
    plain = generate_workload("paper", seed=0)
    both = (plain, changes()[OVERLAPPED](plain))
    for cell, case in zip(cells, POLICIES.values(), strict=True):
        averages = [
            simulate(workload, "16x4", policy=case.policy, seed=0).summary.average_jct_s
            for workload in both
        ]
        assert cell == " / ".join(f"{average:,.1f}" for average in averages)
    columns = np.array(
        [
            [[float(part.replace(",", "")) for part in cell.split(" / ")] for cell in row[1:]]
            for row in rows_of(DOCS / "overlap" / "seeds.md")
        ]
    ).mean(axis=0)
    gains = [row for row in rows_of(DOCS / "overlap" / "gains.md") if row[0] == "16 GB"]
    for row, (plain_s, overlapped_s) in zip(gains, columns, strict=True):
        assert float(row[5].split()[0]) == pytest.approx(overlapped_s / plain_s, abs=0.006)
