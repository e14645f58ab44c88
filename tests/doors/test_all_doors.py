"""One set of credentials and rules at every door: HTTP, WebSocket, text, Kafka and the Iceberg catalog."""

from __future__ import annotations

import asyncio
import base64
import itertools
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from mainstem.address import Address
from mainstem.api.access import ALLOW, DENY, LITERAL, PREFIXED, Operation
from mainstem.api.route import Scope
from mainstem.api.routes import ROUTES
from mainstem.broker.access.keys import parse_keys
from mainstem.broker.access.options import AccessOptions
from mainstem.broker.access.passwords import parse_users
from mainstem.broker.access.principal import Principal
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.doors.http.routes.table import ROUTES as endpoints
from mainstem.doors.http.transport.origins import OriginPolicy
from mainstem.doors.kafka.door import KafkaDoor
from mainstem.doors.kafka.security.options import KafkaSecurity
from mainstem.doors.text.door import TextDoor
from mainstem.errors import ProducerForbidden
from mainstem.ledger.access_rules import AccessRule
from mainstem.records.building import build_batch
from tests.doors.http.conftest import Api, code
from tests.doors.http.watching import EventStream
from tests.doors.kafka.messages import make
from tests.doors.kafka.requests import produce
from tests.doors.kafka.wire import Wire as KafkaWire
from tests.doors.text.conftest import Wire as TextWire
from tests.support.batches import batch, with_facts
from tests.support.batches import produced as idempotent
from tests.support.clock import ManualClock
from tests.support.cluster import brokers_here

HANDSHAKE, AUTHENTICATE = load_request_schema(17, 1), load_request_schema(36, 2)
WRITE = {"records": [{"data": 1}]}


class House:
    """A broker with all of its doors."""

    def __init__(self, broker: Broker, api: Api, text: Address, kafka: Address) -> None:
        self.broker = broker
        self.api = api
        self._text = text
        self._kafka = kafka
        self._wires: list[Any] = []

    async def text(self, key: str = "") -> TextWire:
        wire = TextWire(*await asyncio.open_connection(self._text.host, self._text.port))
        self._wires.append(wire)
        if key:
            assert await wire.ask(f"AUTH {key}") == "OK"
        return wire

    async def kafka(self, user: str = "", password: str = "") -> KafkaWire:
        wire = await KafkaWire.connect(self._kafka)
        self._wires.append(wire)
        if user:
            assert (await wire.ask(HANDSHAKE(mechanism="PLAIN"))).error_code == ErrorCode.none
            answer = await wire.ask(AUTHENTICATE(auth_bytes=f"\0{user}\0{password}".encode()))
            assert answer.error_code == ErrorCode.none, answer
        return wire

    async def close(self) -> None:
        for wire in self._wires:
            await wire.close()


@asynccontextmanager
async def house(folder: Path, access: AccessOptions, **doors: Any) -> AsyncIterator[House]:
    clock = ManualClock()
    broker = await Broker.open(BrokerOptions(folder / "data", access=access), clock=clock)
    api = Api(broker, clock, **doors.get("http", {}))
    text = TextDoor(broker, **doors.get("text", {}))
    kafka = KafkaDoor(broker, security=KafkaSecurity(**doors.get("kafka", {})))
    here = Address("127.0.0.1", 0)
    try:
        opened = House(broker, api, await text.start(here), await kafka.start(here))
        yield opened
        await opened.close()
    finally:
        await api.client.aclose()
        await text.stop(1)
        await kafka.stop(1)
        await broker.close()


def keys(text: str, **more: Any) -> AccessOptions:
    return AccessOptions(keys=parse_keys(text), **more)


