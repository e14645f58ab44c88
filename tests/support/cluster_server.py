"""Through a cluster: what a test takes for its server may be one of three brokers that share a log, or two workers.

    server_process(tmp_path / "data", "--text", "off")

starts `mainstem serve`, and that is all there is to it, unless the run was started with `--through`: then two more
brokers run next to it on the same log in S3, or in etcd with its payloads in S3. Clients that follow the metadata
end up at any of the three. With `--through workers` it is `mainstem serve --workers 2`. To kill or end it is to kill or
end all of them; started again over the same directory they find what was written, and the two others have the addresses
they had.
"""

from __future__ import annotations

import atexit
import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType

from mainstem.address import Address
from mainstem.broker.broker import BrokerOptions
from mainstem.ports.commitlog.shared.open import SharedPlace
from mainstem.testing.server import ServerProcess
from tests.support.etcd import EtcdCluster
from tests.support.s3 import S3Server

KINDS = ("cluster-bucket", "cluster-etcd", "workers")
_DOORS = ("http", "kafka", "text")
_PEERS = 2
_WORKERS = 2
_LOGS_KEPT = 6  # in etcd, each in a process of its own; older ones end when nobody uses them
_BUCKET = "through"


@dataclass
class _Log:
    """The shared log of what a test takes for one directory."""

    store: str
    etcd: EtcdCluster | None = None
    addresses: list[dict[str, Address]] = field(
        default_factory=list
    )  # of the two others, once they were started
    server: BrokerOfThree | None = None

    @property
    def flags(self) -> tuple[str, ...]:
        etcd = ("--etcd", self.etcd.endpoints[0]) if self.etcd is not None else ()
        return ("--store", self.store, *etcd)


class Through:
    """The logs of one run of the tests, in a folder of their own that goes with them."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._kind = kind
        self._folder = folder
        self._s3: S3Server | None = None
        self._logs: dict[Path, _Log] = {}

    def server(self, data_dir: Path, *flags: str, env: dict[str, str] | None = None) -> ServerProcess:
        if self._kind == "workers":
            return _workers(data_dir, *flags, env=env)
        log = self._log(data_dir.resolve())
        log.server = BrokerOfThree(data_dir, log, *flags, env=env)
        return log.server

    def brokers(self, options: BrokerOptions) -> list[BrokerOptions]:
        numbers = range(_PEERS + 1)
        if self._kind == "workers":
            return [replace(options, workers=True, broker_id=1 + number) for number in numbers]
        log = self._log(options.data_dir.resolve())
        place = SharedPlace(log.store, log.etcd.endpoints if log.etcd is not None else ())
        name = options.data_dir.name
        folders = [options.data_dir.with_name(f"{name}{number or ''}") for number in numbers]
        return [replace(options, data_dir=folder, place=place) for folder in folders]

    def close(self) -> None:
        """Idempotent."""
        for log in self._logs.values():
            if log.etcd is not None:
                log.etcd.close()
        self._logs.clear()
        if self._s3 is not None:
            self._s3.kill()
            self._s3 = None
        shutil.rmtree(self._folder, ignore_errors=True)

    def _log(self, data_dir: Path) -> _Log:
        found = self._logs.pop(data_dir, None)
        if found is None:
            self._drop_unused()
            found = self._new_log(data_dir)
        self._logs[data_dir] = found
        return found

    def _new_log(self, data_dir: Path) -> _Log:
        if self._s3 is None:
            self._s3 = S3Server(self._folder / "s3").__enter__()
            self._s3.make_bucket(_BUCKET)
        etcd = None
        if self._kind == "cluster-etcd":
            etcd = EtcdCluster(self._etcd_folder(data_dir)).__enter__()
        return _Log(self._s3.url(_BUCKET, _name(data_dir)), etcd)

    def _drop_unused(self) -> None:
        for data_dir, log in list(self._logs.items()):
            unused = log.server is None or not log.server.running
            if log.etcd is not None and unused and len(self._logs) >= _LOGS_KEPT:
                log.etcd.close()
                shutil.rmtree(
                    self._etcd_folder(data_dir), ignore_errors=True
                )  # 128 MB each, and there are many
                del self._logs[data_dir]

    def _etcd_folder(self, data_dir: Path) -> Path:
        return self._folder / f"etcd-{_name(data_dir)}"


class BrokerOfThree(ServerProcess):
    """The broker that a test talks to, and the two beside it."""

    def __init__(self, data_dir: Path, log: _Log, *flags: str, env: dict[str, str] | None) -> None:
        self._log = log
        known = log.addresses or [{} for _ in range(_PEERS)]
        self._peers = [
            ServerProcess(
                data_dir.with_name(f"{data_dir.name}.peer{number}"),
                *log.flags,
                *_of_peer(flags, addresses),
                env=env,
            )
            for number, addresses in enumerate(known)
        ]
        super().__init__(data_dir, *log.flags, *flags, env=env)

    def wait_ready(self) -> BrokerOfThree:
        for one in self._peers:
            one.wait_ready()
        super().wait_ready()
        self._log.addresses = [
            {door: one.last_address(door) for door in _DOORS if door in one.ready} for one in self._peers
        ]
        return self

    def __enter__(self) -> BrokerOfThree:
        return self.wait_ready()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in self._peers:
            one.__exit__(kind, error, trace)
        super().__exit__(kind, error, trace)

    def terminate(self) -> int:
        for one in self._peers:
            if one.running:
                one.terminate()
        return super().terminate()

    def kill(self) -> int:
        for one in self._peers:
            if one.running:
                one.kill()
        return super().kill()


def server_process(data_dir: Path, *flags: str, env: dict[str, str] | None = None) -> ServerProcess:
    """A server on free ports, starting: alone, or one of three if the run was started that way."""
    if _current is None:
        return ServerProcess(data_dir, *flags, env=env)
    return _current.server(data_dir, *flags, env=env)


def broker_options(options: BrokerOptions) -> list[BrokerOptions]:
    """Of each broker in this process: one, or in a run through a cluster three that share a log."""
    return [options] if _current is None else _current.brokers(options)


_current: Through | None = None


def start(kind: str, folder: Path) -> None:
    """From now on servers are brokers of a cluster of that kind."""
    global _current
    _current = Through(kind, folder)
    atexit.register(end)


def end() -> None:
    """Idempotent."""
    global _current
    if _current is not None:
        _current.close()
        _current = None


def _workers(data_dir: Path, *flags: str, env: dict[str, str] | None) -> ServerProcess:
    return ServerProcess(data_dir, "--workers", str(_WORKERS), *flags, env=env)


def _name(data_dir: Path) -> str:
    return hashlib.blake2b(str(data_dir).encode(), digest_size=8).hexdigest()


def _of_peer(flags: Sequence[str], addresses: dict[str, Address]) -> list[str]:
    """The flags of a broker beside another one: the same, but for where its doors are."""
    found: list[str] = []
    asked = iter(flags)
    for flag in asked:
        door = flag.removeprefix("--").removesuffix("-advertise")
        value = next(asked, "") if door in _DOORS else ""
        if value == "off" or door not in _DOORS:
            found += [flag, value] if value else [flag]
    for door, address in addresses.items():
        found += [f"--{door}", str(address)]
    return found
