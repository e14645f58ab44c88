"""Random programs for the differential test: which calls a seed makes, without knowing their answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

STEPS = 60
_TOPICS = ("t0", "t1", "p0")  # p0 has two partitions
_PARTITIONED = "p0"
_SUBSCRIPTIONS = ("s0", "s1")
_TYPES = ("Exclusive", "Failover", "Shared", "Key_Shared")
_MODES = ("Shared", "Shared", "Shared", "Exclusive", "ExclusiveWithFencing")
_KEYS = ("a", "b", "c")


def _same(answer: Any) -> Any:
    return answer


@dataclass(frozen=True)
class Step:
    name: str  # a method of PulsarSide
    arguments: dict[str, Any]
    kind: str
    shown: Callable[[Any], Any] = _same  # what is compared of the answer


def _client(name: str, /, **arguments: Any) -> Step:
    return Step(name, arguments, name)


def _admin(
    method: str, path: str, body: Any = None, *, at: str | None = None, shown: Callable[[Any], Any] = _same
) -> Step:
    kind = f"admin {method}"
    return Step("admin", {"method": method, "path": path, "body": body, "at": at}, kind, shown)


class _Program:
    """What the program knows of itself: the slots that it opened, and what it sent."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.sent: dict[str, list[str]] = {topic: [] for topic in _TOPICS}
        self.producers: dict[int, str] = {}  # slot → topic
        self.consumers: dict[int, tuple[str, str]] = {}  # slot → topic, subscription
        self.readers: dict[int, str] = {}
        self.types: dict[tuple[str, str], str] = {}
        self.batched: set[str] = set()  # topics with messages in batches
        self.number = 0

    def payloads(self, count: int) -> list[str]:
        self.number += count
        return [f"m{number}" for number in range(self.number - count, self.number)]

    def some(self, topic: str, most: int = 4) -> list[str]:
        sent = self.sent[topic]
        return self.random.sample(sent, min(len(sent), self.random.randint(1, most)))

    def a_position(self, topic: str) -> str:
        sent = self.sent[topic]
        if sent and self.random.random() < 0.6:
            return self.random.choice(sent)
        return self.random.choice(("earliest", "latest"))


def program_of(random: Random) -> Iterator[Step]:
    program = _Program(random)
    base = "admin/v2/persistent/{namespace}"
    yield _admin("PUT", f"{base}/t0")
    yield _admin("PUT", f"{base}/t1")
    yield _admin("PUT", f"{base}/{_PARTITIONED}/partitions", 2)
    makers = [(_CLIENT_STEPS, 0.75), (_ADMIN_STEPS, 0.25)]
    for _ in range(STEPS):
        table = random.choices([one for one, _ in makers], [weight for _, weight in makers])[0]
        make = random.choices([one for one, _ in table], [weight for _, weight in table])[0]
        yield from make(program)


# Producers


def _create_producer(program: _Program) -> Iterator[Step]:
    random = program.random
    slot, topic = random.randrange(3), random.choice(_TOPICS)
    program.producers[slot] = topic
    yield _client(
        "create_producer",
        slot=slot,
        topic=topic,
        mode=random.choice(_MODES) if topic != _PARTITIONED else "Shared",
        name=random.choice((None, None, None, "named")),
        batching=random.random() < 0.3,
    )


def _close_producer(program: _Program) -> Iterator[Step]:
    slot = program.random.randrange(3)
    program.producers.pop(slot, None)
    yield _client("close_producer", slot=slot)


def _send(program: _Program) -> Iterator[Step]:
    random = program.random
    if not program.producers:
        yield from _create_producer(program)
    slot, topic = random.choice(sorted(program.producers.items()))
    for payload in program.payloads(random.randint(1, 4)):
        program.sent[topic].append(payload)
        options: dict[str, Any] = {}
        if topic == _PARTITIONED or random.random() < 0.6:
            options["partition_key"] = random.choice(_KEYS)
        if random.random() < 0.2:
            options["properties"] = {"x": payload, "empty": ""}
        if random.random() < 0.1:
            options["event_timestamp"] = 1_600_000_000_000
        if random.random() < 0.1:
            options["ordering_key"] = random.choice(_KEYS)
        if random.random() < 0.1:
            options["deliver_after_ms"] = random.choice((1, 400))
        yield _client("send", slot=slot, payload=payload, **options)


def _send_batch(program: _Program) -> Iterator[Step]:
    random = program.random
    if not program.producers:
        yield from _create_producer(program)
    slot, topic = random.choice(sorted(program.producers.items()))
    payloads = program.payloads(random.randint(2, 5))
    program.sent[topic] += payloads
    program.batched.add(topic)
    key = random.choice(_KEYS) if topic == _PARTITIONED or random.random() < 0.5 else None
    yield _client("send_batch", slot=slot, payloads=payloads, key=key)


