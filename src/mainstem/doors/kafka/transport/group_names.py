"""Which consumer group a Fetch is for. Kafka's Fetch does not name it, so the door learns it from other requests.

A client names its group in FindCoordinator, JoinGroup, SyncGroup, Heartbeat, ConsumerGroupHeartbeat,
StreamsGroupHeartbeat, OffsetCommit and OffsetFetch. The door takes a Fetch to be for

1. the group that was last named on the same connection: librdkafka asks for its coordinator on the connection that it
   fetches on;
2. else the one group that the same principal, from the same host and with the same client id, named on any connection
   within `GROUP_NAMED_S`: the Java client has a connection of its own for the coordinator, and a client id for each
   consumer.

If several groups share principal, host and client id, and the connection named none, the Fetch counts for no group:
throttling the wrong one would be worse. Consumers with client ids of their own are always told apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem import limits
from mainstem.broker.access.rules import Operation, ResourceType
from mainstem.broker.cluster.clock import Clock

if TYPE_CHECKING:
    from mainstem.doors.kafka.transport.api import Call
    from mainstem.doors.kafka.transport.connection import KafkaConnection

GROUP_NAMES_KEPT = 100_000  # clients whose consumer group is known
GROUP_NAMED_S = 300.0  # how long a client is taken for a reader of the group that it named

_OFFSET_FETCH, _FIND_COORDINATOR, _LEAVE_GROUP = 9, 10, 13
NAMES_GROUP = frozenset({8, _OFFSET_FETCH, _FIND_COORDINATOR, 11, 12, _LEAVE_GROUP, 14, 68, 88})
_OF_GROUPS = 0  # FindCoordinator's key type
_GROUPS_OF_CLIENT_MAX = 100  # the newest ones

_Client = tuple[str, str, str | None]  # principal, host, client id


class GroupNames:
    """The groups that clients named, by principal, host and client id."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._named: dict[
            _Client, dict[str, float]
        ] = {}  # when each group was last named; newest clients last
        self._count = 0  # groups of all clients

    def __len__(self) -> int:
        return self._count

    @property
    def clients(self) -> int:
        return len(self._named)

    def learn(self, api: int, call: Call, message: Any, connection: KafkaConnection) -> None:
        """A client named a group in a request of one of these APIs."""
        group = _group_in(api, message)
        if not group:
            return
        if call.restricted and not call.may(Operation.READ, ResourceType.GROUP, group):
            return  # otherwise a client could use up the rate of a group that it may not read
        client = call.principal.name, call.host, call.client_id
        leaves = api == _LEAVE_GROUP or getattr(message, "member_epoch", 0) < 0
        if not leaves:
            connection.group = group
        if len(group) + len(call.client_id or "") > limits.KEPT_NAME_CHARS_MAX:
            return
        groups = self._named.pop(client, None) or {}
        self._count -= len(groups)
        groups.pop(group, None)
        if not leaves:
            groups[group] = self._clock.monotonic()
            if len(groups) > _GROUPS_OF_CLIENT_MAX:
                del groups[next(iter(groups))]
        if groups:
            self._named[client] = groups
            self._count += len(groups)
        while self._count > GROUP_NAMES_KEPT:
            self._count -= len(self._named.pop(next(iter(self._named))))

    def group_of(self, call: Call, connection: KafkaConnection) -> str | None:
        """The group that a client reads for on this connection, if known."""
        if connection.group is not None:
            return connection.group
        client = call.principal.name, call.host, call.client_id
        groups = self._named.get(client)
        if groups is None:
            return None
        since = self._clock.monotonic() - GROUP_NAMED_S
        for group in [group for group, named in groups.items() if named < since]:
            del groups[group]
            self._count -= 1
        if not groups:  # else clients without groups, which do not count, would stay
            del self._named[client]
        return next(iter(groups)) if len(groups) == 1 else None


def _group_in(api: int, message: Any) -> str | None:
    """The group, if the request names exactly one."""
    if api == _FIND_COORDINATOR:
        keys = message.coordinator_keys
        return keys[0] if message.key_type == _OF_GROUPS and len(keys) == 1 else None
    if api == _OFFSET_FETCH:
        return message.groups[0].group_id if len(message.groups) == 1 else None
    return message.group_id  # type: ignore[no-any-return]
