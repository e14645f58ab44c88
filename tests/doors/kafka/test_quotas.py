"""Client quotas: described, stored and enforced, by hand-made frames."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from mainstem.broker.broker import Broker
from mainstem.broker.rates import TokenBucket
from mainstem.doors.kafka.transport.request_quota import counted
from mainstem.ledger.rates import AlterRate, RateEntity
from tests.support.batches import batch
from tests.support.clock import ManualClock

from .conftest import KafkaStage
from .messages import make
from .requests import fetch, list_offsets, metadata, produce
from .wire import Wire

_RATE = "producer_byte_rate"


def _entity(*parts: tuple[str, str | None]) -> list[dict[str, Any]]:
    return [{"entity_type": kind, "entity_name": name} for kind, name in parts]


def _alter(*entries: tuple[list[dict[str, Any]], dict[str, float | None]], dry_run: bool = False) -> Any:
    """Limits by key; None removes one."""
    rows = [
        {
            "entity": entity,
            "ops": [
                {"key": key, "value": value or 0.0, "remove": value is None} for key, value in limits.items()
            ],
        }
        for entity, limits in entries
    ]
    return make(load_request_schema(49, 1), {"entries": rows, "validate_only": dry_run})


def _describe(*components: tuple[str, int, str | None], strict: bool = False) -> Any:
    rows = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
    return make(load_request_schema(48, 1), {"components": rows, "strict": strict})


async def _described(wire: Wire, *components: tuple[str, int, str | None], strict: bool = False) -> list[Any]:
    answer = await wire.ask(_describe(*components, strict=strict))
    assert answer.error_code == ErrorCode.none
    return [
        (
            tuple((part.entity_type, part.entity_name) for part in entry.entity),
            {value.key: value.value for value in entry.values},
        )
        for entry in answer.entries
    ]


async def test_quotas_are_set_found_by_filter_and_removed(wire: Wire) -> None:
    ann, app, every = ("user", "ann"), ("client-id", "app"), ("user", None)
    answer = await wire.ask(
        _alter(
            (_entity(ann), {_RATE: 1.0}),
            (_entity(app, ann), {_RATE: 2.0, "request_percentage": 3.0}),
            (_entity(every), {_RATE: 4.0}),
        )
    )
    assert [entry.error_code for entry in answer.entries] == [ErrorCode.none] * 3
    alone, both, default = (
        ((ann,), {_RATE: 1.0}),
        ((ann, app), {_RATE: 2.0, "request_percentage": 3.0}),
        ((every,), {_RATE: 4.0}),
    )
    assert await _described(wire) == [default, both, alone]
    assert await _described(wire, ("user", 0, "ann")) == [both, alone]
    assert await _described(wire, ("user", 0, "ann"), strict=True) == [alone]
    assert await _described(wire, ("user", 1, None)) == [default]
    assert await _described(wire, ("client-id", 2, None)) == [both]
    assert await _described(wire, ("client-id", 0, "other")) == []
    await wire.ask(_alter((_entity(ann), {_RATE: None})))
    assert await _described(wire, ("user", 2, None), strict=True) == [default]


@pytest.mark.parametrize(
    ("entity", "limits"),
    [
        ([], {_RATE: 1.0}),
        ([("ip", "10.0.0.1")], {_RATE: 1.0}),
        ([("user", "a"), ("user", "b")], {_RATE: 1.0}),
        ([("user", "")], {_RATE: 1.0}),
        ([("user", "a")], {"connection_creation_rate": 1.0}),
        ([("user", "a")], {_RATE: -1.0}),
        ([("user", "a")], {_RATE: float("nan")}),
    ],
)
async def test_invalid_quotas_are_refused_by_name(
    wire: Wire, entity: list[tuple[str, str | None]], limits: dict[str, float | None]
) -> None:
    good = (_entity(("user", "good")), {_RATE: 1.0})
    for dry_run in (True, False):
        answer = await wire.ask(_alter((_entity(*entity), limits), good, dry_run=dry_run))
        refused, taken = answer.entries
        assert refused.error_code == ErrorCode.invalid_request
        assert refused.error_message
        assert taken.error_code == ErrorCode.none
        assert len(await _described(wire)) == (0 if dry_run else 1)


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("ip", 2, None)], ErrorCode.unsupported_version),  # Kafka's for a type that it does not know
        ([("user", 3, None)], ErrorCode.invalid_request),
        ([("user", 0, None)], ErrorCode.invalid_request),
        ([("user", 2, None)] * 2, ErrorCode.invalid_request),
    ],
)
async def test_an_invalid_filter_is_refused(
    wire: Wire, components: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    assert (await wire.ask(_describe(*components))).error_code == code


async def _limit(broker: Broker, key: str, rate: float, client: str = "test") -> None:
    await broker.rates.alter(AlterRate(RateEntity(None, client), ((key, rate),)))


async def _muted(wire: Wire) -> bool:
    """Whether the door does not read from this client, while it answers another."""
    wire.send(metadata(9, create=False))
    try:
        await asyncio.wait_for(wire.reader.readexactly(1), 0.1)
    except TimeoutError:
        return True
    return False


@pytest.mark.parametrize("version", [3, 9])
async def test_a_producer_over_its_quota_is_answered_throttled_and_muted(
    kafka: KafkaStage, version: int
) -> None:
    await kafka.broker.create_topic("t")
    slice, _ = batch(b"x" * 1000)
    wire = await kafka.connect()
    assert (await wire.ask(produce(version, "t", slice))).throttle_time.total_seconds() == 0
    await _limit(kafka.broker, _RATE, 150.0)
    within_the_window = await wire.ask(produce(version, "t", slice))
    assert within_the_window.throttle_time.total_seconds() == 0
    answer = await wire.ask(produce(version, "t", slice))
    assert answer.responses[0].partition_responses[0].base_offset == 2  # accepted nevertheless
    assert 1 < answer.throttle_time.total_seconds() < 7
    other = await kafka.connect()
    assert await _muted(wire)
    assert await other.ask(metadata(9, create=False))
    counted = {metric.name: metric.samples for metric in kafka.door.metrics.published()}
    assert dict(counted["mainstem_kafka_throttled_total"])[("quota", _RATE),] == 1
    assert counted["mainstem_kafka_throttled_seconds_total"][0][1] > 1


async def test_a_muted_client_is_read_again_after_its_throttle_time(kafka: KafkaStage, wire: Wire) -> None:
    await kafka.broker.create_topic("t")
    await _limit(kafka.broker, _RATE, 10_000.0)
    slice, _ = batch(b"x" * 101_000)
    answer = await wire.ask(produce(9, "t", slice))
    assert 0 < answer.throttle_time.total_seconds() < 0.5
    assert await wire.ask(metadata(9, create=False))


@pytest.mark.parametrize("version", [4, 12])
async def test_a_consumer_over_its_quota_gets_its_records_and_a_throttle_time(
    kafka: KafkaStage, wire: Wire, version: int
) -> None:
    await kafka.broker.create_topic("t")
    for _ in range(20):
        await kafka.broker.append_values("t", [b"x" * 1000])
    assert (await wire.ask(fetch(version, "t", (0, 0)))).throttle_time.total_seconds() == 0
    await _limit(kafka.broker, "consumer_byte_rate", 500.0)
    answer = await wire.ask(fetch(version, "t", (0, 0)))
    size = len(answer.responses[0].partitions[0].records)
    assert 2000 < size <= 5000  # no more than the window allows at once
    assert answer.throttle_time.total_seconds() == 0
    answer = await wire.ask(fetch(version, "t", (0, 4)))
    assert len(answer.responses[0].partitions[0].records) > 2000
    assert answer.throttle_time.total_seconds() > 1
    assert await _muted(wire)


async def test_the_cost_of_a_fetch_grows_with_its_topics_alone(
    kafka: KafkaStage, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not with the product of its topics and their rates."""
    broker, topics = kafka.broker, [f"t{number}" for number in range(40)]
    for topic in topics:
        await broker.create_topic(topic)
        await broker.append_values(topic, [b"x"])
        await broker.rates.alter(AlterRate(RateEntity(topic=topic), (("consumer_byte_rate", 1e9),)))
    requests = [fetch(11, topic, (0, 0)) for topic in topics]
    every = replace(requests[0], topics=tuple(request.topics[0] for request in requests))
    looked_up: list[str] = []
    scope = broker.rates.scope

    def noted(topic: str) -> str:
        looked_up.append(topic)
        return scope(topic)

    monkeypatch.setattr(broker.rates, "scope", noted)
    answer = await wire.ask(every)
    assert all(topic.partitions[0].records for topic in answer.responses)
    assert len(topics) <= len(looked_up) <= 5 * len(topics)


