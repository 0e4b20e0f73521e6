"""Every bad input ends with one clear line, exit code 2, and nothing written."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import polars
import pytest

from builders import DATA
from cli.commands import headway
from headway.policies.registry import policies

HEADER = "job_id,arrival_s,gpus,iterations,model\n"
FIGURES = "job_id,arrival_s,gpus,iterations,forward_ms,backward_ms,gradient_mb,memory_mb\n"
GOOD = HEADER + "a,0,1,1,vgg16\n"
ALL_FIGURES = "forward_ms, backward_ms, gradient_mb, memory_mb"

WORKLOADS: dict[str, tuple[str | bytes, str]] = {
    "an empty file": (
        "",
        "w.csv: the file is empty; it must begin with a header such as "
        "job_id,arrival_s,gpus,iterations,model.",
    ),
    "blank lines only": (
        "\n  \n",
        "w.csv: the file is empty; it must begin with a header such as "
        "job_id,arrival_s,gpus,iterations,model.",
    ),
    "a header and no jobs": (HEADER, "w.csv: there are no jobs; a workload needs at least one."),
    "a binary file": (
        b"\x7fELF\x00\x01\x02",
        "w.csv, line 1: not a text file; a workload is CSV, or Parquet named .parquet.",
    ),
    "a compressed file": (
        b"\x1f\x8b\x08abc",
        "w.csv, line 1: not a text file; a workload is CSV, or Parquet named .parquet.",
    ),
    "another encoding": (
        HEADER.encode() + b"caf\xe9,0,1,1,vgg16\n",
        "w.csv, line 2, column 4: not UTF-8 text: byte 0xe9.",
    ),
    "a missing column": (
        "job_id,arrival_s,gpus,model\na,0,1,vgg16\n",
        "w.csv, line 1: missing column iterations.",
    ),
    "two missing columns": (
        "job_id,gpus,model\na,1,vgg16\n",
        "w.csv, line 1: missing columns arrival_s, iterations.",
    ),
    "neither model nor figures": (
        "job_id,arrival_s,gpus,iterations\na,0,1,1\n",
        f"w.csv, line 1: missing columns {ALL_FIGURES} "
        "('model' can replace the last four columns).",
    ),
    "a misspelt column": (
        "job_id,arrival_s,gpu,iterations,model\na,0,1,1,vgg16\n",
        "w.csv, line 1, column 3: unknown column 'gpu'. Did you mean 'gpus'?",
    ),
    "a doubled column": (
        "job_id,arrival_s,gpus,gpus,iterations,model\na,0,1,1,1,vgg16\n",
        "w.csv, line 1, column 4: duplicate column 'gpus'.",
    ),
    "no header": (
        "a,0,1,1,vgg16\n",
        "w.csv, line 1: none of its columns is known; the header must be like "
        "job_id,arrival_s,gpus,iterations,model.",
    ),
    "too few fields": (
        GOOD + "b,0,1,1\n",
        "w.csv, line 3, column 5: 4 fields, but the header has 5 columns.",
    ),
    "too many fields": (
        GOOD + "b,0,1,1,vgg16,9\n",
        "w.csv, line 3, column 6: 6 fields, but the header has 5 columns.",
    ),
    "an arrival that is no number": (
        HEADER + "a,soon,1,1,vgg16\n",
        "w.csv, line 2, column 2 (arrival_s): must be a number of seconds, not 'soon'.",
    ),
    "an arrival with an underscore": (
        HEADER + "a,1_0,1,1,vgg16\n",
        "w.csv, line 2, column 2 (arrival_s): must be a number of seconds, not '1_0'.",
    ),
    "a NaN arrival": (
        HEADER + "a,nan,1,1,vgg16\n",
        "w.csv, line 2, column 2 (arrival_s): must be a finite number of seconds, not 'nan'.",
    ),
    "an infinite arrival": (
        HEADER + "a,inf,1,1,vgg16\n",
        "w.csv, line 2, column 2 (arrival_s): must be a finite number of seconds, not 'inf'.",
    ),
    "a negative arrival": (
        HEADER + "a,-1,1,1,vgg16\n",
        "w.csv, line 2, column 2 (arrival_s): must be 0 or more seconds, not '-1'.",
    ),
    "an arrival after the last instant": (
        HEADER + "a,1e10,1,1,vgg16\n",
        "w.csv, line 2, column 2 (arrival_s): must be at most 4,611,686,018 seconds, not '1e10'.",
    ),
    "an absurd arrival": (
        HEADER + "a,1e300,1,1,vgg16\n",
        "w.csv, line 2, column 2 (arrival_s): must be at most 4,611,686,018 seconds, not '1e300'.",
    ),
    "no GPUs": (
        HEADER + "a,0,0,1,vgg16\n",
        "w.csv, line 2, column 3 (gpus): must be at least 1, not 0.",
    ),
    "negative GPUs": (
        HEADER + "a,0,-4,1,vgg16\n",
        "w.csv, line 2, column 3 (gpus): must be at least 1, not -4.",
    ),
    "half a GPU": (
        HEADER + "a,0,0.5,1,vgg16\n",
        "w.csv, line 2, column 3 (gpus): must be a whole number, not '0.5'.",
    ),
    "an empty field": (
        HEADER + "a,0,,1,vgg16\n",
        "w.csv, line 2, column 3 (gpus): must not be empty.",
    ),
    "absurdly many GPUs": (
        HEADER + "a,0,99999999999999999999,1,vgg16\n",
        "w.csv, line 2, column 3 (gpus): must be at most 16,777,216, not 99999999999999999999.",
    ),
    "more GPUs than the cluster has": (
        GOOD + "b,0,65,1,vgg16\n",
        "w.csv, line 3, column 3 (gpus): 65 GPUs, but the cluster has 64 in all.",
    ),
    "no iterations": (
        HEADER + "a,0,1,0,vgg16\n",
        "w.csv, line 2, column 4 (iterations): must be at least 1, not 0.",
    ),
    "iterations in words": (
        HEADER + "a,0,1,many,vgg16\n",
        "w.csv, line 2, column 4 (iterations): must be a whole number, not 'many'.",
    ),
    "absurdly many iterations": (
        HEADER + "a,0,1,10000000000000,vgg16\n",
        "w.csv, line 2, column 4 (iterations): must be at most 1,000,000,000,000, "
        "not 10000000000000.",
    ),
    "more computing than there is time": (
        HEADER + "a,0,1,60000000000,vgg16\n",
        "w.csv, line 2, column 4 (iterations): too many: computation alone would end after the "
        "simulator's last instant (4,611,686,018,427,387,904 ns, 146 years).",
    ),
    "more work than fits the engine's sums": (
        HEADER + "a,0,64,400000000,vgg16\n",
        "w.csv, line 2, column 4 (iterations): too many: with the other jobs that its GPUs may "
        "hold at once, more work on a server (1.6e+07 GPU hours) than the engine can add up "
        "(2.56e+06).",
    ),
    "a misspelt model": (
        HEADER + "a,0,1,1,vgg\n",
        "w.csv, line 2, column 5 (model): unknown model 'vgg'. Did you mean 'vgg16'? "
        f"(Or give {ALL_FIGURES}.)",
    ),
    "a strange model": (
        HEADER + "a,0,1,1,zzz\n",
        "w.csv, line 2, column 5 (model): unknown model 'zzz'. Known: inception-v3, lstm-ptb, "
        f"resnet50, vgg16. (Or give {ALL_FIGURES}.)",
    ),
    "no model in the row": (
        HEADER + "a,0,1,1,\n",
        "w.csv, line 2, column 5 (model): must not be empty; without a model a row needs "
        f"{ALL_FIGURES}.",
    ),
    "an id twice": (
        GOOD + "b,0,1,1,vgg16\na,0,1,1,vgg16\n",
        "w.csv, line 4, column 1 (job_id): 'a' is the id of line 2 too; ids must differ.",
    ),
    "an empty id": (
        HEADER + ",0,1,1,vgg16\n",
        "w.csv, line 2, column 1 (job_id): must not be empty.",
    ),
    "a forward pass of no time": (
        FIGURES + "a,0,1,1,0,1,1,1\n",
        "w.csv, line 2, column 5 (forward_ms): must be at least 0.000001 milliseconds, not '0'.",
    ),
    "a negative backward pass": (
        FIGURES + "a,0,1,1,1,-1,1,1\n",
        "w.csv, line 2, column 6 (backward_ms): must be at least 0.000001 milliseconds, not '-1'.",
    ),
    "a negative gradient": (
        FIGURES + "a,0,1,1,1,1,-5,1\n",
        "w.csv, line 2, column 7 (gradient_mb): must be 0 or more MB, not '-5'.",
    ),
    "an absurd gradient": (
        FIGURES + "a,0,1,1,1,1,1e30,1\n",
        "w.csv, line 2, column 7 (gradient_mb): must be at most 8,589,934,592 MB, not '1e30'.",
    ),
    "NaN memory": (
        FIGURES + "a,0,1,1,1,1,1,nan\n",
        "w.csv, line 2, column 8 (memory_mb): must be a finite number of MB, not 'nan'.",
    ),
    "memory that no GPU has": (
        FIGURES + "a,0,1,1,1,1,1,16385\n",
        "w.csv, line 2, column 8 (memory_mb): needs 16,385 MB on each GPU, but a GPU has "
        "16,384 MB.",
    ),
    "a batch of nothing": (
        "job_id,arrival_s,gpus,iterations,model,batch_size\na,0,1,1,vgg16,0\n",
        "w.csv, line 2, column 6 (batch_size): must be at least 1, not 0.",
    ),
    "half a sample": (
        "job_id,arrival_s,gpus,iterations,model,batch_size\na,0,1,1,vgg16,1.5\n",
        "w.csv, line 2, column 6 (batch_size): must be a whole number, not '1.5'.",
    ),
    "an empty figure": (
        FIGURES + "a,0,1,1,1,,1,1\n",
        "w.csv, line 2, column 6 (backward_ms): must not be empty; without a model a row needs "
        f"{ALL_FIGURES}.",
    ),
    "an open quote": (
        HEADER + '"a,0,1,1,vgg16\n',
        "w.csv, line 2: not CSV: a quotation mark is not closed.",
    ),
    "a number of sixty thousand digits": (
        HEADER + "a," + "9" * 60_000 + ",1,1,vgg16\n",
        "w.csv, line 2, column 2 (arrival_s): must be a finite number of seconds, "
        "not '99999999999999999999999999999999999999….",
    ),
    "a line of 70,000 bytes": (
        HEADER + "x" * 70_000 + ",0,1,1,vgg16\n",
        "w.csv, line 2: longer than 65,536 bytes; a workload's lines are short.",
    ),
}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def expect(capsys: pytest.CaptureFixture[str], message: str, *arguments: str) -> None:
    """Assert that a simulation ends with this line and writes nothing."""
    before = set(os.listdir())
    outcome = headway(capsys, "simulate", *arguments, "--json", "out.json")
    assert outcome.status == 2
    assert outcome.out == ""
    lines = [line for line in outcome.err.splitlines() if not line.startswith("Compiling ")]
    assert lines == [f"headway: error: {message}"]
    assert set(os.listdir()) == before


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_bad_workload(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    content, message = WORKLOADS[name]
    Path("w.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    expect(capsys, message, "w.csv")


GROUP = '[[cluster.group]]\nservers = 2\ngpus_per_server = 4\ngpu = "a100"\n'
SHAPE = "[cluster]\nservers = 4\ngpus_per_server = 2\n"
TIER = '[[cluster.tier]]\nname = "leaf"\nservers_per_switch = 2\n'
NAMED = '[[cluster.tier]]\nname = "leaf"\n[[cluster.tier]]\nname = "pod"\n'
TYPE = "[gpu.tpu]\nmemory_gb = 8\ntflops = 9\nidle_w = 1\nbusy_w = 2\n"
MEASURED = '[[profile]]\nmodel = "vgg16"\ngpu = "a100"\nforward_ms = 2.5\nbackward_ms = 5\n'

CLUSTERS = {
    "not TOML": (
        "[cluster\nservers=1",
        "c.toml, line 1, column 9: not TOML: Expected ']' at the end of a table declaration.",
    ),
    "empty": ("", "c.toml: there is no table [cluster]."),
    "an unknown key": (
        "[cluster]\nservers = 4\ngpu_per_server = 2\n",
        "c.toml, line 3, column 1 (gpu_per_server): unknown key. Did you mean 'gpus_per_server'?",
    ),
    "a missing key": (
        "[cluster]\nservers = 4\n",
        "c.toml, line 1, column 2: 'gpus_per_server' is missing.",
    ),
    "text for a number": (
        '[cluster]\nservers = "4"\ngpus_per_server = 4\n',
        "c.toml, line 2, column 1 (servers): must be a whole number, not '4'.",
    ),
    "no servers": (
        "[cluster]\nservers = 0\ngpus_per_server = 4\n",
        "c.toml, line 2, column 1 (servers): must be at least 1, not 0.",
    ),
    "negative memory": (
        "[cluster]\nservers = 1\ngpus_per_server = 4\n  gpu_memory_gb = -1\n",
        "c.toml, line 4, column 3 (gpu_memory_gb): must be at least 0.000977 GB, not -1.",
    ),
    "an unknown table": (
        "[clusters]\nservers = 1\n",
        "c.toml, line 1, column 2 (clusters): unknown table. Did you mean 'cluster'?",
    ),
    "too many GPUs": (
        "[cluster]\nservers = 9999999\ngpus_per_server = 4\n",
        "c.toml, line 1, column 2 (servers x gpus_per_server): must be at most 16,777,216, "
        "not 39999996.",
    ),
    "an unknown GPU": (
        '[cluster]\nservers = 1\ngpus_per_server = 4\ngpu = "v10"\n',
        "c.toml, line 4, column 1 (gpu): unknown GPU 'v10'. Did you mean 'v100'?",
    ),
    "a GPU that is a number": (
        "[cluster]\nservers = 1\ngpus_per_server = 4\ngpu = 100\n",
        "c.toml, line 4, column 1 (gpu): must be a string, not 100.",
    ),
    "negative watts": (
        "[cluster]\nservers = 1\ngpus_per_server = 4\ngpu_idle_w = -1\n",
        "c.toml, line 4, column 1 (gpu_idle_w): must be from 0 to 1,000,000 watts, not -1.",
    ),
    "watts in words": (
        '[cluster]\nservers = 1\ngpus_per_server = 4\ngpu_busy_w = "300"\n',
        "c.toml, line 4, column 1 (gpu_busy_w): must be a number, not '300'.",
    ),
    "watts that are no number": (
        "[cluster]\nservers = 1\ngpus_per_server = 4\ngpu_busy_w = nan\n",
        "c.toml, line 4, column 1 (gpu_busy_w): must be from 0 to 1,000,000 watts, not nan.",
    ),
    "less busy than idle": (
        "[cluster]\nservers = 1\ngpus_per_server = 4\ngpu_busy_w = 20\n",
        "c.toml, line 4, column 1 (gpu_busy_w): must be at least gpu_idle_w, 40, not 20.",
    ),
    "groups and a shape": (
        f"[cluster]\nservers = 4\n{GROUP}",
        "c.toml, line 2, column 1 (servers): belongs in the groups, [[cluster.group]].",
    ),
    "a group that is a number": (
        "[cluster]\ngroup = 3\n",
        "c.toml, line 2, column 1 (group): must be tables [[cluster.group]], not 3.",
    ),
    "no groups": (
        "[cluster]\ngroup = []\n",
        "c.toml, line 2, column 1 (group): must be tables [[cluster.group]], not [].",
    ),
    "an incomplete second group": (
        f"{GROUP}[[cluster.group]]\nservers = 3\n",
        "c.toml, line 5, column 11: 'gpus_per_server' is missing.",
    ),
    "a second group without servers": (
        f"{GROUP}[[cluster.group]]\nservers = 0\ngpus_per_server = 1\n",
        "c.toml, line 6, column 1 (servers): must be at least 1, not 0.",
    ),
    "an unknown key in a group": (
        f"{GROUP}memory_gb = 3\n",
        "c.toml, line 5, column 1 (memory_gb): unknown key. Did you mean 'gpu_memory_gb'?",
    ),
    "an unknown GPU in a group": (
        GROUP.replace("a100", "b100"),
        "c.toml, line 4, column 1 (gpu): unknown GPU 'b100'. Did you mean 'v100'?",
    ),
    "too many GPUs in groups": (
        GROUP.replace("servers = 2", "servers = 9999999"),
        "c.toml, line 1, column 3 (GPUs of all groups): must be at most 16,777,216, not 39999996.",
    ),
    "a rack by number": (
        f"{GROUP}rack = 1\n",
        "c.toml, line 5, column 1 (rack): must be a non-empty string, not 1.",
    ),
    "a group in no rack": (
        f'{GROUP}rack = "a"\n{GROUP}',
        "c.toml, line 6, column 11: either every group names its rack, or none does.",
    ),
    "racks twice": (
        f'{GROUP}rack = "a"\n[cluster.racks]\nservers_per_rack = 2\n',
        "c.toml, line 7, column 1 (servers_per_rack): the groups name their racks "
        "already; give only one of the two.",
    ),
    "oversubscription without racks": (
        f"{GROUP}[cluster.racks]\noversubscription = 2\n",
        "c.toml, line 6, column 1 (oversubscription): needs racks: 'servers_per_rack', or 'rack' "
        "in every group.",
    ),
    "oversubscription without racks in a shape": (
        "[cluster]\nservers = 4\ngpus_per_server = 2\n[cluster.racks]\noversubscription = 2\n",
        "c.toml, line 5, column 1 (oversubscription): needs 'servers_per_rack' too.",
    ),
    "oversubscription the wrong way round": (
        "[cluster]\nservers = 4\ngpus_per_server = 2\n"
        "[cluster.racks]\nservers_per_rack = 2\noversubscription = 0.25\n",
        "c.toml, line 6, column 1 (oversubscription): must be from 1 (an uplink carries all that "
        "comes from below it) to 1,000,000, not 0.25.",
    ),
    "an empty rack": (
        f"{GROUP}[cluster.racks]\nservers_per_rack = 0\n",
        "c.toml, line 6, column 1 (servers_per_rack): must be at least 1, not 0.",
    ),
    "more rails than GPUs": (
        f"{SHAPE}rails = 3\n",
        "c.toml, line 4, column 1 (rails): must be at most the number of GPUs of a server, 2, "
        "not 3.",
    ),
    "no rails": (
        f"{GROUP}rails = 0\n",
        "c.toml, line 5, column 1 (rails): must be at least 1, not 0.",
    ),
    "rails beside groups": (
        f"[cluster]\nrails = 2\n{GROUP}",
        "c.toml, line 2, column 1 (rails): belongs in the groups, [[cluster.group]].",
    ),
    "a tier without a name": (
        f"{SHAPE}[[cluster.tier]]\nservers_per_switch = 2\n",
        "c.toml, line 4, column 11: 'name' is missing.",
    ),
    "a tier of unknown size": (
        f'{SHAPE}[[cluster.tier]]\nname = "leaf"\n',
        "c.toml, line 4, column 11: needs 'servers_per_switch', unless every group of servers "
        "names its 'switches'.",
    ),
    "an unknown key of a tier": (
        f"{SHAPE}{TIER}oversubscripton = 2\n",
        "c.toml, line 7, column 1 (oversubscripton): unknown key. Did you mean 'oversubscription'?",
    ),
    "a tier that carries more than it gets": (
        f"{SHAPE}{TIER}oversubscription = 0.5\n",
        "c.toml, line 7, column 1 (oversubscription): must be from 1 (an uplink carries all that "
        "comes from below it) to 1,000,000, not 0.5.",
    ),
    "two tiers of one name": (
        f"{SHAPE}{TIER}{TIER}",
        "c.toml, line 8, column 1 (name): 'leaf' is duplicated.",
    ),
    "tiers that are not nested": (
        f"{SHAPE}{TIER}{TIER.replace('leaf', 'pod').replace('2', '3')}",
        "c.toml, line 9, column 1 (servers_per_switch): must be a multiple of that of the tier "
        "below, 2, not 3.",
    ),
    "too many tiers": (
        SHAPE + "".join(TIER.replace("leaf", f"tier {number}") for number in range(9)),
        "c.toml, line 28, column 11: there can be at most 8 tiers.",
    ),
    "tiers and racks": (
        f"{SHAPE}{TIER}[cluster.racks]\nservers_per_rack = 2\n",
        "c.toml, line 7, column 10 (racks): racks are a tier; give only one of the two.",
    ),
    "tiers and a rack": (
        f'{GROUP}rack = "a"\n{TIER}',
        "c.toml, line 5, column 1 (rack): racks are a tier; give only one of the two.",
    ),
    "switches twice": (
        f'{GROUP}switches = ["a"]\n{TIER}',
        "c.toml, line 8, column 1 (servers_per_switch): the groups name their switches already; "
        "give only one of the two.",
    ),
    "switches without tiers": (
        f'{GROUP}switches = ["a"]\n',
        "c.toml, line 5, column 1 (switches): needs tiers, which describe the switches.",
    ),
    "too few switches": (
        f'{GROUP}switches = ["a"]\n{NAMED}',
        "c.toml, line 5, column 1 (switches): must name a switch of each tier, lowest first: 2, "
        "not 1.",
    ),
    "a group without switches": (
        f'{GROUP}switches = ["a", "b"]\n{GROUP}{NAMED}',
        "c.toml, line 6, column 11 (switches): must name a switch of each tier, lowest first: 2, "
        "not 0.",
    ),
    "a switch under two others": (
        f'{GROUP}switches = ["a", "b"]\n{GROUP}switches = ["a", "c"]\n{NAMED}',
        "c.toml, line 10, column 1 (switches): 'a' is under 'b' and under 'c'; give different "
        "switches different names.",
    ),
    "racks as a number": (
        "[cluster]\nservers = 4\ngpus_per_server = 2\nracks = 2\n",
        "c.toml, line 4, column 1 (racks): must be a table [cluster.racks], not 2.",
    ),
    "an unknown key of racks": (
        f"{GROUP}[cluster.racks]\nservers = 2\n",
        "c.toml, line 6, column 1 (servers): unknown key. Did you mean 'servers_per_rack'?",
    ),
    "a type of GPU for a shape": (
        f"[cluster]\nservers = 4\ngpus_per_server = 2\n{TYPE}",
        "c.toml, line 4, column 2 (gpu): needs groups of servers, [[cluster.group]].",
    ),
    "a known type of GPU": (
        GROUP + TYPE.replace("tpu", "v100"),
        "c.toml, line 5, column 6 (v100): 'v100' is a built-in type of GPU; choose another name.",
    ),
    "an incomplete type of GPU": (
        GROUP + TYPE.replace("idle_w = 1\n", ""),
        "c.toml, line 5, column 6: 'idle_w' is missing.",
    ),
    "a GPU without speed": (
        GROUP + TYPE.replace("tflops = 9", "tflops = 0"),
        "c.toml, line 7, column 1 (tflops): must be from 1e-9 to 1e9 TFLOPS, not 0.",
    ),
    "a GPU of 400 digits": (
        GROUP + TYPE.replace("tflops = 9", "tflops = 1" + "0" * 400),
        "c.toml, line 7, column 1 (tflops): must be from 1e-9 to 1e9 TFLOPS, "
        "not 100000000000000000000000000000000000000….",
    ),
    "an infinite GPU": (
        GROUP + TYPE.replace("tflops = 9", "tflops = inf"),
        "c.toml, line 7, column 1 (tflops): must be from 1e-9 to 1e9 TFLOPS, not inf.",
    ),
    "an oversubscription of 400 digits": (
        f"{GROUP}[cluster.racks]\nservers_per_rack = 1\noversubscription = 1{'0' * 400}\n",
        "c.toml, line 7, column 1 (oversubscription): must be from 1 (an uplink carries all that "
        "comes from below it) to 1,000,000, not "
        "100000000000000000000000000000000000000….",
    ),
    "a GPU that is less busy than idle": (
        GROUP + TYPE.replace("busy_w = 2", "busy_w = 0.5"),
        "c.toml, line 9, column 1 (busy_w): must be at least idle_w, 1, not 0.5.",
    ),
    "types that are a number": (
        f"gpu = 3\n{GROUP}",
        "c.toml, line 1, column 1 (gpu): must be tables [gpu.NAME], not 3.",
    ),
    "a type that is a number": (
        f"{GROUP}[gpu]\nx = 3\n",
        "c.toml, line 6, column 1 (x): must be a table [gpu.x], not 3.",
    ),
    "a profile for a shape": (
        f"[cluster]\nservers = 4\ngpus_per_server = 2\n{MEASURED}",
        "c.toml, line 4, column 3 (profile): needs groups of servers, [[cluster.group]].",
    ),
    "a profile of an unknown GPU": (
        GROUP + MEASURED.replace("a100", "a10000"),
        "c.toml, line 7, column 1 (gpu): unknown GPU 'a10000'. Did you mean 'a100'?",
    ),
    "a profile of no time": (
        GROUP + MEASURED.replace("forward_ms = 2.5", "forward_ms = 0"),
        "c.toml, line 8, column 1 (forward_ms): must be at least 0.000001 milliseconds, not 0.",
    ),
    "a profile without a model": (
        GROUP + MEASURED.replace('model = "vgg16"', "model = 16"),
        "c.toml, line 6, column 1 (model): must be a non-empty string, not 16.",
    ),
    "a profile twice": (
        f"{GROUP}{MEASURED}{MEASURED}batch_size = 16\n",
        "c.toml, line 11, column 1 (model): duplicate profile of 'vgg16' on 'a100-sxm4' at one "
        "batch size.",
    ),
    "a profile of half a sample": (
        f"{GROUP}{MEASURED}batch_size = 0.5\n",
        "c.toml, line 10, column 1 (batch_size): must be a whole number, not 0.5.",
    ),
    "a profile that is a number": (
        f"profile = 1\n{GROUP}",
        "c.toml, line 1, column 1 (profile): must be tables [[profile]], not 1.",
    ),
    "a value for a table": (
        "cluster = 4\n",
        "c.toml, line 1, column 1 (cluster): must be a table [cluster], not 4.",
    ),
    "a number of 400 digits": (
        "[cluster]\nservers = 1\ngpus_per_server = 1\ngpu_memory_gb = 1" + "0" * 400 + "\n",
        "c.toml, line 4, column 1 (gpu_memory_gb): must be at most 8,388,608 GB, "
        "not 100000000000000000000000000000000000000….",
    ),
    "a number of 6,000 hexadecimal digits": (
        "[cluster]\nservers = 0x" + "F" * 6000 + "\ngpus_per_server = 1\n",
        "c.toml, line 2, column 1 (servers): must be at most 16,777,216, "
        "not a number of thousands of digits.",
    ),
}


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_bad_cluster_file(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    content, message = CLUSTERS[name]
    Path("w.csv").write_text(GOOD)
    Path("c.toml").write_text(content)
    expect(capsys, message, "w.csv", "--cluster", "c.toml")


RING = '[network]\nalgorithm = "ring"\nnodes = 4\nalpha_ns = 1\nbeta_ns_per_byte = 1\n'

NETWORKS = {
    "a missing key": (
        "[network]\na_ns = 1\n",
        "n.toml, line 1, column 2: 'b_ns_per_byte' is missing.",
    ),
    "a negative latency": (
        "[network]\na_ns = -1\nb_ns_per_byte = 1\n",
        "n.toml, line 2, column 1 (a_ns): must be at least 0, not -1.",
    ),
    "NaN": (
        "[network]\na_ns = 1\nb_ns_per_byte = nan\n",
        "n.toml, line 3, column 1 (b_ns_per_byte): must be from 0 to 1e9 nanoseconds a byte, "
        "not nan.",
    ),
    "an unknown algorithm": (
        RING.replace("ring", "rinq"),
        "n.toml, line 2, column 1 (algorithm): unknown algorithm 'rinq'. Did you mean 'ring'?",
    ),
    "one node": (
        RING.replace("nodes = 4", "nodes = 1"),
        "n.toml, line 3, column 1 (nodes): must be at least 2, not 1.",
    ),
    "a and an algorithm": (
        RING + "a_ns = 1\n",
        "n.toml, line 6, column 1 (a_ns): follows from 'algorithm'; give only one of them.",
    ),
    "alpha without an algorithm": (
        "[network]\na_ns = 1\nb_ns_per_byte = 1\nalpha_ns = 1\n",
        "n.toml, line 4, column 1 (alpha_ns): needs 'algorithm' too.",
    ),
    "an algorithm alone": (
        '[network]\nalgorithm = "ring"\n',
        "n.toml, line 2, column 1 (algorithm): needs 'nodes' too.",
    ),
    "the former key contends": (
        "[network]\na_ns = 1\nb_ns_per_byte = 1\ncontends = false\n",
        "n.toml, line 4, column 1 (contends): is now part of 'law': write law = \"no-contention\" "
        "for contends = false.",
    ),
    "the former key sharing": (
        '[network]\na_ns = 1\nb_ns_per_byte = 1\nsharing = "max-min"\n',
        "n.toml, line 4, column 1 (sharing): is now called 'law'.",
    ),
    "the former key servers": (
        "[network]\na_ns = 1\nservers = 2\nb_ns_per_byte = 1\n",
        "n.toml, line 3, column 1 (servers): is now called 'ring_size'.",
    ),
    "an unknown law": (
        '[network]\na_ns = 1\nb_ns_per_byte = 1\nlaw = "maxmin"\n',
        "n.toml, line 4, column 1 (law): unknown law 'maxmin'. Did you mean 'max-min'?",
    ),
    "a law that is a number": (
        "[network]\na_ns = 1\nb_ns_per_byte = 1\nlaw = 3\n",
        "n.toml, line 4, column 1 (law): must be a string, not 3.",
    ),
    "a ring of half a server": (
        "[network]\na_ns = 1\nring_size = 2.5\nb_ns_per_byte = 1\n",
        "n.toml, line 3, column 1 (ring_size): must be a whole number, not 2.5.",
    ),
    "a ring of one server": (
        "[network]\na_ns = 1\nring_size = 1\nb_ns_per_byte = 1\n",
        "n.toml, line 3, column 1 (ring_size): must be at least 2, not 1.",
    ),
    "a ring size other than the nodes": (
        RING + "ring_size = 8\n",
        "n.toml, line 6, column 1 (ring_size): must equal 'nodes', 4, not 8.",
    ),
    "a ring size for a tree": (
        RING.replace("ring", "binary-tree") + "ring_size = 4\n",
        "n.toml, line 6, column 1 (ring_size): is for the algorithm 'ring' only, not "
        "'binary-tree'.",
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_bad_network_file(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    content, message = NETWORKS[name]
    Path("w.csv").write_text(GOOD)
    Path("n.toml").write_text(content)
    expect(capsys, message, "w.csv", "--network", "n.toml")


FAULTY = DATA / "faulty.py"
FUNCTIONS = (
    "beyond, makes_an_array, never_admit, never_place, no_room, out_of_range, "
    "raises, returns_nothing, same_twice, short_keys, too_few_arguments, unknown_field"
)
SHAPE = "must look like 16x4 (servers x GPUs per server) or be the path of a .toml file"

OPTIONS = {
    "--cluster 16": f"--cluster: {SHAPE}, not '16'.",
    "--cluster 16x-4": f"--cluster: {SHAPE}, not '16x-4'.",
    "--cluster 0x4": "--cluster: must have servers with GPUs, not '0x4'.",
    "--cluster no.toml": "no.toml: No such file or directory.",
    "--gpu v1000": "--gpu: unknown GPU 'v1000'. Did you mean 'v100'?",
    "--gpu-memory-gb 0": "--gpu-memory-gb: must be at least 0.000977 GB, not 0.0.",
    "--gpu-memory-gb nan": "--gpu-memory-gb: must be a finite number of GB, not nan.",
    "--gpu-memory-gb 1": "w.csv, line 2, memory_mb: needs 4,527 MB on each GPU, but a GPU has "
    "1,024 MB.",
    "--network 1gbe": "--network: unknown network '1gbe', and not the path of a .toml file. "
    "Did you mean '10gbe'?",
    "--a-ns -5": "--a-ns: must be at least 0, not -5.",
    "--b-ns-per-byte 0": "--b-ns-per-byte: must be at least 1e-9 nanoseconds a byte (8e18 bit/s), "
    "not 0.",
    "--placement lwf": "placement policy 'lwf:KAPPA' needs a whole number of at least 1 after the "
    "colon, not 'lwf'.",
    "--placement lwf:0": "placement policy 'lwf:KAPPA' needs a whole number of at least 1 after "
    "the colon, not 'lwf:0'.",
    "--placement lwf:many": "placement policy 'lwf:KAPPA' needs a whole number of at least 1 after "
    "the colon, not 'lwf:many'.",
    "--placement ff:3": "placement policy 'ff' takes no parameter: 'ff:3'.",
    "--placement lfw:1": "unknown placement policy 'lfw:1'. Did you mean 'lwf'?",
    "--scheduler ada-srfs": "unknown scheduler 'ada-srfs'. Did you mean 'ada-srsf'?",
    "--scheduler srsf:0": "admission policy 'srsf:N' needs a whole number of at least 1 after the "
    "colon, not 'srsf:0'.",
    "--priority srs": "unknown priority policy 'srs'. Did you mean 'srsf'?",
    "--admission adadual": "unknown admission policy 'adadual'. Did you mean 'ada-dual'?",
    "--placement none.py:f": "none.py: no such file.",
    f"--placement {FAULTY}:nope": f"{FAULTY}: has no function 'nope'. Known: {FUNCTIONS}.",
    f"--placement {FAULTY}:unknown_field": "placement policy unknown_field does not compile: there "
    "is no field 'colour' in this record.",
    f"--admission {FAULTY}:too_few_arguments": "admission policy 'too_few_arguments' must take 3 "
    "arguments (cluster, message, parameter), not 2.",
    f"--placement {FAULTY}:never_place": "placement policy 'never_place' leaves jobs queued for "
    "ever: nothing is running and nothing more will arrive.",
    "--accuracy 2": "--accuracy: must be more than 0 and less than 100%, such as 1% or 0.01, not "
    "'2'.",
    "--accuracy 1% --timeline x.parquet": "--accuracy leaves tasks out, and --timeline needs all; "
    "choose one.",
    "--seed -1": "--seed: must be at least 0, not -1.",
    "--parquet /nowhere/x.parquet": "/nowhere/x.parquet: there is no folder /nowhere.",
    "--parquet /": "/: is a folder, not a file.",
}


def test_an_unknown_policy_lists_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    Path("w.csv").write_text(GOOD)
    # Other tests may have registered policies of their own.
    known = sorted(policy.name for policy in policies("placement"))
    assert {"ff", "ls", "lwf", "rand", "spread"} <= set(known)
    message = f"unknown placement policy 'zzz'. Known: {', '.join(known)}."
    expect(capsys, message, "w.csv", "--placement", "zzz")


@pytest.mark.parametrize("options", OPTIONS)
def test_a_bad_option(options: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("w.csv").write_text(GOOD)
    expect(capsys, OPTIONS[options], "w.csv", *options.split())


def test_a_policy_that_needs_allocation_gets_a_hint(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("w.csv").write_text(GOOD)
    outcome = headway(capsys, "simulate", "w.csv", "--admission", f"{FAULTY}:makes_an_array")
    assert outcome.status == 2
    advice = "It makes an array or another object: register it with allocates=True."
    assert f"makes_an_array does not compile. {advice} Numba says: " in outcome.err


def test_a_policy_that_returns_nothing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("w.csv").write_text(GOOD)
    outcome = headway(capsys, "simulate", "w.csv", "--admission", f"{FAULTY}:returns_nothing")
    assert outcome.status == 2
    advice = "It must return True, False or a time in nanoseconds on every path."
    assert f"admission policy returns_nothing does not compile. {advice}" in outcome.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f(:\n", "mine.py, line 1: SyntaxError: invalid syntax"),
        ("x = 1\ny = x / 0\n", "mine.py, line 2: ZeroDivisionError: division by zero"),
        ("import no_such_module\n", "mine.py, line 1: ModuleNotFoundError: No module named"),
    ],
)
def test_a_policy_file_with_a_mistake_names_the_line(
    text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("w.csv").write_text(GOOD)
    Path("mine.py").write_text(text)
    outcome = headway(capsys, "simulate", "w.csv", "--placement", "mine.py:f")
    assert outcome.status == 2
    assert message in outcome.err


@pytest.mark.parametrize(
    ("decorator", "problem"),
    [
        ("placement_policy('p', steady='yes')", "steady must be True or False, not 'yes'."),
        ("admission_policy('p', by_port=1)", "by_port must be True or False, not 1."),
        (
            "priority_policy('p', parameter='k')",
            "parameter must be such as Parameter('share', least=0), not 'k'.",
        ),
        ("priority_policy('p', parameter=Parameter('k', '0'))", "a Parameter's least must not be "),
        ("priority_policy", "a policy's name must not be empty or hold a colon, not <func"),
    ],
)
def test_a_decorator_with_a_mistake_names_the_line(
    decorator: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("w.csv").write_text(GOOD)
    Path("mine.py").write_text(f"from headway.policies import *\n\n@{decorator}\ndef p(*_): 0\n")
    outcome = headway(capsys, "simulate", "w.csv", "--placement", "mine.py:p")
    assert outcome.status == 2
    assert f"mine.py, line 3: {problem}" in outcome.err


def test_a_line_of_100_megabytes_is_refused_without_reading_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with open("w.csv", "w") as stream:
        stream.write(HEADER)
        stream.truncate(100 * 2**20)
    with open("w.csv", "r+b") as stream:
        stream.seek(len(HEADER))
        for _ in range(100):
            stream.write(b"a" * 2**20)
    expect(
        capsys,
        "w.csv, line 2: longer than 65,536 bytes; a workload's lines are short.",
        "w.csv",
    )


def test_a_missing_file_and_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    expect(capsys, "no.csv: No such file or directory.", "no.csv")
    expect(capsys, "no.parquet: No such file or directory.", "no.parquet")
    expect(capsys, ".: Is a directory.", ".")


def test_a_file_that_is_not_parquet(capsys: pytest.CaptureFixture[str]) -> None:
    Path("w.parquet").write_bytes(b"PAR1xxxx")
    outcome = headway(capsys, "simulate", "w.parquet")
    assert outcome.status == 2
    assert outcome.err.startswith("headway: error: w.parquet: is damaged: ")
    assert outcome.err.count("\n") == 1


def test_a_parquet_workload_with_bad_columns_and_rows(capsys: pytest.CaptureFixture[str]) -> None:
    good = {"job_id": ["a", "b"], "arrival_s": [0.0, 1.0], "gpus": [1, 2], "iterations": [1, 1]}
    for changes, message in (
        (
            {},
            f"w.parquet: missing columns {ALL_FIGURES} ('model' can replace the last four "
            "columns).",
        ),
        (
            {"model": ["vgg16", "vgg"]},
            "w.parquet, line 2, model: unknown model 'vgg'. Did you "
            f"mean 'vgg16'? (Or give {ALL_FIGURES}.)",
        ),
        (
            {"model": ["vgg16", "vgg16"], "gpus": [1, 0]},
            "w.parquet, line 2, gpus: must be at least 1, not 0.",
        ),
        (
            {"model": ["vgg16", "vgg16"], "gpus": [1, None]},
            "w.parquet, line 2, gpus: must not be empty.",
        ),
        (
            {"model": ["vgg16", "vgg16"], "gpus": [[1], [2]]},
            "w.parquet, gpus: holds 'List(Int64)', not text or numbers.",
        ),
        (
            {"model": ["vgg16", "vgg16"], "arrival_s": [0.0, float("nan")]},
            "w.parquet, line 2, arrival_s: must be a finite number of seconds, not nan.",
        ),
        (
            {"model": ["vgg16", "vgg16"], "gpus": [1.0, float("nan")]},
            "w.parquet, line 2, gpus: must be a whole number, not nan.",
        ),
        (
            {"model": ["vgg16", "vgg16"], "iterations": [float("inf"), 1.0]},
            "w.parquet, line 1, iterations: must be a whole number, not inf.",
        ),
    ):
        polars.DataFrame(good | changes).write_parquet("w.parquet")
        expect(capsys, message, "w.parquet")


def test_an_unwritable_folder_is_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a full or read-only disk, which a test that runs as root cannot make."""
    Path("w.csv").write_text(GOOD)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", refuse)
    expect(capsys, "out.json: No space left on device.", "w.csv")


