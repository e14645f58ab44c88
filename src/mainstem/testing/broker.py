"""A temporary broker for tests of programs that use Mainstem: a real server on free ports, deleted afterwards.

with throw_away_broker() as broker:
    broker.client.produce("orders", {"id": 1})
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from mainstem.client.sync import Client
from mainstem.testing.server import ServerProcess


class ThrowAwayBroker:
    """A server process and its addresses."""

    def __init__(self, directory: Path, *flags: str) -> None:
        self._directory = directory
        self._flags = flags
        self._server = ServerProcess(directory / "data", *flags).wait_ready()

    @property
    def url(self) -> str:
        """For HTTP clients."""
        return f"http://{self._server.address('http')}"

    @property
    def bootstrap_servers(self) -> str:
        """For Kafka clients."""
        return str(self._server.address("kafka"))

    @cached_property
    def client(self) -> Client:
        """A client of this broker, closed with it."""
        return Client(self.url)

    def kill(self) -> None:
        """Kill the server process with SIGKILL."""
        self._server.kill()

    def restart(self) -> None:
        """Start the server again on the same data and the same ports, so that clients reconnect."""
        if self._server.running:
            self._server.terminate()
        addresses = {door: self._server.last_address(door) for door in ("http", "text", "kafka")}
        flags = [text for door, address in addresses.items() for text in (f"--{door}", str(address))]
        self._server = ServerProcess(self._directory / "data", *flags, *self._flags).wait_ready()

    def close(self) -> None:
        if "client" in self.__dict__:
            self.client.close()
        if self._server.running:
            self._server.kill()


@contextmanager
def throw_away_broker(*flags: str) -> Iterator[ThrowAwayBroker]:
    """Start a broker in a temporary directory; `flags` are those of `mainstem serve`."""
    with tempfile.TemporaryDirectory(prefix="mainstem-") as directory:
        broker = ThrowAwayBroker(Path(directory), *flags)
        try:
            yield broker
        finally:
            broker.close()
