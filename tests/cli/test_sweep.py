"""`headway sweep` on the command line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cli.commands import headway
from headway.experiments.sweep.specification import read_sweep
from headway.experiments.sweep.store import RunStore

ROWS = "a,0,4,8,resnet50\nb,0.1,2,6,vgg16\nc,0.3,3,6,lstm-ptb\n"
GOOD = """\
seeds = "0:2"
workloads = [
    "a.csv",  # one, two, three jobs
    { name = "drawn", recipe = "paper", jobs = 4, iterations = [2, 9], mix = { 2 = 1 } },
]
clusters = ["3x2", "2x4"]
policies = ["paper", "ff+srsf:1"]
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("job_id,arrival_s,gpus,iterations,model\n" + ROWS)
    Path("good.toml").write_text(GOOD)


def test_a_sweep_prints_tables_and_the_path_of_the_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    outcome = headway(capsys, "sweep", "good.toml", "-j", "2")
    assert outcome.status == 0
    assert outcome.out.startswith("16 runs; means over 3 seeds with 95% intervals\n")
    for title in ("Average JCT [s]", "GPU utilization", "Average JCT, ratio to paper"):
        assert f"\n{title}\n" in outcome.out
    assert re.search(r"^a\.csv +ff\+srsf:1 +[\d.]+ +[\d.]+$", outcome.out, re.M)
    row = r"^drawn +ff\+srsf:1( +[\d.]+  \[[\d.-]+, [\d.]+\]){2}$"
    assert re.search(row, outcome.out, re.M)
    assert outcome.out.endswith("\nThe runs: good/runs.parquet\n")
    assert re.fullmatch(r"16 runs in [\d.]+ s \([\d.]+ per second\)\.\n", outcome.err)


