"""The log inside a process, with no server: `mainstem.open(path)`."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from mainstem import limits
from mainstem.broker.broker import Broker, BrokerOptions, PartitionState
from mainstem.client.cursor import ReadCursor
from mainstem.client.direct_commits import DirectCommits
from mainstem.client.gate import LoopGate
from mainstem.client.loop import LoopThread
from mainstem.client.options import AtLeastOnce, Consistency, EveryMs, Sync, check
from mainstem.errors import InvalidInput, InvalidName, TopicNotFound
from mainstem.ledger.config import TopicConfig

T = TypeVar("T")

_KEYS_DIRECTORY = "keys"
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def open(
    path: str | os.PathLike[str],
    *,
    consistency: Consistency = "strict",
    sync: Sync = "each",
    key: str | None = None,
) -> EmbeddedLog:
    """Open the log in a directory, and create the directory if needed. One process at a time can open it.

    `consistency`: "strict" stores the cursor with every read that consumes; `at_least_once(persist_every=N)`
    stores it every N reads and at close, and may read up to N records again after a crash.
    `sync`, for topics that this instance creates: "each" append is on disk when it returns; `every_ms(N)`
    syncs in the background; "never" leaves it to the kernel.
    `key`: a separate log under the same directory."""
    check(consistency, sync)
    directory = Path(path)
    if key is not None:
        if not _KEY.fullmatch(key):
            raise InvalidName(f"a key has up to 128 letters, digits, '.', '_' and '-', not {key!r}")
        directory = directory / _KEYS_DIRECTORY / key
    return EmbeddedLog(directory, consistency, sync)


class EmbeddedLog:
    """A log in this process. Thread-safe. The first append to a topic creates it."""

    def __init__(self, directory: Path, consistency: Consistency = "strict", sync: Sync = "each") -> None:
        self._persist_every = consistency.persist_every if isinstance(consistency, AtLeastOnce) else 1
        self._cursors: dict[tuple[str, int], ReadCursor] = {}
        self._cursors_lock = threading.Lock()
        options = BrokerOptions(
            data_dir=directory,
            default_config=TopicConfig(
                durability="fsync" if sync == "each" else "disk",
                max_message_bytes=limits.BATCH_BYTES_MAX,  # one append_many is one batch
            ),
            sync_every_ms=sync.interval_ms if isinstance(sync, EveryMs) else 0,
        )
        self._gate = LoopGate()
        self._thread = LoopThread(
            f"this log is closed: open it again with mainstem.open({str(directory)!r})",
            new_loop=self._gate.new_loop,
        )
        try:
            self._broker = self._thread.call(Broker.open(options))
            self._commits = DirectCommits(self._gate, self._broker)
        except BaseException:
            self._thread.close()
            raise

    def append(self, topic: str, value: bytes) -> int:
        """Append one record; returns its offset. The topic's durability decides when it is on disk."""
        values = [value] if type(value) is bytes else _as_bytes([value])
        offset = self._append_now(topic, values)
        return self._thread.call(self._append(topic, values)) if offset is None else offset

    def append_many(self, topic: str, values: Sequence[bytes]) -> int:
        """Append all records or none; returns the offset of the first. The others follow it."""
        values = _as_bytes(values)
        offset = self._append_now(topic, values) if values else None
        return self._thread.call(self._append(topic, values)) if offset is None else offset

    def read_next(self, topic: str, checkpoint: bool = True) -> bytes | None:
        """The next record's value, None at the end. `checkpoint=False` peeks: the next read gives it again.

        Raises RecordsLost once for a gap left by damage; the next read continues after it."""
        values = self._read(topic, 1, 1, checkpoint)
        return values[0] if values else None

    def read_many(
        self, topic: str, max_bytes: int = limits.READ_BYTES_DEFAULT, checkpoint: bool = True
    ) -> list[bytes]:
        """The next records' values, up to `max_bytes` in total; a larger one is returned alone."""
        if max_bytes < 1:
            raise InvalidInput(f"max_bytes must be 1 or more, not {max_bytes}")
        return self._read(topic, limits.BATCH_RECORDS_MAX, min(max_bytes, limits.READ_BYTES_MAX), checkpoint)

    def count(self, topic: str) -> int:
        """Records in the topic, read or not; 0 if the topic does not exist."""
        return self._on_loop(lambda: sum(state.records for state in self._states(topic)))

    def size(self, topic: str) -> int:
        """Logical bytes of those records."""
        return self._on_loop(lambda: sum(state.bytes for state in self._states(topic)))

    def topics(self) -> list[str]:
        """Names of all topics."""
        return self._on_loop(lambda: [topic.name for topic in self._broker.topics()])

    def close(self) -> None:
        """Store the cursors, sync, checkpoint, release the directory. Idempotent."""
        self._thread.close(self._close())

    def __enter__(self) -> EmbeddedLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # On the caller's thread

    def _append_now(self, topic: str, values: Sequence[bytes]) -> int | None:
        """Append without the event loop. None: the loop has to do it."""
        gate = self._gate
        if gate.loop_waits:
            return None
        with gate.lock:
            if self._thread.closed:
                self._thread.check_open()
            found = self._broker.streams.get(topic)
            placed = None if found is None else self._broker.appends.values_now(found, values)
        if gate.woken:
            gate.wake()
        if placed is None:
            return None
        offset, unsynced = placed
        if unsynced is not None:
            self._commits.sync(unsynced)
        return offset

    def _read(self, topic: str, max_records: int, max_bytes: int, checkpoint: bool) -> list[bytes]:
        """Read the partitions in order; the first one with records wins."""
        self._thread.check_open()
        known = self._cursors.get((topic, 0))
        if known is not None and (values := known.read(max_records, max_bytes, checkpoint)):
            return values  # without the event loop, if the records were read ahead
        for partition in range(0 if known is None else 1, self._on_loop(lambda: self._partitions(topic))):
            if values := self._cursor(topic, partition).read(max_records, max_bytes, checkpoint):
                return values
        return []

    def _cursor(self, topic: str, partition: int) -> ReadCursor:
        with self._cursors_lock:
            cursor = self._cursors.get((topic, partition))
            if cursor is None:
                cursor = self._on_loop(
                    lambda: ReadCursor(
                        self._thread,
                        self._gate,
                        self._commits,
                        self._broker,
                        topic,
                        partition,
                        self._persist_every,
                    )
                )
                self._cursors[topic, partition] = cursor
            return cursor

    def _on_loop(self, question: Callable[[], T]) -> T:
        """Call the broker on the thread that owns it."""

        async def ask() -> T:
            return question()

        return self._thread.call(ask())

    # On the loop

    async def _append(self, topic: str, values: Sequence[bytes]) -> int:
        if not values:
            await self._broker.create_topic(topic, exist_ok=True)
            return self._broker.partition(topic).end
        try:
            return (await self._broker.append_values(topic, values)).base_offset
        except TopicNotFound:
            await self._broker.create_topic(topic, exist_ok=True)
            return (await self._broker.append_values(topic, values)).base_offset

    def _partitions(self, topic: str) -> int:
        try:
            return self._broker.topic(topic).partitions
        except TopicNotFound:
            return 0

    def _states(self, topic: str) -> list[PartitionState]:
        return [self._broker.partition(topic, number) for number in range(self._partitions(topic))]

    async def _close(self) -> None:
        try:
            for cursor in self._cursors.values():
                await cursor.store()
        finally:
            await self._broker.close()


def _as_bytes(values: Sequence[bytes]) -> Sequence[bytes]:
    kinds = set(map(type, values))
    if kinds <= {bytes}:
        return values
    if kinds <= {bytes, bytearray, memoryview}:
        return [bytes(value) for value in values]
    wrong = next(kind.__name__ for kind in kinds if kind not in (bytes, bytearray, memoryview))
    raise InvalidInput(f"records are bytes, not {wrong}: encode text first, as in 'hello'.encode()")
