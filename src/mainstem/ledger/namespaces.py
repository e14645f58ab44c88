"""Namespaces: who shares topics, and on which terms. A namespace is one or two words: `acme`, `acme/shop`.

| name                                        | in the default namespace | in acme/shop        |
|---------------------------------------------|--------------------------|---------------------|
| full name of a topic                        | orders                   | acme/shop/orders    |
| stored id of a group, transaction or router | billing                  | acme/shop␟billing   |

No topic name contains `/` and no id that a client sends contains U+001F (␟), so both forms have one meaning.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator

import msgspec

from mainstem import limits
from mainstem.api.topics import BacklogPolicy, Durability, InactiveMode
from mainstem.errors import (
    InvalidInput,
    InvalidName,
    LimitReached,
    NamespaceExists,
    NamespaceInUse,
    NamespaceNotFound,
)
from mainstem.ledger.keyed import Keyed, fields_hash
from mainstem.ledger.section import Command, Moment, Section, applies

NAMESPACE_WORD_CHARS_MAX = 64  # a namespace is one or two words
NAMESPACE_PRINCIPALS_MAX = 1_000  # that one namespace admits

DEFAULT = "default"
DEFAULT_PREFIX = f"{DEFAULT}/"
ID_SEPARATOR = "\x1f"

_WORD = rf"[A-Za-z0-9][A-Za-z0-9_-]{{0,{NAMESPACE_WORD_CHARS_MAX - 1}}}"
_NAMESPACE = re.compile(rf"{_WORD}(/{_WORD})?")


def qualify(namespace: str, name: str) -> str:
    """The full name of a topic."""
    return name if namespace == DEFAULT else f"{namespace}/{name}"


def split(full_name: str) -> tuple[str, str]:
    """The namespace and the plain name of a topic. `default/orders` is `orders`."""
    namespace, slash, name = full_name.rpartition("/")
    return (namespace, name) if slash else (DEFAULT, full_name)


def canonical(full_name: str) -> str:
    """The full name that a topic is stored under: `orders` for `default/orders`."""
    return full_name.removeprefix(DEFAULT_PREFIX)


def qualify_id(namespace: str, id: str) -> str:
    """The stored id of a group, a transaction or a router."""
    return id if namespace == DEFAULT else f"{namespace}{ID_SEPARATOR}{id}"


def split_id(stored: str) -> tuple[str, str]:
    """The namespace of a stored id, and the id as its clients know it."""
    namespace, separator, id = stored.partition(ID_SEPARATOR)
    return (namespace, id) if separator else (DEFAULT, stored)


def id_chars(stored: str) -> int:
    """How long an id is as its clients know it."""
    return len(split_id(stored)[1])


def bad_namespace(name: str) -> InvalidName | None:
    """Why a namespace cannot have this name, if so."""
    if not _NAMESPACE.fullmatch(name):
        return InvalidName(
            f"invalid namespace {name[:64]!r}: use one word, or two with a / between them, of 1 to "
            f"{NAMESPACE_WORD_CHARS_MAX} letters, digits, _ and -, the first a letter or digit"
        )
    if name.startswith(f"{DEFAULT}/"):
        return InvalidName(f"invalid namespace {name[:64]!r}: nothing is below the default namespace")
    return None


class NamespacePolicies(msgspec.Struct, frozen=True, array_like=True):
    """The terms of a namespace. None leaves a default of new topics to the server; 0 and () mean no limit."""

    retention_ms: int | None = None  # of new topics; -1 = off
    retention_bytes: int | None = None  # of new topics; -1 = off
    ttl_ms: int | None = None  # of new topics; 0 = off
    durability: Durability | None = None  # of new topics
    partitions: int | None = None  # of new topics
    principals: tuple[str, ...] = ()  # who may use the namespace, sorted: "User:alice"
    topics_max: int = 0
    partitions_max: int = 0  # of all topics together
    bytes_max: int = 0  # live records of all topics together, as caps count them
    keep_backlog: bool | None = None  # of new topics, as are the others: see TopicConfig
    subscription_ttl_ms: int | None = None
    backlog_bytes: int | None = None
    backlog_bytes_policy: BacklogPolicy | None = None
    backlog_ms: int | None = None
    backlog_ms_policy: BacklogPolicy | None = None
    deduplication: bool | None = None
    producers_max: int | None = None
    consumers_max: int | None = None
    subscriptions_max: int | None = None
    subscription_consumers_max: int | None = None
    consumer_unacked_max: int | None = None
    subscription_unacked_max: int | None = None
    subscription_expiry_ms: int | None = None
    inactive_ms: int | None = None
    inactive_mode: InactiveMode | None = None


# The policies that are defaults of a topic's config, by the names that both have in common.
TOPIC_DEFAULTS = (
    *("retention_ms", "retention_bytes", "ttl_ms", "durability"),
    *("keep_backlog", "subscription_ttl_ms", "deduplication"),
    *("backlog_bytes", "backlog_bytes_policy", "backlog_ms", "backlog_ms_policy"),
    *("producers_max", "consumers_max", "subscriptions_max", "subscription_consumers_max"),
    *("consumer_unacked_max", "subscription_unacked_max", "subscription_expiry_ms"),
    *("inactive_ms", "inactive_mode"),
)


class TopicNamespace(msgspec.Struct, frozen=True, array_like=True):
    """One namespace; also the form in a checkpoint."""

    name: str
    policies: NamespacePolicies
    created_ms: int  # ledger time


class AddNamespace(Command, frozen=True, tag=170):
    name: str
    policies: NamespacePolicies


class AlterNamespace(Command, frozen=True, tag=171):
    """Replace all policies. Defaults apply to topics created later, limits at once."""

    name: str
    policies: NamespacePolicies


class RemoveNamespace(Command, frozen=True, tag=172):
    name: str


_UNCHANGED_DEFAULT = TopicNamespace(DEFAULT, NamespacePolicies(), 0)


class Namespaces(Section[list[TopicNamespace]]):
    """The namespaces that exist, and how much each holds. `default` always exists; it is stored once it is altered."""

    def __init__(self) -> None:
        self._namespaces: Keyed[str, TopicNamespace] = Keyed(fields_hash("namespace"))
        self._topics: Counter[str] = Counter()  # follows from the topics
        self._partitions: Counter[str] = Counter()
        self.byte_limits: dict[str, int] = {}  # of the namespaces that have one
        self.admitted: dict[str, frozenset[str]] = {}  # principals, of the namespaces that list some
        self.on_change: Callable[[], None] | None = None

    def __len__(self) -> int:
        return len(self._namespaces) + (DEFAULT not in self._namespaces)

    def __iter__(self) -> Iterator[TopicNamespace]:
        """By name."""
        found = list(self._namespaces)
        if DEFAULT not in self._namespaces:
            found = sorted([*found, _UNCHANGED_DEFAULT], key=lambda namespace: namespace.name)
        return iter(found)

    def __contains__(self, name: object) -> bool:
        return name == DEFAULT or name in self._namespaces

    def get(self, name: str) -> TopicNamespace | None:
        found = self._namespaces.get(name)
        return _UNCHANGED_DEFAULT if found is None and name == DEFAULT else found

    def policies(self, name: str) -> NamespacePolicies:
        found = self.get(name)
        return _UNCHANGED_DEFAULT.policies if found is None else found.policies

    def topics_of(self, name: str) -> int:
        """How many topics it has."""
        return self._topics[name]

    def partitions_of(self, name: str) -> int:
        """How many partitions its topics have together."""
        return self._partitions[name]

    def count(self, name: str, topics: int, partitions: int) -> None:
        """Add to the counts of a namespace's topics and partitions."""
        self._topics[name] += topics
        self._partitions[name] += partitions

    def refuses_topic(self, name: str, partitions: int) -> NamespaceNotFound | LimitReached | None:
        """Why a topic of this size cannot be created in a namespace, if so."""
        found = self.get(name)
        if found is None:
            return NamespaceNotFound(name)
        bound = found.policies.topics_max
        if bound and self._topics[name] >= bound:
            return LimitReached(
                f"namespace {name!r} has {bound} topics, its maximum: delete some, or raise topics_max"
            )
        return self.refuses_partitions(name, partitions)

    def refuses_partitions(self, name: str, more: int) -> LimitReached | None:
        """Why a namespace cannot have `more` partitions, if so."""
        bound = self.policies(name).partitions_max
        if not bound or self._partitions[name] + more <= bound:
            return None
        return LimitReached(
            f"namespace {name!r} has {self._partitions[name]} of at most {bound} partitions: {more} more do not fit; "
            "delete topics, or raise partitions_max"
        )

    def refusal(
        self, command: AddNamespace | AlterNamespace | RemoveNamespace
    ) -> InvalidInput | NamespaceExists | NamespaceNotFound | NamespaceInUse | LimitReached | None:
        """Why a command would change nothing if it were applied now."""
        name = command.name
        if isinstance(command, RemoveNamespace):
            return self._bad_removal(name)
        if isinstance(command, AddNamespace):
            if name in self:
                return NamespaceExists(name)
            full = self._namespaces.refusal(name, limits.NAMESPACES_MAX, "namespaces")
            return bad_namespace(name) or full or _bad_policies(command.policies)
        return _bad_policies(command.policies) if name in self else NamespaceNotFound(name)

    @applies(AddNamespace)
    def add(
        self, command: AddNamespace, now: Moment
    ) -> TopicNamespace | InvalidInput | NamespaceExists | LimitReached:
        refusal = self.refusal(command)
        if refusal is not None:
            return refusal  # type: ignore[return-value]  # of this command
        return self._put(TopicNamespace(command.name, command.policies, now.time_ms))

    @applies(AlterNamespace)
    def alter(
        self, command: AlterNamespace, now: Moment
    ) -> TopicNamespace | InvalidInput | NamespaceNotFound:
        found = self.get(command.name)
        refusal = self.refusal(command)
        if refusal is not None or found is None:
            return refusal or NamespaceNotFound(command.name)  # type: ignore[return-value]  # of this command
        return self._put(TopicNamespace(found.name, command.policies, found.created_ms))

    @applies(RemoveNamespace)
    def remove(
        self, command: RemoveNamespace, now: Moment
    ) -> TopicNamespace | InvalidInput | NamespaceNotFound | NamespaceInUse:
        refusal = self._bad_removal(command.name)
        if refusal is not None:
            return refusal
        removed = self._namespaces.pop(command.name)
        self.byte_limits.pop(command.name, None)
        self.admitted.pop(command.name, None)
        if self.on_change is not None:
            self.on_change()
        return removed or _UNCHANGED_DEFAULT

    def _bad_removal(self, name: str) -> InvalidInput | NamespaceNotFound | NamespaceInUse | None:
        if name == DEFAULT:
            return InvalidInput("the default namespace always exists")
        if name not in self._namespaces:
            return NamespaceNotFound(name)
        topics = self._topics[name]
        return NamespaceInUse(name, topics) if topics else None

    def _put(self, namespace: TopicNamespace) -> TopicNamespace:
        self._namespaces.put(namespace.name, namespace)
        if namespace.policies.bytes_max:
            self.byte_limits[namespace.name] = namespace.policies.bytes_max
        else:
            self.byte_limits.pop(namespace.name, None)
        if namespace.policies.principals:
            self.admitted[namespace.name] = frozenset(namespace.policies.principals)
        else:
            self.admitted.pop(namespace.name, None)
        if self.on_change is not None:
            self.on_change()
        return namespace

    # State as a whole

    @property
    def digest(self) -> int:
        return self._namespaces.digest

    def encode(self) -> list[TopicNamespace]:
        return list(self._namespaces)

    def load(self, state: list[TopicNamespace]) -> None:
        for namespace in state:
            self._put(namespace)


