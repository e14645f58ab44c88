"""The assignor of streams groups: which member runs which task, as a pure function (KIP-1071).

Each task runs on exactly one member. Standby copies of its state are kept up to date by members of other processes. The
assignor is sticky: a task stays where its state is, as long as the load is even.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from mainstem.broker.groups.assignors import Partitions
from mainstem.broker.groups.topology_topics import Workload

ACTIVE, STANDBY, WARMUP = b"a", b"s", b"w"  # roles: the first byte of a key; the subtopology id follows

Task = tuple[str, int]  # subtopology id, partition


def task_key(role: bytes, subtopology_id: str) -> bytes:
    """In an assignment, a task has the place of a partition, and this key the place of a topic id."""
    return role + subtopology_id.encode()


def subtopology_of(key: bytes) -> str:
    return key[1:].decode()


@dataclass(frozen=True, slots=True)
class TaskMember:
    """A member before the assignment."""

    process_id: str
    tasks: Partitions  # its last target


@dataclass(slots=True)
class _Load:
    """A member while tasks are assigned."""

    member_id: str
    process: _Process
    active: set[Task] = field(default_factory=set)
    standby: set[Task] = field(default_factory=set)

    @property
    def count(self) -> int:
        return len(self.active) + len(self.standby)

    @property
    def rank(self) -> tuple[int, float, str]:
        """The least loaded first."""
        return self.count, self.process.count / self.process.members, self.member_id

    def add(self, task: Task, role: bytes) -> None:
        (self.active if role == ACTIVE else self.standby).add(task)
        self.process.tasks.add(task)
        self.process.count += 1


@dataclass(slots=True)
class _Process:
    members: int = 0
    count: int = 0
    tasks: set[Task] = field(default_factory=set)  # it has the state of a task only once


def assign_tasks(
    members: Mapping[str, TaskMember], workloads: Mapping[str, Workload], standbys: int
) -> dict[str, Partitions]:
    """The target of each member. Without members, nothing."""
    loads = _loads(members)
    if not loads:
        return {}
    tasks = [(name, number) for name, work in workloads.items() for number in range(work.tasks)]
    last_active, last_standby = _holders(members, loads, ACTIVE), _holders(members, loads, STANDBY)
    _assign_active(tasks, loads, last_active, last_standby)
    if standbys:
        stateful = [task for task in tasks if workloads[task[0]].stateful]
        _assign_standby(stateful, standbys, loads, last_active, last_standby)
    return {
        load.member_id: frozenset(
            (task_key(role, name), number)
            for role, given in ((ACTIVE, load.active), (STANDBY, load.standby))
            for name, number in given
        )
        for load in loads.values()
    }


def _loads(members: Mapping[str, TaskMember]) -> dict[str, _Load]:
    processes: dict[str, _Process] = {}
    loads = {}
    for member_id in sorted(members):
        process = processes.setdefault(members[member_id].process_id, _Process())
        process.members += 1
        loads[member_id] = _Load(member_id, process)
    return loads


def _holders(
    members: Mapping[str, TaskMember], loads: Mapping[str, _Load], role: bytes
) -> dict[Task, list[_Load]]:
    """The members that had a task in this role."""
    holders: dict[Task, list[_Load]] = {}
    for member_id, load in loads.items():
        for key, number in members[member_id].tasks:
            if key[:1] == role:
                holders.setdefault((subtopology_of(key), number), []).append(load)
    return holders


def _assign_active(
    tasks: Sequence[Task],
    loads: Mapping[str, _Load],
    last_active: Mapping[Task, list[_Load]],
    last_standby: Mapping[Task, list[_Load]],
) -> None:
    """Each task to the member that ran it, else to one that has its state, else to the least loaded one. The numbers of
    two members differ by one at most."""
    least, more = divmod(len(tasks), len(loads))

    def take(task: Task, holders: Sequence[_Load]) -> bool:
        nonlocal more
        for load in sorted(holders, key=lambda one: one.rank):
            if len(load.active) < least or (more and len(load.active) == least):
                more -= len(load.active) == least
                load.add(task, ACTIVE)
                return True
        return False

    # By partition first: a member keeps the same partitions of different subtopologies.
    free = sorted(tasks, key=lambda task: (task[1], task[0]))
    for holders in (last_active, last_standby):
        free = [task for task in free if not take(task, holders.get(task, ()))]
    queue = [(load.rank, load) for load in loads.values()]
    heapify(queue)
    for task in sorted(free):
        _, load = heappop(queue)
        load.add(task, ACTIVE)
        heappush(queue, (load.rank, load))


def _assign_standby(
    tasks: Sequence[Task],
    standbys: int,
    loads: Mapping[str, _Load],
    last_active: Mapping[Task, list[_Load]],
    last_standby: Mapping[Task, list[_Load]],
) -> None:
    """Copies on members of processes that do not have the task: those that have its state, unless they have more than
    their share, else the least loaded ones."""
    total = sum(load.count for load in loads.values()) + standbys * len(tasks)
    share = -(-total // len(loads))
    open_copies: list[Task] = []
    for task in sorted(tasks, key=lambda task: (task[1], task[0])):
        for copy in range(standbys):
            holders = [*last_active.get(task, ()), *last_standby.get(task, ())]
            fit = [load for load in holders if task not in load.process.tasks and load.count < share]
            if not fit:
                open_copies += [task] * (standbys - copy)
                break
            min(fit, key=lambda one: one.rank).add(task, STANDBY)
    queue = [(load.rank, load) for load in loads.values()]
    heapify(queue)
    for task in sorted(open_copies):
        skipped = []
        while queue:
            rank, load = heappop(queue)
            if rank != load.rank:
                heappush(queue, (load.rank, load))  # its process got tasks meanwhile
            elif task in load.process.tasks:
                skipped.append((rank, load))
            else:
                load.add(task, STANDBY)
                heappush(queue, (load.rank, load))
                break
        for entry in skipped:
            heappush(queue, entry)
