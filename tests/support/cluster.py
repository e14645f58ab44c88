"""Several real brokers over one log, for tests that kill, stop and add them."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.errors import BrokerFenced
from mainstem.ports.clock import Clock
from mainstem.ports.commitlog.shared.open import SharedPlace
from mainstem.testing.server import ServerProcess

T = TypeVar("T")

_WAIT_S = 90.0
_POLL_S = 0.05


class Answer:
    """Of an HTTP request, whatever its status."""

    def __init__(self, status: int, body: bytes, position: str | None) -> None:
        self.status = status
        self.position = position  # up to where the broker knew the log
        self.json: Any = json.loads(body) if body else None


class BrokerProcesses:
    """Brokers by name, each in a folder of its own. `flags` say where the log is."""

    def __init__(self, directory: Path, *flags: str) -> None:
        self._directory = directory
        self._flags = flags
        self.running: dict[str, ServerProcess] = {}

    def start(self, *names: str, flags: tuple[str, ...] = ()) -> None:
        """Start them side by side, and wait until all are ready."""
        for name in names:
            self.launch(name, *flags)
        for name in names:
            self.running[name].wait_ready()

    def launch(self, name: str, *flags: str) -> None:
        """Start one, without waiting for it."""
        self.running[name] = ServerProcess(self._directory / name, *self._flags, "--node", name, *flags)

    def barrier(self, name: str) -> None:
        """Let a broker apply everything that any broker committed: it reads the tail before it reports NotFound."""
        self.request(name, "GET", "/v0/topics/nothing-of-this-name")

    def __getitem__(self, name: str) -> ServerProcess:
        return self.running[name]

    @property
    def bootstrap(self) -> str:
        """Where Kafka clients find them."""
        return ",".join(str(one.last_address("kafka")) for one in self.running.values())

    def kill(self, name: str) -> None:
        self.running.pop(name).kill()

    def request(
        self, name: str, method: str, path: str, body: object = None, position: str | None = None
    ) -> Answer:
        """One HTTP request to one broker."""
        headers = {"content-type": "application/json"}
        if position is not None:
            headers["mainstem-position"] = position
        data = None if body is None else json.dumps(body).encode()
        url = f"http://{self.running[name].last_address('http')}{path}"
        asked = urllib.request.Request(url, data=data, headers=headers, method=method)
        try:
            with urllib.request.urlopen(asked, timeout=_WAIT_S) as answer:
                return Answer(answer.status, answer.read(), answer.headers["mainstem-position"])
        except urllib.error.HTTPError as refused:
            return Answer(refused.code, refused.read(), refused.headers["mainstem-position"])

    def write(self, name: str, topic: str, *values: object) -> Answer:
        return self.request(
            name, "POST", f"/v0/topics/{topic}", {"records": [{"data": one} for one in values]}
        )

    def values(self, name: str, topic: str, position: str | None = None) -> list[object]:
        """Every value of a topic's first partition, as one broker reads it."""
        found: list[object] = []
        since = 0
        while True:
            body = {"from_seq": since, "limit": 1_000}
            page = self.request(name, "POST", f"/v0/topics/{topic}/diff", body, position).json
            if not page["records"]:
                return found
            found += [record["data"] for record in page["records"]]
            since = page["records"][-1]["$seq"]

    def numbers(self, name: str) -> dict[str, int]:
        """The brokers that one of them knows of: number by node."""
        members = self.request(name, "GET", "/v0/cluster").json["brokers"]
        return {member["node"]: member["broker"] for member in members}

    def close(self) -> None:
        for one in self.running.values():
            one.__exit__(None, None, None)
        self.running.clear()


@contextmanager
def broker_processes(directory: Path, *flags: str) -> Iterator[BrokerProcesses]:
    brokers = BrokerProcesses(directory, *flags)
    try:
        yield brokers
    finally:
        brokers.close()


@asynccontextmanager
async def brokers_here(
    directory: Path, *names: str, clock: Clock | None = None
) -> AsyncIterator[list[Broker]]:
    """In this process, over a bucket that is a folder."""
    place = SharedPlace((directory / "bucket").as_uri())
    opened: list[Broker] = []
    try:
        for name in names:
            opened.append(await Broker.open(BrokerOptions(directory / name, place=place), clock))
        yield opened
    finally:
        for broker in opened:
            with suppress(BrokerFenced):  # it was expired
                await broker.close()


def eventually(look: Callable[[], T], wanted: Callable[[T], bool], within_s: float = _WAIT_S) -> T:
    """Look until it is as wanted. Raises AssertionError with what was seen last."""
    give_up_at = time.monotonic() + within_s
    while True:
        found = look()
        if wanted(found):
            return found
        if time.monotonic() > give_up_at:
            raise AssertionError(f"after {within_s} s it is still {found!r}")
        time.sleep(_POLL_S)
