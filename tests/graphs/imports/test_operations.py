"""Operations without an order become a graph that starts everything at the same time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphs.imports.longest_paths import path_of_graph, path_of_operations
from headway.domain.errors import InputError
from headway.graphs.imports.assembly import assemble
from headway.graphs.imports.operations import Operation, schedule


@st.composite
def operations(draw: st.DrawFn) -> tuple[list[Operation], int]:
    """Draw operations on up to three ranks, repeated on the next ranks and perhaps connected."""
    ranks = draw(st.integers(1, 3))
    copies = draw(st.integers(1, 3))
    made: list[Operation] = []
    count = draw(st.integers(1, 14))
    for number in range(count):
        kind = draw(st.sampled_from(["task", "task", "message", "step"]))
        if kind == "message" and ranks > 1:
            group = tuple(sorted(draw(st.sets(st.integers(0, ranks - 1), min_size=2))))
            channel = draw(st.sampled_from(["a", "b"]))
            size = draw(st.integers(1, 3))
            one = Operation(f"m{number}", group, number, "f", 0, "all-reduce", size, channel)
        else:
            duration = 0 if kind == "step" else draw(st.integers(1, 10**8))
            one = Operation(f"t{number}", (draw(st.integers(0, ranks - 1)),), number, "f", duration)
        near = [index for index, other in enumerate(made) if set(other.ranks) & set(one.ranks)]
        if near:
            one.waits_for = draw(st.lists(st.sampled_from(near), max_size=3))
        made.append(one)
    found = [
        Operation(
            one.name,
            tuple(rank + copy * ranks for rank in one.ranks),
            one.priority,
            "f",
            one.duration_ns,
            one.kind,
            one.buffer_bytes,
            one.channel,
            [index + copy * count for index in one.waits_for],
        )
        for copy in range(copies)
        for one in made
    ]
    total = ranks * copies
    # Messages around a ring, or along a line: ranks that look alike but cannot share an entry.
    if total > 1 and draw(st.booleans()):
        for rank in range(draw(st.integers(1, total))):
            pair = tuple(sorted((rank, (rank + 1) % total)))
            last = [index for index, one in enumerate(found) if rank in one.ranks][-1:]
            found.append(Operation("s", pair, 99, "f", 0, "send", 5, "ring", waits_for=last))
    for rank in range(total):
        found.append(Operation("end", (rank,), 100, "f", 7))
    return found, total


@settings(max_examples=25)
@given(drawn=operations())
def test_assembling_changes_no_start_whatever_messages_take(
    drawn: tuple[list[Operation], int],
) -> None:
    made, ranks = drawn
    plan = schedule(made, ranks)
    graph = assemble(made, plan, ranks)
    assert graph.unit_ns() == max(
        plan.start_ns[index] + one.duration_ns for index, one in enumerate(made)
    )
    for seed in range(2):
        assert path_of_graph(graph, seed) == path_of_operations(made, plan, seed)


def task(rank: int, *waits_for: int, priority: int = 0, ns: int = 10) -> Operation:
    return Operation("t", (rank,), priority, "f", ns, waits_for=list(waits_for))


def message(*ranks: int, waits_for: tuple[int, ...] = ()) -> Operation:
    return Operation("m", ranks, 0, "f", 0, "all-reduce", 8, "c", list(waits_for))


def test_of_what_is_ready_the_lowest_priority_runs_first() -> None:
    made = [task(0, priority=2), task(0, priority=1), task(0, 1, priority=0)]
    plan = schedule(made, 1)
    assert plan.streams == [[1, 2, 0]]
    assert plan.start_ns == [20, 0, 10]


def test_of_messages_ready_at_the_same_time_the_one_needed_first_goes_first() -> None:
    made = [message(0, 1), message(0, 1), task(0, 1), task(1, 1), task(0, 0, 2), task(1, 0, 3)]
    assert schedule(made, 2).messages == [1, 0]


def test_computations_with_no_message_between_them_are_one_task() -> None:
    made = [task(0), task(0, 0), message(0, 1, waits_for=(1, 3)), task(1), task(0, 1), task(1, 2)]
    graph = assemble(made, schedule(made, 2), 2)
    found = [(one.name, one.ranks, one.duration_ns, one.after) for one in graph.tasks]
    assert found == [
        ("t +1", (0,), 20, ()),
        ("t", (1,), 10, ()),
        ("t (2)", (0,), 10, ()),
        ("t (3)", (1,), 10, ("m",)),
    ]
    assert graph.messages[0].after == ("t +1", "t")


def test_ranks_that_do_the_same_share_entries() -> None:
    made = [task(rank) for rank in range(4)]
    made += [message(0, 1, waits_for=(0, 1)), message(2, 3, waits_for=(2, 3))]
    made += [task(rank, 4 + rank // 2) for rank in range(4)]
    graph = assemble(made, schedule(made, 4), 4)
    assert [(one.ranks, one.after) for one in graph.tasks] == [
        ((0, 1, 2, 3), ()),
        ((0, 1, 2, 3), ("m",)),
    ]
    assert [one.groups for one in graph.messages] == [((0, 1), (2, 3))]


def test_operations_that_wait_for_each_other_are_refused() -> None:
    made = [task(0, 1, priority=5), task(0, 0, priority=6)]
    with pytest.raises(InputError) as caught:
        schedule(made, 1)
    assert str(caught.value) == (
        "these wait for each other, each for the one before and the first for the last: "
        "node 6 ('t') of f, node 5 ('t') of f."
    )
