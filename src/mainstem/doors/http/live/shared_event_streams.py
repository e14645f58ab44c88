"""Event streams of one topic that show records in the same form get the same bytes, in one pass.

With a thousand connections, each delivery finds the processor's caches cold. Its cost beside the kernel's work then
depends on the number of objects it touches: here three.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import msgspec

from mainstem.broker.cluster.clock import Clock
from mainstem.broker.rates import Rates
from mainstem.broker.watch import WatchPage, WatchPosition
from mainstem.broker.watch_sessions import CursorKey
from mainstem.doors.http.live import sse
from mainstem.doors.http.live.broadcast import Broadcast
from mainstem.doors.http.transport.frames import records_data
from mainstem.doors.http.transport.send_buffer import SendBuffer, chunked

_encode = msgspec.json.Encoder().encode


class RecordFormat(NamedTuple):
    """The form in which a stream shows records."""

    tags: bool
    meta: bool
    data: bool
    trace: bool
    headers: bool
    plain: bool  # topics by their plain names


class _RenderedPage(NamedTuple):
    """A page of records, encoded for the streams that watch only its topic."""

    frame: bytes
    chunk: bytes  # the frame with HTTP/1.1 chunk framing
    said_at: float


class SharedEventStream:
    def __init__(self, form: RecordFormat, clock: Clock, broadcast: Broadcast, rates: Rates) -> None:
        self._rates = rates
        self._form = form
        self._clock = clock
        self._broadcast = broadcast

    def tell(
        self, places: list[WatchPosition], watch_page: WatchPage
    ) -> tuple[list[WatchPosition], list[WatchPosition]]:
        """Send the page to the streams that need nothing else. Returns them, and the others."""
        if not watch_page.plain:
            return [], places
        told: list[WatchPosition] = []
        others: list[WatchPosition] = []
        if self._rates.active:
            places, others = self._free_and_limited(places)
        outlets: list[SendBuffer] = []
        descriptors: list[int] = []
        frame, chunk, said_at = self._words(watch_page)
        size, behind = len(frame), not watch_page.caught_up
        for place in places:
            send_buffer: Any = place.send_buffer  # an Outlet, as event streams have
            if not (place.live and send_buffer.ready and (place.tailing or behind)):
                others.append(place)
                continue
            told.append(place)
            send_buffer.spoke_at = said_at
            descriptor = send_buffer.descriptor()
            if descriptor < 0:
                send_buffer.push_chunk(frame, chunk)
            else:
                send_buffer.sent_bytes += size
                outlets.append(send_buffer)
                descriptors.append(descriptor)
        self._broadcast.send(outlets, descriptors, chunk)
        return told, others

    def _free_and_limited(
        self, places: list[WatchPosition]
    ) -> tuple[list[WatchPosition], list[WatchPosition]]:
        """The streams without a rate limit, and the others, which count what they get."""
        free: list[WatchPosition] = []
        limited: list[WatchPosition] = []
        for place in places:
            stream: Any = place.watcher  # a WatchStream: only these share frames
            (free if stream.limiter(place) is None else limited).append(place)
        return free, limited

    def _words(self, watch_page: WatchPage) -> _RenderedPage:
        words: _RenderedPage | None = watch_page.rendered.get(self)
        if words is None:
            frame = b"id: %b\n%b" % (
                event_id({(watch_page.topic, watch_page.partition or 0): watch_page.page.next_from_seq}),
                self.record_frame(watch_page),
            )
            words = watch_page.rendered[self] = _RenderedPage(frame, chunked(frame), self._clock.monotonic())
        return words

    def record_frame(self, watch_page: WatchPage) -> bytes:
        """The frame without its id, built once for all streams of the same form."""
        frame: bytes | None = watch_page.rendered.get(self._form)
        if frame is None:
            data = records_data(watch_page, **self._form._asdict())
            frame = watch_page.rendered[self._form] = sse.event(b"record", data)
        return frame


def event_id(cursors: Mapping[CursorKey, int], whole: Collection[str] = ()) -> bytes:
    """The id from which a client resumes: topic → cursor, or → partition → cursor for topics in `whole`."""
    named: dict[str, int | dict[str, int]] = {}
    for (topic, partition), cursor in cursors.items():
        if topic in whole:
            inner = named.setdefault(topic, {})
            if isinstance(inner, dict):
                inner[str(partition)] = cursor
        else:
            named[topic] = cursor
    return base64.urlsafe_b64encode(_encode(named)).rstrip(b"=")
