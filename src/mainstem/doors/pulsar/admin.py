"""The part of Pulsar's admin API that clients and pulsar-admin need most, on the HTTP door: /admin/v2 and /lookup/v2.

Errors are `{"reason": …}`, as Pulsar's are."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from mainstem.broker.access.rules import CLUSTER_NAME, Operation, ResourceType
from mainstem.broker.broker import Broker
from mainstem.broker.namespaces import split
from mainstem.broker.streams import stream_of
from mainstem.broker.subscriptions.entries import MessageEntryReader
from mainstem.broker.subscriptions.service import SubscriptionSummary, TopicSchema
from mainstem.broker.topics.service import Topic
from mainstem.doors.http.transport.requests import HttpRequest
from mainstem.doors.http.transport.responses import JSON, Response
from mainstem.doors.pulsar.caller import PulsarCaller
from mainstem.doors.pulsar.commands import topic_urls, type_name
from mainstem.doors.pulsar.lookup import Lookup
from mainstem.doors.pulsar.producers import PulsarProducers
from mainstem.doors.pulsar.topic_names import (
    NON_PERSISTENT,
    PERSISTENT,
    PulsarTopicName,
    ledger_of,
    namespace_of,
    parse_topic,
    shown_namespace,
    topic_url,
)
from mainstem.errors import (
    AccessDenied,
    Forbidden,
    InvalidInput,
    InvalidName,
    MainstemError,
    NotFound,
    Rejected,
    SubscriptionBusy,
    SubscriptionNotFound,
    TopicExists,
    TopicNotFound,
    Unavailable,
)

CLUSTER = "standalone"  # the name of the one cluster that clients see
_TENANTS_KEPT = "public"
_SCHEMA_TYPES = (
    "NONE",
    "STRING",
    "JSON",
    "PROTOBUF",
    "AVRO",
    "BOOLEAN",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "FLOAT",
    "DOUBLE",
    "DATE",
    "TIME",
    "TIMESTAMP",
    "KEY_VALUE",
    "INSTANT",
    "LOCAL_DATE",
    "LOCAL_TIME",
    "LOCAL_DATE_TIME",
    "PROTOBUF_NATIVE",
)  # by number

_STATUSES: tuple[tuple[type[MainstemError], int], ...] = (
    (AccessDenied, 403),
    (NotFound, 404),
    (SubscriptionBusy, 412),
    (InvalidName, 412),
    (InvalidInput, 400),
    (Rejected, 409),
    (Unavailable, 503),
)


class _NotAllowed(Exception):
    """A path or method that this API does not have."""


class PulsarAdmin:
    def __init__(self, broker: Broker, lookup: Lookup, producers: PulsarProducers) -> None:
        self._broker = broker
        self._lookup = lookup
        self._producers = producers

    async def serve(self, request: HttpRequest, method: str, path: str) -> Response:
        """Answer a request below /admin/v2 or /lookup/v2."""
        segments = [segment for segment in path.split("/") if segment]
        caller = PulsarCaller(self._broker, request.host, insecure=False, view=request.context.view)
        caller.adopt(request.client.principal)
        call = _AdminCall(self, caller, request, method, segments[2:])
        try:
            if segments[:2] == ["lookup", "v2"]:
                return await call.lookup_topic()
            if segments[:2] != ["admin", "v2"]:
                raise _NotAllowed
            return await call.answer()
        except _NotAllowed:
            return _json({"reason": f"there is nothing at {method} /{'/'.join(segments)}"}, 404)
        except MainstemError as error:
            status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
            return _json({"reason": str(error)}, status)
        except (msgspec.DecodeError, ValueError, IndexError) as error:
            return _json({"reason": f"the request is not valid: {error}"}, 400)

    @property
    def broker(self) -> Broker:
        return self._broker

    @property
    def topics(self) -> Lookup:
        return self._lookup

    @property
    def producers(self) -> PulsarProducers:
        return self._producers


def _json(content: object, status: int = 200) -> Response:
    return Response(status, msgspec.json.encode(content), (JSON,))


_DONE = Response(204, b"", ())


class _AdminCall:
    """One request. `rest` is the path below /admin/v2."""

    def __init__(
        self, admin: PulsarAdmin, caller: PulsarCaller, request: HttpRequest, method: str, rest: list[str]
    ) -> None:
        self._admin = admin
        self._broker = admin.broker
        self._caller = caller
        self._request = request
        self._method = method
        self._rest = rest

    async def answer(self) -> Response:
        match self._rest:
            case ["clusters"] if self._method == "GET":
                return _json([CLUSTER])
            case ["clusters", name] if self._method == "GET" and name == CLUSTER:
                return _json({"brokerServiceUrl": self._admin.topics.broker_url("")})
            case ["brokers", "health" | "ready"]:
                return Response(200, b"ok", ((b"content-type", b"text/plain"),))
            case ["brokers", "version"]:
                return Response(200, b"4.0.0", ((b"content-type", b"text/plain"),))
            case ["brokers", _]:
                return _json([self._admin.topics.broker_url("").partition("://")[2]])
            case ["tenants", *rest]:
                return await self._tenants(rest)
            case ["namespaces", tenant] if self._method == "GET":
                return _json([name for name in self._namespaces() if name.split("/")[0] == tenant])
            case ["namespaces", tenant, namespace, *rest]:
                return await self._namespace(f"{tenant}/{namespace}", rest)
            case [("persistent" | "non-persistent") as domain, tenant, namespace] if self._method == "GET":
                return self._topic_list(domain, f"{tenant}/{namespace}")
            case [("persistent" | "non-persistent") as domain, tenant, namespace, "partitioned"] if (
                self._method == "GET"
            ):
                return self._partitioned_list(domain, f"{tenant}/{namespace}")
            case [("persistent" | "non-persistent") as domain, tenant, namespace, topic, *rest]:
                return await self._topic(f"{domain}://{tenant}/{namespace}/{topic}", rest)
            case ["schemas", tenant, namespace, topic, *rest]:
                return await self._schemas(f"persistent://{tenant}/{namespace}/{topic}", rest)
        raise _NotAllowed

    async def lookup_topic(self) -> Response:
        match self._rest:
            case ["topic", domain, tenant, namespace, topic] if self._method == "GET":
                name = parse_topic(f"{domain}://{tenant}/{namespace}/{topic}", self._caller.view)
                self._caller.check(Operation.DESCRIBE, name.name)
                url = self._admin.topics.broker_url(name.name)
                tls = url.startswith("pulsar+ssl")
                return _json(
                    {
                        "brokerUrl": None if tls else url,
                        "brokerUrlTls": url if tls else None,
                        "httpUrl": None,
                        "httpUrlTls": None,
                        "nativeUrl": url,
                    }
                )
        raise _NotAllowed

    # Tenants and namespaces

    def _namespaces(self) -> list[str]:
        view = self._caller.view
        return [
            shown_namespace(one.name)
            for one in self._broker.namespaces.all()
            if (view is None or one.name == view.namespace) and "/" in shown_namespace(one.name)
        ]

    async def _tenants(self, rest: list[str]) -> Response:
        tenants = sorted({name.split("/")[0] for name in self._namespaces()} | {_TENANTS_KEPT})
        match rest:
            case [] if self._method == "GET":
                return _json(tenants)
            case [tenant] if self._method == "GET":
                if tenant not in tenants:
                    return _json({"reason": "Tenant does not exist"}, 404)
                return _json({"adminRoles": [], "allowedClusters": [CLUSTER]})
            case [tenant] if self._method == "PUT":
                # A tenant is the first word of its namespaces: it exists once it has one.
                return _json({"reason": "Tenant already exist"}, 409) if tenant in tenants else _DONE
            case [_] if self._method == "POST":
                return _DONE
            case [tenant] if self._method == "DELETE":
                if any(name.split("/")[0] == tenant for name in self._namespaces()):
                    return _json({"reason": "The tenant still has active namespaces"}, 409)
                return _DONE
        raise _NotAllowed

    async def _namespace(self, text: str, rest: list[str]) -> Response:
        namespace = namespace_of(text, self._caller.view)
        namespaces = self._broker.namespaces
        match rest:
            case [] if self._method == "PUT":
                self._check_cluster(Operation.CREATE)
                if namespaces.exists(namespace):
                    return _json({"reason": "Namespace already exists"}, 409)
                await namespaces.create(namespace)
                return _DONE
            case [] if self._method == "DELETE":
                self._check_cluster(Operation.ALTER)
                namespaces.get(namespace)
                await namespaces.delete(namespace)
                return _DONE
            case [] if self._method == "GET":
                namespaces.get(namespace)
                return _json({"replication_clusters": [CLUSTER], "bundles": {"numBundles": 1}})
            case ["topics"] if self._method == "GET":
                mode = self._request.text("mode") or "PERSISTENT"
                domains = {
                    "PERSISTENT": (PERSISTENT,),
                    "NON_PERSISTENT": (NON_PERSISTENT,),
                }.get(mode, (PERSISTENT, NON_PERSISTENT))
                return _json([url for domain in domains for url in self._urls(domain, namespace)])
        raise _NotAllowed

    def _check_cluster(self, operation: Operation) -> None:
        bound = self._caller.view is not None
        if bound or not self._caller.may(operation, CLUSTER_NAME, ResourceType.CLUSTER):
            raise Forbidden(f"{self._caller.principal.name} may not {operation.name} namespaces")

    # Topics

    def _urls(self, domain: str, namespace: str) -> list[str]:
        self._broker.namespaces.get(namespace)
        return [
            url
            for topic in self._broker.namespaces.topics(namespace)
            if self._caller.may(Operation.DESCRIBE, topic.name)
            for url in topic_urls(topic)
            if url.startswith(f"{domain}://")
        ]

    def _topic_list(self, domain: str, text: str) -> Response:
        return _json(self._urls(domain, namespace_of(text, self._caller.view)))

    def _partitioned_list(self, domain: str, text: str) -> Response:
        namespace = namespace_of(text, self._caller.view)
        self._broker.namespaces.get(namespace)
        return _json(
            [
                topic_url(topic)
                for topic in self._broker.namespaces.topics(namespace)
                if len(topic.streams) > 1
                and self._caller.may(Operation.DESCRIBE, topic.name)
                and topic_url(topic).startswith(f"{domain}://")
            ]
        )

    async def _topic(self, text: str, rest: list[str]) -> Response:
        name, topic = self._admin.topics.find(text, self._caller)
        match self._method, rest:
            case "PUT", []:
                return await self._create(name, 1)
            case "PUT", ["partitions"]:
                return await self._create(name, self._number())
            case "GET", ["partitions"]:
                self._caller.check(Operation.DESCRIBE, name.name)
                create = self._request.text("checkAllowAutoCreation") == "true"
                partitions = await self._admin.topics.partitions(text, self._caller, create=create)
                return _json({"partitions": partitions})
        if topic is None:
            self._caller.check(Operation.DESCRIBE, name.name)
            raise TopicNotFound(text)
        match self._method, rest:
            case "POST", ["partitions"]:
                self._caller.check(Operation.ALTER, topic.name)
                await self._broker.add_partitions(topic.name, self._number())
                return _DONE
            case "DELETE", ([] | ["partitions"]):
                return await self._delete(topic)
            case "PUT", ["unload"]:
                return _DONE
            case "GET", ["stats"]:
                self._caller.check(Operation.DESCRIBE, topic.name)
                return _json(self._stats(topic, max(name.partition, 0)))
            case "GET", ["partitioned-stats"]:
                self._caller.check(Operation.DESCRIBE, topic.name)
                stats = {topic_url(topic, at): self._stats(topic, at) for at in range(len(topic.streams))}
                total = {
                    key: sum(row[key] for row in stats.values()) for key in ("msgInCounter", "storageSize")
                }
                return _json({**total, "metadata": {"partitions": len(stats)}, "partitions": stats})
            case "GET", ["internalStats"]:
                self._caller.check(Operation.DESCRIBE, topic.name)
                return _json(self._internal_stats(topic, max(name.partition, 0)))
            case "GET", ["lastMessageId"]:
                self._caller.check(Operation.READ, topic.name)
                return await self._last_message_id(topic, name.partition)
            case "GET", ["subscriptions"]:
                self._caller.check(Operation.DESCRIBE, topic.name)
                found = {
                    one.name
                    for stream in self._streams_of(topic, name)
                    for one in self._broker.subscriptions.of_stream(stream)
                }
                return _json(sorted(found))
        match rest:
            case ["subscription", subscription, *action]:
                return await self._subscription(topic, name, subscription, action)
        raise _NotAllowed

    async def _create(self, name: PulsarTopicName, partitions: int) -> Response:
        if name.partition >= 0:
            name = name.whole()
        try:
            await self._admin.topics.create(name, self._caller, partitions, exist_ok=False)
        except TopicExists:
            return _json({"reason": "This topic already exists"}, 409)
        return _DONE

    async def _delete(self, topic: Topic) -> Response:
        self._caller.check(Operation.DELETE, topic.name)
        subscriptions = self._broker.subscriptions
        used = any(self._admin.producers.of_stream(stream) for stream in topic.streams) or any(
            one.consumers for stream in topic.streams for one in subscriptions.of_stream(stream)
        )
        if used and self._request.text("force") != "true":
            return _json({"reason": "Topic has active producers/subscriptions"}, 412)
        await self._broker.delete_topic(topic.name)
        self._admin.producers.close_topic(topic.streams)
        self._caller.audit("DELETE", topic.name, "done")
        return _DONE

    @staticmethod
    def _streams_of(topic: Topic, name: PulsarTopicName) -> tuple[int, ...]:
        return topic.streams if name.partition < 0 else (stream_of(topic, name.partition),)

    def _number(self) -> int:
        number = msgspec.json.decode(self._request.body, type=int)
        if number < 1:
            raise InvalidInput("a partitioned topic has at least one partition")
        return number

    # State

    def _stats(self, topic: Topic, partition: int) -> dict[str, Any]:
        state = self._broker.partition(topic.name, partition)
        stream = stream_of(topic, partition)
        publishers = self._admin.producers.of_stream(stream)
        return {
            "msgInCounter": state.end,
            "bytesInCounter": state.bytes,
            "storageSize": state.bytes,
            "backlogSize": state.bytes,
            "publishers": [
                {
                    "producerName": one.name,
                    "producerId": one.id,
                    "msgInCounter": one.messages,
                    "address": one.client.caller.host,
                }
                for one in publishers
            ],
            "subscriptions": {
                one.name: _subscription_stats(one) for one in self._broker.subscriptions.of_stream(stream)
            },
            "replication": {},
        }

    def _internal_stats(self, topic: Topic, partition: int) -> dict[str, Any]:
        state = self._broker.partition(topic.name, partition)
        ledger = ledger_of(topic)
        stream = stream_of(topic, partition)
        return {
            "entriesAddedCounter": state.end,
            "numberOfEntries": state.records,
            "totalSize": state.bytes,
            "lastConfirmedEntry": f"{ledger}:{state.end - 1}",
            "ledgers": [{"ledgerId": ledger, "entries": state.records, "size": state.bytes}],
            "cursors": {
                one.name: {
                    "markDeletePosition": f"{ledger}:{one.mark - 1}",
                    "messagesConsumedCounter": one.mark,
                }
                for one in self._broker.subscriptions.of_stream(stream)
            },
        }

    async def _last_message_id(self, topic: Topic, partition: int) -> Response:
        stream = stream_of(topic, max(partition, 0))
        reader = MessageEntryReader(self._broker.streams, stream)
        entry = await reader.last(*self._broker.streams.bounds(stream))
        base = -1 if entry is None else entry.base
        return _json({"ledgerId": ledger_of(topic), "entryId": base, "partitionIndex": partition})

    # Subscriptions

    async def _subscription(
        self, topic: Topic, name: PulsarTopicName, subscription: str, action: list[str]
    ) -> Response:
        self._caller.check(Operation.READ, topic.name)
        self._caller.check_subscription(topic.name, subscription)
        subscriptions, streams = self._broker.subscriptions, self._broker.streams
        partitions = range(len(topic.streams)) if name.partition < 0 else (name.partition,)
        match self._method, action:
            case "PUT", []:
                created = [
                    await subscriptions.create(topic, at, subscription, self._created_at(topic, at))
                    for at in partitions
                ]
                return _DONE if any(created) else _json({"reason": "Subscription already exists"}, 409)
        known = [at for at in partitions if subscriptions.exists(stream_of(topic, at), subscription)]
        if not known:
            raise SubscriptionNotFound(subscription)
        each: Callable[[int], Awaitable[None]]
        match self._method, action:
            case "DELETE", []:
                force = self._request.text("force") == "true"

                async def each(at: int) -> None:
                    await subscriptions.delete(topic, at, subscription, force=force)

            case "POST", ["skip_all"]:

                async def each(at: int) -> None:
                    await subscriptions.skip(topic, at, subscription, streams.bounds(stream_of(topic, at))[1])

            case "POST", ["skip", count]:
                skipped = int(count)

                async def each(at: int) -> None:
                    stream = stream_of(topic, at)
                    mark = next(
                        one.mark for one in subscriptions.of_stream(stream) if one.name == subscription
                    )
                    await subscriptions.skip(topic, at, subscription, mark + skipped)

            case "POST", ["resetcursor", time]:
                since = int(time)

                async def each(at: int) -> None:
                    stream = stream_of(topic, at)
                    found = await streams.at_time(stream, since)
                    mark = streams.bounds(stream)[1] if found is None else found[0]
                    await subscriptions.move(topic, at, subscription, mark)

            case _:
                raise _NotAllowed
        for at in known:
            await each(at)
        return _DONE

    def _created_at(self, topic: Topic, partition: int) -> int:
        """Where a subscription that is created here begins: at a MessageId of the body, else at the end."""
        first, end = self._broker.streams.bounds(stream_of(topic, partition))
        if not self._request.body:
            return end
        wanted = msgspec.json.decode(self._request.body, type=dict[str, Any])
        ledger, entry = int(wanted.get("ledgerId", 1 << 62)), int(wanted.get("entryId", 0))
        if ledger > 1 << 60:
            return end
        return min(max(entry, first), end) if ledger == ledger_of(topic) else first

    # Schemas

    async def _schemas(self, text: str, rest: list[str]) -> Response:
        name, topic = self._admin.topics.find(text, self._caller)
        self._caller.check(Operation.DESCRIBE, name.name)
        if topic is None:
            raise TopicNotFound(text)
        subscriptions = self._broker.subscriptions
        versions = subscriptions.schemas(topic)
        match self._method, rest:
            case "GET", ["schema"] if versions:
                return _json(_schema(versions, len(versions) - 1))
            case "GET", ["schema", number] if 0 <= int(number) < len(versions):
                return _json(_schema(versions, int(number)))
            case "GET", ["schemas"]:
                return _json({"getSchemaResponses": [_schema(versions, at) for at in range(len(versions))]})
            case "POST", ["schema"]:
                self._caller.check(Operation.WRITE, topic.name)
                body = msgspec.json.decode(self._request.body, type=dict[str, Any])
                kind = _SCHEMA_TYPES.index(str(body.get("type", "NONE")).upper())
                properties = tuple(
                    sorted((str(k), str(v)) for k, v in (body.get("properties") or {}).items())
                )
                data = str(body.get("schema", "")).encode()
                schema = TopicSchema(split(topic.name)[1], kind, data, properties)
                return _json({"version": {"version": await subscriptions.register_schema(topic, schema)}})
            case "DELETE", ["schema"]:
                self._caller.check(Operation.ALTER, topic.name)
                await subscriptions.delete_schemas(topic)
                return _json({"version": {"version": len(versions)}})
            case "GET", _:
                return _json({"reason": "Schema not found"}, 404)
        raise _NotAllowed


def _schema(versions: tuple[TopicSchema, ...], number: int) -> dict[str, Any]:
    schema = versions[number]
    try:
        data = schema.data.decode()
    except UnicodeDecodeError:
        data = base64.b64encode(schema.data).decode()
    kind = _SCHEMA_TYPES[schema.type] if 0 <= schema.type < len(_SCHEMA_TYPES) else str(schema.type)
    return {
        "version": number,
        "type": kind,
        "timestamp": 0,
        "data": data,
        "properties": dict(schema.properties),
    }


def _subscription_stats(one: SubscriptionSummary) -> dict[str, Any]:
    return {
        "msgBacklog": one.backlog,
        "unackedMessages": sum(consumer.unacked for consumer in one.consumers),
        "type": type_name(one.type),
        "isDurable": one.durable,
        "consumers": [
            {
                "consumerName": consumer.name,
                "availablePermits": consumer.permits,
                "unackedMessages": consumer.unacked,
                "msgOutCounter": consumer.delivered,
            }
            for consumer in one.consumers
        ],
        "subscriptionProperties": dict(one.properties),
    }
