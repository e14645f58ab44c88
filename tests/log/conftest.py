from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.machine import Machine


@pytest.fixture
async def machine() -> AsyncIterator[Machine]:
    """Stops what still runs, whatever its state."""
    machine = Machine()
    yield machine
    await machine.kill()
