"""Topics over HTTP: create, describe, list, alter, delete, and publish as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict, Unpack

from msgspec.structs import asdict

from mainstem import limits
from mainstem.api import routes
from mainstem.api.lake import TableBody, TableStatus
from mainstem.api.topics import (
    Discard,
    Durability,
    SettingsBody,
    TopicConfigBody,
    TopicDescription,
    TopicListing,
    TopicSettings,
    TopicSummary,
    TopicType,
)
from mainstem.client.transport import Calls
from mainstem.errors import TopicExists, TopicIncompatible


class TopicOptions(TypedDict, total=False):
    """The fields of TopicConfigBody, as keyword arguments."""

    type: TopicType
    ttl_ms: int
    cap_records: int
    cap_bytes: int
    discard: Discard
    durable: bool
    durability: Durability
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


class TopicCalls(Calls):
    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        settings: Mapping[str, str] | None = None,
        **config: Unpack[TopicOptions],
    ) -> TopicDescription:
        """Create a topic. Raises TopicExists.

        `settings` are Kafka's topic settings by name, such as {"retention.ms": "86400000"}.

        Example:
            client.create_topic("orders", durability="fsync", ttl_ms=86_400_000)
            client.create_topic("emails", type="queue", max_deliveries=5, dead_letter="emails.dead")
        """
        body = SettingsBody(True, partitions, TopicConfigBody(**config), dict(settings or {}))
        await self._transport.call(routes.PATCH_SETTINGS, name, body=body)
        return await self.topic(name, touch=False)

    async def ensure_topic(
        self, name: str, *, partitions: int = 1, **config: Unpack[TopicOptions]
    ) -> TopicDescription:
        """Create a topic unless it exists. An existing topic of the same type stays unchanged.

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

    async def topic(self, name: str, *, partition: int | None = None, touch: bool = True) -> TopicDescription:
        """A topic's state: record count, offsets and config; of all partitions, or of one. Raises TopicNotFound.

        Example:
            print(client.topic("orders").count)
        """
        query = {"partition": partition, "touch": touch}
        return await self._transport.call(routes.GET_TOPIC, name, query=query)

    async def topic_settings(self, name: str) -> TopicSettings:
        """A topic's partitions, and all its settings by their Kafka names.

        Example:
            for partition in client.topic_settings("orders").partitions: ...
        """
        return await self._transport.call(routes.GET_SETTINGS, name)

    async def topics(self, prefix: str = "") -> list[TopicListing]:
        """All topics whose name starts with `prefix`, by name.

        Example:
            names = [row.topic for row in client.topics("app.")]
        """
        found: list[TopicListing] = []
        cursor: str | None = None
        while True:
            query = {"prefix": prefix or None, "page_size": limits.TOPIC_PAGE_MAX, "cursor": cursor}
            page = await self._transport.call(routes.LIST_TOPICS, query=query)
            found += page.topics
            cursor = page.next_cursor
            if cursor is None:
                return found

    async def topic_sizes(self, search: str = "") -> list[TopicSummary]:
        """All topics whose name contains `search`, by name, with the totals of their partitions.

        Example:
            held = sum(row.bytes for row in client.topic_sizes())
        """
        found: dict[str, TopicSummary] = {}
        skip = 0
        while True:
            query = {"search": search or None, "limit": limits.TOPIC_PAGE_MAX, "skip": skip}
            page = await self._transport.call(routes.GET_TOPIC_SUMMARIES, query=query)
            found |= {
                row.topic: row for row in page.topics
            }  # a topic may be on two pages if the list changed in between
            skip += len(page.topics)
            if skip >= page.total or not page.topics:
                return list(found.values())

    async def alter_topic(self, name: str, **changes: Unpack[TopicOptions]) -> TopicDescription:
        """Change a topic's config; other fields stay unchanged.

        Example:
            client.alter_topic("orders", cap_records=1_000_000)
        """
        config: dict[str, Any] = asdict((await self.topic(name, touch=False)).config)
        if "durable" in changes and "durability" not in changes:
            del config["durability"]
        config.update(changes)
        await self._transport.call(routes.PUT_TOPIC, name, body=TopicConfigBody(**config))
        return await self.topic(name, touch=False)

    async def change_settings(
        self,
        name: str,
        settings: Mapping[str, str] | None = None,
        *,
        partitions: int | None = None,
        create: bool = False,
    ) -> TopicSettings:
        """Change settings by their Kafka names, or add partitions; or create a topic with them.

        Example:
            client.change_settings("orders", {"retention.ms": "3600000"}, partitions=8)
        """
        body = SettingsBody(create, partitions, settings=dict(settings or {}))
        return await self._transport.call(routes.PATCH_SETTINGS, name, body=body)

    async def delete_topic(self, name: str, *, if_empty: bool = False) -> bool:
        """Delete a topic and its records. False: the topic did not exist. Raises TopicNotEmpty for `if_empty`.

        Example:
            client.delete_topic("orders")
        """
        query = {"if_empty": if_empty}
        return (await self._transport.call(routes.DELETE_TOPIC, name, query=query)).deleted

    # As tables

    async def table(self, topic: str) -> TableStatus:
        """The state of a topic's table: lag, files, snapshots.

        Example:
            print(client.table("orders").lag_records)
        """
        return await self._transport.call(routes.GET_TABLE, topic)

    async def put_table(
        self,
        topic: str,
        *,
        enabled: bool = True,
        schema: dict[str, Any] | None = None,
        delta: str | None = None,
        iceberg: str | None = None,
    ) -> TableStatus:
        """Enable or disable a topic's table. Enabling it publishes the topic's existing records. `delta` is the path or
        URL of a Delta table that also gets the records; `iceberg`, CATALOG.NAMESPACE.TABLE, names one of Iceberg.

        Example:
            client.put_table("orders")
        """
        return await self._transport.call(
            routes.PUT_TABLE, topic, body=TableBody(enabled, schema, delta, iceberg)
        )