def basic(user: str, password: str) -> dict[str, str]:
    return {"authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


async def produced(wire: KafkaWire, topic: str, slice: bytes | None = None) -> int:
    answer = await wire.ask(produce(9, topic, batch(b"1")[0] if slice is None else slice))
    return int(answer.responses[0].partition_responses[0].error_code)


# All doors or none


async def test_with_api_keys_no_door_lets_anonymous_clients_in(tmp_path: Path) -> None:
    async with house(tmp_path, keys("k,reader:r")) as all_doors:
        await all_doors.broker.create_topic("t")
        assert code(await all_doors.api.ask("GET", "/v0/topics")) == (401, "unauthorized")
        text = await all_doors.text()
        for request in ("GET t", "PUT t x", "REGISTER u", "STATE t", "METRICS", "what"):
            assert await text.ask(request) == "ERR authentication required"
        assert await text.ask("AUTH wrong") == "ERR forbidden"
        assert await text.ask("GET t") == "ERR authentication required"
        assert await text.ask("AUTH reader") == "OK"
        assert await text.ask("GET t") == "EMPTY"
        assert await text.ask("PUT t x") == "ERR forbidden"
        assert await (await all_doors.text("k")).ask("PUT t x") == "OK"
        wire = await all_doors.kafka()
        wire.send(produce(9, "t", batch(b"1")[0]))
        assert await wire.ended()
        assert await produced(await all_doors.kafka("key", "k"), "t") == 0
        assert await produced(await all_doors.kafka("key", "reader"), "t") == 29


async def test_a_user_of_kafka_logs_in_at_every_door(tmp_path: Path) -> None:
    access = AccessOptions(
        users=tuple(parse_users("ann:an")), logins=True, super_users=frozenset({"User:ann"})
    )
    async with house(tmp_path, access) as all_doors:
        await all_doors.broker.create_topic("t")
        ask = all_doors.api.client.get
        assert (await ask("/v0/topics")).status_code == 401
        assert (await ask("/v0/topics", headers=basic("ann", "no"))).status_code == 401
        assert (await ask("/v0/topics", headers=basic("ann", "an"))).status_code == 200
        assert await (await all_doors.text()).ask("AUTH ann no") == "ERR forbidden"
        assert await (await all_doors.text("ann an")).ask("PUT t x") == "OK"
        assert await produced(await all_doors.kafka("ann", "an"), "t") == 0


async def test_a_door_that_is_declared_insecure_stays_open(tmp_path: Path) -> None:
    doors = {"http": {"insecure": True}, "text": {"insecure": True}, "kafka": {"insecure": True}}
    async with house(tmp_path, keys("k"), **doors) as all_doors:
        assert (await all_doors.api.ask("PUT", "/v0/topics/t", {}))[0] == 201
        assert await (await all_doors.text()).ask("PUT t x") == "OK"
        assert await produced(await all_doors.kafka(), "t") == 0


async def test_limits_bind_every_door(tmp_path: Path) -> None:
    broker = await Broker.open(BrokerOptions(tmp_path / "data", topics_max=1, total_bytes_max=100))
    text, kafka = TextDoor(broker), KafkaDoor(broker)
    here = Address("127.0.0.1", 0)
    opened = House(broker, Api(broker, ManualClock()), await text.start(here), await kafka.start(here))
    wire = await opened.text()
    assert await wire.ask("REGISTER t") == "OK"
    assert (await wire.ask("REGISTER u")).startswith("ERR there are 1 topics")
    create = load_request_schema(19, 7)
    topic = {"name": "v", "num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}
    asked = {"topics": [topic], "timeout": timedelta(seconds=30), "validate_only": False}
    answer = await (await opened.kafka()).ask(make(create, asked))
    assert answer.topics[0].error_code == ErrorCode.policy_violation
    assert await wire.ask("PUT t " + "x" * 90) == "OK"
    assert (await wire.ask("PUT t " + "x" * 90)).startswith("ERR the server holds up to 100 bytes")
    assert await produced(await opened.kafka(), "t") == ErrorCode.policy_violation
    await opened.close()
    await text.stop(1)
    await kafka.stop(1)
    await broker.close()


# Keys at run time


async def test_keys_are_created_rotated_and_revoked_at_run_time(tmp_path: Path) -> None:
    async with house(tmp_path, AccessOptions()) as all_doors:
        api, broker = all_doors.api, all_doors.broker
        await broker.create_topic("a.t")
        await broker.create_topic("b.t")
        narrow = {"name": "team", "scopes": "rw", "prefixes": ["a."]}
        assert code(await api.ask("POST", "/v0/keys", narrow)) == (
            400,
            "invalid_request",
        )  # nobody could undo it
        status, root = await api.ask("POST", "/v0/keys", {"name": "root"})
        assert status == 201
        assert code(await api.ask("GET", "/v0/topics")) == (
            401,
            "unauthorized",
        )  # the first key closed the doors
        assert await (await all_doors.text()).ask("GET a.t") == "ERR authentication required"
        _, made = await api.ask("POST", "/v0/keys", narrow, key=root["secret"])
        listed = (await api.ask("GET", "/v0/keys", key=root["secret"]))[1]["keys"]
        assert {row["principal"] for row in listed} == {"User:root", "User:team"}
        assert made["secret"] not in str(listed)
        assert (await api.ask("POST", "/v0/topics/a.t", WRITE, key=made["secret"]))[0] == 200
        assert (await api.ask("POST", "/v0/topics/b.t", WRITE, key=made["secret"]))[0] == 403
        wire = await all_doors.kafka(made["id"], made["secret"])
        assert await produced(wire, "a.t") == 0
        assert await produced(wire, "b.t") == 29
        _, rotated = await api.ask("POST", f"/v0/keys/{made['id']}/rotate", key=root["secret"])
        assert (await api.ask("GET", "/v0/topics", key=made["secret"]))[0] == 401
        assert (await api.ask("GET", "/v0/topics", key=rotated["secret"]))[0] == 200
        assert (await api.ask("DELETE", f"/v0/keys/{made['id']}", key=root["secret"]))[0] == 200
        assert (await api.ask("GET", "/v0/topics", key=rotated["secret"]))[0] == 401
        assert await produced(wire, "a.t") == 29  # also where the client is connected already
        assert code(await api.ask("DELETE", f"/v0/keys/{root['id']}", key=root["secret"]))[0] == 400
        assert (await api.ask("GET", "/v0/keys", key=root["secret"]))[0] == 200


async def test_keys_outlive_a_restart_and_expire(tmp_path: Path) -> None:
    async with house(tmp_path, keys("boss")) as all_doors:
        _, lasting = await all_doors.api.ask("POST", "/v0/keys", {"name": "x"}, key="boss")
        _, brief = await all_doors.api.ask("POST", "/v0/keys", {"ttl_ms": 1000}, key="boss")
        assert (await all_doors.api.ask("GET", "/v0/topics", key=brief["secret"]))[0] == 200
        all_doors.api.clock.advance(1001)
        assert (await all_doors.api.ask("GET", "/v0/topics", key=brief["secret"]))[0] == 401
    files = b"".join(path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file())
    assert lasting["secret"].encode() not in files
    async with house(tmp_path, AccessOptions()) as all_doors:
        assert (await all_doors.api.ask("GET", "/v0/topics"))[0] == 401
        assert (await all_doors.api.ask("GET", "/v0/topics", key=lasting["secret"]))[0] == 200


async def test_users_and_rules_are_made_over_http_and_hold_at_every_door(tmp_path: Path) -> None:
    async with house(tmp_path, keys("boss")) as all_doors:
        api = all_doors.api
        await all_doors.broker.create_topic("orders")
        await all_doors.broker.create_topic("other")
        _, made = await api.ask("PUT", "/v0/users/ann", {}, key="boss")
        ann = basic("ann", made["password"])

        async def state(topic: str) -> int:
            return (await api.client.post(f"/v0/topics/{topic}/diff", headers=ann)).status_code

        assert await state("orders") == 403
        rule = {"principal": "User:ann", "operation": "read", "resource": "topic", "name": "orders"}
        assert (await api.ask("POST", "/v0/acls", {"rules": [rule]}, key="boss"))[0] == 200
        assert (await state("orders"), await state("other")) == (200, 403)
        text = await all_doors.text(f"ann {made['password']}")
        assert await text.ask("GET orders") == "EMPTY"
        assert await text.ask("GET other") == "ERR forbidden"
        assert await text.ask("PUT orders x") == "ERR forbidden"
        listed = (await api.client.get("/v0/topics", headers=ann)).json()["topics"]
        assert [row["topic"] for row in listed] == ["orders"]
        deny = {**rule, "permission": "deny"}
        await api.ask("POST", "/v0/acls", {"rules": [deny]}, key="boss")
        assert await state("orders") == 403
        assert await text.ask("GET orders") == "ERR forbidden"
        await api.ask("POST", "/v0/acls/delete", {"rules": [deny]}, key="boss")
        assert await state("orders") == 200
        assert (await api.client.get("/v0/acls", headers=ann)).status_code == 403


# Prefixes


@pytest.fixture
async def prefixed(tmp_path: Path) -> AsyncIterator[Api]:
    async with house(tmp_path, keys("boss,a::a.,w:rw:a.")) as all_doors:
        for name in ("a.q", "b.q"):
            await all_doors.api.ask("PUT", f"/v0/topics/{name}", {"type": "queue"}, key="boss")
        yield all_doors.api


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/v0/topics/a.q", {"type": "queue", "dead_letter": "b.dl"}),
        ("POST", "/v0/topics/a.new", {**WRITE, "config": {"dead_letter": "b.dl"}}),
        ("POST", "/v0/backup", {"to": "/tmp/elsewhere"}),
        ("POST", "/v0/lake/plan", {"driver": "d"}),
        ("GET", "/v0/lake/tables", None),
        ("POST", "/v0/lake/collect", None),
        ("POST", "/v0/lake/tables/settle", None),
        ("PUT", "/v0/topics/a.q/table", {"delta": "file:///etc/cron.d"}),
        ("PUT", "/v0/topics/a.log/table", {"delta": "s3://other/bucket"}),
        ("PUT", "/v0/routers/a.r", {"source": "a.q", "dest": "b.q"}),
        ("PUT", "/v0/routers/a.r", {"source": "b.q", "dest": "a.q"}),
        ("POST", "/v0/groups/of-b/reset", {"topic": "a.q", "to": "earliest"}),
        ("POST", "/v0/groups/of-b/offsets", {"offsets": [{"topic": "a.q", "offset": 0}]}),
        ("DELETE", "/v0/groups/of-b", None),
        ("POST", "/v0/watch", {"topics": {"b.q": {}}}),
        ("GET", "/v0/topics/b.q/messages", None),
        ("GET", "/v0/topics/b.q/leases", None),
        ("POST", "/v0/topics/b.q/claim", {"node": "n"}),
        ("POST", "/v0/keys", {}),
        ("GET", "/v0/keys", None),
        ("PUT", "/v0/users/x", {}),
        ("POST", "/v0/acls", {"rules": []}),
        ("POST", "/iceberg/v1/namespaces", {"namespace": ["b"]}),
    ],
)
async def test_prefixes_confine_every_route(prefixed: Api, method: str, path: str, body: object) -> None:
    await prefixed.broker.commit_offset("of-b", "b.q", 0)
    status, _ = await prefixed.ask(method, path, body, key="a")
    assert status == 403


