from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.machine import Machine

from .repacking import SMALL


@pytest.fixture
async def machine() -> AsyncIterator[Machine]:
    """Without a tail cache, so that reads use the repacked files."""
    machine = Machine(repack=SMALL, tail_cache_bytes=0)
    yield machine
    await machine.kill()
