"""The model test can fail: it finds deliberate faults of the door within the walks of a normal run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mainstem.broker import diff
from mainstem.broker.broker import Broker
from mainstem.broker.topics.deletes import DeleteService
from mainstem.broker.writes import WriteService
from mainstem.ledger.leases import Leases
from tests.support.machine import Machine

from .contract_steps import steps
from .test_model import STEPS, failure

_SEEDS = 80

Patch = pytest.MonkeyPatch


def _a_gap_ends_too_early(patch: Patch) -> None:
    gap = diff._gap
    patch.setattr(diff, "_gap", lambda reason, after, until, floors: gap(reason, after, until - 1, floors))


def _expiry_and_eviction_are_mixed_up(patch: Patch) -> None:
    first = diff._first_gap
    patch.setattr(
        diff,
        "_first_gap",
        lambda floors, at: first(floors._replace(evicted=floors.expired, expired=floors.evicted), at),
    )


def _a_delete_counts_as_a_loss(patch: Patch) -> None:
    async def trim(self: DeleteService, stream: int, start: int, end: int) -> int:
        return await self._log.streams.of(stream).trim(stream, end, "cap", 0)

    patch.setattr(DeleteService, "_trim", trim)


def _a_restart_forgets_how_far_routers_came(patch: Patch) -> None:
    opened = Machine.open

    async def forgetful(self: Machine) -> Broker:
        broker = await opened(self)
        legs = broker.log.ledger.routers.legs
        for stream in legs.sources():
            for leg in list(legs.from_stream(stream)):
                legs.remove(leg)
                leg.own_cursor = max(0, leg.own_cursor - 1)
                legs.add(leg)
        return broker

    patch.setattr(Machine, "open", forgetful)


def _anybody_may_settle_a_job(patch: Patch) -> None:
    held_by = Leases.held_by

    def anybody(self: Leases, node: str, offsets: Any, tokens: Any) -> Any:
        grant = next((self.holder(offset) for offset in offsets if self.holder(offset)), None)
        return held_by(self, grant.node if grant else node, offsets, tokens)

    patch.setattr(Leases, "held_by", anybody)


def _keys_are_not_remembered(patch: Patch) -> None:
    write = WriteService.write

    async def keyless(self: WriteService, name: str, records: Any, **about: Any) -> Any:
        return await write(self, name, records, **about | {"idempotency_key": None})

    patch.setattr(WriteService, "write", keyless)


@pytest.mark.parametrize(
    "fault",
    [
        _a_gap_ends_too_early,
        _expiry_and_eviction_are_mixed_up,
        _a_delete_counts_as_a_loss,
        _a_restart_forgets_how_far_routers_came,
        _anybody_may_settle_a_job,
        _keys_are_not_remembered,
    ],
)
async def test_a_fault_is_found(fault: Callable[[Patch], None], monkeypatch: Patch) -> None:
    fault(monkeypatch)
    for seed in range(_SEEDS):
        if await failure(seed, steps(seed, STEPS)) is not None:
            return
    pytest.fail(f"{fault.__name__} is not found in {_SEEDS} walks")