async def test_a_key_cannot_abort_the_run_of_another(prefixed: Api) -> None:
    task = {"query": "q", "run": "r", "batch": 1, "attempt": "x", "timeout_ms": 60_000}
    await prefixed.ask("PUT", "/v0/topics/a.log", {}, key="boss")
    _, begun = await prefixed.ask("POST", "/v0/sinks/tasks", task, key="boss")
    await prefixed.ask("POST", "/v0/sinks/abort", {"query": "q", "run": "r"}, key="w")
    attempts = [{"attempt": "x", "producer": begun["producer"], "epoch": begun["epoch"]}]
    commit = {"query": "q", "run": "r", "batch": 1, "attempts": attempts}
    assert (await prefixed.ask("POST", "/v0/sinks/commit", commit, key="boss"))[0] == 200


async def test_lists_show_a_key_only_its_names(prefixed: Api) -> None:
    await prefixed.broker.commit_offset("of-b", "b.q", 0)
    await prefixed.broker.commit_offset("of-a", "a.q", 0)
    for path in ("/v0/topics", "/v0/overview/topics", "/v0/groups", "/v0/lake/status", "/v0/storage"):
        status, body = await prefixed.ask("GET", path, key="w")
        assert status == 200, path
        assert "b.q" not in str(body), path
        assert "of-b" not in str(body), path
    metrics = await prefixed.client.get("/v0/metrics", headers={"authorization": "Bearer w"})
    assert "of-b" not in metrics.text
    assert "b.q" not in metrics.text


