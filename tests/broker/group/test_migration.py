"""Members of both protocols in one group, on a simulated disk: clients are upgraded and downgraded one by one."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from mainstem.broker.groups.classic import ClassicGroup
from mainstem.broker.groups.consumer import ConsumerGroup
from mainstem.broker.groups.consumer_member import ConsumerHeartbeat
from mainstem.broker.groups.consumer_protocol import (
    TopicSubscription,
    read_assignment,
    read_subscription,
    write_assignment,
)
from mainstem.broker.groups.member import Join, Joined
from mainstem.broker.groups.offsets import OffsetToCommit
from mainstem.errors import (
    FencedInstance,
    GroupLoading,
    IllegalGeneration,
    InconsistentProtocol,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMember,
    UnsupportedAssignor,
    WrongGroupKind,
)
from tests.support.machine import Machine
from tests.support.waiting import settle, until

from .stage import GroupsStage

PARTITIONS = 6
SESSION_MS = 10_000
COOPERATIVE, EAGER = "cooperative-sticky", "range"


def subscription(topic: str = "t", owned: frozenset[int] = frozenset()) -> bytes:
    name = topic.encode()
    topics = struct.pack(f">hih{len(name)}si", 1, 1, len(name), name, -1)
    if not owned:
        return topics + struct.pack(">i", 0)
    return topics + struct.pack(
        f">ih{len(name)}si{len(owned)}i", 1, len(name), name, len(owned), *sorted(owned)
    )


class Stage(GroupsStage):
    def __init__(self, machine: Machine) -> None:
        super().__init__(machine, consumer_session_ms=SESSION_MS)
        self.clients: list[Client] = []

    @property
    def kind(self) -> type:
        return type(self.groups.get("g"))

    def check_nobody_reads_twice(self) -> None:
        read = [number for client in self.clients for number in client.owned]
        assert len(read) == len(set(read)), [client.owned for client in self.clients]

    async def settled(self, *clients: Client) -> None:
        """Wait until the clients share all partitions evenly, and never read one at the same time."""
        wanted = set(clients)

        def done() -> bool:
            self.check_nobody_reads_twice()
            counts = sorted(len(client.owned) for client in wanted)
            level = counts[-1] - counts[0] <= 1 and sum(counts) == PARTITIONS
            return level and all(client.steady for client in wanted)

        await until(done)

    async def start(self, client: Client) -> Client:
        self.clients.append(client)
        client.task = asyncio.create_task(client.run())
        return client

    async def classic(self, protocol: str = COOPERATIVE, instance: str | None = None) -> Client:
        return await self.start(ClassicClient(self, protocol, instance))

    async def consumer(self, instance: str | None = None) -> Client:
        return await self.start(ConsumerClient(self, instance))

    async def kill(self, client: Client) -> None:
        """The process is gone. It reads nothing more."""
        assert client.task is not None
        client.task.cancel()
        await asyncio.gather(client.task, return_exceptions=True)
        client.owned = frozenset()
        self.clients.remove(client)


class Client:
    """A client process. Its task sends what a real client sends."""

    def __init__(self, stage: Stage, instance: str | None) -> None:
        self.stage = stage
        self.instance = instance
        self.member_id = ""
        self.epoch = 0
        self.owned: frozenset[int] = frozenset()
        self.steady = False  # whether the coordinator had nothing new for it
        self.lost = 0  # how often it lost its membership
        self.task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        while True:
            await self.step()
            await asyncio.sleep(0)

    async def step(self) -> None:
        raise NotImplementedError

    async def leave(self) -> None:
        raise NotImplementedError

    async def commit(self, offset: int) -> None:
        """A commit of a member is accepted at any time while it has not joined again."""
        rows = [OffsetToCommit("t", number, offset) for number in sorted(self.owned)]
        assert not any(
            await self.stage.groups.commit(
                "g", rows, member_id=self.member_id, generation=self.epoch, instance_id=self.instance
            )
        )


class ClassicClient(Client):
    def __init__(self, stage: Stage, protocol: str, instance: str | None) -> None:
        super().__init__(stage, instance)
        self.protocol = protocol

    async def step(self) -> None:
        try:
            if self.member_id:
                self.stage.groups.heartbeat("g", self.member_id, self.epoch, self.instance)
                self.steady = True
                return
        except RebalanceInProgress:
            pass
        except (UnknownMember, IllegalGeneration):
            self.forget()
        self.steady = False
        await self.rejoin()

    def forget(self) -> None:
        self.lost += 1
        self.member_id, self.owned = "", frozenset()

    async def rejoin(self) -> None:
        """Join and sync, until the assignment is complete."""
        while not await self.joined_once():
            await settle(1)

    async def joined_once(self) -> bool:
        if self.protocol == EAGER:
            self.owned = frozenset()
        try:
            joined = await self.stage.groups.join(self.join())
            self.member_id, self.epoch = joined.member_id, joined.generation
            synced = await self.stage.groups.sync(
                "g",
                self.member_id,
                self.epoch,
                instance_id=self.instance,
                protocol_type="consumer",
                protocol=joined.protocol,
                assignments=self.assignments(joined),
            )
        except MemberIdRequired as given:
            self.member_id = given.member
            return False
        except RebalanceInProgress:
            return False
        except (UnknownMember, IllegalGeneration):
            self.forget()
            return False
        assigned = read_assignment(synced.assignment)
        assert assigned is not None
        revoked = self.owned - frozenset(assigned.get("t", ()))
        self.owned = frozenset(assigned.get("t", ()))
        return not revoked  # a cooperative member that revoked partitions joins again at once

    def join(self) -> Join:
        return Join(
            group="g",
            protocol_type="consumer",
            protocols=((self.protocol, subscription(owned=self.owned)),),
            session_ms=SESSION_MS,
            rebalance_ms=60_000,
            member_id=self.member_id,
            instance_id=self.instance,
        )

    def assignments(self, joined: Joined) -> dict[str, bytes]:
        """What a cooperative leader assigns: a partition moves only after its reader has revoked it."""
        if joined.leader != joined.member_id or joined.skip_assignment:
            return {}
        owned: dict[str, set[int]] = {}
        for member in joined.members:
            read = read_subscription(member.metadata)
            assert read is not None
            owned[member.member_id] = set(read.owned.get("t", ()))
        quota, more = divmod(PARTITIONS, len(owned))
        names = sorted(owned, key=lambda name: -len(owned[name]))
        sizes = {name: quota + (place < more) for place, name in enumerate(names)}
        kept = {name: sorted(owned[name])[: sizes[name]] for name in names}
        free = [n for n in range(PARTITIONS) if not any(n in numbers for numbers in owned.values())]
        for name in names:
            while len(kept[name]) < sizes[name] and free:
                kept[name].append(free.pop())
        return {
            name: write_assignment(1, {"t": numbers} if numbers else {}) for name, numbers in kept.items()
        }

    async def leave(self) -> None:
        await self.stage.kill(self)
        await self.stage.groups.leave("g", self.member_id, self.instance)


class ConsumerClient(Client):
    def __init__(self, stage: Stage, instance: str | None) -> None:
        super().__init__(stage, instance)
        self.member_id = str(UUID(int=random.getrandbits(128)))

    async def step(self) -> None:
        topic = self.stage.broker.topic("t").topic_id
        epoch = self.epoch
        try:
            answer = await self.stage.groups.consumer_heartbeat(
                ConsumerHeartbeat(
                    group="g",
                    member_id=self.member_id,
                    epoch=epoch,
                    instance_id=self.instance,
                    rebalance_ms=60_000,
                    topics=frozenset({"t"}),
                    owned=frozenset((topic, number) for number in self.owned) if epoch else frozenset(),
                )
            )
        except GroupLoading:
            return
        self.epoch = answer.epoch
        before = self.owned
        if answer.assigned is not None:
            self.owned = frozenset(number for _, number in answer.assigned)
        self.steady = self.owned == before and epoch == answer.epoch

    async def leave(self) -> None:
        await self.stage.kill(self)
        await self.stage.groups.consumer_heartbeat(
            ConsumerHeartbeat(group="g", member_id=self.member_id, epoch=-1, instance_id=self.instance)
        )


@pytest.fixture
async def stage(machine: Machine) -> AsyncIterator[Stage]:
    stage = Stage(machine)
    await stage.open()
    await stage.broker.create_topic("t", partitions=PARTITIONS)
    yield stage
    for client in list(stage.clients):
        await stage.kill(client)


@pytest.mark.parametrize("protocol", [COOPERATIVE, EAGER])
async def test_clients_are_upgraded_and_downgraded_one_by_one(stage: Stage, protocol: str) -> None:
    old = [await stage.classic(protocol) for _ in range(3)]
    await stage.settled(*old)
    assert stage.kind is ClassicGroup
    new: list[Client] = []
    while old:
        new.append(await stage.consumer())
        await stage.settled(*old, *new)
        assert stage.kind is ConsumerGroup
        await old.pop().leave()
        await stage.settled(*old, *new)
    while new:
        old.append(await stage.classic(protocol))
        await stage.settled(*old, *new)
        assert stage.kind is ConsumerGroup
        await new.pop().leave()
        await stage.settled(*old, *new)
    assert stage.kind is ClassicGroup
    assert stage.broker.log.ledger.consumer_groups.get("g") is None
    assert [client.lost for client in old] == [0, 0, 0]


async def test_a_group_of_both_protocols_continues_after_a_restart(stage: Stage) -> None:
    classic, consumer = await stage.classic(), await stage.consumer()
    await stage.settled(classic, consumer)
    before = classic.owned, consumer.owned, classic.epoch, consumer.epoch
    for client in (classic, consumer):
        assert client.task is not None
        client.task.cancel()
        await asyncio.gather(client.task, return_exceptions=True)
    await stage.restart()
    await classic.commit(5)
    await classic.step()  # it need not join again
    await consumer.step()
    assert (classic.owned, consumer.owned, classic.epoch, consumer.epoch) == before
    stage.clock.advance(SESSION_MS - 1)
    stage.groups.timers.fire()
    assert len(stage.groups.members()) == 1
    await consumer.step()
    stage.clock.advance(1)
    stage.groups.timers.fire()  # the session of the classic member
    await until(lambda: stage.groups.members() == {"g": 1})


async def test_classic_members_commit_before_they_join_again_in_both_directions(stage: Stage) -> None:
    classic = await stage.classic()
    await stage.settled(classic)
    assert classic.task is not None
    classic.task.cancel()
    consumer = await stage.consumer()
    await until(lambda: consumer.epoch > 0)
    await classic.commit(5)
    with pytest.raises(IllegalGeneration):
        await stage.groups.commit(
            "g", [OffsetToCommit("t", 0, 5)], member_id=classic.member_id, generation=classic.epoch + 1
        )
    assert not consumer.owned  # the other has not revoked anything yet
    await stage.start(classic)
    stage.clients.remove(classic)  # it was in the list before
    await stage.settled(classic, consumer)
    classic.task.cancel()
    await consumer.leave()
    await until(lambda: stage.kind is ClassicGroup)
    await classic.commit(6)
    with pytest.raises(RebalanceInProgress):
        stage.groups.heartbeat("g", classic.member_id, classic.epoch)


async def test_after_a_crash_right_after_a_downgrade_members_are_known(stage: Stage) -> None:
    classic, consumer = await stage.classic(), await stage.consumer()
    await stage.settled(classic, consumer)
    assert classic.task is not None
    classic.task.cancel()
    await consumer.leave()
    await until(lambda: stage.kind is ClassicGroup)
    await stage.restart()
    await classic.commit(6)
    await stage.start(classic)
    stage.clients.remove(classic)
    await stage.settled(classic)
    assert classic.lost == 0


async def test_a_member_that_waits_in_a_join_is_taken_along(stage: Stage) -> None:
    first = await stage.classic()
    await stage.settled(first)
    assert first.task is not None
    first.task.cancel()  # it does not join again, so the second one waits
    second = await stage.classic()
    await until(lambda: bool(second.member_id))
    await settle()
    assert not second.epoch
    consumer = await stage.consumer()
    await until(lambda: second.epoch > 0)
    assert second.lost == 0
    await stage.start(first)
    stage.clients.remove(first)
    await stage.settled(first, second, consumer)
    assert first.lost == 0


async def test_a_member_that_waits_for_its_assignment_joins_again(stage: Stage) -> None:
    joined = await stage.groups.join(a_join())
    other = asyncio.create_task(stage.groups.join(a_join()))
    await settle()
    again = await stage.groups.join(
        a_join(member_id=joined.member_id, protocols=(("range", subscription("u")),))
    )
    waiting = await other
    follower = waiting if again.leader == again.member_id else again
    syncing = asyncio.create_task(
        stage.groups.sync("g", follower.member_id, follower.generation, assignments={})
    )
    await settle()
    await stage.consumer()
    with pytest.raises(RebalanceInProgress):
        await syncing


@pytest.mark.parametrize("classic_first", [True, False])
async def test_a_static_member_comes_back_with_the_other_protocol(stage: Stage, classic_first: bool) -> None:
    def make(classic: bool) -> Client:
        return ClassicClient(stage, COOPERATIVE, "i") if classic else ConsumerClient(stage, "i")

    other = await stage.consumer() if classic_first else await stage.classic()
    static = await stage.start(make(classic_first))
    await stage.settled(static, other)
    share = static.owned
    await stage.kill(static)  # without leaving
    if not classic_first:
        await stage.consumer()  # so that the group stays mixed
    back = await stage.start(make(not classic_first))
    await until(lambda: bool(back.epoch))
    assert back.owned >= share or not classic_first
    await stage.settled(*stage.clients)
    with pytest.raises((UnknownMember, FencedInstance)):
        stage.groups.heartbeat("g", static.member_id, static.epoch, "i")


def a_join(**fields: object) -> Join:
    known = {
        "protocol_type": "consumer",
        "protocols": (("range", subscription()),),
        "session_ms": SESSION_MS,
        "rebalance_ms": 60_000,
        "id_required": False,
    }
    return Join(group="g", **{**known, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "fields",
    [{"protocol_type": "connect"}, {"protocols": (("range", b"m"),)}],
)
async def test_a_group_that_the_broker_cannot_read_is_not_upgraded(
    stage: Stage, fields: dict[str, object]
) -> None:
    joined = await stage.groups.join(a_join(**fields))
    await stage.groups.sync("g", joined.member_id, joined.generation, assignments={})
    with pytest.raises(WrongGroupKind):
        await ConsumerClient(stage, None).step()
    stage.groups.heartbeat("g", joined.member_id, joined.generation)  # nothing has changed for it
    await stage.groups.leave("g", joined.member_id)
    consumer = await stage.consumer()
    await stage.settled(consumer)
    with pytest.raises(InconsistentProtocol):
        await stage.groups.join(a_join(**fields))


async def test_classic_members_of_a_group_have_a_protocol_in_common(stage: Stage) -> None:
    await stage.settled(await stage.consumer(), await stage.classic())
    with pytest.raises(InconsistentProtocol):
        await stage.groups.join(a_join())
    both = ((COOPERATIVE, subscription()), ("range", subscription()))
    assert (await stage.groups.join(a_join(protocols=both))).protocol == COOPERATIVE


async def test_a_refused_consumer_does_not_upgrade_a_group(stage: Stage) -> None:
    joined = await stage.groups.join(a_join())
    await stage.groups.sync("g", joined.member_id, joined.generation, assignments={})
    beat = ConsumerHeartbeat(
        group="g", member_id="m", epoch=0, rebalance_ms=1, topics=frozenset({"t"}), assignor="mine"
    )
    with pytest.raises(UnsupportedAssignor):
        await stage.groups.consumer_heartbeat(beat)
    stage.groups.heartbeat("g", joined.member_id, joined.generation)
    assert stage.kind is ClassicGroup


async def test_after_a_restart_a_consumer_waits_for_earlier_classic_members(stage: Stage) -> None:
    classic = await stage.classic()
    await stage.settled(classic)
    assert classic.task is not None
    classic.task.cancel()
    await stage.restart()
    consumer = ConsumerClient(stage, None)
    await consumer.step()
    assert not consumer.epoch  # it has to ask again
    await stage.start(classic)
    stage.clients.remove(classic)
    await stage.start(consumer)
    await stage.settled(classic, consumer)
    assert classic.lost == 0


async def test_a_classic_member_that_does_not_join_again_in_time_is_removed(stage: Stage) -> None:
    classic = await stage.classic()
    await stage.settled(classic)
    assert classic.task is not None
    classic.task.cancel()
    consumer = await stage.consumer()
    await until(lambda: consumer.epoch > 0)
    for _ in range(60_000 // (SESSION_MS // 2)):
        with pytest.raises(RebalanceInProgress):
            stage.groups.heartbeat("g", classic.member_id, classic.epoch)
        stage.clock.advance(SESSION_MS // 2)
        await settle()
        stage.groups.timers.fire()
    with pytest.raises(UnknownMember):
        stage.groups.heartbeat("g", classic.member_id, classic.epoch)
    stage.clients.remove(classic)
    await stage.settled(consumer)


async def test_members_of_both_protocols_come_and_go(stage: Stage, migration_seed: int) -> None:
    """No partition ever has two readers, and the group always becomes stable."""
    chance = random.Random(migration_seed)
    for _ in range(30):
        clients = list(stage.clients)
        if len(clients) < 2 or (len(clients) < 5 and chance.random() < 0.6):
            await (stage.classic() if chance.random() < 0.5 else stage.consumer())
        else:
            client = chance.choice(clients)
            await until(lambda client=client: bool(client.epoch))  # type: ignore[misc]
            await client.leave()
        await settle(chance.randrange(60))
        stage.check_nobody_reads_twice()
    await stage.settled(*stage.clients)
    classic = all(isinstance(client, ClassicClient) for client in stage.clients)
    assert stage.kind is (ClassicGroup if classic else ConsumerGroup)


# What consumers tell each other


def test_subscriptions_and_assignments_are_read() -> None:
    owned = struct.pack(">ih1sii", 1, 1, b"t", 1, 3)
    metadata = struct.pack(">hih1si", 3, 1, 1, b"t", 2) + b"uu" + owned + struct.pack(">ih2s", 7, 2, b"r1")
    assert read_subscription(metadata) == TopicSubscription(3, frozenset({"t"}), {"t": (3,)}, "r1")
    assert read_subscription(subscription("u")) == TopicSubscription(1, frozenset({"u"}))
    assert read_subscription(struct.pack(">hih1s", 0, 1, 1, b"t")) == TopicSubscription(0, frozenset({"t"}))
    for end in range(6, len(metadata)):
        read_subscription(metadata[:end])  # None or a shorter one, but no error
    for wrong in (b"", b"m", struct.pack(">hi", 1, 2**31 - 1), struct.pack(">hih", 1, 1, 9)):
        assert read_subscription(wrong) is None
    written = write_assignment(2, {"t": (0, 2), "ü": (1,)})
    assert read_assignment(written) == {"t": (0, 2), "ü": (1,)}
    assert read_assignment(b"") == {}
    assert read_assignment(written[:9]) is None
