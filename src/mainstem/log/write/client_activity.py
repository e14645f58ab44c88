"""Which client sent the last request. While only one is active, its commit is written as soon as its request is read,
and may be synced on the event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

LONE_QUIET_S = 0.02  # a client is alone if no other one sent anything for this long


class ClientActivity:
    """The doors record which client sends. They set the two fields themselves, because every request does it:
    `if activity.last is not client: activity.last, activity.changed_at = client, now`.

    A door that appends while it reads sets `reading` if the client is alone. When it is done, it resets it and calls
    `write` if that is `due`: nobody else's requests would join what the client proposed in this turn of the loop.
    A door that serves each request in a task counts those in progress in `tasks`: the only one may do the same."""

    __slots__ = ("changed_at", "due", "last", "reading", "tasks", "write")

    def __init__(self, write: Callable[[], None] = lambda: None) -> None:
        self.write = write  # writes what was proposed
        self.last: object = None  # the connection that sent something last
        self.changed_at = 0.0  # when another one did, by the time of the event loop
        self.reading = False  # what a client sent that is alone
        self.due = False  # something was proposed meanwhile
        self.tasks = 0  # that serve a request each

    def alone(self, now: float) -> bool:
        """Whether only one client has been active lately."""
        return now - self.changed_at >= LONE_QUIET_S

    def lone(self, now: float) -> bool:
        """Whether one request is in progress, or one client active: nobody else's work comes along soon."""
        return self.tasks == 1 or self.alone(now)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """One of the `tasks` waits for what others append, for as long as this is open: it does not append itself."""
        self.tasks -= 1
        try:
            yield
        finally:
            self.tasks += 1
