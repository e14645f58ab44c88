"""Errors of responses: one table from the HTTP door's codes to Mainstem's errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from mainstem import errors
from mainstem.api.base import ErrorBody, ErrorEvent, ErrorResponse
from mainstem.errors import MainstemError

_TEXT_SHOWN = 200


_body = msgspec.json.Decoder(ErrorResponse)
_event = msgspec.json.Decoder(ErrorEvent)


class _Fault:
    """An error as the server describes it."""

    def __init__(self, code: str, message: str, detail: Any) -> None:
        self.code = code
        self.message = message
        self.detail = detail

    def named(self, name: str) -> str:
        """A text field of the detail, empty if it is absent."""
        found = self.detail.get(name) if isinstance(self.detail, dict) else None
        return found if isinstance(found, str) else ""

    def number(self, name: str) -> int:
        found = self.detail.get(name) if isinstance(self.detail, dict) else None
        return found if isinstance(found, int) else 0


def _incompatible(fault: _Fault) -> MainstemError:
    detail = fault.detail if isinstance(fault.detail, dict) else {}
    if list(detail) == ["topic"]:
        return errors.TopicExists(fault.named("topic"))
    return errors.TopicIncompatible(fault.message, **{str(key): str(value) for key, value in detail.items()})


def _topic_missing(fault: _Fault) -> MainstemError:
    partition = fault.detail.get("partition") if isinstance(fault.detail, dict) else None
    if partition is not None or not fault.named("topic"):
        return errors.NotFound(fault.message)
    return errors.TopicNotFound(fault.named("topic"))


def _router_cycle(fault: _Fault) -> MainstemError:
    cycle = fault.detail.get("cycle") if isinstance(fault.detail, dict) else None
    return errors.RouterCycle([str(name) for name in cycle] if isinstance(cycle, list) else [])


def _plain(kind: type[MainstemError]) -> Callable[[_Fault], MainstemError]:
    return lambda fault: kind(fault.message)


CODES: dict[str, Callable[[_Fault], MainstemError]] = {
    "invalid_request": _plain(errors.InvalidInput),
    "batch_too_large": _plain(errors.TooLarge),
    "record_too_large": _plain(errors.TooLarge),
    "payload_too_large": _plain(errors.TooLarge),
    "unauthorized": _plain(errors.Unauthorized),
    "forbidden": _plain(errors.Forbidden),
    "topic_not_found": _topic_missing,
    "group_not_found": lambda fault: errors.GroupNotFound(fault.named("group")),
    "router_not_found": lambda fault: errors.RouterNotFound(fault.named("router")),
    "namespace_not_found": _plain(errors.NotFound),
    "not_found": _plain(errors.NotFound),
    "topic_exists_incompatible": _incompatible,
    "topic_not_empty": lambda fault: errors.TopicNotEmpty(fault.named("topic"), fault.number("count")),
    "not_a_queue": lambda fault: errors.NotAQueue(fault.named("topic")),
    "group_not_empty": lambda fault: errors.GroupNotEmpty(fault.named("group")),
    "unknown_member": lambda fault: errors.MembershipLost(fault.message),
    "fenced_member": lambda fault: errors.MembershipLost(fault.message),
    "stale_member_epoch": _plain(errors.StaleMemberEpoch),
    "group_refused": _plain(errors.GroupRefused),
    "router_cycle": _router_cycle,
    "offset_out_of_range": lambda fault: errors.OffsetOutOfRange(
        fault.number("offset"), fault.number("start"), fault.number("end")
    ),
    "records_lost": lambda fault: errors.RecordsLost(
        fault.number("start"), fault.number("end"), fault.named("reason")
    ),
    "stale_plan": _plain(errors.StalePlan),
    "table_changed": _plain(errors.TableChanged),
    "table_incompatible": _plain(errors.TableIncompatible),
    "table_exists": lambda fault: errors.TableExists(*fault.named("table").partition(".")[::2]),
    "topic_full": _plain(errors.TopicFull),
    "producer_fenced": _plain(errors.ProducerFenced),
    "invalid_transaction": _plain(errors.InvalidTransaction),
    "out_of_order_sequence": _plain(errors.OutOfOrderSequence),
    "throttled": lambda fault: errors.Throttled(fault.named("limit"), fault.number("max"), fault.message),
    "not_installed": _plain(errors.PackageMissing),
    "not_ready": _plain(errors.Unavailable),
    "shutting_down": _plain(errors.Unavailable),
    "server_shutting_down": _plain(errors.Unavailable),
}


def failure(status: int, body: bytes) -> MainstemError:
    """The error for a response other than 2xx."""
    try:
        error = _body.decode(body).error
    except msgspec.DecodeError:
        text = body[:_TEXT_SHOWN].decode("utf-8", "replace").strip()
        if status in (429, 502, 503, 504):
            return errors.Unavailable(f"status {status}: {text or 'no details'}")
        return errors.ServerFault(f"status {status}, not from a Mainstem server: {text or 'no text'}")
    return item_failure(error)


def item_failure(error: ErrorBody) -> MainstemError:
    """The error of one item of a request that had several."""
    return _error_of(_Fault(error.code, error.message, error.detail))


def event_failure(data: bytes) -> MainstemError:
    """The error that an event stream ends with."""
    try:
        event = _event.decode(data)
    except msgspec.DecodeError:
        return errors.ServerFault("the event stream ended with an error that cannot be read")
    return _error_of(_Fault(event.code, event.message, event.detail))


def _error_of(fault: _Fault) -> MainstemError:
    known = CODES.get(fault.code)
    return known(fault) if known is not None else errors.ServerFault(f"{fault.message} ({fault.code})")
