"""A broker's settings, under the names that Kafka clients know."""

from __future__ import annotations

from dataclasses import dataclass

from mainstem import limits
from mainstem.broker.broker_settings import AUTO_CREATE, NUM_PARTITIONS
from mainstem.broker.topics.configs import value_of
from mainstem.broker.topics.topic_settings import TOPIC_SETTINGS, Kind
from mainstem.doors.kafka.transport.context import KafkaContext


@dataclass(frozen=True, slots=True)
class BrokerSetting:
    name: str
    kind: Kind
    value: str
    help: str
    changed: str | None = None  # for all brokers, at run time


def broker_settings(context: KafkaContext) -> list[BrokerSetting]:
    """By name. Topic defaults have the names that Kafka uses for broker settings."""
    listener = f"PLAINTEXT://{context.advertised_host}:{context.advertised_port}"
    options = context.broker.options
    own = [
        BrokerSetting("advertised.listeners", "string", listener, "Where clients are sent."),
        BrokerSetting(
            AUTO_CREATE,
            "boolean",
            str(context.auto_create_flag).lower(),
            "Whether a topic that a client names is made.",
            context.broker.settings.get(AUTO_CREATE),
        ),
        BrokerSetting("broker.id", "int", str(context.node_id), "The number of this broker."),
        BrokerSetting(
            "connections.max.reauth.ms",
            "long",
            str(context.security.reauthenticate_ms),
            "How long a login lasts; 0: as long as its connection.",
        ),
        BrokerSetting("default.replication.factor", "int", "1", "Copies are the store's, not the brokers'."),
        BrokerSetting("delete.topic.enable", "boolean", "true", "Topics can be deleted."),
        BrokerSetting("log.dirs", "list", str(options.data_dir), "The directory that holds the log."),
        BrokerSetting("node.id", "int", str(context.node_id), "The number of this broker."),
        BrokerSetting(
            NUM_PARTITIONS,
            "int",
            str(context.default_partitions_flag),
            "Partitions of a topic that is created without a number.",
            context.broker.settings.get(NUM_PARTITIONS),
        ),
        BrokerSetting(
            "socket.request.max.bytes", "int", str(limits.KAFKA_REQUEST_BYTES_MAX), "The largest request."
        ),
        BrokerSetting(
            "transaction.two.phase.commit.enable",
            "boolean",
            str(context.two_phase_commit).lower(),
            "Whether producers may use two-phase commit, with transactions that never time out.",
        ),
    ]
    if context.rack is not None:
        own.append(BrokerSetting("broker.rack", "string", context.rack, "Where this broker stands."))
    defaults = [
        BrokerSetting(row.server_name, row.kind, value_of(row, options.default_config), row.help)
        for row in TOPIC_SETTINGS
        if row.server_name
    ]
    return sorted(own + defaults, key=lambda setting: setting.name)
