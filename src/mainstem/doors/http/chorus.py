"""Event streams of one topic that show the same of its records: they are told in the same bytes, all at once.

When a thousand connections had their turn, nothing of the first is left in the processor's caches. What a delivery
costs beside the kernel's part then depends on how many objects are looked at for it: here they are three.
"""

from __future__ import annotations

import base64
from typing import Any, NamedTuple

import msgspec

from mainstem.broker.watch import News, Place
from mainstem.doors.http import sse
from mainstem.doors.http.broadcast import Broadcast
from mainstem.doors.http.frames import records_data
from mainstem.doors.http.outlet import Outlet, chunked
from mainstem.ports.clock import Clock

_encode = msgspec.json.Encoder().encode


class Form(NamedTuple):
    """What is shown of a record."""

    tags: bool
    meta: bool
    data: bool
    trace: bool


class _Words(NamedTuple):
    """A page as everyone is told of it who watches its topic alone."""

    frame: bytes
    chunk: bytes  # the frame as HTTP/1.1 carries it
    said_at: float


class Chorus:
    def __init__(self, form: Form, clock: Clock, broadcast: Broadcast) -> None:
        self._form = form
        self._clock = clock
        self._broadcast = broadcast

    def tell(self, places: list[Place], news: News) -> tuple[list[Place], list[Place]]:
        """Give those the page who need to be told of nothing else. Returns them, and the others."""
        if not news.plain:
            return [], places
        told: list[Place] = []
        others: list[Place] = []
        outlets: list[Outlet] = []
        descriptors: list[int] = []
        frame, chunk, said_at = self._words(news)
        size, behind = len(frame), not news.caught_up
        for place in places:
            outlet: Any = place.outlet  # an Outlet, as event streams have
            if not (place.live and outlet.ready and (place.tailing or behind)):
                others.append(place)
                continue
            told.append(place)
            outlet.spoke_at = said_at
            descriptor = outlet.descriptor()
            if descriptor < 0:
                outlet.push_chunk(frame, chunk)
            else:
                outlet.sent_bytes += size
                outlets.append(outlet)
                descriptors.append(descriptor)
        self._broadcast.send(outlets, descriptors, chunk)
        return told, others

    def _words(self, news: News) -> _Words:
        words: _Words | None = news.rendered.get(self)
        if words is None:
            frame = b"id: %b\n%b" % (event_id({news.topic: news.page.next_from_seq}), self.record_frame(news))
            words = news.rendered[self] = _Words(frame, chunked(frame), self._clock.monotonic())
        return words

    def record_frame(self, news: News) -> bytes:
        """The frame without its id, made once for all who want the same."""
        frame: bytes | None = news.rendered.get(self._form)
        if frame is None:
            data = records_data(news, **self._form._asdict())
            frame = news.rendered[self._form] = sse.event(b"record", data)
        return frame


def event_id(cursors: dict[str, int]) -> bytes:
    """What a client gives back to go on from there."""
    return base64.urlsafe_b64encode(_encode(cursors)).rstrip(b"=")
