"""Look at the machine itself, past the code under test."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from headway import testbed as testbeds

FOLDER = Path("/run/headway/testbeds")
PATIENCE_S = 60.0


def headway(*words: str) -> subprocess.CompletedProcess[str]:
    """Run `headway testbed` in a process of its own."""
    line = [sys.executable, "-m", "headway", "testbed", *words]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)


def inside(testbed: testbeds.Testbed, host: int, script: str) -> subprocess.Popen[str]:
    """Start a Python script in a host, with the variables that it would have there."""
    return subprocess.Popen(
        testbeds.command(testbed, host, [sys.executable, "-c", script]),
        env=os.environ | testbed.environment(host),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def namespaces(name: str) -> list[str]:
    """Return the namespaces of a testbed as `ip` tells them."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    found = [line.split()[0] for line in listed.stdout.splitlines()]
    return sorted(one for one in found if one.startswith(f"headway-{name}-"))


def leftovers(name: str) -> list[str]:
    """Return every namespace, file and process of a testbed that is still there."""
    files = [str(path) for path in FOLDER.iterdir() if name in path.name.split(".")]
    running = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        tools = "headway.testbed.keeper" in words or words[0] in ("ip", "tc")
        if tools and any(name == word or f"headway-{name}-" in word for word in words):
            running.append(f"process {path.parent.name}: {' '.join(words)}")
    return namespaces(name) + files + running


def eventually(holds: Callable[[], bool]) -> bool:
    """Wait until something holds; False when that takes far too long."""
    end = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def rates_mbit(testbed: testbeds.Testbed, host: int) -> list[float]:
    """Return the rate of a host's link as `tc` tells it, at the host and at the switch."""
    units = {"Kbit": 1e-3, "Mbit": 1, "Gbit": 1e3}
    rates = []
    for namespace, device in ends(testbed, host):
        words = counters(namespace, device, "1:20").split()
        rate = words[words.index("rate") + 1]
        rates.append(float(rate[:-4]) * units[rate[-4:]])
    return rates


def ends(testbed: testbeds.Testbed, host: int) -> list[tuple[str, str]]:
    """Return the two ends of a host's link: the namespace and the device, the host's own first."""
    return [(testbed.namespace(host), "eth0"), (testbed.switch, f"port{host}")]


def counters(namespace: str, device: str, classid: str) -> str:
    """Return what `tc` tells about one class of a device's traffic."""
    line = ["tc", "-n", namespace, "-s", "class", "show", "dev", device, "classid", classid]
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout
