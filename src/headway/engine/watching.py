"""Which messages the admission is asked about, and which need no asking because they watch a port.

An admission may name the port that a message waits for: no other message, or none as large, may
join that port until one ends there. What it said is remembered by port, so that messages that are
known to be refused are not asked about. A refused message *watches* the port until one ends there.
Then its first watcher in priority order is asked about, and the next if that one left, until the
policy says that the port is full again. The other watchers are not even looked at.

The watchers of a port are a pairing heap in priority order (M. L. Fredman et al., "The pairing
heap: a new form of self-adjusting heap", Algorithmica 1, 1986). Their order does not change while
they watch: a job's key changes when one of its iterations ends, and then it has no message that
waits; a set of jobs that is skipped forward keeps the order of jobs that share a port.
"""

from __future__ import annotations

from headway.domain.records import NOBODY
from headway.engine.order import message_comes_before
from headway.engine.state import NO_LIMIT, State
from headway.jit import inlined
from headway.policies.answers import depends_on_size, named_port, too_large
from headway.policies.registry import WAIT


@inlined
def ask_about(s: State, message: int) -> None:
    """Ask the admission about a waiting message at this instant: jobs in order, then messages."""
    if s.is_asked[message] == 0:
        s.is_asked[message] = 1
        index = s.tally[0].asked
        while index > 0 and message_comes_before(s, message, s.asked[index - 1]):
            s.asked[index] = s.asked[index - 1]
            index -= 1
        s.asked[index] = message
        s.tally[0].asked += 1


@inlined
def known_refusal(s: State, message: int) -> int:
    """Return the answer that the policy is known to give about a message, or WAIT if none is."""
    size, first = s.cluster.messages[message].bytes, s.cluster.messages[message].first_link
    for link in range(first, first + s.cluster.messages[message].links):
        port = s.cluster.links[link].port
        if size >= s.watched[port].limit_bytes:
            return too_large(port)
    return WAIT


@inlined
def note_refusal(s: State, message: int, answer: int, refused: int) -> int:
    """Note the port that a message waits for, and put it before the messages refused so far.

    They are linked by `beside`, and watch their ports from the end of the step on, so that nobody
    is asked about twice.
    """
    port = named_port(answer)
    size = s.cluster.messages[message].bytes if depends_on_size(answer) else 0
    s.watched[port].limit_bytes = min(s.watched[port].limit_bytes, size)
    s.watches[message].port = port
    s.watches[message].beside = refused
    return message


@inlined
def wake(s: State) -> int:
    """Ask about the first watchers of ports where messages ended; return those known as refused."""
    touched, count = s.traffic.touched, s.traffic.counts[0].touched
    for i in range(count):
        s.watched[touched[i]].limit_bytes = NO_LIMIT
    refused = NOBODY
    for i in range(count):
        refused = ask_next(s, touched[i], refused)
    return refused


@inlined
def ask_next(s: State, port: int, refused: int) -> int:
    """Ask about a port's first watcher that is not known to be refused, unless the port is full.

    Those before it join the refused messages; return the first of these.
    """
    while s.watched[port].first != NOBODY and s.watched[port].limit_bytes > 0:
        message = s.watched[port].first
        answer = known_refusal(s, message)
        if answer == WAIT:
            ask_about(s, message)
            break
        take_first(s, port)
        refused = note_refusal(s, message, answer, refused)
    return refused


@inlined
def watch_all(s: State, refused: int) -> None:
    """Let the refused messages watch their ports."""
    while refused != NOBODY:
        message, refused = refused, s.watches[refused].beside
        port = s.watches[message].port
        s.watches[message].first_below = NOBODY
        s.watched[port].first = _meld(s, s.watched[port].first, message)
        s.tally[0].watching += 1


@inlined
def take_first(s: State, port: int) -> None:
    """Take the first watcher from a port."""
    watches = s.watches
    below, pairs = watches[s.watched[port].first].first_below, NOBODY
    while below != NOBODY:
        other = watches[below].beside
        rest = NOBODY
        if other != NOBODY:
            rest = watches[other].beside
            below = _meld(s, below, other)
        watches[below].beside = pairs
        pairs, below = below, rest
    first = NOBODY
    while pairs != NOBODY:
        rest = watches[pairs].beside
        first = _meld(s, first, pairs)
        pairs = rest
    s.watched[port].first = first
    s.tally[0].watching -= 1


@inlined
def _meld(s: State, one: int, other: int) -> int:
    """Put the later of two messages below the other, which is returned; `one` may be NOBODY."""
    if one == NOBODY:
        return other
    if message_comes_before(s, other, one):
        one, other = other, one
    s.watches[other].beside = s.watches[one].first_below
    s.watches[one].first_below = other
    return one
