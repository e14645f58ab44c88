"""Tasks of streams groups, checked against what every assignment must satisfy."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.broker.groups.assignors import Partitions
from mainstem.broker.groups.task_assignor import ACTIVE, STANDBY, TaskMember, assign_tasks, subtopology_of
from mainstem.broker.groups.topology_topics import Workload

Processes = dict[str, str]  # member → its process
Task = tuple[str, int]

workloads = st.dictionaries(
    st.sampled_from(["0", "1", "2"]), st.builds(Workload, st.integers(1, 9), st.booleans()), min_size=1
)
processes = st.dictionaries(
    st.sampled_from([f"m{number}" for number in range(8)]), st.sampled_from("pqrs"), min_size=1
)
targets = st.dictionaries(  # what members had before, possibly of other topologies
    st.sampled_from([f"m{number}" for number in range(9)]),
    st.frozensets(st.tuples(st.sampled_from([b"a0", b"a1", b"a9", b"s0", b"s1"]), st.integers(0, 9))),
)


def assigned(
    members: Processes, work: dict[str, Workload], standbys: int, before: dict[str, Partitions]
) -> dict[str, Partitions]:
    return assign_tasks(
        {name: TaskMember(process, before.get(name, frozenset())) for name, process in members.items()},
        work,
        standbys,
    )


def tasks_in(given: Partitions, role: bytes) -> set[Task]:
    return {(subtopology_of(key), number) for key, number in given if key[:1] == role}


@settings(max_examples=300, deadline=None)
@given(members=processes, work=workloads, standbys=st.integers(0, 3), before=targets)
def test_each_task_runs_once_and_its_copies_are_in_other_processes(
    members: Processes, work: dict[str, Workload], standbys: int, before: dict[str, Partitions]
) -> None:
    given = assigned(members, work, standbys, before)
    every = {(name, number) for name, one in work.items() for number in range(one.tasks)}
    active = [task for part in given.values() for task in tasks_in(part, ACTIVE)]
    assert sorted(active) == sorted(every)
    loads = [len(tasks_in(part, ACTIVE)) for part in given.values()]
    assert max(loads) - min(loads) <= 1
    at: dict[Task, list[str]] = {}
    for name, part in given.items():
        for task in [*tasks_in(part, ACTIVE), *tasks_in(part, STANDBY)]:
            at.setdefault(task, []).append(members[name])
    for task, where in at.items():
        assert len(set(where)) == len(where)
        copies = min(standbys, len(set(members.values())) - 1) if work[task[0]].stateful else 0
        assert len(where) == 1 + copies


@settings(max_examples=200, deadline=None)
@given(members=processes, work=workloads)
def test_nothing_moves_when_nothing_changed(members: Processes, work: dict[str, Workload]) -> None:
    before = assigned(members, work, 0, {})
    assert assigned(members, work, 0, before) == before


@settings(max_examples=200, deadline=None)
@given(members=processes, work=workloads, gone=st.integers(0, 7))
def test_only_the_tasks_of_a_lost_member_move(
    members: Processes, work: dict[str, Workload], gone: int
) -> None:
    before = assigned(members, work, 0, {})
    lost = sorted(members)[gone % len(members)]
    rest = {name: process for name, process in members.items() if name != lost}
    for name, part in assigned(rest, work, 0, before).items():
        assert before[name] <= part


@settings(max_examples=200, deadline=None)
@given(members=processes, work=workloads)
def test_a_new_member_gets_its_share_and_nothing_else_moves(
    members: Processes, work: dict[str, Workload]
) -> None:
    before = assigned(members, work, 0, {})
    after = assigned({**members, "new": "new"}, work, 0, before)
    for name in members:
        assert after[name] <= before[name]


def test_a_member_with_the_state_of_a_lost_task_runs_it() -> None:
    members = {"a": "p", "b": "q", "c": "r"}
    work = {"0": Workload(6, True)}
    before = assigned(members, work, 1, {})
    after = assigned({"b": "q", "c": "r"}, work, 1, before)
    for task in tasks_in(before["a"], ACTIVE):
        [heir] = [name for name in "bc" if task in tasks_in(before[name], STANDBY)]
        assert task in tasks_in(after[heir], ACTIVE)


def test_a_large_group_is_assigned_in_bounded_work() -> None:
    members = {f"m{number}": f"p{number // 4}" for number in range(400)}
    given = assigned(members, {"0": Workload(5_000, True), "1": Workload(5_000, False)}, 2, {})
    assert Counter(len(tasks_in(part, ACTIVE)) for part in given.values()) == {25: 400}
    assert sum(len(tasks_in(part, STANDBY)) for part in given.values()) == 10_000
