"""Frames of the text door, the same in both directions.

| field  | size | meaning                                         |
|--------|------|-------------------------------------------------|
| length | 4    | u32 little-endian; requests: 1 to 65,536        |
| body   | length | UTF-8 text; the payload of a GET is as stored |
"""

from __future__ import annotations

import struct

from mainstem import limits

LENGTH = struct.Struct("<I")


class InvalidLength(Exception):
    """A length of 0 or over the limit. The stream cannot be followed past it."""


def frame(body: bytes) -> bytes:
    return LENGTH.pack(len(body)) + body


class FrameReader:
    """Splits received bytes into frame bodies. Holds at most one read and one incomplete frame."""

    def __init__(self) -> None:
        self._buffer: bytes | bytearray = b""
        self._start = 0  # bytes before it are consumed

    def __len__(self) -> int:
        """How many bytes it holds."""
        return len(self._buffer) - self._start

    def feed(self, data: bytes) -> None:
        if not self.incomplete:
            self._buffer = data
        else:
            if not isinstance(self._buffer, bytearray):
                self._buffer = bytearray(self._buffer)
            del self._buffer[: self._start]
            self._buffer += data
        self._start = 0

    def next(self) -> bytes | None:
        """The next whole body; None until there is one. Raises InvalidLength, then every time."""
        body_start = self._start + LENGTH.size
        if len(self._buffer) < body_start:
            return None
        (length,) = LENGTH.unpack_from(self._buffer, self._start)
        if not 1 <= length <= limits.TEXT_FRAME_BYTES_MAX:
            raise InvalidLength
        body_end = body_start + length
        if len(self._buffer) < body_end:
            return None
        self._start = body_end
        return bytes(memoryview(self._buffer)[body_start:body_end])

    @property
    def incomplete(self) -> bool:
        """Whether bytes wait for the rest of their frame."""
        return len(self) > 0

    def clear(self) -> None:
        self._buffer = b""
        self._start = 0