def _last_sequence_id(program: _Program) -> Iterator[Step]:
    yield _client("last_sequence_id", slot=program.random.randrange(3))


# Consumers


def _subscribe(program: _Program) -> Iterator[Step]:
    random = program.random
    slot, topic, subscription = (
        random.randrange(4),
        random.choice(_TOPICS),
        random.choice(_SUBSCRIPTIONS),
    )
    if slot in program.consumers:
        yield from _drained(*program.consumers[slot])
    others = [one for at, one in program.consumers.items() if at != slot]
    known = program.types.get((topic, subscription))
    if (topic, subscription) in others and known is not None and random.random() < 0.8:
        type = known
    else:
        type = random.choice(_TYPES)
        if (topic, subscription) not in others:
            program.types[topic, subscription] = type
    program.consumers[slot] = (topic, subscription)
    yield _client(
        "subscribe",
        slot=slot,
        topic=topic,
        subscription=subscription,
        type=type,
        earliest=random.random() < 0.7,
        name=f"c{slot}",
        batch_index_ack_enabled=True,
    )


def _drained(topic: str, subscription: str) -> Iterator[Step]:
    yield _client("drain", topic=topic, subscription=subscription)


def _drain(program: _Program) -> Iterator[Step]:
    if program.consumers:
        yield from _drained(*program.random.choice(sorted(program.consumers.values())))


def _close_consumer(program: _Program) -> Iterator[Step]:
    if program.consumers:
        slot = program.random.choice(sorted(program.consumers))
        yield from _drained(*program.consumers.pop(slot))
        yield _client("close_consumer", slot=slot)


def _unsubscribe(program: _Program) -> Iterator[Step]:
    if program.consumers:
        slot = program.random.choice(sorted(program.consumers))
        topic, subscription = program.consumers[slot]
        yield from _drained(topic, subscription)
        yield _client("unsubscribe", slot=slot)


def _acknowledge(program: _Program) -> Iterator[Step]:
    if program.consumers:
        topic, subscription = program.random.choice(sorted(program.consumers.values()))
        yield from _drained(topic, subscription)
        payloads = program.some(topic, 6)
        yield _client("acknowledge", topic=topic, subscription=subscription, payloads=payloads)


def _acknowledge_cumulative(program: _Program) -> Iterator[Step]:
    if program.consumers:
        topic, subscription = program.random.choice(sorted(program.consumers.values()))
        yield from _drained(topic, subscription)
        for payload in program.some(topic, 1):
            yield _client("acknowledge_cumulative", topic=topic, subscription=subscription, payload=payload)


def _negative_acknowledge(program: _Program) -> Iterator[Step]:
    if program.consumers:
        topic, subscription = program.random.choice(sorted(program.consumers.values()))
        yield from _drained(topic, subscription)
        payloads = program.some(topic)
        yield _client("negative_acknowledge", topic=topic, subscription=subscription, payloads=payloads)
        yield from _drained(topic, subscription)


def _redeliver(program: _Program) -> Iterator[Step]:
    if program.consumers:
        topic, subscription = program.random.choice(sorted(program.consumers.values()))
        yield from _drained(topic, subscription)
        yield _client("redeliver", topic=topic, subscription=subscription)
        yield from _drained(topic, subscription)


def _seek(program: _Program) -> Iterator[Step]:
    if program.consumers:
        slot = program.random.choice(sorted(program.consumers))
        topic, subscription = program.consumers[slot]
        yield from _drained(topic, subscription)
        to = program.a_position(topic) if program.random.random() < 0.8 else program.random.choice(_TIMES)
        yield _client("seek", slot=slot, to=to)
        yield from _drained(topic, subscription)


_TIMES = ("time 0", "time now")


def _own_name(program: _Program, prefix: str) -> str:
    program.number += 1
    return f"{prefix}{program.number}"


def _pattern(program: _Program) -> Iterator[Step]:
    pattern = program.random.choice(("t.*", "p.*", ".*1"))
    yield _client("subscribe_pattern", pattern=pattern, subscription=_own_name(program, "pattern"))


def _sticky(program: _Program) -> Iterator[Step]:
    topic = program.random.choice(_TOPICS[:2])
    border = program.random.choice((1_000, 20_000, 40_000, 60_000))
    if (
        topic not in program.batched
    ):  # a batch goes where its first key goes, which only these two servers agree on
        yield _client(
            "subscribe_sticky", topic=topic, subscription=_own_name(program, "sticky"), border=border
        )


