"""What the documentation says is so."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import headway
from headway.domain import records
from headway.jit.views import View, fields_of
from headway.workload.traces.importing import import_trace
from headway.workload.traces.parameters import PARAMETERS, published_size

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"

NOTATION = [
    "N_s",
    "N_g",
    "S_i",
    "g_{i,j}",
    "P_{i,j}",
    "J",
    "N_J",
    "J_k",
    "G(J_k)",
    "S(J_k)",
    "A_k",
    "B_k",
    "I_k",
    "T",
    "E_k",
    "T_k",
    "D_l^k",
    "tau_{l,m}^k",
    "sigma^k",
    "f^k",
    "b^k",
    "c^k",
    "lambda_b",
    "lambda_f",
    "a",
    "b",
    "eta",
]
ALGORITHMS = [
    "C_J",
    "E_J",
    "L_J",
    "L_g",
    "L_S",
    "kappa",
    "SRSF",
    "LWF-kappa",
    "AdaDUAL",
    "Ada-SRSF",
    "theta",
    "M_new",
    "M_old",
    "Q",
    "R",
    "max_task",
]


def terms() -> list[tuple[str, str]]:
    """Return (paper's column, Headway's column) of every row of the map."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in (DOCS / "paper_terms.md").read_text().splitlines()
        if line.startswith("|") and not line.startswith(("|---", "| paper"))
    ]
    return [(row[0], row[2]) for row in rows]


def resolve(path: str) -> Any:
    """Follow `module:attribute.path`; a last step may be a field of a record or a dataclass."""
    module, _, attributes = path.partition(":")
    thing: Any = importlib.import_module(module)
    for name in attributes.split("."):
        if isinstance(thing, np.dtype):
            assert name in (thing.names or ()), path
            return thing.fields
        if is_dataclass(thing) and name in {field.name for field in fields(thing)}:
            return thing
        is_view = isinstance(thing, type) and issubclass(thing, View)
        thing = fields_of(thing)[name] if is_view else getattr(thing, name)
    return thing


@pytest.mark.parametrize(("paper", "place"), terms())
def test_every_term_of_the_paper_is_where_the_map_says(paper: str, place: str) -> None:
    found = re.findall(r"`(headway[\w.]*:[\w.]+)`", place)
    assert found, f"{paper} has no place"
    for path in found:
        assert resolve(path) is not None


@pytest.mark.parametrize("term", NOTATION + ALGORITHMS)
def test_the_map_has_every_term_of_the_paper(term: str) -> None:
    mapped = re.sub(r"[`*]", "", " ".join(f" {paper} " for paper, _ in terms()))
    assert re.search(rf"(?<![\w^]){re.escape(term)}(?![\w^(])", mapped), term


def test_the_command_line_reference_is_what_the_commands_say(tmp_path: Path) -> None:
    """`make reference` writes it anew."""
    path = tmp_path / "cli.md"
    subprocess.run(
        [
            *(sys.executable, "-m", "typer", "headway.cli.main", "utils", "docs"),
            *("--name", "headway", "--title", "Command line", "--output", str(path)),
        ],
        check=True,
        capture_output=True,
        env={**os.environ, "COLUMNS": "80"},
    )
    assert path.read_text() == (DOCS / "reference" / "cli.md").read_text()


def test_the_page_of_calibrate_is_what_its_parser_says() -> None:
    """`make reference` writes it anew."""
    words = [sys.executable, str(ROOT / "scripts" / "calibrate_reference.py")]
    made = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    assert made == (DOCS / "reference" / "calibrate.md").read_text()


