"""Damaged, endless and oddly written files get one exact line."""

from __future__ import annotations

import os
from pathlib import Path

import polars
import pytest

from cli.commands import headway
from headway.domain.errors import did_you_mean

HEADER = "job_id,arrival_s,gpus,iterations,model\n"
GOOD = f"{HEADER}1,0,1,2,vgg16\n2,0,4,2,vgg16\n"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("w.csv").write_text(GOOD)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (GOOD.replace("\n", "\r"), "w.csv, line 1: lines end in CR alone; they must end in LF or"),
        (GOOD.replace(",", ";"), "w.csv, line 1: columns must be separated by commas, not semi"),
        (GOOD.replace(",", "\t"), "w.csv, line 1: columns must be separated by commas, not tabs."),
        (f'{HEADER}"1,0,1,2,vgg16\n', "w.csv, line 2: not CSV: a quotation mark is not closed."),
        (f"{HEADER}1,0,١,2,vgg16\n", "w.csv, line 2, column 3 (gpus): must be a whole number"),
        (f"{HEADER}1,１.5,1,2,vgg16\n", "w.csv, line 2, column 2 (arrival_s): must be a number of"),
    ],
    ids=["cr", "semicolons", "tabs", "quote", "arabic digit", "wide digit"],
)
def test_odd_csv_is_refused_in_plain_words(
    content: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("w.csv").write_bytes(content.encode())
    outcome = headway(capsys, "simulate", "w.csv")
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err.startswith(f"headway: error: {message}")
    assert outcome.err.count("\n") == 1


def test_toml_may_begin_with_a_byte_order_mark(capsys: pytest.CaptureFixture[str]) -> None:
    Path("n.toml").write_bytes(
        b"\xef\xbb\xbf[network]\na_ns = 1\nb_ns_per_byte = 1.0\neta_ns_per_byte = 0.0\n"
    )
    assert headway(capsys, "simulate", "w.csv", "-q", "--network", "n.toml").status == 0


def test_a_list_of_tables_in_place_of_a_table_is_named_as_it_is_written(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("c.toml").write_text("[[cluster]]\nservers = 1\n")
    outcome = headway(capsys, "simulate", "w.csv", "--cluster", "c.toml")
    assert outcome.err == (
        "headway: error: c.toml, line 1, column 3 (cluster): must be a table [cluster], not a list "
        "of tables [[cluster]].\n"
    )


def test_sizes_that_differ_look_different(capsys: pytest.CaptureFixture[str]) -> None:
    Path("w.csv").write_text(
        "job_id,arrival_s,gpus,iterations,forward_ms,backward_ms,gradient_mb,memory_mb\n"
        "1,0,1,2,1,1,1,16384.000001\n"
    )
    outcome = headway(capsys, "simulate", "w.csv")
    assert "needs 17,179,869,185 bytes on each GPU, but a GPU has 16,384 MB." in outcome.err


def test_a_tiny_bucket_is_refused_and_not_rounded_to_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    outcome = headway(capsys, "simulate", "w.csv", "--bucket-mb", "1e-9")
    assert outcome.status == 2
    assert "must be at least 0.000001 MB, not 1e-09." in outcome.err
    assert headway(capsys, "simulate", "w.csv", "-q", "--bucket-mb", "0").status == 0


@pytest.mark.parametrize("option", ["--rows", "--columns", "--value"])
def test_a_misspelled_name_is_found_before_a_sweep_runs(
    option: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.engine.run.drive", lambda *_: pytest.fail("it was run"))
    Path("s.toml").write_text(
        '[sweep]\nworkloads = "w.csv"\nclusters = "4x4"\npolicies = ["paper", "headway"]\n'
    )
    outcome = headway(capsys, "sweep", "s.toml", option, "polcy")
    assert outcome.status == 2
    assert "unknown name 'polcy'." in outcome.err
    assert not Path("s").exists()


def test_an_unknown_job_among_many_does_not_list_them_all() -> None:
    assert did_you_mean("x", map(str, range(60_000))) == " There are 60,000, from '0' to '59999'."
    assert did_you_mean("x", "ab") == " Known: a, b."


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("simulate /dev/zero", "/dev/zero, line 1: not a text file"),
        ("simulate zero.parquet", "zero.parquet: is not a Parquet file."),
        ("explain /dev/zero 1", "/dev/zero, line 1: not a text file"),
        ("explain zero.parquet 1", "zero.parquet: is not a timeline"),
        ("report /dev/zero -o x.svg", "/dev/zero: is not a timeline"),
    ],
)
def test_an_endless_file_is_refused_at_its_beginning(
    command: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    os.symlink("/dev/zero", "zero.parquet")
    outcome = headway(capsys, *command.split())
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err.startswith(f"headway: error: {message}")


def test_a_panic_on_damaged_parquet_is_one_line(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def panic(*_: object, **__: object) -> None:
        os.write(2, b"thread '<unnamed>' panicked at crates/polars-parquet\nnote: run with\n")
        raise polars.exceptions.PanicException("range end out of bounds")

    Path("w.parquet").write_bytes(b"PAR1 and more PAR1")
    monkeypatch.setattr(polars, "read_parquet_metadata", panic)
    outcome = headway(capfd, "simulate", "w.parquet")
    assert outcome.err == ("headway: error: w.parquet: is damaged: 'range end out of bounds'.\n")
