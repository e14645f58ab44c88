"""The log, as the work in its background sees it: sealing, checkpoints, repacking, tiering."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from mainstem.ledger.section import Command
from mainstem.log.objects.store_copies import StoreCopies


class LogHost(Protocol):
    maintains: Callable[[], bool]  # whether it is this broker that seals, checkpoints and deletes
    store_copies: StoreCopies  # while there are any, nothing may be deleted from the object store

    @property
    def broker(self) -> int:
        """The number of this broker."""
        ...

    @property
    def epoch(self) -> int:
        """The epoch of this broker; 0 before it has one."""
        ...

    @property
    def written_bytes(self) -> int:
        """Bytes written to the log since it was opened."""
        ...

    @property
    def replayable_from(self) -> int:
        """Where the oldest checkpoint stands that a replay may have to start from."""
        ...

    async def propose(self, command: Command) -> Any:
        """Commit one command. Returns its result once durable; raises the reason if the ledger refuses it."""
        ...

    async def sync(self) -> None:
        """Make everything appended so far durable."""
        ...

    async def collect(self) -> int:
        """Delete objects of the log that nothing needs. Returns how many."""
        ...

    def hold_back(self, seconds: float) -> None:
        """Delay every group of commits by this long: repacking does not keep up."""
        ...
