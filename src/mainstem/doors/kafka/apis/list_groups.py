"""ListGroups: every group that has members or offsets, filtered by state and kind."""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from kio.schema.list_groups.v5.request import ListGroupsRequest
from kio.schema.list_groups.v5.response import ListedGroup, ListGroupsResponse
from kio.schema.types import GroupId

from mainstem.broker.groups.classic import ClassicGroup
from mainstem.broker.groups.offsets import OWN_PREFIX
from mainstem.broker.groups.service import ListedGroup as Listed
from mainstem.broker.groups.service import subscription_group
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE


async def handle(call: Call, request: ListGroupsRequest) -> ListGroupsResponse:
    states = {state.lower() for state in request.states_filter}
    kinds = {kind.lower() for kind in request.types_filter}
    groups = tuple(
        ListedGroup(
            group_id=GroupId(group.name),
            protocol_type=group.protocol_type,
            group_state=group.state,
            group_type=group.kind.lower(),
        )
        for group in (*call.context.groups.list(), *_subscriptions(call))
        if not group.name.startswith(OWN_PREFIX)
        and (not states or group.state.lower() in states)
        and (not kinds or group.kind.lower() in kinds)
    )
    return ListGroupsResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.none, groups=groups)


def _subscriptions(call: Call) -> list[Listed]:
    """Subscriptions of the Pulsar door, as classic groups of the protocol `pulsar`: Kafka has no kind for them."""
    groups = call.context.groups
    return [
        subscription_group(name, consumers)._replace(kind=ClassicGroup.kind)
        for name, consumers in sorted(call.context.broker.subscriptions.groups().items())
        if not groups.exists(name)
    ]


API = Api(16, 0, 5, handle)
