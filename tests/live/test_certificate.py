"""The certificate of the API and the gate: what clients would refuse, and renewals."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
from pathlib import Path

import pytest

from gate.threaded_gate import make_certificate
from headway.domain.errors import InputError
from headway.live.certificate import Certificate
from live.ports import free_ports
from live.scheduler_process import running_scheduler

AUTHORITY = """\
[ca]
default_ca = own
[own]
database = {folder}/index
new_certs_dir = {folder}
serial = {folder}/serial
default_md = sha256
policy = any
x509_extensions = names
[any]
commonName = supplied
[names]
subjectAltName = IP:127.0.0.1
"""


def certificate_between(folder: Path, first: str, last: str) -> tuple[Path, Path]:
    """Create a self-signed certificate for 127.0.0.1 that is valid between two days."""
    key, request, certificate = folder / "key.pem", folder / "request", folder / "cert.pem"
    (folder / "index").touch()
    (folder / "serial").write_text("01\n")
    (folder / "ca.cnf").write_text(AUTHORITY.format(folder=folder))
    new = "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=x"
    sign = f"ca -batch -selfsign -notext -startdate {first}000000Z -enddate {last}000000Z"
    for words in (
        [*new.split(), "-keyout", str(key), "-out", str(request)],
        [
            *(*sign.split(), "-config", str(folder / "ca.cnf"), "-keyfile", str(key)),
            *("-in", str(request), "-out", str(certificate)),
        ],
    ):
        subprocess.run(["openssl", *words], check=True, capture_output=True)
    return certificate, key


@pytest.mark.parametrize(
    ("first", "last", "host", "problem"),
    [
        ("20200101", "20200102", "127.0.0.1", "has expired"),
        ("20900101", "20900102", "127.0.0.1", "is not valid yet"),
        ("20200101", "20900102", "127.0.0.2", "is not valid for 127.0.0.2"),
        ("20200101", "20900102", "node1", "is not valid for node1"),
        ("20200101", "20900102", "127.0.0.1", ""),
    ],
)
def test_a_certificate_that_clients_would_refuse_is_refused_at_the_start(
    tmp_path: Path, first: str, last: str, host: str, problem: str
) -> None:
    files = certificate_between(tmp_path, first, last)
    if not problem:
        Certificate(*files, [host])
        return
    with pytest.raises(InputError, match=f"cert.pem: {problem}: jobs and commands would refuse it"):
        Certificate(*files, [host])


def test_a_change_that_cannot_be_used_keeps_the_earlier_certificate(tmp_path: Path) -> None:
    path, key = make_certificate(tmp_path)
    one = Certificate(path, key, ["127.0.0.1"])
    assert not one.renew()
    key.write_text("nonsense")
    with pytest.raises(InputError, match="cannot be used as a certificate"):
        one.renew()
    assert not one.renew()  # It has been said.
    make_certificate(tmp_path)
    assert one.renew()


def shake_hands(port: int, certificate: Path) -> None:
    context = ssl.create_default_context(cafile=certificate)
    with socket.create_connection(("127.0.0.1", port)) as plain:
        context.wrap_socket(plain, server_hostname="127.0.0.1").close()


@pytest.mark.slow
def test_a_renewed_certificate_is_read_again_while_the_scheduler_runs(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    [port] = free_ports(1)
    settings = f'gate_host = "127.0.0.1"\ngate_port = {port}\n'
    settings += f'certificate = "{certificate}"\nkey = "{key}"\n'
    with running_scheduler(tmp_path / "state", settings) as one:
        shake_hands(port, certificate)
        (tmp_path / "new").mkdir()
        renewed = make_certificate(tmp_path / "new")
        with pytest.raises(ssl.SSLCertVerificationError):
            shake_hands(port, renewed[0])
        for old, new in zip((certificate, key), renewed, strict=True):
            shutil.copy(new, f"{old}.part")
            os.replace(f"{old}.part", old)
        one.wait_for_entries(1, event="certificate read again")
        shake_hands(port, renewed[0])
        assert one.client.status()["jobs"]
