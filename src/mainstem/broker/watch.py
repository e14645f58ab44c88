"""Watching topics: pushes records to watchers as they become readable, and reads them once for all watchers.

Watchers with the same position and options form a group. When the stream changes, each group is read once and its page
is delivered to every member. Nothing here waits for a watcher: one that is not ready stays at its cursor, and continues
when it is ready.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from mainstem import events, limits
from mainstem.broker.diff import DiffPage, DiffQuery, Diffs
from mainstem.broker.eager_tasks import run_eagerly
from mainstem.broker.routers.service import RouterService
from mainstem.broker.streams import StreamService, stream_of
from mainstem.broker.topics.activity import Activity
from mainstem.errors import Closed, NotFound, TooLarge
from mainstem.ledger.topics import Topic

WATCH_RECORD_BYTES_MAX = 8 * limits.MIB  # a stream with a larger record ends with an error
WATCH_PAGES_MAX = 16  # pages being read or sent at once, which bounds their memory
WATCH_HANDED_PER_TURN = 64  # watchers that get a page before the event loop runs other work

_log = events.named("watch")

_PAGE_EFFORT = 16  # encoding a page for its first watcher costs as much as this many deliveries


class WatchOptions(NamedTuple):
    """A watcher's options for a stream."""

    limit: int = limits.WATCH_RECORDS_DEFAULT  # records of one page
    max_bytes: int = limits.WATCH_BYTES_DEFAULT
    nodes: tuple[bytes, ...] = ()  # omit records of these nodes
    watcher_group: WatcherGroup | None = None  # watchers that share its output; None: it has its own


class WatchPage:
    """One page of a topic, shared by all watchers that get it."""

    __slots__ = ("caught_up", "from_seq", "page", "partition", "plain", "read_from", "rendered", "topic")

    def __init__(self, topic: str, partition: int | None, read_from: int, page: DiffPage) -> None:
        self.topic = topic
        self.partition = partition  # None where the topic has only one
        self.read_from = read_from
        self.from_seq = _behind_gap(read_from, page)
        self.page = page
        self.caught_up = page.caught_up
        self.plain = page.count > 0 and page.tombstone is None  # records, and no gap before them
        self.rendered: dict[Any, Any] = {}  # encoded forms by door and format, so that it is encoded once


class WatcherOutput(Protocol):
    """The send buffer of a watcher."""

    @property
    def ready(self) -> bool:
        """False while it has unsent pages. It gets no more until `WatchService.resume`."""
        ...


class Watcher(Protocol):
    """A watcher. Its methods run on the loop and must not block."""

    @property
    def send_buffer(self) -> WatcherOutput:
        """Always the same object while it watches."""
        ...

    def take(self, place: WatchPosition, watch_page: WatchPage) -> None: ...

    def lose(self, place: WatchPosition) -> None:
        """The topic was deleted, and the position is removed."""
        ...

    def fail(self, place: WatchPosition, error: Exception) -> None:
        """The topic cannot be read, and the position is removed."""
        ...


class WatcherGroup(Protocol):
    """Watchers that get the same bytes."""

    def tell(
        self, places: list[WatchPosition], watch_page: WatchPage
    ) -> tuple[list[WatchPosition], list[WatchPosition]]:
        """Send the page at once to those that need nothing else. Returns these watchers, and the others."""
        ...


class WatchPosition:
    """The position of one watcher in one topic. `WatchService` moves it."""

    __slots__ = (
        "cursor",
        "first",
        "group",
        "live",
        "send_buffer",
        "tailing",
        "topic",
        "watch_options",
        "watched",
        "watcher",
    )

    def __init__(
        self, watcher: Watcher, topic: str, watched: _WatchedStream, cursor: int, watch_options: WatchOptions
    ) -> None:
        self.watcher = watcher
        self.send_buffer = watcher.send_buffer
        self.topic = topic
        self.watched = watched
        self.cursor = cursor  # sequence number of the last record before the position
        self.watch_options = watch_options
        self.first = True  # nothing has been read for it yet
        self.tailing = False  # it got CaughtUp, and has not fallen behind since
        self.live = True
        self.group: _PositionGroup | None = None  # None: its watcher is not ready

    @property
    def key(self) -> tuple[str, int]:
        """Its topic and partition."""
        return self.topic, self.watched.partition


