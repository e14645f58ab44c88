"""One connection: requests in, responses out in the order of the requests, with bounds on both.

All connections receive into one shared buffer, which is empty again after each read event: requests are served from
it in place, and the rest of an incomplete request is copied out. An incomplete request gets a buffer of its own size,
which receives the rest.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from mainstem import events, limits
from mainstem.broker.access.certificates import by_certificate
from mainstem.broker.access.principal import Principal
from mainstem.broker.streams import LONE_QUIET_S
from mainstem.doors.budget import Budget, holder_of
from mainstem.doors.kafka.transport.api import Call, Part, Reply, RequestMatcher
from mainstem.doors.kafka.transport.metrics import KafkaMetrics
from mainstem.doors.kafka.transport.receive_buffer import ReceiveBuffer, fresh
from mainstem.doors.kafka.transport.wire import INT32
from mainstem.doors.open_connections import OpenConnections
from mainstem.errors import MalformedRequest, invariant

KAFKA_BYTES_IN_FLIGHT_TOTAL_MAX = 256 * limits.MIB  # the same for all connections
# a client that sends this much at once, or in a request, gets its own memory …
KAFKA_BULK_BYTES = 32 * limits.KIB
KAFKA_WRITE_BUFFER_BYTES = 1 * limits.MIB  # responses that a client has not read; above it, reading stops
KAFKA_UNAUTHENTICATED_REQUEST_BYTES_MAX = 64 * limits.KIB  # before a client has authenticated

KAFKA_COUNTED_FRAME_BYTES_MIN = 4 * limits.KIB  # an incomplete request of this size counts as received …
# … and one of this size is read once there is room for all of it
KAFKA_RESERVED_FRAME_BYTES_MIN = 64 * limits.KIB
KAFKA_RECEIVE_S = 30.0  # an incomplete request without new bytes is dropped after this …
KAFKA_RECEIVE_CROWDED_S = 2.0  # … and after this while others wait for room
KAFKA_RECEIVE_BYTES_PER_S_MIN = 64 * limits.KIB  # the average rate of a request that takes longer
KAFKA_READ_BYTES_MAX = 64 * limits.KIB  # of a client that sends small requests, in one read …
KAFKA_READ_BYTES_MIN = 4 * limits.KIB  # … and while many of them wait for their turns
KAFKA_READ_BYTES_SHARED = 4 * limits.MIB  # of all of them, about

if TYPE_CHECKING:
    from mainstem.doors.kafka.security.guard import AuthenticationContext
    from mainstem.doors.kafka.transport.dispatch import ApiRoute, Dispatch

_log = events.named("kafka")
_LENGTH_BYTES = 4
_KEY_BYTES = 2
_SWEEPS_PER_IDLE_TIME = 4
_STALL_SWEEP_S = 1.0
_JOINED_BYTES_MAX = 16 * limits.KIB  # smaller parts of a response are joined: cheaper than one iovec each


@dataclass(frozen=True, slots=True)
class KafkaLimits:
    """Bounds on the memory that clients can occupy."""

    connections: int = limits.KAFKA_CONNECTIONS_MAX
    request_bytes: int = limits.KAFKA_REQUEST_BYTES_MAX
    in_flight_requests: int = limits.KAFKA_REQUESTS_IN_FLIGHT_MAX  # of one connection
    in_flight_bytes: int = limits.KAFKA_BYTES_IN_FLIGHT_MAX  # of one connection
    in_flight_bytes_total: int = KAFKA_BYTES_IN_FLIGHT_TOTAL_MAX
    idle_s: float = limits.KAFKA_IDLE_S


class KafkaConnections(OpenConnections["KafkaConnection"]):
    """The connections of one door, the memory they share, and the bounds on what they hold."""

    def __init__(self, bounds: KafkaLimits, metrics: KafkaMetrics, budget: Budget | None = None) -> None:
        super().__init__()
        self.budget = budget or Budget()
        self._seats = self.budget.door(bounds.connections)
        self.receiving: set[KafkaConnection] = set()  # those with an incomplete request in its own buffer
        self._idle_s = bounds.idle_s
        self.request_bytes_max = bounds.request_bytes
        self.in_flight_requests_max = bounds.in_flight_requests
        self.in_flight_bytes_max = bounds.in_flight_bytes
        self._in_flight_total_max = bounds.in_flight_bytes_total
        self._in_flight_total = 0
        self._crowded_out: set[KafkaConnection] = set()
        self.metrics = metrics
        self.scratch = memoryview(bytearray(limits.KAFKA_RECEIVE_BUFFER_BYTES))
        self.landing = ReceiveBuffer()
        self._loop = asyncio.get_running_loop()
        self._sweep = self._loop.call_later(self._idle_s / _SWEEPS_PER_IDLE_TIME, self._drop_idle)
        self._stall_sweep = self._loop.call_later(_STALL_SWEEP_S, self._drop_stalled)

    def admit(self, connection: KafkaConnection) -> bool:
        """False: the door is full."""
        if not self._seats.admit(connection.host, connection):
            self.metrics.connections_refused += 1
            return False
        self.metrics.connections_accepted += 1
        self._held.add(connection)
        return True

    def hold(self, size: int) -> None:
        """A request was received."""
        self._in_flight_total += size

    def release(self, size: int) -> None:
        """The request was responded to, or its client disconnected."""
        self._in_flight_total -= size
        if self._crowded_out and self._in_flight_total < self._in_flight_total_max:
            waiting, self._crowded_out = self._crowded_out, set()
            for connection in waiting:
                connection.update_reading()

    def over_memory_limit(self, connection: KafkaConnection) -> bool:
        """Whether all connections together hold too much. If so, this one is resumed when they no longer do."""
        if self._in_flight_total < self._in_flight_total_max:
            return False
        self._crowded_out.add(connection)
        return True

    def forget(self, connection: KafkaConnection) -> None:
        self._crowded_out.discard(connection)
        self._seats.leave(connection.host, connection)
        super().forget(connection)

    def traffic(self) -> dict[tuple[str, str, str], tuple[int, int, int]]:
        """Connections, bytes received and bytes sent, by client id, principal and host."""
        found: dict[tuple[str, str, str], tuple[int, int, int]] = {}
        for one in self._held:
            client = one.client_name, one.principal.name, one.host
            number, received, sent = found.get(client, (0, 0, 0))
            found[client] = number + 1, received + one.received_bytes, sent + one.sent_bytes
        return found

    def _drop_idle(self) -> None:
        self._sweep = self._loop.call_later(self._idle_s / _SWEEPS_PER_IDLE_TIME, self._drop_idle)
        self.landing.let_go()
        since = self._loop.time() - self._idle_s
        for connection in list(self._held):
            if connection.idle(since):
                _log.debug("idle connection closed", client=connection.host)
                connection.abort()

    def _drop_stalled(self) -> None:
        """Close connections whose requests do not arrive."""
        self._stall_sweep = self._loop.call_later(_STALL_SWEEP_S, self._drop_stalled)
        now = self._loop.time()
        crowded = self.budget.received.waited_for
        for connection in list(self.receiving):
            if connection.stalled(now, crowded):
                connection.drop("a request did not arrive in time")
                connection.abort()

    async def drain(self, within_s: float) -> int:
        """Finish every connection; abort those left after `within_s`. Returns how many those were."""
        self._sweep.cancel()
        self._stall_sweep.cancel()
        return await super().drain(within_s)


class KafkaConnection(asyncio.BufferedProtocol):
    """`_line` holds the requests in progress, oldest first; `_waiting` complete requests that have not started."""

    def __init__(
        self, dispatch: Dispatch, connections: KafkaConnections, guard: AuthenticationContext
    ) -> None:
        self._dispatch = dispatch
        self._connections = connections
        self._client_activity = dispatch.client_activity
        self._steps = connections.budget.turns
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time
        self.host = ""
        self.group: str | None = None  # the consumer group that the client last named on this connection
        self.principal = guard.anonymous
        self.session = guard.session(self)  # None: the client need not log in
        self._request_bytes_max = (
            connections.request_bytes_max
            if self.session is None
            else min(connections.request_bytes_max, KAFKA_UNAUTHENTICATED_REQUEST_BYTES_MAX)
        )
        self.calls: dict[tuple[int, int], Call] = {}  # by API and version: most requests repeat the last one
        self._alike: tuple[RequestMatcher, ApiRoute] | None = (
            None  # recognises the requests that are likely to follow
        )
        self._client_ids: tuple[bytes, str] = (b"", "")
        self._landing = connections.landing
        self._bulk = False  # the client sends much: receive into the landing buffer
        self._large = False  # its last request was large
        self._buffer = connections.scratch  # the buffer of the current read
        self._stub = b""  # a length of which not all four bytes have arrived
        self._aside: memoryview | None = None  # received ahead, for the next step
        self._aside_landed = False
        self._step_due = self._start_due = False  # waits for its turn
        self._frame: memoryview | None = None  # of the incomplete request
        self._filled = 0
        self._lands = False  # it is in the landing buffer
        self._counted: tuple[str, int] | None = None  # its principal in the budget, and its bytes
        self._room: asyncio.Future[None] | None = None  # it waits until it fits the budget
        self._frame_at = 0.0  # when it began
        self._expected = 0  # size of a request that arrived in pieces: the next ones are likely as large
        self._line: deque[Reply] = deque()
        self._waiting: deque[memoryview] = deque()
        self._held_bytes = 0
        self._alone = False  # a request is in progress that nothing may overtake
        self._single = False  # the same, for others of its kind
        self._writable = True
        self._paused = False
        self._muted: asyncio.TimerHandle | None = None  # the client is over its quota
        self._flushing = False
        self._reading = False  # what is answered meanwhile is sent after it
        self._finishing = False
        self.closed = False
        self.received_bytes = self.sent_bytes = 0
        self.active_at = self.now()

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=KAFKA_WRITE_BUFFER_BYTES)
        self.host = str((transport.get_extra_info("peername") or ("",))[0])
        self.principal = by_certificate(transport.get_extra_info("peercert")) or self.principal
        if not self._connections.admit(self):
            self.closed = True
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._frame is not None:
            return self._frame[self._filled :]
        if self._bulk:
            self._buffer = self._landing.room(self._expected)
        else:
            self._buffer = self._connections.scratch
        if self._large:
            return self._buffer[len(self._stub) :]
        # What is received must be held if it cannot be served in this turn of the loop.
        shared = KAFKA_READ_BYTES_SHARED // (self._steps.waiting + 1)
        return self._buffer[len(self._stub) : min(max(shared, KAFKA_READ_BYTES_MIN), KAFKA_READ_BYTES_MAX)]

    def buffer_updated(self, nbytes: int) -> None:
        self.active_at = now = self.now()
        self.received_bytes += nbytes
        activity = self._client_activity
        if activity.last is not self:
            activity.last, activity.changed_at = self, now
        activity.reading = now - activity.changed_at >= LONE_QUIET_S
        self._reading = True
        try:
            if not self.closed and not self._finishing:
                if self._frame is None:
                    self._receive(nbytes)
                else:
                    self._receive_rest(nbytes)
        except Exception as error:  # noqa: BLE001  # a bug in one request must not take the server, nor hide
            self.fail(error)
        finally:
            activity.reading = False
            if activity.due:
                activity.write()
            self._read()

    def _read(self) -> None:
        """Send what was answered while requests were received."""
        self._reading = False
        if self._flushing:
            self._flush_now()
        elif not self.closed:
            self.update_reading()

    def eof_received(self) -> bool:
        """The client sends no more. Over TLS that comes right behind its last requests, even while reading is paused:
        serve what waits for its turn, since a client that asked for no responses does not send it again."""
        while self._aside is not None:
            self._step()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._connections.forget(self)
        if self._muted is not None:
            self._muted.cancel()
        self._hurry()
        for call in self.calls.values():
            if call.memory is not None:
                call.memory.forget()
        self._connections.release(self._held_bytes)
        self._line.clear()
        self._waiting.clear()
        self._aside = None
        self._forget_frame()
        self._alike = None

    def pause_writing(self) -> None:
        self._writable = False
        self.update_reading()

    def resume_writing(self) -> None:
        self._writable = True
        self.active_at = self.now()
        self._start_waiting()
        self.update_reading()

    def logged_in(self, principal: Principal) -> None:
        """The client has authenticated. State from before belonged to no principal."""
        self.principal = principal
        self.calls.clear()
        self._alike = None
        self._request_bytes_max = self._connections.request_bytes_max

    # Requests

    def _receive(self, nbytes: int) -> None:
        """Take what has arrived."""
        buffer, landed = self._buffer, self._bulk
        self._buffer = self._connections.scratch  # an idle client must not hold a landing buffer
        if self._stub:
            buffer[: len(self._stub)] = self._stub
            nbytes += len(self._stub)
            self._stub = b""
        if landed:
            self._landing.take(nbytes)
        self._bulk = nbytes >= KAFKA_BULK_BYTES
        self._serve(buffer, nbytes, landed)

    def _serve(self, buffer: memoryview, nbytes: int, landed: bool) -> None:
        """Serve the complete requests in a buffer, as many as this turn of the loop has time for; keep the rest."""
        at, share_ends = 0, 0.0
        while nbytes - at >= _LENGTH_BYTES:
            length = self._checked(INT32.unpack_from(buffer, at)[0])
            begin = at + _LENGTH_BYTES
            at = begin + length
            self._large = length >= KAFKA_BULK_BYTES
            if self._large:
                self._bulk = True
            if at < nbytes and not self._large and (run_ends := self._take_run(buffer, begin, nbytes)):
                at = run_ends
            elif at > nbytes:
                if nbytes - begin >= _KEY_BYTES:
                    self._dispatch.check_size(buffer[begin:nbytes], length)
                self._filled = nbytes - begin
                self._expected = length + _LENGTH_BYTES
                if landed and at <= len(buffer) and self._landing.keep(at - nbytes):
                    self._frame = buffer[begin:at]
                    self._lands = True
                else:
                    self._frame = fresh(length)
                    self._frame[: self._filled] = buffer[begin:nbytes]
                if length >= KAFKA_COUNTED_FRAME_BYTES_MIN:
                    self._count_frame(length)
                return
            else:
                self._take(buffer[begin:at], shared=not landed)
            if self.closed:
                return
            if at < nbytes and not self._large:
                share_ends = share_ends or self._steps.share_ends()
                if time.monotonic() >= share_ends:
                    rest = buffer[at:nbytes]
                    self._aside = rest if landed else memoryview(bytes(rest))
                    self._aside_landed = landed
                    return
        self._stub = bytes(buffer[at:nbytes])

    def _step(self) -> None:
        """Serve what was received ahead."""
        self._step_due = False
        aside, self._aside = self._aside, None
        if aside is None or self.closed or self._finishing:
            return
        self._reading = True
        try:
            self._serve(aside, len(aside), self._aside_landed)
        except Exception as error:  # noqa: BLE001  # as above
            self.fail(error)
        finally:
            self._read()

    def _receive_rest(self, nbytes: int) -> None:
        frame = self._frame
        self._filled += nbytes
        if frame is not None and self._filled == len(frame):
            self._forget_frame()
            self._take(frame, shared=False)

    def _count_frame(self, length: int) -> None:
        """Count an incomplete request. A large one is not read before there is room for it."""
        received = self._connections.budget.received
        holder = self._holder
        self._counted = holder, length
        self._frame_at = self.active_at
        self._connections.receiving.add(self)
        if length < KAFKA_RESERVED_FRAME_BYTES_MIN:
            received.take(holder, length)
            return
        self._room = received.ask(holder, length)
        if self._room is not None:
            self._room.add_done_callback(self._found_room)

    def _found_room(self, _: asyncio.Future[None]) -> None:
        self._room = None
        self._frame_at = self.active_at = self.now()
        self.update_reading()

    def stalled(self, now: float, crowded: bool) -> bool:
        """Whether an incomplete request does not arrive. `crowded`: others wait for its room."""
        if self._paused:  # reading is paused by us
            self._frame_at = self.active_at = now
            return False
        patience = KAFKA_RECEIVE_CROWDED_S if crowded else KAFKA_RECEIVE_S
        slow_s = now - self._frame_at - KAFKA_RECEIVE_S
        return now - self.active_at > patience or self._filled < slow_s * KAFKA_RECEIVE_BYTES_PER_S_MIN

    def _forget_frame(self) -> None:
        self._frame = None
        if self._counted is not None:
            self._connections.receiving.discard(self)
            if self._room is not None:
                self._room.remove_done_callback(self._found_room)
                self._room.cancel()
                self._room = None
            else:
                self._connections.budget.received.give(*self._counted)
            self._counted = None
        if self._lands:
            self._lands = False
            self._landing.finished()

    def _checked(self, length: int) -> int:
        if not 0 < length <= self._request_bytes_max:
            raise MalformedRequest(
                f"a request announces {length} bytes: at most {self._request_bytes_max} are taken"
            )
        return length

    def _take(self, frame: memoryview, *, shared: bool) -> None:
        """Serve a request now, or queue it. `shared`: its buffer is reused after the call."""
        self._held_bytes += len(frame)
        self._connections.hold(len(frame))
        if self._alike is not None and not self._waiting and not self._alone:
            alike, route = self._alike
            if alike.serve(self, route, frame):
                return
        route = self._dispatch.route(frame)
        if not self._waiting and self._may_start(route.single):
            self._dispatch.start(self, route, frame)
        else:
            self._waiting.append(memoryview(bytes(frame)) if shared else frame)

    def _take_run(self, buffer: memoryview, begin: int, end: int) -> int:
        """Serve several requests that are alike, the first of which begins at `begin`. Returns where they end; 0: serve
        the first one by itself."""
        if self._alike is None or self._waiting or self._alone:
            return 0
        alike, route = self._alike
        at = begin - _LENGTH_BYTES
        run_ends = alike.serve_run(self, route, buffer, at, end)
        if run_ends == at:
            return 0
        self._held_bytes += run_ends - at
        self._connections.hold(run_ends - at)
        return run_ends

    def update_reading(self) -> None:
        """Pause reading while too much is in progress or received ahead, or while the client does not read its
        responses."""
        if self.closed:
            return
        connections = self._connections
        full = (
            not self._writable
            or self._muted is not None
            or self._room is not None
            or self._held_bytes >= connections.in_flight_bytes_max
            or len(self._line) + len(self._waiting) >= connections.in_flight_requests_max
            or (self._held_bytes > 0 and connections.over_memory_limit(self))
        )
        if self._aside is not None:
            if not full and not self._step_due:
                self._step_due = True
                self._steps.later(self._holder, self._step)
            full = True
        if full == self._paused:
            return
        self._paused = full
        if full:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    @property
    def _holder(self) -> str:
        """Whom the budget counts for."""
        return holder_of(self.principal, self.host)

    async def turn(self) -> None:
        """Wait until a client that keeps the server busy may go on."""
        await self._steps.wait(self._holder)

    def mute(self, ms: int) -> None:
        """Pause reading for this long. Requests already received are served."""
        if self.closed:
            return
        self._connections.metrics.throttled_ms += ms
        ends = self._loop.time() + ms / 1000
        if self._muted is not None:
            ends = max(ends, self._muted.when())
            self._muted.cancel()
        self._muted = self._loop.call_at(ends, self._unmute)
        self.update_reading()

    def _unmute(self) -> None:
        self._muted = None
        self.active_at = self.now()
        self.update_reading()

    def _may_start(self, single: bool) -> bool:
        if self._alone:
            return False
        return not single or (self._writable and not self._single)

    def _start_waiting(self) -> None:
        share_ends = 0.0
        try:
            while self._waiting and not self.closed and not self._start_due:
                frame = self._waiting[0]
                route = self._dispatch.route(frame)
                if not self._may_start(route.single):
                    return
                self._waiting.popleft()
                self._dispatch.start(self, route, frame)
                if self._waiting:
                    share_ends = share_ends or self._steps.share_ends()
                    if time.monotonic() >= share_ends:
                        self._start_due = True
                        self._steps.later(self._holder, self._start_more)
        except Exception as error:  # noqa: BLE001  # as above
            self.fail(error)

    def _start_more(self) -> None:
        self._start_due = False
        self._start_waiting()

    def enqueue(self, request: Reply) -> None:
        """A request starts: its response follows those of the requests before it."""
        self._line.append(request)
        if request.route.alone:
            self._alone = True
        elif request.route.single:
            self._single = True

    def withdraw(self, request: Reply) -> None:
        """The newest request did not start."""
        invariant(self._line[-1] is request, "only the newest request is withdrawn")
        self._line.pop()

    def expect(self, alike: RequestMatcher, route: ApiRoute) -> None:
        """Offer every following request to this matcher first."""
        self._alike = alike, route

    def hold(self) -> None:
        """Start no other request before the response to the newest one."""
        self._alone = True

    def client_id(self, raw: memoryview) -> str:
        """The decoded client id, cached: most clients send the same one with every request. Of a very long one only the
        beginning counts, because every connection keeps it."""
        raw = raw[: limits.KEPT_NAME_CHARS_MAX]
        if raw != self._client_ids[0]:
            self._client_ids = (bytes(raw), str(raw, "utf-8", "replace"))
        return self._client_ids[1]

    @property
    def client_name(self) -> str:
        """The client id of its last request."""
        return self._client_ids[1]

    # Responses

    def answered(self, request: Reply) -> None:
        """A response is ready; it is sent together with others of the same turn of the loop."""
        if request.alone:
            self._alone = False
        if not self._flushing and not self.closed and (self._line[0].answered or self._waiting):
            self._flushing = True
            if not self._reading:
                self._loop.call_soon(self._flush)

    def _flush_now(self) -> None:
        try:
            self._flush()
            self.update_reading()
        except Exception as error:  # noqa: BLE001  # as above
            self.fail(error)

    def _flush(self) -> None:
        self._flushing = False
        if self.closed:
            return
        parts: list[Part] = []
        size = released = 0
        line = self._line
        while line and line[0].answered:
            request = line.popleft()
            released += request.size
            if request.route.single:
                self._single = False
            size += request.write(parts)
        if size > _JOINED_BYTES_MAX:
            self._write(parts)
        elif parts:
            self._transport.write(b"".join(parts))
        self.active_at = self.now()
        self._held_bytes -= released
        self.sent_bytes += size
        self._connections.release(released)
        if self._waiting:
            self._start_waiting()
        if self._paused:
            self.update_reading()
        if self._finishing and not self._line and not self._waiting:
            self.close()

    def _write(self, parts: list[Part]) -> None:
        small: list[Part] = []
        for part in parts:
            if len(part) <= _JOINED_BYTES_MAX:
                small.append(part)
                continue
            if small:
                self._transport.write(b"".join(small))
                small = []
            self._transport.write(part)
        if small:
            self._transport.write(b"".join(small))

    # Tasks and closing

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Continue a request in a task. An unexpected error closes the connection."""
        self._connections.work(self._guarded(work))

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001  # as above
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """A request failed without a response: close the connection, and log why."""
        if isinstance(error, MalformedRequest):
            self.drop(str(error))
        else:
            _log.failure("request failed", error, client=self.host)
            self.drop("it met an internal error")

    def _hurry(self) -> None:
        for request in list(self._line):
            if request.hurry is not None:
                request.hurry()

    def drop(self, reason: str) -> None:
        """Close the connection because of what the client sent."""
        if not self.closed:
            _log.warning("connection dropped", client=self.host, reason=reason)
            self._connections.metrics.connections_dropped += 1
            self.close()

    def close(self) -> None:
        """Close after sending what was written."""
        self.closed = True
        self._transport.close()

    def finish(self) -> None:
        """Stop reading, respond to what was received, then close."""
        self._finishing = True
        self._hurry()
        if not self._line and not self._waiting:
            self.close()

    def abort(self) -> None:
        self.closed = True
        self._transport.abort()

    def unused_since(self) -> float | None:
        busy = self._line or self._waiting or self._aside is not None
        return None if busy else self.active_at

    def idle(self, since: float) -> bool:
        """Nothing was received, answered or read since then."""
        return self.active_at < since and (not self._line or not self._writable)
