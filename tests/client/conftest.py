"""One real server for most tests, with topics of their own, and brokers to be killed for some."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

import mainstem
from mainstem.testing.broker import ThrowAwayBroker, throw_away_broker


@pytest.fixture(scope="session")
def shared_broker() -> Iterator[ThrowAwayBroker]:
    with throw_away_broker() as broker:
        yield broker


@pytest.fixture
def own_broker() -> Iterator[ThrowAwayBroker]:
    with throw_away_broker() as broker:
        yield broker


@pytest.fixture
def client(shared_broker: ThrowAwayBroker) -> mainstem.Client:
    return shared_broker.client


@pytest.fixture
async def async_client(shared_broker: ThrowAwayBroker) -> AsyncIterator[mainstem.AsyncClient]:
    async with mainstem.AsyncClient(shared_broker.url) as client:
        yield client


_numbers = itertools.count()


@pytest.fixture
def new_name() -> Callable[[], str]:
    return lambda: f"t{next(_numbers)}"


@pytest.fixture
def topic(new_name: Callable[[], str]) -> str:
    """A name that no topic has yet."""
    return new_name()
