"""PulsarProducers: who may publish to a partition, under which name, and the outcome of each message."""

from __future__ import annotations

import itertools
from collections import deque
from typing import Any, NamedTuple, Protocol

from google.protobuf.message import DecodeError

from mainstem import limits
from mainstem.broker.access.rules import Operation
from mainstem.broker.append import Appends
from mainstem.broker.exclusive_producers import ExclusiveProducers
from mainstem.broker.streams import stream_of
from mainstem.broker.topics.service import Topic
from mainstem.broker.transactions.service import TransactionWrites
from mainstem.doors.pulsar.caller import PulsarCaller
from mainstem.doors.pulsar.client_details import ClientDetails
from mainstem.doors.pulsar.errors import PulsarRefusal, ServerError
from mainstem.doors.pulsar.messages import MessageMetadata
from mainstem.doors.pulsar.records import SEND_BATCH_BYTES_MAX, BatchStamp, BuiltBatch, SendRun, batch_of
from mainstem.doors.pulsar.throughput import Throughput
from mainstem.doors.pulsar.topic_names import ledger_of
from mainstem.doors.pulsar.wire import split_payload
from mainstem.errors import Forbidden, InvalidBatch, MainstemError, ProducerFenced, TopicNotFound

INLINE_BYTES_MAX = 256 * limits.KIB  # a larger payload is decompressed on the decoding thread

SHARED, EXCLUSIVE, WAIT_FOR_EXCLUSIVE, EXCLUSIVE_WITH_FENCING = range(4)
ACCESS_MODES = ("Shared", "Exclusive", "WaitForExclusive", "ExclusiveWithFencing")


class PublishedEntry(NamedTuple):
    """What a SEND carries."""

    metadata: Any
    payload: memoryview
    last_chunk: bool
    size: int

    @classmethod
    def parse(cls, rest: memoryview) -> PublishedEntry:
        """Raises InvalidBatch."""
        encoded, payload = split_payload(rest)
        try:
            metadata = MessageMetadata.FromString(encoded)
        except DecodeError:
            raise InvalidBatch("the metadata of the message is damaged") from None
        return cls(metadata, payload, metadata.chunk_id + 1 >= metadata.num_chunks_from_msg, len(rest))

    @property
    def expands(self) -> bool:
        """Whether decompressing it, and compressing its records, takes long."""
        return bool(self.metadata.compression) and self.metadata.uncompressed_size > INLINE_BYTES_MAX


class ProducerClient(Protocol):
    """The connection of a producer."""

    caller: PulsarCaller

    def close_producer(self, producer: PulsarProducer) -> None:
        """Another producer took over, or the topic was deleted."""
        ...

    def producer_ready(self, producer: PulsarProducer) -> None:
        """A producer that waited for exclusive access has it."""
        ...

    def sent(self, receipt: SendWaiter, base: int, *, duplicate: bool) -> None: ...

    def not_sent(self, receipt: SendWaiter, error: BaseException) -> None: ...

    def run_sent(self, waiter: SendRunWaiter, base: int) -> None: ...

    def run_not_sent(self, waiter: SendRunWaiter, error: BaseException) -> None: ...


class SendWaiter:
    """Receives the outcome of one SEND."""

    __slots__ = ("_client", "highest_sequence", "producer", "sequence", "size", "transaction")

    def __init__(
        self,
        client: ProducerClient,
        producer: PulsarProducer,
        sequence: int,
        highest: int,
        size: int,
        transaction: int | None,
    ) -> None:
        self._client = client
        self.producer = producer
        self.sequence = sequence
        self.highest_sequence = highest
        self.size = size  # of the frame
        self.transaction = transaction  # its producer id

    def done(self) -> bool:
        return False

    def set_result(self, placed: tuple[int, bool], /) -> None:
        self._client.sent(self, placed[0], duplicate=placed[1])

    def set_exception(self, error: BaseException, /) -> None:
        self._client.not_sent(self, error)


class SendRunWaiter:
    """Receives the outcome of several SENDs that are one batch."""

    __slots__ = ("_client", "producer", "run")

    def __init__(self, client: ProducerClient, producer: PulsarProducer, run: SendRun) -> None:
        self._client = client
        self.producer = producer
        self.run = run

    def done(self) -> bool:
        return False

    def set_result(self, placed: tuple[int, bool], /) -> None:
        self._client.run_sent(self, placed[0])

    def set_exception(self, error: BaseException, /) -> None:
        self._client.run_not_sent(self, error)