def _dead_letters(program: _Program) -> Iterator[Step]:
    topic, most = program.random.choice(_TOPICS[:2]), program.random.choice((1, 2))
    name = _own_name(program, "dead")
    yield _client("dead_letters", topic=topic, subscription=name, letters=f"{name}-letters", most=most)


def _send_chunks(program: _Program) -> Iterator[Step]:
    topic = program.random.choice(_TOPICS[:2])
    if topic in program.producers.values():
        return  # one of them may be exclusive
    payload = program.payloads(1)[0]
    program.sent[topic].append(payload)
    program.batched.add(topic)  # its chunks are several entries
    yield _client("send_chunks", topic=topic, payload=payload, size=program.random.choice((10, 6_000_000)))


def _consumer_last_id(program: _Program) -> Iterator[Step]:
    if program.consumers:
        yield _client("consumer_last_id", slot=program.random.choice(sorted(program.consumers)))


# Readers


def _create_reader(program: _Program) -> Iterator[Step]:
    random = program.random
    slot, topic = random.randrange(2), random.choice(_TOPICS[:2])
    program.readers[slot] = topic
    yield _client(
        "create_reader",
        slot=slot,
        topic=topic,
        start=program.a_position(topic),
        inclusive=random.random() < 0.4,
    )
    if random.random() < 0.5:
        yield _client("has_message_available", slot=slot)
    yield _client("read", slot=slot)


def _read_compacted(program: _Program) -> Iterator[Step]:
    topic = program.random.choice(_TOPICS[:2])
    yield _client("compact", topic=topic)
    start = program.random.choice(("earliest", program.a_position(topic)))
    yield _client("create_reader", slot=1, topic=topic, start=start, inclusive=True, compacted=True)
    program.readers[1] = topic
    yield _client("read", slot=1)


def _use_reader(program: _Program) -> Iterator[Step]:
    random = program.random
    if not program.readers:
        return
    slot, topic = random.choice(sorted(program.readers.items()))
    use = random.choice(("has_message_available", "read", "seek_reader", "seek_reader", "close_reader"))
    if use == "seek_reader":
        yield _client(use, slot=slot, to=program.a_position(topic))
        if random.random() < 0.5:
            yield _client("has_message_available", slot=slot)
        yield _client("read", slot=slot)
    else:
        yield _client(use, slot=slot)
        if use == "close_reader":
            del program.readers[slot]


def _partitions(program: _Program) -> Iterator[Step]:
    yield _client("partitions", topic=program.random.choice(_TOPICS))


# Admin


def _stats(answer: Any) -> Any:
    """The fields of statistics that do not depend on time or on how bytes are stored."""
    if not isinstance(answer, dict) or not isinstance(answer.get("body"), dict):
        return answer
    body = answer["body"]
    return {
        "status": answer["status"],
        "publishers": len(body.get("publishers", ())),
        "subscriptions": {
            name: {
                "type": one.get("type"),
                "durable": one.get("durable"),
                "consumers": len(one.get("consumers", ())),
                "backlog": one.get("msgBacklog"),
            }
            for name, one in body.get("subscriptions", {}).items()
            if name in (*_SUBSCRIPTIONS, "by-admin")  # not those of readers
        },
        "partitions": (body.get("metadata") or {}).get("partitions"),
    }


def _stats_of(program: _Program, topic: str) -> Callable[[Any], Any]:
    """Pulsar counts the entries of a backlog, Mainstem its messages: with batches, only none at all is the same."""

    def shown(answer: Any) -> Any:
        found = _stats(answer)
        if isinstance(found, dict) and topic.partition("-")[0] in program.batched:
            for one in found.get("subscriptions", {}).values():
                one["backlog"] = bool(one["backlog"])
        return found

    return shown


def _without_readers(answer: Any) -> Any:
    """Nor Pulsar's own subscriptions."""
    if isinstance(answer, dict) and isinstance(answer.get("body"), list):
        return {
            **answer,
            "body": sorted(one for one in answer["body"] if not one.startswith(("reader-", "__"))),
        }
    return answer


def _sorted(answer: Any) -> Any:
    if isinstance(answer, dict) and isinstance(answer.get("body"), list):
        return {**answer, "body": sorted(one for one in answer["body"] if "__" not in one)}
    return answer


def _own_properties(answer: Any) -> Any:
    """Without those in which Pulsar keeps the epoch of exclusive producers."""
    if isinstance(answer, dict) and isinstance(answer.get("body"), dict):
        body = {name: value for name, value in answer["body"].items() if not name.startswith("pulsar.")}
        return {**answer, "body": body}
    return answer


