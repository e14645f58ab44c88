"""The Pulsar door: listens, hands out connections, and closes them politely."""

from __future__ import annotations

import asyncio
import gc
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mainstem import events, limits
from mainstem.address import Address
from mainstem.broker.broker import Broker
from mainstem.broker.namespaces import NamespaceView, view_of
from mainstem.doors.budget import Budget, Seats
from mainstem.doors.http.transport.requests import HttpRequest
from mainstem.doors.http.transport.responses import Response
from mainstem.doors.open_connections import OpenConnections
from mainstem.doors.pulsar.admin.service import PulsarAdmin
from mainstem.doors.pulsar.caller import PulsarCaller
from mainstem.doors.pulsar.connection import PulsarConnection
from mainstem.doors.pulsar.kernels import use_kernels
from mainstem.doors.pulsar.lookup import Lookup
from mainstem.doors.pulsar.metrics import PulsarMetrics
from mainstem.doors.pulsar.producers import PulsarProducers
from mainstem.doors.pulsar.throughput import WINDOW_S
from mainstem.doors.pulsar.topic_watchers import TopicWatchers
from mainstem.doors.pulsar.wire import MESSAGE_BYTES_MAX
from mainstem.doors.tls import accepting
from mainstem.errors import Unavailable
from mainstem.records.compiled import pulsar_preloaded

PULSAR_RECEIVE_BYTES = 512 * limits.KIB  # read from a connection at once
PULSAR_KEEP_ALIVE_S = 30.0  # a silent client gets a PING after this; one that stays silent is cut off

_log = events.named("pulsar")
_BACKLOG = 1024


class PulsarConnections(OpenConnections[PulsarConnection]):
    def __init__(self, seats: Seats, metrics: PulsarMetrics) -> None:
        super().__init__()
        self._seats = seats
        self._metrics = metrics
        self._sweep: asyncio.TimerHandle | None = None
        self._sampling: asyncio.TimerHandle | None = None
        self.receive_buffer = memoryview(bytearray(PULSAR_RECEIVE_BYTES))

    def admit(self, connection: PulsarConnection) -> bool:
        """False: there are too many already."""
        if not self._seats.admit(connection.peer, connection):
            return False
        self._held.add(connection)
        return True

    def forget(self, connection: PulsarConnection) -> None:
        self._seats.leave(connection.peer, connection)
        super().forget(connection)

    def start_sweeping(self) -> None:
        self._sweep = asyncio.get_running_loop().call_later(PULSAR_KEEP_ALIVE_S / 2, self._keep_alive)

    def _keep_alive(self) -> None:
        """Ping silent clients, and cut off those that do not answer."""
        self.start_sweeping()
        now = asyncio.get_running_loop().time()
        for connection in list(self._held):
            silent_s = now - connection.active_at
            if silent_s > 2 * PULSAR_KEEP_ALIVE_S:
                self._metrics.connections_dropped += 1
                _log.info("silent client cut off", client=connection.peer)
                connection.abort()
            elif silent_s > PULSAR_KEEP_ALIVE_S and not connection.pinged:
                connection.ping()

    def start_sampling(self) -> None:
        self._sampling = asyncio.get_running_loop().call_later(WINDOW_S, self._sample)

    def _sample(self) -> None:
        """Begin a new window of every rate."""
        self.start_sampling()
        for connection in self._held:
            for producer in connection.producers.values():
                producer.throughput.rates()
            for consumer in connection.consumers.values():
                consumer.throughput.rates()

    async def drain(self, within_s: float) -> int:
        for timer in (self._sweep, self._sampling):
            if timer is not None:
                timer.cancel()
        return await super().drain(within_s)


@dataclass
class PulsarContext:
    """What the connections of one listener share."""

    broker: Broker
    lookup: Lookup
    producers: PulsarProducers
    connections: PulsarConnections
    metrics: PulsarMetrics
    watchers: TopicWatchers
    budget: Budget
    view: NamespaceView | None
    insecure: bool
    message_bytes_max: int = MESSAGE_BYTES_MAX
    loading: asyncio.Future[None] | None = None

    def load_kernels(self) -> None:
        """Not before the first client: they take 100 MB."""
        if self.loading is None:
            self.loading = asyncio.get_running_loop().run_in_executor(None, _load_kernels)

    def caller(self, host: str, certificate: Mapping[str, Any] | None) -> PulsarCaller:
        return PulsarCaller(
            self.broker, host, insecure=self.insecure, view=self.view, certificate=certificate
        )

    def new_token(self) -> str:
        return self.broker.random.token(8).hex()


