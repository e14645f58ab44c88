"""One of the two servers of the differential test: runs a step of a program, and answers in words that both share.

Messages are named by their payloads, because ids of the two servers differ; an error is the name of its class, or the
status of the admin API.
"""

from __future__ import annotations

import json
import os
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pulsar

Answer = Any  # JSON
_QUEUE = 1000
_TIMEOUT_S = 6
_NACK_MS = 100
_OWN_SLOT = 9  # of consumers that one step opens and closes
_NOTHING = 204  # the status of an answer without a body, whatever it was
_FLUSH_S = 0.15  # after which the client has sent the acknowledgements that it groups
DRAINED_MAX = 500  # no program publishes that many
_TYPES = {
    "Exclusive": pulsar.ConsumerType.Exclusive,
    "Failover": pulsar.ConsumerType.Failover,
    "Shared": pulsar.ConsumerType.Shared,
    "Key_Shared": pulsar.ConsumerType.KeyShared,
}
_MODES = {
    "Shared": pulsar.ProducerAccessMode.Shared,
    "Exclusive": pulsar.ProducerAccessMode.Exclusive,
    "ExclusiveWithFencing": pulsar.ProducerAccessMode.ExclusiveWithFencing,
    "WaitForExclusive": pulsar.ProducerAccessMode.WaitForExclusive,
}


@dataclass
class _Receiver:
    consumer: Any
    topic: str
    subscription: str
    type: str
    held: dict[str, Any] = field(default_factory=dict)  # payload → message


