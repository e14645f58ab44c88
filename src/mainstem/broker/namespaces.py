"""Namespaces: how they are made and changed, the defaults and limits that they set, and what their clients see."""

from __future__ import annotations

from typing import Any

import msgspec

from mainstem.errors import CapacityReached, InvalidInput, InvalidName, NamespaceNotFound
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.namespaces import (
    DEFAULT,
    ID_SEPARATOR,
    TOPIC_DEFAULTS,
    AddNamespace,
    AlterNamespace,
    NamespacePolicies,
    RemoveNamespace,
    TopicNamespace,
    bad_namespace,
    qualify,
    qualify_id,
    split,
    split_id,
)
from mainstem.ledger.topics import Topic
from mainstem.log.log import Log

__all__ = [
    "DEFAULT",
    "ID_SEPARATOR",
    "TOPIC_DEFAULTS",
    "NamespacePolicies",
    "NamespaceService",
    "NamespaceView",
    "TopicNamespace",
    "qualify",
    "qualify_id",
    "shown_id",
    "split",
    "split_id",
    "view_of",
    "within",
]


def within(namespace: str, name: str) -> str:
    """The full name of a topic that another topic of the namespace refers to. A reference cannot leave it."""
    return name if split(name)[0] == namespace else qualify(namespace, split(name)[1])


def shown_id(stored: str) -> str:
    """A stored id as access rules and lists of all namespaces write it: `acme/shop/billing`."""
    return stored.replace(ID_SEPARATOR, "/", 1)


class NamespaceView:
    """What a client that is bound to a namespace sees: plain names on its side, full names in the broker.

    A name that contains `/` cannot leave the namespace: it becomes a full name that no topic can have."""

    __slots__ = ("_id_prefix", "_prefix", "namespace")

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self._prefix = qualify(namespace, "")
        self._id_prefix = qualify_id(namespace, "")

    def topic(self, name: str) -> str:
        """The full name of a topic that the client names."""
        return f"{self._prefix}/{name}" if "/" in name else self._prefix + name

    def own_topic(self, name: str) -> str:
        """The same, where a client may also send full names of its own namespace."""
        return name if "/" in name and self.plain_topic(name) is not None else self.topic(name)

    def id(self, id: str) -> str:
        """The stored id of a group, transaction or router that the client names. Raises InvalidName."""
        if ID_SEPARATOR in id:
            raise InvalidName("ids of groups, transactions and routers cannot contain U+001F")
        return self._id_prefix + id

    def plain_topic(self, full_name: str) -> str | None:
        """The name that the client knows a topic by; None if it belongs to another namespace."""
        if not full_name.startswith(self._prefix):
            return None
        name = full_name[len(self._prefix) :]
        if "/" not in name:
            return name
        return name[1:] if name.startswith("/") else None

    def plain_id(self, stored: str) -> str | None:
        """The id that the client knows; None if it belongs to another namespace."""
        namespace, id = split_id(stored)
        return id if namespace == self.namespace else None

    def prefix(self, prefix: str | None) -> str:
        """What the full names of its topics begin with, if the plain ones begin with `prefix`."""
        return self._prefix + (prefix or "")

    def id_prefix(self, prefix: str | None) -> str:
        """The same for stored ids."""
        return self._id_prefix + (prefix or "")

    def has(self, topic: Topic) -> bool:
        return topic.namespace == self.namespace

    def text(self, message: str) -> str:
        """An error message as the client may read it."""
        if self.namespace == DEFAULT:
            return message
        return message.replace(f"{self._prefix}/", "").replace(self._prefix, "").replace(self._id_prefix, "")


_VIEWS: dict[str, NamespaceView] = {}


def view_of(namespace: str) -> NamespaceView:
    """The view of a namespace, the same object every time. Raises InvalidName."""
    found = _VIEWS.get(namespace)
    if found is None:
        refusal = bad_namespace(namespace)
        if refusal is not None:
            raise refusal
        found = NamespaceView(namespace)
        if len(_VIEWS) < _VIEWS_KEPT_MAX:
            _VIEWS[namespace] = found
    return found


_VIEWS_KEPT_MAX = 1024


