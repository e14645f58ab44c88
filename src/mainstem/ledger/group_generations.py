"""Generations of groups: who was in a group last, so that the broker that looks after it next knows its members.

A group lives in the memory of one broker. What is here lets another one, or the same after a start, take its members
for what they are: they are asked to join again, and what they have read until then they may still commit.
"""

from __future__ import annotations

import msgspec

from mainstem import limits
from mainstem.errors import InvalidInput
from mainstem.ledger.commands import BumpGeneration
from mainstem.ledger.digest import hash_fields
from mainstem.ledger.latest_by_key import LatestByKey


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
        self._kept: LatestByKey[GroupGeneration] = LatestByKey()

    @property
    def digest(self) -> int:
        return self._kept.digest

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
        if now.members:
            self._kept.put(now.group, now)
            self._kept.keep(limits.GROUP_GENERATIONS_MAX)
        else:
            self._kept.forget(now.group)
        return now

    def encode(self) -> list[GroupGeneration]:
        """In the order in which they changed, which decides who is forgotten."""
        return list(self._kept)

    @classmethod
    def decode(cls, states: list[GroupGeneration]) -> GroupGenerations:
        generations = cls()
        for state in states:
            generations._kept.put(state.group, state)
        return generations


def _fault(command: BumpGeneration) -> str | None:
    words = (command.group, *command.members)
    if not all(0 < len(word) <= limits.GROUP_GENERATION_CHARS_MAX for word in words):
        return f"a group and its members have names of 1 to {limits.GROUP_GENERATION_CHARS_MAX} characters"
    if not 0 <= command.generation <= limits.GROUP_GENERATION_MAX:
        return f"a generation is a number from 0 to {limits.GROUP_GENERATION_MAX}"
    if len(command.members) > limits.GROUP_GENERATION_MEMBERS_MAX:
        return f"of a generation at most {limits.GROUP_GENERATION_MEMBERS_MAX} members are kept"
    return None
