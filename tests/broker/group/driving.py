"""Drives one classic group with a manual clock."""

from __future__ import annotations

import asyncio

from mainstem.broker.groups.classic import ClassicGroup
from mainstem.broker.groups.member import Join, Joined, Synced
from mainstem.broker.groups.options import GroupOptions
from mainstem.broker.groups.timers import Timers
from mainstem.errors import MainstemError, MemberIdRequired
from mainstem.ledger.group_generations import GroupGeneration
from tests.support.clock import ManualClock

SESSION_MS = 10_000
REBALANCE_MS = 60_000
DELAY_MS = 100
RANGE = (("range", b"m"),)


class Driver:
    def __init__(
        self,
        *,
        members_max: int = 1_000,
        initial_delay_ms: int = DELAY_MS,
        before: GroupGeneration | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.timers = Timers(self.clock)
        options = GroupOptions(members_max=members_max, initial_delay_ms=initial_delay_ms)
        self._ids = 0
        self.bumped: list[tuple[int, tuple[str, ...]]] = []
        self.group = ClassicGroup("g", self.timers, options, self, before=before)

    def new_id(self, prefix: str) -> str:
        self._ids += 1
        return f"{prefix}-{self._ids}"

    def record(self, group: str, generation: int, members: tuple[str, ...]) -> None:
        self.bumped.append((generation, members))

    def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        self.timers.fire()

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = RANGE,
        kind: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        id_required: bool = False,
        may_skip: bool = True,
    ) -> asyncio.Future[Joined]:
        return self.group.join(
            Join(
                group="g",
                protocol_type=kind,
                protocols=protocols,
                session_ms=session_ms,
                rebalance_ms=rebalance_ms,
                member_id=member_id,
                instance_id=instance,
                client_id="c",
                client_host="here",
                id_required=id_required,
                may_skip_assignment=may_skip,
            )
        )

    def ask_for_id(self, session_ms: int = SESSION_MS) -> str:
        try:
            self.join(id_required=True, session_ms=session_ms)
        except MemberIdRequired as given:
            return given.member
        raise AssertionError("no id was given")

    def sync(
        self, joined: Joined, assignments: dict[str, bytes] | None = None, instance: str | None = None
    ) -> asyncio.Future[Synced]:
        return self.group.sync(
            joined.member_id, joined.generation, instance_id=instance, assignments=assignments or {}
        )

    def beat(self, joined: Joined, instance: str | None = None) -> None:
        self.group.heartbeat(joined.member_id, joined.generation, instance)

    def form(self, members: int = 2, **join: object) -> list[Joined]:
        """A stable group. The first member is its leader."""
        futures = [self.join(**join) for _ in range(members)]  # type: ignore[arg-type]
        self.settle_gathering()
        return self.finish([future.result() for future in futures])

    def settle_gathering(self) -> None:
        while self.group.state == "PreparingRebalance":
            self.advance(DELAY_MS)

    def finish(self, joined: list[Joined]) -> list[Joined]:
        """All members sync, and the group is stable. The leader comes first in the result."""
        joined = sorted(joined, key=lambda answer: answer.member_id != answer.leader)
        for answer in joined:
            self.sync(answer, {other.member_id: other.member_id.encode() for other in joined})
        assert self.group.state == "Stable"
        return joined


def failed(future: asyncio.Future[Joined] | asyncio.Future[Synced]) -> type[BaseException]:
    error = future.exception()
    assert isinstance(error, MainstemError)
    return type(error)
