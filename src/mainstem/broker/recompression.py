"""Recompression: for topics that store batches in another codec than the client used.

Small batches are compressed on the loop, the others on one thread, streams in turn. Payloads that are checked against
their schemas always go there: clients chose both. Later appends to the same stream wait, so that the log
keeps the order of arrival.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

import msgspec

from mainstem import limits
from mainstem.broker.decoding import Decoding
from mainstem.broker.schemas.validation import PayloadCheck, UnknownSchemaId
from mainstem.broker.streams import StreamService
from mainstem.errors import TooLarge
from mainstem.ledger.config import TopicConfig
from mainstem.log.write.append import AppendRequest, Waiter
from mainstem.records.compression import CODECS, Codec, codec_id
from mainstem.records.decoding import check_records
from mainstem.records.header import Slice, walk
from mainstem.records.rewrite import in_codec

RECOMPRESSED_INLINE_BYTES_MAX = 4 * limits.KIB  # a slice up to this size is recompressed on the event loop


@dataclass(slots=True)
class _AppendQueue:
    """Appends that wait for one stream, in order of arrival."""

    head: asyncio.Lock = field(default_factory=asyncio.Lock)
    length: int = 0


class Recompression:
    def __init__(self, streams: StreamService, barrier: Callable[[], Awaitable[None]]) -> None:
        self._streams = streams
        self._barrier = barrier  # after it, this broker knows every schema that was registered before
        self.lines: dict[int, _AppendQueue] = {}  # by stream with a running compression: later appends wait
        self._tasks: set[asyncio.Task[None]] = set()
        self._decoding = Decoding()

    def append(
        self, request: AppendRequest, config: TopicConfig, waiter: Waiter, check: PayloadCheck | None = None
    ) -> None:
        """Append the batches as the topic stores them, after all earlier appends.

        Raises InvalidBatch, TooLarge, unless the waiter gets the error."""
        stream = request.stream
        if stream not in self.lines and not _heavy(request.batches, config):
            with contextlib.suppress(UnknownSchemaId):  # another broker may have registered it
                self._append(request, _packed(request.batches, config, check), waiter)
                return
        line = self.lines.setdefault(stream, _AppendQueue())
        line.length += 1
        task = asyncio.get_running_loop().create_task(
            self._append_in_order(request, config, waiter, line, check)
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _append_in_order(
        self,
        request: AppendRequest,
        config: TopicConfig,
        waiter: Waiter,
        line: _AppendQueue,
        check: PayloadCheck | None,
    ) -> None:
        try:
            async with line.head:
                holder, work = str(request.stream), partial(_packed, request.batches, config, check)
                try:
                    packed = await self._decoding.run(holder, work)
                except UnknownSchemaId:
                    await self._barrier()
                    packed = await self._decoding.run(holder, work)
                self._append(request, packed, waiter)
        except Exception as error:  # noqa: BLE001  # the waiter must get every error
            if not waiter.done():
                waiter.set_exception(error)
        finally:
            line.length -= 1
            if not line.length:
                del self.lines[request.stream]

    def close(self) -> None:
        self._decoding.close()

    def _append(self, request: AppendRequest, packed: Slice, waiter: Waiter) -> None:
        self._streams.store(request.stream).append(msgspec.structs.replace(request, batches=packed), waiter)


def _codec(config: TopicConfig) -> Codec | None:
    """The codec of a topic's stored batches; None = as received."""
    if config.compression_type == "producer":
        return None
    if config.compression_type == "uncompressed":
        return "none"
    return next(codec for codec in CODECS if codec == config.compression_type)


def _heavy(batches: Slice, config: TopicConfig) -> bool:
    """Whether it may be slow. The uncompressed size of a compressed batch is unknown."""
    if "full" in (config.key_schema_validation, config.value_schema_validation):
        return True
    if config.validates and (
        len(batches) > RECOMPRESSED_INLINE_BYTES_MAX or any(header.codec_id for header in walk(batches))
    ):
        return True
    codec = _codec(config)
    if codec is None:
        return False
    differing = [header for header in walk(batches) if header.codec_id != codec_id(codec)]
    if len(batches) > RECOMPRESSED_INLINE_BYTES_MAX:
        return bool(differing)
    return any(header.codec_id for header in differing)


def _packed(batches: Slice, config: TopicConfig, check: PayloadCheck | None) -> Slice:
    if config.validates:
        check_records(batches, keys="compact" in config.cleanup_policy)
    if check is not None:
        check(batches)
    codec = _codec(config)
    packed = None if codec is None else in_codec(memoryview(batches), codec)
    if packed is None:
        return batches
    largest = max(header.length for header in walk(packed))
    if largest > config.max_message_bytes:
        raise TooLarge(
            f"with compression.type={config.compression_type} the batch has {largest} bytes, over the "
            f"topic's max.message.bytes of {config.max_message_bytes}"
        )
    return packed
