"""The whole evaluation, once at full size; what it writes is right, complete and repeatable."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import polars
import pytest

from cli.commands import headway
from experiments.sweeps import finished
from headway.experiments.reproduction import FULL_SEEDS, Reproduction, paper, reproduce
from headway.experiments.reproduction.runs import run_cases
from headway.experiments.statistics import student_t
from headway.experiments.sweep.store import LOG
from waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
FIGURES = (
    "claims",
    "placement",
    "kappa",
    "scheduling",
    "classes",
    "contention",
    "introduction",
)

TABLES = (
    "claims",
    "rules",
    "placement",
    "placement-32",
    "placement-differences",
    "kappa",
    "kappa-differences",
    "scheduling",
    "scheduling-32",
    "scheduling-differences",
    "classes",
    "introduction",
    "settings",
    "spread",
    "parameters",
    "models",
    "versions",
)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Reproduction:
    """Make the full run once for all processes that run these tests; each writes its own report."""
    common = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        common = common.parent
    count = len(FULL_SEEDS) * len(paper.cases())
    with open(common / "reproduction.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        runs = common / "reproduction"
        run_cases(runs, FULL_SEEDS, 2)
    folder = tmp_path_factory.mktemp("reproduction")
    shutil.copytree(runs, folder / "runs")
    counts: list[int] = []
    made = reproduce(folder, FULL_SEEDS, 2, lambda *both: counts.extend(both), pytest.fail)
    assert counts == [count, count]
    return made


@pytest.fixture
def quick(full: Reproduction, tmp_path: Path) -> Path:
    """Return a folder with the finished runs of the full evaluation."""
    shutil.copytree(full.report.parent / "runs", tmp_path / "quick" / "runs")
    return tmp_path / "quick"


def written(folder: Path) -> dict[str, bytes]:
    """Return everything a reproduction writes but the stored runs, which hold timings."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "runs" not in path.relative_to(folder).parts[:-1]
    }


def table(folder: Path, name: str) -> list[list[str]]:
    """Return the rows of a table, without its header."""
    lines = (folder / "tables" / f"{name}.md").read_text().split("\n\n")[1].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_file_is_written(full: Reproduction) -> None:
    figures = [f"figures/{name}.{ending}" for name in FIGURES for ending in ("pdf", "svg")]
    tables = [f"tables/{name}.md" for name in TABLES]
    frames = ["gpus.parquet", "jobs.parquet", "runs.parquet"]
    everything = [*figures, *tables, *frames, "report.html"]
    assert sorted(written(full.report.parent)) == sorted(everything)


def figures_of(folder: Path) -> dict[tuple[str, str, int, str], np.ndarray]:
    """Return (GPU utilization, average, median, 95th percentile JCT) of every seed of every case.

    From the jobs alone, with nothing of the code that makes the tables.
    """
    seconds = {
        "vgg16": 0.0358 + 0.0537,
        "resnet50": 0.0250 + 0.0374,
        "inception-v3": 0.0349 + 0.0524,
        "lstm-ptb": 0.0315 + 0.0473,
    }
    found: dict[tuple[str, str, int, str], list[list[float]]] = {}
    keys = ["placement", "scheduler", "gpu_memory_gb", "network", "seed"]
    jobs = polars.read_parquet(folder / "jobs.parquet")
    for (*case, _), run in jobs.group_by(keys, maintain_order=True):
        assert len(run) == 160
        rows = run.to_dicts()
        jct = sorted((row["finish_ns"] - row["arrival_ns"]) / 1e9 for row in rows)
        last, first = max(row["finish_ns"] for row in rows), min(row["arrival_ns"] for row in rows)
        busy = sum(row["iterations"] * seconds[row["model"]] * len(row["gpus"]) for row in rows)
        rank = 0.95 * 159
        p95 = jct[int(rank)] + (rank - int(rank)) * (jct[int(rank) + 1] - jct[int(rank)])
        use = busy / 64 / ((last - first) / 1e9)
        figures = [100 * use, sum(jct) / 160, (jct[79] + jct[80]) / 2, p95]
        found.setdefault(tuple(case), []).append(figures)
    return {case: np.array(figures) for case, figures in found.items()}


def number(cell: str) -> tuple[float, float]:
    """Return the figure and the margin of a cell such as `1,234 ± 56` or `7.01 ± 0.2%`."""
    value, _, margin = cell.replace(",", "").replace("%", "").replace("−", "-").partition(" ± ")
    return float(value), float(margin or 0)


