"""What clients may make the server hold and do: one budget for all doors.

A client that has not authenticated is known by the address of its peer. Each resource is a `Pool` with a total for the
process. A principal may hold as much of it as is left, and no more: one that floods the server gets half of the pool,
the next one half of the rest, so there is always room for others.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Protocol

from mainstem import events, limits
from mainstem.broker.access.principal import ANONYMOUS, Principal
from mainstem.metrics import Metric, one

DESCRIPTORS_MAX = 1 << 20  # open files that a server asks the system for
DESCRIPTORS_RESERVED = 384  # of them for files of the log, so that connections never use up all
CONNECTIONS_PER_FREE_SEAT = 8  # a principal may have this many for each one that is left
CONNECTION_UNUSED_S_MIN = 0.1  # a connection unused for this long may be closed to make room for another
CONNECTIONS_EXAMINED_MAX = 256  # to find such a connection
PRINCIPALS_KEPT = 10_000  # whose rates are known
RECEIVED_BYTES_MAX = (
    256 * limits.MIB
)  # of unfinished requests, and of those behind others of their connection
# Of large appends that are written at once, so that the commit path has room for others.
APPEND_BYTES_MAX = 1 * limits.MIB
REQUESTS_WAITING_MAX = 16 * limits.KIB  # parsed, behind others of their connection
RESPONSE_BYTES_MAX = 256 * limits.MIB  # of large responses that clients have not read
STEP_S = 0.002  # a client that sends requests ahead is served for about this long in one step
STEPS_AHEAD_S = 0.004  # steps of all such clients begin within this time …
STEPS_AHEAD_PAUSE_S = 0.001  # … after which others are served for at least this long
CONTROL_FRAMES_PER_PRINCIPAL_S = 1_000.0
CONTROL_FRAMES_PER_PRINCIPAL_BURST = 5_000.0

_log = events.named("doors")


class Pool:
    """An amount that all principals share."""

    def __init__(self, most: Callable[[], int], *, spare: int = 1) -> None:
        """A principal may hold up to `spare` times what is left."""
        self._most = most
        self._spare = spare
        self._held: dict[str, int] = {}
        self._waiting: dict[str, deque[tuple[int, asyncio.Future[None]]]] = {}
        self.total = 0
        self.refused = 0

    def held(self, principal: str) -> int:
        return self._held.get(principal, 0)

    def fits(self, principal: str, amount: int) -> bool:
        """Whether the principal may take this much more. A request larger than the pool is only granted while the pool
        is empty."""
        most = self._most()
        if not self.total:
            return True
        left = most - self.total
        return amount <= left and self.held(principal) + amount <= self._spare * left

    def over(self, principal: str) -> bool:
        """Whether the principal holds more than its share now."""
        return self.held(principal) > self._spare * (self._most() - self.total)

    def take(self, principal: str, amount: int) -> None:
        """Count it, whether it fits or not."""
        self.total += amount
        self._held[principal] = self._held.get(principal, 0) + amount

    def give(self, principal: str, amount: int) -> None:
        """It is not held any more."""
        self.total -= amount
        left = self._held.get(principal, 0) - amount
        if left > 0:
            self._held[principal] = left
        else:
            self._held.pop(principal, None)
        if self._waiting:
            self._serve_waiting()

    @property
    def waited_for(self) -> bool:
        return bool(self._waiting)

    def ask(self, principal: str, amount: int) -> asyncio.Future[None] | None:
        """Take it now, if it fits. Else returns a future that is done once it is taken, and that may be cancelled.

        Principals are served in turn, each in the order of its requests."""
        if principal not in self._waiting and self.fits(principal, amount):
            self.take(principal, amount)
            return None
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(principal, deque()).append((amount, granted))
        return granted

    async def reserve(self, principal: str, amount: int) -> None:
        """Take it as soon as it fits."""
        granted = self.ask(principal, amount)
        if granted is None:
            return
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self.give(principal, amount)
            raise

    def _serve_waiting(self) -> None:
        for principal in list(self._waiting):
            line = self._waiting[principal]
            while line and (line[0][1].done() or self.fits(principal, line[0][0])):
                amount, granted = line.popleft()
                if not granted.done():
                    self.take(principal, amount)
                    granted.set_result(None)
                    break
            del self._waiting[principal]
            if line:
                self._waiting[principal] = line  # behind the others


class FrameRate:
    """Frames that cost work and move no data: a number of them each second, and a burst at once."""

    __slots__ = ("_at", "_burst", "_left", "_per_s")

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._left = burst
        self._at = time.monotonic()

    def spend(self, frames: int) -> bool:
        """False: there are too many."""
        now = time.monotonic()
        self._left = min(self._burst, self._left + (now - self._at) * self._per_s) - frames
        self._at = now
        return self._left >= 0

    def earn(self, frames: int) -> None:
        """The client may send more, as an answer to what it was sent."""
        self._left += frames


class Turns:
    """Work of clients that sent far ahead: one step in each turn of the event loop, so that others come between.

    Principals are served in turn, the steps of each in order: a principal gains nothing by many connections, and a
    client that sends one request at a time never waits here, also if it shares its address with one that floods."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Callable[[], None]]] = {}  # by principal; the next one first
        self.waiting = 0
        self._scheduled = False
        self._ends = 0.0  # when the steps pause; 0: they begin
        self._share_ends = 0.0  # of this turn of the loop; 0: nobody has used it
        self._stepping = False

    def later(self, principal: str, step: Callable[[], None]) -> None:
        line = self._waiting.get(principal)
        if line is None:
            line = self._waiting[principal] = deque()
        line.append(step)
        self.waiting += 1
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    async def wait(self, principal: str) -> None:
        """For a task that serves such a client: until its next step."""
        reached = asyncio.Event()
        self.later(principal, reached.set)
        await reached.wait()

    def share_ends(self) -> float:
        """Until when a client that sent ahead may be served in this turn of the loop, by the monotonic clock. The
        share is that of all such clients, and those that wait come first."""
        if not self._share_ends:
            mine = self._stepping or not self.waiting
            self._share_ends = time.monotonic() + (STEP_S if mine else 0.0)
            asyncio.get_running_loop().call_soon(self._next_turn)
        return self._share_ends

    def _next_turn(self) -> None:
        self._share_ends = 0.0

    def _run(self) -> None:
        """One step. The next one runs after the tasks that this one started, so that their time counts too."""
        now = time.monotonic()
        if not self._waiting:
            self._scheduled, self._ends = False, 0.0
            return
        loop = asyncio.get_running_loop()
        if not self._ends:
            self._ends = now + STEPS_AHEAD_S
        elif now >= self._ends:
            self._ends = 0.0
            loop.call_later(STEPS_AHEAD_PAUSE_S, self._run)
            return
        self._share_ends, self._stepping = 0.0, True
        try:
            self._next()()
        finally:
            self._stepping = False
            loop.call_soon(self._run)

    def _next(self) -> Callable[[], None]:
        principal = next(iter(self._waiting))
        line = self._waiting.pop(principal)
        step = line.popleft()
        self.waiting -= 1
        if line:
            self._waiting[principal] = line  # behind the others
        return step


