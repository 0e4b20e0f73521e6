"""Steps 1 and 4 for messages: ends, admission, costs."""

from __future__ import annotations

import math

from headway.domain.records import COMMUNICATION, NOBODY
from headway.engine.events import cancel_rarely, schedule, schedule_rarely
from headway.engine.graphs import node_of_message
from headway.engine.ready import make_message_ready, note_end, record_task
from headway.engine.state import State
from headway.engine.watching import admit_by_port, ask_about, ask_admission
from headway.jit import inlined, part
from headway.network.laws.dispatch import update_costs
from headway.network.messages import is_shared
from headway.network.traffic import end_message, forget_changes, list_waiting, start_message
from headway.policies import registry

_admits = inlined(registry.admits)


@inlined
def complete_message(s: State, message: int, now_ns: int) -> None:
    """End a message: it leaves its ports; the next bucket is ready or an iteration done."""
    messages = s.cluster.messages
    job = messages[message].job
    end_message(s.cluster, s.traffic, message)
    if len(s.timeline) > 0:
        record, node = messages[message], node_of_message(s, message)
        ready_ns, start_ns = record.ready_ns, record.start_ns
        record_task(s, COMMUNICATION, job, NOBODY, node, ready_ns, start_ns, now_ns)
    s.tally[0].messages += 1
    s.job_progress[job].sent += 1
    messages[message].unsent_bytes -= messages[message].bytes
    if messages[message].unsent_bytes > 0:
        make_message_ready(s, message)
    elif s.cluster.jobs[job].graph != NOBODY:
        s.graph_steps.follow_message(s, message, now_ns)
    else:
        note_end(s, job)


@inlined
def admit(s: State, now_ns: int) -> None:
    """Step 4: start the ready messages that may, in order; update the costs that this changes."""
    if s.rules[0].buckets_if_shared != 0:
        _cut_if_shared(s, now_ns)
    if s.rules[0].admission_by_port != 0 and s.rules[0].needed_first == 0:
        admit_by_port(s)
    else:
        _ask_all(s, now_ns)
    changed = update_costs(s.cluster, s.traffic)
    for i in range(changed):
        _schedule_end(s, s.traffic.found[i], now_ns)
    forget_changes(s.traffic)


@part
def _cut_if_shared(s: State, now_ns: int) -> None:
    """Decide for each message that has become ready at this instant whether it is sent whole."""
    bucket_bytes = s.cluster.system[0].bucket_bytes
    for i in range(s.tally[0].asked):
        message = s.asked[i]
        record = s.cluster.messages[message]
        if record.ready_ns == now_ns and record.unsent_bytes > bucket_bytes:
            record.bytes = record.unsent_bytes
            if is_shared(s.cluster, message):
                record.bytes = bucket_bytes
            s.waiters[message].bytes = record.bytes


@part
def _ask_all(s: State, now_ns: int) -> None:
    """Ask about each ready message in order.

    A steady policy is not asked again about a message that it left waiting until a message has
    ended on one of its ports. A policy may name the time before which the message must not start;
    the last answer counts.
    """
    tally, rules = s.tally, s.rules
    steady = rules[0].admission_steady != 0
    if steady and tally[0].waiting > tally[0].asked:
        if rules[0].needed_first != 0:
            _ask_again(s)
        else:
            again = list_waiting(s.cluster, s.traffic)
            for i in range(again):
                ask_about(s, s.traffic.found[i])
    kept = 0
    for i in range(tally[0].asked):
        message = s.asked[i]
        answer = _answer(s, message)
        tally[0].questions += 1
        _postpone(s, message, answer, now_ns)
        if _admits(answer, now_ns):
            s.waiters[message].asked = 0
            tally[0].waiting -= 1
            if rules[0].needed_first != 0:
                _leave_waiting(s, message)
            start_message(s.cluster, s.traffic, message)
        elif steady:
            s.waiters[message].asked = 0
        else:
            s.asked[kept] = message
            kept += 1
    tally[0].asked = kept


@part
def _ask_again(s: State) -> None:
    """Ask about the waiting messages of all jobs on the ports where messages have ended."""
    cluster, traffic = s.cluster, s.traffic
    traffic.counts[0].searches += 1
    for i in range(traffic.counts[0].touched):
        link = cluster.ports[traffic.touched[i]].held
        while link != NOBODY:
            job = cluster.messages[cluster.links[link].message].job
            link = cluster.links[link].beside
            first = cluster.jobs[job].first_message
            if traffic.searched[first] == traffic.counts[0].searches:
                continue
            traffic.searched[first] = traffic.counts[0].searches
            message = s.job_progress[job].waiting
            while message != NOBODY:
                ask_about(s, message)
                message = s.waiters[message].later


@part
def _leave_waiting(s: State, message: int) -> None:
    """Take a message from the list of its job's waiting messages."""
    waiter = s.waiters[message]
    if waiter.earlier == NOBODY:
        s.job_progress[s.cluster.messages[message].job].waiting = waiter.later
    else:
        s.waiters[waiter.earlier].later = waiter.later
    if waiter.later != NOBODY:
        s.waiters[waiter.later].earlier = waiter.earlier


@part
def _answer(s: State, message: int) -> int:
    """Return what the admission, with its option, says about a message."""
    if s.rules[0].needed_first != 0 and s.graph_steps.is_held_back(s, message):
        return registry.WAIT
    return ask_admission(s, s.cluster, message)


@part
def _postpone(s: State, message: int, answer: int, now_ns: int) -> None:
    """Plan to ask again at the time that a policy named, if it named one."""
    event = len(s.cluster.gpus) + message
    if answer > now_ns and not _admits(answer, now_ns):
        s.tally[0].heap = schedule_rarely(s.heap, s.positions, s.tally[0].heap, event, answer)
    elif s.positions[event] != NOBODY:
        s.tally[0].heap = cancel_rarely(s.heap, s.positions, s.tally[0].heap, event)


@inlined
def _schedule_end(s: State, message: int, now_ns: int) -> None:
    """Schedule the end of a message whose cost has changed."""
    record = s.cluster.messages[message]
    sending_ns = math.ceil(record.bytes_left * record.cost_ns_per_byte)
    end_ns = max(now_ns + 1, record.since_ns + sending_ns)
    event = len(s.cluster.gpus) + message
    s.tally[0].heap = schedule(s.heap, s.positions, s.tally[0].heap, event, end_ns)
