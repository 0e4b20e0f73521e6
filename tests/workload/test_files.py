"""Workload files: reading, writing and unit conversion."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.domain.errors import InputError
from headway.domain.gpus import ALIASES
from headway.domain.job import Job
from headway.domain.workload import Workload
from headway.workload.files import read_workload, write_workload
from headway.workload.generate import generate_workload


def read(tmp_path: Path, text: str) -> Workload:
    path = tmp_path / "w.csv"
    path.write_text(text)
    return read_workload(path)


def test_a_model_fills_in_what_the_row_omits(tmp_path: Path) -> None:
    workload = read(
        tmp_path,
        "job_id,arrival_s,gpus,iterations,model,forward_ms,memory_mb\n"
        "a,1.5,2,10,vgg16,,\n"
        "b,0,1,3,vgg16,12.25,100\n",
    )
    plain, changed = workload
    assert (plain.arrival_ns, plain.forward_ns) == (1_500_000_000, 35_800_000)
    assert (changed.forward_ns, changed.backward_ns) == (12_250_000, 53_700_000)
    assert (changed.memory_bytes, changed.gradient_bytes) == (100 * 2**20, round(526.4 * 2**20))


def test_columns_may_replace_the_model_and_come_in_any_order(tmp_path: Path) -> None:
    job = read(
        tmp_path,
        "gpus,job_id,memory_mb,gradient_mb,forward_ms,backward_ms,iterations,arrival_s\n"
        "4,x,1000.5,0,0.000001,2,7,0.1\n",
    )[0]
    assert job == Job("x", 100_000_000, 4, 7, 1, 2_000_000, 0, round(1000.5 * 2**20))


def test_an_unknown_model_is_a_label_when_the_row_has_all_figures(tmp_path: Path) -> None:
    header = "job_id,arrival_s,gpus,iterations,model,forward_ms,backward_ms,gradient_mb,memory_mb\n"
    assert read(tmp_path, header + "a,0,1,1,my-net,1,2,3,4\n")[0].model == "my-net"


def test_conversion_rounds_as_python_does(tmp_path: Path) -> None:
    for text in ("0.0000000005", "2.5e-9", "1e-9", "1199.9999999995", "0.1", "1e9"):
        job = read(tmp_path, f"job_id,arrival_s,gpus,iterations,model\na,{text},1,1,vgg16\n")[0]
        assert job.arrival_ns == round(float(text) * 1e9)


def test_spaces_blank_lines_a_byte_order_mark_and_crlf_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "w.csv"
    path.write_bytes(
        b"\xef\xbb\xbfjob_id, arrival_s ,gpus,iterations,model\r\n"
        b"\r\na , 1 , 2,3, vgg16\r\n,,,,\r\n"
    )
    workload = read_workload(path)
    assert len(workload) == 1
    assert (workload[0].job_id, workload[0].gpus) == ("a", 2)
    assert workload.lines == (3,)


def test_a_dash_reads_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    class Standard:
        buffer = io.BytesIO(b"job_id,arrival_s,gpus,iterations,model\na,0,1,1,vgg16\n")

    monkeypatch.setattr("sys.stdin", Standard)
    workload = read_workload("-")
    assert workload.source == "standard input"
    assert len(workload) == 1


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_generated_workload_survives_writing_and_reading(tmp_path: Path, suffix: str) -> None:
    workload = generate_workload("paper", seed=4)
    path = tmp_path / f"w.{suffix}"
    write_workload(workload, path)
    assert read_workload(path).jobs == workload.jobs


texts = (
    st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\u0085"), min_size=1)
    .map(str.strip)
    .filter(bool)
)


def is_own_name(text: str) -> bool:
    """Whether a name is not a shorter one for a known type."""
    return text not in ALIASES


labels = st.fixed_dictionaries(
    {},
    optional={
        "note": texts.map("x{}".format),
        "weight": st.one_of(
            st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False)
        ),
    },
)

jobs = st.builds(
    Job,
    job_id=texts,
    arrival_ns=st.integers(0, 10**15),
    gpus=st.integers(1, 10**6),
    iterations=st.integers(1, 10**6),
    forward_ns=st.integers(1, 10**12),
    backward_ns=st.integers(1, 10**12),
    gradient_bytes=st.integers(0, 2**50),
    memory_bytes=st.integers(0, 2**50),
    model=st.sampled_from(["", "vgg16", "my-net"]),
    priority=st.sampled_from([0, 0, 1, -1, 10**6]),
    measured_on=st.one_of(st.sampled_from(["v100-sxm2", "h100-sxm5"]), texts.filter(is_own_name)),
    exclusive=st.booleans(),
    labels=labels,
)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@given(st.lists(jobs, min_size=1, max_size=5, unique_by=lambda job: job.job_id))
def test_any_workload_survives_writing_and_reading(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, members: list[Job]
) -> None:
    path = tmp_path_factory.mktemp("trip") / f"w.{suffix}"
    write_workload(Workload(members), path)
    assert read_workload(path).jobs == tuple(members)


def test_a_priority_is_optional_and_a_whole_number(tmp_path: Path) -> None:
    path = tmp_path / "w.csv"
    path.write_text(
        "job_id,arrival_s,gpus,iterations,model,priority\na,0,1,1,vgg16,-7\nb,0,1,1,vgg16,\n"
    )
    assert [job.priority for job in read_workload(path)] == [-7, 0]
    path.write_text("job_id,arrival_s,gpus,iterations,model,priority\na,0,1,1,vgg16,1000001\n")
    with pytest.raises(InputError, match=r"line 2, column 6 .priority.: must be at most 1,000,000"):
        read_workload(path)


def test_a_csv_without_overrides_has_only_the_five_columns(tmp_path: Path) -> None:
    path = tmp_path / "w.csv"
    write_workload(generate_workload("paper", seed=0), path)
    assert path.read_text().splitlines()[0] == "job_id,arrival_s,gpus,iterations,model"
