"""The meaning of each format's columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headway.domain.errors import InputError
from headway.workload.traces.importing import Choice, import_trace
from headway.workload.traces.records import SECOND_NS
from workload.traces.samples import import_text, read_sample, sample

GB = 2**30


def told(form: str) -> dict[str, tuple[float, int]]:
    """Return the seconds and the GPUs of each job of a sample."""
    return {job.job_id: (job.duration_ns / SECOND_NS, job.gpus) for job in read_sample(form)[0]}


def test_philly_adds_up_the_attempts_that_started_and_ended() -> None:
    assert told("philly") == {"application_1_0001": (74 + 3600, 8), "application_1_0004": (5, 1)}
    assert read_sample("philly")[1].dropped == {
        "never started": 1,
        "no end time: still running, or not logged": 1,
        "no GPU": 1,
        "ends before it starts": 1,
    }


def test_pollux_rows_are_numbered_below_the_header() -> None:
    jobs = told("philly-pollux")
    assert len(jobs) == 30
    assert [jobs[name] for name in ("0", "2")] == [(66, 1), (860_662, 1)]


def test_muri_keeps_its_iterations_its_iteration_times_and_its_models() -> None:
    workload = import_trace("muri", sample("muri")).workload
    job = workload.find("2")
    assert (job.iterations, job.forward_ns + job.backward_ns) == (20_901_556, 214_000_000)
    assert (job.model, job.gpus, job.arrival_ns) == ("vgg16", 8, 724_670 * SECOND_NS)
    assert job.gradient_bytes == 4 * 138_357_544
    assert job.memory_bytes == 16 * 138_357_544 + 2 * GB
    assert job.forward_ns * 3 == job.backward_ns * 2
    assert len(workload) == 1494


def test_chronus_counts_minutes_and_drops_jobs_without_gpus() -> None:
    assert told("chronus")["0"] == (211 * 60, 4)
    assert read_sample("chronus")[1].dropped == {"no GPU": 2}


def test_helios_and_acme_jobs_run_from_start_to_end() -> None:
    assert told("helios")["7003"] == (7200, 16)
    # Kalos counts the time in the queue into its durations.
    assert told("acme")["dlca"] == (8, 64)
    assert told("acme")["9002"] == (2693, 8)


def test_acme_times_of_different_zones_are_compared_as_instants() -> None:
    arrivals = {job.job_id: job.arrival_ns for job in read_sample("acme")[0]}
    assert arrivals["dlca"] - arrivals["9001"] == 698 * SECOND_NS


def test_sacct_reads_text_and_json() -> None:
    assert told("sacct") == {
        "1201": (65_608, 16),
        "1202_1": (3_298, 1),
        "1202_2": (2_098, 2),
        "1207": (8_340, 8),
        "2001": (7_200, 8),
        "2005": (700, 2),
    }
    arrivals = {job.job_id: job.arrival_ns for job in read_sample("sacct")[0]}
    assert arrivals["1207"] - arrivals["1201"] == 2_400 * SECOND_NS
    assert arrivals["2005"] == 1_790_000_120 * SECOND_NS
    assert read_sample("sacct")[1].dropped == {
        "no GPU": 2,
        "never started": 2,
        "no end time: still running, or not logged": 2,
        "ran for no time": 1,
    }


def test_sacct_s_text_may_end_its_lines_with_a_bar(tmp_path: Path) -> None:
    text = "JobID|Submit|Start|End|AllocTRES|\n7|2026-10-01T08:00:00|2026-10-01T08:00:00|"
    found = import_text(tmp_path, "sacct", f"{text}2026-10-01T08:00:09|gres/gpu=2|\n")
    assert [(job.job_id, job.gpus) for job in found.workload] == [("7", 2)]


@pytest.mark.parametrize("before", ["\n \t", "\ufeff", "\ufeff\r\n"])
def test_sacct_s_json_may_begin_with_space_or_a_byte_order_mark(
    before: str, tmp_path: Path
) -> None:
    times = '"time": {"submission": 1, "start": 2, "end": 9}'
    gpus = '"tres": {"allocated": [{"type": "gres", "name": "gpu", "count": 2}]}'
    text = f'{before}{{"jobs": [{{"job_id": 5, {times}, {gpus}}}]}}'
    found = import_text(tmp_path, "sacct", text)
    assert [(job.job_id, job.gpus) for job in found.workload] == [("5", 2)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "must begin with a header: JobID|Submit|Start|End|AllocTRES."),
        ("JobID|Submit|Start|End\n", "missing column AllocTRES."),
        ('{"jobs": 3}', "must be a JSON array of jobs"),
        ('{"meta": {}, "n": 12}', "has no 'jobs'."),
        ('{"meta" 1}', "a key must be followed by a colon."),
        ('{"meta": {}, "jobs": [{"job_id": 1}', "the file is truncated"),
        ('{"meta": tru, "more": "and more, so that this is not the end"}', "not JSON"),
    ],
)
def test_sacct_files_that_are_not_are_refused(text: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        import_text(tmp_path, "sacct", text)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("job", "problem"),
    [
        ({"job_id": "1"}, "job_id: must be a whole number, not '1'."),
        ({"tres": {}}, "allocated: must be a list, not None."),
        ({"tres": {"allocated": [1]}}, "allocated: must hold JSON objects, not 1."),
        ({"time": {"start": 1.5}}, "start: must be seconds since 1970, not 1.5."),
        ({"time": {"start": -1}}, "start: must be 0 or more, not -1."),
        ({"time": {"start": 10**12}}, "start: must be at most 2,305,843,009, not 1000000000000."),
    ],
)
def test_jobs_of_sacct_that_cannot_be_read_are_named(
    job: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    times = {"submission": 1, "start": 2, "end": 9}
    gpus = {"allocated": [{"type": "gres", "name": "gpu", "count": 2}]}
    path = tmp_path / "sacct.json"
    path.write_text(json.dumps({"jobs": [{"job_id": 1, "time": times, "tres": gpus} | job]}))
    with pytest.raises(InputError) as caught:
        import_trace("sacct", [str(path)], strict=True)
    assert str(caught.value) == f"{path}, line 1, {problem}"


def test_pai_joins_its_tables() -> None:
    jobs = {job.job_id: job for job in read_sample("pai")[0]}
    # Two workers of half a GPU each, from the first start of an instance to the last end.
    assert (jobs["aaaa01"].gpus, jobs["aaaa01"].gpu_milli) == (2, 500)
    assert jobs["aaaa01"].duration_ns == (4970 - 1030) * SECOND_NS
    assert jobs["aaaa01"].arrival_ns == 1000 * SECOND_NS
    # Its instance has no times, its task has.
    assert (jobs["aaaa02"].gpus, jobs["aaaa02"].gpu_milli) == (2, 1000)
    assert jobs["aaaa02"].duration_ns == (1490 - 910) * SECOND_NS
    assert read_sample("pai")[1].dropped == {
        "never started": 2,
        "no GPU": 1,
        "not in pai_job_table": 1,
    }


def test_pai_without_a_table_of_jobs_takes_the_start_for_the_arrival(tmp_path: Path) -> None:
    task = "j,worker,2.0,Terminated,100.0,160.0,600.0,29.3,100.0,V100\n"
    header = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,"
    for text in (task, f"{header}gpu_type\n{task}"):
        job = import_text(tmp_path, "pai", text).workload[0]
        assert (job.job_id, job.gpus, job.memory_bytes) == ("j", 2, 16 * GB)


def test_a_pai_job_with_an_unreadable_task_is_left_out_and_counted_once(tmp_path: Path) -> None:
    tasks = (
        "a,worker,1.0,Terminated,100.0,160.0,600.0,29.3,100.0,V100\n"
        "a,chief,1.0,Terminated,soon,160.0,600.0,29.3,many,V100\n"
        "b,worker,1.0,Terminated,100.0,160.0,600.0,29.3,100.0,V100\n"
    )
    found = import_text(tmp_path, "pai", tasks)
    assert [job.job_id for job in found.workload] == ["b"]
    assert found.unusable == {"invalid value": 1}


def test_pai_reads_its_simulator_s_flat_file(tmp_path: Path) -> None:
    found = import_text(
        tmp_path,
        "pai",
        "job_id,num_inst,submit_time,num_cpu,num_gpu,gpu_type,duration,user\n"
        "a,1,0,6,0.5,MISC,100,u\nb,4,5,6,4.0,T4,60,u\nc,1,7,6,0,CPU,9,u\n",
    )
    a, b = found.workload
    assert (a.gpus, a.memory_bytes) == (1, 8 * GB)
    assert (b.gpus, b.memory_bytes) == (4, 16 * GB)
    assert found.unusable == {"no GPU": 1}


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (("j,i,u,Terminated,1.0,2.0\n",), "give PAI's pai_task_table and the tables beside it"),
        (("a,b,c\n",), "3 fields; PAI's tables of jobs, tasks and instances have 6, 10, 9"),
    ],
)
def test_pai_says_which_tables_it_needs(
    texts: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as caught:
        import_text(tmp_path, "pai", *texts)
    assert message in str(caught.value)


def test_openb_pods_take_their_share_of_a_gpu_s_memory() -> None:
    files = sample("openb")
    pods = {job.job_id: job for job in import_trace("openb", files).workload}
    assert pods["openb-pod-0000"].memory_bytes == 16 * GB
    assert pods["openb-pod-0001"].memory_bytes == 16 * GB * 460 // 1000
    larger = import_trace("openb", files, Choice(gpu_memory_gb=32)).workload
    assert larger.find("openb-pod-0001").memory_bytes == 32 * GB * 460 // 1000
    assert read_sample("openb")[1].dropped == {"no GPU": 2, "never started": 1}


def test_gavel_s_steps_become_times_by_its_throughputs() -> None:
    jobs = told("gavel")
    assert jobs == {"0": (7931 / 5, 1), "1": (11005 / 40, 2), "2": (pytest.approx(36030 / 16.5), 4)}
    assert read_sample("gavel")[1].dropped == {
        "no throughput for the job type": 1,
        "wrong number of fields": 1,
    }


def test_gavel_without_throughputs_says_what_to_give() -> None:
    with pytest.raises(InputError, match="steps but no durations; give Gavel's throughputs file"):
        import_trace("gavel", [path for path in sample("gavel") if path.endswith(".trace")])


def test_shockwave_s_lines_have_their_own_durations(tmp_path: Path) -> None:
    line = "ResNet-18 (batch size 32)\tc\td\t-n\t1\t1000\t2\tstatic\t1\t-1.0\t250\t17\n"
    job = import_text(tmp_path, "gavel", line).workload[0]
    assert (job.iterations, job.gpus, job.model) == (1000, 2, "resnet18")
    assert job.iterations * (job.forward_ns + job.backward_ns) == 250 * SECOND_NS


@pytest.mark.parametrize("text", ["[1]", "{", '{"k80": {}}', "[" * 100_000])
def test_gavel_refuses_invalid_throughputs(text: str, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        import_trace("gavel", [*sample("gavel")[:1], str(path)])
    assert caught.value.source == str(path)