class PulsarProducer:
    def __init__(
        self,
        client: ProducerClient,
        id: int,
        name: str,
        topic: Topic,
        partition: int,
        epoch: int,
        *,
        details: ClientDetails,
        mode: int,
    ) -> None:
        self.details = details
        self.mode = mode
        self.client = client
        self.id = id
        self.name = name
        self.topic = topic
        self.partition = partition  # -1: the topic has one without a number
        self.stream = stream_of(topic, max(partition, 0))
        self.ledger = ledger_of(topic)
        self.epoch = epoch
        self.topic_epoch: int | None = None  # of an exclusive producer
        self.resumes = False  # it had that epoch before
        self.request_id = 0  # of the command that created it
        self.schema_version: bytes | None = None
        self.ready = True
        self.closed = False
        self.throughput = Throughput()
        self._access_state = -1

    def last_sequence(self, appends: Appends) -> int:
        """The last sequence id that a producer of this name published, if the topic deduplicates; otherwise -1."""
        return appends.last_sequence(self.stream, self.name) if self.topic.config.deduplication else -1

    def send(
        self,
        appends: Appends,
        topic: Topic | None,
        command: Any,
        entry: PublishedEntry,
        transaction: TransactionWrites | None,
        built: BuiltBatch | None = None,
    ) -> None:
        """Append a message or a batch. `built`: its record batch, if there is one. Raises what is wrong with it."""
        topic = self._check(topic)
        stamp = None if transaction is None else BatchStamp(*transaction.next_batch(self.stream))
        built = built or batch_of(entry.metadata, entry.payload, stamp)
        number, highest = command.sequence_id, command.highest_sequence_id
        waiter = SendWaiter(
            self.client, self, number, highest, entry.size, None if stamp is None else stamp.producer
        )
        # All chunks of a message have its sequence id: the last one counts.
        numbered = topic.config.deduplication and entry.last_chunk
        appends.batches(
            topic,
            max(self.partition, 0),
            built.batch,
            waiter,
            None if transaction is None else transaction.id,
            sequence=(self.name, number, max(number, highest)) if numbered else None,
            epoch=self.topic_epoch or 0,
            built_here=True,
        )
        if transaction is not None:
            transaction.wrote(self.stream, built.count)
        self.throughput.messages += built.count
        self.throughput.bytes += entry.size

    @staticmethod
    def joins_sends(topic: Topic | None) -> bool:
        """Whether messages that arrive together can be one batch: none can be refused without the others."""
        return topic is not None and not (
            topic.config.deduplication
            or topic.config.validates
            or topic.config.limits_times
            or topic.config.tracked
            or topic.config.max_message_bytes < SEND_BATCH_BYTES_MAX
        )

    def send_run(self, appends: Appends, topic: Topic | None, run: SendRun) -> None:
        """Append the messages of several SENDs as one batch. Raises what is wrong with it."""
        appends.batches(
            self._check(topic),
            max(self.partition, 0),
            run.batch,
            SendRunWaiter(self.client, self, run),
            epoch=self.topic_epoch or 0,
            built_here=True,
        )
        self.throughput.messages += run.messages
        self.throughput.bytes += run.size

    def _check(self, topic: Topic | None) -> Topic:
        """The topic as it is now. Raises PulsarRefusal, TopicNotFound, Forbidden if the producer may not append."""
        if self.closed or not self.ready:
            raise PulsarRefusal(
                ServerError.PRODUCER_FENCED, "the producer has no access to the topic any more"
            )
        if topic is None or topic.topic_id != self.topic.topic_id:
            raise TopicNotFound(self.topic.name)
        self.topic = topic  # with its current settings
        caller = self.client.caller
        if self._access_state != caller.access_state:
            if not caller.may(Operation.WRITE, topic.name):
                raise Forbidden(f"{caller.principal.name} may not WRITE topic {topic.name!r}")
            self._access_state = caller.access_state
        return topic


class _TopicProducers:
    """The producers of one stream."""

    def __init__(self) -> None:
        self.by_name: dict[str, PulsarProducer] = {}
        self.exclusive: PulsarProducer | None = None
        self.waiting: deque[PulsarProducer] = deque()
        self.epoch = 0


