"""One native call that sends the same bytes to many sockets. Importing it loads numba, and may compile."""

from __future__ import annotations

import socket
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from numba import types

# Looked up by name in the process, where the C library is, so that the compiled code can be kept on disk.
_send: Any = types.ExternalFunction("send", types.intp(types.int32, types.uintp, types.uintp, types.int32))

# Python ignores the signal that a closed connection sends; where there is no such flag, that is enough.
_FLAGS = int(socket.MSG_DONTWAIT | getattr(socket, "MSG_NOSIGNAL", 0))


# It keeps the GIL: a thread that took it meanwhile would hold up the loop for longer than a few sends take.
@numba.njit("void(int32[::1], uintp, uintp, int64[::1])", cache=True)
def send_all(
    descriptors: npt.NDArray[np.int32], address: int, size: int, sent: npt.NDArray[np.int64]
) -> None:
    """Send `size` bytes at `address` to each. Notes what each took; what is below 0 is an error."""
    for row in range(len(descriptors)):
        sent[row] = _send(descriptors[row], address, size, _FLAGS)
