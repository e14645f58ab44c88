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
from mainstem.broker.activity import Activity
from mainstem.broker.diff import Diffs, Page, Wanted
from mainstem.broker.eager import run_eagerly
from mainstem.broker.routers import Routers
from mainstem.broker.streams import Streams, stream_of
from mainstem.errors import Closed, NotFound
from mainstem.ledger.topics import Topic

_log = events.named("watch")

_PAGE_EFFORT = 16  # whoever gets a page first has it encoded, which costs as much as so many deliveries


class Wish(NamedTuple):
    """What a watcher wants of a stream beside its place in it."""

    limit: int = limits.WATCH_RECORDS_DEFAULT  # records of one page
    max_bytes: int = limits.WATCH_BYTES_DEFAULT
    nodes: tuple[bytes, ...] = ()  # records of these are left out
    chorus: Chorus | None = None  # those it is told together with; None: it is told alone


class News:
    """One page of a topic, the same object for everyone it is handed to."""

    __slots__ = ("caught_up", "from_seq", "page", "partition", "plain", "read_from", "rendered", "topic")

    def __init__(self, topic: str, partition: int | None, read_from: int, page: Page) -> None:
        self.topic = topic
        self.partition = partition  # None where the topic has only one
        self.read_from = read_from
        self.from_seq = _behind_gap(read_from, page)
        self.page = page
        self.caught_up = page.caught_up
        self.plain = page.count > 0 and page.tombstone is None  # records, and no gap before them
        self.rendered: dict[Any, Any] = {}  # what doors made of it, by form: it is encoded once


class Outlet(Protocol):
    """The way out to a watcher."""

    @property
    def ready(self) -> bool:
        """False while what it was given has not gone out. It gets no more until `Watching.resume`."""
        ...


class Watcher(Protocol):
    """Whoever watches. Its methods are called from the loop, and must not wait."""

    @property
    def outlet(self) -> Outlet:
        """The same one for as long as it watches."""
        ...

    def take(self, place: Place, news: News) -> None: ...

    def lose(self, place: Place) -> None:
        """The topic was deleted; the place is gone."""
        ...

    def fail(self, place: Place, error: Exception) -> None:
        """The topic cannot be read; the place is gone."""
        ...


class Chorus(Protocol):
    """Watchers that are told the same in the same words."""

    def tell(self, places: list[Place], news: News) -> tuple[list[Place], list[Place]]:
        """Give the page to those who need nothing besides, at once. Returns them, and the others."""
        ...


class Place:
    """Where one watcher stands in one topic. `Watching` moves it."""

    __slots__ = ("cursor", "feed", "first", "group", "live", "outlet", "tailing", "topic", "watcher", "wish")

    def __init__(self, watcher: Watcher, topic: str, feed: _Feed, cursor: int, wish: Wish) -> None:
        self.watcher = watcher
        self.outlet = watcher.outlet
        self.topic = topic
        self.feed = feed
        self.cursor = cursor  # sequence number of the last record it is past
        self.wish = wish
        self.first = True  # nothing has been read for it yet
        self.tailing = False  # it was told that it caught up, and did not fall behind since
        self.live = True
        self.group: _Group | None = None  # None: its watcher is not ready


class _Group:
    """Places of one feed with the same cursor and wish."""

    __slots__ = ("cursor", "due", "feed", "places", "reading", "wish")

    def __init__(self, feed: _Feed, cursor: int, wish: Wish) -> None:
        self.feed = feed
        self.cursor = cursor
        self.wish = wish
        self.places: set[Place] = set()
        self.due = False  # there may be something to read
        self.reading = False


class _Feed:
    """One stream that is watched."""

    __slots__ = (
        "groups",
        "handing",
        "moved",
        "name",
        "partition",
        "places",
        "scheduled",
        "stream",
        "topic_id",
        "watching",
    )

    def __init__(self, watching: Watching, topic: Topic, partition: int, stream: int) -> None:
        self.watching = watching
        self.topic_id = topic.topic_id
        self.name = topic.name
        self.partition = partition
        self.stream = stream
        self.groups: dict[tuple[int, Wish], _Group] = {}
        self.places: set[Place] = set()  # all of them, also those whose watchers are not ready
        self.moved = False
        self.scheduled = False
        self.handing = 0  # pages being handed out

    def changed(self) -> None:
        """Something became visible, or the stream is gone. Runs in the middle of a commit."""
        self.moved = True
        self.watching.schedule(self)


