"""Transactions over HTTP: writes to several topics and offsets of groups that take effect together."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from msgspec import UNSET, Raw

from mainstem.api import routes
from mainstem.api.groups import (
    AtomicWriteBody,
    GroupPosition,
    TransactionCommitted,
    TransactionGroupOffsets,
    TransactionRecord,
    TransactionWrite,
)
from mainstem.client.consumer import AsyncConsumer, Consumer
from mainstem.client.loop import LoopThread
from mainstem.client.request_bodies import HeadersInput, header_pairs, json_bytes
from mainstem.client.transport import Transport
from mainstem.errors import Closed, InvalidInput


class TransactionBuffer:
    """What a transaction will do. It holds the records in memory and sends them with the commit."""

    def __init__(self, id: str) -> None:
        if not id:
            raise InvalidInput("a transaction needs an id: it stays the same when the program restarts")
        self.id = id
        self.result: TransactionCommitted | None = None
        self._key = secrets.token_urlsafe(16)  # a repeated commit is recognised by it
        self._ended = False
        self._writes: list[TransactionWrite] = []
        self._offsets: list[TransactionGroupOffsets] = []

    def produce(
        self,
        topic: str,
        value: Any,
        *,
        key: str | bytes | None = None,
        headers: HeadersInput = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> None:
        """Write a record when the transaction commits. The topic must exist."""
        self._check_open()
        packed: str | None = None
        data: Raw | Any = UNSET
        if isinstance(value, bytes | bytearray | memoryview):
            packed = _base64(bytes(value))
        elif value is not None:
            data = Raw(json_bytes(value))
        record = TransactionRecord(
            data,
            packed,
            key if isinstance(key, str) else None,
            _base64(key) if isinstance(key, bytes) else None,
            [
                (name, None if content is None else _base64(content))
                for name, content in header_pairs(headers)
            ],
            timestamp_ms,
        )
        last = self._writes[-1] if self._writes else None
        if last is not None and (last.topic, last.partition) == (topic, partition):
            last.records.append(record)
        else:
            self._writes.append(TransactionWrite(topic, [record], partition))

    def commit_offsets(
        self,
        consumer: AsyncConsumer | Consumer | None = None,
        *,
        group: str | None = None,
        topic: str | None = None,
        offsets: Mapping[int, int] | None = None,
    ) -> None:
        """Commit offsets with the transaction: those a consumer has reached, or partition → next offset of a group."""
        self._check_open()
        if consumer is not None:
            rows = [
                GroupPosition(place.topic, at, place.partition)
                for place, at in sorted(consumer.positions.items())
            ]
            if rows:
                self._offsets.append(
                    TransactionGroupOffsets(rows, consumer.member_id, consumer.epoch, group=consumer.group)
                )
        elif group is not None and topic is not None and offsets is not None:
            rows = [GroupPosition(topic, at, partition) for partition, at in sorted(offsets.items())]
            self._offsets.append(TransactionGroupOffsets(rows, group=group))
        else:
            raise InvalidInput("give a consumer, or group, topic and offsets")

    def _check_open(self) -> None:
        if self._ended:
            raise Closed("this transaction has ended: create another one")

    def abort(self) -> None:
        """Drop everything. Idempotent."""
        self._ended = True
        self._writes.clear()
        self._offsets.clear()

    async def send(self, transport: Transport) -> TransactionCommitted | None:
        self._check_open()
        self._ended = True
        if not self._writes and not self._offsets:
            return None
        body = AtomicWriteBody(self.id, self._key, self._writes, self._offsets)
        self.result = await transport.call(routes.COMMIT_TRANSACTION, body=body)
        return self.result


class AsyncTransaction(TransactionBuffer):
    """Writes and offsets that take effect together at the end of the block, or not at all if it raises.

    Example:
        async with client.transaction("billing-1") as transaction:
            transaction.produce("invoices", invoice, key=order.key)
            transaction.commit_offsets(consumer)
    """

    def __init__(self, transport: Transport, id: str) -> None:
        super().__init__(id)
        self._transport = transport

    async def __aenter__(self) -> AsyncTransaction:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.abort()
        elif not self._ended:
            await self.commit()

    async def commit(self) -> TransactionCommitted | None:
        """Commit now. None if there is nothing to commit."""
        return await self.send(self._transport)


class TransactionContext(TransactionBuffer):
    """Like AsyncTransaction, for threads.

    Example:
        with client.transaction("billing-1") as transaction:
            transaction.produce("invoices", invoice, key=order.key)
            transaction.commit_offsets(consumer)
    """

    def __init__(self, thread: LoopThread, transaction: AsyncTransaction) -> None:
        super().__init__(transaction.id)
        self._thread = thread
        self._transport = transaction._transport

    def __enter__(self) -> TransactionContext:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.abort()
        elif not self._ended:
            self.commit()

    def commit(self) -> TransactionCommitted | None:
        """Commit now. None if there is nothing to commit."""
        return self._thread.call(self.send(self._transport))


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
