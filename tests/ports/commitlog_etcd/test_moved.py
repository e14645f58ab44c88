"""One transaction tries several positions, so that brokers that commit at once do not lose races."""

from __future__ import annotations

import asyncio
import random

import pytest

from mainstem.ports.commitlog.port import Overtaken
from mainstem.ports.commitlog.shared.etcd.client import EtcdClient
from mainstem.ports.commitlog.shared.etcd.commits import ETCD_POSITIONS_TRIED
from mainstem.ports.commitlog.shared.etcd.log import EtcdCommitLog, EtcdOptions
from tests.support.etcd import EtcdCluster
from tests.support.proxy import LossyProxy

from ..logs import commits, contents
from .logs import Ground, Tail, append_after_all


async def open_log(ground: Ground, broker: str | None, **options: int) -> EtcdCommitLog:
    return await ground.open(broker, positions_tried=ETCD_POSITIONS_TRIED, **options)


async def test_a_commit_goes_behind_those_that_its_writer_did_not_know(ground: Ground) -> None:
    one, two = await open_log(ground, "one"), await open_log(ground, "two")
    await one.append(b"first", [b"a" * 10])
    await one.append(b"second", [])
    placed = await two.append(b"third", [b"bc"])
    assert (placed.position, placed.start) == (2, 10)
    assert two.end == 3
    assert [commit.placement.position async for some in two.follow(0) for commit in some] == [0, 1, 2]
    expected = [(0, b"first", b"a" * 10), (1, b"second", b""), (2, b"third", b"bc")]
    assert await contents(one) == await contents(two) == expected
    assert await contents(await open_log(ground, None)) == expected


async def test_a_writer_that_is_far_behind_is_told_what_came_first(ground: Ground) -> None:
    one, two = await open_log(ground, "one"), await open_log(ground, "two")
    for number in range(ETCD_POSITIONS_TRIED):
        await one.append(b"%d" % number, [b"x"])
    with pytest.raises(Overtaken) as caught:
        await two.append(b"last", [b"y"])
    assert len(caught.value.commits) == ETCD_POSITIONS_TRIED
    assert (await two.append(b"last", [b"y"])).start == ETCD_POSITIONS_TRIED
    assert await contents(one) == await contents(two)


async def test_a_commit_does_not_move_into_an_object_that_another_writer_began(ground: Ground) -> None:
    one, two = await open_log(ground, "one"), await open_log(ground, "two")
    first = await one.append(b"first", [b"a"])
    async for _ in two.follow(0):
        pass
    await one.roll()
    await one.append(b"begins an object", [b"b"])
    with pytest.raises(Overtaken):
        await two.append(b"third", [b"c"])
    placed = await two.append(b"third", [b"c"])
    assert (placed.object, placed.start) == (first.object + 1, 1)
    assert await contents(one) == await contents(two)


async def test_racing_writers_lose_nothing_and_agree_on_every_byte(ground: Ground) -> None:
    logs = [await open_log(ground, f"b{number}", inline_bytes=40) for number in range(3)]
    sizes = random.Random(7)

    async def write(number: int, log: EtcdCommitLog) -> list[int]:
        placed = []
        for one in range(25):
            entry = b"%d:%d " % (number, one)
            payload = entry * sizes.choice((0, 1, 3, 20))
            placed.append((await append_after_all(log, entry, [payload])).position)
            if one == 12:
                await log.roll()
        return placed

    placed = await asyncio.gather(*(write(number, log) for number, log in enumerate(logs)))
    assert sorted(position for positions in placed for position in positions) == list(range(75))
    seen = [await contents(log) for log in [*logs, await open_log(ground, None)]]
    assert seen[0] == seen[1] == seen[2] == seen[3]
    assert all(payload == entry * (len(payload) // len(entry)) for _, entry, payload in seen[0])
    for number, positions in enumerate(placed):
        assert [seen[0][at][1] for at in positions] == [b"%d:%d " % (number, n) for n in range(25)]
    await logs[0].roll()
    for unsealed in [one for one in logs[0].objects() if not one.sealed]:
        await logs[0].seal(unsealed.number, b"index")
    late = await open_log(ground, None)
    for at in range(0, 75, 7):
        assert await contents(late, at) == seen[0][at:]


async def test_a_lost_answer_of_a_moved_commit_does_not_write_it_twice(etcd: EtcdCluster) -> None:
    proxy = LossyProxy(etcd.members[0].endpoint)
    direct, lossy = Ground(etcd), Ground(etcd)
    lossy.prefix, lossy.store = direct.prefix, direct.store
    lossy.options = EtcdOptions((await proxy.start(),), call_s=0.3, retry_s=30.0)
    log, other = await open_log(lossy, "lossy"), await open_log(direct, "direct")
    await log.append(b"first", [b"1"])
    for number in range(3):
        await append_after_all(other, b"other %d" % number, [b"o"])
        end = 2 * number + 2
        proxy.swallow()
        append = asyncio.ensure_future(log.append(b"lossy %d" % number, [b"xyz"]))
        async with Tail(other, end) as tail:
            await tail.reaches(end + 1)
        assert not append.done()
        proxy.heal()
        assert (await append).position == end
    entries = [entry for _, entry, _ in await contents(other)]
    assert entries == [b"first", *(b"%s %d" % (who, n) for n in range(3) for who in (b"other", b"lossy"))]
    assert await commits(log) == await commits(other)
    for ground in (direct, lossy):
        await ground.close()
    await proxy.close()


async def test_what_a_claim_learnt_is_followed_without_asking_etcd(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = await open_log(ground, "one"), await open_log(ground, "two")
    await one.append(b"first", [b"a"])
    assert (await two.append(b"second", [b"b"])).position == 1

    async def refuse(*_: object, **__: object) -> None:
        raise AssertionError("etcd was asked")

    monkeypatch.setattr(EtcdClient, "range", refuse)
    async for some in two.follow(0):
        assert [commit.entry for commit in some] == [b"first"]
        break
