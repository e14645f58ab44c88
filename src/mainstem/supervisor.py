"""`mainstem serve --workers N`: one process starts the workers, restarts one that dies, and ends them.

Each worker is a broker with all doors, forked from this process, so that one that is restarted imports nothing. They
share the log in the data directory (ports/commitlog/shared/host). A worker ends when this process does.

| door            | address of worker I                                                                    |
|-----------------|----------------------------------------------------------------------------------------|
| HTTP, text, S3  | the same for all: the kernel distributes connections (SO_REUSEPORT)                    |
| HTTP            | also a free port of its own, for members of a consumer group that it coordinates       |
| Kafka, Pulsar   | the port that was given plus I; port 0: a free one                                     |
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import signal
import socket
import time
from dataclasses import dataclass, replace
from pathlib import Path

from mainstem import events, server
from mainstem.address import Address
from mainstem.broker.options import shared_place
from mainstem.broker.storage.workers import WorkersLock, lock_workers, writer_pid
from mainstem.config import OPTIONAL_DOORS, Config
from mainstem.doors.kafka.transport.registry import apis
from mainstem.errors import CannotListen, InvalidConfig

RESTART_S_MIN = 1.0  # between two starts of one worker
POLL_S = 0.1  # how often to look whether workers are ready
STOP_S = 60.0  # a worker that has not ended this long after SIGTERM is killed

_PR_SET_PDEATHSIG = 1
_SIGNALS = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT}

_log = events.named("supervisor")


def run(config: Config) -> None:
    """Run the workers until SIGINT or SIGTERM. Raises MainstemError when they cannot start.

    Returns in the worker processes as well, at their end."""
    _check(config)
    lock = lock_workers(config.data_dir)
    reserved: list[socket.socket] = []
    try:
        config = _reserve(config, reserved)
        apis()  # imports a module for each, once for all workers
        gc.collect()
        gc.freeze()  # or the first collection in each worker would copy all that was imported
        worker = Supervisor(config, lock).run()
    finally:
        for one in reserved:
            one.close()
        lock.release()
    if worker is not None:
        server.run(worker)


def _check(config: Config) -> None:
    """Raises InvalidConfig for what only one process can do."""
    if shared_place(config) is not None or config.objects:
        raise InvalidConfig(
            "--workers needs the log in the data directory: leave out --store, --etcd and --objects, "
            "or start several brokers"
        )
    if any(listener.advertise for listener in config.kafka):
        raise InvalidConfig("--workers takes no advertise= of a Kafka listener: use --kafka-advertise")


def _reserve(config: Config, reserved: list[socket.socket]) -> Config:
    """Bind the ports that the workers share, so that port 0 is the same one for all. Raises CannotListen."""

    def shared(door: str, address: Address | None) -> Address | None:
        if address is None:
            return None
        try:
            reserved.append(_bound(address))
        except OSError as error:
            if (door, address) in OPTIONAL_DOORS:
                _log.warning("door not opened", door=door, message=str(error))
                return None
            raise CannotListen(
                f"the {door} door cannot listen on {address}: {error.strerror}; give another address with --{door}"
            ) from None
        return replace(address, port=reserved[-1].getsockname()[1], reuse_port=True)

    return replace(
        config, http=shared("http", config.http), text=shared("text", config.text), s3=shared("s3", config.s3)
    )


def _bound(address: Address) -> socket.socket:
    """A socket that has the port, and does not listen. Raises OSError."""
    family, kind, protocol, _, place = socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    found = socket.socket(family, kind, protocol)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        found.bind(place)
    except BaseException:
        found.close()
        raise
    return found


def worker_config(config: Config, index: int, ports_file: Path) -> Config:
    """The settings of one worker."""

    def own(address: Address) -> Address:
        return replace(address, port=address.port + index) if address.port else address

    return replace(
        config,
        broker_id=(1 if config.broker_id is None else config.broker_id) + index,
        kafka=tuple(own(listener) for listener in config.kafka),
        kafka_advertise=None if config.kafka_advertise is None else own(config.kafka_advertise),
        pulsar=None if config.pulsar is None else own(config.pulsar),
        pulsar_advertise=None if config.pulsar_advertise is None else own(config.pulsar_advertise),
        ports_file=ports_file,
        lake=config.lake and index == 0,
    )


@dataclass(slots=True)
class WorkerProcess:
    index: int
    ports_file: Path
    pid: int = 0  # 0: it does not run
    started_at: float = -RESTART_S_MIN


class Supervisor:
    def __init__(self, config: Config, lock: WorkersLock) -> None:
        self._config = config
        self._workers = [
            WorkerProcess(index, lock.folder / f"{index}.ports.json") for index in range(config.workers)
        ]
        self._ready = False
        self._stopping: signal.Signals | None = None

    def run(self) -> Config | None:
        """Returns None at the end, and in each worker its settings."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            while True:
                for worker in self._workers:
                    if worker.pid == 0 and time.monotonic() - worker.started_at >= RESTART_S_MIN:
                        started = self._start(worker)
                        if started is not None:
                            return started
                self._look_ready()
                caught = signal.sigtimedwait(_SIGNALS, POLL_S)
                if caught is not None and caught.si_signo != signal.SIGCHLD:
                    _log.info("stopping", signal=signal.Signals(caught.si_signo).name)
                    self._stop()
                    return None
                self._reap()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)

    def _start(self, worker: WorkerProcess) -> Config | None:
        """Fork a worker. Returns its settings there, and None here."""
        worker.ports_file.unlink(missing_ok=True)
        worker.started_at = time.monotonic()
        here = os.getpid()
        pid = os.fork()
        if pid:
            worker.pid = pid
            _log.info("worker started", worker=worker.index, worker_pid=pid)
            return None
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != here:
            os._exit(1)  # the supervisor ended in between
        return worker_config(self._config, worker.index, worker.ports_file)

    def _look_ready(self) -> None:
        """Once all workers are: say where the doors are."""
        if self._ready or not all(worker.ports_file.exists() for worker in self._workers):
            return
        self._ready = True
        ports: dict[str, str] = json.loads(self._workers[0].ports_file.read_text(encoding="utf-8"))
        ports.pop(server.WORKER_HTTP, None)
        if self._config.ports_file is not None:
            server.write_ports(self._config.ports_file, ports)
        _log.info(
            "ready",
            pid=os.getpid(),
            workers=len(self._workers),
            **ports,
            **server.console(self._config, ports),
        )

    def _reap(self) -> None:
        """Note which workers ended. Raises InvalidConfig if one could not start at all."""
        for worker in self._workers:
            if worker.pid == 0:
                continue
            pid, status = os.waitpid(worker.pid, os.WNOHANG)
            if pid:
                worker.pid = 0
                code = os.waitstatus_to_exitcode(status)
                _log.warning("worker ended", worker=worker.index, worker_pid=pid, code=code)
                if not self._ready and code > 0:
                    self._stop()
                    raise InvalidConfig(f"worker {worker.index} did not start: its message is above")

    def _stop(self) -> None:
        """End the workers, the one that writes the log last: it would hand the log over first."""
        writer = writer_pid(self._config.data_dir)
        for group in (
            [one for one in self._workers if one.pid and one.pid != writer],
            [one for one in self._workers if one.pid and one.pid == writer],
        ):
            for worker in group:
                _signal(worker.pid, signal.SIGTERM)
            self._wait(group)
        if self._config.ports_file is not None:
            self._config.ports_file.unlink(missing_ok=True)

    def _wait(self, group: list[WorkerProcess]) -> None:
        """Until they have ended; a second signal, or too long a wait, kills them."""
        deadline = time.monotonic() + STOP_S
        while any(worker.pid for worker in group):
            caught = signal.sigtimedwait(_SIGNALS, POLL_S)
            if (caught is not None and caught.si_signo != signal.SIGCHLD) or time.monotonic() > deadline:
                _log.warning("stopping at once")
                for worker in self._workers:
                    if worker.pid:
                        _signal(worker.pid, signal.SIGKILL)
            for worker in group:
                if worker.pid and os.waitpid(worker.pid, os.WNOHANG)[0]:
                    worker.pid = 0


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
