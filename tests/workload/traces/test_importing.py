"""The rules of an import: assignment, selection, order, and errors."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.domain.errors import InputError
from headway.domain.models import MODELS
from headway.workload.traces.assignment import assigned, drawn_model
from headway.workload.traces.importing import Choice, import_trace
from headway.workload.traces.records import SECOND_NS, TraceJob
from headway.workload.traces.registry import FORMATS
from workload.traces.samples import import_text

POLLUX = "timestamp,duration,num_gpus\n"
HELIOS = "job_id,gpu_num,submit_time,start_time,end_time\n"
DAY = "2020-01-01 00:00:"


@given(st.integers(1, 10**18), st.integers(0, 10**6), st.integers(0, 5))
def test_any_duration_is_kept_to_half_a_nanosecond_per_iteration(
    duration_ns: int, number: int, seed: int
) -> None:
    job = assigned(TraceJob(str(number), 0, duration_ns, 2), 0, seed, None, 0)
    computing_ns = job.iterations * (job.forward_ns + job.backward_ns)
    assert 2 * abs(computing_ns - max(2, duration_ns)) <= job.iterations
    usual = MODELS[job.model]
    if job.iterations > 1:
        usual_ns = usual.forward_ns + usual.backward_ns
        assert abs(job.forward_ns + job.backward_ns - usual_ns) <= usual_ns / 3


def test_a_duration_shorter_than_an_iteration_is_one_iteration() -> None:
    job = assigned(TraceJob("a", 0, 10_000_000, 1), 0, 0, None, 0)
    assert job.iterations == 1
    assert job.forward_ns + job.backward_ns == 10_000_000


def test_models_are_drawn_uniformly_and_by_id_and_seed_alone() -> None:
    counts = dict.fromkeys(MODELS, 0)
    for number in range(4000):
        counts[drawn_model(str(number), 0).name] += 1
    assert all(900 < count < 1100 for count in counts.values())
    assert any(drawn_model("a", seed) != drawn_model("a", 0) for seed in range(20))


@pytest.mark.parametrize(
    ("job_id", "seed", "model"),
    [
        ("0", 0, "inception-v3"),
        ("0", 1, "lstm-ptb"),
        ("application_1506638472019_14199", 1, "resnet50"),
    ],
)
def test_a_seed_draws_the_same_models_in_every_version(job_id: str, seed: int, model: str) -> None:
    assert drawn_model(job_id, seed).name == model


def test_models_do_not_depend_on_order_or_on_dropped_rows(tmp_path: Path) -> None:
    rows = [f"job{n},{n % 3},{DAY}{n:02},{DAY}{n:02},{DAY}59" for n in range(50)]
    models = {
        job.job_id: job.model
        for job in import_text(tmp_path, "helios", HELIOS + "\n".join(rows)).workload
    }
    random.Random(1).shuffle(rows)
    usable = [row for row in rows if row.split(",")[1] != "0"]
    for changed in (rows, usable):
        workload = import_text(tmp_path, "helios", HELIOS + "\n".join(changed)).workload
        assert {job.job_id: job.model for job in workload} == models


def test_equal_arrivals_stay_in_the_order_of_the_file_and_disorder_is_counted(
    tmp_path: Path,
) -> None:
    seconds = [5, 3, 5, 3, 4]
    rows = "".join(f"{DAY}{s:02},10,1\n" for s in seconds)
    found = import_text(tmp_path, "philly-pollux", POLLUX + rows)
    assert [job.job_id for job in found.workload] == ["1", "3", "4", "0", "2"]
    assert found.out_of_order == 3


def test_options_choose_by_gpus_by_time_and_by_count(tmp_path: Path) -> None:
    text = POLLUX + "".join(f"{DAY}{s:02},10,{1 + s % 4}\n" for s in range(20))
    choice = Choice(max_gpus=3, from_s=4, to_s=16, first=5)
    found = import_text(tmp_path, "philly-pollux", text, choice=choice)
    assert [job.job_id for job in found.workload] == ["4", "5", "6", "8", "9"]
    assert found.workload[0].arrival_ns == 0
    assert found.not_chosen == {
        "more than 3 GPUs": 5,
        "outside the window of time": 6,
        "after the first 5": 4,
    }
    assert found.unusable.total() == 0


def test_files_are_read_in_order_and_duplicate_ids_are_dropped(tmp_path: Path) -> None:
    first = HELIOS + f"a,1,{DAY}00,{DAY}00,{DAY}09\nb,1,{DAY}01,{DAY}01,{DAY}09\n"
    second = HELIOS + f"b,2,{DAY}02,{DAY}02,{DAY}09\nc,1,{DAY}03,{DAY}03,{DAY}09\n"
    found = import_text(tmp_path, "helios", first, second)
    assert [(job.job_id, job.gpus) for job in found.workload] == [("a", 1), ("b", 1), ("c", 1)]
    assert found.unusable == {"duplicate id": 1}
    pollux = POLLUX + f"{DAY}00,10,1\n"
    assert len(import_text(tmp_path, "philly-pollux", pollux, pollux).workload) == 2


ROWS = {
    "no GPU": ("a,0,{0},{0},{9}", "gpu_num): a job must have at least 1 GPU, not 0."),
    "never started": ("a,1,{0},,{9}", "start_time): must be a time."),
    "no end time: still running, or not logged": ("a,1,{0},{0},None", "end_time): must be a time."),
    "ran for no time": ("a,1,{0},{9},{9}", "end_time): a job must run for more than 0 s."),
    "ends before it starts": ("a,1,{0},{9},{0}", "end_time): must not be before the start."),
    "invalid value": (
        "a,1,soon,{0},{9}",
        "submit_time): must be a time such as 2017-10-07 01:12:09, not 'soon'.",
    ),
    "wrong number of fields": ("a,1,{0},{9}", "4 fields, but there are 5 columns."),
}


@pytest.mark.parametrize("reason", ROWS)
def test_an_unusable_row_is_counted_by_its_reason_or_an_error(reason: str, tmp_path: Path) -> None:
    row, message = ROWS[reason]
    times = [f"{DAY}{second:02}" for second in range(10)]
    text = HELIOS + f"good,1,{times[0]},{times[0]},{times[9]}\n" + row.format(*times) + "\n"
    found = import_text(tmp_path, "helios", text)
    assert found.unusable == {reason: 1}
    path = str(tmp_path / "0.csv")
    with pytest.raises(InputError) as caught:
        import_trace("helios", [path], strict=True)
    assert str(caught.value).startswith(f"{path}, line 3")
    assert str(caught.value).endswith(message)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("-1", "negative time"),
        ("nan", "invalid value"),
        ("1e400", "invalid value"),
        ("1_0", "invalid value"),
        ("1e12", "invalid value"),
    ],
)
def test_an_invalid_time_is_counted(value: str, reason: str, tmp_path: Path) -> None:
    header = "job_id,num_gpu,submit_time,duration\n"
    found = import_text(tmp_path, "chronus", f"{header}a,1,{value},5\nb,1,0,5\n")
    assert found.unusable == {reason: 1}


def test_an_import_without_jobs_is_an_error_with_the_reasons(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        import_text(tmp_path, "philly-pollux", POLLUX + f"{DAY}00,10,0\n{DAY}00,0,1\n")
    assert "no jobs are left (no GPU: 1; ran for no time: 1)." in str(caught.value)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("timestamp,num_gpus\n", "line 1: missing column duration."),
        ("x\n", "line 1: missing columns timestamp, duration, num_gpus."),
        (
            "timestamp,duration,duration,num_gpus\n",
            "line 1, column 3: duplicate column 'duration'.",
        ),
    ],
)
def test_columns_must_be_present_exactly_once(header: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        import_text(tmp_path, "philly-pollux", header)
    assert str(caught.value).endswith(message)


def test_extra_columns_and_their_order_are_ignored(tmp_path: Path) -> None:
    text = f"more,num_gpus,timestamp,x,duration\nm,2,{DAY}00,x,10\n"
    assert import_text(tmp_path, "philly-pollux", text).workload[0].gpus == 2


PHILLY_JOB = {
    "jobid": "a",
    "submitted_time": f"{DAY}00",
    "attempts": [
        {
            "start_time": f"{DAY}01",
            "end_time": f"{DAY}09",
            "detail": [{"ip": "m", "gpus": ["gpu0"]}],
        }
    ],
}
ONE = json.dumps(PHILLY_JOB)

PHILLY = {
    "an object": ("{}", "line 1: must be a JSON array of jobs, [{…}, {…}]."),
    "a number in the array": ("[\n1]", "line 2: a job must be a JSON object, {…}."),
    "a cut array": (f"[{ONE},\n", "line 2: the file is truncated: the JSON array does not end."),
    "a cut job": (f"[\n{ONE[:50]}", "line 2: the file is truncated: this job does not end."),
    "no comma": (
        f"[{ONE}\n{ONE}]",
        "line 2: a job must be followed by a comma or the end of the array.",
    ),
    "broken syntax": (
        '[{"a": 1,\n "b" 2' + " " * 100 + "}]",
        "line 2: not JSON: Expecting ':' delimiter.",
    ),
    "deep nesting": ('[{"a":' + "[" * 200_000, "line 1: not valid JSON: nested too deeply"),
    "a number of 5,000 digits": ('[{"a": ' + "9" * 5000 + "}]", "line 1: not valid JSON: a number"),
    "an endless string": ('[{"a": "' + "x" * 9_500_000, "line 1: a job longer than 8,388,608"),
}


@pytest.mark.parametrize("name", PHILLY)
def test_an_error_in_philly_json_names_the_line(name: str, tmp_path: Path) -> None:
    text, message = PHILLY[name]
    with pytest.raises(InputError) as caught:
        import_text(tmp_path, "philly", text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        {"jobid": ""},
        {"jobid": 3},
        {"attempts": None},
        {"attempts": ["x"]},
        {"attempts": [{"start_time": 1, "end_time": 2, "detail": []}]},
        {"submitted_time": None},
    ],
)
def test_philly_jobs_of_another_shape_are_counted(change: object, tmp_path: Path) -> None:
    assert isinstance(change, dict)
    other = json.dumps(PHILLY_JOB | {"jobid": "b"} | change)
    found = import_text(tmp_path, "philly", f"[{ONE}, {other}]")
    assert found.unusable == {"invalid value": 1}


def test_philly_jobs_may_span_chunks(tmp_path: Path) -> None:
    jobs = [PHILLY_JOB | {"jobid": f"jób {n}", "pad": "é" * (n * 37 % 999)} for n in range(3000)]
    for indent in (None, 2):
        text = json.dumps(jobs, indent=indent, ensure_ascii=False)
        workload = import_text(tmp_path, "philly", text).workload
        assert [job.job_id for job in workload] == [f"jób {n}" for n in range(3000)]


@pytest.mark.slow
def test_a_large_file_is_read_in_bounded_memory(tmp_path: Path) -> None:
    """200 MB, of which one job in a thousand is kept, in far less memory than that."""
    path = tmp_path / "large.json"
    small = json.dumps(PHILLY_JOB | {"pad": "x" * 1700})
    with path.open("w") as stream:
        stream.write("[")
        for number in range(100_000):
            gpus = '["gpu0", "gpu1"]' if number % 1000 else '["gpu0"]'
            text = small.replace('"a"', f'"{number}"').replace('["gpu0"]', gpus)
            stream.write(("," if number else "") + text)
        stream.write("]")
    assert path.stat().st_size > 180 * 2**20
    code = (
        "import resource, sys\n"
        "from headway.workload.traces.importing import Choice, import_trace\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "found = import_trace('philly', sys.argv[1:], Choice(max_gpus=1))\n"
        "grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before\n"
        "print(len(found.workload), grown // 1024)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    jobs, grown_mb = map(int, done.stdout.split())
    assert jobs == 100
    assert grown_mb < 60


def test_an_unknown_format_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match="unknown format 'phily'"):
        import_trace("phily", ["x"])
    with pytest.raises(InputError, match=f"Known: {', '.join(sorted(FORMATS))}"):
        import_trace("zzz", ["x"])


def test_times_beyond_the_simulator_s_last_instant_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="job '1': must be at most"):
        import_text(tmp_path, "philly-pollux", POLLUX + f"{DAY}00,10,1\n9000-01-01 00:00:00,10,1\n")


def test_a_second_is_a_billion_nanoseconds(tmp_path: Path) -> None:
    workload = import_text(
        tmp_path, "philly-pollux", POLLUX + f"{DAY}00,10,1\n{DAY}01.250,10,1\n"
    ).workload
    assert workload[1].arrival_ns == 5 * SECOND_NS // 4
