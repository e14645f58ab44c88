"""The broker behind the doors, and the event loop that they run on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import uvloop

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.ledger.config import TopicConfig


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The event loop of a server."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    broker = await Broker.open(
        BrokerOptions(tmp_path / "data", default_config=TopicConfig(durability="disk"), segment_bytes=1 << 20)
    )
    yield broker
    await broker.close()