class NamespaceService:
    def __init__(self, log: Log, default_config: TopicConfig) -> None:
        self._log = log
        self._namespaces = log.ledger.namespaces
        self._default_config = default_config

    # What there is

    def get(self, name: str) -> TopicNamespace:
        """Raises NamespaceNotFound."""
        found = self._namespaces.get(name)
        if found is None:
            raise NamespaceNotFound(name)
        return found

    def exists(self, name: str) -> bool:
        return name in self._namespaces

    def all(self) -> list[TopicNamespace]:
        """By name."""
        return list(self._namespaces)

    def topics(self, name: str) -> list[Topic]:
        """The topics of a namespace, by name."""
        return [topic for topic in self._log.ledger.topics if topic.namespace == name]

    @property
    def topic_changes(self) -> int:
        """Changes when a topic is created, altered or deleted."""
        return self._log.ledger.topics.changes

    def counts(self, name: str) -> tuple[int, int]:
        """How many topics a namespace has, and how many partitions they have together."""
        return self._namespaces.topics_of(name), self._namespaces.partitions_of(name)

    def bytes(self, name: str) -> int:
        """Logical bytes of the live records of a namespace."""
        streams = self._log.streams
        return sum(
            streams.of(stream).usage(stream).bytes for topic in self.topics(name) for stream in topic.streams
        )

    def admits(self, namespace: str, principal: str) -> bool:
        """Whether a principal may use a namespace at all; access rules decide what it may do there."""
        allowed = self._namespaces.policies(namespace).principals
        return not allowed or principal in allowed

    # Changes

    @staticmethod
    def new_policies(policies: dict[str, Any]) -> NamespacePolicies:
        """The policies of a namespace to create."""
        return NamespacePolicies(**policies)

    async def create(
        self, name: str, policies: NamespacePolicies | None = None, *, exist_ok: bool = False
    ) -> TopicNamespace:
        """Raises InvalidName, InvalidInput, LimitReached, NamespaceExists (unless `exist_ok`)."""
        if exist_ok and name in self._namespaces:
            return self.get(name)
        created: TopicNamespace = await self._log.propose(AddNamespace(name, policies or NamespacePolicies()))
        return created

    async def alter(self, name: str, changes: dict[str, object]) -> TopicNamespace:
        """Change some policies. Raises NamespaceNotFound, InvalidInput."""
        known = NamespacePolicies.__struct_fields__
        unknown = sorted(set(changes) - set(known))
        if unknown:
            raise InvalidInput(f"unknown policy {unknown[0][:64]!r}: the policies are {', '.join(known)}")
        policies = msgspec.structs.replace(self.get(name).policies, **changes)
        altered: TopicNamespace = await self._log.propose(AlterNamespace(name, policies))
        return altered

    async def delete(self, name: str) -> None:
        """Raises NamespaceNotFound, InvalidInput for the default one, NamespaceInUse if it has topics."""
        refusal = self._namespaces.refusal(RemoveNamespace(name))
        if refusal is not None:
            raise refusal
        await self._log.propose(RemoveNamespace(name))

    # What new topics get, and how much they may hold

    def default_config(self, full_name: str) -> TopicConfig:
        """The config of a topic without settings of its own: the server's, changed by the policies of its namespace."""
        policies = self.policies(full_name)
        changes = {
            field: value for field in TOPIC_DEFAULTS if (value := getattr(policies, field)) is not None
        }
        return msgspec.structs.replace(self._default_config, **changes) if changes else self._default_config

    def default_partitions(self, full_name: str, otherwise: int = 1) -> int:
        """How many partitions a topic has if its creator does not say."""
        return self.policies(full_name).partitions or otherwise

    def policies(self, full_name: str) -> NamespacePolicies:
        """The policies that apply to a topic."""
        return self._namespaces.policies(split(full_name)[0])

    def check_bytes(self, namespace: str, more: int) -> None:
        """Raises CapacityReached if a namespace cannot hold `more` bytes on top of what it has."""
        bound = self._namespaces.byte_limits.get(namespace)
        if bound and self.bytes(namespace) + more > bound:
            raise CapacityReached(
                "bytes_max",
                bound,
                f"namespace {namespace!r} holds up to {bound} bytes of records: delete some, or raise bytes_max",
            )