class PulsarSide:
    def __init__(self, name: str, pulsar_address: str, http_address: str) -> None:
        self.name = name
        self._url = f"pulsar://{pulsar_address}"
        self._http = f"http://{http_address}"
        # Not a logger of Python: the client would call it on threads of its own, and wait for them while it closes.
        self._logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)

    def begin(self, namespace: str) -> None:
        """Start a program of its own, in its own namespace."""
        self.namespace = namespace
        self.client = pulsar.Client(
            self._url, operation_timeout_seconds=_TIMEOUT_S, logger=self._logger, connection_timeout_ms=5000
        )
        self._producers: dict[int, Any] = {}
        self._consumers: dict[int, _Receiver] = {}
        self._readers: dict[int, Any] = {}
        self.ids: dict[str, Any] = {}  # payload → message id
        self._uncounted: set[tuple[str, str]] = (
            set()
        )  # subscriptions whose redelivery counts are not compared

    def end(self) -> None:
        self.client.close()

    def do(self, step: str, arguments: dict[str, Any]) -> Answer:
        operation: Callable[..., Answer] = getattr(self, step)
        try:
            return operation(**arguments)
        except pulsar.exceptions.PulsarException as error:
            return {"error": type(error).__name__}

    def _topic(self, topic: str) -> str:
        return f"persistent://{self.namespace}/{topic}"

    # Producers

    def create_producer(self, slot: int, topic: str, mode: str, name: str | None, batching: bool) -> Answer:
        self.close_producer(slot)
        self._producers[slot] = self.client.create_producer(
            self._topic(topic),
            producer_name=name,
            access_mode=_MODES[mode],
            batching_enabled=batching,
            batching_max_publish_delay_ms=20,
            send_timeout_millis=4000,
            message_routing_mode=pulsar.PartitionsRoutingMode.UseSinglePartition,
        )
        return "ok"

    def send_chunks(self, topic: str, payload: str, size: int) -> Answer:
        """A message that is larger than the server takes, in chunks."""
        producer = self.client.create_producer(
            self._topic(topic), batching_enabled=False, chunking_enabled=True
        )
        self.ids[payload] = producer.send(f"{payload} {'x' * size}".encode())
        producer.close()
        return "ok"

    def close_producer(self, slot: int) -> Answer:
        producer = self._producers.pop(slot, None)
        if producer is None:
            return "none"
        producer.close()
        return "ok"

    def send(self, slot: int, payload: str, **options: Any) -> Answer:
        producer = self._producers.get(slot)
        if producer is None:
            return "none"
        delay_ms = options.pop("deliver_after_ms", 0)
        if delay_ms:
            options["deliver_after"] = timedelta(milliseconds=delay_ms)
        self.ids[payload] = producer.send(payload.encode(), **options)
        return "ok"

    def send_batch(self, slot: int, payloads: list[str], key: str | None) -> Answer:
        producer = self._producers.get(slot)
        if producer is None:
            return "none"
        results: dict[str, str] = {}

        def sent(payload: str) -> Callable[[Any, Any], None]:
            def done(result: Any, message_id: Any) -> None:
                results[payload] = str(result)
                self.ids[payload] = message_id

            return done

        for payload in payloads:
            producer.send_async(payload.encode(), sent(payload), partition_key=key)
        producer.flush()
        return dict(sorted(results.items()))

    def last_sequence_id(self, slot: int) -> Answer:
        producer = self._producers.get(slot)
        return "none" if producer is None else producer.last_sequence_id()

    # Consumers

    def subscribe_pattern(self, pattern: str, subscription: str) -> Answer:
        """What a consumer of all topics that match gets at first."""
        consumer = self.client.subscribe(
            re.compile(f"persistent://{self.namespace}/{pattern}"),
            subscription,
            consumer_type=pulsar.ConsumerType.Shared,
            initial_position=pulsar.InitialPosition.Earliest,
        )
        self._consumers[_OWN_SLOT] = _Receiver(consumer, pattern, subscription, "Shared")
        try:
            return self.drain(pattern, subscription, 600)
        finally:
            del self._consumers[_OWN_SLOT]
            consumer.unsubscribe()

    def subscribe_sticky(self, topic: str, subscription: str, border: int) -> Answer:
        """What two Key_Shared consumers get that divide the hash range."""
        ranges = ((0, border), (border + 1, 65_535))
        consumers = [
            self.client.subscribe(
                self._topic(topic),
                subscription,
                consumer_type=pulsar.ConsumerType.KeyShared,
                initial_position=pulsar.InitialPosition.Earliest,
                key_shared_policy=pulsar.ConsumerKeySharedPolicy(
                    key_shared_mode=pulsar.KeySharedMode.Sticky, sticky_ranges=[one]
                ),
            )
            for one in ranges
        ]
        got: list[list[str]] = []
        keyless: list[str] = []  # the producer's name decides who gets these, and servers choose it
        for consumer in consumers:
            receiver = _Receiver(consumer, topic, "sticky", "Exclusive")
            self._consumers[_OWN_SLOT] = receiver
            found = self.drain(topic, "sticky")["messages"]
            with_key = [one["payload"] for one in found if one["key"] or one["ordering key"]]
            keyless += [one["payload"] for one in found if one["payload"] not in with_key]
            got.append(with_key)
        del self._consumers[_OWN_SLOT]
        for consumer in consumers:
            consumer.close()
        return [*got, sorted(keyless)]

    def dead_letters(self, topic: str, subscription: str, letters: str, most: int) -> Answer:
        """What comes how often to a consumer that acknowledges nothing, and what ends in the dead-letter topic."""
        consumer = self.client.subscribe(
            self._topic(topic),
            subscription,
            consumer_type=pulsar.ConsumerType.Shared,
            initial_position=pulsar.InitialPosition.Earliest,
            negative_ack_redelivery_delay_ms=_NACK_MS,
            dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(most, self._topic(letters), "kept"),
        )
        receiver = self._consumers[_OWN_SLOT] = _Receiver(consumer, topic, subscription, "Shared")
        counts: list[list[tuple[str, int]]] = []
        for _ in range(most + 2):
            found = self.drain(topic, subscription)["messages"]
            counts.append(sorted((message["payload"], message["redeliveries"]) for message in found))
            _negative_acknowledge([(receiver, message) for message in receiver.held.values()])
            receiver.held.clear()
            time.sleep(3 * _NACK_MS / 1000)
        del self._consumers[_OWN_SLOT]
        consumer.close()
        dead = self.client.subscribe(
            self._topic(letters), "read", initial_position=pulsar.InitialPosition.Earliest
        )
        self._consumers[_OWN_SLOT] = _Receiver(dead, letters, "read", "Shared")
        found = self.drain(letters, "read")["messages"]
        del self._consumers[_OWN_SLOT]
        dead.close()
        return {"counts": counts, "dead": sorted(message["payload"] for message in found)}

    def subscribe(
        self, slot: int, topic: str, subscription: str, type: str, earliest: bool, name: str, **options: Any
    ) -> Answer:
        self.close_consumer(slot)
        position = pulsar.InitialPosition.Earliest if earliest else pulsar.InitialPosition.Latest
        consumer = self.client.subscribe(
            self._topic(topic),
            subscription,
            consumer_type=_TYPES[type],
            initial_position=position,
            consumer_name=name,
            receiver_queue_size=_QUEUE,
            start_message_id_inclusive=True,  # or the consumer that seeks leaves out what another one would get
            negative_ack_redelivery_delay_ms=_NACK_MS,
            **options,
        )
        self._consumers[slot] = _Receiver(consumer, topic, subscription, type)
        return "ok"

    def close_consumer(self, slot: int) -> Answer:
        receiver = self._consumers.pop(slot, None)
        if receiver is None:
            return "none"
        receiver.consumer.close()
        others = self._receivers(receiver.topic, receiver.subscription)
        if others and receiver.type in ("Shared", "Key_Shared"):
            # Which consumer had a message is up to the server, and so is what comes again now: ask for everything.
            self._uncounted.add((receiver.topic, receiver.subscription))
            self.drain(receiver.topic, receiver.subscription)  # or what waits at a client would come twice
            self.redeliver(receiver.topic, receiver.subscription)
        return "ok"

    def unsubscribe(self, slot: int) -> Answer:
        receiver = self._consumers.get(slot)
        if receiver is None:
            return "none"
        receiver.consumer.unsubscribe()
        del self._consumers[slot]
        return "ok"

    def _receivers(self, topic: str, subscription: str) -> list[_Receiver]:
        return [
            receiver
            for _, receiver in sorted(self._consumers.items())
            if receiver.topic == topic and receiver.subscription == subscription
        ]

    def drain(self, topic: str, subscription: str, quiet_ms: int = 300) -> Answer:
        """Everything that the consumers of a subscription get until nothing comes for a while. A server may send the
        same messages again and again, so not more than DRAINED_MAX."""
        receivers = self._receivers(topic, subscription)
        found: list[Answer] = []
        last = time.monotonic()
        while receivers and (time.monotonic() - last) * 1000 < quiet_ms and len(found) < DRAINED_MAX:
            for receiver in receivers:
                while len(found) < DRAINED_MAX:
                    try:
                        message = receiver.consumer.receive(timeout_millis=20)
                    except pulsar.Timeout:
                        break
                    last = time.monotonic()
                    receiver.held[_payload(message)] = message
                    shown = self._shown(message)
                    if (topic, subscription) in self._uncounted:
                        del shown["redeliveries"]
                    found.append(shown)
        found.sort(key=lambda message: message["topic"])  # the order of messages is that of one partition
        in_order = all(receiver.type in ("Exclusive", "Failover") for receiver in receivers)
        return {"in order": in_order, "messages": found if in_order else sorted(found, key=json.dumps)}

    def _shown(self, message: Any) -> dict[str, Any]:
        payload = _payload(message)
        sent = self.ids.setdefault(payload, message.message_id())
        return {
            "payload": payload,
            "key": message.partition_key(),
            "ordering key": message.ordering_key(),
            "properties": message.properties(),
            "event time": message.event_timestamp(),
            "redeliveries": message.redelivery_count(),
            "topic": message.topic_name().rpartition("/")[2],
            "id as sent": _id(message.message_id())[:3] == _id(sent)[:3],
        }

    def _held(self, topic: str, subscription: str, payloads: Iterable[str]) -> list[tuple[_Receiver, Any]]:
        wanted = set(payloads)
        return [
            (receiver, message)
            for receiver in self._receivers(topic, subscription)
            for payload, message in receiver.held.items()
            if payload in wanted
        ]

    def acknowledge(self, topic: str, subscription: str, payloads: list[str]) -> Answer:
        held = self._held(topic, subscription, payloads)
        for receiver, message in held:
            receiver.consumer.acknowledge(message)
            del receiver.held[_payload(message)]
        time.sleep(_FLUSH_S)
        return len(held)

    def acknowledge_cumulative(self, topic: str, subscription: str, payload: str) -> Answer:
        held = self._held(topic, subscription, [payload])
        for receiver, message in held:
            receiver.consumer.acknowledge_cumulative(message)
        time.sleep(_FLUSH_S)
        return len(held)

    def negative_acknowledge(self, topic: str, subscription: str, payloads: list[str]) -> Answer:
        held = self._held(topic, subscription, payloads)
        _negative_acknowledge(held)
        for receiver, message in held:
            del receiver.held[_payload(message)]
        time.sleep(2 * _NACK_MS / 1000)
        return len(held)

    def redeliver(self, topic: str, subscription: str) -> Answer:
        receivers = self._receivers(topic, subscription)
        for receiver in receivers:
            receiver.held.clear()
            receiver.consumer.redeliver_unacknowledged_messages()
        return len(receivers)

    def seek(self, slot: int, to: str) -> Answer:
        receiver = self._consumers.get(slot)
        if receiver is None:
            return "none"
        target = self._target(to)
        if target is None:
            return "no such message"
        for other in self._receivers(receiver.topic, receiver.subscription):
            other.held.clear()
        receiver.consumer.seek(target)
        time.sleep(0.3)  # the consumers connect again
        return "ok"

    def _target(self, to: str) -> Any:
        if to == "time 0":
            return 1
        if to == "time now":
            return int(time.time() * 1000) + 60_000
        return {"earliest": pulsar.MessageId.earliest, "latest": pulsar.MessageId.latest}.get(
            to, self.ids.get(to)
        )

    def consumer_last_id(self, slot: int) -> Answer:
        receiver = self._consumers.get(slot)
        return "none" if receiver is None else self._named(receiver.consumer.get_last_message_id())

    def _named(self, message_id: Any) -> Answer:
        """The payload of an id, or what else it is."""
        wanted = _id(message_id)
        for payload, known in self.ids.items():
            if _id(known) == wanted:
                return payload
        for payload, known in self.ids.items():
            if _id(known)[:3] == wanted[:3]:
                return f"entry of {payload}"
        return "before the first" if wanted[1] < 0 else "unknown"

    # Readers

    def create_reader(
        self, slot: int, topic: str, start: str, inclusive: bool, compacted: bool = False
    ) -> Answer:
        self.close_reader(slot)
        target = self._target(start)
        if target is None:
            return "no such message"
        self._readers[slot] = self.client.create_reader(
            self._topic(topic), target, start_message_id_inclusive=inclusive, is_read_compacted=compacted
        )
        return "ok"

    def close_reader(self, slot: int) -> Answer:
        reader = self._readers.pop(slot, None)
        if reader is None:
            return "none"
        reader.close()
        return "ok"

    def read(self, slot: int, quiet_ms: int = 300) -> Answer:
        reader = self._readers.get(slot)
        found: list[Answer] = []
        while reader is not None:
            try:
                found.append(self._shown(reader.read_next(timeout_millis=quiet_ms)))
            except pulsar.Timeout:
                break
        return {"in order": True, "messages": found}

    def has_message_available(self, slot: int) -> Answer:
        reader = self._readers.get(slot)
        return "none" if reader is None else reader.has_message_available()

    def seek_reader(self, slot: int, to: str) -> Answer:
        reader = self._readers.get(slot)
        target = self._target(to)
        if reader is None or target is None:
            return "none"
        reader.seek(target)
        time.sleep(0.3)
        return "ok"

    # Topics

    def partitions(self, topic: str) -> Answer:
        found = self.client.get_topic_partitions(self._topic(topic))
        return [name.rpartition("/")[2] for name in found]

    def compact(self, topic: str) -> Answer:
        """Compact a topic, and wait until that is done."""
        path = f"admin/v2/persistent/{{namespace}}/{topic}/compaction"
        answer = self.admin("PUT", path)
        while answer["status"] == _NOTHING:
            state = self.admin("GET", path)["body"]["status"]
            if state != "RUNNING":
                time.sleep(0.5)  # Pulsar's readers find the result a little later
                return state
            time.sleep(0.1)
        return answer

    # Admin

    def admin(self, method: str, path: str, body: Any = None, at: str | None = None) -> Answer:
        """A call of the admin API. `{namespace}` is that of the program; `at`: the body is the id of a message."""
        if at is not None:
            target = self._target(at)
            if target is None:
                return "no such message"
            ledger, entry, partition, batch = _id(target)
            body = {"ledgerId": ledger, "entryId": entry, "partitionIndex": partition, "batchIndex": batch}
            if at in ("earliest", "latest"):
                bound = -1 if at == "earliest" else (1 << 63) - 1
                body = {"ledgerId": bound, "entryId": bound, "partitionIndex": -1}
        request = urllib.request.Request(
            f"{self._http}/{path.replace('{namespace}', self.namespace)}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                text = response.read()
                if not text:
                    return {"status": _NOTHING}
                try:
                    return {"status": response.status, "body": self._normal(json.loads(text))}
                except ValueError:
                    return {"status": response.status}  # a message, in a batch or not
        except urllib.error.HTTPError as error:
            error.read()
            return {"status": error.code}

    def _normal(self, value: Any) -> Any:
        """JSON without the addresses of the server."""
        if isinstance(value, dict):
            return {key: self._normal(one) for key, one in sorted(value.items())}
        if isinstance(value, list):
            return [self._normal(one) for one in value]
        if isinstance(value, str):
            return value.replace(self._http, "HTTP").replace(self._url, "PULSAR")
        return value


def _negative_acknowledge(held: list[tuple[_Receiver, Any]]) -> None:
    """Once for each entry. The client asks for whole entries when its timer runs: for one twice, and gets it twice,
    if the timer runs between two messages of a batch."""
    entries = {
        (id(receiver), _id(message.message_id())[:3]): (receiver, message) for receiver, message in held
    }
    for receiver, message in entries.values():
        receiver.consumer.negative_acknowledge(message)


def _payload(message: Any) -> str:
    """What names a message: large ones have more behind it."""
    return str(message.data().decode().partition(" ")[0])


def _id(message_id: Any) -> tuple[int, int, int, int]:
    return (message_id.ledger_id(), message_id.entry_id(), message_id.partition(), message_id.batch_index())
