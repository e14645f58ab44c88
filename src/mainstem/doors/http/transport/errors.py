"""Errors on the wire: one table from Mainstem's errors to status and code, and one body format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from mainstem import errors
from mainstem.api.base import ErrorBody, ErrorResponse
from mainstem.doors.http.transport.responses import JSON, Header, Response

RETRY_SOON: Header = (b"retry-after", b"1")


class Refusal(Exception):
    """A request that the door itself refuses, with its response."""

    def __init__(
        self, status: int, code: str, message: str, detail: object = None, headers: tuple[Header, ...] = ()
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = headers

    def response(self) -> Response:
        return error_response(self.status, self.code, str(self), self.detail, self.headers)


def invalid(message: str, detail: object = None) -> Refusal:
    """The request is invalid."""
    return Refusal(400, "invalid_request", message, detail)


def unauthorized(*, given: bool) -> Refusal:
    """The request has no credentials, or none that are known. `given`: it has some."""
    return Refusal(
        401,
        "unauthorized",
        "the server does not accept this key, token or password"
        if given
        else "this server needs a key: send it as Authorization: Bearer <key>, or a user and its password as Basic",
        headers=((b"www-authenticate", b'Bearer, Basic realm="mainstem"'),),
    )


def throttled(limit: str, bound: int, message: str) -> Refusal:
    return Refusal(429, "throttled", message, {"limit": limit, "max": bound}, (RETRY_SOON,))


class _Row:
    """The response to one kind of error."""

    def __init__(
        self, status: int, code: str, detail: Callable[[Any], object] | None = None, *headers: Header
    ) -> None:
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = headers


def _topic(error: Any) -> object:
    return {"topic": error.topic}


_INTERNAL = _Row(500, "internal")

# The closest base class of an error in this table decides.
WIRE: dict[type[BaseException], _Row] = {
    errors.InvalidInput: _Row(400, "invalid_request"),
    errors.InvalidRecordTime: _Row(400, "invalid_record"),
    errors.TooLarge: _Row(400, "record_too_large"),
    errors.TopicNotFound: _Row(404, "topic_not_found", _topic),
    errors.PartitionNotFound: _Row(
        404, "topic_not_found", lambda error: {"topic": error.topic, "partition": error.partition}
    ),
    errors.GroupNotFound: _Row(404, "group_not_found", lambda error: {"group": error.group}),
    errors.RouterNotFound: _Row(404, "router_not_found", lambda error: {"router": error.router}),
    errors.NamespaceNotFound: _Row(404, "namespace_not_found", lambda error: {"namespace": error.namespace}),
    errors.NamespaceExists: _Row(409, "namespace_exists", lambda error: {"namespace": error.namespace}),
    errors.NamespaceInUse: _Row(409, "namespace_not_empty", lambda error: {"namespace": error.namespace}),
    errors.NotFound: _Row(404, "not_found"),
    errors.Unauthorized: _Row(401, "unauthorized"),
    errors.Forbidden: _Row(403, "forbidden"),
    errors.GroupNotEmpty: _Row(409, "group_not_empty", lambda error: {"group": error.group}),
    errors.UnknownMember: _Row(409, "unknown_member"),
    errors.FencedMemberEpoch: _Row(409, "fenced_member"),
    errors.StaleMemberEpoch: _Row(409, "stale_member_epoch"),
    errors.GroupRefused: _Row(409, "group_refused"),
    errors.TopicIncompatible: _Row(409, "topic_exists_incompatible", lambda error: error.detail),
    errors.TopicExists: _Row(409, "topic_exists_incompatible", _topic),
    errors.TableExists: _Row(409, "table_exists", lambda error: {"table": f"{error.namespace}.{error.name}"}),
    errors.TableIncompatible: _Row(409, "table_incompatible"),
    errors.TableChanged: _Row(409, "table_changed"),
    errors.TopicNotEmpty: _Row(
        409, "topic_not_empty", lambda error: {"topic": error.topic, "count": error.count}
    ),
    errors.RouterCycle: _Row(409, "router_cycle", lambda error: {"cycle": error.cycle}),
    errors.NotAQueue: _Row(409, "not_a_queue", _topic),
    errors.TopicFull: _Row(422, "topic_full"),
    errors.TaskHeld: _Row(409, "task_held", lambda error: {"holder": error.holder}),
    errors.StalePlan: _Row(409, "stale_plan", lambda error: {"reason": str(error)}),
    errors.OffsetOutOfRange: _Row(
        416,
        "offset_out_of_range",
        lambda error: {"offset": error.offset, "start": error.start, "end": error.end},
    ),
    errors.RecordsLost: _Row(
        410,
        "records_lost",
        lambda error: {"start": error.start, "end": error.end, "reason": error.reason},
    ),
    errors.BrokerFenced: _Row(503, "not_ready", lambda error: {"replay_progress": 1.0}, RETRY_SOON),
    errors.ProducerFenced: _Row(409, "producer_fenced"),
    errors.InvalidTransaction: _Row(409, "invalid_transaction"),
    errors.OutOfOrderSequence: _Row(409, "out_of_order_sequence"),
    errors.LimitReached: _Row(429, "throttled", None, RETRY_SOON),
    errors.Throttled: _Row(
        429, "throttled", lambda error: {"limit": error.limit, "max": error.bound}, RETRY_SOON
    ),
    errors.Closed: _Row(503, "shutting_down", None, RETRY_SOON),
    errors.PackageMissing: _Row(501, "not_installed"),  # not 503, which clients send again
    # doors/http/startup.py answers while the log is replayed, so nothing is missing because of a replay.
    errors.Unavailable: _Row(503, "not_ready", lambda error: {"replay_progress": 1.0}, RETRY_SOON),
}


def answer(error: errors.MainstemError | Refusal) -> Response:
    """The response to a request that failed with this error."""
    if isinstance(error, Refusal):
        return error.response()
    row = _row(error)
    body = ErrorResponse(error_body(error))
    return Response(row.status, msgspec.json.encode(body), (JSON, *row.headers))


def error_body(error: Exception) -> ErrorBody:
    """The error of one item of a request that has several."""
    row = _row(error)
    detail = row.detail(error) if row.detail else None
    return ErrorBody(row.code, str(error) or type(error).__name__, detail)


def _row(error: Exception) -> _Row:
    found = (WIRE[kind] for kind in type(error).__mro__ if kind in WIRE)
    return next(found, _INTERNAL)


def error_response(
    status: int, code: str, message: str, detail: object = None, headers: tuple[Header, ...] = ()
) -> Response:
    body = ErrorResponse(ErrorBody(code, message, detail))
    return Response(status, msgspec.json.encode(body), (JSON, *headers))
