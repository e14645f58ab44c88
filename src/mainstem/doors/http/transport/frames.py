"""Messages to watchers as JSON, the same for event streams and WebSockets."""

from __future__ import annotations

import msgspec

from mainstem.broker.namespaces import split
from mainstem.broker.watch import WatchPage
from mainstem.doors.http.routes.rendering import render
from mainstem.errors import InvariantBroken

_encode = msgspec.json.Encoder().encode

TOO_OLD = "from_seq_too_old"  # the reason of a gap from before the client's first read


def records_data(
    watch_page: WatchPage,
    *,
    tags: bool,
    meta: bool,
    data: bool,
    trace: bool,
    headers: bool = False,
    plain: bool = False,
) -> bytes:
    """`plain`: for a client that is bound to the namespace of the topic."""
    page = watch_page.page
    return b'{"topic":%b,%b"from_seq":%d,"head_seq":%d,"records":[%b],"to_seq":%d}' % (
        _encode(shown(watch_page.topic, plain=plain)),
        _partition(watch_page),
        watch_page.from_seq,
        page.head_seq,
        render(
            page.chosen,
            tags=tags,
            meta=meta,
            data=data,
            trace=trace,
            headers=headers,
            partition=-1 if watch_page.partition is None else watch_page.partition,
        ),
        page.next_from_seq,
    )


def shown(topic: str, *, plain: bool) -> str:
    """The name of a topic as the watcher knows it."""
    return split(topic)[1] if plain else topic


def tombstone_data(watch_page: WatchPage, *, first: bool, plain: bool = False) -> bytes:
    """`first`: this connection has not read from the topic before."""
    gap = watch_page.page.tombstone
    if gap is None:
        raise InvariantBroken("a tombstone frame needs a tombstone")
    return b'{"topic":%b,%b"reason":%b,"gap_from":%d,"gap_to":%d,"earliest_seq":%d,"head_seq":%d}' % (
        _encode(shown(watch_page.topic, plain=plain)),
        _partition(watch_page),
        _encode(TOO_OLD if first else gap.reason),
        gap.gap_from,
        gap.gap_to,
        gap.earliest_seq,
        gap.head_seq,
    )


def caught_up_data(watch_page: WatchPage, *, plain: bool = False) -> bytes:
    return b'{"topic":%b,%b"head_seq":%d}' % (
        _encode(shown(watch_page.topic, plain=plain)),
        _partition(watch_page),
        watch_page.page.head_seq,
    )


def deleted_data(topic: str, *, plain: bool = False) -> bytes:
    return b'{"topic":%b,"head_seq":0,"reason":"deleted"}' % _encode(shown(topic, plain=plain))


def _partition(watch_page: WatchPage) -> bytes:
    return b"" if watch_page.partition is None else b'"$partition":%d,' % watch_page.partition
