"""Fixtures for tests of programs that use Mainstem. pytest discovers them once Mainstem is installed.

def test_an_order_is_billed(mainstem_broker):
    mainstem_broker.client.produce("orders", {"id": 1})
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from mainstem.client.sync import Client
    from mainstem.testing.broker import ThrowAwayBroker


@pytest.fixture
def mainstem_broker() -> Iterator[ThrowAwayBroker]:
    """A broker for this test: `.url`, `.bootstrap_servers`, `.client`, `.kill()`, `.restart()`."""
    from mainstem.testing.broker import throw_away_broker  # imported only by tests that use it

    with throw_away_broker() as broker:
        yield broker


@pytest.fixture
def mainstem_client(mainstem_broker: ThrowAwayBroker) -> Client:
    """A client of this test's broker."""
    return mainstem_broker.client