class _Handing:
    """A page on its way to the members of a group, some of them each turn of the loop."""

    __slots__ = ("feed", "news", "places", "wish")

    def __init__(self, feed: _Feed, news: News, wish: Wish, places: list[Place]) -> None:
        self.feed = feed
        self.news = news
        self.wish = wish
        self.places = places


class Watching:
    def __init__(self, streams: Streams, diffs: Diffs, routers: Routers, activity: Activity) -> None:
        self._streams = streams
        self.diffs = diffs
        self._routers = routers
        self._activity = activity
        self._feeds: dict[int, _Feed] = {}  # by stream
        self._scheduled: deque[_Feed] = deque()
        self._due: deque[_Group] = deque()  # waiting for their turn to read
        self._reads: set[asyncio.Task[None]] = set()  # those that need a file
        self._handings: deque[_Handing] = deque()
        self._turn_wanted = False

    @property
    def places(self) -> int:
        return sum(len(feed.places) for feed in self._feeds.values())

    # Coming and going

    def enter(self, watcher: Watcher, topic: Topic, from_seq: int, wish: Wish, partition: int = 0) -> Place:
        """Watch a topic from behind `from_seq` on. Raises PartitionNotFound."""
        stream = stream_of(topic, partition)
        feed = self._feeds.get(stream)
        if feed is None:
            feed = self._feeds[stream] = _Feed(self, topic, partition, stream)
            self._streams.watch((stream,), feed)
        place = Place(watcher, topic.name, feed, from_seq, wish)
        feed.places.add(place)
        self._join(place)
        return place

    def leave(self, place: Place) -> None:
        """Watch no more. Doing it twice does nothing."""
        if not place.live:
            return
        place.live = False
        feed = place.feed
        feed.places.discard(place)
        self._part(place)
        if not feed.places:
            self._drop(feed)

    def resume(self, places: Iterable[Place]) -> None:
        """The watcher of these places is ready again."""
        for place in places:
            if place.live and place.group is None:
                self._join(place)

    async def close(self) -> None:
        """Read nothing more. Watchers are told by whoever owns them."""
        for feed in list(self._feeds.values()):
            self._drop(feed)
        self._due.clear()
        self._handings.clear()
        for task in self._reads:
            task.cancel()
        await asyncio.gather(*self._reads, return_exceptions=True)

    def _drop(self, feed: _Feed) -> None:
        self._streams.unwatch((feed.stream,), feed)
        self._feeds.pop(feed.stream, None)

    # Groups

    def _join(self, place: Place) -> None:
        """Read for it in the next turn, unless nothing is new."""
        feed = place.feed
        place.group = group = self._group(feed, place.cursor, place.wish)
        group.places.add(place)
        if not (group.due or (place.tailing and place.cursor == self._end(feed))):
            group.due = True
            self.schedule(feed)

    @staticmethod
    def _group(feed: _Feed, cursor: int, wish: Wish) -> _Group:
        group = feed.groups.get((cursor, wish))
        if group is None:
            group = feed.groups[cursor, wish] = _Group(feed, cursor, wish)
        return group

    def _part(self, place: Place) -> None:
        group = place.group
        if group is None:
            return
        place.group = None
        group.places.discard(place)
        if not group.places and not group.reading:
            place.feed.groups.pop((group.cursor, group.wish), None)

    def _end(self, feed: _Feed) -> int:
        """The visible end; a stream that is gone has none, which no cursor equals."""
        try:
            return self._streams.bounds(feed.stream)[1]
        except NotFound:
            return -1

    # Turns: at most one of the loop's iterations runs between a change and its reads

    def schedule(self, feed: _Feed) -> None:
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
                    self._look_at(feed)
            self._read_due()
        finally:  # whatever went wrong for one, the others are waiting
            if self._handings or self._scheduled:
                self._want_turn()

    def _look_at(self, feed: _Feed) -> None:
        if self._end(feed) < 0:
            self._forsake(feed)
            return
        if feed.handing:
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

    def _forsake(self, feed: _Feed) -> None:
        """The topic was deleted: tell everyone who watched it."""
        self._drop(feed)
        for place in list(feed.places):
            place.live = False
            place.watcher.lose(place)
        feed.places.clear()
        feed.groups.clear()

    # Reading

    def _read_due(self) -> None:
        while self._due and len(self._reads) + len(self._handings) < limits.WATCH_PAGES_MAX:
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

    async def _read(self, group: _Group) -> None:
        feed = group.feed
        topic = self._streams.get_by_id(feed.topic_id)
        if topic is None:
            self._retire(group)
            self.schedule(feed)
            return
        try:
            if any(place.first for place in group.places):
                await self._routers.drain(topic.name)
            wanted = Wanted(group.cursor, group.wish.limit, group.wish.max_bytes, group.wish.nodes)
            page = await self.diffs.read(topic, wanted, feed.partition)
        except NotFound:
            self._retire(group)
            self.schedule(feed)  # which finds that it is gone
        except Exception as error:  # noqa: BLE001 - handed on to every member
            self._fail(group, error)
        else:
            self._activity.read(topic.topic_id)
            partition = feed.partition if len(topic.streams) > 1 else None
            news = News(feed.name, partition, group.cursor, page)
            self._handings.append(_Handing(feed, news, group.wish, self._retire(group)))
            feed.handing += 1
            self._want_turn()

    def _retire(self, group: _Group) -> list[Place]:
        """Dissolve a group. Its members count as being in it until they get their page and join another."""
        group.feed.groups.pop((group.cursor, group.wish), None)
        places = list(group.places)
        group.places.clear()
        return places

    def _fail(self, group: _Group, error: Exception) -> None:
        if not isinstance(error, Closed):
            _log.error("a watched topic cannot be read", topic=group.feed.name, error=repr(error))
        for place in self._retire(group):
            self.leave(place)
            place.watcher.fail(place, error)

    # Handing out

    def _hand_out(self) -> None:
        """Give a bounded number of watchers their page: others on this loop want their turn as well."""
        room = limits.WATCH_HANDED_PER_TURN
        while self._handings and room > 0:
            handing = self._handings[0]
            given = handing.places[-room:]
            del handing.places[-room:]
            room -= max(len(given), _PAGE_EFFORT)
            self._go_on(handing, self._hand(given, handing.news, handing.wish.chorus))
            if handing.places:
                return
            self._handings.popleft()
            handing.feed.handing -= 1
            if not handing.feed.handing:
                self.schedule(handing.feed)

    def _hand(self, places: list[Place], news: News, chorus: Chorus | None) -> list[Place]:
        """Give watchers their page. Returns those that are ready for the next."""
        told: list[Place] = []
        if chorus is not None:
            try:
                told, places = chorus.tell(places, news)
            except Exception as error:  # noqa: BLE001 - other groups must not wait for ever
                for place in places:
                    self._give_up(place, error)
                return []
        for place in places:
            if not (place.live and place.outlet.ready):
                place.group = None  # it reads again from where it stands, once it is ready
                continue
            try:
                place.watcher.take(place, news)
            except Exception as error:  # noqa: BLE001 - one watcher's trouble must not be that of the others
                self._give_up(place, error)
            else:
                told.append(place)
        cursor, caught_up, ready = news.page.next_from_seq, news.caught_up, []
        for place in told:
            place.cursor = cursor
            place.first = False
            place.tailing = caught_up
            if place.outlet.ready:
                ready.append(place)
            else:
                place.group = None
        return ready

    def _give_up(self, place: Place, error: Exception) -> None:
        _log.error("a watcher failed", topic=place.topic, error=repr(error))
        self.leave(place)
        place.watcher.fail(place, error)

    def _go_on(self, handing: _Handing, places: list[Place]) -> None:
        """Have those who got the page wait together for the next."""
        feed, news = handing.feed, handing.news
        places = [place for place in places if place.live]
        if not places:
            return
        cursor = news.page.next_from_seq
        group = self._group(feed, cursor, handing.wish)
        group.places.update(places)
        for place in places:
            place.group = group
        stuck = cursor == news.read_from and not news.caught_up
        if not (group.due or stuck or (news.caught_up and cursor == self._end(feed))):
            group.due = True
            self.schedule(feed)


def _behind_gap(cursor: int, page: Page) -> int:
    """Where a reader stands that was told of the page's gap, if there is one."""
    gap = page.tombstone
    if gap is None:
        return cursor
    return page.earliest_seq - 1 if gap.reason == "recreated" else max(gap.gap_to, page.earliest_seq - 1)
