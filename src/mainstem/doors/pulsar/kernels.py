"""The kernels of the door, used once on messages of no client, to load them."""

from __future__ import annotations

import struct

from mainstem import limits
from mainstem.broker.subscriptions.entries import Delivery, MessageRun, add_entries
from mainstem.doors.pulsar.messages import MessageMetadata, SingleMessageMetadata
from mainstem.doors.pulsar.records import (
    SEND_FRAME_BYTES_MAX,
    batch_of,
    message_frames,
    parse_sends,
    receipt_frames,
)
from mainstem.doors.pulsar.wire import ACK_BYTES_MIN, parse_single_acks, payload_frame, simple_frame
from mainstem.records.building import build_batch
from mainstem.records.header import stamp

_MESSAGES = 2 * limits.INTERPRETED_RECORDS_MAX  # enough for kernels instead of Python
_PAYLOAD = b"x" * 100


def use_kernels() -> None:
    """Have every kernel of the door compiled or loaded."""
    metadata = MessageMetadata(producer_name=b"p", sequence_id=0, publish_time=0, partition_key=b"k")
    command = simple_frame("send", producer_id=0, sequence_id=0, num_messages=1)[8:]
    send = payload_frame(command, metadata.SerializeToString(), _PAYLOAD)
    run = parse_sends(memoryview(send * _MESSAGES), SEND_FRAME_BYTES_MAX)
    if run is not None:
        receipt_frames(run, 0, b"", b"", b"")
        _read([run.batch])
    one = SingleMessageMetadata(payload_size=len(_PAYLOAD)).SerializeToString()
    entry = (struct.pack(">I", len(one)) + one + _PAYLOAD) * _MESSAGES
    metadata.num_messages_in_batch = _MESSAGES
    _read([batch_of(metadata, memoryview(entry)).batch])
    for key in (None, b"k"):  # what the kernel leaves to Python
        build_batch(
            [None] * _MESSAGES, keys=[key] * _MESSAGES, headers=[[("h", key)]] * _MESSAGES, timestamps_ms=0
        )
    metadata.ClearField("num_messages_in_batch")
    _read([batch_of(metadata, memoryview(_PAYLOAD)).batch for _ in range(_MESSAGES)])
    ids = [{"ledgerId": 1, "entryId": offset} for offset in range(ACK_BYTES_MIN)]
    ack = simple_frame("ack", consumer_id=0, ack_type=0, message_id=ids)
    parse_single_acks(memoryview(ack)[4:])


def _read(batches: list[bytearray]) -> None:
    """As consumers read batches that were stored together."""
    for offset, batch in enumerate(batches):
        stamp(memoryview(batch), offset, 0)
    for runs in (False, True):
        entries: list[Delivery] = []
        add_entries([memoryview(b"".join(batches))], 0, entries, runs)
        for entry in entries:
            if isinstance(entry, MessageRun):
                message_frames(entry, b"", b"", b"", b"")