class _PositionGroup:
    """Positions of one stream with the same cursor and options."""

    __slots__ = ("cursor", "due", "places", "reading", "watch_options", "watched")

    def __init__(self, watched: _WatchedStream, cursor: int, watch_options: WatchOptions) -> None:
        self.watched = watched
        self.cursor = cursor
        self.watch_options = watch_options
        self.places: set[WatchPosition] = set()
        self.due = False  # there may be something to read
        self.reading = False


class _WatchedStream:
    """One stream that is watched."""

    __slots__ = (
        "groups",
        "moved",
        "name",
        "page_delivery",
        "partition",
        "places",
        "scheduled",
        "stream",
        "topic_id",
        "watching",
    )

    def __init__(self, watching: WatchService, topic: Topic, partition: int, stream: int) -> None:
        self.watching = watching
        self.topic_id = topic.topic_id
        self.name = topic.name
        self.partition = partition
        self.stream = stream
        self.groups: dict[tuple[int, WatchOptions], _PositionGroup] = {}
        self.places: set[WatchPosition] = set()  # including those whose watchers are not ready
        self.moved = False
        self.scheduled = False
        self.page_delivery = 0  # pages being delivered

    def changed(self) -> None:
        """Records became readable, or the stream was deleted. Runs in the middle of a commit."""
        self.moved = True
        self.watching.schedule(self)


class _PageDelivery:
    """A page that is being delivered to the members of a group, some per iteration of the loop."""

    __slots__ = ("places", "watch_options", "watch_page", "watched")

    def __init__(
        self,
        watched: _WatchedStream,
        watch_page: WatchPage,
        watch_options: WatchOptions,
        places: list[WatchPosition],
    ) -> None:
        self.watched = watched
        self.watch_page = watch_page
        self.watch_options = watch_options
        self.places = places