class PulsarProducers:
    """The producers of all topics of this broker."""

    def __init__(self, broker_id: int, exclusive: ExclusiveProducers) -> None:
        self._exclusive = exclusive
        self._topics: dict[int, _TopicProducers] = {}
        self._broker_id = broker_id
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return sum(len(topic.by_name) for topic in self._topics.values())

    def of_stream(self, stream: int) -> list[PulsarProducer]:
        found = self._topics.get(stream)
        return [] if found is None else list(found.by_name.values())

    def streams(self) -> list[int]:
        """Those with producers."""
        return list(self._topics)

    def new_name(self, token: str) -> str:
        return f"mainstem-{self._broker_id}-{token}-{next(self._numbers)}"

    def check_count(self, producer: PulsarProducer, most: int) -> None:
        """Raises PulsarRefusal if the topic has as many producers as it may have; 0 = any number."""
        topic = self._topics.get(producer.stream)
        if not most or topic is None or producer.name in topic.by_name:
            return
        if len(topic.by_name) + len(topic.waiting) >= most:
            raise PulsarRefusal(
                ServerError.PRODUCER_BUSY,
                f"topic {producer.topic.name!r} has {most} producers: that is its limit",
            )

    def add(self, producer: PulsarProducer, mode: int, topic_epoch: int | None) -> None:
        """Raises PulsarRefusal. A producer that has to wait is not ready."""
        topic = self._topics.setdefault(producer.stream, _TopicProducers())
        topic.epoch = max(topic.epoch, self._exclusive.epoch(producer.stream))
        self._replace(topic, producer, mode)
        taken = topic.exclusive is not None or bool(topic.waiting)
        if mode == SHARED:
            if taken:
                raise PulsarRefusal(ServerError.PRODUCER_BUSY, "the topic has an exclusive producer")
            topic.by_name[producer.name] = producer
            return
        if topic_epoch is not None and topic_epoch < topic.epoch:
            raise PulsarRefusal(ServerError.PRODUCER_FENCED, "another exclusive producer took over the topic")
        if mode == EXCLUSIVE and (taken or topic.by_name):
            raise PulsarRefusal(ServerError.PRODUCER_FENCED, "the topic has other producers")
        if mode == WAIT_FOR_EXCLUSIVE and (taken or topic.by_name):
            producer.ready = False
            topic.waiting.append(producer)
            return
        if mode == EXCLUSIVE_WITH_FENCING:
            for other in [*topic.by_name.values(), *topic.waiting]:
                self._discard(topic, other)
                other.client.close_producer(other)
        self._take(topic, producer, topic_epoch)

    def _replace(self, topic: _TopicProducers, producer: PulsarProducer, mode: int) -> None:
        """A producer that connects again takes the place of its former self. Raises PulsarRefusal."""
        old = topic.by_name.get(producer.name)
        if old is None:
            return
        if old.id != producer.id or old.epoch >= producer.epoch:
            if mode != SHARED:
                return  # access to the topic decides
            raise PulsarRefusal(
                ServerError.PRODUCER_BUSY,
                f"a producer named {producer.name!r} is connected to topic {producer.topic.name!r}",
            )
        self._discard(topic, old)
        old.closed = True

    def _take(self, topic: _TopicProducers, producer: PulsarProducer, topic_epoch: int | None) -> None:
        topic.epoch = max(topic.epoch + 1 if topic_epoch is None else topic_epoch, topic.epoch)
        producer.topic_epoch = topic.epoch
        producer.resumes = topic_epoch is not None
        producer.ready = True
        topic.exclusive = producer
        topic.by_name[producer.name] = producer

    @staticmethod
    def _discard(topic: _TopicProducers, producer: PulsarProducer) -> None:
        if topic.by_name.get(producer.name) is producer:
            del topic.by_name[producer.name]
        if producer in topic.waiting:
            topic.waiting.remove(producer)
        if topic.exclusive is producer:
            topic.exclusive = None
        producer.closed = True

    def remove(self, producer: PulsarProducer) -> None:
        """Idempotent. The next producer that waits gets exclusive access."""
        topic = self._topics.get(producer.stream)
        if topic is None:
            return
        self._discard(topic, producer)
        if topic.waiting and topic.exclusive is None and not topic.by_name:
            chosen = topic.waiting.popleft()
            self._take(topic, chosen, None)
            chosen.client.producer_ready(chosen)
        if not topic.by_name and not topic.waiting:
            del self._topics[producer.stream]

    async def make_durable(self, producer: PulsarProducer) -> None:
        """Store the epoch of an exclusive producer, before its client learns of it. Raises PulsarRefusal, or why the
        log does not store it."""
        if producer.topic_epoch is None:
            return
        try:
            await self._exclusive.take(producer.stream, producer.topic_epoch, resumes=producer.resumes)
        except MainstemError as error:
            self.remove(producer)
            if isinstance(error, ProducerFenced):
                raise PulsarRefusal(ServerError.PRODUCER_FENCED, str(error)) from None
            raise
        if producer.closed:
            raise PulsarRefusal(ServerError.PRODUCER_FENCED, "another exclusive producer took over the topic")

    def disconnect(self, stream: int) -> None:
        """Producers of a stream have to connect again, also those that wait for exclusive access."""
        topic = self._topics.pop(stream, None)
        for producer in [] if topic is None else [*topic.by_name.values(), *topic.waiting]:
            producer.closed = True
            producer.client.close_producer(producer)

    def close_topic(self, streams: tuple[int, ...]) -> None:
        """The topic is deleted."""
        for stream in streams:
            self.disconnect(stream)
