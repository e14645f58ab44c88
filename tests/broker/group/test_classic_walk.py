"""Members that join, stall, disappear and return at random: the group always becomes stable."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest

from mainstem.broker.groups.member import Joined, Synced
from mainstem.errors import GroupRefused, MemberIdRequired

from .driving import REBALANCE_MS, SESSION_MS, Driver

STEPS = 400


class Walker:
    """One client process, which may misbehave."""

    def __init__(self, driver: Driver, chance: random.Random, instance: str | None) -> None:
        self.driver = driver
        self.chance = chance
        self.instance = instance
        self.member_id = ""
        self.joined: Joined | None = None
        self.synced = False
        self.joining: asyncio.Future[Joined] | None = None
        self.syncing: asyncio.Future[Synced] | None = None

    @property
    def waiting(self) -> bool:
        return any(future is not None and not future.done() for future in (self.joining, self.syncing))

    def step(self) -> None:
        """The next step of a correct client."""
        self._collect()
        if self.waiting:
            return
        try:
            if self.joined is None:
                self._join()
            elif not self.synced:
                everybody = {member.member_id: b"x" for member in self.joined.members}
                self.syncing = self.driver.sync(self.joined, everybody, self.instance)
            else:
                self.driver.beat(self.joined, self.instance)
        except MemberIdRequired as given:
            self.member_id = given.member
        except GroupRefused:
            self.start_over()
        self._collect()

    def _join(self) -> None:
        metadata = str(self.chance.randrange(3)).encode()
        self.joining = self.driver.join(
            self.member_id, instance=self.instance, protocols=(("range", metadata),), id_required=True
        )

    def _collect(self) -> None:
        if self.joining is not None and self.joining.done():
            future, self.joining = self.joining, None
            if future.cancelled() or future.exception() is not None:
                self.start_over()
            else:
                self.joined = future.result()
                self.member_id, self.synced = self.joined.member_id, False
        if self.syncing is not None and self.syncing.done():
            done, self.syncing = self.syncing, None
            self.synced = not done.cancelled() and done.exception() is None
            if not self.synced:
                self.joined = None

    def start_over(self) -> None:
        self.member_id, self.joined, self.synced = "", None, False

    def vanish(self) -> None:
        """The process is gone, with its connection."""
        for future in (self.joining, self.syncing):
            if future is not None:
                future.cancel()

    def leave(self) -> None:
        with contextlib.suppress(GroupRefused):  # not a member, or no longer
            self.driver.group.leave(self.member_id, self.instance)
        self.vanish()


@pytest.mark.parametrize("seed", range(25))
async def test_whatever_members_do_the_group_becomes_stable(seed: int) -> None:
    chance = random.Random(seed)
    driver = Driver(initial_delay_ms=chance.choice([0, 100]))
    walkers: list[Walker] = []
    for _ in range(STEPS):
        roll = chance.random()
        if roll < 0.06 and len(walkers) < 12:
            instance = chance.choice([None, None, "i", "j"])
            walkers.append(Walker(driver, chance, instance))
        elif roll < 0.09 and walkers:
            walkers.pop(chance.randrange(len(walkers))).vanish()
        elif roll < 0.12 and walkers:
            walkers.pop(chance.randrange(len(walkers))).leave()
        elif roll < 0.14 and walkers:
            chance.choice(walkers).joined = None  # rejoins, for whatever reason
        elif roll < 0.3:
            driver.advance(chance.choice([1, 100, SESSION_MS // 3, SESSION_MS]))
        elif walkers:
            chance.choice(walkers).step()
        await asyncio.sleep(0)
        check(driver)
    walkers = one_of_each_instance(walkers)
    for _ in range(200):
        for walker in walkers:
            walker.step()
        await asyncio.sleep(0)
        driver.advance(SESSION_MS // 10)
        check(driver)
    if walkers:
        assert driver.group.state == "Stable"
        assert set(driver.group.members) == {walker.member_id for walker in walkers}
        assert all(walker.synced for walker in walkers)
    for walker in walkers:
        walker.leave()
    driver.advance(REBALANCE_MS)
    driver.advance(REBALANCE_MS)
    assert driver.group.empty
    assert driver.group.state == "Empty"


def one_of_each_instance(walkers: list[Walker]) -> list[Walker]:
    """Two processes with one instance id would fence each other forever."""
    kept: list[Walker] = []
    for walker in walkers:
        if walker.instance is None or walker.instance not in {other.instance for other in kept}:
            kept.append(walker)
        else:
            walker.vanish()
    return kept


def check(driver: Driver) -> None:
    """Invariants after every step."""
    group = driver.group
    for member in group.members.values():
        waits = member.joining is not None or member.syncing is not None
        assert waits != member.session.running, "a member waits for us, or we for it"
        if group.state == "Stable":
            assert member.joining is None
    if group.state == "Stable":
        assert group.leader in group.members
    if group.state == "Empty":
        assert not group.members
