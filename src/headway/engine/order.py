"""Priority order, and progress without events."""

from __future__ import annotations

from headway.domain.limits import MAX_BYTES
from headway.engine.state import State
from headway.jit import inlined, part
from headway.network.messages import is_shared


@inlined
def comes_before(s: State, job: int, other: int) -> bool:
    """Priority order: descending priority, then ascending (key, index)."""
    jobs = s.cluster.jobs
    if jobs[job].priority != jobs[other].priority:
        return bool(jobs[job].priority > jobs[other].priority)
    key, other_key = jobs[job].priority_key, jobs[other].priority_key
    return bool(key < other_key or (key == other_key and job < other))


@inlined
def message_comes_before(s: State, message: int, other: int) -> bool:
    """Order of admission: jobs in priority order, then messages, which are in order of jobs."""
    waiters = s.waiters
    if waiters[message].priority != waiters[other].priority:
        return bool(waiters[message].priority > waiters[other].priority)
    key, other_key = waiters[message].key, waiters[other].key
    return bool(key < other_key or (key == other_key and message < other))


@part
def key_with(s: State, job: int, iterations_left: int) -> int:
    """Return the key that a placed job will have with this number of iterations left."""
    jobs = s.cluster.jobs
    left, remaining_ns = jobs[job].iterations_left, jobs[job].remaining_service_ns
    jobs[job].iterations_left = iterations_left
    jobs[job].remaining_service_ns = iterations_left * jobs[job].service_ns * jobs[job].gpus
    key = s.priority(s.cluster, job, s.rules[0].priority_parameter)
    jobs[job].iterations_left = left
    jobs[job].remaining_service_ns = remaining_ns
    return int(key)


@part
def skip_iterations(s: State, job: int, count: int, messages: int) -> None:
    """Count iterations of a job as done, with this number of messages each."""
    jobs, tally = s.cluster.jobs, s.tally
    jobs[job].iterations_left -= count
    jobs[job].remaining_service_ns -= count * jobs[job].service_ns * jobs[job].gpus
    jobs[job].priority_key = s.priority(s.cluster, job, s.rules[0].priority_parameter)
    for message in range(jobs[job].first_message, jobs[job].first_message + jobs[job].messages):
        s.waiters[message].key = jobs[job].priority_key
    tally[0].compute_tasks += count * s.job_progress[job].tasks_each
    tally[0].skipped_tasks += count * s.job_progress[job].tasks_each
    skip_messages(s, job, count * messages)


@part
def skip_messages(s: State, job: int, count: int) -> None:
    """Count messages of a job as sent."""
    s.tally[0].messages += count
    s.tally[0].skipped_tasks += count
    s.job_progress[job].sent += count


@part
def alone_bucket_bytes(s: State) -> int:
    """Return the most bytes that a message carries where no other job is."""
    if s.rules[0].buckets_if_shared != 0:
        return MAX_BYTES
    return int(s.cluster.system[0].bucket_bytes)


@part
def messages_now(s: State, job: int) -> int:
    """Return how many messages an iteration of a job takes while the same jobs are placed."""
    if s.rules[0].buckets_if_shared == 0:
        return int(s.job_progress[job].messages_each)
    count, bucket_bytes = 0, s.cluster.system[0].bucket_bytes
    first = s.cluster.jobs[job].first_message
    for message in range(first, first + s.cluster.jobs[job].messages):
        record = s.cluster.messages[message]
        if record.servers > 1:
            count += 1
            if is_shared(s.cluster, message):
                count += max(0, (record.size_bytes - 1) // bucket_bytes)
    return count


@part
def buckets_of(s: State, job: int) -> int:
    """Return how many messages the all-reduce of a job without a graph takes where it is alone.

    On one server there are none.
    """
    jobs, bucket_bytes = s.cluster.jobs, alone_bucket_bytes(s)
    if jobs[job].servers == 1:
        return 0
    return int(max(1, (jobs[job].gradient_bytes + bucket_bytes - 1) // bucket_bytes))
