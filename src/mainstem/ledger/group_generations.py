"""Generations of groups: the last known members of each group.

A group lives in the memory of one broker. After a restart, or when another broker becomes the coordinator, the broker
recognises the members listed here: it asks them to join again and still accepts their commits of what they have read.
"""

from __future__ import annotations

import msgspec

from mainstem import limits
from mainstem.errors import InvalidInput
from mainstem.ledger.keyed import LatestByKey, fields_hash
from mainstem.ledger.section import Command, Moment, Section, applies

GROUP_GENERATIONS_MAX = 10_000  # groups whose last members are in the ledger
GROUP_GENERATION_MAX = 2**31 - 1


class BumpGeneration(Command, frozen=True, tag=151):
    """A rebalance gave a group these members. With no members, the group is forgotten."""

    group: str
    generation: int
    members: tuple[str, ...]


class GroupGeneration(msgspec.Struct, frozen=True, array_like=True):
    """The generation of one group; also the form in a checkpoint."""

    group: str
    generation: int
    members: tuple[str, ...]


class GroupGenerations(Section[list[GroupGeneration]]):
    """By group, only of groups with members. Beyond the limit, the group that changed longest ago is forgotten; the
    next coordinator then does not recognise its members."""

    def __init__(self) -> None:
        self._generations: LatestByKey[str, GroupGeneration] = LatestByKey(fields_hash("group generation"))

    def get(self, group: str) -> GroupGeneration | None:
        return self._generations.get(group)

    @applies(BumpGeneration)
    def bump(self, command: BumpGeneration, now: Moment) -> GroupGeneration | InvalidInput:
        fault = _fault(command)
        if fault is not None:
            return InvalidInput(fault)
        before = self._generations.get(command.group)
        if before is not None and command.generation < before.generation:
            return before  # from a broker that does not know yet that it is no longer the coordinator
        after = GroupGeneration(command.group, command.generation, command.members)
        if after.members:
            self._generations.put(after.group, after)
            self._generations.evict(GROUP_GENERATIONS_MAX)
        else:
            self._generations.pop(after.group)
        return after

    @property
    def digest(self) -> int:
        return self._generations.digest

    def encode(self) -> list[GroupGeneration]:
        """In the order of their changes, which decides what is evicted."""
        return list(self._generations)

    def load(self, state: list[GroupGeneration]) -> None:
        for one in state:
            self._generations.put(one.group, one)


def _fault(command: BumpGeneration) -> str | None:
    words = (command.group, *command.members)
    if not all(0 < len(word) <= limits.GROUP_GENERATION_CHARS_MAX for word in words):
        return f"a group and its members have names of 1 to {limits.GROUP_GENERATION_CHARS_MAX} characters"
    if not 0 <= command.generation <= GROUP_GENERATION_MAX:
        return f"a generation is a number from 0 to {GROUP_GENERATION_MAX}"
    if len(command.members) > limits.GROUP_GENERATION_MEMBERS_MAX:
        return f"a generation has at most {limits.GROUP_GENERATION_MEMBERS_MAX} members"
    return None