async def test_a_client_without_a_quota_is_never_throttled(kafka: KafkaStage, wire: Wire) -> None:
    await kafka.broker.create_topic("t")
    await _limit(kafka.broker, _RATE, 1.0, client="another")
    slice, _ = batch(b"x" * 100_000)
    for _ in range(3):
        assert (await wire.ask(produce(9, "t", slice))).throttle_time.total_seconds() == 0


def _meter(broker: Broker, key: str, client: str = "test") -> TokenBucket:
    meter = broker.rates.of_client(key, "ANONYMOUS", client)
    assert meter is not None
    return meter


@pytest.mark.parametrize(
    "request_of",
    [
        lambda slice: produce(3, "t", slice),
        lambda slice: produce(8, "t", slice),
        lambda slice: produce(12, "t", slice),
        lambda slice: fetch(4, "t", (0, 0)),
        lambda slice: fetch(12, "t", (0, 0)),
        lambda slice: metadata(3, "t"),
        lambda slice: metadata(12, "t"),
        lambda slice: list_offsets(7, "t", (0, -1)),
        lambda slice: make(load_request_schema(10, 4), {"key_type": 0, "coordinator_keys": ("g",)}),
    ],
    ids=[
        "produce-3",
        "produce-8",
        "produce-12",
        "fetch-4",
        "fetch-12",
        "metadata-3",
        "metadata-12",
        "list-offsets",
        "find-coordinator",
    ],
)
async def test_a_client_over_its_request_quota_is_answered_throttled_and_muted(
    kafka: KafkaStage, wire: Wire, request_of: Callable[[bytearray], Any]
) -> None:
    await kafka.broker.create_topic("t")
    slice, _ = batch(b"x")
    await _limit(kafka.broker, "request_percentage", 100.0)
    for _ in range(2):
        assert (await wire.ask(request_of(slice))).throttle_time.total_seconds() == 0
    _meter(kafka.broker, "request_percentage").take(1_000 + 500)  # hundredths of seconds: ten were left
    answer = await wire.ask(request_of(slice))
    assert 2 < answer.throttle_time.total_seconds() < 8
    assert await _muted(wire)
    counted = {metric.name: metric.samples for metric in kafka.door.metrics.published()}
    assert dict(counted["mainstem_kafka_throttled_total"])[("quota", "request_percentage"),] == 1


