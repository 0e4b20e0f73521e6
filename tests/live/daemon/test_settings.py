"""serve.toml: its keys, and errors that name the line and column."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from headway.domain.errors import InputError
from headway.live.core.lease_rules import LeaseRules
from headway.live.daemon.settings import ExecutorSettings, ServeSettings, settings_from
from headway.live.executors.slurm.cluster import SlurmSettings
from headway.live.executors.slurm.lines import Directives


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)


def test_by_default_everything_is_on_loopback_and_in_the_home_folder() -> None:
    settings = ServeSettings()
    assert settings.folder == Path.home() / ".local/state/headway"
    assert (settings.api_host, settings.api_port) == ("127.0.0.1", 7077)
    assert settings.gate_address is None
    assert settings.executor.kind == "local"


def test_the_state_folder_follows_the_desktops_convention(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/var/state")
    assert ServeSettings().folder == Path("/var/state/headway")


def test_jobs_on_ray_reach_the_gate_over_loopback_unless_an_address_is_written() -> None:
    ray = ExecutorSettings("ray")
    assert ServeSettings(executor=ray).gate_address == ("127.0.0.1", 7078)
    assert ServeSettings(executor=ray, gate_host="10.0.0.1").gate_address == ("10.0.0.1", 7078)


def test_a_file_sets_everything_and_its_paths_are_relative_to_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "etc"
    folder.mkdir()
    for name in ("cert.pem", "key.pem"):
        (folder / name).touch()
    (folder / "net.toml").write_text("[network]\na_ns = 1000\nb_ns_per_byte = 0.5\n")
    (folder / "serve.toml").write_text(
        """
        [serve]
        folder = "state"
        policy = "lwf:1+ada-srsf"
        network = "net.toml"
        api_host = "10.0.0.1"
        api_port = 8000
        gate_host = "10.0.0.1"
        gate_port = 8001
        certificate = "cert.pem"
        key = "key.pem"
        log_mb = 64
        lease_s = 0.5
        lease_factor = 4
        end_stuck_after_s = 0

        [executor]
        kind = "testbed"
        slots = 2
        memory_mb = 0.5
        testbed = "lab"
        """
    )
    settings = settings_from("etc/serve.toml")
    assert settings == ServeSettings(
        folder=folder / "state",
        policy="lwf:1+ada-srsf",
        network=str(folder / "net.toml"),
        api_host="10.0.0.1",
        api_port=8000,
        gate_host="10.0.0.1",
        gate_port=8001,
        certificate=folder / "cert.pem",
        key=folder / "key.pem",
        log_bytes=64 * 2**20,
        leases=LeaseRules(least_ns=500_000_000, factor=4, stuck_ns=0),
        executor=ExecutorSettings("testbed", slots=2, memory_bytes=2**19, testbed="lab"),
    )
    assert settings.network_model().a_ns == 1000


MISTAKES = {
    "an unknown table": ("[server]\n", "line 1, column 2 (server): unknown table. Did you"),
    "an unknown key": ("[serve]\nport = 1\n", "line 2, column 1 (port): unknown key."),
    "a port in quotes": (
        '[serve]\napi_port = "x"\n',
        "line 2, column 1 (api_port): must be a whole number, not 'x'.",
    ),
    "a port out of range": (
        "[serve]\n\n  gate_port = 70000\n",
        "line 3, column 3 (gate_port): must be at most 65,535, not 70000.",
    ),
    "a gate port on Ray that changes with each restart": (
        '[serve]\ngate_port = 0\n[executor]\nkind = "ray"\n',
        "line 2, column 1 (gate_port): must be fixed on Ray and Slurm: running jobs",
    ),
    "an unknown policy": (
        '[serve]\npolicy = "papr"\n',
        "line 2, column 1 (policy): unknown policy 'papr'. Did you mean 'paper'?",
    ),
    "an unknown network": (
        '[serve]\nnetwork = "10gb"\n',
        "line 2, column 1 (network): unknown network '10gb'",
    ),
    "a gate at an address that jobs cannot reach": (
        '[serve]\ngate_host = "0.0.0.0"\n',
        "line 2, column 1 (gate_host): must be an address that jobs can reach, not '0.0.0.0'.",
    ),
    "a certificate alone": (
        '[serve]\ncertificate = "serve.toml"\n',
        "line 2, column 1 (certificate): needs 'key' too.",
    ),
    "a certificate that does not exist": (
        '[serve]\nkey = "serve.toml"\ncertificate = "no.pem"\n',
        "line 3, column 1 (certificate): there is no file",
    ),
    "a folder that is a number": (
        "[serve]\nfolder = 3\n",
        "line 2, column 1 (folder): must be a non-empty string, not 3.",
    ),
    "no lease": (
        "[serve]\nlease_s = 0\n",
        "line 2, column 1 (lease_s): must be at least 0.100000 s, not 0.",
    ),
    "half a factor": (
        "[serve]\nlease_factor = 0.5\n",
        "line 2, column 1 (lease_factor): must be a whole number, not 0.5.",
    ),
    "no kind of executor": ("[executor]\nslots = 2\n", "line 1, column 2: 'kind' is missing."),
    "an unknown executor": (
        '[executor]\nkind = "cloud"\n',
        "line 2, column 1 (kind): unknown kind 'cloud'. Known: local, ray, slurm, testbed.",
    ),
    "an unknown mode": (
        '[executor]\nkind = "slurm"\nmode = "step"\n',
        "line 3, column 1 (mode): unknown mode 'step'.",
    ),
    "an allocation for batch jobs": (
        '[executor]\nkind = "slurm"\nmode = "batch"\nallocation = 7\n',
        "line 4, column 1 (allocation): is for the mode steps only.",
    ),
    "a directive that is Headway's to give": (
        '[executor]\nkind = "slurm"\nallocation_directives = ["--nodes=2"]\n',
        "line 3, column 1 (allocation_directives): --nodes is set by Headway.",
    ),
    "a directive that is no option": (
        '[executor]\nkind = "slurm"\ndirectives = ["qos"]\n',
        "line 3, column 1 (directives): must be options such as '--qos=high'",
    ),
    "directives elsewhere": (
        '[executor]\nkind = "ray"\ndirectives = ["--qos=high"]\n',
        "line 3, column 1 (directives): is for the executor slurm only.",
    ),
    "too many questions": (
        '[executor]\nkind = "slurm"\npoll_s = 0.1\n',
        "line 3, column 1 (poll_s): must be at least 1",
    ),
    "slots on ray": (
        '[executor]\nkind = "ray"\nslots = 2\n',
        "line 3, column 1 (slots): is for the executor local, testbed or slurm only.",
    ),
    "no slots": (
        '[executor]\nkind = "local"\nslots = 0\n',
        "line 3, column 1 (slots): must be at least 1, not 0.",
    ),
    "a memory that is text": (
        '[executor]\nkind = "local"\nmemory_mb = "much"\n',
        "line 3, column 1 (memory_mb): must be a number, not 'much'.",
    ),
    "a list as kind": ("[executor]\nkind = []\n", "line 2, column 1 (kind): unknown kind []."),
    "not TOML": ("[serve\n", "line 1, column 7: not TOML"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_an_error_names_its_line_and_column(name: str) -> None:
    text, message = MISTAKES[name]
    Path("serve.toml").write_text(text)
    with pytest.raises(InputError) as caught:
        settings_from("serve.toml")
    assert str(caught.value).startswith(f"serve.toml, {message}")


def test_the_settings_of_slurm_are_read() -> None:
    Path("serve.toml").write_text(
        '[executor]\nkind = "slurm"\nnodes = 4\npartition = "gpu"\nmemory_mb = 1\n'
        'directives = ["--qos=high"]\nallocation_directives = ["--time=60"]\n'
        'skip_directives = ["--mem"]\npoll_s = 2.5\n'
    )
    settings = settings_from("serve.toml")
    assert settings.gate_address == (socket.gethostname(), 7078)
    assert settings.executor.slurm() == SlurmSettings(
        nodes=4,
        partition="gpu",
        memory_bytes=2**20,
        directives=Directives(("--qos=high",), ("--mem",)),
        allocation_directives=Directives(("--time=60",), ("--mem",)),
        poll_s=2.5,
    )
