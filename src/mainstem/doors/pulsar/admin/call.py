"""One request of the admin API: who sends it, what it may do, and its answer.

Errors are `{"reason": …}`, as Pulsar's are."""

from __future__ import annotations

from typing import Any

import msgspec

from mainstem.broker.access.rules import CLUSTER_NAME, Operation, ResourceType
from mainstem.broker.broker import Broker
from mainstem.broker.namespaces import DEFAULT
from mainstem.broker.streams import stream_of
from mainstem.broker.subscriptions.service import SubscriptionSummary
from mainstem.broker.topics.service import Topic
from mainstem.doors.http.transport.requests import HttpRequest
from mainstem.doors.http.transport.responses import JSON, Response
from mainstem.doors.pulsar.caller import PulsarCaller
from mainstem.doors.pulsar.lookup import Lookup
from mainstem.doors.pulsar.producers import PulsarProducers
from mainstem.doors.pulsar.topic_names import NON_PERSISTENT, PulsarTopicName, namespace_of
from mainstem.errors import Forbidden, InvalidInput, MainstemError, NamespaceNotFound, TopicNotFound

CLUSTER = "standalone"  # the name of the one cluster that clients see
DONE = Response(204, b"", ())
NOT_ALLOWED, CONFLICT, PRECONDITION_FAILED = 405, 409, 412
_FOUND_ELSEWHERE = 307


class AdminRefusal(MainstemError):
    """A request that this API refuses, with the status that the client gets."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class ServedElsewhere(MainstemError):
    """Another broker serves the topic."""

    def __init__(self, url: str) -> None:
        super().__init__(f"another broker serves the topic: {url}")
        self.url = url


def answer(content: object, status: int = 200) -> Response:
    return Response(status, msgspec.json.encode(content), (JSON,))


def text_answer(content: str) -> Response:
    return Response(200, content.encode(), ((b"content-type", b"text/plain"),))


def found_elsewhere(url: str) -> Response:
    return Response(_FOUND_ELSEWHERE, b"", ((b"location", url.encode()),))


class AdminCall:
    def __init__(
        self,
        broker: Broker,
        lookup: Lookup,
        producers: PulsarProducers,
        caller: PulsarCaller,
        request: HttpRequest,
        path: str,
    ) -> None:
        self.broker = broker
        self.lookup = lookup
        self.producers = producers
        self.caller = caller
        self._request = request
        self.path = path  # with its escapes

    # What the client sent

    @property
    def has_body(self) -> bool:
        return self._request.body.strip() not in (b"", b"null")

    def body(self) -> Any:
        """Raises msgspec.DecodeError."""
        return msgspec.json.decode(self._request.body) if self.has_body else None

    def fields(self) -> dict[str, Any]:
        """A body that is an object; empty if there is none. Raises InvalidInput."""
        found = self.body()
        if found is None:
            return {}
        if not isinstance(found, dict):
            raise InvalidInput("the body is not a JSON object")
        return found

    def number(self) -> int:
        """A body that is a whole number. Raises InvalidInput."""
        return whole_number(self.body(), "the body")

    def text(self, name: str) -> str | None:
        """A parameter of the query."""
        return self._request.text(name)

    def flag(self, name: str) -> bool:
        return self.text(name) == "true"

    # Names

    def namespace(self, text: str) -> str:
        """The broker's name of a namespace that exists, and that the client may see. Raises NamespaceNotFound,
        InvalidName."""
        namespace = namespace_of(text, self.caller.view)
        if not self.sees(namespace):
            raise NamespaceNotFound(namespace)
        self.broker.namespaces.get(namespace)
        return namespace

    def sees(self, namespace: str) -> bool:
        """Whether the client may see a namespace: that of all clients, its own, and those of topics that it may see."""
        caller = self.caller
        if namespace == DEFAULT or caller.view is not None:
            return caller.view is None or namespace == caller.view.namespace
        return (
            caller.may(Operation.DESCRIBE, CLUSTER_NAME, ResourceType.CLUSTER)
            or caller.may(Operation.DESCRIBE, f"{namespace}/")  # a rule for all its topics
            or any(
                caller.may(Operation.DESCRIBE, topic.name)
                for topic in self.broker.namespaces.topics(namespace)
            )
        )

    def find(self, text: str) -> tuple[PulsarTopicName, Topic | None]:
        """The topic of a name, if it is in the domain that the name says."""
        name, topic = self.lookup.find(text, self.caller)
        if topic is not None and (topic.config.durability == "ephemeral") != (name.domain == NON_PERSISTENT):
            topic = None
        return name, topic

    async def topic(self, text: str, operation: Operation) -> tuple[PulsarTopicName, Topic]:
        """A topic that exists, for a client that may do this. Raises Forbidden, TopicNotFound."""
        name, topic = self.find(text)
        self.caller.check(operation, name.name)
        if topic is None and self.broker.cluster.shared:
            await self.broker.barrier()
            name, topic = self.find(text)
        if topic is None:
            raise TopicNotFound(text)
        return name, topic

    def subscriptions(self, topic: Topic, stream: int) -> list[SubscriptionSummary]:
        """Those of a partition that the client may see."""
        return [
            one
            for one in self.broker.subscriptions.of_stream(stream)
            if self.caller.may_use_subscription(topic.name, one.name, Operation.DESCRIBE)
        ]

    def check_served(self, topic: Topic) -> None:
        """Raises ServedElsewhere: consumers and producers are known to the broker that serves the topic alone."""
        if not self.lookup.serves(topic.name):
            address = self.lookup.http_address(topic.name)
            if address is not None:
                query = self._request.query_string.decode("latin-1")
                raise ServedElsewhere(f"http://{address}{self.path}" + (f"?{query}" if query else ""))

    # Rights

    def check_cluster(self, operation: Operation, what: str = "namespaces") -> None:
        """Raises Forbidden."""
        bound = self.caller.view is not None
        if bound or not self.caller.may(operation, CLUSTER_NAME, ResourceType.CLUSTER):
            raise Forbidden(f"{self.caller.principal.name} may not {operation.name} {what}")


def partitions_of(topic: Topic, name: PulsarTopicName) -> list[int]:
    """The partitions that a name means."""
    if name.partition < 0:
        return list(range(len(topic.streams)))
    stream_of(topic, name.partition)
    return [name.partition]


def whole_number(value: object, what: str) -> int:
    """Raises InvalidInput."""
    if isinstance(value, str) and value.removeprefix("-").isascii() and value.removeprefix("-").isdigit():
        value = int(value[:20])
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidInput(f"{what} is a whole number, not {str(value)[:64]!r}")
    return value


def text_map(value: object, what: str) -> dict[str, str]:
    """Raises InvalidInput."""
    if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
        raise InvalidInput(f"{what} are a JSON object of texts")
    return value
