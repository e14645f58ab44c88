"""JSON that clients store, nested more deeply than any decoder follows: its readers go on."""

from __future__ import annotations

import pytest

from mainstem.broker.json_search import json_condition
from mainstem.broker.queues.requeue import requeue
from mainstem.errors import InvalidInput
from mainstem.ledger.config import TopicConfig
from tests.support.machine import Machine

_DEEP = b"[" * 20_000 + b"]" * 20_000


def test_a_search_goes_on_past_it() -> None:
    assert not json_condition("$.a = 1").fits(_DEEP)
    assert not json_condition("$.a").fits(b'{"a":' + _DEEP + b"}")
    assert not json_condition("$.a = " + _DEEP.decode()).fits(b'{"a":1}')


def test_a_place_has_at_most_as_many_digits_as_a_number() -> None:
    with pytest.raises(InvalidInput):
        json_condition(f"$[{'9' * 5_000}]")


@pytest.mark.parametrize("meta", [_DEEP, b'{"a":' + _DEEP + b"}", b'{"\xff":1}', b'"\xff"'])
async def test_a_job_with_it_becomes_a_dead_letter_and_is_requeued(machine: Machine, meta: bytes) -> None:
    broker = await machine.open()
    config = TopicConfig(type="queue", durability="disk", max_deliveries=1, dead_letter="dead")
    await broker.create_topic("q", config=config)
    await broker.append_values("q", [b"bad", b"good"], headers=[[("meta", meta)], []])
    (job,) = (await broker.queues.claim("q", "ann")).jobs
    await broker.queues.nack("q", "ann", [job.offset])
    assert [job.value for job in (await broker.queues.claim("q", "ann")).jobs] == [b"good"]
    assert [record.value for record in await broker.read("dead", 0)] == [b"bad"]
    # As a dead letter that a client wrote itself.
    await broker.append_values("dead", [b"forged"], headers=[[("meta", meta)]])
    requeued = await requeue(broker, broker.topic("dead"), [1], "q")
    assert list(requeued.moved) == [1]
