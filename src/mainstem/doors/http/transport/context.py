"""State that all requests of a door share."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from mainstem import limits
from mainstem.api.server import ClientTraffic
from mainstem.broker.broker import Broker
from mainstem.broker.history import History
from mainstem.broker.namespaces import NamespaceView
from mainstem.broker.watch_session_files import WATCH_SESSIONS, WatchSessionFiles
from mainstem.doors.budget import Budget, Pool
from mainstem.doors.http.transport.auth import HttpClients
from mainstem.doors.http.transport.live_connections import LiveConnections
from mainstem.doors.http.transport.origins import OriginPolicy
from mainstem.doors.s3.vending import S3Endpoint
from mainstem.metrics import Metric

if TYPE_CHECKING:
    from mainstem.doors.http.transport.requests import HttpRequest
    from mainstem.doors.http.transport.responses import Response


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds of this door; 0 = unlimited."""

    inflight_per_key: int = limits.HTTP_INFLIGHT_PER_KEY_MAX
    body_bytes: int = limits.HTTP_BODY_BYTES_MAX
    watch_sessions: int = limits.HTTP_WATCH_SESSIONS_MAX
    streams: int = limits.HTTP_STREAMS_MAX  # event streams and web sockets open at once
    streams_per_key: int = limits.HTTP_STREAMS_PER_KEY_MAX


class Traffic:
    """Counters of the door."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()  # (route, status)
        self.seconds: Counter[str] = Counter()  # spent, by route
        self.received_bytes = 0
        self.sent_bytes = 0

    def served(self, route: str, status: int, seconds: float, received: int, sent: int) -> None:
        self.requests[route, status] += 1
        self.seconds[route] += seconds  # type: ignore[assignment]  # a Counter takes any number
        self.received_bytes += received
        self.sent_bytes += sent


class MountedApi(Protocol):
    """An API of another protocol, which this door serves below paths of its own."""

    async def serve(self, request: HttpRequest, method: str, path: str) -> Response:
        """`path` as the client sent it, with its escapes."""
        ...


@dataclass(slots=True)
class Context:
    broker: Broker
    limits: HttpLimits = field(default_factory=HttpLimits)
    insecure: bool = False  # anonymous clients may do everything, although access is restricted
    view: NamespaceView | None = None  # of the namespace that the listener is bound to
    origins: OriginPolicy = field(default_factory=OriginPolicy)
    path_roots: tuple[Path, ...] = ()  # that clients may name; none: any, if an administrator does
    probe_auth: bool = False  # health and readiness need a key as well
    traffic: Traffic = field(default_factory=Traffic)
    budget: Budget = field(default_factory=Budget)
    started: float = field(default_factory=time.monotonic)
    bodies: Pool = field(default_factory=lambda: Pool(lambda: limits.HTTP_INGEST_BYTES_MAX))
    streams: int = 0  # event streams open
    s3_endpoint: S3Endpoint | None = None  # where clients find the files of tables
    published: list[Callable[[], Iterable[Metric]]] = field(
        default_factory=list
    )  # the counters of other doors
    sampled: list[Callable[[], Iterable[Metric]]] = field(
        default_factory=list
    )  # those that the history needs
    connected: list[Callable[[], Iterable[ClientTraffic]]] = field(
        default_factory=list
    )  # the clients of other doors
    mounted: dict[str, MountedApi] = field(default_factory=dict)  # by the first segment of the path
    stopping: asyncio.Event = field(default_factory=asyncio.Event)  # streams end once it is set
    clients: HttpClients = field(init=False)
    live: LiveConnections = field(init=False)
    history: History = field(init=False)

    def __post_init__(self) -> None:
        self.clients = HttpClients(self.broker, insecure=self.insecure)
        options = self.broker.options
        self.live = LiveConnections(
            self.broker.clock,
            self.limits.watch_sessions,
            self.broker.rates.stored,
            WatchSessionFiles(options.data_dir / WATCH_SESSIONS) if options.workers else None,
        )
        self.history = History(self.broker)
        self.broker.access.listeners.append(self.live.check_rights)
        self.published += [self.broker.metrics, self.budget.published]

    @property
    def body_bytes(self) -> int:
        """Bytes of the requests being received and served."""
        return self.bodies.total
