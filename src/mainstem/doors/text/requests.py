"""Parse requests. Every invalid request becomes a `RequestRefused` with its exact response."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from mainstem import limits

# Unicode's White_Space. Python's own rstrip also eats U+001C to U+001F, which are data here.
_TRIMMED = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)


@dataclass(frozen=True, slots=True)
class RegisterRequest:
    topic: str


@dataclass(frozen=True, slots=True)
class PutRequest:
    topic: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class GetRequest:
    topic: str


@dataclass(frozen=True, slots=True)
class StateRequest:
    topic: str


@dataclass(frozen=True, slots=True)
class MetricsRequest:
    pass


@dataclass(frozen=True, slots=True)
class AuthRequest:
    secret: str  # of an API key, or a user's password
    user: str = ""


@dataclass(frozen=True, slots=True)
class RequestRefused:
    answer: bytes
    closes: bool = False  # the rest of the connection cannot be parsed


Request = (
    RegisterRequest | PutRequest | GetRequest | StateRequest | MetricsRequest | AuthRequest | RequestRefused
)

INVALID_LENGTH = RequestRefused(b"ERR invalid frame length", closes=True)
_INVALID_UTF8 = RequestRefused(b"ERR invalid utf-8")
_UNKNOWN = RequestRefused(b"ERR unknown command")
_TOPIC_VERBS: dict[str, type[RegisterRequest] | type[GetRequest] | type[StateRequest]] = {
    "REGISTER": RegisterRequest,
    "GET": GetRequest,
    "STATE": StateRequest,
}


def parse(body: bytes) -> Request:
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        return _INVALID_UTF8
    verb, *rest = text.rstrip(_TRIMMED).split(" ", 2)
    if verb == "PUT":
        return _put(rest)
    if verb == "METRICS":
        return MetricsRequest()
    if verb == "AUTH":
        return _auth(rest)
    asks = _TOPIC_VERBS.get(verb)
    if asks is None:
        return _UNKNOWN
    return asks(rest[0]) if rest and rest[0] else _needs(verb, "topic")


def _put(rest: list[str]) -> PutRequest | RequestRefused:
    if not rest or not rest[0]:
        return _needs("PUT", "topic")
    if len(rest) < 2:
        return _needs("PUT", "payload")
    return PutRequest(rest[0], rest[1].encode("utf-8"))


def _auth(rest: list[str]) -> AuthRequest | RequestRefused:
    if not rest or not rest[0]:
        return _needs("AUTH", "key")
    return AuthRequest(rest[0]) if len(rest) == 1 else AuthRequest(rest[1], rest[0])


def _needs(verb: str, what: str) -> RequestRefused:
    return RequestRefused(f"ERR {verb} requires a {what}".encode())


def next_run(waiting: deque[Request]) -> list[Request]:
    """Take from the front the requests that can be served together: PUTs, GETs of one topic, or one other request.

    Serving runs has the same result as serving every request in turn."""
    first = waiting.popleft()
    run = [first]
    if isinstance(first, PutRequest):
        while waiting and isinstance(waiting[0], PutRequest):
            run.append(waiting.popleft())
    elif isinstance(first, GetRequest):
        while waiting and waiting[0] == first and len(run) < limits.TEXT_TAKES_PER_RUN_MAX:
            run.append(waiting.popleft())
    return run
