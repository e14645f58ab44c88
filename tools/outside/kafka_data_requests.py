"""Random requests of producers and consumers, with transactions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tools.outside.kafka_requests import Calls, KafkaRequests, ms
from tools.outside.kafka_side import Batch, Slot, Step

_ALL_TIMES = (
    -1,
    -2,
    -3,
    0,
    1_600_000_000_000,
    1_700_000_000_000,
    1_700_000_000_005,
    1_800_000_000_000,
    -4,
    -5,
    -6,
    -9,
)


class KafkaDataRequests(KafkaRequests):
    def _data(self) -> Calls:
        return [
            *[self.produce] * 5,
            *[self.fetch] * 4,
            *[self.fetch_in_session] * 3,
            *[self.list_offsets] * 3,
            *[self.delete_records] * 2,
            self.offset_for_leader_epoch,
            self.init_producer,
            *[self.idempotent] * 4,
            self.describe_producers,
            self.metadata,
        ]

    def _transactional(self) -> Calls:
        return [
            *[self.init_transactional] * 2,
            *[self.add_partitions] * 4,
            *[self.transactional] * 6,
            *[self.add_offsets] * 2,
            *[self.txn_offset_commit] * 2,
            *[self.end_txn] * 4,
            *[self.fetch] * 3,
            *[self.list_offsets] * 2,
            self.describe_transactions,
            self.list_transactions,
            self.describe_producers,
        ]

    def _values(self) -> tuple[bytes, ...]:
        return tuple(b"v%d" % self._random.randrange(1000) for _ in range(self._one(1, 1, 2, 5)))

    def produce(self) -> Step:
        values: tuple[bytes | None, ...] = self._values()
        batch = Batch(
            self._rarely((b"z" * 2000,), values, 0.1),
            time_ms=1_700_000_000_000 + self._random.randrange(10),
            codec=self._one("none", "none", "lz4", "gzip", "snappy"),
        )
        partition, damage = self._partition(), self._one("checksum", "magic", "cut")
        luck = self._random.random()
        if luck < 0.12:
            batch, partition = replace(batch, damage=damage), 0
        elif luck < 0.4:
            batch = Batch(
                batch.values,
                tuple(b"k%d" % self._random.randrange(3) for _ in batch.values),
                time_ms=batch.time_ms,
            )
        return self._step(
            "produce",
            0,
            3,
            {
                "acks": self._rarely(self._one(0, 2, -2), self._one(1, -1), 0.05),
                "timeout": ms(5000),
                "topic_data": [
                    {**self._topic_fields(), "partition_data": [{"index": partition, "records": batch}]}
                ],
            },
        )

    def _sequenced(self, producer: str, transactional: str | None, lowest: int) -> Step:
        topic, partition, values = self._topic_fields(), self._one(0, 1), self._values()
        place = (producer, topic["name"], partition)
        expected = self._sequences.get(place, 0)
        sequence = expected
        luck = self._random.random()
        if luck < 0.1:
            sequence = max(expected - self._one(1, len(values), 20), 0)
        elif luck < 0.15:
            sequence = expected + self._one(1, 5)
        else:
            self._sequences[place] = expected + len(values)
        epoch = Slot(f"epoch {producer}", -1 if luck < 0.97 else 3, self._rarely(self._one(-1, 1), 0, 0.05))
        batch = Batch(
            values,
            producer=Slot(f"producer {producer}", 12345),
            epoch=Slot(epoch.name, 0, epoch.plus),
            sequence=sequence,
            transactional=self._rarely(transactional is None, transactional is not None, 0.05),
        )
        return self._step(
            "produce in a transaction" if transactional else "produce idempotent",
            0,
            lowest,
            {
                "transactional_id": transactional,
                "acks": -1,
                "timeout": ms(5000),
                "topic_data": [{**topic, "partition_data": [{"index": partition, "records": batch}]}],
            },
        )

    def init_producer(self, name: str = "") -> Step:
        name = f"{self._prefix}{name or self._one('p0', 'p1')}"
        for place in [place for place in self._sequences if place[0] == name]:
            del self._sequences[place]
        return self._step(
            "init producer",
            22,
            0,
            {
                "transactional_id": None,
                "transaction_timeout": ms(60_000),
                "producer_id": -1,
                "producer_epoch": -1,
            },
            {f"producer {name}": "producer_id", f"epoch {name}": "producer_epoch"},
        )

    def idempotent(self) -> Step:
        return self._sequenced(f"{self._prefix}{self._one('p0', 'p1')}", None, 3)

    def fetch(self) -> Step:
        values = self._fetch_values(self._one(1 << 20, 1 << 20, 1, 0))
        values["max_bytes"] = self._one(1 << 20, 1 << 20, 100, 0)
        return self._step("fetch", 1, 4, values)

    def fetch_in_session(self) -> Step:
        epoch = self._rarely(self._one(-1, 0, 5), self._session_epoch, 0.15)
        if epoch == self._session_epoch:
            self._session_epoch += 1
        elif epoch <= 0:
            self._session_epoch = epoch + 1
        forgotten = {**self._topic_fields(), "partitions": [self._one(0, 0, 1)]}
        values = self._fetch_values(1 << 20) | {
            "session_id": self._rarely(4711, Slot("session", 0), 0.03) if epoch else 0,
            "session_epoch": epoch,
            "forgotten_topics_data": self._rarely([forgotten], [], 0.2),
        }
        if self._random.random() < 0.4:
            values["topics"] = []
        return Step("fetch in a session", 1, self._session_version, values, {"session": "session_id"})

    def _fetch_values(self, partition_max_bytes: int) -> dict[str, Any]:
        place = {
            "partition": self._partition(),
            "current_leader_epoch": self._rarely(self._one(0, 5), -1),
            "fetch_offset": self._rarely(self._one(-1, -2, 1000), self._random.randrange(12)),
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": partition_max_bytes,
        }
        return {
            "replica_id": -1,
            "max_wait": ms(0),
            "min_bytes": 0,
            "max_bytes": 1 << 20,
            "isolation_level": self._one(0, 1),
            "session_id": 0,
            "session_epoch": -1,
            "rack_id": "",
            "cluster_id": None,
            "topics": [{**self._topic_fields(), "partitions": [place]}],
        }

    def list_offsets(self) -> Step:
        return self._step(
            "list offsets",
            2,
            1,
            {
                "replica_id": -1,
                "isolation_level": self._one(0, 1),
                "timeout": ms(1000),
                "topics": [
                    {
                        **self._topic_fields(),
                        "partitions": [
                            {
                                "partition_index": self._partition(),
                                "current_leader_epoch": self._rarely(self._one(0, 5), -1),
                                "timestamp": self._one(*_ALL_TIMES),
                            }
                        ],
                    }
                ],
            },
        )

    def delete_records(self) -> Step:
        place = {"partition_index": self._partition(), "offset": self._one(-1, 0, 1, 3, 1000, -2)}
        return self._step(
            "delete records",
            21,
            0,
            {"timeout": ms(5000), "topics": [{**self._topic_fields(), "partitions": [place]}]},
        )

    def offset_for_leader_epoch(self) -> Step:
        place = {
            "partition": self._partition(),
            "current_leader_epoch": self._one(-1, -1, 0, 7),
            "leader_epoch": self._one(0, 0, 1, -1),
        }
        return self._step(
            "offset for leader epoch",
            23,
            2,
            {"replica_id": -1, "topics": [{**self._topic_fields(), "partitions": [place]}]},
        )

    def describe_producers(self) -> Step:
        return self._step(
            "describe producers",
            61,
            0,
            {"topics": [{**self._topic_fields(), "partition_indexes": [self._partition()]}]},
        )

    def metadata(self) -> Step:
        topics = [{"name": self._topic(), "topic_id": None} for _ in range(self._one(0, 1, 2))]
        return self._step(
            "metadata",
            3,
            0 if topics else 1,  # version 0 has all topics if it names none
            {
                "topics": topics,
                "allow_auto_topic_creation": False,
                "include_topic_authorized_operations": self._one(True, False),
                "include_cluster_authorized_operations": self._one(True, False),
            },
        )

    # Transactions

    def _transaction(self) -> str:
        return f"{self._prefix}{self._one('x0', 'x0', 'x1')}"

    def _as_producer(self, name: str) -> dict[str, Any]:
        values = {
            "transactional_id": self._rarely(self._one("", "other"), name, 0.03),
            "producer_id": self._rarely(4711, Slot(f"producer {name}", 12345), 0.04),
            "producer_epoch": Slot(f"epoch {name}", 0, self._rarely(self._one(-1, 1), 0, 0.08)),
        }
        return values | {f"v3_and_below_{field}": value for field, value in values.items()}

    def init_transactional(self, name: str = "") -> Step:
        name = f"{self._prefix}{name}" if name else self._transaction()
        for place in [place for place in self._sequences if place[0] == name]:
            del self._sequences[place]
        again = self._random.random() < 0.2
        return self._step(
            "init transactional producer",
            22,
            0,
            {
                "transactional_id": name,
                "transaction_timeout": ms(self._rarely(self._one(0, -1, 2_000_000_000), 60_000, 0.1)),
                "producer_id": Slot(f"producer {name}", -1) if again else -1,
                "producer_epoch": Slot(f"epoch {name}", -1, self._rarely(1, 0, 0.1)) if again else -1,
            },
            {f"producer {name}": "producer_id", f"epoch {name}": "producer_epoch"},
        )

    def add_partitions(self) -> Step:
        values = self._as_producer(self._transaction())
        topics = [{"name": self._topic(), "partitions": [self._partition()]}]
        first, _ = self._newest[24]
        return Step(
            "add partitions to txn",
            24,
            self._random.randint(first, 3),
            values | {"v3_and_below_topics": topics},
        )

    def transactional(self) -> Step:
        name = self._transaction()
        return self._sequenced(name, name, 3)

    def add_offsets(self) -> Step:
        return self._step(
            "add offsets to txn", 25, 0, self._as_producer(self._transaction()) | {"group_id": self._group()}
        )

    def txn_offset_commit(self) -> Step:
        place = {
            "partition_index": self._partition(),
            "committed_offset": self._random.randrange(9),
            "committed_leader_epoch": -1,
            "committed_metadata": self._one("", "note"),
        }
        return self._step(
            "txn offset commit",
            28,
            0,
            {
                **self._as_producer(self._transaction()),
                "group_id": self._group(),
                "generation_id": self._rarely(1, -1),
                "member_id": self._rarely("unknown", ""),
                "group_instance_id": None,
                "topics": [{**self._topic_fields(), "partitions": [place]}],
            },
        )

    def end_txn(self) -> Step:
        name = self._transaction()
        step = self._step(
            "end txn", 26, 0, self._as_producer(name) | {"committed": self._one(True, True, False)}
        )
        if step.version < 5:
            return step
        for place in [place for place in self._sequences if place[0] == name]:
            del self._sequences[place]
        keep = {f"producer {name}": "producer_id", f"epoch {name}": "producer_epoch"}
        return Step(step.kind, step.key, step.version, step.values, keep)

    def describe_transactions(self) -> Step:
        return self._step("describe transactions", 65, 0, {"transactional_ids": [self._transaction()]})

    def list_transactions(self) -> Step:
        return self._step(
            "list transactions",
            66,
            0,
            {
                "state_filters": self._one([], ["Ongoing"], ["nothing"]),
                "producer_id_filters": [],
                "duration_filter": -1,
                "transactional_id_pattern": None,
            },
            only=self._prefix,
        )
