"""The audit log: what it holds, what it counts together, and that it delays and fails no operation."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mainstem.api.access import AUDIT_TOPIC
from mainstem.broker.access.audit import AUDIT_RETENTION_BYTES, AUDIT_RETENTION_MS
from mainstem.broker.access.keys import parse_keys
from mainstem.broker.access.options import AccessOptions
from mainstem.broker.access.principal import Principal
from mainstem.broker.access.rules import Operation, ResourceType
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.errors import ReadOnly, TopicNotFound
from tests.support.waiting import until

_ANN = Principal("User:ann")


@asynccontextmanager
async def _opened(path: Path, **options: Any) -> AsyncIterator[Broker]:
    broker = await Broker.open(BrokerOptions(path, **{"audit": "on", **options}))
    try:
        yield broker
    finally:
        await broker.close()


async def _records(broker: Broker) -> list[dict[str, Any]]:
    try:
        return [json.loads(record.value or b"") for record in await broker.read(AUDIT_TOPIC, 0)]
    except TopicNotFound:
        return []


def _deny(broker: Broker, name: str = "t") -> None:
    broker.audit.record(_ANN, "10.0.0.1", "kafka", "WRITE", "topic", name, "denied")


async def test_a_record_says_who_did_what_where_and_how_it_ended(tmp_path: Path) -> None:
    async with _opened(tmp_path) as broker:
        broker.audit.record(_ANN, "10.0.0.1", "http", "DELETE", "topic", "t", "done")
        await until(lambda: broker.audit.written_total == 1)
        (record,) = await _records(broker)
        assert record.pop("time_ms") > 0
        assert record == {
            "principal": "User:ann",
            "host": "10.0.0.1",
            "door": "http",
            "operation": "DELETE",
            "resource": "topic",
            "name": "t",
            "outcome": "done",
            "broker": 1,
        }
        config = broker.topic(AUDIT_TOPIC).config
        assert config.retention_bytes == AUDIT_RETENTION_BYTES
        assert config.retention_ms == AUDIT_RETENTION_MS


async def test_a_flood_of_denials_becomes_two_records(tmp_path: Path) -> None:
    async with _opened(tmp_path) as broker:
        for _ in range(5_000):
            _deny(broker)
        _deny(broker, "other")
        await until(lambda: broker.audit.written_total == 2)
    async with _opened(tmp_path, audit="off") as broker:
        counted = [(row["name"], row.get("count", 1)) for row in await _records(broker)]
        assert counted == [("t", 1), ("other", 1), ("t", 4_999)]


async def test_denials_are_counted_anew_in_the_next_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.broker.access.audit.AUDIT_WINDOW_S", 0.01)
    async with _opened(tmp_path) as broker:
        _deny(broker)
        _deny(broker)
        await until(lambda: broker.audit.written_total == 2)
        _deny(broker)
        await until(lambda: broker.audit.written_total == 3)
        assert [row.get("count", 1) for row in await _records(broker)] == [1, 1, 1]


async def test_what_does_not_fit_the_queue_is_counted_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.broker.access.audit.AUDIT_QUEUE_MAX", 3)
    async with _opened(tmp_path) as broker:
        for number in range(10):  # without a turn of the loop: nothing is written meanwhile
            broker.audit.record(_ANN, "h", "text", "CREATE", "topic", str(number), "done")
        assert broker.audit.dropped_total == 7
        await until(lambda: broker.audit.written_total == 3)
        assert [(row["name"], row.get("dropped", 0)) for row in await _records(broker)] == [
            ("0", 7),
            ("1", 0),
            ("2", 0),
        ]
        counted = {metric.name: metric.samples[0][1] for metric in broker.audit.published()}
        assert counted == {"mainstem_audit_records_total": 3, "mainstem_audit_dropped_total": 7}


async def test_a_log_that_takes_no_writes_costs_records_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.broker.access.audit.AUDIT_RETRY_S", 0.0)
    async with _opened(tmp_path) as broker:
        append: Callable[..., Awaitable[Any]] = broker.append_values

        async def refuse(*given: Any, **more: Any) -> Any:
            raise ReadOnly("no space left")

        monkeypatch.setattr(broker, "append_values", refuse)
        broker.audit.record(_ANN, "h", "text", "CREATE", "topic", "lost", "done")
        await until(lambda: broker.audit.dropped_total == 1)
        monkeypatch.setattr(broker, "append_values", append)
        broker.audit.record(_ANN, "h", "text", "CREATE", "topic", "kept", "done")
        await until(lambda: broker.audit.written_total == 1)
        assert [(row["name"], row["dropped"]) for row in await _records(broker)] == [("kept", 1)]


async def test_it_is_on_by_itself_while_clients_must_authenticate(tmp_path: Path) -> None:
    keys = AccessOptions(keys=parse_keys("secret"))
    for options, on in (({}, False), ({"access": keys}, True)):
        async with _opened(tmp_path, audit="auto", **options) as broker:
            assert broker.audit.on is on
            _deny(broker)
    async with _opened(tmp_path, audit="off", access=keys) as broker:
        assert not broker.audit.on
        assert len(await _records(broker)) == 1


async def test_only_who_may_alter_the_cluster_changes_the_audit_log(tmp_path: Path) -> None:
    keys = parse_keys("reader:rw,root")
    async with _opened(tmp_path, access=AccessOptions(keys=keys)) as broker:

        def may(secret: bytes, operation: Operation, name: str = AUDIT_TOPIC) -> bool:
            principal = broker.authentication.by_key(secret)
            assert principal is not None
            return broker.access.allows(principal, "h", operation, ResourceType.TOPIC, name)

        assert may(b"reader", Operation.READ)
        assert may(b"reader", Operation.WRITE, "other")
        for operation in (Operation.WRITE, Operation.DELETE, Operation.ALTER, Operation.ALTER_CONFIGS):
            assert not may(b"reader", operation)
            assert may(b"root", operation)
