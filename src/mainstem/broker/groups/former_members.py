"""The members that a classic group had at its last coordinator, or before a restart."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mainstem.broker.groups.timers import Timers

GROUP_EXPECTED_MS = (
    4_000  # how long a group waits after a start for its former members, which ask every 3 s …
)
GROUP_HEARD_MS = 10_000  # … and for one that has sent a heartbeat since


class FormerMembers:
    """Those that have not joined again. They may commit, and are asked to join, until another generation begins.

    A rebalance waits for them at first, and then for those that still send heartbeats: a client whose program is
    busy joins late. The rebalance timeout of the others bounds that.
    """

    def __init__(self, members: Iterable[str], timers: Timers, waited: Callable[[], None]) -> None:
        """`waited` is called when some of them are not waited for any more."""
        self._members = set(members)
        self._awaited = set(self._members)
        self._heard: set[str] = set()
        self._waited = waited
        self._timer = timers.timer(self._check)
        if self._members:
            self._timer.start(GROUP_EXPECTED_MS)

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    @property
    def awaited(self) -> bool:
        """Whether a rebalance waits for some of them."""
        return bool(self._awaited)

    def hear(self, member_id: str) -> None:
        """One has sent a heartbeat."""
        self._heard.add(member_id)
        self._awaited.add(member_id)
        if not self._timer.running:
            self._timer.start(GROUP_HEARD_MS)

    def remove(self, member_id: str) -> None:
        """One has joined or left."""
        self._members.discard(member_id)
        self._awaited.discard(member_id)
        self._heard.discard(member_id)

    def clear(self) -> None:
        """Another generation begins, or the group ends."""
        self._members.clear()
        self._awaited.clear()
        self._heard.clear()
        self._timer.cancel()

    def _check(self) -> None:
        self._awaited &= self._heard
        self._heard.clear()
        if self._awaited:
            self._timer.start(GROUP_HEARD_MS)
        self._waited()
