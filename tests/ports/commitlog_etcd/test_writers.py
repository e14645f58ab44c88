"""Several brokers write to one log, and etcd alone decides who comes when."""

from __future__ import annotations

import asyncio

import pytest

from mainstem.errors import BrokerFenced, InvariantBroken, ReadOnly
from mainstem.ports.commitlog.port import Overtaken
from mainstem.ports.commitlog.shared.etcd.log import EtcdCommitLog
from tests.support.memory_store import MemoryObjectStore

from ..logs import contents
from .logs import Ground, append_after_all, stored_keys


async def test_brokers_that_come_at_once_share_one_identity(ground: Ground) -> None:
    logs = await asyncio.gather(*(ground.open(f"b{number}") for number in range(4)))
    assert len({log.identity for log in logs}) == 1
    assert len(logs[0].identity) == 16


async def test_the_second_writer_is_told_what_came_first_and_writes_after_it(ground: Ground) -> None:
    one, two = await ground.open("one"), await ground.open("two")
    await one.append(b"first", [b"a"])
    await one.append(b"second", [])
    with pytest.raises(Overtaken) as caught:
        await two.append(b"third", [b"bc"])
    assert [bytes(commit.entry) for commit in caught.value.commits] == [b"first", b"second"]
    assert two.end == 2
    assert (await two.append(b"third", [b"bc"])).position == 2
    expected = [(0, b"first", b"a"), (1, b"second", b""), (2, b"third", b"bc")]
    assert await contents(one) == await contents(two) == expected


async def test_racing_writers_lose_nothing_and_write_nothing_twice(ground: Ground) -> None:
    logs = await asyncio.gather(*(ground.open(f"b{number}") for number in range(3)))

    async def write(number: int, log: EtcdCommitLog) -> list[int]:
        return [
            (
                await append_after_all(log, b"%d:%d" % (number, one), [b"payload %d:%d" % (number, one)])
            ).position
            for one in range(25)
        ]

    placed = await asyncio.gather(*(write(number, log) for number, log in enumerate(logs)))
    assert sorted(position for positions in placed for position in positions) == list(range(75))
    seen = [await contents(log) for log in logs]
    assert seen[0] == seen[1] == seen[2]
    assert all(payload == b"payload " + entry for _, entry, payload in seen[0])
    for number, positions in enumerate(placed):
        assert [seen[0][position][1] for position in positions] == [b"%d:%d" % (number, n) for n in range(25)]


async def test_what_lost_the_race_is_not_uploaded_again(ground: Ground) -> None:
    one, two = await ground.open("one"), await ground.open("two", inline_bytes=0)
    await one.append(b"first", [])
    slices = [b"large", b"payload"]
    with pytest.raises(Overtaken):
        await two.append(b"second", slices)
    before = await stored_keys(ground.store)
    await two.append(b"second, encoded again", slices)
    assert await stored_keys(ground.store) == before
    assert (await contents(one))[1] == (1, b"second, encoded again", b"largepayload")


async def test_an_upload_whose_buffer_changed_meanwhile_is_not_taken_for_the_new_one(ground: Ground) -> None:
    one, two = await ground.open("one"), await ground.open("two", inline_bytes=0)
    await one.append(b"first", [])
    buffer = bytearray(b"before")
    with pytest.raises(Overtaken):
        await two.append(b"second", [buffer])
    buffer[:] = b"behind"
    await two.append(b"second", [buffer])
    assert (await contents(one))[1] == (1, b"second", b"behind")
    assert len(await stored_keys(ground.store)) == 1


async def test_a_newer_life_of_a_broker_fences_the_older_one(ground: Ground) -> None:
    old = await ground.open("b")
    await old.append(b"of the old life", [])
    new = await ground.open("b")
    assert new.epoch == old.epoch + 1
    for _ in range(2):
        with pytest.raises(BrokerFenced):
            await old.append(b"too late", [])
    await new.append(b"of the new life", [])
    with pytest.raises(BrokerFenced):
        await old.append(b"too late", [])
    assert [entry for _, entry, _ in await contents(new)] == [b"of the old life", b"of the new life"]


async def test_an_expelled_broker_writes_no_more_until_it_joins_again(ground: Ground) -> None:
    one, two = await ground.open("one"), await ground.open("two")
    await two.expel("one")
    with pytest.raises(BrokerFenced):
        await one.append(b"expelled", [])
    again = await ground.open("one")
    assert (await again.append(b"back", [])).position == 0


async def test_a_log_opened_to_be_read_writes_nothing_and_fences_nobody(ground: Ground) -> None:
    writer = await ground.open("b")
    reader = await ground.open(None)
    with pytest.raises(ReadOnly):
        await reader.append(b"x", [])
    await writer.append(b"still", [])
    assert await contents(reader) == [(0, b"still", b"")]


