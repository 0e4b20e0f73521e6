"""Which messages the admission is asked about, and which watch a port instead.

An admission by port gives each port a *limit*: a message starts if it is smaller than the limits of
all its ports. The engine keeps each limit as it was last computed. Limits do not rise until a
message ends on the port, so a message that is not smaller than a limit it has seen need not be
looked at before that: it *watches* the port.

When messages end on a port, its limit is computed anew, and the first watcher in priority order
that no known limit refuses is asked about; then the next, if there is one. A watcher that its port
no longer refuses, but another does, moves to that one at the end of the step. Limits are also
computed when a message starts, so that the watchers of a port that is taken again at once stay.
"""

from __future__ import annotations

from headway.domain.records import NOBODY, ClusterView
from headway.engine.order import message_comes_before
from headway.engine.state import State
from headway.jit import inlined, part
from headway.network.traffic import start_message
from headway.policies import registry


@inlined
def ask_about(s: State, message: int) -> None:
    """Ask the admission about a waiting message at this instant: jobs in order, then messages."""
    if s.waiters[message].asked == 0:
        s.waiters[message].asked = 1
        index = s.tally[0].asked
        while index > 0 and message_comes_before(s, message, s.asked[index - 1]):
            s.asked[index] = s.asked[index - 1]
            index -= 1
        s.asked[index] = message
        s.tally[0].asked += 1


@part
def ask_admission(s: State, cluster: ClusterView, message: int) -> int:
    """Return what the admission says about a message now."""
    if s.rules[0].admission_by_port == 0:
        return int(s.admission(cluster, message, s.rules[0].admission_parameter))
    record = cluster.messages[message]
    for link in range(record.first_link, record.first_link + record.links):
        port = cluster.links[link].port
        if record.bytes >= s.admission(cluster, port, s.rules[0].admission_parameter):
            return registry.WAIT
    return registry.ADMIT


@inlined
def admit_by_port(s: State) -> None:
    """Start the messages that no port refuses, in order."""
    ended_on = s.traffic.counts[0].touched
    for i in range(ended_on):
        s.watched[s.traffic.touched[i]].limit_bytes = _limit(s, s.traffic.touched[i])
    for i in range(ended_on):
        _ask_first(s, s.traffic.touched[i])
    i = 0
    while i < s.tally[0].asked:
        message = s.asked[i]
        i += 1
        s.waiters[message].asked = 0
        watched = s.waiters[message].port
        if _may_start(s, message):
            if watched != NOBODY:
                _stop_watching(s, message)
            _start(s, message)
        elif watched == NOBODY:
            _watch(s, message)
        if watched != NOBODY and s.watched[watched].has_more != 0:
            _ask_first(s, watched)
    s.tally[0].asked = 0
    for i in range(ended_on):
        _move_on(s, s.traffic.touched[i])


@inlined
def _limit(s: State, port: int) -> int:
    """Ask the policy for the limit of a port."""
    s.tally[0].questions += 1
    return int(s.admission(s.cluster, port, s.rules[0].admission_parameter))


@inlined
def _lower(s: State, port: int) -> None:
    """Bring the limit of a port where no message has ended up to date: it cannot have risen."""
    s.watched[port].limit_bytes = min(s.watched[port].limit_bytes, _limit(s, port))


@inlined
def _refuses(s: State, port: int, message: int) -> bool:
    """Whether a port refuses a message, by the limit that is known."""
    return bool(s.waiters[message].bytes >= s.watched[port].limit_bytes)


@inlined
def _is_refused(s: State, message: int) -> bool:
    """Whether a port is known to refuse a message; if so, it is the message's `refused_by`."""
    waiter = s.waiters[message]
    if waiter.refused_by != NOBODY and _refuses(s, waiter.refused_by, message):
        return True
    for link in range(waiter.first_link, waiter.first_link + waiter.links):
        if _refuses(s, s.cluster.links[link].port, message):
            waiter.refused_by = s.cluster.links[link].port
            return True
    return False


@inlined
def _may_start(s: State, message: int) -> bool:
    """Whether no port refuses a message now; if one does, it is the message's `refused_by`."""
    if _is_refused(s, message):
        return False
    waiter = s.waiters[message]
    for link in range(waiter.first_link, waiter.first_link + waiter.links):
        port = s.cluster.links[link].port
        if s.cluster.ports[port].messages > 0:
            _lower(s, port)
            if _refuses(s, port, message):
                waiter.refused_by = port
                return False
    return True


@inlined
def _start(s: State, message: int) -> None:
    """Start a message, and note what that means for others."""
    s.tally[0].waiting -= 1
    start_message(s.cluster, s.traffic, message)
    waiter = s.waiters[message]
    for link in range(waiter.first_link, waiter.first_link + waiter.links):
        _lower(s, s.cluster.links[link].port)


@inlined
def _ask_first(s: State, port: int) -> None:
    """Ask about the first of a port's watchers that no port is known to refuse."""
    first, message = NOBODY, s.watched[port].watcher
    s.watched[port].has_more = 0
    while message != NOBODY and s.watched[port].limit_bytes > 0:
        if not (_refuses(s, port, message) or _is_refused(s, message)):
            if first != NOBODY:
                s.watched[port].has_more = 1
            if first == NOBODY or message_comes_before(s, message, first):
                first = message
        message = s.waiters[message].beside
    if first != NOBODY:
        ask_about(s, first)


@inlined
def _move_on(s: State, port: int) -> None:
    """Let the watchers of a port that it no longer refuses watch a port that does."""
    message = s.watched[port].watcher
    while message != NOBODY and s.watched[port].limit_bytes > 0:
        following = s.waiters[message].beside
        if not _refuses(s, port, message):
            _stop_watching(s, message)
            _watch(s, message)
        message = following


@inlined
def _watch(s: State, message: int) -> None:
    """Let a message watch the port that refuses it."""
    port = s.waiters[message].refused_by
    s.waiters[message].port = port
    _link(s, port, message, s.watched[port].watcher)
    _link(s, port, NOBODY, message)


@inlined
def _stop_watching(s: State, message: int) -> None:
    """Take a message from the watchers of its port."""
    waiter = s.waiters[message]
    _link(s, waiter.port, waiter.before, waiter.beside)
    waiter.port = NOBODY


@inlined
def _link(s: State, port: int, before: int, following: int) -> None:
    """Let one watcher of a port follow another in their list; either may be NOBODY."""
    if before == NOBODY:
        s.watched[port].watcher = following
    else:
        s.waiters[before].beside = following
    if following != NOBODY:
        s.waiters[following].before = before
