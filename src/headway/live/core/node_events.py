"""Handlers of events about nodes; each returns whether the event fits the state."""

from __future__ import annotations

from headway.domain.limits import MAX_BYTES, whole
from headway.live.core import lifecycle
from headway.live.core.events import AnyInstruction, NodeDrained, NodeLost, NodeUp
from headway.live.core.nodes import NodeState
from headway.live.core.state import CoreState

MAX_SLOTS = 2**12
"""The limit for one node."""


def node_up(state: CoreState, event: NodeUp, instructions: list[AnyInstruction]) -> bool:
    """Add a node; one that returns with different slots has lost its jobs."""
    whole(event.gpus, "gpus", 1, MAX_SLOTS)
    whole(event.memory_bytes, "memory_bytes", 0, MAX_BYTES)
    node = NodeState(event.node, event.gpus, event.memory_bytes, event.node in state.drained)
    known = state.arrays.nodes.get(event.node)
    if known is not None:
        if (known.gpus, known.memory_bytes) == (node.gpus, node.memory_bytes):
            return False
        _remove(state, known, instructions)
    state.arrays.add_node(node)
    state.room_made = True
    return True


def node_lost(state: CoreState, event: NodeLost, instructions: list[AnyInstruction]) -> bool:
    """Remove a node."""
    node = state.arrays.nodes.get(event.node)
    if node is None:
        return False
    _remove(state, node, instructions)
    return True


def _remove(state: CoreState, node: NodeState, instructions: list[AnyInstruction]) -> None:
    """Stop the jobs on a node and remove its slots."""
    for job in list(state.arrays.placed.values()):
        if node.name in job.node_names:
            lifecycle.stop(state, job, f"node {node.name} was lost", instructions)
    state.arrays.remove_node(node.name)
    # The ports are renumbered, so all waiting messages are shown to the policy again.
    state.unasked.update(state.waiting)
    state.room_made = True


def node_drained(state: CoreState, event: NodeDrained, _: list[AnyInstruction]) -> bool:
    """Close a node to new jobs, or open it again."""
    node = state.arrays.nodes.get(event.node)
    known = node is not None or event.node in state.drained
    if not known or (event.node in state.drained) == event.draining:
        return False
    if event.draining:
        state.drained.add(event.node)
    else:
        state.drained.discard(event.node)
    if node is not None:
        state.arrays.drain(node, event.draining)
        # A job that others were kept waiting for may not fit any more.
        state.room_made |= not event.draining or bool(state.urgent)
    return True
