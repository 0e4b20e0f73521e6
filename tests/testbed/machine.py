"""The state of the machine, inspected without the code under test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from headway import testbed as testbeds

FOLDER = Path("/run/headway/testbeds")


def headway(*words: str) -> subprocess.CompletedProcess[str]:
    """Run `headway testbed` in another process."""
    line = [sys.executable, "-m", "headway", "testbed", *words]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)


def inside(testbed: testbeds.Testbed, host: int, script: str) -> subprocess.Popen[str]:
    """Start a Python script in a host, with the host's environment variables."""
    return subprocess.Popen(
        testbeds.command(testbed, host, [sys.executable, "-c", script]),
        env=os.environ | testbed.environment(host),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def namespaces(name: str) -> list[str]:
    """Return the namespaces of a testbed that `ip` lists."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    found = [line.split()[0] for line in listed.stdout.splitlines()]
    return sorted(one for one in found if one.startswith(f"headway-{name}-"))


def leftovers(name: str) -> list[str]:
    """Return every namespace, file and process of a testbed that still exists."""
    files = [str(path) for path in FOLDER.iterdir() if name in path.name.split(".")]
    running = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        tools = "headway.testbed.rate_controller" in words or words[0] in ("ip", "tc")
        if tools and any(name == word or f"headway-{name}-" in word for word in words):
            running.append(f"process {path.parent.name}: {' '.join(words)}")
    return namespaces(name) + files + running


def rates_mbit(testbed: testbeds.Testbed, host: int) -> list[float]:
    """Return the rates that `tc` shows for a host's link, at the host and at the switch."""
    units = {"Kbit": 1e-3, "Mbit": 1, "Gbit": 1e3}
    rates = []
    for namespace, device in ends(testbed, host):
        words = counters(namespace, device, "1:20").split()
        rate = words[words.index("rate") + 1]
        rates.append(float(rate[:-4]) * units[rate[-4:]])
    return rates


def ends(testbed: testbeds.Testbed, host: int) -> list[tuple[str, str]]:
    """Return namespace and device of both ends of a host's link, the host's end first."""
    return [(testbed.namespace(host), "eth0"), (testbed.switch, f"port{host}")]


def counters(namespace: str, device: str, classid: str) -> str:
    """Return the statistics that `tc` shows for one class of a device's traffic."""
    line = ["tc", "-n", namespace, "-s", "class", "show", "dev", device, "classid", classid]
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout
