"""The HTTP door compared with a model of its contract: random calls, clock and crashes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.machine import Machine

from .conftest import Api
from .contract_model import Settings
from .contract_queue_walk import QueueWalk
from .contract_steps import Step, steps

STEPS = 90
_SHORTENINGS = 120  # runs spent on shortening a failing walk

_CONFIGS: dict[str, tuple[Settings, ...]] = {
    "a": (
        Settings(),
        Settings(cap_records=4),
        Settings(cap_bytes=200),
        Settings(ttl_ms=1000),
        Settings(ttl_ms=500, cap_records=3),
        Settings(cap_records=3, discard="reject"),
    ),
    "b": (
        Settings(),
        Settings(cap_records=5),
        Settings(cap_records=4, discard="reject"),
        Settings(ttl_ms=1000),
    ),
    "c": (Settings(dedupe_node=False), Settings(ttl_ms=2000)),
    "q": (
        Settings(type="queue", lease_ms=1000),
        Settings(type="queue", lease_ms=1000, max_deliveries=2, dead_letter="dead", leases_durable=True),
        Settings(type="queue", lease_ms=500, cap_records=5),
    ),
}


class InProcess:
    """The application on a simulated disk, with a clock that the walk moves."""

    exact_time = True

    def __init__(self, seed: int) -> None:
        self._machine = Machine(
            segment_bytes=(2048, 1 << 20)[seed % 2], tail_cache_bytes=(0, 1 << 20)[seed // 2 % 2]
        )
        self._api: Api | None = None

    async def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        if self._api is None:
            self._api = Api(await self._machine.open(), self._machine.clock)
        return await self._api.ask(method, path, body)

    def now(self) -> int:
        return self._machine.clock.now_ms()

    def wait(self, ms: int) -> None:
        self._machine.clock.advance(ms)

    async def restart(self, how: int) -> None:
        if self._api is not None:
            await self._api.client.aclose()
            self._api = None
        await (self._machine.close() if how % 3 else self._machine.kill())

    async def close(self) -> None:
        await self.restart(0)


async def failure(seed: int, walk: list[Step]) -> tuple[AssertionError, list[str]] | None:
    """The failure, and the calls that led to it."""
    target = InProcess(seed)
    walker = QueueWalk(target, _CONFIGS)
    try:
        await walker.run(walk)
    except AssertionError as error:
        return error, walker.story
    finally:
        await target.close()
    return None


async def _shortened(seed: int, walk: list[Step]) -> list[Step]:
    """A walk that still fails, without the steps it does not need."""
    runs, size = 0, len(walk) // 2
    while size and runs < _SHORTENINGS:
        at = 0
        while at < len(walk) and runs < _SHORTENINGS:
            shorter = walk[:at] + walk[at + size :]
            runs += 1
            if await failure(seed, shorter) is not None:
                walk = shorter
            else:
                at += size
        size //= 2
    return walk


async def test_every_response_matches_the_model(http_seed: int) -> None:
    walk = steps(http_seed, STEPS)
    if await failure(http_seed, walk) is not None:
        found = await failure(http_seed, await _shortened(http_seed, walk))
        assert found is not None, "it fails, but not every time"
        error, story = found
        pytest.fail("\n".join([*story, f"{type(error).__name__}: {error}"]))
