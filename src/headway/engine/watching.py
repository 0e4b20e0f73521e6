"""Which messages the admission is asked about, and which need no asking because they watch a port.

An admission may name the port that a message waits for: no other message, or none as large, may
join that port until one ends there. The engine remembers it as the port's *limit*, so messages that
are as large are known to be refused. A refused message *watches* the port that was named. When a
message ends there, the port has no limit any more, and its watchers are considered in priority
order: those that another port refuses are passed over, the first of the others is asked about, and
so on until the port is full again; the watchers after that one are not even looked at. At the end
of the step those that their port no longer refuses move to the port that does.

Limits only fall during a step, so nobody is asked about twice. A port's watchers are a list in
priority order, which does not change while they watch: a job's key changes when one of its
iterations ends, and then it has no message that waits; a set of jobs that is skipped forward keeps
the order of jobs that share a port.
"""

from __future__ import annotations

from headway.domain.records import NOBODY
from headway.engine.order import message_comes_before
from headway.engine.state import NO_LIMIT, State
from headway.jit import inlined, part
from headway.policies.answers import depends_on_size, named_port


@inlined
def ask_about(s: State, message: int) -> None:
    """Ask the admission about a waiting message at this instant: jobs in order, then messages."""
    if s.waiters[message].asked == 0:
        s.waiters[message].asked = 1
        index = s.tally[0].asked
        while index > s.tally[0].answered and message_comes_before(s, message, s.asked[index - 1]):
            s.asked[index] = s.asked[index - 1]
            index -= 1
        s.asked[index] = message
        s.tally[0].asked += 1


@inlined
def refuses(s: State, port: int, message: int) -> bool:
    """Whether a port is known to refuse a message."""
    return bool(s.waiters[message].bytes >= s.watched[port].limit_bytes)


@inlined
def is_refused(s: State, message: int) -> bool:
    """Whether some port is known to refuse a message; if so, it is the message's `refused_by`."""
    waiter = s.waiters[message]
    if waiter.refused_by != NOBODY and refuses(s, waiter.refused_by, message):
        return True
    for link in range(waiter.first_link, waiter.first_link + waiter.links):
        port = s.cluster.links[link].port
        if refuses(s, port, message):
            waiter.refused_by = port
            return True
    return False


@inlined
def wake(s: State) -> None:
    """Consider the watchers of the ports where messages have ended."""
    touched, count = s.traffic.touched, s.traffic.counts[0].touched
    for i in range(count):
        s.watched[touched[i]].limit_bytes = NO_LIMIT
    for i in range(count):
        ask_next(s, touched[i], s.watched[touched[i]].first)


@inlined
def ask_next(s: State, port: int, message: int) -> None:
    """Ask about a watcher of a port, or the first after it, that no port is known to refuse."""
    while message != NOBODY and s.watched[port].limit_bytes > 0:
        if not (refuses(s, port, message) or is_refused(s, message)):
            ask_about(s, message)
            break
        message = s.waiters[message].beside


@inlined
def note_refusal(s: State, message: int, answer: int) -> None:
    """Note the port that refuses a message, and whom else it refuses."""
    port = named_port(answer)
    size = s.waiters[message].bytes if depends_on_size(answer) else 0
    s.watched[port].limit_bytes = min(s.watched[port].limit_bytes, size)
    s.waiters[message].refused_by = port


@inlined
def settle(s: State, count: int) -> None:
    """Move the watchers of the first `count` touched ports that these no longer refuse."""
    for i in range(count):
        port = s.traffic.touched[i]
        message = s.watched[port].first
        while message != NOBODY and s.watched[port].limit_bytes > 0:
            following = s.waiters[message].beside
            if not refuses(s, port, message):
                stop_watching(s, message)
                watch(s, message)
            message = following


@inlined
def watch(s: State, message: int) -> None:
    """Let a message watch the port that refuses it."""
    waiters, port = s.waiters, s.waiters[message].refused_by
    before, following = NOBODY, s.watched[port].first
    while following != NOBODY and message_comes_before(s, following, message):
        before, following = following, waiters[following].beside
    waiters[message].port = port
    _link(s, port, before, message)
    _link(s, port, message, following)
    s.tally[0].watching += 1


@inlined
def stop_watching(s: State, message: int) -> None:
    """Take a message from the watchers of its port."""
    waiters = s.waiters
    before, following = waiters[message].before, waiters[message].beside
    _link(s, waiters[message].port, before, following)
    waiters[message].port = NOBODY
    s.tally[0].watching -= 1


@part
def watch_in_order(s: State, anchor: int) -> None:
    """Put the watchers of a set in order again, after it was moved forward by an estimate."""
    jobs = s.cluster.jobs
    for inserting in range(2):
        job = anchor
        while job != NOBODY:
            first = jobs[job].first_message
            for message in range(first, first + jobs[job].messages):
                if inserting == 0 and s.waiters[message].port != NOBODY:
                    s.waiters[message].refused_by = s.waiters[message].port
                    stop_watching(s, message)
                    s.waiters[message].moves = 1
                elif inserting == 1 and s.waiters[message].moves == 1:
                    s.waiters[message].moves = 0
                    watch(s, message)
            job = s.job_progress[job].next_member


@inlined
def _link(s: State, port: int, before: int, following: int) -> None:
    """Let a watcher of a port follow another; either may be NOBODY."""
    if before == NOBODY:
        s.watched[port].first = following
    else:
        s.waiters[before].beside = following
    if following != NOBODY:
        s.waiters[following].before = before
