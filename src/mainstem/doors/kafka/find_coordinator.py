"""FindCoordinator: which broker looks after a group or a transaction. Here it is always this one."""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v6.response import Coordinator, FindCoordinatorResponse
from kio.schema.types import BrokerId
from kio.static.primitive import i8, i32

from mainstem.doors.kafka.api import Api, Call
from mainstem.doors.kafka.throttle import NO_THROTTLE
from mainstem.doors.kafka.versions import bridge

_FIRST, _LAST = 0, 6
_FIRST_WITH_SEVERAL_KEYS = 4
_KEY_TYPES = (0, 1, 2)  # group, transaction, share


async def handle(call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    known = request.key_type in _KEY_TYPES
    coordinators = tuple(_coordinator(call, key, known) for key in request.coordinator_keys)
    return FindCoordinatorResponse(throttle_time=NO_THROTTLE, coordinators=coordinators)


def _coordinator(call: Call, key: str, known: bool) -> Coordinator:
    context = call.context
    return Coordinator(
        key=key,
        node_id=BrokerId(context.node_id if known else -1),
        host=context.advertised_host if known else "",
        port=i32(context.advertised_port if known else -1),
        error_code=ErrorCode.none if known else ErrorCode.invalid_request,
        error_message=None if known else "there are coordinators of groups and of transactions",
    )


def _bridge_single_key(version: int) -> None:
    """Versions that ask for one coordinator, and get it without a list around it."""
    older = import_module(f"kio.schema.find_coordinator.v{version}.request").FindCoordinatorRequest
    answer = import_module(f"kio.schema.find_coordinator.v{version}.response").FindCoordinatorResponse
    names = [field.name for field in fields(answer) if field.name != "throttle_time"]

    def up(request: Any) -> FindCoordinatorRequest:
        return FindCoordinatorRequest(
            key_type=getattr(request, "key_type", i8(0)), coordinator_keys=(request.key,)
        )

    def down(response: FindCoordinatorResponse) -> Any:
        [only] = response.coordinators
        values = {name: getattr(only, name) for name in names}
        return answer(**values, **({"throttle_time": response.throttle_time} if version else {}))

    bridge(older, FindCoordinatorRequest, up)
    bridge(FindCoordinatorResponse, answer, down)


for _version in range(_FIRST, _FIRST_WITH_SEVERAL_KEYS):
    _bridge_single_key(_version)

API = Api(10, _FIRST, _LAST, handle)
