"""PulsarAdmin: finds the handler of a request, and turns errors into answers."""

from __future__ import annotations

from urllib.parse import unquote

import msgspec

from mainstem.broker.broker import Broker
from mainstem.doors.http.transport.requests import HttpRequest
from mainstem.doors.http.transport.responses import Response
from mainstem.doors.pulsar.admin.call import AdminCall, AdminRefusal, ServedElsewhere, answer, found_elsewhere
from mainstem.doors.pulsar.admin.routes import find_route
from mainstem.doors.pulsar.caller import PulsarCaller
from mainstem.doors.pulsar.lookup import Lookup
from mainstem.doors.pulsar.producers import PulsarProducers
from mainstem.errors import (
    AccessDenied,
    IncompatibleSchema,
    InvalidInput,
    InvalidName,
    MainstemError,
    NotFound,
    Rejected,
    SubscriptionBusy,
    Unavailable,
)

_STATUSES: tuple[tuple[type[MainstemError], int], ...] = (
    (AccessDenied, 403),
    (NotFound, 404),
    (SubscriptionBusy, 412),
    (InvalidName, 412),
    (InvalidInput, 400),
    (Rejected, 409),
    (IncompatibleSchema, 409),
    (Unavailable, 503),
)


class PulsarAdmin:
    def __init__(self, broker: Broker, lookup: Lookup, producers: PulsarProducers) -> None:
        self._broker = broker
        self._lookup = lookup
        self._producers = producers

    async def serve(self, request: HttpRequest, method: str, path: str) -> Response:
        """Answer a request below /admin/v2 or /lookup/v2."""
        segments = [unquote(segment) for segment in path.split("/") if segment]
        found = find_route(method, segments)
        if found is None:
            return answer({"reason": f"there is nothing at {method} /{'/'.join(segments)}"}, 404)
        handler, parameters = found
        caller = PulsarCaller(self._broker, request.host, insecure=False, view=request.context.view)
        caller.adopt(request.client.principal)
        call = AdminCall(self._broker, self._lookup, self._producers, caller, request, path)
        try:
            return await handler(call, *parameters)
        except ServedElsewhere as elsewhere:
            return found_elsewhere(elsewhere.url)
        except AdminRefusal as refusal:
            return answer({"reason": str(refusal)}, refusal.status)
        except MainstemError as error:
            status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
            return answer({"reason": str(error)}, status)
        except (msgspec.DecodeError, ValueError) as error:
            return answer({"reason": f"the request is not valid: {error}"}, 400)
