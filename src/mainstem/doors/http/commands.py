"""Commands of the web socket, as clients send them."""

from __future__ import annotations

from functools import cache
from typing import TypeVar

import msgspec

from mainstem import limits
from mainstem.doors.http.topics import U64

T = TypeVar("T")


class CommandHead(msgspec.Struct, frozen=True):
    """What every command has."""

    op: str
    request_id: msgspec.Raw = msgspec.Raw()  # any JSON; goes back as it came


class StartPosition(msgspec.Struct, frozen=True):
    """Where to begin in one topic."""

    from_seq: U64 = 0
    tail: bool = False
    partition: U64 = 0


class Subscribe(msgspec.Struct, frozen=True):
    topic: str | None = None
    topics: list[str] | dict[str, StartPosition] | None = None
    from_seq: U64 = 0
    tail: bool = False
    partition: U64 = 0
    node: str | list[str] | None = None
    limit: U64 = limits.WATCH_RECORDS_DEFAULT
    max_batch_bytes: U64 = limits.WATCH_BYTES_DEFAULT
    include_meta: bool = True
    include_tags: bool = False
    include_data: bool = True
    include_trace: bool = False
    lenient: bool = False


class Unsubscribe(msgspec.Struct, frozen=True):
    topic: str | None = None
    topics: list[str] | dict[str, msgspec.Raw] | None = None


class Publish(msgspec.Struct, frozen=True):
    """The records and the rest are read as those of a POST are."""

    topic: str
    config: msgspec.Raw = msgspec.Raw()
    return_seqs: bool = True
    partition: U64 = 0

    @property
    def configures(self) -> bool:
        return bytes(self.config) not in (b"", b"null")


_head = msgspec.json.Decoder(CommandHead)
_any = msgspec.json.Decoder(msgspec.Raw)


def decode_head(body: bytes) -> CommandHead:
    """Raises ValidationError for JSON that is no command, DecodeError for what is no JSON."""
    try:
        return _head.decode(body)
    except msgspec.ValidationError:
        _any.decode(body)  # it may be wrong behind the place that does not fit
        raise


@cache
def decoder_of(kind: type[T]) -> msgspec.json.Decoder[T]:
    return msgspec.json.Decoder(kind)


def beginnings(command: Subscribe) -> dict[str, StartPosition]:
    """Every topic named, one way or the other, and where to begin in it."""
    default = StartPosition(command.from_seq, command.tail, command.partition)
    found: dict[str, StartPosition] = {}
    if isinstance(command.topics, dict):
        found.update(command.topics)
    else:
        found.update((name, default) for name in command.topics or ())
    if command.topic is not None:
        found[command.topic] = default
    return found


def named_topics(command: Unsubscribe) -> list[str] | None:
    """The topics named; None if none are, which means all."""
    if command.topic is None and command.topics is None:
        return None
    return [*(command.topics or ()), *([command.topic] if command.topic is not None else [])]