def test_intervals_of_single_sampled_runs_are_explained(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.engine.run._FEW_TASKS", 0)
    monkeypatch.setattr("headway.engine.run._sampling_pays", lambda _: True)
    headway(capsys, "workload", "generate", "--jobs", "24", "--iterations", "3000:9000", "-o", "c")
    Path("s.toml").write_text(
        'workloads = ["c"]\npolicies = ["paper", "headway"]\nclusters = "4x4"\naccuracy = "1%"\n'
    )
    about = (
        "95% intervals of single runs cover the error of sampling only; another workload may "
        "reverse the order"
    )
    outcome = headway(capsys, "sweep", "s.toml", "-j", "1")
    assert outcome.out.startswith(f"2 runs\n{about}.\n\n")
    assert re.search(r"^headway +[\d,.]+ ± [\d.]+ .* \[[\d.]+, [\d.]+\]$", outcome.out, re.M)
    headway(capsys, "report", "s", "-o", "s.html")
    page = Path("s.html").read_text()
    assert about in page
    assert "means over" not in page
    assert "the two policies differ" not in page
    drawn = """{ recipe = "paper", jobs = 4, iterations = [2, 9], mix = { 2 = 1 }, seeds = 2 }"""
    Path("s.toml").write_text(Path("s.toml").read_text().replace('"c"', f'"c", {drawn}'))
    outcome = headway(capsys, "sweep", "s.toml", "-j", "1")
    assert outcome.out.startswith(f"6 runs; means over 2 seeds with 95% intervals\n{about}.\n\n")
    headway(capsys, "report", "s", "-o", "s.html")
    assert "the two policies differ" not in Path("s.html").read_text()
    assert headway(capsys, "sweep", "good.toml", "-j", "2").status == 0
    assert about not in headway(capsys, "sweep", "good.toml", "--show").out


def test_finished_runs_can_be_shown_by_file_or_folder(capsys: pytest.CaptureFixture[str]) -> None:
    headway(capsys, "sweep", "good.toml", "-o", "out")
    options = ["--rows", "policy", "--columns", "workload", "--value", "makespan_s"]
    options += ["--baseline", "ff+srsf:1"]
    shown = headway(capsys, "sweep", "--show", "out", *options)
    assert shown.status == 0
    assert "16 runs; means over 3 seeds × 2 clusters with 95% intervals" in shown.out
    assert "Makespan, ratio to ff+srsf:1" in shown.out
    assert headway(capsys, "sweep", "--show", "good.toml", "-o", "out", *options).out == shown.out


def test_showing_needs_no_lock(capsys: pytest.CaptureFixture[str]) -> None:
    headway(capsys, "sweep", "good.toml")
    with RunStore(Path("good")):
        assert headway(capsys, "sweep", "--show", "good.toml").status == 0
        outcome = headway(capsys, "sweep", "good.toml")
    assert outcome.status == 2
    assert outcome.err == (
        f"headway: error: good: is in use by process {os.getpid()}; wait for it, or give another "
        "folder with --output.\n"
    )


def test_a_report_is_drawn_from_the_folder(capsys: pytest.CaptureFixture[str]) -> None:
    headway(capsys, "sweep", "good.toml")
    assert headway(capsys, "report", "good").err == "Written: good/report.html\n"
    page = Path("good/report.html").read_text()
    headlines = re.findall(r"<h2[^>]*>(.*?)</h2>", page)
    assert headlines[:3] == [
        "All workloads: means over 2 workloads × 3 seeds",
        "Workload a.csv",
        "Workload drawn",
    ]
    assert "Energy [kWh]" in page
    assert headway(capsys, "report", "good", "-o", "page.html").status == 0
    assert Path("page.html").read_bytes() == Path("good/report.html").read_bytes()
    words = ["report", "good", "-o", "page.html", "--rows", "policy", "--columns", "workload"]
    assert headway(capsys, *words).status == 0
    page = Path("page.html").read_text()
    assert re.findall(r"<h2[^>]*>(.*?)</h2>", page) == ["Figures", "How this was made"]
    assert '<th scope="col" class="figure">drawn</th>' in page


def test_failed_runs_are_listed_and_the_exit_status_is_1(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("good.toml").write_text(GOOD.replace('"2x4"', '"1x2"'))
    outcome = headway(capsys, "sweep", "good.toml")
    assert outcome.status == 1
    assert outcome.err.endswith(
        "2 runs failed:\n"
        "  a.csv, line 2, column 3 (gpus): 4 GPUs, but the cluster has 2 in all.\n"
        "    (workload a.csv, seed 0, cluster 1x2, network 10gbe, policy paper, and 1 more)\n"
    )
    assert outcome.out.startswith("14 runs, of 16; means over")


def test_paths_are_relative_to_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path("sub")
    folder.mkdir()
    (folder / "b.csv").write_text(Path("a.csv").read_text())
    (folder / "site.toml").write_text("[cluster]\nservers = 3\ngpus_per_server = 2\n")
    (folder / "own.py").write_text("def first(cluster, job, candidates, parameter): return True\n")
    (folder / "s.toml").write_text(
        'workloads = "b.csv"\nclusters = "site.toml"\n'
        'policies = ["ff+srsf:1", "own.py:first+srsf:1"]\n'
    )
    outcome = headway(capsys, "sweep", "sub/s.toml")
    assert outcome.status == 0, outcome.err
    assert "own.py:first+srsf:1" in outcome.out
    assert Path("s/runs.parquet").is_file()


def test_workloads_can_be_arrays_of_tables() -> None:
    Path("t.toml").write_text(
        'policies = "paper"\nseeds = [7]\n'
        '[[workloads]]\nfile = "a.csv"\nseeds = "0:3"\n'
        '[[workloads]]\nrecipe = "paper"\n'
    )
    sweep = read_sweep("t.toml")
    assert [entry.value.seeds for entry in sweep.workloads] == [(0, 1, 2, 3), (7,)]
    assert sweep.size == 5


TWO = 'workloads = "a.csv"\npolicies = ["paper", "ff+srsf:1"]\n'
BAD = {
    "not TOML": ("a = [1,\nb = 2\n", "s.toml, line 2, column 1: not TOML: Invalid value."),
    "an unknown key": (
        TWO + 'cluster = "3x2"\n',
        "s.toml, line 3, column 1 (cluster): unknown key. Did you mean 'clusters'?",
    ),
    "no policies": ('workloads = "paper"\n', "s.toml: 'policies' is missing."),
    "no workloads": ('policies = "paper"\n', "s.toml: 'workloads' is missing."),
    "an empty list": (TWO + "clusters = []\n", "s.toml, line 3, column 1 (clusters): must not be"),
    "a number for text": (
        TWO + "clusters = [16]\n",
        "s.toml, line 3, column 13 (clusters): must be a string, not 16.",
    ),
    "a bad shape": (
        TWO + 'clusters = [\n    "16x4",\n    "16-4",\n]\n',
        "s.toml, line 5, column 6 (clusters): must look like 16x4 (servers x GPUs per server) or "
        "be the path of a .toml file, not '16-4'.",
    ),
    "a misspelt network": (
        TWO + 'networks = ["10gbe", "10gb"]\n',
        "s.toml, line 3, column 23 (networks): unknown network '10gb', and not the path of a .toml "
        "file. Did you mean '10gbe'?",
    ),
    "a misspelt policy": (
        'workloads = "a.csv"\npolicies = ["paper", "papers"]\n',
        "s.toml, line 2, column 23 (policies): unknown policy 'papers'. Did you mean 'paper'?",
    ),
    "a policy twice": (
        'workloads = "a.csv"\npolicies = ["paper", "paper"]\n',
        "s.toml, line 2, column 23 (policies): duplicate 'paper'.",
    ),
    "a misspelt placement": (
        TWO + 'placement = ["ff", "fff"]\n',
        "s.toml, line 3, column 21 (placement): unknown placement policy 'fff'. Did you mean 'ff'?",
    ),
    "a misspelt scheduler": (
        TWO + 'scheduler = "srsf"\n',
        "s.toml, line 3, column 14 (scheduler): unknown scheduler 'srsf'. Did you mean 'srsf:",
    ),
    "a negative bucket": (
        TWO + "bucket_mb = [25, -1]\n",
        "s.toml, line 3, column 18 (bucket_mb): must be 0 or more MB, not -1.",
    ),
    "text for a number": (
        TWO + 'bucket_mb = "25"\n',
        "s.toml, line 3, column 1 (bucket_mb): must be a number or a list of numbers, not '25'.",
    ),
    "no memory": (
        TWO + "gpu_memory_gb = 0\n",
        "s.toml, line 3, column 17 (gpu_memory_gb): must be at least 0.000977 GB, not 0.",
    ),
    "bad seeds": (
        TWO + 'seeds = "0-20"\n',
        "s.toml, line 3, column 1 (seeds): must be a count (20), a range (5:24) or a list "
        "(3,7,11), not '0-20'.",
    ),
    "seeds that are no numbers": (
        TWO + 'seeds = ["a"]\n',
        "s.toml, line 3, column 11 (seeds): must be a whole number, not 'a'.",
    ),
    "seeds that are true": (
        TWO + "seeds = true\n",
        "s.toml, line 3, column 1 (seeds): must be a count (20), a range ('5:24') or a list "
        "([3, 7]), not True.",
    ),
    "a mix that is no table": (
        'policies = "paper"\nworkloads = { recipe = "paper", mix = { x = 1 } }\n',
        "s.toml, line 2, column 33 (mix): must be a table such as { 1 = 80, 8 = 30 }, not {'x'",
    ),
    "an unknown key of a workload": (
        'policies = "paper"\nworkloads = [\n  "a.csv",\n  { recipe = "paper", job = 4 },\n]\n',
        "s.toml, line 4, column 23 (job): unknown key. Did you mean 'jobs'?",
    ),
    "a file with a recipe's key": (
        'policies = "paper"\n[[workloads]]\nrecipe = "paper"\n[[workloads]]\nfile = "a.csv"\n'
        "jobs = 4\n",
        "s.toml, line 6, column 1 (jobs): is for a recipe, not for a file.",
    ),
    "a recipe that is none": (
        'policies = "paper"\nworkloads = { recipe = "papers" }\n',
        "s.toml, line 2, column 15 (recipe): unknown preset 'papers'. Did you mean 'paper'?",
    ),
    "iterations that are no pair": (
        'policies = "paper"\nworkloads = { recipe = "paper", iterations = 5 }\n',
        "s.toml, line 2, column 33 (iterations): must be [LOW, HIGH], not 5.",
    ),
    "no jobs": (
        'policies = "paper"\nworkloads = { recipe = "paper", jobs = 0 }\n',
        "s.toml, line 2, column 33 (jobs): must be at least 1, not 0.",
    ),
    "neither recipe nor file": (
        'policies = "paper"\nworkloads = { name = "x" }\n',
        "s.toml, line 2, column 13 (workloads): needs either a 'recipe' or a 'file'.",
    ),
    "two workloads of one name": (
        'policies = "paper"\nworkloads = ["a.csv", { file = "a.csv" }]\n',
        "s.toml, line 2, column 23 (workloads): two are called 'a.csv'; give one a 'name'.",
    ),
    "a missing file": (
        'policies = "paper"\nworkloads = ["b.csv"]\n',
        "b.csv: No such file or directory.",
    ),
    "a bad file": (
        'policies = "paper"\nworkloads = ["bad.csv"]\n',
        "bad.csv, line 1: missing columns arrival_s, gpus, iterations",
    ),
    "a missing policy file": (
        'workloads = "a.csv"\npolicies = "own.py:first+srsf:1"\n',
        "own.py: No such file or directory.",
    ),
    "a baseline that is not run": (
        TWO + 'baseline = "headway"\n',
        "s.toml, line 3, column 1 (baseline): must be one of the policies. Known: ff+",
    ),
    "jobs that are not true or false": (
        TWO + "jobs = 5\n",
        "s.toml, line 3, column 1 (jobs): must be true or false, not 5.",
    ),
    "too many runs": (
        'seeds = 1000\nworkloads = ["paper", "no.csv"]\npolicies = ["paper", "headway"]\n'
        f"bucket_mb = {list(range(600))}\n",
        "s.toml: 1,201,200 runs; a sweep may have 1,000,000.",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_an_error_in_the_file_names_line_and_column(
    capsys: pytest.CaptureFixture[str], case: str
) -> None:
    text, message = BAD[case]
    Path("bad.csv").write_text("job_id\n")
    Path("s.toml").write_text(text)
    outcome = headway(capsys, "sweep", "s.toml")
    assert outcome.err.startswith(f"headway: error: {message}")
    assert outcome.err.count("\n") == 1
    assert outcome.status == 2
    assert outcome.out == ""
    assert not Path("s").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("sweep no.toml", "no.toml: No such file or directory."),
        ("sweep good.toml --on slurm", "--on: must be threads, ray, HOST:PORT or ray://HOST:PORT"),
        ("sweep good.toml --on host:port", "--on: must be HOST:PORT or ray://HOST:PORT, not"),
        ("sweep good.toml -o -", "--output: must name a folder, not '-'."),
        ("sweep good.toml -o a.csv", "a.csv: File exists."),
        ("sweep good.toml -j 0", "--threads: must be at least 1, not 0."),
        ("sweep good.toml --show", "good: has no finished runs; run the sweep first."),
        ("sweep . --show", ".: there is no runs.parquet; run a sweep first."),
        ("report .", ".: there is no runs.parquet; run a sweep first."),
        (
            "report . -o page.svg",
            "page.svg: the report of a sweep must end in .html.",
        ),
        ("report . --from 3", "--from and --to select a part of a timeline; a sweep has none."),
    ],
)
def test_bad_arguments_are_refused(
    capsys: pytest.CaptureFixture[str], arguments: str, message: str
) -> None:
    outcome = headway(capsys, *arguments.split())
    assert outcome.err.startswith(f"headway: error: {message}")
    assert outcome.status == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--rows polcy", "--rows: unknown name 'polcy'. Did you mean 'policy'?"),
        ("--columns seed", "--columns: unknown name 'seed'."),
        ("--value jct", "--value: unknown name 'jct'."),
        ("--rows policy --columns policy", "--rows: rows and columns must differ from each other."),
        ("--baseline headway", "--baseline: must be one of the sweep's policies: paper, ff+"),
    ],
)
def test_bad_layouts_are_refused(
    capsys: pytest.CaptureFixture[str], options: str, message: str
) -> None:
    headway(capsys, "sweep", "good.toml")
    outcome = headway(capsys, "sweep", "good", "--show", *options.split())
    assert outcome.err.startswith(f"headway: error: {message}")
    assert outcome.status == 2


@pytest.mark.parametrize("arguments", ["simulate a.csv --cluster 3x2", "sweep good.toml"])
def test_nothing_but_ray_imports_ray(arguments: str) -> None:
    code = (
        f"import sys\nsys.argv = ['headway', *{arguments.split()!r}]\n"
        "from headway.cli.main import run\n"
        "try:\n    run()\nexcept SystemExit as end:\n    assert not end.code\n"
        "assert 'ray' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