async def test_request_time_is_counted_only_for_clients_with_a_quota(kafka: KafkaStage, wire: Wire) -> None:
    await _limit(kafka.broker, "request_percentage", 0.000001)  # less than any request takes
    await _limit(kafka.broker, "request_percentage", 100.0, client="another")
    first = await wire.ask(metadata(12))
    second = await wire.ask(metadata(12))
    assert (first.throttle_time.total_seconds(), second.throttle_time.total_seconds()) == (0, 20)
    assert _meter(kafka.broker, "request_percentage", "another").take(0) == 0


async def test_api_versions_and_logins_are_free(kafka: KafkaStage, wire: Wire) -> None:
    await _limit(kafka.broker, "request_percentage", 0.000001)
    hello = make(load_request_schema(18, 3), {"client_software_name": "test", "client_software_version": "1"})
    for _ in range(3):
        assert (await wire.ask(hello)).throttle_time.total_seconds() == 0
    assert (await wire.ask(metadata(12))).throttle_time.total_seconds() == 0


async def test_only_the_running_steps_of_waiting_work_are_counted() -> None:
    meter, clock = TokenBucket(1.0, ManualClock()), ManualClock()
    events = [asyncio.get_running_loop().create_future() for _ in range(2)]

    async def work() -> None:
        clock.advance(30)
        await events[0]
        clock.advance(30)
        with contextlib.suppress(ValueError):
            await events[1]
        clock.advance(40)
        raise LookupError

    async def run() -> None:
        await counted(work(), meter, clock.monotonic)

    task = asyncio.create_task(run())
    await asyncio.sleep(0)
    clock.advance(5_000)  # others run, or nobody does
    events[0].set_result(None)
    events[1].set_exception(ValueError())
    with pytest.raises(LookupError):
        await task
    assert meter.take(0) == 0  # a hundredth of ten seconds was left, and is used up
    assert meter.take(0.01) > 0
