"""Tasks: work that one holder at a time does, by name, under a lease that runs out.

A lease is over when it is released, or taken over after its time. Until then its holder may go on, late or not:
what it made is of use, and nobody else has begun.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace

import msgspec

from mainstem import limits
from mainstem.errors import InvalidInput, LimitReached, StalePlan, TaskHeld
from mainstem.ledger.digest import MASK, hash_fields
from mainstem.ledger.lake_commands import ExtendTask, ReleaseTask, TakeTask
from mainstem.ledger.results import TaskLeased, TaskReleased

_TOKENS = 1 << 63


@dataclass(frozen=True, slots=True)
class Lease:
    task: str
    holder: str
    token: int
    deadline_ms: int  # ledger time; not part of the digest, as no time is
    reach: int
    compacts_before_ms: int

    @property
    def digest(self) -> int:
        return hash_fields("task", self.task, self.holder, self.token, self.reach, self.compacts_before_ms)


class LeaseState(msgspec.Struct, frozen=True, array_like=True):
    """One lease, as a checkpoint holds it."""

    task: str
    holder: str
    token: int
    deadline_ms: int
    reach: int
    compacts_before_ms: int


class Tasks:
    """The leases there are, by task."""

    def __init__(self) -> None:
        self.digest = 0
        self._leases: dict[str, Lease] = {}

    def __iter__(self) -> Iterator[Lease]:
        """By name."""
        return iter(lease for _, lease in sorted(self._leases.items()))

    def __len__(self) -> int:
        return len(self._leases)

    def get(self, task: str) -> Lease | None:
        return self._leases.get(task)

    def holds(self, task: str, token: int) -> bool:
        lease = self._leases.get(task)
        return lease is not None and lease.token == token

    def take(self, command: TakeTask, time_ms: int) -> TaskLeased | InvalidInput | TaskHeld | LimitReached:
        refusal = _bad_lease(command.token, command.lease_ms)
        if refusal is not None:
            return refusal
        if not command.task or max(len(command.task), len(command.holder)) > limits.TASK_NAME_CHARS_MAX:
            return InvalidInput(f"a task's name has 1 to {limits.TASK_NAME_CHARS_MAX} letters")
        held = self._leases.get(command.task)
        if held is not None and held.token != command.token and time_ms < held.deadline_ms:
            return TaskHeld(command.task, held.holder, held.deadline_ms)
        if held is None and len(self._leases) >= limits.TASKS_MAX:
            return LimitReached(f"{limits.TASKS_MAX} tasks are held, the most there may be: release some")
        deadline_ms = time_ms + command.lease_ms
        self._put(
            Lease(
                command.task,
                command.holder,
                command.token,
                deadline_ms,
                command.reach,
                command.compacts_before_ms,
            )
        )
        return TaskLeased(command.task, command.token, deadline_ms)

    def extend(self, command: ExtendTask, time_ms: int) -> TaskLeased | InvalidInput | StalePlan:
        refusal = _bad_lease(command.token, command.lease_ms)
        if refusal is not None:
            return refusal
        held = self._leases.get(command.task)
        if held is None or held.token != command.token:
            return StalePlan(f"the lease of {command.task!r} is over")
        deadline_ms = max(held.deadline_ms, time_ms + command.lease_ms)
        self._put(replace(held, deadline_ms=deadline_ms))
        return TaskLeased(command.task, command.token, deadline_ms)

    def release(self, command: ReleaseTask) -> TaskReleased:
        held = self.holds(command.task, command.token)
        if held:
            self.drop(command.task)
        return TaskReleased(command.task, held)

    def drop(self, task: str) -> None:
        """There is nothing left to do, or to do it with."""
        lease = self._leases.pop(task, None)
        if lease is not None:
            self.digest = (self.digest - lease.digest) & MASK

    def _put(self, lease: Lease) -> None:
        self.drop(lease.task)
        self._leases[lease.task] = lease
        self.digest = (self.digest + lease.digest) & MASK

    def encode(self) -> list[LeaseState]:
        return [LeaseState(*astuple(lease)) for lease in self]

    @classmethod
    def decode(cls, state: list[LeaseState]) -> Tasks:
        tasks = cls()
        for one in state:
            tasks._put(Lease(*msgspec.structs.astuple(one)))
        return tasks


def _bad_lease(token: int, lease_ms: int) -> InvalidInput | None:
    if not 0 < token < _TOKENS:
        return InvalidInput(f"{token} is no token: it has 63 bits and is not 0")
    if not limits.LEASE_MS_MIN <= lease_ms <= limits.LEASE_MS_MAX:
        return InvalidInput(
            f"a lease takes {limits.LEASE_MS_MIN} to {limits.LEASE_MS_MAX} ms, not {lease_ms}"
        )
    return None
