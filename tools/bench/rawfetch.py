"""A minimal Kafka client: it fetches, and checks each batch's header and checksum.

librdkafka creates a message for every record, which on two cores costs more than the server's part. A client without
that step shows the rate of the broker.
"""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Self

from crc32c import crc32c

from mainstem.address import Address
from mainstem.limits import MIB
from mainstem.records.header import CRC_AT, CRC_COVERS_FROM, walk

_ANSWER_BYTES_MAX = 64 * MIB
_VERSION = 11
_IN_FLIGHT = 4
_CREATES = 20
_SIZE = struct.Struct(">i")
_CRC = struct.Struct(">I")


def produce(address: Address, topic: str, batch: bytes, times: int) -> None:
    """Append the same batch many times to a new topic, several requests at a time."""
    name = topic.encode()
    with socket.create_connection((address.host, address.port)) as connection:
        metadata = struct.pack(">hhih", 3, 4, 1, -1) + struct.pack(">ih", 1, len(name)) + name + b"\x01"
        for _ in range(_CREATES):  # creates the topic
            connection.sendall(_SIZE.pack(len(metadata)) + metadata)
            connection.recv(65_536)
        body = struct.pack(">hhi", -1, -1, 30_000) + struct.pack(">ih", 1, len(name)) + name
        body += struct.pack(">iii", 1, 0, len(batch)) + batch
        request = struct.pack(">hhih", 0, 7, 7, -1) + body
        request = _SIZE.pack(len(request)) + request
        for first in range(0, times, _IN_FLIGHT):
            some = min(_IN_FLIGHT, times - first)
            for _ in range(some):
                connection.sendall(request)
            for _ in range(some):
                answer = _exactly(connection, _SIZE.unpack(_exactly(connection, 4))[0])
                (error,) = struct.unpack_from(">h", answer, 4 + 4 + 2 + len(name) + 4 + 4)
                if error:
                    raise OSError(f"Kafka error {error}")


def _exactly(connection: socket.socket, size: int) -> bytes:
    return connection.recv(size, socket.MSG_WAITALL)


class RawConsumer:
    """Reads partition 0 of a topic from its beginning."""

    def __init__(self, address: Address, topic: str, fetch_bytes: int) -> None:
        self._socket = socket.create_connection((address.host, address.port))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * MIB)
        self._topic = topic.encode()
        self._fetch_bytes = fetch_bytes
        self._answer = bytearray(_ANSWER_BYTES_MAX)
        self._offset = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def consume(self, count: int) -> int:
        """Wait for that many records at least. Returns how many there were."""
        seen = 0
        while seen < count:
            self._socket.sendall(self._request())
            for batch in walk(records := self._records()):
                (crc,) = _CRC.unpack_from(records, batch.position + CRC_AT)
                if crc32c(records[batch.position + CRC_COVERS_FROM : batch.end]) != crc:
                    raise OSError(f"the batch at offset {batch.base_offset} does not match its checksum")
                if batch.next_offset > self._offset:
                    seen += batch.count
                    self._offset = batch.next_offset
        return seen

    def _request(self) -> bytes:
        body = struct.pack(">iiiibii", -1, 100, 1, _ANSWER_BYTES_MAX // 2, 0, 0, -1)
        body += struct.pack(">ih", 1, len(self._topic)) + self._topic
        body += struct.pack(">iiiqqi", 1, 0, -1, self._offset, -1, self._fetch_bytes)
        body += struct.pack(">ih", 0, 0)
        request = struct.pack(">hhih", 1, _VERSION, 1, -1) + body
        return _SIZE.pack(len(request)) + request

    def _records(self) -> memoryview:
        """The records of the next answer."""
        (size,) = _SIZE.unpack(self._receive(4))
        answer = self._receive(size)
        (partition_error,) = struct.unpack_from(">h", answer, 24 + len(self._topic) + 4)
        if partition_error:
            raise OSError(f"Kafka error {partition_error}")
        # Behind it: three offsets, no aborted transactions, a preferred replica, and how long the records are.
        at = 24 + len(self._topic) + 6 + 24 + 4 + 4
        (length,) = _SIZE.unpack_from(answer, at)
        return answer[at + 4 : at + 4 + length]

    def _receive(self, size: int) -> memoryview:
        view = memoryview(self._answer)[:size]
        filled = 0
        while filled < size:
            got = self._socket.recv_into(view[filled:])
            if not got:
                raise OSError("the server closed the connection")
            filled += got
        return view
