from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.machine import Machine


@pytest.fixture
async def machine() -> AsyncIterator[Machine]:
    """Ends what is still running, whatever state it is in."""
    machine = Machine()
    yield machine
    await machine.kill()
