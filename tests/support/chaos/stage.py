"""The cluster of a run: an S3 server, etcd if the log is there, brokers, and a proxy on every way between them."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from tests.support.cluster import BrokerProcesses, eventually
from tests.support.etcd import EtcdCluster
from tests.support.proxy import LossyProxy, ProxyThread
from tests.support.s3 import S3Server

NAMES = ("a", "b", "c")
_BUCKET = "log"
_ETCD_MEMBERS = 3
_CALM_S = 120.0
_STOPPED_S = 5.0  # longer than a broker may be silent
_STALLED_S = 8.0  # long enough for its groups to have moved and come back


class Stage:
    """Leaving the block kills all of it."""

    def __init__(self, kind: str, seed: int, folder: Path) -> None:
        self.random = random.Random(seed)
        self.troubles: list[str] = []  # what happened, in order
        self._kind = kind
        self._held = ExitStack()
        self._s3 = S3Server(folder / "s3")
        self._etcd = EtcdCluster(folder / "etcd", _ETCD_MEMBERS) if kind == "etcd" else None
        self._proxies = ProxyThread()
        self._to_store: dict[str, LossyProxy] = {}
        self._to_etcd: dict[str, list[LossyProxy]] = {name: [] for name in NAMES}
        self._flags: dict[str, tuple[str, ...]] = {}
        self._addresses: dict[str, tuple[str, str]] = {}  # Kafka and HTTP
        self.brokers = BrokerProcesses(folder)

    def __enter__(self) -> Stage:
        try:
            self._start()
        except BaseException:
            self._held.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    def _start(self) -> None:
        self._held.enter_context(self._s3)
        self._s3.make_bucket(_BUCKET)
        if self._etcd is not None:
            self._held.enter_context(self._etcd)
        self._held.enter_context(self._proxies)
        for name in NAMES:
            self._connect(name)
        self._held.callback(self.brokers.close)
        for name in NAMES:
            self.brokers.launch(name, *self._flags[name])
        for name in NAMES:
            process = self.brokers[name].wait_ready()
            self._addresses[name] = (str(process.address("kafka")), str(process.address("http")))

    def _connect(self, name: str) -> None:
        """A way of its own from a broker to everything it needs, so that it can be cut alone."""
        proxy, address = self._proxies.open(self._s3.endpoint.removeprefix("http://"))
        self._to_store[name] = proxy
        flags = ["--store", self._s3.url(_BUCKET, endpoint=f"http://{address}")]
        if self._etcd is not None:
            members = []
            for endpoint in self._etcd.endpoints:
                proxy, address = self._proxies.open(endpoint)
                self._to_etcd[name].append(proxy)
                members.append(address)
            flags += ["--etcd", ",".join(members)]
        self._flags[name] = tuple(flags)

    @property
    def bootstrap(self) -> str:
        return ",".join(kafka for kafka, _ in self._addresses.values())

    def http(self, name: str) -> str:
        return self._addresses[name][1]

    def http_addresses(self) -> list[str]:
        return [http for _, http in self._addresses.values()]

    # Trouble

    def trouble(self) -> None:
        """Something that the seed decides; it is over when this returns, though not forgotten."""
        name = self.random.choice(NAMES)
        kinds: dict[str, Callable[[str], None]] = {
            "kill": self._kill,
            "stop": self._stop,
            "cut": self._cut,
            "hang": self._hang,
            "swallow": self._swallow,
            "delay": self._delay,
            "store": self._kill_store,
        }
        if self._etcd is not None:
            kinds["etcd"] = self._kill_etcd_leader
        # Each kind comes up before any comes again, so that a short run is not all of one sort.
        left = [kind for kind in kinds if self.troubles.count(kind) == min(map(self.troubles.count, kinds))]
        kind = self.random.choice(left)
        self.troubles.append(kind)
        kinds[kind](name)
        self.check_running()

    def check_running(self) -> None:
        """Raises AssertionError if a broker ended by itself."""
        for name in NAMES:
            process = self.brokers[name]
            if not process.running:
                raise AssertionError(
                    f"broker {name} ended: {process.lines[-5:]} {process.stray_output[-2000:]}"
                )

    def calm(self) -> None:
        """Wait until every broker counts all of them among its members."""
        for name in NAMES:
            eventually(lambda: set(self.brokers.numbers(name)), lambda found: found == set(NAMES), _CALM_S)  # noqa: B023

    def _kill(self, name: str) -> None:
        self.brokers.kill(name)
        self._pause(0.0, 2.0)
        kafka, http = self._addresses[name]
        self.brokers.launch(name, *self._flags[name], "--kafka", kafka, "--http", http)
        self.brokers[name].wait_ready()

    def _stop(self, name: str) -> None:
        self.brokers[name].signal(signal.SIGSTOP)
        self._pause(1.0, _STALLED_S)
        self.brokers[name].signal(signal.SIGCONT)

    def _cut(self, name: str) -> None:
        self._on_ways(name, LossyProxy.refuse)
        self._pause(1.0, _STOPPED_S)
        self._heal(name)

    def _hang(self, name: str) -> None:
        self._on_ways(name, LossyProxy.hang)
        self._pause(1.0, _STOPPED_S)
        self._heal(name)

    def _swallow(self, name: str) -> None:
        self._on_ways(name, LossyProxy.swallow)
        self._pause(0.2, 2.0)
        self._heal(name)

    def _delay(self, name: str) -> None:
        late_s = self.random.uniform(0.02, 0.3)

        def delay(proxy: LossyProxy) -> None:
            proxy.delay_s = late_s

        self._on_ways(name, delay)
        self._pause(1.0, 3.0)
        self._heal(name)

    def _kill_store(self, _: str) -> None:
        self._s3.kill()
        self._pause(0.1, 2.0)
        self._s3.start_again()
        target = self._s3.endpoint.removeprefix("http://")
        for proxy in self._to_store.values():
            self._proxies.tell(lambda proxy=proxy: (proxy.aim(target), proxy.heal()))  # type: ignore[misc]

    def _kill_etcd_leader(self, _: str) -> None:
        assert self._etcd is not None
        leader = self._etcd.leader()
        leader.kill()
        self._pause(0.5, 3.0)
        self._etcd.start(leader)
        leader.wait_ready()

    def _on_ways(self, name: str, act: Callable[[LossyProxy], None]) -> None:
        """To the store and to etcd, or to one of them."""
        ways = [[self._to_store[name], *self._to_etcd[name]], [self._to_store[name]], self._to_etcd[name]]
        for proxy in self.random.choice(ways if self._etcd is not None else ways[:1]):
            self._proxies.tell(lambda proxy=proxy: act(proxy))  # type: ignore[misc]

    def _heal(self, name: str) -> None:
        for proxy in (self._to_store[name], *self._to_etcd[name]):
            self._proxies.tell(proxy.heal)

    def _pause(self, least_s: float, most_s: float) -> None:
        time.sleep(self.random.uniform(least_s, most_s))
