"""A broker of a cluster that lags behind the others: it catches up before it reports that something does not exist."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from mainstem.broker.broker import Broker
from mainstem.errors import StoreUnreachable
from tests.support.batches import batch
from tests.support.cluster import brokers_here

from .conftest import opened
from .messages import make
from .requests import metadata, produce
from .wire import Wire


@pytest.fixture
async def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[Broker]]:
    """Two brokers over one bucket, neither of which follows the other unless something makes it."""
    monkeypatch.setattr("mainstem.ports.commitlog.shared.bucket.commits.BUCKET_POLL_S", 3_600.0)
    async with brokers_here(tmp_path, "ahead", "behind") as brokers:
        yield brokers


async def _codes(wire: Wire, *names: str) -> list[ErrorCode]:
    return [topic.error_code for topic in (await wire.ask(metadata(9, *names, create=False))).topics]


async def _listed(wire: Wire) -> list[str]:
    return [topic.name for topic in (await wire.ask(metadata(9, all=True))).topics]


async def test_metadata_knows_what_another_broker_created_and_deleted(two: list[Broker]) -> None:
    ahead, behind = two
    async with opened(behind) as stage:
        wire = await stage.connect()
        await ahead.create_topic("one")
        assert await _codes(wire, "one") == [ErrorCode.none]
        await ahead.create_topic("two")
        assert await _listed(wire) == ["one", "two"]
        await ahead.delete_topic("one")
        assert await _listed(wire) == ["two"]
        assert await _codes(wire, "one") == [ErrorCode.unknown_topic_or_partition]


async def test_without_a_store_known_topics_are_returned_and_none_is_reported_missing(
    two: list[Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead, behind = two
    async with opened(behind) as stage:
        wire = await stage.connect()
        await ahead.create_topic("one")
        assert await _codes(wire, "one") == [ErrorCode.none]

        async def away() -> None:
            raise StoreUnreachable("the store is away")

        monkeypatch.setattr(behind.log, "barrier", away)
        assert await _listed(wire) == ["one"]
        (code,) = await _codes(wire, "two")
        assert code.retriable
        assert code is not ErrorCode.unknown_topic_or_partition


async def test_records_that_may_have_been_written_are_not_reported_as_failed(
    two: list[Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client without retries sends again what was reported as not written, which would duplicate it."""
    ahead, _ = two
    await ahead.create_topic("t")
    sharing = ahead.log.sharing
    assert sharing is not None
    port = sharing.following._port
    put = port.append

    async def lose_the_answer(*asked: Any) -> Any:
        await put(*asked)
        raise StoreUnreachable("the store does not answer")

    async with opened(ahead) as stage:
        wire = await stage.connect()
        monkeypatch.setattr(port, "append", lose_the_answer)
        answer = await wire.ask(produce(9, "t", batch(b"once")[0]))
        monkeypatch.setattr(port, "append", put)
        assert answer.responses[0].partition_responses[0].error_code is ErrorCode.request_timed_out
        await ahead.log.barrier()
        assert [record.value for record in await ahead.read("t", 0)] == [b"once"]


async def test_administrators_find_what_another_broker_created_and_changed(two: list[Broker]) -> None:
    ahead, behind = two
    async with opened(behind) as stage:
        wire = await stage.connect()
        await ahead.create_topic("one")
        change = {"name": "retention.ms", "config_operation": 0, "value": "5"}
        resource = {"resource_type": 2, "resource_name": "one", "configs": [change]}
        asked = make(load_request_schema(44, 1), {"resources": [resource], "validate_only": False})
        assert [row.error_code for row in (await wire.ask(asked)).responses] == [ErrorCode.none]
        await ahead.log.barrier()
        await ahead.change_topic("one", lambda config: msgspec.structs.replace(config, retention_ms=9))
        described = {"resource_type": 2, "resource_name": "one", "configuration_keys": ["retention.ms"]}
        answer = await wire.ask(
            make(
                load_request_schema(32, 4),
                {"resources": [described], "include_synonyms": False, "include_documentation": False},
            )
        )
        assert [entry.value for entry in answer.results[0].configs] == ["9"]


_ASKED: dict[str, tuple[int, int, dict[str, Any]]] = {
    "OffsetFetch": (9, 8, {"groups": [{"group_id": "GROUP", "topics": None}], "require_stable": False}),
    "DescribeGroups": (15, 5, {"groups": ["GROUP"], "include_authorized_operations": False}),
    "ConsumerGroupDescribe": (69, 0, {"group_ids": ["GROUP"], "include_authorized_operations": False}),
    "DeleteGroups": (42, 2, {"groups_names": ["GROUP"]}),
    "Heartbeat": (
        12,
        4,
        {"group_id": "GROUP", "generation_id": 1, "member_id": "m", "group_instance_id": None},
    ),
}


@pytest.mark.parametrize("asked", _ASKED)
async def test_a_broker_that_became_the_coordinator_finds_out_when_it_is_asked(
    two: list[Broker], asked: str
) -> None:
    ahead, behind = two
    async with opened(behind, broker_id=behind.log.broker) as stage:
        groups = stage.door.context.groups
        await ahead.cluster.join({"kafka": "127.0.0.1:1"})
        await behind.cluster.join({"kafka": str(stage.address)})
        await behind.log.barrier()
        theirs = next(f"g{number}" for number in range(100) if not groups.coordinates(f"g{number}"))
        await ahead.close()
        assert not groups.coordinates(theirs)  # as far as it knows
        wire = await stage.connect()
        key, version, fields = _ASKED[asked]
        named = msgspec.json.decode(msgspec.json.encode(fields).replace(b"GROUP", theirs.encode()))
        answer = await wire.ask(make(load_request_schema(key, version), named))
        assert ErrorCode.not_coordinator.name not in str(answer)
        assert groups.coordinates(theirs)
