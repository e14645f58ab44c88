"""Topic settings by name: what is accepted, what is refused and how, and what a topic shows."""

from __future__ import annotations

import msgspec
import pytest

from mainstem.broker.topics import configs
from mainstem.broker.topics.configs import TOPIC_SETTING_CHARS_MAX, ConfigEdit
from mainstem.broker.topics.topic_settings import BY_NAME, TOPIC_SETTINGS, TopicSetting
from mainstem.errors import InvalidConfig
from mainstem.ledger.config import TopicConfig
from tests.support.machine import Machine

SERVER = TopicConfig(durability="disk")  # a server whose topics get another class than the built-in one

# A value that differs from the default, for every setting.
OTHER = {
    "cleanup.policy": "compact,delete",
    "compression.gzip.level": "5",
    "compression.lz4.level": "3",
    "compression.type": "zstd",
    "compression.zstd.level": "7",
    "delete.retention.ms": "1",
    "file.delete.delay.ms": "1",
    "flush.messages": "1",
    "flush.ms": "1",
    "follower.replication.throttled.replicas": "0:1,1:1",
    "index.interval.bytes": "1",
    "leader.replication.throttled.replicas": "*",
    "local.retention.bytes": "1",
    "local.retention.ms": "1",
    "mainstem.backlog.bytes": "9",
    "mainstem.backlog.bytes.policy": "producer_exception",
    "mainstem.backlog.ms": "8",
    "mainstem.backlog.ms.policy": "consumer_backlog_eviction",
    "mainstem.cap.bytes": "7",
    "mainstem.cap.records": "6",
    "mainstem.discard": "reject",
    "mainstem.durability": "memory",
    "mainstem.consumer.unacked.max": "3",
    "mainstem.consumers.max": "3",
    "mainstem.inactive.mode": "delete_when_subscriptions_caught_up",
    "mainstem.inactive.ms": "7",
    "mainstem.keep.backlog": "true",
    "mainstem.producers.max": "3",
    "mainstem.subscription.consumers.max": "3",
    "mainstem.subscription.expiry.ms": "7",
    "mainstem.subscription.unacked.max": "3",
    "mainstem.subscriptions.max": "3",
    "mainstem.pulsar.deduplication": "true",
    "mainstem.subscription.ttl.ms": "4",
    "mainstem.table": "true",
    "mainstem.key.schema.validation": "full",
    "mainstem.ttl.ms": "5",
    "mainstem.type": "queue",
    "mainstem.validate.records": "full",
    "mainstem.value.schema.validation": "id",
    "mainstem.wal.profile": "cost",
    "max.compaction.lag.ms": "1000",
    "max.message.bytes": "2000",
    "message.downconversion.enable": "false",
    "message.timestamp.after.max.ms": "1",
    "message.timestamp.before.max.ms": "1",
    "message.timestamp.difference.max.ms": "1",
    "message.timestamp.type": "LogAppendTime",
    "min.cleanable.dirty.ratio": "0.25",
    "min.compaction.lag.ms": "1",
    "min.insync.replicas": "2",
    "preallocate": "true",
    "remote.log.copy.disable": "true",
    "remote.log.delete.on.disable": "true",
    "remote.storage.enable": "true",
    "retention.bytes": "1",
    "retention.ms": "1",
    "segment.bytes": "1048576",
    "segment.index.bytes": "1024",
    "segment.jitter.ms": "1",
    "segment.ms": "1",
    "unclean.leader.election.enable": "true",
}


def test_no_two_settings_share_a_field() -> None:
    fields = [row.field for row in TOPIC_SETTINGS if not row.inert]
    assert len(fields) == len(set(fields))
    assert set(fields) < set(TopicConfig.__struct_fields__)


@pytest.mark.parametrize("row", TOPIC_SETTINGS, ids=lambda row: row.name)
def test_the_default_of_a_setting_is_a_valid_value(row: TopicSetting) -> None:
    assert configs.parse({row.name: row.default}) == TopicConfig()
    assert row.help.endswith(".")


@pytest.mark.parametrize("name", BY_NAME)
def test_a_setting_reads_back_as_it_was_set(name: str) -> None:
    config = configs.parse({name: OTHER[name]})
    assert config != TopicConfig()
    shown = {entry.setting.name: entry.value for entry in configs.entries(config, TopicConfig())}
    assert shown[name] == OTHER[name]
    assert {other for other, value in shown.items() if value != BY_NAME[other].default} == {name}


def test_topic_settings_round_trip() -> None:
    config = configs.parse(OTHER)
    assert config.retention_ms == 1
    assert config.cleanup_policy == "compact,delete"
    assert (config.type, config.durability, config.table) == ("queue", "memory", True)
    assert configs.describe(config) == OTHER
    assert configs.parse(configs.describe(config)) == config


def test_a_config_survives_encoding() -> None:
    config = configs.replaced(OTHER, SERVER)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(config), type=TopicConfig) == config
    assert msgspec.msgpack.decode(msgspec.msgpack.encode({}), type=TopicConfig) == TopicConfig()


def test_topic_settings_not_named_stay_as_the_base_has_them() -> None:
    base = TopicConfig(durability="memory", cap_records=3)
    assert configs.parse({"retention.ms": "1"}, base) == TopicConfig(
        durability="memory", cap_records=3, retention_ms=1
    )


