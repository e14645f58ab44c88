"""Members of consumer groups: they join, read the partitions that the server assigns, and commit offsets."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, NamedTuple

from mainstem import events, tracing
from mainstem.api import routes
from mainstem.api.groups import (
    AssignedPartition,
    GroupMembership,
    GroupPosition,
    GroupPositionsBody,
    HeartbeatBody,
    JoinBody,
    LeaveBody,
    OwnedPartition,
)
from mainstem.api.records import DiffBody
from mainstem.client.loop import LoopThread
from mainstem.client.responses import AnyPage, ConsumerRecord, Deserializer, Gap, gap_of
from mainstem.client.transport import Transport, decoded
from mainstem.errors import Closed, InvalidInput, MainstemError, MembershipLost, StaleMemberEpoch, Unavailable

_log = events.named("consumer")

_HEARTBEAT_S_MAX = 1.0  # so that a rebalance takes seconds, not heartbeats of the server's default
_WAIT_MS = 5_000  # of one long poll
_POLL_S = 1.0


class TopicPartition(NamedTuple):
    topic: str
    partition: int


OnRebalance = Callable[[list[TopicPartition]], Awaitable[None] | None]


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    auto_commit: bool
    commit_interval_s: float
    start: Literal["earliest", "latest"]
    max_records: int
    on_assigned: OnRebalance | None
    on_revoked: OnRebalance | None
    instance_id: str | None
    client_id: str
    rebalance_timeout_s: float
    deserializer: Deserializer | None = None

    def __post_init__(self) -> None:
        if self.start not in ("earliest", "latest"):
            raise InvalidInput(f"start must be 'earliest' or 'latest', not {self.start!r}")
        if self.max_records < 1:
            raise InvalidInput("max_records must be 1 or more")


class AsyncConsumer:
    """A member of a consumer group. Created by `client.consumer(topics, group=…)`.

    It joins with the first poll and sends heartbeats in the background. Rebalances take effect in `poll`: it revokes
    and assigns partitions there, and runs the callbacks. With `auto_commit`, records are committed once the next ones
    are polled, before partitions are revoked, and at the end of the `with` block unless it raises.

    Example:
        async with client.consumer("orders", group="billing") as consumer:
            async for record in consumer:
                print(record.partition, record.value)
    """

    def __init__(
        self, transport: Transport, topics: tuple[str, ...], group: str, options: ConsumerOptions
    ) -> None:
        self._transport = transport
        self.topics = topics
        self.group = group
        self._options = options
        self._member_id = ""
        self._epoch = 0
        self._heartbeat_s = _HEARTBEAT_S_MAX
        self._owned: set[TopicPartition] = set()
        self._next: dict[TopicPartition, int] = {}  # offset of the next record to fetch
        self._delivered: dict[TopicPartition, int] = {}  # offset after the last record that the caller got
        self._committed: dict[TopicPartition, int] = {}
        self._buffer: deque[ConsumerRecord] = deque()
        self._fetches: dict[str, asyncio.Task[AnyPage]] = {}  # by topic
        self._target: list[AssignedPartition] | None = None  # an assignment that did not take effect yet
        self._news = asyncio.Event()  # there is such an assignment, or a failure
        self._lost = False  # the server removed this member
        self._failure: MainstemError | None = None
        self._beating: asyncio.Task[None] | None = None
        self._commit_at = 0.0
        self._closed = False

    async def __aenter__(self) -> AsyncConsumer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(commit=kind is None)

    def __aiter__(self) -> AsyncConsumer:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """The next record, whenever it arrives."""
        while not self._closed:
            records = await self.poll(max_records=1)
            if records:
                return records[0]
        raise StopAsyncIteration

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that this member reads."""
        return sorted(self._owned)

    @property
    def member_id(self) -> str:
        return self._member_id

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The offset after the last record that the caller got, by partition."""
        return dict(self._delivered)

    async def poll(
        self, timeout_s: float = _POLL_S, *, max_records: int | None = None
    ) -> list[ConsumerRecord]:
        """The next records; an empty list if none arrive in time. Raises what ended the membership."""
        if self._closed:
            raise Closed("this consumer is closed: create another one")
        deadline = time.monotonic() + timeout_s
        if self._options.auto_commit and time.monotonic() >= self._commit_at:
            await self._commit_delivered()
        while True:
            await self._rebalance()
            if self._buffer:
                return self._deliver(max_records or self._options.max_records)
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return []
            await self._fetch(left_s)

    async def commit(
        self, record: ConsumerRecord | None = None, *, offsets: Mapping[TopicPartition, int] | None = None
    ) -> None:
        """Commit all records that the caller got; or those up to `record` in its partition; or these next offsets.

        Raises MembershipLost if the partitions went to another member."""
        if offsets is not None:
            chosen = dict(offsets)
        elif record is not None:
            chosen = {TopicPartition(record.topic, record.partition): record.offset + 1}
        else:
            chosen = dict(self._delivered)
        await self._commit(chosen)

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Continue an assigned partition at this offset."""
        place = TopicPartition(topic, partition)
        if place not in self._owned:
            raise InvalidInput(f"partition {partition} of {topic!r} is not assigned to this consumer")
        self._forget_fetches({place})
        self._next[place] = offset
        self._delivered[place] = offset

    async def close(self, *, commit: bool = True) -> None:
        """Commit (with auto_commit, unless `commit` is False), and leave the group: others take over at once."""
        if self._closed:
            return
        self._closed = True
        self._cancel_fetches()
        beating, self._beating = self._beating, None
        try:
            if commit and self._options.auto_commit and not self._lost:
                with suppress(MembershipLost):
                    await self._commit(dict(self._delivered))
            if self._owned:
                await _call(self._options.on_revoked, self.assignment)
        finally:
            self._owned.clear()
            if beating is not None:
                beating.cancel()
                await asyncio.gather(beating, return_exceptions=True)
            if self._member_id:
                body = LeaveBody(self._member_id, self._options.instance_id)
                with suppress(MainstemError):  # its session times out
                    await self._transport.call(routes.LEAVE_GROUP, self.group, body=body)

    # GroupMembership

    async def _join(self) -> None:
        options = self._options
        body = JoinBody(
            list(self.topics),
            options.client_id,
            options.instance_id,
            rebalance_timeout_ms=round(options.rebalance_timeout_s * 1000),
        )
        joined = await self._transport.call(routes.JOIN_GROUP, self.group, body=body)
        self._lost = False
        self._member_id = joined.member_id
        self._take(joined)
        if self._beating is None:
            self._beating = self._transport.spawn(self._beat(), "mainstem-consumer")

    async def _beat(self) -> None:
        """Heartbeats, until the consumer is closed."""
        while True:
            await asyncio.sleep(self._heartbeat_s)
            if not self._member_id or self._lost:
                continue
            try:
                await self._heartbeat()
            except Unavailable as error:
                _log.warning("heartbeat failed", group=self.group, error=str(error))
            except MembershipLost as error:
                _log.warning("membership lost", group=self.group, error=str(error))
                self._lost = True
                self._news.set()
            except MainstemError as error:
                self._failure = error
                self._news.set()

    async def _heartbeat(self) -> None:
        member = self._member_id
        owned = [OwnedPartition(place.topic, place.partition) for place in sorted(self._owned)]
        body = HeartbeatBody(member, self._epoch, owned, self._options.instance_id)
        told = await self._transport.call(routes.HEARTBEAT_GROUP, self.group, body=body)
        if member == self._member_id:
            self._take(told)

    def _take(self, told: GroupMembership) -> None:
        self._epoch = told.epoch
        self._heartbeat_s = min(told.heartbeat_ms / 1000, _HEARTBEAT_S_MAX)
        if told.assignment is not None:
            self._target = told.assignment
            self._news.set()

    async def _rebalance(self) -> None:
        """Join if needed, and apply the latest assignment."""
        self._news.clear()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if self._lost:
            await self._drop(set(self._owned))  # others read them already, so there is nothing to commit
            self._member_id = ""
        if not self._member_id:
            await self._join()
        while self._target is not None:
            target, self._target = self._target, None
            wanted = {TopicPartition(one.topic, one.partition): one for one in target}
            revoked = self._owned - wanted.keys()
            if revoked and self._options.auto_commit:
                with suppress(MembershipLost):
                    await self._commit({p: at for p, at in self._delivered.items() if p in revoked})
            await self._drop(revoked)
            added = wanted.keys() - self._owned
            for place in added:
                self._next[place] = self._begin(wanted[place])
                # Also committed, so that the next member does not begin elsewhere.
                self._delivered[place] = self._next[place]
                if wanted[place].offset == self._next[place]:
                    self._committed[place] = self._next[place]
            self._owned |= added
            if added:
                await _call(self._options.on_assigned, sorted(added))
            if revoked or added:
                with suppress(Unavailable):  # the next heartbeat says the same
                    await self._heartbeat()

    def _begin(self, one: AssignedPartition) -> int:
        if one.offset is not None:
            return max(one.offset, one.start)
        return one.start if self._options.start == "earliest" else one.end

    async def _drop(self, revoked: set[TopicPartition]) -> None:
        if not revoked:
            return
        self._forget_fetches(revoked)
        await _call(self._options.on_revoked, sorted(revoked))
        for place in revoked:
            self._next.pop(place, None)
            self._delivered.pop(place, None)
            self._committed.pop(place, None)
        self._owned -= revoked

    # Reading

    def _deliver(self, count: int) -> list[ConsumerRecord]:
        records = [self._buffer.popleft() for _ in range(min(count, len(self._buffer)))]
        for record in records:
            record.deserializer = self._options.deserializer
            self._delivered[TopicPartition(record.topic, record.partition)] = record.offset + 1
        return records

    async def _fetch(self, timeout_s: float) -> None:
        """Wait until a topic has records, the assignment changes, or the time is over."""
        for topic in {place.topic for place in self._owned} - self._fetches.keys():
            self._fetches[topic] = asyncio.create_task(self._fetch_topic(topic), name="mainstem-fetch")
        news = asyncio.create_task(self._news.wait())
        try:
            await asyncio.wait(
                [news, *self._fetches.values()], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            news.cancel()
        for topic, task in list(self._fetches.items()):
            if task.done():
                del self._fetches[topic]
                self._take_page(topic, task.result())

    async def _fetch_topic(self, topic: str) -> AnyPage:
        places = {place.partition: at for place, at in self._next.items() if place.topic == topic}
        body = DiffBody(
            places.get(0, 0),
            self._options.max_records,
            include_tags=True,
            include_headers=True,
            include_trace=tracing.enabled(),
            wait_ms=_WAIT_MS,
            from_={str(partition): at for partition, at in places.items()},
            partitions=sorted(places),
        )
        answer = await self._transport.request(routes.POST_DIFF, topic, body=body, wait_s=_WAIT_MS / 1000)
        return decoded(answer.body, AnyPage)

    def _take_page(self, topic: str, page: AnyPage) -> None:
        for record in page.records:
            record.topic = topic
        gaps: list[Gap] = [gap_of(topic, gap, gap.partition) for gap in page.tombstones]
        if page.tombstone is not None:
            gaps.append(gap_of(topic, page.tombstone))
        for gap in gaps:
            _log.warning(
                "records gone",
                topic=topic,
                partition=gap.partition,
                first=gap.first_seq - 1,
                last=gap.last_seq - 1,
                reason=gap.reason,
            )
        after = {0: page.next_from_seq} if page.next is None else {int(p): at for p, at in page.next.items()}
        for partition, at in after.items():
            place = TopicPartition(topic, partition)
            if place in self._owned:
                self._next[place] = at
        self._buffer.extend(
            record for record in page.records if TopicPartition(topic, record.partition) in self._owned
        )

    def _forget_fetches(self, places: Iterable[TopicPartition]) -> None:
        """Drop what was fetched for these partitions and not delivered yet."""
        chosen = set(places)
        for topic in {place.topic for place in chosen}:
            task = self._fetches.pop(topic, None)
            if task is not None:
                task.cancel()
        self._buffer = deque(
            record for record in self._buffer if TopicPartition(record.topic, record.partition) not in chosen
        )

    def _cancel_fetches(self) -> None:
        for task in self._fetches.values():
            task.cancel()
        self._fetches.clear()
        self._buffer.clear()

    # Committing

    async def _commit_delivered(self) -> None:
        self._commit_at = time.monotonic() + self._options.commit_interval_s
        try:
            await self._commit(dict(self._delivered))
        except MembershipLost:
            self._lost = True  # the partitions were revoked: `_rebalance` joins again

    async def _commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        changed = {place: at for place, at in offsets.items() if self._committed.get(place) != at}
        if not changed:
            return
        rows = [GroupPosition(place.topic, at, place.partition) for place, at in sorted(changed.items())]
        while True:
            epoch = self._epoch
            body = GroupPositionsBody(rows, self._member_id, epoch)
            try:
                await self._transport.call(routes.COMMIT_OFFSETS, self.group, body=body)
            except StaleMemberEpoch:
                if epoch == self._epoch:  # a heartbeat in flight may have raised it meanwhile
                    await self._heartbeat()
                continue
            break
        self._committed.update(changed)


async def _call(callback: OnRebalance | None, places: list[TopicPartition]) -> None:
    if callback is None:
        return
    if inspect.iscoroutinefunction(callback):
        await callback(places)
    else:
        await asyncio.to_thread(callback, places)  # it may block, or use a client for threads


class Consumer:
    """Like AsyncConsumer, for threads. Use it from one thread at a time.

    Example:
        with client.consumer("orders", group="billing") as consumer:
            for record in consumer:
                print(record.partition, record.value)
    """

    def __init__(self, thread: LoopThread, consumer: AsyncConsumer) -> None:
        self._thread = thread
        self._consumer = consumer

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(commit=kind is None)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """The records as they arrive, without end."""
        while True:
            yield from self.poll(max_records=1)

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that this member reads."""
        return self._consumer.assignment

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The offset after the last record that the caller got, by partition."""
        return self._consumer.positions

    @property
    def group(self) -> str:
        return self._consumer.group

    @property
    def member_id(self) -> str:
        return self._consumer.member_id

    @property
    def epoch(self) -> int:
        return self._consumer.epoch

    def poll(self, timeout_s: float = _POLL_S, *, max_records: int | None = None) -> list[ConsumerRecord]:
        """The next records; an empty list if none arrive in time. Raises what ended the membership."""
        return self._thread.call(self._consumer.poll(timeout_s, max_records=max_records))

    def commit(
        self, record: ConsumerRecord | None = None, *, offsets: Mapping[TopicPartition, int] | None = None
    ) -> None:
        """Commit all records that the caller got; or those up to `record` in its partition; or these next offsets."""
        self._thread.call(self._consumer.commit(record, offsets=offsets))

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Continue an assigned partition at this offset."""

        async def seek() -> None:
            self._consumer.seek(topic, partition, offset)

        self._thread.call(seek())

    def close(self, *, commit: bool = True) -> None:
        """Commit (with auto_commit, unless `commit` is False), and leave the group: others take over at once."""
        self._thread.call(self._consumer.close(commit=commit))
