"""Tasks: named work that one holder at a time performs, under a lease.

A lease ends when its holder releases it, or when someone else takes the task after its deadline. Until then the holder
may continue, late or not: its work is useful, and nobody else has begun.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from mainstem import limits
from mainstem.errors import InvalidInput, LimitReached, StalePlan, TaskHeld
from mainstem.ledger.digest import hash_fields
from mainstem.ledger.keyed import Keyed
from mainstem.ledger.section import Command, Moment, Section, applies

TASKS_MAX = 100_000  # tasks of the lake under a lease

_TOKENS = 1 << 63


class TakeTask(Command, frozen=True, tag=90):
    """Lease a task exclusively. Rejected while another holder has it."""

    task: str  # such as `parts/<stream>`
    holder: str  # shown to operators
    token: int  # 63 random bits that identify the holder
    lease_ms: int
    reach: int = 0  # for `parts/<stream>`: a swap up to this offset ends the lease; 0 = only a release does
    compacts_before_ms: int = 0  # its swaps may omit older records that have a newer one with the same key


class ReleaseTask(Command, frozen=True, tag=91):
    """Release a task. Changes nothing unless the token holds it."""

    task: str
    token: int


class ExtendTask(Command, frozen=True, tag=92):
    """Extend the lease to `lease_ms` from now."""

    task: str
    token: int
    lease_ms: int


@dataclass(frozen=True, slots=True)
class TaskLeased:
    task: str
    token: int
    deadline_ms: int  # ledger time


@dataclass(frozen=True, slots=True)
class TaskReleased:
    task: str
    held: bool  # False: the token did not hold it


class Lease(msgspec.Struct, frozen=True, array_like=True):
    """The lease of one task; also the form in a checkpoint."""

    task: str
    holder: str
    token: int
    deadline_ms: int  # ledger time; like all times, not part of the digest
    reach: int
    compacts_before_ms: int


class Tasks(Section[list[Lease]]):
    """The leases, by task."""

    def __init__(self) -> None:
        self._leases: Keyed[str, Lease] = Keyed(_hash)

    def __iter__(self) -> Iterator[Lease]:
        """By name."""
        return iter(self._leases)

    def __len__(self) -> int:
        return len(self._leases)

    def get(self, task: str) -> Lease | None:
        return self._leases.get(task)

    def holds(self, task: str, token: int) -> bool:
        lease = self._leases.get(task)
        return lease is not None and lease.token == token

    @applies(TakeTask)
    def take(self, command: TakeTask, now: Moment) -> TaskLeased | InvalidInput | TaskHeld | LimitReached:
        refusal = _bad_lease(command.token, command.lease_ms)
        if refusal is not None:
            return refusal
        if not command.task or max(len(command.task), len(command.holder)) > limits.TASK_NAME_CHARS_MAX:
            return InvalidInput(f"a task name has 1 to {limits.TASK_NAME_CHARS_MAX} characters")
        held = self._leases.get(command.task)
        if held is not None and held.token != command.token and now.time_ms < held.deadline_ms:
            return TaskHeld(command.task, held.holder, held.deadline_ms)
        full = self._leases.refusal(command.task, TASKS_MAX, "tasks")
        if full is not None:
            return full
        deadline_ms = now.time_ms + command.lease_ms
        lease = Lease(
            command.task,
            command.holder,
            command.token,
            deadline_ms,
            command.reach,
            command.compacts_before_ms,
        )
        self._leases.put(lease.task, lease)
        return TaskLeased(command.task, command.token, deadline_ms)

    @applies(ExtendTask)
    def extend(self, command: ExtendTask, now: Moment) -> TaskLeased | InvalidInput | StalePlan:
        refusal = _bad_lease(command.token, command.lease_ms)
        if refusal is not None:
            return refusal
        held = self._leases.get(command.task)
        if held is None or held.token != command.token:
            return StalePlan(f"the lease of {command.task!r} has ended")
        deadline_ms = max(held.deadline_ms, now.time_ms + command.lease_ms)
        self._leases.put(held.task, msgspec.structs.replace(held, deadline_ms=deadline_ms))
        return TaskLeased(command.task, command.token, deadline_ms)

    @applies(ReleaseTask)
    def release(self, command: ReleaseTask, now: Moment) -> TaskReleased:
        held = self.holds(command.task, command.token)
        if held:
            self.drop(command.task)
        return TaskReleased(command.task, held)

    def drop(self, task: str) -> None:
        """End a lease, if there is one: the task is done, or can no longer be done."""
        self._leases.pop(task)

    @property
    def digest(self) -> int:
        return self._leases.digest

    def encode(self) -> list[Lease]:
        return list(self._leases)

    def load(self, state: list[Lease]) -> None:
        for lease in state:
            self._leases.put(lease.task, lease)


def _hash(lease: Lease) -> int:
    return hash_fields("task", lease.task, lease.holder, lease.token, lease.reach, lease.compacts_before_ms)


def _bad_lease(token: int, lease_ms: int) -> InvalidInput | None:
    if not 0 < token < _TOKENS:
        return InvalidInput(f"invalid token {token}: it has 63 bits and is not 0")
    if not limits.LEASE_MS_MIN <= lease_ms <= limits.LEASE_MS_MAX:
        return InvalidInput(
            f"a lease lasts {limits.LEASE_MS_MIN} to {limits.LEASE_MS_MAX} ms, not {lease_ms}"
        )
    return None
