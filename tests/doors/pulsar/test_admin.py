"""The admin API on the wire: JSON as Pulsar answers it, and policies that take effect."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import httpx
import pulsar
import pytest

from mainstem.testing.server import ServerProcess
from tests.support.cluster import eventually

_WAIT_MS = 10_000
_EXCLUSIVE_PRODUCER = pulsar.ProducerAccessMode.Exclusive
_EARLIEST = pulsar.InitialPosition.Earliest
_PUBLIC = "/admin/v2/persistent/public/default"


class Admin:
    """Requests of the admin API."""

    def __init__(self, server: ServerProcess) -> None:
        self._http = httpx.Client(base_url=f"http://{server.address('http')}", timeout=30)

    def ask(self, method: str, path: str, body: object = None, **query: str) -> Any:
        """The JSON of an answer; None if it has none."""
        found = self._send(method, path, body, query)
        assert found.status_code < 300, (method, path, found.status_code, found.text)
        return found.json() if found.content else None

    def refused(self, method: str, path: str, body: object = None, **query: str) -> tuple[int, str]:
        found = self._send(method, path, body, query)
        assert found.status_code >= 400, (method, path, found.text)
        return found.status_code, found.json()["reason"]

    def raw(self, path: str, **query: str) -> httpx.Response:
        return self._http.get(path, params=query)

    def _send(self, method: str, path: str, body: object, query: dict[str, str]) -> httpx.Response:
        if body is None:
            return self._http.request(method, path, params=query)
        return self._http.request(method, path, json=body, params=query)

    def close(self) -> None:
        self._http.close()


@pytest.fixture
def admin(server: ServerProcess) -> Iterator[Admin]:
    opened = Admin(server)
    yield opened
    opened.close()


@pytest.fixture
def namespace(admin: Admin) -> str:
    name = f"acme/n{uuid.uuid4().hex[:12]}"
    admin.ask("PUT", f"/admin/v2/namespaces/{name}")
    return name


def _name() -> str:
    return f"t-{uuid.uuid4().hex}"


def _filled(client: pulsar.Client, name: str, count: int, **options: Any) -> list[pulsar.MessageId]:
    producer = client.create_producer(name, batching_enabled=False, **options)
    sent = [producer.send(b"v%d" % number, properties={"n": str(number)}) for number in range(count)]
    producer.close()
    return sent


def _received(client: pulsar.Client, name: str, subscription: str) -> bytes:
    consumer = client.subscribe(name, subscription)
    try:
        return bytes(consumer.receive(_WAIT_MS).data())
    finally:
        consumer.close()


# Clusters, tenants, namespaces


def test_there_is_one_cluster_with_its_brokers(admin: Admin, server: ServerProcess) -> None:
    assert admin.ask("GET", "/admin/v2/clusters") == ["standalone"]
    assert admin.ask("GET", "/admin/v2/clusters/standalone")["brokerServiceUrl"].startswith("pulsar://")
    assert admin.ask("GET", "/admin/v2/brokers/standalone") == [str(server.address("pulsar"))]
    assert admin.raw("/admin/v2/brokers/health").text == "ok"
    assert admin.refused("PUT", "/admin/v2/clusters/other", {})[0] == 405
    assert admin.refused("GET", "/admin/v2/brokers/other")[0] == 404
    assert "/metrics" in admin.refused("GET", "/admin/v2/broker-stats/metrics")[1]


def test_a_tenant_exists_without_namespaces(admin: Admin) -> None:
    tenant = f"t{uuid.uuid4().hex[:8]}"
    path = f"/admin/v2/tenants/{tenant}"
    assert admin.refused("GET", path) == (404, "Tenant does not exist")
    admin.ask("PUT", path, {"adminRoles": ["ann"], "allowedClusters": ["standalone"]})
    assert tenant in admin.ask("GET", "/admin/v2/tenants")
    assert admin.ask("GET", path) == {"adminRoles": ["ann"], "allowedClusters": ["standalone"]}
    assert admin.refused("PUT", path, {})[0] == 409
    assert admin.refused("POST", path, {"allowedClusters": ["elsewhere"]})[0] == 412
    admin.ask("POST", path, {"adminRoles": ["bob"], "allowedClusters": ["standalone"]})
    assert admin.ask("GET", path)["adminRoles"] == ["bob"]
    admin.ask("PUT", f"/admin/v2/namespaces/{tenant}/n")
    assert admin.ask("GET", f"/admin/v2/namespaces/{tenant}") == [f"{tenant}/n"]
    assert admin.refused("DELETE", path)[0] == 409
    admin.ask("DELETE", f"/admin/v2/namespaces/{tenant}/n")
    admin.ask("DELETE", path)
    assert tenant not in admin.ask("GET", "/admin/v2/tenants")


def test_a_namespace_with_topics_is_deleted_by_force_only(admin: Admin, namespace: str) -> None:
    admin.ask("PUT", f"/admin/v2/persistent/{namespace}/one")
    admin.ask("PUT", f"/admin/v2/persistent/{namespace}/many/partitions", 2)
    admin.ask("PUT", f"/admin/v2/non-persistent/{namespace}/light")
    url = f"persistent://{namespace}"
    many = [f"{url}/many-partition-0", f"{url}/many-partition-1"]
    assert admin.ask("GET", f"/admin/v2/persistent/{namespace}") == [*many, f"{url}/one"]
    assert admin.ask("GET", f"/admin/v2/persistent/{namespace}/partitioned") == [f"{url}/many"]
    assert admin.ask("GET", f"/admin/v2/non-persistent/{namespace}") == [f"non-{url}/light"]
    assert len(admin.ask("GET", f"/admin/v2/namespaces/{namespace}/topics", mode="ALL")) == 4
    assert admin.refused("DELETE", f"/admin/v2/namespaces/{namespace}")[0] == 409
    admin.ask("DELETE", f"/admin/v2/namespaces/{namespace}", force="true")
    assert admin.refused("GET", f"/admin/v2/namespaces/{namespace}")[0] == 404


def test_permissions_are_access_rules(admin: Admin, namespace: str, server: ServerProcess) -> None:
    path = f"/admin/v2/namespaces/{namespace}/permissions"
    admin.ask("POST", f"{path}/ann", ["produce", "consume"])
    admin.ask("POST", f"{path}/bob", ["consume"])
    assert admin.ask("GET", path) == {"ann": ["consume", "produce"], "bob": ["consume"]}
    admin.ask("POST", f"{path}/ann", ["produce"])
    assert admin.ask("GET", path) == {"ann": ["produce"], "bob": ["consume"]}
    rules = httpx.get(f"http://{server.address('http')}/v0/acls").json()
    assert f"{namespace}/" in str(rules)
    assert admin.refused("POST", f"{path}/ann", ["functions"])[0] == 400
    admin.ask("DELETE", f"{path}/ann")
    admin.ask("DELETE", f"{path}/bob")
    assert admin.ask("GET", path) == {}
    assert admin.refused("POST", "/admin/v2/namespaces/public/default/permissions/ann", ["consume"])[0] == 405
    topic = f"/admin/v2/persistent/{namespace}/t"
    admin.ask("PUT", topic)
    admin.ask("POST", f"{topic}/permissions/ann", ["consume"])
    assert admin.ask("GET", f"{topic}/permissions") == {"ann": ["consume"]}
    admin.ask("DELETE", f"{topic}/permissions/ann")
    admin.ask("POST", f"{path}/subscription/s", ["ann"])
    assert admin.ask("GET", f"{path}/subscription") == {"s": ["ann"]}
    admin.ask("DELETE", f"{path}/s/ann")
    assert admin.ask("GET", f"{path}/subscription") == {}


# Policies


def test_policies_of_a_namespace_hold_for_topics_without_their_own(admin: Admin, namespace: str) -> None:
    path, topic = f"/admin/v2/namespaces/{namespace}", f"/admin/v2/persistent/{namespace}/t"
    admin.ask("PUT", topic)
    assert admin.ask("GET", f"{path}/retention") is None
    week = {"retentionTimeInMinutes": 10_080, "retentionSizeInMB": -1}
    admin.ask("POST", f"{path}/retention", week)
    admin.ask("POST", f"{path}/messageTTL", 60)
    quota = {"limitSize": 1000, "limitTime": -1, "policy": "producer_exception"}
    admin.ask("POST", f"{path}/backlogQuota", quota, backlogQuotaType="destination_storage")
    assert admin.ask("GET", f"{path}/retention") == week
    assert admin.ask("GET", f"{topic}/retention") is None
    assert admin.ask("GET", f"{topic}/retention", applied="true") == week
    assert admin.ask("GET", f"{topic}/messageTTL", applied="true") == 60
    whole = admin.ask("GET", path)
    assert whole["retention_policies"] == week
    assert whole["message_ttl_in_seconds"] == 60
    assert whole["backlog_quota_map"]["destination_storage"]["policy"] == "producer_exception"
    admin.ask("POST", f"{topic}/messageTTL", messageTTL="7")
    admin.ask("POST", f"{path}/messageTTL", 90)
    assert admin.ask("GET", f"{topic}/messageTTL") == 7
    admin.ask("DELETE", f"{topic}/messageTTL")
    assert admin.ask("GET", f"{topic}/messageTTL", applied="true") == 90
    admin.ask("DELETE", f"{path}/backlogQuota", backlogQuotaType="destination_storage")
    assert admin.ask("GET", f"{path}/backlogQuotaMap") == {}
    assert admin.refused("POST", f"{path}/retention", {"retentionTimeInMinutes": 1})[0] == 400


def test_a_policy_without_effect_is_refused_with_the_reason(admin: Admin, namespace: str) -> None:
    path = f"/admin/v2/namespaces/{namespace}"
    code, reason = admin.refused("POST", f"{path}/compactionThreshold", 5)
    assert code == 405
    assert "compactionThreshold" in reason
    assert admin.ask("GET", f"{path}/compactionThreshold") is None
    assert admin.refused("POST", f"{path}/delayedDelivery", {"active": False})[0] == 405
    admin.ask("POST", f"{path}/delayedDelivery", {"active": True, "tickTime": 1000})


def test_rates_of_a_namespace_are_rates_of_all_doors(
    admin: Admin, namespace: str, server: ServerProcess
) -> None:
    path = f"/admin/v2/namespaces/{namespace}"
    admin.ask("POST", f"{path}/publishRate", {"publishThrottlingRateInMsg": 50})
    dispatch = {"dispatchThrottlingRateInByte": 2000, "ratePeriodInSecond": 2}
    admin.ask("POST", f"{path}/dispatchRate", dispatch)
    assert admin.ask("GET", f"{path}/publishRate")["publishThrottlingRateInMsg"] == 50
    assert admin.ask("GET", f"{path}/dispatchRate")["dispatchThrottlingRateInByte"] == 1000
    rates = httpx.get(f"http://{server.address('http')}/v0/rates").json()["rates"]
    limits = next(row["limits"] for row in rates if row.get("namespace") == namespace)
    assert limits == {"producer_record_rate": 50, "consumer_byte_rate": 1000}
    admin.ask("DELETE", f"{path}/publishRate")
    assert admin.ask("GET", f"{path}/publishRate") is None
    admin.ask("DELETE", f"{path}/dispatchRate")


def test_a_rate_of_a_topic_is_a_rate_of_all_doors_and_goes_with_it(
    admin: Admin, namespace: str, server: ServerProcess
) -> None:
    path = f"/admin/v2/persistent/{namespace}/rated"
    admin.ask("PUT", path)
    admin.ask("POST", f"/admin/v2/namespaces/{namespace}/publishRate", {"publishThrottlingRateInMsg": 50})
    assert admin.ask("GET", f"{path}/publishRate") is None
    assert admin.ask("GET", f"{path}/publishRate", applied="true")["publishThrottlingRateInMsg"] == 50
    admin.ask("POST", f"{path}/publishRate", {"publishThrottlingRateInMsg": 5})
    admin.ask("POST", f"{path}/dispatchRate", {"dispatchThrottlingRateInMsg": 7})
    assert admin.ask("GET", f"{path}/publishRate", applied="true")["publishThrottlingRateInMsg"] == 5

    def limits() -> list[dict[str, float]]:
        rates = httpx.get(f"http://{server.address('http')}/v0/rates").json()["rates"]
        return [row["limits"] for row in rates if row.get("topic") == f"{namespace}/rated"]

    assert limits() == [{"producer_record_rate": 5, "consumer_record_rate": 7}]
    admin.ask("DELETE", f"{path}/publishRate")
    assert limits() == [{"consumer_record_rate": 7}]
    admin.ask("DELETE", path)
    assert limits() == []


def test_a_backlog_over_its_quota_refuses_producers(
    admin: Admin, client: pulsar.Client, server: ServerProcess
) -> None:
    name = _name()
    path = f"{_PUBLIC}/{name}"
    admin.ask("PUT", path)
    admin.ask("PUT", f"{path}/subscription/slow", {"ledgerId": -1, "entryId": -1})
    _filled(client, name, 3)
    quota = {"limitSize": 10, "policy": "producer_exception"}
    admin.ask("POST", f"{path}/backlogQuota", quota)
    with pytest.raises(pulsar.ProducerBlockedQuotaExceededException):
        client.create_producer(name)
    http = f"http://{server.address('http')}/v0/topics/{name}"
    assert httpx.post(http, json={"records": [{"data": 1}]}).status_code == 422
    admin.ask("POST", f"{path}/subscription/slow/skip_all")
    _filled(client, name, 1)


def test_deduplication_of_a_namespace_stores_a_message_once(
    admin: Admin, client: pulsar.Client, namespace: str
) -> None:
    path = f"/admin/v2/namespaces/{namespace}/deduplication"
    assert admin.ask("GET", path) is None
    admin.ask("POST", path, True)
    assert admin.ask("GET", path) is True
    topic = f"/admin/v2/persistent/{namespace}/t"
    admin.ask("PUT", topic)
    assert admin.ask("GET", f"{topic}/deduplicationEnabled", applied="true") is True
    producer = client.create_producer(
        f"persistent://{namespace}/t", producer_name="p", batching_enabled=False
    )
    for sequence in (1, 2, 2, 1, 3):
        producer.send(b"v", sequence_id=sequence)
    stats = admin.ask("GET", f"{topic}/stats")
    assert (stats["msgInCounter"], stats["deduplicationStatus"]) == (3, "Enabled")
    admin.ask("POST", f"{topic}/deduplicationEnabled", False)
    assert admin.ask("GET", f"{topic}/deduplicationEnabled") is False


# Topics


def test_a_terminated_topic_takes_no_more_messages(admin: Admin, client: pulsar.Client) -> None:
    name = _name()
    sent = _filled(client, name, 2)
    open_producer = client.create_producer(name)
    last = admin.ask("POST", f"{_PUBLIC}/{name}/terminate")
    assert (last["ledgerId"], last["entryId"]) == (sent[-1].ledger_id(), sent[-1].entry_id())
    with pytest.raises(pulsar.TopicTerminated):
        open_producer.send(b"late")
    with pytest.raises(pulsar.TopicTerminated):
        client.create_producer(name)
    consumer = client.subscribe(name, "s", initial_position=_EARLIEST)
    assert [consumer.receive(_WAIT_MS).data() for _ in range(2)] == [b"v0", b"v1"]
    assert admin.ask("GET", f"{_PUBLIC}/{name}/internalStats")["state"] == "Terminated"
    many = _name()
    admin.ask("PUT", f"{_PUBLIC}/{many}/partitions", 2)
    assert admin.refused("POST", f"{_PUBLIC}/{many}/terminate")[0] == 405
    assert sorted(admin.ask("POST", f"{_PUBLIC}/{many}/terminate/partitions")) == ["0", "1"]


def test_properties_and_partitions_of_a_topic(admin: Admin) -> None:
    path = f"{_PUBLIC}/{_name()}"
    admin.ask("PUT", path, {"a": "1"})
    admin.ask("PUT", f"{path}/properties", {"b": "2"})
    assert admin.ask("GET", f"{path}/properties") == {"a": "1", "b": "2"}
    admin.ask("DELETE", f"{path}/properties", key="a")
    assert admin.ask("GET", f"{path}/properties") == {"b": "2"}
    assert admin.refused("PUT", path)[0] == 409
    many = f"{_PUBLIC}/{_name()}"
    admin.ask("PUT", f"{many}/partitions", {"partitions": 2, "properties": {"p": "q"}})
    admin.ask("POST", f"{many}/partitions", 3)
    assert admin.ask("GET", f"{many}/partitions") == {
        "partitions": 3,
        "deleted": False,
        "properties": {"p": "q"},
    }
    assert admin.refused("POST", f"{many}/partitions", 1)[0] == 422
    assert admin.refused("GET", f"{many}/stats")[0] == 404
    assert len(admin.ask("GET", f"{many}/partitioned-stats")["partitions"]) == 3


def test_stats_count_messages_and_backlogs(admin: Admin, client: pulsar.Client) -> None:
    name = _name()
    of_client = {"team": "billing"}
    consumer = client.subscribe(name, "s", initial_position=_EARLIEST, properties=of_client)
    producer = client.create_producer(
        name,
        producer_name="p1",
        batching_enabled=False,
        properties=of_client,
        access_mode=_EXCLUSIVE_PRODUCER,
    )
    for number in range(5):
        producer.send(b"v%d" % number)
    for _ in range(2):
        consumer.acknowledge_cumulative(consumer.receive(_WAIT_MS))
    stats = admin.ask("GET", f"{_PUBLIC}/{name}/stats")
    assert (stats["msgInCounter"], stats["publishers"][0]["producerName"]) == (5, "p1")
    subscription = stats["subscriptions"]["s"]
    assert (subscription["type"], subscription["activeConsumerName"]) == (
        "Exclusive",
        subscription["consumers"][0]["consumerName"],
    )
    assert subscription["msgBacklog"] in (3, 4, 5)  # acknowledgements are grouped by the client
    assert stats["publishers"][0]["accessMode"] == "Exclusive"
    for one in (stats["publishers"][0], subscription["consumers"][0]):
        assert one["metadata"] == of_client
        assert one["clientVersion"]
        assert one["connectedSince"].startswith("20")
    bytes_out = subscription["bytesOutCounter"]
    assert (subscription["msgOutCounter"], stats["bytesOutCounter"]) == (5, bytes_out)
    assert stats["publishers"][0]["msgInCounter"] == 5
    assert min(bytes_out, stats["publishers"][0]["bytesInCounter"]) >= 5 * len(b"v0")
    internal = admin.ask("GET", f"{_PUBLIC}/{name}/internalStats")
    assert (internal["numberOfEntries"], list(internal["cursors"])) == (5, ["s"])
    admin.ask("PUT", f"{_PUBLIC}/{name}/unload")
    assert producer.send(b"after").entry_id() == 5
    producer.close()
    consumer.close()
    admin.ask("DELETE", f"{_PUBLIC}/{name}/truncate")
    assert admin.ask("GET", f"{_PUBLIC}/{name}/internalStats")["numberOfEntries"] == 0


def test_stats_tell_delayed_messages_from_the_others(admin: Admin, client: pulsar.Client) -> None:
    name = _name()
    client.subscribe(name, "s", consumer_type=pulsar.ConsumerType.Shared, initial_position=_EARLIEST)
    producer = client.create_producer(name, batching_enabled=False)
    for delay_ms in (3_600_000, 3_600_000, None):
        producer.send(b"x", deliver_after=None if delay_ms is None else timedelta(milliseconds=delay_ms))

    def found() -> tuple[int, int, int]:
        one = admin.ask("GET", f"{_PUBLIC}/{name}/stats")["subscriptions"]["s"]
        return one["msgBacklog"], one["msgDelayed"], one["msgBacklogNoDelayed"]

    assert eventually(found, lambda counts: counts[1] == 2) == (3, 2, 1)


def _compacted(admin: Admin, topic: str) -> str:
    """Compact a topic, and wait for the end. Returns the state."""
    path = f"{_PUBLIC}/{topic}/compaction"
    admin.ask("PUT", path)
    while True:
        state: str = admin.ask("GET", path)["status"]
        if state != "RUNNING":
            return state


@pytest.mark.parametrize("batched", [False, True])
def test_a_compacted_view_has_the_last_message_of_each_key(
    admin: Admin, client: pulsar.Client, batched: bool
) -> None:
    name = _name()
    waiting = client.subscribe(name, "durable", is_read_compacted=True)
    waiting.close()
    producer = client.create_producer(
        name, batching_enabled=batched, batching_max_publish_delay_ms=60_000, batching_max_messages=100
    )
    for number in range(60):  # a batch of this size is delivered as it is stored
        producer.send_async(b"%d" % number, None, partition_key="abcde"[number % 5])
    producer.send_async(b"", None, partition_key="b")
    producer.send_async(b"no key", None)
    producer.flush()
    assert admin.ask("GET", f"{_PUBLIC}/{name}/compaction") == {"status": "NOT_RUN", "lastError": ""}
    assert _compacted(admin, name) == "SUCCESS"
    producer.send_async(b"after", None, partition_key="a")
    producer.flush()
    view = [b"55", b"57", b"58", b"59", b"after"]
    reader = client.create_reader(name, pulsar.MessageId.earliest, is_read_compacted=True)
    consumer = client.subscribe(name, "durable", is_read_compacted=True, batch_index_ack_enabled=True)
    whole = client.create_reader(name, pulsar.MessageId.earliest)
    assert [reader.read_next(_WAIT_MS).data() for _ in view] == view
    assert not reader.has_message_available()
    for wanted in view:
        message = consumer.receive(_WAIT_MS)
        assert message.data() == wanted
        consumer.acknowledge(message)
    assert [whole.read_next(_WAIT_MS).data() for _ in range(63)][:2] == [b"0", b"1"]
    consumer.close()
    stats = admin.ask("GET", f"{_PUBLIC}/{name}/stats")["subscriptions"]["durable"]
    assert stats["msgBacklog"] == 0  # what the view leaves out counts as acknowledged


# Subscriptions and messages


def test_a_subscription_moves_by_count_time_and_id(admin: Admin, client: pulsar.Client) -> None:
    name = _name()
    sent = _filled(client, name, 6)
    path = f"{_PUBLIC}/{name}/subscription/a%2Fb"
    admin.ask("PUT", path, {"ledgerId": -1, "entryId": -1, "properties": {"k": "v"}})
    assert admin.refused("PUT", path)[0] == 409
    assert admin.ask("GET", f"{_PUBLIC}/{name}/subscriptions") == ["a/b"]
    assert admin.ask("GET", f"{path}/properties") == {"k": "v"}
    admin.ask("PUT", f"{path}/properties", {"k": "w"})
    assert admin.ask("GET", f"{path}/properties") == {"k": "w"}
    admin.ask("POST", f"{path}/skip/2")
    assert _received(client, name, "a/b") == b"v2"
    third = {"ledgerId": sent[3].ledger_id(), "entryId": sent[3].entry_id()}
    admin.ask("POST", f"{path}/resetcursor", third)
    assert _received(client, name, "a/b") == b"v3"
    admin.ask("POST", f"{path}/resetcursor", {**third, "excluded": True})
    assert _received(client, name, "a/b") == b"v4"
    admin.ask("POST", f"{path}/resetcursor/0")
    assert _received(client, name, "a/b") == b"v0"
    admin.ask("POST", f"{path}/expireMessages", third)
    assert admin.ask("POST", f"{path}/analyzeBacklog")["messages"] == 2
    admin.ask("POST", f"{path}/expireMessages/3600")
    assert admin.ask("POST", f"{path}/analyzeBacklog")["messages"] == 2
    admin.ask("POST", f"{path}/skip_all")
    assert admin.ask("POST", f"{path}/analyzeBacklog")["messages"] == 0
    admin.ask("DELETE", path)
    assert admin.refused("POST", f"{path}/skip_all")[0] == 404


def test_messages_are_read_without_a_consumer(admin: Admin, client: pulsar.Client) -> None:
    name, before = _name(), int(time.time() * 1000)
    sent = _filled(client, name, 3)
    path = f"{_PUBLIC}/{name}"
    admin.ask("PUT", f"{path}/subscription/s", {"ledgerId": -1, "entryId": -1})
    peeked = admin.raw(f"{path}/subscription/s/position/2")
    assert peeked.content == b"v1"
    assert peeked.headers["X-Pulsar-Message-ID"] == f"{sent[1].ledger_id()}:{sent[1].entry_id()}"
    assert peeked.headers["X-Pulsar-PROPERTY-n"] == "1"
    assert admin.refused("GET", f"{path}/subscription/s/position/9")[0] == 404
    assert admin.raw(f"{path}/ledger/{sent[2].ledger_id()}/entry/{sent[2].entry_id()}").content == b"v2"
    examined = admin.raw(f"{path}/examinemessage", initialPosition="earliest", messagePosition="1")
    assert examined.content == b"v0"
    admin.ask("PUT", f"{_PUBLIC}/{name}-empty")
    assert admin.refused("GET", f"{_PUBLIC}/{name}-empty/examinemessage")[0] == 412
    assert admin.ask("GET", f"{path}/messageid/{before}")["entryId"] == sent[0].entry_id()
    assert admin.ask("GET", f"{path}/lastMessageId")["entryId"] == sent[2].entry_id()


def test_backlogs_of_a_namespace_are_cleared_together(
    admin: Admin, client: pulsar.Client, namespace: str
) -> None:
    for topic in ("a", "b"):
        path = f"/admin/v2/persistent/{namespace}/{topic}"
        admin.ask("PUT", path)
        admin.ask("PUT", f"{path}/subscription/s", {"ledgerId": -1, "entryId": -1})
        _filled(client, f"persistent://{namespace}/{topic}", 2)
    admin.ask("POST", f"/admin/v2/namespaces/{namespace}/clearBacklog/s")
    for topic in ("a", "b"):
        path = f"/admin/v2/persistent/{namespace}/{topic}/subscription/s"
        assert admin.ask("POST", f"{path}/analyzeBacklog")["messages"] == 0
    admin.ask("POST", f"/admin/v2/namespaces/{namespace}/unsubscribe/s")
    assert admin.ask("GET", f"/admin/v2/persistent/{namespace}/a/subscriptions") == []


# Lookup


def test_a_lookup_names_the_broker(admin: Admin, server: ServerProcess) -> None:
    found = admin.ask("GET", "/lookup/v2/topic/persistent/public/default/any")
    assert found["brokerUrl"] == f"pulsar://{server.address('pulsar')}"
    assert admin.raw("/lookup/v2/topic/persistent/public/default/any/bundle").text.startswith("0x")


# What programs ask for now and then


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("POST", "brokers/shutdown", 405),
        ("POST", "brokers/configuration/x/1", 405),
        ("GET", "brokers/standalone/x/ownedNamespaces", 405),
        ("GET", "clusters/standalone/failureDomains/x", 404),
        ("POST", "clusters/standalone/namespaceIsolationPolicies/x", 405),
        ("POST", "clusters/standalone/peers", 405),
        ("PUT", "namespaces/{namespace}/properties", 405),
        ("POST", "namespaces/{namespace}/persistence/bookieAffinity", 405),
        ("PUT", "namespaces/{namespace}/0x00000000_0xffffffff/split", 405),
        ("POST", "namespaces/{namespace}/0x00000000_0x10000000/clearBacklog", 404),
        ("PUT", "persistent/{namespace}/t/shadowTopics", 405),
        ("POST", "persistent/{namespace}/t/trim", 405),
        ("POST", "persistent/{namespace}/t/subscription/s/replicatedSubscriptionStatus", 405),
        ("GET", "functions/public/default", 404),
    ],
)
def test_what_is_not_there_is_refused_with_the_reason(
    admin: Admin, namespace: str, method: str, path: str, code: int
) -> None:
    found, reason = admin.refused(method, "/admin/v2/" + path.format(namespace=namespace), {})
    assert found == code
    assert len(reason) > 20


def test_a_policy_that_nobody_set_reads_as_not_set(admin: Admin, namespace: str) -> None:
    admin.ask("PUT", f"/admin/v2/persistent/{namespace}/t")
    topic, space = f"/admin/v2/persistent/{namespace}/t", f"/admin/v2/namespaces/{namespace}"
    for path in (f"{topic}/replication", f"{topic}/shadowTopics", f"{topic}/s/dispatchRate"):
        assert admin.ask("GET", path) is None
        admin.ask("DELETE", path)
    assert admin.ask("GET", f"{space}/properties") == {}
    assert admin.ask("GET", f"{space}/allowedClusters") == ["standalone"]
    assert admin.ask("GET", f"{topic}/subscription/s/replicatedSubscriptionStatus") == {
        f"persistent://{namespace}/t": False
    }


def test_a_namespace_has_as_many_topics_as_its_policy_says(admin: Admin, namespace: str) -> None:
    path = f"/admin/v2/namespaces/{namespace}/maxTopicsPerNamespace"
    assert admin.ask("GET", path) is None
    admin.ask("PUT", f"/admin/v2/persistent/{namespace}/one")
    admin.ask("POST", path, 1)
    assert admin.ask("GET", path) == 1
    admin.refused("PUT", f"/admin/v2/persistent/{namespace}/two")
    admin.ask("DELETE", path)
    admin.ask("PUT", f"/admin/v2/persistent/{namespace}/two")


def test_all_policies_of_a_topic_are_removed_together(admin: Admin, namespace: str) -> None:
    topic = f"/admin/v2/persistent/{namespace}/t"
    admin.ask("PUT", topic)
    admin.ask("POST", f"{topic}/maxProducers", 7)
    admin.ask("POST", f"{topic}/messageTTL", messageTTL="60")
    quota = {"limitSize": 1 << 30, "limitTime": 3_600, "policy": "producer_exception"}
    for kind in ("destination_storage", "message_age"):
        admin.ask("POST", f"{topic}/backlogQuota", quota, backlogQuotaType=kind)
    admin.ask("POST", f"{topic}/publishRate", {"publishThrottlingRateInMsg": 1_000})
    admin.ask("POST", f"{topic}/dispatchRate", {"dispatchThrottlingRateInMsg": 1_000})
    admin.ask("DELETE", f"{topic}/policies")
    assert admin.ask("GET", f"{topic}/backlogQuotaMap") == {}
    assert admin.ask("GET", f"{topic}/publishRate") is None
    assert admin.ask("GET", f"{topic}/dispatchRate") is None
    assert admin.ask("GET", f"{topic}/maxProducers") is None
    assert admin.ask("GET", f"{topic}/messageTTL") is None


def test_the_one_bundle_stands_for_its_namespace(admin: Admin, namespace: str, client: pulsar.Client) -> None:
    ids = _filled(client, f"persistent://{namespace}/t", 4)
    topic = f"/admin/v2/persistent/{namespace}/t"
    admin.ask("PUT", f"{topic}/subscription/s", {"ledgerId": -1, "entryId": -1})
    size = admin.ask(
        "PUT", f"{topic}/backlogSize", {"ledgerId": ids[2].ledger_id(), "entryId": ids[2].entry_id()}
    )
    assert 0 < size < admin.ask("GET", f"{topic}/stats")["storageSize"]
    bundle = f"/admin/v2/namespaces/{namespace}/0x00000000_0xffffffff"
    admin.ask("POST", f"{bundle}/clearBacklog/s")
    assert admin.ask("GET", f"{topic}/stats")["subscriptions"]["s"]["msgBacklog"] == 0
    admin.ask("POST", f"{bundle}/unsubscribe/s")
    assert admin.ask("GET", f"{topic}/subscriptions") == []
    assert admin.ask("GET", f"/admin/v2/non-persistent/{namespace}/0x00000000_0xffffffff") == []


def test_rights_are_granted_on_several_topics_at_once(admin: Admin, namespace: str) -> None:
    for topic in ("a", "b"):
        admin.ask("PUT", f"/admin/v2/persistent/{namespace}/{topic}")
    rows = [
        {"topic": f"persistent://{namespace}/{topic}", "role": "ann", "actions": ["produce"]}
        for topic in ("a", "b")
    ]
    admin.ask("POST", "/admin/v2/namespaces/grantPermissionsOnTopics", rows)
    granted = f"/admin/v2/persistent/{namespace}/b/permissions"
    assert admin.ask("GET", granted) == {"ann": ["produce"]}
    for row in rows:
        row["actions"] = ["consume"]
    admin.ask("POST", "/admin/v2/namespaces/grantPermissionsOnTopics", rows)
    assert admin.ask("GET", granted) == {"ann": ["consume"]}
    admin.ask("POST", "/admin/v2/namespaces/revokePermissionsOnTopics", rows)
    assert admin.ask("GET", granted) == {}
    assert admin.refused("POST", "/admin/v2/namespaces/grantPermissionsOnTopics", [{"topic": 3}])[0] == 400


def test_a_name_of_the_other_domain_reaches_no_topic(admin: Admin) -> None:
    name = _name()
    admin.ask("PUT", f"{_PUBLIC}/{name}")
    other = f"/admin/v2/non-persistent/public/default/{name}"
    assert admin.refused("DELETE", other)[0] == 404
    assert admin.refused("GET", f"{other}/stats")[0] == 404
    assert admin.ask("GET", f"{_PUBLIC}/{name}/stats")["msgInCounter"] == 0
