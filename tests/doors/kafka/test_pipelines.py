"""Clients that send many requests ahead take turns with each other, and others come between."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from mainstem.broker.broker import Broker
from mainstem.doors.budget import CONNECTION_UNUSED_S_MIN, Turns
from mainstem.doors.kafka.security.options import KafkaSecurity
from mainstem.doors.kafka.transport.connection import KafkaLimits
from mainstem.doors.tls import tls_context
from tests.support.batches import batch
from tests.support.certificates import make_self_signed
from tests.support.waiting import until

from .conftest import KafkaStage, opened
from .requests import metadata, produce
from .wire import Wire, request_frame

_AHEAD = 300


@pytest.fixture
def one_request_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainstem.doors.budget.STEP_S", -1.0)
    monkeypatch.setattr("mainstem.doors.kafka.apis.lone_batch.REQUESTS_PER_RUN_MAX", 1)


def _flood() -> bytes:
    """Produces, behind a request that nothing may overtake."""
    slice, _ = batch(b"x")
    ahead = b"".join(request_frame(produce(9, "t", slice), number) for number in range(1, _AHEAD))
    return request_frame(metadata(12, "t"), 0) + ahead


@pytest.mark.usefixtures("one_request_a_step")
async def test_others_are_served_between_requests_of_clients_that_send_ahead(kafka: KafkaStage) -> None:
    await kafka.broker.create_topic("t")
    other = await kafka.connect()
    await other.ask(metadata(12, "t"))
    floods = [await kafka.connect() for _ in range(4)]
    for wire in floods:
        wire.send_raw(_flood())
    slice, _ = batch(b"other")
    for _ in range(5):
        await other.ask(produce(9, "t", slice))
    assert kafka.broker.partition("t").end < _AHEAD, "the pipelines were served in one go"
    answered = await asyncio.gather(*map(_correlations, floods))
    assert answered == [list(range(_AHEAD))] * 4


async def _correlations(wire: Wire) -> list[int]:
    return [struct.unpack(">i", (await wire.receive_raw())[:4])[0] for _ in range(_AHEAD)]


@pytest.mark.usefixtures("one_request_a_step")
async def test_a_connection_may_be_lost_or_the_door_close_before_all_is_served(kafka: KafkaStage) -> None:
    await kafka.broker.create_topic("t")
    lost, left = await kafka.connect(), await kafka.connect()
    for wire in (lost, left):
        wire.send_raw(_flood())
        await wire.receive_raw()
    await lost.close()
    await kafka.door.stop(60.0)
    assert kafka.broker.partition("t").end < 2 * _AHEAD


@pytest.mark.usefixtures("one_request_a_step")
async def test_a_client_whose_requests_wait_for_their_turn_makes_no_room_for_others(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create_topic("t")
    held: list[Callable[[], None]] = []
    slice, _ = batch(b"x")
    async with opened(broker, bounds=KafkaLimits(connections=2)) as stage:
        ahead, unused = await stage.connect(), await stage.connect()
        await ahead.ask(produce(9, "t", slice))
        await unused.ask(metadata(12))
        with monkeypatch.context() as patched:
            patched.setattr(Turns, "later", lambda turns, principal, step: held.append(step))
            ahead.send_raw(b"".join(request_frame(produce(9, "t", slice), number) for number in range(3)))
            await ahead.receive_raw()
            await asyncio.sleep(2 * CONNECTION_UNUSED_S_MIN)
            other = await stage.connect()
            await other.ask(metadata(12))
        for step in held:
            step()
        for _ in range(2):
            await ahead.receive_raw()
        assert await unused.ended()


@pytest.mark.usefixtures("one_request_a_step")
@pytest.mark.parametrize("encrypted", [False, True])
async def test_what_a_client_sends_right_before_it_closes_is_served(
    broker: Broker, tmp_path: Path, encrypted: bool
) -> None:
    await broker.create_topic("t")
    served: ssl.SSLContext | None = None
    trusted: ssl.SSLContext | None = None
    if encrypted:
        made = make_self_signed(tmp_path)
        served = tls_context(made / "cert.pem", made / "key.pem", None)
        trusted = ssl.create_default_context(cafile=str(made / "cert.pem"))
    slice, _ = batch(b"x")
    requests = [request_frame(produce(9, "t", slice, acks=0), number) for number in range(100)]
    async with opened(broker, security=KafkaSecurity(tls=served)) as stage:
        _, writer = await asyncio.open_connection(stage.address.host, stage.address.port, ssl=trusted)
        writer.write(b"".join(requests))
        writer.close()
        await writer.wait_closed()
        await until(lambda: broker.partition("t").end == len(requests))
