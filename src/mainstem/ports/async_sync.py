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

The kernel takes 30 ms to destroy a context, and the calling thread waits. So a context in which nothing runs is kept
for the next log of the process.
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
from typing import ClassVar

from mainstem.errors import invariant

# io_setup, io_destroy, io_getevents, io_submit
_SYSCALLS = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}
_IOCB = struct.Struct("<QIiHhI32xII")
_EVENT = struct.Struct("<QQqq")
_FDSYNC, _RESFD = 3, 1
_IDLE_CONTEXTS_MAX = 4

Ended = Callable[[OSError | None], None]


class AioContext:
    """A context of the kernel and the eventfd on which it reports: one request at a time."""

    _idle: ClassVar[list[AioContext]] = []

    @classmethod
    def take(cls) -> AioContext | None:
        """None where the system has no such calls, or no descriptor left."""
        with suppress(IndexError):
            return cls._idle.pop()
        with suppress(OSError):
            return cls()
        return None

    def __init__(self) -> None:
        setup, self._destroy, self._get_events, self._submit = _SYSCALLS[platform.machine()]
        # Not CDLL, which releases Python's lock: these calls do not block.
        self._syscall: Callable[..., int] = ctypes.PyDLL(None, use_errno=True).syscall
        self._syscall.restype = ctypes.c_long
        self.eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._context = ctypes.c_ulong(0)
        if self._syscall(setup, 1, ctypes.byref(self._context)) != 0:
            os.close(self.eventfd)
            raise OSError(ctypes.get_errno(), "no asynchronous I/O")
        self._request = ctypes.create_string_buffer(_IOCB.size)
        self._requests = (ctypes.c_void_p * 1)(ctypes.addressof(self._request))
        self._event = ctypes.create_string_buffer(_EVENT.size)

    def submit_sync(self, file: int) -> bool:
        _IOCB.pack_into(self._request, 0, 0, 0, 0, _FDSYNC, 0, file, _RESFD, self.eventfd)
        return self._syscall(self._submit, self._context, 1, self._requests) == 1

    def result(self) -> int | None:
        """The result of the request: 0, or minus an errno. None: it has not ended."""
        with suppress(BlockingIOError):
            os.read(self.eventfd, 8)
        if self._syscall(self._get_events, self._context, 0, 1, self._event, None) != 1:
            return None
        return int(_EVENT.unpack(self._event)[2])

    def give_back(self) -> None:
        """Nothing runs in it any more."""
        if len(self._idle) < _IDLE_CONTEXTS_MAX:
            self._idle.append(self)
        else:
            self.destroy()

    def destroy(self) -> None:
        """Waits for what still runs in it."""
        self._syscall(self._destroy, self._context)
        os.close(self.eventfd)

    @classmethod
    def forget(cls) -> None:
        """Close the eventfds of idle contexts: a forked process does not have its parent's contexts."""
        while cls._idle:
            os.close(cls._idle.pop().eventfd)


os.register_at_fork(after_in_child=AioContext.forget)


class AsyncSync:
    """One sync at a time. Belongs to the event loop that starts the first one."""

    @classmethod
    def open(cls) -> AsyncSync | None:
        """None where the system has no such calls."""
        if sys.platform != "linux" or sys.byteorder != "little" or platform.machine() not in _SYSCALLS:
            return None
        return cls()

    def __init__(self) -> None:
        self._context: AioContext | None = None
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: Ended | None = None

    def start(self, file: int, ended: Ended) -> bool:
        """Sync the data of an open file, and call `ended` on the event loop. False: not here, use a thread."""
        invariant(self._ended is None, "one sync at a time")
        context = self._context or self._take_context()
        if context is None or not context.submit_sync(file):
            return False
        self._ended = ended
        return True

    def _take_context(self) -> AioContext | None:
        if self._closed:
            return None
        self._context = context = AioContext.take()
        if context is not None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(context.eventfd, self._receive, context)
        return context

    def _receive(self, context: AioContext) -> None:
        result = context.result()
        if result is None:
            return
        ended, self._ended = self._ended, None
        if ended is not None:
            ended(OSError(-result, os.strerror(-result)) if result < 0 else None)

    def close(self) -> None:
        """Discard the outcome of a running sync. On the event loop; idempotent."""
        self._closed = True
        context, self._context = self._context, None
        if context is None:
            return
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(context.eventfd)
        if self._ended is None:
            context.give_back()
        else:
            self._ended = None
            context.destroy()