def _expired(answer: Any) -> Any:
    """Pulsar refuses to expire messages of a subscription that has hardly any left."""
    return {"status": 204} if answer == {"status": 409} else answer


def _only_status(answer: Any) -> Any:
    return {"status": answer["status"]} if isinstance(answer, dict) else answer


def _look(program: _Program) -> Iterator[Step]:
    topic = program.random.choice((*_TOPICS, "p0-partition-1", "missing"))
    path = f"admin/v2/persistent/{{namespace}}/{topic}"
    yield program.random.choice(
        (
            _admin("GET", f"{path}/stats", shown=_stats_of(program, topic)),
            _admin("GET", f"{path}/stats", shown=_stats_of(program, topic)),
            _admin("GET", f"{path}/partitioned-stats", shown=_stats_of(program, topic)),
            _admin("GET", f"{path}/subscriptions", shown=_without_readers),
            _admin("GET", f"{path}/partitions"),
            _admin("GET", "admin/v2/persistent/{namespace}", shown=_sorted),
            _admin("GET", "admin/v2/persistent/{namespace}/partitioned", shown=_sorted),
            _admin("GET", "admin/v2/namespaces/{namespace}/topics", shown=_sorted),
            _admin("GET", f"{path}/properties", shown=_own_properties),
            _admin("GET", f"{path}/permissions"),
            _admin("GET", f"{path}/compaction", shown=_only_status),
            _admin("GET", f"{path}/lastMessageId", shown=_only_status),
            _admin("GET", f"{path}/internalStats", shown=_only_status),
        )
    )


def _subscription_call(program: _Program) -> Iterator[Step]:
    random = program.random
    topic = random.choice((*_TOPICS, *_TOPICS, "p0-partition-0", "missing"))
    name = random.choice((*_SUBSCRIPTIONS, "by-admin", "missing"))
    path = f"admin/v2/persistent/{{namespace}}/{topic}/subscription/{name}"
    known = topic if topic in program.sent else _PARTITIONED if topic != "missing" else "t0"
    choice = random.choice(
        ("create", "create", "create", "delete", "skip", "skip_all", "reset", "reset time", "expire", "peek")
    )
    if choice in ("skip", "skip_all", "reset", "reset time", "expire", "delete"):
        yield from _drained(known, name)
    if choice == "create":
        # A position of p0 is one of either partition, and means nothing in the other one.
        yield _admin("PUT", path, at=program.a_position(known) if topic in _TOPICS[:2] else "earliest")
    elif choice == "delete":
        yield _admin("DELETE", path)
    elif choice == "skip":
        yield _admin("POST", f"{path}/skip/{random.randint(1, 3)}")
    elif choice == "skip_all":
        yield _admin("POST", f"{path}/skip_all")
    elif choice == "reset":
        yield _admin("POST", f"{path}/resetcursor", at=program.a_position(known))
    elif choice == "reset time":
        yield _admin("POST", f"{path}/resetcursor/{random.choice((1, 1_600_000_000_000))}")
    elif choice == "expire":
        yield _admin("POST", f"{path}/expireMessages/3600", shown=_expired)
    elif (topic, name) in program.consumers.values():  # Pulsar creates the subscription at which it peeks
        yield _admin("GET", f"{path}/position/{random.randint(1, 4)}", shown=_only_status)
    if choice in ("reset", "reset time"):
        yield from _drained(known, name)
    stats = f"admin/v2/persistent/{{namespace}}/{topic}/stats"
    yield _admin("GET", stats, shown=_stats_of(program, topic))


def _topic_call(program: _Program) -> Iterator[Step]:
    random = program.random
    path = "admin/v2/persistent/{namespace}"
    yield random.choice(
        (
            _admin("PUT", f"{path}/{random.choice(_TOPICS)}"),
            _admin("PUT", f"{path}/{random.choice(_TOPICS)}/partitions", random.choice((0, 1, 2, 3))),
            _admin("POST", f"{path}/{random.choice(_TOPICS)}/partitions", random.choice((1, 2))),
            _admin("DELETE", f"{path}/{random.choice((*_TOPICS, 'missing'))}"),
            _admin("DELETE", f"{path}/{random.choice(('t1', 'missing'))}/partitions"),
            _admin("PUT", f"{path}/{random.choice(_TOPICS)}/properties", {"a": "b"}),
            _admin("DELETE", f"{path}/{random.choice(_TOPICS)}/properties?key=a"),
            _admin("PUT", f"{path}/{random.choice((*_TOPICS, 'missing'))}/unload"),
            _admin("PUT", f"{path}/bad%20name/partitions", "x"),
            _admin("GET", f"{path}/t0/messageid/1"),
            _admin("GET", f"{path}/t0/examinemessage?initialPosition=earliest&messagePosition=1"),
            _admin("POST", f"{path}/t1/terminate", shown=_only_status),
        )
    )


