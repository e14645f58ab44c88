from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.machine import Machine

from .repacking import SMALL


@pytest.fixture
async def machine() -> AsyncIterator[Machine]:
    """Nothing is read from memory, so that reads meet what was repacked."""
    machine = Machine(repack=SMALL, tail_cache_bytes=0)
    yield machine
    await machine.kill()