def test_the_tables_agree_with_the_raw_results(full: Reproduction) -> None:
    folder = full.report.parent
    raw = figures_of(folder)
    assert len(raw) == len(paper.cases())
    for name, cases, memory in (
        ("placement", paper.PLACEMENTS, 16),
        ("placement-32", paper.PLACEMENTS, 32),
        ("scheduling", paper.SCHEDULERS, 16),
        ("scheduling-32", paper.SCHEDULERS, 32),
        ("kappa", paper.KAPPAS, 16),
    ):
        rows = table(folder, name)
        named = [row for row in rows if row[0]]
        assert [row[0] for row in named] == list(cases)
        for place, case in enumerate(cases.values()):
            samples = raw[case.placement, case.scheduler, memory, "10gbe"]
            assert len(samples) == 20
            means = samples.mean(axis=0)
            margins = student_t(19) * samples.std(axis=0, ddof=1) / np.sqrt(20)
            ours = rows[3 * place + 1][2:] if len(rows) > len(named) else rows[place][1:]
            for cell, mean, margin in zip(ours, means, margins, strict=True):
                shown, shown_margin = number(cell)
                precision = 0.00501 if "%" in cell else 0.501
                assert shown == pytest.approx(mean, abs=precision)
                assert shown_margin == pytest.approx(margin, abs=precision)
            if len(rows) > len(named):
                published = [number(cell)[0] for cell in rows[3 * place][2:]]
                ratios = [number(cell)[0] for cell in rows[3 * place + 2][2:]]
                assert ratios == pytest.approx(means / published, abs=0.006)
    for row in table(folder, "settings"):
        names = {
            **{f"{name} + Ada-SRSF": case for name, case in paper.PLACEMENTS.items()},
            **{f"LWF-1 + {name}": case for name, case in paper.SCHEDULERS.items()},
        }
        case = names[row[0]]
        settings = [(m, n) for n in ("10gbe", "no-contention") for m in (16, 32)]
        for cell, (memory, network) in zip(row[2:], settings, strict=True):
            if cell:
                samples = raw[case.placement, case.scheduler, memory, network][:, 1]
                assert number(cell)[0] == pytest.approx(samples.mean(), abs=0.501)


def test_paired_differences_agree_with_the_raw_results(full: Reproduction) -> None:
    folder = full.report.parent
    raw = figures_of(folder)
    cases = {**paper.PLACEMENTS, **paper.KAPPAS, **paper.SCHEDULERS}
    rows = [
        row
        for name in ("placement", "kappa", "scheduling")
        for row in table(folder, f"{name}-differences")
    ]
    assert len(rows) == 6 + 5 + 6
    for name, difference, interval, lower, _ in rows:
        one, other = (
            raw[cases[part].placement, cases[part].scheduler, 16, "10gbe"][:, 1]
            for part in name.split(" − ")
        )
        by_seed = one - other
        margin = student_t(19) * by_seed.std(ddof=1) / np.sqrt(20)
        ends = [number(end)[0] for end in interval.split(" to ")]
        assert number(difference)[0] == pytest.approx(by_seed.mean(), abs=0.501)
        assert ends == pytest.approx([by_seed.mean() - margin, by_seed.mean() + margin], abs=0.501)
        assert lower == f"{(by_seed < 0).sum()} of 20"


