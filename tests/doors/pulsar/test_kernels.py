"""The event loop never compiles a kernel: that stops every client of every door for seconds."""

from __future__ import annotations

import asyncio
import base64
import struct
import subprocess
import sys
from threading import Event, Thread
from typing import Any

from mainstem import limits
from mainstem.broker.subscriptions.entries import Delivery, MessageRun, add_entries
from mainstem.doors.pulsar.kernels import use_kernels
from mainstem.doors.pulsar.messages import MessageMetadata, SingleMessageMetadata
from mainstem.doors.pulsar.records import batch_of, encoded, message_frames, parse_sends, receipt_frames
from mainstem.doors.pulsar.wire import parse_single_acks, payload_frame, simple_frame
from mainstem.records.compiled import Preloaded, pulsar_preloaded
from mainstem.records.header import stamp

_BINARY = b"\xff"
_COUNT = 3 * limits.INTERPRETED_RECORDS_MAX


def _metadata(**fields: object) -> Any:
    return MessageMetadata(producer_name=b"p", sequence_id=4, publish_time=1_700_000_000_000, **fields)


def _batches(codec: int, key: bytes | None) -> list[bytearray]:
    """What producers send: a batch, and single messages."""
    named: dict[str, Any] = {} if key is None else {"partition_key": key}
    if key == _BINARY:
        named = {"partition_key": base64.b64encode(key), "partition_key_b64_encoded": True}
    one = SingleMessageMetadata(payload_size=50, **named).SerializeToString()
    content = (struct.pack(">I", len(one)) + one + b"x" * 50) * _COUNT
    metadata = _metadata(num_messages_in_batch=_COUNT)
    if codec:
        import zstandard

        metadata.compression, metadata.uncompressed_size = codec, len(content)
        content = zstandard.ZstdCompressor().compress(content)
    batches = [batch_of(metadata, memoryview(content)).batch]
    batches += [batch_of(_metadata(**named), memoryview(b"x" * 50)).batch for _ in range(_COUNT)]
    command = simple_frame("send", producer_id=1, sequence_id=1, num_messages=1)[8:]
    frame = payload_frame(command, _metadata(**named).SerializeToString(), b"x" * 50)
    run = parse_sends(memoryview(frame * _COUNT), 4096)
    if run is not None:
        assert len(receipt_frames(run, 0, b"\x08\x01", b"\x08\x01\x10", b""))
        batches.append(run.batch)
    return batches


def _use_everything() -> list[bytes]:
    """What a server does with the messages of clients. Returns their payloads."""
    found: list[bytes] = []
    for codec in (0, 3):
        for key in (None, b"k", _BINARY):
            batches = _batches(codec, key)
            for offset, batch in enumerate(batches):
                stamp(memoryview(batch), 1_000 * offset, 0)
            for runs in (False, True):
                for data in (*map(memoryview, batches), memoryview(b"".join(batches))):
                    entries: list[Delivery] = []
                    add_entries([data], 0, entries, runs)
                    for entry in entries:
                        if isinstance(entry, MessageRun):
                            found.append(bytes(message_frames(entry, b"", b"\x08\x01\x10", b"", b"")))
                        else:
                            found.append(encoded(entry)[1])
    ids = [{"ledgerId": 1, "entryId": offset} for offset in range(200)]
    parse_single_acks(memoryview(simple_frame("ack", consumer_id=1, ack_type=0, message_id=ids))[4:])
    return found


async def _on_the_loop() -> int:
    return len(_use_everything())


def _check() -> None:
    """In a process of its own, which has loaded nothing yet."""
    assert asyncio.run(_on_the_loop())
    assert "numba" not in sys.modules  # the loop did without
    import numba.core.dispatcher as numba

    pulsar_preloaded.load(use_kernels)
    compile_kernel = numba.Dispatcher.compile

    def refuse(self: Any, signature: Any) -> Any:
        raise AssertionError(f"{self.py_func.__name__} is compiled for {signature}")

    numba.Dispatcher.compile = refuse
    try:
        assert asyncio.run(_on_the_loop())
    finally:
        numba.Dispatcher.compile = compile_kernel


def test_the_event_loop_compiles_nothing() -> None:
    done = subprocess.run(
        [sys.executable, __file__], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_only_the_thread_that_loads_kernels_waits_for_them() -> None:
    preloaded = Preloaded()
    assert preloaded.usable()  # a program without a server may compile them when it likes
    loading, waited = Event(), Event()
    usable: list[bool] = []

    def use() -> None:
        usable.append(preloaded.usable())
        loading.set()
        assert waited.wait(60)

    loader = Thread(target=preloaded.load, args=(use,))
    loader.start()
    assert loading.wait(60)
    usable.append(preloaded.usable())
    waited.set()
    loader.join()
    assert usable == [True, False]
    assert preloaded.usable()


if __name__ == "__main__":
    _check()
