from __future__ import annotations

from mainstem.errors import InvalidInput, StalePlan
from mainstem.ledger.results import TierChanged
from mainstem.ledger.tier_commands import ForgetTier, PlanTier, SettleTier
from mainstem.ledger.tiers import Tiers, TierStage

TOKEN, OTHER = b"t" * 16, b"o" * 16


def test_an_object_is_planned_stored_left_and_forgotten() -> None:
    tiers = Tiers()
    assert tiers.plan(PlanTier(3, TOKEN, 100)) == TierChanged(3)
    assert tiers.stored(3) is None
    tiers.settle(SettleTier(3, TOKEN), 5)
    stored = tiers.stored(3)
    assert stored is not None
    assert (stored.size_bytes, stored.stage) == (100, TierStage.STORED)
    tiers.settle(SettleTier(3, TOKEN, leaving=True), 7)
    assert tiers.of(3) is None
    assert [tier.since_ms for tier in tiers.leaving()] == [7]
    tiers.settle(SettleTier(3, TOKEN, leaving=True), 9)  # a repetition does not begin anew
    assert [tier.since_ms for tier in tiers.leaving()] == [7]
    tiers.forget(ForgetTier(3, TOKEN))
    assert (len(tiers), tiers.digest) == (0, 0)
    assert tiers.forget(ForgetTier(3, TOKEN)) == TierChanged(3)


def test_what_may_be_needed_is_never_forgotten() -> None:
    tiers = Tiers()
    tiers.plan(PlanTier(3, TOKEN, 100))
    assert isinstance(tiers.forget(ForgetTier(3, TOKEN)), StalePlan)
    tiers.settle(SettleTier(3, TOKEN), 0)
    assert isinstance(tiers.forget(ForgetTier(3, TOKEN)), StalePlan)
    assert tiers.stored(3) is not None


def test_an_object_has_one_place_at_a_time() -> None:
    tiers = Tiers()
    tiers.plan(PlanTier(3, TOKEN, 100))
    assert isinstance(tiers.plan(PlanTier(3, OTHER, 100)), StalePlan)
    tiers.settle(SettleTier(3, TOKEN, leaving=True), 0)
    assert isinstance(tiers.plan(PlanTier(3, TOKEN, 100)), StalePlan)
    assert isinstance(tiers.settle(SettleTier(3, TOKEN), 0), StalePlan)
    assert tiers.plan(PlanTier(3, OTHER, 100)) == TierChanged(3)
    assert [tier.token for tier in tiers] == [OTHER, TOKEN]


def test_what_cannot_be_is_refused() -> None:
    tiers = Tiers()
    for command in (
        PlanTier(0, TOKEN, 1),
        PlanTier(1 << 40, TOKEN, 1),
        PlanTier(1, b"", 1),
        PlanTier(1, TOKEN, -1),
    ):
        assert isinstance(tiers.plan(command), InvalidInput)
    assert isinstance(tiers.settle(SettleTier(1, TOKEN), 0), StalePlan)


def test_the_state_comes_back_from_a_checkpoint() -> None:
    tiers = Tiers()
    for number in (9, 2, 5):
        tiers.plan(PlanTier(number, TOKEN, number))
    tiers.settle(SettleTier(2, TOKEN), 1)
    tiers.settle(SettleTier(5, TOKEN, leaving=True), 4)
    again = Tiers.decode(tiers.encode())
    assert list(again) == list(tiers)
    assert again.digest == tiers.digest
    assert again.stored(2) == tiers.stored(2)
