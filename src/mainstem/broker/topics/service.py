"""Topics: creates, changes and deletes them, after checks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import msgspec

from mainstem import limits
from mainstem.api.access import AUDIT_TOPIC
from mainstem.broker.namespaces import NamespaceService, qualify, split
from mainstem.broker.topics.floors import expire
from mainstem.broker.topics.names import valid_name
from mainstem.errors import (
    CapacityReached,
    InvalidConfig,
    InvalidName,
    NamespaceNotFound,
    TopicExists,
    TopicNotFound,
)
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.topics import AddPartitions, AlterTopic, CreateTopic, DeleteTopic, Topic, bad_name
from mainstem.log.log import Log
from mainstem.ports.clock import Clock, Random

__all__ = ["Topic", "TopicConfig", "TopicService"]


class TopicService:
    def __init__(
        self,
        log: Log,
        clock: Clock,
        random: Random,
        namespaces: NamespaceService,
        *,
        topics_max: int,
        partitions_max: int,
    ) -> None:
        self._log = log
        self._clock = clock
        self._random = random
        self._namespaces = namespaces
        self._topics_max = topics_max  # 0: the ledger's own limit
        self._partitions_max = partitions_max  # 0: unlimited
        self._partitions_coming = 0  # of topics that are being created or extended
        self._changing = asyncio.Lock()  # held between reading a config and replacing it
        self._creating: dict[str, asyncio.Future[Any]] = {}  # topics whose creation is not durable yet

    # Lookups

    def get(self, name: str) -> Topic:
        """Raises TopicNotFound."""
        topic = self._log.ledger.topics.get(name)
        if topic is None:
            raise TopicNotFound(name)
        return topic

    def all(self, prefix: str) -> list[Topic]:
        """By name bytes."""
        found = [topic for topic in self._log.ledger.topics if topic.name.startswith(prefix)]
        return sorted(found, key=lambda topic: topic.name.encode())

    # Create and delete

    async def create(
        self, name: str, *, partitions: int, config: TopicConfig | None, exist_ok: bool, dry_run: bool
    ) -> Topic:
        namespace, plain = split(name)
        _check_name(plain)
        existing = self._log.ledger.topics.get(name)
        if existing is not None and exist_ok:
            if name in self._creating:  # applied, but not durable yet
                await asyncio.shield(self._creating[name])
            return existing
        if existing is None:
            self._check_room(name)
        config = config or self._namespaces.default_config(name)
        self._check_class(config)
        command = CreateTopic(plain, self._random.token(16), partitions, config, namespace)
        if dry_run:
            self._check_command(command)
            return Topic(command.topic_id, namespace, name, (-1,) * partitions, config, created_ms=0)
        try:
            with self._room_for(0 if name == AUDIT_TOPIC else partitions):
                return await self._create(command)
        except TopicExists:
            if exist_ok:
                return self.get(name)
            raise

    async def _create(self, command: CreateTopic) -> Topic:
        name = qualify(command.namespace, command.name)
        creation = asyncio.ensure_future(self._log.propose(command))
        if self._creating.setdefault(name, creation) is creation:
            creation.add_done_callback(lambda _: self._creating.pop(name))
        return cast(Topic, await asyncio.shield(creation))

    async def make(self, name: str, config: TopicConfig) -> Topic:
        if not valid_name(split(name)[1]):
            raise InvalidName(
                f"invalid topic name {name[:64]!r}: use 1 to {limits.NAME_CHARS_MAX} letters, digits "
                "and . _ : -, starting with a letter or digit"
            )
        partitions = self._namespaces.default_partitions(name)
        try:
            return await self.create(
                name, partitions=partitions, config=config, exist_ok=False, dry_run=False
            )
        except NamespaceNotFound as unknown:
            raise InvalidName(f"invalid topic name {name[:64]!r}: there is {unknown}") from None

    def _check_room(self, name: str) -> None:
        bound = self._topics_max
        topics = self._log.ledger.topics
        counted = len(topics) - (AUDIT_TOPIC in topics)  # the audit log is the server's own
        if bound and name != AUDIT_TOPIC and counted >= bound:
            raise CapacityReached(
                "max_topics", bound, f"there are {bound} topics, the maximum of this server"
            )

    async def find_or_create(self, name: str) -> Topic:
        """The source or destination of a router, created if it does not exist."""
        with contextlib.suppress(TopicNotFound):
            return self.get(name)
        config = msgspec.structs.replace(self._namespaces.default_config(name), durability="disk")
        try:
            return await self.make(name, config)
        except TopicExists:  # another request was first
            return self.get(name)

    async def delete(self, name: str, *, if_empty: bool = False) -> Topic:
        """Raises TopicNotFound; with `if_empty`, TopicNotEmpty."""
        topic = self.get(name)
        if if_empty and topic.config.ttl_ms:
            for stream in topic.streams:
                await expire(self._log, topic, stream, self._clock.now_ms())
        await self._log.propose(DeleteTopic(topic.topic_id, if_empty))
        for stream in topic.streams:
            self._log.ephemeral.forget(stream)
        return topic

    # Changes

    async def alter(self, name: str, config: TopicConfig) -> Topic:
        self._check_class(config)
        topic = self.get(name)
        if topic.config.ttl_ms:
            # Readers already saw these as expired: a later config must not bring them back.
            for stream in topic.streams:
                await expire(self._log, topic, stream, self._clock.now_ms())
        return cast(Topic, await self._log.propose(AlterTopic(topic.topic_id, config)))

    async def change(
        self, name: str, change: Callable[[TopicConfig], TopicConfig], *, dry_run: bool = False
    ) -> Topic:
        async with self._changing:
            topic = self.get(name)
            config = change(topic.config)
            if dry_run:
                self._check_command(AlterTopic(topic.topic_id, config))
                return replace(topic, config=config)
            return await self.alter(name, config)

    async def add_partitions(self, name: str, total: int, *, dry_run: bool) -> Topic:
        topic = self.get(name)
        command = AddPartitions(topic.topic_id, total)
        if dry_run:
            self._check_command(command)
            return replace(topic, streams=topic.streams + (-1,) * (total - topic.partitions))
        with self._room_for(max(0, total - topic.partitions)):
            return cast(Topic, await self._log.propose(command))

    @contextlib.contextmanager
    def _room_for(self, partitions: int) -> Iterator[None]:
        """Raises CapacityReached if that many more partitions exceed the limit."""
        bound = self._partitions_max
        coming = self._partitions_coming + partitions
        if partitions and bound and self._log.ledger.topics.partitions + coming > bound:
            raise CapacityReached(
                "max_partitions",
                bound,
                f"{partitions} more partitions are too many: all topics together have up to {bound}",
            )
        self._partitions_coming += partitions
        try:
            yield
        finally:
            self._partitions_coming -= partitions

    def _check_class(self, config: TopicConfig) -> None:
        if config.durability == "ephemeral" and self._log.shared:
            raise InvalidConfig(
                "a cluster does not support ephemeral topics, because they are in one broker's memory"
            )

    def _check_command(self, command: CreateTopic | AlterTopic | AddPartitions) -> None:
        refusal = self._log.ledger.topics.refusal(command)
        if refusal is not None:
            raise refusal


def _check_name(name: str) -> None:
    refusal = bad_name(name)
    if refusal is not None:
        raise refusal