async def test_directories_stay_inside_the_roots(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "link").symlink_to("/etc")
    async with house(tmp_path, keys("boss"), http={"path_roots": (tmp_path / "in",)}) as all_doors:
        for place in ("/etc/x", f"{tmp_path}/in/../out", f"file://{tmp_path}/in/link/x", f"{tmp_path}/in2"):
            assert code(await all_doors.api.ask("POST", "/v0/backup", {"to": place}, key="boss"))[0] == 403
        status, _ = await all_doors.api.ask("POST", "/v0/backup", {"to": f"{tmp_path}/in/b"}, key="boss")
        assert status == 200


# Producers


async def test_a_batch_with_the_producer_id_of_another_client_is_refused(tmp_path: Path) -> None:
    init = load_request_schema(22, 4)
    asked = {
        "transactional_id": None,
        "transaction_timeout": timedelta(seconds=1),
        "producer_id": -1,
        "producer_epoch": -1,
    }
    async with house(tmp_path, keys("ann,bob:rw")) as all_doors:
        await all_doors.broker.create_topic("t")
        ann, bob = await all_doors.kafka("key", "ann"), await all_doors.kafka("key", "bob")
        given = await ann.ask(make(init, asked))
        first = idempotent(given.producer_id, 0, b"1", epoch=given.producer_epoch)
        second = idempotent(given.producer_id, 1, b"2", epoch=given.producer_epoch)
        assert await produced(ann, "t", first) == 0
        assert await produced(bob, "t", second) == ErrorCode.invalid_producer_id_mapping
        assert await produced(ann, "t", second) == 0  # it is not taken for a duplicate
        assert all_doors.broker.partition("t").records == 2
    third = idempotent(given.producer_id, 2, b"3", epoch=given.producer_epoch)
    async with house(tmp_path, keys("ann,bob:rw")) as all_doors:  # the log knows whose id it is
        ann, bob = await all_doors.kafka("key", "ann"), await all_doors.kafka("key", "bob")
        assert await produced(bob, "t", third) == ErrorCode.invalid_producer_id_mapping
        assert await produced(ann, "t", third) == 0


