"""Topics over HTTP: create, look at, list, alter, delete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict, Unpack

import msgspec

from mainstem import limits
from mainstem.client.calls import Calls
from mainstem.client.responses import TopicDescription, TopicListing, TopicSettings, TopicSize
from mainstem.client.transport import topic_path
from mainstem.errors import TopicExists, TopicIncompatible


class TopicOptions(TypedDict, total=False):
    """A topic's config by name; what is left out is the default."""

    type: Literal["log", "queue"]
    ttl_ms: int
    cap_records: int
    cap_bytes: int
    discard: Literal["old", "reject"]
    durable: bool
    durability: Literal["ephemeral", "memory", "disk", "fsync"]
    priority: int | None
    auto_priority: bool
    auto_create: bool
    idempotency_window_ms: int
    dedupe_node: bool
    lease_ms: int
    claim_jitter_ms: int
    max_deliveries: int
    dead_letter: str | None
    leases_durable: bool


class _SizePage(msgspec.Struct):
    topics: list[TopicSize]
    total: int


class _TopicPage(msgspec.Struct):
    topics: list[TopicListing]
    next_cursor: str | None = None


class _TopicDeleted(msgspec.Struct):
    deleted: bool


class TopicCalls(Calls):
    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        settings: Mapping[str, str] | None = None,
        **config: Unpack[TopicOptions],
    ) -> TopicDescription:
        """Make a topic. Raises TopicExists.

        `settings` are those that Kafka's tools name, such as {"retention.ms": "86400000"}.

        Example:
            client.create_topic("orders", durability="fsync", ttl_ms=86_400_000)
            client.create_topic("emails", type="queue", max_deliveries=5, dead_letter="emails.dead")
        """
        body = {"create": True, "partitions": partitions, "config": config, "settings": dict(settings or {})}
        await self._transport.ask("PATCH", topic_path(name, "settings"), TopicSettings, body)
        return await self.topic(name, touch=False)

    async def ensure_topic(
        self, name: str, *, partitions: int = 1, **config: Unpack[TopicOptions]
    ) -> TopicDescription:
        """Make a topic unless it is there; one that is stays as it is, if it is of the same type.

        Example:
            client.ensure_topic("orders")
        """
        try:
            return await self.create_topic(name, partitions=partitions, **config)
        except TopicExists:
            found = await self.topic(name, touch=False)
        wanted = config.get("type", "log")
        if found.type != wanted:
            raise TopicIncompatible(
                f"topic {name!r} is a {found.type}, not a {wanted}",
                topic=name,
                existing_type=found.type,
                requested_type=wanted,
            )
        return found

    async def topic(self, name: str, *, partition: int = 0, touch: bool = True) -> TopicDescription:
        """A topic's state: how much is in it, its ends, its config. Raises TopicNotFound.

        Example:
            print(client.topic("orders").count)
        """
        query = {"partition": partition or None, "touch": touch}
        return await self._transport.ask("GET", topic_path(name), TopicDescription, query=query)

    async def topic_settings(self, name: str) -> TopicSettings:
        """A topic's partitions, and all its settings by the names that Kafka's tools use.

        Example:
            for partition in client.topic_settings("orders").partitions: ...
        """
        return await self._transport.ask("GET", topic_path(name, "settings"), TopicSettings)

    async def topics(self, prefix: str = "") -> list[TopicListing]:
        """Every topic whose name begins so, by name.

        Example:
            names = [row.topic for row in client.topics("app.")]
        """
        found: list[TopicListing] = []
        cursor: str | None = None
        while True:
            query = {"prefix": prefix or None, "page_size": limits.TOPIC_PAGE_MAX, "cursor": cursor}
            page = await self._transport.ask("GET", "/v0/topics", _TopicPage, query=query)
            found += page.topics
            cursor = page.next_cursor
            if cursor is None:
                return found

    async def topic_sizes(self, search: str = "") -> list[TopicSize]:
        """Every topic whose name contains `search`, by name, with what all its partitions hold together.

        Example:
            held = sum(row.bytes for row in client.topic_sizes())
        """
        found: dict[str, TopicSize] = {}
        skip = 0
        while True:
            query = {"search": search or None, "limit": limits.TOPIC_PAGE_MAX, "skip": skip}
            page = await self._transport.ask("GET", "/v0/overview/topics", _SizePage, query=query)
            found |= {row.topic: row for row in page.topics}  # one that moved meanwhile may come twice
            skip += len(page.topics)
            if skip >= page.total or not page.topics:
                return list(found.values())

    async def alter_topic(self, name: str, **changes: Unpack[TopicOptions]) -> TopicDescription:
        """Change a topic's config; what is not named stays as it is.

        Example:
            client.alter_topic("orders", cap_records=1_000_000)
        """
        config: dict[str, Any] = msgspec.to_builtins((await self.topic(name, touch=False)).config)
        if "durable" in changes and "durability" not in changes:
            del config["durability"]
        config.update(changes)
        await self._transport.ask("PUT", topic_path(name), msgspec.Raw, config)
        return await self.topic(name, touch=False)

    async def change_settings(
        self,
        name: str,
        settings: Mapping[str, str] | None = None,
        *,
        partitions: int | None = None,
        create: bool = False,
    ) -> TopicSettings:
        """Change settings by the names Kafka's tools use, or grow to so many partitions; or make a topic so.

        Example:
            client.change_settings("orders", {"retention.ms": "3600000"}, partitions=8)
        """
        body = {"settings": dict(settings or {}), "partitions": partitions, "create": create}
        return await self._transport.ask("PATCH", topic_path(name, "settings"), TopicSettings, body)

    async def delete_topic(self, name: str, *, if_empty: bool = False) -> bool:
        """Delete a topic and its records. False: there was none. Raises TopicNotEmpty for `if_empty`.

        Example:
            client.delete_topic("orders")
        """
        query = {"if_empty": if_empty}
        return (await self._transport.ask("DELETE", topic_path(name), _TopicDeleted, query=query)).deleted
