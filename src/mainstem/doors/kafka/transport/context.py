"""State that the door's handlers share."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field

from mainstem import limits
from mainstem.broker.access.rules import Access
from mainstem.broker.broker import Broker
from mainstem.broker.cluster.clock import Clock
from mainstem.broker.groups.service import Groups
from mainstem.broker.namespaces import NamespaceView
from mainstem.broker.share.sessions import ShareSessions
from mainstem.broker.transactions.service import TransactionService
from mainstem.doors.kafka.security.options import KafkaSecurity
from mainstem.doors.kafka.transport.group_names import GroupNames
from mainstem.doors.kafka.transport.metrics import KafkaMetrics
from mainstem.doors.kafka.transport.peers import Peers

KAFKA_METADATA_BYTES_KEPT = 16 * limits.MIB  # cached requests and responses, for one state of the topics


class MetadataCache:
    """Responses for one state of the topics, by version and request body, bounded in bytes."""

    def __init__(self) -> None:
        self._state = 0
        self._held = 0
        self._answers: OrderedDict[tuple[int, bytes], bytes] = OrderedDict()

    def get(self, state: int, version: int, body: bytes) -> bytes | None:
        if state != self._state:
            self._answers.clear()
            self._held = 0
            self._state = state
        return self._answers.get((version, body))

    def put(self, version: int, body: bytes, answer: bytes) -> None:
        self._answers[version, body] = answer
        self._held += len(body) + len(answer)
        while self._held > KAFKA_METADATA_BYTES_KEPT:
            (_, oldest), dropped = self._answers.popitem(last=False)
            self._held -= len(oldest) + len(dropped)


@dataclass(slots=True)
class KafkaContext:
    broker: Broker
    groups: Groups
    transactions: TransactionService
    clock: Clock
    node_id: int
    cluster_id: str  # 22 characters, base64 of 16 bytes
    advertised_host: str
    advertised_port: int
    peers: Peers
    access: Access
    rack: str | None = None
    view: NamespaceView | None = None  # of the namespace that the listener is bound to
    shared: bool = False  # other brokers write to the same log
    auto_create_flag: bool = True  # as the broker was started
    default_partitions_flag: int = 1
    two_phase_commit: bool = False  # clients may use it
    metrics: KafkaMetrics = field(default_factory=KafkaMetrics)
    security: KafkaSecurity = field(default_factory=KafkaSecurity)
    share_sessions: ShareSessions = field(default_factory=ShareSessions)
    fetches: int = 0  # served so far
    session_partitions: int = 0  # of all fetch sessions
    group_names: GroupNames = field(init=False)
    metadata_answers: MetadataCache = field(default_factory=MetadataCache)
    metadata_turn: asyncio.Lock = field(default_factory=asyncio.Lock)  # held while a large response is built

    def __post_init__(self) -> None:
        self.group_names = GroupNames(self.clock)

    @property
    def auto_create(self) -> bool:
        """Whether to create topics that a client names."""
        return self.broker.settings.auto_create(self.auto_create_flag)

    @property
    def default_partitions(self) -> int:
        return self.broker.settings.default_partitions(self.default_partitions_flag)
