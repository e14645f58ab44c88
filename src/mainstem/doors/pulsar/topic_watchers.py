"""Watchers of topic lists: clients that consume by a pattern learn which topics are created and deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from zlib import crc32

from mainstem.broker.access.rules import Operation
from mainstem.broker.groups.subscription import matching
from mainstem.doors.pulsar.errors import PulsarRefusal, ServerError
from mainstem.doors.pulsar.topic_names import PERSISTENT, namespace_of, topic_urls
from mainstem.doors.pulsar.wire import simple_frame

if TYPE_CHECKING:
    from mainstem.doors.pulsar.connection import PulsarConnection

TOPIC_WATCH_EVERY_S = 0.5  # how often the list of topics is compared, while there are watchers
TOPIC_WATCHERS_PER_CONNECTION_MAX = 1_000


def hash_of_names(names: Iterable[str]) -> str:
    return f"{crc32(','.join(names).encode()):08x}"


class TopicWatcher:
    def __init__(self, connection: PulsarConnection, id: int, namespace: str, pattern: str) -> None:
        self.connection = connection
        self.id = id
        self._namespace = namespace
        self._pattern = pattern.rpartition("://")[2]
        self.names: list[str] = []

    def refresh(self) -> tuple[list[str], list[str]]:
        """Topics that came and went since the last call. Raises InvalidRegex."""
        caller = self.connection.caller
        urls = {
            url.partition("://")[2]: url
            for topic in self.connection.context.broker.namespaces.topics(self._namespace)
            if caller.may(Operation.DESCRIBE, topic.name)
            for url in topic_urls(topic)
            if url.startswith(PERSISTENT)
        }
        before, self.names = self.names, sorted(urls[name] for name in matching(self._pattern, urls))
        return [name for name in self.names if name not in before], [
            name for name in before if name not in self.names
        ]

    def tell(self) -> None:
        """Send what changed."""
        new, deleted = self.refresh()
        if new or deleted:
            self.connection.write(
                simple_frame(
                    "watch_topic_update",
                    watcher_id=self.id,
                    new_topics=new,
                    deleted_topics=deleted,
                    topics_hash=hash_of_names(self.names),
                )
            )


class TopicWatchers:
    """The watchers of all connections of a door."""

    def __init__(self) -> None:
        self._watchers: dict[tuple[PulsarConnection, int], TopicWatcher] = {}
        self._seen = -1
        self._timer: asyncio.TimerHandle | None = None

    def add(self, watcher: TopicWatcher) -> None:
        self._watchers[watcher.connection, watcher.id] = watcher
        if self._timer is None:
            self._schedule()

    def count(self, connection: PulsarConnection) -> int:
        return sum(one is connection for one, _ in self._watchers)

    def remove(self, connection: PulsarConnection, id: int | None = None) -> None:
        """One watcher of a connection, or all. Idempotent."""
        for key in [key for key in self._watchers if key[0] is connection and id in (None, key[1])]:
            del self._watchers[key]
        if not self._watchers and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(TOPIC_WATCH_EVERY_S, self._compare)

    def _compare(self) -> None:
        self._schedule()
        broker = next(iter(self._watchers.values())).connection.context.broker
        state = broker.namespaces.topic_changes
        if state == self._seen:
            return
        self._seen = state
        for watcher in list(self._watchers.values()):
            watcher.tell()


async def watch_topic_list(connection: PulsarConnection, request: Any) -> None:
    namespace = namespace_of(request.namespace, connection.caller.view)
    watchers = connection.context.watchers
    if watchers.count(connection) >= TOPIC_WATCHERS_PER_CONNECTION_MAX:
        raise PulsarRefusal(
            ServerError.NOT_ALLOWED,
            f"a connection has at most {TOPIC_WATCHERS_PER_CONNECTION_MAX} watchers of topic lists",
        )
    watcher = TopicWatcher(connection, request.watcher_id, namespace, request.topics_pattern)
    watcher.refresh()
    watchers.add(watcher)
    state = hash_of_names(watcher.names)
    connection.write(
        simple_frame(
            "watch_topic_list_success",
            request_id=request.request_id,
            watcher_id=request.watcher_id,
            topic=watcher.names if request.topics_hash != state else [],
            topics_hash=state,
        )
    )


async def watch_topic_list_close(connection: PulsarConnection, request: Any) -> None:
    connection.context.watchers.remove(connection, request.watcher_id)
    connection.write(simple_frame("success", request_id=request.request_id))
