"""Servers by fork: imports take most of a start, and the tests start hundreds of servers.

A process imports what a server needs and then forks once for each; what it forks runs the command line's own `main`,
and ends as a process of Python ends. `python -m tests.support.forks FD` is that process: FD is a socket for
requests.

    request     JSON of _Request, with two descriptors: the server's stderr, and a pipe for its exit code
    answer      the process's number, in digits
    exit code   in digits, once it has ended
"""

from __future__ import annotations

import gc
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import msgspec

from mainstem.errors import invariant

_ROOT = Path(__file__).parents[2]
_REQUEST_BYTES_MAX = 1 << 17
_ANSWER_BYTES_MAX = 64
# What a server imports before it is ready, and numba, which it does soon after. Not pyarrow: it starts a thread.
_IMPORTED = (
    "mainstem.cli.serve",
    "mainstem.server",
    "numba",
    "uvicorn.lifespan.off",
    "uvicorn.lifespan.on",
    "uvloop",
    "websockets.server",
)


class _Request(msgspec.Struct):
    arguments: list[str]
    environment: dict[str, str]
    folder: str


class ForkedProcess:
    """The part of `subprocess.Popen` that servers need."""

    def __init__(self, pid: int, stderr: int, exit_code: int) -> None:
        self.pid = pid
        self.stderr = open(stderr, encoding="utf-8")  # noqa: SIM115  # closed by its reader
        self._told = exit_code
        self._reading = threading.Lock()
        self._code: int | None = None

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float) -> int:
        """Raises TimeoutError."""
        code = self._ended(timeout)
        if code is None:
            raise TimeoutError(f"process {self.pid} is still running after {timeout} s")
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended already
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended(self, within_s: float) -> int | None:
        if self._code is None and _readable(self._told, within_s):
            with self._reading:  # one thread may wait for the end while another one brings it about
                if self._code is None:
                    told = os.read(self._told, _ANSWER_BYTES_MAX)
                    invariant(told != b"", "the process that forks outlives what it forked")
                    self._code = int(told)
                    os.close(self._told)
        return self._code


def _readable(descriptor: int, within_s: float) -> bool:
    waiting = select.poll()  # not `select.select`: any number of descriptors may be open
    waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(within_s * 1000))


class Forks:
    """The process that forks, started when it is first needed. It ends with this one, if not before."""

    def __init__(self) -> None:
        self._asking = threading.Lock()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, arguments: Sequence[str], environment: dict[str, str], folder: Path) -> ForkedProcess:
        request = msgspec.json.encode(_Request(list(arguments), environment, str(folder)))
        stderr, theirs = os.pipe()
        exit_code, told = os.pipe()
        try:
            with self._asking:
                control = self._control or self._open()
                socket.send_fds(control, [request], [theirs, told])
                pid = int(control.recv(_ANSWER_BYTES_MAX))
        finally:
            os.close(theirs)
            os.close(told)
        return ForkedProcess(pid, stderr, exit_code)

    def close(self) -> None:
        """Idempotent. Forked processes continue."""
        if self._control is not None and self._process is not None:
            self._control.close()
            self._process.wait()
            self._control = self._process = None

    def _open(self) -> socket.socket:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", "tests.support.forks", str(theirs.fileno())]
            self._process = subprocess.Popen(
                command, cwd=_ROOT, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
            )
        return self._control


# In the process that forks


def main() -> None:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as a server does before it imports numpy
    with socket.socket(fileno=int(sys.argv[1])) as control:
        for module in _IMPORTED:
            import_module(module)
        import_module("mainstem.doors.kafka.transport.registry").apis()  # which imports a module for each
        gc.collect()
        gc.freeze()  # or the first collection in each of them would copy all that was imported
        invariant(len(os.listdir("/proc/self/task")) == 1, "a process with several threads must not fork")
        forked = _fork_when_asked(control)
    if forked:
        import_module("mainstem.cli.main").main()


def _fork_when_asked(control: socket.socket) -> bool:
    """True in each process that is forked; False once nobody can ask any more."""
    # Number and the pipe for the exit code, by the process's descriptor.
    running: dict[int, tuple[int, int]] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is not control:
                    selector.unregister(key.fd)
                    _tell_end(key.fd, *running.pop(key.fd))
                    continue
                body, passed, _, _ = socket.recv_fds(control, _REQUEST_BYTES_MAX, 2)
                if not body:
                    return False
                stderr, told = passed
                request = msgspec.json.decode(body, type=_Request)
                pid = os.fork()
                if pid == 0:
                    for descriptor in (told, *running, *(pipe for _, pipe in running.values())):
                        os.close(descriptor)
                    _become(request, stderr)
                    return True
                os.close(stderr)
                descriptor = os.pidfd_open(pid)
                running[descriptor] = (pid, told)
                selector.register(descriptor, selectors.EVENT_READ)
                control.send(b"%d" % pid)


def _tell_end(descriptor: int, pid: int, told: int) -> None:
    _, status = os.waitpid(pid, 0)
    os.write(told, b"%d" % os.waitstatus_to_exitcode(status))
    os.close(told)
    os.close(descriptor)


def _become(request: _Request, stderr: int) -> None:
    os.dup2(stderr, sys.stderr.fileno())
    os.close(stderr)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.environment)
    sys.argv = ["mainstem", *request.arguments]


if __name__ == "__main__":
    main()