def test_settings_without_effect_are_shown_only_where_they_differ() -> None:
    assert "flush.ms" not in configs.describe(TopicConfig())
    assert configs.describe(configs.parse({"flush.ms": "1000"}))["flush.ms"] == "1000"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("retention.mss", "1", r"unknown topic setting 'retention.mss' \(did you mean retention.ms\?\)"),
        ("durability", "disk", "did you mean mainstem.durability"),
        ("x" * 100_000, "1", "unknown topic setting 'xxx"),
        ("", "1", "unknown topic setting ''"),
        ("retention.ms", "a day", "retention.ms takes a whole number"),
        ("retention.ms", "", "retention.ms takes a whole number"),
        ("retention.ms", "-2", "retention.ms takes -1 to"),
        ("retention.ms", str(2**63), "retention.ms takes -1 to"),
        ("mainstem.cap.records", "-1", "mainstem.cap.records takes 0 to"),
        ("cleanup.policy", "remove", "cleanup.policy takes delete, compact"),
        ("mainstem.durability", "fsink", "did you mean fsync"),
        ("mainstem.table", "yes", "mainstem.table takes true or false"),
        ("max.message.bytes", str(2**40), "max.message.bytes takes 0 to"),
        ("min.insync.replicas", "0", "min.insync.replicas takes 1 to"),
        ("min.cleanable.dirty.ratio", "nan", "min.cleanable.dirty.ratio takes 0 to 1"),
        ("min.cleanable.dirty.ratio", "half", "min.cleanable.dirty.ratio takes a number"),
        ("compression.type", "brotli", "compression.type takes one of"),
        ("preallocate", "1", "preallocate takes true or false"),
        (
            "leader.replication.throttled.replicas",
            "0:1," * TOPIC_SETTING_CHARS_MAX,
            "takes at most 65536 characters",
        ),
    ],
)
def test_a_wrong_topic_setting_is_named(name: str, value: str, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        configs.parse({name: value})


def test_compaction_lags_must_leave_a_window() -> None:
    with pytest.raises(InvalidConfig, match=r"must be at least min.compaction.lag.ms, which is 10"):
        configs.parse({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"})
    with pytest.raises(InvalidConfig, match=r"must be at least min.compaction.lag.ms"):
        configs.parse({"max.compaction.lag.ms": "9"}, TopicConfig(min_compaction_lag_ms=10))


def _source(config: TopicConfig, name: str) -> str:
    return next(e.source for e in configs.entries(config, SERVER) if e.setting.name == name)


def test_a_value_comes_from_the_topic_the_server_or_the_table() -> None:
    config = configs.replaced({"retention.ms": "5"}, SERVER)
    assert _source(config, "retention.ms") == "topic"
    assert _source(config, "mainstem.durability") == "server"
    assert _source(config, "retention.bytes") == "default"
    assert _source(config, "segment.ms") == "default"


def test_a_default_that_was_given_by_name_counts_as_the_topics_own() -> None:
    config = configs.replaced({"retention.ms": "-1", "segment.ms": "604800000"}, SERVER)
    assert _source(config, "retention.ms") == _source(config, "segment.ms") == "topic"
    assert configs.edited(config, [ConfigEdit("retention.ms", "delete")], SERVER).named == ("segment.ms",)


def test_replacing_resets_settings_that_are_not_named() -> None:
    before = configs.replaced({"retention.ms": "5", "segment.ms": "9"}, SERVER)
    after = configs.replaced({"retention.bytes": "7"}, SERVER)
    assert configs.describe(before)["segment.ms"] == "9"
    assert after == TopicConfig(durability="disk", retention_bytes=7, named=("retention.bytes",))


def test_replacing_keeps_fixed_and_unnamed_settings() -> None:
    before = TopicConfig(type="queue", retention_ms=3, lease_ms=7)
    after = configs.replaced({"retention.bytes": "9"}, SERVER, before)
    assert (after.type, after.lease_ms) == ("queue", 7)
    assert (after.retention_ms, after.retention_bytes, after.durability) == (-1, 9, "disk")


def test_edits_set_and_delete_single_settings() -> None:
    config = configs.replaced({"retention.ms": "5", "mainstem.durability": "memory"}, SERVER)
    config = configs.edited(
        config,
        [ConfigEdit("retention.bytes", "set", "7"), ConfigEdit("mainstem.durability", "delete")],
        SERVER,
    )
    assert (config.retention_ms, config.retention_bytes, config.durability) == (5, 7, "disk")
    assert config.named == ("retention.bytes", "retention.ms")
    assert _source(config, "mainstem.durability") == "server"


def test_edits_append_to_lists_and_subtract_from_them() -> None:
    config = configs.edited(TopicConfig(), [ConfigEdit("cleanup.policy", "append", "compact")], SERVER)
    assert config.cleanup_policy == "delete,compact"
    assert configs.edited(config, [ConfigEdit("cleanup.policy", "append", "compact")], SERVER) == config
    config = configs.edited(config, [ConfigEdit("cleanup.policy", "subtract", "delete,remove")], SERVER)
    assert config.cleanup_policy == "compact"
    emptied = configs.edited(config, [ConfigEdit("cleanup.policy", "subtract", "compact")], SERVER)
    assert emptied.cleanup_policy == ""
    with pytest.raises(InvalidConfig, match=r"retention.ms is not a list"):
        configs.edited(config, [ConfigEdit("retention.ms", "append", "1")], SERVER)
    with pytest.raises(InvalidConfig, match="unknown topic setting"):
        configs.edited(config, [ConfigEdit("retention", "delete")], SERVER)


async def test_a_topics_settings_survive_a_restart_and_a_power_loss(machine: Machine) -> None:
    broker = await machine.open()
    config = configs.replaced(OTHER, SERVER)
    await broker.create_topic("everything", config=config)
    broker = await machine.restart()
    assert broker.topic("everything").config == config
    await machine.lose_power()
    broker = await machine.open()
    assert broker.topic("everything").config == config
