"""The Kafka door: listens, creates connections, and drains them when it closes."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import ipaddress
import socket
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from mainstem import events, limits
from mainstem.address import Address, listener_name
from mainstem.api.server import ClientTraffic
from mainstem.broker.broker import Broker
from mainstem.broker.cluster.clock import Clock, SystemClock
from mainstem.broker.namespaces import NamespaceView, view_of
from mainstem.doors.budget import Budget
from mainstem.doors.kafka.security.guard import AuthenticationContext
from mainstem.doors.kafka.security.options import KafkaSecurity
from mainstem.doors.kafka.transport.connection import KafkaConnection, KafkaConnections, KafkaLimits
from mainstem.doors.kafka.transport.context import KafkaContext, MetadataCache
from mainstem.doors.kafka.transport.dispatch import Dispatch
from mainstem.doors.kafka.transport.metrics import KafkaMetrics
from mainstem.doors.kafka.transport.peers import Peer, Peers
from mainstem.doors.kafka.transport.registry import apis
from mainstem.doors.tls import accepting

_log = events.named("kafka")
_BACKLOG = 1024
_CLUSTER_ID_BYTES = 16


class KafkaDoor:
    def __init__(
        self,
        broker: Broker,
        *,
        broker_id: int = 1,
        advertise: Address | None = None,
        bounds: KafkaLimits | None = None,
        auto_create: bool = True,
        default_partitions: int = 1,
        two_phase_commit: bool = False,
        clock: Clock | None = None,
        security: KafkaSecurity | None = None,
        budget: Budget | None = None,
    ) -> None:
        self._budget = budget
        self._broker = broker
        self._broker_id = broker_id
        self._advertise = advertise
        self._bounds = bounds or KafkaLimits()
        self._auto_create = auto_create
        self._default_partitions = default_partitions
        self._two_phase_commit = two_phase_commit
        self._clock = clock or SystemClock()
        self._security = security or KafkaSecurity()
        self._guard = AuthenticationContext(self._security, broker, self._clock)
        self.metrics = KafkaMetrics()
        self._dispatches: dict[Address, Dispatch] = {}  # by listener
        self._servers: list[asyncio.Server] = []

    async def start(self, address: Address) -> Address:
        """Listen at one more address. Returns it as bound. Raises OSError, InvalidName."""
        loop = asyncio.get_running_loop()
        view = view_of(address.namespace) if address.namespace else None
        if not self._servers:
            self._connections = KafkaConnections(self._bounds, self.metrics, self._budget)
        server = await loop.create_server(
            accepting(partial(self._connection, address), self._security.tls, self._connections.budget),
            address.host,
            address.port,
            backlog=_BACKLOG,
            start_serving=False,
        )
        host, port, *_ = server.sockets[0].getsockname()
        bound = Address(host, port)
        own = Address.parse(address.advertise) if address.advertise else None
        self.advertised = own or (None if self._servers else self._advertise) or _reachable(bound)
        context = self._new_context(address, self.advertised, view)
        self._dispatches[address] = Dispatch(context, apis(), self.metrics)
        if not self._servers:
            self.context = context
        self._servers.append(server)
        await server.start_serving()
        return bound

    def clients(self) -> Iterator[ClientTraffic]:
        """The clients of the open connections, with their traffic."""
        if not self._servers:
            return
        for (client, principal, host), (number, received, sent) in self._connections.traffic().items():
            yield ClientTraffic("kafka", client, principal, host, number, received, sent)

    def _new_context(self, address: Address, advertised: Address, view: NamespaceView | None) -> KafkaContext:
        """The context of one listener. Clients learn the addresses of the listeners for the same namespace."""
        broker = self._broker
        here = Peer(self._broker_id, advertised.host, advertised.port, broker.options.zone or None)
        peers = Peers(broker.cluster, here, listener_name("kafka", address))
        if self._servers:
            return replace(
                self.context,
                advertised_host=advertised.host,
                advertised_port=advertised.port,
                peers=peers,
                view=view,
                metadata_answers=MetadataCache(),
            )
        return KafkaContext(
            view=view,
            broker=broker,
            groups=broker.groups,
            transactions=broker.transactions,
            clock=self._clock,
            node_id=self._broker_id,
            cluster_id=_cluster_id(broker),
            advertised_host=advertised.host,
            advertised_port=advertised.port,
            peers=peers,
            rack=here.rack,
            shared=broker.cluster.shared,
            metrics=self.metrics,
            auto_create_flag=self._auto_create,
            default_partitions_flag=self._default_partitions,
            two_phase_commit=self._two_phase_commit,
            security=self._security,
            access=broker.access,
        )

    async def stop(self, drain_s: float = limits.SHUTDOWN_DRAIN_S) -> int:
        """Stop accepting, respond to what was received, close. Returns how many were cut off after `drain_s`."""
        if not self._servers:
            return 0
        for server in self._servers:
            server.close()
        return await self._connections.drain(drain_s)

    @property
    def authenticates(self) -> bool:
        """Whether clients must authenticate."""
        return not self._security.insecure and (self._security.certificates or self._broker.access.restricted)

    @property
    def open_connections(self) -> int:
        return len(self._connections)

    def _connection(self, listener: Address | None = None) -> KafkaConnection:
        """A connection to a listener, the first one unless given."""
        dispatch = self._dispatches[listener or next(iter(self._dispatches))]
        return KafkaConnection(dispatch, self._connections, self._guard)


def _reachable(bound: Address) -> Address:
    """The address that clients connect to. Instead of a wildcard address they get this machine's name."""
    try:
        wildcard = ipaddress.ip_address(bound.host).is_unspecified
    except ValueError:
        wildcard = False
    if not wildcard:
        return bound
    named = Address(socket.gethostname(), bound.port)
    _log.warning(
        "host name advertised",
        address=named,
        message="give --kafka-advertise HOST:PORT if clients cannot resolve it",
    )
    return named


def _cluster_id(broker: Broker) -> str:
    """The same for every start on the same log."""
    digest = hashlib.sha256(b"kafka cluster of " + broker.identity).digest()[:_CLUSTER_ID_BYTES]
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
