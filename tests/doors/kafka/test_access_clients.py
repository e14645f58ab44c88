"""Real clients under access rules: what they are told, and that rules outlive the server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from mainstem.testing.server import ServerProcess
from tests.support.cluster_server import server_process

_FLAGS = ("--kafka-sasl", "plain", "--kafka-super-users", "root")
_USERS = {"MAINSTEM_KAFKA_USERS": "root:r,ann:a,bob:b"}


def _as(server: ServerProcess, user: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": str(server.address("kafka")),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": user,
        "sasl.password": password,
    }


def _binding(kind: ResourceType, name: str, user: str, operation: AclOperation, **options: Any) -> AclBinding:
    pattern = options.get("pattern", ResourcePatternType.LITERAL)
    permission = options.get("permission", AclPermissionType.ALLOW)
    return AclBinding(kind, name, pattern, f"User:{user}", "*", operation, permission)


def _sent(config: dict[str, Any], topic: str) -> KafkaError | None:
    producer = Producer(config)
    errors: list[KafkaError | None] = []
    producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error))
    producer.flush(20)
    return errors[0]


def _first_error_or_value(config: dict[str, Any], group: str, topic: str) -> Any:
    consumer = Consumer({**config, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        message = consumer.poll(20)
        assert message is not None
        return message.error().code() if message.error() else message.value()
    finally:
        consumer.close()


def test_rules_decide_what_clients_may_do_and_survive_a_kill(tmp_path: Path) -> None:
    rules = [
        _binding(
            ResourceType.TOPIC, "plant-", "ann", AclOperation.WRITE, pattern=ResourcePatternType.PREFIXED
        ),
        _binding(
            ResourceType.TOPIC, "plant-", "bob", AclOperation.READ, pattern=ResourcePatternType.PREFIXED
        ),
        _binding(ResourceType.GROUP, "readers", "bob", AclOperation.READ),
        _binding(ResourceType.TOPIC, "plant-9", "ann", AclOperation.ALL, permission=AclPermissionType.DENY),
    ]
    denied = KafkaError.TOPIC_AUTHORIZATION_FAILED
    with server_process(tmp_path / "data", *_FLAGS, env=_USERS) as server:
        root = AdminClient(_as(server, "root", "r"))
        for made in root.create_topics(
            [NewTopic("plant-7", 1), NewTopic("plant-9", 1), NewTopic("other", 1)]
        ).values():
            made.result(20)
        assert _sent(_as(server, "ann", "a"), "plant-7").code() == denied  # type: ignore[union-attr]
        for done in root.create_acls(rules).values():
            done.result(20)
        server.kill()
    with server_process(tmp_path / "data", *_FLAGS, env=_USERS) as server:
        root, ann = AdminClient(_as(server, "root", "r")), AdminClient(_as(server, "ann", "a"))
        every = AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            None,
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        assert set(root.describe_acls(every).result(20)) == set(rules)
        assert _sent(_as(server, "ann", "a"), "plant-7") is None
        for topic in ("plant-9", "other"):
            assert _sent(_as(server, "ann", "a"), topic).code() == denied  # type: ignore[union-attr]
        bob = _as(server, "bob", "b")
        assert _first_error_or_value(bob, "readers", "plant-7") == b"x"
        assert _first_error_or_value(bob, "strangers", "plant-7") == KafkaError.GROUP_AUTHORIZATION_FAILED
        assert sorted(ann.list_topics(timeout=20).topics) == ["plant-7"]
        for refused in (
            ann.create_acls(rules[:1])[rules[0]],
            ann.create_topics([NewTopic("mine", 1)])["mine"],
            ann.delete_topics(["plant-7"])["plant-7"],
        ):
            with pytest.raises(KafkaException, match="AUTHORIZATION_FAILED"):
                refused.result(20)
        removed = root.delete_acls([every])[every].result(20)
        assert set(removed) == set(rules)
        assert _sent(_as(server, "ann", "a"), "plant-7").code() == denied  # type: ignore[union-attr]
