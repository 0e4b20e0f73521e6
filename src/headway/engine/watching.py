"""Which messages the admission is asked about, and which need no asking because they watch a port.

An admission may name the port that a message waits for: no other message, or none as large, may
join that port until one ends there. The engine remembers it as the port's *limit*, so a message
that is as large is known to be refused. It *waiters* the port until a message ends there. Then the
first watcher in priority order that is below the limit is asked about, then the next, until there
is none. The limit only falls meanwhile, so nobody is asked about twice, and once the port is full
again its watchers are not even looked at.

The watchers of a port that have the same size are a pairing heap in priority order (M. L. Fredman
et al., "The pairing heap: a new form of self-adjusting heap", Algorithmica 1, 1986), and the heaps
of a port are a list in order of size. So the cost of an instant grows with the number of different
sizes, not with the number of messages that wait. The order in a heap does not change: a job's key
changes when one of its iterations ends, and then it has no message that waits; a set of jobs that
is skipped forward keeps the order of jobs that share a port.
"""

from __future__ import annotations

from headway.domain.records import NOBODY
from headway.engine.order import message_comes_before
from headway.engine.state import NO_LIMIT, State
from headway.jit import inlined, part
from headway.policies.answers import depends_on_size, named_port, too_large
from headway.policies.registry import WAIT


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


@inlined
def is_refused(s: State, message: int, port: int) -> bool:
    """Whether a message is known to be refused by a port, which may be NOBODY."""
    return bool(port != NOBODY and s.waiters[message].bytes >= s.watched[port].limit_bytes)


@inlined
def known_refusal(s: State, message: int) -> int:
    """Return the answer that the policy is known to give about a message, or WAIT if none is."""
    size, first = s.waiters[message].bytes, s.waiters[message].first_link
    for link in range(first, first + s.waiters[message].links):
        port = s.cluster.links[link].port
        if size >= s.watched[port].limit_bytes:
            return too_large(port)
    return WAIT


@inlined
def wake(s: State) -> None:
    """Ask about the first watchers of the ports where messages have ended."""
    touched, count = s.traffic.touched, s.traffic.counts[0].touched
    for i in range(count):
        s.watched[touched[i]].limit_bytes = NO_LIMIT
    for i in range(count):
        ask_next(s, touched[i])


@inlined
def ask_next(s: State, port: int) -> None:
    """Ask about the first watcher of a port below its limit; those known to be refused move on."""
    while True:
        message = _first_below_limit(s, port)
        if message == NOBODY:
            break
        answer = known_refusal(s, message)
        if answer == WAIT:
            ask_about(s, message)
            break
        stop_watching(s, message)
        watch(s, message, named_port(answer))


@inlined
def _first_below_limit(s: State, port: int) -> int:
    """Return the first watcher of a port that is smaller than its limit, or NOBODY."""
    first, root = NOBODY, s.watched[port].smallest
    while root != NOBODY and s.waiters[root].bytes < s.watched[port].limit_bytes:
        if first == NOBODY or message_comes_before(s, root, first):
            first = root
        root = s.waiters[root].beside
    return int(first)


@inlined
def lower_limit(s: State, message: int, answer: int) -> None:
    """Note for which messages a port is full, from an answer about one of them."""
    port = named_port(answer)
    size = s.waiters[message].bytes if depends_on_size(answer) else 0
    s.watched[port].limit_bytes = min(s.watched[port].limit_bytes, size)


@part
def watch(s: State, message: int, port: int) -> None:
    """Let a message watch a port."""
    waiters = s.waiters
    before, root = _heap_of(s, port, waiters[message].bytes)
    waiters[message].port = port
    waiters[message].first_below = NOBODY
    waiters[message].beside = root
    top = message
    if root != NOBODY and waiters[root].bytes == waiters[message].bytes:
        following = waiters[root].beside
        top = _meld(s, root, message)
        waiters[top].beside = following
    _replace(s, port, before, top)
    s.tally[0].watching += 1


@part
def stop_watching(s: State, message: int) -> None:
    """Take a message, the first of its size, from the watchers of its port."""
    waiters = s.waiters
    port, following = waiters[message].port, waiters[message].beside
    before, _ = _heap_of(s, port, s.waiters[message].bytes)
    below, pairs = waiters[message].first_below, NOBODY
    while below != NOBODY:
        other = waiters[below].beside
        rest = NOBODY
        if other != NOBODY:
            rest = waiters[other].beside
            below = _meld(s, below, other)
        waiters[below].beside = pairs
        pairs, below = below, rest
    top = NOBODY
    while pairs != NOBODY:
        rest = waiters[pairs].beside
        top = pairs if top == NOBODY else _meld(s, top, pairs)
        pairs = rest
    if top == NOBODY:
        top = following
    else:
        waiters[top].beside = following
    _replace(s, port, before, top)
    waiters[message].port = NOBODY
    s.tally[0].watching -= 1


@inlined
def _heap_of(s: State, port: int, size: int) -> tuple[int, int]:
    """Return the last smaller root and the first root of at least this size at a port."""
    before, root = NOBODY, s.watched[port].smallest
    while root != NOBODY and s.waiters[root].bytes < size:
        before = root
        root = s.waiters[root].beside
    return before, root


@inlined
def _replace(s: State, port: int, before: int, root: int) -> None:
    """Let a root follow another in the list of a port's heaps."""
    if before == NOBODY:
        s.watched[port].smallest = root
    else:
        s.waiters[before].beside = root


@inlined
def _meld(s: State, one: int, other: int) -> int:
    """Put the later of two messages below the other, which is returned."""
    if message_comes_before(s, other, one):
        one, other = other, one
    s.waiters[other].beside = s.waiters[one].first_below
    s.waiters[one].first_below = other
    return one
