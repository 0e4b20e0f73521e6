"""Steps 1 and 4 for messages: admission, rates, ends."""

from __future__ import annotations

import math

from headway.domain.records import MESSAGE, NOBODY
from headway.engine.computing import ask_about, make_message_ready, note_end, record_task
from headway.engine.events import cancel_rarely, schedule, schedule_rarely
from headway.engine.state import Rule, State
from headway.jit import inlined, part
from headway.network.messages import (
    bytes_left,
    message_cost_ns_per_byte,
    most_messages,
    put_on_ports,
    take_off_ports,
)
from headway.network.sharing import share_fairly
from headway.policies.registry import ADMIT, WAIT


@inlined
def complete_message(s: State, job: int, now_ns: int) -> None:
    """End a job's message: it leaves its ports; the next bucket is ready or an iteration done."""
    jobs = s.cluster.jobs
    first = jobs[job].first_link
    for link in range(first, first + jobs[job].links):
        _touch(s, s.cluster.links[link].port)
    take_off_ports(s.cluster, job)
    if len(s.timeline) > 0:
        record_task(s, MESSAGE, job, NOBODY, jobs[job].message_start_ns, now_ns)
    jobs[job].message_k = 0
    s.tally[0].messages += 1
    s.gangs[job].sent += 1
    jobs[job].unsent_bytes -= jobs[job].message_bytes
    if jobs[job].unsent_bytes > 0:
        make_message_ready(s, job)
    else:
        note_end(s, job)


@inlined
def admit(s: State, now_ns: int, admission: Rule) -> None:
    """Step 4: ask for each ready all-reduce in order, then re-rate the messages it concerns.

    A steady policy is not asked again about one it left waiting until a message has ended on one of
    its ports. A policy may name the time before which the message must not start; the last answer
    counts.
    """
    tally, rules = s.tally, s.rules
    steady = rules[0].admission_steady != 0
    if steady:
        _find_concerned(s)
    kept = 0
    for turn in range(tally[0].asked):
        job = s.asked[turn]
        answer = admission(s.cluster, job, rules[0].admission_parameter)
        _postpone(s, job, answer, now_ns)
        if WAIT < answer <= now_ns or answer == ADMIT:
            s.gangs[job].asked = 0
            s.gangs[job].waiting = 0
            tally[0].waiting -= 1
            _send(s, job, now_ns)
        elif steady:
            s.gangs[job].asked = 0
        else:
            s.asked[kept] = job
            kept += 1
    tally[0].asked = kept
    if s.cluster.system[0].max_min != 0:
        _rate_fairly(s, now_ns)
    else:
        _rate_by_busiest(s, now_ns)
    tally[0].touched = 0


@inlined
def _rate_by_busiest(s: State, now_ns: int) -> None:
    """Rate the messages on touched ports."""
    for turn in range(s.tally[0].touched):
        port = s.touched[turn]
        s.cluster.ports[port].touched = 0
        link = s.cluster.ports[port].first_message
        while link != NOBODY:
            job = s.cluster.links[link].job
            if s.gangs[job].rated != s.tally[0].instants:
                s.gangs[job].rated = s.tally[0].instants
                _rate(s, job, now_ns, message_cost_ns_per_byte(s.cluster, job))
            link = s.cluster.links[link].next


@part
def _rate_fairly(s: State, now_ns: int) -> None:
    """Rate the messages that common ports connect, one by one, with a touched port.

    No others can have another share than before. All ports of those found are touched, too.
    """
    jobs, ports, links, tally = s.cluster.jobs, s.cluster.ports, s.cluster.links, s.tally
    found, turn = 0, 0
    while turn < tally[0].touched:
        link = ports[s.touched[turn]].first_message
        turn += 1
        while link != NOBODY:
            job = links[link].job
            if s.gangs[job].rated != tally[0].instants:
                s.gangs[job].rated = tally[0].instants
                s.costs[job] = 0.0
                s.scratch[found] = job
                found += 1
                first = jobs[job].first_link
                for own in range(first, first + jobs[job].links):
                    _touch(s, links[own].port)
            link = links[link].next
    for turn in range(tally[0].touched):
        ports[s.touched[turn]].touched = 0
    share_fairly(s.cluster, s.touched, tally[0].touched, s.shares, s.costs)
    for turn in range(found):
        job = s.scratch[turn]
        _rate(s, job, now_ns, jobs[job].byte_weight * s.costs[job])


@inlined
def _find_concerned(s: State) -> None:
    """List the waiting messages that have a port where one ended at this instant."""
    if s.tally[0].waiting > s.tally[0].asked:
        for turn in range(s.tally[0].touched):
            link = s.cluster.ports[s.touched[turn]].held
            while link != NOBODY:
                job = s.cluster.links[link].job
                if s.gangs[job].waiting != 0:
                    ask_about(s, job)
                link = s.cluster.links[link].beside


@inlined
def _postpone(s: State, job: int, answer: int, now_ns: int) -> None:
    """Plan to ask again at the time that a policy named, if it named one."""
    event = len(s.cluster.gpus) + job
    if answer > now_ns and answer != ADMIT:
        s.tally[0].heap = schedule_rarely(s.heap, s.places, s.tally[0].heap, event, answer)
    elif s.places[event] != NOBODY:
        s.tally[0].heap = cancel_rarely(s.heap, s.places, s.tally[0].heap, event)


@inlined
def _touch(s: State, port: int) -> None:
    """Remember that a port's number of messages changed at this instant."""
    if s.cluster.ports[port].touched == 0:
        s.cluster.ports[port].touched = 1
        s.touched[s.tally[0].touched] = port
        s.tally[0].touched += 1


@inlined
def _send(s: State, job: int, now_ns: int) -> None:
    """Put a job's message on its ports; it is rated at the end of the step."""
    jobs, links, system = s.cluster.jobs, s.cluster.links, s.cluster.system
    jobs[job].message_k = 0
    jobs[job].message_cost_ns_per_byte = 0.0
    jobs[job].message_start_ns = now_ns
    jobs[job].message_since_ns = now_ns + jobs[job].latency_ns
    jobs[job].message_bytes_left = jobs[job].message_bytes
    if system[0].contends == 0:
        _rate(s, job, now_ns, message_cost_ns_per_byte(s.cluster, job))
        return
    put_on_ports(s.cluster, job)
    first = jobs[job].first_link
    for link in range(first, first + jobs[job].links):
        _touch(s, links[link].port)


@inlined
def _rate(s: State, job: int, now_ns: int, cost: float) -> None:
    """If a message's cost has changed, count what it sent at the old one; give it its new end."""
    jobs = s.cluster.jobs
    if cost == jobs[job].message_cost_ns_per_byte:
        return
    jobs[job].message_bytes_left = bytes_left(s.cluster, job)
    jobs[job].message_since_ns = max(now_ns, jobs[job].message_since_ns)
    jobs[job].message_k = max(1, most_messages(s.cluster, job))
    jobs[job].message_cost_ns_per_byte = cost
    sending_ns = math.ceil(jobs[job].message_bytes_left * cost)
    end_ns = max(now_ns + 1, jobs[job].message_since_ns + sending_ns)
    event = len(s.cluster.gpus) + job
    s.tally[0].heap = schedule(s.heap, s.places, s.tally[0].heap, event, end_ns)
