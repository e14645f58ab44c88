"""Random principals and rules: every route of Pulsar's admin API and every operation of the S3 door decides as the
model of `test_rules_of_every_route` does."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from mainstem.address import Address
from mainstem.api.access import ALLOW, DENY, LITERAL, PREFIXED
from mainstem.api.route import Scope
from mainstem.broker.access.options import AccessOptions
from mainstem.broker.access.passwords import parse_users
from mainstem.broker.access.principal import Principal
from mainstem.doors.budget import Budget
from mainstem.doors.http.transport.origins import OriginPolicy
from mainstem.doors.pulsar.admin import absent, policies
from mainstem.doors.pulsar.admin.routes import _ROUTES
from mainstem.doors.pulsar.door import PulsarDoor
from mainstem.doors.s3 import bucket_operations, object_operations, upload_operations
from mainstem.doors.s3.app import S3App
from mainstem.doors.s3.sending import FileSender
from mainstem.errors import MainstemError
from mainstem.ledger.access_rules import AccessRule

from .test_all_doors import House, basic, house
from .test_rules_of_every_route import (
    ALL,
    ALTER,
    ALTER_CONFIGS,
    BUCKET,
    CLUSTER,
    CREATE,
    DELETE,
    DESCRIBE,
    GROUP,
    READ,
    TOPIC,
    WRITES,
    Model,
)

_ROUNDS = 3
_PEOPLE = ("ann", "bob")
_NAMES = (
    "*",
    "a",
    "b",
    "a.",
    "a.t",
    "b.t",
    "acme/",
    "acme/shop/a.t",
    "sub",
    "bucket-a",
    "bucket-a/in/",
    "bucket",
)


class Client(NamedTuple):
    headers: dict[str, str]
    principal: Principal
    model: Model


async def _clients(doors: House, chance: random.Random, rules: list[AccessRule]) -> list[Client]:
    """Two users, and an API key of random rights."""
    found = [Client(basic(who, who), Principal(f"User:{who}"), Model(who, rules)) for who in _PEOPLE]
    for old in doors.broker.administration.listed_keys():
        await doors.broker.security.revoke_key(old.id)
    scopes = chance.randint(1, 15)
    prefixes = chance.choice(((), ("a",), ("acme/",), ("a.t", "sub"), ("bucket-a",), ("b",)))
    _, secret = await doors.broker.administration.create_key("key", Scope(scopes), prefixes)
    principal = doors.broker.authentication.by_key(secret.encode())
    assert principal is not None
    bearer = {"authorization": f"Bearer {secret}"}
    return [*found, Client(bearer, principal, Model("key", rules, scopes, prefixes))]


def _rule(chance: random.Random) -> AccessRule:
    kind = chance.choice((TOPIC, TOPIC, TOPIC, GROUP, CLUSTER, BUCKET, BUCKET))
    name = "kafka-cluster" if kind == CLUSTER else chance.choice(_NAMES)
    operations = (ALL, ALL, READ, WRITES, CREATE, DELETE, ALTER, DESCRIBE, ALTER_CONFIGS)
    return AccessRule(
        kind,
        name,
        LITERAL if name == "*" or kind == CLUSTER else chance.choice((LITERAL, PREFIXED)),
        chance.choice(("User:ann", "User:bob", "User:key", "User:*")),
        "*",
        chance.choice(operations),
        chance.choice((ALLOW, ALLOW, ALLOW, DENY)),
    )


async def _each_client(tmp_path: Path, run: Callable[[House, Client, random.Random, str], Any]) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    chance = random.Random(seed)
    access = AccessOptions(
        users=tuple(parse_users("boss:boss,ann:ann,bob:bob")),
        logins=True,
        super_users=frozenset({"User:boss"}),
    )
    async with house(tmp_path, access) as doors:
        for _ in range(_ROUNDS):
            rules = [_rule(chance) for _ in range(chance.randrange(24))]
            await doors.broker.security.delete_rules(list(doors.broker.security.access_rules))
            await doors.broker.security.put_rules(rules)
            for who in await _clients(doors, chance, rules):
                await run(doors, who, chance, f"seed {seed}: {who.principal.name} {who.model.rules}")


# Pulsar's admin API

TOPICS = {"persistent/public/default/a.t": "a.t", "persistent/public/default/b.t": "b.t"}
TOPICS["persistent/acme/shop/a.t"] = "acme/shop/a.t"
SPACES = {"public/default": "default", "acme/shop": "acme/shop"}
_CLUSTER_NAME = "kafka-cluster"

_CREATES, _GROUP_TOO, _GROUP_HIDDEN = "creates", "group too", "group hidden"
_SUBSCRIPTION = "subscription/{subscription}"

# What a route of a topic needs, by its method and what follows the topic.
_OF_TOPIC: dict[tuple[str, str], tuple[Any, ...]] = {
    ("PUT", ""): (_CREATES,),
    ("DELETE", ""): (DELETE,),
    ("GET", "partitions"): (DESCRIBE,),
    ("PUT", "partitions"): (_CREATES,),
    ("POST", "partitions"): (ALTER,),
    ("DELETE", "partitions"): (DELETE,),
    ("POST", "createMissedPartitions"): (ALTER,),
    ("DELETE", "truncate"): (DELETE,),
    ("PUT", "unload"): (ALTER,),
    **dict.fromkeys(
        (
            ("GET", name)
            for name in (
                *(
                    "stats",
                    "partitioned-stats",
                    "internalStats",
                    "partitioned-internalStats",
                    "internal-info",
                ),
                *("compaction", "properties", "subscriptions", "bundle", "schemaCompatibilityStrategy"),
                *("publishRate", "dispatchRate"),
            )
        ),
        (DESCRIBE,),
    ),
    ("PUT", "backlogSize"): (DESCRIBE,),
    ("DELETE", "policies"): (ALTER_CONFIGS,),
    ("POST", "terminate"): (ALTER,),
    ("POST", "terminate/partitions"): (ALTER,),
    ("PUT", "compaction"): (ALTER,),
    **dict.fromkeys(
        (
            *(("PUT", "properties"), ("DELETE", "properties")),
            *(("PUT", "schemaCompatibilityStrategy"), ("DELETE", "schemaCompatibilityStrategy")),
            *((method, name) for method in ("POST", "DELETE") for name in ("publishRate", "dispatchRate")),
        ),
        (ALTER_CONFIGS,),
    ),
    ("GET", "permissions"): ((CLUSTER, DESCRIBE),),
    ("POST", "permissions/{role}"): ((CLUSTER, ALTER),),
    ("DELETE", "permissions/{role}"): ((CLUSTER, ALTER),),
    **dict.fromkeys(
        (
            *(("GET", "lastMessageId"), ("GET", "messageid/{time}"), ("GET", "examinemessage")),
            ("GET", "ledger/{ledger}/entry/{entry}"),
        ),
        (READ,),
    ),
    ("POST", "all_subscription/expireMessages/{seconds}"): (READ, _GROUP_TOO),
    **dict.fromkeys(
        (
            *(("PUT", _SUBSCRIPTION), ("DELETE", _SUBSCRIPTION), ("PUT", f"{_SUBSCRIPTION}/properties")),
            *(
                ("POST", f"{_SUBSCRIPTION}/{name}")
                for name in (
                    *("skip_all", "skip/{count}", "resetcursor/{time}", "resetcursor"),
                    *("expireMessages/{seconds}", "expireMessages", "analyzeBacklog"),
                )
            ),
            ("GET", f"{_SUBSCRIPTION}/position/{{position}}"),
        ),
        (READ, _GROUP_TOO),
    ),
    ("GET", f"{_SUBSCRIPTION}/properties"): (DESCRIBE, _GROUP_HIDDEN),
}
_OF_SCHEMAS = {
    **dict.fromkeys((("GET", "schema"), ("GET", "schema/{version}"), ("GET", "schemas")), (DESCRIBE,)),
    **dict.fromkeys((("GET", "metadata"), ("POST", "version"), ("POST", "compatibility")), (DESCRIBE,)),
    ("POST", "schema"): (WRITES,),
    ("DELETE", "schema"): (ALTER,),
}
# Of a namespace: whether the client must see it, and what it needs of the cluster. A GET needs to see it.
_CHANGES_SPACE = (CLUSTER, ALTER)
_OF_SPACE: dict[tuple[str, str], tuple[Any, ...]] = {
    ("PUT", ""): ((CLUSTER, CREATE),),
    ("DELETE", ""): (_CHANGES_SPACE,),
    ("POST", "replication"): (),
    ("POST", "allowedClusters"): (),
    ("PUT", "unload"): (_CHANGES_SPACE,),
    ("PUT", "{bundle}/unload"): (_CHANGES_SPACE,),
    ("GET", "permissions"): ((CLUSTER, DESCRIBE),),
    ("GET", "permissions/subscription"): ((CLUSTER, DESCRIBE),),
    ("POST", "permissions/subscription/{subscription}"): (_CHANGES_SPACE,),
    ("DELETE", "permissions/{subscription}/{role}"): (_CHANGES_SPACE,),
    ("POST", "permissions/{role}"): (_CHANGES_SPACE,),
    ("DELETE", "permissions/{role}"): (_CHANGES_SPACE,),
    ("PUT", "schemaCompatibilityStrategy"): (_CHANGES_SPACE,),
    **{
        (method, name): ((CLUSTER, ALTER_CONFIGS),)
        for method in ("POST", "DELETE")
        for name in ("publishRate", "dispatchRate")
    },
}
_EVERY_SUBSCRIPTION = {
    ("POST", f"{bundle}{name}")
    for bundle in ("", "{bundle}/")
    for name in ("clearBacklog", "clearBacklog/{subscription}", "unsubscribe/{subscription}")
}
_FREE = {
    *("admin/v2/clusters", "admin/v2/clusters/{cluster}", "admin/v2/clusters/{cluster}/peers"),
    *("admin/v2/clusters/{cluster}/failureDomains", "admin/v2/brokers", "admin/v2/brokers/{cluster}"),
    *("admin/v2/brokers/health", "admin/v2/brokers/ready", "admin/v2/brokers/version"),
    *("admin/v2/brokers/leaderBroker", "admin/v2/brokers/internal-configuration"),
    *("admin/v2/brokers/configuration", "admin/v2/brokers/configuration/runtime"),
    *("admin/v2/brokers/configuration/values", "admin/v2/broker-stats/{kind}"),
    *("admin/v2/tenants", "admin/v2/namespaces/{tenant}"),
    *("admin/v2/broker-stats/{kind}/{name}", "admin/v2/broker-stats/{kind}/{namespace}"),
}
_LISTS_OF_SPACES = {
    *("admin/v2/{domain}/{namespace}", "admin/v2/{domain}/{namespace}/partitioned"),
    "admin/v2/non-persistent/{namespace}/{bundle}",
}
_OF_BROKERS = {"admin/v2/brokers/backlog-quota-check": ALTER}
_FREE_GETS = {
    "allowedClusters",
    "bundles",
    "replication",
    "topics",
    "",
    "schemaCompatibilityStrategy",
    "publishRate",
    "dispatchRate",
}
_OF_TENANTS = {"GET": DESCRIBE, "PUT": CREATE, "POST": ALTER, "DELETE": ALTER}


class AdminNeed(NamedTuple):
    """What a request needs."""

    allowed: Callable[[Model], bool]


def _sees_space(who: Model, space: str) -> bool:
    return (
        space == "default"
        or who.may(DESCRIBE, CLUSTER, _CLUSTER_NAME)
        or who.may(DESCRIBE, TOPIC, f"{space}/")
        or any(who.may(DESCRIBE, TOPIC, name) for name in TOPICS.values() if name.startswith(f"{space}/"))
    )


def _group(topic: str) -> str:
    """The subscription of a topic, as access rules name it."""
    return f"{topic.rpartition('/')[0]}/sub".removeprefix("/")


def _meets(who: Model, needs: tuple[Any, ...], topic: str) -> bool:
    group = _group(topic)
    for need in needs:
        if need == _CREATES:
            met = who.may(CREATE, CLUSTER, _CLUSTER_NAME) or who.may(CREATE, TOPIC, topic)
        elif need == _GROUP_TOO:
            met = who.may(READ, GROUP, group)
        elif need == _GROUP_HIDDEN:
            met = who.may(DESCRIBE, GROUP, group)
        elif isinstance(need, tuple):
            met = who.may(need[1], CLUSTER, _CLUSTER_NAME)
        else:
            met = who.may(need, TOPIC, topic)
        if not met:
            return False
    return True


def _need(method: str, parts: tuple[str, ...], topic: str, space: str) -> AdminNeed:
    """What the model says of a route. KeyError: the route is new, and nobody said yet what it needs."""
    path = "/".join(parts)
    if path in _FREE:
        return AdminNeed(lambda who: True)
    if path in _OF_BROKERS:
        return AdminNeed(lambda who: who.may(_OF_BROKERS[path], CLUSTER, _CLUSTER_NAME))
    if path == "admin/v2/tenants/{tenant}":
        return AdminNeed(lambda who: who.may(_OF_TENANTS[method], CLUSTER, _CLUSTER_NAME))
    if path in (
        "admin/v2/namespaces/grantPermissionsOnTopics",
        "admin/v2/namespaces/revokePermissionsOnTopics",
    ):
        return AdminNeed(lambda who: who.may(ALTER, CLUSTER, _CLUSTER_NAME))
    if path in _LISTS_OF_SPACES:
        return AdminNeed(lambda who: _sees_space(who, space))
    if path.startswith(("admin/v2/schemas/{plain_topic}/", "lookup/v2/topic/{topic}")):
        rest = path.removeprefix("admin/v2/schemas/{plain_topic}/")
        needs = _OF_SCHEMAS[method, rest] if rest != path else (DESCRIBE,)
        return AdminNeed(lambda who: _meets(who, needs, topic))
    base, _, rest = path.partition("}")
    rest = rest.removeprefix("/")
    if rest in policies.NO_EFFECT or rest == "delayedDelivery":
        return AdminNeed(lambda who: True)
    if base.startswith("admin/v2/{topic"):
        if rest in policies.TOPIC_POLICIES or rest == policies.BACKLOG_QUOTA_MAP:
            needs = (DESCRIBE,) if method == "GET" else (ALTER_CONFIGS,)
        else:
            needs = _OF_TOPIC[method, rest]
        return AdminNeed(lambda who: _meets(who, needs, topic))
    assert base.startswith("admin/v2/namespaces/{namespace"), path
    if (method, rest) in _EVERY_SUBSCRIPTION:
        inside = [
            name for name in TOPICS.values() if name.rpartition("/")[0] == space.removeprefix("default")
        ]
        return AdminNeed(
            lambda who: (
                _sees_space(who, space) and all(_meets(who, (READ, _GROUP_TOO), name) for name in inside)
            )
        )
    policy = rest in policies.NAMESPACE_POLICIES or rest == policies.BACKLOG_QUOTA_MAP
    if method == "GET" and (policy or (rest in _FREE_GETS and (method, rest) not in _OF_SPACE)):
        return AdminNeed(lambda who: _sees_space(who, space))
    space_needs = (_CHANGES_SPACE,) if policy else _OF_SPACE[method, rest]
    creates = (method, rest) == ("PUT", "")
    return AdminNeed(lambda who: _meets(who, space_needs, "") and (creates or _sees_space(who, space)))


_VALUES = {
    "{tenant}": "acme",
    "{domain}": "persistent",
    "{subscription}": "sub",
    "{role}": "low",
    "{cluster}": "standalone",
    "{kind}": "topics",
    "{bundle}": "0x00000000_0xffffffff",
}
_BODIES = {
    **dict.fromkeys(
        ("grantPermissionsOnTopics", "revokePermissionsOnTopics"),
        '[{"topic": "persistent://public/default/a.t", "role": "low", "actions": ["produce"]}]',
    ),
    "permissions": '["produce"]',
    "partitions": "2",
    "replication": '["standalone"]',
    "subscription": '{"ledgerId": -1, "entryId": -1}',
}

_SHOWS_SUBSCRIPTIONS = (
    "subscriptions",
    "stats",
    "partitioned-stats",
    "internalStats",
    "partitioned-internalStats",
)
_OTHER_BODIES = (
    "1",
    "true",
    '"FULL"',
    '{"retentionTimeInMinutes": 1, "retentionSizeInMB": 1}',
    '{"limitSize": 1, "policy": "producer_exception"}',
    '{"type": "STRING", "schema": "", "properties": {}}',
)


async def test_every_route_of_the_admin_api_decides_as_the_model_does(tmp_path: Path) -> None:
    doors_of: dict[int, PulsarDoor] = {}

    async def run(doors: House, who: Client, chance: random.Random, told: str) -> None:
        if not doors_of:
            pulsar = doors_of[0] = PulsarDoor(doors.broker)
            await pulsar.start(Address("127.0.0.1", 0))
            doors.api.context.mounted.update(admin=pulsar, lookup=pulsar)
        for (method, _), routes in _ROUTES.items():
            for route in routes:
                if route.handler.__module__ == absent.__name__:
                    continue  # says that there is no such thing here
                await _restore(doors)
                topic, space = chance.choice((*TOPICS,)), chance.choice((*SPACES,))
                need = _need(method, route.parts, TOPICS[topic], SPACES[space])
                path = "/" + "/".join(_segment(part, topic, space) for part in route.parts)
                allowed = need.allowed(who.model)
                known = next((text for part, text in _BODIES.items() if part in route.parts), "{}")
                for body in (
                    (known,)
                    if allowed or method not in ("POST", "PUT")
                    else (known, *chance.sample(_OTHER_BODIES, 2))
                ):
                    answer = await httpx.AsyncClient.send(
                        doors.api.client,
                        doors.api.client.build_request(method, path, content=body, headers=who.headers),
                    )
                    where = f"{method} {path} {body} allowed: {allowed}; {answer.status_code} {answer.text}; {told}"
                    assert answer.status_code < 500, where
                    if allowed:
                        assert answer.status_code not in (401, 403), where
                    else:  # maybe for its body, which some routes read first
                        assert answer.status_code >= 400, where
                    if route.parts[-1] in _SHOWS_SUBSCRIPTIONS and answer.status_code == 200:
                        shown = '"sub"' in answer.text
                        assert shown == who.model.may(DESCRIBE, GROUP, _group(TOPICS[topic])), where

    try:
        await _each_client(tmp_path, run)
    finally:
        if doors_of:
            await doors_of[0].stop(1)


def _segment(part: str, topic: str, space: str) -> str:
    named = {"{topic}": topic, "{plain_topic}": topic.partition("/")[2], "{namespace}": space}
    return named.get(part) or _VALUES.get(part, "1" if part.startswith("{") else part)


async def _restore(doors: House) -> None:
    """Make again what a call deleted."""
    broker = doors.broker
    if not broker.namespaces.exists("acme/shop"):
        await broker.namespaces.create("acme/shop")
    for name in TOPICS.values():
        topic = broker.streams.get(name)
        if topic is not None and topic.config.terminated:
            await broker.delete_topic(name)
            topic = None
        if topic is None:
            topic = await broker.create_topic(name)
        for at, stream in enumerate(topic.streams):
            if not broker.subscriptions.exists(stream, "sub"):
                await broker.subscriptions.create(topic, at, "sub", 0)


# S3


class _KnownS3(S3App):
    """The application of the S3 door, for a client that has authenticated."""

    who: Principal

    def authenticate(self, *_: Any) -> Any:
        return self.who, None, None


class S3Call(NamedTuple):
    method: str
    query: str
    allowed: Callable[[Model, str, str], bool]  # by bucket and key
    body: bytes = b""
    key: bool = True
    copies: bool = False


def _may(who: Model, operation: int, bucket: str, key: str = "") -> bool:
    """A rule about the bucket covers its objects; one about `bucket/prefix` those below it. A denial of either wins."""
    if not key:
        return who.may(operation, BUCKET, bucket)
    names = (bucket, f"{bucket}/{key}")
    return not any(who.denied(operation, BUCKET, name) for name in names) and any(
        who.may(operation, BUCKET, name) for name in names
    )


def _object(operation: int) -> Callable[[Model, str, str], bool]:
    return lambda who, bucket, key: _may(who, operation, bucket, key)


def _bucket(operation: int) -> Callable[[Model, str, str], bool]:
    return lambda who, bucket, key: _may(who, operation, bucket)


_VERSIONING = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
_COMPLETED = b"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>x</ETag></Part></CompleteMultipartUpload>"
_DELETED = b"<Delete><Object><Key>in/k</Key></Object></Delete>"
_ANY = lambda who, bucket, key: True  # noqa: E731 - what it shows or deletes is checked
S3_CALLS: dict[str, tuple[S3Call, ...]] = {
    "list_buckets": (S3Call("GET", "", _ANY, key=False),),
    "get_bucket": tuple(
        S3Call("GET", query, _bucket(DESCRIBE), key=False)
        for query in ("", "list-type=2", "versions", "versioning", "location", "policy", "acl")
    ),
    "head_bucket": (S3Call("HEAD", "", _bucket(DESCRIBE), key=False),),
    "put_bucket": (
        S3Call("PUT", "", _bucket(CREATE), key=False),
        S3Call("PUT", "versioning", _bucket(ALTER), _VERSIONING, key=False),
    ),
    "delete_bucket": (S3Call("DELETE", "", _bucket(DELETE), key=False),),
    "delete_objects": (S3Call("POST", "delete", _ANY, _DELETED, key=False),),
    "get_object": tuple(
        S3Call(method, query, _object(READ))
        for method, query in (
            ("GET", ""),
            ("HEAD", ""),
            ("GET", "acl"),
            ("GET", "tagging"),
            ("GET", "attributes"),
        )
    ),
    "put_object": (
        S3Call("PUT", "", _object(WRITES), b"x"),
        S3Call(
            "PUT",
            "acl",
            lambda who, bucket, key: _may(who, WRITES, bucket, key) and _may(who, READ, bucket, key),
        ),
        S3Call("PUT", "", lambda who, bucket, key: _may(who, WRITES, bucket, key), copies=True),
    ),
    "delete_object": (S3Call("DELETE", "", _object(DELETE)),),
    "begin_upload": (S3Call("POST", "uploads", _object(WRITES)),),
    "list_uploads": (S3Call("GET", "uploads", _ANY, key=False),),
    "put_part": (
        S3Call("PUT", "uploadId=u&partNumber=1", _object(WRITES), b"x"),
        S3Call("PUT", "uploadId=u&partNumber=1", _object(WRITES), copies=True),
    ),
    "list_parts": (S3Call("GET", "uploadId=u", _object(WRITES)),),
    "complete_upload": (S3Call("POST", "uploadId=u", _object(WRITES), _COMPLETED),),
    "abort_upload": (S3Call("DELETE", "uploadId=u", _object(WRITES)),),
}
_BUCKETS, _KEYS = ("bucket-a", "bucket-b"), ("in/k", "out/k")


_PARTS_OF_OTHERS = {"create_bucket", "copy_object"}  # of `put_bucket` and `put_object`


def test_the_walk_knows_every_operation_of_s3() -> None:
    """A new operation needs a line in S3_CALLS that says what its callers must be allowed to do."""
    operations = {
        name
        for module in (bucket_operations, object_operations, upload_operations)
        for name, function in inspect.getmembers(module, inspect.iscoroutinefunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    }
    assert {*S3_CALLS} == operations - _PARTS_OF_OTHERS


async def test_every_operation_of_s3_decides_as_the_model_does(tmp_path: Path) -> None:
    uploads: dict[tuple[str, str], str] = {}

    async def run(doors: House, who: Client, chance: random.Random, told: str) -> None:
        buckets = doors.broker.buckets
        app = _KnownS3(doors.broker, Budget(), FileSender(), OriginPolicy())
        app.who = who.principal
        for name, calls in S3_CALLS.items():
            for call in calls:
                await _stored(doors, uploads)
                bucket, key, source = chance.choice(_BUCKETS), chance.choice(_KEYS), chance.choice(_BUCKETS)
                headers = [(b"host", b"localhost"), (b"content-length", b"%d" % len(call.body))]
                headers.append((b"x-amz-object-attributes", b"ETag"))
                headers += [(b"x-amz-acl", b"private")] if call.query == "acl" else []
                headers += [(b"x-amz-copy-source", f"/{source}/{key}".encode())] if call.copies else []
                query = call.query.replace("uploadId=u", f"uploadId={uploads.get((bucket, key), 'u')}")
                whole = name == "list_buckets"
                path = "/" if whole else f"/{bucket}/{key}" if call.key else f"/{bucket}"
                status, body = await _asked(app, call.method, path, query, headers, call.body)
                allowed = call.allowed(who.model, bucket, key)
                if call.copies:
                    allowed = allowed and _may(who.model, READ, source, key)
                where = (
                    f"{name} {call.method} {path}?{query} allowed: {allowed}; {status} {body[:300]!r}; {told}"
                )
                assert status < 500 or b"NotImplemented" in body, where
                assert (status == 403) != allowed, where
                shown = {one for one in _BUCKETS if f"<Name>{one}</Name>".encode() in body}
                if whole:
                    assert shown == {one for one in _BUCKETS if _may(who.model, DESCRIBE, one)}, where
                if name == "list_uploads" or (
                    name == "get_bucket" and allowed and query in ("", "list-type=2", "versions")
                ):
                    keys = {one for one in _KEYS if f"<Key>{one}</Key>".encode() in body}
                    assert keys == {one for one in _KEYS if _may(who.model, DESCRIBE, bucket, one)}, where
                if name == "delete_objects":
                    gone = False
                    try:
                        gone = buckets.version(bucket, "in/k").marker
                    except MainstemError:
                        gone = True
                    assert gone == _may(who.model, DELETE, bucket, "in/k"), where

    await _each_client(tmp_path, run)


async def _stored(doors: House, uploads: dict[tuple[str, str], str]) -> None:
    """Make again what a call deleted."""
    buckets = doors.broker.buckets

    async def content() -> Any:
        yield b"x"

    for bucket in _BUCKETS:
        if bucket not in {one.name for one in buckets.all()}:
            await buckets.create(bucket)
        for key in _KEYS:
            stored = False
            with suppress(MainstemError):
                stored = not buckets.version(bucket, key).marker
            if not stored:
                blob = await buckets.blobs.write(content())
                await buckets.put(bucket, key, blob, etag="e", headers=(), checksum="", condition=None)
            if not any(one.key == key for one in buckets.uploads(bucket)):
                begun = await buckets.begin_upload(
                    bucket, key, headers=(), algorithm="", principal="User:boss"
                )
                uploads[bucket, key] = begun.id


async def _asked(
    app: S3App, method: str, path: str, query: str, headers: list[tuple[bytes, bytes]], body: bytes
) -> tuple[int, bytes]:
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "scheme": "http",
    }
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent[0]["status"], b"".join(one.get("body", b"") for one in sent)
