"""Samples read back as written, and files from elsewhere are checked."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calibrate.network.drawing import draw_samples, model
from headway.calibrate.network.samples import Sample, read_samples, shots, write_samples
from headway.domain.errors import InputError

HEADER = "shot,k,message_bytes,group,time_ns\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "samples.csv"
    path.write_text(text)
    return path


def test_samples_read_back_as_written(tmp_path: Path) -> None:
    samples = draw_samples(random.Random(0), model(), repeats=2)
    write_samples(tmp_path / "samples.csv", samples)
    assert read_samples(tmp_path / "samples.csv") == samples
    assert (tmp_path / "samples.csv").read_text().startswith(HEADER)


def test_the_time_of_a_shot_is_that_of_its_last_group() -> None:
    samples = [Sample(7, 2, 64, 0, 30), Sample(3, 1, 64, 0, 20), Sample(7, 2, 64, 1, 50)]
    assert [(shot.number, shot.k, shot.time_ns) for shot in shots(samples)] == [
        (3, 1, 20),
        (7, 2, 50),
    ]


def test_without_a_column_shot_each_row_is_a_shot_of_its_own(tmp_path: Path) -> None:
    path = written(tmp_path, "time_ns, k ,message_bytes\n9,2,64\n\n8,2,64\n7,2,64\n")
    assert read_samples(path) == [
        Sample(0, 2, 64, 0, 9),
        Sample(1, 2, 64, 0, 8),
        Sample(2, 2, 64, 0, 7),
    ]


def test_without_a_column_group_the_rows_of_a_shot_are_numbered(tmp_path: Path) -> None:
    path = written(tmp_path, "shot,k,message_bytes,time_ns\n5,2,64,9\n5,2,64,8\n")
    assert [sample.group for sample in read_samples(path)] == [0, 1]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the file is empty; it must begin with the header shot,k,message_bytes,group,time_ns"),
        (HEADER, "there are no samples after the header"),
        ("k,message_bytes\n", "line 1: missing column time_ns"),
        ("k,message_bytes,time_ms\n", "line 1, column 3: unknown column 'time_ms'. Did you mean"),
        ("k,k,message_bytes,time_ns\n", "line 1, column 2: duplicate column 'k'"),
        (HEADER + "0,1,64,0\n", "line 2, column 5: 4 fields, but the header has 5 columns"),
        (HEADER + "0,1,64,0,0\n", "line 2, column 5 (time_ns): must be at least 1, not 0"),
        (HEADER + "0,1,64,0,1.5\n", "line 2, column 5 (time_ns): must be a whole number"),
        (HEADER + "0,1,64,0,\n", "line 2, column 5 (time_ns): must be a whole number, not ''"),
        (HEADER + "0,1,64,0,99999999999999999999\n", "column 5 (time_ns): must be at most"),
        (HEADER + "0,0,64,0,9\n", "line 2, column 2 (k): must be at least 1"),
        (HEADER + "0,1025,64,0,9\n", "line 2, column 2 (k): must be at most 1,024"),
        (HEADER + "0,1,0,0,9\n", "column 3 (message_bytes): must be at least 1"),
        (HEADER + "-1,1,64,0,9\n", "column 1 (shot): must be at least 0"),
        (HEADER + "0,2,64,0,9\n0,3,64,1,9\n", "line 3, column 2 (k): must be 2 as in the first"),
        (HEADER + "0,2,64,0,9\n0,2,65,1,9\n", "line 3, column 3 (message_bytes): must be 64 as"),
        (
            HEADER + "0,2,64,1,9\n0,2,64,1,9\n",
            "line 3, column 4 (group): duplicate group in",
        ),
        (HEADER + "0,1,64,0,9\n0,1,64,1,9\n", "line 3, column 1 (shot): shot 0 has k = 1"),
        ("shot,k,message_bytes,time_ns\n" + "0,1,64,9\n" * 2, "column 1 (shot): shot 0 has k = 1"),
        (HEADER + '0,1,64,0,"9\n', "not CSV"),
        ("\x00", "not a text file; samples are CSV"),
    ],
)
def test_errors_name_the_line_and_column(tmp_path: Path, text: str, problem: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InputError) as caught:
        read_samples(path)
    assert str(caught.value).startswith(str(path))
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


@given(data=st.binary(max_size=200))
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_read_or_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "hostile.csv"
    path.write_bytes(b"k,message_bytes,time_ns\n" + data)
    with contextlib.suppress(InputError):
        assert read_samples(path)


def test_a_file_is_complete_or_absent(tmp_path: Path) -> None:
    def interrupted() -> Iterator[Sample]:
        yield Sample(0, 1, 64, 0, 9)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_samples(tmp_path / "samples.csv", interrupted())
    assert list(tmp_path.iterdir()) == []
