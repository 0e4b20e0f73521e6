"""Look at the machine itself, past the code under test."""

from __future__ import annotations

import json
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
    rates = []
    places = ((testbed.namespace(host), "eth0"), (testbed.switch, f"port{host}"))
    for namespace, device in places:
        line = ["tc", "-n", namespace, "-j", "qdisc", "show", "dev", device]
        told = subprocess.run(line, capture_output=True, text=True, check=True).stdout
        rates += [q["options"]["rate"] * 8 / 1e6 for q in json.loads(told) if q["kind"] == "tbf"]
    return rates