class BudgetedConnection(Protocol):
    """A connection that the budget may close to make room for others."""

    def unused_since(self) -> float | None:
        """When it was last used, on the loop's clock; None while it has something under way."""
        ...

    def abort(self) -> None: ...


class Seats:
    """Connections, up to a limit. `parent`: the seats of the process, of which each of these takes one too."""

    def __init__(self, limit: int, parent: Seats | None = None) -> None:
        self.limit = limit
        self._parent = parent
        self._held: dict[
            str, dict[BudgetedConnection, None]
        ] = {}  # by principal; the oldest connection first
        self.taken = 0
        self.evicted = 0
        self.refused = 0

    def admit(self, principal: str, connection: BudgetedConnection) -> bool:
        """Take a seat. If none is left, an unused connection is closed for this one; False: there is none."""
        if not self._has_room(principal) or not (
            self._parent is None or self._parent.admit(principal, connection)
        ):
            self.refused += 1
            if self.refused.bit_count() == 1:  # the 1st, 2nd, 4th, 8th …
                _log.warning("too many connections", limit=self.limit, refused=self.refused)
            return False
        self._held.setdefault(principal, {})[connection] = None
        self.taken += 1
        return True

    def leave(self, principal: str, connection: BudgetedConnection) -> None:
        """Idempotent."""
        if self._parent is not None:
            self._parent.leave(principal, connection)
        held = self._held.get(principal)
        if held is not None and connection in held:
            del held[connection]
            self.taken -= 1
            if not held:
                del self._held[principal]

    def _has_room(self, principal: str) -> bool:
        left = self.limit - self.taken
        held = len(self._held.get(principal, ()))
        if left > 0 and held < CONNECTIONS_PER_FREE_SEAT * left:
            return True
        most = principal if left > 0 else max(self._held, key=lambda name: len(self._held[name]))
        return self._evict(most)

    def _evict(self, principal: str) -> bool:
        """Close the connection of this principal that is unused the longest."""
        held = self._held[principal]
        before = asyncio.get_running_loop().time() - CONNECTION_UNUSED_S_MIN
        for _ in range(min(len(held), CONNECTIONS_EXAMINED_MAX)):
            connection = next(iter(held))
            unused = connection.unused_since()
            if unused is not None and unused <= before:
                self.leave(principal, connection)
                connection.abort()
                self.evicted += 1
                return True
            del held[connection]  # it is in use: examine it last
            held[connection] = None
        return False


