"""What a frame asks for. Every way a request can be wrong becomes a `Refused` with the exact answer."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from mainstem import limits

# Unicode's White_Space. Python's own rstrip also eats U+001C to U+001F, which are data here.
_TRIMMED = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)


@dataclass(frozen=True, slots=True)
class Register:
    topic: str


@dataclass(frozen=True, slots=True)
class Put:
    topic: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class Get:
    topic: str


@dataclass(frozen=True, slots=True)
class State:
    topic: str


@dataclass(frozen=True, slots=True)
class Metrics:
    pass


@dataclass(frozen=True, slots=True)
class Refused:
    answer: bytes
    closes: bool = False  # nothing after it on the connection can be understood


Request = Register | Put | Get | State | Metrics | Refused

INVALID_LENGTH = Refused(b"ERR invalid frame length", closes=True)
_INVALID_UTF8 = Refused(b"ERR invalid utf-8")
_UNKNOWN = Refused(b"ERR unknown command")
_TOPIC_VERBS: dict[str, type[Register] | type[Get] | type[State]] = {
    "REGISTER": Register,
    "GET": Get,
    "STATE": State,
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
        return Metrics()
    asks = _TOPIC_VERBS.get(verb)
    if asks is None:
        return _UNKNOWN
    return asks(rest[0]) if rest and rest[0] else _needs(verb, "topic")


def _put(rest: list[str]) -> Put | Refused:
    if not rest or not rest[0]:
        return _needs("PUT", "topic")
    if len(rest) < 2:
        return _needs("PUT", "payload")
    return Put(rest[0], rest[1].encode("utf-8"))


def _needs(verb: str, what: str) -> Refused:
    return Refused(f"ERR {verb} requires a {what}".encode())


def next_run(waiting: deque[Request]) -> list[Request]:
    """Take the requests that may be served together from the front: PUTs, GETs of one topic, or one other.

    Serving a run as one and the runs in turn gives what serving every request in turn would give."""
    first = waiting.popleft()
    run = [first]
    if isinstance(first, Put):
        while waiting and isinstance(waiting[0], Put):
            run.append(waiting.popleft())
    elif isinstance(first, Get):
        while waiting and waiting[0] == first and len(run) < limits.TEXT_TAKES_PER_RUN_MAX:
            run.append(waiting.popleft())
    return run
