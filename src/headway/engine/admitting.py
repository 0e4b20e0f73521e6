"""Steps 1 and 4 for messages: admission, rates, ends."""

from __future__ import annotations

import math

from headway.domain.records import MESSAGE, NOBODY
from headway.engine.computing import end_iteration, make_message_ready, record_task
from headway.engine.events import cancel, schedule
from headway.engine.state import NEVER_ASKED, Rule, State
from headway.jit import inlined
from headway.network.messages import bytes_left, cost_ns_per_byte, most_messages
from headway.policies.registry import ADMIT, WAIT


@inlined
def complete_message(s: State, job: int, now_ns: int, priority: Rule) -> None:
    """End a job's message: it leaves its servers; the next bucket is ready or an iteration done."""
    jobs, servers, links = s.cluster.jobs, s.cluster.servers, s.cluster.links
    if s.cluster.system[0].contends != 0:
        first = jobs[job].first_seat
        for link in range(first, first + jobs[job].servers):
            server = links[link].server
            following, previous = links[link].next, links[link].previous
            if previous == NOBODY:
                servers[server].first_link = following
            else:
                links[previous].next = following
            if following != NOBODY:
                links[following].previous = previous
            servers[server].messages -= 1
            _touch(s, server)
    if len(s.timeline) > 0:
        record_task(s, MESSAGE, job, NOBODY, jobs[job].message_start_ns, now_ns)
    jobs[job].message_k = 0
    s.tally[0].left_network_mask |= s.gangs[job].servers_mask
    s.tally[0].messages += 1
    jobs[job].unsent_bytes -= jobs[job].message_bytes
    if jobs[job].unsent_bytes > 0:
        make_message_ready(s, job)
    else:
        end_iteration(s, job, now_ns, priority)


@inlined
def admit(s: State, now_ns: int, admission: Rule) -> None:
    """Step 4: ask for each ready all-reduce in order, then re-rate the messages it concerns.

    A steady policy is not asked again about one it left waiting until a message has ended on one of
    its servers. The masks tell; servers that share a bit only make it ask once too often. A policy
    may name the time before which the message must not start; the last answer counts.
    """
    tally, rules = s.tally, s.rules
    everyone = rules[0].admission_steady == 0
    left_mask = tally[0].left_network_mask
    tally[0].left_network_mask = 0
    if everyone or left_mask != 0 or tally[0].fresh_messages > 0:
        kept = 0
        for turn in range(tally[0].waiting):
            job = s.waiting[turn].job
            wake = s.waiting[turn].wake
            answer = WAIT
            due = s.gangs[job].due != 0
            if everyone or due or wake == NEVER_ASKED or (wake & left_mask) != 0:
                s.gangs[job].due = 0
                wake = s.gangs[job].servers_mask
                answer = admission(s.cluster, job, rules[0].admission_parameter)
                _postpone(s, job, answer, now_ns)
            if WAIT < answer <= now_ns or answer == ADMIT:
                _send(s, job, now_ns)
            else:
                s.waiting[kept].job = job
                s.waiting[kept].wake = wake
                kept += 1
        tally[0].waiting = kept
        tally[0].fresh_messages = 0
    for turn in range(tally[0].touched):
        server = s.touched[turn]
        s.cluster.servers[server].touched = 0
        link = s.cluster.servers[server].first_link
        while link != NOBODY:
            _rate(s, s.cluster.links[link].job, now_ns)
            link = s.cluster.links[link].next
    tally[0].touched = 0


@inlined
def wake_up(s: State, job: int) -> None:
    """Let a policy be asked again about a message that must not start before this instant."""
    s.gangs[job].due = 1
    s.tally[0].fresh_messages += 1


@inlined
def _postpone(s: State, job: int, answer: int, now_ns: int) -> None:
    """Plan to ask again at the time that a policy named, if it named one."""
    event = len(s.cluster.gpus) + job
    if answer > now_ns and answer != ADMIT:
        s.tally[0].heap = schedule(s.heap, s.places, s.tally[0].heap, event, answer)
    else:
        s.tally[0].heap = cancel(s.heap, s.places, s.tally[0].heap, event)


@inlined
def _touch(s: State, server: int) -> None:
    """Remember that a server's number of messages changed at this instant."""
    if s.cluster.servers[server].touched == 0:
        s.cluster.servers[server].touched = 1
        s.touched[s.tally[0].touched] = server
        s.tally[0].touched += 1


@inlined
def _send(s: State, job: int, now_ns: int) -> None:
    """Put a job's message on its servers; it is rated at the end of the step."""
    jobs, servers, links, system = (
        s.cluster.jobs,
        s.cluster.servers,
        s.cluster.links,
        s.cluster.system,
    )
    jobs[job].message_k = 0
    jobs[job].message_start_ns = now_ns
    jobs[job].message_since_ns = now_ns + system[0].a_ns
    jobs[job].message_bytes_left = jobs[job].message_bytes
    if system[0].contends == 0:
        _rate(s, job, now_ns)
        return
    first = jobs[job].first_seat
    for link in range(first, first + jobs[job].servers):
        server = links[link].server
        following = servers[server].first_link
        links[link].next = following
        links[link].previous = NOBODY
        if following != NOBODY:
            links[following].previous = link
        servers[server].first_link = link
        servers[server].messages += 1
        _touch(s, server)


@inlined
def _rate(s: State, job: int, now_ns: int) -> None:
    """If a message's k has changed, count what it sent at the old one and give it its new end."""
    jobs, system = s.cluster.jobs, s.cluster.system
    k = max(1, most_messages(s.cluster, job))
    if k == jobs[job].message_k:
        return
    jobs[job].message_bytes_left = bytes_left(s.cluster, job)
    jobs[job].message_since_ns = max(now_ns, jobs[job].message_since_ns)
    jobs[job].message_k = k
    cost = cost_ns_per_byte(k, system[0].b_ns_per_byte, system[0].eta_ns_per_byte)
    sending_ns = math.ceil(jobs[job].message_bytes_left * cost)
    end_ns = max(now_ns + 1, jobs[job].message_since_ns + sending_ns)
    event = len(s.cluster.gpus) + job
    s.tally[0].heap = schedule(s.heap, s.places, s.tally[0].heap, event, end_ns)
