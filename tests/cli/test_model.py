"""`headway model`, and `headway workload generate --preset llm`."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.commands import headway
from headway.llm.config_file import config_names
from headway.workload.files import read_workload
from headway.workload.graphs import read_graph

PLAN = "tp2-dp4-sp-mb1-gb16-zero1"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


def test_models_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    found = headway(capsys, "model", "list")
    assert [line.split()[0] for line in found.out.splitlines()[1:]] == config_names()
    assert max(map(len, found.out.splitlines())) <= 80


def test_a_model_is_shown_by_part(capsys: pytest.CaptureFixture[str]) -> None:
    found = headway(capsys, "model", "show", "deepseek-v3", "--sequence", "2048")
    assert "671 B parameters, of which a token uses 37.55 B" in found.out
    assert "256 experts, 8 per token, shared FFN 2,048, first 3 layers dense" in found.out
    assert "sequence 2,048, fp8" in found.out
    rows = [line.split() for line in found.out.splitlines() if line.startswith("all ")]
    assert rows == [["all", "671,026,279,424", "83.48"]]


def test_the_parts_of_a_model_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("llama2-70b", "mixtral-8x7b"):
        lines = headway(capsys, "model", "show", name).out.partition("part ")[2].splitlines()[1:]
        flops = [float(line.split()[-1].replace(",", "")) for line in lines]
        assert sum(flops[:-1]) == pytest.approx(flops[-1], abs=0.05)


def test_a_plan_is_shown_with_memory_and_time(capsys: pytest.CaptureFixture[str]) -> None:
    found = headway(capsys, "model", "show", "llama2-7b", "--plan", PLAN)
    assert "tp2-dp4-sp-mb1-gb16-zero1: 8 GPUs, 4 microbatches each" in found.out
    assert "memory of stage 0, the fullest" in found.out
    assert "s an iteration on a100, alone: " in found.out
    assert "Assumed: attention: fused\n" in found.out
    assert max(map(len, found.out.splitlines())) <= 80
    unfused = headway(
        capsys, "model", "show", "llama2-7b", "--plan", PLAN, "--attention", "unfused"
    )
    assert "Assumed: attention: unfused\n" in unfused.out
    assert seconds(unfused.out) > seconds(found.out)


def test_what_a_time_rests_on_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    plan = "tp2-dp16-ep8-sp-mb1-gb64-zero1"
    found = headway(capsys, "model", "show", "mixtral-8x7b", "--plan", plan, "--gpu", "h200")
    assumed = found.out.partition("Assumed: ")[2].split("\n")
    assert "attention: fused" in assumed[0]
    assert "all-to-alls of experts: overlap computing" in assumed[1]
    assert "estimates of h200: collective_ns" in assumed[2]
    assert "network: h100-8x400" in assumed[3]


def seconds(out: str) -> float:
    return float(out.partition(" s an iteration")[0].split()[-1])


def test_a_graph_is_written_for_a_workload(capsys: pytest.CaptureFixture[str]) -> None:
    plan = "tp2-dp8-sp-mb1-gb16-zero1"
    found = headway(capsys, "model", "graph", "llama2-7b", "--plan", plan, "-o", "g.json")
    assert found.err == "Written: g.json\ngpus 16, memory_mb 35172, measured_on a100\n"
    Path("jobs.csv").write_text(
        "job_id,arrival_s,gpus,iterations,memory_mb,measured_on,graph\n1,0,16,3,35172,a100,g.json\n"
    )
    assert read_workload("jobs.csv")[0].graph == read_graph("g.json")


def test_a_config_in_a_folder_is_not_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine").mkdir()
    content = '{"layers": 2, "hidden": 64, "heads": 4, "vocabulary": 99, "sequence": 32}'
    Path("mine/config.json").write_text(content)
    found = headway(capsys, "model", "graph", "mine", "--plan", "gb1", "-o", "mine/config.json")
    assert found.status == 2
    assert "mine/config.json: is an input too" in found.err
    assert Path("mine/config.json").read_text() == content


def test_plans_are_listed_fastest_first_and_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--gpus", "8", "--global-batch", "32", "--top", "3", "-o", "plans.svg"]
    found = headway(capsys, "model", "plans", "llama2-7b", *options)
    lines = found.out.splitlines()
    assert lines[0] == "llama2-7b on 8 a100, global batch 32 x 4,096 tokens"
    times = [float(line.split()[1]) for line in lines[4:]]
    assert len(times) == 3
    assert times == sorted(times)
    assert max(map(len, lines)) <= 80
    assert Path("plans.svg").read_text().startswith("<?xml")


def test_a_name_is_drawn_as_it_is_and_not_as_mathematics(
    capsys: pytest.CaptureFixture[str],
) -> None:
    content = "layers = 2\nhidden = 64\nheads = 4\nvocabulary = 99\nsequence = 32\n"
    Path("mine.toml").write_text(f'{content}name = "$_{{$\\u001b"\n')
    options = ["--gpus", "1", "--global-batch", "1", "--top", "1", "-o", "plans.svg"]
    found = headway(capsys, "model", "plans", "mine.toml", *options)
    assert found.status == 0, found.err
    assert found.out.startswith("$_{$\\x1b on 1 a100")


def test_a_workload_of_llm_jobs_is_written_with_its_graphs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = ["--preset", "llm", "--jobs", "20", "--span", "600", "-o", "llm.csv"]
    found = headway(capsys, "workload", "generate", *options)
    assert found.err == "20 jobs written to llm.csv\n"
    assert len(read_workload("llm.csv")) == 20


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("model show llama9", "CONFIG: unknown model 'llama9'."),
        ("model show absent.json", "absent.json: No such file or directory."),
        ("model show gpt3-175b --plan tp8", "--plan: 'tp8' lacks the global batch"),
        ("model show gpt3-175b --plan tp16-gb1", "--plan: tp16-mb1-gb1: tensor: must be at most 8"),
        ("model show gpt3-175b --plan gb1", "--plan: mb1-gb1 does not fit: stage 0 needs"),
        ("model graph gpt3-175b --plan gb1", "--plan: mb1-gb1 does not fit: stage 0 needs"),
        ("model graph llama2-7b --plan tp8-gb1 --gpu x", "--gpu: unknown GPU 'x'"),
        ("model plans llama2-7b", "--gpus: must be given"),
        ("model show gpt2-1.5b --plan gb1 --gpu b200", "--gpu: unknown GPU 'b200'"),
        ("model show gpt2-1.5b --attention flash", "--attention: unknown attention 'flash'."),
        (
            "model show deepseek-v3 --plan dp2048-ep64-gb2048-recompute-zero3",
            "--gpu: a100 has no fp8",
        ),
        ("model plans llama2-7b --gpus 0", "--gpus: must be at least 1, not 0."),
        ("model plans llama2-7b --gpus 8 --top 0", "--top: must be at least 1, not 0."),
        ("model plans megatron-1t --gpus 8", "no plan for megatron-1t on 8 a100 of 80 GB"),
        ("model plans llama2-7b --gpus 8 -o x.gif", "x.gif: must end in .svg, .pdf, .png."),
        ("workload generate --preset lllm", "--preset: unknown preset 'lllm'. Did you mean 'llm'?"),
        ("workload generate --preset llm --mix 1:1", "--mix: does not apply to the preset llm."),
        (
            "workload generate --preset llm --jobs 2",
            "standard output: jobs with graphs cannot be written",
        ),
    ],
)
def test_bad_input_gets_one_line(
    arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = headway(capsys, *arguments.split())
    assert found.status == 2
    assert message in found.err
    assert found.err.count("\n") == 1
    assert found.out == ""
