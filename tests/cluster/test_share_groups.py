"""Share groups on brokers that share a log: the ledger decides who has a record, whichever broker is asked."""

from __future__ import annotations

import asyncio

import pytest

from mainstem.broker.broker import Broker
from mainstem.broker.share.shares import Acquired, AcquireLimits
from mainstem.ledger.cluster_commands import ExpireBroker
from mainstem.ledger.share_commands import Verdict

_WANTED = AcquireLimits(3, 1 << 20, exact=True)


@pytest.fixture
async def two(two_brokers: list[Broker]) -> list[Broker]:
    one, other = two_brokers
    await one.create_topic("t")
    await one.append_values("t", [b"%d" % number for number in range(12)])
    await one.shares.change_settings("g", [("share.auto.offset.reset", "earliest")], [])
    await other.log.barrier()
    return two_brokers


def _offsets(acquired: object) -> list[int]:
    assert isinstance(acquired, Acquired)
    return [offset for first, end, _ in acquired.runs for offset in range(first, end)]


async def test_no_record_goes_to_members_of_two_brokers(two: list[Broker]) -> None:
    stream = two[0].streams.of("t", 0)
    got = await asyncio.gather(
        *(two[at % 2].shares.acquire("g", f"m{at}", stream, _WANTED) for at in range(4))
    )
    assert sorted(offset for one in got for offset in _offsets(one)) == list(range(12))


async def test_who_waits_at_one_broker_hears_what_is_given_back_at_another(two: list[Broker]) -> None:
    stream = two[0].streams.of("t", 0)
    for member in "abcd":
        await two[0].shares.acquire("g", member, stream, _WANTED)
    fetching = two[1].shares.fetch("g", "w", [stream], _WANTED, wait_s=20, hurry=asyncio.Event())
    waiting = asyncio.create_task(fetching)
    await two[0].shares.settle("g", "b", stream, [(3, 4, int(Verdict.RELEASE))])
    assert _offsets((await waiting)[stream]) == [3]


async def test_what_a_dead_broker_handed_out_is_to_be_had_again(two: list[Broker]) -> None:
    dead, alive = two
    stream = dead.streams.of("t", 0)
    assert _offsets(await dead.shares.acquire("g", "a", stream, _WANTED)) == [0, 1, 2]
    await dead.shares.settle("g", "a", stream, [(1, 2, int(Verdict.ACCEPT))])
    await alive.log.barrier()
    last = alive.log.ledger.brokers.last_commit_id(dead.log.broker)
    assert (await alive.log.propose(ExpireBroker(dead.log.broker, dead.log.epoch, last))).gone
    acquired = await alive.shares.acquire("g", "b", stream, _WANTED)
    assert acquired is not None
    assert acquired.runs == ((0, 1, 2), (2, 3, 2), (3, 4, 1))
