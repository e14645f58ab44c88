"""The brokers as Kafka clients see them: those with an open Kafka door, and the leader of each partition."""

from __future__ import annotations

from typing import NamedTuple

from mainstem.address import Address
from mainstem.broker.cluster.service import Cluster


class Peer(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


class Peers:
    """A single broker leads and coordinates everything."""

    def __init__(self, cluster: Cluster, here: Peer, listener: str = "kafka") -> None:
        self._cluster = cluster
        self._listener = listener
        self._here = here
        self._known: dict[int, Peer] = {here.node_id: here}
        self._known_at = -1

    @property
    def state(self) -> int:
        """Stays equal until the brokers or their addresses for clients change."""
        return self._cluster.leaders_state

    def all(self) -> list[Peer]:
        """The brokers by number, including this one."""
        return list(self._current().values())

    def controller(self) -> int:
        return self._reachable(self._cluster.coordinator("controller", ""))

    def leader(self, stream: int, rack: str = "") -> int:
        return self._reachable(self._cluster.leader(stream, rack))

    def replicas(self, stream: int) -> tuple[int, ...]:
        """The leader, then the broker of each zone that serves clients of the zone."""
        zones = sorted({peer.rack for peer in self._current().values() if peer.rack is not None})
        return tuple(dict.fromkeys([self.leader(stream), *(self.leader(stream, zone) for zone in zones)]))

    def near(self, rack: str) -> bool:
        """Whether a broker is in the client's zone."""
        return any(peer.rack == rack for peer in self._current().values())

    def coordinator(self, kind: str, name: str) -> Peer:
        return self._current()[self._reachable(self._cluster.coordinator(kind, name))]

    def coordinates(self, kind: str, name: str) -> bool:
        """Whether this broker coordinates a group or transaction."""
        return self.coordinator(kind, name).node_id == self._here.node_id

    def _reachable(self, broker: int) -> int:
        """The broker, or the first one that Kafka clients can reach."""
        current = self._current()
        return broker if broker in current else next(iter(current))

    def _current(self) -> dict[int, Peer]:
        if self._cluster.shared and self._known_at != self.state:
            found = {}
            for member in self._cluster.members():
                told = member.address(self._listener)
                if told is not None:
                    address = Address.parse(told)
                    found[member.broker] = Peer(
                        member.broker, address.host, address.port, member.zone or None
                    )
            self._known = found or {self._here.node_id: self._here}
            self._known_at = self.state
        return self._known
