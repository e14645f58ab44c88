"""Selects the protocol of a classic group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from mainstem.broker.groups.member import ClassicMember, Join
from mainstem.errors import InconsistentProtocol, invariant


class Protocols:
    """The number of members that support each protocol."""

    def __init__(self) -> None:
        self._members = 0
        self._supported: Counter[str] = Counter()

    def add(self, member: ClassicMember) -> None:
        self._members += 1
        self._supported.update({name for name, _ in member.protocols})

    def remove(self, member: ClassicMember) -> None:
        self._members -= 1
        self._supported.subtract({name for name, _ in member.protocols})
        self._supported = +self._supported

    def check(self, join: Join, group_type: str | None, rejoining: ClassicMember | None) -> None:
        """Raises InconsistentProtocol unless all members, this one included, have a protocol in common."""
        if not join.protocol_type or not join.protocols:
            raise InconsistentProtocol("a member must send its protocol type and at least one protocol")
        others = self._members - (rejoining is not None)
        if not others:
            return
        if join.protocol_type != group_type:
            raise InconsistentProtocol(
                f"group {join.group!r} is of type {group_type!r}, not {join.protocol_type!r}"
            )
        for name, _ in join.protocols:
            own = rejoining is not None and rejoining.supports(name)
            if self._supported[name] - own == others:
                return
        raise InconsistentProtocol(f"group {join.group!r} supports none of the member's protocols")

    def select(self, members: Iterable[ClassicMember]) -> str:
        """The protocol that most members prefer among those that all support."""
        votes: Counter[str] = Counter()
        for member in members:
            known = (name for name, _ in member.protocols if self._supported[name] == self._members)
            votes[next(known)] += 1
        invariant(votes, "a group needs members to select a protocol")
        return votes.most_common(1)[0][0]