class WatchService:
    def __init__(
        self, streams: StreamService, diffs: Diffs, routers: RouterService, activity: Activity
    ) -> None:
        self._streams = streams
        self.diffs = diffs
        self._routers = routers
        self._activity = activity
        self._watched: dict[int, _WatchedStream] = {}  # by stream
        self._scheduled: deque[_WatchedStream] = deque()
        self._due: deque[_PositionGroup] = deque()  # waiting for their turn to read
        self._reads: set[asyncio.Task[None]] = set()  # those that need a file
        self._page_deliveries: deque[_PageDelivery] = deque()
        self._turn_wanted = False

    @property
    def places(self) -> int:
        return sum(len(watched.places) for watched in self._watched.values())

    # Enter and leave

    def enter(
        self, watcher: Watcher, topic: Topic, from_seq: int, watch_options: WatchOptions, partition: int = 0
    ) -> WatchPosition:
        """Watch a topic after `from_seq`. Raises PartitionNotFound."""
        stream = stream_of(topic, partition)
        watched = self._watched.get(stream)
        if watched is None:
            watched = self._watched[stream] = _WatchedStream(self, topic, partition, stream)
            self._streams.watch((stream,), watched)
        place = WatchPosition(watcher, topic.name, watched, from_seq, watch_options)
        watched.places.add(place)
        self._join(place)
        return place

    def leave(self, place: WatchPosition) -> None:
        """Stop watching. Idempotent."""
        if not place.live:
            return
        place.live = False
        watched = place.watched
        watched.places.discard(place)
        self._part(place)
        if not watched.places:
            self._drop(watched)

    def resume(self, places: Iterable[WatchPosition]) -> None:
        """The watcher of these positions is ready again."""
        for place in places:
            if place.live and place.group is None:
                self._join(place)

    async def close(self) -> None:
        """Stop reading. The owners of watchers close them."""
        for watched in list(self._watched.values()):
            self._drop(watched)
        self._due.clear()
        self._page_deliveries.clear()
        for task in self._reads:
            task.cancel()
        await asyncio.gather(*self._reads, return_exceptions=True)

    def _drop(self, watched: _WatchedStream) -> None:
        self._streams.unwatch((watched.stream,), watched)
        self._watched.pop(watched.stream, None)

    # Groups

    def _join(self, place: WatchPosition) -> None:
        """Read for it in the next turn, unless there is nothing new."""
        watched = place.watched
        place.group = group = self._group(watched, place.cursor, place.watch_options)
        group.places.add(place)
        if not (group.due or (place.tailing and place.cursor == self._end(watched))):
            group.due = True
            self.schedule(watched)

    @staticmethod
    def _group(watched: _WatchedStream, cursor: int, watch_options: WatchOptions) -> _PositionGroup:
        group = watched.groups.get((cursor, watch_options))
        if group is None:
            group = watched.groups[cursor, watch_options] = _PositionGroup(watched, cursor, watch_options)
        return group

    def _part(self, place: WatchPosition) -> None:
        group = place.group
        if group is None:
            return
        place.group = None
        group.places.discard(place)
        if not group.places and not group.reading:
            place.watched.groups.pop((group.cursor, group.watch_options), None)

    def _end(self, watched: _WatchedStream) -> int:
        """The high watermark; for a deleted stream, a value that no cursor equals."""
        try:
            return self._streams.bounds(watched.stream)[1]
        except NotFound:
            return -1

    # Turns: at most one iteration of the loop is between a change and its reads

    def schedule(self, watched: _WatchedStream) -> None:
        """Check the stream in the next turn."""
        if not watched.scheduled:
            watched.scheduled = True
            self._scheduled.append(watched)
            self._want_turn()

    def _want_turn(self) -> None:
        if not self._turn_wanted:
            self._turn_wanted = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_wanted = False
        try:
            self._hand_out()
            for _ in range(len(self._scheduled)):
                watched = self._scheduled.popleft()
                watched.scheduled = False
                if watched.places:
                    self._read_stream(watched)
            self._read_due()
        finally:  # a failure of one must not stop the others
            if self._page_deliveries or self._scheduled:
                self._want_turn()

    def _read_stream(self, watched: _WatchedStream) -> None:
        if self._end(watched) < 0:
            self._topic_deleted(watched)
            return
        if watched.page_delivery:
            # Watchers that already have their page wait for the others, so that all continue together.
            return
        groups = watched.groups.values()
        if watched.moved:
            watched.moved = False
            for group in groups:
                group.due = True
        for group in groups:
            if group.due and not group.reading:
                group.reading = True
                # Watchers at the end do not wait behind those with a large lag.
                if any(place.tailing for place in group.places):
                    self._due.appendleft(group)
                else:
                    self._due.append(group)

    def _topic_deleted(self, watched: _WatchedStream) -> None:
        """The topic was deleted: notify its watchers."""
        self._drop(watched)
        for place in list(watched.places):
            place.live = False
            place.watcher.lose(place)
        watched.places.clear()
        watched.groups.clear()

    # Reading

    def _read_due(self) -> None:
        while self._due and len(self._reads) + len(self._page_deliveries) < WATCH_PAGES_MAX:
            group = self._due.popleft()
            group.due = False
            if not group.places:
                self._retire(group)
                continue
            task = run_eagerly(self._read(group))
            if task is not None:
                self._reads.add(task)
                task.add_done_callback(self._read_done)

    def _read_done(self, task: asyncio.Task[None]) -> None:
        self._reads.discard(task)
        self._want_turn()

    async def _read(self, group: _PositionGroup) -> None:
        watched = group.watched
        topic = self._streams.get_by_id(watched.topic_id)
        if topic is None:
            self._retire(group)
            self.schedule(watched)
            return
        try:
            if any(place.first for place in group.places):
                await self._routers.drain(topic.name)
            wanted = DiffQuery(
                group.cursor,
                group.watch_options.limit,
                group.watch_options.max_bytes,
                group.watch_options.nodes,
            )
            page = await self.diffs.read(topic, wanted, watched.partition)
            if page.bytes > WATCH_RECORD_BYTES_MAX:
                raise TooLarge(
                    f"the record {page.next_from_seq} has {page.bytes} bytes: live streams carry up to "
                    f"{WATCH_RECORD_BYTES_MAX}; read it with a diff, and watch from there"
                )
        except NotFound:
            self._retire(group)
            self.schedule(watched)  # which finds that it is deleted
        except Exception as error:  # noqa: BLE001 - passed to every member
            self._fail(group, error)
        else:
            self._activity.read(topic.topic_id)
            partition = watched.partition if len(topic.streams) > 1 else None
            watch_page = WatchPage(watched.name, partition, group.cursor, page)
            self._page_deliveries.append(
                _PageDelivery(watched, watch_page, group.watch_options, self._retire(group))
            )
            watched.page_delivery += 1
            self._want_turn()

    def _retire(self, group: _PositionGroup) -> list[WatchPosition]:
        """Dissolve a group. Its members belong to it until they get their page and join another group."""
        group.watched.groups.pop((group.cursor, group.watch_options), None)
        places = list(group.places)
        group.places.clear()
        return places

    def _fail(self, group: _PositionGroup, error: Exception) -> None:
        if not isinstance(error, Closed):
            _log.error("watched topic not readable", topic=group.watched.name, error=repr(error))
        for place in self._retire(group):
            self.leave(place)
            place.watcher.fail(place, error)

    # Delivery

    def _hand_out(self) -> None:
        """Deliver pages to a bounded number of watchers, so that other tasks of the loop can run."""
        room = WATCH_HANDED_PER_TURN
        while self._page_deliveries and room > 0:
            page_delivery = self._page_deliveries[0]
            given = page_delivery.places[-room:]
            del page_delivery.places[-room:]
            room -= max(len(given), _PAGE_EFFORT)
            self._wait_for_next(
                page_delivery,
                self._deliver_page(
                    given, page_delivery.watch_page, page_delivery.watch_options.watcher_group
                ),
            )
            if page_delivery.places:
                return
            self._page_deliveries.popleft()
            page_delivery.watched.page_delivery -= 1
            if not page_delivery.watched.page_delivery:
                self.schedule(page_delivery.watched)

    def _deliver_page(
        self, places: list[WatchPosition], watch_page: WatchPage, watcher_group: WatcherGroup | None
    ) -> list[WatchPosition]:
        """Deliver a page to watchers. Returns those that are ready for the next."""
        told: list[WatchPosition] = []
        if watcher_group is not None:
            try:
                told, places = watcher_group.tell(places, watch_page)
            except Exception as error:  # noqa: BLE001 - a failure must not block other groups
                for place in places:
                    self._give_up(place, error)
                return []
        for place in places:
            if not (place.live and place.send_buffer.ready):
                place.group = None  # it continues at its position once it is ready
                continue
            try:
                place.watcher.take(place, watch_page)
            except Exception as error:  # noqa: BLE001 - one watcher's failure must not affect the others
                self._give_up(place, error)
            else:
                told.append(place)
        cursor, caught_up, ready = watch_page.page.next_from_seq, watch_page.caught_up, []
        for place in told:
            place.cursor = cursor
            place.first = False
            place.tailing = caught_up
            if place.send_buffer.ready:
                ready.append(place)
            else:
                place.group = None
        return ready

    def _give_up(self, place: WatchPosition, error: Exception) -> None:
        _log.error("watcher failed", topic=place.topic, error=repr(error))
        self.leave(place)
        place.watcher.fail(place, error)

    def _wait_for_next(self, page_delivery: _PageDelivery, places: list[WatchPosition]) -> None:
        """Let the watchers that got the page wait together for the next."""
        watched, watch_page = page_delivery.watched, page_delivery.watch_page
        places = [place for place in places if place.live]
        if not places:
            return
        cursor = watch_page.page.next_from_seq
        group = self._group(watched, cursor, page_delivery.watch_options)
        group.places.update(places)
        for place in places:
            place.group = group
        stuck = cursor == watch_page.read_from and not watch_page.caught_up
        if not (group.due or stuck or (watch_page.caught_up and cursor == self._end(watched))):
            group.due = True
            self.schedule(watched)


def _behind_gap(cursor: int, page: DiffPage) -> int:
    """The position after the page's gap, if there is one."""
    gap = page.tombstone
    if gap is None:
        return cursor
    return page.earliest_seq - 1 if gap.reason == "recreated" else max(gap.gap_to, page.earliest_seq - 1)
