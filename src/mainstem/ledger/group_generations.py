"""Generations of groups: who was in a group last, so that the broker that looks after it next knows its members.

A group lives in the memory of one broker. What is here lets another one, or the same after a start, take its members
for what they are: they are asked to join again, and what they have read until then they may still commit.
"""

from __future__ import annotations

import msgspec

from mainstem import limits
from mainstem.errors import InvalidInput
from mainstem.ledger.commands import BumpGeneration
from mainstem.ledger.digest import MASK, hash_fields


class GroupGeneration(msgspec.Struct, frozen=True, array_like=True):
    """Of one group; also as a checkpoint holds it."""

    group: str
    generation: int
    members: tuple[str, ...]

    @property
    def digest(self) -> int:
        return hash_fields("group generation", self.group, self.generation, self.members)


class GroupGenerations:
    """By group, only of groups with members. Of too many the one that changed longest ago is forgotten: its members
    are then strangers to the next broker, as they are to one of another system."""

    def __init__(self) -> None:
        self._kept: dict[str, GroupGeneration] = {}  # the last one that changed at the end
        self.digest = 0

    def get(self, group: str) -> GroupGeneration | None:
        return self._kept.get(group)

    def bump(self, command: BumpGeneration) -> GroupGeneration | InvalidInput:
        fault = _fault(command)
        if fault is not None:
            return InvalidInput(fault)
        before = self._kept.get(command.group)
        if before is not None and command.generation < before.generation:
            return before  # a broker that did not know yet that it looks after the group no more
        now = GroupGeneration(command.group, command.generation, command.members)
        self._put(now)
        if len(self._kept) > limits.GROUP_GENERATIONS_MAX:
            self._forget(next(iter(self._kept)))
        return now

    def encode(self) -> list[GroupGeneration]:
        """In the order in which they changed, which decides who is forgotten."""
        return list(self._kept.values())

    @classmethod
    def decode(cls, states: list[GroupGeneration]) -> GroupGenerations:
        generations = cls()
        for state in states:
            generations._put(state)
        return generations

    def _put(self, now: GroupGeneration) -> None:
        self._forget(now.group)
        if now.members:
            self._kept[now.group] = now
            self.digest = (self.digest + now.digest) & MASK

    def _forget(self, group: str) -> None:
        before = self._kept.pop(group, None)
        if before is not None:
            self.digest = (self.digest - before.digest) & MASK


def _fault(command: BumpGeneration) -> str | None:
    words = (command.group, *command.members)
    if not all(0 < len(word) <= limits.GROUP_GENERATION_CHARS_MAX for word in words):
        return f"a group and its members have names of 1 to {limits.GROUP_GENERATION_CHARS_MAX} characters"
    if not 0 <= command.generation <= limits.GROUP_GENERATION_MAX:
        return f"a generation is a number from 0 to {limits.GROUP_GENERATION_MAX}"
    if len(command.members) > limits.GROUP_GENERATION_MEMBERS_MAX:
        return f"of a generation at most {limits.GROUP_GENERATION_MEMBERS_MAX} members are kept"
    return None
