"""One native call that sends the same bytes to many sockets. Importing it loads numba, and may compile."""

from __future__ import annotations

import socket
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from numba import types

# Looked up by name in the process, so that the compiled code can be cached on disk.
_send: Any = types.ExternalFunction("send", types.intp(types.int32, types.uintp, types.uintp, types.int32))

# Python ignores SIGPIPE; where this flag does not exist, that is enough.
_FLAGS = int(socket.MSG_DONTWAIT | getattr(socket, "MSG_NOSIGNAL", 0))


# It keeps the GIL: a thread that took it would delay the loop for longer than the sends take.
@numba.njit("void(int32[::1], uintp, uintp, int64[::1])", cache=True)
def send_all(
    descriptors: npt.NDArray[np.int32], address: int, size: int, sent: npt.NDArray[np.int64]
) -> None:
    """Send `size` bytes at `address` to each descriptor. Stores how many each accepted; below 0: an error."""
    for row in range(len(descriptors)):
        sent[row] = _send(descriptors[row], address, size, _FLAGS)
