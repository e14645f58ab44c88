"""Names and positions of Pulsar, and what they stand for here.

`persistent://tenant/namespace/topic-partition-N` is partition N of the topic `topic` in the namespace
`tenant/namespace`. `public/default` is the default namespace. A MessageId is (ledger, entry, batch index): the ledger
is a number of the topic's incarnation, the entry the offset of its first record, the batch index the place in it.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, NamedTuple

from mainstem.broker.namespaces import DEFAULT, NamespaceView, qualify, split
from mainstem.broker.topics.service import Topic
from mainstem.errors import InvalidName

PUBLIC_NAMESPACE = "public/default"
PERSISTENT, NON_PERSISTENT = "persistent", "non-persistent"

_PARTITION = re.compile(r"(.+)-partition-(\d{1,6})")
_LEDGER_BITS = 52  # exact in a double, as JSON readers use
_SIGN = 1 << 63
_LATEST = _SIGN - 1


class PulsarTopicName(NamedTuple):
    """`name` is a full name of the broker; `partition` is -1 if the name has none."""

    domain: str
    name: str
    partition: int

    @property
    def plain(self) -> str:
        return split(self.name)[1]

    def whole(self) -> PulsarTopicName:
        """The name as it is, where `-partition-N` is a part of it."""
        if self.partition < 0:
            return self
        return PulsarTopicName(self.domain, f"{self.name}-partition-{self.partition}", -1)


def namespace_of(text: str, view: NamespaceView | None) -> str:
    """The broker's name of a namespace. Raises InvalidName."""
    namespace = DEFAULT if text == PUBLIC_NAMESPACE else text
    if text.count("/") != 1:
        raise InvalidName(f"invalid namespace {text[:64]!r}: use tenant/namespace")
    if view is None:
        return namespace
    if namespace not in (DEFAULT, view.namespace):
        raise InvalidName(f"this client uses the namespace {shown_namespace(view.namespace)} alone")
    return view.namespace


def shown_namespace(namespace: str) -> str:
    """A namespace as Pulsar clients name it."""
    return PUBLIC_NAMESPACE if namespace == DEFAULT else namespace


def parse_topic(text: str, view: NamespaceView | None = None) -> PulsarTopicName:
    """Raises InvalidName."""
    domain, scheme, path = text.partition("://")
    if not scheme:
        domain, path = PERSISTENT, text
    if domain not in (PERSISTENT, NON_PERSISTENT):
        raise InvalidName(
            f"invalid topic name {text[:128]!r}: it begins with persistent:// or non-persistent://"
        )
    parts = path.split("/")
    if len(parts) == 1 and not scheme:
        parts = [*PUBLIC_NAMESPACE.split("/"), *parts]
    if len(parts) == 4:
        raise InvalidName(
            f"invalid topic name {text[:128]!r}: names with a cluster are not supported, "
            "use persistent://tenant/namespace/topic"
        )
    if len(parts) != 3 or not all(parts):
        raise InvalidName(f"invalid topic name {text[:128]!r}: use persistent://tenant/namespace/topic")
    tenant, namespace, topic = parts
    full = namespace_of(f"{tenant}/{namespace}", view)
    partition = -1
    numbered = _PARTITION.fullmatch(topic)
    if numbered is not None:
        topic, partition = numbered[1], int(numbered[2])
    return PulsarTopicName(domain, qualify(full, topic), partition)


def topic_url(topic: Topic, partition: int = -1) -> str:
    """The name of a topic, or of one of its partitions, as clients use it."""
    namespace, plain = split(topic.name)
    domain = NON_PERSISTENT if topic.config.durability == "ephemeral" else PERSISTENT
    suffix = f"-partition-{partition}" if partition >= 0 else ""
    return f"{domain}://{shown_namespace(namespace)}/{plain}{suffix}"


def topic_urls(topic: Topic) -> list[str]:
    """The names of a topic's partitions, or of the topic if it has one."""
    if len(topic.streams) == 1:
        return [topic_url(topic)]
    return [topic_url(topic, partition) for partition in range(len(topic.streams))]


def ledger_of(topic: Topic) -> int:
    """The ledger of every MessageId of a topic. A topic that was deleted and created again has another one."""
    digest = hashlib.blake2b(topic.topic_id, digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> (64 - _LEDGER_BITS)) | 1


class PulsarPosition(NamedTuple):
    """Where a MessageId points: before all records, after all, or at an entry."""

    earliest: bool
    latest: bool
    entry: int
    batch_index: int  # -1: the whole entry


def position_of(message_id: Any, ledger: int) -> PulsarPosition:
    """A MessageId of another incarnation of the topic is before everything."""
    entry = _signed(message_id.entryId)
    id_ledger = _signed(message_id.ledgerId)
    if id_ledger == _LATEST or (id_ledger == ledger and entry == _LATEST):
        return PulsarPosition(False, True, -1, -1)
    if id_ledger != ledger or entry < 0:
        return PulsarPosition(True, False, -1, -1)
    return PulsarPosition(False, False, entry, message_id.batch_index)


def _signed(number: int) -> int:
    return number - (_SIGN << 1) if number >= _SIGN else number