def test_the_table_of_waits_and_servers_agrees_with_the_raw_results(full: Reproduction) -> None:
    folder = full.report.parent
    jobs = polars.read_parquet(folder / "jobs.parquet").to_dicts()
    rows = table(folder, "spread")
    assert len(rows) == 14
    for policies, memory, queued, wait, *servers in rows:
        placement, scheduler = (name.strip() for name in policies.split("+"))
        case = {**paper.PLACEMENTS, **paper.SCHEDULERS}[
            placement if scheduler == "Ada-SRSF" else scheduler
        ]
        chosen = [
            job
            for job in jobs
            if (job["placement"], job["scheduler"]) == (case.placement, case.scheduler)
            and (f"{job['gpu_memory_gb']} GB", job["network"]) == (memory, "10gbe")
        ]
        waits = [(job["start_ns"] - job["arrival_ns"]) / 1e9 for job in chosen]
        assert queued == f"{sum(time > 0 for time in waits) / len(waits):.1%}"
        assert wait == f"{sum(waits) / len(waits):,.1f}"
        for size, cell in zip((4, 8, 16), servers, strict=True):
            used = [
                len({g // 4 for g in job["gpus"]}) for job in chosen if len(job["gpus"]) == size
            ]
            assert cell == f"{sum(used) / len(used):.2f}"


class Page(HTMLParser):
    """Collects what a page refers to, and the pictures inside."""

    def __init__(self) -> None:
        super().__init__()
        self.references: list[str] = []
        self.tags: set[str] = set()
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name in ("href", "src", "xlink:href", "srcset", "data", "action", "poster"):
                self.references.append(value or "")
            if name == "id":
                self.ids.append(value or "")


def test_the_report_has_every_figure_and_is_self_contained(full: Reproduction) -> None:
    text = full.report.read_text()
    page = Page()
    page.feed(text)
    pictures = re.findall(r'<figure id="figure-(\w+)">\s*(<svg.*?</svg>)', text, re.DOTALL)
    assert [name for name, _ in pictures] == list(FIGURES)
    for _, svg in pictures:
        root = ElementTree.fromstring(svg)
        assert len(list(root.iter("{http://www.w3.org/2000/svg}path"))) > 20
    assert all(reference.startswith("#") for reference in page.references)
    assert {reference[1:] for reference in page.references} <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    assert not page.tags & {"script", "link", "iframe", "img", "object", "embed", "base"}
    assert not re.search(r"url\((?!#)|@import", text)
    # What is left of addresses are the names of XML's vocabularies.
    addresses = set(re.findall(r"https?://[^\s\"'<>)]+", text))
    assert addresses == {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}


def test_the_report_states_command_versions_seeds_and_parameters(full: Reproduction) -> None:
    text = full.report.read_text()
    for expected in ("headway reproduce --seeds 0:19", "numba", "polars", "matplotlib", "0:19"):
        assert expected in text
    assert "a 669,000 ns, b 0.853 ns/byte, eta 0.235 ns/byte" in text
    assert platform_version() in text


def platform_version() -> str:
    return ".".join(str(part) for part in sys.version_info[:3])


def test_the_report_says_how_far_times_are_from_the_published_ones(full: Reproduction) -> None:
    rows = table(full.report.parent, "placement") + table(full.report.parent, "scheduling")
    ratios = [float(row[3]) for row in rows if row[1] == "ratio"]
    least, most = round(min(ratios), 1), round(max(ratios), 1)
    text = full.report.read_text()
    assert f"average completion times are {least} to {most} times the published ones" in text
    assert "docs/reproduction.md" in text
    assert (Path(__file__).parents[3] / "docs" / "reproduction.md").exists()


def test_the_report_shows_the_verdicts_of_the_findings(full: Reproduction) -> None:
    rows = {row[0]: row for row in table(full.report.parent, "claims")}
    assert len(rows) == len(full.findings["16 GB"]) == 21
    for finding in full.findings["16 GB"]:
        assert rows[finding.claim][2:5] == [finding.published, finding.ours, finding.verdict]
    for finding in full.findings["32 GB"]:
        assert rows[finding.claim][5:] == [finding.ours, finding.verdict]


@pytest.mark.parametrize("name", FIGURES)
def test_figures_have_units_on_their_axes(full: Reproduction, name: str) -> None:
    folder = full.report.parent / "figures"
    svg = (folder / f"{name}.svg").read_text()
    ElementTree.fromstring(svg)
    texts = [text.strip() for text in re.findall(r"<!--(.*?)-->", svg, re.DOTALL)]
    if name == "claims":
        assert "Ratio of the two means (1: no difference)" in texts
    else:
        assert [text for text in texts if re.search(r"\[(s|ms|%|MB)\]", text)]
    assert (folder / f"{name}.pdf").read_bytes().startswith(b"%PDF")


def test_the_same_runs_give_the_same_bits(full: Reproduction, quick: Path) -> None:
    reproduce(quick, FULL_SEEDS, 1, None, None)
    assert written(quick) == written(full.report.parent)


def test_an_interrupted_reproduction_continues_and_gives_the_same_bits(
    full: Reproduction, quick: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = headway(capsys, "reproduce", "--seeds", "0:1", "-o", str(quick))
    assert whole.status == 0

    folder = tmp_path / "interrupted"
    command = [sys.executable, "-m", "headway", "reproduce", "--seeds", "0:1", "-o", str(folder)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    runs = folder / "runs"
    eventually(lambda: (runs / LOG).exists() and len(finished(runs)) >= 5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert out == ""
    keys = set(finished(runs))
    count = len(keys)
    assert 5 <= count < 54
    assert f"Finished runs are kept in {runs}; repeat the command to continue." in err
    assert "Traceback" not in err
    for rows in ("jobs", "gpus"):
        names = {path.name for path in (runs / rows).iterdir()}
        assert {f"{key}.parquet" for key in keys} <= names
        assert not [name for name in names if name.startswith(".")]
    assert {path.name for path in runs.iterdir()} == {LOG, ".lock", "jobs", "gpus"}
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert not [path for path in files if not path.is_relative_to(runs)]

    again = headway(capsys, "reproduce", "--seeds", "0:1", "-o", str(folder))
    assert again.status == 0
    assert f"{count} of 54 runs are already done, in {runs}." in again.err
    assert written(folder) == written(quick)


def test_the_demo_prints_what_the_documentation_shows(
    quick: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = headway(capsys, "reproduce", "--quick", "-o", str(quick))
    assert outcome.status == 0
    page = (ROOT / "docs" / "reproduction.md").read_text()
    shown = re.findall(r"```text\n(The paper's claims.*?)```", page, re.DOTALL)[0]
    printed = [line.rstrip() for line in outcome.out.splitlines()]
    assert printed[: len(shown.splitlines())] == [line.rstrip() for line in shown.splitlines()]
    assert printed[-1] == f"Report: {quick / 'report.html'}"
    assert (quick / "report.html").is_file()


def test_the_documentation_shows_the_tables_of_the_full_run(full: Reproduction) -> None:
    """`make reproduction` writes them anew."""
    shown = ROOT / "docs" / "reproduction"
    for name in TABLES:
        if name != "versions":
            made = (full.report.parent / "tables" / f"{name}.md").read_text()
            assert (shown / f"{name}.md").read_text() == made, name
    page = (ROOT / "docs" / "reproduction.md").read_text()
    included = re.findall(r'--8<-- "docs/reproduction/([\w-]+)\.md"', page)
    assert sorted(included) == sorted(set(TABLES) - {"versions"})
    assert {f"{name}.svg" for name in FIGURES} <= {path.name for path in shown.iterdir()}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--seeds", "1"], "--seeds: must be at least 2, not 1."),
        (["--seeds", "0"], "--seeds: must be at least 2, not 0."),
        (["--seeds", "5:5"], "--seeds: must be at least 2 of them, not 1."),
        (["--seeds", "9:5"], "--seeds: must be at least 2 of them, not -3."),
        (["--seeds", "0:99999999"], "--seeds: must be at most 1,000 of them, not 100000000."),
        (["--seeds", "1,1"], "--seeds: must not be repeated: '1,1'."),
        (["--seeds", "-1,1"], "--seeds: must be at least 0, not -1."),
        (
            ["--seeds", "many"],
            "--seeds: must be a count (20), a range (5:24) or a list (3,7,11), not 'many'.",
        ),
        (
            ["--seeds", "1:2:3"],
            "--seeds: must be a count (20), a range (5:24) or a list (3,7,11), not '1:2:3'.",
        ),
        (["--quick", "--seeds", "5"], "--quick and --seeds cannot be combined."),
        (["--threads", "0"], "--threads: must be at least 1, not 0."),
        (["-o", "taken"], "taken: File exists."),
        (["-o", ""], "--output: must name a folder, not ''."),
        (["-o", "-"], "--output: must name a folder, not '-'."),
        (["-o", "taken/below"], "taken/below: Not a directory."),
    ],
)
def test_bad_arguments_get_one_clear_line(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    problem: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("taken").write_text("something")
    outcome = headway(capsys, "reproduce", *arguments)
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err == f"headway: error: {problem}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
    assert Path("taken").read_text() == "something"


@pytest.mark.parametrize("name", ["runs", "figures", "tables", "report.html"])
def test_a_file_in_the_way_is_reported_before_any_run(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if name == "report.html":
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).write_text("something")
    outcome = headway(capsys, "reproduce", "-o", str(tmp_path))
    assert outcome.status == 2
    assert outcome.err.startswith(f"headway: error: {tmp_path / name}: ")
    assert len(outcome.err.splitlines()) == 1
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_folder_may_have_any_name(full: Reproduction, quick: Path) -> None:
    odd = quick.parent / "[a-z]*?"
    quick.rename(odd)
    made = reproduce(odd, FULL_SEEDS[:2], 1, None, pytest.fail)
    assert made.report.is_file()


def test_seeds_may_be_a_list(quick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outcome = headway(capsys, "reproduce", "--seeds", "11,3,7", "-o", str(quick))
    assert outcome.status == 0
    assert "81 of 81 runs are already done" in outcome.err
    runs = polars.read_parquet(quick / "runs.parquet")
    assert sorted(set(runs["seed"])) == [3, 7, 11]
    assert "headway reproduce --seeds 11,3,7" in (quick / "report.html").read_text()
