"""A subscription that is moved while its consumers connect again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.broker.subscriptions import service as subscriptions


@pytest.mark.parametrize("durable", [True, False])
async def test_consumers_join_again_once_a_move_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, durable: bool
) -> None:
    monkeypatch.setattr(subscriptions, "RETURN_S_MAX", 0.0)
    broker = await Broker.open(BrokerOptions(tmp_path / "data"))
    topic = await broker.create_topic("t")
    await broker.append_values("t", [b"%d" % number for number in range(6)])
    opened = await broker.subscriptions.open(topic, -1, "s", start=0, durable=durable)
    moving = asyncio.create_task(broker.subscriptions.move(topic, 0, "s", 4))
    await asyncio.sleep(0)  # it has begun
    again = await broker.subscriptions.open(topic, -1, "s", start=0, durable=durable)
    assert again is opened
    assert again.acked.mark == 4
    await moving
    for _ in range(3):
        await asyncio.sleep(0)
    assert broker.subscriptions.exists(topic.streams[0], "s") is durable  # nobody came back
    await broker.close()
