"""A hand-made share consumer: its session, fetches and acknowledgements, one version at a time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from kio.index import load_request_schema

from mainstem.broker.broker import Broker
from mainstem.records.decoding import decode_records

from .messages import make
from .wire import Wire

HEARTBEAT, DESCRIBE, FETCH, ACKNOWLEDGE = 76, 77, 78, 79
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)

Told = tuple[int, int, int]  # first offset, last offset, type


async def ask(wire: Wire, api: int, version: int, **fields: Any) -> Any:
    return await wire.ask(make(load_request_schema(api, version), fields))


async def earliest(broker: Broker, group: str = "g") -> None:
    """Have the group start at the earliest offset."""
    await broker.shares.change_settings(group, [("share.auto.offset.reset", "earliest")], [])


class Sharer:
    """One member with one topic."""

    def __init__(
        self, wire: Wire, broker: Broker, *, member: str = "m", group: str = "g", version: int = 2
    ) -> None:
        self.wire = wire
        self.member = member
        self.group = group
        self.version = version
        self.epoch = 0
        self.topic = UUID(bytes=broker.topic("t").topic_id)

    async def fetch(
        self,
        *told: Told,
        partitions: Sequence[int] = (),
        forget: Sequence[int] = (),
        records: int = 100,
        wait_ms: int = 0,
        epoch: int | None = None,
        **fields: Any,
    ) -> Any:
        """The whole response. A new session names partition 0 if no other is named."""
        epoch = self.epoch if epoch is None else epoch
        named = dict.fromkeys(partitions or ((0,) if epoch == 0 or told else ()), ())
        named |= {min(named): told} if told else {}
        answer = await ask(
            self.wire,
            FETCH,
            self.version,
            **{
                "group_id": self.group,
                "member_id": self.member,
                "share_session_epoch": epoch,
                "max_wait": timedelta(milliseconds=wait_ms),
                "min_bytes": 1,
                "max_bytes": 1 << 20,
                "max_records": records,
                "batch_size": records,
                "share_acquire_mode": 1,
                "topics": self._topics(named),
                "forgotten_topics_data": [{"topic_id": self.topic, "partitions": tuple(forget)}]
                if forget
                else (),
                **fields,
            },
        )
        if not answer.error_code:
            self.epoch = epoch + 1
        return answer

    async def acknowledge(
        self, *told: Told, partition: int = 0, epoch: int | None = None, **fields: Any
    ) -> Any:
        epoch = self.epoch if epoch is None else epoch
        answer = await ask(
            self.wire,
            ACKNOWLEDGE,
            self.version,
            **{
                "group_id": self.group,
                "member_id": self.member,
                "share_session_epoch": epoch,
                "topics": self._topics({partition: told} if told else {}),
                **fields,
            },
        )
        if not answer.error_code:
            self.epoch = epoch + 1
        return answer

    async def take(self, *told: Told, **options: Any) -> list[tuple[int, int]]:
        """(offset, delivery count) of what partition 0 returned; checks that the records are there."""
        answer = await self.fetch(*told, **options)
        assert answer.error_code == 0, answer
        part = next(
            (p for topic in answer.responses for p in topic.partitions if p.partition_index == 0), None
        )
        if part is None:
            return []
        assert (part.error_code, part.acknowledge_error_code) == (0, 0), part
        got = [
            (offset, run.delivery_count)
            for run in part.acquired_records
            for offset in range(run.first_offset, run.last_offset + 1)
        ]
        there = (
            {record[0] for record in decode_records(memoryview(part.records), 0)} if part.records else set()
        )
        assert {offset for offset, _ in got} <= there
        return got

    def _topics(self, named: dict[int, Sequence[Told]]) -> list[dict[str, Any]]:
        partitions = [
            {
                "partition_index": index,
                "acknowledgement_batches": [
                    {"first_offset": first, "last_offset": last, "acknowledge_types": (kind,)}
                    for first, last, kind in told
                ],
            }
            for index, told in named.items()
        ]
        return [{"topic_id": self.topic, "partitions": partitions}] if partitions else []
