"""Answers of admissions that name the port a message waits for. Compiled.

An answer of WAIT says nothing about why a message waits. One that names a port promises that the
refusal stands until a message ends there, so that nobody needs to ask before. It is a negative
number: -1 - 2 * port from `full`, -2 - 2 * port from `too_large`.
"""

from __future__ import annotations

from headway.jit import inlined


@inlined
def full(port: int) -> int:
    """Refuse: no message may join this port until one ends there."""
    return -1 - 2 * port


@inlined
def too_large(port: int) -> int:
    """Refuse: no message of this size or larger may join this port until one ends there."""
    return -2 - 2 * port


@inlined
def named_port(answer: int) -> int:
    """Return the port that an answer names."""
    return (-1 - answer) >> 1


@inlined
def depends_on_size(answer: int) -> bool:
    """Whether a smaller message might join the port that an answer names."""
    return (-1 - answer) & 1 == 1
