"""Sync a file without a thread, by the asynchronous I/O of the Linux kernel.

A thread needs Python's lock to begin a sync and to report its end. While the event loop is busy, it gets the lock late:
it takes 50 ms for a sync of 0.3 ms when a client floods the server. The kernel needs no lock. It reports the end on an
eventfd, which the event loop polls like a socket.

The structures of the kernel (include/uapi/linux/aio_abi.h), on little-endian machines:

| struct iocb  | size | value                    |   | struct io_event | size | value                   |
|--------------|------|--------------------------|---|-----------------|------|-------------------------|
| aio_data     | 8    | 0                        |   | data            | 8    | aio_data                |
| aio_key      | 4    | 0                        |   | obj             | 8    | the address of the iocb |
| aio_rw_flags | 4    | 0                        |   | res             | 8    | 0, or minus an errno    |
| opcode       | 2    | 3: IOCB_CMD_FDSYNC       |   | res2            | 8    | 0                       |
| aio_reqprio  | 2    | 0                        |   |                 |      |                         |
| aio_fildes   | 4    | the file                 |   |                 |      |                         |
| aio_buf … aio_reserved2 | 32 | 0               |   |                 |      |                         |
| aio_flags    | 4    | 1: IOCB_FLAG_RESFD       |   |                 |      |                         |
| aio_resfd    | 4    | the eventfd              |   |                 |      |                         |
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import platform
import struct
import sys
from collections.abc import Callable
from contextlib import suppress

from mainstem.errors import invariant

# io_setup, io_destroy, io_getevents, io_submit
_SYSCALLS = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}
_IOCB = struct.Struct("<QIiHhI32xII")
_EVENT = struct.Struct("<QQqq")
_FDSYNC, _RESFD = 3, 1

Ended = Callable[[OSError | None], None]


class AsyncSync:
    """One sync at a time. Belongs to the event loop that starts the first one."""

    @classmethod
    def open(cls) -> AsyncSync | None:
        """None where the system has no such calls."""
        numbers = _SYSCALLS.get(platform.machine())
        if sys.platform != "linux" or sys.byteorder != "little" or numbers is None:
            return None
        # Not CDLL, which releases Python's lock: these calls do not block.
        syscall = ctypes.PyDLL(None, use_errno=True).syscall
        syscall.restype = ctypes.c_long
        context = ctypes.c_ulong(0)
        if syscall(numbers[0], 1, ctypes.byref(context)) != 0:
            return None
        return cls(syscall, numbers, context)

    def __init__(
        self, syscall: Callable[..., int], numbers: tuple[int, int, int, int], context: ctypes.c_ulong
    ) -> None:
        self._syscall = syscall
        _, self._destroy, self._get_events, self._submit = numbers
        self._context = context
        self._eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._request = ctypes.create_string_buffer(_IOCB.size)
        self._requests = (ctypes.c_void_p * 1)(ctypes.addressof(self._request))
        self._event = ctypes.create_string_buffer(_EVENT.size)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: Ended | None = None

    def start(self, file: int, ended: Ended) -> bool:
        """Sync the data of an open file, and call `ended` on the event loop. False: not here, use a thread."""
        invariant(self._ended is None, "one sync at a time")
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._eventfd, self._receive)
        _IOCB.pack_into(self._request, 0, 0, 0, 0, _FDSYNC, 0, file, _RESFD, self._eventfd)
        if self._syscall(self._submit, self._context, 1, self._requests) != 1:
            return False
        self._ended = ended
        return True

    def _receive(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._eventfd, 8)
        if self._syscall(self._get_events, self._context, 0, 1, self._event, None) != 1:
            return
        ended, self._ended = self._ended, None
        result = _EVENT.unpack(self._event)[2]
        if ended is not None:
            ended(OSError(-result, os.strerror(-result)) if result < 0 else None)

    def close(self) -> None:
        """Nobody hears of the end of a running sync any more. On the event loop; idempotent."""
        if self._eventfd < 0:
            return
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._eventfd)
        self._ended = None
        self._syscall(self._destroy, self._context)
        os.close(self._eventfd)
        self._eventfd = -1