async def test_another_broker_knows_whose_producer_id_it_is(tmp_path: Path) -> None:
    ann, bob = Principal("User:ann"), Principal("User:bob")
    async with brokers_here(tmp_path, "one", "two") as (one, two):
        await one.create_topic("t")
        producer, epoch = await one.transactions.new_producer(ann.name)
        await two.barrier()
        _, facts = with_facts(idempotent(producer, 0, b"1", epoch=epoch))
        two.producer_rights(ann, "h").check(facts)
        with pytest.raises(ProducerForbidden):
            two.producer_rights(bob, "h").check(facts)


async def test_a_transactional_batch_needs_the_right_to_its_transactional_id(tmp_path: Path) -> None:
    access = AccessOptions(users=tuple(parse_users("ann:an,bob:bo")), logins=True)
    async with house(tmp_path, access) as all_doors:
        broker = all_doors.broker
        await broker.create_topic("t")
        for kind, name, user in ((2, "t", "ann"), (2, "t", "bob"), (5, "tx", "ann")):
            await broker.security.put_rules(
                [AccessRule(kind, name, LITERAL, f"User:{user}", "*", Operation.ALL, ALLOW)]
            )
        producer, epoch = await broker.transactions.initialise("tx", 60_000)
        bob = await all_doors.kafka("bob", "bo")
        for transactional in (True, False):
            slice = build_batch(
                [b"1"],
                timestamps_ms=1,
                producer=producer,
                producer_epoch=epoch,
                base_sequence=0,
                transactional=transactional,
            )
            assert await produced(bob, "t", slice) == ErrorCode.transactional_id_authorization_failed
        headers = {**basic("bob", "bo"), "content-type": "application/octet-stream"}
        answer = await all_doors.api.client.post(
            "/v0/topics/t/batches", content=bytes(slice), headers=headers
        )
        assert answer.status_code == 403


