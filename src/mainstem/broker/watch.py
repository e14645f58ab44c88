"""Watching topics: records are pushed to watchers as they become visible, and read once for all of them.

Watchers that stand at the same place of a stream and want the same of it form a group. When the stream moves,
each group is read once and its page handed to every member. Nothing here waits for a watcher: one that is not
ready is left where it is, and reads on from its cursor once it says so.
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

_log = events.named("watch")

_PAGE_EFFORT = 16  # whoever gets a page first has it encoded, which costs as much as so many deliveries


class WatchOptions(NamedTuple):
    """What a watcher wants of a stream beside its place in it."""

    limit: int = limits.WATCH_RECORDS_DEFAULT  # records of one page
    max_bytes: int = limits.WATCH_BYTES_DEFAULT
    nodes: tuple[bytes, ...] = ()  # records of these are left out
    watcher_group: WatcherGroup | None = None  # those it is told together with; None: it is told alone


class WatchPage:
    """One page of a topic, the same object for everyone it is handed to."""

    __slots__ = ("caught_up", "from_seq", "page", "partition", "plain", "read_from", "rendered", "topic")

    def __init__(self, topic: str, partition: int | None, read_from: int, page: DiffPage) -> None:
        self.topic = topic
        self.partition = partition  # None where the topic has only one
        self.read_from = read_from
        self.from_seq = _behind_gap(read_from, page)
        self.page = page
        self.caught_up = page.caught_up
        self.plain = page.count > 0 and page.tombstone is None  # records, and no gap before them
        self.rendered: dict[Any, Any] = {}  # what doors made of it, by form: it is encoded once


class WatcherOutput(Protocol):
    """The way out to a watcher."""

    @property
    def ready(self) -> bool:
        """False while what it was given has not gone out. It gets no more until `Watching.resume`."""
        ...


class Watcher(Protocol):
    """Whoever watches. Its methods are called from the loop, and must not wait."""

    @property
    def send_buffer(self) -> WatcherOutput:
        """The same one for as long as it watches."""
        ...

    def take(self, place: WatchPosition, watch_page: WatchPage) -> None: ...

    def lose(self, place: WatchPosition) -> None:
        """The topic was deleted; the place is gone."""
        ...

    def fail(self, place: WatchPosition, error: Exception) -> None:
        """The topic cannot be read; the place is gone."""
        ...


class WatcherGroup(Protocol):
    """Watchers that are told the same in the same words."""

    def tell(
        self, places: list[WatchPosition], watch_page: WatchPage
    ) -> tuple[list[WatchPosition], list[WatchPosition]]:
        """Give the page to those who need nothing besides, at once. Returns them, and the others."""
        ...


class WatchPosition:
    """Where one watcher stands in one topic. `WatchService` moves it."""

    __slots__ = (
        "cursor",
        "feed",
        "first",
        "group",
        "live",
        "send_buffer",
        "tailing",
        "topic",
        "watch_options",
        "watcher",
    )

    def __init__(
        self, watcher: Watcher, topic: str, feed: _WatchedStream, cursor: int, watch_options: WatchOptions
    ) -> None:
        self.watcher = watcher
        self.send_buffer = watcher.send_buffer
        self.topic = topic
        self.feed = feed
        self.cursor = cursor  # sequence number of the last record it is past
        self.watch_options = watch_options
        self.first = True  # nothing has been read for it yet
        self.tailing = False  # it was told that it caught up, and did not fall behind since
        self.live = True
        self.group: _PositionGroup | None = None  # None: its watcher is not ready


class _PositionGroup:
    """Places of one feed with the same cursor and wish."""

    __slots__ = ("cursor", "due", "feed", "places", "reading", "watch_options")

    def __init__(self, feed: _WatchedStream, cursor: int, watch_options: WatchOptions) -> None:
        self.feed = feed
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
        self.places: set[WatchPosition] = set()  # all of them, also those whose watchers are not ready
        self.moved = False
        self.scheduled = False
        self.page_delivery = 0  # pages being handed out

    def changed(self) -> None:
        """Something became visible, or the stream is gone. Runs in the middle of a commit."""
        self.moved = True
        self.watching.schedule(self)


class _PageDelivery:
    """A page on its way to the members of a group, some of them each turn of the loop."""

    __slots__ = ("feed", "places", "watch_options", "watch_page")

    def __init__(
        self,
        feed: _WatchedStream,
        watch_page: WatchPage,
        watch_options: WatchOptions,
        places: list[WatchPosition],
    ) -> None:
        self.feed = feed
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
        self._feeds: dict[int, _WatchedStream] = {}  # by stream
        self._scheduled: deque[_WatchedStream] = deque()
        self._due: deque[_PositionGroup] = deque()  # waiting for their turn to read
        self._reads: set[asyncio.Task[None]] = set()  # those that need a file
        self._page_deliveries: deque[_PageDelivery] = deque()
        self._turn_wanted = False

    @property
    def places(self) -> int:
        return sum(len(feed.places) for feed in self._feeds.values())

    # Coming and going

    def enter(
        self, watcher: Watcher, topic: Topic, from_seq: int, watch_options: WatchOptions, partition: int = 0
    ) -> WatchPosition:
        """Watch a topic from behind `from_seq` on. Raises PartitionNotFound."""
        stream = stream_of(topic, partition)
        feed = self._feeds.get(stream)
        if feed is None:
            feed = self._feeds[stream] = _WatchedStream(self, topic, partition, stream)
            self._streams.watch((stream,), feed)
        place = WatchPosition(watcher, topic.name, feed, from_seq, watch_options)
        feed.places.add(place)
        self._join(place)
        return place

    def leave(self, place: WatchPosition) -> None:
        """Watch no more. Doing it twice does nothing."""
        if not place.live:
            return
        place.live = False
        feed = place.feed
        feed.places.discard(place)
        self._part(place)
        if not feed.places:
            self._drop(feed)

    def resume(self, places: Iterable[WatchPosition]) -> None:
        """The watcher of these places is ready again."""
        for place in places:
            if place.live and place.group is None:
                self._join(place)

    async def close(self) -> None:
        """Read nothing more. Watchers are told by whoever owns them."""
        for feed in list(self._feeds.values()):
            self._drop(feed)
        self._due.clear()
        self._page_deliveries.clear()
        for task in self._reads:
            task.cancel()
        await asyncio.gather(*self._reads, return_exceptions=True)

    def _drop(self, feed: _WatchedStream) -> None:
        self._streams.unwatch((feed.stream,), feed)
        self._feeds.pop(feed.stream, None)

    # Groups

    def _join(self, place: WatchPosition) -> None:
        """Read for it in the next turn, unless nothing is new."""
        feed = place.feed
        place.group = group = self._group(feed, place.cursor, place.watch_options)
        group.places.add(place)
        if not (group.due or (place.tailing and place.cursor == self._end(feed))):
            group.due = True
            self.schedule(feed)

    @staticmethod
    def _group(feed: _WatchedStream, cursor: int, watch_options: WatchOptions) -> _PositionGroup:
        group = feed.groups.get((cursor, watch_options))
        if group is None:
            group = feed.groups[cursor, watch_options] = _PositionGroup(feed, cursor, watch_options)
        return group

    def _part(self, place: WatchPosition) -> None:
        group = place.group
        if group is None:
            return
        place.group = None
        group.places.discard(place)
        if not group.places and not group.reading:
            place.feed.groups.pop((group.cursor, group.watch_options), None)

    def _end(self, feed: _WatchedStream) -> int:
        """The visible end; a stream that is gone has none, which no cursor equals."""
        try:
            return self._streams.bounds(feed.stream)[1]
        except NotFound:
            return -1

    # Turns: at most one of the loop's iterations runs between a change and its reads

    def schedule(self, feed: _WatchedStream) -> None:
        """Look at the feed in the next turn."""
        if not feed.scheduled:
            feed.scheduled = True
            self._scheduled.append(feed)
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
                feed = self._scheduled.popleft()
                feed.scheduled = False
                if feed.places:
                    self._read_stream(feed)
            self._read_due()
        finally:  # whatever went wrong for one, the others are waiting
            if self._page_deliveries or self._scheduled:
                self._want_turn()

    def _read_stream(self, feed: _WatchedStream) -> None:
        if self._end(feed) < 0:
            self._topic_deleted(feed)
            return
        if feed.page_delivery:
            # Those who have their page already wait for the others, so that all of them go on together.
            return
        groups = feed.groups.values()
        if feed.moved:
            feed.moved = False
            for group in groups:
                group.due = True
        for group in groups:
            if group.due and not group.reading:
                group.reading = True
                # Those who only want what is new do not stand in line behind those with much to catch up.
                if any(place.tailing for place in group.places):
                    self._due.appendleft(group)
                else:
                    self._due.append(group)

    def _topic_deleted(self, feed: _WatchedStream) -> None:
        """The topic was deleted: tell everyone who watched it."""
        self._drop(feed)
        for place in list(feed.places):
            place.live = False
            place.watcher.lose(place)
        feed.places.clear()
        feed.groups.clear()

    # Reading

    def _read_due(self) -> None:
        while self._due and len(self._reads) + len(self._page_deliveries) < limits.WATCH_PAGES_MAX:
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
        feed = group.feed
        topic = self._streams.get_by_id(feed.topic_id)
        if topic is None:
            self._retire(group)
            self.schedule(feed)
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
            page = await self.diffs.read(topic, wanted, feed.partition)
            if page.bytes > limits.WATCH_RECORD_BYTES_MAX:
                raise TooLarge(
                    f"the record {page.next_from_seq} of topic {topic.name!r} has {page.bytes} bytes: live "
                    f"streams carry up to {limits.WATCH_RECORD_BYTES_MAX}; read it with a diff, and watch from there"
                )
        except NotFound:
            self._retire(group)
            self.schedule(feed)  # which finds that it is gone
        except Exception as error:  # noqa: BLE001 - handed on to every member
            self._fail(group, error)
        else:
            self._activity.read(topic.topic_id)
            partition = feed.partition if len(topic.streams) > 1 else None
            watch_page = WatchPage(feed.name, partition, group.cursor, page)
            self._page_deliveries.append(
                _PageDelivery(feed, watch_page, group.watch_options, self._retire(group))
            )
            feed.page_delivery += 1
            self._want_turn()

    def _retire(self, group: _PositionGroup) -> list[WatchPosition]:
        """Dissolve a group. Its members count as being in it until they get their page and join another."""
        group.feed.groups.pop((group.cursor, group.watch_options), None)
        places = list(group.places)
        group.places.clear()
        return places

    def _fail(self, group: _PositionGroup, error: Exception) -> None:
        if not isinstance(error, Closed):
            _log.error("a watched topic cannot be read", topic=group.feed.name, error=repr(error))
        for place in self._retire(group):
            self.leave(place)
            place.watcher.fail(place, error)

    # Handing out

    def _hand_out(self) -> None:
        """Give a bounded number of watchers their page: others on this loop want their turn as well."""
        room = limits.WATCH_HANDED_PER_TURN
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
            page_delivery.feed.page_delivery -= 1
            if not page_delivery.feed.page_delivery:
                self.schedule(page_delivery.feed)

    def _deliver_page(
        self, places: list[WatchPosition], watch_page: WatchPage, watcher_group: WatcherGroup | None
    ) -> list[WatchPosition]:
        """Give watchers their page. Returns those that are ready for the next."""
        told: list[WatchPosition] = []
        if watcher_group is not None:
            try:
                told, places = watcher_group.tell(places, watch_page)
            except Exception as error:  # noqa: BLE001 - other groups must not wait for ever
                for place in places:
                    self._give_up(place, error)
                return []
        for place in places:
            if not (place.live and place.send_buffer.ready):
                place.group = None  # it reads again from where it stands, once it is ready
                continue
            try:
                place.watcher.take(place, watch_page)
            except Exception as error:  # noqa: BLE001 - one watcher's trouble must not be that of the others
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
        _log.error("a watcher failed", topic=place.topic, error=repr(error))
        self.leave(place)
        place.watcher.fail(place, error)

    def _wait_for_next(self, page_delivery: _PageDelivery, places: list[WatchPosition]) -> None:
        """Have those who got the page wait together for the next."""
        feed, watch_page = page_delivery.feed, page_delivery.watch_page
        places = [place for place in places if place.live]
        if not places:
            return
        cursor = watch_page.page.next_from_seq
        group = self._group(feed, cursor, page_delivery.watch_options)
        group.places.update(places)
        for place in places:
            place.group = group
        stuck = cursor == watch_page.read_from and not watch_page.caught_up
        if not (group.due or stuck or (watch_page.caught_up and cursor == self._end(feed))):
            group.due = True
            self.schedule(feed)


def _behind_gap(cursor: int, page: DiffPage) -> int:
    """Where a reader stands that was told of the page's gap, if there is one."""
    gap = page.tombstone
    if gap is None:
        return cursor
    return page.earliest_seq - 1 if gap.reason == "recreated" else max(gap.gap_to, page.earliest_seq - 1)