def _bad_policies(policies: NamespacePolicies) -> InvalidInput | None:
    for field, least in (
        *(("retention_ms", -1), ("retention_bytes", -1), ("ttl_ms", 0)),
        *(("subscription_ttl_ms", 0), ("backlog_bytes", 0), ("backlog_ms", 0)),
        *(
            ("producers_max", 0),
            ("consumers_max", 0),
            ("subscriptions_max", 0),
            ("subscription_consumers_max", 0),
        ),
        *(("consumer_unacked_max", 0), ("subscription_unacked_max", 0), ("subscription_expiry_ms", 0)),
        ("inactive_ms", 0),
    ):
        value = getattr(policies, field)
        if value is not None and not least <= value <= limits.OFFSET_MAX:
            return InvalidInput(f"{field} of a namespace is {least} (off) or more, not {value}")
    for field in ("topics_max", "partitions_max", "bytes_max"):
        if not 0 <= getattr(policies, field) <= limits.OFFSET_MAX:
            return InvalidInput(
                f"{field} of a namespace is 0 (no limit) or more, not {getattr(policies, field)}"
            )
    if policies.partitions is not None and not 1 <= policies.partitions <= limits.PARTITIONS_PER_TOPIC_MAX:
        return InvalidInput(
            f"a topic has 1 to {limits.PARTITIONS_PER_TOPIC_MAX} partitions, not {policies.partitions}"
        )
    if len(policies.principals) > NAMESPACE_PRINCIPALS_MAX:
        return InvalidInput(
            f"a namespace names up to {NAMESPACE_PRINCIPALS_MAX} principals, not {len(policies.principals)}"
        )
    for principal in policies.principals:
        if ":" not in principal or len(principal) > limits.NAME_CHARS_MAX:
            return InvalidInput(f"invalid principal {principal[:64]!r}: write it as User:NAME")
    return None
