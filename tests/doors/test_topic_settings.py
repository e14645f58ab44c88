"""A real server accepts every documented topic setting with every kind of value, stops either way, and restarts."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from confluent_kafka.cimpl import NewTopic

from mainstem import limits
from mainstem.broker.topics.topic_settings import TOPIC_SETTINGS, TopicSetting
from mainstem.testing.server import ServerProcess

_TRIED = {
    "boolean": ("true", "false"),
    "int": ("1", "1048588"),
    "long": ("1", "86400000"),
    "double": ("0.5", "1"),
    "list": ("delete", "compact", "compact,delete", "delete,compact", "*"),
    "string": (
        *("fsync", "disk", "memory", "producer", "gzip", "zstd", "CreateTime", "LogAppendTime"),
        *("old", "reject", "log", "queue", "t", "1", "5", "true", "none", "id", "full"),
    ),
}


def _values(row: TopicSetting) -> list[str]:
    """The default, by name; and each value that the setting accepts."""
    found = [row.default]
    for value in _TRIED[row.kind]:
        try:
            row.parse(value)
        except ValueError:
            continue
        found.append(value)
    return list(dict.fromkeys(found))


_TOPICS = {
    f"{row.name}-{number}": {row.name: value}
    for row in TOPIC_SETTINGS
    for number, value in enumerate(_values(row))
    if value not in ("", "None")
}


def _create(server: ServerProcess, topics: dict[str, dict[str, str]]) -> dict[str, str]:
    """Returns why some were refused."""
    admin = AdminClient({"bootstrap.servers": str(server.address("kafka"))})
    refused = {}
    for name, future in admin.create_topics(
        [NewTopic(name, 1, config=config) for name, config in topics.items()]
    ).items():
        error = future.exception(60)
        if error is not None:
            refused[name] = str(error)
    return refused


def _described(server: ServerProcess, topics: list[str]) -> dict[str, dict[str, str]]:
    admin = AdminClient({"bootstrap.servers": str(server.address("kafka"))})
    asked = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name) for name in topics])
    return {
        resource.name: {name: entry.value for name, entry in future.result(60).items()}
        for resource, future in asked.items()
    }


def test_topics_of_every_setting_survive_a_clean_stop_and_a_kill(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        refused = _create(server, _TOPICS)
        made = sorted(set(_TOPICS) - set(refused))
        before = _described(server, made)
        assert {row.name for row in TOPIC_SETTINGS} <= set(before[made[0]])
        assert server.terminate() == 0
    assert len(refused) < len(_TOPICS) / 10, refused  # a few values need other settings too
    with ServerProcess(tmp_path / "data") as server:
        assert _described(server, made) == before
        server.kill()
    with ServerProcess(tmp_path / "data") as server:
        assert _described(server, made) == before
        assert server.terminate() == 0


@pytest.mark.parametrize(
    "config", [{"message.timestamp.type": "CreateTime"}, {"mainstem.durability": "fsync"}]
)
def test_a_named_default_replays_past_a_digest_after_a_kill(tmp_path: Path, config: dict[str, str]) -> None:
    with ServerProcess(tmp_path / "data", "--checkpoint-every-bytes", "1GiB") as server:
        assert not _create(server, {"named": config, "relaxed": {"mainstem.durability": "memory"}})
        with httpx.Client(base_url=f"http://{server.address('http')}") as client:
            for _ in range(limits.DIGEST_EVERY_COMMITS + 20):
                client.post("/v0/topics/relaxed", json={"records": [{"data": 1}]}).raise_for_status()
        server.kill()
    with ServerProcess(tmp_path / "data") as server:
        assert "digests not comparable" not in server.events()
        assert server.terminate() == 0
