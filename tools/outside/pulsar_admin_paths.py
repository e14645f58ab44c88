"""Every route of Apache Pulsar's admin API, called on a real broker and on Mainstem: both accept or both refuse.

The routes come from the annotations in the broker's jar. Each has a namespace and a topic of its own, with a
subscription and three messages. Answers of GET have the same shape: the same kind of JSON, with the fields that
Pulsar's has. What Mainstem refuses and Pulsar accepts is listed, and the refusal has a reason that says why.

Without a choice, those are called that only read.

    OUTSIDE_PULSAR_ROUTES='*/maxConsumers' python -m tools.outside pulsar-admin-routes   # only these
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import tempfile
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pulsar

from mainstem.testing.server import ServerProcess
from tools.outside.pulsar_standalone import VERSION, PulsarStandalone
from tools.outside.suite import Suite, Tally, call, program

_PLACES = {
    "tenant": "paths",
    "property": "paths",
    "topic": "t",
    "cluster": "standalone",
    "subName": "s",
    "subscription": "s",
    "subscriptionName": "s",
    "encodedSubName": "s",
    "bundle": "0x00000000_0xffffffff",
    "role": "ann",
    "topic-domain": "persistent",
    "timestamp": "1700000000000",
    "numMessages": "1",
    "expireTimeInSeconds": "3600",
    "messagePosition": "1",
    "ledgerId": "0",
    "entryId": "0",
    "version": "0",
    "key": "a",
}
_RATE = {
    "dispatchThrottlingRateInMsg": 10,
    "dispatchThrottlingRateInByte": 1000,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 1,
}
_BODIES: dict[str, Any] = {
    "allowedClusters": ["standalone"],
    "antiAffinity": "group",
    "autoSubscriptionCreation": {"allowAutoSubscriptionCreation": True},
    "autoTopicCreation": {"allowAutoTopicCreation": True, "topicType": "non-partitioned"},
    "backlogQuota": {"limitSize": 1000000, "limitTime": -1, "policy": "producer_exception"},
    "compactionThreshold": 1000000,
    "deduplication": True,
    "deduplicationEnabled": True,
    "deduplicationSnapshotInterval": 10,
    "delayedDelivery": {"active": True, "tickTime": 1000},
    "dispatchRate": _RATE,
    "dispatcherPauseOnAckStatePersistent": True,
    "encryptionRequired": True,
    "entryFilters": {"entryFilterNames": ""},
    "inactiveTopicPolicies": {
        "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
        "maxInactiveDurationSeconds": 3600,
        "deleteWhileInactive": True,
    },
    "isAllowAutoUpdateSchema": True,
    "messageTTL": 3600,
    "offloadDeletionLagMs": 1000,
    "offloadThreshold": 1000000,
    "offloadThresholdInSeconds": 1000,
    "partitions": 3,
    "permissions": ["produce"],
    "persistence": {
        "bookkeeperEnsemble": 1,
        "bookkeeperWriteQuorum": 1,
        "bookkeeperAckQuorum": 1,
        "managedLedgerMaxMarkDeleteRate": 1.0,
    },
    "properties": {"a": "b"},
    "publishRate": {"publishThrottlingRateInMsg": 10, "publishThrottlingRateInByte": 1000},
    "replication": ["standalone"],
    "replicatorDispatchRate": _RATE,
    "retention": {"retentionTimeInMinutes": 10, "retentionSizeInMB": 10},
    "schemaCompatibilityStrategy": "FULL",
    "schemaAutoUpdateCompatibilityStrategy": "Full",
    "schemaValidationEnforced": True,
    "subscribeRate": {"subscribeThrottlingRatePerConsumer": 10, "ratePeriodInSecond": 30},
    "subscriptionAuthMode": "None",
    "subscriptionDispatchRate": _RATE,
    "subscriptionExpirationTime": 60,
    "subscriptionTypesEnabled": ["Shared"],
    "resetcursor": {"ledgerId": -1, "entryId": -1, "partitionIndex": -1, "batchIndex": -1},
    "expireMessages": {"ledgerId": -1, "entryId": -1, "partitionIndex": -1, "batchIndex": -1},
}
_SCHEMA = {"type": "STRING", "schema": "", "properties": {}}
# Parts of Pulsar that are not here, of which only the refusal is compared: the standalone broker has no worker either.
_ABSENT = (
    "functions",
    "sinks",
    "sources",
    "worker",
    "worker-stats",
    "packages",
    "bookies",
    "resource-quotas",
)
_CHANGES_THE_BROKER = ("shutdown", "configuration", "backlog-quota-check", "preallocateSegment")


_PATIENCE_S = 15.0
_NO_ANSWER = 599  # Pulsar leaves some requests about things that it has not without an answer


class Answer(NamedTuple):
    status: int
    body: Any
    text: str


class _Side:
    def __init__(self, pulsar_address: str, http_address: str) -> None:
        self._http = f"http://{http_address}"
        logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
        self._client = pulsar.Client(f"pulsar://{pulsar_address}", logger=logger)

    def call(self, method: str, path: str, body: Any = None) -> Answer:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self._http}/{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=_PATIENCE_S) as response:
                status, text = response.status, response.read().decode(errors="replace")
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read().decode(errors="replace")
        except TimeoutError:
            status, text = _NO_ANSWER, "no answer"
        try:
            return Answer(status, json.loads(text), text)
        except ValueError:
            return Answer(status, None, text)

    def prepare(self, namespace: str, *, partitioned: bool) -> None:
        """A namespace with a topic that has a subscription and messages."""
        self.call("PUT", f"admin/v2/namespaces/paths/{namespace}", {})
        topic = f"admin/v2/persistent/paths/{namespace}/t"
        self.call("PUT", f"{topic}/partitions", 2) if partitioned else self.call("PUT", topic)
        self.call("PUT", f"{topic}/subscription/s", {"ledgerId": -1, "entryId": -1})
        producer = self._client.create_producer(f"persistent://paths/{namespace}/t")
        for number in range(3):
            producer.send(b"%d" % number)
        producer.close()

    def close(self) -> None:
        self._client.close()


def run(folder: Path) -> Tally:
    # The jars are those of the differential run.
    jars_folder = folder.parent / "pulsar-differential"
    jars_folder.mkdir(parents=True, exist_ok=True)
    tally = Tally()
    with (
        tempfile.TemporaryDirectory(dir=folder) as data,
        ServerProcess(Path(data) / "data", "--text", "off", "--kafka", "off") as server,
        PulsarStandalone(jars_folder) as standalone,
        ThreadPoolExecutor(2) as threads,
    ):
        routes = _routes(folder, jars_folder / "jars")
        theirs = _Side(standalone.pulsar, standalone.http)
        ours = _Side(str(server.address("pulsar")), str(server.address("http")))
        for side in (theirs, ours):
            side.call("PUT", "admin/v2/tenants/paths", {"allowedClusters": ["standalone"], "adminRoles": []})
        wanted = os.environ.get("OUTSIDE_PULSAR_ROUTES", "GET *")
        read: set[str] = set()  # namespaces that routes which only read share
        for number, route in enumerate(routes):
            if not fnmatch.fnmatchcase(route, wanted):
                continue
            partitioned = "artition" in route and not route.startswith("PUT")
            reads = route.startswith("GET")
            namespace = f"read-{partitioned}" if reads else f"n{number}"
            method, path = _filled(route, namespace)
            last = [part for part in path.split("/") if part != "s"][-1]

            def ask(side: _Side) -> Answer:
                if namespace not in read:  # noqa: B023
                    side.prepare(namespace, partitioned=partitioned)  # noqa: B023
                return side.call(method, path, _body(route, last))  # noqa: B023

            answers = list(threads.map(ask, (theirs, ours)))
            if reads:
                read.add(namespace)
            wrong = _difference(route, *answers)
            if wrong is None:
                tally.passed.append(route)
            else:
                tally.failed[route] = wrong
        theirs.close()
        ours.close()
    return tally


def _routes(folder: Path, jars: Path) -> list[str]:
    source = Path(__file__).parent / "pulsar_java" / "PulsarRoutes.java"
    call([program("javac"), "-cp", f"{jars}/*", "-d", folder / "classes", source], folder)
    (broker,) = jars.glob("pulsar-broker-[0-9]*.jar")
    listed = call([program("java"), "-cp", f"{jars}/*:{folder / 'classes'}", "PulsarRoutes", broker], folder)
    return [line for line in listed.splitlines() if re.match("(GET|PUT|POST|DELETE) ", line)]


def _filled(route: str, namespace: str) -> tuple[str, str]:
    method, _, path = route.partition(" ")
    places = {**_PLACES, "namespace": namespace}
    if path.startswith(("admin/v2/clusters", "admin/v2/tenants")) and method != "GET":
        places = {**places, "cluster": f"new-{namespace}", "tenant": f"new-{namespace}"}

    def fill(found: re.Match[str]) -> str:
        return places.get(found[1].partition(":")[0].strip(), "x")

    return method, re.sub(r"\{((?:[^{}]|\{[^{}]*\})*)\}", fill, path)


def _body(route: str, last: str) -> Any:
    if route.startswith(("GET", "DELETE")):
        return None
    if "/schemas/" in route:
        return _SCHEMA
    if "/permissions/" in route:
        return ["produce"] if "subscription" not in route else ["ann"]
    if route.startswith(("PUT admin/v2/tenants", "POST admin/v2/tenants")):
        return {"allowedClusters": ["standalone"], "adminRoles": []}
    return _BODIES.get(last, 10 if last.startswith("max") else None)


def _difference(route: str, theirs: Answer, ours: Answer) -> str | None:
    """What is wrong with our answer."""
    shown = f"Pulsar {theirs.status} {theirs.text[:150]!r}, Mainstem {ours.status} {ours.text[:150]!r}"
    if ours.status >= 500:
        return f"failed: {shown}"
    if ours.status >= 400 and not (isinstance(ours.body, dict) and ours.body.get("reason")):
        return f"no reason: {shown}"
    if route.split("/")[2] in _ABSENT or route.split("/")[-1] in _CHANGES_THE_BROKER:
        return None if ours.status >= 400 else f"accepted: {shown}"
    if (theirs.status < 300) != (ours.status < 300):
        return shown
    if theirs.status < 300 and route.startswith("GET"):
        if type(theirs.body) is not type(ours.body):
            return f"another kind: {shown}"
        if isinstance(theirs.body, dict) and isinstance(ours.body, dict):
            missing = [key for key in theirs.body if key not in ours.body]
            if missing:
                return f"without {missing}: {shown}"
    return None


_METRICS = "metrics are at /metrics"
_ONE_CLUSTER = "there is one cluster, which has no settings at run time, no isolation and no resource groups"
_FIELDS = "fields of what is not here are left out"
_OTHER_DOMAIN = "a policy that nobody can set reads as not set, whether or not the topic exists"
_NOT_SET = "a policy that nobody can set, or nobody has set, has no content or is always on"
_EXPECTED = {
    "GET admin/v2/broker-stats/bookieops": _METRICS,
    "GET admin/v2/broker-stats/load-report": _METRICS,
    "GET admin/v2/broker-stats/mbeans": _METRICS,
    "GET admin/v2/broker-stats/metrics": _METRICS,
    "GET admin/v2/broker-stats/topics": _METRICS,
    "GET admin/v2/brokers/backlog-quota-check": _ONE_CLUSTER,
    "GET admin/v2/brokers/configuration": _ONE_CLUSTER,
    "GET admin/v2/brokers/configuration/runtime": _ONE_CLUSTER,
    "GET admin/v2/brokers/internal-configuration": _ONE_CLUSTER,
    "GET admin/v2/clusters/{cluster}": _ONE_CLUSTER,
    "GET admin/v2/clusters/{cluster}/migrate": _ONE_CLUSTER,
    "GET admin/v2/clusters/{cluster}/namespaceIsolationPolicies": _ONE_CLUSTER,
    "GET admin/v2/clusters/{cluster}/namespaceIsolationPolicies/brokers": _ONE_CLUSTER,
    "GET admin/v2/clusters/{cluster}/peers": _ONE_CLUSTER,
    "GET admin/v2/namespaces/{cluster}/antiAffinity/{group}": _ONE_CLUSTER,
    "GET admin/v2/namespaces/{tenant}/{namespace}": _FIELDS,
    "GET admin/v2/namespaces/{tenant}/{namespace}/delayedDelivery": _NOT_SET,
    "GET admin/v2/namespaces/{tenant}/{namespace}/dispatcherPauseOnAckStatePersistent": _NOT_SET,
    "GET admin/v2/namespaces/{tenant}/{namespace}/encryptionRequired": _NOT_SET,
    "GET admin/v2/namespaces/{tenant}/{namespace}/isAllowAutoUpdateSchema": _NOT_SET,
    "GET admin/v2/namespaces/{tenant}/{namespace}/maxTopicsPerNamespace": _NOT_SET,
    "GET admin/v2/namespaces/{tenant}/{namespace}/offloadThreshold": _NOT_SET,
    "GET admin/v2/namespaces/{tenant}/{namespace}/offloadThresholdInSeconds": _NOT_SET,
    "GET admin/v2/namespaces/{tenant}/{namespace}/schemaValidationEnforced": _NOT_SET,
    "GET admin/v2/namespaces/{tenant}/{namespace}/subscriptionAuthMode": _NOT_SET,
    "GET admin/v2/namespaces/{tenant}/{namespace}/subscriptionTypesEnabled": _NOT_SET,
    "GET admin/v2/non-persistent/{tenant}/{namespace}/{bundle}": _OTHER_DOMAIN,
    "GET admin/v2/non-persistent/{tenant}/{namespace}/{topic}/autoSubscriptionCreation": _OTHER_DOMAIN,
    "GET admin/v2/non-persistent/{tenant}/{namespace}/{topic}/backlog": _OTHER_DOMAIN,
    "GET admin/v2/non-persistent/{tenant}/{namespace}/{topic}/compactionThreshold": _OTHER_DOMAIN,
    "GET admin/v2/non-persistent/{tenant}/{namespace}/{topic}/deduplicationSnapshotInterval": _OTHER_DOMAIN,
    "GET admin/v2/non-persistent/{tenant}/{namespace}/{topic}/delayedDelivery": _OTHER_DOMAIN,
    "GET admin/v2/non-persistent/{tenant}/{namespace}/{topic}/dispatcherPauseOnAckStatePersistent": _OTHER_DOMAIN,
    "GET admin/v2/non-persistent/{tenant}/{namespace}/{topic}/entryFilters": _OTHER_DOMAIN,
    "GET admin/v2/non-persistent/{tenant}/{namespace}/{topic}/offloadPolicies": _OTHER_DOMAIN,
    "GET admin/v2/non-persistent/{tenant}/{namespace}/{topic}/persistence": _OTHER_DOMAIN,
    "GET admin/v2/non-persistent/{tenant}/{namespace}/{topic}/replicatorDispatchRate": _OTHER_DOMAIN,
    "GET admin/v2/non-persistent/{tenant}/{namespace}/{topic}/schemaValidationEnforced": _OTHER_DOMAIN,
    "GET admin/v2/non-persistent/{tenant}/{namespace}/{topic}/subscribeRate": _OTHER_DOMAIN,
    "GET admin/v2/non-persistent/{tenant}/{namespace}/{topic}/subscriptionDispatchRate": _OTHER_DOMAIN,
    "GET admin/v2/non-persistent/{tenant}/{namespace}/{topic}/subscriptionTypesEnabled": _OTHER_DOMAIN,
    "GET admin/v2/persistent/{tenant}/{namespace}/{topic}/delayedDelivery": _NOT_SET,
    "GET admin/v2/persistent/{tenant}/{namespace}/{topic}/dispatcherPauseOnAckStatePersistent": _NOT_SET,
    "GET admin/v2/persistent/{tenant}/{namespace}/{topic}/internal-info": _FIELDS,
    "GET admin/v2/persistent/{tenant}/{namespace}/{topic}/internalStats": _FIELDS,
    "GET admin/v2/persistent/{tenant}/{namespace}/{topic}/lastMessageId": _FIELDS,
    "GET admin/v2/persistent/{tenant}/{namespace}/{topic}/messageid/{timestamp}": _FIELDS,
    "GET admin/v2/persistent/{tenant}/{namespace}/{topic}/offload": _NOT_SET,
    "GET admin/v2/persistent/{tenant}/{namespace}/{topic}/partitioned-stats": _FIELDS,
    "GET admin/v2/persistent/{tenant}/{namespace}/{topic}/schemaValidationEnforced": _NOT_SET,
    "GET admin/v2/persistent/{tenant}/{namespace}/{topic}/stats": _FIELDS,
    "GET admin/v2/resourcegroups": _ONE_CLUSTER,
    "GET admin/v2/schemas/{tenant}/{namespace}/{topic}/metadata": _NOT_SET,
    "GET lookup/v2/topic/{topic-domain}/{tenant}/{namespace}/{topic}": _ONE_CLUSTER,
}

SUITES = (Suite("pulsar-admin-routes", VERSION, run, _EXPECTED),)
