"""Which topic a name means, and which broker serves it."""

from __future__ import annotations

import msgspec

from mainstem.address import Address
from mainstem.broker.broker import Broker
from mainstem.broker.namespaces import split
from mainstem.broker.topics.service import Topic
from mainstem.doors.pulsar.caller import PulsarCaller
from mainstem.doors.pulsar.topic_names import NON_PERSISTENT, PulsarTopicName, parse_topic
from mainstem.doors.pulsar.wire import FRAME_BYTES_MAX
from mainstem.errors import InvalidName, NamespaceNotFound, TopicNotFound


class Lookup:
    def __init__(
        self,
        broker: Broker,
        here: Address,
        *,
        tls: bool,
        auto_create: bool,
        deduplication: bool = False,
        listener: str = "pulsar",
    ) -> None:
        self._broker = broker
        self._here = here
        self._tls = tls
        self._auto_create = auto_create
        self._deduplication = deduplication
        self._listener = listener

    def find(self, text: str, caller: PulsarCaller) -> tuple[PulsarTopicName, Topic | None]:
        """The topic of a name. A topic whose own name ends like that of a partition comes first.

        Raises InvalidName."""
        name = parse_topic(text, caller.view)
        whole = name.whole()
        if whole is not name:
            topic = self._broker.streams.get(whole.name)
            if topic is not None:
                return whole, topic
        topic = self._broker.streams.get(name.name)
        if topic is not None and name.partition >= len(topic.streams):
            topic = None
        return name, topic

    async def open(
        self, text: str, caller: PulsarCaller, *, create: bool = True
    ) -> tuple[PulsarTopicName, Topic]:
        """The topic of a producer or consumer, which may be created. Raises InvalidName, TopicNotFound, Forbidden."""
        name, topic = self.find(text, caller)
        if topic is None and self._broker.cluster.shared:
            await self._broker.barrier()
            name, topic = self.find(text, caller)
        if topic is None:
            if not (create and self._auto_create) or name.partition >= 0:
                raise TopicNotFound(text)
            topic = await self.create(name, caller)
        ephemeral = topic.config.durability == "ephemeral"
        if ephemeral != (name.domain == NON_PERSISTENT):
            domain = NON_PERSISTENT if ephemeral else "persistent"
            raise InvalidName(f"topic {topic.name!r} is {domain}: use {domain}://")
        if name.partition < 0 and len(topic.streams) > 1:
            raise InvalidName(f"topic {topic.name!r} has partitions: use {text}-partition-N")
        return name, topic

    async def create(
        self,
        name: PulsarTopicName,
        caller: PulsarCaller,
        partitions: int | None = None,
        *,
        exist_ok: bool = True,
        properties: dict[str, str] | None = None,
    ) -> Topic:
        """Raises Forbidden, NamespaceNotFound, InvalidName, TopicExists unless `exist_ok`."""
        caller.check_create(name.name)
        namespaces = self._broker.namespaces
        namespace = split(name.name)[0]
        if not namespaces.exists(namespace):
            raise NamespaceNotFound(namespace)
        config = namespaces.default_config(name.name)
        changes: dict[str, object] = {}
        if config.max_message_bytes < FRAME_BYTES_MAX:
            changes["max_message_bytes"] = FRAME_BYTES_MAX  # clients expect that 5 MiB pass
        if name.domain == NON_PERSISTENT:
            changes["durability"] = "ephemeral"
        else:
            if self._deduplication and namespaces.policies(name.name).deduplication is None:
                changes["deduplication"] = True
            if namespaces.policies(name.name).keep_backlog is None:
                changes["keep_backlog"] = True  # retention of Pulsar never deletes what is not acknowledged
        if properties:
            changes["properties"] = tuple(sorted(properties.items()))
        config = msgspec.structs.replace(config, **changes) if changes else config
        wanted = partitions or namespaces.default_partitions(name.name)
        topic = await self._broker.create_topic(
            name.name, partitions=wanted, config=config, exist_ok=exist_ok
        )
        caller.audit("CREATE", name.name, "done")
        return topic

    async def partitions(self, text: str, caller: PulsarCaller, *, create: bool) -> int:
        """How many partitions a client has to address by name; 0: the topic is one without such names."""
        name, topic = self.find(text, caller)
        if topic is None:
            fresh = self._broker.namespaces.default_partitions(name.name)
            if name.partition >= 0 or not create or not self._auto_create or fresh <= 1:
                return 0
            topic = await self.create(name, caller)
        if name.partition >= 0 or len(topic.streams) == 1:
            return 0
        return len(topic.streams)

    # Brokers

    def serves(self, topic: str) -> bool:
        """Whether this broker serves the producers and subscriptions of a topic."""
        return self._broker.cluster.coordinates("pulsar", topic)

    def broker_url(self, topic: str) -> str:
        """Where clients of a topic connect to."""
        address = str(self._here)
        cluster = self._broker.cluster
        if cluster.shared:
            owner = cluster.coordinator("pulsar", topic)
            found = next(
                (member.address(self._listener) for member in cluster.members() if member.broker == owner),
                None,
            )
            address = found or address
        return f"{'pulsar+ssl' if self._tls else 'pulsar'}://{address}"

    def http_address(self, topic: str) -> str | None:
        """Where the admin API of that broker is; None: not known, or this broker is the only one."""
        cluster = self._broker.cluster
        if not cluster.shared:
            return None
        owner = cluster.coordinator("pulsar", topic)
        members = cluster.members()
        return next((member.address("http") for member in members if member.broker == owner), None)

    def brokers(self) -> list[str]:
        """The addresses of all brokers whose Pulsar door is open."""
        cluster = self._broker.cluster
        if not cluster.shared:
            return [str(self._here)]
        found = (member.address(self._listener) for member in cluster.members())
        return [str(address) for address in found if address]
