"""The process of another broker: its death is seen by its sockets, and nothing else is taken for it."""

from __future__ import annotations

import asyncio
import socket

import pytest

from mainstem.broker.broker import Broker
from mainstem.broker.cluster import peer_watch
from mainstem.broker.cluster.peer_watch import PeerWatch
from mainstem.broker.cluster.service import MEMBER_GONE_S, Cluster
from mainstem.ledger.brokers import Heartbeat
from tests.support.clock import ManualClock
from tests.support.waiting import until


class Peer:
    """Listens, and keeps what connects."""

    def __init__(self, port: int = 0) -> None:
        self._socket = socket.create_server(("127.0.0.1", port))
        self._socket.setblocking(False)
        self.accepted: list[socket.socket] = []
        self._accepting = asyncio.ensure_future(self._accept())

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    async def _accept(self) -> None:
        while True:
            found, _ = await asyncio.get_running_loop().sock_accept(self._socket)
            self.accepted.append(found)

    def die(self) -> None:
        self._accepting.cancel()
        self._socket.close()
        self.hang_up()

    def hang_up(self) -> None:
        while self.accepted:
            self.accepted.pop().close()


async def test_a_process_that_ends_is_noticed_and_one_that_hangs_up_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peer_watch, "PEER_RETRY_S", 0.01)
    seen: list[str] = []
    watch = PeerWatch(
        lambda broker: seen.append(f"{broker} gone"), lambda broker: seen.append(f"{broker} there")
    )
    peer = Peer()
    watch.watch({7: f"127.0.0.1:{peer.port}"})
    await until(lambda: len(peer.accepted) == 1)
    peer.hang_up()  # as it does with idle connections
    await until(lambda: len(peer.accepted) == 1)
    assert set(seen) == {"7 there"}
    port = peer.port
    peer.die()
    await until(lambda: "7 gone" in seen)
    seen.clear()
    again = Peer(port)
    await until(lambda: "7 there" in seen)
    watch.watch({})
    again.die()
    await watch.close()


async def test_a_broker_whose_process_is_gone_leads_nothing_until_it_commits_again(
    two_brokers: list[Broker],
) -> None:
    one, two = two_brokers
    for broker in two_brokers:
        await broker.cluster.join({})
        await broker.cluster.leave()  # stays a member, and reports only when the test has it do so
    await one.log.barrier()
    clock = ManualClock()
    cluster, number = Cluster(one.log, clock), two.log.broker
    cluster.silent_members()
    led = [stream for stream in range(64) if cluster.leader(stream) == number]
    assert led
    await _beat(one)
    cluster.peer_gone(number)
    assert {cluster.leader(stream) for stream in led} == {one.log.broker}
    assert cluster.silent_members() == []  # it may be stopping in good order
    clock.advance(int(MEMBER_GONE_S * 500))
    assert cluster.silent_members() == []
    clock.advance(int(MEMBER_GONE_S * 500))
    assert [found[0] for found in cluster.silent_members()] == [number]
    await _beat(two)  # its address looks wrong from here, but it is alive
    await one.log.barrier()
    assert cluster.silent_members() == []
    assert {cluster.leader(stream) for stream in led} == {number}


async def _beat(broker: Broker) -> None:
    await broker.log.propose(Heartbeat(broker.log.broker, broker.log.epoch))