@pytest.mark.parametrize("text", ["[" * 50_000, "servers = " + "9" * 5000])
def test_toml_that_breaks_the_parser_is_refused(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("w.csv").write_text(GOOD)
    Path("c.toml").write_text("x = " + text)
    outcome = headway(capsys, "simulate", "w.csv", "--cluster", "c.toml")
    assert outcome.status == 2
    assert outcome.err.startswith("headway: error: c.toml")
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ("--json x --parquet x", "x: is given for two outputs."),
        ("--json - --parquet -", "standard output: is given for two outputs."),
        ("--json x --parquet ./x", "./x: is given for two outputs."),
        ("--json w.csv", "w.csv: is an input too"),
        ("--cluster c.toml --json c.toml", "c.toml: is an input too"),
        ("--network c.toml --json ./c.toml", "./c.toml: is an input too"),
        ("--profiles c.toml --parquet c.toml", "c.toml: is an input too"),
        ("--placement q.py:p --json q.py", "q.py: is an input too"),
        ("--policy q.py:p+ada-srsf --timeline q.py", "q.py: is an input too"),
    ],
)
def test_outputs_that_would_destroy_each_other_or_the_input_are_refused(
    outputs: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("w.csv").write_text(GOOD)
    outcome = headway(capsys, "simulate", "w.csv", *outputs.split())
    assert outcome.status == 2
    assert outcome.err.startswith(f"headway: error: {message}")
    assert outcome.err.count("\n") == 1
    assert os.listdir() == ["w.csv"]


@pytest.mark.parametrize(
    "command",
    [
        "simulate w.csv --json FILE",
        "simulate w.csv --timeline FILE",
        "compare w.csv --policies paper,headway --json FILE",
        "workload generate -o FILE",
        "network --algorithm ring --toml FILE",
    ],
)
def test_an_output_that_cannot_be_written_is_found_before_the_run(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    Path("w.csv").write_text(GOOD)
    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    monkeypatch.setattr("headway.engine.run.drive", lambda *_: pytest.fail("it was run"))
    outcome = headway(capsys, *command.replace("FILE", "x").split())
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err == "headway: error: x: Read-only file system.\n"


@pytest.mark.parametrize(
    "command",
    [
        "simulate w.csv -q --parquet full.parquet",
        "simulate w.csv -q --timeline full.parquet",
        "simulate w.csv -q --json full.parquet",
        "workload generate --jobs 5 -o full.parquet",
    ],
)
def test_a_full_disk_is_one_line(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("w.csv").write_text(GOOD)
    os.symlink("/dev/full", "full.parquet")
    outcome = headway(capsys, *command.split())
    assert (outcome.status, outcome.out) == (2, "")
    lines = [line for line in outcome.err.splitlines() if not line.startswith("Compiling ")]
    assert lines == ["headway: error: full.parquet: No space left on device."]


def test_a_symbolic_link_is_followed_and_kept(capsys: pytest.CaptureFixture[str]) -> None:
    Path("w.csv").write_text(GOOD)
    Path("real.json").write_text("old")
    os.symlink("real.json", "link.json")
    assert headway(capsys, "simulate", "w.csv", "-q", "--json", "link.json").status == 0
    assert Path("link.json").is_symlink()
    assert Path("real.json").read_text().startswith('{\n  "summary"')


def test_closed_streams_are_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    expect(capsys, "standard input: is closed.", "-")


def test_a_policy_file_that_exits_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("w.csv").write_text(GOOD)
    Path("leaves.py").write_text("import sys\nsys.exit(0)\n")
    expect(
        capsys,
        f"{Path('leaves.py').resolve()}, line 2: SystemExit: 0",
        "w.csv",
        "--placement",
        "leaves.py:f",
    )


def test_results_can_go_to_a_named_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo("pipe")
    assert stat.S_ISFIFO(os.stat("pipe").st_mode)
    reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    Path("w.csv").write_text(GOOD)
    assert headway(capsys, "simulate", "w.csv", "--json", "pipe").status == 0
    assert os.read(reader, 100).startswith(b'{\n  "summary"')
    os.close(reader)
