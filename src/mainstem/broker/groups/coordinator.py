"""What groups need from the broker that coordinates them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from mainstem.ledger.topics import Topics


class GroupCoordinator(Protocol):
    """What a group with broker-side assignment needs."""

    @property
    def topics(self) -> Topics: ...

    def settings(self, group: str) -> Mapping[str, str]:
        """The effective settings of a group."""
        ...

    def save(self, group: str) -> None:
        """Write to the ledger what a group decided without a heartbeat, such as the expiry of a session."""
        ...


class GenerationRecorder(Protocol):
    """What a classic group needs."""

    def new_id(self, prefix: str) -> str:
        """The id of a new member."""
        ...

    def record(self, group: str, generation: int, members: tuple[str, ...]) -> None:
        """Record the members of a new generation in the ledger, without waiting."""
        ...
