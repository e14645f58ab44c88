"""The consistency and sync options of an embedded log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mainstem.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class AtLeastOnce:
    persist_every: int


@dataclass(frozen=True, slots=True)
class EveryMs:
    interval_ms: int


Consistency = Literal["strict"] | AtLeastOnce
Sync = Literal["each", "never"] | EveryMs


def at_least_once(persist_every: int) -> AtLeastOnce:
    """Keep the cursor in memory, and store it every `persist_every` reads and at close. After a crash, up to that
    many records are read again."""
    if persist_every < 1:
        raise InvalidInput(f"persist_every must be 1 or more, not {persist_every}")
    return AtLeastOnce(persist_every)


def every_ms(interval_ms: int) -> EveryMs:
    """Sync in the background at this interval. A power failure may lose what was written since the last sync."""
    if interval_ms < 1:
        raise InvalidInput(f"every_ms must be 1 or more, not {interval_ms}; use sync='never' for no syncs")
    return EveryMs(interval_ms)


def check(consistency: object, sync: object) -> None:
    if consistency != "strict" and not isinstance(consistency, AtLeastOnce):
        raise InvalidInput(
            f"consistency must be 'strict' or at_least_once(persist_every=N), not {consistency!r}"
        )
    if sync not in ("each", "never") and not isinstance(sync, EveryMs):
        raise InvalidInput(f"sync must be 'each', every_ms(N) or 'never', not {sync!r}")