class PulsarDoor:
    def __init__(
        self,
        broker: Broker,
        *,
        broker_id: int = 1,
        advertise: Address | None = None,
        connections_max: int = limits.PULSAR_CONNECTIONS_MAX,
        auto_create: bool = True,
        deduplication: bool = False,
        tls: ssl.SSLContext | None = None,
        insecure: bool = False,
        budget: Budget | None = None,
    ) -> None:
        self._broker = broker
        self._advertise = advertise
        self._auto_create = auto_create
        self._deduplication = deduplication
        self._tls = tls
        self._insecure = insecure
        self._budget = budget or Budget()
        self.metrics = PulsarMetrics()
        self.producers = PulsarProducers(broker_id, broker.exclusive_producers)
        self._connections = PulsarConnections(self._budget.door(connections_max), self.metrics)
        self._server: asyncio.Server | None = None
        self.lookup: Lookup | None = None  # once it listens

    async def start(self, address: Address) -> Address:
        """Listen. Returns the address as bound. Raises OSError, InvalidName."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            accepting(self._connection, self._tls, self._budget),
            address.host,
            address.port,
            backlog=_BACKLOG,
            start_serving=False,
        )
        self._server = server
        host, port, *_ = server.sockets[0].getsockname()
        bound = Address(host, port)
        own = Address.parse(address.advertise) if address.advertise else None
        self.advertised = own or self._advertise or bound
        self.lookup = Lookup(
            self._broker,
            self.advertised,
            tls=self._tls is not None,
            auto_create=self._auto_create,
            deduplication=self._deduplication,
        )
        self._context = PulsarContext(
            broker=self._broker,
            lookup=self.lookup,
            producers=self.producers,
            connections=self._connections,
            metrics=self.metrics,
            watchers=TopicWatchers(),
            budget=self._budget,
            view=view_of(address.namespace) if address.namespace else None,
            insecure=self._insecure,
        )
        self._broker.backlogs.on_refused = self.producers.disconnect
        self._broker.inactivity.has_producers = lambda stream: bool(self.producers.of_stream(stream))
        self._broker.cluster.on_change(self._hand_over)
        self._connections.start_sweeping()
        self._connections.start_sampling()
        await server.start_serving()
        return bound

    def _hand_over(self) -> None:
        """Brokers joined or left: clients of topics that another broker serves now have to go there."""
        subscriptions, lookup = self._broker.subscriptions, self._context.lookup
        for stream in {*subscriptions.streams(), *self.producers.streams()}:
            topic = self._broker.streams.of_stream(stream)
            if topic is not None and not lookup.serves(topic.name):
                subscriptions.disconnect((stream,))
                self.producers.disconnect(stream)

    async def serve(self, request: HttpRequest, method: str, path: str) -> Response:
        """The admin API, for the HTTP door."""
        if self.lookup is None:
            raise Unavailable("the Pulsar door is not open yet")
        return await PulsarAdmin(self._broker, self.lookup, self.producers).serve(request, method, path)

    @property
    def authenticates(self) -> bool:
        """Whether clients have to prove who they are."""
        return self._broker.access.restricted and not self._insecure

    async def stop(self, drain_s: float = limits.SHUTDOWN_DRAIN_S) -> int:
        """Accept no more connections, store what was received, close. Returns how many were cut off after `drain_s`."""
        if self._server is None:
            return 0
        self._server.close()
        cut_off = await self._connections.drain(drain_s)
        if self._context.loading is not None:
            await asyncio.wait((self._context.loading,))
        return cut_off

    def _connection(self) -> PulsarConnection:
        return PulsarConnection(self._context)


def _load_kernels() -> None:
    pulsar_preloaded.load(use_kernels)
    gc.freeze()  # keep the loaded compiler out of full garbage collections
