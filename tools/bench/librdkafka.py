"""librdkafka at C speed: the library in the confluent-kafka wheel, called with ctypes one batch at a time.

A Python loop over messages would measure Python, not the broker. Here one array produces the messages, and a C function
is the callback that consumes them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from importlib.metadata import distribution
from pathlib import Path
from types import TracebackType
from typing import Self

_PRODUCER, _CONSUMER = 0, 1
_BLOCK_WHEN_FULL = 4
_OFFSET_BEGINNING = -2
_ERROR_BYTES = 512


class _Message(Structure):
    _fields_ = (
        ("err", c_int),
        ("topic", c_void_p),
        ("partition", c_int32),
        ("payload", c_void_p),
        ("length", c_size_t),
        ("key", c_void_p),
        ("key_length", c_size_t),
        ("offset", c_int64),
        ("private", c_void_p),
    )


def _library() -> ctypes.CDLL:
    files = distribution("confluent-kafka").files or []
    (found,) = [file for file in files if file.name.startswith("librdkafka-")]
    library = ctypes.CDLL(str(Path(str(found.locate()))))
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_topic_new", "rd_kafka_queue_new"):
        getattr(library, name).restype = c_void_p
    library.rd_kafka_conf_set.argtypes = (c_void_p, c_char_p, c_char_p, c_char_p, c_size_t)
    library.rd_kafka_new.argtypes = (c_int, c_void_p, c_char_p, c_size_t)
    library.rd_kafka_topic_new.argtypes = (c_void_p, c_char_p, c_void_p)
    library.rd_kafka_produce_batch.argtypes = (c_void_p, c_int32, c_int, POINTER(_Message), c_int)
    library.rd_kafka_flush.argtypes = (c_void_p, c_int)
    library.rd_kafka_outq_len.argtypes = (c_void_p,)
    library.rd_kafka_queue_new.argtypes = (c_void_p,)
    library.rd_kafka_consume_start_queue.argtypes = (c_void_p, c_int32, c_int64, c_void_p)
    library.rd_kafka_consume_stop.argtypes = (c_void_p, c_int32)
    library.rd_kafka_consume_callback_queue.argtypes = (c_void_p, c_int, c_void_p, c_void_p)
    for name in ("rd_kafka_destroy", "rd_kafka_topic_destroy", "rd_kafka_queue_destroy"):
        getattr(library, name).argtypes = (c_void_p,)
    library.rd_kafka_query_watermark_offsets.argtypes = (
        c_void_p,
        c_char_p,
        c_int32,
        POINTER(c_int64),
        POINTER(c_int64),
        c_int,
    )
    return library


class _Client:
    def __init__(self, kind: int, topic: str, settings: Mapping[str, object]) -> None:
        self._library = _library()
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        conf = self._library.rd_kafka_conf_new()
        for name, value in settings.items():
            if self._library.rd_kafka_conf_set(conf, name.encode(), str(value).encode(), error, _ERROR_BYTES):
                raise ValueError(error.value.decode())
        self._handle = self._library.rd_kafka_new(kind, conf, error, _ERROR_BYTES)
        if not self._handle:
            raise ValueError(error.value.decode())
        self._name = topic.encode()
        self._topic = self._library.rd_kafka_topic_new(self._handle, self._name, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._library.rd_kafka_topic_destroy(self._topic)
        self._library.rd_kafka_destroy(self._handle)

    def end_offset(self, partition: int = 0) -> int:
        low, high = c_int64(), c_int64()
        code = self._library.rd_kafka_query_watermark_offsets(
            self._handle, self._name, partition, byref(low), byref(high), 10_000
        )
        if code:
            raise OSError(f"librdkafka error {code}")
        return high.value


class BatchProducer(_Client):
    """Sends the same values over and over, an array of them a call."""

    def __init__(
        self, topic: str, value: bytes, settings: Mapping[str, object], a_call: int = 10_000
    ) -> None:
        super().__init__(_PRODUCER, topic, settings)
        self._value = ctypes.create_string_buffer(value, len(value))
        self._messages = (_Message * a_call)()
        for message in self._messages:
            message.payload = ctypes.addressof(self._value)
            message.length = len(value)

    def produce(self, count: int, partition: int = 0) -> None:
        """Put messages in line; waits while the line is full."""
        while count > 0:
            wanted = min(count, len(self._messages))
            count -= self._library.rd_kafka_produce_batch(
                self._topic, partition, _BLOCK_WHEN_FULL, self._messages, wanted
            )

    def flush(self, timeout_s: float = 60.0) -> None:
        if self._library.rd_kafka_flush(self._handle, int(timeout_s * 1000)):
            raise TimeoutError(f"{self._library.rd_kafka_outq_len(self._handle)} messages were not delivered")


class CallbackConsumer(_Client):
    """Reads one partition from its beginning and throws the messages away."""

    def __init__(self, topic: str, settings: Mapping[str, object], partition: int = 0) -> None:
        super().__init__(_CONSUMER, topic, settings)
        self._queue = self._library.rd_kafka_queue_new(self._handle)
        self._partition = partition
        # A C function that takes no notice of its arguments: it does nothing with a message.
        self._ignore = ctypes.cast(self._library.rd_kafka_version, c_void_p)
        self._library.rd_kafka_consume_start_queue(self._topic, partition, _OFFSET_BEGINNING, self._queue)

    def consume(self, count: int) -> int:
        """Wait for that many messages at least. Returns how many there were."""
        seen = 0
        while seen < count:
            served = self._library.rd_kafka_consume_callback_queue(self._queue, 1000, self._ignore, None)
            if served < 0:
                raise OSError("librdkafka gave up")
            seen += served
        return seen

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._library.rd_kafka_consume_stop(self._topic, self._partition)
        self._library.rd_kafka_queue_destroy(self._queue)
        super().__exit__(kind, error, trace)
