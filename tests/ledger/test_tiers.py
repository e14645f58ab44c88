from __future__ import annotations

from mainstem.errors import InvalidInput, StalePlan
from mainstem.ledger.tiers import ForgetTier, PlanTier, SettleTier, TierChanged, Tiers, TierStage

from .writer import moment

TOKEN, OTHER = b"t" * 16, b"o" * 16


def test_an_object_is_planned_stored_left_and_forgotten() -> None:
    tiers = Tiers()
    assert tiers.plan(PlanTier(3, TOKEN, 100), moment()) == TierChanged(3)
    assert tiers.stored(3) is None
    tiers.settle(SettleTier(3, TOKEN), moment(5))
    stored = tiers.stored(3)
    assert stored is not None
    assert (stored.size_bytes, stored.stage) == (100, TierStage.STORED)
    tiers.settle(SettleTier(3, TOKEN, leaving=True), moment(7))
    assert tiers.of(3) is None
    assert [tier.since_ms for tier in tiers.leaving()] == [7]
    tiers.settle(SettleTier(3, TOKEN, leaving=True), moment(9))  # a retry does not reset the time
    assert [tier.since_ms for tier in tiers.leaving()] == [7]
    tiers.forget(ForgetTier(3, TOKEN), moment())
    assert (len(tiers), tiers.digest) == (0, 0)
    assert tiers.forget(ForgetTier(3, TOKEN), moment()) == TierChanged(3)


def test_what_may_be_needed_is_never_forgotten() -> None:
    tiers = Tiers()
    tiers.plan(PlanTier(3, TOKEN, 100), moment())
    assert isinstance(tiers.forget(ForgetTier(3, TOKEN), moment()), StalePlan)
    tiers.settle(SettleTier(3, TOKEN), moment(0))
    assert isinstance(tiers.forget(ForgetTier(3, TOKEN), moment()), StalePlan)
    assert tiers.stored(3) is not None


def test_an_object_has_one_place_at_a_time() -> None:
    tiers = Tiers()
    tiers.plan(PlanTier(3, TOKEN, 100), moment())
    assert isinstance(tiers.plan(PlanTier(3, OTHER, 100), moment()), StalePlan)
    tiers.settle(SettleTier(3, TOKEN, leaving=True), moment(0))
    assert isinstance(tiers.plan(PlanTier(3, TOKEN, 100), moment()), StalePlan)
    assert isinstance(tiers.settle(SettleTier(3, TOKEN), moment(0)), StalePlan)
    assert tiers.plan(PlanTier(3, OTHER, 100), moment()) == TierChanged(3)
    assert [tier.token for tier in tiers] == [OTHER, TOKEN]


def test_what_cannot_be_is_refused() -> None:
    tiers = Tiers()
    for command in (
        PlanTier(0, TOKEN, 1),
        PlanTier(1 << 40, TOKEN, 1),
        PlanTier(1, b"", 1),
        PlanTier(1, TOKEN, -1),
    ):
        assert isinstance(tiers.plan(command, moment()), InvalidInput)
    assert isinstance(tiers.settle(SettleTier(1, TOKEN), moment(0)), StalePlan)


def test_the_state_comes_back_from_a_checkpoint() -> None:
    tiers = Tiers()
    for number in (9, 2, 5):
        tiers.plan(PlanTier(number, TOKEN, number), moment())
    tiers.settle(SettleTier(2, TOKEN), moment(1))
    tiers.settle(SettleTier(5, TOKEN, leaving=True), moment(4))
    again = Tiers()
    again.load(tiers.encode())
    assert list(again) == list(tiers)
    assert again.digest == tiers.digest
    assert again.stored(2) == tiers.stored(2)
