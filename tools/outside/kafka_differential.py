"""The same random program of Kafka requests against Apache Kafka and Mainstem, and their answers compared.

A program is a seed. It stops at the first difference of a request that changes something, because later answers follow
from it. Every kind of request is a test: it fails with the first difference that was found, as `path Kafka's ≠
Mainstem's`.

    OUTSIDE_KAFKA_SEEDS=17,23 python -m tools.outside kafka-differential     # repeat these programs
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from pathlib import Path
from random import Random

from kio.index import load_response_schema

from mainstem.testing.server import ServerProcess
from tools.outside.kafka_programs import Program
from tools.outside.kafka_side import Answer, KafkaSide, Step
from tools.outside.kafka_standalone import VERSION, KafkaStandalone
from tools.outside.suite import Suite, Tally

PROGRAMS = 40
_PATIENCE = 3  # times that an answer is asked for again, before it counts as another one
_PATIENCE_S = 5.0  # Kafka may take 30 seconds to describe the offsets of a share group
_CHANGES = (
    *(
        "produce",
        "delete records",
        "init",
        "join",
        "sync",
        "leave",
        "offset commit",
        "offset delete",
        "delete",
        "alter",
    ),
    *(
        "consumer heartbeat",
        "share heartbeat",
        "share fetch",
        "share acknowledge",
        "streams heartbeat",
        "fetch in a session",
        "add",
        "txn",
        "end",
        "create",
    ),
    "incremental",
)

# APIs of delegation tokens, features, voters, client metrics, and between Kafka's brokers.
_NOT_OFFERED = {38, 39, 40, 41, 57, 64, 71, 72, 80, 81, 83, 84, 85, 86, 87}
# SaslHandshake for logins that are no requests, and AddPartitionsToTxn of brokers.
_OLD_VERSIONS = {17: {0}, 24: {4, 5}}

# Requests that are wrong in several ways get the error that is found first; that is not always Kafka's.
_OTHER_ERRORS = (  # kind of request, Kafka's error, Mainstem's
    ("*alter configs", "invalid_*", "unknown_topic_or_partition"),
    ("*", "invalid_topic_exception", "unknown_topic_or_partition"),
    ("describe topic partitions", "unknown_server_error", "unknown_topic_or_partition"),
    ("describe group configs", "invalid_request", "none"),  # of a group without a name
    ("*", "unknown_topic_or_partition", "unknown_leader_epoch"),
    ("create topics", "invalid_topic_exception", "invalid_replica_assignment"),
    ("create topics", "invalid_config", "invalid_partitions"),
    ("create topics", "invalid_topic_exception", "invalid_config"),
    ("delete groups", "none", "group_id_not_found"),  # Kafka has a group without a name
    ("alter client quotas", "none", "invalid_request"),  # removing what no quota is called
    ("describe share offsets", "none", "unknown_topic_or_partition"),
    ("* heartbeat", "invalid_request", "invalid_group_id"),
    ("* group describe", "invalid_group_id", "group_id_not_found"),
    (
        "share group describe",
        "group_id_not_found",
        "none",
    ),  # after offsets were set of partitions that do not exist
    ("describe share offsets", "unknown_server_error", "none"),  # of a group without a name
    ("* txn", "invalid_request", "invalid_producer_id_mapping"),
    ("add offsets to txn", "none", "invalid_request"),  # of a group without a name
    ("produce in a transaction", "not_enough_replicas", "*"),
    ("txn offset commit", "*", "transaction_abortable"),
    ("fetch in a session", "none", "fetch_session_id_not_found"),  # access rules have changed
    ("offset commit", "*", "invalid_group_id"),  # Kafka stores offsets for a group without a name
    ("offset delete", "none", "group_id_not_found"),  # Kafka keeps a group without members and offsets
    ("delete share offsets", "none", "group_id_not_found"),
    # A share fetch of a group that has no members leaves its positions here.
    ("delete share offsets", "group_id_not_found", "none"),
    ("delete groups", "group_id_not_found", "none"),
    ("streams heartbeat", "invalid_request", "streams_invalid_topology"),
    ("consumer heartbeat", "fenced_member_epoch", "invalid_regular_expression"),
    ("alter scram credentials", "resource_not_found", "duplicate_resource"),
    ("create acls", "unknown_server_error", "invalid_request"),
    ("produce*", "*", "invalid_required_acks"),
    ("produce idempotent", "transactional_id_authorization_failed", "unknown_topic_or_partition"),
    ("produce in a transaction", "invalid_producer_id_mapping", "invalid_txn_state"),
    ("produce idempotent", "transactional_id_authorization_failed", "invalid_txn_state"),
    ("txn offset commit", "*", "unknown_member_id"),
    ("produce in a transaction", "invalid_producer_id_mapping", "transaction_abortable"),
    ("txn offset commit", "*", "invalid_txn_state"),
    ("txn offset commit", "*", "invalid_producer_id_mapping"),
    ("txn offset commit", "unknown_topic_or_partition", "invalid_producer_epoch"),
    ("txn offset commit", "unknown_topic_or_partition", "invalid_group_id"),
    ("offset delete", "invalid_group_id", "group_id_not_found"),
    ("join group", "inconsistent_group_protocol", "unknown_member_id"),
    ("join group", "inconsistent_group_protocol", "none"),  # the only member may change the type of its group
    # A member of a group that does not exist is told to join again, not that the group is missing.
    ("* heartbeat", "group_id_not_found", "unknown_member_id"),
    ("offset commit", "illegal_generation", "unknown_member_id"),
    ("offset commit", "group_id_not_found", "unknown_member_id"),
    ("share *", "unknown_server_error", "none"),  # Kafka's, for a topic that it has not initialised yet
    ("share fetch", "*", "invalid_group_id"),  # of a group without a name: Kafka looks at the session first
    ("share acknowledge", "*", "invalid_group_id"),
)
# Of a group without a name, Kafka describes and deletes what was committed.
_NAMELESS = ("describe groups", "offset fetch", "offset delete")
# Kafka closes the connection if a resource, a pattern, an operation or a permission has a number without a meaning.
_CLOSES = ("create acls", "delete acls", "describe acls")
_BEGINS_FROM = 12  # version of Produce from which a batch adds its partition to the transaction
_TASKS = (".active_tasks", ".standby_tasks", ".warmup_tasks")


def run(folder: Path) -> Tally:
    chosen = os.environ.get("OUTSIDE_KAFKA_SEEDS")
    seeds = [int(seed) for seed in chosen.split(",")] if chosen else list(range(PROGRAMS))
    tally = Tally()
    with (
        tempfile.TemporaryDirectory(dir=folder) as data,
        ServerProcess(
            Path(data) / "data",
            *("--text", "off", "--kafka-acl", "on", "--kafka-super-users", "ANONYMOUS"),
            *("--kafka-allow-everyone-if-no-acl", "true", "--kafka-group-delay-ms", "50"),
            *("--kafka-auto-create", "false"),
        ) as server,
        KafkaStandalone(folder) as standalone,
        ThreadPoolExecutor(2) as threads,
    ):
        server.wait_ready()
        sides = (KafkaSide("kafka", standalone.port), KafkaSide("mainstem", server.address("kafka").port))
        newest = _shared_versions(sides)
        for side in sides:
            side.find_coordinators()
        tally.failed |= _not_offered(sides)
        kinds: set[str] = set()
        for seed in seeds:
            for kind, difference in compare(sides, seed, newest, threads):
                kinds.add(kind)
                if difference is not None:
                    tally.failed.setdefault(
                        f"{kind}: {difference.splitlines()[0][:160]}", f"seed {seed}\n{difference}"
                    )
    tally.passed = sorted(kinds)
    return tally


def _not_offered(sides: tuple[KafkaSide, KafkaSide]) -> dict[str, str]:
    """The APIs and versions that only Kafka has."""
    kafka, mainstem = (side.versions() for side in sides)
    found = {}
    for key in sorted(kafka.keys() - _NOT_OFFERED):
        offered = {*_all(mainstem.get(key, (0, -1))), *_OLD_VERSIONS.get(key, ())}
        missing = sorted(set(_all(kafka[key])) - offered)
        if missing:
            found[f"versions of API {key}"] = f"Mainstem lacks {missing} of {kafka[key]}"
    return found


def _all(versions: tuple[int, int]) -> range:
    return range(versions[0], versions[1] + 1)


def _shared_versions(sides: tuple[KafkaSide, KafkaSide]) -> Mapping[int, tuple[int, int]]:
    """The versions of each API that both servers and the message library have."""
    kafka, mainstem = (side.versions() for side in sides)
    found = {}
    for key in kafka.keys() & mainstem.keys():
        first, last = max(kafka[key][0], mainstem[key][0]), min(kafka[key][1], mainstem[key][1])
        while not _known(key, last):
            last -= 1
        found[key] = (first, last)
    return found


def _known(key: int, version: int) -> bool:
    try:
        load_response_schema(key, version)
    except ValueError:
        return False
    return True


def compare(
    sides: tuple[KafkaSide, KafkaSide],
    seed: int,
    newest: Mapping[int, tuple[int, int]],
    threads: ThreadPoolExecutor,
    *,
    stops: bool = True,
) -> Iterator[tuple[str, str | None]]:
    """Run the program of a seed. Yields each kind of request, and the difference that it made."""
    for side in sides:
        side.begin()
    log: list[str] = []
    begun: set[str] = (
        set()
    )  # transactional ids of batches that were refused: Kafka began a transaction with them
    program = Program(Random(seed), f"s{seed}-", newest)
    try:
        for step in program:
            kafka, mainstem = _both(sides, step, threads)
            difference = _step_difference(step, kafka, mainstem)
            if (
                step.kind == "produce in a transaction"
                and step.version >= _BEGINS_FROM
                and '"error_code": "none"' not in json.dumps(mainstem)
            ):
                begun.add(step.values["transactional_id"])
            if step.kind == "end txn" and step.values["transactional_id"] in begun:
                if [one["error_code"] for one in (kafka, mainstem)] == ["none", "invalid_txn_state"]:
                    return
                begun.discard(step.values["transactional_id"])
            if step.kind == "fetch in a session" and _ended(kafka) and not mainstem["responses"]:
                difference = (
                    None  # Kafka ends a session without partitions, and the next request may name some
                )
                for side in sides:
                    side.slots["session"] = 0
            log.append(f"{step.kind} v{step.version} {step.values}: {json.dumps(kafka)[:300]}")
            if difference is None:
                yield step.kind, None
            else:
                trail = "\n".join(f"  {line}" for line in log[-40:])
                yield (
                    step.kind,
                    f"{difference}\n  of {step.kind} v{step.version} {step.values}, after\n{trail}",
                )
                if stops and _changes(step):
                    return
            if step.kind == "end txn":
                time.sleep(0.1)  # Kafka writes the markers after the answer
            if step.kind in ("create topics", "delete topics", "create partitions"):
                time.sleep(0.2)  # Kafka's brokers hear of it after the answer
                for side in sides:
                    side.learn(program.topics)
    finally:
        for side in sides:
            side.end()


def _documented(kind: str, kafka: str, mainstem: str) -> bool:
    """Whether two errors for a wrong request are known to differ."""
    return any(
        fnmatch(kind, kinds) and fnmatch(str(kafka), one) and fnmatch(str(mainstem), two)
        for kinds, one, two in _OTHER_ERRORS
    )


def _changes(step: Step) -> bool:
    return step.kind.startswith(_CHANGES)


def _both(sides: tuple[KafkaSide, KafkaSide], step: Step, threads: ThreadPoolExecutor) -> list[Answer]:
    """The answers of both, asked for again while they differ and the request only reads."""
    answers = list(threads.map(lambda side: side.do(step), sides))
    since = time.monotonic()
    for _ in range(0 if _changes(step) else _PATIENCE):
        if _step_difference(step, *answers) is None or time.monotonic() > since + _PATIENCE_S:
            break
        time.sleep(0.2)
        answers = list(threads.map(lambda side: side.do(step), sides))
    return answers


def _ended(answer: Answer) -> bool:
    return bool(answer.get("error_code") == "none" and answer["session_id"] == 0)


def _step_difference(step: Step, kafka: Answer, mainstem: Answer) -> str | None:
    if step.kind in _NAMELESS and "" in (step.values.get("group_id"), *step.values.get("groups", ())):
        return None
    if step.kind in _CLOSES and "connection" in kafka and '"invalid_request"' in json.dumps(mainstem):
        return None
    return _difference(step.kind, kafka, mainstem)


def _difference(kind: str, first: Answer, second: Answer, at: str = "") -> str | None:
    """Where two answers differ: Kafka's comes first."""
    if isinstance(first, dict) and isinstance(second, dict):
        kafka, mainstem = first.get("error_code"), second.get("error_code")
        if kafka != mainstem and kafka and mainstem and _documented(kind, kafka, mainstem):
            return None  # the rest follows from it
        if kind == "describe share offsets" and first.get("start_offset") == -1 and "start_offset" in second:
            return None  # Kafka has initialised the share partition, but stored nothing yet
        if kind == "list offsets" and first.get("timestamp") == "now" and second.get("timestamp") == -1:
            return None  # Kafka finds the end of a transaction; all records of the programs are older
        if kind == "streams group describe" and first.get("group_state") == "NotReady":
            second = {**second, "group_state": "NotReady"}  # Kafka sees new topics at the next heartbeat
        for key in [*first, *(key for key in second if key not in first)]:
            if key not in first or key not in second:
                return f"{at}.{key}: {'Kafka' if key not in first else 'Mainstem'} has none"
            found = _difference(kind, first[key], second[key], f"{at}.{key}")
            if found is not None:
                return found
        return None
    if kind.startswith("produce") and at.endswith(".log_append_time") and isinstance(first, int):
        return None  # of a batch that came before: Kafka repeats the time that its producer gave
    if kind == "streams group describe" and first == 0 and "_topics[" in at and at.endswith(".partitions"):
        return None  # of internal topics that Kafka has not seen yet
    if kind == "streams heartbeat" and at in _TASKS and not (first and second):
        return None  # a member gets them once the assignor ran, which is earlier here
    if isinstance(first, list) and isinstance(second, list):
        if at.endswith(".active_producers"):
            first, second = _without_ended(first, second)
        if (kind == "txn offset commit" and at == ".topics") or (
            kind.startswith("fetch") and at == ".responses"
        ):
            first, second = _merged(first), _merged(second)
        if kind.startswith("fetch") and at.endswith(".partitions"):
            # Kafka answers once for a partition that a request names twice.
            first = [one for place, one in enumerate(first) if one not in first[:place]]
            second = [one for place, one in enumerate(second) if one not in second[:place]]
        if len(first) != len(second):
            alone = [json.dumps(one) for one in first if one not in second]
            others = [json.dumps(one) for one in second if one not in first]
            return f"{at} only Kafka has {alone[:3]}, only Mainstem has {others[:3]}"
        for one, two in zip(first, second, strict=True):
            found = _difference(
                kind, one, two, f"{at}[{one['name'] if isinstance(one, dict) and 'name' in one else ''}]"
            )
            if found is not None:
                return found
        return None
    if first == second or (at.endswith("error_code") and _documented(kind, first, second)):
        return None
    return f"{at} {json.dumps(first)[:400]} ≠ {json.dumps(second)[:400]}"


def _without_ended(kafka: list[Answer], mainstem: list[Answer]) -> tuple[list[Answer], list[Answer]]:
    """Producers without those that wrote nothing after the end of a transaction. Kafka shows the epoch of the marker
    for them; Mainstem shows their last batch in the partition, if they wrote one."""
    ended = {
        one["producer_id"] for one in kafka if one["last_sequence"] == one["current_txn_start_offset"] == -1
    }
    return (
        [one for one in kafka if one["producer_id"] not in ended],
        [one for one in mainstem if one["producer_id"] not in ended or one["current_txn_start_offset"] != -1],
    )


def _merged(topics: list[Answer]) -> list[Answer]:
    """Kafka answers once for each topic, also if a request names it twice or its session got partitions later."""
    found: dict[str, Answer] = {}
    for topic in topics:
        name = next((topic[key] for key in ("name", "topic", "topic_id") if topic.get(key)), "")
        found.setdefault(name, {**topic, "partitions": []})["partitions"] += topic["partitions"]
    for topic in found.values():
        topic["partitions"].sort(key=lambda one: one["partition_index"])
    return list(found.values())


SUITES = (Suite("kafka-differential", VERSION, run, {}),)
