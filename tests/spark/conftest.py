"""One Spark session for all tests of the run: starting one takes longer than most tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from mainstem.records.building import build_batch
from mainstem.testing.server import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OCTETS = {"content-type": "application/octet-stream"}
TIME_MS = 1_700_000_000_000


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from mainstem.spark.session import open_session

    scratch = tmp_path_factory.mktemp("spark")
    session = open_session(
        "mainstem tests",
        master="local[2,2]",
        settings={
            "spark.local.dir": str(scratch),
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
            "spark.sql.streaming.metricsEnabled": "false",
        },
    )
    yield session
    session.stop()


class Broker:
    """A real server and what tests ask of it."""

    def __init__(self, process: ServerProcess) -> None:
        self.process = process
        self.url = f"http://{process.address('http')}"
        self.client = httpx.Client(base_url=self.url, timeout=30)

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """The answer's body; anything but success fails the test."""
        answer = self.client.request(method, path, **({} if body is None else {"json": body}))
        assert answer.is_success, answer.text
        return answer.json()

    def create(self, topic: str, partitions: int = 1, **config: object) -> None:
        """Through the Kafka door, which is where partitions are counted."""
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": str(self.process.address("kafka"))})
        settings = {name.replace("_", "."): str(value) for name, value in config.items()}
        made = admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])
        made[topic].result(30)

    def write(
        self,
        topic: str,
        *values: bytes | None,
        partition: int = 0,
        keys: list[bytes | None] | None = None,
        headers: list[Any] | None = None,
        times: int | list[int] = TIME_MS,
    ) -> int:
        """One batch; gives back its first offset."""
        batch = build_batch(list(values), keys=keys, headers=headers, timestamps_ms=times)
        path = f"/v0/topics/{topic}/batches?partition={partition}"
        answer = self.client.post(path, content=bytes(batch), headers=OCTETS)
        assert answer.status_code == 200, answer.text
        return int(answer.json()["offset"])

    def trim(self, topic: str, before_seq: int) -> None:
        self.ask("POST", f"/v0/topics/{topic}/delete", {"before_seq": before_seq})

    def values(self, topic: str, partition: int = 0) -> list[Any]:
        """All committed values, as JSON."""
        found: list[Any] = []
        seq = 0
        while True:
            body = {"from_seq": seq, "limit": 1000}
            page = self.ask("POST", f"/v0/topics/{topic}/diff?partition={partition}", body)
            found += [record.get("data", record.get("$raw")) for record in page["records"]]
            if page["caught_up"]:
                return found
            seq = page["next_from_seq"]


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A server that all tests share: each uses topics of its own."""
    with ServerProcess(tmp_path_factory.mktemp("broker") / "data", "--text", "off") as process:
        found = Broker(process)
        with found.client:
            yield found


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test has."""
    return "t-" + request.node.name.replace("[", "-").replace("]", "").replace("_", "-")[:180]


@pytest.fixture
def serve(tmp_path: Path) -> Callable[..., AbstractContextManager[ServerProcess]]:
    """A server of one's own, to be killed and started again: `with serve() as process`."""
    return lambda *flags: ServerProcess(tmp_path / "data", "--text", "off", *flags)