_ROLES = ("ann", "bob")


def _permission_call(program: _Program) -> Iterator[Step]:
    random = program.random
    scope = random.choice(("namespaces/{namespace}", "persistent/{namespace}/t0"))
    path = f"admin/v2/{scope}/permissions"
    role = random.choice(_ROLES)
    actions = random.choice((["produce"], ["consume"], ["produce", "consume"]))
    yield random.choice((_admin("POST", f"{path}/{role}", actions), _admin("DELETE", f"{path}/{role}")))
    yield _admin("GET", path, shown=_actions_sorted)


def _actions_sorted(answer: Any) -> Any:
    if isinstance(answer, dict) and isinstance(answer.get("body"), dict):
        body = {role: sorted(actions) for role, actions in answer["body"].items()}
        return {"status": answer["status"], "body": body}
    return answer


# Policies: name, a value, and the path where it is read
_NAMESPACE_POLICIES: tuple[tuple[str, Any], ...] = (
    ("retention", {"retentionTimeInMinutes": 10, "retentionSizeInMB": 100}),
    ("retention", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 10}),
    ("messageTTL", 300),
    ("deduplication", True),
    ("maxProducersPerTopic", 5),
    ("maxConsumersPerTopic", 6),
    ("maxConsumersPerSubscription", 7),
    ("maxUnackedMessagesPerConsumer", 800),
    ("maxUnackedMessagesPerSubscription", 900),
    ("maxSubscriptionsPerTopic", 10),
    ("publishRate", {"publishThrottlingRateInMsg": 100000, "publishThrottlingRateInByte": -1}),
    (
        "inactiveTopicPolicies",
        {
            "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
            "maxInactiveDurationSeconds": 1000,
            "deleteWhileInactive": True,
        },
    ),
    ("subscriptionExpirationTime", 60),
)
_TOPIC_POLICIES: tuple[tuple[str, Any], ...] = (
    ("publishRate", {"publishThrottlingRateInMsg": 100000, "publishThrottlingRateInByte": -1}),
    ("retention", {"retentionTimeInMinutes": 10, "retentionSizeInMB": 100}),
    ("messageTTL?messageTTL=200", None),
    ("deduplicationEnabled", True),
    ("maxProducers", 5),
    ("maxConsumers", 6),
    ("maxConsumersPerSubscription", 7),
    ("maxUnackedMessagesOnConsumer", 800),
    ("maxUnackedMessagesOnSubscription", 900),
    ("maxSubscriptionsPerTopic", 10),
    (
        "inactiveTopicPolicies",
        {
            "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
            "maxInactiveDurationSeconds": 1000,
            "deleteWhileInactive": True,
        },
    ),
    ("maxMessageSize", 100000),
)


def _policy_call(program: _Program) -> Iterator[Step]:
    random = program.random
    of_topic = random.random() < 0.5
    name, value = random.choice(_TOPIC_POLICIES if of_topic else _NAMESPACE_POLICIES)
    base = "admin/v2/persistent/{namespace}/t0" if of_topic else "admin/v2/namespaces/{namespace}"
    plain = name.partition("?")[0]
    if random.random() < 0.7:
        yield _admin("POST", f"{base}/{name}", value)
    else:
        yield _admin("DELETE", f"{base}/{plain}")
    yield _admin("GET", f"{base}/{plain}")


Maker = Callable[[_Program], Iterator[Step]]
_CLIENT_STEPS: list[tuple[Maker, float]] = [
    (_create_producer, 4),
    (_close_producer, 1),
    (_send, 10),
    (_send_batch, 4),
    (_last_sequence_id, 1),
    (_subscribe, 6),
    (_drain, 4),
    (_close_consumer, 2),
    (_unsubscribe, 1),
    (_acknowledge, 6),
    (_acknowledge_cumulative, 3),
    (_negative_acknowledge, 3),
    (_redeliver, 2),
    (_seek, 3),
    (_consumer_last_id, 2),
    (_create_reader, 3),
    (_use_reader, 4),
    (_read_compacted, 1),
    (_partitions, 1),
    (_pattern, 1),
    (_sticky, 1),
    (_dead_letters, 1),
    (_send_chunks, 0.5),
]
_ADMIN_STEPS: list[tuple[Maker, float]] = [
    (_look, 5),
    (_subscription_call, 5),
    (_topic_call, 2),
    (_permission_call, 1),
    (_policy_call, 3),
]