async def test_an_append_cancelled_and_then_overtaken_tells_the_next_one(ground: Ground) -> None:
    one, two = await ground.open("one"), await ground.open("two")
    await one.append(b"first", [])
    task = asyncio.ensure_future(two.append(b"cancelled", [b"x"]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(Overtaken) as caught:
        await two.append(b"second", [])
    assert [bytes(commit.entry) for commit in caught.value.commits] == [b"first"]
    await two.append(b"second", [])
    assert [entry for _, entry, _ in await contents(one)] == [b"first", b"second"]


async def test_an_object_that_another_broker_sealed_takes_no_more_commits(ground: Ground) -> None:
    one, two = await ground.open("one"), await ground.open("two")
    place = await one.append(b"a", [b"1"])
    async for _ in two.follow(0):
        pass
    await one.roll()
    await one.seal(place.object, b"index")
    other = await two.append(b"b", [b"2"])
    assert (other.position, other.object, other.start) == (1, place.object + 1, 0)
    assert two.read_index(place.object) == b"index"
    assert await contents(one) == await contents(two)


async def test_an_object_that_has_grown_is_not_sealed_with_the_old_index(ground: Ground) -> None:
    one, two = await ground.open("one"), await ground.open("two")
    place = await one.append(b"a", [b"1"])
    await append_after_all(two, b"b", [b"2"])
    await one.roll()
    with pytest.raises(Overtaken) as caught:
        await one.seal(place.object, b"index of a")
    assert [bytes(commit.entry) for commit in caught.value.commits] == [b"b"]
    await one.roll()
    await one.seal(place.object, b"index of a and b")
    (found,) = one.objects()
    assert (found.first_position, found.end_position, found.sealed) == (0, 2, True)
    assert await contents(one) == [(0, b"a", b"1"), (1, b"b", b"2")]


async def test_an_object_that_grows_while_its_seal_is_uploaded_is_not_sealed(ground: Ground) -> None:
    """The sealer may itself have learnt what was added, and begun the next object, before its seal is published."""
    store = ground.store
    assert isinstance(store, MemoryObjectStore)
    one, two = await ground.open("one"), await ground.open("two")
    place = await one.append(b"a", [b"1"])
    async for _ in two.follow(0):
        pass
    await one.roll()

    async def grow(call: str, key: str) -> None:
        if call == "put" and "/seals/" in key:
            store.before = None
            await two.append(b"b", [b"2"])
            await append_after_all(one, b"c, in the next object", [b"3"])

    store.before = grow
    with pytest.raises(Overtaken):
        await one.seal(place.object, b"index of a")
    again = await ground.open("three")
    assert await contents(again) == [(0, b"a", b"1"), (1, b"b", b"2"), (2, b"c, in the next object", b"3")]
    await one.seal(place.object, b"index of a and b")
    assert [(found.end_position, found.sealed) for found in one.objects()] == [(2, True), (3, False)]
    assert len([key for key in await stored_keys(store) if "/seals/" in key]) == 1


async def test_commits_met_while_sealing_are_told_by_the_next_append(ground: Ground) -> None:
    one, two = await ground.open("one"), await ground.open("two")
    place = await one.append(b"a", [b"1"])
    async for _ in two.follow(0):
        pass
    await two.roll()
    await two.append(b"b, in the next object", [])
    await one.roll()
    await one.seal(place.object, b"index")
    with pytest.raises(Overtaken) as caught:
        await one.append(b"c", [])
    assert [bytes(commit.entry) for commit in caught.value.commits] == [b"b, in the next object"]
    assert (await one.append(b"c", [])).position == 2


async def test_two_brokers_that_seal_one_object_agree(ground: Ground) -> None:
    one, two = await ground.open("one"), await ground.open("two")
    place = await one.append(b"a", [b"1"])
    async for _ in two.follow(0):
        pass
    for log in (one, two):
        await log.roll()
    await asyncio.gather(*(log.seal(place.object, b"index") for log in (one, two)))
    assert one.objects() == two.objects()
    assert [key for key in await stored_keys(ground.store) if "/seals/" in key][1:] == []
    with pytest.raises(InvariantBroken):
        await two.seal(place.object, b"another index")


async def test_a_failed_upload_publishes_nothing(ground: Ground) -> None:
    store = ground.store
    assert isinstance(store, MemoryObjectStore)
    log = await ground.open(inline_bytes=0)
    store.fail_next_put(OSError("the store is down"))
    with pytest.raises(OSError, match="down"):
        await log.append(b"lost", [b"x"])
    assert await contents(log) == []
    assert (await log.append(b"next", [b"y"])).position == 0


async def test_who_lost_races_is_let_pass_and_who_died_waiting_is_not_waited_for(ground: Ground) -> None:
    one, two = await ground.open("one"), await ground.open("two")
    for _ in range(3):
        await one.append(b"of one", [])
        with pytest.raises(Overtaken):
            await two.append(b"of two", [])
    await one.append(b"of one", [])  # hears that the other one waits
    waiting = asyncio.ensure_future(one.append(b"of one", []))
    assert (await append_after_all(two, b"of two", [])).position == 4
    with pytest.raises(Overtaken) as others:
        await waiting
    assert [bytes(commit.entry) for commit in others.value.commits] == [b"of two"]
    for _ in range(3):
        await append_after_all(one, b"of one", [])
        with pytest.raises(Overtaken):
            await two.append(b"of two", [])
    await one.append(b"of one", [])  # it waits again, and never comes
    assert (await one.append(b"of one", [])).position == 9
