"""A real server against the model of the contract: killed, stopped, and written to through the Kafka door as well."""

from __future__ import annotations

import asyncio
import base64
import time
from pathlib import Path
from typing import Any

import confluent_kafka
import httpx
import pytest

from tests.support.cluster_server import server_process

from .contract_model import Settings, Stored
from .contract_queue_walk import QueueWalk
from .contract_steps import Step, steps
from .contract_walk import LOGS

_STEPS = 45
_PATIENCE_S = 60
_LONG_MS = 600_000  # a lease that does not end while a test runs

_QUEUE = Settings(type="queue", lease_ms=_LONG_MS)
_CONFIGS: dict[str, tuple[Settings, ...]] = {
    "a": (Settings(), Settings(cap_records=5), Settings(cap_records=6, discard="reject")),
    "b": (Settings(), Settings(cap_records=8)),
    "c": (Settings(dedupe_node=False),),
    "q": (
        _QUEUE,
        Settings(type="queue", lease_ms=_LONG_MS, max_deliveries=2, dead_letter="dead", leases_durable=True),
    ),
}


class OverWires:
    """A server process. Its clock and its routers are its own."""

    exact_time = False

    def __init__(self, data: Path) -> None:
        self._data = data
        self.process = server_process(data, "--text", "off").wait_ready()
        self._client = httpx.AsyncClient(timeout=30)

    async def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        url = f"http://{self.process.address('http')}{path}"
        answer = await self._client.request(method, url, json=body)
        return answer.status_code, answer.json()

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def wait(self, ms: int) -> None:
        """It does not wait for us."""

    async def restart(self, how: int) -> None:
        self.process.kill() if how % 2 else self.process.terminate()
        self.process = server_process(self._data, "--text", "off").wait_ready()

    async def close(self) -> None:
        await self._client.aclose()
        self.process.kill()


class KafkaWalk(QueueWalk):
    """Writes through the Kafka door as well, and reads all of it there in the end."""

    target: OverWires

    async def run(self, walk: list[Step]) -> None:
        await super().run(walk)
        for name in LOGS:
            if name in self.world.topics:
                await asyncio.to_thread(self._check_kafka, name)

    async def step_kafka(self, step: Step) -> None:
        """Some records of which one is no JSON, as they are or in a transaction."""
        name = step.pick(0, LOGS)
        topic = self.world.topics.get(name)
        if topic is None or topic.settings.discard == "reject":
            return
        end = step.pick(1, ("commit", "abort")) if not topic.settings.tracked and step.dice[2] % 2 else None
        values = [b'{"kafka":%d}' % step.dice[3], b"\xff not JSON", None][: 1 + step.dice[4] % 3]
        await asyncio.to_thread(self._produce, name, values, end)
        self.story.append(f"kafka {name} {values} {end}")
        if end == "abort":
            topic.take_unseen(len(values) + 1)
            return
        records = [
            Stored({"kafka": step.dice[3]}, 0, "key", "kafka", {"m": 1}),
            Stored(None, 0, "key", "kafka", {"m": 1}, raw=base64.b64encode(b"\xff not JSON").decode()),
            Stored(None, 0, "key", "kafka", {"m": 1}),
        ]
        topic.append(records[: len(values)])
        if end == "commit":
            topic.take_unseen(1)

    def _produce(self, name: str, values: list[bytes | None], end: str | None) -> None:
        config: dict[str, Any] = {"bootstrap.servers": str(self.target.process.address("kafka"))}
        if end is not None:
            config["transactional.id"] = "walk"
        producer = confluent_kafka.Producer(config)
        if end is not None:
            producer.init_transactions(_PATIENCE_S)
            producer.begin_transaction()
        for value in values:
            headers = [("node", b"kafka"), ("meta", b'{"m":1}')]
            producer.produce(name, value, b"key", partition=0, headers=headers)
        assert producer.flush(_PATIENCE_S) == 0
        if end == "commit":
            producer.commit_transaction(_PATIENCE_S)
        elif end == "abort":
            producer.abort_transaction(_PATIENCE_S)

    def _check_kafka(self, name: str) -> None:
        """Offsets, keys and values as a Kafka consumer gets them: those of the model, whatever door they came by."""
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": str(self.target.process.address("kafka")),
                "group.id": "walk",
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )
        try:
            consumer.assign([confluent_kafka.TopicPartition(name, 0, confluent_kafka.OFFSET_BEGINNING)])
            got = {}
            deadline = time.monotonic() + _PATIENCE_S
            while time.monotonic() < deadline:
                message = consumer.poll(1)
                if message is None:
                    continue
                if message.error():
                    assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
                    break
                headers = dict(message.headers() or ())
                got[message.offset() + 1] = (message.key(), message.value(), headers.get("node"))
        finally:
            consumer.close()
        expected = {
            seq: (_encoded(record.tag), _value(record), _encoded(record.node))
            for seq, record in self.world.topics[name].records.items()
        }
        assert got == expected


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _value(record: Stored) -> bytes | None:
    if record.raw is not None:
        return base64.b64decode(record.raw)
    return None if record.data is None else httpx.Request("POST", "http://x", json=record.data).content


@pytest.mark.alone("a Kafka client hands on no position: another broker may not know yet what it wrote")
async def test_a_server_that_is_killed_and_written_to_by_every_door_answers_as_the_model(
    http_server_seed: int, tmp_path: Path
) -> None:
    target = OverWires(tmp_path / "data")
    walk = KafkaWalk(target, _CONFIGS, lease_ms=_LONG_MS)
    try:
        await walk.run(steps(http_server_seed, _STEPS, kafka=14))
    except AssertionError as error:
        raise AssertionError("\n".join(walk.story[-12:])) from error
    finally:
        await target.close()