@pytest.mark.parametrize(
    "name",
    ["SYSTEM", "JOB", "MESSAGE", "MESSAGE_GROUP", "GPU", "SERVER", "PORT", "SEAT", "LINK"],
)
def test_the_tables_of_records_list_every_field(name: str) -> None:
    text = (DOCS / "reference" / "policies.md").read_text()
    section = text.split(f"### `{name}`")[1].split("\n### ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    told = [field for row in rows for field in re.findall(r"`(\w+)`", row)]
    assert sorted(told) == sorted(getattr(records, name).names)


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def test_the_worked_example_of_the_model_prints_what_the_page_shows() -> None:
    code, shown = blocks("model.md", "python")[-1], blocks("model.md", "text")[-1]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ours, theirs = done.stdout.splitlines(), shown.splitlines()
    # Tasks that end together come in no particular order.
    assert ours[0] == theirs[0]
    assert sorted(ours[1:]) == sorted(theirs[1:])


def test_the_policies_of_the_tutorial_are_those_of_the_example() -> None:
    example = (ROOT / "examples" / "my_policies.py").read_text()
    functions = [
        block[block.index("@") :].strip()
        for block in blocks("tutorial/own-policy.md", "python")
        if "@placement_policy" in block or "@admission_policy" in block
    ]
    assert len(functions) == 2
    page = (DOCS / "tutorial" / "own-policy.md").read_text()
    assert '--8<-- "examples/my_policies.py"' in page
    for function in functions:
        assert function in example


def test_the_script_of_the_tutorial_on_live_jobs_is_the_example() -> None:
    page = (DOCS / "tutorial" / "two-jobs.md").read_text()
    script = (ROOT / "examples" / "train.py").read_text()
    assert f"```python\n{script.partition(chr(10) * 2)[2]}```" in page


def test_the_figures_of_the_first_tutorial_are_right() -> None:
    page = (DOCS / "tutorial" / "first-simulation.md").read_text()
    workload = headway.generate_workload("paper", seed=0)
    for scheduler in ("ada-srsf", "srsf:1"):
        summary = headway.simulate(workload, policy=f"lwf:1+{scheduler}").summary
        assert f"average JCT               {summary.average_jct_s:,.2f} s" in page
        assert f"makespan                 {summary.makespan_s:,.2f} s" in page


def test_the_figures_of_the_tutorial_on_traces_are_right() -> None:
    page = (DOCS / "tutorial" / "your-trace.md").read_text()
    trace = "examples/traces/philly-two-days.csv"
    assert page.count(f"headway workload import philly-pollux {trace}") == 3
    found = import_trace("philly-pollux", [str(ROOT / trace)])
    assert f"{len(found.workload)} jobs written to cluster.csv" in page
    assert f"{found.out_of_order} jobs came after a job that arrives later" in page
    summary = headway.simulate(found.workload, "4x4").summary
    assert re.search(rf"^average JCT +{summary.average_jct_s:,.2f} s ", page, re.MULTILINE)
    assert re.search(rf"^paper +{summary.average_jct_s:,.1f} ", page, re.MULTILINE)
    assert f"| as it is | {summary.average_jct_s:,.0f} s |" in page


def test_the_table_of_model_sizes_is_that_of_the_importer() -> None:
    page = (DOCS / "formats" / "muri.md").read_text()
    for model in ("vgg16", "vgg19", "resnet18", "shufflenet_v2_x1_0", "bert", "gpt2", "dqn", "a2c"):
        size = published_size(model)
        assert size is not None
        gradient_mb, memory_mb = size.gradient_bytes / 2**20, size.memory_bytes / 2**20
        row = f"| `{model}` | {PARAMETERS[model]:,} | {gradient_mb:.1f} | {memory_mb:,.0f} |"
        assert row in page


def test_the_readme_shows_what_its_example_prints() -> None:
    readme = (ROOT / "README.md").read_text()
    code = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)[0]
    shown = re.findall(r"```text\n(.*?)```", readme, re.DOTALL)[0]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == shown


def test_the_readme_starts_with_the_two_commands() -> None:
    start = (ROOT / "README.md").read_text().splitlines()[:15]
    assert any(line.startswith("make demo") for line in start)
    assert any(line.startswith("make test") for line in start)


