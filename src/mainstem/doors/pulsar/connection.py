"""One connection of the Pulsar door: frames in, answers and messages out, with bounds on both.

SEND, ACK, FLOW, redelivery and PING are served as they arrive, in order. Any other command is served by a task of its
own, as clients expect: its answer carries the number of the request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING, Any, cast

from mainstem import events, limits
from mainstem.broker.transactions.service import TransactionWrites
from mainstem.doors.budget import STEP_S, holder_of, peer_of
from mainstem.doors.pulsar import commands
from mainstem.doors.pulsar.caller import PulsarCaller
from mainstem.doors.pulsar.client_details import ClientDetails
from mainstem.doors.pulsar.consumers import PulsarConsumer
from mainstem.doors.pulsar.errors import PulsarRefusal, ServerError, code_of
from mainstem.doors.pulsar.messages import TYPES, BaseCommand
from mainstem.doors.pulsar.producers import PublishedEntry, PulsarProducer, SendRunWaiter, SendWaiter
from mainstem.doors.pulsar.records import (
    SEND_FRAME_BYTES_MAX,
    BuiltBatch,
    batch_of,
    parse_sends,
    receipt_frames,
)
from mainstem.doors.pulsar.transactions import in_transaction, transaction_of
from mainstem.doors.pulsar.wire import (
    ACK_BYTES_MIN,
    FRAME_BYTES_MAX,
    FrameBuffer,
    InvalidFrame,
    is_send,
    parse_frame,
    parse_single_acks,
    simple_frame,
    varint,
)
from mainstem.errors import MainstemError, TopicTerminated, Unauthorized, drop_frames
from mainstem.records.pulsar_send_kernels import SEQUENCE

if TYPE_CHECKING:
    from mainstem.doors.pulsar.door import PulsarContext

PULSAR_WRITE_BUFFER_BYTES = (
    1 * limits.MIB
)  # to a client that does not read, before its consumers get nothing more
PULSAR_UNSTORED_BYTES_MAX = 16 * limits.MIB  # of SENDs of a connection that are not stored yet
PULSAR_REQUESTS_MAX = 1_000  # of a connection, under way
PULSAR_STEP_REQUESTS = 16  # served in one step of a client that sends ahead
PROTOCOL_VERSION = 21
TOKEN_RENEWAL_S = 30.0  # before a token expires, its client is asked for a new one

# The others close their connection at REACHED_END_OF_TOPIC, which they do not know, and connect again and again.
_JAVA_CLIENT = "Pulsar-Java"

_COPIED_BYTES_MAX = 64 * limits.KIB  # written as one piece
_NO_REQUEST = (1 << 64) - 1  # the request id of errors that answer no request
_NO_ID = (1 << 64) - 1  # ledger and entry of a message that was stored before

_log = events.named("pulsar")


class Opening:
    """A producer or consumer that is being created, while its client may close it, or the connection."""

    __slots__ = ("_connection", "_place")

    def __init__(self, connection: PulsarConnection, place: tuple[str, int]) -> None:
        self._connection = connection
        self._place = place

    def __enter__(self) -> Opening:
        """Raises PulsarRefusal if it is being created already."""
        if self._place in self._connection.openings:
            raise PulsarRefusal(ServerError.SERVICE_NOT_READY, f"the {self._place[0]} is being created")
        self._connection.openings[self._place] = self
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection.openings.get(self._place) is self:
            del self._connection.openings[self._place]

    def check(self) -> None:
        """Raises PulsarRefusal if it was closed meanwhile."""
        if self._connection.closed or self._connection.openings.get(self._place) is not self:
            raise PulsarRefusal(ServerError.SERVICE_NOT_READY, f"the {self._place[0]} was closed meanwhile")


class PulsarConnection(asyncio.BufferedProtocol):
    def __init__(self, context: PulsarContext) -> None:
        self.context = context
        self.caller: PulsarCaller
        self.producers: dict[int, PulsarProducer] = {}
        self.consumers: dict[int, PulsarConsumer] = {}
        self.openings: dict[tuple[str, int], Opening] = {}  # by "producer" or "consumer", and id
        self.peer = ""
        self.knows_end = False
        self.takes_index = False
        self.client_version = ""
        self.active_at = 0.0
        self.pinged = False
        self._frames = FrameBuffer()
        self._authenticated = False
        self._admitted = False
        self._out: list[bytes | memoryview] = []
        self._out_bytes = 0
        self._first_woken = 0  # the place of a consumer among the others
        self._flushing = False
        self._writable = True
        self._paused = False
        self._held = False  # by the rates of the principal
        self._waits = False  # for its turn, because it sent far ahead
        self._decodes = False  # a message of it, on another thread
        self._started = 0  # requests, ever
        self._unstored_bytes = 0
        self._counted = 0  # bytes that the budget counts for this connection
        self._holder = ""
        self._requests = 0
        self._alone = 0  # SENDs that come next and cannot be stored together
        self._finishing = False
        self.closed = False
        self._renews = False  # the client sends a new token when it is asked to
        self._expiry: asyncio.TimerHandle | None = None
        self._challenge: asyncio.TimerHandle | None = None

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=PULSAR_WRITE_BUFFER_BYTES)
        self.active_at = asyncio.get_running_loop().time()
        self.peer = self._holder = peer_of(transport)
        self.caller = self.context.caller(self.peer, transport.get_extra_info("peercert"))
        if not self.context.connections.admit(self):
            self.context.metrics.connections_refused += 1
            self._transport.abort()
            return
        self._admitted = True
        self.context.metrics.connections_accepted += 1

    def get_buffer(self, sizehint: int) -> memoryview:
        """Of all connections: frames are served from it in place, and the rest is copied."""
        return self.context.connections.receive_buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self.closed or not self._admitted or self._finishing:
            return
        self.active_at = asyncio.get_running_loop().time()
        activity = self.context.broker.streams.client_activity
        if activity.last is not self:
            activity.last, activity.changed_at = self, self.active_at
        self.pinged = False
        self._frames.feed(self.context.connections.receive_buffer[:nbytes])
        try:
            self._receive()
        finally:
            self._frames.keep()

    def _receive(self) -> None:
        """Serve what was received, up to one step of a client that sends ahead."""
        loop = asyncio.get_running_loop()
        ends, most = loop.time() + STEP_S, self._started + PULSAR_STEP_REQUESTS
        try:
            while not self.closed and not self._full:
                if not self._send_together():
                    frame = self._frames.next()
                    if frame is None:
                        break
                    self._serve(frame)
                if len(self._frames) and (self._started >= most or loop.time() >= ends):
                    self._waits = True
                    self.context.budget.turns.later(self._holder, self._continue)
        except InvalidFrame as error:
            self._drop(str(error))
        self._count_received()
        self._pause_or_resume()

    def _continue(self) -> None:
        self._waits = False
        if not self.closed:
            self._receive()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.closed:
            return
        self.closed = True
        for timer in (self._expiry, self._challenge):
            if timer is not None:
                timer.cancel()
        self.context.watchers.remove(self)
        for producer in list(self.producers.values()):
            self.context.producers.remove(producer)
        for consumer in list(self.consumers.values()):
            self.context.connections.work(commands.leave(self, consumer))
        self.context.metrics.producers -= len(self.producers)
        self.context.metrics.consumers -= len(self.consumers)
        self.producers.clear()
        self.consumers.clear()
        self._out.clear()
        self._count_received()
        self.context.connections.forget(self)

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._wake_consumers()
        self._pause_or_resume()

    def _wake_consumers(self) -> None:
        """There is room for their messages. Each of them is first in turn."""
        consumers = list(self.consumers.values())
        if consumers:
            self._first_woken = (self._first_woken + 1) % len(consumers)
            for consumer in (*consumers[self._first_woken :], *consumers[: self._first_woken]):
                consumer.subscription.changed()

    # Producers and consumers that are being created

    def opening(self, what: str, id: int) -> Opening:
        return Opening(self, (what, id))

    def opens(self, what: str, id: int) -> bool:
        return (what, id) in self.openings

    def close_opening(self, what: str, id: int) -> None:
        """The client closes it before it is there."""
        self.openings.pop((what, id), None)

    # What the door calls

    def finish(self) -> None:
        """Take nothing more, and close once what was received is stored."""
        self._finishing = True
        for consumer in list(self.consumers.values()):
            consumer.subscription.leave(consumer.member)
        self._close_if_finished()

    def abort(self) -> None:
        self._transport.abort()

    def unused_since(self) -> float | None:
        return None if self.producers or self.consumers or self._requests else self.active_at

    def ping(self) -> None:
        self.pinged = True
        self.write(simple_frame("ping"))

    # Frames in

    def _serve(self, data: memoryview) -> None:
        if len(data) >= ACK_BYTES_MIN and self._ack_singles(data):
            return
        frame = parse_frame(data)
        command = frame.command
        name = TYPES.get(command.type)
        metrics = self.context.metrics
        metrics.commands[name or "unknown"] += 1
        if name is None:
            _log.info("unknown command", type=command.type, client=self.peer)
            return
        if name == "connect":
            if self._authenticated:
                self._drop("CONNECT came twice")
                return
            self._start(name, self._connect(command.connect), _NO_REQUEST)
        elif not self._authenticated:
            self._drop("a command before CONNECT")
        elif name == "send":
            self._send(command.send, frame.rest)
        elif name == "ack":
            self._ack(command.ack)
        elif name == "flow":
            consumer = self.consumers.get(command.flow.consumer_id)
            if consumer is not None:
                consumer.subscription.flow(consumer.member, command.flow.messagePermits)
        elif name == "auth_response":
            self._start(name, self._renew(command.auth_response), _NO_REQUEST)
        elif name == "redeliver":
            commands.redeliver(self, command.redeliver)
        elif name in ("ping", "pong"):
            if not self.context.budget.frame_rate(self._holder).spend(1):
                self.context.budget.floods_closed += 1
                self._drop("too many frames without data")
            elif name == "ping":
                self.write(simple_frame("pong"))
        else:
            request = getattr(command, name)
            handler = commands.HANDLERS.get(name)
            request_id = getattr(request, "request_id", _NO_REQUEST)
            if handler is None:
                self.error(name, request_id, ServerError.NOT_ALLOWED, f"{name} is not supported")
            else:
                self._start(name, handler(self, request), request_id)

    def _start(self, name: str, work: Any, request_id: int) -> None:
        self._requests += 1
        self._started += 1
        self.context.connections.work(self._answer(name, work, request_id))

    async def _answer(self, name: str, work: Any, request_id: int) -> None:
        try:
            await work
        except MainstemError as error:
            drop_frames(error)
            self.error(name, request_id, code_of(error), self._text_for_client(str(error)))
            if isinstance(error, Unauthorized) and not self._authenticated:
                self._flush()
                self._transport.close()
        except Exception:  # noqa: BLE001  # a bug in one command must not take the connection, nor hide
            _log.exception("command failed", command=name)
            self.error(name, request_id, ServerError.UNKNOWN, "an internal error")
        finally:
            self._requests -= 1
            self._receive()
            self._close_if_finished()

    def details(self, metadata: Iterable[Any]) -> ClientDetails:
        return ClientDetails.of(metadata, self.client_version, self.context.broker.clock.now_ms())

    async def _connect(self, command: Any) -> None:
        self.knows_end = command.client_version.startswith(_JAVA_CLIENT)
        self.client_version = command.client_version
        self._renews = command.feature_flags.supports_auth_refresh
        self.takes_index = command.feature_flags.supports_broker_entry_metadata
        await self._authenticate(command.auth_method_name, command.auth_data)
        self.context.load_kernels()
        self._authenticated = True
        self.context.budget.received.give(self._holder, self._counted)
        self._holder = holder_of(self.caller.principal, self.peer)
        self.context.budget.received.take(self._holder, self._counted)
        self._frames.frame_bytes_max = FRAME_BYTES_MAX
        self.write(
            simple_frame(
                "connected",
                server_version="Mainstem",
                protocol_version=min(PROTOCOL_VERSION, command.protocol_version),
                max_message_size=self.context.message_bytes_max,
                feature_flags={
                    "supports_auth_refresh": True,
                    "supports_broker_entry_metadata": True,
                    "supports_topic_watchers": True,
                    "supports_get_partitioned_metadata_without_auto_creation": True,
                },
            )
        )
        self._receive()

    async def _authenticate(self, method: str, data: bytes) -> None:
        await self.caller.authenticate(method, data)
        if self._expiry is not None:
            self._expiry.cancel()
        if self._challenge is not None:
            self._challenge.cancel()
        if self.caller.expires_ms is not None and not self.closed:
            left_s = max(0.0, (self.caller.expires_ms - self.context.broker.clock.now_ms()) / 1000)
            loop = asyncio.get_running_loop()
            self._expiry = loop.call_later(left_s, self._drop, "the token expired")
            if self._renews:
                early_s = min(TOKEN_RENEWAL_S, left_s / 2)
                self._challenge = loop.call_later(left_s - early_s, self._ask_for_token, method)

    def _ask_for_token(self, method: str) -> None:
        """The client's token expires soon."""
        self.write(
            simple_frame(
                "auth_challenge",
                server_version="Mainstem",
                challenge={"auth_method_name": method, "auth_data": b"PulsarAuthRefresh"},
                protocol_version=PROTOCOL_VERSION,
            )
        )

    async def _renew(self, command: Any) -> None:
        """The client sends a new token, which has to be of the same principal."""
        before = self.caller.principal
        try:
            await self._authenticate(command.response.auth_method_name, command.response.auth_data)
        except Unauthorized as error:
            self._drop(str(error))
            return
        if self.caller.principal.name != before.name:
            self._drop("the new token belongs to another principal")

    def _send(self, command: Any, rest: memoryview) -> None:
        producer = self.producers.get(command.producer_id)
        if producer is None:
            return  # closed meanwhile: the client sends it again
        self._unstored_bytes += len(rest)
        try:
            entry = PublishedEntry.parse(rest)
            writes = None
            if in_transaction(command):
                writes = self.context.broker.transactions.writes(transaction_of(self, command))
            elif entry.expands:
                self._decodes = True
                entry = entry._replace(payload=memoryview(bytes(entry.payload)))  # its frame is gone by then
                self._start("send", self._send_decoded(producer, command, entry), _NO_REQUEST)
                return
            self._append(producer, command, entry, writes)
        except MainstemError as error:
            self._unstored_bytes -= len(rest)
            self._send_error(producer.id, command.sequence_id, error)

    async def _send_decoded(self, producer: PulsarProducer, command: Any, entry: PublishedEntry) -> None:
        """Send what takes long to decompress. The connection waits, so that its messages stay in order."""
        try:
            built = await self.context.broker.decoding.run(
                self._holder, lambda: batch_of(entry.metadata, entry.payload)
            )
            self._append(producer, command, entry, None, built)
        except MainstemError as error:
            drop_frames(error)
            self._unstored_bytes -= entry.size
            self._send_error(producer.id, command.sequence_id, error)
        finally:
            self._decodes = False

    def _append(
        self,
        producer: PulsarProducer,
        command: Any,
        entry: PublishedEntry,
        writes: TransactionWrites | None,
        built: BuiltBatch | None = None,
    ) -> None:
        broker = self.context.broker
        topic = broker.streams.get(producer.topic.name)
        producer.send(broker.appends, topic, command, entry, writes, built)
        self._throttle(producer, entry.size, max(command.num_messages, 1))

    def _send_together(self) -> bool:
        """Store the messages of the next SENDs as one batch. False: serve the next frame alone."""
        if self._alone > 0:
            self._alone -= 1
            return False
        size = self._frames.next_bytes
        if not size or size > SEND_FRAME_BYTES_MAX or len(self._frames) < 2 * size or not self.producers:
            return False
        rest = self._frames.rest()
        run = parse_sends(rest, SEND_FRAME_BYTES_MAX) if is_send(rest) else None
        if run is None:
            return False
        context = self.context
        producer = self.producers.get(run.producer)
        topic = None if producer is None else context.broker.streams.get(producer.topic.name)
        if producer is None or not producer.joins_sends(topic):
            self._alone = run.messages - 1  # or each of them would be parsed as often as there are more
            return False
        self._frames.skip(run.frame_bytes)
        context.metrics.commands["send"] += run.messages
        self._unstored_bytes += run.size
        try:
            producer.send_run(context.broker.appends, topic, run)
        except MainstemError as error:
            self.run_not_sent(SendRunWaiter(self, producer, run), error)
            return True
        self._throttle(producer, run.size, run.messages)
        return True

    def _throttle(self, producer: PulsarProducer, size: int, messages: int) -> None:
        """Read nothing more for a while if the client exceeds its rate."""
        rates = self.context.broker.rates
        if rates.stored.active:
            held_ms = rates.produce(self.caller.principal, producer.topic.name, size, messages)
            if held_ms:
                self._hold(held_ms / 1000)

    def _send_error(self, producer: int, sequence: int, error: BaseException) -> None:
        if isinstance(error, TopicTerminated):
            # It connects again, and learns why its messages are refused. Go's client would wait for their timeout.
            found = self.producers.get(producer)
            if found is not None:
                self.context.producers.remove(found)
                self.close_producer(found)
            return
        known = isinstance(error, MainstemError)
        code = code_of(cast("MainstemError", error)) if known else ServerError.UNKNOWN
        text = self._text_for_client(str(error)) if known else "an internal error"
        self.context.metrics.errors["send"] += 1
        self.write(
            simple_frame("send_error", producer_id=producer, sequence_id=sequence, error=code, message=text)
        )

    def _ack_singles(self, data: memoryview) -> bool:
        """Serve a frame that acknowledges many messages one by one. False: it is something else."""
        acks = parse_single_acks(data)
        consumer = None if acks is None else self.consumers.get(acks.consumer)
        if acks is None or consumer is None or not consumer.may_read():
            return False
        started = consumer.ack_singles(acks.ledger, acks.entries)
        if started is None:
            return False
        self.context.metrics.commands["ack"] += 1
        if acks.request >= 0:
            command = BaseCommand(ack={"consumer_id": acks.consumer, "request_id": acks.request}).ack
            self._requests += 1
            self.context.connections.work(self._answer_ack(command, started))
        return True

    def _ack(self, command: Any) -> None:
        consumer = self.consumers.get(command.consumer_id)
        if consumer is None or not consumer.may_read():
            if command.HasField("request_id"):
                self._ack_response(command, ServerError.CONSUMER_NOT_FOUND, "the consumer is closed")
            return
        if in_transaction(command):
            self._requests += 1
            self.context.connections.work(
                self._answer_ack(command, self._ack_in_transaction(consumer, command))
            )
            return
        try:
            started = consumer.ack_at_once(command)
        except MainstemError as error:
            self._ack_response(command, code_of(error), str(error))
            return
        if command.HasField("request_id") or started is None:
            self._requests += 1
            work = consumer.ack(command) if started is None else started
            self.context.connections.work(self._answer_ack(command, work))

    async def _ack_in_transaction(self, consumer: PulsarConsumer, command: Any) -> None:
        found = transaction_of(self, command)
        await consumer.ack_in_transaction(command, self.context.broker.transactions, found.stamp)

    async def _answer_ack(self, command: Any, work: Awaitable[None]) -> None:
        try:
            await work
        except MainstemError as error:
            self._ack_response(command, code_of(error), self._text_for_client(str(error)))
        else:
            self._ack_response(command, None, "")
        finally:
            self._requests -= 1
            self._receive()
            self._close_if_finished()

    def _ack_response(self, command: Any, error: ServerError | None, message: str) -> None:
        if not command.HasField("request_id"):
            return
        fields: dict[str, object] = {"consumer_id": command.consumer_id, "request_id": command.request_id}
        if in_transaction(command):
            fields["txnid_least_bits"] = command.txnid_least_bits
            fields["txnid_most_bits"] = command.txnid_most_bits
        if error is not None:
            self.context.metrics.errors["ack"] += 1
            fields.update(error=error, message=message)
        self.write(simple_frame("ack_response", **fields))

    # What producers and consumers call

    def sent(self, receipt: SendWaiter, base: int, *, duplicate: bool) -> None:
        self._unstored_bytes -= receipt.size
        if duplicate:
            base = _NO_ID
            if receipt.transaction is not None:
                self.context.broker.transactions.write_failed(receipt.transaction, receipt.producer.stream)
        metrics = self.context.metrics
        metrics.messages_in += 1
        metrics.bytes_in += receipt.size
        if self.closed:
            return
        producer = receipt.producer
        ledger = _NO_ID if duplicate else producer.ledger
        message_id = b"\x08" + varint(ledger) + b"\x10" + varint(base)
        if producer.partition >= 0:
            message_id += b"\x18" + varint(producer.partition)
        fields = b"\x08%b\x10%b\x1a%b%b" % (
            varint(producer.id),
            varint(receipt.sequence),
            varint(len(message_id)),
            message_id,
        )
        if receipt.highest_sequence:
            fields += b"\x20" + varint(receipt.highest_sequence)
        command = b"\x08\x07\x3a" + varint(len(fields)) + fields  # type SEND_RECEIPT, field 7
        size = len(command)
        self.write((size + 4).to_bytes(4, "big") + size.to_bytes(4, "big") + command)

    def run_sent(self, waiter: SendRunWaiter, base: int) -> None:
        run, producer = waiter.run, waiter.producer
        self._unstored_bytes -= run.size
        metrics = self.context.metrics
        metrics.messages_in += run.messages
        metrics.bytes_in += run.size
        partition = b"" if producer.partition < 0 else b"\x18" + varint(producer.partition)
        self.write(
            receipt_frames(
                run,
                base,
                b"\x08" + varint(producer.id),
                b"\x08" + varint(producer.ledger) + b"\x10",
                partition,
            )
        )

    def run_not_sent(self, waiter: SendRunWaiter, error: BaseException) -> None:
        self._unstored_bytes -= waiter.run.size
        if not self.closed:
            for sequence in waiter.run.sends[SEQUENCE].tolist():
                self._send_error(waiter.producer.id, sequence, error)

    def not_sent(self, receipt: SendWaiter, error: BaseException) -> None:
        self._unstored_bytes -= receipt.size
        if receipt.transaction is not None:
            self.context.broker.transactions.write_failed(receipt.transaction, receipt.producer.stream)
        if not self.closed:
            self._send_error(receipt.producer.id, receipt.sequence, error)

    def delivered(self, entries: int, size: int) -> None:
        self.context.metrics.entries_out += entries
        self.context.metrics.bytes_out += size

    def close_producer(self, producer: PulsarProducer) -> None:
        producer.closed = True
        if self.producers.get(producer.id) is producer:
            del self.producers[producer.id]
            self.context.metrics.producers -= 1
        self.write(simple_frame("close_producer", producer_id=producer.id, request_id=_NO_REQUEST))

    def producer_ready(self, producer: PulsarProducer) -> None:
        self._start("producer", commands.admit_producer(self, producer), producer.request_id)

    def close_consumer(self, consumer: PulsarConsumer) -> None:
        if self.consumers.get(consumer.id) is consumer:
            del self.consumers[consumer.id]
            self.context.metrics.consumers -= 1
        consumer.subscription.leave(consumer.member)
        if not consumer.subscription.durable:  # it ends with its last consumer, unless that is expected back
            self.context.connections.work(commands.leave(self, consumer))
        self.write(simple_frame("close_consumer", consumer_id=consumer.id, request_id=_NO_REQUEST))

    def tell_active(self, consumer: PulsarConsumer, active: bool) -> None:
        self.write(simple_frame("active_consumer_change", consumer_id=consumer.id, is_active=active))

    # Frames out

    @property
    def writable(self) -> bool:
        return self._writable and not self.closed and self._out_bytes < PULSAR_WRITE_BUFFER_BYTES

    def write(self, data: bytes | memoryview) -> None:
        """Send at the end of this turn of the loop, together with everything else that is written in it."""
        if self.closed:
            return
        self._out.append(data)
        self._out_bytes += len(data)
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        full, self._out_bytes = self._out_bytes >= PULSAR_WRITE_BUFFER_BYTES, 0
        if self._out and not self.closed:
            out, self._out = self._out, []
            if sum(map(len, out)) < _COPIED_BYTES_MAX:
                self._transport.write(b"".join(out))
            else:
                self._transport.writelines(out)
        if full and self._writable:
            self._wake_consumers()
        if self._paused:
            self._receive()
        else:
            self._count_received()
        if self._finishing:
            self._close_if_finished()

    def error(self, command: str, request_id: int, code: ServerError, message: str) -> None:
        """The answer to a command that was refused, in the form that its clients expect."""
        self.context.metrics.errors[command] += 1
        self.write(commands.error_frame(command, request_id, code, message))

    def _text_for_client(self, text: str) -> str:
        return text if self.caller.view is None else self.caller.view.text(text)

    # Bounds

    @property
    def _full(self) -> bool:
        return (
            self._unstored_bytes > PULSAR_UNSTORED_BYTES_MAX
            or self._requests >= PULSAR_REQUESTS_MAX
            or self._held
            or self._waits
            or self._decodes
            or (not self._authenticated and self._requests > 0)
            or not self._writable
        )

    def _count_received(self) -> None:
        """Tell the budget how many bytes are held for this connection."""
        held = 0 if self.closed else len(self._frames) + self._unstored_bytes
        pool, change = self.context.budget.received, held - self._counted
        if change > 0:
            pool.take(self._holder, change)
        elif change < 0:
            pool.give(self._holder, -change)
        self._counted = held
        if change > 0 and pool.over(self._holder) and len(self._frames) and not self._unstored_bytes:
            self.context.budget.floods_closed += 1
            self._drop("the client exceeds its budget")

    def _pause_or_resume(self) -> None:
        if self.closed or self._full == self._paused:
            return
        self._paused = not self._paused
        if self._paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _hold(self, seconds: float) -> None:
        """Read nothing more for a while: the client exceeds its rate."""
        if not self._held:
            self._held = True
            asyncio.get_running_loop().call_later(seconds, self._release)

    def _release(self) -> None:
        self._held = False
        if not self.closed:
            self._receive()

    def _drop(self, reason: str) -> None:
        if not self.closed:
            self.context.metrics.connections_dropped += 1
            _log.info("connection closed", client=self.peer, reason=reason)
            self._transport.abort()

    def _close_if_finished(self) -> None:
        if self._finishing and not self.closed and not self._requests and self._unstored_bytes <= 0:
            self._transport.close()
