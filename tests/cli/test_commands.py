"""The commands as users run them."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import polars
import pytest
from typer.main import get_command

import headway as package
from builders import EXAMPLES
from cli.commands import headway
from headway.cli import command_groups
from headway.cli.command_groups import GROUPS
from headway.cli.main import app
from waiting import PATIENCE_S, eventually

HEADWAY = [sys.executable, "-m", "headway"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def small(capsys: pytest.CaptureFixture[str]) -> str:
    """Write a small workload and return its name."""
    options = "--jobs 12 --span 5 --mix 1:1,4:1,8:1 --iterations 5:9 --models vgg16,resnet50"
    assert headway(capsys, "workload", "generate", *options.split(), "-o", "w.csv").status == 0
    return "w.csv"


def test_simulate_prints_the_summary(capsys: pytest.CaptureFixture[str], small: str) -> None:
    outcome = headway(capsys, "simulate", small, "--placement", "ff", "--scheduler", "srsf:2")
    assert outcome.status == 0
    assert outcome.out.startswith("12 jobs from w.csv on 16x4 GPUs of 16 GB\n")
    assert "placement ff, priority srsf, admission srsf:2" in outcome.out
    assert re.search(r"average JCT +[\d.]+ s", outcome.out)


def test_the_fixed_interface_writes_the_fixed_json(
    capsys: pytest.CaptureFixture[str], small: str
) -> None:
    options = (
        "--cluster 16x4 --gpu-memory-gb 16 --placement lwf:1 --scheduler ada-srsf --seed 0 "
        "--json OUT.json"
    )
    assert headway(capsys, "simulate", small, *options.split()).status == 0
    data = json.loads(Path("OUT.json").read_text())
    keys = {"summary", "settings", "estimated", "gpu_busy_ns", "time_parts_ns"}
    keys |= {"code", "checksum", "jobs"}
    assert set(data) == keys
    assert len(data["jobs"]) == 12
    assert [job["job_id"] for job in data["jobs"]] == [str(index) for index in range(12)]


def test_json_on_standard_output_is_nothing_but_json(
    capsys: pytest.CaptureFixture[str], small: str
) -> None:
    outcome = headway(capsys, "simulate", small, "--json", "-")
    assert json.loads(outcome.out)["summary"]["simulated_tasks"] > 0
    assert "average JCT" in outcome.err


def test_quiet_prints_nothing(capsys: pytest.CaptureFixture[str], small: str) -> None:
    outcome = headway(capsys, "simulate", small, "-q", "--parquet", "out.parquet")
    assert outcome.out == ""
    assert len(polars.read_parquet("out.parquet")) == 12


def test_cluster_and_network_come_from_one_file(
    capsys: pytest.CaptureFixture[str], small: str
) -> None:
    Path("site.toml").write_text(
        "[cluster]\nservers = 8\ngpus_per_server = 2\ngpu_memory_gb = 32\n"
        "[network]\na_ns = 1000\nb_ns_per_byte = 0.08\neta_ns_per_byte = 0.01\n"
    )
    files = ["--cluster", "site.toml", "--network", "site.toml"]
    outcome = headway(capsys, "simulate", small, *files)
    assert "8x2 GPUs of 32 GB" in outcome.out
    assert "network a 1,000 ns, b 0.08 ns/byte, eta 0.01 ns/byte" in outcome.out
    outcome = headway(capsys, "simulate", small, *files, "--a-ns", "5", "--gpu-memory-gb", "64")
    assert "8x2 GPUs of 64 GB" in outcome.out
    assert "network a 5 ns, b 0.08 ns/byte" in outcome.out


@pytest.mark.parametrize(
    ("lines", "options", "idle_w", "busy_w"),
    [
        ("", "", 40, 300),
        ('gpu = "t4"\n', "", 9, 70),
        ("gpu_idle_w = 50\ngpu_busy_w = 400.5\n", "", 50, 400.5),
        ('gpu = "t4"\ngpu_busy_w = 60\n', "", 9, 60),
        ('gpu = "t4"\ngpu_busy_w = 60\n', "--gpu v100-pcie", 30, 250),
    ],
)
def test_the_power_of_gpus_comes_from_the_file_or_the_flag(
    lines: str,
    options: str,
    idle_w: float,
    busy_w: float,
    capsys: pytest.CaptureFixture[str],
    small: str,
) -> None:
    Path("site.toml").write_text(f"[cluster]\nservers = 4\ngpus_per_server = 2\n{lines}")
    command = ["simulate", small, "--cluster", "site.toml", "--parquet", "r", *options.split()]
    outcome = headway(capsys, *command)
    assert re.search(r"GPU energy +[\d.]+ kWh", outcome.out)
    metadata = polars.read_parquet_metadata("r")
    cluster = json.loads(metadata["headway.settings"])["cluster"]
    assert (cluster["gpu_idle_w"], cluster["gpu_busy_w"]) == (idle_w, busy_w)


def test_a_network_can_be_made_from_a_link(capsys: pytest.CaptureFixture[str], small: str) -> None:
    link = "--nodes 8 --alpha-ns 10000 --beta-ns-per-byte 0.8 --eta-ns-per-byte 0.1"
    outcome = headway(capsys, "network", *link.split(), "--algorithm", "ring", "--toml", "net.toml")
    assert "halving-doubling" in outcome.out
    assert "140,000" in outcome.out  # 2 * 7 * alpha
    outcome = headway(capsys, "simulate", small, "--network", "net.toml")
    assert "network a 140,000 ns, b 1.4 ns/byte, eta 0.1 ns/byte" in outcome.out
    Path("link.toml").write_text(
        '[network]\nalgorithm = "ring"\nnodes = 8\nalpha_ns = 10000\nbeta_ns_per_byte = 0.8\n'
        "eta_ns_per_byte = 0.1\n"
    )
    again = headway(capsys, "simulate", small, "--network", "link.toml")
    assert again.out.split("engine time")[0] == outcome.out.split("engine time")[0]


def test_the_no_contention_network_has_a_name(
    capsys: pytest.CaptureFixture[str], small: str
) -> None:
    outcome = headway(capsys, "simulate", small, "--network", "no-contention")
    assert "network a 669,000 ns, b 0.853 ns/byte, no contention" in outcome.out


def test_own_policies_run_from_the_command_line(
    capsys: pytest.CaptureFixture[str], small: str
) -> None:
    file = EXAMPLES / "my_policies.py"
    outcome = headway(
        capsys,
        *("simulate", small, "--placement", f"{file}:packed"),
        *("--admission", f"{file}:patient:0.25"),
    )
    assert outcome.status == 0
    assert "placement packed, priority srsf, admission patient:0.25" in outcome.out


def test_generate_writes_the_papers_workload_to_standard_output(
    capsys: pytest.CaptureFixture[str],
) -> None:
    outcome = headway(capsys, "workload", "generate", "--preset", "paper", "--seed", "3")
    lines = outcome.out.splitlines()
    assert lines[0] == "job_id,arrival_s,gpus,iterations,model"
    assert len(lines) == 161


def test_describe_shows_counts_hours_load_and_a_histogram(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("w.csv").write_text(
        "job_id,arrival_s,gpus,iterations,forward_ms,backward_ms,gradient_mb,memory_mb\n"
        "a,0,4,3600,400,600,1,1\n"
        "b,3600,4,3600,400,600,1,1\n"
        "c,100,1,10,400,600,1,1\n"
    )
    outcome = headway(capsys, "workload", "describe", "w.csv", "--cluster", "2x4")
    assert "3 jobs arrive from 0 s to 3,600 s and compute for 8.0 GPU hours." in outcome.out
    assert "Load on 8 GPUs while they arrive: 1.00" in outcome.out
    assert re.search(r"^4 +2 +66\.7% +8\.0 +100\.0%", outcome.out, re.M)
    assert re.search(r"^1 h to 2 h +2 +█{30}$", outcome.out, re.M)
    assert re.search(r"^8 s to 15 s +1 +█{15}\s*$", outcome.out, re.M)


def test_names_that_look_like_markup_are_shown_as_they_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("w.csv").write_text(
        "job_id,arrival_s,gpus,iterations,model,forward_ms,backward_ms,gradient_mb,memory_mb\n"
        "a,0,4,3600,[/x],400,600,1,1\n"
    )
    assert "[/x]" in headway(capsys, "workload", "describe", "w.csv").out


def test_graph_shows_a_job(capsys: pytest.CaptureFixture[str], small: str) -> None:
    outcome = headway(capsys, "workload", "graph", small, "3", "--iterations", "1")
    assert outcome.out.startswith("job 3: GPUs ")
    outcome = headway(capsys, "workload", "graph", small, "3", "--format", "dot")
    assert outcome.out.startswith("digraph job {")
    outcome = headway(capsys, "workload", "graph", small, "99")
    assert (outcome.status, outcome.err) == (2, "headway: error: w.csv: there is no job '99'.\n")


def test_policies_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = headway(capsys, "policies")
    for name in ("lwf:KAPPA", "rand", "srtf", "smallest", "srsf:N", "ada-dual", "ada-srsf"):
        assert name in outcome.out


@pytest.mark.parametrize(
    "options",
    [
        "--jobs 0",
        "--mix 1",
        "--mix 1:x",
        "--iterations 5",
        "--models vgg",
        "--seed -1",
        "--mix 1:1,1:2",
    ],
)
def test_bad_recipes_are_refused(options: str, capsys: pytest.CaptureFixture[str]) -> None:
    outcome = headway(capsys, "workload", "generate", *options.split())
    assert outcome.status == 2
    assert outcome.err.startswith("headway: error: ")
    assert outcome.out == ""


@pytest.mark.parametrize("command", [[], ["simulate"], ["workload"], ["workload", "generate"]])
def test_every_command_has_help(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    outcome = headway(capsys, *command, "--help")
    assert outcome.status == 0
    assert "Usage: headway" in outcome.out


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert headway(capsys, "--version").out == f"headway {package.__version__}\n"


def test_workloads_can_be_piped() -> None:
    command = " ".join(HEADWAY)
    done = subprocess.run(
        f"{command} workload generate --jobs 5 --iterations 2:3 | {command} simulate - --json -",
        shell=True,
        capture_output=True,
        check=True,
    )
    assert len(json.loads(done.stdout)["jobs"]) == 5


def generate_long_workload() -> None:
    """Write a workload that runs for some seconds."""
    options = "--jobs 3000 --span 20000 -o long.csv"
    subprocess.run([*HEADWAY, "workload", "generate", *options.split()], check=True)


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["int", "term"]
)
def test_an_interrupted_run_leaves_no_files(number: signal.Signals, status: int) -> None:
    generate_long_workload()
    before = set(os.listdir())
    process = subprocess.Popen(
        [*HEADWAY, "simulate", "long.csv", "--json", "out.json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    # The engine has been loaded, so that the run is under way or about to be.
    maps = Path(f"/proc/{process.pid}/maps")
    eventually(lambda: "llvmlite" in maps.read_text())
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == status
    assert out == b""
    assert b"Traceback" not in err
    assert set(os.listdir()) == before


@pytest.mark.slow
def test_a_long_run_shows_its_progress_on_a_terminal() -> None:
    generate_long_workload()
    main, side = pty.openpty()
    process = subprocess.Popen(
        [*HEADWAY, "simulate", "long.csv"],
        stdout=subprocess.DEVNULL,
        stderr=side,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "80"},
    )
    os.close(side)
    shown = b""
    while True:
        try:
            part = os.read(main, 65536)
        except OSError:
            break
        if not part:
            break
        shown += part
    assert process.wait() == 0
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode())
    found = re.findall(
        r"(\d+)% \S+ \d+ s left, at ([\w ]+), (\d+)% of ([\d.]+) M tasks skipped", text
    )
    percents = [int(percent) for percent, _, _, _ in found]
    assert len(set(percents)) > 3
    assert percents == sorted(percents)


def test_every_command_is_in_one_group_of_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    listed = [name for group in GROUPS for name in group.commands]
    assert sorted(listed) == sorted(get_command(app).commands)  # type: ignore[attr-defined]
    lines = headway(capsys, "--help").out.splitlines()
    for group in GROUPS:
        assert f"{group.title}:" in lines
        for name, text in group.commands.items():
            assert f"  {name:9}  {text}" in lines


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands(shell: str) -> None:
    environment = os.environ | {
        "_HEADWAY_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": "headway sim",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "COMP_WORDS": "headway sim",
        "COMP_CWORD": "1",
    }
    done = subprocess.run(HEADWAY, env=environment, capture_output=True, text=True, check=False)
    assert "simulate" in done.stdout
    assert "compare" not in done.stdout


def test_a_run_is_shown_as_a_page_or_a_picture(
    capsys: pytest.CaptureFixture[str], small: str
) -> None:
    outcome = headway(capsys, "simulate", small, "-o", "run.html", "--json", "run.json")
    assert outcome.err == "Written: run.json\nWritten: run.html\n"
    page = Path("run.html").read_text()
    assert page.count("<svg") == 2
    for text in ("12 jobs from w.csv", "contention", "The 12 jobs that took longest"):
        assert text in page
    assert headway(capsys, "simulate", small, "-o", "run.png").status == 0
    assert Path("run.png").read_bytes().startswith(b"\x89PNG")
    refused = headway(capsys, "simulate", small, "-o", "run.txt")
    assert refused.err == "headway: error: run.txt: must end in .html, .svg, .pdf, .png.\n"


def test_a_comparison_is_shown_as_a_page(capsys: pytest.CaptureFixture[str], small: str) -> None:
    words = ["compare", small, "--policies", "paper,ff+srsf:1", "-o", "compare.html"]
    assert headway(capsys, *words).err == "Written: compare.html\n"
    page = Path("compare.html").read_text()
    assert "<svg" in page
    assert "Ratios to paper" in page


def test_the_workloads_that_come_with_headway_are_listed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = headway(capsys, "workload", "list").out
    assert re.search(r"^paper +160 +1 to 32", out, re.M)
    assert re.search(r"^muri-1 +1,494 ", out, re.M)


def test_an_estimated_network_is_marked(capsys: pytest.CaptureFixture[str], small: str) -> None:
    out = headway(capsys, "simulate", small, "--network", "25gbe").out
    assert "b 0.3412 ns/byte, eta 0.094 ns/byte, estimated from 10gbe" in out


def test_new_files_run_as_they_are(capsys: pytest.CaptureFixture[str], small: str) -> None:
    outcome = headway(capsys, "new", "policy", "start.py")
    assert outcome.out == "Try it: headway simulate paper --placement start.py:my_placement\n"
    assert outcome.err == "Written: start.py\n"
    text = Path("start.py").read_text()
    assert "headway simulate paper --priority start.py:my_priority" in text
    options = "start.py:my_placement --priority start.py:my_priority "
    options += "--admission start.py:my_admission:0.5"
    done = headway(capsys, "simulate", small, "--placement", *options.split())
    assert done.status == 0
    assert "placement my_placement, priority my_priority, admission my_admission:0.5" in done.out
    assert headway(capsys, "new", "sweep", "-o", "grid.toml").status == 0
    ran = headway(capsys, "sweep", "grid.toml")
    assert ran.out.startswith("18 runs; means over 3 seeds with 95% intervals\n")
    assert "headway report grid\n" in Path("grid.toml").read_text()


def test_new_files_overwrite_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.py").write_text("precious")
    outcome = headway(capsys, "new", "policy", "mine.py")
    assert outcome.err == "headway: error: mine.py: exists already; give another name.\n"
    assert Path("mine.py").read_text() == "precious"
    outcome = headway(capsys, "new", "sweep", "mine.py")
    assert outcome.err == "headway: error: mine.py: must end in .toml.\n"
    outcome = headway(capsys, "new", "policy", "one.py", "-o", "two.py")
    assert outcome.err == "headway: error: --output: give one file, not 'one.py' and 'two.py'.\n"


def test_a_network_that_the_model_does_not_describe_gets_a_warning(
    capsys: pytest.CaptureFixture[str], small: str
) -> None:
    network = "[network]\na_ns = 1000\nb_ns_per_byte = 0.08\n[calibration.fit]\nfits = {}\n"
    for fits, warned in (("false", True), ("true", False)):
        Path("measured.toml").write_text(network.format(fits))
        outcome = headway(capsys, "simulate", small, "--network", "measured.toml")
        assert outcome.status == 0
        message = "measured.toml: its calibration says that the model does not describe this"
        assert (message in outcome.err) is warned


def test_an_error_of_a_command_that_is_imported_is_not_hidden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before Python 3.12 mappings take every KeyError for a missing key."""

    def fail(name: str) -> None:
        raise KeyError("HOME")

    monkeypatch.setattr(command_groups, "_load", fail)
    commands = command_groups._Commands()
    assert commands.get("no-such-command") is None
    with pytest.raises(KeyError, match="HOME"):
        commands.get("simulate")
