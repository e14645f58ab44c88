"""How an embedded log promises and syncs."""

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
    """Keep the cursor in memory and store it every so many reads, and at close. After a crash, up to that
    many records are read again."""
    if persist_every < 1:
        raise InvalidInput(f"persist_every takes 1 or more, not {persist_every}")
    return AtLeastOnce(persist_every)


def every_ms(interval_ms: int) -> EveryMs:
    """Sync in the background this often. A power cut may take what was written since."""
    if interval_ms < 1:
        raise InvalidInput(f"every_ms takes 1 or more, not {interval_ms}; for no syncs say 'never'")
    return EveryMs(interval_ms)


def check(consistency: object, sync: object) -> None:
    if consistency != "strict" and not isinstance(consistency, AtLeastOnce):
        raise InvalidInput(
            f"consistency takes 'strict' or at_least_once(persist_every=N), not {consistency!r}"
        )
    if sync not in ("each", "never") and not isinstance(sync, EveryMs):
        raise InvalidInput(f"sync takes 'each', every_ms(N) or 'never', not {sync!r}")