# Browsers


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_pages_of_other_sites_change_nothing(tmp_path: Path, method: str) -> None:
    async with house(tmp_path, AccessOptions()) as all_doors:
        ask = all_doors.api.client.request
        path = "/v0/lake/collect" if method == "POST" else "/v0/topics/t"
        for origin in ("http://evil.example", "null", "http://localhost:1"):
            answer = await ask(method, path, headers={"origin": origin})
            assert answer.status_code == 403
        assert (await ask(method, path, headers={"origin": "http://localhost"})).status_code < 300
        assert (await ask(method, path)).status_code < 300
        assert (await ask(method, path, headers={"sec-fetch-site": "cross-site"})).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [{"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}],
)
async def test_a_page_of_another_site_takes_no_jobs(tmp_path: Path, headers: dict[str, str]) -> None:
    async with house(tmp_path, AccessOptions()) as all_doors:
        api = all_doors.api
        await api.client.put("/v0/topics/jobs", json={"type": "queue"})
        await api.client.post("/v0/topics/jobs", json=WRITE)
        async with EventStream(api.context, "/v0/topics/jobs/work?node=page", **headers) as stream:
            assert stream.status == 403
        async with EventStream(api.context, "/v0/topics/jobs/work?node=worker") as stream:
            assert stream.status == 200


def test_every_get_that_writes_is_known_to_be_one() -> None:
    """A GET that needs the right to write must not be open to pages of other sites."""
    by_get = {route.path for route in ROUTES if route.method == "GET" and Scope.WRITE in route.scope}
    assert by_get == {"/v0/topics/{topic}/work"}
    for path in by_get:
        assert endpoints.find("GET", path.replace("{topic}", "t").encode())[0].changes_by_get


async def test_a_name_that_is_not_the_servers_reaches_nothing_without_credentials(tmp_path: Path) -> None:
    async with house(tmp_path, AccessOptions()) as all_doors:
        ask = all_doors.api.client.get
        for host in ("evil.example", "evil.example:4000", "127.0.0.1.evil.example"):
            assert (await ask("/v0/topics", headers={"host": host})).status_code == 421
        for host in ("127.0.0.1:4000", "[::1]:4000", "localhost:4000", "10.1.2.3"):
            assert (await ask("/v0/topics", headers={"host": host})).status_code == 200
        all_doors.api.context.origins = OriginPolicy(hosts=frozenset({"log.example"}))
        assert (await ask("/v0/topics", headers={"host": "log.example:4000"})).status_code == 200
    async with house(tmp_path, keys("k")) as all_doors:
        headers = {"host": "evil.example", "authorization": "Bearer k"}
        assert (await all_doors.api.client.get("/v0/topics", headers=headers)).status_code == 200
        assert (await all_doors.api.client.get("/", headers={"host": "x.example"})).status_code == 200


# Random rules and calls against a model

_NAMES = ("a", "a.b", "b", "ab")
_PEOPLE = ("ann", "bob")
_OPERATIONS = (Operation.ALL, Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DESCRIBE)


def model(rules: list[AccessRule], user: str, operation: int, name: str) -> bool:
    """What the rules say, one by one: a denial wins, and what nothing allows is denied."""
    implied = {8: (3, 4, 6, 7)}.get(operation, ())
    allowed = False
    for rule in rules:
        prefixed = rule.pattern_type == PREFIXED
        named = name.startswith(rule.resource_name) if prefixed else rule.resource_name in (name, "*")
        about = rule.principal in (f"User:{user}", "User:*") and rule.host in ("*", "127.0.0.1")
        if named and about:
            if rule.permission == DENY and rule.operation in (operation, 2):
                return False
            allowed |= rule.permission == ALLOW and rule.operation in (operation, 2, *implied)
    return allowed


async def test_every_door_decides_as_the_model_does(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    chance = random.Random(seed)
    example = lambda: AccessRule(  # noqa: E731
        2,
        chance.choice((*_NAMES, "*")),
        chance.choice((LITERAL, PREFIXED)),
        f"User:{chance.choice((*_PEOPLE, '*'))}",
        chance.choice(("*", "127.0.0.1", "10.0.0.1")),
        int(chance.choice(_OPERATIONS)),
        chance.choice((ALLOW, ALLOW, DENY)),
    )
    access = AccessOptions(users=tuple(parse_users("ann:ann,bob:bob")), logins=True)
    async with house(tmp_path, access) as all_doors:
        broker, client = all_doors.broker, all_doors.api.client
        for name in _NAMES:
            await broker.create_topic(name)
        texts = {user: await all_doors.text(f"{user} {user}") for user in _PEOPLE}
        wires = {user: await all_doors.kafka(user, user) for user in _PEOPLE}
        for _ in range(25):
            rules = [example() for _ in range(chance.randrange(6))]
            await broker.security.delete_rules(list(broker.security.access_rules))
            await broker.security.put_rules(rules)
            for user, name in itertools.product(_PEOPLE, _NAMES):
                told = f"seed {seed}: {user} {name} {rules}"
                headers = basic(user, user)
                reads = model(rules, user, Operation.READ, name)
                writes = model(rules, user, Operation.WRITE, name)
                sees = model(rules, user, Operation.DESCRIBE, name)
                answer = await client.post(f"/v0/topics/{name}/diff", headers=headers)
                assert (answer.status_code == 200) == reads, told
                answer = await client.post(f"/v0/topics/{name}", json=WRITE, headers=headers)
                assert (answer.status_code == 200) == writes, told
                assert ((await texts[user].ask(f"GET {name}")) != "ERR forbidden") == reads, told
                assert ((await texts[user].ask(f"PUT {name} 1")) == "OK") == writes, told
                assert ((await texts[user].ask(f"STATE {name}")) != "ERR forbidden") == sees, told
                assert (await produced(wires[user], name) == 0) == writes, told
                answer = await client.get("/v0/topics", headers=headers)
                if answer.status_code == 200:
                    listed = {row["topic"] for row in answer.json()["topics"]}
                    assert (name in listed) == sees, told