class Budget:
    """The budget of one process."""

    def __init__(self, connections_max: int | None = None) -> None:
        self.seats = Seats(connections_max or connection_limit())
        self.received = Pool(lambda: RECEIVED_BYTES_MAX)  # bytes of unfinished or waiting requests
        self.requests = Pool(lambda: REQUESTS_WAITING_MAX)  # parsed, behind others of their connection
        self.appends = Pool(lambda: APPEND_BYTES_MAX)  # large appends under way
        self.responses = Pool(lambda: RESPONSE_BYTES_MAX)  # large responses, until clients have read them
        self.turns = Turns()
        self._frames: dict[str, FrameRate] = {}
        self.floods_closed = 0

    def door(self, limit: int) -> Seats:
        """The connections of one door."""
        return Seats(min(limit, self.seats.limit), self.seats)

    def frame_rate(self, principal: str) -> FrameRate:
        """The rate of all connections of a principal, so that a new connection does not reset it."""
        rate = self._frames.pop(principal, None)
        if rate is None:
            rate = FrameRate(CONTROL_FRAMES_PER_PRINCIPAL_S, CONTROL_FRAMES_PER_PRINCIPAL_BURST)
            if len(self._frames) >= PRINCIPALS_KEPT:
                del self._frames[next(iter(self._frames))]
        self._frames[principal] = rate
        return rate

    def published(self) -> Iterator[Metric]:
        yield one("mainstem_connections", "gauge", "Open connections of all doors.", self.seats.taken)
        yield one(
            "mainstem_connections_limit", "gauge", "Maximum connections of all doors.", self.seats.limit
        )
        yield one(
            "mainstem_connections_evicted_total",
            "counter",
            "Unused connections closed to make room for new ones.",
            self.seats.evicted,
        )
        yield one(
            "mainstem_connections_over_limit_total",
            "counter",
            "Connections rejected because no unused connection could be closed for them.",
            self.seats.refused,
        )
        yield one(
            "mainstem_floods_closed_total",
            "counter",
            "Connections closed because the client exceeded its budget.",
            self.floods_closed,
        )
        yield one(
            "mainstem_received_bytes_held",
            "gauge",
            "Bytes of unfinished or waiting requests.",
            self.received.total,
        )
        yield one(
            "mainstem_response_bytes_held",
            "gauge",
            "Bytes reserved for large responses that clients have not read yet.",
            self.responses.total,
        )


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files to the hard limit. Returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def connection_limit() -> int:
    """Connections that leave enough descriptors for files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        soft = DESCRIPTORS_MAX
    reserve = min(DESCRIPTORS_RESERVED, soft // 2)
    return max(1, soft - reserve)


def holder_of(principal: Principal, peer: str) -> str:
    """Whom the budget counts for: the principal, or the address of a client that has not authenticated."""
    return peer if principal.name == ANONYMOUS.name else principal.name


def peer_of(transport: asyncio.BaseTransport) -> str:
    """The address of the peer, which stands for a client that has not authenticated."""
    return str((transport.get_extra_info("peername") or ("",))[0])
