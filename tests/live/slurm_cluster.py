"""A real Slurm on this machine: munged, slurmctld, and slurmd for nodes node1, node2, …

Each slurmd runs in a UTS namespace of its own, where the host name is that of its node.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from live.ports import free_ports
from waiting import eventually

CPUS, GPUS = 2, 2
"""Of each node; there are no such devices, but Slurm hands them out."""

LOST_AFTER_S = 15
"""Longer than a slurmd takes to start, or to answer, on a busy machine."""


class SlurmOnThisMachine:
    """The daemons of a cluster, whose files are in a folder."""

    def __init__(self, folder: Path, nodes: int = 4) -> None:
        self.folder = folder
        self.names = [f"node{number}" for number in range(1, nodes + 1)]
        self.conf = folder / "slurm.conf"
        self.environment = {"SLURM_CONF": str(self.conf)}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        # Kept open, so that no other namespace gets the number of one that has ended.
        self._namespaces: list[int] = []
        self._write_files()

    def start(self) -> None:
        """Start all daemons, and wait until all nodes are idle."""
        self.start_daemon("munged")
        eventually((self.folder / "munge.socket").exists)
        self.start_daemon("slurmctld")
        for name in self.names:
            self.start_daemon(name)
        self.wait_until_idle()

    def wait_until_idle(self) -> None:
        """Wait until all nodes are idle."""
        eventually(lambda: self.states() == dict.fromkeys(self.names, "idle"))

    def start_daemon(self, name: str) -> None:
        """Start a daemon: munged, slurmctld or the slurmd of a node."""
        if name == "munged":
            paths = {"socket": "munge.socket", "key-file": "munge.key", "pid-file": "munge.pid"}
            paths |= {"log-file": "munge.log", "seed-file": "munge.seed"}
            words = ["/usr/sbin/munged", "--foreground", "--force"]
            words += [f"--{option}={self.folder / path}" for option, path in paths.items()]
        elif name == "slurmctld":
            words = ["/usr/sbin/slurmctld", "-D", "-f", str(self.conf)]
        else:
            daemon = f"hostname {name} && exec /usr/sbin/slurmd -D -f {self.conf} -N {name}"
            words = ["unshare", "--uts", "sh", "-c", daemon]
        with (self.folder / f"{name}.out").open("ab") as output:
            self._processes[name] = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=os.environ | self.environment,
                process_group=0,  # A local executor kills children in other sessions.
            )
        if name in self.names:
            ours = os.stat("/proc/self/ns/uts")
            path = f"/proc/{self._processes[name].pid}/ns/uts"
            eventually(lambda: not os.path.samestat(os.stat(path), ours))
            self._namespaces.append(os.open(path, os.O_RDONLY))

    def kill(self, name: str) -> None:
        """Kill a daemon without warning; steps on its node go on."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def wait_until_saved(self) -> None:
        """Wait until slurmctld has saved the running jobs as they are now."""
        saved = self.folder / "state" / "job_state"
        running = self.run("squeue", "--noheader", "--states=RUNNING", "--format=%i").split()
        # A file that is written now may hold an older state, in which a job is still pending: such
        # a job would be started again. One with these comments cannot.
        comments = {job: f"saved-{secrets.token_hex(8)}" for job in running}
        for job, comment in comments.items():
            self.run("scontrol", "update", f"jobid={job}", f"comment={comment}")

        def is_saved() -> bool:
            with contextlib.suppress(FileNotFoundError):  # It is replaced in several steps.
                content = saved.read_bytes()
                return all(comment.encode() in content for comment in comments.values())
            return False

        eventually(is_saved)

    def stop(self) -> None:
        """End all steps and daemons."""
        if "slurmctld" in self._processes:
            with contextlib.suppress(subprocess.CalledProcessError):
                self.run("scancel", "--full", "--user=root")
                self.run("scancel", "--user=root")
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self._processes.values():
            process.kill()
            process.wait()
        for namespace in self._namespaces:
            os.close(namespace)

    def processes(self) -> list[int]:
        """Return the processes of steps on all nodes: slurmstepd and what it runs."""
        inside = {os.fstat(namespace).st_ino for namespace in self._namespaces}
        found = set()
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (path / "ns" / "uts").stat().st_ino in inside:
                    found.add(int(path.name))
        return sorted(found - {process.pid for process in self._processes.values()})

    def step_daemons(self, processes: Sequence[int]) -> list[int]:
        """Return the slurmstepd processes above others."""
        found = []
        for process in processes:
            pid = process
            while pid > 1 and not Path(f"/proc/{pid}/cmdline").read_bytes().startswith(
                b"slurmstepd"
            ):
                pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            found.append(pid)
        return found

    def run(self, *words: str) -> str:
        """Run one of Slurm's programs and return its output."""
        return subprocess.run(
            words,
            env=os.environ | self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout

    def states(self) -> dict[str, str]:
        """Return the state of each node."""
        with contextlib.suppress(subprocess.CalledProcessError):
            lines = self.run("sinfo", "--Node", "--noheader", "--format=%N %t").splitlines()
            return dict(line.split() for line in lines)
        return {}

    def jobs(self) -> list[str]:
        """Return the ids of all jobs."""
        return self.run("squeue", "--noheader", "--format=%i").split()

    def _write_files(self) -> None:
        self.folder.chmod(0o755)
        key = self.folder / "munge.key"
        key.touch(0o600)
        key.write_bytes(secrets.token_bytes(128))
        (self.folder / "cgroup.conf").write_text("")
        for number in range(GPUS):
            # Slurm wants devices: these are like /dev/null.
            os.mknod(self.folder / f"gpu{number}", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        (self.folder / "gres.conf").write_text(f"Name=gpu File={self.folder}/gpu[0-{GPUS - 1}]\n")
        for name in ("state", *(f"spool-{node}" for node in self.names)):
            (self.folder / name).mkdir()
        ports = free_ports(len(self.names) + 1)
        lines = [
            "ClusterName=headway",
            f"SlurmctldHost={socket.gethostname()}(127.0.0.1)",
            f"SlurmctldPort={ports[0]}",
            f"AuthInfo=socket={self.folder}/munge.socket",
            "SlurmUser=root",
            "SlurmdUser=root",
            f"StateSaveLocation={self.folder}/state",
            f"SlurmdSpoolDir={self.folder}/spool-%n",
            f"SlurmctldPidFile={self.folder}/slurmctld.pid",
            f"SlurmdPidFile={self.folder}/slurmd-%n.pid",
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_Core",
            "JobAcctGatherType=jobacct_gather/none",
            "SlurmdParameters=config_overrides",
            "SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1",
            "MpiDefault=none",
            "ReturnToService=2",
            f"SlurmdTimeout={LOST_AFTER_S}",
            "KillWait=2",
            "GresTypes=gpu",
        ]
        lines += [
            f"NodeName={name} NodeHostname={name} NodeAddr=127.0.0.1 Port={port} CPUs={CPUS} "
            f"RealMemory=1000 Gres=gpu:{GPUS}"
            for name, port in zip(self.names, ports[1:], strict=True)
        ]
        lines += [
            "PartitionName=main Nodes=ALL Default=YES State=UP MaxTime=INFINITE",
            f"PartitionName=batch Nodes={','.join(self.names[1:])} State=UP MaxTime=INFINITE",
            "",
        ]
        self.conf.write_text("\n".join(lines))


@contextlib.contextmanager
def running_slurm(folder: Path, nodes: int = 4) -> Iterator[SlurmOnThisMachine]:
    """Run a cluster for the duration of a with block."""
    cluster = SlurmOnThisMachine(folder, nodes)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
