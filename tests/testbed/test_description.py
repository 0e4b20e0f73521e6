"""A testbed's settings, names and addresses."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest

from headway import testbed as testbeds
from headway.domain.errors import InputError
from headway.testbed.shaping import rate_bytes_per_s


def test_names_and_addresses_derive_from_the_number_of_a_host() -> None:
    testbed = testbeds.Testbed("lab", hosts=3)
    assert testbed.namespaces == [
        "headway-lab-1",
        "headway-lab-2",
        "headway-lab-3",
        "headway-lab-switch",
    ]
    assert testbed.address(3) == "10.77.0.3"
    assert testbeds.command(testbed, 2, ["ls", "-l"])[-3:] == ["headway-lab-2", "ls", "-l"]


def test_only_a_testbed_with_a_penalty_has_a_rate_controller() -> None:
    plain = testbeds.Testbed("lab").environment(2)
    assert plain == {
        "HEADWAY_TESTBED": "lab",
        "HEADWAY_TESTBED_HOST": "2",
        "GLOO_SOCKET_IFNAME": "eth0",
    }
    penal = testbeds.Testbed("lab", eta=0.3).environment(2)
    assert penal == plain | {"HEADWAY_TESTBED_SOCKET": "/run/headway/testbeds/lab.sock"}


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "Lab"}, "name"),
        ({"name": "../lab"}, "name"),
        ({"name": "lab\n"}, "name"),
        ({"name": "a" * 17}, "name"),
        ({"hosts": 1}, "hosts"),
        ({"hosts": 65}, "hosts"),
        ({"hosts": True}, "hosts"),
        ({"rate_mbit": 0}, "rate"),
        ({"rate_mbit": 10_001}, "rate"),
        ({"rate_mbit": 2.5}, "rate"),
        ({"eta": -0.1}, "eta"),
        ({"eta": math.nan}, "eta"),
        ({"eta": math.inf}, "eta"),
        ({"eta": "0.3"}, "eta"),
    ],
)
def test_settings_out_of_range_are_an_error(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError, match=field):
        testbeds.Testbed(**settings)


@pytest.mark.parametrize("host", [0, -1, 5])
def test_an_unknown_host_is_an_error(host: int) -> None:
    with pytest.raises(InputError, match="host"):
        testbeds.Testbed(hosts=4).address(host)


@pytest.mark.parametrize("k", [1, 2, 3, 8])
def test_a_byte_costs_k_b_plus_the_penalty_among_k_messages(k: int) -> None:
    testbed = testbeds.Testbed(rate_mbit=1000, eta=0.3)
    b = 1 / rate_bytes_per_s(testbed, 1)
    cost = k / rate_bytes_per_s(testbed, k)
    assert cost == pytest.approx(k * b + (k - 1) * 0.3 * b, rel=1e-6)


def test_processes_in_a_host_need_only_the_standard_library() -> None:
    script = (
        "import sys, headway.testbed.rate_controller, headway.testbed.rate_client\n"
        "heavy = {'numba', 'numpy', 'polars', 'typer', 'rich', 'matplotlib'}\n"
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
