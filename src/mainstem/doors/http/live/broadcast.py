"""The same bytes to many clients at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mainstem.doors.http.transport.send_buffer import SendBuffer

_NATIVE_MIN = 8  # sockets from which on the native call is worth its overhead


class Broadcast:
    def __init__(self) -> None:
        self._send_all: Callable[..., Any] | None = None

    def warm_up(self) -> None:
        """Load or compile the native send. Slow: call it on a thread."""
        from mainstem.doors.http.live.native_send import send_all

        self._send_all = send_all

    def send(self, outlets: list[SendBuffer], descriptors: list[int], chunk: bytes) -> None:
        """Send to the sockets of these buffers, whose descriptors were read in this turn of the loop."""
        if self._send_all is None or len(outlets) < _NATIVE_MIN:
            for send_buffer in outlets:
                send_buffer.write(chunk)
            return
        sent = np.empty(len(outlets), np.int64)
        content = np.frombuffer(chunk, np.uint8)
        self._send_all(np.array(descriptors, np.int32), content.ctypes.data, len(chunk), sent)
        for row in np.flatnonzero(sent != len(chunk)).tolist():
            # The transport buffers the rest, or finds the error.
            outlets[row].write(chunk[max(0, int(sent[row])) :])
