"""Requirements of every trace format, on the samples in tests/data/traces."""

from __future__ import annotations

import contextlib
import gzip
import random
from pathlib import Path

import pytest

from headway.domain.errors import InputError
from headway.domain.models import MODELS
from headway.workload.files import read_workload, write_workload
from headway.workload.traces.importing import Choice, import_trace
from headway.workload.traces.registry import FORMATS
from workload.traces.samples import read_sample, sample

ROOT = Path(__file__).parents[3]
every_format = pytest.mark.parametrize("form", FORMATS)


@every_format
def test_every_job_keeps_its_duration_and_its_gpus(form: str) -> None:
    told = {job.job_id: job for job in read_sample(form)[0]}
    workload = import_trace(form, sample(form)).workload
    assert {job.job_id for job in workload} == set(told)
    for job in workload:
        computing_ns = job.iterations * (job.forward_ns + job.backward_ns)
        # Half a nanosecond an iteration, doubled to stay with whole numbers.
        assert 2 * abs(computing_ns - told[job.job_id].duration_ns) <= job.iterations
        assert job.gpus == told[job.job_id].gpus


@every_format
def test_jobs_are_sorted_by_arrival_from_zero_with_the_traces_gaps(form: str) -> None:
    told = {job.job_id: job.arrival_ns for job in read_sample(form)[0]}
    workload = import_trace(form, sample(form)).workload
    arrivals = [job.arrival_ns for job in workload]
    assert arrivals[0] == 0
    assert arrivals == sorted(arrivals)
    first_ns = min(told.values())
    assert all(job.arrival_ns == told[job.job_id] - first_ns for job in workload)


@every_format
def test_every_row_becomes_a_job_or_is_counted(form: str) -> None:
    jobs, log = read_sample(form)
    found = import_trace(form, sample(form))
    assert len(found.workload) == len(jobs)
    assert found.unusable == log.dropped
    assert found.not_chosen.total() == 0


@every_format
def test_the_same_seed_gives_the_same_jobs_and_only_models_depend_on_it(form: str) -> None:
    jobs = import_trace(form, sample(form), Choice(seed=3)).workload.jobs
    assert import_trace(form, sample(form), Choice(seed=3)).workload.jobs == jobs
    other = import_trace(form, sample(form), Choice(seed=4)).workload.jobs
    assert [(j.job_id, j.arrival_ns, j.gpus) for j in jobs] == [
        (j.job_id, j.arrival_ns, j.gpus) for j in other
    ]


@every_format
def test_strict_makes_the_first_unusable_job_an_error_that_names_its_line(form: str) -> None:
    if not read_sample(form)[1].dropped:
        assert import_trace(form, sample(form), strict=True).unusable.total() == 0
        return
    with pytest.raises(InputError) as caught:
        import_trace(form, sample(form), strict=True)
    assert caught.value.source in sample(form)
    assert caught.value.line is not None


@every_format
def test_gzip_is_read_like_a_plain_file_and_refused_if_truncated_or_damaged(
    form: str, tmp_path: Path
) -> None:
    packed = []
    for path in map(Path, sample(form)):
        data = path.read_bytes()
        plain = gzip.decompress(data) if path.suffix == ".gz" else data
        packed.append(tmp_path / f"{path.name.removesuffix('.gz')}.gz")
        packed[-1].write_bytes(gzip.compress(plain))
    files = list(map(str, packed))
    assert import_trace(form, files).workload.jobs == (
        import_trace(form, sample(form)).workload.jobs
    )
    whole = packed[0].read_bytes()
    for change, message in (
        (whole[: len(whole) - 12], "the gzip file is truncated."),
        (whole[:20] + bytes(40) + whole[60:], "the gzip file is damaged."),
    ):
        packed[0].write_bytes(change)
        with pytest.raises(InputError) as caught:
            import_trace(form, files)
        assert caught.value.problem == message
        assert caught.value.source == files[0]


@every_format
@pytest.mark.parametrize("content", [b"", b"\n \n", "x,y\n1,2\n".encode("utf-16"), b"\xff\xe9,1\n"])
def test_files_that_are_not_traces_are_refused(form: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        import_trace(form, [str(path)])
    assert caught.value.source == str(path)
    assert "\n" not in str(caught.value)


@every_format
def test_an_imported_workload_survives_writing_and_reading(form: str, tmp_path: Path) -> None:
    workload = import_trace(form, sample(form)).workload
    for name in ("w.csv", "w.parquet"):
        write_workload(workload, tmp_path / name)
        assert read_workload(tmp_path / name).jobs == workload.jobs


@every_format
def test_memory_gb_is_the_memory_of_every_job(form: str) -> None:
    workload = import_trace(form, sample(form), Choice(memory_gb=16)).workload
    assert {job.memory_bytes for job in workload} == {16 * 2**30}


@every_format
def test_models_of_the_paper_keep_its_sizes(form: str) -> None:
    told = {job.job_id: job for job in read_sample(form)[0]}
    for job in import_trace(form, sample(form)).workload:
        if told[job.job_id].model is None:
            assert job.gradient_bytes == MODELS[job.model].gradient_bytes
            if told[job.job_id].gpu_milli is None:
                assert job.memory_bytes == MODELS[job.model].memory_bytes


@every_format
def test_every_format_has_a_page(form: str) -> None:
    assert (ROOT / "docs" / "formats" / f"{form}.md").is_file()
    assert f"formats/{form}.md" in (ROOT / "mkdocs.yml").read_text()
    assert f"({form}.md)" in (ROOT / "docs" / "formats" / "index.md").read_text()


@every_format
def test_a_damaged_trace_is_read_or_refused_but_never_breaks_the_reader(
    form: str, tmp_path: Path
) -> None:
    draw = random.Random(form)
    copies = []
    for path in map(Path, sample(form)):
        data = path.read_bytes()
        plain = gzip.decompress(data)[:3000] if path.suffix == ".gz" else data
        copies.append((tmp_path / path.name.removesuffix(".gz"), plain))
    files = [str(path) for path, _ in copies]
    for _ in range(200):
        for path, plain in copies:
            path.write_bytes(damaged(plain, draw))
        for strict in (False, True):
            with contextlib.suppress(InputError):
                import_trace(form, files, strict=strict)


def damaged(data: bytes, draw: random.Random) -> bytes:
    """Return the bytes with a few cuts, doublings and other bytes."""
    changed = bytearray(data)
    for _ in range(draw.randint(0, 4)):
        start = draw.randrange(len(changed) + 1)
        end = start + draw.choice([0, 1, 1, 5, 200])
        changed[start:end] = draw.choice(
            [b"", b"9", b"-", b",", b'"', b"\n", b"\xff", b"\x00", b"null", bytes(changed[:50])]
        )
    return bytes(changed)
