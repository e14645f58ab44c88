"""FindCoordinator: which broker coordinates a group or a transaction."""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v6.response import Coordinator, FindCoordinatorResponse
from kio.schema.types import BrokerId
from kio.static.primitive import i8, i32

from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE
from mainstem.doors.kafka.transport.versions import bridge

_FIRST, _LAST = 0, 6
_FIRST_WITH_SEVERAL_KEYS = 4
_KINDS = {0: "group", 1: "transaction", 2: "share"}


async def handle(call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    kind = _KINDS.get(request.key_type)
    coordinators = tuple(_coordinator(call, kind, key) for key in request.coordinator_keys)
    return FindCoordinatorResponse(throttle_time=NO_THROTTLE, coordinators=coordinators)


def _coordinator(call: Call, kind: str | None, key: str) -> Coordinator:
    if kind is None:
        return Coordinator(
            key=key,
            node_id=BrokerId(-1),
            host="",
            port=i32(-1),
            error_code=ErrorCode.invalid_request,
            error_message="there are coordinators of groups and of transactions",
        )
    peer = call.context.peers.coordinator(kind, key)
    return Coordinator(
        key=key,
        node_id=BrokerId(peer.node_id),
        host=peer.host,
        port=i32(peer.port),
        error_code=ErrorCode.none,
        error_message=None,
    )


def _bridge_single_key(version: int) -> None:
    """Versions that ask for one coordinator, and get it outside a list."""
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

API = Api(10, _FIRST, _LAST, handle, fresh=True)