def test_every_path_and_module_of_the_architecture_exists() -> None:
    page = (DOCS / "explanation" / "architecture.md").read_text()
    paths = re.findall(
        r"`((?:src|tests|benchmarks|docs)(?:/[\w./-]+)?|[\w-]+\.(?:toml|yml))`", page
    )
    assert len(paths) > 30
    for path in paths:
        assert (ROOT / path).exists(), path
    for name in re.findall(r"`(headway(?:\.\w+)+)`", page):
        file = ROOT / "src" / name.replace(".", "/")
        # The last part may be a function of a module, such as `headway.torch.attach`.
        modules = (file, file.with_suffix(".py"), file.parent.with_suffix(".py"))
        assert any(module.exists() for module in modules), name


def test_the_table_of_growth_is_that_of_the_measurements() -> None:
    """`python benchmarks/growth/growth.py report` writes it anew."""
    script = ROOT / "benchmarks" / "growth" / "growth.py"
    words = [sys.executable, str(script), "table"]
    made = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    assert made == (DOCS / "policies" / "measured" / "growth.md").read_text()


def test_nothing_says_that_pip_finds_headway_by_its_name() -> None:
    """It is on no package index, and whoever takes the name there would be installed."""
    pages = [ROOT / "README.md", *DOCS.rglob("*.md"), *(ROOT / "src").rglob("*.py")]
    for page in pages:
        assert not re.search(r"pip\s+install\s+['\"]?headway\b", page.read_text()), page


def test_links_of_the_readme_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)", (ROOT / "README.md").read_text()):
        assert (ROOT / target).exists(), target


def test_every_decision_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    for page in (DOCS / "decisions").glob("*.md"):
        assert f"decisions/{page.name}" in navigation
        assert len(page.read_text().splitlines()) < 50


def listed_pages() -> list[str]:
    """Return the pages of the navigation, in its order."""
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    return re.findall(r"([\w/-]+\.md)$", navigation, re.MULTILINE)


def title_of(page: str) -> str:
    text = (DOCS / page).read_text()
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    if found is None:  # The changelog includes another file.
        found = re.search(r"^# (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert found is not None, page
    return found[1]


def test_no_two_pages_have_one_name() -> None:
    """Neither in the sidebar, with its sections, nor as titles."""
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    names = re.findall(r"^ *- ([^:\n]+):(?: |$)", navigation, re.MULTILINE)
    pages = listed_pages()
    assert len(pages) > 50 < len(names)
    for found in (names, [title_of(page) for page in pages]):
        assert [name for name, count in Counter(map(str.lower, found)).items() if count > 1] == []


PICTURED = [
    "index.md",
    "policies/index.md",
    *(f"tutorial/{path.name}" for path in sorted((DOCS / "tutorial").glob("*.md"))),
]


@pytest.mark.parametrize("page", PICTURED)
def test_home_policies_and_tutorials_have_pictures(page: str) -> None:
    found = re.findall(r"!\[([^\]]+)\]\(([^)]+)\)", (DOCS / page).read_text())
    assert found
    for text, target in found:
        picture = (DOCS / page).parent / target
        assert len(text) > 20, f"{target} needs a description"
        if picture.suffix == ".svg":
            assert ElementTree.parse(picture).getroot().tag.endswith("svg")
        else:
            assert picture.read_bytes().startswith(b"\x89PNG")
        assert picture.stat().st_size < 200_000


def test_the_tables_of_the_predictions_are_those_of_the_measurements() -> None:
    """`python benchmarks/fidelity/fidelity.py report` writes them anew."""
    script = ROOT / "benchmarks" / "fidelity" / "fidelity.py"
    words = [sys.executable, str(script), "tables"]
    made = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    pages = [
        DOCS / "explanation" / "fidelity" / f"{name}.md" for name in ("halves", "mixes", "all")
    ]
    assert made == "".join(page.read_text() + "\n" for page in pages)
