"""Recompression: batches that a topic stores in another codec than they came in.

Small ones are packed where they are, the others on a thread. Meanwhile whatever comes after them for the same
stream waits, so that everything is appended in the order it came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from mainstem import limits
from mainstem.errors import TooLarge
from mainstem.ledger.config import TopicConfig
from mainstem.log.waiters import Waiter
from mainstem.records.compression import CODECS, Codec, codec_id
from mainstem.records.header import Slice, walk
from mainstem.records.rewrite import in_codec

Append = Callable[[Slice], None]


@dataclass(slots=True)
class _AppendQueue:
    """Those who wait to append to one stream, in order of arrival."""

    head: asyncio.Lock = field(default_factory=asyncio.Lock)
    length: int = 0


class Recompression:
    def __init__(self) -> None:
        self._lines: dict[int, _AppendQueue] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def busy(self, stream: int) -> bool:
        """Whether batches of the stream are being packed, so that later ones have to wait."""
        return stream in self._lines

    def place(self, waiter: Waiter, stream: int, config: TopicConfig, batches: Slice, append: Append) -> None:
        """Append the batches as the topic stores them, after all that were placed before. `append` tells the waiter.

        Raises InvalidBatch, TooLarge, or tells the waiter."""
        if not self.busy(stream) and not _heavy(batches, config):
            append(_packed(batches, config))
            return
        line = self._lines.setdefault(stream, _AppendQueue())
        line.length += 1
        task = asyncio.get_running_loop().create_task(
            self._append_in_order(waiter, stream, line, config, batches, append)
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _append_in_order(
        self,
        waiter: Waiter,
        stream: int,
        line: _AppendQueue,
        config: TopicConfig,
        batches: Slice,
        append: Append,
    ) -> None:
        try:
            async with line.head:
                append(await asyncio.to_thread(_packed, batches, config))
        except Exception as error:  # noqa: BLE001  # whatever it is, whoever waits is told
            if not waiter.done():
                waiter.set_exception(error)
        finally:
            line.length -= 1
            if not line.length:
                del self._lines[stream]


def _codec(config: TopicConfig) -> Codec | None:
    """The codec that a topic's batches are stored in; None = whatever they come in."""
    if config.compression_type == "producer":
        return None
    if config.compression_type == "uncompressed":
        return "none"
    return next(codec for codec in CODECS if codec == config.compression_type)


def _heavy(batches: Slice, config: TopicConfig) -> bool:
    """Whether packing may take long. What a compressed batch unpacks to is unknown, however small it is."""
    codec = _codec(config)
    if codec is None:
        return False
    differing = [header for header in walk(batches) if header.codec_id != codec_id(codec)]
    if len(batches) > limits.RECOMPRESSED_INLINE_BYTES_MAX:
        return bool(differing)
    return any(header.codec_id for header in differing)


def _packed(batches: Slice, config: TopicConfig) -> Slice:
    codec = _codec(config)
    packed = None if codec is None else in_codec(memoryview(batches), codec)
    if packed is None:
        return batches
    largest = max(header.length for header in walk(packed))
    if largest > config.max_message_bytes:
        raise TooLarge(
            f"stored with compression.type={config.compression_type} the batch has {largest} bytes, over the "
            f"topic's max.message.bytes of {config.max_message_bytes}"
        )
    return packed
