"""Many members at once, over real sockets, with hand-made frames."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from .conftest import KafkaStage
from .messages import make
from .wire import Wire

JOIN, HEARTBEAT, LEAVE, SYNC = 11, 12, 13, 14
MEMBERS = 50
PATIENCE_S = 60


class StormMember:
    """Behaves like a consumer: joins, syncs, sends heartbeats, and rejoins when told to."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.member_id = ""
        self.generation = -1
        self.assignment = b""

    async def settle(self) -> None:
        """Join a generation and get an assignment."""
        while not await self._join_and_sync():
            pass

    async def _join_and_sync(self) -> bool:
        joined = await self._ask(
            JOIN,
            9,
            session_timeout=timedelta(seconds=30),
            rebalance_timeout=timedelta(seconds=30),
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b""}],
        )
        self.member_id = joined.member_id
        if joined.error_code != ErrorCode.none:
            assert joined.error_code in (ErrorCode.member_id_required, ErrorCode.rebalance_in_progress)
            return False
        self.generation = joined.generation_id
        everybody = [member.member_id for member in joined.members]
        parts = [{"member_id": one, "assignment": one.encode()} for one in everybody]
        synced = await self._ask(
            SYNC,
            5,
            generation_id=self.generation,
            protocol_type="consumer",
            protocol_name="range",
            assignments=parts,
        )
        self.assignment = synced.assignment
        return bool(synced.error_code == ErrorCode.none)

    async def beat(self) -> ErrorCode:
        answer = await self._ask(HEARTBEAT, 4, generation_id=self.generation)
        return ErrorCode(answer.error_code)

    async def stay(self) -> None:
        """Send one heartbeat, and follow a rebalance."""
        if await self.beat() == ErrorCode.rebalance_in_progress:
            await self.settle()

    async def leave(self) -> None:
        await self._ask(LEAVE, 5, members=[{"member_id": self.member_id}])

    async def _ask(self, key: int, version: int, **fields: Any) -> Any:
        known = {"group_id": "g", "member_id": self.member_id}
        return await self.wire.ask(make(load_request_schema(key, version), {**known, **fields}))


async def test_a_storm_of_fifty_members_becomes_stable(kafka: KafkaStage) -> None:
    members = [StormMember(await kafka.connect()) for _ in range(MEMBERS)]
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(member.settle() for member in members))
        await settled(members)
        gone, members = members[:10], members[10:]  # the leader is among those that leave
        await asyncio.gather(*(member.leave() for member in gone))
        await settled(members)
        late = [StormMember(await kafka.connect()) for _ in range(10)]
        await asyncio.gather(*(member.settle() for member in late), settled(members))
        await settled(members + late)


async def settled(members: list[StormMember]) -> None:
    """Wait until all are in one generation and learn of no other."""
    while True:
        await asyncio.gather(*(member.stay() for member in members))
        codes = await asyncio.gather(*(member.beat() for member in members))
        if not any(codes) and len({member.generation for member in members}) == 1:
            break
    assert [member.assignment for member in members] == [member.member_id.encode() for member in members]
