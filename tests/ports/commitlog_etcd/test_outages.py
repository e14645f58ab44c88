"""Servers that stop, stall and die, and answers that are lost."""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mainstem.errors import NoSpace, Unavailable
from mainstem.ports.commitlog.shared.etcd.log import EtcdOptions
from tests.support.etcd import EtcdCluster
from tests.support.proxy import LossyProxy

from ..logs import append_samples, contents, sample_content
from .logs import Ground, Tail, append_after_all


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[EtcdCluster]:
    """An etcd of one member that the test may do anything to."""
    with EtcdCluster(tmp_path) as cluster:
        yield cluster


async def test_a_server_that_comes_back_in_time_is_waited_for(own: EtcdCluster) -> None:
    ground = Ground(own)
    log = await ground.open()
    await append_samples(log, 5)
    (member,) = own.members
    member.kill()
    appended = asyncio.ensure_future(log.append(*_samples(5)))
    await asyncio.sleep(0)
    own.start(member)
    assert (await appended).position == 5
    assert await contents(log) == [sample_content(number) for number in range(6)]
    await ground.close()


async def test_a_server_that_stays_away_gives_a_clear_error_and_nothing_is_lost(own: EtcdCluster) -> None:
    ground = Ground(own, retry_s=2.0)
    log = await ground.open()
    await append_samples(log, 5)
    (member,) = own.members
    member.stop()
    with pytest.raises(Unavailable, match=f"did not answer for 2 s, last asked {member.endpoint}"):
        await log.append(*_samples(5))
    with pytest.raises(Unavailable):
        await contents(log)
    own.start(member)
    await asyncio.to_thread(member.wait_ready)
    patient = Ground(own)
    patient.prefix, patient.store = ground.prefix, ground.store
    assert await contents(await patient.open(None)) == [sample_content(number) for number in range(5)]
    await log.append(*_samples(5))
    assert await contents(log) == [sample_content(number) for number in range(6)]
    await ground.close()
    await patient.close()


async def test_a_follower_outlives_a_restart_of_the_server(own: EtcdCluster) -> None:
    ground = Ground(own)
    writer, reader = await ground.open("w"), await ground.open(None)
    async with Tail(reader, 0) as tail:
        await append_samples(writer, 5)
        await tail.reaches(5)
        own.members[0].kill()
        own.start(own.members[0])
        await append_samples(writer, 5)
        await tail.reaches(10)
        assert [place for place, _ in tail.seen] == list(range(10))
    await ground.close()


async def test_a_lost_answer_is_settled_by_the_commits_id(etcd: EtcdCluster) -> None:
    proxy = LossyProxy(etcd.members[0].endpoint)
    direct = Ground(etcd)
    lossy = Ground(etcd)
    lossy.prefix, lossy.store = direct.prefix, direct.store
    lossy.options = EtcdOptions((await proxy.start(),), call_s=0.3, retry_s=30.0)
    log, other = await lossy.open("lossy"), await direct.open("direct")
    for number in range(5):
        proxy.swallow()
        append = asyncio.ensure_future(log.append(b"commit %d" % number, [b"payload %d" % number]))
        async with Tail(other, number) as tail:
            await tail.reaches(number + 1)
        assert not append.done()
        proxy.heal()
        assert (await append).position == number
    assert await contents(other) == [(n, b"commit %d" % n, b"payload %d" % n) for n in range(5)]
    await lossy.close()
    await direct.close()
    await proxy.close()


async def test_an_append_given_up_on_that_was_written_is_told_before_the_next(etcd: EtcdCluster) -> None:
    proxy = LossyProxy(etcd.members[0].endpoint)
    ground = Ground(etcd)
    ground.options = EtcdOptions((await proxy.start(),), call_s=1.0, retry_s=2.0)
    log = await ground.open("lossy")
    proxy.swallow()
    with pytest.raises(Unavailable):
        await log.append(b"written", [b"payload"])
    proxy.heal()
    ground.options = EtcdOptions(etcd.endpoints)
    await append_after_all(log, b"next", [b"payload"])
    expected = [(0, b"written", b"payload"), (1, b"next", b"payload")]
    assert await contents(await ground.open(None)) == expected
    await ground.close()
    await proxy.close()


async def test_an_etcd_at_its_quota_refuses_commits_and_still_gives_those_it_has(tmp_path: Path) -> None:
    with EtcdCluster(tmp_path, 1, "--quota-backend-bytes", "1000000") as cluster:
        ground = Ground(cluster)
        log = await ground.open(object_bytes=1 << 24)
        written = 0
        with pytest.raises(NoSpace, match="quota"):  # noqa: PT012 - how many fit is etcd's affair
            for written in range(200):
                await log.append(b"%60000d" % written, [])
        assert 0 < written < 200
        assert log.end == written
        found = [int(entry) for _, entry, _ in await contents(log)]
        assert found == list(range(written))
        with pytest.raises(NoSpace):
            await log.append(b"still full", [])
        await ground.close()


@pytest.mark.slow
async def test_a_leader_killed_while_brokers_append_loses_nothing(tmp_path: Path) -> None:
    with EtcdCluster(tmp_path, members=3) as cluster:
        ground = Ground(cluster, retry_s=60.0, call_s=1.0)
        logs = [await ground.open(f"b{number}") for number in range(2)]
        acked: dict[int, bytes] = {}
        stop = asyncio.Event()

        async def write(number: int) -> None:
            for one in itertools.count():
                if stop.is_set():
                    return
                entry = b"%d:%d" % (number, one)
                acked[(await append_after_all(logs[number], entry, [entry * 3])).position] = entry

        async with Tail(await ground.open(None), 0) as tail:
            writers = [asyncio.ensure_future(write(number)) for number in range(2)]
            for ending in (signal.SIGKILL, signal.SIGSTOP):
                await tail.reaches(len(acked) + 20)
                leader = await asyncio.to_thread(cluster.leader)
                leader.send(ending)
                done = len(acked)
                await tail.reaches(done + 50)
                if ending == signal.SIGKILL:
                    leader.close()
                    cluster.start(leader)
                else:
                    leader.send(signal.SIGCONT)
                await asyncio.to_thread(leader.wait_ready)
            stop.set()
            await asyncio.gather(*writers)
            await tail.reaches(max(acked) + 1)
            entries = [entry for _, entry in tail.seen]
        assert [place for place, _ in tail.seen] == list(range(len(tail.seen)))
        assert len(set(entries)) == len(entries)
        assert dict(tail.seen) == acked
        assert [(entry, payload) for _, entry, payload in await contents(logs[0])] == [
            (entry, entry * 3) for entry in entries
        ]
        await ground.close()


def _samples(number: int) -> tuple[bytes, list[bytes]]:
    _, entry, payload = sample_content(number)
    return entry, [payload]
